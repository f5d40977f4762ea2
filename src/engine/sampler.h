/* Functions of pl_sampler for receipts. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include "pl.h"

struct sampling_record;

/* The tokens that a sampler has sampled or accepted since its creation. */
struct sampler_history {
    int64_t n, n_sampled;
    uint64_t hash; /* hash of the tokens in order, as sampler_history_add
                      computes it */
};

/* Adds a token to a history. With this function a caller can hash a list of
 * tokens and compare the hash with that of a sampler's history. */
void sampler_history_add(struct sampler_history *h, int32_t id, bool sampled);
const struct sampler_history *sampler_history(const pl_sampler *s);
/* Returns the settings with which the sampler was created, valid until it is
 * freed. */
const pl_sampling *sampler_settings(const pl_sampler *s);
int64_t sampler_n_vocab(const pl_sampler *s);
/* Records all tokens that the sampler samples from now on in `r`, which is
 * borrowed. Stops recording if `r` is NULL. */
void sampler_record(pl_sampler *s, struct sampling_record *r);
/* Advances the sampler past a token as if it had sampled `id`, without
 * logits. */
pl_status sampler_skip(pl_sampler *s, int32_t id, pl_err *err);

#endif
