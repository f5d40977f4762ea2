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
 * value (`start`).
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
 * defines. Below is what cpu_gemm_codes_tmpl.h requires. */

#include "device/cpu/cpu_gemm_units_tmpl.h"

enum { VECTORS = 2, TILE_PASS = 96, CHUNK_PASS = 12 };

typedef vu dots;

#define HOLD(v)
#define IN_MEMORY(array)

/* The lift, the constant that is subtracted from codes to make them signed,
 * exceeds the bias only for formats with minima and super-blocks. */
TMPL int owed_of(struct shape f)
{
    return f.sub == PACK_SUB_U8_MIN ? (f.high_bits ? 16 : 8) : 0;
}

TMPL bool is_lifted(struct shape f)
{
    (void)f;
    return true;
}

TMPL bool is_apart(struct shape f)
{
    (void)f;
    return false;
}

/* Returns true if one vpdpwssd multiplies the sum of a fold (8, 16 or 32 values
 * that share a scale) by the scale and adds it. That requires a sum that fits
 * an int16. */
TMPL bool is_folded(struct shape f)
{
    return has_chunks(f) && !f.table;
}

TMPL int fold_of(struct shape f)
{
    if (!is_folded(f))
        return has_halves(f) || has_two_d(f) ? 4 : 8;
    if (f.sub == PACK_SUB_U8_MIN)
        return f.high_bits ? 4 : 8;
    if (!has_halves(f))
        return 8;
    return f.low_bits + f.high_bits == 6 ? 2 : 4;
}

/* Scales are int16 pairs (S, 0) for vpdpwssd, or int32. */
TMPL vi scale_form(vi s, struct shape f)
{
    if (is_folded(f))
        s &= 0xffff;
    return s;
}

TMPL vi dots_add(vi acc, vi x, vi c, struct shape f)
{
    (void)f;
    return v_dot4(acc, x, c);
}

TMPL vi scaled_add(vi isum, vi dot, vi scale, struct shape f)
{
    if (is_folded(f))
        return v_pairs_add(isum, dot, scale);
    if (has_chunks(f))
        dot *= scale;
    return isum + dot;
}

#include "device/cpu/cpu_gemm_x86_tmpl.h"

#define fold_add fold_add_dots
#include "device/cpu/cpu_gemm_codes_tmpl.h"
