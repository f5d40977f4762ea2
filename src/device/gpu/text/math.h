/* exp, tanh and related functions, with the operations of
 * device/cpu/cpu_lanes_math.h, which states their errors. */

/* Minimum and maximum as vector instructions of CPUs compute them: if a or b is
 * NaN, the result is b. */
DEV float min_(float a, float b)
{
    return a < b ? a : b;
}
DEV float max_(float a, float b)
{
    return a > b ? a : b;
}

/* Returns the integer nearest to x, ties to even. |x| must be less than
 * 2^22. */
DEV float round_(float x)
{
    return sub_(add_(x, 0x1.8p23f), 0x1.8p23f);
}

/* Returns 2^n. n must be an integer from -126 to 127. */
DEV float pow2_(float n)
{
    return float_from_bits((float_bits(add_(n, 0x1.8p23f)) << 23) +
                           0x3f800000u);
}

/* Returns a * 2^n, rounded once. n is an integer from -150 to 129, and a lies
 * between 1/2 and 2. */
DEV float times_pow2_(float a, float n)
{
    float h = round_(mul_(n, 0.5f));

    return mul_(mul_(a, pow2_(h)), pow2_(sub_(n, h)));
}

/* Computes n and p such that exp(x) = 2^n * (1 + p). Returns p. */
DEV float exp_parts_(float x, float *n)
{
    float k = round_(mul_(x, 0x1.715476p+0f));
    float r = fma_(k, -0x1.63p-1f, x);
    float q = 0x1.6d117cp-10f;

    r = fma_(k, 0x1.bd0106p-13f, r);
    q = fma_(q, r, 0x1.120be2p-7f);
    q = fma_(q, r, 0x1.555518p-5f);
    q = fma_(q, r, 0x1.5554dcp-3f);
    q = fma_(q, r, 0.5f);
    *n = k;
    return fma_(mul_(r, r), q, r);
}

DEV float exp_(float x)
{
    float n, p;

    x = max_(-104.0f, x);
    x = min_(89.0f, x);
    p = exp_parts_(x, &n);
    return times_pow2_(add_(p, 1.0f), n);
}

DEV float tanh_(float x)
{
    float y = min_(10.0f, abs_(x)), n, p, s, m;
    u32 sign = float_bits(x) & 0x80000000u;

    p = exp_parts_(add_(y, y), &n);
    s = pow2_(n);
    m = fma_(s, p, sub_(s, 1.0f));
    m = div_(m, add_(m, 2.0f));
    return float_from_bits((float_bits(m) & 0x7fffffffu) | sign);
}

/* Returns 1 + exp(-x). */
DEV float exp1_(float x)
{
    return add_(1.0f, exp_(sub_(0.0f, x)));
}

DEV float sigmoid_(float x)
{
    return div_(1.0f, exp1_(x));
}

DEV float silu_(float x)
{
    return div_(x, exp1_(x));
}

DEV float gelu_(float x)
{
    float z = fma_(mul_(x, x), 0.044715f, 1.0f);

    z = mul_(mul_(z, x), 1.5957691f);
    return div_(x, exp1_(z));
}

DEV float gelu_erf_(float x)
{
    float a = min_(16.0f, abs_(x));
    float t = div_(1.0f, fma_(a, 0.35f, 1.0f));
    float a2 = mul_(a, a), cut = fma_(a, a, sub_(0.0f, a2));
    float q = -0x1.e86bd2p-6f;

    q = fma_(q, t, 0x1.2d48a8p-3f);
    q = fma_(q, t, -0x1.0c3fd6p-2f);
    q = fma_(q, t, 0x1.53f0e2p-3f);
    q = fma_(q, t, -0x1.c32c44p-6f);
    q = fma_(q, t, 0x1.b75004p-4f);
    q = fma_(q, t, 0x1.e92c92p-4f);
    q = fma_(q, t, 0x1.1e8a5cp-3f);
    q = fma_(q, t, 0x1.1df07cp-3f);
    q = mul_(mul_(q, t), sub_(0.0f, a));
    q = fma_(mul_(q, cut), -0.5f, q);
    return fma_(q, exp_(mul_(a2, -0.5f)), max_(0.0f, x));
}

DEV float softplus_(float x)
{
    float t = exp_(sub_(0.0f, abs_(x)));
    float s = div_(t, add_(2.0f, t));
    float z = mul_(s, s);
    float q = 0x1.12f598p-3f;

    q = fma_(q, z, 0x1.21249ap-3f);
    q = fma_(q, z, 0x1.99ad6cp-3f);
    q = fma_(q, z, 0x1.55554cp-2f);
    q = fma_(mul_(z, q), s, s);
    return add_(max_(0.0f, x), add_(q, q));
}
