/* States of an engine. A sequence restored from one continues with the bits
 * that it would have had without, and a rejected state changes nothing.
 *
 * "Nothing" is compared as bytes: the state of the whole cache before and
 * after. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "exec/cache_io.h"
#include "lib/alloc_fail.h"
#include "lib/cache_formats.h"
#include "lib/engine_run.h"

static const char *const models[] = {
    "qwen2-bias-f32.gguf", "qwen3moe-f32.gguf", "gemma4-ple-sharedkv-f32.gguf",
    "qwen35moe-f32.gguf",  "lfm2-f32.gguf",     "falcon-h1-f32.gguf",
    "kimi-linear-f32.gguf"};
static const char *const small = "llama-q-q4_0.gguf";
enum { N_MODEL = 7, N_PAST = 150, N_MORE = 20, MAX_TOKEN = 400 };

/* ---- helpers ------------------------------------------------------------- */

struct state {
    void *data; /* [n] bytes of the state, owned */
    size_t n;
};

static struct state save(const struct engine_run *r, int seq, int64_t first,
                         int64_t n)
{
    struct state s;
    pl_err err = {0};
    uint64_t size;

    if (pl_state_save_memory(r->engine, seq, first, n, &s.data, &s.n, &err))
        fail_msg("saving sequence %d: %s", seq, err.message);
    assert_int_equal(pl_state_size(r->engine, seq, first, n, &size, NULL),
                     PL_OK);
    assert_int_equal(size, s.n);
    return s;
}

static void restore(const struct engine_run *r, int seq, struct state s,
                    unsigned flags)
{
    pl_err err = {0};

    if (pl_state_restore_memory(r->engine, seq, s.data, s.n, flags, &err))
        fail_msg("restoring into %d: %s", seq, err.message);
}

/* Fails the case unless saving sequence `seq` gives the bytes of `want`. */
static void holds(const struct engine_run *r, int seq, struct state want)
{
    struct state got = save(r, seq, 0, -1);

    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.data, want.data, got.n);
    free(got.data);
}

/* Fails unless the restore is rejected with this status and a message with all
 * of the words. */
static void refuses(const struct engine_run *r, int seq, struct state s,
                    unsigned flags, pl_status want, const char *const words[3])
{
    struct state before = save(r, -1, 0, -1);
    pl_err err = {0};
    pl_status got =
        pl_state_restore_memory(r->engine, seq, s.data, s.n, flags, &err);

    if (got != want || err.status != want)
        fail_msg("%s where %s was expected: %s", pl_status_name(got),
                 pl_status_name(want), err.message);
    for (int i = 0; i < 3 && words[i]; i++)
        if (!strstr(err.message, words[i]))
            fail_msg("no '%s' in: %s", words[i], err.message);
    holds(r, -1, before);
    free(before.data);
}

struct config {
    const char *devices;
    int64_t n_ubatch, n_ctx;
    uint64_t sim_seed;
    /* split mode of several devices; PL_SPLIT_AUTO here means all devices in
     * one group */
    pl_split_mode mode;
    int hybrid_size;
    bool host_cache;
};

static void open_as(struct engine_run *r, const char *model,
                    const struct config *c, int n_ranks, pl_format f)
{
    pl_options o = engine_run_options();

    o.devices = c->devices;
    o.n_ranks = n_ranks;
    o.n_ubatch = c->n_ubatch;
    o.n_ctx = c->n_ctx;
    o.sim_seed = c->sim_seed;
    o.split_mode = c->mode ? c->mode : PL_SPLIT_TENSOR;
    o.hybrid_size = c->hybrid_size;
    o.host_cache = c->host_cache;
    o.cache_set = true;
    o.cache_k = o.cache_v = f;
    engine_run_open(r, test_ref(model), model, &o);
}

static const struct config plain = {
    .devices = "cpu", .n_ubatch = 64, .n_ctx = 1024};

static float *logits_of(const struct engine_run *r, int64_t n)
{
    float *p = test_need(1, (size_t)(n * r->n_vocab) * sizeof *p);

    return p;
}

/* Decodes N_MORE tokens after those of `seq`, which must give `want`. */
static void goes_on(const struct engine_run *r, int seq, const int32_t *token,
                    const float *want)
{
    float *got = logits_of(r, N_MORE);

    engine_run_decode(r, seq, N_MORE, token, got);
    assert_memory_equal(got, want, (size_t)(N_MORE * r->n_vocab) * sizeof *got);
    free(got);
}

/* ---- the same bits ------------------------------------------------------- */

TEST(state_goes_on_with_the_same_bits)
{
    static const struct config configs[] = {
        {.devices = "cpu", .n_ubatch = 64, .n_ctx = 512},
        {.devices = "cpu*2", .n_ubatch = 24, .n_ctx = 1024},
        {.devices = "sim*3", .n_ubatch = 7, .n_ctx = 320, .sim_seed = 5},
        {.devices = "cpu,sim", .n_ubatch = 150, .n_ctx = 448, .sim_seed = 9},
        {.devices = "cpu*2",
         .n_ubatch = 64,
         .n_ctx = 512,
         .mode = PL_SPLIT_LAYER},
        {.devices = "sim*4",
         .n_ubatch = 30,
         .n_ctx = 512,
         .sim_seed = 3,
         .mode = PL_SPLIT_HYBRID,
         .hybrid_size = 2},
        {.devices = "sim*2",
         .n_ubatch = 64,
         .n_ctx = 512,
         .sim_seed = 1,
         .mode = PL_SPLIT_TENSOR,
         .host_cache = true},
    };
    enum { N = sizeof configs / sizeof configs[0] };
    uint64_t seed = test_seed();
    const int n_model = test_long() ? N_MODEL : N_MODEL - 1;

    for (int k = 0; k < n_model * 3; k++) {
        int n_ranks = 1 + k / n_model;
        /* Only the second model's heads are wide enough for blocks. */
        pl_format f = k % n_model == 1 ? cache_block(n_ranks + 1)
                                       : cache_formats[(k + n_ranks) % 3];
        int32_t token[MAX_TOKEN], other[MAX_TOKEN];
        struct state s[N];
        float *want = NULL;
        struct engine_run r;

        for (int i = 0; i < N; i++) {
            open_as(&r, models[k % n_model], &configs[i], n_ranks, f);
            if (i == 0) {
                engine_run_tokens(&r, &seed, MAX_TOKEN, token);
                engine_run_tokens(&r, &seed, MAX_TOKEN, other);
                want = logits_of(&r, N_MORE);
            }
            /* so that sequence 0 does not begin in the first page */
            engine_run_decode(&r, 1, 3, other, NULL);
            engine_run_decode(&r, 0, N_PAST, token, NULL);
            s[i] = save(&r, 0, 0, -1);
            if (i == 0)
                engine_run_decode(&r, 0, N_MORE, token + N_PAST, want);
            else /* the state does not depend on the engine that saved it */
                assert_memory_equal(s[i].data, s[0].data, s[0].n);
            engine_run_close(&r);
        }
        for (int i = 0; i < N; i++) {
            open_as(&r, models[k % n_model], &configs[i], n_ranks, f);
            engine_run_decode(&r, 3, 70, other, NULL);
            for (int j = 0; j < N; j++) {
                restore(&r, 2, s[j], 0);
                assert_int_equal(pl_seq_length(r.engine, 2), N_PAST);
                goes_on(&r, 2, token + N_PAST, want);
            }
            engine_run_close(&r);
        }
        for (int i = 0; i < N; i++)
            free(s[i].data);
        free(want);
    }
}

/* A sequence is saved and restored while another one continues. */
TEST(state_leaves_other_sequences_alone)
{
    uint64_t seed = test_seed();
    int32_t a[MAX_TOKEN], b[MAX_TOKEN];
    struct engine_run r;
    struct state s;
    float *want_a, *want_b;

    open_as(&r, models[0], &plain, 2, PL_F16);
    engine_run_tokens(&r, &seed, MAX_TOKEN, a);
    engine_run_tokens(&r, &seed, MAX_TOKEN, b);
    want_a = logits_of(&r, N_MORE);
    want_b = logits_of(&r, N_MORE);
    engine_run_decode(&r, 3, N_PAST + N_MORE, b, NULL);
    pl_seq_trim(r.engine, 3, N_PAST, NULL, NULL);
    engine_run_decode(&r, 3, N_MORE, b + N_PAST, want_b);
    pl_seq_trim(r.engine, 3, 0, NULL, NULL);
    for (int i = 0; i < 5; i++) { /* the two sequences are decoded in turns */
        engine_run_decode(&r, 0, 30, a + 30 * i, NULL);
        engine_run_decode(&r, 1, 30, b + 30 * i, NULL);
    }
    s = save(&r, 0, 0, -1);
    engine_run_decode(&r, 0, N_MORE, a + N_PAST, want_a);
    /* the copy diverges from its source */
    engine_run_decode(&r, 0, 100, b, NULL);
    restore(&r, 0, s, 0);
    goes_on(&r, 1, b + N_PAST, want_b);
    goes_on(&r, 0, a + N_PAST, want_a);
    restore(&r, 2, s, 0);
    goes_on(&r, 2, a + N_PAST, want_a);
    free(s.data);
    free(want_a);
    free(want_b);
    engine_run_close(&r);
}

/* Sequences that share pages fit back into the pages they had. Sequences that
 * the state does not name are empty afterwards. */
TEST(state_of_the_whole_cache_keeps_what_is_shared)
{
    static const struct config tight = {/* a cache of 5 pages */
                                        .devices = "cpu*2",
                                        .n_ubatch = 64,
                                        .n_ctx = 320};
    uint64_t seed = test_seed();
    int32_t a[MAX_TOKEN], b[MAX_TOKEN];
    struct engine_run r;
    struct state s, again;
    float *want[3];

    open_as(&r, models[0], &tight, 2, PL_F16);
    engine_run_tokens(&r, &seed, MAX_TOKEN, a);
    engine_run_tokens(&r, &seed, MAX_TOKEN, b);
    /* takes 3 pages, of which 2 are full */
    engine_run_decode(&r, 1, N_PAST, a, NULL);
    assert_int_equal(pl_seq_copy(r.engine, 3, 1, NULL), PL_OK);
    assert_int_equal(pl_seq_copy(r.engine, 0, 3, NULL), PL_OK);
    pl_seq_trim(r.engine, 3, 128, NULL, NULL);
    engine_run_decode(&r, 3, 10, b, NULL);
    s = save(&r, -1, 0, -1);
    for (int i = 0; i < 3; i++)
        want[i] = logits_of(&r, N_MORE);
    engine_run_decode(&r, 0, N_MORE, b, want[0]);
    engine_run_decode(&r, 1, N_MORE, a + N_PAST, want[1]);
    engine_run_decode(&r, 3, N_MORE, b + 10, want[2]);
    assert_int_equal(r.engine->kv.pool[0].n_free, 0);
    pl_seq_trim(r.engine, 0, 0, NULL, NULL);
    pl_seq_trim(r.engine, 1, 0, NULL, NULL);
    engine_run_decode(&r, 2, 50, b, NULL);
    /* there are too few pages for the old and the new contents at once */
    restore(&r, -1, s, 0);
    assert_int_equal(pl_seq_length(r.engine, 2), 0);
    assert_int_equal(pl_seq_length(r.engine, 3), 138);
    assert_int_equal(r.engine->kv.pool[0].n_free, 0);
    again = save(&r, -1, 0, -1);
    assert_int_equal(again.n, s.n);
    assert_memory_equal(again.data, s.data, s.n);
    goes_on(&r, 3, b + 10, want[2]);
    goes_on(&r, 0, b, want[0]);
    goes_on(&r, 1, a + N_PAST, want[1]);
    for (int i = 0; i < 3; i++)
        free(want[i]);
    free(s.data);
    free(again.data);
    engine_run_close(&r);
}

/* A sequence copied as whole pages owns nothing but its state. */
TEST(state_of_a_copy_has_its_state)
{
    uint64_t seed = test_seed();
    int32_t token[MAX_TOKEN];
    struct engine_run r;
    struct state s;
    float *want;

    open_as(&r, models[3], &plain, 2, PL_F16);
    engine_run_tokens(&r, &seed, MAX_TOKEN, token);
    want = logits_of(&r, N_MORE);
    engine_run_decode(&r, 0, 2 * PAGE_TOKENS, token, NULL);
    assert_int_equal(pl_seq_copy(r.engine, 1, 0, NULL), PL_OK);
    s = save(&r, -1, 0, -1);
    engine_run_decode(&r, 0, N_MORE, token + 2 * PAGE_TOKENS, want);
    restore(&r, -1, s, 0);
    for (int i = 0; i < 2; i++)
        goes_on(&r, i, token + 2 * PAGE_TOKENS, want);
    free(s.data);
    free(want);
    engine_run_close(&r);
}

/* A sequence is saved in two parts, cut at any position, and restored from
 * them. */
TEST(state_of_a_range_goes_to_the_end)
{
    static const int64_t cuts[] = {0, 1, 63, 64, 65, 100, 128, 149, 150};
    uint64_t seed = test_seed();
    int32_t token[MAX_TOKEN];
    struct engine_run r;
    struct state all;
    float *want;

    open_as(&r, models[1], &plain, 3, PL_F16);
    engine_run_tokens(&r, &seed, MAX_TOKEN, token);
    want = logits_of(&r, N_MORE);
    engine_run_decode(&r, 0, N_PAST, token, NULL);
    all = save(&r, 0, 0, -1);
    engine_run_decode(&r, 0, N_MORE, token + N_PAST, want);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct state a = save(&r, 0, 0, cuts[i]);
        struct state b = save(&r, 0, cuts[i], N_PAST - cuts[i]);
        struct state back;
        static const char *const words[3] = {"must follow", "sequence 1"};

        restore(&r, 1, a, 0);
        assert_int_equal(pl_seq_length(r.engine, 1), cuts[i]);
        /* a copy shares the page into which the second part is written */
        if (cuts[i] > 0) {
            assert_int_equal(pl_seq_copy(r.engine, 2, 1, NULL), PL_OK);
            pl_seq_trim(r.engine, 2, cuts[i] - 1, NULL, NULL);
        }
        restore(&r, 1, b, 0);
        if (cuts[i] > 0 && cuts[i] < N_PAST)
            refuses(&r, 1, b, 0, PL_BAD_ARGUMENT, words);
        goes_on(&r, 1, token + N_PAST, want);
        pl_seq_trim(r.engine, 1, N_PAST, NULL, NULL);
        pl_seq_copy(r.engine, 0, 1, NULL);
        back = save(&r, 0, 0, -1);
        assert_memory_equal(back.data, all.data, all.n);
        free(a.data);
        free(b.data);
        free(back.data);
        engine_run_decode(&r, 0, N_MORE, token + N_PAST, NULL);
    }
    free(all.data);
    free(want);
    engine_run_close(&r);
}

/* ---- conversion ---------------------------------------------------------- */

static void rows_of(const struct engine_run *r, int cache, int64_t n,
                    struct state *out)
{
    struct exec_caches c;
    size_t row;

    assert_int_equal(exec_caches_open(&c, r->engine->exec, -1, NULL), PL_OK);
    row = (size_t)c.cache[cache].n_head * c.cache[cache].row_bytes;
    out->n = (size_t)n * row;
    out->data = test_need(1, out->n);
    for (int64_t i = 0; i < n; i += PAGE_TOKENS)
        assert_int_equal(
            exec_cache_read(&c, cache,
                            r->engine->kv.pool[0].table[i / PAGE_TOKENS], 0,
                            (int)(n - i < PAGE_TOKENS ? n - i : PAGE_TOKENS),
                            (char *)out->data + (size_t)i * row, NULL),
            PL_OK);
    exec_caches_close(&c);
}

/* The first layer's keys and values do not depend on the cache's format. Those
 * of an F32 cache, converted, equal those written in that format. */
TEST(state_converts_as_the_cache_would)
{
    static const pl_format formats[] = {PL_F16,  PL_BF16,   PL_Q8_0,
                                        PL_Q4_0, PL_IQ4_NL, PL_Q5_1};
    static const char *const words[3] = {"F32/F32", "--convert"};
    const char *model = "llama-wide-q4_k_m.gguf";
    uint64_t seed = test_seed();
    int32_t token[MAX_TOKEN];
    struct engine_run r;
    struct state wide, back;

    open_as(&r, model, &plain, 2, PL_F32);
    engine_run_tokens(&r, &seed, MAX_TOKEN, token);
    engine_run_decode(&r, 0, N_PAST, token, NULL);
    wide = save(&r, 0, 0, -1);
    engine_run_close(&r);
    for (int k = 0; k < (int)(sizeof formats / sizeof *formats); k++) {
        struct state want[2], got[2];

        open_as(&r, model, &plain, 2, formats[k]);
        engine_run_decode(&r, 0, N_PAST, token, NULL);
        for (int i = 0; i < 2; i++)
            rows_of(&r, i, N_PAST, &want[i]);
        refuses(&r, 0, wide, 0, PL_BAD_ARGUMENT, words);
        pl_seq_trim(r.engine, 0, 0, NULL, NULL);
        engine_run_decode(&r, 0, 3, token + N_PAST, NULL);
        restore(&r, 0, wide, PL_STATE_CONVERT);
        for (int i = 0; i < 2; i++) {
            rows_of(&r, i, N_PAST, &got[i]);
            assert_memory_equal(want[i].data, got[i].data, want[i].n);
            free(want[i].data);
            free(got[i].data);
        }
        engine_run_decode(&r, 0, N_MORE, token + N_PAST, NULL);
        engine_run_close(&r);
    }
    /* F32 holds all values of narrow formats: a state converted to F32 and back
     * is unchanged */
    open_as(&r, model, &plain, 2, PL_F16);
    engine_run_decode(&r, 0, N_PAST, token, NULL);
    free(wide.data);
    wide = save(&r, 0, 0, -1);
    engine_run_close(&r);
    open_as(&r, model, &plain, 2, PL_F32);
    restore(&r, 0, wide, PL_STATE_CONVERT);
    back = save(&r, 0, 0, -1);
    engine_run_close(&r);
    open_as(&r, model, &plain, 2, PL_F16);
    restore(&r, 0, back, PL_STATE_CONVERT);
    free(back.data);
    back = save(&r, 0, 0, -1);
    engine_run_close(&r);
    assert_int_equal(back.n, wide.n);
    assert_memory_equal(back.data, wide.data, wide.n);
    free(back.data);
    free(wide.data);
}

/* ---- rejections ---------------------------------------------------------- */

TEST(state_of_another_model_is_refused)
{
    static const char *const words[3] = {"another model", "qwen2", "qwen3moe"};
    static const char *const same[3] = {"another model", "llama"};
    static const char *const llama[] = {"llama-q-q4_0.gguf",
                                        "llama-q-q8_0.gguf"};
    int32_t token[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    struct engine_run r;
    struct state s;

    open_as(&r, models[0], &plain, 1, PL_F16);
    engine_run_decode(&r, 0, 10, token, NULL);
    s = save(&r, 0, 0, -1);
    engine_run_close(&r);
    open_as(&r, models[1], &plain, 1, PL_F16);
    engine_run_decode(&r, 0, 7, token, NULL);
    refuses(&r, 0, s, 0, PL_BAD_ARGUMENT, words);
    engine_run_close(&r);
    free(s.data);
    /* a model with the same shapes and other weights */
    open_as(&r, llama[0], &plain, 1, PL_F16);
    engine_run_decode(&r, 0, 10, token, NULL);
    s = save(&r, 0, 0, -1);
    engine_run_close(&r);
    open_as(&r, llama[1], &plain, 1, PL_F16);
    refuses(&r, 0, s, 0, PL_BAD_ARGUMENT, same);
    engine_run_close(&r);
    free(s.data);
}

/* A state put aside is restored without a read of the weights. Other engines
 * reject it, and accept a permanent state as before. */
TEST(state_put_aside_is_for_its_engine_alone)
{
    static const char *const words[3] = {"another engine", "llama",
                                         "pl_state_save"};
    static const char *const same[3] = {"another model", "llama"};
    int32_t token[70] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    struct engine_run r[2], other;
    struct state aside, lasts;
    pl_err err = {0};

    for (int i = 0; i < 2; i++)
        open_as(&r[i], "llama-q-q4_0.gguf", &plain, 1, PL_F16);
    open_as(&other, "llama-q-q8_0.gguf", &plain, 1, PL_F16);
    engine_run_decode(&r[0], 0, 70, token, NULL);
    TEST_OK(pl_state_swap_out(r[0].engine, 0, &aside.data, &aside.n, &err),
            err);
    restore(&r[0], 1, aside, 0);
    assert_false(r[0].engine->has_weights);
    lasts = save(&r[0], 1, 0, -1);
    assert_true(r[0].engine->has_weights);
    pl_seq_trim(r[0].engine, 1, 0, NULL, NULL);
    restore(&r[0], 1, aside, 0);
    holds(&r[0], 1, lasts);
    assert_int_equal(
        pl_state_restore_memory(r[1].engine, 0, aside.data, aside.n, 0, &err),
        PL_BAD_ARGUMENT);
    assert_false(r[1].engine->has_weights);
    refuses(&r[1], 0, aside, 0, PL_BAD_ARGUMENT, words);
    restore(&r[1], 0, lasts, 0);
    refuses(&other, 0, lasts, 0, PL_BAD_ARGUMENT, same);
    for (int i = 0; i < 2; i++)
        engine_run_close(&r[i]);
    engine_run_close(&other);
    free(aside.data);
    free(lasts.data);
}

/* States of older versions, whose fingerprints mean something else, and of
 * newer ones. */
TEST(state_of_another_version_is_refused_with_a_remedy)
{
    static const char *const words[][3] = {
        {"version 1;", "compute it again"},
        {"version 2;", "compute it again"},
        {"version 3;", "compute it again"},
        {NULL},
        {"version 5;", "newer", "that saved"},
    };
    int32_t token[10] = {1, 2, 3};
    struct engine_run r;
    struct state s;

    open_as(&r, small, &plain, 1, PL_F16);
    engine_run_decode(&r, 0, 10, token, NULL);
    s = save(&r, 0, 0, -1);
    assert_int_equal(((const unsigned char *)s.data)[8], 4);
    for (int i = 0; i < 5; i++) {
        ((unsigned char *)s.data)[8] = (unsigned char)(i + 1);
        if (i != 3)
            refuses(&r, 0, s, 0, PL_UNSUPPORTED, words[i]);
        else
            restore(&r, 0, s, 0);
    }
    engine_run_close(&r);
    free(s.data);
}

/* Writes the file again with the boolean under `key` inverted. */
static const char *contradicted(const char *file, const char *key)
{
    enum { TYPE_BYTES = 4 };
    const char *path = test_temp("contradicted.gguf");
    size_t n, len = strlen(key);
    char *data = test_read(test_ref_need(file), &n), *at;
    FILE *out = fopen(path, "wb");

    at = memmem(data, n, key, len);
    assert_non_null(at);
    at += len + TYPE_BYTES;
    assert_in_range(*at, 0, 1);
    *at = !*at;
    assert_non_null(out);
    assert_int_equal(fwrite(data, 1, n, out), n);
    assert_int_equal(fclose(out), 0);
    free(data);
    return path;
}

/* The same shapes and weights, but one key has another value. */
TEST(state_of_a_model_with_other_keys_is_refused)
{
    static const char *const file = "deepseek2-mla-f32.gguf";
    static const char *const same[3] = {"another model", "deepseek2"};
    const char *path = contradicted(file, "deepseek2.expert_weights_norm");
    int32_t token[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const pl_options o = engine_run_options();
    struct engine_run r;
    struct state s;

    engine_run_open(&r, test_ref(file), file, &o);
    engine_run_decode(&r, 0, 10, token, NULL);
    s = save(&r, 0, 0, -1);
    engine_run_close(&r);
    engine_run_open(&r, path, path, &o);
    refuses(&r, 0, s, 0, PL_BAD_ARGUMENT, same);
    engine_run_close(&r);
    free(s.data);
}

static int64_t read_once(void *user, void *data, size_t n)
{
    struct state *s = user;

    n = n < s->n ? n : s->n;
    memcpy(data, s->data, n);
    s->data = (char *)s->data + n;
    s->n -= n;
    return (int64_t)n;
}

static bool take_none(void *user, const void *data, size_t n)
{
    (void)user;
    (void)data;
    return n == 0;
}

TEST(state_that_does_not_fit_is_refused)
{
    static const struct config two = {
        .devices = "cpu", .n_ubatch = 64, .n_ctx = 128};
    static const char *const ctx[3] = {"150", "128", "-c 150"};
    static const char *const pages[3] = {"needs 2 pages", "1 of 2 are free",
                                         "replaces 0"};
    static const char *const ids[3] = {"sequence 3", "plan for 4"};
    static const char *const many[3] = {"2 sequences", "sequence 1"};
    static const char *const none[3] = {"sequence 9"};
    uint64_t seed = test_seed();
    int32_t token[MAX_TOKEN];
    struct engine_run r;
    struct state all, one, range, once;
    pl_options o = engine_run_options();
    float *want;
    pl_err err;

    open_as(&r, small, &plain, 1, PL_F16);
    engine_run_tokens(&r, &seed, MAX_TOKEN, token);
    want = logits_of(&r, N_MORE);
    engine_run_decode(&r, 3, N_PAST, token, NULL);
    engine_run_decode(&r, 0, 10, token, NULL);
    all = save(&r, -1, 0, -1);
    one = save(&r, 3, 0, -1);
    range = save(&r, 3, 0, 100);
    pl_seq_trim(r.engine, 3, 100, NULL, NULL);
    engine_run_decode(&r, 3, N_MORE, token + 100, want);
    assert_int_equal(pl_state_save(r.engine, 3, 121, -1, take_none, NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "it has 120"));
    assert_int_equal(pl_state_save(r.engine, 3, 100, 21, take_none, NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_state_save(r.engine, 3, -1, 5, take_none, NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(
        pl_state_save(r.engine, 3, INT64_MAX, INT64_MAX, take_none, NULL, &err),
        PL_BAD_ARGUMENT);
    assert_int_equal(
        pl_state_save(r.engine, 3, INT64_MIN, INT64_MIN, take_none, NULL, &err),
        PL_BAD_ARGUMENT);
    assert_non_null(strstr(
        err.message,
        "-1 positions (-1: all) from -9223372036854775808 of sequence 3"));
    assert_int_equal(pl_state_save(r.engine, -1, 1, -1, take_none, NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_state_save(r.engine, -2, 0, -1, take_none, NULL, &err),
                     PL_BAD_ARGUMENT);
    refuses(&r, 1, all, 0, PL_BAD_ARGUMENT, many);
    refuses(&r, 9, one, 0, PL_BAD_ARGUMENT, none);
    engine_run_close(&r);

    o.n_seq = 3;
    engine_run_open(&r, test_ref(small), small, &o);
    refuses(&r, -1, all, 0, PL_FULL, ids);
    engine_run_close(&r);

    open_as(&r, small, &two, 1, PL_F16); /* a cache of two pages */
    engine_run_decode(&r, 0, 40, token, NULL);
    refuses(&r, 2, one, 0, PL_FULL, ctx);
    refuses(&r, 2, range, 0, PL_FULL, pages);
    engine_run_decode(&r, 0, 60, token, NULL);
    /* the state fits only in place of the old contents, so it is not taken from
     * a source that can be read once only */
    once = range;
    assert_int_equal(pl_state_restore(r.engine, 0, read_once, &once, 0, &err),
                     PL_FULL);
    assert_non_null(strstr(err.message, "restore it from a file"));
    assert_int_equal(pl_seq_length(r.engine, 0), 100);
    restore(&r, 0, range, 0);
    goes_on(&r, 0, token + 100, want);
    pl_seq_trim(r.engine, 0, 0, NULL, NULL);
    once = range;
    TEST_OK(pl_state_restore(r.engine, 0, read_once, &once, 0, &err), err);
    assert_int_equal(once.n, 0);
    goes_on(&r, 0, token + 100, want);
    engine_run_close(&r);
    free(all.data);
    free(one.data);
    free(range.data);
    free(want);
}

static void note(void *user, pl_log_level level, const char *text)
{
    snprintf(user, 300, "%s%s", level == PL_LOG_WARN ? "warning: " : "", text);
}

TEST(state_of_other_ranks_is_taken_with_a_note)
{
    char said[300] = "";
    pl_options o = engine_run_options();
    uint64_t seed = test_seed();
    int32_t token[MAX_TOKEN];
    struct engine_run r;
    struct state s, back, want[2], got;

    open_as(&r, models[0], &plain, 1, PL_F16);
    engine_run_tokens(&r, &seed, MAX_TOKEN, token);
    engine_run_decode(&r, 0, N_PAST, token, NULL);
    s = save(&r, 0, 0, -1);
    for (int i = 0; i < 2; i++)
        rows_of(&r, i, N_PAST, &want[i]);
    engine_run_close(&r);
    o.log = note;
    o.log_user = said;
    o.n_ranks = 3;
    o.n_ctx = 1024;
    engine_run_open(&r, test_ref(models[0]), models[0], &o);
    said[0] = 0;
    restore(&r, 0, s, 0);
    assert_non_null(strstr(said, "warning: "));
    assert_non_null(strstr(said, "1 rank, this engine has 3"));
    /* the restored tokens keep the bits of the engine that saved them */
    for (int i = 0; i < 2; i++) {
        rows_of(&r, i, N_PAST, &got);
        assert_memory_equal(got.data, want[i].data, got.n);
        free(got.data);
        free(want[i].data);
    }
    back = save(&r, 0, 0, -1);
    said[0] = 0;
    restore(&r, 1, back, 0);
    assert_string_equal(said, "");
    engine_run_decode(&r, 1, N_MORE, token, NULL);
    engine_run_close(&r);
    free(s.data);
    free(back.data);
}

/* ---- damage -------------------------------------------------------------- */

/* A state may be cut off anywhere and have changed bytes. It is rejected and
 * nothing changes, with both sets of pages at once or in place. */
TEST(state_damage_changes_nothing)
{
    static const struct config tight = {
        .devices = "cpu", .n_ubatch = 64, .n_ctx = 128};
    uint64_t seed = test_seed();
    int32_t token[MAX_TOKEN];
    struct engine_run r[2];
    struct state s, before[2];
    char *copy;

    open_as(&r[0], small, &plain, 1, PL_Q8_0);
    open_as(&r[1], small, &tight, 1, PL_Q8_0);
    engine_run_tokens(&r[0], &seed, MAX_TOKEN, token);
    engine_run_decode(&r[0], 0, 66, token, NULL);
    s = save(&r[0], 0, 0, -1);
    for (int k = 0; k < 2; k++) {
        pl_seq_trim(r[k].engine, 0, 0, NULL, NULL);
        engine_run_decode(&r[k], 0, 100, token + 100, NULL);
        before[k] = save(&r[k], -1, 0, -1);
    }
    copy = test_need(1, s.n + 1);
    for (size_t i = 0; i < s.n + 2000; i++) {
        int k = (int)(i % 2);
        size_t n = i <= s.n ? i : s.n;
        char *exact = NULL;
        pl_err err = {0};
        pl_status got;

        if (i == s.n)
            continue;
        if (i > s.n) {
            memcpy(copy, s.data, s.n);
            copy[test_below(&seed, (int64_t)s.n)] ^=
                (char)(1 + test_below(&seed, 255));
        } else {
            /* a sanitizer reports a read beyond these bytes */
            exact = test_need(1, n + 1);
            memcpy(exact, s.data, n);
        }
        got = pl_state_restore_memory(r[k].engine, 0, exact ? exact : copy, n,
                                      0, &err);
        free(exact);
        if (got == PL_OK || !err.message[0])
            fail_msg("damage %zu was not noticed", i);
        if (i % 64 < 2 || i + 100 > s.n + 2000) {
            holds(&r[k], -1, before[k]);
        }
    }
    memcpy(copy, s.data, s.n);
    copy[s.n] = 0; /* one byte follows the complete state */
    for (int k = 0; k < 2; k++) {
        assert_int_equal(
            pl_state_restore_memory(r[k].engine, 0, copy, s.n + 1, 0, NULL),
            PL_BAD_FILE);
        holds(&r[k], -1, before[k]);
        restore(&r[k], 0, s, 0);
        holds(&r[k], 0, s);
        free(before[k].data);
        engine_run_close(&r[k]);
    }
    free(copy);
    free(s.data);
}

TEST(state_out_of_memory_changes_nothing)
{
    static const struct config tight = {
        .devices = "sim", .n_ubatch = 64, .n_ctx = 128};
    uint64_t seed = test_seed();
    int32_t token[MAX_TOKEN];
    struct engine_run r;
    struct state s, wide, before;
    int64_t n_fail = 0;

    open_as(&r, small, &tight, 2, PL_F32);
    engine_run_tokens(&r, &seed, MAX_TOKEN, token);
    engine_run_decode(&r, 0, 66, token, NULL);
    wide = save(&r, 0, 0, -1);
    engine_run_close(&r);
    open_as(&r, small, &tight, 2, PL_F16);
    engine_run_decode(&r, 0, 66, token, NULL);
    before = save(&r, -1, 0, -1);
    for (int what = 0; what < 3; what++) {
        pl_status got = PL_NO_MEMORY;

        for (int64_t n = 1; got != PL_OK; n++) {
            s = (struct state){0};
            alloc_stat_reset();
            alloc_fail_at(n);
            got = what == 0
                      ? pl_state_save_memory(r.engine, 0, 0, -1, &s.data, &s.n,
                                             NULL)
                      : pl_state_restore_memory(
                            r.engine, 0, what == 1 ? before.data : wide.data,
                            what == 1 ? before.n : wide.n, PL_STATE_CONVERT,
                            NULL);
            if (!alloc_fail_off())
                assert_int_equal(got, PL_OK);
            free(s.data);
            assert_int_equal(alloc_stat_get().live_bytes, 0);
            if (got == PL_OK)
                break;
            n_fail++;
            assert_int_equal(got, PL_NO_MEMORY);
            /* a restore in place may run out of memory in its second half,
             * after the old contents are gone */
            if (pl_seq_length(r.engine, 0) == 0)
                continue;
            holds(&r, -1, before);
        }
    }
    assert_true(n_fail > 10);
    free(before.data);
    free(wide.data);
    engine_run_close(&r);
}

/* ---- files --------------------------------------------------------------- */

static int files_beside(const char *path)
{
    char dir[4096];
    struct dirent *e;
    DIR *d;
    int n = 0;

    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d)) != NULL)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static struct state contents(const char *path)
{
    struct state s;

    s.data = test_read(path, &s.n);
    return s;
}

TEST(state_file_is_whole_or_as_it_was)
{
    const char *path = test_temp("saved.state"), *link = test_temp("link");
    const char *missing = test_temp("absent/saved.state");
    uint64_t seed = test_seed();
    int32_t token[MAX_TOKEN];
    struct rlimit old, low;
    struct stat st;
    mode_t mask;
    struct engine_run r;
    struct state first, second, now;
    float *want;
    pl_err err;
    void *note;
    size_t bytes;
    int n;

    open_as(&r, small, &plain, 2, PL_F16);
    engine_run_tokens(&r, &seed, MAX_TOKEN, token);
    want = logits_of(&r, N_MORE);
    engine_run_decode(&r, 0, 100, token, NULL);
    first = save(&r, 0, 0, -1);
    assert_int_equal(
        pl_state_save_file(r.engine, 0, 0, -1, NULL, 0, path, NULL), PL_OK);
    n = files_beside(path);
    now = contents(path);
    assert_int_equal(now.n, first.n);
    assert_memory_equal(now.data, first.data, first.n);
    free(now.data);

    engine_run_decode(&r, 0, 50, token + 100, NULL);
    second = save(&r, 0, 0, -1);
    /* so that writes beyond a limit fail as on a full disk */
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    low = old;
    low.rlim_cur = second.n / 2;
    setrlimit(RLIMIT_FSIZE, &low);
    assert_int_equal(
        pl_state_save_file(r.engine, 0, 0, -1, NULL, 0, path, &err), PL_IO);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(files_beside(path), n);
    now = contents(path);
    assert_int_equal(now.n, first.n);
    assert_memory_equal(now.data, first.data, first.n);
    free(now.data);

    /* a link's target is replaced, the link stays; the permissions stay */
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(
        pl_state_save_file(r.engine, 0, 0, -1, NULL, 0, link, NULL), PL_OK);
    assert_int_equal(files_beside(path), n + 1);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    now = contents(path);
    assert_int_equal(now.n, second.n);
    assert_memory_equal(now.data, second.data, second.n);
    free(now.data);
    /* the replaced file keeps its permissions */
    assert_int_equal(chmod(path, 0640), 0);
    mask = umask(077);
    assert_int_equal(
        pl_state_save_file(r.engine, 0, 0, -1, NULL, 0, path, NULL), PL_OK);
    umask(mask);
    assert_int_equal(lstat(path, &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0640);
    assert_int_equal(
        pl_state_restore_file(r.engine, 1, path, 0, &note, &bytes, NULL),
        PL_OK);
    assert_int_equal(bytes, 0);
    assert_non_null(note);
    free(note);

    assert_int_equal(
        pl_state_save_file(r.engine, 0, 0, -1, "mine", 4, path, NULL), PL_OK);
    engine_run_decode(&r, 0, N_MORE, token + 150, want);
    assert_int_equal(
        pl_state_restore_file(r.engine, 1, link, 0, &note, &bytes, NULL),
        PL_OK);
    assert_int_equal(bytes, 4);
    assert_memory_equal(note, "mine", 4);
    free(note);
    goes_on(&r, 1, token + 150, want);

    assert_int_equal(
        pl_state_save_file(r.engine, 0, 0, -1, NULL, 0, missing, &err),
        PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "absent"));
    assert_int_equal(
        pl_state_save_file(r.engine, 0, 0, -1, NULL, 0, "/dev/null", &err),
        PL_BAD_ARGUMENT);
    assert_int_equal(pl_state_save_file(r.engine, 0, 0, -1, path,
                                        (64u << 20) + 1, path, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "a note of 67108865 bytes"));
    assert_int_equal(
        pl_state_restore_file(r.engine, 0, missing, 0, NULL, NULL, &err),
        PL_NOT_FOUND);
    assert_int_equal(pl_state_restore_file(r.engine, 0, test_ref(small), 0,
                                           NULL, NULL, &err),
                     PL_BAD_FILE);
    assert_non_null(strstr(err.message, small));
    assert_int_equal(
        pl_state_restore_file(r.engine, 0, "/", 0, NULL, NULL, &err), PL_IO);
    assert_int_equal(pl_seq_length(r.engine, 0), 150 + N_MORE);
    free(first.data);
    free(second.data);
    free(want);
    engine_run_close(&r);
}

/* A state is not saved over the model's file, which the engine still reads. */
TEST(state_is_never_saved_over_its_model)
{
    const char *path[] = {test_temp("own.gguf"), test_temp("own-link"),
                          test_temp("own-hard"), test_temp("")};
    pl_options o = engine_run_options();
    struct state before, now;
    struct engine_run r;
    int32_t token[8] = {0};
    char other[512];
    FILE *f;
    pl_err err;

    before.data = test_read(test_ref(small), &before.n);
    f = fopen(path[0], "w");
    assert_true(f && fwrite(before.data, 1, before.n, f) == before.n &&
                fclose(f) == 0);
    assert_int_equal(symlink(path[0], path[1]), 0);
    assert_int_equal(link(path[0], path[2]), 0);
    snprintf(other, sizeof other, "%s/./own.gguf", path[3]);
    path[3] = other;
    engine_run_open(&r, path[0], "a model of its own", &o);
    engine_run_decode(&r, 0, 8, token, NULL);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(
            pl_state_save_file(r.engine, 0, 0, -1, NULL, 0, path[i], &err),
            PL_BAD_ARGUMENT);
        assert_non_null(strstr(err.message, "belongs to the model"));
        assert_non_null(strstr(err.message, path[i]));
    }
    now = contents(path[0]);
    assert_int_equal(now.n, before.n);
    assert_memory_equal(now.data, before.data, before.n);
    free(now.data);
    free(before.data);
    engine_run_close(&r);
}

TEST(state_inspected_says_whose_it_is)
{
    const char *path = test_temp("inspected.state");
    struct test_text text = {0};
    int32_t token[70] = {1, 2, 3};
    struct engine_run r;
    struct state s;
    pl_err err;
    FILE *f;

    open_as(&r, small, &plain, 2, PL_F16);
    engine_run_decode(&r, 1, 70, token, NULL);
    pl_seq_copy(r.engine, 2, 1, NULL);
    assert_int_equal(
        pl_state_save_file(r.engine, -1, 0, -1, NULL, 0, path, NULL), PL_OK);
    engine_run_close(&r);
    assert_int_equal(pl_inspect(path, false, test_text_add, &text, NULL),
                     PL_OK);
    assert_non_null(strstr(text.s, "llama"));
    assert_non_null(strstr(text.s, ", 2 ranks"));
    assert_non_null(strstr(text.s, "2, the whole cache"));
    assert_non_null(
        strstr(text.s, "70 positions from 0, 64 shared with sequence 1"));
    text.n = 0;
    assert_int_equal(pl_inspect(path, true, test_text_add, &text, NULL), PL_OK);
    assert_non_null(strstr(text.s, "\"n_ranks\": 2"));
    s = contents(path);
    f = fopen(path, "wb");
    assert_true(f && fwrite(s.data, 1, s.n - 1, f) == s.n - 1 && !fclose(f));
    assert_int_equal(pl_inspect(path, true, test_text_add, &text, &err),
                     PL_BAD_FILE);
    assert_non_null(strstr(err.message, "truncated"));
    free(text.s);
    free(s.data);
}

/* States of sequences are shown apart from the bytes of each position. */
TEST(state_inspected_tells_of_states)
{
    const char *path = test_temp("recurrent.state");
    struct test_text text = {0};
    int32_t token[70] = {1, 2, 3};
    struct engine_run r;

    open_as(&r, models[3], &plain, 2, PL_F16);
    engine_run_decode(&r, 1, 70, token, NULL);
    assert_int_equal(pl_seq_copy(r.engine, 2, 1, NULL), PL_OK);
    assert_int_equal(
        pl_state_save_file(r.engine, -1, 0, -1, NULL, 0, path, NULL), PL_OK);
    engine_run_close(&r);
    assert_int_equal(pl_inspect(path, false, test_text_add, &text, NULL),
                     PL_OK);
    /* 3 of 4 layers: 3 inputs of 256 channels, 4 heads of 32 by 32 */
    assert_non_null(strstr(text.s, "states     57.0K bytes per sequence"));
    assert_non_null(
        strstr(text.s, "70 positions from 0, 64 shared with sequence 1"));
    text.n = 0;
    assert_int_equal(pl_inspect(path, true, test_text_add, &text, NULL), PL_OK);
    assert_non_null(strstr(text.s, "\"state\""));
    free(text.s);
}

/* ---- requests ------------------------------------------------------------ */

/* Drops all pasts: what is left is what an idle engine needs. */
static void forget(const struct engine_run *r, struct state *past, int n)
{
    for (int i = 0; i < 4; i++)
        pl_seq_trim(r->engine, i, 0, NULL, NULL);
    for (int i = 0; i < n; i++) {
        free(past[i].data);
        past[i] = save(r, i, 0, -1);
    }
}

/* Each of 500 requests restores its sequence, continues it, and saves it
 * again. */
TEST(state_500_requests_hold_no_memory)
{
    enum { N_REQUEST = 500, N_WARM = 20, N_CLIENT = 3 };
    static const struct config c = {
        .devices = "cpu*2", .n_ubatch = 64, .n_ctx = 512};
    uint64_t seed = test_seed();
    int32_t token[MAX_TOKEN];
    struct state past[N_CLIENT] = {0};
    struct engine_run r;
    const char *path = test_temp("request.state");

    open_as(&r, small, &c, 2, PL_F16);
    engine_run_tokens(&r, &seed, MAX_TOKEN, token);
    forget(&r, past, N_CLIENT);
    for (int k = 0; k < N_WARM + N_REQUEST; k++) {
        int i = (int)test_below(&seed, N_CLIENT);
        int seq = (int)test_below(&seed, 4);
        int64_t n = 1 + test_below(&seed, 9);

        if (k == N_WARM) {
            forget(&r, past, N_CLIENT);
            alloc_stat_reset();
        }
        if (k % 5 == 0) {
            FILE *f = fopen(path, "wb");

            assert_non_null(f);
            assert_int_equal(fwrite(past[i].data, 1, past[i].n, f), past[i].n);
            assert_int_equal(fclose(f), 0);
            assert_int_equal(
                pl_state_restore_file(r.engine, seq, path, 0, NULL, NULL, NULL),
                PL_OK);
        } else {
            restore(&r, seq, past[i], 0);
        }
        if (pl_seq_length(r.engine, seq) > 90)
            pl_seq_trim(r.engine, seq, 0, NULL, NULL);
        engine_run_decode(&r, seq, n, token + n, NULL);
        free(past[i].data);
        past[i] = save(&r, seq, 0, -1);
        if (k % 7 == 0)
            pl_seq_trim(r.engine, seq, 0, NULL, NULL);
    }
    forget(&r, past, N_CLIENT);
    assert_int_equal(alloc_stat_get().live_bytes, 0);
    assert_true(alloc_stat_get().peak_bytes < 4 << 20);
    assert_int_equal(r.engine->kv.pool[0].n_free, r.engine->kv.pool[0].n_page);
    for (int i = 0; i < N_CLIENT; i++)
        free(past[i].data);
    engine_run_close(&r);
}
