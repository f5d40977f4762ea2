/* Kernels of recurrent layers: a short causal convolution of each channel, the
 * gated delta net and the scan of a state space model. Instead of a cache that
 * grows, such a layer keeps a state of fixed size for each sequence.
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
 * are defined in cpu_short_conv_template.h, cpu_delta_net_template.h and
 * cpu_ssm_scan_template.h. */
#ifndef DEVICE_CPU_CPU_RECURRENT_H
#define DEVICE_CPU_CPU_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Arguments of a call of the short convolution over consecutive tokens of one
 * sequence. An item, the unit that threads divide, is a channel. A thread's
 * range of channels should begin at a multiple of 16. */
struct cpu_short_conv {
    int64_t n_tok; /* number of consecutive tokens, at least 1 */
    int64_t n_channel;
    /* number of taps (weights per channel); the last one is for the token
     * itself */
    int64_t n_tap;
    const float *x; /* [n_tok, n_channel] inputs, one row per token */
    /* distance in floats between the rows of x; n_channel or more */
    int64_t x_stride;
    const float *w; /* [n_channel, n_tap] weights of each channel's taps */
    /* [n_tap - 1, n_channel]: the inputs of the tokens before the call's first
     * one, oldest first. NULL if they are 0. */
    const float *state_in;
    /* [n_tap - 1, n_channel]: the last inputs, oldest first, for the next
     * call */
    float *state_out;
    /* [n_tok, n_channel] results; must not be the same memory as x */
    float *out;
    /* distance in floats between the rows of `out`; n_channel or more */
    int64_t out_stride;
    bool silu; /* apply SiLU to the results */
};

/* Number of columns in an item of the delta net. An item, the unit that threads
 * divide, is this many columns of the state matrix of one value head. */
enum { CPU_DELTA_COLUMNS = 32 };

struct cpu_delta_net {
    /* number of consecutive tokens of one sequence, at least 1 */
    int64_t n_tok;
    int64_t n_head_k, n_head_v;
    /* number of elements of a key or query, and of a value */
    int64_t d_k, d_v;
    /* [n_head_v] index of the key head that each value head uses */
    const int32_t *head_map;
    /* [n_tok, n_head_k, d_k] queries and keys, which the kernel normalizes */
    const float *q, *k;
    /* [n_tok, n_head_v, d_v] value vector of each token and value head */
    const float *v;
    /* [n_tok, n_head_v] logarithm of the factor by which a token's state
     * decays; at most 0. With `channels` [n_tok, n_head_v, d_k], one factor for
     * each row of the state. */
    const float *g;
    /* [n_tok, n_head_v] factor of the update that each token makes to the
     * state */
    const float *beta;
    int64_t q_stride, k_stride, v_stride, g_stride, beta_stride;
    bool channels;
    /* lower bound of the norm by which a key or query is divided; with
     * `channels`, a term that is added to the norm's square */
    float eps;
    /* [n_head_v, d_k, d_v] state of each value head before the call; NULL if it
     * is 0 */
    const float *state_in;
    float *state_out;
    float *out; /* [n_tok, n_head_v, d_v] result of each token and value head */
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

/* Number of columns in an item of the scan. An item, the unit that threads
 * divide, is this many columns of the state matrix of one head. */
enum { CPU_SCAN_COLUMNS = 32 };

struct cpu_ssm_scan {
    /* number of consecutive tokens of one sequence, at least 1 */
    int64_t n_tok;
    int64_t n_group, n_head;
    /* number of rows of a head's state, and of values of a head */
    int64_t d_state, d_head;
    /* [n_head] index of the group whose b and c each head uses */
    const int32_t *head_map;
    /* [n_tok, n_group, d_state] the vectors by which a token reads the states,
     * and by which it writes to them */
    const float *c, *b;
    /* [n_tok, n_head, d_head] the values that each token adds */
    const float *x;
    /* [n_tok, n_head] logarithm of the factor by which a token's state
     * decays; at most 0 */
    const float *g;
    int64_t c_stride, b_stride, x_stride, g_stride;
    /* [n_head, d_state, d_head] state of each head before the call; NULL if it
     * is 0 */
    const float *state_in;
    float *state_out;
    float *out; /* [n_tok, n_head, d_head] result of each token and head */
    int64_t out_stride;
};

static inline int64_t cpu_ssm_scan_blocks(const struct cpu_ssm_scan *a)
{
    return (a->d_head + CPU_SCAN_COLUMNS - 1) / CPU_SCAN_COLUMNS;
}

static inline int64_t cpu_ssm_scan_items(const struct cpu_ssm_scan *a)
{
    return a->n_head * cpu_ssm_scan_blocks(a);
}

/* Return the size in bytes of the scratch that each thread needs for calls with
 * at most a->n_tok tokens. The scratch must be 64-aligned. */
size_t cpu_short_conv_scratch(const struct cpu_short_conv *a);
size_t cpu_delta_net_scratch(const struct cpu_delta_net *a);
size_t cpu_ssm_scan_scratch(const struct cpu_ssm_scan *a);

/* Compute items first .. first + n - 1 of a call: channels of the short
 * convolution, or blocks of state columns of the delta net and of the scan. */
typedef void cpu_short_conv_fn(const struct cpu_short_conv *a, int64_t first,
                               int64_t n, void *scratch);
typedef void cpu_delta_net_fn(const struct cpu_delta_net *a, int64_t first,
                              int64_t n, void *scratch);
typedef void cpu_ssm_scan_fn(const struct cpu_ssm_scan *a, int64_t first,
                             int64_t n, void *scratch);

#endif
