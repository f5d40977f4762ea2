/* Loops with drafts; see draft_loop.h. */
#include "lib/draft_loop.h"

#include "lib/loop_states.h"

#include <stdio.h>
#include <string.h>

/* Returns the plain text that begins as the draft's does, or NULL. */
static const struct told *plain_of(const struct oracle *o, const pl_draft *q)
{
    for (int i = 0; i < o->n; i++) {
        const struct told *t = &o->plain[i];

        if (q->n_text <= t->n_prompt + t->n &&
            memcmp(t->text, q->text, (size_t)q->n_text * sizeof *t->text) == 0)
            return t;
    }
    return NULL;
}

static void draft(void *user, pl_draft *q, int n)
{
    struct oracle *o = user;

    for (int i = 0; i < n; i++) {
        const struct told *t = plain_of(o, &q[i]);

        for (; t && q[i].n < q[i].n_most; q[i].n++) {
            int64_t at = q[i].n_text + q[i].n;
            int32_t id = at < t->n_prompt + t->n ? t->text[at] : o->eog;
            bool wrong = o->quality == WRONG ||
                         (o->quality == MIXED && test_below(&o->seed, 4) == 0);

            q[i].token[q[i].n] =
                wrong
                    ? (int32_t)((id + 1 + test_below(&o->seed, 5)) % o->n_vocab)
                    : id;
        }
    }
}

pl_options place_options(int64_t n_ctx)
{
    pl_options o;

    pl_options_init(&o);
    o.devices = "cpu";
    o.n_ctx = n_ctx;
    o.n_ubatch = 64;
    o.n_seq = MOST_TASK;
    o.n_checkpoint = 2 * MOST_TASK;
    o.n_threads = 1;
    o.no_fit = true;
    o.prefix_cache = true;
    return o;
}

/* Gives hidden values to the drafter of the present loop. */
static void receive(void *user, const pl_hidden_rows *rows)
{
    const struct place *p = user;

    pl_draft_hidden(p->drafter, rows);
}

void place_open(struct place *p, const char *file, pl_options o, bool block)
{
    pl_err err;

    *p = (struct place){.oracle.eog = -1, .limits.n_max = 9};
    TEST_OK(pl_model_open(&p->model, file, &err), err);
    if (block) {
        o.mtp_texts = o.n_seq;
        o.hidden = receive;
        o.hidden_user = p;
    }
    TEST_OK(pl_engine_create(&p->engine, p->model, &o, &err), err);
    p->block = pl_engine_mtp(p->engine);
    assert_int_equal(p->block != NULL, block);
    p->t = pl_model_tokenizer(p->model);
    p->oracle.n_vocab = pl_model_n_vocab(p->model);
    for (int32_t i = 0; i < p->oracle.n_vocab && p->oracle.eog < 0; i++)
        if (pl_token_is_eog(p->t, i))
            p->oracle.eog = i;
}

void place_open_draft_model(struct place *p, const char *file, int64_t n_ctx)
{
    const pl_options o = place_options(n_ctx);
    pl_err err;

    TEST_OK(pl_model_open(&p->draft_model, file, &err), err);
    TEST_OK(pl_engine_create(&p->draft_engine, p->draft_model, &o, &err), err);
}

void place_close(struct place *p)
{
    pl_engine_free(p->engine);
    pl_model_free(p->model);
    pl_engine_free(p->draft_engine);
    pl_model_free(p->draft_model);
}

void place_start(struct place *p, int n_seq, bool drafts)
{
    struct loop_options lo = {.n_seq = n_seq, .step = 64};
    pl_draft_options o;
    pl_err err;

    pl_draft_init(&o);
    o.n_seq = n_seq;
    o.n_vocab = p->oracle.n_vocab;
    o.limits = p->limits;
    if (o.limits.sources == 0)
        o.limits.sources = 1u << (p->block          ? PL_DRAFT_MTP
                                  : p->draft_engine ? PL_DRAFT_SIMPLE
                                                    : PL_DRAFT_CALLER);
    if (p->n_gram > 0)
        o.simple_n = o.map_n = p->n_gram;
    o.model = p->draft_model;
    o.engine = p->draft_engine;
    o.propose = draft;
    o.propose_user = &p->oracle;
    p->drafter = NULL;
    if (drafts)
        TEST_OK(pl_drafter_create(&p->drafter, &o, &err), err);
    if (drafts && p->block)
        TEST_OK(pl_draft_attach(p->drafter, p->model, p->engine, &err), err);
    lo.drafter = p->drafter;
    TEST_OK(loop_create(&p->loop, p->engine, p->t, &lo, &err), err);
}

void place_stop(struct place *p)
{
    struct loop_counts c;

    expect_drawn_edges(p->loop);
    loop_counts(p->loop, &c);
    p->n_drafted += c.n_draft_token;
    p->n_accepted += c.n_draft_accepted;
    p->n_preemptions += c.n_preemptions;
    assert_int_equal(c.n_failed, 0);
    assert_int_equal(c.n_running + c.n_waiting + c.n_preempted, 0);
    loop_free(p->loop);
    pl_drafter_free(p->drafter);
}

static bool hear_token(void *user, int32_t id, const float *logits)
{
    struct told *t = user;
    uint32_t sum = 0, bits;

    for (int64_t i = 0; i < t->of->n_vocab; i++) {
        memcpy(&bits, &logits[i], sizeof bits);
        sum = sum * 31 + bits;
    }
    assert_true(t->n_prompt + t->n < MOST_TOKEN);
    t->text[t->n_prompt + t->n] = id;
    t->sum[t->n++] = sum;
    if (t->n == t->leave)
        t->state = CLIENT_GONE;
    return t->n != t->most;
}

static int32_t tell_forced(void *user)
{
    const struct told *t = user;

    return t->forced && t->n % 7 == 5 ? 10 + t->n % 200 : -1;
}

static enum client_state tell_state(void *user)
{
    return ((struct told *)user)->state;
}

static void hear_end(void *user, const struct task_report *report)
{
    struct told *t = user;

    t->report = *report;
    t->n_end++;
}

void place_add_task(struct place *p, struct told *t, const pl_sampling *how,
                    struct task_params params)
{
    pl_err err;

    t->of = &p->oracle;
    t->state = CLIENT_READY;
    params.prompt = t->text;
    params.n_prompt = t->n_prompt;
    params.sampling = how;
    params.slot = -1;
    params.listener = (struct task_callbacks){.token = hear_token,
                                              .forced = tell_forced,
                                              .poll_client = tell_state,
                                              .end = hear_end,
                                              .user = t};
    TEST_OK(loop_add(p->loop, &params, 1, NULL, &err), err);
}

void place_add(struct place *p, struct told *t, int i, int n_prompt,
               struct task_params params)
{
    uint64_t seed = (uint64_t)i;
    pl_sampling how;

    t->n_prompt = n_prompt;
    for (int k = 0; k < n_prompt; k++)
        t->text[k] = (int32_t)test_below(&seed, p->oracle.n_vocab);
    pl_sampling_init(&how);
    how.seed = seed;
    how.repeat_penalty = 1.1f;
    how.temperature = i % 2 == 0 ? 0 : 0.9f;
    params.client = 1 + (uint64_t)i % 3;
    place_add_task(p, t, &how, params);
}

void told_wait(const struct told *t)
{
    TEST_UNTIL(t->n_end > 0);
}

void told_expect_same(const struct told *a, const struct told *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->report.why, b->report.why);
    assert_memory_equal(a->text, b->text,
                        (size_t)(a->n_prompt + a->n) * sizeof *a->text);
    assert_memory_equal(a->sum, b->sum, (size_t)a->n * sizeof *a->sum);
}

void place_expect_both(const struct place *p)
{
    printf("%llu of %llu drafted tokens were accepted\n",
           (unsigned long long)p->n_accepted, (unsigned long long)p->n_drafted);
    assert_true(p->n_accepted > 0);
    assert_true(p->n_accepted < p->n_drafted);
}
