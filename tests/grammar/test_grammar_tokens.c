/* Grammars that name tokens of the vocabulary: <[id]>, <text>, and !<...>. */
#include "lib/support.h"

#include "grammar/grammar.h"
#include "lib/alloc_fail.h"

#include <string.h>

/* Token 7 is a control token, whose text matches nothing; token 8 has no text;
 * token 9 begins like the text that stands for a token inside a grammar. */
static const struct grammar_token tokens[] = {
    {"a", 1, GRAMMAR_TOKEN_TEXT},  {"b", 1, GRAMMAR_TOKEN_TEXT},
    {"ab", 2, GRAMMAR_TOKEN_TEXT}, {"<x>", 3, GRAMMAR_TOKEN_TEXT},
    {"<", 1, GRAMMAR_TOKEN_TEXT},  {"x", 1, GRAMMAR_TOKEN_TEXT},
    {">", 1, GRAMMAR_TOKEN_TEXT},  {"<think>", 7, GRAMMAR_TOKEN_NEVER},
    {"", 0, GRAMMAR_TOKEN_TEXT},   {"\xff", 1, GRAMMAR_TOKEN_TEXT},
    {"\0", 1, GRAMMAR_TOKEN_TEXT}, {"<end>", 5, GRAMMAR_TOKEN_END},
};
enum { N = sizeof tokens / sizeof tokens[0], END = N - 1 };

static int32_t find(void *user, const char *text, size_t len)
{
    (void)user;
    for (int32_t i = 0; i < N; i++)
        if (tokens[i].len == len && memcmp(tokens[i].s, text, len) == 0)
            return i;
    return -1;
}

static const struct grammar_tokens known = {.n = N, .find = find};

struct tried {
    struct grammar *g;
    struct grammar_vocab *v;
    struct grammar_masks *m;
    struct grammar_state *s;
};

static void start(struct tried *t, const char *gbnf)
{
    pl_err err = {0};

    *t = (struct tried){0};
    TEST_OK(grammar_from_gbnf(&t->g, gbnf, strlen(gbnf), &known, "g", &err),
            err);
    TEST_OK(grammar_vocab_create(&t->v, tokens, N, &err), err);
    TEST_OK(grammar_masks_create(&t->m, t->g, t->v, 0, &err), err);
    TEST_OK(grammar_state_create(&t->s, t->m, &err), err);
}

static void stop(struct tried *t)
{
    grammar_state_free(t->s);
    grammar_masks_free(t->m);
    grammar_vocab_free(t->v);
    grammar_free(t->g);
}

/* Returns the mask. Each token must be accepted just if it is in it. */
static uint32_t mask(struct tried *t)
{
    uint32_t bits[1];
    pl_err err = {0};

    TEST_OK(grammar_mask(t->s, bits, &err), err);
    for (int32_t i = 0; i < N; i++) {
        struct grammar_state *copy = NULL;
        pl_status s;

        TEST_OK(grammar_state_copy(&copy, t->s, &err), err);
        s = grammar_accept(copy, i, &err);
        grammar_state_free(copy);
        if ((s == PL_OK) != (bits[0] >> i & 1))
            fail_msg("token %d: mask %d, status %d", (int)i,
                     (int)(bits[0] >> i & 1), (int)s);
    }
    return bits[0];
}

static void expect(const char *gbnf, int n, const int32_t *id,
                   const uint32_t *masks)
{
    struct tried t;
    pl_err err = {0};

    start(&t, gbnf);
    for (int i = 0; i <= n; i++) {
        uint32_t bits = mask(&t);

        if (bits != masks[i])
            fail_msg("%s: after %d tokens %x, not %x", gbnf, i, (unsigned)bits,
                     (unsigned)masks[i]);
        if (i < n)
            TEST_OK(grammar_accept(t.s, id[i], &err), err);
    }
    stop(&t);
}

#define BIT(i)     (1u << (i))
#define IDS(...)   ((const int32_t[]){__VA_ARGS__})
#define MASKS(...) ((const uint32_t[]){__VA_ARGS__})
enum { TEXTS = (1 << END) - 1 };

TEST(gbnf_tokens_match_as_a_whole)
{
    expect("root ::= <[0]> <[7]> \"b\"", 3, IDS(0, 7, 1),
           MASKS(BIT(0), BIT(7), BIT(1), BIT(END)));
    expect("root ::= <think> \"a\"", 2, IDS(7, 0),
           MASKS(BIT(7), BIT(0), BIT(END)));
    /* The text of a token is not the token. */
    expect("root ::= <x>", 1, IDS(3), MASKS(BIT(3), BIT(END)));
    expect("root ::= \"<x>\"", 2, IDS(4, 5),
           MASKS(BIT(3) | BIT(4), BIT(5), BIT(6)));
    expect("root ::= \"a\" \"b\" | <[2]> \"x\" | <[0]> \"x\"", 1, IDS(0),
           MASKS(BIT(0) | BIT(2), BIT(1) | BIT(5)));
    expect("root ::= (<[0]> | \"b\"){2,}", 3, IDS(0, 1, 0),
           MASKS(BIT(0) | BIT(1), BIT(0) | BIT(1), BIT(0) | BIT(1) | BIT(END),
                 BIT(0) | BIT(1) | BIT(END)));
}

TEST(gbnf_other_tokens_are_all_but_one)
{
    const uint32_t others = TEXTS & ~BIT(7);

    expect("root ::= !<think>* <[7]>", 4, IDS(2, 9, 8, 7),
           MASKS(TEXTS, TEXTS, TEXTS, TEXTS, BIT(END)));
    expect("root ::= !<[7]> \"a\"", 1, IDS(1), MASKS(others, BIT(0)));
    /* Token 0 as text, and as a token that is not 7. */
    expect("root ::= \"a\" \"b\" | !<think> \"x\"", 1, IDS(0),
           MASKS(others, BIT(1) | BIT(5)));
}

TEST(gbnf_tokens_that_are_wrong_are_named)
{
    static const struct {
        const char *gbnf, *says;
    } rows[] = {
        {"root ::= <[12]>",
         "column 10: the vocabulary has no token of this id"},
        {"root ::= <nothing>", "column 10: the vocabulary has no token of this "
                               "text"},
        {"root ::= <[1>", "a token's id is written <[123]>"},
        {"root ::= <[]>", "a token's id is written <[123]>"},
        {"root ::= <[1]", "the token does not end on its line"},
        {"root ::= <think\n>", "the token does not end on its line"},
        {"root ::= !\"a\"", "! is for tokens of the vocabulary"},
        {"root ::= !", "! is for tokens of the vocabulary"},
    };
    struct grammar *g = NULL;
    pl_err err = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(grammar_from_gbnf(&g, rows[i].gbnf,
                                           strlen(rows[i].gbnf), &known, "g",
                                           &err),
                         PL_BAD_ARGUMENT);
        if (!strstr(err.message, rows[i].says))
            fail_msg("%s: %s", rows[i].gbnf, err.message);
    }
    assert_int_equal(
        grammar_from_gbnf(&g, "root ::= <[1]>", 14, NULL, "g", &err),
        PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "there is no vocabulary"));
}

TEST(gbnf_tokens_survive_failed_allocations)
{
    static const char text[] = "root ::= (<[0]> | !<think>)*";

    for (int64_t n = 0; alloc_each(&n);) {
        struct grammar *g = NULL;

        alloc_ran(grammar_from_gbnf(&g, text, strlen(text), &known, "g", NULL));
        grammar_free(g);
    }
}
