/* Launches are left out of a step if their result exists already, and only
 * then. */
#include "lib/program_build.h"

#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_device.h"

enum { TOK = 80, K = 8, ROWS = 16, EXPERTS = 3, USED = 2 };

/* gate, an instruction between them, up; an expert has 16 rows of 8 values. */
static const char head[] = "programs 1\n"
                           "max n_tok 80\n"
                           "device 0\n"
                           "  %0: f32[n_tok, 1, 8]\n"
                           "  %1: f32[3, 16, 8] weights packed\n"
                           "  %2: i32[n_tok, 2]\n"
                           "  %3: f32[n_tok, 2, 16]\n"
                           "  %4: f32[n_tok, 2, 16]\n"
                           "  %5: i32[n_tok, 2]\n"
                           "  %6: f32[n_tok, 16]\n"
                           "  %7: i32[n_tok, 2]\n"
                           "  %8: f32[n_tok, 3]\n"
                           "  %9: f32[n_tok, 2, 8]\n"
                           "variant\n"
                           "  0: %3 = expert_matmul(%0, %1, %2, -)\n";

/* Writes floats and ids to the operands, the same on all backends. */
static void put_operands(struct device_set *s)
{
    float x[TOK * USED * K], w[EXPERTS * ROWS * K], logit[TOK * EXPERTS];
    static const float none[TOK * USED * ROWS];
    int32_t id[2][TOK * USED];
    uint64_t seed = 5;

    for (int i = 0; i < TOK * USED * K; i++)
        x[i] = test_unit(&seed);
    for (int i = 0; i < EXPERTS * ROWS * K; i++)
        w[i] = test_unit(&seed);
    for (int i = 0; i < TOK * EXPERTS; i++)
        logit[i] = test_unit(&seed);
    for (int i = 0; i < TOK * USED; i++)
        for (int k = 0; k < 2; k++)
            id[k][i] = (int32_t)test_below(&seed, EXPERTS);
    build_put(s, 0, 0, x, TOK * K);
    build_put(s, 0, 1, w, EXPERTS * ROWS * K);
    build_put(s, 0, 4, none, TOK * USED * ROWS);
    build_put(s, 0, 6, none, TOK * ROWS);
    build_put(s, 0, 9, x, TOK * USED * K);
    build_put(s, 0, 8, logit, TOK * EXPERTS);
    for (int k = 0; k < 2; k++)
        build_put(s, 0, k ? 5 : 2, (const float *)(const void *)id[k],
                  TOK * USED);
}

static const struct gpu_device *gpu_of(struct device_set *s)
{
    return device_of(s, 0)->own;
}

static int n_sorting(struct device_set *s)
{
    const struct gpu_device *x = gpu_of(s);
    int n = 0;

    for (int i = 0; i < x->image.list.n; i++)
        n += x->image.list.launch[i].kernel == GPU_route_keys;
    return n;
}

/* Returns how often the program's GPU sorts, and its launches. Its %4 and %6
 * must have the CPU's bits. */
static int sorts(const char *steps, int *n_launch)
{
    struct arena a = {0};
    struct device_run run = build_run(TOK);
    float out[2][TOK * USED * ROWS], down[2][TOK * ROWS];
    char text[1000];
    struct cpu_kernels plain;
    int n = 0;

    cpu_kernels_init(&plain, KERNEL_SET_GENERIC);
    strcat(strcpy(text, head), steps);
    for (int k = 0; k < 2; k++) {
        struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                     .kernels = &plain};
        struct device_set *s = build_set_as(k ? "emu" : "cpu", 1, &opt);

        LOAD_OK(s, build_text(&a, text, 1));
        put_operands(s);
        RUN_OK(s, &run);
        build_get(s, 0, 4, out[k], TOK * USED * ROWS);
        build_get(s, 0, 6, down[k], TOK * ROWS);
        n = k ? n_sorting(s) : 0;
        *n_launch = k ? gpu_of(s)->image.list.n : 0;
        device_set_free(s);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_memory_equal(down[0], down[1], sizeof down[0]);
    arena_fini(&a);
    return n;
}

TEST(gpu_sorts_the_same_routes_once)
{
    int n;

    assert_int_equal(sorts("  0: %4 = expert_matmul(%0, %1, %2, -)\n", &n), 1);
    assert_int_equal(sorts("  0: %3 = scale(%3) scale=2\n"
                           "  0: %4 = expert_matmul(%0, %1, %2, -)\n"
                           "  0: %3 = expert_matmul(%0, %1, %2, -)\n",
                           &n),
                     1);
}

TEST(gpu_sorts_other_routes_anew)
{
    int n;

    /* other ids, or the same tensor of ids with new values */
    assert_int_equal(sorts("  0: %4 = expert_matmul(%0, %1, %5, -)\n", &n), 2);
    assert_int_equal(sorts("  0: %2 = contiguous(%5)\n"
                           "  0: %4 = expert_matmul(%0, %1, %2, -)\n",
                           &n),
                     2);
    /* the first sorting was for another kernel and used the same scratch */
    assert_int_equal(sorts("  0: %6 = expert_down(%9, %1, %2, -)\n"
                           "  0: %4 = expert_matmul(%0, %1, %2, -)\n",
                           &n),
                     3);
    /* a launch in between has used the scratch */
    assert_int_equal(sorts("  0: %7 = router_topk(%8) n_used=2\n"
                           "  0: %4 = expert_matmul(%0, %1, %2, -)\n",
                           &n),
                     2);
    /* work of another queue lies in between */
    assert_int_equal(sorts("  0 copy: %2 = contiguous(%5)\n"
                           "  0 copy: post 0\n"
                           "  0: wait 0.0\n"
                           "  0: %4 = expert_matmul(%0, %1, %2, -)\n",
                           &n),
                     2);
}

/* The sum over a token's experts is in its final place once the last one has
 * been added: sorting, and a launch each. */
TEST(gpu_sums_over_experts_are_not_copied)
{
    int n, gate;

    assert_int_equal(sorts("  0: %4 = scale(%3) scale=1\n", &gate), 1);
    assert_int_equal(sorts("  0: %4 = scale(%3) scale=1\n"
                           "  0: %6 = expert_down(%9, %1, %2, -)\n",
                           &n),
                     2);
    assert_int_equal(n - gate, 3 + USED);
}
