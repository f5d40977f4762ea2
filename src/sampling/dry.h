/* DRY ("don't repeat yourself"): a penalty for tokens that would go on with
 * what the text has already said.
 *
 * If the last n tokens stand somewhere before, what followed them there loses
 * multiplier x base ^ (n - allowed), by the longest such n. A match goes back
 * no further than the last place where a breaker (a string, in the tokens'
 * text) ended, and what has one itself loses nothing. How long each match is
 * comes from the Z function of the tokens in reverse, so time goes with the
 * number of tokens looked back at. */
#ifndef SAMPLING_DRY_H
#define SAMPLING_DRY_H

#include "sampling/sampling.h"

struct dry;

/* PL_BAD_ARGUMENT names what is wrong with the breakers; numbers were looked at
 * before. */
pl_status dry_create(struct dry **out, int32_t n_vocab,
                     const struct sampling_options *o, pl_err *err);
void dry_free(struct dry *d);
void dry_reset(struct dry *d);
void dry_accept(struct dry *d, int32_t id);

/* What to subtract from each logit now: [n_vocab], until the next call. */
const float *dry_penalties(struct dry *d);

#endif
