/* Template of the contractions with weights of a packed, quantized format. The
 * including file defines FORMAT, the format's name; LOW and HIGH, the bits of a
 * code in the two planes; SUB and SUP, the kinds of scales; and BIAS, or the
 * table LEVEL0 to LEVEL3. All but the table are undefined at the end. */

#if SUB == SUB_NONE
#define SUB_BYTES 0
#elif SUB == SUB_E8M0 || SUB == SUB_S8 || SUB == SUB_ODD4X2
#define SUB_BYTES 16
#elif SUB == SUB_F16_MIN
#define SUB_BYTES 64
#else
#define SUB_BYTES 32
#endif
#if SUP == SUP_NONE
#define SUP_BYTES 0
#elif SUP == SUP_D_DMIN
#define SUP_BYTES 64
#else
#define SUP_BYTES 32
#endif
#define TILE_BYTES (SUB_BYTES + 64 * (LOW + HIGH))
/* Integers are summed over a whole chunk before they are converted to float. */
#define WHOLE (SUP != SUP_NONE)
/* The two halves of a tile have factors of their own. */
#define HALVES                                                                 \
    (SUB == SUB_S8X2 || SUB == SUB_U8X2_MIN || SUB == SUB_ODD4X2 ||            \
     SUB == SUB_UE4M3X2)
#define TWO_D   (SUB == SUB_UE4M3X2)
#define HAS_MIN (SUB == SUB_F16_MIN || SUB == SUB_U8_MIN || SUB == SUB_U8X2_MIN)
/* A tile or chunk adds two products to the accumulator, not one. */
#define PAIRED (TWO_D || HAS_MIN)

/* Number of dwords that contain the codes of 8 values of a row. */
#define RAW ((LOW == 8 ? 2 : 1) + (HIGH > 0))
/* A level is a code less OFFSET, which is 0 if near() returns levels. */
#if defined(LEVEL0) || BIAS == 128
#define OFFSET 0
#else
#define OFFSET BIAS
#endif

/* fetch() loads the dwords with the codes of values 4 t to 4 t + 3 and 16 + 4 t
 * to 19 + 4 t of row r, t = 0 to 3. unpack() converts them to levels, near() to
 * levels plus OFFSET. */
DEV void OF(fetch)(GLOBAL const u8 *tile, s32 r, s32 t, u32 *raw)
{
    GLOBAL const u32 *low = (GLOBAL const u32 *)(tile + SUB_BYTES) + r;

    raw[0] = low[16 * (LOW == 2 ? t & 1 : t)];
#if LOW == 8
    raw[1] = low[16 * t + 64];
#endif
#if HIGH > 0
    raw[RAW - 1] = low[16 * (LOW + (HIGH == 2 ? t & 1 : 0))];
#endif
}
/* levels() returns the levels of four codes, near_level() these plus OFFSET. */
DEV u32 OF(near_level)(u32 codes)
{
#ifdef LEVEL0
    return look16(codes, LEVEL0, LEVEL1, LEVEL2, LEVEL3);
#elif BIAS == 128
    return codes ^ 0x80808080u;
#else
    return codes;
#endif
}
DEV u32 OF(levels)(u32 codes)
{
    u32 near = OF(near_level)(codes);

    return OFFSET > 0
               ? ((near | 0x80808080u) - OFFSET * 0x01010101u) ^ 0x80808080u
               : near;
}
DEV void OF(near)(const u32 *raw, s32 t, u32 *lo, u32 *hi)
{
#if LOW == 8
    u32 a = raw[0], b = raw[1];
#elif LOW == 4
    u32 a = raw[0] & 0x0f0f0f0fu, b = raw[0] >> 4 & 0x0f0f0f0fu;
#else
    u32 v = raw[0] >> (t & 2), a = v & 0x03030303u, b = v >> 4 & 0x03030303u;
#endif
#if HIGH == 2
    u32 high = raw[RAW - 1] >> (t & 2);

    a |= (high & 0x03030303u) << LOW;
    b |= (high >> 4 & 0x03030303u) << LOW;
#elif HIGH == 1
    u32 high = raw[RAW - 1] >> t;

    a |= (high & 0x01010101u) << LOW;
    b |= (high >> 4 & 0x01010101u) << LOW;
#endif
    (void)t;
    *lo = OF(near_level)(a);
    *hi = OF(near_level)(b);
}
DEV void OF(unpack)(const u32 *raw, s32 t, u32 *lo, u32 *hi)
{
    OF(near)(raw, t, lo, hi);
#if OFFSET > 0
    *lo = ((*lo | 0x80808080u) - OFFSET * 0x01010101u) ^ 0x80808080u;
    *hi = ((*hi | 0x80808080u) - OFFSET * 0x01010101u) ^ 0x80808080u;
#endif
}
/* fetch_sub() loads the sub scales of row r of a tile. factors() converts them
 * to the integer factors of the two halves, S in s[] and M in m[]. */
DEV void OF(fetch_sub)(GLOBAL const u8 *tile, s32 r, u32 *sub)
{
    sub[0] = sub[1] = 0;
#if SUB == SUB_F16 || SUB == SUB_F16_MIN
    sub[0] = ((GLOBAL const u16 *)tile)[r];
#elif SUB != SUB_NONE
    sub[0] = tile[r];
#endif
#if SUB == SUB_F16_MIN
    sub[1] = ((GLOBAL const u16 *)tile)[16 + r];
#elif SUB_BYTES == 32 && SUB != SUB_F16
    sub[1] = tile[16 + r];
#endif
    (void)tile;
    (void)r;
}
DEV void OF(factors)(const u32 *sub, s32 *s, s32 *m)
{
    s[0] = s[1] = 1;
    m[0] = m[1] = SUB == SUB_F16_MIN;
#if SUB == SUB_S8
    s[0] = s[1] = (s8)sub[0];
#elif SUB == SUB_S8X2
    s[0] = (s8)sub[0];
    s[1] = (s8)sub[1];
#elif SUB == SUB_U8_MIN
    s[0] = s[1] = (s32)sub[0];
    m[0] = m[1] = (s32)sub[1];
#elif SUB == SUB_U8X2_MIN
    s[0] = (s32)(sub[0] & 15);
    s[1] = (s32)(sub[1] & 15);
    m[0] = (s32)(sub[0] >> 4);
    m[1] = (s32)(sub[1] >> 4);
#elif SUB == SUB_ODD4X2
    s[0] = (s32)(2 * (sub[0] & 15) + 1);
    s[1] = (s32)(2 * (sub[0] >> 4) + 1);
#else
    (void)sub;
#endif
}

/* fetch_sup() loads the super scales of row r. scales() converts scales to
 * float factors: d[0] of the first product, d[1] of the second one, which is
 * -dmin or the d of the tile's second half. Formats without super scales have
 * these in their sub scales. */
DEV void OF(fetch_sup)(GLOBAL const u8 *at, s32 r, u32 *sup)
{
    sup[0] = sup[1] = 0;
#if WHOLE
    sup[0] = ((GLOBAL const u16 *)at)[r];
#endif
#if SUP == SUP_D_DMIN
    sup[1] = ((GLOBAL const u16 *)at)[16 + r];
#endif
    (void)at;
    (void)r;
}
DEV void OF(scales)(const u32 *sup, const u32 *sub, float *d)
{
#if SUB == SUB_E8M0
    d[0] = e8m0_half(sub[0]);
    d[1] = 0;
#elif SUB == SUB_UE4M3X2
    d[0] = ue4m3_half(sub[0]);
    d[1] = ue4m3_half(sub[1]);
#else
    d[0] = f16_to_f32((u16)(WHOLE ? sup : sub)[0]);
#if SUP == SUP_D_8TH
    d[0] = mul_(d[0], 0.125f);
#endif
#if SUP == SUP_D_DMIN
    d[1] = -f16_to_f32((u16)sup[1]);
#elif SUB == SUB_F16_MIN
    d[1] = f16_to_f32((u16)sub[1]);
#else
    d[1] = -d[0];
#endif
#endif
    (void)sup;
    (void)sub;
}

/* Returns the offset in bytes, in a run of k, of the super scales that apply to
 * tile t. The run begins with tile `first` of its super-block. */
DEV u64 OF(sup_at)(s32 t, s32 first)
{
    s32 chunk = (t + first) >> 3, before = chunk > 0 ? chunk * 8 - first : 0;

    return (u64)chunk * SUP_BYTES + (u64)before * TILE_BYTES;
}

#include "matmul_tmpl.h"
#include "matvec_tmpl.h"

#undef FORMAT
#undef LOW
#undef HIGH
#undef SUB
#undef SUP
#undef BIAS
#undef SUB_BYTES
#undef SUP_BYTES
#undef TILE_BYTES
#undef WHOLE
#undef HALVES
#undef TWO_D
#undef HAS_MIN
#undef PAIRED
#undef RAW
#undef OFFSET
#undef RAWS
