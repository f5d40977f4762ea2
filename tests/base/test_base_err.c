/* Statuses and their texts, messages of any length, and amounts in them. */
#include "base/bytes.h"
#include "base/err.h"

#include "lib/support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

TEST(base_err_every_status_has_name_and_text)
{
#define ROW(name, text)                                                        \
    assert_string_equal(pl_status_name(PL_##name), #name);                     \
    assert_string_equal(pl_status_text(PL_##name), text);
    PL_STATUS_MAP(ROW)
#undef ROW
    assert_non_null(pl_status_name((pl_status)12345));
    assert_non_null(pl_status_text((pl_status)-1));
}

TEST(base_err_set_formats_and_forwards)
{
    pl_err err;

    assert_int_equal(err_set(&err, PL_IO, "%s: %d", "f", 3), PL_IO);
    assert_int_equal(err.status, PL_IO);
    assert_string_equal(err.message, "f: 3");
    assert_int_equal(err_set(NULL, PL_FULL, "x"), PL_FULL);
}

TEST(base_err_long_message_is_cut_and_terminated)
{
    char text[3000];
    pl_err err;

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    err_set(&err, PL_BAD_FILE, "%s", text);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
}

TEST(base_err_long_message_ends_with_what_was_wrong)
{
    char text[9000];
    pl_err err;

    memset(text, 'x', sizeof(text));
    text[4095] = '\0';
    err_set(&err, PL_BAD_FILE, "%s: no such file", text);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    assert_int_equal(strncmp(err.message, "xxxx", 4), 0);
    assert_non_null(strstr(err.message, "x ... x"));
    assert_non_null(strstr(err.message, "x: no such file"));
    text[4095] = 'x';
    text[8999] = '\0';
    err_set(&err, PL_BAD_FILE, "%s", text);
    assert_int_equal(strlen(err.message), sizeof(err.message) - 1);
    /* a text that just fits in the message */
    text[sizeof(err.message) - 1] = '\0';
    err_set(&err, PL_BAD_FILE, "%s", text);
    assert_string_equal(err.message, text);
}

TEST(base_err_shows_values_harmlessly)
{
    char text[200], buf[ERR_SHOWN];

    memset(text, 'x', sizeof(text));
    assert_string_equal(err_shown(buf, "a\033[1m\n", 6), "a?[1m?");
    assert_int_equal(strlen(err_shown(buf, text, 76)), 76);
    assert_int_equal(strlen(err_shown(buf, text, 200)), 79);
    assert_string_equal(buf + 76, "...");
    assert_string_equal(err_shown(buf, "", 0), "");
}

/* If no thread can be started, the system reports EAGAIN both for a lack of
 * memory and for a limit; the message must tell them apart. */
TEST(base_err_no_thread_tells_memory_from_limits)
{
    struct rlimit was, none;
    pl_err err;

    assert_int_equal(err_no_thread(&err, "thread 1 of 3", EAGAIN), PL_DEVICE);
    assert_non_null(strstr(err.message, "thread 1 of 3 could not be started"));
    assert_non_null(strstr(err.message, "ulimit -u"));
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    none = was;
    none.rlim_cur = 1;
    assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
    err_no_thread(&err, "thread 1 of 3", EAGAIN);
    assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
    assert_int_equal(err.status, PL_NO_MEMORY);
    assert_non_null(strstr(err.message, "no memory for its stack"));
    assert_non_null(strstr(err.message, "ulimit -v"));
}

TEST(base_bytes_have_the_unit_of_their_size)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0.00 KiB"},
        {512, "0.50 KiB"},
        {1 << 10, "1.00 KiB"},
        {(1 << 20) - 1024, "1023.00 KiB"},
        {1 << 20, "1.00 MiB"},
        {(uint64_t)5 << 29, "2.50 GiB"},
        {(uint64_t)3 << 40, "3.00 TiB"},
        {UINT64_MAX, "16777216.00 TiB"},
    };
    char buf[24];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(bytes_text(buf, rows[i].bytes), rows[i].text);
}

/* The header's macros and the library's function give the same version. */
TEST(base_version_is_the_headers)
{
    char text[32];

    snprintf(text, sizeof text, "%d.%d.%d", PL_VERSION_MAJOR, PL_VERSION_MINOR,
             PL_VERSION_PATCH);
    assert_string_equal(pl_version(), text);
}
