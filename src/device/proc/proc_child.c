/* The child process of a proc device. As a forked copy of its parent, it has
 * the programs, options and kernels at the same addresses. Inboxes, events and
 * the failure flag are in shared memory. In the child, the device becomes the
 * only device of a cpu backend. So its threads execute the variant like those
 * of any cpu device, and communicate with other devices only through inboxes
 * and events.
 *
 * The child does not touch other state of the parent: it runs no signal handler
 * of the application, flushes no stdio stream, and takes no lock that a thread
 * of the parent might hold. The child ends when the parent kills it or the
 * parent ends. */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "device/cpu/cpu_device.h"
#include "device/proc/proc_inner.h"

struct child {
    struct device_set *set;
    struct device *d;
    int dev[1]; /* index in the set of the backend's only device */
    struct backend backend;
    struct proc_end end;
    struct device_run run;
};

/* ---- start and end ------------------------------------------------------- */

/* Ends the child process. Does not use exit(), which would run the
 * application's exit handlers. Nowhere else does the library end a process. */
static void leave(void)
{
    for (;;)
        syscall(SYS_exit_group, 0);
}

/* Thread function: ends the child when the parent process has ended. `user`
 * points to a pidfd of the parent. PR_SET_PDEATHSIG is not used, because it
 * also fires when only the forking thread of the parent ends. */
static void *follow(void *user)
{
    struct pollfd p = {.fd = *(const int *)user, .events = POLLIN};

    while (poll(&p, 1, -1) <= 0)
        ;
    leave();
    return NULL;
}

static pl_status follow_parent(int *fd, pl_err *err)
{
    pthread_attr_t small;
    pthread_t thread;
    int e;

    pthread_attr_init(&small);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    e = pthread_create(&thread, &small, follow, fd);
    pthread_attr_destroy(&small);
    return e == 0 ? PL_OK
                  : err_no_thread(err, "a thread of a device's process", e);
}

/* Resets all signal handlers. Ignores the signals that a terminal or a
 * supervisor sends to a whole process group, because the parent handles
 * them. */
static void own_signals(void)
{
    static const int parents[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    struct sigaction a = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int i = 1; i <= SIGRTMAX; i++)
        sigaction(i, &a, NULL);
    a.sa_handler = SIG_IGN;
    for (size_t i = 0; i < sizeof parents / sizeof parents[0]; i++)
        sigaction(parents[i], &a, NULL);
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

/* Closes the inherited file descriptors, except the standard streams. Otherwise
 * a pipe or socket would stay open after the application has closed it. */
static void close_files(void)
{
#ifdef SYS_close_range
    syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
#endif
}

/* ---- memory -------------------------------------------------------------- */

static pl_status load(struct child *c, int *parent, pl_err *err)
{
    PL_TRY(follow_parent(parent, err));
    PL_TRY(cpu_ops.open(&c->backend, err));
    return cpu_ops.load(&c->backend, err);
}

/* ---- steps --------------------------------------------------------------- */

static void run(struct child *c, const struct proc_order *o)
{
    struct device *d = c->d;
    struct proc_done done;

    proc_receive(&c->end, &c->run, sizeof c->run);
    d->fail_insn = o->fail_insn;
    d->n_timing = 0;
    device_set_adopt(c->set, &c->run, o->run_number);
    cpu_ops.submit(&c->backend);
    cpu_ops.wait(&c->backend);
    done = (struct proc_done){.n_timing = d->n_timing, .counts = d->counts};
    proc_send(&c->end, &done, sizeof done);
}

static void child_loop(struct child *c)
{
    struct proc_order o;

    proc_receive(&c->end, &o, sizeof o);
    switch (o.verb) {
    case PROC_WRITE:
        proc_receive(&c->end, c->d->at[o.region] + o.offset, o.bytes);
        break;
    case PROC_READ:
        proc_send(&c->end, c->d->at[o.region] + o.offset, o.bytes);
        break;
    case PROC_RUN:
        run(c, &o);
        break;
    }
}

void proc_child(struct device_set *s, int dev, struct proc_pipe *pipe,
                pid_t parent)
{
    struct child c = {.set = s, .d = device_of(s, dev), .dev = {dev}};
    struct proc_loaded loaded = {0};
    int fd;

    own_signals();
    close_files();
    fd = (int)syscall(SYS_pidfd_open, parent, 0);
    /* getppid() differs if the parent has ended already */
    if (fd < 0 || getppid() != parent)
        leave();
    prctl(PR_SET_NAME, c.d->desc.name);
    c.end = (struct proc_end){.out = &pipe->to_parent,
                              .in = &pipe->to_child,
                              .awake_ns = 80 * 1000,
                              .shares = proc_crowded(s, 1)};
    c.backend =
        (struct backend){.ops = &cpu_ops, .set = s, .n = 1, .dev = c.dev};
    c.d->backend = &c.backend;
    device_set_inherit(s);
    loaded.status = load(&c, &fd, &loaded.err);
    proc_send(&c.end, &loaded, sizeof loaded);
    for (;;)
        child_loop(&c);
}
