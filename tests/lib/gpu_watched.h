/* The kind `watched`: the emulator, which notes what its kernels and copies do
 * with this process's memory. */
#ifndef TEST_GPU_WATCHED_H
#define TEST_GPU_WATCHED_H

#include "device/device_ops.h"

/* Of all devices of the kind since the last gpu_watch_reset(). */
struct gpu_watched {
    int n_launch;    /* all */
    int n_carried;   /* that carry bytes from or to what is mapped: allowed */
    int n_summed;    /* that add up mapped addends */
    int64_t most;    /* bytes of the largest of these */
    int n_worked;    /* that were given mapped memory to work in */
    char kernel[64]; /* the first of these */
    int n_write;     /* copies into the device */
    size_t bytes, largest; /* theirs */
    int n_read;            /* copies out of it */
    size_t loose; /* bytes from and to memory that the driver does not know */
    int n_writer; /* threads that made them, as far as two */
    int n_before; /* launches before the first of them */
};

void gpu_watch_reset(void);
struct gpu_watched gpu_watch_seen(void);

/* They do not reach each other's memory; else all do. Of sets to be loaded. */
extern bool gpu_watch_apart;

/* They can map nothing. Of sets to be loaded. */
extern bool gpu_watch_blind;

/* And of no range more bytes than this, if it is not 0. */
extern size_t gpu_watch_most;

extern const struct backend_ops watched_ops;

#endif
