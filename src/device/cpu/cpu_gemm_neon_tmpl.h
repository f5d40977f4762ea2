/* GEMM with the NEON instruction SDOT, or with SMMLA if compiled for I8MM.
 * Multiplies eight weight rows by four rows of activations and keeps the sums
 * in registers. Included by cpu_matmul_neon_tmpl.h.
 *
 * SDOT and SMMLA multiply signed bytes, so the unpacked weights are *levels*:
 * codes minus the format's bias. SDOT multiplies 4 values of each of four
 * weight rows by 4 values of a row of activations. SMMLA multiplies 8 values of
 * each of two weight rows by 8 values of each of two rows of activations; its 2
 * x 2 results are reordered before they are scaled.
 *
 * All integer operations are exact, so the results are those that cpu_matmul.h
 * defines. Below is what cpu_gemm_codes_tmpl.h requires. */

/* The value of MIN_ROWS, from which GEMM replaces panel calls, is an estimate,
 * not measured. */
enum { TOK = 4, MIN_ROWS = 16, TILE_PASS = 16, CHUNK_PASS = 2 };

/* vectors of weight rows: 8 rows in all */
enum { VECTORS = 8 / W };

#define IN_MEMORY(array)

#include "device/cpu/cpu_gemm_units_tmpl.h"

TMPL int fold_of(struct shape f)
{
    return has_halves(f) || has_two_d(f) ? 4 : 8;
}

TMPL bool is_lifted(struct shape f)
{
    (void)f;
    return false;
}

TMPL bool is_apart(struct shape f)
{
    (void)f;
    return false;
}

TMPL int owed_of(struct shape f)
{
    (void)f;
    return 0;
}

TMPL vi scale_form(vi s, struct shape f)
{
    (void)f;
    return s;
}

TMPL void put_codes(uint8_t *dst, uint8_t *start, const vu code[8],
                    struct shape f)
{
    (void)start;
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        vi a = (vi)((vb)code[i] - (int8_t)bias_of(f));
        vi b = (vi)((vb)code[i + 1] - (int8_t)bias_of(f));

#ifdef __ARM_FEATURE_MATMUL_INT8
        /* SMMLA takes 8 values of each of two weight rows. So the two places of
         * a pair of dwords have those of rows 0 and 1 of the vector, and of
         * rows 2 and 3. */
        put(dst + ROW16 * i, (vi)vzip1q_s32((int32x4_t)a, (int32x4_t)b));
        put(dst + ROW16 * (i + 1), (vi)vzip2q_s32((int32x4_t)a, (int32x4_t)b));
#else
        put(dst + ROW16 * i, a);
        put(dst + ROW16 * (i + 1), b);
#endif
    }
}

#ifdef __ARM_FEATURE_MATMUL_INT8

TMPL void deal_values(uint8_t *dst, const struct q8_block *const x[TOK],
                      int64_t block, struct shape f)
{
    (void)f;
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < TOK; t++)
            memcpy(dst + 8 * (TOK * i + t), x[t][block].q + 8 * i, 8);
}

/* Sets dot[t][g] to the sum of products of row t of activations with the weight
 * rows of vector g, over n dwords. The arguments are those of fold_add(). */
TMPL void dots(int32x4_t dot[TOK][VECTORS], const uint8_t *codes, size_t step,
               const uint8_t *x, int n, const int n_tok)
{
    /* sum[r][p] has the products of weight rows 2r and 2r + 1 with rows 2p and
     * 2p + 1 of activations */
    int32x4_t sum[2 * VECTORS][TOK / 2];

    UNROLL
    for (int r = 0; r < 2 * VECTORS; r++) {
        UNROLL
        for (int p = 0; p < n_tok / 2; p++)
            sum[r][p] = vdupq_n_s32(0);
    }
    UNROLL
    for (int i = 0; i < n; i += 2) {
        int8x16_t v[TOK / 2];

        UNROLL
        for (int p = 0; p < n_tok / 2; p++)
            v[p] = (int8x16_t)get(x + TOK4 * i + 16 * p);
        UNROLL
        for (int r = 0; r < 2 * VECTORS; r++) {
            int8x16_t c = (int8x16_t)get(codes + ROW16 * (i + r % 2) +
                                         (size_t)(r / 2) * step);

            UNROLL
            for (int p = 0; p < n_tok / 2; p++)
                sum[r][p] = vmmlaq_s32(sum[r][p], c, v[p]);
        }
    }
    UNROLL
    for (int g = 0; g < VECTORS; g++) {
        UNROLL
        for (int p = 0; p < n_tok / 2; p++) {
            dot[2 * p][g] = vuzp1q_s32(sum[2 * g][p], sum[2 * g + 1][p]);
            dot[2 * p + 1][g] = vuzp2q_s32(sum[2 * g][p], sum[2 * g + 1][p]);
        }
    }
}

#else

TMPL void deal_values(uint8_t *dst, const struct q8_block *const x[TOK],
                      int64_t block, struct shape f)
{
    (void)f;
    for (int i = 0; i < 8; i++)
        for (int t = 0; t < TOK; t++)
            memcpy(dst + 4 * (TOK * i + t), x[t][block].q + 4 * i, 4);
}

TMPL void dots(int32x4_t dot[TOK][VECTORS], const uint8_t *codes, size_t step,
               const uint8_t *x, int n, const int n_tok)
{
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        UNROLL
        for (int g = 0; g < VECTORS; g++)
            dot[t][g] = vdupq_n_s32(0);
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        int8x16_t v = (int8x16_t)get(x + TOK4 * i);

        UNROLL
        for (int g = 0; g < VECTORS; g++) {
            int8x16_t c = (int8x16_t)get(codes + ROW16 * i + (size_t)g * step);

            dot[0][g] = vdotq_laneq_s32(dot[0][g], c, v, 0);
            dot[1][g] = vdotq_laneq_s32(dot[1][g], c, v, 1);
            if (n_tok == 2)
                continue;
            dot[2][g] = vdotq_laneq_s32(dot[2][g], c, v, 2);
            dot[3][g] = vdotq_laneq_s32(dot[3][g], c, v, 3);
        }
    }
}

#endif

TMPL void fold_add(vi isum[TOK][VECTORS], const uint8_t *codes,
                   const uint8_t *start, const uint8_t *scale, size_t step,
                   const uint8_t *x, const int n_tok, struct shape f)
{
    int32x4_t dot[TOK][VECTORS];

    (void)start;
    dots(dot, codes, step, x, fold_of(f), n_tok);
    UNROLL
    for (int g = 0; g < VECTORS; g++) {
        const vi s = has_scale(f) ? get(scale + (size_t)g * step) : v_set(1);

        UNROLL
        for (int t = 0; t < n_tok; t++)
            isum[t][g] += (vi)dot[t][g] * s;
    }
}

#include "device/cpu/cpu_gemm_codes_tmpl.h"
