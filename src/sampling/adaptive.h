/* Adaptive-p: draws tokens whose probability is near a target, and adapts the
 * target so that the mean probability of the drawn tokens stays near it.
 * Source: https://github.com/ggml-org/llama.cpp/pull/17927 */
#ifndef SAMPLING_ADAPTIVE_H
#define SAMPLING_ADAPTIVE_H

#include "sampling/candidates.h"
#include "sampling/sampling.h"

/* The tokens drawn so far. The latest has the weight 1, and each earlier one
 * adaptive_decay times that of the next. */
struct adaptive {
    double sum;    /* weighted sum of the tokens' probabilities */
    double weight; /* sum of the weights */
    int32_t id;    /* token that was drawn, but not accepted yet; -1 if none */
    double p;      /* its probability before the transformation */
};

/* Sets the state before the first token: as if all earlier tokens had had the
 * target probability. */
void adaptive_reset(struct adaptive *a, const struct sampling_options *o);
/* Draws a token with the random number u in [0, 1), and returns its id. */
int32_t adaptive_draw(struct adaptive *a, struct candidates *c,
                      const struct sampling_options *o, double u);
/* Adds a token to the state if it is the one that was drawn last. */
void adaptive_accept(struct adaptive *a, const struct sampling_options *o,
                     int32_t id);

#endif
