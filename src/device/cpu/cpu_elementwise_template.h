/* Elementwise ops: ops of one operand, ops of two operands with broadcasting,
 * and casts. Included by cpu_ops_template.h.
 *
 * Each element of a result depends only on the corresponding elements of the
 * operands, so results do not depend on how elements are divided into vectors,
 * chunks and threads. Operands may be F32, F16 or BF16, because norm weights
 * and biases keep the format of the file. Results are F32, except for casts.
 * The result may be in the same memory as an operand. */
#ifndef DEVICE_CPU_CPU_ELEMENTWISE_TEMPLATE_H
#define DEVICE_CPU_CPU_ELEMENTWISE_TEMPLATE_H

#include "device/cpu/cpu_lanes_math.h"
#include "device/cpu/cpu_ops.h"

#include <string.h>

enum {
    /* maximum number of elements of an operand that are converted to float at a
     * time */
    CHUNK = 512,
    /* the number of elements that a thread computes is a multiple of this */
    GRAIN = 64,
};

/* ---- conversion between floats and 16-bit formats ------------------------ */

static inline void from_f16(float *dst, const uint16_t *src, int64_t n)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        lanes_store(dst + i, lanes_from_f16(src + i));
    for (; i < n; i++)
        dst[i] = f16_to_f32(src[i]);
}

static inline void from_bf16(float *dst, const uint16_t *src, int64_t n)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        lanes_store(dst + i, lanes_from_bf16(src + i));
    for (; i < n; i++)
        dst[i] = bf16_to_f32(src[i]);
}

static inline void to_f16(uint16_t *dst, const float *src, int64_t n)
{
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        lanes_to_f16(dst + i, lanes_load(src + i));
    for (; i < n; i++)
        dst[i] = f32_to_f16(src[i]);
}

static inline void to_bf16(uint16_t *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = f32_to_bf16(src[i]);
}

/* Returns elements i .. i + n - 1 of a tensor that is not packed, as floats.
 * For an F32 tensor this is a pointer into the tensor's memory. For F16 or BF16
 * the elements are converted to buf[n], which is returned. */
static inline const float *floats(const struct cpu_tensor *t, int64_t i,
                                  int64_t n, float *buf)
{
    switch (t->format) {
    case PL_F16:
        from_f16(buf, (const uint16_t *)t->data + i, n);
        return buf;
    case PL_BF16:
        from_bf16(buf, (const uint16_t *)t->data + i, n);
        return buf;
    default:
        return (const float *)t->data + i;
    }
}

/* ---- ops of one operand -------------------------------------------------- */

typedef lanes unary_fn(lanes x, const struct graph_attr *a);

LANES_INLINE void unary(const struct cpu_call *c, unary_fn *f)
{
    struct cpu_part p = cpu_part(cpu_count(&c->out), GRAIN, c->ith, c->nth);
    float *out = c->out.data;
    float buf[CHUNK];

    for (int64_t i = p.lo; i < p.hi; i += CHUNK) {
        int64_t n = p.hi - i < CHUNK ? p.hi - i : CHUNK;
        const float *x = floats(&c->in[0], i, n, buf);
        int64_t j = 0;

        for (; j + LANES <= n; j += LANES)
            lanes_store(out + i + j, f(lanes_load(x + j), c->attr));
        if (j < n)
            lanes_store_n(out + i + j, f(lanes_load_n(x + j, n - j), c->attr),
                          n - j);
    }
}

#define UNARY(name, expr)                                                      \
    LANES_INLINE lanes name##_lanes(lanes x, const struct graph_attr *a)       \
    {                                                                          \
        (void)a;                                                               \
        return (expr);                                                         \
    }                                                                          \
    static inline void name##_run(const struct cpu_call *c)                    \
    {                                                                          \
        unary(c, name##_lanes);                                                \
    }

UNARY(scale, lanes_mul(x, lanes_set(a->scale)))
UNARY(clamp, lanes_min(lanes_set(a->hi),
                       /* the clamp returns NaN for NaN, because min and max
                        * return their second operand then */
                       lanes_max(lanes_set(a->lo), x)))
UNARY(sqr, lanes_mul(x, x))
UNARY(sqrt, lanes_sqrt(x))
UNARY(exp, lanes_exp(x))
UNARY(tanh, lanes_tanh(x))
UNARY(sigmoid, lanes_sigmoid(x))
UNARY(softplus, lanes_softplus(x))
UNARY(silu, lanes_silu(x))
UNARY(gelu, lanes_gelu(x))
UNARY(gelu_erf, lanes_gelu_erf(x))
UNARY(relu, lanes_max(lanes_set(0.0f), x))
#undef UNARY

/* ---- ops of two operands, with broadcasting ------------------------------ */

typedef lanes binary_fn(lanes x, lanes y, const struct graph_attr *a);

/* The dimensions over which a binary op iterates, innermost first. stride[0]
 * and stride[1] are the strides of the two operands along each dimension, in
 * elements. A stride is 0 where an operand is broadcast. The innermost strides
 * are 0 or 1. */
struct walk {
    int n_dim;
    int64_t dim[GRAPH_MAX_DIM];
    int64_t stride[2][GRAPH_MAX_DIM];
};

/* Sets *w to the dimensions over which the call iterates, and the operands'
 * strides. Leaves out dimensions of size 1. Merges dimensions that are
 * contiguous in both operands, so that operands of equal shapes become one long
 * row. */
static inline void walk_init(struct walk *w, const struct cpu_call *c)
{
    /* the stride, in elements, that each operand has along the next outer
     * dimension unless it is broadcast there */
    int64_t step[2] = {1, 1};

    /* The dimensions of *w are filled from the innermost one, dim[0],
     * outward. */
    w->n_dim = 0;
    for (int i = 0; i < c->out.n_dim; i++) {
        int64_t n = c->out.dim[c->out.n_dim - 1 - i];
        int64_t stride[2];
        int k = w->n_dim;

        for (int o = 0; o < 2; o++) {
            const struct cpu_tensor *t = &c->in[o];
            int64_t m = i < t->n_dim ? t->dim[t->n_dim - 1 - i] : 1;

            stride[o] = m == 1 ? 0 : step[o];
            step[o] *= m;
        }
        if (n == 1)
            continue;
        if (k > 0 && stride[0] == w->stride[0][k - 1] * w->dim[k - 1] &&
            stride[1] == w->stride[1][k - 1] * w->dim[k - 1]) {
            w->dim[k - 1] *= n;
            continue;
        }
        w->dim[k] = n;
        w->stride[0][k] = stride[0];
        w->stride[1][k] = stride[1];
        w->n_dim++;
    }
    if (w->n_dim == 0) {
        w->n_dim = 1;
        w->dim[0] = 1;
        w->stride[0][0] = w->stride[1][0] = 1;
    }
}

/* Computes out[i] = f(x[i], y[i]) for n <= CHUNK adjacent results. If sx is 0,
 * x is a single value for all results; if sy is 0, y is. */
LANES_INLINE void binary_row(float *out, const float *x, int64_t sx,
                             const float *y, int64_t sy, int64_t n,
                             const struct graph_attr *a, binary_fn *f)
{
    lanes vx = lanes_set(x[0]);
    lanes vy = lanes_set(y[0]);
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        if (sx != 0)
            vx = lanes_load(x + i);
        if (sy != 0)
            vy = lanes_load(y + i);
        lanes_store(out + i, f(vx, vy, a));
    }
    if (i < n) {
        if (sx != 0)
            vx = lanes_load_n(x + i, n - i);
        if (sy != 0)
            vy = lanes_load_n(y + i, n - i);
        lanes_store_n(out + i, f(vx, vy, a), n - i);
    }
}

LANES_INLINE void binary(const struct cpu_call *c, binary_fn *f)
{
    struct cpu_part p = cpu_part(cpu_count(&c->out), GRAIN, c->ith, c->nth);
    float *out = c->out.data;
    float buf[2][CHUNK];
    struct walk w;
    int64_t n_row;

    walk_init(&w, c);
    n_row = w.dim[0];
    for (int64_t i = p.lo; i < p.hi;) {
        int64_t col = i % n_row;
        int64_t row = i / n_row;
        int64_t at[2] = {col * w.stride[0][0], col * w.stride[1][0]};
        int64_t n = n_row - col < p.hi - i ? n_row - col : p.hi - i;
        const float *x, *y;

        for (int d = 1; d < w.n_dim; d++) {
            at[0] += row % w.dim[d] * w.stride[0][d];
            at[1] += row % w.dim[d] * w.stride[1][d];
            row /= w.dim[d];
        }
        while (n > 0) {
            int64_t m = n < CHUNK ? n : CHUNK;

            x = floats(&c->in[0], at[0], w.stride[0][0] != 0 ? m : 1, buf[0]);
            y = floats(&c->in[1], at[1], w.stride[1][0] != 0 ? m : 1, buf[1]);
            binary_row(out + i, x, w.stride[0][0], y, w.stride[1][0], m,
                       c->attr, f);
            at[0] += m * w.stride[0][0];
            at[1] += m * w.stride[1][0];
            i += m;
            n -= m;
        }
    }
}

#define BINARY(name, expr)                                                     \
    LANES_INLINE lanes name##_lanes(lanes x, lanes y,                          \
                                    const struct graph_attr *a)                \
    {                                                                          \
        (void)a;                                                               \
        return (expr);                                                         \
    }                                                                          \
    static inline void name##_run(const struct cpu_call *c)                    \
    {                                                                          \
        binary(c, name##_lanes);                                               \
    }

/* Returns the gated activation function of gpt-oss: (u + 1) g / (1 + e^(-alpha
 * g)), with g = min(gate, hi) and u = up limited to lo .. hi. */
LANES_INLINE lanes swiglu_oai_value(lanes g, lanes u,
                                    const struct graph_attr *a)
{
    g = lanes_min(lanes_set(a->hi), g);
    u = lanes_min(lanes_set(a->hi), lanes_max(lanes_set(a->lo), u));
    g = lanes_div(g, lanes_exp1(lanes_mul(g, lanes_set(a->alpha))));
    return lanes_mul(lanes_add(u, lanes_set(1.0f)), g);
}

BINARY(add, lanes_add(x, y))
BINARY(sub, lanes_sub(x, y))
BINARY(mul, lanes_mul(x, y))
BINARY(div, lanes_div(x, y))
BINARY(swiglu, lanes_mul(lanes_silu(x), y))
BINARY(geglu, lanes_mul(lanes_gelu(x), y))
BINARY(swiglu_oai, swiglu_oai_value(x, y, a))
#undef BINARY

/* ---- casts between float formats ----------------------------------------- */

static inline void cast_run(const struct cpu_call *c)
{
    struct cpu_part p = cpu_part(cpu_count(&c->out), GRAIN, c->ith, c->nth);
    float buf[CHUNK];

    for (int64_t i = p.lo; i < p.hi; i += CHUNK) {
        int64_t n = p.hi - i < CHUNK ? p.hi - i : CHUNK;
        const float *x = floats(&c->in[0], i, n, buf);

        if (c->out.format == PL_F16)
            to_f16((uint16_t *)c->out.data + i, x, n);
        else if (c->out.format == PL_BF16)
            to_bf16((uint16_t *)c->out.data + i, x, n);
        else
            memmove((float *)c->out.data + i, x, (size_t)n * sizeof(float));
    }
}

#endif
