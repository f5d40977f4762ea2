/* WordPiece, "bert" in GGUF files: splits a text into words, and divides each
 * word into tokens from left to right, always taking the longest token that
 * fits. The algorithm is that of Devlin et al., arXiv:1810.04805.
 *
 * First the text is cleaned: control characters, and marks of letters where the
 * model wants it, are dropped. Then it is split at white space, punctuation and
 * Chinese characters. A word that cannot be divided completely into tokens
 * becomes the unknown token. Vocabularies in GGUF files write U+2581 before the
 * first token of a word, where BERT's own files write "##" before all
 * others. */
#include "tokenizer/encoder.h"

#include "base/err.h"
#include "tokenizer/letters.h"
#include "tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { CLEAN_SPACE, CLEAN_DROPPED, N_CLEAN };

/* Characters that are dropped from a text: control, format, private and
 * unassigned characters, and U+FFFD. The expressions in clean_marks drop
 * nonspacing marks, too. */
#define DROPPED "\\p{C}\\x{fffd}"

static const char *const clean[N_CLEAN] = {"[" PRETOK_SPACE "]+",
                                           "[" DROPPED "]+"};
static const char *const clean_marks[N_CLEAN] = {"[" PRETOK_SPACE "]+",
                                                 "[" DROPPED "\\p{Mn}]+"};

enum { WORD_BLANK, WORD_ALONE, N_WORD };

/* The expressions that split a cleaned text into words. Blanks separate words.
 * A punctuation character or symbol, or a Chinese character, is a word of its
 * own. One range begins at U+2B920 instead of U+2B820, as in Hugging Face's
 * tokenizers. */
static const char *const words[N_WORD] = {
    " +",
    "[\\p{P}$+<=>^`|~\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}"
    "\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b73f}\\x{2b740}-\\x{2b81f}"
    "\\x{2b920}-\\x{2ceaf}\\x{f900}-\\x{faff}\\x{2f800}-\\x{2fa1f}]",
};

pl_status wordpiece_create(struct tokenizer *t, const struct gguf *g,
                           pl_err *err)
{
    PL_TRY(gguf_get_bool(g, "tokenizer.ggml.normalizer.lowercase", true,
                         &t->lowers, err));
    PL_TRY(gguf_get_bool(g, "tokenizer.ggml.normalizer.strip_accents",
                         t->lowers, &t->strips_marks, err));
    PL_TRY(pretok_create_own(&t->clean, t->strips_marks ? clean_marks : clean,
                             N_CLEAN, err));
    return pretok_create_own(&t->pretok, words, N_WORD, err);
}

/* A pretok_piece_fn: appends one piece of the text to e->normal, cleaned. The
 * result has at most three times as many bytes as the piece. */
static pl_status clean_piece(void *user, const char *s, size_t len, int by,
                             pl_err *err)
{
    struct encoder *e = user;
    struct text_buf *out = &e->normal;
    size_t n;

    PL_TRY(text_buf_reserve(out, 3 * len, err));
    if (by == CLEAN_SPACE)
        out->s[out->n++] = ' ';
    if (by >= 0)
        return PL_OK;
    for (size_t at = 0; at < len; at += n) {
        uint32_t base[LETTER_MAX_BASE];
        int valid, n_base = 1;

        n = utf8_step(s + at, len - at, &valid);
        if (!valid)
            continue;
        base[0] = letter_read(s + at);
        if (e->t->strips_marks)
            n_base = letter_base(base[0], base);
        for (int i = 0; i < n_base; i++) {
            uint32_t c = e->t->lowers ? letter_lower(base[i]) : base[i];

            out->n += letter_write(c, out->s + out->n);
        }
    }
    return PL_OK;
}

static pl_status word_piece(void *user, const char *s, size_t len, int by,
                            pl_err *err)
{
    struct encoder *e = user;
    const struct vocab *v = &e->t->vocab;
    int64_t before = e->out->n;
    size_t n;

    if (by == WORD_BLANK)
        return PL_OK;
    memcpy(e->mapped, low_line, sizeof low_line);
    memcpy(e->mapped + sizeof low_line, s, len);
    len += sizeof low_line;
    for (size_t at = 0; at < len; at += n) {
        struct vocab_walk w;
        int32_t id = -1, longer;

        vocab_walk_init(v, &w, e->mapped + at, len - at);
        for (n = 0; (longer = vocab_walk_next(v, &w)) >= 0; n = w.len)
            id = longer;
        if (id < 0) {
            e->out->n = before;
            return encoder_push(e, e->t->unknown, err);
        }
        PL_TRY(encoder_push(e, id, err));
    }
    return PL_OK;
}

pl_status wordpiece_encode(struct encoder *e, const char *s, size_t len,
                           pl_err *err)
{
    pl_status status;

    e->normal.n = 0;
    PL_TRY(pretok_split(e->t->clean, s, len, clean_piece, e, err));
    if (e->normal.n == 0)
        return PL_OK;
    e->mapped = malloc(e->normal.n + sizeof low_line);
    if (!e->mapped)
        return err_no_memory(err, "a copy of the text");
    status = pretok_split(e->t->pretok, e->normal.s, e->normal.n, word_piece, e,
                          err);
    free(e->mapped);
    e->mapped = NULL;
    return status;
}
