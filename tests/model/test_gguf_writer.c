/* The GGUF writer: the reader reads back what it writes, every value type and
 * every format. It does not write what the reader would reject. */
#include "gguf/gguf_parse.h"
#include "gguf/gguf_write.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "quant/format.h"

#include <errno.h>
#include <float.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct gguf_writer *writer(void)
{
    struct gguf_writer *w;
    pl_err err;

    TEST_OK(gguf_writer_create(&w, &err), err);
    return w;
}

/* Saves the file, frees the writer, and opens the file that was saved. */
static struct gguf *reopen(struct gguf_writer *w, const char *name)
{
    const char *path = test_temp(name);
    struct gguf *g;
    pl_err err;

    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
    TEST_OK(gguf_open(&g, path, &err), err);
    return g;
}

TEST(gguf_writer_scalars_read_back)
{
    struct gguf_writer *w = writer();
    struct gguf *g;
    struct gguf_str s;
    int64_t v;
    double d;
    bool b;

    gguf_put_u32(w, "u32", UINT32_MAX);
    gguf_put_i64(w, "i64", INT64_MIN);
    gguf_put_f32(w, "f32", FLT_MIN / 4);
    gguf_put_bool(w, "yes", true);
    gguf_put_bool(w, "no", false);
    gguf_put_str(w, "str", "a\xc3\xa4 \n");
    gguf_put_str(w, "empty", "");
    g = reopen(w, "scalars.gguf");
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_n_kv(g), 7);
    assert_int_equal(gguf_need_i64(g, "u32", 0, INT64_MAX, &v, NULL), PL_OK);
    assert_true(v == UINT32_MAX);
    assert_int_equal(gguf_find(g, "i64")->type, GGUF_I64);
    assert_true(gguf_as_i64(gguf_find(g, "i64"), 0, &v) && v == INT64_MIN);
    assert_int_equal(gguf_need_f64(g, "f32", &d, NULL), PL_OK);
    assert_true(d == (double)(FLT_MIN / 4));
    assert_int_equal(gguf_get_bool(g, "yes", false, &b, NULL), PL_OK);
    assert_true(b);
    assert_int_equal(gguf_get_bool(g, "no", true, &b, NULL), PL_OK);
    assert_false(b);
    assert_int_equal(gguf_get_str(g, "str", &s, NULL), PL_OK);
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.s, "a\xc3\xa4 \n", 5);
    assert_int_equal(gguf_get_str(g, "empty", &s, NULL), PL_OK);
    assert_int_equal(s.len, 0);
    assert_non_null(s.s); /* an empty string is not a missing key */
    gguf_close(g);
}

TEST(gguf_writer_arrays_read_back)
{
    static const struct gguf_str strs[] = {{"a", 1}, {"", 0}, {"\0x", 2}};
    static const uint64_t bits[3] = {0, 0x0101010101010101, 0x3ff0000000000000};
    struct gguf_writer *w = writer();
    struct gguf *g;
    struct gguf_str s;

    gguf_put_strs(w, "strs", strs, 3);
    gguf_put_strs(w, "none", NULL, 0);
    for (int t = 0; t < GGUF_TYPE_COUNT; t++)
        if (gguf_type_bytes((enum gguf_type)t) > 0)
            gguf_put_array(w, gguf_type_name((enum gguf_type)t),
                           (enum gguf_type)t, bits, t == GGUF_BOOL ? 9 : 3);
    g = reopen(w, "arrays.gguf");
    assert_int_equal(gguf_find(g, "strs")->count, 3);
    assert_true(gguf_as_str(gguf_find(g, "strs"), 2, &s));
    assert_int_equal(s.len, 2);
    assert_memory_equal(s.s, "\0x", 2);
    assert_int_equal(gguf_find(g, "none")->count, 0);
    for (int t = 0; t < GGUF_TYPE_COUNT; t++) {
        size_t n = gguf_type_bytes((enum gguf_type)t);
        const struct gguf_kv *kv =
            gguf_find(g, gguf_type_name((enum gguf_type)t));

        assert_int_equal(kv != NULL, n > 0);
        if (!kv)
            continue;
        assert_int_equal(kv->type, GGUF_ARRAY);
        assert_int_equal(kv->elem, t);
        assert_memory_equal(kv->data, bits, kv->count * n);
    }
    gguf_close(g);
}

/* Every entry and every tensor of a reference file, copied. */
TEST(gguf_writer_copies_a_file)
{
    const char *path = test_ref_need("llama-q-q4_0.gguf");
    struct gguf_writer *w = writer();
    struct gguf *from, *to;
    pl_err err;

    TEST_OK(gguf_open(&from, path, &err), err);
    for (int64_t i = 0; i < gguf_n_kv(from); i++)
        gguf_put_kv(w, gguf_kv_at(from, i));
    for (int64_t i = 0; i < gguf_n_tensor(from); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(from, i);

        gguf_put_tensor(w, t->name, t->format, t->n_dim, t->dim, t->data);
    }
    to = reopen(w, "copy.gguf");
    assert_int_equal(gguf_file_bytes(to), gguf_file_bytes(from));
    assert_int_equal(gguf_n_kv(to), gguf_n_kv(from));
    for (int64_t i = 0; i < gguf_n_kv(from); i++)
        assert_string_equal(gguf_kv_at(to, i)->key, gguf_kv_at(from, i)->key);
    assert_int_equal(gguf_n_tensor(to), gguf_n_tensor(from));
    for (int64_t i = 0; i < gguf_n_tensor(from); i++) {
        const struct gguf_tensor *a = gguf_tensor_at(from, i);
        const struct gguf_tensor *b = gguf_tensor_at(to, i);

        assert_string_equal(a->name, b->name);
        assert_int_equal(a->bytes, b->bytes);
        assert_memory_equal(a->data, b->data, a->bytes);
    }
    gguf_close(from);
    gguf_close(to);
}

static bool count_rows(void *user, int64_t row, void *dst, size_t bytes)
{
    int64_t *next = user;

    assert_int_equal(row, *next);
    memset(dst, (int)(row + 1), bytes);
    ++*next;
    return true;
}

TEST(gguf_writer_tensors_of_every_format_read_back)
{
    static const int64_t dim[4] = {2, 3, 1, 256};
    struct gguf_writer *w = writer();
    unsigned char *data = test_need(1, 6 * 256 * 4);
    int64_t rows[PL_FORMAT_COUNT] = {0};
    struct gguf *g;
    char name[32];

    for (int i = 0; i < 6 * 256 * 4; i++)
        data[i] = (unsigned char)(i * 7);
    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        snprintf(name, sizeof name, "data %d", f);
        gguf_put_tensor(w, name, (pl_format)f, 1 + f % 4, dim + 3 - f % 4,
                        data);
        snprintf(name, sizeof name, "fill %d", f);
        gguf_put_tensor_fill(w, name, (pl_format)f, 4, dim, count_rows,
                             &rows[f]);
    }
    g = reopen(w, "formats.gguf");
    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        size_t row_bytes = format_row_bytes((pl_format)f, 256);
        const struct gguf_tensor *t;

        snprintf(name, sizeof name, "data %d", f);
        t = gguf_find_tensor(g, name);
        assert_int_equal(t->format, f);
        assert_int_equal(t->n_dim, 1 + f % 4);
        assert_memory_equal(t->dim, dim + 3 - f % 4,
                            (size_t)t->n_dim * sizeof dim[0]);
        assert_int_equal(t->offset % gguf_alignment(g), 0);
        assert_memory_equal(t->data, data, t->bytes);

        snprintf(name, sizeof name, "fill %d", f);
        t = gguf_find_tensor(g, name);
        assert_int_equal(rows[f], 6);
        assert_int_equal(t->bytes, 6 * row_bytes);
        for (size_t i = 0; i < t->bytes; i++)
            assert_int_equal(((const unsigned char *)t->data)[i],
                             1 + i / row_bytes);
    }
    gguf_close(g);
    free(data);
}

TEST(gguf_writer_honours_the_alignment)
{
    static const float v[5] = {1, 2, 3, 4, 5};
    static const int64_t dim[1] = {5};
    struct gguf_writer *w = writer();
    struct gguf *g;

    gguf_put_u32(w, "general.alignment", 4096);
    gguf_put_tensor(w, "a", PL_F32, 1, dim, v);
    gguf_put_tensor(w, "b", PL_F32, 1, dim, v);
    g = reopen(w, "aligned.gguf");
    assert_int_equal(gguf_alignment(g), 4096);
    assert_int_equal(gguf_find_tensor(g, "a")->offset, 4096);
    assert_int_equal(gguf_find_tensor(g, "b")->offset, 8192);
    gguf_close(g);
}

/* ---- rejections --------------------------------------------------------- */

/* Saves and expects an error that contains `text` and leaves no file. */
static void expect_refusal(struct gguf_writer *w, pl_status want,
                           const char *text)
{
    const char *path = test_temp("refused.gguf");
    pl_err err = {PL_OK, ""};
    pl_status s = gguf_writer_save(w, path, &err);

    if (s != want || !strstr(err.message, text))
        fail_msg("%s, %s wanted; \"%s\" not in \"%s\"", pl_status_name(s),
                 pl_status_name(want), text, err.message);
    assert_int_not_equal(access(path, F_OK), 0);
    gguf_writer_free(w);
}

TEST(gguf_writer_refuses_what_the_reader_would)
{
    static const float v[64];
    static const struct {
        const char *name;
        pl_format format;
        int n_dim;
        int64_t dim[2];
    } bad[] = {
        {"rows", PL_Q8_0, 2, {2, 33}},
        {"zero", PL_F32, 2, {0, 32}},
        {"minus", PL_F32, 2, {-1, 32}},
        {"none", PL_F32, 0, {1, 1}},
        {"five", PL_F32, 5, {1, 1}},
        {"format", PL_FORMAT_COUNT, 1, {1, 1}},
        {"huge", PL_F32, 2, {INT64_MAX / 2, 32}},
    };
    struct gguf_writer *w;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        w = writer();
        gguf_put_tensor(w, bad[i].name, bad[i].format, bad[i].n_dim, bad[i].dim,
                        v);
        /* a second mistake, which is not reported, because the first one is */
        gguf_put_u32(w, "", 1);
        expect_refusal(w, PL_BAD_ARGUMENT, bad[i].name);
    }
    w = writer();
    gguf_put_tensor(w, "null", PL_F32, 1, &(int64_t){4}, NULL);
    expect_refusal(w, PL_BAD_ARGUMENT, "tensor null");
    w = writer();
    gguf_put_u32(w, "", 1);
    expect_refusal(w, PL_BAD_ARGUMENT, "a name of 0 bytes");
    w = writer();
    gguf_put_u32(w, "twice", 1);
    gguf_put_str(w, "twice", "x");
    expect_refusal(w, PL_BAD_ARGUMENT, "key twice was added twice");
    w = writer();
    gguf_put_tensor(w, "t", PL_F32, 1, &(int64_t){4}, v);
    gguf_put_tensor(w, "t", PL_F32, 1, &(int64_t){4}, v);
    expect_refusal(w, PL_BAD_ARGUMENT, "tensor t was added twice");
    w = writer();
    gguf_put_array(w, "nested", GGUF_ARRAY, v, 1);
    expect_refusal(w, PL_BAD_ARGUMENT, "nested");
    w = writer();
    gguf_put_u32(w, "general.alignment", 24);
    expect_refusal(w, PL_BAD_ARGUMENT, "general.alignment");
}

TEST(gguf_writer_says_when_a_disk_is_full)
{
    static const float v[4096];
    struct gguf_writer *w = writer();
    struct rlimit before, small;
    pl_err err;

    gguf_put_tensor(w, "t", PL_F32, 1, &(int64_t){4096}, v);
    assert_int_equal(gguf_writer_save(w, "/nonexistent/x.gguf", &err),
                     PL_NOT_FOUND);
    assert_non_null(strstr(err.message, "/nonexistent/x.gguf"));
    /* makes writes beyond a limit fail as on a full disk */
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 8192;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(gguf_writer_save(w, test_temp("full.gguf"), &err), PL_IO);
    assert_non_null(strstr(err.message, strerror(EFBIG)));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(access(test_temp("full.gguf"), F_OK), -1);
    gguf_writer_free(w);
}

TEST(gguf_writer_every_failed_allocation_is_a_status)
{
    static const struct gguf_str strs[] = {{"a", 1}, {"b", 1}};
    static const int64_t dim[2] = {2, 32};
    const char *path = test_temp("alloc.gguf");

    for (int64_t n = 0; alloc_each(&n);) {
        struct gguf_writer *w;
        int64_t row = 0;
        pl_err err;
        pl_status s;

        s = gguf_writer_create(&w, &err);
        if (s == PL_OK) {
            gguf_put_u32(w, "a", 1);
            gguf_put_strs(w, "b", strs, 2);
            gguf_put_tensor_fill(w, "t", PL_Q8_0, 2, dim, count_rows, &row);
            s = gguf_writer_save(w, path, &err);
        }
        alloc_ran(s);
        gguf_writer_free(w);
    }
}
