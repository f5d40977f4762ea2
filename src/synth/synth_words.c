/* A byte-pair (BPE) vocabulary, so that a server can process text. It contains
 * 256 tokens of one byte each; then the words a, b, ... z, aa, ab, ..., each
 * after a blank; and last the token that ends a text. Each word without its
 * last letter is also a word, so that the merges can build every word. A text
 * of such words, with blanks between them, has as many tokens as words. */
#include "synth/synth.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 256, WORD = 16, MERGE = 2 * WORD };

/* Writes the character that stands for a byte in GPT-2's vocabulary, in UTF-8.
 * It is the character of the same number if that is printable, else the next
 * unused one from U+0100. Returns its length in bytes. */
static size_t byte_name(int byte, char out[3])
{
    int code = byte, odd = 0;

    for (int b = 0; b <= byte; b++) {
        bool prints =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD);

        if (!prints && b == byte)
            code = 0x100 + odd;
        odd += !prints;
    }
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xC0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3F));
    return 2;
}

/* Writes word k, counted from 0, with a leading blank. Returns its length in
 * bytes. */
static size_t word(int64_t k, char out[WORD])
{
    char letter[WORD];
    size_t n = 0, len = byte_name(' ', out);

    for (k++; k > 0; k = (k - 1) / 26)
        letter[n++] = (char)('a' + (k - 1) % 26);
    while (n > 0)
        out[len++] = letter[--n];
    return len;
}

struct words {
    char *text; /* [n_vocab][WORD] the texts of tokens, then [n_merge][MERGE]
                   those of merges */
    struct gguf_str *str;
    int32_t *type; /* [n_vocab] type of each token in GGUF files */
};

static void name_tokens(const struct words *w, int64_t n)
{
    enum { NORMAL = 1, CONTROL = 3 };

    for (int64_t i = 0; i < n; i++) {
        char *at = w->text + i * WORD;
        size_t len;

        w->type[i] = i == n - 1 ? CONTROL : NORMAL;
        if (i == n - 1)
            len = strlen(strcpy(at, "<|end|>"));
        else
            len = i < BYTES ? byte_name((int)i, at) : word(i - BYTES, at);
        w->str[i] = (struct gguf_str){at, len};
    }
}

/* Writes the text of the merge that builds each word: the word without its last
 * letter, a blank, and that letter. */
static void name_merges(const struct words *w, int64_t n_merge, char *text)
{
    for (int64_t i = 0; i < n_merge; i++) {
        char *at = text + i * MERGE;
        size_t len = word(i, at);

        at[len] = at[len - 1];
        at[len - 1] = ' ';
        w->str[i] = (struct gguf_str){at, len + 1};
    }
}

pl_status synth_words(struct gguf_writer *out, int64_t n_vocab, pl_err *err)
{
    int64_t n_merge = n_vocab - BYTES - 1;
    size_t n = (size_t)n_vocab;
    struct words w = {.text = calloc(n, WORD + MERGE),
                      .str = calloc(n, sizeof *w.str),
                      .type = calloc(n, sizeof *w.type)};
    pl_status s = PL_OK;

    if (w.text && w.str && w.type) {
        gguf_put_str(out, "tokenizer.ggml.model", "gpt2");
        gguf_put_str(out, "tokenizer.ggml.pre", "qwen2");
        name_tokens(&w, n_vocab);
        gguf_put_strs(out, "tokenizer.ggml.tokens", w.str, n);
        gguf_put_array(out, "tokenizer.ggml.token_type", GGUF_I32, w.type, n);
        name_merges(&w, n_merge, w.text + n * WORD);
        gguf_put_strs(out, "tokenizer.ggml.merges", w.str, (uint64_t)n_merge);
        gguf_put_u32(out, "tokenizer.ggml.eos_token_id",
                     (uint32_t)(n_vocab - 1));
        gguf_put_bool(out, "tokenizer.ggml.add_bos_token", false);
    } else {
        s = err_no_memory(err, "the vocabulary of a synthetic model");
    }
    free(w.text);
    free(w.str);
    free(w.type);
    return s;
}
