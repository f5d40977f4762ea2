/* The test binary: runs each group of cases in a child of its own and adds up
 * what they did.
 *
 * A group is the cases of one file, which make themselves known before main,
 * and one cmocka run. Its child writes into a pipe; the parent reads
 * cmocka's lines, counts them, and passes on whatever else the tests print. So
 * a case that crashes, hangs, leaks or leaves the process is a failure by name
 * and the other groups still run. The last line is always
 *     N passed, N failed, N skipped
 * and the lines before it name what was skipped, why, and what failed. */
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
#include <sys/wait.h>
#include <unistd.h>

/* The cases of one file. */
static struct group {
    char name[64];           /* the file's, without its folder and .c */
    struct CMUnitTest *test; /* [n] */
    size_t n;
} * groups; /* [n_group] */
static int n_group;

enum {
    MAX_JOB = 16,
    MAX_LEFT_OUT = 32,
    SECONDS_SHORT = 900, /* a group may take this long in the short tier */
    SECONDS_LONG = 6 * 3600,
};

enum outcome { PASSED, FAILED, SKIPPED, N_OUTCOME };

static const struct {
    const char *mark; /* as cmocka prints it, followed by the case's name */
    enum outcome outcome;
} marks[] = {
    {"[       OK ] ", PASSED},
    {"[  FAILED  ] ", FAILED},
    {"[  SKIPPED ] ", SKIPPED},
};
static const char mark_run[] = "[ RUN      ] ";
static const char mark_cpu[] = "[ CPU SECONDS ] ";

/* Lines cmocka prints about the group as a whole; of no use here. */
static const char *const chatter[] = {"[==========] ", "[  PASSED  ] ",
                                      "[  FAILED  ] ", "[  SKIPPED ] "};

struct text {
    char *s; /* owned, terminated */
    size_t n;
};

struct job {
    const struct group *group; /* NULL: free */
    pid_t pid;
    int fd; /* the child's stdout and stderr */
    double started;
    bool timed_out;
    char current[256]; /* the case now running, "" between cases */
    double cpu_s;      /* that it took */
    struct text line;  /* the last, unfinished line */
    struct text why;   /* reason of the running case's skip */
    struct text log;   /* what the tests printed themselves */
    int count[N_OUTCOME];
};

static struct {
    int count[N_OUTCOME];
    struct text named[N_OUTCOME]; /* one line a case that did not pass */
    bool verbose;
    bool progress;
    bool times;                         /* print what each case took */
    double limit_s;                     /* for one group */
    const char *left_out[MAX_LEFT_OUT]; /* parts of groups' names */
    int n_left_out;
} all;

static void die(const char *what)
{
    fprintf(stderr, "plait-test: %s: %s\n", what, strerror(errno));
    exit(2);
}

static double cpu_seconds(const struct rusage *u)
{
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) +
           1e-6 * (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

/* Of this process and of the children that it waited for. */
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

void test_add(const char *file, const char *law, CMUnitTestFunction run)
{
    const char *base = strrchr(file, '/') + 1;
    size_t len = strcspn(base, ".");
    struct group *g = n_group > 0 ? groups + n_group - 1 : NULL;

    if (g == NULL || strlen(g->name) != len ||
        strncmp(g->name, base, len) != 0) {
        groups = realloc(groups, (size_t)(n_group + 1) * sizeof(*groups));
        if (groups == NULL)
            die(law);
        g = groups + n_group++;
        *g = (struct group){0};
        snprintf(g->name, sizeof(g->name), "%.*s", (int)len, base);
    }
    g->test = realloc(g->test, (g->n + 1) * sizeof(*g->test));
    if (g->test == NULL)
        die(law);
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

/* ---- one group's output ------------------------------------------------- */

static void case_ends(struct job *j, enum outcome outcome, const char *why)
{
    const char *name = j->current[0] != '\0' ? j->current : "(no case)";

    j->count[outcome]++;
    if (outcome != PASSED)
        text_print(&all.named[outcome], "  %s: %s%s%s\n", j->group->name, name,
                   why != NULL && why[0] != '\0' ? ": " : "",
                   why != NULL ? why : "");
    if (all.times)
        printf("%10.3f s  %s: %s\n", j->cpu_s, j->group->name, name);
    j->cpu_s = 0;
    j->current[0] = '\0';
    text_free(&j->why);
}

/* " 2 FAILED TEST(S)", cmocka's own sum. */
static bool is_tally(const char *line)
{
    size_t n = strspn(line, " 0123456789");

    return n > 0 && (strcmp(line + n, "FAILED TEST(S)") == 0 ||
                     strcmp(line + n, "SKIPPED TEST(S)") == 0);
}

/* One whole line, without its end. Text that a test left unfinished may stand
 * before a mark. */
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

static void job_start(struct job *j, const struct group *g)
{
    int fds[2];

    if (pipe(fds) != 0)
        die("pipe");
    fflush(NULL);
    *j = (struct job){.group = g, .fd = fds[0], .started = test_seconds()};
    j->pid = fork();
    if (j->pid < 0)
        die("fork");
    if (j->pid == 0) {
        setpgid(0, 0); /* so that a hung group is killed with its children */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        setvbuf(stdout, NULL, _IOLBF, 0);
        cmocka_set_message_output(CM_OUTPUT_STDOUT);
        exit(_cmocka_run_group_tests(g->name, g->test, g->n, NULL, NULL) == 0
                 ? 0
                 : 1);
    }
    setpgid(j->pid, j->pid);
    close(fds[1]);
}

/* The child has closed its pipe: counts how it ended and prints its part. */
static void job_finish(struct job *j, bool must_run)
{
    struct rusage used = {0};
    char how[64] = "";
    int status = 0;
    int n = 0;

    if (j->line.n > 0)
        take_output(j, "\n", 1);
    while (wait4(j->pid, &status, 0, &used) < 0 && errno == EINTR)
        ;
    kill(-j->pid, SIGKILL); /* whatever it left running */
    if (j->timed_out)
        snprintf(how, sizeof(how), "no end after %.0f s", all.limit_s);
    else if (WIFSIGNALED(status))
        snprintf(how, sizeof(how), "killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else if (j->current[0] != '\0' || WEXITSTATUS(status) > 1 ||
             (WEXITSTATUS(status) == 1 && j->count[FAILED] == 0))
        snprintf(how, sizeof(how), "exit status %d", WEXITSTATUS(status));
    for (int k = 0; k < N_OUTCOME; k++)
        n += j->count[k];
    if (how[0] == '\0' && n == 0 && must_run)
        snprintf(how, sizeof(how), "the group ran no case");
    if (how[0] != '\0')
        case_ends(j, FAILED, how);

    if (all.progress)
        fprintf(stderr, "\r\033[K");
    if (n > 0 || how[0] != '\0')
        printf("%-40s %4d passed", j->group->name, j->count[PASSED]);
    if (j->count[FAILED] > 0)
        printf(", %d failed", j->count[FAILED]);
    if (j->count[SKIPPED] > 0)
        printf(", %d skipped", j->count[SKIPPED]);
    if (n > 0 || how[0] != '\0')
        printf("  %.1f s, cpu %.1f s\n", test_seconds() - j->started,
               cpu_seconds(&used));
    if (j->log.s != NULL && !all.verbose)
        fputs(j->log.s, stdout);
    fflush(stdout);
    for (int k = 0; k < N_OUTCOME; k++)
        all.count[k] += j->count[k];
    close(j->fd);
    text_free(&j->line);
    text_free(&j->why);
    text_free(&j->log);
    j->group = NULL;
}

/* Reads what running groups print until one of them ends. */
static void jobs_wait(struct job *jobs, int n_job, bool must_run)
{
    static char buf[65536];
    struct pollfd fds[MAX_JOB];

    for (;;) {
        for (int i = 0; i < n_job; i++) {
            fds[i].fd = jobs[i].group != NULL ? jobs[i].fd : -1;
            fds[i].events = POLLIN;
            fds[i].revents = 0;
        }
        if (poll(fds, (nfds_t)n_job, 500) < 0 && errno != EINTR)
            die("poll");
        for (int i = 0; i < n_job; i++) {
            struct job *j = &jobs[i];
            ssize_t n;

            if (j->group == NULL)
                continue;
            if (!j->timed_out && test_seconds() - j->started > all.limit_s) {
                j->timed_out = true;
                kill(-j->pid, SIGKILL);
            }
            if (fds[i].revents == 0)
                continue;
            n = read(j->fd, buf, sizeof(buf));
            if (n > 0) {
                take_output(j, buf, (size_t)n);
            } else if (n == 0 || errno != EINTR) {
                job_finish(j, must_run);
                return;
            }
        }
    }
}

static void show_progress(const struct job *jobs, int n_job, int done)
{
    const char *last = "";

    for (int i = 0; i < n_job; i++) {
        if (jobs[i].group != NULL)
            last = jobs[i].group->name;
    }
    fprintf(stderr, "\r\033[K[%d/%d] %s", done, n_group, last);
}

static bool wanted(const char *name, char **filters, int n)
{
    for (int i = 0; i < all.n_left_out; i++) {
        if (strstr(name, all.left_out[i]) != NULL)
            return false;
    }
    for (int i = 0; i < n; i++) {
        if (strstr(name, filters[i]) != NULL)
            return true;
    }
    return n == 0;
}

static void run_groups(char **filters, int n_filter, int n_job, bool must_run)
{
    struct job jobs[MAX_JOB] = {0};
    int next = 0;
    int busy = 0;

    while (next < n_group || busy > 0) {
        for (int i = 0; i < n_job && next < n_group;) {
            if (jobs[i].group != NULL) {
                i++;
            } else if (!wanted(groups[next].name, filters, n_filter)) {
                next++;
            } else {
                job_start(&jobs[i], &groups[next++]);
                busy++;
            }
        }
        if (busy == 0)
            continue;
        if (all.progress)
            show_progress(jobs, n_job, next - busy);
        jobs_wait(jobs, n_job, must_run);
        busy--;
    }
}

static const char usage[] =
    "usage: plait-test [-v] [-j N] [-x PART] [--list] [FILTER ...]\n"
    "Runs the groups whose name contains a FILTER; when none does, the cases\n"
    "whose name contains it. All of them without a FILTER.\n"
    "  -v          print the output of the groups as it comes\n"
    "  -j N        run N groups at a time (1)\n"
    "  -t SECONDS  the longest a group may take\n"
    "  -x PART     leave out the groups whose name contains PART\n"
    "  --times     print the CPU seconds of each case\n"
    "  --list      print the names of the groups\n"
    "environment: PLAIT_TIER=brief|short|long, PLAIT_SEED,\n"
    "PLAIT_REFS (directory)\n";

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"list", no_argument, NULL, 'l'},
        {"help", no_argument, NULL, 'h'},
        {"times", no_argument, NULL, 'T'},
        {0},
    };
    int n_job = 1;
    int n_match = 0;
    int c;

    setvbuf(stdout, NULL, _IOLBF, 0); /* it may be cut short */
    /* what was measured on this machine is neither read nor replaced */
    setenv("XDG_CACHE_HOME", "/dev/null/no-cache", 1);
    all.limit_s = test_long() ? SECONDS_LONG : SECONDS_SHORT;
    while ((c = getopt_long(argc, argv, "vj:t:x:h", options, NULL)) != -1) {
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
        case 'x':
            if (all.n_left_out == MAX_LEFT_OUT)
                return 2;
            all.left_out[all.n_left_out++] = optarg;
            break;
        case 'T':
            all.times = true;
            break;
        case 'l':
            for (int i = 0; i < n_group; i++)
                puts(groups[i].name);
            return 0;
        default:
            fputs(usage, c == 'h' ? stdout : stderr);
            return c == 'h' ? 0 : 2;
        }
    }
    if (n_job < 1 || n_job > MAX_JOB || all.limit_s <= 0) {
        fputs(usage, stderr);
        return 2;
    }
    all.progress = isatty(STDERR_FILENO) && !all.verbose;
    argv += optind;
    argc -= optind;
    for (int i = 0; i < n_group; i++)
        n_match += wanted(groups[i].name, argv, argc);
    if (n_match > 0) {
        run_groups(argv, argc, n_job, true);
    } else {
        for (int i = 0; i < argc; i++) {
            char pattern[300];

            snprintf(pattern, sizeof(pattern), "*%s*", argv[i]);
            cmocka_set_test_filter(pattern);
            run_groups(NULL, 0, n_job, false);
        }
    }

    if (all.named[SKIPPED].s != NULL)
        printf("skipped:\n%s", all.named[SKIPPED].s);
    if (all.named[FAILED].s != NULL)
        printf("failed:\n%s", all.named[FAILED].s);
    if (all.count[PASSED] + all.count[FAILED] + all.count[SKIPPED] == 0)
        printf("no group and no case has such a name\n");
    printf("%d passed, %d failed, %d skipped\n", all.count[PASSED],
           all.count[FAILED], all.count[SKIPPED]);
    return all.count[FAILED] > 0 || all.count[PASSED] + all.count[SKIPPED] == 0;
}
