/* Small tokenizers trained by other packages give the same ids as those:
 * `tokenizers` for each pre-tokenizer, WordPiece and Unigram, `sentencepiece`
 * for Unigram. tests/tools/train_tokenizers.py wrote the files of
 * tests/refs/tokenizers; the long tier has it write others. */
#include "lib/support.h"

#include "gguf/gguf_write.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char separator[] = "\n__ggml_vocab_test__\n";

/* Checks one text of texts.inp with its ids on the next line of `ids`. */
static void check_text(const struct tokenizer *t, const char *what,
                       const char *text, size_t len, const char **ids,
                       bool lossless)
{
    struct token_list got = {0};
    struct text_buf back = {0};
    const char *p = *ids;
    bool same = true;
    char *next;
    pl_err err;

    TEST_OK(tokenizer_encode(t, text, len, 0, &got, &err), err);
    if (*p == '?')
        /* "?": several results are equally good, and the other package's choice
         * is arbitrary */
        p++;
    else
        for (int64_t i = 0; i < got.n && same; i++, p = next)
            same = *p == ' ' && strtol(p, &next, 10) == got.id[i];
    if (!same || *p != '\n') {
        printf("%s: '%.*s' gives", what, (int)len, text);
        for (int64_t i = 0; i < got.n; i++)
            printf(" %d", (int)got.id[i]);
        fail_msg("wanted%.*s", (int)strcspn(*ids, "\n"), *ids);
    }
    *ids = p + 1;
    TEST_OK(tokenizer_decode(t, got.id, got.n, TOKENIZER_WHOLE, &back, &err),
            err);
    if (lossless && len > 0) {
        assert_int_equal(back.n, len);
        assert_memory_equal(back.s, text, len);
    }
    token_list_fini(&got);
    text_buf_fini(&back);
}

/* Checks all texts of a folder, with the vocabulary in `g` and the ids in
 * NAME.out. */
static void check_texts(const struct gguf *g, const char *folder,
                        const char *name, bool lossless)
{
    char path[4200];
    size_t n_in, n_out;
    char *in, *out;
    const char *ids;
    struct tokenizer *t;
    pl_err err = {0};

    if (tokenizer_create(&t, g, &err))
        fail_msg("%s: %s", name, err.message);
    snprintf(path, sizeof path, "%s/texts.inp", folder);
    in = test_read(path, &n_in);
    snprintf(path, sizeof path, "%s/%s.out", folder, name);
    ids = out = test_read(path, &n_out);
    for (const char *text = in, *end; text < in + n_in;
         text = end + strlen(separator)) {
        end = memmem(text, (size_t)(in + n_in - text), separator,
                     strlen(separator));
        assert_non_null(end);
        check_text(t, name, text, (size_t)(end - text), &ids, lossless);
    }
    /* every line of expected ids was compared */
    assert_int_equal(ids - out, n_out);
    free(in);
    free(out);
    tokenizer_free(t);
}

static struct gguf *open_in(const char *folder, const char *name)
{
    struct gguf *g = NULL;
    char path[4200];
    pl_err err = {0};

    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    if (gguf_open(&g, path, &err))
        fail_msg("%s", err.message);
    return g;
}

/* Returns a copy of the vocabulary with another pre-tokenizer. */
static struct gguf *with_pre(const struct gguf *g, const char *pre)
{
    struct gguf_writer *w = NULL;
    const char *path = test_temp("pre.gguf");
    struct gguf *out = NULL;
    pl_err err = {0};

    assert_int_equal(gguf_writer_create(&w, NULL), PL_OK);
    for (int64_t i = 0; i < gguf_n_kv(g); i++)
        if (strcmp(gguf_kv_at(g, i)->key, "tokenizer.ggml.pre") != 0)
            gguf_put_kv(w, gguf_kv_at(g, i));
    gguf_put_str(w, "tokenizer.ggml.pre", pre);
    if (gguf_writer_save(w, path, &err) || gguf_open(&out, path, &err))
        fail_msg("%s", err.message);
    gguf_writer_free(w);
    return out;
}

static void check_folder(const char *folder)
{
    static const char *const pres[] = {
        "gpt-2",    "starcoder",  "llama-bpe",   "dbrx",
        "qwen2",    "qwen35",     "gpt-4o",      "tekken",
        "kimi-k2",  "falcon",     "deepseek-v3", "deepseek-coder",
        "afmoe",    "bailingmoe", "seed-coder",  "exaone-moe",
        "tiny_aya", "superbpe",   "minicpm5",    "jais-2",
        "bloom",    "spark2_5",   "ufakzeka",
    };
    static const char *const others[] = {"wordpiece", "wordpiece-cased",
                                         "unigram", "unigram-bytes",
                                         "unigram-plain"};
    struct gguf *g = open_in(folder, "bpe");

    for (size_t i = 0; i < sizeof pres / sizeof pres[0]; i++) {
        struct gguf *other = with_pre(g, pres[i]);
        char name[64];

        snprintf(name, sizeof name, "bpe-%s", pres[i]);
        check_texts(other, folder, name, true);
        gguf_close(other);
    }
    gguf_close(g);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        g = open_in(folder, others[i]);
        check_texts(g, folder, others[i], false);
        gguf_close(g);
    }
}

TEST(tokenizer_trained_elsewhere_gives_the_same_ids)
{
    const char *folder = test_file("tests/refs/tokenizers");

    assert_non_null(folder);
    check_folder(folder);
}

TEST_LONG(tokenizer_trained_anew_gives_the_same_ids)
{
    const char *script = test_file("tests/tools/train_tokenizers.py");
    const char *folder = test_temp("trained");
    char command[9000];
    int status;

    assert_non_null(script);
    snprintf(command, sizeof command, "python3 '%s' '%s' %llu", script, folder,
             (unsigned long long)test_seed());
    status = system(command);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        TEST_SKIP("Python lacks tokenizers, sentencepiece, protobuf or gguf");
    assert_int_equal(WEXITSTATUS(status), 0);
    check_folder(folder);
}
