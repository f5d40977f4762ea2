/* Implements serve_front.h. The front decides by what machine 0 tells over
 * their connection (front_link.h) and by the end of mpirun; what follows from
 * an end is in front_policy.c.
 *
 * Nothing of a job is left running on this computer: mpirun is the leader of a
 * process group, which is killed, and processes that leave the group become
 * children of the front, because it is their subreaper, and are killed, too.
 * Other machines end by themselves (network_watch.h), and mpirun's parts there
 * because their connection to mpirun has ended. */
#include "serve_front.h"
#include "front_link.h"
#include "front_policy.h"
#include "term.h"

#include "server/api_error.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    TICK_MS = 50,
    /* Seconds for mpirun to end after machine 0 has, if nothing is lost. */
    END_S = 10,
    /* Seconds for machine 0 to end after the first signal: more than the server
     * needs to drain. */
    STOP_S = 40,
    /* Seconds without a look at the connection to machine 0, after which the
     * front cannot say that machine 0 was silent. */
    DEAF_S = 1,
};

/* Limit in seconds for machines to start plait and join: that of joining, at
 * which machine 0 gives up with a better message, and some time for ssh and
 * MPI. A process that waits in MPI_Init for one that has ended waits for
 * ever. */
static double start_limit_s(const struct options *o)
{
    return (double)o->join_s + 10;
}

struct front {
    const struct options *o;
    char *const *word; /* the command line of mpirun, NULL after the last */
    struct http *http;
    int listener; /* for machine 0 */
    bool served;  /* some job has accepted clients */
    bool stopping;
    double stop_s; /* when the first signal came */
    int n_fail;
    /* ---- the running job ---- */
    pid_t pid; /* mpirun; 0 once it has ended */
    int link;  /* connection to machine 0; -1 if none */
    bool came, joined, late, silent;
    int told, code;
    double heard_s, looked_s; /* when machine 0 has sent something, and when the
                                 front last looked for it */
    double began_s, ready_s;  /* ready_s: 0 if it has not accepted clients */
    double served_s, end_s;   /* end_s: when an end was noticed; 0 if not yet */
};

static const char away[] =
    "the model's machines are being started, or one of them was lost; try "
    "again later";

/* ---- ending processes ---------------------------------------------------- */

/* Kills the children of this process, which are those of a job. Returns their
 * number. */
static int kill_children(void)
{
    DIR *d = opendir("/proc");
    struct dirent *e;
    int n = 0;

    while (d != NULL && (e = readdir(d)) != NULL) {
        char path[64], text[512];
        const char *after;
        size_t len;
        int parent = 0;
        FILE *f;

        if (!isdigit((unsigned char)e->d_name[0]))
            continue;
        snprintf(path, sizeof(path), "/proc/%.20s/stat", e->d_name);
        f = fopen(path, "re");
        len = f != NULL ? fread(text, 1, sizeof(text) - 1, f) : 0;
        text[len] = '\0';
        if (f != NULL)
            fclose(f);
        after = strrchr(text, ')'); /* the name may contain anything */
        if (after == NULL || sscanf(after, ") %*c %d", &parent) != 1 ||
            parent != (int)getpid())
            continue;
        kill((pid_t)atoi(e->d_name), SIGKILL);
        n++;
    }
    if (d != NULL)
        closedir(d);
    return n;
}

static void pause_ms(long ms)
{
    const struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

/* Kills what is left of the job. A child of a killed process becomes a child of
 * this one, so it takes several rounds. */
static void kill_job(struct front *f)
{
    if (f->pid > 0)
        kill(-f->pid, SIGKILL);
    for (int i = 0; i < 500 && kill_children() > 0; i++) {
        pause_ms(2);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            continue;
    }
    f->pid = 0;
}

/* ---- a job --------------------------------------------------------------- */

/* Runs in the child that becomes mpirun. */
static void become_mpirun(char *const *word, pid_t parent)
{
    const int none = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(EXIT_FAILED);
    if (none >= 0)
        dup2(none, STDIN_FILENO);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    execvp(word[0], word);
    _exit(EXIT_FAILED);
}

static enum exit_code start_job(struct front *f)
{
    const pid_t parent = getpid();

    f->link = -1;
    f->came = f->joined = f->late = f->silent = false;
    f->told = -1;
    f->code = 0;
    f->ready_s = f->served_s = f->end_s = 0;
    f->began_s = term_seconds();
    fflush(NULL);
    f->pid = fork();
    if (f->pid == 0)
        become_mpirun(f->word, parent);
    if (f->pid < 0) {
        f->pid = 0;
        return cli_error(CMD_SERVE, EXIT_FAILED, "cannot start mpirun: %s",
                         strerror(errno));
    }
    setpgid(f->pid, f->pid); /* whoever comes first */
    return EXIT_DONE;
}

/* Makes the front answer again. */
static void take_clients(struct front *f)
{
    if (f->ready_s > 0)
        f->served_s = term_seconds() - f->ready_s;
    f->ready_s = 0;
    if (!f->stopping)
        http_pause(f->http, false);
}

static void receive(struct front *f)
{
    const double now = term_seconds();
    int code = 0, m;

    if (now - f->looked_s > DEAF_S)
        f->heard_s = now;
    f->looked_s = now;
    while (f->link >= 0 && (m = front_receive(f->link, &code)) != 0) {
        f->heard_s = now;
        if (m == FRONT_JOINED) {
            f->joined = true;
        } else if (m == FRONT_READY) {
            f->ready_s = term_seconds();
            f->served = true;
            http_pause(f->http, true);
            front_send(f->link, FRONT_AWAY);
        } else if (m == FRONT_CLOSED) {
            take_clients(f);
        } else if (m == FRONT_ENDS) {
            f->told = code;
        } else if (m < 0) {
            close(f->link);
            f->link = -1;
            take_clients(f);
        }
    }
}

static void accept_machine(struct front *f)
{
    int n;
    const int *fd = http_sockets(f->http, &n);
    int link = front_accept(f->listener, fd, n);

    if (link < 0)
        return;
    if (f->came) { /* a job has one machine 0 */
        close(link);
        return;
    }
    f->link = link;
    f->came = true;
    f->heard_s = term_seconds();
    if (f->stopping)
        front_send(link, FRONT_STOP);
}

/* Collects ended children. */
static void collect(struct front *f)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
        if (pid == f->pid) {
            f->pid = 0;
            f->code = WIFEXITED(status) ? WEXITSTATUS(status)
                                        : 128 + WTERMSIG(status);
        }
}

/* Passes a signal on. */
static void stop(struct front *f)
{
    if (term_interrupts == 0)
        return;
    term_interrupts_clear();
    if (!f->stopping)
        f->stop_s = term_seconds();
    f->stopping = true;
    if (f->link >= 0)
        front_send(f->link, FRONT_STOP);
    else if (f->pid > 0)
        kill(-f->pid, SIGTERM);
}

/* Returns true if machine 0 was silent for longer than machines may be: its
 * process was stopped, for example. */
static bool is_silent(const struct front *f)
{
    return f->link >= 0 && f->looked_s - f->heard_s > (double)f->o->machine_s;
}

/* Returns true if the rest of the job is to be killed. */
static bool is_over(struct front *f)
{
    const double now = term_seconds();
    const bool half = f->pid == 0 || (f->came && f->link < 0);
    const bool calm = f->told >= 0 && f->told != EXIT_LOST;

    if (f->pid == 0 && f->link < 0)
        return true;
    if (half && f->end_s == 0)
        f->end_s = now;
    if (half && now - f->end_s > (calm || f->link >= 0 ? END_S : 0))
        return true;
    f->silent = is_silent(f);
    if (f->silent || (f->stopping && now - f->stop_s > STOP_S))
        return true;
    f->late = !f->joined && f->ready_s == 0 && !f->stopping &&
              now - f->began_s > start_limit_s(f->o);
    return f->late;
}

static void run_job(struct front *f)
{
    do {
        struct pollfd p[2] = {{.fd = f->listener, .events = POLLIN},
                              {.fd = f->link, .events = POLLIN}};

        poll(p, 2, TICK_MS);
        stop(f);
        accept_machine(f);
        collect(f);
        receive(f); /* after collect(), so that the last words are read */
    } while (!is_over(f));
    if (f->link >= 0)
        close(f->link);
    f->link = -1;
    take_clients(f);
    kill_job(f);
}

/* ---- the front ----------------------------------------------------------- */

static void explain(const struct front *f, const struct front_end *e)
{
    if (e->late)
        cli_error(CMD_SERVE, EXIT_LOST,
                  "the machines of --hosts have not joined within %.0f s; see "
                  "whether all run, and whether a firewall lets TCP pass "
                  "between them (doc/machines.md)",
                  start_limit_s(f->o));
    else if (f->silent && !e->stopping)
        cli_error(CMD_SERVE, EXIT_LOST,
                  "nothing was heard of machine 0 for %.3g s; see whether its "
                  "process was stopped",
                  (double)f->o->machine_s);
    else if (!e->came && !e->stopping)
        cli_error(CMD_SERVE, EXIT_FAILED,
                  "%s ended with code %d before machine 0 was started; see its "
                  "messages above",
                  f->word[0], e->code);
}

/* Waits until the next start, or until a signal. */
static void wait_for_start(struct front *f, int seconds)
{
    const double end = term_seconds() + seconds;

    http_set_retry(f->http, seconds + 5);
    cli_error(CMD_SERVE, EXIT_DONE,
              "a machine was lost; clients get status 503, the next start is "
              "in %d s",
              seconds);
    while (term_seconds() < end && !f->stopping) {
        pause_ms(TICK_MS);
        stop(f);
    }
}

static enum exit_code keep_running(struct front *f)
{
    for (;;) {
        enum exit_code c = start_job(f);
        struct front_end e;
        int code;

        if (c != EXIT_DONE)
            return c;
        run_job(f);
        e = (struct front_end){f->stopping, f->told,   f->came,    f->late,
                               f->code,     f->served, f->served_s};
        explain(f, &e);
        if (!front_restarts(&e, &code))
            return (enum exit_code)code;
        wait_for_start(f, front_wait_s(&e, &f->n_fail));
        if (f->stopping)
            return EXIT_DONE;
    }
}

enum exit_code serve_front(const struct options *o, char *const *word)
{
    struct http_options ho = serve_http_options(o);
    struct front f = {.o = o, .word = word, .link = -1};
    char name[FRONT_NAME];
    enum exit_code c;
    pl_status s;
    pl_err err;

    ho.unavailable = away;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    term_interrupts_count(3);
    f.listener = front_listen(name);
    if (f.listener < 0 || setenv(FRONT_VARIABLE, name, 1) != 0)
        return cli_error(CMD_SERVE, EXIT_FAILED,
                         "cannot open a socket for machine 0: %s",
                         strerror(errno));
    s = http_start(&f.http, &ho, NULL, 0, api_error_body_of_path, NULL, &err);
    if (s == PL_OK)
        s = http_accept(f.http, &err);
    c = s == PL_OK ? keep_running(&f)
                   : cli_error(CMD_SERVE, EXIT_FAILED, "%s", err.message);
    http_free(f.http);
    close(f.listener);
    return c;
}
