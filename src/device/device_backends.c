/* The table of backends. It has its own file because a program may link another
 * table with additional backends instead, as tests do
 * (tests/device/test_device_kind.c). */
#include "device/device_ops.h"

const struct backend_ops *const device_backends[] = {
#define KIND(name) &name##_ops,
#include "device/device_backends.def"
#undef KIND
    NULL,
};
