/* Checks receipts: computes the recorded prompt and output again in large
 * steps, samples every token again, and compares the tokens and the hashes of
 * their logits.
 *
 * The sampler that samples again is recorded like the one that wrote the
 * receipt, so the two records are compared token by token. After the first
 * difference nothing more can be said, because everything that follows depends
 * on it. */
#include "receipt/receipt.h"

#include "base/exact.h"
#include "base/numeral.h"
#include "base/sized.h"
#include "base/whole_json.h"
#include "engine/sampler.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check {
    const pl_receipt *r;
    pl_engine *e;
    pl_receipt_given given;
    pl_receipt_result *out;
    pl_err *err;
    const int32_t *prompt; /* tokens of the prompt, [r->n_prompt]; borrowed */
    int64_t n_vocab;
    pl_sampling settings;
    pl_sampler *sampler;
    pl_grammar *grammar;
    bool is_constrained;          /* the sampler has the grammar */
    struct sampling_record again; /* what is sampled now */
    double nll;      /* sum of -ln p of the tokens, if they were given */
    uint8_t *wanted; /* [r->record.n] tokens to sample again */
    int64_t at;      /* index of the next token to compare */
};

/* Ends the check with the verdict v and a text, formatted as by printf. */
static void decide(struct check *c, pl_receipt_verdict v, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void decide(struct check *c, pl_receipt_verdict v, const char *fmt, ...)
{
    va_list ap;

    c->out->verdict = v;
    va_start(ap, fmt);
    numeral_vprint(c->out->text, sizeof c->out->text, fmt, ap);
    va_end(ap);
}

static bool is_decided(const struct check *c)
{
    return c->out->text[0] != '\0';
}

/* ---- can this engine check the receipt? ---------------------------------- */

static const char *text_of(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s ? s : "?";
}

/* Compares the model and the numerics in the receipt with those of the engine,
 * and ends the check if they differ. */
static pl_status check_engine(struct check *c)
{
    static const char *const parts[] = {"ranks",       "shares", "precision",
                                        "activations", "cache",  "keep",
                                        "layouts",     "mtp",    "order"};
    const json_t *m = json_object_get(c->r->doc, "model");
    const json_t *n = json_object_get(c->r->doc, "numerics");
    char shown[4][ERR_SHOWN];
    json_t *model, *numerics;
    bool is_set;
    pl_status s;

    PL_TRY(exec_enter(c->e->exec, c->err));
    is_set = c->e->exec->n_set > 0;
    s = receipt_describe_engine(&model, &numerics, c->e, c->err);
    exec_leave(c->e->exec);
    if (s != PL_OK)
        return s;
    if (is_set)
        decide(c, PL_RECEIPT_CANNOT,
               "weights or caches of this engine were set (pl_tensor_set); use "
               "an engine of its own");
    else if (strcmp(text_of(m, "hash"), text_of(model, "hash")) != 0)
        decide(c, PL_RECEIPT_CANNOT,
               "other weights: the receipt is of %s %s (%s), this model is %s "
               "%s (%s); load the model it was written with",
               receipt_shown(shown[0], m, "architecture"),
               receipt_shown(shown[1], m, "name"), text_of(m, "hash"),
               receipt_shown(shown[2], model, "architecture"),
               receipt_shown(shown[3], model, "name"), text_of(model, "hash"));
    for (size_t i = 0; i < sizeof parts / sizeof *parts && !is_decided(c);
         i++) {
        json_t *a = json_object_get(n, parts[i]);
        json_t *b = json_object_get(numerics, parts[i]);

        if (!json_equal(a, b)) {
            char *x = whole_json_dumps(a, JSON_ENCODE_ANY | JSON_COMPACT);
            char *y = whole_json_dumps(b, JSON_ENCODE_ANY | JSON_COMPACT);

            decide(
                c, PL_RECEIPT_CANNOT,
                "other numerics: %s of the receipt is %.200s, of this engine "
                "%.200s; plan with the receipt's options "
                "(pl_receipt_options)",
                parts[i], x ? x : "missing", y ? y : "missing");
            if ((a && !x) || (b && !y))
                s = err_no_memory(c->err, "checking a receipt");
            free(x);
            free(y);
        }
    }
    if (!is_decided(c) &&
        strcmp(text_of(n, "hash"), text_of(numerics, "hash")) != 0)
        decide(c, PL_RECEIPT_CANNOT,
               "other numerics: the receipt's plan has the hash %s, this "
               "engine's %s, with the same ranks and formats; use plait %s, "
               "which wrote it",
               text_of(n, "hash"), text_of(numerics, "hash"),
               receipt_shown(shown[0], c->r->doc, "plait"));
    json_decref(model);
    json_decref(numerics);
    return s;
}

/* Sets c->prompt to the prompt's tokens, given by the caller or from the
 * receipt. Ends the check if neither has them, or if those given differ from
 * the receipt's. */
static void check_prompt(struct check *c)
{
    const pl_receipt *r = c->r;
    const int32_t *given = c->given.prompt;
    char hash[SHA256_TEXT];
    int64_t i = 0, n = c->given.n_prompt;

    c->prompt = given && n == r->n_prompt ? given : r->prompt;
    if (!given && !r->prompt) {
        decide(c, PL_RECEIPT_CANNOT,
               "the receipt has only a hash of its prompt of %" PRId64
               " tokens; give the prompt",
               r->n_prompt);
        return;
    }
    if (!given)
        return;
    while (r->prompt && i < n && i < r->n_prompt && given[i] == r->prompt[i])
        i++;
    if (n == r->n_prompt) {
        receipt_hash_tokens(hash, given, n);
        if (strcmp(hash, r->prompt_hash) == 0)
            return;
    }
    if (r->prompt)
        decide(c, PL_RECEIPT_DIFFERS,
               "the prompt differs from the receipt's at token %" PRId64
               " (%" PRId64 " tokens, the receipt has %" PRId64 ")",
               i, n, r->n_prompt);
    else if (n != r->n_prompt)
        decide(c, PL_RECEIPT_DIFFERS,
               "the prompt is another one: it has %" PRId64
               " tokens, the receipt's %" PRId64,
               n, r->n_prompt);
    else
        decide(c, PL_RECEIPT_DIFFERS,
               "the prompt is another one: it has the hash %.16s, the "
               "receipt's %.16s",
               hash, r->prompt_hash);
}

/* Ends the check if creating the sampler or the grammar from the receipt failed
 * with status s: then no engine can have used this part of the receipt. Lack of
 * memory says nothing about the receipt, so it is returned as an error. */
static pl_status usable(struct check *c, const char *part, pl_status s,
                        const pl_err *why)
{
    if (s == PL_NO_MEMORY) {
        if (c->err)
            *c->err = *why;
        return s;
    }
    if (s != PL_OK)
        decide(c, PL_RECEIPT_CANNOT, "the receipt's %s cannot be used: %.600s",
               part, why->message);
    return PL_OK;
}

/* Creates the grammar from the text that the caller gave, else from the
 * receipt's. Ends the check if neither has it, or if its hash is not the
 * receipt's. */
static pl_status check_grammar(struct check *c)
{
    const struct sampling_record *a = &c->r->record;
    const pl_tokenizer *words = c->e->plan->model->tokenizer;
    const char *text = c->given.grammar ? c->given.grammar : a->grammar;
    size_t len = c->given.grammar ? c->given.grammar_len : a->grammar_len;
    char hash[SHA256_TEXT];
    pl_err why;

    if (c->r->grammar_hash[0] == '\0')
        return PL_OK;
    if (!text || !words) {
        decide(c, PL_RECEIPT_CANNOT,
               text ? "a grammar applied, but the model has no tokenizer"
                    : "the receipt has only a hash of its grammar; give the "
                      "grammar's text");
        return PL_OK;
    }
    receipt_hash_text(hash, text, len);
    if (strcmp(hash, c->r->grammar_hash) != 0) {
        decide(c, PL_RECEIPT_DIFFERS,
               "the grammar is another one: its hash is %.16s, the receipt's "
               "%.16s",
               hash, c->r->grammar_hash);
        return PL_OK;
    }
    return usable(c, "grammar",
                  pl_grammar_create(&c->grammar, words, a->form, text, len,
                                    "grammar", &why),
                  &why);
}

/* Checks everything that can be checked before the engine computes. */
static pl_status check_before(struct check *c)
{
    const pl_receipt *r = c->r;
    int64_t need = r->n_prompt + r->record.n, n_ctx = c->e->plan->n_ctx;

    PL_TRY(check_engine(c));
    if (!is_decided(c))
        check_prompt(c);
    if (!is_decided(c))
        PL_TRY(check_grammar(c));
    if (!is_decided(c) && r->n_prompt < 1)
        decide(c, PL_RECEIPT_CANNOT, "the receipt has no prompt");
    /* The last token of the output needs no position in the context, because it
     * is not computed. */
    if (!is_decided(c) && need - 1 > n_ctx)
        decide(c, PL_RECEIPT_CANNOT,
               "prompt and output have %" PRId64 " tokens, the context %" PRId64
               "; use -c %" PRId64,
               need, n_ctx, need);
    for (int64_t i = 0; i < need && !is_decided(c); i++) {
        int32_t id = i < r->n_prompt ? c->prompt[i]
                                     : r->record.token[i - r->n_prompt].id;

        if (id >= c->n_vocab)
            decide(c, PL_RECEIPT_DIFFERS,
                   "token %" PRId64 " of the %s is %d, but the vocabulary has "
                   "%" PRId64,
                   i < r->n_prompt ? i : i - r->n_prompt,
                   i < r->n_prompt ? "prompt" : "output", id, c->n_vocab);
    }
    return PL_OK;
}

/* ---- sampling tokens again and comparing them ---------------------------- */

static pl_status make_sampler(struct check *c)
{
    const pl_tokenizer *words = c->e->plan->model->tokenizer;
    pl_err why;

    PL_TRY(receipt_read_sampling(
        &c->settings, json_object_get(c->r->doc, "sampling"), words, c->err));
    PL_TRY(usable(
        c, "sampling",
        pl_sampler_create(&c->sampler, &c->settings, c->n_vocab, &why), &why));
    if (is_decided(c))
        return PL_OK;
    for (int64_t i = 0; i < c->r->n_prompt; i++)
        pl_sampler_accept(c->sampler, c->prompt[i]);
    sampler_record(c->sampler, &c->again);
    return PL_OK;
}

/* Writes a token to `buf` for messages: its id and its text, as in 123 ("
 * word"). */
static const char *name_token(const struct check *c, int32_t id, char buf[96])
{
    const pl_tokenizer *words = c->e->plan->model->tokenizer;
    char text[48], shown[ERR_SHOWN];
    size_t n =
        words && id >= 0 ? pl_token_bytes(words, id, text, sizeof text) : 0;

    n = n < sizeof text ? n : sizeof text;
    snprintf(buf, 96, "%d (\"%.60s\")", id, err_shown(shown, text, n));
    return buf;
}

/* Ends the check because token c->at of the output differs. `now` is the token
 * sampled now, from the logits `row`. */
static void differ(struct check *c, int32_t now, const float *row)
{
    int32_t then = c->r->record.token[c->at].id;
    char a[96], b[96];

    c->out->at = c->at;
    c->out->written = then;
    c->out->sampled = now;
    c->out->written_logit = then >= 0 ? row[then] : 0;
    c->out->sampled_logit = row[now];
    if (c->r->scored)
        decide(c, PL_RECEIPT_DIFFERS,
               "the logits of token %" PRId64 ", %s, differ", c->at,
               name_token(c, now, a));
    else if (then == now)
        decide(c, PL_RECEIPT_DIFFERS,
               "the logits of token %" PRId64 " differ, though %s is sampled "
               "from both",
               c->at, name_token(c, now, a));
    else if (then < 0)
        decide(c, PL_RECEIPT_DIFFERS,
               "the logits of token %" PRId64 " differ; %s is sampled now",
               c->at, name_token(c, now, a));
    else
        decide(c, PL_RECEIPT_DIFFERS,
               "token %" PRId64
               " differs: the receipt has %s with the logit %.9g, now %s is "
               "sampled with %.9g",
               c->at, name_token(c, then, a), (double)row[then],
               name_token(c, now, b), (double)row[now]);
}

/* Ends the check because the receipt's token c->at is impossible, for the
 * reason `why`: the grammar does not allow it, or no token can be sampled. */
static pl_status forbid(struct check *c, const pl_err *why)
{
    if (why->status == PL_NO_MEMORY) {
        if (c->err)
            *c->err = *why;
        return PL_NO_MEMORY;
    }
    c->out->at = c->at;
    c->out->written = c->r->record.token[c->at].id;
    decide(c, PL_RECEIPT_DIFFERS, "token %" PRId64 ": %.600s", c->at,
           why->message);
    return PL_OK;
}

/* Compares the logits `row` of a token that was given. All of them have a row,
 * because none is forced and choose_tokens chooses all. */
static pl_status compare_given(struct check *c, const float *row)
{
    const struct record_token *then = &c->r->record.token[c->at];

    assert(row);
    record_row(&c->again, row, (int32_t)c->n_vocab, then->id, 0);
    if (c->again.full)
        return err_no_memory(c->err, "the check of a receipt");
    if (c->again.token[c->again.n - 1].row != then->row) {
        differ(c, then->id, row);
        return PL_OK;
    }
    c->nll += receipt_nll(row, c->n_vocab, then->id);
    c->out->n_checked++;
    c->at++;
    return PL_OK;
}

/* Advances the sampler by the next token. `row` are its logits; NULL if it was
 * forced or is not to be sampled again. */
static pl_status compare_next(struct check *c, const float *row)
{
    const struct record_token *then = &c->r->record.token[c->at];
    const pl_tokenizer *words = c->e->plan->model->tokenizer;
    const struct record_token *now;
    pl_err why;

    if (c->r->scored)
        return compare_given(c, row);
    if (c->grammar && !c->is_constrained && c->at >= c->r->grammar_from) {
        PL_TRY(pl_sampler_set_grammar(c->sampler, c->grammar, c->err));
        c->is_constrained = true;
    }
    if (then->how & RECORD_FORCED) {
        if (!(then->how & RECORD_GRAMMAR))
            pl_sampler_accept(c->sampler, then->id);
        else if (pl_sampler_force(c->sampler, then->id, &why) != PL_OK)
            return forbid(c, &why);
        c->at++;
        return PL_OK;
    }
    PL_TRY(pl_sampler_exclude_eog(
        c->sampler, then->how & RECORD_NO_EOG ? words : NULL, c->err));
    PL_TRY(pl_sampler_exclude_stops(
        c->sampler, (then->how & RECORD_NO_STOPS) != 0, c->err));
    if (!row) {
        if (sampler_skip(c->sampler, then->id, &why) != PL_OK)
            return forbid(c, &why);
        c->at++;
        return PL_OK;
    }
    if (pl_sample(c->sampler, row) < 0) {
        pl_sampler_status(c->sampler, &why);
        return forbid(c, &why);
    }
    if (c->again.full)
        return err_no_memory(c->err, "the check of a receipt");
    now = &c->again.token[c->again.n - 1];
    if ((then->id >= 0 && now->id != then->id) ||
        (c->given.n_sample == 0 && now->row != then->row)) {
        differ(c, now->id, row);
        return PL_OK;
    }
    c->out->n_checked++;
    c->at++;
    return PL_OK;
}

/* ---- computing the tokens in steps of the engine ------------------------- */

/* Greatest size in bytes of the buffer for logits. */
enum { ROW_BYTES = 64 << 20 };

/* Computes the next tokens of `seq`, as many as have at most `most` rows of
 * logits to compare, and compares them. `seq` has the tokens of prompt and
 * output, of which *done are computed already. */
static pl_status check_piece(struct check *c, const int32_t *seq, int64_t *done,
                             uint8_t *wanted, float *rows, int64_t most)
{
    const struct sampling_record *a = &c->r->record;
    int64_t first = c->r->n_prompt - 1, end = first + a->n, n_row = 0, i;
    pl_batch b = {.size = sizeof b, .token = seq + *done, .logits = rows};
    const float *row = rows;

    for (i = *done; i < end && n_row < most; i++) {
        wanted[i - *done] = i >= first && c->wanted[i - first];
        n_row += wanted[i - *done];
    }
    b.n = i - *done;
    b.wanted = wanted;
    PL_TRY(pl_engine_decode(c->e, &b, c->given.cancel, c->err));
    for (int64_t k = *done; k < i && !is_decided(c); k++) {
        bool is_row = wanted[k - *done];

        if (k < first)
            continue;
        PL_TRY(compare_next(c, is_row ? row : NULL));
        row += is_row ? c->n_vocab : 0;
    }
    *done = i;
    if (c->given.progress)
        c->given.progress(c->given.progress_user, "checking", (uint64_t)i,
                          (uint64_t)end);
    return PL_OK;
}

/* Computes prompt and output, whose tokens are known, in steps of many tokens,
 * and compares each sampled token. */
static pl_status check_tokens(struct check *c)
{
    const struct sampling_record *a = &c->r->record;
    int64_t n = c->r->n_prompt + a->n, done = 0;
    int64_t most = ROW_BYTES / (c->n_vocab * (int64_t)sizeof(float));
    int32_t *seq = malloc((size_t)n * sizeof *seq);
    uint8_t *wanted = malloc((size_t)n);
    float *rows;
    pl_status s = PL_OK;

    most = most > a->n ? a->n : most;
    most = most < 1 ? 1 : most;
    rows = malloc((size_t)(most + 1) * (size_t)c->n_vocab * sizeof *rows);
    if (!seq || !wanted || !rows)
        s = err_no_memory(c->err, "the check of a receipt");
    for (int64_t i = 0; s == PL_OK && i < n; i++)
        seq[i] =
            i < c->r->n_prompt ? c->prompt[i] : a->token[i - c->r->n_prompt].id;
    while (s == PL_OK && done < n - 1 && !is_decided(c))
        s = check_piece(c, seq, &done, wanted, rows, most);
    free(seq);
    free(wanted);
    free(rows);
    return s;
}

/* Checks a receipt that has only a hash of its output's tokens, by generating
 * the output again token by token. */
static pl_status check_by_generating(struct check *c)
{
    const struct sampling_record *a = &c->r->record;
    float *row = malloc((size_t)c->n_vocab * sizeof *row);
    uint8_t *wanted = calloc((size_t)c->r->n_prompt + 1, 1);
    pl_batch b = {.size = sizeof b,
                  .n = c->r->n_prompt,
                  .token = c->prompt,
                  .wanted = wanted,
                  .logits = row};
    int32_t next;
    pl_status s = PL_OK;

    if (!row || !wanted)
        s = err_no_memory(c->err, "the check of a receipt");
    else
        wanted[c->r->n_prompt - 1] = 1;
    while (s == PL_OK && c->at < a->n && !is_decided(c)) {
        bool is_forced = a->token[c->at].how & RECORD_FORCED;

        s = pl_engine_decode(c->e, &b, c->given.cancel, c->err);
        if (s == PL_OK)
            s = compare_next(c, is_forced ? NULL : row);
        if (s != PL_OK || is_decided(c))
            break;
        next = c->again.token[c->again.n - 1].id;
        b = (pl_batch){.size = sizeof b, .n = 1, .token = &next, .logits = row};
        if (c->given.progress)
            c->given.progress(c->given.progress_user, "generating again",
                              (uint64_t)c->at, (uint64_t)a->n);
    }
    free(row);
    free(wanted);
    return s;
}

/* ---- the verdict: hashes and the end of the output ----------------------- */

/* Appends a piece to the text *text [*n], which the caller frees. */
static bool add_piece(char **text, size_t *n, const char *piece)
{
    size_t len = strlen(piece);
    char *more = realloc(*text, *n + len + 1);

    if (!more)
        return false;
    *text = more;
    memcpy(more + *n, piece, len + 1);
    *n += len;
    return true;
}

/* Sets *text to the text of the output, which the caller frees, and *n to its
 * length. `special`: with the texts of special tokens. `after`: as it continues
 * the prompt, so that it may begin with a blank, or with the end of a
 * character. */
static pl_status output_text(const struct check *c, bool special, bool after,
                             char **text, size_t *n)
{
    const struct sampling_record *a = &c->again;
    pl_detokenizer *d;
    bool done = true;

    *text = NULL;
    *n = 0;
    PL_TRY(pl_detokenizer_create(&d, c->e->plan->model->tokenizer, special,
                                 c->err));
    for (int64_t i = 0; after && i < c->r->n_prompt; i++)
        pl_detokenize(d, c->prompt[i]);
    for (int64_t i = 0; done && i < a->n; i++)
        done = add_piece(text, n, pl_detokenize(d, a->token[i].id));
    done = done && add_piece(text, n, pl_detokenize_flush(d));
    pl_detokenizer_free(d);
    return done ? PL_OK : err_no_memory(c->err, "the check of a receipt");
}

/* Sets *found to true if the text of the output contains one of the stop
 * strings in the list `stop`. The receipt does not say which form of the text
 * was searched, so every form is. */
static pl_status find_stop(const struct check *c, const json_t *stop,
                           bool *found)
{
    pl_status s = PL_OK;

    *found = false;
    for (int form = 0; s == PL_OK && !*found && form < 4; form++) {
        const json_t *one;
        char *text;
        size_t n, i;

        s = output_text(c, form & 1, form & 2, &text, &n);
        json_array_foreach (stop, i, one)
            *found |= s == PL_OK && memmem(text, n, json_string_value(one),
                                           json_string_length(one)) != NULL;
        free(text);
    }
    return s;
}

/* Checks that the receipt's reason for the end of the output agrees with the
 * output's tokens: end-of-text token, length, or stop string. Without a
 * tokenizer only the length can be checked. */
static pl_status check_end(struct check *c)
{
    const json_t *end = json_object_get(c->r->doc, "end");
    const struct sampling_record *a = &c->again;
    const pl_tokenizer *words = c->e->plan->model->tokenizer;
    const char *why = text_of(end, "reason");
    int64_t most = json_integer_value(json_object_get(end, "max_tokens"));
    int64_t n_eog = 0;
    bool last = false, found = true;

    if (!end)
        return PL_OK;
    for (int64_t i = 0; words && i < a->n; i++) {
        last = pl_token_is_eog(words, a->token[i].id);
        n_eog += last;
    }
    if (words && strcmp(why, "stop") == 0)
        PL_TRY(find_stop(c, json_object_get(end, "stop"), &found));
    if (strcmp(why, "eog") == 0 ? words && (!last || n_eog != 1)
                                : last && strcmp(why, "other") != 0)
        decide(c, PL_RECEIPT_DIFFERS,
               "the receipt says that the output ended by \"%s\", but its last "
               "token is %san end-of-text token",
               why, last ? "" : "not ");
    else if (strcmp(why, "length") == 0 ? a->n != most
                                        : most >= 0 && a->n > most + last)
        decide(c, PL_RECEIPT_DIFFERS,
               "the receipt says that the output ended by \"%s\" with at most "
               "%" PRId64 " tokens, but it has %" PRId64,
               why, most, a->n);
    else if (!found)
        decide(c, PL_RECEIPT_DIFFERS,
               "the receipt says that the output ended by a stop string, but "
               "contains none");
    return PL_OK;
}

/* Compares the sum of -ln p. The logits are the same bits, but exp and log of
 * another C library may differ in the last ones. */
static void conclude_score(struct check *c)
{
    double was = c->r->nll, n = (double)c->r->record.n;

    if (!(fabs(c->nll - was) <= 1e-9 * (1 + fabs(was)))) /* NaN, too */
        decide(c, PL_RECEIPT_DIFFERS,
               "the sum of -ln p is %.9g, the receipt says %.9g", c->nll, was);
    else
        decide(c, PL_RECEIPT_HOLDS,
               "holds: %" PRId64
               " tokens have the same logits, bit by bit; their perplexity is "
               "%.4f",
               c->out->n_checked, exp(n > 0 ? c->nll / n : 0));
}

static pl_status conclude(struct check *c)
{
    const struct sampling_record *a = &c->r->record;
    char hash[SHA256_TEXT];

    if (c->given.n_sample > 0 && a->n > 0) {
        decide(c, PL_RECEIPT_HOLDS,
               "holds: %" PRId64 " of %" PRId64
               " tokens were sampled again and are equal; the others and the "
               "hash of logits were not checked",
               c->out->n_checked, a->n_row);
        return PL_OK;
    }
    receipt_hash_output(hash, &c->again);
    if (c->again.hash != a->hash || c->again.n_row != a->n_row)
        decide(c, PL_RECEIPT_DIFFERS,
               "the hash of all logits differs (%016" PRIx64 ", now %016" PRIx64
               "), though that of each row agrees in its last bits",
               a->hash, c->again.hash);
    else if (strcmp(hash, c->r->output_hash) != 0)
        decide(c, PL_RECEIPT_DIFFERS,
               "the hash of the output's tokens differs");
    else
        PL_TRY(check_end(c));
    if (!is_decided(c) && c->r->scored)
        conclude_score(c);
    if (!is_decided(c) && a->n == 0)
        decide(c, PL_RECEIPT_HOLDS,
               "holds: the output is empty, so no logits were compared");
    if (!is_decided(c))
        decide(c, PL_RECEIPT_HOLDS,
               "holds: %" PRId64
               " tokens were sampled again from the same logits, bit by bit",
               c->out->n_checked);
    return PL_OK;
}

static bool uses_adaptive_p(const pl_sampling *s)
{
    bool listed = false;

    for (int i = 0; i < s->n_step; i++)
        listed |= s->step[i] == PL_STEP_ADAPTIVE_P;
    return listed && s->adaptive_target >= 0;
}

/* Chooses the tokens to sample again, in c->wanted: all that were sampled, or
 * n_sample of them, drawn at random, if the caller asked for some only. */
static pl_status choose_tokens(struct check *c)
{
    const struct sampling_record *a = &c->r->record;
    int64_t left = a->n_row, need = c->given.n_sample;
    uint64_t state = c->given.seed;

    if (c->r->scored && need > 0) {
        decide(c, PL_RECEIPT_CANNOT,
               "a perplexity depends on all tokens; check all");
        return PL_OK;
    }
    if (need > 0 && a->n > 0 &&
        (c->r->no_tokens || c->settings.mirostat > 0 ||
         uses_adaptive_p(&c->settings))) {
        decide(c, PL_RECEIPT_CANNOT,
               c->r->no_tokens
                   ? "single tokens cannot be checked, because the receipt has "
                     "only their hash; check all"
                   : "single tokens cannot be checked, because the state of "
                     "Mirostat or adaptive-p depends on all logits; check all");
        return PL_OK;
    }
    if (need == 0 || need > left)
        need = left;
    for (int64_t i = 0; i < a->n; i++) {
        if (a->token[i].how & RECORD_FORCED)
            continue;
        c->wanted[i] = exact_uniform(&state) * (double)left < (double)need;
        need -= c->wanted[i];
        left--;
    }
    return PL_OK;
}

/* Computes the output again and compares. Ends the check if logits are not
 * finite, because no engine records such rows: this one's weights are damaged,
 * or the receipt is false. */
static pl_status check_output(struct check *c)
{
    pl_err why;
    pl_err *err = c->err;
    pl_status s;

    c->err = &why;
    s = c->r->no_tokens ? check_by_generating(c) : check_tokens(c);
    c->err = err;
    if (s == PL_BAD_FILE) {
        decide(c, PL_RECEIPT_CANNOT, "%.700s", why.message);
        return PL_OK;
    }
    if (s != PL_OK && err)
        *err = why;
    return s;
}

static pl_status run(struct check *c)
{
    pl_status s = check_before(c);

    if (s == PL_OK && !is_decided(c) && !c->r->scored)
        s = make_sampler(c);
    if (s == PL_OK && !is_decided(c))
        s = choose_tokens(c);
    if (s == PL_OK && !is_decided(c))
        s = pl_seq_trim(c->e, 0, 0, NULL, c->err);
    if (s == PL_OK && !is_decided(c) && c->r->record.n > 0)
        s = check_output(c);
    if (s == PL_OK && !is_decided(c))
        s = conclude(c);
    return s;
}

pl_status pl_receipt_verify(const pl_receipt *r, pl_engine *e,
                            const pl_receipt_given *given,
                            pl_receipt_result *out, size_t size, pl_err *err)
{
    pl_receipt_result own = {.at = -1, .written = -1, .sampled = -1};
    struct check c = {.r = r, .e = e, .out = &own, .err = err};
    pl_status s = PL_OK;

    PL_NEED(r, err);
    PL_NEED(e, err);
    PL_NEED(out, err);
    if (given)
        PL_TRY(sized_read(&c.given, sizeof c.given, given, "pl_receipt_given",
                          NULL, err));
    if (c.given.n_prompt < 0 || c.given.n_sample < 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "pl_receipt_given: n_prompt is %" PRId64
                       ", n_sample %" PRId64 "; use 0 or more",
                       c.given.n_prompt, c.given.n_sample);
    if (!r->keep)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the receipt is being written; write it and parse it "
                       "again (pl_receipt_parse)");
    c.n_vocab = pl_model_n_vocab(e->plan->model);
    c.wanted = calloc((size_t)r->record.n + 1, 1);
    if (!c.wanted)
        return err_no_memory(err, "the check of a receipt");
    s = run(&c);
    pl_seq_trim(e, 0, 0, NULL, NULL);
    pl_sampler_free(c.sampler);
    pl_grammar_free(c.grammar);
    receipt_free_sampling(&c.settings);
    record_fini(&c.again);
    free(c.wanted);
    if (s == PL_OK)
        sized_write(out, size, &own, sizeof own);
    return s;
}
