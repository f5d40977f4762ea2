/* GEMM with quantized weights and vectors: VECTORS vectors of weight rows times
 * TOK rows of activations, whose integer sums stay in registers. One source for
 * AVX2, VNNI and NEON. Included at the end of cpu_gemm_{avx2,vnni,neon}_tmpl.h.
 *
 * A *dword* is four consecutive values of a row. A *fold* is the dwords whose
 * products are summed before they are multiplied by their common scale. All
 * integer operations are exact, so the results are those that cpu_matmul.h
 * defines. The including file defines, besides what cpu_gemm_formats_tmpl.h
 * requires:
 *
 *   VECTORS       vectors of weight rows that are multiplied together
 *   fold_of       number of dwords of a fold: 1, 2, 4 or 8
 *   is_lifted     true if activations are stored as q + 128. The sum of a fold
 *                 then starts at -128 times the sum of its codes.
 *   owed_of       constant that is subtracted from codes in addition to their
 *                 bias; run_chunks() adds it back, times the scale and the sum
 *                 of the activations. 0 if there is none.
 *   scale_form    the form in which an integer scale is stored
 *   put_codes     stores a tile's codes minus bias and owed_of() at `dst`, and
 *                 the start values of its folds' sums at `start`
 *   fold_add      adds the products of a fold, times the integer scale S, to
 *                 isum[row of activations][vector of weight rows]. The fold's
 *                 codes, start values and scales of the first vector are at
 *                 `codes`, `start` and `scale`, those of the next vectors
 *                 `step` bytes apart; its activations are at x.
 *   deal_values   arranges the values of one block of TOK rows of activations
 *   IN_MEMORY     makes the compiler keep an array in memory at this point,
 *                 because all registers are needed for other values; or nothing
 *   is_apart      true if the sums of a tile stay in registers and are then
 *                 added to those of its chunk
 */

/* ---- layout of unpacked weights and of activations ----------------------- */

/* The layout of the unpacked weights of one panel and one unit (a tile of 32 k,
 * or a chunk of 256): scales and minima, called the head, followed by tiles.
 * Each field is for 16 rows, and fields in [] are optional. d, dmin, S and M
 * are those of quant/pack.h, c are codes minus bias and `owed`, which is
 * owed_of(), and start are the start values of the folds' sums. The functions
 * below return offsets and sizes in bytes.
 *
 *   head     float d, [float -dmin, or d of the second half],
 *            [int16 pairs owed S, of two tiles [4]],
 *            [int16 pairs M, of two tiles [4] or of two halves [8]]
 *   tile     [start [folds]], [S in scale_form() [1 or 2]], int8 c[8][64]
 *
 * S and M are not stored if the format has none (they are then 1). */
TMPL int head_owed(struct shape f)
{
    return ROW16 * (has_min(f) || has_two_d(f) ? 2 : 1);
}

TMPL int head_m(struct shape f)
{
    return head_owed(f) + (owed_of(f) ? 4 * ROW16 : 0);
}

TMPL int head_bytes(struct shape f)
{
    return head_m(f) + ROW16 * minima_of(f);
}

TMPL int tile_scale(struct shape f)
{
    return is_lifted(f) ? ROW16 * (8 / fold_of(f)) : 0;
}

TMPL int tile_codes(struct shape f)
{
    return tile_scale(f) + (has_scale(f) ? ROW16 * (has_halves(f) ? 2 : 1) : 0);
}

TMPL int tile_size(struct shape f)
{
    return tile_codes(f) + 8 * ROW16;
}

TMPL int unit_size(struct shape f)
{
    return head_bytes(f) + tiles_of(f) * tile_size(f);
}

/* Returns the size in bytes of TOK arranged rows of activations for one unit (a
 * tile of 32 k, or a chunk of 256): bytes x[tiles][8][TOK][4]; float d[TOK]. If
 * the format has minima, sums of activations follow: float sum[TOK] if the unit
 * is a tile. If it is a chunk, int16 pairs follow: the sums of two tiles,
 * [4][TOK], or of the two halves of a tile, [8][TOK]. */
TMPL int act_size(struct shape f)
{
    return act_sums(f) + TOK4 * (has_chunks(f) ? minima_of(f)
                                 : has_min(f)  ? 1
                                               : 0);
}

/* ---- unpacking of weights ------------------------------------------------ */

TMPL void unpack_tile(uint8_t *unit, int i, int h, const uint8_t *low,
                      const struct scales *w, vu table, struct shape f)
{
    uint8_t *dst = unit + 4 * W * h + head_bytes(f) + i * tile_size(f);
    vu code[8];

    unpack(code, low, low + 64 * f.low_bits, table, f);
    put_codes(dst + tile_codes(f), dst, code, f);
    if (has_scale(f))
        put(dst + tile_scale(f), scale_form(w->s[0], f));
    if (has_halves(f))
        put(dst + tile_scale(f) + ROW16, scale_form(w->s[1], f));
    unit += 4 * W * h;
    if (owed_of(f))
        put_int16(unit + head_owed(f), i, w->s[0] * owed_of(f));
    if (has_chunks(f) && has_min(f))
        unpack_minima(unit + head_m(f), w, i, f);
}

/* ---- arranging of activations -------------------------------------------- */

TMPL void deal_tile(uint8_t *unit, const struct q8_block *const x[TOK],
                    int64_t block, int i, struct shape f)
{
    deal_values(unit + i * 8 * TOK4, x, block, f);
    for (int t = 0; has_min(f) && t < TOK; t++) {
        uint8_t *sums = unit + act_sums(f) + 4 * t;
        int16_t both = (int16_t)(x[t][block].sum[0] + x[t][block].sum[1]);
        float sum = both;

        if (!has_chunks(f))
            memcpy(sums, &sum, sizeof sum);
        else if (has_half_min(f))
            memcpy(sums + i * TOK4, x[t][block].sum, sizeof x[t][block].sum);
        else
            memcpy(sums + i / 2 * TOK4 + i % 2 * 2, &both, sizeof both);
    }
}

/* ---- products of weights and activations --------------------------------- */

/* Multiplies dwords first .. first + n - 1 of a tile by n_tok rows of
 * activations. Adds the sums of products, times the integer scales S, to
 * isum[row of activations][vector of weight rows]. The unpacked weights of the
 * VECTORS vectors are `step` bytes apart. */
TMPL void add_tile(vi isum[TOK][VECTORS], const uint8_t *tile, size_t step,
                   const uint8_t *x, int first, int n, const int n_tok,
                   struct shape f)
{
    const uint8_t *codes = tile + tile_codes(f), *scale = tile + tile_scale(f);

    UNROLL
    for (int i = first; i < first + n; i += fold_of(f))
        fold_add(isum, codes + ROW16 * i, tile + ROW16 * (i / fold_of(f)),
                 scale + (has_halves(f) && i >= 4 ? ROW16 : 0), step,
                 x + TOK4 * i, n_tok, f);
}

TMPL void clear(vi isum[TOK][VECTORS], const int n_tok)
{
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        UNROLL
        for (int g = 0; g < VECTORS; g++)
            isum[t][g] = v_set(0);
    }
}

/* Returns the sum of the products of n int16 pairs for each weight row with n
 * pairs of one row of activations. */
TMPL vi pairs_sum(const uint8_t *w, const uint8_t *x, int n)
{
    vi v = v_set(0);

    UNROLL
    for (int i = 0; i < n; i++)
        v = v_pairs_add(v, dword_at(x + i * TOK4), get(w + ROW16 * i));
    return v;
}

TMPL void run_tiles(const uint8_t *w, size_t step, const uint8_t *x,
                    float *const *at, int64_t n_unit, const int n_tok,
                    struct shape f)
{
    const int n = has_two_d(f) ? 4 : 8;
    vf acc[TOK][VECTORS];

    UNROLL
    for (int t = 0; t < n_tok; t++) {
        UNROLL
        for (int g = 0; g < VECTORS; g++)
            acc[t][g] = (vf)load(at[t] + W * g);
    }
    for (int64_t u = 0; u < n_unit; u++) {
        IN_MEMORY(acc);
        UNROLL
        for (int first = 0; first < 8; first += n) {
            const uint8_t *wd = w + (first ? ROW16 : 0);
            vi isum[TOK][VECTORS];

            clear(isum, n_tok);
            add_tile(isum, w + head_bytes(f), step, x, first, n, n_tok, f);
            UNROLL
            for (int t = 0; t < n_tok; t++) {
                vf d = (vf)dword_at(x + act_d(f) + 4 * t);

                UNROLL
                for (int g = 0; g < VECTORS; g++) {
                    acc[t][g] = v_fma(d * (vf)get(wd + (size_t)g * step),
                                      v_int_f(isum[t][g]), acc[t][g]);
                    if (has_min(f))
                        acc[t][g] = v_fma(
                            d * (vf)get(w + ROW16 + (size_t)g * step),
                            (vf)dword_at(x + act_sums(f) + 4 * t), acc[t][g]);
                }
            }
        }
        w += unit_size(f);
        x += act_size(f);
    }
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        UNROLL
        for (int g = 0; g < VECTORS; g++)
            memcpy(at[t] + W * g, &acc[t][g], sizeof acc[t][g]);
    }
}

TMPL void run_chunks(const uint8_t *w, size_t step, const uint8_t *x,
                     float *const *at, int64_t n_unit, const int n_tok,
                     struct shape f)
{
    for (int64_t u = 0; u < n_unit; u++) {
        vi isum[TOK][VECTORS];

        UNROLL
        for (int t = 0; t < n_tok; t++) {
            UNROLL
            for (int g = 0; g < VECTORS; g++)
                isum[t][g] =
                    owed_of(f) ? pairs_sum(w + (size_t)g * step + head_owed(f),
                                           x + act_sums(f) + 4 * t, 4)
                               : v_set(0);
        }
#pragma GCC unroll 1
        for (int i = 0; i < 8; i++) {
            const uint8_t *tile = w + head_bytes(f) + i * tile_size(f);
            vi one[TOK][VECTORS];

            IN_MEMORY(isum);
            if (!is_apart(f)) {
                add_tile(isum, tile, step, x + i * 8 * TOK4, 0, 8, n_tok, f);
                continue;
            }
            clear(one, n_tok);
            add_tile(one, tile, step, x + i * 8 * TOK4, 0, 8, n_tok, f);
            UNROLL
            for (int t = 0; t < n_tok; t++) {
                UNROLL
                for (int g = 0; g < VECTORS; g++)
                    isum[t][g] += one[t][g];
            }
        }
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            vf d = (vf)dword_at(x + act_d(f) + 4 * t);

            UNROLL
            for (int g = 0; g < VECTORS; g++) {
                const uint8_t *wg = w + (size_t)g * step;
                vf acc = (vf)load(at[t] + W * g);

                acc = v_fma(d * (vf)get(wg), v_int_f(isum[t][g]), acc);
                if (has_min(f))
                    acc = v_fma(d * (vf)get(wg + ROW16),
                                v_int_f(pairs_sum(wg + head_m(f),
                                                  x + act_sums(f) + 4 * t,
                                                  minima_of(f))),
                                acc);
                memcpy(at[t] + W * g, &acc, sizeof acc);
            }
        }
        w += unit_size(f);
        x += act_size(f);
    }
}

GEMM_ROWS(gemm_chunks, TOK, VECTORS *W, run_chunks)
GEMM_ROWS(gemm_tiles, TOK, VECTORS *W, run_tiles)

TMPL void gemm_products(const struct gemm_pass *p, struct shape f)
{
    if (has_chunks(f))
        gemm_chunks(p, f);
    else
        gemm_tiles(p, f);
}

#include "device/cpu/cpu_gemm_formats_tmpl.h"
