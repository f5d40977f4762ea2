/* Stop strings over streamed text give the same result as a search of the whole
 * text. */
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "server/json_text.h"
#include "server/stop_strings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool collect(void *user, const char *s, size_t n)
{
    test_text_add(user, s, n);
    return true;
}

/* Returns the length at which the text must end, and the string: the one that
 * ends first, of those the longest. */
static size_t naive(const char *text, const char *const *stop, int n, int *hit)
{
    size_t len = strlen(text);

    *hit = -1;
    for (size_t end = 1; end <= len; end++) {
        for (int i = 0; i < n; i++) {
            size_t l = strlen(stop[i]);

            if (l <= end && memcmp(text + end - l, stop[i], l) == 0 &&
                (*hit < 0 || l > strlen(stop[*hit])))
                *hit = i;
        }
        if (*hit >= 0)
            return end - strlen(stop[*hit]);
    }
    return len;
}

/* Feeds pieces of 1 to `most` bytes. */
static void check(const char *text, const char *const *stop, int n,
                  uint64_t *seed, int64_t most)
{
    struct test_text out = {0};
    struct stops s;
    size_t len = strlen(text), at = 0;
    int hit;
    size_t want = naive(text, stop, n, &hit);
    pl_err err;

    TEST_OK(stop_init(&s, stop, n, &err), err);
    while (at < len) {
        size_t k = 1 + (size_t)test_below(seed, most);

        k = k < len - at ? k : len - at;
        assert_true(stop_add(&s, text + at, k, collect, &out));
        at += k;
    }
    assert_true(stop_end(&s, collect, &out));
    assert_int_equal(s.hit, hit);
    assert_int_equal(out.n, want);
    assert_memory_equal(out.s != NULL ? out.s : "", text, want);
    free(out.s);
    stop_fini(&s);
}

TEST(stop_strings_end_a_text_however_it_is_cut)
{
    uint64_t seed = test_seed();

    for (int run = 0; run < 20000; run++) {
        char text[64] = "", word[4][8];
        const char *stop[4];
        int n = (int)test_below(&seed, 5), len = (int)test_below(&seed, 60);

        for (int i = 0; i < len; i++)
            text[i] = (char)('a' + test_below(&seed, 2));
        text[len] = '\0';
        for (int i = 0; i < n; i++) {
            int l = 1 + (int)test_below(&seed, 7);

            for (int k = 0; k < l; k++)
                word[i][k] = (char)('a' + test_below(&seed, 2));
            word[i][l] = '\0';
            stop[i] = word[i];
        }
        check(text, stop, n, &seed, 1 + test_below(&seed, 8));
    }
}

TEST(stop_strings_hold_no_more_back_than_may_begin_one)
{
    static const char *const stop[] = {"</end>", "\n\nUser:"};
    struct test_text out = {0};
    struct stops s;
    pl_err err;

    TEST_OK(stop_init(&s, stop, 2, &err), err);
    assert_true(stop_add(&s, "one\n\nUs", 7, collect, &out));
    assert_string_equal(out.s, "one");
    assert_true(stop_add(&s, "e <", 3, collect, &out));
    assert_string_equal(out.s, "one\n\nUse ");
    assert_true(stop_add(&s, "/end>more", 9, collect, &out));
    assert_string_equal(out.s, "one\n\nUse ");
    assert_int_equal(s.hit, 0);
    assert_true(stop_add(&s, "still more", 10, collect, &out));
    assert_true(stop_end(&s, collect, &out));
    assert_string_equal(out.s, "one\n\nUse ");
    free(out.s);
    stop_fini(&s);
}

/* A stop string that ends while they are muted is text; one that only begins
 * then is found. A shown one is a part of the text. */
TEST(stop_strings_may_be_muted_or_shown)
{
    static const char *const stop[] = {"aba", "xyz"};
    static const struct {
        const char *muted, *then, *want;
        bool shown;
        int hit;
    } rows[] = {
        {"aba", "cxyzq", "abac", false, 1},
        {"xabab", "aq", "xab", false, 0},
        {"abab", "aq", "ababa", true, 0},
        {"xy", "zq", "", false, 1},
        {"xyzxy", "zq", "xyzxyz", true, 1},
        {"", "abab", "", false, 0},
        {"xyzxyz", "xyq", "xyzxyzxyq", true, -1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t step = 1; step < 4; step++) {
            struct test_text out = {0};
            struct stops s;
            pl_err err;

            TEST_OK(stop_init(&s, stop, 2, &err), err);
            s.shown = rows[i].shown;
            for (int part = 0; part < 2; part++) {
                const char *t = part ? rows[i].then : rows[i].muted;

                s.muted = part == 0;
                for (size_t n; *t; t += n) {
                    n = strlen(t) < step ? strlen(t) : step;
                    assert_true(stop_add(&s, t, n, collect, &out));
                }
            }
            assert_true(stop_end(&s, collect, &out));
            assert_int_equal(s.hit, rows[i].hit);
            assert_string_equal(out.s ? out.s : "", rows[i].want);
            free(out.s);
            stop_fini(&s);
        }
    }
}

TEST(stop_strings_that_are_empty_are_refused)
{
    static const char *const stop[] = {"a", ""};
    struct stops s;
    pl_err err;

    assert_int_equal(stop_init(&s, stop, 2, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "stop string 1"));
}

TEST(stop_strings_survive_every_allocation_that_fails)
{
    static const char *const stop[] = {"ab", "cde"};
    struct test_text out = {0};
    struct stops s;
    pl_err err;

    for (int64_t n = 0; alloc_each(&n);) {
        alloc_ran(stop_init(&s, stop, 2, &err));
        stop_fini(&s);
    }
    free(out.s);
}

/* ---- texts --------------------------------------------------------------- */

static void same_text(const char *s, size_t n, const char *want)
{
    for (size_t cut = 0; cut <= n; cut++) {
        struct utf8_tail tail = {0};
        struct text t = {0};

        assert_true(utf8_add(&tail, &t, s, cut));
        assert_true(utf8_add(&tail, &t, s + cut, n - cut));
        assert_true(utf8_end(&tail, &t));
        assert_int_equal(t.n, strlen(want));
        assert_memory_equal(t.s != NULL ? t.s : "", want, t.n);
        text_free(&t);
    }
}

TEST(text_becomes_valid_wherever_it_is_cut)
{
    static const char bad[] = "\xef\xbf\xbd";
    char want[64];

    same_text("", 0, "");
    same_text("aü東🎉z", 11, "aü東🎉z");
    /* the examples of Unicode 15, tables 3-8 to 3-11 */
    snprintf(want, sizeof(want), "%s%s%s%s%s%s%s%sA", bad, bad, bad, bad, bad,
             bad, bad, bad);
    same_text("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82"
              "A",
              9, want);
    snprintf(want, sizeof(want), "%s%s%s%sA", bad, bad, bad, bad);
    same_text("\xed\xa0\x80\xf4"
              "A",
              5, want);
    snprintf(want, sizeof(want), "%s%s%sB%s", bad, bad, bad, bad);
    same_text("\xe1\x80\xe2\xf0\x91\x92"
              "B\xf1\x91",
              9, want);
}
