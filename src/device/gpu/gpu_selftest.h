/* The self-test of a GPU: checks that its kernels give the same bits as the
 * CPU's. It is needed because the kernels are compiled by the driver, whose
 * versions differ, and because hardware may be faulty. */
#ifndef DEVICE_GPU_GPU_SELFTEST_H
#define DEVICE_GPU_GPU_SELFTEST_H

#include "device/gpu/gpu_device.h"

/* Tests the arithmetic operations that kernels consist of, with corner cases
 * and random operands. Then tests each kernel k with want[k] in small calls
 * (gpu_trials.def) against plain C on the CPU. Passed calls are stored in the
 * cache folder by device, driver and kernel source, so a later program tests
 * only kernels that are new.
 *
 * Returns PL_DEVICE if bits differ; the message names the call. Because other
 * errors have the same status, *differs tells whether bits differ. Reports
 * progress, because some drivers compile a kernel only at its first launch. */
pl_status gpu_check(struct gpu_device *x, const bool want[],
                    const struct gpu_progress *p, bool *differs, pl_err *err);
/* Returns true if all calls that gpu_check would test are stored as passed. */
bool gpu_check_passed(struct gpu_device *x, const bool want[]);

#endif
