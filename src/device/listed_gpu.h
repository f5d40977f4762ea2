/* What is known of a GPU before it is opened: what `plait devices` shows, and
 * what device strings choose by. */
#ifndef DEVICE_LISTED_GPU_H
#define DEVICE_LISTED_GPU_H

#include <stdbool.h>
#include <stdint.h>

/* What a driver was asked whether a GPU has it. */
enum gpu_feature {
    GPU_DOT4,  /* kernels multiply four bytes at once */
    GPU_MMA,   /* and matrices of bytes */
    GPU_MAPS,  /* kernels reach memory of the host in place */
    GPU_WORDS, /* queues post and wait for words themselves */
    GPU_FEATURES
};

struct gpu_info {
    char title[96];       /* "NVIDIA H200", for people */
    char bus[24];         /* PCI address, "0000:3b:00.0"; "": unknown. A GPU
                              that two drivers show has the same */
    char version[96];     /* of driver and device, for people */
    char why[256];        /* it cannot be used; "": it can */
    int index;            /* the driver's own number of it, always */
    unsigned has;         /* a bit for each gpu_feature */
    uint64_t peers;       /* a bit for each GPU of the driver, by index, whose
                              memory it reaches by the driver's word */
    uint64_t total_bytes; /* of its memory; 0: unknown */
    uint64_t available_bytes; /* of these now; of list(), where asking takes
                                 more than a question, 0: free_memory() tells */
    uint64_t largest_bytes;   /* that one allocation may have; 0: any */
    int n_unit;               /* that run groups side by side (SMs, CUs) */
    double mem_bytes_per_s;   /* 0: unknown */
    double float_macs_per_s;  /* multiply-adds of floats; 0: unknown */
    double block_macs_per_s;  /* of weights in blocks; 0: as of floats */
    double launch_s;          /* to begin a kernel; 0: unknown */
    bool on_cores; /* this machine's processors, not to be taken for a GPU
                      unless asked for by its driver's name */
};

enum { GPU_LIST_MAX = 64 /* bits of `peers` */ };

#endif
