/* Checks the invariants of programs once, before anything runs. A program that
 * passes cannot access memory out of bounds, call a missing kernel or deadlock.
 * An error of the planner is a status here and not a crash later.
 *
 * Memory contents are not checked. Kernels skip row and expert ids that are out
 * of range. Builders of programs and writers of tables must ensure the rest:
 * router_weights gets the ids that router_topk wrote, token tables name pages
 * of the cache, and custom kernels behave. */
#ifndef PROGRAM_PROGRAM_CHECK_H
#define PROGRAM_PROGRAM_CHECK_H

#include "program/program.h"

/* Properties of a device that the checks depend on. */
struct program_device {
    const char *name;
    const char *kernels; /* name of the device's kernel set, for errors */
    /* Number of the memory that the device computes in; devices of a machine
     * with the same number can read each other's buffers. -1 if no other device
     * can read it. */
    int memory;
    bool reads;     /* the device can pull from any device of its machine whose
                       `memory` is not -1 */
    bool one_queue; /* the device executes both queues as one, in the total
                       order */
    int machine;    /* no device reads memory of another machine's */
};

struct program_machine {
    int n_dev;
    const struct program_device *dev; /* [n_dev] the devices, in the order of
                                         the set */
    bool (*has_kernel)(void *user, int dev, const struct insn_kernel *k);
    /* Returns true if the two devices share worker threads. A barrier between
     * such devices would never be passed, so it is rejected. */
    bool (*share_threads)(void *user, int dev_a, int dev_b);
    void *user;
};

/* Sets the error PL_UNSUPPORTED for a kernel call that device `dev`, with the
 * kernel set `kernels`, does not implement. Returns the status. */
pl_status program_unsupported_kernel(const char *dev, const char *kernels,
                                     const struct insn_kernel *k, pl_err *err);
/* Checks p[n_dev] for all causes of failures in a step: indices, bounds at all
 * sizes, operands that do not fit together, missing kernels, inaccessible
 * memory, and deadlocks. Bounds are checked at the largest sizes if offsets
 * increase with the sizes, and at every combination of extreme sizes if offsets
 * may decrease. Waits are also checked for hardware that runs two queues as
 * one: such hardware must not run a wait before a post that another wait needs.
 * Errors name the device, the variant and the instruction. */
pl_status program_check(const struct program_machine *m,
                        const struct program *p, pl_err *err);

#endif
