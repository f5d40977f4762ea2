/* The self test of GPUs: each kernel has test cases, in which the emulator
 * gives the bits of plain C, and one wrong bit is found. */
#include "lib/support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_selftest.h"
#include "device/gpu/gpu_selftest_case.h"
#include "lib/fake_cuda_use.h"
#include "lib/gpu_odd.h"
#include "lib/program_build.h"

static struct selftest_case begin(void)
{
    return (struct selftest_case){
        .image = test_need(TRIAL_IMAGE, 1), .counts = true, .dry = true};
}

static void end(struct selftest_case *t)
{
    trial_fini(t);
    free(t->image);
}

/* Finds the kernels of the first test case that launches k. */
static void first_trial_of(enum gpu_kernel k, bool want[GPU_KERNEL_COUNT])
{
    struct selftest_case t = begin();
    bool found = false;

    memset(want, 0, GPU_KERNEL_COUNT * sizeof *want);
    for (int i = 0; !found && trial_make(&t, i); i++)
        for (int j = 0; j < t.list.n; j++)
            found = found || t.list.launch[j].kernel == k;
    if (!found)
        fail_msg("kernel %s has no trial: gpu_trials.def", gpu_kernel_name(k));
    for (int j = 0; j < t.list.n; j++)
        want[t.list.launch[j].kernel] = true;
    end(&t);
}

TEST(gpu_check_has_trials_of_all_kernels)
{
    bool want[GPU_KERNEL_COUNT];
    struct selftest_case t = begin();
    int n_fused = 0;

    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        first_trial_of((enum gpu_kernel)k, want);
    for (int i = 0; trial_make(&t, i); i++) {
        assert_false(t.full);
        assert_false(t.no_memory);
        assert_true(t.list.n > 0);
        if (t.n_also > 0 && t.list.n != t.n_alone)
            fail_msg("%s and what follows are %d launches", t.what, t.list.n);
        n_fused += t.n_also > 0;
    }
    assert_true(n_fused > 0);
    assert_false(trial_make(&t, TRIAL_MOST));
    end(&t);
}

static struct gpu_device *gpu_of(struct device_set *s)
{
    return device_of(s, 0)->own;
}

TEST(gpu_check_is_passed_by_the_emulator)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC};
    struct device_set *s = build_set_as("eager", 1, &opt);
    bool want[GPU_KERNEL_COUNT], differs;
    struct gpu_device *x = gpu_of(s);
    pl_err err;

    memset(want, 1, sizeof want);
    TEST_OK(x->driver->compile_kernels(x->gpu, want, 1,
                                       &(struct gpu_progress){0}, &err),
            err);
    TEST_OK(gpu_check(x, want, &(struct gpu_progress){0}, &differs, &err), err);
    assert_false(differs);
    device_set_free(s);
}

/* Whichever kernel has the wrong bit, and whatever follows it in a call. */
TEST(gpu_check_finds_a_wrong_bit_of_any_kernel)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC};
    struct device_set *s = build_set_as("wrong", 1, &opt);
    bool want[GPU_KERNEL_COUNT], differs;

    for (int k = 0; k < GPU_KERNEL_COUNT; k++) {
        const char *name = gpu_kernel_name((enum gpu_kernel)k);
        pl_err err = {0};

        first_trial_of((enum gpu_kernel)k, want);
        gpu_wrong_kernel = GPU_KERNEL_COUNT;
        TEST_OK(gpu_check(gpu_of(s), want, &(struct gpu_progress){0}, &differs,
                          &err),
                err);
        gpu_wrong_kernel = k;
        if (gpu_check(gpu_of(s), want, &(struct gpu_progress){0}, &differs,
                      &err) != PL_DEVICE)
            fail_msg("a wrong bit of kernel %s is not seen", name);
        assert_true(differs);
        if (!strstr(err.message, name))
            fail_msg("'%s' does not name %s", err.message, name);
    }
    gpu_wrong_kernel = GPU_KERNEL_COUNT;
    device_set_free(s);
}

/* ---- how often it is made ------------------------------------------------ */

#define VALUES   "  %0: f32[n_tok, 64]\n  %1: f32[n_tok, 64]\n"
#define DOUBLING " %1 = scale(%0) scale=2\n"

static int launches_to_load(const struct fake_cuda *f, const char *spec,
                            const char *text, int n)
{
    int before = f->n_call("cuLaunchKernel");
    struct device_set *s = build_set(spec, 1, 1);
    struct arena a = {0};

    LOAD_OK(s, build_text(&a, text, n));
    device_set_free(s);
    arena_fini(&a);
    return f->n_call("cuLaunchKernel") - before;
}

/* The first of several equal GPUs runs the self test; no GPU runs it when the
 * result is cached. */
TEST(gpu_check_is_made_once_for_gpus_that_are_alike)
{
    static const char one[] = "programs 1\nmax n_tok 8\n"
                              "device 0\n" VALUES "variant\n  0:" DOUBLING;
    static const char two[] = "programs 2\nmax n_tok 8\n"
                              "device 0\n" VALUES "device 1\n" VALUES
                              "variant\n  0:" DOUBLING "  1:" DOUBLING;
    const struct fake_cuda *f = fake_cuda_use();
    char *was = strdup(getenv("XDG_CACHE_HOME"));
    int n;

    assert_non_null(was);
    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("once"), 1), 0);
    n = launches_to_load(f, "cuda:0*2", two, 2);
    assert_true(n > 0);
    assert_int_equal(launches_to_load(f, "cuda:0*2", two, 2), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("again"), 1), 0);
    assert_int_equal(launches_to_load(f, "cuda:0", one, 1), n);
    assert_int_equal(setenv("XDG_CACHE_HOME", was, 1), 0);
    free(was);
    fake_cuda_assert_clean(f, "self tests");
}

/* A program tests only the kernels that have not passed in another one. */
TEST(gpu_check_tries_what_has_not_passed)
{
    static const char doubling[] = "programs 1\nmax n_tok 8\n"
                                   "device 0\n" VALUES "variant\n  0:" DOUBLING;
    static const char softmax[] = "programs 1\nmax n_tok 8\n"
                                  "device 0\n" VALUES "variant\n"
                                  "  0: %1 = softmax(%0)\n";
    static const char both[] =
        "programs 1\nmax n_tok 8\n"
        "device 0\n" VALUES "variant\n  0:" DOUBLING "  0: %0 = softmax(%1)\n";
    const struct fake_cuda *f = fake_cuda_use();
    char *was = strdup(getenv("XDG_CACHE_HOME"));
    int alone, after;

    assert_non_null(was);
    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("alone"), 1), 0);
    alone = launches_to_load(f, "cuda:0", softmax, 1);
    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("after"), 1), 0);
    assert_true(launches_to_load(f, "cuda:0", doubling, 1) > 0);
    after = launches_to_load(f, "cuda:0", softmax, 1);
    assert_in_range(after, 1, alone - 1);
    assert_int_equal(launches_to_load(f, "cuda:0", both, 1), 0);
    assert_int_equal(launches_to_load(f, "cuda:0", doubling, 1), 0);
    assert_int_equal(setenv("XDG_CACHE_HOME", was, 1), 0);
    free(was);
    fake_cuda_assert_clean(f, "self tests");
}

/* ---- progress reports ---------------------------------------------------- */

struct told {
    pthread_t thread; /* the only thread that may call the progress function */
    atomic_int inside;
    uint64_t done, total;
    int n;       /* number of calls of the progress function */
    int n_value; /* number of different values of `done` in these calls */
};

static void tell(void *user, const char *what, uint64_t done, uint64_t total)
{
    struct told *t = user;

    assert_true(pthread_equal(t->thread, pthread_self()));
    assert_int_equal(atomic_fetch_add(&t->inside, 1), 0);
    assert_string_equal(what, "compiling kernels");
    assert_true(done <= total && total > 0);
    assert_true(t->n == 0 || (total == t->total && done >= t->done));
    t->n_value += t->n == 0 || done > t->done;
    t->n++;
    t->done = done;
    t->total = total;
    if (gpu_eager_waits > 0)
        gpu_eager_waits--;
    atomic_fetch_sub(&t->inside, 1);
}

static void load_told(const char *spec, struct told *t)
{
    const struct device_options opt = {
        .kernel_set = KERNEL_SET_GENERIC, .progress = tell, .progress_user = t};
    struct device_set *s = build_set_as(spec, 2, &opt);
    struct arena a = {0};

    *t = (struct told){.thread = pthread_self()};
    LOAD_OK(s, build_text(&a,
                          "programs 2\n"
                          "max n_tok 1\n"
                          "device 0\n"
                          "  %0: f32[n_tok, 8]\n"
                          "device 1\n"
                          "variant\n"
                          "  0: %0 = scale(%0) scale=2\n",
                          2));
    device_set_free(s);
    arena_fini(&a);
}

/* Two GPUs compile and test the probe, and one of them another kernel. */
TEST(gpu_compiling_is_told_by_the_thread_that_loads)
{
    struct told t;

    load_told("eager*2", &t);
    assert_int_equal(t.total, 2 * (2 + 1));
    assert_int_equal(t.done, t.total);
    /* kernels of `wrong` need not be compiled, only tested */
    load_told("wrong*2", &t);
    assert_int_equal(t.total, 2 + 1);
    assert_int_equal(t.done, t.total);
    assert_int_equal(t.n_value, 4);
    /* kernels of `emu` are neither compiled nor tested */
    load_told("emu*2", &t);
    assert_int_equal(t.n, 0);
}

/* Progress is reported while compilers run, even without an end. */
TEST(gpu_compiling_is_told_while_it_lasts)
{
    struct told t;

    gpu_eager_waits = 5;
    load_told("eager*2", &t);
    assert_int_equal(gpu_eager_waits, 0);
    assert_int_equal(t.done, t.total);
}

/* ---- the number of threads ----------------------------------------------- */

enum { N_PROGRAM = 40 };

struct made {
    atomic_int n[N_PROGRAM];
    /* number of the first program that fails to compile; -1 if none fails */
    int fails;
};

static pl_status make_one(void *user, int i, pl_err *err)
{
    struct made *m = user;

    atomic_fetch_add(&m->n[i], 1);
    return m->fails >= 0 && i >= m->fails
               ? err_set(err, PL_DEVICE, "program %d", i)
               : PL_OK;
}

TEST(gpu_compiling_makes_each_program_once)
{
    struct told t;

    for (int k = 0; k < 40; k++) {
        struct made m = {.fails = k % 4 == 3 ? k : -1};
        struct gpu_progress p = {
            .fn = k % 2 ? tell : NULL, .user = &t, .total = N_PROGRAM};
        int n_made = 0, n_failed = 0, n_thread = 1 + k % 20;
        pl_err err = {0};
        pl_status s;

        t = (struct told){.thread = pthread_self()};
        s = gpu_compile(&p, N_PROGRAM, n_thread, make_one, &m, &err);
        for (int i = 0; i < N_PROGRAM; i++) {
            assert_true(m.n[i] <= 1);
            n_made += m.n[i];
            n_failed += m.n[i] && m.fails >= 0 && i >= m.fails;
        }
        assert_int_equal(s, m.fails >= 0 ? PL_DEVICE : PL_OK);
        if (m.fails < 0)
            assert_int_equal(n_made, N_PROGRAM);
        else
            /* each thread ends at its first failure */
            assert_in_range(n_failed, 1, n_thread);
        assert_true(m.fails < 0 || strstr(err.message, "program ") != NULL);
    }
}
