/* The texts of a tokenizer's tokens as grammars want them: made once, when the
 * first grammar asks for them, and shared by all. */
#ifndef ENGINE_TOKEN_TEXTS_H
#define ENGINE_TOKEN_TEXTS_H

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

struct token_texts; /* opaque; threads may share it */

/* t is borrowed. */
pl_status token_texts_create(struct token_texts **out,
                             const struct tokenizer *t, pl_err *err);
/* What was taken of it stays. */
void token_texts_free(struct token_texts *texts);

/* The vocabulary, to be freed with grammar_vocab_free. What is no text of its
 * own never matches: control tokens, and those that have no bytes. marks:
 * control tokens match as texts, too. */
pl_status token_texts_take(struct token_texts *texts, bool marks,
                           struct grammar_vocab **out, pl_err *err);

#endif
