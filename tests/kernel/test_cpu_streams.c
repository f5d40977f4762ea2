/* Hyper-connections: the kernels sinkhorn and mix_streams against their
 * definitions in double precision. Kernel sets, threads and GPUs' kernels give
 * the same bits (lib/cpu_call.h). */
#include "lib/cpu_call.h"

#include <math.h>

enum { MAX_STREAM = 8, MAX_WEIGHT = MAX_STREAM * (MAX_STREAM + 2) };

static void divide(double *c, int n, int step, double eps)
{
    double sum = eps;

    for (int k = 0; k < n; k++)
        sum += c[k * step];
    for (int k = 0; k < n; k++)
        c[k * step] /= sum;
}

/* Computes the weights of row r. */
static void weights(const struct cpu_call *c, int r, int n, double *y)
{
    const int d = n * (n + 2);
    const double eps = (double)c->attr->eps;
    double *m = y + 2 * n;

    for (int i = 0; i < d; i++)
        y[i] = (double)call_value(&c->in[0], r * d + i) *
                   (double)call_value(&c->in[1], i < 2 * n ? i / n : 2) +
               (double)call_value(&c->in[2], i);
    for (int i = 0; i < 2 * n; i++)
        y[i] = i < n ? 1 / (1 + exp(-y[i])) + eps : 2 / (1 + exp(-y[i]));
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++)
            m[i * n + k] = exp(m[i * n + k]);
        divide(m + i * n, n, 1, 0);
        for (int k = 0; k < n; k++)
            m[i * n + k] += eps;
    }
    for (int i = 0; i < c->attr->n_iter; i++) {
        for (int k = 0; i > 0 && k < n; k++)
            divide(m + k * n, n, 1, eps);
        for (int k = 0; k < n; k++)
            divide(m + k, n, n, eps);
    }
}

static void free_operands(struct cpu_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        free(c->in[i].data);
    free(c->out.data);
}

/* All numbers of streams, each format of scale and base. */
TEST(cpu_sinkhorn_balances_rows_and_columns)
{
    static const pl_format formats[] = {PL_F32, PL_F16, PL_BF16};
    uint64_t seed = test_seed();

    for (int i = 0; i < 2 * MAX_STREAM; i++) {
        const int n = i / 2 + 1, d = n * (n + 2);
        const struct graph_attr a = {.eps = i % 2 ? 1e-6f : 0.01f,
                                     .n_iter = 1 + i % 5};
        struct cpu_call c = {.n_in = 3, .attr = &a};
        double want[MAX_WEIGHT];

        c.in[0] = call_tensor(PL_F32, 2, (const int64_t[]){5, d}, 4, &seed);
        c.in[1] =
            call_tensor(formats[i % 3], 1, (const int64_t[]){3}, 2, &seed);
        c.in[2] = call_tensor(formats[(i + 1) % 3], 1, (const int64_t[]){d}, 2,
                              &seed);
        c.out = call_tensor(PL_F32, 2, (const int64_t[]){5, d}, 1, &seed);
        call_all(KERNEL_sinkhorn, &c, (size_t)(5 * d) * 4);
        for (int r = 0; r < 5; r++) {
            weights(&c, r, n, want);
            for (int k = 0; k < d; k++) {
                double got = (double)call_value(&c.out, r * d + k);

                if (!(fabs(got - want[k]) <= 2e-5 * (1 + fabs(want[k]))))
                    fail_msg("%d streams, value %d: %g, not %g", n, k, got,
                             want[k]);
            }
        }
        free_operands(&c);
    }
}

TEST(cpu_mix_streams_adds_and_mixes)
{
    static const int widths[] = {1, 37, 300};
    uint64_t seed = test_seed();

    for (int i = 0; i < 3 * MAX_STREAM; i++) {
        const int n = i / 3 + 1, d = n * (n + 1), e = widths[i % 3];
        struct cpu_call c = {.n_in = 3};

        c.in[0] = call_tensor(PL_F32, 3, (const int64_t[]){3, n, e}, 1, &seed);
        c.in[1] = call_tensor(PL_F32, 2, (const int64_t[]){3, e}, 1, &seed);
        c.in[2] = call_tensor(PL_F32, 2, (const int64_t[]){3, d}, 1, &seed);
        c.out = call_tensor(PL_F32, 3, (const int64_t[]){3, n, e}, 1, &seed);
        call_all(KERNEL_mix_streams, &c, (size_t)(3 * n * e) * 4);
        for (int k = 0; k < 3 * n * e; k++) {
            const int t = k / (n * e), to = k / e % n;
            double want = (double)call_value(&c.in[2], t * d + to) *
                          (double)call_value(&c.in[1], t * e + k % e);

            for (int from = 0; from < n; from++)
                want +=
                    (double)call_value(&c.in[2], t * d + n + from * n + to) *
                    (double)call_value(&c.in[0], (t * n + from) * e + k % e);
            assert_true(fabs((double)call_value(&c.out, k) - want) <= 1e-5);
        }
        free_operands(&c);
    }
}
