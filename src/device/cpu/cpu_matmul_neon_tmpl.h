/* Matrix products for AArch64, with the instructions that the including file is
 * compiled for: only NEON, also DotProd, or also I8MM. The including file
 * defines CPU_MATMUL_INIT, the name of the function that writes the kernels
 * into a table, and JOBS, the name of the struct cpu_jobs.
 *
 * The 16 rows of a panel are four vectors. Codes are signed bytes, -128 .. 127.
 * SDOT, an instruction of DotProd, multiplies four pairs of bytes and adds them
 * to an int32. Without DotProd, products are int16, and as many as fit an int16
 * are added before the sum is widened. */
#define LANES_NEON
#include "base/unroll.h"
#include "device/cpu/cpu_vector.h"

enum { FLOAT_TOK = 4, WIDE_UNSIGNED = 0 };
enum { PANELS = 1, MAX_PANELS = 1, AHEAD = 4096, FLOAT_AHEAD = 4096 };

static inline vi v_fold(vi acc, vi a, vi b)
{
    return acc + a * b;
}

#ifdef __ARM_FEATURE_DOTPROD

static inline __attribute__((always_inline)) vi
v_dot(vi acc, const vu *code, const int8_t *q, int n, int max)
{
    (void)max;
    UNROLL
    for (int i = 0; i < n; i += 4) {
        int8x16_t x = vld1q_s8(q + 4 * i);
        int32x4_t a = (int32x4_t)acc;

        a = vdotq_laneq_s32(a, (int8x16_t)code[i], x, 0);
        a = vdotq_laneq_s32(a, (int8x16_t)code[i + 1], x, 1);
        a = vdotq_laneq_s32(a, (int8x16_t)code[i + 2], x, 2);
        acc = (vi)vdotq_laneq_s32(a, (int8x16_t)code[i + 3], x, 3);
    }
    return acc;
}

#else

/* v_dot (cpu_unpack_tmpl.h) for processors without DotProd. sum[0] and sum[1]
 * have int16 sums for two weight rows each: four adjacent int16 per row. */
static inline __attribute__((always_inline)) vi
v_dot(vi acc, const vu *code, const int8_t *q, int n, int max)
{
    const int fit = INT16_MAX / (127 * (max < 255 ? max : 128));
    int32x4_t wide[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    int16x8_t sum[2] = {vdupq_n_s16(0), vdupq_n_s16(0)};

    UNROLL
    for (int i = 0; i < n; i++) {
        int8x16_t c = (int8x16_t)code[i];
        int8x16_t x = vreinterpretq_s8_s32(
            vld1q_dup_s32((const int32_t *)(const void *)(q + 4 * i)));

        sum[0] = vmlal_s8(sum[0], vget_low_s8(c), vget_low_s8(x));
        sum[1] = vmlal_high_s8(sum[1], c, x);
        if ((i + 1) % fit == 0 || i + 1 == n) {
            wide[0] = vpadalq_s16(wide[0], sum[0]);
            wide[1] = vpadalq_s16(wide[1], sum[1]);
            sum[0] = sum[1] = vdupq_n_s16(0);
        }
    }
    return acc + (vi)vpaddq_s32(wide[0], wide[1]);
}

#endif

#include "device/cpu/cpu_unpack_tmpl.h"

#ifdef __ARM_FEATURE_DOTPROD
#include "device/cpu/cpu_gemm_neon_tmpl.h"
#else
#include "device/cpu/cpu_gemm_float_tmpl.h"
static const struct cpu_gemm gemm_table[PL_FORMAT_COUNT] = {
    FLOATS(SEGMENT_ROW)};
#endif

#include "device/cpu/cpu_skinny_dot_tmpl.h"

#include "device/cpu/cpu_matmul_tmpl.h"

/* ---- quantizing of activations ------------------------------------------- */

/* Returns the largest |src[i]|, as the bits of a float; n is a multiple of
 * 32. */
static inline uint32_t greatest(const float *src, int64_t n)
{
    uint32x4_t top[4] = {0};

    for (int64_t i = 0; i < n; i += 16)
        for (int j = 0; j < 4; j++)
            top[j] = vmaxq_u32(top[j], vreinterpretq_u32_f32(vabsq_f32(
                                           vld1q_f32(src + i + 4 * j))));
    return vmaxvq_u32(
        vmaxq_u32(vmaxq_u32(top[0], top[1]), vmaxq_u32(top[2], top[3])));
}

/* Encodes 16 values as q8_encode does: q[i] = round(src[i] * by). Returns the
 * sum of these 16 integers. */
static inline int16_t encode_half(int8_t *q, const float *src, float by)
{
    int16x4_t r[4];
    int8x16_t v;

    for (int i = 0; i < 4; i++)
        r[i] = vmovn_s32(
            vcvtnq_s32_f32(vmulq_f32(vld1q_f32(src + 4 * i), vdupq_n_f32(by))));
    v = vcombine_s8(vmovn_s16(vcombine_s16(r[0], r[1])),
                    vmovn_s16(vcombine_s16(r[2], r[3])));
    vst1q_s8(q, v);
    return vaddlvq_s8(v);
}

static inline void encode_block(struct q8_block *b, const float *src, float by)
{
    b->sum[0] = encode_half(b->q, src, by);
    b->sum[1] = encode_half(b->q + 16, src + 16, by);
}

#include "device/cpu/cpu_quantize_tmpl.h"

void CPU_MATMUL_INIT(struct cpu_kernels *k)
{
    init_ops(k);
    init_quantize(k);
}
