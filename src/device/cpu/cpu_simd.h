/* A vector type of sixteen floats, `lanes`, and its operations, with the same
 * bits on every instruction set: as many vectors of cpu_vector.h as hold
 * sixteen floats. In plain C these are sixteen floats, and the loops over them
 * are the specification. Contains only the operations that the kernels of this
 * folder use. */
#ifndef DEVICE_CPU_CPU_SIMD_H
#define DEVICE_CPU_CPU_SIMD_H

#include "base/unroll.h"
#include "device/cpu/cpu_vector.h"

#include <stddef.h>

enum { LANES = 16 };

/* LANES_PARTS executes `code` for each vector i of which sixteen lanes consist;
 * PART(a) is that vector of lanes `a`. With vector instructions LANES_PARTS is
 * not a loop, so that i is a constant from the start and the vectors stay in
 * registers. If one vector has sixteen lanes, `lanes` is that vector and not a
 * struct, because GCC keeps arrays of such structs in memory. */
#define LANES_PART(n, code)                                                    \
    {                                                                          \
        const int i = n;                                                       \
        (void)i;                                                               \
        code;                                                                  \
    }
#ifdef LANES_AVX512
typedef vf lanes;

#define PART(a)           (a)
#define LANES_PARTS(code) LANES_PART(0, code)
#else
typedef struct {
    vf v[LANES / W];
} lanes;

#define PART(a) (a).v[i]
#if defined(LANES_AVX2)
#define LANES_PARTS(code) LANES_PART(0, code) LANES_PART(1, code)
#elif defined(LANES_NEON)
#define LANES_PARTS(code)                                                      \
    LANES_PART(0, code)                                                        \
    LANES_PART(1, code)                                                        \
    LANES_PART(2, code)                                                        \
    LANES_PART(3, code)
#else
#define LANES_PARTS(code)                                                      \
    for (int i = 0; i < LANES; i++)                                            \
        code;

/* UNROLL does nothing in plain C: sixteen floats are an array in memory there,
 * and unrolling loops over it does not help. */
#undef UNROLL
#define UNROLL
#endif
#endif

/* Returns the lanes whose vector i is `expr`. */
#define LANES_EACH(expr)                                                       \
    do {                                                                       \
        lanes r_;                                                              \
        LANES_PARTS(PART(r_) = (expr))                                         \
        return r_;                                                             \
    } while (0)

LANES_INLINE lanes lanes_set(float x)
{
    LANES_EACH(v_setf(x));
}

LANES_INLINE vf v_load(const float *p)
{
    vf a;

    memcpy(&a, p, sizeof a);
    return a;
}

LANES_INLINE lanes lanes_load(const float *p)
{
    LANES_EACH(v_load(p + W * i));
}

LANES_INLINE void lanes_store(float *p, lanes a){
    LANES_PARTS(memcpy(p + W * i, &PART(a), sizeof PART(a)))}

/* Loads the first n lanes, n in 0 .. 16, from p; the other lanes are 0. */
LANES_INLINE lanes lanes_load_n(const float *p, int64_t n)
{
    LANES_EACH(v_load_n(p + W * i, (int)n - W * i));
}

LANES_INLINE void lanes_store_n(float *p, lanes a, int64_t n){
    LANES_PARTS(v_store_n(p + W * i, PART(a), (int)n - W * i))}

LANES_INLINE lanes lanes_add(lanes a, lanes b)
{
    LANES_EACH(PART(a) + PART(b));
}

LANES_INLINE lanes lanes_sub(lanes a, lanes b)
{
    LANES_EACH(PART(a) - PART(b));
}

LANES_INLINE lanes lanes_mul(lanes a, lanes b)
{
    LANES_EACH(PART(a) * PART(b));
}

LANES_INLINE lanes lanes_div(lanes a, lanes b)
{
    LANES_EACH(PART(a) / PART(b));
}

LANES_INLINE lanes lanes_fma(lanes a, lanes b, lanes c)
{
    LANES_EACH(v_fma(PART(a), PART(b), PART(c)));
}

LANES_INLINE lanes lanes_min(lanes a, lanes b)
{
    LANES_EACH(v_min(PART(a), PART(b)));
}

LANES_INLINE lanes lanes_max(lanes a, lanes b)
{
    LANES_EACH(v_max(PART(a), PART(b)));
}

LANES_INLINE lanes lanes_sqrt(lanes a)
{
    LANES_EACH(v_sqrt(PART(a)));
}

LANES_INLINE lanes lanes_abs(lanes a)
{
    LANES_EACH(v_from_bits(v_bits(PART(a)) & 0x7fffffffu));
}

LANES_INLINE lanes lanes_copysign(lanes a, lanes sign)
{
    LANES_EACH(v_from_bits((v_bits(PART(a)) & 0x7fffffffu) |
                           (v_bits(PART(sign)) & 0x80000000u)));
}

/* Exchanges lanes 2i and 2i + 1 of `a`, for all i. */
LANES_INLINE lanes lanes_swap_pairs(lanes a)
{
#ifdef LANES_PLAIN
    LANES_EACH(a.v[i ^ 1]);
#else
    LANES_EACH(v_swap(PART(a)));
#endif
}

/* Returns `a` with all lanes except lo .. hi - 1 set to `other`; 0 <= lo, hi <=
 * 16. */
LANES_INLINE lanes lanes_range(lanes a, int lo, int hi, float other)
{
    LANES_EACH(v_select((vm)(v_below(hi - W * i) & ~v_below(lo - W * i)),
                        PART(a), v_setf(other)));
}

/* Returns 2^n in each lane for integral n in -126 .. 127. Adding 1.5 * 2^23
 * leaves n as an integer in the low bits of the sum, from which a shift moves
 * it into the exponent. */
LANES_INLINE lanes lanes_pow2(lanes n)
{
    LANES_EACH(v_from_bits((v_bits(PART(n) + 0x1.8p23f) << 23) + 0x3f800000u));
}

LANES_INLINE lanes lanes_from_f16(const uint16_t *p)
{
    LANES_EACH(v_f16(p + W * i));
}

LANES_INLINE lanes lanes_from_bf16(const uint16_t *p)
{
    LANES_EACH(v_bf16(p + W * i));
}

LANES_INLINE lanes lanes_from_s8(const int8_t *p)
{
#ifdef LANES_NEON
    /* Widening all sixteen bytes together takes half as many instructions as
     * four at a time. */
    int8x16_t q = vld1q_s8(p);
    int16x8_t low = vmovl_s8(vget_low_s8(q)), high = vmovl_high_s8(q);

    return (lanes){{v_int_f((vi)vmovl_s16(vget_low_s16(low))),
                    v_int_f((vi)vmovl_high_s16(low)),
                    v_int_f((vi)vmovl_s16(vget_low_s16(high))),
                    v_int_f((vi)vmovl_high_s16(high))}};
#else
    LANES_EACH(v_int_f(v_s8(p + W * i)));
#endif
}

LANES_INLINE void lanes_to_f16(uint16_t *p, lanes a)
{
    LANES_PARTS(v_to_f16(p + W * i, PART(a)))
}

/* Attributes of functions that are long and called in many places. With vector
 * instructions they are inlined. In plain C they are not: each operation is a
 * loop there, and inlining took a minute to compile. */
#ifdef LANES_PLAIN
#define LANES_CALLED static __attribute__((noinline, unused))
#else
#define LANES_CALLED LANES_INLINE
#endif

/* lanes_sum() returns the sum of all lanes: lanes i + 8 are added to lanes i,
 * then i + 4 to i, i + 2 to i, and i + 1 to i. lanes_top() returns the largest
 * lane, compared in the same order. */
#if defined(LANES_AVX512) || defined(LANES_AVX2)
LANES_INLINE __m256 lanes_low(lanes a)
{
#ifdef LANES_AVX512
    return _mm512_castps512_ps256((__m512)a);
#else
    return (__m256)a.v[0];
#endif
}

LANES_INLINE __m256 lanes_high(lanes a)
{
#ifdef LANES_AVX512
    return _mm512_extractf32x8_ps((__m512)a, 1);
#else
    return (__m256)a.v[1];
#endif
}

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
    vf q = (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]);

    q = q + (vf)vextq_f32((float32x4_t)q, (float32x4_t)q, 2);
    return q[0] + q[1];
}

LANES_INLINE float lanes_top(lanes a)
{
    vf q = v_max(v_max(a.v[0], a.v[2]), v_max(a.v[1], a.v[3]));

    q = v_max(q, (vf)vextq_f32((float32x4_t)q, (float32x4_t)q, 2));
    return v_max(q, (vf)vextq_f32((float32x4_t)q, (float32x4_t)q, 1))[0];
}
#else
LANES_INLINE float lanes_sum(lanes a)
{
    for (int h = LANES / 2; h > 0; h /= 2) {
        for (int i = 0; i < h; i++)
            a.v[i] = a.v[i] + a.v[i + h];
    }
    return a.v[0];
}

LANES_INLINE float lanes_top(lanes a)
{
    for (int h = LANES / 2; h > 0; h /= 2) {
        for (int i = 0; i < h; i++)
            a.v[i] = v_max(a.v[i], a.v[i + h]);
    }
    return a.v[0];
}
#endif

#endif
