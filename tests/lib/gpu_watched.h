/* The backend `watched`: the emulator, which records what its kernels and
 * copies do with this process's memory. */
#ifndef TEST_GPU_WATCHED_H
#define TEST_GPU_WATCHED_H

#include "device/device_ops.h"

/* Sums over all devices of the backend since the last gpu_watch_reset(). */
struct gpu_watched {
    int n_launch;    /* all */
    int n_carried;   /* that copy bytes from or to mapped memory: allowed */
    int n_summed;    /* that add up mapped addends */
    int64_t most;    /* bytes of the largest such sum */
    int n_worked;    /* that compute in mapped memory */
    char kernel[64]; /* the first such kernel */
    int n_write;     /* copies into the device */
    size_t bytes, largest; /* of these copies: total and largest */
    int n_read;            /* copies out of it */
    size_t loose; /* bytes copied from and to memory unknown to the driver */
    int n_writer; /* threads that copied, counted up to two */
    int n_before; /* launches before the first copy */
};

void gpu_watch_reset(void);
struct gpu_watched gpu_watch_seen(void);

/* Devices cannot access each other's memory; else all can. For sets loaded
 * later. */
extern bool gpu_watch_apart;

/* Devices cannot map host memory. For sets loaded later. */
extern bool gpu_watch_blind;

/* Devices map at most this many bytes of a range; 0: no limit. */
extern size_t gpu_watch_most;

extern const struct backend_ops watched_ops;

#endif
