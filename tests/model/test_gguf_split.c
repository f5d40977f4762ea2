/* Split sets: any part's name opens all of them. Parts that do not belong
 * together are rejected by part and by name. */
#include "gguf/gguf_write.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_PART = 3 };

/* One part to be written; the sample set has three. */
struct part {
    /* values of the keys split.no, split.count and split.tensors.count; -1 to
     * leave the key out */
    int64_t no, count, n_tensor;
    const char *tensor[2]; /* names of the part's tensors; NULL for none */
};

static const struct part sample[N_PART] = {
    {0, 3, 4, {"a", "b"}},
    {1, 3, 4, {NULL, NULL}},
    {2, 3, 4, {"c", "d"}},
};

static const char *part_path(const char *set, int no)
{
    char name[64];

    snprintf(name, sizeof name, "%s-%05d-of-%05d.gguf", set, no + 1, N_PART);
    return test_temp(name);
}

static void put_u16(struct gguf_writer *w, const char *key, int64_t v)
{
    unsigned char data[2] = {(unsigned char)v, (unsigned char)(v >> 8)};

    if (v >= 0)
        gguf_put_kv(w, &(struct gguf_kv){key, GGUF_U16, GGUF_U16, 1, data, NULL,
                                         false});
}

static void write_part(const char *path, const struct part *p)
{
    struct gguf_writer *w;
    float v[2][3];
    pl_err err;

    TEST_OK(gguf_writer_create(&w, &err), err);
    put_u16(w, "split.no", p->no);
    put_u16(w, "split.count", p->count);
    if (p->n_tensor >= 0)
        gguf_put_u32(w, "split.tensors.count", (uint32_t)p->n_tensor);
    gguf_put_u32(w, p->no == 0 ? "first" : "later", 1);
    for (int i = 0; i < 2; i++) {
        if (!p->tensor[i])
            continue;
        for (int k = 0; k < 3; k++)
            v[i][k] = (float)p->tensor[i][0];
        gguf_put_tensor(w, p->tensor[i], PL_F32, 1, &(int64_t){3}, v[i]);
    }
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
}

static void write_set(const char *set, const struct part parts[N_PART])
{
    for (int i = 0; i < N_PART; i++)
        write_part(part_path(set, i), &parts[i]);
}

TEST(gguf_split_any_part_opens_the_set)
{
    static const char *const names[] = {"a", "b", "c", "d"};

    write_set("set", sample);
    for (int given = 0; given < N_PART; given++) {
        struct gguf *g;
        size_t bytes = 0;
        pl_err err;

        TEST_OK(gguf_open(&g, part_path("set", given), &err), err);
        assert_string_equal(gguf_path(g), part_path("set", 0));
        assert_int_equal(gguf_n_part(g), N_PART);
        assert_non_null(gguf_find(g, "first"));
        /* only the first part's keys are read */
        assert_null(gguf_find(g, "later"));
        assert_int_equal(gguf_n_tensor(g), 4);
        for (int i = 0; i < 4; i++) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            float v[3];

            assert_string_equal(t->name, names[i]);
            assert_ptr_equal(gguf_find_tensor(g, names[i]), t);
            assert_int_equal(t->part, i < 2 ? 0 : 2);
            memcpy(v, t->data, sizeof v);
            assert_true(v[2] == (float)names[i][0]);
        }
        for (int i = 0; i < N_PART; i++) {
            FILE *f = fopen(part_path("set", i), "rb");

            assert_non_null(f);
            assert_int_equal(fseek(f, 0, SEEK_END), 0);
            bytes += (size_t)ftell(f);
            fclose(f);
        }
        assert_int_equal(gguf_file_bytes(g), bytes);
        gguf_close(g);
    }
}

/* An opened set knows its files by each of their names, links included, but
 * knows no copies of them. */
TEST(gguf_split_knows_all_its_files)
{
    struct gguf *g;
    pl_err err;

    write_set("known", sample);
    TEST_OK(gguf_open(&g, part_path("known", 1), &err), err);
    for (int i = 0; i < N_PART; i++) {
        char other[2][32];

        for (int k = 0; k < 2; k++)
            snprintf(other[k], sizeof other[k], "known-%d-%d", i, k);
        assert_true(gguf_has_file(g, part_path("known", i)));
        assert_int_equal(symlink(part_path("known", i), test_temp(other[0])),
                         0);
        assert_int_equal(link(part_path("known", i), test_temp(other[1])), 0);
        assert_true(gguf_has_file(g, test_temp(other[0])));
        assert_true(gguf_has_file(g, test_temp(other[1])));
    }
    assert_false(gguf_has_file(g, test_temp("unknown")));
    write_set("copy", sample);
    assert_false(gguf_has_file(g, part_path("copy", 0)));
    gguf_close(g);
}

static void expect(const char *path, pl_status want, const char *text)
{
    struct gguf *g;
    pl_err err = {PL_OK, ""};
    pl_status s = gguf_open(&g, path, &err);

    if (s != want || !strstr(err.message, text))
        fail_msg("%s, %s wanted; \"%s\" not in \"%s\"", pl_status_name(s),
                 pl_status_name(want), text, err.message);
    assert_null(g);
}

TEST(gguf_split_a_missing_part_is_named)
{
    write_set("missing", sample);
    assert_int_equal(unlink(part_path("missing", 1)), 0);
    for (int given = 0; given < N_PART; given += 2)
        expect(part_path("missing", given), PL_NOT_FOUND,
               "missing-00002-of-00003.gguf: part 2 of 3 is missing");
}

/* Each row is the sample with one part replaced, opened by its first part. */
TEST(gguf_split_parts_that_disagree_are_refused)
{
    static const struct {
        int at;
        struct part part;
        const char *text;
    } rows[] = {
        {1, {2, 3, 4, {0}}, "part 3 of 3 by its metadata, 2 of 3"},
        {1, {1, 2, 4, {0}}, "part 2 of 2 by its metadata, 2 of 3"},
        {1, {-1, -1, -1, {0}}, "part 1 of 1 by its metadata, 2 of 3"},
        {1, {-1, 3, 4, {0}}, "split.no is missing"},
        {1, {3, 3, 4, {0}}, "split.no is 3"},
        {1, {1, 3, 5, {0}}, "split.tensors.count is 5, but 4 in"},
        {1, {1, 3, -1, {0}}, "split.tensors.count is -1, but 4 in"},
        {2, {2, 3, 4, {"c", NULL}}, "but the 3 parts have 3 tensors"},
        {2, {2, 3, 4, {"c", "b"}}, "part 1 has a tensor of the same name"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_set("odd", sample);
        write_part(part_path("odd", rows[i].at), &rows[i].part);
        expect(part_path("odd", 0), PL_BAD_FILE, rows[i].text);
    }
}

TEST(gguf_split_a_part_must_have_its_name)
{
    write_part(test_temp("renamed.gguf"), &sample[1]);
    expect(test_temp("renamed.gguf"), PL_BAD_FILE,
           "must end in -00002-of-00003.gguf");
    write_part(part_path("swapped", 0), &sample[1]);
    expect(part_path("swapped", 0), PL_BAD_FILE,
           "must end in -00002-of-00003.gguf");
}

/* A count of one, and a file that merely has such a name, are whole files. */
TEST(gguf_split_of_one_is_a_file)
{
    static const struct part whole[] = {{0, 1, 2, {"a", "b"}},
                                        {-1, -1, -1, {"a", "b"}}};

    for (int i = 0; i < 2; i++) {
        struct gguf *g;
        pl_err err;

        write_part(part_path("whole", 1), &whole[i]);
        TEST_OK(gguf_open(&g, part_path("whole", 1), &err), err);
        assert_int_equal(gguf_n_part(g), 1);
        assert_int_equal(gguf_n_tensor(g), 2);
        gguf_close(g);
    }
}

/* Returns the mappings of files whose path contains `name`; -1 if unknown. */
static int mappings(const char *name)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[4096 + 256];
    int n = 0;

    if (!f)
        return -1;
    while (fgets(line, sizeof line, f))
        n += strstr(line, name) != NULL;
    fclose(f);
    return n;
}

/* Returns the number of open descriptors of files whose path contains
 * `name`. */
static int descriptors(const char *name)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        char link[64], path[4096];
        ssize_t len;

        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        len = readlink(link, path, sizeof path - 1);
        path[len > 0 ? len : 0] = '\0';
        n += strstr(path, name) != NULL;
    }
    return n;
}

TEST(gguf_split_nothing_stays_open)
{
    struct gguf *g;

    if (mappings("maps-0000") < 0)
        TEST_SKIP("there is no /proc/self/maps");
    write_set("maps", sample);
    assert_int_equal(gguf_open(&g, part_path("maps", 0), NULL), PL_OK);
    assert_int_equal(descriptors("maps-0000"), N_PART);
    gguf_close(g);
    assert_int_equal(mappings("maps-0000"), 0);
    assert_int_equal(descriptors("maps-0000"), 0);
    assert_int_equal(unlink(part_path("maps", 2)), 0);
    assert_int_equal(gguf_open(&g, part_path("maps", 0), NULL), PL_NOT_FOUND);
    assert_int_equal(mappings("maps-0000"), 0);
    assert_int_equal(descriptors("maps-0000"), 0);
}

TEST(gguf_split_is_refused_in_memory)
{
    struct gguf *g;
    void *data;
    size_t n;
    pl_err err;

    write_part(part_path("memory", 0), &sample[0]);
    data = test_read(part_path("memory", 0), &n);
    assert_int_equal(gguf_open_memory(&g, data, n, "x", &err), PL_UNSUPPORTED);
    assert_null(g);
    free(data);
}

TEST(gguf_split_every_failed_allocation_is_a_status)
{
    const char *path;

    write_set("alloc", sample);
    path = part_path("alloc", 1);
    for (int64_t n = 0; alloc_each(&n);) {
        struct gguf *g;
        pl_err err;

        alloc_ran(gguf_open(&g, path, &err));
        gguf_close(g);
    }
}
