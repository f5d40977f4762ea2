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
 * defines. Below is what cpu_gemm_codes_tmpl.h requires. */

#include "device/cpu/cpu_gemm_units_tmpl.h"

enum { VECTORS = HALVES, TILE_PASS = 16, CHUNK_PASS = 2 };

typedef uint16_t dots __attribute__((vector_size(4 * W), may_alias));

/* Stops the compiler from reordering additions across this point. It would
 * otherwise build trees of additions, with more sums than there are registers,
 * and store sums in memory. */
#define HOLD(v)          __asm__("" : "+x"(v))
#define IN_MEMORY(array) __asm__("" : "+m"(array))

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

TMPL bool is_apart(struct shape f)
{
    return is_large(f);
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

TMPL int owed_of(struct shape f)
{
    (void)f;
    return 0;
}

/* Scales are int16 pairs (S, S) for vpmaddwd. */
TMPL vi scale_form(vi s, struct shape f)
{
    (void)f;
    return pair(s, s);
}

TMPL vi dots_add(vi acc, vi x, vi c, struct shape f)
{
    ireg products = is_lifted(f) ? _mm256_maddubs_epi16((ireg)x, (ireg)c)
                                 : _mm256_maddubs_epi16((ireg)c, (ireg)x);

    return (vi)_mm256_add_epi16((ireg)acc, products);
}

TMPL vi scaled_add(vi isum, vi dot, vi scale, struct shape f)
{
    (void)f;
    return isum + v_pairs(dot, scale);
}

#include "device/cpu/cpu_gemm_x86_tmpl.h"

/* fold_add() for formats with levels above 64 (is_large), whose folds are one
 * dword. */
TMPL void fold_add_large(vi isum[TOK][VECTORS], const uint8_t *codes,
                         const uint8_t *scale, size_t step, const uint8_t *x,
                         const int n_tok, struct shape f)
{
    ireg c[VECTORS], size[VECTORS];

    UNROLL
    for (int g = 0; g < VECTORS; g++) {
        c[g] = (ireg)get(codes + (size_t)g * step);
        size[g] = _mm256_abs_epi8(c[g]);
    }
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        const ireg v = (ireg)dword_at(x + 4 * t);

        UNROLL
        for (int g = 0; g < VECTORS; g++) {
            ireg p = _mm256_maddubs_epi16(size[g], _mm256_sign_epi8(v, c[g]));

            isum[t][g] += v_pairs((vi)p, scale_at(scale + (size_t)g * step, f));
            HOLD(isum[t][g]);
        }
    }
}

TMPL void fold_add(vi isum[TOK][VECTORS], const uint8_t *codes,
                   const uint8_t *start, const uint8_t *scale, size_t step,
                   const uint8_t *x, const int n_tok, struct shape f)
{
    if (is_large(f))
        fold_add_large(isum, codes, scale, step, x, n_tok, f);
    else
        fold_add_dots(isum, codes, start, scale, step, x, n_tok, f);
}

#include "device/cpu/cpu_gemm_codes_tmpl.h"
