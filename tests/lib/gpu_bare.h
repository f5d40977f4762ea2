/* The backend `bare`: the emulator without functions that some drivers lack.
 * Kernels cannot access the process's memory, and queues neither wait for words
 * in memory nor write them. */
#ifndef TEST_GPU_BARE_H
#define TEST_GPU_BARE_H

#include "device/device_ops.h"

extern const struct backend_ops bare_ops;

/* The backend `parts`: the emulator, with allocations of at most this many
 * bytes. */
enum { GPU_PARTS_LARGEST = 192 << 10 };

extern const struct backend_ops parts_ops;

#endif
