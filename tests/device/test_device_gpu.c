/* GPUs, whatever their driver: bytes on their way to them, marks between their
 * queues, and inboxes that kernels reach or do not. */
#include "lib/gpu_odd.h"
#include "lib/program_build.h"

#include "device/gpu/gpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {"emu", "bare"};
enum { N_KIND = sizeof kinds / sizeof kinds[0] };

/* More than staging holds, in writes of any size that overlap; where they came
 * from is free at once. */
TEST(gpu_writes_arrive_in_their_order)
{
    enum { BYTES = 5 * GPU_STAGE + 1234 };
    uint64_t rng = test_seed();
    unsigned char *want = test_need(1, BYTES), *have = test_need(1, BYTES);
    char text[128];

    snprintf(text, sizeof text, "programs 1\ndevice 0 weights %d\nscript\n",
             (int)BYTES);
    for (int k = 0; k < N_KIND; k++) {
        struct device_set *s = build_set(kinds[k], 1, test_random(&rng));
        struct arena a = {0};

        LOAD_OK(s, build_text(&a, text, 1));
        memset(want, 0xFF, BYTES);
        for (int i = 0; i < 40; i++) {
            int n = 1 + (int)test_below(&rng, i % 4 ? 5000 : BYTES / 2);
            int at = (int)test_below(&rng, BYTES - n);

            memset(have, i, (size_t)n);
            memset(want + at, i, (size_t)n);
            assert_int_equal(device_write(s, 0, REGION_WEIGHTS, (size_t)at,
                                          have, (size_t)n, NULL),
                             PL_OK);
            memset(have, 0xEE, (size_t)n);
        }
        for (int i = 0; i < 20; i++) {
            for (int half = 0; half < 2; half++) { /* of staging, each */
                memset(want, 2 * i + half, GPU_STAGE);
                assert_int_equal(device_write(s, 0, REGION_WEIGHTS, 0, want,
                                              GPU_STAGE, NULL),
                                 PL_OK);
            }
            assert_int_equal(
                device_read(s, 0, REGION_WEIGHTS, 0, have, BYTES, NULL), PL_OK);
            assert_memory_equal(have, want, BYTES);
        }
        device_set_free(s);
        arena_fini(&a);
    }
    free(want);
    free(have);
}

/* Before the copy queue waits for the compute queue's first event, which is
 * late, it posts more events that are waited for than a GPU has marks. */
TEST(gpu_marks_are_used_again)
{
    enum { EVENTS = GPU_MAX_MARKS + 20, LATE = 300 };
    struct arena a = {0};
    char *text = test_need(EVENTS + LATE + 20, 100), *p = text;
    struct program *prog;

    p += sprintf(p, "programs 2\nmax n_tok 1\n"
                    "device 0\n"
                    "  %%0: f32[n_tok, 8]\n"
                    "  %%1: f32[n_tok, 8]\n"
                    "device 1\n"
                    "  %%0: f32[n_tok, 8] inbox\n"
                    "  %%1: f32[n_tok, 8] inbox\n"
                    "  %%2: f32[n_tok, 65536]\n"
                    "script\n");
    for (int i = 0; i < LATE; i++)
        p += sprintf(p, "  1: %%2 = scale(%%2) scale=2\n");
    p += sprintf(p, "  1: post 0\n"
                    "  0: wait 1.0\n"
                    "  0: %%1 = scale(%%0) scale=2\n"
                    "  0: post 0\n");
    for (int i = 1; i <= EVENTS; i++)
        p += sprintf(p,
                     "  0 copy: push 1.%%0 <- %%0 32\n"
                     "  0 copy: post %d\n"
                     "  0: wait 0.%d\n",
                     i, i);
    sprintf(p, "  0 copy: wait 0.0\n"
               "  0 copy: push 1.%%1 <- %%1 32\n");
    prog = build_text(&a, text, 2);
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct device_set *s = build_set("emu,cpu", 1, seed);
        struct device_run run = build_run(1);
        float v[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];

        LOAD_OK(s, prog);
        build_put(s, 0, 0, v, 8);
        RUN_OK(s, &run);
        build_get(s, 1, 1, out, 8);
        for (int i = 0; i < 8; i++)
            assert_true(out[i] == 2 * v[i]);
        device_set_free(s);
    }
    free(text);
    arena_fini(&a);
}

/* What a device itself writes into its inbox is there for its kernels and for
 * whoever reads the region. */
TEST(gpu_inbox_is_its_owners_too)
{
    for (int k = 0; k < N_KIND; k++) {
        struct device_set *s = build_set(kinds[k], 1, 1);
        struct device_run run = build_run(2);
        struct arena a = {0};
        float v[16], out[16];

        for (int i = 0; i < 16; i++)
            v[i] = (float)i;
        LOAD_OK(s, build_text(&a,
                              "programs 1\n"
                              "max n_tok 2\n"
                              "device 0\n"
                              "  %0: f32[n_tok, 8]\n"
                              "  %1: f32[n_tok, 8] inbox\n"
                              "  %2: f32[n_tok, 8]\n"
                              "script\n"
                              "  0: %1 = scale(%0) scale=2\n"
                              "  0: %2 = scale(%1) scale=2\n",
                              1));
        build_put(s, 0, 0, v, 16);
        RUN_OK(s, &run);
        build_get(s, 0, 1, out, 16);
        for (int i = 0; i < 16; i++)
            assert_true(out[i] == 2 * v[i]);
        build_get(s, 0, 2, out, 16);
        for (int i = 0; i < 16; i++)
            assert_true(out[i] == 4 * v[i]);
        device_set_free(s);
        arena_fini(&a);
    }
}

/* An item means each GPU, one of them, or a number of devices. */
TEST(gpu_items_name_gpus)
{
    static const struct {
        const char *item;
        int n;
    } good[] = {{"emu", 1}, {"emu:0", 1}, {"emu*3", 3}, {"emu:0*2", 2}};
    static const struct {
        const char *item, *says;
    } bad[] = {{"emu:1", "there is no GPU 1; there are 1"},
               {"emu:2GiB", "\"2GiB\" is no number of a GPU"},
               {"emu:-1", "\"-1\" is no number of a GPU"},
               {"emu:99999999999999999999", "is no number of a GPU"}};
    struct device_list l;
    pl_err err;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        TEST_OK(device_parse(&l, good[i].item, 0, &err), err);
        assert_int_equal(l.n, good[i].n);
        assert_string_equal(l.dev[0].name, "emu0");
        assert_true(l.dev[0].index == 0 && l.dev[0].memory < 0);
        device_list_free(&l);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(device_parse(&l, bad[i].item, 0, &err),
                         PL_BAD_ARGUMENT);
        if (!strstr(err.message, bad[i].says))
            fail_msg("\"%s\" does not say \"%s\"", err.message, bad[i].says);
    }
}

/* ---- a GPU that hangs ---------------------------------------------------- */

/* 100 steps of a GPU and of a cpu, each of which waits for the other's. */
static struct program *hand_over(struct arena *a)
{
    char *text = test_need(500, 100), *p = text;
    struct program *prog;

    p += sprintf(p, "programs 2\nmax n_tok 1\n"
                    "device 0\n"
                    "  %%0: f32[n_tok, 8]\n"
                    "  %%1: f32[n_tok, 8] inbox\n"
                    "device 1\n"
                    "  %%0: f32[n_tok, 8]\n"
                    "  %%1: f32[n_tok, 8] inbox\n"
                    "script\n");
    for (int i = 0; i < 100; i++)
        p += sprintf(p, "  0: %%0 = scale(%%0) scale=1\n");
    p += sprintf(p, "  0: push 1.%%1 <- %%0 32\n"
                    "  0: post 0\n"
                    "  1: wait 0.0\n"
                    "  1: %%0 = scale(%%1) scale=1\n"
                    "  1: push 0.%%1 <- %%0 32\n"
                    "  1: post 0\n"
                    "  0: wait 1.0\n"
                    "  0: %%0 = scale(%%1) scale=1\n");
    prog = build_text(a, text, 2);
    free(text);
    return prog;
}

static struct device_set *hung_set(struct arena *a)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .gpu_limit_s = 0.2};
    struct device_set *s = build_set_as("hung,cpu*1", 1, &opt);

    LOAD_OK(s, hand_over(a));
    return s;
}

static void says(const pl_err *err, const char *what)
{
    if (!strstr(err->message, what))
        fail_msg("\"%s\" does not say \"%s\"", err->message, what);
}

/* A run with a GPU that hangs after n kernels ends, names it and where it was,
 * and nothing is asked of its driver any more. */
static void hang_after(int n, const char *where)
{
    const float one[8] = {1};
    struct arena a = {0};
    struct device_set *s;
    struct device_run run = build_run(1);
    double begin;
    float v[8];
    pl_err err;

    gpu_hung.n_left = 1 << 30;
    gpu_hung.n_call = 0;
    s = hung_set(&a);
    build_put(s, 0, 0, one, 8);
    RUN_OK(s, &run);
    gpu_hung.n_left = n;
    begin = device_now();
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    assert_true(device_now() - begin < 10);
    says(&err, "hung0 hangs: it has done nothing for 0.2 s");
    says(&err, where);
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    says(&err, "hung0 has hung before");
    assert_int_equal(device_write(s, 0, REGION_WORK, 0, one, sizeof one, &err),
                     PL_DEVICE);
    assert_int_equal(device_read(s, 0, REGION_WORK, 0, v, sizeof v, &err),
                     PL_DEVICE);
    device_set_free(s);
    assert_int_equal(gpu_hung.n_call, 0);
    arena_fini(&a);
}

/* It is noticed where the GPU is waited for, and where others are that wait for
 * it themselves. */
TEST(gpu_that_hangs_ends_the_run_and_is_left_alone)
{
    hang_after(102, "steps 64 to 103");
    hang_after(80, "steps 64 to 102");
    hang_after(10, "steps 0 to 63");
}

/* Before a run too, when what was written is waited for. */
TEST(gpu_that_hangs_is_found_between_runs)
{
    struct arena a = {0};
    struct device_run run = build_run(1);
    struct device_set *s;
    float v[8] = {0};
    pl_err err;

    gpu_hung.n_left = 1 << 30;
    gpu_hung.n_call = 0;
    s = hung_set(&a);
    build_put(s, 0, 0, v, 8);
    gpu_hung.n_left = 0;
    assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
    says(&err, "hung0 hangs: it has done nothing for 0.2 s;");
    device_set_free(s);
    assert_int_equal(gpu_hung.n_call, 0);
    arena_fini(&a);
}

/* ---- a GPU that differs -------------------------------------------------- */

static pl_status load_wrong(int kernel, bool inexact, uint64_t *differs,
                            pl_err *err)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .inexact = inexact};
    struct device_set *s = build_set_as("wrong", 1, &opt);
    struct arena a = {0};
    pl_status st;

    gpu_wrong_kernel = kernel;
    st = device_set_load(s,
                         build_text(&a,
                                    "programs 1\n"
                                    "max n_tok 1\n"
                                    "device 0\n"
                                    "  %0: f32[n_tok, 8]\n"
                                    "script\n"
                                    "  0: %0 = scale(%0) scale=2\n",
                                    1),
                         err);
    *differs = device_set_differs(s);
    device_set_free(s);
    arena_fini(&a);
    gpu_wrong_kernel = GPU_KERNEL_COUNT;
    return st;
}

/* One bit is enough, in any operation or in a kernel that the program has; with
 * `inexact` it runs, and is known. */
TEST(gpu_that_differs_is_refused_by_name)
{
    uint64_t differs;
    pl_err err;

    TEST_OK(load_wrong(GPU_KERNEL_COUNT, false, &differs, &err), err);
    assert_true(differs == 0);
    TEST_OK(load_wrong(GPU_softmax, false, &differs, &err), err);
    assert_true(differs == 0);
    assert_int_equal(load_wrong(GPU_probe, false, &differs, &err), PL_DEVICE);
    says(&err, "wrong0 fails its self test: kernel probe, plain sum gives");
    assert_int_equal(load_wrong(GPU_unary, false, &differs, &err), PL_DEVICE);
    says(&err, "kernel unary gives");
    says(&err, "--inexact");
    TEST_OK(load_wrong(GPU_unary, true, &differs, &err), err);
    assert_true(differs != 0);
}
