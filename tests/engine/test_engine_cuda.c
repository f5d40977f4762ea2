/* A whole engine over a fake library of CUDA or HIP (lib/fake_cuda.c,
 * lib/fake_hip.c) while any one call of it fails. The engine's caller gets an
 * error, or results do not change. No thread is left waiting, and nothing is
 * left behind. */
#include "lib/engine_run.h"
#include "lib/fake_cuda_use.h"
#include "lib/scene_model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/program.h"

enum { N = 5, N_VOCAB = 96, UNKNOWN = 999 };

static const struct scene_model scene = {1, 4, 2, 64, false};

struct attempt {
    const struct fake_cuda *fake;
    pl_model *model;
    const char *devices;
    float out[(N + 1) * N_VOCAB], again[(N + 1) * N_VOCAB];
    bool hit; /* true once the call that shall fail was made */
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

/* Decodes N tokens in one batch, then one more. `out` gets their logits. */
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

/* Opens an engine, uses it and frees it. After a failure it decodes once more,
 * with any result. test_device_stream.c covers failures while freeing. */
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

/* Returns true for calls whose failure may go unnoticed: those of map(), of
 * graphs and of functions that free something, and those to GPUs not in use.
 * Without them a GPU uses no mapped host memory or no graphs, and has the same
 * bits. The same holds for a GPU whose empty queues could not be waited for
 * before loading. */
static bool is_optional(const char *call, int nth)
{
    static const char *const optional[] = {
        "version",
        "device_get",
        "device_name",
        "device_bus",
        "device_bytes",
        "device_attribute",
        "device_reaches",
        "host_register",
        "host_unregister",
        "host_address",
        "release",
        "host_release",
        "event_destroy",
        "stream_destroy",
        "graph_instantiate",
        "graph_destroy",
        "graph_exec_destroy",
        "module_unload",
        "cuCtxEnablePeerAccess",
        "cuCtxPushCurrent",
        "cuCtxPopCurrent",
        "cuGraphCreate",
        "cuGraphAddKernelNode",
        "cuGraphAddDependencies",
        "cuGraphAddBatchMemOpNode",
        "hipGetDeviceProperties",
        "hipGetDevice",
        "hipSetDevice",
        "hipDeviceEnablePeerAccess",
        "hipExtMallocWithFlags",
        "hipStreamBeginCapture",
        "hipStreamEndCapture",
        "hiprtcDestroyProgram",
    };
    const char *name = fake_call_name(call);

    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
        if (strcmp(optional[i], name) == 0)
            return true;
    return strcmp(name, "stream_synchronize") == 0 && nth <= 2 * QUEUE_COUNT;
}

/* logits that every attempt must give if it succeeds */
static float want[(N + 1) * N_VOCAB];

/* Lets the nth call of the function fail. Returns false if there are fewer
 * calls. */
static bool fails_well(void *user, const char *call, int nth)
{
    struct attempt *a = user;
    char when[128];
    pl_err err = {0};
    pl_status s;

    snprintf(when, sizeof when, "-dev %s, call %d of %s", a->devices, nth,
             call ? call : "none");
    memset(a->out, 0xff, sizeof a->out);
    a->fake->break_at(call, nth, UNKNOWN);
    s = live(a, &err);
    if (s == PL_OK && memcmp(a->out, want, sizeof a->out) != 0)
        fail_msg("%s: other logits and no error", when);
    if (s == PL_OK && a->hit && !is_optional(call, nth))
        fail_msg("%s: no error", when);
    if (s != PL_OK && (!a->hit || !strstr(err.message, call)))
        fail_msg("%s: %s", when, err.message);
    fake_cuda_assert_clean(a->fake, when);
    return a->hit;
}

/* Makes an attempt without a GPU, which gives the expected logits. */
static void begin(struct attempt *a, const struct fake_cuda *f)
{
    pl_err err;

    *a = (struct attempt){.fake = f, .devices = "cpu*2"};
    TEST_OK(pl_model_open(&a->model, scene_model_write(&scene), &err), err);
    TEST_OK(live(a, &err), err);
    memcpy(want, a->out, sizeof want);
}

/* Lets calls of the vendor's functions from `from` on fail, one at a time, on
 * devices of several kinds, the last of which maps no host memory. Returns how
 * many calls failed. The short tier tries each function on the first kind, and
 * on one of the others. Self test results are cached, so that few attempts
 * repeat it. Another case covers its calls, which use the same functions of
 * plait with every driver. */
static int fail_all(const struct fake_make *make, const char *const devices[4],
                    int from, int every)
{
    static struct attempt a;
    struct fake_failures t = {.f = make->use(),
                              .n_draw = 1,
                              .every = every,
                              .run = fails_well,
                              .user = &a};
    int n_fail = 0;
    pl_err err;

    if (!test_long())
        setenv("XDG_CACHE_HOME", test_temp("cache"), 1);
    begin(&a, t.f);
    for (int k = 0; k < 4; k++) {
        const char *some[128];

        a.devices = devices[k];
        t.call = some;
        t.n_call = 0;
        /* a first run without failures, whose calls are not counted */
        TEST_OK(live(&a, &err), err);
        for (int i = from; i < make->n_call; i++)
            if (test_long() || (k == 0 && !test_brief()) ||
                (test_brief() ? i % 8 == 2 * k : 1 + i % 3 == k))
                some[t.n_call++] = make->call[i];
        n_fail += fake_failures_run(&t, false);
    }
    pl_model_free(a.model);
    return n_fail;
}

TEST(engine_outlives_each_call_of_cuda_that_fails)
{
    static const char *const devices[] = {"cuda:0*2", "cuda:0,cpu*1",
                                          "cuda:0,cuda:2", "cuda:3"};

    assert_true(fail_all(&fake_make_cuda, devices, 0, INT_MAX) >
                (test_long()    ? 80
                 : test_brief() ? 10
                                : 40));
}

/* The long tier also lets functions fail that CUDA has, too. */
TEST(engine_outlives_each_call_of_hip_that_fails)
{
    static const char *const devices[] = {"hip:0*2", "hip:0,cpu*1",
                                          "hip:0,hip:2", "hip:3"};
    /* HIP sets the device around every call, so fewer calls of a function are
     * tried */
    enum { EACH = 64 };
    const struct fake_make *make = &fake_make_hip;

    assert_true(fail_all(make, devices, test_long() ? 0 : make->n_common,
                         EACH) > (test_long()    ? 40
                                  : test_brief() ? 0
                                                 : 8));
}

/* Counts how often an engine calls each function of CUDA, into out[]. */
static void count_calls(struct attempt *a, int out[])
{
    const struct fake_make *make = &fake_make_cuda;
    pl_err err;

    for (int i = 0; i < make->n_call; i++)
        out[i] = -a->fake->n_call(make->call[i]);
    TEST_OK(live(a, &err), err);
    for (int i = 0; i < make->n_call; i++)
        out[i] += a->fake->n_call(make->call[i]);
}

/* One random call of each function that the self test calls. The short tier
 * takes every fifth function or fewer. */
TEST(engine_outlives_a_call_of_cuda_that_fails_in_the_self_test)
{
    static struct attempt a;
    const struct fake_make *make = &fake_make_cuda;
    int with[128], without[128], n_tested = 0, n_tried = 0;
    int apart = test_long() ? 1 : 5;
    uint64_t draw = test_seed();
    int from = (int)test_below(&draw, apart);

    begin(&a, make->use());
    a.devices = "cuda:0*2";
    setenv("XDG_CACHE_HOME", test_temp("kept"), 1);
    count_calls(&a, with);
    count_calls(&a, without);
    setenv("XDG_CACHE_HOME", "/dev/null/no-cache", 1);
    for (int i = 0; i < make->n_call; i++) {
        int n = with[i] - without[i];

        if (n <= 0 || n_tested++ % apart != from)
            continue;
        assert_true(
            fails_well(&a, make->call[i], 1 + (int)test_below(&draw, n)));
        n_tried++;
    }
    pl_model_free(a.model);
    print_message("%d of %d functions\n", n_tried, n_tested);
    assert_true(n_tested > 5 && n_tried > 0);
}
