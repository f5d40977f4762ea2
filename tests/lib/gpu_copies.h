/* Copies of a call's operands in a GPU's memory, in one image with gaps between
 * them. What a kernel reads or writes is copied to the GPU before the kernel
 * runs; what it may write is copied back afterwards. */
#ifndef TEST_GPU_COPIES_H
#define TEST_GPU_COPIES_H

#include "device/cpu/cpu_kernel.h"
#include "device/gpu/gpu_driver.h"

enum { GPU_MAX_COPIES = 64 };

struct gpu_copies {
    int n;
    struct gpu_range {
        const char *p; /* first byte of the operand in this process's memory */
        size_t n;      /* size of the operand in bytes */
        size_t off;    /* offset of its copy from the start of the image */
        bool written;
    } range[GPU_MAX_COPIES];
    size_t bytes;   /* size of the image in bytes */
    uint64_t at;    /* address of the image on the device */
    size_t scratch; /* offset of the kernel's scratch in the image */
};

/* Lays out an image of all operands of the call, with gaps between them. */
void gpu_copies_of(struct gpu_copies *m, enum kernel k,
                   const struct cpu_call *c);
/* Adds space for the kernel's scratch at the end of the image. */
void gpu_copies_add_scratch(struct gpu_copies *m, size_t bytes);
/* Returns the device address of the copy of the byte that p points to; 0 for
 * NULL. Fails the case if no operand contains p. */
uint64_t gpu_copies_at(const struct gpu_copies *m, const void *p);

/* Copies the operands into image[m->bytes] and sets all bits of the gaps to
 * one. */
void gpu_copies_fill(const struct gpu_copies *m, unsigned char *image);
/* Copies what the kernel may write from the image back to the operands. Fails
 * the case if any other byte of the image has changed. */
void gpu_copies_take(const struct gpu_copies *m, const unsigned char *image);

#endif
