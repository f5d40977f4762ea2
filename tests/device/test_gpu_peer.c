/* GPUs that write into each other's memory, and GPUs that cannot. Pushed data
 * arrives either way, whichever other devices push too, and nothing is written
 * into freed memory. */
#include "lib/fake_cuda_use.h"
#include "lib/gpu_odd.h"
#include "lib/gpu_watched.h"
#include "lib/program_build.h"

#include "device/gpu/gpu_device.h"

#include <stdlib.h>
#include <string.h>

/* numbers of rows, of which MANY take a long time, and their width */
enum { FEW = 2, MANY = 300, WIDTH = 64 };

/* Values go from device 0 to device 1 and back: at the end %2 of device 0 is 6
 * times its %0. */
#define RETURNS                                                                \
    "programs 2\nmax n_tok 400\n"                                              \
    "device 0\n"                                                               \
    "  %0: f32[n_tok, 64]\n"                                                   \
    "  %1: f32[n_tok, 64] inbox\n"                                             \
    "  %2: f32[n_tok, 64]\n"                                                   \
    "device 1\n"                                                               \
    "  %0: f32[n_tok, 64] inbox\n"                                             \
    "  %1: f32[n_tok, 64] inbox\n"                                             \
    "  %2: f32[n_tok, 64]\n"                                                   \
    "  %3: f32[n_tok, 64]\n"                                                   \
    "  %4: f32[n_tok, 64]\n"                                                   \
    "variant\n"                                                                \
    "  0: push 1.%0, 1.%1 <- %0 256*n_tok\n"                                   \
    "  0: post 0\n"                                                            \
    "  1: wait 0.0\n"                                                          \
    "  1: %2 = scale(%0) scale=2\n"                                            \
    "  1: merge %3 <- %1 256*n_tok\n"                                          \
    "  1: merge %4 <- sum(%2, %1+) 256*n_tok\n"                                \
    "  1: post 0\n"                                                            \
    "  1 copy: wait 1.0\n"                                                     \
    "  1 copy: push 0.%1 <- %4 256*n_tok\n"                                    \
    "  1 copy: post 1\n"                                                       \
    "  0: wait 1.1\n"                                                          \
    "  0: %2 = scale(%1) scale=2\n"

/* Two devices push to two tensors of device 1, both of them to one. */
#define SHARED                                                                 \
    "programs 3\nmax n_tok 400\n"                                              \
    "device 0\n"                                                               \
    "  %0: f32[n_tok, 64]\n"                                                   \
    "device 1\n"                                                               \
    "  %0: f32[n_tok, 128] inbox\n"                                            \
    "  %1: f32[n_tok, 64] inbox\n"                                             \
    "  %2: f32[n_tok, 128]\n"                                                  \
    "  %3: f32[n_tok, 64]\n"                                                   \
    "device 2\n"                                                               \
    "  %0: f32[n_tok, 64]\n"                                                   \
    "variant\n"                                                                \
    "  0: push 1.%0 <- %0 256 x n_tok(256, 512)\n"                             \
    "  0: push 1.%1 <- %0 256*n_tok\n"                                         \
    "  0: post 0\n"                                                            \
    "  2: push 1.%0@256 <- %0 256 x n_tok(256, 512)\n"                         \
    "  2: post 0\n"                                                            \
    "  1: wait 0.0, 2.0\n"                                                     \
    "  1: %2 = scale(%0) scale=2\n"                                            \
    "  1: %3 = scale(%1) scale=3\n"

/* Programs in which device 0 pushes to device 1 and receives nothing. */
#define ONE_WAY                                                                \
    "programs 2\nmax n_tok 400\n"                                              \
    "device 0\n"                                                               \
    "  %0: f32[n_tok, 64]\n"                                                   \
    "device 1\n"                                                               \
    "  %0: f32[n_tok, 64] inbox\n"                                             \
    "  %1: f32[n_tok, 64]\n"                                                   \
    "variant\n"                                                                \
    "  0: push 1.%0 <- %0 256*n_tok\n"                                         \
    "  0: post 0\n"                                                            \
    "  1: wait 0.0\n"                                                          \
    "  1: %1 = scale(%0) scale=2\n"

/* Device 1 reads pushed data as a part of another tensor, whose declared size
 * is that of one entry. */
#define PARTS                                                                  \
    "programs 2\nmax n_tok 400\n"                                              \
    "device 0\n"                                                               \
    "  %0: f32[n_tok, 64]\n"                                                   \
    "device 1\n"                                                               \
    "  %0: f32[n_tok, 64] inbox @0\n"                                          \
    "  %1: f32[n_tok, 64] inbox @204800\n"                                     \
    "  %2: f32[n_tok, 64] work @0\n"                                           \
    "variant\n"                                                                \
    "  0: push 1.%0@204800 <- %0 256*n_tok\n"                                  \
    "  0: post 0\n"                                                            \
    "  1: wait 0.0\n"                                                          \
    "  1: %2 = scale(%1) scale=2\n"

static float *ramp(int n, int from)
{
    float *v = test_need((size_t)n, sizeof *v);

    for (int i = 0; i < n; i++)
        v[i] = (float)(i + from);
    return v;
}

static void run_there_and_back(struct device_set *s, int n_tok)
{
    struct device_run run = build_run(n_tok);
    int n = WIDTH * n_tok;
    float *v = ramp(n, n_tok), *got = test_need((size_t)n, sizeof *got);

    build_put(s, 0, 0, v, n);
    gpu_watch_reset();
    RUN_OK(s, &run);
    build_get(s, 0, 2, got, n);
    for (int i = 0; i < n; i++)
        if (got[i] != 6 * v[i])
            fail_msg("%d rows: %g at %d, not %g", n_tok, (double)got[i], i,
                     (double)(6 * v[i]));
    free(got);
    free(v);
}

/* Steps of few rows repeat often enough to become graphs. */
static void run_all(struct device_set *s)
{
    static const int rows[] = {FEW, FEW, FEW, MANY, FEW, 1, 1, 1, MANY};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_there_and_back(s, rows[i]);
}

/* Nothing is copied from the host into a device-side inbox, and no kernel is
 * given the host's memory. */
TEST(gpu_peers_write_into_mirrors)
{
    static const int rows[] = {FEW, MANY};

    for (int apart = 0; apart < 2; apart++) {
        struct device_set *s;
        struct arena a = {0};

        gpu_watch_apart = apart;
        s = build_set("watched*2", 1, 1);
        LOAD_OK(s, build_text(&a, RETURNS, 2));
        for (int i = 0; i < 2; i++) {
            struct gpu_watched w;

            run_there_and_back(s, rows[i]);
            w = gpu_watch_seen();
            assert_int_equal(w.n_worked, 0);
            assert_int_equal(w.n_write > 0, apart);
            assert_int_equal(w.n_carried + w.n_summed > 0,
                             apart && rows[i] == FEW);
        }
        device_set_free(s);
        arena_fini(&a);
    }
    gpu_watch_apart = false;
}

/* Devices have pushed values whatever order the queues run in, with and without
 * peer access. */
TEST(gpu_peers_get_what_is_pushed)
{
    for (uint64_t seed = 0; seed < 16; seed++) {
        struct device_set *s = build_set("emu*2", 1, seed);
        struct arena a = {0};

        LOAD_OK(s, build_text(&a, RETURNS, 2));
        run_all(s);
        device_set_free(s);
        arena_fini(&a);
    }
}

static void run_shared(struct device_set *s, int n_tok)
{
    struct device_run run = build_run(n_tok);
    int n = WIDTH * n_tok;
    float *v = ramp(n, 1), *w = ramp(n, 1000);
    float *got = test_need((size_t)n, 2 * sizeof *got);

    build_put(s, 0, 0, v, n);
    build_put(s, 2, 0, w, n);
    RUN_OK(s, &run);
    build_get(s, 1, 2, got, 2 * n);
    for (int i = 0; i < n; i++) {
        const float *row = got + i / WIDTH * 2 * WIDTH;

        assert_true(row[i % WIDTH] == 2 * v[i] &&
                    row[WIDTH + i % WIDTH] == 2 * w[i]);
    }
    build_get(s, 1, 3, got, n);
    for (int i = 0; i < n; i++)
        assert_true(got[i] == 3 * v[i]);
    free(got);
    free(w);
    free(v);
}

/* If a device that cannot access the device-side inbox pushes to a tensor, all
 * of the tensor goes through the host. */
TEST(gpu_peers_share_an_inbox_with_others)
{
    static const char *const spec[] = {
        "watched*2,cpu*1", "cpu*1,watched*2", "emu*3",
        "bare*2,emu",      "cuda:0*2,cpu*1",  "cuda:0,cuda:2,cuda:3"};

    fake_cuda_use();
    for (size_t k = 0; k < sizeof spec / sizeof *spec; k++) {
        struct device_set *s = build_set(spec[k], 1, k);
        struct arena a = {0};

        LOAD_OK(s, build_text(&a, SHARED, 3));
        for (int i = 0; i < 4; i++)
            run_shared(s, i % 2 ? FEW : MANY);
        device_set_free(s);
        arena_fini(&a);
    }
}

/* Tensors of the inbox overlap, so that reading one reads bytes of another. */
TEST(gpu_peers_read_parts_of_what_is_pushed)
{
    static const char *const spec[] = {"emu*2", "bare*2", "emu,cpu*1",
                                       "cpu*1,emu", "cuda:0,cuda:2"};

    fake_cuda_use();
    for (size_t k = 0; k < sizeof spec / sizeof *spec; k++)
        for (int n_tok = FEW; n_tok <= MANY; n_tok += MANY - FEW) {
            struct device_set *s = build_set(spec[k], 1, k);
            struct device_run run = build_run(n_tok);
            int n = WIDTH * n_tok;
            float *v = ramp(n, 1), *got = test_need((size_t)n, sizeof *got);
            struct arena a = {0};

            LOAD_OK(s, build_text(&a, PARTS, 2));
            build_put(s, 0, 0, v, n);
            RUN_OK(s, &run);
            build_get(s, 1, 2, got, n);
            for (int i = 0; i < n; i++)
                if (got[i] != 2 * v[i])
                    fail_msg("%s, %d rows: %g at %d, not %g", spec[k], n_tok,
                             (double)got[i], i, (double)(2 * v[i]));
            free(got);
            free(v);
            device_set_free(s);
            arena_fini(&a);
        }
}

/* ---- CUDA ---------------------------------------------------------------- */

/* Runs steps of any length, then counts the calls in one more. Calls of
 * cuMemcpyHtoDAsync show that bytes come from the host. */
static int calls_of(const struct fake_cuda *f, const char *spec,
                    const char *call)
{
    struct device_set *s = build_set(spec, 1, 1);
    struct device_run run = build_run(MANY);
    struct arena a = {0};
    int n;

    LOAD_OK(s, build_text(&a, RETURNS, 2));
    run_all(s);
    n = f->n_call(call);
    RUN_OK(s, &run);
    n = f->n_call(call) - n;
    device_set_free(s);
    arena_fini(&a);
    fake_cuda_assert_clean(f, spec);
    return n;
}

static bool brings(const struct fake_cuda *f, const char *spec)
{
    return calls_of(f, spec, "cuMemcpyHtoDAsync") > 0;
}

/* Two devices on one card, on two cards, and on cards without peer access. */
TEST(gpu_peers_of_cuda_are_those_that_it_names)
{
    const struct fake_cuda *f = fake_cuda_use();

    assert_false(brings(f, "cuda:0*2"));
    assert_false(brings(f, "cuda:0,cuda:2"));
    assert_false(brings(f, "cuda:2,cuda:0"));
    assert_true(brings(f, "cuda:0,cuda:3"));
    assert_true(brings(f, "cuda:3,cuda:2"));
}

/* A fake CUDA library reports peer access, but drops writes to peers. */
TEST(gpu_peers_of_cuda_are_tried)
{
    const struct fake_cuda *f = fake_cuda_use();

    f->swallow(true);
    assert_true(brings(f, "cuda:0,cuda:2"));
    f->swallow(false);
}

/* HIP has special memory for writes by peers, which the driver requests from
 * the fake library. Pushes to a device without it go through the host. */
TEST(gpu_peers_of_hip_write_into_memory_for_peers)
{
    const struct fake_cuda *f = fake_hip_use();
    int with = calls_of(f, "hip:0,hip:2", "hipMemcpyAsync"), without;

    f->break_at("hipExtMallocWithFlags", 1, 801);
    without = calls_of(f, "hip:0,hip:2", "hipMemcpyAsync");
    assert_true(f->failed());
    f->break_at(NULL, 0, 0);
    assert_true(without > with);
}

/* ---- the switch ---------------------------------------------------------- */

static void set_switch(const char *to)
{
    assert_int_equal(to ? setenv("PLAIT_PEER", to, 1) : unsetenv("PLAIT_PEER"),
                     0);
}

/* PLAIT_PEER=0: bytes go through the host, and no driver is asked for
 * access. */
TEST(gpu_peers_are_turned_off_by_the_environment)
{
    const struct fake_cuda *f = fake_cuda_use();
    struct arena a = {0};
    struct device_set *s;
    int n;
    pl_err err;

    set_switch("0");
    n = f->n_call("cuCtxEnablePeerAccess");
    assert_true(brings(f, "cuda:0*2"));
    assert_true(brings(f, "cuda:0,cuda:2"));
    assert_int_equal(f->n_call("cuCtxEnablePeerAccess"), n);
    set_switch("1");
    assert_false(brings(f, "cuda:0,cuda:2"));
    set_switch("");
    assert_false(brings(f, "cuda:0,cuda:2"));
    set_switch("off");
    s = build_set("emu*2", 1, 1);
    assert_int_equal(device_set_load(s, build_text(&a, RETURNS, 2), &err),
                     PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "PLAIT_PEER=off"));
    set_switch(NULL);
    device_set_free(s);
    arena_fini(&a);
}

/* ---- a GPU that hangs ---------------------------------------------------- */

/* Memory that a lost GPU may still write is not freed, though its owner
 * works. */
TEST(gpu_peers_keep_what_a_lost_one_writes)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .gpu_limit_s = 0.1};
    struct device_run run = build_run(FEW);
    struct arena a = {0};
    struct device_set *s;
    pl_err err;

    for (int lost = 0; lost < 2; lost++) {
        gpu_hung_begin();
        s = build_set_as("hung*2", 1, &opt);
        LOAD_OK(s, build_text(&a, RETURNS, 2));
        run_there_and_back(s, FEW);
        gpu_hung.watched =
            ((struct gpu_device *)device_of(s, 1)->own)->region[REGION_INBOX];
        gpu_hung.n_left = lost ? 0 : 1 << 30;
        if (lost) {
            assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
            assert_non_null(strstr(err.message, "hung0 hangs"));
        }
        device_set_free(s);
        assert_int_equal(gpu_hung.watched == 0, !lost);
    }
    gpu_hung_end();
    arena_fini(&a);
}

/* Memory that a lost GPU may still write is also kept if it is lost while the
 * pair is tested, before any push. */
TEST(gpu_peers_keep_what_a_lost_one_tries)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .gpu_limit_s = 0.1};
    struct arena a = {0};
    struct device_set *s;
    pl_err err;

    gpu_hung_begin();
    s = build_set_as("hung*2", 1, &opt);
    gpu_hung.at_copy = gpu_hung.watches = true;
    assert_int_equal(device_set_load(s, build_text(&a, ONE_WAY, 2), &err),
                     PL_DEVICE);
    assert_non_null(strstr(err.message, "hung0 hangs"));
    device_set_free(s);
    gpu_hung.at_copy = false;
    gpu_hung_end();
    assert_false(gpu_hung.watches);
    assert_int_not_equal(gpu_hung.watched, 0);
    arena_fini(&a);
}

/* Two devices of one GPU: if one hangs, the driver would wait for it when the
 * other frees anything. */
TEST(gpu_peers_on_one_gpu_are_lost_together)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                 .gpu_limit_s = 0.1};
    struct device_run run = build_run(FEW);
    struct arena a = {0};
    pl_err err;

    for (int one = 0; one < 2; one++) {
        struct device_list l;
        struct device_set *s;

        gpu_hung_begin();
        TEST_OK(device_parse(&l, "hung*2", 1, &err), err);
        for (int i = 0; i < 2; i++)
            strcpy(l.dev[i].bus, one || i ? "0000:3b:00.0" : "0000:3c:00.0");
        s = build_set_of(&l, &opt);
        device_list_free(&l);
        LOAD_OK(s, build_text(&a, RETURNS, 2));
        gpu_hung.watched =
            ((struct gpu_device *)device_of(s, 1)->own)->region[REGION_WORK];
        gpu_hung.n_left = 0;
        assert_int_equal(device_set_run(s, &run, &err), PL_DEVICE);
        device_set_free(s);
        assert_int_equal(gpu_hung.watched != 0, one);
    }
    gpu_hung_end();
    arena_fini(&a);
}
