/* GPUs, whatever their driver: bytes on their way to them, marks between their
 * queues, and inboxes that kernels reach or do not. */
#include "lib/program_build.h"

#include "device/gpu/gpu_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* Weights of more bytes than an allocation has: cut between tensors, the fewest
 * times, and written, read and computed with as one region. */
TEST(gpu_weights_lie_in_several_allocations)
{
    enum { N = 5, ROWS = 128, BYTES = ROWS << 10, ALL = N * BYTES };
    struct device_set *s = build_set("parts", 1, 1);
    struct device_run run = build_run(1);
    const struct gpu_device *x;
    struct arena a = {0};
    uint64_t rng = test_seed();
    float *in = test_need(1, ALL), *out = test_need(1, ALL);
    char text[1024], *p = text;

    p += sprintf(p, "programs 1\nmax n_tok 1\ndevice 0\n");
    for (int i = 0; i < N; i++)
        p += sprintf(p, "  %%%d: f32[%d, 256] weights\n", i, ROWS);
    p += sprintf(p, "  %%%d: f32[%d, 256]\nscript\n", N, ROWS);
    sprintf(p, "  0: %%%d = scale(%%%d) scale=2\n", N, N - 1);
    for (int i = 0; i < ALL / 4; i++)
        in[i] = test_unit(&rng);
    LOAD_OK(s, build_text(&a, text, 1));
    x = device_of(s, 0)->own;
    assert_int_equal(x->image.n_cut, N - 1); /* two tensors are too much */
    assert_int_equal(device_write(s, 0, REGION_WEIGHTS, 0, in, ALL, NULL),
                     PL_OK);
    assert_int_equal(device_read(s, 0, REGION_WEIGHTS, 0, out, ALL, NULL),
                     PL_OK);
    assert_memory_equal(in, out, ALL);
    RUN_OK(s, &run);
    build_get(s, 0, N, out, BYTES / 4);
    for (int i = 0; i < BYTES / 4; i++)
        assert_true(out[i] == 2 * in[(N - 1) * BYTES / 4 + i]);
    device_set_free(s);
    free(in);
    free(out);
    arena_fini(&a);
}

/* What GPUs map shares no page with anything else, however small it is. */
TEST(gpu_maps_whole_pages_of_the_host)
{
    static const char *const devices[] = {"emu,cpu*1", "cpu*1,emu"};
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    for (int k = 0; k < 2; k++) {
        struct device_set *s = build_set(devices[k], 1, 1);
        const struct device *cpu = device_of(s, !k);
        struct arena a = {0};

        LOAD_OK(s, build_text(&a,
                              "programs 2\n"
                              "device 0 weights 100 cache 100\n"
                              "device 1 weights 100 cache 100\n"
                              "script\n",
                              2));
        assert_true(cpu->desc.memory == 0);
        for (int r = 0; r < REGION_COUNT; r++)
            assert_true((uintptr_t)cpu->at[r] % page == 0);
        assert_ptr_not_equal(cpu->at[REGION_WEIGHTS], cpu->at[REGION_CACHE]);
        device_set_free(s);
        arena_fini(&a);
    }
}

TEST(gpu_tensors_above_an_allocation_are_refused)
{
    struct device_set *s = build_set("parts", 1, 1);
    struct arena a = {0};
    pl_err err;

    assert_int_equal(device_set_load(s,
                                     build_text(&a,
                                                "programs 1\n"
                                                "device 0\n"
                                                "  %0: f32[4, 256] weights\n"
                                                "  %1: f32[208, 256] weights\n"
                                                "script\n",
                                                1),
                                     &err),
                     PL_NO_DEVICE_MEMORY);
    if (!strstr(err.message, "parts0: a tensor among its weights has 208") ||
        !strstr(err.message, "is promised 192") ||
        !strstr(err.message, "-sm tensor"))
        fail_msg("%s", err.message);
    device_set_free(s);
    arena_fini(&a);
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
