/* One packed format: FORMAT its name; LOW, HIGH bits of its planes; SUB, SUP
 * its scales; BIAS, or LEVEL0 .. LEVEL3, the bytes of its table. All but the
 * table are undefined at the end. */

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
/* Integers run over a chunk. */
#define WHOLE (SUP != SUP_NONE)
/* Each half of a tile has a factor. */
#define HALVES                                                                 \
    (SUB == SUB_S8X2 || SUB == SUB_U8X2_MIN || SUB == SUB_ODD4X2 ||            \
     SUB == SUB_UE4M3X2)
#define TWO_D   (SUB == SUB_UE4M3X2)
#define HAS_MIN (SUB == SUB_F16_MIN || SUB == SUB_U8_MIN || SUB == SUB_U8X2_MIN)
/* Products that a tile or chunk adds to the accumulator: two. */
#define PAIRED (TWO_D || HAS_MIN)

/* Levels of values 4 t .. 4 t + 3 and 16 + the same, t = 0 .. 3, of row r. */
DEV void OF(levels)(GLOBAL const u8 *tile, s32 r, s32 t, u32 *lo, u32 *hi)
{
    GLOBAL const u32 *low = (GLOBAL const u32 *)(tile + SUB_BYTES) + r;
    u32 a, b;
#if LOW == 8
    a = low[16 * t];
    b = low[16 * t + 64];
#elif LOW == 4
    u32 v = low[16 * t];

    a = v & 0x0f0f0f0fu;
    b = v >> 4 & 0x0f0f0f0fu;
#else
    u32 v = low[16 * (t & 1)] >> (t & 2);

    a = v & 0x03030303u;
    b = v >> 4 & 0x03030303u;
#endif
#if HIGH == 2
    v = low[16 * LOW + 16 * (t & 1)] >> (t & 2);
    a |= (v & 0x03030303u) << LOW;
    b |= (v >> 4 & 0x03030303u) << LOW;
#elif HIGH == 1
    v = low[16 * LOW] >> t;
    a |= (v & 0x01010101u) << LOW;
    b |= (v >> 4 & 0x01010101u) << LOW;
#endif
#ifdef LEVEL0
    a = look16(a, LEVEL0, LEVEL1, LEVEL2, LEVEL3);
    b = look16(b, LEVEL0, LEVEL1, LEVEL2, LEVEL3);
#elif BIAS == 128
    a ^= 0x80808080u;
    b ^= 0x80808080u;
#elif BIAS > 0
    a = ((a | 0x80808080u) - BIAS * 0x01010101u) ^ 0x80808080u;
    b = ((b | 0x80808080u) - BIAS * 0x01010101u) ^ 0x80808080u;
#endif
    *lo = a;
    *hi = b;
}

/* The integer factors of row r: S of the halves in s[], M in m[]. */
DEV void OF(factors)(GLOBAL const u8 *tile, s32 r, s32 *s, s32 *m)
{
    s[0] = s[1] = 1;
    m[0] = m[1] = SUB == SUB_F16_MIN;
#if SUB == SUB_S8
    s[0] = s[1] = (s8)tile[r];
#elif SUB == SUB_S8X2
    s[0] = (s8)tile[r];
    s[1] = (s8)tile[16 + r];
#elif SUB == SUB_U8_MIN
    s[0] = s[1] = tile[r];
    m[0] = m[1] = tile[16 + r];
#elif SUB == SUB_U8X2_MIN
    s[0] = tile[r] & 15;
    s[1] = tile[16 + r] & 15;
    m[0] = tile[r] >> 4;
    m[1] = tile[16 + r] >> 4;
#elif SUB == SUB_ODD4X2
    s[0] = 2 * (tile[r] & 15) + 1;
    s[1] = 2 * (tile[r] >> 4) + 1;
#else
    (void)tile;
    (void)r;
#endif
}

/* The float factors of row r: of the first product in d[0], of the second in
 * d[1]: -dmin, or d of the second half. */
DEV void OF(scales)(GLOBAL const u8 *sup, GLOBAL const u8 *tile, s32 r,
                    float *d)
{
#if SUB == SUB_E8M0
    d[0] = e8m0_half(tile[r]);
    d[1] = 0;
#elif SUB == SUB_UE4M3X2
    d[0] = ue4m3_half(tile[r]);
    d[1] = ue4m3_half(tile[16 + r]);
#else
    GLOBAL const u16 *f = (GLOBAL const u16 *)(WHOLE ? sup : tile);

    d[0] = f16_to_f32(f[r]);
#if SUP == SUP_D_8TH
    d[0] = mul_(d[0], 0.125f);
#endif
#if SUP == SUP_D_DMIN
    d[1] = -f16_to_f32(f[16 + r]);
#elif SUB == SUB_F16_MIN
    d[1] = f16_to_f32(f[16 + r]);
#else
    d[1] = -d[0];
#endif
#endif
    (void)sup;
    (void)tile;
}

/* Where tile t of a run is that begins, at byte 0, with tile `first` of its
 * super-block; and the super scales of it. */
DEV u64 OF(tile_at)(s32 t, s32 first)
{
    s32 chunk = WHOLE ? ((t + first) >> 3) + 1 : 0;

    return (u64)chunk * SUP_BYTES + (u64)t * TILE_BYTES;
}
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
