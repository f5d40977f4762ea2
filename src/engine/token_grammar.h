/* Token masks of a grammar: the tokens that may follow the text that a sampler
 * has generated so far. pl.h declares the public functions of pl_grammar. */
#ifndef ENGINE_TOKEN_GRAMMAR_H
#define ENGINE_TOKEN_GRAMMAR_H

#include "pl.h"

/* Returns the text from which a grammar was created, of *len bytes, and sets
 * *form to its notation. Valid until the grammar is freed. */
const char *grammar_text(const pl_grammar *g, pl_grammar_form *form,
                         size_t *len);

struct token_mask; /* opaque; state of one sampler; used by one thread at a
                      time */

/* Creates the state of a sampler at the start of a text. `g` is borrowed. Masks
 * have one bit per token id from 0 to n_vocab - 1. Ids that the tokenizer does
 * not know are never allowed. */
pl_status token_mask_create(struct token_mask **out, pl_grammar *g,
                            int32_t n_vocab, pl_err *err);
void token_mask_free(struct token_mask *m);

/* Computes in advance the mask that the next token_mask_now returns. */
void token_mask_prepare(struct token_mask *m);
/* Sets *bits to the mask of tokens that may come next. The mask is valid until
 * the next call for `m`. Fails if no token is allowed, or the mask cannot be
 * computed. */
pl_status token_mask_now(struct token_mask *m, const uint32_t **bits,
                         pl_err *err);
/* Advances the state by token `id`, which the mask must allow. */
pl_status token_mask_accept(struct token_mask *m, int32_t id, pl_err *err);

#endif
