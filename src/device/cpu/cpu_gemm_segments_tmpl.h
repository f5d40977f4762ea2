/* GEMM with 16-bit or 32-bit float weights. Included by cpu_gemm_float_tmpl.h
 * and cpu_matmul_avx512_bf16.c.
 *
 * A unit (cpu_gemm.h) is a segment (cpu_matmul.h) of 256 values of k. It
 * consists of *steps*: a value, or a pair of BF16 values, of k. Weights are
 * unpacked once for all rows of activations, to 32 bits for each step and
 * weight row: [SEGMENT_STEPS][16] per panel. Activations are arranged as
 * [SEGMENT_STEPS][SEGMENT_TOK]. Shorter segments are padded with zeros. This
 * changes no result: s + 0 * 0 is s unless s is -0, and adding -0 or 0 to an
 * accumulator that started at 0 gives the same.
 *
 * The including file defines SEGMENT_STEPS, SEGMENT_MIN_ROWS and
 *
 *   segment_step   sum + the products of a step of W weight rows with that of
 *                  one row of activations, at x
 *
 * and, for SEGMENT_ROW, unpack_FORMAT and segments_deal (cpu_gemm.unpack and
 * .arrange). */
#include "device/cpu/cpu_gemm_rows_tmpl.h"

enum {
    SEGMENT_TOK = 6,
    /* size in bytes of the unpacked weights of one panel and one segment */
    SEGMENT_WEIGHTS = SEGMENT_STEPS * PACK_ROWS * 4,
    SEGMENT_ACTS = SEGMENT_STEPS * SEGMENT_TOK * 4,
};

static size_t segment_weight_bytes(void)
{
    return SEGMENT_WEIGHTS;
}

static size_t segment_act_bytes(void)
{
    return SEGMENT_ACTS;
}

/* Multiplies two vectors of weight rows by n_tok rows of activations over
 * n_unit segments. The unpacked weights of the second vector are
 * `step` bytes after those of the first. at[t] points to the accumulators of
 * row t of activations. */
TMPL void run_segments(const uint8_t *w, size_t step, const uint8_t *x,
                       float *const *at, int64_t n_unit, const int n_tok,
                       struct shape f)
{
    (void)f;
    for (int64_t u = 0; u < n_unit; u++) {
        vf sum[SEGMENT_TOK][2];

        UNROLL
        for (int t = 0; t < n_tok; t++)
            sum[t][0] = sum[t][1] = v_setf(0);
#pragma GCC unroll 4
        for (int i = 0; i < SEGMENT_STEPS; i++) {
            const vf w0 = (vf)load(w + 64 * i);
            const vf w1 = (vf)load(w + 64 * i + step);

            UNROLL
            for (int t = 0; t < n_tok; t++) {
                const uint8_t *v = x + 4 * (i * SEGMENT_TOK + t);

                sum[t][0] = segment_step(sum[t][0], w0, v);
                sum[t][1] = segment_step(sum[t][1], w1, v);
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
        x += SEGMENT_ACTS;
    }
}

GEMM_ROWS(gemm_segments, SEGMENT_TOK, 2 * W, run_segments)

static void segments_products(const struct gemm_pass *p)
{
    gemm_segments(p, (struct shape){0});
}

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
