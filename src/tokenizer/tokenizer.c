/* Creating a tokenizer from a file's metadata, and questions about it.
 *
 * The defaults for absent keys are llama.cpp's, since files are written with
 * it in mind. Encoding is in encode_text.c, decoding in decode_text.c. */
#include "tokenizer/tokenizer.h"

#include "base/ascii.h"
#include "base/err.h"
#include "tokenizer/kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row a tokenizer.ggml.model: what holds if the file does not say. */
static const struct model_row {
    const char *name;
    enum tokenizer_kind kind;
    bool adds_bos, adds_blank;
    int32_t bos, eos, unknown;
} models[] = {
    {"llama", KIND_SPM, true, true, 1, 2, 0},
    {"gpt2", KIND_BPE, false, false, 11, 11, -1},
    {"gemma4", KIND_GEMMA, true, false, -1, -1, -1},
};

enum { N_MODEL = sizeof models / sizeof models[0] };

/* Tokens that end generation, whatever the file calls them. */
static const char *const eog_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_utterance>",
    /* U+FF5C, U+2581: fullwidth bars, low lines */
    ("<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
};

int bpe_char_of_byte(unsigned byte, char out[2])
{
    unsigned c = byte;

    /* 33-126, 161-172 and 174-255 print; the other 68 count up from 256 */
    if (byte < 33)
        c = 256 + byte;
    else if (byte >= 127 && byte < 161)
        c = 256 + 33 + byte - 127;
    else if (byte == 173)
        c = 256 + 67;
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    out[0] = (char)(0xc0 | c >> 6);
    out[1] = (char)(0x80 | (c & 0x3f));
    return 2;
}

int bpe_byte_of_char(const char *s, size_t n, unsigned char *byte)
{
    unsigned a = (unsigned char)s[0], c;

    if (a < 0x80) {
        *byte = (unsigned char)a;
        return a >= 33 && a <= 126;
    }
    if (n < 2 || a < 0xc2 || a > 0xc5 || ((unsigned char)s[1] & 0xc0) != 0x80)
        return 0;
    c = (a & 0x1f) << 6 | ((unsigned char)s[1] & 0x3f);
    if (c >= 256 && c < 256 + 33)
        c -= 256;
    else if (c >= 256 + 33 && c < 256 + 67)
        c = c - 256 - 33 + 127;
    else if (c == 256 + 67)
        c = 173;
    else if (c > 255 || c < 161 || c == 173)
        return 0;
    *byte = (unsigned char)c;
    return 2;
}

static pl_status find_model(const struct model_row **out, const struct gguf *g,
                            pl_err *err)
{
    struct gguf_str name;

    PL_TRY(gguf_get_str(g, "tokenizer.ggml.model", &name, err));
    if (!name.s || (name.len == 4 && memcmp(name.s, "none", 4) == 0))
        return err_set(err, PL_NOT_FOUND,
                       "%s: tokenizer.ggml.model is %s: this file has no "
                       "tokenizer, give token ids instead of text",
                       gguf_path(g), name.s ? "none" : "missing");
    for (int i = 0; i < N_MODEL; i++) {
        if (strlen(models[i].name) == name.len &&
            memcmp(models[i].name, name.s, name.len) == 0) {
            *out = &models[i];
            return PL_OK;
        }
    }
    return err_set(err, PL_UNSUPPORTED,
                   "%s: tokenizer.ggml.model '%.*s' is not supported; llama, "
                   "gpt2 and gemma4 are",
                   gguf_path(g), (int)(name.len < 64 ? name.len : 64), name.s);
}

/* An id of the file, or `def`; one that is no token (some files write -1 or
 * 4294967295 for "none") is -1. */
static int32_t read_id(const struct tokenizer *t, const struct gguf *g,
                       const char *key, int32_t def)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t id = def;

    if (kv && !gguf_as_i64(kv, 0, &id))
        id = -1;
    return id >= 0 && id < t->vocab.n_token ? (int32_t)id : -1;
}

static pl_status read_specials(struct tokenizer *t, const struct gguf *g,
                               const struct model_row *row, pl_err *err)
{
    bool adds_bos = row->adds_bos;
    int32_t bos = row->bos, id;

    if (t->pretok) {
        adds_bos = adds_bos || pretok_adds_bos(t->pretok);
        if (pretok_lacks_bos(t->pretok))
            bos = -1;
    }
    t->bos = read_id(t, g, "tokenizer.ggml.bos_token_id", bos);
    t->eos = read_id(t, g, "tokenizer.ggml.eos_token_id", row->eos);
    t->unknown = read_id(t, g, "tokenizer.ggml.unknown_token_id", row->unknown);
    PL_TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", adds_bos,
                         &t->adds_bos, err));
    PL_TRY(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", false, &t->adds_eos,
                         err));
    if (t->kind == KIND_GEMMA)
        t->adds_bos = true; /* early files of this kind say false, wrongly */
    t->adds_blank = false;
    if (row->adds_blank)
        PL_TRY(gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", true,
                             &t->adds_blank, err));

    for (size_t i = 0; i < sizeof eog_texts / sizeof eog_texts[0]; i++) {
        id = vocab_find(&t->vocab, eog_texts[i], strlen(eog_texts[i]));
        if (id >= 0) {
            t->vocab.token[id].eog = true;
            t->vocab.token[id].type = TOKEN_CONTROL;
        }
    }
    if (t->eos >= 0)
        t->vocab.token[t->eos].eog = true;
    id = read_id(t, g, "tokenizer.ggml.eot_token_id", -1);
    if (id >= 0)
        t->vocab.token[id].eog = true;
    id = read_id(t, g, "tokenizer.ggml.eom_token_id", -1);
    if (id >= 0)
        t->vocab.token[id].eog = true;
    return PL_OK;
}

static void read_bytes(struct tokenizer *t)
{
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        int n;

        if (t->kind == KIND_BPE) {
            n = bpe_char_of_byte(b, text);
            t->byte_id[b] = vocab_find_symbol(&t->vocab, text, (size_t)n);
            continue;
        }
        n = snprintf(text, sizeof text, "<0x%02X>", b);
        t->byte_id[b] = vocab_find(&t->vocab, text, (size_t)n);
        if (t->byte_id[b] < 0) {
            text[0] = (char)b;
            t->byte_id[b] = vocab_find(&t->vocab, text, 1);
        }
    }
}

static int longest_first(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x < y) - (x > y);
}

static pl_status read_set(struct special_set *set, const struct vocab *v,
                          bool parse, pl_err *err)
{
    uint32_t n = 0, n_len = 0;

    for (int32_t i = 0; i < v->n_token; i++)
        n += v->token[i].len > 0 && token_is_special(&v->token[i], parse);
    if (n == 0)
        return PL_OK;
    set->len = malloc(n * sizeof *set->len);
    if (!set->len)
        return err_no_memory(err, "the list of special tokens");
    n = 0;
    for (int32_t i = 0; i < v->n_token; i++) {
        const struct token *t = &v->token[i];

        if (t->len > 0 && token_is_special(t, parse)) {
            set->len[n++] = t->len;
            set->first[(unsigned char)t->s[0]] = true;
            set->last[(unsigned char)t->s[t->len - 1]] = true;
        }
    }
    qsort(set->len, n, sizeof *set->len, longest_first);
    for (uint32_t i = 0; i < n; i++)
        if (n_len == 0 || set->len[i] != set->len[n_len - 1])
            set->len[n_len++] = set->len[i];
    set->n_len = n_len;
    return PL_OK;
}

/* phi-3 drops white space after special tokens; nothing in the file but the
 * model's name says so. */
static pl_status read_name(struct tokenizer *t, const struct gguf *g,
                           pl_err *err)
{
    struct gguf_str name;

    if (t->kind != KIND_SPM)
        return PL_OK;
    PL_TRY(gguf_get_str(g, "general.name", &name, err));
    for (size_t i = 0; i + 4 <= name.len && !t->eats_blank; i++)
        t->eats_blank =
            ascii_same_start(name.s + i, "phi3", 4) ||
            (i + 5 <= name.len && ascii_same_start(name.s + i, "phi-3", 5));
    return PL_OK;
}

pl_status tokenizer_create(struct tokenizer **out, const struct gguf *g,
                           pl_err *err)
{
    const struct model_row *row = NULL;
    struct tokenizer *t;
    struct gguf_str pre = {NULL, 0};
    pl_status s;

    *out = NULL;
    PL_TRY(find_model(&row, g, err));
    if (row->kind == KIND_BPE)
        PL_TRY(gguf_get_str(g, "tokenizer.ggml.pre", &pre, err));
    t = calloc(1, sizeof *t);
    if (!t)
        return err_no_memory(err, "a tokenizer");
    t->kind = row->kind;
    if (t->kind == KIND_BPE) {
        s = pretok_create(&t->pretok, pre.s ? pre.s : "", pre.len, gguf_path(g),
                          err);
        if (s != PL_OK)
            goto done;
    }
    s = vocab_init(&t->vocab, g, err);
    if (s == PL_OK && t->kind != KIND_SPM)
        s = vocab_read_merges(&t->vocab, g, err);
    if (s == PL_OK)
        s = read_specials(t, g, row, err);
    if (s == PL_OK)
        s = read_name(t, g, err);
    if (s == PL_OK)
        s = read_set(&t->user, &t->vocab, false, err);
    if (s == PL_OK)
        s = read_set(&t->all, &t->vocab, true, err);
    if (s != PL_OK)
        goto done;
    read_bytes(t);
    *out = t;
    t = NULL;
done:
    tokenizer_free(t);
    return s;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    pretok_free(t->pretok);
    vocab_fini(&t->vocab);
    free(t->user.len);
    free(t->all.len);
    free(t);
}

static const struct token *token_at(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->vocab.n_token ? &t->vocab.token[id] : NULL;
}

int32_t tokenizer_n_vocab(const struct tokenizer *t)
{
    return t->vocab.n_token;
}

int32_t tokenizer_bos(const struct tokenizer *t)
{
    return t->bos;
}

int32_t tokenizer_eos(const struct tokenizer *t)
{
    return t->eos;
}

bool tokenizer_adds_bos(const struct tokenizer *t)
{
    return t->adds_bos && t->bos >= 0;
}

bool tokenizer_adds_eos(const struct tokenizer *t)
{
    return t->adds_eos && t->eos >= 0;
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id)
{
    const struct token *k = token_at(t, id);

    return k && k->eog;
}

bool tokenizer_is_control(const struct tokenizer *t, int32_t id)
{
    const struct token *k = token_at(t, id);

    return k && k->type == TOKEN_CONTROL;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *s, size_t len)
{
    return vocab_find(&t->vocab, s, len);
}
