/* Watches the child processes: one thread of the parent sleeps until a child
 * ends. Children are identified by descriptors (pidfd), because the system may
 * reuse process ids. Other children of the application are not reaped. An
 * application that closes descriptors which it did not open may close a pidfd,
 * or reuse its number for another file. So a pidfd is checked before use, and
 * reopened as long as the child exists. */
#include "device/proc/proc_inner.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"

enum {
    BY_PIDFD = 3
}; /* P_PIDFD of waitid(), for C libraries that do not define it */

/* ---- descriptors --------------------------------------------------------- */

enum {
    UNKNOWN = 0,
    DEAD = -1,
    NO_PROCESS = -2
}; /* results of process_of(); DEAD and UNKNOWN are not process ids */

/* Returns the process id of pidfd `fd`, as /proc reports it: DEAD if the
 * process was reaped, NO_PROCESS if `fd` is not a pidfd, UNKNOWN if /proc
 * cannot be read. */
static long process_of(int fd)
{
    static const char key[] = "\nPid:";
    char path[48], text[512], *at;
    ssize_t n;
    int info;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    info = open(path, O_RDONLY | O_CLOEXEC);
    if (info < 0)
        return UNKNOWN;
    n = read(info, text, sizeof text - 1);
    close(info);
    text[n > 0 ? n : 0] = '\0';
    at = strstr(text, key);
    return at ? strtol(at + strlen(key), NULL, 10) : NO_PROCESS;
}

/* Returns true if p->pidfd is still the descriptor that was opened here, as far
 * as can be told. */
static bool is_ours(const struct proc_device *p)
{
    long now;

    if (p->pidfd < 0 || fcntl(p->pidfd, F_GETFD) < 0)
        return false;
    now = p->told > 0 ? process_of(p->pidfd) : UNKNOWN;
    return now == UNKNOWN || now == DEAD || now == p->told;
}

static bool open_pidfd(struct proc_device *p)
{
    p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
    return p->pidfd >= 0;
}

/* Returns true if there is a child, running or ended, with the device's process
 * id. */
static bool has_child(const struct proc_device *p)
{
    siginfo_t i;

    return waitid(P_PID, (id_t)p->pid, &i, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* Makes p->pidfd valid: opens a new one if the application closed it. Returns
 * false if that is impossible. */
static bool find(struct proc_device *p)
{
    enum { TRIES = 10 };

    for (int i = 0; i < TRIES; i++) {
        if (is_ours(p))
            return true;
        p->pidfd = -1;
        if (!has_child(p) || !open_pidfd(p))
            return false;
    }
    p->pidfd = -1;
    return false;
}

/* ---- end of a process ---------------------------------------------------- */

/* Calls waitid() for the child with the options `how`. If there is no valid
 * pidfd, uses the process id, which is not reused until the child is reaped.
 * Returns waitid()'s result. */
static int await(struct proc_device *p, int how, siginfo_t *i)
{
    bool found = find(p);
    int e;

    memset(i, 0, sizeof *i);
    do {
        e = found ? waitid((idtype_t)BY_PIDFD, (id_t)p->pidfd, i, how)
                  : waitid(P_PID, (id_t)p->pid, i, how);
    } while (e != 0 && errno == EINTR);
    return e;
}

/* Returns true if the child has ended. If waiting by the pidfd fails, the
 * application may have closed it after it was checked. So the child counts as
 * ended only if waiting by its process id fails too. */
static bool has_ended(struct proc_device *p)
{
    const int how = WEXITED | WNOHANG | WNOWAIT;
    siginfo_t i;

    if (await(p, how, &i) != 0) {
        memset(&i, 0, sizeof i);
        if (waitid(P_PID, (id_t)p->pid, &i, how) != 0)
            return true;
    }
    return i.si_pid != 0;
}

/* Reaps the child and sets p->how. `how` is WNOHANG if the child has ended, or
 * 0 to wait until it ends. The exit status is unknown if the application
 * ignores SIGCHLD or has reaped the child itself. */
static void reap(struct proc_device *p, int how)
{
    siginfo_t i;

    if (await(p, WEXITED | how, &i) != 0 || i.si_pid == 0)
        snprintf(p->how, sizeof p->how, "its process has ended");
    else
        snprintf(p->how, sizeof p->how, "its process has ended (%s %d)",
                 i.si_code == CLD_EXITED ? "status" : "signal", i.si_status);
}

static void end(struct proc_device *p)
{
    if (!find(p) ||
        syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0) != 0)
        if (has_child(p))
            kill(p->pid, SIGKILL);
}

/* Closes the pidfd, unless the application has opened another file under its
 * number. */
static void close_pidfd(struct proc_device *p)
{
    if (is_ours(p))
        close(p->pidfd);
    p->pidfd = -1;
    p->pid = 0;
}

const char *proc_remedy(int e)
{
    static const struct {
        int e;
        const char *text;
    } known[] = {
        {EAGAIN, "raise the process limit (ulimit -u, or the container's)"},
        {ENOMEM, "use fewer devices, or free memory"},
        {EMFILE, "raise the open file limit (ulimit -n)"},
        {ENFILE, "raise the system's open file limit (fs.file-max)"},
        {ENOSYS, "proc devices need Linux 5.4; use cpu devices"},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].e == e)
            return known[i].text;
    return "use cpu devices";
}

pl_status proc_take(struct proc_device *p, pid_t pid, pl_err *err)
{
    int e;

    p->pid = pid;
    if (open_pidfd(p)) {
        p->told = process_of(p->pidfd);
        return PL_OK;
    }
    e = errno;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    p->pid = 0;
    return err_set(err, e == ENOMEM ? PL_NO_MEMORY : PL_DEVICE,
                   "%s: its process cannot be watched: %s; %s", p->d->desc.name,
                   strerror(e), proc_remedy(e));
}

/* ---- watcher ------------------------------------------------------------- */

/* Handles the end of a child. The caller holds the lock. */
static void on_child_exit(struct proc_backend *b, struct proc_device *p)
{
    reap(p, WNOHANG);
    atomic_store(&p->gone, true);
    if (b->running)
        device_fail(b->set, p->d, -1, p->how);
    proc_pipe_wake(p->pipe);
}

/* Checks the children whose pidfd poll() reported, or all children if `all`.
 * Returns the number of children that are still running. */
static int look(struct proc_backend *b, bool all)
{
    int n = 0;

    pthread_mutex_lock(&b->lock);
    for (int i = 0; i < b->n; i++) {
        struct proc_device *p = &b->dev[i];

        if (!atomic_load(&p->gone) && (all || b->poll[i].revents != 0) &&
            has_ended(p))
            on_child_exit(b, p);
        b->poll[i].fd = atomic_load(&p->gone) ? -1 : p->pidfd;
        n += !atomic_load(&p->gone);
    }
    pthread_mutex_unlock(&b->lock);
    return n;
}

/* Thread function of the watcher. Checks all children once a second, because
 * the application may have closed a pidfd that is polled. Pauses if poll()
 * returns but no child has ended, so that it does not use a whole CPU. */
static void *watch(void *user)
{
    static const struct timespec nap = {0, 10 * 1000 * 1000};
    struct proc_backend *b = user;
    int left = look(b, true), before;

    while (left > 0) {
        int n = poll(b->poll, (nfds_t)b->n, 1000);

        before = left;
        left = look(b, n <= 0);
        if (n != 0 && left == before)
            nanosleep(&nap, NULL);
    }
    return NULL;
}

pl_status proc_watch(struct proc_backend *b, pl_err *err)
{
    sigset_t all, before;
    int e;

    for (int i = 0; i < b->n; i++)
        b->poll[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e = pthread_create(&b->watcher, NULL, watch, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e != 0)
        return err_no_thread(err, "the thread that watches processes", e);
    b->watched = true;
    return PL_OK;
}

void proc_end_all(struct proc_backend *b)
{
    bool ours = b->owner == getpid();

    if (ours) {
        pthread_mutex_lock(&b->lock);
        for (int i = 0; i < b->n; i++)
            if (b->dev[i].pid && !atomic_load(&b->dev[i].gone))
                end(&b->dev[i]);
        pthread_mutex_unlock(&b->lock);
        if (b->watched)
            pthread_join(b->watcher, NULL);
    }
    for (int i = 0; i < b->n; i++) {
        struct proc_device *p = &b->dev[i];

        if (!p->pid)
            continue;
        if (ours && !b->watched)
            reap(p, 0);
        close_pidfd(p);
    }
    b->watched = false;
}

void proc_run_begins(struct proc_backend *b)
{
    pthread_mutex_lock(&b->lock);
    b->running = true;
    for (int i = 0; i < b->n; i++)
        if (atomic_load(&b->dev[i].gone))
            device_fail(b->set, b->dev[i].d, -1, b->dev[i].how);
    pthread_mutex_unlock(&b->lock);
}

void proc_run_ends(struct proc_backend *b)
{
    pthread_mutex_lock(&b->lock);
    b->running = false;
    pthread_mutex_unlock(&b->lock);
}
