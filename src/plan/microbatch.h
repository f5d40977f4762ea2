/* Splits a step's tokens into micro-batches. The engine and the cost model
 * share this rule. */
#ifndef PLAN_MICROBATCH_H
#define PLAN_MICROBATCH_H

#include <stdint.h>

/* Tokens that make a pipeline stage worthwhile. */
enum { MICROBATCH_LEAST = 64 };

/* Returns the tokens of each micro-batch of the next step, the last one fewer,
 * when `left` remain. It is n_ubatch, or fewer, so that up to n_micro of them,
 * those of a pipeline, are equal. The step has as many micro-batches as there
 * are tokens for, n_micro at most. */
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
