/* Compiles kernels for HIP devices. hiprtc compiles the kernel source once per
 * kernel, when the kernel is first needed. The code is stored in the kernel
 * cache for later processes (gpu_kernel_cache.h).
 *
 * hiprtc is a separate library or, in versions before 6, part of HIP's library.
 * Several threads may call its functions at once. */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash64.h"
#include "device/gpu/driver_stream.h"
#include "device/gpu/gpu_kernel_cache.h"
#include "device/gpu/gpu_switch.h"
#include "device/gpu/gpu_text.h"

static const char *const paths[] = {"libhiprtc.so.7",
                                    "libhiprtc.so.6",
                                    "libhiprtc.so.5",
                                    "libhiprtc.so",
                                    "/opt/rocm/lib/libhiprtc.so",
                                    NULL};

/* Compiler options, in addition to the architecture. -ffp-contract=off keeps
 * the compiler from fusing products and sums, which would change bits. */
static const char *const options[] = {"-std=c++17", "-O3", "-ffp-contract=off",
                                      "-w"};
enum { N_OPTION = sizeof options / sizeof *options };

/* Sets *told to the lines put before the source. PLAIT_HIP_MATRIX=0 turns
 * matrix units off, in case they do not compute what AMD documents. */
static pl_status read_switch(const char **told, pl_err *err)
{
    bool on;
    pl_status s = gpu_switch(
        "PLAIT_HIP_MATRIX",
        "stops kernels from using the matrix units of AMD GPUs", &on, err);

    *told = on ? "" : "#define NO_MATRIX\n";
    return s;
}

/* ---- the library --------------------------------------------------------- */

/* Finds hiprtc's functions in `library`, which may be NULL. Returns false if
 * one is missing. */
static bool find_calls(struct hip_text *t, void *library)
{
    bool all = library != NULL;

#define FIND(name, parameters)                                                 \
    *(void **)&t->name = all ? dlsym(library, #name) : NULL;                   \
    all = all && t->name;
    HIPRTC_CALL_MAP(FIND)
#undef FIND
    if (all)
        *(void **)&t->hiprtcGetErrorString =
            dlsym(library, "hiprtcGetErrorString");
    return all;
}

static pl_status open_library(struct hip_text *t, void *hip, pl_err *err)
{
    const char *tried = "";

    t->handle = stream_open_library("PLAIT_LIBHIPRTC", paths, &tried);
    if (find_calls(t, t->handle) || (!t->handle && find_calls(t, hip)))
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "%s: no HIP compiler found: %s %s; install AMD's hiprtc, or "
                   "set PLAIT_LIBHIPRTC to its library",
                   t->who, tried,
                   t->handle ? "lacks functions" : "cannot be opened");
}

static pl_status check(const struct hip_text *t, unsigned code,
                       const char *function, const char *what, const char *said,
                       pl_err *err)
{
    const char *text;

    if (code == API_SUCCESS)
        return PL_OK;
    text = t->hiprtcGetErrorString ? t->hiprtcGetErrorString(code) : NULL;
    return err_set(err, PL_DEVICE, "%s, %s: %s failed: %s (%u)%s%.600s", t->who,
                   what, function, text ? text : "an unknown error", code,
                   said ? "; compiler output: " : "", said ? said : "");
}

#define CALL(t, err, what, name, ...)                                          \
    check(t, (t)->name(__VA_ARGS__), #name, what, NULL, err)

pl_status hip_text_init(struct hip_text *t, void *hip, int version,
                        const struct stream_device *d, pl_err *err)
{
    int major = 0, minor = 0;
    pl_status s;

    *t = (struct hip_text){0};
    snprintf(t->who, sizeof t->who, "%s", d->who);
    snprintf(t->arch, sizeof t->arch, "%s", d->arch);
    s = read_switch(&t->told, err);
    if (s == PL_OK)
        s = open_library(t, hip, err);
    if (s == PL_OK)
        s = CALL(t, err, "its compiler", hiprtcVersion, &major, &minor);
    snprintf(t->version, sizeof t->version, "hiprtc %d.%d, driver %d", major,
             minor, version);
    if (s != PL_OK)
        hip_text_fini(t);
    return s;
}

void hip_text_fini(struct hip_text *t)
{
    if (t->handle)
        dlclose(t->handle);
    *t = (struct hip_text){0};
}

bool hip_text_may_have_matrix(void)
{
    const char *told;

    return read_switch(&told, NULL) == PL_OK && !*told;
}

uint64_t hip_text_hash(const struct hip_text *t)
{
    uint64_t h = gpu_prelude_hip.hash;

    h = hash64(h, t->told, strlen(t->told));
    for (int i = 0; i < N_OPTION; i++)
        h = hash64(h, options[i], strlen(options[i]));
    return hash64(h, &gpu_text.hash, sizeof gpu_text.hash);
}

/* ---- compiling ----------------------------------------------------------- */

/* Sets *out to the source with only kernel k enabled; the caller frees it. */
static pl_status text_of(const struct hip_text *t, enum gpu_kernel k,
                         char **out, pl_err *err)
{
    char head[200];

    snprintf(head, sizeof head,
             "#define SOME_KERNELS\n#define WANT_%s ~, KERNEL_MADE\n%s",
             gpu_kernel_name(k), t->told);
    return gpu_text_unpack(head, &gpu_prelude_hip, out, err);
}

/* Sets an error that contains the compiler's log, from the first line with an
 * error. */
static pl_status compile_failed(const struct hip_text *t,
                                struct hiprtc_program *p, unsigned code,
                                const char *what, pl_err *err)
{
    const char *said = NULL;
    char *log = NULL;
    size_t n = 0;
    pl_status s;

    if (t->hiprtcGetProgramLogSize(p, &n) == API_SUCCESS && n > 1 &&
        (log = calloc(1, n + 1)) &&
        t->hiprtcGetProgramLog(p, log) == API_SUCCESS) {
        said = strstr(log, "error");
        while (said && said > log && said[-1] != '\n')
            said--;
        said = said ? said : log;
    }
    s = check(t, code, "hiprtcCompileProgram", what, said, err);
    free(log);
    return s;
}

static pl_status take_code(const struct hip_text *t, struct hiprtc_program *p,
                           const char *what, char **out, size_t *n, pl_err *err)
{
    pl_status s;

    *n = 0;
    PL_TRY(CALL(t, err, what, hiprtcGetCodeSize, p, n));
    *out = malloc(*n + 1);
    if (!*out)
        return err_no_memory(err, "a kernel's code");
    s = CALL(t, err, what, hiprtcGetCode, p, *out);
    if (s != PL_OK) {
        free(*out);
        *out = NULL;
    }
    return s;
}

static pl_status compile(const struct hip_text *t, enum gpu_kernel k,
                         char **out, size_t *n, pl_err *err)
{
    const char *option[N_OPTION + 1];
    char arch[sizeof t->arch + 20], what[96];
    struct hiprtc_program *p = NULL;
    char *text;
    unsigned code;
    pl_status s;

    PL_TRY(text_of(t, k, &text, err));
    snprintf(arch, sizeof arch, "--offload-arch=%s", t->arch);
    snprintf(what, sizeof what, "kernel %s", gpu_kernel_name(k));
    memcpy(option, options, sizeof options);
    option[N_OPTION] = arch;
    s = CALL(t, err, what, hiprtcCreateProgram, &p, text, "plait.hip", 0, NULL,
             NULL);
    if (s == PL_OK) {
        code = t->hiprtcCompileProgram(p, N_OPTION + 1, option);
        s = code == API_SUCCESS ? take_code(t, p, what, out, n, err)
                                : compile_failed(t, p, code, what, err);
        t->hiprtcDestroyProgram(&p);
    }
    free(text);
    return s;
}

pl_status hip_text_compile(const struct hip_text *t, enum gpu_kernel k,
                           void **out, pl_err *err)
{
    char key[400];
    char *code = NULL;
    size_t n;
    int n_key =
        snprintf(key, sizeof key, "hip\n%s\n%s\n%s\n%016" PRIx64 "\n", t->arch,
                 t->version, gpu_kernel_name(k), hip_text_hash(t));

    *out = gpu_cache_load(key, (size_t)n_key, &n);
    if (*out)
        return PL_OK;
    PL_TRY(compile(t, k, &code, &n, err));
    /* if storing fails, later processes compile again */
    gpu_cache_save(key, (size_t)n_key, code, n, NULL);
    *out = code;
    return PL_OK;
}
