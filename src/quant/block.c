/* The position of each bit in each block format: one function per format, for
 * both directions (block.h). The comment before a function is the layout of its
 * block in GGUF files, as fields in the order of memory: d and dmin are scales,
 * qs and ql the low bits of codes, qh and hmask the high bits, sc integer
 * scales. S and M are the sub scales in the formula of pack.h. Arithmetic on
 * values is in decode.c and pack.c. Blocks are little-endian, as are the
 * machines that plait runs on. */
#include "quant/block_bits.h"

/* Converts a 6-bit scale between a block, which stores it with 32 added, and a
 * lane, which has it as a signed byte. */
static inline uint16_t signed_scale(uint16_t s, bool put)
{
    return put ? (s + 32) & 63 : (uint8_t)(s - 32);
}

/* Copies the 4-bit codes of a tile. The low nibbles of qs[16] are the first
 * half of the tile, the high nibbles the second half. */
static inline void nibbles(uint8_t *qs, uint8_t *c, bool put)
{
    bits(qs, 16, 0, 15, c, 0, put);
    bits(qs, 16, 4, 15, c + 16, 0, put);
}

/* Copies the fifth bits of codes: bit l of the 32-bit word at qh is bit 4 of
 * code l. */
static inline void fifth_bits(uint8_t *qh, uint8_t *c, bool put)
{
    for (int l = 0; l < 32; l++)
        bits(qh + l / 8, 1, l % 8, 1, c + l, 4, put);
}

/* Block of Q8_0: f16 d; s8 q[32]. A code is q + 128. */
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

/* Block of Q4_0 and IQ4_NL: f16 d; u8 qs[16]. */
void quant_move_q4_0(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    half(b, &l->sub[0], put);
    nibbles(b + 2, l->c, put);
}

/* Block of Q4_1: f16 d, m; u8 qs[16]. */
void quant_move_q4_1(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    half(b, &l->sub[0], put);
    half(b + 2, &l->sub[1], put);
    nibbles(b + 4, l->c, put);
}

/* Block of Q5_0: f16 d; u32 qh; u8 qs[16]. */
void quant_move_q5_0(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    half(b, &l->sub[0], put);
    fifth_bits(b + 2, l->c, put);
    nibbles(b + 6, l->c, put);
}

/* Block of Q5_1: f16 d, m; u32 qh; u8 qs[16]. */
void quant_move_q5_1(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    half(b, &l->sub[0], put);
    half(b + 2, &l->sub[1], put);
    fifth_bits(b + 4, l->c, put);
    nibbles(b + 8, l->c, put);
}

/* Block of MXFP4: u8 e, the exponent of the scale; u8 qs[16]. */
void quant_move_mxfp4(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    (void)t;
    scale(b, 0, 255, &l->sub[0], 0, put);
    nibbles(b + 1, l->c, put);
}

/* Block of Q2_K: u8 sc[16], qs[64]; f16 d, dmin. The low nibble of a byte of sc
 * is S, the high nibble M. */
void quant_move_q2_k(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    for (int h = 0; h < 2; h++)
        scale(b + 2 * t + h, 0, 255, &l->sub[h], 0, put);
    bits(b + 16 + 32 * (t / 4), 32, 2 * (t % 4), 3, l->c, 0, put);
    half(b + 80, &l->sup[0], put);
    half(b + 82, &l->sup[1], put);
}

/* Block of Q3_K: u8 hmask[32], qs[64], sc[12]; f16 d. Sixteen 6-bit scales: the
 * low nibbles of sc[0..7] are the lower four bits of scales 0..7, the high
 * nibbles those of scales 8..15. Each byte of sc[8..11] has the upper two bits
 * of four scales. */
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

/* Copies the scales of tile t of Q4_K and Q5_K. Their blocks begin with f16 d,
 * dmin; u8 sc[12], which has the 6-bit S and M of eight tiles. */
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

/* Block of Q4_K: the scales of scales_k(); u8 qs[128]. */
void quant_move_q4_k(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    scales_k(b, t, l, put);
    bits(b + 16 + 32 * (t / 2), 32, 4 * (t % 2), 15, l->c, 0, put);
}

/* Block of Q5_K: the scales of scales_k(); u8 qh[32], qs[128]. */
void quant_move_q5_k(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    scales_k(b, t, l, put);
    bits(b + 48 + 32 * (t / 2), 32, 4 * (t % 2), 15, l->c, 0, put);
    bits(b + 16, 32, t, 1, l->c, 4, put);
}

/* Block of Q6_K: u8 ql[128], qh[64]; s8 sc[16]; f16 d. */
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

/* Block of IQ4_XS: f16 d; u16 sh; u8 sl[4], qs[128]. A 6-bit scale has its low
 * nibble in sl and its upper two bits in sh. */
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

/* Block of NVFP4: u8 d[4], a UE4M3 scale per 16 values; u8 qs[32], 8 bytes per
 * 16 values. The low nibbles of these are the first 8 values. */
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

/* Block of TQ2_0: u8 qs[64]; f16 d. */
void quant_move_tq2_0(void *block, int t, struct quant_lane *l, bool put)
{
    uint8_t *b = block;

    bits(b + 32 * (t / 4), 32, 2 * (t % 4), 3, l->c, 0, put);
    half(b + 64, &l->sup[0], put);
}

/* Copies digit `at` of a byte of TQ1_0 to or from *c. Five codes of 0 .. 2 are
 * the digits of a base-3 number below 243, the first code being the highest
 * digit. The byte is that number * 256 / 243, rounded up; so each
 * multiplication of the byte by 3 gives the next digit as its overflow.
 * `n_digit` is 5, or 4 if the last digit is always 0. */
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

/* Block of TQ1_0: u8 qs[48], qh[4]; f16 d. In qs[0 .. 31], digit t of byte i is
 * value 32 t + i. In qs[32 .. 47], digit n of byte i (from 0) is value 160 + 16
 * n + i. In qh, digit n of byte i is value 240 + 4 n + i, n = 0 .. 3. */
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
