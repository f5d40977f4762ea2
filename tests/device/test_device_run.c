/* Devices run hand-made programs correctly: barriers between threads, merges
 * along the tree, transfers to peers in any order that events allow. No wait is
 * endless. */
#include "base/err.h"
#include "lib/fake_cuda_use.h"
#include "lib/own_clock.h"
#include "lib/program_build.h"

#include "device/cpu/cpu_device.h"
#include "device/device_ops.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The first N_TOY kinds of device have the toys' kernels, the GPUs after them
 * have their own. */
static const char *const one_of_each[] = {"cpu*1", "sim", "proc*1", "emu",
                                          "bare"};
enum { N_KIND = sizeof one_of_each / sizeof one_of_each[0], N_TOY = 3 };

static float *floats(int64_t n)
{
    float *v = test_need((size_t)n, sizeof *v);

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

/* The first case, so that no step before it has pinned the threads. */
TEST(device_first_thread_is_the_callers)
{
    struct device_set *s = build_set("cpu*2", 2, 0);
    struct arena a = {0};
    struct program *p = build_text(
        &a, "programs 2\nmax n_tok 1\ndevice 0\ndevice 1\nvariant\n", 2);
    cpu_set_t before, after;

    assert_int_equal(((const struct cpu_backend *)s->backend[0].own)->n_thread,
                     4);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int i = 0; i < 3; i++) {
        struct device_run run = build_run(1);

        LOAD_OK(s, p);
        RUN_OK(s, &run);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        RUN_OK(s, &run); /* wakes threads that have gone to sleep */
    }
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    /* the caller's thread is bound to a core only during steps */
    assert_true(CPU_EQUAL(&before, &after));
    device_set_free(s);
    arena_fini(&a);
}

/* The kernel `reverse` reads what other threads wrote in the instruction before
 * it. */
TEST(device_steps_see_what_other_threads_wrote)
{
    enum { N = 301, STEPS = 200 };

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
        /* number of tokens, which changes from step to step */
        for (int64_t n = N; n > 290; n--) {
            struct device_run run = build_run(n);

            for (int i = 0; i < N; i++)
                v[i] = (float)i;
            build_put(s, 0, x, v, N);
            RUN_OK(s, &run);
            build_get(s, 0, x, v, N);
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

/* A step's token table reaches the kernels of every backend. */
TEST(device_kernels_see_the_token_table)
{
    enum { TOK = 5, W = 4 };
    static const int32_t pos[TOK] = {63, 64, 65, 0, 1};
    static const int32_t seq[TOK] = {0, 0, 0, 1, 1};
    static const int32_t pages[4] = {7, 3, 11, -1};
    static const float page[TOK] = {7, 3, 3, 11, 11};
    const struct token_table b = {TOK, 0, pos, seq, pages, 2};

    for (int k = 0; k < N_TOY; k++) {
        struct device_set *s = build_set(one_of_each[k], 3, 5);
        struct device_run run = build_run(TOK);
        struct arena a = {0};
        struct program *p = build_text(&a,
                                       "programs 1\n"
                                       "max n_tok 7 n_slot 64 n_seq 3 "
                                       "page_stride 2\n"
                                       "device 0\n"
                                       "  %0: f32[n_slot, 1, 4]\n"
                                       "  %1: i32[20]\n"
                                       "variant\n"
                                       "  0: %0 = cache_write(%0, %1)\n",
                                       1);
        float v[TOK * W];

        LOAD_OK(s, p);
        build_put_token_table(s, 0, 1, &b, 2);
        run.sizes[0].n_seq = 2;
        run.sizes[0].n_slot[0] = 64;
        RUN_OK(s, &run);
        build_get(s, 0, 0, v, TOK * W);
        for (int i = 0; i < TOK; i++) {
            assert_true(v[i * W] == (float)pos[i]);
            assert_true(v[i * W + 1] == (float)seq[i]);
            assert_true(v[i * W + 2] == page[i]);
        }
        device_set_free(s);
        arena_fini(&a);
    }
}

TEST(device_quantizing_does_not_depend_on_threads)
{
    enum { TOK = 3, W = 96, N = TOK * W / 32 };
    uint64_t rng = test_seed();
    float *v = random_floats(TOK * W, &rng);
    struct q8_block want[N], have[N];

    q8_encode(want, v, TOK * W, 32);
    for (int n_thread = 0; n_thread < 5; n_thread++) {
        struct device_set *s =
            build_set(n_thread ? "cpu*1" : "sim", n_thread, 0);
        struct device_run run = build_run(TOK);
        struct arena a = {0};
        struct program *p = build_text(&a,
                                       "programs 1\n"
                                       "max n_tok 3\n"
                                       "device 0\n"
                                       "  %0: f32[n_tok, 96]\n"
                                       "  %1: f32[n_tok, 96] q8\n"
                                       "variant\n"
                                       "  0: %1 = quantize(%0)\n",
                                       1);

        LOAD_OK(s, p);
        build_put(s, 0, 0, v, TOK * W);
        RUN_OK(s, &run);
        assert_int_equal(device_read(s, 0, REGION_WORK, p->tensor[1].offset,
                                     have, sizeof have, NULL),
                         PL_OK);
        assert_memory_equal(have, want, sizeof want);
        device_set_free(s);
        arena_fini(&a);
    }
    free(v);
}

/* Runs `text`, whose tensors 0 .. n - 1 are f32[n_tok, 512] and whose two
 * weights f32[512, 512] follow. out: all of the former, one after another. */
static void run_products(const char *text, int n, int n_thread, int n_tok,
                         const float *w, const float *x, float *out)
{
    enum { N = 512 };
    struct cpu_kernels k;
    const struct device_options opt = {.kernels = &k};
    struct device_set *s;
    struct device_run run = build_run(n_tok);
    struct arena a = {0};
    struct program *p = build_text(&a, text, 1);

    cpu_kernels_init(&k, KERNEL_SET_GENERIC);
    s = build_set_as("cpu*1", n_thread, &opt);
    LOAD_OK(s, p);
    for (int i = 0; i < 2; i++)
        assert_int_equal(device_write(s, 0, REGION_WEIGHTS,
                                      p->tensor[n + i].offset, w + i * N * N,
                                      sizeof(float[N * N]), NULL),
                         PL_OK);
    for (int r = 0; r < 2; r++) {
        build_put(s, 0, 0, x, n_tok * N);
        for (int t = 1; t < n; t++) /* tensor 0 is the result */
            build_put(s, 0, t, w, n_tok * N);
        RUN_OK(s, &run);
    }
    for (int t = 0; t < n; t++)
        build_get(s, 0, t, out + t * n_tok * N, n_tok * N);
    device_set_free(s);
    arena_fini(&a);
}

/* Threads help each other anew after each barrier, for any number of
 * instructions. Work stolen in one stretch is not missing in another. */
TEST(device_threads_help_in_every_stretch)
{
    enum { N = 512, TENSORS = 7, MAX = 20 };
    static const char text[] = "programs 1\n"
                               "max n_tok 20\n"
                               "device 0\n"
                               "  %0: f32[n_tok, 512]\n"
                               "  %1: f32[n_tok, 512]\n"
                               "  %2: f32[n_tok, 512]\n"
                               "  %3: f32[n_tok, 512]\n"
                               "  %4: f32[n_tok, 512]\n"
                               "  %5: f32[n_tok, 512]\n"
                               "  %6: f32[n_tok, 512]\n"
                               "  %7: f32[512, 512] weights packed\n"
                               "  %8: f32[512, 512] weights packed\n"
                               "variant\n"
                               "  0: %1 = matmul(%0, %7, -)\n"
                               "  0: %2 = matmul(%0, %8, -)\n"
                               "  0: %3 = matmul(%1, %7, -)\n"
                               "  0: %4 = matmul(%2, %8, -)\n"
                               "  0: %5 = matmul(%3, %7, -)\n"
                               "  0: %0 = matmul(%4, %8, -)\n"
                               "  0: %1 = matmul(%5, %7, -)\n"
                               "  0: %2 = matmul(%5, %8, -)\n"
                               "  0: %3 = matmul(%0, %7, -)\n"
                               "  0: %4 = matmul(%0, %8, -)\n"
                               "  0: %6 = matmul(%5, %8, -)\n"
                               "  0: %6 = matmul(%1, %7, -)\n";
    uint64_t rng = test_seed();
    float *w = random_floats(2 * N * N, &rng);
    float *x = random_floats(MAX * N, &rng);
    float *want = floats(TENSORS * MAX * N), *have = floats(TENSORS * MAX * N);

    for (int i = 0; i < 2 * N * N; i++)
        w[i] /= 16;
    for (int n_tok = 1; n_tok <= MAX; n_tok += n_tok < 3 ? 1 : 17) {
        run_products(text, TENSORS, 1, n_tok, w, x, want);
        for (int n_thread = 2; n_thread <= 6; n_thread++) {
            run_products(text, TENSORS, n_thread, n_tok, w, x, have);
            assert_memory_equal(have, want,
                                (size_t)n_tok * sizeof(float[TENSORS * N]));
        }
    }
    free(w);
    free(x);
    free(want);
    free(have);
}

/* ---- merging over shared memory ---------------------------------------- */

/* Every device has `per` addends [n_tok, W]; all are summed on all. */
static void reduce_case(int n_dev, int n_thread, int per, uint64_t *rng)
{
    /* more values than one block of the merge, with a rest */
    enum { W = 700, TOK = 5 };
    int n = n_dev * per;
    char spec[32];
    struct device_set *s;
    struct build *b = build_new(n_dev, TOK);
    struct merge_addend *a = calloc((size_t)n, sizeof *a);
    struct merge_item *item = calloc((size_t)n_dev, sizeof *item);
    struct copy_desc piece = build_rows(0, 0, 0, W * 4, 0, W * 4, W * 4);
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
        struct insn *st;

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
        st->merge.barrier = st->merge.collective = true;
        st->merge.collective_bytes[0] = build_per_tok(W * 4);
    }
    p = build_programs(b, n_dev);
    LOAD_OK(s, p);
    for (int64_t n_tok = TOK; n_tok >= 1; n_tok -= 2) {
        struct device_run run = build_run(n_tok);
        pl_counters c = {0}, c2 = {0};

        for (int i = 0; i < n; i++) {
            v[i] = random_floats(W * TOK, rng);
            build_put(s, i / per, i % per, v[i], W * TOK);
        }
        build_tree_sum(want, v, n, W * n_tok);
        device_set_counters(s, &c);
        RUN_OK(s, &run);
        device_set_counters(s, &c2);
        assert_int_equal(c2.messages - c.messages, 1);
        assert_int_equal(c2.message_bytes - c.message_bytes, n_tok * W * 4);
        assert_int_equal(c2.steps - c.steps, 1);
        for (int d = 0; d < n_dev; d++) {
            build_get(s, d, per, have, W * TOK);
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

TEST(device_merge_adds_along_the_tree)
{
    static const int n_dev[] = {1, 2, 3, 5, 8};
    uint64_t rng = test_seed();

    for (size_t i = 0; i < sizeof n_dev / sizeof n_dev[0]; i++)
        for (int n_thread = 1; n_thread <= 3; n_thread++)
            reduce_case(n_dev[i], n_thread, 1 + (int)i % 2, &rng);
    reduce_case(1, 2, 5, &rng);
    reduce_case(4, 1, 3, &rng);
}

/* AllGather of uneven columns, then each takes its own columns of a sum: copy
 * descriptors with strides, counts by n_tok, empty slices. */
static const char columns[] =
    "programs 3\n"
    "max n_tok 7\n"
    "device 0\n"
    "  %0: f32[n_tok, 20]\n"
    "  %1: f32[n_tok, 37]\n"
    "  %2: f32[n_tok, 20]\n"
    "device 1\n"
    "  %0: f32[n_tok, 0]\n"
    "  %1: f32[n_tok, 37]\n"
    "  %2: f32[n_tok, 0]\n"
    "device 2\n"
    "  %0: f32[n_tok, 17]\n"
    "  %1: f32[n_tok, 37]\n"
    "  %2: f32[n_tok, 17]\n"
    "variant\n"
    "  0, 1, 2: merge barrier; %1 <- 0.%0 80 x n_tok(80, 148),\n"
    "      1.%0 0 x n_tok(0, 148) to 80, 2.%0 68 x n_tok(68, 148) to 80\n"
    "  0: merge barrier 0, 1, 2;\n"
    "      %2 <- sum(0.%1, 1.%1+, 2.%1+) 80 x n_tok(148, 80)\n"
    "  1: merge barrier 0, 1, 2;\n"
    "      %2 <- sum(0.%1, 1.%1+, 2.%1+) @80 0 x n_tok(148, 0)\n"
    "  2: merge barrier 0, 1, 2;\n"
    "      %2 <- sum(0.%1, 1.%1+, 2.%1+) @80 68 x n_tok(148, 68)\n";

static void columns_case(struct device_set *s, int64_t n_tok, uint64_t *rng)
{
    enum { N = 3, W = 37 };
    static const int64_t width[N] = {20, 0, 17}, first[N] = {0, 20, 20};
    struct device_run run = build_run(n_tok);
    float *all = random_floats(7 * W, rng), *v = floats(7 * W);

    for (int d = 0; d < N; d++) {
        for (int64_t t = 0; t < n_tok; t++)
            for (int64_t i = 0; i < width[d]; i++)
                v[t * width[d] + i] = all[t * W + first[d] + i];
        build_put(s, d, 0, v, n_tok * width[d]);
    }
    RUN_OK(s, &run);
    for (int d = 0; d < N; d++) {
        build_get(s, d, 1, v, n_tok * W);
        assert_memory_equal(v, all, (size_t)(n_tok * W) * 4);
        build_get(s, d, 2, v, n_tok * width[d]);
        for (int64_t t = 0; t < n_tok; t++)
            for (int64_t i = 0; i < width[d]; i++) {
                float x = all[t * W + first[d] + i];

                assert_true(v[t * width[d] + i] == x + x + x);
            }
    }
    free(all);
    free(v);
}

TEST(device_merge_moves_columns)
{
    uint64_t rng = test_seed();

    for (int n_thread = 1; n_thread <= 3; n_thread++) {
        struct device_set *s = build_set("cpu*3", n_thread, 0);
        struct arena a = {0};

        LOAD_OK(s, build_text(&a, columns, 3));
        for (int64_t n_tok = 7; n_tok >= 0; n_tok--)
            columns_case(s, n_tok, &rng);
        device_set_free(s);
        arena_fini(&a);
    }
}

/* ---- rounds of AllReduce, by barriers or by collectives ---------------- */

enum { ROUND_W = 50, ROUND_TOK = 3, ROUNDS = 12 };
/* tensors; T_STAGE + i receives the addend of peer i */
enum { T_SUM, T_OWN, T_STAGE };
enum { E_READY, E_MOVED, E_MERGED, E_KIND }; /* events of each round */
/* Devices use barriers, push into each other's inboxes, or pull from memory
 * that all may read. */
enum transport { MEET, PUSH, PULL };
/* Mistakes that the programs may contain; each must change a result. */
enum mistake { NO_MISTAKE, TAKEN_INBOX, EARLY_READY, NOT_AWAITED, EARLY_MOVED };

struct rounds {
    int n;
    struct build *b;
    struct program *p;
    struct copy_desc whole;    /* copy of a whole tensor on the same device */
    struct copy_desc piece[8]; /* [device] copy of that device's addend */
    struct push_to to[8][8];   /* [source][destination] of pushes */
    /* [device][round % 2][rank] addends of its merge */
    struct merge_addend addend[8][2][8];
    struct merge_item item[8][2];
};

static int event_of(int round, int kind)
{
    return round * E_KIND + kind;
}

/* Waits for one kind of event of all peers of d. */
static void await_peers(struct rounds *r, int d, enum queue q, int round,
                        int kind)
{
    for (int k = 0; k < r->n && round >= 0; k++)
        if (k != d)
            build_wait(&r->b[d], q, k, event_of(round, kind));
}

/* Appends the copy queue's part of a round: the device's own values are pushed
 * to all inboxes, once the inboxes' owners have merged the values of the round
 * before. */
static void push_round(struct rounds *r, int d, int round, enum mistake m)
{
    struct build *b = &r->b[d];

    build_wait(b, QUEUE_COPY, d, event_of(round, E_READY));
    if (m != TAKEN_INBOX)
        await_peers(r, d, QUEUE_COPY, round - 1, E_MERGED);
    if (m == EARLY_MOVED)
        build_post(b, QUEUE_COPY, event_of(round, E_MOVED));
    for (int k = 0; k < r->n; k++)
        if (k != d) {
            struct insn *st = build_insn(b, INSN_PUSH);

            r->to[d][k] = (struct push_to){k, T_STAGE + d, 0};
            st->queue = QUEUE_COPY;
            st->push = (struct insn_push){
                .n_to = 1,
                .to = &r->to[d][k],
                .n_piece = 1,
                .piece = &r->piece[d],
            };
        }
    if (m != EARLY_MOVED)
        build_post(b, QUEUE_COPY, event_of(round, E_MOVED));
}

/* A round with pulls: each device reads the addends of the others. */
static void pull_round(struct rounds *r, int d, int round)
{
    struct build *b = &r->b[d];

    if (round > 0)
        build_wait(b, QUEUE_COPY, d, event_of(round - 1, E_MERGED));
    for (int k = 0; k < r->n; k++)
        if (k != d) {
            build_wait(b, QUEUE_COPY, k, event_of(round, E_READY));
            build_pull(b, T_STAGE + k, &r->piece[k]);
        }
    build_post(b, QUEUE_COPY, event_of(round, E_MOVED));
}

/* Appends ROUNDS rounds to device d's program, in which devices push or pull.
 * In each round a device's values become the last sum times a factor, and the
 * new sum is that of all devices' values. */
static void rounds_by_messages(struct rounds *r, int d, enum transport by,
                               enum mistake m)
{
    struct build *b = &r->b[d];

    build_tensor(b, ROUND_W);
    build_tensor(b, ROUND_W);
    for (int k = 0; k < r->n; k++) {
        if (by == PUSH)
            build_mail(b, ROUND_W);
        else
            build_tensor(b, ROUND_W);
        r->addend[d][0][k].tensor = k == d ? T_OWN : T_STAGE + k;
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct insn *st;

        /* the values are dead after a round; where peers pull them, the next
         * instruction waits for the peers */
        if (round > 0)
            build_death(b, T_OWN);
        if (by == PULL)
            await_peers(r, d, QUEUE_COMPUTE, round - 1, E_MOVED);
        if (m == EARLY_READY)
            build_post(b, QUEUE_COMPUTE, event_of(round, E_READY));
        build_op(b, KERNEL_scale, T_OWN, T_SUM, 0.9f / (float)(r->n + d));
        build_death(b, T_SUM);
        if (m != EARLY_READY)
            build_post(b, QUEUE_COMPUTE, event_of(round, E_READY));
        if (by == PULL)
            pull_round(r, d, round);
        else
            push_round(r, d, round, m);
        build_wait(b, QUEUE_COMPUTE, d, event_of(round, E_MOVED));
        if (by == PUSH && m != NOT_AWAITED)
            await_peers(r, d, QUEUE_COMPUTE, round, E_MOVED);
        st = build_merge(b, &r->item[d][0]);
        st->merge.collective = true;
        st->merge.collective_bytes[0] = build_per_tok(ROUND_W * 4);
        for (int k = 0; k < r->n && by == PULL; k++)
            if (k != d)
                build_death(b, T_STAGE + k);
        build_post(b, QUEUE_COMPUTE, event_of(round, E_MERGED));
    }
}

static void rounds_by_meetings(struct rounds *r, int d)
{
    struct build *b = &r->b[d];

    /* two buffers for the device's values, because peers read one while the
     * other is written */
    for (int k = 0; k < 3; k++)
        build_tensor(b, ROUND_W);
    for (int k = 0; k < r->n; k++) {
        r->addend[d][0][k].tensor = T_OWN;
        r->addend[d][1][k].tensor = T_OWN + 1;
        r->addend[d][0][k].dev = r->addend[d][1][k].dev = k;
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct insn *st;

        build_op(b, KERNEL_scale, T_OWN + round % 2, T_SUM,
                 0.9f / (float)(r->n + d));
        st = build_merge(b, &r->item[d][round % 2]);
        st->merge.barrier = st->merge.collective = true;
        st->merge.collective_bytes[0] = build_per_tok(ROUND_W * 4);
    }
}

static struct rounds *rounds_new(int n, enum transport by, enum mistake m)
{
    struct rounds *r = test_need(1, sizeof *r);

    r->n = n;
    r->b = build_new(n, ROUND_TOK);
    r->whole = build_rows(0, 0, 0, ROUND_W * 4, 0, ROUND_W * 4, ROUND_W * 4);
    for (int d = 0; d < n; d++) {
        r->piece[d] = r->whole;
        r->piece[d].src_dev = d;
        r->piece[d].src = T_OWN;
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
        if (by == MEET)
            rounds_by_meetings(r, d);
        else
            rounds_by_messages(r, d, by, m);
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

/* Runs one step. Returns true if every device has the right bits. */
static bool rounds_right(struct rounds *r, struct device_set *s, int64_t n_tok,
                         uint64_t *rng)
{
    int64_t n = n_tok * ROUND_W;
    struct device_run run = build_run(n_tok);
    float *sum = random_floats(n, rng), *have = floats(n), *own[8];
    bool right = true;

    for (int d = 0; d < r->n; d++) {
        own[d] = floats(n);
        build_put(s, d, T_SUM, sum, n);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int d = 0; d < r->n; d++)
            for (int64_t i = 0; i < n; i++)
                own[d][i] = sum[i] * (0.9f / (float)(r->n + d));
        build_tree_sum(sum, own, r->n, n);
    }
    RUN_OK(s, &run);
    for (int d = 0; d < r->n; d++) {
        build_get(s, d, T_SUM, have, n);
        right = right && memcmp(have, sum, (size_t)n * 4) == 0;
        free(own[d]);
    }
    free(sum);
    free(have);
    return right;
}

TEST(device_rounds_give_the_same_bits_on_all_kinds)
{
    static const struct {
        const char *spec;
        int n, n_thread;
        enum transport by;
    } cases[] = {
        {"cpu*1", 1, 2, MEET},
        {"cpu*2", 2, 1, MEET},
        {"cpu*3", 3, 2, MEET},
        {"cpu*4", 4, 3, MEET},
        {"cpu*8", 8, 1, MEET},
        {"cpu*2", 2, 2, PULL},
        {"cpu*3", 3, 1, PULL},
        {"cpu*2", 2, 2, PUSH},
        {"cpu*3", 3, 1, PUSH},
        {"sim*1", 1, 0, PUSH},
        {"sim*2", 2, 0, PUSH},
        {"sim*3", 3, 0, PUSH},
        {"sim*5", 5, 0, PUSH},
        {"cpu*2,sim*2", 4, 2, PUSH},
        {"sim*2,cpu*1", 3, 3, PUSH},
        {"cpu*1,sim:1GiB:1GB/s:5us", 2, 1, PUSH},
        {"proc*1", 1, 2, PUSH},
        {"proc*2", 2, 1, PUSH},
        {"proc*3", 3, 2, PUSH},
        {"cpu*1,proc*1", 2, 2, PUSH},
        {"sim,proc*1", 2, 1, PUSH},
        {"cpu*1,sim,proc*1", 3, 1, PUSH},
        {"emu*1", 1, 0, PUSH},
        {"emu*2", 2, 0, PUSH},
        {"emu*3", 3, 0, PUSH},
        {"cpu*1,emu*2", 3, 2, PUSH},
        {"emu,sim,proc*1", 3, 1, PUSH},
        {"bare*3", 3, 0, PUSH},
        {"emu,bare,cpu*1", 3, 1, PUSH},
    };
    const uint64_t n_seed = test_long() ? 5 : 2;
    uint64_t rng = test_seed();

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint64_t seed = 0; seed < n_seed; seed++) {
            struct rounds *r = rounds_new(cases[i].n, cases[i].by, NO_MISTAKE);
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

/* Returns a set whose sim devices run their two queues as one. */
static struct device_set *set_merged(const char *spec, int n_thread,
                                     uint64_t seed)
{
    const struct device_options opt = {
        .kernel_set = KERNEL_SET_GENERIC, .sim_seed = seed, .sim_merge = true};

    return build_set_as(spec, n_thread, &opt);
}

/* Hardware may run the queues as one. Dead buffers are poisoned there too. */
TEST(device_rounds_do_not_need_two_queues)
{
    static const struct {
        const char *spec;
        int n, n_thread;
    } cases[] = {{"sim*2", 2, 0},
                 {"sim*5", 5, 0},
                 {"cpu*2,sim*2", 4, 2},
                 {"sim:1GB/s:5us*3", 3, 0}};
    uint64_t rng = test_seed();

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (uint64_t seed = 0; seed < 5; seed++) {
            struct rounds *r = rounds_new(cases[i].n, PUSH, NO_MISTAKE);
            struct device_set *s =
                set_merged(cases[i].spec, cases[i].n_thread, seed);

            LOAD_OK(s, r->p);
            for (int64_t n_tok = 0; n_tok <= ROUND_TOK; n_tok++)
                if (!rounds_right(r, s, n_tok, &rng))
                    fail_msg("%s, seed %d, %d tokens", cases[i].spec, (int)seed,
                             (int)n_tok);
            device_set_free(s);
            rounds_free(r);
        }
}

/* Each dependency is needed, and sim devices show that soon. The check of
 * programs covers waits for the device's own events. */
TEST(device_sim_shows_a_missing_wait)
{
    uint64_t rng = test_seed();

    for (int m = TAKEN_INBOX; m <= EARLY_MOVED; m++) {
        bool right = true;

        for (uint64_t seed = 0; seed < 20 && right; seed++) {
            struct rounds *r = rounds_new(3, PUSH, (enum mistake)m);
            struct device_set *s = build_set("sim*3", 0, seed);

            LOAD_OK(s, r->p);
            right = rounds_right(r, s, ROUND_TOK, &rng);
            device_set_free(s);
            rounds_free(r);
        }
        if (right)
            fail_msg("mistake %d does not show", m);
    }
}

/* A DEAD range that is recorded late must not damage the buffer's next value:
 * the copy queue may be ahead of the instruction that carries it. */
TEST(device_sim_spares_the_next_tenant)
{
    enum { W = 8 };

    for (uint64_t seed = 0; seed < 80; seed++) {
        struct device_set *s = seed % 2 ? build_set("sim,cpu*1", 0, seed)
                                        : set_merged("sim,cpu*1", 0, seed);
        struct device_run run = build_run(1);
        struct arena a = {0};
        float v[W] = {1, 2, 3, 4, 5, 6, 7, 8}, out[W];

        LOAD_OK(s, build_text(&a,
                              "programs 2\n"
                              "max n_tok 1\n"
                              "device 0\n"
                              "  %0: f32[n_tok, 8]\n"
                              "  %1: f32[n_tok, 8]\n"
                              "  %2: f32[n_tok, 8]\n"
                              "device 1\n"
                              "  %0: f32[n_tok, 8]\n"
                              "variant\n"
                              "  0: %1 = scale(%0) scale=2\n"
                              "  0: post 0 # %0 has been read\n"
                              "  0: %2 = scale(%1) scale=2\n"
                              "  0: dies %0\n"
                              "  0 copy: wait 0.0\n"
                              "  0 copy: pull %0 <- 1.%0 32\n"
                              "  0 copy: post 1\n"
                              "  0: wait 0.1\n"
                              "  0: %2 = scale(%0) scale=3\n",
                              2));
        build_put(s, 0, 0, v, W);
        build_put(s, 1, 0, v, W);
        RUN_OK(s, &run);
        build_get(s, 0, 2, out, W);
        for (int i = 0; i < W; i++)
            assert_true(out[i] == 3 * v[i]);
        device_set_free(s);
        arena_fini(&a);
    }
}

/* The order in which instructions of sim devices ran, by attr.axis. */
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
    struct cpu_kernels kernels = *build_toys();
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .kernels = &kernels,
                                 .sim_seed = seed};
    struct build *b = build_new(4, 1);
    struct device_run run = build_run(1);
    struct device_list l;
    struct device_set *s;
    struct program *p;
    uint64_t hash = 0;

    kernels.kernel[KERNEL_scale].run = trace_kernel;
    assert_int_equal(device_parse(&l, "sim*4", 0, NULL), PL_OK);
    s = build_set_of(&l, &opt);
    device_list_free(&l);

    for (int d = 0; d < 4; d++) {
        build_tensor(&b[d], 1);
        for (int i = 0; i < 20; i++) {
            build_op(&b[d], KERNEL_scale, 0, 0, 0);
            b[d].attr[i].axis = d;
        }
    }
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

TEST(device_sim_repeats_its_order_by_seed)
{
    assert_true(trace_of(1) == trace_of(1));
    assert_true(trace_of(1) != trace_of(2));
}

/* ---- memory ------------------------------------------------------------ */

TEST(device_memory_starts_zeroed_or_poisoned)
{
    static const size_t bytes[REGION_COUNT] = {2000, 3 << 20, 640, 320};

    static const struct {
        const char *spec;
        /* own: the device has memory of its own, which is filled with ones, and
         * not host memory, which is zero; poisoned: so has the inbox */
        bool own, poisoned;
    } kinds[] = {
        {"cpu*1", false, false}, {"sim", true, true}, {"emu", true, false}};

    for (int k = 0; k < 3; k++) {
        struct device_set *s = build_set(kinds[k].spec, 2, 0);
        bool own = kinds[k].own;
        struct arena a = {0};

        LOAD_OK(s, build_text(&a,
                              "programs 1\ndevice 0 weights 2000 cache 3145728 "
                              "work 640 inbox 320\nvariant\n",
                              1));
        for (int r = 0; r < REGION_COUNT; r++) {
            unsigned char *v = test_need(1, bytes[r]);

            assert_int_equal(
                device_read(s, 0, (enum region)r, 0, v, bytes[r], NULL), PL_OK);
            for (size_t i = 0; i < bytes[r]; i++)
                assert_int_equal(
                    v[i],
                    own && (r != REGION_INBOX || kinds[k].poisoned) ? 0xFF : 0);
            if (own)
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
        arena_fini(&a);
    }
}

TEST(device_sim_poisons_the_dead)
{
    struct device_run run = build_run(4);
    struct arena a = {0};

    for (int merge = 0; merge < 2; merge++) {
        struct device_set *s =
            merge ? set_merged("sim", 0, 1) : build_set("sim", 0, 1);
        float v[12] = {1, 2, 3};

        LOAD_OK(s, build_text(&a,
                              "programs 1\n"
                              "max n_tok 4\n"
                              "device 0\n"
                              "  %0: f32[n_tok, 3]\n"
                              "  %1: f32[n_tok, 3]\n"
                              "variant\n"
                              "  0: %1 = scale(%0) scale=2\n"
                              "  0: dies %0\n",
                              1));
        build_put(s, 0, 0, v, 12);
        RUN_OK(s, &run);
        build_get(s, 0, 1, v, 12);
        assert_true(v[2] == 6);
        build_get(s, 0, 0, v, 12);
        for (int i = 0; i < 12; i++)
            assert_true(isnan(v[i]));
        device_set_free(s);
    }
    arena_fini(&a);
}

TEST(device_memory_limit_is_named)
{
    struct device_set *s = build_set("sim*1,sim:1GiB", 0, 0);
    struct arena a = {0};
    pl_err err;

    assert_int_equal(device_set_load(s,
                                     build_text(&a,
                                                "programs 2\n"
                                                "device 0 work 64\n"
                                                "device 1 weights 3221225472\n"
                                                "variant\n",
                                                2),
                                     &err),
                     PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "sim1 needs 3.00 GiB"));
    assert_non_null(strstr(err.message, "weights 3.00 GiB"));
    assert_non_null(strstr(err.message, "1.00 GiB of 1.00 GiB is available"));
    device_set_free(s);
    arena_fini(&a);
}

TEST(device_links_take_their_time)
{
    struct rounds *r = rounds_new(2, PUSH, NO_MISTAKE);
    struct device_set *s = build_set("sim:3ms*2", 0, 0);
    struct device_run run = build_run(1);
    double start;

    LOAD_OK(s, r->p);
    /* counts processor time, because on a busy machine a step without links
     * takes as long */
    own_clock(true);
    start = device_now();
    RUN_OK(s, &run);
    assert_true(device_now() - start >= 0.003 * ROUNDS);
    own_clock(false);
    device_set_free(s);
    rounds_free(r);
}

/* A push leaves its queue free once its bytes are sent. Its POST follows a
 * latency later, when they have arrived. */
TEST(device_pushes_overlap_their_latency)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .trace = true};
    struct device_run run = build_run(1);
    const struct device_timing *e;
    struct device_list l;
    struct device_set *s;
    struct arena a = {0};
    int n;

    own_clock(true);
    assert_int_equal(device_parse(&l, "sim:40ms,cpu*1", 1, NULL), PL_OK);
    s = build_set_of(&l, &opt);
    LOAD_OK(s, build_text(&a,
                          "programs 2\n"
                          "max n_tok 1\n"
                          "device 0\n"
                          "  %0: f32[n_tok, 8]\n"
                          "device 1\n"
                          "  %0: f32[n_tok, 8] inbox\n"
                          "  %1: f32[n_tok, 8]\n"
                          "variant\n"
                          "  0 copy: push 1.%0 <- %0 8\n"
                          "  0 copy: push 1.%0 <- %0@8 8 to 8\n"
                          "  0 copy: push 1.%0 <- %0@16 16 to 16\n"
                          "  0 copy: post 0\n"
                          "  1: wait 0.0\n"
                          "  1: %1 = scale(%0) scale=2\n",
                          2));
    RUN_OK(s, &run);
    e = device_set_trace(s, &n);
    assert_int_equal(n, 4);
    for (int i = 0; i < 3; i++)
        assert_true(e[i].dev == 0 && e[i].end_s - e[i].begin_s < 0.02);
    assert_true(e[3].dev == 1 && e[3].begin_s - e[2].begin_s >= 0.04);
    own_clock(false);
    device_set_free(s);
    device_list_free(&l);
    arena_fini(&a);
}

/* ---- rejections and failures ------------------------------------------- */

static void refused(const struct program *p, const char *spec, pl_status want,
                    const char *says)
{
    struct device_set *s = build_set(spec, 1, 0);
    struct device_run run = build_run(1);
    pl_err err;

    assert_int_equal(device_set_load(s, p, &err), want);
    if (!strstr(err.message, says))
        fail_msg("\"%s\" does not say \"%s\"", err.message, says);
    assert_int_equal(device_set_run(s, &run, &err), PL_BAD_ARGUMENT);
    device_set_free(s);
}

#define ONE "programs 1\nmax n_tok 2\ndevice 0\n"
#define TWO "programs 2\nmax n_tok 2\n"

TEST(device_load_refuses_wrong_programs)
{
    static const struct {
        const char *spec, *says, *text;
        int n;
        pl_status status;
    } cases[] = {
        {"cpu*2", "deadlock", /* each device waits for the other's post */
         TWO "device 0\ndevice 1\nvariant\n"
             "0: wait 1.0\n0: post 0\n1: wait 0.0\n1: post 0\n",
         2, PL_BAD_ARGUMENT},
        /* one of the devices has no instruction for the barrier */
        {"cpu*2", "deadlock",
         TWO "device 0\ndevice 1\nvariant\n0: merge barrier 0, 1\n", 2,
         PL_BAD_ARGUMENT},
        {"cpu*1,sim", "of other memory",
         TWO "device 0\ndevice 1\nvariant\n0, 1: merge barrier\n", 2,
         PL_BAD_ARGUMENT},
        {"cpu*2", "without a barrier",
         TWO "device 0\n%0: f32[n_tok, 5]\ndevice 1\n%0: f32[n_tok, 4]\n"
             "variant\n0: merge %0 <- 1.%0 16 x n_tok(16, 16)\n",
         2, PL_BAD_ARGUMENT},
        {"cpu*2", "past the end of its source",
         TWO "device 0\n%0: f32[n_tok, 5]\n"
             "device 1 work 24\n%0: f32[n_tok, 3]\nvariant\n"
             "0: merge barrier 0, 1; %0 <- 1.%0 16 x n_tok(16, 16)\n"
             "1: merge barrier 0, 1\n",
         2, PL_BAD_ARGUMENT},
        {"cpu*1", "tanh", ONE "%0: f32[n_tok, 4]\nvariant\n0: %0 = tanh(%0)\n",
         1, PL_UNSUPPORTED},
        {"cpu*1", "instruction 0: names a tensor",
         ONE "%0: f32[n_tok, 4]\nvariant\n0: %0 = scale(%1)\n", 1,
         PL_BAD_ARGUMENT},
        {"cpu*1", "names a tensor", /* the kernel has one operand too few */
         ONE "%0: f32[n_tok, 4]\nvariant\n0: %0 = add(%0)\n", 1,
         PL_BAD_ARGUMENT},
        {"cpu*1", "blocks of 8-bit values",
         ONE "%0: f32[n_tok, 32] q8\nvariant\n0: %0 = scale(%0)\n", 1,
         PL_BAD_ARGUMENT},
        {"cpu*1", "blocks of 8-bit values",
         ONE "%0: f32[n_tok, 32]\nvariant\n0: %0 = quantize(%0)\n", 1,
         PL_BAD_ARGUMENT},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct arena a = {0};

        refused(build_text(&a, cases[i].text, cases[i].n), cases[i].spec,
                cases[i].status, cases[i].says);
        arena_fini(&a);
    }
}

/* Instructions with arguments that the text form of programs cannot express. */
TEST(device_load_refuses_arguments_of_other_kernels)
{
    struct arena a = {0};
    struct program *p = build_text(
        &a, ONE "%0: f32[n_tok, 4]\nvariant\n0: %0 = concat(%0)\n", 1);
    struct insn_kernel *k = &((struct insn *)p->variant->insn)->kernel;

    /* more arguments than an instruction may have */
    k->n_arg = KERNEL_MAX_ARG + 1;
    refused(p, "cpu*1", PL_BAD_ARGUMENT, "too many operands");
    k->kernel = KERNEL_scale;
    k->n_arg = 3; /* an argument that this kernel does not have */
    refused(p, "cpu*1", PL_BAD_ARGUMENT, "differently than its kernel");
    k->n_arg = 2; /* the result is updated instead of written */
    k->arg[0].access = ACCESS_UPDATE;
    refused(p, "cpu*1", PL_BAD_ARGUMENT, "differently than its kernel");
    arena_fini(&a);
}

TEST(device_failure_reaches_everybody)
{
    static const struct {
        const char *spec;
        int n, n_thread;
        enum transport by;
    } cases[] = {
        {"cpu*3", 3, 2, MEET},       {"cpu*2", 2, 3, PULL},
        {"cpu*2", 2, 3, PUSH},       {"sim*3", 3, 0, PUSH},
        {"cpu*1,sim*2", 3, 2, PUSH}, {"cpu*1,proc*2", 3, 1, PUSH},
        {"emu*3", 3, 0, PUSH},       {"cpu*1,emu*2", 3, 1, PUSH},
        {"bare*2", 2, 0, PUSH},      {"sim,emu,bare", 3, 0, PUSH},
    };
    /* distance of the instructions that fail */
    const int apart = test_long() ? 5 : 17;
    uint64_t rng = test_seed();

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rounds *r = rounds_new(cases[i].n, cases[i].by, NO_MISTAKE);
        struct device_set *s = build_set(cases[i].spec, cases[i].n_thread, i);
        struct device_run run = build_run(1);

        LOAD_OK(s, r->p);
        for (int d = 0; d < cases[i].n; d++)
            for (int step = 5 * d; step < r->p[d].variant[0].n_insn;
                 step += apart) {
                pl_err err;

                s->dev[d].fail_insn = step;
                assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
                assert_non_null(strstr(err.message, s->dev[d].desc.name));
                s->dev[d].fail_insn = -1;
                assert_true(rounds_right(r, s, 2, &rng));
            }
        device_set_free(s);
        rounds_free(r);
    }
}

/* ---- queues that wait ---------------------------------------------------- */

/* Sets of GPUs of which each can wait for words, on fake libraries. */
static const struct {
    const char *spec, *wait;
    int n;
    const struct fake_make *make;
} waiting[] = {
    {"cuda:0,cuda:2", "cuStreamWaitValue64", 2, &fake_make_cuda},
    {"cuda:0,cpu*1,cuda:2", "cuStreamWaitValue64", 3, &fake_make_cuda},
    {"hip:0,hip:2", "hipStreamWaitValue64", 2, &fake_make_hip},
};
enum { N_WAITING = sizeof waiting / sizeof *waiting };

static struct device_set *waiting_set(int k, double limit_s)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .sim_seed = test_seed(),
                                 .gpu_limit_s = limit_s};

    waiting[k].make->use()->learn(true);
    return build_set_as(waiting[k].spec, 1, &opt);
}

/* A device fails at a random instruction while queues of others wait for its
 * events. The run ends with its error, and the next ones are right. The first
 * of these posts with a smaller number than the released words have. */
TEST(device_failure_releases_queues_that_wait)
{
    enum { N_FAIL = 10 };
    uint64_t rng = test_seed();

    setenv("XDG_CACHE_HOME", test_temp("cache"), 1);
    for (int n = test_long() ? N_WAITING : 1; n > 0; n--) {
        int k = test_long() ? n - 1 : (int)test_below(&rng, N_WAITING);
        struct rounds *r = rounds_new(waiting[k].n, PUSH, NO_MISTAKE);
        const struct fake_cuda *f = waiting[k].make->use();
        int before = f->n_call(waiting[k].wait);
        struct device_set *s = waiting_set(k, 5);
        struct device_run run = build_run(1);

        LOAD_OK(s, r->p);
        for (int i = 0; i < N_FAIL; i++) {
            int d = (int)test_below(&rng, waiting[k].n);
            pl_err err;

            s->dev[d].fail_insn =
                (int)test_below(&rng, r->p[d].variant[0].n_insn);
            assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
            assert_non_null(strstr(err.message, s->dev[d].desc.name));
            s->dev[d].fail_insn = -1;
            if (!rounds_right(r, s, 2, &rng))
                fail_msg("%s: other bits after failure %d", waiting[k].spec, i);
        }
        device_set_free(s);
        rounds_free(r);
        assert_true(f->n_call(waiting[k].wait) > before);
        fake_cuda_assert_clean(f, waiting[k].spec);
    }
}

enum { FAR = 2000, WINDOW = 8 * 64 };

static const struct fake_cuda *far_fake;

/* Waits until the thread of the GPU polls its queues, as it does when it may
 * not run further ahead, or has issued all that it has. */
static void wait_for_polls(const struct cpu_call *c)
{
    int from = far_fake->n_call("cuEventQuery");

    while (c->ith == 0 && far_fake->n_call("cuEventQuery") < from + 200)
        sched_yield();
}

/* A GPU's thread queues many launches while its queue waits for another device,
 * but not so many that the driver may block the thread. */
TEST(device_queues_run_ahead_by_a_bounded_number)
{
    struct cpu_kernels kernels = *build_toys();
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .kernels = &kernels};
    struct device_run run = build_run(1);
    struct build *b = build_new(2, 1);
    const struct fake_cuda *f = fake_cuda_use();
    struct device_set *s;
    struct program *p;
    int n;

    setenv("XDG_CACHE_HOME", test_temp("cache"), 1);
    far_fake = f;
    kernels.kernel[KERNEL_scale].run = wait_for_polls;
    s = build_set_as("cuda:0,cpu*1", 1, &opt);
    build_tensor(&b[0], 8);
    build_tensor(&b[1], 8);
    build_wait(&b[0], QUEUE_COMPUTE, 1, 0);
    for (int i = 0; i < FAR; i++)
        build_op(&b[0], KERNEL_scale, 0, 0, 1);
    build_op(&b[1], KERNEL_scale, 0, 0, 1);
    build_post(&b[1], QUEUE_COMPUTE, 0);
    p = build_programs(b, 2);
    LOAD_OK(s, p);
    n = f->n_call("cuLaunchKernel");
    f->watch_longest();
    RUN_OK(s, &run);
    assert_int_equal(f->n_call("cuLaunchKernel") - n, FAR);
    assert_in_range(f->n_longest(), WINDOW / 2, WINDOW + WINDOW / 4);
    device_set_free(s);
    free(p);
    free(b);
    fake_cuda_assert_clean(f, "in the end");
}

/* These exist only in builds with the leak sanitizer. */
void __lsan_disable(void) __attribute__((weak));
void __lsan_enable(void) __attribute__((weak));

/* A word that a queue writes does not arrive. All queues that wait for it are
 * innocent: the GPU that wrote it is named, and no thread is left waiting. */
TEST(device_word_that_is_lost_is_found)
{
    struct rounds *r = rounds_new(2, PUSH, NO_MISTAKE);
    const struct fake_cuda *f = waiting[0].make->use();
    struct device_set *s;
    struct device_run run = build_run(1);
    uint64_t rng = test_seed();
    pl_err err;

    setenv("XDG_CACHE_HOME", test_temp("cache"), 1);
    if (__lsan_disable)
        __lsan_disable(); /* GPUs that hang are left open */
    s = waiting_set(0, 0.2);
    if (__lsan_enable)
        __lsan_enable();
    LOAD_OK(s, r->p);
    RUN_OK(s, &run);
    f->lose(1 + (int)test_below(&rng, 4 * ROUNDS));
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    if (!strstr(err.message, "hangs: no progress for 0.2 s, in one of"))
        fail_msg("%s", err.message);
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    device_set_free(s);
    rounds_free(r);
}

/* While the first device that fails writes its error, others see that the run
 * has failed, and read none of the text. */
TEST(device_failure_is_read_only_when_it_is_written)
{
    struct device_set *s = build_set("sim*2", 0, 0);
    struct device_shared *x = s->shared;
    pl_err err;

    device_fail(s, &s->dev[0], 3, "the first");
    device_fail(s, &s->dev[1], 4, "the second");
    assert_true(device_set_failure(s, &err));
    assert_non_null(strstr(err.message, "instruction 3"));
    atomic_store(&x->err_state, ERR_WRITING);
    atomic_store(&x->failed, false);
    device_fail(s, &s->dev[1], 4, "the second");
    assert_true(atomic_load(device_failed(s)));
    assert_false(device_set_failure(s, &err));
    assert_int_equal(err.status, PL_DEVICE);
    assert_string_equal(err.message, "a device was lost");
    atomic_store(&x->err_state, ERR_WRITTEN);
    assert_true(device_set_failure(s, &err));
    assert_non_null(strstr(err.message, "the first"));
    device_set_free(s);
}

TEST(device_run_refuses_other_sizes)
{
    struct device_set *s = build_set("cpu*1,sim", 1, 0);
    struct device_run run = build_run(5);
    struct arena a = {0};
    pl_err err;

    LOAD_OK(s, build_text(&a,
                          "programs 2\nmax n_tok 4\ndevice 0\ndevice 1\n"
                          "variant\n",
                          2));
    assert_int_equal(device_set_run(s, &run, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "5 tokens"));
    run = build_run(4);
    RUN_OK(s, &run);
    run.sizes[0].n_seq = 1;
    assert_int_equal(device_set_run(s, &run, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "1 sequences"));
    run.sizes[0].n_seq = -1;
    assert_int_equal(device_set_run(s, &run, &err), PL_BAD_ARGUMENT);
    device_set_free(s);
    arena_fini(&a);
}

TEST(device_counts_macs_by_rank)
{
    for (int k = 0; k < N_KIND; k++) {
        struct device_set *s = build_set(one_of_each[k], 3, 0);
        struct device_run run = build_run(3);
        struct arena a = {0};
        pl_counters c = {0};

        LOAD_OK(s, build_text(&a,
                              "programs 1\n"
                              "max n_tok 4\n"
                              "device 0\n"
                              "  %0: f32[n_tok, 4]\n"
                              "variant\n"
                              "  0: %0 = scale(%0) scale=1 cost(7{0}, 9{63})\n",
                              1));
        RUN_OK(s, &run);
        RUN_OK(s, &run);
        device_set_counters(s, &c);
        assert_int_equal(c.macs[0], 2 * 3 * 7);
        assert_int_equal(c.macs[63], 2 * 3 * 9);
        assert_int_equal(c.macs[1], 0);
        device_set_free(s);
        arena_fini(&a);
    }
}

/* Creates and loads a set of devices while the n-th allocation fails, for each
 * n. */
TEST(device_allocation_failure_is_a_status)
{
    struct rounds *r = rounds_new(3, PUSH, NO_MISTAKE);
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC};
    struct device_list l;

    assert_int_equal(device_parse(&l, "cpu*2,sim", 2, NULL), PL_OK);
    build_survives(&l, &opt, r->p);
    device_list_free(&l);
    rounds_free(r);
}
