/* The loops of a GEMM over rows of activations and over weight rows. Included
 * by the other cpu_gemm_*_tmpl.h. Needs cpu_unpack_tmpl.h. */
#ifndef DEVICE_CPU_CPU_GEMM_ROWS_TMPL_H
#define DEVICE_CPU_CPU_GEMM_ROWS_TMPL_H

#include "device/cpu/cpu_gemm.h"

/* greatest number of rows of activations that RUN takes at a time */
enum { GEMM_MAX_TOK = 6 };

/* Defines a function NAME(p, f), which multiplies all rows of activations of a
 * pass, N at a time, by all GEMM_WIDTH weight rows, WIDTH at a time. Rows of
 * activations that a group of N lacks are computed too, into memory that is
 * discarded. Each group of rows of accumulators is cleared just before it is
 * used: rows may be far apart in memory, so if all were cleared first, they
 * might not stay in the caches. `step` is the distance in bytes from the
 * unpacked weights of one vector of rows to those of the next.
 *
 *   RUN(w, step, x, at, n_unit, n_tok, f)
 *
 * multiplies the two vectors or more of weight rows whose unpacked weights are
 * at w, w + step, ... by n_tok arranged rows of activations over n_unit units
 * (ranges of k). n_tok is a compile-time constant. at[t] points to the
 * accumulators of row t of activations. RUN is called by its name, because
 * Clang does not unroll the loops of a function that it first sees as a
 * pointer. */
#define GEMM_ROWS(NAME, N, WIDTH, RUN)                                         \
    TMPL void NAME(const struct gemm_pass *p, struct shape f)                  \
    {                                                                          \
        const uint8_t *w = p->weight, *x = p->act;                             \
        float *const *to = p->to;                                              \
        int64_t n_row = p->n_row;                                              \
        const size_t step = HALVES == 1 ? p->stride : 4 * W;                   \
        float nowhere[GEMM_WIDTH] = {0};                                       \
                                                                               \
        for (; n_row > 0; n_row -= (N), to += (N), x += p->act_step) {         \
            if (!p->from)                                                      \
                gemm_clear(to, n_row < (N) ? n_row : (N));                     \
            for (int row = 0; row < GEMM_WIDTH; row += (WIDTH)) {              \
                const uint8_t *panel = w +                                     \
                                       (size_t)(row / PACK_ROWS) * p->stride + \
                                       4 * (row % PACK_ROWS);                  \
                float *at[GEMM_MAX_TOK];                                       \
                                                                               \
                for (int t = 0; t < (N); t++)                                  \
                    at[t] = (t < n_row ? to[t] : nowhere) + row;               \
                if ((N) > 4 && n_row > 4)                                      \
                    RUN(panel, step, x, at, p->n_unit, N, f);                  \
                else if (n_row > 2)                                            \
                    RUN(panel, step, x, at, p->n_unit, 4, f);                  \
                else                                                           \
                    RUN(panel, step, x, at, p->n_unit, 2, f);                  \
            }                                                                  \
        }                                                                      \
    }

#endif
