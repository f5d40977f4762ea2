/* Devices run hand-made programs: threads meet, values merge along the tree,
 * peers are pulled in any order that events allow, and nothing waits for
 * ever. */
#include "base/err.h"
#include "program_build.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void put(struct device_set *s, struct build *b, int dev, int tensor,
                const float *v, int64_t n)
{
    assert_int_equal(device_write(s, dev, REGION_WORK,
                                  b[dev].tensor[tensor].offset, v,
                                  (size_t)n * sizeof *v, NULL),
                     PL_OK);
}

static void get(struct device_set *s, struct build *b, int dev, int tensor,
                float *v, int64_t n)
{
    assert_int_equal(device_read(s, dev, REGION_WORK,
                                 b[dev].tensor[tensor].offset, v,
                                 (size_t)n * sizeof *v, NULL),
                     PL_OK);
}

static float *floats(int64_t n)
{
    float *v = calloc((size_t)n, sizeof *v);

    assert_non_null(v);
    return v;
}

static float *random_floats(int64_t n, uint64_t *rng)
{
    float *v = floats(n);

    for (int64_t i = 0; i < n; i++)
        v[i] = test_unit(rng);
    return v;
}

/* ---- threads ----------------------------------------------------------- */

/* Reverse reads what other threads wrote one step before. */
static void device_steps_see_what_other_threads_wrote(void **state)
{
    enum { N = 301, STEPS = 200 };

    (void)state;
    for (int n_thread = 1; n_thread <= 4; n_thread++) {
        struct device_set *s = build_set("cpu*1", n_thread, 0);
        struct build *b = build_new(1, N);
        int x = build_tensor(b, 1), y = build_tensor(b, 1);
        struct program *p;
        float v[N];

        for (int i = 0; i < STEPS; i++)
            build_op(b, KERNEL_contiguous, i % 2 ? x : y, i % 2 ? y : x, 1);
        p = build_programs(b, 1);
        LOAD_OK(s, p);
        for (int64_t n = N; n > 290; n--) { /* sizes change, run by run */
            struct device_run run = build_run(n);

            for (int i = 0; i < N; i++)
                v[i] = (float)i;
            put(s, b, 0, x, v, N);
            RUN_OK(s, &run);
            get(s, b, 0, x, v, N);
            for (int i = 0; i < n; i++)
                assert_true(v[i] == (float)(i + STEPS));
            for (int64_t i = n; i < N; i++)
                assert_true(v[i] == (float)i);
        }
        device_set_free(s);
        free(p);
        free(b);
    }
}

static void device_first_thread_is_the_callers(void **state)
{
    struct device_set *s = build_set("cpu*2", 2, 0);
    cpu_set_t before, after;

    (void)state;
    assert_int_equal(s->n_member, 4);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int i = 0; i < 3; i++) {
        struct build *b = build_new(2, 1);
        struct program *p = build_programs(b, 2);
        struct device_run run = build_run(1);

        LOAD_OK(s, p);
        RUN_OK(s, &run);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        RUN_OK(s, &run); /* wakes sleepers */
        free(p);
        free(b);
    }
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after)); /* pinned during runs only */
    device_set_free(s);
}

/* Host tables of a step reach the kernels of every kind. */
static void device_kernels_see_the_batch(void **state)
{
    enum { TOK = 5, W = 4 };
    static const int32_t pos[TOK] = {63, 64, 65, 0, 1};
    static const int32_t seq[TOK] = {0, 0, 0, 1, 1};
    static const int32_t pages[4] = {7, 3, 11, -1};
    static const float page[TOK] = {7, 3, 3, 11, 11};

    (void)state;
    for (int sim = 0; sim < 2; sim++) {
        struct device_set *s = build_set(sim ? "sim" : "cpu*1", 3, 5);
        struct build *b = build_new(1, TOK + 2);
        int x = build_tensor(b, W);
        struct device_run run = build_run(TOK);
        struct program *p;
        float v[TOK * W];

        build_op(b, KERNEL_cast, x, x, 0);
        b->p.n_seq = 3;
        b->p.page_stride = 2;
        p = build_programs(b, 1);
        LOAD_OK(s, p);
        run.batch[0].pos = pos;
        run.batch[0].seq = seq;
        run.batch[0].pages = pages;
        run.batch[0].page_stride = 2;
        run.n_seq = 2;
        RUN_OK(s, &run);
        get(s, b, 0, x, v, TOK * W);
        for (int i = 0; i < TOK; i++) {
            assert_true(v[i * W] == (float)pos[i]);
            assert_true(v[i * W + 1] == (float)seq[i]);
            assert_true(v[i * W + 2] == page[i]);
        }
        device_set_free(s);
        free(p);
        free(b);
    }
}

static void device_quantizing_does_not_depend_on_threads(void **state)
{
    enum { TOK = 3, W = 96, N = TOK * W / 32 };
    uint64_t rng = test_seed();
    float *v = random_floats(TOK * W, &rng);
    struct q8_block want[N], have[N];

    (void)state;
    q8_encode(want, v, TOK * W);
    for (int n_thread = 0; n_thread < 5; n_thread++) {
        struct device_set *s =
            build_set(n_thread ? "cpu*1" : "sim", n_thread, 0);
        struct build *b = build_new(1, TOK);
        int x = build_tensor(b, W), q = build_tensor(b, W);
        struct device_run run = build_run(TOK);
        struct program *p;

        build_op(b, KERNEL_quantize, q, x, 0);
        b->tensor[q].q8 = true; /* 40 bytes a block, where 128 are */
        p = build_programs(b, 1);
        LOAD_OK(s, p);
        put(s, b, 0, x, v, TOK * W);
        RUN_OK(s, &run);
        assert_int_equal(device_read(s, 0, REGION_WORK, b->tensor[q].offset,
                                     have, sizeof have, NULL),
                         PL_OK);
        assert_memory_equal(have, want, sizeof want);
        device_set_free(s);
        free(p);
        free(b);
    }
    free(v);
}

/* ---- merging over shared memory ---------------------------------------- */

/* Every device holds `per` addends [n_tok, W]; all are summed on all. */
static void reduce_case(int n_dev, int n_thread, int per, uint64_t *rng)
{
    enum { W = 700, TOK = 5 }; /* over one block, with a tail */
    int n = n_dev * per;
    char spec[32];
    struct device_set *s;
    struct build *b = build_new(n_dev, TOK);
    struct merge_addend *a = calloc((size_t)n, sizeof *a);
    struct merge_item *item = calloc((size_t)n_dev, sizeof *item);
    struct copy_piece piece = build_rows(0, 0, 0, W * 4, 0, W * 4, W * 4);
    struct program *p;
    float **v = calloc((size_t)n, sizeof *v);
    float *want = floats(W * TOK), *have = floats(W * TOK);
    int depth;

    snprintf(spec, sizeof spec, "cpu*%d", n_dev);
    s = build_set(spec, n_thread, 0);
    assert_true(a && item && v);
    for (int i = 0; i < n; i++)
        a[i] = (struct merge_addend){.dev = i / per, .tensor = i % per};
    depth = build_tree(a, n);
    for (int d = 0; d < n_dev; d++) {
        struct step *st;

        for (int k = 0; k < per; k++)
            build_tensor(&b[d], W);
        item[d] = (struct merge_item){.reduce = true,
                                      .out = build_tensor(&b[d], W),
                                      .n_piece = 1,
                                      .piece = &piece,
                                      .n_addend = n,
                                      .addend = a,
                                      .depth = depth};
        st = build_merge(&b[d], &item[d]);
        st->merge.meet = st->merge.message = true;
        st->merge.message_bytes[0] = build_per_tok(W * 4);
    }
    p = build_programs(b, n_dev);
    LOAD_OK(s, p);
    for (int64_t n_tok = TOK; n_tok >= 1; n_tok -= 2) {
        struct device_run run = build_run(n_tok);
        pl_counters c = {0}, c2 = {0};

        for (int i = 0; i < n; i++) {
            v[i] = random_floats(W * TOK, rng);
            put(s, b, i / per, i % per, v[i], W * TOK);
        }
        build_tree_sum(want, v, n, W * n_tok);
        device_set_counters(s, &c);
        RUN_OK(s, &run);
        device_set_counters(s, &c2);
        assert_int_equal(c2.messages - c.messages, 1);
        assert_int_equal(c2.message_bytes - c.message_bytes, n_tok * W * 4);
        assert_int_equal(c2.steps - c.steps, 1);
        for (int d = 0; d < n_dev; d++) {
            get(s, b, d, per, have, W * TOK);
            assert_memory_equal(have, want, (size_t)(W * n_tok) * 4);
        }
        for (int i = 0; i < n; i++)
            free(v[i]);
    }
    device_set_free(s);
    free(p);
    free(b);
    free(a);
    free(item);
    free(v);
    free(want);
    free(have);
}

static void device_merge_adds_along_the_tree(void **state)
{
    static const int n_dev[] = {1, 2, 3, 5, 8};
    uint64_t rng = test_seed();

    (void)state;
    for (size_t i = 0; i < sizeof n_dev / sizeof n_dev[0]; i++)
        for (int n_thread = 1; n_thread <= 3; n_thread++)
            reduce_case(n_dev[i], n_thread, 1 + (int)i % 2, &rng);
    reduce_case(1, 2, 5, &rng);
    reduce_case(4, 1, 3, &rng);
}

/* AllGather of uneven columns, then each takes its own columns of a sum:
 * pieces with strides, counts by n_tok, empty slices. */
static void device_merge_moves_columns(void **state)
{
    enum { N = 3, TOK = 7, W = 37 };
    static const int64_t width[N] = {20, 0, 17};
    static const int64_t first[N] = {0, 20, 20};
    uint64_t rng = test_seed();

    (void)state;
    for (int n_thread = 1; n_thread <= 3; n_thread++) {
        struct device_set *s = build_set("cpu*3", n_thread, 0);
        struct build *b = build_new(N, TOK);
        struct copy_piece gather[N], scatter[N];
        struct merge_addend a[N] = {{.dev = 0}, {.dev = 1}, {.dev = 2}};
        struct merge_item item[2][N];
        int depth = build_tree(a, N);
        struct program *p;
        struct device_run run;
        float *all, *sum;

        for (int i = 0; i < N; i++) {
            a[i].tensor = 1;
            gather[i] = build_rows(i, 0, 0, width[i] * 4, first[i] * 4, W * 4,
                                   width[i] * 4);
            scatter[i] = build_rows(0, 0, first[i] * 4, W * 4, 0, width[i] * 4,
                                    width[i] * 4);
        }
        for (int d = 0; d < N; d++) {
            struct step *st;

            build_tensor(&b[d], width[d]);
            build_tensor(&b[d], W);
            build_tensor(&b[d], width[d]);
            item[0][d] =
                (struct merge_item){.out = 1, .n_piece = N, .piece = gather};
            item[1][d] = (struct merge_item){.reduce = true,
                                             .out = 2,
                                             .n_piece = 1,
                                             .piece = &scatter[d],
                                             .n_addend = N,
                                             .addend = a,
                                             .depth = depth};
            for (int k = 0; k < 2; k++) {
                st = build_merge(&b[d], &item[k][d]);
                st->merge.meet = true;
            }
        }
        p = build_programs(b, N);
        LOAD_OK(s, p);
        for (int64_t n_tok = TOK; n_tok >= 0; n_tok--) {
            all = random_floats(TOK * W, &rng);
            for (int d = 0; d < N; d++) {
                float *v = floats(TOK * W);

                for (int64_t t = 0; t < n_tok; t++)
                    for (int64_t i = 0; i < width[d]; i++)
                        v[t * width[d] + i] = all[t * W + first[d] + i];
                put(s, b, d, 0, v, n_tok * width[d]);
                free(v);
            }
            run = build_run(n_tok);
            RUN_OK(s, &run);
            sum = floats(TOK * W);
            for (int d = 0; d < N; d++) {
                get(s, b, d, 1, sum, n_tok * W);
                assert_memory_equal(sum, all, (size_t)(n_tok * W) * 4);
                get(s, b, d, 2, sum, n_tok * width[d]);
                for (int64_t t = 0; t < n_tok; t++)
                    for (int64_t i = 0; i < width[d]; i++) {
                        float x = all[t * W + first[d] + i];

                        assert_true(sum[t * width[d] + i] == x + x + x);
                    }
            }
            free(sum);
            free(all);
        }
        device_set_free(s);
        free(p);
        free(b);
    }
}

/* ---- rounds of AllReduce, by meetings or by messages ------------------- */

enum { ROUND_W = 50, ROUND_TOK = 3, ROUNDS = 12 };
enum { T_SUM, T_OWN, T_STAGE };               /* T_STAGE + peer */
enum { E_READY, E_PULLED, E_MERGED, E_KIND }; /* a round */

struct rounds {
    int n;
    struct build *b;
    struct program *p;
    struct copy_piece whole;             /* a local tensor */
    struct copy_piece pull[8];           /* a peer's addend */
    struct merge_addend addend[8][2][8]; /* device, parity */
    struct merge_item item[8][2];
};

static int event_of(int round, int kind)
{
    return round * E_KIND + kind;
}

/* own = sum * factor; sum = all owns. `forget` leaves out one kind of wait: a
 * mistake that must show. */
static void rounds_by_messages(struct rounds *r, int d, int forget)
{
    struct build *b = &r->b[d];

    for (int k = 0; k < 2 + r->n; k++)
        build_tensor(b, ROUND_W);
    for (int k = 0; k < r->n; k++)
        r->addend[d][0][k].tensor = k == d ? T_OWN : T_STAGE + k;
    for (int round = 0; round < ROUNDS; round++) {
        struct step *st;

        if (round > 0) /* but for peers, who are waited for next */
            build_death(b, T_OWN);
        for (int k = 0; k < r->n && round > 0 && forget != 1; k++)
            if (k != d)
                build_wait(b, QUEUE_COMPUTE, k, event_of(round - 1, E_PULLED));
        build_op(b, KERNEL_scale, T_OWN, T_SUM, 0.9f / (float)(r->n + d));
        build_death(b, T_SUM);
        build_post(b, QUEUE_COMPUTE, event_of(round, E_READY));
        if (round > 0 && forget != 2)
            build_wait(b, QUEUE_COPY, d, event_of(round - 1, E_MERGED));
        for (int k = 0; k < r->n; k++) {
            if (k == d)
                continue;
            if (forget != 3)
                build_wait(b, QUEUE_COPY, k, event_of(round, E_READY));
            build_pull(b, T_STAGE + k, &r->pull[k]);
        }
        build_post(b, QUEUE_COPY, event_of(round, E_PULLED));
        if (forget != 4)
            build_wait(b, QUEUE_COMPUTE, d, event_of(round, E_PULLED));
        st = build_merge(b, &r->item[d][0]);
        st->merge.message = true;
        st->merge.message_bytes[0] = build_per_tok(ROUND_W * 4);
        for (int k = 0; k < r->n; k++)
            if (k != d)
                build_death(b, T_STAGE + k);
        build_post(b, QUEUE_COMPUTE, event_of(round, E_MERGED));
    }
}

static void rounds_by_meetings(struct rounds *r, int d)
{
    struct build *b = &r->b[d];

    for (int k = 0; k < 3; k++) /* own has two places: peers read one */
        build_tensor(b, ROUND_W);
    for (int k = 0; k < r->n; k++) {
        r->addend[d][0][k].tensor = T_OWN;
        r->addend[d][1][k].tensor = T_OWN + 1;
        r->addend[d][0][k].dev = r->addend[d][1][k].dev = k;
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct step *st;

        build_op(b, KERNEL_scale, T_OWN + round % 2, T_SUM,
                 0.9f / (float)(r->n + d));
        st = build_merge(b, &r->item[d][round % 2]);
        st->merge.meet = st->merge.message = true;
        st->merge.message_bytes[0] = build_per_tok(ROUND_W * 4);
    }
}

static struct rounds *rounds_new(int n, bool meet, int forget)
{
    struct rounds *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->n = n;
    r->b = build_new(n, ROUND_TOK);
    r->whole = build_rows(0, 0, 0, ROUND_W * 4, 0, ROUND_W * 4, ROUND_W * 4);
    for (int d = 0; d < n; d++) {
        r->pull[d] = r->whole;
        r->pull[d].src_dev = d;
        r->pull[d].src = T_OWN;
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < n; i++)
                r->addend[d][k][i].dev = d;
            r->item[d][k] = (struct merge_item){
                .reduce = true,
                .out = T_SUM,
                .n_piece = 1,
                .piece = &r->whole,
                .n_addend = n,
                .addend = r->addend[d][k],
                .depth = build_tree(r->addend[d][k], n),
            };
        }
        if (meet)
            rounds_by_meetings(r, d);
        else
            rounds_by_messages(r, d, forget);
    }
    r->p = build_programs(r->b, n);
    return r;
}

static void rounds_free(struct rounds *r)
{
    free(r->p);
    free(r->b);
    free(r);
}

/* Runs once; true if every device has the right bits. */
static bool rounds_right(struct rounds *r, struct device_set *s, int64_t n_tok,
                         uint64_t *rng)
{
    int64_t n = n_tok * ROUND_W;
    struct device_run run = build_run(n_tok);
    float *sum = random_floats(n, rng), *have = floats(n), *own[8];
    bool right = true;

    for (int d = 0; d < r->n; d++) {
        own[d] = floats(n);
        put(s, r->b, d, T_SUM, sum, n);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int d = 0; d < r->n; d++)
            for (int64_t i = 0; i < n; i++)
                own[d][i] = sum[i] * (0.9f / (float)(r->n + d));
        build_tree_sum(sum, own, r->n, n);
    }
    RUN_OK(s, &run);
    for (int d = 0; d < r->n; d++) {
        get(s, r->b, d, T_SUM, have, n);
        right = right && memcmp(have, sum, (size_t)n * 4) == 0;
        free(own[d]);
    }
    free(sum);
    free(have);
    return right;
}

static void device_rounds_give_the_same_bits_on_all_kinds(void **state)
{
    static const struct {
        const char *spec;
        int n, n_thread;
        bool meet;
    } cases[] = {
        {"cpu*1", 1, 2, true},        {"cpu*2", 2, 1, true},
        {"cpu*3", 3, 2, true},        {"cpu*4", 4, 3, true},
        {"cpu*8", 8, 1, true},        {"cpu*2", 2, 2, false},
        {"cpu*3", 3, 1, false},       {"sim*1", 1, 0, false},
        {"sim*2", 2, 0, false},       {"sim*3", 3, 0, false},
        {"sim*5", 5, 0, false},       {"cpu*2,sim*2", 4, 2, false},
        {"sim*2,cpu*1", 3, 3, false}, {"cpu*1,sim:1GiB:1GB/s:5us", 2, 1, false},
    };
    uint64_t rng = test_seed();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            struct rounds *r = rounds_new(cases[i].n, cases[i].meet, 0);
            struct device_set *s =
                build_set(cases[i].spec, cases[i].n_thread, seed);

            LOAD_OK(s, r->p);
            for (int64_t n_tok = 0; n_tok <= ROUND_TOK; n_tok++)
                if (!rounds_right(r, s, n_tok, &rng))
                    fail_msg("%s, %d threads, seed %d, %d tokens",
                             cases[i].spec, cases[i].n_thread, (int)seed,
                             (int)n_tok);
            device_set_free(s);
            rounds_free(r);
        }
}

/* Each kind of wait is needed, and sim devices show it soon. */
static void device_sim_shows_a_missing_wait(void **state)
{
    uint64_t rng = test_seed();

    (void)state;
    for (int forget = 1; forget <= 4; forget++) {
        bool right = true;

        for (uint64_t seed = 0; seed < 20 && right; seed++) {
            struct rounds *r = rounds_new(3, false, forget);
            struct device_set *s = build_set("sim*3", 0, seed);

            LOAD_OK(s, r->p);
            right = rounds_right(r, s, ROUND_TOK, &rng);
            device_set_free(s);
            rounds_free(r);
        }
        if (right)
            fail_msg("wait %d is not missed", forget);
    }
}

/* A death noted late must not hurt what has taken the place meanwhile: the
 * copy queue may be ahead of the step that carries it. */
static void device_sim_spares_the_next_tenant(void **state)
{
    enum { W = 8 };
    struct copy_piece piece = build_rows(1, 0, 0, W * 4, 0, W * 4, W * 4);

    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct device_set *s = build_set("sim*2", 0, seed);
        struct build *b = build_new(2, 1);
        struct device_run run = build_run(1);
        struct program *p;
        float v[W] = {1, 2, 3, 4, 5, 6, 7, 8}, out[W];

        for (int t = 0; t < 3; t++)
            build_tensor(&b[0], W);
        build_tensor(&b[1], W);
        build_op(&b[0], KERNEL_scale, 1, 0, 2);
        build_post(&b[0], QUEUE_COMPUTE, 0); /* 0 has been read */
        build_op(&b[0], KERNEL_scale, 2, 1, 2);
        build_death(&b[0], 0);
        build_wait(&b[0], QUEUE_COPY, 0, 0);
        build_pull(&b[0], 0, &piece);
        build_post(&b[0], QUEUE_COPY, 1);
        build_wait(&b[0], QUEUE_COMPUTE, 0, 1);
        build_op(&b[0], KERNEL_scale, 2, 0, 3);
        p = build_programs(b, 2);
        LOAD_OK(s, p);
        put(s, b, 0, 0, v, W);
        put(s, b, 1, 0, v, W);
        RUN_OK(s, &run);
        get(s, b, 0, 2, out, W);
        for (int i = 0; i < W; i++)
            assert_true(out[i] == 3 * v[i]);
        device_set_free(s);
        free(p);
        free(b);
    }
}

/* The order in which steps of sim devices ran, by attr.axis. */
static struct {
    int n, who[1000];
} trace;

static void trace_kernel(const struct cpu_call *c)
{
    if (c->ith == 0 && trace.n < 1000)
        trace.who[trace.n++] = c->attr->axis;
}

static uint64_t trace_of(uint64_t seed)
{
    struct device_set *s = build_set("sim*4", 0, seed);
    struct build *b = build_new(4, 1);
    struct device_run run = build_run(1);
    struct program *p;
    uint64_t hash = 0;

    for (int d = 0; d < 4; d++) {
        build_tensor(&b[d], 1);
        for (int i = 0; i < 20; i++) {
            build_op(&b[d], KERNEL_scale, 0, 0, 0);
            b[d].attr[i].axis = d;
        }
    }
    s->kernels.kernel[KERNEL_scale].run = trace_kernel;
    p = build_programs(b, 4);
    LOAD_OK(s, p);
    trace.n = 0;
    RUN_OK(s, &run);
    assert_int_equal(trace.n, 4 * 20);
    for (int i = 0; i < trace.n; i++)
        hash = hash * 31 + (uint64_t)trace.who[i];
    device_set_free(s);
    free(p);
    free(b);
    return hash;
}

static void device_sim_repeats_its_order_by_seed(void **state)
{
    (void)state;
    assert_true(trace_of(1) == trace_of(1));
    assert_true(trace_of(1) != trace_of(2));
}

/* ---- memory ------------------------------------------------------------ */

static void device_memory_starts_zeroed_or_poisoned(void **state)
{
    static const size_t bytes[REGION_COUNT] = {2000, 3 << 20, 640};

    (void)state;
    for (int sim = 0; sim < 2; sim++) {
        struct device_set *s = build_set(sim ? "sim" : "cpu*1", 2, 0);
        struct build *b = build_new(1, 1);
        struct program *p;

        memcpy(b->p.bytes, bytes, sizeof bytes);
        p = build_programs(b, 1);
        LOAD_OK(s, p);
        for (int r = 0; r < REGION_COUNT; r++) {
            unsigned char *v = malloc(bytes[r]);

            assert_non_null(v);
            assert_int_equal(
                device_read(s, 0, (enum region)r, 0, v, bytes[r], NULL), PL_OK);
            for (size_t i = 0; i < bytes[r]; i++)
                assert_int_equal(v[i], sim ? 0xFF : 0);
            if (sim)
                assert_null(device_map(s, 0, (enum region)r));
            else
                assert_memory_equal(device_map(s, 0, (enum region)r), v,
                                    bytes[r]);
            assert_int_equal(
                device_read(s, 0, (enum region)r, 1, v, bytes[r], NULL),
                PL_BAD_ARGUMENT);
            assert_int_equal(
                device_write(s, 0, (enum region)r, bytes[r] + 1, v, 0, NULL),
                PL_BAD_ARGUMENT);
            free(v);
        }
        device_set_free(s);
        free(p);
        free(b);
    }
}

static void device_sim_poisons_the_dead(void **state)
{
    struct device_set *s = build_set("sim", 0, 1);
    struct build *b = build_new(1, 4);
    int x = build_tensor(b, 3), y = build_tensor(b, 3);
    struct device_run run = build_run(4);
    struct program *p;
    float v[12] = {1, 2, 3};

    (void)state;
    build_op(b, KERNEL_scale, y, x, 2);
    build_death(b, x);
    p = build_programs(b, 1);
    LOAD_OK(s, p);
    put(s, b, 0, x, v, 12);
    RUN_OK(s, &run);
    get(s, b, 0, y, v, 12);
    assert_true(v[2] == 6);
    get(s, b, 0, x, v, 12);
    for (int i = 0; i < 12; i++)
        assert_true(isnan(v[i]));
    device_set_free(s);
    free(p);
    free(b);
}

static void device_memory_limit_is_named(void **state)
{
    struct device_set *s = build_set("sim*1,sim:1GiB", 0, 0);
    struct build *b = build_new(2, 1);
    struct program *p;
    pl_err err;

    (void)state;
    b[0].p.bytes[REGION_WORK] = 64;
    b[1].p.bytes[REGION_WEIGHTS] = (size_t)3 << 30;
    p = build_programs(b, 2);
    assert_int_equal(device_set_load(s, p, &err), PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "sim1 needs 3.00 GiB"));
    assert_non_null(strstr(err.message, "weights 3.00 GiB"));
    assert_non_null(strstr(err.message, "1.00 GiB it has"));
    device_set_free(s);
    free(p);
    free(b);
}

static void device_links_take_their_time(void **state)
{
    struct rounds *r = rounds_new(2, false, 0);
    struct device_set *s = build_set("sim:3ms*2", 0, 0);
    struct device_run run = build_run(1);
    struct timespec t0, t1;

    (void)state;
    LOAD_OK(s, r->p);
    clock_gettime(CLOCK_MONOTONIC, &t0);
    RUN_OK(s, &run);
    clock_gettime(CLOCK_MONOTONIC, &t1);
    assert_true((double)(t1.tv_sec - t0.tv_sec) +
                    1e-9 * (double)(t1.tv_nsec - t0.tv_nsec) >=
                0.003 * ROUNDS);
    device_set_free(s);
    rounds_free(r);
}

/* ---- what is refused, what fails --------------------------------------- */

static void refused(struct build *b, int n, const char *spec, pl_status want,
                    const char *says)
{
    struct device_set *s = build_set(spec, 1, 0);
    struct program *p = build_programs(b, n);
    struct device_run run = build_run(1);
    pl_err err;

    assert_int_equal(device_set_load(s, p, &err), want);
    if (!strstr(err.message, says))
        fail_msg("\"%s\" does not say \"%s\"", err.message, says);
    assert_int_equal(device_set_run(s, &run, &err), PL_BAD_ARGUMENT);
    device_set_free(s);
    free(p);
    free(b);
}

static void device_load_refuses_wrong_programs(void **state)
{
    struct build *b;
    struct step *st;
    struct copy_piece piece = build_rows(1, 0, 0, 16, 0, 16, 16);
    struct merge_item item = {.n_piece = 1, .piece = &piece};

    (void)state;
    b = build_new(2, 2); /* each waits for the other */
    for (int d = 0; d < 2; d++) {
        build_wait(&b[d], QUEUE_COMPUTE, 1 - d, 0);
        build_post(&b[d], QUEUE_COMPUTE, 0);
    }
    refused(b, 2, "cpu*2", PL_BAD_ARGUMENT, "waits for ever");

    b = build_new(2, 2); /* a meeting that one does not attend */
    build_step(&b[0], STEP_MERGE)->merge.meet = true;
    refused(b, 2, "cpu*2", PL_BAD_ARGUMENT, "waits for ever");

    b = build_new(2, 2);
    build_step(&b[0], STEP_MERGE)->merge.meet = true;
    build_step(&b[1], STEP_MERGE)->merge.meet = true;
    refused(b, 2, "cpu*1,sim", PL_BAD_ARGUMENT, "share no memory");

    for (int wide = 0; wide < 2; wide++) { /* a peer's memory, or beyond it */
        b = build_new(2, 2);
        build_tensor(&b[0], 5);
        build_tensor(&b[1], wide ? 3 : 4);
        b[1].p.bytes[REGION_WORK] = wide ? 24 : 64;
        st = build_merge(&b[0], &item);
        st->merge.meet = wide;
        build_step(&b[1], STEP_MERGE)->merge.meet = wide;
        refused(b, 2, "cpu*2", PL_BAD_ARGUMENT,
                wide ? "beyond its source" : "without a meeting");
    }

    b = build_new(1, 2);
    build_tensor(b, 4);
    build_op(b, KERNEL_tanh, 0, 0, 0);
    refused(b, 1, "cpu*1", PL_UNSUPPORTED, "tanh");

    b = build_new(1, 2);
    build_tensor(b, 4);
    build_op(b, KERNEL_scale, 0, 1, 0);
    refused(b, 1, "cpu*1", PL_BAD_ARGUMENT, "step 0: names a tensor");

    b = build_new(1, 2); /* updates what it should write */
    build_tensor(b, 4);
    build_op(b, KERNEL_scale, 0, 0, 0)->kernel.arg[0].access = ACCESS_UPDATE;
    refused(b, 1, "cpu*1", PL_BAD_ARGUMENT, "another way than its kernel");

    b = build_new(1, 2); /* one operand too few; one that it does not have */
    build_tensor(b, 4);
    build_op(b, KERNEL_add, 0, 0, 0);
    refused(b, 1, "cpu*1", PL_BAD_ARGUMENT, "names a tensor");
    b = build_new(1, 2);
    build_tensor(b, 4);
    build_op(b, KERNEL_scale, 0, 0, 0)->kernel.n_arg = 3;
    refused(b, 1, "cpu*1", PL_BAD_ARGUMENT, "another way than its kernel");

    b = build_new(1, 2); /* more than a call takes */
    build_tensor(b, 4);
    build_op(b, KERNEL_concat, 0, 0, 0)->kernel.n_arg = KERNEL_MAX_ARG + 1;
    refused(b, 1, "cpu*1", PL_BAD_ARGUMENT, "too many operands");

    for (int q8 = 0; q8 < 2; q8++) {
        b = build_new(1, 2);
        build_tensor(b, 32);
        b->tensor[0].q8 = q8;
        build_op(b, q8 ? KERNEL_scale : KERNEL_quantize, 0, 0, 0);
        refused(b, 1, "cpu*1", PL_BAD_ARGUMENT, "blocks of 8-bit values");
    }
}

static void device_failure_reaches_everybody(void **state)
{
    static const struct {
        const char *spec;
        int n, n_thread;
        bool meet;
    } cases[] = {
        {"cpu*3", 3, 2, true},
        {"cpu*2", 2, 3, false},
        {"sim*3", 3, 0, false},
        {"cpu*1,sim*2", 3, 2, false},
    };
    uint64_t rng = test_seed();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rounds *r = rounds_new(cases[i].n, cases[i].meet, 0);
        struct device_set *s = build_set(cases[i].spec, cases[i].n_thread, i);
        struct device_run run = build_run(1);

        LOAD_OK(s, r->p);
        for (int d = 0; d < cases[i].n; d++)
            for (int step = 0; step < r->p[d].script[0].n_step; step += 5) {
                pl_err err;

                s->dev[d].fail_step = step;
                assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
                assert_non_null(strstr(err.message, s->dev[d].desc.name));
                s->dev[d].fail_step = -1;
                assert_true(rounds_right(r, s, 2, &rng));
            }
        device_set_free(s);
        rounds_free(r);
    }
}

static void device_run_refuses_other_sizes(void **state)
{
    struct device_set *s = build_set("cpu*1,sim", 1, 0);
    struct build *b = build_new(2, 4);
    struct program *p = build_programs(b, 2);
    struct device_run run = build_run(5);
    int32_t page = 0;
    pl_err err;

    (void)state;
    LOAD_OK(s, p);
    assert_int_equal(device_set_run(s, &run, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "5 tokens"));
    run = build_run(4);
    RUN_OK(s, &run);
    run.batch[0].pages = &page;
    run.batch[0].page_stride = 1;
    run.n_seq = 1;
    assert_int_equal(device_set_run(s, &run, &err), PL_BAD_ARGUMENT);
    device_set_free(s);
    free(p);
    free(b);
}

static void device_counts_macs_by_rank(void **state)
{
    static const struct kernel_cost cost[2] = {{0, 7}, {63, 9}};

    (void)state;
    for (int sim = 0; sim < 2; sim++) {
        struct device_set *s = build_set(sim ? "sim" : "cpu*1", 3, 0);
        struct build *b = build_new(1, 4);
        int x = build_tensor(b, 4);
        struct step *st = build_op(b, KERNEL_scale, x, x, 1);
        struct device_run run = build_run(3);
        struct program *p;
        pl_counters c = {0};

        st->kernel.n_cost = 2;
        st->kernel.cost = cost;
        p = build_programs(b, 1);
        LOAD_OK(s, p);
        RUN_OK(s, &run);
        RUN_OK(s, &run);
        device_set_counters(s, &c);
        assert_int_equal(c.macs[0], 2 * 3 * 7);
        assert_int_equal(c.macs[63], 2 * 3 * 9);
        assert_int_equal(c.macs[1], 0);
        device_set_free(s);
        free(p);
        free(b);
    }
}

/* Creating and loading with the n-th allocation failing. */
static void device_allocation_failure_is_a_status(void **state)
{
    struct rounds *r = rounds_new(3, false, 0);
    struct device_options opt = {.family = CPU_GENERIC};
    struct device_list l;

    (void)state;
    assert_int_equal(device_parse(&l, "cpu*2,sim", 2, NULL), PL_OK);
    build_survives(&l, &opt, r->p);
    device_list_free(&l);
    rounds_free(r);
}

int test_device_run(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_first_thread_is_the_callers), /* before runs */
        cmocka_unit_test(device_steps_see_what_other_threads_wrote),
        cmocka_unit_test(device_kernels_see_the_batch),
        cmocka_unit_test(device_quantizing_does_not_depend_on_threads),
        cmocka_unit_test(device_merge_adds_along_the_tree),
        cmocka_unit_test(device_merge_moves_columns),
        cmocka_unit_test(device_rounds_give_the_same_bits_on_all_kinds),
        cmocka_unit_test(device_sim_shows_a_missing_wait),
        cmocka_unit_test(device_sim_spares_the_next_tenant),
        cmocka_unit_test(device_sim_repeats_its_order_by_seed),
        cmocka_unit_test(device_memory_starts_zeroed_or_poisoned),
        cmocka_unit_test(device_sim_poisons_the_dead),
        cmocka_unit_test(device_memory_limit_is_named),
        cmocka_unit_test(device_links_take_their_time),
        cmocka_unit_test(device_load_refuses_wrong_programs),
        cmocka_unit_test(device_failure_reaches_everybody),
        cmocka_unit_test(device_run_refuses_other_sizes),
        cmocka_unit_test(device_counts_macs_by_rank),
        cmocka_unit_test(device_allocation_failure_is_a_status),
    };

    return TEST_RUN(tests);
}
