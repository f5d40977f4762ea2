/* Blocks for multi-token prediction are engines of their own. They compute what
 * tests/tools/mtp_reference.py does in double. */
#include "lib/engine_run.h"
#include "pl_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOK = 24, WIDTH = 64, N_VOCAB = 384 };

static const char name[] = "glm4moe-f32";

static float mtp_hidden(int64_t i, int64_t j)
{
    return (float)((i * 131 + j * 71 + i * j * 17) % 251 - 125) / 64;
}

static int32_t mtp_token(int64_t i)
{
    return (int32_t)(i * 89 % N_VOCAB);
}

struct given {
    int32_t token[N_TOK];
    float hidden[N_TOK * WIDTH];
};

static void fill(struct given *g)
{
    for (int64_t i = 0; i < N_TOK; i++) {
        g->token[i] = mtp_token(i);
        for (int64_t j = 0; j < WIDTH; j++)
            g->hidden[i * WIDTH + j] = mtp_hidden(i, j);
    }
}

static pl_options options(const char *devices, int n_ranks)
{
    pl_options o = engine_run_options();

    o.devices = devices;
    o.n_ranks = n_ranks;
    o.cache_set = true;
    o.cache_k = o.cache_v = PL_F32;
    o.mtp = 1;
    return o;
}

static struct engine_run opened(const pl_options *o)
{
    char file[64];
    struct engine_run r;

    snprintf(file, sizeof file, "%s.gguf", name);
    engine_run_open(&r, test_ref(file), name, o);
    assert_int_equal(r.n_vocab, N_VOCAB);
    assert_int_equal(pl_model_d_model(r.model), WIDTH);
    assert_int_equal(pl_model_n_mtp(r.model), 1);
    return r;
}

/* Decodes all tokens, `most` at a time; hidden_out may be NULL. */
static void decode(const struct engine_run *r, const struct given *g,
                   bool block, int64_t most, float *logits, float *hidden_out)
{
    pl_err err;

    for (int64_t at = 0; at < N_TOK; at += most) {
        pl_batch b;

        pl_batch_init(&b);
        b.n = most < N_TOK - at ? most : N_TOK - at;
        b.token = g->token + at;
        b.logits = logits + at * N_VOCAB;
        b.hidden = block ? g->hidden + at * WIDTH : NULL;
        b.hidden_out = hidden_out ? hidden_out + at * WIDTH : NULL;
        TEST_OK(pl_engine_decode(r->engine, &b, NULL, &err), err);
    }
}

TEST(mtp_block_agrees_with_double_and_keeps_its_bits)
{
    static const struct {
        const char *devices;
        pl_split_mode mode;
        int n_ranks;
        int64_t most;
    } runs[] = {
        {"cpu", PL_SPLIT_TENSOR, 1, N_TOK},  {"cpu", PL_SPLIT_TENSOR, 1, 5},
        {"cpu", PL_SPLIT_TENSOR, 2, N_TOK},  {"cpu*2", PL_SPLIT_TENSOR, 2, 7},
        {"sim*2", PL_SPLIT_LAYER, 2, N_TOK}, {"cpu", PL_SPLIT_TENSOR, 3, N_TOK},
        {"sim*3", PL_SPLIT_TENSOR, 3, 1},
    };
    float *want, *got = test_need(N_TOK * N_VOCAB, sizeof *got);
    float *first = test_need(N_TOK * N_VOCAB, sizeof *first);
    struct given g;
    size_t n;

    fill(&g);
    want = test_read(test_ref_need("glm4moe-f32.mtp.bin"), &n);
    assert_int_equal(n, sizeof(float) * N_TOK * N_VOCAB);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        pl_options o = options(runs[i].devices, runs[i].n_ranks);
        struct engine_run r;

        o.split_mode = runs[i].mode;
        r = opened(&o);
        decode(&r, &g, true, runs[i].most, got, NULL);
        engine_run_close(&r);
        for (size_t k = 0; k < N_TOK * N_VOCAB; k++)
            if (!(fabsf(got[k] - want[k]) <= 1e-3f))
                fail_msg("run %zu, logit %zu: %g, not %g", i, k, (double)got[k],
                         (double)want[k]);
        if (i == 0 || runs[i].n_ranks != runs[i - 1].n_ranks)
            memcpy(first, got, sizeof(float) * N_TOK * N_VOCAB);
        assert_memory_equal(got, first, sizeof(float) * N_TOK * N_VOCAB);
    }
    free(first);
    free(got);
    free(want);
}

/* The model hands over its last layer's result, whatever the batches; so does a
 * block. */
TEST(mtp_hidden_values_are_the_last_layers)
{
    static const char *const keep[] = {"result_hidden", "l_out-*"};
    float *logits = test_need(N_TOK * N_VOCAB, sizeof *logits);
    float at_once[N_TOK * WIDTH], in_parts[N_TOK * WIDTH], layer[N_TOK * WIDTH];
    struct given g;
    pl_err err;

    fill(&g);
    for (int block = 0; block < 2; block++) {
        pl_options o = options("cpu", 2);
        struct engine_run r;

        o.mtp = block;
        o.keep = keep;
        o.n_keep = 2;
        r = opened(&o);
        decode(&r, &g, block, N_TOK, logits, at_once);
        TEST_OK(pl_tensor_get(
                    pl_engine_exec(r.engine),
                    pl_engine_tensor(r.engine, block ? "l_out-3" : "l_out-2"),
                    layer, 0, sizeof layer, &err),
                err);
        assert_memory_equal(at_once, layer, sizeof layer);
        TEST_OK(pl_seq_trim(r.engine, 0, 0, NULL, &err), err);
        decode(&r, &g, block, 5, logits, in_parts);
        assert_memory_equal(at_once, in_parts, sizeof at_once);
        engine_run_close(&r);
    }
    free(logits);
}

static void refused(const struct engine_run *r, const pl_batch *b,
                    const char *message)
{
    pl_err err;

    assert_int_equal(pl_engine_decode(r->engine, b, NULL, &err),
                     PL_BAD_ARGUMENT);
    if (!strstr(err.message, message))
        fail_msg("%s", err.message);
    assert_int_equal(pl_seq_length(r->engine, 0), 0);
}

TEST(mtp_blocks_that_are_not_there_are_named)
{
    pl_options o = options("cpu", 1);
    struct engine_run r = opened(&o);
    float *logits = test_need(N_VOCAB, sizeof *logits);
    struct given g;
    pl_batch b;
    pl_plan *p;
    pl_err err;

    fill(&g);
    pl_batch_init(&b);
    b.n = 1;
    b.token = g.token;
    b.logits = logits;
    refused(&r, &b, "set the batch's hidden");
    b.hidden = g.hidden;
    b.hidden_out = g.hidden;
    refused(&r, &b, "add \"result_hidden\"");
    o.mtp = 2;
    assert_int_equal(pl_plan_create(&p, r.model, &o, &err), PL_BAD_ARGUMENT);
    if (!strstr(err.message,
                "multi-token prediction block 2 requested; the file has 1"))
        fail_msg("%s", err.message);
    engine_run_close(&r);
    o.mtp = 0;
    r = opened(&o);
    b.hidden_out = NULL;
    refused(&r, &b, "the engine does not run a");
    engine_run_close(&r);
    free(logits);
}
