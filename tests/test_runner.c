/* The test binary itself (main.c) names every failure, distinguishes a case
 * that fails once from one that fails twice, ends cases that hang or spin, and
 * loses none after a crash. It runs itself on cases that need a filter with
 * their whole name. */
#include "lib/command.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/support.h"
#include "lib/watch.h"

/* ---- cases that the others run ------------------------------------------- */

/* Returns true on the first call with this file, which the run's environment
 * names. */
static bool first_time(void)
{
    const char *path = getenv("PLAIT_RUNNER_MARK");
    FILE *f = path != NULL ? fopen(path, "wx") : NULL;

    if (f != NULL)
        fclose(f);
    return f != NULL;
}

TEST_FLAGGED(__FILE__, runner_odd_fails, TEST_BY_NAME)
{
    print_message("a word of its log\n");
    fail_msg("always");
}

TEST_FLAGGED(__FILE__, runner_odd_fails_once, TEST_BY_NAME)
{
    if (first_time())
        fail_msg("only the first time");
}

TEST_FLAGGED(__FILE__, runner_odd_crashes, TEST_BY_NAME)
{
    raise(SIGKILL);
}

TEST_FLAGGED(__FILE__, runner_odd_passes, TEST_BY_NAME)
{
}

TEST_FLAGGED(__FILE__, runner_odd_sleeps, TEST_BY_NAME)
{
    for (;;)
        pause();
}

TEST_FLAGGED(__FILE__, runner_odd_spins, TEST_BY_NAME)
{
    for (volatile unsigned i = 0;; i++)
        ;
}

static bool prepared;

TEST_FLAGGED(__FILE__, runner_odd_prepares, TEST_BY_NAME)
{
    prepared = true;
}

TEST_FLAGGED(__FILE__, runner_odd_is_prepared, TEST_BY_NAME)
{
    assert_true(prepared);
}

/* The child keeps the pipe open after its parent has ended. */
TEST_FLAGGED(__FILE__, runner_odd_leaves_a_child, TEST_BY_NAME)
{
    if (fork() == 0) {
        for (;;)
            pause();
    }
}

/* ---- results ------------------------------------------------------------- */

/* Runs these cases, with more arguments; *status is the exit status. Returns
 * the output, to be freed. */
static char *run_cases(const char *arguments, int *status)
{
    char command[1024], exe[512];
    struct test_text out = {0};
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    FILE *p;

    assert_true(n > 0);
    exe[n] = '\0';
    snprintf(command, sizeof command, "PLAIT_RUNNER_MARK='%s' '%s' %s 2>&1",
             test_temp("mark"), exe, arguments);
    unlink(test_temp("mark"));
    p = popen(command, "r");
    assert_non_null(p);
    while ((n = (ssize_t)fread(command, 1, sizeof command, p)) > 0)
        test_text_add(&out, command, (size_t)n);
    *status = WEXITSTATUS(pclose(p));
    return out.s;
}

static void ends(const char *arguments, int status, const char *const *said)
{
    int got;
    char *out = run_cases(arguments, &got);

    for (; *said != NULL; said++) {
        if (strstr(out, *said) == NULL)
            fail_msg("%s: no \"%s\" in\n%s", arguments, *said, out);
    }
    if (got != status)
        fail_msg("%s: status %d instead of %d\n%s", arguments, got, status,
                 out);
    free(out);
}

#define ENDS(arguments, status, ...)                                           \
    ends(arguments, status, (const char *const[]){__VA_ARGS__, NULL})

TEST(runner_names_what_fails_twice)
{
    ENDS("runner_odd_fails runner_odd_passes", 1, "a word of its log",
         "each runs once more, alone",
         "failed:\n  test_runner: runner_odd_fails",
         "\n1 passed, 1 failed, 0 skipped\n");
    ENDS("--once runner_odd_fails", 1, "\n0 passed, 1 failed, 0 skipped\n");
}

TEST(runner_tells_apart_what_fails_once)
{
    ENDS("runner_odd_fails_once runner_odd_passes", 0,
         "unstable: test_runner: runner_odd_fails_once (PLAIT_SEED=", "logs: ",
         "\n2 passed, 0 failed, 0 skipped\n");
    ENDS("--once runner_odd_fails_once", 1, "\n0 passed, 1 failed, 0 skipped");
}

TEST(runner_goes_on_after_a_crash)
{
    ENDS("runner_odd_crashes runner_odd_passes", 1,
         "runner_odd_crashes: killed by signal 9",
         "\n1 passed, 1 failed, 0 skipped\n");
}

/* A case that needs what an earlier case left behind fails when it runs
 * alone. */
TEST(runner_runs_each_case_apart)
{
    ENDS("--once runner_odd_prepares runner_odd_is_prepared", 0,
         "\n2 passed, 0 failed, 0 skipped\n");
    ENDS("--each --once runner_odd_prepares runner_odd_is_prepared", 1,
         "test_runner: runner_odd_is_prepared",
         "\n1 passed, 1 failed, 0 skipped\n");
}

TEST(runner_ends_what_does_nothing)
{
    ENDS("-q 5 --once runner_odd_sleeps runner_odd_passes", 1,
         "runner_odd_sleeps: no progress", "\n1 passed, 1 failed, 0 skipped\n");
}

/* Starts a child that spins on processor `cpu`, with this policy. */
static pid_t spin_on(int cpu, int policy)
{
    const struct sched_param p = {0};
    cpu_set_t one;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0 ||
        sched_setscheduler(0, policy, &p) != 0)
        _exit(1);
    for (volatile unsigned i = 0;; i++)
        ;
}

/* A process that gets a three hundredth of its processor, because others want
 * it, is waiting for it: that ends a silence. */
TEST(runner_ends_nothing_that_waits_for_a_processor)
{
    struct watch w = {.enough_s = 0.05}, *const list[] = {&w};
    int cpu = sched_getcpu();
    unsigned long long turns = 0;
    FILE *f = fopen("/proc/self/schedstat", "r");
    pid_t busy;

    if (f == NULL || fscanf(f, "%*u %*u %llu", &turns) != 1 || turns == 0)
        TEST_SKIP("this kernel does not tell how long threads wait");
    fclose(f);
    busy = spin_on(cpu, SCHED_OTHER);
    w.pid = spin_on(cpu, SCHED_IDLE);
    watch_start(&w);
    for (int last = -1; w.quiet > last;) {
        last = w.quiet;
        usleep(20000);
        watch_tick(list, 1);
    }
    kill(busy, SIGKILL);
    kill(w.pid, SIGKILL);
    waitpid(busy, NULL, 0);
    waitpid(w.pid, NULL, 0);
    if (w.waited_s < w.cpu_s)
        fail_msg("used %g s and waited %g s", w.cpu_s, w.waited_s);
}

TEST(runner_ends_what_spins)
{
    ENDS("-t 0.5 --once runner_odd_spins runner_odd_passes", 1,
         "runner_odd_spins: too much processor time",
         "\n1 passed, 1 failed, 0 skipped\n");
}

TEST(runner_waits_for_no_child_left_behind)
{
    ENDS("runner_odd_leaves_a_child", 0, "\n1 passed, 0 failed, 0 skipped\n");
}

TEST(runner_goes_on_where_a_log_ends)
{
    char arguments[512];

    unlink(test_temp("log"));
    snprintf(arguments, sizeof arguments,
             "--log '%s' runner_odd_passes runner_odd_fails_once",
             test_temp("log"));
    ENDS(arguments, 0, "\n2 passed, 0 failed, 0 skipped\n");
    /* it failed once, so it was not noted: both run again */
    ENDS(arguments, 0, "unstable: ");
    snprintf(arguments, sizeof arguments, "--log '%s' runner_odd_passes",
             test_temp("log"));
    ENDS(arguments, 0, "test_runner  ", "\n1 passed, 0 failed, 0 skipped\n");
    ENDS(arguments, 0, "1 passed, 0 failed, 0 skipped\n");
}
