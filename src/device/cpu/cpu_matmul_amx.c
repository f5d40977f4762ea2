/* Matrix products for CPUs with AMX int8 (Sapphire Rapids and later). With few
 * rows of activations they use AVX-512 VNNI, with many rows AMX. */
#include "device/cpu/cpu_tiles_amx.h"
#include "device/cpu/cpu_vector.h"

enum { WIDE_UNSIGNED = 0 };

#include "device/cpu/cpu_unpack_tmpl.h"

#include "device/cpu/cpu_gemm_amx_tmpl.h"

static const struct cpu_matmul_isa isa = {&cpu_jobs_amx, gemm_table};

#include "device/cpu/cpu_matmul_ops_template.h"

void cpu_matmul_init_amx(struct cpu_kernels *k)
{
    init_ops(k);
}
