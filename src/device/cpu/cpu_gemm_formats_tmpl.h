/* Defines gemm_table, the GEMMs of one kernel set by weight format. Included at
 * the end of each cpu_gemm_*_tmpl.h, which first defines the following names.
 * A *unit* is a range of k (cpu_gemm.h). Names with a dot are fields of struct
 * cpu_gemm.
 *
 *   TOK, MIN_ROWS          .tok and .min_rows
 *   TILE_PASS, CHUNK_PASS  .pass of formats without and with super-blocks
 *   unit_size              size in bytes of a panel's unpacked weights, for a
 *                          unit
 *   act_size               size in bytes of TOK arranged rows of activations,
 *                          for a unit
 *   unpack_tile            unpacks the W weight rows of vector h of tile i of a
 *                          unit, from their scales and low plane. It does not
 *                          write the fields with which each unit begins: float
 *                          d, [float dmin, or d of the second half].
 *   deal_tile              arranges tile i of a unit: one block of each of TOK
 *                          rows of activations, without the scales d
 *   gemm_products          .run
 *   GEMM_STATE             .begin, .end and .gathered, if any
 *   GEMM_TWO_D(X)          empty if formats of SHAPES_TWO_D use panel calls
 *
 * Float formats come from cpu_gemm_float_tmpl.h. */
#include "device/cpu/cpu_gemm_float_tmpl.h"

/* ---- unpacking of weights ------------------------------------------------ */

TMPL void gemm_unpack(uint8_t *dst, const struct pack *p, const uint8_t *panel,
                      int64_t first, int64_t n, struct shape f)
{
    const struct pack_rule *rule = p->rule;
    const vu table = table_of(rule, f);
    const size_t pass = has_chunks(f) ? CHUNK_PASS : TILE_PASS;
    const size_t unit =
        (size_t)(rule->sup_bytes + tiles_of(f) * rule->tile_bytes);
    const size_t ahead =
        n < (int64_t)pass ? GEMM_PANELS * p->panel_bytes : pass * unit;

    for (int64_t u = first; u < first + n; u++, dst += unit_size(f)) {
        const struct gemm_unit at = gemm_unit_at(p, u, f);
        const uint8_t *sup = panel + at.off;
        const uint8_t *tile = sup + rule->sup_bytes;

        if (at.n_tile < tiles_of(f))
            memset(dst, 0, (size_t)unit_size(f));
        for (int i = 0; i < at.n_tile; i++, tile += rule->tile_bytes) {
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                struct scales w = {0};

                scales_read(&w, sup, tile, h, f);
                unpack_tile(dst, i, h, tile + rule->sub_bytes + 4 * W * h, &w,
                            table, f);
                put(dst + 4 * W * h, (vi)w.d);
                if (has_min(f))
                    put(dst + ROW16 + 4 * W * h, (vi)w.dmin);
                if (has_two_d(f))
                    put(dst + ROW16 + 4 * W * h, (vi)w.d1);
            }
            /* Prefetches the packed weights of this panel that the next pass
             * over k will unpack. In the last pass, prefetches those of the
             * next block of two panels. They are loaded while the current pass
             * is multiplied. */
            for (int b = 0; b < rule->tile_bytes; b += 64)
                __builtin_prefetch(tile + ahead + b, 0, 2);
        }
    }
}

/* ---- arranging of activations -------------------------------------------- */

TMPL void gemm_deal(uint8_t *dst, const struct pack *p, const void *const *x,
                    int n, struct shape f)
{
    const struct q8_block *row[TOK];
    int64_t n_unit = gemm_units(p);

    for (int t = 0; t < TOK; t++)
        row[t] = x[t < n ? t : 0];
    for (int64_t u = 0; u < n_unit; u++, dst += act_size(f)) {
        const struct gemm_unit at = gemm_unit_at(p, u, f);

        if (at.n_tile < tiles_of(f))
            memset(dst, 0, (size_t)act_size(f));
        for (int t = 0; t < TOK; t++)
            memcpy(dst + act_d(f) + 4 * t, &row[t][at.block].d, 4);
        for (int i = 0; i < at.n_tile; i++)
            deal_tile(dst, row, at.block + i, i, f);
    }
}

/* ---- functions and table entry of each weight format --------------------- */

#define GEMM_OF(name, low, high, bias, table, sub, sup)                        \
    enum {                                                                     \
        pass_##name = PACK_SUP_##sup == PACK_SUP_NONE ? TILE_PASS : CHUNK_PASS \
    };                                                                         \
    static size_t weight_bytes_##name(void)                                    \
    {                                                                          \
        return (size_t)unit_size(shape_##name);                                \
    }                                                                          \
    static size_t act_bytes_##name(void)                                       \
    {                                                                          \
        return (size_t)act_size(shape_##name);                                 \
    }                                                                          \
    static void unpack_##name(void *dst, const struct pack *p,                 \
                              const uint8_t *panel, int64_t first, int64_t n)  \
    {                                                                          \
        gemm_unpack(dst, p, panel, first, n, shape_##name);                    \
    }                                                                          \
    static void arrange_##name(void *dst, const struct pack *p,                \
                               const void *const *x, int n)                    \
    {                                                                          \
        gemm_deal(dst, p, x, n, shape_##name);                                 \
    }                                                                          \
    static void run_##name(const struct gemm_pass *p)                          \
    {                                                                          \
        gemm_products(p, shape_##name);                                        \
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
