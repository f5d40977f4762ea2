/* Matrix products for CPUs with AVX-VNNI, which is VNNI with 256-bit vectors:
 * Alder Lake and later without AVX-512, and Zen 5. The 16 rows of a panel are
 * two vectors. */
#include "device/cpu/cpu_ymm_tmpl.h"

/* The value of MIN_ROWS, the number of rows of activations from which GEMM
 * replaces panel calls, is an estimate, not measured. */
enum { WIDE_UNSIGNED = 1, MIN_ROWS = 32 };
enum { PANELS = 1, MAX_PANELS = 1, AHEAD = 8192, FLOAT_AHEAD = 8192 };

#include "device/cpu/cpu_vnni_tmpl.h"

#include "device/cpu/cpu_unpack_tmpl.h"

#include "device/cpu/cpu_gemm_vnni_tmpl.h"

#include "device/cpu/cpu_skinny_dot_tmpl.h"

#define JOBS cpu_jobs_avx_vnni
#include "device/cpu/cpu_matmul_tmpl.h"

void cpu_matmul_init_avx_vnni(struct cpu_kernels *k)
{
    init_ops(k);
}
