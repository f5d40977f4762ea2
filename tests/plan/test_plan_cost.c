/* The cost model on programs written by hand, with prices of whole seconds: an
 * instruction of width w takes w seconds, a copy a second a byte, so clocks can
 * be checked exactly. */
#include "cost/cost.h"
#include "cost/rates.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "lower/compile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_DEV = 64, MAX_STEP = 64, MAX_TENSOR = 16, MAX_PIECE = 32 };

struct paper {
    int n_dev, order, n_micro;
    struct program prog[MAX_DEV];
    struct variant variant[MAX_DEV];
    struct insn insn[MAX_DEV][MAX_STEP];
    struct prog_tensor tensor[MAX_TENSOR];
    struct copy_desc piece[MAX_PIECE];
    struct cost_rates rates[MAX_DEV];
    int thread0[MAX_DEV], n_thread[MAX_DEV];
    int n_piece, everybody[MAX_DEV];
};

/* Makes devices on paper; tensor w has w values. */
static struct paper *paper(int n_dev)
{
    struct paper *p = test_need(1, sizeof *p);

    p->n_dev = n_dev;
    for (int i = 0; i < MAX_TENSOR; i++)
        p->tensor[i] = (struct prog_tensor){
            .format = PL_F32, .n_dim = 1, .dim = {{i, PL_CONST}}};
    for (int d = 0; d < n_dev; d++) {
        p->variant[d] =
            (struct variant){.n_micro = PROG_MAX_MICRO, .insn = p->insn[d]};
        p->prog[d] = (struct program){.dev = d,
                                      .active = true,
                                      .n_tensor = MAX_TENSOR,
                                      .tensor = p->tensor,
                                      .n_variant = 1,
                                      .variant = &p->variant[d],
                                      .n_event = 16,
                                      .n_group = 2};
        p->rates[d] =
            (struct cost_rates){.cached_bytes_per_s = 8, .link_bytes_per_s = 1};
        p->everybody[d] = d;
    }
    return p;
}

static struct insn *add(struct paper *p, int dev, enum insn_kind kind,
                        int micro)
{
    struct insn *s = &p->insn[dev][p->variant[dev].n_insn++];

    assert_true(p->variant[dev].n_insn <= MAX_STEP);
    *s = (struct insn){
        .kind = kind, .order = p->order++, .micro = micro, .node = -1};
    return s;
}

/* Returns a kernel whose result is tensor w. */
static struct insn_kernel kernel(int w)
{
    return (struct insn_kernel){
        .kernel = KERNEL_scale, .n_arg = 1, .arg = {{w, ACCESS_WRITE}}};
}

/* Appends a computation of w seconds. */
static void work(struct paper *p, int dev, int w, int micro)
{
    add(p, dev, INSN_KERNEL, micro)->kernel = kernel(w);
}

static void post(struct paper *p, int dev, enum queue q, int event, int micro)
{
    struct insn *s = add(p, dev, INSN_POST, micro);

    s->queue = q;
    s->event = (struct insn_event){dev, event};
}

static void await(struct paper *p, int dev, enum queue q, int from, int event,
                  int micro)
{
    struct insn *s = add(p, dev, INSN_WAIT, micro);

    s->queue = q;
    s->event = (struct insn_event){from, event};
}

/* Appends a copy of w seconds. */
static struct insn *pull(struct paper *p, int dev, int from, int w, int micro)
{
    struct insn *s = add(p, dev, INSN_PULL, micro);
    struct copy_desc *c = &p->piece[p->n_piece++];
    const pl_dim one = {1, PL_CONST};

    assert_true(p->n_piece <= MAX_PIECE);
    *c = (struct copy_desc){
        .src_dev = from, .bytes = {w, PL_CONST}, .n0 = one, .n1 = one};
    s->queue = QUEUE_COPY;
    s->pull =
        (struct insn_pull){.piece = c, .n_piece = 1, .between_groups = true};
    return s;
}

/* Devices first .. first + n - 1 meet at a barrier; each then takes its
 * insn_s. */
static void meet(struct paper *p, int first, int n)
{
    int order = p->order;

    for (int i = 0; i < n; i++) {
        struct insn *s = add(p, first + i, INSN_MERGE, 0);

        s->order = order;
        s->merge = (struct insn_merge){
            .barrier = true, .n_peer = n, .peer = p->everybody + first};
    }
}

static struct cost_machine machine(const struct paper *p, bool threads)
{
    return (struct cost_machine){.n_dev = p->n_dev,
                                 .prog = p->prog,
                                 .rates = p->rates,
                                 .thread0 = threads ? p->thread0 : NULL,
                                 .n_thread = threads ? p->n_thread : NULL};
}

static const struct cost_micro one_token[PROG_MAX_MICRO] = {
    {.sizes = {1, 1, 1, {64}}}};

static double run(const struct paper *p, bool threads, int n_micro,
                  struct cost_use *use)
{
    struct cost_machine m = machine(p, threads);
    double with, without;
    pl_err err;

    TEST_OK(cost_run(&m, 0, n_micro, one_token, NULL, &with, &err), err);
    if (!use)
        return with;
    TEST_OK(cost_run(&m, 0, n_micro, one_token, use, &without, &err), err);
    assert_true(with == without);
    return with;
}

static void must_be(double is, double want)
{
    if (fabs(is - want) > 1e-9 * fmax(1, fabs(want)))
        fail_msg("%.12g, not %.12g", is, want);
}

/* ---- clocks ------------------------------------------------------------- */

TEST(plan_cost_devices_overlap_until_one_waits)
{
    struct paper *p = paper(2);
    struct cost_use use[2];

    work(p, 0, 3, 0);
    work(p, 1, 5, 0);
    must_be(run(p, false, 1, NULL), 5);
    post(p, 1, QUEUE_COMPUTE, 2, 0);
    await(p, 0, QUEUE_COMPUTE, 1, 2, 0);
    work(p, 0, 4, 0);
    work(p, 1, 2, 0);
    must_be(run(p, false, 1, use), 9);
    must_be(use[0].busy_s, 7);
    must_be(use[0].idle_s, 2);
    must_be(use[1].busy_s, 7);
    must_be(use[1].idle_s, 2);
    /* a device without ranks, for which no other waits */
    p->prog[0].active = false;
    must_be(run(p, false, 1, NULL), 7);
    free(p);
}

TEST(plan_cost_copies_hide_behind_computing)
{
    struct paper *p = paper(2);
    struct cost_use use[2];

    work(p, 0, 2, 0);
    pull(p, 0, 1, 3, 0);
    post(p, 0, QUEUE_COPY, 0, 0);
    await(p, 0, QUEUE_COMPUTE, 0, 0, 0); /* the event is posted at second 3 */
    work(p, 0, 4, 0);
    /* seconds 3 to 6; counts as a copy of a collective */
    pull(p, 0, 1, 3, 0)->pull.between_groups = false;
    pull(p, 0, 1, 6, 0); /* seconds 6 to 12 */
    must_be(run(p, false, 1, use), 12);
    must_be(use[0].busy_s, 6);
    must_be(use[0].copy_s, 9);
    must_be(use[0].collective_s, 3);
    /* copies ran during computation in seconds 0 to 2 and 6 to 7 */
    must_be(use[0].hidden_s, 2 + 1);
    must_be(use[0].idle_s, 0);
    must_be(use[1].idle_s, 12);

    /* the bandwidth is that of the slower end */
    p->rates[1].link_bytes_per_s = 0.5;
    p->rates[1].collective_s = 1; /* and so is the latency */
    must_be(run(p, false, 1, NULL), 7 + 7 + 13);

    p->rates[1] = p->rates[0];
    /* the device has no copy queue, so its threads copy */
    p->rates[0].one_queue = true;
    must_be(run(p, false, 1, use), 18);
    must_be(use[0].hidden_s, 0);
    must_be(use[0].copy_s, 9);
    free(p);
}

/* cpu0 has thread 0, cpu1 thread 1, the host both. */
TEST(plan_cost_threads_are_taken_in_turns)
{
    struct paper *p = paper(3);

    p->thread0[1] = 1;
    p->n_thread[0] = p->n_thread[1] = 1;
    p->n_thread[2] = 2;
    work(p, 0, 3, 0); /* seconds 0 to 3 */
    work(p, 1, 5, 0); /* seconds 0 to 5 */
    work(p, 2, 2, 0); /* seconds 5 to 7, since it needs both threads */
    work(p, 0, 1, 0); /* seconds 7 to 8 */
    work(p, 2, 1, 0); /* seconds 8 to 9 */
    work(p, 1, 3, 0); /* seconds 9 to 12 */
    must_be(run(p, true, 1, NULL), 12);
    must_be(run(p, false, 1, NULL), 8);
    /* a device that waits for an event keeps its thread meanwhile */
    post(p, 1, QUEUE_COMPUTE, 0, 0);
    await(p, 2, QUEUE_COMPUTE, 1, 0, 0);
    work(p, 0, 1, 0);
    must_be(run(p, true, 1, NULL), 13);
    free(p);
}

TEST(plan_cost_host_spans_the_lanes_on_its_cores)
{
    struct device_desc d[] = {
        {.on_cores = true,
         .one_queue = true,
         .n_thread = 2,
         .n_core = 2,
         .core = {0, 1}},
        {.memory = -1, .n_thread = 1},
        {.on_cores = true,
         .one_queue = true,
         .n_thread = 3,
         .n_core = 3,
         .core = {2, 3, 4}},
        {.on_cores = true,
         .one_queue = true,
         .n_thread = 1,
         .n_core = 1,
         .core = {5}},
        {.on_cores = true,
         .one_queue = true,
         .host = true,
         .n_core = 2,
         .core = {1, 3}},
        {.on_cores = true,
         .one_queue = true,
         .host = true,
         .n_core = 1,
         .core = {5}},
        {.on_cores = true,
         .one_queue = true,
         .host = true,
         .n_core = 1,
         .core = {6}},
        {.described = true, .host = true},
    };
    static const int want[][2] = {{0, 2}, {2, 0}, {2, 3}, {5, 1},
                                  {0, 5}, {5, 1}, {6, 0}, {6, 0}};
    enum { N = sizeof d / sizeof d[0] };
    struct device_list l = {.n = N, .dev = d};
    int thread0[N], n_thread[N];

    cost_threads(&l, thread0, n_thread);
    for (int i = 0; i < N; i++) {
        assert_int_equal(thread0[i], want[i][0]);
        assert_int_equal(n_thread[i], want[i][1]);
    }
}

/* Four micro-batches over two stages: 4 + 1 stage times. */
TEST(plan_cost_pipeline_fills_and_drains)
{
    struct paper *p = paper(2);
    struct cost_use use[2];

    for (int i = 0; i < 4; i++) {
        work(p, 0, 10, i);
        post(p, 0, QUEUE_COMPUTE, i, i);
        await(p, 1, QUEUE_COPY, 0, i, i);
        pull(p, 1, 0, 1, i);
        post(p, 1, QUEUE_COPY, i, i);
        await(p, 1, QUEUE_COMPUTE, 1, i, i);
        work(p, 1, 10, i);
    }
    must_be(run(p, false, 4, use), 51);
    must_be(use[1].copy_s, 4);
    must_be(use[1].hidden_s, 3);
    must_be(run(p, false, 2, NULL), 31);
    must_be(run(p, false, 1, NULL), 21);
    /* both devices are on the same core, so a pipeline gains nothing */
    p->thread0[0] = p->thread0[1] = 0;
    p->n_thread[0] = p->n_thread[1] = 1;
    must_be(run(p, true, 4, NULL), 4 * (10 + 1 + 10));
    free(p);
}

/* Variants of one micro-batch compute all on one device, for 3 and for 2 a
 * token. In the pipeline the first computes for 1 a token, and the second takes
 * 2. */
TEST(plan_cost_tokens_are_dealt_as_they_are_run)
{
    const struct insn alone[2] = {{.kernel = kernel(4)}, {.kernel = kernel(5)}};
    struct paper *p = paper(2);
    struct cost_machine m = machine(p, false);
    struct cost_use use[2];
    struct variant variant[2][3];
    double s;

    p->tensor[1].dim[0] = (pl_dim){1, PL_N_TOK};
    p->tensor[4].dim[0] = (pl_dim){3, PL_N_TOK};
    p->tensor[5].dim[0] = (pl_dim){2, PL_N_TOK};
    for (int i = 0; i < 2; i++) {
        work(p, 0, 1, i);
        post(p, 0, QUEUE_COMPUTE, i, i);
        await(p, 1, QUEUE_COMPUTE, 0, i, i);
        work(p, 1, 1, i);
        work(p, 1, 1, i);
    }
    for (int d = 0; d < 2; d++) {
        for (int k = 0; k < 2; k++)
            variant[d][k] = (struct variant){
                .n_micro = 1, .insn = &alone[k], .n_insn = d == 0};
        variant[d][2] = p->variant[d];
        variant[d][2].n_micro = 2;
        p->prog[d].variant = variant[d];
        p->prog[d].n_variant = 3;
        p->prog[d].max.n_tok = 96;
    }
    /* two of 96, two of 75: the pipeline, though one device would be faster */
    assert_int_equal(cost_tokens(&m, 342, 0, use, &s, NULL), PL_OK);
    must_be(s, 3 * 96 + 2 * 96 + 3 * 75 + 2 * 75);
    must_be(use[0].busy_s, 342);
    must_be(use[1].busy_s, 2 * 342);
    must_be(use[1].idle_s, 96 + 75);
    /* too few for it: the faster one; a single token on the first */
    assert_int_equal(cost_tokens(&m, 90, 0, use, &s, NULL), PL_OK);
    must_be(s, 2 * 90);
    must_be(use[0].busy_s, 2 * 90);
    must_be(use[1].busy_s, 0);
    p->tensor[4].dim[0] = (pl_dim){1, PL_N_TOK};
    assert_int_equal(cost_tokens(&m, 90, 0, use, &s, NULL), PL_OK);
    must_be(s, 90);
    must_be(use[0].busy_s, 90);
    p->tensor[4].dim[0] = (pl_dim){3, PL_N_TOK};
    assert_int_equal(cost_tokens(&m, 1, 0, NULL, &s, NULL), PL_OK);
    must_be(s, 3);
    free(p);
}

TEST(plan_cost_meetings_take_the_last_to_come)
{
    struct paper *p = paper(4);

    for (int d = 0; d < 4; d++)
        p->rates[d].insn_s = 1;
    p->rates[1].insn_s = 3;
    work(p, 0, 4, 0); /* ends at second 5 */
    work(p, 1, 1, 0); /* ends at second 4 */
    work(p, 2, 9, 0); /* ends at second 10, on a device of another group */
    /* barrier at second 5, after which the devices go on at 6 and 8 */
    meet(p, 0, 2);
    meet(p, 2, 2);    /* barrier at second 10, ends at 11 */
    work(p, 0, 2, 0); /* ends at second 9 */
    /* barrier at second 9, after which the devices go on at 10 and 12 */
    meet(p, 0, 2);
    must_be(run(p, false, 1, NULL), 12);
    meet(p, 0, 4); /* barrier at second 12, ends at 15 */
    must_be(run(p, false, 1, NULL), 15);
    free(p);
}

static int64_t last_order;

static void in_order(void *user, const struct device_timing *e)
{
    const struct paper *p = user;
    const struct insn *s = &p->insn[e->dev][e->step];

    assert_true(s->order >= last_order);
    assert_true(s->kind != INSN_WAIT && s->kind != INSN_POST);
    assert_true(e->begin_s >= 0);
    last_order = s->order;
    must_be(e->end_s - e->begin_s, s->kind == INSN_KERNEL
                                       ? s->kernel.arg[0].tensor
                                       : s->pull.piece->bytes.n);
}

TEST(plan_cost_tells_of_steps_in_the_total_order)
{
    struct paper *p = paper(3);
    struct cost_machine m = machine(p, false);
    uint64_t seed = test_seed();
    double s;

    for (int i = 0; i < 24; i++) {
        int d = (int)test_below(&seed, 3);

        work(p, d, (int)test_below(&seed, 9), 0);
        pull(p, (int)test_below(&seed, 3), d, 5, 0);
        post(p, d, QUEUE_COPY, i % 16, 0);
        await(p, (int)test_below(&seed, 3), QUEUE_COMPUTE, d, i % 16, 0);
    }
    m.seen = in_order;
    m.user = p;
    last_order = -1;
    assert_int_equal(cost_run(&m, 0, 1, one_token, NULL, &s, NULL), PL_OK);
    assert_true(last_order > 80);
    free(p);
}

/* ---- prices ------------------------------------------------------------- */

TEST(plan_cost_pages_are_those_in_use)
{
    static const int32_t map[4] = {2, -1, 0, -1};
    struct paper *p = paper(2);
    struct cost_machine m = machine(p, false);
    struct insn s = {
        .kind = INSN_PAGES,
        .pages = {.src_dev = 1, .out = 3, .map = map, .tile_bytes = 128},
    };
    struct cost_micro z = {{1, 1, 1, {1024}}, 128};

    p->rates[0].collective_s = 7;
    p->tensor[3].n_dim = 3;
    p->tensor[3].dim[0] = (pl_dim){1, PL_N_SLOT};
    p->tensor[3].dim[1] = (pl_dim){4, PL_CONST};
    must_be(cost_insn_s(&m, 0, &s, &z), 7 + 3 * 2 * 128);
    z.n_past = 127;
    must_be(cost_insn_s(&m, 0, &s, &z), 7 + 2 * 2 * 128);
    z.sizes.n_tok = 4; /* four sequences with one token each */
    z.sizes.n_seq = 4;
    must_be(cost_insn_s(&m, 0, &s, &z), 7 + 4 * 2 * 2 * 128);
    /* with a window a sequence has no more cache than this */
    z.sizes.n_slot[0] = 5 * PAGE_TOKENS;
    must_be(cost_insn_s(&m, 0, &s, &z), 7 + 5 * 2 * 128);
    free(p);
}

/* Attention takes the longer of reading the cache and multiplying. A token sees
 * those before it, half of its own step's, and a window at most. */
TEST(plan_cost_attention_reads_and_multiplies)
{
    static const pl_dim dim[4][3] = {
        /* the queries [n_tok, 6, 4] */
        {{1, PL_N_TOK}, {6, PL_CONST}, {4, PL_CONST}},
        /* the result [n_tok, 6, 5] */
        {{1, PL_N_TOK}, {6, PL_CONST}, {5, PL_CONST}},
        {{64, PL_CONST}, {3, PL_CONST}, {4, PL_CONST}},
        {{64, PL_CONST}, {3, PL_CONST}, {5, PL_CONST}},
    };
    struct paper *p = paper(1);
    struct cost_machine m = machine(p, false);
    struct graph_attr attr = {0};
    struct insn s = {
        .kind = INSN_KERNEL,
        .kernel = {.kernel = KERNEL_attention,
                   .n_arg = 4,
                   .arg = {{2, ACCESS_WRITE},
                           {1, ACCESS_READ},
                           {3, ACCESS_READ},
                           {4, ACCESS_READ}},
                   .attr = &attr},
    };
    struct cost_micro z = {{1, 1, 1, {64}}, 9};

    for (int i = 0; i < 4; i++) {
        p->tensor[i + 1].n_dim = 3;
        memcpy(p->tensor[i + 1].dim, dim[i], sizeof dim[i]);
    }
    p->rates[0].attention_macs_per_s = 0.5;
    p->rates[0].read_bytes_per_s = 1000;
    must_be(cost_insn_s(&m, 0, &s, &z), 10 * 6 * 9 / 0.5);
    p->rates[0].read_bytes_per_s = 0.1;
    must_be(cost_insn_s(&m, 0, &s, &z), 10 * 3 * 9 * 4 / 0.1);
    attr.window = 6;
    must_be(cost_insn_s(&m, 0, &s, &z), 6 * 3 * 9 * 4 / 0.1);
    attr.window = 0;
    z.sizes.n_tok = 15; /* the tokens of a sequence read the cache only once */
    must_be(cost_insn_s(&m, 0, &s, &z), 15 * 17 * 6 * 9 / 0.5);
    free(p);
}

/* The choice of keys scores all positions of a token, unless it chooses them
 * all. Attention then reads and multiplies the chosen ones, but no more than
 * all tokens together see. */
TEST(plan_cost_chosen_positions_are_all_that_attention_reads)
{
    static const pl_dim dim[6][3] = {
        /* queries [n_tok, 6, 4], result [n_tok, 6, 3], cache of 2 heads */
        {{1, PL_N_TOK}, {6, PL_CONST}, {4, PL_CONST}},
        {{1, PL_N_TOK}, {6, PL_CONST}, {3, PL_CONST}},
        {{64, PL_CONST}, {2, PL_CONST}, {4, PL_CONST}},
        /* chosen [n_tok, 8], queries and keys of the indexer */
        {{1, PL_N_TOK}, {8, PL_CONST}},
        {{1, PL_N_TOK}, {5, PL_CONST}, {7, PL_CONST}},
        {{64, PL_CONST}, {1, PL_CONST}, {7, PL_CONST}},
    };
    struct paper *p = paper(1);
    struct cost_machine m = machine(p, false);
    struct graph_attr attr = {.n_used = 8};
    struct insn attend = {
        .kind = INSN_KERNEL,
        .kernel = {.kernel = KERNEL_latent_attention,
                   .n_arg = 4,
                   .arg = {{2, ACCESS_WRITE},
                           {1, ACCESS_READ},
                           {3, ACCESS_READ},
                           {4, ACCESS_READ}},
                   .attr = &attr},
    };
    struct insn choose = {
        .kind = INSN_KERNEL,
        .kernel = {.kernel = KERNEL_index_topk,
                   .n_arg = 4,
                   .arg = {{4, ACCESS_WRITE},
                           {5, ACCESS_READ},
                           {7, ACCESS_READ},
                           {6, ACCESS_READ}},
                   .attr = &attr},
    };
    struct cost_micro z = {{1, 1, 1, {64}}, 19};

    for (int i = 0; i < 6; i++) {
        p->tensor[i + 1].n_dim = i == 3 ? 2 : 3;
        memcpy(p->tensor[i + 1].dim, dim[i], sizeof dim[i]);
    }
    p->rates[0].attention_macs_per_s = 0.5;
    p->rates[0].read_bytes_per_s = 1000;
    must_be(cost_insn_s(&m, 0, &attend, &z), 8 * 6 * 7 / 0.5);
    must_be(cost_insn_s(&m, 0, &choose, &z), 20 * 5 * 7 / 0.5);
    p->rates[0].read_bytes_per_s = 0.01;
    must_be(cost_insn_s(&m, 0, &attend, &z), 8 * 2 * 4 * 4 / 0.01);
    must_be(cost_insn_s(&m, 0, &choose, &z), 20 * 7 * 4 / 0.01);
    z.sizes.n_tok = 15; /* they see 27 positions on average */
    must_be(cost_insn_s(&m, 0, &attend, &z), 27 * 2 * 4 * 4 / 0.01);
    z.sizes.n_tok = 1;
    z.n_past = 7;
    must_be(cost_insn_s(&m, 0, &attend, &z), 8 * 2 * 4 * 4 / 0.01);
    must_be(cost_insn_s(&m, 0, &choose, &z), 0);
    free(p);
}

/* With blocks of positions for each KV head, it is the same. */
TEST(plan_cost_chosen_blocks_are_all_that_attention_reads)
{
    static const pl_dim dim[7][3] = {
        /* queries, result, caches of keys and values */
        {{1, PL_N_TOK}, {6, PL_CONST}, {4, PL_CONST}},
        {{1, PL_N_TOK}, {6, PL_CONST}, {3, PL_CONST}},
        {{64, PL_CONST}, {2, PL_CONST}, {4, PL_CONST}},
        {{64, PL_CONST}, {2, PL_CONST}, {3, PL_CONST}},
        /* chosen blocks, queries and keys of the indexer */
        {{1, PL_N_TOK}, {2, PL_CONST}, {4, PL_CONST}},
        {{1, PL_N_TOK}, {2, PL_CONST}, {7, PL_CONST}},
        {{64, PL_CONST}, {1, PL_CONST}, {7, PL_CONST}},
    };
    struct paper *p = paper(1);
    struct cost_machine m = machine(p, false);
    struct graph_attr attr = {.n_used = 4, .block = 2};
    struct insn attend = {
        .kind = INSN_KERNEL,
        .kernel = {.kernel = KERNEL_attention_blocks,
                   .n_arg = 5,
                   .arg = {{2, ACCESS_WRITE},
                           {1, ACCESS_READ},
                           {3, ACCESS_READ},
                           {4, ACCESS_READ},
                           {5, ACCESS_READ}},
                   .attr = &attr},
    };
    struct insn choose = {
        .kind = INSN_KERNEL,
        .kernel = {.kernel = KERNEL_index_blocks,
                   .n_arg = 3,
                   .arg = {{5, ACCESS_WRITE},
                           {6, ACCESS_READ},
                           {7, ACCESS_READ}},
                   .attr = &attr},
    };
    struct cost_micro z = {{1, 1, 1, {64}}, 19};

    for (int i = 0; i < 7; i++) {
        p->tensor[i + 1].n_dim = 3;
        memcpy(p->tensor[i + 1].dim, dim[i], sizeof dim[i]);
    }
    p->rates[0].attention_macs_per_s = 0.5;
    p->rates[0].read_bytes_per_s = 0.01;
    must_be(cost_insn_s(&m, 0, &attend, &z), 8 * 2 * 7 * 4 / 0.01);
    must_be(cost_insn_s(&m, 0, &choose, &z), 20 * 7 * 4 / 0.01);
    z.n_past = 7;
    must_be(cost_insn_s(&m, 0, &choose, &z), 0);
    free(p);
}

/* Attention to blocks reads and multiplies a window and all blocks, or those
 * chosen; the choice scores the blocks. */
TEST(plan_cost_blocks_count_as_one_position_each)
{
    static const pl_dim dim[5][3] = {
        /* queries [n_tok, 6, 4], result, cache of 2 heads, chosen [n_tok, 2],
         * cache of the indexer */
        {{1, PL_N_TOK}, {6, PL_CONST}, {4, PL_CONST}},
        {{1, PL_N_TOK}, {6, PL_CONST}, {4, PL_CONST}},
        {{64, PL_CONST}, {2, PL_CONST}, {4, PL_CONST}},
        {{1, PL_N_TOK}, {2, PL_CONST}},
        {{64, PL_CONST}, {1, PL_CONST}, {4, PL_CONST}},
    };
    struct paper *p = paper(1);
    struct cost_machine m = machine(p, false);
    struct graph_attr attr = {.n_used = 2, .window = 5, .ratio = 4};
    struct insn attend = {
        .kind = INSN_KERNEL,
        .kernel = {.kernel = KERNEL_compressed_attention,
                   .n_arg = 6,
                   .arg = {{2, ACCESS_WRITE},
                           {1, ACCESS_READ},
                           {3, ACCESS_READ},
                           {3, ACCESS_READ},
                           {1, ACCESS_READ},
                           {4, ACCESS_READ}},
                   .attr = &attr},
    };
    struct insn choose = {
        .kind = INSN_KERNEL,
        .kernel = {.kernel = KERNEL_index_topk,
                   .n_arg = 4,
                   .arg = {{4, ACCESS_WRITE},
                           {1, ACCESS_READ},
                           {4, ACCESS_READ},
                           {5, ACCESS_READ}},
                   .attr = &attr},
    };
    const struct cost_micro z = {{1, 1, 1, {64}}, 19};

    for (int i = 0; i < 5; i++) {
        p->tensor[i + 1].n_dim = i == 3 ? 2 : 3;
        memcpy(p->tensor[i + 1].dim, dim[i], sizeof dim[i]);
    }
    p->rates[0].attention_macs_per_s = 0.5;
    p->rates[0].read_bytes_per_s = 1000;
    must_be(cost_insn_s(&m, 0, &attend, &z), (5 + 2) * 6 * 8 / 0.5);
    must_be(cost_insn_s(&m, 0, &choose, &z), 5 * 6 * 4 / 0.5);
    p->rates[0].read_bytes_per_s = 0.01;
    must_be(cost_insn_s(&m, 0, &attend, &z), (5 + 2) * 2 * 4 * 4 / 0.01);
    must_be(cost_insn_s(&m, 0, &choose, &z), 5 * 4 * 4 / 0.01);
    attend.kernel.arg[5].tensor = -1;
    must_be(cost_insn_s(&m, 0, &attend, &z), (5 + 5) * 2 * 4 * 4 / 0.01);
    free(p);
}

/* A collective costs its latency and a device's bytes from its peers; a device
 * alone sends nothing. If it was copied in advance, only the merge counts. */
TEST(plan_cost_messages_are_paid_once)
{
    const pl_dim one = {1, PL_CONST};
    struct copy_desc c[2] = {{.src_dev = 0, .bytes = {8, PL_CONST}},
                             {.src_dev = 1, .bytes = {8, PL_CONST}}};
    struct merge_item item = {.out = 2, .n_piece = 2, .piece = c};
    struct paper *p = paper(2);
    struct cost_machine m = machine(p, false);
    struct insn s = {
        .kind = INSN_MERGE,
        .merge = {.collective = true,
                  .barrier = true,
                  .n_peer = 2,
                  .peer = p->everybody,
                  .n_item = 1,
                  .item = &item},
    };

    c[0].n0 = c[0].n1 = c[1].n0 = c[1].n1 = one;
    p->rates[0].collective_s = 100;
    p->rates[0].insn_s = 0.5;
    must_be(cost_insn_s(&m, 0, &s, one_token), 0.5 + 2 + 100 + 8);
    s.merge.n_peer = 1;
    must_be(cost_insn_s(&m, 0, &s, one_token), 0.5);
    s.merge.barrier = false;
    must_be(cost_insn_s(&m, 0, &s, one_token), 0.5 + 2);
    free(p);
}

/* Transfers bypass the host if both ends can. Between a device whose engine
 * carries them and host memory, only that device's link counts. */
TEST(plan_cost_of_a_copy_is_that_of_the_pair)
{
    struct paper *p = paper(4);
    struct cost_machine m = machine(p, false);
    const struct insn *from[4];

    for (int d = 0; d < 3; d++) {
        p->rates[d].has_copy_engine = true;
        p->rates[d].collective_s = 1;
    }
    p->rates[1].p2p_bytes_per_s = 4;
    p->rates[2].p2p_bytes_per_s = 8;
    p->rates[3].link_bytes_per_s = 0.25; /* bandwidth of the host's link */
    p->rates[3].collective_s = 100;
    for (int d = 0; d < 4; d++)
        from[d] = pull(p, 0, d, 8, 0);
    must_be(cost_insn_s(&m, 0, from[1], one_token), 1 + 8);
    must_be(cost_insn_s(&m, 1, from[2], one_token), 1 + 2);
    must_be(cost_insn_s(&m, 2, from[1], one_token), 1 + 2);
    must_be(cost_insn_s(&m, 2, from[0], one_token), 1 + 8);
    must_be(cost_insn_s(&m, 1, from[3], one_token), 1 + 8);
    must_be(cost_insn_s(&m, 3, from[1], one_token), 1 + 8);
    free(p);
}

/* Inside a link domain by its bridge, to others as without one. */
TEST(plan_cost_of_a_copy_inside_an_island_is_that_of_the_bridge)
{
    struct paper *p = paper(4);
    struct cost_machine m = machine(p, false);
    const struct insn *from[4];

    for (int d = 0; d < 4; d++) {
        struct cost_rates *r = &p->rates[d];

        r->has_copy_engine = true;
        r->collective_s = 9;
        r->p2p_bytes_per_s = 2;
        r->bridge_bytes_per_s = 4 + d;
        r->link_domain = 1 + d / 2;
    }
    p->rates[0].bridge_s = 3;
    p->rates[3].link_domain = 0;
    for (int d = 0; d < 4; d++)
        from[d] = pull(p, 0, d, 8, 0);
    must_be(cost_insn_s(&m, 0, from[1], one_token), 9 + 2);
    p->rates[1].bridge_s = 5;
    must_be(cost_insn_s(&m, 0, from[1], one_token), 5 + 2);
    must_be(cost_insn_s(&m, 2, from[1], one_token), 9 + 4);
    must_be(cost_insn_s(&m, 2, from[3], one_token), 9 + 4);
    p->rates[0].p2p_bytes_per_s = 0;
    must_be(cost_insn_s(&m, 0, from[1], one_token), 5 + 2);
    must_be(cost_insn_s(&m, 0, from[2], one_token), 9 + 8);
    free(p);
}

/* A push to a peer directly, to one by the link, and to the host: transfers
 * over the link add up, the rest is in parallel. */
TEST(plan_cost_of_a_push_counts_each_way_apart)
{
    const pl_dim one = {1, PL_CONST};
    struct paper *p = paper(4);
    struct cost_machine m = machine(p, false);
    struct copy_desc c[3] = {{.src_dev = 0}, {.src_dev = 0}, {.src_dev = 0}};
    struct push_to to[3] = {{.dev = 1}, {.dev = 2}, {.dev = 3}};
    struct insn s = {
        .kind = INSN_PUSH,
        .push = {
            .n_to = 3, .to = to, .piece = c, .n_piece = 3, .scatter = true}};

    for (int i = 0; i < 3; i++) {
        c[i].n0 = c[i].n1 = one;
        c[i].bytes = (pl_dim){8, PL_CONST};
    }
    for (int d = 0; d < 3; d++)
        p->rates[d].has_copy_engine = true;
    p->rates[3].collective_s = 100;
    p->rates[0].p2p_bytes_per_s = p->rates[1].p2p_bytes_per_s = 4;
    must_be(cost_insn_s(&m, 0, &s, one_token), 16);
    must_be(cost_delivery_s(&m, 0, &s), 0);
    /* bandwidth between peers, slower than all other links */
    p->rates[0].p2p_bytes_per_s = 0.25;
    must_be(cost_insn_s(&m, 0, &s, one_token), 32);
    p->rates[0].p2p_bytes_per_s = 0;
    must_be(cost_insn_s(&m, 0, &s, one_token), 24);
    p->rates[0].link_domain = p->rates[1].link_domain = 7;
    p->rates[0].bridge_bytes_per_s = p->rates[1].bridge_bytes_per_s = 0.25;
    must_be(cost_insn_s(&m, 0, &s, one_token), 32);
    p->rates[1].bridge_bytes_per_s = 8;
    /* the two other devices are reached by the link */
    p->rates[0].bridge_bytes_per_s = 8;
    must_be(cost_insn_s(&m, 0, &s, one_token), 16);
    free(p);
}

/* Between machines the network of both counts, if it is known. Without, the
 * slower end's rates count, or defaults. */
TEST(plan_cost_of_a_network_is_that_of_both_machines)
{
    static const struct machine_link of_0[3] = {
        {0}, {4, 2, LINK_MEASURED}, {0.5, 7, LINK_STATED}};
    struct device_desc dev[3] = {{.described = true, .mem_bytes_per_s = 1e9},
                                 {.machine = 1, .n_thread = 1},
                                 {.machine = 2, .n_thread = 1}};
    struct machine_link all[9] = {{0}};
    struct device_list l = {.n = 3, .dev = dev, .n_machine = 3, .link = all};
    struct cost_rates r[3];
    struct cost_link x;

    memcpy(all, of_0, sizeof of_0);
    rates_of_list(&l, KERNEL_SET_GENERIC, NULL, 0, r);
    for (int k = 1; k < 3; k++) {
        x = cost_link_of(&r[0], &r[k]);
        must_be(x.latency_s, of_0[k].latency_s);
        must_be(x.bytes_per_s, of_0[k].bytes_per_s);
        assert_int_equal(x.source, of_0[k].source);
    }
    x = cost_link_of(&r[2], &r[1]);
    must_be(x.bytes_per_s, 0.117e9);
    assert_int_equal(x.source, LINK_ASSUMED);
    l.link = NULL;
    dev[2].network_bytes_per_s = 3;
    dev[1].network_latency_s = 5;
    rates_of_list(&l, KERNEL_SET_GENERIC, NULL, 0, r);
    x = cost_link_of(&r[2], &r[1]);
    must_be(x.bytes_per_s, 3);
    must_be(x.latency_s, 5);
    assert_int_equal(x.source, LINK_STATED);
    assert_int_equal(cost_link_of(&r[0], &r[1]).source, LINK_ASSUMED);
}

/* Every rate is set, whatever it was before; unknown rates count as free. */
TEST(plan_cost_rates_without_measuring_are_whole)
{
    const struct device_desc paper_device = {.described = true,
                                             .mem_bytes_per_s = 1e12};
    const struct device_desc cpu = {
        .on_cores = true, .one_queue = true, .n_thread = 2};
    struct cost_rates r[2][2];

    for (int k = 0; k < 2; k++) {
        memset(r[k], k ? 0xFF : 0x42, sizeof r[k]);
        cost_rates_from_spec(&r[k][0], &paper_device);
        cost_default_rates(&r[k][1], &cpu, KERNEL_SET_AVX2);
    }
    /* compares the fields before the struct's padding */
    for (int i = 0; i < 2; i++)
        assert_memory_equal(&r[0][i], &r[1][i],
                            offsetof(struct cost_rates, one_queue));
}

static int last_meeting(const struct variant *c)
{
    int last = -1;

    for (int i = 0; i < c->n_insn; i++)
        if (insn_is_barrier(&c->insn[i]))
            last = i;
    return last;
}

/* Devices of one group work in lockstep: if one is slower in everything, a step
 * takes as long as its instructions one after another. */
TEST(plan_cost_of_a_group_is_its_slowest_device)
{
    static const pl_dim dim[2] = {{1, PL_N_TOK}, {512, PL_CONST}};
    static const struct cost_micro z[1] = {{{16, 1, 1, {4096}}, 100}};
    pl_options o = {.device_spec = "gpu:1GiB:1TB/s:flops=1T:link=1GB/s:"
                                   "latency=5us:shared*3,cpu:1GiB:50GB/s:"
                                   "flops=1T:link=1GB/s:latency=9us:shared",
                    .split_mode = PL_SPLIT_TENSOR};
    struct cost_rates r[5];
    struct compiled *q;
    pl_graph *g;
    double sum, s;
    pl_tensor x;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 2, dim);
    for (int i = 0; i < 3; i++) {
        static const int64_t up[2] = {1024, 512}, down[2] = {512, 1024};
        pl_tensor h = pl_rms_norm(g, x, -1, 1e-6f);
        char name[2][32];

        pl_layer(g, i);
        snprintf(name[0], sizeof name[0], "blk.%d.up", i);
        snprintf(name[1], sizeof name[1], "blk.%d.down", i);
        h = pl_matmul(g, h,
                      pl_weight(g, name[0], PL_Q8_0, 2, up, PL_ROLE_FFN_UP));
        h = pl_matmul(
            g, pl_silu(g, h),
            pl_weight(g, name[1], PL_Q8_0, 2, down, PL_ROLE_FFN_DOWN));
        x = pl_add(g, x, h);
    }
    pl_output(g, x);
    assert_int_equal(compile_graph(&q, g, &o, NULL), PL_OK);
    assert_int_equal(compiled_devices(q), 4);
    for (int d = 0; d < 5; d++)
        cost_rates_from_spec(&r[d], &q->list.dev[d]);
    struct cost_machine m = {.n_dev = 5, .prog = q->low->prog, .rates = r};

    /* all are as slow as the last until their last barrier; then the first
     * continues alone, to hand over the result */
    sum = 0;
    for (int d = 3; d >= 0; d -= 3) {
        const struct variant *c = &m.prog[d].variant[0];

        for (int i = 0; i < c->n_insn; i++)
            if ((d == 3) == (i < last_meeting(c)))
                sum += cost_insn_s(&m, d, &c->insn[i], z) +
                       cost_delivery_s(&m, d, &c->insn[i]);
        assert_int_equal(c->insn[c->n_insn - 1].kind == INSN_PUSH, d == 0);
    }
    assert_int_equal(cost_run(&m, 0, 1, z, NULL, &s, NULL), PL_OK);
    must_be(s, sum);
    assert_true(sum > 3 * 9e-6);
    compiled_free(q);
    pl_graph_free(g);
}

/* ---- limits ------------------------------------------------------------- */

TEST(plan_cost_refuses_what_is_not_there)
{
    struct paper *p = paper(2);
    struct cost_machine m = machine(p, false);
    struct cost_use use[2];
    double s;
    pl_err err;

    work(p, 0, 1, 0);
    assert_int_equal(cost_run(&m, 1, 1, one_token, NULL, &s, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(cost_run(&m, -1, 1, one_token, NULL, &s, NULL),
                     PL_BAD_ARGUMENT);
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(cost_run(&m, 0, 1, one_token, use, &s, &err));
    free(p);
}

/* 64 devices of 5,000 instructions, a barrier every 20: a model of 120
 * layers. */
TEST(plan_cost_large_plans_take_no_time)
{
    enum { N_DEV = 64, N_STEP = 5000 };
    struct paper *p = paper(N_DEV);
    struct insn *all = test_need(N_DEV * N_STEP, sizeof *all);
    struct cost_machine m = machine(p, false);
    struct timespec a, b;
    double s, took = INFINITY;

    for (int d = 0; d < N_DEV; d++) {
        p->variant[d].insn = all + d * N_STEP;
        p->variant[d].n_insn = N_STEP;
        for (int i = 0; i < N_STEP; i++) {
            struct insn *x = &all[d * N_STEP + i];
            bool meets = i % 20 == 19;

            *x = (struct insn){.kind = meets ? INSN_MERGE : INSN_KERNEL,
                               .order = i * N_DEV + (meets ? 0 : d)};
            if (meets)
                x->merge = (struct insn_merge){
                    .barrier = true, .n_peer = N_DEV, .peer = p->everybody};
            else
                x->kernel = kernel(2);
        }
    }
    /* takes the best of three, because the machine may be busy */
    for (int i = 0; i < 3; i++) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        assert_int_equal(cost_run(&m, 0, 1, one_token, NULL, &s, NULL), PL_OK);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        took = fmin(took, (double)(b.tv_sec - a.tv_sec) +
                              1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    }
    must_be(s, 2. * N_STEP / 20 * 19);
    print_message("%d steps in %.1f ms\n", N_DEV * N_STEP, took * 1e3);
    assert_true(took < 0.3);
    free(all);
    free(p);
}
