/* Loads the fake libraries of CUDA and HIP into the test program, and has what
 * tests of both share. */
#ifndef TEST_FAKE_CUDA_USE_H
#define TEST_FAKE_CUDA_USE_H

#include "lib/fake_cuda.h"
#include "lib/gpu_work.h"

/* Makes the cuda driver use the fake CUDA library from now on. */
const struct fake_cuda *fake_cuda_use(void);
/* Makes the cuda driver use a fake library of an older CUDA, which lacks the
 * functions of CUDA_LATER_CALL_MAP. */
const struct fake_cuda *fake_cuda_old_use(void);
/* Makes the hip driver use the fake HIP library and its compiler. */
const struct fake_cuda *fake_hip_use(void);

/* A vendor of GPUs and its fake library. */
struct fake_make {
    const char *name; /* name of the backend: "cuda" */
    const struct gpu_driver *driver;
    const struct fake_cuda *(*use)(void);
    /* [n_call] names of the library's functions; the other vendor has
     * counterparts of the first n_common */
    const char *const *call;
    int n_common, n_call;
    const char *enter;   /* the function that makes a device current */
    const char *compile; /* the function that compiles or loads kernels */
    /* the driver's text for an error code without a name */
    const char *unknown;
};

extern const struct fake_make fake_make_cuda, fake_make_hip;

/* Returns the name in stream_api.h of a function that both vendors have:
 * "alloc" for cuMemAlloc and hipMalloc. Returns `call` if only one vendor has
 * it. */
const char *fake_call_name(const char *call);

/* Fails the case if the library has recorded a violation or any object was not
 * freed. `when` names the situation in the message. */
void fake_cuda_assert_clean(const struct fake_cuda *f, const char *when);

/* A test that repeats the same work while calls of a library fail, one call
 * each time. */
struct fake_failures {
    const struct fake_cuda *f;
    const char *const *call; /* [n_call] names of the library's functions */
    int n_call;
    /* number of calls of each function that fail in the short tier */
    int n_draw;
    /* in the long tier the first `every` calls of each function fail, then
     * fewer and fewer */
    int every;
    /* Runs the work while the nth call of the function `call` fails; no call
     * fails if `call` is NULL. Returns true if the work made that call. */
    bool (*run)(void *user, const char *call, int nth);
    void *user;
};

/* Repeats the work with failing calls. Returns how many calls failed. The short
 * tier draws the calls of each function from those that a run without failures
 * makes. With `all`, the case fails if such a run does not call every
 * function. */
int fake_failures_run(const struct fake_failures *t, bool all);

#endif
