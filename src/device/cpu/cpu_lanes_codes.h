/* Vectors of sixteen bytes, each with a code of 4 or 5 bits of a cache tile,
 * and how codes become levels and floats. All operations are exact, so every
 * instruction set gives the same bits. Only the look-up in a table needs an
 * instruction that C does not have. */
#ifndef DEVICE_CPU_CPU_LANES_CODES_H
#define DEVICE_CPU_CPU_LANES_CODES_H

#include "device/cpu/cpu_simd.h"

typedef uint8_t codes __attribute__((vector_size(16)));
typedef uint16_t code_pairs __attribute__((vector_size(16)));

/* Replaces each byte c of `a`, which is below 16, by table[c]. */
LANES_INLINE codes codes_lookup(codes table, codes a)
{
#if defined(LANES_AVX512) || defined(LANES_AVX2)
    return (codes)_mm_shuffle_epi8((__m128i)table, (__m128i)a);
#elif defined(LANES_NEON)
    return (codes)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)a);
#else
    for (int i = 0; i < LANES; i++)
        a[i] = table[a[i]];
    return a;
#endif
}

LANES_INLINE codes codes_set(uint8_t x)
{
    return (codes){0} + x;
}

LANES_INLINE codes codes_load(const void *p)
{
    codes a;

    memcpy(&a, p, sizeof a);
    return a;
}

/* Returns a vector of sixteen bytes: eight times p[0], then eight times
 * p[1]. */
LANES_INLINE codes codes_spread(const uint8_t *p)
{
    uint16_t both;

    memcpy(&both, p, sizeof both);
    return codes_lookup(
        (codes)((code_pairs){0} + both),
        (codes){0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1});
}

/* Returns four bits of each byte of `a`: its low half if `shift` is 0, its high
 * half if it is 4. */
LANES_INLINE codes codes_nibbles(codes a, int shift)
{
    return (codes)((code_pairs)a >> shift) & 15;
}

/* Replaces each byte c of `a`, a code 0 .. 15, by its level, level[c]. */
LANES_INLINE codes codes_levels(const int8_t level[16], codes a)
{
    return codes_lookup(codes_load(level), a);
}

/* Adds 16 to each byte of `a` whose code has its fifth bit set. Byte i of
 * `mask` has one bit set. The fifth bit of code i is set if that bit is set in
 * byte i of `bits`. */
LANES_INLINE codes codes_fifth(codes a, codes bits, codes mask)
{
    return a + ((codes)((bits & mask) == mask) & 16);
}

/* Converts the sixteen signed bytes of `a` to floats. */
LANES_INLINE lanes lanes_from_codes(codes a)
{
#ifdef LANES_AVX2
    /* Stays in registers: both halves read back from memory took 5 % of
     * attention over q4_0. */
    __m128i q = (__m128i)a;

    return (lanes){
        {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
         _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)))}};
#else
    int8_t x[LANES];

    memcpy(x, &a, sizeof x);
    return lanes_from_s8(x);
#endif
}

#endif
