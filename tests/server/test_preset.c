/* Files of presets are read, and an error names the wrong line. */
#include "lib/support.h"

#include "server/preset.h"

#include <string.h>

TEST(preset_has_sections_and_keys_in_their_order)
{
    static const char text[] = "\xef\xbb\xbf; presets\nversion = 1\r\n\n[*]\n"
                               " c = 4096 \n[ a b/c:Q4 ]\n# none\n"
                               "ot=ffn_up=host\nempty =\n\tc\t=\t1";
    struct preset p;
    const struct preset_section *s;
    pl_err err;

    TEST_OK(preset_read(&p, text, strlen(text), &err), err);
    assert_int_equal(p.n, 2);
    s = preset_find(&p, "*");
    assert_int_equal(s->n_key, 1);
    assert_string_equal(s->key[0].value, "4096");
    s = preset_find(&p, "a b/c:Q4");
    assert_int_equal(s->n_key, 3);
    assert_string_equal(s->key[0].key, "ot");
    assert_string_equal(s->key[0].value, "ffn_up=host");
    assert_string_equal(s->key[1].value, "");
    assert_int_equal(s->key[2].line, 10);
    assert_null(preset_find(&p, "a"));
    preset_free(&p);
}

TEST(preset_names_the_line_that_is_wrong)
{
    static const struct {
        const char *text, *said;
    } row[] = {
        {"[a]\n\nc 4096\n", "line 3: neither"},
        {"[a\n", "line 1: section header without"},
        {"[]\n", "line 1: section without a name"},
        {"[  ]", "line 1: section without a name"},
        {"[a]\n[b]\n[a]\n", "line 3: section [a] is already defined in line 1"},
        {"c = 1\n", "line 1: key c is before any section"},
        {"version = 2\n", "line 1: unknown version of presets"},
        {"[a]\n = 3", "line 2: no key before"},
    };
    struct preset p;
    pl_err err;

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        pl_status s = preset_read(&p, row[i].text, strlen(row[i].text), &err);

        assert_int_equal(s, PL_BAD_FILE);
        if (strncmp(err.message, row[i].said, strlen(row[i].said)) != 0)
            fail_msg("%s: %s", row[i].text, err.message);
        preset_free(&p);
    }
    assert_int_equal(preset_read(&p, "[a]\nb=\0", 8, &err), PL_BAD_FILE);
    preset_free(&p);
}
