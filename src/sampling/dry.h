/* DRY ("don't repeat yourself"): a penalty for tokens that would continue a
 * repetition of earlier text.
 *
 * If the last n tokens occurred before, the logit of the token that followed
 * them there is reduced by multiplier x base ^ (n - allowed), for the greatest
 * such n. A match does not extend across the last position where a breaker
 * ended. A breaker is a string in the tokens' text; a token that contains the
 * end of one gets no penalty. The Z function of the reversed tokens gives all
 * match lengths, so the time is linear in the number of tokens scanned. */
#ifndef SAMPLING_DRY_H
#define SAMPLING_DRY_H

#include "sampling/sampling.h"

struct dry;

/* Creates the state of DRY. Returns PL_BAD_ARGUMENT if the breakers are
 * invalid; the message names the fault. The caller has checked the numbers in
 * `o`. */
pl_status dry_create(struct dry **out, int32_t n_vocab,
                     const struct sampling_options *o, pl_err *err);
void dry_free(struct dry *d);
void dry_reset(struct dry *d);
void dry_accept(struct dry *d, int32_t id);

/* Returns penalty[n_vocab], to be subtracted from the logits of the next token.
 * It is valid until the next call. */
const float *dry_penalties(struct dry *d);

#endif
