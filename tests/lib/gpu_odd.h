/* Kinds of GPU for tests: the emulator with a habit.
 *
 *   eager  launches no kernel that ready() was not asked for */
#ifndef TEST_GPU_ODD_H
#define TEST_GPU_ODD_H

#include "device/device_ops.h"

extern const struct device_ops eager_ops;

#endif
