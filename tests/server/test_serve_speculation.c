/* Tasks of the loop with drafts generate the tokens, and see the logits, of
 * those without: alone and in company, whether the drafts are right, wrong or
 * both, and wherever the text ends. The drafts come from a source that knows
 * the plain texts. */
#include "lib/draft_loop.h"
#include "lib/edit_model.h"
#include "lib/made_model.h"
#include "lib/ref_models.h"
#include "lib/serve_try.h"
#include "lib/support.h"
#include "server/loop_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs n tasks of these parameters without drafts, one by one, then with drafts
 * of each quality, alone and n_seq at a time. */
static void compare(struct place *p, struct told *plain, int n, int n_seq,
                    int n_prompt, const struct task_params *params)
{
    struct told *with = test_need((size_t)n, sizeof *with);
    /* the oracle's quality does not matter to a draft model */
    const int n_quality = p->draft_engine || p->block ? 1 : N_QUALITY;

    p->oracle.n = 0;
    place_start(p, 1, false);
    for (int i = 0; i < n; i++) {
        place_add(p, &plain[i], i, n_prompt + 5 * i, *params);
        told_wait(&plain[i]);
    }
    place_stop(p);
    p->oracle.plain = plain;
    p->oracle.n = n;
    for (int round = 0; round < 2 * n_quality; round++) {
        p->oracle.quality = round % n_quality;
        p->oracle.seed = test_seed_value() + (uint64_t)round;
        place_start(p, round < n_quality ? 1 : n_seq, true);
        for (int i = 0; i < n; i++) {
            with[i] =
                (struct told){.most = plain[i].most, .forced = plain[i].forced};
            place_add(p, &with[i], i, n_prompt + 5 * i, *params);
        }
        for (int i = 0; i < n; i++) {
            told_wait(&with[i]);
            told_expect_same(&plain[i], &with[i]);
        }
        place_stop(p);
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

        place_open(&p, ref_model_path(models[m]), place_options(2048), false);
        compare(&p, plain, N, N, 20,
                &(struct task_params){.max_tokens = 90, .ignore_end = true});
        printf("%s: ", models[m]);
        place_expect_both(&p);
        place_close(&p);
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

    place_open(&p, test_model(), place_options(192), false);
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
    place_expect_both(&p);
    place_close(&p);
}

/* Eight tasks in a cache that holds about three. A step that has no pages for
 * its drafts is tried without them before a task is preempted. */
TEST(speculation_tasks_that_are_preempted_write_the_plain_text)
{
    struct told *plain = test_need(MOST_TASK, sizeof *plain);
    struct place p;

    place_open(&p, test_model(), place_options(512), false);
    compare(&p, plain, MOST_TASK, MOST_TASK, 10,
            &(struct task_params){.max_tokens = 110, .ignore_end = true});
    assert_true(p.n_preemptions > 0);
    place_expect_both(&p);
    place_close(&p);
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

    place_open(&p, test_model(), place_options(512), false);
    place_open_draft_model(&p, draft, 512);
    compare(&p, plain, N, N, 10,
            &(struct task_params){.max_tokens = 150, .ignore_end = true});
    assert_true(p.n_preemptions > 0);
    place_expect_both(&p);
    place_close(&p);
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

        place_open(&p, made_model_with_block(made[m]), place_options(512),
                   true);
        compare(&p, plain, N, N, 10,
                &(struct task_params){.max_tokens = 130, .ignore_end = true});
        assert_true(p.n_preemptions > 0);
        place_expect_both(&p);
        place_close(&p);
        free(plain);
    }
}

/* A prompt whose beginning comes from the cache, so that the model computes no
 * hidden values of it: the block has its rows from the task before, and drafts
 * what it drafted then. Costs a quarter of a second. */
TEST(speculation_after_a_cached_prefix_drafts_as_before)
{
    struct told *with = test_need(3, sizeof *with);
    struct task_params params = {.max_tokens = 60, .ignore_end = true};
    struct place p;

    place_open(&p, made_model_with_block("deepseek2-mla-f32"),
               place_options(2048), true);
    place_start(&p, 1, false);
    place_add(&p, &with[0], 0, 150, params);
    told_wait(&with[0]);
    place_stop(&p);
    place_start(&p, 1, true);
    for (int i = 1; i < 3; i++) {
        params.no_cache = i == 1;
        place_add(&p, &with[i], 0, 150, params);
        told_wait(&with[i]);
        told_expect_same(&with[0], &with[i]);
    }
    place_stop(&p);
    assert_int_equal(with[1].report.n_cached, 0);
    assert_int_equal(with[2].report.n_cached, 128);
    assert_true(with[1].report.n_accepted > 0);
    assert_int_equal(with[1].report.n_drafted, with[2].report.n_drafted);
    assert_int_equal(with[1].report.n_accepted, with[2].report.n_accepted);
    place_close(&p);
    free(with);
}

/* The client disconnects within a draft: all that it got is the beginning of
 * the plain text. */
TEST(speculation_task_is_cancelled_within_a_draft)
{
    struct told plain = {0}, with = {.leave = 13};
    struct task_params params = {.max_tokens = 60, .ignore_end = true};
    struct place p;

    place_open(&p, test_model(), place_options(512), false);
    place_start(&p, 1, false);
    place_add(&p, &plain, 0, 20, params);
    told_wait(&plain);
    place_stop(&p);
    p.oracle.plain = &plain;
    p.oracle.n = 1;
    place_start(&p, 1, true);
    place_add(&p, &with, 0, 20, params);
    told_wait(&with);
    assert_int_equal(with.report.why, FINISH_CANCELLED);
    assert_true(with.n >= 13 && with.n < 13 + 10);
    assert_memory_equal(plain.sum, with.sum, (size_t)with.n * sizeof *with.sum);
    place_stop(&p);
    place_close(&p);
}

/* Drafts count for the fair shares of clients only if they become text. */
TEST(speculation_serves_a_client_only_accepted_drafts)
{
    int64_t served[3];
    struct told plain = {0};
    struct task_params params = {.max_tokens = 60, .ignore_end = true};
    struct place p;

    place_open(&p, test_model(), place_options(512), false);
    for (int i = 0; i < 3; i++) {
        struct told *t = i > 0 ? test_need(1, sizeof *t) : &plain;

        p.oracle.plain = &plain;
        p.oracle.n = i > 0;
        p.oracle.quality = i == 1 ? RIGHT : WRONG;
        place_start(&p, 1, i > 0);
        place_add(&p, t, 0, 20, params);
        told_wait(t);
        told_expect_same(&plain, t);
        assert_int_equal(t->report.n_drafted > 0, i > 0);
        assert_int_equal(t->report.n_accepted > 0, i == 1);
        loop_stop(p.loop);
        served[i] = p.loop->schedule.most;
        place_stop(&p);
        if (i > 0)
            free(t);
    }
    assert_int_equal(served[0], served[1]);
    assert_int_equal(served[0], served[2]);
    place_close(&p);
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
