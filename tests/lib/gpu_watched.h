/* The backend `watched`: the emulator, which records what its kernels and
 * copies do with this process's memory. */
#ifndef TEST_GPU_WATCHED_H
#define TEST_GPU_WATCHED_H

#include "device/device_ops.h"

/* Counts of what all devices of the backend have done since the last
 * gpu_watch_reset(). */
struct gpu_watched {
    int n_launch; /* all launches of kernels */
    /* launches that copy bytes from or to mapped memory, which is allowed */
    int n_carried;
    /* launches that read addends in mapped memory and add them up */
    int n_summed;
    int64_t most; /* size in bytes of the largest of these sums */
    /* launches that compute with operands in mapped memory otherwise */
    int n_worked;
    char kernel[64]; /* name of the first kernel counted in n_worked */
    int n_write;     /* copies from host memory into device memory */
    /* bytes of all these copies, and of the largest one */
    size_t bytes, largest;
    int n_read; /* copies from device memory into host memory */
    /* bytes copied from and to host memory that the driver neither allocated
     * nor mapped */
    size_t loose;
    int n_writer; /* number of threads that copied: 0, 1, or 2 for more */
    int n_before; /* launches of kernels before the first copy */
};

void gpu_watch_reset(void);
struct gpu_watched gpu_watch_seen(void);

/* If true, devices of sets that are loaded later cannot access each other's
 * memory. */
extern bool gpu_watch_apart;

/* If true, devices of sets that are loaded later cannot map host memory. */
extern bool gpu_watch_blind;

/* Greatest size in bytes of a range that devices map; 0 for no limit. */
extern size_t gpu_watch_most;

extern const struct backend_ops watched_ops;

#endif
