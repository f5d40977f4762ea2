/* Drafts of a model's own block for multi-token prediction. The engine's hidden
 * values and the block's logits are those of an evaluation in double precision,
 * and hidden values change no bit of the model. Drafts are those that the block
 * computes from the whole text, whatever became of the drafts before, and
 * wherever the model took the beginning from. The group takes about four
 * seconds. */
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"
#include "lib/made_model.h"
#include "lib/model64.h"
#include "pl_draft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_TEXT = 3,
    MOST_TEXT = 2048,
    MOST_DRAFT = 6,
    N_VOCAB = 384,
    WIDTH = 64,
    N_ROW = 24
};

/* Returns the path of model i with a block. */
static const char *model_path(int i)
{
    static const char *const made[] = {"qwen35-dense-f32", "deepseek2-mla-f32"};

    return i < 2 ? made_model_with_block(made[i])
                 : ref_model_path("glm4moe-f32");
}

/* Hidden values of sequence 0 by position. */
struct rows {
    float value[MOST_TEXT][WIDTH];
    int64_t n;
};

static void keep_rows(void *user, const pl_hidden_rows *r)
{
    struct rows *to = user;

    assert_int_equal(r->d_model, WIDTH);
    for (int64_t i = 0; i < r->n; i++) {
        assert_int_equal(r->seq[i], 0);
        memcpy(to->value[r->pos[i]], r->value + i * WIDTH, sizeof to->value[0]);
        to->n = r->pos[i] + 1;
    }
}

static pl_options options(const char *devices, int n_ranks)
{
    pl_options o = engine_run_options();

    o.devices = devices;
    o.n_ranks = n_ranks;
    o.split_mode = PL_SPLIT_TENSOR;
    o.cache_set = true;
    o.cache_k = o.cache_v = PL_F32;
    return o;
}

/* Decodes n tokens of sequence 0 of the model or, with `hidden`, of a block,
 * `most` at a time. */
static void decode(pl_engine *e, const int32_t *token, const float *hidden,
                   int64_t n, int64_t most, float *logits)
{
    pl_err err;

    for (int64_t at = 0; at < n; at += most) {
        pl_batch b;

        pl_batch_init(&b);
        b.n = most < n - at ? most : n - at;
        b.token = token + at;
        b.logits = logits + at * N_VOCAB;
        b.hidden = hidden ? hidden + at * WIDTH : NULL;
        TEST_OK(pl_engine_decode(e, &b, NULL, &err), err);
    }
}

static void expect_near(const char *what, const float *got, const double *want,
                        int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 1e-3))
            fail_msg("%s, value %lld: %g, not %g", what, (long long)i,
                     (double)got[i], want[i]);
}

/* Copies the hash of the numeric plan, which its summary has in brackets. */
static void hash_of(const pl_plan *p, char hash[20])
{
    char line[400];
    const char *at;

    pl_plan_summary(p, line, sizeof line);
    at = strchr(line, '(');
    if (!at)
        fail_msg("no hash in: %s", line);
    snprintf(hash, 20, "%.16s", at + 1);
}

/* The results of an engine: logits of the model, its hidden values and the
 * logits of the block. */
struct computed {
    float logits[N_ROW * N_VOCAB], block[N_ROW * N_VOCAB];
    struct rows rows;
};

static void compute(const pl_model *m, pl_options o, const int32_t *token,
                    int n, int64_t most, struct computed *out)
{
    char with[20], without[20];
    pl_engine *e, *block;
    pl_plan *p;
    pl_err err;

    TEST_OK(pl_plan_create(&p, m, &o, &err), err);
    hash_of(p, without);
    pl_plan_free(p);
    o.mtp_texts = N_ROW;
    o.hidden = keep_rows;
    o.hidden_user = &out->rows;
    TEST_OK(pl_engine_create(&e, m, &o, &err), err);
    hash_of(pl_engine_plan(e), with);
    assert_string_equal(with, without);
    decode(e, token, NULL, n, most, out->logits);
    assert_int_equal(out->rows.n, n);
    block = pl_engine_mtp(e);
    assert_non_null(block);
    decode(block, token + 1, out->rows.value[0], n - 1, most, out->block);
    pl_engine_free(block); /* belongs to the other one */
    pl_engine_free(e);
}

/* The blocks of these families take the output of the last norm. */
TEST(mtp_values_are_those_that_logits_come_from)
{
    enum { N = 9 };
    static const char *const keep[] = {"result_norm"};
    static const int32_t token[N] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
    struct rows *rows = test_need(1, sizeof *rows);

    for (int i = 0; i < 3; i++) {
        pl_options o = options("cpu", 1);
        float norm[N * WIDTH];
        pl_model *m;
        pl_engine *e;
        pl_batch b;
        pl_err err;

        o.keep = keep;
        o.n_keep = 1;
        o.hidden = keep_rows;
        o.hidden_user = rows;
        TEST_OK(pl_model_open(&m, model_path(i), &err), err);
        assert_true(pl_model_mtp_normed(m));
        TEST_OK(pl_engine_create(&e, m, &o, &err), err);
        pl_batch_init(&b);
        b.n = N;
        b.token = token;
        b.norm_out = norm;
        TEST_OK(pl_engine_decode(e, &b, NULL, &err), err);
        assert_memory_equal(norm, rows->value, sizeof norm);
        pl_engine_free(e);
        pl_model_free(m);
    }
    free(rows);
}

TEST(mtp_values_of_the_engine_are_those_of_double_precision)
{
    enum { N = N_ROW };
    static const struct {
        const char *devices;
        int n_ranks;
        int64_t most;
    } runs[] = {{"cpu", 1, N}, {"cpu", 1, 7}, {"cpu", 2, N}, {"sim*2", 2, 5}};
    struct computed *got = test_need(1, sizeof *got);
    struct computed *first = test_need(1, sizeof *first);
    float *plain = test_need(N * N_VOCAB, sizeof *plain);

    for (int i = 0; i < 3; i++) {
        const char *path = model_path(i);
        uint64_t seed = 1;
        int32_t token[N];
        struct model64 whole, block;
        const double *rows, *want;
        pl_model *m;
        pl_err err;

        for (int k = 0; k < N; k++)
            token[k] = (int32_t)test_below(&seed, N_VOCAB);
        model64_open_block(&whole, path, 0);
        model64_open_block(&block, path, 1);
        model64_step(&whole, token, 0, N);
        rows = whole.e->value[pl_tensor_find(whole.g, "hidden_rows")].x;
        want = model64_block(&block, token + 1, rows, N - 1);
        TEST_OK(pl_model_open(&m, path, &err), err);
        for (size_t k = 0; k < sizeof runs / sizeof *runs; k++) {
            pl_options o = options(runs[k].devices, runs[k].n_ranks);
            pl_engine *e;

            compute(m, o, token, N, runs[k].most, got);
            expect_near("hidden", got->rows.value[0], rows, N * WIDTH);
            expect_near("block", got->block, want, (N - 1) * N_VOCAB);
            TEST_OK(pl_engine_create(&e, m, &o, &err), err);
            decode(e, token, NULL, N, runs[k].most, plain);
            pl_engine_free(e);
            assert_memory_equal(plain, got->logits,
                                N * N_VOCAB * sizeof *plain);
            if (k == 0 || runs[k].n_ranks != runs[k - 1].n_ranks)
                memcpy(first, got, sizeof *first);
            assert_memory_equal(got->block, first->block,
                                (N - 1) * N_VOCAB * sizeof *plain);
        }
        pl_model_free(m);
        model64_close(&whole);
        model64_close(&block);
    }
    free(plain);
    free(first);
    free(got);
}

/* ---- drafts -------------------------------------------------------------- */

/* A model with a drafter, and the same model and block once more, which compute
 * each draft from nothing. */
struct pair {
    pl_model *model;
    pl_engine *engine, *fresh, *block, *fresh_block;
    pl_engine *owner; /* of the block, unless it is `engine`'s */
    pl_drafter *d;
    struct rows rows;
    uint64_t seed;
};

struct text {
    int32_t token[MOST_TEXT];
    int64_t n;
};

static pl_options pair_options(int n_seq, int64_t n_ctx)
{
    pl_options o = engine_run_options();

    o.n_ctx = n_ctx;
    o.n_seq = n_seq;
    o.n_checkpoint = 4 + 2 * n_seq;
    o.no_fit = true;
    o.prefix_cache = true;
    return o;
}

/* The block has a context of n_ctx tokens. A smaller one than the texts need
 * belongs to an engine of its own, since the model's needs more. */
static void set_up(struct pair *p, const char *path, int64_t n_ctx)
{
    pl_options o = pair_options(N_TEXT, n_ctx);
    pl_draft_options d;
    pl_err err;

    p->seed = test_seed_value();
    TEST_OK(pl_model_open(&p->model, path, &err), err);
    pl_draft_init(&d);
    d.limits.sources = 1u << PL_DRAFT_MTP;
    d.limits.n_max = MOST_DRAFT;
    d.n_seq = N_TEXT;
    d.n_vocab = N_VOCAB;
    TEST_OK(pl_drafter_create(&p->d, &d, &err), err);
    o.hidden = pl_draft_hidden;
    o.hidden_user = p->d;
    o.mtp_texts = N_TEXT;
    TEST_OK(pl_engine_create(&p->engine, p->model, &o, &err), err);
    TEST_OK(pl_draft_attach(p->d, p->model, p->engine, &err), err);
    p->block = pl_engine_mtp(p->engine);
    if (n_ctx < MOST_TEXT * N_TEXT) {
        o.n_ctx = MOST_TEXT * N_TEXT;
        o.mtp_texts = 0;
        p->owner = p->engine;
        TEST_OK(pl_engine_create(&p->engine, p->model, &o, &err), err);
    }
    o = pair_options(1, MOST_TEXT);
    o.mtp_texts = 1;
    o.hidden = keep_rows;
    o.hidden_user = &p->rows;
    TEST_OK(pl_engine_create(&p->fresh, p->model, &o, &err), err);
    p->fresh_block = pl_engine_mtp(p->fresh);
}

static void tear_down(struct pair *p)
{
    pl_drafter_free(p->d);
    pl_engine_free(p->engine);
    pl_engine_free(p->owner);
    pl_engine_free(p->fresh);
    pl_model_free(p->model);
    free(p);
}

/* Decodes n tokens of a sequence without logits. */
static void read_tokens(pl_engine *e, int seq, const int32_t *token, int64_t n)
{
    uint8_t *wanted = test_need((size_t)n, 1);
    int32_t *of = test_need((size_t)n, sizeof *of);
    pl_batch b;
    pl_err err;

    for (int64_t i = 0; i < n; i++)
        of[i] = seq;
    pl_batch_init(&b);
    b.n = n;
    b.token = token;
    b.seq = of;
    b.wanted = wanted;
    TEST_OK(pl_engine_decode(e, &b, NULL, &err), err);
    free(wanted);
    free(of);
}

/* Returns the block's most probable token after n tokens with their hidden
 * values. Replaces *next by the block's own hidden values. */
static int32_t next_of(struct pair *p, const int32_t *token,
                       const float *hidden, int64_t n, float next[WIDTH])
{
    uint8_t *wanted = test_need((size_t)n, 1);
    float logits[N_VOCAB];
    int32_t best = 0;
    pl_batch b;
    pl_err err;

    wanted[n - 1] = 1;
    pl_batch_init(&b);
    b.n = n;
    b.token = token;
    b.wanted = wanted;
    b.hidden = hidden;
    b.logits = logits;
    if (pl_model_mtp_normed(p->model))
        b.norm_out = next;
    else
        b.hidden_out = next;
    TEST_OK(pl_engine_decode(p->fresh_block, &b, NULL, &err), err);
    free(wanted);
    for (int32_t i = 1; i < N_VOCAB; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

/* Returns the number of tokens of a draft before the first that is not what the
 * block computes from the whole text. */
static int greedy_tokens(struct pair *p, const struct text *t,
                         const pl_draft *q)
{
    float next[WIDTH], hidden[WIDTH];
    int32_t token;
    int64_t kept;

    pl_seq_trim(p->fresh, 0, 0, &kept, NULL);
    pl_seq_trim(p->fresh_block, 0, 0, &kept, NULL);
    read_tokens(p->fresh, 0, t->token, t->n - 1);
    token = next_of(p, t->token + 1, p->rows.value[0], t->n - 1, next);
    for (int i = 0; i < q->n; i++) {
        if (q->token[i] != token)
            return i;
        memcpy(hidden, next, sizeof hidden);
        token = next_of(p, &token, hidden, 1, next);
    }
    return q->n;
}

/* Checks that a draft is what the block computes from the whole text. */
static void expect_greedy(struct pair *p, const struct text *t,
                          const pl_draft *q)
{
    const int n = greedy_tokens(p, t, q);

    if (n < q->n)
        fail_msg("text of %lld, token %d of %d: %d is not the block's",
                 (long long)t->n, n, q->n, (int)q->token[n]);
}

/* Lets the model compute what it lacks of a text but the last token. */
static void read_text(struct pair *p, int seq, const struct text *t)
{
    const int64_t from = pl_seq_length(p->engine, seq);

    if (from < t->n - 1)
        read_tokens(p->engine, seq, t->token + from, t->n - 1 - from);
}

/* Verifies a draft as if a random number of its tokens were accepted. */
static void verify(struct pair *p, struct text *t, const pl_draft *q)
{
    const int n = (int)test_below(&p->seed, (uint64_t)q->n + 1);
    int64_t kept;
    pl_err err;

    memcpy(t->token + t->n, q->token, (size_t)q->n * sizeof *t->token);
    read_tokens(p->engine, q->seq, t->token + t->n - 1, 1 + q->n);
    pl_draft_record(p->d, q->seq, n);
    t->n += n;
    t->token[t->n++] = (int32_t)test_below(&p->seed, N_VOCAB);
    TEST_OK(pl_seq_trim(p->engine, q->seq, t->n - 1, &kept, &err), err);
}

static void begin(struct pair *p, int seq, struct text *t, int64_t n)
{
    int64_t kept;

    pl_draft_forget(p->d, seq);
    pl_seq_trim(p->engine, seq, 0, &kept, NULL);
    t->n = n;
    for (int64_t i = 0; i < n; i++)
        t->token[i] = (int32_t)test_below(&p->seed, N_VOCAB);
}

/* Drafts some of the texts. Returns the number of drafts. */
static int propose(struct pair *p, struct text *text, bool may_lack)
{
    int32_t token[N_TEXT][PL_DRAFT_MAX];
    pl_draft q[N_TEXT];
    int n = 0, n_draft = 0;
    pl_err err;

    for (int i = 0; i < N_TEXT; i++) {
        if (test_below(&p->seed, 4) == 0)
            continue;
        read_text(p, i, &text[i]);
        q[n] = (pl_draft){.seq = i,
                          .text = text[i].token,
                          .n_text = text[i].n,
                          .n_most = 1 + (int64_t)test_below(&p->seed, 8),
                          .token = token[n]};
        n++;
    }
    TEST_OK(pl_draft_propose(p->d, q, n, n, PL_DRAFT_MAX, &err), err);
    for (int i = 0; i < n; i++) {
        struct text *t = &text[q[i].seq];
        const int64_t most =
            q[i].n_most < MOST_DRAFT ? q[i].n_most : MOST_DRAFT;

        if (!may_lack)
            assert_int_equal(q[i].n, most);
        if (q[i].n > 0)
            expect_greedy(p, t, &q[i]);
        n_draft += q[i].n > 0;
        verify(p, t, &q[i]);
        /* Sometimes tokens follow without a draft. */
        while (test_below(&p->seed, 3) == 0 && t->n < MOST_TEXT - 100) {
            read_text(p, q[i].seq, t);
            t->token[t->n++] = (int32_t)test_below(&p->seed, N_VOCAB);
        }
    }
    return n_draft;
}

TEST(mtp_drafts_are_those_of_the_whole_text)
{
    struct text *text = test_need(N_TEXT, sizeof *text);

    for (int k = 0; k < 3; k++) {
        struct pair *p = test_need(1, sizeof *p);
        int n_draft = 0;

        set_up(p, model_path(k), MOST_TEXT * N_TEXT);
        for (int i = 0; i < N_TEXT; i++)
            begin(p, i, &text[i], 2 + 40 * i);
        for (int round = 0; round < test_draws(16, 800); round++) {
            const int i = (int)test_below(&p->seed, N_TEXT);

            n_draft += propose(p, text, false);
            if (text[i].n > 200 || test_below(&p->seed, 6) == 0)
                begin(p, i, &text[i], 2 + (int64_t)test_below(&p->seed, 50));
        }
        /* A text that is longer than what waits for the block, read at once and
         * token by token. */
        begin(p, 0, &text[0], 700);
        begin(p, 1, &text[1], 10);
        for (int i = 0; i < 380; i++) {
            read_text(p, 1, &text[1]);
            text[1].token[text[1].n++] = (int32_t)test_below(&p->seed, N_VOCAB);
        }
        for (int round = 0; round < 3; round++)
            n_draft += propose(p, text, false);
        printf("%d drafts\n", n_draft);
        assert_true(n_draft > 10);
        tear_down(p);
    }
    free(text);
}

/* Texts in a cache that does not hold them all, and one whose beginning another
 * engine computed: those without what they need get no draft, or one of a part
 * of the text. */
TEST(mtp_without_space_or_values_drafts_less)
{
    struct text *text = test_need(N_TEXT, sizeof *text);
    struct pair *p = test_need(1, sizeof *p);
    int32_t token[PL_DRAFT_MAX];
    pl_draft q = {.seq = 0, .n_most = 4, .token = token};
    int n_draft = 0;
    pl_err err;

    set_up(p, model_path(2), 192);
    for (int i = 0; i < N_TEXT; i++)
        begin(p, i, &text[i], 70);
    for (int round = 0; round < 30; round++)
        for (int i = 0; i < N_TEXT; i++) {
            read_text(p, i, &text[i]);
            q.seq = i;
            q.text = text[i].token;
            q.n_text = text[i].n;
            TEST_OK(pl_draft_propose(p->d, &q, 1, 1, 4, &err), err);
            n_draft += q.n > 0;
            verify(p, &text[i], &q);
        }
    assert_true(n_draft > 5);
    /* The first tokens come from a copy of another sequence. */
    begin(p, 0, &text[0], 20);
    TEST_OK(pl_seq_copy(p->engine, 0, 1, &err), err);
    text[0] = text[1];
    pl_draft_forget(p->d, 1);
    pl_draft_forget(p->d, 2);
    q.seq = 0;
    q.text = text[0].token;
    for (int i = 0; i < 2; i++) {
        q.n_text = text[0].n;
        TEST_OK(pl_draft_propose(p->d, &q, 1, 1, 4, &err), err);
        assert_int_equal(q.n, i == 0 ? 0 : 4);
        verify(p, &text[0], &q);
    }
    tear_down(p);
    free(text);
}

/* Begins text `seq` with the first n tokens of text `from` and `more` others.
 * The model's engine takes what its cache has of them. Returns the number. */
static int64_t begin_like(struct pair *p, int seq, struct text *t,
                          const struct text *from, int64_t n, int64_t more)
{
    int64_t kept, shared;
    pl_err err;

    pl_draft_forget(p->d, seq);
    pl_seq_trim(p->engine, seq, 0, &kept, NULL);
    memmove(t->token, from->token, (size_t)n * sizeof *t->token);
    t->n = n + more;
    for (int64_t i = n; i < t->n; i++)
        t->token[i] = (int32_t)test_below(&p->seed, N_VOCAB);
    TEST_OK(pl_seq_share(p->engine, seq, t->token, t->n, &shared, &err), err);
    pl_draft_begin(p->d, seq, t->token, t->n, shared);
    return shared;
}

/* Drafts text `seq` and verifies the draft, which must have four tokens.
 * Returns whether it is the one that the block computes from the whole text. */
static bool drafts_like_whole(struct pair *p, int seq, struct text *t)
{
    int32_t token[PL_DRAFT_MAX];
    pl_draft q = {.seq = seq, .n_most = 4, .token = token};
    bool like;
    pl_err err;

    read_text(p, seq, t);
    q.text = t->token;
    q.n_text = t->n;
    TEST_OK(pl_draft_propose(p->d, &q, 1, 1, 4, &err), err);
    assert_int_equal(q.n, 4);
    like = greedy_tokens(p, t, &q) == q.n;
    verify(p, t, &q);
    return like;
}

/* Texts begin as others do that are there or that ended, at any length. The
 * model takes the beginning from its cache, so its hidden values are not there.
 * The block has the rows of the other text. A row is missing only if the texts
 * differ just where the model's cache ends, or if the other one lacks it. */
TEST(mtp_drafts_after_a_cached_prefix_are_those_of_the_whole_text)
{
    struct text *text = test_need(N_TEXT, sizeof *text);

    for (int k = 0; k < 3; k++) {
        struct pair *p = test_need(1, sizeof *p);
        bool lacks[N_TEXT] = {false};
        int n_shared = 0, n_missing = 0;

        set_up(p, model_path(k), MOST_TEXT * N_TEXT);
        begin(p, 0, &text[0], 300);
        assert_true(drafts_like_whole(p, 0, &text[0]));
        for (int round = 0; round < test_draws(4, 400); round++) {
            const int i = (int)test_below(&p->seed, N_TEXT);
            const struct text *from = &text[test_below(&p->seed, N_TEXT)];
            int64_t n, shared;

            if (from->n < 90)
                from = &text[0];
            n = from->n - (int64_t)test_below(&p->seed, 80);
            shared = begin_like(p, i, &text[i], from, n > 0 ? n : 0,
                                2 + (int64_t)test_below(&p->seed, 80));
            n_shared += shared > 0;
            lacks[i] = shared > 0 && (shared >= n || lacks[from - text]);
            for (int m = 0; m < 3; m++) {
                const bool whole = drafts_like_whole(p, i, &text[i]);

                assert_true(whole || lacks[i]);
                n_missing += !whole;
            }
            if (text[i].n > 600) {
                begin(p, i, &text[i], 200);
                lacks[i] = false;
            }
        }
        printf("%d texts began with cached tokens, %d drafts lacked some\n",
               n_shared, n_missing);
        assert_true(n_shared > 0);
        tear_down(p);
    }
    free(text);
}

/* Texts in a block whose cache has no space for those that ended, and tokens
 * that come from a state that no text had: drafts go on with later tokens. */
TEST(mtp_drafts_go_on_after_tokens_that_are_missing)
{
    struct text *text = test_need(N_TEXT, sizeof *text);
    struct pair *p = test_need(1, sizeof *p);
    void *saved;
    size_t bytes;
    pl_err err;

    set_up(p, model_path(2), 640);
    begin(p, 0, &text[0], 150);
    drafts_like_whole(p, 0, &text[0]);
    for (int i = 0; i < 4; i++) {
        begin(p, 1, &text[1], 130);
        assert_true(drafts_like_whole(p, 1, &text[1]));
        begin_like(p, 0, &text[0], &text[0], 140, 4);
        (void)drafts_like_whole(p, 0, &text[0]);
    }
    TEST_OK(pl_state_save_memory(p->engine, 0, 0, -1, &saved, &bytes, &err),
            err);
    text[0].n = pl_seq_length(p->engine, 0);
    for (int told = 0; told < 2; told++) {
        pl_draft_forget(p->d, 2);
        text[2] = text[0];
        TEST_OK(pl_state_restore_memory(p->engine, 2, saved, bytes, 0, &err),
                err);
        if (told > 0)
            pl_draft_begin(p->d, 2, text[2].token, text[2].n, text[2].n);
        for (int i = 0; i < 3; i++)
            text[2].token[text[2].n++] = 7 + i;
        for (int i = 0; i < 3; i++)
            (void)drafts_like_whole(p, 2, &text[2]);
    }
    free(saved);
    tear_down(p);
    free(text);
}

static pl_status use(struct pair *p, struct text *t, pl_err *err)
{
    int32_t token[PL_DRAFT_MAX];
    pl_draft q = {
        .text = t->token, .n_text = t->n, .n_most = 3, .token = token};
    float *row = calloc(WIDTH, sizeof *row);
    pl_draft_options o;
    pl_drafter *d;
    pl_status s;

    if (!row) {
        err->status = PL_NO_MEMORY;
        return PL_NO_MEMORY;
    }
    pl_draft_init(&o);
    o.limits.sources = 1u << PL_DRAFT_MTP;
    o.limits.n_max = 3;
    o.n_seq = N_TEXT;
    s = pl_drafter_create(&d, &o, err);
    if (s == PL_OK)
        s = pl_draft_attach(d, p->model, p->owner, err);
    for (int32_t i = 0; s == PL_OK && i + 1 < t->n; i++) {
        const pl_hidden_rows rows = {.n = 1,
                                     .token = &t->token[i],
                                     .seq = &(int32_t){0},
                                     .pos = &i,
                                     .d_model = WIDTH,
                                     .value = row};

        pl_draft_hidden(d, &rows);
    }
    if (s == PL_OK)
        s = pl_draft_propose(d, &q, 1, 1, 3, err);
    /* A value that could not be kept is lost, and the block begins after it. */
    if (s == PL_OK && pl_seq_length(p->block, 0) < t->n - 1) {
        err->status = PL_NO_MEMORY;
        s = PL_NO_MEMORY;
    } else {
        assert_int_equal(q.n, s == PL_OK ? 3 : 0);
    }
    pl_drafter_free(d);
    free(row);
    return s;
}

TEST(mtp_survives_each_failed_allocation)
{
    struct text *text = test_need(1, sizeof *text);
    struct pair *p = test_need(1, sizeof *p);
    pl_err err;

    set_up(p, model_path(2), 512);
    begin(p, 0, text, 20);
    TEST_OK(use(p, text, &err), err);
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(use(p, text, &err));
    tear_down(p);
    free(text);
}

TEST(mtp_without_what_it_needs_is_rejected_by_name)
{
    struct pair *p = test_need(1, sizeof *p);
    pl_options e = pair_options(1, 256);
    pl_draft_options o;
    pl_drafter *d;
    pl_engine *none;
    pl_model *m;
    pl_err err;

    set_up(p, model_path(2), 256);
    pl_draft_init(&o);
    o.limits.sources = 1u << PL_DRAFT_MTP;
    o.n_seq = N_TEXT;
    TEST_OK(pl_drafter_create(&d, &o, &err), err);
    assert_int_equal(pl_draft_attach(d, p->model, p->engine, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "set pl_options.mtp_texts"));
    TEST_OK(pl_draft_attach(d, p->model, p->owner, &err), err);
    assert_int_equal(pl_draft_attach(d, p->model, p->owner, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "the drafter has a block"));
    pl_drafter_free(d);
    o.n_seq = 2 * N_TEXT + 9; /* the engine has more than that for texts that
                                 ended */
    TEST_OK(pl_drafter_create(&d, &o, &err), err);
    assert_int_equal(pl_draft_attach(d, p->model, p->owner, &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "prediction of 15 texts"));
    pl_drafter_free(d);
    TEST_OK(pl_model_open(&m, ref_model_path("llama-yarn-f32"), &err), err);
    for (int with = 0; with < 2; with++) {
        e.hidden = with ? keep_rows : NULL;
        e.mtp_texts = !with;
        assert_int_equal(pl_engine_create(&none, m, &e, &err), PL_BAD_ARGUMENT);
        assert_non_null(
            strstr(err.message, "no multi-token prediction blocks"));
        e.mtp = 1;
        assert_int_equal(pl_engine_create(&none, p->model, &e, &err),
                         PL_BAD_ARGUMENT);
        assert_non_null(
            strstr(err.message, "a multi-token prediction block has"));
        e.mtp = 0;
    }
    pl_model_free(m);
    tear_down(p);
}
