/* Activations quantized to 8 bits in blocks of 32: what integer kernels read.
 *
 *   d = max|x| / 127;  q = x / d rounded to nearest even;  d = 0 if all are 0
 *   sum[h] = sum of q over the half-block h (16 values), for minima and biases
 *
 * A row of k values is k/32 blocks; blocks never depend on one another, so any
 * part at a multiple of 32 quantizes to the same bits. */
#ifndef QUANT_Q8_H
#define QUANT_Q8_H

#include <stdint.h>

struct q8_block {
    float d;
    int16_t sum[2];
    int8_t q[32];
};

/* n is a multiple of 32. The arithmetic is written so that every instruction
 * set gives the same bits: multiply by 127/max, round to nearest even. A block
 * with max|x| < 2^-120 counts as zero; one with an infinity or a NaN gets
 * d = NaN and q = 0, so that the damage shows in the result. */
void q8_encode(struct q8_block *dst, const float *src, int64_t n);

#endif
