/* Pass "specialize", text in and text out: where layers are computed and what
 * the host keeps decide which variants the programs have. */
#include "lib/support.h"
#include "lower/variants.h"

#include <stdlib.h>
#include <string.h>

static struct variants *parse(const char *text, struct arena *a)
{
    struct variants *v;
    pl_err err;

    TEST_OK(variants_parse(&v, a, text, strlen(text), &err), err);
    return v;
}

static void prints(const struct variants *v, const char *want)
{
    struct test_text out = {0};

    assert_int_equal(variants_print(v, test_text_add, &out), PL_OK);
    assert_string_equal(out.s, want);
    free(out.s);
}

/* The pass makes `want` of `in`, and of `want` the same again. */
static void chooses(const char *in, const char *want)
{
    for (int i = 0; i < 2; i++) {
        struct arena a = {0};
        struct variants *v = parse(i ? want : in, &a);

        prints(v, i ? want : in);
        variants_choose(v);
        prints(v, want);
        arena_fini(&a);
    }
}

TEST(exec_variants_go_by_where_layers_and_leaves_are)
{
    chooses("variants layers 0, 0, 0\n", "variants layers 0, 0, 0\n"
                                         "resident\n");
    chooses("variants layers 0, 0, 1 stream\n"
            "leaf 7: layer 0 in 0\n",
            "variants layers 0, 0, 1 stream\n"
            "leaf 7: layer 0 in 0\n"
            "resident\n"
            "pipelined micro 8\n");
    /* one of a layer that the host computes, one of a device, one of another */
    chooses("variants layers 0, 2, 0 host 2 stream\n"
            "leaf 3: layer 1 in 2\n"
            "leaf 4: layer 0 in 0\n"
            "leaf 9: layer 2 in 2\n",
            "variants layers 0, 2, 0 host 2 stream\n"
            "leaf 3: layer 1 in 2\n"
            "leaf 4: layer 0 in 0\n"
            "leaf 9: layer 2 in 2 streamed\n"
            "resident\n"
            "streamed n_tok 2..\n"
            "pipelined micro 8\n");
    /* the caller forbids streaming */
    chooses("variants layers 0, 0 host 1\n"
            "leaf 3: layer 1 in 1 streamed\n"
            "streamed n_tok 2..\n",
            "variants layers 0, 0 host 1\n"
            "leaf 3: layer 1 in 1\n"
            "resident\n");
}

TEST(exec_a_step_executes_one_variant)
{
    struct arena a = {0};
    const struct variants *v = parse("variants layers 0, 1 host 2 stream\n"
                                     "resident\n"
                                     "streamed n_tok 5..\n"
                                     "pipelined micro 8\n",
                                     &a);
    const struct variants *one = parse("variants layers 0\nresident\n", &a);

    assert_int_equal(variants_of_step(v, 1, 4), VARIANT_RESIDENT);
    assert_int_equal(variants_of_step(v, 1, 5), VARIANT_STREAMED);
    assert_int_equal(variants_of_step(v, 2, 5), VARIANT_PIPELINED);
    assert_int_equal(variants_of_step(one, 1, 5), VARIANT_RESIDENT);
    arena_fini(&a);
}

TEST(exec_variants_refuse_other_text)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "line 1, column 1: the end of the text where variants layers is "
             "expected"},
        {"variants layers 1024\n",
         "line 1, column 17: '1024' is outside 0 .. 1023"},
        {"variants layers 0, 1\nleaf 3: layer 2 in 0\n",
         "line 2, column 15: '2' is outside 0 .. 1"},
        {"variants layers 0\nstreamed\n",
         "line 2, column 9: the end of the line where n_tok is expected"},
        {"variants layers 0\npipelined micro 17\n",
         "line 2, column 17: '17' is outside 1 .. 16"},
        {"variants layers 0\nforked\n",
         "line 2, column 1: 'forked' where a leaf or a variant is expected"},
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct arena a = {0};
        struct variants *v;
        pl_err err;

        assert_int_equal(
            variants_parse(&v, &a, bad[i].text, strlen(bad[i].text), &err),
            PL_BAD_ARGUMENT);
        assert_string_equal(err.message, bad[i].message);
        assert_null(v);
        arena_fini(&a);
    }
}
