/* Creates the kernels of an OpenCL device, from the binary in the kernel cache
 * or, if there is none, from source. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_kernel_cache.h"
#include "device/gpu/opencl_api.h"

struct build {
    const struct opencl *cl;
    struct cl_context *context;
    const struct opencl_device *at;
    const struct opencl_source *src;
    const char *options;
    struct cl_kernel **kernel;
};

/* Compiler options for GPUs and for CPUs. With ON_CORES loops are not unrolled.
 * Compilers for CPUs turn a group's lanes into a loop, and would take minutes
 * to compile unrolled loops inside it. */
static const char options_gpu[] =
    "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";
static const char options_cores[] =
    "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt -DON_CORES";

/* Returns the key of the binary in the kernel cache. It contains all that may
 * affect the binary. The caller frees it. Returns NULL if out of memory. */
static char *key_of(const struct build *b, size_t *n)
{
    char name[256], version[256], driver[256], platform[256] = "";
    size_t size = strlen(b->src->text) + 1200;
    char *key = malloc(size);
    struct cl_device *d = b->at->device;

    opencl_text(b->cl, d, CL_DEVICE_NAME_TEXT, name, sizeof name);
    opencl_text(b->cl, d, CL_DEVICE_VERSION_TEXT, version, sizeof version);
    opencl_text(b->cl, d, CL_DEVICE_DRIVER_TEXT, driver, sizeof driver);
    if (b->cl->clGetPlatformInfo(b->at->platform, CL_PLATFORM_VERSION_TEXT,
                                 sizeof platform - 1, platform, NULL) != CL_OK)
        platform[0] = '\0';
    if (key)
        *n = (size_t)snprintf(key, size, "opencl\n%s\n%s\n%s\n%s\n%s\n%s",
                              b->options, name, version, driver, platform,
                              b->src->text);
    return key;
}

static pl_status make_kernels(const struct build *b, struct cl_program *p,
                              pl_err *err)
{
    for (int k = 0; k < b->src->n_kernel; k++) {
        int32_t e = CL_OK;

        b->kernel[k] = b->cl->clCreateKernel(p, b->src->name[k], &e);
        PL_TRY(opencl_check(e, "clCreateKernel", b->src->name[k], err));
    }
    return PL_OK;
}

void opencl_program_free(const struct opencl *cl, struct cl_program *p,
                         struct cl_kernel **kernel, int n_kernel)
{
    for (int k = 0; k < n_kernel; k++) {
        if (kernel[k])
            cl->clReleaseKernel(kernel[k]);
        kernel[k] = NULL;
    }
    if (p)
        cl->clReleaseProgram(p);
}

static int32_t compile(const struct build *b, struct cl_program *p)
{
    return b->cl->clBuildProgram(p, 1, &b->at->device, b->options, NULL, NULL);
}

/* ---- kernels from a stored binary ---------------------------------------- */

/* Creates the kernels from the stored binary. Returns NULL if there is none or
 * the driver rejects it. */
static struct cl_program *from_binary(const struct build *b, const char *key,
                                      size_t n_key)
{
    struct cl_program *p = NULL;
    int32_t e = CL_OK, status = CL_OK;
    size_t n;
    unsigned char *bytes = gpu_cache_load(key, n_key, &n);
    const unsigned char *binary = bytes;

    if (bytes)
        p = b->cl->clCreateProgramWithBinary(b->context, 1, &b->at->device, &n,
                                             &binary, &status, &e);
    free(bytes);
    if (!p || (e == CL_OK && status == CL_OK && compile(b, p) == CL_OK &&
               make_kernels(b, p, NULL) == PL_OK))
        return p;
    opencl_program_free(b->cl, p, b->kernel, b->src->n_kernel);
    return NULL;
}

/* Stores the binary in the kernel cache. Ignores failures, because the source
 * can be compiled again. */
static void keep(const struct opencl *cl, struct cl_program *p, const char *key,
                 size_t n_key)
{
    unsigned char *bytes;
    size_t n = 0;

    if (!gpu_cache_is_there() ||
        cl->clGetProgramInfo(p, CL_PROGRAM_BINARY_BYTES, sizeof n, &n, NULL) !=
            CL_OK ||
        n == 0)
        return;
    bytes = malloc(n);
    if (bytes && cl->clGetProgramInfo(p, CL_PROGRAM_BINARY, sizeof bytes,
                                      &bytes, NULL) == CL_OK)
        gpu_cache_save(key, n_key, bytes, n, NULL);
    free(bytes);
}

/* ---- kernels from source ------------------------------------------------- */

/* Sets an error that contains the compiler's log, from the first line with an
 * error. */
static pl_status build_failed(const struct opencl *cl, struct cl_program *p,
                              struct cl_device *d, int32_t e, pl_err *err)
{
    char name[96];
    char *log = NULL;
    const char *said = "no output";
    size_t n = 0;
    pl_status s;

    opencl_text(cl, d, CL_DEVICE_NAME_TEXT, name, sizeof name);
    cl->clGetProgramBuildInfo(p, d, CL_PROGRAM_LOG, 0, NULL, &n);
    if (n > 0 && (log = calloc(1, n + 1)) &&
        cl->clGetProgramBuildInfo(p, d, CL_PROGRAM_LOG, n, log, NULL) ==
            CL_OK) {
        const char *error = strstr(log, "error");

        while (error && error > log && error[-1] != '\n')
            error--;
        said = error ? error : log;
    }
    s = err_set(err, PL_DEVICE,
                "%s: clBuildProgram failed: %s (%d); compiler output: %.600s",
                name, opencl_error(e), e, said);
    free(log);
    return s;
}

static pl_status from_text(const struct build *b, struct cl_program **out,
                           pl_err *err)
{
    struct cl_program *p;
    int32_t e = CL_OK;
    pl_status s;

    p = b->cl->clCreateProgramWithSource(b->context, 1, &b->src->text, NULL,
                                         &e);
    PL_TRY(opencl_check(e, "clCreateProgramWithSource", "opencl", err));
    e = compile(b, p);
    s = e == CL_OK ? make_kernels(b, p, err)
                   : build_failed(b->cl, p, b->at->device, e, err);
    if (s == PL_OK)
        *out = p;
    else
        opencl_program_free(b->cl, p, b->kernel, b->src->n_kernel);
    return s;
}

pl_status opencl_program(const struct opencl *cl, struct cl_context *c,
                         const struct opencl_device *d,
                         const struct opencl_source *src,
                         struct cl_program **out, struct cl_kernel **kernel,
                         pl_err *err)
{
    struct build b = {.cl = cl,
                      .context = c,
                      .at = d,
                      .src = src,
                      .options = opencl_on_cores(cl, d->device) ? options_cores
                                                                : options_gpu,
                      .kernel = kernel};
    size_t n_key = 0;
    char *key = key_of(&b, &n_key);
    pl_status s = PL_OK;

    if (!key)
        return err_no_memory(err, "the source of the kernels");
    *out = src->keep ? from_binary(&b, key, n_key) : NULL;
    if (!*out) {
        s = from_text(&b, out, err);
        if (s == PL_OK && src->keep)
            keep(cl, *out, key, n_key);
    }
    free(key);
    return s;
}
