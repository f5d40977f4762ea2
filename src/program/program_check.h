/* The laws of programs, read once, before anything runs. A program that passes
 * cannot leave its memory, call what is not there or wait for ever; what plans
 * get wrong is a status here and not a crash later.
 *
 * Memory's contents are not looked at. Kernels pass over ids of rows and
 * experts that are not there. That router_weights is given the ids that
 * router_topk wrote, that token tables name pages of the cache, and what a
 * custom kernel does: these are for those to keep who make programs and write
 * tables. */
#ifndef PROGRAM_PROGRAM_CHECK_H
#define PROGRAM_PROGRAM_CHECK_H

#include "program/program.h"

/* What the check asks of a device. */
struct program_device {
    const char *name;
    const char *kernels; /* what its kernels are called in errors */
    int memory;     /* devices of one number read each other's; -1: private */
    bool reads;     /* its pulls reach any memory that is not private */
    bool one_queue; /* its two queues are one, in the total order */
};

struct program_machine {
    int n_dev;
    const struct program_device *dev; /* [n_dev] */
    bool (*has_kernel)(void *user, int dev, const struct insn_kernel *k);
    /* Are threads of one threads of the other too? They could not meet. */
    bool (*share_threads)(void *user, int dev_a, int dev_b);
    void *user;
};

/* The error for a kernel that a device does not have. */
pl_status program_unsupported_kernel(const char *dev, const char *kernels,
                                     const struct insn_kernel *k, pl_err *err);
/* p[n_dev]. Everything that would otherwise go wrong in a run: indices, bounds
 * at all sizes (what grows is looked at where it is largest, what may fall at
 * every end), operands that do not go together, missing kernels, memory that is
 * not the device's to read or write, waits that never end, and waits that
 * hardware which runs two queues as one could put before a post that somebody
 * waits for. Errors name the device, the script and the step. */
pl_status program_check(const struct program_machine *m,
                        const struct program *p, pl_err *err);

#endif
