/* Activations quantized to 8 bits: what integer kernels read.
 *
 *   d = max|x| / 127;  q = x / d rounded to nearest even, so -127 .. 127;
 *   d = 0 if all are 0
 *   sum[h] = sum of q over the half-block h (16 values), for minima and biases
 *
 * A row of k values is k/32 blocks. How many of them share one d is up to the
 * weight: formats of blocks of 32 want one each; formats with super-blocks of
 * 256 sum whole chunks as integers and want one a chunk (quant/pack.h).
 * The d is in every block all the same. Nothing else depends on more than the
 * block, so any slice at a multiple of 32 that cuts no chunk quantizes to the
 * same bits. */
#ifndef QUANT_Q8_H
#define QUANT_Q8_H

#include <stdint.h>

enum { Q8_CHUNK = 256 }; /* most values that share a scale */

struct q8_block {
    float d;
    int16_t sum[2];
    int8_t q[32];
};

/* n values, every `share` of which have one scale, and what is left at the end
 * another; both multiples of 32. The arithmetic is written so that every
 * instruction set gives the same bits: multiply by 127/max, round to nearest
 * even. Values of which the greatest is below 2^-120 count as zero; among which
 * is an infinity or a NaN, they get d = NaN and q = 0, so that the damage shows
 * in the result. */
void q8_encode(struct q8_block *dst, const float *src, int64_t n,
               int64_t share);

#endif
