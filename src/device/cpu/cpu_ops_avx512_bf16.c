/* Only the attention kernels that multiply BF16 values (graph_attr.bf16), for
 * CPUs with AVX512_BF16 (Cooper Lake, Zen 4). */
#define CPU_OPS_BF16
#include "device/cpu/cpu_attention_template.h"

void cpu_ops_init_avx512_bf16(struct cpu_kernels *k)
{
    attention_init_bf16(k);
}
