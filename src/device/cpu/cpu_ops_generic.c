/* The kernels other than matrix products with weights (cpu_ops.h), in plain C,
 * which is the specification of the other kernel sets. */
#define CPU_OPS_INIT cpu_ops_init_generic
#include "device/cpu/cpu_ops_template.h"

void cpu_cache_encode_row(pl_format f, void *row, const float *x, int64_t d)
{
    to_row(f, row, x, d);
}

size_t cpu_short_conv_scratch(const struct cpu_short_conv *a)
{
    return (size_t)(a->n_tap * CONV_CHANNELS) * sizeof(float);
}

size_t cpu_delta_net_scratch(const struct cpu_delta_net *a)
{
    struct delta x;

    return delta_init(&x, a, NULL);
}

size_t cpu_ssm_scan_scratch(const struct cpu_ssm_scan *a)
{
    struct scan x;

    return scan_init(&x, a, NULL);
}
