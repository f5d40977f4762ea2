/* The GPUs' kernels where a CPU's are called: launches made from a cpu_call,
 * run by the emulator. So each test of a CPU kernel is one of a GPU's. */
#ifndef TEST_GPU_BRIDGE_H
#define TEST_GPU_BRIDGE_H

#include "device/cpu/cpu_kernel.h"

/* Fills the table with the GPUs' kernels; what they lack is plain C's. They
 * work on the first thread alone. Fails the test where a kernel does what no
 * GPU could. */
void gpu_bridge_init(struct cpu_kernels *k);
/* Has it a kernel of its own? */
bool gpu_bridge_has(enum kernel k);

#endif
