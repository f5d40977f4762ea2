/* Statuses, their texts, and messages of any length. */
#include "base/err.h"

#include "support.h"

#include <string.h>

static void base_err_every_status_has_name_and_text(void **state)
{
    (void)state;
#define ROW(name, text)                                                        \
    assert_string_equal(pl_status_name(PL_##name), #name);                     \
    assert_string_equal(pl_status_text(PL_##name), text);
    PL_STATUS_MAP(ROW)
#undef ROW
    assert_non_null(pl_status_name((pl_status)12345));
    assert_non_null(pl_status_text((pl_status)-1));
}

static void base_err_set_formats_and_forwards(void **state)
{
    pl_err err;

    (void)state;
    assert_int_equal(err_set(&err, PL_IO, "%s: %d", "f", 3), PL_IO);
    assert_int_equal(err.status, PL_IO);
    assert_string_equal(err.message, "f: 3");
    assert_int_equal(err_set(NULL, PL_FULL, "x"), PL_FULL);
}

static void base_err_long_message_is_cut_and_terminated(void **state)
{
    char text[3000];
    pl_err err;

    (void)state;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    err_set(&err, PL_BAD_FILE, "%s", text);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
}

int test_base_err(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(base_err_every_status_has_name_and_text),
        cmocka_unit_test(base_err_set_formats_and_forwards),
        cmocka_unit_test(base_err_long_message_is_cut_and_terminated),
    };

    return TEST_RUN(tests);
}
