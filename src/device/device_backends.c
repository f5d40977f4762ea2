/* The kinds of devices. The table is alone in its file, so that a program
 * may link one of its own in its place, with kinds of its own beside ours.
 * The tests do (tests/device/test_device_kind.c). */
#include "device/device_ops.h"

const struct backend_ops *const device_backends[] = {
#define KIND(name) &name##_ops,
#include "device/device_backends.def"
#undef KIND
    NULL,
};
