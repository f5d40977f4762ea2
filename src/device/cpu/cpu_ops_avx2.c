/* The kernels other than matrix products with weights (cpu_ops.h), compiled for
 * AVX2 with FMA and F16C (Haswell, Zen, ...). */
#define CPU_OPS_INIT cpu_ops_init_avx2
#include "device/cpu/cpu_ops_template.h"
