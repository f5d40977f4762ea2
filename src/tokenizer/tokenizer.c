/* Creates a tokenizer from a file's metadata, and returns its special tokens
 * and properties.
 *
 * Defaults for keys that a file lacks are those of llama.cpp, because files are
 * written for it. Text is encoded in encode_text.c, wordpiece.c and unigram.c,
 * and decoded in decode_text.c. */
#include "tokenizer/tokenizer.h"

#include "base/ascii.h"
#include "base/err.h"
#include "tokenizer/encoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The supported values of tokenizer.ggml.model, one row each. A row has the
 * defaults for the special tokens and the blank around a text, and the names of
 * the keys for BOS and EOS. */
static const struct model_row {
    const char *name;
    enum tokenizer_kind kind;
    bool adds_bos, adds_eos, adds_blank;
    int32_t bos, eos, unknown;
    const char *bos_key, *eos_key; /* the part KEY of the keys
                                      tokenizer.ggml.KEY_token_id */
} models[] = {
    {"llama", KIND_SPM, true, false, true, 1, 2, 0, "bos", "eos"},
    {"gpt2", KIND_BPE, false, false, false, 11, 11, -1, "bos", "eos"},
    {"gemma4", KIND_GEMMA, true, false, false, -1, -1, -1, "bos", "eos"},
    {"bert", KIND_WORDPIECE, true, true, false, 101, 102, 100, "cls",
     /* The key is misspelt in GGUF files, too. */
     "seperator"},
    {"t5", KIND_UNIGRAM, false, true, false, -1, 1, 2, "bos", "eos"},
};

enum { N_MODEL = sizeof models / sizeof models[0] };

/* Files whose model is "gpt2" but whose tokens are those of gemma4, by the name
 * of their pre-tokenizer. They state whether a text begins with BOS. */
static const char *const gemma_pres[] = {"sarvam-moe",
                                         "granite-embed-multi-311m"};
static const struct model_row gemma_row = {
    "gpt2", KIND_GEMMA, false, false, false, 11, 11, -1, "bos", "eos"};

/* Texts of tokens that end the generation, whatever type the file gives these
 * tokens. */
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
    "[e~[",
    /* in the next text bars are U+FF5C and blanks U+2581 */
    ("<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
};

/* Texts of tokens that are control tokens, whatever type the file gives them.
 * Code models have them. */
static const char *const control_texts[] = {
    "<|fim_prefix|>",  "<|fim_suffix|>",  "<|fim_middle|>",  "<|fim_pad|>",
    "<fim_prefix>",    "<fim_suffix>",    "<fim_middle>",    "<fim_pad>",
    "<fim-prefix>",    "<fim-suffix>",    "<fim-middle>",    "<fim-pad>",
    "<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", "<|repo_name|>",
    "<|fim_repo|>",    "<|file_sep|>",
};

/* Texts of tokens that separate the parts of a gpt-oss message. Decoding shows
 * them, so that a parser of replies finds them. */
static const char *const shown_texts[] = {
    "<|channel|>",
    "<|message|>",
    "<|start|>",
    "<|constrain|>",
};

/* Tokens for filling in the middle, which code models have. A row has the key
 * of a token's id in files, its key in older files, and texts by which the
 * token is found if a file has neither key. */
static const struct {
    const char *key, *old_key, *name[8];
} fim_tokens[TOKENIZER_N_FIM] = {
    {"fim_pre",
     "prefix",
     {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<|code_prefix|>",
      "<PRE>", "\xe2\x96\x81<PRE>",
      ("<\xef\xbd\x9c"
       "fim\xe2\x96\x81"
       "begin\xef\xbd\x9c>")}},
    {"fim_suf",
     "suffix",
     {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<|code_suffix|>",
      "<SUF>", "\xe2\x96\x81<SUF>",
      ("<\xef\xbd\x9c"
       "fim\xe2\x96\x81"
       "hole\xef\xbd\x9c>")}},
    {"fim_mid",
     "middle",
     {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<|code_middle|>",
      "<MID>", "\xe2\x96\x81<MID>",
      ("<\xef\xbd\x9c"
       "fim\xe2\x96\x81"
       "end\xef\xbd\x9c>")}},
    {"fim_rep",
     NULL,
     {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {"fim_sep", NULL, {"<|file_sep|>"}},
};

int bpe_char_of_byte(unsigned byte, char out[2])
{
    unsigned c = byte;

    /* Bytes 33-126, 161-172 and 174-255 are printable. The other 68 bytes are
     * represented by U+0100 and the following characters, in order. */
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
                       "%s: tokenizer.ggml.model is %s, so the file has no "
                       "tokenizer; give token ids instead of text",
                       gguf_path(g), name.s ? "none" : "missing");
    for (int i = 0; i < N_MODEL; i++) {
        if (strlen(models[i].name) == name.len &&
            memcmp(models[i].name, name.s, name.len) == 0) {
            *out = &models[i];
            return PL_OK;
        }
    }
    return err_set(err, PL_UNSUPPORTED,
                   "%s: tokenizer.ggml.model '%.*s' is not supported; "
                   "supported are llama, gpt2, gemma4, bert and t5",
                   gguf_path(g), (int)(name.len < 64 ? name.len : 64), name.s);
}

static bool has_gemma_tokens(struct gguf_str pre)
{
    for (size_t i = 0; i < sizeof gemma_pres / sizeof gemma_pres[0]; i++)
        if (strlen(gemma_pres[i]) == pre.len &&
            memcmp(gemma_pres[i], pre.s, pre.len) == 0)
            return true;
    return false;
}

/* Returns the value of tokenizer.ggml.NAME_token_id, or `def` if the key is
 * absent. Returns -1 if the value is not the id of a token. Some files write -1
 * or 4294967295 for "none". */
static int32_t read_id(const struct tokenizer *t, const struct gguf *g,
                       const char *name, int32_t def)
{
    const struct gguf_kv *kv;
    char key[64];
    int64_t id = def;

    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", name);
    kv = gguf_find(g, key);
    if (kv && !gguf_as_i64(kv, 0, &id))
        id = -1;
    return id >= 0 && id < t->vocab.n_token ? (int32_t)id : -1;
}

static pl_status read_blanks(struct tokenizer *t, const struct gguf *g,
                             const struct model_row *row, pl_err *err)
{
    if (t->kind == KIND_SPM || t->kind == KIND_UNIGRAM)
        PL_TRY(gguf_get_bool(g, "tokenizer.ggml.add_space_prefix",
                             row->adds_blank, &t->adds_blank, err));
    t->drops_blank =
        t->adds_blank || t->joins_blanks || t->kind == KIND_WORDPIECE;
    return PL_OK;
}

static bool blanks_begin_symbols(const struct vocab *v)
{
    for (int32_t i = 0; i < v->n_symbol; i++)
        for (uint32_t at = 1; at < v->token[i].len; at++)
            if (vocab_blank_after_word(v->token[i].s, v->token[i].len, at))
                return false;
    return true;
}

static struct token *named(struct tokenizer *t, const char *text)
{
    int32_t id = vocab_find(&t->vocab, text, strlen(text));

    return id >= 0 ? &t->vocab.token[id] : NULL;
}

/* Corrects the types that the file gives to some tokens, in the same way as
 * llama.cpp. */
static void correct_types(struct tokenizer *t)
{
    struct token *k, *end = named(t, "<|end|>"), *s = named(t, "</s>");

    for (size_t i = 0; i < sizeof control_texts / sizeof control_texts[0]; i++)
        if ((k = named(t, control_texts[i])))
            k->type = TOKEN_CONTROL;
    for (size_t i = 0; i < sizeof eog_texts / sizeof eog_texts[0]; i++) {
        if ((k = named(t, eog_texts[i]))) {
            k->type = TOKEN_CONTROL;
            k->eog = true;
        }
    }
    for (size_t i = 0; i < sizeof shown_texts / sizeof shown_texts[0]; i++)
        if ((k = named(t, shown_texts[i])))
            k->type = TOKEN_USER;
    /* In gpt-oss and solar-open, <|end|> ends a message, but the reply
     * continues after it. So it does not end the generation. */
    if (end && ((named(t, "<|return|>") && named(t, "<|call|>")) ||
                (named(t, "<|flush|>") &&
                 (named(t, "<|call|>") || named(t, "<|calls|>"))))) {
        end->type = TOKEN_USER;
        end->eog = false;
    }
    /* In gemma4, </s> closes struck-out text, so it is ordinary text. */
    if (s && named(t, "<|tool_response>")) {
        s->type = TOKEN_NORMAL;
        s->eog = false;
    }
}

static void read_fim(struct tokenizer *t, const struct gguf *g)
{
    for (int i = 0; i < TOKENIZER_N_FIM; i++) {
        const char *const *name = fim_tokens[i].name;

        t->fim[i] = read_id(t, g, fim_tokens[i].key, -1);
        if (t->fim[i] < 0 && fim_tokens[i].old_key)
            t->fim[i] = read_id(t, g, fim_tokens[i].old_key, -1);
        for (int k = 0; k < 8 && name[k] && t->fim[i] < 0; k++)
            t->fim[i] = tokenizer_find(t, name[k], strlen(name[k]));
    }
}

/* Reads the list of tokens that must never be generated. Ignores ids that are
 * not in the vocabulary. */
static pl_status read_suppressed(struct tokenizer *t, const struct gguf *g,
                                 pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.ggml.suppress_tokens");
    const uint64_t n = kv ? kv->count : 0;
    int64_t id;

    if (n == 0)
        return PL_OK;
    t->suppressed = calloc(n, sizeof *t->suppressed);
    if (!t->suppressed)
        return err_no_memory(err, "the list of suppressed tokens");
    for (uint64_t i = 0; i < n; i++)
        if (gguf_as_i64(kv, i, &id) && id >= 0 && id < t->vocab.n_token)
            t->suppressed[t->n_suppressed++] = (int32_t)id;
    return PL_OK;
}

static pl_status read_specials(struct tokenizer *t, const struct gguf *g,
                               const struct model_row *row, pl_err *err)
{
    static const char *const eog_keys[] = {"eos", "eot", "eom"};
    bool adds_bos = row->adds_bos, adds_sep;
    int32_t bos = row->bos;

    if (t->kind == KIND_BPE) {
        adds_bos = adds_bos || pretok_adds_bos(t->pretok);
        if (pretok_lacks_bos(t->pretok))
            bos = -1;
    }
    t->bos = read_id(t, g, row->bos_key, bos);
    t->eos = read_id(t, g, row->eos_key, row->eos);
    t->unknown = read_id(t, g, "unknown", row->unknown);
    PL_TRY(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", adds_bos,
                         &t->adds_bos, err));
    PL_TRY(gguf_get_bool(g, "tokenizer.ggml.add_eos_token", row->adds_eos,
                         &t->adds_eos, err));
    /* In WordPiece, SEP is the token that ends texts. */
    PL_TRY(gguf_get_bool(g, "tokenizer.ggml.add_sep_token", false, &adds_sep,
                         err));
    t->sep = adds_sep && t->kind != KIND_WORDPIECE
                 ? read_id(t, g, "seperator", -1)
                 : -1;
    /* The key is ignored for these kinds: early gemma4 files wrongly set it to
     * false. */
    if ((t->kind == KIND_GEMMA && row->adds_bos) || t->kind == KIND_WORDPIECE)
        t->adds_bos = true;
    if (t->kind == KIND_WORDPIECE)
        t->adds_eos = true;

    correct_types(t);
    read_fim(t, g);
    if (t->eos >= 0)
        t->vocab.token[t->eos].eog = true;
    for (size_t i = 0; i < sizeof eog_keys / sizeof eog_keys[0]; i++) {
        int32_t id = read_id(t, g, eog_keys[i], -1);

        if (id >= 0)
            t->vocab.token[id].eog = true;
    }
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
        if (t->byte_id[b] < 0 && t->kind != KIND_UNIGRAM) {
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

static bool contains(struct gguf_str s, const char *part)
{
    size_t n = strlen(part);

    for (size_t i = 0; i + n <= s.len; i++)
        if (ascii_same_start(s.s + i, part, n))
            return true;
    return false;
}

/* Determines which special tokens drop white space around them. The model's
 * name in the file decides: Phi-3 drops white space after special tokens, some
 * encoder models drop it before the mask token. */
static pl_status read_strips(struct tokenizer *t, const struct gguf *g,
                             pl_err *err)
{
    static const struct {
        const char *key, *part, *text;
    } before[] = {
        {"tokenizer.ggml.pre", "jina-v2-", "<mask>"},
        {"general.architecture", "nomic-bert-moe", "<mask>"},
        {"general.architecture", "jina-bert-v3", "<mask>"},
        {"general.name", "modern-bert", "[MASK]"},
    };
    struct gguf_str value;

    t->eats_before = -1;
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        PL_TRY(gguf_get_str(g, before[i].key, &value, err));
        if (contains(value, before[i].part))
            t->eats_before =
                vocab_find(&t->vocab, before[i].text, strlen(before[i].text));
    }
    if (t->kind != KIND_SPM)
        return PL_OK;
    PL_TRY(gguf_get_str(g, "general.name", &value, err));
    t->eats_blank = contains(value, "phi3") || contains(value, "phi-3");
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
    if (row->kind == KIND_BPE && pre.s && has_gemma_tokens(pre))
        row = &gemma_row;
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
    if (s == PL_OK && (t->kind == KIND_BPE || t->kind == KIND_GEMMA))
        s = vocab_read_merges(&t->vocab, g, err);
    if (s == PL_OK && (t->kind == KIND_SPM || t->kind == KIND_GEMMA))
        t->cuts_words = blanks_begin_symbols(&t->vocab);
    if (s == PL_OK && t->kind == KIND_WORDPIECE)
        s = wordpiece_create(t, g, err);
    if (s == PL_OK && t->kind == KIND_UNIGRAM)
        s = unigram_create(t, g, err);
    if (s == PL_OK)
        s = read_blanks(t, g, row, err);
    if (s == PL_OK)
        s = read_specials(t, g, row, err);
    if (s == PL_OK)
        s = read_suppressed(t, g, err);
    if (s == PL_OK)
        s = read_strips(t, g, err);
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
    pretok_free(t->clean);
    vocab_fini(&t->vocab);
    free(t->user.len);
    free(t->all.len);
    free(t->suppressed);
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

int32_t tokenizer_fim(const struct tokenizer *t, int which)
{
    return t->fim[which];
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

const int32_t *tokenizer_suppressed(const struct tokenizer *t, int64_t *n)
{
    *n = t->n_suppressed;
    return t->suppressed;
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
