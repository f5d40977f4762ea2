/* Kernels of recurrent layers: a short causal convolution of each channel, and
 * the gated delta net. Instead of a cache that grows, such a layer keeps a
 * state of fixed size for each sequence.
 *
 * A call computes one run: consecutive tokens of one sequence. It reads the
 * state before the run, state_in, and writes the state after it, state_out. The
 * two must be the same memory or not overlap; state_in NULL means a state of
 * zeros. The bits are the same as if each token were a run of its own, so the
 * results do not depend on how a sequence is divided into runs.
 *
 * A call consists of *items*, which a caller can divide among threads. No two
 * items write the same memory, and none reads memory that another writes.
 * Strides are in floats, from one token to the next. The orders of operations
 * are defined in cpu_short_conv_template.h and cpu_delta_net_template.h. */
#ifndef DEVICE_CPU_CPU_RECURRENT_H
#define DEVICE_CPU_CPU_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arguments of the convolution. An item is a channel. A thread's range of items
 * should begin at a multiple of 16. */
struct cpu_short_conv {
    int64_t n_tok; /* number of tokens of the run, at least 1 */
    int64_t n_channel;
    int64_t n_tap;    /* number of taps; the last applies to the token itself */
    const float *x;   /* [n_tok, n_channel] */
    int64_t x_stride; /* n_channel or more */
    const float *w;   /* [n_channel, n_tap] */
    /* [n_tap - 1, n_channel], the inputs before the run, oldest first. */
    const float *state_in;
    float *state_out;   /* the inputs after the run, in the same layout */
    float *out;         /* [n_tok, n_channel]; must not be x */
    int64_t out_stride; /* n_channel or more */
    bool silu;          /* apply SiLU to the results */
};

/* Arguments of the delta net. An item is CPU_DELTA_COLUMNS columns of the state
 * matrix of one value head. */
enum { CPU_DELTA_COLUMNS = 32 };

struct cpu_delta_net {
    int64_t n_tok; /* number of tokens of the run, at least 1 */
    int64_t n_head_k, n_head_v;
    int64_t d_k, d_v;        /* number of elements of a key and of a value */
    const int32_t *head_map; /* [n_head_v], the key head of each value head */
    const float *q, *k;      /* [n_tok, n_head_k, d_k], before normalization */
    const float *v;          /* [n_tok, n_head_v, d_v] */
    /* [n_tok, n_head_v], logarithm of the state's decay; at most 0 */
    const float *g;
    const float *beta; /* [n_tok, n_head_v] */
    int64_t q_stride, k_stride, v_stride, g_stride, beta_stride;
    float eps;             /* lower bound of the norms of keys and queries */
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

/* Return the size in bytes of the scratch that a thread needs for runs of at
 * most a->n_tok tokens. Scratch must be 64-aligned. */
size_t cpu_short_conv_scratch(const struct cpu_short_conv *a);
size_t cpu_delta_net_scratch(const struct cpu_delta_net *a);

/* Compute items first .. first + n - 1. */
typedef void cpu_short_conv_fn(const struct cpu_short_conv *a, int64_t first,
                               int64_t n, void *scratch);
typedef void cpu_delta_net_fn(const struct cpu_delta_net *a, int64_t first,
                              int64_t n, void *scratch);

#endif
