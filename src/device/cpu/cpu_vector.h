/* Vectors of W 32-bit lanes, as wide as the registers of the instruction set
 * that the including file is compiled for, and their operations. Each
 * instruction set has a section with the operations that need its intrinsics.
 * cpu_simd.h, cpu_lanes_*.h and the templates of matrix products are written
 * once over these; arithmetic and comparisons are C's own.
 *
 * The sets are AVX-512, AVX2 with FMA and F16C, NEON, and plain C with one
 * lane, which is the specification. Every AArch64 processor has NEON; a file
 * selects it by defining LANES_NEON. Every operation rounds once, like its
 * plain C form.
 *
 *   vi, vu, vf         vectors of int32, uint32 and float
 *   vm                 a mask, a truth value for each lane; & and ~ combine
 *                      masks
 *   v_set, v_setf      one value in all lanes
 *   v_below            the mask of the lanes with an index below n, 0 <= n <=
 *                      16; with W < 16, n may also be negative
 *   v_select           a where the mask is true, else b
 *   v_load_n           loads the first n lanes, all if n > W; the others are 0
 *   v_store_n          stores the first n lanes, all if n > W
 *   v_fma              a * b + c, rounded once
 *   v_min, v_max       the second operand if the comparison fails (equal or
 *                      NaN), as x86 does
 *   v_sqrt             square root
 *   v_swap             lanes 2 i and 2 i + 1 exchanged
 *   v_int_f            int32 to float
 *   v_f16, v_bf16      W 16-bit floats in memory to float
 *   v_to_f16           float to W f16 in memory
 *   v_u8, v_s8         W integers in memory to int32
 *   v_table            16 bytes in memory for v_lookup
 *   v_lookup           every byte c < 16 replaced by table[c]
 *   v_pairs            for each lane, the dot product of two int16 pairs
 *   v_pairs_add        acc + v_pairs(a, b)
 *   v_dot4             with VNNI only: for each lane, acc + the dot product of
 *                      four unsigned bytes u with four signed ones s
 *
 * Plain C has only those that cpu_simd.h uses. */
#ifndef DEVICE_CPU_CPU_VECTOR_H
#define DEVICE_CPU_CPU_VECTOR_H

#include "base/half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) &&  \
    defined(__AVX512DQ__)
#define LANES_AVX512
enum { W = 16 };
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define LANES_AVX2
enum { W = 8 };
#elif defined(LANES_NEON)
enum { W = 4 };
#else
#define LANES_PLAIN
enum { W = 1 };
#endif

#define LANES_INLINE static inline __attribute__((always_inline))

#ifndef LANES_PLAIN
typedef int32_t vi __attribute__((vector_size(4 * W), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * W), may_alias));
typedef float vf __attribute__((vector_size(4 * W), may_alias));
typedef int8_t vb __attribute__((vector_size(4 * W), may_alias));

LANES_INLINE vu v_bits(vf a)
{
    return (vu)a;
}

LANES_INLINE vf v_from_bits(vu a)
{
    return (vf)a;
}

LANES_INLINE vi v_set(int32_t x)
{
    return (vi){0} + x;
}

/* Subtracts 0, which changes no float, so that compilers copy x. */
LANES_INLINE vf v_setf(float x)
{
    return x - (vf){0};
}

LANES_INLINE vf v_int_f(vi a)
{
    return __builtin_convertvector(a, vf);
}
#endif

#if defined(LANES_AVX512) || defined(LANES_AVX2)
#include <immintrin.h>

/* AVX-512 and AVX2 have intrinsics of the same names, but for the prefix, which
 * MM adds. `reg` and `ireg` are their vectors of float and of integers. */
#ifdef LANES_AVX512
#define MM(name) _mm512_##name
typedef __m512 reg;
typedef __m512i ireg;
typedef __m256i half_reg; /* W 16-bit values */
typedef __mmask16 vm;

LANES_INLINE vm v_below(int n)
{
    return (vm)((1u << n) - 1);
}

LANES_INLINE vf v_select(vm m, vf a, vf b)
{
    return (vf)_mm512_mask_blend_ps(m, (reg)b, (reg)a);
}

LANES_INLINE vf v_load_n(const float *p, int n)
{
    return (vf)_mm512_maskz_loadu_ps(v_below(n), p);
}

LANES_INLINE void v_store_n(float *p, vf a, int n)
{
    _mm512_mask_storeu_ps(p, v_below(n), (reg)a);
}

LANES_INLINE __m128i load_bytes(const void *p)
{
    return _mm_loadu_si128(p);
}

LANES_INLINE vu v_table(const int8_t *p)
{
    return (vu)_mm512_broadcast_i32x4(load_bytes(p));
}
#else
#define MM(name) _mm256_##name
typedef __m256 reg;
typedef __m256i ireg;
typedef __m128i half_reg;
typedef vi vm;

LANES_INLINE vm v_below(int n)
{
    return (vi){0, 1, 2, 3, 4, 5, 6, 7} < v_set(n);
}

LANES_INLINE vf v_select(vm m, vf a, vf b)
{
    return (vf)_mm256_blendv_ps((reg)b, (reg)a, (reg)m);
}

LANES_INLINE vf v_load_n(const float *p, int n)
{
    return (vf)_mm256_maskload_ps(p, (ireg)v_below(n));
}

LANES_INLINE void v_store_n(float *p, vf a, int n)
{
    _mm256_maskstore_ps(p, (ireg)v_below(n), (reg)a);
}

LANES_INLINE __m128i load_bytes(const void *p)
{
    return _mm_loadl_epi64(p);
}

LANES_INLINE vu v_table(const int8_t *p)
{
    return (vu)_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
}
#endif

LANES_INLINE vf v_fma(vf a, vf b, vf c)
{
    return (vf)MM(fmadd_ps)((reg)a, (reg)b, (reg)c);
}

LANES_INLINE vf v_min(vf a, vf b)
{
    return (vf)MM(min_ps)((reg)a, (reg)b);
}

LANES_INLINE vf v_max(vf a, vf b)
{
    return (vf)MM(max_ps)((reg)a, (reg)b);
}

LANES_INLINE vf v_sqrt(vf a)
{
    return (vf)MM(sqrt_ps)((reg)a);
}

LANES_INLINE vf v_swap(vf a)
{
    return (vf)MM(permute_ps)((reg)a, 0xb1);
}

LANES_INLINE half_reg load_half(const void *p)
{
    half_reg a;

    memcpy(&a, p, sizeof a);
    return a;
}

LANES_INLINE vf v_f16(const void *p)
{
    return (vf)MM(cvtph_ps)(load_half(p));
}

LANES_INLINE vf v_bf16(const void *p)
{
    return (vf)MM(slli_epi32)(MM(cvtepu16_epi32)(load_half(p)), 16);
}

LANES_INLINE void v_to_f16(void *p, vf a)
{
    half_reg h = MM(cvtps_ph)((reg)a, _MM_FROUND_TO_NEAREST_INT);

    memcpy(p, &h, sizeof h);
}

LANES_INLINE vi v_u8(const void *p)
{
    return (vi)MM(cvtepu8_epi32)(load_bytes(p));
}

LANES_INLINE vi v_s8(const void *p)
{
    return (vi)MM(cvtepi8_epi32)(load_bytes(p));
}

LANES_INLINE vu v_lookup(vu table, vu code)
{
    return (vu)MM(shuffle_epi8)((ireg)table, (ireg)code);
}

LANES_INLINE vi v_pairs(vi a, vi b)
{
    return (vi)MM(madd_epi16)((ireg)a, (ireg)b);
}

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#ifdef LANES_AVX512
#define VNNI(name) _mm512_##name##_epi32
#else
#define VNNI(name) _mm256_##name##_avx_epi32
#endif

LANES_INLINE vi v_pairs_add(vi acc, vi a, vi b)
{
    return (vi)VNNI(dpwssd)((ireg)acc, (ireg)a, (ireg)b);
}

LANES_INLINE vi v_dot4(vi acc, vi u, vi s)
{
    return (vi)VNNI(dpbusd)((ireg)acc, (ireg)u, (ireg)s);
}
#else
LANES_INLINE vi v_pairs_add(vi acc, vi a, vi b)
{
    return acc + v_pairs(a, b);
}
#endif

#elif defined(LANES_NEON)
#include <arm_neon.h>

typedef vi vm;

LANES_INLINE vm v_below(int n)
{
    return (vi){0, 1, 2, 3} < v_set(n);
}

LANES_INLINE vf v_select(vm m, vf a, vf b)
{
    return (vf)vbslq_f32((uint32x4_t)m, (float32x4_t)a, (float32x4_t)b);
}

LANES_INLINE vf v_load_n(const float *p, int n)
{
    vf a = {0};

    memcpy(&a, p, (size_t)(n < 0 ? 0 : n < W ? n : W) * sizeof(float));
    return a;
}

LANES_INLINE void v_store_n(float *p, vf a, int n)
{
    memcpy(p, &a, (size_t)(n < 0 ? 0 : n < W ? n : W) * sizeof(float));
}

LANES_INLINE vf v_fma(vf a, vf b, vf c)
{
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

/* Min and max by comparison and selection, because the min and max instructions
 * of NEON do not treat NaN like those of x86. */
LANES_INLINE vf v_min(vf a, vf b)
{
    return v_select(a < b, a, b);
}

LANES_INLINE vf v_max(vf a, vf b)
{
    return v_select(a > b, a, b);
}

LANES_INLINE vf v_sqrt(vf a)
{
    return (vf)vsqrtq_f32((float32x4_t)a);
}

LANES_INLINE vf v_swap(vf a)
{
    return (vf)vrev64q_f32((float32x4_t)a);
}

LANES_INLINE vf v_f16(const void *p)
{
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

LANES_INLINE vf v_bf16(const void *p)
{
    return (vf)vshll_n_u16(vld1_u16(p), 16);
}

LANES_INLINE void v_to_f16(void *p, vf a)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)a)));
}

/* Loads four bytes into the low half of a vector of eight bytes. */
LANES_INLINE uint8x8_t load4(const void *p)
{
    uint32_t x;

    memcpy(&x, p, sizeof(x));
    return vreinterpret_u8_u32(vdup_n_u32(x));
}

LANES_INLINE vi v_u8(const void *p)
{
    return (vi)vmovl_u16(vget_low_u16(vmovl_u8(load4(p))));
}

LANES_INLINE vi v_s8(const void *p)
{
    int8x8_t v = vreinterpret_s8_u8(load4(p));

    return (vi)vmovl_s16(vget_low_s16(vmovl_s8(v)));
}

LANES_INLINE vu v_table(const int8_t *p)
{
    return (vu)vld1q_s8(p);
}

LANES_INLINE vu v_lookup(vu table, vu code)
{
    return (vu)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)code);
}

LANES_INLINE vi v_pairs(vi a, vi b)
{
    int16x8_t x = (int16x8_t)a, y = (int16x8_t)b;

    return (vi)vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)),
                          vmull_high_s16(x, y));
}

LANES_INLINE vi v_pairs_add(vi acc, vi a, vi b)
{
    return acc + v_pairs(a, b);
}

#else /* no vector instructions: plain C, which is the specification */

typedef float vf;
typedef uint32_t vu;
typedef int vm;

LANES_INLINE vu v_bits(vf a)
{
    return float_bits(a);
}

LANES_INLINE vf v_from_bits(vu a)
{
    return float_from_bits(a);
}

LANES_INLINE vf v_setf(float x)
{
    return x;
}

LANES_INLINE vm v_below(int n)
{
    return -(0 < n);
}

LANES_INLINE vf v_select(vm m, vf a, vf b)
{
    return m ? a : b;
}

LANES_INLINE vf v_load_n(const float *p, int n)
{
    return 0 < n ? *p : 0;
}

LANES_INLINE void v_store_n(float *p, vf a, int n)
{
    if (0 < n)
        *p = a;
}

LANES_INLINE vf v_fma(vf a, vf b, vf c)
{
    return fmaf(a, b, c);
}

LANES_INLINE vf v_min(vf a, vf b)
{
    return a < b ? a : b;
}

LANES_INLINE vf v_max(vf a, vf b)
{
    return a > b ? a : b;
}

LANES_INLINE vf v_sqrt(vf a)
{
    return sqrtf(a);
}

LANES_INLINE vf v_f16(const uint16_t *p)
{
    return f16_to_f32(*p);
}

LANES_INLINE vf v_bf16(const uint16_t *p)
{
    return bf16_to_f32(*p);
}

LANES_INLINE void v_to_f16(uint16_t *p, vf a)
{
    *p = f32_to_f16(a);
}

LANES_INLINE float v_int_f(int32_t a)
{
    return (float)a;
}

LANES_INLINE int32_t v_s8(const int8_t *p)
{
    return *p;
}
#endif

#endif
