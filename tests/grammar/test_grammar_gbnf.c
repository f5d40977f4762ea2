/* GBNF grammars accept the texts they should, and wrong ones get a clear
 * error. */
#include "lib/support.h"

#include "grammar/grammar.h"
#include "lib/alloc_fail.h"

#include <stdlib.h>
#include <string.h>

static struct grammar *read_grammar(const char *text)
{
    struct grammar *g = NULL;
    pl_err err = {0};

    TEST_OK(grammar_from_gbnf(&g, text, strlen(text), NULL, "test", &err), err);
    return g;
}

/* Returns true if the grammar accepts the text, byte by byte. */
static bool takes(const struct grammar *g, const char *text)
{
    struct grammar_vocab *v = NULL;
    struct grammar_masks *m = NULL;
    struct grammar_state *s = NULL;
    pl_err err = {0};
    bool whole;

    TEST_OK(grammar_vocab_create(&v, NULL, 0, &err), err);
    TEST_OK(grammar_masks_create(&m, g, v, 0, &err), err);
    TEST_OK(grammar_state_create(&s, m, &err), err);
    whole = grammar_accept_text(s, text, strlen(text), &err) == PL_OK &&
            grammar_is_whole(s);
    grammar_state_free(s);
    grammar_masks_free(m);
    grammar_vocab_free(v);
    return whole;
}

/* Fails the case unless the grammar accepts all texts of `in` and none of
 * `out`; both lists end with NULL. */
static void expect_texts(const char *grammar, const char *const *in,
                         const char *const *out)
{
    struct grammar *g = read_grammar(grammar);

    for (; *in; in++)
        if (!takes(g, *in))
            fail_msg("%s\ndoes not take \"%s\"", grammar, *in);
    for (; *out; out++)
        if (takes(g, *out))
            fail_msg("%s\ntakes \"%s\"", grammar, *out);
    grammar_free(g);
}

#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(gbnf_means_what_it_says)
{
    expect_texts("root ::= \"a\\n\\x41\\u00e9\\U0001F600\\\\\\\"\\[\\]\"",
                 TEXTS("a\nA\xc3\xa9\xf0\x9f\x98\x80\\\"[]"), TEXTS("", "a"));
    expect_texts("root ::= [a-cx\\]-]+", TEXTS("a", "cab-x]", "]"),
                 TEXTS("", "d", "w", "\\"));
    expect_texts("root ::= [^a-c\\n]",
                 TEXTS("d", " ", "\xc3\xa9", "\xe7\x8c\xab"),
                 TEXTS("a", "\n", "", "de", "\xc3", "\xed\xa0\x80"));
    expect_texts("root ::= .", TEXTS("a", "\n", "\xf4\x8f\xbf\xbf"),
                 TEXTS("", "\xf4\x90\x80\x80", "\xc0\x80", "\xff"));
    expect_texts("root ::= \"a\" | \"b\" \"c\" |", TEXTS("a", "bc", ""),
                 TEXTS("b", "c", "ab"));
    expect_texts("root ::= (\"a\" |\n \"b\")* # comment\n", TEXTS("", "abba"),
                 TEXTS("c", "abc"));
    expect_texts("root ::= \"ab\"{2} \"c\"{1,} \"d\"{0,2} \"e\"? \"f\"+ # x",
                 TEXTS("ababcf", "ababcccddeff"),
                 TEXTS("abcf", "ababf", "ababcdddf", "ababceef", "ababc"));
    expect_texts("root ::=\n \"a\" |\n x_1-b\nx_1-b ::= \"c\"\n",
                 TEXTS("a", "c"), TEXTS("x"));
}

TEST(gbnf_rules_may_call_themselves)
{
    expect_texts("root ::= \"(\" root \")\" root | \"\"",
                 TEXTS("", "()", "(())()", "((()())())"),
                 TEXTS("(", ")", "(()", "())"));
    expect_texts("root ::= e\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"",
                 TEXTS("1", "12+(3+4)+5", "((7))"),
                 TEXTS("", "+", "1+", "(1", "1)"));
    expect_texts("root ::= \"a\" root \"a\" | \"b\" root \"b\" | \"c\"",
                 TEXTS("c", "abcba", "bbacabb"), TEXTS("abcab", "ac", "ca"));
    expect_texts("root ::= a a a \"x\"\na ::= b?\nb ::= \"y\" | \"z\" b",
                 TEXTS("x", "yx", "zyzzyyx"), TEXTS("yyyyx", "zx"));
}

TEST(gbnf_nesting_has_an_end)
{
    enum { N = 3000 };
    struct grammar *g = read_grammar("root ::= \"[\" root \"]\" | \"x\"");
    char *text = test_need(2 * N + 2, 1);

    memset(text, '[', N);
    text[N] = 'x';
    memset(text + N + 1, ']', N);
    assert_false(takes(g, text));
    memset(text, 0, 2 * N + 2);
    memset(text, '[', 1900);
    text[1900] = 'x';
    memset(text + 1901, ']', 1900);
    assert_true(takes(g, text));
    free(text);
    grammar_free(g);
}

static void expect_error(const char *text, const char *message)
{
    struct grammar *g = NULL;
    pl_err err = {0};

    assert_int_equal(
        grammar_from_gbnf(&g, text, strlen(text), NULL, "g.gbnf", &err),
        PL_BAD_ARGUMENT);
    assert_null(g);
    if (!strstr(err.message, message))
        fail_msg("%s\nsays: %s\nnot: %s", text, err.message, message);
}

TEST(gbnf_mistakes_have_a_place_and_a_remedy)
{
    expect_error("", "line 1, column 1: the start rule root is missing");
    expect_error("root ::= \"a\"\nx = \"b\"",
                 "g.gbnf: line 2, column 3: ::= is missing");
    expect_error("root ::= \"\xc3\xa9\" a b",
                 "line 1, column 14: the rule a is not defined; define it");
    expect_error("root ::= \"a", "line 1, column 10: the literal does not end");
    expect_error("root ::= [a", "line 1, column 10: the class does not end");
    expect_error("root ::= []", "column 10: the class is empty");
    expect_error("root ::= [\\ud800-\\udfff]", "the class is empty");
    expect_error("root ::= [z-a]", "column 11: the range is reversed");
    expect_error("root ::= \"\\q\"", "column 12: unknown escape");
    expect_error("root ::= \"\\x4\"", "column 14: a hexadecimal digit");
    expect_error("root ::= \"\\UFFFFFFFF\"", "the last one is \\U0010FFFF");
    expect_error("root ::= \"\\ud83d\"", "half of a surrogate pair");
    expect_error("root ::= \"\xff\"", "column 11: not valid UTF-8");
    expect_error("root ::= *", "nothing precedes the repetition");
    expect_error("root ::= \"a\"{3,2}",
                 "column 13: the repetition is reversed");
    expect_error("root ::= \"a\"{x}", "column 14: a number is missing");
    expect_error("root ::= \"a\"{2", "column 15: the repetition does not end");
    expect_error("root ::= \"a\"{10001}", "has at most 10,000");
    expect_error("root ::= (\"a\"", "column 10: the group does not end");
    expect_error("root ::= \"a\")", "column 13: no group is open");
    expect_error("root ::= \"a\"\n | \"b\"",
                 "line 2, column 2: the rule ended");
    expect_error("root ::= \"a\"\nroot ::= \"b\"", "root is already defined");
    expect_error("root ::= <think>", "there is no vocabulary");
    expect_error("root ::= 'a'", "expected a literal");
}

TEST(gbnf_bounds_are_told)
{
    char deep[96] = "root ::= ";

    memset(deep + strlen(deep), '(', 80);
    expect_error(deep, "line 1, column 74: groups nest deeper than 64");
    expect_error("root ::= ((\"a\"{1000}){1000}){1000}",
                 "line 1, column 1: the rules up to root are too large");
    expect_error("root ::= (\"a\"?){10000}", "has too many states at once");
    expect_error("root ::= \"a\"{0,1000000000}", "has at most 10,000");
}

TEST(gbnf_repeated_and_empty_parts_mean_no_more_than_they_say)
{
    expect_texts("root ::= ((a*)*)*\na ::= \"a\"*", TEXTS("", "a", "aaaa"),
                 TEXTS("b", "ab"));
    expect_texts("root ::= | | ( | ) | \"a\" root |", TEXTS("", "a", "aaaa"),
                 TEXTS("b", "ab"));
}

/* Both readings of the text continue in parallel, each with two returns at
 * every level. The common stack below the two is shared at every byte. */
TEST(gbnf_ambiguous_texts_take_no_longer_at_each_level)
{
    enum { N = 1000 };
    struct grammar *g = read_grammar("root ::= t \"x\" | \"a\" t \"y\"\n"
                                     "t ::= \"aa\" t \"b\" | \"aa\" t \"c\" |"
                                     " \"a\" z | z\n"
                                     "z ::= \"z\" | \"z\" z \"w\"\n");
    char text[N + N / 2 + 8];

    memset(text, 'a', N);
    text[N] = 'z';
    memset(text + N + 1, 'b', N / 2);
    strcpy(text + N + 1 + N / 2, "x");
    assert_true(takes(g, text));
    strcpy(text + N + 1 + N / 2 - 1, "y");
    assert_true(takes(g, text));
    strcpy(text + N + 1 + N / 2 - 1, "x");
    assert_false(takes(g, text));
    grammar_free(g);
}

/* In a text of 8,000 letters each may be the one after which 9,000 must follow,
 * so the parser would have to keep a state for each. */
TEST(gbnf_too_many_open_ways_are_refused)
{
    enum { N = 8000 };
    struct grammar *g = read_grammar("root ::= [a-z]* [b-d] [a-z]{9000} \"0\"");
    struct grammar_vocab *v = NULL;
    struct grammar_masks *m = NULL;
    struct grammar_state *s = NULL;
    char *text = test_need(N, 1);
    uint64_t rng = test_seed();
    pl_err err = {0};

    for (int i = 0; i < N; i++)
        text[i] = (char)('a' + test_below(&rng, 4));
    TEST_OK(grammar_vocab_create(&v, NULL, 0, &err), err);
    TEST_OK(grammar_masks_create(&m, g, v, 0, &err), err);
    TEST_OK(grammar_state_create(&s, m, &err), err);
    assert_int_equal(grammar_accept_text(s, text, N, &err), PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "is too ambiguous here"));
    /* the rejected text has not changed the state */
    TEST_OK(grammar_accept_text(s, text, 100, &err), err);
    grammar_state_free(s);
    grammar_masks_free(m);
    grammar_vocab_free(v);
    grammar_free(g);
    free(text);
}

TEST(gbnf_left_recursion_is_named)
{
    expect_error("root ::= root \"a\" | \"b\"",
                 "line 1, column 1: left recursion: the rule root begins with "
                 "itself; write");
    expect_error(
        "root ::= e\n e ::= x t | \"b\"\nt ::= \"c\"\nx ::= t? e \"d\"",
        "line 2, column 2: left recursion: the rule e begins with itself, "
        "through x");
    expect_error("root ::= \"x\" a\na ::= \"y\" a",
                 "line 2, column 1: the rule a can never end");
}

TEST(gbnf_allocation_failures_leave_nothing)
{
    static const char text[] =
        "root ::= (\"a\" | x){2} x*\nx ::= \"(\" root \")\" | [^a-z]+";

    for (int64_t n = 0; alloc_each(&n);) {
        struct grammar *g = NULL;

        alloc_ran(grammar_from_gbnf(&g, text, strlen(text), NULL, "g", NULL));
        grammar_free(g);
    }
}
