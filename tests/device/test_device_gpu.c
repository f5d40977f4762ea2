/* GPUs, whatever their driver: bytes on their way to them, marks between their
 * queues, and inboxes that kernels reach or do not. */
#include "lib/program_build.h"

#include "device/gpu/gpu_device.h"
#include "lib/command.h"

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

/* The bench runs through, on an emulated GPU and with tiny sizes. */
TEST(gpu_bench_measures_all_that_it_names)
{
    static const char *const row[] = {
        "copy_on_device",    "launch_to_launch",     "matvec_Q8_0_",
        "matvec_Q4_K_",      "matmul_BF16_",         "attention_f16_decode_",
        "queues_wait_for_e", "attention_f16_prompt_"};
    char line[5000];
    struct ran r;

    snprintf(line, sizeof line, "%s", command_path());
    assert_non_null(strrchr(line, '/'));
    strcpy(strrchr(line, '/') + 1, "bench-gpu");
    if (access(line, X_OK) != 0)
        TEST_SKIP("%s is not built", line);
    strcat(line, " -t emu");
    r = sh(0, line);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (!strstr(r.out, row[i]))
            fail_msg("no row %s: %s", row[i], r.out);
    strcpy(strstr(line, " -t"), " -t emu:9");
    must_say(sh(1, line), "emu has 1 GPUs here");
    strcpy(strstr(line, " -t"), " -t nix");
    must_say(sh(1, line), "a driver is cuda, opencl or emu");
}
