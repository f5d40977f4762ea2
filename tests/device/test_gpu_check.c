/* The self test of GPUs: each kernel has trials, in which the emulator gives
 * the bits of plain C, and one wrong bit is found. */
#include "lib/support.h"

#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_check.h"
#include "device/gpu/gpu_trial.h"
#include "lib/gpu_odd.h"
#include "lib/program_build.h"

static struct trial begin(void)
{
    return (struct trial){.image = test_need(TRIAL_IMAGE, 1), .dry = true};
}

static void end(struct trial *t)
{
    trial_fini(t);
    free(t->image);
}

/* The kernels of the first trial that launches k. */
static void first_trial_of(enum gpu_kernel k, bool want[GPU_KERNEL_COUNT])
{
    struct trial t = begin();
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
    struct trial t = begin();
    int n_fused = 0;

    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        first_trial_of((enum gpu_kernel)k, want);
    for (int i = 0; trial_make(&t, i); i++) {
        assert_false(t.full);
        assert_false(t.no_memory);
        assert_true(t.list.n > 0);
        if (t.n_also > 0 && t.list.n != 1)
            fail_msg("%s and what follows are %d launches", t.what, t.list.n);
        n_fused += t.n_also > 0;
    }
    assert_true(n_fused > 0);
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
    TEST_OK(x->driver->ready(x->gpu, want, 1, &err), err);
    TEST_OK(gpu_check(x, want, &differs, &err), err);
    assert_false(differs);
    device_set_free(s);
}

/* Whichever kernel gives it, and whatever comes behind it in a call. */
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
        TEST_OK(gpu_check(gpu_of(s), want, &differs, &err), err);
        gpu_wrong_kernel = k;
        if (gpu_check(gpu_of(s), want, &differs, &err) != PL_DEVICE)
            fail_msg("a wrong bit of kernel %s is not seen", name);
        assert_true(differs);
        if (!strstr(err.message, name))
            fail_msg("'%s' does not name %s", err.message, name);
    }
    gpu_wrong_kernel = GPU_KERNEL_COUNT;
    device_set_free(s);
}
