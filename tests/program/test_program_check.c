/* Rules of programs about other devices' memory and about two queues: each is
 * broken by one line of a text, and kept by the same text without it. The rules
 * of order and bounds are in test_device_run.c, test_device_groups.c and
 * test_device_pages.c. */
#include "program/program_check.h"

#include "lib/program_build.h"
#include "lib/support.h"
#include "program/program_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD                                                                   \
    "programs 2\n"                                                             \
    "max n_tok 4 n_slot 128 n_seq 1 page_stride 2\n"                           \
    "device 0\n"                                                               \
    "%0: f32[n_tok, 16]\n"                                                     \
    "%1: f32[n_tok, 16] inbox\n"                                               \
    "%2: f16[n_slot, 2, 16] cache\n"                                           \
    "%3: i32[10]\n"                                                            \
    "%4: i32[9]\n"                                                             \
    "%5: f32[10]\n"                                                            \
    "%6: i32[10] micro 1\n"                                                    \
    "%7: f32[n_tok, 2, 16]\n"                                                  \
    "device 1\n"                                                               \
    "%0: f32[n_tok, 16]\n"                                                     \
    "%1: f32[n_tok, 16] inbox\n"                                               \
    "%2: f16[n_slot, 2, 16]\n"                                                 \
    "%3: f16[n_slot, 2, 16] inbox\n"                                           \
    "%4: i32[10]\n"                                                            \
    "variant\n"
/* device 0 pushes in its copy queue and posts event 0; device 1 waits for it
 * and posts its own */
#define GIVES                                                                  \
    "0 copy: push 1.%1 <- %0 64*n_tok\n"                                       \
    "0 copy: post 0\n"                                                         \
    "1: wait 0.0\n"                                                            \
    "1: post 0\n"

/* Checks the programs in `text` for these two devices. The error must contain
 * `message`; NULL if the programs are accepted. */
static void check(const struct program_device dev[2], const char *text,
                  const char *message)
{
    const struct program_machine m = build_machine(dev, 2);
    struct arena a = {0};
    struct program *p;
    pl_err err = {0};
    int n;

    TEST_OK(program_parse(&p, &n, &a, text, strlen(text), &err), err);
    assert_int_equal(n, 2);
    if ((program_check(&m, p, &err) == PL_OK) != !message)
        fail_msg("%s\nis %s", text, message ? "accepted" : err.message);
    if (message && !strstr(err.message, message))
        fail_msg("\"%s\" does not say \"%s\"", err.message, message);
    arena_fini(&a);
}

/* Checks a program of one device. The error must contain `message`; NULL if the
 * program is accepted. */
static void program_is(const struct program *p, const char *message)
{
    static const struct program_device dev = {"a", "test", 0, true, true, 0};
    const struct program_machine m = build_machine(&dev, 1);
    pl_err err = {0};

    if ((program_check(&m, p, &err) == PL_OK) != !message)
        fail_msg("is %s", message ? "accepted" : err.message);
    if (message && !strstr(err.message, message))
        fail_msg("\"%s\" does not say \"%s\"", err.message, message);
}

static void is_refused(const char *text, bool one_queue, const char *message)
{
    const struct program_device dev[2] = {
        {"a", "test", -1, false, one_queue, 0},
        {"b", "test", -1, false, one_queue, 0}};

    check(dev, text, message);
}

TEST(program_check_peers_write_inboxes_only)
{
    is_refused(HEAD "0: push 1.%1 <- %0 64*n_tok\n", true, NULL);
    is_refused(HEAD "0: push 1.%0 <- %0 64*n_tok\n", true,
               "program of a, instruction 0: pushes outside of an inbox");
    is_refused(HEAD "0: push 1.%1 <- %0 64*n_tok to 1048576\n", true,
               "writes past the end of its result");
    is_refused(HEAD "0: push 1.%1 <- 1.%0 64*n_tok\n", true,
               "pushes data of another device");
    is_refused(HEAD "0: push 1.%1@1048576 <- %0 64*n_tok\n", true,
               "writes past the end of its result");
    is_refused(HEAD "0: push 1.%1, 1.%0 <- %0 64*n_tok\n", true,
               "pushes outside of an inbox");
    is_refused(HEAD "0: scatter 1.%1, 1.%1@64 <- %0 64, %0@64 64\n", true,
               NULL);
    is_refused(HEAD "0: scatter 1.%1, 1.%1@64 <- %0 64\n", true,
               "scatters another number of pieces");
    is_refused(HEAD "0: pages 1.%3 <- %2 table %3 heads(0, 1)\n", true, NULL);
    is_refused(HEAD "0: pages 1.%2 <- %2 table %3 heads(0, 1)\n", true,
               "pushes outside of an inbox");
}

TEST(program_check_owners_do_not_write_inboxes)
{
    is_refused(HEAD "0: merge %0 <- %1 64*n_tok\n", true, NULL);
    is_refused(HEAD "0: merge %1 <- %0 64*n_tok\n", true,
               "program of a, instruction 0: writes into its own inbox");
    is_refused(HEAD "0: merge %1 <- sum(%0, %0+) 64*n_tok\n", true,
               "writes into its own inbox");
    is_refused(HEAD "0: %0 = scale(%1)\n", true, NULL);
    is_refused(HEAD "0: %1 = scale(%0)\n", true, "writes into its own inbox");
}

TEST(program_check_private_memory_is_not_read)
{
    is_refused(HEAD "1: pull %0 <- 0.%0 64*n_tok\n", true,
               "pulls from memory that it cannot access");
    is_refused(HEAD "1: pages %2 <- 0.%2 table %4 heads(0, 1)\n", true,
               "pulls from memory that it cannot access");
    is_refused(HEAD "0, 1: merge barrier; %0 <- sum(0.%0, 1.%0+) 64*n_tok\n",
               true, "has a barrier with a device of other memory");
    is_refused(HEAD "1: merge %0 <- 0.%0 64*n_tok\n", true,
               "reads a peer's memory without a barrier");
}

TEST(program_check_tables_are_whole_and_of_their_micro_batch)
{
    static const char *const none =
        "reads a token table from a tensor that is not one";
    static const char *const there = "names a tensor that does not exist";

    is_refused(HEAD "0: %2 = cache_write(%7, %3)\n", true, NULL);
    is_refused(HEAD "0: %2 = cache_write(%7, %4)\n", true, none);
    is_refused(HEAD "0: %2 = cache_write(%7, %5)\n", true, none);
    is_refused(HEAD "0: %2 = cache_write(%7, -)\n", true, there);
    is_refused(HEAD "0: %2 = cache_write(%7)\n", true, there);
    is_refused(HEAD "0: %2 = cache_write(%7, %6)\n", true,
               "reads a tensor of another micro-batch");
    is_refused(HEAD "0: %7 = attention(%7, %2, %2, -, %3) heads(0, 1)\n", true,
               NULL);
    is_refused(HEAD "0: %7 = attention(%7, %2, %2, -, %4)\n", true, none);
    is_refused(HEAD "0: %7 = attention(%7, %2, %2, %3)\n", true, there);
    is_refused(HEAD "0: pages 1.%3 <- %2 table %4 heads(0, 1)\n", true, none);
    is_refused(HEAD "0: pages 1.%3 <- %2 table %9 heads(0, 1)\n", true, there);
}

/* A step may have no sequence at all, or as many as the programs allow. */
TEST(program_check_sequences_are_a_size)
{
    is_refused(HEAD "0: push 1.%1 <- %0 4*n_seq to 8444\n", true, NULL);
    is_refused(HEAD "0: push 1.%1 <- %0 8*n_seq to 8444\n", true,
               "writes past the end of its result");
    is_refused(HEAD "0: merge %0 <- sum(%0@128-64*n_seq) 64\n", true, NULL);
    is_refused(HEAD "0: merge %0 <- sum(%0@1024-1024*n_seq) 64\n", true,
               "reads past the end of its source");
}

TEST(program_check_a_wait_knows_of_the_other_queue)
{
    static const char *const unknown =
        "without having seen all POSTs of its own other queue";

    is_refused(HEAD GIVES "0: wait 1.0\n", true, NULL);
    is_refused(HEAD GIVES "0: wait 1.0\n", false, unknown);
    is_refused(HEAD GIVES "0: wait 0.0\n0: wait 1.0\n", false, NULL);
    is_refused(HEAD GIVES "0 copy: wait 1.0\n", false, NULL);
    /* the queue knows of the copy queue's POST 0 only, not of its POST 1 */
    is_refused(HEAD GIVES "0: wait 0.0\n0 copy: post 1\n0: wait 1.0\n", false,
               unknown);
    /* the needed POST is executed only in steps of three tokens or more */
    is_refused(HEAD GIVES
               "0: wait 0.0\n0 copy if n_tok 3..: post 1\n0: wait 1.0\n",
               false, unknown);
    is_refused(HEAD GIVES "0: wait 0.0\n0 copy if n_tok 3..: post 1\n"
                          "0 if n_tok 3..: wait 0.1\n0: wait 1.0\n",
               false, NULL);
    /* by waiting for the second POST the queue also knows of the first */
    is_refused(HEAD GIVES "0 copy: wait 1.0\n0 copy: post 1\n0: wait 0.1\n"
                          "0: wait 1.0\n",
               false, NULL);
}

/* Checks the programs in `text` for devices that share memory. */
static void text_is(const char *text, const char *message)
{
    static const struct program_device dev[2] = {
        {"a", "test", 0, true, true, 0}, {"b", "test", 0, true, true, 0}};

    check(dev, text, message);
}

#define MEETS                                                                  \
    "programs 2\n"                                                             \
    "max n_tok 4 n_out 4\n"                                                    \
    "device 0 groups 1\n"                                                      \
    "%0: f32[n_tok, 8]\n"                                                      \
    "device 1 groups 1\n"                                                      \
    "%0: f32[n_tok, 8]\n"                                                      \
    "variant\n"

/* Devices of two machines share nothing, though their memories have one number
 * and the second device reads any memory of its machine. */
TEST(program_check_machines_share_no_memory)
{
    static const struct program_device dev[2] = {
        {"a", "test", 0, true, true, 0}, {"b", "test", 0, true, true, 1}};

    check(dev, MEETS "0, 1: merge barrier 0, 1\n",
          "has a barrier with a device of other memory");
    check(dev, MEETS "0: post 0\n1: wait 0.0\n1: pull %0 <- 0.%0 32*n_tok\n",
          "pulls from memory that it cannot access");
    text_is(MEETS "0: post 0\n1: wait 0.0\n1: pull %0 <- 0.%0 32*n_tok\n",
            NULL);
}

TEST(program_check_meetings_name_each_device_once)
{
    static const char *const once = "are not ascending";

    text_is(MEETS "0, 1: merge barrier 0, 1\n", NULL);
    text_is(MEETS "1: post 0\n0, 1: merge barrier 0, 1\n0: wait 1.0\n", NULL);
    text_is(MEETS "1 if n_tok 3..: post 0\n0, 1: merge barrier 0, 1\n"
                  "0: wait 1.0\n",
            "deadlock");
    /* a check that advances device 0 twice at the barrier would miss this
     * error */
    text_is(MEETS "1 if n_tok 3..: post 0\n0, 1: merge barrier 0, 0, 1\n"
                  "0: wait 1.0\n",
            once);
    text_is(MEETS "0, 1: merge barrier 0, 0, 1\n", once);
    text_is(MEETS "0, 1: merge barrier 0, 1, 1\n", once);
    text_is(MEETS "0, 1: merge barrier 1, 0\n", once);
    text_is(MEETS "0: merge barrier 0, 0\n", once);
    /* the same event or peer twice is harmless if another one is named, too */
    text_is(MEETS "1: post 0\n0: wait 1.0, 1.0\n", NULL);
    text_is(MEETS "0: merge %0 <- sum(%0, %0+) 32\n", NULL);
}

TEST(program_check_sums_are_of_whole_floats)
{
    static const char *const begin = "adds misaligned floats";

    text_is(MEETS "0: merge %0 <- sum(%0@4) 8 to 12\n", NULL);
    text_is(MEETS "0: merge %0 <- sum(%0) nothing\n", NULL);
    text_is(MEETS "0: merge %1 <- sum(%0) nothing\n", "that does not exist");
    text_is(MEETS "0: merge %1 <- nothing\n", "that does not exist");
    text_is(MEETS "0: merge %0 <- sum(%0, %1+) nothing\n",
            "reads a tensor that does not exist");
    text_is(MEETS "0: merge %0 <- sum(%0) 6\n", "other than whole floats");
    text_is(MEETS "0: merge %0 <- sum(%0@2) 8\n", begin);
    text_is(MEETS "0: merge %0 <- sum(%0) @3 8\n", begin);
    text_is(MEETS "0: merge %0 <- sum(%0) 8 to 3\n", begin);
    text_is(MEETS "0: merge %0 <- sum(%0@64-2*n_tok) 8\n", begin);
    text_is(MEETS "0: merge %0 <- sum(%0) 8 to 2*n_tok\n", begin);
    text_is(MEETS "0: merge %0 <- sum(%0) 8 x 2(9, 8)\n", begin);
    text_is(MEETS "0: merge %0 <- sum(%0) 8 x 2(8, 9)\n", begin);
    text_is(MEETS "0: merge %0 <- sum(%0) 8 x 2(16, 16) x 2(8, 9)\n", begin);
    text_is(MEETS "0: merge %0 <- %0@1 7 x 2(9, 9) to 3\n", NULL);
}

TEST(program_check_tensors_have_room_for_what_they_hold)
{
    static const char *const fit =
        "tensor 0 of %d bytes is too small for its dimensions";
    static const struct {
        const char *tensor;
        /* size that the message must name because it is too small; 0 if the
         * tensor fits */
        int bytes;
    } cases[] = {
        {"f32[n_tok, 8] bytes 128", 0},
        {"f32[n_tok, 8] bytes 124", 124},
        {"f32[n_tok, 100000] bytes 64", 64},
        {"f16[3, n_out] bytes 24", 0},
        {"f16[3, n_out] bytes 23", 23},
        {"f32[n_tok, 64] q8 bytes 4", 4},
        {"q4_k[2, 100] bytes 1000", 1000},
        {"q8_0[16, 64] weights packed", 0},
        {"q8_0[16, 64] weights bytes 1024 packed", 1024},
        {"q8_0[3, 16, 64] weights bytes 2176 packed", 2176},
        {"f32[4611686018427387904, 4] bytes 64", 64},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[300], says[80];

        snprintf(text, sizeof text,
                 "programs 2\nmax n_tok 4 n_out 4\ndevice 0\n%%0: %s\n"
                 "device 1\nvariant\n",
                 cases[i].tensor);
        snprintf(says, sizeof says, fit,
                 cases[i].bytes > 0 ? cases[i].bytes : 0);
        text_is(text, cases[i].bytes ? says : NULL);
    }
}

/* Checks a program of one kernel, whose operands are before it. */
static void kernel_is(const char *tensors, const char *step,
                      const char *message)
{
    char text[1000];

    snprintf(text, sizeof text,
             "programs 2\nmax n_tok 4 n_out 4 n_slot 128 n_seq 1 page_stride "
             "2\ndevice 0\n%s\ndevice 1\nvariant\n0: %s\n",
             tensors, step);
    text_is(text, message);
}

TEST(program_check_kernels_take_what_goes_together)
{
    static const char *const form = "a format that its kernel does not read";
    static const char *const dims = "dimensions do not match";

    kernel_is("%0: f32[n_tok, 7]\n%1: f32[n_tok, 7]", "%0 = scale(%1)", NULL);
    kernel_is("%0: f32[n_tok, 8]\n%1: f32[n_tok, 7]", "%0 = scale(%1)", dims);
    kernel_is("%0: f32[n_tok, 7]\n%1: f32[n_out, 7]", "%0 = scale(%1)", dims);
    kernel_is("%0: f32[n_tok, 7]\n%1: i32[n_tok, 7]", "%0 = scale(%1)", form);
    kernel_is("%0: f16[n_tok, 7]\n%1: f32[n_tok, 7]", "%0 = scale(%1)", form);
    kernel_is("%0: f32[n_tok, 7]\n%1: f16[n_tok, 7]", "%0 = scale(%1)", NULL);
    kernel_is("%0: f32[n_tok, 7]\n%1: f32[n_tok, 1]\n%2: f32[7]",
              "%0 = add(%1, %2)", NULL);
    kernel_is("%0: f32[n_tok, 100000]\n%1: f32[n_tok, 7]\n%2: f32[n_tok, 7]",
              "%0 = add(%1, %2)", dims);
    kernel_is("%0: f32[7]\n%1: f32[n_tok, 7]\n%2: f32[7]", "%0 = add(%1, %2)",
              dims);
    kernel_is("%0: f32[n_tok, 7]\n%1: f32[n_tok, 7]\n%2: f32[1]",
              "%0 = rms_norm(%1, %2)", dims);
    kernel_is("%0: f32[n_tok, 64]\n%1: f32[n_tok, 32]\n"
              "%2: f32[64, 32] weights packed",
              "%0 = matmul(%1, %2)", NULL);
    kernel_is("%0: f32[n_tok, 64]\n%1: f32[n_tok, 64]\n"
              "%2: f32[64, 32] weights packed",
              "%0 = matmul(%1, %2)", dims);
    kernel_is("%0: f32[n_out, 64]\n%1: f32[n_tok, 32]\n"
              "%2: f32[64, 32] weights packed",
              "%0 = matmul(%1, %2)", dims);
    kernel_is("%0: f32[n_tok, 64]\n%1: f32[n_tok, 32]\n"
              "%2: f32[64, 32] weights packed(rows 48)",
              "%0 = matmul(%1, %2)", form);
    kernel_is("%0: f32[n_tok, 64]\n%1: f32[n_tok, 32]\n"
              "%2: q8_0[64, 32] weights packed\n%3: f32[n_out, 32] q8",
              "%0 = matmul(%1, %2, %3)", dims);
    kernel_is("%0: f32[n_tok, 64] q8\n%1: f32[n_tok, 32]", "%0 = quantize(%1)",
              dims);
    kernel_is("%0: f32[n_tok, 7]\n%1: f16[n_tok, 7]", "%0 = contiguous(%1)",
              form);
}

#define TABLE "%0: f32[n_tok, 8]\n%1: f32[64, 8] weights\n%2: i32[n_tok]"
#define PAIR  "%0: f32[n_tok, 16]\n%1: f32[n_tok, 64]"
#define HEADS "%0: f32[n_tok, 4, 32]\n%1: f16[n_slot, 2, 32] cache\n%2: i32[10]"

#define CONV                                                                   \
    "%0: f32[n_tok, 6]\n%1: f32[n_tok, 6]\n%2: f32[6, 4]\n"                    \
    "%3: f32[n_slot, 6, 3] cache\n%4: i32[10]\n%5: f32[6, 3]\n"                \
    "%6: f32[n_slot, 6, 4] cache\n%7: f32[6, 0]\n"                             \
    "%8: f32[n_slot, 6, 0] cache\n%9: f16[n_slot, 6, 3] cache"
#define DELTA                                                                  \
    "%0: f32[n_tok, 4, 3]\n%1: f32[n_tok, 2, 5]\n%2: f32[n_tok, 4, 3]\n"       \
    "%3: f32[n_tok, 4]\n%4: f32[n_slot, 4, 15] cache\n%5: i32[10]\n"           \
    "%6: f32[n_slot, 4, 16] cache\n%7: f32[n_slot, 5, 15] cache"
#define QKV "%1, %1, %2, %3, %3"

TEST(program_check_kernels_stay_inside_their_operands)
{
    static const char *const adds = "additions do not yield its results";
    static const char *const part = "parts of ranks that its operand lacks";
    static const char *const beyond = "attributes that point past";
    static const char *const dims = "dimensions do not match";
    static const char *const bf16 = "products for an operand without them";

    kernel_is(TABLE, "%0 = gather_rows(%1, %2) tree(0, 1+) depth 2 out 1",
              NULL);
    kernel_is(TABLE, "%0 = gather_rows(%1, %2) tree(0, 1+) depth 1 out 1",
              adds);
    kernel_is(TABLE, "%0 = gather_rows(%1, %2) tree(0, 1++) depth 9 out 1",
              adds);
    kernel_is(TABLE, "%0 = gather_rows(%1, %2) tree(0, 1) depth 2 out 1", adds);
    kernel_is(TABLE,
              "%0 = gather_rows(%1, %2) tree(0, 1+++, 2, 3) depth 9 out 1",
              adds);
    kernel_is(TABLE, "%0 = gather_rows(%1, %2) spans(0+32{0}, 64+32@32{1})",
              NULL);
    kernel_is(TABLE, "%0 = gather_rows(%1, %2) spans(0+32{0}, 64+32@33{1})",
              part);
    kernel_is(TABLE, "%0 = gather_rows(%1, %2) spans(0+6400@100000000{0})",
              part);
    kernel_is(PAIR, "%0 = slice(%1) axis=1 start=48", NULL);
    kernel_is(PAIR, "%0 = slice(%1) axis=1 start=49", beyond);
    kernel_is(PAIR, "%0 = slice(%1) axis=1 start=-1", beyond);
    kernel_is(PAIR, "%0 = slice(%1) axis=77", beyond);
    kernel_is(PAIR, "%0 = slice(%1) axis=0", beyond);
    kernel_is(PAIR, "%1 = concat(%0, %0, %0, %0) axis=1", NULL);
    kernel_is(PAIR, "%1 = concat(%0, %0, %0) axis=1", beyond);
    kernel_is(PAIR, "%0 = concat(%1) axis=1", beyond);
    kernel_is("%0: f32[n_tok, 4]\n%1: f32[4, n_tok]",
              "%0 = permute(%1) perm0=1 perm1=0", NULL);
    kernel_is("%0: f32[n_tok, 4]\n%1: f32[n_tok, 4]",
              "%0 = permute(%1) perm0=1 perm1=0", beyond);
    kernel_is("%0: f32[n_tok, 4]\n%1: f32[n_tok, 4]",
              "%0 = permute(%1) perm0=1 perm1=5", beyond);
    kernel_is(HEADS, "%0 = attention(%0, %1, %1, -, %2) heads(0, 1, 1, 1)",
              NULL);
    kernel_is(HEADS, "%0 = attention(%0, %1, %1, -, %2) heads(0, 2, 1, 1)",
              beyond);
    kernel_is(HEADS, "%0 = attention(%0, %1, %1, -, %2)", beyond);
    kernel_is(HEADS,
              "%0 = attention(%0, %1, %1, -, %2) heads(0, 1, 1, 1) "
              "bf16=1",
              NULL);
    kernel_is(PAIR, "%0 = exp(%0) bf16=1", bf16);
    kernel_is("%0: f32[n_tok, 8]\n%1: f16[8, 64] weights packed\n"
              "%2: f32[n_tok, 64]",
              "%0 = matmul(%2, %1) bf16=1", NULL);
    kernel_is("%0: f32[n_tok, 8]\n%1: f32[8, 64] weights packed\n"
              "%2: f32[n_tok, 64]",
              "%0 = matmul(%2, %1) bf16=1", bf16);
    kernel_is(HEADS "\n%3: f32[n_tok, 4, 32]",
              "%3 = latent_attention(%0, %1, -, %2) heads(0, 1, 1, 0)", NULL);
    kernel_is(HEADS "\n%3: f32[n_tok, 4, 33]",
              "%3 = latent_attention(%0, %1, -, %2) heads(0, 1, 1, 0)", beyond);
    kernel_is(HEADS "\n%3: f32[n_tok, 4, 32]",
              "%3 = latent_attention(%0, %1, -, %2) heads(0, 1, 2, 0)", beyond);
    kernel_is(CONV, "%0 = short_conv(%1, %2, %3, %4)", NULL);
    kernel_is(CONV, "%0 = short_conv(%1, %5, %3, %4)", beyond);
    kernel_is(CONV, "%0 = short_conv(%1, %2, %6, %4)", beyond);
    kernel_is(CONV, "%0 = short_conv(%1, %7, %8, %4)", beyond);
    kernel_is(CONV, "%0 = short_conv(%1, %2, %9, %4)",
              "a format that its kernel does not read");
    kernel_is(CONV, "%0 = short_conv(%1, %1, %3, %4)", dims);
    kernel_is(CONV, "%0 = short_conv(%1, %2, %3, %2)",
              "reads a token table from a tensor that is not one");
    kernel_is(DELTA, "%0 = delta_net(" QKV ", %4, %5) heads(1, 0, 1, 0)", NULL);
    kernel_is(DELTA, "%0 = delta_net(" QKV ", %4, %5) heads(0, 0, 2, 1)",
              beyond);
    kernel_is(DELTA, "%0 = delta_net(" QKV ", %4, %5)", beyond);
    kernel_is(DELTA, "%0 = delta_net(" QKV ", %6, %5) heads(0, 0, 1, 1)",
              beyond);
    kernel_is(DELTA, "%0 = delta_net(" QKV ", %7, %5) heads(0, 0, 1, 1)", dims);
    kernel_is(DELTA,
              "%0 = delta_net(%1, %1, %2, %3, %1, %4, %5) "
              "heads(0, 0, 1, 1)",
              dims);
    kernel_is(DELTA "\n%8: f32[n_tok, 4, 5]",
              "%0 = delta_net_channels(%1, %1, %2, %8, %3, %4, %5) "
              "heads(1, 0, 1, 0)",
              NULL);
    kernel_is(DELTA,
              "%0 = delta_net_channels(%1, %1, %2, %2, %3, %4, %5) "
              "heads(1, 0, 1, 0)",
              dims);
    kernel_is(DELTA "\n%8: f32[n_tok, 4, 5]",
              "%0 = delta_net_channels(%1, %1, %2, %8, %3, %4, %5) "
              "heads(0, 0, 2, 1)",
              beyond);
    kernel_is(DELTA, "%0 = ssm_scan(%1, %1, %2, %3, %4, %5) heads(1, 0, 1, 0)",
              NULL);
    kernel_is(DELTA, "%0 = ssm_scan(%1, %1, %2, %3, %4, %5) heads(0, 0, 2, 1)",
              beyond);
    kernel_is(DELTA, "%0 = ssm_scan(%1, %1, %2, %3, %6, %5) heads(0, 0, 1, 1)",
              beyond);
    kernel_is("%0: f32[n_tok, 2, 8]\n%1: i32[n_tok]",
              "%0 = rope(%0, %1) n_rot=8", NULL);
    kernel_is("%0: f32[n_tok, 2, 8]\n%1: i32[n_tok]",
              "%0 = rope(%0, %1) n_rot=10", beyond);
    kernel_is("%0: i32[n_tok, 2]\n%1: f32[n_tok, 8]",
              "%0 = router_topk(%1) n_group=4 n_group_used=2", NULL);
    kernel_is("%0: i32[n_tok, 2]\n%1: f32[n_tok, 8]",
              "%0 = router_topk(%1) n_group=100 n_group_used=2", beyond);
}

/* An offset that falls as the step grows is largest in small steps: in one of
 * no token, or, if that accesses nothing, in one of one token. */
TEST(program_check_offsets_that_fall_are_inside_at_any_size)
{
    static const char *const reads = "reads past the end of its source";
    static const char *const writes = "writes past the end of its result";
    struct copy_desc l = {.src_dev = 0,
                          .bytes = {32, PL_CONST},
                          .n0 = {1, PL_CONST},
                          .n1 = {1, PL_CONST}};
    struct insn_pull pull = {.out = 0, .piece = &l, .n_piece = 1};
    static const struct {
        int64_t at, n_bytes;
        pl_symbol symbol;
        int64_t falls, least, most;
        bool fits;
    } cases[] = {
        {96, 32, PL_CONST, 24, 0, 0, true},
        /* reads beyond the end if there is no token */
        {100, 32, PL_CONST, 25, 0, 0, false},
        /* reads before the start if there are all tokens */
        {95, 32, PL_CONST, 24, 0, 0, false},
        {100, 32, PL_CONST, 25, 1, 9, true},
        {128, 32, PL_N_TOK, 32, 0, 0, true},
        {96, 8, PL_N_TOK, 8, 0, 0, true},
        {152, 8, PL_N_TOK, 32, 0, 0, true},
        /* reads beyond the end if there is one token */
        {160, 8, PL_N_TOK, 32, 0, 0, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int dst = 0; dst < 2; dst++) {
            struct build *b = build_new(1, 4);
            struct program *p;
            struct insn *st;

            build_tensor(b, 8);
            l.src_const = dst ? 0 : cases[i].at;
            l.dst_const = dst ? cases[i].at : 0;
            l.src_off = (pl_dim){dst ? 0 : -cases[i].falls, PL_N_TOK};
            l.dst_off = (pl_dim){dst ? -cases[i].falls : 0, PL_N_TOK};
            l.bytes = (pl_dim){cases[i].n_bytes, cases[i].symbol};
            st = build_insn(b, INSN_PULL);
            st->pull = pull;
            st->min_rows = cases[i].least;
            st->max_rows = cases[i].most;
            p = build_programs(b, 1);
            program_is(p, cases[i].fits ? NULL : dst ? writes : reads);
            free(p);
            free(b);
        }
}
