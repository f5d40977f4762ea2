/* Searched quantization: errors below those of simple rounding and below a
 * bound for each format, exact values stay exact, and importances count. */
#include "lib/support.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "quant/pack.h"
#include "quant/search.h"

enum { ROW = 2048 };

/* ---- random rows --------------------------------------------------------- */

/* Returns a number of about the normal distribution, the sum of 12 uniform
 * ones. */
static float normal(uint64_t *seed)
{
    float sum = 0;

    for (int i = 0; i < 12; i++)
        sum += test_unit(seed);
    return sum / 2;
}

static void draw(float *x, int n, uint64_t *seed)
{
    float scale = 0.02f * (1.5f + test_unit(seed));

    for (int i = 0; i < n; i++)
        x[i] = scale * normal(seed);
}

/* Importances as of activations: most are alike, some far above. */
static void draw_importance(float *w, int n, uint64_t *seed)
{
    for (int i = 0; i < n; i++)
        w[i] = expf(1.5f * normal(seed)) * (test_below(seed, 50) ? 1 : 30);
}

/* Returns the root of the weighted mean square error, divided by that of the
 * values. */
static double error_of(pl_format f, const void *blocks, const float *x,
                       const float *w, int n)
{
    float *y = test_need((size_t)n, sizeof *y);
    double e = 0, all = 0;

    format_info(f)->decode(y, blocks, n);
    for (int i = 0; i < n; i++) {
        double d = (double)x[i] - (double)y[i], v = w ? (double)w[i] : 1;

        e += v * d * d;
        all += v * (double)x[i] * (double)x[i];
    }
    free(y);
    return sqrt(e / all);
}

static double searched(pl_format f, const float *x, const float *importance,
                       const float *w, int n)
{
    void *blocks = test_need(format_row_bytes(f, n), 1);
    double e;

    quant_search(f, blocks, x, importance, n);
    e = error_of(f, blocks, x, w, n);
    free(blocks);
    return e;
}

/* ---- simple rounding ----------------------------------------------------- */

/* Simple rounding of a format: the extreme value of a part gets the
 * outermost level, and the scales of parts are rounded to the integers that the
 * format has. */
static const struct simple {
    pl_format f;
    int part;           /* values of a part */
    int lo, hi;         /* levels */
    bool min;           /* parts have a minimum */
    int s_most, m_most; /* greatest integer scale and minimum, 0 if floats */
} simples[] = {
    {PL_Q8_0, 32, -127, 127, false, 0, 0},
    {PL_Q4_0, 32, -8, 7, false, 0, 0},
    {PL_Q5_0, 32, -16, 15, false, 0, 0},
    {PL_Q4_1, 32, 0, 15, true, 0, 0},
    {PL_Q5_1, 32, 0, 31, true, 0, 0},
    {PL_Q2_K, 16, 0, 3, true, 15, 15},
    {PL_Q3_K, 16, -4, 3, false, 31, 0},
    {PL_Q4_K, 32, 0, 15, true, 63, 63},
    {PL_Q5_K, 32, 0, 31, true, 63, 63},
    {PL_Q6_K, 16, -32, 31, false, 127, 0},
};

static void part_scale(const struct simple *s, const float *x, float *d,
                       float *min)
{
    float lo = s->m_most ? 0 : x[0], hi = x[0], far = x[0];

    for (int i = 0; i < s->part; i++) {
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
        far = fabsf(x[i]) > fabsf(far) ? x[i] : far;
    }
    *min = s->min ? lo : 0;
    *d = s->min ? (hi - lo) / (float)s->hi : far / (float)s->lo;
}

/* Returns the error of simple rounding of n values. */
static double simple_error(const struct simple *s, const float *x,
                           const float *w, int n)
{
    const int super = s->s_most ? 256 : s->part;
    double e = 0, all = 0;

    for (int at = 0; at < n; at += super) {
        float d[16], m[16], most = 0, least = 0;

        for (int p = 0; p < super / s->part; p++) {
            part_scale(s, x + at + p * s->part, &d[p], &m[p]);
            most = fmaxf(most, fabsf(d[p]));
            least = fmaxf(least, -m[p]);
        }
        for (int i = 0; i < super; i++) {
            int p = i / s->part;
            float unit = most / (float)(s->s_most ? s->s_most : 1);
            float dmin = least / (float)(s->m_most ? s->m_most : 1);
            float step = s->s_most ? unit * roundf(d[p] / unit) : d[p];
            float base = s->m_most ? -dmin * roundf(-m[p] / dmin) : m[p];
            float level = step == 0 ? 0 : roundf((x[at + i] - base) / step);
            double diff, v = w ? (double)w[at + i] : 1;

            level = fminf(fmaxf(level, (float)s->lo), (float)s->hi);
            diff = (double)(x[at + i] - (step * level + base));
            e += v * diff * diff;
            all += v * (double)x[at + i] * (double)x[at + i];
        }
    }
    return sqrt(e / all);
}

/* quant_round is simple rounding, up to the F16 rounding of scales. */
TEST(quant_round_is_simple_rounding)
{
    uint64_t seed = test_seed();
    float *x = test_need(ROW, sizeof *x);
    void *blocks = test_need(ROW, sizeof(float));

    for (size_t i = 0; i < sizeof simples / sizeof *simples; i++) {
        const struct simple *s = &simples[i];
        double e, want;

        draw(x, ROW, &seed);
        quant_round(s->f, blocks, x, ROW);
        e = error_of(s->f, blocks, x, NULL, ROW);
        want = simple_error(s, x, NULL, ROW);
        if (!(fabs(e - want) < 0.01 * want))
            fail_msg("%s: error %.5f, expected %.5f", format_info(s->f)->name,
                     e, want);
    }
    free(x);
    free(blocks);
}

TEST(quant_search_loses_less_than_simple_rounding)
{
    uint64_t seed = test_seed();
    float *x = test_need(ROW, sizeof *x), *w = test_need(ROW, sizeof *w);

    for (size_t i = 0; i < sizeof simples / sizeof *simples; i++) {
        const struct simple *s = &simples[i];
        double plain = 0, plain_simple = 0, weighted = 0, weighted_simple = 0;

        for (int round = 0; round < 4; round++) {
            draw(x, ROW, &seed);
            draw_importance(w, ROW, &seed);
            plain += searched(s->f, x, NULL, NULL, ROW);
            plain_simple += simple_error(s, x, NULL, ROW);
            weighted += searched(s->f, x, w, w, ROW);
            weighted_simple += simple_error(s, x, w, ROW);
        }
        /* Measured: 0.94 of simple rounding at most without importances, and
         * 0.74 with them. */
        if (!(plain < 0.96 * plain_simple) ||
            !(weighted < 0.8 * weighted_simple))
            fail_msg("%s: error %.5f, simple %.5f; weighted %.5f, simple %.5f",
                     format_info(s->f)->name, plain / 4, plain_simple / 4,
                     weighted / 4, weighted_simple / 4);
    }
    free(x);
    free(w);
}

/* ---- bounds -------------------------------------------------------------- */

/* The error of normally distributed values. The bounds are 4 percent above what
 * was measured. */
static const struct {
    pl_format f;
    double bound;
} bounds[] = {
    {PL_F16, 2.3e-4},   {PL_BF16, 1.8e-3},   {PL_Q8_0, 0.0052},
    {PL_Q4_0, 0.084},   {PL_Q4_1, 0.073},    {PL_Q5_0, 0.0415},
    {PL_Q5_1, 0.035},   {PL_Q2_K, 0.275},    {PL_Q3_K, 0.15},
    {PL_Q4_K, 0.073},   {PL_Q5_K, 0.036},    {PL_Q6_K, 0.0178},
    {PL_IQ4_NL, 0.077}, {PL_IQ4_XS, 0.078},  {PL_MXFP4, 0.118},
    {PL_NVFP4, 0.105},  {PL_TQ1_0, 0.455},   {PL_TQ2_0, 0.455},
    {PL_IQ3_S, 0.136},  {PL_IQ3_XXS, 0.186}, {PL_IQ2_S, 0.25},
    {PL_IQ2_XS, 0.3},   {PL_IQ2_XXS, 0.343}, {PL_IQ1_M, 0.435},
    {PL_IQ1_S, 0.468},
};

TEST(quant_search_error_is_below_the_bound_of_each_format)
{
    uint64_t seed = test_seed();
    float *x = test_need(ROW, sizeof *x);
    int n = 0;

    for (int f = 0; f < PL_FORMAT_COUNT; f++)
        n += quant_can_search((pl_format)f) && f != PL_F32;
    assert_int_equal(n, sizeof bounds / sizeof *bounds);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        double e;

        draw(x, ROW, &seed);
        e = searched(bounds[i].f, x, NULL, NULL, ROW);
        if (!(e < bounds[i].bound))
            fail_msg("%s: error %.5f, bound %.5f",
                     format_info(bounds[i].f)->name, e, bounds[i].bound);
    }
    free(x);
}

TEST(quant_search_serves_important_columns)
{
    uint64_t seed = test_seed();
    float *x = test_need(ROW, sizeof *x), *w = test_need(ROW, sizeof *w);

    for (size_t i = 2; i < sizeof bounds / sizeof *bounds; i++) {
        double with = 0, without = 0;

        for (int round = 0; round < 2; round++) {
            draw(x, ROW, &seed);
            draw_importance(w, ROW, &seed);
            with += searched(bounds[i].f, x, w, w, ROW);
            without += searched(bounds[i].f, x, NULL, w, ROW);
        }
        /* Few scales, those of MXFP4 and ternary formats, leave little to
         * choose. */
        if (!(with < without))
            fail_msg("%s: %.5f with importances, %.5f without",
                     format_info(bounds[i].f)->name, with / 2, without / 2);
    }
    free(x);
    free(w);
}

/* ---- exact values -------------------------------------------------------- */

TEST(quant_search_keeps_what_a_format_can_represent)
{
    static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    uint64_t seed = test_seed();

    for (int round = 0; round < 100; round++) {
        static const pl_format formats[] = {PL_MXFP4, PL_TQ1_0, PL_TQ2_0,
                                            PL_Q8_0, PL_Q4_0};
        pl_format f = formats[round % 5];
        float x[256], scale = ldexpf(1, (int)test_below(&seed, 16) - 10);

        for (int i = 0; i < 256; i++) {
            int level = f == PL_Q8_0   ? (int)test_below(&seed, 255) - 127
                        : f == PL_Q4_0 ? (int)test_below(&seed, 16) - 8
                                       : (int)test_below(&seed, 3) - 1;

            x[i] = scale * (f == PL_MXFP4 ? e2m1[test_below(&seed, 8)] *
                                                (test_below(&seed, 2) ? 1 : -1)
                                          : (float)level);
            if (i % 32 == 0) /* each block uses its whole range */
                x[i] = scale * (f == PL_MXFP4  ? 6.0f
                                : f == PL_Q8_0 ? 127.0f
                                : f == PL_Q4_0 ? -8.0f
                                               : 1.0f);
        }
        if (searched(f, x, NULL, NULL, 256) != 0)
            fail_msg("%s: error %g of exact values", format_info(f)->name,
                     searched(f, x, NULL, NULL, 256));
    }
}

TEST(quant_search_takes_any_finite_row)
{
    static const float sizes[] = {0, FLT_TRUE_MIN, 1e-30f, 6e-8f, 1, 65504};
    uint64_t seed = test_seed();

    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        for (size_t k = 0; k < 18 && quant_can_search((pl_format)f); k++) {
            float x[256], y[256], size = sizes[k % 6];
            char blocks[1024];

            /* random values; all alike; one alone */
            for (int i = 0; i < 256; i++)
                x[i] = k < 6     ? size * test_unit(&seed)
                       : k < 12  ? size
                       : i == 77 ? -size
                                 : 0;
            quant_search((pl_format)f, blocks, x, NULL, 256);
            format_info((pl_format)f)->decode(y, blocks, 256);
            for (int i = 0; i < 256; i++)
                if (!isfinite(y[i]) ||
                    (f != PL_NVFP4 && fabsf(y[i]) > 2.5f * size + 1e-5f))
                    fail_msg("%s: row %zu of size %g: %g became %g",
                             format_info((pl_format)f)->name, k, (double)size,
                             (double)x[i], (double)y[i]);
        }
    }
}
