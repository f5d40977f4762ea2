/* See fake_cuda_use.h. */
#include "lib/fake_cuda_use.h"

#include "lib/support.h"
#include "test_paths.h"

#include <dlfcn.h>
#include <stdlib.h>

static const struct fake_cuda *find(const char *path, const char *name)
{
    const struct fake_cuda *f;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (!library)
        fail_msg("%s", dlerror());
    f = dlsym(library, name);
    assert_non_null(f);
    return f;
}

const struct fake_cuda *fake_cuda_use(void)
{
    static const struct fake_cuda *f;

    assert_int_equal(setenv("PLAIT_LIBCUDA", PLAIT_FAKE_CUDA, 1), 0);
    f = f ? f : find(PLAIT_FAKE_CUDA, "fake_cuda");
    return f;
}

const struct fake_cuda *fake_cuda_old_use(void)
{
    static const struct fake_cuda *f;

    assert_int_equal(setenv("PLAIT_LIBCUDA", PLAIT_FAKE_CUDA_OLD, 1), 0);
    f = f ? f : find(PLAIT_FAKE_CUDA_OLD, "fake_cuda");
    return f;
}

const struct fake_cuda *fake_hip_use(void)
{
    static const struct fake_cuda *f;

    assert_int_equal(setenv("PLAIT_LIBHIP", PLAIT_FAKE_HIP, 1), 0);
    assert_int_equal(setenv("PLAIT_LIBHIPRTC", PLAIT_FAKE_HIP, 1), 0);
    f = f ? f : find(PLAIT_FAKE_HIP, "fake_hip");
    return f;
}

void fake_cuda_assert_clean(const struct fake_cuda *f, const char *when)
{
    const char *wrong = f->wrong();

    if (wrong)
        fail_msg("%s: %s", when, wrong);
    if (f->n_live() != 0)
        fail_msg("%s: %d things are left", when, f->n_live());
}

void fake_cuda_assert_gives_back(const struct fake_cuda *f,
                                 const struct gpu_driver *d, const char *call)
{
    enum { UNKNOWN = 999 };
    struct gpu_work w;
    pl_err err;

    gpu_work_init(&w, d);
    TEST_OK(gpu_work_all(&w, FAKE_NEW, &err), err);
    f->break_at(call, 1, UNKNOWN);
    gpu_work_give_back(&w);
    assert_true(f->failed());
    f->break_at(NULL, 0, 0);
    gpu_work_fini(&w);
    fake_cuda_assert_clean(f, call);
}
