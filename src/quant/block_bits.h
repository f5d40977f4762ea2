/* Copies of bit fields between a block of a GGUF file and a lane, in either
 * direction (block.h). The functions of block.c and block_grid.c consist of
 * these. */
#ifndef QUANT_BLOCK_BITS_H
#define QUANT_BLOCK_BITS_H

#include "quant/block.h"

#include <string.h>

/* Copies a bit field of each of n values between bytes b[n] of a block and
 * codes c[n] of a lane: from b to c, or from c to b if `put`. The field begins
 * at bit `shift` of b[i] and at bit `at` of c[i]; `mask` has as many ones as
 * the field has bits. Copying to c[i] is an OR, so the bits there must be zero
 * before. */
static inline void bits(uint8_t *restrict b, int n, int shift, unsigned mask,
                        uint8_t *restrict c, int at, bool put)
{
    if (!put) {
        for (int i = 0; i < n; i++)
            c[i] |= (uint8_t)((b[i] >> shift & mask) << at);
        return;
    }
    for (int i = 0; i < n; i++)
        b[i] =
            (uint8_t)((b[i] & ~(mask << shift)) | (c[i] >> at & mask) << shift);
}

/* Copies a bit field of a scale between byte *b of a block and *s: to *s, or to
 * *b if `put`. The field begins at bit `shift` of *b and at bit `at` of *s; the
 * bits of *s must be zero before. */
static inline void scale(uint8_t *b, int shift, unsigned mask, uint16_t *s,
                         int at, bool put)
{
    if (put)
        *b = (uint8_t)((*b & ~(mask << shift)) | (*s >> at & mask) << shift);
    else
        *s |= (uint16_t)((*b >> shift & mask) << at);
}

static inline void half(uint8_t *b, uint16_t *s, bool put)
{
    memcpy(put ? (void *)b : (void *)s, put ? (void *)s : (void *)b, 2);
}

#endif
