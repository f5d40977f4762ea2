/* The self-test of a GPU: checks that its kernels give the required bits.
 * Driver compilers change, and hardware breaks; the test keeps the promise of
 * equal bits on all devices. */
#ifndef DEVICE_GPU_GPU_SELFTEST_H
#define DEVICE_GPU_GPU_SELFTEST_H

#include "device/gpu/gpu_device.h"

/* Tests each operation that kernels consist of, at corner cases and at random.
 * Then tests each wanted kernel in small calls (gpu_trials.def) against the
 * plain C of the CPU. Passed calls are remembered in the cache folder by
 * device, driver and kernel source, so another program needs tests of its new
 * kernels only.
 *
 * Returns PL_DEVICE for a difference, which the message names. *differs is set
 * too, because other errors have the same status. Reports the kernels launched,
 * because some drivers compile them only then. */
pl_status gpu_check(struct gpu_device *x, const bool want[],
                    const struct gpu_progress *p, bool *differs, pl_err *err);
/* Returns true if all of it is remembered as passed. */
bool gpu_check_passed(struct gpu_device *x, const bool want[]);

#endif
