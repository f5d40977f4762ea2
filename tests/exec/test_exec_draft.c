/* Programs under construction. A deferred POST is emitted before each wait for
 * it and before the device's next work, and belongs to the micro-batch of its
 * values. */
#include "lib/support.h"
#include "lower/lower_inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scene {
    struct lower w;
    struct program_builder dev[2];
    pl_err err;
};

static const struct lower_device one_queue[2] = {{.one_queue = true},
                                                 {.one_queue = true}};
static const struct lower_device two_queues[2] = {{.memory = 0}, {.memory = 0}};
static const struct lower_options one = {.n_dev = 2, .dev = one_queue};
static const struct lower_options two = {.n_dev = 2, .dev = two_queues};

static void open_scene(struct scene *s)
{
    memset(s, 0, sizeof *s);
    s->w.opt = &one;
    s->w.dev = s->dev;
    s->w.err = &s->err;
    lower_reset_events(&s->dev[0].events);
    lower_reset_events(&s->dev[1].events);
}

static void close_scene(struct scene *s)
{
    for (int d = 0; d < 2; d++) {
        free(s->dev[d].insn);
        free(s->dev[d].events.event);
    }
}

static void pull(struct scene *s, int *event)
{
    const struct insn p = {.kind = INSN_PULL, .pull = {.out = -1}};

    assert_int_equal(lower_insn(&s->w, 0, &p), PL_OK);
    assert_int_equal(lower_post_batched(&s->w, 0, event), PL_OK);
}

/* Checks the instructions of a device, like "pull post0 kernel", each with its
 * micro-batch if that is not the first; orders ascend. */
static void must_be(const struct scene *s, int d, const char *want)
{
    static const char *const name[] = {
        [INSN_KERNEL] = "kernel", [INSN_MERGE] = "merge", [INSN_PULL] = "pull",
        [INSN_PAGES] = "pages",   [INSN_POST] = "post",   [INSN_WAIT] = "wait"};
    char have[256] = "";
    size_t n = 0;

    for (int i = 0; i < s->dev[d].n_insn; i++) {
        const struct insn *t = &s->dev[d].insn[i];

        assert_true(i == 0 || t[-1].order < t->order);
        n += (size_t)snprintf(have + n, sizeof have - n, "%s%s", i ? " " : "",
                              name[t->kind]);
        if (insn_is_event(t))
            n += (size_t)snprintf(have + n, sizeof have - n, "%d",
                                  t->event.event);
        if (t->micro)
            n += (size_t)snprintf(have + n, sizeof have - n, "/%d", t->micro);
    }
    assert_string_equal(have, want);
}

TEST(exec_values_in_a_row_are_posted_once)
{
    const struct insn kernel = {.kind = INSN_KERNEL};
    struct scene s;
    int a, b, c;

    open_scene(&s);
    pull(&s, &a);
    pull(&s, &b);
    assert_int_equal(a, b);
    must_be(&s, 0, "pull pull");
    assert_int_equal(lower_insn(&s.w, 0, &kernel), PL_OK);
    pull(&s, &c);
    assert_int_not_equal(a, c);
    assert_int_equal(lower_post(&s.w, 0, QUEUE_COMPUTE, &b), PL_OK);
    /* no instruction was added since the last POST, so its event serves
     * again */
    assert_int_equal(b, c);
    assert_int_equal(lower_flush_batched_post(&s.w, 0), PL_OK);
    must_be(&s, 0, "pull pull post0 kernel pull post1");
    close_scene(&s);
}

TEST(exec_a_wait_has_its_post_before_it)
{
    struct scene s;
    int a;

    open_scene(&s);
    pull(&s, &a);
    assert_int_equal(lower_wait(&s.w, 1, QUEUE_COMPUTE, 0, a), PL_OK);
    must_be(&s, 0, "pull post0");
    must_be(&s, 1, "wait0");
    assert_true(s.dev[0].insn[1].order < s.dev[1].insn[0].order);
    close_scene(&s);
}

TEST(exec_each_micro_batch_posts_for_itself)
{
    struct scene s;
    int a, b;

    open_scene(&s);
    pull(&s, &a);
    s.w.now.micro = 1;
    pull(&s, &b);
    assert_int_not_equal(a, b);
    /* a wait of another micro-batch makes the deferred POST be emitted */
    s.w.now.micro = 2;
    assert_int_equal(lower_wait(&s.w, 1, QUEUE_COMPUTE, 0, b), PL_OK);
    must_be(&s, 0, "pull pull/1 post0 post1/1");
    must_be(&s, 1, "wait1/2");
    close_scene(&s);
}

static void copy(struct scene *s, int *event)
{
    const struct insn p = {
        .kind = INSN_PULL, .queue = QUEUE_COPY, .pull = {.out = -1}};

    assert_int_equal(lower_insn(&s->w, 0, &p), PL_OK);
    assert_int_equal(lower_post_deferred(&s->w, 0, event), PL_OK);
}

/* In a series of copies, the last one's POST covers all of them, but only those
 * of its micro-batch: another may be absent. */
TEST(exec_copies_are_posted_late_by_micro_batch)
{
    struct scene s;
    int a, b, c;

    open_scene(&s);
    copy(&s, &a);
    copy(&s, &b);
    s.w.now.micro = 1;
    copy(&s, &c);
    must_be(&s, 0, "pull pull pull/1");
    assert_int_equal(lower_wait(&s.w, 1, QUEUE_COMPUTE, 0, c), PL_OK);
    must_be(&s, 0, "pull pull pull/1 post2/1");
    s.w.now.micro = 0;
    assert_int_equal(lower_wait(&s.w, 1, QUEUE_COMPUTE, 0, b), PL_OK);
    assert_int_equal(lower_wait(&s.w, 1, QUEUE_COMPUTE, 0, a), PL_OK);
    must_be(&s, 0, "pull pull pull/1 post2/1 post1");
    must_be(&s, 1, "wait2/1 wait1 wait1");
    close_scene(&s);
}

TEST(exec_runs_of_few_rows_post_for_themselves)
{
    struct scene s;
    int a, b, c;

    open_scene(&s);
    s.w.one_shot_rows = 2;
    s.w.now.predicate = PRED_ONE_SHOT_TOK;
    assert_int_equal(lower_post(&s.w, 0, QUEUE_COMPUTE, &a), PL_OK);
    assert_int_equal(lower_post(&s.w, 0, QUEUE_COMPUTE, &b), PL_OK);
    assert_int_equal(a, b);
    s.w.now.predicate = PRED_TWO_SHOT_TOK;
    assert_int_equal(lower_post(&s.w, 0, QUEUE_COMPUTE, &b), PL_OK);
    s.w.now.predicate = PRED_NONE;
    assert_int_equal(lower_post(&s.w, 0, QUEUE_COMPUTE, &c), PL_OK);
    must_be(&s, 0, "post0 post1 post2");
    assert_true(a == 0 && b == 1 && c == 2);
    assert_int_equal(s.dev[0].insn[0].max_rows, 2);
    assert_int_equal(s.dev[0].insn[1].min_rows, 3);
    /* the predicate is for every step */
    assert_int_equal(s.dev[0].insn[2].max_rows, 0);
    close_scene(&s);
}

/* Before a queue waits for another device, it waits for the other queue's
 * POSTs, once, in the steps that execute them. */
TEST(exec_queues_know_of_each_other)
{
    struct scene s;
    int a, b, c;

    open_scene(&s);
    s.w.opt = &two;
    s.w.one_shot_rows = 2;
    assert_int_equal(lower_post(&s.w, 1, QUEUE_COMPUTE, &c), PL_OK);
    assert_int_equal(lower_post(&s.w, 0, QUEUE_COPY, &a), PL_OK);
    s.w.now.predicate =
        /* the queue knows of the POST only in steps in which this predicate
         * holds */
        PRED_ONE_SHOT_TOK;
    assert_int_equal(lower_wait(&s.w, 0, QUEUE_COMPUTE, 0, a), PL_OK);
    s.w.now.predicate = PRED_NONE;
    must_be(&s, 0, "post0 wait0");
    assert_int_equal(lower_wait(&s.w, 0, QUEUE_COMPUTE, 1, c), PL_OK);
    must_be(&s, 0, "post0 wait0 wait0 wait0");
    assert_int_equal(s.dev[0].insn[2].event.dev, 0);
    assert_int_equal(s.dev[0].insn[3].event.dev, 1);
    assert_int_equal(lower_wait(&s.w, 0, QUEUE_COMPUTE, 1, c), PL_OK);
    /* the queue knows of these POSTs already, so no WAIT is added */
    must_be(&s, 0, "post0 wait0 wait0 wait0 wait0");
    s.w.now.micro = 1;
    assert_int_equal(lower_post(&s.w, 0, QUEUE_COPY, &b), PL_OK);
    assert_int_equal(lower_wait(&s.w, 0, QUEUE_COMPUTE, 0, b), PL_OK);
    assert_int_equal(lower_wait(&s.w, 0, QUEUE_COMPUTE, 1, c), PL_OK);
    must_be(&s, 0, "post0 wait0 wait0 wait0 wait0 post1/1 wait1/1 wait0/1");
    close_scene(&s);
}

/* No event says that the copy queue has read a token table, so the table keeps
 * its memory to the end of the program. */
TEST(exec_token_tables_that_are_copied_live_to_the_end)
{
    static const struct lower_options alone = {
        .n_dev = 2, .n_shard = 1, .dev = two_queues};
    const struct insn kernel = {.kind = INSN_KERNEL};
    struct buffer buf[2] = {{.death = 0}, {.death = 0}};
    int buffer[2] = {0, 1}, tensor;
    struct shard shard = {.token_table = {{.tensor = 0}, {.tensor = 1}}};
    struct scene s;

    open_scene(&s);
    s.w.opt = &alone;
    s.w.shard = &shard;
    s.dev[0].buf = buf;
    s.dev[0].buffer = buffer;
    assert_int_equal(lower_token_table_copied(&s.w, 0, &tensor, NULL), PL_OK);
    assert_int_equal(tensor, 0);
    s.w.now.micro = 1;
    assert_int_equal(lower_token_table(&s.w, 0, &tensor), PL_OK);
    assert_int_equal(tensor, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(lower_insn(&s.w, 0, &kernel), PL_OK);
    lower_end_token_tables(&s.w, 2);
    assert_int_equal(buf[0].death, s.dev[0].n_insn);
    /* this token table was not copied to the device */
    assert_int_equal(buf[1].death, 0);
    close_scene(&s);
}
