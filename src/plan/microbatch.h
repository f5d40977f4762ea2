/* How a run's tokens are dealt to micro-batches: one rule for who runs them and
 * for who says beforehand how long it takes. */
#ifndef PLAN_MICROBATCH_H
#define PLAN_MICROBATCH_H

#include <stdint.h>

enum { MICROBATCH_LEAST = 64 }; /* tokens that a stage is worth starting for */

/* Tokens that each micro-batch of the next run gets, the last one less, when
 * `left` are to come: n_ubatch, or so few that up to n_micro of them, a
 * pipeline's, are alike. As many of them make the run as there are tokens for,
 * n_micro at most. */
static inline int64_t microbatch_tokens(int64_t left, int64_t n_ubatch,
                                        int n_micro)
{
    int64_t n = left / MICROBATCH_LEAST;

    if (n > n_micro)
        n = n_micro;
    if (n < 2)
        return n_ubatch;
    return (left + n - 1) / n < n_ubatch ? (left + n - 1) / n : n_ubatch;
}

#endif
