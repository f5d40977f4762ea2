/* Runs GPU kernels where a CPU's are called: each cpu_call becomes launches in
 * the emulator. So each test of a CPU kernel also tests a GPU's. The emulator
 * is slow: in the short tier it computes a selection of the calls.
 *
 * With PLAIT_GPU_TEST=DRIVER:INDEX, "cuda:0" for one, the calls use that GPU
 * instead, with operands copied there and back. OpenCL, whose compilers are
 * slow, gets a selection; plain C computes the rest. PLAIT_TEST_CACHE names a
 * directory for what drivers cache between groups. The test fails if a kernel
 * writes outside its results. The number of calls is printed at the end, after
 * GPU_BRIDGE_CALLS (kernel/test_gpu_opencl.c). */
#ifndef TEST_GPU_BRIDGE_H
#define TEST_GPU_BRIDGE_H

#include "device/cpu/cpu_kernel.h"

#define GPU_BRIDGE_CALLS "calls that went through the GPU: "

/* Fills the table with GPU kernels, or with plain C for kernels that GPUs lack.
 * GPU kernels do all work in the call of the first thread. Fails the case if a
 * kernel does what no GPU could do. */
void gpu_bridge_init(struct cpu_kernels *k);
enum gpu_bridge_rows {
    ROWS_ONE,
    ROWS_FEW,  /* 2 to 8 rows */
    ROWS_SOME, /* 9 to 32 rows */
    ROWS_MANY,
    ROWS_COUNT
};
/* Returns how many calls with that many rows of activations, and weights of
 * that format, GPU kernels have computed in this process. The long tier leaves
 * no call to plain C, the other tiers leave many. */
int gpu_bridge_calls(enum kernel k, pl_format weights,
                     enum gpu_bridge_rows rows);
/* Returns true if GPUs have a kernel for `k`. */
bool gpu_bridge_has(enum kernel k);

#endif
