/* The scan of a state space model (cpu_recurrent.h). Included by
 * cpu_ops_template.h.
 *
 * A head has a matrix M [d_state, d_head], the state. With all products and
 * sums rounded as written, a token computes:
 *
 *   gamma   = exp(g)
 *   M[d][e] = fmaf(b[d], x[e], gamma * M[d][e])
 *   out[e]  = sum over d of M[d][e] * c[d]
 *
 * The sum is computed as four sums c0 .. c3 by fmaf, from 0: cj adds d = j, j +
 * 4, ... in ascending order. The result is (c0 + c1) + (c2 + c3).
 *
 * A token is one pass over M, with a load, a store and three operations per
 * element. Columns are independent, so that a block of columns stays in the
 * first-level cache for all tokens. A single token instead passes over whole
 * rows, so that memory is read and written in order. Source: Mamba-2,
 * arXiv:2405.21060. */
#ifndef DEVICE_CPU_CPU_SSM_SCAN_TEMPLATE_H
#define DEVICE_CPU_CPU_SSM_SCAN_TEMPLATE_H

#include "base/unroll.h"
#include "device/cpu/cpu_lanes_math.h"
#include "device/cpu/cpu_recurrent.h"

#include <string.h>

enum {
    /* maximum number of tokens whose decays are computed together; a multiple
     * of 16 */
    SCAN_TOKENS = 64,
    SCAN_CHAINS = 4,
    /* maximum number of columns of the state M that one pass over its rows
     * updates, in vectors of 16 columns */
    SCAN_VECTORS = 2,
};

/* Arguments of a call of the scan, and the arrays of one thread in its scratch.
 * Tokens are processed in batches of up to SCAN_TOKENS. */
struct scan {
    const struct cpu_ssm_scan *a;
    /* [SCAN_TOKENS]: for each token of the batch, the decay of the state of the
     * current head */
    float *gamma;
    /* [d_state, CPU_SCAN_COLUMNS]: a copy of a block of columns of the state M,
     * which stays in the first-level cache */
    float *m;
    /* [SCAN_CHAINS, d_head]: the chains of a single token */
    float *chain;
    /* first token, and number of tokens, of the current batch */
    int64_t tok, n;
};

/* Locations of a block of columns of the state M: its rows are in_step floats
 * apart where they are read, out_step floats where they are written. With a
 * step of 0 all rows are the same memory. */
struct scan_block {
    const float *in;
    int64_t in_step;
    float *out;
    int64_t out_step;
    const float *ahead; /* d_state vectors of w columns to prefetch; NULL for
                           none */
};

/* One token's inputs for a head, named as in the definition at the top, and its
 * result, for a block of columns. */
struct scan_token {
    const float *b, *c;
    lanes gamma;
    lanes x[SCAN_VECTORS], y[SCAN_VECTORS];
};

/* Updates all rows of a block of the state M by token k, w vectors of 16
 * columns wide, and sets k->y to the token's result. */
LANES_INLINE void scan_pass(int64_t d_state, struct scan_block s,
                            struct scan_token *k, const int w)
{
    lanes sum[SCAN_CHAINS][SCAN_VECTORS];

    UNROLL
    for (int j = 0; j < SCAN_CHAINS; j++) {
        lanes chain[SCAN_VECTORS];

        UNROLL
        for (int i = 0; i < w; i++)
            chain[i] = lanes_set(0);
        for (int64_t d = j; d < d_state; d += SCAN_CHAINS) {
            lanes b = lanes_set(k->b[d]), c = lanes_set(k->c[d]);

            UNROLL
            for (int i = 0; i < w; i++) {
                lanes m = lanes_load(s.in + d * s.in_step + i * LANES);

                if (s.ahead)
                    __builtin_prefetch(s.ahead + (d * w + i) * LANES, 0, 2);
                m = lanes_fma(b, k->x[i], lanes_mul(k->gamma, m));
                lanes_store(s.out + d * s.out_step + i * LANES, m);
                chain[i] = lanes_fma(m, c, chain[i]);
            }
        }
        UNROLL
        for (int i = 0; i < w; i++)
            sum[j][i] = chain[i];
    }
    UNROLL
    for (int i = 0; i < w; i++)
        k->y[i] = lanes_add(lanes_add(sum[0][i], sum[1][i]),
                            lanes_add(sum[2][i], sum[3][i]));
}

/* Computes token t of the batch for n columns from `col` of head `head`. */
LANES_INLINE void scan_one(const struct scan *x, int64_t t, int64_t head,
                           int64_t col, int64_t n, struct scan_block s,
                           const int w)
{
    const struct cpu_ssm_scan *a = x->a;
    const int64_t tok = x->tok + t, group = a->head_map[head] * a->d_state;
    const float *in = a->x + tok * a->x_stride + head * a->d_head + col;
    float *out = a->out + tok * a->out_stride + head * a->d_head + col;
    struct scan_token k = {.b = a->b + tok * a->b_stride + group,
                           .c = a->c + tok * a->c_stride + group,
                           .gamma = lanes_set(x->gamma[t])};

    UNROLL
    for (int i = 0; i < w; i++) {
        int64_t m = n - i * LANES < LANES ? n - i * LANES : LANES;

        k.x[i] = lanes_load_n(in + i * LANES, m);
    }
    scan_pass(a->d_state, s, &k, w);
    UNROLL
    for (int i = 0; i < w; i++) {
        int64_t m = n - i * LANES < LANES ? n - i * LANES : LANES;

        lanes_store_n(out + i * LANES, k.y[i], m);
    }
}

/* Applies all tokens of the batch to columns col .. col + n - 1 of head `head`.
 * The columns fill w vectors of 16; the last vector may be partial. */
LANES_INLINE void scan_columns(const struct scan *x, int64_t head, int64_t col,
                               int64_t n, const int w)
{
    static const float zeros[SCAN_VECTORS * LANES];
    const struct cpu_ssm_scan *a = x->a;
    const float *in = x->tok > 0 ? a->state_out : a->state_in;
    const int64_t at = head * a->d_state * a->d_head + col, step = w * LANES;
    const bool part = n < step;
    struct scan_block s = {zeros, 0, x->m, step, NULL};

    if (in != NULL) {
        s.in = in + at;
        s.in_step = a->d_head;
    }
    if (part) {
        memset(x->m, 0, (size_t)(a->d_state * step) * sizeof(float));
        for (int64_t d = 0; d < a->d_state; d++)
            memcpy(x->m + d * step, s.in + d * s.in_step,
                   (size_t)n * sizeof(float));
        s.in = x->m;
        s.in_step = step;
    } else if (head + 1 < a->n_head && in != NULL) {
        /* Prefetches a share of the next head's state during the first token,
         * as many floats as this block of columns has. */
        s.ahead = in + (head + 1) * a->d_state * a->d_head + a->d_state * col;
    }
    for (int64_t t = 0; t < x->n; t++) {
        if (t + 1 == x->n && !part) {
            s.out = a->state_out + at;
            s.out_step = a->d_head;
        }
        scan_one(x, t, head, col, n, s, w);
        s = (struct scan_block){x->m, step, x->m, step, NULL};
    }
    for (int64_t d = 0; part && d < a->d_state; d++)
        memcpy(a->state_out + at + d * a->d_head, x->m + d * step,
               (size_t)n * sizeof(float));
}

/* Computes a run of a single token for columns col .. col + n - 1 of head
 * `head`. */
static inline void scan_single(const struct scan *x, int64_t head, int64_t col,
                               int64_t n)
{
    const struct cpu_ssm_scan *a = x->a;
    const int64_t at = head * a->d_state * a->d_head + col;
    const float *b = a->b + a->head_map[head] * a->d_state;
    const float *c = a->c + a->head_map[head] * a->d_state;
    const float *v = a->x + head * a->d_head + col;
    const lanes gamma = lanes_set(x->gamma[0]), zero = lanes_set(0);

    memset(x->chain, 0, (size_t)(SCAN_CHAINS * n) * sizeof(float));
    for (int64_t d = 0; d < a->d_state; d++) {
        const float *in = a->state_in ? a->state_in + at + d * a->d_head : NULL;
        float *out = a->state_out + at + d * a->d_head;
        float *chain = x->chain + d % SCAN_CHAINS * n;
        const lanes bd = lanes_set(b[d]), cd = lanes_set(c[d]);

        for (int64_t e = 0; e < n; e += LANES) {
            const int64_t w = n - e < LANES ? n - e : LANES;
            lanes m = in ? lanes_load_n(in + e, w) : zero;

            m = lanes_fma(bd, lanes_load_n(v + e, w), lanes_mul(gamma, m));
            lanes_store_n(out + e, m, w);
            m = lanes_fma(m, cd, lanes_load_n(chain + e, w));
            lanes_store_n(chain + e, m, w);
        }
    }
    for (int64_t e = 0; e < n; e += LANES) {
        const int64_t w = n - e < LANES ? n - e : LANES;
        const float *s = x->chain + e;
        lanes y = lanes_add(lanes_load_n(s, w), lanes_load_n(s + n, w));

        y = lanes_add(y, lanes_add(lanes_load_n(s + 2 * n, w),
                                   lanes_load_n(s + 3 * n, w)));
        lanes_store_n(a->out + head * a->d_head + col + e, y, w);
    }
}

/* Computes the decay gamma = exp(g) of each token of the batch for head
 * `head`. */
static inline void scan_decay(const struct scan *x, int64_t head)
{
    const struct cpu_ssm_scan *a = x->a;

    for (int64_t t = 0; t < x->n; t++)
        x->gamma[t] = a->g[(x->tok + t) * a->g_stride + head];
    for (int64_t t = 0; t < x->n; t += LANES) {
        int64_t m = x->n - t < LANES ? x->n - t : LANES;

        lanes_store_n(x->gamma + t, lanes_exp(lanes_load_n(x->gamma + t, m)),
                      m);
    }
}

/* Initializes *x for the arguments *a and lays out its arrays in `scratch`.
 * Returns the size in bytes of the scratch that a thread needs. If `scratch` is
 * NULL, only this size is meaningful. */
static inline size_t scan_init(struct scan *x, const struct cpu_ssm_scan *a,
                               void *scratch)
{
    const int64_t n = a->d_state * CPU_SCAN_COLUMNS;

    *x = (struct scan){.a = a};
    if (scratch != NULL) {
        x->gamma = scratch;
        x->m = x->gamma + SCAN_TOKENS;
        x->chain = x->m + n;
    }
    return (size_t)(SCAN_TOKENS + n + SCAN_CHAINS * a->d_head) * sizeof(float);
}

/* Computes items first .. first + n - 1 of a run of consecutive tokens of one
 * sequence. An item is a block of CPU_SCAN_COLUMNS columns of the state of one
 * head. Items are numbered by head, then by block. */
static void ssm_scan_items(const struct cpu_ssm_scan *a, int64_t first,
                           int64_t n, void *scratch)
{
    const int64_t n_block = cpu_ssm_scan_blocks(a);
    struct scan x;

    scan_init(&x, a, scratch);
    for (int64_t item = first, step; item < first + n; item += step) {
        const int64_t head = item / n_block;
        const int64_t col = item % n_block * CPU_SCAN_COLUMNS;
        const int64_t left = a->d_head - col;

        step = 1;
        if (a->n_tok == 1) {
            int64_t width;

            step = n_block - item % n_block;
            step = step < first + n - item ? step : first + n - item;
            width = step * CPU_SCAN_COLUMNS;
            x.n = 1;
            scan_decay(&x, head);
            scan_single(&x, head, col, width < left ? width : left);
            continue;
        }
        for (x.tok = 0; x.tok < a->n_tok; x.tok += x.n) {
            x.n =
                a->n_tok - x.tok < SCAN_TOKENS ? a->n_tok - x.tok : SCAN_TOKENS;
            scan_decay(&x, head);
            if (left > LANES)
                scan_columns(&x, head, col, left < 2 * LANES ? left : 2 * LANES,
                             2);
            else
                scan_columns(&x, head, col, left, 1);
        }
    }
}

#endif
