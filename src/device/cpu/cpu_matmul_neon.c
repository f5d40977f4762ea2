/* Matrix products for any AArch64 CPU (Cortex-A53, A72). */
#define JOBS            cpu_jobs_neon
#define CPU_MATMUL_INIT cpu_matmul_init_neon
#include "device/cpu/cpu_matmul_neon_tmpl.h"
