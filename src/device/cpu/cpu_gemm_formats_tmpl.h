/* gemm_table, struct cpu_gemm by format: the formats of SHAPES with the
 * gemm_unpack, gemm_deal, gemm_products, unit_size and act_size of the
 * cpu_gemm_*_tmpl.h that includes this at its end, and its TOK and
 * MIN_ROWS as .tok and .min_rows. GEMM_STATE, if defined, sets .begin and .end;
 * GEMM_TWO_D(X), if defined, is empty where formats of SHAPES_TWO_D go by jobs.
 * Float formats come from cpu_gemm_float_tmpl.h. */
#include "device/cpu/cpu_gemm_float_tmpl.h"

/* ---- the formats --------------------------------------------------------- */

#define GEMM_OF(name, low, high, bias, table, sub, sup)                        \
    enum {                                                                     \
        pass_##name = PACK_SUP_##sup == PACK_SUP_NONE ? TILE_PASS : CHUNK_PASS \
    };                                                                         \
    static size_t weight_bytes_##name(void)                                    \
    {                                                                          \
        return (size_t)unit_size((struct shape){                               \
            low, high, bias, table, PACK_SUB_##sub, PACK_SUP_##sup});          \
    }                                                                          \
    static size_t act_bytes_##name(void)                                       \
    {                                                                          \
        return (size_t)act_size((struct shape){                                \
            low, high, bias, table, PACK_SUB_##sub, PACK_SUP_##sup});          \
    }                                                                          \
    static void unpack_##name(void *dst, const struct pack *p,                 \
                              const uint8_t *panel, int64_t first, int64_t n)  \
    {                                                                          \
        gemm_unpack(dst, p, panel, first, n,                                   \
                    (struct shape){low, high, bias, table, PACK_SUB_##sub,     \
                                   PACK_SUP_##sup});                           \
    }                                                                          \
    static void arrange_##name(void *dst, const struct pack *p,                \
                               const void *const *x, int n)                    \
    {                                                                          \
        gemm_deal(dst, p, x, n,                                                \
                  (struct shape){low, high, bias, table, PACK_SUB_##sub,       \
                                 PACK_SUP_##sup});                             \
    }                                                                          \
    static void run_##name(const void *weight, size_t stride, const void *act, \
                           size_t act_step, float *const *acc, int64_t n_row,  \
                           int64_t n_unit, bool fresh)                         \
    {                                                                          \
        gemm_products(weight, stride, act, act_step, acc, n_row, n_unit,       \
                      fresh,                                                   \
                      (struct shape){low, high, bias, table, PACK_SUB_##sub,   \
                                     PACK_SUP_##sup});                         \
    }
#ifndef GEMM_TWO_D
#define GEMM_TWO_D(X) SHAPES_TWO_D(X)
#endif
SHAPES(GEMM_OF)
GEMM_TWO_D(GEMM_OF)

#ifndef GEMM_STATE
#define GEMM_STATE
#endif
#define GEMM_AS(format, name)                                                  \
    [PL_##format] = {.tok = TOK,                                               \
                     .min_rows = MIN_ROWS,                                     \
                     .pass = pass_##name,                                      \
                     .weight_bytes = weight_bytes_##name,                      \
                     .act_bytes = act_bytes_##name,                            \
                     .unpack = unpack_##name,                                  \
                     .arrange = arrange_##name,                                \
                     .run = run_##name,                                        \
                     GEMM_STATE},
#define GEMM_ROW(name, ...) GEMM_AS(name, name)
static const struct cpu_gemm gemm_table[PL_FORMAT_COUNT] = {
    SHAPES(GEMM_ROW) GEMM_TWO_D(GEMM_ROW) ALIKE(GEMM_AS) FLOATS(SEGMENT_ROW)};
