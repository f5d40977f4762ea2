/* Requests that begin with a cached prefix have the same bits as without it,
 * share the pages they should, and get errors for wrong calls.
 * test_engine_memories.c shows this for random calls. */
#include "engine/engine.h"
#include "lib/engine_run.h"

#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 200, N_MORE = 40, N = N_PROMPT + N_MORE };

static pl_options some_options(const char *devices)
{
    pl_options o = engine_run_options();

    o.devices = devices;
    o.n_ranks = 2;
    o.n_ctx = 1024;
    o.prefix_cache = true;
    return o;
}

static int64_t share(const struct engine_run *r, int seq, const int32_t *token,
                     int64_t n)
{
    int64_t got = -1;
    pl_err err = {0};

    TEST_OK(pl_seq_share(r->engine, seq, token, n, &got, &err), err);
    assert_int_equal(pl_seq_length(r->engine, seq), got);
    return got;
}

static void clear(const struct engine_run *r, int seq)
{
    pl_err err = {0};

    TEST_OK(pl_seq_trim(r->engine, seq, 0, NULL, &err), err);
}

static void equal_rows(const struct engine_run *r, const float *a,
                       const float *b, int64_t n)
{
    assert_memory_equal(a, b, (size_t)(n * r->n_vocab) * sizeof *a);
}

/* A prompt whose sequence has ended, one that continues it, and one that
 * diverges from it: they share whole pages, or tokens up to a checkpoint. */
static void prompts(const char *devices, const char *file, bool states)
{
    /* number of equal tokens; they end within the third page */
    const int64_t parts = 150;
    struct engine_run r, fresh;
    uint64_t seed = test_seed();
    int32_t token[N], other[N];
    float *want, *got;
    pl_options o = some_options(devices);

    engine_run_open(&r, test_ref(file), file, &o);
    o.prefix_cache = false;
    o.devices = "cpu";
    engine_run_open(&fresh, test_ref(file), file, &o);
    want = test_need(N, (size_t)r.n_vocab * sizeof *want);
    got = test_need(N, (size_t)r.n_vocab * sizeof *got);
    engine_run_tokens(&r, &seed, N, token);
    memcpy(other, token, sizeof other);
    engine_run_tokens(&r, &seed, N - parts, other + parts);
    engine_run_decode(&r, 0, N_PROMPT, token, NULL);
    clear(&r, 0);
    for (int k = 0; k < 3; k++) {
        const int32_t *t = k < 2 ? token : other;
        int64_t n = k == 0 ? N_PROMPT : N;
        int64_t expected = states ? (k == 1 ? N_PROMPT : 0)
                                  : (k < 2 ? N_PROMPT : parts) / 64 * 64;
        int64_t first = share(&r, 1, t, n);

        assert_int_equal(first, expected);
        engine_run_decode(&r, 1, n - first, t + first, got);
        clear(&fresh, 0);
        engine_run_decode(&fresh, 0, n, t, want);
        equal_rows(&r, got, want + first * r.n_vocab, n - first);
        clear(&r, 1);
    }
    free(want);
    free(got);
    engine_run_close(&r);
    engine_run_close(&fresh);
}

TEST(prefix_of_a_prompt_changes_no_bit)
{
    static const struct {
        const char *file;
        bool states;
    } models[] = {
        {"qwen2-bias-f32.gguf", false},
        {"gemma3-swa-f32.gguf", false},
        {"gemma4-ple-sharedkv-f32.gguf", false},
        {"deepseek2-mla-f32.gguf", false},
        {"qwen3next-f32.gguf", true},
    };
    static const char *const devices[] = {"cpu", "cpu*2", "sim*2"};

    for (int m = 0; m < 5; m++)
        for (int d = 0; d < 3; d++)
            prompts(devices[d], models[m].file, models[m].states);
}

static void open_plain(struct engine_run *r, pl_options o)
{
    engine_run_open(r, test_ref("qwen2-bias-f32.gguf"), "qwen2-bias-f32.gguf",
                    &o);
}

/* Two simultaneous answers to one prompt share its pages. The pages after it
 * are their own. */
TEST(prefix_is_held_once)
{
    struct engine_run r;
    uint64_t seed = test_seed();
    int32_t token[N], of[2 * 128];
    int32_t both[2 * 128];
    pl_batch b = {.size = sizeof b, .n = 2 * 128, .token = both, .seq = of};
    pl_err err = {0};
    uint8_t none[2 * 128] = {0};
    const struct kv_pool *p;

    open_plain(&r, some_options("cpu"));
    p = &r.engine->kv.pool[0];
    engine_run_tokens(&r, &seed, N, token);
    for (int i = 0; i < 2 * 128; i++) {
        of[i] = i % 2;
        both[i] = token[i / 2];
    }
    b.wanted = none;
    TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
    assert_int_equal(p->n_free, p->n_page - 2);
    assert_int_equal(share(&r, 2, token, 129), 128);
    /* at least one token is decoded, so not all 128 are shared */
    assert_int_equal(share(&r, 3, token, 128), 64);
    assert_int_equal(p->n_free, p->n_page - 2);
    for (int s = 0; s < 4; s++)
        clear(&r, s);
    assert_int_equal(p->n_free, p->n_page - 2);
    assert_int_equal(p->n_evictable, 2);
    engine_run_close(&r);
}

/* In a batch of several sequences, each has its own tokens. */
TEST(prefix_of_a_batch_is_each_sequences_own)
{
    struct engine_run r;
    uint64_t seed = test_seed();
    int32_t token[2][N], both[2 * N], of[2 * N];
    uint8_t none[2 * N] = {0};
    pl_batch b = {
        .size = sizeof b, .n = 2 * N, .token = both, .seq = of, .wanted = none};
    pl_err err = {0};

    open_plain(&r, some_options("cpu"));
    for (int s = 0; s < 2; s++)
        engine_run_tokens(&r, &seed, N, token[s]);
    for (int i = 0; i < 2 * N; i++) {
        of[i] = i % 2;
        both[i] = token[i % 2][i / 2];
    }
    TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
    for (int s = 0; s < 2; s++)
        assert_int_equal(share(&r, 2 + s, token[s], N), 192);
    engine_run_close(&r);
}

TEST(prefix_is_not_kept_unasked)
{
    struct engine_run r;
    pl_options o = some_options("cpu");
    int32_t token[N] = {0};
    const struct kv_pool *p;

    o.prefix_cache = false;
    open_plain(&r, o);
    p = &r.engine->kv.pool[0];
    engine_run_decode(&r, 0, N, token, NULL);
    clear(&r, 0);
    assert_int_equal(p->n_free, p->n_page);
    assert_int_equal(share(&r, 0, token, N), 0);
    engine_run_close(&r);
}

/* A weight is set: results of the old one are not reused. */
TEST(prefix_is_forgotten_with_its_weights)
{
    struct engine_run r;
    int32_t token[N] = {0};
    float one = 0;
    pl_tensor t;
    pl_exec *x;
    pl_err err = {0};

    open_plain(&r, some_options("cpu"));
    engine_run_decode(&r, 0, N, token, NULL);
    engine_run_decode(&r, 1, N, token, NULL);
    clear(&r, 0);
    assert_int_equal(share(&r, 0, token, N), 192);
    clear(&r, 0);
    x = pl_engine_exec(r.engine);
    t = pl_engine_tensor(r.engine, "output_norm.weight");
    TEST_OK(pl_tensor_get(x, t, &one, 0, sizeof one, &err), err);
    assert_int_equal(share(&r, 0, token, N), 192);
    clear(&r, 0);
    TEST_OK(pl_tensor_set(x, t, &one, 0, sizeof one, &err), err);
    assert_int_equal(share(&r, 0, token, N), 0);
    /* this sequence began before the weight was set, so its pages are not
     * cached */
    engine_run_decode(&r, 1, N, token, NULL);
    assert_int_equal(share(&r, 0, token, N), 0);
    engine_run_decode(&r, 0, N, token, NULL);
    assert_int_equal(share(&r, 2, token, N), 192);
    engine_run_close(&r);
}

/* The tokens of a restored past are unknown; those of an emptied sequence are
 * known. */
TEST(prefix_of_a_restored_state_is_unknown)
{
    struct engine_run r;
    int32_t token[N] = {0};
    pl_err err = {0};
    void *data;
    size_t size;

    open_plain(&r, some_options("cpu"));
    engine_run_decode(&r, 0, 64, token, NULL);
    TEST_OK(pl_state_save_memory(r.engine, 0, 0, -1, &data, &size, &err), err);
    TEST_OK(pl_state_restore_memory(r.engine, 1, data, size, 0, &err), err);
    engine_run_decode(&r, 1, 64, token, NULL);
    assert_int_equal(share(&r, 2, token, N), 64);
    clear(&r, 1);
    clear(&r, 2);
    engine_run_decode(&r, 1, 128, token, NULL);
    assert_int_equal(share(&r, 2, token, N), 128);
    free(data);
    engine_run_close(&r);
}

static void refused(pl_engine *e, int seq, const int32_t *token, int64_t n,
                    pl_status want, const char *message)
{
    int64_t got = -1;
    pl_err err = {0};

    assert_int_equal(pl_seq_share(e, seq, token, n, &got, &err), want);
    if (!strstr(err.message, message))
        fail_msg("'%s' does not say '%s'", err.message, message);
    assert_int_equal(got, 0);
}

TEST(prefix_requests_are_checked)
{
    struct engine_run r;
    int32_t token[N] = {0}, wrong[2] = {0, -1};

    open_plain(&r, some_options("cpu"));
    engine_run_decode(&r, 0, N, token, NULL);
    refused(r.engine, 0, token, N, PL_BAD_ARGUMENT,
            "sequence 0 has 240 tokens");
    refused(r.engine, 4, token, N, PL_BAD_ARGUMENT, "not in 0 .. 3");
    refused(r.engine, 1, token, -1, PL_BAD_ARGUMENT, "-1 tokens");
    refused(r.engine, 1, NULL, 1, PL_BAD_ARGUMENT, "token is NULL");
    refused(r.engine, 1, wrong, 2, PL_BAD_ARGUMENT,
            "token 1 of the prefix is -1");
    refused(r.engine, 1, token, 1025, PL_FULL, "the context of 1024");
    assert_int_equal(share(&r, 1, NULL, 0), 0);
    assert_int_equal(share(&r, 1, token, 1), 0);
    engine_run_close(&r);
}

/* Checks that the copy is empty if there is no page for the last one. */
static void copied(const struct engine_run *r, int dst, int src)
{
    pl_err err = {0};
    pl_status s = pl_seq_copy(r->engine, dst, src, &err);

    if (s != PL_OK)
        assert_int_equal(s, PL_FULL);
}

/* As many tokens as pl_engine_free_tokens says can be decoded, and one more
 * cannot. */
TEST(prefix_room_is_what_fits)
{
    struct engine_run r;
    uint64_t seed = test_seed();
    int32_t *token = test_need(1024, sizeof *token);
    uint8_t *none = test_need(1024, sizeof *none);
    pl_batch b = {.size = sizeof b, .wanted = none};
    int32_t seq[1024];
    pl_err err = {0};

    open_plain(&r, some_options("cpu")); /* the cache has 16 pages */
    memset(none, 0, 1024);
    assert_int_equal(pl_engine_free_tokens(r.engine, -1), 1024);
    assert_int_equal(pl_engine_free_tokens(r.engine, 0), 1024);
    assert_int_equal(pl_engine_free_tokens(r.engine, 4), 0);
    assert_int_equal(pl_engine_free_tokens(r.engine, -2), 0);
    for (int k = 0; k < 60; k++) {
        int s = (int)test_below(&seed, 4);
        int64_t n = test_below(&seed, 300), room;

        engine_run_tokens(&r, &seed, 1024, token);
        if (test_below(&seed, 4) == 0)
            clear(&r, s);
        if (test_below(&seed, 4) == 0)
            copied(&r, s, (s + 1) % 4);
        room = pl_engine_free_tokens(r.engine, s);
        for (int i = 0; i < 1024; i++)
            seq[i] = s;
        b.token = token;
        b.seq = seq;
        b.n = room + 1 < 1024 ? room + 1 : 1024;
        if (room < 1024)
            assert_int_equal(pl_engine_decode(r.engine, &b, NULL, &err),
                             PL_FULL);
        assert_int_equal(pl_engine_free_tokens(r.engine, s), room);
        b.n = n < room ? n : room;
        TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
    }
    for (int s = 0; s < 4; s++)
        clear(&r, s);
    assert_int_equal(pl_engine_free_tokens(r.engine, -1), 1024);
    free(token);
    free(none);
    engine_run_close(&r);
}
