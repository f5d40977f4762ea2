/* What the files of proc devices share: what passes between a device's process
 * and the one that opened it, and what that one keeps. */
#ifndef DEVICE_PROC_PROC_INNER_H
#define DEVICE_PROC_PROC_INNER_H

#include <poll.h>
#include <pthread.h>
#include <sys/types.h>

#include "device/proc/proc_pipe.h"

/* ---- what passes --------------------------------------------------------
 *
 * From the child, once: struct proc_loaded. Then to the child, again and again,
 * a struct proc_order, and behind it
 *   WRITE  the bytes
 *   READ   nothing; the child sends the bytes
 *   RUN    struct device_run; the child sends struct proc_done
 */
enum proc_verb { PROC_WRITE, PROC_READ, PROC_RUN };

struct proc_order {
    enum proc_verb verb;
    enum region region; /* WRITE, READ */
    size_t offset, bytes;
    uint64_t run_number; /* RUN */
    int fail_insn;       /* RUN: the device's */
};

struct proc_loaded {
    pl_status status;
    pl_err err;
};

/* The device's counters, all since it was made. */
struct proc_done {
    int n_timing;
    uint64_t macs[PL_MAX_RANKS], n_collective, collective_bytes, copies,
        copy_bytes;
    struct device_times spent;
};

/* ---- what the parent keeps ----------------------------------------------- */

struct proc_device {
    struct device *d;       /* borrowed */
    struct proc_pipe *pipe; /* owned, shared with the child */
    struct proc_end end;
    pthread_mutex_t stream; /* held by who writes or reads: one at a time */
    pid_t pid;              /* 0: there is none */
    bool asked;       /* it goes through a run, and will say when it is done */
    atomic_bool gone; /* its process has ended, as `how` says */
    char how[64];
    /* ---- proc_watch.c; under the bank's lock once it is watched */
    int pidfd; /* owned; -1: there is none */
    long told; /* what the system says that the descriptor is of */
};

struct proc_backend {
    struct device_set *set; /* borrowed */
    pid_t owner; /* the process that opened it; in copies of that one only
                    memory is theirs */
    int n;
    struct proc_device *dev; /* owned, [n] in the bank's order */
    /* ---- proc_watch.c */
    struct pollfd *poll; /* owned, [n] */
    pthread_t watcher;
    bool watched;         /* the watcher runs */
    pthread_mutex_t lock; /* over descriptors, over what follows, and over who
                             becomes gone */
    bool running;         /* a run is in progress */
};

/* ---- proc_watch.c: that a process has ended is seen at once -------------- */

/* The process `pid` was just forked for the device: a descriptor of it. If
 * there is none to be had, nothing is left of the process. */
pl_status proc_take(struct proc_device *p, pid_t pid, pl_err *err);
/* Starts to watch the devices, all of which have a process. */
pl_status proc_watch(struct proc_backend *b, pl_err *err);
/* Ends all processes there are; none is left to be waited for. In a forked copy
 * of the process that opened the bank it lets go of them. */
void proc_end_all(struct proc_backend *b);
/* What to do about a process that could not be started or watched: by errno. */
const char *proc_remedy(int e);

/* Around a run: a device that is gone by then, or goes in between, fails it. */
void proc_run_begins(struct proc_backend *b);
void proc_run_ends(struct proc_backend *b);

/* ---- proc_child.c ---------------------------------------------------- */

/* In the child, just forked by `parent` with all signals blocked: it is device
 * `dev` from now on. Does not return. */
void proc_child(struct device_set *s, int dev, struct proc_pipe *pipe,
                pid_t parent);

/* Are there more threads of devices than this process has processors for, with
 * n more? */
bool proc_crowded(const struct device_set *s, int n);

#endif
