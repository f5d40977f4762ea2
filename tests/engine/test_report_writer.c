/* JSON that is written piece by piece is what jansson makes of the same values,
 * byte for byte. */
#include "lib/support.h"
#include "report/writer.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void same(struct test_text *t, json_t *all)
{
    char *wanted = json_dumps(all, JSON_INDENT(2));

    assert_non_null(wanted);
    assert_true(t->n == strlen(wanted) + 1 && t->s[t->n - 1] == '\n');
    if (memcmp(t->s, wanted, t->n - 1) != 0)
        fail_msg("%.*s\nis not\n%s", (int)t->n, t->s, wanted);
    free(wanted);
    json_decref(all);
    free(t->s);
    *t = (struct test_text){0};
}

TEST(report_json_is_jansson_s)
{
    static const char text[] = "q\" b\\ /\b\f\n\r\t \x01\x1f\x7f \xe2\x82\xac";
    struct test_text t = {0};
    const struct sink to = {test_text_add, &t};
    struct json_out j = {.to = &to};

    json_put(&j, "{a:i b:{ } c:[ ] d:[{x:s} n b b [I f]]", -7, text, true,
             false, INT64_MIN, 0.1);
    json_put(&j, "*:S e:S t:t", "key\n", "", "word", "cut off", (size_t)3);
    json_put(&j, "}");
    same(&t, json_pack("{s:i, s:{}, s:[], s:[{s:s}, n, b, b, [I, f]], s:n, "
                       "s:s, s:s}",
                       "a", -7, "b", "c", "d", "x", text, true, false,
                       (json_int_t)INT64_MIN, 0.1, "key\n", "e", "word", "t",
                       "cut"));
}

TEST(report_json_reals_are_jansson_s)
{
    static const double v[] = {0,    -0.0,  1,    1e15,  1e16,   1e17,
                               1e20, 1e-4,  1e-5, 1e300, 5e-324, -1.5e-9,
                               1e5,  123.5, 0.1,  1e100, 1e-100, 123456789012.};
    struct test_text t = {0};
    const struct sink to = {test_text_add, &t};
    struct json_out j = {.to = &to};
    json_t *all = json_array();

    json_put(&j, "[");
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        json_put(&j, "f", v[i]);
        json_array_append_new(all, json_real(v[i]));
    }
    json_put(&j, "]");
    same(&t, all);
    json_put(&j, "[f f f]", (double)NAN, (double)INFINITY, -(double)INFINITY);
    same(&t, json_pack("[n, n, n]"));
}

/* Each invalid byte becomes U+FFFD, also in a key. */
TEST(report_json_survives_bytes_that_are_no_text)
{
    struct test_text t = {0};
    const struct sink to = {test_text_add, &t};
    struct json_out j = {.to = &to};

    json_put(&j, "{*:s}", "\xff", "a\xc3(\xed\xa0\x80\xe2\x82");
    same(&t, json_pack("{s:s}", "\xef\xbf\xbd",
                       "a\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                       "\xef\xbf\xbd\xef\xbf\xbd"));
}
