/* Every kernel of cpu_ops.h but attention agrees with a naive evaluation in
 * double. Kernel sets, threads and other rows do not change its bits. */
#include "base/half.h"
#include "lib/cpu_call.h"

#include <math.h>

/* Checks |x - want| <= tol * (|want| + floor). */
static void close_to(double x, double want, double tol, double floor)
{
    if (isnan(want) ? isnan(x) : x == want)
        return;
    if (!(fabs(x - want) <= tol * (fabs(want) + floor)))
        fail_msg("%.9g instead of %.9g", x, want);
}

static int64_t count(const struct cpu_tensor *t)
{
    return cpu_count(t);
}

static void free_call(struct cpu_call *c)
{
    for (int i = 0; i < GRAPH_MAX_IN; i++)
        free(c->in[i].data);
    free(c->out.data);
}

/* ---- elementwise --------------------------------------------------------- */

/* 0.5 x (1 + tanh z), without losing digits where tanh z is near -1. */
static double ref_gelu(double x)
{
    double z = sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);

    return x / (1 + exp(-2 * z));
}

static double ref_unary(enum kernel kernel, double x,
                        const struct graph_attr *a)
{
    switch (kernel) {
    case KERNEL_scale:
        return x * (double)a->scale;
    case KERNEL_clamp:
        return x < (double)a->lo   ? (double)a->lo
               : x > (double)a->hi ? (double)a->hi
                                   : x;
    case KERNEL_sqr:
        return x * x;
    case KERNEL_sqrt:
        return sqrt(x);
    case KERNEL_exp:
        return exp(x);
    case KERNEL_tanh:
        return tanh(x);
    case KERNEL_sigmoid:
        return 1 / (1 + exp(-x));
    case KERNEL_softplus:
        return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case KERNEL_silu:
        return x / (1 + exp(-x));
    case KERNEL_gelu:
        return ref_gelu(x);
    case KERNEL_gelu_erf:
        return 0.5 * x * erfc(-x / sqrt(2));
    case KERNEL_relu:
        return x > 0 ? x : 0;
    default:
        fail_msg("%s has no formula in ref_unary", kernel_name(kernel));
        return 0;
    }
}

/* Tolerances in units of 2^-24, half a unit of the last place (for subnormal
 * values, of the smallest normal number). Exact rounding is 1; exp, tanh and
 * divisions by 1 + exp are within two units. GELU's argument, at most 40,
 * carries its own rounding into an exponent. */
static const struct {
    enum kernel kernel;
    double tol;
} unaries[] = {
    {KERNEL_scale, 1},   {KERNEL_clamp, 0},     {KERNEL_sqr, 1},
    {KERNEL_sqrt, 1},    {KERNEL_exp, 2},       {KERNEL_tanh, 4},
    {KERNEL_sigmoid, 4}, {KERNEL_softplus, 5},  {KERNEL_silu, 4},
    {KERNEL_gelu, 250},  {KERNEL_gelu_erf, 14}, {KERNEL_relu, 0},
};

/* The rows of kernels.def from scale to relu are the unary kernels. */
TEST(cpu_ops_unary_are_all_compared_with_double)
{
    for (int k = KERNEL_scale; k <= KERNEL_relu; k++) {
        size_t i = 0;

        while (i < sizeof(unaries) / sizeof(unaries[0]) &&
               (int)unaries[i].kernel != k)
            i++;
        if (i == sizeof(unaries) / sizeof(unaries[0]))
            fail_msg("%s has no row in unaries", kernel_name((enum kernel)k));
    }
}

TEST(cpu_ops_unary_equal_double_in_every_kernel_set)
{
    static const float special[] = {0.0f,    -0.0f, 1.0f,   -1.0f,   1e-30f,
                                    -1e-30f, 88.7f, -87.4f, -100.0f, -103.97f,
                                    -200.f,  89.0f, 1e-4f,  -1e-4f,  0.3466f};
    enum { N_SPECIAL = sizeof(special) / sizeof(special[0]) };
    const struct graph_attr attr = {.scale = 0.37f, .lo = -1.5f, .hi = 2.25f};
    uint64_t seed = test_seed();

    for (size_t k = 0; k < sizeof(unaries) / sizeof(unaries[0]); k++) {
        const int64_t dim[] = {13, 331};
        struct cpu_call c = {.n_in = 1, .attr = &attr};
        enum kernel kernel = unaries[k].kernel;

        c.in[0] = call_tensor(PL_F32, 2, dim, 20.0f, &seed);
        c.out = call_tensor(PL_F32, 2, dim, 1.0f, &seed);
        memcpy(c.in[0].data, special, sizeof(special));
        for (int64_t i = N_SPECIAL; i < count(&c.out) / 2; i++)
            ((float *)c.in[0].data)[i] *= 0.05f;
        for (int64_t i = 0; kernel == KERNEL_sqrt && i < count(&c.out); i++)
            ((float *)c.in[0].data)[i] = fabsf(((float *)c.in[0].data)[i]);
        call_all(kernel, &c, (size_t)count(&c.out) * 4);
        for (int64_t i = 0; i < count(&c.out); i++)
            close_to(call_value(&c.out, i),
                     (double)(float)ref_unary(kernel, call_value(&c.in[0], i),
                                              &attr),
                     unaries[k].tol * 0x1p-24, 0x1p-102);
        free_call(&c);
    }
}

TEST(cpu_ops_unary_keep_nan_and_limits)
{
    static const float in[] = {NAN, INFINITY, -INFINITY};
    static const struct {
        enum kernel kernel;
        float out[3];
    } rows[] = {
        {KERNEL_exp, {NAN, INFINITY, 0}},
        {KERNEL_tanh, {NAN, 1, -1}},
        {KERNEL_sigmoid, {NAN, 1, 0}},
        {KERNEL_gelu_erf, {NAN, INFINITY, 0}},
        {KERNEL_relu, {NAN, INFINITY, 0}},
        {KERNEL_softplus, {NAN, INFINITY, 0}},
        {KERNEL_clamp, {NAN, 2, -2}},
    };
    const struct graph_attr attr = {.lo = -2, .hi = 2};
    float out[3];

    for (size_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
        for (int f = 0; f < KERNEL_SET_COUNT; f++) {
            struct cpu_call c = {.n_in = 1, .attr = &attr};

            if (!kernel_set_runs(f))
                continue;
            c.in[0] = c.out =
                (struct cpu_tensor){.format = PL_F32, .n_dim = 1, .dim = {3}};
            c.in[0].data = (void *)(uintptr_t)in;
            c.out.data = out;
            call_run(f, rows[k].kernel, c, 1);
            for (int i = 0; i < 3; i++)
                close_to((double)out[i], (double)rows[k].out[i], 0, 0);
        }
    }
}

static double ref_binary(enum kernel kernel, double x, double y,
                         const struct graph_attr *a)
{
    double hi = (double)a->hi;

    switch (kernel) {
    case KERNEL_add:
        return x + y;
    case KERNEL_sub:
        return x - y;
    case KERNEL_mul:
        return x * y;
    case KERNEL_div:
        return x / y;
    case KERNEL_swiglu:
        return x / (1 + exp(-x)) * y;
    case KERNEL_geglu:
        return ref_gelu(x) * y;
    default:
        x = x < hi ? x : hi;
        y = y < -hi ? -hi : y > hi ? hi : y;
        return (y + 1) * x / (1 + exp((double)-a->alpha * x));
    }
}

TEST(cpu_ops_binary_broadcast_as_numpy)
{
    static const struct {
        int n[2];
        int64_t dim[2][4];
    } shapes[] = {
        {{2, 2}, {{7, 130}, {7, 130}}},
        {{2, 1}, {{7, 130}, {130}}},
        {{1, 3}, {{33}, {2, 5, 33}}},
        {{3, 3}, {{4, 3, 19}, {4, 3, 1}}},
        {{3, 3}, {{4, 1, 19}, {1, 3, 19}}},
        {{4, 4}, {{2, 3, 4, 5}, {2, 1, 4, 1}}},
        {{4, 1}, {{2, 3, 1, 70}, {1}}},
        {{2, 1}, {{1, 1100}, {1100}}},
        {{2, 2}, {{0, 9}, {1, 9}}},
        {{3, 2}, {{5, 2, 1}, {2, 1}}},
    };
    static const enum kernel kernels[] = {
        KERNEL_add,    KERNEL_sub,   KERNEL_mul,       KERNEL_div,
        KERNEL_swiglu, KERNEL_geglu, KERNEL_swiglu_oai};
    static const pl_format formats[] = {PL_F32, PL_F16, PL_BF16};
    const struct graph_attr attr = {.lo = -1, .hi = 1, .alpha = 1.702f};
    uint64_t seed = test_seed();

    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++) {
        for (int k = 0; k < 7; k++) {
            const int *nd = shapes[s].n;
            struct cpu_call c = {.n_in = 2, .attr = &attr};
            int n = nd[0] > nd[1] ? nd[0] : nd[1];
            int64_t dim[4];

            for (int o = 0; o < 2; o++)
                c.in[o] = call_tensor(o == 1 ? formats[(s + k) % 3] : PL_F32,
                                      nd[o], shapes[s].dim[o], 2.0f, &seed);
            for (int i = 0; i < n; i++) {
                int64_t a = i < n - nd[0] ? 1 : c.in[0].dim[i - n + nd[0]];
                int64_t b = i < n - nd[1] ? 1 : c.in[1].dim[i - n + nd[1]];

                dim[i] = a == 1 ? b : a;
            }
            c.out = call_tensor(PL_F32, n, dim, 1.0f, &seed);
            call_all(kernels[k], &c, (size_t)count(&c.out) * 4);
            for (int64_t i = 0; i < count(&c.out); i++) {
                int64_t at[2] = {0, 0}, step[2] = {1, 1}, rest = i;

                for (int j = 0; j < n; j++) {
                    int64_t x = rest % dim[n - 1 - j];

                    rest /= dim[n - 1 - j];
                    for (int o = 0; o < 2; o++) {
                        int64_t m = j < nd[o] ? c.in[o].dim[nd[o] - 1 - j] : 1;

                        at[o] += m == 1 ? 0 : x * step[o];
                        step[o] *= m;
                    }
                }
                close_to(call_value(&c.out, i),
                         ref_binary(kernels[k], call_value(&c.in[0], at[0]),
                                    call_value(&c.in[1], at[1]), &attr),
                         k < 4 ? 0x1p-24 : 0x1p-20, 0);
            }
            free_call(&c);
        }
    }
}

TEST(cpu_ops_cast_rounds_to_nearest_even)
{
    static const pl_format formats[] = {PL_F32, PL_F16, PL_BF16};
    uint64_t seed = test_seed();
    const int64_t dim[] = {1111};

    for (int from = 0; from < 3; from++) {
        for (int to = 0; to < 3; to++) {
            struct cpu_call c = {.n_in = 1};

            c.in[0] = call_tensor(formats[from], 1, dim, 3.0f, &seed);
            /* values that are subnormal in F16 */
            for (int i = 0; from == 0 && i < 40; i++)
                ((float *)c.in[0].data)[i] *= 1e-5f;
            c.out = call_tensor(formats[to], 1, dim, 1.0f, &seed);
            call_all(KERNEL_cast, &c, 1111 * (to == 0 ? 4 : 2));
            for (int64_t i = 0; i < 1111; i++) {
                float x = (float)call_value(&c.in[0], i);

                if (formats[to] == PL_F16)
                    x = f16_to_f32(f32_to_f16(x));
                else if (formats[to] == PL_BF16)
                    x = bf16_to_f32(f32_to_bf16(x));
                assert_true((double)x == call_value(&c.out, i));
            }
            free_call(&c);
        }
    }
}

/* ---- rows ---------------------------------------------------------------- */

/* The specified order: 64 fused sums by i mod 64, four of them added for each
 * of 16 lanes, then the lanes' tree. */
static float spec_sum_squares(const float *x, int64_t n)
{
    float s[64] = {0};

    for (int64_t i = 0; i < n; i++)
        s[i % 64] = fmaf(x[i], x[i], s[i % 64]);
    for (int i = 0; i < 16; i++)
        s[i] = (s[i] + s[i + 16]) + (s[i + 32] + s[i + 48]);
    for (int w = 8; w > 0; w /= 2) {
        for (int i = 0; i < w; i++)
            s[i] = s[i] + s[i + w];
    }
    return s[0];
}

TEST(cpu_ops_rms_norm_equals_double_and_its_order)
{
    static const pl_format formats[] = {PL_F32, PL_F16, PL_BF16};
    const struct graph_attr attr = {.eps = 1e-5f};
    uint64_t seed = test_seed();

    for (int64_t d = 1; d < 300; d += d < 70 ? 1 : 37) {
        const int64_t dim[] = {3, 2, d};
        struct cpu_call c = {.n_in = 2, .attr = &attr};

        c.in[0] = call_tensor(PL_F32, 3, dim, 4.0f, &seed);
        if (d % 4 != 0)
            c.in[1] = call_tensor(formats[d % 3], 1, &d, 2.0f, &seed);
        c.out = call_tensor(PL_F32, 3, dim, 1.0f, &seed);
        call_all(KERNEL_rms_norm, &c, (size_t)(6 * d * 4));
        for (int64_t r = 0; r < 6; r++) {
            const float *x = (float *)c.in[0].data + r * d;
            float f = spec_sum_squares(x, d) / (float)d;
            double s = 0;

            f = 1.0f / sqrtf(f + attr.eps);
            for (int64_t i = 0; c.in[1].data == NULL && i < d; i++)
                assert_true(((float *)c.out.data)[r * d + i] == x[i] * f);
            for (int64_t i = 0; i < d; i++)
                s += pow(call_value(&c.in[0], r * d + i), 2);
            s = 1 / sqrt(s / (double)d + (double)attr.eps);
            for (int64_t i = 0; i < d; i++)
                close_to(call_value(&c.out, r * d + i),
                         call_value(&c.in[0], r * d + i) * s *
                             (d % 4 != 0 ? call_value(&c.in[1], i) : 1),
                         0x1p-21, 0);
        }
        free_call(&c);
    }
}

/* Adds up x[n], or the squares of x minus `mean`, in the order of
 * spec_sum_squares(). */
static float spec_sum(const float *x, int64_t n, float mean, bool squares)
{
    float s[64] = {0};

    for (int64_t i = 0; i < n; i++)
        s[i % 64] = squares ? fmaf(x[i] - mean, x[i] - mean, s[i % 64])
                            : s[i % 64] + x[i];
    for (int i = 0; i < 16; i++)
        s[i] = (s[i] + s[i + 16]) + (s[i + 32] + s[i + 48]);
    for (int w = 8; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            s[i] = s[i] + s[i + w];
    return s[0];
}

/* A row's values lie around 100, so that the mean of the squares minus the
 * square of the mean would have no precise digit. */
TEST(cpu_ops_layer_norm_equals_double_and_its_order)
{
    static const pl_format formats[] = {PL_F32, PL_F16, PL_BF16};
    const struct graph_attr attr = {.eps = 1e-3f};
    uint64_t seed = test_seed();

    for (int64_t d = 1; d < 300; d += d < 70 ? 1 : 37) {
        const int64_t dim[] = {3, 2, d};
        const bool weighted = d % 4 != 0;
        struct cpu_call c = {.n_in = 2, .attr = &attr};

        c.in[0] = call_tensor(PL_F32, 3, dim, 4.0f, &seed);
        for (int64_t i = 0; i < 6 * d; i++)
            ((float *)c.in[0].data)[i] += 100;
        if (weighted)
            c.in[1] = call_tensor(formats[d % 3], 1, &d, 2.0f, &seed);
        c.out = call_tensor(PL_F32, 3, dim, 1.0f, &seed);
        call_all(KERNEL_layer_norm, &c, (size_t)(6 * d * 4));
        for (int64_t r = 0; r < 6; r++) {
            const float *x = (float *)c.in[0].data + r * d;
            const float *out = (float *)c.out.data + r * d;
            float mean = spec_sum(x, d, 0, false) / (float)d;
            float f = spec_sum(x, d, mean, true) / (float)d;
            double m = 0, s = 0;

            f = 1.0f / sqrtf(f + attr.eps);
            for (int64_t i = 0; !weighted && i < d; i++)
                assert_true(out[i] == (x[i] - mean) * f);
            for (int64_t i = 0; i < d; i++)
                m += (double)x[i] / (double)d;
            for (int64_t i = 0; i < d; i++)
                s += pow((double)x[i] - m, 2);
            s = 1 / sqrt(s / (double)d + (double)attr.eps);
            /* The mean, near 100, is rounded several times. */
            for (int64_t i = 0; i < d; i++) {
                double w = weighted ? call_value(&c.in[1], i) : 1;

                close_to((double)out[i], ((double)x[i] - m) * s * w, 0x1p-21,
                         104 * s * fabs(w));
            }
        }
        free_call(&c);
    }
}

TEST(cpu_ops_softmax_equals_double)
{
    uint64_t seed = test_seed();

    for (int64_t d = 1; d < 90; d++) {
        const int64_t dim[] = {5, d};
        struct cpu_call c = {.n_in = 1};

        c.in[0] = call_tensor(PL_F32, 2, dim, 8.0f, &seed);
        c.out = call_tensor(PL_F32, 2, dim, 1.0f, &seed);
        call_all(KERNEL_softmax, &c, (size_t)(5 * d * 4));
        for (int64_t r = 0; r < 5; r++) {
            double s = 0;

            for (int64_t i = 0; i < d; i++)
                s += exp(call_value(&c.in[0], r * d + i));
            for (int64_t i = 0; i < d; i++)
                close_to(call_value(&c.out, r * d + i),
                         exp(call_value(&c.in[0], r * d + i)) / s, 0x1p-20, 0);
        }
        free_call(&c);
    }
}

static void ref_rope(const struct graph_attr *a, const struct cpu_tensor *f,
                     int64_t pos, const float *x, double *out, int64_t d)
{
    int n = a->n_rot;

    for (int64_t i = 0; i < d; i++)
        out[i] = (double)x[i];
    for (int i = 0; i < n / 2; i++) {
        int p = a->neox ? i : 2 * i;
        int q = a->neox ? i + n / 2 : 2 * i + 1;
        double w = pow((double)a->base, -2.0 * i / n) /
                   (f->data != NULL ? call_value(f, i) : 1.0);
        double fs = (double)a->freq_scale;
        double temp = 1, c, s;

        if (a->window > 0)
            temp += (double)a->scale * log((double)(pos / a->window) + 1);

        if (a->yarn) {
            double y = (double)a->yarn_high - (double)a->yarn_low;
            double m = (i - (double)a->yarn_low) / (y > 0.001 ? y : 0.001);

            m = 1 - fmin(fmax(m, 0), 1);
            w = w * fs * (1 - m) + w * m;
        } else {
            w = w * fs;
        }
        w *= (double)(a->back ? a->start - pos : pos - a->start);
        c = cos(w) * (double)a->mscale * temp;
        s = sin(w) * (double)a->mscale * temp;
        out[p] = (double)x[p] * c - (double)x[q] * s;
        out[q] = (double)x[p] * s + (double)x[q] * c;
    }
}

TEST(cpu_ops_rope_equals_double_at_any_position)
{
    static const struct graph_attr attrs[] = {
        {.base = 10000, .freq_scale = 1, .mscale = 1, .n_rot = 64},
        {.base = 10000, .freq_scale = 1, .mscale = 1, .n_rot = 64, .neox = 1},
        {.base = 1e6f, .freq_scale = 0.25f, .mscale = 1, .n_rot = 40},
        {.base = 5e5f, .freq_scale = 1, .mscale = 1, .n_rot = 6, .neox = 1},
        {.base = 150000,
         .freq_scale = 0.03125f,
         .mscale = 1.3466f,
         .n_rot = 64,
         .neox = 1,
         .yarn = 1,
         .yarn_low = 8,
         .yarn_high = 18},
        {.base = 10000,
         .freq_scale = 0.25f,
         .mscale = 1.1386f,
         .n_rot = 32,
         .yarn = 1,
         .yarn_low = 3,
         .yarn_high = 3},
        {.base = 1e6f,
         .freq_scale = 1,
         .mscale = 1.25f,
         .n_rot = 64,
         .scale = 0.1f,
         .window = 100},
        {.base = 160000,
         .freq_scale = 1,
         .mscale = 1,
         .n_rot = 64,
         .start = 127,
         .back = 1},
        {.base = 160000, .freq_scale = 1, .mscale = 1, .n_rot = 6, .start = 3},
    };
    uint64_t seed = test_seed();

    for (size_t k = 0; k < 2 * sizeof attrs / sizeof *attrs; k++) {
        const int64_t dim[] = {9, 3, 70};
        const int64_t n_pos = 9;
        struct graph_attr a = attrs[k / 2];
        int64_t half = a.n_rot / 2;
        struct cpu_call c = {.n_in = 3, .attr = &a};
        double want[70];

        c.in[0] = call_tensor(PL_F32, 3, dim, 1.0f, &seed);
        c.in[1] = call_tensor(PL_I32, 1, &n_pos, 1.0f, &seed);
        for (int i = 0; i < 9; i++) /* positions up to a million */
            ((int32_t *)c.in[1].data)[i] = (1 << (20 * i / 8)) - 1;
        if (k % 2 == 1) {
            c.in[2] = call_tensor(PL_F32, 1, &half, 1.0f, &seed);
            for (int64_t i = 0; i < half; i++)
                ((float *)c.in[2].data)[i] += 2.0f;
        }
        c.out = call_tensor(PL_F32, 3, dim, 1.0f, &seed);
        call_all(KERNEL_rope, &c, (size_t)count(&c.out) * 4);
        for (int64_t r = 0; r < 27; r++) {
            ref_rope(&a, &c.in[2], ((int32_t *)c.in[1].data)[r / 3],
                     (float *)c.in[0].data + r * 70, want, 70);
            for (int i = 0; i < 70; i++)
                close_to(call_value(&c.out, r * 70 + i), want[i], 2e-7, 1.5);
        }
        /* the result overwrites the operand */
        for (int f = 0; f < KERNEL_SET_COUNT; f++) {
            struct cpu_call in = c;

            if (!kernel_set_runs(f))
                continue;
            in.in[0].data = malloc((size_t)count(&c.out) * 4);
            memcpy(in.in[0].data, c.in[0].data, (size_t)count(&c.out) * 4);
            in.out.data = in.in[0].data;
            call_run(f, KERNEL_rope, in, 2);
            assert_memory_equal(in.out.data, c.out.data,
                                (size_t)count(&c.out) * 4);
            free(in.in[0].data);
        }
        free_call(&c);
    }
}

/* Every row alone gives what it gives together with others. */
static void rows_alone(enum kernel kernel, const struct cpu_call *c,
                       int64_t n_tok, const bool *by_token)
{
    int64_t width = count(&c->out) / n_tok;

    for (int f = 0; f < KERNEL_SET_COUNT; f++) {
        for (int64_t t = 0; kernel_set_runs(f) && t < n_tok; t++) {
            struct cpu_call one = *c;

            for (int i = 0; i < c->n_in; i++) {
                if (!by_token[i] || c->in[i].data == NULL)
                    continue;
                one.in[i].dim[0] = 1;
                one.in[i].data =
                    (char *)c->in[i].data + t * (count(&c->in[i]) / n_tok) * 4;
            }
            one.out.dim[0] = 1;
            one.out.data = malloc((size_t)width * 4);
            call_run(f, kernel, one, 1 + (int)(t % 3));
            assert_memory_equal(one.out.data,
                                (char *)c->out.data + t * width * 4,
                                (size_t)width * 4);
            free(one.out.data);
        }
    }
}

TEST(cpu_ops_rows_do_not_depend_on_company)
{
    static const bool by_token[4] = {true, false, false, false};
    static const bool both[4] = {true, true, false, false};
    const struct graph_attr attr = {
        .eps = 1e-6f, .base = 1e4f, .n_rot = 48, .n_used = 5, .normalise = 1};
    uint64_t seed = test_seed();

    for (int64_t n = 1; n <= 33; n++) {
        const int64_t dim[] = {n, 2, 67};
        const int64_t flat[] = {n, 67};
        const int64_t used[] = {n, 5};
        const int64_t d = 67;
        struct cpu_call c = {.n_in = 2, .attr = &attr};

        c.in[0] = call_tensor(PL_F32, 3, dim, 2.0f, &seed);
        c.in[1] = call_tensor(PL_F32, 1, &d, 2.0f, &seed);
        c.out = call_tensor(PL_F32, 3, dim, 2.0f, &seed);
        call_run(KERNEL_SET_GENERIC, KERNEL_rms_norm, c, 1);
        rows_alone(KERNEL_rms_norm, &c, n, by_token);
        call_run(KERNEL_SET_GENERIC, KERNEL_layer_norm, c, 1);
        rows_alone(KERNEL_layer_norm, &c, n, by_token);
        call_run(KERNEL_SET_GENERIC, KERNEL_mul, c, 1);
        rows_alone(KERNEL_mul, &c, n, by_token);
        call_run(KERNEL_SET_GENERIC, KERNEL_softmax, c, 1);
        rows_alone(KERNEL_softmax, &c, n, by_token);
        free(c.in[1].data);
        c.in[1] = call_tensor(PL_I32, 1, &n, 1.0f, &seed);
        for (int64_t i = 0; i < n; i++)
            ((int32_t *)c.in[1].data)[i] = (int32_t)(1000 * i);
        call_run(KERNEL_SET_GENERIC, KERNEL_rope, c, 1);
        rows_alone(KERNEL_rope, &c, n, both);
        free_call(&c);

        c.in[0] = call_tensor(PL_F32, 2, flat, 2.0f, &seed);
        c.in[1] = (struct cpu_tensor){0};
        c.out = call_tensor(PL_I32, 2, used, 1.0f, &seed);
        call_run(KERNEL_SET_GENERIC, KERNEL_router_topk, c, 1);
        rows_alone(KERNEL_router_topk, &c, n, by_token);
        c.in[1] = c.out;
        c.out = call_tensor(PL_F32, 2, used, 1.0f, &seed);
        call_run(KERNEL_SET_GENERIC, KERNEL_router_weights, c, 1);
        rows_alone(KERNEL_router_weights, &c, n, both);
        free_call(&c);
    }
}

/* ---- routers ------------------------------------------------------------- */

static void ref_scores(const struct graph_attr *a, const float *x, int64_t n,
                       double *s)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        s[i] = a->gating == PL_GATING_SIGMOID   ? 1 / (1 + exp(-(double)x[i]))
               : a->gating == PL_GATING_SOFTMAX ? exp((double)x[i])
               : a->gating == PL_GATING_SQRT_SOFTPLUS
                   ? sqrt(log1p(exp((double)x[i])))
                   : (double)x[i];
        sum += s[i];
    }
    for (int64_t i = 0; a->gating == PL_GATING_SOFTMAX && i < n; i++)
        s[i] /= sum;
}

TEST(cpu_ops_router_follows_the_written_rules)
{
    enum { E = 24, U = 5, N = 11 };
    uint64_t seed = test_seed();

    for (int k = 0; k < 4 * 2 * 2 * 2; k++) {
        struct graph_attr a = {.gating = k % 4,
                               .normalise = k / 4 % 2,
                               .n_used = U,
                               .n_group = k / 8 % 2 ? 4 : 0,
                               .n_group_used = 2,
                               .scale = k % 5 == 0 ? 2.5f : 0};
        const int64_t in[] = {N, E}, used[] = {N, U}, e = E;
        struct cpu_call c = {.n_in = 2, .attr = &a};
        struct cpu_call w = {.n_in = 2, .attr = &a};

        c.in[0] = call_tensor(PL_F32, 2, in, 3.0f, &seed);
        if (k / 16 == 1)
            c.in[1] = call_tensor(PL_F32, 1, &e, 0.5f, &seed);
        c.out = call_tensor(PL_I32, 2, used, 1.0f, &seed);
        call_all(KERNEL_router_topk, &c, N * U * 4);
        w.in[0] = c.in[0];
        w.in[1] = c.out;
        w.out = call_tensor(PL_F32, 2, used, 1.0f, &seed);
        call_all(KERNEL_router_weights, &w, N * U * 4);
        for (int t = 0; t < N; t++) {
            const float *x = (float *)c.in[0].data + t * E;
            const int32_t *id = (int32_t *)c.out.data + t * U;
            double score[E], sel[E], want[U], group[4];
            double sum = 0, soft = 0;

            ref_scores(&a, x, E, score);
            for (int i = 0; i < E; i++)
                sel[i] = score[i] +
                         (c.in[1].data != NULL ? call_value(&c.in[1], i) : 0);
            for (int g = 0; a.n_group > 0 && g < 4; g++) {
                double best = -INFINITY;

                for (int i = 6 * g; i < 6 * g + 6; i++) {
                    if (a.gating == PL_GATING_SOFTMAX)
                        best = fmax(best, sel[i]);
                    for (int j = 6 * g; a.gating != PL_GATING_SOFTMAX && j < i;
                         j++)
                        best = fmax(best, sel[i] + sel[j]);
                }
                group[g] = best;
            }
            for (int g = 0; a.n_group > 0 && g < 4; g++) {
                int better = 0;

                for (int o = 0; o < 4; o++)
                    better += group[o] > group[g];
                for (int i = 6 * g; better >= 2 && i < 6 * g + 6; i++)
                    sel[i] = -INFINITY;
            }
            for (int i = 0; i < U; i++) {
                for (int j = 0; j < E; j++)
                    assert_true(sel[j] <= sel[id[i]] + 1e-7);
                sel[id[i]] = -INFINITY;
                want[i] = score[id[i]];
                soft += exp(want[i]);
            }
            for (int i = 0; i < U; i++) {
                if (a.gating == PL_GATING_SOFTMAX_SELECTED)
                    want[i] = exp(want[i]) / soft;
                sum += want[i];
            }
            for (int i = 0; i < U; i++)
                close_to(call_value(&w.out, t * U + i),
                         want[i] / (a.normalise ? fmax(sum, 0x1p-14) : 1) *
                             (a.scale != 0 ? 2.5 : 1),
                         1e-6, 0);
        }
        free(w.out.data);
        free_call(&c);
    }
}

TEST(cpu_ops_router_ties_go_to_the_lowest_id)
{
    static const int32_t want[] = {3, 1, 2, 5};
    float logit[] = {0, 1, 1, 2, 0, 1};
    const struct graph_attr a = {.gating = PL_GATING_SOFTMAX_SELECTED,
                                 .n_used = 4};
    struct cpu_call c = {.n_in = 1, .attr = &a};
    int32_t id[4];

    c.in[0] = (struct cpu_tensor){logit, PL_F32, 2, {1, 6}, NULL};
    c.out = (struct cpu_tensor){id, PL_I32, 2, {1, 4}, NULL};
    call_all(KERNEL_router_topk, &c, sizeof(id));
    assert_memory_equal(id, want, sizeof(want));
    for (int i = 0; i < 6; i++)
        logit[i] = NAN; /* whatever the logits, ids must stay in range */
    call_all(KERNEL_router_topk, &c, sizeof(id));
    for (int i = 0; i < 4; i++)
        assert_in_range(id[i], 0, 5);
}

/* ---- sum ----------------------------------------------------------------- */

TEST(cpu_ops_sum_adds_ranks_along_the_tree)
{
    /* Rows 0..8 of a dimension of 11: rank 0 has rows 0, 1, 5; rank 1 row 2;
     * rank 2 rows 3, 4, 6, 7, 8. Ranks 0 and 1 are one complete subtree. */
    static const struct rank_span span[] = {
        {0, 0, 2, 0}, {2, 2, 1, 1}, {3, 3, 2, 2}, {6, 5, 1, 0}, {7, 6, 3, 2}};
    static const int owner[] = {0, 0, 1, 2, 2, 0, 2, 2, 2};
    static const struct tree_addend item[] = {{0, 0}, {1, 1}, {2, 0}};
    static const struct tree_addend one[] = {{0, 0}};
    const int64_t in[] = {3, 9, 37}, out[] = {2, 3, 37};
    uint64_t seed = test_seed();
    struct cpu_call c = {.n_in = 1,
                         .span = span,
                         .n_span = 5,
                         .tree = {3, 2, item, 2},
                         .out_stride = 3 * 37 * 4};
    float *x, *y;

    c.in[0] = call_tensor(PL_F32, 3, in, 1.0f, &seed);
    c.out = call_tensor(PL_F32, 3, out, 1.0f, &seed);
    x = c.in[0].data;
    y = c.out.data;
    c.out.n_dim = 2;
    c.out.dim[0] = 3;
    c.out.dim[1] = 37;
    call_all(KERNEL_sum, &c, 2 * 3 * 37 * 4);
    for (int i = 0; i < 3 * 37; i++) {
        float s[3] = {0, 0, 0};

        for (int u = 0; u < 9; u++)
            s[owner[u]] += x[i / 37 * 9 * 37 + u * 37 + i % 37];
        assert_true(y[i] == s[0] + s[1]);
        assert_true(y[3 * 37 + i] == s[2]);
    }
    c.tree = (struct rank_tree){1, 1, one, 1};
    c.n_span = 0;
    call_all(KERNEL_sum, &c, 3 * 37 * 4);
    for (int i = 0; i < 3 * 37; i++) {
        float s = 0;

        for (int u = 0; u < 9; u++)
            s += x[i / 37 * 9 * 37 + u * 37 + i % 37];
        assert_true(y[i] == s);
    }
    free_call(&c);
}

/* ---- moves --------------------------------------------------------------- */

TEST(cpu_ops_permute_follows_its_definition)
{
    static const int64_t dim[] = {3, 4, 5, 6};
    uint64_t seed = test_seed();

    for (int k = 0; k < 256; k++) {
        int p[4] = {k & 3, k >> 2 & 3, k >> 4 & 3, k >> 6 & 3};
        struct graph_attr a = {
            .perm0 = p[0], .perm1 = p[1], .perm2 = p[2], .perm3 = p[3]};
        struct cpu_call c = {.n_in = 1, .attr = &a};
        int64_t out[4], i[4];

        if ((1 << p[0] | 1 << p[1] | 1 << p[2] | 1 << p[3]) != 15)
            continue;
        for (int j = 0; j < 4; j++)
            out[j] = dim[p[j]];
        c.in[0] = call_tensor(k % 2 ? PL_F16 : PL_F32, 4, dim, 1.0f, &seed);
        c.out = call_tensor(c.in[0].format, 4, out, 1.0f, &seed);
        call_all(KERNEL_permute, &c, 360 * (k % 2 ? 2 : 4));
        for (int n = 0; n < 360; n++) {
            i[p[0]] = n / (out[1] * out[2] * out[3]);
            i[p[1]] = n / (out[2] * out[3]) % out[1];
            i[p[2]] = n / out[3] % out[2];
            i[p[3]] = n % out[3];
            assert_true(call_value(&c.out, n) ==
                        call_value(&c.in[0],
                                   ((i[0] * 4 + i[1]) * 5 + i[2]) * 6 + i[3]));
        }
        free_call(&c);
    }
}

TEST(cpu_ops_slices_concatenate_to_the_whole)
{
    static const int64_t dim[] = {3, 10, 7};
    /* the second of the three operands is empty */
    static const int64_t cut[] = {0, 1, 1, 3};
    uint64_t seed = test_seed();

    for (int axis = 0; axis < 3; axis++) {
        struct graph_attr a = {.axis = axis};
        struct cpu_call s = {.n_in = 1, .attr = &a};
        struct cpu_call c = {.n_in = 4, .attr = &a};

        s.in[0] = call_tensor(PL_F32, 3, dim, 1.0f, &seed);
        c.out = call_tensor(PL_F32, 3, dim, 1.0f, &seed);
        for (int i = 0; i < 4; i++) {
            int64_t part[] = {3, 10, 7};

            a.start = cut[i];
            part[axis] = (i < 3 ? cut[i + 1] : dim[axis]) - cut[i];
            c.in[i] = call_tensor(PL_F32, 3, part, 1.0f, &seed);
            s.out = c.in[i];
            call_all(KERNEL_slice, &s, (size_t)count(&s.out) * 4);
        }
        call_all(KERNEL_concat, &c, 210 * 4);
        assert_memory_equal(c.out.data, s.in[0].data, 210 * 4);
        s.out = c.out;
        call_all(KERNEL_contiguous, &s, 210 * 4);
        assert_memory_equal(s.out.data, s.in[0].data, 210 * 4);
        free(s.in[0].data);
        free_call(&c);
    }
}
