/* The emulator of GPUs as a backend. It has its own file because bench-gpu,
 * which has only drivers, then links no backend. */
#include "device/gpu/gpu_kind.h"
#include "emu/emu_driver.h"

const struct backend_ops emu_ops = GPU_KIND(emu, gpu_emu);
