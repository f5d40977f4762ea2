/* pl_sampling by the names that llama.cpp gives its steps and fields. */
#ifndef SERVER_SAMPLER_NAMES_H
#define SERVER_SAMPLER_NAMES_H

#include "pl.h"

#include <jansson.h>

enum { SAMPLER_UNKNOWN = -1, SAMPLER_PASSED_OVER = -2 };

/* What pl_sampling takes at most. */
enum {
    SAMPLER_BREAKERS = 256,
    SAMPLER_BREAKER_BYTES = 64,
    SAMPLER_DRY_LAST_N = 1 << 20,
};

/* enum pl_sampling_step of name[0 .. len), or if name is NULL of a letter;
 * SAMPLER_PASSED_OVER: there is no such step here, and it changes nothing
 * unless it is asked for by other fields. */
int sampler_step(const char *name, size_t len, char letter);
const char *sampler_name(int step);

/* Adds a step to s->step; false: it is there already. */
bool sampler_add(pl_sampling *s, int step);

/* Its fields, but for biases. NULL: no memory. */
json_t *sampler_json(const pl_sampling *s);

/* All names, for messages: "penalties, dry, ..." */
extern const char sampler_all_names[];

#endif
