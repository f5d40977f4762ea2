/* The properties of a GPU that are known before it is opened: `plait devices`
 * prints them, and device strings choose by them. */
#ifndef DEVICE_LISTED_GPU_H
#define DEVICE_LISTED_GPU_H

#include <stdbool.h>
#include <stdint.h>

/* Features that a driver is queried for. */
enum gpu_feature {
    GPU_DOT4,  /* kernels multiply four bytes at once */
    GPU_MMA,   /* and matrices of bytes */
    GPU_MAPS,  /* kernels access host memory in place */
    GPU_WORDS, /* queues can post and wait for words */
    GPU_FEATURES
};

struct gpu_info {
    char title[96];   /* "NVIDIA H200", for display */
    char bus[24];     /* PCI address, "0000:3b:00.0"; "": unknown. A GPU
                         listed by two drivers has one address */
    char version[96]; /* of driver and device, for display */
    char why[256];    /* why it cannot be used; "": it can */
    int index;        /* in the driver's own numbering */
    unsigned has;     /* a bit for each gpu_feature */
    /* a bit for each GPU of the driver, by index, whose memory it can access
     * according to the driver */
    uint64_t peers;
    uint64_t total_bytes;     /* memory; 0: unknown */
    uint64_t available_bytes; /* free now; 0 in list() if a query is expensive,
                                 then use free_memory() */
    uint64_t largest_bytes;   /* limit of one allocation; 0: none */
    int n_unit;               /* compute units (SMs, CUs) */
    double mem_bytes_per_s;   /* 0: unknown */
    double float_macs_per_s;  /* multiply-adds of floats; 0: unknown */
    double block_macs_per_s;  /* for weights in blocks; 0: as for floats */
    double launch_s;          /* to start a kernel; 0: unknown */
    bool on_cores;            /* it is this machine's processors; used as a GPU
                                 only if requested by its driver's name */
};

enum { GPU_LIST_MAX = 64 /* bits of `peers` */ };

#endif
