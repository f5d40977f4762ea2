/* Matrix products for CPUs with AVX-512 F, BW, VL, DQ and VNNI: Ice Lake, Zen 4
 * and later. vpdpbusd multiplies unsigned codes of all 8 bits and does not
 * saturate, so every format needs only this instruction. One vector is the 16
 * rows of a panel. */
#include "device/cpu/cpu_vector.h"

/* The reason for MIN_ROWS, the number of rows of activations from which GEMM
 * replaces panel calls: up to 16 rows are one panel call. On Zen 5, GEMM takes
 * 0.9 to 1.03 times as long as panel calls with 20 rows of Q4_0, Q4_K and Q8_0,
 * and 1 to 1.2 times with 15 rows (medians, weights of 512 x 1024). */
enum { FLOAT_TOK = 8, WIDE_UNSIGNED = 1, TOK = 6, MIN_ROWS = 17 };
/* The reason for AHEAD, the prefetch distance in bytes: hardware prefetching
 * stops at the end of a memory page. On a Zen 5, a distance of 8192 bytes takes
 * as long as one of 4096 with one row of activations, but only 0.76 to 0.89
 * times as long with four rows, where a tile takes longer and fewer tiles are
 * in flight. Processors with AMX read faster with four panels per call
 * (doc/kernels.md), a Zen 5 does not. */
enum { PANELS = 1, MAX_PANELS = 4, AHEAD = 8192, FLOAT_AHEAD = 8192 };

/* Interleaves TOK rows of activations: x[t] is eight dwords (four values each)
 * of row t, and dst becomes [8][TOK] dwords. */
static inline void deal_dwords(uint8_t *dst, const __m256i x[TOK])
{
    /* The result is made from three vectors: the 16 dwords of rows 0 and 1, of
     * rows 2 and 3, and of rows 4 and 5. FROM(i) is the index of result dword i
     * in the first two vectors together. FROM45(i) then selects either that
     * dword or, with an index from 16 on, a dword of the third vector. */
#define FROM(i)   ((i) % 6 < 4 ? (i) % 6 * 8 + (i) / 6 : 0)
#define FROM45(i) ((i) % 6 < 4 ? (i) % 16 : 16 + ((i) % 6 - 4) * 8 + (i) / 6)
#define SIXTEEN(f, i)                                                          \
    f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6),          \
        f(i + 7), f(i + 8), f(i + 9), f(i + 10), f(i + 11), f(i + 12),         \
        f(i + 13), f(i + 14), f(i + 15)
    const __m512i x01 =
        _mm512_inserti64x4(_mm512_castsi256_si512(x[0]), x[1], 1);
    const __m512i x23 =
        _mm512_inserti64x4(_mm512_castsi256_si512(x[2]), x[3], 1);
    const __m512i x45 =
        _mm512_inserti64x4(_mm512_castsi256_si512(x[4]), x[5], 1);
#define DEAL(i)                                                                \
    do {                                                                       \
        __m512i v = _mm512_permutex2var_epi32(                                 \
            x01, (__m512i)(vi){SIXTEEN(FROM, i)}, x23);                        \
        v = _mm512_permutex2var_epi32(v, (__m512i)(vi){SIXTEEN(FROM45, i)},    \
                                      x45);                                    \
        _mm512_storeu_si512((void *)(dst + 4 * (i)), v);                       \
    } while (0)
    DEAL(0);
    DEAL(16);
    DEAL(32);
#undef DEAL
#undef SIXTEEN
#undef FROM45
#undef FROM
}

#include "device/cpu/cpu_vnni_tmpl.h"

#include "device/cpu/cpu_unpack_tmpl.h"

#include "device/cpu/cpu_gemm_vnni_tmpl.h"

#include "device/cpu/cpu_skinny_dot_tmpl.h"

#define JOBS cpu_jobs_avx512_vnni
#include "device/cpu/cpu_matmul_tmpl.h"

JOBS_OF(cpu_jobs_amx, MAX_PANELS);

void cpu_matmul_init_avx512_vnni(struct cpu_kernels *k)
{
    init_ops(k);
}
