/* Activations quantized to 8 bits, the input of integer kernels.
 *
 *   d = max|x| / 127;  q = x / d rounded to nearest even, so -127 .. 127;
 *   d = 0 if all are 0
 *   sum[h] = sum of q over the half-block h (16 values), for minima and biases
 *
 * A row of k values is k/32 blocks. The format of the weight decides how many
 * blocks share one d. With formats whose blocks have 32 values, each block has
 * its own d. With formats whose super-blocks have 256 values, the blocks of a
 * chunk (quant/pack.h) share one d, because products are summed over a chunk as
 * integers. Every block stores its d in any case. So a part of a row that
 * consists of whole blocks and chunks quantizes to the same bits as in the
 * whole row. */
#ifndef QUANT_Q8_H
#define QUANT_Q8_H

#include <stdint.h>

enum { Q8_CHUNK = 256 }; /* maximum number of values that share a scale */

struct q8_block {
    float d;
    int16_t sum[2];
    int8_t q[32];
};

/* Encodes n values. Each `share` values, and the remainder at the end, have a
 * common scale; n and `share` are multiples of 32. The arithmetic gives the
 * same bits on every instruction set: multiply by 127/max|x|, round to nearest
 * even. If max|x| is below 2^-120, the values count as zero. If one is an
 * infinity or a NaN, all values that share its scale get d = NaN and q = 0, so
 * that the error is visible in the result. */
void q8_encode(struct q8_block *dst, const float *src, int64_t n,
               int64_t share);

#endif
