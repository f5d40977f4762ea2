/* GEMM with float weights: multiplies 32 weight rows by six rows of
 * activations, two vectors of weight rows at a time, so that the 12 sums stay
 * in registers. Included by cpu_gemm_formats_tmpl.h. The same source serves all
 * vector instruction sets.
 *
 * A step (cpu_gemm_segments_tmpl.h) is one value of k. Weights are converted to
 * f32 once for all rows of activations. */

enum {
    SEGMENT_STEPS = Q8_CHUNK,
    /* With fewer rows of activations than this, float weights use panel calls.
     * On Zen 5, panel calls and GEMM took equal times at 48 rows with AVX-512
     * and at 32 with AVX2, before GEMM became 5 to 10 % faster. At 20 rows with
     * AVX-512, panel calls are still faster. Not measured with NEON. */
    SEGMENT_MIN_ROWS = 32,
};

TMPL vf segment_step(vf sum, vf w, const void *x)
{
    float v;

    memcpy(&v, x, sizeof v);
    return v_fma(w, v_setf(v), sum);
}

#include "device/cpu/cpu_gemm_segments_tmpl.h"

TMPL void segments_unpack(uint8_t *dst, const struct pack *p,
                          const uint8_t *panel, int64_t first, int64_t n,
                          pl_format f)
{
    const int size = f == PL_F32 ? 4 : 2;

    for (int64_t u = first; u < first + n; u++, dst += SEGMENT_WEIGHTS) {
        struct gemm_segment s = gemm_segment_at(p, u);
        int64_t n_value = s.n * PACK_ROWS;
        const uint8_t *src =
            panel + s.chunk->off + (size_t)(s.first * PACK_ROWS * size);

        for (int64_t i = 0; i < n_value; i += W) {
            vf v = float_load(src + i * size, f);

            /* Prefetches the weights of the segment after this one. */
            if (i * size % 64 == 0)
                __builtin_prefetch(src + (n_value + i) * size);
            memcpy(dst + 4 * i, &v, sizeof v);
        }
        memset(dst + 4 * n_value, 0, SEGMENT_WEIGHTS - 4 * (size_t)n_value);
    }
}

static void segments_deal(void *dst, const struct pack *p, const void *const *x,
                          int n)
{
    int64_t n_unit = gemm_units(p);
    float *to = dst;

    for (int64_t u = 0; u < n_unit; u++, to += Q8_CHUNK * SEGMENT_TOK) {
        struct gemm_segment s = gemm_segment_at(p, u);
        int64_t k = s.chunk->k_loc + s.first;
        const float *from[SEGMENT_TOK];

        for (int t = 0; t < SEGMENT_TOK; t++)
            from[t] = (const float *)x[t < n ? t : 0] + k;
        for (int64_t i = 0; i < s.n; i++) {
            UNROLL
            for (int t = 0; t < SEGMENT_TOK; t++)
                to[i * SEGMENT_TOK + t] = from[t][i];
        }
        memset(to + s.n * SEGMENT_TOK, 0,
               (size_t)((Q8_CHUNK - s.n) * SEGMENT_TOK) * sizeof(float));
    }
}

#define SEGMENT_UNPACK(name)                                                   \
    static void unpack_##name(void *dst, const struct pack *p,                 \
                              const uint8_t *panel, int64_t first, int64_t n)  \
    {                                                                          \
        segments_unpack(dst, p, panel, first, n, PL_##name);                   \
    }
FLOATS(SEGMENT_UNPACK)
