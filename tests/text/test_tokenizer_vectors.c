/* The published vocabularies: every text of refs/vocab gives the ids published
 * with it, and decoding gives the text back if nothing is lost. */
#include "lib/support.h"

#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char separator[] = "\n__ggml_vocab_test__\n";

/* Reads one line of ids; *line moves to the next. */
static int64_t read_ids(const char **line, int32_t *id, int64_t cap)
{
    const char *end = strchr(*line, '\n');
    int64_t n = 0;

    assert_non_null(end);
    for (const char *p = *line; p < end;) {
        char *next;
        long v = strtol(p, &next, 10);

        if (next == p || next > end)
            break;
        assert_true(n < cap);
        id[n++] = (int32_t)v;
        p = next;
    }
    *line = end + 1;
    return n;
}

static void check_text(const struct tokenizer *t, const char *set,
                       const char *text, size_t len, const int32_t *want,
                       int64_t n_want, bool lossless)
{
    struct token_list got = {0};
    struct text_buf back = {0};
    pl_err err;

    TEST_OK(tokenizer_encode(t, text, len, 0, &got, &err), err);
    if (got.n != n_want ||
        (n_want > 0 && memcmp(got.id, want, (size_t)n_want * sizeof *want))) {
        printf("%s: '%.*s' gives", set, (int)len, text);
        for (int64_t i = 0; i < got.n; i++)
            printf(" %d", (int)got.id[i]);
        printf("\nwanted");
        for (int64_t i = 0; i < n_want; i++)
            printf(" %d", (int)want[i]);
        printf("\n");
        fail();
    }
    TEST_OK(tokenizer_decode(t, got.id, got.n, TOKENIZER_WHOLE, &back, &err),
            err);
    if (lossless) {
        assert_int_equal(back.n, len);
        if (len > 0)
            assert_memory_equal(back.s, text, len);
    }
    token_list_fini(&got);
    text_buf_fini(&back);
}

/* Checks cases: `model` is the file with the vocabulary; `set`.inp and .out the
 * cases. Returns false if one of them is not at hand. */
static bool check_set(const char *model, const char *set, bool lossless)
{
    struct tokenizer *t = NULL;
    struct gguf *g = NULL;
    char *in, *out;
    size_t n_in, n_out;
    char name[128];
    const char *path, *line, *text, *end;
    int32_t want[512];
    int n = 0;
    pl_err err = {0};

    path = test_ref(model);
    snprintf(name, sizeof name, "vocab/%s.inp", set);
    if (!path || !test_ref(name))
        return false;
    in = test_read(test_ref(name), &n_in);
    snprintf(name, sizeof name, "vocab/%s.out", set);
    out = test_read(test_ref(name), &n_out);
    if (gguf_open(&g, path, &err) != PL_OK ||
        tokenizer_create(&t, g, &err) != PL_OK)
        fail_msg("%s", err.message);
    gguf_close(g);

    line = out;
    for (text = in; text < in + n_in; text = end + strlen(separator)) {
        int64_t n_want;

        end = memmem(text, (size_t)(in + n_in - text), separator,
                     strlen(separator));
        assert_non_null(end);
        n_want = read_ids(&line, want, 512);
        check_text(t, set, text, (size_t)(end - text), want, n_want, lossless);
        n++;
    }
    /* every line of expected ids was compared */
    assert_int_equal(line - out, n_out);
    assert_true(n > 40);
    tokenizer_free(t);
    free(in);
    free(out);
    return true;
}

TEST(tokenizer_vectors_of_published_vocabularies)
{
    static const struct {
        /* name of the model, and of the vocabulary's file */
        const char *model, *set;
        bool lossless;
    } sets[] = {
#define VOCAB(file) "vocab/" file ".gguf", file ".gguf"
        {VOCAB("ggml-vocab-llama-spm"), true},
        {VOCAB("ggml-vocab-gpt-2"), true},
        {VOCAB("ggml-vocab-mpt"), true},
        {VOCAB("ggml-vocab-starcoder"), true},
        {VOCAB("ggml-vocab-refact"), true},
        {VOCAB("ggml-vocab-deepseek-coder"), true},
        {VOCAB("ggml-vocab-bert-bge"), false},
        {VOCAB("pre-llama-bpe"), true},
        {VOCAB("pre-qwen2"), true},
        {VOCAB("pre-qwen35"), true},
        {"llama-gqa-f32.gguf", "llama-gqa-f32", true},
        {"gemma4-dense-f32.gguf", "gemma4-dense-f32", true},
        {"qwen35moe-f32.gguf", "qwen35moe-f32", true},
    };
    int n = sizeof sets / sizeof sets[0], n_absent = 0;

    for (int i = 0; i < n; i++)
        n_absent += !check_set(sets[i].model, sets[i].set, sets[i].lossless);
    if (n_absent > 0)
        TEST_SKIP("%d of %d published vocabularies are not at hand", n_absent,
                  n);
}
