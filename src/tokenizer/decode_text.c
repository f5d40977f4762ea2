/* Converts tokens to text: the bytes of one token, and a stream of valid
 * UTF-8. */
#include "tokenizer/encoder.h"

#include "base/err.h"
#include "tokenizer/utf8.h"

#include <stdlib.h>
#include <string.h>

/* The buffer to which the text of a token is written. Bytes beyond its size,
 * `cap`, are counted in n but not written. */
struct sink {
    char *s;
    size_t n, cap;
};

static void put(struct sink *k, char c)
{
    if (k->n < k->cap)
        k->s[k->n] = c;
    k->n++;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Returns the byte XX for which a token "<0xXX>" stands, or -1 if the token's
 * text has another form. */
static int byte_value(const struct token *k)
{
    if (k->len != 6 || memcmp(k->s, "<0x", 3) != 0 || k->s[5] != '>' ||
        hex(k->s[3]) < 0 || hex(k->s[4]) < 0)
        return -1;
    return hex(k->s[3]) * 16 + hex(k->s[4]);
}

/* Writes the text of a normal token. In KIND_BPE vocabularies each character of
 * the token represents a byte; in all others U+2581 represents a blank. */
static void put_normal(const struct tokenizer *t, const struct token *k,
                       struct sink *out)
{
    for (uint32_t i = 0; i < k->len;) {
        unsigned char byte = ' ';
        int n;

        if (t->kind == KIND_BPE)
            n = bpe_byte_of_char(k->s + i, k->len - i, &byte);
        else
            n = k->len - i >= 3 && memcmp(k->s + i, "\xe2\x96\x81", 3) == 0 ? 3
                                                                            : 0;
        put(out, n > 0 ? (char)byte : k->s[i]);
        i += n > 0 ? (uint32_t)n : 1;
    }
}

size_t tokenizer_piece(const struct tokenizer *t, int32_t id, unsigned flags,
                       char *buf, size_t cap)
{
    struct sink out = {buf, 0, cap};
    const struct token *k;
    bool shown;

    if (id < 0 || id >= t->vocab.n_token)
        return 0;
    k = &t->vocab.token[id];
    shown = k->type == TOKEN_USER ||
            ((k->type == TOKEN_CONTROL || k->type == TOKEN_UNKNOWN) &&
             (flags & TOKENIZER_SHOW_SPECIAL));
    if (k->type == TOKEN_BYTE && byte_value(k) >= 0) {
        put(&out, (char)byte_value(k));
    } else if (k->type == TOKEN_NORMAL || k->type == TOKEN_BYTE) {
        put_normal(t, k, &out);
    } else if (shown) {
        for (uint32_t i = 0; i < k->len; i++)
            put(&out, k->s[i]);
    }
    return out.n;
}

void text_buf_fini(struct text_buf *b)
{
    free(b->s);
    memset(b, 0, sizeof *b);
}

pl_status text_buf_reserve(struct text_buf *b, size_t n, pl_err *err)
{
    size_t want = b->n + n + 1, cap = b->cap < 64 ? 64 : b->cap;
    char *s;

    if (want <= b->cap)
        return PL_OK;
    while (cap < want)
        cap *= 2;
    s = realloc(b->s, cap);
    if (!s)
        return err_no_memory(err, "a text");
    b->s = s;
    b->cap = cap;
    return PL_OK;
}

void tokenizer_stream_init(struct tokenizer_stream *d,
                           const struct tokenizer *t, unsigned flags)
{
    *d = (struct tokenizer_stream){.t = t, .flags = flags};
}

static void put_replacement(struct text_buf *out)
{
    memcpy(out->s + out->n, "\xef\xbf\xbd", 3);
    out->n += 3;
}

pl_status tokenizer_stream_put(struct tokenizer_stream *d, int32_t id,
                               struct text_buf *out, pl_err *err)
{
    size_t held = (size_t)d->n_held, at = 0, n, len;
    const char *raw;
    char *p;

    n = held + tokenizer_piece(d->t, id, d->flags, NULL, 0);
    if (n > SIZE_MAX / 8)
        return err_no_memory(err, "a text");
    /* The token's bytes are written to the end of the space reserved in `out`,
     * and converted from there to its beginning. A byte becomes at most three
     * bytes of text (U+FFFD), so the text never overwrites bytes that were not
     * read yet. */
    PL_TRY(text_buf_reserve(out, 3 * n, err));
    p = out->s + out->n + 2 * n;
    memcpy(p, d->held, held);
    tokenizer_piece(d->t, id, d->flags, p + held, n - held);
    raw = p;
    /* At the first token that has a text, drops the blank that encoding put
     * before it. */
    if ((d->flags & TOKENIZER_WHOLE) && n > 0) {
        if (d->t->drops_blank && d->t->vocab.token[id].type == TOKEN_NORMAL &&
            raw[0] == ' ')
            at = 1;
        d->flags &= ~(unsigned)TOKENIZER_WHOLE;
    }

    d->n_held = 0;
    for (; at < n; at += len) {
        int c = utf8_scan(raw + at, n - at);

        if (c == 0) {
            d->n_held = (int)(n - at);
            memcpy(d->held, raw + at, n - at);
            break;
        }
        len = (size_t)(c > 0 ? c : -c);
        if (c > 0) {
            memmove(out->s + out->n, raw + at, len);
            out->n += len;
        } else {
            put_replacement(out);
        }
    }
    out->s[out->n] = '\0';
    return PL_OK;
}

pl_status tokenizer_stream_end(struct tokenizer_stream *d, struct text_buf *out,
                               pl_err *err)
{
    if (d->n_held == 0)
        return PL_OK;
    PL_TRY(text_buf_reserve(out, 3, err));
    put_replacement(out);
    out->s[out->n] = '\0';
    d->n_held = 0;
    return PL_OK;
}

pl_status tokenizer_decode(const struct tokenizer *t, const int32_t *id,
                           int64_t n, unsigned flags, struct text_buf *out,
                           pl_err *err)
{
    struct tokenizer_stream d;
    size_t before = out->n;
    pl_status s = PL_OK;

    tokenizer_stream_init(&d, t, flags);
    for (int64_t i = 0; i < n && s == PL_OK; i++)
        s = tokenizer_stream_put(&d, id[i], out, err);
    if (s == PL_OK)
        s = tokenizer_stream_end(&d, out, err);
    if (s != PL_OK) {
        out->n = before;
        if (out->s)
            out->s[before] = '\0';
    }
    return s;
}
