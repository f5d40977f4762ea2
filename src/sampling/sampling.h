/* Chooses the next token from a row of logits.
 *
 * A mask of tokens and logit bias come first, then the samplers, in the order
 * of enum pl_sampling_step or in a requested one, then one draw. Exponentials
 * and random numbers are computed by our own code in IEEE double precision:
 * equal logits and an equal seed give equal tokens on every machine.
 *
 * A sampler belongs to one sequence and to one thread at a time. */
#ifndef SAMPLING_SAMPLING_H
#define SAMPLING_SAMPLING_H

#include "pl.h"

struct sampling_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY forbids the token */
};

/* Writes the text of a token to `to` [cap], cut there; returns the bytes
 * written. */
typedef size_t sampling_spell_fn(const void *user, int32_t id, char *to,
                                 size_t cap);

/* Options. Start from sampling_defaults(). pl_sampling in pl.h explains
 * them. */
struct sampling_options {
    uint64_t seed;
    float temperature;
    int32_t top_k;
    float typical;
    float top_p;
    float min_p;
    float top_n_sigma;
    float xtc_probability, xtc_threshold;
    float dynatemp_range, dynatemp_exponent;

    int32_t penalty_last_n; /* tokens accepted; 0: none, -1: all */
    float penalty_repeat;
    float penalty_frequency;
    float penalty_presence;

    float dry_multiplier, dry_base;
    int32_t dry_allowed_length, dry_last_n;
    /* [n_dry_breaker], borrowed during create */
    const char *const *dry_breaker;
    int32_t n_dry_breaker;
    sampling_spell_fn *spell; /* for breakers; else NULL */
    const void *spell_user;   /* borrowed */

    int32_t mirostat;
    float mirostat_tau, mirostat_eta;

    uint8_t step[PL_N_STEP]; /* enum pl_sampling_step */
    int32_t n_step;          /* 0: all, in the order of the enum */

    const struct sampling_bias *bias; /* [n_bias], borrowed during create */
    int64_t n_bias;
};

/* Returns top-k 40, top-p 0.95, min-p 0.05, temperature 0.8, all else off; seed
 * 0. */
struct sampling_options sampling_defaults(void);

struct sampler; /* opaque */

/* Creates a sampler and allocates all its memory. PL_BAD_ARGUMENT names the
 * option, its value and its range. */
pl_status sampling_create(struct sampler **out, int32_t n_vocab,
                          const struct sampling_options *o, pl_err *err);
void sampling_free(struct sampler *s);

/* Resets to the state after sampling_create: forgets the tokens, restarts the
 * seed. */
void sampling_reset(struct sampler *s);

/* Adds a token of the sequence to the history of penalties and DRY: each
 * generated one and, if it should count, each of the prompt. Ids out of range
 * are ignored. */
void sampling_accept(struct sampler *s, int32_t id);

/* Returns the next token by logits[0 .. n_vocab), or -1 if no choice is
 * possible: a logit is NaN or +infinity, which means a broken model, or all are
 * -infinity, perhaps by a bias. Token i is left out before any filter unless
 * bit i % 32 of allowed[i / 32] is set; NULL: all are allowed. Does not accept
 * the token. Advances the seed by one draw, also if greedy or if it returns -1,
 * and by another for XTC. */
int32_t sampling_pick(struct sampler *s, const float *logits,
                      const uint32_t *allowed);

#endif
