/* GEMM with AVX2: multiplies a panel, which is two vectors of weight rows, by
 * four rows of activations, with the eight sums in registers. Included by
 * cpu_matmul_avx2.c.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds pairs of products to
 * an int16 with saturation. vpaddw adds such int16 without saturation. The sum
 * of a *fold* of 4, 8, 16 or 32 values is therefore exact if each pair and the
 * whole fold fit an int16; intermediate sums may wrap. One vpmaddwd then
 * multiplies the fold by its scale (1 if the tile has a float scale) and widens
 * it to int32.
 *
 * *Levels*, codes minus the format's bias, are centred at zero and so give the
 * smallest sums. They are the signed operand; the unsigned operand is q + 128,
 * where q are the activations. A sum starts at -128 times the sum of its
 * levels, which the unpacked panel stores. Formats with minima have no bias:
 * their codes are the unsigned operand, and q the signed one. If levels exceed
 * 64, pairs would saturate. Then the absolute values of the levels are
 * multiplied by activations with the sign of the level, and each pair is
 * widened.
 *
 * All integer operations are exact, so the results are those that cpu_matmul.h
 * defines. */

#include "device/cpu/cpu_gemm_units_tmpl.h"

enum { VECTORS = HALVES, TILE_PASS = 16, CHUNK_PASS = 2 };

/* ---- layout of unpacked weights and of activations ----------------------- */

/* Returns the largest magnitude of the format's levels (codes minus bias, or
 * table entries), or of its codes if it has minima. The constants for formats
 * with a table follow from the tables in quant/format.c. */
TMPL int greatest_of(struct shape f)
{
    const int top = (1 << (f.low_bits + f.high_bits)) - 1 - f.bias;

    if (f.sub == PACK_SUB_E8M0 || f.sub == PACK_SUB_UE4M3X2)
        return 12;
    if (f.table)
        return f.low_bits == 2 ? 43 : 128;
    return f.bias > top ? f.bias : top;
}

/* Returns true if the format has levels above 64. Two products with such a
 * level may exceed an int16, so each pair of products must be widened before it
 * is added. */
TMPL bool is_large(struct shape f)
{
    return greatest_of(f) > 64;
}

/* Returns true if the GEMM stores activations as q + 128, so that they are the
 * unsigned operand of vpmaddubsw and the signed levels of the weights the other
 * one. */
TMPL bool is_lifted(struct shape f)
{
    return !is_large(f) && (f.bias != 0 || f.table);
}

/* Returns the number of dwords in a fold. A dword has four consecutive values
 * of a row. The products of a fold are summed as int16: each dword adds two
 * products to each of them, and the whole sum must fit. */
TMPL int fold_of(struct shape f)
{
    int fit = INT16_MAX / (2 * 127 * greatest_of(f));

    if (fit >= 8 && !has_halves(f) && !has_two_d(f))
        return 8;
    return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

/* The layout of the unpacked weights of one panel and one unit (a tile of 32 k,
 * or a chunk of 256): scales and minima, called the head, followed by tiles.
 * Each field is for 16 rows, and fields in [] are optional. d, dmin, S and M
 * are those of quant/pack.h, c are levels or codes, and init are the start
 * values of the folds' sums. The functions below return offsets and sizes in
 * bytes.
 *
 *   head     float d, [float -dmin, or d of the second half],
 *            [int16 pairs M, of two tiles [4] or of two halves [8]]
 *   tile     [int16 pairs (S, S) [1 or 2]], [int16 pairs init [folds]],
 *            int8 c[8][64]
 *
 * S and M are not stored if the format has none (they are then 1). */
TMPL int head_m(struct shape f)
{
    return ROW16 * (has_min(f) || has_two_d(f) ? 2 : 1);
}

TMPL int head_bytes(struct shape f)
{
    return head_m(f) + (has_chunks(f) && has_min(f)
                            ? ROW16 * (has_half_min(f) ? 8 : 4)
                            : 0);
}

TMPL int tile_init(struct shape f)
{
    return has_scale(f) ? ROW16 * (has_halves(f) ? 2 : 1) : 0;
}

TMPL int tile_codes(struct shape f)
{
    return tile_init(f) + (is_lifted(f) ? ROW16 * (8 / fold_of(f)) : 0);
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
    if (!has_min(f))
        return act_sums(f);
    if (!has_chunks(f))
        return act_sums(f) + TOK4;
    return act_sums(f) + (has_half_min(f) ? 8 : 4) * TOK4;
}

/* ---- unpacking of weights ------------------------------------------------ */

TMPL void unpack_codes(uint8_t *dst, const uint8_t *low, vu table,
                       struct shape f)
{
    const __m256i flip = _mm256_set1_epi8((char)128);
    const __m256i bias = _mm256_set1_epi8((char)bias_of(f));
    vu code[8];

    unpack(code, low, low + 64 * f.low_bits, table, f);
    UNROLL
    for (int i = 0; i < 8; i += fold_of(f)) {
        __m256i init = _mm256_setzero_si256();

        UNROLL
        for (int j = i; j < i + fold_of(f); j++) {
            __m256i c = _mm256_sub_epi8((__m256i)code[j], bias);

            init = _mm256_sub_epi16(init, _mm256_maddubs_epi16(flip, c));
            put(dst + tile_codes(f) + ROW16 * j, (vi)c);
        }
        if (is_lifted(f))
            put(dst + tile_init(f) + ROW16 * (i / fold_of(f)), (vi)init);
    }
}

/* Stores the integer minima M (quant/pack.h) of tile i in the head of an
 * unpacked chunk. */
TMPL void unpack_m(uint8_t *head, const struct scales *w, int i, struct shape f)
{
    uint8_t *m = head + head_m(f) + ROW16 * (has_half_min(f) ? i : i / 2);

    if (has_half_min(f))
        put(m, w->m);
    else if (i % 2 == 0)
        put(m, w->m & 0xffff);
    else
        put(m, get(m) | (w->m & ~0xffff));
}

TMPL void unpack_tile(uint8_t *unit, int i, int h, const uint8_t *low,
                      const struct scales *w, vu table, struct shape f)
{
    uint8_t *dst;

    unit += 4 * W * h;
    dst = unit + head_bytes(f) + i * tile_size(f);
    unpack_codes(dst, low, table, f);
    if (has_scale(f))
        put(dst, pair(w->s[0], w->s[0]));
    if (has_halves(f))
        put(dst + ROW16, pair(w->s[1], w->s[1]));
    if (has_chunks(f) && has_min(f))
        unpack_m(unit, w, i, f);
}

/* ---- arranging of activations -------------------------------------------- */

TMPL void deal_tile(uint8_t *unit, const struct q8_block *const x[TOK],
                    int64_t block, int i, struct shape f)
{
    const __m256i lift = _mm256_set1_epi8(is_lifted(f) ? (char)128 : 0);
    __m256i q[TOK];

    UNROLL
    for (int t = 0; t < TOK; t++)
        q[t] = _mm256_loadu_si256((const __m256i *)x[t][block].q) ^ lift;
    deal_dwords(unit + i * 8 * TOK4, q);
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

/* Stops the compiler from reordering additions across this point. It would
 * otherwise build trees of additions, with more sums than there are registers,
 * and store sums in memory. */
#define HOLD(v) __asm__("" : "+x"(v))
/* Makes the compiler keep an array in memory at this point, because all
 * registers are needed for other values. */
#define IN_MEMORY(array) __asm__("" : "+m"(array))

/* Returns the integer scales S of 8 weight rows for dword i (values 4 i .. 4 i
 * + 3) of an unpacked tile, as int16 pairs (S, S) for vpmaddwd. */
TMPL __m256i scale_at(const uint8_t *tile, int i, struct shape f)
{
    if (!has_scale(f))
        return _mm256_set1_epi16(1);
    return (__m256i)get(tile + (has_halves(f) && i >= 4 ? ROW16 : 0));
}

/* Multiplies the fold of a tile that begins at dword `first` (value 4 * first)
 * by n_tok rows of activations. Adds the sums, times the integer scales S, to
 * isum[row of activations][vector of weight rows]. */
TMPL void add_fold(vi isum[TOK][VECTORS], const uint8_t *tile, const uint8_t *x,
                   int first, const int n_tok, struct shape f)
{
    const uint8_t *init = tile + tile_init(f) + ROW16 * (first / fold_of(f));
    __m256i sum[TOK][VECTORS];

    UNROLL
    for (int i = first; i < first + fold_of(f); i++) {
        __m256i c[VECTORS];

        UNROLL
        for (int g = 0; g < VECTORS; g++)
            c[g] = (__m256i)get(tile + tile_codes(f) + ROW16 * i + 4 * W * g);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            const __m256i v = (__m256i)dword_at(x + i * TOK4 + 4 * t);

            UNROLL
            for (int g = 0; g < VECTORS; g++) {
                __m256i p = is_lifted(f) ? _mm256_maddubs_epi16(v, c[g])
                                         : _mm256_maddubs_epi16(c[g], v);

                if (i > first)
                    p = _mm256_add_epi16(sum[t][g], p);
                else if (is_lifted(f))
                    p = _mm256_add_epi16(p, (__m256i)get(init + 4 * W * g));
                HOLD(p);
                sum[t][g] = p;
            }
        }
    }
    UNROLL
    for (int g = 0; g < VECTORS; g++) {
        const __m256i s = scale_at(tile + 4 * W * g, first, f);

        UNROLL
        for (int t = 0; t < n_tok; t++)
            isum[t][g] += (vi)_mm256_madd_epi16(sum[t][g], s);
    }
}

/* Multiplies a tile by n_tok rows of activations, for formats with levels above
 * 64 (is_large). Adds the sums, times the integer scales S, to isum[row of
 * activations][vector of weight rows]. */
TMPL void add_large(vi isum[TOK][VECTORS], const uint8_t *tile,
                    const uint8_t *x, const int n_tok, struct shape f)
{
    UNROLL
    for (int i = 0; i < 8; i++) {
        const uint8_t *codes = tile + tile_codes(f) + ROW16 * i;
        __m256i c[VECTORS], size[VECTORS];

        UNROLL
        for (int g = 0; g < VECTORS; g++) {
            c[g] = (__m256i)get(codes + 4 * W * g);
            size[g] = _mm256_abs_epi8(c[g]);
        }
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            const __m256i v = (__m256i)dword_at(x + i * TOK4 + 4 * t);

            UNROLL
            for (int g = 0; g < VECTORS; g++) {
                __m256i p =
                    _mm256_maddubs_epi16(size[g], _mm256_sign_epi8(v, c[g]));

                p = _mm256_madd_epi16(p, scale_at(tile + 4 * W * g, i, f));
                isum[t][g] += (vi)p;
                HOLD(isum[t][g]);
            }
        }
    }
}

TMPL void add_tile(vi isum[TOK][VECTORS], const uint8_t *tile, const uint8_t *x,
                   const int n_tok, struct shape f)
{
    if (is_large(f)) {
        add_large(isum, tile, x, n_tok, f);
        return;
    }
    UNROLL
    for (int i = 0; i < 8; i += fold_of(f))
        add_fold(isum, tile, x, i, n_tok, f);
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

/* Adds the integer sums isum[][], times the float scales, to the accumulators
 * acc[][], both [row of activations][vector of weight rows]. The weights'
 * scales are at `w`, those of the activations at `x`. */
TMPL void add_scaled(vf acc[TOK][VECTORS], vi isum[TOK][VECTORS],
                     const uint8_t *w, const uint8_t *x, const int n_tok)
{
    UNROLL
    for (int g = 0; g < VECTORS; g++) {
        const vf d = (vf)get(w + 4 * W * g);

        UNROLL
        for (int t = 0; t < n_tok; t++)
            acc[t][g] = v_fma(d * (vf)dword_at(x + 4 * t), v_int_f(isum[t][g]),
                              acc[t][g]);
    }
}

TMPL void add_unit_of_tile(vf acc[TOK][VECTORS], const uint8_t *w,
                           const uint8_t *x, const int n_tok, struct shape f)
{
    const uint8_t *tile = w + head_bytes(f);
    vi isum[TOK][VECTORS];

    clear(isum, n_tok);
    if (has_two_d(f)) {
        add_fold(isum, tile, x, 0, n_tok, f);
        add_scaled(acc, isum, w, x + act_d(f), n_tok);
        clear(isum, n_tok);
        add_fold(isum, tile, x, 4, n_tok, f);
        add_scaled(acc, isum, w + ROW16, x + act_d(f), n_tok);
        return;
    }
    add_tile(isum, tile, x, n_tok, f);
    add_scaled(acc, isum, w, x + act_d(f), n_tok);
    if (!has_min(f))
        return;
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        UNROLL
        for (int g = 0; g < VECTORS; g++)
            acc[t][g] = v_fma((vf)get(w + ROW16 + 4 * W * g) *
                                  (vf)dword_at(x + act_d(f) + 4 * t),
                              (vf)dword_at(x + act_sums(f) + 4 * t), acc[t][g]);
    }
}

TMPL void add_unit_of_chunk(vf acc[TOK][VECTORS], const uint8_t *w,
                            const uint8_t *x, const int n_tok, struct shape f)
{
    const int n_sum = has_half_min(f) ? 8 : 4;
    vi isum[TOK][VECTORS];

    clear(isum, n_tok);
#pragma GCC unroll 1
    for (int i = 0; i < 8; i++) {
        const uint8_t *tile = w + head_bytes(f) + i * tile_size(f);
        vi one[TOK][VECTORS];

        if (!is_large(f)) {
            IN_MEMORY(*(vi(*)[TOK][VECTORS])isum);
            add_tile(isum, tile, x + i * 8 * TOK4, n_tok, f);
            continue;
        }
        clear(one, n_tok);
        add_large(one, tile, x + i * 8 * TOK4, n_tok, f);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            UNROLL
            for (int g = 0; g < VECTORS; g++)
                isum[t][g] += one[t][g];
        }
        IN_MEMORY(*(vi(*)[TOK][VECTORS])isum);
    }
    add_scaled(acc, isum, w, x + act_d(f), n_tok);
    if (!has_min(f))
        return;
    clear(isum, n_tok);
    for (int i = 0; i < n_sum; i++) {
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            UNROLL
            for (int g = 0; g < VECTORS; g++) {
                isum[t][g] +=
                    v_pairs(dword_at(x + act_sums(f) + i * TOK4 + 4 * t),
                            get(w + head_m(f) + ROW16 * i + 4 * W * g));
                HOLD(isum[t][g]);
            }
        }
    }
    add_scaled(acc, isum, w + ROW16, x + act_d(f), n_tok);
}

/* Multiplies one panel by n_tok arranged rows of activations over n_unit units
 * (ranges of k). `w` points to the unpacked weights, `x` to the activations.
 * at[t] points to the 16 accumulators of row t of activations. */
TMPL void run_panel(const uint8_t *w, const uint8_t *x, float *const *at,
                    int64_t n_unit, const int n_tok, struct shape f)
{
    vf acc[TOK][VECTORS];

    for (int t = 0; t < n_tok; t++)
        memcpy(acc[t], at[t], sizeof acc[t]);
    for (int64_t u = 0; u < n_unit; u++) {
        IN_MEMORY(acc);
        if (has_chunks(f))
            add_unit_of_chunk(acc, w, x, n_tok, f);
        else
            add_unit_of_tile(acc, w, x, n_tok, f);
        w += unit_size(f);
        x += act_size(f);
    }
    for (int t = 0; t < n_tok; t++)
        memcpy(at[t], acc[t], sizeof acc[t]);
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
        for (int g = 0; g < GEMM_PANELS; g++) {
            float *at[TOK];

            for (int t = 0; t < TOK; t++)
                at[t] = (t < n_row ? to[t] : nowhere) + PACK_ROWS * g;
            if (n_row > 2)
                run_panel(w + (size_t)g * p->stride, x, at, p->n_unit, TOK, f);
            else
                run_panel(w + (size_t)g * p->stride, x, at, p->n_unit, 2, f);
        }
    }
}

#include "device/cpu/cpu_gemm_formats_tmpl.h"
