/* The table of backends of plait-emu: those of the library and the emulator. */
#include "emu/emu_driver.h"

const struct backend_ops *const device_backends[] = {
#define KIND(name) &name##_ops,
#include "device/device_backends.def"
#undef KIND
    &emu_ops,
    NULL,
};
