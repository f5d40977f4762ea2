/* GEMM with float weights: multiplies 32 weight rows by six rows of
 * activations, two vectors of weight rows at a time, so that the 12 sums stay
 * in registers. Included by cpu_gemm_formats_tmpl.h. The same source serves all
 * vector instruction sets.
 *
 * A unit is a segment (cpu_matmul.h). Its weights are converted to f32 once for
 * all rows of activations: float [256][16] per panel. Activations are arranged
 * as float [256][SEGMENT_TOK]. Shorter segments are padded with zeros. This
 * changes no result: s + 0 * 0 is s unless s is -0, and adding -0 or 0 to an
 * accumulator that started at 0 gives the same. */

enum {
    SEGMENT_TOK = 6,
    /* With fewer rows of activations than this, float weights use panel calls.
     * On Zen 5, panel calls and GEMM took equal times at 48 rows with AVX-512
     * and at 32 with AVX2, before GEMM became 5 to 10 % faster. At 20 rows with
     * AVX-512, panel calls are still faster. Not measured with NEON. */
    SEGMENT_MIN_ROWS = 32,
    /* size in bytes of the unpacked weights of one panel and one segment of 256
     * k */
    SEGMENT_WEIGHTS = Q8_CHUNK * PACK_ROWS * 4,
    SEGMENT_ACTS = Q8_CHUNK * SEGMENT_TOK * 4,
};

static size_t segment_weight_bytes(void)
{
    return SEGMENT_WEIGHTS;
}

static size_t segment_act_bytes(void)
{
    return SEGMENT_ACTS;
}

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

/* Multiplies two vectors of weight rows by n_tok rows of activations over
 * n_unit segments of 256 k. The unpacked weights of the second vector are
 * `step` bytes after those of the first. at[t] points to the accumulators of
 * row t of activations. */
TMPL void run_segments(const uint8_t *w, size_t step, const float *x,
                       float *const *at, int64_t n_unit, const int n_tok)
{
    for (int64_t u = 0; u < n_unit; u++) {
        vf sum[SEGMENT_TOK][2];

        UNROLL
        for (int t = 0; t < n_tok; t++)
            sum[t][0] = sum[t][1] = v_setf(0);
#pragma GCC unroll 4
        for (int i = 0; i < Q8_CHUNK; i++) {
            const vf w0 = (vf)load(w + 64 * i);
            const vf w1 = (vf)load(w + 64 * i + step);

            UNROLL
            for (int t = 0; t < n_tok; t++) {
                const vf v = v_setf(x[i * SEGMENT_TOK + t]);

                sum[t][0] = v_fma(w0, v, sum[t][0]);
                sum[t][1] = v_fma(w1, v, sum[t][1]);
            }
        }
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            UNROLL
            for (int g = 0; g < 2; g++) {
                float *acc = at[t] + W * g;
                vf v = (vf)load(acc) + sum[t][g];

                memcpy(acc, &v, sizeof v);
            }
        }
        w += SEGMENT_WEIGHTS;
        x += Q8_CHUNK * SEGMENT_TOK;
    }
}

/* Multiplies a block of two panels, whose unpacked weights are `stride` bytes
 * apart, by n <= SEGMENT_TOK rows of activations over n_unit segments of 256 k.
 * acc[t] points to the accumulators of row t. */
static void segments_block(const void *weight, size_t stride, const void *act,
                           float *const *acc, int64_t n, int64_t n_unit)
{
    float nowhere[GEMM_WIDTH] = {0};

    for (int row = 0; row < GEMM_WIDTH; row += 2 * W) {
        const uint8_t *w = (const uint8_t *)weight +
                           (size_t)(row / PACK_ROWS) * stride +
                           4 * (row % PACK_ROWS);
        size_t step = HALVES > 1 ? 4 * W : stride;
        float *at[SEGMENT_TOK];

        for (int t = 0; t < SEGMENT_TOK; t++)
            at[t] = t < n ? acc[t] + row : nowhere;
        if (n > 4)
            run_segments(w, step, act, at, n_unit, SEGMENT_TOK);
        else if (n > 2)
            run_segments(w, step, act, at, n_unit, 4);
        else
            run_segments(w, step, act, at, n_unit, 2);
    }
}

static void segments_products(const struct gemm_pass *p)
{
    const uint8_t *x = p->act;
    float *const *to = p->to;
    int64_t n_row = p->n_row;

    for (int64_t n; n_row > 0; n_row -= n, to += n, x += p->act_step) {
        n = n_row < SEGMENT_TOK ? n_row : SEGMENT_TOK;
        if (!p->from)
            gemm_clear(to, n);
        segments_block(p->weight, p->stride, x, to, n, p->n_unit);
    }
}

#define SEGMENT_UNPACK(name)                                                   \
    static void unpack_##name(void *dst, const struct pack *p,                 \
                              const uint8_t *panel, int64_t first, int64_t n)  \
    {                                                                          \
        segments_unpack(dst, p, panel, first, n, PL_##name);                   \
    }
FLOATS(SEGMENT_UNPACK)

#define SEGMENT_ROW(name)                                                      \
    [PL_##name] = {                                                            \
        .tok = SEGMENT_TOK,                                                    \
        .min_rows = SEGMENT_MIN_ROWS,                                          \
        .pass = 1,                                                             \
        .weight_bytes = segment_weight_bytes,                                  \
        .act_bytes = segment_act_bytes,                                        \
        .unpack = unpack_##name,                                               \
        .arrange = segments_deal,                                              \
        .run = segments_products,                                              \
    },
