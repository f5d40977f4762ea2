/* The command with -hf and -mu as users run it: once or twice at a time,
 * killed, stopped, on a full disk. */
#include "lib/command.h"
#include "lib/hub_try.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct scene {
    struct hub_try t;
    struct hub_use u; /* client whose cache folder the commands use */
};

/* Opens a hub that has the bundled model. */
static struct hub_try_file *open_scene(struct scene *s)
{
    size_t n;
    char *data = test_read(test_model(), &n);
    struct hub_try_file *f;

    hub_try_start(&s->t);
    hub_use_init(&s->u, &s->t);
    f = hub_try_add(&s->t, "fable-Q8_0.gguf", data, n);
    setenv("HF_ENDPOINT", s->t.origin, 1);
    setenv("PLAIT_CACHE", s->u.o.cache, 1);
    unsetenv("HF_TOKEN");
    free(data);
    return f;
}

static void close_scene(struct scene *s)
{
    hub_use_fini(&s->u);
    hub_try_stop(&s->t);
}

static int64_t part_size(const struct scene *s)
{
    struct stat st;
    const char *path =
        hub_use_place(&s->u, &s->t, s->t.revision, "fable-Q8_0.gguf.part");

    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

static pid_t start(const char *line)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        char all[512];

        snprintf(all, sizeof all, "exec %s %s >%s 2>&1", command_path(), line,
                 "/dev/null");
        execl("/bin/sh", "sh", "-c", all, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static int ended(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return command_status(status);
}

/* Waits until n bytes are present. */
static void wait_for_part(const struct scene *s, int64_t n)
{
    TEST_UNTIL(part_size(s) >= n);
}

TEST(hub_command_runs_a_model_of_a_hub)
{
    struct scene s;
    struct ran a, b;

    (void)open_scene(&s);
    a = sh(0, "plait tokenize " MODEL "-p 'Once upon a time' --ids");
    b = sh(0, "plait tokenize -hf T/R -p 'Once upon a time' --ids");
    assert_string_equal(a.out, b.out);
    must_say(b, "plait tokenize: downloading fable-Q8_0.gguf, 10.7 MB");
    b = sh(0, "plait tokenize --hf-repo T/R:q8_0 --hf-token x -p 'Once upon a "
              "time' --ids");
    assert_string_equal(a.out, b.out);
    assert_string_equal(b.err, "");
    assert_int_equal(s.t.n_get, 1);
    assert_int_equal(s.t.n_token, 2);
    hub_try_count(&s.t);
    (void)sh(0, "plait inspect -hf T/R --hf-file fable-Q8_0.gguf --offline");
    (void)sh(0, "plait run -hf T/R -dev cpu -t 1 -p Once -n 2 --offline");
    (void)sh(0, "plait bench -hf T/R -dev cpu -t 1 -p 1 -n 0 -r 1 --no-limits "
                "--offline");
    assert_int_equal(s.t.n_api, 0);
    must_say(sh(1, "plait plan -hf T/S"), "no such repository");
    must_say(sh(1, "plait plan -hf T/R:F16"), "it has: Q8_0");
    must_say(sh(2, "plait plan -hf T/R " MODEL),
             "-hf and -m both name a model");
    must_say(sh(2, "plait inspect a.gguf -hf T/R"), "-hf and the file");
    must_say(sh(2, "plait plan -hf T/R -mu http://a/b.gguf"), "-hf and -mu");
    must_say(sh(2, "plait plan --hf-file a.gguf"), "-hf USER/REPO");
    must_say(sh(2, "plait bench -hf T/R --shape llama-1.2b"), "--shape");
    close_scene(&s);
}

/* Its path is known only after the download. */
TEST(hub_command_never_writes_its_model)
{
    struct scene s;
    char line[1024];
    const char *place;

    (void)open_scene(&s);
    /* downloads the file, which creates its folder */
    (void)sh(0, "plait inspect -hf T/R");
    place = hub_use_place(&s.u, &s.t, s.t.revision, "fable-Q8_0.gguf");
    snprintf(line, sizeof line, "plait plan -hf T/R --svg '%s'", place);
    must_say(sh(2, line), "would overwrite the file of -m");
    snprintf(
        line, sizeof line,
        "ln '%s' hub-own; plait run -hf T/R -p x --trace hub-own --offline",
        place);
    must_say(sh(2, line), "--trace hub-own would overwrite the file of -m");
    snprintf(line, sizeof line, "cmp '%s' models/fable-moe-Q8_0.gguf", place);
    (void)sh(0, line);
    close_scene(&s);
}

TEST(hub_command_runs_a_model_of_an_address)
{
    struct scene s;
    char line[256];

    (void)open_scene(&s);
    s.t.repo = NULL;
    snprintf(line, sizeof line, "plait inspect -mu %s/fable-Q8_0.gguf",
             s.t.origin);
    (void)sh(0, line);
    (void)sh(0, line);
    assert_int_equal(s.t.n_get, 2);
    assert_int_equal(s.t.n_same, 1);
    close_scene(&s);
}

TEST(hub_command_waits_for_another)
{
    struct scene s;
    pid_t pid[3];

    (void)open_scene(&s);
    s.t.slow_us = 5000; /* microseconds after each of the file's 164 blocks */
    for (int i = 0; i < 3; i++)
        pid[i] = start("inspect -hf T/R");
    for (int i = 0; i < 3; i++)
        assert_int_equal(ended(pid[i]), 0);
    assert_int_equal(s.t.n_get, 1);
    close_scene(&s);
}

/* Killed again and again at random points, it finishes in the end, and no byte
 * that was present is requested twice. */
TEST(hub_command_killed_in_the_middle_goes_on)
{
    uint64_t random = test_seed();
    struct hub_try_file *f;
    struct scene s;
    int64_t had = 0;

    f = open_scene(&s);
    s.t.silent_at = 1500000;
    for (int i = 0; i < 5; i++) {
        pid_t pid = start("inspect -hf T/R");

        wait_for_part(&s, had + 1 + test_below(&random, 1000000));
        kill(pid, SIGKILL);
        assert_int_equal(ended(pid), 128 + SIGKILL);
        assert_true(part_size(&s) >= had);
        had = part_size(&s);
    }
    s.t.silent_at = 0;
    hub_try_count(&s.t);
    (void)sh(0, "plait inspect -hf T/R");
    assert_int_equal(s.t.n_part, 1);
    assert_int_equal(s.t.n_sent, (int64_t)f->n - had);
    hub_use(&s.u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&s.u, f);
    close_scene(&s);
}

TEST(hub_command_stops_at_an_interrupt)
{
    struct hub_try_file *f;
    struct scene s;
    pid_t pid;

    f = open_scene(&s);
    s.t.silent_at = 1000000;
    pid = start("inspect -hf T/R");
    wait_for_part(&s, 300000);
    kill(pid, SIGINT);
    assert_int_equal(ended(pid), 130);
    assert_true(part_size(&s) >= 300000);
    s.t.silent_at = 0;
    must_say(sh(0, "plait inspect -hf T/R"), "already there");
    hub_use(&s.u, "T/R", NULL, PL_OK, NULL);
    hub_use_has(&s.u, f);
    close_scene(&s);
}

/* A limit on the file's size is as near as a test gets to a full disk. */
TEST(hub_command_without_room_keeps_what_came)
{
    struct hub_try_file *f;
    struct scene s;

    f = open_scene(&s);
    must_say(sh(1, "ulimit -f 2048; plait inspect -hf T/R"),
             "the partial download is kept");
    assert_int_equal(part_size(&s), 2048 * 512);
    hub_try_count(&s.t);
    (void)sh(0, "plait inspect -hf T/R");
    assert_int_equal(s.t.n_sent, (int64_t)f->n - 2048 * 512);
    close_scene(&s);
}

TEST(hub_command_serves_a_model_of_a_hub)
{
    struct scene s;

    (void)open_scene(&s);
    must_say(sh(0, "plait serve -hf T/R --port 0 -dev cpu -t 1 -c 512 "
                   "2>said & p=$!; "
                   "until grep -q listens said || ! kill -0 $p; do sleep 0.05; "
                   "done; kill $p; wait $p && cat said >&2"),
             "fable-Q8_0 listens at");
    assert_int_equal(s.t.n_get, 1);
    close_scene(&s);
}
