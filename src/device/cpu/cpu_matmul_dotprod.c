/* Matrix products for AArch64 CPUs with DotProd (Cortex-A76, Neoverse N1, Apple
 * M1). */
#define JOBS            cpu_jobs_dotprod
#define CPU_MATMUL_INIT cpu_matmul_init_dotprod
#include "device/cpu/cpu_matmul_neon_tmpl.h"
