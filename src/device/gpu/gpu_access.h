/* What steps of a program touch on a GPU. */
#ifndef DEVICE_GPU_GPU_ACCESS_H
#define DEVICE_GPU_GPU_ACCESS_H

#include "device/gpu/gpu_deps.h"
#include "program/program.h"

struct gpu_image;

struct gpu_access_set {
    struct gpu_access *touch; /* owned, [n] */
    int n, n_max;
    bool no_memory; /* something was left out */
};

/* Adds all that the step touches; the scratch of its queue is a memory too. */
void gpu_touches_add(struct gpu_access_set *t, const struct gpu_image *m,
                     const struct insn *st);
void gpu_touches_free(struct gpu_access_set *t);

#endif
