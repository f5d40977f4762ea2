/* The kernels' text as PTX, made by `make ptx` and unpacked while building. */
#ifndef DEVICE_GPU_GPU_PTX_H
#define DEVICE_GPU_GPU_PTX_H

struct gpu_ptx {
    int level;        /* compute capability that it needs: 61 is 6.1 */
    const char *text; /* terminated */
};

/* Levels ascending; NULL as text ends it. */
extern const struct gpu_ptx gpu_ptx[];

#endif
