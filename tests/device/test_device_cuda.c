/* The GPU driver over a fake CUDA library (lib/fake_cuda.c), whose devices run
 * the kernels' source in the emulator. Keeps the promises of CUDA alone: device
 * enumeration, kernel source, contexts, words and mapped memory.
 * test_device_stream.c has those shared with HIP. */
#include "lib/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/gpu/driver_stream.h"
#include "device/gpu/gpu_launch.h"
#include "device/gpu/stream_api.h"
#include "lib/fake_cuda_use.h"
#include "lib/gpu_work.h"

enum { PAGE = 4096, UNKNOWN = 999 };

static const struct gpu_driver *const d = &gpu_cuda;

static void assert_clean(const struct fake_cuda *f)
{
    fake_cuda_assert_clean(f, "in the end");
}

/* ---- finding ------------------------------------------------------------- */

TEST(cuda_without_its_library_names_it)
{
    struct gpu_info info[FAKE_COUNT];
    struct gpu *g;
    pl_err err;
    int n;

    assert_int_equal(setenv("PLAIT_LIBCUDA", "/nowhere/libcuda.so.1", 1), 0);
    assert_int_equal(d->list(info, FAKE_COUNT, &n, &err), PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "/nowhere/libcuda.so.1"));
    assert_int_equal(d->open(&g, 0, &err), PL_UNSUPPORTED);
    assert_null(g);
    assert_int_equal(setenv("PLAIT_LIBCUDA", "libm.so.6", 1), 0);
    assert_int_equal(d->list(info, FAKE_COUNT, &n, &err), PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "libm.so.6 has no cuInit"));
}

/* The list is made without a context, so it takes nothing from any device. */
TEST(cuda_lists_devices_by_its_own_numbers)
{
    static const unsigned all = (1 << GPU_FEATURES) - 1, fits = 1 << GPU_DOT4;
    static const unsigned has[] = {all, 1 << GPU_MAPS, fits | 1 << GPU_MAPS,
                                   fits | 1 << GPU_MMA | 1 << GPU_WORDS};
    const struct fake_cuda *f = fake_cuda_use();
    int n_context = f->n_call("cuDevicePrimaryCtxRetain");
    struct gpu_info info[FAKE_COUNT];
    pl_err err;
    int n;

    TEST_OK(d->list(info, FAKE_COUNT, &n, &err), err);
    assert_int_equal(n, FAKE_COUNT);
    for (int i = 0; i < n; i++) {
        assert_int_equal(info[i].index, i);
        assert_int_equal(info[i].total_bytes, (uint64_t)8 << 30);
        assert_int_equal(info[i].available_bytes, 0);
        assert_int_equal(info[i].n_unit, 100 + i);
        assert_true(info[i].mem_bytes_per_s == 512e9);
        assert_int_equal(info[i].has, has[i]);
        assert_int_equal(info[i].why[0] != '\0', i == FAKE_OLD);
    }
    assert_non_null(strstr(info[FAKE_OLD].why, "is 5.2, and the kernels need"));
    assert_string_equal(info[0].title, "Fake 9.0");
    assert_string_equal(info[0].bus, "0000:3b:00.0");
    assert_string_equal(info[0].version, "CUDA 12.4, compute 9.0");
    assert_true(info[0].float_macs_per_s == 128.0 * 100 * 1e9);
    assert_true(info[3].float_macs_per_s == 64.0 * 103 * 1e9);
    assert_int_equal(f->n_call("cuDevicePrimaryCtxRetain"), n_context);
    TEST_OK(d->list(info, 1, &n, &err), err);
    assert_int_equal(n, 1);
    f->break_at("cuInit", 1, API_NO_DEVICE);
    TEST_OK(d->list(info, FAKE_COUNT, &n, &err), err);
    assert_int_equal(n, 0);
    f->break_at(NULL, 0, 0);
    assert_clean(f);
}

TEST(cuda_has_ptx_of_every_kernel)
{
    static const int level[] = {61, 80};

    assert_false(cuda_has_text(60));
    for (int i = 0; i < 2; i++) {
        struct cuda_text t;
        pl_err err;

        TEST_OK(cuda_text_init(&t, level[i], &err), err);
        for (int k = 0; k < GPU_KERNEL_COUNT; k++) {
            const char *name = gpu_kernel_name((enum gpu_kernel)k);
            char want[256], *program;

            TEST_OK(cuda_text_program(&t, (enum gpu_kernel)k, &program, &err),
                    err);
            snprintf(want, sizeof want,
                     ".visible .entry %s(\n"
                     "\t.param .align 8 .b8 %s_param_0[%zu]\n"
                     ")\n"
                     ".maxntid %d, 1, 1\n",
                     name, name, gpu_kernel_args((enum gpu_kernel)k),
                     gpu_kernel_lanes((enum gpu_kernel)k));
            if (!strstr(program, want))
                fail_msg("compute_%d: no kernel %s with these arguments and "
                         "lanes: make ptx",
                         level[i], name);
            assert_ptr_equal(strstr(program, ".version "), program);
            assert_ptr_equal(strstr(program, "\n}\n"),
                             program + strlen(program) - 3);
            free(program);
        }
        cuda_text_fini(&t);
    }
}

/* Kernels wait for the launches before them and do nothing before that; only on
 * devices whose launches overlap. */
TEST(cuda_text_awaits_what_overlaps)
{
    static const char *const early[] = {"\tld.global", "\tld.shared", "\tst.",
                                        "\tbar.", "\tatom."};
    struct cuda_text now, before;
    char *text, *text_before;
    const char *wait;
    pl_err err;

    TEST_OK(cuda_text_init(&now, 90, &err), err);
    TEST_OK(cuda_text_init(&before, 89, &err), err);
    for (enum gpu_kernel k = 0; k < GPU_KERNEL_COUNT; k++) {
        TEST_OK(cuda_text_program(&now, k, &text, &err), err);
        TEST_OK(cuda_text_program(&before, k, &text_before, &err), err);
        wait = strstr(text, "griddepcontrol.wait;");
        assert_non_null(strstr(text, ".target sm_90\n"));
        assert_non_null(strstr(text_before, ".target sm_80\n"));
        assert_int_equal(strlen(text), strlen(text_before));
        assert_null(strstr(text, "90*"));
        assert_non_null(wait);
        assert_null(strstr(wait + 1, "griddepcontrol.wait;"));
        assert_non_null(strstr(wait, "griddepcontrol.launch_dependents;"));
        assert_non_null(strstr(text_before, "/*90 griddepcontrol.wait; 90*/"));
        for (size_t i = 0; i < sizeof early / sizeof *early; i++) {
            const char *at = strstr(text, early[i]);

            if (at && at < wait)
                fail_msg("kernel %s: %.20s before it waits", gpu_kernel_name(k),
                         at);
        }
        free(text);
        free(text_before);
    }
    cuda_text_fini(&now);
    cuda_text_fini(&before);
}

/* ---- working ------------------------------------------------------------- */

/* A thread that works for one GPU only makes its context current once. */
TEST(cuda_takes_its_context_once)
{
    const struct fake_cuda *f = fake_cuda_use();
    struct gpu_work w;
    pl_err err;
    int n;

    gpu_work_init(&w, d);
    TEST_OK(gpu_work_take(&w, FAKE_NEW, &err), err);
    TEST_OK(d->compile_kernels(w.g, gpu_work_wanted, 2,
                               &(struct gpu_progress){0}, &err),
            /* compiles on threads of its own, which enter the device
             * themselves */
            err);
    TEST_OK(d->enter(w.g, &err), err);
    n = f->n_call("cuCtxPushCurrent") + f->n_call("cuCtxPopCurrent");
    TEST_OK(gpu_work_do(&w, &err), err);
    assert_int_equal(
        f->n_call("cuCtxPushCurrent") + f->n_call("cuCtxPopCurrent"), n);
    d->leave(w.g);
    f->break_at("cuCtxPushCurrent", 1, UNKNOWN);
    assert_int_equal(d->enter(w.g, &err), PL_DEVICE);
    f->break_at(NULL, 0, 0);
    /* enter failed, so finish enters the device by itself */
    TEST_OK(d->finish(w.g, QUEUE_COPY, &err), err);
    gpu_work_give_back(&w);
    gpu_work_fini(&w);
    assert_clean(f);
}

/* Posting a word reports an error on a device whose streams cannot write
 * words. */
TEST(cuda_posts_nothing_on_devices_without_words)
{
    const struct fake_cuda *f = fake_cuda_use();
    int n_write = f->n_call("cuStreamWriteValue64");
    struct gpu_work w;
    struct binary_args a;
    pl_err err;

    gpu_work_init(&w, d);
    TEST_OK(gpu_work_take(&w, FAKE_PLAIN, &err), err);
    a = gpu_work_sum(w.at[2], w.at[0], w.at[1]);
    TEST_OK(d->launch(w.g, QUEUE_COMPUTE, GPU_binary, 4, &a, &err), err);
    TEST_OK(d->read(w.g, QUEUE_COMPUTE, w.out, w.at[2], 4, &err), err);
    assert_false(d->has_mem_ops(w.g));
    assert_int_equal(d->signal_word(w.g, QUEUE_COMPUTE, w.shared, 3, &err),
                     PL_UNSUPPORTED);
    assert_int_equal(f->n_call("cuStreamWriteValue64"), n_write);
    assert_int_equal(d->wait_word(w.g, QUEUE_COMPUTE, w.shared, 3, &err),
                     PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "cuda:2"));
    gpu_work_give_back(&w);
    gpu_work_fini(&w);
    assert_clean(f);
}

/* Kernels that were announced are compiled before their launch, once, on
 * threads of their own; others when they are launched. */
TEST(cuda_compiles_what_is_wanted)
{
    const struct fake_cuda *f = fake_cuda_use();
    bool want[GPU_KERNEL_COUNT] = {[GPU_unary] = true, [GPU_sum] = true};
    int before = f->n_call("cuModuleLoadDataEx");
    struct binary_args a;
    struct gpu_work w;
    pl_err err;

    gpu_work_init(&w, d);
    TEST_OK(gpu_work_take(&w, FAKE_NEW, &err), err);
    TEST_OK(d->compile_kernels(w.g, want, 64, &(struct gpu_progress){0}, &err),
            err);
    assert_int_equal(f->n_call("cuModuleLoadDataEx"), before + 2);
    want[GPU_rope] = true;
    TEST_OK(d->compile_kernels(w.g, want, 1, &(struct gpu_progress){0}, &err),
            err);
    assert_int_equal(f->n_call("cuModuleLoadDataEx"), before + 3);
    a = gpu_work_sum(w.at[2], w.at[0], w.at[1]);
    for (int i = 0; i < 2; i++)
        TEST_OK(d->launch(w.g, QUEUE_COMPUTE, GPU_binary, 4, &a, &err), err);
    assert_int_equal(f->n_call("cuModuleLoadDataEx"), before + 4);
    gpu_work_give_back(&w);
    gpu_work_fini(&w);
    assert_clean(f);
}

static void count_told(void *user, const char *what, uint64_t done,
                       uint64_t total)
{
    uint64_t *n = user;

    assert_string_equal(what, "compiling kernels");
    assert_true(done >= n[1] && done <= total);
    n[0]++;
    n[1] = done;
}

/* Compiles on threads of its own, or on the calling thread. */
TEST(cuda_tells_of_compiling)
{
    const bool want[GPU_KERNEL_COUNT] = {[GPU_unary] = true, [GPU_sum] = true};
    const struct fake_cuda *f = fake_cuda_use();
    pl_err err;

    for (int n_thread = 0; n_thread < 4; n_thread++) {
        int before = f->n_call("cuModuleLoadDataEx");
        uint64_t told[2] = {0};
        struct gpu_progress p = {.fn = count_told, .user = told, .total = 2};
        struct gpu *g;

        TEST_OK(d->open(&g, FAKE_NEW, &err), err);
        TEST_OK(d->compile_kernels(g, want, n_thread, &p, &err), err);
        assert_int_equal(f->n_call("cuModuleLoadDataEx"), before + 2);
        assert_true(told[0] > 0);
        assert_true(n_thread > 0 || told[1] == 2);
        d->close(g);
    }
    assert_clean(f);
}

/* ---- two at a time ------------------------------------------------------- */

enum { ROUNDS = 30 };

struct player {
    struct gpu *g;
    /* words in shared memory: the one that this GPU writes, and its peer's */
    _Atomic uint64_t *own, *peer;
    /* device addresses of each player's floats in mapped memory */
    uint64_t mine, theirs;
    pl_status s;
    pl_err err;
};

/* Each number is the other device's number of the round before, plus one. */
static pl_status play(struct player *p)
{
    uint64_t one;
    const float unit = 1;

    PL_TRY(d->alloc(p->g, sizeof(float), &one, &p->err));
    PL_TRY(d->write(p->g, QUEUE_COMPUTE, one, &unit, sizeof unit, &p->err));
    for (uint64_t r = 1; r <= ROUNDS; r++) {
        struct binary_args a =
            gpu_work_sum(p->mine + r * sizeof(float),
                         p->theirs + (r - 1) * sizeof(float), one);

        a.n = a.dim[0] = 1;
        PL_TRY(d->wait_word(p->g, QUEUE_COMPUTE, p->peer, r - 1, &p->err));
        PL_TRY(d->launch(p->g, QUEUE_COMPUTE, GPU_binary, 1, &a, &p->err));
        PL_TRY(d->signal_word(p->g, QUEUE_COMPUTE, p->own, r, &p->err));
        PL_TRY(d->flush(p->g, QUEUE_COMPUTE, &p->err));
    }
    PL_TRY(d->finish(p->g, QUEUE_COMPUTE, &p->err));
    d->release(p->g, one);
    return PL_OK;
}

static void *player_main(void *user)
{
    struct player *p = user;

    p->s = play(p);
    return NULL;
}

TEST(cuda_devices_meet_in_mapped_memory)
{
    const struct fake_cuda *f = fake_cuda_use();
    unsigned char *shared = test_pages(2 * PAGE, PROT_READ | PROT_WRITE);
    struct player p[2] = {0};
    uint64_t at[2];
    pthread_t thread[2];
    pl_err err;

    for (int i = 0; i < 2; i++) {
        TEST_OK(d->open(&p[i].g, FAKE_NEW, &err), err);
        TEST_OK(d->map(p[i].g, shared, 2 * PAGE, &at[i], &err), err);
    }
    for (int i = 0; i < 2; i++) {
        p[i].own = (_Atomic uint64_t *)(void *)(shared + 128 * i);
        p[i].peer = (_Atomic uint64_t *)(void *)(shared + 128 * !i);
        p[i].mine = at[i] + PAGE + 1024 * (uint64_t)i;
        p[i].theirs = at[i] + PAGE + 1024 * (uint64_t)!i;
        assert_int_equal(pthread_create(&thread[i], NULL, player_main, &p[i]),
                         0);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        TEST_OK(p[i].s, p[i].err);
        assert_true(((float *)(void *)(shared + PAGE + 1024 * i))[ROUNDS] ==
                    ROUNDS);
    }
    d->unmap(p[1].g, shared);
    d->close(p[1].g);
    d->close(p[0].g); /* close() unmaps memory that is still mapped */
    munmap(shared, 2 * PAGE);
    assert_clean(f);
}

/* Memory stays mapped until the last device unmaps it, whichever mapped it
 * first. A part of it counts as a user of its own. */
TEST(cuda_maps_for_as_long_as_any_device_wants)
{
    const struct fake_cuda *f = fake_cuda_use();
    int n_register = f->n_call("cuMemHostRegister");
    unsigned char *shared = test_pages(2 * PAGE, PROT_READ | PROT_WRITE);
    _Atomic uint64_t *word = (_Atomic uint64_t *)(void *)(shared + PAGE);
    struct gpu *g[2];
    uint64_t at[2];
    pl_err err;

    TEST_OK(d->open(&g[0], FAKE_NEW, &err), err);
    TEST_OK(d->open(&g[1], FAKE_NEW, &err), err);
    TEST_OK(d->map(g[0], shared, 2 * PAGE, &at[0], &err), err);
    TEST_OK(d->map(g[1], shared + PAGE, PAGE, &at[1], &err), err);
    assert_int_equal(at[1], at[0] + PAGE);
    d->unmap(g[0], shared);
    d->close(g[0]);
    TEST_OK(d->signal_word(g[1], QUEUE_COMPUTE, word, 3, &err), err);
    TEST_OK(d->finish(g[1], QUEUE_COMPUTE, &err), err);
    assert_int_equal(*word, 3);
    assert_int_equal(f->n_call("cuMemHostRegister"), n_register + 1);
    d->close(g[1]);
    munmap(shared, 2 * PAGE);
    assert_clean(f);
}

/* ---- peers --------------------------------------------------------------- */

/* Peer access ends with the peer's context, and is requested again for a new
 * one. */
TEST(cuda_reaches_peers_that_come_again)
{
    const struct fake_cuda *f = fake_cuda_use();
    int before = f->n_call("cuCtxEnablePeerAccess");
    struct gpu *g, *peer;
    pl_err err;

    TEST_OK(d->open(&g, FAKE_NEW, &err), err);
    for (int i = 0; i < 2; i++) {
        uint64_t from, to;

        TEST_OK(d->open(&peer, FAKE_PLAIN, &err), err);
        TEST_OK(d->enable_peer_access(g, peer, &err), err);
        TEST_OK(d->alloc(g, 4, &from, &err), err);
        TEST_OK(d->alloc(peer, 4, &to, &err), err);
        TEST_OK(d->copy(g, QUEUE_COPY, to, from, 4, &err), err);
        TEST_OK(d->finish(g, QUEUE_COPY, &err), err);
        d->release(peer, to);
        d->release(g, from);
        d->close(peer);
    }
    d->close(g);
    assert_int_equal(f->n_call("cuCtxEnablePeerAccess"), before + 2);
    assert_clean(f);
}

/* ---- failing ------------------------------------------------------------- */

TEST(cuda_maps_writable_memory_alone)
{
    const struct fake_cuda *f = fake_cuda_use();
    unsigned char *fixed = test_pages(PAGE, PROT_READ);
    unsigned char *open = test_pages(4 * PAGE, PROT_READ | PROT_WRITE);
    struct gpu *g;
    uint64_t at;
    pl_err err;

    TEST_OK(d->open(&g, FAKE_NEW, &err), err);
    assert_int_equal(d->map(g, fixed, PAGE, &at, &err), PL_DEVICE);
    assert_non_null(strstr(err.message, "cuMemHostRegister"));
    assert_non_null(strstr(err.message, "writable"));
    TEST_OK(d->map(g, open + PAGE, PAGE, &at, &err), err);
    assert_int_equal(d->map(g, open, 2 * PAGE, &at, &err), PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "map the whole range first"));
    assert_int_equal(d->map(g, open + 2 * PAGE - 8, 16, &at, &err),
                     PL_UNSUPPORTED);
    assert_int_equal(d->signal_word(g, QUEUE_COMPUTE, (void *)open, 1, &err),
                     PL_BAD_ARGUMENT);
    assert_int_equal(
        d->signal_word(g, QUEUE_COMPUTE, (void *)(open + 2 * PAGE), 1, &err),
        PL_BAD_ARGUMENT);
    d->close(g);
    TEST_OK(d->open(&g, FAKE_FAR, &err), err);
    assert_int_equal(d->map(g, open, PAGE, &at, &err), PL_UNSUPPORTED);
    d->close(g);
    munmap(fixed, PAGE);
    munmap(open, 4 * PAGE);
    assert_clean(f);
}

TEST(cuda_says_when_there_is_no_memory)
{
    const struct fake_cuda *f = fake_cuda_use();
    struct gpu *g;
    uint64_t at;
    void *p;
    pl_err err;

    TEST_OK(d->open(&g, FAKE_NEW, &err), err);
    assert_int_equal(d->alloc(g, (size_t)8 << 30, &at, &err),
                     PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "8589934592 bytes"));
    f->break_at("cuMemHostAlloc", 1, API_OUT_OF_MEMORY);
    assert_int_equal(d->host_alloc(g, 1, &p, &err), PL_NO_MEMORY);
    assert_int_equal(err.status, PL_NO_MEMORY);
    f->break_at(NULL, 0, 0);
    d->close(g);
    assert_clean(f);
}

/* A later call reports a kernel's error, and everything is freed. */
TEST(cuda_tells_of_a_kernel_that_failed)
{
    const struct fake_cuda *f = fake_cuda_use();
    struct gpu_work w;
    pl_err err;

    gpu_work_init(&w, d);
    TEST_OK(gpu_work_take(&w, FAKE_NEW, &err), err);
    f->break_at("cuStreamSynchronize", 1, 719);
    assert_int_equal(gpu_work_do(&w, &err), PL_DEVICE);
    assert_non_null(strstr(err.message, "CUDA_ERROR_LAUNCH_FAILED"));
    f->break_at(NULL, 0, 0);
    gpu_work_give_back(&w);
    gpu_work_fini(&w);
    assert_clean(f);
}
