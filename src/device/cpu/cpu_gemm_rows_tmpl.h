/* The loops of a GEMM over rows of activations and over weight rows. Included
 * by the other cpu_gemm_*_tmpl.h. Needs cpu_unpack_tmpl.h. */
#ifndef DEVICE_CPU_CPU_GEMM_ROWS_TMPL_H
#define DEVICE_CPU_CPU_GEMM_ROWS_TMPL_H

#include "device/cpu/cpu_gemm.h"

/* greatest number of rows of activations that gemm_rows() takes at a time */
enum { GEMM_MAX_TOK = 6 };

/* Multiplies the two vectors or more of weight rows whose unpacked weights are
 * at w, w + step, ... by n_tok arranged rows of activations over n_unit units
 * (ranges of k). n_tok is a compile-time constant. at[t] points to the
 * accumulators of row t of activations. */
typedef void gemm_run_fn(const uint8_t *w, size_t step, const uint8_t *x,
                         float *const *at, int64_t n_unit, const int n_tok,
                         struct shape f);

/* Calls `run` for all rows of activations of a pass, `tok` at a time, and all
 * GEMM_WIDTH weight rows, `width` at a time. Rows of activations that a group
 * of `tok` lacks are computed too, into memory that is discarded. */
TMPL void gemm_rows(const struct gemm_pass *p, const int tok, const int width,
                    gemm_run_fn *run, struct shape f)
{
    const uint8_t *w = p->weight, *x = p->act;
    float *const *to = p->to;
    int64_t n_row = p->n_row;
    /* distance in bytes from the unpacked weights of one vector of rows to
     * those of the next */
    const size_t step = HALVES == 1 ? p->stride : 4 * W;
    float nowhere[GEMM_WIDTH] = {0};

    for (; n_row > 0; n_row -= tok, to += tok, x += p->act_step) {
        /* Each group of rows of accumulators is cleared just before it is used.
         * Rows may be far apart in memory, so if all were cleared first, they
         * might not stay in the caches. */
        if (!p->from)
            gemm_clear(to, n_row < tok ? n_row : tok);
        for (int row = 0; row < GEMM_WIDTH; row += width) {
            const uint8_t *panel = w + (size_t)(row / PACK_ROWS) * p->stride +
                                   4 * (row % PACK_ROWS);
            float *at[GEMM_MAX_TOK];

            for (int t = 0; t < tok; t++)
                at[t] = (t < n_row ? to[t] : nowhere) + row;
            if (tok > 4 && n_row > 4)
                run(panel, step, x, at, p->n_unit, tok, f);
            else if (n_row > 2)
                run(panel, step, x, at, p->n_unit, 4, f);
            else
                run(panel, step, x, at, p->n_unit, 2, f);
        }
    }
}

#endif
