/* The texts of a tokenizer's tokens for grammars: built when the first grammar
 * needs them, and shared by all. */
#ifndef ENGINE_TOKEN_TEXTS_H
#define ENGINE_TOKEN_TEXTS_H

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

struct token_texts; /* opaque; threads may share it */

/* t is borrowed. */
pl_status token_texts_create(struct token_texts **out,
                             const struct tokenizer *t, pl_err *err);
/* Vocabularies taken from it remain valid. */
void token_texts_free(struct token_texts *texts);

/* Returns the vocabulary; free it with grammar_vocab_free. Control tokens and
 * tokens without bytes never match. marks: control tokens match as texts,
 * too. */
pl_status token_texts_take(struct token_texts *texts, bool marks,
                           struct grammar_vocab **out, pl_err *err);

#endif
