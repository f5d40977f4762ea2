/* Computes probabilities of tokens from the raw logits of a model, that is,
 * before penalties, biases and other samplers. */
#ifndef SERVER_LOGPROB_H
#define SERVER_LOGPROB_H

#include "pl.h"

struct logprob {
    int32_t id;
    double p; /* natural logarithm of the probability */
};

/* Computes of->p for the token of->id, the one that was sampled. Fills `top`
 * with the n_top likeliest tokens in descending order, equal ones by id.
 * Returns how many tokens it wrote to `top`: n_top, but at most n_vocab. */
int logprob_read(const float *logits, int64_t n_vocab, struct logprob *of,
                 struct logprob *top, int n_top);

#endif
