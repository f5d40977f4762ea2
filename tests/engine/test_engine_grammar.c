/* Samplers with a grammar, through pl.h, produce only text of the grammar, over
 * the tokens of the bundled model and random logits. */
#include "lib/support.h"

#include "engine/engine.h"
#include "engine/token_texts.h"
#include "lib/alloc_fail.h"
#include "pl.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pl_tokenizer *words_open(void)
{
    pl_tokenizer *t = NULL;
    pl_err err = {0};

    TEST_OK(pl_tokenizer_open(&t, test_model(), &err), err);
    return t;
}

static pl_grammar *grammar_of(const pl_tokenizer *t, const char *gbnf)
{
    pl_grammar *g = NULL;
    pl_err err = {0};

    TEST_OK(pl_grammar_create(&g, t, PL_GRAMMAR_GBNF, gbnf, strlen(gbnf), NULL,
                              &err),
            err);
    return g;
}

static pl_sampler *sampler_of(int64_t n_vocab, uint64_t seed)
{
    pl_sampler *s = NULL;
    pl_sampling o;
    pl_err err = {0};

    pl_sampling_init(&o);
    o.seed = seed;
    TEST_OK(pl_sampler_create(&s, &o, n_vocab, &err), err);
    return s;
}

/* Appends to `text` what the sampler generates from random logits, in which the
 * end is likely: the most tokens, or up to the end. */
static int write_on(const pl_tokenizer *t, pl_sampler *s, int64_t n_vocab,
                    uint64_t *rng, int most, struct test_text *text)
{
    float *x = test_need((size_t)n_vocab, sizeof *x);
    pl_detokenizer *d = NULL;
    pl_err err = {0};
    int n = 0;

    TEST_OK(pl_detokenizer_create(&d, t, false, &err), err);
    for (; n < most; n++) {
        const char *piece;
        int32_t id;

        for (int64_t i = 0; i < n_vocab; i++)
            x[i] = (float)(4 * test_unit(rng)) +
                   (pl_token_is_eog(t, (int32_t)i) ? 20.0f : 0.0f);
        id = pl_sample(s, x);
        assert_int_equal(pl_sampler_status(s, &err), PL_OK);
        assert_true(id >= 0 && id < n_vocab);
        if (pl_token_is_eog(t, id))
            break;
        piece = pl_detokenize(d, id);
        test_text_add(text, piece, strlen(piece));
    }
    pl_detokenizer_free(d);
    free(x);
    return n;
}

/* The logits have more tokens than the tokenizer: these are never chosen. */
TEST(grammar_ends_exactly_where_the_text_is_whole)
{
    pl_tokenizer *t = words_open();
    int64_t n_vocab = pl_tokenizer_n_vocab(t) + 40;
    pl_grammar *g = grammar_of(t, "root ::= (\"ab\" \"\\u00e9\"){3} | \"xyz\"");
    uint64_t rng = test_seed();
    pl_err err = {0};
    int n_long = 0;

    for (uint64_t seed = 0; seed < 20; seed++) {
        pl_sampler *s = sampler_of(n_vocab, seed);
        struct test_text text = {0};

        TEST_OK(pl_sampler_set_grammar(s, g, &err), err);
        write_on(t, s, n_vocab, &rng, 100, &text);
        if (strcmp(text.s, "xyz") != 0)
            assert_string_equal(text.s, "ab\xc3\xa9"
                                        "ab\xc3\xa9"
                                        "ab\xc3\xa9");
        n_long += text.n > 3;
        free(text.s);
        /* A new text with the grammar, and then one without it, which ends at
         * once. */
        text = (struct test_text){0};
        TEST_OK(pl_sampler_set_grammar(s, g, &err), err);
        assert_true(write_on(t, s, n_vocab, &rng, 100, &text) > 0);
        TEST_OK(pl_sampler_set_grammar(s, NULL, &err), err);
        assert_int_equal(write_on(t, s, n_vocab, &rng, 100, &text), 0);
        free(text.s);
        pl_sampler_free(s);
    }
    assert_true(n_long > 0 && n_long < 20);
    pl_grammar_free(g);
    pl_tokenizer_free(t);
}

TEST(grammar_samplers_tell_why_there_is_no_token)
{
    static const char text[] = "{\"enum\": [1], \"not\": {}}";
    pl_tokenizer *t = words_open();
    int64_t n_vocab = pl_tokenizer_n_vocab(t);
    pl_grammar *g = grammar_of(t, "root ::= \"a\"");
    float *x = test_need((size_t)n_vocab, sizeof *x);
    pl_sampler *s = sampler_of(n_vocab, 1);
    pl_err err = {0};
    int32_t a;

    for (int64_t i = 0; i < n_vocab; i++)
        x[i] = 1;
    TEST_OK(pl_sampler_set_grammar(s, g, &err), err);
    a = pl_sample(s, x);
    assert_true(a >= 0);
    TEST_OK(pl_sampler_set_grammar(s, g, &err), err);
    x[a] = -INFINITY;
    assert_int_equal(pl_sample(s, x), -1);
    assert_int_equal(pl_sampler_status(s, &err), PL_BAD_FILE);
    assert_non_null(strstr(err.message, "that the grammar allows"));
    x[a] = 1;
    assert_int_equal(pl_sample(s, x), a); /* no token had been chosen */
    assert_int_equal(pl_sampler_status(s, NULL), PL_OK);
    pl_sampler_free(s);
    pl_grammar_free(g);

    assert_int_equal(pl_grammar_create(&g, t, PL_GRAMMAR_JSON_SCHEMA, text,
                                       strlen(text), "s", &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "s: #: the schema allows no"));
    assert_null(g);
    assert_int_equal(
        pl_grammar_create(&g, t, (pl_grammar_form)7, text, 2, NULL, &err),
        PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "grammar: unknown grammar form 7"));
    free(x);
    pl_tokenizer_free(t);
}

/* ---- shared grammars ----------------------------------------------------- */

struct writer {
    const pl_tokenizer *t;
    pl_grammar *g;
    uint64_t seed;
    struct test_text text;
    pthread_t thread;
};

static void *write_all(void *user)
{
    struct writer *w = user;
    int64_t n_vocab = pl_tokenizer_n_vocab(w->t);
    pl_sampler *s = sampler_of(n_vocab, w->seed);
    uint64_t rng = w->seed;

    for (int i = 0; i < 4; i++) {
        assert_int_equal(pl_sampler_set_grammar(s, w->g, NULL), PL_OK);
        write_on(w->t, s, n_vocab, &rng, 60, &w->text);
    }
    pl_sampler_free(s);
    return NULL;
}

/* Threads that share a grammar write the same as one sampler alone. */
TEST(grammar_threads_may_share_one)
{
    enum { N = 4 };
    pl_tokenizer *t = words_open();
    pl_grammar *g = grammar_of(t, "root ::= \"[\" (root | [a-z]{3,9})* \"]\"");
    struct writer alone[N], among[N];

    for (int i = 0; i < N; i++) {
        pl_grammar *own =
            grammar_of(t, "root ::= \"[\" (root | [a-z]{3,9})* \"]\"");

        alone[i] = (struct writer){.t = t, .g = own, .seed = (uint64_t)i};
        among[i] = (struct writer){.t = t, .g = g, .seed = (uint64_t)i};
        write_all(&alone[i]);
        pl_grammar_free(own);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(
            pthread_create(&among[i].thread, NULL, write_all, &among[i]), 0);
    for (int i = 0; i < N; i++) {
        pthread_join(among[i].thread, NULL);
        assert_string_equal(alone[i].text.s, among[i].text.s);
        free(alone[i].text.s);
        free(among[i].text.s);
    }
    pl_grammar_free(g);
    pl_tokenizer_free(t);
}

static pl_status use_all(const pl_tokenizer *t, pl_sampler *s, const float *x)
{
    static const char text[] = "root ::= [a-z]* \".\"";
    pl_grammar *g = NULL;
    pl_status st = pl_grammar_create(&g, t, PL_GRAMMAR_GBNF, text, strlen(text),
                                     "g", NULL);

    assert_int_equal(g != NULL, st == PL_OK);
    if (st == PL_OK)
        st = pl_sampler_set_grammar(s, g, NULL);
    for (int i = 0; i < 2 && st == PL_OK; i++)
        st = pl_sample(s, x) < 0 ? pl_sampler_status(s, NULL) : PL_OK;
    assert_int_equal(pl_sampler_set_grammar(s, NULL, NULL), PL_OK);
    pl_grammar_free(g);
    return st;
}

TEST(grammar_samplers_survive_failed_allocations)
{
    pl_tokenizer *t = words_open();
    int64_t n_vocab = pl_tokenizer_n_vocab(t);
    float *x = test_need((size_t)n_vocab, sizeof *x);
    pl_sampler *s = sampler_of(n_vocab, 1);

    for (int64_t i = 0; i < n_vocab; i++)
        x[i] = (float)(i % 7);
    pl_grammar_free(grammar_of(t, "root ::= \"a\"")); /* the tokenizer keeps its
                                                       * texts from now on */
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(use_all(t, s, x));
    free(x);
    pl_sampler_free(s);
    pl_tokenizer_free(t);
}

static pl_status take_texts(const pl_tokenizer *t)
{
    struct token_texts *texts = NULL;
    struct grammar_vocab *v = NULL;
    pl_status s = token_texts_create(&texts, engine_words(t), NULL);

    for (int marks = 0; marks < 2 && s == PL_OK; marks++) {
        s = token_texts_take(texts, marks, &v, NULL);
        assert_int_equal(v != NULL, s == PL_OK);
        grammar_vocab_free(v);
    }
    token_texts_free(texts);
    return s;
}

TEST(grammar_texts_of_a_vocabulary_leave_nothing)
{
    pl_tokenizer *t = words_open();

    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(take_texts(t));
    pl_tokenizer_free(t);
}

/* A grammar needs its tokenizer only while it is made. */
TEST(grammar_outlives_its_tokenizer)
{
    pl_tokenizer *t = words_open();
    int64_t n_vocab = pl_tokenizer_n_vocab(t);
    pl_grammar *a = grammar_of(t, "root ::= [0-9]+"),
               *b = grammar_of(t, "root ::= [a-z]+");
    pl_sampler *s = sampler_of(n_vocab, 1);
    float *x = test_need((size_t)n_vocab, sizeof *x);
    pl_err err = {0};

    pl_tokenizer_free(t);
    pl_grammar_free(a);
    TEST_OK(pl_sampler_set_grammar(s, b, &err), err);
    for (int i = 0; i < 4; i++)
        assert_true(pl_sample(s, x) >= 0);
    free(x);
    pl_sampler_free(s);
    pl_grammar_free(b);
}

static void *prepare(void *sampler)
{
    pl_sampler_prepare(sampler);
    return NULL;
}

/* Prepared twice in a row, on another thread, or not at all: the same
 * tokens. */
TEST(grammar_masks_prepared_ahead_change_no_token)
{
    enum { N = 60 };
    pl_tokenizer *t = words_open();
    int64_t n_vocab = pl_tokenizer_n_vocab(t);
    pl_grammar *g = grammar_of(t, "root ::= ([a-m] [n-z])+");
    pl_grammar *next;
    pl_sampler *a = sampler_of(n_vocab, 7), *b = sampler_of(n_vocab, 7);
    float *x = test_need((size_t)n_vocab, sizeof *x);
    uint64_t rng = test_seed();
    pl_err err = {0};

    pl_sampler_prepare(a); /* without a grammar there is nothing to do */
    TEST_OK(pl_sampler_set_grammar(a, g, &err), err);
    TEST_OK(pl_sampler_set_grammar(b, g, &err), err);
    for (int i = 0; i < N; i++) {
        pthread_t thread;
        int32_t id;

        for (int64_t k = 0; k < n_vocab; k++)
            x[k] = (float)test_unit(&rng);
        for (int k = i % 3; k > 0; k--) {
            assert_int_equal(pthread_create(&thread, NULL, prepare, a), 0);
            pthread_join(thread, NULL);
        }
        id = pl_sample(a, x);
        assert_true(id >= 0);
        assert_int_equal(pl_sample(b, x), id);
    }
    /* A mask prepared for one grammar is not used for the next. */
    pl_sampler_prepare(a);
    next = grammar_of(t, "root ::= \"#\"");
    TEST_OK(pl_sampler_set_grammar(a, next, &err), err);
    TEST_OK(pl_sampler_set_grammar(b, next, &err), err);
    assert_int_equal(pl_sample(a, x), pl_sample(b, x));
    free(x);
    pl_sampler_free(a);
    pl_sampler_free(b);
    pl_grammar_free(g);
    pl_grammar_free(next);
    pl_tokenizer_free(t);
}
