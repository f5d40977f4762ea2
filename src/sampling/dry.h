/* DRY ("don't repeat yourself"): a penalty for tokens that would continue a
 * repetition of earlier text.
 *
 * If the last n tokens of the sequence also occurred earlier, the token that
 * followed them there gets a penalty: its logit is reduced by multiplier x base
 * ^ (n - allowed), for the greatest such n. A breaker is a string of text, such
 * as a newline. A match does not extend backwards across the last token in
 * which a breaker ends, and a token in which one ends gets no penalty. The Z
 * function of the reversed tokens gives the lengths of all matches, so the time
 * is linear in the number of tokens that are kept. */
#ifndef SAMPLING_DRY_H
#define SAMPLING_DRY_H

#include "sampling/sampling.h"

struct dry;

/* Creates the state of DRY for one sequence. Returns PL_BAD_ARGUMENT if the
 * breakers in `o` are invalid; the message says why. The numbers in `o` must be
 * valid: sampling_create has checked them. */
pl_status dry_create(struct dry **out, int32_t n_vocab,
                     const struct sampling_options *o, pl_err *err);
void dry_free(struct dry *d);
void dry_reset(struct dry *d);
void dry_accept(struct dry *d, int32_t id);

/* Returns penalty[n_vocab]: for each token the number to subtract from its next
 * logit. The result is valid until the next call for `d`. */
const float *dry_penalties(struct dry *d);

#endif
