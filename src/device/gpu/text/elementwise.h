/* Elementwise kernels: each value of the result depends only on the operands'
 * values at the same index. Adjacent lanes compute adjacent elements. In a
 * launch for many elements a lane computes several. */

DEV float unary_value(float x, s32 op, float p, float q)
{
    switch (op) {
    case TEXT_SCALE:
        return mul_(x, p);
    case TEXT_CLAMP:
        return min_(q, max_(p, x)); /* a NaN in x stays NaN */
    case TEXT_SQR:
        return mul_(x, x);
    case TEXT_SQRT:
        return sqrt_(x);
    case TEXT_EXP:
        return exp_(x);
    case TEXT_TANH:
        return tanh_(x);
    case TEXT_SIGMOID:
        return sigmoid_(x);
    case TEXT_SOFTPLUS:
        return softplus_(x);
    case TEXT_SILU:
        return silu_(x);
    case TEXT_GELU:
        return gelu_(x);
    case TEXT_GELU_ERF:
        return gelu_erf_(x);
    }
    return max_(0.0f, x);
}

/* Computes out[i] = op(x[i]) for n elements. Lanes have adjacent elements, and
 * a lane continues after the elements of all work groups. No shared memory, no
 * sums. */
KERNEL(unary, struct unary_args, 256)
{
    for (s64 i = (s64)GROUP() * 256 + LANE(); i < a.n;
         i += (s64)N_GROUP() * 256) {
        float x = value_at(AT(const void, a.x), a.format, i);

        AT(float, a.out)[i] = unary_value(x, a.op, a.a, a.b);
    }
}

DEV float binary_value(float x, float y, s32 op, float lo, float hi,
                       float alpha)
{
    float g, u;

    switch (op) {
    case TEXT_ADD:
        return add_(x, y);
    case TEXT_SUB:
        return sub_(x, y);
    case TEXT_MUL:
        return mul_(x, y);
    case TEXT_DIV:
        return div_(x, y);
    case TEXT_SWIGLU:
        return mul_(silu_(x), y);
    case TEXT_GEGLU:
        return mul_(gelu_(x), y);
    }
    g = min_(hi, x);
    u = min_(hi, max_(lo, y));
    g = div_(g, exp1_(mul_(g, alpha)));
    return mul_(add_(u, 1.0f), g);
}

/* Computes out[i] = x op y for n elements. The host has merged dimensions that
 * are contiguous in both operands, so most often dim[0] covers all n elements
 * and no index is divided. Lanes have adjacent elements, as in `unary`. No
 * shared memory, no sums. */
KERNEL(binary, struct binary_args, 256)
{
    for (s64 i = (s64)GROUP() * 256 + LANE(); i < a.n;
         i += (s64)N_GROUP() * 256) {
        s64 at_x = i * a.stride_x[0], at_y = i * a.stride_y[0];
        float x, y;

        if (a.dim[0] != a.n) {
            at_x = strided(i, a.n, a.dim, a.stride_x);
            at_y = strided(i, a.n, a.dim, a.stride_y);
        }
        x = value_at(AT(const void, a.x), a.format_x, at_x);
        y = value_at(AT(const void, a.y), a.format_y, at_y);
        AT(float, a.out)[i] = binary_value(x, y, a.op, a.lo, a.hi, a.alpha);
    }
}

/* Converts n elements from one format to another. Lanes have adjacent elements,
 * as in `unary`. No shared memory, no sums. */
KERNEL(cast, struct cast_args, 256)
{
    for (s64 i = (s64)GROUP() * 256 + LANE(); i < a.n;
         i += (s64)N_GROUP() * 256)
        value_put(AT(void, a.out), a.to, i,
                  value_at(AT(const void, a.x), a.from, i));
}
