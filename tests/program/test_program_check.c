/* Laws of programs that are about other devices' memory and about two queues:
 * each broken by one line of a text, and kept by the same text without it. The
 * laws of order and bounds are in test_device_run.c, test_device_groups.c and
 * test_device_pages.c. */
#include "program/program_check.h"

#include "lib/program_build.h"
#include "lib/support.h"
#include "program/program_text.h"

#include <string.h>

#define HEAD                                                                   \
    "programs 2\n"                                                             \
    "max n_tok 4 n_slot 128 n_seq 1 page_stride 2\n"                           \
    "device 0\n"                                                               \
    "%0: f32[n_tok, 16]\n"                                                     \
    "%1: f32[n_tok, 16] mail\n"                                                \
    "%2: f16[n_slot, 2, 16] cache\n"                                           \
    "%3: i32[10]\n"                                                            \
    "%4: i32[9]\n"                                                             \
    "%5: f32[10]\n"                                                            \
    "%6: i32[10] micro 1\n"                                                    \
    "device 1\n"                                                               \
    "%0: f32[n_tok, 16]\n"                                                     \
    "%1: f32[n_tok, 16] mail\n"                                                \
    "%2: f16[n_slot, 2, 16]\n"                                                 \
    "%3: f16[n_slot, 2, 16] mail\n"                                            \
    "%4: i32[10]\n"                                                            \
    "script\n"
/* device 0 gives in its copy queue, and device 1 answers */
#define GIVES                                                                  \
    "0 copy: push 1.%1 <- %0 64*n_tok\n"                                       \
    "0 copy: post 0\n"                                                         \
    "1: wait 0.0\n"                                                            \
    "1: post 0\n"

/* NULL: the programs are accepted. */
static void is_refused(const char *text, bool one_queue, const char *message)
{
    const struct program_device dev[2] = {{"a", "test", -1, false, one_queue},
                                          {"b", "test", -1, false, one_queue}};
    const struct program_machine m = build_machine(dev, 2);
    struct arena a = {0};
    struct program *p;
    pl_err err = {0};
    int n;

    if (program_parse(&p, &n, &a, text, strlen(text), &err) != PL_OK)
        fail_msg("%s", err.message);
    assert_int_equal(n, 2);
    if ((program_check(&m, p, &err) == PL_OK) != !message)
        fail_msg("%s\nis %s", text, message ? "accepted" : err.message);
    if (message && !strstr(err.message, message))
        fail_msg("\"%s\" does not say \"%s\"", err.message, message);
    arena_fini(&a);
}

static void program_check_peers_write_inboxes_only(void **state)
{
    (void)state;
    is_refused(HEAD "0: push 1.%1 <- %0 64*n_tok\n", true, NULL);
    is_refused(HEAD "0: push 1.%0 <- %0 64*n_tok\n", true,
               "program of a, step 0: pushes elsewhere than into an inbox");
    is_refused(HEAD "0: push 1.%1 <- %0 64*n_tok to 1048576\n", true,
               "writes beyond its result");
    is_refused(HEAD "0: push 1.%1 <- 1.%0 64*n_tok\n", true,
               "pushes what another device has");
    is_refused(HEAD "0: push 1.%1@1048576 <- %0 64*n_tok\n", true,
               "writes beyond its result");
    is_refused(HEAD "0: push 1.%1, 1.%0 <- %0 64*n_tok\n", true,
               "pushes elsewhere than into an inbox");
    is_refused(HEAD "0: deal 1.%1, 1.%1@64 <- %0 64, %0@64 64\n", true, NULL);
    is_refused(HEAD "0: deal 1.%1, 1.%1@64 <- %0 64\n", true,
               "deals more or fewer pieces");
    is_refused(HEAD "0: pages 1.%3 <- %2 batch %3 heads(0, 1)\n", true, NULL);
    is_refused(HEAD "0: pages 1.%2 <- %2 batch %3 heads(0, 1)\n", true,
               "pushes elsewhere than into an inbox");
}

static void program_check_private_memory_is_not_read(void **state)
{
    (void)state;
    is_refused(HEAD "1: pull %0 <- 0.%0 64*n_tok\n", true,
               "pulls from memory that is not open to it");
    is_refused(HEAD "1: pages %2 <- 0.%2 batch %4 heads(0, 1)\n", true,
               "pulls from memory that is not open to it");
    is_refused(HEAD "0, 1: merge meet; %0 <- sum(0.%0, 1.%0+) 64*n_tok\n", true,
               "meets devices that share no memory");
    is_refused(HEAD "1: merge %0 <- 0.%0 64*n_tok\n", true,
               "reads a peer's memory without a meeting");
}

static void
program_check_tables_are_whole_and_of_their_micro_batch(void **state)
{
    static const char *const none = "reads a table of tokens where none is";
    static const char *const there = "names a tensor that is not there";

    (void)state;
    is_refused(HEAD "0: %2 = cache_write(%0, %3)\n", true, NULL);
    is_refused(HEAD "0: %2 = cache_write(%0, %4)\n", true, none);
    is_refused(HEAD "0: %2 = cache_write(%0, %5)\n", true, none);
    is_refused(HEAD "0: %2 = cache_write(%0, -)\n", true, there);
    is_refused(HEAD "0: %2 = cache_write(%0)\n", true, there);
    is_refused(HEAD "0: %2 = cache_write(%0, %6)\n", true,
               "reads a tensor of another micro-batch");
    is_refused(HEAD "0: %0 = attention(%0, %2, %2, -, %3)\n", true, NULL);
    is_refused(HEAD "0: %0 = attention(%0, %2, %2, -, %4)\n", true, none);
    is_refused(HEAD "0: %0 = attention(%0, %2, %2, %3)\n", true, there);
    is_refused(HEAD "0: pages 1.%3 <- %2 batch %4 heads(0, 1)\n", true, none);
    is_refused(HEAD "0: pages 1.%3 <- %2 batch %7 heads(0, 1)\n", true, there);
}

/* A step may have no sequence at all, or as many as the programs allow. */
static void program_check_sequences_are_a_size(void **state)
{
    (void)state;
    is_refused(HEAD "0: push 1.%1 <- %0 4*n_seq to 8444\n", true, NULL);
    is_refused(HEAD "0: push 1.%1 <- %0 8*n_seq to 8444\n", true,
               "writes beyond its result");
    is_refused(HEAD "0: merge %0 <- sum(%0@128-64*n_seq) 64\n", true, NULL);
    is_refused(HEAD "0: merge %0 <- sum(%0@1024-1024*n_seq) 64\n", true,
               "reads beyond its source");
}

static void program_check_a_wait_knows_of_the_other_queue(void **state)
{
    static const char *const unknown =
        "without knowing of all that its other queue has posted";

    (void)state;
    is_refused(HEAD GIVES "0: wait 1.0\n", true, NULL);
    is_refused(HEAD GIVES "0: wait 1.0\n", false, unknown);
    is_refused(HEAD GIVES "0: wait 0.0\n0: wait 1.0\n", false, NULL);
    is_refused(HEAD GIVES "0 copy: wait 1.0\n", false, NULL);
    /* what it knows of is an earlier one */
    is_refused(HEAD GIVES "0: wait 0.0\n0 copy: post 1\n0: wait 1.0\n", false,
               unknown);
    /* in runs of many rows only */
    is_refused(HEAD GIVES
               "0: wait 0.0\n0 copy if n_tok 3..: post 1\n0: wait 1.0\n",
               false, unknown);
    is_refused(HEAD GIVES "0: wait 0.0\n0 copy if n_tok 3..: post 1\n"
                          "0 if n_tok 3..: wait 0.1\n0: wait 1.0\n",
               false, NULL);
    /* of the first post through the second */
    is_refused(HEAD GIVES "0 copy: wait 1.0\n0 copy: post 1\n0: wait 0.1\n"
                          "0: wait 1.0\n",
               false, NULL);
}

int test_program_check(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(program_check_peers_write_inboxes_only),
        cmocka_unit_test(program_check_private_memory_is_not_read),
        cmocka_unit_test(
            program_check_tables_are_whole_and_of_their_micro_batch),
        cmocka_unit_test(program_check_sequences_are_a_size),
        cmocka_unit_test(program_check_a_wait_knows_of_the_other_queue),
    };

    return TEST_RUN(tests);
}
