/* Splits a step's tokens into micro-batches. The engine and the cost model
 * share this rule. */
#ifndef PLAN_MICROBATCH_H
#define PLAN_MICROBATCH_H

#include <stdint.h>

/* Minimum number of tokens in a micro-batch of a pipeline. With fewer tokens a
 * pipeline does not save time. */
enum { MICROBATCH_LEAST = 64 };

/* Returns the number of tokens in the next micro-batch of a step that has
 * `left` tokens left to compute. n_ubatch is the maximum. If the tokens fill at
 * least two micro-batches of MICROBATCH_LEAST, they are divided evenly over at
 * most n_micro micro-batches, so that these pass through a pipeline. Only the
 * last one may be smaller. */
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
