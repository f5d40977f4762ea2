/* Hyper-connections: the kernels sinkhorn and mix_streams. Included by
 * cpu_ops_template.h.
 *
 * A token has n <= 8 residual streams, and n (n + 2) weights: a[n], o[n] and
 * the matrix c [from, to]. Definition of sinkhorn, with the order of all
 * operations, for one token:
 *
 *   v_i = x_i * s + base_i, s of a, o or c; both rounded
 *   a_i = sigmoid(v_i) + eps, o_i = 2 * sigmoid(v_i)
 *   a row of c: p_k = exp(v_k - largest v), p_k / sum of p + eps
 *   Columns, then n_iter - 1 times rows and columns: each value is divided by
 *   (sum + eps).
 *
 * All sums are in ascending order, from 0. One thread computes a token.
 *
 * Definition of mix_streams: out_i = fma chain, from o_i * y, of c[j, i] * x_j,
 * j ascending. */
#ifndef DEVICE_CPU_CPU_STREAMS_TEMPLATE_H
#define DEVICE_CPU_CPU_STREAMS_TEMPLATE_H

#include "device/cpu/cpu_elementwise_template.h"

enum { STREAMS = 8, STREAM_WEIGHTS = STREAMS * (STREAMS + 2) };

/* Returns the number of streams n, where d = n (n + 2). */
static inline int streams_of(int64_t d)
{
    int n = 1;

    while (n < STREAMS && n * (n + 2) < d)
        n++;
    return n;
}

/* Divides the n values c[0], c[step], .. by (their sum + eps). */
static inline void streams_divide(float *c, int n, int step, float eps)
{
    float sum = 0;

    for (int k = 0; k < n; k++)
        sum = sum + c[k * step];
    sum = sum + eps;
    for (int k = 0; k < n; k++)
        c[k * step] = c[k * step] / sum;
}

/* Turns v, the n * n values of a matrix, into weights. v has space for whole
 * vectors. */
static inline void streams_balance(float *v, int n, int n_iter, float eps)
{
    for (int i = 0; i < n; i++) {
        float top = v[i * n];

        for (int k = 1; k < n; k++)
            top = v[i * n + k] > top ? v[i * n + k] : top;
        for (int k = 0; k < n; k++)
            v[i * n + k] = v[i * n + k] - top;
    }
    for (int i = 0; i < n * n; i += LANES)
        lanes_store(v + i, lanes_exp(lanes_load(v + i)));
    for (int i = 0; i < n; i++) {
        streams_divide(v + i * n, n, 1, 0);
        for (int k = 0; k < n; k++)
            v[i * n + k] = v[i * n + k] + eps;
    }
    for (int i = 0; i < n_iter; i++) {
        for (int k = 0; i > 0 && k < n; k++)
            streams_divide(v + k * n, n, 1, eps);
        for (int k = 0; k < n; k++)
            streams_divide(v + k, n, n, eps);
    }
}

/* Computes sinkhorn:
 *
 *   x [*, n (n + 2)], scale [3], base [n (n + 2)]  ->  out like x */
static inline void sinkhorn_run(const struct cpu_call *c)
{
    int64_t d = cpu_last(&c->out);
    int n = streams_of(d);
    struct cpu_part p = cpu_part(cpu_rows(&c->out), 1, c->ith, c->nth);
    float scale_buf[3], base_buf[STREAM_WEIGHTS];
    const float *scale = floats(&c->in[1], 0, 3, scale_buf);
    const float *base = floats(&c->in[2], 0, d, base_buf);
    float eps = c->attr->eps;

    for (int64_t r = p.lo; r < p.hi; r++) {
        const float *x = (const float *)c->in[0].data + r * d;
        float *out = (float *)c->out.data + r * d;
        float both[2 * LANES] = {0}, v[STREAM_WEIGHTS] = {0};

        for (int i = 0; i < 2 * n; i++) {
            float t = x[i] * scale[i / n];

            both[i] = t + base[i];
        }
        for (int i = 0; i < 2 * n; i += LANES)
            lanes_store(both + i, lanes_sigmoid(lanes_load(both + i)));
        for (int i = 0; i < n; i++) {
            out[i] = both[i] + eps;
            out[n + i] = 2 * both[n + i];
        }
        for (int i = 0; i < n * n; i++) {
            float t = x[2 * n + i] * scale[2];

            v[i] = t + base[2 * n + i];
        }
        streams_balance(v, n, c->attr->n_iter, eps);
        memcpy(out + 2 * n, v, (size_t)(n * n) * sizeof(float));
    }
}

/* Computes mix_streams:
 *
 *   x [n_tok, n, e], y [n_tok, e], w [n_tok, n (n + 1)]  ->  out like x
 *
 * w has o and then c. */
static inline void mix_streams_run(const struct cpu_call *c)
{
    int64_t n = c->out.dim[1], e = c->out.dim[2];
    struct cpu_part p = cpu_part(c->out.dim[0] * n, 1, c->ith, c->nth);

    for (int64_t r = p.lo; r < p.hi; r++) {
        int64_t t = r / n, i = r % n;
        const float *x = (const float *)c->in[0].data + t * n * e;
        const float *y = (const float *)c->in[1].data + t * e;
        const float *w = (const float *)c->in[2].data + t * n * (n + 1);
        float *out = (float *)c->out.data + r * e;

        for (int64_t k = 0; k < e; k += LANES) {
            int64_t m = e - k < LANES ? e - k : LANES;
            lanes s = lanes_mul(lanes_set(w[i]), lanes_load_n(y + k, m));

            for (int64_t j = 0; j < n; j++)
                s = lanes_fma(lanes_set(w[n + j * n + i]),
                              lanes_load_n(x + j * e + k, m), s);
            lanes_store_n(out + k, s, m);
        }
    }
}

#endif
