/* Parses receipts. They may come from strangers, so every field is checked
 * before it is used. */
#include "receipt/receipt.h"

#include "base/err.h"
#include "base/numeral.h"
#include "quant/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TOKENS = 1 << 26, MOST_STRINGS = 4096 };

static pl_status no_memory(pl_err *err)
{
    return err_no_memory(err, "a receipt");
}

/* If j is a string of n hexadecimal digits in lower case, copies it with its
 * terminator to `to` and returns true. */
static bool read_hex(const json_t *j, char *to, size_t n)
{
    const char *s = json_string_value(j);

    if (!s || json_string_length(j) != n || strspn(s, "0123456789abcdef") != n)
        return false;
    memcpy(to, s, n + 1);
    return true;
}

static bool read_count(const json_t *j, int64_t *out)
{
    json_int_t v = json_integer_value(j);

    *out = v;
    return json_is_integer(j) && v >= 0 && v <= MOST_TOKENS;
}

static bool read_id(const json_t *j, int32_t *out)
{
    json_int_t v = json_integer_value(j);

    *out = (int32_t)v;
    return json_is_integer(j) && v >= 0 && v <= INT32_MAX;
}

/* ---- the parts of the document ------------------------------------------- */

static pl_status read_prompt(pl_receipt *r, pl_err *err)
{
    const json_t *j = json_object_get(r->doc, "prompt"), *one;
    const json_t *list = json_object_get(j, "tokens");
    char hash[SHA256_TEXT];
    size_t i;

    if (!read_count(json_object_get(j, "n"), &r->n_prompt) ||
        !read_hex(json_object_get(j, "sha256"), r->prompt_hash,
                  SHA256_TEXT - 1))
        return receipt_bad_field(err, "prompt", "it must have n and sha256");
    if (!list)
        return PL_OK;
    if (!json_is_array(list) || (int64_t)json_array_size(list) != r->n_prompt)
        return receipt_bad_field(err, "prompt",
                                 "its n must be the number of "
                                 "its tokens");
    r->prompt = malloc(((size_t)r->n_prompt + 1) * sizeof *r->prompt);
    if (!r->prompt)
        return no_memory(err);
    json_array_foreach (list, i, one)
        if (!read_id(one, &r->prompt[i]))
            return receipt_bad_field(err, "prompt",
                                     "its tokens must be a list of ids");
    receipt_hash_tokens(hash, r->prompt, r->n_prompt);
    return strcmp(hash, r->prompt_hash) == 0
               ? PL_OK
               : receipt_bad_field(err, "prompt",
                                   "its sha256 is not that of its tokens: the "
                                   "receipt was changed");
}

/* Sets the bit `how` (RECORD_*) of the output's tokens in the ranges [first,
 * count] of a list. Ranges must be ascending and disjoint, so the time is
 * bounded by the number of tokens. */
static pl_status read_ranges(struct sampling_record *a, const json_t *list,
                             unsigned how, const char *name, pl_err *err)
{
    const json_t *one;
    int64_t end = 0;
    size_t i;

    json_array_foreach (list, i, one) {
        int64_t from, n;

        if (json_array_size(one) != 2 ||
            !read_count(json_array_get(one, 0), &from) ||
            !read_count(json_array_get(one, 1), &n) || n < 1 || from < end ||
            from + n > a->n)
            return receipt_bad_field(err, name,
                                     "in output its items must be [first, "
                                     "count] of tokens, in ascending order");
        end = from + n;
        for (int64_t k = from; k < end; k++)
            a->token[k].how |= (uint16_t)how;
    }
    return json_is_array(list)
               ? PL_OK
               : receipt_bad_field(err, name, "in output it must be a list");
}

static pl_status read_forced(struct sampling_record *a, const json_t *list,
                             pl_err *err)
{
    const json_t *one;
    size_t i;

    json_array_foreach (list, i, one) {
        int64_t at;
        int32_t id;

        if (json_array_size(one) != 3 ||
            !read_count(json_array_get(one, 0), &at) ||
            !read_id(json_array_get(one, 1), &id) ||
            !json_is_boolean(json_array_get(one, 2)) || at >= a->n ||
            (a->token[at].how & RECORD_FORCED) ||
            (a->token[at].id >= 0 && a->token[at].id != id))
            return receipt_bad_field(err, "forced",
                                     "in output its items must be [index, id, "
                                     "is part of the grammar]");
        a->token[at].id = id;
        a->token[at].how |= RECORD_FORCED;
        if (json_is_true(json_array_get(one, 2)))
            a->token[at].how |= RECORD_GRAMMAR;
    }
    return json_is_array(list)
               ? PL_OK
               : receipt_bad_field(err, "forced",
                                   "in output it must be a list");
}

/* Reads the sum of -ln p. A receipt has it in place of a sampler's settings,
 * if the tokens were given. Then none was forced or excluded. */
static pl_status read_score(pl_receipt *r, pl_err *err)
{
    const json_t *j = json_object_get(r->doc, "output");
    const json_t *nll = json_object_get(j, "nll");
    const char *text = json_string_value(nll);
    char *end;

    r->scored = nll != NULL;
    if (!nll)
        return PL_OK;
    r->nll = text ? numeral_double(text, &end) : NAN;
    return isfinite(r->nll) && end != text && *end == '\0' && !r->no_tokens &&
                   json_array_size(json_object_get(j, "forced")) == 0 &&
                   json_array_size(json_object_get(j, "no_eog")) == 0 &&
                   !json_object_get(j, "no_stops") &&
                   json_is_null(json_object_get(r->doc, "grammar")) &&
                   json_is_null(json_object_get(r->doc, "sampling"))
               ? PL_OK
               : receipt_bad_field(err, "nll",
                                   "in output it must be a number as a text, "
                                   "of tokens that are there, without "
                                   "sampling, grammar, forced, no_eog");
}

static pl_status read_output(pl_receipt *r, pl_err *err)
{
    const json_t *j = json_object_get(r->doc, "output"), *one;
    const json_t *list = json_object_get(j, "tokens");
    const json_t *rows = json_object_get(r->doc, "rows");
    struct sampling_record *a = &r->record;
    char hash[SHA256_TEXT];
    /* Bounds the memory by the size of the document: each sampled token has
     * four digits in rows.each, each forced token an item in output.forced. */
    size_t most = json_string_length(json_object_get(rows, "each")) / 4 +
                  json_array_size(json_object_get(j, "forced")),
           i;

    if (!read_count(json_object_get(j, "n"), &a->n) ||
        !read_hex(json_object_get(j, "sha256"), r->output_hash,
                  SHA256_TEXT - 1))
        return receipt_bad_field(err, "output", "it must have n and sha256");
    if ((size_t)a->n > most)
        return receipt_bad_field(err, "output",
                                 "its n must be the number of rows and of "
                                 "forced tokens");
    a->token = calloc((size_t)a->n + 1, sizeof *a->token);
    a->cap = a->n;
    if (!a->token)
        return no_memory(err);
    r->no_tokens = !list;
    for (int64_t k = 0; k < a->n; k++)
        a->token[k].id = -1;
    if (list &&
        (!json_is_array(list) || (int64_t)json_array_size(list) != a->n))
        return receipt_bad_field(err, "output",
                                 "its n must be the number of its tokens");
    json_array_foreach (list, i, one)
        if (!read_id(one, &a->token[i].id))
            return receipt_bad_field(err, "output",
                                     "its tokens must be a list of ids");
    PL_TRY(read_ranges(a, json_object_get(j, "no_eog"), RECORD_NO_EOG, "no_eog",
                       err));
    if (json_object_get(j, "no_stops"))
        PL_TRY(read_ranges(a, json_object_get(j, "no_stops"), RECORD_NO_STOPS,
                           "no_stops", err));
    PL_TRY(read_forced(a, json_object_get(j, "forced"), err));
    receipt_hash_output(hash, a);
    return r->no_tokens || strcmp(hash, r->output_hash) == 0
               ? PL_OK
               : receipt_bad_field(err, "output",
                                   "its sha256 is not that of its tokens: the "
                                   "receipt was changed");
}

static int hex(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static pl_status read_rows(pl_receipt *r, pl_err *err)
{
    const json_t *j = json_object_get(r->doc, "rows");
    struct sampling_record *a = &r->record;
    const char *each = json_string_value(json_object_get(j, "each"));
    char hash[17];
    int64_t n_sampled = 0;

    for (int64_t i = 0; i < a->n; i++)
        n_sampled += !(a->token[i].how & RECORD_FORCED);
    if (!read_count(json_object_get(j, "n"), &a->n_row) ||
        a->n_row != n_sampled ||
        !read_hex(json_object_get(j, "hash"), hash, 16) || !each ||
        strlen(each) != 4 * (size_t)n_sampled ||
        strspn(each, "0123456789abcdef") != strlen(each))
        return receipt_bad_field(err, "rows",
                                 "it must have n, the number of sampled "
                                 "tokens, hash, and each, 4 digits a token");
    a->hash = strtoull(hash, NULL, 16);
    for (int64_t i = 0; i < a->n; i++)
        if (!(a->token[i].how & RECORD_FORCED)) {
            a->token[i].row =
                (uint16_t)(hex(each[0]) << 12 | hex(each[1]) << 8 |
                           hex(each[2]) << 4 | hex(each[3]));
            each += 4;
        }
    return PL_OK;
}

/* Fails if a forced token before index `from` is called a part of the grammar's
 * text, because the grammar applied only from there on. */
static pl_status check_forced(const pl_receipt *r, int64_t from, pl_err *err)
{
    for (int64_t i = 0; i < from; i++)
        if (r->record.token[i].how & RECORD_GRAMMAR)
            return receipt_bad_field(err, "forced",
                                     "in output no grammar applied to a token "
                                     "that is called part of its text");
    return PL_OK;
}

static pl_status read_grammar(pl_receipt *r, pl_err *err)
{
    const json_t *j = json_object_get(r->doc, "grammar");
    const json_t *text = json_object_get(j, "text");
    struct sampling_record *a = &r->record;
    const char *form = json_string_value(json_object_get(j, "form"));
    char hash[SHA256_TEXT];
    int k = 0;

    if (json_is_null(j))
        return check_forced(r, a->n, err);
    while (k < 4 &&
           (!form || strcmp(form, receipt_form_name((pl_grammar_form)k)) != 0))
        k++;
    if (k == 4 ||
        !read_hex(json_object_get(j, "sha256"), r->grammar_hash,
                  SHA256_TEXT - 1) ||
        !read_count(json_object_get(j, "from"), &r->grammar_from) ||
        r->grammar_from >= a->n || (text && !json_is_string(text)))
        return receipt_bad_field(err, "grammar",
                                 "it must be null, or have form, sha256, from, "
                                 "and perhaps text");
    PL_TRY(check_forced(r, r->grammar_from, err));
    a->form = (pl_grammar_form)k;
    for (int64_t i = r->grammar_from; i < a->n; i++)
        if (!(a->token[i].how & RECORD_FORCED))
            a->token[i].how |= RECORD_GRAMMAR;
    if (!text)
        return PL_OK;
    record_grammar(a, a->form, json_string_value(text),
                   json_string_length(text));
    if (a->full)
        return no_memory(err);
    receipt_hash_text(hash, a->grammar, a->grammar_len);
    return strcmp(hash, r->grammar_hash) == 0
               ? PL_OK
               : receipt_bad_field(err, "grammar",
                                   "its sha256 is not that of its text: the "
                                   "receipt was changed");
}

/* Sets *out to an array of the strings in a JSON list, which still owns them,
 * and *n to their number. Sets *n to -1 if it is not a list of strings. */
static pl_status read_strings(const json_t *list, const char ***out, int *n,
                              pl_err *err)
{
    size_t size = json_array_size(list), i;
    const json_t *one;
    bool good = json_is_array(list) && size <= MOST_STRINGS;

    *out = calloc(good ? size + 1 : 1, sizeof **out);
    if (!*out)
        return no_memory(err);
    json_array_foreach (list, i, one)
        good = good && ((*out)[i] = json_string_value(one)) != NULL;
    *n = good ? (int)size : -1;
    return PL_OK;
}

/* Reads the shares of ranks, such as "3,1", into r->share. Returns false if s
 * has another form. */
static bool read_shares(pl_receipt *r, const char *s)
{
    char *end;

    for (r->n_share = 0; s && r->n_share < PL_MAX_RANKS; s = end + 1) {
        r->share[r->n_share++] = numeral_double(s, &end);
        if (end == s || !(r->share[r->n_share - 1] >= 0) ||
            !isfinite(r->share[r->n_share - 1]))
            return false;
        if (*end != ',')
            return *end == '\0';
    }
    return false;
}

static bool is_word(const json_t *j, const char *a, const char *b)
{
    const char *s = json_string_value(j);

    return s && (strcmp(s, a) == 0 || strcmp(s, b) == 0);
}

static pl_status read_numerics(pl_receipt *r, pl_err *err)
{
    const json_t *j = json_object_get(r->doc, "numerics");
    const json_t *cache = json_object_get(j, "cache");
    int64_t order, ranks, mtp;
    char hash[17];

    PL_TRY(read_strings(json_object_get(j, "keep"), &r->keep, &r->n_keep, err));
    PL_TRY(read_strings(json_object_get(j, "layouts"), &r->layout, &r->n_layout,
                        err));
    if (!read_hex(json_object_get(j, "hash"), hash, 16) ||
        !read_count(json_object_get(j, "order"), &order) ||
        !read_count(json_object_get(j, "mtp"), &mtp) ||
        !read_count(json_object_get(j, "ranks"), &ranks) ||
        !read_shares(r, json_string_value(json_object_get(j, "shares"))) ||
        r->n_share != ranks ||
        !is_word(json_object_get(j, "precision"), "exact", "fast") ||
        !is_word(json_object_get(j, "activations"), "int8", "float") ||
        json_array_size(cache) != 2 ||
        !json_is_string(json_array_get(cache, 0)) ||
        !json_is_string(json_array_get(cache, 1)) || r->n_keep < 0 ||
        r->n_layout < 0)
        return receipt_bad_field(err, "numerics",
                                 "doc/receipts.md lists its fields");
    return PL_OK;
}

static pl_status read_model(const pl_receipt *r, pl_err *err)
{
    const json_t *j = json_object_get(r->doc, "model");
    char hash[17];

    return read_hex(json_object_get(j, "hash"), hash, 16) &&
                   json_is_string(json_object_get(j, "architecture")) &&
                   json_is_string(json_object_get(j, "name"))
               ? PL_OK
               : receipt_bad_field(err, "model",
                                   "it must have architecture, name and hash");
}

static pl_status read_end(const pl_receipt *r, pl_err *err)
{
    const json_t *j = json_object_get(r->doc, "end");
    const json_t *stop = json_object_get(j, "stop"), *one;
    const json_t *most = json_object_get(j, "max_tokens");
    const char *why = json_string_value(json_object_get(j, "reason"));
    bool good =
        !j || (why && receipt_find_end(why) >= 0 && json_is_integer(most) &&
               json_integer_value(most) >= -1 && json_is_array(stop));
    size_t i;

    json_array_foreach (stop, i, one)
        good &= json_is_string(one);
    return good ? PL_OK
                : receipt_bad_field(err, "end",
                                    "it must have reason, max_tokens and stop");
}

/* The fields that a receipt and the objects in it may have. */
static const struct {
    const char *object; /* name of an object; NULL for the receipt itself */
    const char *known[13];
} fields[] = {
    {NULL,
     {"plait_receipt", "plait", "model", "numerics", "sampling", "prompt",
      "grammar", "output", "rows", "end", "note"}},
    {"model", {"architecture", "name", "hash"}},
    {"numerics",
     {"hash", "order", "ranks", "shares", "precision", "activations", "cache",
      "keep", "layouts", "mtp"}},
    {"prompt", {"n", "sha256", "tokens"}},
    {"grammar", {"form", "sha256", "from", "text"}},
    {"output",
     {"n", "sha256", "tokens", "forced", "no_eog", "no_stops", "nll"}},
    {"rows", {"n", "hash", "each"}},
    {"end", {"reason", "max_tokens", "stop"}},
};

/* Fails if the document has an unknown field, because results might depend on
 * it. */
static pl_status check_names(json_t *doc, pl_err *err)
{
    const char *key;
    json_t *value;

    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
        const char *object = fields[f].object;

        json_object_foreach (object ? json_object_get(doc, object) : doc, key,
                             value) {
            const char *const *known = fields[f].known;
            char shown[ERR_SHOWN];

            while (*known && strcmp(key, *known) != 0)
                known++;
            if (!*known)
                return err_set(err, PL_BAD_FILE,
                               "receipt: unknown field \"%s%s%s\"; notes "
                               "belong into \"note\"",
                               object ? object : "", object ? "." : "",
                               err_shown(shown, key, strlen(key)));
        }
    }
    return PL_OK;
}

static pl_status read_all(pl_receipt *r, pl_err *err)
{
    pl_sampling s;
    pl_status st;
    int64_t version;

    if (!read_count(json_object_get(r->doc, "plait_receipt"), &version) ||
        version < 1)
        return err_set(err, PL_BAD_FILE,
                       "not a receipt: no \"plait_receipt\"; plait run "
                       "--receipt FILE writes one");
    if (version > RECEIPT_VERSION)
        return err_set(err, PL_UNSUPPORTED,
                       "a receipt of version %" PRId64
                       "; this library reads version %d, use a later one",
                       version, RECEIPT_VERSION);
    PL_TRY(check_names(r->doc, err));
    if (!json_is_string(json_object_get(r->doc, "plait")))
        return receipt_bad_field(err, "plait", "it must be a version's text");
    PL_TRY(read_model(r, err));
    PL_TRY(read_numerics(r, err));
    PL_TRY(read_prompt(r, err));
    PL_TRY(read_output(r, err));
    PL_TRY(read_rows(r, err));
    PL_TRY(read_score(r, err));
    PL_TRY(read_grammar(r, err));
    PL_TRY(read_end(r, err));
    if (r->scored)
        return PL_OK;
    st = receipt_read_sampling(&s, json_object_get(r->doc, "sampling"), NULL,
                               err);
    receipt_free_sampling(&s);
    return st;
}

pl_status pl_receipt_parse(pl_receipt **out, const char *json, size_t len,
                           pl_err *err)
{
    char shown[ERR_SHOWN];
    /* Initialized, because jansson does not set it in every failure. */
    json_error_t why = {.line = -1};
    locale_t before;
    pl_receipt *r;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED_TEXT(json, len, err);
    r = calloc(1, sizeof *r);
    if (!r)
        return no_memory(err);
    before = numeral_begin();
    r->doc = json_loadb(json, len, JSON_REJECT_DUPLICATES, &why);
    numeral_end(before);
    if (!r->doc)
        s = json_error_code(&why) == json_error_out_of_memory ||
                    json_error_code(&why) == json_error_unknown
                ? no_memory(err)
                : err_set(err, PL_BAD_FILE,
                          "not a receipt: line %d, column %d: %s", why.line,
                          why.column,
                          err_shown(shown, why.text, strlen(why.text)));
    else
        s = read_all(r, err);
    if (s == PL_OK)
        *out = r;
    else
        pl_receipt_free(r);
    return s;
}

/* ---- functions for callers that check a receipt -------------------------- */

int64_t pl_receipt_n_prompt(const pl_receipt *r)
{
    return r ? r->n_prompt : 0;
}

int64_t pl_receipt_n_output(const pl_receipt *r)
{
    return r ? r->record.n : 0;
}

static bool find_format(const json_t *j, pl_format *out)
{
    const char *s = json_string_value(j);

    for (int f = 0; s && f < PL_FORMAT_COUNT; f++)
        if (strcmp(s, format_info((pl_format)f)->name) == 0) {
            *out = (pl_format)f;
            return format_is_cache(*out);
        }
    return false;
}

/* Sets opt->overrides to the receipt's layouts followed by the overrides of the
 * caller. */
static bool add_layouts(pl_receipt *r, pl_options *opt)
{
    size_t n = (size_t)r->n_layout + (size_t)opt->n_overrides + 1;
    const char **all = realloc(r->overrides, n * sizeof *all);

    if (!all)
        return false;
    r->overrides = all;
    for (int i = 0; i < r->n_layout; i++)
        all[i] = r->layout[i];
    for (int i = 0; i < opt->n_overrides; i++)
        all[r->n_layout + i] = opt->overrides[i];
    opt->overrides = all;
    opt->n_overrides += r->n_layout;
    return true;
}

pl_status pl_receipt_options(pl_receipt *r, pl_options *opt, pl_err *err)
{
    const json_t *j, *cache;
    char shown[ERR_SHOWN];
    int64_t need;

    PL_NEED(r, err);
    PL_NEED(opt, err);
    if (!r->keep)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the receipt is being written; write it and parse it "
                       "again (pl_receipt_parse)");
    j = json_object_get(r->doc, "numerics");
    cache = json_object_get(j, "cache");
    if (json_integer_value(json_object_get(j, "order")) != NUMERIC_ORDER)
        return err_set(err, PL_UNSUPPORTED,
                       "the receipt was written with order %d of operations, "
                       "this library computes with %d; use plait %s",
                       (int)json_integer_value(json_object_get(j, "order")),
                       (int)NUMERIC_ORDER,
                       receipt_shown(shown, r->doc, "plait"));
    if (!find_format(json_array_get(cache, 0), &opt->cache_k) ||
        !find_format(json_array_get(cache, 1), &opt->cache_v))
        return receipt_bad_field(err, "cache",
                                 "in numerics it must have two formats of "
                                 "caches");
    if (!add_layouts(r, opt))
        return no_memory(err);
    opt->cache_set = true;
    opt->numerics =
        strcmp(json_string_value(json_object_get(j, "precision")), "fast") == 0
            ? PL_NUMERICS_FAST
            : PL_NUMERICS_EXACT;
    opt->mtp = json_integer_value(json_object_get(j, "mtp"));
    opt->n_ranks = r->n_share;
    opt->rank_split = r->share;
    opt->n_rank_split = r->n_share;
    opt->keep = r->keep;
    opt->n_keep = r->n_keep;
    need = (r->prompt ? r->n_prompt : 0) + r->record.n;
    if (opt->n_ctx == 0 && need > 0)
        opt->n_ctx = need;
    return PL_OK;
}
