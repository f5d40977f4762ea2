/* The gated delta net (cpu_recurrent.h). Included by cpu_ops_template.h.
 *
 * A value head has a matrix M [d_k, d_v], the state. A token reads it with its
 * query and updates it with its key. With S = d_k and all products and sums
 * rounded as written, a token computes:
 *
 *   kn[d] = k[d] * (1 / max(sqrt(sum of k^2), eps)), the sum as in
 *           RMSNorm; qn[d] likewise
 *   gamma = exp(g)
 *   pk[e] = sum over d of M[d][e] * kn[d]
 *   pq[e] = sum over d of M[d][e] * qn[d]
 *   kq    = sum over d of kn[d] * qn[d]
 *   u[e]  = beta * (v[e] - gamma * pk[e])
 *   out[e]  = fmaf(kq, u[e], gamma * pq[e]) * (1 / sqrt(S))
 *   M[d][e] = fmaf(kn[d], u[e], gamma * M[d][e])
 *
 * With a decay per channel, g and gamma have a value for each row d of M:
 *
 *   kn[d] = k[d] * (1 / sqrt((sum of k^2) + eps)); qn[d] likewise
 *   gamma[d] = exp(g[d])
 *   pk[e] = sum over d of M[d][e] * (gamma[d] * kn[d])
 *   pq[e] = sum over d of M[d][e] * (gamma[d] * qn[d])
 *   u[e]  = beta * (v[e] - pk[e])
 *   out[e]  = fmaf(kq, u[e], pq[e]) * (1 / sqrt(S))
 *   M[d][e] = fmaf(kn[d], u[e], gamma[d] * M[d][e])
 *
 * A sum over d is computed as four sums c0 .. c3 by fmaf, from 0: cj adds d =
 * j, j + 4, ... in ascending order. The result is (c0 + c1) + (c2 + c3).
 *
 * This is the recurrence M = gamma M; u = beta (v - M^T k); M = M + k u^T;
 * out = M^T q / sqrt(S), arranged so that both products use the M before the
 * token's update. So the update by one token and the products of the next token
 * are one pass over M, with a load, a store and four operations per element.
 * Columns are independent, so that a block of columns stays in the first-level
 * cache for all tokens. Keys and queries are normalized once for all value
 * heads and blocks of a key head, and multiplied by the decays of channels once
 * for all blocks of a value head. Source: gated delta rule, arXiv:2412.06464;
 * decays of channels, arXiv:2510.26692. */
#ifndef DEVICE_CPU_CPU_DELTA_NET_TEMPLATE_H
#define DEVICE_CPU_CPU_DELTA_NET_TEMPLATE_H

#include "base/unroll.h"
#include "device/cpu/cpu_recurrent.h"
#include "device/cpu/cpu_rows_template.h"

#include <string.h>

enum {
    /* maximum number of tokens whose keys and queries are normalized together;
     * a multiple of 16 */
    DELTA_TOKENS = 64,
    DELTA_CHAINS = 4,
    /* maximum number of columns of the state M that one pass over its rows
     * updates, in vectors of 16 columns */
    DELTA_VECTORS = 2,
};

/* Arguments of a call of the gated delta net, and the arrays of one thread in
 * its scratch. Tokens are processed in batches of up to DELTA_TOKENS. */
struct delta {
    const struct cpu_delta_net *a;
    /* [DELTA_TOKENS, d_k]: normalized keys and queries of the batch of up to
     * DELTA_TOKENS tokens */
    float *kn, *qn;
    /* [DELTA_TOKENS]: for each token of the batch, the dot product of its
     * normalized key kn and query qn */
    float *kq;
    /* [DELTA_TOKENS], or [DELTA_TOKENS, d_k] with a decay per channel: for each
     * token of the batch, the decay of the state of the current value head */
    float *gamma;
    /* [DELTA_TOKENS, d_k]: kn and qn times the decays of channels; empty
     * without these */
    float *gk, *gq;
    /* [d_k, CPU_DELTA_COLUMNS]: a copy of a block of columns of the state M,
     * which stays in the first-level cache */
    float *m;
    /* first token, and number of tokens, of the current batch of up to
     * DELTA_TOKENS tokens */
    int64_t tok, n;
};

/* Location of a block of columns of the state M: its rows are `step` floats
 * apart. delta_rows is for reading, delta_dst for writing. With step 0 all rows
 * are the same memory. */
struct delta_rows {
    const float *row;
    int64_t step;
};
struct delta_dst {
    float *row;
    int64_t step;
};

/* One token's inputs and intermediate results of the gated delta net, named as
 * in the definition at the top: key kn, decay gamma, update u, and the products
 * pk and pq of the state M. */
struct delta_token {
    const float *kn;
    /* The factors of M in pk and pq: kn and qn, or with a decay per channel
     * these times the decay. */
    const float *by_k, *by_q;
    lanes gamma;           /* a head's decay */
    const float *channels; /* the decays of channels */
    /* update of the state M by this token, for a block of columns */
    lanes u[DELTA_VECTORS];
    /* products of the state M with the token's key and with its query, for a
     * block of columns */
    lanes pk[DELTA_VECTORS], pq[DELTA_VECTORS];
};

/* Makes one pass over all rows of a block of the state M, w vectors of 16
 * columns wide. Reads the block at src, updates it by token `now` and writes it
 * to dst. Meanwhile computes the products of the updated block with the key and
 * query of token `next`. `now` or `next` may be NULL. If `ahead` is not NULL,
 * prefetches d_k * w vectors from there. If `channels`, each row has a decay of
 * its own. */
LANES_INLINE void delta_pass(int64_t d_k, struct delta_rows src,
                             struct delta_dst dst,
                             const struct delta_token *now,
                             struct delta_token *next, const float *ahead,
                             const int w, const bool channels)
{
    lanes pk[DELTA_CHAINS][DELTA_VECTORS];
    lanes pq[DELTA_CHAINS][DELTA_VECTORS];

    UNROLL
    for (int j = 0; j < DELTA_CHAINS; j++) {
        lanes ck[DELTA_VECTORS], cq[DELTA_VECTORS];

        UNROLL
        for (int i = 0; i < w; i++)
            ck[i] = cq[i] = lanes_set(0);
        for (int64_t d = j; d < d_k; d += DELTA_CHAINS) {
            lanes update = lanes_set(now ? now->kn[d] : 0);
            lanes by_k = lanes_set(next ? next->by_k[d] : 0);
            lanes by_q = lanes_set(next ? next->by_q[d] : 0);
            lanes gamma = lanes_set(0);

            if (now)
                gamma = channels ? lanes_set(now->channels[d]) : now->gamma;

            UNROLL
            for (int i = 0; i < w; i++) {
                lanes m = lanes_load(src.row + d * src.step + i * LANES);

                if (ahead)
                    __builtin_prefetch(ahead + (d * w + i) * LANES, 0, 2);
                if (now) {
                    m = lanes_fma(update, now->u[i], lanes_mul(gamma, m));
                    lanes_store(dst.row + d * dst.step + i * LANES, m);
                }
                if (next) {
                    ck[i] = lanes_fma(m, by_k, ck[i]);
                    cq[i] = lanes_fma(m, by_q, cq[i]);
                }
            }
        }
        UNROLL
        for (int i = 0; i < w; i++) {
            pk[j][i] = ck[i];
            pq[j][i] = cq[i];
        }
    }
    if (!next)
        return;
    UNROLL
    for (int i = 0; i < w; i++) {
        next->pk[i] = lanes_add(lanes_add(pk[0][i], pk[1][i]),
                                lanes_add(pk[2][i], pk[3][i]));
        next->pq[i] = lanes_add(lanes_add(pq[0][i], pq[1][i]),
                                lanes_add(pq[2][i], pq[3][i]));
    }
}

/* Prefetches the value v and the result row of token t, for w vectors of
 * columns of value head `head`. The rows of adjacent tokens are pages apart, so
 * that hardware does not prefetch them. */
LANES_INLINE void delta_fetch(const struct delta *x, int64_t t, int64_t head,
                              int64_t col, const int w)
{
    const struct cpu_delta_net *a = x->a;
    int64_t at = head * a->d_v + col;

    if (t >= x->n)
        return;
    UNROLL
    for (int i = 0; i < w; i++) {
        __builtin_prefetch(a->v + (x->tok + t) * a->v_stride + at + i * LANES);
        __builtin_prefetch(
            a->out + (x->tok + t) * a->out_stride + at + i * LANES, 1);
    }
}

/* Sets the inputs in *k to those of token t of the current batch of up to
 * DELTA_TOKENS tokens. */
LANES_INLINE void delta_begin(const struct delta *x, int64_t t,
                              struct delta_token *k, const bool channels)
{
    const int64_t at = t * x->a->d_k;

    k->kn = x->kn + at;
    k->by_k = channels ? x->gk + at : k->kn;
    k->by_q = (channels ? x->gq : x->qn) + at;
    k->channels = x->gamma + (channels ? at : t);
    k->gamma = lanes_set(k->channels[0]);
}

/* Computes the result of token t of the batch (of up to DELTA_TOKENS tokens),
 * and k->u, its update of the state M, for n columns from `col` of value head
 * `head`. k->pk and k->pq are the products of M with the token's key and
 * query. */
LANES_INLINE void delta_end(const struct delta *x, int64_t t, int64_t head,
                            int64_t col, int64_t n, struct delta_token *k,
                            const int w, const bool channels)
{
    const struct cpu_delta_net *a = x->a;
    int64_t at = (x->tok + t) * a->v_stride + head * a->d_v + col;
    int64_t to = (x->tok + t) * a->out_stride + head * a->d_v + col;
    lanes beta = lanes_set(a->beta[(x->tok + t) * a->beta_stride + head]);
    lanes scale = lanes_set(1.0f / sqrtf((float)a->d_k));
    lanes kq = lanes_set(x->kq[t]);

    UNROLL
    for (int i = 0; i < w; i++) {
        int64_t m = n - i * LANES < LANES ? n - i * LANES : LANES;
        lanes v = lanes_load_n(a->v + at + i * LANES, m);
        lanes o = channels ? k->pq[i] : lanes_mul(k->gamma, k->pq[i]);

        v = lanes_sub(v, channels ? k->pk[i] : lanes_mul(k->gamma, k->pk[i]));
        k->u[i] = lanes_mul(beta, v);
        o = lanes_mul(lanes_fma(kq, k->u[i], o), scale);
        lanes_store_n(a->out + to + i * LANES, o, m);
    }
}

/* Copies n columns of all d_k rows of the state M from src to dst. */
static inline void delta_copy(const struct delta *x, struct delta_rows src,
                              struct delta_dst dst, int64_t n)
{
    for (int64_t d = 0; d < x->a->d_k; d++)
        memcpy(dst.row + d * dst.step, src.row + d * src.step,
               (size_t)n * sizeof(float));
}

/* Applies the recurrence of the gated delta net to all tokens of the batch (of
 * up to DELTA_TOKENS tokens), for columns col .. col + n - 1 of value head
 * `head`. The columns fill w vectors of 16; the last vector may be partial. */
LANES_INLINE void delta_columns(const struct delta *x, int64_t head,
                                int64_t col, int64_t n, const int w,
                                const bool channels)
{
    static const float zeros[DELTA_VECTORS * LANES];
    const struct cpu_delta_net *a = x->a;
    const float *in = x->tok > 0 ? a->state_out : a->state_in;
    int64_t at = head * a->d_k * a->d_v + col;
    struct delta_rows m = {x->m, w * LANES};
    struct delta_dst block = {x->m, m.step};
    struct delta_rows src = {zeros, 0};
    struct delta_dst state = {a->state_out + at, a->d_v};
    struct delta_dst dst = state;
    const float *read_ahead = NULL, *write_ahead = NULL;
    struct delta_token now, next;

    if (in != NULL)
        src = (struct delta_rows){in + at, a->d_v};
    if (n < w * LANES) {
        memset(x->m, 0, (size_t)(a->d_k * m.step) * sizeof(float));
        delta_copy(x, src, block, n);
        src = m;
        dst = block;
    } else if (head + 1 < a->n_head_v) {
        /* Prefetches a share of the next value head's state, as many floats as
         * this block of columns has, while the first and the last pass run.
         * With few tokens, that state would otherwise not be in the caches in
         * time. */
        int64_t ahead = (head + 1) * a->d_k * a->d_v + a->d_k * col;

        read_ahead = in != NULL ? in + ahead : NULL;
        write_ahead = a->state_out + ahead;
    }
    delta_begin(x, 0, &next, channels);
    delta_pass(a->d_k, src, dst, NULL, &next, read_ahead, w, channels);
    delta_end(x, 0, head, col, n, &next, w, channels);
    for (int64_t t = 1; t < x->n; t++) {
        now = next;
        delta_fetch(x, t + 2, head, col, w);
        delta_begin(x, t, &next, channels);
        delta_pass(a->d_k, src, block, &now, &next, NULL, w, channels);
        delta_end(x, t, head, col, n, &next, w, channels);
        src = m;
    }
    delta_pass(a->d_k, src, dst, &next, NULL, write_ahead, w, channels);
    if (n < w * LANES)
        delta_copy(x, m, state, n);
}

/* Returns the dot product of x[n] and y[n], as four sums by index mod 4, which
 * are then added in pairs. */
static inline float delta_product(const float *x, const float *y, int64_t n)
{
    float c[DELTA_CHAINS] = {0};
    int64_t d = 0;

    for (; d + DELTA_CHAINS <= n; d += DELTA_CHAINS) {
        UNROLL
        for (int j = 0; j < DELTA_CHAINS; j++)
            c[j] = fmaf(x[d + j], y[d + j], c[j]);
    }
    for (int j = 0; d + j < n; j++)
        c[j] = fmaf(x[d + j], y[d + j], c[j]);
    return (c[0] + c[1]) + (c[2] + c[3]);
}

/* Normalizes the keys and queries of key head `head` into x->kn and x->qn, for
 * all tokens of the batch (of up to DELTA_TOKENS tokens). Also computes x->kq,
 * each token's dot product of both. */
static inline void delta_norm(const struct delta *x, int64_t head)
{
    const struct cpu_delta_net *a = x->a;

    for (int64_t t = 0; t < x->n; t++) {
        const float *from[2] = {
            a->k + (x->tok + t) * a->k_stride + head * a->d_k,
            a->q + (x->tok + t) * a->q_stride + head * a->d_k};
        float *to[2] = {x->kn + t * a->d_k, x->qn + t * a->d_k};
        for (int i = 0; i < 2; i++) {
            const float *ahead = from[i] + 2 * (i ? a->q_stride : a->k_stride);
            float sum = sum_squares(from[i], a->d_k);
            float norm = sqrtf(a->channels ? sum + a->eps : sum);
            lanes s = lanes_set(1.0f /
                                (a->channels || norm > a->eps ? norm : a->eps));

            for (int64_t d = 0; d < a->d_k; d += LANES) {
                int64_t m = a->d_k - d < LANES ? a->d_k - d : LANES;

                if (t + 2 < x->n)
                    __builtin_prefetch(ahead + d);
                lanes_store_n(to[i] + d,
                              lanes_mul(lanes_load_n(from[i] + d, m), s), m);
            }
        }
        x->kq[t] = delta_product(to[0], to[1], a->d_k);
    }
}

/* Computes the decays gamma = exp(g) of the channels of value head `head`, and
 * their products with keys and queries, for each token of the batch (of up to
 * DELTA_TOKENS tokens). */
static inline void delta_decay_channels(const struct delta *x, int64_t head)
{
    const struct cpu_delta_net *a = x->a;

    for (int64_t t = 0; t < x->n; t++) {
        const float *g = a->g + (x->tok + t) * a->g_stride + head * a->d_k;
        const int64_t at = t * a->d_k;

        for (int64_t d = 0; d < a->d_k; d += LANES) {
            int64_t m = a->d_k - d < LANES ? a->d_k - d : LANES;
            lanes gamma = lanes_exp(lanes_load_n(g + d, m));
            lanes kn = lanes_load_n(x->kn + at + d, m);
            lanes qn = lanes_load_n(x->qn + at + d, m);

            lanes_store_n(x->gamma + at + d, gamma, m);
            lanes_store_n(x->gk + at + d, lanes_mul(gamma, kn), m);
            lanes_store_n(x->gq + at + d, lanes_mul(gamma, qn), m);
        }
    }
}

/* Computes the decay gamma = exp(g) of each token of the batch (of up to
 * DELTA_TOKENS tokens) for value head `head`. */
static inline void delta_decay(const struct delta *x, int64_t head)
{
    const struct cpu_delta_net *a = x->a;

    for (int64_t t = 0; t < x->n; t++)
        x->gamma[t] = a->g[(x->tok + t) * a->g_stride + head];
    for (int64_t t = 0; t < x->n; t += LANES) {
        int64_t m = x->n - t < LANES ? x->n - t : LANES;

        lanes_store_n(x->gamma + t, lanes_exp(lanes_load_n(x->gamma + t, m)),
                      m);
    }
}

/* Calls the instance of delta_columns for n columns and the form of decay. */
static inline void delta_block(const struct delta *x, int64_t head, int64_t col,
                               int64_t n)
{
    const bool wide = n > LANES;

    if (wide && x->a->channels)
        delta_columns(x, head, col, n, 2, true);
    else if (wide)
        delta_columns(x, head, col, n, 2, false);
    else if (x->a->channels)
        delta_columns(x, head, col, n, 1, true);
    else
        delta_columns(x, head, col, n, 1, false);
}

/* Applies the recurrence of the gated delta net to all tokens of the batch (of
 * up to DELTA_TOKENS tokens), for items lo .. hi - 1 of key head key_head. An
 * item is a block of CPU_DELTA_COLUMNS columns of the state of one of its value
 * heads. */
static inline void delta_items(const struct delta *x, int64_t key_head,
                               int64_t lo, int64_t hi)
{
    const struct cpu_delta_net *a = x->a;
    int64_t n_block = cpu_delta_net_blocks(a);
    int64_t item = 0;

    delta_norm(x, key_head);
    for (int64_t head = 0; head < a->n_head_v; head++) {
        if (a->head_map[head] != key_head)
            continue;
        if (item < hi && item + n_block > lo) {
            if (a->channels)
                delta_decay_channels(x, head);
            else
                delta_decay(x, head);
        }
        for (int64_t i = 0; i < n_block; i++, item++) {
            int64_t end = (i + 1) * CPU_DELTA_COLUMNS;

            if (item < lo || item >= hi)
                continue;
            end = end < a->d_v ? end : a->d_v;
            for (int64_t c = i * CPU_DELTA_COLUMNS; c < end;) {
                int64_t n = end - c;

                n = n < DELTA_VECTORS * LANES ? n : DELTA_VECTORS * LANES;
                delta_block(x, head, c, n);
                c += n;
            }
        }
    }
}

/* Initializes *x for the arguments *a and lays out its arrays in `scratch`.
 * Returns the size in bytes of the scratch that a thread needs. If `scratch` is
 * NULL, only this size is meaningful. */
static inline size_t delta_init(struct delta *x, const struct cpu_delta_net *a,
                                void *scratch)
{
    int64_t n = a->n_tok < DELTA_TOKENS ? a->n_tok : DELTA_TOKENS;
    int64_t keys = n * a->d_k, decays = a->channels ? keys : 0;
    int64_t count[] = {a->d_k * CPU_DELTA_COLUMNS, keys,   keys,  n,
                       a->channels ? keys : n,     decays, decays};
    float **part[] = {&x->m, &x->kn, &x->qn, &x->kq, &x->gamma, &x->gk, &x->gq};
    size_t at = 0;

    *x = (struct delta){.a = a};
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        *part[i] = scratch != NULL ? (float *)((char *)scratch + at) : NULL;
        at += ((size_t)count[i] * sizeof(float) + 63) / 64 * 64;
    }
    return at;
}

/* Computes items first .. first + n - 1 of a run of consecutive tokens of one
 * sequence. An item is a block of CPU_DELTA_COLUMNS columns of the state of one
 * value head. Items are numbered by key head, then by value head, then by
 * block. */
static void delta_net_items(const struct cpu_delta_net *a, int64_t first,
                            int64_t n, void *scratch)
{
    /* number of items of the key heads before the current one */
    int64_t at = 0;
    struct delta x;

    delta_init(&x, a, scratch);
    for (int64_t key_head = 0; key_head < a->n_head_k; key_head++) {
        int64_t n_item = 0;
        int64_t lo, hi;

        for (int64_t head = 0; head < a->n_head_v; head++)
            n_item += (a->head_map[head] == key_head) * cpu_delta_net_blocks(a);
        lo = first > at ? first - at : 0;
        hi = first + n - at < n_item ? first + n - at : n_item;
        at += n_item;
        for (x.tok = 0; lo < hi && x.tok < a->n_tok; x.tok += x.n) {
            x.n = a->n_tok - x.tok < DELTA_TOKENS ? a->n_tok - x.tok
                                                  : DELTA_TOKENS;
            delta_items(&x, key_head, lo, hi);
        }
    }
}

#endif
