/* The operands of a call in a GPU's memory. What a kernel reads and writes is
 * copied there before it runs; what it may write is copied back. */
#ifndef TEST_GPU_COPIES_H
#define TEST_GPU_COPIES_H

#include "device/cpu/cpu_kernel.h"
#include "device/gpu/gpu_driver.h"

enum { GPU_MAX_COPIES = 64 };

struct gpu_copies {
    int n;
    struct gpu_range {
        const char *p; /* in this process's memory */
        size_t n;      /* bytes */
        size_t off;    /* from the start of the image */
        bool written;
    } range[GPU_MAX_COPIES];
    size_t bytes;   /* of the image */
    uint64_t at;    /* where the image is on the device */
    size_t scratch; /* offset of the kernel's scratch there */
};

/* Lays out the call's operands: one image of all, with gaps. */
void gpu_copies_of(struct gpu_copies *m, enum kernel k,
                   const struct cpu_call *c);
/* Adds space for the kernel's scratch after them. */
void gpu_copies_add_scratch(struct gpu_copies *m, size_t bytes);
/* Returns the device address of what p points to, 0 for NULL. Fails the test if
 * the kernel has no such operand. */
uint64_t gpu_copies_at(const struct gpu_copies *m, const void *p);

/* Fills the image, `bytes` long, with all bits one between operands. */
void gpu_copies_fill(const struct gpu_copies *m, unsigned char *image);
/* Copies back what the kernel wrote. Fails the test if it wrote anywhere
 * else. */
void gpu_copies_take(const struct gpu_copies *m, const unsigned char *image);

#endif
