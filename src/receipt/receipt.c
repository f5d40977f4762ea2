/* Writes receipts as JSON documents. See receipt.h. */
#include "receipt/receipt.h"

#include "base/numeral.h"
#include "base/text_out.h"
#include "base/whole_json.h"
#include "device/kernel_set.h"
#include "engine/sampler.h"
#include "quant/format.h"
#include "state/state_io.h"
#include "tokenizer/utf8.h"

#include <endian.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pl_status no_memory(pl_err *err)
{
    return err_no_memory(err, "a receipt");
}

/* ---- hashes of tokens and texts ------------------------------------------ */

static void add_token(struct sha256_ctx *c, int32_t id)
{
    uint32_t v = htole32((uint32_t)id);

    nettle_sha256_update(c, sizeof v, (const uint8_t *)&v);
}

void receipt_hash_tokens(char text[SHA256_TEXT], const int32_t *token,
                         int64_t n)
{
    struct sha256_ctx c;

    nettle_sha256_init(&c);
    for (int64_t i = 0; i < n; i++)
        add_token(&c, token[i]);
    sha256_text(&c, text);
}

void receipt_hash_output(char text[SHA256_TEXT],
                         const struct sampling_record *record)
{
    struct sha256_ctx c;

    nettle_sha256_init(&c);
    for (int64_t i = 0; i < record->n; i++)
        add_token(&c, record->token[i].id);
    sha256_text(&c, text);
}

void receipt_hash_text(char text[SHA256_TEXT], const char *s, size_t len)
{
    struct sha256_ctx c;

    nettle_sha256_init(&c);
    nettle_sha256_update(&c, len, (const uint8_t *)s);
    sha256_text(&c, text);
}

/* ---- the engine: model and numerics -------------------------------------- */

bool receipt_can_have(const char *s, size_t len)
{
    int valid = 1;

    for (size_t i = 0; valid && i < len;)
        i += utf8_step(s + i, len - i, &valid);
    return valid && !memchr(s, '\0', len);
}

json_t *receipt_append(json_t *list, json_t *item)
{
    if (json_array_append_new(list, item) == 0)
        return list;
    json_decref(list);
    return NULL;
}

json_t *receipt_set(json_t *object, const char *name, json_t *value)
{
    if (json_object_set_new(object, name, value) == 0)
        return object;
    json_decref(object);
    return NULL;
}

const char *receipt_shown(char buf[ERR_SHOWN], const json_t *j, const char *key)
{
    const json_t *text = json_object_get(j, key);

    return json_is_string(text) ? err_shown(buf, json_string_value(text),
                                            json_string_length(text))
                                : "?";
}

static json_t *strings(const char *const *s, int n)
{
    json_t *list = json_array();

    for (int i = 0; list && i < n; i++)
        list = receipt_append(list, json_string(s[i]));
    return list;
}

/* Returns the shares of the n ranks as a JSON string such as "3,1". Equal
 * shares of two ranks are "1,1". */
static json_t *shares(const double *share, int n)
{
    char text[PL_MAX_RANKS * NUMERAL_SHORTEST], one[NUMERAL_SHORTEST];
    size_t at = 0;

    for (int r = 0; r < n; r++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s",
                               r ? "," : "", numeral_shortest(one, share[r]));
    return json_string(text);
}

static json_t *hash_text(uint64_t hash)
{
    return json_sprintf("%016" PRIx64, hash);
}

pl_status receipt_describe_engine(json_t **model, json_t **numerics,
                                  pl_engine *e, pl_err *err)
{
    const struct pl_plan *p = e->plan;
    const struct compiled *c = p->compiled;
    struct gguf_str name = {"", 0};
    uint64_t hash;

    *model = *numerics = NULL;
    PL_TRY(state_model_hash(&hash, e, err));
    if (gguf_get_str(p->model->file, "general.name", &name, NULL) != PL_OK)
        name = (struct gguf_str){"", 0};
    if (!receipt_can_have(name.s, name.len))
        name.len = 0;
    *model = json_pack("{s:s, s:o, s:o}", "architecture",
                       pl_model_arch(p->model), "name",
                       json_stringn(name.s, name.len), "hash", hash_text(hash));
    *numerics = json_pack(
        "{s:o, s:i, s:i, s:o, s:s, s:s, s:[s, s], s:o, s:o, s:I}", "hash",
        hash_text(c->numeric_hash), "order", (int)NUMERIC_ORDER, "ranks",
        c->place.n_rank, "shares", shares(c->place.share, c->place.n_rank),
        "precision", p->numerics == PL_NUMERICS_FAST ? "fast" : "exact",
        "activations", kernel_set_is_float(c->kernel_set) ? "float" : "int8",
        "cache", format_info(p->cache_k)->name, format_info(p->cache_v)->name,
        "keep", strings(p->keep, p->n_keep), "layouts",
        strings(p->layout, p->n_layout), "mtp", (json_int_t)p->mtp);
    if (*model && *numerics)
        return PL_OK;
    json_decref(*model);
    json_decref(*numerics);
    *model = *numerics = NULL;
    return no_memory(err);
}

/* Fails if something that a receipt cannot describe decided bits of this
 * engine's results, such as weights that the caller has set. */
static pl_status check_engine(pl_engine *e, pl_err *err)
{
    const char *why =
        e->exec->n_set > 0 ? "weights or caches were set (pl_tensor_set)"
        : e->has_foreign   ? "a state was restored that other numerics computed"
        : device_set_inexact_hash(e->exec->set) != 0
            ? "a device failed the self test (--inexact)"
            : NULL;

    return !why ? PL_OK
                : err_set(err, PL_UNSUPPORTED,
                          "a receipt cannot say what decided the bits: %s; "
                          "use an engine of its own",
                          why);
}

pl_status pl_receipt_begin(pl_receipt **out, pl_engine *e,
                           const int32_t *prompt, int64_t n_prompt, pl_err *err)
{
    json_t *model = NULL, *numerics = NULL;
    int64_t n_vocab;
    pl_receipt *r;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(e, err);
    PL_NEED_ARRAY(prompt, n_prompt, err);
    if (n_prompt < 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a prompt of %" PRId64 " tokens; give 0 or more",
                       n_prompt);
    n_vocab = pl_model_n_vocab(e->plan->model);
    for (int64_t i = 0; i < n_prompt; i++)
        if (prompt[i] < 0 || prompt[i] >= n_vocab)
            return err_set(err, PL_BAD_ARGUMENT,
                           "token %" PRId64
                           " of the prompt is %d; the vocabulary has 0 to "
                           "%" PRId64,
                           i, prompt[i], n_vocab - 1);
    PL_TRY(exec_enter(e->exec, err));
    s = check_engine(e, err);
    if (s == PL_OK)
        s = receipt_describe_engine(&model, &numerics, e, err);
    exec_leave(e->exec);
    if (s != PL_OK)
        return s;
    r = calloc(1, sizeof *r);
    if (r) {
        r->doc = json_pack("{s:i, s:s, s:o, s:o}", "plait_receipt",
                           (int)RECEIPT_VERSION, "plait", pl_version(), "model",
                           model, "numerics", numerics);
        r->prompt = malloc(((size_t)n_prompt + 1) * sizeof *prompt);
    } else {
        json_decref(model);
        json_decref(numerics);
    }
    if (!r || !r->doc || !r->prompt) {
        pl_receipt_free(r);
        return no_memory(err);
    }
    if (n_prompt > 0)
        memcpy(r->prompt, prompt, (size_t)n_prompt * sizeof *prompt);
    r->n_prompt = n_prompt;
    r->n_vocab = n_vocab;
    receipt_hash_tokens(r->prompt_hash, prompt, n_prompt);
    *out = r;
    return PL_OK;
}

void pl_receipt_free(pl_receipt *r)
{
    if (!r)
        return;
    record_fini(&r->record);
    json_decref(r->doc);
    free(r->prompt);
    free(r->keep);
    free(r->layout);
    free(r->overrides);
    free(r);
}

/* ---- recording a sampler and the end of the output ----------------------- */

pl_status pl_sampler_record(pl_sampler *s, pl_receipt *r, pl_err *err)
{
    struct sampler_history own = {0};
    const struct sampler_history *h;
    json_t *settings;

    PL_NEED(s, err);
    if (!r) {
        sampler_record(s, NULL);
        return PL_OK;
    }
    if (r->recorded || !r->prompt)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the receipt has recorded a sampler, or was parsed; "
                       "begin another with pl_receipt_begin");
    if (sampler_n_vocab(s) != r->n_vocab)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the sampler is for %" PRId64
                       " logits, the receipt's model has %" PRId64
                       "; create a sampler for as many",
                       sampler_n_vocab(s), r->n_vocab);
    h = sampler_history(s);
    for (int64_t i = 0; i < r->n_prompt; i++)
        sampler_history_add(&own, r->prompt[i], false);
    if (h->n_sampled > 0 || h->n != own.n || h->hash != own.hash)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the sampler has accepted other tokens than the prompt "
                       "of %" PRId64 " (it has %" PRId64
                       ", and sampled %" PRId64
                       "); create another, and accept the prompt first",
                       r->n_prompt, h->n, h->n_sampled);
    PL_TRY(receipt_write_sampling(&settings, sampler_settings(s), err));
    if (json_object_set_new(r->doc, "sampling", settings) != 0)
        return no_memory(err);
    r->recorded = true;
    sampler_record(s, &r->record);
    return PL_OK;
}

/* ---- a text that was there before ---------------------------------------- */

double receipt_nll(const float *logits, int64_t n_vocab, int32_t id)
{
    double top = logits[0], sum = 0;

    for (int64_t i = 1; i < n_vocab; i++)
        top = logits[i] > top ? logits[i] : top;
    for (int64_t i = 0; i < n_vocab; i++)
        sum += exp(logits[i] - top);
    return log(sum) + top - logits[id];
}

pl_status pl_receipt_score(pl_receipt *r, const float *logits, int32_t id,
                           double *nll, pl_err *err)
{
    double one;

    PL_CLEAR(nll);
    PL_NEED(r, err);
    PL_NEED(logits, err);
    if ((r->recorded && !r->scored) || !r->prompt || r->keep)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the receipt has recorded a sampler, or was parsed; "
                       "begin another with pl_receipt_begin");
    if (id < 0 || id >= r->n_vocab)
        return err_set(err, PL_BAD_ARGUMENT,
                       "token %d; the vocabulary has 0 to %" PRId64, id,
                       r->n_vocab - 1);
    one = receipt_nll(logits, r->n_vocab, id);
    if (!isfinite(one))
        return err_set(err, PL_BAD_ARGUMENT,
                       "the logits give token %d no probability: -ln p is %g; "
                       "the model is damaged",
                       id, one);
    if (!r->recorded &&
        json_object_set_new(r->doc, "sampling", json_null()) != 0)
        return no_memory(err);
    r->recorded = r->scored = true;
    record_row(&r->record, logits, (int32_t)r->n_vocab, id, 0);
    if (r->record.full)
        return no_memory(err);
    r->nll += one;
    if (nll)
        *nll = one;
    return PL_OK;
}

double pl_receipt_nll(const pl_receipt *r)
{
    return r && r->scored ? r->nll : NAN;
}

static const char *const ends[] = {
#define END_NAME(name, text) [PL_RECEIPT_##name] = text,
    PL_RECEIPT_END_MAP(END_NAME)
#undef END_NAME
};
enum { N_END = sizeof ends / sizeof ends[0] };

int receipt_find_end(const char *name)
{
    int i = 0;

    while (i < N_END && strcmp(ends[i], name) != 0)
        i++;
    return i < N_END ? i : -1;
}

/* Returns a stop string as a JSON string. Strings with bytes that are not
 * UTF-8, which JSON cannot contain, become "?". */
static json_t *stop_text(const char *s)
{
    return json_string(s && receipt_can_have(s, strlen(s)) ? s : "?");
}

pl_status pl_receipt_set_end(pl_receipt *r, pl_receipt_end why,
                             int64_t max_tokens, const char *const *stop,
                             int n_stop, pl_err *err)
{
    json_t *end, *list;

    PL_NEED(r, err);
    PL_NEED_ARRAY(stop, n_stop, err);
    if ((unsigned)why >= N_END || n_stop < 0 || max_tokens < -1)
        return err_set(
            err, PL_BAD_ARGUMENT,
            "the end of a receipt: reason %d, %" PRId64
            " tokens, %d stop strings; give a reason of pl_receipt.h,"
            " -1 or more tokens, 0 or more strings",
            (int)why, max_tokens, n_stop);
    list = json_array();
    for (int i = 0; list && i < n_stop; i++)
        list = receipt_append(list, stop_text(stop[i]));
    end = json_pack("{s:s, s:I, s:o}", "reason", ends[why], "max_tokens",
                    (json_int_t)max_tokens, "stop", list);
    if (!end || json_object_set_new(r->doc, "end", end) != 0)
        return no_memory(err);
    return PL_OK;
}

/* ---- writing the document ------------------------------------------------ */

static json_t *tokens(const int32_t *token, int64_t n)
{
    json_t *list = json_array();

    for (int64_t i = 0; list && i < n; i++)
        list = receipt_append(list, json_integer(token[i]));
    return list;
}

/* Returns the ranges of adjacent tokens that have the bit `how` (RECORD_*), as
 * [[index of the first, count], ...]. */
static json_t *ranges(const struct sampling_record *r, unsigned how)
{
    json_t *list = json_array();

    for (int64_t i = 0, from; list && i < r->n; i++) {
        if (!(r->token[i].how & how))
            continue;
        for (from = i; i + 1 < r->n && (r->token[i + 1].how & how);)
            i++;
        list = receipt_append(list, json_pack("[I, I]", (json_int_t)from,
                                              (json_int_t)(i + 1 - from)));
    }
    return list;
}

static json_t *forced_tokens(const struct sampling_record *r)
{
    json_t *list = json_array();

    for (int64_t i = 0; list && i < r->n; i++)
        if (r->token[i].how & RECORD_FORCED)
            list = receipt_append(
                list, json_pack("[I, i, b]", (json_int_t)i, (int)r->token[i].id,
                                (r->token[i].how & RECORD_GRAMMAR) != 0));
    return list;
}

static json_t *write_output(const pl_receipt *r, unsigned flags)
{
    const struct sampling_record *a = &r->record;
    char nll[NUMERAL_SHORTEST];
    int32_t *id = malloc(((size_t)a->n + 1) * sizeof *id);
    char hash[SHA256_TEXT];
    json_t *j, *stops;

    if (!id)
        return NULL;
    for (int64_t i = 0; i < a->n; i++)
        id[i] = a->token[i].id;
    receipt_hash_output(hash, a);
    j = json_pack("{s:I, s:s, s:o, s:o}", "n", (json_int_t)a->n, "sha256", hash,
                  "forced", forced_tokens(a), "no_eog",
                  ranges(a, RECORD_NO_EOG));
    stops = ranges(a, RECORD_NO_STOPS);
    if (stops && json_array_size(stops) == 0)
        json_decref(stops);
    else
        j = receipt_set(j, "no_stops", stops);
    if (j && (r->scored || !(flags & PL_RECEIPT_NO_TOKENS)))
        j = receipt_set(j, "tokens", tokens(id, a->n));
    if (j && r->scored)
        j = receipt_set(j, "nll", json_string(numeral_shortest(nll, r->nll)));
    free(id);
    return j;
}

static json_t *write_rows(const struct sampling_record *a)
{
    char *each = malloc(4 * (size_t)a->n_row + 1);
    size_t at = 0;
    json_t *j;

    if (!each)
        return NULL;
    each[0] = '\0';
    for (int64_t i = 0; i < a->n; i++)
        if (!(a->token[i].how & RECORD_FORCED))
            at += (size_t)sprintf(each + at, "%04x", a->token[i].row);
    j = json_pack("{s:I, s:o, s:s}", "n", (json_int_t)a->n_row, "hash",
                  hash_text(a->hash), "each", each);
    free(each);
    return j;
}

static json_t *write_prompt(const pl_receipt *r, unsigned flags)
{
    json_t *j = json_pack("{s:I, s:s}", "n", (json_int_t)r->n_prompt, "sha256",
                          r->prompt_hash);

    if (j && (flags & PL_RECEIPT_FULL) && r->prompt)
        j = receipt_set(j, "tokens", tokens(r->prompt, r->n_prompt));
    return j;
}

/* Returns the object "grammar" of the document, or null if no grammar applied
 * to any token. */
static json_t *write_grammar(const pl_receipt *r, unsigned flags)
{
    const struct sampling_record *a = &r->record;
    char hash[SHA256_TEXT];
    int64_t from = 0;
    json_t *j;

    while (from < a->n && !(a->token[from].how & RECORD_GRAMMAR))
        from++;
    if (from == a->n)
        return json_null();
    receipt_hash_text(hash, a->grammar, a->grammar_len);
    j = json_pack("{s:s, s:s, s:I}", "form", receipt_form_name(a->form),
                  "sha256", hash, "from", (json_int_t)from);
    if (j && (flags & PL_RECEIPT_FULL) &&
        receipt_can_have(a->grammar, a->grammar_len))
        j = receipt_set(j, "text", json_stringn(a->grammar, a->grammar_len));
    return j;
}

/* Fails if the record cannot become a receipt: it is incomplete, no sampler was
 * recorded, or a grammar was changed or ended before the last token. */
static pl_status check_record(const pl_receipt *r, pl_err *err)
{
    const struct sampling_record *a = &r->record;
    bool ended = false;

    if (a->full)
        return no_memory(err);
    if (!r->recorded)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the receipt has not recorded a sampler; call "
                       "pl_sampler_record before the first token");
    for (int64_t i = 1; i < a->n; i++)
        ended |= (a->token[i - 1].how & RECORD_GRAMMAR) &&
                 !(a->token[i].how & (RECORD_GRAMMAR | RECORD_FORCED));
    if (a->n_grammar > 1 || ended)
        return err_set(err, PL_UNSUPPORTED,
                       "a receipt has at most one grammar, which applies up to "
                       "the end; begin a receipt for each text");
    return PL_OK;
}

/* Returns the document as JSON text, which the caller frees; NULL if out of
 * memory. */
static char *dump(const json_t *doc)
{
    locale_t before = numeral_begin();
    char *text = whole_json_dumps(doc, JSON_COMPACT | JSON_REAL_PRECISION(9));

    numeral_end(before);
    return text;
}

pl_status pl_receipt_write(const pl_receipt *r, unsigned flags, char **json,
                           pl_err *err)
{
    json_t *doc;

    PL_CLEAR(json);
    PL_NEED(r, err);
    PL_NEED(json, err);
    if (flags & ~(unsigned)(PL_RECEIPT_FULL | PL_RECEIPT_NO_TOKENS))
        return err_set(err, PL_BAD_ARGUMENT,
                       "receipt flags %#x; only PL_RECEIPT_FULL and "
                       "PL_RECEIPT_NO_TOKENS exist",
                       flags);
    PL_TRY(check_record(r, err));
    doc = whole_json_copy(r->doc);
    doc = receipt_set(doc, "prompt", write_prompt(r, flags));
    doc = receipt_set(doc, "grammar", write_grammar(r, flags));
    doc = receipt_set(doc, "output", write_output(r, flags));
    doc = receipt_set(doc, "rows", write_rows(&r->record));
    if (doc)
        *json = dump(doc);
    json_decref(doc);
    return *json ? PL_OK : no_memory(err);
}
