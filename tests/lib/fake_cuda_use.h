/* The libraries of CUDA and HIP made for tests, where the test program meets
 * them, and what tests of either have in common. */
#ifndef TEST_FAKE_CUDA_USE_H
#define TEST_FAKE_CUDA_USE_H

#include "lib/fake_cuda.h"
#include "lib/gpu_work.h"

/* From now on the driver's CUDA library is the one made for tests. */
const struct fake_cuda *fake_cuda_use(void);
/* The same of one of an older driver, which lacks CUDA_LATER_CALL_MAP. */
const struct fake_cuda *fake_cuda_old_use(void);
/* The same of HIP's library, and of its compiler. */
const struct fake_cuda *fake_hip_use(void);

/* A make of GPUs, by its library made for tests. */
struct fake_make {
    const char *name; /* of its devices: "cuda" */
    const struct gpu_driver *driver;
    const struct fake_cuda *(*use)(void);
    const char *const *call; /* its functions: n_common that CUDA and HIP */
    int n_common, n_call;    /* have, then those that it alone has */
    const char *enter;       /* a device is entered by this one */
    const char *compile;     /* and a kernel compiled */
    const char *unknown;     /* what it says of an error that it does not know
                                the name of */
};

extern const struct fake_make fake_make_cuda, fake_make_hip;

/* Returns the name in stream_api.h of a function that both makes have: "alloc"
 * of cuMemAlloc and hipMalloc; or `call`, where only one make has it. */
const char *fake_call_name(const char *call);

/* The library has no complaint, and nothing is held; else the case fails and
 * says in which situation. */
void fake_cuda_assert_clean(const struct fake_cuda *f, const char *when);

/* Calls of a library that fail, one at a time, while a test does the same again
 * and again. */
struct fake_failures {
    const struct fake_cuda *f;
    const char *const *call; /* functions */
    int n_call;
    int n_draw; /* of each function's calls, in the short tier */
    int every;  /* the long tier takes all of the first so many, then fewer */
    /* Does all of it; the nth call of the function fails, or none if that is
     * NULL. Returns true if it was made. */
    bool (*run)(void *user, const char *call, int nth);
    void *user;
};

/* Returns how many calls failed. The short tier draws calls of each function
 * from as many as a run without failures makes. With `all`, the case fails for
 * a function that such a run does not call. */
int fake_failures_run(const struct fake_failures *t, bool all);

#endif
