/* The CUDA library: opening it, its errors, what it tells of a device. */
#include "device/gpu/cuda_api.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The library has threads that end with the process alone, so it is not taken
 * out of it again. */
static pl_status open_library(struct cuda *cu, pl_err *err)
{
    const char *path = getenv("PLAIT_LIBCUDA");
    const char *lacks = NULL;

    if (!path || !*path)
        path = "libcuda.so.1";
    cu->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!cu->handle) {
        const char *why = dlerror();

        return err_set(err, PL_UNSUPPORTED,
                       "no CUDA here: %s; install NVIDIA's driver, or name its "
                       "library by PLAIT_LIBCUDA",
                       why && strstr(why, path) ? why : path);
    }
#define FIND(name, suffix, parameters)                                         \
    cu->name = (unsigned(*) parameters)dlsym(cu->handle, #name #suffix);       \
    if (!cu->name && !lacks)                                                   \
        lacks = #name #suffix;
    CUDA_CALL_MAP(FIND)
#undef FIND
    if (!lacks)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "%s has no %s: NVIDIA's driver must be of version 520 or "
                   "later; PLAIT_LIBCUDA names another library",
                   path, lacks);
}

static pl_status count_devices(const struct cuda *cu, int *n, pl_err *err)
{
    unsigned code = cu->cuInit(0);

    if (code == CUDA_CODE_NO_DEVICE)
        return PL_OK;
    if (code != CUDA_SUCCESS_CODE) {
        cuda_check(cu, code, "cuInit", "no CUDA here", err);
        if (err)
            err->status = PL_UNSUPPORTED;
        return PL_UNSUPPORTED;
    }
    return cuda_check(cu, cu->cuDeviceGetCount(n), "cuDeviceGetCount", "cuda",
                      err);
}

pl_status cuda_load(struct cuda *cu, int *n_device, pl_err *err)
{
    pl_status s;

    *cu = (struct cuda){0};
    *n_device = 0;
    s = open_library(cu, err);
    if (s == PL_OK)
        s = count_devices(cu, n_device, err);
    if (s != PL_OK)
        cuda_unload(cu);
    return s;
}

void cuda_unload(struct cuda *cu)
{
    if (cu->handle)
        dlclose(cu->handle);
    *cu = (struct cuda){0};
}

pl_status cuda_check(const struct cuda *cu, unsigned code, const char *function,
                     const char *what, pl_err *err)
{
    const char *name = NULL, *text = NULL;

    if (code == CUDA_SUCCESS_CODE)
        return PL_OK;
    if (cu->cuGetErrorName(code, &name) != CUDA_SUCCESS_CODE || !name)
        name = "an unknown error";
    if (cu->cuGetErrorString(code, &text) != CUDA_SUCCESS_CODE || !text)
        text = "no text";
    return err_set(
        err, code == CUDA_CODE_OUT_OF_MEMORY ? PL_NO_DEVICE_MEMORY : PL_DEVICE,
        "%s: %s failed: %s (%u, %s)", what, function, name, code, text);
}

pl_status cuda_attribute(const struct cuda *cu, int device, unsigned what,
                         int *value, pl_err *err)
{
    return cuda_check(cu, cu->cuDeviceGetAttribute(value, what, device),
                      "cuDeviceGetAttribute", "cuda", err);
}

pl_status cuda_device(const struct cuda *cu, int index, int *device, int *level,
                      pl_err *err)
{
    int major, minor;

    PL_TRY(cuda_check(cu, cu->cuDeviceGet(device, index), "cuDeviceGet", "cuda",
                      err));
    PL_TRY(cuda_attribute(cu, *device, CUDA_CAPABILITY_MAJOR, &major, err));
    PL_TRY(cuda_attribute(cu, *device, CUDA_CAPABILITY_MINOR, &minor, err));
    *level = major * 10 + minor;
    return PL_OK;
}
