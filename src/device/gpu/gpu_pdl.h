/* Do launches of a graph that overlap wait for one another? Some drivers let a
 * launch begin while the one before it is under way; its kernel waits itself,
 * which is for the driver and the device to carry out. */
#ifndef DEVICE_GPU_GPU_PDL_H
#define DEVICE_GPU_GPU_PDL_H

#include "device/gpu/gpu_device.h"

/* Tries it with launches that read what the one before has written, if the
 * driver overlaps them; where a bit is wrong it does not from now on. What came
 * of it is remembered in the cache folder. */
pl_status gpu_pdl_check(struct gpu_device *x, pl_err *err);

#endif
