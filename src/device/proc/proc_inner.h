/* Declarations shared by the files of proc devices: the protocol between a
 * device's process and the one that opened it, and the state of the latter. */
#ifndef DEVICE_PROC_PROC_INNER_H
#define DEVICE_PROC_PROC_INNER_H

#include <poll.h>
#include <pthread.h>
#include <sys/types.h>

#include "device/proc/proc_pipe.h"

/* ---- protocol -------------------------------------------------------------
 *
 * The child first sends struct proc_loaded. The parent then sends any number of
 * struct proc_order, each followed by
 *   WRITE  the bytes
 *   READ   nothing; the child sends the bytes
 *   RUN    struct device_run; the child sends struct proc_done */
enum proc_verb { PROC_WRITE, PROC_READ, PROC_RUN };

struct proc_order {
    enum proc_verb verb;
    enum region region; /* WRITE, READ */
    size_t offset, bytes;
    uint64_t run_number; /* RUN */
    int fail_insn;       /* RUN: the device's own */
};

struct proc_loaded {
    pl_status status;
    pl_err err;
};

/* The device's counters, all since it was created. */
struct proc_done {
    int n_timing;
    uint64_t macs[PL_MAX_RANKS], n_collective, collective_bytes, copies,
        copy_bytes;
    struct device_times spent;
};

/* ---- state of the parent ------------------------------------------------- */

struct proc_device {
    struct device *d;       /* borrowed */
    struct proc_pipe *pipe; /* owned, shared with the child */
    struct proc_end end;
    /* held while a thread writes or reads: one at a time */
    pthread_mutex_t stream;
    pid_t pid;        /* 0: there is none */
    bool asked;       /* executes a step and will report its end */
    atomic_bool gone; /* its process has ended; `how` says how */
    char how[64];
    /* ---- proc_watch.c; under the backend's lock once it is watched */
    int pidfd; /* owned; -1: there is none */
    long told; /* process that the system says pidfd is of */
};

struct proc_backend {
    struct device_set *set; /* borrowed */
    /* the process that opened it; forked copies of it own only their memory */
    pid_t owner;
    int n;
    struct proc_device *dev; /* owned, [n] in the backend's order */
    /* ---- proc_watch.c */
    struct pollfd *poll; /* owned, [n] */
    pthread_t watcher;
    bool watched; /* the watcher runs */
    /* protects the descriptors, the following fields, and the setting of
     * `gone` */
    pthread_mutex_t lock;
    bool running; /* a step is in progress */
};

/* ---- proc_watch.c: notices at once that a process ended ----------------- */

/* Opens a descriptor of process `pid`, just forked for the device. On failure
 * the process is ended and reaped. */
pl_status proc_take(struct proc_device *p, pid_t pid, pl_err *err);
/* Starts the watcher of the devices, all of which have a process. */
pl_status proc_watch(struct proc_backend *b, pl_err *err);
/* Ends and reaps all processes. A forked copy of the process that opened the
 * backend only releases its descriptors. */
void proc_end_all(struct proc_backend *b);
/* Returns the remedy for a process that could not be started or watched, by
 * errno. */
const char *proc_remedy(int e);

/* Called around a step: a device whose process ended before or meanwhile fails
 * it. */
void proc_run_begins(struct proc_backend *b);
void proc_run_ends(struct proc_backend *b);

/* ---- proc_child.c ---------------------------------------------------- */

/* Runs device `dev` in the child, just forked by `parent` with all signals
 * blocked. Does not return. */
void proc_child(struct device_set *s, int dev, struct proc_pipe *pipe,
                pid_t parent);

/* Returns true if the devices and n more have more threads than this process
 * has CPUs. */
bool proc_crowded(const struct device_set *s, int n);

#endif
