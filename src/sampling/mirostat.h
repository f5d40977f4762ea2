/* Mirostat (arXiv:2007.14966): chooses the number of candidates for each token
 * so that the surprise -log2 p of the drawn tokens stays near tau. */
#ifndef SAMPLING_MIROSTAT_H
#define SAMPLING_MIROSTAT_H

#include "sampling/candidates.h"
#include "sampling/sampling.h"

/* Draws a token as o->mirostat, _tau and _eta demand and returns its id. u is a
 * random number in [0, 1). *mu is the greatest allowed surprise in bits; it is
 * 2 tau at first, and updated after the draw. */
int32_t mirostat_draw(struct candidates *a, const struct sampling_options *o,
                      int32_t n_vocab, double u, double *mu);

#endif
