/* Conversions between float and the 16-bit formats IEEE half precision and
 * bfloat16, given as bits. Results are rounded to nearest, ties to even. All
 * results except NaN payloads are those of IEEE, on every CPU. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float float_from_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exp = (h >> 10) & 31, man = h & 0x3ff;

    if (exp == 31)
        return float_from_bits(sign | 0x7f800000u | man << 13);
    if (exp == 0) { /* The half is zero or subnormal. Its value is man * 2^-24,
                       which a float represents exactly. */
        float f = (float)man * 0x1p-24f;

        return float_from_bits(sign | float_bits(f));
    }
    return float_from_bits(sign | (exp + 112) << 23 | man << 13);
}

static inline uint16_t f32_to_f16(float f)
{
    uint32_t u = float_bits(f);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    uint32_t abs = u & 0x7fffffff;

    if (abs > 0x7f800000)
        return sign | 0x7e00; /* f is a NaN: returns a quiet NaN with its
                                 sign */
    if (abs >= 0x477ff000)    /* f rounds to 65536 or more, beyond the largest
                                 half: returns infinity */
        return sign | 0x7c00;
    /* f becomes a subnormal half or zero. Adding 0.5 rounds f to a multiple of
     * 2^-24, because that is the spacing of floats from 0.5 to 1. */
    if (abs < 0x38800000) {
        float r = float_from_bits(abs) + 0.5f;

        return sign | (uint16_t)(float_bits(r) - float_bits(0.5f));
    }
    abs += 0xfff + (abs >> 13 & 1);
    return sign | (uint16_t)((abs - 0x38000000) >> 13);
}

static inline float bf16_to_f32(uint16_t h)
{
    return float_from_bits((uint32_t)h << 16);
}

static inline uint16_t f32_to_bf16(float f)
{
    uint32_t u = float_bits(f);

    if ((u & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(u >> 16 | 64); /* f is a NaN: bit 6 makes the result a
                                            quiet NaN */
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif
