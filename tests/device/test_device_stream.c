/* The GPU driver over CUDA and HIP (driver_stream.c), with fake libraries
 * (lib/fake_cuda.c, lib/fake_hip.c) whose devices run the kernels' source in
 * the emulator. Keeps the promises that both vendors share: work runs in the
 * order of fences; any call may fail, the error names it, and nothing is left
 * behind. test_device_cuda.c and test_device_hip.c have those of one vendor. */
#include "lib/support.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "device/gpu/cuda_api.h"
#include "lib/alloc_fail.h"
#include "lib/fake_cuda_use.h"

enum { N = GPU_WORK_N, PAGE = 4096, UNKNOWN = 999 };

/* Defines a case for each vendor with these names; its body follows. */
#define BOTH(cuda_law, hip_law)                                                \
    static void of_##cuda_law(const struct fake_make *m);                      \
    TEST(cuda_law)                                                             \
    {                                                                          \
        of_##cuda_law(&fake_make_cuda);                                        \
    }                                                                          \
    TEST(hip_law)                                                              \
    {                                                                          \
        of_##cuda_law(&fake_make_hip);                                         \
    }                                                                          \
    static void of_##cuda_law(const struct fake_make *m)

static void assert_clean(const struct fake_cuda *f)
{
    fake_cuda_assert_clean(f, "in the end");
}

static void must_say(const pl_err *err, const char *what)
{
    if (!strstr(err->message, what))
        fail_msg("\"%s\" does not say \"%s\"", err->message, what);
}

BOTH(cuda_opens_no_device_that_is_not_there_or_too_old,
     hip_opens_no_device_that_is_not_there_or_too_old)
{
    bool cuda = m == &fake_make_cuda;
    const struct fake_cuda *f = m->use();
    struct gpu *g;
    pl_err err;

    assert_int_equal(m->driver->open(&g, FAKE_COUNT, &err), PL_NOT_FOUND);
    must_say(&err,
             cuda ? "cuda:4: CUDA has 4 devices" : "hip:4: HIP has 4 devices");
    assert_int_equal(m->driver->open(&g, -1, &err), PL_NOT_FOUND);
    assert_int_equal(m->driver->open(&g, FAKE_OLD, &err), PL_UNSUPPORTED);
    must_say(&err, cuda ? "5.2" : "hip:1: its architecture is gfx803");
    assert_clean(f);
}

BOTH(cuda_runs_the_text_in_the_order_of_marks,
     hip_runs_the_text_in_the_order_of_marks)
{
    static const int index[] = {FAKE_NEW, FAKE_FAR};
    const struct fake_cuda *f = m->use();

    for (int run = 0; run < test_draws(10, 20); run++) {
        gpu_work_must_be_right(m->driver, index[run % 2]);
        assert_clean(f);
    }
}

/* Peers are reached on one card, and on two, however often access is
 * requested. */
BOTH(cuda_writes_into_memory_of_peers, hip_writes_into_memory_of_peers)
{
    static const int index[][2] = {{FAKE_NEW, FAKE_NEW},
                                   {FAKE_NEW, FAKE_PLAIN},
                                   {FAKE_PLAIN, FAKE_NEW},
                                   {FAKE_FAR, FAKE_FAR}};
    const struct gpu_driver *d = m->driver;
    const struct fake_cuda *f = m->use();
    pl_err err;

    for (int k = 0; k < 4; k++) {
        struct gpu_work w;

        gpu_work_init(&w, d);
        TEST_OK(gpu_work_take(&w, index[k][0], &err), err);
        /* FAKE_PLAIN cannot write words, which gpu_work_do needs */
        if (index[k][0] == FAKE_PLAIN)
            memcpy(w.out, w.x, N * sizeof *w.x);
        else
            TEST_OK(gpu_work_do(&w, &err), err);
        TEST_OK(d->write(w.g, QUEUE_COMPUTE, w.at[3], w.out, N * sizeof *w.out,
                         &err),
                err);
        TEST_OK(gpu_work_meet(&w, index[k][1], &err), err);
        for (int i = 0; i < N; i++)
            assert_true(w.met[i] == w.out[i] && w.met[N + i] == 2 * w.out[i]);
        for (int i = 0; i < 2; i++)
            TEST_OK(d->enable_peer_access(w.g, w.peer, &err), err);
        gpu_work_give_back(&w);
        gpu_work_fini(&w);
        assert_clean(f);
    }
}

BOTH(cuda_refuses_peers_out_of_reach, hip_refuses_peers_out_of_reach)
{
    const struct gpu_driver *d = m->driver;
    const struct fake_cuda *f = m->use();
    struct gpu_work w;
    pl_err err;

    gpu_work_init(&w, d);
    TEST_OK(gpu_work_take(&w, FAKE_NEW, &err), err);
    assert_int_equal(gpu_work_meet(&w, FAKE_FAR, &err), PL_UNSUPPORTED);
    must_say(&err, m == &fake_make_cuda
                       ? "cuda:0 cannot access memory of cuda:3"
                       : "hip:0 cannot access memory of hip:3");
    assert_null(f->wrong());
    TEST_OK(d->copy(w.g, QUEUE_COPY, w.peer_at, w.at[0], 4, &err), err);
    TEST_OK(d->finish(w.g, QUEUE_COPY, &err), err);
    assert_non_null(strstr(f->wrong(), "of a peer out of its reach"));
    gpu_work_give_back(&w);
    gpu_work_fini(&w);
    assert_clean(f);
}

/* ---- failing ------------------------------------------------------------- */

BOTH(cuda_gives_back_though_a_call_fails, hip_gives_back_though_a_call_fails)
{
    const struct fake_cuda *f = m->use();
    struct gpu_work w;
    pl_err err;

    gpu_work_init(&w, m->driver);
    TEST_OK(gpu_work_all(&w, FAKE_NEW, &err), err);
    f->break_at(m->enter, 1, UNKNOWN);
    gpu_work_give_back(&w);
    assert_true(f->failed());
    f->break_at(NULL, 0, 0);
    gpu_work_fini(&w);
    assert_clean(f);
}

BOTH(cuda_shows_what_the_compiler_said, hip_shows_what_the_compiler_said)
{
    bool cuda = m == &fake_make_cuda;
    const struct fake_cuda *f = m->use();
    struct gpu_work w;
    pl_err err;

    gpu_work_init(&w, m->driver);
    f->break_at(m->compile, 1, cuda ? CUDA_CODE_INVALID_PTX : 6);
    assert_int_equal(gpu_work_all(&w, FAKE_NEW, &err), PL_DEVICE);
    must_say(&err, cuda ? "cuda:0" : "hip:0, kernel ");
    /* the kernel is `binary` or `unary` */
    must_say(&err,
             cuda ? "ary: what the log says" : "HIPRTC_ERROR_COMPILATION (6)");
    if (!cuda)
        must_say(&err, "output: plait.hip:2: error: that");
    f->break_at(NULL, 0, 0);
    gpu_work_give_back(&w);
    gpu_work_fini(&w);
    assert_clean(f);
}

/* Returns true for functions that free something: their failures are not
 * reported. */
static bool is_silent(const char *call)
{
    static const char *const silent[] = {
        "release",       "host_release",       "host_unregister",
        "event_destroy", "module_unload",      "stream_destroy",
        "graph_destroy", "graph_exec_destroy", "hiprtcDestroyProgram"};

    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        if (strcmp(silent[i], fake_call_name(call)) == 0)
            return true;
    return false;
}

/* Returns true for functions with some unreported failures: the version is for
 * people to read, and HIP need not know which memory is at an address. */
static bool may_be_silent(const char *call)
{
    return strcmp(fake_call_name(call), "version") == 0 ||
           strcmp(call, "hipDeviceGetAttribute") == 0;
}

/* Reads the properties of the devices, as their choice does. */
static pl_status ask(const struct fake_make *m, pl_err *err)
{
    const char *old = m == &fake_make_cuda ? "5.2" : "gfx803";
    struct gpu_info info[FAKE_COUNT];
    uint64_t bytes;
    int n;

    PL_TRY(m->driver->list(info, FAKE_COUNT, &n, err));
    for (int i = 0; i < n; i++)
        if (i == FAKE_OLD ? !strstr(info[i].why, old) : info[i].why[0] != '\0')
            return err_set(err, PL_DEVICE, "%s", info[i].why);
    PL_TRY(m->driver->free_memory(FAKE_FAR, &bytes, err));
    assert_int_equal(bytes, ((uint64_t)7 << 30) + FAKE_FAR);
    return PL_OK;
}

/* Lets the nth call of a function fail: the error names it, and everything is
 * freed. Returns false if there are fewer calls. */
static bool fails_well(void *user, const char *call, int nth)
{
    const struct fake_make *m = user;
    const struct fake_cuda *f = m->use();
    pl_err err = {0};
    struct gpu_work w;
    pl_status s;
    bool before, hit;
    char when[64];

    gpu_work_init(&w, m->driver);
    f->break_at(call, nth, UNKNOWN);
    s = ask(m, &err);
    if (s == PL_OK)
        s = gpu_work_all(&w, FAKE_NEW, &err);
    if (s == PL_OK)
        s = gpu_work_meet(&w, FAKE_PLAIN, &err);
    before = f->failed();
    gpu_work_give_back(&w);
    hit = f->failed();
    f->break_at(NULL, 0, 0);
    gpu_work_fini(&w);
    snprintf(when, sizeof when, "call %d of %s", nth, call ? call : "none");
    fake_cuda_assert_clean(f, when);
    if (s == PL_OK && before && !is_silent(call) && !may_be_silent(call))
        fail_msg("%s: no error", when);
    if (s == PL_OK)
        return hit;
    if (is_silent(call))
        fail_msg("%s: %s", when, err.message);
    assert_int_equal(err.status, s);
    if (!before || !strstr(err.message, call) ||
        !strstr(err.message, m->unknown))
        fail_msg("%s: %s", when, err.message);
    return hit;
}

BOTH(cuda_names_each_call_that_fails_and_leaves_nothing,
     hip_names_each_call_that_fails_and_leaves_nothing)
{
    const struct fake_failures t = {.f = m->use(),
                                    .call = m->call,
                                    .n_call = m->n_call,
                                    .n_draw = test_draws(2, 0),
                                    .every = m == &fake_make_cuda ? 1 << 30 : 8,
                                    .run = fails_well,
                                    .user = (void *)m};

    assert_true(fake_failures_run(&t, true) > m->n_call / 2);
}

/* Each allocation of the GPU's driver code fails once. */
BOTH(cuda_gives_all_back_when_memory_ends, hip_gives_all_back_when_memory_ends)
{
    const struct fake_cuda *f = m->use();
    void *shared = test_pages(PAGE, PROT_READ | PROT_WRITE);

    for (int64_t n = 0; alloc_each(&n);) {
        struct gpu *g;
        uint64_t at;
        pl_status s = m->driver->open(&g, FAKE_NEW, NULL);

        if (s == PL_OK)
            s = m->driver->map(g, shared, PAGE, &at, NULL);
        if (s == PL_OK && m == &fake_make_hip)
            s = m->driver->compile_kernels(g, gpu_work_wanted, 1,
                                           &(struct gpu_progress){0}, NULL);
        alloc_ran(s);
        m->driver->close(g);
    }
    munmap(shared, PAGE);
    assert_clean(f);
}
