/* Which devices CUDA has, and what is known of them before they are opened:
 * what it tells without a context, so that a device that is full, taken or
 * broken does not keep others from being listed. A device bears CUDA's number
 * always, those that are too old for the kernels among them.
 *
 * What memory is free can be asked of a context alone, so one is there for a
 * moment, on the device that is asked for. What it takes itself is not free any
 * more then, as it will be. */
#include <stdio.h>
#include <string.h>

#include "device/gpu/cuda_api.h"
#include "device/gpu/driver_cuda.h"
#include "device/gpu/gpu_speeds.h"

/* ---- free memory --------------------------------------------------------- */

static pl_status ask_context(const struct cuda *cu, int device, uint64_t *bytes,
                             pl_err *err)
{
    struct cuda_context *c;
    size_t now = 0, total;
    pl_status s, popped;

    PL_TRY(cuda_check(cu, cu->cuDevicePrimaryCtxRetain(&c, device),
                      "cuDevicePrimaryCtxRetain", "cuda", err));
    s = cuda_check(cu, cu->cuCtxPushCurrent(c), "cuCtxPushCurrent", "cuda",
                   err);
    if (s == PL_OK) {
        s = cuda_check(cu, cu->cuMemGetInfo(&now, &total), "cuMemGetInfo",
                       "cuda", err);
        popped = cuda_check(cu, cu->cuCtxPopCurrent(&c), "cuCtxPopCurrent",
                            "cuda", s == PL_OK ? err : NULL);
        s = s == PL_OK ? popped : s;
    }
    *bytes = now;
    popped = cuda_check(cu, cu->cuDevicePrimaryCtxRelease(device),
                        "cuDevicePrimaryCtxRelease", "cuda",
                        s == PL_OK ? err : NULL);
    return s == PL_OK ? popped : s;
}

pl_status cuda_free_memory(int index, uint64_t *bytes, pl_err *err)
{
    struct cuda cu;
    int n_device, device, level;
    pl_status s;

    *bytes = 0;
    PL_TRY(cuda_load(&cu, &n_device, err));
    s = cuda_device(&cu, index, &device, &level, err);
    if (s == PL_OK)
        s = ask_context(&cu, device, bytes, err);
    cuda_unload(&cu);
    return s;
}

/* ---- list ---------------------------------------------------------------- */

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

static pl_status features(const struct cuda *cu, int device, int level,
                          struct gpu_info *i, pl_err *err)
{
    int maps, registers, words;

    PL_TRY(cuda_attribute(cu, device, CUDA_MAPS_HOST_MEMORY, &maps, err));
    PL_TRY(cuda_attribute(cu, device, CUDA_REGISTERS_HOST_MEMORY, &registers,
                          err));
    PL_TRY(cuda_attribute(cu, device, CUDA_STREAMS_KNOW_WORDS, &words, err));
    i->has = (unsigned)(level >= 61) << GPU_DOT4 |
             (unsigned)(level >= 80) << GPU_MMA |
             (unsigned)(maps && registers) << GPU_MAPS |
             (unsigned)(words != 0) << GPU_WORDS;
    return PL_OK;
}

/* CUDA writes letters of the address as it likes. */
static void lower_hex(char *s)
{
    for (; *s; s++)
        if (*s >= 'A' && *s <= 'F')
            *s = (char)(*s - 'A' + 'a');
}

static void say_version(const struct cuda *cu, int level, struct gpu_info *i)
{
    int v = 0;

    if (cu->cuDriverGetVersion(&v) != CUDA_SUCCESS_CODE || v <= 0)
        snprintf(i->version, sizeof i->version, "compute %d.%d", level / 10,
                 level % 10);
    else
        snprintf(i->version, sizeof i->version, "CUDA %d.%d, compute %d.%d",
                 v / 1000, v % 1000 / 10, level / 10, level % 10);
}

static pl_status ask(const struct cuda *cu, struct gpu_info *i, pl_err *err)
{
    size_t bytes;
    int device, level;

    PL_TRY(cuda_device(cu, i->index, &device, &level, err));
    say_version(cu, level, i);
    PL_TRY(cuda_check(cu,
                      cu->cuDeviceGetName(i->title, sizeof i->title, device),
                      "cuDeviceGetName", "cuda", err));
    i->title[sizeof i->title - 1] = '\0';
    PL_TRY(cuda_check(cu,
                      cu->cuDeviceGetPCIBusId(i->bus, sizeof i->bus, device),
                      "cuDeviceGetPCIBusId", "cuda", err));
    i->bus[sizeof i->bus - 1] = '\0';
    lower_hex(i->bus);
    PL_TRY(cuda_check(cu, cu->cuDeviceTotalMem(&bytes, device),
                      "cuDeviceTotalMem", "cuda", err));
    i->total_bytes = bytes;
    PL_TRY(speeds(cu, device, level, i, err));
    PL_TRY(features(cu, device, level, i, err));
    if (!cuda_has_text(level))
        return err_set(err, PL_UNSUPPORTED,
                       "its compute capability is %d.%d, and the kernels need "
                       "6.1",
                       level / 10, level % 10);
    return PL_OK;
}

pl_status cuda_list(struct gpu_info *out, int max, int *n, pl_err *err)
{
    struct cuda cu;
    int n_device;

    *n = 0;
    PL_TRY(cuda_load(&cu, &n_device, err));
    for (; *n < n_device && *n < max; ++*n) {
        struct gpu_info *i = &out[*n];
        pl_err why;

        *i = (struct gpu_info){.index = *n};
        if (ask(&cu, i, &why) != PL_OK)
            snprintf(i->why, sizeof i->why, "%.*s", (int)sizeof i->why - 1,
                     why.message);
    }
    cuda_unload(&cu);
    return PL_OK;
}
