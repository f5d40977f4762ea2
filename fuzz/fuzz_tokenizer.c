/* Fuzzes the reader of vocabularies: the bytes are a GGUF file. It is rejected,
 * or its tokenizer encodes any text into ids that exist and decodes them to
 * valid UTF-8. */
#include "tokenizer/tokenizer.h"

#include <stdint.h>
#include <string.h>

int fuzz_tokenizer(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

/* Returns the length in bytes of the UTF-8 character at s[n]; 0 if none begins
 * there. By Unicode 15, table 3-7: neither overlong nor a surrogate, at most
 * U+10FFFF. */
static size_t character(const unsigned char *s, size_t n)
{
    unsigned lo = 0x80, hi = 0xbf;
    size_t len;

    if (n == 0 || s[0] < 0x80)
        return n > 0;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] == 0xe0)
        lo = 0xa0;
    if (s[0] == 0xed)
        hi = 0x9f;
    if (s[0] == 0xf0)
        lo = 0x90;
    if (s[0] == 0xf4)
        hi = 0x8f;
    if (len > n || s[1] < lo || s[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++) {
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    }
    return len;
}

static void there_and_back(const struct tokenizer *t, const char *text,
                           size_t n, unsigned flags)
{
    struct token_list ids = {0};
    struct text_buf out = {0};
    size_t len;

    if (tokenizer_encode(t, text, n, flags, &ids, NULL) == PL_OK) {
        for (int64_t i = 0; i < ids.n; i++)
            require(ids.id[i] >= 0 && ids.id[i] < tokenizer_n_vocab(t));
        if (tokenizer_decode(t, ids.id, ids.n, flags, &out, NULL) == PL_OK) {
            for (size_t at = 0; at < out.n; at += len) {
                len = character((unsigned char *)out.s + at, out.n - at);
                require(len > 0);
            }
        }
    }
    token_list_fini(&ids);
    text_buf_fini(&out);
}

int fuzz_tokenizer(const uint8_t *data, size_t n)
{
    static const char text[] = "A fox, 12 hens \xc3\xa4 \xe4\xb8\x80\n\n<s> "
                               "it's  \xff\xf0\x9f\xa6\x8a \xe2\x96\x81x\t";
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    size_t tail = n < 256 ? n : 256;
    pl_err err = {0};

    if (gguf_open_memory(&g, data, n, "fuzz", NULL) != PL_OK)
        return 0;
    if (tokenizer_create(&t, g, &err) == PL_OK) {
        /* the file is closed, because the tokenizer must not depend on it */
        gguf_close(g);
        g = NULL;
        there_and_back(t, text, sizeof(text) - 1, 0);
        there_and_back(t, text, sizeof(text) - 1,
                       TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL |
                           TOKENIZER_SHOW_SPECIAL | TOKENIZER_WHOLE);
        there_and_back(t, (const char *)data + n - tail, tail, 0);
        tokenizer_free(t);
    } else {
        require(t == NULL && err.message[0] != '\0');
    }
    gguf_close(g);
    return 0;
}
