/* The GPU driver over a fake HIP library (lib/fake_hip.c), whose devices run
 * the kernels' source in the emulator. Keeps the promises of HIP alone: device
 * enumeration, the thread's device, and its compiler. test_device_stream.c has
 * those shared with CUDA. */
#include "lib/support.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/gpu/driver_stream.h"
#include "lib/fake_cuda_use.h"
#include "lib/gpu_work.h"
#include "test_paths.h"

static const struct gpu_driver *const d = &gpu_hip;

static void name(const char *variable, const char *path)
{
    assert_int_equal(setenv(variable, path, 1), 0);
}

static void assert_clean(const struct fake_cuda *f)
{
    fake_cuda_assert_clean(f, "in the end");
}

/* ---- finding ------------------------------------------------------------- */

TEST(hip_without_its_libraries_names_them)
{
    const struct fake_cuda *f = fake_hip_use();
    struct gpu_info info[FAKE_COUNT];
    struct gpu *g;
    pl_err err;
    int n;

    name("PLAIT_LIBHIPRTC", "/nowhere/libhiprtc.so");
    /* HIP's own library has this function of the compiler, too */
    TEST_OK(d->open(&g, FAKE_NEW, &err), err);
    d->close(g);
    name("PLAIT_LIBHIPRTC", "libm.so.6");
    assert_int_equal(d->open(&g, FAKE_NEW, &err), PL_UNSUPPORTED);
    assert_null(g);
    assert_non_null(strstr(err.message, "libm.so.6 lacks functions"));
    assert_non_null(strstr(err.message, "PLAIT_LIBHIPRTC"));
    name("PLAIT_LIBHIP", "/nowhere/libamdhip64.so");
    assert_int_equal(d->list(info, FAKE_COUNT, &n, &err), PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "/nowhere/libamdhip64.so"));
    assert_non_null(strstr(err.message, "PLAIT_LIBHIP"));
    name("PLAIT_LIBHIP", "libm.so.6");
    assert_int_equal(d->list(info, FAKE_COUNT, &n, &err), PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "libm.so.6 has no hipInit"));
    fake_hip_use();
    assert_clean(f);
}

/* AMD's library without an AMD GPU. The device file tells whether the kernel's
 * driver is missing. */
TEST(hip_without_a_gpu_says_what_is_missing)
{
    static const unsigned code[] = {API_NO_DEVICE, HIP_CODE_INVALID_DEVICE};
    const struct fake_cuda *f = fake_hip_use();
    struct gpu_info info[FAKE_COUNT];
    pl_err err;
    int n;

    for (int i = 0; i < 2; i++) {
        f->break_at("hipInit", 1, code[i]);
        if (access("/dev/kfd", R_OK | W_OK) == 0) {
            TEST_OK(d->list(info, FAKE_COUNT, &n, &err), err);
        } else {
            assert_int_equal(d->list(info, FAKE_COUNT, &n, &err),
                             PL_UNSUPPORTED);
            assert_non_null(strstr(err.message, "/dev/kfd"));
        }
        assert_int_equal(n, 0);
    }
    f->break_at(NULL, 0, 0);
    assert_clean(f);
}

TEST(hip_lists_devices_by_its_own_numbers)
{
    static const unsigned fits = 1 << GPU_DOT4, mma = fits | 1 << GPU_MMA;
    static const unsigned has[] = {mma | 1 << GPU_MAPS | 1 << GPU_WORDS,
                                   1 << GPU_MAPS, fits | 1 << GPU_MAPS,
                                   mma | 1 << GPU_WORDS};
    static const double bytes_per_s[] = {512e9, 512e9, 512e9, 256e9};
    const struct fake_cuda *f = fake_hip_use();
    struct gpu_info info[FAKE_COUNT];
    uint64_t bytes;
    pl_err err;
    int n;

    TEST_OK(d->list(info, FAKE_COUNT, &n, &err), err);
    assert_int_equal(n, FAKE_COUNT);
    for (int i = 0; i < n; i++) {
        assert_int_equal(info[i].index, i);
        assert_int_equal(info[i].total_bytes, (uint64_t)8 << 30);
        assert_int_equal(info[i].n_unit, 100 + i);
        assert_true(info[i].mem_bytes_per_s == bytes_per_s[i]);
        assert_int_equal(info[i].has, has[i]);
        assert_int_equal(info[i].why[0] != '\0', i == FAKE_OLD);
    }
    assert_non_null(strstr(info[FAKE_OLD].why, "is gfx803, and the kernels"));
    assert_string_equal(info[0].title, "Fake gfx90a");
    assert_string_equal(info[0].bus, "0000:3b:00.0");
    assert_string_equal(info[0].version, "HIP 6.2, gfx90a");
    assert_true(info[0].float_macs_per_s == 128.0 * 100 * 1e9);
    assert_true(info[0].block_macs_per_s == 512.0 * 100 * 1e9);
    TEST_OK(d->free_memory(FAKE_FAR, &bytes, &err), err);
    assert_int_equal(bytes, ((uint64_t)7 << 30) + FAKE_FAR);
    assert_clean(f);
}

/* ---- working ------------------------------------------------------------- */

/* Other parts of a process may use HIP too, on a device of their own. */
TEST(hip_leaves_a_thread_the_device_that_it_had)
{
    const struct fake_cuda *f = fake_hip_use();
    void *library = dlopen(PLAIT_FAKE_HIP, RTLD_NOW | RTLD_LOCAL);
    unsigned (*init)(unsigned), (*set)(int), (*get)(int *);
    struct gpu_work w;
    pl_err err;
    int now = -1;

    assert_non_null(library);
    *(void **)&init = dlsym(library, "hipInit");
    *(void **)&set = dlsym(library, "hipSetDevice");
    *(void **)&get = dlsym(library, "hipGetDevice");
    assert_int_equal(init(0), 0);
    assert_int_equal(set(FAKE_PLAIN), 0);
    gpu_work_init(&w, d);
    TEST_OK(gpu_work_all(&w, FAKE_NEW, &err), err);
    TEST_OK(d->enter(w.g, &err), err);
    TEST_OK(d->finish(w.g, QUEUE_COPY, &err), err);
    d->leave(w.g);
    gpu_work_give_back(&w);
    gpu_work_fini(&w);
    assert_int_equal(get(&now), 0);
    assert_int_equal(now, FAKE_PLAIN);
    assert_int_equal(set(0), 0);
    dlclose(library);
    assert_clean(f);
}

/* Code that was compiled for an architecture is cached for all devices of that
 * architecture. */
TEST(hip_compiles_for_an_architecture_once)
{
    static const int index[] = {FAKE_NEW, FAKE_NEW, FAKE_PLAIN};
    static const int compiles[] = {2, 0, 2};
    const struct fake_cuda *f = fake_hip_use();
    char *old = getenv("XDG_CACHE_HOME");
    char *was = old ? strdup(old) : NULL;
    pl_err err;

    name("XDG_CACHE_HOME", test_temp("cache"));
    for (int i = 0; i < 3; i++) {
        int before = f->n_call("hiprtcCompileProgram");
        struct gpu *g;

        TEST_OK(d->open(&g, index[i], &err), err);
        TEST_OK(d->compile_kernels(g, gpu_work_wanted, 2,
                                   &(struct gpu_progress){0}, &err),
                err);
        TEST_OK(d->compile_kernels(g, gpu_work_wanted, 2,
                                   &(struct gpu_progress){0}, &err),
                err);
        assert_int_equal(f->n_call("hiprtcCompileProgram") - before,
                         compiles[i]);
        d->close(g);
    }
    if (was)
        name("XDG_CACHE_HOME", was);
    free(was);
    assert_clean(f);
}

/* PLAIT_HIP_MATRIX=0: code that was compiled, and passed its self test, with
 * matrix units is not reused without them. */
TEST(hip_leaves_matrix_units_alone_if_told)
{
    static const char *const to[] = {"0", "", "0", "1"};
    static const int compiles[] = {2, 2, 0, 0};
    const struct fake_cuda *f = fake_hip_use();
    char *was = getenv("XDG_CACHE_HOME");
    char identity[4][256];
    struct gpu *g;
    pl_err err;

    was = was ? strdup(was) : NULL;
    name("XDG_CACHE_HOME", test_temp("cache-matrix"));
    for (int i = 0; i < 4; i++) {
        int before = f->n_call("hiprtcCompileProgram");

        name("PLAIT_HIP_MATRIX", to[i]);
        TEST_OK(d->open(&g, FAKE_NEW, &err), err);
        TEST_OK(d->compile_kernels(g, gpu_work_wanted, 2,
                                   &(struct gpu_progress){0}, &err),
                err);
        TEST_OK(d->identity(g, identity[i], sizeof identity[i], &err), err);
        assert_int_equal(f->n_call("hiprtcCompileProgram") - before,
                         compiles[i]);
        d->close(g);
    }
    assert_string_equal(identity[0], identity[2]);
    assert_string_equal(identity[1], identity[3]);
    assert_string_not_equal(identity[0], identity[1]);
    name("PLAIT_HIP_MATRIX", "off");
    assert_int_equal(d->open(&g, FAKE_NEW, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "PLAIT_HIP_MATRIX=off: 0 stops"));
    name("PLAIT_HIP_MATRIX", "");
    if (was)
        name("XDG_CACHE_HOME", was);
    free(was);
    assert_clean(f);
}

/* ---- AMD's own compiler -------------------------------------------------- */

/* Compiles with AMD's compiler, which needs no GPU. Skips the case where it is
 * not installed. */
static void own_compiler(struct hip_text *t, const char *arch)
{
    static const char *const path[] = {"libamdhip64.so.7", "libamdhip64.so.6",
                                       "libamdhip64.so.5", NULL};
    struct stream_device device = {.who = "hip:0"};
    const char *tried;
    pl_status s;
    pl_err err;
    void *hip = stream_open_library("PLAIT_NO_VARIABLE", path, &tried);

    name("PLAIT_LIBHIPRTC", "");
    snprintf(device.arch, sizeof device.arch, "%s", arch);
    s = hip_text_init(t, hip, 0, &device, &err);
    /* the compiler is not installed; any other status is a failure */
    if (s == PL_UNSUPPORTED) {
        TEST_SKIP("%s", err.message);
    }
    TEST_OK(s, err);
}

/* Compiles a kernel and returns its code, which the caller frees. */
static char *own_code(const struct hip_text *t, enum gpu_kernel k)
{
    void *code;
    pl_err err;

    TEST_OK(hip_text_compile(t, k, &code, &err), err);
    assert_memory_equal(code, "\177ELF", 4);
    return code;
}

TEST(hip_text_is_compiled_by_the_compiler_of_amd)
{
    static const enum gpu_kernel kernel[] = {GPU_binary, GPU_softmax};
    static const char *const arch[] = {"gfx90a", "gfx1030"};

    for (int i = 0; i < 2; i++) {
        struct hip_text t;

        own_compiler(&t, arch[i]);
        for (int k = 0; k < 2; k++)
            free(own_code(&t, kernel[k]));
        hip_text_fini(&t);
    }
    fake_hip_use();
}

/* Code with and without matrix units differs in length. Byte 40 of an ELF file
 * has the offset of the section headers, near its end. */
TEST(hip_text_has_matrix_units_of_amd)
{
    static const char *const to[] = {"0", ""};
    struct hip_text t;
    char *code[2];

    own_compiler(&t, "gfx90a"); /* skips the case if there is no compiler */
    hip_text_fini(&t);
    for (int i = 0; i < 2; i++) {
        name("PLAIT_HIP_MATRIX", to[i]);
        own_compiler(&t, "gfx90a");
        code[i] = own_code(&t, GPU_matmul_tq);
        hip_text_fini(&t);
    }
    assert_memory_not_equal(code[0] + 40, code[1] + 40, 8);
    free(code[0]);
    free(code[1]);
    fake_hip_use();
}
