/* Reads the sampling parameters, limits, stop strings and biases of a
 * request. */
#include "request_parse.h"
#include "sampler_names.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

enum {
    MOST_STOP = 256, /* limit of the number of stop strings of a request */
    MOST_STOP_BYTES = 1024, /* limit of the length of a stop string, in bytes */
    MOST_BIAS = 1 << 17,
    MOST_BAD_WORDS = 1024,
};

/* ---- reading numbers ----------------------------------------------------- */

static const struct {
    const char *name;
    /* Offset of a float in pl_sampling, the destination of the value. */
    size_t at;
    double least, most;
} numbers[] = {
    {"temperature", offsetof(pl_sampling, temperature), 0, 100},
    {"top_p", offsetof(pl_sampling, top_p), 0, 1},
    {"min_p", offsetof(pl_sampling, min_p), -1, 1},
    {"typical_p", offsetof(pl_sampling, typical_p), 0, 1},
    {"repeat_penalty", offsetof(pl_sampling, repeat_penalty), 0, 100},
    {"frequency_penalty", offsetof(pl_sampling, frequency_penalty), -100, 100},
    {"presence_penalty", offsetof(pl_sampling, presence_penalty), -100, 100},
    {"top_n_sigma", offsetof(pl_sampling, top_n_sigma), -1, 100},
    {"xtc_probability", offsetof(pl_sampling, xtc_probability), -1, 1},
    {"xtc_threshold", offsetof(pl_sampling, xtc_threshold), 0, 1},
    {"dynatemp_range", offsetof(pl_sampling, dynatemp_range), -1, 100},
    {"dynatemp_exponent", offsetof(pl_sampling, dynatemp_exponent), 0, 100},
    {"dry_multiplier", offsetof(pl_sampling, dry_multiplier), 0, 100},
    {"dry_base", offsetof(pl_sampling, dry_base), 1, 100},
    {"mirostat_tau", offsetof(pl_sampling, mirostat_tau), 0, 100},
    {"mirostat_eta", offsetof(pl_sampling, mirostat_eta), 0, 1},
    {"adaptive_target", offsetof(pl_sampling, adaptive_target), -100, 1},
    {"adaptive_decay", offsetof(pl_sampling, adaptive_decay), 0, 1},
};

static bool read_numbers(struct request_reader *r)
{
    pl_sampling *s = &r->a->sampling;
    int64_t top_k = s->top_k, last_n = s->penalty_last_n, seed = -1;
    int64_t dry_allowed = s->dry_allowed_length, dry_last_n = s->dry_last_n;
    int64_t mirostat = s->mirostat, min_keep = 0;

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        float *to = (float *)((char *)s + numbers[i].at);
        double v = *to;

        if (!field_number(&r->f, numbers[i].name, numbers[i].least,
                          numbers[i].most, &v))
            return false;
        *to = (float)v;
    }
    /* The same penalty as others call it, for all tokens of the sequence. */
    if (field(&r->f, "repetition_penalty") != NULL) {
        double penalty = s->repeat_penalty;

        if (!field_number(&r->f, "repetition_penalty", 0.001, 100, &penalty))
            return false;
        s->repeat_penalty = (float)penalty;
        last_n = -1;
    }
    if (s->repeat_penalty <= 0)
        return field_wrong(&r->f, "repeat_penalty",
                           field(&r->f, "repeat_penalty"),
                           "greater than 0 (1 is off)");
    if (!field_int(&r->f, "top_k", INT32_MIN, INT32_MAX, &top_k) ||
        !field_int(&r->f, "repeat_last_n", -1, INT32_MAX, &last_n) ||
        !field_int(&r->f, "seed", INT64_MIN, INT64_MAX, &seed) ||
        !field_int(&r->f, "dry_allowed_length", 1, INT32_MAX, &dry_allowed) ||
        !field_int(&r->f, "dry_penalty_last_n", -1, INT32_MAX, &dry_last_n) ||
        !field_int(&r->f, "mirostat", 0, 2, &mirostat) ||
        !field_int(&r->f, "min_keep", INT32_MIN, INT32_MAX, &min_keep))
        return false;
    if (min_keep > 1)
        return field_wrong(&r->f, "min_keep", field(&r->f, "min_keep"),
                           "0 or 1: each filter keeps one token at least");
    /* values that turn a filter off are reported as 0 */
    s->top_n_sigma = fmaxf(s->top_n_sigma, 0);
    s->min_p = fmaxf(s->min_p, 0);
    s->xtc_probability = fmaxf(s->xtc_probability, 0);
    s->dynatemp_range = fmaxf(s->dynatemp_range, 0);
    s->adaptive_target = s->adaptive_target < 0 ? -1 : s->adaptive_target;
    s->adaptive_decay = s->adaptive_decay > 0.99f ? 0.99f : s->adaptive_decay;
    s->dry_allowed_length = (int)dry_allowed;
    /* a dry_penalty_last_n of -1 means the whole context. The loop's
     * make_sampler later limits the value to the context size. */
    s->dry_last_n = dry_last_n < 0 || dry_last_n > SAMPLER_DRY_LAST_N
                        ? SAMPLER_DRY_LAST_N
                        : (int)dry_last_n;
    s->mirostat = (int)mirostat;
    s->top_k = top_k < 0 ? 0 : (int)top_k;
    s->penalty_last_n = (int)last_n;
    s->seed =
        seed < 0 || seed == SAMPLER_ANY_SEED ? r->rules->seed : (uint64_t)seed;
    return true;
}

/* Reads the limit of generated tokens, the slot, the number of choices, and the
 * limits that editors set. If several names of the token limit are present, the
 * last one in `names` counts. */
static bool read_limits(struct request_reader *r)
{
    static const char *const names[] = {"n_predict", "max_tokens",
                                        "max_completion_tokens",
                                        "max_output_tokens"};
    int most = r->rules->max_texts > 0 ? r->rules->max_texts : 128;
    int64_t max_tokens = -1, n = 1, slot = -1;
    double max_ms = -1;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!field_int(&r->f, names[i], -2, INT64_MAX, &max_tokens))
            return false;
    r->a->max_tokens = max_tokens < 0 ? r->rules->max_tokens : max_tokens;
    if (!field_int(&r->f, "min_tokens", 0,
                   r->a->max_tokens < 0 ? INT32_MAX : r->a->max_tokens,
                   &r->a->min_tokens))
        return false;
    if (!field_int(&r->f, "id_slot", -1, INT32_MAX - 1, &slot))
        return false;
    r->a->slot = (int)slot;
    if (r->a->kind == REQUEST_MESSAGES || r->a->kind == REQUEST_RESPONSES)
        return true;
    if (!field_int(&r->f, "n_cmpl", 1, most, &n) ||
        !field_int(&r->f, "n", 1, most, &n) ||
        !field_int(&r->f, "n_indent", 0, INT32_MAX, &r->a->n_indent) ||
        !field_number(&r->f, "t_max_predict_ms", -1, 1e9, &max_ms))
        return false;
    r->a->max_s = max_ms > 0 ? 1e-3 * max_ms : 0;
    r->a->n = (int)n;
    return true;
}

/* ---- reading stop strings ------------------------------------------------ */

static bool add_stop(struct request_reader *r, const char *name,
                     const json_t *v)
{
    if (!json_is_string(v) || json_string_length(v) > MOST_STOP_BYTES)
        return field_wrong(&r->f, name, v,
                           "a string of at most 1024 bytes, or a list of them");
    if (json_string_length(v) > 0) /* an empty stop string is ignored */
        r->a->stop[r->a->n_stop++] = json_string_value(v);
    return true;
}

static bool read_stop(struct request_reader *r)
{
    const char *name =
        r->a->kind == REQUEST_MESSAGES ? "stop_sequences" : "stop";
    const json_t *v = field(&r->f, name);
    size_t n = json_array_size(v);

    if (v == NULL)
        return true;
    if (n > MOST_STOP)
        return field_wrong(&r->f, name, v, "a list of at most 256 strings");
    r->a->stop = calloc(n + 1, sizeof(*r->a->stop));
    if (r->a->stop == NULL)
        return api_error_set_memory(r->f.why);
    if (!json_is_array(v))
        return add_stop(r, name, v);
    for (size_t i = 0; i < n; i++)
        if (!add_stop(r, name, json_array_get(v, i)))
            return false;
    return true;
}

/* ---- reading logit biases ------------------------------------------------ */

struct biases {
    struct request_reader *r;
    size_t n, cap;
};

static bool add_bias(struct biases *b, int64_t id, float bias)
{
    struct request *a = b->r->a;

    if (id < 0 || id >= b->r->rules->n_vocab)
        return api_error_set(b->r->f.why, 400, "invalid_value", "logit_bias",
                             "logit_bias: token %lld is not in the vocabulary; "
                             "use ids from 0 to %lld",
                             (long long)id,
                             (long long)b->r->rules->n_vocab - 1);
    if (b->n >= MOST_BIAS)
        return api_error_set(
            b->r->f.why, 400, "invalid_value", "logit_bias",
            "logit_bias: more than the limit of %d tokens; send fewer",
            MOST_BIAS);
    if (b->n == b->cap) {
        size_t cap = 2 * b->cap + 16;
        int32_t *ids = realloc(a->bias_id, cap * sizeof(*ids));
        float *biases;

        a->bias_id = ids != NULL ? ids : a->bias_id;
        biases = realloc(a->bias, cap * sizeof(*biases));
        a->bias = biases != NULL ? biases : a->bias;
        if (ids == NULL || biases == NULL)
            return api_error_set_memory(b->r->f.why);
        b->cap = cap;
    }
    a->bias_id[b->n] = (int32_t)id;
    a->bias[b->n++] = bias;
    return true;
}

/* Adds a logit bias for each token of a text. */
static bool add_text_bias(struct biases *b, const char *text, float bias)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    pl_err err;
    pl_status s;
    bool ok = true;

    if (b->r->rules->words == NULL)
        return api_error_set(b->r->f.why, 400, "invalid_value", "logit_bias",
                             "logit_bias: the model has no vocabulary; give "
                             "token ids instead of strings");
    s = pl_tokenize(b->r->rules->words, text, strlen(text), 0, &ids, &n, &err);
    if (s != PL_OK)
        return api_error_set_status(b->r->f.why, s, &err);
    for (int64_t i = 0; i < n && ok; i++)
        ok = add_bias(b, ids[i], bias);
    free(ids);
    return ok;
}

/* Adds the logit bias `value` to a token, or bans the token if `value` is
 * false. The token is the one with the id `id`. If `id` is NULL, adds the bias
 * to each token of `text`. If `digits` is set, a `text` that is a decimal
 * number is a token id instead. */
static bool take_bias(struct biases *b, const json_t *id, const char *text,
                      bool digits, const json_t *value)
{
    float bias =
        json_is_false(value) ? -INFINITY : (float)json_number_value(value);
    char *end;
    long long n;

    if ((!json_is_number(value) && !json_is_false(value)) ||
        (json_is_number(value) && !isfinite(bias)))
        return field_wrong(&b->r->f, "logit_bias", value,
                           "a number, or false to ban the token");
    if (id != NULL)
        return add_bias(b, json_integer_value(id), bias);
    errno = 0;
    n = digits ? strtoll(text, &end, 10) : 0;
    if (digits && text[0] != '\0' && *end == '\0' && errno == 0)
        return add_bias(b, n, bias);
    return add_text_bias(b, text, bias);
}

static bool read_biases(struct request_reader *r)
{
    static const char wrong[] = "an object of biases by token, or a list of "
                                "pairs [token, bias]";
    const json_t *v = field(&r->f, "logit_bias");
    struct biases b = {.r = r};
    const char *key;
    json_t *value;

    if (v == NULL)
        return true;
    if (!json_is_array(v) && !json_is_object(v))
        return field_wrong(&r->f, "logit_bias", v, wrong);
    json_object_foreach ((json_t *)v, key, value) {
        if (!take_bias(&b, NULL, key, true, value))
            return false;
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *pair = json_array_get(v, i);
        const json_t *token = json_array_get(pair, 0);
        bool is_id = json_is_integer(token);

        if (json_array_size(pair) != 2 || (!is_id && !json_is_string(token)))
            return field_wrong(&r->f, "logit_bias", pair, wrong);
        if (!take_bias(&b, is_id ? token : NULL, json_string_value(token),
                       false, json_array_get(pair, 1)))
            return false;
    }
    r->a->sampling.bias_id = r->a->bias_id;
    r->a->sampling.bias = r->a->bias;
    r->a->sampling.n_bias = (int)b.n;
    return true;
}

/* ---- reading lists of tokens --------------------------------------------- */

/* Reads a list of token ids in field `name`. Sets *ids to it, malloc'ed, and *n
 * to its length. Leaves both as they are if the field is absent. */
static bool read_ids(struct request_reader *r, const char *name, int32_t **ids,
                     int *n)
{
    const json_t *list = NULL, *one;
    size_t count, i;

    if (!field_list(&r->f, name, &list) || list == NULL)
        return field(&r->f, name) == NULL;
    count = json_array_size(list);
    *ids = malloc((count + 1) * sizeof(**ids));
    if (*ids == NULL)
        return api_error_set_memory(r->f.why);
    json_array_foreach (list, i, one) {
        json_int_t id = json_integer_value(one);

        if (!json_is_integer(one) || id < 0 || id >= r->rules->n_vocab)
            return api_error_set(
                r->f.why, 400, "invalid_value", name,
                "%s: item %zu is not a token; give a list of ids from 0 to "
                "%lld",
                name, i, (long long)r->rules->n_vocab - 1);
        (*ids)[i] = (int32_t)id;
    }
    *n = (int)count;
    return true;
}

/* Appends the tokens of a bad word, and -1, to r->a->banned_id. With a blank
 * before it, the word may be other tokens: then only as many tokens as without
 * the blank are taken, as vLLM does. `*last` is the first token and the number
 * of tokens of the word without a blank; {-1} if there is none yet. */
static bool add_bad_word(struct request_reader *r, const char *word, bool blank,
                         int64_t last[2])
{
    pl_sampling *s = &r->a->sampling;
    int32_t *ids = NULL, *all = NULL;
    struct text t = {0};
    int64_t n = 0;
    pl_err err;
    pl_status st;
    bool ok = text_add(&t, " ", blank) && text_add(&t, word, strlen(word));

    if (!ok) {
        text_free(&t);
        return api_error_set_memory(r->f.why);
    }
    st = pl_tokenize(r->rules->words, t.s, t.n, 0, &ids, &n, &err);
    text_free(&t);
    if (st != PL_OK)
        return api_error_set_status(r->f.why, st, &err);
    if (n > 0 && (!blank || (ids[0] != last[0] && n == last[1]))) {
        all = realloc(r->a->banned_id,
                      (size_t)(s->n_banned + n + 1) * sizeof(*all));
        ok = all != NULL;
        if (ok) {
            memcpy(all + s->n_banned, ids, (size_t)n * sizeof(*all));
            s->n_banned += (int)n;
            all[s->n_banned++] = -1;
            r->a->banned_id = all;
        }
    }
    last[0] = n > 0 ? ids[0] : -1;
    last[1] = n;
    free(ids);
    return ok || api_error_set_memory(r->f.why);
}

/* Reads vLLM's bad_words: texts that the output must not contain. */
static bool read_bad_words(struct request_reader *r)
{
    static const char name[] = "bad_words";
    const json_t *list = NULL, *one;
    size_t i;

    if (!field_list(&r->f, name, &list))
        return false;
    if (json_array_size(list) > 0 && r->rules->words == NULL)
        return field_unsupported(&r->f, name,
                                 "without a vocabulary, bad words are");
    if (json_array_size(list) > MOST_BAD_WORDS)
        return field_wrong(&r->f, name, list, "a list of at most 1024 strings");
    json_array_foreach (list, i, one) {
        const char *word = json_string_value(one);
        int64_t last[2] = {-1, 0};

        if (word == NULL || json_string_length(one) > MOST_STOP_BYTES ||
            word[strspn(word, " ")] == '\0')
            return field_wrong(&r->f, name, one,
                               "a list of strings of 1 to 1024 bytes");
        word += strspn(word, " ");
        if (!add_bad_word(r, word, false, last) ||
            !add_bad_word(r, word, true, last))
            return false;
    }
    return true;
}

/* Reads the lists of tokens that end the output, of those that are allowed, and
 * of those that are not. */
static bool read_tokens(struct request_reader *r)
{
    struct request *a = r->a;
    pl_sampling *s = &a->sampling;

    if (!read_ids(r, "stop_token_ids", &a->stop_id, &s->n_stop) ||
        !read_ids(r, "allowed_token_ids", &a->only_id, &s->n_only) ||
        !read_bad_words(r))
        return false;
    if (a->only_id != NULL && s->n_only == 0)
        return field_wrong(&r->f, "allowed_token_ids",
                           field(&r->f, "allowed_token_ids"),
                           "a list of one token id or more");
    s->stop = a->stop_id;
    s->only = a->only_id;
    s->banned = a->banned_id;
    return field_bool(&r->f, "include_stop_str_in_output", &a->shows_stop) &&
           field_bool(&r->f, "no_stop_trim", &a->shows_stop);
}

/* ---- reading limits of drafts -------------------------------------------- */

/* Reads the limits of drafts, which llama-server's names have. */
static bool read_drafts(struct request_reader *r)
{
    static const char types[] = "speculative.types";
    struct request *a = r->a;
    const char *names = NULL;
    int64_t n_max = -1, n_min = 0;
    double p_min = 0;
    uint32_t has = UINT32_MAX;
    bool passed;

    a->has_drafts = r->rules->drafts != NULL;
    if (a->has_drafts) {
        a->drafts = *r->rules->drafts;
        n_max = a->drafts.n_max;
        n_min = a->drafts.n_min;
        p_min = a->drafts.p_min;
    }
    if (!field_int(&r->f, "speculative.n_max", -1, INT32_MAX, &n_max) ||
        !field_int(&r->f, "speculative.n_min", 0, PL_DRAFT_MAX, &n_min) ||
        !field_number(&r->f, "speculative.p_min", 0, 1, &p_min) ||
        !field_text(&r->f, types, &names))
        return false;
    a->drafts.n_max = (int)n_max;
    a->drafts.n_min = (int)n_min;
    a->drafts.p_min = (float)p_min;
    if (names == NULL)
        return true;
    if (!pl_draft_sources_parse(names, &a->drafts.sources, &passed))
        return field_wrong(&r->f, types, field(&r->f, types), PL_DRAFT_SOURCES);
    /* Drafts change no result, so sources that the server does not have are
     * ignored. */
    if (!a->has_drafts)
        has = 0;
    else
        has &= ~r->rules->no_source;
    if ((a->drafts.sources & ~has) != 0)
        request_ignore(a, types);
    a->drafts.sources &= has;
    return true;
}

/* Sets the request's sampling parameters to the defaults in r->rules, then
 * overwrites those that the request sets. If the request has logit biases, they
 * replace all default biases. */
bool request_read_sampling(struct request_reader *r)
{
    struct request *a = r->a;

    if (r->rules->sampling != NULL)
        a->sampling = *r->rules->sampling;
    else
        pl_sampling_init(&a->sampling);
    if (!read_numbers(r) || !read_limits(r) || !read_stop(r) ||
        !read_biases(r) || !read_tokens(r) || !request_read_samplers(r) ||
        !read_drafts(r))
        return false;
    return field_bool(&r->f, "ignore_eos", &a->ignore_end);
}
