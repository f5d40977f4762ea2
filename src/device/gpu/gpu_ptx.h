/* The kernels as PTX, for CUDA. `make ptx` writes them to the folder ptx/. */
#ifndef DEVICE_GPU_GPU_PTX_H
#define DEVICE_GPU_GPU_PTX_H

#include "base/xz.h"

/* The output of NVIDIA's compiler, compressed: one PTX text per entry of
 * gpu_ptx_level, concatenated. */
extern const struct xz gpu_ptx;

struct gpu_ptx_level {
    /* least compute capability of a device for this PTX: 61 is 6.1 */
    int level;
    size_t from, n; /* offset and size in the decompressed gpu_ptx, in bytes */
};

/* In descending order of `level`; level 0 ends the table. */
extern const struct gpu_ptx_level gpu_ptx_level[];

#endif
