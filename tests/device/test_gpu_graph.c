/* Device graphs of launches: their edges, the steps that get graphs, and equal
 * results in any order that the edges allow. */
#include "lib/program_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_deps.h"
#include "device/gpu/gpu_device.h"
#include "emu/emu_driver.h"
#include "lib/alloc_fail.h"

/* ---- the order ----------------------------------------------------------- */

enum { THINGS = 90, TOUCHES = 4 };

struct things {
    struct gpu_access touch[THINGS * TOUCHES];
    int first[THINGS + 1];
    /* clash[i][k]: thing i must run after thing k, directly or through other
     * things */
    bool clash[THINGS][THINGS];
};

static bool clash(const struct things *t, int a, int b)
{
    for (int i = t->first[a]; i < t->first[a + 1]; i++)
        for (int k = t->first[b]; k < t->first[b + 1]; k++) {
            const struct gpu_access *x = &t->touch[i], *y = &t->touch[k];

            for (size_t at = x->from; at < x->to; at++)
                if (x->memory == y->memory && (x->writes || y->writes) &&
                    at >= y->from && at < y->to)
                    return true;
        }
    return false;
}

static void draw_things(struct things *t, uint64_t *rng)
{
    int n = 0;

    for (int i = 0; i < THINGS; i++) {
        t->first[i] = n;
        for (int64_t k = test_below(rng, TOUCHES + 1); k > 0; k--) {
            size_t from = (size_t)test_below(rng, 300);

            t->touch[n++] = (struct gpu_access){
                .memory = (int)test_below(rng, 2),
                .from = from,
                .to = from + 1 + (size_t)test_below(rng, 20),
                .writes = test_below(rng, 3) == 0};
        }
    }
    t->first[THINGS] = n;
    for (int i = 0; i < THINGS; i++)
        for (int k = 0; k < i; k++)
            t->clash[i][k] = clash(t, i, k);
    /* rows before i have all their indirect conflicts already */
    for (int i = 0; i < THINGS; i++)
        for (int k = i - 1; k >= 0; k--)
            for (int j = 0; t->clash[i][k] && j < k; j++)
                t->clash[i][j] |= t->clash[k][j];
}

static void check_waits(const struct things *t, const struct gpu_deps *o, int i)
{
    bool waits[THINGS] = {false};

    for (int a = o->first[i]; a < o->first[i + 1]; a++) {
        int k = o->after[a];

        assert_true(k < i && (a == o->first[i] || k > o->after[a - 1]));
        for (int b = o->first[i]; b < o->first[i + 1]; b++)
            /* an edge to k would be redundant if another predecessor ran after
             * k */
            assert_false(t->clash[o->after[b]][k]);
        waits[k] = true;
        for (int j = 0; j < k; j++)
            waits[j] |= t->clash[k][j];
    }
    for (int k = 0; k < i; k++)
        assert_true(waits[k] == t->clash[i][k]);
}

TEST(gpu_order_is_what_bytes_ask_for)
{
    uint64_t rng = test_seed();
    struct things *t = test_need(1, sizeof *t);

    for (int run = 0; run < 50; run++) {
        struct gpu_deps o;
        int n = (int)test_below(&rng, THINGS + 1);

        memset(t, 0, sizeof *t);
        draw_things(t, &rng);
        assert_true(gpu_order_make(&o, t->touch, t->first, n));
        for (int i = 0; i < n; i++)
            check_waits(t, &o, i);
        gpu_order_free(&o);
    }
    for (int64_t n = 0; alloc_each(&n);) {
        struct gpu_deps o;

        alloc_ran(gpu_order_make(&o, t->touch, t->first, THINGS)
                      ? PL_OK
                      : PL_NO_MEMORY);
        gpu_order_free(&o);
    }
    free(t);
}

/* ---- runs ---------------------------------------------------------------- */

/* out = 2 x + 4 x. A buffer is used for two values, and another queue works in
 * between. */
static const char text[] = "programs 1\n"
                           "max n_tok 80\n"
                           "device 0\n"
                           "  %0: f32[n_tok, 8]\n"
                           "  %1: f32[n_tok, 8]\n"
                           "  %2: f32[n_tok, 8]\n"
                           "  %3: f32[n_tok, 8]\n"
                           "  %4: f32[n_tok, 8]\n"
                           "variant\n"
                           "  0: %1 = scale(%0) scale=2\n"
                           "  0 copy: %4 = scale(%0) scale=3\n"
                           "  0: %2 = scale(%1) scale=1\n"
                           "  0: %1 = scale(%0) scale=4\n"
                           "  0: %3 = add(%2, %1)\n"
                           "  0 copy: post 0\n"
                           "  0: wait 0.0\n"
                           "  0: %1 = add(%3, %4)\n"
                           "  0: %3 = scale(%1) scale=1\n"
                           "  0: %2 = scale(%3) scale=2\n"
                           "  0: %4 = scale(%2) scale=0.5\n"
                           "  0: %3 = add(%4, %1)\n";

static struct gpu_device *gpu_of(struct device_set *s)
{
    return device_of(s, 0)->own;
}

/* Runs one more step of n_tok rows. Returns true if it had graphs. */
static bool has_graphs(struct device_set *s, int64_t n_tok)
{
    static float next;
    struct device_run run = build_run(n_tok);
    float x[80 * 8], out[80 * 8];
    int64_t n = n_tok * 8;

    for (int64_t i = 0; i < n; i++)
        x[i] = next++;
    build_put(s, 0, 0, x, n);
    RUN_OK(s, &run);
    build_get(s, 0, 3, out, n);
    for (int64_t i = 0; i < n; i++)
        assert_true(out[i] == 18 * x[i]);
    return gpu_of(s)->graphs.now != NULL;
}

static struct device_set *start(struct arena *a, const char *kind,
                                uint64_t seed)
{
    struct device_set *s = build_set(kind, 1, seed);

    LOAD_OK(s, build_text(a, text, 1));
    return s;
}

TEST(gpu_graphs_are_of_runs_that_come_again)
{
    struct arena a = {0};
    struct device_set *s = start(&a, "emu", test_seed());

    for (int i = 0; i < 30; i++)
        assert_true(has_graphs(s, 3) == (i > 0));
    assert_int_equal(gpu_of(s)->graphs.now->n_segment, 2);
    assert_false(has_graphs(s, GPU_GRAPH_ROWS));
    assert_true(has_graphs(s, GPU_GRAPH_ROWS));
    for (int i = 0; i < 3; i++)
        assert_false(has_graphs(s, GPU_GRAPH_ROWS + 1));
    device_set_free(s);
    s = start(&a, "bare", 1);
    for (int i = 0; i < 3; i++)
        assert_false(has_graphs(s, 3));
    device_set_free(s);
    arena_fini(&a);
}

TEST(gpu_graphs_go_when_they_are_unused_for_longest)
{
    struct arena a = {0};
    struct device_set *s = start(&a, "emu", test_seed());

    for (int turn = 0; turn < 2; turn++)
        for (int n = 1; n <= GPU_GRAPH_RUNS; n++)
            assert_true(has_graphs(s, n) == (turn == 1));
    assert_true(has_graphs(s, 1));
    /* evicts the graphs of steps with 2 tokens */
    assert_false(has_graphs(s, GPU_GRAPH_RUNS + 1));
    assert_true(has_graphs(s, 1));
    assert_true(has_graphs(s, 3));
    /* evicts the graphs of steps with 4 tokens */
    assert_false(has_graphs(s, 2));
    assert_true(has_graphs(s, 2));
    assert_true(has_graphs(s, GPU_GRAPH_RUNS + 1));
    device_set_free(s);
    arena_fini(&a);
}

/* Kernels that use their queue's scratch run one after another. */
static bool one_by_one;

static pl_status look_at_nodes(struct gpu *g, const struct gpu_graph_node *node,
                               int n, struct gpu_graph **out, pl_err *err)
{
    assert_int_equal(n, 5);
    assert_int_equal(node[1].kernel, GPU_router_topk);
    /* this launch uses no scratch, so it waits for nothing */
    assert_int_equal(node[2].n_after, 0);
    one_by_one = node[1].n_after == 1 && node[1].after[0] == 0 &&
                 node[4].n_after == 1 && node[4].after[0] == 1;
    return gpu_emu.graph_make(g, node, n, out, err);
}

TEST(gpu_graphs_share_scratch_in_turn)
{
    struct gpu_driver spy = gpu_emu;
    struct arena a = {0};
    struct device_set *s = build_set("emu", 1, 1);
    struct device_run run = build_run(2);

    LOAD_OK(s, build_text(&a,
                          "programs 1\n"
                          "max n_tok 2\n"
                          "device 0\n"
                          "  %0: f32[n_tok, 8]\n"
                          "  %1: i32[n_tok, 2]\n"
                          "  %2: i32[n_tok, 2]\n"
                          "  %3: f32[n_tok, 8]\n"
                          "  %4: i32[n_tok, 2]\n"
                          "variant\n"
                          "  0: %1 = router_topk(%0) n_used=2\n"
                          "  0: %2 = router_topk(%0) n_used=2\n"
                          "  0: %3 = scale(%0) scale=2\n"
                          "  0: %3 = scale(%3) scale=2\n"
                          "  0: %4 = router_topk(%0) n_used=2\n",
                          1));
    spy.graph_make = look_at_nodes;
    gpu_of(s)->driver = &spy;
    for (int i = 0; i < 3; i++)
        RUN_OK(s, &run);
    assert_non_null(gpu_of(s)->graphs.now);
    assert_true(one_by_one);
    device_set_free(s);
    arena_fini(&a);
}

/* A step that fails amid its graphs leaves nothing for the next one. */
TEST(gpu_graphs_outlive_a_run_that_failed)
{
    for (int step = 0; step < 12; step++) {
        struct arena a = {0};
        struct device_set *s = start(&a, "emu", (uint64_t)step);
        struct device_run run = build_run(3);

        has_graphs(s, 3);
        assert_true(has_graphs(s, 3));
        device_of(s, 0)->fail_insn = step;
        assert_int_equal(device_set_run(s, &run, NULL), PL_DEVICE);
        device_of(s, 0)->fail_insn = -1;
        assert_true(has_graphs(s, 3));
        device_set_free(s);
        arena_fini(&a);
    }
}

/* If there is no memory for device graphs, steps run without them. */
TEST(gpu_graphs_are_done_without)
{
    int n_without = 0;

    for (int64_t nth = 1;; nth++) {
        struct arena a = {0};
        struct device_set *s = start(&a, "emu", 1);
        struct device_run run = build_run(3);
        bool failed;

        has_graphs(s, 3);
        alloc_fail_at(nth);
        RUN_OK(s, &run);
        failed = alloc_fail_off();
        n_without += gpu_of(s)->graphs.now == NULL;
        assert_true(has_graphs(s, 3) == (gpu_of(s)->graphs.now != NULL));
        device_set_free(s);
        arena_fini(&a);
        if (!failed)
            break;
    }
    assert_true(n_without > 5);
}
