/* Unpacks packed weights (quant/pack.h) to codes and scales in vectors; one
 * source for all instruction sets. Included by each cpu_matmul_*.c, before its
 * cpu_gemm_*_tmpl.h, cpu_skinny_*_tmpl.h and cpu_matmul_tmpl.h. A vector lane
 * is a weight row, and the 16 rows of a panel are HALVES vectors; vector h has
 * the W rows from W * h.
 *
 * The including file first includes cpu_vector.h, or defines vectors of its own
 * with the same operations, and defines:
 *
 *   FLOAT_TOK          rows of activations whose accumulators fit registers
 *   WIDE_UNSIGNED      wide codes are 0 .. 255; else they are signed
 *
 * and for cpu_skinny_dot_tmpl.h:
 *
 *   v_fold             acc + a * b, for a and b that an int16 can hold
 *   v_dot              acc + for each lane the dot product of 4 n codes with
 *                      4 n bytes q, |q| <= 127; codes <= max */
#include <stdbool.h>
#include <string.h>

#include "base/unroll.h"
#include "device/cpu/cpu_matmul.h"

#define TMPL static inline __attribute__((always_inline))

enum { HALVES = PACK_ROWS / W };

TMPL vu load(const void *p)
{
    vu v;

    memcpy(&v, p, sizeof(v));
    return v;
}

TMPL int32_t load_dword(const void *p)
{
    int32_t x;

    memcpy(&x, p, sizeof(x));
    return x;
}

/* Returns the address to prefetch when the call reads at p, in its panel i:
 * `ahead` bytes after p. If that is beyond the end of the panel, returns the
 * corresponding address in panel i of the next call. */
TMPL const uint8_t *ahead_of(const struct cpu_panel_args *s, int i,
                             const uint8_t *p, int ahead)
{
    const size_t panel = s->pack->panel_bytes;
    const uint8_t *end = s->panel + (size_t)(i + 1) * panel;

    if (end - p > ahead)
        return p + ahead;
    return s->next + (size_t)i * panel + (ahead - (end - p));
}

/* Returns the prefetch distance where n_panel panels are read at once. `most`
 * is that of one panel. Several panels get less, because what is prefetched for
 * all of them must stay in a cache of 32 KiB. */
TMPL int distance(int most, int n_panel)
{
    return n_panel > 1 && most > 4096 ? 4096 : most;
}

/* ---- unpacking of quantized weights -------------------------------------- */

/* The properties of a format's packed form (quant/pack.h) that kernels need as
 * compile-time constants. The fields are those of struct pack_rule; `table` is
 * true if the format has a table of levels. */
struct shape {
    int low_bits, high_bits;
    int bias;
    bool table;
    enum pack_sub sub;
    enum pack_sup sup;
};

TMPL bool has_chunks(struct shape f)
{
    return f.sup != PACK_SUP_NONE;
}

TMPL bool has_min(struct shape f)
{
    return f.sub == PACK_SUB_F16_MIN || f.sub == PACK_SUB_U8_MIN ||
           f.sub == PACK_SUB_U8X2_MIN;
}

TMPL bool has_half_min(struct shape f)
{
    return f.sub == PACK_SUB_U8X2_MIN;
}

TMPL bool has_halves(struct shape f)
{
    return f.sub == PACK_SUB_S8X2 || f.sub == PACK_SUB_U8X2_MIN ||
           f.sub == PACK_SUB_ODD4X2;
}

/* Returns true if each half (16 values) of a tile has a float scale of its
 * own. */
TMPL bool has_two_d(struct shape f)
{
    return f.sub == PACK_SUB_UE4M3X2;
}

TMPL bool has_scale(struct shape f)
{
    return has_halves(f) || f.sub == PACK_SUB_S8 || f.sub == PACK_SUB_U8_MIN;
}

/* Takes `bits` bits of every byte of v, from bit `from` on, and returns them at
 * bit `to` of the byte. The other bits are 0. */
TMPL vu bits_moved(vu v, int bits, int from, int to)
{
    uint32_t mask = ((1u << bits) - 1) * 0x01010101u << to;

    return (to > from ? v << (to - from) : v >> (from - to)) & mask;
}

/* Returns values 4 i .. 4 i + 3 (dword i, 0 .. 7) of a tile, from a plane with
 * `bits` bits per code. These are returned from bit `to` of each code's byte
 * on. */
TMPL vu plane_dword(const uint8_t *plane, int bits, int i, int to)
{
    if (bits == 8)
        return load(plane + 64 * i);
    return bits_moved(load(plane + 64 * (i % bits)), bits, i / bits * bits, to);
}

/* Returns true if the format has codes of 8 bits or a table. unpack_dword()
 * then returns levels instead of codes: as signed bytes or, if WIDE_UNSIGNED,
 * as unsigned bytes with 128 added, as v_dot requires. */
TMPL bool is_wide(struct shape f)
{
    return f.low_bits == 8 || f.table;
}

TMPL int bias_of(struct shape f)
{
    return is_wide(f) ? (WIDE_UNSIGNED ? 128 : 0) : f.bias;
}

/* Returns the format's table of levels as a vector for v_lookup, or 0 if it has
 * none. */
TMPL vu table_of(const struct pack_rule *rule, struct shape f)
{
    return f.table ? v_table(rule->table) : (vu)v_set(0);
}

/* Returns values 4 i .. 4 i + 3 (dword i) of a packed tile: their codes, or, if
 * the format has a table, their levels. `low` and `high` point to the planes
 * with the low and the high bits of the codes. */
TMPL vu unpack_dword(const uint8_t *low, const uint8_t *high, int i, vu table,
                     struct shape f)
{
    vu code = plane_dword(low, f.low_bits, i, 0);

    if (f.high_bits > 0)
        code |= plane_dword(high, f.high_bits, i, f.low_bits);
    if (f.table)
        code = v_lookup(table, code);
    if (f.table ? WIDE_UNSIGNED : f.low_bits == 8 && !WIDE_UNSIGNED)
        code ^= (vu)v_set((int32_t)0x80808080u);
    return code;
}

TMPL void unpack(vu code[8], const uint8_t *low, const uint8_t *high, vu table,
                 struct shape f)
{
    UNROLL
    for (int i = 0; i < 8; i++)
        code[i] = unpack_dword(low, high, i, table, f);
}

/* Returns an int16 pair in each lane: the low half of the lane of `lo`, then
 * that of `hi`. */
TMPL vi pair(vi lo, vi hi)
{
    return (vi)(((vu)hi << 16) | ((vu)lo & 0xffff));
}

/* Returns 2^(e-128), half of the E8M0 number e, in every lane, or NaN for e =
 * 255. e < 2 gives subnormals. The float is composed from bits. */
TMPL vf e8m0_half(vi e)
{
    /* masks: all bits of a lane are set where the condition is true */
    vi small = e < 2, nan = e == 255;
    vi bits = ((e + 1) << 21 & small) | ((e - 1) << 23 & ~small);

    return (vf)((v_set(0x7fc00000) & nan) | (bits & ~nan));
}

/* Returns half of the unsigned E4M3 number x in every lane, or 0 for x = 127.
 * The float is composed from bits. */
TMPL vf ue4m3_half(vi x)
{
    /* `small` and `none` are masks: all bits of a lane are set where the
     * condition is true */
    vi magnitude = x & 127, small = magnitude < 8, none = x == 127;
    const vi one = v_set(1 << 23), least = v_set(120 << 23);
    /* For x < 8 the number is subnormal, but v is composed as a normal one and
     * so is too large by 2^-7, which is subtracted below. */
    vf v = (vf)((magnitude << 20) + v_set(119 << 23) + (one & small));

    return (vf)((vi)(v - (vf)(least & small)) & ~none);
}

struct scales {
    vf d, dmin;
    /* only in formats whose tile halves have a float scale each: the second
     * half's, while d is the first half's */
    vf d1;
    /* s: integer scale S of each half of the tile; m: integer minima M of both
     * halves as int16 pairs (M0, M1) */
    vi s[2], m;
};

/* Reads the scales and minima of a packed tile at `tile`, for the weight rows
 * of vector h, into *o. `sup` is the start of the tile's chunk, where its super
 * scales are. */
TMPL void scales_read(struct scales *o, const uint8_t *sup, const uint8_t *tile,
                      int h, struct shape f)
{
    const uint8_t *b = tile + W * h;
    vi u, v;

    if (has_chunks(f))
        o->d = v_f16(sup + 2 * W * h);
    if (f.sup == PACK_SUP_D_DMIN)
        o->dmin = -v_f16(sup + 2 * PACK_ROWS + 2 * W * h);
    if (f.sup == PACK_SUP_D_8TH) {
        o->d = o->d * v_setf(0.125f);
        o->dmin = -o->d;
    }
    switch (f.sub) {
    case PACK_SUB_NONE:
        o->s[0] = v_set(1);
        break;
    case PACK_SUB_F16:
        o->d = v_f16(tile + 2 * W * h);
        break;
    case PACK_SUB_F16_MIN:
        o->d = v_f16(tile + 2 * W * h);
        o->dmin = v_f16(tile + 2 * PACK_ROWS + 2 * W * h);
        o->m = v_set(0x00010001);
        break;
    case PACK_SUB_E8M0:
        o->d = e8m0_half(v_u8(b));
        break;
    case PACK_SUB_S8:
        o->s[0] = v_s8(b);
        break;
    case PACK_SUB_S8X2:
        o->s[0] = v_s8(b);
        o->s[1] = v_s8(b + PACK_ROWS);
        break;
    case PACK_SUB_U8_MIN:
        o->s[0] = v_u8(b);
        u = v_u8(b + PACK_ROWS);
        o->m = pair(u, u);
        break;
    case PACK_SUB_U8X2_MIN:
        u = v_u8(b);
        v = v_u8(b + PACK_ROWS);
        o->s[0] = u & 15;
        o->s[1] = v & 15;
        o->m = pair(u >> 4, v >> 4);
        break;
    case PACK_SUB_ODD4X2:
        u = v_u8(b);
        o->s[0] = ((u & 15) << 1) + 1;
        o->s[1] = ((u >> 4) << 1) + 1;
        break;
    case PACK_SUB_UE4M3X2:
        o->d = ue4m3_half(v_u8(b));
        o->d1 = ue4m3_half(v_u8(b + PACK_ROWS));
        break;
    }
}

/* Calls X for each quantized format whose tiles have one float scale or none:
 * X(format, bits of a code in the low plane, bits in the high plane, bias, has
 * a table, form of the sub scales, form of the super scales). */
#define SHAPES(X)                                                              \
    X(Q8_0, 8, 0, 128, false, F16, NONE)                                       \
    X(Q4_0, 4, 0, 8, false, F16, NONE)                                         \
    X(Q4_1, 4, 0, 0, false, F16_MIN, NONE)                                     \
    X(Q5_0, 4, 1, 16, false, F16, NONE)                                        \
    X(Q5_1, 4, 1, 0, false, F16_MIN, NONE)                                     \
    X(Q2_K, 2, 0, 0, false, U8X2_MIN, D_DMIN)                                  \
    X(Q3_K, 2, 1, 4, false, S8X2, D)                                           \
    X(Q4_K, 4, 0, 0, false, U8_MIN, D_DMIN)                                    \
    X(Q5_K, 4, 1, 0, false, U8_MIN, D_DMIN)                                    \
    X(Q6_K, 4, 2, 32, false, S8X2, D)                                          \
    X(IQ4_NL, 4, 0, 0, true, F16, NONE)                                        \
    X(IQ4_XS, 4, 0, 0, true, S8, D)                                            \
    X(MXFP4, 4, 0, 0, true, E8M0, NONE)                                        \
    X(IQ1_S, 2, 0, 0, false, U8_MIN, D_8TH)                                    \
    X(IQ2_S, 2, 1, 0, true, ODD4X2, D_8TH)                                     \
    X(IQ3_S, 4, 0, 0, true, ODD4X2, D_8TH)                                     \
    X(TQ2_0, 2, 0, 1, false, NONE, D)

/* Calls X, as SHAPES does, for formats whose tiles have a float scale for each
 * half. */
#define SHAPES_TWO_D(X) X(NVFP4, 4, 0, 0, true, UE4M3X2, NONE)

/* Calls X(format, other) for each format that is packed in the same way as
 * another one, which is in SHAPES. */
#define ALIKE(X)                                                               \
    X(IQ1_M, IQ2_S)                                                            \
    X(IQ2_XXS, IQ2_S)                                                          \
    X(IQ2_XS, IQ2_S)                                                           \
    X(IQ3_XXS, IQ3_S)                                                          \
    X(TQ1_0, TQ2_0)

#define SHAPE(name, low, high, bias, table, sub, sup)                          \
    static const struct shape shape_##name = {                                 \
        low, high, bias, table, PACK_SUB_##sub, PACK_SUP_##sup};
SHAPES(SHAPE)
SHAPES_TWO_D(SHAPE)
#undef SHAPE

/* ---- loading of float weights -------------------------------------------- */

TMPL vf float_load(const uint8_t *p, pl_format f)
{
    vf v;

    if (f == PL_F16)
        return v_f16(p);
    if (f == PL_BF16)
        return v_bf16(p);
    memcpy(&v, p, sizeof(v));
    return v;
}

#define FLOATS(X) X(F32) X(F16) X(BF16)
