/* Declarations shared by the files of proc devices. Each device is executed by
 * a child process; the parent process has the device set. This header has the
 * protocol between them and the state of the parent. */
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
 *     WRITE  the bytes to write
 *     READ   nothing; the child replies with the bytes read
 *     RUN    struct device_run; the child replies with struct proc_done */
enum proc_verb { PROC_WRITE, PROC_READ, PROC_RUN };

struct proc_order {
    enum proc_verb verb;
    enum region region; /* WRITE, READ: region whose bytes are transferred */
    size_t offset, bytes;
    uint64_t run_number; /* RUN: the number of the run */
    /* RUN: device.fail_insn, the instruction at which the device must fail */
    int fail_insn;
};

struct proc_loaded {
    pl_status status;
    pl_err err;
};

struct proc_done {
    int n_timing;
    struct device_counts counts;
};

/* ---- state of the parent ------------------------------------------------- */

struct proc_device {
    struct device *d; /* the device of the set; borrowed */
    /* the pipe to the child, in memory shared with it; owned */
    struct proc_pipe *pipe;
    struct proc_end end;
    /* held while a thread uses the pipe to write or read device memory */
    pthread_mutex_t stream;
    pid_t pid;        /* the child process; 0 if none */
    bool asked;       /* the child executes a step and will send struct
                         proc_done */
    atomic_bool gone; /* the child has ended; `how` says why */
    char how[64];
    /* ---- used by proc_watch.c, under the backend's lock once the watcher
     * runs */
    int pidfd; /* descriptor of the child process; -1 if none; owned */
    /* process id that /proc reports for pidfd, to tell whether pidfd still
     * belongs to the child */
    long told;
};

struct proc_backend {
    struct device_set *set; /* the device set; borrowed */
    /* the process that opened the backend; a forked copy of it must not end the
     * child processes or join the watcher */
    pid_t owner;
    int n;
    /* the backend's devices, [n], in the order of backend.dev; owned */
    struct proc_device *dev;
    /* ---- proc_watch.c */
    /* descriptors on which the watcher sleeps, [n]; owned */
    struct pollfd *poll;
    pthread_t watcher;
    bool watched; /* the thread `watcher` was started */
    /* protects poll[], the devices' pidfds, the following fields, and the
     * setting of `gone` */
    pthread_mutex_t lock;
    bool running; /* a step is in progress */
};

/* ---- proc_watch.c: a thread that notices when a child process ends ------- */

/* Opens a pidfd of the child process `pid`, just forked for the device. On
 * failure kills and reaps the child. */
pl_status proc_take(struct proc_device *p, pid_t pid, pl_err *err);
/* Starts the watcher thread. All devices have a child process already. */
pl_status proc_watch(struct proc_backend *b, pl_err *err);
/* Kills and reaps all child processes. A forked copy of the process that opened
 * the backend only closes its descriptors. */
void proc_end_all(struct proc_backend *b);
/* Returns the remedy for error messages about a child that could not be started
 * or watched; `e` is the errno. */
const char *proc_remedy(int e);

/* Called when a step begins and ends. If a child process has ended before or
 * ends in between, its device fails the step. */
void proc_run_begins(struct proc_backend *b);
void proc_run_ends(struct proc_backend *b);

/* ---- proc_child.c ---------------------------------------------------- */

/* The main function of a child, just forked by `parent` with all signals
 * blocked: executes device `dev`. Does not return. */
void proc_child(struct device_set *s, int dev, struct proc_pipe *pipe,
                pid_t parent);

/* Returns true if all devices of the set together have so many threads that,
 * with n more, there are more threads than CPUs of this process. */
bool proc_crowded(const struct device_set *s, int n);

#endif
