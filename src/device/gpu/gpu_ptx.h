/* The kernels' text as PTX, made by `make ptx` and packed while building, a
 * program a kernel: CUDA compiles those that are launched. */
#ifndef DEVICE_GPU_GPU_PTX_H
#define DEVICE_GPU_GPU_PTX_H

#include <stddef.h>

/* Unpacked (base/inflate.h): names and programs in turn, each terminated. A
 * kernel that a level lacks is the same as in the level before. */
struct gpu_ptx {
    int level; /* compute capability that it needs: 61 is 6.1 */
    size_t n, n_packed;
    const char *packed; /* NULL ends the table */
};

/* Levels ascending. */
extern const struct gpu_ptx gpu_ptx[];

#endif
