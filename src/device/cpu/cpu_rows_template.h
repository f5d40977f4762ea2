/* Ops on rows of the last dimension: RMSNorm, LayerNorm, RoPE, softmax,
 * routers, and the sum over the dimension before it. Included by
 * cpu_ops_template.h.
 *
 * One thread computes a row. A row is summed in ascending order into 16 partial
 * sums, by i mod 16 (norms: 64 partial sums, by i mod 64), which are then added
 * along a fixed tree. So results depend only on the row. */
#ifndef DEVICE_CPU_CPU_ROWS_TEMPLATE_H
#define DEVICE_CPU_CPU_ROWS_TEMPLATE_H

#include "base/exact.h"
#include "device/cpu/cpu_elementwise_template.h"

#include <float.h>

/* ---- RMSNorm ------------------------------------------------------------- */

/* Returns the sum of squares of x[n]: 64 partial sums, by i mod 64, computed
 * with fmaf and then added along a tree. Elements beyond n count as 0. */
static inline float sum_squares(const float *x, int64_t n)
{
    lanes s[4] = {lanes_set(0), lanes_set(0), lanes_set(0), lanes_set(0)};
    lanes v;
    int64_t i = 0;

    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        v = lanes_load(x + i);
        s[0] = lanes_fma(v, v, s[0]);
        v = lanes_load(x + i + LANES);
        s[1] = lanes_fma(v, v, s[1]);
        v = lanes_load(x + i + 2 * LANES);
        s[2] = lanes_fma(v, v, s[2]);
        v = lanes_load(x + i + 3 * LANES);
        s[3] = lanes_fma(v, v, s[3]);
    }
    for (int j = 0; i < n; i += LANES, j++) {
        v = n - i < LANES ? lanes_load_n(x + i, n - i) : lanes_load(x + i);
        s[j] = lanes_fma(v, v, s[j]);
    }
    return lanes_sum(lanes_add(lanes_add(s[0], s[1]), lanes_add(s[2], s[3])));
}

static inline size_t rms_norm_scratch(const struct cpu_call *c)
{
    return (size_t)cpu_last(&c->out) * sizeof(float);
}

/* Computes rms_norm:
 *
 *   x [*, d], w [d] or absent  ->  out [*, d]
 *   out = (x * (1 / sqrt(mean(x^2) + eps))) * w */
static inline void rms_norm_run(const struct cpu_call *c)
{
    int64_t d = cpu_last(&c->out);
    struct cpu_part p = cpu_part(cpu_rows(&c->out), 1, c->ith, c->nth);
    const float *w = NULL;

    if (p.lo < p.hi && c->in[1].data != NULL)
        w = floats(&c->in[1], 0, d, c->scratch);
    for (int64_t r = p.lo; r < p.hi; r++) {
        const float *x = (const float *)c->in[0].data + r * d;
        float *out = (float *)c->out.data + r * d;
        float mean = sum_squares(x, d) / (float)d;
        lanes s = lanes_set(1.0f / sqrtf(mean + c->attr->eps));

        for (int64_t i = 0; i < d; i += LANES) {
            int64_t n = d - i;
            lanes v;

            if (n >= LANES) {
                v = lanes_mul(lanes_load(x + i), s);
                if (w != NULL)
                    v = lanes_mul(v, lanes_load(w + i));
                lanes_store(out + i, v);
            } else {
                v = lanes_mul(lanes_load_n(x + i, n), s);
                if (w != NULL)
                    v = lanes_mul(v, lanes_load_n(w + i, n));
                lanes_store_n(out + i, v, n);
            }
        }
    }
}

/* ---- LayerNorm ----------------------------------------------------------- */

/* Returns the n <= 16 values at x in a vector, minus `mean`; 0 beyond n. */
static inline lanes centred(const float *x, int64_t n, lanes mean)
{
    if (n >= LANES)
        return lanes_sub(lanes_load(x), mean);
    return lanes_range(lanes_sub(lanes_load_n(x, n), mean), 0, (int)n, 0.0f);
}

/* Returns the sum of x[n], with 64 partial sums by i mod 64, which are added
 * along the tree of sum_squares(). */
static inline float sum_values(const float *x, int64_t n)
{
    lanes s[4] = {lanes_set(0), lanes_set(0), lanes_set(0), lanes_set(0)};

    for (int64_t i = 0, j = 0; i < n; i += LANES, j++)
        s[j % 4] =
            lanes_add(s[j % 4], n - i < LANES ? lanes_load_n(x + i, n - i)
                                              : lanes_load(x + i));
    return lanes_sum(lanes_add(lanes_add(s[0], s[1]), lanes_add(s[2], s[3])));
}

/* Returns the sum of (x - mean)^2 over x[n], in the order of sum_squares(). */
static inline float sum_deviations(const float *x, int64_t n, lanes mean)
{
    lanes s[4] = {lanes_set(0), lanes_set(0), lanes_set(0), lanes_set(0)};

    for (int64_t i = 0, j = 0; i < n; i += LANES, j++) {
        lanes v = centred(x + i, n - i, mean);

        s[j % 4] = lanes_fma(v, v, s[j % 4]);
    }
    return lanes_sum(lanes_add(lanes_add(s[0], s[1]), lanes_add(s[2], s[3])));
}

/* Computes layer_norm in three passes over a row, so that a large mean costs no
 * precision of the variance:
 *
 *   x [*, d], w [d] or absent  ->  out [*, d]
 *   u = x - mean(x)
 *   out = (u * (1 / sqrt(mean(u^2) + eps))) * w
 *
 * Source: arXiv:1607.06450. */
static inline void layer_norm_run(const struct cpu_call *c)
{
    int64_t d = cpu_last(&c->out);
    struct cpu_part p = cpu_part(cpu_rows(&c->out), 1, c->ith, c->nth);
    const float *w = NULL;

    if (p.lo < p.hi && c->in[1].data != NULL)
        w = floats(&c->in[1], 0, d, c->scratch);
    for (int64_t r = p.lo; r < p.hi; r++) {
        const float *x = (const float *)c->in[0].data + r * d;
        float *out = (float *)c->out.data + r * d;
        lanes mean = lanes_set(sum_values(x, d) / (float)d);
        float variance = sum_deviations(x, d, mean) / (float)d;
        lanes s = lanes_set(1.0f / sqrtf(variance + c->attr->eps));

        for (int64_t i = 0; i < d; i += LANES) {
            int64_t n = d - i < LANES ? d - i : LANES;
            lanes v = lanes_mul(centred(x + i, n, mean), s);

            if (w != NULL)
                v = lanes_mul(v, lanes_load_n(w + i, n));
            lanes_store_n(out + i, v, n);
        }
    }
}

/* ---- RoPE ---------------------------------------------------------------- */

/* Number of doubles in a vector with which cos_sin() computes. The compiler
 * splits it into the vectors that the instruction set has. */
enum { DOUBLES = 8 };
typedef double doubles __attribute__((vector_size(DOUBLES * sizeof(double))));
typedef uint64_t double_bits
    __attribute__((vector_size(DOUBLES * sizeof(double))));
typedef float half_lanes __attribute__((vector_size(DOUBLES * sizeof(float))));

/* Computes cos and sin of a = angle * pos, times mscale, for 8 angles.
 *
 * Computes in double precision, with an error of at most 1e-12 for |a| below
 * 2^20. For much greater a the results still have float precision. x = a - k
 * pi/2, where pi/2 is split into a part of 33 bits and the rest, so that |x| <=
 * pi/4; then Taylor series of x. Adding 1.5 * 2^52 rounds to the integer k and
 * leaves k in the low bits, the last two of which are the quadrant. For
 * extremely large or infinite angles, which no model has, the result is
 * meaningless or NaN. */
static inline void cos_sin(const double *angle, double pos, double mscale,
                           float *co, float *si)
{
    doubles a, k, x, z, s, c;
    double_bits quadrant, odd, cos_bits, sin_bits;
    half_lanes f;

    memcpy(&a, angle, sizeof(a));
    a = a * pos;
    k = a * 0x1.45f306dc9c883p-1 + 0x1.8p52;
    memcpy(&quadrant, &k, sizeof(k));
    k = k - 0x1.8p52;
    x = (a - k * 0x1.921fb544p+0) - k * 0x1.0b4611a626331p-34;
    z = x * x;
    s = z * (1.0 / 6227020800.0) - 1.0 / 39916800.0;
    s = s * z + 1.0 / 362880.0;
    s = s * z - 1.0 / 5040.0;
    s = s * z + 1.0 / 120.0;
    s = s * z - 1.0 / 6.0;
    s = s * z * x + x;
    c = z * (-1.0 / 87178291200.0) + 1.0 / 479001600.0;
    c = c * z - 1.0 / 3628800.0;
    c = c * z + 1.0 / 40320.0;
    c = c * z - 1.0 / 720.0;
    c = c * z + 1.0 / 24.0;
    c = c * z - 0.5;
    c = c * z + 1.0;
    /* The quadrant is the number k of times that pi/2 was subtracted from the
     * angle, mod 4. In odd quadrants cos and sin of the angle are exchanged. In
     * quadrants 0 to 3 the signs of cos are + - - +, and of sin + + - -. */
    odd = 0 - (quadrant & 1);
    memcpy(&cos_bits, &c, sizeof(c));
    memcpy(&sin_bits, &s, sizeof(s));
    odd = odd & (cos_bits ^ sin_bits);
    cos_bits = cos_bits ^ odd ^ ((quadrant + 1) & 2) << 62;
    sin_bits = sin_bits ^ odd ^ (quadrant & 2) << 62;
    memcpy(&c, &cos_bits, sizeof(c));
    memcpy(&s, &sin_bits, sizeof(s));
    f = __builtin_convertvector(c * mscale, half_lanes);
    memcpy(co, &f, sizeof(f));
    f = __builtin_convertvector(s * mscale, half_lanes);
    memcpy(si, &f, sizeof(f));
}

/* Returns base^(-2/n), the ratio of the RoPE angle of a pair to that of the
 * pair before, for base > 0. For other bases, which no model has, the result is
 * meaningless. */
static inline double rope_step(double base, int n)
{
    double x = -2.0 / n * exact_log(base);

    return x <= 0 ? exact_exp(x) : 1 / exact_exp(-x);
}

/* Computes angle[i], the RoPE angle by which pair i of a head's values rotates
 * from one position to the next:
 *
 *   t = base^(-2i/n_rot) / factor[i]
 *   linear scaling: angle = t * freq_scale
 *   YaRN: angle = t * freq_scale * (1 - m) + t * m, where m falls from 1 to 0
 *   between the pairs yarn_low and yarn_high
 *
 * angle[] is padded with zeros to whole vectors. */
static inline void rope_angles(const struct cpu_call *c, double *angle)
{
    const struct graph_attr *a = c->attr;
    double scale = a->freq_scale != 0 ? (double)a->freq_scale : 1.0;
    double low = (double)a->yarn_low;
    double width = (double)a->yarn_high - low;
    double step = rope_step((double)a->base, a->n_rot);
    double power = 1.0;
    float factor[1];

    if (width < 0.001)
        width = 0.001;
    for (int i = 0; i < a->n_rot / 2; i++) {
        double t = power;

        if (c->in[2].data != NULL)
            t /= (double)*floats(&c->in[2], i, 1, factor);
        if (a->yarn) {
            double m = (i - low) / width;

            m = 1.0 - (m < 0 ? 0 : m > 1 ? 1 : m);
            t = t * scale * (1.0 - m) + t * m;
        } else {
            t = t * scale;
        }
        angle[i] = t;
        power *= step;
    }
    for (int i = a->n_rot / 2; i % DOUBLES != 0; i++)
        angle[i] = 0;
}

/* Rotates the pairs (x[i], x[i + half]) of one head by the angles with cosines
 * co[i] and sines si[i]; dst may be x. Each product is rounded before it is
 * added, without fmaf, as in rope_pairs(). */
static inline void rope_neox(float *dst, const float *x, const float *co,
                             const float *si, int64_t half)
{
    for (int64_t i = 0; i < half; i += LANES) {
        int64_t n = half - i < LANES ? half - i : LANES;
        lanes u = lanes_load_n(x + i, n);
        lanes v = lanes_load_n(x + half + i, n);
        lanes cv = lanes_load_n(co + i, n);
        lanes sv = lanes_load_n(si + i, n);

        lanes_store_n(dst + i, lanes_sub(lanes_mul(u, cv), lanes_mul(v, sv)),
                      n);
        lanes_store_n(dst + half + i,
                      lanes_add(lanes_mul(u, sv), lanes_mul(v, cv)), n);
    }
}

/* Rotates the pairs (x[2i], x[2i + 1]) of one head; dst may be x. co and si
 * contain the cosine and sine of each pair's angle twice. The first of each two
 * in si is negated. */
static inline void rope_pairs(float *dst, const float *x, const float *co,
                              const float *si, int64_t n_rot)
{
    for (int64_t i = 0; i < n_rot; i += LANES) {
        int64_t n = n_rot - i < LANES ? n_rot - i : LANES;
        lanes v = lanes_load_n(x + i, n);
        lanes r = lanes_mul(lanes_swap_pairs(v), lanes_load_n(si + i, n));

        v = lanes_mul(v, lanes_load_n(co + i, n));
        lanes_store_n(dst + i, lanes_add(v, r), n);
    }
}

/* Returns the length of the arrays for angles, cosines and sines of one token:
 * n_rot rounded up to whole vectors. */
static inline int64_t rope_width(const struct cpu_call *c)
{
    int64_t grain = 2 * DOUBLES;

    return (c->attr->n_rot + grain - 1) / grain * grain;
}

static inline size_t rope_scratch(const struct cpu_call *c)
{
    return (size_t)rope_width(c) * (sizeof(double) + 2 * sizeof(float));
}

/* Returns the factor of the cosines and sines of a token at position `pos`:
 * mscale * (1 + scale ln(floor(pos / window) + 1)), mscale if window is 0. */
static inline double rope_factor(const struct graph_attr *a, int32_t pos)
{
    double mscale = a->mscale != 0 ? (double)a->mscale : 1.0;

    if (a->window <= 0)
        return mscale;
    return mscale *
           (1.0 + (double)a->scale *
                      exact_log((double)(pos / (int32_t)a->window) + 1.0));
}

/* Computes the cosines co[] and sines si[] of a token at position `pos`, from
 * the angles per position, of which attr.start are taken away. If attr.back,
 * the angles are negative. They are in the order that rope_neox() or
 * rope_pairs() expects. */
static inline void rope_token(const struct graph_attr *a, const double *angle,
                              int32_t pos, float *co, float *si)
{
    double mscale = rope_factor(a, pos);
    double turns = (double)pos - (double)a->start;
    int half = a->n_rot / 2;

    if (a->back)
        turns = -turns;
    for (int j = 0; j < half; j += DOUBLES)
        cos_sin(angle + j, turns, mscale, co + j, si + j);
    for (int j = half - 1; !a->neox && j >= 0; j--) {
        co[2 * j] = co[2 * j + 1] = co[j];
        si[2 * j + 1] = si[j];
        si[2 * j] = -si[2 * j + 1];
    }
}

/* Computes rope:
 *
 *   x [n_tok, n_head, d], pos [n_tok], factors [n_rot/2] or absent
 *     ->  out [n_tok, n_head, d]
 *
 * Angles are computed in double. cos and sin, multiplied by mscale, are rounded
 * to float once per token and pair. Values from n_rot on are copied. */
static inline void rope_run(const struct cpu_call *c)
{
    const struct graph_attr *a = c->attr;
    int64_t d = c->out.dim[2];
    int64_t n_head = c->out.dim[1];
    struct cpu_part p = cpu_part(c->out.dim[0] * n_head, 1, c->ith, c->nth);
    double *angle = c->scratch;
    float *co = (float *)(angle + rope_width(c));
    float *si = co + rope_width(c);
    int64_t tok = -1;

    if (p.lo < p.hi)
        rope_angles(c, angle);
    for (int64_t i = p.lo; i < p.hi; i++) {
        const float *x = (const float *)c->in[0].data + i * d;
        float *out = (float *)c->out.data + i * d;

        if (i / n_head != tok) {
            tok = i / n_head;
            rope_token(a, angle, ((const int32_t *)c->in[1].data)[tok], co, si);
        }
        if (a->neox)
            rope_neox(out, x, co, si, a->n_rot / 2);
        else
            rope_pairs(out, x, co, si, a->n_rot);
        if (out != x)
            memcpy(out + a->n_rot, x + a->n_rot,
                   (size_t)(d - a->n_rot) * sizeof(float));
    }
}

/* ---- softmax ------------------------------------------------------------- */

/* Computes the softmax of a row, dst[i] = exp(x[i] - max) / sum. The sum is
 * that of 16 partial sums, by index mod 16, added along a fixed tree. dst may
 * be x. */
static inline void softmax_row(float *dst, const float *x, int64_t n)
{
    lanes top = lanes_set(-INFINITY);
    lanes sum = lanes_set(0);
    lanes v;

    for (int64_t i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? (int)(n - i) : LANES;

        v = lanes_load_n(x + i, m);
        top = lanes_max(lanes_range(v, 0, m, -INFINITY), top);
    }
    top = lanes_set(lanes_top(top));
    for (int64_t i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? (int)(n - i) : LANES;

        v = lanes_exp(lanes_sub(lanes_load_n(x + i, m), top));
        lanes_store_n(dst + i, v, m);
        sum = lanes_add(sum, lanes_range(v, 0, m, 0.0f));
    }
    sum = lanes_set(lanes_sum(sum));
    for (int64_t i = 0; i < n; i += LANES) {
        int m = n - i < LANES ? (int)(n - i) : LANES;

        lanes_store_n(dst + i, lanes_div(lanes_load_n(dst + i, m), sum), m);
    }
}

static inline void softmax_run(const struct cpu_call *c)
{
    int64_t d = cpu_last(&c->out);
    struct cpu_part p = cpu_part(cpu_rows(&c->out), 1, c->ith, c->nth);

    for (int64_t r = p.lo; r < p.hi; r++)
        softmax_row((float *)c->out.data + r * d,
                    (const float *)c->in[0].data + r * d, d);
}

/* ---- routers, which choose experts --------------------------------------- */

/* Computes the scores of all n experts from their logits, by the gating
 * function. For PL_GATING_SOFTMAX_SELECTED the scores are the logits. */
static inline void router_scores(float *score, const float *logit, int64_t n,
                                 int gating)
{
    switch (gating) {
    case PL_GATING_SOFTMAX:
        softmax_row(score, logit, n);
        break;
    case PL_GATING_SIGMOID:
        for (int64_t i = 0; i < n; i += LANES) {
            int64_t m = n - i < LANES ? n - i : LANES;

            lanes_store_n(score + i, lanes_sigmoid(lanes_load_n(logit + i, m)),
                          m);
        }
        break;
    case PL_GATING_SQRT_SOFTPLUS:
        for (int64_t i = 0; i < n; i += LANES) {
            int64_t m = n - i < LANES ? n - i : LANES;
            lanes v = lanes_softplus(lanes_load_n(logit + i, m));

            lanes_store_n(score + i, lanes_sqrt(v), m);
        }
        break;
    default:
        memcpy(score, logit, (size_t)n * sizeof(float));
    }
}

/* Returns the index of the largest value in x[0 .. n-1], ignoring NaN. If
 * several are equal, returns the lowest index. Returns 0 if all are NaN.
 * Callers set values that they have already chosen to NaN. */
static inline int64_t largest(const float *x, int64_t n)
{
    int64_t best = -1;

    for (int64_t i = 0; i < n; i++) {
        if (x[i] == x[i] && (best < 0 || x[i] > x[best]))
            best = i;
    }
    return best < 0 ? 0 : best;
}

/* Sets the scores of all experts to -infinity except those in the n_group_used
 * best groups of experts. A group's score is the sum of its two best experts'
 * (DeepSeek-V3, arXiv:2412.19437), or, with softmax gating, its best expert's
 * (DeepSeek-V2, arXiv:2405.04434). `group` is scratch for the scores of the
 * groups. */
static inline void keep_groups(float *score, int64_t n,
                               const struct graph_attr *a, float *group)
{
    int64_t size = n / a->n_group;

    for (int g = 0; g < a->n_group; g++) {
        float first = -INFINITY, second = -INFINITY;

        for (int64_t i = g * size; i < (g + 1) * size; i++) {
            if (score[i] > first) {
                second = first;
                first = score[i];
            } else if (score[i] > second) {
                second = score[i];
            }
        }
        group[g] =
            size > 1 && a->gating != PL_GATING_SOFTMAX ? first + second : first;
    }
    for (int k = 0; k < a->n_group_used; k++)
        group[largest(group, a->n_group)] = NAN;
    for (int g = 0; g < a->n_group; g++) {
        for (int64_t i = g * size; group[g] == group[g] && i < (g + 1) * size;
             i++)
            score[i] = -INFINITY;
    }
}

static inline size_t router_scratch(const struct cpu_call *c)
{
    return (size_t)(2 * cpu_last(&c->in[0])) * sizeof(float);
}

/* Computes router_topk, the ids of each token's best experts:
 *
 *   logits [*, e], bias [e] or absent  ->  ids [*, n_used] I32
 *
 * The best expert is first. Experts with equal scores are ordered by id, the
 * lowest first. */
static inline void router_topk_run(const struct cpu_call *c)
{
    const struct graph_attr *a = c->attr;
    int64_t e = cpu_last(&c->in[0]);
    int64_t n_used = cpu_last(&c->out);
    struct cpu_part p = cpu_part(cpu_rows(&c->out), 1, c->ith, c->nth);
    float *score = c->scratch;
    float bias[1];

    for (int64_t r = p.lo; r < p.hi; r++) {
        int32_t *id = (int32_t *)c->out.data + r * n_used;

        router_scores(score, (const float *)c->in[0].data + r * e, e,
                      a->gating);
        if (c->in[1].data != NULL) {
            for (int64_t i = 0; i < e; i++)
                score[i] = score[i] + *floats(&c->in[1], i, 1, bias);
        }
        if (a->n_group > 1 && a->n_group_used > 0 &&
            a->n_group_used < a->n_group)
            keep_groups(score, e, a, score + e);
        for (int64_t k = 0; k < n_used; k++) {
            id[k] = (int32_t)largest(score, e);
            score[id[k]] = NAN;
        }
    }
}

/* Computes router_weights, the weights of each token's chosen experts:
 *
 *   logits [*, e], ids [*, u] I32  ->  weights [*, u]
 *
 * If the weights are normalized, they are divided by their sum, added in order
 * of u. */
static inline void router_weights_run(const struct cpu_call *c)
{
    const struct graph_attr *a = c->attr;
    int64_t e = cpu_last(&c->in[0]);
    int64_t u = cpu_last(&c->out);
    struct cpu_part p = cpu_part(cpu_rows(&c->out), 1, c->ith, c->nth);
    float scale = a->scale != 0 ? a->scale : 1.0f;
    float *score = c->scratch;

    for (int64_t r = p.lo; r < p.hi; r++) {
        const int32_t *id = (const int32_t *)c->in[1].data + r * u;
        float *w = (float *)c->out.data + r * u;
        float sum = 0;

        router_scores(score, (const float *)c->in[0].data + r * e, e,
                      a->gating);
        for (int64_t k = 0; k < u; k++)
            w[k] = score[id[k]];
        if (a->gating == PL_GATING_SOFTMAX_SELECTED)
            softmax_row(w, w, u);
        if (a->normalise) {
            for (int64_t k = 0; k < u; k++)
                sum = sum + w[k];
            sum = sum > 0x1p-14f ? sum : 0x1p-14f;
            for (int64_t k = 0; k < u; k++)
                w[k] = w[k] / sum;
        }
        for (int64_t k = 0; k < u; k++)
            w[k] = w[k] * scale;
    }
}

/* ---- sum over the dimension before the last ------------------------------ */

/* Returns one rank's addend of the op sum: the sum of the rows u that the rank
 * holds, in ascending order. Computes n <= 16 columns from x on. Rows are d
 * floats apart. */
static inline lanes sum_rows(const struct cpu_call *c, int32_t rank,
                             const float *x, int64_t d, int64_t n)
{
    lanes s = lanes_set(0);

    for (int i = 0; i < c->n_span; i++) {
        const struct rank_span *span = &c->span[i];

        for (int64_t u = 0; span->rank == rank && u < span->n; u++)
            s = lanes_add(s, lanes_load_n(x + (span->local + u) * d, n));
    }
    return s;
}

/* Computes the op sum: x [*, u, d] -> out [*, d], summed over u. Each rank sums
 * the rows u that it holds, and these sums are added along the rank tree. */
static inline void sum_run(const struct cpu_call *c)
{
    int64_t d = cpu_last(&c->out);
    int64_t u = c->in[0].dim[c->in[0].n_dim - 2];
    int64_t blocks = (d + LANES - 1) / LANES;
    struct cpu_part p = cpu_part(cpu_rows(&c->out) * blocks, 1, c->ith, c->nth);
    const struct rank_span whole = {0, 0, u, 0};
    struct cpu_call call = *c;
    lanes stack[PL_MAX_RANKS];

    if (c->n_span == 0) {
        call.span = &whole;
        call.n_span = 1;
    }
    for (int64_t b = p.lo; b < p.hi; b++) {
        int64_t row = b / blocks;
        int64_t col = b % blocks * LANES;
        int64_t n = d - col < LANES ? d - col : LANES;
        const float *x = (const float *)c->in[0].data + row * u * d + col;
        int top = 0;

        for (int i = 0; i < c->tree.n; i++) {
            stack[top++] = sum_rows(&call, c->tree.item[i].rank, x, d, n);
            for (int k = 0; k < c->tree.item[i].n_add; k++) {
                top--;
                stack[top - 1] = lanes_add(stack[top - 1], stack[top]);
            }
        }
        for (int i = 0; i < top; i++)
            lanes_store_n(
                (float *)((char *)c->out.data + (size_t)i * c->out_stride) +
                    row * d + col,
                stack[i], n);
    }
}

#endif
