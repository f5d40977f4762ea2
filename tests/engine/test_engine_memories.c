/* The contents of sequences, with every type of memory: all tokens, windows,
 * states. Whatever random calls do, each logit has the bits of the same tokens
 * in an engine used for nothing else.
 *
 * Three engines share ranks, but not devices. Tokens are decoded, also two
 * sequences in a batch. Steps fail and are cancelled. Sequences are trimmed,
 * copied, saved and restored, whole and in parts, and damaged states rejected.
 * Two of the engines cache prefixes, and earlier tokens are repeated. The test
 * keeps a list of the tokens that each sequence should have. In the end
 * everything is freed. */
#include "device/device_inner.h"
#include "engine/engine.h"
#include "lib/engine_run.h"
#include "lib/ref_models.h"

#include <stdlib.h>
#include <string.h>

enum { N_ENGINE = 3, N_SEQ = 4, N_CTX = 576, MAX_TOKEN = 260, N_OLD = 6 };

static const struct {
    const char *file;
    /* true if the cache keeps all tokens, so that a sequence can be trimmed to
     * any length */
    bool whole_past;
} models[] = {
    {"qwen2-bias-f32.gguf", true},
    {"gemma3-swa-f32.gguf", false},
    {"gptoss-f32.gguf", false},
    {"qwen35-dense-f32.gguf", false},
    {"qwen35moe-f32.gguf", false},
    {"qwen3next-f32.gguf", false},
    {"gemma4-ple-sharedkv-f32.gguf", false},
    {"deepseek2-mla-f32.gguf", true},
    {"lfm2-f32.gguf", false},
    {"cohere2-f32.gguf", false},
    {"nemotron_h-f32.gguf", false},
    {"glm-dsa-shared-f32.gguf", true},
    {"minimax-m3-dense-f32.gguf", true},
    {"kimi-linear-f32.gguf", false},
    {"deepseek4-f32.gguf", false},
};

static const struct {
    const char *devices;
    pl_split_mode mode;
    int64_t n_ubatch;
    int n_checkpoint;
    bool prefix_cache;
} engines[N_ENGINE] = {
    {"cpu*2", PL_SPLIT_TENSOR, 24, 4, true},
    /* this engine has a pipeline of micro-batches */
    {"sim*2", PL_SPLIT_LAYER, 16, 1, true},
    {"cpu", PL_SPLIT_TENSOR, 64, 40, false},
};

struct past {
    int64_t n;
    int32_t token[MAX_TOKEN];
};

struct world {
    struct engine_run e[N_ENGINE], fresh;
    struct past past[N_ENGINE][N_SEQ];
    struct past old[N_OLD]; /* prompts that later sequences repeat */
    bool whole_past;
    uint64_t seed;
    struct device *lost; /* the device to lose after one step of a batch, or
                          * NULL */
    /* set by after_a_run if `cancels`; cancels the batch */
    volatile int cancel;
    bool cancels;
    /* [2 * MAX_TOKEN, n_vocab] computed and expected logits, owned */
    float *got, *want;
    int n_compared, n_failed, n_cancelled, n_trimmed, n_restored, n_full,
        n_shared;
};

/* A pl_write_fn for the trace, which is called at the end of each step: loses a
 * device or cancels the batch. */
static void after_a_run(void *user, const char *text, size_t n)
{
    struct world *w = user;

    (void)text;
    (void)n;
    if (w->lost)
        w->lost->fail_insn = 0;
    w->cancel = w->cancels;
}

/* Draws the prompts w->old, any two of which begin with the same tokens. */
static void make_old(struct world *w)
{
    for (int k = 0; k < N_OLD; k++) {
        struct past *p = &w->old[k];
        int64_t common = k % 2 ? 70 : 0;

        memcpy(p->token, w->old[k / 2 * 2].token, sizeof p->token);
        p->n = common + 70 + test_below(&w->seed, 90);
        for (int64_t i = common; i < p->n; i++)
            p->token[i] = (int32_t)test_below(&w->seed, w->fresh.n_vocab);
    }
}

static void world_open(struct world *w, const char *file)
{
    pl_options o = engine_run_options();

    o.n_ranks = 2;
    o.n_ctx = 512;
    o.n_seq = 1;
    engine_run_open(&w->fresh, test_ref(file), file, &o);
    for (int i = 0; i < N_ENGINE; i++) {
        o.devices = engines[i].devices;
        o.split_mode = engines[i].mode;
        o.n_ubatch = engines[i].n_ubatch;
        o.n_checkpoint = engines[i].n_checkpoint;
        o.sim_seed = w->seed;
        o.n_ctx = N_CTX;
        o.n_seq = N_SEQ;
        o.prefix_cache = engines[i].prefix_cache;
        o.trace = after_a_run;
        o.trace_user = w;
        engine_run_open(&w->e[i], test_ref(file), file, &o);
    }
    make_old(w);
    w->got = test_need(2 * MAX_TOKEN, (size_t)w->fresh.n_vocab * sizeof(float));
    w->want = test_need(MAX_TOKEN, (size_t)w->fresh.n_vocab * sizeof(float));
}

static void world_close(struct world *w)
{
    for (int i = 0; i < N_ENGINE; i++)
        engine_run_close(&w->e[i]);
    engine_run_close(&w->fresh);
    free(w->got);
    free(w->want);
}

/* Computes rows `first` .. p->n - 1 of p in a fresh sequence into w->want. */
static void run_fresh(struct world *w, const struct past *p, int64_t first)
{
    uint8_t wanted[MAX_TOKEN];
    pl_batch b = {.size = sizeof b,
                  .n = p->n,
                  .token = p->token,
                  .wanted = wanted,
                  .logits = w->want};
    pl_err err = {0};

    for (int64_t i = 0; i < p->n; i++)
        wanted[i] = i >= first;
    TEST_OK(pl_seq_trim(w->fresh.engine, 0, 0, NULL, &err), err);
    TEST_OK(pl_engine_decode(w->fresh.engine, &b, NULL, &err), err);
}

static void lengths_are(const struct world *w, int i)
{
    for (int s = 0; s < N_SEQ; s++)
        assert_int_equal(pl_seq_length(w->e[i].engine, s), w->past[i][s].n);
}

enum fate { GOES_WELL, FAILS_AT_ONCE, FAILS_LATER, CANCELLED };

/* Checks that a sequence has its former length, or contains what was done of k
 * tokens. */
static void take_back(struct world *w, int i, int seq, int64_t k, bool whole)
{
    struct past *p = &w->past[i][seq];
    int64_t n = pl_seq_length(w->e[i].engine, seq);

    assert_in_range(n, p->n - k, p->n);
    if (whole)
        assert_int_equal(n, p->n - k);
    p->n = n;
}

/* Decodes n more tokens, of one sequence or of two in turns. */
static void decode(struct world *w, int i, int seq, int other, int64_t n,
                   enum fate fate)
{
    struct past *p = w->past[i];
    int32_t token[MAX_TOKEN], of[MAX_TOKEN];
    int64_t old[N_SEQ], at[N_SEQ] = {0};
    pl_batch b = {
        .size = sizeof b, .token = token, .seq = of, .logits = w->got};
    const struct device_set *set = w->e[i].engine->exec->set;
    struct device *lost = &set->dev[test_below(&w->seed, set->n - 1)];
    size_t row = (size_t)w->fresh.n_vocab;
    pl_err err = {0};
    pl_status s;

    for (int k = 0; k < N_SEQ; k++)
        old[k] = p[k].n;
    for (int64_t k = 0; k < n; k++) {
        int to = k % 3 == 1 ? other : seq;

        if (p[to].n == MAX_TOKEN)
            break;
        token[b.n] = (int32_t)test_below(&w->seed, w->fresh.n_vocab);
        of[b.n] = to;
        p[to].token[p[to].n++] = token[b.n++];
    }
    w->lost = fate == FAILS_LATER ? lost : NULL;
    w->cancel = fate == CANCELLED && test_below(&w->seed, 4) == 0;
    w->cancels = fate == CANCELLED;
    if (fate == FAILS_AT_ONCE)
        lost->fail_insn = 0;
    s = pl_engine_decode(w->e[i].engine, &b, &w->cancel, &err);
    lost->fail_insn = -1;
    w->lost = NULL;
    if (s != PL_OK) {
        assert_true(
            s == PL_FULL || (s == PL_CANCELLED && fate == CANCELLED) ||
            (s == PL_DEVICE && (fate == FAILS_AT_ONCE || fate == FAILS_LATER)));
        for (int k = 0; k < N_SEQ; k++)
            take_back(w, i, k, p[k].n - old[k],
                      s == PL_FULL || (s == PL_DEVICE && w->whole_past) ||
                          fate == FAILS_AT_ONCE);
        w->n_full += s == PL_FULL;
        w->n_failed += s == PL_DEVICE;
        w->n_cancelled += s == PL_CANCELLED;
        return;
    }
    assert_true(fate != FAILS_AT_ONCE || b.n == 0);
    lengths_are(w, i);
    for (int k = 0; k < N_SEQ; k++) {
        if (p[k].n == old[k])
            continue;
        run_fresh(w, &p[k], old[k]);
        for (int64_t t = 0; t < b.n; t++)
            if (of[t] == k)
                assert_memory_equal(w->got + (size_t)t * row,
                                    w->want + (size_t)at[k]++ * row,
                                    row * sizeof(float));
        w->n_compared++;
    }
}

/* Decodes tokens first .. end - 1 of a sequence, which ends before them.
 * Returns false if the cache is full. */
static bool go_on(struct world *w, int i, int seq, int64_t first, int64_t end)
{
    struct past p = w->past[i][seq];
    size_t bytes = (size_t)w->fresh.n_vocab * sizeof(float);
    int32_t of[MAX_TOKEN];
    pl_batch b = {.size = sizeof b,
                  .n = end - first,
                  .token = p.token + first,
                  .seq = of,
                  .logits = w->got};
    pl_err err = {0};
    pl_status s;

    for (int64_t k = 0; k < b.n; k++)
        of[k] = seq;
    s = pl_engine_decode(w->e[i].engine, &b, NULL, &err);
    if (s != PL_OK) {
        assert_int_equal(s, PL_FULL);
        assert_int_equal(pl_seq_length(w->e[i].engine, seq), first);
        w->n_full++;
        return false;
    }
    p.n = end;
    if (end > 0)
        run_fresh(w, &p, first);
    assert_memory_equal(w->got, w->want, (size_t)b.n * bytes);
    w->n_compared++;
    return true;
}

/* Decodes tokens of an old prompt and some others in an emptied sequence, which
 * begins with the cached prefix. */
static void ask(struct world *w, int i, int seq, struct past *old)
{
    struct past *p = &w->past[i][seq];
    int64_t first = -1, before, n;
    pl_err err = {0};

    TEST_OK(pl_seq_trim(w->e[i].engine, seq, 0, NULL, &err), err);
    if (test_below(&w->seed, 4) == 0 && p->n > 64)
        /* later sequences repeat this one's tokens, perhaps the next one
         * does */
        *old = *p;
    *p = *old;
    if (test_below(&w->seed, 4) == 0)
        p->n = 1 + test_below(&w->seed, p->n);
    before = p->n; /* as in a chat, new tokens follow the repeated ones */
    for (n = test_below(&w->seed, 30); p->n < MAX_TOKEN && n-- > 0;)
        p->token[p->n++] = (int32_t)test_below(&w->seed, w->fresh.n_vocab);
    TEST_OK(pl_seq_share(w->e[i].engine, seq, p->token, p->n, &first, &err),
            err);
    assert_in_range(first, 0, engines[i].prefix_cache ? p->n - 1 : 0);
    assert_int_equal(pl_seq_length(w->e[i].engine, seq), first);
    w->n_shared += first > 0;
    n = p->n;
    p->n = first;
    if (first < before && go_on(w, i, seq, first, before))
        p->n = before;
    if (p->n >= before && go_on(w, i, seq, p->n, n))
        p->n = n;
    lengths_are(w, i);
}

static void trim(struct world *w, int i, int seq, int64_t n)
{
    struct past *p = &w->past[i][seq];
    int64_t kept = -1;
    pl_err err = {0};
    pl_status s = PL_NOT_FOUND;

    if (w->whole_past || test_below(&w->seed, 2)) {
        s = pl_seq_trim(w->e[i].engine, seq, n, NULL, &err);
        if (s == PL_OK)
            p->n = n;
        else
            assert_true(s == PL_NOT_FOUND && !w->whole_past);
        lengths_are(w, i);
    }
    if (s == PL_OK)
        return;
    TEST_OK(pl_seq_trim(w->e[i].engine, seq, n, &kept, &err), err);
    assert_in_range(kept, 0, n);
    w->n_trimmed += kept > 0 && kept < p->n;
    p->n = kept;
}

static void copy(struct world *w, int i, int dst, int src)
{
    pl_err err = {0};
    pl_status s = pl_seq_copy(w->e[i].engine, dst, src, &err);

    if (s == PL_OK) {
        w->past[i][dst] = w->past[i][src];
        return;
    }
    assert_int_equal(s, PL_FULL);
    w->past[i][dst].n = 0;
    w->n_full++;
}

/* Restores a state into a sequence, -1: into all. It may be damaged, which must
 * be detected. Returns true if it replaced the contents. */
static bool put(struct world *w, int i, int seq, char *data, size_t n)
{
    pl_err err = {0};
    pl_status s;

    if (test_below(&w->seed, 6) == 0) {
        data[test_below(&w->seed, (int64_t)n)] ^= 4;
        assert_int_not_equal(
            pl_state_restore_memory(w->e[i].engine, seq, data, n, 0, &err),
            PL_OK);
        return false;
    }
    s = pl_state_restore_memory(w->e[i].engine, seq, data, n, 0, &err);
    assert_true(s == PL_OK || s == PL_FULL);
    w->n_full += s == PL_FULL;
    w->n_restored += s == PL_OK;
    return s == PL_OK;
}

/* Moves a sequence of engine i to one of engine j, in a piece, or in two if it
 * can be cut at n. */
static void move(struct world *w, int i, int seq, int j, int dst, int64_t n)
{
    const struct past p = w->past[i][seq];
    void *data[2];
    size_t size[2];
    int64_t cut = n;
    pl_err err = {0};
    pl_status s = pl_state_save_memory(w->e[i].engine, seq, 0, n, &data[0],
                                       &size[0], &err);

    if (s != PL_OK) {
        assert_true(s == PL_NOT_FOUND && !w->whole_past);
        cut = p.n;
        TEST_OK(pl_state_save_memory(w->e[i].engine, seq, 0, -1, &data[0],
                                     &size[0], &err),
                err);
    }
    TEST_OK(pl_state_save_memory(w->e[i].engine, seq, cut, -1, &data[1],
                                 &size[1], &err),
            err);
    if (put(w, j, dst, data[0], size[0])) {
        w->past[j][dst] = p;
        if (!put(w, j, dst, data[1], size[1]))
            w->past[j][dst].n = cut;
    }
    lengths_are(w, j);
    free(data[0]);
    free(data[1]);
}

/* Saves all sequences of engine i and restores them in engine j. */
static void move_all(struct world *w, int i, int j)
{
    void *data;
    size_t size;
    pl_err err = {0};

    TEST_OK(pl_state_save_memory(w->e[i].engine, -1, 0, -1, &data, &size, &err),
            err);
    if (put(w, j, -1, data, size))
        memmove(w->past[j], w->past[i], sizeof w->past[j]);
    lengths_are(w, j);
    free(data);
}

static void call(struct world *w)
{
    int i = (int)test_below(&w->seed, N_ENGINE);
    int j = (int)test_below(&w->seed, N_ENGINE);
    int seq = (int)test_below(&w->seed, N_SEQ);
    int other = (int)test_below(&w->seed, N_SEQ);
    int64_t n = w->past[i][seq].n;
    struct past *old = &w->old[test_below(&w->seed, N_OLD)];

    switch (test_below(&w->seed, 13)) {
    case 0:
    case 1:
        trim(w, i, seq, test_below(&w->seed, n + 1));
        break;
    case 2:
        copy(w, i, other, seq);
        break;
    case 3:
        move(w, i, seq, j, other, test_below(&w->seed, n + 1));
        break;
    case 4:
        if (test_below(&w->seed, 3) == 0)
            move_all(w, i, j);
        break;
    case 5: /* empties a long sequence to free memory */
        if (n > MAX_TOKEN - 80)
            trim(w, i, seq, 0);
        break;
    case 6:
        ask(w, i, seq, old);
        if (test_below(&w->seed, 2))
            ask(w, i, other, old);
        break;
    default:
        decode(w, i, seq, test_below(&w->seed, 3) ? seq : other,
               1 + test_below(&w->seed, test_below(&w->seed, 2) ? 4 : 80),
               (enum fate)(test_below(&w->seed, 2)
                               ? GOES_WELL
                               : test_below(&w->seed, CANCELLED + 1)));
    }
}

/* Returns true if each kind of event has occurred often enough in n_call
 * calls. */
static bool met(const struct world *w, int n_call)
{
    return w->n_compared > n_call / 8 && w->n_failed > n_call / 40 &&
           w->n_cancelled > 0 && w->n_restored > n_call / 40 &&
           w->n_shared > n_call / 40;
}

/* Empties the sequences. All pages and slots must be available, and free once
 * prefixes are dropped. */
static void give_back(struct world *w, int i)
{
    struct kv *kv = &w->e[i].engine->kv;

    for (int s = 0; s < N_SEQ; s++)
        trim(w, i, s, 0);
    for (int k = 0; k < kv->n_pool; k++)
        assert_int_equal(kv_free_pages(kv, k), kv->pool[k].n_page);
    prefix_clear(kv);
    for (int k = 0; k < kv->n_pool; k++)
        assert_int_equal(kv->pool[k].n_free, kv->pool[k].n_page);
}

static void random_calls(int model)
{
    static struct world w;
    /* Calls go on until each kind of event has occurred; prefixes are shared
     * once in some hundred calls. */
    enum { MORE = 2000 };
    const int n_call = test_draws(120, 10000);
    int k = 0;

    memset(&w, 0, sizeof w);
    w.seed = test_seed() + (uint64_t)model;
    w.whole_past = models[model].whole_past;
    world_open(&w, models[model].file);
    while (k++ < n_call || (k < 4 * n_call + MORE && !met(&w, n_call)))
        call(&w);
    print_message("%s: %d runs compared, %d failed, %d cancelled, %d trimmed, "
                  "%d restored, %d shared, %d without room\n",
                  models[model].file, w.n_compared, w.n_failed, w.n_cancelled,
                  w.n_trimmed, w.n_restored, w.n_shared, w.n_full);
    assert_true(met(&w, n_call));
    for (int i = 0; i < N_ENGINE; i++)
        give_back(&w, i);
    world_close(&w);
}

#define CALLS(id, model)                                                       \
    TEST(memories_equal_a_fresh_run_##id)                                      \
    {                                                                          \
        random_calls(model);                                                   \
    }
CALLS(qwen2, 0)
CALLS(gemma3, 1)
CALLS(gptoss, 2)
CALLS(qwen35, 3)
CALLS(qwen35moe, 4)
CALLS(qwen3next, 5)
CALLS(gemma4, 6)
CALLS(deepseek2, 7)
CALLS(lfm2, 8)
CALLS(cohere2, 9)
CALLS(nemotron_h, 10)
CALLS(glm_dsa, 11)
CALLS(minimax_m3, 12)
CALLS(deepseek4, 14)

TEST_LONG(memories_equal_a_fresh_run_kimi_linear)
{
    random_calls(13);
}

/* ---- states -------------------------------------------------------------- */

static void open_states(struct engine_run *r, int64_t n_ctx, int n_checkpoint)
{
    const char *file = "qwen3next-f32.gguf";
    pl_options o = engine_run_options();

    o.n_ctx = n_ctx;
    o.n_checkpoint = n_checkpoint;
    engine_run_open(r, test_ref(file), file, &o);
}

/* State slots are planned by sequences and checkpoints. A long context takes no
 * more of them, and neither does a long past. */
TEST(memories_of_states_do_not_grow)
{
    static const int64_t contexts[] = {256, 4096};

    for (int i = 0; i < 2; i++) {
        struct engine_run r;
        const struct kv *kv;
        const struct compiled *p;
        int32_t token[200] = {0};
        pl_err err = {0};

        open_states(&r, contexts[i], 3);
        kv = &r.engine->kv;
        p = pl_engine_plan(r.engine)->compiled;
        assert_in_range(kv->states, 0, kv->n_pool - 1);
        assert_int_equal(kv->pool[kv->states].n_page, 2 * N_SEQ + 3);
        assert_int_equal(p->max.n_slot[kv->states], 2 * N_SEQ + 3);
        assert_int_equal(p->max.n_slot[!kv->states], contexts[i]);
        for (int k = 0; k < 200; k += 50) {
            engine_run_decode(&r, 0, 50, token, NULL);
            assert_in_range(kv->pool[kv->states].n_free, 2 * N_SEQ - 3,
                            2 * N_SEQ + 2);
        }
        TEST_OK(pl_seq_trim(r.engine, 0, 0, NULL, &err), err);
        assert_int_equal(kv->pool[kv->states].n_free, 2 * N_SEQ + 3);
        engine_run_close(&r);
    }
}

/* A prompt, an answer, and back to the prompt's end for another answer. Once
 * other prompts have taken the checkpoint's slot, it is computed anew. */
TEST(memories_of_a_prompt_are_there_for_another_answer)
{
    enum { N_PROMPT = 100, N_ANSWER = 30, N = N_PROMPT + N_ANSWER };
    struct engine_run r, fresh;
    uint64_t seed = test_seed();
    int32_t token[N];
    size_t row, bytes;
    float *got, *want;

    open_states(&r, 2048, 1);
    open_states(&fresh, 1024, 1);
    row = (size_t)r.n_vocab;
    bytes = N_ANSWER * row * sizeof(float);
    got = test_need(N, row * sizeof *got);
    want = test_need(N, row * sizeof *want);
    engine_run_tokens(&r, &seed, N, token);
    engine_run_decode(&r, 0, N_PROMPT, token, NULL);
    for (int k = 0; k < 3; k++) {
        bool forgotten = k == 2;
        int64_t kept = -1;
        pl_err err = {0};

        for (int i = 0; i < N_ANSWER; i++)
            engine_run_decode(&r, 0, 1, token + N_PROMPT + i, NULL);
        for (int s = 1; s < N_SEQ && forgotten; s++)
            for (int i = 0; i < 3; i++)
                engine_run_decode(&r, s, N_PROMPT, token, NULL);
        if (forgotten) {
            assert_int_equal(pl_seq_trim(r.engine, 0, N_PROMPT, NULL, &err),
                             PL_NOT_FOUND);
            assert_non_null(strstr(err.message, "was evicted; 0 can be"));
            assert_int_equal(pl_seq_length(r.engine, 0), N);
        }
        TEST_OK(pl_seq_trim(r.engine, 0, N_PROMPT, &kept, &err), err);
        assert_int_equal(kept, forgotten ? 0 : N_PROMPT);
        engine_run_tokens(&r, &seed, N_ANSWER, token + N_PROMPT);
        engine_run_decode(&r, 0, N - kept, token + kept, got);
        TEST_OK(pl_seq_trim(fresh.engine, 0, 0, NULL, &err), err);
        engine_run_decode(&fresh, 0, N, token, want);
        assert_memory_equal(got + (size_t)(N_PROMPT - kept) * row,
                            want + N_PROMPT * row, bytes);
        TEST_OK(pl_seq_trim(r.engine, 0, N_PROMPT, &kept, &err), err);
        assert_int_equal(kept, forgotten ? 0 : N_PROMPT);
    }
    free(got);
    free(want);
    engine_run_close(&r);
    engine_run_close(&fresh);
}

/* Decoding a long prompt leaves a checkpoint every 4,096 tokens. */
TEST(memories_of_a_long_prompt_are_there_in_between)
{
    enum { N = 4300, N_MORE = 5 };
    struct engine_run r;
    uint64_t seed = test_seed();
    int32_t *token = test_need(N + N_MORE, sizeof *token);
    size_t bytes;
    int64_t kept;
    uint64_t size;
    float *got, *want;
    pl_err err;

    open_states(&r, 3 * 4608, 0);
    bytes = N_MORE * (size_t)r.n_vocab * sizeof *got;
    got = test_need(1, bytes);
    want = test_need(1, bytes);
    engine_run_tokens(&r, &seed, N + N_MORE, token);
    engine_run_decode(&r, 0, N, token, NULL);
    TEST_OK(pl_seq_trim(r.engine, 0, N - 1, &kept, &err), err);
    assert_int_equal(kept, 4096);
    assert_int_equal(pl_state_size(r.engine, 0, 0, 4095, &size, &err),
                     PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "its first 0"));
    engine_run_decode(&r, 0, N_MORE, token + kept, got);
    engine_run_decode(&r, 1, kept, token, NULL);
    engine_run_decode(&r, 1, N_MORE, token + kept, want);
    assert_memory_equal(got, want, bytes);
    free(got);
    free(want);
    free(token);
    engine_run_close(&r);
}

/* Returns true if the windows still hold what the token after the first n
 * sees. */
static bool is_held(const struct kv *kv, int seq, int64_t n)
{
    for (int k = 0; k < kv->n_pool; k++) {
        int64_t from = n - kv->pool[k].window + 1;

        if (kv->pool[k].window == 0)
            continue;
        for (int64_t pos = from < 0 ? 0 : from; pos < n; pos++)
            if (kv_page(kv, k, seq, pos) < 0)
                return false;
    }
    return true;
}

/* A sequence can be trimmed to any length for which the next token's windows
 * are complete. It continues like one that was never longer. */
TEST(memories_of_windows_go_back_as_far_as_they_hold)
{
    enum { N = 420, N_MORE = 3 };
    pl_options o = engine_run_options();
    struct engine_run r;
    uint64_t seed = test_seed();
    int32_t token[N + N_MORE];
    int64_t length = 0;
    int n_back = 0, n_lost = 0;
    float *got, *want;
    size_t bytes;

    o.n_ctx = 1024;
    engine_run_open(&r, ref_model_path("made/gemma3-swa-f32"), "gemma3", &o);
    bytes = N_MORE * (size_t)r.n_vocab * sizeof *got;
    got = test_need(1, bytes);
    want = test_need(1, bytes);
    engine_run_tokens(&r, &seed, N + N_MORE, token);
    for (int i = test_draws(24, 400);
         i > 0 || (i > -200 && (n_back == 0 || n_lost == 0)); i--) {
        int64_t n, kept = -1;
        bool held;
        pl_err err;

        while (length < N) {
            n = 1 + test_below(&seed, N - length);
            engine_run_decode(&r, 0, n, token + length, NULL);
            length += n;
        }
        n = length - test_below(&seed, i % 2 ? length : 130);
        held = is_held(&r.engine->kv, 0, n);
        if (!held)
            assert_int_equal(pl_seq_trim(r.engine, 0, n, NULL, &err),
                             PL_NOT_FOUND);
        TEST_OK(pl_seq_trim(r.engine, 0, n, &kept, &err), err);
        assert_int_equal(kept, held ? n : 0);
        n_back += held && n < length - KV_MIN_TRIM;
        n_lost += !held;
        length = kept;
        engine_run_decode(&r, 0, n - kept, token + kept, NULL);
        engine_run_decode(&r, 0, N_MORE, token + n, got);
        length = n + N_MORE;
        TEST_OK(pl_seq_trim(r.engine, 1, 0, NULL, &err), err);
        engine_run_decode(&r, 1, n, token, NULL);
        engine_run_decode(&r, 1, N_MORE, token + n, want);
        assert_memory_equal(got, want, bytes);
    }
    assert_true(n_back > 0 && n_lost > 0);
    free(got);
    free(want);
    engine_run_close(&r);
}
