/* Mirostat (arXiv:2007.14966): chooses the number of candidates for each token
 * so that the surprise -log2 p of the drawn tokens stays near tau. */
#ifndef SAMPLING_MIROSTAT_H
#define SAMPLING_MIROSTAT_H

#include "sampling/candidates.h"
#include "sampling/sampling.h"

/* Draws a token by Mirostat, version o->mirostat (1 or 2), with the options
 * mirostat_tau and mirostat_eta, and returns its id. u is a random number in
 * [0, 1). *mu is the greatest surprise in bits that the token may have. It must
 * be 2 tau before the first token; each call updates it. */
int32_t mirostat_draw(struct candidates *a, const struct sampling_options *o,
                      int32_t n_vocab, double u, double *mu);

#endif
