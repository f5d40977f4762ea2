/* The test binary: runs each group of cases in a child of its own and adds up
 * the results.
 *
 * A group is the cases of one file, which register themselves before main, in
 * one cmocka run. Its child writes into a pipe; the parent reads cmocka's
 * lines, counts them, and passes on whatever else the tests print. So a case
 * that crashes, hangs, leaks or leaves the process is a failure by name, the
 * cases after it still run, and so do the other groups.
 *
 * The wall clock decides nothing (lib/watch.h). A group is ended when it has
 * used too much processor time, or when it has been silent and idle for long.
 *
 * A case that fails runs once more, alone, after all others. If it passes then
 * it is unstable: it counts as passed, is named, and both logs are kept. More
 * than MAX_UNSTABLE of them fail the run. The last line is always
 *     N passed, N failed, N skipped */
#include "lib/support.h"

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/watch.h"

/* A group: the cases of one file. */
static struct group {
    char name[64];           /* name of the file, without its folder and .c */
    struct CMUnitTest *test; /* [n] cases */
    unsigned *flags;         /* [n] sets of flags (enum test_flag) */
    size_t n;
    /* number of cases that have not ended yet, for the log of groups that
     * passed */
    size_t n_left;
} * groups; /* [n_group] groups */
static int n_group;

enum {
    MAX_JOB = 16,
    MAX_LEFT_OUT = 32,
    /* limit of processor seconds of a group in the short tier */
    CPU_SHORT = 900,
    CPU_LONG = 12 * 3600,
    /* ticks without output and with hardly any work after which a group is
     * ended */
    MAX_QUIET = 180,
    MAX_UNSTABLE = 2,
};

/* A child that uses less than this share of a core is idle, so one that polls
 * is. */
static const double LEAST_SHARE = 0.05;

enum outcome { PASSED, FAILED, SKIPPED, N_OUTCOME };

static const struct {
    const char *mark; /* text that cmocka prints before the case's name */
    enum outcome outcome;
} marks[] = {
    {"[       OK ] ", PASSED},
    {"[  FAILED  ] ", FAILED},
    {"[  SKIPPED ] ", SKIPPED},
};
static const char mark_run[] = "[ RUN      ] ";
static const char mark_cpu[] = "[ CPU SECONDS ] ";

/* Lines of cmocka about the group as a whole; not used here. */
static const char *const chatter[] = {"[==========] ", "[  PASSED  ] ",
                                      "[  FAILED  ] ", "[  SKIPPED ] "};

struct text {
    char *s; /* [n] text, owned, NUL-terminated */
    size_t n;
};

/* Cases first .. first + n - 1 of a group, which one child runs. */
struct task {
    struct group *group;
    size_t first, n;
};

struct job {
    /* the cases that the child runs; group == NULL if this element is not in
     * use */
    struct task task;
    pid_t pid;
    int fd; /* end of the pipe from the child's standard output and error */
    double started;
    struct watch watch;
    /* reason for which the runner ended the child; NULL if it did not */
    const char *ended;
    int n_dead;        /* number of ticks since the child has ended */
    char current[256]; /* name of the running case; "" between two cases */
    double cpu_s;      /* processor seconds that the child has used */
    /* offset in `log` at which the running case's output begins */
    size_t log_at;
    struct text line; /* the last line of output, as far as it was received */
    struct text why;  /* reason for which the running case is skipped */
    struct text log;  /* output of the cases, without cmocka's lines */
    int count[N_OUTCOME];
};

/* A case that failed, or a whole group that ended badly after its cases. */
struct failure {
    struct task task;
    bool whole; /* not of one case: all of the task runs again */
    char *name; /* "group: case", owned */
    /* how the child ended, or "" if the case failed by itself; owned */
    char *how;
    struct text log; /* output of the case in its first run */
};

static struct {
    int count[N_OUTCOME];
    /* for each outcome but PASSED, one line per case */
    struct text named[N_OUTCOME];
    struct {
        char *why; /* the reason, owned */
        int n;
    } * reasons; /* [n_reason] reasons of skipped cases, with their number */
    int n_reason;
    struct task *queue; /* [n_queue] tasks that have not started */
    size_t n_queue;
    /* [n_failure] failed cases that wait to run once more, alone */
    struct failure *failures;
    size_t n_failure;
    /* one line for each case that passed only in its second run */
    struct text unstable;
    int n_unstable;
    int n_left; /* number of cases that only other tiers run */
    bool alone; /* true during the second runs of failed cases */
    bool once;  /* true if failed cases are not run again */
    bool verbose;
    bool progress;
    bool times;        /* true if the time of each case is printed */
    bool name_skipped; /* true if each skipped case is printed on a line */
    double limit_s;    /* limit of processor seconds of a child */
    int max_quiet;     /* ticks of silence after which a child is ended */
    /* file to which groups that passed are appended; NULL for none */
    FILE *log;
    /* parts of the names of groups that are left out */
    const char *left_out[MAX_LEFT_OUT];
    int n_left_out;
} all;

static void die(const char *what)
{
    fprintf(stderr, "plait-test: %s: %s\n", what, strerror(errno));
    exit(2);
}

/* Grows an array by one element of `size` bytes, and returns it. */
static void *grow(void *array, size_t n, size_t size)
{
    array = realloc(array, (n + 1) * size);
    if (array == NULL)
        die("out of memory");
    memset((char *)array + n * size, 0, size);
    return array;
}

static double cpu_seconds(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

/* Returns the processor time of this process and of the children that it waited
 * for. */
static double cpu_used(void)
{
    struct rusage self, children;

    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    return cpu_seconds(&self) + cpu_seconds(&children);
}

static double cpu_before;

static int clock_case(void **state __attribute__((unused)))
{
    cpu_before = cpu_used();
    return 0;
}

static int print_clock(void **state __attribute__((unused)))
{
    printf("%s%.3f\n", mark_cpu, cpu_used() - cpu_before);
    return 0;
}

void test_add(const char *file, const char *law, CMUnitTestFunction run,
              unsigned flags)
{
    const char *base = strrchr(file, '/') + 1;
    size_t len = strcspn(base, ".");
    struct group *g = n_group > 0 ? groups + n_group - 1 : NULL;

    if (g == NULL || strlen(g->name) != len ||
        strncmp(g->name, base, len) != 0) {
        groups = grow(groups, (size_t)n_group, sizeof(*groups));
        g = groups + n_group++;
        snprintf(g->name, sizeof(g->name), "%.*s", (int)len, base);
    }
    g->test = grow(g->test, g->n, sizeof(*g->test));
    g->flags = grow(g->flags, g->n, sizeof(*g->flags));
    g->flags[g->n] = flags;
    g->test[g->n++] = (struct CMUnitTest){.name = law,
                                          .test_func = run,
                                          .setup_func = clock_case,
                                          .teardown_func = print_clock};
}

static void text_add(struct text *t, const char *s, size_t n)
{
    t->s = realloc(t->s, t->n + n + 1);
    if (t->s == NULL)
        die("reading a test's output");
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
}

static void text_free(struct text *t)
{
    free(t->s);
    *t = (struct text){0};
}

__attribute__((format(printf, 2, 3))) static void
text_print(struct text *t, const char *fmt, ...)
{
    va_list ap;
    char *s = NULL;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&s, fmt, ap);
    va_end(ap);
    if (n < 0)
        die("naming a test");
    text_add(t, s, (size_t)n);
    free(s);
}

/* ---- one child's output ------------------------------------------------- */

static void note_reason(const char *why)
{
    for (int i = 0; i < all.n_reason; i++) {
        if (strcmp(all.reasons[i].why, why) == 0) {
            all.reasons[i].n++;
            return;
        }
    }
    all.reasons = grow(all.reasons, (size_t)all.n_reason, sizeof(*all.reasons));
    all.reasons[all.n_reason].why = strdup(why);
    all.reasons[all.n_reason++].n = 1;
}

static void add_task(struct group *g, size_t first, size_t n)
{
    all.queue = grow(all.queue, all.n_queue, sizeof(*all.queue));
    all.queue[all.n_queue++] = (struct task){g, first, n};
}

/* Returns the case's index in its group, or the group's size if it is not in
 * it. */
static size_t case_index(const struct group *g, const char *name)
{
    size_t i = 0;

    while (i < g->n && strcmp(g->test[i].name, name) != 0)
        i++;
    return i;
}

/* Keeps a failure for a second run. Returns false if there will be none: its
 * outcome is final. */
static bool keep_failure(struct job *j, const char *name, const char *how)
{
    const struct task *t = &j->task;
    size_t i = case_index(t->group, j->current);
    struct failure *f;

    if (all.alone || all.once)
        return false;
    all.failures = grow(all.failures, all.n_failure, sizeof(*all.failures));
    f = all.failures + all.n_failure++;
    f->whole = i == t->group->n;
    f->task = f->whole ? *t : (struct task){t->group, i, 1};
    if (asprintf(&f->name, "%s: %s", t->group->name, name) < 0)
        die("naming a test");
    f->how = strdup(how != NULL ? how : "");
    if (j->log.n > j->log_at)
        text_add(&f->log, j->log.s + j->log_at, j->log.n - j->log_at);
    return true;
}

static void case_ends(struct job *j, enum outcome outcome, const char *why)
{
    const char *name = j->current[0] != '\0' ? j->current : "(no case)";

    if (outcome == SKIPPED && !all.alone)
        note_reason(why != NULL ? why : "no reason given");
    j->count[outcome]++;
    if (outcome == SKIPPED ||
        (outcome == FAILED && !keep_failure(j, name, why)))
        text_print(&all.named[outcome], "  %s: %s%s%s\n", j->task.group->name,
                   name, why != NULL && why[0] != '\0' ? ": " : "",
                   why != NULL ? why : "");
    if (all.times)
        printf("%10.3f s  %s: %s\n", j->cpu_s, j->task.group->name, name);
    j->cpu_s = 0;
    j->current[0] = '\0';
    text_free(&j->why);
}

/* Returns true for " 2 FAILED TEST(S)", cmocka's own sum. */
static bool is_tally(const char *line)
{
    size_t n = strspn(line, " 0123456789");

    return n > 0 && (strcmp(line + n, "FAILED TEST(S)") == 0 ||
                     strcmp(line + n, "SKIPPED TEST(S)") == 0);
}

/* Parses one whole line, without its end. Text that a test left unfinished may
 * precede a mark. */
static void take_line(struct job *j, const char *line)
{
    const char *p;

    if (all.verbose)
        printf("%s\n", line);
    if ((p = strstr(line, TEST_SKIP_MARK)) != NULL) {
        text_free(&j->why);
        text_print(&j->why, "%s", p + strlen(TEST_SKIP_MARK));
        return;
    }
    if ((p = strstr(line, mark_cpu)) != NULL) {
        j->cpu_s = strtod(p + strlen(mark_cpu), NULL);
        goto before;
    }
    if ((p = strstr(line, mark_run)) != NULL) {
        snprintf(j->current, sizeof(j->current), "%s", p + strlen(mark_run));
        j->log_at = j->log.n;
        goto before;
    }
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        p = strstr(line, marks[i].mark);
        if (p != NULL && j->current[0] != '\0' &&
            strcmp(p + strlen(marks[i].mark), j->current) == 0) {
            case_ends(j, marks[i].outcome, j->why.s);
            goto before;
        }
    }
    if (j->current[0] == '\0') {
        for (size_t i = 0; i < sizeof(chatter) / sizeof(chatter[0]); i++) {
            if (strncmp(line, chatter[i], strlen(chatter[i])) == 0)
                return;
        }
    }
    if (line[0] == '\0' || is_tally(line))
        return;
    p = line + strlen(line);
before:
    if (p > line)
        text_print(&j->log, "    %.*s\n", (int)(p - line), line);
}

static void take_output(struct job *j, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] != '\n') {
            text_add(&j->line, s + i, 1);
            continue;
        }
        take_line(j, j->line.s != NULL ? j->line.s : "");
        text_free(&j->line);
    }
}

/* ---- children ----------------------------------------------------------- */

static void job_start(struct job *j, const struct task *t)
{
    int fds[2];

    if (pipe(fds) != 0)
        die("pipe");
    fflush(NULL);
    *j = (struct job){.task = *t, .fd = fds[0], .started = test_seconds()};
    j->pid = fork();
    if (j->pid < 0)
        die("fork");
    if (j->pid == 0) {
        setpgid(0, 0); /* so that a hung group is killed with its children */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* nohup starts programs with SIGHUP ignored, but cases send it to
         * themselves */
        signal(SIGHUP, SIG_DFL);
        /* a shell starts background programs with SIGINT ignored */
        signal(SIGINT, SIG_DFL);
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        setvbuf(stdout, NULL, _IOLBF, 0);
        cmocka_set_message_output(CM_OUTPUT_STDOUT);
        exit(_cmocka_run_group_tests(t->group->name, t->group->test + t->first,
                                     t->n, NULL, NULL) == 0
                 ? 0
                 : 1);
    }
    setpgid(j->pid, j->pid);
    j->watch.pid = j->pid;
    j->watch.enough_s = LEAST_SHARE * all.max_quiet;
    watch_start(&j->watch);
    close(fds[1]);
}

/* Writes to `how` the error in the child's end, "" if it was normal. */
static void describe_end(const struct job *j, int status, char *how, size_t n)
{
    int ran = 0;

    how[0] = '\0';
    for (int k = 0; k < N_OUTCOME; k++)
        ran += j->count[k];
    if (j->ended != NULL)
        snprintf(how, n, "%s", j->ended);
    else if (WIFSIGNALED(status))
        snprintf(how, n, "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (j->current[0] != '\0' || WEXITSTATUS(status) > 1 ||
             (WEXITSTATUS(status) == 1 && j->count[FAILED] == 0))
        snprintf(how, n, "exit status %d", WEXITSTATUS(status));
    else if (ran == 0)
        snprintf(how, n, "it ran no case");
}

/* Notes a group whose cases have all run and none of which failed. */
static void note_done(const struct job *j)
{
    struct group *g = j->task.group;

    g->n_left -= j->task.n;
    if (j->count[FAILED] > 0)
        /* more than all cases, so that the group is never logged and runs again
         * next time */
        g->n_left = g->n + 1;
    if (all.log == NULL || g->n_left != 0)
        return;
    fprintf(all.log, "%s %d %d\n", g->name, j->count[PASSED],
            j->count[SKIPPED]);
    fflush(all.log);
}

/* Handles a child that has closed its pipe: counts its end and prints its
 * part. */
static void job_finish(struct job *j)
{
    struct rusage used = {0};
    char how[64];
    const struct task t = j->task;
    int status = 0;

    if (j->line.n > 0)
        take_output(j, "\n", 1);
    while (wait4(j->pid, &status, 0, &used) < 0 && errno == EINTR)
        ;
    /* kills processes that the child has left running */
    kill(-j->pid, SIGKILL);
    describe_end(j, status, how, sizeof(how));
    if (how[0] != '\0') {
        size_t next = case_index(t.group, j->current) + 1;

        case_ends(j, FAILED, how);
        if (!all.alone && next < t.first + t.n) {
            add_task(t.group, next, t.first + t.n - next);
            t.group->n_left += t.first + t.n - next;
        }
    }
    if (!all.alone)
        note_done(j);

    if (all.progress)
        fprintf(stderr, "\r\033[K");
    printf("%-40s %4d passed", t.group->name, j->count[PASSED]);
    if (j->count[FAILED] > 0)
        printf(", %d failed", j->count[FAILED]);
    if (j->count[SKIPPED] > 0)
        printf(", %d skipped", j->count[SKIPPED]);
    printf("  %.1f s, cpu %.1f s%s\n", test_seconds() - j->started,
           cpu_seconds(&used), all.alone ? ", alone" : "");
    if (j->log.s != NULL && !all.verbose)
        fputs(j->log.s, stdout);
    fflush(stdout);
    close(j->fd);
    text_free(&j->line);
    text_free(&j->why);
    j->task.group = NULL;
}

static void job_count(struct job *j)
{
    for (int k = 0; k < N_OUTCOME; k++)
        all.count[k] += j->count[k];
    text_free(&j->log);
}

/* Ends children that used too much processor time or make no progress. */
static void jobs_watch(struct job *jobs, int n_job)
{
    static double next;
    struct watch *w[MAX_JOB];

    if (test_seconds() < next)
        return;
    next = test_seconds() + 1;
    for (int i = 0; i < n_job; i++) {
        w[i] = &jobs[i].watch;
        if (jobs[i].task.group == NULL)
            w[i]->pid = 0;
    }
    watch_tick(w, n_job);
    for (int i = 0; i < n_job; i++) {
        struct job *j = &jobs[i];
        siginfo_t info = {0};

        if (j->task.group == NULL)
            continue;
        if (waitid(P_PID, (id_t)j->pid, &info, WEXITED | WNOHANG | WNOWAIT) ==
                0 &&
            info.si_pid == j->pid) {
            /* kills children of the child that hold its pipe open */
            kill(-j->pid, SIGKILL);
            j->n_dead++;
            continue;
        }
        if (j->ended != NULL)
            continue;
        if (j->watch.cpu_s > all.limit_s)
            j->ended = "too much processor time";
        else if (j->watch.quiet > all.max_quiet)
            j->ended = "no progress";
        if (j->ended != NULL)
            kill(-j->pid, SIGKILL);
    }
}

/* Reads what running children print until one of them ends, and returns it. */
static struct job *jobs_wait(struct job *jobs, int n_job)
{
    static char buf[65536];
    struct pollfd fds[MAX_JOB];

    for (;;) {
        for (int i = 0; i < n_job; i++) {
            fds[i].fd = jobs[i].task.group != NULL ? jobs[i].fd : -1;
            fds[i].events = POLLIN;
            fds[i].revents = 0;
        }
        if (poll(fds, (nfds_t)n_job, 500) < 0 && errno != EINTR)
            die("poll");
        jobs_watch(jobs, n_job);
        for (int i = 0; i < n_job; i++) {
            struct job *j = &jobs[i];
            ssize_t n;

            if (j->task.group == NULL)
                continue;
            if (fds[i].revents == 0 && j->n_dead < 3)
                continue;
            /* a child in a group of its own may hold the pipe for ever */
            n = fds[i].revents != 0 ? read(j->fd, buf, sizeof(buf)) : 0;
            if (n > 0) {
                watch_heard(&j->watch);
                take_output(j, buf, (size_t)n);
            } else if (n == 0 || errno != EINTR) {
                job_finish(j);
                return j;
            }
        }
    }
}

static void show_progress(const struct job *jobs, int n_job, size_t done)
{
    const char *last = "";

    for (int i = 0; i < n_job; i++) {
        if (jobs[i].task.group != NULL)
            last = jobs[i].task.group->name;
    }
    fprintf(stderr, "\r\033[K[%zu/%zu] %s", done, all.n_queue, last);
}

static void run_queue(int n_job)
{
    struct job jobs[MAX_JOB] = {0};
    size_t next = 0;
    size_t busy = 0;

    while (next < all.n_queue || busy > 0) {
        for (int i = 0; i < n_job && next < all.n_queue; i++) {
            if (jobs[i].task.group != NULL)
                continue;
            job_start(&jobs[i], &all.queue[next++]);
            busy++;
        }
        if (all.progress)
            show_progress(jobs, n_job, next - busy);
        job_count(jobs_wait(jobs, n_job));
        busy--;
    }
}

/* ---- second runs -------------------------------------------------------- */

/* Writes both logs beside the program and returns the file's path, to be freed;
 * NULL on an error. */
static char *write_logs(const struct failure *f, const struct text *second)
{
    char exe[4096], *path = NULL, *slash;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    FILE *out;

    if (n < 0)
        return NULL;
    exe[n] = '\0';
    slash = strrchr(exe, '/');
    snprintf(slash, sizeof(exe) - (size_t)(slash - exe), "/unstable");
    mkdir(exe, 0777);
    if (asprintf(&path, "%s/%s.%s.log", exe, f->task.group->name,
                 f->whole ? "group" : f->task.group->test[f->task.first].name) <
        0)
        return NULL;
    out = fopen(path, "w");
    if (out == NULL) {
        free(path);
        return NULL;
    }
    fprintf(out, "first run: failed%s%s\n%s\nsecond run, alone: passed\n%s",
            f->how[0] != '\0' ? ": " : "", f->how,
            f->log.s != NULL ? f->log.s : "",
            second->s != NULL ? second->s : "");
    fclose(out);
    return path;
}

/* Runs one failure again. If it passes now, it counts as passed. */
static void run_alone(const struct failure *f)
{
    struct job j = {0}, *ended;
    char *path;
    bool passed;

    job_start(&j, &f->task);
    ended = jobs_wait(&j, 1);
    passed = ended->count[FAILED] == 0 && ended->count[PASSED] > 0;
    /* the second run skips the case that failed in the first */
    if (!passed && ended->count[FAILED] == 0) {
        ended->count[FAILED] = 1;
        ended->count[SKIPPED] = 0;
        text_print(&all.named[FAILED], "  %s\n", f->name);
    }
    if (passed) {
        path = write_logs(f, &ended->log);
        text_print(&all.unstable, "unstable: %s (PLAIT_SEED=%llu)%s%s%s%s\n",
                   f->name, (unsigned long long)test_seed_value(),
                   f->how[0] != '\0' ? ": " : "", f->how,
                   path != NULL ? "; logs: " : "", path != NULL ? path : "");
        all.n_unstable++;
        free(path);
    }
    /* single cases were counted in their first run; a whole task was not */
    for (int k = 0; k < N_OUTCOME; k++)
        all.count[k] += f->whole ? 0 : ended->count[k];
    if (f->whole)
        all.count[FAILED] += ended->count[FAILED] > 0;
    text_free(&ended->log);
}

static void run_failures(void)
{
    if (all.n_failure == 0)
        return;
    all.alone = true;
    printf("%zu failed; each runs once more, alone\n", all.n_failure);
    for (size_t i = 0; i < all.n_failure; i++) {
        all.count[FAILED]--;
        run_alone(&all.failures[i]);
    }
}

/* ---- selection of cases ------------------------------------------------- */

static bool is_left_out(const char *name)
{
    for (int i = 0; i < all.n_left_out; i++) {
        if (strstr(name, all.left_out[i]) != NULL)
            return true;
    }
    return false;
}

static bool matches(const char *name, char **filters, int n)
{
    for (int i = 0; i < n; i++) {
        if (strstr(name, filters[i]) != NULL)
            return true;
    }
    return n == 0;
}

/* Returns true if the group belongs to PLAIT_PART=I/N: every N-th group, from
 * the I-th on. Groups with a case that splits its own work belong to each
 * part. */
static bool is_in_part(const struct group *g, int i)
{
    int part, n_part;

    test_part(&part, &n_part);
    for (size_t k = 0; k < g->n; k++) {
        if (g->flags[k] & TEST_SHARES)
            return true;
    }
    return i % n_part == part;
}

static bool is_named(const char *name, char **filters, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(name, filters[i]) == 0)
            return true;
    }
    return false;
}

/* Removes the cases that no filter names (by_case) and those of the long
 * tier. */
static void select_cases(struct group *g, char **filters, int n, bool by_case)
{
    size_t kept = 0;

    for (size_t i = 0; i < g->n; i++) {
        if (by_case && !matches(g->test[i].name, filters, n))
            continue;
        if ((g->flags[i] & TEST_BY_NAME) &&
            !is_named(g->test[i].name, filters, n))
            continue;
        if (((g->flags[i] & TEST_LONG_TIER) && !test_long()) ||
            ((g->flags[i] & TEST_NOT_BRIEF) && test_brief())) {
            all.n_left++;
            continue;
        }
        g->test[kept] = g->test[i];
        g->flags[kept++] = g->flags[i];
    }
    g->n = kept;
}

/* The filters name groups, or cases if they match no group. */
static void select_groups(char **filters, int n)
{
    int n_match = 0;
    bool by_case;

    for (int i = 0; i < n_group; i++)
        n_match += matches(groups[i].name, filters, n);
    by_case = n_match == 0;
    for (int i = 0; i < n_group; i++) {
        struct group *g = &groups[i];

        if (is_left_out(g->name) || !is_in_part(g, i) ||
            (!by_case && !matches(g->name, filters, n)))
            continue;
        select_cases(g, filters, n, by_case);
        g->n_left = g->n;
        if (g->n > 0)
            add_task(g, 0, g->n);
    }
}

/* Opens FILE, in which groups that passed are noted, and leaves these out. */
static void resume(const char *file)
{
    char name[64];
    int passed, skipped;

    all.log = fopen(file, "a+");
    if (all.log == NULL)
        die(file);
    rewind(all.log);
    while (fscanf(all.log, "%63s %d %d", name, &passed, &skipped) == 3) {
        for (size_t i = 0; i < all.n_queue; i++) {
            if (strcmp(all.queue[i].group->name, name) != 0)
                continue;
            all.queue[i] = all.queue[--all.n_queue];
            all.count[PASSED] += passed;
            all.count[SKIPPED] += skipped;
            break;
        }
    }
}

/* Replaces the task of each group by one task per case. */
static void split_tasks(void)
{
    const size_t n = all.n_queue;

    for (size_t i = 0; i < n; i++) {
        const struct task t = all.queue[i];

        all.queue[i].n = 1;
        for (size_t k = 1; k < t.n; k++)
            add_task(t.group, t.first + k, 1);
    }
}

/* ---- the command -------------------------------------------------------- */

static const char usage[] =
    "usage: plait-test [-v] [-j N] [-x PART] [--list] [FILTER ...]\n"
    "Runs the groups whose name contains a FILTER; when none does, the cases\n"
    "whose name contains it. All of them without a FILTER.\n"
    "  -v          print the output of the groups as it comes\n"
    "  -j N        run N groups at a time (1)\n"
    "  -t SECONDS  the most processor time that a group may use\n"
    "  -q SECONDS  the longest that a group may do nothing (180)\n"
    "  -x PART     leave out the groups whose name contains PART\n"
    "  --each      run each case in a process of its own\n"
    "  --once      a case that fails does not run a second time, alone\n"
    "  --times     print the CPU seconds of each case\n"
    "  --skipped   name each skipped case\n"
    "  --log FILE  note groups that passed, leave out those noted before\n"
    "  --list      print the names of the groups\n"
    "environment: PLAIT_TIER=brief|short|long, PLAIT_SEED, PLAIT_PART=I/N,\n"
    "PLAIT_REFS (directory)\n";

static void print_end(void)
{
    const int n = all.count[SKIPPED];

    if (all.name_skipped && all.named[SKIPPED].s != NULL)
        printf("skipped:\n%s", all.named[SKIPPED].s);
    if (n > 0) {
        printf("Skipped %d case%s:", n, n == 1 ? "" : "s");
        for (int i = 0; i < all.n_reason; i++)
            printf("%s %s (%d)", i > 0 ? ";" : "", all.reasons[i].why,
                   all.reasons[i].n);
        printf(".\n");
    }
    if (all.n_left > 0)
        printf("%d case%s left to other tiers (PLAIT_TIER=long has all).\n",
               all.n_left, all.n_left == 1 ? " is" : "s are");
    if (all.named[FAILED].s != NULL)
        printf("failed:\n%s", all.named[FAILED].s);
    if (all.unstable.s != NULL)
        printf("%s", all.unstable.s);
    if (all.n_unstable > MAX_UNSTABLE)
        printf("%d unstable cases, %d allowed: the run has failed\n",
               all.n_unstable, MAX_UNSTABLE);
    if (all.count[PASSED] + all.count[FAILED] + n + all.n_left == 0)
        printf("no group and no case has such a name\n");
    printf("%d passed, %d failed, %d skipped\n", all.count[PASSED],
           all.count[FAILED], all.count[SKIPPED]);
}

int main(int argc, char **argv)
{
    enum {
        OPT_LIST = 256,
        OPT_TIMES,
        OPT_EACH,
        OPT_ONCE,
        OPT_SKIPPED,
        OPT_LOG
    };
    static const struct option options[] = {
        {"list", no_argument, NULL, OPT_LIST},
        {"help", no_argument, NULL, 'h'},
        {"times", no_argument, NULL, OPT_TIMES},
        {"each", no_argument, NULL, OPT_EACH},
        {"once", no_argument, NULL, OPT_ONCE},
        {"skipped", no_argument, NULL, OPT_SKIPPED},
        {"log", required_argument, NULL, OPT_LOG},
        {0},
    };
    const char *log = NULL;
    bool each = false;
    int n_job = 1;
    int c;

    /* writes each line at once, because the process may be killed */
    setvbuf(stdout, NULL, _IOLBF, 0);
    /* measurements of this machine are neither read nor replaced */
    setenv("XDG_CACHE_HOME", "/dev/null/no-cache", 1);
    /* plans depend on memory, and cases must not depend on the machine's */
    setenv("PLAIT_MEMORY", "64GiB", 1);
    all.limit_s = test_long() ? CPU_LONG : CPU_SHORT;
    all.max_quiet = MAX_QUIET;
    while ((c = getopt_long(argc, argv, "vj:t:q:x:h", options, NULL)) != -1) {
        switch (c) {
        case 'v':
            all.verbose = true;
            break;
        case 'j':
            n_job = atoi(optarg);
            break;
        case 't':
            all.limit_s = atof(optarg);
            break;
        case 'q':
            all.max_quiet = atoi(optarg);
            break;
        case 'x':
            if (all.n_left_out == MAX_LEFT_OUT)
                return 2;
            all.left_out[all.n_left_out++] = optarg;
            break;
        case OPT_TIMES:
            all.times = true;
            break;
        case OPT_EACH:
            each = true;
            break;
        case OPT_ONCE:
            all.once = true;
            break;
        case OPT_SKIPPED:
            all.name_skipped = true;
            break;
        case OPT_LOG:
            log = optarg;
            break;
        case OPT_LIST:
            for (int i = 0; i < n_group; i++)
                puts(groups[i].name);
            return 0;
        default:
            fputs(usage, c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : 2;
        }
    }
    if (n_job < 1 || n_job > MAX_JOB || all.limit_s <= 0 || all.max_quiet < 1) {
        fputs(usage, stderr);
        return 2;
    }
    all.progress = isatty(STDERR_FILENO) && !all.verbose;
    select_groups(argv + optind, argc - optind);
    if (log != NULL)
        resume(log);
    if (each)
        split_tasks();
    run_queue(n_job);
    run_failures();
    print_end();
    return all.count[FAILED] > 0 || all.n_unstable > MAX_UNSTABLE ||
           all.count[PASSED] + all.count[SKIPPED] == 0;
}
