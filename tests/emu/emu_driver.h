/* The emulator of GPUs as a driver and as a backend; see emu_driver.c and
 * emu_backend.c. */
#ifndef TEST_EMU_DRIVER_H
#define TEST_EMU_DRIVER_H

#include "device/device_ops.h"
#include "device/gpu/gpu_driver.h"

extern const struct gpu_driver gpu_emu;
/* `-dev emu*N` in programs whose table of backends has it */
extern const struct backend_ops emu_ops;

#endif
