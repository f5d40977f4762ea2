/* Measures how fast a prompt is ready if its pages are cached in device memory,
 * in host memory or on disk, compared with computing it.
 *
 * "computed" is the time from an empty sequence to the logits after the prompt.
 * In each other row all whole pages of the prompt are in one tier and in no
 * faster one. The time is that of finding the pages, loading them into a
 * sequence and computing the rest of the prompt. The operating system may hold
 * the disk's files in memory; for "disk, cold" it is asked to drop them first.
 *
 *   bench-prefix [TOKENS] [DIR] [SHAPE]  4000 tokens; DIR has the synthetic
 *                                        model (written if absent) and the
 *                                        cache; build/bench; qwen3-0.6b */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pl.h"
#include "server/tiers.h"
#include "synthetic.h"
#include "timing.h"

static int64_t n_vocab;

static pl_engine *open_engine(const pl_model *m, int64_t n)
{
    pl_options o;
    pl_engine *e;
    pl_err err = {0};

    pl_options_init(&o);
    o.devices = "cpu";
    o.n_seq = 2;
    o.n_ctx = (n + 64) / 64 * 64 + 64;
    o.prefix_cache = true;
    if (pl_engine_create(&e, m, &o, &err))
        bench_die("engine", err.message);
    return e;
}

/* Decodes tokens from .. n-1 of sequence 0. Writes the logits of the last one
 * to `logits`. */
static void decode(pl_engine *e, int64_t from, int64_t n, const int32_t *token,
                   float *logits)
{
    uint8_t *wanted = calloc((size_t)n, 1);
    pl_batch b;
    pl_err err = {0};

    if (!wanted)
        bench_die("decode", "no memory");
    wanted[n - from - 1] = 1;
    pl_batch_init(&b);
    b.n = n - from;
    b.token = token + from;
    b.wanted = wanted;
    b.logits = logits;
    if (pl_engine_decode(e, &b, NULL, &err))
        bench_die("decode", err.message);
    free(wanted);
}

/* Stores all cached pages of the engine in the tiers, and waits until the tiers
 * have written them. */
static void give_all(pl_engine *e, struct tiers *ram, struct tiers *disk,
                     int64_t n_ctx)
{
    int32_t *token = calloc((size_t)n_ctx, sizeof *token);
    const struct timespec soon = {.tv_nsec = 1000000};
    struct tiers_counts c;
    uint64_t n_page = 0, n_ram;
    int64_t n = 1;

    while (n > 0 && token) {
        void *data;
        size_t bytes;
        bool goes_on;
        pl_err err = {0};

        while (tiers_is_full(ram) || tiers_is_full(disk))
            nanosleep(&soon, NULL);
        if (pl_prefix_export_page(e, token, pl_engine_n_ctx(e), &n, &goes_on,
                                  &data, &bytes, &err))
            bench_die("page", err.message);
        if (n > 0) {
            void *again = malloc(bytes);

            if (!again)
                bench_die("page", "no memory");
            memcpy(again, data, bytes);
            tiers_store(ram, token, n, goes_on, data, bytes);
            tiers_store(disk, token, n, goes_on, again, bytes);
            n_page++;
        }
    }
    free(token);
    do {
        nanosleep(&soon, NULL);
        tiers_counts(ram, &c);
        n_ram = c.ram_pages;
        tiers_counts(disk, &c);
    } while ((n_ram < n_page || c.written < n_page) && c.failed == 0);
    if (c.failed)
        bench_die("cache", "the disk does not take it");
}

static void nothing(void *user)
{
    (void)user;
}

/* Returns the seconds from an empty sequence to the logits after n tokens, with
 * pages loaded from the tiers `t`. */
static double come_back(pl_engine *e, struct tiers *t, int64_t n,
                        const int32_t *token, float *logits)
{
    const struct timespec soon = {.tv_nsec = 50000};
    double began = bench_now();
    struct tiers_lookup *s = tiers_search(t, token, n, 0, nothing, NULL);
    const struct tier_entry *page;
    int n_page;
    bool ended;
    pl_err err = {0};

    if (!s)
        bench_die("search", "no memory");
    while (!tiers_search_done(s))
        nanosleep(&soon, NULL);
    n_page = tiers_search_found(s).n;
    if (n_page != (n - 1) / 64)
        bench_die("search", "pages are missing");
    for (int i = 0; i < n_page; i++) {
        while (!(page = tiers_lookup_page(t, s, i, &ended)) && !ended)
            nanosleep(&soon, NULL);
        if (!page)
            bench_die("search", "a page does not come");
        if (pl_seq_import_page(e, 0, token + page->first, page->n, page->data,
                               page->bytes, &err))
            bench_die("page", err.message);
    }
    tiers_search_free(t, s);
    decode(e, (n - 1) / 64 * 64, n, token, logits);
    return bench_now() - began;
}

static void forget_files(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *e;

    while (d && (e = readdir(d))) {
        int fd = openat(dirfd(d), e->d_name, O_RDONLY);

        if (fd < 0)
            continue;
        fsync(fd);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    if (d)
        closedir(d);
}

static void remove_all(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *e;

    while (d && (e = readdir(d)))
        unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    rmdir(dir);
}

static void print(const char *what, double s, double all, bool same)
{
    printf("  %-22s %9.3f s %8.2f %%%s\n", what, s, 100 * s / all,
           same ? "" : "  OTHER LOGITS");
}

/* Measures and prints one tier, with a new engine that has no cached pages. */
static void from_tier(const char *what, const pl_model *m, struct tiers *t,
                      int64_t n, const int32_t *token, const float *want,
                      double all)
{
    float *got = calloc((size_t)n_vocab, sizeof *got);
    pl_engine *e = open_engine(m, n);
    double s;

    if (!got)
        bench_die(what, "no memory");
    /* the engine's first step, which is slower, is not measured */
    decode(e, 0, 1, token, got);
    if (pl_seq_trim(e, 0, 0, NULL, NULL))
        bench_die(what, "the sequence stays");
    s = come_back(e, t, n, token, got);
    print(what, s, all, memcmp(got, want, (size_t)n_vocab * sizeof *got) == 0);
    free(got);
    pl_engine_free(e);
}

int main(int argc, char **argv)
{
    int64_t n = argc > 1 ? atoll(argv[1]) : 4000, shared = 0;
    const char *dir = argc > 2 ? argv[2] : SYNTHETIC_DIR;
    const char *shape = argc > 3 ? argv[3] : "qwen3-0.6b";
    const struct synth_shape *known = synth_shape(shape, NULL);
    char model[512], cache[600];
    struct tiers_options ram = {.ram = (uint64_t)8 << 30};
    struct tiers_options disk = {.disk = (uint64_t)64 << 30};
    struct tiers *in_ram, *on_disk;
    pl_model *m;
    pl_engine *e;
    pl_err err = {0};
    int32_t *token;
    float *want, *got;
    double began, all, s;

    if (n < 65 || !known) {
        fprintf(stderr, "usage: bench-prefix [TOKENS, 65 or more] [DIR] "
                        "[SHAPE]\n");
        return 2;
    }
    snprintf(cache, sizeof cache, "%s/prefixes", dir);
    remove_all(cache); /* an earlier run that was killed may have left files */
    disk.dir = cache;
    if (synthetic_model(known, "q4_k_m", dir, model, sizeof model, &err) ||
        pl_model_open(&m, model, &err))
        bench_die(dir, err.message);
    e = open_engine(m, n);
    n_vocab = pl_model_n_vocab(m);
    token = calloc((size_t)n, sizeof *token);
    want = calloc((size_t)n_vocab, sizeof *want);
    got = calloc((size_t)n_vocab, sizeof *got);
    if (!token || !want || !got)
        bench_die("prompt", "no memory");
    for (int64_t i = 0; i < n; i++)
        token[i] =
            (int32_t)((uint64_t)(i + 1) * 2654435761u % (uint64_t)n_vocab);
    if (tiers_open(&in_ram, &ram, e, &err) ||
        tiers_open(&on_disk, &disk, e, &err))
        bench_die("tiers", err.message);

    printf("%lld tokens of the synthetic %s, F16 cache\n", (long long)n, shape);
    began = bench_now();
    decode(e, 0, n, token, want);
    all = bench_now() - began;
    print("computed", all, all, true);
    pl_seq_trim(e, 0, 0, NULL, NULL);
    began = bench_now();
    if (pl_seq_share(e, 0, token, n, &shared, &err))
        bench_die("share", err.message);
    decode(e, shared, n, token, got);
    s = bench_now() - began;
    print("devices' memory", s, all,
          memcmp(got, want, (size_t)n_vocab * sizeof *got) == 0);
    give_all(e, in_ram, on_disk, n + 64);
    pl_engine_free(e);
    from_tier("host memory", m, in_ram, n, token, want, all);
    tiers_free(in_ram);
    from_tier("disk", m, on_disk, n, token, want, all);
    forget_files(cache);
    from_tier("disk, cold", m, on_disk, n, token, want, all);
    tiers_free(on_disk);
    remove_all(cache);
    free(token);
    free(want);
    free(got);
    pl_model_free(m);
    return 0;
}
