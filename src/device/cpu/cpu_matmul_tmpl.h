/* Panel functions with vectors; one source for all instruction sets. Included
 * by each cpu_matmul_*.c, after cpu_skinny_*_tmpl.h. A vector lane is a weight
 * row, so the operations are those of cpu_panel_generic for W rows at a time,
 * with the same bits. The including file defines
 *
 *   panel_quantized   the panel function of quantized weights
 *   JOBS              the name of the set's struct cpu_jobs
 *   gemm_table        the set's GEMMs, by weight format
 *   PANELS            maximum number of panels that a panel call multiplies
 *   MAX_PANELS        greatest PANELS of the sets that use these functions
 *   AHEAD             prefetch distance of quantized weights, in bytes
 *   FLOAT_AHEAD       the same for float weights */

/* ---- float weights ------------------------------------------------------- */

/* Multiplies n_panel panels of the call, from panel `panel`, by n rows of
 * activations from row `first`, over chunk *c of k. Each panel and row of
 * activations has sums in registers. n_panel and n_tok >= n are compile-time
 * constants. The n_tok - n excess rows repeat row `first`, and their sums are
 * discarded. */
TMPL void float_block(const struct cpu_panel_args *s,
                      const struct pack_chunk *c, int panel, int first, int n,
                      const int n_panel, const int n_tok, pl_format f)
{
    const int ahead = distance(FLOAT_AHEAD, n_panel);
    const int size = f == PL_F32 ? 4 : 2;
    const uint8_t *tile[FLOAT_TOK];
    const float *x[FLOAT_TOK];
    float nowhere[PACK_ROWS] = {0};

    UNROLL
    for (int p = 0; p < n_panel; p++)
        tile[p] =
            s->panel + (size_t)(panel + p) * s->pack->panel_bytes + c->off;
    UNROLL
    for (int j = 0; j < n_tok; j++)
        x[j] = (const float *)s->x[first + (j < n ? j : 0)] + c->k_loc;
    for (int64_t k = 0, end; k < c->n; k = end) {
        vf sum[FLOAT_TOK][HALVES];

        end = cpu_segment_end(c->k + k) - c->k;
        end = end < c->n ? end : c->n;
        UNROLL
        for (int j = 0; j < n_panel * n_tok; j++) {
            UNROLL
            for (int h = 0; h < HALVES; h++)
                sum[j][h] = v_setf(0);
        }
        for (int64_t i = k; i < end; i++) {
            UNROLL
            for (int p = 0; p < n_panel; p++) {
                vf w[HALVES];

                if (i % 32 == 0)
                    for (int j = 0; j < 32 * PACK_ROWS * size; j += 64)
                        __builtin_prefetch(
                            ahead_of(s, panel + p, tile[p], ahead) + j);
                UNROLL
                for (int h = 0; h < HALVES; h++)
                    w[h] = float_load(tile[p] + h * W * size, f);
                UNROLL
                for (int j = 0; j < n_tok; j++) {
                    vf *to = sum[p * n_tok + j];

                    UNROLL
                    for (int h = 0; h < HALVES; h++)
                        to[h] = v_fma(w[h], v_setf(x[j][i]), to[h]);
                }
                tile[p] += PACK_ROWS * size;
            }
        }
        UNROLL
        for (int j = 0; j < n_panel * n_tok; j++) {
            float *at = j % n_tok < n
                            ? cpu_panel_acc(s, first + j % n_tok) +
                                  (panel + j / n_tok) * s->n_tok * PACK_ROWS
                            : nowhere;
            UNROLL
            for (int h = 0; h < HALVES; h++) {
                vf acc;

                memcpy(&acc, at + W * h, sizeof(acc));
                acc = acc + sum[j][h];
                memcpy(at + W * h, &acc, sizeof(acc));
            }
        }
    }
}

/* Computes a panel call with float weights. With one row of activations,
 * multiplies four panels at a time while that many are left. */
TMPL void panel_float(const struct cpu_panel_args *s, pl_format f)
{
    for (int i = 0; i < s->pack->n_chunk; i++) {
        const struct pack_chunk *c = &s->pack->chunk[i];
        int p = 0;

        if (c->rank != s->rank)
            continue;
        for (; MAX_PANELS > 1 && s->n_tok == 1 && s->n_panel - p >= 4; p += 4)
            float_block(s, c, p, 0, 1, 4, 1, f);
        for (; p < s->n_panel; p++)
            for (int j = 0, n; j < s->n_tok; j += n) {
                n = s->n_tok - j < FLOAT_TOK ? s->n_tok - j : FLOAT_TOK;
                if (n == 1)
                    float_block(s, c, p, j, n, 1, 1, f);
                else if (n == 2)
                    float_block(s, c, p, j, n, 1, 2, f);
                else if (n <= 4)
                    float_block(s, c, p, j, n, 1, 4, f);
                else
                    float_block(s, c, p, j, n, 1, FLOAT_TOK, f);
            }
    }
}

/* ---- table of panel functions -------------------------------------------- */

#define PANEL_Q(name, ...)                                                     \
    static void panel_##name(const struct cpu_panel_args *s)                   \
    {                                                                          \
        panel_quantized(s, shape_##name);                                      \
    }
SHAPES(PANEL_Q)
SHAPES_TWO_D(PANEL_Q)
#define PANEL_F(name)                                                          \
    static void panel_##name(const struct cpu_panel_args *s)                   \
    {                                                                          \
        panel_float(s, PL_##name);                                             \
    }
FLOATS(PANEL_F)

static void add(float *out, const float *a, const float *b, int64_t n)
{
    int64_t i = 0;

    for (; i + W <= n; i += W) {
        vf sum = (vf)load(a + i) + (vf)load(b + i);

        memcpy(out + i, &sum, sizeof(sum));
    }
    for (; i < n; i++)
        out[i] = a[i] + b[i];
}

#define ENTRY(name, ...)       [PL_##name] = panel_##name,
#define ENTRY_AS(format, name) [PL_##format] = panel_##name,
#define JOBS_OF(name, n_panel)                                                 \
    const struct cpu_jobs name = {                                             \
        .packed = {SHAPES(ENTRY) SHAPES_TWO_D(ENTRY) ALIKE(ENTRY_AS)           \
                       FLOATS(ENTRY)},                                         \
        .plain = cpu_panel_plain_generic,                                      \
        .q8 = true,                                                            \
        .panels = n_panel,                                                     \
        .add = add,                                                            \
    }
JOBS_OF(JOBS, PANELS);
static const struct cpu_matmul_isa isa = {&JOBS, gemm_table};

#include "device/cpu/cpu_matmul_ops_template.h"
