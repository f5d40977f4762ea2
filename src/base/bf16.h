/* BF16 products as processors compute them: VDPBF16PS of x86, by Intel's
 * manual, volume 2. Where the manual leaves the result open, it is as on AMD's
 * Zen 4. Kernel sets use the instruction only if it does all of this
 * (cpu_bf16_agrees). A pair is two values in 32 bits, the one with the lower
 * index in the lower half. */
#ifndef BASE_BF16_H
#define BASE_BF16_H

#include "base/half.h"

#include <math.h>

/* Flushes values below the smallest normal number, 2^-126, to 0. */
static inline float bf16_flush(float f)
{
    return fabsf(f) < 0x1p-126f ? copysignf(0, f) : f;
}

/* Rounds to the nearest BF16, ties to even. */
static inline uint16_t bf16_round(float f)
{
    return f32_to_bf16(bf16_flush(f));
}

/* Returns a * b + s, rounded once. A result that is below 2^-126 when rounded
 * to 24 bits is 0. fmaf may have rounded it up to that bound, so it is checked
 * in a range where it has all its bits. */
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

/* Returns s plus the product of the upper values, then plus that of the lower
 * ones. Inputs and sums below 2^-126 count as 0. */
static inline float bf16_pair_add(float s, uint32_t a, uint32_t b)
{
    s = bf16_fma(bf16_flush(float_from_bits(a & 0xffff0000u)),
                 bf16_flush(float_from_bits(b & 0xffff0000u)), bf16_flush(s));
    return bf16_fma(bf16_flush(float_from_bits(a << 16)),
                    bf16_flush(float_from_bits(b << 16)), s);
}

#endif
