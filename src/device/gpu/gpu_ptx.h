/* The kernels' text as PTX, for CUDA: what `make ptx` leaves in ptx/. */
#ifndef DEVICE_GPU_GPU_PTX_H
#define DEVICE_GPU_GPU_PTX_H

#include "base/lzma.h"

/* What NVIDIA's compiler wrote for each level, one behind the other. */
extern const struct lzma gpu_ptx;

struct gpu_ptx_level {
    int level;      /* compute capability that it needs: 61 is 6.1 */
    size_t from, n; /* where it stands in gpu_ptx, and its bytes */
};

/* Descending; one that is 0 ends the table. */
extern const struct gpu_ptx_level gpu_ptx_level[];

#endif
