/* Pages of cached prefixes are exported from an engine as bytes and imported
 * into another, with another split. Its sequences then have the bits they would
 * have had without, and damaged or foreign pages are rejected. */
#include "engine/engine.h"
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"
#include "lib/write_fail.h"

#include <stdlib.h>
#include <string.h>

enum { N_PROMPT = 200, N_MORE = 40, N = N_PROMPT + N_MORE, MAX_PAGES = 16 };
enum { CTX_ROOM = 1024 };

struct page {
    int32_t token[CTX_ROOM];
    int64_t n;
    bool goes_on;
    void *data;
    size_t bytes;
};

struct pages {
    int n;
    struct page page[MAX_PAGES];
};

static pl_options options_of(const char *devices, enum pl_split_mode mode)
{
    pl_options o = engine_run_options();

    o.devices = devices;
    o.split_mode = mode;
    o.n_ranks = 2;
    o.n_ctx = CTX_ROOM;
    o.prefix_cache = true;
    return o;
}

static void open_as(struct engine_run *r, const char *file, const char *devices,
                    enum pl_split_mode mode, pl_format cache)
{
    pl_options o = options_of(devices, mode);

    o.cache_set = true;
    o.cache_k = o.cache_v = cache;
    engine_run_open(r, test_ref(file), file, &o);
    assert_int_equal(pl_engine_sum(r->engine, NULL, NULL), PL_OK);
}

static void open_run(struct engine_run *r, const char *file,
                     const char *devices, enum pl_split_mode mode)
{
    open_as(r, file, devices, mode, PL_F16);
}

/* Exports all dirty pages of the engine and appends them to `all`. */
static void take_all(const struct engine_run *r, struct pages *all)
{
    pl_err err = {0};

    memset(all, 0, sizeof *all);
    for (;;) {
        struct page *p = &all->page[all->n];

        assert_true(all->n < MAX_PAGES);
        TEST_OK(pl_prefix_export_page(r->engine, p->token, CTX_ROOM, &p->n,
                                      &p->goes_on, &p->data, &p->bytes, &err),
                err);
        if (p->n == 0)
            return;
        all->n++;
    }
}

static void free_all(struct pages *all)
{
    for (int i = 0; i < all->n; i++)
        free(all->page[i].data);
}

static int64_t in_page(int64_t n)
{
    return (n - 1) % 64 + 1;
}

/* Returns the latest page that ends with the first n of these tokens, or
 * NULL. */
static const struct page *page_of(const struct pages *all, const int32_t *token,
                                  int64_t n)
{
    for (int i = all->n - 1; i >= 0; i--)
        if (all->page[i].n == n &&
            memcmp(all->page[i].token, token, (size_t)n * sizeof *token) == 0)
            return &all->page[i];
    return NULL;
}

static pl_status extend(const struct engine_run *r, int seq,
                        const struct page *p, pl_err *err)
{
    int64_t n = in_page(p->n);

    return pl_seq_import_page(r->engine, seq, p->token + p->n - n, n, p->data,
                              p->bytes, err);
}

/* Imports the pages of the first n tokens into sequence `seq`. */
static void come_back(const struct engine_run *r, int seq,
                      const struct pages *all, const int32_t *token, int64_t n)
{
    pl_err err = {0};

    for (int64_t at = 0; at < n;) {
        int64_t next = at + 64 < n ? at + 64 : n;
        const struct page *p = page_of(all, token, next);

        assert_non_null(p);
        TEST_OK(extend(r, seq, p, &err), err);
        at = next;
    }
    assert_int_equal(pl_seq_length(r->engine, seq), n);
}

static void clear(const struct engine_run *r, int seq)
{
    pl_err err = {0};

    TEST_OK(pl_seq_trim(r->engine, seq, 0, NULL, &err), err);
}

/* Exports from one split and imports into another: n tokens are present, whole
 * pages or those before a state. Tokens computed after them have the same
 * bits. */
static void there_and_back(const char *file, bool states, pl_format cache,
                           const char *from, enum pl_split_mode mode,
                           const char *to, enum pl_split_mode other)
{
    int64_t n = states ? N_PROMPT : N_PROMPT / 64 * 64, shared;
    uint64_t seed = test_seed();
    struct engine_run a, b;
    struct pages all, again;
    int32_t token[N];
    float *want, *got;
    pl_err err = {0};

    open_as(&a, file, from, mode, cache);
    open_as(&b, file, to, other, cache);
    want = test_need(N, (size_t)a.n_vocab * sizeof *want);
    got = test_need(N, (size_t)a.n_vocab * sizeof *got);
    engine_run_tokens(&a, &seed, N, token);
    engine_run_decode(&a, 0, N_PROMPT, token, want);
    engine_run_decode(&a, 0, N_MORE, token + N_PROMPT,
                      want + N_PROMPT * a.n_vocab);
    clear(&a, 0);
    assert_int_equal(pl_prefix_match_length(a.engine, token, N_PROMPT + 1), n);
    take_all(&a, &all);
    assert_int_equal(pl_prefix_match_length(b.engine, token, N), 0);
    come_back(&b, 1, &all, token, n);
    engine_run_decode(&b, 1, N - n, token + n, got);
    assert_memory_equal(got, want + n * a.n_vocab,
                        (size_t)((N - n) * a.n_vocab) * sizeof *got);
    clear(&b, 1);
    /* an imported page is cached as if it had been computed, and is clean */
    TEST_OK(pl_seq_share(b.engine, 0, token, N_PROMPT + 1, &shared, &err), err);
    assert_int_equal(shared, n);
    take_all(&b, &again);
    for (int i = 0; i < again.n; i++)
        assert_true(again.page[i].n > n);
    free_all(&all);
    free_all(&again);
    free(want);
    free(got);
    engine_run_close(&a);
    engine_run_close(&b);
}

TEST(kept_pages_come_back_under_any_split)
{
    static const struct {
        const char *file;
        bool states;
        pl_format cache;
    } models[] = {
        {"qwen2-bias-f32.gguf", false, PL_F16},
        {"gemma3-swa-f32.gguf", false, PL_Q4_0},
        {"gemma4-ple-sharedkv-f32.gguf", false, PL_Q5_1},
        {"deepseek2-mla-f32.gguf", false, PL_F16},
        {"qwen3next-f32.gguf", true, PL_IQ4_NL},
    };

    for (int m = 0; m < 5; m++) {
        there_and_back(models[m].file, models[m].states, models[m].cache, "cpu",
                       PL_SPLIT_NONE, "cpu*2", PL_SPLIT_TENSOR);
        there_and_back(models[m].file, models[m].states, models[m].cache,
                       "sim*2", PL_SPLIT_TENSOR, "cpu*2", PL_SPLIT_LAYER);
    }
}

/* A sequence of pages without a state after the last cannot continue. It is
 * trimmed to where it can. */
TEST(kept_pages_without_a_state_are_not_gone_on_from)
{
    uint64_t seed = test_seed();
    struct engine_run a, b;
    struct pages all;
    int32_t token[N];
    int64_t kept;
    pl_batch batch;
    pl_err err = {0};

    open_run(&a, "qwen3next-f32.gguf", "cpu", PL_SPLIT_NONE);
    open_run(&b, "qwen3next-f32.gguf", "cpu", PL_SPLIT_NONE);
    engine_run_tokens(&a, &seed, N, token);
    engine_run_decode(&a, 0, 64, token, NULL);
    engine_run_decode(&a, 0, N_PROMPT - 64, token + 64, NULL);
    clear(&a, 0);
    take_all(&a, &all);
    come_back(&b, 0, &all, token, 128);
    pl_batch_init(&batch);
    batch.n = 1;
    batch.token = token + 128;
    batch.wanted = (const uint8_t[]){0};
    assert_int_equal(pl_engine_decode(b.engine, &batch, NULL, &err),
                     PL_BAD_ARGUMENT);
    TEST_OK(pl_seq_trim(b.engine, 0, 128, &kept, &err), err);
    assert_int_equal(kept, 64);
    engine_run_decode(&b, 0, N - 64, token + 64, NULL);
    free_all(&all);
    engine_run_close(&a);
    engine_run_close(&b);
}

/* Each byte of a page is changed in turn, and the page is cut off; others are
 * of another model, position or plan. All are rejected, and nothing changes. */
TEST(kept_page_that_is_damaged_is_refused)
{
    uint64_t seed = test_seed();
    struct engine_run a, b, other;
    struct pages all;
    int32_t token[N];
    struct page *p;
    pl_options o = options_of("cpu", PL_SPLIT_NONE);
    int64_t room;
    pl_err err = {0};

    open_run(&a, "qwen2-bias-f32.gguf", "cpu", PL_SPLIT_NONE);
    open_run(&b, "qwen2-bias-f32.gguf", "cpu", PL_SPLIT_NONE);
    o.n_ranks = 1;
    engine_run_open(&other, test_ref("qwen2-bias-f32.gguf"), "one rank", &o);
    engine_run_tokens(&a, &seed, N, token);
    engine_run_decode(&a, 0, N_PROMPT, token, NULL);
    take_all(&a, &all);
    assert_int_equal(all.n, N_PROMPT / 64);
    room = pl_engine_free_tokens(b.engine, -1);
    p = &all.page[0];
    for (size_t i = 0; i < p->bytes; i += i < 512 ? 1 : 509) {
        ((unsigned char *)p->data)[i] ^= 0x10;
        assert_int_not_equal(extend(&b, 0, p, &err), PL_OK);
        ((unsigned char *)p->data)[i] ^= 0x10;
    }
    for (size_t cut = 1; cut <= p->bytes; cut += 1 + cut / 3) {
        p->bytes -= cut;
        assert_int_not_equal(extend(&b, 0, p, &err), PL_OK);
        p->bytes += cut;
    }
    assert_int_not_equal(extend(&b, 0, &all.page[1], &err), PL_OK);
    assert_int_not_equal(extend(&other, 0, p, &err), PL_OK);
    assert_int_equal(pl_seq_length(b.engine, 0), 0);
    assert_int_equal(pl_engine_free_tokens(b.engine, -1), room);
    TEST_OK(extend(&b, 0, p, &err), err);
    free_all(&all);
    engine_run_close(&a);
    engine_run_close(&b);
    engine_run_close(&other);
}

/* Pages that stay in their engine do not have the weights read a second
 * time. */
TEST(kept_pages_are_for_their_engine_alone_until_it_has_a_sum)
{
    const pl_options o = options_of("cpu", PL_SPLIT_NONE);
    const char *file = "qwen2-bias-f32.gguf";
    const int cancel = 1;
    uint64_t seed = test_seed();
    struct engine_run a, b;
    struct pages all, more;
    int32_t token[N];
    pl_err err = {0};

    engine_run_open(&a, test_ref(file), file, &o);
    engine_run_open(&b, test_ref(file), file, &o);
    engine_run_tokens(&a, &seed, N, token);
    engine_run_decode(&a, 0, N, token, NULL);
    take_all(&a, &all);
    assert_int_equal(all.n, N / 64);
    come_back(&a, 1, &all, token, N / 64 * 64);
    assert_false(a.engine->has_weights);
    assert_int_equal(extend(&b, 0, &all.page[0], &err), PL_BAD_ARGUMENT);
    assert_false(b.engine->has_weights);
    clear(&a, 1);
    assert_int_equal(pl_engine_sum(a.engine, &cancel, &err), PL_CANCELLED);
    TEST_OK(pl_engine_sum(a.engine, NULL, &err), err);
    /* pages exported before the checksum was known are accepted by the engine
     * that exported them */
    come_back(&a, 1, &all, token, N / 64 * 64);
    token[0]++;
    clear(&a, 0);
    engine_run_decode(&a, 0, 64, token, NULL);
    take_all(&a, &more);
    assert_int_equal(more.n, 1);
    TEST_OK(extend(&b, 0, &more.page[0], &err), err);
    assert_true(b.engine->has_weights);
    free_all(&all);
    free_all(&more);
    engine_run_close(&a);
    engine_run_close(&b);
}

/* A device fails during the import: no sequence sees the half that was
 * imported. */
TEST(kept_page_that_a_device_does_not_take_is_not_there)
{
    uint64_t seed = test_seed();
    struct engine_run a, b;
    struct pages all;
    int32_t token[N];
    pl_status s;
    pl_err err = {0};

    open_run(&a, "qwen2-bias-f32.gguf", "cpu", PL_SPLIT_NONE);
    open_run(&b, "qwen2-bias-f32.gguf", "sim*2", PL_SPLIT_TENSOR);
    engine_run_tokens(&a, &seed, N, token);
    engine_run_decode(&a, 0, N_PROMPT, token, NULL);
    take_all(&a, &all);
    write_fail_at(2);
    s = extend(&b, 0, &all.page[0], &err);
    write_fail_at(0);
    assert_int_equal(s, PL_DEVICE);
    assert_int_equal(pl_seq_length(b.engine, 0), 0);
    assert_int_equal(pl_prefix_match_length(b.engine, token, N), 0);
    free_all(&all);
    engine_run_close(&a);
    engine_run_close(&b);
}

/* If memory runs out, export and import return an error, and the next try
 * succeeds. */
TEST(kept_pages_survive_failing_memory)
{
    uint64_t seed = test_seed();
    struct engine_run a, b;
    int32_t token[N];
    struct page p = {0};
    int64_t n;
    pl_status s = PL_NO_MEMORY;
    pl_err err = {0};

    open_run(&a, "qwen2-bias-f32.gguf", "cpu", PL_SPLIT_NONE);
    open_run(&b, "qwen2-bias-f32.gguf", "cpu", PL_SPLIT_NONE);
    /* a page whose export failed is not exported again, so each try decodes new
     * tokens */
    for (n = 1; s != PL_OK; n++) {
        clear(&a, 0);
        engine_run_tokens(&a, &seed, 64, token);
        engine_run_decode(&a, 0, 64, token, NULL);
        alloc_fail_at(n);
        s = pl_prefix_export_page(a.engine, p.token, CTX_ROOM, &p.n, &p.goes_on,
                                  &p.data, &p.bytes, &err);
        alloc_fail_off();
        assert_true(s == PL_OK || s == PL_NO_MEMORY);
    }
    assert_true(n > 2);
    s = PL_NO_MEMORY;
    for (n = 1; s != PL_OK; n++) {
        alloc_fail_at(n);
        s = extend(&b, 0, &p, &err);
        alloc_fail_off();
        assert_true(s == PL_OK || s == PL_NO_MEMORY);
    }
    assert_true(n > 2);
    free(p.data);
    engine_run_close(&a);
    engine_run_close(&b);
}

/* Once its tokens are given, a restored sequence is found as a prefix. Tokens
 * computed after it have the same bits. */
static void restored_is_kept(const char *file, int64_t n_kept)
{
    uint64_t seed = test_seed();
    struct engine_run a;
    int32_t token[N];
    float *want, *got;
    int64_t shared;
    void *data;
    size_t bytes;
    pl_err err = {0};

    open_run(&a, file, "cpu", PL_SPLIT_NONE);
    want = test_need(N, (size_t)a.n_vocab * sizeof *want);
    got = test_need(N, (size_t)a.n_vocab * sizeof *got);
    engine_run_tokens(&a, &seed, N, token);
    engine_run_decode(&a, 0, N_PROMPT, token, want);
    TEST_OK(pl_state_save_memory(a.engine, 0, 0, -1, &data, &bytes, &err), err);
    engine_run_decode(&a, 0, N_MORE, token + N_PROMPT,
                      want + N_PROMPT * a.n_vocab);
    engine_run_close(&a);
    open_run(&a, file, "cpu*2", PL_SPLIT_TENSOR);
    TEST_OK(pl_state_restore_memory(a.engine, 1, data, bytes, 0, &err), err);
    assert_int_equal(pl_seq_set_tokens(a.engine, 1, token, N_PROMPT - 1, &err),
                     PL_BAD_ARGUMENT);
    TEST_OK(pl_seq_set_tokens(a.engine, 1, token, N_PROMPT, &err), err);
    assert_int_equal(pl_seq_set_tokens(a.engine, 1, token, N_PROMPT, &err),
                     PL_BAD_ARGUMENT);
    clear(&a, 1);
    assert_int_equal(pl_prefix_match_length(a.engine, token, N), n_kept);
    TEST_OK(pl_seq_share(a.engine, 0, token, N, &shared, &err), err);
    assert_int_equal(shared, n_kept);
    engine_run_decode(&a, 0, N - n_kept, token + n_kept, got);
    assert_memory_equal(got, want + n_kept * a.n_vocab,
                        (size_t)((N - n_kept) * a.n_vocab) * sizeof *got);
    free(data);
    free(want);
    free(got);
    engine_run_close(&a);
}

TEST(restored_sequence_that_is_told_is_kept)
{
    restored_is_kept("qwen2-bias-f32.gguf", N_PROMPT / 64 * 64);
    restored_is_kept("deepseek2-mla-f32.gguf", N_PROMPT / 64 * 64);
    restored_is_kept("qwen3next-f32.gguf", N_PROMPT);
}
