/* Declarations shared by the files of the OpenCL driver. The API itself is
 * declared in opencl_api.h. */
#ifndef DEVICE_GPU_DRIVER_OPENCL_H
#define DEVICE_GPU_DRIVER_OPENCL_H

#include "device/gpu/gpu_driver.h"

/* Most allocations of an open device. The number is small because each kernel
 * gets all of them as arguments (text/prelude_opencl.h). */
enum { OPENCL_MAX_MEMORY = 8 };

pl_status opencl_list(struct gpu_info *out, int max, int *n, pl_err *err);

#endif
