/* Places and meetings of a work region, pair by pair: buffers whose lifetimes
 * meet do not overlap; between two steps that may not run at once the threads
 * meet, and they meet nowhere else. */
#include "exec/buffers.h"

#include "support.h"

#include <string.h>

static void exec_buffers_that_live_at_once_lie_apart(void **state)
{
    enum { N = 40, STEPS = 60 };
    uint64_t seed = test_seed();
    int n_trial = test_long() ? 20000 : 2000;
    size_t got = 0, least = 0;

    (void)state;
    for (int trial = 0; trial < n_trial; trial++) {
        struct buffer b[N];
        size_t total = 0, peak = 0;
        int n = (int)test_below(&seed, N + 1);

        for (int i = 0; i < n; i++) {
            int birth = (int)test_below(&seed, STEPS) - 1;
            int span = (int)test_below(&seed, test_below(&seed, 4) ? 6 : STEPS);

            b[i] = (struct buffer){.bytes = 64 * (size_t)test_below(&seed, 9),
                                   .birth = birth,
                                   .death = birth + span};
        }
        assert_true(buffers_place(b, n, &total));
        for (int i = 0; i < n; i++) {
            assert_int_equal(b[i].offset % 64, 0);
            assert_true(b[i].offset + b[i].bytes <= total);
            for (int k = 0; k < i; k++) {
                bool at_once =
                    b[i].birth <= b[k].death && b[k].birth <= b[i].death;

                if (at_once && b[i].bytes && b[k].bytes)
                    assert_true(b[i].offset + b[i].bytes <= b[k].offset ||
                                b[k].offset + b[k].bytes <= b[i].offset);
            }
        }
        for (int at = -1; at < 2 * STEPS; at++) {
            size_t sum = 0;

            for (int i = 0; i < n; i++)
                sum += b[i].birth <= at && at <= b[i].death ? b[i].bytes : 0;
            peak = sum > peak ? sum : peak;
        }
        assert_true(total >= peak);
        got += total;
        least += peak;
    }
    assert_true(got < least + least / 4); /* and places are used again */
}

/* ---- meetings ------------------------------------------------------------ */

enum { N_TENSOR = 14, N_STEP = 24, MAX_RANGE = 12 };

struct range {
    enum region region;
    size_t from, to;
    bool write;
};

struct plan {
    struct prog_tensor tensor[N_TENSOR];
    struct step step[N_STEP];
    struct merge_item item[N_STEP][2];
    struct merge_addend addend[N_STEP][2][3];
    struct copy_piece piece[N_STEP][2][3];
    struct range range[N_STEP][MAX_RANGE]; /* what a step touches */
    int n_range[N_STEP];
};

static void put(struct plan *p, int s, int tensor, size_t more, size_t off,
                bool write)
{
    const struct prog_tensor *t = &p->tensor[tensor];

    p->range[s][p->n_range[s]++] = (struct range){
        t->region, t->offset + off, t->offset + off + more + t->bytes, write};
}

static int any(uint64_t *seed)
{
    return (int)test_below(seed, N_TENSOR);
}

static void draw_op(struct plan *p, int s, uint64_t *seed)
{
    struct step *st = &p->step[s];

    *st = (struct step){.kind = test_below(seed, 4) ? STEP_OP : STEP_Q8,
                        .n_in = 1 + (int)test_below(seed, 3),
                        .out = any(seed),
                        .q8 = test_below(seed, 3) ? -1 : any(seed),
                        .tree = {.n = 1, .n_out = 1}};
    for (int i = 0; i < st->n_in; i++) {
        st->in[i] = i == 0 || test_below(seed, 4) ? any(seed) : -1;
        if (st->in[i] >= 0)
            put(p, s, st->in[i], 0, 0, false);
    }
    if (st->q8 >= 0)
        put(p, s, st->q8, 0, 0, false);
    if (test_below(seed, 4) == 0) { /* results of several subtrees */
        st->tree.n_out = 2;
        st->out_stride = p->tensor[st->out].bytes;
    }
    put(p, s, st->out, st->tree.n_out > 1 ? st->out_stride : 0, 0, true);
}

/* Device 0's; what it reads of others is not its threads' affair. */
static void draw_merge(struct plan *p, int s, uint64_t *seed)
{
    struct step *st = &p->step[s];

    *st = (struct step){.kind = STEP_MERGE,
                        .q8 = -1,
                        .n_merge = 1 + (int)test_below(seed, 2),
                        .merge = p->item[s],
                        .meet = test_below(seed, 3) == 0};
    for (int m = 0; m < st->n_merge; m++) {
        struct merge_item *it = &p->item[s][m];
        int n = 1 + (int)test_below(seed, 3);
        int n_own = (int)test_below(seed, n + 1); /* the device's own first */

        *it = (struct merge_item){.reduce = test_below(seed, 2),
                                  .out = any(seed)};
        put(p, s, it->out, 0, 0, true);
        for (int i = 0; i < n; i++) {
            int dev = i >= n_own, t = any(seed);
            size_t off = 64 * (size_t)test_below(seed, 2);

            if (it->reduce)
                p->addend[s][m][i] = (struct merge_addend){dev, t, off, 0};
            else
                p->piece[s][m][i] =
                    (struct copy_piece){.src_dev = dev, .src = t};
            if (dev == 0)
                put(p, s, t, 0, it->reduce ? off : 0, false);
        }
        it->n_addend = it->reduce ? n : 0;
        it->addend = p->addend[s][m];
        it->n_piece = it->reduce ? 0 : n;
        it->piece = p->piece[s][m];
    }
}

/* From another device, which is not this one's threads' affair. */
static void draw_pull(struct plan *p, int s, uint64_t *seed)
{
    struct step *st = &p->step[s];
    struct copy_piece *c = &p->piece[s][0][0];

    *c = (struct copy_piece){.src_dev = 1,
                             .bytes = {test_below(seed, 2) ? 64 : 1 << 20, 0},
                             .n0 = {1, 0},
                             .n1 = {1, 0}};
    *st =
        (struct step){.kind = STEP_PULL,
                      .queue = test_below(seed, 2) ? QUEUE_COPY : QUEUE_COMPUTE,
                      .q8 = -1,
                      .out = any(seed),
                      .tree = {.n = 1, .n_out = 1},
                      .n_piece = 1,
                      .piece = c};
    if (st->queue == QUEUE_COMPUTE) /* else events order it */
        put(p, s, st->out, 0, 0, true);
}

static void draw(struct plan *p, uint64_t *seed)
{
    memset(p, 0, sizeof *p);
    for (int t = 0; t < N_TENSOR; t++)
        p->tensor[t] = (struct prog_tensor){
            .n_dim = 2,
            .dim = {{1, PL_N_TOK}, {t % 3 ? 64 : 100000, PL_CONST}},
            .region = test_below(seed, 4)   ? REGION_WORK
                      : test_below(seed, 2) ? REGION_CACHE
                                            : REGION_WEIGHTS,
            .offset = 64 * (size_t)test_below(seed, 24),
            .bytes = 64 * (1 + (size_t)test_below(seed, 3))};
    for (int s = 0; s < N_STEP; s++)
        switch (test_below(seed, 14)) {
        case 0:
            p->step[s] = (struct step){
                .kind = test_below(seed, 2) ? STEP_POST : STEP_WAIT, .q8 = -1};
            break;
        case 1:
        case 2:
            draw_merge(p, s, seed);
            break;
        case 3:
            draw_pull(p, s, seed);
            break;
        default:
            draw_op(p, s, seed);
        }
}

/* May the two steps not run at the same time? */
static bool clash(const struct plan *p, int a, int b)
{
    for (int i = 0; i < p->n_range[a]; i++)
        for (int k = 0; k < p->n_range[b]; k++) {
            const struct range *x = &p->range[a][i], *y = &p->range[b][k];

            if (x->region == y->region && x->region != REGION_WEIGHTS &&
                (x->write || y->write) && x->from < y->to && y->from < x->to &&
                x->from < x->to && y->from < y->to)
                return true;
        }
    return false;
}

static void exec_threads_meet_between_steps_that_clash(void **state)
{
    uint64_t seed = test_seed();
    int n_trial = test_long() ? 50000 : 5000;
    int n_meet = 0, n_free = 0;

    (void)state;
    for (int trial = 0; trial < n_trial; trial++) {
        static struct plan p;
        int last = 0; /* the step before which they met last */

        draw(&p, &seed);
        assert_true(buffers_barriers(p.step, N_STEP, p.tensor, 0));
        for (int s = 0; s < N_STEP; s++) {
            const struct step *st = &p.step[s];
            bool needed = false, fixed = st->kind == STEP_POST ||
                                         (st->kind == STEP_MERGE && st->meet);

            for (int k = last; k < s; k++)
                needed |= clash(&p, k, s);
            if (st->kind == STEP_WAIT || st->queue == QUEUE_COPY)
                continue; /* each thread waits for itself, for events */
            if (st->kind == STEP_POST)
                assert_true(st->barrier); /* others rely on what is before */
            else if (fixed)
                assert_false(st->barrier); /* they meet there anyhow */
            else
                assert_int_equal(st->barrier, needed);
            if (fixed || st->barrier)
                last = s;
            n_meet += st->barrier && !fixed;
            n_free += !st->barrier && !fixed;
        }
    }
    assert_true(n_meet > n_trial && n_free > n_trial);
}

static bool meets_peers(const struct step *s)
{
    return s->kind == STEP_MERGE && s->meet;
}

/* In a run of a single token: do all threads meet before a step of first + 1
 * to last? */
static bool all_meet(const struct plan *p, int first, int last)
{
    for (int k = first + 1; k <= last; k++)
        if (p->step[k].barrier_one ||
            (meets_peers(&p->step[k]) && !p->step[k].alone))
            return true;
    return false;
}

/* The first thread does small steps alone, in order; what else clashes has a
 * meeting between. What is posted, or told to peers, is complete. When the
 * first has met peers alone, nobody goes on to a shared step without it. */
static void exec_threads_meet_seldom_for_a_single_token(void **state)
{
    uint64_t seed = test_seed() + 1;
    int n_trial = test_long() ? 50000 : 5000;
    int n_all = 0, n_one = 0, n_alone = 0;

    (void)state;
    for (int trial = 0; trial < n_trial; trial++) {
        static struct plan p;

        draw(&p, &seed);
        assert_true(buffers_barriers(p.step, N_STEP, p.tensor, 0));
        for (int j = 0; j < N_STEP; j++) {
            const struct step *b = &p.step[j];
            bool works = b->kind != STEP_POST && b->kind != STEP_WAIT;

            if (b->alone)
                assert_true(works && b->queue == QUEUE_COMPUTE);
            if (b->alone && b->kind == STEP_OP)
                assert_true(b->out % 3 != 0);
            n_alone += b->alone;
            n_all += b->barrier || meets_peers(b);
            n_one += b->barrier_one || (meets_peers(b) && !b->alone);
            for (int i = 0; i < j; i++) {
                const struct step *a = &p.step[i];
                bool worked = a->kind != STEP_POST && a->kind != STEP_WAIT;
                bool tells = b->kind == STEP_POST || meets_peers(b);
                bool needed = worked && works && clash(&p, i, j) &&
                              !(a->alone && b->alone);

                needed |= tells && worked && !a->alone;
                needed |= meets_peers(a) && a->alone && works && !b->alone;
                if (needed && !all_meet(&p, i, j))
                    fail_msg("trial %d: steps %d and %d", trial, i, j);
            }
        }
    }
    assert_true(n_alone > n_trial && n_one > n_trial && n_one < n_all);
}

/* What a step touches is looked at only as far as a table has room; the values
 * of a long message count even where the device has no addend of its own. */
static void exec_threads_meet_around_a_message_of_many_values(void **state)
{
    enum { N = 2000 };
    static struct merge_item item[N];
    struct prog_tensor t[2] = {{.region = REGION_WORK, .bytes = 64},
                               {.region = REGION_CACHE, .bytes = 64}};
    struct merge_addend others = {.dev = 1};

    (void)state;
    for (int n = 480; n <= N; n = n < 540 ? n + 1 : n + 1460) {
        struct step step[3] = {
            {.kind = STEP_OP, .q8 = -1, .out = 0},
            {.kind = STEP_MERGE, .q8 = -1, .n_merge = n, .merge = item},
            {.kind = STEP_OP, .q8 = -1, .out = 0},
        };

        for (int i = 0; i < n; i++)
            item[i] = (struct merge_item){
                .reduce = true, .n_addend = 1, .addend = &others};
        assert_true(buffers_barriers(step, 3, t, 0));
        assert_false(step[0].barrier);
        assert_true(step[1].barrier && step[2].barrier);
    }
}

int test_exec_buffers(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(exec_buffers_that_live_at_once_lie_apart),
        cmocka_unit_test(exec_threads_meet_between_steps_that_clash),
        cmocka_unit_test(exec_threads_meet_seldom_for_a_single_token),
        cmocka_unit_test(exec_threads_meet_around_a_message_of_many_values),
    };

    return TEST_RUN(tests);
}
