/* Finds the tests' data, tier and seed, and makes temporary files. It does not
 * run tests (main.c) or make allocations fail (alloc_fail.c). */
#include "lib/support.h"
#include "lib/made_model.h"
#include "test_paths.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Returns the path dir/name, which lives until the process ends, so that
 * callers need not free it. */
static char *keep_path(const char *dir, const char *name)
{
    char *path = NULL;
    /* keeps the paths reachable, so that the leak sanitizer does not report
     * them */
    static char *kept[4096];
    static int n_kept;

    if (asprintf(&path, "%s/%s", dir, name) < 0)
        return NULL;
    for (int i = 0; i < n_kept; i++)
        if (!strcmp(kept[i], path)) {
            free(path);
            return kept[i];
        }
    if (n_kept < (int)(sizeof(kept) / sizeof(kept[0])))
        kept[n_kept++] = path;
    return path;
}

static const char *existing(const char *dir, const char *name)
{
    char path[4096];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return stat(path, &st) == 0 ? keep_path(dir, name) : NULL;
}

const char *test_ref(const char *name)
{
    const char *env = getenv("PLAIT_REFS");
    const char *path;

    if (env != NULL && env[0] != '\0') {
        path = existing(env, name);
    } else {
        static const char *const dirs[] = {
            PLAIT_SOURCE_DIR "/../shared/refs", PLAIT_SOURCE_DIR "/tests/refs",
            PLAIT_SOURCE_DIR "/../shared/refs-next",
            PLAIT_SOURCE_DIR "/../shared/refs-next/extra"};

        path = NULL;
        for (int i = 0; i < 4 && path == NULL; i++)
            path = existing(dirs[i], name);
    }
    if (path == NULL)
        path = existing(PLAIT_SOURCE_DIR "/tests/refs/made", name);
    if (path == NULL)
        path = made_model_file(strncmp(name, "made/", 5) ? name : name + 5);
    return path;
}

const char *test_ref_need(const char *name)
{
    const char *path = test_ref(name);

    if (path == NULL)
        fail_msg("%s is not at hand", name);
    return path;
}

const char *test_ref_or_skip(const char *name)
{
    const char *path = test_ref(name);

    if (path == NULL)
        TEST_SKIP("%s is not at hand", name);
    return path;
}

const char *test_ref_logits(const char *name)
{
    char file[128];
    const char *path;

    snprintf(file, sizeof file, "%s.f64.logits.bin", name);
    path = test_ref(file);
    if (path != NULL)
        return path;
    snprintf(file, sizeof file, "%s.logits.bin", name);
    return test_ref(file);
}

const char *test_model(void)
{
    const char *path = test_file("models/fable-moe-Q8_0.gguf");

    if (path == NULL)
        fail_msg("models/fable-moe-Q8_0.gguf is absent, but belongs "
                 "to the repository");
    return path;
}

const char *test_file(const char *name)
{
    return existing(PLAIT_SOURCE_DIR, name);
}

/* ---- temporary files ---------------------------------------------------- */

/* path of the temporary directory; empty until test_temp is called first */
static char temp_dir[4096];

static int remove_one(const char *path, const struct stat *s, int kind,
                      struct FTW *where)
{
    (void)s;
    (void)kind;
    (void)where;
    return remove(path);
}

static void temp_remove(void)
{
    nftw(temp_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *test_temp(const char *name)
{
    if (temp_dir[0] == '\0') {
        const char *tmp = getenv("TMPDIR");

        snprintf(temp_dir, sizeof(temp_dir), "%s/plait-test-XXXXXX",
                 tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
        if (mkdtemp(temp_dir) == NULL)
            fail_msg("mkdtemp %s failed; set TMPDIR", temp_dir);
        atexit(temp_remove);
    }
    return keep_path(temp_dir, name);
}

/* ---- tier, seed, numbers ------------------------------------------------ */

static bool is_tier(const char *name)
{
    const char *tier = getenv("PLAIT_TIER");

    return tier != NULL && strcmp(tier, name) == 0;
}

bool test_long(void)
{
    return is_tier("long");
}

bool test_brief(void)
{
    return is_tier("brief");
}

int test_draws(int n, int n_long)
{
    return test_long() ? n_long : test_brief() ? (n + 3) / 4 : n;
}

uint64_t test_seed_value(void)
{
    const char *env = getenv("PLAIT_SEED");

    return env != NULL && env[0] != '\0' ? strtoull(env, NULL, 0) : 20240229;
}

uint64_t test_seed(void)
{
    static bool printed;
    const uint64_t seed = test_seed_value();

    if (!printed)
        printf("PLAIT_SEED=%llu\n", (unsigned long long)seed);
    printed = true;
    return seed;
}

void test_part(int *part, int *n_part)
{
    const char *env = getenv("PLAIT_PART");

    *part = 0;
    *n_part = 1;
    if (env != NULL && (sscanf(env, "%d/%d", part, n_part) != 2 || *part < 0 ||
                        *n_part <= *part)) {
        fprintf(stderr, "PLAIT_PART=%s: I/N with 0 <= I < N is wanted\n", env);
        exit(2);
    }
}

/* Switches proxies off, because tests connect only to this machine. */
__attribute__((constructor)) static void ask_no_proxy(void)
{
    setenv("no_proxy", "*", 1);
}

static double seconds_of(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double test_seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

double test_cpu_seconds(void)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

void test_pause(double *since, const char *file, int line, const char *text)
{
    const bool long_since = *since > 1e299;
    const struct timespec t = {.tv_nsec = long_since ? 100000000 : 1000000};

    nanosleep(&t, NULL);
    if (test_seconds() - *since > 60) {
        printf("%s:%d waits for: %s\n", file, line, text);
        /* prints the condition only once */
        *since = 1e300;
    }
}

/* Returns the next number of splitmix64. Source: Steele, Lea, Flood, Fast
 * splittable pseudorandom number generators (2014). */
uint64_t test_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t test_below(uint64_t *state, int64_t n)
{
    return (int64_t)(test_random(state) % (uint64_t)n);
}

float test_unit(uint64_t *state)
{
    /* takes 24 bits, so that every value is exact in a float */
    return (float)(test_random(state) >> 40) * 0x1p-23f - 1.0f;
}

/* ---- memory and text ---------------------------------------------------- */

void *test_need(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    assert_non_null(p);
    return p;
}

void *test_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *s = NULL;
    size_t size = 0;

    if (f == NULL)
        fail_msg("%s: %s", path, strerror(errno));
    *n = 0;
    do {
        size = 2 * size + 65536;
        s = realloc(s, size + 1);
        assert_non_null(s);
        *n += fread(s + *n, 1, size - *n, f);
    } while (*n == size);
    fclose(f);
    s[*n] = '\0';
    return s;
}

void test_text_add(void *user, const char *s, size_t n)
{
    struct test_text *t = user;

    if (t->n + n + 1 > t->cap) {
        t->cap = 2 * (t->n + n + 1);
        t->s = realloc(t->s, t->cap);
        assert_non_null(t->s);
    }
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
}

void test_text_show(void *user, const char *s, size_t n)
{
    (void)user;
    print_message("%.*s", (int)n, s);
}

void test_skip_reason(const char *fmt, ...)
{
    va_list ap;

    printf("\n%s", TEST_SKIP_MARK);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    printf("\n");
}
