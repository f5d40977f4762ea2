/* What the files of the CUDA driver share beside cuda_api.h. */
#ifndef DEVICE_GPU_DRIVER_CUDA_H
#define DEVICE_GPU_DRIVER_CUDA_H

#include "device/gpu/gpu_driver.h"

pl_status cuda_list(struct gpu_info *out, int max, int *n, pl_err *err);

/* The text for devices of this capability; NULL: they are too old. */
const char *cuda_text(int level);

#endif
