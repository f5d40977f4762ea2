/* Mirostat (arXiv:2007.14966): for each token it keeps as many candidates as
 * bring the surprise -log2 p of the drawn token near tau. */
#ifndef SAMPLING_MIROSTAT_H
#define SAMPLING_MIROSTAT_H

#include "sampling/candidates.h"
#include "sampling/sampling.h"

/* Draws by o->mirostat, _tau and _eta. *mu is the greatest allowed surprise, 2
 * tau at first, and is updated by the drawn token. */
int32_t mirostat_draw(struct candidates *a, const struct sampling_options *o,
                      int32_t n_vocab, double u, double *mu);

#endif
