/* Receipts: a receipt that was written under one split holds under every other,
 * for each sampler, grammar and kind of model, in each form, in company, with a
 * cached prefix and after states. */
#include "device/kernel_set.h"
#include "lib/receipt_way.h"
#include "lib/ref_models.h"
#include "lib/schema_try.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- splits -------------------------------------------------------------- */

/* Where a receipt is written, or checked: nothing of it decides bits, except
 * the shares where one is written. */
struct where {
    const char *devices;
    pl_split_mode mode;
    /* layers whose experts are on the host, if the model has experts */
    const char *experts;
    const char *cpu; /* name of the CPU kernel set */
    int n_share;
    double share[3];
};

static const struct where from[] = {
    {.devices = "cpu"},
    {.devices = "cpu*2",
     .mode = PL_SPLIT_TENSOR,
     .n_share = 2,
     .share = {3, 1}},
    {.devices = "cpu*3", .mode = PL_SPLIT_TENSOR},
};
static const struct where to[] = {
    {.devices = "cpu"},
    {.devices = "sim*3", .mode = PL_SPLIT_TENSOR},
    {.devices = "cpu*2", .mode = PL_SPLIT_LAYER},
    {.devices = "proc*2", .mode = PL_SPLIT_TENSOR},
    {.devices = "cpu", .cpu = "generic"},
    {.devices = "cpu*2", .mode = PL_SPLIT_TENSOR, .experts = "all"},
    {.devices = "emu"},
};
enum { N_FROM = sizeof from / sizeof *from, N_TO = sizeof to / sizeof *to };

static pl_options options(const struct where *w)
{
    pl_options o = engine_run_options();

    o.devices = w->devices;
    o.split_mode = w->mode;
    o.tensor_split = w->n_share ? w->share : NULL;
    o.n_tensor_split = w->n_share;
    o.host_experts = w->experts;
    o.cpu = w->cpu;
    return o;
}

static struct engine_run opened(void)
{
    pl_options o = options(&from[0]);
    const char *name = "made/llama-gqa-f32";
    struct engine_run r;

    o.prefix_cache = true;
    engine_run_open(&r, ref_model_path(name), name, &o);
    return r;
}

/* Returns true if way i of `from` k is checked at `to` t: in one place, in two
 * in the long tier. The emulator takes half a second, so it checks one way. */
static bool is_checked(int salt, int k, int i, int t)
{
    int turn = (t + 3 * i + k + salt) % N_TO;

    if (t == N_TO - 1)
        return k == 0 && i == salt % N_WAY && (salt == 0 || test_long());
    return turn == 0 || (turn == 3 && test_long());
}

/* Writes receipts of all ways and checks each of them in other places. */
static void hold_everywhere(const char *name, int salt)
{
    bool has_experts = strstr(name, "moe") != NULL;
    struct engine_run r;

    for (int k = 0; k < N_FROM; k++) {
        pl_options o = options(&from[k]);

        engine_run_open(&r, ref_model_path(name), name, &o);
        for (int i = 0; i < N_WAY; i++) {
            struct way w = way(i);
            struct way_run run = {.r = &r, .seq = i % 4, .company = i % 3 == 0};
            char *json = way_receipt(&run, &w, PL_RECEIPT_FULL);

            for (int t = 0; t < N_TO; t++) {
                struct where there = to[t];
                char what[160];

                if (!is_checked(salt, k, i, t))
                    continue;
                there.experts = has_experts ? there.experts : NULL;
                snprintf(what, sizeof what, "%s, %s, from %s", name, w.name,
                         from[k].devices);
                way_holds(r.model, json, options(&there), what);
            }
            free(json);
        }
        engine_run_close(&r);
    }
}

/* A dense model, one with experts, one with windows, a recurrent one; all
 * models in the long tier. */
TEST(receipts_hold_under_other_splits)
{
    static const char *const few[] = {"llama-gqa-f32", "qwen3moe-q-q4_0",
                                      "gemma3-swa-f32", "qwen35-dense-f32"};
    const char *const *all = ref_models(true);

    for (int i = 0; i < 4 && !test_long(); i++) {
        char made[64];

        snprintf(made, sizeof made, "made/%s", few[i]);
        hold_everywhere(made, i);
    }
    for (int i = 0; all[i] && test_long(); i++)
        hold_everywhere(all[i], i);
}

/* Every kernel set of this machine that computes exactly checks what the best
 * one wrote. One with float activations has other bits. */
TEST(receipts_hold_with_other_kernels)
{
    pl_options o = options(&from[0]);
    const char *name = "made/qwen3moe-q-q4_0";
    struct way w = way(2);
    struct engine_run r, other;
    pl_receipt *receipt;
    char *json;

    engine_run_open(&r, ref_model_path(name), name, &o);
    json = way_write(&r, &w, PL_RECEIPT_FULL);
    receipt = way_parsed(json);
    for (int f = 0; f < KERNEL_SET_COUNT; f++) {
        o.cpu = kernel_set_name((enum kernel_set)f);
        if (!kernel_set_runs((enum kernel_set)f))
            continue;
        if (!kernel_set_is_float((enum kernel_set)f)) {
            way_holds(r.model, json, o, o.cpu);
            continue;
        }
        engine_run_open(&other, ref_model_path(name), name, &o);
        assert_int_equal(way_verified(receipt, other.engine, NULL).verdict,
                         PL_RECEIPT_CANNOT);
        engine_run_close(&other);
    }
    pl_receipt_free(receipt);
    free(json);
    engine_run_close(&r);
}

/* The shares decide the bits, not the devices: with those of two devices, one
 * writes the same receipt. */
TEST(receipts_of_the_same_shares_are_the_same)
{
    const char *name = "made/llama-gqa-f32";
    pl_options two = options(&from[1]), one = options(&from[0]);
    pl_options wrong = one;
    struct way w = way(0);
    struct engine_run a, b;
    pl_engine *e;
    char *x, *y;
    pl_err err;

    one.rank_split = two.tensor_split;
    one.n_rank_split = 2;
    engine_run_open(&a, ref_model_path(name), name, &two);
    engine_run_open(&b, ref_model_path(name), name, &one);
    x = way_write(&a, &w, PL_RECEIPT_FULL);
    y = way_write(&b, &w, PL_RECEIPT_FULL);
    assert_string_equal(x, y);
    free(x);
    free(y);
    wrong.rank_split = two.tensor_split;
    wrong.n_rank_split = 2;
    wrong.n_ranks = 3;
    assert_int_not_equal(pl_engine_create(&e, a.model, &wrong, &err), PL_OK);
    engine_run_close(&a);
    engine_run_close(&b);
}

/* End-of-text tokens are by far the likeliest here, and excluded. */
TEST(receipts_hold_where_the_end_is_excluded)
{
    struct engine_run r = opened();
    const pl_tokenizer *words = pl_model_tokenizer(r.model);
    const int32_t eos = pl_tokenizer_eos(words);
    const float much = 100;
    struct way w = way(0);
    char *json, *s;
    pl_receipt *receipt;
    pl_receipt_result result;

    assert_true(pl_token_is_eog(words, eos));
    w.no_eog = true;
    w.s.n_bias = 1;
    w.s.bias_id = &eos;
    w.s.bias = &much;
    json = way_write(&r, &w, PL_RECEIPT_FULL);
    way_holds(r.model, json, options(&to[0]), "without an end");
    s = strstr(json, "\"no_eog\":[[0,12]]");
    assert_non_null(s);
    memcpy(s, "\"no_eog\":[[5, 7]]", 17);
    receipt = way_parsed(json);
    result = way_verified(receipt, r.engine, NULL);
    assert_int_equal(result.verdict, PL_RECEIPT_DIFFERS);
    assert_int_equal(result.at, 0);
    assert_int_equal(result.sampled, eos);
    pl_receipt_free(receipt);
    free(json);
    engine_run_close(&r);
}

/* ---- forms --------------------------------------------------------------- */

/* With the hash of the prompt that is given, but another length, a receipt does
 * not hold, and nothing reads tokens that are not there. */
static void check_other_length(const char *json, pl_engine *e,
                               const pl_receipt_given *given)
{
    json_t *doc = json_loads(json, 0, NULL);

    for (int n = 1; n < 2 * WAY_PROMPT; n++) {
        pl_receipt *r;
        char *text;

        json_object_set_new(json_object_get(doc, "prompt"), "n",
                            json_integer(n));
        text = json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));
        r = way_parsed(text);
        assert_int_equal(way_verified(r, e, given).verdict,
                         n == WAY_PROMPT ? PL_RECEIPT_HOLDS
                                         : PL_RECEIPT_DIFFERS);
        pl_receipt_free(r);
        free(text);
    }
    json_decref(doc);
}

TEST(receipts_of_all_forms_hold)
{
    static const unsigned forms[] = {PL_RECEIPT_FULL, 0, PL_RECEIPT_NO_TOKENS,
                                     PL_RECEIPT_FULL | PL_RECEIPT_NO_TOKENS};
    struct engine_run r = opened();

    for (int i = 0; i < 4 * N_WAY; i++) {
        unsigned form = forms[i / N_WAY];
        bool is_full = form & PL_RECEIPT_FULL,
             has_tokens = !(form & PL_RECEIPT_NO_TOKENS);
        struct way w = way(i % N_WAY);
        char *json = way_write(&r, &w, form);
        pl_receipt *receipt = way_parsed(json);
        int32_t other[WAY_PROMPT];
        pl_receipt_result got;
        pl_receipt_given given = {.size = sizeof given,
                                  .prompt = way_prompt,
                                  .n_prompt = WAY_PROMPT,
                                  .grammar = w.grammar,
                                  .grammar_len =
                                      w.grammar ? strlen(w.grammar) : 0};

        assert_true(strlen(json) < 2048);
        assert_int_equal(pl_receipt_n_prompt(receipt), WAY_PROMPT);
        assert_int_equal(pl_receipt_n_output(receipt), WAY_OUT);
        assert_int_equal(way_verified(receipt, r.engine, NULL).verdict,
                         is_full ? PL_RECEIPT_HOLDS : PL_RECEIPT_CANNOT);
        assert_int_equal(way_verified(receipt, r.engine, &given).verdict,
                         PL_RECEIPT_HOLDS);
        given.n_sample = 3;
        assert_int_equal(way_verified(receipt, r.engine, &given).verdict,
                         has_tokens && w.s.mirostat == 0 ? PL_RECEIPT_HOLDS
                                                         : PL_RECEIPT_CANNOT);
        given.n_prompt--;
        assert_int_equal(way_verified(receipt, r.engine, &given).verdict,
                         PL_RECEIPT_DIFFERS);
        given.n_prompt++;
        given.n_sample = 0;
        memcpy(other, way_prompt, sizeof other);
        other[WAY_PROMPT - 1]++;
        given.prompt = other;
        got = way_verified(receipt, r.engine, &given);
        assert_int_equal(got.verdict, PL_RECEIPT_DIFFERS);
        assert_non_null(strstr(got.text, "the prompt "));
        given.prompt = way_prompt;
        if (!is_full)
            check_other_length(json, r.engine, &given);
        given.grammar = "root ::= .";
        given.grammar_len = 10;
        assert_int_equal(way_verified(receipt, r.engine, &given).verdict,
                         w.grammar ? PL_RECEIPT_DIFFERS : PL_RECEIPT_HOLDS);
        if (w.grammar && !is_full) {
            given.grammar = NULL;
            assert_int_equal(way_verified(receipt, r.engine, &given).verdict,
                             PL_RECEIPT_CANNOT);
        }
        pl_receipt_free(receipt);
        free(json);
    }
    engine_run_close(&r);
}

/* As in llama.cpp, numbers below 0 turn filters off. A receipt has one form of
 * that. */
TEST(receipts_of_filters_below_zero_are_those_of_zero)
{
    static const char name[] = "qwen3-tied-f32";
    pl_options o;
    struct engine_run r;
    struct way zero = way(0), below;
    char *x, *y;

    pl_options_init(&o);
    engine_run_open(&r, ref_model_path(name), name, &o);
    zero.s.top_k = 0;
    zero.s.top_n_sigma = zero.s.min_p = 0;
    zero.s.xtc_probability = zero.s.dynatemp_range = 0;
    zero.s.adaptive_target = -1;
    below = zero;
    below.s.top_k = -1;
    below.s.top_n_sigma = below.s.min_p = -1;
    below.s.xtc_probability = below.s.dynatemp_range = -0.5f;
    below.s.adaptive_target = -0.25f;
    x = way_write(&r, &zero, PL_RECEIPT_FULL);
    y = way_write(&r, &below, PL_RECEIPT_FULL);
    assert_string_equal(x, y);
    free(x);
    free(y);
    engine_run_close(&r);
}

/* Writes the receipt of an output without a token, which ended by its limit. */
static char *write_empty(const struct engine_run *r, unsigned flags)
{
    pl_receipt *receipt;
    pl_sampler *s;
    char *json;
    pl_err err;

    TEST_OK(pl_sampler_create(&s, NULL, r->n_vocab, &err), err);
    for (int i = 0; i < WAY_PROMPT; i++)
        pl_sampler_accept(s, way_prompt[i]);
    TEST_OK(pl_receipt_begin(&receipt, r->engine, way_prompt, WAY_PROMPT, &err),
            err);
    TEST_OK(pl_sampler_record(s, receipt, &err), err);
    TEST_OK(pl_receipt_set_end(receipt, PL_RECEIPT_LENGTH, 0, NULL, 0, &err),
            err);
    TEST_OK(pl_receipt_write(receipt, flags, &json, &err), err);
    pl_sampler_free(s);
    pl_receipt_free(receipt);
    return json;
}

/* A receipt without a token says that no logits were compared, and its end must
 * fit. */
TEST(receipts_of_empty_outputs_say_so)
{
    static const struct {
        const char *reason;
        int most;
        bool holds;
    } ends[] = {{"length", 0, true},   {"other", 0, true}, {"length", 1, false},
                {"length", -1, false}, {"eog", 0, false},  {"stop", 0, false}};
    struct engine_run r = opened();
    pl_receipt_given given = {
        .size = sizeof given, .prompt = way_prompt, .n_prompt = WAY_PROMPT};

    for (unsigned form = 0; form < 4; form++)
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            char *json = write_empty(&r, form), *text;
            json_t *doc = json_loads(json, 0, NULL);
            pl_receipt_result got;
            pl_receipt *receipt;

            json_object_set_new(doc, "end",
                                json_pack("{s:s, s:i, s:[]}", "reason",
                                          ends[i].reason, "max_tokens",
                                          ends[i].most, "stop"));
            text = json_dumps(doc, JSON_COMPACT);
            receipt = way_parsed(i == 0 ? json : text);
            assert_int_equal(pl_receipt_n_output(receipt), 0);
            given.n_sample = i % 2 ? 3 : 0;
            got = way_verified(receipt, r.engine, &given);
            if ((got.verdict == PL_RECEIPT_HOLDS) != ends[i].holds ||
                (ends[i].holds && !strstr(got.text, "the output is empty")))
                fail_msg("form %u, %s %d: %s", form, ends[i].reason,
                         ends[i].most, got.text);
            assert_int_equal(got.n_checked, 0);
            pl_receipt_free(receipt);
            json_decref(doc);
            free(text);
            free(json);
        }
    engine_run_close(&r);
}

/* The tokens that are drawn depend on the seed alone, and many seeds draw
 * each. */
TEST(receipts_are_checked_in_any_part)
{
    struct engine_run r = opened();
    struct way w = way(10);
    char *json = way_write(&r, &w, PL_RECEIPT_FULL);
    pl_receipt *receipt = way_parsed(json);
    pl_receipt_given given = {.size = sizeof given};

    for (int n = 1; n <= WAY_OUT + 1; n++)
        for (given.seed = 0; given.seed < 4; given.seed++) {
            pl_receipt_result result;

            given.n_sample = n;
            result = way_verified(receipt, r.engine, &given);
            if (result.verdict != PL_RECEIPT_HOLDS)
                fail_msg("%d tokens: %s", n, result.text);
            assert_int_equal(result.n_checked, n < WAY_OUT ? n : WAY_OUT);
        }
    pl_receipt_free(receipt);
    free(json);
    engine_run_close(&r);
}

/* The grammar of the schema's documents takes every receipt. */
TEST(receipts_fit_their_schema)
{
    size_t n;
    char *schema = test_read(test_file("doc/receipt.schema.json"), &n);
    struct engine_run r = opened();
    struct schema_try try;

    schema_try_start(&try, schema);
    for (int i = 0; i < N_WAY; i++) {
        struct way w = way(i);
        char *json = way_write(&r, &w, i % 4);

        if (!schema_try_takes(&try, json))
            fail_msg("%s: not of the schema: %s", w.name, json);
        free(json);
    }
    assert_false(schema_try_takes(&try, "{\"plait_receipt\":1}"));
    schema_try_stop(&try);
    engine_run_close(&r);
    free(schema);
}

/* ---- what decides no bit ------------------------------------------------- */

/* Neither other sequences of the same steps, nor a cached prefix. */
TEST(receipts_are_the_same_in_company_and_with_a_cached_prefix)
{
    struct engine_run r = opened();
    struct way w = way(0);
    uint64_t random = 7;
    int32_t prompt[70];
    struct way_run run = {.r = &r, .prompt = prompt, .n_prompt = 70};
    char *alone, *cached, *beside;

    engine_run_tokens(&r, &random, 70, prompt);
    alone = way_receipt(&run, &w, PL_RECEIPT_FULL);
    assert_int_equal(run.n_shared, 0);
    assert_int_equal(pl_seq_trim(r.engine, 0, 0, NULL, NULL), PL_OK);
    run.seq = 1;
    cached = way_receipt(&run, &w, PL_RECEIPT_FULL);
    assert_int_equal(run.n_shared, 64);
    assert_int_equal(pl_seq_trim(r.engine, 1, 0, NULL, NULL), PL_OK);
    run.seq = 2;
    run.company = true;
    beside = way_receipt(&run, &w, PL_RECEIPT_FULL);
    assert_string_equal(alone, cached);
    assert_string_equal(alone, beside);
    way_holds(r.model, alone, options(&to[0]), "with a cached prefix");
    free(alone);
    free(cached);
    free(beside);
    engine_run_close(&r);
}

/* Cached prefixes and a state of the same ranks keep the bits; a state of other
 * ranks does not, and no receipt is written then. */
TEST(receipts_hold_after_states_of_the_same_ranks)
{
    const char *own = test_temp("own.state"), *foreign = test_temp("foreign");
    struct engine_run r = opened(), other;
    pl_options o = options(&to[0]);
    struct way w = way(0);
    pl_receipt *receipt;
    pl_err err;
    char *first = way_write(&r, &w, PL_RECEIPT_FULL), *again;

    o.n_ranks = 2;
    engine_run_open(&other, ref_model_path("made/llama-gqa-f32"), "llama", &o);
    engine_run_decode(&other, 0, WAY_PROMPT, way_prompt, NULL);
    TEST_OK(pl_state_save_file(r.engine, 0, 0, -1, NULL, 0, own, &err), err);
    TEST_OK(pl_state_save_file(other.engine, 0, 0, -1, NULL, 0, foreign, &err),
            err);
    TEST_OK(pl_state_restore_file(r.engine, 1, own, 0, NULL, NULL, &err), err);
    again = way_write(&r, &w, PL_RECEIPT_FULL);
    assert_string_equal(first, again);
    TEST_OK(pl_state_restore_file(r.engine, 1, foreign, 0, NULL, NULL, &err),
            err);
    assert_int_equal(
        pl_receipt_begin(&receipt, r.engine, way_prompt, WAY_PROMPT, &err),
        PL_UNSUPPORTED);
    assert_null(receipt);
    /* The check uses no cached prefix: it computes all tokens itself. */
    receipt = way_parsed(first);
    assert_int_equal(way_verified(receipt, r.engine, NULL).verdict,
                     PL_RECEIPT_HOLDS);
    pl_receipt_free(receipt);
    free(first);
    free(again);
    engine_run_close(&other);
    engine_run_close(&r);
}

/* A check empties its sequence, takes steps of any size, and leaves the other
 * sequences as they were. */
TEST(receipts_are_checked_beside_other_sequences)
{
    pl_options o = options(&to[0]);
    const char *name = "made/llama-gqa-f32";
    struct way w = way(7);
    struct engine_run r;
    pl_receipt *receipt;
    char *json, *again;

    o.n_out = 1;
    o.n_ubatch = 4;
    engine_run_open(&r, ref_model_path(name), name, &o);
    json = way_write(&r, &w, PL_RECEIPT_FULL);
    receipt = way_parsed(json);
    engine_run_decode(&r, 0, WAY_PROMPT, way_prompt, NULL);
    engine_run_decode(&r, 3, WAY_PROMPT, way_prompt, NULL);
    assert_int_equal(way_verified(receipt, r.engine, NULL).verdict,
                     PL_RECEIPT_HOLDS);
    assert_int_equal(pl_seq_length(r.engine, 0), 0);
    assert_int_equal(pl_seq_length(r.engine, 3), WAY_PROMPT);
    again = way_write(&r, &w, PL_RECEIPT_FULL);
    assert_string_equal(json, again);
    pl_receipt_free(receipt);
    free(json);
    free(again);
    engine_run_close(&r);
}

/* ---- texts that were there before ---------------------------------------- */

static const int32_t given_text[9] = {3, 9, 4, 17, 5, 5, 60, 2, 31};

/* Sets *json to the receipt of how well the model predicts given_text after the
 * prompt, computed in steps of any sizes. */
static void write_score(const struct engine_run *r, char **json, double *nll)
{
    int32_t seq[WAY_PROMPT + 9];
    float *row = test_need((size_t)r->n_vocab, 9 * sizeof *row);
    pl_receipt *receipt;
    double one;
    pl_err err;

    memcpy(seq, way_prompt, sizeof way_prompt);
    memcpy(seq + WAY_PROMPT, given_text, sizeof given_text);
    *nll = 0;
    TEST_OK(pl_receipt_begin(&receipt, r->engine, seq, WAY_PROMPT, &err), err);
    TEST_OK(pl_seq_trim(r->engine, 0, 0, NULL, &err), err);
    for (int i = 0, n; i < 9; i++) {
        pl_batch b = {.size = sizeof b,
                      .token = i == 0 ? seq : seq + WAY_PROMPT + i - 1,
                      .logits = row};
        uint8_t wanted[WAY_PROMPT] = {0};

        n = i == 0 ? WAY_PROMPT : 1;
        wanted[n - 1] = 1;
        b.n = n;
        b.wanted = wanted;
        TEST_OK(pl_engine_decode(r->engine, &b, NULL, &err), err);
        TEST_OK(pl_receipt_score(receipt, row, given_text[i], &one, &err), err);
        assert_true(one > 0);
        *nll += one;
    }
    TEST_OK(pl_receipt_write(receipt, PL_RECEIPT_FULL, json, &err), err);
    assert_true(pl_receipt_nll(receipt) == *nll);
    pl_receipt_free(receipt);
    free(row);
}

/* The receipt of a text's perplexity holds in every place. A changed sum, a
 * changed row and a false end are found. */
TEST(receipts_of_given_texts_hold)
{
    static const struct {
        const char *from, *to, *says;
    } row[] = {
        {"\"nll\":\"", "\"nll\":\"1", "the sum of -ln p"},
        {"\"each\":\"", "\"each\":\"0000", "the logits of token 0"},
        {"\"prompt\":",
         "\"end\":{\"reason\":\"length\",\"max_tokens\":3,\"stop\":[]},"
         "\"prompt\":",
         "at most 3 tokens"},
    };
    struct engine_run r = opened();
    pl_receipt_result result;
    double nll;
    size_t n;
    char *schema = test_read(test_file("doc/receipt.schema.json"), &n);
    struct schema_try try;
    char *json;

    write_score(&r, &json, &nll);
    schema_try_start(&try, schema);
    assert_true(schema_try_takes(&try, json));
    schema_try_stop(&try);
    free(schema);
    for (int t = 0; t < N_TO; t++)
        way_holds(r.model, json, options(&to[t]), to[t].devices);
    for (int i = 0; i < 3; i++) {
        size_t at = (size_t)(strstr(json, row[i].from) - json);
        char *other;
        pl_receipt *changed;

        assert_true(
            asprintf(&other, "%.*s%s%s", (int)at, json, row[i].to,
                     json + at + strlen(row[i].from) + (i == 1 ? 4 : 0)) > 0);
        changed = way_parsed(other);
        result = way_verified(changed, r.engine, NULL);
        assert_int_equal(result.verdict, PL_RECEIPT_DIFFERS);
        assert_non_null(strstr(result.text, row[i].says));
        pl_receipt_free(changed);
        free(other);
    }
    free(json);
    engine_run_close(&r);
}

/* ---- the functions ------------------------------------------------------- */

TEST(receipts_refuse_wrong_calls)
{
    struct engine_run r = opened();
    struct way w = way(0);
    char *json = way_write(&r, &w, 0);
    pl_receipt *receipt, *read = way_parsed(json), *none;
    pl_receipt_result result;
    pl_options o = options(&to[0]);
    pl_sampler *s, *small;
    char *text = NULL;
    bool same;
    pl_err err;

    TEST_OK(pl_sampler_create(&s, NULL, r.n_vocab, &err), err);
    TEST_OK(pl_sampler_create(&small, NULL, r.n_vocab - 1, &err), err);
    TEST_OK(pl_receipt_begin(&receipt, r.engine, way_prompt, 2, &err), err);
    assert_int_equal(pl_receipt_write(receipt, 0, &text, &err),
                     /* no sampler was recorded, so there is nothing to write */
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_sampler_record(s, receipt, &err), PL_BAD_ARGUMENT);
    for (int i = 0; i < 2; i++) {
        pl_sampler_accept(s, way_prompt[i]);
        pl_sampler_accept(small, way_prompt[i]);
    }
    assert_int_equal(pl_sampler_record(small, receipt, &err), PL_BAD_ARGUMENT);
    TEST_OK(pl_sampler_record(s, receipt, &err), err);
    assert_int_equal(pl_sampler_record(s, receipt, &err), PL_BAD_ARGUMENT);
    assert_int_equal(pl_sampler_record(s, read, &err), PL_BAD_ARGUMENT);
    assert_int_equal(pl_receipt_write(receipt, 8, &text, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_receipt_verify(receipt, r.engine, NULL, &result,
                                       sizeof result, &err),
                     /* only receipts from pl_receipt_parse can be verified */
                     PL_BAD_ARGUMENT);
    for (int i = 0; i < 2; i++) {
        const pl_receipt_given given = {.size = sizeof given,
                                        .prompt = way_prompt,
                                        .n_prompt = i ? WAY_PROMPT : -1,
                                        .n_sample = i ? INT64_MIN : 0};

        assert_int_equal(pl_receipt_verify(read, r.engine, &given, &result,
                                           sizeof result, &err),
                         PL_BAD_ARGUMENT);
        assert_non_null(strstr(err.message, "use 0 or more"));
    }
    assert_int_equal(pl_receipt_options(receipt, &o, &err), PL_BAD_ARGUMENT);
    assert_int_equal(
        pl_receipt_set_end(receipt, (pl_receipt_end)99, 0, NULL, 0, &err),
        PL_BAD_ARGUMENT);
    assert_int_equal(pl_receipt_begin(NULL, r.engine, NULL, 0, &err),
                     PL_BAD_ARGUMENT);
    for (int i = 0; i < 2; i++) {
        int32_t prompt[2] = {1, i ? -1 : (int32_t)r.n_vocab};

        assert_int_equal(pl_receipt_begin(&none, r.engine, prompt, 2, &err),
                         PL_BAD_ARGUMENT);
        assert_non_null(strstr(err.message, "token 1 of the prompt"));
    }
    assert_int_equal(pl_receipt_parse(&none, NULL, 0, &err), PL_BAD_FILE);
    assert_null(none);
    assert_int_equal(pl_receipt_diff(NULL, NULL, &same, NULL, NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_receipt_n_prompt(NULL), 0);
    assert_int_equal(pl_receipt_n_output(NULL), 0);
    pl_sampler_free(s);
    pl_sampler_free(small);
    pl_receipt_free(receipt);
    pl_receipt_free(read);
    free(json);
    engine_run_close(&r);
}
