/* A vector type of sixteen floats, `lanes`, and its operations, with the same
 * bits on every instruction set.
 *
 * The instruction set is the one that the including file is compiled for:
 * AVX-512, AVX2 with FMA and F16C, or plain C, whose loops are the
 * specification. NEON, which every AArch64 processor has, is selected by
 * defining LANES_NEON. Every operation rounds once, like its plain C form. min
 * and max return the second operand if the comparison fails (equal or NaN), as
 * x86 does. Contains only the operations that the kernels of this folder
 * use. */
#ifndef DEVICE_CPU_CPU_SIMD_H
#define DEVICE_CPU_CPU_SIMD_H

#include "base/half.h"
#include "base/unroll.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#define LANES_INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) &&  \
    defined(__AVX512DQ__)
#define LANES_AVX512
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define LANES_AVX2
#endif

#ifdef LANES_AVX512
#include <immintrin.h>

typedef __m512 lanes;

LANES_INLINE lanes lanes_set(float x)
{
    return _mm512_set1_ps(x);
}

LANES_INLINE lanes lanes_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

LANES_INLINE void lanes_store(float *p, lanes a)
{
    _mm512_storeu_ps(p, a);
}

LANES_INLINE __mmask16 lanes_first(int64_t n)
{
    return (__mmask16)((1u << n) - 1);
}

LANES_INLINE lanes lanes_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(lanes_first(n), p);
}

LANES_INLINE void lanes_store_n(float *p, lanes a, int64_t n)
{
    _mm512_mask_storeu_ps(p, lanes_first(n), a);
}

LANES_INLINE lanes lanes_add(lanes a, lanes b)
{
    return _mm512_add_ps(a, b);
}

LANES_INLINE lanes lanes_sub(lanes a, lanes b)
{
    return _mm512_sub_ps(a, b);
}

LANES_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return _mm512_mul_ps(a, b);
}

LANES_INLINE lanes lanes_div(lanes a, lanes b)
{
    return _mm512_div_ps(a, b);
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return _mm512_fmadd_ps(a, b, c);
}

LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
    return _mm512_min_ps(a, b);
}

LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return _mm512_max_ps(a, b);
}

LANES_INLINE lanes lanes_sqrt(lanes a)
{
    return _mm512_sqrt_ps(a);
}

LANES_INLINE lanes lanes_abs(lanes a)
{
    return _mm512_abs_ps(a);
}

LANES_INLINE lanes lanes_copysign(lanes a, lanes sign)
{
    __m512 m = _mm512_set1_ps(-0.0f);

    return _mm512_or_ps(_mm512_andnot_ps(m, a), _mm512_and_ps(m, sign));
}

LANES_INLINE lanes lanes_swap_pairs(lanes a)
{
    return _mm512_permute_ps(a, 0xb1);
}

LANES_INLINE lanes lanes_range(lanes a, int lo, int hi, float other)
{
    __mmask16 m = (__mmask16)(lanes_first(hi) & ~lanes_first(lo));

    return _mm512_mask_blend_ps(m, _mm512_set1_ps(other), a);
}

LANES_INLINE lanes lanes_pow2(lanes n)
{
    __m512i t = _mm512_castps_si512(_mm512_add_ps(n, lanes_set(0x1.8p23f)));

    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(t, 23),
                                                _mm512_set1_epi32(0x3f800000)));
}

LANES_INLINE lanes lanes_times_pow2(lanes a, lanes n)
{
    return _mm512_scalef_ps(a, n);
}

LANES_INLINE lanes lanes_from_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

LANES_INLINE lanes lanes_from_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}

LANES_INLINE lanes lanes_from_s8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

LANES_INLINE void lanes_to_f16(uint16_t *p, lanes a)
{
    _mm256_storeu_si256((__m256i *)p,
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(LANES_AVX2)
#include <immintrin.h>

typedef struct {
    __m256 a, b;
} lanes;

LANES_INLINE lanes lanes_make(__m256 a, __m256 b)
{
    return (lanes){a, b};
}

LANES_INLINE lanes lanes_set(float x)
{
    return lanes_make(_mm256_set1_ps(x), _mm256_set1_ps(x));
}

LANES_INLINE lanes lanes_load(const float *p)
{
    return lanes_make(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}

LANES_INLINE void lanes_store(float *p, lanes a)
{
    _mm256_storeu_ps(p, a.a);
    _mm256_storeu_ps(p + 8, a.b);
}

/* Returns a mask for a vector of eight lanes that stands for lanes base .. base
 * + 7 of sixteen: all bits are set in lanes with an index below n, and none in
 * the others. */
LANES_INLINE __m256i lanes_below(int base, int64_t n)
{
    __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n - base), i);
}

LANES_INLINE lanes lanes_load_n(const float *p, int64_t n)
{
    return lanes_make(_mm256_maskload_ps(p, lanes_below(0, n)),
                      _mm256_maskload_ps(p + 8, lanes_below(8, n)));
}

LANES_INLINE void lanes_store_n(float *p, lanes a, int64_t n)
{
    _mm256_maskstore_ps(p, lanes_below(0, n), a.a);
    _mm256_maskstore_ps(p + 8, lanes_below(8, n), a.b);
}

LANES_INLINE lanes lanes_add(lanes a, lanes b)
{
    return lanes_make(_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b));
}

LANES_INLINE lanes lanes_sub(lanes a, lanes b)
{
    return lanes_make(_mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b));
}

LANES_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return lanes_make(_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b));
}

LANES_INLINE lanes lanes_div(lanes a, lanes b)
{
    return lanes_make(_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b));
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    return lanes_make(_mm256_fmadd_ps(a.a, b.a, c.a),
                      _mm256_fmadd_ps(a.b, b.b, c.b));
}

LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
    return lanes_make(_mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b));
}

LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return lanes_make(_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b));
}

LANES_INLINE lanes lanes_sqrt(lanes a)
{
    return lanes_make(_mm256_sqrt_ps(a.a), _mm256_sqrt_ps(a.b));
}

LANES_INLINE lanes lanes_abs(lanes a)
{
    __m256 m = _mm256_set1_ps(-0.0f);

    return lanes_make(_mm256_andnot_ps(m, a.a), _mm256_andnot_ps(m, a.b));
}

LANES_INLINE lanes lanes_copysign(lanes a, lanes sign)
{
    __m256 m = _mm256_set1_ps(-0.0f);

    a = lanes_abs(a);
    return lanes_make(_mm256_or_ps(a.a, _mm256_and_ps(m, sign.a)),
                      _mm256_or_ps(a.b, _mm256_and_ps(m, sign.b)));
}

LANES_INLINE lanes lanes_swap_pairs(lanes a)
{
    return lanes_make(_mm256_permute_ps(a.a, 0xb1),
                      _mm256_permute_ps(a.b, 0xb1));
}

LANES_INLINE __m256 lanes_range_half(__m256 a, int base, int lo, int hi,
                                     float other)
{
    __m256i m =
        _mm256_andnot_si256(lanes_below(base, lo), lanes_below(base, hi));

    return _mm256_blendv_ps(_mm256_set1_ps(other), a, _mm256_castsi256_ps(m));
}

LANES_INLINE lanes lanes_range(lanes a, int lo, int hi, float other)
{
    return lanes_make(lanes_range_half(a.a, 0, lo, hi, other),
                      lanes_range_half(a.b, 8, lo, hi, other));
}

LANES_INLINE __m256 lanes_pow2_half(__m256 n)
{
    __m256i t =
        _mm256_castps_si256(_mm256_add_ps(n, _mm256_set1_ps(0x1.8p23f)));

    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(t, 23),
                                                _mm256_set1_epi32(0x3f800000)));
}

LANES_INLINE lanes lanes_pow2(lanes n)
{
    return lanes_make(lanes_pow2_half(n.a), lanes_pow2_half(n.b));
}

LANES_INLINE lanes lanes_from_f16(const uint16_t *p)
{
    return lanes_make(
        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8))));
}

LANES_INLINE __m256 lanes_from_bf16_half(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}

LANES_INLINE lanes lanes_from_bf16(const uint16_t *p)
{
    return lanes_make(lanes_from_bf16_half(p), lanes_from_bf16_half(p + 8));
}

LANES_INLINE lanes lanes_from_s8(const int8_t *p)
{
    __m128i q = _mm_loadu_si128((const __m128i *)p);

    return lanes_make(
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8))));
}

LANES_INLINE void lanes_to_f16(uint16_t *p, lanes a)
{
    _mm_storeu_si128((__m128i *)p,
                     _mm256_cvtps_ph(a.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8),
                     _mm256_cvtps_ph(a.b, _MM_FROUND_TO_NEAREST_INT));
}

#elif defined(LANES_NEON)
#include <arm_neon.h>

typedef struct {
    float32x4_t a, b, c, d;
} lanes;

/* Apply f, a function of vectors of four floats, to each of the four vectors of
 * which sixteen lanes consist. The three macros are for one, two and three
 * operands. */
#define LANES_MAP1(f, x) ((lanes){f((x).a), f((x).b), f((x).c), f((x).d)})
#define LANES_MAP2(f, x, y)                                                    \
    ((lanes){f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c),                \
             f((x).d, (y).d)})
#define LANES_MAP3(f, x, y, z)                                                 \
    ((lanes){f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b),                   \
             f((x).c, (y).c, (z).c), f((x).d, (y).d, (z).d)})

LANES_INLINE lanes lanes_set(float x)
{
    float32x4_t v = vdupq_n_f32(x);

    return (lanes){v, v, v, v};
}

LANES_INLINE lanes lanes_load(const float *p)
{
    return (lanes){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8),
                   vld1q_f32(p + 12)};
}

LANES_INLINE void lanes_store(float *p, lanes a)
{
    vst1q_f32(p, a.a);
    vst1q_f32(p + 4, a.b);
    vst1q_f32(p + 8, a.c);
    vst1q_f32(p + 12, a.d);
}

LANES_INLINE lanes lanes_load_n(const float *p, int64_t n)
{
    float x[LANES] = {0};

    memcpy(x, p, (size_t)n * sizeof(float));
    return lanes_load(x);
}

LANES_INLINE void lanes_store_n(float *p, lanes a, int64_t n)
{
    float x[LANES];

    lanes_store(x, a);
    memcpy(p, x, (size_t)n * sizeof(float));
}

LANES_INLINE lanes lanes_add(lanes a, lanes b)
{
    return LANES_MAP2(vaddq_f32, a, b);
}

LANES_INLINE lanes lanes_sub(lanes a, lanes b)
{
    return LANES_MAP2(vsubq_f32, a, b);
}

LANES_INLINE lanes lanes_mul(lanes a, lanes b)
{
    return LANES_MAP2(vmulq_f32, a, b);
}

LANES_INLINE lanes lanes_div(lanes a, lanes b)
{
    return LANES_MAP2(vdivq_f32, a, b);
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    /* vfmaq_f32 takes the addend as its first operand */
    return LANES_MAP3(vfmaq_f32, c, a, b);
}

/* Min and max of four floats by comparison and selection, because the min and
 * max instructions of NEON do not treat NaN like those of x86. */
LANES_INLINE float32x4_t lanes_min_quarter(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcltq_f32(a, b), a, b);
}

LANES_INLINE float32x4_t lanes_max_quarter(float32x4_t a, float32x4_t b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
    return LANES_MAP2(lanes_min_quarter, a, b);
}

LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    return LANES_MAP2(lanes_max_quarter, a, b);
}

LANES_INLINE lanes lanes_sqrt(lanes a)
{
    return LANES_MAP1(vsqrtq_f32, a);
}

LANES_INLINE lanes lanes_abs(lanes a)
{
    return LANES_MAP1(vabsq_f32, a);
}

LANES_INLINE float32x4_t lanes_copysign_quarter(float32x4_t a, float32x4_t sign)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, a);
}

LANES_INLINE lanes lanes_copysign(lanes a, lanes sign)
{
    return LANES_MAP2(lanes_copysign_quarter, a, sign);
}

LANES_INLINE lanes lanes_swap_pairs(lanes a)
{
    return LANES_MAP1(vrev64q_f32, a);
}

LANES_INLINE float32x4_t lanes_range_quarter(float32x4_t a, int base, int lo,
                                             int hi, float other)
{
    int32x4_t i = vaddq_s32((int32x4_t){0, 1, 2, 3}, vdupq_n_s32(base));
    uint32x4_t m =
        vandq_u32(vcgeq_s32(i, vdupq_n_s32(lo)), vcltq_s32(i, vdupq_n_s32(hi)));

    return vbslq_f32(m, a, vdupq_n_f32(other));
}

LANES_INLINE lanes lanes_range(lanes a, int lo, int hi, float other)
{
    return (lanes){lanes_range_quarter(a.a, 0, lo, hi, other),
                   lanes_range_quarter(a.b, 4, lo, hi, other),
                   lanes_range_quarter(a.c, 8, lo, hi, other),
                   lanes_range_quarter(a.d, 12, lo, hi, other)};
}

LANES_INLINE float32x4_t lanes_pow2_quarter(float32x4_t n)
{
    uint32x4_t t = vreinterpretq_u32_f32(vaddq_f32(n, vdupq_n_f32(0x1.8p23f)));

    return vreinterpretq_f32_u32(
        vaddq_u32(vshlq_n_u32(t, 23), vdupq_n_u32(0x3f800000)));
}

LANES_INLINE lanes lanes_pow2(lanes n)
{
    return LANES_MAP1(lanes_pow2_quarter, n);
}

LANES_INLINE float32x4_t lanes_from_f16_quarter(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

LANES_INLINE lanes lanes_from_f16(const uint16_t *p)
{
    return (lanes){lanes_from_f16_quarter(p), lanes_from_f16_quarter(p + 4),
                   lanes_from_f16_quarter(p + 8),
                   lanes_from_f16_quarter(p + 12)};
}

LANES_INLINE float32x4_t lanes_from_bf16_quarter(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

LANES_INLINE lanes lanes_from_bf16(const uint16_t *p)
{
    return (lanes){lanes_from_bf16_quarter(p), lanes_from_bf16_quarter(p + 4),
                   lanes_from_bf16_quarter(p + 8),
                   lanes_from_bf16_quarter(p + 12)};
}

LANES_INLINE lanes lanes_from_s8(const int8_t *p)
{
    int8x16_t q = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_high_s8(q);

    return (lanes){vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                   vcvtq_f32_s32(vmovl_high_s16(low)),
                   vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                   vcvtq_f32_s32(vmovl_high_s16(high))};
}

LANES_INLINE void lanes_to_f16(uint16_t *p, lanes a)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a.a)));
    vst1_u16(p + 4, vreinterpret_u16_f16(vcvt_f16_f32(a.b)));
    vst1_u16(p + 8, vreinterpret_u16_f16(vcvt_f16_f32(a.c)));
    vst1_u16(p + 12, vreinterpret_u16_f16(vcvt_f16_f32(a.d)));
}

#else /* no vector instructions: plain C, which is the specification */

#define LANES_PLAIN

typedef struct {
    float x[LANES];
} lanes;

/* UNROLL does nothing in plain C: sixteen floats are an array in memory there,
 * and unrolling loops over it does not help. */
#undef UNROLL
#define UNROLL

#define LANES_EACH(expr)                                                       \
    do {                                                                       \
        lanes r_;                                                              \
        for (int i = 0; i < LANES; i++)                                        \
            r_.x[i] = (expr);                                                  \
        return r_;                                                             \
    } while (0)

LANES_INLINE lanes lanes_set(float x)
{
    LANES_EACH(x);
}

LANES_INLINE lanes lanes_load(const float *p)
{
    LANES_EACH(p[i]);
}

LANES_INLINE void lanes_store(float *p, lanes a)
{
    for (int i = 0; i < LANES; i++)
        p[i] = a.x[i];
}

/* Loads the first n lanes, n in 0 .. 16, from p; the other lanes are 0. */
LANES_INLINE lanes lanes_load_n(const float *p, int64_t n)
{
    LANES_EACH(i < n ? p[i] : 0.0f);
}

LANES_INLINE void lanes_store_n(float *p, lanes a, int64_t n)
{
    for (int i = 0; i < (int)n; i++)
        p[i] = a.x[i];
}

LANES_INLINE lanes lanes_add(lanes a, lanes b)
{
    LANES_EACH(a.x[i] + b.x[i]);
}

LANES_INLINE lanes lanes_sub(lanes a, lanes b)
{
    LANES_EACH(a.x[i] - b.x[i]);
}

LANES_INLINE lanes lanes_mul(lanes a, lanes b)
{
    LANES_EACH(a.x[i] * b.x[i]);
}

LANES_INLINE lanes lanes_div(lanes a, lanes b)
{
    LANES_EACH(a.x[i] / b.x[i]);
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    LANES_EACH(fmaf(a.x[i], b.x[i], c.x[i]));
}

LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
    LANES_EACH(a.x[i] < b.x[i] ? a.x[i] : b.x[i]);
}

LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    LANES_EACH(a.x[i] > b.x[i] ? a.x[i] : b.x[i]);
}

LANES_INLINE lanes lanes_sqrt(lanes a)
{
    LANES_EACH(sqrtf(a.x[i]));
}

LANES_INLINE lanes lanes_abs(lanes a)
{
    LANES_EACH(fabsf(a.x[i]));
}

LANES_INLINE lanes lanes_copysign(lanes a, lanes sign)
{
    LANES_EACH(copysignf(a.x[i], sign.x[i]));
}

/* Exchanges lanes 2i and 2i + 1 of `a`, for all i. */
LANES_INLINE lanes lanes_swap_pairs(lanes a)
{
    LANES_EACH(a.x[i ^ 1]);
}

/* Returns `a` with all lanes except lo .. hi - 1 set to `other`; 0 <= lo, hi <=
 * 16. */
LANES_INLINE lanes lanes_range(lanes a, int lo, int hi, float other)
{
    LANES_EACH(i >= lo && i < hi ? a.x[i] : other);
}

/* Returns 2^n in each lane for integral n in -126 .. 127. Adding 1.5 * 2^23
 * leaves n as an integer in the low bits of the sum, from which a shift moves
 * it into the exponent. */
LANES_INLINE lanes lanes_pow2(lanes n)
{
    LANES_EACH(
        float_from_bits((float_bits(n.x[i] + 0x1.8p23f) << 23) + 0x3f800000u));
}

LANES_INLINE lanes lanes_from_f16(const uint16_t *p)
{
    LANES_EACH(f16_to_f32(p[i]));
}

LANES_INLINE lanes lanes_from_bf16(const uint16_t *p)
{
    LANES_EACH(bf16_to_f32(p[i]));
}

LANES_INLINE lanes lanes_from_s8(const int8_t *p)
{
    LANES_EACH((float)p[i]);
}

LANES_INLINE void lanes_to_f16(uint16_t *p, lanes a)
{
    for (int i = 0; i < LANES; i++)
        p[i] = f32_to_f16(a.x[i]);
}
#endif

/* ---- operations that use those above ------------------------------------- */

/* Attributes of functions that are long and called in many places. With vector
 * instructions they are inlined. In plain C they are not: each operation is a
 * loop there, and inlining took a minute to compile. */
#ifdef LANES_PLAIN
#define LANES_CALLED static __attribute__((noinline, unused))
#else
#define LANES_CALLED LANES_INLINE
#endif

LANES_INLINE void lanes_to_bf16(uint16_t *p, lanes a)
{
    float x[LANES];

    lanes_store(x, a);
    for (int i = 0; i < LANES; i++)
        p[i] = f32_to_bf16(x[i]);
}

/* lanes_sum() returns the sum of all lanes: lanes i + 8 are added to lanes i,
 * then i + 4 to i, i + 2 to i, and i + 1 to i. lanes_top() returns the largest
 * lane, compared in the same order. */
#if defined(LANES_AVX512) || defined(LANES_AVX2)
#ifdef LANES_AVX512
LANES_INLINE __m256 lanes_low(lanes a)
{
    return _mm512_castps512_ps256(a);
}

LANES_INLINE __m256 lanes_high(lanes a)
{
    return _mm512_extractf32x8_ps(a, 1);
}
#else
LANES_INLINE __m256 lanes_low(lanes a)
{
    return a.a;
}

LANES_INLINE __m256 lanes_high(lanes a)
{
    return a.b;
}
#endif

LANES_INLINE float lanes_sum(lanes a)
{
    __m256 h = _mm256_add_ps(lanes_low(a), lanes_high(a));
    __m128 q =
        _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));

    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

LANES_INLINE float lanes_top(lanes a)
{
    __m256 h = _mm256_max_ps(lanes_low(a), lanes_high(a));
    __m128 q =
        _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));

    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
#elif defined(LANES_NEON)
LANES_INLINE float lanes_sum(lanes a)
{
    float32x4_t q = vaddq_f32(vaddq_f32(a.a, a.c), vaddq_f32(a.b, a.d));

    q = vaddq_f32(q, vextq_f32(q, q, 2));
    return vgetq_lane_f32(q, 0) + vgetq_lane_f32(q, 1);
}

LANES_INLINE float lanes_top(lanes a)
{
    float32x4_t q = lanes_max_quarter(lanes_max_quarter(a.a, a.c),
                                      lanes_max_quarter(a.b, a.d));

    q = lanes_max_quarter(q, vextq_f32(q, q, 2));
    return vgetq_lane_f32(lanes_max_quarter(q, vextq_f32(q, q, 1)), 0);
}
#else
LANES_INLINE float lanes_sum(lanes a)
{
    for (int h = LANES / 2; h > 0; h /= 2) {
        for (int i = 0; i < h; i++)
            a.x[i] = a.x[i] + a.x[i + h];
    }
    return a.x[0];
}

LANES_INLINE float lanes_top(lanes a)
{
    for (int h = LANES / 2; h > 0; h /= 2) {
        for (int i = 0; i < h; i++)
            a.x[i] = a.x[i] > a.x[i + h] ? a.x[i] : a.x[i + h];
    }
    return a.x[0];
}
#endif

#endif
