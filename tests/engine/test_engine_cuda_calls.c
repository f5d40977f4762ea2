/* Decoding a token takes few calls of CUDA and HIP, counted in fake libraries
 * (lib/fake_cuda.c, lib/fake_hip.c). */
#include "lib/engine_run.h"
#include "lib/fake_cuda_use.h"
#include "lib/scene_model.h"

#include <stdlib.h>

#include "device/gpu/stream_api.h"

enum { TOKENS = 6, UNSUPPORTED = 801 };

/* Calls of the library, all and some. Polls by a waiting thread, and their
 * context switches, do not count. Also bytes copied while the library blocked
 * the thread. */
struct asked {
    /* number of all calls, of launches, of device graphs launched, and of edges
     * between launches that may overlap */
    int all, launches, graphs, overlaps;
    size_t loose;
};

static struct asked count(const struct fake_cuda *f)
{
    static const char *const waiting[] = {"cuEventQuery",     "cuStreamQuery",
                                          "cuCtxPushCurrent", "cuCtxPopCurrent",
                                          "hipEventQuery",    "hipStreamQuery",
                                          "hipGetDevice",     "hipSetDevice"};
    struct asked a = {f->n_call(NULL),
                      f->n_call("cuLaunchKernel") +
                          f->n_call("hipModuleLaunchKernel"),
                      f->n_call("cuGraphLaunch") + f->n_call("hipGraphLaunch"),
                      f->n_call("cuGraphAddDependencies"), f->n_loose()};

    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++)
        a.all -= f->n_call(waiting[i]);
    return a;
}

/* Returns a model of two small layers, for promises that any model shows. */
static const char *small_model(void)
{
    static const struct scene_model scene = {2, 4, 2, 64, false};
    static const char *path;

    path = path ? path : scene_model_write(&scene);
    return path;
}

/* Decodes tokens of a model one by one. Returns the logits, and the calls for
 * each. */
static float *write_tokens(const struct fake_cuda *f, const char *model,
                           const char *devices, struct asked *asked, int64_t *n)
{
    pl_options o = engine_run_options();
    struct engine_run r;
    float *out;

    o.devices = devices;
    o.n_ranks = 2;
    o.no_fit = true;
    engine_run_open(&r, model, model, &o);
    *n = TOKENS * r.n_vocab;
    out = test_need((size_t)*n, sizeof *out);
    for (int i = 0; i < TOKENS; i++) {
        struct asked before = count(f), after;
        int32_t token = 3 + 15 * i;

        engine_run_decode(&r, 0, 1, &token, out + i * r.n_vocab);
        after = count(f);
        asked[i] = (struct asked){
            after.all - before.all, after.launches - before.launches,
            after.graphs - before.graphs, after.overlaps - before.overlaps,
            after.loose - before.loose};
    }
    engine_run_close(&r);
    return out;
}

/* Decodes tokens on the library's devices; they must have the bits of CPUs, and
 * no copy of a token may block the thread. */
static void tokens_on(const struct fake_cuda *f, const char *model,
                      const char *devices, struct asked *asked)
{
    struct asked none[TOKENS];
    int64_t n;
    float *want = write_tokens(f, model, "cpu*2", none, &n);
    float *have = write_tokens(f, model, devices, asked, &n);

    fake_cuda_assert_clean(f, devices);
    for (int i = 0; i < TOKENS; i++)
        assert_int_equal(asked[i].loose, 0);
    assert_memory_equal(have, want, (size_t)n * sizeof *have);
    free(have);
    free(want);
}

/* Caches self test results, and whether launches overlap. Another group tests
 * the self test. */
static void keep_self_tests(const char *name)
{
    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp(name), 1), 0);
}

/* Some 45 launches are one graph. The other calls are for the context, events
 * and ends of queues. */
TEST(cuda_writes_a_token_with_few_calls)
{
    struct asked a[TOKENS];

    keep_self_tests("cache");
    tokens_on(fake_cuda_use(), test_model(), "cuda:0", a);
    assert_true(a[0].launches > 30 && a[0].graphs == 0);
    for (int i = 1; i < TOKENS; i++)
        assert_true(a[i].launches == 0 && a[i].graphs == 1);
    for (int i = 2; i < TOKENS; i++)
        assert_in_range(a[i].all, 1, 12);
}

/* Between two collectives each device has at most one graph. */
TEST(cuda_writes_a_token_with_few_calls_on_two)
{
    enum { MOST = 2 * 12 };
    struct asked a[TOKENS];

    keep_self_tests("cache");
    tokens_on(fake_cuda_use(), test_model(), "cuda:0*2", a);
    assert_true(a[0].launches > 30 && a[0].graphs == 0);
    for (int i = 2; i < TOKENS; i++) {
        assert_in_range(a[i].graphs, 2, MOST);
        assert_in_range(a[i].launches, 0, 3 * MOST);
    }
}

/* Where GPUs wait for words themselves, a token is one graph a device, however
 * many layers and collectives there are. Prints the calls of a token with and
 * without running ahead. */
TEST(cuda_writes_a_token_as_one_graph_a_device)
{
    enum { LAYERS = 32 };
    static const struct scene_model scene = {LAYERS, 4, 2, 64, false};
    static const struct {
        const char *devices;
        int n_dev;
    } cases[] = {{"cuda:0", 1}, {"cuda:0,cuda:2", 2}};
    const struct fake_cuda *f = fake_cuda_use();
    const char *deep = scene_model_write(&scene);
    struct asked a[TOKENS];

    keep_self_tests("cache");
    f->learn(true);
    for (int k = 0; k < 4; k++) {
        const char *model = k % 2 ? deep : test_model();
        int n = cases[k / 2].n_dev;

        for (int ahead = 0; ahead < 2; ahead++) {
            setenv("PLAIT_AHEAD", ahead ? "1" : "0", 1);
            tokens_on(f, model, cases[k / 2].devices, a);
            print_message("%s, %s, ahead %d: %d graphs, %d launches, %d calls "
                          "a token\n",
                          k % 2 ? "32 layers" : "small", cases[k / 2].devices,
                          ahead, a[3].graphs, a[3].launches, a[3].all);
        }
        for (int i = 2; i < TOKENS; i++) {
            assert_int_equal(a[i].graphs, n);
            assert_int_equal(a[i].launches, 0);
            assert_in_range(a[i].all, 1, 16 * n);
        }
    }
    unsetenv("PLAIT_AHEAD");
}

/* If no graph can be made, launches are issued one by one. */
TEST(cuda_writes_without_graphs)
{
    static const char *const name[] = {"cuGraphCreate", "cuGraphAddKernelNode",
                                       "cuGraphInstantiateWithFlags"};
    const struct fake_cuda *f = fake_cuda_use();
    struct asked a[TOKENS];

    keep_self_tests("cache");
    tokens_on(f, small_model(), "cuda:0", a);
    for (int k = 0; k < 3; k++) {
        f->break_at(name[k], 1, API_OUT_OF_MEMORY);
        tokens_on(f, small_model(), "cuda:0", a);
        assert_true(f->failed());
        f->break_at(NULL, 0, 0);
        for (int i = 0; i < TOKENS; i++)
            assert_true(a[i].launches == a[0].launches && a[i].graphs == 0);
    }
}

/* Returns the edges of overlapping launches in the graphs of all tokens. */
static int overlaps_of(const struct fake_cuda *f, const char *model,
                       const char *devices)
{
    struct asked a[TOKENS];
    int n = 0;

    tokens_on(f, model, devices, a);
    for (int i = 0; i < TOKENS; i++)
        n += a[i].overlaps;
    return n;
}

static int overlaps_on(const struct fake_cuda *f, const char *devices)
{
    return overlaps_of(f, small_model(), devices);
}

/* Devices of capability 9.0 overlap launches. The fake library reads the
 * kernels' source: a launch whose kernel does not wait runs at any time. */
TEST(cuda_overlaps_launches_of_devices_that_can)
{
    const struct fake_cuda *f = fake_cuda_use();

    keep_self_tests("cache");
    assert_in_range(overlaps_of(f, test_model(), "cuda:0"), 30, 100);
    assert_true(overlaps_on(f, "cuda:0,cuda:2") > 0);
    setenv("PLAIT_OVERLAP", "0", 1);
    assert_int_equal(overlaps_on(f, "cuda:0"), 0);
    setenv("PLAIT_OVERLAP", "1", 1);
    assert_true(overlaps_on(f, "cuda:0") > 0);
    unsetenv("PLAIT_OVERLAP");
    assert_int_equal(overlaps_on(f, "cuda:2"), 0);
    assert_int_equal(overlaps_on(f, "cuda:3"), 0);
}

/* Launches do not overlap if they do not wait, which is cached, or if the
 * driver cannot. */
TEST(cuda_overlaps_no_launches_that_do_not_wait)
{
    const struct fake_cuda *f = fake_cuda_use();

    keep_self_tests("hasty");
    f->hurry(true);
    assert_int_equal(overlaps_on(f, "cuda:0"), 0);
    f->hurry(false);
    assert_int_equal(overlaps_on(f, "cuda:0"), 0);
    keep_self_tests("other");
    f->break_at("cuGraphAddDependencies", 1, UNSUPPORTED);
    assert_int_equal(overlaps_on(f, "cuda:0"), 0);
    assert_true(f->failed());
    f->break_at(NULL, 0, 0);
    /* with the failure removed, a graph with overlapping launches is made */
    assert_true(overlaps_on(f, "cuda:0") > 0);
    assert_int_equal(overlaps_on(fake_cuda_old_use(), "cuda:0"), 0);
}

/* Devices that cannot access host memory, together with one that can:
 * everything goes through memory that the library allocated. */
TEST(cuda_writes_to_memory_that_it_does_not_map)
{
    static const char *const devices[] = {"cuda:3,cpu*1", "cuda:0,cuda:3",
                                          "hip:3,cpu*1"};
    struct asked a[TOKENS];

    keep_self_tests("cache");
    for (int k = 0; k < 3; k += test_brief() ? 2 : 1)
        tokens_on(k < 2 ? fake_cuda_use() : fake_hip_use(), small_model(),
                  devices[k], a);
}

/* HIP captures its graph from launches, once. Later calls for it are as few. */
TEST(hip_writes_a_token_with_few_calls)
{
    static const char *const devices[] = {"hip:0", "hip:0*2", "hip:0,cpu*1"};
    struct asked a[TOKENS];

    keep_self_tests("cache");
    for (int k = 0; k < test_draws(3, 3); k++) {
        tokens_on(fake_hip_use(), test_model(), devices[k], a);
        assert_true(a[0].launches > 30 && a[0].graphs == 0);
        for (int i = 3; i < TOKENS; i++)
            assert_in_range(a[i].graphs, 1, 24);
        for (int i = 3; k == 0 && i < TOKENS; i++) {
            assert_int_equal(a[i].launches, 0);
            assert_in_range(a[i].all, 1, 12);
        }
    }
}

TEST(hip_writes_without_graphs)
{
    static const char *const name[] = {"hipStreamBeginCapture",
                                       "hipStreamEndCapture",
                                       "hipGraphInstantiateWithFlags"};
    const struct fake_cuda *f = fake_hip_use();

    keep_self_tests("cache");
    for (int k = 0; k < 3; k++) {
        struct asked a[TOKENS];

        f->break_at(name[k], 1, API_OUT_OF_MEMORY);
        tokens_on(f, small_model(), "hip:0", a);
        assert_true(f->failed());
        f->break_at(NULL, 0, 0);
        for (int i = 0; i < TOKENS; i++)
            assert_int_equal(a[i].graphs, 0);
    }
}
