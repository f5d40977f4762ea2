/* Vectors of sixteen pairs of BF16 values (base/bf16.h), and their products.
 * Files compiled for AVX512_BF16 use that processor's instructions. The other
 * form is plain C, which is the specification, and only the generic kernel set
 * uses it. The remaining vector sets have no BF16 kernels, so LANES_HAVE_BF16
 * is 0 in their files. */
#ifndef DEVICE_CPU_CPU_LANES_BF16_H
#define DEVICE_CPU_CPU_LANES_BF16_H

#include "base/bf16.h"
#include "device/cpu/cpu_simd.h"

#if defined(LANES_AVX512) && defined(__AVX512BF16__)

enum { LANES_HAVE_BF16 = 1 };

typedef __m512i pairs;

LANES_INLINE pairs pairs_set(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

LANES_INLINE pairs pairs_load(const uint32_t *p)
{
    return _mm512_loadu_si512(p);
}

LANES_INLINE void pairs_store(uint32_t *p, pairs a)
{
    _mm512_storeu_si512(p, a);
}

LANES_INLINE pairs pairs_and(pairs a, uint32_t mask)
{
    return _mm512_and_si512(a, pairs_set(mask));
}

LANES_INLINE pairs pairs_beside(lanes a, lanes b)
{
    return (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
}

LANES_INLINE pairs pairs_of(lanes lower, lanes upper)
{
    const __m512i turn = _mm512_set_epi16(
        31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
        6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

    return _mm512_permutexvar_epi16(turn, pairs_beside(lower, upper));
}

LANES_INLINE pairs pairs_of_bf16(const uint16_t *lower, const uint16_t *upper)
{
    __m512i a = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)lower));
    __m512i b = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)upper));

    return _mm512_or_si512(a, _mm512_slli_epi32(b, 16));
}

LANES_INLINE lanes lanes_add_pairs(lanes s, pairs a, pairs b)
{
    return (lanes)_mm512_dpbf16_ps((__m512)s, (__m512bh)a, (__m512bh)b);
}

#else /* plain C, which is the specification of AVX512_BF16's form */

#if defined(LANES_AVX512) || defined(LANES_AVX2) || defined(LANES_NEON)
enum { LANES_HAVE_BF16 = 0 };
#else
enum { LANES_HAVE_BF16 = 1 };
#endif

typedef struct {
    uint32_t x[LANES];
} pairs;

LANES_INLINE pairs pairs_set(uint32_t x)
{
    pairs a;

    for (int i = 0; i < LANES; i++)
        a.x[i] = x;
    return a;
}

LANES_INLINE pairs pairs_load(const uint32_t *p)
{
    pairs a;

    memcpy(a.x, p, sizeof a.x);
    return a;
}

LANES_INLINE void pairs_store(uint32_t *p, pairs a)
{
    memcpy(p, a.x, sizeof a.x);
}

/* Returns the bitwise AND of each 32-bit pair and `mask`. The low 16 bits of a
 * pair are its first value, the high 16 bits its second. */
LANES_INLINE pairs pairs_and(pairs a, uint32_t mask)
{
    for (int i = 0; i < LANES; i++)
        a.x[i] &= mask;
    return a;
}

/* v[0 .. 31] are the sixteen values of `a`, then those of `b`. Returns sixteen
 * BF16 pairs: pair i consists of v[step * i] and v[step * i + apart]. */
LANES_CALLED pairs pairs_from(lanes a, lanes b, int step, int apart)
{
    float v[2 * LANES];
    pairs r;

    lanes_store(v, a);
    lanes_store(v + LANES, b);
    for (int i = 0; i < LANES; i++)
        r.x[i] = bf16_pair(v[step * i], v[step * i + apart]);
    return r;
}

/* Returns sixteen BF16 pairs of adjacent values: eight from `a`, then eight
 * from `b`. */
LANES_INLINE pairs pairs_beside(lanes a, lanes b)
{
    return pairs_from(a, b, 2, 1);
}

/* Returns sixteen BF16 pairs: pair i has value i of `lower` in its low half and
 * value i of `upper` in its high half. */
LANES_INLINE pairs pairs_of(lanes lower, lanes upper)
{
    return pairs_from(lower, upper, 1, LANES);
}

LANES_INLINE pairs pairs_of_bf16(const uint16_t *lower, const uint16_t *upper)
{
    pairs r;

    for (int i = 0; i < LANES; i++)
        r.x[i] = lower[i] | (uint32_t)upper[i] << 16;
    return r;
}

/* Adds the products of two BF16 pairs to s, in each lane, as bf16_pair_add(s,
 * a, b) of base/bf16.h does. */
LANES_CALLED lanes lanes_add_pairs(lanes s, pairs a, pairs b)
{
    float v[LANES];

    lanes_store(v, s);
    for (int i = 0; i < LANES; i++)
        v[i] = bf16_pair_add(v[i], a.x[i], b.x[i]);
    return lanes_load(v);
}

#endif

/* Converts a row of n floats to (n + 1) / 2 BF16 pairs of adjacent values. If n
 * is odd, the last value is paired with 0. `to` may be the same memory as
 * `from`. */
static inline void pairs_of_row(uint32_t *to, const float *from, int64_t n)
{
    int64_t i = 0;

    for (; i + 2 * LANES <= n; i += 2 * LANES)
        pairs_store(to + i / 2, pairs_beside(lanes_load(from + i),
                                             lanes_load(from + i + LANES)));
    for (; i < n; i += 2) {
        uint32_t pair = bf16_pair(from[i], i + 1 < n ? from[i + 1] : 0);

        memcpy(to + i / 2, &pair, sizeof pair);
    }
}

/* Converts rows first .. end - 1 of the matrix `from` to BF16 pairs: row i of
 * `to` pairs the values of rows 2i and 2i + 1. A row outside first .. end - 1
 * counts as 0. Rows have `ld` values, a multiple of 16. `to` may be the same
 * memory as `from`. */
static inline void pairs_of_rows(uint32_t *to, const float *from, int64_t first,
                                 int64_t end, int64_t ld)
{
    for (int64_t i = first / 2; i < (end + 1) / 2; i++) {
        const float *row = from + 2 * i * ld;

        for (int64_t c = 0; c < ld; c += LANES) {
            lanes lower = lanes_set(0), upper = lower;

            if (2 * i >= first)
                lower = lanes_load(row + c);
            if (2 * i + 1 < end)
                upper = lanes_load(row + ld + c);
            pairs_store(to + i * ld + c, pairs_of(lower, upper));
        }
    }
}

#endif
