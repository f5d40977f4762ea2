/* Splits a step's tokens into micro-batches. The engine and the cost model
 * share this rule. */
#ifndef PLAN_MICROBATCH_H
#define PLAN_MICROBATCH_H

#include <stdint.h>

/* Minimum number of tokens in a micro-batch of a pipeline. With fewer tokens a
 * pipeline does not save time. */
enum { MICROBATCH_LEAST = 64 };

/* Returns the number of tokens for the next micro-batch of a step if `left`
 * tokens are still to be computed. The result is at most n_ubatch, and may
 * exceed `left`. If at least 2 * MICROBATCH_LEAST tokens are left, they are
 * divided evenly over several micro-batches of at least MICROBATCH_LEAST
 * tokens, at most n_micro, so that all stages of a pipeline work. The last
 * micro-batch may have fewer tokens than the others. */
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
