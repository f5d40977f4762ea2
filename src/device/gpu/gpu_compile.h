/* Compiling takes up to minutes. Threads of its own do it meanwhile, and the
 * one that loads tells the caller of the library how far it is: no other thread
 * calls what it gave. */
#ifndef DEVICE_GPU_GPU_COMPILE_H
#define DEVICE_GPU_GPU_COMPILE_H

#include <stdint.h>

#include "pl.h"

/* Of the GPUs of a bank, in kernels: one counts once when it is there, and
 * again when it has been tested. */
struct gpu_progress {
    pl_progress_fn *fn; /* NULL: nobody wants to know */
    void *user;
    uint64_t done, total;
    const volatile int *cancel; /* pl_options's */
};

/* "compiling kernels": what is done, and `more`. */
void gpu_tell(const struct gpu_progress *p, int more);
/* They are done. */
void gpu_tell_done(struct gpu_progress *p, int more);

/* Makes program i, in any thread. */
typedef pl_status gpu_compile_fn(void *user, int i, pl_err *err);
/* Programs 0 .. n - 1 by up to n_thread threads; the first that fails is the
 * last to be begun, and its error is told. Threads that do not start are not
 * missed. */
pl_status gpu_compile(const struct gpu_progress *p, int n, int n_thread,
                      gpu_compile_fn *one, void *user, pl_err *err);

#endif
