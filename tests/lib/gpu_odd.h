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

/* Returns an identity for GPUs of backends that are based on the emulator,
 * which has none. So a passed self test is cached where the environment allows,
 * once for all these backends. */
pl_status gpu_odd_identity(struct gpu *g, char *out, size_t size, pl_err *err);

/* For all GPUs of the backend `eager`: while this is above 0, compiling a
 * kernel does not end, and fails after a while. */
extern atomic_int gpu_eager_waits;

/* For all GPUs of the backend `wrong`: the kernel (enum gpu_kernel) that gives
 * wrong results. */
extern atomic_int gpu_wrong_kernel;

/* Settings and counters of the backend `hung`. */
extern struct gpu_hung {
    /* number of kernels that the GPU still launches before it hangs */
    atomic_int n_left;
    bool at_copy; /* true if the GPU hangs at its first copy */
    /* number of calls after the GPU hung that would not return on a real GPU */
    atomic_int n_call;
    /* true if its queues neither write words in memory nor wait for them */
    bool wordless;
    bool blind; /* true if the GPU maps no host memory */
    /* the GPU that hangs; NULL for the next one that is opened */
    struct gpu *who;
    /* address of memory of another GPU, which the test watches; 0 once it has
     * been freed */
    uint64_t watched;
    /* true if the next allocation of another GPU is to be watched */
    bool watches;
} gpu_hung;

/* Begins a test with a GPU that hangs: the next GPU that is opened works until
 * n_left is set. Until gpu_hung_end(), the watchdog counts the processor time
 * of this process. */
void gpu_hung_begin(void);
void gpu_hung_end(void);

#endif
