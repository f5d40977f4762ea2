/* Creates the launches of elementwise kernels. */
#include "device/gpu/gpu_launch.h"

static void unary(struct launch_list *l, const struct gpu_call *c, int32_t op)
{
    struct unary_args a = {.out = c->out.at,
                           .x = c->in[0].at,
                           .n = gpu_count(&c->out),
                           .op = op,
                           .format = gpu_format(c->in[0].format)};

    if (op == TEXT_SCALE)
        a.a = c->attr->scale;
    if (op == TEXT_CLAMP) {
        a.a = c->attr->lo;
        a.b = c->attr->hi;
    }
    gpu_list_add(l, GPU_unary, gpu_turns(a.n), &a);
}

#define UNARY(name, op)                                                        \
    void gpu_launch_##name(struct launch_list *l, const struct gpu_call *c)    \
    {                                                                          \
        unary(l, c, op);                                                       \
    }
UNARY(scale, TEXT_SCALE)
UNARY(clamp, TEXT_CLAMP)
UNARY(sqr, TEXT_SQR)
UNARY(sqrt, TEXT_SQRT)
UNARY(exp, TEXT_EXP)
UNARY(tanh, TEXT_TANH)
UNARY(sigmoid, TEXT_SIGMOID)
UNARY(softplus, TEXT_SOFTPLUS)
UNARY(silu, TEXT_SILU)
UNARY(gelu, TEXT_GELU)
UNARY(gelu_erf, TEXT_GELU_ERF)
UNARY(relu, TEXT_RELU)
#undef UNARY

/* Sets the strides of operand `t` in elements, for the n_dim dimensions of the
 * result, the innermost first. A dimension of size 1 is broadcast and gets
 * stride 0. */
static void set_strides(int64_t *stride, const struct gpu_tensor *t, int n_dim)
{
    int64_t step = 1;

    for (int i = 0; i < n_dim; i++) {
        int64_t m = i < t->n_dim ? t->dim[t->n_dim - 1 - i] : 1;

        stride[i] = m == 1 ? 0 : step;
        step *= m;
    }
}

/* Merges adjacent dimensions that can be traversed as one in both operands, and
 * removes dimensions of size 1. */
static void fold_dims(struct binary_args *a)
{
    int n = 0;

    for (int i = 0; i < TEXT_DIM; i++) {
        int64_t m = a->dim[i], x = a->stride_x[i], y = a->stride_y[i];

        a->dim[i] = 1;
        a->stride_x[i] = a->stride_y[i] = 0;
        if (m == 1)
            continue;
        if (n > 0 && x == a->stride_x[n - 1] * a->dim[n - 1] &&
            y == a->stride_y[n - 1] * a->dim[n - 1]) {
            a->dim[n - 1] *= m;
            continue;
        }
        a->dim[n] = m;
        a->stride_x[n] = x;
        a->stride_y[n++] = y;
    }
}

static void binary(struct launch_list *l, const struct gpu_call *c, int32_t op)
{
    struct binary_args a = {.out = c->out.at,
                            .x = c->in[0].at,
                            .y = c->in[1].at,
                            .n = gpu_count(&c->out),
                            .op = op,
                            .format_x = gpu_format(c->in[0].format),
                            .format_y = gpu_format(c->in[1].format),
                            .lo = c->attr->lo,
                            .hi = c->attr->hi,
                            .alpha = c->attr->alpha};

    for (int i = 0; i < TEXT_DIM; i++)
        a.dim[i] = i < c->out.n_dim ? c->out.dim[c->out.n_dim - 1 - i] : 1;
    set_strides(a.stride_x, &c->in[0], c->out.n_dim);
    set_strides(a.stride_y, &c->in[1], c->out.n_dim);
    fold_dims(&a);
    gpu_list_add(l, GPU_binary, gpu_turns(a.n), &a);
}

#define BINARY(name, op)                                                       \
    void gpu_launch_##name(struct launch_list *l, const struct gpu_call *c)    \
    {                                                                          \
        binary(l, c, op);                                                      \
    }
BINARY(add, TEXT_ADD)
BINARY(sub, TEXT_SUB)
BINARY(mul, TEXT_MUL)
BINARY(div, TEXT_DIV)
BINARY(swiglu, TEXT_SWIGLU)
BINARY(geglu, TEXT_GEGLU)
BINARY(swiglu_oai, TEXT_SWIGLU_OAI)
#undef BINARY

void gpu_launch_cast(struct launch_list *l, const struct gpu_call *c)
{
    struct cast_args a = {.out = c->out.at,
                          .x = c->in[0].at,
                          .n = gpu_count(&c->out),
                          .from = gpu_format(c->in[0].format),
                          .to = gpu_format(c->out.format)};

    gpu_list_add(l, GPU_cast, gpu_turns(a.n), &a);
}
