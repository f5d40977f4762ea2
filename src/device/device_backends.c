/* The backends. The table has its own file, so that a program may link another
 * one in its place, with additional backends. The tests do
 * (tests/device/test_device_kind.c). */
#include "device/device_ops.h"

const struct backend_ops *const device_backends[] = {
#define KIND(name) &name##_ops,
#include "device/device_backends.def"
#undef KIND
    NULL,
};
