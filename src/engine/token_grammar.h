/* A grammar over a tokenizer's tokens, and how far one sampler has come in it;
 * the rest of pl_grammar is in pl.h. */
#ifndef ENGINE_TOKEN_GRAMMAR_H
#define ENGINE_TOKEN_GRAMMAR_H

#include "pl.h"

struct token_mask; /* opaque; one thread at a time */

/* At the start of a text; g is borrowed. A mask has a bit for each of n_vocab
 * tokens; those that the tokenizer does not have are never allowed. */
pl_status token_mask_create(struct token_mask **out, pl_grammar *g,
                            int32_t n_vocab, pl_err *err);
void token_mask_free(struct token_mask *m);

/* Does beforehand what token_mask_now would do. */
void token_mask_prepare(struct token_mask *m);
/* Which tokens may come: bits that are valid until the next call. Fails where
 * none may, or they cannot be worked out. */
pl_status token_mask_now(struct token_mask *m, const uint32_t **bits,
                         pl_err *err);
/* Goes on by a token that may come. */
pl_status token_mask_accept(struct token_mask *m, int32_t id, pl_err *err);

#endif
