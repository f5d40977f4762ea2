/* Converts between pl_sampling and the names that llama.cpp uses for its
 * samplers and fields. */
#ifndef SERVER_SAMPLER_NAMES_H
#define SERVER_SAMPLER_NAMES_H

#include "pl.h"

#include <jansson.h>

enum { SAMPLER_UNKNOWN = -1, SAMPLER_PASSED_OVER = -2 };

/* Limits of the DRY fields of pl_sampling: number of sequence breakers, bytes
 * of each, and dry_last_n. */
enum {
    SAMPLER_BREAKERS = 256,
    SAMPLER_BREAKER_BYTES = 64,
    SAMPLER_DRY_LAST_N = 1 << 20,
};

/* Returns the sampler (enum pl_sampling_step) with the name name[0 .. len - 1]
 * or, if `name` is NULL, with this letter. SAMPLER_UNKNOWN: there is none.
 * SAMPLER_PASSED_OVER: a sampler of llama.cpp that does not exist here and has
 * no effect unless other fields enable it. */
int sampler_step(const char *name, size_t len, char letter);

/* Appends a sampler to s->step. Returns false if s->step already contains
 * it. */
bool sampler_add(pl_sampling *s, int step);

/* Returns the fields of *s except its biases as a JSON object; NULL if out of
 * memory. */
json_t *sampler_json(const pl_sampling *s);

/* All names of samplers, for messages: "penalties, dry, ..." */
extern const char sampler_all_names[];

#endif
