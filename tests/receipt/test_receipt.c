/* Receipts: a receipt that was written under one split holds under every other,
 * for each sampler, grammar and kind of model; and any change of it, or of the
 * model, is found at its place. */
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"
#include "lib/ref_models.h"
#include "lib/schema_try.h"
#include "receipt/receipt.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_OUT = 12, FORCED = 4 };

/* One way to generate: the settings that differ from the defaults. */
struct way {
    const char *name;
    pl_sampling s;
    bool no_eog;
    bool forces; /* token FORCED is chosen by the caller */
};

static struct way a_way(int i)
{
    static const int32_t id[2] = {3, 7};
    static const float bias[2] = {-INFINITY, 2.5F};
    static const char *const breaker[] = {"a", "\n"};
    struct way w = {.name = "default"};

    pl_sampling_init(&w.s);
    w.s.seed = 12345678901234567890U + (uint64_t)i;
    switch (i) {
    case 1:
        w.name = "greedy, forced";
        w.s.temperature = 0;
        w.forces = true;
        break;
    case 2:
        w.name = "xtc, penalties, biases";
        w.s.xtc_probability = 0.6F;
        w.s.xtc_threshold = 0.01F;
        w.s.repeat_penalty = 1.3F;
        w.s.frequency_penalty = 0.1F;
        w.s.n_bias = 2;
        w.s.bias_id = id;
        w.s.bias = bias;
        break;
    case 3:
        w.name = "dry, typical, own order";
        w.s.dry_multiplier = 0.8F;
        w.s.n_dry_breaker = 2;
        w.s.dry_breaker = breaker;
        w.s.typical_p = 0.9F;
        w.s.n_step = 3;
        w.s.step[0] = PL_STEP_TYPICAL;
        w.s.step[1] = PL_STEP_TEMPERATURE;
        w.s.step[2] = PL_STEP_DRY;
        w.no_eog = true;
        break;
    case 4:
        w.name = "mirostat 1";
        w.s.mirostat = 1;
        break;
    case 5:
        w.name = "mirostat 2, dynamic temperature";
        w.s.mirostat = 2;
        w.s.dynatemp_range = 0.4F;
        break;
    default:
        break;
    }
    return w;
}
enum { N_WAY = 6 };

static const int32_t prompt[] = {1, 5, 9, 2, 7, 3, 4};
enum { N_PROMPT = sizeof prompt / sizeof prompt[0] };

static pl_options options(const char *devices, const double *split, int n)
{
    pl_options o = engine_run_options();

    o.devices = devices;
    o.tensor_split = split;
    o.n_tensor_split = n;
    return o;
}

/* Generates after the prompt in sequence `seq` and returns the receipt. */
static char *write_receipt(const struct engine_run *r, int seq,
                           const struct way *w, unsigned flags)
{
    const pl_tokenizer *words = pl_model_tokenizer(r->model);
    float *row = test_need((size_t)r->n_vocab, sizeof *row);
    pl_sampling settings = w->s;
    pl_receipt *receipt;
    pl_sampler *s;
    char *json;
    pl_err err;

    settings.tokenizer = words;
    if (!words) /* DRY needs one for its breakers */
        settings.dry_multiplier = 0;
    TEST_OK(pl_seq_trim(r->engine, seq, 0, NULL, &err), err);
    TEST_OK(pl_sampler_create(&s, &settings, r->n_vocab, &err), err);
    for (int i = 0; i < N_PROMPT; i++)
        pl_sampler_accept(s, prompt[i]);
    TEST_OK(pl_receipt_begin(&receipt, r->engine, prompt, N_PROMPT, &err), err);
    TEST_OK(pl_sampler_record(s, receipt, &err), err);
    if (w->no_eog && words)
        TEST_OK(pl_sampler_exclude_eog(s, words, &err), err);
    engine_run_decode(r, seq, N_PROMPT - 1, prompt, NULL);
    for (int32_t i = 0, id = prompt[N_PROMPT - 1]; i < N_OUT; i++) {
        engine_run_decode(r, seq, 1, &id, row);
        if (w->forces && i == FORCED)
            pl_sampler_accept(s, id = 6);
        else
            id = pl_sample(s, row);
        assert_true(id >= 0);
    }
    TEST_OK(pl_receipt_set_end(receipt, PL_RECEIPT_OTHER, -1, NULL, 0, &err),
            err);
    TEST_OK(pl_receipt_write(receipt, flags, &json, &err), err);
    pl_sampler_free(s);
    pl_receipt_free(receipt);
    free(row);
    return json;
}

static pl_receipt *parsed(const char *json)
{
    pl_receipt *r;
    pl_err err;

    TEST_OK(pl_receipt_parse(&r, json, strlen(json), &err), err);
    return r;
}

static pl_receipt_result verified(const pl_receipt *r, pl_engine *e,
                                  const pl_receipt_given *given)
{
    pl_receipt_result result;
    pl_err err;

    TEST_OK(pl_receipt_verify(r, e, given, &result, sizeof result, &err), err);
    return result;
}

/* Checks a receipt on an engine of its own with these options. */
static void must_hold(const pl_model *m, const char *json, pl_options o,
                      const char *what)
{
    pl_receipt *r = parsed(json);
    pl_receipt_result result;
    pl_engine *e;
    pl_err err;

    TEST_OK(pl_receipt_options(r, &o, &err), err);
    TEST_OK(pl_engine_create(&e, m, &o, &err), err);
    result = verified(r, e, NULL);
    if (result.verdict != PL_RECEIPT_HOLDS)
        fail_msg("%s: %s", what, result.text);
    pl_engine_free(e);
    pl_receipt_free(r);
}

/* ---- what holds ---------------------------------------------------------- */

static void hold_everywhere(const char *name)
{
    static const double shares[] = {3, 1};
    const pl_options from[] = {options("cpu", NULL, 0),
                               options("cpu*2", shares, 2)};
    pl_options to[] = {options("cpu", NULL, 0), options("sim*3", NULL, 0),
                       options("cpu*2", NULL, 0)};
    struct engine_run r;

    to[2].split_mode = PL_SPLIT_LAYER;
    for (int k = 0; k < 2; k++) {
        engine_run_open(&r, ref_model_path(name), name, &from[k]);
        for (int i = 0; i < N_WAY; i++) {
            struct way w = a_way(i);
            char *json = write_receipt(&r, i % 2, &w, PL_RECEIPT_FULL);
            int other = (i + k) % 3;

            must_hold(r.model, json, to[other], w.name);
            free(json);
        }
        engine_run_close(&r);
    }
}

TEST(receipts_hold_under_other_splits)
{
    static const char *const few[] = {"llama-gqa-f32", "qwen3moe-f32",
                                      "gemma3-f32", "qwen35-f32", NULL};
    const char *const *all = ref_models(false);

    for (int i = 0; all[i]; i++) {
        bool is_in = test_long();

        for (int k = 0; few[k] && !is_in; k++)
            is_in = strstr(all[i], few[k]) != NULL;
        if (is_in)
            hold_everywhere(all[i]);
    }
}

static struct engine_run opened(void)
{
    pl_options o = options("cpu", NULL, 0);
    const char *name = "llama-gqa-f32";
    struct engine_run r;

    o.prefix_cache = true;
    engine_run_open(&r, ref_model_path(name), name, &o);
    return r;
}

TEST(receipts_of_all_forms_hold)
{
    static const unsigned forms[] = {PL_RECEIPT_FULL, 0, PL_RECEIPT_NO_TOKENS,
                                     PL_RECEIPT_FULL | PL_RECEIPT_NO_TOKENS};
    struct engine_run r = opened();

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        for (int k = 0; k < 2; k++) {
            struct way w = a_way(k);
            char *json = write_receipt(&r, 0, &w, forms[i]);
            pl_receipt *receipt = parsed(json);
            pl_receipt_given given = {
                .size = sizeof given, .prompt = prompt, .n_prompt = N_PROMPT};

            assert_true(strlen(json) < 2048);
            assert_int_equal(verified(receipt, r.engine, NULL).verdict,
                             forms[i] & PL_RECEIPT_FULL ? PL_RECEIPT_HOLDS
                                                        : PL_RECEIPT_CANNOT);
            assert_int_equal(verified(receipt, r.engine, &given).verdict,
                             PL_RECEIPT_HOLDS);
            given.n_prompt--;
            assert_int_equal(verified(receipt, r.engine, &given).verdict,
                             PL_RECEIPT_DIFFERS);
            given.n_prompt++;
            given.n_sample = 3;
            assert_int_equal(verified(receipt, r.engine, &given).verdict,
                             forms[i] & PL_RECEIPT_NO_TOKENS
                                 ? PL_RECEIPT_CANNOT
                                 : PL_RECEIPT_HOLDS);
            pl_receipt_free(receipt);
            free(json);
        }
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
        struct way w = a_way(i);
        char *json = write_receipt(&r, 0, &w, i % 3);

        if (!schema_try_takes(&try, json))
            fail_msg("%s: not of the schema: %s", w.name, json);
        free(json);
    }
    assert_false(schema_try_takes(&try, "{\"plait_receipt\":1}"));
    schema_try_stop(&try);
    engine_run_close(&r);
    free(schema);
}

/* A text of the grammar may begin later, and be forced in part. */
TEST(receipts_with_a_grammar_hold)
{
    static const char gbnf[] = "root ::= [a-zA-Z ]+";
    struct engine_run r = opened();
    const pl_tokenizer *words = pl_model_tokenizer(r.model);
    float *row = test_need((size_t)r.n_vocab, sizeof *row);
    pl_receipt_given given = {
        .size = sizeof given, .grammar = "root ::= .", .grammar_len = 10};
    struct way w = a_way(0);
    pl_grammar *g;
    pl_err err;

    TEST_OK(pl_grammar_create(&g, words, PL_GRAMMAR_GBNF, gbnf, strlen(gbnf),
                              NULL, &err),
            err);
    for (int from = 0; from < 6; from += 3) {
        pl_receipt *receipt;
        pl_sampler *s;
        char *json;

        TEST_OK(pl_seq_trim(r.engine, 0, 0, NULL, &err), err);
        TEST_OK(pl_sampler_create(&s, &w.s, r.n_vocab, &err), err);
        pl_sampler_accept(s, prompt[0]);
        TEST_OK(pl_receipt_begin(&receipt, r.engine, prompt, 1, &err), err);
        TEST_OK(pl_sampler_record(s, receipt, &err), err);
        TEST_OK(pl_sampler_exclude_eog(s, words, &err), err);
        for (int32_t i = 0, id = prompt[0]; i < 8; i++) {
            engine_run_decode(&r, 0, 1, &id, row);
            if (i == from)
                TEST_OK(pl_sampler_set_grammar(s, g, &err), err);
            if (i != 5 || pl_sampler_force(s, id, &err) != PL_OK)
                id = pl_sample(s, row);
            assert_true(id >= 0);
        }
        TEST_OK(pl_receipt_write(receipt, PL_RECEIPT_FULL, &json, &err), err);
        pl_sampler_free(s);
        pl_receipt_free(receipt);
        receipt = parsed(json);
        assert_int_equal(verified(receipt, r.engine, NULL).verdict,
                         PL_RECEIPT_HOLDS);
        assert_int_equal(verified(receipt, r.engine, &given).verdict,
                         PL_RECEIPT_DIFFERS);
        pl_receipt_free(receipt);
        free(json);
    }
    pl_grammar_free(g);
    free(row);
    engine_run_close(&r);
}

/* Cached prefixes and a state of the same ranks keep the bits; a state of other
 * ranks does not, and no receipt is written then. */
TEST(receipts_hold_after_states_of_the_same_ranks)
{
    struct engine_run r = opened(), other;
    pl_options o = options("cpu*2", NULL, 0);
    struct way w = a_way(0);
    pl_receipt *receipt;
    pl_err err;

    char *same = strdup(test_temp("same"));
    char *foreign = strdup(test_temp("other"));
    char *first = write_receipt(&r, 0, &w, 0), *again;

    o.n_ranks = 2;
    engine_run_open(&other, ref_model_path("llama-gqa-f32"), "llama", &o);
    engine_run_decode(&other, 0, N_PROMPT, prompt, NULL);
    TEST_OK(pl_state_save_file(r.engine, 0, 0, -1, NULL, 0, same, &err), err);
    TEST_OK(pl_state_save_file(other.engine, 0, 0, -1, NULL, 0, foreign, &err),
            err);
    TEST_OK(pl_state_restore_file(r.engine, 1, same, 0, NULL, NULL, &err), err);
    again = write_receipt(&r, 2, &w, 0);
    assert_string_equal(first, again);
    TEST_OK(pl_state_restore_file(r.engine, 1, foreign, 0, NULL, NULL, &err),
            err);
    assert_int_equal(
        pl_receipt_begin(&receipt, r.engine, prompt, N_PROMPT, &err),
        PL_UNSUPPORTED);
    assert_null(receipt);
    free(same);
    free(foreign);
    free(first);
    free(again);
    engine_run_close(&other);
    engine_run_close(&r);
}

/* ---- what is found ------------------------------------------------------- */

/* A change of a receipt's field, by its path, and the result. `at` is -2 where
 * the receipt is not even parsed. */
struct change {
    const char *path; /* names and indices, separated by dots */
    const char *value;
    pl_receipt_verdict verdict;
    int at;
};

enum { UNPARSED = -2 };

static const struct change changes[] = {
    {"sampling.seed", "\"8\"", PL_RECEIPT_DIFFERS, -3},
    {"sampling.temperature", "0.0", PL_RECEIPT_DIFFERS, -3},
    {"sampling.top_k", "1", PL_RECEIPT_DIFFERS, -3},
    {"sampling.repeat_penalty", "9.0", PL_RECEIPT_DIFFERS, -3},
    {"sampling.mirostat", "2", PL_RECEIPT_DIFFERS, -3},
    {"sampling.mirostat_tau", "4.0", PL_RECEIPT_HOLDS, -1}, /* not used */
    {"sampling.top_k", "\"40\"", PL_RECEIPT_HOLDS, UNPARSED},
    {"sampling.seed", "8", PL_RECEIPT_HOLDS, UNPARSED},
    {"sampling.new", "1", PL_RECEIPT_HOLDS, UNPARSED},
    {"sampling.samplers", "[\"none\"]", PL_RECEIPT_HOLDS, UNPARSED},
    {"model.hash", "\"0123456789abcdef\"", PL_RECEIPT_CANNOT, -1},
    {"model.name", "\"another\"", PL_RECEIPT_HOLDS, -1}, /* a name only */
    {"plait", "\"9.9\"", PL_RECEIPT_HOLDS, -1},
    {"note", "{\"by\": 1}", PL_RECEIPT_HOLDS, -1},
    {"numerics.hash", "\"0123456789abcdef\"", PL_RECEIPT_CANNOT, -1},
    {"numerics.ranks", "2", PL_RECEIPT_HOLDS, UNPARSED},
    {"numerics.shares", "\"nan\"", PL_RECEIPT_HOLDS, UNPARSED},
    {"numerics.activations", "\"float\"", PL_RECEIPT_CANNOT, -1},
    {"numerics.mtp", "1", PL_RECEIPT_CANNOT, -1},
    {"prompt.tokens.3", "4", PL_RECEIPT_HOLDS, UNPARSED},
    {"prompt.sha256", "\"00\"", PL_RECEIPT_HOLDS, UNPARSED},
    {"prompt.n", "100000000000", PL_RECEIPT_HOLDS, UNPARSED},
    {"output.tokens.5", "4", PL_RECEIPT_HOLDS, UNPARSED},
    {"output.n", "3", PL_RECEIPT_HOLDS, UNPARSED},
    {"output.no_eog", "[[0, 99]]", PL_RECEIPT_HOLDS, UNPARSED},
    {"output.forced", "[[1, 2]]", PL_RECEIPT_HOLDS, UNPARSED},
    {"rows.hash", "\"0123456789abcdef\"", PL_RECEIPT_DIFFERS, -1},
    {"rows.each", "\"0123\"", PL_RECEIPT_HOLDS, UNPARSED},
    {"end.reason", "\"eog\"", PL_RECEIPT_DIFFERS, -1},
    {"end.reason", "\"stop\"", PL_RECEIPT_DIFFERS, -1},
    {"end.max_tokens", "3", PL_RECEIPT_DIFFERS, -1},
    {"grammar", "{}", PL_RECEIPT_HOLDS, UNPARSED},
    {"plait_receipt", "2", PL_RECEIPT_HOLDS, UNPARSED},
    {"plait_receipt", "0", PL_RECEIPT_HOLDS, UNPARSED},
    {"unknown", "0", PL_RECEIPT_HOLDS, UNPARSED},
};

/* Sets the value at a path of the document. */
static void set_at(json_t *doc, const char *path, json_t *value)
{
    char name[64];
    json_t *in = doc;

    assert_non_null(value);
    for (;;) {
        size_t n = strcspn(path, ".");

        snprintf(name, sizeof name, "%.*s", (int)n, path);
        path += n;
        if (*path == '\0')
            break;
        path++;
        in = json_is_array(in) ? json_array_get(in, strtoul(name, NULL, 10))
                               : json_object_get(in, name);
        assert_non_null(in);
    }
    if (json_is_array(in))
        json_array_set_new(in, strtoul(name, NULL, 10), value);
    else
        json_object_set_new(in, name, value);
}

static char *changed(const char *json, const char *path, json_t *value)
{
    json_t *doc = json_loads(json, 0, NULL);
    char *text;

    set_at(doc, path, value);
    text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    return text;
}

static void try_change(const struct engine_run *r, const char *json,
                       const struct change *c)
{
    char *text =
        changed(json, c->path, json_loads(c->value, JSON_DECODE_ANY, NULL));
    pl_receipt_result result;
    pl_receipt *receipt;
    pl_err err;
    pl_status s = pl_receipt_parse(&receipt, text, strlen(text), &err);

    if (c->at == UNPARSED) {
        if (s != PL_BAD_FILE && s != PL_UNSUPPORTED)
            fail_msg("%s = %s is accepted", c->path, c->value);
        assert_non_null(strstr(err.message, "receipt"));
    } else {
        TEST_OK(s, err);
        result = verified(receipt, r->engine, NULL);
        if (result.verdict != c->verdict ||
            (c->at == -3 ? result.at < 0 : result.at != c->at))
            fail_msg("%s = %s: %s", c->path, c->value, result.text);
    }
    pl_receipt_free(receipt);
    free(text);
}

TEST(receipts_that_are_changed_are_found)
{
    struct engine_run r = opened();
    struct way w = a_way(0);
    char *json = write_receipt(&r, 0, &w, PL_RECEIPT_FULL);

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        try_change(&r, json, &changes[i]);
    free(json);
    engine_run_close(&r);
}

/* Replaces a token of the output, with a hash that fits, or the hash of a
 * row. */
static char *changed_at(const char *json, int at, int32_t id)
{
    json_t *doc = json_loads(json, 0, NULL);
    json_t *output = json_object_get(doc, "output");
    json_t *rows = json_object_get(doc, "rows");
    char *text,
        *each = strdup(json_string_value(json_object_get(rows, "each")));
    int32_t token[N_OUT];
    char hash[SHA256_TEXT];

    if (id >= 0) {
        json_array_set_new(json_object_get(output, "tokens"), (size_t)at,
                           json_integer(id));
        for (int i = 0; i < N_OUT; i++)
            token[i] = (int32_t)json_integer_value(
                json_array_get(json_object_get(output, "tokens"), (size_t)i));
        receipt_hash_tokens(hash, token, N_OUT);
        json_object_set_new(output, "sha256", json_string(hash));
    } else {
        each[4 * at] = each[4 * at] == '0' ? '1' : '0';
        json_object_set_new(rows, "each", json_string(each));
    }
    text = json_dumps(doc, JSON_COMPACT);
    json_decref(doc);
    free(each);
    return text;
}

TEST(receipts_name_the_first_token_that_differs)
{
    struct engine_run r = opened();
    uint64_t random = test_seed();
    struct way w = a_way(1);
    char *json = write_receipt(&r, 0, &w, PL_RECEIPT_FULL);
    int n = test_draws(60, 10000);

    for (int i = 0; i < n; i++) {
        int at = (int)test_below(&random, N_OUT);
        bool is_row = test_below(&random, 2) == 0;
        /* The hashes of rows leave out the forced token. */
        int row = at < FORCED || !is_row ? at : at + 1;
        char *text;
        pl_receipt *receipt;
        pl_receipt_result result;

        if ((is_row && at == N_OUT - 1) || (!is_row && at == FORCED))
            continue;
        text = changed_at(json, at, is_row ? -1 : 11);
        if (strcmp(text, json) != 0) {
            receipt = parsed(text);
            result = verified(receipt, r.engine, NULL);
            assert_int_equal(result.verdict, PL_RECEIPT_DIFFERS);
            assert_int_equal(result.at, row);
            assert_int_equal(result.written == result.sampled, is_row);
            pl_receipt_free(receipt);
        }
        free(text);
    }
    free(json);
    engine_run_close(&r);
}

/* ---- the functions ------------------------------------------------------- */

TEST(receipts_refuse_wrong_calls)
{
    struct engine_run r = opened();
    struct way w = a_way(0);
    char *json = write_receipt(&r, 0, &w, 0);
    pl_receipt *receipt, *read = parsed(json);
    pl_receipt_result result;
    pl_options o = options("cpu", NULL, 0);
    pl_sampler *s;
    char *text = NULL;
    bool same;
    pl_err err;

    TEST_OK(pl_sampler_create(&s, NULL, r.n_vocab, &err), err);
    TEST_OK(pl_receipt_begin(&receipt, r.engine, prompt, 2, &err), err);
    assert_int_equal(pl_receipt_write(receipt, 0, &text, &err),
                     PL_BAD_ARGUMENT); /* nothing was recorded */
    assert_int_equal(pl_sampler_record(s, receipt, &err), PL_BAD_ARGUMENT);
    pl_sampler_accept(s, prompt[0]);
    pl_sampler_accept(s, prompt[1]);
    TEST_OK(pl_sampler_record(s, receipt, &err), err);
    assert_int_equal(pl_sampler_record(s, receipt, &err), PL_BAD_ARGUMENT);
    assert_int_equal(pl_sampler_record(s, read, &err), PL_BAD_ARGUMENT);
    assert_int_equal(pl_receipt_write(receipt, 8, &text, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_receipt_verify(receipt, r.engine, NULL, &result,
                                       sizeof result, &err),
                     PL_BAD_ARGUMENT); /* it was not parsed */
    assert_int_equal(pl_receipt_options(receipt, &o, &err), PL_BAD_ARGUMENT);
    assert_int_equal(
        pl_receipt_set_end(receipt, (pl_receipt_end)99, 0, NULL, 0, &err),
        PL_BAD_ARGUMENT);
    assert_int_equal(pl_receipt_begin(NULL, r.engine, NULL, 0, &err),
                     PL_BAD_ARGUMENT);
    pl_receipt_free(read);
    assert_int_equal(pl_receipt_begin(&read, NULL, NULL, 0, NULL),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_receipt_parse(&read, NULL, 0, &err), PL_BAD_FILE);
    assert_int_equal(pl_receipt_diff(NULL, NULL, &same, NULL, NULL, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(pl_receipt_n_prompt(NULL), 0);
    assert_int_equal(pl_receipt_n_output(NULL), 0);
    pl_sampler_free(s);
    pl_receipt_free(receipt);
    free(json);
    engine_run_close(&r);
}

TEST(receipts_survive_failing_allocations)
{
    struct engine_run r = opened();
    struct way w = a_way(3);
    char *json = write_receipt(&r, 0, &w, PL_RECEIPT_FULL);
    pl_receipt_result result;
    pl_receipt *receipt;
    pl_err err;

    for (int64_t n = 0; alloc_each(&n);) {
        alloc_ran(pl_receipt_parse(&receipt, json, strlen(json), &err));
        pl_receipt_free(receipt);
    }
    for (int64_t n = 0; alloc_each(&n);) {
        alloc_ran(pl_receipt_begin(&receipt, r.engine, prompt, N_PROMPT, &err));
        pl_receipt_free(receipt);
    }
    receipt = parsed(json);
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(pl_receipt_verify(receipt, r.engine, NULL, &result,
                                    sizeof result, &err));
    pl_receipt_free(receipt);
    free(json);
    engine_run_close(&r);
}

/* A single bit of any logit changes the hash of its row and of later ones. */
TEST(receipts_rows_are_hashed_to_the_last_bit)
{
    enum { N_VOCAB = 101 };
    uint64_t random = test_seed();

    for (int i = 0; i < 2 * N_VOCAB; i++) {
        struct sampling_record a = {0}, b = {0};
        float row[N_VOCAB];
        uint32_t bits;
        int at = i < N_VOCAB ? i : (int)test_below(&random, N_VOCAB);

        for (int k = 0; k < N_VOCAB; k++)
            row[k] = test_unit(&random);
        record_row(&a, row, N_VOCAB, 1, 0);
        memcpy(&bits, &row[at], sizeof bits);
        bits ^= 1u << test_below(&random, 32);
        memcpy(&row[at], &bits, sizeof bits);
        record_row(&b, row, N_VOCAB, 1, 0);
        assert_int_not_equal(a.hash, b.hash);
        record_row(&a, row, N_VOCAB, 1, 0);
        record_row(&b, row, N_VOCAB, 1, 0);
        assert_int_not_equal(a.hash, b.hash);
        record_fini(&a);
        record_fini(&b);
    }
}
