/* Sends plans to the other machines of a job, and executes those that come from
 * machine 0 (device/machines.h). */
#ifndef ENGINE_MACHINE_PLAN_H
#define ENGINE_MACHINE_PLAN_H

#include "engine/engine.h"

/* On machine 0: sends plan p to all other machines, which compile it again and
 * load their weights. Does nothing without opt->machines. */
pl_status machine_plan_send(const pl_plan *p, const pl_options *opt,
                            pl_err *err);

/* On machine 0: tells other machines that the plan that they have could not be
 * executed here. They end. `m` and `err` may be NULL. */
void machine_plan_failed(pl_machines *m, const pl_err *err);

/* A plan that machine 0 has sent: options that repeat it. Strings and arrays
 * are in `arena`. */
struct machine_plan {
    struct arena arena;
    pl_options opt;          /* without those of this machine */
    uint64_t model;          /* hash of the model: machine_plan_model() */
    struct device_desc *dev; /* [n_dev] of all machines, of the host, and io;
                                allocated by malloc */
    int n_dev;
};

/* Reads a plan from the bytes that machine_plan_send sends. *out is freed by
 * machine_plan_free, also after a failure. */
pl_status machine_plan_read(struct machine_plan *out, const unsigned char *data,
                            size_t bytes, pl_err *err);
void machine_plan_free(struct machine_plan *p);

/* Replaces the description of this machine's device in a plan, *d, by its own.
 * The network stays as machine 0 knows it, so that all lower programs alike. */
void machine_plan_take_own(struct device_desc *d,
                           const struct device_desc *own);

/* Sets *out to a hash of a model: its metadata, all its tensors' names, shapes
 * and formats, and samples of their data. */
pl_status machine_plan_model(uint64_t *out, const pl_model *m, pl_err *err);

#endif
