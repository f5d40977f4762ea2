/* The kernels other than matrix products with weights (cpu_ops.h), compiled for
 * NEON, which every AArch64 processor has. */
#define LANES_NEON
#define CPU_OPS_INIT cpu_ops_init_neon
#include "device/cpu/cpu_ops_template.h"
