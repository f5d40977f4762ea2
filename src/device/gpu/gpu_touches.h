/* What steps of a program touch on a GPU. */
#ifndef DEVICE_GPU_GPU_TOUCHES_H
#define DEVICE_GPU_GPU_TOUCHES_H

#include "device/gpu/gpu_order.h"
#include "program/program.h"

struct gpu_image;

struct gpu_touches {
    struct gpu_touch *touch; /* owned, [n] */
    int n, n_max;
    bool no_memory; /* something was left out */
};

/* Adds all that the step touches; the scratch of its queue is a memory too. */
void gpu_touches_add(struct gpu_touches *t, const struct gpu_image *m,
                     const struct step *st);
void gpu_touches_free(struct gpu_touches *t);

#endif
