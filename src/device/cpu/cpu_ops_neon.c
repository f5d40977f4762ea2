/* The kernels of cpu_ops.h with NEON, which every AArch64 processor has. */
#define LANES_NEON
#define CPU_OPS_INIT cpu_ops_init_neon
#include "device/cpu/cpu_ops_template.h"
