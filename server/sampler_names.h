/* Converts between pl_sampling and the names of samplers and fields in
 * llama.cpp. */
#ifndef SERVER_SAMPLER_NAMES_H
#define SERVER_SAMPLER_NAMES_H

#include "pl.h"

#include <jansson.h>

enum { SAMPLER_UNKNOWN = -1, SAMPLER_PASSED_OVER = -2 };

/* Limits of the fields of pl_sampling for the DRY sampler: number of sequence
 * breakers, bytes of each breaker, and dry_last_n in tokens. */
enum {
    SAMPLER_BREAKERS = 256,
    SAMPLER_BREAKER_BYTES = 64,
    SAMPLER_DRY_LAST_N = 1 << 20,
};

/* llama.cpp's number for a seed that is drawn, which it reports in /props. */
#define SAMPLER_ANY_SEED UINT32_MAX

/* Draws a seed. It is below 2^31, so that every client's integers hold it and a
 * seed that was reported can be given again. */
uint64_t sampler_draw_seed(void);

/* Returns the sampler (enum pl_sampling_step) with the name name[0 .. len - 1]
 * or, if `name` is NULL, with this letter. SAMPLER_UNKNOWN: there is no such
 * sampler. SAMPLER_PASSED_OVER: llama.cpp has this sampler and this server does
 * not, but the sampler has no effect unless other fields enable it. */
int sampler_step(const char *name, size_t len, char letter);

/* Appends sampler `step` (enum pl_sampling_step) to the list s->step. Returns
 * false if the list already contains it. */
bool sampler_add(pl_sampling *s, int step);

/* Returns the sampling parameters *s, except logit biases, as a JSON object
 * with llama.cpp's field names; NULL if out of memory. */
json_t *sampler_json(const pl_sampling *s);

/* The names of all samplers, for error messages: "penalties, dry, ..." */
extern const char sampler_all_names[];

#endif
