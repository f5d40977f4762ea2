/* GPU backends for tests: the emulator with one odd behaviour each.
 *
 *   eager  launches no kernel that ready() was not asked for
 *   wrong  flips the lowest bit of a float in some results
 *   hung   does nothing more after so many kernels; only the first GPU hangs,
 *          the others work */
#ifndef TEST_GPU_ODD_H
#define TEST_GPU_ODD_H

#include "device/device_ops.h"
#include "device/gpu/gpu_driver.h"

#include <stdatomic.h>

extern const struct backend_ops eager_ops, hung_ops, wrong_ops;

/* For backends based on the emulator, which has no identity: a passed self test
 * is cached where the environment allows, for all of them together. */
pl_status gpu_odd_identity(struct gpu *g, char *out, size_t size, pl_err *err);

/* For all GPUs of the backend `eager`: while this is above zero, compiling does
 * not end, and fails after a while. */
extern atomic_int gpu_eager_waits;

/* For all GPUs of the backend `wrong`: the kernel whose results are wrong, an
 * enum gpu_kernel. */
extern atomic_int gpu_wrong_kernel;

/* For all GPUs of the backend `hung`. */
extern struct gpu_hung {
    atomic_int n_left; /* kernels to launch before it hangs */
    bool at_copy;      /* it hangs at its first copy */
    atomic_int n_call; /* calls of functions that would not return then */
    bool wordless;     /* its queues neither post words nor wait for them */
    bool blind;        /* it maps no host memory */
    struct gpu *who;   /* the GPU that hangs; NULL: the next that is opened */
    uint64_t watched;  /* memory of another GPU; 0: it has been freed */
    bool watches;      /* watch what another GPU allocates next */
} gpu_hung;

/* Lets the next GPU that is opened work until n_left is set. Until
 * gpu_hung_end(), this process's processor time decides whether it hangs. */
void gpu_hung_begin(void);
void gpu_hung_end(void);

#endif
