/* Regular expressions: their grammars take the texts that they match, and no
 * others. Random ones are tried against PCRE2. */
#include "lib/support.h"

#include "grammar/grammar.h"
#include "grammar/regex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct tried {
    struct grammar *g;
    struct grammar_vocab *v;
    struct grammar_masks *m;
};

static bool start(struct tried *t, const char *expression, pl_err *err)
{
    *t = (struct tried){0};
    if (grammar_from_regex(&t->g, expression, strlen(expression), "regex",
                           err) != PL_OK)
        return false;
    TEST_OK(grammar_vocab_create(&t->v, NULL, 0, err), *err);
    TEST_OK(grammar_masks_create(&t->m, t->g, t->v, 0, err), *err);
    return true;
}

static void stop(struct tried *t)
{
    grammar_masks_free(t->m);
    grammar_vocab_free(t->v);
    grammar_free(t->g);
}

static bool takes(const struct tried *t, const char *text)
{
    struct grammar_state *s = NULL;
    pl_err err = {0};
    bool whole;

    TEST_OK(grammar_state_create(&s, t->m, &err), err);
    whole = grammar_accept_text(s, text, strlen(text), &err) == PL_OK &&
            grammar_is_whole(s);
    grammar_state_free(s);
    return whole;
}

TEST(regex_means_what_it_says)
{
    static const struct {
        const char *expression, *in[6], *out[6];
    } rows[] = {
        {"a|bc", {"a", "bc"}, {"", "b", "ac", "xa"}},
        {"^a|bc$", {"a", "bc"}, {"", "abc"}},
        {"(^ab$|^c$)", {"ab", "c"}, {"a", "abc"}},
        {"[^a-c\\d]x?", {"d", "-x", "\n"}, {"a", "5", "x\nx"}},
        {"(?:ab){2,3}?c*", {"abab", "abababcc"}, {"ab", "abababab"}},
        {"(?<year>\\d{4})-\\d\\d", {"2024-01"}, {"2024-1", "24-01"}},
        {"\\u00e9\\x41\\u{1F600}\\/",
         {"\xc3\xa9"
          "A\xf0\x9f\x98\x80/"},
         {"e"}},
        {"\\ud83d\\ude00", {"\xf0\x9f\x98\x80"}, {"\xf0\x9f\x98\x81"}},
        {"[\\w.-]+", {"a.b-c_1"}, {"a b", ""}},
        {"[a-\\d]", {"a", "-", "7"}, {"b"}},
        {"a{,2}", {"a{,2}"}, {"a", "aa"}},
        {"x{", {"x{"}, {"x"}},
        {"[]a", {NULL}, {"a", "]a"}},
        {"[^]", {"a", "\n", "\xc3\xa9"}, {"", "ab"}},
        {"(?=ab).{3}", {"abc"}, {"bbc", "ab"}},
        {"(?!ab).{3}", {"aab", "bbb"}, {"abb", "bb"}},
        {"a(?!b)[a-z]*", {"a", "acb"}, {"ab", "abc"}},
        {"a(?=b$)[a-z]*", {"ab"}, {"abc", "a"}},
        {".*(?<!x)", {"", "ab", "xa"}, {"x", "ax"}},
        {".+(?<=yz)b?", {"yz", "ayzb"}, {"y", "zb"}},
        {"(?!.*aa)(?!.*bb)[ab]+", {"aba", "b"}, {"aab", "abb", ""}},
        {"\\p{Lu}\\p{Script=Greek}", {"A\xce\xb1"}, {"Aa", "a\xce\xb1"}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tried t;
        pl_err err = {0};
        bool made = start(&t, rows[i].expression, &err);

        if (!made && rows[i].in[0])
            fail_msg("%s: %s", rows[i].expression, err.message);
        if (!made)
            continue;
        for (int k = 0; k < 6 && rows[i].in[k]; k++)
            if (!takes(&t, rows[i].in[k]))
                fail_msg("%s does not take %s", rows[i].expression,
                         rows[i].in[k]);
        for (int k = 0; k < 6 && rows[i].out[k]; k++)
            if (takes(&t, rows[i].out[k]))
                fail_msg("%s takes %s", rows[i].expression, rows[i].out[k]);
        stop(&t);
    }
}

TEST(regex_what_is_wrong_has_a_place)
{
    static const struct {
        const char *expression;
        pl_status status;
        const char *says;
    } rows[] = {
        {"(a", PL_BAD_ARGUMENT, "at byte 2: a group is not closed"},
        {"a)", PL_BAD_ARGUMENT, "at byte 1: no group is open here"},
        {"*", PL_BAD_ARGUMENT, "at byte 1: this character has no meaning"},
        {"[a", PL_BAD_ARGUMENT, "the pattern ends unexpectedly"},
        {"[b-a]", PL_BAD_ARGUMENT, "the range is reversed"},
        {"a{3,2}", PL_BAD_ARGUMENT, "a repetition must be"},
        {"\\xg0", PL_BAD_ARGUMENT, "\\x takes 2"},
        {"a\\bb", PL_UNSUPPORTED, "this escape is not supported"},
        {"(a)\\1", PL_UNSUPPORTED, "this escape is not supported"},
        {"((?=a)b)*", PL_UNSUPPORTED, "lookaround inside a group"},
        {"a^b", PL_UNSUPPORTED, "^ and $ are supported only at the ends"},
        {"\\p{Nowhere}", PL_UNSUPPORTED, "this property is not known"},
        {"a(?!)b", PL_UNSUPPORTED, "no text matches it"},
        {"(?:a{100}){100}{100}", PL_UNSUPPORTED, "it is too large"},
        {"(?=.*a.{20}c).*", PL_UNSUPPORTED, "it is too large"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tried t;
        pl_err err = {0};

        assert_false(start(&t, rows[i].expression, &err));
        if (err.status != rows[i].status || !strstr(err.message, rows[i].says))
            fail_msg("%s: %d: %s", rows[i].expression, (int)err.status,
                     err.message);
    }
}

/* ---- random expressions -------------------------------------------------- */

static void add(struct test_text *t, const char *s)
{
    test_text_add(t, s, strlen(s));
}

static void random_sequence(struct test_text *t, uint64_t *rng, int depth)
{
    static const char *const atom[] = {"a", "b", "[ab]", "[^a]", ".", "c"};
    static const char *const times[] = {"",  "",  "",    "*",
                                        "+", "?", "{2}", "{1,3}"};

    for (int64_t n = test_below(rng, 4); n >= 0; n--) {
        if (depth > 0 && test_below(rng, 4) == 0) {
            add(t, "(?:");
            random_sequence(t, rng, depth - 1);
            if (test_below(rng, 2)) {
                add(t, "|");
                random_sequence(t, rng, depth - 1);
            }
            add(t, ")");
        } else {
            add(t, atom[test_below(rng, 6)]);
        }
        add(t, times[test_below(rng, 8)]);
    }
}

static void random_expression(struct test_text *t, uint64_t *rng)
{
    static const char *const look[] = {"(?=", "(?!"};

    t->n = 0;
    for (int64_t n = test_below(rng, 3); n > 0; n--) {
        add(t, look[test_below(rng, 2)]);
        random_sequence(t, rng, 1);
        add(t, test_below(rng, 2) ? "$)" : ")");
    }
    random_sequence(t, rng, 2);
    if (test_below(rng, 3) == 0) {
        add(t, test_below(rng, 2) ? "(?<!" : "(?<=");
        add(t, test_below(rng, 2) ? "a)" : "b)");
    }
}

/* Returns true if PCRE2 matches the whole text. Sets *known to false if it
 * gives up. */
static bool pcre_takes(const char *expression, const char *text, bool *known)
{
    char whole[512];
    int why;
    PCRE2_SIZE at;
    pcre2_code *code;
    pcre2_match_data *m = pcre2_match_data_create(1, NULL);
    int rc;

    snprintf(whole, sizeof whole, "^(?:%s)\\z", expression);
    code = pcre2_compile((PCRE2_SPTR)whole, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &why, &at, NULL);
    assert_non_null(code);
    rc = pcre2_match(code, (PCRE2_SPTR)text, strlen(text), 0, 0, m, NULL);
    *known = rc > 0 || rc == PCRE2_ERROR_NOMATCH;
    pcre2_match_data_free(m);
    pcre2_code_free(code);
    return rc > 0;
}

TEST(regex_random_ones_equal_pcre)
{
    uint64_t rng = test_seed();
    struct test_text e = {0};
    int n = test_draws(150, 5000), made = 0;

    for (int i = 0; i < n; i++) {
        struct tried t;
        pl_err err = {0};

        random_expression(&e, &rng);
        test_text_add(&e, "", 1);
        if (!start(&t, e.s, &err)) {
            assert_true(strstr(err.message, "no text matches") ||
                        strstr(err.message, "too large"));
            continue;
        }
        made++;
        for (int k = 0; k < 40; k++) {
            char text[12];
            size_t len = (size_t)test_below(&rng, 9);
            bool known, in;

            for (size_t j = 0; j < len; j++)
                text[j] = "abcd"[test_below(&rng, 4)];
            text[len] = '\0';
            in = pcre_takes(e.s, text, &known);
            if (known && in != takes(&t, text))
                fail_msg("%s: PCRE2 %s %s", e.s, in ? "matches" : "rejects",
                         text);
        }
        stop(&t);
    }
    assert_true(made > n / 2);
    free(e.s);
}
