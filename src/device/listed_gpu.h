/* The properties of a GPU that are known before it is opened. `plait devices`
 * prints them, and -dev items choose GPUs by them. */
#ifndef DEVICE_LISTED_GPU_H
#define DEVICE_LISTED_GPU_H

#include <stdbool.h>
#include <stdint.h>

/* Optional features of a GPU, as reported by its driver. */
enum gpu_feature {
    GPU_DOT4, /* the GPU has an instruction for the dot product of four bytes */
    GPU_MMA,  /* the GPU has instructions that multiply matrices of bytes */
    GPU_MAPS, /* kernels can access host memory in place */
    /* a queue can write a word of memory, or wait for a word's value */
    GPU_WORDS,
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
    /* bit f is set if the GPU has the feature f (enum gpu_feature) */
    unsigned has;
    /* bit i is set if the GPU can access the memory of the GPU with `index` i,
     * as the driver says */
    uint64_t peers;
    uint64_t total_bytes; /* size of the GPU's memory in bytes; 0 if unknown */
    /* bytes of free memory; gpu_driver.list() leaves it 0 if only the expensive
     * query free_memory() tells it */
    uint64_t available_bytes;
    /* maximum size of one allocation in bytes; 0 if unlimited */
    uint64_t largest_bytes;
    int n_unit; /* number of compute units (SMs, CUs) */
    /* bytes per second that kernels read from memory; 0 if unknown */
    double mem_bytes_per_s;
    /* multiply-adds of floats per second; 0 if unknown */
    double float_macs_per_s;
    /* multiply-adds per second with quantized weights; 0 means that
     * float_macs_per_s applies to them, too */
    double block_macs_per_s;
    double launch_s; /* seconds to start a kernel; 0 if unknown */
    /* the device is this machine's CPU; used as a GPU only if a -dev item names
     * its driver */
    bool on_cores;
};

/* most GPUs in a driver's list: the number of bits of `peers` */
enum { GPU_LIST_MAX = 64 };

#endif
