/* The kernels as PTX, for CUDA: the output of `make ptx` in ptx/. */
#ifndef DEVICE_GPU_GPU_PTX_H
#define DEVICE_GPU_GPU_PTX_H

#include "base/lzma.h"

/* The output of NVIDIA's compiler for each level, one after another. */
extern const struct lzma gpu_ptx;

struct gpu_ptx_level {
    int level;      /* compute capability it needs: 61 is 6.1 */
    size_t from, n; /* offset and bytes in gpu_ptx */
};

/* Descending; level 0 ends the table. */
extern const struct gpu_ptx_level gpu_ptx_level[];

#endif
