/* The cache's tiers without an engine. Host memory keeps the same pages as a
 * list. A folder returns whole pages only, even after crashes, damage, or use
 * by several servers, and lookups find the right pages. */
#include "lib/alloc_fail.h"
#include "lib/mute_disk.h"
#include "lib/support.h"
#include "server/tier_disk.h"
#include "server/tier_table.h"
#include "server/tiers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Returns the nth page of text `x`, whose bytes only that page has. */
static unsigned char *data_of(int x, int i, size_t n)
{
    unsigned char *b = test_need(n + 1, 1);
    uint64_t seed = (uint64_t)x * 1000 + (uint64_t)i;

    for (size_t k = 0; k < n; k++)
        b[k] = (unsigned char)test_random(&seed);
    return b;
}

static int32_t token_of(int x, int64_t i)
{
    uint64_t seed = (uint64_t)x << 32 | (uint64_t)i;

    return (int32_t)test_below(&seed, 1000);
}

static void text_of(int x, int64_t n, int32_t *token)
{
    for (int64_t i = 0; i < n; i++)
        token[i] = token_of(x, i);
}

static struct tier_entry *entry_of(int x, int i, size_t bytes, bool goes_on)
{
    struct tier_key root = {{1}};
    int32_t token[TIER_TOKENS];
    struct tier_entry *e;

    text_of(x * 100 + i, TIER_TOKENS, token);
    e = tier_entry_new(&root, (int64_t)i * TIER_TOKENS, token, TIER_TOKENS,
                       goes_on, data_of(x, i, bytes), bytes);
    assert_non_null(e);
    return e;
}

static void same_entry(const struct tier_entry *a, const struct tier_entry *b)
{
    assert_non_null(a);
    assert_true(tier_key_same(&a->key, &b->key));
    assert_int_equal(a->first, b->first);
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->resumable, b->resumable);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->token, b->token, sizeof a->token);
    assert_memory_equal(a->data, b->data, a->bytes);
}

/* ---- host memory --------------------------------------------------------- */

enum { N_KEY = 40 };

/* The expected table, by use, the least recently used first. */
struct plain {
    int n, of[N_KEY];
    bool owed[N_KEY];
    struct tier_entry *e[N_KEY];
};

static void plain_remove(struct plain *p, int at)
{
    p->n--;
    memmove(&p->of[at], &p->of[at + 1], sizeof(int) * (size_t)(p->n - at));
}

static int plain_find(const struct plain *p, int k)
{
    for (int i = 0; i < p->n; i++)
        if (p->of[i] == k)
            return i;
    return -1;
}

static uint64_t plain_bytes(const struct plain *p)
{
    uint64_t n = 0;

    for (int i = 0; i < p->n; i++)
        n += tier_entry_size(p->e[p->of[i]]);
    return n;
}

static void plain_put(struct plain *p, int k, bool owed, uint64_t limit)
{
    int at = plain_find(p, k);

    if (at >= 0)
        plain_remove(p, at);
    while (p->n > 0 && plain_bytes(p) + tier_entry_size(p->e[k]) > limit) {
        at = 0;
        for (int i = p->n - 1; i >= 0; i--)
            at = p->owed[p->of[i]] ? at : i;
        plain_remove(p, at);
    }
    p->of[p->n++] = k;
    p->owed[k] = owed;
}

TEST(tier_of_memory_keeps_what_was_used_last)
{
    uint64_t seed = test_seed();
    struct plain p = {0};
    struct tier_table t;

    assert_true(tier_table_init(&t, 20000));
    for (int k = 0; k < N_KEY; k++)
        p.e[k] = entry_of(1, k, 200 + 50 * (size_t)k, true);
    for (int round = 0; round < 20000; round++) {
        int k = (int)test_below(&seed, N_KEY), at = plain_find(&p, k);
        struct tier_entry *e;

        switch (test_below(&seed, 5)) {
        case 0:
        case 1:
            plain_put(&p, k, round % 3 == 0, 20000);
            assert_true(tier_table_put(&t, p.e[k], round % 3 == 0));
            break;
        case 2:
            e = tier_table_find(&t, &p.e[k]->key);
            assert_ptr_equal(e, at >= 0 ? p.e[k] : NULL);
            if (at >= 0) {
                plain_remove(&p, at);
                p.of[p.n++] = k;
            }
            break;
        case 3:
            e = tier_table_oldest_dirty(&t);
            for (at = 0; at < p.n && !p.owed[p.of[at]];)
                at++;
            assert_ptr_equal(e, at < p.n ? p.e[p.of[at]] : NULL);
            if (!e)
                break;
            tier_table_mark_clean(&t, e);
            k = p.of[at];
            p.owed[k] = false;
            plain_remove(&p, at);
            p.of[p.n++] = k;
            break;
        default:
            if (at >= 0)
                plain_remove(&p, at);
            tier_table_drop(&t, &p.e[k]->key);
        }
        assert_int_equal(t.n, p.n);
        assert_int_equal(t.bytes, plain_bytes(&p));
        assert_true(t.bytes <= t.limit && t.dirty <= t.bytes);
    }
    tier_table_fini(&t);
    for (int k = 0; k < N_KEY; k++) {
        assert_int_equal(p.e[k]->refs, 1);
        tier_entry_unref(p.e[k]);
    }
}

/* ---- the folder ---------------------------------------------------------- */

static void open_disk(struct tier_disk *d, const char *dir, uint64_t limit)
{
    pl_err err;

    TEST_OK(tier_disk_open(d, dir, limit, &err), err);
}

/* Counts the files of the folder; *bytes of them, and the name of the last. */
static int n_file(const char *dir, uint64_t *bytes, char name[256])
{
    DIR *d = opendir(dir);
    const struct dirent *e;
    int n = 0;

    assert_non_null(d);
    *bytes = 0;
    while ((e = readdir(d))) {
        struct stat st;

        if (e->d_name[0] == '.')
            continue;
        assert_int_equal(fstatat(dirfd(d), e->d_name, &st, 0), 0);
        *bytes += (uint64_t)st.st_size;
        snprintf(name, 256, "%s", e->d_name);
        n++;
    }
    closedir(d);
    return n;
}

TEST(tier_of_disk_gives_back_what_was_written)
{
    const char *dir = test_temp("tier-back");
    struct tier_disk d, other;
    bool damaged;

    open_disk(&d, dir, 1 << 20);
    open_disk(&other, dir, 1 << 20); /* a second server on the same folder */
    for (int i = 0; i < 20; i++) {
        struct tier_entry *e = entry_of(2, i, 1000 + (size_t)i, i % 2), *got;

        assert_true(tier_disk_write(i % 3 ? &d : &other, e));
        /* writing an entry again changes nothing */
        assert_true(tier_disk_write(&d, e));
        got = tier_disk_read(i % 2 ? &d : &other, &e->key, false, &damaged);
        same_entry(got, e);
        tier_entry_unref(got);
        got = tier_disk_read(&d, &e->key, true, &damaged);
        assert_non_null(got);
        assert_null(got->data);
        tier_entry_unref(got);
        tier_disk_drop(&other, &e->key);
        assert_null(tier_disk_read(&d, &e->key, false, &damaged));
        assert_false(damaged);
        tier_entry_unref(e);
    }
    tier_disk_close(&d);
    tier_disk_close(&other);
}

/* Whichever byte of the head is changed, however short the file is: it is not
 * returned, and is deleted. The engine checks the data. */
TEST(tier_of_disk_drops_what_is_damaged)
{
    const char *dir = test_temp("tier-damage");
    struct tier_entry *e = entry_of(3, 0, 500, true);
    struct tier_disk d;
    char path[700], name[256];
    uint64_t bytes;
    bool damaged;

    open_disk(&d, dir, 1 << 20);
    for (int i = 0; i < TIER_HEAD + 8; i++) {
        int fd;

        assert_true(tier_disk_write(&d, e));
        assert_int_equal(n_file(dir, &bytes, name), 1);
        snprintf(path, sizeof path, "%s/%s", dir, name);
        fd = open(path, O_RDWR);
        assert_true(fd >= 0);
        if (i < TIER_HEAD) {
            unsigned char b;

            assert_int_equal(pread(fd, &b, 1, i), 1);
            b ^= 1 << i % 8;
            assert_int_equal(pwrite(fd, &b, 1, i), 1);
        } else {
            assert_int_equal(ftruncate(fd, (i - TIER_HEAD) * 107), 0);
        }
        close(fd);
        assert_null(tier_disk_read(&d, &e->key, i % 2, &damaged));
        assert_true(damaged);
        assert_int_equal(n_file(dir, &bytes, name), 0);
    }
    tier_entry_unref(e);
    tier_disk_close(&d);
}

/* Waits until the clock by which files are dated has advanced. */
static void next_tick(void)
{
    struct timespec was, t;

    clock_gettime(CLOCK_REALTIME_COARSE, &was);
    do
        clock_gettime(CLOCK_REALTIME_COARSE, &t);
    while (t.tv_sec == was.tv_sec && t.tv_nsec == was.tv_nsec);
}

/* The folder keeps its limit, and the pages used last stay. */
TEST(tier_of_disk_is_bounded)
{
    const char *dir = test_temp("tier-bound");
    const uint64_t limit = 100000;
    struct tier_entry *kept = entry_of(4, 999, 3000, true), *got;
    struct tier_disk d;
    char name[256];
    uint64_t bytes;
    bool damaged;

    open_disk(&d, dir, limit);
    assert_true(tier_disk_write(&d, kept));
    for (int i = 0; i < 200; i++) {
        struct tier_entry *e = entry_of(4, i, 3000, true);

        assert_true(tier_disk_write(&d, e));
        tier_entry_unref(e);
        /* about thirty entries fit, so every tenth of them gets a later date */
        if (i % 10 == 0)
            next_tick();
        tier_disk_touch(&d, &kept->key);
        n_file(dir, &bytes, name);
        assert_true(bytes <= limit);
    }
    assert_true(bytes > limit / 2);
    got = tier_disk_read(&d, &kept->key, false, &damaged);
    same_entry(got, kept);
    tier_entry_unref(got);
    tier_entry_unref(kept);
    tier_disk_close(&d);
}

TEST(tier_of_disk_is_its_owners)
{
    const char *dir = test_temp("tier-owner");
    struct tier_entry *e = entry_of(7, 0, 100, true);
    struct tier_disk d;
    char path[700], name[256];
    struct stat st;
    uint64_t bytes;
    pl_err err;

    open_disk(&d, dir, 1 << 20);
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0077, 0);
    assert_true(tier_disk_write(&d, e));
    assert_int_equal(n_file(dir, &bytes, name), 1);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0077, 0);
    tier_disk_close(&d);
    assert_int_equal(chmod(dir, 0777), 0);
    assert_int_equal(tier_disk_open(&d, dir, 1 << 20, &err), PL_BAD_ARGUMENT);
    assert_int_equal(chmod(dir, 0700), 0);
    open_disk(&d, dir, 1 << 20);
    tier_disk_close(&d);
    tier_entry_unref(e);
}

/* Other files stay, however old they are and however full the folder is.
 * Unfinished files of a server are deleted. */
TEST(tier_of_disk_leaves_other_files)
{
    static const char *const names[] = {
        "notes.page",          "film.part",           "7.0.part",
        "7.0.0123abcd.part.x", "7.0.0123abcd.page",   "abc.page",
        "x.7.0.0123abcd.part", "12.345.0123abcd.part"};
    const char *dir = test_temp("tier-others");
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct tier_disk d;
    char path[700], name[256];
    uint64_t bytes;

    open_disk(&d, dir, 20000);
    for (int i = 0; i < 8; i++) {
        FILE *f;

        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        f = fopen(path, "w");
        assert_non_null(f);
        for (int k = 0; k < 5000; k++)
            fputc('x', f);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    }
    for (int i = 0; i < 20; i++) {
        struct tier_entry *e = entry_of(6, i, 3000, true);

        assert_true(tier_disk_write(&d, e));
        tier_entry_unref(e);
    }
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        assert_int_equal(access(path, F_OK), i < 7 ? 0 : -1);
    }
    assert_true(n_file(dir, &bytes, name) > 7 + 2);
    assert_true(bytes <= 7 * 5000 + 20000);
    tier_disk_close(&d);
}

struct writer {
    struct tier_disk d;
    int x;
};

static void *write_many(void *user)
{
    struct writer *w = user;

    for (int i = 0; i < 1000; i++) {
        struct tier_entry *e = entry_of(w->x, i, 100, true);
        bool ok = tier_disk_write(&w->d, e);

        tier_entry_unref(e);
        if (!ok)
            return w;
    }
    return NULL;
}

/* Models of one server that share a folder write at the same time. */
TEST(tier_files_of_several_writers_do_not_meet)
{
    enum { N = 4 };
    const char *dir = test_temp("tier-writers");
    pthread_t thread[N];
    struct writer w[N];

    for (int i = 0; i < N; i++) {
        w[i].x = 1 + i;
        open_disk(&w[i].d, dir, 100 << 20);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, write_many, &w[i]),
                         0);
    for (int i = 0; i < N; i++) {
        void *failed;

        assert_int_equal(pthread_join(thread[i], &failed), 0);
        assert_null(failed);
        tier_disk_close(&w[i].d);
    }
}

/* Servers killed during writes: all pages in the folder are whole, and
 * unfinished files are few. */
TEST(tier_of_disk_survives_kill_9)
{
    enum { N_ENTRY = 16, BYTES = 300000 };
    const char *dir = test_temp("tier-kill");
    struct tier_entry *e[N_ENTRY];
    int n_round = test_long() ? 200 : 20;
    atomic_int *n_written =
        mmap(NULL, sizeof *n_written, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t seed = test_seed();
    struct tier_disk d;

    for (int i = 0; i < N_ENTRY; i++)
        e[i] = entry_of(5, i, BYTES, true);
    open_disk(&d, dir, (uint64_t)N_ENTRY * BYTES * 2);
    for (int round = 0; round < n_round; round++) {
        int status, n_found = 0, least = 1 + (int)test_below(&seed, N_ENTRY);
        pid_t pid;

        *n_written = 0;
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            for (int i = round;; i++, ++*n_written)
                if (!tier_disk_write(&d, e[i % N_ENTRY]))
                    _exit(1);
        /* kills the writer after at least this many writes, at a random
         * moment */
        TEST_UNTIL(*n_written >= least);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        for (int i = 0; i < N_ENTRY; i++) {
            bool damaged;
            struct tier_entry *got =
                tier_disk_read(&d, &e[i]->key, false, &damaged);

            assert_false(damaged);
            n_found += got != NULL;
            if (got)
                same_entry(got, e[i]);
            tier_entry_unref(got);
            if (round % 4 == 0)
                tier_disk_drop(&d, &e[i]->key);
        }
        assert_true(n_found >= least);
    }
    munmap(n_written, sizeof *n_written);
    for (int i = 0; i < N_ENTRY; i++)
        tier_entry_unref(e[i]);
    tier_disk_close(&d);
}

/* ---- the whole ----------------------------------------------------------- */

enum { N_TEXT = 10 * TIER_TOKENS + 20, LONG_S = 1000000 };

static void nothing(void *user)
{
    (void)user;
}

/* Stores a text's pages, and one of `part` more tokens that ends within a
 * page. */
static void give_text(struct tiers *t, int x, int n_page, int part,
                      const bool *goes_on)
{
    int32_t token[N_TEXT];

    text_of(x, N_TEXT, token);
    for (int i = 0; i < n_page; i++)
        tiers_store(t, token, (int64_t)(i + 1) * TIER_TOKENS,
                    !goes_on || goes_on[i], data_of(x, i, 2000), 2000);
    if (part > 0)
        tiers_store(t, token, (int64_t)n_page * TIER_TOKENS + part, true,
                    data_of(x, n_page, 2000), 2000);
}

/* Returns the ith page of a lookup once it is loaded, or NULL if it will not
 * be. */
static const struct tier_entry *take(struct tiers *t, struct tiers_lookup *s,
                                     int i)
{
    const struct tier_entry *e;
    bool ended = false;

    TEST_UNTIL((e = tiers_lookup_page(t, s, i, &ended)) || ended);
    return e;
}

static struct tiers_lookup *begin_search(struct tiers *t, int x, int64_t n,
                                         int64_t length)
{
    int32_t token[N_TEXT];
    struct tiers_lookup *s;

    text_of(x, N_TEXT, token);
    s = tiers_search(t, token, n, length, nothing, NULL);
    assert_non_null(s);
    TEST_UNTIL(tiers_search_done(s));
    return s;
}

/* Returns the tokens up to which a text is found from `length` on, after a
 * check of the data. */
static int64_t found(struct tiers *t, int x, int64_t n, int64_t length)
{
    struct tiers_lookup *s = begin_search(t, x, n, length);
    struct tiers_found f = tiers_search_found(s);
    int64_t end = f.n > 0 ? f.from : length;
    const struct tier_entry *e = NULL;
    int32_t token[N_TEXT];

    text_of(x, N_TEXT, token);
    for (int i = 0; i < f.n && (e = take(t, s, i)); i++) {
        unsigned char *data = data_of(x, (int)(end / TIER_TOKENS), 2000);

        assert_int_equal(e->first, end);
        assert_memory_equal(e->token, token + end,
                            (size_t)e->n * sizeof *token);
        assert_int_equal(e->bytes, 2000);
        assert_memory_equal(e->data, data, 2000);
        end += e->n;
        free(data);
        if (i == f.n - 1) {
            assert_true(e->resumable);
            assert_int_equal(end, f.end);
        }
    }
    tiers_search_free(t, s);
    return end;
}

static struct tiers *open_tiers(uint64_t ram, const char *dir)
{
    const struct tiers_options o = {.ram = ram,
                                    .dir = dir,
                                    .disk = 10 << 20,
                                    .hang_s = LONG_S,
                                    .read_hang_s = LONG_S,
                                    .flush_s = LONG_S};
    struct tiers *t;
    pl_err err;

    TEST_OK(tiers_create(&t, &o, &(struct tier_key){{7}}, &err), err);
    return t;
}

/* Waits until all transfers are done: so many pages are in memory, and
 * written. */
static void settle(struct tiers *t, uint64_t n_ram, uint64_t n_written)
{
    struct tiers_counts c;

    TEST_UNTIL(
        (tiers_counts(t, &c), c.ram_pages == n_ram && c.written == n_written));
}

TEST(tiers_find_the_longest_way_on)
{
    static const bool states[10] = {false, false, true, false, false, true};
    const char *dir = test_temp("tier-find");
    struct tiers *t = open_tiers(1 << 20, NULL);
    struct tiers_counts c;

    give_text(t, 1, 10, 0, NULL);
    settle(t, 10, 0);
    assert_int_equal(found(t, 1, N_TEXT, 0), 640);
    assert_int_equal(found(t, 1, N_TEXT, 128), 640);
    /* at least one token must be left to decode */
    assert_int_equal(found(t, 1, 640, 0), 576);
    assert_int_equal(found(t, 1, 641, 0), 640);
    assert_int_equal(found(t, 2, N_TEXT, 0), 0);
    /* a text whose states exist only after 8 pages and at its end */
    give_text(t, 3, 8, 20, states);
    give_text(t, 4, 8, 0, states);
    settle(t, 27, 0);
    assert_int_equal(found(t, 3, N_TEXT, 0), 532);
    assert_int_equal(found(t, 3, 532, 0), 384);
    assert_int_equal(found(t, 4, N_TEXT, 0), 384);
    assert_int_equal(found(t, 4, N_TEXT, 384), 384);
    /* no page is given up: the search counts from the beginning */
    assert_int_equal(found(t, 4, N_TEXT, 200), 384);
    tiers_free(t);

    t = open_tiers(0, dir); /* after a restart the pages are on disk only */
    give_text(t, 1, 10, 0, NULL);
    settle(t, 0, 10);
    assert_int_equal(found(t, 1, N_TEXT, 64), 640);
    tiers_free(t);
    t = open_tiers(1 << 20, dir);
    assert_int_equal(found(t, 1, N_TEXT, 64), 640);
    tiers_counts(t, &c);
    assert_int_equal(c.disk_hits, 9);
    /* the pages are now in host memory */
    assert_int_equal(found(t, 1, N_TEXT, 64), 640);
    tiers_counts(t, &c);
    assert_int_equal(c.disk_hits, 9);
    assert_int_equal(c.ram_hits, 9);
    assert_int_equal(c.ram_hit_bytes, 9 * 2000);
    tiers_free(t);
}

/* At the end all stored pages are written, and counted. */
TEST(tiers_count_what_they_write_at_their_end)
{
    struct tiers *t = open_tiers(1 << 20, test_temp("tier-end"));
    struct tiers_counts c;

    for (int x = 0; x < 20; x++)
        give_text(t, x, 10, 0, NULL);
    tiers_flush(t);
    tiers_counts(t, &c);
    assert_int_equal(c.written, 200);
    assert_int_equal(c.written_bytes, 200 * 2000);
    assert_int_equal(c.lost, 0);
    tiers_free(t);
}

/* A disk that accepts nothing: the process continues, memory keeps its pages,
 * and later writes are whole. */
TEST(tiers_survive_a_full_disk)
{
    const char *dir = test_temp("tier-full");
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        const struct rlimit small = {1000, 1000};
        struct tiers_counts c;
        struct tiers *t;

        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &small);
        t = open_tiers(1 << 20, dir);
        give_text(t, 1, 10, 0, NULL);
        TEST_UNTIL((tiers_counts(t, &c), c.failed + c.lost >= 10));
        _exit(found(t, 1, N_TEXT, 0) == 640 && c.failed == 10 && c.written == 0
                  ? 0
                  : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    {
        uint64_t bytes;
        char name[256];
        struct tiers *t = open_tiers(1 << 20, dir);

        assert_int_equal(n_file(dir, &bytes, name), 0);
        give_text(t, 1, 10, 0, NULL);
        settle(t, 10, 10);
        tiers_free(t);
        assert_int_equal(n_file(dir, &bytes, name), 10);
    }
}

/* A page that is too large for the folder blocks no other. */
TEST(tiers_write_on_behind_a_page_that_is_too_large)
{
    const char *dir = test_temp("tier-large");
    const struct tiers_options o = {
        .ram = 1 << 20, .dir = dir, .disk = 100000, .hang_s = LONG_S};
    struct tiers_counts c;
    struct tiers *t;
    int32_t token[N_TEXT];
    pl_err err;

    TEST_OK(tiers_create(&t, &o, &(struct tier_key){{7}}, &err), err);
    text_of(2, N_TEXT, token);
    tiers_store(t, token, TIER_TOKENS, true, data_of(2, 0, 60000), 60000);
    give_text(t, 1, 10, 0, NULL);
    settle(t, 11, 10);
    tiers_counts(t, &c);
    assert_int_equal(c.failed, 1);
    assert_int_equal(c.lost, 0);
    tiers_free(t);
}

/* The folder may be removed, and made anew by others. */
TEST(tiers_find_a_folder_that_was_removed)
{
    const char *dir = test_temp("tier-removed");
    struct tiers *t = open_tiers(0, dir);
    char line[700], name[256];
    uint64_t bytes;

    for (int i = 0; i < 4; i++) {
        give_text(t, 1 + i, 2, 0, NULL);
        settle(t, 0, 2 * ((uint64_t)i + 1));
        assert_int_equal(found(t, 1 + i, N_TEXT, 0), 128);
        assert_int_equal(n_file(dir, &bytes, name), 2);
        snprintf(line, sizeof line, "rm -r '%s' && %s mkdir -m 700 '%s'", dir,
                 i % 2 ? "" : "true ||", dir);
        assert_int_equal(system(line), 0);
        assert_int_equal(found(t, 1 + i, N_TEXT, 0), 0);
    }
    tiers_free(t);
}

/* Acts as a disk that hangs: the log callback of a failure blocks the writer
 * thread, which has the same effect. */
struct hung {
    pthread_mutex_t lock;
    atomic_int n_told;
};

static void hang(void *user, pl_log_level level, const char *text)
{
    struct hung *h = user;

    (void)level;
    (void)text;
    h->n_told++;
    pthread_mutex_lock(&h->lock);
    pthread_mutex_unlock(&h->lock);
}

TEST(tiers_of_memory_mind_no_disk_that_hangs)
{
    const char *dir = test_temp("tier-hangs");
    struct hung h = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const struct tiers_options o = {.ram = 60000,
                                    .dir = dir,
                                    .disk = 1 << 20,
                                    .hang_s = 0.02,
                                    .log = hang,
                                    .log_user = &h};
    struct tiers_counts c;
    struct tiers *t;
    char line[700];
    pl_err err;

    TEST_OK(tiers_create(&t, &o, &(struct tier_key){{7}}, &err), err);
    snprintf(line, sizeof line, "rmdir '%s' && touch '%s'", dir, dir);
    assert_int_equal(system(line), 0);
    pthread_mutex_lock(&h.lock);
    give_text(t, 1, 1, 0, NULL);
    TEST_UNTIL(h.n_told > 0);
    /* more entries than may wait for a working disk */
    for (int x = 2; x < 6; x++) {
        give_text(t, x, 10, 0, NULL);
        TEST_UNTIL(!tiers_is_full(t));
    }
    TEST_UNTIL(found(t, 5, N_TEXT, 0) >= 640);
    tiers_counts(t, &c);
    assert_true(c.ram_pages >= 20);
    assert_true(c.ram_bytes <= 60000);
    pthread_mutex_unlock(&h.lock);
    tiers_free(t);
}

/* A disk that does not answer reads blocks no other lookup. Earlier lookups are
 * known to be late. Later ones get only the pages in memory, at once. */
TEST(tiers_of_memory_wait_for_no_disk_that_does_not_answer)
{
    const char *dir = test_temp("tier-mute");
    const struct tiers_options o = {.ram = 1 << 20,
                                    .dir = dir,
                                    .disk = 1 << 20,
                                    .hang_s = LONG_S,
                                    .read_hang_s = 0.05};
    struct tiers_lookup *held, *more[3];
    struct tiers_found f;
    struct tiers *t;
    bool ended;
    int32_t token[N_TEXT];
    pl_err err;

    t = open_tiers(0, dir);
    give_text(t, 1, 10, 0, NULL);
    settle(t, 0, 10);
    tiers_free(t);
    TEST_OK(tiers_create(&t, &o, &(struct tier_key){{7}}, &err), err);
    give_text(t, 2, 10, 0, NULL);
    settle(t, 10, 10);
    mute_disk(true);
    text_of(1, N_TEXT, token);
    held = tiers_search(t, token, N_TEXT, 0, nothing, NULL);
    assert_non_null(held);
    TEST_UNTIL(tiers_disk_stalled(t));
    assert_false(tiers_search_done(held));
    assert_int_equal(found(t, 2, N_TEXT, 0), 640);
    assert_int_equal(found(t, 2, N_TEXT, 128), 640);
    for (int i = 0; i < 3; i++) {
        more[i] = tiers_search(t, token, N_TEXT, 0, nothing, NULL);
        assert_true(more[i] && tiers_search_done(more[i]));
        f = tiers_search_found(more[i]);
        assert_int_equal(f.n, 0);
        assert_null(tiers_lookup_page(t, more[i], 0, &ended));
        assert_true(ended);
    }
    /* frees a search whose entry the reader is still reading */
    tiers_search_free(t, held);
    tiers_search_free(t, more[0]);
    mute_disk(false);
    TEST_UNTIL(!tiers_disk_stalled(t));
    tiers_search_free(t, more[1]);
    tiers_search_free(t, more[2]);
    assert_int_equal(found(t, 1, N_TEXT, 0), 640);
    tiers_free(t);
}

/* Pages that are read but not yet used are bounded, over all lookups. Each gets
 * all its pages all the same, and one that is freed in the middle gives up its
 * part. */
TEST(tiers_read_little_ahead)
{
    enum { N = 5 };
    const char *dir = test_temp("tier-ahead");
    struct tiers_options o = {
        .dir = dir, .disk = 1 << 20, .ahead = 6000, .read_hang_s = LONG_S};
    struct tiers *t = open_tiers(0, dir);
    struct tiers_lookup *s[N];
    struct tiers_counts c;
    pl_err err;

    give_text(t, 1, 10, 0, NULL);
    settle(t, 0, 10);
    tiers_free(t);
    TEST_OK(tiers_create(&t, &o, &(struct tier_key){{7}}, &err), err);
    for (int i = 0; i < N; i++) {
        s[i] = begin_search(t, 1, N_TEXT, 0);
        assert_int_equal(tiers_search_found(s[i]).n, 10);
    }
    usleep(30000); /* time in which further entries would be read */
    tiers_counts(t, &c);
    assert_true(c.disk_hits <= 3 + N);
    tiers_search_free(t, s[0]);
    for (int i = 0; i < 10; i++)
        for (int k = 1; k < N; k++) {
            const struct tier_entry *e = take(t, s[k], i);
            unsigned char *data = data_of(1, i, 2000);

            assert_non_null(e);
            assert_memory_equal(e->data, data, 2000);
            free(data);
            tiers_counts(t, &c);
            assert_true(c.disk_hits <= (uint64_t)(4 * (i + 1) + 3 + N + 1));
        }
    for (int k = 1; k < N; k++)
        tiers_search_free(t, s[k]);
    tiers_free(t);
}

/* A page that the engine rejected is deleted from memory and from disk, and can
 * be stored anew. */
TEST(tiers_lose_what_is_damaged)
{
    const char *dir = test_temp("tier-refused");
    struct tiers *t = open_tiers(1 << 20, dir);
    struct tiers_lookup *s;
    struct tiers_counts c;
    char name[256];
    uint64_t bytes;

    give_text(t, 1, 1, 0, NULL);
    settle(t, 1, 1);
    s = begin_search(t, 1, N_TEXT, 0);
    assert_int_equal(tiers_search_found(s).n, 1);
    tiers_report_corrupt(t, take(t, s, 0));
    tiers_search_free(t, s);
    TEST_UNTIL(n_file(dir, &bytes, name) == 0);
    assert_int_equal(found(t, 1, N_TEXT, 0), 0);
    tiers_counts(t, &c);
    assert_int_equal(c.damaged, 1);
    give_text(t, 1, 1, 0, NULL);
    settle(t, 1, 2);
    assert_int_equal(found(t, 1, N_TEXT, 0), 64);
    tiers_free(t);
}

/* Two servers on one folder, each storing pages that the other has too. */
TEST(tiers_share_a_folder)
{
    const char *dir = test_temp("tier-share");
    struct tiers *a = open_tiers(1 << 20, dir), *b = open_tiers(0, dir);

    give_text(a, 1, 10, 0, NULL);
    give_text(b, 2, 10, 0, NULL);
    settle(a, 10, 10);
    settle(b, 0, 10);
    assert_int_equal(found(b, 1, N_TEXT, 0), 640);
    assert_int_equal(found(a, 2, N_TEXT, 0), 640);
    /* pages that the other server has stored already */
    give_text(b, 1, 10, 0, NULL);
    give_text(b, 3, 1, 0, NULL);
    settle(b, 0, 11);
    tiers_free(a);
    tiers_free(b);
}

TEST(tiers_survive_failing_memory)
{
    const struct tiers_options o = {.ram = 1 << 20};
    struct tiers *t;
    int64_t n = 0;

    while (alloc_each(&n)) {
        pl_status s = tiers_create(&t, &o, &(struct tier_key){{7}}, NULL);

        alloc_ran(s);
        tiers_free(t);
    }
    /* several threads search; each finds nothing or the right pages */
    for (int64_t k = 1; k < 60; k++) {
        int32_t token[N_TEXT];
        unsigned char *data[4];
        struct tiers_lookup *s;

        t = open_tiers(1 << 20, NULL);
        text_of(1, N_TEXT, token);
        for (int i = 0; i < 4; i++)
            data[i] = data_of(1, i, 2000);
        alloc_fail_at(k);
        for (int i = 0; i < 4; i++)
            tiers_store(t, token, (int64_t)(i + 1) * TIER_TOKENS, true, data[i],
                        2000);
        s = tiers_search(t, token, N_TEXT, 0, nothing, NULL);
        TEST_UNTIL(!s || tiers_search_done(s));
        tiers_search_free(t, s);
        alloc_fail_off();
        tiers_free(t);
    }
}
