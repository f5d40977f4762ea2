/* For the kernel sets with 256-bit vectors: how many rows of activations they
 * multiply together, and deal_dwords(), which arranges these rows for
 * cpu_gemm_*_tmpl.h. */
#include "base/unroll.h"
#include "device/cpu/cpu_vector.h"

enum { FLOAT_TOK = 4, TOK = 4 };

/* Interleaves TOK rows of activations: x[t] is eight dwords (four values each)
 * of row t, and dst becomes [8][TOK] dwords. */
static inline void deal_dwords(uint8_t *dst, const __m256i x[TOK])
{
    __m256i a = _mm256_unpacklo_epi32(x[0], x[1]);
    __m256i b = _mm256_unpacklo_epi32(x[2], x[3]);
    __m256i c = _mm256_unpackhi_epi32(x[0], x[1]);
    __m256i d = _mm256_unpackhi_epi32(x[2], x[3]);
    /* to[i] gets dwords i and 4 + i of each of the four rows */
    const __m256i to[4] = {
        _mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b),
        _mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d)};

    UNROLL
    for (int i = 0; i < 4; i++) {
        __m128i *low = (__m128i *)dst + i;

        _mm_storeu_si128(low, _mm256_castsi256_si128(to[i]));
        _mm_storeu_si128(low + 4, _mm256_extracti128_si256(to[i], 1));
    }
}
