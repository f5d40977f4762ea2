/* Chooses the next token of a sequence from its logits.
 *
 * First the mask of allowed tokens and the bias are applied, then the samplers
 * (filters, temperature, penalties), in the order of enum pl_sampling_step or
 * in one that the options give. Then one of the remaining tokens is drawn.
 * Exponentials and random numbers are computed by base/exact.h in IEEE double
 * precision. So equal logits and an equal seed give equal tokens on every
 * machine.
 *
 * A sampler belongs to one sequence, and only one thread may use it at a
 * time. */
#ifndef SAMPLING_SAMPLING_H
#define SAMPLING_SAMPLING_H

#include "pl.h"

struct sampling_bias {
    int32_t id;
    /* Added to the logit of token `id`; -INFINITY forbids the token. */
    float bias;
};

/* Writes the text of token `id` to to[0 .. cap), as much as fits, and returns
 * the number of bytes written. `user` is sampling_options.spell_user. */
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

    /* Number of last tokens for which penalties apply; 0 for none, -1 for
     * all. */
    int32_t penalty_last_n;
    float penalty_repeat;
    float penalty_frequency;
    float penalty_presence;

    float dry_multiplier, dry_base;
    int32_t dry_allowed_length, dry_last_n;
    /* [n_dry_breaker] strings, borrowed until sampling_create returns */
    const char *const *dry_breaker;
    int32_t n_dry_breaker;
    /* Writes the text of a token, so that DRY finds breakers in it. NULL if DRY
     * has no breakers. */
    sampling_spell_fn *spell;
    const void *spell_user; /* first argument of `spell`, borrowed until the
                               sampler is freed */

    int32_t mirostat;
    float mirostat_tau, mirostat_eta;

    float adaptive_target, adaptive_decay;

    /* The samplers in the order of their application (enum
     * pl_sampling_step). */
    uint8_t step[PL_N_STEP];
    /* Length of step[]. 0: all samplers but adaptive-p are applied, in the
     * order of the enum. */
    int32_t n_step;

    /* [n_bias]: biases of single tokens, borrowed until sampling_create
     * returns. */
    const struct sampling_bias *bias;
    int64_t n_bias;
    /* [n_only]: if n_only > 0, the only tokens that may be chosen. [n_banned]:
     * sequences of tokens, each ended by -1, that are never completed. Both
     * borrowed until sampling_create returns. */
    const int32_t *only, *banned;
    int64_t n_only, n_banned;
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

/* Adds a token of the sequence to the history that penalties, DRY and
 * adaptive-p use. The caller calls it for each generated token, and for each
 * prompt token that penalties should consider. Ids out of range are ignored. */
void sampling_accept(struct sampler *s, int32_t id);

/* Chooses the next token from logits[0 .. n_vocab) and returns its id. Token i
 * is excluded before all samplers unless bit i % 32 of allowed[i / 32] is set;
 * `allowed` is NULL if all tokens are allowed. Returns -1 if a logit is NaN or
 * +infinity, which means a broken model. Also returns -1 if no token is left,
 * because all logits are -infinity, perhaps due to a bias. Does not call
 * sampling_accept. Each call uses one random number, even if it returns -1 or
 * no choice is left, and another one if XTC is on. */
int32_t sampling_pick(struct sampler *s, const float *logits,
                      const uint32_t *allowed);
/* Advances the random number generator like a call of sampling_pick, without
 * choosing a token. Not for Mirostat and adaptive-p, whose state depends on the
 * logits. */
void sampling_skip(struct sampler *s);

#endif
