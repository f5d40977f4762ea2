/* The GGUF reader reads what the bytes say. Every malformed field has an error
 * of its own, at its own byte. No input makes it crash, allocate beyond twice
 * its size + 64 MiB, or leak. Files are built here by hand, field by field, so
 * that nothing depends on the writer. */
#include "gguf/gguf.h"
#include "gguf/gguf_parse.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* opens a file, reads all of it, and closes it */
int fuzz_gguf(const uint8_t *data, size_t n);

/* ---- a file built by hand ----------------------------------------------- */

struct file {
    unsigned char *data; /* owned */
    size_t size, room;
};

static void put(struct file *f, const void *p, size_t n)
{
    if (f->size + n > f->room) {
        f->room = 2 * (f->size + n) + 256;
        f->data = realloc(f->data, f->room);
        assert_non_null(f->data);
    }
    if (n > 0)
        memcpy(f->data + f->size, p, n);
    f->size += n;
}

static void put_int(struct file *f, uint64_t v, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        put(f, &(unsigned char){(unsigned char)(v >> 8 * i)}, 1);
}

static void put_str(struct file *f, const char *s)
{
    put_int(f, strlen(s), 8);
    put(f, s, strlen(s));
}

static void put_header(struct file *f, uint64_t n_tensor, uint64_t n_kv)
{
    put(f, "GGUF", 4);
    put_int(f, 3, 4);
    put_int(f, n_tensor, 8);
    put_int(f, n_kv, 8);
}

static void put_key(struct file *f, const char *key, enum gguf_type type)
{
    put_str(f, key);
    put_int(f, type, 4);
}

static void pad(struct file *f, size_t alignment)
{
    while (f->size % alignment)
        put_int(f, 0, 1);
}

/* The fields of the sample file; at[field] is the field's offset in bytes. */
enum field {
    MAGIC,
    VERSION,
    N_TENSOR,
    N_KV,
    KEY0_LEN,
    KEY0_NAME,
    KEY0_TYPE,
    KEY0_VALUE,
    KEY1_NAME,
    KEY1_TYPE,
    KEY1_ELEM,
    KEY1_COUNT,
    KEY1_STR_LEN,
    KEY1_STR,
    KEY2_TYPE,
    KEY2_VALUE,
    T0_LEN,
    T0_NAME,
    T0_N_DIM,
    T0_DIM_IN,
    T0_DIM_OUT,
    T0_TYPE,
    T0_OFFSET,
    T1_NAME,
    T1_DIM,
    T1_TYPE,
    T1_OFFSET,
    DATA,
    N_FIELD
};

/* Writes three keys (an alignment of 32, two strings, a boolean) and two
 * tensors: "w" Q8_0 [2, 64] at offset 0 (136 bytes), "b" F32 [4] at offset
 * 160. */
static void sample(struct file *f, size_t at[N_FIELD])
{
#define AT(field) at[field] = f->size
    memset(f, 0, sizeof *f);
    put_header(f, 2, 3);
    at[MAGIC] = 0;
    at[VERSION] = 4;
    at[N_TENSOR] = 8;
    at[N_KV] = 16;

    AT(KEY0_LEN);
    at[KEY0_NAME] = f->size + 8;
    put_str(f, "general.alignment");
    AT(KEY0_TYPE);
    put_int(f, GGUF_U32, 4);
    AT(KEY0_VALUE);
    put_int(f, 32, 4);

    at[KEY1_NAME] = f->size + 8;
    put_str(f, "names");
    AT(KEY1_TYPE);
    put_int(f, GGUF_ARRAY, 4);
    AT(KEY1_ELEM);
    put_int(f, GGUF_STRING, 4);
    AT(KEY1_COUNT);
    put_int(f, 2, 8);
    AT(KEY1_STR_LEN);
    at[KEY1_STR] = f->size + 8;
    put_str(f, "a");
    put_str(f, "bc");

    put_str(f, "named");
    AT(KEY2_TYPE);
    put_int(f, GGUF_BOOL, 4);
    AT(KEY2_VALUE);
    put_int(f, 1, 1);

    AT(T0_LEN);
    at[T0_NAME] = f->size + 8;
    put_str(f, "w");
    AT(T0_N_DIM);
    put_int(f, 2, 4);
    AT(T0_DIM_IN);
    put_int(f, 64, 8);
    AT(T0_DIM_OUT);
    put_int(f, 2, 8);
    AT(T0_TYPE);
    put_int(f, 8, 4);
    AT(T0_OFFSET);
    put_int(f, 0, 8);

    at[T1_NAME] = f->size + 8;
    put_str(f, "b");
    put_int(f, 1, 4);
    AT(T1_DIM);
    put_int(f, 4, 8);
    AT(T1_TYPE);
    put_int(f, 0, 4);
    AT(T1_OFFSET);
    put_int(f, 160, 8);

    pad(f, 32);
    AT(DATA);
    for (int i = 0; i < 176; i++)
        put_int(f, (uint64_t)i, 1);
#undef AT
}

/* Opens an exact copy, so that a sanitizer sees an access beyond. *copy lives
 * as long as the file. */
static pl_status open_copy(struct gguf **g, const void *data, size_t size,
                           void **copy, pl_err *err)
{
    *copy = malloc(size > 0 ? size : 1);
    assert_non_null(*copy);
    if (size > 0)
        memcpy(*copy, data, size);
    return gguf_open_memory(g, *copy, size, "sample.gguf", err);
}

static void open_ok(struct gguf **g, const struct file *f)
{
    pl_err err;

    TEST_OK(gguf_open_memory(g, f->data, f->size, "sample.gguf", &err), err);
}

/* ---- well-formed files -------------------------------------------------- */

TEST(gguf_reader_says_what_the_bytes_say)
{
    struct file f;
    struct gguf *g;
    size_t at[N_FIELD];
    const struct gguf_kv *kv;
    const struct gguf_tensor *t;
    struct gguf_str s;
    bool b;

    sample(&f, at);
    open_ok(&g, &f);
    assert_string_equal(gguf_path(g), "sample.gguf");
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_alignment(g), 32);
    assert_int_equal(gguf_file_bytes(g), f.size);
    assert_int_equal(gguf_n_part(g), 1);
    assert_int_equal(gguf_n_kv(g), 3);
    assert_int_equal(gguf_n_tensor(g), 2);

    kv = gguf_find(g, "names");
    assert_ptr_equal(kv, gguf_kv_at(g, 1));
    assert_int_equal(kv->type, GGUF_ARRAY);
    assert_int_equal(kv->elem, GGUF_STRING);
    assert_int_equal(kv->count, 2);
    assert_true(gguf_as_str(kv, 1, &s));
    assert_int_equal(s.len, 2);
    assert_memory_equal(s.s, "bc", 2);
    assert_false(gguf_as_str(kv, 2, &s));
    assert_int_equal(gguf_get_bool(g, "named", false, &b, NULL), PL_OK);
    assert_true(b);
    assert_null(gguf_find(g, "name"));
    assert_null(gguf_find(g, ""));

    t = gguf_find_tensor(g, "w");
    assert_int_equal(t->n_dim, 2);
    assert_int_equal(t->dim[0], 2); /* the outermost dimension comes first */
    assert_int_equal(t->dim[1], 64);
    assert_int_equal(t->format, PL_Q8_0);
    assert_int_equal(t->bytes, 136);
    assert_int_equal(t->offset, at[DATA]);
    assert_ptr_equal(t->data, f.data + at[DATA]);
    t = gguf_find_tensor(g, "b");
    assert_int_equal(t->bytes, 16);
    assert_ptr_equal(t->data, f.data + at[DATA] + 160);
    assert_null(gguf_find_tensor(g, "names"));
    assert_null(gguf_kv_at(g, 3));
    assert_null(gguf_tensor_at(g, -1));
    gguf_close(g);
    gguf_close(NULL);
    free(f.data);
}

TEST(gguf_reader_takes_version_2)
{
    struct file f;
    struct gguf *g;
    size_t at[N_FIELD];

    sample(&f, at);
    f.data[at[VERSION]] = 2;
    open_ok(&g, &f);
    assert_int_equal(gguf_version(g), 2);
    assert_int_equal(gguf_n_tensor(g), 2);
    gguf_close(g);
    free(f.data);
}

TEST(gguf_reader_takes_files_without_tensors)
{
    struct file f = {0};
    struct gguf *g;

    put_header(&f, 0, 1);
    put_key(&f, "k", GGUF_U8);
    put_int(&f, 200, 1);
    open_ok(&g, &f);
    assert_int_equal(gguf_n_tensor(g), 0);
    assert_null(gguf_find_tensor(g, "k"));
    gguf_close(g);
    f.size = 0;
    put_header(&f, 0, 0);
    open_ok(&g, &f);
    assert_int_equal(gguf_n_kv(g), 0);
    assert_null(gguf_find(g, "k"));
    gguf_close(g);
    free(f.data);
}

/* Q1_0: 128 values in 18 bytes; plait cannot compute with it. */
TEST(gguf_reader_lists_formats_it_cannot_compute_with)
{
    struct file f = {0};
    struct gguf *g;
    const struct gguf_tensor *t;
    char buf[24];
    pl_err err;

    put_header(&f, 1, 0);
    put_str(&f, "q");
    put_int(&f, 1, 4);
    put_int(&f, 512, 8);
    put_int(&f, 41, 4);
    put_int(&f, 0, 8);
    pad(&f, 32);
    for (int i = 0; i < 72; i++)
        put_int(&f, 1, 1);
    open_ok(&g, &f);
    t = gguf_find_tensor(g, "q");
    assert_int_equal(t->format, PL_FORMAT_COUNT);
    assert_int_equal(t->id, 41);
    assert_int_equal(t->bytes, 72);
    assert_null(t->data);
    gguf_close(g);
    /* the file is a byte too short for the tensor */
    assert_int_equal(gguf_open_memory(&g, f.data, f.size - 1, "x", &err),
                     PL_BAD_FILE);
    free(f.data);
    assert_string_equal(gguf_format_name(41, buf), "Q1_0");
    assert_string_equal(gguf_format_name(16, buf), "IQ2_XXS");
    assert_string_equal(gguf_format_name(12, buf), "Q4_K");
    assert_string_equal(gguf_format_name(99, buf), "type 99");
    assert_string_equal(gguf_type_name(GGUF_I16), "i16");
}

/* ---- values ------------------------------------------------------------- */

/* Returns a one-element entry; `data` gets its bits, little endian. */
static struct gguf_kv scalar(enum gguf_type t, uint64_t bits,
                             unsigned char data[8])
{
    for (int i = 0; i < 8; i++)
        data[i] = (unsigned char)(bits >> 8 * i);
    return (struct gguf_kv){"k", t, t, 1, data, NULL, false};
}

TEST(gguf_values_convert_where_they_fit)
{
    static const struct {
        enum gguf_type type;
        uint64_t bits;
        bool fits_i64, fits_bool;
        int64_t i64;
        double f64;
    } rows[] = {
        {GGUF_U8, 255, true, false, 255, 255},
        {GGUF_I8, 255, true, false, -1, -1},
        {GGUF_U16, 65535, true, false, 65535, 65535},
        {GGUF_I16, 65535, true, false, -1, -1},
        {GGUF_U32, UINT32_MAX, true, false, UINT32_MAX, UINT32_MAX},
        {GGUF_I32, UINT32_MAX, true, false, -1, -1},
        {GGUF_I32, 1, true, true, 1, 1},
        {GGUF_U64, INT64_MAX, true, false, INT64_MAX, 0x1p63},
        {GGUF_U64, UINT64_MAX, false, false, 0, 0x1p64},
        {GGUF_I64, UINT64_MAX, true, false, -1, -1},
        {GGUF_F32, 0x41200000, true, false, 10, 10},
        {GGUF_F32, 0x41280000, false, false, 0, 10.5},
        {GGUF_F64, 0x43e0000000000000, false, false, 0, 0x1p63},
        {GGUF_F64, 0xc3e0000000000000, true, false, INT64_MIN, -0x1p63},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        unsigned char data[8];
        struct gguf_kv kv = scalar(rows[i].type, rows[i].bits, data);
        int64_t v = 0;
        double d = 0;
        bool b = false;
        struct gguf_str s;

        assert_int_equal(gguf_as_i64(&kv, 0, &v), rows[i].fits_i64);
        assert_true(v == rows[i].i64);
        assert_true(gguf_as_f64(&kv, 0, &d));
        assert_true(d == rows[i].f64);
        assert_int_equal(gguf_as_bool(&kv, 0, &b), rows[i].fits_bool);
        assert_false(gguf_as_str(&kv, 0, &s));
        assert_false(gguf_as_i64(&kv, 1, &v));
        assert_false(gguf_as_f64(&kv, 1, &d));
    }
}

static void expect_error(pl_status s, pl_status want, const pl_err *err,
                         const char *text)
{
    if (s != want || !strstr(err->message, text))
        fail_msg("%s, %s wanted; \"%s\" not in \"%s\"", pl_status_name(s),
                 pl_status_name(want), text, err->message);
    if (s != err->status)
        fail_msg("status %s, in pl_err %s", pl_status_name(s),
                 pl_status_name(err->status));
}

TEST(gguf_look_ups_name_what_they_expect)
{
    struct file f = {0};
    struct gguf *g;
    struct gguf_str s;
    int64_t v;
    double d;
    bool b;
    pl_err err;

    put_header(&f, 0, 4);
    put_key(&f, "five", GGUF_U16);
    put_int(&f, 5, 2);
    put_key(&f, "text", GGUF_STRING);
    put_str(&f, "esc\x1b[1m");
    put_key(&f, "nan", GGUF_F32);
    put_int(&f, 0x7fc00000, 4);
    put_key(&f, "list", GGUF_ARRAY);
    put_int(&f, GGUF_U8, 4);
    put_int(&f, 1, 8);
    put_int(&f, 5, 1);
    open_ok(&g, &f);

    TEST_OK(gguf_get_i64(g, "five", 1, 5, 5, &v, &err), err);
    assert_int_equal(v, 5);
    TEST_OK(gguf_get_i64(g, "six", 6, 0, 1, &v, &err), err);
    assert_int_equal(v, 6);
    expect_error(gguf_get_i64(g, "five", 0, 6, 9, &v, &err), PL_BAD_FILE, &err,
                 "sample.gguf: byte 40: key five is 5 (type u16) where an "
                 "integer from 6 to 9 is expected");
    expect_error(gguf_need_i64(g, "five", 6, INT64_MAX, &v, &err), PL_BAD_FILE,
                 &err, "an integer of at least 6");
    expect_error(gguf_need_i64(g, "six", 0, 9, &v, &err), PL_BAD_FILE, &err,
                 "key six is missing");
    expect_error(gguf_get_i64(g, "list", 0, 0, 9, &v, &err), PL_BAD_FILE, &err,
                 "an array of 1 u8");
    expect_error(gguf_get_i64(g, "text", 0, 0, 9, &v, &err), PL_BAD_FILE, &err,
                 /* control characters are not printed as they are */
                 "esc?[1m");
    TEST_OK(gguf_need_f64(g, "five", &d, &err), err);
    assert_true(d == 5);
    expect_error(gguf_get_f64(g, "nan", 1, &d, &err), PL_BAD_FILE, &err,
                 "a finite number");
    expect_error(gguf_need_f64(g, "six", &d, &err), PL_BAD_FILE, &err,
                 "missing");
    expect_error(gguf_get_bool(g, "five", false, &b, &err), PL_BAD_FILE, &err,
                 "a bool");
    TEST_OK(gguf_get_str(g, "six", &s, &err), err);
    assert_null(s.s);
    expect_error(gguf_get_str(g, "five", &s, &err), PL_BAD_FILE, &err,
                 "a string");
    gguf_close(g);
    free(f.data);
}

/* ---- malformed files ---------------------------------------------------- */

/* One field of the sample overwritten. The error is at `error` (a byte of the
 * file), and its text is `text`. */
static const struct damage {
    enum field field;
    int n_bytes;
    uint64_t value;
    enum field error;
    pl_status status;
    const char *text;
} damages[] = {
    {MAGIC, 4, 0x46554748, MAGIC, PL_BAD_FILE, "not a GGUF file"},
    {VERSION, 4, 1, VERSION, PL_UNSUPPORTED, "GGUF version 1,"},
    {VERSION, 4, 4, VERSION, PL_UNSUPPORTED, "GGUF version 4,"},
    {VERSION, 4, 0x03000000, VERSION, PL_UNSUPPORTED, "big-endian"},
    {N_TENSOR, 8, UINT64_MAX, N_TENSOR, PL_BAD_FILE,
     "18446744073709551615 tensors announced"},
    {N_TENSOR, 8, 3, DATA, PL_BAD_FILE, "tensor 2"},
    {N_KV, 8, UINT64_MAX, N_KV, PL_BAD_FILE,
     "18446744073709551615 keys announced"},
    {KEY0_LEN, 8, 0, KEY0_LEN, PL_BAD_FILE, "a name of 0 bytes"},
    {KEY0_LEN, 8, UINT64_MAX, KEY0_NAME, PL_BAD_FILE, "needs"},
    {KEY0_NAME, 1, 0, KEY0_LEN, PL_BAD_FILE, "a zero byte in its name"},
    {KEY0_TYPE, 4, GGUF_TYPE_COUNT, KEY0_TYPE, PL_BAD_FILE, "its type is 13"},
    {KEY0_TYPE, 4, GGUF_F32, KEY0_VALUE, PL_BAD_FILE, "an integer from 8"},
    {KEY0_VALUE, 4, 0, KEY0_VALUE, PL_BAD_FILE, "is 0 (type u32)"},
    {KEY0_VALUE, 4, 48, KEY0_VALUE, PL_BAD_FILE, "48 is not a power of two"},
    {KEY0_VALUE, 4, 1u << 31, KEY0_VALUE, PL_BAD_FILE, "is 2147483648"},
    {KEY1_ELEM, 4, GGUF_ARRAY, KEY1_ELEM, PL_UNSUPPORTED, "array of arrays"},
    {KEY1_ELEM, 4, 77, KEY1_ELEM, PL_BAD_FILE, "element type is 77"},
    {KEY1_COUNT, 8, 1ull << 61, KEY1_STR_LEN, PL_BAD_FILE,
     "needs 2305843009213693952 x 8 bytes"},
    {KEY1_COUNT, 8, UINT64_MAX, KEY1_STR_LEN, PL_BAD_FILE, "(names)"},
    {KEY1_STR_LEN, 8, 1ull << 40, KEY1_STR, PL_BAD_FILE,
     "needs 1099511627776 x 1 bytes"},
    {KEY2_VALUE, 1, 2, KEY2_VALUE, PL_BAD_FILE, "a bool of 2"},
    {T0_LEN, 8, 1ull << 63, T0_NAME, PL_BAD_FILE,
     "tensor 0 (name not read yet)"},
    {T0_NAME, 1, 0, T0_LEN, PL_BAD_FILE, "a zero byte"},
    {T0_N_DIM, 4, 0, T0_N_DIM, PL_BAD_FILE, "0 dimensions"},
    {T0_N_DIM, 4, 5, T0_N_DIM, PL_BAD_FILE, "5 dimensions"},
    {T0_DIM_IN, 8, 0, T0_DIM_IN, PL_BAD_FILE, "dimension 1 is 0"},
    {T0_DIM_OUT, 8, 0, T0_DIM_OUT, PL_BAD_FILE, "dimension 0 is 0"},
    {T0_DIM_OUT, 8, 1ull << 63, T0_DIM_OUT, PL_BAD_FILE, "too large"},
    {T0_DIM_OUT, 8, 1ull << 58, T0_DIM_OUT, PL_BAD_FILE, "too large"},
    {T0_DIM_OUT, 8, 1ull << 56, DATA, PL_BAD_FILE, "bytes of data end at"},
    {T0_DIM_IN, 8, 65, T0_TYPE, PL_BAD_FILE,
     "rows of 65 values are not whole blocks of 32 (Q8_0)"},
    {T0_TYPE, 4, 4, T0_TYPE, PL_UNSUPPORTED, "tensor type 4 is unknown"},
    {T0_TYPE, 4, 99, T0_TYPE, PL_UNSUPPORTED, "tensor type 99 is unknown"},
    {T0_OFFSET, 8, 16, T0_OFFSET, PL_BAD_FILE, "not a multiple of the align"},
    {T0_OFFSET, 8, 0ull - 32, DATA, PL_BAD_FILE, "its offset overflows"},
    {T1_NAME, 1, 'w', T1_NAME, PL_BAD_FILE, "a tensor of the same name"},
    {T1_DIM, 8, 5, T1_DIM, PL_BAD_FILE, "20 bytes of data end at"},
    {T1_DIM, 8, 1ull << 61, T1_TYPE, PL_BAD_FILE, "bytes of data end at"},
    {T1_OFFSET, 8, 128, DATA, PL_BAD_FILE, "overlaps that of w"},
    {T1_OFFSET, 8, 192, DATA, PL_BAD_FILE, "end at byte"},
    {T1_OFFSET, 8, 1ull << 40, DATA, PL_BAD_FILE, "tensor 1 (b)"},
};

/* Returns true if the message names an offset of its own, which the table
 * cannot. */
static bool names_data(const struct damage *d)
{
    return strstr(d->text, "end at") || strstr(d->text, "overlaps") ||
           strstr(d->text, "tensor 1 (b)") || strstr(d->text, "tensor 2") ||
           d->error == T1_NAME;
}

TEST(gguf_each_malformed_field_has_its_error)
{
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        const struct damage *d = &damages[i];
        struct file f;
        struct gguf *g;
        size_t at[N_FIELD];
        void *copy;
        pl_err err;
        pl_status s;
        char where[64];

        sample(&f, at);
        for (int k = 0; k < d->n_bytes; k++)
            f.data[at[d->field] + (size_t)k] =
                (unsigned char)(d->value >> 8 * k);
        s = open_copy(&g, f.data, f.size, &copy, &err);
        assert_null(g);
        expect_error(s, d->status, &err, d->text);
        snprintf(where, sizeof where, "sample.gguf: byte %zu: ", at[d->error]);
        if (names_data(d))
            strcpy(where, "sample.gguf: byte ");
        expect_error(s, d->status, &err, where);
        /* the message has a remedy after its semicolon */
        assert_non_null(strstr(err.message, "; "));
        assert_int_equal(gguf_open_memory(&g, copy, f.size, "x", NULL),
                         d->status);
        free(copy);
        free(f.data);
    }
}

TEST(gguf_duplicate_keys_are_refused)
{
    struct file f = {0};
    struct gguf *g;
    pl_err err;

    put_header(&f, 0, 3);
    for (int i = 0; i < 3; i++) {
        put_key(&f, i == 1 ? "other" : "same", GGUF_U8);
        put_int(&f, 1, 1);
    }
    expect_error(gguf_open_memory(&g, f.data, f.size, "x", &err), PL_BAD_FILE,
                 &err, "key 2 (same): key 0 has the same name");
    free(f.data);
}

TEST(gguf_counts_beyond_the_limits_are_refused)
{
    /* so large that the file could have either number of entries */
    size_t size = 40u << 20;
    unsigned char *data = test_need(1, size);
    struct gguf *g;
    pl_err err;

    memcpy(data, "GGUF\3", 5);
    data[18] = 2; /* number of keys: 131,072 */
    expect_error(gguf_open_memory(&g, data, size, "x", &err), PL_UNSUPPORTED,
                 &err, "131072 keys, at most 65536");
    data[18] = 0;
    data[10] = 4; /* number of tensors: 262,144 */
    expect_error(gguf_open_memory(&g, data, size, "x", &err), PL_UNSUPPORTED,
                 &err, "262144 tensors, at most 131072");
    free(data);
}

TEST(gguf_things_that_are_no_files_are_refused)
{
    const char *empty = test_temp("empty.gguf");
    FILE *f = fopen(empty, "wb");
    struct gguf *g;
    pl_err err;

    assert_non_null(f);
    fclose(f);
    expect_error(gguf_open(&g, empty, &err), PL_BAD_FILE, &err, "is empty");
    assert_null(g);
    expect_error(gguf_open(&g, test_temp("absent.gguf"), &err), PL_NOT_FOUND,
                 &err, "cannot open");
    expect_error(gguf_open(&g, "/dev/null", &err), PL_IO, &err,
                 "not a regular file");
    expect_error(gguf_open_memory(&g, NULL, 0, "x", &err), PL_BAD_FILE, &err,
                 "byte 0");
}

/* ---- reference files ---------------------------------------------------- */

/* Reads a file's bytes, exactly; NULL if there is none. */
static unsigned char *slurp(const char *path, size_t *size)
{
    FILE *f = path ? fopen(path, "rb") : NULL;
    unsigned char *data = NULL;
    long n = -1;

    if (!f)
        return NULL;
    if (fseek(f, 0, SEEK_END) == 0 && (n = ftell(f)) > 0) {
        data = test_need(1, (size_t)n);
        rewind(f);
        assert_int_equal(fread(data, 1, (size_t)n, f), n);
        *size = (size_t)n;
    }
    fclose(f);
    return data;
}

TEST(gguf_reference_files_open)
{
    static const struct {
        const char *name, *architecture;
        /* expected number of tensors; -1 for any number above zero */
        int64_t n_tensor;
    } rows[] = {
        {"llama-q-q8_0.gguf", "llama", 20},
        {"llama-q-q4_0.gguf", "llama", 20},
        {"llama-q-q6_k.gguf", "llama", 20},
        {"llama-q-bf16.gguf", "llama", 20},
        {"llama-wide-q4_k_m.gguf", "llama", -1},
        {"llama-yarn-f32.gguf", "llama", -1},
        {"llama3-tied-ropefreqs-f16.gguf", "llama", -1},
        {"qwen2-bias-f32.gguf", "qwen2", -1},
        {"qwen3-tied-f32.gguf", "qwen3", -1},
        {"qwen3moe-f32.gguf", "qwen3moe", -1},
        {"qwen3moe-q-q4_k_m.gguf", "qwen3moe", 14},
        {"glm4moe-f32.gguf", "glm4moe", 70},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *path = test_ref(rows[i].name);
        struct gguf *g;
        struct gguf_str s;
        pl_err err;

        assert_non_null(path);
        TEST_OK(gguf_open(&g, path, &err), err);
        TEST_OK(gguf_get_str(g, "general.architecture", &s, &err), err);
        assert_int_equal(s.len, strlen(rows[i].architecture));
        assert_memory_equal(s.s, rows[i].architecture, s.len);
        if (rows[i].n_tensor >= 0)
            assert_int_equal(gguf_n_tensor(g), rows[i].n_tensor);
        for (int64_t k = 0; k < gguf_n_tensor(g); k++)
            assert_non_null(gguf_tensor_at(g, k)->data);
        gguf_close(g);
    }
}

TEST(gguf_vocabularies_open_without_tensors)
{
    const char *path = test_file("tests/refs/tokenizers/bpe.gguf");
    struct gguf *g;
    pl_err err;

    assert_non_null(path);
    TEST_OK(gguf_open(&g, path, &err), err);
    assert_int_equal(gguf_n_tensor(g), 0);
    assert_int_equal(gguf_find(g, "tokenizer.ggml.tokens")->count, 1800);
    gguf_close(g);
}

/* Returns the reference of the damage tests, and the size of its header. */
static unsigned char *reference(size_t *size, size_t *header)
{
    unsigned char *data = slurp(test_ref("llama-q-q4_0.gguf"), size);
    struct gguf *g;

    assert_non_null(data);
    assert_int_equal(gguf_open_memory(&g, data, *size, "x", NULL), PL_OK);
    *header = *size;
    for (int64_t i = 0; i < gguf_n_tensor(g); i++)
        if (gguf_tensor_at(g, i)->offset < *header)
            *header = (size_t)gguf_tensor_at(g, i)->offset;
    gguf_close(g);
    return data;
}

static void check_memory(size_t size)
{
    struct alloc_stat a = alloc_stat_get();
    int64_t limit = 2 * (int64_t)size + (64 << 20);

    if (a.peak_bytes > limit || a.max_bytes > limit)
        fail_msg("%zu bytes made the reader hold %lld, ask for %lld", size,
                 (long long)a.peak_bytes, (long long)a.max_bytes);
    if (a.live_bytes != 0)
        fail_msg("%lld bytes leak", (long long)a.live_bytes);
}

TEST(gguf_truncated_files_are_refused)
{
    size_t size, header;
    unsigned char *data = reference(&size, &header);
    enum { N = 200 };

    for (size_t i = 0; i < 2 * N; i++) {
        /* 200 offsets in the file, and 200 in its header */
        size_t n = i < N ? i * size / N : (i - N) * header / N;
        struct gguf *g;
        void *copy;
        pl_err err;

        if (open_copy(&g, data, n, &copy, &err) == PL_OK)
            fail_msg("%zu of %zu bytes open", n, size);
        assert_null(g);
        assert_int_equal(err.status, PL_BAD_FILE);
        free(copy);
    }
    free(data);
}

TEST(gguf_flipped_header_bytes_do_no_harm)
{
    size_t size, header;
    unsigned char *data = reference(&size, &header);
    uint64_t rng = test_seed();
    int n_flip = test_draws(2000, 100000), n_refused = 0;

    for (int i = 0; i < n_flip; i++) {
        size_t at = (size_t)test_below(&rng, (int64_t)header);
        unsigned char mask = (unsigned char)(1 + test_below(&rng, 255));
        struct gguf *g;

        data[at] ^= mask;
        alloc_stat_reset();
        n_refused += gguf_open_memory(&g, data, size, "x", NULL) != PL_OK;
        gguf_close(g);
        check_memory(size);
        fuzz_gguf(data, size);
        data[at] ^= mask;
    }
    assert_in_range(n_refused, n_flip / 100, n_flip);
    free(data);
}

/* ---- memory and time ---------------------------------------------------- */

/* The reader's most expensive input per byte of file: empty strings; many short
 * keys; many small tensors. */
TEST(gguf_memory_is_bounded_by_the_file)
{
    enum { N_STR = 4 << 20, N_DATA = 8 };
    struct file f = {0};
    struct gguf *g;
    char name[16];

    put_header(&f, 0, 1);
    put_key(&f, "k", GGUF_ARRAY);
    put_int(&f, GGUF_STRING, 4);
    put_int(&f, N_STR, 8);
    for (int i = 0; i < N_STR; i++)
        put(&f, "\0\0\0\0\0\0\0", 8);
    alloc_stat_reset();
    open_ok(&g, &f);
    gguf_close(g);
    check_memory(f.size);

    f.size = 0;
    put_header(&f, GGUF_MAX_TENSOR, GGUF_MAX_KV);
    for (int i = 0; i < GGUF_MAX_KV; i++) {
        snprintf(name, sizeof name, "%x", (unsigned)i);
        put_key(&f, name, GGUF_STRING);
        put_int(&f, 0, 8);
    }
    for (int i = 0; i < GGUF_MAX_TENSOR; i++) {
        snprintf(name, sizeof name, "%x", (unsigned)i);
        put_str(&f, name);
        put_int(&f, 1, 4);
        put_int(&f, 1, 8);
        put_int(&f, 24, 4); /* format I8 */
        /* descending offsets, which the reader must sort */
        put_int(&f, 32 * (uint64_t)(GGUF_MAX_TENSOR - 1 - i), 8);
    }
    pad(&f, 32);
    for (size_t i = 0; i < (size_t)4 * GGUF_MAX_TENSOR; i++)
        put(&f, "\0\0\0\0\0\0\0", N_DATA);
    alloc_stat_reset();
    open_ok(&g, &f);
    assert_ptr_equal(gguf_find_tensor(g, "1ffff"),
                     gguf_tensor_at(g, GGUF_MAX_TENSOR - 1));
    assert_ptr_equal(gguf_find(g, "ffff"), gguf_kv_at(g, GGUF_MAX_KV - 1));
    gguf_close(g);
    check_memory(f.size);
    free(f.data);
}

TEST(gguf_every_failed_allocation_is_a_status)
{
    struct file f;
    size_t at[N_FIELD];

    sample(&f, at);
    for (int64_t n = 0; alloc_each(&n);) {
        struct gguf *g;
        pl_err err;

        if (alloc_ran(gguf_open_memory(&g, f.data, f.size, "x", &err))) {
            assert_int_equal(err.status, PL_NO_MEMORY);
            assert_null(g);
        }
        gguf_close(g);
        check_memory(f.size);
    }
    free(f.data);
}
