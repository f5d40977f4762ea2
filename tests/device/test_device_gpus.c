/* A -dev string takes the right GPUs when several drivers show several, some of
 * them unusable. The drivers' libraries are fakes (lib/fake_cuda.c,
 * lib/fake_hip.c, lib/fake_opencl.c). The first GPU of CUDA is the last of
 * OpenCL. */
#include "lib/support.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "device/device_ops.h"
#include "device/listed_gpu.h"
#include "emu/emu_driver.h"
#include "lib/fake_cuda_use.h"
#include "pl.h"
#include "test_paths.h"

enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100, UNAVAILABLE = 46, TWIN = 9 };

#define FREE(index) (((uint64_t)7 << 30) + (uint64_t)(index))

static void name(const char *variable, const char *path)
{
    assert_int_equal(setenv(variable, path, 1), 0);
}

/* Makes the drivers load the fake libraries instead of the machine's. */
static const struct fake_cuda *fakes(void)
{
    name("PLAIT_LIBHIP", "/nowhere/libamdhip64.so");
    name("PLAIT_LIBOPENCL", PLAIT_FAKE_OPENCL);
    return fake_cuda_use();
}

struct expected {
    /* kind: the backend of all devices; NULL if they differ */
    const char *spec, *kind;
    int n, index[8];
};

static void must_take(const struct expected *e)
{
    struct device_list l;
    pl_err err;

    if (device_parse(&l, e->spec, 0, &err) != PL_OK)
        fail_msg("%s: %s", e->spec, err.message);
    if (l.n != e->n)
        fail_msg("%s: %d devices, not %d", e->spec, l.n, e->n);
    for (int i = 0; i < l.n; i++) {
        const struct device_desc *d = &l.dev[i];

        if (d->index != e->index[i] ||
            (e->kind && strcmp(d->ops->name, e->kind) != 0))
            fail_msg("%s: device %d is %s:%d, not %d", e->spec, i, d->ops->name,
                     d->index, e->index[i]);
    }
    device_list_free(&l);
}

static void must_refuse(const char *spec, const char *const says[])
{
    struct device_list l;
    pl_err err;

    if (device_parse(&l, spec, 0, &err) == PL_OK)
        fail_msg("%s is taken", spec);
    for (; *says; says++)
        if (!strstr(err.message, *says))
            fail_msg("%s should say \"%s\" but said: %s", spec, *says,
                     err.message);
}

#define REFUSE(spec, ...)                                                      \
    must_refuse(spec, (const char *const[]){__VA_ARGS__, NULL})

TEST(gpus_bear_the_numbers_of_their_driver)
{
    static const struct expected row[] = {
        {"cuda:0", "cuda", 1, {FAKE_NEW}},
        {"cuda:3", "cuda", 1, {FAKE_FAR}},
        {"cuda", "cuda", 3, {FAKE_NEW, FAKE_PLAIN, FAKE_FAR}},
        {"cuda*2", "cuda", 2, {FAKE_NEW, FAKE_PLAIN}},
        {"cuda*4", "cuda", 4, {FAKE_NEW, FAKE_PLAIN, FAKE_FAR, FAKE_NEW}},
        {"opencl:1", "opencl", 1, {1}},
        {"opencl", "opencl", 2, {0, TWIN}},
    };

    fakes();
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        must_take(&row[i]);
    REFUSE("cuda:1", "cuda:1 (Fake 5.2, 0000:3c:00.0)", "5.2, and the kernels",
           "plait devices");
    REFUSE("cuda:4", "no GPU 4; there are 4");
    REFUSE("opencl:3", "opencl:3 (old)", "not OpenCL 1.2");
}

TEST(gpus_that_fail_keep_no_others_from_being_taken)
{
    static const struct expected row[] = {
        {"cuda", "cuda", 2, {FAKE_NEW, FAKE_FAR}},
        {"cuda*2", "cuda", 2, {FAKE_NEW, FAKE_FAR}},
        {"cuda:3", "cuda", 1, {FAKE_FAR}},
        {"cuda:0", "cuda", 1, {FAKE_NEW}},
    };
    const struct fake_cuda *f = fakes();

    f->refuse(FAKE_PLAIN, UNAVAILABLE);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        must_take(&row[i]);
    REFUSE("cuda:2", "cuda:2 (Fake 6.1, 0000:3d:00.0)",
           "cuDevicePrimaryCtxRetain", "(46,");
    f->refuse(FAKE_NEW, OUT_OF_MEMORY);
    f->refuse(FAKE_FAR, UNAVAILABLE);
    REFUSE("cuda", "cuda:0 (", "CUDA_ERROR_OUT_OF_MEMORY", "cuda:1 (", "5.2",
           "cuda:2 (", "cuda:3 (");
    for (int i = 0; i < FAKE_COUNT; i++)
        f->refuse(i, 0);
    assert_int_equal(f->n_live(), 0);
}

/* A GPU that -dev does not name is not opened, because a context takes time and
 * GPU memory. */
TEST(gpus_are_asked_for_memory_only_if_taken)
{
    const struct fake_cuda *f = fakes();
    int before = f->n_call("cuDevicePrimaryCtxRetain");
    struct device_list l;
    pl_err err;

    TEST_OK(device_parse(&l, "cuda:3", 0, &err), err);
    assert_int_equal(f->n_call("cuDevicePrimaryCtxRetain"), before + 1);
    assert_int_equal(l.dev[0].available_bytes, FREE(FAKE_FAR));
    assert_string_equal(l.dev[0].bus, "0000:3e:00.0");
    device_list_free(&l);
    TEST_OK(device_parse(&l, "cuda*1", 0, &err), err);
    assert_int_equal(f->n_call("cuDevicePrimaryCtxRetain"), before + 2);
    device_list_free(&l);
}

/* The twin belongs to CUDA, under OpenCL's name too. OpenCL's other GPU is its
 * own; OpenCL's processors do not count. */
TEST(gpus_that_two_drivers_show_count_once)
{
    static const struct expected row[] = {
        {"gpu", NULL, 4, {FAKE_NEW, FAKE_PLAIN, FAKE_FAR, 0}},
        {"gpu*2", "cuda", 2, {FAKE_NEW, FAKE_PLAIN}},
        {"gpu:0", "cuda", 1, {FAKE_NEW}},
        {"gpu:4", "opencl", 1, {0}},
        {"cuda:0,opencl:0,cpu*1", NULL, 3, {FAKE_NEW, 0, 0}},
    };
    static const struct expected twin = {"gpu:0", "opencl", 1, {TWIN}};
    const struct fake_cuda *f = fakes();

    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        must_take(&row[i]);
    REFUSE("gpu:1", "cuda:1 (Fake 5.2");
    REFUSE("gpu:5", "no GPU 5; there are 5");
    f->refuse(FAKE_NEW, UNAVAILABLE);
    must_take(&twin);
    f->refuse(FAKE_NEW, 0);
}

/* The first GPU of HIP is OpenCL's twin too, and HIP precedes OpenCL. */
TEST(gpus_of_hip_are_taken_by_hip)
{
    static const struct expected row[] = {
        {"gpu", NULL, 4, {FAKE_NEW, FAKE_PLAIN, FAKE_FAR, 0}},
        {"gpu*2", "hip", 2, {FAKE_NEW, FAKE_PLAIN}},
        {"gpu:0", "hip", 1, {FAKE_NEW}},
        {"gpu:4", "opencl", 1, {0}},
        {"hip", "hip", 3, {FAKE_NEW, FAKE_PLAIN, FAKE_FAR}},
        {"hip*2", "hip", 2, {FAKE_NEW, FAKE_PLAIN}},
        {"hip:3,cpu*1,hip:0", NULL, 3, {FAKE_FAR, 0, FAKE_NEW}},
    };
    static const struct expected twin = {"gpu:0", "opencl", 1, {TWIN}};
    static const struct expected cuda = {"gpu:0", "cuda", 1, {FAKE_NEW}};
    const struct fake_cuda *f;

    fakes();
    f = fake_hip_use();
    must_take(&cuda);
    name("PLAIT_LIBCUDA", "/nowhere/libcuda.so.1");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        must_take(&row[i]);
    REFUSE("hip:1", "hip:1 (Fake gfx803, 0000:3c:00.0)", "gfx900 or later");
    REFUSE("hip:4", "no GPU 4; there are 4");
    f->refuse(FAKE_NEW, UNAVAILABLE);
    must_take(&twin);
    REFUSE("hip:0", "hip:0 (Fake gfx90a", "hipMemGetInfo", "(46,");
    f->refuse(FAKE_NEW, 0);
    fakes();
    fake_cuda_assert_clean(f, "in the end");
}

/* Two devices of one GPU share its memory, total and available. */
TEST(gpus_share_memory_among_their_devices)
{
    static const char *const spec[] = {"cuda:0*2", "cuda:0,cuda:0",
                                       "cuda:0,opencl:9"};
    struct device_list l;
    pl_err err;

    fakes();
    for (int i = 0; i < 3; i++) {
        uint64_t all = i < 2 ? FREE(FAKE_NEW) : (uint64_t)8 << 30;

        TEST_OK(device_parse(&l, spec[i], 0, &err), err);
        assert_int_equal(l.n, 2);
        assert_int_equal(l.dev[0].available_bytes, all / 2);
        assert_int_equal(l.dev[1].available_bytes, all / 2);
        assert_int_equal(l.dev[0].memory_bytes, (uint64_t)4 << 30);
        device_list_free(&l);
    }
}

TEST(gpus_of_missing_libraries_are_missed_by_name)
{
    static const struct expected opencl = {"gpu", "opencl", 2, {0, TWIN}};

    fakes();
    name("PLAIT_LIBCUDA", "/nowhere/libcuda.so.1");
    must_take(&opencl);
    REFUSE("cuda", "/nowhere/libcuda.so.1", "PLAIT_LIBCUDA");
    REFUSE("hip", "/nowhere/libamdhip64.so", "PLAIT_LIBHIP");
    fakes()->break_at("cuInit", 1, NO_DEVICE);
    REFUSE("cuda", "reports no GPU", "plait devices");
    fakes()->break_at(NULL, 0, 0);
    name("PLAIT_LIBCUDA", "/nowhere/libcuda.so.1");
    name("PLAIT_LIBOPENCL", "/nowhere/libOpenCL.so.1");
    REFUSE("gpu", "no usable GPU", "/nowhere/libcuda.so.1", "PLAIT_LIBCUDA",
           "/nowhere/libamdhip64.so", "PLAIT_LIBHIP", "/nowhere/libOpenCL.so.1",
           "PLAIT_LIBOPENCL");
    fakes();
}

TEST(gpus_that_are_shown_have_a_reason_where_they_fail)
{
    const struct fake_cuda *f = fakes();
    struct gpu_info g[GPU_LIST_MAX];
    pl_err err;
    int n;

    f->refuse(FAKE_PLAIN, UNAVAILABLE);
    TEST_OK(cuda_ops.show(&cuda_ops, g, GPU_LIST_MAX, &n, &err), err);
    assert_int_equal(n, FAKE_COUNT);
    assert_int_equal(g[FAKE_NEW].available_bytes, FREE(FAKE_NEW));
    assert_string_equal(g[FAKE_NEW].why, "");
    assert_non_null(strstr(g[FAKE_OLD].why, "5.2"));
    assert_non_null(strstr(g[FAKE_PLAIN].why, "cuDevicePrimaryCtxRetain"));
    f->refuse(FAKE_PLAIN, 0);
    /* the emulator's devices are not listed as GPUs */
    assert_null(emu_ops.show);
}

static const json_t *field(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    if (!v)
        fail_msg("no %s", key);
    return v;
}

TEST(gpus_stand_in_the_list_of_devices)
{
    struct test_text t = {0};
    const json_t *all, *old, *peers;
    const struct fake_cuda *f = fakes();
    json_t *o;
    pl_err err;

    TEST_OK(pl_devices_print(false, test_text_add, &t, &err), err);
    assert_non_null(strstr(t.s, "cuda:0    Fake 9.0, 0000:3b:00.0, CUDA 12.4"));
    assert_non_null(
        strstr(t.s, "100 units, 8.00G bytes, 7.00G available now, dot4"));
    assert_non_null(strstr(t.s, "stream words, peer access to cuda:2\n"));
    assert_non_null(strstr(t.s, "host memory, peer access to cuda:0\n"));
    /* the features of cuda:3 */
    assert_non_null(strstr(t.s, "dot4, mma, stream words\n"));
    assert_non_null(strstr(t.s, "cannot be used: its compute capability is"));
    assert_non_null(strstr(t.s, "twin, 0000:3b:00.0"));
    assert_non_null(strstr(t.s, "driver fake, same GPU as cuda:0\n"));
    t.n = 0;
    name("PLAIT_LIBOPENCL", "/nowhere/libOpenCL.so.1");
    TEST_OK(pl_devices_print(true, test_text_add, &t, &err), err);
    o = json_loads(t.s, 0, NULL);
    assert_non_null(o);
    all = field(o, "gpus");
    assert_int_equal(json_array_size(all), FAKE_COUNT);
    peers = field(json_array_get(all, FAKE_PLAIN), "peers");
    assert_int_equal(json_array_size(peers), 1);
    assert_string_equal(json_string_value(json_array_get(peers, 0)), "cuda:0");
    old = json_array_get(all, FAKE_OLD);
    assert_int_equal(json_array_size(field(old, "peers")), 0);
    assert_string_equal(json_string_value(field(old, "device")), "cuda:1");
    assert_non_null(strstr(json_string_value(field(old, "why")), "5.2"));
    assert_true(json_is_null(field(old, "available")));
    assert_true(json_is_null(field(field(o, "drivers"), "cuda")));
    assert_non_null(
        strstr(json_string_value(field(field(o, "drivers"), "opencl")),
               "/nowhere/libOpenCL.so.1"));
    assert_non_null(strstr(json_string_value(field(field(o, "drivers"), "hip")),
                           "/nowhere/libamdhip64.so"));
    assert_int_equal(json_object_size(field(o, "drivers")), 3);
    json_decref(o);
    free(t.s);
    fakes();
    assert_int_equal(f->n_live(), 0);
}

/* Names of drivers, and paths, need not be UTF-8. */
TEST(gpus_stand_in_json_whatever_drivers_say)
{
    struct test_text t = {0};
    json_t *o;
    pl_err err;

    fakes();
    name("PLAIT_LIBOPENCL", "/nowhere/\xff.so");
    TEST_OK(pl_devices_print(true, test_text_add, &t, &err), err);
    o = json_loads(t.s, 0, NULL);
    assert_non_null(o);
    assert_non_null(
        strstr(json_string_value(field(field(o, "drivers"), "opencl")),
               "/nowhere/\xef\xbf\xbd.so"));
    json_decref(o);
    free(t.s);
    fakes();
}
