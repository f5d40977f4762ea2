/* Converts text to tokens.
 *
 * Special tokens are found first. The text between them is normalised, split
 * and merged, in a way that depends on the kind of vocabulary. If a symbol is
 * not a token when merging ends, its bytes become tokens instead. The search
 * for special tokens visits each byte of the text once for each length that
 * special tokens have. */
#include "tokenizer/encoder.h"

#include "base/ascii.h"
#include "base/err.h"
#include "tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

void token_list_fini(struct token_list *l)
{
    free(l->id);
    memset(l, 0, sizeof *l);
}

pl_status encoder_push(struct encoder *e, int32_t id, pl_err *err)
{
    struct token_list *l = e->out;

    if (id < 0)
        return PL_OK;
    if (l->n == l->cap) {
        int64_t cap = l->cap < 64 ? 64 : 2 * l->cap;
        int32_t *p = realloc(l->id, (size_t)cap * sizeof *p);

        if (!p)
            return err_no_memory(err, "a list of tokens");
        l->id = p;
        l->cap = cap;
    }
    l->id[l->n++] = id;
    return PL_OK;
}

static pl_status push_bytes(struct encoder *e, const char *s, size_t len,
                            pl_err *err)
{
    const struct tokenizer *t = e->t;

    for (size_t i = 0; i < len; i++) {
        int32_t id = t->byte_id[(unsigned char)s[i]];

        if (id < 0 || id >= t->vocab.n_token)
            id = t->unknown;
        PL_TRY(encoder_push(e, id, err));
    }
    return PL_OK;
}

/* The merge_pair_fn of KIND_SPM (SentencePiece). Two symbols join if their
 * joined text is a token; the pair with the highest score joins first. */
static bool join_by_text(const void *user, const struct merge_sym *a,
                         const struct merge_sym *b, double *key,
                         int32_t *joined)
{
    const struct encoder *e = user;
    const struct vocab *v = &e->t->vocab;
    float score;

    *joined = vocab_find(v, e->text + a->start, (size_t)a->len + b->len);
    if (*joined < 0)
        return false;
    score = v->token[*joined].score;
    /* A pair whose score is NaN joins last. */
    *key = score == score ? -(double)score : __builtin_inf();
    return true;
}

/* The merge_pair_fn of byte-pair encoding. Two symbols join if the vocabulary
 * has a merge of them; the pair whose merge has the lowest rank joins first. */
static bool join_by_merge(const void *user, const struct merge_sym *a,
                          const struct merge_sym *b, double *key,
                          int32_t *joined)
{
    const struct encoder *e = user;
    const struct vocab_merge *m = vocab_find_merge(&e->t->vocab, a->id, b->id);

    if (!m)
        return false;
    *key = m->rank;
    *joined = m->joined;
    return true;
}

/* Appends the token of a symbol. If the symbol is not a token, appends the
 * tokens of its characters instead, and for a character that is not a token
 * those of its bytes. */
static pl_status push_symbol(struct encoder *e, const struct merge_sym *s,
                             pl_err *err)
{
    const char *p = e->text + s->start, *end = p + s->len;

    if (s->id >= 0 && s->id < e->t->vocab.n_token)
        return encoder_push(e, s->id, err);
    if (e->t->kind == KIND_BPE)
        return push_bytes(e, p, s->len, err);
    while (p < end) {
        int valid;
        size_t n = utf8_step(p, (size_t)(end - p), &valid);
        int32_t id = valid ? vocab_find(&e->t->vocab, p, n) : -1;

        if (id >= 0)
            PL_TRY(encoder_push(e, id, err));
        else
            PL_TRY(push_bytes(e, p, n, err));
        p += n;
    }
    return PL_OK;
}

static pl_status push_merged(struct encoder *e, merge_pair_fn *pair,
                             pl_err *err)
{
    const struct merger *m = &e->merger;

    if (m->n_sym == 0)
        return PL_OK;
    merger_run(&e->merger, pair, e);
    for (int32_t i = 0; i >= 0; i = m->sym[i].next)
        PL_TRY(push_symbol(e, &m->sym[i], err));
    return PL_OK;
}

/* Merges the characters of the text s[0 .. len) and appends the resulting
 * tokens. Each byte that is not UTF-8 is a symbol by itself. */
static pl_status merge_word(struct encoder *e, const char *s, size_t len,
                            merge_pair_fn *pair, pl_err *err)
{
    e->text = s;
    PL_TRY(merger_reserve(&e->merger, len, err));
    for (size_t at = 0; at < len;) {
        int valid;
        size_t n = utf8_step(s + at, len - at, &valid);
        int32_t id = -1;

        if (valid)
            id = vocab_find_symbol(&e->t->vocab, s + at, n);
        merger_add(&e->merger, (uint32_t)at, (uint32_t)n, id);
        at += n;
    }
    return push_merged(e, pair, err);
}

/* Merges a text in which U+2581 stands for blanks. In most vocabularies no
 * token contains a blank after a letter (cuts_words). Then each word is merged
 * by itself, which has the same result, but the data stays in the L1 and L2
 * caches. */
static pl_status merge_chars(struct encoder *e, const char *s, size_t len,
                             merge_pair_fn *pair, pl_err *err)
{
    size_t from = 0;

    for (size_t at = 1; at < len && e->t->cuts_words; at++) {
        if (!vocab_blank_after_word(s, len, at))
            continue;
        PL_TRY(merge_word(e, s + from, at - from, pair, err));
        from = at;
    }
    return merge_word(e, s + from, len - from, pair, err);
}

/* A pretok_piece_fn for byte-level BPE: merges the bytes of one piece of text
 * and appends the resulting tokens. */
static pl_status bpe_piece(void *user, const char *s, size_t len, int by,
                           pl_err *err)
{
    struct encoder *e = user;
    const struct vocab *v = &e->t->vocab;

    (void)by;
    if (e->mapped && len <= v->max_len) {
        size_t n = 0;
        int32_t id;

        for (size_t i = 0; i < len; i++)
            n += (size_t)bpe_char_of_byte((unsigned char)s[i], e->mapped + n);
        id = vocab_find(v, e->mapped, n);
        if (id >= 0)
            return encoder_push(e, id, err);
    }
    e->text = s;
    PL_TRY(merger_reserve(&e->merger, len, err));
    for (size_t i = 0; i < len; i++)
        merger_add(&e->merger, (uint32_t)i, 1,
                   e->t->byte_id[(unsigned char)s[i]]);
    return push_merged(e, join_by_merge, err);
}

static pl_status encode_bpe(struct encoder *e, const char *s, size_t len,
                            pl_err *err)
{
    if (!e->mapped && pretok_takes_whole(e->t->pretok)) {
        e->mapped = malloc(2 * ((size_t)e->t->vocab.max_len + 1));
        if (!e->mapped)
            return err_no_memory(err, "a piece of text");
    }
    return pretok_split(e->t->pretok, s, len, bpe_piece, e, err);
}

/* Sets *out to a malloc'ed copy of `s` in which U+2581 stands for each blank.
 * If `blank`, the copy begins with one more U+2581. */
static pl_status escape_blanks(const char *s, size_t len, bool blank,
                               char **out, size_t *n_out, pl_err *err)
{
    size_t n = len + (blank ? sizeof low_line : 0);
    char *p;

    for (size_t i = 0; i < len; i++)
        n += s[i] == ' ' ? sizeof low_line - 1 : 0;
    *out = p = malloc(n ? n : 1);
    if (!p)
        return err_no_memory(err, "a copy of the text");
    if (blank) {
        memcpy(p, low_line, sizeof low_line);
        p += sizeof low_line;
    }
    for (size_t i = 0; i < len; i++) {
        if (s[i] == ' ') {
            memcpy(p, low_line, sizeof low_line);
            p += sizeof low_line;
        } else {
            *p++ = s[i];
        }
    }
    *n_out = n;
    return PL_OK;
}

static pl_status encode_spm(struct encoder *e, const char *s, size_t len,
                            pl_err *err)
{
    size_t n;
    char *text;
    pl_status status;

    PL_TRY(escape_blanks(s, len, e->t->adds_blank, &text, &n, err));
    status = merge_chars(e, text, n, join_by_text, err);
    free(text);
    return status;
}

/* Encodes a text for a KIND_GEMMA vocabulary. Sequences of newlines, and the
 * text between them, are merged separately. */
static pl_status encode_gemma(struct encoder *e, const char *s, size_t len,
                              pl_err *err)
{
    size_t n_text, n;
    char *text;
    pl_status status;

    PL_TRY(escape_blanks(s, len, e->t->adds_blank, &text, &n_text, err));
    status = PL_OK;
    for (size_t at = 0; at < n_text && status == PL_OK; at += n) {
        bool newline = text[at] == '\n';
        int32_t id;

        for (n = 1; at + n < n_text && (text[at + n] == '\n') == newline; n++)
            ;
        id = newline ? vocab_find(&e->t->vocab, text + at, n) : -1;
        if (id >= 0)
            status = encoder_push(e, id, err);
        else
            status = merge_chars(e, text + at, n, join_by_merge, err);
    }
    free(text);
    return status;
}

static pl_status encode_plain(struct encoder *e, const char *s, size_t len,
                              pl_err *err)
{
    if (len == 0)
        return PL_OK;
    switch (e->t->kind) {
    case KIND_SPM:
        return encode_spm(e, s, len, err);
    case KIND_BPE:
        return encode_bpe(e, s, len, err);
    case KIND_WORDPIECE:
        return wordpiece_encode(e, s, len, err);
    case KIND_UNIGRAM:
        return unigram_encode(e, s, len, err);
    case KIND_GEMMA:
        break;
    }
    return encode_gemma(e, s, len, err);
}

/* Marks for each byte of a text: outside special tokens, first byte of one, or
 * a later byte of one. */
enum { FREE, BEGIN, INSIDE };

/* Marks the bytes of special tokens in the text s[0 .. len). It searches for
 * the longest tokens first, from left to right, then for shorter ones in what
 * is left. A marked token is never shorter than the one that is searched for.
 * So it is enough to check that the first and the last byte are not marked. */
static void mark_specials(const struct tokenizer *t, const char *s, size_t len,
                          bool parse, unsigned char *mark)
{
    const struct special_set *set = parse ? &t->all : &t->user;

    for (uint32_t k = 0; k < set->n_len; k++) {
        size_t n = set->len[k];

        for (size_t at = 0; n <= len && at <= len - n; at++) {
            int32_t id;

            if (!set->first[(unsigned char)s[at]] ||
                !set->last[(unsigned char)s[at + n - 1]] || mark[at] != FREE ||
                mark[at + n - 1] != FREE)
                continue;
            id = vocab_find(&t->vocab, s + at, n);
            if (id < 0 || !token_is_special(&t->vocab.token[id], parse))
                continue;
            memset(mark + at, INSIDE, n);
            mark[at] = BEGIN;
            at += n - 1;
        }
    }
}

static bool eats_blank_after(const struct tokenizer *t, const char *s,
                             size_t len)
{
    static const char *const not [] = {"<unk>", "<s>", "<|endoftext|>"};

    for (size_t i = 0; i < sizeof not / sizeof not [0]; i++)
        if (strlen(not [i]) == len && memcmp(not [i], s, len) == 0)
            return false;
    return t->eats_blank;
}

/* Returns how many of the n bytes at `s`, text before a special token, are
 * encoded. If that token, at s + n, is t->eats_before, white space before it is
 * dropped. `more` is the number of bytes from s + n to the end of the text. */
static size_t kept_before(const struct tokenizer *t, const char *s, size_t n,
                          size_t more)
{
    const struct token *k;

    if (t->eats_before < 0)
        return n;
    k = &t->vocab.token[t->eats_before];
    if (more >= k->len && memcmp(s + n, k->s, k->len) == 0)
        while (n > 0 && ascii_is_blank(s[n - 1]))
            n--;
    return n;
}

static pl_status encode_marked(struct encoder *e, const char *s, size_t len,
                               bool parse, const unsigned char *mark,
                               pl_err *err)
{
    size_t n;

    for (size_t at = 0; at < len; at += n) {
        unsigned char more = mark[at] == BEGIN ? INSIDE : FREE;

        for (n = 1; at + n < len && mark[at + n] == more; n++)
            ;
        if (mark[at] == FREE) {
            PL_TRY(encode_plain(
                e, s + at, kept_before(e->t, s + at, n, len - at - n), err));
            continue;
        }
        PL_TRY(encoder_push(e, vocab_find(&e->t->vocab, s + at, n), err));
        if (parse && eats_blank_after(e->t, s + at, n))
            while (at + n < len && mark[at + n] == FREE &&
                   ascii_is_blank(s[at + n]))
                n++;
    }
    return PL_OK;
}

static pl_status encode_text(struct encoder *e, const char *s, size_t len,
                             bool parse, pl_err *err)
{
    const struct special_set *set = parse ? &e->t->all : &e->t->user;
    unsigned char *mark;
    pl_status status;

    if (set->n_len == 0)
        return encode_plain(e, s, len, err);
    mark = calloc(len ? len : 1, 1);
    if (!mark)
        return err_no_memory(err, "the special tokens of a text");
    mark_specials(e->t, s, len, parse, mark);
    status = encode_marked(e, s, len, parse, mark, err);
    free(mark);
    return status;
}

pl_status tokenizer_encode_pair(const struct tokenizer *t,
                                const char *const part[2], const size_t len[2],
                                struct token_list *out, pl_err *err)
{
    struct encoder e = {.t = t, .out = out};
    const int32_t eos = tokenizer_adds_eos(t) ? t->eos : -1;
    const int64_t before = out->n;
    pl_status s = encoder_push(&e, tokenizer_adds_bos(t) ? t->bos : -1, err);

    for (int i = 0; i < 2 && s == PL_OK; i++) {
        s = tokenizer_encode(t, part[i], len[i], 0, out, err);
        if (s == PL_OK)
            s = encoder_push(&e, eos, err);
        if (s == PL_OK && i == 0)
            s = encoder_push(&e, t->sep, err);
    }
    if (s != PL_OK)
        out->n = before;
    return s;
}

pl_status tokenizer_encode(const struct tokenizer *t, const char *text,
                           size_t len, unsigned flags, struct token_list *out,
                           pl_err *err)
{
    struct encoder e = {.t = t, .out = out};
    bool special = flags & TOKENIZER_ADD_SPECIAL;
    int64_t before = out->n;
    pl_status s = PL_OK;

    /* Replacing a blank by U+2581 triples its length, and 31 bits must hold the
     * number of symbols. */
    if (len > INT32_MAX / 4)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a text of %zu bytes; at most %d can be encoded at once",
                       len, INT32_MAX / 4);
    if (special && tokenizer_adds_bos(t))
        s = encoder_push(&e, t->bos, err);
    if (s == PL_OK)
        s = encode_text(&e, text, len, flags & TOKENIZER_PARSE_SPECIAL, err);
    if (s == PL_OK && special && tokenizer_adds_eos(t))
        s = encoder_push(&e, t->eos, err);
    if (s != PL_OK)
        out->n = before;
    merger_fini(&e.merger);
    text_buf_fini(&e.normal);
    free(e.mapped);
    return s;
}
