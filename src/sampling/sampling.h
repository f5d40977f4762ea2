/* Choosing the next token from a row of logits.
 *
 * Filters work in a fixed order: a mask of tokens, logit bias, penalties,
 * top-k, typical, top-p, min-p, temperature, then one draw. Candidates are
 * ordered by logit, equal ones by id, so that nothing depends on how a sort
 * treats ties.
 * Exponentials and random numbers are computed by our own code in IEEE double
 * precision: equal logits and an equal seed give equal tokens on every machine.
 *
 * A sampler belongs to one sequence and one thread at a time. */
#ifndef SAMPLING_SAMPLING_H
#define SAMPLING_SAMPLING_H

#include "pl.h"

struct sampling_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY forbids the token */
};

/* Plain options. Start from sampling_defaults(). */
struct sampling_options {
    uint64_t seed;
    float temperature; /* 0: the most likely token, lowest id on ties */
    int32_t top_k;     /* keep the k most likely; 0: all */
    float typical;     /* locally typical mass kept; 1: off */
    float top_p;       /* mass of the most likely kept; 1: off */
    float min_p;       /* least share of the best one's probability; 0: off */

    /* Over the last `penalty_last_n` tokens accepted; 0: none, -1: all. */
    int32_t penalty_last_n;
    float penalty_repeat;    /* divides positive, multiplies negative logits;
                                1: off */
    float penalty_frequency; /* subtracted once an occurrence; 0: off */
    float penalty_presence;  /* subtracted once a token; 0: off */

    const struct sampling_bias *bias; /* [n_bias], borrowed during create */
    int64_t n_bias;
};

/* top-k 40, typical off, top-p 0.95, min-p 0.05, temperature 0.8, penalties
 * off (with a window of 64 once they are on), seed 0. */
struct sampling_options sampling_defaults(void);

struct sampler; /* opaque */

/* PL_BAD_ARGUMENT names the option, its value and its range. All memory is
 * allocated here. */
pl_status sampling_create(struct sampler **out, int32_t n_vocab,
                          const struct sampling_options *o, pl_err *err);
void sampling_free(struct sampler *s);

/* As after sampling_create: forgets the tokens, starts the seed anew. */
void sampling_reset(struct sampler *s);

/* Tells the penalties of a token of the sequence: each one generated and, if
 * it should count, of the prompt. Ids out of range are ignored. */
void sampling_accept(struct sampler *s, int32_t id);

/* The next token by logits[0 .. n_vocab), or -1 if there is nothing to choose
 * by: a logit is NaN or +infinity, which means a broken model, or all are
 * -infinity, perhaps by a bias. Token i is left out before any filter unless
 * bit i % 32 of allowed[i / 32] is set; NULL: all are allowed. Does not accept
 * it. Advances the seed by one draw, also when greedy or if there is nothing.
 */
int32_t sampling_pick(struct sampler *s, const float *logits,
                      const uint32_t *allowed);

#endif
