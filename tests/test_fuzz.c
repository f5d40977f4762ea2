/* Readers of foreign bytes survive damage: each target of fuzz/fuzz_list.h gets
 * its corpus, every file cut at many places, and a number of mutations. They
 * have no guidance by coverage, which libFuzzer has in the CI run, but need no
 * clang. PLAIT_SEED alone decides the sequence: run the same seed in a
 * sanitizer build, PLAIT_FUZZ_RUNS times, to repeat a crash. */
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FUZZ(name, runs) int fuzz_##name(const uint8_t *data, size_t n);
#include "fuzz_list.h"
#undef FUZZ

enum {
    MAX_BYTES = 1 << 20,
    MAX_SEED = 256,
    N_CUT = 200,
    N_MUTATION = 30000,
    LONGER = 180, /* factor of the number of mutations in the long tier */
    SLOW_S = 10,  /* processor seconds for an input of at most 1 MiB */
};

/* Targets whose inputs take much longer than those of the others. */
static const struct {
    const char *name;
    int n_mutation;
} slow[] = {
    {"http", 1000}, {"grammar", 3000}, {"reply", 10000}, {"remote", 1000}};

struct target {
    int (*run)(const uint8_t *data, size_t n);
    struct input {
        uint8_t *data; /* [n] bytes of the seed, owned */
        size_t n;
    } seed[MAX_SEED];
    int n_seed;
    int64_t n_run;
};

/* Passes an exact copy to the target, so that a sanitizer sees one byte too
 * many. */
static void run_one(struct target *t, const uint8_t *data, size_t n)
{
    uint8_t *copy = test_need(1, n > 0 ? n : 1);
    struct alloc_stat stat;
    double start = test_cpu_seconds();

    if (n > 0)
        memcpy(copy, data, n);
    alloc_stat_reset();
    t->run(copy, n);
    stat = alloc_stat_get();
    free(copy);
    t->n_run++;
    if (stat.peak_bytes > (int64_t)(2 * n) + (64 << 20))
        fail_msg("run %lld: %zu bytes made it hold %lld", (long long)t->n_run,
                 n, (long long)stat.peak_bytes);
    if (test_cpu_seconds() - start > SLOW_S)
        fail_msg("run %lld: %zu bytes took %.1f s", (long long)t->n_run, n,
                 test_cpu_seconds() - start);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_corpus(struct target *t, const char *name)
{
    char dir[256];
    struct dirent **entry = NULL;
    const char *path;
    int n;

    snprintf(dir, sizeof(dir), "fuzz/corpus/%s", name);
    path = test_file(dir);
    if (path == NULL)
        fail_msg("%s is missing: a target needs seeds", dir);
    /* sorted by name, so that PLAIT_SEED decides the order */
    n = scandir(path, &entry, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char file[1024];
        FILE *f;

        snprintf(file, sizeof(file), "%s/%s", path, entry[i]->d_name);
        f = entry[i]->d_name[0] != '.' ? fopen(file, "rb") : NULL;
        if (f != NULL && t->n_seed < MAX_SEED) {
            struct input *in = &t->seed[t->n_seed++];

            in->data = test_need(1, MAX_BYTES);
            in->n = fread(in->data, 1, MAX_BYTES, f);
        }
        if (f != NULL)
            fclose(f);
    }
    for (int i = 0; i < n; i++)
        free(entry[i]);
    free(entry);
    assert_int_not_equal(t->n_seed, 0);
}

/* Makes one small change of data[0..n), whose buffer has MAX_BYTES. Most are in
 * the first 4 KiB, where counts and lengths are. Returns the new length. */
static size_t mutate(const struct target *t, uint8_t *data, size_t n,
                     uint64_t *rng)
{
    static const uint64_t odd[] = {
        0,         1,         2,          127,        128,        255,
        0xffff,    INT32_MAX, INT32_MIN,  UINT32_MAX, 1ull << 32, 1ull << 40,
        INT64_MAX, INT64_MIN, UINT64_MAX, 1ull << 61, 1ull << 20,
    };
    size_t reach = test_below(rng, 4) != 0 && n > 4096 ? 4096 : n;
    size_t at = reach > 0 ? (size_t)test_below(rng, (int64_t)reach) : 0;
    size_t len;
    uint64_t v;

    switch (n > 0 ? test_below(rng, 7) : 6) {
    case 0:
        data[at] ^= (uint8_t)(1u << test_below(rng, 8));
        return n;
    case 1:
        data[at] = (uint8_t)test_random(rng);
        return n;
    case 2: /* an unlikely number of 1, 2, 4 or 8 bytes */
        v = odd[test_below(rng, sizeof(odd) / sizeof(odd[0]))];
        len = (size_t)1 << test_below(rng, 4);
        memcpy(data + at, &v, len < n - at ? len : n - at);
        return n;
    case 3: /* changes a byte by at most 4 */
        data[at] = (uint8_t)(data[at] + test_below(rng, 9) - 4);
        return n;
    case 4: /* removes some bytes */
        len = (size_t)test_below(rng, (int64_t)(n - at) + 1);
        memmove(data + at, data + at + len, n - at - len);
        return n - len;
    case 5: /* repeats some bytes */
        len = (size_t)test_below(rng, (int64_t)(n - at) + 1);
        if (len > MAX_BYTES - n)
            len = MAX_BYTES - n;
        memmove(data + at + len, data + at, n - at);
        return n + len;
    default: { /* continues with the bytes of another seed */
        const struct input *in = &t->seed[test_below(rng, t->n_seed)];

        if (in->n <= at)
            return n;
        memcpy(data + at, in->data + at, in->n - at);
        return in->n;
    }
    }
}

static void fuzz_run(const char *name, int (*run)(const uint8_t *, size_t))
{
    const char *env = getenv("PLAIT_FUZZ_RUNS");
    int n_mutation = N_MUTATION;
    struct target *t = test_need(1, sizeof(*t));
    uint8_t *data = test_need(1, MAX_BYTES);
    uint64_t rng = test_seed();

    t->run = run;
    load_corpus(t, name);
    for (int i = 0; i < t->n_seed; i++) {
        const struct input *in = &t->seed[i];
        size_t step = in->n / N_CUT + 1;

        for (size_t n = 0; n < in->n; n += step)
            run_one(t, in->data, n);
        run_one(t, in->data, in->n);
    }
    for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++)
        if (strcmp(name, slow[i].name) == 0)
            n_mutation = slow[i].n_mutation;
    n_mutation =
        env != NULL ? atoi(env) : test_draws(n_mutation, LONGER * n_mutation);
    for (int i = 0; i < n_mutation; i++) {
        const struct input *in = &t->seed[test_below(&rng, t->n_seed)];
        size_t n = in->n;

        memcpy(data, in->data, n);
        for (int64_t k = test_below(&rng, 6); k >= 0; k--)
            n = mutate(t, data, n, &rng);
        run_one(t, data, n);
    }
    printf("fuzz %s: %d seeds, %lld runs\n", name, t->n_seed,
           (long long)t->n_run);
    for (int i = 0; i < t->n_seed; i++)
        free(t->seed[i].data);
    free(t);
    free(data);
}

#define FUZZ(name, runs)                                                       \
    TEST_OF("/test_fuzz.c", fuzz_##name##_survives_damage)                     \
    {                                                                          \
        fuzz_run(#name, fuzz_##name);                                          \
    }
#include "fuzz_list.h"
#undef FUZZ
