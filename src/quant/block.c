/* Where each bit is in the blocks of GGUF files: one function per format, which
 * copies a tile between a block and a lane, in both directions (block.h).
 *
 * The comment before a function names the fields of its block in the order of
 * memory. d and dmin are scales, qs and ql the low bits of codes, qh and hmask
 * the high bits, sc integer scales. S and M are the sub scales in the formula
 * of pack.h. Values are computed in decode.c and pack.c. Blocks are
 * little-endian, as are the machines that plait runs on. */
#include "quant/block_bits.h"

/* Converts a 6-bit scale to its form in a block, the scale + 32, if `put`; else
 * from that form to a signed byte, its form in a lane. */
static inline uint16_t signed_scale(uint16_t s, bool put)
{
    return put ? (s + 32) & 63 : (uint8_t)(s - 32);
}

/* Copies the 4-bit codes of a tile between a block and a lane. In the block,
 * the low nibbles of qs[16] are codes 0 .. 15 and the high nibbles codes 16 ..
 * 31. */
static inline void nibbles(uint8_t *qs, uint8_t *c, bool put)
{
    bits(qs, 16, 0, 15, c, 0, put);
    bits(qs, 16, 4, 15, c + 16, 0, put);
}

/* Copies the highest bits of 5-bit codes between a block and a lane. In the
 * block, bit l of the 32-bit word at qh is bit 4 of code l. */
static inline void fifth_bits(uint8_t *qh, uint8_t *c, bool put)
{
    for (int l = 0; l < 32; l++)
        bits(qh + l / 8, 1, l % 8, 1, c + l, 4, put);
}

/* Copies tile t of a Q8_0 block to lane l, or back if `put`. The block is f16
 * d; s8 q[32]. A code is q + 128. */
void quant_move_q8_0(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    half(b, &l->sub[0], put);
    if (put)
        for (int i = 0; i < 32; i++)
            b[2 + i] = l->c[i] ^ 128;
    else
        for (int i = 0; i < 32; i++)
            l->c[i] = b[2 + i] ^ 128;
}

/* Copies tile t of a Q4_0 or IQ4_NL block to lane l, or back if `put`. The
 * block is f16 d; u8 qs[16]. */
void quant_move_q4_0(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    half(b, &l->sub[0], put);
    nibbles(b + 2, l->c, put);
}

/* Copies tile t of a Q4_1 block to lane l, or back if `put`. The block is f16
 * d, m; u8 qs[16]. */
void quant_move_q4_1(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    half(b, &l->sub[0], put);
    half(b + 2, &l->sub[1], put);
    nibbles(b + 4, l->c, put);
}

/* Copies tile t of a Q5_0 block to lane l, or back if `put`. The block is f16
 * d; u32 qh; u8 qs[16]. */
void quant_move_q5_0(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    half(b, &l->sub[0], put);
    fifth_bits(b + 2, l->c, put);
    nibbles(b + 6, l->c, put);
}

/* Copies tile t of a Q5_1 block to lane l, or back if `put`. The block is f16
 * d, m; u32 qh; u8 qs[16]. */
void quant_move_q5_1(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    half(b, &l->sub[0], put);
    half(b + 2, &l->sub[1], put);
    fifth_bits(b + 4, l->c, put);
    nibbles(b + 8, l->c, put);
}

/* Copies tile t of an MXFP4 block to lane l, or back if `put`. The block is u8
 * e, the exponent of the scale; u8 qs[16]. */
void quant_move_mxfp4(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    scale(b, 0, 255, &l->sub[0], 0, put);
    nibbles(b + 1, l->c, put);
}

/* Copies tile t of a Q2_K block to lane l, or back if `put`. The block is u8
 * sc[16], qs[64]; f16 d, dmin. The low nibble of a byte of sc is S, the high
 * nibble M. */
void quant_move_q2_k(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    for (int h = 0; h < 2; h++)
        scale(b + 2 * t + h, 0, 255, &l->sub[h], 0, put);
    bits(b + 16 + 32 * (t / 4), 32, 2 * (t % 4), 3, l->c, 0, put);
    half(b + 80, &l->sup[0], put);
    half(b + 82, &l->sup[1], put);
}

/* Copies tile t of a Q3_K block to lane l, or back if `put`. The block is u8
 * hmask[32], qs[64], sc[12]; f16 d. There are sixteen 6-bit scales. The low
 * nibbles of sc[0..7] are the lower four bits of scales 0..7, the high nibbles
 * those of scales 8..15. Each byte of sc[8..11] has the upper two bits of four
 * scales. */
void quant_move_q3_k(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block, *sc = b + 96;

    bits(b + 32 + 32 * (t / 4), 32, 2 * (t % 4), 3, l->c, 0, put);
    bits(b, 32, t, 1, l->c, 2, put);
    for (int h = 0; h < 2; h++) {
        int i = 2 * t + h;
        uint16_t s = put ? signed_scale(l->sub[h], true) : 0;

        scale(sc + i % 8, 4 * (i / 8), 15, &s, 0, put);
        scale(sc + 8 + i % 4, 2 * (i / 4), 3, &s, 4, put);
        if (!put)
            l->sub[h] = signed_scale(s, false);
    }
    half(b + 108, &l->sup[0], put);
}

/* Copies the scales of tile t of a Q4_K or Q5_K block to or from a lane. Both
 * blocks begin with f16 d, dmin; u8 sc[12]. sc has the 6-bit S and M of eight
 * tiles. */
static inline void scales_k(uint8_t *b, int t, struct quant_lane *l, bool put)
{
    uint8_t *sc = b + 4;

    half(b, &l->sup[0], put);
    half(b + 2, &l->sup[1], put);
    if (t < 4) {
        scale(sc + t, 0, 63, &l->sub[0], 0, put);
        scale(sc + t + 4, 0, 63, &l->sub[1], 0, put);
        return;
    }
    scale(sc + t + 4, 0, 15, &l->sub[0], 0, put);
    scale(sc + t - 4, 6, 3, &l->sub[0], 4, put);
    scale(sc + t + 4, 4, 15, &l->sub[1], 0, put);
    scale(sc + t, 6, 3, &l->sub[1], 4, put);
}

/* Copies tile t of a Q4_K block to lane l, or back if `put`. The block is f16
 * d, dmin; u8 sc[12] as in scales_k(); u8 qs[128]. */
void quant_move_q4_k(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    scales_k(b, t, l, put);
    bits(b + 16 + 32 * (t / 2), 32, 4 * (t % 2), 15, l->c, 0, put);
}

/* Copies tile t of a Q5_K block to lane l, or back if `put`. The block is f16
 * d, dmin; u8 sc[12] as in scales_k(); u8 qh[32], qs[128]. */
void quant_move_q5_k(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    scales_k(b, t, l, put);
    bits(b + 48 + 32 * (t / 2), 32, 4 * (t % 2), 15, l->c, 0, put);
    bits(b + 16, 32, t, 1, l->c, 4, put);
}

/* Copies tile t of a Q6_K block to lane l, or back if `put`. The block is u8
 * ql[128], qh[64]; s8 sc[16]; f16 d. */
void quant_move_q6_k(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    bits(b + 64 * (t / 4) + 32 * (t % 2), 32, 4 * (t % 4 / 2), 15, l->c, 0,
         put);
    bits(b + 128 + 32 * (t / 4), 32, 2 * (t % 4), 3, l->c, 4, put);
    for (int h = 0; h < 2; h++)
        scale(b + 192 + 2 * t + h, 0, 255, &l->sub[h], 0, put);
    half(b + 208, &l->sup[0], put);
}

/* Copies tile t of an IQ4_XS block to lane l, or back if `put`. The block is
 * f16 d; u16 sh; u8 sl[4], qs[128]. The lower four bits of a 6-bit scale are in
 * sl, the upper two in sh. */
void quant_move_iq4_xs(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;
    uint16_t s = put ? signed_scale(l->sub[0], true) : 0;

    half(b, &l->sup[0], put);
    scale(b + 4 + t / 2, 4 * (t % 2), 15, &s, 0, put);
    scale(b + 2 + t / 4, 2 * (t % 4), 3, &s, 4, put);
    if (!put)
        l->sub[0] = signed_scale(s, false);
    nibbles(b + 8 + 16 * t, l->c, put);
}

/* Copies tile t of an NVFP4 block to lane l, or back if `put`. The block is u8
 * d[4], a UE4M3 scale per 16 values; u8 qs[32], 8 bytes per 16 values. The low
 * nibbles of 8 bytes are the first 8 values, the high nibbles the others. */
void quant_move_nvfp4(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    for (int h = 0; h < 2; h++) {
        uint8_t *qs = b + 4 + 8 * (2 * t + h);

        scale(b + 2 * t + h, 0, 255, &l->sub[h], 0, put);
        bits(qs, 8, 0, 15, l->c + 16 * h, 0, put);
        bits(qs, 8, 4, 15, l->c + 16 * h + 8, 0, put);
    }
}

/* Copies tile t of a TQ2_0 block to lane l, or back if `put`. The block is u8
 * qs[64]; f16 d. */
void quant_move_tq2_0(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    bits(b + 32 * (t / 4), 32, 2 * (t % 4), 3, l->c, 0, put);
    half(b + 64, &l->sup[0], put);
}

/* Copies digit `at` of a byte of TQ1_0 to or from *c. Five codes of 0 .. 2 are
 * the digits of a number to base 3, below 243; the first code is the highest
 * digit. The byte is that number * 256 / 243, rounded up. So multiplying the
 * byte by 3 again and again gives one digit after the other, as the part above
 * 8 bits. `n_digit` is 5, or 4 if the last digit is always 0. */
static void digit(uint8_t *b, int n_digit, int at, uint8_t *c, bool put)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    unsigned number = 0;

    if (!put) {
        *c = (uint8_t)((uint8_t)(*b * power[at]) * 3 >> 8);
        return;
    }
    for (int i = 0; i < 5; i++) {
        uint8_t other = 0;

        if (i < n_digit)
            digit(b, n_digit, i, &other, false);
        number = number * 3 + (i == at ? *c : other);
    }
    *b = (uint8_t)((number * 256 + 242) / 243);
}

/* Copies tile t of a TQ1_0 block to lane l, or back if `put`. The block is u8
 * qs[48], qh[4]; f16 d. In qs[0 .. 31], digit t of byte i is value 32 t + i. In
 * qs[32 .. 47], digit n of byte i (from 0) is value 160 + 16 n + i. In qh,
 * digit n of byte i is value 240 + 4 n + i, n = 0 .. 3. */
void quant_move_tq1_0(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    for (int i = 0; i < 32; i++) {
        int v = 32 * t + i;

        if (v < 160)
            digit(b + i, 5, t, &l->c[i], put);
        else if (v < 240)
            digit(b + 32 + v % 16, 5, v / 16 - 10, &l->c[i], put);
        else
            digit(b + 48 + v % 4, 4, (v - 240) / 4, &l->c[i], put);
    }
    half(b + 52, &l->sup[0], put);
}
