/* Contractions for CPUs with AVX-512 F, BW, VL, DQ and VNNI: Ice Lake, Zen 4
 * and later. vpdpbusd takes unsigned codes of all 8 bits, so nothing needs a
 * second step; one vector is the 16 rows of a panel. */
#include <immintrin.h>
#include <stdint.h>

enum { W = 16, FLOAT_TOK = 8, WIDE_UNSIGNED = 1 };

typedef int32_t vi __attribute__((vector_size(4 * W), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * W), may_alias));
typedef float vf __attribute__((vector_size(4 * W), may_alias));

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

static inline vi v_fold(vi acc, vi a, vi b)
{
    return (vi)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a,
                                   (__m512i)(b & 0xffff));
}

static inline __attribute__((always_inline)) vi
v_dot(vi acc, const vu *code, const int8_t *q, int n, int max)
{
    (void)max;
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) {
        int32_t x;

        __builtin_memcpy(&x, q + 4 * i, sizeof(x));
        acc = (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)code[i],
                                      _mm512_set1_epi32(x));
    }
    return acc;
}

#include "device/cpu/cpu_unpack_tmpl.h"

#include "device/cpu/cpu_gemm_avx512_tmpl.h"

#include "device/cpu/cpu_matmul_tmpl.h"

void cpu_matmul_init_avx512_vnni(struct cpu_kernels *k)
{
    init_ops(k);
}
