/* What the files of this folder know of a set; no kind includes this. */
#ifndef DEVICE_DEVICE_INNER_H
#define DEVICE_DEVICE_INNER_H

#include "device/device_ops.h"

#include <sys/types.h>

struct guard; /* device_guard.c */

struct trace {
    bool on;
    struct device_timing *event; /* owned, shared; room for all steps of all
                                   devices, device by device; then those that
                                   ran */
    size_t bytes;                /* of event */
    int n;                       /* of the last run, side by side */
};

/* What devices in other processes see too. */
struct device_shared {
    atomic_bool failed; /* everybody leaves; err tells why */
    atomic_flag err_taken;
    pl_err err;
    double start_s; /* of the run */
};

struct device_set {
    pid_t owner;                  /* the process that made it */
    struct device_shared *shared; /* owned */
    int n, n_backend;
    struct device *dev;      /* owned, [n] */
    struct backend *backend; /* owned, [n_backend] */
    struct device_options opt;
    const struct topology *topology; /* held */
    struct guard *guard;             /* owned, NULL if not asked for */
    struct trace trace;

    /* the run in progress */
    const struct device_run *run;
    uint64_t run_number; /* from 1 */
    bool loaded;
    bool
        keeps; /* its memory, whatever becomes of it: device_set_quarantine() */
    uint64_t n_run;
    double run_s; /* seconds of all runs */
};

/* ---- device_trace.c ---- */
pl_status device_trace_load(struct device_set *s,
                            pl_err *err); /* room, if on */
void device_trace_unload(struct device_set *s);
void device_trace_start(struct device_set *s);
void device_trace_end(struct device_set *s, bool failed);

/* ---- device_guard.c ---- */
pl_status device_guard_create(struct guard **out, const struct device_set *s,
                              pl_err *err);
void device_guard_free(struct guard *g);
void device_guard_open(struct device_set *s); /* everything, for the host */

#endif
