/* Several machines by MPI: processes of one machine that mpirun starts. They
 * give the bits of one process, refuse what does not match, and end when one of
 * them is lost. The cases use Open MPI, in the long tier MPICH too. */
#include "lib/command.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ONE    "-n 1 plait "
#define WORKER " : -n 1 plait worker " MODEL "-t 1 --no-pin "
/* Processes share a busy machine's cores, so silence is judged late. */
#define QUIET "-t 1 --no-pin --machine-timeout 30 "

enum mpi { OPEN_MPI, MPICH, N_MPI };

static const struct {
    const char *name, *program, *module, *packages, *run;
} mpis[N_MPI] = {
    {"Open MPI", "mpirun.openmpi", "plait-openmpi.so",
     "openmpi-bin and libopenmpi-dev",
     "mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none"},
    {"MPICH", "mpirun.mpich", "plait-mpich.so", "mpich and libmpich-dev",
     "mpirun.mpich"},
};

/* Skips the case, by name, where the implementation or its module is not
 * installed. */
static void need_mpi(enum mpi k)
{
    char *path = strdup(command_path()), *module = NULL, *find = NULL;
    bool has;

    *strrchr(path, '/') = '\0';
    if (asprintf(&module, "%s/%s", path, mpis[k].module) < 0 ||
        asprintf(&find, "command -v %s >/dev/null", mpis[k].program) < 0)
        fail_msg("no memory");
    has = access(module, R_OK) == 0 && system(find) == 0;
    free(find);
    free(module);
    free(path);
    if (!has)
        TEST_SKIP("%s was not there when plait was built: install %s, then "
                  "configure again",
                  mpis[k].name, mpis[k].packages);
}

/* Runs a line whose %s is the mpirun of an implementation. */
static struct ran run(enum mpi k, int code, const char *form)
{
    static char line[16][1024];
    static int n;
    char *l = line[n++ % 16];

    snprintf(l, sizeof *line, form, mpis[k].run);
    return sh(code, l);
}

#define LOGITS                                                                 \
    "plait logits " MODEL "--tokens 9,40,41,42,7,300,12 --ranks 4 " QUIET

static void same_bits(enum mpi k)
{
    need_mpi(k);
    sh(0, LOGITS "-o one.bin");
    run(k, 0, "%s -n 2 " LOGITS "-sm tensor -o a.bin && cmp one.bin a.bin");
    run(k, 0, "%s -n 3 " LOGITS "-sm layer -o b.bin && cmp one.bin b.bin");
    run(k, 0,
        "%s -n 2 " LOGITS "-sm hybrid:2 -dev cpu*2 -cmoe --send-weights "
        "-o c.bin && cmp one.bin c.bin");
}

TEST(machines_give_the_bits_of_one)
{
    same_bits(OPEN_MPI);
}

TEST_LONG(machines_by_mpich_give_the_bits_of_one)
{
    same_bits(MPICH);
}

/* A machine has its own path of the model, its own devices and threads. What
 * does not fit together is refused by all, and all end. */
/* The exit code of mpirun is that of the process that ends first. */
#define FAILS " || exit 1"

TEST(machines_that_differ_are_refused)
{
    struct ran r;

    need_mpi(OPEN_MPI);
    r = run(OPEN_MPI, 0,
            "cp models/fable-moe-Q8_0.gguf own.gguf && %s " ONE "run " MODEL
            "-p Once -n 3 --temp 0 -sm tensor " QUIET
            ": -n 1 plait worker -m own.gguf -dev cpu*2 -t 1 --no-pin");
    must_say(r, "3 devices, 3 ranks");
    assert_non_null(strstr(r.out, "Once upon a"));
    r = run(OPEN_MPI, 1,
            "%s " ONE "run " MODEL "-p Once -n 3 " QUIET WORKER
            "--override-kv .rope.freq_base=float:5000" FAILS);
    must_say(r, "plait run: machine 1: ");
    must_say(r, "is another model than that of machine 0");
    r = run(OPEN_MPI, 1,
            "%s " ONE "run " MODEL "-p Once -n 3 " QUIET WORKER
            "-dev none" FAILS);
    must_say(r, "plait run: machine 1: this machine has no device");
}

TEST(machines_by_hosts)
{
    struct ran r = sh(2, "plait run " MODEL "--hosts a,,b");

    must_say(r, "--hosts a,,b: \"\": give names of 1 to 64 machines");
    must_say(sh(2, "plait worker " MODEL), "mpirun has not started");
    need_mpi(OPEN_MPI);
    r = sh(0, "plait run " MODEL
              "--hosts localhost,localhost -v -p Once -n 3 --temp 0 -sm tensor "
              "--seed 1 " QUIET);
    must_say(r, "mpirun.openmpi -n 2 -H localhost,localhost --map-by node");
    must_say(r, "2 devices, 2 ranks");
    assert_non_null(strstr(r.out, "Once upon a"));
}

/* A server over machines answers as one of a single machine. */
TEST(machines_serve)
{
    struct ran r;

    need_mpi(OPEN_MPI);
    r = run(OPEN_MPI, 0,
            "%s -n 2 plait serve " MODEL "--port 0 -sm tensor " QUIET
            "2>log & job=$!; url=; for i in $(seq 600); do "
            "url=$(grep -o 'http://[0-9.:]*' log | head -1); "
            "[ -n \"$url\" ] && break; sleep 0.1; done; "
            "python3 -c 'import json, sys, urllib.request as u; "
            "print(json.load(u.urlopen(u.Request(sys.argv[1] + "
            "\"/v1/completions\", json.dumps({\"prompt\": \"Once\", "
            "\"max_tokens\": 3, \"temperature\": 0}).encode(), "
            "{\"Content-Type\": \"application/json\"}), timeout=60))"
            "[\"choices\"][0][\"text\"])' $url; rc=$?; "
            "kill $job; wait $job; exit $rc");
    assert_non_null(strstr(r.out, " upon a"));
}

/* ---- machines that are lost ---------------------------------------------- */

static struct ran lose(enum mpi k, const char *signal, int machine)
{
    char line[1024];

    snprintf(line, sizeof line,
             "%s %s %d %s -n 3 plait run " MODEL
             "-p Once -n -1 --ignore-eos -c 4096 -sm tensor -t 1 --no-pin "
             "--machine-timeout 3 2>&1",
             test_file("tests/tools/machine_lost.sh"), signal, machine,
             mpis[k].run);
    return sh(0, line);
}

/* A stopped machine is an error of the others within seconds, and no process is
 * left. One that is killed is noticed by mpirun, which ends all. */
TEST(machines_that_are_lost_end_the_job)
{
    need_mpi(OPEN_MPI);
    assert_non_null(strstr(lose(OPEN_MPI, "STOP", 1).out,
                           "machine 1: nothing was heard of it for 3 s"));
    lose(OPEN_MPI, "KILL", 0);
}

TEST_LONG(machines_that_are_lost_end_the_job_whichever)
{
    for (int k = 0; k < N_MPI; k++) {
        need_mpi((enum mpi)k);
        for (int m = 0; m < 3; m++) {
            lose((enum mpi)k, "KILL", m);
            lose((enum mpi)k, "STOP", m);
        }
    }
}

/* ---- servers that come back ---------------------------------------------- */

/* Runs scenes of machines_net.py. As root, namespaces are to be possible. */
static void play(enum mpi k, const char *options, const char *scenes)
{
    static const char *const words[N_MPI] = {"openmpi", "mpich"};
    char line[1024];

    need_mpi(k);
    snprintf(line, sizeof line,
             "python3 %s --mpi %s %s \"$(command -v plait)\" "
             "models/fable-moe-Q8_0.gguf %s; c=$?; [ $c = 77 ] && "
             "[ $(id -u) != 0 ] && echo no-namespaces && exit 0; exit $c",
             test_file("tests/tools/machines_net.py"), words[k], options,
             scenes);
    if (strstr(sh(0, line).out, "no-namespaces"))
        TEST_SKIP("only root can make network namespaces");
}

/* A client gets an error, others 503, then the text of before. */
TEST(machines_that_are_lost_come_back_behind_the_front)
{
    play(OPEN_MPI, "--processes", "step:1");
}

TEST_LONG(machines_as_namespaces_come_back)
{
    play(OPEN_MPI, "",
         "load:0 load:1 load:2 idle:0 idle:1 idle:2 step:0 step:1 step:2 "
         "stop:0 stop:1 stop:2 cut:1 cut:2");
}

TEST_LONG(machines_as_namespaces_come_back_by_mpich)
{
    play(MPICH, "", "load:0 load:1 idle:1 step:0 step:1 step:2 stop:1 cut:1");
}

TEST_LONG(machines_as_namespaces_die_at_random_moments)
{
    play(OPEN_MPI, "", "random:200");
}
