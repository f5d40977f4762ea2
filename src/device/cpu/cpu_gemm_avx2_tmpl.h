/* Many rows of activations with AVX2: two panels times four rows, half a panel
 * at a time, the sums of four rows in registers. Included by
 * cpu_matmul_avx2.c.
 *
 * vpmaddubsw multiplies unsigned codes with signed activations and adds pairs;
 * as many of its results are added in 16 bits as cannot overflow, then one
 * vpmaddwd multiplies them by the scale, which is 1 where tiles have one of
 * their own, and widens. Levels are codes less a bias, so the bias times the
 * sum of the activations comes off: an integer too. Wide codes (8 bits, tables)
 * are signed: the sign moves to the activations first.
 *
 * All of it is exact, so it is the sum that cpu_matmul.h defines. */

#include "device/cpu/cpu_gemm_units_tmpl.h"

enum { TILE_PASS = 16, CHUNK_PASS = 2 };

/* ---- shapes -------------------------------------------------------------- */

/* Dwords of codes whose products are added in 16 bits. */
TMPL int fit_of(struct shape f)
{
    int max = (1 << (f.low_bits + f.high_bits)) - 1;
    int fit = is_wide(f) ? 1 : INT16_MAX / (2 * 127 * max);
    int most = has_halves(f) ? 4 : 8;

    return fit > most ? most : fit > 4 && fit < 8 ? 4 : fit == 3 ? 2 : fit;
}

/* An unpacked unit of a panel, all of 16 rows:
 *
 *   float d, [float -dmin, or d of the second half]; tiles of
 *       [int16 pairs (S, S) [1 or 2]], [int16 pairs -bias (S0, S1)],
 *       [int16 pairs (M0, M1)], int8 c[8][64]
 *
 * What a format has one of for all tiles, S = 1 and M = 1, is not stored. */
TMPL int head_bytes(struct shape f)
{
    return ROW16 * (has_min(f) || has_two_d(f) ? 2 : 1);
}

TMPL int tile_bias(struct shape f)
{
    return has_chunks(f) ? ROW16 * (has_halves(f) ? 2 : 1) : 0;
}

TMPL int tile_m(struct shape f)
{
    return tile_bias(f) + (has_chunks(f) && bias_of(f) != 0 ? ROW16 : 0);
}

TMPL int tile_codes(struct shape f)
{
    return tile_m(f) + (has_chunks(f) && has_min(f) ? ROW16 : 0);
}

TMPL int tile_size(struct shape f)
{
    return tile_codes(f) + 8 * ROW16;
}

TMPL int unit_size(struct shape f)
{
    return head_bytes(f) + tiles_of(f) * tile_size(f);
}

/* A unit of arranged activations: int8 x[tiles][8][TOK][4]; float d[TOK];
 * int16 sums of halves [tiles][TOK][2]. */
TMPL int act_size(struct shape f)
{
    return act_sums(f) + tiles_of(f) * TOK4;
}

/* ---- unpacking ----------------------------------------------------------- */

TMPL void unpack_tile(uint8_t *unit, int i, int h, const uint8_t *low,
                      const struct scales *w, vu table, struct shape f)
{
    uint8_t *dst = unit + head_bytes(f) + i * tile_size(f) + 4 * W * h;
    vi minus = v_set(-bias_of(f));
    vu code[8];

    unpack(code, low, low + 64 * f.low_bits, table, f);
    for (int j = 0; j < 8; j++)
        put(dst + tile_codes(f) + ROW16 * j, (vi)code[j]);
    if (!has_chunks(f))
        return;
    put(dst, pair(w->s[0], w->s[0]));
    if (has_halves(f))
        put(dst + ROW16, pair(w->s[1], w->s[1]));
    if (bias_of(f) != 0)
        put(dst + tile_bias(f),
            pair(w->s[0] * minus, w->s[has_halves(f) ? 1 : 0] * minus));
    if (has_min(f))
        put(dst + tile_m(f), w->m);
}

/* ---- activations --------------------------------------------------------- */

TMPL void deal_tile(uint8_t *unit, const struct q8_block *const x[TOK],
                    int64_t block, int i, struct shape f)
{
    __m256i q[TOK];

    for (int t = 0; t < TOK; t++) {
        memcpy(unit + act_sums(f) + i * TOK4 + 4 * t, x[t][block].sum, 4);
        q[t] = _mm256_loadu_si256((const __m256i *)x[t][block].q);
    }
    deal_dwords(unit + i * 8 * TOK4, q);
}

/* ---- products ------------------------------------------------------------ */

/* isum[t] += the products of dwords first .. first + n - 1 of half a panel's
 * tile, times the scale. */
TMPL void add_fold(vi isum[TOK], const uint8_t *codes, const uint8_t *x,
                   vi scale, int first, int n, const int n_tok, struct shape f)
{
    __m256i sum[TOK];

    UNROLL
    for (int i = first; i < first + n; i++) {
        const __m256i c = (__m256i)get(codes + ROW16 * i);
        const __m256i size = _mm256_abs_epi8(c);

        UNROLL
        for (int t = 0; t < n_tok; t++) {
            __m256i v = _mm256_set1_epi32(load_dword(x + i * TOK4 + 4 * t));

            v = is_wide(f) ? _mm256_maddubs_epi16(size, _mm256_sign_epi8(v, c))
                           : _mm256_maddubs_epi16(c, v);
            sum[t] = i == first ? v : _mm256_add_epi16(sum[t], v);
            /* or the sums would be reordered, and wait in memory */
            __asm__("" : "+x"(sum[t]));
        }
    }
    UNROLL
    for (int t = 0; t < n_tok; t++)
        isum[t] += v_pairs((vi)sum[t], scale);
}

/* Rows W * h and on of a panel, whose unpacked units begin at w, and so many of
 * its accumulators from at[t]. */
TMPL void run_half(const uint8_t *w, const uint8_t *x, float *const *at,
                   int64_t n_unit, const int n_tok, struct shape f)
{
    const int fit = fit_of(f);
    vf acc[TOK];

    UNROLL
    for (int t = 0; t < n_tok; t++)
        acc[t] = (vf)load(at[t]);
    for (int64_t u = 0; u < n_unit; u++) {
        vi isum[TOK], msum[TOK]; /* msum: or the second half's isum */

        UNROLL
        for (int t = 0; t < n_tok; t++)
            isum[t] = msum[t] = v_set(0);
#pragma GCC unroll 1
        for (int i = 0; i < tiles_of(f); i++) {
            const uint8_t *tile = w + head_bytes(f) + i * tile_size(f);
            const uint8_t *sums = x + act_sums(f) + i * TOK4;

            UNROLL
            for (int k = 0; k < 8; k += fit) {
                vi scale = v_set(0x00010001);

                if (has_chunks(f))
                    scale = get(tile + (has_halves(f) && k >= 4 ? ROW16 : 0));
                add_fold(has_two_d(f) && k >= 4 ? msum : isum,
                         tile + tile_codes(f), x + i * 8 * TOK4, scale, k, fit,
                         n_tok, f);
            }
            UNROLL
            for (int t = 0; t < n_tok; t++) {
                vi s = v_set(load_dword(sums + 4 * t));
                vi minus = v_set(-bias_of(f));

                if (bias_of(f) != 0)
                    isum[t] +=
                        v_pairs(s, has_chunks(f) ? get(tile + tile_bias(f))
                                                 : pair(minus, minus));
                if (has_min(f))
                    msum[t] += v_pairs(s, has_chunks(f) ? get(tile + tile_m(f))
                                                        : v_set(0x00010001));
            }
        }
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            vf d = (vf)v_set(load_dword(x + act_d(f) + 4 * t));

            acc[t] = v_fma((vf)get(w) * d, v_int_f(isum[t]), acc[t]);
            if (has_min(f) || has_two_d(f))
                acc[t] =
                    v_fma((vf)get(w + ROW16) * d, v_int_f(msum[t]), acc[t]);
        }
        w += unit_size(f);
        x += act_size(f);
    }
    UNROLL
    for (int t = 0; t < n_tok; t++)
        memcpy(at[t], &acc[t], sizeof acc[t]);
}

TMPL void gemm_products(const uint8_t *w, size_t stride, const uint8_t *x,
                        size_t x_step, float *const *acc, int64_t n_row,
                        int64_t n_unit, bool fresh, struct shape f)
{
    float nowhere[GEMM_WIDTH] = {0};

    for (; n_row > 0; n_row -= TOK, acc += TOK, x += x_step) {
        if (fresh)
            gemm_fresh(acc, n_row < TOK ? n_row : TOK);
        for (int g = 0; g < GEMM_PANELS; g++)
            for (int h = 0; h < HALVES; h++) {
                const uint8_t *from = w + (size_t)g * stride + 4 * W * h;
                float *at[TOK];

                for (int t = 0; t < TOK; t++)
                    at[t] =
                        (t < n_row ? acc[t] : nowhere) + PACK_ROWS * g + W * h;
                if (n_row > 2)
                    run_half(from, x, at, n_unit, TOK, f);
                else
                    run_half(from, x, at, n_unit, 2, f);
            }
    }
}

#include "device/cpu/cpu_gemm_formats_tmpl.h"
