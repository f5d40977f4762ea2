/* The vector functions that cpu_unpack_tmpl.h requires, with 256-bit vectors of
 * AVX2, FMA and F16C. Also deal_dwords(), which arranges rows of activations
 * for cpu_gemm_*_tmpl.h. */
#include <immintrin.h>
#include <stdint.h>

#include "base/unroll.h"

enum { W = 8, FLOAT_TOK = 4, TOK = 4 };

typedef int32_t vi __attribute__((vector_size(4 * W), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * W), may_alias));
typedef float vf __attribute__((vector_size(4 * W), may_alias));
typedef int8_t vb __attribute__((vector_size(4 * W), may_alias));

static inline vi v_set(int32_t x)
{
    return (vi)_mm256_set1_epi32(x);
}

static inline vf v_setf(float x)
{
    return (vf)_mm256_set1_ps(x);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static inline vf v_int_f(vi a)
{
    return (vf)_mm256_cvtepi32_ps((__m256i)a);
}

static inline vf v_f16(const void *p)
{
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128(p));
}

static inline vi v_u16(const void *p)
{
    return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128(p));
}

static inline vi v_u8(const void *p)
{
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64(p));
}

static inline vi v_s8(const void *p)
{
    return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64(p));
}

static inline vu v_table(const int8_t *p)
{
    return (vu)_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}

static inline vu v_lookup(vu table, vu code)
{
    return (vu)_mm256_shuffle_epi8((__m256i)table, (__m256i)code);
}

static inline vi v_pairs(vi a, vi b)
{
    return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}

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
