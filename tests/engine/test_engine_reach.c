/* Access to a running model: requested intermediates can be read, are what the
 * model computes, and are the same on all devices. Weights can be read and
 * set. */
#include "lib/engine_run.h"
#include "pl_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 7, D = 256 };

static const char *const model = "models/fable-moe-Q8_0.gguf";
static const char *const kept[] = {"ffn_norm-1", "ffn_inp-?", "l_out-3"};

static void open_model(struct engine_run *r, const char *devices, bool keep)
{
    pl_options o = engine_run_options();

    o.devices = devices;
    o.n_ranks = 3;
    o.keep = kept;
    o.n_keep = keep ? 3 : 0;
    engine_run_open(r, test_file(model), model, &o);
}

static void read_value(struct engine_run *r, const char *name, float *out)
{
    pl_tensor t = pl_engine_tensor(r->engine, name);
    pl_err err;

    assert_true(t >= 0);
    if (pl_tensor_get(pl_engine_exec(r->engine), t, out, 0, N * D * 4, &err) !=
        PL_OK)
        fail_msg("%s: %s", name, err.message);
}

TEST(engine_reach_kept_values_are_those_of_the_model)
{
    static const char *const devices[] = {"cpu", "cpu*3", "sim*2"};
    static const int32_t token[N] = {1, 5, 9, 200, 3, 77, 12};
    static float first[N * D], x[N * D], y[N * D], w[D];

    for (int k = 0; k < 3; k++) {
        struct engine_run r;
        pl_tensor t;

        open_model(&r, devices[k], true);
        assert_string_equal(
            pl_tensor_name(pl_plan_graph(pl_engine_plan(r.engine)),
                           pl_engine_tensor(r.engine, "ffn_inp-1")),
            "ffn_inp-1");
        engine_run_decode(&r, 0, N, token, NULL);
        read_value(&r, "ffn_inp-1", x);
        read_value(&r, "ffn_norm-1", y);
        t = pl_engine_tensor(r.engine, "blk.1.ffn_norm.weight");
        assert_int_equal(
            pl_tensor_get(pl_engine_exec(r.engine), t, w, 0, sizeof w, NULL),
            PL_OK);
        for (int i = 0; i < N; i++) {
            double sum = 0;

            for (int d = 0; d < D; d++)
                sum += (double)x[i * D + d] * (double)x[i * D + d] / D;
            for (int d = 0; d < D; d++) {
                double want =
                    (double)x[i * D + d] / sqrt(sum + 1e-6) * (double)w[d];

                if (fabs((double)y[i * D + d] - want) > 1e-4)
                    fail_msg("ffn_norm-1 is no norm of ffn_inp-1: %g, %g",
                             (double)y[i * D + d], want);
            }
        }
        read_value(&r, "l_out-3", k ? x : first);
        if (k > 0)
            assert_memory_equal(x, first, sizeof x);
        assert_int_equal(pl_engine_tensor(r.engine, "nothing"), -1);
        t = pl_engine_tensor(r.engine, "l_out-2");
        assert_true(t >= 0); /* a tensor of the graph that is not kept */
        assert_int_equal(
            pl_tensor_get(pl_engine_exec(r.engine), t, x, 0, 4, NULL),
            PL_BAD_ARGUMENT);
        engine_run_close(&r);
    }
}

/* A prompt of several steps leaves the values of the last one, also if the
 * steps are micro-batches of one. */
TEST(engine_reach_kept_values_are_those_of_the_last_step)
{
    static const struct {
        const char *devices;
        pl_split_mode mode;
    } machine[] = {
        {"cpu", PL_SPLIT_TENSOR},
        {"cpu*2", PL_SPLIT_LAYER},
        {"sim*2", PL_SPLIT_LAYER},
    };
    enum { ALL = 160, LAST = ALL % 64 };
    static float first[LAST * D], x[LAST * D];
    int32_t token[ALL];
    uint64_t seed = test_seed();

    for (int k = 0; k < 3; k++) {
        pl_options o = engine_run_options();
        struct engine_run r;
        pl_tensor t;

        o.devices = machine[k].devices;
        o.split_mode = machine[k].mode;
        o.n_ranks = 2;
        o.keep = kept;
        o.n_keep = 3;
        engine_run_open(&r, test_file(model), model, &o);
        if (k == 0)
            engine_run_tokens(&r, &seed, ALL, token);
        engine_run_decode(&r, 0, ALL, token, NULL);
        t = pl_engine_tensor(r.engine, "l_out-3");
        assert_int_equal(pl_tensor_get(pl_engine_exec(r.engine), t,
                                       k ? x : first, 0, sizeof x, NULL),
                         PL_OK);
        assert_int_equal(
            pl_tensor_get(pl_engine_exec(r.engine), t, x, sizeof x, 4, NULL),
            PL_BAD_ARGUMENT);
        if (k > 0)
            assert_memory_equal(x, first, sizeof x);
        engine_run_close(&r);
    }
}

TEST(engine_reach_sets_weights_of_a_running_model)
{
    static const int32_t token[N] = {1, 5, 9, 200, 3, 77, 12};
    const pl_view last = {1, {64}, {-1}, D - 1};
    struct engine_run r;
    float *before, *after, w[64], zero[64] = {0};
    pl_exec *x;
    pl_tensor t;
    size_t size;

    open_model(&r, "cpu*2", false);
    size = (size_t)(N * r.n_vocab) * sizeof(float);
    before = malloc(size);
    after = malloc(size);
    assert_true(before && after);
    x = pl_engine_exec(r.engine);
    t = pl_engine_tensor(r.engine, "blk.2.attn_norm.weight");
    engine_run_decode(&r, 0, N, token, before);
    assert_int_equal(pl_tensor_get_view(x, t, &last, w, NULL), PL_OK);
    assert_int_equal(pl_tensor_set_view(x, t, &last, zero, NULL), PL_OK);
    engine_run_decode(&r, 1, N, token, after);
    assert_memory_not_equal(before, after, size);
    assert_int_equal(pl_tensor_set_view(x, t, &last, w, NULL), PL_OK);
    engine_run_decode(&r, 2, N, token, after);
    assert_memory_equal(before, after, size);
    engine_run_close(&r);
    free(before);
    free(after);
}

/* A copy of a sequence contains all work begun before: here the rows of its
 * last page, which a slow link delays. */
TEST(engine_reach_a_copy_waits_for_what_was_begun)
{
    enum { LENGTH = 70, PAGE = 64 };
    static const char *const small = "qwen2-bias-f32.gguf";
    static float row[2 * PAGE * 4096], got[(LENGTH - PAGE) * 4096];
    pl_options o = engine_run_options();
    uint64_t seed = test_seed();
    int32_t token[LENGTH];
    struct engine_run r;
    pl_dim dim[4];
    pl_exec *x;
    pl_tensor t;
    size_t n;

    o.devices = "sim:200us";
    o.cache_set = true;
    o.cache_k = o.cache_v = PL_F32;
    engine_run_open(&r, test_ref(small), small, &o);
    x = pl_engine_exec(r.engine);
    t = pl_engine_tensor(r.engine, "cache_k.0");
    assert_int_equal(
        pl_tensor_shape(pl_plan_graph(pl_engine_plan(r.engine)), t, dim), 3);
    n = (size_t)(dim[1].n * dim[2].n);
    assert_true(n <= 4096);
    engine_run_tokens(&r, &seed, LENGTH, token);
    /* fills the sequence's first pages */
    engine_run_decode(&r, 0, LENGTH, token, NULL);
    for (size_t i = 0; i < 2 * PAGE * n; i++)
        row[i] = test_unit(&seed);
    assert_int_equal(
        pl_tensor_set_async(x, t, row, 0, 2 * PAGE * n * sizeof *row, NULL),
        PL_OK);
    /* copies the partly filled third page */
    assert_int_equal(pl_seq_copy(r.engine, 1, 0, NULL), PL_OK);
    assert_int_equal(pl_tensor_get(x, t, got, 2 * PAGE * n * sizeof *row,
                                   (LENGTH - PAGE) * n * sizeof *row, NULL),
                     PL_OK);
    assert_memory_equal(got, row + PAGE * n, (LENGTH - PAGE) * n * sizeof *row);
    engine_run_close(&r);
}

TEST(engine_reach_a_name_of_nothing_is_refused)
{
    static const char *const names[] = {"ffn_up-0", "token_embd.weight", ""};
    pl_model *m;
    pl_err err;

    if (!test_file(model))
        TEST_SKIP("%s is absent", model);
    assert_int_equal(pl_model_open(&m, test_file(model), NULL), PL_OK);
    for (int i = 0; i < 3; i++) {
        const pl_options o = {.size = sizeof o, .keep = &names[i], .n_keep = 1};
        pl_plan *p;

        assert_int_equal(pl_plan_create(&p, m, &o, &err), PL_NOT_FOUND);
        assert_null(p);
        assert_non_null(strstr(err.message, "known are attn_norm-N"));
    }
    pl_model_free(m);
}
