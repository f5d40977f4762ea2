/* Which devices CUDA has, and what is known of them before they are opened.
 * Those too old for the kernels are left out; the others keep CUDA's number.
 *
 * What memory is free can be asked of a context alone, so one is there for a
 * moment. What it takes itself is not free any more then, as it will be. */
#include <string.h>

#include "device/gpu/cuda_api.h"
#include "device/gpu/driver_cuda.h"
#include "device/gpu/gpu_speeds.h"

static pl_status free_memory(const struct cuda *cu, int device, uint64_t *bytes,
                             const char *title, pl_err *err)
{
    struct cuda_context *c;
    size_t now = 0, total;
    pl_status s, popped;

    PL_TRY(cuda_check(cu, cu->cuDevicePrimaryCtxRetain(&c, device),
                      "cuDevicePrimaryCtxRetain", title, err));
    s = cuda_check(cu, cu->cuCtxPushCurrent(c), "cuCtxPushCurrent", title, err);
    if (s == PL_OK) {
        s = cuda_check(cu, cu->cuMemGetInfo(&now, &total), "cuMemGetInfo",
                       title, err);
        popped = cuda_check(cu, cu->cuCtxPopCurrent(&c), "cuCtxPopCurrent",
                            title, s == PL_OK ? err : NULL);
        s = s == PL_OK ? popped : s;
    }
    *bytes = now;
    popped =
        cuda_check(cu, cu->cuDevicePrimaryCtxRelease(device),
                   "cuDevicePrimaryCtxRelease", title, s == PL_OK ? err : NULL);
    return s == PL_OK ? popped : s;
}

static pl_status speeds(const struct cuda *cu, int device, int level,
                        struct gpu_info *i, pl_err *err)
{
    int khz, memory_khz, bits;

    PL_TRY(cuda_attribute(cu, device, CUDA_N_MULTIPROCESSOR, &i->n_unit, err));
    PL_TRY(cuda_attribute(cu, device, CUDA_CLOCK_KHZ, &khz, err));
    PL_TRY(cuda_attribute(cu, device, CUDA_MEMORY_CLOCK_KHZ, &memory_khz, err));
    PL_TRY(cuda_attribute(cu, device, CUDA_MEMORY_BUS_BITS, &bits, err));
    gpu_speeds_cuda(i, level, khz * 1e3);
    i->mem_bytes_per_s = 2.0 * memory_khz * 1e3 * bits / 8; /* two a clock */
    return PL_OK;
}

/* CUDA writes letters of the address as it likes. */
static void lower_hex(char *s)
{
    for (; *s; s++)
        if (*s >= 'A' && *s <= 'F')
            *s = (char)(*s - 'A' + 'a');
}

static pl_status describe(const struct cuda *cu, int index,
                          struct gpu_info *out, int *n, pl_err *err)
{
    struct gpu_info i = {.index = index};
    int device, level;

    PL_TRY(cuda_device(cu, index, &device, &level, err));
    if (!cuda_has_text(level))
        return PL_OK;
    PL_TRY(cuda_check(cu, cu->cuDeviceGetName(i.title, sizeof i.title, device),
                      "cuDeviceGetName", "cuda", err));
    i.title[sizeof i.title - 1] = '\0';
    PL_TRY(cuda_check(cu, cu->cuDeviceGetPCIBusId(i.bus, sizeof i.bus, device),
                      "cuDeviceGetPCIBusId", i.title, err));
    i.bus[sizeof i.bus - 1] = '\0';
    lower_hex(i.bus);
    PL_TRY(speeds(cu, device, level, &i, err));
    PL_TRY(free_memory(cu, device, &i.memory_bytes, i.title, err));
    out[(*n)++] = i;
    return PL_OK;
}

pl_status cuda_list(struct gpu_info *out, int max, int *n, pl_err *err)
{
    struct cuda cu;
    int n_device;
    pl_status s;

    *n = 0;
    s = cuda_load(&cu, &n_device, err);
    if (s != PL_OK)
        return s;
    for (int i = 0; i < n_device && *n < max && s == PL_OK; i++)
        s = describe(&cu, i, out, n, err);
    if (s != PL_OK)
        *n = 0;
    cuda_unload(&cu);
    return s;
}
