/* One thread of the parent sleeps until a device's process ends. Processes are
 * named by descriptors (pidfd), never by numbers that the system may give to
 * others, and no child of the application's is waited for. */
#include "device/proc/proc_inner.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"

enum { BY_PIDFD = 3 }; /* P_PIDFD, which older C libraries do not name */

/* The process has ended, or is about to: nothing of it is left. If SIGCHLD is
 * ignored, or the application waits for any child, how it ended is not known.
 */
static void reap(struct proc_device *p)
{
    siginfo_t i = {0};
    int e;

    do {
        e = waitid((idtype_t)BY_PIDFD, (id_t)p->pidfd, &i, WEXITED);
    } while (e != 0 && errno == EINTR);
    if (e != 0 || i.si_pid == 0)
        snprintf(p->how, sizeof p->how, "its process has ended");
    else
        snprintf(p->how, sizeof p->how, "its process has ended (%s %d)",
                 i.si_code == CLD_EXITED ? "status" : "signal", i.si_status);
}

static void is_gone(struct proc_bank *b, struct proc_device *p)
{
    reap(p);
    pthread_mutex_lock(&b->lock);
    atomic_store(&p->gone, true);
    if (b->running)
        device_fail(b->set, p->d, -1, p->how);
    pthread_mutex_unlock(&b->lock);
    proc_pipe_wake(p->pipe);
}

static void *watch(void *user)
{
    struct proc_bank *b = user;

    for (int left = b->n; left > 0;) {
        if (poll(b->poll, (nfds_t)b->n, -1) <= 0)
            continue;
        for (int i = 0; i < b->n; i++) {
            if (b->poll[i].fd < 0 || b->poll[i].revents == 0)
                continue;
            is_gone(b, &b->dev[i]);
            b->poll[i].fd = -1;
            left--;
        }
    }
    return NULL;
}

pl_status proc_watch(struct proc_bank *b, pl_err *err)
{
    sigset_t all, before;
    int e;

    for (int i = 0; i < b->n; i++)
        b->poll[i] = (struct pollfd){.fd = b->dev[i].pidfd, .events = POLLIN};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    e = pthread_create(&b->watcher, NULL, watch, b);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e != 0)
        return err_set(err, PL_DEVICE,
                       "the thread that watches processes could not be "
                       "started: %s; raise the limit (ulimit -u)",
                       strerror(e));
    b->watched = true;
    return PL_OK;
}

void proc_end_all(struct proc_bank *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->dev[i].pid)
            syscall(SYS_pidfd_send_signal, b->dev[i].pidfd, SIGKILL, NULL, 0);
    if (b->watched)
        pthread_join(b->watcher, NULL);
    for (int i = 0; i < b->n; i++) {
        struct proc_device *p = &b->dev[i];

        if (!p->pid)
            continue;
        if (!b->watched)
            reap(p);
        close(p->pidfd);
        p->pid = 0;
    }
    b->watched = false;
}

void proc_run_begins(struct proc_bank *b)
{
    pthread_mutex_lock(&b->lock);
    b->running = true;
    for (int i = 0; i < b->n; i++)
        if (atomic_load(&b->dev[i].gone))
            device_fail(b->set, b->dev[i].d, -1, b->dev[i].how);
    pthread_mutex_unlock(&b->lock);
}

void proc_run_ends(struct proc_bank *b)
{
    pthread_mutex_lock(&b->lock);
    b->running = false;
    pthread_mutex_unlock(&b->lock);
}
