/* GEMM with VNNI: multiplies two vectors of weight rows by TOK rows of
 * activations; the including file defines TOK. With 512-bit vectors these are
 * two panels and six rows, and registers hold 12 integer sums and 12 float
 * sums. With 256-bit vectors they are one panel and four rows, and registers
 * hold only the 8 integer sums.
 *
 * vpdpbusd multiplies unsigned by signed bytes. The unsigned bytes are
 * activations, q + 128. The signed bytes are codes of weights minus a constant,
 * the *lift*: c - lift. A sum of products starts at -128 times the sum of its
 * signed bytes, which cancels the 128. The unpacked panel stores this start
 * value (`init`).
 *
 * Formats with super-blocks: a *fold* is 8, 16 or 32 values that share a scale
 * S. The lift is chosen so that the sum of a fold's products is an int16.
 * vpdpwssd with the pair (S, 0) then multiplies the fold's sum by the scale and
 * adds it to the chunk's sum in one instruction. If the lift exceeds the
 * format's bias, (lift - bias) S times the sum of q is added back, for two
 * tiles per vpdpwssd. Formats with a table have sums too large for this; they
 * are multiplied by the scale as 32-bit integers.
 *
 * All integer operations are exact, so the results are those that cpu_matmul.h
 * defines. */

#include "device/cpu/cpu_gemm_units_tmpl.h"

enum { VECTORS = 2, TILE_PASS = 96, CHUNK_PASS = 12 };

/* ---- layout of unpacked weights and of activations ----------------------- */

TMPL int lift_of(struct shape f)
{
    if (f.sub == PACK_SUB_U8_MIN)
        return f.high_bits ? 16 : 8;
    return is_wide(f) ? 128 : f.bias;
}

/* Returns lift - bias for the formats in which they differ, else 0. The lift is
 * the constant that is subtracted from codes to make them signed. run_chunks()
 * adds the difference back, times the scale and the sum of activations. */
TMPL int owed_of(struct shape f)
{
    return f.sub == PACK_SUB_U8_MIN ? lift_of(f) : 0;
}

/* Returns true if one vpdpwssd multiplies the sum of a fold (8, 16 or 32 values
 * that share a scale) by the scale and adds it. That requires a sum that fits
 * an int16. */
TMPL bool is_folded(struct shape f)
{
    return has_chunks(f) && !f.table;
}

/* Returns the number of folds in a tile of 32 values. A fold is the values
 * whose products are summed before they are multiplied by their common
 * scale. */
TMPL int folds_of(struct shape f)
{
    if (!is_folded(f))
        return has_halves(f) || has_two_d(f) ? 2 : 1;
    if (f.sub == PACK_SUB_U8_MIN)
        return f.high_bits ? 2 : 1;
    if (!has_halves(f))
        return 1;
    return f.low_bits + f.high_bits == 6 ? 4 : 2;
}

/* The layout of the unpacked weights of one panel and one unit (a tile of 32 k,
 * or a chunk of 256): scales and minima, called the head, followed by tiles.
 * Each field is for 16 rows, and fields in [] are optional. d, dmin, S and M
 * are those of quant/pack.h, c are codes minus the lift, init are the start
 * values of the folds' sums, and `owed` is owed_of(). The functions below
 * return offsets and sizes in bytes.
 *
 *   tiles    float d, [float m, or d of the second half]; int32 init [folds];
 *            int8 c[8][64]
 *   chunks   float d, [float -dmin], [int16 pairs owed S of two tiles [4]],
 *            [int16 pairs M, of two tiles [4] or of two halves [8]]; 8 tiles of
 *            int32 init [folds], int32 S [1 or 2], int8 c[8][64] */
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
    if (!has_chunks(f))
        return head_owed(f);
    return head_m(f) + (has_min(f) ? ROW16 * (has_half_min(f) ? 8 : 4) : 0);
}

TMPL int tile_scale(struct shape f)
{
    return ROW16 * folds_of(f);
}

TMPL int tile_codes(struct shape f)
{
    return tile_scale(f) +
           (has_chunks(f) ? ROW16 * (has_halves(f) ? 2 : 1) : 0);
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
 * tile of 32 k, or a chunk of 256). x are the activations, d their scales and
 * sum their sums (quant/q8.h). The layout is:
 *
 *   tiles    uint32 x[8][TOK]; float d[TOK]; [float sum[TOK]]
 *   chunks   uint32 x[8][8][TOK]; float d[TOK];
 *            [int16 pairs, sums of two tiles [4][TOK] or of halves [8][TOK]] */
TMPL int act_size(struct shape f)
{
    if (!has_min(f))
        return act_sums(f);
    if (!has_chunks(f))
        return act_sums(f) + TOK4;
    return act_sums(f) + (has_half_min(f) ? 8 : 4) * TOK4;
}

/* ---- unpacking of weights ------------------------------------------------ */

/* Unpacks a packed tile of one vector of weight rows to dst: its codes minus
 * the lift, the start values of its folds' sums, and its integer scales. */
TMPL void unpack_codes(uint8_t *dst, const uint8_t *low, const struct scales *w,
                       vu table, struct shape f)
{
    const vi flip = v_set((int32_t)0x80808080u);
    const int n = 8 / folds_of(f);
    const int32_t scale_mask = is_folded(f) ? 0xffff : -1;
    vu code[8];

    unpack(code, low, low + 64 * f.low_bits, table, f);
    UNROLL
    for (int i = 0; i < folds_of(f); i++) {
        vi sum = v_set(0);

        UNROLL
        for (int j = n * i; j < n * i + n; j++) {
            vi c = (vi)code[j];

            if (is_wide(f))
                c ^= flip;
            else if (lift_of(f) != 0)
                c = (vi)((vb)c - (int8_t)lift_of(f));
            put(dst + tile_codes(f) + ROW16 * j, c);
            sum = v_dot4(sum, flip, c);
        }
        put(dst + ROW16 * i, -sum);
    }
    if (!has_chunks(f))
        return;
    put(dst + tile_scale(f), w->s[0] & scale_mask);
    if (has_halves(f))
        put(dst + tile_scale(f) + ROW16, w->s[1] & scale_mask);
}

/* Stores the minima M of tile i, and its scales times owed_of(), in the head of
 * an unpacked chunk. */
TMPL void unpack_sums(uint8_t *head, const struct scales *w, int i,
                      struct shape f)
{
    uint8_t *owed = head + head_owed(f) + ROW16 * (i / 2);
    uint8_t *m = head + head_m(f) + ROW16 * (has_half_min(f) ? i : i / 2);
    int to = i % 2 * 16;
    vi before = v_set(0);

    if (!has_min(f))
        return;
    if (has_half_min(f)) {
        put(m, w->m);
        return;
    }
    if (to)
        before = (vi)load(owed);
    put(owed, before | (vi)((vu)(w->s[0] * owed_of(f)) << to));
    before = v_set(0);
    if (to)
        before = (vi)load(m);
    put(m, before | (vi)((vu)(w->m & 0xffff) << to));
}

TMPL void unpack_tile(uint8_t *unit, int i, int h, const uint8_t *low,
                      const struct scales *w, vu table, struct shape f)
{
    unit += 4 * W * h;
    unpack_codes(unit + head_bytes(f) + i * tile_size(f), low, w, table, f);
    if (has_chunks(f))
        unpack_sums(unit, w, i, f);
}

/* ---- arranging of activations -------------------------------------------- */

TMPL void deal_tile(uint8_t *unit, const struct q8_block *const x[TOK],
                    int64_t block, int i, struct shape f)
{
    const __m256i flip = _mm256_set1_epi8((char)128);
    __m256i q[TOK];

    UNROLL
    for (int t = 0; t < TOK; t++)
        q[t] = _mm256_loadu_si256((const __m256i *)x[t][block].q) ^ flip;
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

/* Sets dot[t][g] to the start value `init` plus the products of row t of
 * activations with the weight rows of vector g, over dwords first .. first + n
 * - 1 of a tile. A dword has four consecutive values of a row. The unpacked
 * weights of the VECTORS vectors are `step` bytes apart. */
TMPL void chain(vi dot[TOK][VECTORS], const uint8_t *init, const uint8_t *codes,
                const uint8_t *x, size_t step, int first, int n,
                const int n_tok)
{
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        UNROLL
        for (int g = 0; g < VECTORS; g++)
            dot[t][g] = get(init + (size_t)g * step);
    }
    UNROLL
    for (int i = first; i < first + n; i++) {
        vi w[VECTORS];

        UNROLL
        for (int g = 0; g < VECTORS; g++)
            w[g] = get(codes + ROW16 * i + (size_t)g * step);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            vi v = dword_at(x + i * TOK4 + 4 * t);

            UNROLL
            for (int g = 0; g < VECTORS; g++)
                dot[t][g] = v_dot4(dot[t][g], v, w[g]);
        }
    }
}

TMPL void run_tiles(const uint8_t *w, size_t step, const uint8_t *x,
                    float *const *at, int64_t n_unit, const int n_tok,
                    struct shape f)
{
    const int n = 8 / folds_of(f);
    vf acc[TOK][VECTORS];

    UNROLL
    for (int t = 0; t < n_tok; t++) {
        UNROLL
        for (int g = 0; g < VECTORS; g++)
            acc[t][g] = (vf)load(at[t] + W * g);
    }
    for (int64_t u = 0; u < n_unit; u++) {
        const uint8_t *tile = w + head_bytes(f);

        UNROLL
        for (int i = 0; i < folds_of(f); i++) {
            vi dot[TOK][VECTORS];

            chain(dot, tile + ROW16 * i, tile + tile_codes(f), x, step, n * i,
                  n, n_tok);
            UNROLL
            for (int t = 0; t < n_tok; t++) {
                vf d = (vf)dword_at(x + act_d(f) + 4 * t);

                UNROLL
                for (int g = 0; g < VECTORS; g++) {
                    const uint8_t *wg = w + (size_t)g * step;

                    acc[t][g] = v_fma(d * (vf)get(wg + ROW16 * i),
                                      v_int_f(dot[t][g]), acc[t][g]);
                    if (has_min(f))
                        acc[t][g] = v_fma(d * (vf)get(wg + ROW16),
                                          (vf)dword_at(x + act_sums(f) + 4 * t),
                                          acc[t][g]);
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

/* Multiplies one tile of a chunk by n_tok rows of activations. Adds the sums of
 * products, times the integer scales S, to isum[row of activations][vector of
 * weight rows]. */
TMPL void add_tile(vi isum[TOK][VECTORS], const uint8_t *tile, size_t step,
                   const uint8_t *x, const int n_tok, struct shape f)
{
    const int n = 8 / folds_of(f);

    UNROLL
    for (int i = 0; i < folds_of(f); i++) {
        const uint8_t *scale =
            tile + tile_scale(f) + (has_halves(f) ? ROW16 * (i * n / 4) : 0);
        vi dot[TOK][VECTORS];

        chain(dot, tile + ROW16 * i, tile + tile_codes(f), x, step, n * i, n,
              n_tok);
        UNROLL
        for (int g = 0; g < VECTORS; g++) {
            vi s = get(scale + (size_t)g * step);

            UNROLL
            for (int t = 0; t < n_tok; t++) {
                if (is_folded(f))
                    isum[t][g] = v_pairs_add(isum[t][g], dot[t][g], s);
                else
                    isum[t][g] += dot[t][g] * s;
            }
        }
    }
}

TMPL vi pairs_sum(const uint8_t *w, const uint8_t *x, int n)
{
    vi v = v_set(0);

    UNROLL
    for (int i = 0; i < n; i++)
        v = v_pairs_add(v, dword_at(x + i * TOK4), get(w + ROW16 * i));
    return v;
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
        for (int i = 0; i < 8; i++)
            add_tile(isum, w + head_bytes(f) + i * tile_size(f), step,
                     x + i * 8 * TOK4, n_tok, f);
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
                                                  has_half_min(f) ? 8 : 4)),
                                acc);
                memcpy(at[t] + W * g, &acc, sizeof acc);
            }
        }
        w += unit_size(f);
        x += act_size(f);
    }
}

TMPL void gemm_products(const struct gemm_pass *p, struct shape f)
{
    const uint8_t *w = p->weight, *x = p->act;
    float *const *to = p->to;
    int64_t n_row = p->n_row;
    /* distance in bytes from the unpacked weights of one vector of rows to
     * those of the next */
    const size_t step = HALVES == 1 ? p->stride : 4 * W;
    float nowhere[GEMM_WIDTH] = {0};

    for (; n_row > 0; n_row -= TOK, to += TOK, x += p->act_step) {
        /* Each group of TOK rows of accumulators is cleared just before it is
         * used. Rows may be far apart in memory, so if all were cleared first,
         * they might not stay in the caches. */
        if (!p->from)
            gemm_clear(to, n_row < TOK ? n_row : TOK);
        for (int row = 0; row < GEMM_WIDTH; row += VECTORS * W) {
            const uint8_t *panel = w + (size_t)(row / PACK_ROWS) * p->stride;
            float *at[TOK];

            for (int t = 0; t < TOK; t++)
                at[t] = (t < n_row ? to[t] : nowhere) + row;
#define RUN(n_tok)                                                             \
    do {                                                                       \
        if (has_chunks(f))                                                     \
            run_chunks(panel, step, x, at, p->n_unit, n_tok, f);               \
        else                                                                   \
            run_tiles(panel, step, x, at, p->n_unit, n_tok, f);                \
    } while (0)
            if (TOK > 4 && n_row > 4)
                RUN(TOK);
            else if (n_row > 2)
                RUN(4);
            else
                RUN(2);
#undef RUN
        }
    }
}

#include "device/cpu/cpu_gemm_formats_tmpl.h"
