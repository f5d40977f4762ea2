/* Unigram, "t5" in GGUF files: divides a text into the tokens with the greatest
 * sum of scores. Kudo, arXiv:1804.10959; details follow SentencePiece.
 *
 * First the text is normalised: a map of the file replaces characters, and
 * U+2581 is written for white space. Then Viterbi's algorithm runs over the
 * characters. A character that is not a token has a score that is 10 less than
 * that of the worst token. Its bytes become tokens; if a byte has no token, the
 * character and adjacent ones like it become one unknown token. */
#include "tokenizer/encoder.h"

#include "base/err.h"
#include "tokenizer/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A character that is not a token scores this much less than the worst
 * token. */
static const double unknown_penalty = 10;

static bool is_cut(const struct token *t)
{
    return t->type == TOKEN_NORMAL || t->type == TOKEN_USER ||
           t->type == TOKEN_UNUSED;
}

/* ---- the map of characters in a file ------------------------------------- */

/* The format of the map of characters in a file: the size in bytes of a trie (4
 * bytes), the trie, and the replacement texts, each NUL-terminated. The trie is
 * a double array (Aoe 1989, as packed by Yata's Darts-clone) of little-endian
 * units of 4 bytes. Bits 0-7 and 31 of a unit are its label, and bit 8 is set
 * if a key ends there. The bits from 10 on are the offset of its children, to
 * be multiplied by 256 if bit 9 is set. A unit that holds a value has bit 31
 * set; the other bits are the offset of the replacement text. */

static uint32_t read_u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

static pl_status read_map(struct tokenizer *t, const struct gguf *g,
                          pl_err *err)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const struct gguf_kv *kv = gguf_find(g, key);
    struct char_map *m = &t->map;
    uint64_t units;

    if (!kv || (kv->type == GGUF_ARRAY && kv->count == 0))
        return PL_OK;
    if (kv->type != GGUF_ARRAY || (kv->elem != GGUF_U8 && kv->elem != GGUF_I8))
        return err_set(err, PL_BAD_FILE, "%s: %s is not an array of bytes",
                       gguf_path(g), key);
    units = kv->count >= 4 ? read_u32(kv->data) : 0;
    if (units % 4 != 0 || units + 4 >= kv->count ||
        kv->data[kv->count - 1] != '\0')
        return err_set(
            err, PL_BAD_FILE,
            "%s: %s has %llu bytes, which are not a table followed by strings",
            gguf_path(g), key, (unsigned long long)kv->count);
    m->unit = arena_memdup(&t->vocab.memory, kv->data + 4, kv->count - 4, 1);
    if (!m->unit)
        return err_no_memory(err, "a map of characters");
    m->n_unit = units / 4;
    m->text = (const char *)m->unit + units;
    m->n_text = kv->count - 4 - units;
    return PL_OK;
}

static bool map_unit(const struct char_map *m, size_t i, uint32_t *unit)
{
    if (i >= m->n_unit)
        return false;
    *unit = read_u32(m->unit + 4 * i);
    return true;
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 0x200) >> 6);
}

/* Returns the length of the longest beginning of s[0 .. len) that the map of
 * characters replaces, or 0 if there is none. Sets *by to the replacement. */
static size_t map_start(const struct char_map *m, const char *s, size_t len,
                        const char **by)
{
    size_t found = 0, node;
    uint32_t unit;

    if (!map_unit(m, 0, &unit))
        return 0;
    node = offset_of(unit);
    for (size_t i = 0; i < len && s[i] != '\0'; i++) {
        unsigned char c = (unsigned char)s[i];
        uint32_t value;

        node ^= c;
        if (!map_unit(m, node, &unit) || (unit & 0x800000ff) != c)
            break;
        node ^= offset_of(unit);
        if ((unit & 0x100) && map_unit(m, node, &value) &&
            (value & 0x7fffffff) < m->n_text) {
            found = i + 1;
            *by = m->text + (value & 0x7fffffff);
        }
    }
    return found;
}

/* ---- normalising a text -------------------------------------------------- */

static pl_status put(struct encoder *e, const char *s, size_t len, pl_err *err)
{
    struct text_buf *b = &e->normal;

    if (len > INT32_MAX / 4 || b->n > INT32_MAX / 4)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the text has more than %d bytes after normalization; "
                       "encode it in parts",
                       INT32_MAX / 4);
    PL_TRY(text_buf_reserve(b, len, err));
    memcpy(b->s + b->n, s, len);
    b->n += len;
    return PL_OK;
}

/* State of put_blanks between two calls: whether the last character was part of
 * a word, and whether there was any character yet. */
struct blanks {
    bool in_word, begun;
};

static pl_status put_blanks(struct encoder *e, struct blanks *b, const char *s,
                            size_t len, pl_err *err)
{
    const struct tokenizer *t = e->t;
    size_t n;

    if (len > 0 && !b->begun) {
        if (t->adds_blank && !t->joins_blanks)
            PL_TRY(put(e, low_line, sizeof low_line, err));
        b->begun = true;
    }
    for (size_t at = 0; at < len; at += n) {
        for (n = 0; at + n < len && s[at + n] != ' '; n++)
            ;
        if (n > 0 && !b->in_word && t->joins_blanks)
            PL_TRY(put(e, low_line, sizeof low_line, err));
        b->in_word = b->in_word || n > 0;
        PL_TRY(put(e, s + at, n, err));
        if (at + n < len) {
            b->in_word = false;
            if (!t->joins_blanks)
                PL_TRY(put(e, low_line, sizeof low_line, err));
            n++;
        }
    }
    return PL_OK;
}

static pl_status normalise(struct encoder *e, const char *s, size_t len,
                           pl_err *err)
{
    struct blanks blanks = {false, false};
    size_t n;

    e->normal.n = 0;
    for (size_t at = 0; at < len; at += n) {
        const char *by = s + at;
        size_t n_by;
        int valid;

        n = map_start(&e->t->map, s + at, len - at, &by);
        if (n > 0) {
            n_by = strlen(by);
        } else {
            n = n_by = utf8_step(s + at, len - at, &valid);
            if (!valid) {
                by = "\xef\xbf\xbd";
                n_by = 3;
            }
        }
        PL_TRY(put_blanks(e, &blanks, by, n_by, err));
    }
    return PL_OK;
}

/* ---- finding the best division into tokens (Viterbi) --------------------- */

/* The best division of the text up to a position: its sum of scores, and its
 * last token with the position where that begins. */
struct unigram_step {
    double score;
    int32_t id;   /* last token; -1: a character without a token */
    int32_t from; /* where that begins; -1 if no division was found */
};

static void improve(struct unigram_step *s, double score, int32_t id,
                    size_t from)
{
    if (s->from < 0 || score > s->score)
        *s = (struct unigram_step){score, id, (int32_t)from};
}

static void find_best(const struct tokenizer *t, const char *s, size_t len,
                      struct unigram_step *step)
{
    size_t n;

    for (size_t i = 0; i <= len; i++)
        step[i].from = -1;
    step[0] = (struct unigram_step){0, -1, 0};
    for (size_t at = 0; at < len; at += n) {
        struct vocab_walk w;
        bool known = false;
        int valid;
        int32_t id;

        n = utf8_step(s + at, len - at, &valid);
        vocab_walk_init(&t->vocab, &w, s + at, len - at);
        while ((id = vocab_walk_next(&t->vocab, &w)) >= 0) {
            const struct token *k = &t->vocab.token[id];
            double score = k->type == TOKEN_USER ? 0 : (double)k->score;

            if (!is_cut(k) || !isfinite(score))
                continue;
            known = known || w.len == n;
            improve(&step[at + w.len], step[at].score + score, id, at);
        }
        if (!known)
            improve(&step[at + n], step[at].score + t->unknown_score, -1, at);
    }
}

/* Returns true if each byte of s[0 .. len) has a token. */
static bool have_bytes(const struct tokenizer *t, const char *s, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (t->byte_id[(unsigned char)s[i]] < 0)
            return false;
    return true;
}

/* Appends the tokens of the best division of the whole text. step[] leads from
 * the end of the text to its beginning, so the appended tokens are reversed at
 * the end. */
static pl_status push_best(struct encoder *e, const char *s, size_t len,
                           const struct unigram_step *step, pl_err *err)
{
    const struct tokenizer *t = e->t;
    int64_t first = e->out->n;
    /* True if the character after the present token became an unknown token.
     * Adjacent ones share that token. */
    bool unknown = false;

    for (size_t at = len; at > 0; at = (size_t)step[at].from) {
        size_t from = (size_t)step[at].from;
        bool bytes = step[at].id < 0 && have_bytes(t, s + from, at - from);

        for (size_t i = at; bytes && i > from; i--)
            PL_TRY(encoder_push(e, t->byte_id[(unsigned char)s[i - 1]], err));
        if (step[at].id >= 0)
            PL_TRY(encoder_push(e, step[at].id, err));
        else if (!bytes && !unknown)
            PL_TRY(encoder_push(e, t->unknown, err));
        unknown = step[at].id < 0 && !bytes;
    }
    for (int64_t a = first, b = e->out->n - 1; a < b; a++, b--) {
        int32_t id = e->out->id[a];

        e->out->id[a] = e->out->id[b];
        e->out->id[b] = id;
    }
    return PL_OK;
}

pl_status unigram_create(struct tokenizer *t, const struct gguf *g, pl_err *err)
{
    double lowest = INFINITY;

    for (int32_t i = 0; i < t->vocab.n_token; i++) {
        const struct token *k = &t->vocab.token[i];

        if (k->type == TOKEN_NORMAL && isfinite(k->score))
            lowest = fmin(lowest, (double)k->score);
    }
    t->unknown_score = (isfinite(lowest) ? lowest : 0) - unknown_penalty;
    PL_TRY(gguf_get_bool(g, "tokenizer.ggml.remove_extra_whitespaces", false,
                         &t->joins_blanks, err));
    return read_map(t, g, err);
}

pl_status unigram_encode(struct encoder *e, const char *s, size_t len,
                         pl_err *err)
{
    struct unigram_step *step;
    pl_status status;

    PL_TRY(normalise(e, s, len, err));
    step = malloc((e->normal.n + 1) * sizeof *step);
    if (!step)
        return err_no_memory(err, "the segmentation of a text");
    find_best(e->t, e->normal.s, e->normal.n, step);
    status = push_best(e, e->normal.s, e->normal.n, step, err);
    free(step);
    return status;
}
