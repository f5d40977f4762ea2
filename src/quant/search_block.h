/* The searches by the shape of a format's blocks; internal to src/quant. Each
 * quantizes one block: x[block] are its values, w[block] the importances of
 * their columns. `v` are
 * the levels of the format. */
#ifndef QUANT_SEARCH_BLOCK_H
#define QUANT_SEARCH_BLOCK_H

#include "quant/pack.h"
#include "quant/search_fit.h"

enum { QUANT_MAX_BLOCK = 256 }; /* values in the largest block */

typedef void quant_search_fn(pl_format f, const struct levels *v,
                             uint8_t *block, const float *x, const float *w);

/* Formats with a scale for each block or for halves of it. */
quant_search_fn quant_search_plain;
/* Q2_K, Q3_K, Q4_K, Q5_K, Q6_K and IQ4_XS. */
quant_search_fn quant_search_super;
/* IQ1, IQ2 and IQ3. */
quant_search_fn quant_search_grid;

/* Set *v to the levels of a format. */
void quant_search_levels(pl_format f, struct levels *v);
void quant_search_grid_levels(pl_format f, struct levels *v);

/* Converts an index of quant_fit_codes to the code of the format. */
static inline uint8_t quant_search_code(const struct pack_rule *rule,
                                        const struct levels *v, uint8_t index)
{
    return v->n > 0 ? v->code[index]
                    : (uint8_t)(index + (int)v->lo + rule->bias);
}

#endif
