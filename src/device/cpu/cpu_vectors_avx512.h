/* The vector functions that cpu_unpack_tmpl.h requires, with AVX-512 F, BW, VL,
 * DQ and VNNI. A vector has one lane for each of the 16 rows of a panel.
 * Included once by each file of kernels. */
#ifndef DEVICE_CPU_CPU_VECTORS_AVX512_H
#define DEVICE_CPU_CPU_VECTORS_AVX512_H

#include <immintrin.h>
#include <stdint.h>

enum { W = 16 };

typedef int32_t vi __attribute__((vector_size(4 * W), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * W), may_alias));
typedef float vf __attribute__((vector_size(4 * W), may_alias));
typedef int8_t vb __attribute__((vector_size(4 * W), may_alias));

static inline vi v_set(int32_t x)
{
    return (vi)_mm512_set1_epi32(x);
}

static inline vf v_setf(float x)
{
    return (vf)_mm512_set1_ps(x);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline vf v_int_f(vi a)
{
    return (vf)_mm512_cvtepi32_ps((__m512i)a);
}

static inline vf v_f16(const void *p)
{
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static inline vi v_u16(const void *p)
{
    return (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
}

static inline vi v_u8(const void *p)
{
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}

static inline vi v_s8(const void *p)
{
    return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128(p));
}

static inline vu v_table(const int8_t *p)
{
    return (vu)_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p));
}

static inline vu v_lookup(vu table, vu code)
{
    return (vu)_mm512_shuffle_epi8((__m512i)table, (__m512i)code);
}

static inline vi v_pairs(vi a, vi b)
{
    return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}

/* Returns acc + v_pairs(a, b): in each int32 lane, the dot product of two int16
 * pairs is added. */
static inline vi v_pairs_add(vi acc, vi a, vi b)
{
    return (vi)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
}

#endif
