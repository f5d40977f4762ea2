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
 * defines. */

/* The value of MIN_ROWS, from which GEMM replaces panel calls, is an estimate,
 * not measured. */
enum { TOK = 4, MIN_ROWS = 16, TILE_PASS = 16, CHUNK_PASS = 2 };

#include "device/cpu/cpu_gemm_units_tmpl.h"

/* ---- layout of unpacked weights and of activations ----------------------- */

/* The layout of the unpacked weights of one panel and one unit (a tile of 32 k,
 * or a chunk of 256). Each field is for 16 rows, and fields in [] are optional.
 * d, dmin, S and M are those of quant/pack.h. The functions below return
 * offsets and sizes in bytes.
 *
 *   float d, [float -dmin, or d of the second half]; tiles of
 *       [int32 S [1 or 2]], [int16 pairs (M0, M1)], int8 level[512]
 *
 * S and M are not stored if the format has none (they are then 1). The order of
 * a tile's levels is [8][16 rows][4] for SDOT, and [4][16 rows][8] for
 * SMMLA. */
TMPL int head_bytes(struct shape f)
{
    return ROW16 * (has_min(f) || has_two_d(f) ? 2 : 1);
}

TMPL int tile_m(struct shape f)
{
    return has_chunks(f) ? ROW16 * (has_halves(f) ? 2 : 1) : 0;
}

TMPL int tile_levels(struct shape f)
{
    return tile_m(f) + (has_chunks(f) && has_min(f) ? ROW16 : 0);
}

TMPL int tile_size(struct shape f)
{
    return tile_levels(f) + 8 * ROW16;
}

TMPL int unit_size(struct shape f)
{
    return head_bytes(f) + tiles_of(f) * tile_size(f);
}

/* Returns the size in bytes of TOK arranged rows of activations for one unit (a
 * tile of 32 k, or a chunk of 256): int8 x[tiles][8][TOK][4] for SDOT or
 * [tiles][4][TOK][8] for SMMLA; float d[TOK]; int16 sums of activations over
 * half tiles [tiles][TOK][2]. */
TMPL int act_size(struct shape f)
{
    return act_sums(f) + tiles_of(f) * TOK4;
}

/* ---- differences between SDOT and SMMLA ---------------------------------- */

/* number of vectors of weight rows that are multiplied together: 8 rows in
 * all */
enum { ROWS = 8 / W };

#ifdef __ARM_FEATURE_MATMUL_INT8

/* distance in bytes, in an unpacked tile, from the levels of one vector of W
 * weight rows to those of the next vector */
enum { VECTOR_LEVELS = 8 * W };

/* Stores the levels of dwords i and i + 1 (values 4 i .. 4 i + 7) of the four
 * weight rows in vector h of a tile; i is even. */
TMPL void put_levels(uint8_t *levels, const vu code[2], int h, int i)
{
    uint32x4_t a = (uint32x4_t)code[0], b = (uint32x4_t)code[1];
    uint8_t *dst = levels + ROW16 * i + VECTOR_LEVELS * h;

    vst1q_u8(dst, vreinterpretq_u8_u32(vzip1q_u32(a, b)));
    vst1q_u8(dst + 16, vreinterpretq_u8_u32(vzip2q_u32(a, b)));
}

/* Arranges block `block`, 32 values, of each of TOK rows of activations at dst,
 * in the order that the multiply instruction needs. */
TMPL void deal_values(uint8_t *dst, const struct q8_block *const x[TOK],
                      int64_t block)
{
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < TOK; t++)
            memcpy(dst + 8 * (TOK * i + t), x[t][block].q + 8 * i, 8);
}

/* Sets dot[t][h] to the sum of products of row t of activations with the weight
 * rows of vector h, over dwords first .. first + n - 1 of a tile. A dword has
 * four consecutive values of a row. */
TMPL void dots(int32x4_t dot[TOK][ROWS], const uint8_t *levels,
               const uint8_t *x, int first, int n)
{
    /* sum[r][p] has the products of weight rows 2r and 2r + 1 with rows 2p and
     * 2p + 1 of activations */
    int32x4_t sum[2 * ROWS][TOK / 2];

    UNROLL
    for (int r = 0; r < 2 * ROWS; r++) {
        UNROLL
        for (int p = 0; p < TOK / 2; p++)
            sum[r][p] = vdupq_n_s32(0);
    }
    UNROLL
    for (int i = first / 2; i < (first + n) / 2; i++) {
        int8x16_t v[TOK / 2];

        UNROLL
        for (int p = 0; p < TOK / 2; p++)
            v[p] = vreinterpretq_s8_u8(vld1q_u8(x + 2 * TOK4 * i + 16 * p));
        UNROLL
        for (int r = 0; r < 2 * ROWS; r++) {
            int8x16_t c =
                vreinterpretq_s8_u8(vld1q_u8(levels + 2 * ROW16 * i + 16 * r));

            UNROLL
            for (int p = 0; p < TOK / 2; p++)
                sum[r][p] = vmmlaq_s32(sum[r][p], c, v[p]);
        }
    }
    UNROLL
    for (int h = 0; h < ROWS; h++) {
        UNROLL
        for (int p = 0; p < TOK / 2; p++) {
            dot[2 * p][h] = vuzp1q_s32(sum[2 * h][p], sum[2 * h + 1][p]);
            dot[2 * p + 1][h] = vuzp2q_s32(sum[2 * h][p], sum[2 * h + 1][p]);
        }
    }
}

#else

enum { VECTOR_LEVELS = 4 * W };

TMPL void put_levels(uint8_t *levels, const vu code[2], int h, int i)
{
    memcpy(levels + ROW16 * i + VECTOR_LEVELS * h, &code[0], sizeof code[0]);
    memcpy(levels + ROW16 * (i + 1) + VECTOR_LEVELS * h, &code[1],
           sizeof code[1]);
}

TMPL void deal_values(uint8_t *dst, const struct q8_block *const x[TOK],
                      int64_t block)
{
    for (int i = 0; i < 8; i++)
        for (int t = 0; t < TOK; t++)
            memcpy(dst + 4 * (TOK * i + t), x[t][block].q + 4 * i, 4);
}

TMPL void dots(int32x4_t dot[TOK][ROWS], const uint8_t *levels,
               const uint8_t *x, int first, int n)
{
    UNROLL
    for (int t = 0; t < TOK; t++) {
        UNROLL
        for (int h = 0; h < ROWS; h++)
            dot[t][h] = vdupq_n_s32(0);
    }
    UNROLL
    for (int i = first; i < first + n; i++) {
        int8x16_t v = vreinterpretq_s8_u8(vld1q_u8(x + TOK4 * i));

        UNROLL
        for (int h = 0; h < ROWS; h++) {
            int8x16_t c = vreinterpretq_s8_u8(
                vld1q_u8(levels + ROW16 * i + VECTOR_LEVELS * h));

            dot[0][h] = vdotq_laneq_s32(dot[0][h], c, v, 0);
            dot[1][h] = vdotq_laneq_s32(dot[1][h], c, v, 1);
            dot[2][h] = vdotq_laneq_s32(dot[2][h], c, v, 2);
            dot[3][h] = vdotq_laneq_s32(dot[3][h], c, v, 3);
        }
    }
}

#endif

/* ---- unpacking of weights ------------------------------------------------ */

TMPL void unpack_tile(uint8_t *unit, int i, int h, const uint8_t *low,
                      const struct scales *w, vu table, struct shape f)
{
    uint8_t *dst = unit + head_bytes(f) + i * tile_size(f);
    vu code[8];

    unpack(code, low, low + 64 * f.low_bits, table, f);
    UNROLL
    for (int j = 0; j < 8; j++)
        code[j] =
            (vu)vsubq_s8((int8x16_t)code[j], vdupq_n_s8((int8_t)bias_of(f)));
    UNROLL
    for (int j = 0; j < 8; j += 2)
        put_levels(dst + tile_levels(f), code + j, h, j);
    dst += 4 * W * h;
    if (!has_chunks(f))
        return;
    put(dst, w->s[0]);
    if (has_halves(f))
        put(dst + ROW16, w->s[1]);
    if (has_min(f))
        put(dst + tile_m(f), w->m);
}

/* ---- arranging of activations -------------------------------------------- */

TMPL void deal_tile(uint8_t *unit, const struct q8_block *const x[TOK],
                    int64_t block, int i, struct shape f)
{
    for (int t = 0; t < TOK; t++)
        memcpy(unit + act_sums(f) + i * TOK4 + 4 * t, x[t][block].sum, 4);
    deal_values(unit + i * 8 * TOK4, x, block);
}

/* ---- products of weights and activations --------------------------------- */

/* Multiplies row t of activations by the weight rows of vector h, over dwords
 * first .. first + n - 1 (four values each) of a tile. Adds the sum, times the
 * integer scales S at `scale`, to isum[t][h], for all t and h. */
TMPL void add_scaled(vi isum[TOK][ROWS], const uint8_t *levels,
                     const uint8_t *x, const uint8_t *scale, int first, int n)
{
    int32x4_t dot[TOK][ROWS];

    dots(dot, levels, x, first, n);
    UNROLL
    for (int h = 0; h < ROWS; h++) {
        int32x4_t s = (int32x4_t)get(scale + 4 * W * h);

        UNROLL
        for (int t = 0; t < TOK; t++)
            isum[t][h] = (vi)vmlaq_s32((int32x4_t)isum[t][h], dot[t][h], s);
    }
}

/* Returns msum (cpu_matmul.h) over one unit (a tile or a chunk): the sum over
 * its tiles of the integer minima M times the sums of activations. It is for
 * one vector of weight rows, whose minima begin at `m`, and one row of
 * activations, whose sums begin at `sums`. */
TMPL vi minima(const uint8_t *m, const uint8_t *sums, struct shape f)
{
    vi sum = v_set(0);

    UNROLL
    for (int i = 0; i < tiles_of(f); i++)
        sum += v_pairs(v_set(load_dword(sums + i * TOK4)),
                       has_chunks(f) ? get(m + i * tile_size(f))
                                     : v_set(0x00010001));
    return sum;
}

/* Multiplies ROWS vectors of weight rows by TOK rows of activations over n_unit
 * units (ranges of k). `w` points to the weights' scales, `l` to their levels,
 * and `x` to the activations, all in the first unit. at[t] points to the
 * accumulators of row t. */
TMPL void run_rows(const uint8_t *w, const uint8_t *l, const uint8_t *x,
                   float *const *at, int64_t n_unit, struct shape f)
{
    vf acc[TOK][ROWS];

    UNROLL
    for (int t = 0; t < TOK; t++) {
        UNROLL
        for (int h = 0; h < ROWS; h++)
            acc[t][h] = (vf)load(at[t] + W * h);
    }
    for (int64_t u = 0; u < n_unit; u++) {
        vi isum[TOK][ROWS], second[TOK][ROWS];

        if (has_chunks(f)) {
            UNROLL
            for (int t = 0; t < TOK; t++) {
                UNROLL
                for (int h = 0; h < ROWS; h++)
                    isum[t][h] = v_set(0);
            }
#pragma GCC unroll 1
            for (int i = 0; i < 8; i++) {
                const uint8_t *tile = w + head_bytes(f) + i * tile_size(f);
                const uint8_t *levels = l + i * tile_size(f);
                const uint8_t *v = x + i * 8 * TOK4;

                if (has_halves(f)) {
                    add_scaled(isum, levels, v, tile, 0, 4);
                    add_scaled(isum, levels, v, tile + ROW16, 4, 4);
                } else {
                    add_scaled(isum, levels, v, tile, 0, 8);
                }
            }
        } else {
            int32x4_t dot[TOK][ROWS];

            dots(dot, l, x, 0, has_two_d(f) ? 4 : 8);
            UNROLL
            for (int t = 0; t < TOK; t++) {
                UNROLL
                for (int h = 0; h < ROWS; h++)
                    isum[t][h] = (vi)dot[t][h];
            }
            if (has_two_d(f)) {
                dots(dot, l, x, 4, 4);
                UNROLL
                for (int t = 0; t < TOK; t++) {
                    UNROLL
                    for (int h = 0; h < ROWS; h++)
                        second[t][h] = (vi)dot[t][h];
                }
            }
        }
        UNROLL
        for (int t = 0; t < TOK; t++) {
            UNROLL
            for (int h = 0; h < ROWS; h++) {
                const uint8_t *wh = w + 4 * W * h;
                vf d = (vf)v_set(load_dword(x + act_d(f) + 4 * t));

                acc[t][h] =
                    v_fma((vf)get(wh) * d, v_int_f(isum[t][h]), acc[t][h]);
                if (has_two_d(f))
                    acc[t][h] = v_fma((vf)get(wh + ROW16) * d,
                                      v_int_f(second[t][h]), acc[t][h]);
                if (has_min(f))
                    acc[t][h] =
                        v_fma((vf)get(wh + ROW16) * d,
                              v_int_f(minima(wh + head_bytes(f) + tile_m(f),
                                             x + act_sums(f) + 4 * t, f)),
                              acc[t][h]);
            }
        }
        w += unit_size(f);
        l += unit_size(f);
        x += act_size(f);
    }
    UNROLL
    for (int t = 0; t < TOK; t++) {
        UNROLL
        for (int h = 0; h < ROWS; h++)
            memcpy(at[t] + W * h, &acc[t][h], sizeof acc[t][h]);
    }
}

TMPL void gemm_products(const struct gemm_pass *p, struct shape f)
{
    const uint8_t *w = p->weight, *x = p->act;
    float *const *to = p->to;
    int64_t n_row = p->n_row;
    float nowhere[GEMM_WIDTH] = {0};

    for (; n_row > 0; n_row -= TOK, to += TOK, x += p->act_step) {
        if (!p->from)
            gemm_clear(to, n_row < TOK ? n_row : TOK);
        for (int g = 0; g < GEMM_PANELS; g++)
            for (int h = 0; h < HALVES; h += ROWS) {
                const uint8_t *panel = w + (size_t)g * p->stride;
                float *at[TOK];

                for (int t = 0; t < TOK; t++)
                    at[t] =
                        (t < n_row ? to[t] : nowhere) + PACK_ROWS * g + W * h;
                run_rows(panel + 4 * W * h,
                         panel + head_bytes(f) + tile_levels(f) +
                             VECTOR_LEVELS * h,
                         x, at, p->n_unit, f);
            }
    }
}

#include "device/cpu/cpu_gemm_formats_tmpl.h"
