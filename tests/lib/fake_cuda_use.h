/* Gives the test program the fake libraries of CUDA and HIP, and what tests of
 * both have in common. */
#ifndef TEST_FAKE_CUDA_USE_H
#define TEST_FAKE_CUDA_USE_H

#include "lib/fake_cuda.h"
#include "lib/gpu_work.h"

/* Makes the driver use the fake CUDA library from now on. */
const struct fake_cuda *fake_cuda_use(void);
/* Makes the driver use that of an older CUDA, which lacks
 * CUDA_LATER_CALL_MAP. */
const struct fake_cuda *fake_cuda_old_use(void);
/* Makes the driver use the fake HIP library and compiler. */
const struct fake_cuda *fake_hip_use(void);

/* A vendor of GPUs, by its fake library. */
struct fake_make {
    const char *name; /* of its devices: "cuda" */
    const struct gpu_driver *driver;
    const struct fake_cuda *(*use)(void);
    const char *const *call; /* its functions: n_common that both */
    int n_common, n_call;    /* vendors have, then those it has alone */
    const char *enter;       /* the function that enters a device */
    const char *compile;     /* the function that compiles a kernel */
    const char *unknown;     /* its text for an error without a name */
};

extern const struct fake_make fake_make_cuda, fake_make_hip;

/* Returns the name in stream_api.h of a function that both vendors have:
 * "alloc" for cuMemAlloc and hipMalloc. Returns `call` if only one vendor has
 * it. */
const char *fake_call_name(const char *call);

/* Fails the case unless the library has no complaint and nothing is live.
 * `when` names the situation in the message. */
void fake_cuda_assert_clean(const struct fake_cuda *f, const char *when);

/* Calls of a library that fail, one at a time, while a test repeats the same
 * work. */
struct fake_failures {
    const struct fake_cuda *f;
    const char *const *call; /* functions */
    int n_call;
    int n_draw; /* calls of each function, in the short tier */
    int every;  /* the long tier tries all of the first `every`, then fewer */
    /* Runs the work, in which the nth call of the function fails; none does if
     * `call` is NULL. Returns true if that call was made. */
    bool (*run)(void *user, const char *call, int nth);
    void *user;
};

/* Returns how many calls failed. The short tier draws calls of each function
 * from as many as a run without failures makes. With `all`, the case fails for
 * a function that such a run does not call. */
int fake_failures_run(const struct fake_failures *t, bool all);

#endif
