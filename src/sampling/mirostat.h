/* Mirostat (arXiv:2007.14966): of each token as many candidates are kept as
 * make the surprise -log2 p of what is drawn come near to tau. */
#ifndef SAMPLING_MIROSTAT_H
#define SAMPLING_MIROSTAT_H

#include "sampling/candidates.h"
#include "sampling/sampling.h"

/* Draws by o->mirostat, _tau and _eta. *mu: the greatest surprise that is
 * allowed, 2 tau at first; goes on with what was drawn. */
int32_t mirostat_draw(struct candidates *a, const struct sampling_options *o,
                      int32_t n_vocab, double u, double *mu);

#endif
