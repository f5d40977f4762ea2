/* Several machines by MPI: processes of one machine that mpirun starts. They
 * give the bits of one process, refuse what does not match, and end when one of
 * them is lost. The cases use Open MPI, in the long tier MPICH too. */
#include "gguf/gguf.h"
#include "lib/command.h"
#include "lib/ref_models.h"
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

#define GENERATE                                                               \
    "-p 'Once upon a time there was a time there was' -n 60 --temp 0 -v "      \
    "--ignore-eos --ranks 2 " QUIET
#define EACH_LOGITS                                                            \
    " logits " MODEL "--tokens 9,40,41,42,7,300,12 --ranks 4 " QUIET
#define LOGITS     "plait" EACH_LOGITS
#define EMU_LOGITS "plait-emu" EACH_LOGITS

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

/* Compares the logits of a family's reference model over machines and on
 * one. */
static void same_family(const char *name)
{
    const char *mpi = mpis[OPEN_MPI].run;
    char *one = NULL, *line = NULL;

    if (asprintf(&one,
                 "logits -m %s --tokens 9,4,41,42,7,30,12 --ranks 2 " QUIET,
                 ref_model_path(name)) < 0 ||
        asprintf(&line,
                 "plait %s-o one.bin && "
                 "%s -n 2 plait %s-sm tensor -ub 4 -o a.bin && "
                 "cmp one.bin a.bin && "
                 "%s -n 2 plait %s-sm layer -o b.bin && cmp one.bin b.bin",
                 one, mpi, one, mpi, one) < 0)
        fail_msg("no memory");
    print_message("%s\n", name);
    sh(0, line);
    free(one);
    free(line);
}

TEST_LONG(machines_compute_all_families)
{
    need_mpi(OPEN_MPI);
    for (const char *const *name = ref_models(false); *name; name++)
        same_family(*name);
}

/* Emulated GPUs on both machines, and on one beside processors of the other.
 * All messages are left to the progress thread. */
TEST(machines_with_gpus_give_the_bits_of_one)
{
    need_mpi(OPEN_MPI);
    sh(0, LOGITS "-o one.bin");
    run(OPEN_MPI, 0,
        "%s -n 2 " EMU_LOGITS
        "-dev emu*2 -sm tensor -o a.bin && cmp one.bin a.bin");
    run(OPEN_MPI, 0,
        "%s -n 1 " EMU_LOGITS "-dev cpu -sm layer -ub 3 -o b.bin : "
        "-n 1 plait-emu worker " MODEL "-dev emu*2 -t 1 --no-pin && "
        "cmp one.bin b.bin");
    run(OPEN_MPI, 0,
        "%s -n 1 " EMU_LOGITS "-dev emu -sm tensor -o c.bin : "
        "-n 1 plait-emu worker " MODEL "-dev cpu -t 1 --no-pin && "
        "cmp one.bin c.bin");
}

TEST_LONG(machines_by_mpich_give_the_bits_of_one)
{
    same_bits(MPICH);
}

/* Writes a copy of the bundled model in which the tensors of a block are wrong,
 * apart from the middle, which machines compare. Block -1 is the last one. */
static void damage(const char *path, int block)
{
    size_t size;
    char *data = test_read(test_model(), &size), name[32];
    const struct gguf_tensor *t;
    struct gguf *g;
    FILE *f = fopen(path, "wb");
    int n = 0;
    pl_err err;

    TEST_OK(gguf_open_memory(&g, data, size, path, &err), err);
    for (int i = 0; block < 0; i++) {
        snprintf(name, sizeof name, "blk.%d.attn_q.weight", i + 1);
        if (!gguf_find_tensor(g, name))
            block = i;
    }
    snprintf(name, sizeof name, "blk.%d.", block);
    for (int64_t i = 0; i < gguf_n_tensor(g); i++) {
        t = gguf_tensor_at(g, i);
        if (strncmp(t->name, name, strlen(name)) == 0 && t->bytes > 8192) {
            memset(data + t->offset, 0x11, 1024);
            n++;
        }
    }
    assert_true(n > 3);
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    gguf_close(g);
    free(data);
}

/* A machine takes nothing from its file that it does not compute with, and
 * nothing from that of another machine. Machine 0 has the embedding, which is
 * also the output, and so the last layers. */
TEST(machines_read_their_own_part_of_the_weights)
{
    need_mpi(OPEN_MPI);
    sh(0, LOGITS "-o one.bin");
    damage(test_temp("first.gguf"), 0);
    damage(test_temp("last.gguf"), -1);
    run(OPEN_MPI, 0,
        "%s -n 1 plait logits -m first.gguf --tokens 9,40,41,42,7,300,12 "
        "--ranks 4 " QUIET "-sm layer -fit off -o a.bin : -n 1 plait worker "
        "-m last.gguf -t 1 --no-pin && cmp one.bin a.bin");
}

/* A machine has its own path of the model, its own devices and threads. What
 * does not fit together is refused by all, and all end. */
/* Long messages that nobody asks for do not keep machines from ending. */
static void close_network(enum mpi k)
{
    char *dir = strdup(command_path()), *line = NULL;

    need_mpi(k);
    *strrchr(dir, '/') = '\0';
    if (asprintf(&line, "%s -n 3 %s/tests/network-close %s/%s", mpis[k].run,
                 dir, dir, mpis[k].module) < 0)
        fail_msg("no memory");
    sh(0, line);
    free(line);
    free(dir);
}

TEST(machines_close_with_messages_under_way)
{
    close_network(OPEN_MPI);
}

TEST_LONG(machines_close_with_messages_under_way_mpich)
{
    close_network(MPICH);
}

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

/* MPI alone would wait for a machine that does not start. */
TEST(machines_that_do_not_start_are_not_waited_for)
{
    need_mpi(OPEN_MPI);
    must_say(run(OPEN_MPI, 1,
                 "timeout 60 %s " ONE "run " MODEL "-p Once -n 3 "
                 "--join-timeout 1 " QUIET ": -n 1 sleep 600" FAILS),
             "plait run: not all machines have started within 1 s; see "
             "whether plait starts on each");
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

/* A server over machines answers as one of a single machine, with prefixes from
 * host memory, and shows the devices of all. */
TEST(machines_serve)
{
    char line[1024];
    struct ran r;

    need_mpi(OPEN_MPI);
    snprintf(line, sizeof line,
             "python3 %s %%s -n 2 plait serve " MODEL
             "--port 0 -sm tensor -c 256 -np 1 " QUIET,
             test_file("tests/tools/machines_serve.py"));
    r = run(OPEN_MPI, 0, line);
    assert_non_null(strstr(r.out, "machines 0 1  upon a"));
}

/* The state of a text on two machines is that of one, byte for byte. */
TEST(machines_save_the_state_of_one)
{
    char line[1024];
    const char *tool = test_file("tests/tools/machines_serve.py");

    need_mpi(OPEN_MPI);
    snprintf(line, sizeof line,
             "python3 %s --save one plait serve " MODEL
             "--port 0 -c 256 -np 1 --ranks 2 --slot-save-path . " QUIET,
             tool);
    sh(0, line);
    snprintf(line, sizeof line,
             "python3 %s --save two %%s -n 2 plait serve " MODEL
             "--port 0 -sm tensor -c 256 -np 1 --slot-save-path . " QUIET
             "&& cmp one two",
             tool);
    run(OPEN_MPI, 0, line);
}

/* Drafts are verified by all machines, and change no token. The trace has the
 * instructions of all machines. Open MPI's mpirun makes the output a
 * terminal's, which ends with a new line. */
TEST(machines_verify_drafts)
{
    struct ran r;

    need_mpi(OPEN_MPI);
    sh(0, "plait run " MODEL GENERATE "> one.txt");
    r = run(OPEN_MPI, 0,
            "%s -n 2 plait run " MODEL GENERATE
            "-sm tensor --spec-type ngram-simple --spec-ngram-simple-size-n 1 "
            "--draft-max 4 --trace trace.json > a.txt && "
            "[ \"$(cat one.txt)\" = \"$(cat a.txt)\" ] && for d in 0 1; do "
            "grep -q '\"ph\": \"X\", \"pid\": '$d trace.json || exit 1; done");
    must_say(r, "tokens accepted of");
    assert_null(strstr(r.err, " 0 tokens accepted of"));
}

/* A draft model is computed by machine 0 alone. */
TEST(machines_draft_with_a_model_of_machine_0)
{
    struct ran r;

    need_mpi(OPEN_MPI);
    sh(0, "plait run " MODEL GENERATE "> one.txt");
    r = run(OPEN_MPI, 0,
            "%s -n 2 plait run " MODEL GENERATE
            "-sm tensor --model-draft models/fable-moe-Q8_0.gguf "
            "--draft-max 4 > a.txt && "
            "[ \"$(cat one.txt)\" = \"$(cat a.txt)\" ]");
    must_say(r, "tokens accepted of");
    assert_null(strstr(r.err, " 0 tokens accepted of"));
    must_say(r, "2 devices, 2 ranks");
}

/* The block for multi-token prediction is on machine 0. Shares and overrides
 * that mean both machines hold for the model. */
TEST(machines_draft_with_the_block_of_machine_0)
{
    char one[512], both[1024];
    struct ran r;

    need_mpi(OPEN_MPI);
    snprintf(one, sizeof one,
             "run -m %s --no-template -p abcdef -n 16 --temp 0 --ignore-eos "
             "--ranks 2 -t 1 --no-pin ",
             ref_model_path("glm4moe-f32"));
    snprintf(both, sizeof both, "plait %s> one.txt", one);
    sh(0, both);
    snprintf(both, sizeof both,
             "%%s -n 2 plait %s-sm tensor -ts 1,2 -ot attn_q=1/cpu0 -v "
             "--machine-timeout 30 -dev cpu --spec-type draft-mtp "
             "--draft-max 3 > a.txt && "
             "[ \"$(cat one.txt)\" = \"$(cat a.txt)\" ]",
             one);
    r = run(OPEN_MPI, 0, both);
    must_say(r, "tokens accepted of");
    must_say(r, ", block ");
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
             "PLAIT_SEED=%llu python3 %s --mpi %s %s "
             "\"$(command -v plait)\" "
             "models/fable-moe-Q8_0.gguf %s; c=$?; [ $c = 77 ] && "
             "[ $(id -u) != 0 ] && echo no-namespaces && exit 0; exit $c",
             (unsigned long long)test_seed(),
             test_file("tests/tools/machines_net.py"), words[k], options,
             scenes);
    if (strstr(sh(0, line).out, "no-namespaces"))
        TEST_SKIP("only root can make network namespaces");
}

/* A client gets an error, others 503, then the text of before. */
TEST(machines_that_are_lost_come_back_behind_the_front)
{
    play(OPEN_MPI, "--processes", "step:1 stop:0 random:1");
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
