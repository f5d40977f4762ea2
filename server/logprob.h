/* Probabilities of tokens from a model's raw logits: before penalties, biases
 * and other samplers. */
#ifndef SERVER_LOGPROB_H
#define SERVER_LOGPROB_H

#include "pl.h"

struct logprob {
    int32_t id;
    double p; /* natural logarithm of the probability */
};

/* Computes the probability of the chosen token, whose id is set in *of, and the
 * n_top likeliest tokens, in descending order and by id if equal. Returns how
 * many there are, at most n_vocab. */
int logprob_read(const float *logits, int64_t n_vocab, struct logprob *of,
                 struct logprob *top, int n_top);

#endif
