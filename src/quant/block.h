/* Unpacks and packs the quantization blocks of GGUF files; internal to
 * src/quant.
 *
 * A *lane* is the part of a packed tile (pack.h) that belongs to one row: 32
 * codes and their scales, as raw bits. One function per format knows where each
 * bit of a lane is in a block, and copies the bits in either direction. So
 * packing is the inverse of unpacking by construction. Nothing here computes
 * values. */
#ifndef QUANT_BLOCK_H
#define QUANT_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct quant_lane {
    uint8_t c[32]; /* codes as unsigned integers, before the bias is
                      subtracted */
    /* Sub scales of the 32 values, each a byte or an f16; see enum pack_sub. */
    uint16_t sub[2];
    uint16_t sup[2]; /* f16 d and dmin of the super-block */
};

/* Copies tile t (0 .. block/32 - 1) of `block` to *l; if `put`, copies *l to
 * the tile. `put` changes only the tile's codes and sub scales and the block's
 * super scales; without it the block is not changed. Reading all tiles and
 * writing them back gives the same bytes, except for TQ1_0. There two bytes can
 * stand for the same five codes, and the one that encoders write is written. */
typedef void quant_move(void *block, int t, struct quant_lane *l, bool put);

quant_move quant_move_q8_0;
quant_move quant_move_q4_0; /* also for IQ4_NL, whose blocks are alike */
quant_move quant_move_q4_1;
quant_move quant_move_q5_0;
quant_move quant_move_q5_1;
quant_move quant_move_q2_k;
quant_move quant_move_q3_k;
quant_move quant_move_q4_k;
quant_move quant_move_q5_k;
quant_move quant_move_q6_k;
quant_move quant_move_iq4_xs;
quant_move quant_move_mxfp4;
quant_move quant_move_nvfp4;
quant_move quant_move_tq1_0;
quant_move quant_move_tq2_0;
/* The formats IQ1, IQ2 and IQ3; defined in block_grid.c. */
quant_move quant_move_iq1_s;
quant_move quant_move_iq1_m;
quant_move quant_move_iq2_xxs;
quant_move quant_move_iq2_xs;
quant_move quant_move_iq2_s;
quant_move quant_move_iq3_xxs;
quant_move quant_move_iq3_s;

/* Packs n blocks of each of 16 rows to `out`; the blocks begin at byte `at` of
 * each row. For each block it writes the super scales, then the tiles, in the
 * order of a panel (pack.h). For float formats it packs 8 n elements of each
 * row. */
typedef void quant_weave(const uint8_t *const *row, size_t at, int n,
                         uint8_t *out);

quant_weave quant_weave_16; /* elements of two bytes: F16, BF16 */
quant_weave quant_weave_32; /* elements of four bytes: F32 */
quant_weave quant_weave_q8_0;
quant_weave quant_weave_q4_0; /* also for IQ4_NL, whose blocks are alike */
quant_weave quant_weave_q4_k;
quant_weave quant_weave_q5_k;
quant_weave quant_weave_q6_k;
quant_weave quant_weave_mxfp4;

#endif
