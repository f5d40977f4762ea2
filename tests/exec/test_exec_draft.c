/* Passes over programs, text in and text out. "events" decides which POSTs and
 * WAITs remain of those that were asked for, and where. "buffers" gives places
 * to buffers. */
#include "lib/program_same.h"
#include "lib/support.h"
#include "lower/buffers.h"
#include "lower/events.h"
#include "lower/lower_inner.h"
#include "program/program_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scene {
    struct arena a;
    struct program *p;
    int n_dev;
};

/* Two devices with one tensor each, and the instructions `in`. */
static void open_scene(struct scene *s, const char *in)
{
    char text[2048];
    pl_err err;

    snprintf(text, sizeof text,
             "programs 2\nmax n_tok 8 n_out 8 n_seq 1\n"
             "device 0\n  %%0: f32[8]\ndevice 1\n  %%0: f32[8]\n"
             "variant micro 3\n%s",
             in);
    *s = (struct scene){.n_dev = 0};
    TEST_OK(program_parse(&s->p, &s->n_dev, &s->a, text, strlen(text), &err),
            err);
    program_reads_back(s->p, s->n_dev);
}

/* Fails the case unless the programs' only script is `want`, and frees them. */
static void close_scene(struct scene *s, const char *want)
{
    struct test_text out = {0};
    pl_err err;

    TEST_OK(program_print(s->p, s->n_dev, test_text_add, &out, &err), err);
    assert_string_equal(strchr(strstr(out.s, "variant"), '\n') + 1, want);
    free(out.s);
    arena_fini(&s->a);
}

/* The pass "events" makes `want` of `in`. */
static void thins(const char *in, bool one_queue, const char *want)
{
    const bool queues[2] = {one_queue, one_queue};
    struct scene s;
    pl_err err;

    open_scene(&s, in);
    TEST_OK(events_pass(s.p, s.n_dev, queues, &s.a, &err), err);
    close_scene(&s, want);
}

/* The pass "events" refuses `in` with this message. */
static void refuses(const char *in, const char *message)
{
    const bool queues[2] = {true, true};
    struct scene s;
    pl_err err;

    open_scene(&s, in);
    assert_int_equal(events_pass(s.p, s.n_dev, queues, &s.a, &err),
                     PL_BAD_ARGUMENT);
    assert_string_equal(err.message, message);
    arena_fini(&s.a);
}

TEST(exec_values_in_a_row_are_posted_once)
{
    thins("  0: pull %0 <- %0 32\n"
          "  0: post 0 batched\n"
          "  0: pull %0 <- %0 32\n"
          "  0: post 1 batched\n"
          "  0: %0 = scale(%0)\n"
          "  0: pull %0 <- %0 32\n"
          "  0: post 2 batched\n"
          /* nothing happens between these, so one event serves */
          "  0: post 3\n"
          "  1: wait 0.0\n"
          "  1: wait 0.1\n"
          "  1: wait 0.2\n"
          "  1: wait 0.3\n",
          true,
          "  0: pull %0 <- %0 32\n"
          "  0: pull %0 <- %0 32\n"
          "  0: post 0\n"
          "  0: %0 = scale(%0)\n"
          "  0: pull %0 <- %0 32\n"
          "  0: post 1\n"
          "  1: wait 0.0\n"
          "  1: wait 0.1\n");
}

TEST(exec_a_wait_has_its_post_before_it)
{
    thins("  0: pull %0 <- %0 32\n"
          "  0: post 0 batched\n"
          "  1: wait 0.0\n",
          true,
          "  0: pull %0 <- %0 32\n"
          "  0: post 0\n"
          "  1: wait 0.0\n");
    refuses("  1: wait 0.0\n"
            "  0: post 0\n",
            "a wait for event 0.0, which is not posted before it");
    refuses("  1: wait 7.0\n",
            "a wait for event 7.0, which is not posted before it");
}

TEST(exec_each_micro_batch_posts_for_itself)
{
    /* a wait of another micro-batch makes the batched POST be emitted */
    thins("  0: pull %0 <- %0 32\n"
          "  0: post 0 batched\n"
          "  0 micro 1: pull %0 <- %0 32\n"
          "  0 micro 1: post 1 batched\n"
          "  1 micro 2: wait 0.1\n",
          true,
          "  0: pull %0 <- %0 32\n"
          "  0 micro 1: pull %0 <- %0 32\n"
          "  0: post 0\n"
          "  0 micro 1: post 1\n"
          "  1 micro 2: wait 0.1\n");
}

/* In a series of copies, the last one's POST covers all of them, but only those
 * of its micro-batch: another may be absent. */
TEST(exec_copies_are_posted_late_by_micro_batch)
{
    thins("  0 copy: pull %0 <- %0 32\n"
          "  0 copy: post 0 deferred\n"
          "  0 copy: pull %0 <- %0 32\n"
          "  0 copy: post 1 deferred\n"
          "  0 copy micro 1: pull %0 <- %0 32\n"
          "  0 copy micro 1: post 2 deferred\n"
          "  1 micro 1: wait 0.2\n"
          "  1: wait 0.1\n"
          "  1: wait 0.0\n",
          true,
          "  0 copy: pull %0 <- %0 32\n"
          "  0 copy: pull %0 <- %0 32\n"
          "  0 copy micro 1: pull %0 <- %0 32\n"
          "  0 copy micro 1: post 0\n"
          "  1 micro 1: wait 0.0\n"
          "  0 copy: post 1\n"
          "  1: wait 0.1\n");
}

/* Before copies of another wave, those of the last one are posted. */
TEST(exec_copies_are_posted_before_another_wave)
{
    thins("  0 copy: pull %0 <- %0 32\n"
          "  0 copy: post 0 deferred\n"
          "  0 copy: flush\n"
          "  0 copy: pull %0 <- %0 32\n"
          "  0 copy: post 1 deferred\n"
          "  1: wait 0.0\n",
          true,
          "  0 copy: pull %0 <- %0 32\n"
          "  0 copy: post 0\n"
          "  0 copy: pull %0 <- %0 32\n"
          "  1: wait 0.0\n");
}

/* A POST in steps of few rows says nothing to steps of many. */
TEST(exec_runs_of_few_rows_post_for_themselves)
{
    thins("  0 if n_tok ..2: post 0\n"
          "  0 if n_tok ..2: post 1\n"
          "  0 if n_tok 3..: post 2\n"
          "  0: post 3\n"
          "  1 if n_tok ..2: wait 0.1\n"
          "  1 if n_tok 3..: wait 0.2\n"
          "  1: wait 0.3\n",
          true,
          "  0 if n_tok ..2: post 0\n"
          "  0 if n_tok 3..: post 1\n"
          "  0: post 2\n"
          "  1 if n_tok ..2: wait 0.0\n"
          "  1 if n_tok 3..: wait 0.1\n"
          "  1: wait 0.2\n");
}

/* Before a queue waits for another device, it waits for the other queue's
 * POSTs, once, in the steps that execute them. */
TEST(exec_queues_know_of_each_other)
{
    thins("  1: post 0\n"
          "  0 copy: post 0\n"
          /* the queue knows of the POST only in steps of few rows */
          "  0 if n_tok ..2: wait 0.0\n"
          "  0: wait 1.0\n"
          "  0: %0 = scale(%0)\n"
          "  0: wait 1.0\n"
          "  0 copy micro 1: post 1\n"
          "  0 micro 1: wait 0.1\n"
          "  0 micro 1: wait 1.0\n",
          false,
          "  1: post 0\n"
          "  0 copy: post 0\n"
          "  0 if n_tok ..2: wait 0.0\n"
          "  0: wait 0.0\n"
          "  0: wait 1.0\n"
          "  0: %0 = scale(%0)\n"
          /* the queue knows of these POSTs already */
          "  0: wait 1.0\n"
          "  0 copy micro 1: post 1\n"
          "  0 micro 1: wait 0.1\n"
          "  0 micro 1: wait 1.0\n");
}

/* A barrier is a wait for other devices, and all of its devices have one
 * position, behind what they owe. */
TEST(exec_a_barrier_comes_behind_what_its_devices_owe)
{
    thins("  0: pull %0 <- %0 32\n"
          "  0: post 0 batched\n"
          "  1 copy: post 0\n"
          "  0, 1: merge barrier\n"
          "  1: wait 0.0\n",
          false,
          "  0: pull %0 <- %0 32\n"
          "  1 copy: post 0\n"
          "  0: post 0\n"
          "  1: wait 1.0\n"
          "  0: merge barrier 0, 1\n"
          "  1: merge barrier 0, 1\n"
          "  1: wait 0.0\n");
}

TEST(exec_texts_that_are_no_drafts_are_refused)
{
    refuses("  0 order 7: post 0\n",
            "instruction 0 of device 0: positions must have no gaps");
    refuses("  0 micro 16: post 0\n",
            "instruction 0 of device 0: too many micro-batches");
    refuses("  0: merge barrier 1\n",
            "instruction 0 of device 0: the device is no peer of its barrier");
    refuses("  0: merge barrier 0, 9\n",
            "instruction 0 of device 0: a peer of the barrier is no device");
    refuses("  0 if n_tok ..1: post 0\n"
            "  0 if n_tok ..2: post 1\n"
            "  0 if n_tok ..3: post 2\n"
            "  0 if n_tok ..4: post 3\n"
            "  0 if n_tok ..5: post 4\n",
            "a variant with more than 4 predicates");
    refuses("  0: post 0 batched\n"
            "  0: post 0 batched\n"
            "  1: wait 0.0\n",
            "event 0.0 is posted twice");
    refuses("  0 copy: post 0 deferred\n"
            "  0: post 0\n",
            "event 0.0 is posted twice");
    refuses("  0: post 0\n"
            "variant\n"
            "  1: wait 0.0\n",
            "a wait for event 0.0, which is not posted before it");
}

/* Programs of one device whose tensors lie in buffers, before and after the
 * pass "buffers". */
static void places(const char *in, bool is_private, const char *want)
{
    const bool private[1] = {is_private};
    struct test_text out = {0};
    struct arena a = {0};
    struct program *p;
    pl_err err;
    int n_dev;

    TEST_OK(program_parse(&p, &n_dev, &a, in, strlen(in), &err), err);
    program_reads_back(p, n_dev);
    TEST_OK(buffers_pass(p, n_dev, private, &a, &err), err);
    TEST_OK(program_print(p, n_dev, test_text_add, &out, &err), err);
    assert_string_equal(strstr(out.s, "device 0"), want);
    free(out.s);
    arena_fini(&a);
}

#define THREE_BUFFERS                                                          \
    "programs 1\n"                                                             \
    "device 0 work 0 inbox 0 events 0 groups 0\n"                              \
    "  buffer 0: 64 work born 0\n"                                             \
    "  buffer 1: 64 work born 1\n"                                             \
    "  buffer 2: 64 work born 3\n"                                             \
    "  %0: f32[8] in 0 @0\n"                                                   \
    "  %1: f32[8] in 1 @0\n"                                                   \
    "  %2: f32[8] in 2 @0\n"                                                   \
    "variant\n"                                                                \
    "  0: %0 = scale(%0)\n"                                                    \
    "  0: %1 = scale(%0)\n"                                                    \
    "  0: %1 = scale(%1)\n"

TEST(exec_places_are_used_again)
{
    places(THREE_BUFFERS "  0: %2 = scale(%1)\n", false,
           "device 0 weights 0 cache 0 work 128 inbox 0 events 0 groups 0\n"
           "  %0: f32[8] work @0\n"
           "  %1: f32[8] work @64\n"
           "  %2: f32[8] work @0\n"
           "variant\n"
           "  0: %0 = scale(%0)\n"
           "  0: %1 = scale(%0)\n"
           "  0: dies 64 @0\n"
           "  0: %1 = scale(%1)\n"
           "  0: %2 = scale(%1)\n"
           "  0: dies 64 @0, 64 @64\n");
}

/* The pass lists anew what dies where, and leaves programs alone whose tensors
 * have places. */
TEST(exec_dead_ranges_of_a_text_are_replaced)
{
    places(THREE_BUFFERS "  0: dies 64 @0, 64 @64, 64 @128, 64 @192\n"
                         "  0: dies 64 @0, 64 @64, 64 @128, 64 @192\n"
                         "  0: %2 = scale(%1)\n",
           false,
           "device 0 weights 0 cache 0 work 128 inbox 0 events 0 groups 0\n"
           "  %0: f32[8] work @0\n"
           "  %1: f32[8] work @64\n"
           "  %2: f32[8] work @0\n"
           "variant\n"
           "  0: %0 = scale(%0)\n"
           "  0: %1 = scale(%0)\n"
           "  0: dies 64 @0\n"
           "  0: %1 = scale(%1)\n"
           "  0: %2 = scale(%1)\n"
           "  0: dies 64 @0, 64 @64\n");
    places("programs 1\n"
           "device 0\n"
           "  %0: f32[8]\n"
           "variant\n"
           "  0: %0 = scale(%0)\n"
           "  0: dies 64 @0\n"
           "  0: holds %0\n",
           false,
           "device 0 weights 0 cache 0 work 64 inbox 0 events 0 groups 0\n"
           "  %0: f32[8] work @0\n"
           "variant\n"
           "  0: %0 = scale(%0)\n"
           "  0: dies 64 @0\n");
}

/* Memory that no other device reads rests before it is used again. */
TEST(exec_places_of_private_memory_rest)
{
    places(THREE_BUFFERS "  0: %2 = scale(%1)\n", true,
           "device 0 weights 0 cache 0 work 192 inbox 0 events 0 groups 0\n"
           "  %0: f32[8] work @0\n"
           "  %1: f32[8] work @64\n"
           "  %2: f32[8] work @128\n"
           "variant\n"
           "  0: %0 = scale(%0)\n"
           "  0: %1 = scale(%0)\n"
           "  0: dies 64 @0\n"
           "  0: %1 = scale(%1)\n"
           "  0: %2 = scale(%1)\n"
           "  0: dies 64 @64, 64 @128\n");
}

/* Buffers that a peer or a copy queue may still read live while they are
 * held. */
TEST(exec_held_buffers_keep_their_places)
{
    places(THREE_BUFFERS "  0: holds %0\n"
                         "  0: %2 = scale(%1)\n"
                         "  0: holds %1\n",
           false,
           "device 0 weights 0 cache 0 work 128 inbox 0 events 0 groups 0\n"
           "  %0: f32[8] work @0\n"
           "  %1: f32[8] work @64\n"
           "  %2: f32[8] work @0\n"
           "variant\n"
           "  0: %0 = scale(%0)\n"
           "  0: %1 = scale(%0)\n"
           "  0: %1 = scale(%1)\n"
           "  0: dies 64 @0\n"
           "  0: %2 = scale(%1)\n"
           "  0: dies 64 @0\n");
}

/* No event says that the copy queue has read a token table, so the table keeps
 * its memory to the end of the program. */
TEST(exec_drafts_with_unknown_tensors_are_refused)
{
    static const char *const text[] = {
        THREE_BUFFERS "  0: %3 = scale(%0)\n",
        THREE_BUFFERS "  0: %0 = scale(%3)\n",
        THREE_BUFFERS "  0: merge %3 <- sum(0.%0, 0.%1) 16\n",
        THREE_BUFFERS "  0: pull %0 <- %3 32\n",
    };
    const bool private[1] = {false};

    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        const char *s = text[i];
        struct arena a = {0};
        struct program *p;
        pl_err err;
        int n_dev;

        TEST_OK(program_parse(&p, &n_dev, &a, s, strlen(s), &err), err);
        assert_int_equal(buffers_pass(p, n_dev, private, &a, &err),
                         PL_BAD_ARGUMENT);
        assert_string_equal(err.message,
                            "device 0 names a tensor that does not exist");
        arena_fini(&a);
    }
}

TEST(exec_token_tables_that_are_copied_live_to_the_end)
{
    static const struct lower_device devs[2] = {{.memory = 0}, {.memory = 0}};
    static const struct lower_options alone = {
        .n_dev = 2, .n_shard = 1, .dev = devs};
    const struct insn kernel = {.kind = INSN_KERNEL};
    int in_buffer[2] = {0, 1}, tensor;
    struct shard shard = {.local = 0};
    struct lowered_value v[2] = {{.tensor = 0}, {.tensor = 1}};
    struct placed table[2] = {{.h.v = &v[0]}, {.h.v = &v[1]}};
    /* of a plan without values, so that each list begins with the table */
    static const struct numeric num = {.n = 0};
    struct placed *first[2] = {&table[0], &table[1]};
    struct placed **value[2] = {&first[0], &first[1]};
    struct program_builder dev[2] = {{.in_buffer = in_buffer}};
    const struct variant_draft *made = &dev[0].draft[0];
    struct arena a = {0};
    pl_err err;
    struct lower w = {.num = &num,
                      .opt = &alone,
                      .a = &a,
                      .shard = &shard,
                      .dev = dev,
                      .variant.value = value,
                      .err = &err};

    TEST_OK(lower_token_table_copied(&w, 0, &tensor, NULL), err);
    assert_int_equal(tensor, 0);
    w.now.micro = 1;
    TEST_OK(lower_token_table(&w, 0, &tensor), err);
    assert_int_equal(tensor, 1);
    for (int i = 0; i < 3; i++)
        TEST_OK(lower_insn(&w, 0, &kernel), err);
    TEST_OK(lower_end_collectives(&w), err);
    /* the other token table was not copied to the device */
    assert_int_equal(made->n_hold, 1);
    assert_int_equal(made->hold[0].tensor, 0);
    assert_int_equal(made->hold[0].until, 3);
    arena_fini(&w.scratch);
    arena_fini(&a);
}
