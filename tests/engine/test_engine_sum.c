/* Weights are identified by a sum over all of their bytes, whatever file they
 * are in. A large file is read once for it. */
#include "base/hash64.h"
#include "engine/model_sum.h"
#include "lib/support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct gguf *open_file(const char *path)
{
    struct gguf *g;
    pl_err err;

    TEST_OK(gguf_open(&g, path, &err), err);
    return g;
}

static uint64_t sum_of(const char *path, int n_thread, uint64_t least)
{
    struct gguf *g = open_file(path);
    uint64_t sum;
    pl_err err;

    TEST_OK(model_sum(&sum, g, n_thread, least, NULL, &err), err);
    gguf_close(g);
    return sum;
}

static void copy_file(const char *from, const char *to)
{
    char line[2048];

    snprintf(line, sizeof line, "cp '%s' '%s'", from, to);
    assert_int_equal(system(line), 0);
}

static uint64_t draw(uint64_t *seed, uint64_t n)
{
    return test_random(seed) % n;
}

/* One bit of one weight, anywhere, with the file's size and times as they
 * were. */
TEST(sum_of_weights_shows_any_change)
{
    const char *path = test_temp("sum.gguf");
    uint64_t seed = test_seed(), first;
    struct gguf *g;
    struct stat st;
    int fd;

    copy_file(test_model(), path);
    first = sum_of(test_model(), 1, UINT64_MAX);
    assert_int_equal(sum_of(path, 1, UINT64_MAX), first);
    assert_int_equal(sum_of(path, 7, UINT64_MAX), first);
    g = open_file(path);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    for (int i = 0; i < 40; i++) {
        const struct gguf_tensor *t =
            gguf_tensor_at(g, (int64_t)draw(&seed, gguf_n_tensor(g)));
        off_t at = (off_t)(t->offset + draw(&seed, t->bytes));
        unsigned char was, is;

        assert_int_equal(pread(fd, &was, 1, at), 1);
        is = was ^ (unsigned char)(1 << i % 8);
        assert_int_equal(pwrite(fd, &is, 1, at), 1);
        futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim});
        assert_true(sum_of(path, 1 + i % 3, UINT64_MAX) != first);
        assert_int_equal(pwrite(fd, &was, 1, at), 1);
    }
    assert_int_equal(sum_of(path, 2, UINT64_MAX), first);
    close(fd);
    gguf_close(g);
}

/* Overwrites the only file of the folder of sums with another sum. */
static void lie(const char *dir, const char *bytes, int n, bool whole)
{
    char line[2048];

    snprintf(line, sizeof line,
             "f=$(ls '%s/plait/sums/'*) && %s printf '%s' | "
             "dd of=\"$f\" bs=1 seek=%d conv=notrunc 2>/dev/null",
             dir, whole ? "" : "truncate -s 20 \"$f\" &&", bytes, n);
    assert_int_equal(system(line), 0);
}

static int n_kept(const char *dir)
{
    char line[2048];
    FILE *p;
    int n = -1;

    snprintf(line, sizeof line, "ls '%s/plait/sums' 2>/dev/null | wc -l", dir);
    p = popen(line, "r");
    assert_non_null(p);
    assert_int_equal(fscanf(p, "%d", &n), 1);
    pclose(p);
    return n;
}

TEST(sum_of_weights_is_made_once_a_file)
{
    const char *path = test_temp("kept.gguf"), *dir = test_temp("sums");
    const char *before = getenv("XDG_CACHE_HOME");
    char *old = before ? strdup(before) : NULL;
    uint64_t first, key[2], other[2];
    struct gguf *g;

    copy_file(test_model(), path);
    assert_int_equal(setenv("XDG_CACHE_HOME", dir, 1), 0);
    first = sum_of(path, 2, UINT64_MAX);
    /* checksums of small files are not stored */
    assert_int_equal(n_kept(dir), 0);
    assert_int_equal(sum_of(path, 2, 0), first);
    assert_int_equal(n_kept(dir), 1);
    assert_int_equal(sum_of(path, 2, 0), first);
    /* damages the stored checksum, which is then computed again */
    lie(dir, "x", 9, true);
    assert_int_equal(sum_of(path, 2, 0), first);
    lie(dir, "", 0, false);
    assert_int_equal(sum_of(path, 2, 0), first);
    g = open_file(path);
    assert_true(gguf_identity(g, key) && gguf_identity(g, other));
    assert_memory_equal(key, other, sizeof key);
    { /* a file that was written counts as another, even with its old times */
        struct stat st;
        int fd = open(path, O_RDWR);
        unsigned char b;

        assert_int_equal(fstat(fd, &st), 0);
        assert_int_equal(pread(fd, &b, 1, st.st_size - 1), 1);
        b ^= 1;
        assert_int_equal(pwrite(fd, &b, 1, st.st_size - 1), 1);
        futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim});
        close(fd);
    }
    assert_true(gguf_identity(g, other));
    assert_memory_not_equal(key, other, sizeof key);
    gguf_close(g);
    assert_true(sum_of(path, 2, 0) != first);
    assert_int_equal(n_kept(dir), 2);
    /* if nothing can be cached, the sum is made each time */
    assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null/none", 1), 0);
    assert_true(sum_of(path, 2, 0) != first);
    if (old)
        setenv("XDG_CACHE_HOME", old, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    free(old);
}

/* A valid cached sum of another algorithm: in the form without a number, and
 * with another number. */
TEST(sum_of_weights_of_another_way_is_made_again)
{
    const char *path = test_temp("way.gguf"), *dir = test_temp("way-sums");
    const char *before = getenv("XDG_CACHE_HOME");
    char *old = before ? strdup(before) : NULL;
    uint64_t first, hash;
    char line[2048], file[700];
    FILE *f;

    copy_file(test_model(), path);
    assert_int_equal(setenv("XDG_CACHE_HOME", dir, 1), 0);
    first = sum_of(path, 2, 0);
    /* number in the stored file; with 0 the file has none, as an older form of
     * it */
    for (int way = 0; way < 4; way++) {
        uint64_t v[2] = {(uint64_t)way, first ^ 1};
        unsigned char b[32] = "plaitsum";
        size_t n = way == 0 ? 16 : 24;

        memcpy(b + 8, way == 0 ? v + 1 : v, n - 8);
        hash = hash64(0, b, n);
        memcpy(b + n, &hash, 8);
        snprintf(line, sizeof line, "ls -d '%s/plait/sums/'*", dir);
        f = popen(line, "r");
        assert_true(f && fscanf(f, "%699s", file) == 1);
        pclose(f);
        f = fopen(file, "wb");
        assert_true(f && fwrite(b, 1, n + 8, f) == n + 8 && fclose(f) == 0);
        /* 2 is the present one: it is believed, or nothing would be cached */
        assert_int_equal(sum_of(path, 2, 0), way == 2 ? first ^ 1 : first);
    }
    assert_int_equal(n_kept(dir), 1);
    if (old)
        setenv("XDG_CACHE_HOME", old, 1);
    else
        unsetenv("XDG_CACHE_HOME");
    free(old);
}

TEST(sum_of_weights_ends_when_it_is_given_up)
{
    struct gguf *g = open_file(test_model());
    const int cancel = 1;
    uint64_t sum;
    pl_err err;

    assert_int_equal(model_sum(&sum, g, 2, UINT64_MAX, &cancel, &err),
                     PL_CANCELLED);
    gguf_close(g);
}
