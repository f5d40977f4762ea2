/* Contractions for CPUs with AVX-512 F, BW, VL, DQ and VNNI: Ice Lake, Zen 4
 * and later. vpdpbusd takes unsigned codes of all 8 bits, so nothing needs a
 * second step; one vector is the 16 rows of a panel. */
#include "device/cpu/cpu_vectors_avx512.h"

enum { FLOAT_TOK = 8, WIDE_UNSIGNED = 1 };

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

#define JOBS cpu_jobs_avx512_vnni
#include "device/cpu/cpu_matmul_tmpl.h"

void cpu_matmul_init_avx512_vnni(struct cpu_kernels *k)
{
    init_ops(k);
}
