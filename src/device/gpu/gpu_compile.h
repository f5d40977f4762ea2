/* Compiles kernels on threads of its own, because it takes up to minutes. The
 * loading thread reports progress to the library's caller; no other thread
 * calls the caller's function. */
#ifndef DEVICE_GPU_GPU_COMPILE_H
#define DEVICE_GPU_GPU_COMPILE_H

#include <stdint.h>

#include "pl.h"

/* Progress over the GPUs of a backend, in kernels. A kernel counts once when it
 * is compiled, and again when it was tested. */
struct gpu_progress {
    pl_progress_fn *fn; /* NULL: not reported */
    void *user;
    uint64_t done, total;
    const volatile int *cancel; /* from pl_options */
};

/* Reports "compiling kernels": `done` plus `more`. */
void gpu_tell(const struct gpu_progress *p, int more);
/* Adds `more` to `done` and reports it. */
void gpu_tell_done(struct gpu_progress *p, int more);

/* Makes program i, on any thread. */
typedef pl_status gpu_compile_fn(void *user, int i, pl_err *err);
/* Makes programs 0 .. n - 1 on up to n_thread threads. After the first failure
 * no further program is begun, and its error is returned. Threads that fail to
 * start are not missed. */
pl_status gpu_compile(const struct gpu_progress *p, int n, int n_thread,
                      gpu_compile_fn *one, void *user, pl_err *err);

#endif
