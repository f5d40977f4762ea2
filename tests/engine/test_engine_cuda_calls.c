/* What CUDA is asked for while a model writes: calls a token, of a library
 * that is made for tests (lib/fake_cuda.c). */
#include "lib/engine_run.h"
#include "lib/fake_cuda_use.h"

#include <stdlib.h>

#include "device/gpu/cuda_api.h"

enum { TOKENS = 6 };

/* Calls of the library, all and some; but not how often a thread that waits has
 * asked how far a GPU is, and made the context its own to ask. */
struct asked {
    int all, launches, graphs;
};

static struct asked count(const struct fake_cuda *f)
{
    static const char *const waiting[] = {
        "cuEventQuery", "cuStreamQuery", "cuCtxPushCurrent", "cuCtxPopCurrent"};
    struct asked a = {f->n_call(NULL), f->n_call("cuLaunchKernel"),
                      f->n_call("cuGraphLaunch")};

    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++)
        a.all -= f->n_call(waiting[i]);
    return a;
}

/* The logits of tokens of the bundled model, one by one, and what was asked for
 * at each. */
static float *write_tokens(const char *devices, struct asked *asked, int64_t *n)
{
    const struct fake_cuda *f = fake_cuda_use();
    pl_options o = engine_run_options();
    struct engine_run r;
    float *out;

    o.devices = devices;
    o.n_ranks = 2;
    o.no_fit = true;
    engine_run_open(&r, test_model(), "the bundled model", &o);
    *n = TOKENS * r.n_vocab;
    out = test_need((size_t)*n, sizeof *out);
    for (int i = 0; i < TOKENS; i++) {
        struct asked before = count(f), after;
        int32_t token = 3 + 17 * i;

        engine_run_decode(&r, 0, 1, &token, out + i * r.n_vocab);
        after = count(f);
        asked[i] = (struct asked){after.all - before.all,
                                  after.launches - before.launches,
                                  after.graphs - before.graphs};
    }
    engine_run_close(&r);
    return out;
}

/* Tokens on CUDA devices, which have the bits of CPUs. */
static void tokens_on(const char *devices, struct asked *asked)
{
    const struct fake_cuda *f = fake_cuda_use();
    struct asked none[TOKENS];
    int64_t n;
    float *want = write_tokens("cpu*2", none, &n);
    float *have = write_tokens(devices, asked, &n);
    const char *wrong = f->wrong();

    if (wrong)
        fail_msg("%s", wrong);
    assert_int_equal(f->n_live(), 0);
    assert_memory_equal(have, want, (size_t)n * sizeof *have);
    free(have);
    free(want);
}

/* Some 150 launches are one graph; beside it there are the context's, events'
 * and queues' ends. */
TEST(cuda_writes_a_token_with_few_calls)
{
    struct asked a[TOKENS];

    tokens_on("cuda:0", a);
    assert_true(a[0].launches > 100 && a[0].graphs == 0);
    for (int i = 1; i < TOKENS; i++)
        assert_true(a[i].launches == 0 && a[i].graphs == 1);
    for (int i = 2; i < TOKENS; i++)
        assert_in_range(a[i].all, 1, 12);
}

/* Between two messages each device has a graph at most. */
TEST(cuda_writes_a_token_with_few_calls_on_two)
{
    enum { MOST = 2 * 12 };
    struct asked a[TOKENS];

    tokens_on("cuda:0*2", a);
    assert_true(a[0].launches > 100 && a[0].graphs == 0);
    for (int i = 2; i < TOKENS; i++) {
        assert_in_range(a[i].graphs, 2, MOST);
        assert_in_range(a[i].launches, 0, 3 * MOST);
    }
}

/* Where no graph can be made, launches are issued one by one. */
TEST(cuda_writes_without_graphs)
{
    static const char *const name[] = {"cuGraphCreate", "cuGraphAddKernelNode",
                                       "cuGraphInstantiateWithFlags"};
    const struct fake_cuda *f = fake_cuda_use();

    for (int k = 0; k < 3; k++) {
        struct asked a[TOKENS];

        f->break_at(name[k], 1, CUDA_CODE_OUT_OF_MEMORY);
        tokens_on("cuda:0", a);
        assert_true(f->failed());
        f->break_at(NULL, 0, 0);
        for (int i = 0; i < TOKENS; i++)
            assert_true(a[i].launches == a[0].launches && a[i].graphs == 0);
    }
}
