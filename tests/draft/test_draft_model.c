/* Drafts of a draft model are the tokens that the model finds the most
 * probable, whatever became of the drafts before: its sequences follow texts
 * that grow, end and begin alike. Its vocabulary must be that of the model. */
#include "lib/alloc_fail.h"
#include "lib/ref_models.h"
#include "lib/support.h"
#include "pl_draft.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TEXT = 3, MOST_TEXT = 2048, MOST_DRAFT = 9 };

/* A draft model with a drafter, and the same model, which computes each draft
 * again from nothing. */
struct pair {
    pl_model *model;
    pl_engine *engine, *fresh;
    pl_drafter *d;
    int64_t n_vocab;
    float *logits;
    uint64_t seed;
};

struct text {
    int32_t token[MOST_TEXT];
    int64_t n;
};

static pl_engine *engine_of(const pl_model *m, int n_seq, int64_t n_ctx)
{
    pl_options o;
    pl_engine *e;
    pl_err err;

    pl_options_init(&o);
    o.devices = "cpu";
    o.n_threads = 1;
    o.n_ctx = n_ctx;
    o.n_seq = n_seq;
    o.n_checkpoint = 4 + 2 * n_seq;
    o.prefix_cache = true;
    o.no_fit = true;
    TEST_OK(pl_engine_create(&e, m, &o, &err), err);
    return e;
}

static void set_up(struct pair *p, const char *file, int64_t n_ctx)
{
    pl_draft_options o;
    pl_err err;

    *p = (struct pair){.seed = test_seed_value()};
    TEST_OK(pl_model_open(&p->model, file, &err), err);
    p->engine = engine_of(p->model, N_TEXT, n_ctx);
    p->fresh = engine_of(p->model, 1, MOST_TEXT);
    p->n_vocab = pl_model_n_vocab(p->model);
    p->logits = test_need((size_t)p->n_vocab, sizeof *p->logits);
    pl_draft_init(&o);
    o.limits.sources = 1u << PL_DRAFT_SIMPLE;
    o.limits.n_max = MOST_DRAFT;
    o.n_seq = N_TEXT;
    o.n_vocab = p->n_vocab;
    o.model = p->model;
    o.engine = p->engine;
    TEST_OK(pl_drafter_create(&p->d, &o, &err), err);
}

static void tear_down(struct pair *p)
{
    pl_drafter_free(p->d);
    pl_engine_free(p->engine);
    pl_engine_free(p->fresh);
    pl_model_free(p->model);
    free(p->logits);
}

/* Appends n tokens to the sequence of p->fresh. Returns the most probable next
 * token, and its probability. */
static int32_t next_of(struct pair *p, const int32_t *token, int64_t n,
                       double *sure)
{
    uint8_t *wanted = test_need((size_t)n, 1);
    pl_batch b;
    double sum = 0;
    int32_t best = 0;
    pl_err err;

    wanted[n - 1] = 1;
    pl_batch_init(&b);
    b.n = n;
    b.token = token;
    b.wanted = wanted;
    b.logits = p->logits;
    TEST_OK(pl_engine_decode(p->fresh, &b, NULL, &err), err);
    free(wanted);
    for (int32_t i = 1; i < p->n_vocab; i++)
        if (p->logits[i] > p->logits[best])
            best = i;
    for (int32_t i = 0; i < p->n_vocab; i++)
        sum += exp((double)p->logits[i] - (double)p->logits[best]);
    *sure = 1 / sum;
    return best;
}

/* Checks that a draft is what p->fresh computes, up to a token that is less
 * probable than p_min, or the n_max-th. */
static void expect_greedy(struct pair *p, const struct text *t,
                          const pl_draft *q)
{
    const pl_draft_limits *limits = q->limits;
    int most = (int)(q->n_most < limits->n_max ? q->n_most : limits->n_max);
    double sure;
    int32_t token;
    int64_t kept;

    TEST_OK(pl_seq_trim(p->fresh, 0, 0, &kept, NULL), (pl_err){0});
    token = next_of(p, t->token, t->n, &sure);
    for (int i = 0; i < q->n; i++) {
        assert_int_equal(q->token[i], token);
        assert_true(sure > (double)limits->p_min - 1e-4);
        token = next_of(p, &token, 1, &sure);
    }
    assert_true(q->n <= most);
    assert_true(q->n == most || sure < (double)limits->p_min + 1e-4);
}

/* Lets the text grow as if some tokens of the draft were accepted. */
static void grow(struct pair *p, struct text *t, const pl_draft *q)
{
    int n = (int)test_below(&p->seed, (uint64_t)q->n + 1);

    pl_draft_record(p->d, q->seq, n);
    memcpy(t->token + t->n, q->token, (size_t)n * sizeof *t->token);
    t->n += n;
    t->token[t->n++] = (int32_t)test_below(&p->seed, p->n_vocab);
}

/* Begins a text with a part of another one and n tokens. */
static void begin(struct pair *p, struct text *t, const struct text *other,
                  int64_t n)
{
    t->n = other ? (int64_t)test_below(&p->seed, (uint64_t)other->n + 1) : 0;
    if (other)
        memmove(t->token, other->token, (size_t)t->n * sizeof *t->token);
    for (int64_t i = 0; i < n; i++)
        t->token[t->n++] = (int32_t)test_below(&p->seed, p->n_vocab);
}

/* Drafts some of the texts. Returns the number of drafts. */
static int propose(struct pair *p, struct text *text, bool may_lack)
{
    int32_t token[N_TEXT][PL_DRAFT_MAX];
    pl_draft_limits limits[N_TEXT];
    pl_draft q[N_TEXT];
    int n = 0, n_draft = 0;
    pl_err err;

    for (int i = 0; i < N_TEXT; i++) {
        if (test_below(&p->seed, 3) == 0)
            continue;
        limits[n] = (pl_draft_limits){
            .sources = 1u << PL_DRAFT_SIMPLE,
            .n_max = (int)test_below(&p->seed, MOST_DRAFT + 1),
            .p_min = test_below(&p->seed, 2) ? 0.02f : 0};
        q[n] = (pl_draft){.seq = i,
                          .text = text[i].token,
                          .n_text = text[i].n,
                          .n_most = 1 + (int64_t)test_below(&p->seed, 12),
                          .limits = &limits[n],
                          .token = token[n]};
        n++;
    }
    TEST_OK(pl_draft_propose(p->d, q, n, n, PL_DRAFT_MAX, &err), err);
    for (int i = 0; i < n; i++) {
        struct text *t = &text[q[i].seq];

        if (q[i].n > 0 || !may_lack)
            expect_greedy(p, t, &q[i]);
        n_draft += q[i].n > 0;
        grow(p, t, &q[i]);
    }
    return n_draft;
}

TEST(draft_model_proposes_its_most_probable_tokens)
{
    static const char *const models[] = {"llama-gqa-f32", "gemma3-swa-f32",
                                         "qwen35-dense-f32"};
    struct text *text = test_need(N_TEXT, sizeof *text);

    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct pair p;
        int n_draft = 0;

        set_up(&p, ref_model_path(models[m]), 2048);
        for (int i = 0; i < N_TEXT; i++)
            begin(&p, &text[i], NULL, 1 + 40 * i);
        for (int round = 0; round < test_draws(60, 3000); round++) {
            const int i = (int)test_below(&p.seed, N_TEXT);

            n_draft += propose(&p, text, false);
            if (text[i].n > 300 || test_below(&p.seed, 8) == 0) {
                pl_draft_forget(p.d, i);
                begin(&p, &text[i], &text[(i + 1) % N_TEXT], 1);
                text[i].n = text[i].n < 200 ? text[i].n : 200;
            }
        }
        printf("%s: %d drafts\n", models[m], n_draft);
        assert_true(n_draft > 5);
        tear_down(&p);
    }
    free(text);
}

/* A long text is read over several calls, while others get drafts. */
TEST(draft_model_reads_a_long_text_in_parts)
{
    struct text *text = test_need(N_TEXT, sizeof *text);
    int32_t token[2][PL_DRAFT_MAX];
    const pl_draft_limits limits = {.sources = 1u << PL_DRAFT_SIMPLE,
                                    .n_max = 3};
    struct pair p;
    int n_without = 0;
    pl_err err;

    set_up(&p, ref_model_path("llama-gqa-f32"), 2048);
    begin(&p, &text[0], NULL, 1700);
    begin(&p, &text[1], NULL, 5);
    for (int round = 0; round < 6; round++) {
        pl_draft q[2];

        for (int i = 0; i < 2; i++)
            q[i] = (pl_draft){.seq = i,
                              .text = text[i].token,
                              .n_text = text[i].n,
                              .n_most = 3,
                              .limits = &limits,
                              .token = token[i]};
        TEST_OK(pl_draft_propose(p.d, q, 2, 2, PL_DRAFT_MAX, &err), err);
        for (int i = 0; i < 2; i++) {
            if (i == 1 || q[i].n > 0)
                expect_greedy(&p, &text[i], &q[i]);
            n_without += q[i].n == 0;
            grow(&p, &text[i], &q[i]);
        }
    }
    assert_int_equal(n_without, 3);
    tear_down(&p);
    free(text);
}

/* Three texts in a cache that does not hold them all, and one that is longer
 * than the cache: those without space get no draft. */
TEST(draft_model_without_space_drafts_less)
{
    struct text *text = test_need(N_TEXT, sizeof *text);
    struct pair p;
    int n_draft = 0, n_later = 0;

    set_up(&p, ref_model_path("llama-gqa-f32"), 256);
    for (int i = 0; i < N_TEXT; i++)
        begin(&p, &text[i], NULL, 90);
    for (int round = 0; round < 40; round++) {
        int n = propose(&p, text, true);

        n_draft += n;
        n_later += round >= 20 ? n : 0;
        if (round == 10) {
            pl_draft_forget(p.d, 1);
            begin(&p, &text[1], NULL, 300);
        }
        for (int i = 0; round == 20 && i < N_TEXT; i++) {
            pl_draft_forget(p.d, i);
            begin(&p, &text[i], NULL, 3);
        }
    }
    assert_true(n_draft > 10);
    assert_true(n_later > 5);
    tear_down(&p);
    free(text);
}

static pl_status use(struct pair *p, const struct text *t, pl_err *err)
{
    int32_t token[PL_DRAFT_MAX];
    pl_draft q = {
        .text = t->token, .n_text = t->n, .n_most = 3, .token = token};
    pl_draft_options o;
    pl_drafter *d;
    pl_status s;

    pl_draft_init(&o);
    o.limits.sources = 1u << PL_DRAFT_SIMPLE;
    o.limits.n_max = 3;
    o.n_seq = N_TEXT;
    o.n_vocab = p->n_vocab;
    o.model = p->model;
    o.engine = p->engine;
    s = pl_drafter_create(&d, &o, err);
    if (s == PL_OK)
        s = pl_draft_propose(d, &q, 1, 1, 3, err);
    assert_true(s == PL_OK ? q.n == 3 : q.n == 0);
    pl_drafter_free(d);
    return s;
}

TEST(draft_model_survives_each_failed_allocation)
{
    struct text *text = test_need(1, sizeof *text);
    struct pair p;
    pl_err err;

    set_up(&p, ref_model_path("llama-gqa-f32"), 512);
    begin(&p, text, NULL, 20);
    TEST_OK(use(&p, text, &err), err);
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(use(&p, text, &err));
    tear_down(&p);
    free(text);
}

TEST(draft_model_without_what_it_needs_is_rejected_by_name)
{
    struct pair p;
    pl_draft_options o;
    pl_drafter *d;
    pl_err err;

    set_up(&p, ref_model_path("llama-gqa-f32"), 256);
    pl_draft_init(&o);
    o.limits.sources = 1u << PL_DRAFT_SIMPLE;
    assert_int_equal(pl_drafter_create(&d, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "set engine"));
    o.engine = p.engine;
    assert_int_equal(pl_drafter_create(&d, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "set model"));
    o.model = p.model;
    o.n_seq = N_TEXT + 1;
    assert_int_equal(pl_drafter_create(&d, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "n_seq to 4"));
    tear_down(&p);
}

/* ---- vocabularies -------------------------------------------------------- */

static pl_status check(const char *model, const char *draft, pl_err *err)
{
    pl_model *m, *d;
    pl_status s;

    TEST_OK(pl_model_open(&m, model, err), *err);
    TEST_OK(pl_model_open(&d, draft, err), *err);
    s = pl_draft_check_model(m, d, err);
    pl_model_free(m);
    pl_model_free(d);
    return s;
}

TEST(draft_model_needs_the_vocabulary_of_the_model)
{
    const char *llama = ref_model_path("llama-yarn-f32");
    pl_err err;

    TEST_OK(check(llama, ref_model_path("llama-q-q8_0"), &err), err);
    assert_int_equal(check(llama, ref_model_path("llama-wide-q4_k_m"), &err),
                     PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "token 288 is \"!\", the model's is"));
    assert_int_equal(check(llama, ref_model_path("qwen2-bias-f32"), &err),
                     PL_UNSUPPORTED);
    assert_non_null(
        strstr(err.message, "is of kind gpt2, the model's of kind"));
    assert_int_equal(check(llama, test_model(), &err), PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "use a draft model with"));
    assert_int_equal(pl_draft_check_model(NULL, NULL, &err), PL_BAD_ARGUMENT);
}
