/* The short causal convolution of each channel (cpu_recurrent.h). Included by
 * cpu_ops_template.h.
 *
 * Definition, for token t and channel c of a call over consecutive tokens of
 * one sequence. The state holds the inputs x of the tokens before the call:
 *
 *   y = chain of fmaf(w[c][j], x[t - n_tap + 1 + j][c], y) from 0, j ascending
 *   out = y, or silu(y) like op silu
 *
 * A vector is sixteen channels. Channels are computed in blocks whose weights
 * and last n_tap inputs stay in the first-level cache. The weights are
 * transposed, so that those of a tap are contiguous. The tokens of a block are
 * computed in order, so that memory is read in order. */
#ifndef DEVICE_CPU_CPU_SHORT_CONV_TEMPLATE_H
#define DEVICE_CPU_CPU_SHORT_CONV_TEMPLATE_H

#include "device/cpu/cpu_lanes_math.h"
#include "device/cpu/cpu_recurrent.h"

#include <string.h>

/* number of channels that are computed together, so that their weights and
 * inputs stay in the first-level cache; a multiple of 16 */
enum { CONV_CHANNELS = 256 };

/* Inputs of n consecutive tokens. `row` points to those of the first token;
 * those of each next token are `stride` floats further on. */
struct conv_rows {
    const float *row;
    int64_t stride;
    int64_t n;
};

/* Returns `sum` plus the products of input rows r with taps w, for channels c
 * .. c + m - 1, m <= 16. Row j is multiplied by the weights of its tap and
 * added by fmaf, in order of j. */
LANES_INLINE lanes conv_add(struct conv_rows r, int64_t c, int64_t m,
                            const float *w, lanes sum)
{
    for (int64_t j = 0; j < r.n; j++) {
        const float *x = r.row + j * r.stride + c;
        lanes v = m < LANES ? lanes_load_n(x, m) : lanes_load(x);

        sum = lanes_fma(lanes_load(w + j * CONV_CHANNELS + c), v, sum);
    }
    return sum;
}

/* Returns the rows `from` .. n_tap - 2 of the state before the call, which are
 * inputs of earlier tokens, for the channels from `first` on. */
static inline struct conv_rows conv_state(const struct cpu_short_conv *a,
                                          int64_t first, int64_t from)
{
    static const float zeros[CONV_CHANNELS];
    int64_t n = a->n_tap - 1 - from;

    if (n <= 0)
        return (struct conv_rows){zeros, 0, 0};
    if (a->state_in == NULL)
        return (struct conv_rows){zeros, 0, n};
    return (struct conv_rows){a->state_in + from * a->n_channel + first,
                              a->n_channel, n};
}

/* Computes the short convolution for channels first .. first + n - 1, n <=
 * CONV_CHANNELS. `w` is scratch for the transposed weights of the taps. */
static inline void conv_block(const struct cpu_short_conv *a, int64_t first,
                              int64_t n, float *w)
{
    for (int64_t c = 0; c < n; c++) {
        for (int64_t j = 0; j < a->n_tap; j++)
            w[j * CONV_CHANNELS + c] = a->w[(first + c) * a->n_tap + j];
    }
    for (int64_t t = 0; t < a->n_tok; t++) {
        struct conv_rows before = conv_state(a, first, t);
        struct conv_rows run = {
            a->x + (t + 1 - a->n_tap + before.n) * a->x_stride + first,
            a->x_stride, a->n_tap - before.n};
        float *out = a->out + t * a->out_stride + first;

        for (int64_t c = 0; c < n; c += LANES) {
            int64_t m = n - c < LANES ? n - c : LANES;
            lanes y = conv_add(before, c, m, w, lanes_set(0));

            if (t + 1 < a->n_tok) {
                __builtin_prefetch(a->x + (t + 1) * a->x_stride + first + c);
                __builtin_prefetch(out + a->out_stride + c, 1);
            }

            y = conv_add(run, c, m, w + before.n * CONV_CHANNELS, y);
            if (a->silu)
                y = lanes_silu(y);
            lanes_store_n(out + c, y, m);
        }
    }
    /* Writes the state after the run, oldest input first. state_in and
     * state_out may be the same memory; in this order each row is read before
     * it is overwritten. */
    for (int64_t i = 0; i < a->n_tap - 1; i++) {
        int64_t t = a->n_tok - (a->n_tap - 1) + i;
        const float *from = t >= 0 ? a->x + t * a->x_stride + first
                                   : conv_state(a, first, i + a->n_tok).row;

        memmove(a->state_out + i * a->n_channel + first, from,
                (size_t)n * sizeof(float));
    }
}

static void short_conv_channels(const struct cpu_short_conv *a, int64_t first,
                                int64_t n, void *scratch)
{
    for (int64_t i = 0; i < n; i += CONV_CHANNELS)
        conv_block(a, first + i, n - i < CONV_CHANNELS ? n - i : CONV_CHANNELS,
                   scratch);
}

#endif
