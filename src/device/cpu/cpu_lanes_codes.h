/* Vectors of sixteen bytes, each with a code of 4 or 5 bits of a cache tile,
 * and how codes become levels and floats. All operations are exact, so every
 * instruction set gives the same bits. */
#ifndef DEVICE_CPU_CPU_LANES_CODES_H
#define DEVICE_CPU_CPU_LANES_CODES_H

#include "device/cpu/cpu_simd.h"

#include <string.h>

#if defined(LANES_AVX512) || defined(LANES_AVX2)

typedef __m128i codes;

LANES_INLINE codes codes_set(uint8_t x)
{
    return _mm_set1_epi8((char)x);
}

LANES_INLINE codes codes_load(const void *p)
{
    return _mm_loadu_si128(p);
}

/* Returns a vector of sixteen bytes: eight times p[0], then eight times
 * p[1]. */
LANES_INLINE codes codes_spread(const uint8_t *p)
{
    return _mm_unpacklo_epi64(codes_set(p[0]), codes_set(p[1]));
}

/* Returns four bits of each byte of `a`: its low half if `shift` is 0, its high
 * half if it is 4. */
LANES_INLINE codes codes_nibbles(codes a, int shift)
{
    return _mm_and_si128(_mm_srl_epi16(a, _mm_cvtsi32_si128(shift)),
                         codes_set(15));
}

/* Replaces each byte c of `a`, a code 0 .. 15, by its level, level[c]. */
LANES_INLINE codes codes_levels(const int8_t level[16], codes a)
{
    return _mm_shuffle_epi8(codes_load(level), a);
}

/* Adds 16 to each byte of `a` whose code has its fifth bit set. Byte i of
 * `mask` has one bit set. The fifth bit of code i is set if that bit is set in
 * byte i of `bits`. */
LANES_INLINE codes codes_fifth(codes a, codes bits, codes mask)
{
    __m128i is = _mm_cmpeq_epi8(_mm_and_si128(bits, mask), mask);

    return _mm_add_epi8(a, _mm_and_si128(is, codes_set(16)));
}

/* Converts the sixteen signed bytes of `a` to floats. */
LANES_INLINE lanes lanes_from_codes(codes a)
{
    int8_t x[LANES];

    _mm_storeu_si128((void *)x, a);
    return lanes_from_s8(x);
}

#elif defined(LANES_NEON)

typedef uint8x16_t codes;

LANES_INLINE codes codes_set(uint8_t x)
{
    return vdupq_n_u8(x);
}

LANES_INLINE codes codes_load(const void *p)
{
    return vld1q_u8(p);
}

LANES_INLINE codes codes_spread(const uint8_t *p)
{
    return vcombine_u8(vdup_n_u8(p[0]), vdup_n_u8(p[1]));
}

LANES_INLINE codes codes_nibbles(codes a, int shift)
{
    return vandq_u8(vshlq_u8(a, vdupq_n_s8((int8_t)-shift)), codes_set(15));
}

LANES_INLINE codes codes_levels(const int8_t level[16], codes a)
{
    return vqtbl1q_u8(codes_load(level), a);
}

LANES_INLINE codes codes_fifth(codes a, codes bits, codes mask)
{
    return vaddq_u8(a, vandq_u8(vtstq_u8(bits, mask), codes_set(16)));
}

LANES_INLINE lanes lanes_from_codes(codes a)
{
    int8_t x[LANES];

    vst1q_s8(x, vreinterpretq_s8_u8(a));
    return lanes_from_s8(x);
}

#else

typedef struct {
    uint8_t x[LANES];
} codes;

LANES_INLINE codes codes_set(uint8_t x)
{
    codes a;

    memset(a.x, x, sizeof a.x);
    return a;
}

LANES_INLINE codes codes_load(const void *p)
{
    codes a;

    memcpy(a.x, p, sizeof a.x);
    return a;
}

LANES_INLINE codes codes_spread(const uint8_t *p)
{
    codes a;

    for (int i = 0; i < LANES; i++)
        a.x[i] = p[i / 8];
    return a;
}

LANES_INLINE codes codes_nibbles(codes a, int shift)
{
    for (int i = 0; i < LANES; i++)
        a.x[i] = a.x[i] >> shift & 15;
    return a;
}

LANES_INLINE codes codes_levels(const int8_t level[16], codes a)
{
    for (int i = 0; i < LANES; i++)
        a.x[i] = (uint8_t)level[a.x[i]];
    return a;
}

LANES_INLINE codes codes_fifth(codes a, codes bits, codes mask)
{
    for (int i = 0; i < LANES; i++)
        a.x[i] = (uint8_t)(a.x[i] + (bits.x[i] & mask.x[i] ? 16 : 0));
    return a;
}

LANES_INLINE lanes lanes_from_codes(codes a)
{
    return lanes_from_s8((const int8_t *)a.x);
}

#endif
#endif
