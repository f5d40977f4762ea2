/* The operands of a call in a GPU's memory: what a kernel reads and writes is
 * copied there before it runs, and what it may write back again. */
#ifndef TEST_GPU_COPIES_H
#define TEST_GPU_COPIES_H

#include "device/cpu/cpu_kernel.h"
#include "device/gpu/gpu_driver.h"

enum { GPU_MAX_COPIES = 64 };

struct gpu_copies {
    int n;
    struct gpu_range {
        const char *p; /* of this process */
        size_t n;      /* bytes */
        size_t off;    /* from the start of the image */
        bool written;
    } range[GPU_MAX_COPIES];
    size_t bytes;   /* of the image */
    uint64_t at;    /* where the image is on the device */
    size_t scratch; /* offset of the kernel's scratch there */
};

/* Where the call's operands go: one image of all, with gaps. */
void gpu_copies_of(struct gpu_copies *m, enum kernel k,
                   const struct cpu_call *c);
/* Room for the kernel's scratch behind them. */
void gpu_copies_add_scratch(struct gpu_copies *m, size_t bytes);
/* The address of what p points at, 0 for NULL; fails the test if the kernel
 * has no such operand. */
uint64_t gpu_copies_at(const struct gpu_copies *m, const void *p);

/* The image, bytes long, of ones where no operand is. */
void gpu_copies_fill(const struct gpu_copies *m, unsigned char *image);
/* Takes over what the kernel wrote, and fails the test where it wrote what it
 * must not. */
void gpu_copies_take(const struct gpu_copies *m, const unsigned char *image);

#endif
