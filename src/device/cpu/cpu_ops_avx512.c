/* The kernels other than matrix products with weights (cpu_ops.h), compiled for
 * AVX-512 F, BW, VL, DQ (Skylake-X, Zen 4). */
#define CPU_OPS_INIT cpu_ops_init_avx512
#include "device/cpu/cpu_ops_template.h"
