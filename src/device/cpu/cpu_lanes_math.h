/* exp, tanh and related functions of sixteen floats at a time. They do not use
 * libm, so that results depend neither on its version nor on the instruction
 * set. NaN gives NaN. */
#ifndef DEVICE_CPU_CPU_LANES_MATH_H
#define DEVICE_CPU_CPU_LANES_MATH_H

#include "device/cpu/cpu_simd.h"

/* Returns each value rounded to the nearest integer, ties to even, for |x| <
 * 2^22. */
LANES_INLINE lanes lanes_round(lanes x)
{
    lanes magic = lanes_set(0x1.8p23f);

    return lanes_sub(lanes_add(x, magic), magic);
}

/* Returns a * 2^n, rounded once, for integral n in -150 .. 129 and a between
 * 1/2 and 2. Without an instruction for it, multiplies by two powers of two in
 * turn, so that both are normal numbers and the first product is exact. */
LANES_INLINE lanes lanes_times_pow2(lanes a, lanes n)
{
#ifdef LANES_AVX512
    return (lanes)_mm512_scalef_ps((__m512)a, (__m512)n);
#else
    lanes h = lanes_round(lanes_mul(n, lanes_set(0.5f)));

    a = lanes_mul(a, lanes_pow2(h));
    return lanes_mul(a, lanes_pow2(lanes_sub(n, h)));
#endif
}

/* Computes exp(x) - 1 = 2^n (1 + p) - 1 with n = round(x / ln 2): returns p and
 * n.
 *
 * r = x - n ln 2, where ln 2 is the sum of two constants, the first with nine
 * significant bits. p = r + r^2 q(r), where the polynomial q of degree 4
 * interpolates (e^r - 1 - r) / r^2 at the Chebyshev points of |r| <= ln 2 / 2.
 * The error of p is at most 0.4 units of the last place. */
LANES_INLINE lanes lanes_exp_parts(lanes x, lanes *n)
{
    lanes k = lanes_round(lanes_mul(x, lanes_set(0x1.715476p+0f)));
    lanes r = lanes_fma(k, lanes_set(-0x1.63p-1f), x);
    lanes q = lanes_set(0x1.6d117cp-10f);

    r = lanes_fma(k, lanes_set(0x1.bd0106p-13f), r);
    q = lanes_fma(q, r, lanes_set(0x1.120be2p-7f));
    q = lanes_fma(q, r, lanes_set(0x1.555518p-5f));
    q = lanes_fma(q, r, lanes_set(0x1.5554dcp-3f));
    q = lanes_fma(q, r, lanes_set(0.5f));
    *n = k;
    return lanes_fma(lanes_mul(r, r), q, r);
}

/* Returns e^x within 1 unit of the last place, with correct 0, infinity and
 * subnormal results; exp(0) is exactly 1. */
LANES_CALLED lanes lanes_exp(lanes x)
{
    lanes n, p;

    x = lanes_max(lanes_set(-104.0f), x);
    x = lanes_min(lanes_set(89.0f), x);
    p = lanes_exp_parts(x, &n);
    return lanes_times_pow2(lanes_add(p, lanes_set(1.0f)), n);
}

/* Returns tanh x = m / (m + 2) with m = e^2x - 1. |x| is limited to 10, where
 * tanh rounds to 1. */
LANES_CALLED lanes lanes_tanh(lanes x)
{
    lanes y = lanes_min(lanes_set(10.0f), lanes_abs(x));
    lanes n, p, s, m;

    p = lanes_exp_parts(lanes_add(y, y), &n);
    s = lanes_pow2(n);
    m = lanes_fma(s, p, lanes_sub(s, lanes_set(1.0f)));
    return lanes_copysign(lanes_div(m, lanes_add(m, lanes_set(2.0f))), x);
}

/* Returns 1 + e^-x. Sigmoid is 1 / (1 + e^-x), and SiLU is x / (1 + e^-x). */
LANES_INLINE lanes lanes_exp1(lanes x)
{
    lanes e = lanes_exp(lanes_sub(lanes_set(0.0f), x));

    return lanes_add(lanes_set(1.0f), e);
}

LANES_INLINE lanes lanes_sigmoid(lanes x)
{
    return lanes_div(lanes_set(1.0f), lanes_exp1(x));
}

LANES_INLINE lanes lanes_silu(lanes x)
{
    return lanes_div(x, lanes_exp1(x));
}

/* Returns GELU in its tanh form, 0.5 x (1 + tanh z) with z = sqrt(2/pi) (x +
 * 0.044715 x^3). Computes x / (1 + e^-2z), which is equal but has no
 * cancellation for negative x. */
LANES_INLINE lanes lanes_gelu(lanes x)
{
    lanes x2 = lanes_mul(x, x);
    lanes z = lanes_fma(x2, lanes_set(0.044715f), lanes_set(1.0f));

    /* the factor is 2 sqrt(2/pi), so that z becomes the 2z of the formula */
    z = lanes_mul(lanes_mul(z, x), lanes_set(1.5957691f));
    return lanes_div(x, lanes_exp1(z));
}

/* Returns GELU exactly, x times the normal distribution at x, within 7 units
 * of the last place. It is max(x, 0) - a e^(-a^2 / 2) t p(t) with a = |x| and
 * t = 1 / (1 + 0.35 a), because the tail of the distribution is
 * erfc(a / sqrt 2) / 2 = e^(-a^2 / 2) t p(t). The polynomial p of degree 8
 * interpolates at the Chebyshev points of t for a in 0 .. 16, where
 * e^(-a^2 / 2) becomes 0. `cut` is the part of a^2 that rounding cuts off. */
LANES_CALLED lanes lanes_gelu_erf(lanes x)
{
    lanes a = lanes_min(lanes_set(16.0f), lanes_abs(x));
    lanes zero = lanes_set(0.0f), one = lanes_set(1.0f);
    lanes t = lanes_div(one, lanes_fma(a, lanes_set(0.35f), one));
    lanes a2 = lanes_mul(a, a);
    lanes cut = lanes_fma(a, a, lanes_sub(zero, a2));
    lanes q = lanes_set(-0x1.e86bd2p-6f);

    q = lanes_fma(q, t, lanes_set(0x1.2d48a8p-3f));
    q = lanes_fma(q, t, lanes_set(-0x1.0c3fd6p-2f));
    q = lanes_fma(q, t, lanes_set(0x1.53f0e2p-3f));
    q = lanes_fma(q, t, lanes_set(-0x1.c32c44p-6f));
    q = lanes_fma(q, t, lanes_set(0x1.b75004p-4f));
    q = lanes_fma(q, t, lanes_set(0x1.e92c92p-4f));
    q = lanes_fma(q, t, lanes_set(0x1.1e8a5cp-3f));
    q = lanes_fma(q, t, lanes_set(0x1.1df07cp-3f));
    q = lanes_mul(lanes_mul(q, t), lanes_sub(zero, a));
    q = lanes_fma(lanes_mul(q, cut), lanes_set(-0.5f), q);
    return lanes_fma(q, lanes_exp(lanes_mul(a2, lanes_set(-0.5f))),
                     lanes_max(zero, x));
}

/* Returns log(1 + e^x) = max(x, 0) + log(1 + t) with t = e^-|x|. log(1 + t) is
 * 2 atanh s with s = t / (2 + t), which is in 0 .. 1/3. A polynomial in s^2
 * interpolates (atanh s / s - 1) / s^2 at the Chebyshev points. */
LANES_CALLED lanes lanes_softplus(lanes x)
{
    lanes t = lanes_exp(lanes_sub(lanes_set(0.0f), lanes_abs(x)));
    lanes s = lanes_div(t, lanes_add(lanes_set(2.0f), t));
    lanes z = lanes_mul(s, s);
    lanes q = lanes_set(0x1.12f598p-3f);

    q = lanes_fma(q, z, lanes_set(0x1.21249ap-3f));
    q = lanes_fma(q, z, lanes_set(0x1.99ad6cp-3f));
    q = lanes_fma(q, z, lanes_set(0x1.55554cp-2f));
    q = lanes_fma(lanes_mul(z, q), s, s);
    return lanes_add(lanes_max(lanes_set(0.0f), x), lanes_add(q, q));
}

#endif
