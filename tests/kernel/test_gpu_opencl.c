/* The driver for OpenCL: its list, rejections and their messages, queues and
 * memory, cached kernels. Also the kernels on a device of this machine, through
 * the tests of the CPU's in processes of their own (lib/gpu_bridge.h). Cases
 * that need a device are skipped without one; Debian's pocl-opencl-icd makes
 * one of any processor. */
#include "lib/support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash64.h"
#include "device/gpu/driver_opencl.h"
#include "device/gpu/gpu_kernel_cache.h"
#include "device/gpu/gpu_launch.h"
#include "device/gpu/gpu_selftest.h"
#include "device/gpu/opencl_api.h"
#include "lib/command.h"
#include "lib/gpu_bridge.h"
#include "lib/program_build.h"
#include "test_paths.h"

/* Sets the library's path; NULL: the one that the tests were started with. */
static void library(const char *path)
{
    static const char *before;
    static bool asked;
    const char *env = getenv("PLAIT_LIBOPENCL");

    if (!asked && env)
        before = strdup(env);
    asked = true;
    path = path ? path : before;
    if (path)
        assert_int_equal(setenv("PLAIT_LIBOPENCL", path, 1), 0);
    else
        unsetenv("PLAIT_LIBOPENCL");
}

/* ---- failures ----------------------------------------------------------- */

/* Checks that list() and open() fail with this reason. */
static void must_refuse(int index, pl_status s, const char *why)
{
    struct gpu *g;
    pl_err err;

    assert_int_equal(gpu_opencl.open(&g, index, &err), s);
    assert_null(g);
    if (!strstr(err.message, why))
        fail_msg("should say \"%s\" but said: %s", why, err.message);
}

TEST(opencl_names_the_library_that_is_missing)
{
    struct gpu_info info[4];
    pl_err err;
    int n;

    library("/nonexistent");
    assert_int_equal(gpu_opencl.list(info, 4, &n, &err), PL_UNSUPPORTED);
    assert_int_equal(n, 0);
    assert_non_null(strstr(err.message, "/nonexistent"));
    assert_non_null(strstr(err.message, "PLAIT_LIBOPENCL"));
    must_refuse(0, PL_UNSUPPORTED, "/nonexistent");
    library("libm.so.6"); /* a library that exists but is not OpenCL */
    must_refuse(0, PL_UNSUPPORTED, "libm.so.6 has no clGetPlatformIDs");
    library(NULL);
}

/* PoCL, an OpenCL driver, ends the process if there is no /sys. */
TEST(opencl_refuses_a_driver_that_ends_the_process)
{
    static const struct {
        const char *variable, *says;
    } list[] = {{"FAKE_OPENCL_ABORTS", "signal 6"},
                {"FAKE_OPENCL_EXITS", "it called exit"}};
    struct gpu_info info[4];
    pl_err err;
    int n;

    for (int i = 0; i < 2; i++) {
        /* makes the driver forget the devices of the other list */
        library("/nonexistent");
        must_refuse(0, PL_UNSUPPORTED, "/nonexistent");
        setenv(list[i].variable, "1", 1);
        library(PLAIT_FAKE_OPENCL);
        must_refuse(0, PL_DEVICE, "kills the process while listing");
        unsetenv(list[i].variable);
        assert_int_equal(gpu_opencl.list(info, 4, &n, &err), PL_DEVICE);
        assert_int_equal(n, 0);
        assert_non_null(strstr(err.message, PLAIT_FAKE_OPENCL));
        assert_non_null(strstr(err.message, list[i].says));
        assert_non_null(strstr(err.message, "PLAIT_LIBOPENCL"));
    }
    library("/nonexistent");
    must_refuse(0, PL_UNSUPPORTED, "/nonexistent");
    library(NULL);
}

TEST(opencl_names_the_function_and_the_error)
{
    static const struct {
        int32_t code;
        pl_status s;
        const char *said;
    } error[] = {
        {-4, PL_NO_DEVICE_MEMORY, "CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)"},
        {-5, PL_DEVICE, "CL_OUT_OF_RESOURCES (-5)"},
        {-6, PL_NO_MEMORY, "CL_OUT_OF_HOST_MEMORY (-6)"},
        {-11, PL_DEVICE, "CL_BUILD_PROGRAM_FAILURE (-11)"},
        {-54, PL_DEVICE, "CL_INVALID_WORK_GROUP_SIZE (-54)"},
        {-64, PL_DEVICE, "CL_INVALID_PROPERTY (-64)"},
        {-9999, PL_DEVICE, "an unknown error (-9999)"},
    };
    char want[128];
    pl_err err;

    assert_int_equal(opencl_check(0, "clFlush", "x", &err), PL_OK);
    for (size_t i = 0; i < sizeof error / sizeof *error; i++) {
        assert_int_equal(opencl_check(error[i].code, "clFlush", "x", &err),
                         error[i].s);
        snprintf(want, sizeof want, "x: clFlush failed: %s", error[i].said);
        assert_string_equal(err.message, want);
    }
    library(PLAIT_FAKE_OPENCL);
    must_refuse(0, PL_DEVICE,
                "khr, the fan is off: clCreateContext failed: "
                "CL_OUT_OF_RESOURCES (-5)");
    library(NULL);
}

/* Kernels prepared in advance, and kernels compiled at their launch. */
TEST(opencl_shows_what_the_compiler_said)
{
    static const char why[] =
        "nv: clBuildProgram failed: CL_BUILD_PROGRAM_FAILURE (-11); compiler "
        "output: k.cl:7: error: no such word";
    const bool want[GPU_KERNEL_COUNT] = {[GPU_binary] = true};
    struct gpu_progress p = {0};
    struct binary_args a = {0};
    struct gpu *g;
    pl_err err;

    library(PLAIT_FAKE_OPENCL);
    TEST_OK(gpu_opencl.open(&g, 1, &err), err);
    for (int n_thread = 1; n_thread < 3; n_thread++) {
        assert_int_equal(
            gpu_opencl.compile_kernels(g, want, n_thread, &p, &err), PL_DEVICE);
        assert_non_null(strstr(err.message, why));
    }
    assert_int_equal(
        gpu_opencl.launch(g, QUEUE_COMPUTE, GPU_binary, 1, &a, &err),
        PL_DEVICE);
    assert_non_null(strstr(err.message, why));
    gpu_opencl.close(g);
    library(NULL);
}

TEST(opencl_refuses_devices_that_have_other_bits)
{
    library(PLAIT_FAKE_OPENCL);
    must_refuse(3, PL_UNSUPPORTED, "old has \"OpenCL 1.1 x\"");
    must_refuse(4, PL_UNSUPPORTED, "flushes flushes subnormal floats to zero");
    must_refuse(5, PL_UNSUPPORTED, "divides does not round float division");
    must_refuse(6, PL_UNSUPPORTED, "floats has no double precision");
    must_refuse(7, PL_UNSUPPORTED, "small has less than 32 KiB");
    must_refuse(8, PL_UNSUPPORTED,
                "narrow limits work-groups to less than 256");
    must_refuse(10, PL_NOT_FOUND, "opencl:10: this machine has 10");
    must_refuse(-1, PL_NOT_FOUND, "opencl:-1: ");
    library(NULL);
}

TEST(opencl_lists_devices_with_their_bus)
{
    static const struct gpu_info want[] = {
        {.title = "khr", .bus = "0001:3b:02.3", .available_bytes = 8ull << 30},
        {.title = "nv", .bus = "0000:c1:05.1", .available_bytes = 8ull << 30},
        {.title = "Board",
         .bus = "0000:83:04.1",
         .available_bytes = 4ull << 20},
        {.title = "old", .bus = "", .available_bytes = 8ull << 30},
        {.title = "flushes", .bus = "", .available_bytes = 8ull << 30},
    };
    struct gpu_info info[5];
    pl_err err;
    int n;

    library(PLAIT_FAKE_OPENCL);
    TEST_OK(gpu_opencl.list(info, 5, &n, &err), err);
    assert_int_equal(n, 5);
    for (int i = 0; i < n; i++) {
        assert_string_equal(info[i].title, want[i].title);
        assert_string_equal(info[i].bus, want[i].bus);
        assert_int_equal(info[i].available_bytes, want[i].available_bytes);
        assert_int_equal(info[i].index, i);
        assert_int_equal(info[i].n_unit, 7);
        assert_int_equal(info[i].on_cores, i > 0);
        assert_int_equal(info[i].largest_bytes, 2ull << 30);
        assert_int_equal(info[i].why[0] != '\0', i > 2);
    }
    assert_string_equal(info[0].version, "OpenCL 3.0, driver fake");
    assert_non_null(strstr(info[4].why, "flushes subnormal floats to zero"));
    library(NULL);
}

/* ---- a device of this machine ------------------------------------------- */

/* Returns the group's own folder for caches of the driver and those below
 * it. */
static const char *cache(void)
{
    static const char *path;

    if (!path)
        path = test_temp("cache");
    assert_int_equal(setenv("XDG_CACHE_HOME", path, 1), 0);
    return path;
}

/* Opens the first device that can run the kernels, or skips the case. */
static struct gpu *device(int *index)
{
    struct gpu_info info[OPENCL_MAX_DEVICE];
    struct gpu *g = NULL;
    pl_err err = {0};
    int n;

    if (TEST_SANITIZED)
        TEST_SKIP("the compilers of OpenCL are no business of sanitizers");
    cache();
    library(NULL);
    if (gpu_opencl.list(info, OPENCL_MAX_DEVICE, &n, &err) != PL_OK)
        TEST_SKIP("%s", err.message);
    for (int i = 0; i < n; i++) {
        pl_status s = gpu_opencl.open(&g, i, &err);

        if (index)
            *index = i;
        if (s == PL_OK)
            return g;
        if (s != PL_UNSUPPORTED)
            fail_msg("%s", err.message);
    }
    TEST_SKIP("OpenCL has no device here%s%s", n ? ": " : "", err.message);
    return NULL;
}

TEST(opencl_queues_work_in_order_and_meet_at_marks)
{
    enum { N = 1 << 20, PART = N / 8 };
    const struct gpu_driver *d = &gpu_opencl;
    struct gpu *g = device(NULL);
    uint64_t seed = test_seed(), a, b;
    unsigned char *in, *out;
    pl_err err;

    TEST_OK(d->alloc(g, N, &a, &err), err);
    TEST_OK(d->alloc(g, N + 64, &b, &err), err);
    TEST_OK(d->host_alloc(g, N, (void **)&in, &err), err);
    TEST_OK(d->host_alloc(g, N, (void **)&out, &err), err);
    for (int i = 0; i < N; i++) {
        in[i] = (unsigned char)test_random(&seed);
        out[i] = 0;
    }
    /* Bytes travel in a circle: written by one queue, copied by the other, read
     * back. */
    for (int i = 0; i < 8; i++) {
        size_t at = (size_t)i * PART;

        TEST_OK(d->write(g, QUEUE_COPY, a + at, in + at, PART, &err), err);
        TEST_OK(d->fence_record(g, QUEUE_COPY, i, &err), err);
        TEST_OK(d->fence_wait(g, QUEUE_COMPUTE, i, &err), err);
        TEST_OK(d->copy(g, QUEUE_COMPUTE, b + 64 + at, a + at, PART, &err),
                err);
        TEST_OK(d->fence_record(g, QUEUE_COMPUTE, 63 - i, &err), err);
        TEST_OK(d->fence_wait(g, QUEUE_COPY, 63 - i, &err), err);
        TEST_OK(d->read(g, QUEUE_COPY, out + at, b + 64 + at, PART, &err), err);
        TEST_OK(d->flush(g, QUEUE_COPY, &err), err);
    }
    TEST_OK(d->finish(g, QUEUE_COPY, &err), err);
    assert_memory_equal(in, out, N);
    d->host_release(g, in); /* the other buffer is freed by close() */
    d->release(g, a);
    d->close(g);
    d->close(NULL);
}

TEST(opencl_memory_has_bounds_and_an_end)
{
    const struct gpu_driver *d = &gpu_opencl;
    struct gpu *g = device(NULL);
    uint64_t at[OPENCL_MAX_MEMORY + 1];
    char byte[4] = "abc";
    pl_err err;

    assert_int_equal(d->alloc(g, (size_t)1 << 50, &at[0], &err),
                     PL_NO_DEVICE_MEMORY);
    assert_non_null(strstr(err.message, "clCreateBuffer failed: CL_"));
    for (int i = 0; i < OPENCL_MAX_MEMORY; i++)
        TEST_OK(d->alloc(g, 4, &at[i], &err), err);
    assert_int_equal(d->alloc(g, 4, &at[OPENCL_MAX_MEMORY], &err), PL_FULL);
    assert_int_equal(at[OPENCL_MAX_MEMORY], 0);
    TEST_OK(d->write(g, QUEUE_COMPUTE, at[7], byte, 4, &err), err);
    assert_int_equal(d->write(g, QUEUE_COMPUTE, at[7] + 1, byte, 4, &err),
                     PL_DEVICE);
    assert_int_equal(d->read(g, QUEUE_COMPUTE, byte, 0, 4, &err), PL_DEVICE);
    d->release(g, at[3]);
    assert_int_equal(d->copy(g, QUEUE_COMPUTE, at[3], at[7], 4, &err),
                     PL_DEVICE);
    TEST_OK(d->alloc(g, 4, &at[3], &err), err);
    TEST_OK(d->copy(g, QUEUE_COMPUTE, at[3], at[7], 4, &err), err);
    memset(byte, 0, 4);
    TEST_OK(d->read(g, QUEUE_COMPUTE, byte, at[3], 4, &err), err);
    TEST_OK(d->finish(g, QUEUE_COMPUTE, &err), err);
    assert_string_equal(byte, "abc");
    d->close(g);
}

/* Computes x + x of whole numbers, with operands in the allocation of that
 * number. */
static void must_compute(struct gpu *g)
{
    enum { N = 1000 };
    const struct gpu_driver *d = &gpu_opencl;
    float x[N], y[N] = {0};
    struct binary_args a = {.n = N, .dim = {N, 1, 1, 1}, .op = TEXT_ADD};
    uint64_t at;
    pl_err err;

    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    TEST_OK(d->alloc(g, sizeof x + sizeof y, &at, &err), err);
    a.x = a.y = at;
    a.out = at + sizeof x;
    a.stride_x[0] = a.stride_y[0] = 1;
    TEST_OK(d->write(g, QUEUE_COMPUTE, at, x, sizeof x, &err), err);
    TEST_OK(d->launch(g, QUEUE_COMPUTE, GPU_binary, (N + 255) / 256, &a, &err),
            err);
    memset(&a, 0xff, sizeof a); /* launch() has copied the arguments */
    TEST_OK(d->read(g, QUEUE_COMPUTE, y, at + sizeof x, sizeof y, &err), err);
    TEST_OK(d->finish(g, QUEUE_COMPUTE, &err), err);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == 2 * x[i]);
}

TEST_LONG(opencl_kernels_find_each_allocation)
{
    struct gpu *g;

    g = device(NULL);
    for (int i = 0; i < OPENCL_MAX_MEMORY; i++)
        must_compute(g); /* each call makes one more allocation */
    gpu_opencl.close(g);
}

/* ---- the cache of kernels ------------------------------------------------ */

/* Returns the path of the one cached file; the caller frees it. */
static char *kept(void)
{
    char *dir, *path = NULL;
    struct dirent *e;
    DIR *list;
    int n = 0;

    assert_true(asprintf(&dir, "%s/plait/gpu", cache()) > 0);
    list = opendir(dir);
    assert_non_null(list);
    while ((e = readdir(list)))
        if (e->d_name[0] != '.' && n++ == 0)
            assert_true(asprintf(&path, "%s/%s", dir, e->d_name) > 0);
    closedir(list);
    free(dir);
    assert_int_equal(n, 1);
    return path;
}

static void overwrite(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

TEST(gpu_cache_gives_what_is_whole_or_nothing)
{
    static const char key[] = "a key", bytes[] = "compiled kernels";
    char *path, *file;
    pl_err err;
    size_t n, n_file;
    char *got;

    cache();
    TEST_OK(gpu_cache_save(key, sizeof key, bytes, sizeof bytes, &err), err);
    got = gpu_cache_load(key, sizeof key, &n);
    assert_int_equal(n, sizeof bytes);
    assert_memory_equal(got, bytes, n);
    free(got);
    assert_null(gpu_cache_load(key, sizeof key - 1, &n));
    path = kept();
    file = test_read(path, &n_file);
    /* changes any byte, or adds one at the end */
    for (size_t i = 0; i < n_file; i++) {
        file[i] ^= 4;
        overwrite(path, file, n_file);
        assert_null(gpu_cache_load(key, sizeof key, &n));
        file[i] ^= 4;
        overwrite(path, file, i);
        assert_null(gpu_cache_load(key, sizeof key, &n));
    }
    assert_int_equal(unlink(path), 0);
    free(file);
    free(path);
}

/* Builds a program of one kernel on the first device; it must fill. */
static void must_fill(void)
{
    static const char *const name[] = {"fill"};
    static const struct opencl_source src = {
        .text = "__kernel void fill(__global int *x)"
                "{ x[get_global_id(0)] = (int)get_global_id(0) * 3; }",
        .n_kernel = 1,
        .name = name,
        .keep = true,
    };
    enum { N = 64 };
    size_t lanes = N;
    struct opencl cl;
    struct opencl_devices all;
    struct cl_kernel *k[1] = {NULL};
    struct cl_context *c;
    struct cl_program *p;
    struct cl_memory *m;
    struct cl_queue *q;
    int32_t e, x[N];
    pl_err err;

    TEST_OK(opencl_load(&cl, &err), err);
    TEST_OK(opencl_devices(&cl, &all, &err), err);
    c = cl.clCreateContext(NULL, 1, &all.item[0].device, NULL, NULL, &e);
    assert_non_null(c);
    TEST_OK(opencl_program(&cl, c, &all.item[0], &src, &p, k, &err), err);
    q = cl.clCreateCommandQueue(c, all.item[0].device, 0, &e);
    m = cl.clCreateBuffer(c, CL_MEMORY_READ_WRITE, sizeof x, NULL, &e);
    assert_int_equal(cl.clSetKernelArg(k[0], 0, sizeof m, &m), 0);
    assert_int_equal(cl.clEnqueueNDRangeKernel(q, k[0], 1, NULL, &lanes, NULL,
                                               0, NULL, NULL),
                     0);
    assert_int_equal(
        cl.clEnqueueReadBuffer(q, m, CL_YES, 0, sizeof x, x, 0, NULL, NULL), 0);
    for (int i = 0; i < N; i++)
        assert_int_equal(x[i], i * 3);
    cl.clReleaseMemObject(m);
    cl.clReleaseCommandQueue(q);
    opencl_program_free(&cl, p, k, 1);
    cl.clReleaseContext(c);
    opencl_unload(&cl);
}

/* The file has a head of four words, the key, the binary. The head's second
 * word is the hash of the binary, the third the length of the key
 * (gpu_kernel_cache.h). */
static unsigned char *binary_of(unsigned char *file, size_t n, size_t *n_binary)
{
    uint64_t word[4];

    memcpy(word, file, sizeof word);
    assert_true(word[2] < n && word[3] == n - sizeof word - word[2]);
    *n_binary = word[3];
    return file + sizeof word + word[2];
}

/* Opens with that cached file. Afterwards there is a good one, which a driver
 * may make in more than one form. */
static void must_mend(const char *path, const void *bytes, size_t n)
{
    unsigned char *now, *binary;
    uint64_t check;
    size_t n_now, n_binary;

    overwrite(path, bytes, n);
    must_fill();
    now = test_read(path, &n_now);
    binary = binary_of(now, n_now, &n_binary);
    memcpy(&check, now + 8, sizeof check);
    assert_true(check == hash64(0, binary, n_binary));
    assert_true(n_now != n || memcmp(now, bytes, n) != 0);
    free(now);
}

TEST(opencl_takes_no_damaged_binary)
{
    size_t n, n_binary;
    unsigned char *good, *bad, *binary;
    uint64_t check;
    char *path;

    /* fails the case if the machine has no device */
    gpu_opencl.close(device(NULL));
    must_fill();
    path = kept();
    good = test_read(path, &n);
    bad = test_need(1, n);
    must_fill(); /* loads the kernels from the cache */
    must_mend(path, good, n / 2);
    must_mend(path, good, 0);
    /* damages a byte of the header, of the key, and of the binary */
    for (int i = 0; i < 3; i++) {
        memcpy(bad, good, n);
        bad[i == 0 ? 20 : i == 1 ? 40 : n - 1] ^= 1;
        must_mend(path, bad, n);
    }
    /* A file that is complete, with bytes that are not a binary. */
    memcpy(bad, good, n);
    binary = binary_of(bad, n, &n_binary);
    memset(binary, 'x', n_binary);
    check = hash64(0, binary, n_binary);
    memcpy(bad + 8, &check, sizeof check);
    must_mend(path, bad, n);
    free(path);
    free(good);
    free(bad);
}

/* ---- the kernels --------------------------------------------------------- */

/* Returns the output of this program for that group or case in an environment,
 * which the caller frees; *status is its exit code. */
static char *run_self(const char *environment, const char *what, int *status)
{
    const char *out = test_temp("said");
    char self[4096] = "", *line, *said;
    size_t n;

    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    assert_true(asprintf(&line,
                         "%s PLAIT_TEST_CACHE='%s' "
                         "ASAN_OPTIONS=\"$ASAN_OPTIONS:detect_leaks=0\" "
                         "'%s' %s >'%s' 2>&1 </dev/null",
                         environment, cache(), self, what, out) > 0);
    *status = command_status(system(line));
    said = test_read(out, &n);
    free(line);
    return said;
}

/* Runs the group of tests that calls kernel k, in a process whose GPU is a
 * device of OpenCL. */
static void run_bits(const char *environment, const char *group)
{
    int status;
    char *said = run_self(environment, group, &status);
    const char *calls = strstr(said, GPU_BRIDGE_CALLS);

    if (status != 0)
        fail_msg("%s %s\n  exit %d; it said: %s", environment, group, status,
                 said);
    assert_non_null(calls);
    assert_true(atoi(calls + strlen(GPU_BRIDGE_CALLS)) > 0);
    free(said);
}

static void run_group(const char *group, enum kernel k)
{
    char environment[64];
    int index = 0;

    if (!gpu_bridge_has(k))
        TEST_SKIP("GPUs have no kernel for %s", kernel_name(k));
    gpu_opencl.close(device(&index));
    snprintf(environment, sizeof environment, "PLAIT_GPU_TEST=opencl:%d",
             index);
    run_bits(environment, group);
}

TEST_LONG(opencl_has_the_bits_of_generic_ops)
{
    run_group("test_cpu_ops", KERNEL_rms_norm);
}

TEST_LONG(opencl_has_the_bits_of_generic_contractions)
{
    run_group("test_cpu_matmul", KERNEL_matmul);
}

TEST_LONG(opencl_has_the_bits_of_generic_rows)
{
    run_group("test_gpu_kernels", KERNEL_gather_rows);
}

TEST_LONG(opencl_has_the_bits_of_generic_attention)
{
    run_group("test_cpu_attention", KERNEL_attention);
}

/* The self test of a device, here of all kernels: a compiler might access
 * memory beyond rows. */
TEST_LONG(opencl_passes_the_trials_of_kernels)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC};
    bool want[GPU_KERNEL_COUNT];
    struct gpu_progress progress = {0};
    struct device_set *s;
    struct gpu_device *x;
    bool differs = true;
    char spec[32];
    int index = 0;
    pl_err err;

    memset(want, 1, sizeof want);
    gpu_opencl.close(device(&index));
    snprintf(spec, sizeof spec, "opencl:%d", index);
    s = build_set_as(spec, 1, &opt);
    x = device_of(s, 0)->own;
    TEST_OK(x->driver->compile_kernels(x->gpu, want, 1, &progress, &err), err);
    TEST_OK(gpu_check(x, want, &progress, &differs, &err), err);
    assert_false(differs);
    device_set_free(s);
}

/* ---- another compiler ---------------------------------------------------- */

/* Mesa's OpenCL on this machine's processors. That of Mesa 22.3 lacks doubles
 * and is rejected; the case reports what this one lacks. */
TEST_LONG(opencl_of_mesa_has_the_bits_of_generic)
{
    static const char vendor[] = "/etc/OpenCL/vendors/rusticl.icd";
    static const char mesa[] = "OCL_ICD_VENDORS=/etc/OpenCL/vendors/rusticl.icd"
                               " RUSTICL_ENABLE=llvmpipe RUSTICL_FEATURES=fp64";
    char environment[256], why[256] = "";
    const char *skipped;
    char *said;
    int status;

    if (TEST_SANITIZED)
        TEST_SKIP("the compilers of OpenCL are no business of sanitizers");
    if (access(vendor, R_OK) != 0)
        TEST_SKIP("there is no %s: Debian's mesa-opencl-icd has it", vendor);
    said = run_self(mesa, "opencl_kernels_find_each_allocation", &status);
    if (status != 0)
        fail_msg("%s\n  exit %d; it said: %s", mesa, status, said);
    skipped = strstr(said, "OpenCL has no device here");
    if (skipped)
        snprintf(why, sizeof why, "%.*s", (int)strcspn(skipped, "\n"), skipped);
    free(said);
    if (*why)
        TEST_SKIP("Mesa's rusticl: %s", why);
    snprintf(environment, sizeof environment, "%s PLAIT_GPU_TEST=opencl:0",
             mesa);
    run_bits(environment, "test_cpu_ops");
}
