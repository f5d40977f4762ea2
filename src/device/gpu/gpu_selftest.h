/* The self test of a GPU: do its kernels have the bits that they must have?
 * Compilers of drivers change under us, and hardware breaks; this is what keeps
 * the promise of the same bits on all devices. */
#ifndef DEVICE_GPU_GPU_SELFTEST_H
#define DEVICE_GPU_GPU_SELFTEST_H

#include "device/gpu/gpu_device.h"

/* Each operation that kernels are made of, at corner cases and at random, then
 * each kernel that is wanted, in small calls (gpu_trials.def), against the
 * processors' plain C. Which calls have passed is remembered in the cache
 * folder, by device, driver and text, so that another program's kernels are
 * tested alone. PL_DEVICE: a difference, which the message names;
 * *differs says so too, since other errors have the same status. Tells which
 * kernels have been launched: some drivers compile them only then. */
pl_status gpu_check(struct gpu_device *x, const bool want[],
                    const struct gpu_progress *p, bool *differs, pl_err *err);
/* Is all of it remembered? */
bool gpu_check_passed(struct gpu_device *x, const bool want[]);

#endif
