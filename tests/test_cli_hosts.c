/* plait --hosts without MPI: lists and files of machines, the words that each
 * is started with, plait in place of ssh, and the front of a server, whose
 * mpirun is a script. 1.5 s of processor time. */
#include "cli/front_policy.h"
#include "cli/hosts.h"
#include "lib/command.h"
#include "lib/serve_try.h"
#include "lib/support.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- lists and files ----------------------------------------------------- */

static struct hosts h;
static char why[HOSTS_WHY];

static void is_host(int i, const char *user, const char *name, int port,
                    const char *call, const char *shown)
{
    const struct host *a = &h.host[i];

    assert_true(i < h.n);
    assert_string_equal(a->user, user);
    assert_string_equal(a->name, name);
    assert_int_equal(a->port, port);
    assert_string_equal(a->call, call);
    assert_string_equal(a->shown, shown);
}

TEST(hosts_of_a_list)
{
    assert_true(hosts_parse_list(
        &h, "a,me@b.example.org,10.0.0.3:22,[fe80::1%eth0]:2222,x@[::1],a",
        why));
    assert_int_equal(h.n, 6);
    is_host(0, "", "a", 0, "a", "a-0");
    is_host(1, "me", "b.example.org", 0, "plait-machine-1", "b.example.org");
    is_host(2, "", "10.0.0.3", 22, "plait-machine-2", "10.0.0.3");
    is_host(3, "", "fe80::1%eth0", 2222, "plait-machine-3", "fe80::1%eth0");
    is_host(4, "x", "::1", 0, "plait-machine-4", "::1");
    is_host(5, "", "a", 0, "a", "a-5");
    hosts_free(&h);
}

/* A text that is read has the meaning that is written. */
TEST(hosts_of_a_job_are_those_of_the_environment)
{
    struct hosts back;

    assert_true(hosts_parse_list(&h, "me@[::1]:7,b:22,c,u@d", why));
    assert_true(hosts_export(&h));
    assert_string_equal(getenv(HOSTS_VARIABLE), "me@[::1]:7,b:22,c,u@d");
    assert_true(hosts_import(&back));
    assert_memory_equal(&back, &h, sizeof h);
    unsetenv(HOSTS_VARIABLE);
    assert_false(hosts_import(&back));
}

TEST(hosts_that_are_none_are_refused)
{
    static const char *const bad[] = {
        "",     "a,",  ",a",     "a,,b",    "a b",
        "-a",   "a:",  "a:0",    "a:65536", "a:2x",
        "@a",   "me@", "-x@a",   "[::1",    "[::1]x",
        "[]",   "[a]", "a@b@c",  "fe80::1", "a;b",
        "$(a)", "a'",  "[::1]:", "a:-1",    "a:99999999999999999999",
    };
    char many[3 * HOSTS_MAX + 8];
    size_t n = 0;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (hosts_parse_list(&h, bad[i], why) || why[0] == '\0')
            fail_msg("\"%s\" is taken", bad[i]);
    hosts_parse_list(&h, "fe80::1", why);
    assert_non_null(strstr(why, "brackets"));
    for (int i = 0; i < HOSTS_MAX; i++)
        n += (size_t)sprintf(many + n, "%sa", i > 0 ? "," : "");
    assert_true(hosts_parse_list(&h, many, why));
    strcpy(many + n, ",a");
    assert_false(hosts_parse_list(&h, many, why));
    assert_non_null(strstr(why, "more than 64"));
}

static void words_are(int m, enum command c, const struct word_list *all,
                      const char *want)
{
    struct word_list w = {0};
    char text[1024] = "";

    assert_true(hosts_words(&w, &h, m, c, all));
    for (int i = 0; i < w.n; i++)
        sprintf(text + strlen(text), "%s%s", i > 0 ? "|" : "", w.v[i]);
    assert_string_equal(text, want);
    word_list_free(&w);
}

TEST(hosts_of_a_file_have_options_of_their_own)
{
    static char *const words[] = {"-m",       "a.gguf", "--hosts", "f",
                                  "-p",       "-x",     "-t",      "3",
                                  "--no-pin", "-dev",   "cpu",     "--seed=4"};
    const struct word_list all = {(char **)words, 12};

    assert_true(hosts_parse_file(&h,
                                 "# ours\n\n"
                                 "a -dev gpu*2   # two\r\n"
                                 "\tu@b:22 -m '/srv/my q.gguf' -t 5\n"
                                 "c -hf \"me/it\" --no-pin\n"
                                 "d",
                                 why));
    assert_int_equal(h.n, 4);
    assert_true(h.has_lines && hosts_check(&h, why));
    is_host(1, "u", "b", 22, "plait-machine-1", "b");
    words_are(0, CMD_RUN, &all,
              "run|-m|a.gguf|-p|-x|-t|3|--no-pin|--seed=4|-dev|gpu*2");
    words_are(1, CMD_RUN, &all,
              "worker|--no-pin|-dev|cpu|-m|/srv/my q.gguf|-t|5");
    words_are(2, CMD_RUN, &all, "worker|-t|3|-dev|cpu|-hf|me/it|--no-pin");
    words_are(3, CMD_RUN, &all, "worker|-m|a.gguf|-t|3|--no-pin|-dev|cpu");
    hosts_free(&h);
}

TEST(hosts_of_a_file_that_are_wrong_are_named_by_line)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "no machine"},
        {"# a\n\n", "no machine"},
        {"a\nb b c\n", "line 2: "},
        {"a -m 'x\n", "line 1: a quote is not closed"},
        {"a\n\n[::1 -t 2\n", "line 3: \"[::1\""},
        {"a -p Hello\n", "line 1: after the machine's name"},
        {"a -t many\n", "line 1: after the machine's name"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(hosts_parse_file(&h, bad[i].text, why) &&
                     hosts_check(&h, why));
        if (strstr(why, bad[i].says) == NULL)
            fail_msg("%s: %s", bad[i].text, why);
        hosts_free(&h);
    }
}

/* ---- plait in place of ssh ----------------------------------------------- */

/* A script in place of ssh: it writes its words to the file `said`, and runs
 * the last one. */
#define NO_SSH                                                                 \
    "printf '#!/bin/sh\\nfor w; do echo \"$w\"; done >said\\n"                 \
    "%s\\n' 'for w; do :; done; sh -c \"$w\"' >ssh && chmod +x ssh && "        \
    "export PLAIT_SSH=./ssh PLAIT_HOSTS=a,me@b:77; "

TEST(hosts_are_reached_with_their_user_and_port)
{
    struct ran r =
        sh(0, NO_SSH "plait -x --remote-shell plait-machine-1 echo "
                     "'hello;' 'echo \"it'\"'\"'s\" me' && cat said");

    assert_memory_equal(r.out, "hello\nit's me\n-x\n", 17);
    assert_non_null(strstr(r.out, "\n-p\n77\nme@b\nexec sh -c "));
    r = sh(0, NO_SSH "plait --remote-shell a true && cat said");
    assert_null(strstr(r.out, "\n-p\n"));
    assert_non_null(strstr(r.out, "\na\nexec sh -c "));
    must_say(sh(2, "plait --remote-shell a true"), "is for mpirun");
    must_say(sh(1, NO_SSH "plait --remote-shell c true"),
             "\"c\" is not one of a,me@b:77");
}

/* MPI would answer another architecture or a missing program with a hang. */
TEST(hosts_that_do_not_fit_are_told_with_a_remedy)
{
    must_say(sh(255, NO_SSH "echo 'exit 255' >ssh; "
                            "plait --remote-shell plait-machine-1 orted"),
             "machine b cannot be reached; see whether `ssh -p 77 me@b true` "
             "works without a password");
    must_say(sh(127, NO_SSH "plait --remote-shell a no-such-orted"),
             "machine a has no orted; install the same MPI");
    must_say(sh(66, NO_SSH "printf '#!/bin/sh\\necho riscv64\\n' >uname && "
                           "chmod +x uname && PATH=.:$PATH && "
                           "plait --remote-shell a true"),
             "machine a is riscv64, this one is ");
    must_say(sh(66, NO_SSH "cp \"$(command -v plait)\" own && "
                           "echo 'rm own; for w; do :; done; sh -c \"$w\"' "
                           ">ssh; ./own --remote-shell a true"),
             "/own; install plait there at the same path");
    must_say(sh(66, NO_SSH "cp \"$(command -v plait)\" own && "
                           "echo 'rm own; echo echo plait 9.9 >own; "
                           "chmod +x own; for w; do :; done; sh -c \"$w\"' "
                           ">ssh; ./own --remote-shell a true"),
             "machine a has another version: plait 9.9; this one has plait ");
}

/* ---- several models ------------------------------------------------------ */

/* Machines have one engine, so this is said before any is started. */
TEST(hosts_serve_one_model)
{
    static const char *const several[] = {"--models-dir models", MODEL MODEL,
                                          "--models-preset /dev/null"};
    char line[256];

    for (size_t i = 0; i < sizeof several / sizeof several[0]; i++) {
        snprintf(line, sizeof line, "plait serve --hosts a,b %s", several[i]);
        must_say(sh(2, line), "they serve one model at a time; give one with");
        snprintf(line, sizeof line, "OMPI_COMM_WORLD_SIZE=2 plait serve %s",
                 several[i]);
        must_say(sh(2, line), "they serve one model at a time; give one with");
    }
}

/* ---- the front ----------------------------------------------------------- */

TEST(front_restarts_what_a_restart_can_mend)
{
    static const struct {
        struct front_end e;
        bool again;
        int code;
    } rows[] = {
        /* stopping, told, came, late, code, served, served_s */
        {{true, 0, true, false, 0, true, 5}, false, 0},
        {{true, 143, true, false, 0, false, 0}, false, 143},
        {{true, -1, false, false, 143, false, 0}, false, 0},
        {{false, 3, true, false, 3, false, 0}, true, 0},
        {{false, 3, true, false, 3, true, 9}, true, 0},
        {{false, -1, true, false, 137, false, 0}, true, 0}, /* killed */
        {{false, 143, true, false, 0, true, 9}, true, 0},   /* mpirun killed */
        {{false, 0, true, false, 0, true, 9}, true, 0},
        {{false, 1, true, false, 1, false, 0}, false, 1}, /* no such model */
        {{false, 2, true, false, 0, true, 9}, false, 2},  /* a wrong option */
        {{false, -1, false, false, 255, false, 0}, false, 255}, /* ssh */
        {{false, -1, false, false, 0, false, 0}, false, 1},
        {{false, -1, false, false, 255, true, 0}, true, 0}, /* does not come
                                                               back yet */
        {{false, -1, true, true, 137, false, 0}, true, 0},
        {{false, -1, false, true, 137, false, 0}, true, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int code = 99;
        bool again = front_restarts(&rows[i].e, &code);

        if (again != rows[i].again || (!again && code != rows[i].code))
            fail_msg("row %zu: again %d, code %d", i, again, code);
    }
}

TEST(front_waits_longer_and_longer)
{
    static const int want[] = {1, 2, 4, 8, 16, 32, 60, 60, 60};
    struct front_end e = {.told = 3, .served_s = FRONT_STEADY_S - 1};
    int n = 0;

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_int_equal(front_wait_s(&e, &n), want[i]);
    e.served_s = FRONT_STEADY_S;
    assert_int_equal(front_wait_s(&e, &n), 1);
    e.served_s = 0;
    assert_int_equal(front_wait_s(&e, &n), 2);
}

/* An mpirun that starts machine 0 alone, as a server of one machine. It counts
 * its starts and keeps the number of the process. */
#define FAKE_MPI                                                               \
    "export PLAIT_MPI=openmpi PATH=\"$PWD/bin:$PATH\"; mkdir -p bin; "         \
    "printf '%s\\n' '#!/bin/sh' "                                              \
    "'[ \"$1\" = --version ] && { echo \"(Open MPI)\"; exit 0; }' "            \
    "'echo $$ >>starts; [ -e broken ] && exit 9' "                             \
    "'while [ \"${1##*/}\" != plait ]; do shift; done' 'exec \"$@\"' "         \
    ">bin/mpirun.openmpi; chmod +x bin/mpirun.openmpi; "

/* The front is tried where the module of Open MPI was built, because --hosts
 * begins nothing without it. */
static void need_module(void)
{
    char *path = strdup(command_path()), *module = NULL;
    bool has;

    *strrchr(path, '/') = '\0';
    if (asprintf(&module, "%s/plait-openmpi.so", path) < 0)
        fail_msg("no memory");
    has = access(module, R_OK) == 0;
    free(module);
    free(path);
    if (!has)
        TEST_SKIP("plait-openmpi.so was not built: install openmpi-bin and "
                  "libopenmpi-dev, then configure again");
}

/* Returns the n-th process that the fake mpirun has become; 0 if there is none
 * yet. */
static int started(const char *dir, int n)
{
    char path[512], line[32];
    int pid = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/starts", dir);
    f = fopen(path, "r");
    for (int i = 0; f && i <= n; i++)
        pid = fgets(line, sizeof line, f) ? atoi(line) : 0;
    if (f)
        fclose(f);
    return pid;
}

static struct try_answer get(struct serve_try *s, const char *path)
{
    struct try_client c;
    struct try_answer a;
    char text[128];

    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n",
             path);
    try_connect(&s->t, &c);
    try_send(&c, text);
    try_read(&c, &a, false);
    try_close(&c);
    return a;
}

TEST(front_answers_while_a_server_that_died_is_started_again)
{
    const char *dir = test_temp("front");
    struct serve_try s;
    struct try_answer a;
    char before[2048], line[512];

    need_module();
    snprintf(before, sizeof before,
             "rm -rf '%s' && mkdir -p '%s' && cd '%s' && %s", dir, dir, dir,
             FAKE_MPI);
    serve_try_start(&s, before, "--hosts localhost --no-pin");
    a = get(&s, "/health");
    assert_int_equal(a.status, 200);
    free(a.body);
    kill(started(dir, 0), SIGKILL);
    /* whoever connects now waits for the front, which sees the end at once */
    a = get(&s, "/v1/models");
    assert_int_equal(a.status, 503);
    assert_non_null(strstr(a.head, "Retry-After: "));
    assert_non_null(strcasestr(a.head, "Connection: close"));
    assert_non_null(strstr(a.body, "\"type\":\"unavailable_error\""));
    while (a.status == 503) {
        free(a.body);
        usleep(20000);
        a = get(&s, "/health");
    }
    assert_int_equal(a.status, 200);
    free(a.body);
    assert_true(started(dir, 1) > 0);
    serve_try_stop(&s);
    assert_int_equal(started(dir, 2), 0);
    snprintf(line, sizeof line, "kill -0 %d 2>/dev/null", started(dir, 1));
    assert_int_not_equal(system(line), 0); /* nothing is left */
}

TEST(front_ends_with_an_error_that_a_restart_does_not_mend)
{
    struct ran r;

    need_module();
    r = sh(1, FAKE_MPI "echo nothing >x.gguf; plait serve -m x.gguf --port 0 "
                       "--hosts a; c=$?; wc -l <starts; exit $c");
    must_say(r, "x.gguf");
    assert_int_equal(atoi(r.out), 1);
    r = sh(9, "rm starts; touch broken; " FAKE_MPI "plait serve " MODEL
              "--port 0 --hosts a; c=$?; wc -l <starts; exit $c");
    must_say(r, "ended with code 9 before machine 0 was started");
    assert_int_equal(atoi(r.out), 1);
}

/* Ctrl-C or SIGTERM end a front that waits for its next start. */
TEST(front_ends_by_a_signal_between_two_jobs)
{
    const char *dir = test_temp("front_signal");
    struct serve_try s;
    struct try_answer a;
    char before[2048], line[512];

    need_module();
    snprintf(before, sizeof before,
             "rm -rf '%s' && mkdir -p '%s' && cd '%s' && %s", dir, dir, dir,
             FAKE_MPI);
    serve_try_start(&s, before, "--hosts localhost --no-pin");
    snprintf(line, sizeof line, "touch '%s/broken'", dir);
    assert_int_equal(system(line), 0);
    kill(started(dir, 0), SIGKILL);
    a = get(&s, "/health");
    assert_int_equal(a.status, 503);
    free(a.body);
    while (started(dir, 1) == 0) /* a start that fails is repeated */
        usleep(20000);
    serve_try_stop(&s);
}

/* ---- logs ---------------------------------------------------------------- */

/* A process of a job names its machine, and a log is appended to. */
TEST(hosts_append_to_the_log_of_their_machine)
{
    struct ran r;

    need_module();
    r = sh(0, "export OMPI_COMM_WORLD_RANK=1 PLAIT_HOSTS=a,me@b:22; "
              "for i in 1 2; do OMPI_COMM_WORLD_SIZE=2 plait worker -m x "
              "--log-dir . --join-timeout 1; done; cat b.log");
    must_say(r, "[b] plait worker: ");
    assert_memory_equal(r.out, "[b] plait worker: ", 18);
    assert_non_null(strstr(r.out + 1, "[b] plait worker: "));
}
