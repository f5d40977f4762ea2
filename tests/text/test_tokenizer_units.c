/* Tokenizers over tiny vocabularies written here: each kind tokenizes and
 * decodes texts correctly, also as a stream, and contradictory vocabularies are
 * rejected. */
#include "lib/support.h"

#include "gguf/gguf_write.h"
#include "lib/alloc_fail.h"
#include "tokenizer/letters.h"
#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tiny vocabularies --------------------------------------------------- */

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

struct tiny {
    char text[768][24];
    struct gguf_str str[768];
    int32_t type[768];
    float score[768];
    uint64_t n;
    /* merges of the vocabulary, the last one followed by NULL */
    const char *merges[16];
    struct gguf_str merge[700];
    uint64_t n_merge;
    const char *model, *pre;
};

static void add(struct tiny *v, const char *text, int type, float score)
{
    snprintf(v->text[v->n], sizeof v->text[0], "%s", text);
    v->str[v->n] = (struct gguf_str){v->text[v->n], strlen(text)};
    v->type[v->n] = type;
    v->score[v->n++] = score;
}

static void add_merge(struct tiny *v, const char *text)
{
    v->merge[v->n_merge++] = (struct gguf_str){text, strlen(text)};
}

/* Adds the characters of bytes 0 .. 255 as tokens 0 .. 255. */
static void add_byte_chars(struct tiny *v)
{
    int extra = 256;

    for (int b = 0; b < 256; b++) {
        bool prints = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
        int c = prints ? b : extra++;
        char text[3] = {(char)c, 0, 0};

        if (c >= 128) {
            text[0] = (char)(0xc0 | c >> 6);
            text[1] = (char)(0x80 | (c & 63));
        }
        add(v, text, NORMAL, 0);
    }
}

static void add_byte_tokens(struct tiny *v)
{
    for (int b = 0; b < 256; b++) {
        char text[8];

        snprintf(text, sizeof text, "<0x%02X>", b);
        add(v, text, BYTE, 0);
    }
}

static struct gguf_writer *writer_of(const struct tiny *v)
{
    struct gguf_writer *w;

    assert_int_equal(gguf_writer_create(&w, NULL), PL_OK);
    if (v->model)
        gguf_put_str(w, "tokenizer.ggml.model", v->model);
    if (v->pre)
        gguf_put_str(w, "tokenizer.ggml.pre", v->pre);
    gguf_put_strs(w, "tokenizer.ggml.tokens", v->str, v->n);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, v->n);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, v->score, v->n);
    if (v->n_merge)
        gguf_put_strs(w, "tokenizer.ggml.merges", v->merge, v->n_merge);
    return w;
}

/* Saves and frees the writer and opens what it wrote. */
static struct gguf *open_written(struct gguf_writer *w)
{
    const char *path = test_temp("tiny.gguf");
    struct gguf *g = NULL;
    pl_err err = {0};

    if (gguf_writer_save(w, path, &err) != PL_OK ||
        gguf_open(&g, path, &err) != PL_OK)
        fail_msg("%s", err.message);
    gguf_writer_free(w);
    return g;
}

static struct tokenizer *create_from(struct gguf_writer *w)
{
    struct gguf *g = open_written(w);
    struct tokenizer *t = NULL;
    pl_err err = {0};

    TEST_OK(tokenizer_create(&t, g, &err), err);
    gguf_close(g); /* the tokenizer must not depend on the file */
    return t;
}

static struct tokenizer *create(const struct tiny *v)
{
    return create_from(writer_of(v));
}

/* SentencePiece: <unk> <s> </s>, the byte tokens from id 3, then words. */
static struct tiny *tiny_spm(void)
{
    static struct tiny v;

    memset(&v, 0, sizeof v);
    v.model = "llama";
    add(&v, "<unk>", UNKNOWN, 0);
    add(&v, "<s>", CONTROL, 0);
    add(&v, "</s>", CONTROL, 0);
    add_byte_tokens(&v);
    return &v;
}

static struct tiny *tiny_bpe(void)
{
    static struct tiny v;

    memset(&v, 0, sizeof v);
    v.model = "gpt2";
    v.pre = "gpt-2";
    add_byte_chars(&v);
    return &v;
}

static struct tiny *tiny_gemma(void)
{
    static struct tiny v;

    memset(&v, 0, sizeof v);
    v.model = "gemma4";
    add(&v, "<pad>", CONTROL, 0);
    add(&v, "<eos>", CONTROL, 0);
    add(&v, "<bos>", CONTROL, 0);
    add_byte_tokens(&v);
    return &v;
}

#define LOW "\xe2\x96\x81"

static struct tiny *tiny_wordpiece(void)
{
    static struct tiny v;

    memset(&v, 0, sizeof v);
    v.model = "bert";
    add(&v, "[PAD]", CONTROL, 0);
    add(&v, "[UNK]", UNKNOWN, 0);
    add(&v, "[CLS]", CONTROL, 0);
    add(&v, "[SEP]", CONTROL, 0);
    add(&v, "[MASK]", CONTROL, 0);
    return &v;
}

static struct tiny *tiny_unigram(void)
{
    struct tiny *v = tiny_spm();

    v->model = "t5";
    return v;
}

/* ---- comparing ----------------------------------------------------------- */

static void expect_refusal(struct gguf_writer *w, pl_status want,
                           const char *words)
{
    struct gguf *g = open_written(w);
    struct tokenizer *t;
    pl_err err = {0};

    assert_int_equal(tokenizer_create(&t, g, &err), want);
    assert_null(t);
    if (!strstr(err.message, words))
        fail_msg("'%s' does not say '%s'", err.message, words);
    gguf_close(g);
}

/* Encodes and writes the tokens' texts with '|' between into a text that lives
 * until the next call. */
static const char *pieces(const struct tokenizer *t, const char *text,
                          unsigned flags)
{
    static char out[4096];
    struct token_list l = {0};
    size_t n = 0;

    assert_int_equal(tokenizer_encode(t, text, strlen(text), flags, &l, NULL),
                     PL_OK);
    for (int64_t i = 0; i < l.n; i++) {
        n += tokenizer_piece(t, l.id[i], TOKENIZER_SHOW_SPECIAL, out + n,
                             sizeof out - n);
        assert_true(n < sizeof out - 2);
        if (i + 1 < l.n)
            out[n++] = '|';
    }
    out[n] = '\0';
    token_list_fini(&l);
    return out;
}

static void check_round_trip(const struct tokenizer *t, const char *text,
                             size_t len)
{
    struct token_list l = {0};
    struct text_buf b = {0};

    assert_int_equal(tokenizer_encode(t, text, len, 0, &l, NULL), PL_OK);
    assert_int_equal(tokenizer_decode(t, l.id, l.n, TOKENIZER_WHOLE, &b, NULL),
                     PL_OK);
    assert_int_equal(b.n, len);
    if (len)
        assert_memory_equal(b.s, text, len);
    token_list_fini(&l);
    text_buf_fini(&b);
}

/* ---- SentencePiece ------------------------------------------------------- */

TEST(tokenizer_spm_joins_by_score_then_leftmost)
{
    struct tiny *v = tiny_spm();
    struct tokenizer *t;

    add(v, "a", NORMAL, -10);
    add(v, "b", NORMAL, -10);
    add(v, "c", NORMAL, -10);
    add(v, LOW, NORMAL, -10);
    add(v, "ab", NORMAL, -3);
    add(v, "bc", NORMAL, -2);
    add(v, "aa", NORMAL, -4);
    add(v, "abc", NORMAL, -1);
    t = create(v);
    assert_string_equal(pieces(t, "ab", 0), " |ab");
    assert_string_equal(pieces(t, "abcc", 0), " |abc|c");
    assert_string_equal(pieces(t, "bcab", 0), " |bc|ab");
    assert_string_equal(pieces(t, "abbc", 0), " |ab|bc");
    assert_string_equal(pieces(t, "aaa", 0), " |aa|a");
    assert_string_equal(pieces(t, "", 0), "");
    assert_string_equal(pieces(t, "a\xc3\xa9", 0), " |a|\xc3|\xa9");
    assert_string_equal(pieces(t, "ab  ab", 0), " |ab| | |ab");
    tokenizer_free(t);
    /* a token that crosses the border between two words */
    add(v, "b" LOW, NORMAL, -2);
    add(v, LOW LOW, NORMAL, -2);
    t = create(v);
    assert_string_equal(pieces(t, "ab ab", 0), " |a|b |ab");
    assert_string_equal(pieces(t, "c  ab", 0), " |c|  |ab");
    tokenizer_free(t);
}

TEST(tokenizer_spm_without_byte_tokens_uses_unknown)
{
    struct tiny *v = tiny_spm();
    struct gguf_writer *w;
    struct tokenizer *t;

    v->n = 3;
    add(v, "a", NORMAL, -10);
    w = writer_of(v);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    t = create_from(w);
    assert_string_equal(pieces(t, "az", 0), "a|<unk>");
    tokenizer_free(t);
}

TEST(tokenizer_finds_user_tokens_longest_first)
{
    struct tiny *v = tiny_spm();
    struct tokenizer *t;

    add(v, "x", NORMAL, -10);
    add(v, LOW, NORMAL, -10);
    add(v, LOW "x", NORMAL, -1);
    add(v, "<u>", USER, 0);
    add(v, "<uu>", USER, 0);
    add(v, "><u", USER, 0);
    t = create(v);
    /* the text after a special token gets a blank of its own */
    assert_string_equal(pieces(t, "x<u>x<uu>", 0), " x|<u>| x|<uu>");
    /* of overlapping special tokens of the same length the leftmost counts */
    assert_string_equal(pieces(t, "<u><u>", 0), "<u>|<u>");
    assert_string_equal(pieces(t, "x><u>", 0), " x|><u| |>");
    tokenizer_free(t);
}

TEST(tokenizer_parses_control_tokens_only_when_asked)
{
    struct tiny *v = tiny_spm();
    struct gguf_writer *w;
    struct tokenizer *t;

    add(v, "x", NORMAL, -10);
    add(v, LOW, NORMAL, -10);
    /* a normal token that ends generation counts as a control token */
    add(v, "<|end|>", NORMAL, 0);
    t = create(v);
    assert_string_equal(pieces(t, "</s>", 0), " |<|/|s|>");
    assert_string_equal(pieces(t, "x</s> x", TOKENIZER_PARSE_SPECIAL),
                        " |x|</s>| | |x");
    assert_string_equal(pieces(t, "<unk>", TOKENIZER_PARSE_SPECIAL), "<unk>");
    assert_true(tokenizer_is_eog(t, tokenizer_find(t, "<|end|>", 7)));
    assert_true(tokenizer_is_control(t, tokenizer_find(t, "<|end|>", 7)));
    assert_true(tokenizer_is_eog(t, 2));
    assert_false(tokenizer_is_eog(t, 1));
    assert_false(tokenizer_is_eog(t, -1) || tokenizer_is_eog(t, 9999));
    tokenizer_free(t);

    w = writer_of(v);
    gguf_put_str(w, "general.name", "My Phi-3 mini");
    t = create_from(w);
    assert_string_equal(pieces(t, "</s> \n x<s> x", TOKENIZER_PARSE_SPECIAL),
                        "</s>| |x|<s>| | |x");
    tokenizer_free(t);
}

TEST(tokenizer_adds_bos_and_eos_as_the_file_says)
{
    struct tiny *v = tiny_spm();
    struct gguf_writer *w;
    struct tokenizer *t;

    add(v, "x", NORMAL, -10);
    add(v, LOW, NORMAL, -10);
    t = create(v);
    assert_string_equal(pieces(t, "x", TOKENIZER_ADD_SPECIAL), "<s>| |x");
    assert_string_equal(pieces(t, "", TOKENIZER_ADD_SPECIAL), "<s>");
    assert_string_equal(
        pieces(t, "<s>x", TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL),
        "<s>|<s>| |x");
    tokenizer_free(t);

    w = writer_of(v);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_put_bool(w, "tokenizer.ggml.add_eos_token", true);
    t = create_from(w);
    assert_string_equal(pieces(t, "x", TOKENIZER_ADD_SPECIAL), " |x|</s>");
    tokenizer_free(t);

    w = writer_of(v);
    /* stands for "no BOS" */
    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 4294967295u);
    t = create_from(w);
    assert_int_equal(tokenizer_bos(t), -1);
    assert_false(tokenizer_adds_bos(t));
    assert_string_equal(pieces(t, "x", TOKENIZER_ADD_SPECIAL), " |x");
    tokenizer_free(t);
}

TEST(tokenizer_bpe_bos_follows_the_pre_tokenizer)
{
    struct tiny *v = tiny_bpe();
    struct tokenizer *t;

    add_merge(v, "a b");
    t = create(v);
    assert_int_equal(tokenizer_bos(t), 11);
    assert_false(tokenizer_adds_bos(t));
    tokenizer_free(t);
    v->pre = "llama3";
    t = create(v);
    assert_true(tokenizer_adds_bos(t));
    tokenizer_free(t);
    v->pre = "chatglm-bpe";
    t = create(v);
    assert_int_equal(tokenizer_bos(t), -1);
    assert_int_equal(tokenizer_eos(t), 11);
    tokenizer_free(t);

    v = tiny_gemma();
    add_merge(v, "a b");
    {
        struct gguf_writer *w = writer_of(v);

        gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 2);
        gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
        t = create_from(w);
        /* BOS is added although the file's key says false */
        assert_true(tokenizer_adds_bos(t));
        tokenizer_free(t);
    }
}

/* ---- byte-pair encoding -------------------------------------------------- */

TEST(tokenizer_bpe_joins_by_rank_then_leftmost)
{
    struct tiny *v = tiny_bpe();
    struct tokenizer *t;

    add(v, "bc", NORMAL, 0);
    add(v, "ab", NORMAL, 0);
    add(v, "aa", NORMAL, 0);
    add(v, "abc", NORMAL, 0);
    add(v, "xyz", NORMAL, 0);
    add_merge(v, "b c");
    add_merge(v, "a b");
    add_merge(v, "a a");
    add_merge(v, "ab c"); /* never applied, because "b c" has precedence */
    add_merge(v, "x y");  /* "xy" is not a token, but a step to "xyz" */
    add_merge(v, "xy z");
    t = create(v);
    assert_string_equal(pieces(t, "abc", 0), "a|bc");
    assert_string_equal(pieces(t, "ab", 0), "ab");
    assert_string_equal(pieces(t, "aaa", 0), "aa|a");
    assert_string_equal(pieces(t, "xyz", 0), "xyz");
    /* "xy" is not a token, so it is split again */
    assert_string_equal(pieces(t, "xy", 0), "x|y");
    assert_string_equal(pieces(t, "\xff\xc3(", 0), "\xff|\xc3|(");
    tokenizer_free(t);
    /* with this pre-tokenizer a piece that is a token needs no merges */
    v->pre = "llama-bpe";
    t = create(v);
    assert_string_equal(pieces(t, "abc", 0), "abc");
    tokenizer_free(t);
}

/* Returns true if texts begin with BOS if the file names token 2 as BOS. */
static bool adds_bos(const struct tiny *v)
{
    struct gguf_writer *w = writer_of(v);
    struct tokenizer *t;
    bool adds;

    gguf_put_u32(w, "tokenizer.ggml.bos_token_id", 2);
    t = create_from(w);
    adds = tokenizer_adds_bos(t);
    tokenizer_free(t);
    return adds;
}

TEST(tokenizer_gemma_keeps_newline_runs_apart)
{
    struct tiny *v = tiny_gemma();
    struct tokenizer *t;

    add(v, "\n", NORMAL, 0);
    add(v, "\n\n\n", NORMAL, 0);
    add(v, "a", NORMAL, 0);
    add(v, LOW, NORMAL, 0);
    add(v, LOW "a", NORMAL, 0);
    add_merge(v, LOW " a");
    /* never applied, because the pre-tokenizer separates newlines from
     * letters */
    add_merge(v, "a \n");
    t = create(v);
    assert_string_equal(pieces(t, "a a\n\n\na\n\n", 0), "a| a|\n\n\n|a|\n|\n");
    assert_string_equal(pieces(t, "  a\xc3\xa9", 0), " | a|\xc3|\xa9");
    tokenizer_free(t);
    assert_true(adds_bos(v));
    /* Files of other models name the kind by the pre-tokenizer. They state
     * whether a text begins with BOS. */
    v->model = "gpt2";
    v->pre = "sarvam-moe";
    t = create(v);
    assert_string_equal(pieces(t, "a a\n\n\na\n\n", 0), "a| a|\n\n\n|a|\n|\n");
    tokenizer_free(t);
    assert_false(adds_bos(v));
}

struct part { /* a part of a text, or of a word that is cut in two */
    char s[16];
};

/* Returns true if words[k] is a, then (if `blank`) a blank, then b. */
static bool is_pair(const char *word, const char *a, const char *b, bool blank)
{
    size_t n = strlen(a);

    return strncmp(word, a, n) == 0 && (!blank || word[n++] == ' ') &&
           strcmp(word + n, b) == 0;
}

/* Joins the best pair again and again, comparing all of them each time. */
static int naive_merge(struct part *part, int n, const struct tiny *v, bool spm)
{
    for (;;) {
        int at = -1;
        float best = 0;

        for (int i = 0; i + 1 < n; i++) {
            for (uint64_t k = 0; k < (spm ? v->n : v->n_merge); k++) {
                float score = spm ? v->score[k] : -(float)k;

                if (is_pair(spm ? v->text[k] : v->merge[k].s, part[i].s,
                            part[i + 1].s, !spm) &&
                    (at < 0 || score > best)) {
                    at = i;
                    best = score;
                }
            }
        }
        if (at < 0)
            return n;
        memcpy(part[at].s + strlen(part[at].s), part[at + 1].s,
               strlen(part[at + 1].s) + 1);
        for (int i = at + 1; i + 1 < n; i++)
            part[i] = part[i + 1];
        n--;
    }
}

/* Random words over three letters as tokens or merges, random texts. */
static void random_merges(bool spm)
{
    static char texts[64][16];
    uint64_t rng = test_seed();

    for (int round = 0; round < 30; round++) {
        struct tiny *v = spm ? tiny_spm() : tiny_bpe();
        struct tokenizer *t;
        struct gguf_writer *w;

        if (spm)
            for (const char *c = "abc"; *c; c++)
                add(v, (char[2]){*c, 0}, NORMAL, -100);
        for (int i = 0; i < 40; i++) {
            char word[8];
            int n = 2 + (int)test_below(&rng, 5), cut;
            bool known = false;

            for (int k = 0; k < n; k++)
                word[k] = (char)('a' + test_below(&rng, 3));
            word[n] = '\0';
            for (uint64_t k = 0; k < v->n; k++)
                known = known || strcmp(v->text[k], word) == 0;
            if (!known)
                add(v, word, NORMAL, -(float)test_below(&rng, 6));
            cut = 1 + (int)test_below(&rng, n - 1);
            snprintf(texts[i], sizeof texts[i], "%.*s %s", cut, word,
                     word + cut);
            if (!spm)
                add_merge(v, texts[i]);
        }
        w = writer_of(v);
        gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
        t = create_from(w);
        for (int i = 0; i < 60; i++) {
            struct part part[16];
            char text[16], want[64] = "";
            int n = 1 + (int)test_below(&rng, 14);

            for (int k = 0; k < n; k++) {
                text[k] = (char)('a' + test_below(&rng, 3));
                part[k].s[0] = text[k];
                part[k].s[1] = '\0';
            }
            text[n] = '\0';
            n = naive_merge(part, n, v, spm);
            for (int k = 0; k < n; k++) {
                strcat(want, k ? "|" : "");
                strcat(want, part[k].s);
            }
            assert_string_equal(pieces(t, text, 0), want);
        }
        tokenizer_free(t);
    }
}

TEST(tokenizer_bpe_equals_naive_merging)
{
    random_merges(false);
}

TEST(tokenizer_spm_equals_naive_merging)
{
    random_merges(true);
}

/* ---- WordPiece ----------------------------------------------------------- */

static struct gguf_writer *wordpiece_writer(const struct tiny *v)
{
    struct gguf_writer *w = writer_of(v);

    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 1);
    gguf_put_u32(w, "tokenizer.ggml.cls_token_id", 2);
    gguf_put_u32(w, "tokenizer.ggml.seperator_token_id", 3);
    return w;
}

TEST(tokenizer_wordpiece_takes_the_longest_tokens)
{
    struct tiny *v = tiny_wordpiece();
    struct gguf_writer *w;
    struct tokenizer *t;
    struct text_buf b = {0};
    struct token_list l = {0};

    add(v, LOW "un", NORMAL, 0);
    add(v, "aff", NORMAL, 0);
    add(v, "affable", NORMAL, 0);
    add(v, LOW "!", NORMAL, 0);
    add(v, LOW "e", NORMAL, 0);
    add(v, LOW "\xe4\xb8\x80", NORMAL, 0);
    t = create_from(wordpiece_writer(v));
    assert_string_equal(pieces(t, "unaffable", 0), " un|affable");
    assert_string_equal(pieces(t, "unaffab unaff", 0), "[UNK]| un|aff");
    /* case and marks are dropped, control characters too; punctuation and
     * ideographs are words */
    assert_string_equal(pieces(t, "  UN\xc2\xad\x01!\xc3\x89 e\xcc\x81", 0),
                        " un| !| e| e");
    assert_string_equal(pieces(t,
                               "e\xe4\xb8\x80"
                               "e!",
                               0),
                        " e| \xe4\xb8\x80| e| !");
    assert_string_equal(pieces(t,
                               "\xff"
                               "e\xe4",
                               0),
                        " e");
    assert_string_equal(pieces(t, " \n", 0), "");
    assert_string_equal(pieces(t, "e", TOKENIZER_ADD_SPECIAL),
                        "[CLS]| e|[SEP]");
    assert_string_equal(pieces(t, "", TOKENIZER_ADD_SPECIAL), "[CLS]|[SEP]");
    assert_string_equal(pieces(t, "e [MASK]e", TOKENIZER_PARSE_SPECIAL),
                        " e|[MASK]| e");
    assert_int_equal(tokenizer_encode(t, "un e!", 5, 0, &l, NULL), PL_OK);
    assert_int_equal(tokenizer_decode(t, l.id, l.n, TOKENIZER_WHOLE, &b, NULL),
                     PL_OK);
    assert_string_equal(b.s, "un e !");
    token_list_fini(&l);
    text_buf_fini(&b);
    tokenizer_free(t);

    w = wordpiece_writer(v);
    gguf_put_bool(w, "tokenizer.ggml.normalizer.lowercase", false);
    t = create_from(w);
    assert_string_equal(pieces(t, "un Un e e\xcc\x81", 0),
                        " un|[UNK]| e|[UNK]");
    tokenizer_free(t);
}

/* ---- Unigram ------------------------------------------------------------- */

TEST(tokenizer_unigram_takes_the_best_sum)
{
    struct tiny *v = tiny_unigram();
    struct gguf_writer *w;
    struct tokenizer *t;

    v->n = 3;
    add(v, LOW, NORMAL, -2);
    add(v, "a", NORMAL, -3);
    add(v, "b", NORMAL, -3);
    add(v, "ab", NORMAL, -4);
    add(v, "bc", NORMAL, -1);
    add(v, LOW "a", NORMAL, -9);
    add(v, "abab", UNUSED, -20);
    w = writer_of(v);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", true);
    gguf_put_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    t = create_from(w);
    assert_string_equal(pieces(t, "ab", 0), " |ab");
    assert_string_equal(pieces(t, "abc", 0), " |a|bc");
    assert_string_equal(pieces(t, "abab", 0), " |ab|ab");
    /* consecutive characters that are not tokens become one unknown token */
    assert_string_equal(pieces(t, "xyaz", 0), " |<unk>|a|<unk>");
    assert_string_equal(pieces(t, " a  b", 0), " | |a| | |b");
    assert_string_equal(pieces(t, "", 0), "");
    tokenizer_free(t);

    w = writer_of(v);
    gguf_put_bool(w, "tokenizer.ggml.remove_extra_whitespaces", true);
    t = create_from(w);
    assert_string_equal(pieces(t, "  a   b ", 0), " |a| |b");
    tokenizer_free(t);

    v = tiny_unigram(); /* a vocabulary with a token for each byte */
    add(v, "a", NORMAL, -3);
    t = create(v);
    assert_string_equal(pieces(t,
                               "\xc3\xa9"
                               "a",
                               0),
                        "\xc3|\xa9|a");
    tokenizer_free(t);
}

/* A trie of three units and the texts "xy" and "": 'a' becomes "xy". */
TEST(tokenizer_unigram_maps_characters_first)
{
    enum { N_UNIT = 256 };
    unsigned char map[4 + 4 * N_UNIT + 4] = {0};
    uint32_t unit[N_UNIT] = {0};
    struct tiny *v = tiny_unigram();

    v->n = 3;
    add(v, LOW, NORMAL, -2);
    add(v, "a", NORMAL, -3);
    add(v, "xy", NORMAL, -3);
    unit[0] = 1 << 10; /* the root's children are at offset 1 */
    /* after 'a' a text ends, whose value is at offset 128 */
    unit[1 ^ 'a'] = 'a' | 0x100 | 128u << 10;
    unit[(1 ^ 'a') ^ 128] = 0x80000000; /* the value: text number 0 */
    for (int i = 0; i < N_UNIT; i++)
        for (int k = 0; k < 4; k++)
            map[4 + 4 * i + k] = (unsigned char)(unit[i] >> 8 * k);
    map[1] = 4 * N_UNIT / 256;
    memcpy(map + 4 + 4 * N_UNIT, "xy", 3);
    for (size_t cut = 0; cut < sizeof map; cut++) {
        struct gguf_writer *w = writer_of(v);

        gguf_put_array(w, "tokenizer.ggml.precompiled_charsmap", GGUF_U8, map,
                       sizeof map - cut);
        if (cut == 0) {
            struct tokenizer *t = create_from(w);

            assert_string_equal(pieces(t, "aa", 0), "xy|xy");
            tokenizer_free(t);
        } else if (cut == 3 || cut > 3) {
            expect_refusal(w, PL_BAD_FILE, "precompiled_charsmap");
        } else {
            gguf_writer_free(w);
        }
        cut += cut > 8 ? 96 : 0;
    }
}

/* ---- wrong types in a file, and white space that is dropped -------------- */

TEST(tokenizer_corrects_types_as_llama_cpp_does)
{
    struct tiny *v = tiny_spm();
    struct gguf_writer *w;
    struct tokenizer *t;

    add(v, "x", NORMAL, -10);
    add(v, LOW, NORMAL, -10);
    add(v, "<|end|>", CONTROL, 0);
    add(v, "<|fim_pad|>", NORMAL, 0);
    t = create(v);
    assert_true(tokenizer_is_eog(t, tokenizer_find(t, "<|end|>", 7)));
    assert_true(tokenizer_is_control(t, tokenizer_find(t, "<|fim_pad|>", 11)));
    tokenizer_free(t);
    add(v, "<|return|>", CONTROL, 0);
    add(v, "<|call|>", CONTROL, 0);
    add(v, "<|channel|>", CONTROL, 0);
    t = create(v);
    assert_false(tokenizer_is_eog(t, tokenizer_find(t, "<|end|>", 7)));
    assert_true(tokenizer_is_eog(t, tokenizer_find(t, "<|return|>", 10)));
    assert_string_equal(pieces(t, "<|channel|>x", 0), "<|channel|>| |x");
    assert_true(tokenizer_is_eog(t, 2)); /* token 2 is </s> */
    tokenizer_free(t);
    add(v, "<|tool_response>", CONTROL, 0);
    w = writer_of(v);
    gguf_put_u32(w, "tokenizer.ggml.eos_token_id", 1);
    t = create_from(w);
    assert_false(tokenizer_is_eog(t, 2) || tokenizer_is_control(t, 2));
    tokenizer_free(t);
}

TEST(tokenizer_some_masks_take_the_blanks_before)
{
    struct tiny *v = tiny_unigram();
    struct gguf_writer *w;
    struct tokenizer *t;

    add(v, "x", NORMAL, -10);
    add(v, LOW, NORMAL, -10);
    add(v, "<mask>", CONTROL, 0);
    for (int i = 0; i < 2; i++) {
        w = writer_of(v);
        gguf_put_str(w, "general.architecture",
                     i ? "nomic-bert-moe" : "nomic-bert");
        t = create_from(w);
        assert_string_equal(
            pieces(t, "x \n<mask> x  </s>", TOKENIZER_PARSE_SPECIAL),
            i ? "x|<mask>| |x| | |</s>" : "x| |\n|<mask>| |x| | |</s>");
        tokenizer_free(t);
    }
}

/* ---- pre-tokenizers ------------------------------------------------------ */

struct joined {
    char s[512];
    size_t n;
};

static pl_status join_piece(void *user, const char *s, size_t len, int by,
                            pl_err *err)
{
    struct joined *j = user;

    (void)by;
    (void)err;
    if (j->n)
        j->s[j->n++] = '|';
    memcpy(j->s + j->n, s, len);
    j->n += len;
    return PL_OK;
}

TEST(tokenizer_pre_tokenizers_cut_as_published)
{
    static const struct {
        const char *pre, *text, *want;
    } cases[] = {
        {"gpt-2", "I'll  go\t\tx 12", "I|'ll| | go|\t|\t|x| 12"},
        {"command-r", "a 123  b", "a| |1|2|3| | b"},
        {"dbrx", "1234 It'S", "123|4| It|'S"},
        {"glm4", "a\n\n  b\r\n", "a|\n\n| | b|\r\n"},
        {"glm5", "a12345 b", "a|123|45| b"},
        {"qwen2", "1234 x", "1|2|3|4| x"},
        {"qwen35", "e\xcc\x81t\xc3\xa9 1",
         "e\xcc\x81t\xc3\xa9| |1"}, /* combining marks belong to words */
        {"qwen2", "e\xcc\x81t", "e|\xcc\x81t"},
        {"gpt-4o", "HelloWORLDs can't a//\n1234",
         "Hello|WORLDs| can't| a|//\n|123|4"},
        {"falcon", "x+y 12345", "x|+|y| |123|45"},
        {"deepseek-coder", "ab cd\n12 !?", "ab| cd|\n|1|2| !?"},
        {"deepseek-llm", "ab  cd  \n12 !", "ab| | cd|  |\n|12| !"},
        {"tekken", "HelloWORLDs can't 12", "Hello|WORLDs| can|'t| |1|2"},
        {"kimi-k2",
         "a\xe4\xb8\x80"
         "b  \xe4\xb8\x80\xe4\xb8\x80 1234",
         "a|\xe4\xb8\x80|b| | |\xe4\xb8\x80\xe4\xb8\x80| |123|4"},
        {"tiny_aya", "x 1234567 1234x", "x| |1|234|567| |123|4|x"},
        {"chameleon", "xIMGIMGAZy  a.,", "x|IMGIMGAZ|y|  |a|.|,"},
        {"default", "x`1234", "x|`|123|4"},
        {"laguna", "a\n\n b", "a|\n\n| b"},
        {"youtu", "\xe4\xb8\x80z12", "\xe4\xb8\x80|z|1|2"},
        {"deepseek-v3", "12345 _ab c\xe3\x81\x82x",
         "123|45| _|ab| c|\xe3\x81\x82|x"},
        /* U+180E is not white space; U+3000 is */
        {"qwen2", "a\xe1\xa0\x8e b\xe3\x80\x80",
         "a|\xe1\xa0\x8e| b|\xe3\x80\x80"},
        {"gpt-2", "a\xff\xfe b\xe2\x82", "a|\xff\xfe| b|\xe2\x82"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct joined j = {.n = 0};
        struct pretok *p;
        pl_err err = {0};

        if (pretok_create(&p, cases[i].pre, strlen(cases[i].pre), "f", &err))
            fail_msg("%s", err.message);
        TEST_OK(pretok_split(p, cases[i].text, strlen(cases[i].text),
                             join_piece, &j, &err),
                err);
        j.s[j.n] = '\0';
        assert_string_equal(j.s, cases[i].want);
        pretok_free(p);
    }
}

TEST(tokenizer_unknown_pre_tokenizer_lists_the_known)
{
    struct pretok *p;
    pl_err err;

    assert_int_equal(pretok_create(&p, "gpt", 3, "model.gguf", &err),
                     PL_UNSUPPORTED);
    assert_null(p);
    assert_non_null(strstr(err.message, "'gpt'"));
    assert_non_null(strstr(err.message, "model.gguf"));
    assert_non_null(strstr(err.message, "qwen35"));
    assert_non_null(strstr(err.message, "deepseek-v3"));
    assert_int_equal(pretok_create(&p, "", 0, "model.gguf", &err),
                     PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "missing"));
}

/* ---- decoding ------------------------------------------------------------ */

TEST(tokenizer_stream_gives_whole_characters_only)
{
    struct tiny *v = tiny_bpe();
    struct tokenizer *t;
    struct tokenizer_stream d;
    struct text_buf b = {0};
    static const struct {
        const char *bytes, *after[4];
    } cases[] = {
        {"\xf0\x9f\xa6\x99", {"", "", "", "\xf0\x9f\xa6\x99"}},
        /* each invalid byte or incomplete prefix of a character is replaced as
         * soon as it is known */
        {"\xff\x80", {"\xef\xbf\xbd", "\xef\xbf\xbd\xef\xbf\xbd"}},
        {"\xe2\x96z", {"", "", "\xef\xbf\xbdz"}},
        {"\xe2\xe2\x96\x81",
         {"", "\xef\xbf\xbd", "\xef\xbf\xbd", "\xef\xbf\xbd\xe2\x96\x81"}},
        /* the bytes of a surrogate, which is not a character */
        {"\xed\xa0\x80",
         {"", "\xef\xbf\xbd\xef\xbf\xbd",
          "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}},
    };

    add_merge(v, "a b");
    t = create(v);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        text_buf_fini(&b);
        tokenizer_stream_init(&d, t, 0);
        for (int k = 0; cases[i].bytes[k]; k++) {
            assert_int_equal(
                tokenizer_stream_put(&d, (unsigned char)cases[i].bytes[k], &b,
                                     NULL),
                PL_OK);
            assert_string_equal(b.s, cases[i].after[k]);
        }
        assert_int_equal(tokenizer_stream_end(&d, &b, NULL), PL_OK);
    }
    text_buf_fini(&b);
    tokenizer_stream_init(&d, t, 0);
    assert_int_equal(tokenizer_stream_put(&d, 0xe2, &b, NULL), PL_OK);
    assert_int_equal(tokenizer_stream_put(&d, 0x96, &b, NULL), PL_OK);
    assert_int_equal(tokenizer_stream_put(&d, -1, &b, NULL), PL_OK);
    assert_string_equal(b.s, "");
    assert_int_equal(tokenizer_stream_end(&d, &b, NULL), PL_OK);
    /* two bytes of one incomplete character give one replacement character */
    assert_string_equal(b.s, "\xef\xbf\xbd");
    text_buf_fini(&b);
    tokenizer_free(t);
}

TEST(tokenizer_decoding_shows_what_each_type_should)
{
    struct tiny *v = tiny_spm();
    struct tokenizer *t;
    struct text_buf b = {0};
    char s[32];
    int32_t ids[8];
    size_t n;

    add(v, LOW "a" LOW, NORMAL, -1); /* id 259 */
    /* id 260, a user-defined token, whose text is not changed */
    add(v, "u" LOW, USER, -1);
    /* id 261, an unused token, which gives no text */
    add(v, "unused", UNUSED, -1);
    /* id 262, of type byte but not a byte, so it gives its own text */
    add(v, "<0xZZ>", BYTE, -1);
    t = create(v);
    assert_int_equal(tokenizer_piece(t, 259, 0, s, sizeof s), 3);
    assert_memory_equal(s, " a ", 3);
    /* the result is cut to one byte, but the full length is returned */
    assert_int_equal(tokenizer_piece(t, 259, 0, s, 1), 3);
    assert_int_equal(tokenizer_piece(t, 259, 0, NULL, 0), 3);
    assert_int_equal(tokenizer_piece(t, 260, 0, s, sizeof s), 4);
    assert_int_equal(tokenizer_piece(t, 261, TOKENIZER_SHOW_SPECIAL, s, 32), 0);
    assert_int_equal(tokenizer_piece(t, 3 + 'A', 0, s, sizeof s), 1);
    assert_int_equal(s[0], 'A');
    n = tokenizer_piece(t, 262, 0, s, sizeof s);
    assert_int_equal(n, 6);
    assert_int_equal(tokenizer_piece(t, 2, 0, s, sizeof s), 0);
    assert_int_equal(tokenizer_piece(t, 2, TOKENIZER_SHOW_SPECIAL, s, 32), 4);
    assert_int_equal(tokenizer_piece(t, 263, 0, s, sizeof s), 0);

    ids[0] = 1; /* BOS gives no text: the first blank is still dropped */
    ids[1] = 259;
    ids[2] = 259;
    assert_int_equal(tokenizer_decode(t, ids, 3, TOKENIZER_WHOLE, &b, NULL),
                     PL_OK);
    assert_string_equal(b.s, "a  a ");
    text_buf_fini(&b);
    assert_int_equal(tokenizer_decode(t, ids, 3, 0, &b, NULL), PL_OK);
    /* in the middle of a text no blank is removed */
    assert_string_equal(b.s, " a  a ");
    text_buf_fini(&b);
    tokenizer_free(t);
}

/* ---- hostile texts ------------------------------------------------------- */

enum { SPM, BPE, GEMMA, WORDPIECE, UNIGRAM, N_KIND };

static struct tokenizer *tiny_of_kind(int kind, const char *pre)
{
    struct tiny *v = kind == SPM         ? tiny_spm()
                     : kind == BPE       ? tiny_bpe()
                     : kind == GEMMA     ? tiny_gemma()
                     : kind == WORDPIECE ? tiny_wordpiece()
                                         : tiny_unigram();

    if (kind == BPE) {
        v->pre = pre;
        add(v, "\xc4\xa0\xc4\xa0", NORMAL, 0);
    } else {
        add(v, LOW, NORMAL, -9);
        add(v, LOW LOW, NORMAL, -5);
        add(v, LOW LOW LOW LOW, NORMAL, -4);
    }
    add(v, "a", NORMAL, -9);
    add(v, "aa", NORMAL, -8);
    add(v, "aaaa", NORMAL, -7);
    add(v, "<|a|>", USER, 0);
    add(v, "<<<<<|", USER, 0);
    if (kind == BPE || kind == GEMMA) {
        add_merge(v, kind == BPE ? "\xc4\xa0 \xc4\xa0" : LOW " " LOW);
        add_merge(v, "a a");
        add_merge(v, "aa aa");
    }
    return create(v);
}

static const struct {
    int kind;
    const char *pre;
} kinds[] = {
    {SPM, ""},
    {GEMMA, ""},
    {WORDPIECE, ""},
    {UNIGRAM, ""},
    {BPE, "gpt-2"},
    {BPE, "starcoder"},
    {BPE, "llama-bpe"},
    {BPE, "qwen2"},
    {BPE, "qwen35"},
    {BPE, "gpt-4o"},
    {BPE, "falcon"},
    {BPE, "deepseek-coder"},
    {BPE, "deepseek-llm"},
    {BPE, "deepseek-v3"},
    {BPE, "kimi-k2"},
    {BPE, "tekken"},
    {BPE, "afmoe"},
    {BPE, "tiny_aya"},
    {BPE, "superbpe"},
    {BPE, "exaone-moe"},
    {BPE, "jais-2"},
    {BPE, "youtu"},
    {BPE, "chameleon"},
    {BPE, "viking"},
};

/* Makes characters of all planes, most of them of the first ones. */
static size_t random_text(uint64_t *rng, char *out, int n)
{
    size_t len = 0;

    for (int i = 0; i < n; i++) {
        uint32_t c = (uint32_t)test_below(rng, 1 << (6 + test_below(rng, 16)));

        if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000) || c == 0x2581)
            c = ' ';
        len += letter_write(c, out + len);
    }
    return len;
}

TEST(tokenizer_any_characters_come_back)
{
    uint64_t rng = test_seed();

    for (size_t p = 0; p < sizeof kinds / sizeof kinds[0]; p++) {
        struct tokenizer *t = tiny_of_kind(kinds[p].kind, kinds[p].pre);
        bool lossless = kinds[p].kind != WORDPIECE;

        for (int i = 0; lossless && i < test_draws(100, 10000); i++) {
            char text[4 * 64];

            check_round_trip(
                t, text, random_text(&rng, text, (int)test_below(&rng, 64)));
        }
        tokenizer_free(t);
    }
}

TEST(tokenizer_any_bytes_come_back)
{
    uint64_t rng = test_seed();

    for (int kind = SPM; kind <= GEMMA; kind++) {
        struct tokenizer *t = tiny_of_kind(kind, "llama-bpe");

        for (int round = 0; round < 300; round++) {
            struct token_list l = {0};
            char text[64], back[256];
            size_t len = (size_t)test_below(&rng, 64), n = 0;

            for (size_t i = 0; i < len; i++)
                text[i] = (char)test_below(&rng, 256);
            /* these kinds do not distinguish U+2581 from a blank, so its last
             * byte is avoided */
            if (kind != BPE)
                for (size_t i = 0; i < len; i++)
                    text[i] = text[i] == '\x96' ? 'x' : text[i];
            assert_int_equal(tokenizer_encode(t, text, len, 0, &l, NULL),
                             PL_OK);
            for (int64_t i = 0; i < l.n; i++)
                n += tokenizer_piece(t, l.id[i], 0, back + n, sizeof back - n);
            /* skips the blank that the tokenizer has added before the text */
            if (kind == SPM && len > 0) {
                assert_int_equal(back[0], ' ');
                n--;
                memmove(back, back + 1, n);
            }
            assert_int_equal(n, len);
            assert_memory_equal(back, text, len);
            token_list_fini(&l);
        }
        tokenizer_free(t);
    }
}

/* Quadratic behaviour anywhere would take hours here. */
TEST(tokenizer_megabytes_of_one_character_take_no_time)
{
    static const char *const units[] = {
        "a",        "A",   " ",   "\n", "\t", "7", "<", "'", "\xe4\xb8\x80",
        "\xcc\x81", " \n", " \t", "a ", "A1",
    };
    enum { BYTES = 1 << 20 };
    char *text = test_need(1, BYTES + 8);

    for (size_t p = 0; p < sizeof kinds / sizeof kinds[0]; p++) {
        struct tokenizer *t = tiny_of_kind(kinds[p].kind, kinds[p].pre);

        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            size_t n = strlen(units[u]), len = 0;
            struct token_list l = {0};

            while (len + n <= BYTES / (test_long()    ? 1
                                       : test_brief() ? 64
                                                      : 16)) {
                memcpy(text + len, units[u], n);
                len += n;
            }
            if (kinds[p].kind == WORDPIECE) {
                assert_int_equal(tokenizer_encode(t, text, len, 0, &l, NULL),
                                 PL_OK);
                token_list_fini(&l);
                continue;
            }
            check_round_trip(t, text, len);
            memcpy(text + len, "\xe4\xb8\x80", 3); /* a run that ends */
            check_round_trip(t, text, len + 3);
        }
        tokenizer_free(t);
    }
    free(text);
}

/* ---- contradictory vocabularies ------------------------------------------ */

TEST(tokenizer_contradictions_are_refused_by_name)
{
    struct tiny *v;
    struct gguf_writer *w;

    v = tiny_spm();
    v->model = NULL;
    expect_refusal(writer_of(v), PL_NOT_FOUND, "tokenizer.ggml.model");
    v->model = "rwkv";
    expect_refusal(writer_of(v), PL_UNSUPPORTED, "'rwkv'");
    v->model = "llama";
    v->type[7] = 9;
    expect_refusal(writer_of(v), PL_BAD_FILE, "element 7 of");
    v->n = 0;
    expect_refusal(writer_of(v), PL_BAD_FILE, "is empty");

    assert_int_equal(gguf_writer_create(&w, NULL), PL_OK);
    gguf_put_str(w, "tokenizer.ggml.model", "llama");
    expect_refusal(w, PL_NOT_FOUND, "tokenizer.ggml.tokens");
    assert_int_equal(gguf_writer_create(&w, NULL), PL_OK);
    gguf_put_str(w, "tokenizer.ggml.model", "llama");
    gguf_put_u32(w, "tokenizer.ggml.tokens", 3);
    expect_refusal(w, PL_BAD_FILE, "not an array of strings");
    assert_int_equal(gguf_writer_create(&w, NULL), PL_OK);
    v = tiny_spm();
    gguf_put_str(w, "tokenizer.ggml.model", "llama");
    gguf_put_strs(w, "tokenizer.ggml.tokens", v->str, v->n);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, v->n - 1);
    expect_refusal(w, PL_BAD_FILE, "258 elements for 259 tokens");
    assert_int_equal(gguf_writer_create(&w, NULL), PL_OK);
    gguf_put_str(w, "tokenizer.ggml.model", "llama");
    gguf_put_strs(w, "tokenizer.ggml.tokens", v->str, v->n);
    gguf_put_strs(w, "tokenizer.ggml.scores", v->str, v->n);
    expect_refusal(w, PL_BAD_FILE, "tokenizer.ggml.scores is not a number");

    v = tiny_bpe();
    expect_refusal(writer_of(v), PL_NOT_FOUND, "tokenizer.ggml.merges");
    add_merge(v, "a b");
    add_merge(v, "ab");
    expect_refusal(writer_of(v), PL_BAD_FILE, "element 1 of");
    v->pre = NULL;
    expect_refusal(writer_of(v), PL_UNSUPPORTED, "tokenizer.ggml.pre");
}

TEST(tokenizer_odd_vocabularies_are_used_as_they_are)
{
    struct tiny *v = tiny_bpe();
    struct tokenizer *t;

    v->str['q'].len = 0; /* without a token for 'q' the letter is dropped */
    add(v, "", USER, 0);
    add(v, "ab", NORMAL, 0);
    /* of two tokens with the same text the last one counts */
    add(v, "ab", NORMAL, 0);
    add_merge(v, "a b");
    add_merge(v, "a b");
    add_merge(v, "never seen");
    t = create(v);
    assert_string_equal(pieces(t, "abqc", 0), "ab|c");
    assert_int_equal(tokenizer_find(t, "ab", 2), 258);
    assert_int_equal(tokenizer_find(t, "", 0), -1);
    assert_int_equal(tokenizer_n_vocab(t), 259);
    tokenizer_free(t);
}

TEST(tokenizer_survives_every_failed_allocation)
{
    static const char text[] = "aaaa  <|a|> aa \xc3\xa9\n\n12";
    unsigned flags = TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL;

    for (int kind = 0; kind < N_KIND; kind++) {
        struct gguf *g;
        bool failed = true;

        /* writes the vocabulary's file */
        tokenizer_free(tiny_of_kind(kind, "llama-bpe"));
        assert_int_equal(gguf_open(&g, test_temp("tiny.gguf"), NULL), PL_OK);
        for (int n = 1; failed; n++) {
            struct tokenizer *t = NULL;
            struct token_list l = {0};
            struct text_buf b = {0};
            pl_status s;

            alloc_stat_reset();
            alloc_fail_at(n);
            s = tokenizer_create(&t, g, NULL);
            if (s == PL_OK)
                s = tokenizer_encode(t, text, strlen(text), flags, &l, NULL);
            if (s == PL_OK)
                s = tokenizer_decode(t, l.id, l.n, 0, &b, NULL);
            failed = alloc_fail_off();
            /* compiling the pre-tokenizer's pattern to machine code may fail
             * without an error */
            assert_true(s == PL_OK || (failed && s == PL_NO_MEMORY));
            tokenizer_free(t);
            token_list_fini(&l);
            text_buf_fini(&b);
            assert_int_equal(alloc_stat_get().live_bytes, 0);
        }
        gguf_close(g);
    }
}

TEST(tokenizer_failed_encoding_leaves_the_list_alone)
{
    struct tokenizer *t = tiny_of_kind(1, "gpt-2");
    struct token_list l = {0};
    bool failed = true;

    assert_int_equal(tokenizer_encode(t, "a", 1, 0, &l, NULL), PL_OK);
    for (int n = 1; failed; n++) {
        char text[300];
        pl_status s;

        /* more pieces than the list has space for */
        memset(text, '!', sizeof text);
        alloc_fail_at(n);
        s = tokenizer_encode(t, text, sizeof text, 0, &l, NULL);
        failed = alloc_fail_off();
        if (s != PL_OK)
            assert_int_equal(l.n, 1);
        assert_int_equal(l.id[0], tokenizer_find(t, "a", 1));
        l.n = 1;
    }
    token_list_fini(&l);
    tokenizer_free(t);
}
