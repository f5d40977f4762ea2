/* Grammars of a server: one for each text, for any number of requests, and
 * compiled only once. */
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "server/grammar_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { N_TEXT = GRAMMARS_KEPT + 4, N_THREAD = 3 };

struct place {
    pl_model *model;
    struct grammars g;
};

static void set_up(struct place *p)
{
    pl_err err;

    TEST_OK(pl_model_open(&p->model, test_model(), &err), err);
    grammars_init(&p->g, pl_model_tokenizer(p->model));
}

static void tear_down(struct place *p)
{
    grammars_fini(&p->g);
    pl_model_free(p->model);
}

static pl_grammar *take(struct place *p, int i)
{
    pl_grammar *g = NULL;
    char text[64];
    pl_err err;

    snprintf(text, sizeof text, "root ::= \"a\"{%d}", i + 1);
    TEST_OK(grammars_take(&p->g, PL_GRAMMAR_GBNF, text, "grammar", &g, &err),
            err);
    return g;
}

TEST(server_grammars_are_made_once_and_kept)
{
    pl_grammar *own[N_TEXT], *wrong = NULL;
    struct place p;
    pl_err err;

    set_up(&p);
    for (int i = 0; i < N_TEXT; i++) {
        own[i] = take(&p, i);
        for (int k = 0; k < i; k++)
            assert_ptr_not_equal(own[i], own[k]);
    }
    for (int i = 0; i < N_TEXT; i++) { /* no grammar in use was evicted */
        assert_ptr_equal(take(&p, i), own[i]);
        grammars_give(&p.g, own[i]);
        grammars_give(&p.g, own[i]);
    }
    /* the last used are kept, and a new one replaces the oldest */
    take(&p, N_TEXT);
    assert_int_equal(p.g.n, N_TEXT);
    for (int i = N_TEXT - 1; i > 0; i--) {
        assert_ptr_equal(take(&p, i), own[i]);
        grammars_give(&p.g, own[i]);
    }
    assert_int_equal(grammars_take(&p.g, PL_GRAMMAR_GBNF, "root ::= (",
                                   "grammar", &wrong, &err),
                     PL_BAD_ARGUMENT);
    assert_null(wrong);
    tear_down(&p);
}

static void *take_and_give(void *user)
{
    struct place *p = user;

    for (int i = 0; i < 200; i++) {
        pl_grammar *a = take(p, i % N_TEXT), *b = take(p, i % N_TEXT);

        assert_ptr_equal(a, b);
        grammars_give(&p->g, a);
        grammars_give(&p->g, b);
    }
    return NULL;
}

TEST(server_grammars_are_taken_by_many_threads)
{
    pthread_t thread[N_THREAD];
    struct place p;

    set_up(&p);
    for (int i = 0; i < N_THREAD; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, take_and_give, &p),
                         0);
    for (int i = 0; i < N_THREAD; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < p.g.n; i++)
        assert_int_equal(p.g.entry[i].n_user, 0);
    tear_down(&p);
}

TEST(server_grammars_out_of_memory_give_a_status)
{
    struct place p;

    set_up(&p);
    /* makes the tokenizer allocate its texts before allocations fail */
    grammars_give(&p.g, take(&p, 0));
    for (int64_t n = 0; alloc_each(&n);) {
        struct grammars own;
        pl_grammar *g = NULL;
        pl_err err;
        bool failed;

        grammars_init(&own, p.g.words);
        failed = alloc_ran(grammars_take(
            &own, PL_GRAMMAR_GBNF, "root ::= \"a\"", "grammar", &g, &err));
        assert_true(failed == (g == NULL));
        grammars_give(&own, g);
        grammars_fini(&own);
    }
    tear_down(&p);
}
