/* Fuzzes tokenizers: the bytes are a text, after a first byte that chooses the
 * kind of vocabulary and the flags. If the kind loses nothing, the tokens'
 * bytes joined must equal the text. A detokenizer must give the same text token
 * by token as decoding all tokens at once. */
#include "tokenizer/tokenizer.h"

#include <string.h>

int fuzz_encode(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

/* ---- a vocabulary a kind, written as GGUF into memory ------------------ */

struct bytes {
    unsigned char s[24 * 1024];
    size_t n;
};

static void put(struct bytes *b, const void *p, size_t n)
{
    require(n <= sizeof b->s - b->n);
    memcpy(b->s + b->n, p, n);
    b->n += n;
}

/* Appends the integer v as n bytes, little endian. */
static void put_int(struct bytes *b, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(b, &(unsigned char){(unsigned char)(v >> 8 * i)}, 1);
}

static void put_text(struct bytes *b, const char *s, size_t len)
{
    put_int(b, len, 8);
    put(b, s, len);
}

static void put_key(struct bytes *b, const char *key, uint32_t type)
{
    put_text(b, key, strlen(key));
    put_int(b, type, 4);
}

enum { FILE_I32 = 5, FILE_STRING = 8, FILE_ARRAY = 9 };

static void put_array(struct bytes *b, const char *key, uint32_t elem,
                      uint64_t n)
{
    put_key(b, key, FILE_ARRAY);
    put_int(b, elem, 4);
    put_int(b, n, 8);
}

/* the character that stands for a blank in a vocabulary's tokens */
#define LOW "\xe2\x96\x81"
/* the character that stands for a blank in gpt2's tokens */
#define G "\xc4\xa0"

struct kind {
    const char *model;
    /* tokens after those for the 256 bytes; the last two are special tokens */
    const char *words[10];
    const char *merges[8];
    /* true if encoding loses the case of letters, blanks, or bytes that are not
     * UTF-8 */
    bool loses;
};

static const struct kind kinds[] = {
    {"llama",
     {LOW, "a", "b", "ab", LOW "a", LOW LOW, "\xc3\xa9", "aba", "<|x|>", "<u>"},
     {NULL},
     false},
    {"gpt2",
     {"ab", "aba", G G, G "a", "aa", "bb", "\xc4\x8a\xc4\x8a", "aab", "<|x|>",
      "<u>"},
     {"a b", G " " G, G " a", "ab a", "a a", "b b", "aa b",
      "\xc4\x8a \xc4\x8a"},
     false},
    {"gemma4",
     {LOW, "a", "b", "ab", LOW "a", LOW LOW, "\n\n", "\xc3\xa9", "<|x|>",
      "<u>"},
     {"a b", LOW " a", LOW " " LOW, "\n \n", "b a", "ba b", "\xc3\xa9 a",
      "a ab"},
     false},
    {"bert",
     {LOW, "a", "b", LOW "ab", "bb", "aba", LOW "!", "e", "<|x|>", "<u>"},
     {NULL},
     true},
    {"t5",
     {LOW, "a", "b", "ab", LOW "a", "aba", "\xc3\xa9", LOW LOW, "<|x|>", "<u>"},
     {NULL},
     true},
};

enum { N_KIND = sizeof kinds / sizeof kinds[0], N_WORD = 10, N_MERGE = 8 };

/* Writes the text of the token for a byte: "<0xXX>", or in gpt2's vocabulary a
 * character. Returns the length. *extra counts the characters from U+0100 on
 * that stand for unprintable bytes. */
static size_t byte_text(const struct kind *k, unsigned byte, unsigned *extra,
                        char out[8])
{
    static const char hex[] = "0123456789ABCDEF";
    unsigned c = byte;

    if (k->merges[0] == NULL || strcmp(k->model, "gpt2") != 0) {
        memcpy(out, "<0x..>", 6);
        out[3] = hex[byte >> 4];
        out[4] = hex[byte & 15];
        return 6;
    }
    if (byte < 33 || (byte > 126 && byte < 161) || byte == 173)
        c = (*extra)++;
    out[0] = (char)c;
    if (c < 128)
        return 1;
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 63));
    return 2;
}

static struct tokenizer *make(const struct kind *k)
{
    static struct bytes b;
    bool merges = k->merges[0] != NULL;
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    unsigned extra = 256;
    char text[8];

    b.n = 0;
    put(&b, "GGUF", 4);
    put_int(&b, 3, 4);
    put_int(&b, 0, 8);
    put_int(&b, merges ? 5 : 4, 8);
    put_key(&b, "tokenizer.ggml.model", FILE_STRING);
    put_text(&b, k->model, strlen(k->model));
    put_key(&b, "tokenizer.ggml.pre", FILE_STRING);
    put_text(&b, "llama-bpe", 9);
    put_array(&b, "tokenizer.ggml.tokens", FILE_STRING, 256 + N_WORD);
    for (unsigned i = 0; i < 256; i++)
        put_text(&b, text, byte_text(k, i, &extra, text));
    for (int i = 0; i < N_WORD; i++)
        put_text(&b, k->words[i], strlen(k->words[i]));
    put_array(&b, "tokenizer.ggml.token_type", FILE_I32, 256 + N_WORD);
    for (int i = 0; i < 256 + N_WORD; i++)
        put_int(&b,
                i >= 256 + N_WORD - 1     ? 4 /* user-defined */
                : i >= 256 + N_WORD - 2   ? 3 /* control */
                : i < 256 && extra == 256 ? 6 /* byte */
                                          : 1,
                4);
    if (merges) {
        put_array(&b, "tokenizer.ggml.merges", FILE_STRING, N_MERGE);
        for (int i = 0; i < N_MERGE; i++)
            put_text(&b, k->merges[i], strlen(k->merges[i]));
    }
    require(gguf_open_memory(&g, b.s, b.n, "tiny", NULL) == PL_OK);
    require(tokenizer_create(&t, g, NULL) == PL_OK);
    gguf_close(g);
    return t;
}

/* ---- the checks ---------------------------------------------------------- */

/* Checks that the tokens' bytes joined are the text. Blanks that the tokenizer
 * adds do not count, and U+2581 counts as a blank, because the vocabulary
 * cannot tell them apart. */
static void check_bytes(const struct tokenizer *t, const struct token_list *ids,
                        const char *text, size_t n)
{
    size_t at = 0;

    for (int64_t i = 0; i < ids->n; i++) {
        char piece[16];
        size_t len = tokenizer_piece(t, ids->id[i], TOKENIZER_SHOW_SPECIAL,
                                     piece, sizeof piece);

        require(len > 0 && len <= sizeof piece);
        for (size_t k = 0; k < len; k++) {
            if (at < n && piece[k] == text[at])
                at++;
            else if (piece[k] == ' ' && n - at >= 3 &&
                     memcmp(text + at, LOW, 3) == 0)
                at += 3;
            else
                require(piece[k] == ' ');
        }
    }
    require(at == n);
}

static void check_stream(const struct tokenizer *t,
                         const struct token_list *ids, unsigned flags)
{
    struct text_buf once = {0}, parts = {0};
    struct tokenizer_stream d;
    bool ok;

    ok = tokenizer_decode(t, ids->id, ids->n, flags, &once, NULL) == PL_OK;
    tokenizer_stream_init(&d, t, flags);
    for (int64_t i = 0; ok && i < ids->n; i++)
        ok = tokenizer_stream_put(&d, ids->id[i], &parts, NULL) == PL_OK;
    ok = ok && tokenizer_stream_end(&d, &parts, NULL) == PL_OK;
    if (ok) {
        require(once.n == parts.n);
        require(once.n == 0 || memcmp(once.s, parts.s, once.n) == 0);
        require(d.n_held == 0);
    }
    text_buf_fini(&once);
    text_buf_fini(&parts);
}

int fuzz_encode(const uint8_t *data, size_t n)
{
    /* tokenizers, made by the first input of their kind and kept for later
     * ones */
    static struct tokenizer *t[N_KIND];
    struct token_list ids = {0};
    const char *text = (const char *)data + 1;
    unsigned which, flags;

    if (n == 0)
        return 0;
    n--;
    which = data[0] % N_KIND;
    flags = data[0] / N_KIND % 2 ? TOKENIZER_PARSE_SPECIAL : 0;
    if (!t[which])
        t[which] = make(&kinds[which]);
    if (tokenizer_encode(t[which], text, n, flags, &ids, NULL) == PL_OK) {
        if (!kinds[which].loses)
            check_bytes(t[which], &ids, text, n);
        check_stream(t[which], &ids, TOKENIZER_WHOLE);
        check_stream(t[which], &ids, TOKENIZER_SHOW_SPECIAL);
    }
    token_list_fini(&ids);
    return 0;
}
