/* Kinds of GPU for tests: the emulator with a habit.
 *
 *   eager  launches no kernel that ready() was not asked for
 *   wrong  has the lowest bit of a float other than it should, now and then
 *   hung   does nothing more when it has launched so many kernels; the first
 *          of them, the others work */
#ifndef TEST_GPU_ODD_H
#define TEST_GPU_ODD_H

#include "device/device_ops.h"
#include "device/gpu/gpu_driver.h"

#include <stdatomic.h>

extern const struct backend_ops eager_ops, hung_ops, wrong_ops;

/* For kinds that are the emulator's, which has none: a self test that one of
 * them has passed is kept where the environment lets it be, for all of them. */
pl_status gpu_odd_identity(struct gpu *g, char *out, size_t size, pl_err *err);

/* Of all GPUs of the kind `eager`: while this is above zero its compilers do
 * not come to an end, and fail after a while. */
extern atomic_int gpu_eager_waits;

/* Of all GPUs of the kind `wrong`: the kernel whose results are wrong, an enum
 * gpu_kernel. */
extern atomic_int gpu_wrong_kernel;

/* Of all GPUs of the kind `hung`. */
extern struct gpu_hung {
    atomic_int n_left; /* kernels to launch until it hangs */
    bool at_copy;      /* it hangs at its first copy */
    atomic_int n_call; /* of functions that would not return then */
    bool wordless;     /* its queues neither post nor wait for words */
    bool blind;        /* it maps nothing of the host */
    struct gpu *who;   /* that hangs; NULL: the next that is opened */
    uint64_t watched;  /* memory of another one; 0: it has been given back */
    bool watches;      /* what another one allocates next */
} gpu_hung;

/* The next GPU that is opened works until n_left is set. Whether it hangs is
 * judged by this process's time on processors, until gpu_hung_end(). */
void gpu_hung_begin(void);
void gpu_hung_end(void);

#endif
