/* DRY ("don't repeat yourself"): a penalty for tokens that would continue a
 * repetition of earlier text.
 *
 * If the last n tokens occurred before, the token that followed them there
 * loses multiplier x base ^ (n - allowed), by the longest such n. A match does
 * not extend across the last position where a breaker (a string in the tokens'
 * text) ended, and a token that contains one loses nothing. The Z function of
 * the reversed tokens gives all match lengths, so the time is linear in the
 * number of tokens scanned. */
#ifndef SAMPLING_DRY_H
#define SAMPLING_DRY_H

#include "sampling/sampling.h"

struct dry;

/* Creates the state. PL_BAD_ARGUMENT names what is wrong with the breakers; the
 * caller has checked the numbers. */
pl_status dry_create(struct dry **out, int32_t n_vocab,
                     const struct sampling_options *o, pl_err *err);
void dry_free(struct dry *d);
void dry_reset(struct dry *d);
void dry_accept(struct dry *d, int32_t id);

/* Returns the penalties to subtract from the logits now: [n_vocab], valid until
 * the next call. */
const float *dry_penalties(struct dry *d);

#endif
