/* Functions that all tests share: where reference data is, which tier runs,
 * which seed.
 *
 * Reference data is looked for in the directory PLAIT_REFS, if that is set;
 * otherwise in shared/refs next to the checkout, then in tests/refs inside it,
 * which has a small part. A reference model that is in none of them is made
 * (lib/made_model.h), so tests need not skip for lack of one. A test whose data
 * is missing skips with TEST_SKIP, whose text says why. */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

/* cmocka.h needs the next four headers before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>

/* TEST_SANITIZED is 1 if the build has a sanitizer that tracks memory, else
 * 0. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

/* Returns the path of the reference file or directory `name`
 * ("quant/q4_k.bin"), or NULL if no reference directory has it. The text lives
 * as long as the process. */
const char *test_ref(const char *name);

/* Return the path as test_ref does. If the file is missing, test_ref_need fails
 * the case, and test_ref_or_skip skips it with the file's name. */
const char *test_ref_need(const char *name);
const char *test_ref_or_skip(const char *name);

/* Returns the path of the reference logits of model `name`, or NULL. If both
 * exist, takes those that the equations give in double precision, not those of
 * another engine. */
const char *test_ref_logits(const char *name);

/* Returns the path of the bundled model, which belongs to the checkout. The
 * case fails if it is absent. */
const char *test_model(void);

/* Returns the path of `name` inside the checkout ("models/heldout.txt"), or
 * NULL. */
const char *test_file(const char *name);

/* Returns a new path in a temporary directory, which is removed when the group
 * of cases ends. The text lives as long as the process. */
const char *test_temp(const char *name);

/* Returns true if PLAIT_TIER=long, the tier that runs everything. The default
 * tier, short, takes minutes. */
bool test_long(void);
/* Returns true if PLAIT_TIER=brief, the tier that repeats the short one under a
 * sanitizer with fewer random cases. */
bool test_brief(void);

/* Returns how many random cases to draw: n in the short tier, n_long in the
 * long tier, a quarter of n in the brief tier. */
int test_draws(int n, int n_long);

/* Returns the seed of random cases: PLAIT_SEED, or a fixed number. Prints it
 * once, because it is needed to repeat a failure. */
uint64_t test_seed(void);
/* Returns the seed like test_seed, but prints nothing. */
uint64_t test_seed_value(void);

/* Sets *part and *n_part from PLAIT_PART=I/N: this process runs part I of N.
 * Without the variable N is 1. */
void test_part(int *part, int *n_part);

/* test_seconds returns the seconds of the monotonic clock, the other function
 * the processor seconds that this process has used. */
double test_seconds(void);
double test_cpu_seconds(void);

/* Waits until the condition is true, however long that takes, so that no case
 * fails because a machine is slow. The runner ends a group of cases that makes
 * no progress. */
#define TEST_UNTIL(...)                                                        \
    for (double since = test_seconds(); !(__VA_ARGS__);)                       \
    test_pause(&since, __FILE__, __LINE__, #__VA_ARGS__)
/* Waits a millisecond, for TEST_UNTIL. After a minute prints the condition
 * once, and from then on waits a tenth of a second, so that the runner sees the
 * group as idle. */
void test_pause(double *since, const char *file, int line, const char *text);

/* Returns the next number of splitmix64, a generator of random numbers whose
 * state is one word. */
uint64_t test_random(uint64_t *state);
/* test_below returns a random integer in [0, n), n > 0; test_unit returns a
 * random float in [-1, 1). */
int64_t test_below(uint64_t *state, int64_t n);
float test_unit(uint64_t *state);

/* Calls calloc, and fails the case if memory runs out; n and size may be 0. The
 * caller frees the memory. */
void *test_need(size_t n, size_t size);

/* Reads a whole file, *n bytes and a NUL after them. The caller frees the
 * memory. Fails the case if the file does not exist. */
void *test_read(const char *path, size_t *n);

/* Text to which test_text_add appends; {0} is an empty one. */
struct test_text {
    /* NUL-terminated text, which the test frees; NULL if nothing was written */
    char *s;
    size_t n, cap;
};

/* Functions of type pl_write_fn. test_text_add appends to `user`, a struct
 * test_text; test_text_show prints. */
void test_text_add(void *user, const char *s, size_t n);
void test_text_show(void *user, const char *s, size_t n);

/* Fails the case unless `call` returns PL_OK. The message is that of `err`, the
 * pl_err that is passed to the call. */
#define TEST_OK(call, err)                                                     \
    do {                                                                       \
        if ((call) != PL_OK)                                                   \
            fail_msg("%s", (err).message);                                     \
    } while (0)

/* Ends the running case as skipped; the printf-style reason is recorded. */
#define TEST_SKIP(...)                                                         \
    do {                                                                       \
        test_skip_reason(__VA_ARGS__);                                         \
        skip();                                                                \
    } while (0)
void test_skip_reason(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));

/* The text that TEST_SKIP prints before its reason, and that main.c looks
 * for. */
#define TEST_SKIP_MARK "[ WHY SKIPPED ] "

enum test_flag {
    /* the case runs only with PLAIT_TIER=long; other tiers count it
     * separately */
    TEST_LONG_TIER = 1,
    TEST_SHARES = 2, /* the case itself does only its part of PLAIT_PART */
    /* the case runs only if its whole name is given as a filter */
    TEST_BY_NAME = 4,
    /* the brief tier skips the case, because a sanitizer finds nothing more in
     * it */
    TEST_NOT_BRIEF = 8,
};

/* Begins a test case, named by the promise that it checks; its body follows.
 * The cases of a file form a group with the file's name, and run in the order
 * of the file. */
#define TEST(law)      TEST_FLAGGED(__FILE__, law, 0)
#define TEST_LONG(law) TEST_FLAGGED(__FILE__, law, TEST_LONG_TIER)
/* Begins a test case that belongs to the group of `file`, for cases that a
 * table in another file makes. */
#define TEST_OF(file, law) TEST_FLAGGED(file, law, 0)
#define TEST_FLAGGED(file, law, flags)                                         \
    static void law(void **state);                                             \
    __attribute__((constructor)) static void law##_is_a_case(void)             \
    {                                                                          \
        test_add(file, #law, law, flags);                                      \
    }                                                                          \
    static void law(void **state __attribute__((unused)))
void test_add(const char *file, const char *law, CMUnitTestFunction run,
              unsigned flags);

#endif
