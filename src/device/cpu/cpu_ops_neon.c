/* The kernels of cpu_ops.h, for AArch64: NEON is in its base. */
#define LANES_NEON
#define CPU_OPS_INIT cpu_ops_init_neon
#include "device/cpu/cpu_ops_template.h"
