/* A whole engine over a library of CUDA or HIP that is made for tests
 * (lib/fake_cuda.c, lib/fake_hip.c), while any call of it fails: who runs the
 * engine is told, or nothing shows; nobody is left waiting, and nothing is left
 * behind. */
#include "lib/engine_run.h"
#include "lib/fake_cuda_use.h"
#include "lib/scene_model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/stream_api.h"
#include "program/program.h"

enum { N = 5, N_VOCAB = 96, UNKNOWN = 999 };

static const struct scene_model scene = {1, 4, 2, 64, false};

struct attempt {
    const struct fake_cuda *fake;
    pl_model *model;
    const char *devices;
    float out[(N + 1) * N_VOCAB], again[(N + 1) * N_VOCAB];
    bool hit; /* a call has failed that was to */
};

static pl_options options(const char *dev)
{
    pl_options o = engine_run_options();

    o.devices = dev;
    o.n_ranks = 2;
    o.no_fit = true;
    o.host_experts = "all";
    o.offload = PL_OFFLOAD_ON;
    return o;
}

/* N tokens at once, then one. */
static pl_status decode(pl_engine *e, float *out, pl_err *err)
{
    static const int32_t token[N + 1] = {3, 1, 4, 1, 5, 9}, seq[N] = {0};
    pl_batch b = {
        .size = sizeof b, .n = N, .token = token, .seq = seq, .logits = out};
    pl_status s = pl_engine_decode(e, &b, NULL, err);

    if (s != PL_OK)
        return s;
    b.n = 1;
    b.token = token + N;
    b.logits = out + (size_t)N * N_VOCAB;
    return pl_engine_decode(e, &b, NULL, err);
}

/* An engine's life. After a failure it is asked once more, for whatever it
 * gives. What fails while it is given back is another case's
 * (test_device_cuda.c). */
static pl_status live(struct attempt *a, pl_err *err)
{
    const pl_options o = options(a->devices);
    pl_engine *e = NULL;
    pl_status s = pl_engine_create(&e, a->model, &o, err);

    if (s == PL_OK) {
        s = decode(e, a->out, err);
        if (s != PL_OK && pl_seq_trim(e, 0, 0, NULL, NULL) == PL_OK)
            decode(e, a->again, NULL);
    }
    a->hit = a->fake->failed();
    a->fake->break_at(NULL, 0, 0);
    pl_engine_free(e);
    return s;
}

/* What map(), graphs and whatever gives something back call, and what is asked
 * of other GPUs than those in use: a GPU goes without memory of the host in
 * place, without graphs, and has the same bits. So does one whose empty queues
 * could not be waited for before it was loaded. */
static bool is_optional(const char *name, int nth)
{
    enum { BEFORE = 2 * QUEUE_COUNT };
    static const char *const optional[] = {"cuDriverGetVersion",
                                           "cuDeviceGet",
                                           "cuDeviceGetName",
                                           "cuDeviceGetPCIBusId",
                                           "cuDeviceTotalMem",
                                           "cuDeviceGetAttribute",
                                           "cuDeviceCanAccessPeer",
                                           "cuCtxEnablePeerAccess",
                                           "cuMemHostRegister",
                                           "cuMemHostUnregister",
                                           "cuMemHostGetDevicePointer",
                                           "cuCtxPushCurrent",
                                           "cuCtxPopCurrent",
                                           "cuMemFree",
                                           "cuMemFreeHost",
                                           "cuEventDestroy",
                                           "cuStreamDestroy",
                                           "cuGraphCreate",
                                           "cuGraphAddKernelNode",
                                           "cuGraphAddDependencies",
                                           "cuGraphInstantiateWithFlags",
                                           "cuGraphDestroy",
                                           "cuGraphExecDestroy",
                                           "cuModuleUnload",
                                           "hipDriverGetVersion",
                                           "hipDeviceGet",
                                           "hipDeviceGetName",
                                           "hipDeviceGetPCIBusId",
                                           "hipDeviceTotalMem",
                                           "hipDeviceGetAttribute",
                                           "hipGetDeviceProperties",
                                           "hipGetDevice",
                                           "hipSetDevice",
                                           "hipDeviceCanAccessPeer",
                                           "hipDeviceEnablePeerAccess",
                                           "hipHostRegister",
                                           "hipHostUnregister",
                                           "hipHostGetDevicePointer",
                                           "hipExtMallocWithFlags",
                                           "hipFree",
                                           "hipHostFree",
                                           "hipEventDestroy",
                                           "hipStreamDestroy",
                                           "hipStreamBeginCapture",
                                           "hipStreamEndCapture",
                                           "hipGraphInstantiateWithFlags",
                                           "hipGraphDestroy",
                                           "hipGraphExecDestroy",
                                           "hipModuleUnload",
                                           "hiprtcDestroyProgram"};

    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (strcmp(optional[i], name) == 0)
            return true;
    return nth <= BEFORE && (strcmp(name, "cuStreamSynchronize") == 0 ||
                             strcmp(name, "hipStreamSynchronize") == 0);
}

static float want[(N + 1) * N_VOCAB]; /* what all attempts must have */

/* The nth call of the function fails; false: there are not so many. */
static bool fails_well(struct attempt *a, const char *name, int nth)
{
    char when[128];
    pl_err err = {0};
    pl_status s;

    snprintf(when, sizeof when, "-dev %s, call %d of %s", a->devices, nth,
             name);
    memset(a->out, 0xff, sizeof a->out);
    a->fake->break_at(name, nth, UNKNOWN);
    s = live(a, &err);
    if (s == PL_OK && memcmp(a->out, want, sizeof a->out) != 0)
        fail_msg("%s: other logits and no error", when);
    if (s == PL_OK && a->hit && !is_optional(name, nth))
        fail_msg("%s: no error", when);
    if (s != PL_OK && (!a->hit || !strstr(err.message, name)))
        fail_msg("%s: %s", when, err.message);
    fake_cuda_assert_clean(a->fake, when);
    return a->hit;
}

/* An attempt of no GPU gives what is wanted. */
static void begin(struct attempt *a, const struct fake_cuda *f)
{
    pl_err err;

    *a = (struct attempt){.fake = f, .devices = "cpu*2"};
    TEST_OK(pl_model_open(&a->model, scene_model_write(&scene), &err), err);
    TEST_OK(live(a, &err), err);
    memcpy(want, a->out, sizeof want);
}

/* Each of these calls fails, one at a time, on devices of several kinds, the
 * last of which maps nothing of the host; how often one did. The long tier
 * leaves none of a function's first `each` calls out. */
static int fail_all(const struct fake_cuda *f, const char *const devices[4],
                    const char *const name[], int n, int each)
{
    static struct attempt a;
    int n_fail = 0;

    begin(&a, f);
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < n; i++) {
            int nth = 1;

            a.devices = devices[k];
            while (fails_well(&a, name[i], nth)) {
                n_fail++;
                if (!test_long() && k % 3 > 0)
                    break;
                nth += test_long()    ? 1 + nth / each
                       : test_brief() ? 2 * nth
                                      : nth;
            }
        }
    pl_model_free(a.model);
    print_message("%d calls failed\n", n_fail);
    return n_fail;
}

static const char *const cuda_name[] = {
#define ROW(name, cuda, suffix, hip, parameters) #cuda,
    STREAM_CALL_MAP(ROW)
#undef ROW
#define ROW(name, suffix, parameters) #name,
        CUDA_CALL_MAP(ROW) CUDA_LATER_CALL_MAP(ROW)
#undef ROW
};
enum { N_CUDA_NAME = sizeof cuda_name / sizeof *cuda_name };

/* What passed the self test is kept, so that few attempts take its time: the
 * next case is for the calls that it makes, through the same functions of
 * plait whatever the driver. */
TEST(engine_outlives_each_call_of_cuda_that_fails)
{
    static const char *const devices[] = {"cuda:0*2", "cuda:0,cpu*1",
                                          "cuda:0,cuda:2", "cuda:3"};

    if (!test_long())
        setenv("XDG_CACHE_HOME", test_temp("cache"), 1);
    assert_true(fail_all(fake_cuda_use(), devices, cuda_name, N_CUDA_NAME,
                         INT_MAX) > 80);
}

/* How often an engine's life calls each function. */
static void count_calls(struct attempt *a, int out[N_CUDA_NAME])
{
    pl_err err;

    for (int i = 0; i < N_CUDA_NAME; i++)
        out[i] = -a->fake->n_call(cuda_name[i]);
    TEST_OK(live(a, &err), err);
    for (int i = 0; i < N_CUDA_NAME; i++)
        out[i] += a->fake->n_call(cuda_name[i]);
}

/* A call of each function that the self test calls, drawn from as many as it
 * makes. */
TEST(engine_outlives_a_call_of_cuda_that_fails_in_the_self_test)
{
    static struct attempt a;
    static int with[N_CUDA_NAME], without[N_CUDA_NAME];
    uint64_t draw = test_seed();
    int n_tried = 0;

    begin(&a, fake_cuda_use());
    a.devices = "cuda:0*2";
    setenv("XDG_CACHE_HOME", test_temp("kept"), 1);
    count_calls(&a, with);
    count_calls(&a, without);
    setenv("XDG_CACHE_HOME", "/dev/null/no-cache", 1);
    for (int i = 0; i < N_CUDA_NAME; i++) {
        int n = with[i] - without[i];

        if (n <= 0)
            continue;
        assert_true(fails_well(&a, cuda_name[i],
                               1 + (int)(test_random(&draw) % (unsigned)n)));
        n_tried++;
    }
    pl_model_free(a.model);
    print_message("%d functions\n", n_tried);
    assert_true(n_tried > 5);
}

/* Those that CUDA has, too, when there is time. */
TEST(engine_outlives_each_call_of_hip_that_fails)
{
    static const char *const devices[] = {"hip:0*2", "hip:0,cpu*1",
                                          "hip:0,hip:2", "hip:3"};
    static const char *const name[] = {
#define ROW(name, parameters) #name,
        HIP_CALL_MAP(ROW) HIPRTC_CALL_MAP(ROW)
#undef ROW
    };
    static const char *const common[] = {
#define ROW(name, cuda, suffix, hip, parameters) #hip,
        STREAM_CALL_MAP(ROW)
#undef ROW
    };
    enum { EACH = 64 }; /* it asks for the device around every call */
    const struct fake_cuda *f = fake_hip_use();

    if (!test_long())
        setenv("XDG_CACHE_HOME", test_temp("cache"), 1);
    assert_true(fail_all(f, devices, name, sizeof name / sizeof *name, EACH) >
                40);
    if (test_long())
        fail_all(f, devices, common, sizeof common / sizeof *common, EACH);
}
