/* The kernels on a device of OpenCL: from the binary that was kept of the last
 * time, or else compiled from their text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/driver_opencl.h"
#include "device/gpu/gpu_cache.h"
#include "device/gpu/gpu_text.h"
#include "device/gpu/opencl_api.h"

static const char options[] =
    "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";

/* What decides the binary; the caller frees it. NULL: no memory. */
static char *key_of(const struct opencl *cl, const struct opencl_device *d,
                    size_t *n)
{
    char name[256], version[256], driver[256], platform[256] = "";
    size_t size = strlen(gpu_prelude_opencl) + strlen(gpu_text) + 1200;
    char *key = malloc(size);

    opencl_text(cl, d->device, CL_DEVICE_NAME_TEXT, name, sizeof name);
    opencl_text(cl, d->device, CL_DEVICE_VERSION_TEXT, version, sizeof version);
    opencl_text(cl, d->device, CL_DEVICE_DRIVER_TEXT, driver, sizeof driver);
    if (cl->clGetPlatformInfo(d->platform, CL_PLATFORM_VERSION_TEXT,
                              sizeof platform - 1, platform, NULL) != CL_OK)
        platform[0] = '\0';
    if (key)
        *n = (size_t)snprintf(key, size, "opencl\n%s\n%s\n%s\n%s\n%s\n%s%s",
                              options, name, version, driver, platform,
                              gpu_prelude_opencl, gpu_text);
    return key;
}

static pl_status make_kernels(const struct opencl *cl, struct cl_program *p,
                              struct cl_kernel **kernel, pl_err *err)
{
    for (int k = 0; k < GPU_KERNEL_COUNT; k++) {
        const char *name = gpu_kernel_name((enum gpu_kernel)k);
        int32_t e = CL_OK;

        kernel[k] = cl->clCreateKernel(p, name, &e);
        PL_TRY(opencl_check(e, "clCreateKernel", name, err));
    }
    return PL_OK;
}

void opencl_program_free(const struct opencl *cl, struct cl_program *p,
                         struct cl_kernel **kernel)
{
    for (int k = 0; k < GPU_KERNEL_COUNT; k++) {
        if (kernel[k])
            cl->clReleaseKernel(kernel[k]);
        kernel[k] = NULL;
    }
    if (p)
        cl->clReleaseProgram(p);
}

/* ---- from a binary ------------------------------------------------------- */

/* NULL: there is none, or the driver does not take it. */
static struct cl_program *from_binary(const struct opencl *cl,
                                      struct cl_context *c, struct cl_device *d,
                                      const char *key, size_t n_key,
                                      struct cl_kernel **kernel)
{
    struct cl_program *p = NULL;
    int32_t e = CL_OK, status = CL_OK;
    size_t n;
    unsigned char *bytes = gpu_cache_load(key, n_key, &n);
    const unsigned char *binary = bytes;

    if (bytes)
        p = cl->clCreateProgramWithBinary(c, 1, &d, &n, &binary, &status, &e);
    free(bytes);
    if (!p || (e == CL_OK && status == CL_OK &&
               cl->clBuildProgram(p, 1, &d, options, NULL, NULL) == CL_OK &&
               make_kernels(cl, p, kernel, NULL) == PL_OK))
        return p;
    opencl_program_free(cl, p, kernel);
    return NULL;
}

/* Nothing is lost where this fails: the text is there. Some drivers compile
 * only now, when they are asked for the binary. */
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

/* ---- from the text ------------------------------------------------------- */

/* What the compiler said, from its first error on. */
static pl_status build_failed(const struct opencl *cl, struct cl_program *p,
                              struct cl_device *d, int32_t e, pl_err *err)
{
    char name[96];
    char *log = NULL;
    const char *said = "it gave no reason";
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
                "%s: clBuildProgram failed: %s (%d); the driver's compiler "
                "says: %.600s",
                name, opencl_error(e), e, said);
    free(log);
    return s;
}

static pl_status from_text(const struct opencl *cl, struct cl_context *c,
                           struct cl_device *d, struct cl_program **out,
                           struct cl_kernel **kernel, pl_err *err)
{
    const char *text[] = {gpu_prelude_opencl, gpu_text};
    struct cl_program *p;
    int32_t e = CL_OK;
    pl_status s;

    p = cl->clCreateProgramWithSource(c, 2, text, NULL, &e);
    PL_TRY(opencl_check(e, "clCreateProgramWithSource", "opencl", err));
    e = cl->clBuildProgram(p, 1, &d, options, NULL, NULL);
    s = e == CL_OK ? make_kernels(cl, p, kernel, err)
                   : build_failed(cl, p, d, e, err);
    if (s == PL_OK)
        *out = p;
    else
        opencl_program_free(cl, p, kernel);
    return s;
}

pl_status opencl_program(const struct opencl *cl, struct cl_context *c,
                         const struct opencl_device *d, struct cl_program **out,
                         struct cl_kernel **kernel, pl_err *err)
{
    size_t n_key = 0;
    char *key = key_of(cl, d, &n_key);
    pl_status s = PL_OK;

    if (!key)
        return err_no_memory(err, "the text of kernels");
    *out = from_binary(cl, c, d->device, key, n_key, kernel);
    if (!*out) {
        s = from_text(cl, c, d->device, out, kernel, err);
        if (s == PL_OK)
            keep(cl, *out, key, n_key);
    }
    free(key);
    return s;
}
