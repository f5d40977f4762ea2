/* pl_sampling by the names that llama.cpp uses for samplers and fields. */
#ifndef SERVER_SAMPLER_NAMES_H
#define SERVER_SAMPLER_NAMES_H

#include "pl.h"

#include <jansson.h>

enum { SAMPLER_UNKNOWN = -1, SAMPLER_PASSED_OVER = -2 };

/* Limits of pl_sampling. */
enum {
    SAMPLER_BREAKERS = 256,
    SAMPLER_BREAKER_BYTES = 64,
    SAMPLER_DRY_LAST_N = 1 << 20,
};

/* Returns the enum pl_sampling_step for name[0 .. len), or for a letter if name
 * is NULL. SAMPLER_PASSED_OVER: a sampler that does not exist here and has no
 * effect unless other fields enable it. */
int sampler_step(const char *name, size_t len, char letter);
const char *sampler_name(int step);

/* Appends a sampler to s->step. Returns false if it is already there. */
bool sampler_add(pl_sampling *s, int step);

/* Returns its fields except biases; NULL if out of memory. */
json_t *sampler_json(const pl_sampling *s);

/* All names, for messages: "penalties, dry, ..." */
extern const char sampler_all_names[];

#endif
