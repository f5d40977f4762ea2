/* Probabilities of tokens, by a model's logits as they are: before penalties,
 * biases and whatever else samplers do. */
#ifndef SERVER_LOGPROB_H
#define SERVER_LOGPROB_H

#include "pl.h"

struct logprob {
    int32_t id;
    double p; /* natural logarithm of the probability */
};

/* of: the token that was chosen, its id set. top: [n_top], the likeliest
 * first, equal ones by id; returns how many there are, n_vocab at most. */
int logprob_read(const float *logits, int64_t n_vocab, struct logprob *of,
                 struct logprob *top, int n_top);

#endif
