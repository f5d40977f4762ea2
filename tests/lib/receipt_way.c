/* Generates outputs for tests of receipts; receipt_way.h describes the
 * functions. */
#include "lib/receipt_way.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const int32_t way_prompt[WAY_PROMPT] = {1, 5, 9, 2, 7, 3, 4};

struct way way(int i)
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
        w.name = "mirostat 2, dynamic temperature, forced";
        w.s.mirostat = 2;
        w.s.dynatemp_range = 0.4F;
        w.forces = true;
        break;
    case 6:
        w.name = "grammar";
        w.grammar = "root ::= [a-zA-Z ]+";
        w.no_eog = true;
        break;
    case 7:
        w.name = "grammar from a later token, forced";
        w.grammar = "root ::= [^0-9]+";
        w.grammar_from = 3;
        w.no_eog = true;
        w.forces = true;
        w.s.temperature = 1.5F;
        break;
    case 8:
        w.name = "top-n-sigma, presence penalty of all tokens";
        w.s.top_n_sigma = 1.5F;
        w.s.presence_penalty = -0.3F;
        w.s.penalty_last_n = -1;
        w.s.temperature = 3;
        break;
    case 9:
        w.name = "every probability as it is";
        w.s.temperature = 1;
        w.s.top_k = 0;
        w.s.top_p = 1;
        w.s.min_p = 0;
        w.s.seed = UINT64_MAX;
        break;
    case 10:
        w.name = "all at once";
        w.s.temperature = 1.7F;
        w.s.top_k = 30;
        w.s.typical_p = 0.95F;
        w.s.top_n_sigma = 3;
        w.s.xtc_probability = 0.5F;
        w.s.dry_multiplier = 1;
        w.s.dry_base = 1.1F;
        w.s.dry_allowed_length = 1;
        w.s.dry_last_n = 8;
        w.s.repeat_penalty = 1.1F;
        w.s.penalty_last_n = 3;
        w.s.dynatemp_range = 0.5F;
        w.s.dynatemp_exponent = 2;
        w.s.n_bias = 1;
        w.s.bias_id = id + 1;
        w.s.bias = bias + 1;
        w.s.seed = (1ULL << 53) + 1;
        break;
    default:
        break;
    }
    return w;
}

/* Decodes one token, alone or in the same step as tokens of two other
 * sequences. Writes its logits to `row`. */
static void step(const struct way_run *run, int32_t id, float *row)
{
    int a = (run->seq + 1) % 4, b = (run->seq + 2) % 4;
    int32_t token[3] = {9, id, 3};
    int32_t seq[3] = {a, run->seq, b};
    uint8_t wanted[3] = {0, 1, 0};
    pl_batch batch = {.size = sizeof batch,
                      .n = 3,
                      .token = token,
                      .seq = seq,
                      .wanted = wanted,
                      .logits = row};
    pl_err err;

    if (run->company)
        TEST_OK(pl_engine_decode(run->r->engine, &batch, NULL, &err), err);
    else
        engine_run_decode(run->r, run->seq, 1, &id, row);
}

static pl_grammar *grammar_of(const struct way_run *run, const struct way *w)
{
    const pl_tokenizer *words = pl_model_tokenizer(run->r->model);
    pl_grammar *g = NULL;
    pl_err err;

    if (w->grammar && words)
        TEST_OK(pl_grammar_create(&g, words, PL_GRAMMAR_GBNF, w->grammar,
                                  strlen(w->grammar), NULL, &err),
                err);
    return g;
}

/* Returns token i of the output: samples it from `row`, or has the caller
 * choose it if the way says so. */
static int32_t next(pl_sampler *s, const struct way *w, int i, const float *row)
{
    int32_t id = -1;
    pl_err err;

    if (!w->forces || i != WAY_FORCED) {
        id = pl_sample(s, row);
        if (id < 0)
            pl_sampler_status(s, &err);
        if (id < 0)
            fail_msg("%s: %s", w->name, err.message);
        return id;
    }
    if (w->grammar) /* chooses a token that the grammar allows */
        for (id = 100; pl_sampler_force(s, id, &err) != PL_OK;)
            assert_true(++id < 300);
    else
        pl_sampler_accept(s, id = 6);
    return id;
}

char *way_receipt(struct way_run *run, const struct way *w, unsigned flags)
{
    const struct engine_run *r = run->r;
    const pl_tokenizer *words = pl_model_tokenizer(r->model);
    const int32_t *prompt = run->prompt ? run->prompt : way_prompt;
    int n_prompt = run->prompt ? run->n_prompt : WAY_PROMPT;
    float *row = test_need((size_t)r->n_vocab, sizeof *row);
    pl_grammar *g = grammar_of(run, w);
    pl_sampling settings = w->s;
    pl_receipt *receipt;
    pl_sampler *s;
    char *json;
    pl_err err;

    settings.tokenizer = words;
    if (!words) /* without a tokenizer DRY cannot find its breakers */
        settings.dry_multiplier = 0;
    TEST_OK(pl_seq_trim(r->engine, run->seq, 0, NULL, &err), err);
    TEST_OK(pl_sampler_create(&s, &settings, r->n_vocab, &err), err);
    for (int i = 0; i < n_prompt; i++)
        pl_sampler_accept(s, prompt[i]);
    TEST_OK(pl_receipt_begin(&receipt, r->engine, prompt, n_prompt, &err), err);
    TEST_OK(pl_sampler_record(s, receipt, &err), err);
    if (w->no_eog && words)
        TEST_OK(pl_sampler_exclude_eog(s, words, &err), err);
    TEST_OK(pl_seq_share(r->engine, run->seq, prompt, n_prompt, &run->n_shared,
                         &err),
            err);
    if (run->n_shared < n_prompt - 1)
        engine_run_decode(r, run->seq, n_prompt - 1 - run->n_shared,
                          prompt + run->n_shared, NULL);
    for (int32_t i = 0, id = prompt[n_prompt - 1]; i < WAY_OUT; i++) {
        step(run, id, row);
        if (g && i == w->grammar_from)
            TEST_OK(pl_sampler_set_grammar(s, g, &err), err);
        id = next(s, w, i, row);
        if (run->rows)
            memcpy(run->rows + i * r->n_vocab, row,
                   (size_t)r->n_vocab * sizeof *row);
        if (run->tokens)
            run->tokens[i] = id;
    }
    TEST_OK(pl_receipt_set_end(receipt, PL_RECEIPT_OTHER, -1, NULL, 0, &err),
            err);
    TEST_OK(pl_receipt_write(receipt, flags, &json, &err), err);
    pl_sampler_free(s);
    pl_receipt_free(receipt);
    pl_grammar_free(g);
    free(row);
    return json;
}

char *way_write(const struct engine_run *r, const struct way *w, unsigned flags)
{
    struct way_run run = {.r = r};

    return way_receipt(&run, w, flags);
}

pl_receipt *way_parsed(const char *json)
{
    pl_receipt *r;
    pl_err err;

    TEST_OK(pl_receipt_parse(&r, json, strlen(json), &err), err);
    return r;
}

pl_receipt_result way_verified(const pl_receipt *r, pl_engine *e,
                               const pl_receipt_given *given)
{
    pl_receipt_result result;
    pl_err err;

    TEST_OK(pl_receipt_verify(r, e, given, &result, sizeof result, &err), err);
    return result;
}

void way_holds(const pl_model *m, const char *json, pl_options o,
               const char *what)
{
    pl_receipt *r = way_parsed(json);
    pl_receipt_result result;
    pl_engine *e;
    pl_err err;

    TEST_OK(pl_receipt_options(r, &o, &err), err);
    if (pl_engine_create(&e, m, &o, &err) != PL_OK)
        fail_msg("%s on %s: %s", what, o.devices, err.message);
    result = way_verified(r, e, NULL);
    if (result.verdict != PL_RECEIPT_HOLDS || result.at != -1)
        fail_msg("%s on %s: %s", what, o.devices, result.text);
    pl_engine_free(e);
    pl_receipt_free(r);
}
