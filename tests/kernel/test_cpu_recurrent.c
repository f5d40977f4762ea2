/* The short convolution, the gated delta net and the scan of a state space
 * model. Every kernel set has the bits of the specified order of operations,
 * however a sequence is cut into runs, threads share a run, and wherever states
 * are. That order agrees with the recurrence in double. */
#include "device/cpu/cpu_lanes_math.h"
#include "lib/support.h"

#include "device/cpu/cpu_kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_STATE = 3 };

/* Returns n random floats in [-range, range). The caller frees them. */
static float *floats(int64_t n, float range, uint64_t *seed)
{
    float *x = test_need((size_t)n, sizeof(*x));

    for (int64_t i = 0; i < n; i++)
        x[i] = range * test_unit(seed);
    return x;
}

/* Returns n bytes with a pattern that no kernel writes by chance. The caller
 * frees them. */
static void *rubbish(size_t n)
{
    return memset(test_need(n + 1, 1), 0xa5, n);
}

static char *scratch_make(size_t n)
{
    char *s = aligned_alloc(64, n / 64 * 64 + 128);

    assert_non_null(s);
    memset(s, 0xff, n);
    memcpy(s + n, "end of scratch.", 16);
    return s;
}

static void scratch_free(char *s, size_t n)
{
    assert_memory_equal(s + n, "end of scratch.", 16);
    free(s);
}

/* Checks |x - want| <= 1e-5 of the greatest of the values. */
static void close_to(const float *x, const double *want, int64_t n)
{
    double top = 0;

    for (int64_t i = 0; i < n; i++)
        top = fmax(top, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)x[i] - want[i]) <= 1e-5 * top))
            fail_msg("%.9g instead of %.9g", (double)x[i], want[i]);
    }
}

/* Returns the next run's tokens in a random cut of a sequence. */
static int64_t next_run(int64_t left, uint64_t *seed)
{
    switch (test_below(seed, 3)) {
    case 0:
        return left;
    case 1:
        return 1 + test_below(seed, left < 3 ? left : 3);
    default:
        return 1 + test_below(seed, left);
    }
}

/* Returns the slot for a run's state: sometimes in place. */
static int next_state(int now, uint64_t *seed)
{
    return test_below(seed, 2) && now >= 0 ? now : (now + 1) % N_STATE;
}

static float one_lane(lanes v)
{
    float x[LANES];

    lanes_store(x, v);
    return x[0];
}

/* ---- short convolution --------------------------------------------------- */

/* A sequence and its expected result. */
struct conv {
    struct cpu_short_conv a; /* call that computes the whole sequence */
    float *before;           /* state before the sequence; NULL for zeros */
    /* expected result and expected state after the sequence */
    float *out, *state;
    double *exact; /* expected result in double precision */
};

/* Computes s->out with the order of operations that numerics.md specifies. */
static void conv_plain(struct conv *s)
{
    const struct cpu_short_conv *a = &s->a;
    int64_t n = a->n_channel;
    int64_t old = a->n_tap - 1;
    float *x = test_need((size_t)((old + a->n_tok) * n), sizeof(*x));

    if (s->before)
        memcpy(x, s->before, (size_t)(old * n) * sizeof(*x));
    for (int64_t t = 0; t < a->n_tok; t++)
        memcpy(x + (old + t) * n, a->x + t * a->x_stride,
               (size_t)n * sizeof(*x));
    for (int64_t i = 0; i < a->n_tok * n; i++) {
        float y = 0;
        double z = 0;

        for (int64_t j = 0; j < a->n_tap; j++) {
            float w = a->w[i % n * a->n_tap + j];

            y = fmaf(w, x[j * n + i], y);
            z += (double)w * (double)x[j * n + i];
        }
        s->out[i] = a->silu ? one_lane(lanes_silu(lanes_set(y))) : y;
        s->exact[i] = a->silu ? z / (1 + exp(-z)) : z;
    }
    memcpy(s->state, x + a->n_tok * n, (size_t)(old * n) * sizeof(*x));
    free(x);
}

/* Computes the same with a kernel set, in any runs and by any threads. */
static void conv_runs(const struct conv *s, enum kernel_set set, uint64_t *seed)
{
    int64_t n = s->a.n_channel;
    size_t n_state = (size_t)((s->a.n_tap - 1) * n);
    size_t scratch_bytes = cpu_short_conv_scratch(&s->a);
    size_t n_out = (size_t)(s->a.n_tok * s->a.out_stride);
    float *state[N_STATE];
    float *out = rubbish(n_out * sizeof(*out));
    float *want = rubbish(n_out * sizeof(*out));
    struct cpu_kernels k;
    int now = -1;

    cpu_kernels_init(&k, set);
    for (int i = 0; i < N_STATE; i++)
        state[i] = rubbish(n_state * sizeof(float));
    if (s->before)
        memcpy(state[now = 0], s->before, n_state * sizeof(float));
    for (int64_t t = 0; t < s->a.n_tok;) {
        struct cpu_short_conv a = s->a;
        int next = next_state(now, seed);

        a.n_tok = next_run(s->a.n_tok - t, seed);
        a.x += t * a.x_stride;
        a.out = out + t * a.out_stride;
        a.state_in = now < 0 ? NULL : state[now];
        a.state_out = state[next];
        for (int64_t c = 0; c < n;) {
            char *scratch = scratch_make(scratch_bytes);
            int64_t part = 1 + test_below(seed, n - c);

            k.short_conv(&a, c, part, scratch);
            scratch_free(scratch, scratch_bytes);
            c += part;
        }
        now = next;
        t += a.n_tok;
    }
    for (int64_t t = 0; t < s->a.n_tok; t++)
        memcpy(want + t * s->a.out_stride, s->out + t * n,
               (size_t)n * sizeof(*out));
    assert_memory_equal(out, want, n_out * sizeof(*out));
    assert_memory_equal(state[now], s->state, n_state * sizeof(float));
    for (int i = 0; i < N_STATE; i++)
        free(state[i]);
    free(out);
    free(want);
}

TEST(cpu_short_conv_is_the_chain_that_is_written)
{
    uint64_t seed = test_seed() + 21;

    for (int i = 0; i < 60; i++) {
        struct conv s = {.a = {
                             .n_tok = 1 + test_below(&seed, 20),
                             .n_channel = 1 + test_below(&seed, 600),
                             .n_tap = i % 3 ? 4 : 1 + test_below(&seed, 9),
                             .silu = i % 2,
                         }};
        struct cpu_short_conv *a = &s.a;
        int64_t n_state = (a->n_tap - 1) * a->n_channel;
        int64_t n = a->n_tok * a->n_channel;

        a->x_stride = a->n_channel + test_below(&seed, 40);
        a->out_stride = a->n_channel + test_below(&seed, 40);
        a->x = floats(a->n_tok * a->x_stride, 3, &seed);
        a->w = floats(a->n_channel * a->n_tap, 1, &seed);
        s.before = i % 4 ? floats(n_state, 3, &seed) : NULL;
        s.state = test_need((size_t)n_state, sizeof(float));
        s.out = test_need((size_t)n, sizeof(float));
        s.exact = test_need((size_t)n, sizeof(double));
        conv_plain(&s);
        close_to(s.out, s.exact, n);
        for (int f = KERNEL_SET_REFERENCE; f < KERNEL_SET_COUNT; f++)
            if (kernel_set_runs(f))
                conv_runs(&s, f, &seed);
        free((void *)(uintptr_t)a->x);
        free((void *)(uintptr_t)a->w);
        free(s.before);
        free(s.state);
        free(s.out);
        free(s.exact);
    }
}

/* ---- gated delta net ----------------------------------------------------- */

/* A sequence and its expected result. */
struct net {
    struct cpu_delta_net a; /* call that computes the whole sequence */
    float *before;          /* state before the sequence; NULL for zeros */
    /* expected result and expected state after the sequence */
    float *out, *state;
    int64_t n_state;
};

/* Returns 64 sums by index mod 64, added along their tree. */
static float sum_of_squares(const float *x, int64_t n)
{
    float s[64] = {0};

    for (int64_t i = 0; i < n; i++)
        s[i % 64] = fmaf(x[i], x[i], s[i % 64]);
    for (int i = 0; i < 16; i++)
        s[i] = (s[i] + s[i + 16]) + (s[i + 32] + s[i + 48]);
    for (int h = 8; h > 0; h /= 2)
        for (int i = 0; i < h; i++)
            s[i] = s[i] + s[i + h];
    return s[0];
}

/* Returns four chains over d mod 4; x has a stride of `step` floats. */
static float four_chains(const float *x, int64_t step, const float *y,
                         int64_t n)
{
    float c[4] = {0};

    for (int64_t d = 0; d < n; d++)
        c[d % 4] = fmaf(x[d * step], y[d], c[d % 4]);
    return (c[0] + c[1]) + (c[2] + c[3]);
}

static void normed(float *dst, const float *x, const struct cpu_delta_net *a)
{
    int64_t n = a->d_k;
    float sum = sum_of_squares(x, n);
    float f =
        1 / (a->channels ? sqrtf(sum + a->eps) : fmaxf(sqrtf(sum), a->eps));

    for (int64_t d = 0; d < n; d++)
        dst[d] = x[d] * f;
}

/* Returns the logarithm of the decay of row d of a head's state. */
static float decay_of(const struct cpu_delta_net *a, int64_t t, int64_t head,
                      int64_t d)
{
    return a->g[t * a->g_stride + (a->channels ? head * a->d_k + d : head)];
}

/* Computes one value head as specified: m[d_k][d_v] is its state. */
static void net_head_plain(const struct net *s, int64_t head, float *m)
{
    const struct cpu_delta_net *a = &s->a;
    int64_t n = a->d_k;
    float *kn = test_need((size_t)n, sizeof(*kn));
    float *qn = test_need((size_t)n, sizeof(*qn));
    /* the decay of each row of m; kn and qn times the decay, if it is the
     * channel's */
    float *gamma = test_need((size_t)n, sizeof(*gamma));
    float *gk = test_need((size_t)n, sizeof(*gk));
    float *gq = test_need((size_t)n, sizeof(*gq));

    for (int64_t t = 0; t < a->n_tok; t++) {
        int64_t key = a->head_map[head] * n;
        float beta = a->beta[t * a->beta_stride + head];
        float kq;

        normed(kn, a->k + t * a->k_stride + key, a);
        normed(qn, a->q + t * a->q_stride + key, a);
        kq = four_chains(kn, 1, qn, n);
        for (int64_t d = 0; d < n; d++) {
            gamma[d] = one_lane(lanes_exp(lanes_set(decay_of(a, t, head, d))));
            gk[d] = a->channels ? gamma[d] * kn[d] : kn[d];
            gq[d] = a->channels ? gamma[d] * qn[d] : qn[d];
        }
        for (int64_t e = 0; e < a->d_v; e++) {
            float v = a->v[t * a->v_stride + head * a->d_v + e];
            float pk = four_chains(m + e, a->d_v, gk, n);
            float pq = four_chains(m + e, a->d_v, gq, n);
            float u;

            if (!a->channels) {
                pk = gamma[0] * pk;
                pq = gamma[0] * pq;
            }
            u = beta * (v - pk);
            s->out[(t * a->n_head_v + head) * a->d_v + e] =
                fmaf(kq, u, pq) * (1 / sqrtf((float)n));
            for (int64_t d = 0; d < n; d++)
                m[d * a->d_v + e] =
                    fmaf(kn[d], u, gamma[d] * m[d * a->d_v + e]);
        }
    }
    free(kn);
    free(qn);
    free(gamma);
    free(gk);
    free(gq);
}

static void normed64(double *dst, const float *x, const struct cpu_delta_net *a)
{
    double sum = 0, eps = (double)a->eps;

    for (int64_t d = 0; d < a->d_k; d++)
        sum += (double)x[d] * (double)x[d];
    for (int64_t d = 0; d < a->d_k; d++)
        dst[d] = (double)x[d] /
                 (a->channels ? sqrt(sum + eps) : fmax(sqrt(sum), eps));
}

/* Computes the recurrence of one column in double: out[n_tok], m[d_k]. */
static void net_column64(const struct net *s, int64_t head, int64_t e,
                         double *out, double *m)
{
    const struct cpu_delta_net *a = &s->a;
    int64_t n = a->d_k;
    double *kn = test_need((size_t)n, sizeof(*kn));
    double *qn = test_need((size_t)n, sizeof(*qn));

    for (int64_t t = 0; t < a->n_tok; t++) {
        int64_t key = a->head_map[head] * n;
        double u = (double)a->v[t * a->v_stride + head * a->d_v + e];

        normed64(kn, a->k + t * a->k_stride + key, a);
        normed64(qn, a->q + t * a->q_stride + key, a);
        for (int64_t d = 0; d < n; d++) {
            m[d] *= exp((double)decay_of(a, t, head, d));
            u -= m[d] * kn[d];
        }
        u *= (double)a->beta[t * a->beta_stride + head];
        out[t] = 0;
        for (int64_t d = 0; d < n; d++) {
            m[d] += kn[d] * u;
            out[t] += m[d] * qn[d] / sqrt((double)n);
        }
    }
    free(kn);
    free(qn);
}

/* Computes the expected result and compares it with the recurrence. */
static void net_plain(struct net *s)
{
    const struct cpu_delta_net *a = &s->a;
    int64_t n_out = a->n_tok * a->n_head_v * a->d_v;
    double *out = test_need((size_t)n_out, sizeof(*out));
    double *state = test_need((size_t)s->n_state, sizeof(*state));
    double *column = test_need((size_t)a->n_tok, sizeof(*column));
    double *m = test_need((size_t)a->d_k, sizeof(*m));

    if (s->before)
        memcpy(s->state, s->before, (size_t)s->n_state * sizeof(float));
    for (int64_t i = 0; i < a->n_head_v * a->d_v; i++) {
        int64_t head = i / a->d_v, e = i % a->d_v;
        int64_t at = head * a->d_k * a->d_v + e;

        for (int64_t d = 0; d < a->d_k; d++)
            m[d] = (double)s->state[at + d * a->d_v];
        net_column64(s, head, e, column, m);
        for (int64_t t = 0; t < a->n_tok; t++)
            out[t * a->n_head_v * a->d_v + i] = column[t];
        for (int64_t d = 0; d < a->d_k; d++)
            state[at + d * a->d_v] = m[d];
    }
    for (int64_t head = 0; head < a->n_head_v; head++)
        net_head_plain(s, head, s->state + head * a->d_k * a->d_v);
    close_to(s->out, out, n_out);
    close_to(s->state, state, s->n_state);
    free(out);
    free(state);
    free(column);
    free(m);
}

/* Computes the same with a kernel set, in any runs and by any threads. */
static void net_runs(const struct net *s, enum kernel_set set, uint64_t *seed)
{
    int64_t n = s->a.n_head_v * s->a.d_v;
    size_t state_bytes = (size_t)s->n_state * sizeof(float);
    size_t n_out = (size_t)(s->a.n_tok * s->a.out_stride);
    float *state[N_STATE];
    float *out = rubbish(n_out * sizeof(*out));
    float *want = rubbish(n_out * sizeof(*out));
    struct cpu_kernels k;
    int now = -1;

    cpu_kernels_init(&k, set);
    for (int i = 0; i < N_STATE; i++)
        state[i] = rubbish(state_bytes);
    if (s->before)
        memcpy(state[now = 0], s->before, state_bytes);
    for (int64_t t = 0; t < s->a.n_tok;) {
        struct cpu_delta_net a = s->a;
        int next = next_state(now, seed);
        size_t scratch_bytes;

        a.n_tok = next_run(s->a.n_tok - t, seed);
        a.q += t * a.q_stride;
        a.k += t * a.k_stride;
        a.v += t * a.v_stride;
        a.g += t * a.g_stride;
        a.beta += t * a.beta_stride;
        a.out = out + t * a.out_stride;
        a.state_in = now < 0 ? NULL : state[now];
        a.state_out = state[next];
        scratch_bytes = cpu_delta_net_scratch(&a);
        for (int64_t i = 0; i < cpu_delta_net_items(&a);) {
            char *scratch = scratch_make(scratch_bytes);
            int64_t part = 1 + test_below(seed, cpu_delta_net_items(&a) - i);

            k.delta_net(&a, i, part, scratch);
            scratch_free(scratch, scratch_bytes);
            i += part;
        }
        now = next;
        t += a.n_tok;
    }
    for (int64_t t = 0; t < s->a.n_tok; t++)
        memcpy(want + t * s->a.out_stride, s->out + t * n,
               (size_t)n * sizeof(*out));
    assert_memory_equal(out, want, n_out * sizeof(*out));
    assert_memory_equal(state[now], s->state, state_bytes);
    for (int i = 0; i < N_STATE; i++)
        free(state[i]);
    free(out);
    free(want);
}

/* Returns rows of n floats for all tokens, sometimes with a gap between
 * them. */
static float *token_rows(const struct cpu_delta_net *a, int64_t n, float range,
                         int64_t *stride, uint64_t *seed)
{
    *stride = n + (test_below(seed, 2) ? test_below(seed, 30) : 0);
    return floats(a->n_tok * *stride, range, seed);
}

static void net_check(struct cpu_delta_net shape, bool zero, uint64_t *seed)
{
    struct net s = {.a = shape};
    struct cpu_delta_net *a = &s.a;
    int32_t *map = test_need((size_t)a->n_head_v, sizeof(*map));
    int64_t n_k = a->n_head_k * a->d_k, n_v = a->n_head_v * a->d_v;
    float *g;

    for (int64_t i = 0; i < a->n_head_v; i++)
        map[i] = (int32_t)test_below(seed, a->n_head_k);
    a->head_map = map;
    a->eps = a->channels ? 0.1f : 1e-6f;
    a->k = token_rows(a, n_k, 1, &a->k_stride, seed);
    a->q = token_rows(a, n_k, 2, &a->q_stride, seed);
    a->v = token_rows(a, n_v, 1, &a->v_stride, seed);
    a->g = g = token_rows(a, a->n_head_v * (a->channels ? a->d_k : 1), 1,
                          &a->g_stride, seed);
    for (int64_t i = 0; i < a->n_tok * a->g_stride; i++)
        g[i] = -fabsf(g[i]);
    a->beta = token_rows(a, a->n_head_v, 1, &a->beta_stride, seed);
    a->out_stride = n_v + test_below(seed, 30);
    s.n_state = a->n_head_v * a->d_k * a->d_v;
    s.before = zero ? NULL : floats(s.n_state, 1, seed);
    s.state = test_need((size_t)s.n_state, sizeof(float));
    s.out = test_need((size_t)(a->n_tok * n_v), sizeof(float));
    net_plain(&s);
    for (int f = KERNEL_SET_REFERENCE; f < KERNEL_SET_COUNT; f++)
        if (kernel_set_runs(f))
            net_runs(&s, f, seed);
    free(map);
    free((void *)(uintptr_t)a->q);
    free((void *)(uintptr_t)a->k);
    free((void *)(uintptr_t)a->v);
    free(g);
    free((void *)(uintptr_t)a->beta);
    free(s.before);
    free(s.state);
    free(s.out);
}

static void net_shapes(bool channels, uint64_t seed)
{
    static const struct cpu_delta_net shapes[] = {
        {.n_tok = 130, .n_head_k = 1, .n_head_v = 2, .d_k = 64, .d_v = 48},
        {.n_tok = 3, .n_head_k = 2, .n_head_v = 4, .d_k = 128, .d_v = 128},
        {.n_tok = 2, .n_head_k = 1, .n_head_v = 1, .d_k = 256, .d_v = 256},
        {.n_tok = 1, .n_head_k = 3, .n_head_v = 5, .d_k = 16, .d_v = 16},
    };

    for (int i = 0; i < 4; i++) {
        struct cpu_delta_net a = shapes[i];

        a.channels = channels;
        net_check(a, i == 2, &seed);
    }
    for (int i = 0; i < 40; i++) {
        struct cpu_delta_net a = {
            .channels = channels,
            .n_tok = 1 + test_below(&seed, 20),
            .n_head_k = 1 + test_below(&seed, 3),
            .n_head_v = 1 + test_below(&seed, 5),
            .d_k = 1 + test_below(&seed, i % 2 ? 70 : 7),
            .d_v = 1 + test_below(&seed, 70),
        };

        net_check(a, i % 4 == 0, &seed);
    }
}

TEST(cpu_delta_net_is_the_recurrence_as_it_is_written)
{
    net_shapes(false, test_seed() + 22);
}

TEST(cpu_delta_net_channels_is_the_recurrence_as_it_is_written)
{
    net_shapes(true, test_seed() + 23);
}

/* A key of zeros has no direction: only the decay changes the state. */
TEST(cpu_delta_net_takes_keys_of_zeros)
{
    static const float key[16], query[16] = {3, -4};
    static const float value[4] = {1, 2, 3, 4}, g, beta = 1;
    static const int32_t map[1];
    float memory[16 * 4], out[4], want[16 * 4];

    for (int i = 0; i < 16 * 4; i++)
        want[i] = memory[i] = (float)i;
    for (int f = KERNEL_SET_REFERENCE; f < KERNEL_SET_COUNT; f++) {
        struct cpu_delta_net a = {
            .n_tok = 1,
            .n_head_k = 1,
            .n_head_v = 1,
            .d_k = 16,
            .d_v = 4,
            .head_map = map,
            .q = query,
            .k = key,
            .v = value,
            .g = &g,
            .beta = &beta,
            .eps = 1e-6f,
            .state_in = memory,
            .state_out = memory,
            .out = out,
        };
        struct cpu_kernels k;
        char *scratch;

        if (!kernel_set_runs(f))
            continue;
        cpu_kernels_init(&k, f);
        scratch = scratch_make(cpu_delta_net_scratch(&a));
        k.delta_net(&a, 0, 1, scratch);
        free(scratch);
        assert_memory_equal(memory, want, sizeof memory);
        /* q normed is (0.6, -0.8, 0, ...), and it is divided by sqrt(16) = 4 */
        for (int e = 0; e < 4; e++)
            assert_true(fabs((double)out[e] - (0.6 * e - 0.8 * (4 + e)) / 4) <
                        1e-6);
    }
}

/* ---- scan of a state space model ----------------------------------------- */

/* A sequence and its expected result. */
struct scan_case {
    struct cpu_ssm_scan a; /* call that computes the whole sequence */
    float *before;         /* state before the sequence; NULL for zeros */
    /* expected result and expected state after the sequence */
    float *out, *state;
    int64_t n_state;
};

/* Computes column e of head `head` as specified, and compares it with the
 * recurrence in double. */
static void scan_column(struct scan_case *s, int64_t head, int64_t e)
{
    const struct cpu_ssm_scan *a = &s->a;
    const int64_t n = a->d_state, group = a->head_map[head] * n;
    float *m = s->state + head * n * a->d_head + e;
    double *m64 = test_need((size_t)n, sizeof *m64);
    double *most = test_need((size_t)n, sizeof *most);

    for (int64_t d = 0; d < n; d++) {
        m64[d] = (double)m[d * a->d_head];
        most[d] = fabs(m64[d]);
    }
    for (int64_t t = 0; t < a->n_tok; t++) {
        const float *b = a->b + t * a->b_stride + group;
        const float *c = a->c + t * a->c_stride + group;
        float g = a->g[t * a->g_stride + head];
        float gamma = one_lane(lanes_exp(lanes_set(g)));
        float x = a->x[t * a->x_stride + head * a->d_head + e];
        double sum = 0, size = 0;
        float y;

        for (int64_t d = 0; d < n; d++) {
            float *v = &m[d * a->d_head];

            *v = fmaf(b[d], x, gamma * *v);
            m64[d] = m64[d] * exp((double)g) + (double)b[d] * (double)x;
            most[d] = most[d] * exp((double)g) + fabs((double)b[d] * (double)x);
            sum += m64[d] * (double)c[d];
            size += fabs(m64[d] * (double)c[d]);
        }
        y = four_chains(m, a->d_head, c, n);
        s->out[(t * a->n_head + head) * a->d_head + e] = y;
        assert_true(fabs((double)y - sum) <= 1e-5 * (size + 1));
    }
    /* A state is a sum, whose error depends on the size of its terms. */
    for (int64_t d = 0; d < n; d++)
        assert_true(fabs((double)m[d * a->d_head] - m64[d]) <= 1e-5 * most[d]);
    free(m64);
    free(most);
}

/* Computes the same with a kernel set, in any runs and by any threads. */
static void scan_runs(const struct scan_case *s, enum kernel_set set,
                      uint64_t *seed)
{
    const int64_t n = s->a.n_head * s->a.d_head;
    const size_t state_bytes = (size_t)s->n_state * sizeof(float);
    const size_t n_out = (size_t)(s->a.n_tok * s->a.out_stride);
    float *state[N_STATE];
    float *out = rubbish(n_out * sizeof(*out));
    float *want = rubbish(n_out * sizeof(*out));
    struct cpu_kernels k;
    int now = -1;

    cpu_kernels_init(&k, set);
    for (int i = 0; i < N_STATE; i++)
        state[i] = rubbish(state_bytes);
    if (s->before)
        memcpy(state[now = 0], s->before, state_bytes);
    for (int64_t t = 0; t < s->a.n_tok;) {
        struct cpu_ssm_scan a = s->a;
        const size_t scratch_bytes = cpu_ssm_scan_scratch(&a);
        int next = next_state(now, seed);

        a.n_tok = next_run(s->a.n_tok - t, seed);
        a.c += t * a.c_stride;
        a.b += t * a.b_stride;
        a.x += t * a.x_stride;
        a.g += t * a.g_stride;
        a.out = out + t * a.out_stride;
        a.state_in = now < 0 ? NULL : state[now];
        a.state_out = state[next];
        for (int64_t i = 0; i < cpu_ssm_scan_items(&a);) {
            char *scratch = scratch_make(scratch_bytes);
            int64_t part = 1 + test_below(seed, cpu_ssm_scan_items(&a) - i);

            k.ssm_scan(&a, i, part, scratch);
            scratch_free(scratch, scratch_bytes);
            i += part;
        }
        now = next;
        t += a.n_tok;
    }
    for (int64_t t = 0; t < s->a.n_tok; t++)
        memcpy(want + t * s->a.out_stride, s->out + t * n,
               (size_t)n * sizeof(*out));
    assert_memory_equal(out, want, n_out * sizeof(*out));
    assert_memory_equal(state[now], s->state, state_bytes);
    for (int i = 0; i < N_STATE; i++)
        free(state[i]);
    free(out);
    free(want);
}

/* Returns rows of n floats for all tokens, sometimes with a gap between
 * them. */
static float *gapped_rows(int64_t n_tok, int64_t n, int64_t *stride,
                          uint64_t *seed)
{
    *stride = n + (test_below(seed, 2) ? test_below(seed, 30) : 0);
    return floats(n_tok * *stride, 1, seed);
}

static void scan_check(struct cpu_ssm_scan shape, bool zero, uint64_t *seed)
{
    struct scan_case s = {.a = shape};
    struct cpu_ssm_scan *a = &s.a;
    int32_t *map = test_need((size_t)a->n_head, sizeof(*map));
    const int64_t n = a->n_head * a->d_head, n_b = a->n_group * a->d_state;
    float *c = gapped_rows(a->n_tok, n_b, &a->c_stride, seed);
    float *b = gapped_rows(a->n_tok, n_b, &a->b_stride, seed);
    float *x = gapped_rows(a->n_tok, n, &a->x_stride, seed);
    float *g = gapped_rows(a->n_tok, a->n_head, &a->g_stride, seed);

    for (int64_t i = 0; i < a->n_head; i++)
        map[i] = (int32_t)test_below(seed, a->n_group);
    for (int64_t i = 0; i < a->n_tok * a->g_stride; i++)
        g[i] = -fabsf(g[i]);
    a->head_map = map;
    a->c = c;
    a->b = b;
    a->x = x;
    a->g = g;
    a->out_stride = n + test_below(seed, 30);
    s.n_state = n * a->d_state;
    s.before = zero ? NULL : floats(s.n_state, 1, seed);
    s.state = test_need((size_t)s.n_state, sizeof(float));
    s.out = test_need((size_t)(a->n_tok * n), sizeof(float));
    if (s.before)
        memcpy(s.state, s.before, (size_t)s.n_state * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        scan_column(&s, i / a->d_head, i % a->d_head);
    for (int f = KERNEL_SET_REFERENCE; f < KERNEL_SET_COUNT; f++)
        if (kernel_set_runs(f))
            scan_runs(&s, f, seed);
    free(map);
    free(c);
    free(b);
    free(x);
    free(g);
    free(s.before);
    free(s.state);
    free(s.out);
}

TEST(cpu_ssm_scan_is_the_recurrence_as_it_is_written)
{
    static const struct cpu_ssm_scan shapes[] = {
        {.n_tok = 130, .n_group = 1, .n_head = 2, .d_state = 64, .d_head = 48},
        {.n_tok = 3, .n_group = 2, .n_head = 4, .d_state = 128, .d_head = 80},
        {.n_tok = 2, .n_group = 1, .n_head = 1, .d_state = 256, .d_head = 64},
    };
    uint64_t seed = test_seed() + 23;

    for (int i = 0; i < 3; i++)
        scan_check(shapes[i], i == 2, &seed);
    for (int i = 0; i < 40; i++) {
        struct cpu_ssm_scan a = {
            .n_tok = 1 + test_below(&seed, 20),
            .n_group = 1 + test_below(&seed, 3),
            .n_head = 1 + test_below(&seed, 5),
            .d_state = 1 + test_below(&seed, i % 2 ? 70 : 7),
            .d_head = 1 + test_below(&seed, 70),
        };

        scan_check(a, i % 4 == 0, &seed);
    }
}
