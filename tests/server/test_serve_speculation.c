/* Tasks of the loop with drafts generate the tokens, and see the logits, of
 * those without: alone and in company, whether the drafts are right, wrong or
 * both, and wherever the text ends. The drafts come from a source that knows
 * the plain texts. */
#include "lib/edit_model.h"
#include "lib/loop_states.h"
#include "lib/made_model.h"
#include "lib/ref_models.h"
#include "lib/serve_try.h"
#include "lib/support.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TASK = 8, MOST_TOKEN = 512 };

/* The quality of drafts; MIXED ones are right at three of four tokens. */
enum quality { RIGHT, WRONG, MIXED, N_QUALITY };

/* A task: its prompt, its end, and the tokens that it generated. */
struct told {
    struct oracle *of;
    int32_t text[MOST_TOKEN]; /* the prompt and the generated tokens */
    int n_prompt, n;
    uint32_t sum[MOST_TOKEN]; /* sums of the logits' bits */
    int most, leave;          /* tokens after which it stops; disconnects */
    bool forced;              /* some tokens are forced */
    _Atomic enum client_state state;
    struct task_report report;
    atomic_int n_end;
};

/* The source of drafts, and what it knows. */
struct oracle {
    const struct told *plain; /* [n]; NULL if nothing is known */
    int n;
    enum quality quality;
    uint64_t seed;
    int64_t n_vocab;
    int32_t eog; /* a token that ends a text */
};

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

/* ---- the loop and its tasks ---------------------------------------------- */

struct place {
    pl_model *model;
    pl_engine *engine;
    const pl_tokenizer *t;
    struct oracle oracle;
    int64_t n_ctx;
    struct loop *loop;
    pl_drafter *drafter;
    /* A draft model, which drafts instead of the oracle; NULL without one. */
    pl_model *draft_model;
    pl_engine *draft_engine;
    /* The model's block for multi-token prediction, which drafts instead; NULL
     * without one. */
    pl_engine *block;
    uint64_t n_drafted, n_accepted, n_preemptions;
};

static pl_options options(int64_t n_ctx)
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

/* Opens a model with an engine. */
static void open_model(pl_model **m, pl_engine **e, const char *file,
                       int64_t n_ctx)
{
    const pl_options o = options(n_ctx);
    pl_err err;

    TEST_OK(pl_model_open(m, file, &err), err);
    TEST_OK(pl_engine_create(e, *m, &o, &err), err);
}

/* Gives hidden values to the drafter of the present loop. */
static void receive(void *user, const pl_hidden_rows *rows)
{
    const struct place *p = user;

    pl_draft_hidden(p->drafter, rows);
}

static void open_with_block(struct place *p, const char *file, int64_t n_ctx)
{
    pl_options o = options(n_ctx);
    pl_err err;

    TEST_OK(pl_model_open(&p->model, file, &err), err);
    TEST_OK(pl_draft_mtp_engine(&p->block, p->model, &o, &err), err);
    o.hidden = receive;
    o.hidden_user = p;
    TEST_OK(pl_engine_create(&p->engine, p->model, &o, &err), err);
}

static void set_up_as(struct place *p, const char *file, int64_t n_ctx,
                      bool block)
{
    *p = (struct place){.oracle.eog = -1, .n_ctx = n_ctx};
    if (block)
        open_with_block(p, file, n_ctx);
    else
        open_model(&p->model, &p->engine, file, n_ctx);
    p->t = pl_model_tokenizer(p->model);
    p->oracle.n_vocab = pl_tokenizer_n_vocab(p->t);
    for (int32_t i = 0; i < p->oracle.n_vocab && p->oracle.eog < 0; i++)
        if (pl_token_is_eog(p->t, i))
            p->oracle.eog = i;
}

static void set_up(struct place *p, const char *file, int64_t n_ctx)
{
    set_up_as(p, file, n_ctx, false);
}

static void tear_down(struct place *p)
{
    pl_engine_free(p->engine);
    pl_engine_free(p->block);
    pl_model_free(p->model);
    pl_engine_free(p->draft_engine);
    pl_model_free(p->draft_model);
}

/* Starts a loop, whose steps draft as the oracle does if `drafts`. */
static void start(struct place *p, int n_seq, bool drafts)
{
    struct loop_options lo = {.n_seq = n_seq, .step = 64};
    pl_draft_options o;
    pl_err err;

    pl_draft_init(&o);
    o.n_seq = n_seq;
    o.n_vocab = p->oracle.n_vocab;
    o.limits.sources =
        1u << (p->draft_engine ? PL_DRAFT_SIMPLE : PL_DRAFT_CALLER);
    if (p->block)
        o.limits.sources = 1u << PL_DRAFT_MTP;
    o.limits.n_max = 9;
    o.mtp_model = p->block ? p->model : NULL;
    o.mtp_engine = p->block;
    o.model = p->draft_model;
    o.engine = p->draft_engine;
    o.propose = draft;
    o.propose_user = &p->oracle;
    p->drafter = NULL;
    if (drafts)
        TEST_OK(pl_drafter_create(&p->drafter, &o, &err), err);
    lo.drafter = p->drafter;
    TEST_OK(loop_create(&p->loop, p->engine, p->t, &lo, &err), err);
}

/* Ends the loop and adds its counters. */
static void stop(struct place *p)
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

    return t->forced && t->n % 7 == 5 ? 10 + t->n : -1;
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

/* Adds task i, whose prompt and seed depend on i alone. Even tasks are
 * greedy. */
static void add(struct place *p, struct told *t, int i, int n_prompt,
                struct task_params params)
{
    uint64_t seed = (uint64_t)i;
    pl_sampling how;
    pl_err err;

    t->of = &p->oracle;
    t->n_prompt = n_prompt;
    t->state = CLIENT_READY;
    for (int k = 0; k < n_prompt; k++)
        t->text[k] = (int32_t)test_below(&seed, p->oracle.n_vocab);
    pl_sampling_init(&how);
    how.seed = seed;
    how.repeat_penalty = 1.1f;
    how.temperature = i % 2 == 0 ? 0 : 0.9f;
    params.prompt = t->text;
    params.n_prompt = n_prompt;
    params.sampling = &how;
    params.slot = -1;
    params.client = 1 + (uint64_t)i % 3;
    params.listener = (struct task_callbacks){.token = hear_token,
                                              .forced = tell_forced,
                                              .poll_client = tell_state,
                                              .end = hear_end,
                                              .user = t};
    TEST_OK(loop_add(p->loop, &params, 1, NULL, &err), err);
}

static void wait_for(const struct told *t)
{
    TEST_UNTIL(t->n_end > 0);
}

static void expect_same(const struct told *a, const struct told *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->report.why, b->report.why);
    assert_memory_equal(a->text, b->text,
                        (size_t)(a->n_prompt + a->n) * sizeof *a->text);
    assert_memory_equal(a->sum, b->sum, (size_t)a->n * sizeof *a->sum);
}

static void expect_both(const struct place *p)
{
    printf("%llu of %llu drafted tokens were accepted\n",
           (unsigned long long)p->n_accepted, (unsigned long long)p->n_drafted);
    assert_true(p->n_accepted > 0);
    assert_true(p->n_accepted < p->n_drafted);
}

/* Runs n tasks of these parameters without drafts, one by one, then with drafts
 * of each quality, alone and n_seq at a time. */
static void compare(struct place *p, struct told *plain, int n, int n_seq,
                    int n_prompt, const struct task_params *params)
{
    struct told *with = test_need((size_t)n, sizeof *with);
    /* the oracle's quality does not matter to a draft model */
    const int n_quality = p->draft_engine || p->block ? 1 : N_QUALITY;

    p->oracle.n = 0;
    start(p, 1, false);
    for (int i = 0; i < n; i++) {
        add(p, &plain[i], i, n_prompt + 5 * i, *params);
        wait_for(&plain[i]);
    }
    stop(p);
    p->oracle.plain = plain;
    p->oracle.n = n;
    for (int round = 0; round < 2 * n_quality; round++) {
        p->oracle.quality = round % n_quality;
        p->oracle.seed = test_seed_value() + (uint64_t)round;
        start(p, round < n_quality ? 1 : n_seq, true);
        for (int i = 0; i < n; i++) {
            with[i] =
                (struct told){.most = plain[i].most, .forced = plain[i].forced};
            add(p, &with[i], i, n_prompt + 5 * i, *params);
        }
        for (int i = 0; i < n; i++) {
            wait_for(&with[i]);
            expect_same(&plain[i], &with[i]);
        }
        stop(p);
    }
    free(with);
}

TEST(speculation_tasks_of_each_kind_of_model_write_the_plain_text)
{
    enum { N = 4 };
    static const char *const models[] = {"llama-gqa-f32", "gemma3-swa-f32",
                                         "qwen35-dense-f32", "llama-moe-f32"};

    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct told *plain = test_need(N, sizeof *plain);
        struct place p;

        set_up(&p, ref_model_path(models[m]), 2048);
        compare(&p, plain, N, N, 20,
                &(struct task_params){.max_tokens = 90, .ignore_end = true});
        printf("%s: ", models[m]);
        expect_both(&p);
        tear_down(&p);
        free(plain);
    }
}

/* The text ends at its limit, by the listener (a stop string), by an
 * end-of-text token, or because the context is full; tokens are forced, and a
 * grammar constrains them. */
TEST(speculation_tasks_end_where_plain_ones_do)
{
    static const char form[] = "root ::= [a-z ]{5,60} \".\"";
    struct told plain[4] = {{0}};
    struct task_params params = {.max_tokens = 33, .ignore_end = true};
    struct place p;
    pl_err err;

    set_up(&p, test_model(), 192);
    compare(&p, plain, 4, 4, 10, &params);
    assert_int_equal(plain[0].report.why, FINISH_LENGTH);
    memset(plain, 0, sizeof plain);
    for (int i = 0; i < 4; i++) {
        plain[i].most = 9 + 5 * i;
        plain[i].forced = true;
    }
    params.max_tokens = -1;
    compare(&p, plain, 4, 4, 10, &params);
    assert_int_equal(plain[0].report.why, FINISH_STOPPED);
    memset(plain, 0, sizeof plain);
    compare(&p, plain, 2, 1, 10, &params);
    assert_int_equal(plain[0].report.why, FINISH_LENGTH);
    assert_int_equal(plain[0].n, 192 - 10);
    memset(plain, 0, sizeof plain);
    params.ignore_end = false;
    TEST_OK(pl_grammar_create(&params.grammar, p.t, PL_GRAMMAR_GBNF, form,
                              sizeof form - 1, NULL, &err),
            err);
    compare(&p, plain, 4, 4, 10, &params);
    assert_int_equal(plain[0].report.why, FINISH_EOG);
    pl_grammar_free(params.grammar);
    expect_both(&p);
    tear_down(&p);
}

/* Eight tasks in a cache that holds about three. A step that has no pages for
 * its drafts is tried without them before a task is preempted. */
TEST(speculation_tasks_that_are_preempted_write_the_plain_text)
{
    struct told *plain = test_need(MOST_TASK, sizeof *plain);
    struct place p;

    set_up(&p, test_model(), 512);
    compare(&p, plain, MOST_TASK, MOST_TASK, 10,
            &(struct task_params){.max_tokens = 110, .ignore_end = true});
    assert_true(p.n_preemptions > 0);
    expect_both(&p);
    tear_down(&p);
    free(plain);
}

/* A draft model that is sometimes wrong, alone, in company, and with tasks that
 * are preempted. */
TEST(speculation_with_a_draft_model_writes_the_plain_text)
{
    enum { N = 5 };
    static const struct edit other[] = {
        {".rope.freq_base", EDIT_FLOAT, 30000, NULL}};
    const char *draft = edit_model(test_model(), false, other, 1);
    struct told *plain = test_need(N, sizeof *plain);
    struct place p;

    set_up(&p, test_model(), 512);
    open_model(&p.draft_model, &p.draft_engine, draft, 512);
    compare(&p, plain, N, N, 10,
            &(struct task_params){.max_tokens = 150, .ignore_end = true});
    assert_true(p.n_preemptions > 0);
    expect_both(&p);
    tear_down(&p);
    free(plain);
}

/* The model's own block, alone, in company, with tasks that are preempted, and
 * with prefixes that come from a cache. Costs a second. */
TEST(speculation_with_multi_token_prediction_writes_the_plain_text)
{
    enum { N = 5 };
    static const char *const made[] = {"qwen35-dense-f32", "deepseek2-mla-f32"};

    for (int m = 0; m < 2; m++) {
        struct told *plain = test_need(N, sizeof *plain);
        struct place p;

        set_up_as(&p, made_model_with_block(made[m]), 512, true);
        compare(&p, plain, N, N, 10,
                &(struct task_params){.max_tokens = 130, .ignore_end = true});
        assert_true(p.n_preemptions > 0);
        expect_both(&p);
        tear_down(&p);
        free(plain);
    }
}

/* The client disconnects within a draft: all that it got is the beginning of
 * the plain text. */
TEST(speculation_task_is_cancelled_within_a_draft)
{
    struct told plain = {0}, with = {.leave = 13};
    struct task_params params = {.max_tokens = 60, .ignore_end = true};
    struct place p;

    set_up(&p, test_model(), 512);
    start(&p, 1, false);
    add(&p, &plain, 0, 20, params);
    wait_for(&plain);
    stop(&p);
    p.oracle.plain = &plain;
    p.oracle.n = 1;
    start(&p, 1, true);
    add(&p, &with, 0, 20, params);
    wait_for(&with);
    assert_int_equal(with.report.why, FINISH_CANCELLED);
    assert_true(with.n >= 13 && with.n < 13 + 10);
    assert_memory_equal(plain.sum, with.sum, (size_t)with.n * sizeof *with.sum);
    stop(&p);
    tear_down(&p);
}

/* Drafts count for the fair shares of clients only if they become text. */
TEST(speculation_serves_a_client_only_accepted_drafts)
{
    int64_t served[3];
    struct told plain = {0};
    struct task_params params = {.max_tokens = 60, .ignore_end = true};
    struct place p;

    set_up(&p, test_model(), 512);
    for (int i = 0; i < 3; i++) {
        struct told *t = i > 0 ? test_need(1, sizeof *t) : &plain;

        p.oracle.plain = &plain;
        p.oracle.n = i > 0;
        p.oracle.quality = i == 1 ? RIGHT : WRONG;
        start(&p, 1, i > 0);
        add(&p, t, 0, 20, params);
        wait_for(t);
        expect_same(&plain, t);
        assert_int_equal(t->report.n_drafted > 0, i > 0);
        assert_int_equal(t->report.n_accepted > 0, i == 1);
        loop_stop(p.loop);
        served[i] = p.loop->schedule.most;
        stop(&p);
        if (i > 0)
            free(t);
    }
    assert_int_equal(served[0], served[1]);
    assert_int_equal(served[0], served[2]);
    tear_down(&p);
}

/* ---- over HTTP ----------------------------------------------------------- */

#define PROMPT                                                                 \
    "\"prompt\":\"the dog and the dog and the\",\"n_predict\":80,"             \
    "\"temperature\":0"

/* Sends a request with these further fields. Returns the parsed response. */
static json_t *complete(struct serve_try *s, const char *more)
{
    char body[400], *text;
    json_t *j;

    snprintf(body, sizeof body, "{" PROMPT "%s}", more);
    text = serve_try_post(s, "/completion", body, 200);
    j = serve_try_json(text);
    free(text);
    return j;
}

static json_int_t timing(const json_t *j, const char *name)
{
    return json_integer_value(
        json_object_get(json_object_get(j, "timings"), name));
}

TEST(speculation_is_set_and_shown_as_in_llama_server)
{
    static const char off[] = ",\"speculative.types\":\"none\"";
    static const char none[] = ",\"speculative.n_max\":0";
    static const char simple[] = ",\"speculative.types\":\"draft-simple\"";
    static const char absent[] = ",\"speculative.types\":\"draft-mtp\"";
    struct serve_try s;
    json_t *plain, *with, *other;
    char *text;

    serve_try_start(&s, "",
                    "--spec-type ngram-simple,ngram-cache --draft-max 6 "
                    "--spec-ngram-simple-size-n 1");
    plain = complete(&s, off);
    other = complete(&s, none);
    with = complete(&s, "");
    assert_string_equal(json_string_value(json_object_get(plain, "content")),
                        json_string_value(json_object_get(with, "content")));
    assert_null(json_object_get(json_object_get(plain, "timings"), "draft_n"));
    assert_int_equal(timing(other, "draft_n"), 0);
    assert_true(timing(with, "draft_n") > timing(with, "draft_n_accepted"));
    assert_true(timing(with, "draft_n_accepted") > 0);
    /* the counters are read after the step that ended the text */
    TEST_UNTIL(serve_try_metric(&s, "plait_draft_tokens_total") ==
               (double)timing(with, "draft_n"));
    TEST_UNTIL(serve_try_metric(&s, "plait_draft_accepted_tokens_total") ==
               (double)timing(with, "draft_n_accepted"));
    json_decref(plain);
    json_decref(with);
    json_decref(other);
    text = serve_try_get(&s, "/slots");
    assert_non_null(strstr(text, "\"speculative\":true"));
    free(text);
    text = serve_try_get(&s, "/props");
    assert_non_null(
        strstr(text, "\"speculative.types\":\"ngram-simple,ngram-cache\""));
    free(text);
    text = serve_try_post(&s, "/completion",
                          "{" PROMPT ",\"speculative.types\":\"drafty\"}", 400);
    assert_non_null(strstr(text, "ngram-map-k"));
    free(text);
    json_decref(complete(&s, simple));
    serve_try_stop(&s);
    serve_try_start(&s, "", "-md models/fable-moe-Q8_0.gguf --draft-max 4");
    plain = complete(&s, off);
    with = complete(&s, simple);
    assert_string_equal(json_string_value(json_object_get(plain, "content")),
                        json_string_value(json_object_get(with, "content")));
    assert_int_equal(timing(plain, "draft_n"), 0);
    assert_true(timing(with, "draft_n_accepted") > 0);
    json_decref(plain);
    json_decref(with);
    serve_try_stop(&s);
    serve_try_start(&s, "", "");
    with = complete(&s, simple);
    plain = complete(&s, off);
    assert_string_equal(json_string_value(json_object_get(plain, "content")),
                        json_string_value(json_object_get(with, "content")));
    json_decref(plain);
    json_decref(with);
    json_decref(complete(&s, none));
    json_decref(complete(&s, absent));
    serve_try_stop(&s);
}
