/* Shared by all tests: where reference data is, which tier runs, which seed.
 *
 * Reference data is looked for in PLAIT_REFS, if that is set; else in the
 * directory shared/refs beside the checkout, then in tests/refs inside it. The
 * latter holds a small part. A reference model that is in none of them is made
 * (lib/made_model.h), so tests need not skip for lack of one. A test whose data
 * is absent skips with TEST_SKIP; a closing sentence says why. */
#ifndef TEST_SUPPORT_H
#define TEST_SUPPORT_H

/* cmocka.h needs these four first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>

/* Set if built with a sanitizer that tracks memory. */
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

/* Do the same; without the file, the case fails, or is skipped with its
 * name. */
const char *test_ref_need(const char *name);
const char *test_ref_or_skip(const char *name);

/* Returns the path of the reference logits of model `name`, or NULL: those of
 * the equations in double if present, else another engine's. */
const char *test_ref_logits(const char *name);

/* Returns the path of the bundled model, which belongs to the checkout. The
 * case fails if it is absent. */
const char *test_model(void);

/* Returns the path of `name` inside the checkout ("models/heldout.txt"), or
 * NULL. */
const char *test_file(const char *name);

/* Returns a fresh path in a temporary directory that is removed when the group
 * ends. The text lives as long as the process. */
const char *test_temp(const char *name);

/* Returns true if PLAIT_TIER=long, which runs everything. The default, short,
 * runs what takes minutes. */
bool test_long(void);
/* Returns true if PLAIT_TIER=brief, which repeats the short tier under a
 * sanitizer, in less time. */
bool test_brief(void);

/* Returns how many random cases to draw: n in the short tier, n_long in the
 * long one. PLAIT_TIER=brief draws a quarter of n. */
int test_draws(int n, int n_long);

/* Returns PLAIT_SEED, or a fixed number; prints it once, because a failure
 * needs it. */
uint64_t test_seed(void);
/* Returns the same, and prints nothing. */
uint64_t test_seed_value(void);

/* PLAIT_PART=I/N: this process does part I of N, of 1 where it is not set. */
void test_part(int *part, int *n_part);

/* Return the seconds of a clock that never goes back, and the processor seconds
 * that this process took. */
double test_seconds(void);
double test_cpu_seconds(void);

/* Waits until the condition holds, however long that takes: no case fails
 * because a machine is slow. The runner ends a group that makes no progress. */
#define TEST_UNTIL(...)                                                        \
    for (double since = test_seconds(); !(__VA_ARGS__);)                       \
    test_pause(&since, __FILE__, __LINE__, #__VA_ARGS__)
/* Waits a millisecond. After a minute it prints the condition once, and waits a
 * tenth of a second from then on, so that the group looks idle. */
void test_pause(double *since, const char *file, int line, const char *text);

/* splitmix64: the next number of a stream whose state is one word. */
uint64_t test_random(uint64_t *state);
/* Return a value uniform in [0, n), n > 0, and in [-1, 1). */
int64_t test_below(uint64_t *state, int64_t n);
float test_unit(uint64_t *state);

/* Calls calloc and fails the case without memory; n and size may be 0. The
 * caller frees it. */
void *test_need(size_t n, size_t size);

/* Reads a file, *n bytes with a NUL after them; the caller frees it. The case
 * fails if there is no such file. */
void *test_read(const char *path, size_t *n);

/* Text that grows as it is written; {0} is empty. */
struct test_text {
    char *s; /* owned by the test, terminated; NULL: nothing was written yet */
    size_t n, cap;
};

/* Two functions of type pl_write_fn: one appends to `user`, a struct test_text;
 * one prints. */
void test_text_add(void *user, const char *s, size_t n);
void test_text_show(void *user, const char *s, size_t n);

/* Fails with the message of `err`, a pl_err that the call is given, unless the
 * call returns PL_OK. */
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

/* The text that TEST_SKIP prints before its reason; main.c looks for it. */
#define TEST_SKIP_MARK "[ WHY SKIPPED ] "

enum test_flag {
    TEST_LONG_TIER = 1, /* runs only with PLAIT_TIER=long; counted separately
                         * elsewhere */
    TEST_SHARES = 2,    /* does its own part of PLAIT_PART */
    TEST_BY_NAME = 4,   /* runs only if a filter is its whole name */
    TEST_NOT_BRIEF = 8, /* finds nothing more under a sanitizer */
};

/* A case, named by the promise it keeps; its body follows. The cases of a file
 * are one group, named like the file, and run in the order they are written
 * in. */
#define TEST(law)      TEST_FLAGGED(__FILE__, law, 0)
#define TEST_LONG(law) TEST_FLAGGED(__FILE__, law, TEST_LONG_TIER)
/* For cases that a table in another file makes; they belong to the group of
 * `file`. */
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
