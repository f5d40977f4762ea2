/* Activations quantized to 8 bits, the input of integer kernels.
 *
 *   d = max|x| / 127;  q = x / d rounded to nearest even, so -127 .. 127;
 *   d = 0 if all are 0
 *   sum[h] = sum of q over the half-block h (16 values), for minima and biases
 *
 * A row of k values is k/32 blocks. The weight decides how many of them share
 * one d: formats with blocks of 32 need one each. Formats with super-blocks of
 * 256 sum whole chunks as integers and need one per chunk (quant/pack.h). Every
 * block stores its d nevertheless. Nothing else depends on more than the block,
 * so any slice at a multiple of 32 that cuts no chunk quantizes to the same
 * bits. */
#ifndef QUANT_Q8_H
#define QUANT_Q8_H

#include <stdint.h>

enum { Q8_CHUNK = 256 }; /* most values that share a scale */

struct q8_block {
    float d;
    int16_t sum[2];
    int8_t q[32];
};

/* Encodes n values. Every `share` of them have one scale, and the remainder at
 * the end another; both are multiples of 32. The arithmetic gives the same bits
 * on every instruction set: multiply by 127/max, round to nearest even. If the
 * greatest magnitude is below 2^-120, the values count as zero. If one is an
 * infinity or a NaN, all get d = NaN and q = 0, so that the result shows the
 * damage. */
void q8_encode(struct q8_block *dst, const float *src, int64_t n,
               int64_t share);

#endif
