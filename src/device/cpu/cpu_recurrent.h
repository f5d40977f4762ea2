/* Kernels of recurrent layers: a short causal convolution of each channel, and
 * the gated delta net. Instead of a cache that grows, such a layer keeps a
 * state of fixed size for each sequence.
 *
 * A call computes one run: consecutive tokens of one sequence. It reads the
 * state before the run and writes the state after it. The two may be the same
 * memory or must not overlap; state_in == NULL is a state of zeros. A run gives
 * the bits that its tokens give one by one, so the results do not depend on how
 * a sequence is cut into runs.
 *
 * A caller that shares a run among threads gives each a range of its items. No
 * two items write the same memory, or read what another writes. Strides count
 * floats from one token to the next. Orders of operations:
 * cpu_short_conv_template.h, cpu_delta_net_template.h. */
#ifndef DEVICE_CPU_CPU_RECURRENT_H
#define DEVICE_CPU_CPU_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Items: channels. A thread's part should begin at a multiple of 16. */
struct cpu_short_conv {
    int64_t n_tok; /* of the run, at least 1 */
    int64_t n_channel;
    int64_t n_tap;    /* the last one is multiplied by the token itself */
    const float *x;   /* [n_tok, n_channel] */
    int64_t x_stride; /* n_channel or more */
    const float *w;   /* [n_channel, n_tap] */
    /* [n_tap - 1, n_channel] inputs before the run, oldest first. */
    const float *state_in;
    float *state_out;   /* the same after the run */
    float *out;         /* [n_tok, n_channel]; not x */
    int64_t out_stride; /* n_channel or more */
    bool silu;          /* applied to every sum */
};

/* Items: blocks of columns of the states of all value heads. */
enum { CPU_DELTA_COLUMNS = 32 };

struct cpu_delta_net {
    int64_t n_tok; /* of the run, at least 1 */
    int64_t n_head_k, n_head_v;
    int64_t d_k, d_v;        /* widths of a key and of a value */
    const int32_t *head_map; /* [n_head_v] key head of each value head */
    const float *q, *k;      /* [n_tok, n_head_k, d_k], not normed */
    const float *v;          /* [n_tok, n_head_v, d_v] */
    /* [n_tok, n_head_v] log of the decay, at most 0. */
    const float *g;
    const float *beta; /* [n_tok, n_head_v] */
    int64_t q_stride, k_stride, v_stride, g_stride, beta_stride;
    float eps;             /* the least norm of a key or query */
    const float *state_in; /* [n_head_v, d_k, d_v] */
    float *state_out;
    float *out; /* [n_tok, n_head_v, d_v] */
    int64_t out_stride;
};

static inline int64_t cpu_delta_net_blocks(const struct cpu_delta_net *a)
{
    return (a->d_v + CPU_DELTA_COLUMNS - 1) / CPU_DELTA_COLUMNS;
}

static inline int64_t cpu_delta_net_items(const struct cpu_delta_net *a)
{
    return a->n_head_v * cpu_delta_net_blocks(a);
}

/* Returns the scratch bytes that a thread needs, 64-aligned, for runs of at
 * most a->n_tok tokens. */
size_t cpu_short_conv_scratch(const struct cpu_short_conv *a);
size_t cpu_delta_net_scratch(const struct cpu_delta_net *a);

/* Computes items first .. first + n - 1. */
typedef void cpu_short_conv_fn(const struct cpu_short_conv *a, int64_t first,
                               int64_t n, void *scratch);
typedef void cpu_delta_net_fn(const struct cpu_delta_net *a, int64_t first,
                              int64_t n, void *scratch);

#endif
