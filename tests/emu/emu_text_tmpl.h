/* Template: compiles all kernels of the kernel source for the emulator. The
 * including file defines TABLE, the name of the resulting table. */
#include "emu/prelude_emu.h"

#include "device/gpu/text/all.h"

#define GPU_KERNEL(name, args, lanes)                                          \
    static void emu_##name(const void *p)                                      \
    {                                                                          \
        text_##name(*(const args *)p);                                         \
    }
#include "device/gpu/gpu_kernels.def"
#undef GPU_KERNEL

emu_kernel *const TABLE[GPU_KERNEL_COUNT] = {
#define GPU_KERNEL(name, args, lanes) [GPU_##name] = emu_##name,
#include "device/gpu/gpu_kernels.def"
#undef GPU_KERNEL
};
