/* Internals of a device set, shared by device_set.c, device_trace.c and
 * device_guard.c. Backends do not include this header. */
#ifndef DEVICE_DEVICE_INNER_H
#define DEVICE_DEVICE_INNER_H

#include "device/device_ops.h"

#include <sys/types.h>

struct guard; /* defined in device_guard.c */

struct trace {
    bool on;
    /* The events of all devices; owned, in memory shared between processes.
     * During a run each device writes its own part, which has space for all its
     * instructions. After a run the recorded events are contiguous. */
    struct device_timing *event;
    size_t bytes; /* size of `event` in bytes */
    int n;        /* number of events of the last run */
};

/* The part of the state that is shared with devices in other processes. */
struct device_shared {
    atomic_bool failed; /* a device failed with `err`; the others then leave the
                           run */
    /* Only the first device that fails writes `err`. It may be killed
     * meanwhile, so no other waits for it. */
    _Atomic enum device_err { ERR_NONE, ERR_WRITING, ERR_WRITTEN } err_state;
    pl_err err;     /* read only while err_state is ERR_WRITTEN */
    double start_s; /* when the run started, by device_now() */
};

struct device_set {
    pid_t owner; /* the process that created the device set */
    /* state shared with devices in other processes; owned */
    struct device_shared *shared;
    int n, n_backend;
    struct device *dev; /* the set's devices, [n]; owned */
    /* the backends of the set's devices, [n_backend]; owned */
    struct backend *backend;
    struct device_options opt;
    /* this machine's topology; a counted reference */
    const struct topology *topology;
    struct network *network; /* to other machines; borrowed; NULL if none */
    struct guard *guard;     /* the memory guard; owned; NULL if !opt.guard */
    struct trace trace;

    /* the run in progress; NULL between runs */
    const struct device_run *run;
    uint64_t run_number; /* number of the last run that was started, counted
                            from 1 */
    bool loaded;
    bool zeroes; /* events are zeroed before each run:
                    device_set_zero_events() was called */
    bool keeps;  /* device memory is never freed: device_set_quarantine() was
                   called */
    uint64_t n_run;
    double run_s; /* total time of all runs in seconds */
};

/* ---- device_trace.c ---- */
pl_status device_trace_load(struct device_set *s,
                            /* Allocates the array of events, if tracing is
                             * on. */
                            pl_err *err);
void device_trace_unload(struct device_set *s);
void device_trace_start(struct device_set *s);
void device_trace_end(struct device_set *s, bool failed);

/* ---- device_guard.c ---- */
pl_status device_guard_create(struct guard **out, const struct device_set *s,
                              pl_err *err);
void device_guard_free(struct guard *g);
/* Ends all protection, because the host accesses device memory between runs. */
void device_guard_open(struct device_set *s);

#endif
