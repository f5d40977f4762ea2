/* Converts the settings of a sampler to JSON and back. Every setting is
 * written, even if its value is the default, because a later version may have
 * other defaults; except settings that earlier versions do not know. */
#include "receipt/receipt.h"

#include "base/err.h"
#include "base/numeral.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROW(name, is_float, is_new)                                            \
    {                                                                          \
#name, offsetof(pl_sampling, name), is_float, is_new                   \
    }
#define INT(name)   ROW(name, false, false)
#define FLOAT(name) ROW(name, true, false)
const struct receipt_setting receipt_settings[] = {
    INT(penalty_last_n),
    FLOAT(repeat_penalty),
    FLOAT(frequency_penalty),
    FLOAT(presence_penalty),
    INT(top_k),
    FLOAT(typical_p),
    FLOAT(top_p),
    FLOAT(min_p),
    FLOAT(temperature),
    FLOAT(top_n_sigma),
    FLOAT(xtc_probability),
    FLOAT(xtc_threshold),
    FLOAT(dynatemp_range),
    FLOAT(dynatemp_exponent),
    FLOAT(dry_multiplier),
    FLOAT(dry_base),
    INT(dry_allowed_length),
    INT(dry_last_n),
    INT(mirostat),
    FLOAT(mirostat_tau),
    FLOAT(mirostat_eta),
    ROW(adaptive_target, true, true),
    ROW(adaptive_decay, true, true),
};
enum { N_FIELD = sizeof receipt_settings / sizeof receipt_settings[0] };
const int n_receipt_setting = N_FIELD;

pl_status receipt_bad_field(pl_err *err, const char *field, const char *remedy)
{
    return err_set(err, PL_BAD_FILE, "receipt: \"%s\" is missing or wrong; %s",
                   field, remedy);
}

static const char *const forms[] = {[PL_GRAMMAR_GBNF] = "gbnf",
                                    [PL_GRAMMAR_JSON_SCHEMA] = "json_schema",
                                    [PL_GRAMMAR_CALLS] = "calls",
                                    [PL_GRAMMAR_REGEX] = "regex"};

const char *receipt_form_name(pl_grammar_form form)
{
    return forms[form];
}

/* ---- writing settings to JSON -------------------------------------------- */

/* Returns v as the JSON number with the fewest digits that is read as the same
 * float. Infinities, which JSON lacks, become strings. */
static json_t *number(float v)
{
    char text[32];

    if (!isfinite(v))
        return json_string(v > 0 ? "inf" : v < 0 ? "-inf" : "nan");
    for (int digits = 1; digits <= 9; digits++) {
        numeral_print(text, sizeof text, "%.*g", digits, (double)v);
        if (numeral_float(text, NULL) == v)
            break;
    }
    return json_real(numeral_double(text, NULL));
}

static json_t *write_biases(const pl_sampling *s)
{
    json_t *list = json_array();

    for (int i = 0; list && i < s->n_bias; i++)
        list = receipt_append(
            list, json_pack("[i, o]", (int)s->bias_id[i], number(s->bias[i])));
    return list;
}

/* The settings that are lists of tokens. Receipts of earlier versions lack
 * them, so an empty list is left out. */
static const struct {
    const char *name;
    size_t at, n_at;
} lists[] = {
    {"only", offsetof(pl_sampling, only), offsetof(pl_sampling, n_only)},
    {"banned", offsetof(pl_sampling, banned), offsetof(pl_sampling, n_banned)},
    {"stop", offsetof(pl_sampling, stop), offsetof(pl_sampling, n_stop)},
};
enum { N_LIST = sizeof lists / sizeof lists[0] };

static bool write_lists(json_t *to, const pl_sampling *s)
{
    bool done = true;

    for (int i = 0; i < N_LIST && done; i++) {
        const int32_t *id;
        json_t *list;
        int n;

        memcpy(&id, (const char *)s + lists[i].at, sizeof id);
        memcpy(&n, (const char *)s + lists[i].n_at, sizeof n);
        if (n == 0)
            continue;
        list = json_array();
        for (int k = 0; list && k < n; k++)
            list = receipt_append(list, json_integer(id[k]));
        done = json_object_set_new(to, lists[i].name, list) == 0;
    }
    return done;
}

static json_t *write_steps(const pl_sampling *s)
{
    json_t *list = json_array();
    int n = s->n_step > 0 ? s->n_step : PL_N_STEP_USUAL;

    for (int i = 0; list && i < n; i++)
        list = receipt_append(list, json_string(pl_sampling_step_name(
                                        s->n_step > 0 ? s->step[i] : i)));
    return list;
}

static json_t *write_breakers(const pl_sampling *s)
{
    static const char *const usual[] = {"\n", ":", "\"", "*"};
    const char *const *from = s->dry_breaker ? s->dry_breaker : usual;
    int n = s->dry_breaker ? s->n_dry_breaker : 4;
    json_t *list = json_array();

    for (int i = 0; list && i < n; i++)
        list = receipt_append(list, json_string(from[i]));
    return list;
}

/* Returns true if all breakers of DRY are UTF-8, so that JSON can contain
 * them. */
static bool are_utf8(const pl_sampling *s)
{
    for (int i = 0; s->dry_breaker && i < s->n_dry_breaker; i++)
        if (!receipt_can_have(s->dry_breaker[i], strlen(s->dry_breaker[i])))
            return false;
    return true;
}

pl_status receipt_write_sampling(json_t **out, const pl_sampling *s,
                                 pl_err *err)
{
    json_t *j = json_object();
    bool done = j != NULL;
    pl_sampling usual;
    char seed[24];

    *out = NULL;
    pl_sampling_init(&usual);
    if (!are_utf8(s)) {
        json_decref(j);
        return err_set(err, PL_UNSUPPORTED,
                       "a breaker of DRY is not UTF-8, which a receipt cannot "
                       "have; leave it out");
    }
    for (int i = 0; done && i < N_FIELD; i++) {
        const char *at = (const char *)s + receipt_settings[i].at;
        float f;
        int n;

        if (receipt_settings[i].is_new &&
            memcmp(at, (const char *)&usual + receipt_settings[i].at,
                   sizeof f) == 0)
            continue;
        memcpy(&f, at, sizeof f);
        memcpy(&n, at, sizeof n);
        done = json_object_set_new(j, receipt_settings[i].name,
                                   receipt_settings[i].is_float
                                       ? number(f)
                                       : json_integer(n)) == 0;
    }
    /* The seed is a string, because many readers of JSON round integers above
     * 2^53. */
    snprintf(seed, sizeof seed, "%" PRIu64, s->seed);
    done = done && json_object_set_new(j, "seed", json_string(seed)) == 0 &&
           json_object_set_new(j, "bias", write_biases(s)) == 0 &&
           json_object_set_new(j, "samplers", write_steps(s)) == 0 &&
           json_object_set_new(j, "dry_breakers", write_breakers(s)) == 0 &&
           write_lists(j, s) &&
           json_object_set_new(j, "tokenizer",
                               json_boolean(s->tokenizer != NULL)) == 0;
    *out = done ? j : NULL;
    if (!done)
        json_decref(j);
    return done ? PL_OK : err_no_memory(err, "a receipt");
}

/* ---- reading settings from JSON ------------------------------------------ */

static bool read_number(const json_t *j, float *out)
{
    const char *s = json_string_value(j);

    if (s && strcmp(s, "inf") == 0)
        *out = INFINITY;
    else if (s && strcmp(s, "-inf") == 0)
        *out = -INFINITY;
    else if (json_is_number(j))
        *out = (float)json_number_value(j);
    else
        return false;
    return true;
}

static bool read_int(const json_t *j, int *out)
{
    json_int_t v = json_integer_value(j);

    *out = (int)v;
    return json_is_integer(j) && v >= INT32_MIN && v <= INT32_MAX;
}

static pl_status read_fields(pl_sampling *s, const json_t *from, pl_err *err)
{
    for (int i = 0; i < N_FIELD; i++) {
        const json_t *j = json_object_get(from, receipt_settings[i].name);
        char *at = (char *)s + receipt_settings[i].at;
        float f;
        int n;

        if (j == NULL && receipt_settings[i].is_new)
            continue;
        if (receipt_settings[i].is_float ? !read_number(j, &f)
                                         : !read_int(j, &n))
            return receipt_bad_field(err, receipt_settings[i].name,
                                     "in sampling it must be a number");
        if (receipt_settings[i].is_float)
            memcpy(at, &f, sizeof f);
        else
            memcpy(at, &n, sizeof n);
    }
    return PL_OK;
}

static pl_status read_seed(pl_sampling *s, const json_t *from, pl_err *err)
{
    const char *text = json_string_value(json_object_get(from, "seed"));
    char again[24];

    s->seed = text ? strtoull(text, NULL, 10) : 0;
    snprintf(again, sizeof again, "%" PRIu64, s->seed);
    return text && strcmp(text, again) == 0
               ? PL_OK
               : receipt_bad_field(err, "seed",
                                   "in sampling it must be a string of digits");
}

static pl_status read_biases(pl_sampling *s, const json_t *from, pl_err *err)
{
    const json_t *list = json_object_get(from, "bias"), *one;
    size_t n = json_array_size(list), i;
    int32_t *id = calloc(n + 1, sizeof *id);
    float *bias = calloc(n + 1, sizeof *bias);

    s->bias_id = id;
    s->bias = bias;
    if (!id || !bias)
        return err_no_memory(err, "a receipt");
    if (!json_is_array(list) || n > INT32_MAX)
        return receipt_bad_field(err, "bias", "in sampling it must be a list");
    json_array_foreach (list, i, one)
        if (json_array_size(one) != 2 ||
            !read_int(json_array_get(one, 0), &id[i]) ||
            !read_number(json_array_get(one, 1), &bias[i]))
            return receipt_bad_field(
                err, "bias", "in sampling its items must be [id, number]");
    s->n_bias = (int)n;
    return PL_OK;
}

static pl_status read_lists(pl_sampling *s, const json_t *from, pl_err *err)
{
    for (int i = 0; i < N_LIST; i++) {
        const json_t *list = json_object_get(from, lists[i].name), *one;
        size_t n = json_array_size(list), k;
        int32_t *id;
        int count = (int)n;

        if (!list)
            continue;
        id = calloc(n + 1, sizeof *id);
        memcpy((char *)s + lists[i].at, &id, sizeof id);
        if (!id)
            return err_no_memory(err, "a receipt");
        if (!json_is_array(list) || n > INT32_MAX)
            return receipt_bad_field(err, lists[i].name,
                                     "in sampling it must be a list");
        json_array_foreach (list, k, one)
            if (!read_int(one, &id[k]))
                return receipt_bad_field(err, lists[i].name,
                                         "in sampling its items must be ids");
        memcpy((char *)s + lists[i].n_at, &count, sizeof count);
    }
    return PL_OK;
}

static pl_status read_steps(pl_sampling *s, const json_t *from, pl_err *err)
{
    const json_t *list = json_object_get(from, "samplers"), *one;
    size_t n = json_array_size(list), i;

    if (n < 1 || n > PL_N_STEP)
        return receipt_bad_field(err, "samplers",
                                 "in sampling it must be a list of samplers");
    json_array_foreach (list, i, one) {
        int step = pl_sampling_step_find(
            json_is_string(one) ? json_string_value(one) : "",
            json_string_length(one));

        if (step < 0)
            return receipt_bad_field(err, "samplers",
                                     "in sampling it names an unknown sampler; "
                                     "a later version of plait may know it");
        s->step[i] = (uint8_t)step;
    }
    s->n_step = (int)n;
    return PL_OK;
}

static pl_status read_breakers(pl_sampling *s, const json_t *from, pl_err *err)
{
    const json_t *list = json_object_get(from, "dry_breakers"), *one;
    size_t n = json_array_size(list), i;
    char **text = calloc(n + 1, sizeof *text);

    s->dry_breaker = (const char *const *)text;
    if (!text)
        return err_no_memory(err, "a receipt");
    s->n_dry_breaker = (int)n;
    json_array_foreach (list, i, one) {
        if (!json_is_string(one))
            return receipt_bad_field(err, "dry_breakers",
                                     "in sampling it must be a list of "
                                     "strings");
        text[i] = strdup(json_string_value(one));
        if (!text[i])
            return err_no_memory(err, "a receipt");
    }
    return json_is_array(list)
               ? PL_OK
               : receipt_bad_field(err, "dry_breakers",
                                   "in sampling it must be a list");
}

/* Fails if the object "sampling" has a setting that this version does not know,
 * because results may depend on it. */
static pl_status check_names(const json_t *from, pl_err *err)
{
    static const char *const others[] = {"seed", "bias", "samplers",
                                         "dry_breakers", "tokenizer"};
    const char *key;
    json_t *value;

    json_object_foreach ((json_t *)from, key, value) {
        bool known = false;

        for (int i = 0; i < N_FIELD; i++)
            known |= strcmp(key, receipt_settings[i].name) == 0;
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
            known |= strcmp(key, others[i]) == 0;
        for (int i = 0; i < N_LIST; i++)
            known |= strcmp(key, lists[i].name) == 0;
        if (!known) {
            char shown[ERR_SHOWN];

            return err_set(err, PL_UNSUPPORTED,
                           "receipt: unknown setting \"%s\" in sampling; a "
                           "later version of plait may know it",
                           err_shown(shown, key, strlen(key)));
        }
    }
    return PL_OK;
}

pl_status receipt_read_sampling(pl_sampling *s, const json_t *from,
                                const pl_tokenizer *words, pl_err *err)
{
    pl_sampling_init(s);
    if (!json_is_object(from))
        return receipt_bad_field(err, "sampling", "it must be an object");
    PL_TRY(check_names(from, err));
    PL_TRY(read_fields(s, from, err));
    PL_TRY(read_seed(s, from, err));
    PL_TRY(read_steps(s, from, err));
    PL_TRY(read_biases(s, from, err));
    PL_TRY(read_lists(s, from, err));
    PL_TRY(read_breakers(s, from, err));
    if (json_is_true(json_object_get(from, "tokenizer")))
        s->tokenizer = words;
    return PL_OK;
}

void receipt_free_sampling(pl_sampling *s)
{
    for (int i = 0; s->dry_breaker && i < s->n_dry_breaker; i++)
        free((char *)s->dry_breaker[i]);
    free((void *)s->dry_breaker);
    free((int32_t *)s->bias_id);
    free((float *)s->bias);
    free((int32_t *)s->only);
    free((int32_t *)s->banned);
    free((int32_t *)s->stop);
}
