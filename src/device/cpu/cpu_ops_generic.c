/* The kernels of cpu_ops.h, plain C: the specification of the others. */
#define CPU_OPS_INIT cpu_ops_init_generic
#include "device/cpu/cpu_ops_template.h"

void cpu_cache_encode_row(pl_format f, void *row, const float *x, int64_t d)
{
    to_row(f, row, x, d);
}
