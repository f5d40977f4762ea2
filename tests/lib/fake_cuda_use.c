/* Loads the fake libraries of CUDA and HIP; fake_cuda_use.h describes the
 * functions. */
#include "lib/fake_cuda_use.h"

#include "lib/own_clock.h"
#include "lib/support.h"
#include "test_paths.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/stream_api.h"

/* Loads a fake library. Makes the watchdog count processor time, because the
 * fake devices run on processors, and on a busy machine a step may take longer
 * than a GPU is allowed. */
static const struct fake_cuda *find(const char *path, const char *name)
{
    const struct fake_cuda *f;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    own_clock(true);
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

/* ---- makes --------------------------------------------------------------- */

#define ROW(name, cuda, suffix, hip, parameters) #cuda,
static const char *const cuda_call[] = {STREAM_CALL_MAP(ROW)
#undef ROW
#define ROW(name, suffix, parameters) #name,
                                            CUDA_CALL_MAP(ROW)
                                                CUDA_LATER_CALL_MAP(ROW)
#undef ROW
};
#define ROW(name, cuda, suffix, hip, parameters) #hip,
static const char *const hip_call[] = {STREAM_CALL_MAP(ROW)
#undef ROW
#define ROW(name, parameters) #name,
                                           HIP_CALL_MAP(ROW)
                                               HIPRTC_CALL_MAP(ROW)
#undef ROW
};
#define ROW(name, ...) #name,
static const char *const common[] = {STREAM_CALL_MAP(ROW)};
#undef ROW

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

const struct fake_make fake_make_cuda = {
    .name = "cuda",
    .driver = &gpu_cuda,
    .use = fake_cuda_use,
    .call = cuda_call,
    .n_common = COUNT(common),
    .n_call = COUNT(cuda_call),
    .enter = "cuCtxPushCurrent",
    .compile = "cuModuleLoadDataEx",
    .unknown = "CUDA_ERROR_UNKNOWN (999",
};
const struct fake_make fake_make_hip = {
    .name = "hip",
    .driver = &gpu_hip,
    .use = fake_hip_use,
    .call = hip_call,
    .n_common = COUNT(common),
    .n_call = COUNT(hip_call),
    .enter = "hipGetDevice",
    .compile = "hiprtcCompileProgram",
    .unknown = "(999",
};

const char *fake_call_name(const char *call)
{
    for (int i = 0; i < COUNT(common); i++)
        if (strcmp(call, cuda_call[i]) == 0 || strcmp(call, hip_call[i]) == 0)
            return common[i];
    return call;
}

/* ---- failures ------------------------------------------------------------ */

/* Returns true for functions that are called only after another call has
 * failed. */
static bool tells_of_failures(const char *call)
{
    return strncmp(call, "cuGetError", 10) == 0 ||
           strncmp(call, "hiprtcGetProgramLog", 19) == 0;
}

static int run_long(const struct fake_failures *t, const char *call)
{
    int n = 0;

    for (int nth = 1; t->run(t->user, call, nth); nth += 1 + nth / t->every)
        n++;
    return n;
}

/* Repeats the work with failing calls of function `call`. A run without
 * failures makes `made` calls; one call of each of n_draw equal parts of them
 * is drawn. Returns how many calls failed. */
static int run_drawn(const struct fake_failures *t, const char *call, int made,
                     uint64_t *seed)
{
    int n_draw = t->n_draw < made ? t->n_draw : made, n = 0;

    for (int i = 0; i < n_draw; i++) {
        int from = i * made / n_draw, to = (i + 1) * made / n_draw;
        int nth = 1 + from + (int)test_below(seed, to - from);

        n += t->run(t->user, call, nth);
    }
    return n;
}

int fake_failures_run(const struct fake_failures *t, bool all)
{
    uint64_t seed = test_seed();
    int made[128], n = 0;

    assert_true(t->n_call <= 128);
    for (int i = 0; i < t->n_call; i++)
        made[i] = -t->f->n_call(t->call[i]);
    assert_false(t->run(t->user, NULL, 0));
    for (int i = 0; i < t->n_call; i++)
        made[i] += t->f->n_call(t->call[i]);
    for (int i = 0; i < t->n_call; i++) {
        if (all && made[i] == 0 && !tells_of_failures(t->call[i]))
            fail_msg("%s is never called", t->call[i]);
        n += test_long() ? run_long(t, t->call[i])
                         : run_drawn(t, t->call[i], made[i], &seed);
    }
    print_message("%d calls failed\n", n);
    return n;
}
