/* Functions of pl_sampler for receipts. */
#ifndef ENGINE_SAMPLER_H
#define ENGINE_SAMPLER_H

#include "pl.h"

struct sampling_record;

/* The tokens that a sampler has sampled or accepted since its creation. */
struct sampler_history {
    int64_t n, n_sampled;
    uint64_t hash; /* of the tokens in order; see sampler_history_add */
};

/* Adds a token. So a list of tokens can be compared with a sampler's. */
void sampler_history_add(struct sampler_history *h, int32_t id, bool sampled);
const struct sampler_history *sampler_history(const pl_sampler *s);
/* Returns the settings, valid until the sampler is freed. */
const pl_sampling *sampler_settings(const pl_sampler *s);
int64_t sampler_n_vocab(const pl_sampler *s);
/* Records what is sampled from now on in `r`, which is borrowed; NULL ends
 * that. */
void sampler_record(pl_sampler *s, struct sampling_record *r);
/* Advances the sampler past a token as if it had sampled `id`, without
 * logits. */
pl_status sampler_skip(pl_sampler *s, int32_t id, pl_err *err);

#endif
