/* Template: compiles the kernels that use matrix units for the emulator. The
 * including file defines EMU_MFMA or EMU_WMMA, which selects a family of AMD's
 * matrix units, and TABLE, the name of the resulting table of kernels. */
#include "emu/prelude_emu.h"

#include "device/gpu/text/args.h"
#include "device/gpu/text/math.h"
#include "device/gpu/text/values.h"

#include "device/gpu/text/elementwise.h"
#include "device/gpu/text/quantize.h"
#include "device/gpu/text/rows.h"

#include "device/gpu/text/router.h"

#include "device/gpu/text/mma.h"

#include "device/gpu/text/weights.h"

#define GPU_KERNEL(name, args, lanes)
#define GPU_KERNEL_MATRIX(name, args, lanes)                                   \
    static void emu_##name(const void *p)                                      \
    {                                                                          \
        text_##name(*(const args *)p);                                         \
    }
#include "device/gpu/gpu_kernels.def"

emu_kernel *const TABLE[GPU_KERNEL_COUNT] = {
#define GPU_KERNEL_MATRIX(name, args, lanes) [GPU_##name] = emu_##name,
#include "device/gpu/gpu_kernels.def"
};
#undef GPU_KERNEL
