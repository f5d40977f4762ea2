/* Matrix products for CPUs with AVX2, FMA and F16C: Haswell, Zen and later. The
 * 16 rows of a panel are two vectors. */
#include "device/cpu/cpu_ymm_tmpl.h"

/* The reason for MIN_ROWS, the number of rows of activations from which GEMM
 * replaces panel calls: on a Zen 3, with 20 rows, GEMM takes 0.65 to 0.9 times
 * as long as panel calls, and as long for Q8_0. With 16 rows, the maximum of a
 * panel call, it takes 0.75 to 1.1 times as long. */
enum { WIDE_UNSIGNED = 0, MIN_ROWS = 17 };

/* The reason for PANELS (per call) and AHEAD (prefetch distance in bytes): on a
 * Zen 3, with one row of activations, these values read 1.2 (Q4_K) to 1.4 times
 * (Q8_0) as many bytes per second as one panel per call and a distance of 4
 * KiB. For float weights, measured with one panel per call, a distance of 2 KiB
 * was faster than 1 and 4 KiB. */
enum { PANELS = 4, MAX_PANELS = 4, AHEAD = 1024, FLOAT_AHEAD = 2048 };

#include "device/cpu/cpu_unpack_tmpl.h"

#include "device/cpu/cpu_gemm_avx2_tmpl.h"

#include "device/cpu/cpu_skinny_avx2_tmpl.h"

#define JOBS cpu_jobs_avx2
#include "device/cpu/cpu_matmul_tmpl.h"

/* ---- quantizing of activations ------------------------------------------- */

/* Returns a vector in which each int32 of a 128-bit lane is the sum of that
 * lane's four int32 in `a`. */
static inline __m256i lane_sums(__m256i a)
{
    a = _mm256_hadd_epi32(a, a);
    return _mm256_hadd_epi32(a, a);
}

/* Returns the largest |src[i]|, as the bits of a float; n is a multiple of
 * 32. */
static inline uint32_t greatest(const float *src, int64_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i top[4] = {0};
    __m128i max;

    for (int64_t i = 0; i < n; i += 32)
        for (int j = 0; j < 4; j++)
            top[j] = _mm256_max_epi32(
                top[j], _mm256_and_si256(_mm256_castps_si256(
                                             _mm256_loadu_ps(src + i + 8 * j)),
                                         magnitude));
    top[0] = _mm256_max_epi32(_mm256_max_epi32(top[0], top[1]),
                              _mm256_max_epi32(top[2], top[3]));
    max = _mm_max_epi32(_mm256_castsi256_si128(top[0]),
                        _mm256_extracti128_si256(top[0], 1));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4e));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(max);
}

/* Encodes 32 values as q8_encode does: sets b->q to round(src * by), and b->sum
 * to the sums of the first and the last 16 values of b->q. b->d is set by the
 * caller. */
static inline void encode_block(struct q8_block *b, const float *src, float by)
{
    const __m256 magic = _mm256_set1_ps(0x1.8p23f);
    const __m256 scale = _mm256_set1_ps(by);
    __m256i r[4], q, sum;

    for (int i = 0; i < 4; i++) {
        __m256 x = _mm256_mul_ps(_mm256_loadu_ps(src + 8 * i), scale);

        /* Adding 1.5 * 2^23 (`magic`) rounds x to an integer. The integer is
         * the difference between the bits of the sum and those of `magic`. */
        r[i] = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(x, magic)),
                                _mm256_castps_si256(magic));
    }
    q = _mm256_packs_epi16(_mm256_packs_epi32(r[0], r[1]),
                           _mm256_packs_epi32(r[2], r[3]));
    q = _mm256_permutevar8x32_epi32(q,
                                    _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)b->q, q);
    sum = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    sum = lane_sums(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)));
    b->sum[0] = (int16_t)_mm256_extract_epi32(sum, 0);
    b->sum[1] = (int16_t)_mm256_extract_epi32(sum, 4);
}

#include "device/cpu/cpu_quantize_tmpl.h"

void cpu_matmul_init_avx2(struct cpu_kernels *k)
{
    init_ops(k);
    init_quantize(k);
}
