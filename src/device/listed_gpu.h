/* The properties of a GPU that are known before it is opened. `plait devices`
 * prints them, and -dev items choose GPUs by them. */
#ifndef DEVICE_LISTED_GPU_H
#define DEVICE_LISTED_GPU_H

#include <stdbool.h>
#include <stdint.h>

/* Optional features of a GPU, as reported by its driver. */
enum gpu_feature {
    GPU_DOT4,  /* an instruction for the dot product of four bytes */
    GPU_MMA,   /* instructions that multiply matrices of bytes */
    GPU_MAPS,  /* kernels can access host memory in place */
    GPU_WORDS, /* a queue can write a word of memory, or wait for one */
    GPU_FEATURES
};

struct gpu_info {
    char title[96]; /* "NVIDIA H200", for display */
    /* PCI address, "0000:3b:00.0"; "" if unknown. Two entries with the same
     * address are the same GPU, listed by two drivers */
    char bus[24];
    char version[96]; /* versions of driver and device, for display */
    char why[256];    /* why the GPU cannot be used; "" if it can be used */
    int index;        /* the driver's own number of the GPU */
    unsigned has;     /* bit f set: has enum gpu_feature f */
    /* bit i set: according to the driver it can access the memory of the
     * driver's GPU with `index` i */
    uint64_t peers;
    uint64_t total_bytes; /* size of its memory; 0 if unknown */
    /* free memory; gpu_driver.list() leaves it 0 if only free_memory() tells
     * it, because that query is expensive */
    uint64_t available_bytes;
    uint64_t largest_bytes;  /* maximum size of one allocation; 0 if
                                unlimited */
    int n_unit;              /* compute units (SMs, CUs) */
    double mem_bytes_per_s;  /* 0 if unknown */
    double float_macs_per_s; /* multiply-adds of floats; 0 if unknown */
    double block_macs_per_s; /* multiply-adds with quantized weights; 0 if
                                float_macs_per_s applies */
    double launch_s;         /* time to start a kernel; 0 if unknown */
    /* the device is this machine's CPU; used as a GPU only if a -dev item names
     * its driver */
    bool on_cores;
};

enum { GPU_LIST_MAX = 64 /* bits of `peers` */ };

#endif
