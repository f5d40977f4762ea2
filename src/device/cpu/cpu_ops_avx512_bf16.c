/* Attention with products of BF16, for CPUs with AVX-512 and its BF16 (Cooper
 * Lake, Zen 4). */
#define CPU_OPS_BF16
#include "device/cpu/cpu_attention_template.h"

void cpu_ops_init_avx512_bf16(struct cpu_kernels *k)
{
    attention_init_bf16(k);
}
