/* Implements pl_tokenizer, pl_detokenizer and pl_sampler. */
#include "engine/engine.h"

#include "base/err.h"
#include "base/hash64.h"
#include "base/sized.h"
#include "engine/sampler.h"
#include "engine/token_grammar.h"
#include "engine/token_texts.h"
#include "sampling/record.h"
#include "sampling/sampling.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pl_tokenizer {
    bool borrowed;             /* the tokenizer belongs to a model, so
                                  pl_tokenizer_free does nothing */
    struct tokenizer *t;       /* owned: the vocabulary and its merges */
    struct token_texts *texts; /* owned: the texts of all tokens, which grammars
                                  share */
};

struct pl_detokenizer {
    struct tokenizer_stream stream;
    struct text_buf text;
};

struct pl_sampler {
    struct sampler *s;
    int32_t n_vocab;
    pl_sampling settings;    /* settings passed to pl_sampler_create; owns
                                copies of their arrays */
    struct token_mask *mask; /* owned; NULL if there is no grammar */
    pl_grammar *grammar;     /* borrowed; the grammar of `mask`, NULL if there
                                is none */
    /* Owned, [n_vocab / 32] one bit per token, cleared for end-of-text tokens.
     * NULL while the caller allows end-of-text tokens. */
    uint32_t *no_eog;
    bool no_stops;  /* the tokens settings.stop are excluded */
    uint32_t *both; /* owned; one bit per token, set if the grammar's mask,
                       no_eog and no_stops allow the token */
    struct sampling_record *record; /* borrowed; receives all sampled tokens;
                                       NULL if nothing is recorded */
    struct sampler_history history;
    pl_err err; /* error of the last pl_sample call, which then returned -1 */
};

pl_status engine_tokenizer(pl_tokenizer **out, const struct gguf *file,
                           pl_err *err)
{
    pl_tokenizer *t = calloc(1, sizeof *t);
    pl_status s;

    *out = NULL;
    if (!t)
        return err_no_memory(err, "a tokenizer");
    s = tokenizer_create(&t->t, file, err);
    if (s == PL_OK)
        s = token_texts_create(&t->texts, t->t, err);
    t->borrowed = true;
    if (s == PL_OK)
        *out = t;
    else
        engine_tokenizer_free(t);
    return s;
}

pl_status pl_tokenizer_open(pl_tokenizer **out, const char *path, pl_err *err)
{
    struct gguf *g;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(path, err);
    PL_TRY(gguf_open(&g, path, err));
    s = engine_tokenizer(out, g, err);
    if (s == PL_OK)
        (*out)->borrowed = false;
    gguf_close(g);
    return s;
}

const struct tokenizer *engine_words(const pl_tokenizer *t)
{
    return t->t;
}

struct token_texts *engine_texts(const pl_tokenizer *t)
{
    return t->texts;
}

void pl_tokenizer_free(pl_tokenizer *t)
{
    if (t && !t->borrowed)
        engine_tokenizer_free(t);
}

void engine_tokenizer_free(pl_tokenizer *t)
{
    if (!t)
        return;
    token_texts_free(t->texts);
    tokenizer_free(t->t);
    free(t);
}

int64_t pl_tokenizer_n_vocab(const pl_tokenizer *t)
{
    return t ? tokenizer_n_vocab(t->t) : 0;
}

pl_status pl_tokenize(const pl_tokenizer *t, const char *text, size_t len,
                      int flags, int32_t **ids, int64_t *n, pl_err *err)
{
    struct token_list l = {0};
    unsigned f = 0;

    PL_CLEAR(ids);
    PL_CLEAR(n);
    PL_NEED(t, err);
    PL_NEED_TEXT(text, len, err);
    PL_NEED(ids, err);
    PL_NEED(n, err);
    if (flags & ~(PL_ADD_SPECIAL | PL_PARSE_SPECIAL))
        return err_set(
            err, PL_BAD_ARGUMENT,
            "unknown flags %#x; use PL_ADD_SPECIAL and PL_PARSE_SPECIAL",
            (unsigned)flags);
    f |= flags & PL_ADD_SPECIAL ? TOKENIZER_ADD_SPECIAL : 0;
    f |= flags & PL_PARSE_SPECIAL ? TOKENIZER_PARSE_SPECIAL : 0;
    {
        pl_status s = tokenizer_encode(t->t, text, len, f, &l, err);

        if (s != PL_OK) {
            token_list_fini(&l);
            return s;
        }
    }
    *ids = l.id;
    *n = l.n;
    return PL_OK;
}

bool pl_token_is_eog(const pl_tokenizer *t, int32_t id)
{
    return t && tokenizer_is_eog(t->t, id);
}

size_t pl_token_bytes(const pl_tokenizer *t, int32_t id, char *buf, size_t size)
{
    return t ? tokenizer_piece(t->t, id, TOKENIZER_SHOW_SPECIAL, buf,
                               buf ? size : 0)
             : 0;
}

/* Appends `text` to the tokens, after replacing {query} and {document} in it.
 * Special tokens are parsed. */
static pl_status encode_template(const struct tokenizer *t,
                                 struct gguf_str form,
                                 const char *const part[2], const size_t len[2],
                                 struct token_list *l, pl_err *err)
{
    static const char *const name[2] = {"{query}", "{document}"};
    char *s = malloc(form.len + 1), *all;
    size_t n = 0, most = form.len + 1;
    pl_status status;

    if (!s)
        return err_no_memory(err, "a text");
    memcpy(s, form.s, form.len);
    s[form.len] = '\0';
    for (int i = 0; i < 2; i++)
        for (const char *at = s; (at = strstr(at, name[i])); at++)
            most += len[i];
    all = malloc(most);
    for (const char *at = s; all && *at;) {
        int i = !strncmp(at, name[0], strlen(name[0]))   ? 0
                : !strncmp(at, name[1], strlen(name[1])) ? 1
                                                         : -1;

        if (i < 0) {
            all[n++] = *at++;
            continue;
        }
        memcpy(all + n, part[i], len[i]);
        n += len[i];
        at += strlen(name[i]);
    }
    status = all ? tokenizer_encode(
                       t, all, n,
                       TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL, l, err)
                 : err_no_memory(err, "a text");
    free(all);
    free(s);
    return status;
}

pl_status pl_tokenize_pair(const pl_model *m, const char *query,
                           size_t query_len, const char *document,
                           size_t document_len, int32_t **ids, int64_t *n,
                           pl_err *err)
{
    const char *const part[2] = {query, document};
    const size_t len[2] = {query_len, document_len};
    struct token_list l = {0};
    struct gguf_str form;
    pl_status s;

    PL_CLEAR(ids);
    PL_CLEAR(n);
    PL_NEED(m, err);
    PL_NEED_TEXT(query, query_len, err);
    PL_NEED_TEXT(document, document_len, err);
    PL_NEED(ids, err);
    PL_NEED(n, err);
    if (!m->tokenizer)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: the model has no tokenizer; give a file with one",
                       gguf_path(m->file));
    PL_TRY(gguf_get_str(m->file, "tokenizer.chat_template.rerank", &form, err));
    s = form.s ? encode_template(m->tokenizer->t, form, part, len, &l, err)
               : tokenizer_encode_pair(m->tokenizer->t, part, len, &l, err);
    if (s != PL_OK) {
        token_list_fini(&l);
        return s;
    }
    *ids = l.id;
    *n = l.n;
    return PL_OK;
}

bool pl_tokenizer_adds_bos(const pl_tokenizer *t)
{
    return t && tokenizer_adds_bos(t->t);
}

int32_t pl_tokenizer_bos(const pl_tokenizer *t)
{
    return t ? tokenizer_bos(t->t) : -1;
}

int32_t pl_tokenizer_eos(const pl_tokenizer *t)
{
    return t ? tokenizer_eos(t->t) : -1;
}

int32_t pl_token_fim(const pl_tokenizer *t, pl_fim which)
{
    static_assert((int)PL_FIM_COUNT == (int)TOKENIZER_N_FIM, "in one order");
    return t && (unsigned)which < PL_FIM_COUNT ? tokenizer_fim(t->t, (int)which)
                                               : -1;
}

pl_status pl_detokenizer_create(pl_detokenizer **out, const pl_tokenizer *t,
                                bool special, pl_err *err)
{
    pl_detokenizer *d;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(t, err);
    *out = d = calloc(1, sizeof *d);
    if (!d)
        return err_no_memory(err, "a detokenizer");
    tokenizer_stream_init(&d->stream, t->t,
                          special ? TOKENIZER_SHOW_SPECIAL : 0);
    return PL_OK;
}

void pl_detokenizer_free(pl_detokenizer *d)
{
    if (!d)
        return;
    text_buf_fini(&d->text);
    free(d);
}

static const char *emptied(pl_detokenizer *d)
{
    return d->text.s ? d->text.s : "";
}

const char *pl_detokenize(pl_detokenizer *d, int32_t id)
{
    if (!d)
        return "";
    d->text.n = 0;
    if (d->text.s)
        d->text.s[0] = 0;
    tokenizer_stream_put(&d->stream, id, &d->text, NULL);
    return emptied(d);
}

const char *pl_detokenize_flush(pl_detokenizer *d)
{
    if (!d)
        return "";
    d->text.n = 0;
    if (d->text.s)
        d->text.s[0] = 0;
    tokenizer_stream_end(&d->stream, &d->text, NULL);
    return emptied(d);
}

static pl_sampling defaults(void)
{
    struct sampling_options o = sampling_defaults();

    return (pl_sampling){
        .size = sizeof(pl_sampling),
        .penalty_last_n = o.penalty_last_n,
        .repeat_penalty = o.penalty_repeat,
        .frequency_penalty = o.penalty_frequency,
        .presence_penalty = o.penalty_presence,
        .top_k = o.top_k,
        .typical_p = o.typical,
        .top_p = o.top_p,
        .min_p = o.min_p,
        .temperature = o.temperature,
        .seed = o.seed,
        .top_n_sigma = o.top_n_sigma,
        .xtc_probability = o.xtc_probability,
        .xtc_threshold = o.xtc_threshold,
        .dynatemp_range = o.dynatemp_range,
        .dynatemp_exponent = o.dynatemp_exponent,
        .dry_multiplier = o.dry_multiplier,
        .dry_base = o.dry_base,
        .dry_allowed_length = o.dry_allowed_length,
        .dry_last_n = o.dry_last_n,
        .mirostat = o.mirostat,
        .mirostat_tau = o.mirostat_tau,
        .mirostat_eta = o.mirostat_eta,
        .adaptive_target = o.adaptive_target,
        .adaptive_decay = o.adaptive_decay,
    };
}

void pl_sampling_init_size(pl_sampling *s, size_t size)
{
    const pl_sampling own = defaults();

    if (!s || size < sizeof s->size)
        return;
    sized_write(s, size, &own, sizeof own);
    s->size = size;
}

/* Checks the arguments that must be valid before the options are copied.
 * sampling_create checks the others. */
static pl_status check_sampling(const pl_sampling *s, int64_t n_vocab,
                                pl_err *err)
{
    if (n_vocab < 1 || n_vocab > INT32_MAX)
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: a vocabulary of %" PRId64
                       " tokens; 1 to 2^31 - 1 are allowed",
                       n_vocab);
    if (s->n_bias < 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: n_bias is %d; give 0 or more", s->n_bias);
    if (s->n_bias > 0 && (!s->bias_id || !s->bias))
        return err_set(
            err, PL_BAD_ARGUMENT,
            "sampling: n_bias is %d but %s is NULL; set it, or n_bias to 0",
            s->n_bias, s->bias_id ? "bias" : "bias_id");
    if (s->n_stop < 0 || (s->n_stop > 0 && !s->stop))
        return err_set(err, PL_BAD_ARGUMENT,
                       "sampling: n_stop is %d; set stop, or n_stop to 0",
                       s->n_stop);
    for (int i = 0; i < s->n_stop; i++)
        if (s->stop[i] < 0 || s->stop[i] >= n_vocab)
            return err_set(err, PL_BAD_ARGUMENT,
                           "sampling: stop[%d] is %d, in a vocabulary of "
                           "%" PRId64 "; ids go from 0 to %" PRId64,
                           i, s->stop[i], n_vocab, n_vocab - 1);
    return PL_OK;
}

/* Sets filters that are off to the value in pl.h that says so. As in llama.cpp,
 * each number below that value turns the filter off, too. So receipts have one
 * form of it. */
static void settle_filters(pl_sampling *s)
{
    float *const filters[] = {&s->top_n_sigma, &s->min_p, &s->xtc_probability,
                              &s->dynatemp_range};

    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        *filters[i] = *filters[i] < 0 ? 0 : *filters[i];
    s->top_k = s->top_k < 0 ? 0 : s->top_k;
    s->adaptive_target = s->adaptive_target < 0 ? -1 : s->adaptive_target;
}

static size_t spell(const void *tokenizer, int32_t id, char *to, size_t cap)
{
    size_t n = tokenizer_piece(tokenizer, id, TOKENIZER_SHOW_SPECIAL, to, cap);

    return n < cap ? n : cap;
}

/* Drops the sequence breakers of the DRY sampler if they are invalid. The
 * sampler accepted the settings, so DRY is off and breakers have no effect. */
static void drop_bad_breakers(pl_sampling *s)
{
    bool good = s->n_dry_breaker >= 0 && s->n_dry_breaker <= 256;

    for (int i = 0; good && s->dry_breaker && i < s->n_dry_breaker; i++)
        good = s->dry_breaker[i] != NULL;
    if (!good)
        s->dry_breaker = NULL;
}

/* Replaces the list *ids [n] by a copy. Returns false if out of memory; *ids is
 * NULL then. */
static bool own_ids(const int32_t **ids, int n)
{
    int32_t *copy = calloc((size_t)n + 1, sizeof *copy);

    if (copy && n > 0)
        memcpy(copy, *ids, (size_t)n * sizeof *copy);
    *ids = copy;
    return copy;
}

/* Replaces the arrays of the settings by copies, because the caller may free
 * its own. */
static bool own_settings(pl_sampling *s)
{
    bool lists = own_ids(&s->only, s->n_only);
    int32_t *id = calloc((size_t)s->n_bias + 1, sizeof *id);
    float *bias = calloc((size_t)s->n_bias + 1, sizeof *bias);
    int n_breaker = s->dry_breaker ? s->n_dry_breaker : 0;
    char **text = calloc((size_t)n_breaker + 1, sizeof *text);
    bool done;

    lists = own_ids(&s->banned, s->n_banned) && lists;
    lists = own_ids(&s->stop, s->n_stop) && lists;
    done = id && bias && text && lists;
    for (int i = 0; done && i < s->n_bias; i++) {
        id[i] = s->bias_id[i];
        bias[i] = s->bias[i];
    }
    for (int i = 0; done && i < n_breaker; i++)
        done = (text[i] = strdup(s->dry_breaker[i])) != NULL;
    s->bias_id = id;
    s->bias = bias;
    if (s->dry_breaker || !text)
        s->dry_breaker = (const char *const *)text;
    else
        free(text);
    return done;
}

static void free_settings(pl_sampling *s)
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

pl_status pl_sampler_create(pl_sampler **out, const pl_sampling *given,
                            int64_t n_vocab, pl_err *err)
{
    pl_sampling own = defaults();
    const pl_sampling *s = &own;
    struct sampling_options o;
    struct sampling_bias *bias;
    const int32_t *never = NULL;
    int64_t n_never = 0;
    pl_sampler *p;
    pl_status st;

    PL_CLEAR(out);
    PL_NEED(out, err);
    if (given)
        PL_TRY(sized_read(&own, sizeof own, given, "pl_sampling",
                          "call pl_sampling_init", err));
    PL_TRY(check_sampling(s, n_vocab, err));
    settle_filters(&own);
    o = (struct sampling_options){
        .seed = s->seed,
        .temperature = s->temperature,
        .top_k = s->top_k,
        .typical = s->typical_p,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .penalty_last_n = s->penalty_last_n,
        .penalty_repeat = s->repeat_penalty,
        .penalty_frequency = s->frequency_penalty,
        .penalty_presence = s->presence_penalty,
        .n_bias = s->n_bias,
        .top_n_sigma = s->top_n_sigma,
        .xtc_probability = s->xtc_probability,
        .xtc_threshold = s->xtc_threshold,
        .dynatemp_range = s->dynatemp_range,
        .dynatemp_exponent = s->dynatemp_exponent,
        .dry_multiplier = s->dry_multiplier,
        .dry_base = s->dry_base,
        .dry_allowed_length = s->dry_allowed_length,
        .dry_last_n = s->dry_last_n,
        .dry_breaker = s->dry_breaker,
        .n_dry_breaker = s->n_dry_breaker,
        .spell = s->tokenizer ? spell : NULL,
        .spell_user = s->tokenizer ? s->tokenizer->t : NULL,
        .mirostat = s->mirostat,
        .mirostat_tau = s->mirostat_tau,
        .mirostat_eta = s->mirostat_eta,
        .adaptive_target = s->adaptive_target,
        .adaptive_decay = s->adaptive_decay,
        .n_step = s->n_step,
        .only = s->only,
        .n_only = s->n_only,
        .banned = s->banned,
        .n_banned = s->n_banned,
    };
    for (int i = 0; i < PL_N_STEP; i++)
        o.step[i] = s->step[i];
    if (s->tokenizer)
        never = tokenizer_suppressed(s->tokenizer->t, &n_never);
    p = calloc(1, sizeof *p);
    bias = calloc((size_t)(s->n_bias + n_never) + 1, sizeof *bias);
    if (!p || !bias) {
        free(p);
        free(bias);
        return err_no_memory(err, "a sampler");
    }
    for (int i = 0; i < s->n_bias; i++)
        bias[i] = (struct sampling_bias){s->bias_id[i], s->bias[i]};
    for (int64_t i = 0; i < n_never; i++)
        if (never[i] < n_vocab)
            bias[o.n_bias++] = (struct sampling_bias){never[i], -INFINITY};
    o.bias = bias;
    st = sampling_create(&p->s, (int32_t)n_vocab, &o, err);
    free(bias);
    p->n_vocab = (int32_t)n_vocab;
    if (st == PL_OK) { /* The settings are valid, because sampling_create has
                          accepted them. */
        p->settings = *s;
        drop_bad_breakers(&p->settings);
        if (!own_settings(&p->settings))
            st = err_no_memory(err, "a sampler");
    }
    if (st == PL_OK)
        *out = p;
    else
        pl_sampler_free(p);
    return st;
}

void pl_sampler_free(pl_sampler *s)
{
    if (!s)
        return;
    token_mask_free(s->mask);
    sampling_free(s->s);
    free_settings(&s->settings);
    free(s->no_eog);
    free(s->both);
    free(s);
}

/* Records the text of the sampler's present grammar, if it has a grammar and a
 * record. */
static void note_grammar(pl_sampler *s)
{
    pl_grammar_form form;
    const char *text;
    size_t len;

    if (!s->record || !s->grammar)
        return;
    text = grammar_text(s->grammar, &form, &len);
    record_grammar(s->record, form, text, len);
}

pl_status pl_sampler_set_grammar(pl_sampler *s, pl_grammar *g, pl_err *err)
{
    struct token_mask *mask = NULL;

    PL_NEED(s, err);
    if (g)
        PL_TRY(token_mask_create(&mask, g, s->n_vocab, err));
    token_mask_free(s->mask);
    s->mask = mask;
    s->grammar = g;
    note_grammar(s);
    return PL_OK;
}

pl_status pl_sampler_exclude_eog(pl_sampler *s, const pl_tokenizer *t,
                                 pl_err *err)
{
    size_t n;

    PL_NEED(s, err);
    if (!t) {
        free(s->no_eog);
        s->no_eog = NULL;
    }
    if (!t || s->no_eog)
        return PL_OK;
    n = ((size_t)s->n_vocab + 31) / 32;
    s->no_eog = malloc(n * sizeof *s->no_eog);
    if (!s->both)
        s->both = malloc(n * sizeof *s->both);
    if (!s->no_eog || !s->both) {
        free(s->no_eog);
        s->no_eog = NULL;
        return err_no_memory(err, "a sampler");
    }
    memset(s->no_eog, 0xff, n * sizeof *s->no_eog);
    for (int32_t i = 0; i < s->n_vocab; i++)
        if (pl_token_is_eog(t, i))
            s->no_eog[i / 32] &= ~(1u << i % 32);
    return PL_OK;
}

pl_status pl_sampler_exclude_stops(pl_sampler *s, bool exclude, pl_err *err)
{
    PL_NEED(s, err);
    if (exclude && !s->both) {
        s->both = malloc(((size_t)s->n_vocab + 31) / 32 * sizeof *s->both);
        if (!s->both)
            return err_no_memory(err, "a sampler");
    }
    s->no_stops = exclude && s->settings.n_stop > 0;
    return PL_OK;
}

void pl_sampler_prepare(pl_sampler *s)
{
    if (s && s->mask)
        token_mask_prepare(s->mask);
}

/* Sets *allowed to a mask with one bit per token, set for tokens that may be
 * sampled now. Sets it to NULL if all may. */
static pl_status find_allowed(pl_sampler *s, const uint32_t **allowed)
{
    const int32_t n = (s->n_vocab + 31) / 32;
    uint32_t any = 0;

    *allowed = NULL;
    if (s->mask)
        PL_TRY(token_mask_now(s->mask, allowed, &s->err));
    if (!s->no_eog && !s->no_stops)
        return PL_OK;
    for (int32_t i = 0; i < n; i++)
        s->both[i] = (*allowed ? (*allowed)[i] : UINT32_MAX) &
                     (s->no_eog ? s->no_eog[i] : UINT32_MAX);
    for (int i = 0; i < s->settings.n_stop && s->no_stops; i++)
        s->both[s->settings.stop[i] / 32] &= ~(1u << s->settings.stop[i] % 32);
    for (int32_t i = 0; i < n; i++)
        any |= s->both[i];
    if (any || !*allowed)
        *allowed = s->both;
    return PL_OK;
}

/* Adds a token to the sampler's history and record. `logits` are those that it
 * was sampled from, or NULL if the caller chose the token; the flags `how`
 * (RECORD_*) then tell in which way. */
static void take(pl_sampler *s, const float *logits, int32_t id, unsigned how)
{
    sampler_history_add(&s->history, id, logits != NULL);
    if (s->record && logits)
        record_row(s->record, logits, s->n_vocab, id,
                   (s->no_eog ? RECORD_NO_EOG : 0) |
                       (s->no_stops ? RECORD_NO_STOPS : 0) |
                       (s->mask ? RECORD_GRAMMAR : 0));
    else if (s->record)
        record_forced(s->record, id, how);
    sampling_accept(s->s, id);
}

static pl_status sample(pl_sampler *s, const float *logits, int32_t *id)
{
    const uint32_t *allowed;

    *id = -1;
    if (!logits)
        return err_null(&s->err, "pl_sample", "logits");
    PL_TRY(find_allowed(s, &allowed));
    *id = sampling_pick(s->s, logits, allowed);
    if (*id < 0)
        return err_set(&s->err, PL_BAD_FILE,
                       "no token can be sampled: all logits are nan or -inf; "
                       "the model is damaged, or biases forbid every token%s",
                       s->mask ? " that the grammar allows" : "");
    take(s, logits, *id, 0);
    return s->mask ? token_mask_accept(s->mask, *id, &s->err) : PL_OK;
}

int32_t pl_sample(pl_sampler *s, const float *logits)
{
    int32_t id;

    if (!s)
        return -1;
    /* Clears only the first byte of the message. Clearing the whole buffer for
     * each token would be slow. */
    s->err.status = PL_OK;
    s->err.message[0] = '\0';
    return sample(s, logits, &id) == PL_OK ? id : -1;
}

pl_status pl_sampler_status(const pl_sampler *s, pl_err *err)
{
    PL_NEED(s, err);
    if (s->err.status != PL_OK && err)
        *err = s->err;
    return s->err.status;
}

void pl_sampler_accept(pl_sampler *s, int32_t id)
{
    if (s && id >= 0 && id < s->n_vocab)
        take(s, NULL, id, 0);
}

pl_status pl_sampler_force(pl_sampler *s, int32_t id, pl_err *err)
{
    const uint32_t *allowed = NULL;

    PL_NEED(s, err);
    if (id < 0 || id >= s->n_vocab)
        return err_set(err, PL_BAD_ARGUMENT,
                       "token %d: not in the vocabulary; use ids from 0 to %d",
                       id, s->n_vocab - 1);
    if (s->mask)
        PL_TRY(token_mask_now(s->mask, &allowed, err));
    if (allowed && !(allowed[id / 32] >> id % 32 & 1))
        return err_set(err, PL_NOT_FOUND,
                       "token %d: the grammar does not allow it here", id);
    take(s, NULL, id, s->mask ? RECORD_GRAMMAR : 0);
    return s->mask ? token_mask_accept(s->mask, id, err) : PL_OK;
}

/* ---- functions of samplers for receipts ---------------------------------- */

void sampler_history_add(struct sampler_history *h, int32_t id, bool sampled)
{
    h->n++;
    h->n_sampled += sampled;
    h->hash = hash64(h->hash, &id, sizeof id);
}

const struct sampler_history *sampler_history(const pl_sampler *s)
{
    return &s->history;
}

const pl_sampling *sampler_settings(const pl_sampler *s)
{
    return &s->settings;
}

int64_t sampler_n_vocab(const pl_sampler *s)
{
    return s->n_vocab;
}

void sampler_record(pl_sampler *s, struct sampling_record *r)
{
    s->record = r;
    note_grammar(s);
}

pl_status sampler_skip(pl_sampler *s, int32_t id, pl_err *err)
{
    sampling_skip(s->s);
    take(s, NULL, id, 0);
    return s->mask ? token_mask_accept(s->mask, id, err) : PL_OK;
}
