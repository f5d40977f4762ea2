/* A grammar over a tokenizer's tokens, and the position of one sampler in it;
 * pl.h has the rest of pl_grammar. */
#ifndef ENGINE_TOKEN_GRAMMAR_H
#define ENGINE_TOKEN_GRAMMAR_H

#include "pl.h"

struct token_mask; /* opaque; one thread at a time */

/* Begins at the start of a text; g is borrowed. A mask has a bit for each of
 * n_vocab tokens; those missing from the tokenizer are never allowed. */
pl_status token_mask_create(struct token_mask **out, pl_grammar *g,
                            int32_t n_vocab, pl_err *err);
void token_mask_free(struct token_mask *m);

/* Computes the mask of token_mask_now in advance. */
void token_mask_prepare(struct token_mask *m);
/* Returns the allowed tokens as bits that are valid until the next call. Fails
 * if none is allowed, or the mask cannot be computed. */
pl_status token_mask_now(struct token_mask *m, const uint32_t **bits,
                         pl_err *err);
/* Advances by an allowed token. */
pl_status token_mask_accept(struct token_mask *m, int32_t id, pl_err *err);

#endif
