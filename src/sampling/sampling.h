/* Chooses the next token from a row of logits.
 *
 * A mask of tokens and the logit bias are applied first, then the samplers, in
 * the order of enum pl_sampling_step or in a requested one. Then one token is
 * drawn. Exponentials and random numbers are computed by base/exact.h in IEEE
 * double precision, so equal logits and an equal seed give equal tokens on
 * every machine.
 *
 * A sampler belongs to one sequence and to one thread at a time. */
#ifndef SAMPLING_SAMPLING_H
#define SAMPLING_SAMPLING_H

#include "pl.h"

struct sampling_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY forbids the token */
};

/* Writes the text of token `id` to to[0 .. cap), as far as it fits. Returns the
 * number of bytes written. `user` is sampling_options.spell_user. */
typedef size_t sampling_spell_fn(const void *user, int32_t id, char *to,
                                 size_t cap);

/* The options of a sampler. Start from sampling_defaults(). pl_sampling in pl.h
 * explains them. */
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

    int32_t penalty_last_n; /* number of last tokens that count; 0 for none, -1
                               for all */
    float penalty_repeat;
    float penalty_frequency;
    float penalty_presence;

    float dry_multiplier, dry_base;
    int32_t dry_allowed_length, dry_last_n;
    /* [n_dry_breaker], borrowed during create */
    const char *const *dry_breaker;
    int32_t n_dry_breaker;
    /* spells tokens to find breakers; NULL if there are no breakers */
    sampling_spell_fn *spell;
    const void *spell_user; /* borrowed until the sampler is freed */

    int32_t mirostat;
    float mirostat_tau, mirostat_eta;

    uint8_t step[PL_N_STEP]; /* the samplers in order (enum pl_sampling_step) */
    int32_t n_step;          /* length of step[]; 0 for all, in the order of the
                                enum */

    const struct sampling_bias *bias; /* [n_bias], borrowed during create */
    int64_t n_bias;
};

/* Returns the defaults: top-k 40, top-p 0.95, min-p 0.05, temperature 0.8, all
 * other samplers off, seed 0. */
struct sampling_options sampling_defaults(void);

struct sampler; /* opaque */

/* Creates a sampler and allocates all its memory. PL_BAD_ARGUMENT names the
 * option, its value and its range. */
pl_status sampling_create(struct sampler **out, int32_t n_vocab,
                          const struct sampling_options *o, pl_err *err);
void sampling_free(struct sampler *s);

/* Resets the sampler to its state after sampling_create: clears the history and
 * restarts the random generator from the seed. */
void sampling_reset(struct sampler *s);

/* Adds a token of the sequence to the history that penalties and DRY use.
 * Called for each generated token, and for each prompt token that should count.
 * Ids out of range are ignored. */
void sampling_accept(struct sampler *s, int32_t id);

/* Returns the next token, chosen by logits[0 .. n_vocab). Token i is left out
 * before any sampler unless bit i % 32 of allowed[i / 32] is set; if `allowed`
 * is NULL, all tokens are allowed. Returns -1 if a logit is NaN or +infinity,
 * which means a broken model, or if no token is left because all logits are
 * -infinity, perhaps due to a bias. Does not accept the token. Uses one random
 * number, even if it is greedy or returns -1, and another one for XTC. */
int32_t sampling_pick(struct sampler *s, const float *logits,
                      const uint32_t *allowed);
/* Uses the random numbers of a call of sampling_pick without choosing a token.
 * Not for Mirostat, whose state depends on the logits. */
void sampling_skip(struct sampler *s);

#endif
