/* Matrix products for AArch64 CPUs with I8MM (Neoverse V1, Cortex-X2, Apple
 * M2). */
#define JOBS            cpu_jobs_i8mm
#define CPU_MATMUL_INIT cpu_matmul_init_i8mm
#include "device/cpu/cpu_matmul_neon_tmpl.h"
