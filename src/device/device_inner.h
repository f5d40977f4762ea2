/* Internals of a device set, shared by the files of this folder; backends do
 * not include this. */
#ifndef DEVICE_DEVICE_INNER_H
#define DEVICE_DEVICE_INNER_H

#include "device/device_ops.h"

#include <sys/types.h>

struct guard; /* device_guard.c */

struct trace {
    bool on;
    /* owned, shared. Has space for all instructions of all devices, device by
     * device; after a run, the executed ones in a row. */
    struct device_timing *event;
    size_t bytes; /* of event */
    int n;        /* events of the last run, in a row */
};

/* The state shared with devices in other processes. */
struct device_shared {
    atomic_bool failed; /* all devices leave the run; err says why */
    atomic_flag err_taken;
    pl_err err;
    double start_s; /* of the run */
};

struct device_set {
    pid_t owner;                  /* the process that created it */
    struct device_shared *shared; /* owned */
    int n, n_backend;
    struct device *dev;      /* owned, [n] */
    struct backend *backend; /* owned, [n_backend] */
    struct device_options opt;
    const struct topology *topology; /* referenced */
    struct guard *guard;             /* owned, NULL if not enabled */
    struct trace trace;

    /* the run in progress */
    const struct device_run *run;
    uint64_t run_number; /* from 1 */
    bool loaded;
    bool keeps; /* its memory is never freed: device_set_quarantine() */
    uint64_t n_run;
    double run_s; /* seconds of all runs */
};

/* ---- device_trace.c ---- */
pl_status device_trace_load(struct device_set *s,
                            pl_err *err); /* allocates, if on */
void device_trace_unload(struct device_set *s);
void device_trace_start(struct device_set *s);
void device_trace_end(struct device_set *s, bool failed);

/* ---- device_guard.c ---- */
pl_status device_guard_create(struct guard **out, const struct device_set *s,
                              pl_err *err);
void device_guard_free(struct guard *g);
void device_guard_open(struct device_set *s); /* opens all memory, for the
                                                 host */

#endif
