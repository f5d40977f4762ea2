/* The GPUs' kernels where a CPU's are called: launches made from a cpu_call,
 * run by the emulator. So each test of a CPU kernel is one of a GPU's. The
 * emulator is slow: in the short tier a selection of the calls goes through it.
 *
 * In a process with PLAIT_GPU_TEST=DRIVER:INDEX, "cuda:0" for one, the calls go
 * through that GPU instead, operands copied there and back: through OpenCL,
 * whose compilers are slow, a selection, and what is not chosen is plain C's.
 * PLAIT_TEST_CACHE names a directory for what drivers keep from group to group.
 * The test fails where a kernel writes what is not its own. How many calls went
 * through is printed at the end, behind GPU_BRIDGE_CALLS
 * (kernel/test_gpu_opencl.c). */
#ifndef TEST_GPU_BRIDGE_H
#define TEST_GPU_BRIDGE_H

#include "device/cpu/cpu_kernel.h"

#define GPU_BRIDGE_CALLS "calls that went through the GPU: "

/* Fills the table with the GPUs' kernels; what they lack is plain C's. They
 * work on the first thread alone. Fails the test where a kernel does what no
 * GPU could. */
void gpu_bridge_init(struct cpu_kernels *k);
enum gpu_bridge_rows {
    ROWS_ONE,
    ROWS_FEW,  /* up to 8 */
    ROWS_SOME, /* up to 32 */
    ROWS_MANY,
    ROWS_COUNT
};
/* Returns how many calls with so many rows of activations, and weights of that
 * format, a GPU's kernel has made in this process. The long tier leaves none to
 * plain C, the others many. */
int gpu_bridge_calls(enum kernel k, pl_format weights,
                     enum gpu_bridge_rows rows);
/* Has it a kernel of its own? */
bool gpu_bridge_has(enum kernel k);

#endif
