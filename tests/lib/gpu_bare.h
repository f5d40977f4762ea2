/* The kind `bare`: the emulator without what some drivers lack. Kernels reach
 * no memory of the process, and queues neither wait for words nor post them. */
#ifndef TEST_GPU_BARE_H
#define TEST_GPU_BARE_H

#include "device/device_ops.h"

extern const struct backend_ops bare_ops;

/* The kind `parts`: the emulator, which promises no allocation of more bytes
 * than these. */
enum { GPU_PARTS_LARGEST = 192 << 10 };

extern const struct backend_ops parts_ops;

#endif
