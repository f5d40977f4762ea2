/* Reference encoders of the formats that plait itself writes, for caches,
 * models with random weights and tests.
 *
 * The scale of a block is rounded to f16 first, and the codes are chosen for
 * the rounded scale. So the error of a value is at most half the distance
 * between two codes, unless its code is the least or the greatest one. A NaN or
 * an infinity makes the whole block invalid. */
#include "quant/codec.h"

#include <string.h>

#include "base/half.h"

/* Rounds x to an integer, ties to even, for |x| < 2^22; for any other x the
 * result is unspecified. The addition does the rounding: near the constant, 1.5
 * * 2^23, a float has no bits for fractions. */
static inline int32_t round_even(float x)
{
    return (int32_t)(float_bits(x + 0x1.8p23f) - 0x4b400000u);
}

static inline int32_t clamp(int32_t x, int32_t lo, int32_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Returns the element of x[32] with the largest magnitude, the first of several
 * such. A NaN counts as larger than all numbers. */
static float extreme(const float *x)
{
    uint32_t best = float_bits(x[0]);

    for (int i = 1; i < 32; i++) {
        uint32_t u = float_bits(x[i]);

        if ((u & 0x7fffffff) > (best & 0x7fffffff))
            best = u;
    }
    return float_from_bits(best);
}

/* Stores the scale d as f16 at the start of a block. Returns 1 / (the rounded
 * scale), or 0 if that scale is 0. */
static float put_scale(uint8_t *block, float d)
{
    uint16_t h = f32_to_f16(d);

    memcpy(block, &h, sizeof h);
    d = f16_to_f32(h);
    return d == 0 ? 0 : 1 / d;
}

void quant_encode_f32(void *dst, const float *src, int64_t n)
{
    memcpy(dst, src, (size_t)n * sizeof *src);
}

void quant_encode_f16(void *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = f32_to_f16(src[i]);

        memcpy((char *)dst + i * 2, &h, sizeof h);
    }
}

void quant_encode_bf16(void *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t h = f32_to_bf16(src[i]);

        memcpy((char *)dst + i * 2, &h, sizeof h);
    }
}

void quant_encode_q8_0(void *dst, const float *src, int64_t n)
{
    uint8_t *b = dst;

    for (; n > 0; n -= 32, src += 32, b += 34) {
        float max = float_from_bits(float_bits(extreme(src)) & 0x7fffffff);
        float inv = put_scale(b, max / 127);

        for (int i = 0; i < 32; i++)
            b[2 + i] = (uint8_t)clamp(round_even(src[i] * inv), -127, 127);
    }
}

/* The integers that codes stand for are -8 .. 7. The scale is chosen so that
 * the value of largest magnitude becomes exactly -8. */
void quant_encode_q4_0(void *dst, const float *src, int64_t n)
{
    uint8_t *b = dst;

    for (; n > 0; n -= 32, src += 32, b += 18) {
        float inv = put_scale(b, extreme(src) / -8);

        for (int i = 0; i < 16; i++) {
            int32_t lo = clamp(round_even(src[i] * inv), -8, 7);
            int32_t hi = clamp(round_even(src[16 + i] * inv), -8, 7);

            b[2 + i] = (uint8_t)((lo + 8) | (hi + 8) << 4);
        }
    }
}
