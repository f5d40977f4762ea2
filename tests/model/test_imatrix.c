/* Files of importances: both forms are read alike, and damage is told by file
 * and offset. */
#include "gguf/gguf_write.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "quantize/imatrix.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the binary form ----------------------------------------------------- */

struct file {
    unsigned char data[4096];
    size_t n;
};

static void add(struct file *f, const void *p, size_t n)
{
    assert_true(f->n + n <= sizeof f->data);
    memcpy(f->data + f->n, p, n);
    f->n += n;
}

static void add_i32(struct file *f, int32_t v)
{
    add(f, &v, 4);
}

static void add_text(struct file *f, const char *s)
{
    add_i32(f, (int32_t)strlen(s));
    add(f, s, strlen(s));
}

static void add_entry(struct file *f, const char *name, int32_t n_call, int n,
                      float first)
{
    add_text(f, name);
    add_i32(f, n_call);
    add_i32(f, n);
    for (int i = 0; i < n; i++) {
        float v = first + (float)i;

        add(f, &v, sizeof v);
    }
}

/* Two matrices, of 3 and 4 columns, and what follows in later versions. */
static void make(struct file *f, bool late)
{
    f->n = 0;
    add_i32(f, 2);
    add_entry(f, "a.weight", 4, 3, 8);
    add_entry(f, "b.weight", 0, 4, 1);
    if (late) {
        add_i32(f, 17);
        add_text(f, "calibration.txt");
    }
}

TEST(imatrix_reads_the_binary_form)
{
    for (int late = 0; late < 2; late++) {
        const struct imatrix_entry *e;
        struct imatrix *m;
        struct file f;
        pl_err err;

        make(&f, late);
        TEST_OK(imatrix_read(&m, f.data, f.n, "file", &err), err);
        assert_int_equal(imatrix_count(m), 2);
        e = imatrix_find(m, "a.weight");
        assert_non_null(e);
        assert_int_equal(e->n, 3);
        for (int i = 0; i < 3; i++)
            assert_true(e->value[i] == (float)(8 + i) / 4);
        e = imatrix_find(m, "b.weight");
        assert_non_null(e);
        assert_true(e->n == 4 && e->value[3] == 4);
        assert_null(imatrix_find(m, "c.weight"));
        assert_int_equal(imatrix_chunks(m), late ? 17 : 0);
        if (late)
            assert_string_equal(imatrix_dataset(m), "calibration.txt");
        else
            assert_null(imatrix_dataset(m));
        imatrix_free(m);
    }
}

TEST(imatrix_names_the_offset_of_damage)
{
    struct file f;

    make(&f, true);
    for (size_t n = 0; n < f.n; n++) { /* at every length */
        struct imatrix *m;
        pl_err err;
        struct file early;

        make(&early, false);
        if (n == early.n)
            continue;
        assert_int_equal(imatrix_read(&m, f.data, n, "cut.dat", &err),
                         PL_BAD_FILE);
        assert_null(m);
        assert_non_null(strstr(err.message, "cut.dat: offset "));
    }
}

TEST(imatrix_rejects_impossible_numbers)
{
    static const struct {
        size_t at;
        int32_t v;
        const char *says;
    } rows[] = {
        {0, 0, "number of matrices"},
        {0, -1, "number of matrices"},
        {0, 1 << 30, "number of matrices"},
        {0, 100000, "more matrices than"},
        {4, -5, "length of a name"},
        {4, 4000, "beyond the end"},
        {16, -1, "number of calls"},
        {20, 0, "number of values"},
        {20, 1 << 28, "beyond the end"},
        {24, 0x7fc00000, "importance 0 is nan"},
        {24, 0x7f800000, "importance 0 is inf"},
        {28, -0x40800000, "not a number of 0"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct imatrix *m;
        struct file f;
        pl_err err;

        make(&f, true);
        memcpy(f.data + rows[i].at, &rows[i].v, 4);
        assert_int_equal(imatrix_read(&m, f.data, f.n, "file", &err),
                         PL_BAD_FILE);
        if (!strstr(err.message, rows[i].says))
            fail_msg("row %zu: %s", i, err.message);
    }
}

/* ---- the GGUF form ------------------------------------------------------- */

struct put {
    float sums[6], counts[2];
};

static void write_gguf(const char *path, const struct put *p, bool counts)
{
    static const struct gguf_str sets[] = {{"one.txt", 7}, {"two.txt", 7}};
    struct gguf_writer *w;
    pl_err err;

    TEST_OK(gguf_writer_create(&w, &err), err);
    gguf_put_str(w, "general.type", "imatrix");
    gguf_put_strs(w, "imatrix.datasets", sets, 2);
    gguf_put_u32(w, "imatrix.chunk_count", 9);
    gguf_put_u32(w, "imatrix.chunk_size", 512);
    gguf_put_tensor(w, "x.weight.in_sum2", PL_F32, 2, (int64_t[]){2, 3},
                    p->sums);
    if (counts)
        gguf_put_tensor(w, "x.weight.counts", PL_F32, 2, (int64_t[]){2, 1},
                        p->counts);
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
}

TEST(imatrix_reads_the_gguf_form)
{
    static const struct put p = {{2, 4, 6, 0, 0, 0}, {2, 0}};
    static const float want[6] = {1, 2, 3, 1, 1, 1}; /* an unused expert */
    const char *path = test_temp("imatrix.gguf");
    const struct imatrix_entry *e;
    struct imatrix *m;
    pl_err err;

    write_gguf(path, &p, true);
    TEST_OK(imatrix_open(&m, path, &err), err);
    assert_int_equal(imatrix_count(m), 1);
    e = imatrix_find(m, "x.weight");
    assert_non_null(e);
    assert_int_equal(e->n, 6);
    assert_memory_equal(e->value, want, sizeof want);
    assert_string_equal(imatrix_dataset(m), "one.txt");
    assert_int_equal(imatrix_chunks(m), 9);
    imatrix_free(m);

    write_gguf(path, &p, false);
    assert_int_equal(imatrix_open(&m, path, &err), PL_BAD_FILE);
    assert_non_null(strstr(err.message, ".counts"));
    assert_int_equal(imatrix_open(&m, test_temp("none.dat"), &err),
                     PL_NOT_FOUND);
    assert_int_equal(imatrix_open(&m, test_model(), &err), PL_BAD_FILE);
    assert_non_null(strstr(err.message, ".in_sum2"));
}

TEST(imatrix_survives_any_failed_allocation)
{
    static const struct put p = {{2, 4, 6, 1, 1, 1}, {2, 1}};
    const char *path = test_temp("fails.gguf");
    struct file f;

    make(&f, true);
    write_gguf(path, &p, true);
    for (int64_t n = 0; alloc_each(&n);) {
        struct imatrix *m;

        alloc_ran(imatrix_read(&m, f.data, f.n, "file", NULL));
        imatrix_free(m);
    }
    for (int64_t n = 0; alloc_each(&n);) {
        struct imatrix *m;

        alloc_ran(imatrix_open(&m, path, NULL));
        imatrix_free(m);
    }
}
