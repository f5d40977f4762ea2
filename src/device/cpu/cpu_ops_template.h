/* The kernels other than matrix products with weights (cpu_ops.h), for the
 * instruction set that the including file is compiled for. The macro
 * CPU_OPS_INIT is the name of the function that writes them into a kernel
 * table. The plain C code is the specification; each included file defines at
 * its top in which order its kernels compute. */
#ifndef DEVICE_CPU_CPU_OPS_TEMPLATE_H
#define DEVICE_CPU_CPU_OPS_TEMPLATE_H

#include "device/cpu/cpu_attention_template.h"
#include "device/cpu/cpu_block_mean_template.h"
#include "device/cpu/cpu_index_template.h"
#include "device/cpu/cpu_recurrent_template.h"
#include "device/cpu/cpu_rows_template.h"
#include "device/cpu/cpu_streams_template.h"

#ifndef CPU_OPS_INIT
#define CPU_OPS_INIT cpu_ops_init_generic
#endif

/* X(name, scratch): `name` is a kernel whose function is name##_run. `scratch`
 * is the function that returns its scratch size, or NULL. */
#define CPU_OPS_MAP(X)                                                         \
    X(rms_norm, rms_norm_scratch)                                              \
    X(layer_norm, rms_norm_scratch)                                            \
    X(rope, rope_scratch)                                                      \
    X(cache_write, cache_write_scratch)                                        \
    X(attention, attention_scratch)                                            \
    X(bidirectional_attention, bidirectional_attention_scratch)                \
    X(latent_attention, latent_attention_scratch)                              \
    X(attention_blocks, attention_blocks_scratch)                              \
    X(index_topk, index_scratch)                                               \
    X(index_blocks, index_scratch)                                             \
    X(compressed_attention, compressed_attention_scratch)                      \
    X(block_mean, NULL)                                                        \
    X(short_conv, short_conv_scratch)                                          \
    X(delta_net, delta_net_scratch)                                            \
    X(delta_net_channels, delta_net_scratch)                                   \
    X(ssm_scan, ssm_scan_scratch)                                              \
    X(softmax, NULL)                                                           \
    X(sinkhorn, NULL)                                                          \
    X(mix_streams, NULL)                                                       \
    X(router_topk, router_scratch)                                             \
    X(router_weights, router_scratch)                                          \
    X(add, NULL)                                                               \
    X(sub, NULL)                                                               \
    X(mul, NULL)                                                               \
    X(div, NULL)                                                               \
    X(swiglu, NULL)                                                            \
    X(geglu, NULL)                                                             \
    X(swiglu_oai, NULL)                                                        \
    X(scale, NULL)                                                             \
    X(clamp, NULL)                                                             \
    X(sqr, NULL)                                                               \
    X(sqrt, NULL)                                                              \
    X(exp, NULL)                                                               \
    X(tanh, NULL)                                                              \
    X(sigmoid, NULL)                                                           \
    X(softplus, NULL)                                                          \
    X(silu, NULL)                                                              \
    X(gelu, NULL)                                                              \
    X(gelu_erf, NULL)                                                          \
    X(relu, NULL)                                                              \
    X(sum, NULL)                                                               \
    X(cast, NULL)

void CPU_OPS_INIT(struct cpu_kernels *k)
{
#define CPU_OPS_ENTRY(name, need)                                              \
    k->kernel[KERNEL_##name] = (struct cpu_entry){name##_run, need};
    CPU_OPS_MAP(CPU_OPS_ENTRY)
#undef CPU_OPS_ENTRY
    if (LANES_HAVE_BF16)
        attention_init_bf16(k);
    k->short_conv = short_conv_channels;
    k->delta_net = delta_net_items;
    k->ssm_scan = ssm_scan_items;
    cpu_move_init(k);
}

#endif
