/* Compiles kernels on several threads, because it may take minutes. The thread
 * that loads the programs reports progress to the library's caller; no other
 * thread calls the caller's progress function. */
#ifndef DEVICE_GPU_GPU_COMPILE_H
#define DEVICE_GPU_GPU_COMPILE_H

#include <stdint.h>

#include "pl.h"

/* Progress over all GPUs of a backend. Each kernel counts once when it is
 * compiled and once more when it is tested. */
struct gpu_progress {
    /* receives reports of progress; NULL if there are no reports */
    pl_progress_fn *fn;
    void *user;
    uint64_t done, total;
    /* pl_options.cancel, which the application sets to stop loading */
    const volatile int *cancel;
};

/* Reports the progress p->done + `more` of the task "compiling kernels". */
void gpu_tell(const struct gpu_progress *p, int more);
/* Adds `more` to p->done and reports the sum. */
void gpu_tell_done(struct gpu_progress *p, int more);

/* Compiles program i; called on any thread. */
typedef pl_status gpu_compile_fn(void *user, int i, pl_err *err);
/* Compiles programs 0 to n - 1 by calls of `one` on up to n_thread threads.
 * After the first failure, or if *p->cancel is set, starts no further program;
 * returns the error. If some threads cannot be started, the others do their
 * work. */
pl_status gpu_compile(const struct gpu_progress *p, int n, int n_thread,
                      gpu_compile_fn *one, void *user, pl_err *err);

#endif
