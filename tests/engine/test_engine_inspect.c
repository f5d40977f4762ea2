/* Both forms of pl_inspect show the contents of a file. No byte of a file
 * reaches a terminal as a control character or breaks the JSON. */
#include "gguf/gguf_write.h"
#include "lib/support.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *write_sample(void)
{
    const char *path = test_temp("inspect.gguf");
    static const float v[2 * 32];
    struct gguf_writer *w;
    int32_t many[100];
    pl_err err;

    for (int i = 0; i < 100; i++)
        many[i] = i;
    TEST_OK(gguf_writer_create(&w, &err), err);
    gguf_put_str(w, "general.name",
                 "odd \x1b[31m \xff \xc2\x9b \"q\" \xe2\x82"
                 "\xac");
    gguf_put_f32(w, "eps", 1e-5f);
    gguf_put_f32(w, "nan", NAN);
    gguf_put_array(w, "big", GGUF_U64, (const uint64_t[]){UINT64_MAX, 3}, 2);
    gguf_put_array(w, "many", GGUF_I32, many, 100);
    gguf_put_tensor(w, "w", PL_F32, 2, (const int64_t[]){2, 32}, v);
    gguf_put_tensor(w, "h", PL_F16, 1, (const int64_t[]){32}, v);
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
    return path;
}

TEST(inspect_text_shows_keys_tensors_totals)
{
    static const char *const wanted[] = {
        "inspect.gguf",
        "version    3",
        "metadata: 5 keys",
        "\"odd \\x1b[31m \\xff \\xc2\\x9b \"q\" \xe2\x82\xac\"",
        "1e-05",
        "u64[2]  [18446744073709551615, 3]",
        "i32[100]  [0, 1, 2, 3, 4, 5, ...]",
        "[2, 32]",
        "all           2 tensors               96 values",
        "320 bytes  0.31 KiB",
    };
    struct test_text t = {0};
    pl_err err;

    TEST_OK(pl_inspect(write_sample(), false, test_text_add, &t, &err), err);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (!strstr(t.s, wanted[i]))
            fail_msg("\"%s\" is not in:\n%s", wanted[i], t.s);
    for (size_t i = 0; i < t.n; i++)
        assert_true((unsigned char)t.s[i] >= ' ' || t.s[i] == '\n');
    free(t.s);
}

TEST(inspect_json_holds_the_same)
{
    struct test_text t = {0};
    json_t *all, *part;
    json_error_t where;
    pl_err err;

    TEST_OK(pl_inspect(write_sample(), true, test_text_add, &t, &err), err);
    all = json_loadb(t.s, t.n, 0, &where);
    if (!all)
        fail_msg("line %d: %s", where.line, where.text);
    assert_non_null(
        strstr(json_string_value(json_object_get(all, "file")), "inspect"));
    assert_int_equal(json_integer_value(json_object_get(all, "version")), 3);

    part = json_object_get(all, "metadata");
    assert_int_equal(json_object_size(part), 5);
    assert_true(json_real_value(json_object_get(json_object_get(part, "eps"),
                                                "value")) == 1e-5);
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(part, "nan"), "value")),
                        "nan");
    assert_string_equal(
        json_string_value(json_array_get(
            json_object_get(json_object_get(part, "big"), "values"), 0)),
        "18446744073709551615");
    part = json_object_get(part, "many");
    assert_int_equal(json_integer_value(json_object_get(part, "count")), 100);
    assert_int_equal(json_array_size(json_object_get(part, "values")), 32);

    part = json_array_get(json_object_get(all, "tensors"), 0);
    assert_string_equal(json_string_value(json_object_get(part, "name")), "w");
    assert_string_equal(json_string_value(json_object_get(part, "type")),
                        "F32");
    assert_int_equal(json_integer_value(json_object_get(part, "bytes")), 256);
    part = json_object_get(part, "shape");
    assert_int_equal(json_integer_value(json_array_get(part, 0)), 2);
    assert_int_equal(json_integer_value(json_array_get(part, 1)), 32);

    part = json_object_get(all, "totals");
    assert_int_equal(json_integer_value(json_object_get(part, "bytes")), 320);
    part = json_object_get(json_object_get(part, "types"), "F16");
    assert_int_equal(json_integer_value(json_object_get(part, "bytes")), 64);
    json_decref(all);
    free(t.s);
}

TEST(inspect_forwards_the_reader_s_error)
{
    struct test_text t = {0};
    pl_err err;

    assert_int_equal(
        pl_inspect(test_temp("absent.gguf"), false, test_text_add, &t, &err),
        PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "absent.gguf"));
    assert_int_equal(pl_inspect(NULL, false, test_text_add, &t, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(t.n, 0);
}
