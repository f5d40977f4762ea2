/* The functions that create the launches of a program's kernels (gpu_entries),
 * and their helpers. */
#ifndef DEVICE_GPU_GPU_LAUNCH_H
#define DEVICE_GPU_GPU_LAUNCH_H

#include "device/gpu/gpu_kernel.h"
#include "quant/pack.h"

typedef uint8_t u8;
typedef int8_t s8;
typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef int32_t s32;
typedef uint64_t u64;
typedef int64_t s64;
#include "device/gpu/text/args.h"

/* The kernels of programs that GPUs have: name, function that returns the
 * scratch size or NULL. gpu_launch_##name() adds the launches. */
#define GPU_LAUNCH_MAP(X)                                                      \
    X(rms_norm, NULL)                                                          \
    X(layer_norm, NULL)                                                        \
    X(softmax, NULL)                                                           \
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
    X(cast, NULL)                                                              \
    X(matmul, gpu_contract_scratch)                                            \
    X(head_matmul, gpu_contract_scratch)                                       \
    /* attention and its cache */                                              \
    X(rope, NULL)                                                              \
    X(cache_write, NULL)                                                       \
    X(attention, gpu_attention_scratch)                                        \
    X(bidirectional_attention, gpu_attention_scratch)                          \
    X(latent_attention, gpu_latent_attention_scratch)                          \
    X(attention_blocks, gpu_attention_blocks_scratch)                          \
    X(index_topk, gpu_index_scratch)                                           \
    X(index_blocks, gpu_index_scratch)                                         \
    X(compressed_attention, gpu_compressed_attention_scratch)                  \
    X(block_mean, NULL)                                                        \
    /* rows, permutations, states */                                           \
    X(quantize, NULL)                                                          \
    X(sinkhorn, NULL)                                                          \
    X(mix_streams, NULL)                                                       \
    X(router_topk, gpu_router_scratch)                                         \
    X(router_weights, NULL)                                                    \
    X(sum, NULL)                                                               \
    X(gather_rows, NULL)                                                       \
    X(contiguous, NULL)                                                        \
    X(permute, NULL)                                                           \
    X(slice, NULL)                                                             \
    X(concat, NULL)                                                            \
    X(short_conv, NULL)                                                        \
    X(delta_net, gpu_delta_net_scratch)                                        \
    X(delta_net_channels, gpu_delta_net_scratch)                               \
    X(ssm_scan, NULL)                                                          \
    X(expert_matmul, gpu_expert_matmul_scratch)                                \
    X(expert_down, gpu_expert_down_scratch)

#define GPU_LAUNCH_DECLARE(name, need)                                         \
    void gpu_launch_##name(struct launch_list *l, const struct gpu_call *c);
GPU_LAUNCH_MAP(GPU_LAUNCH_DECLARE)
#undef GPU_LAUNCH_DECLARE
size_t gpu_attention_scratch(const struct gpu_call *c);
size_t gpu_latent_attention_scratch(const struct gpu_call *c);
size_t gpu_attention_blocks_scratch(const struct gpu_call *c);
size_t gpu_compressed_attention_scratch(const struct gpu_call *c);
size_t gpu_index_scratch(const struct gpu_call *c);

size_t gpu_contract_scratch(const struct gpu_call *c);
size_t gpu_expert_matmul_scratch(const struct gpu_call *c);
size_t gpu_expert_down_scratch(const struct gpu_call *c);

size_t gpu_router_scratch(const struct gpu_call *c);
size_t gpu_delta_net_scratch(const struct gpu_call *c);

static inline int64_t gpu_count(const struct gpu_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dim[i];
    return n;
}

static inline int64_t gpu_last(const struct gpu_tensor *t)
{
    return t->dim[t->n_dim - 1];
}

/* Returns the product of all dimensions except the last. */
static inline int64_t gpu_rows(const struct gpu_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i + 1 < t->n_dim; i++)
        n *= t->dim[i];
    return n;
}

/* Returns how many work groups of `lanes` lanes have one lane for each of n
 * elements. */
static inline int64_t gpu_groups(int64_t n, int lanes)
{
    return (n + lanes - 1) / lanes;
}

/* Returns the number of work groups of 256 lanes for a kernel whose lanes loop
 * over n elements. A lane gets more than one element, at most four, only if at
 * least ENOUGH groups remain, which fill any GPU. */
static inline int64_t gpu_turns(int64_t n)
{
    enum { ENOUGH = 2048 };
    int64_t one = gpu_groups(n, 256), four = gpu_groups(n, 4 * 256);

    return one < ENOUGH ? one : four > ENOUGH ? four : ENOUGH;
}

/* Returns the kernel source's constant (TEXT_F32, TEXT_F16, TEXT_BF16) for the
 * format of an unpacked float tensor. */
static inline int32_t gpu_format(pl_format f)
{
    return f == PL_F16 ? TEXT_F16 : f == PL_BF16 ? TEXT_BF16 : TEXT_F32;
}

/* Like gpu_format, for the format of a cache, which may also be a quantized
 * one. */
static inline int32_t gpu_cache_format(pl_format f)
{
    const struct pack_rule *r = format_info(f)->pack;

    if (f == PL_Q8_0)
        return TEXT_Q8_0;
    if (format_info(f)->block == 1)
        return gpu_format(f);
    return TEXT_CODES | (r->sub == PACK_SUB_F16_MIN ? TEXT_CODES_MIN : 0) |
           (r->high_bits ? TEXT_CODES_FIFTH : 0) |
           (r->table ? TEXT_CODES_IQ4 : 0);
}

#endif
