/* Products of BF16 numbers, with the results of the x86 instruction VDPBF16PS
 * (Intel's manual, volume 2). If the manual does not define the result, the
 * result is that of AMD's Zen 4. Kernel sets use the instruction only if it
 * gives the same results (cpu_bf16_agrees). A pair is two values in 32 bits,
 * the one with the lower index in the lower half. */
#ifndef BASE_BF16_H
#define BASE_BF16_H

#include "base/half.h"

#include <math.h>

/* Returns 0 with the sign of f if |f| is below the smallest normal number,
 * 2^-126. Otherwise returns f. */
static inline float bf16_flush(float f)
{
    return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f;
}

/* Rounds to the nearest BF16 number, ties to even, after bf16_flush. Returns
 * its bits. */
static inline uint16_t bf16_round(float f)
{
    return f32_to_bf16(bf16_flush(f));
}

/* Returns a * b + s, rounded once, or 0 if the result, rounded to 24 bits, has
 * a magnitude below 2^-126. At such magnitudes fmaf keeps fewer bits and may
 * round up to 2^-126. So if the magnitude is at most 2^-126, the result is
 * computed again, scaled by 2^64, with all 24 bits. */
static inline float bf16_fma(float a, float b, float s)
{
    float r = fmaf(a, b, s);

    if (fabsf(r) <= 0x1p-126f &&
        fabsf(fmaf(a * 0x1p64f, b, s * 0x1p64f)) < 0x1p-62f)
        return copysignf(0, r);
    return r;
}

static inline uint32_t bf16_pair(float lower, float upper)
{
    return bf16_round(lower) | (uint32_t)bf16_round(upper) << 16;
}

/* Adds the product of the upper values of pairs a and b to s, then the product
 * of the lower values. Returns the sum. Inputs and sums whose magnitude is
 * below 2^-126 count as 0. */
static inline float bf16_pair_add(float s, uint32_t a, uint32_t b)
{
    s = bf16_fma(bf16_flush(float_from_bits(a & 0xffff0000u)),
                 bf16_flush(float_from_bits(b & 0xffff0000u)), bf16_flush(s));
    return bf16_fma(bf16_flush(float_from_bits(a << 16)),
                    bf16_flush(float_from_bits(b << 16)), s);
}

#endif
