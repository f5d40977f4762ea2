/* Computes the probabilities of tokens from the raw logits of a model.
 * Penalties, biases and other samplers are not applied to these logits. */
#ifndef SERVER_LOGPROB_H
#define SERVER_LOGPROB_H

#include "pl.h"

struct logprob {
    int32_t id;
    double p; /* natural logarithm of the token's probability */
};

/* Sets of->p for the sampled token of->id. Fills `top` with the n_top likeliest
 * tokens in descending order; tokens of equal probability are ordered by id.
 * Returns how many tokens it wrote to `top`: n_top, but at most n_vocab. */
int logprob_read(const float *logits, int64_t n_vocab, struct logprob *of,
                 struct logprob *top, int n_top);

#endif
