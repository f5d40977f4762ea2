/* The texts of a tokenizer's tokens, as the vocabulary of grammars. Built when
 * the first grammar needs them, then shared by all grammars of the
 * tokenizer. */
#ifndef ENGINE_TOKEN_TEXTS_H
#define ENGINE_TOKEN_TEXTS_H

#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

struct token_texts; /* opaque: the texts of all tokens of a tokenizer; threads
                       may share it */

/* Creates a struct token_texts, whose vocabularies are built when they are
 * first needed. The tokenizer `t` is borrowed. */
pl_status token_texts_create(struct token_texts **out,
                             const struct tokenizer *t, pl_err *err);
/* Frees `texts`. Vocabularies returned by token_texts_take remain valid. */
void token_texts_free(struct token_texts *texts);

/* Sets *out to a reference to the vocabulary, building it if needed. The caller
 * frees it with grammar_vocab_free. Tokens without bytes never match. Control
 * tokens match their text if `marks`, else never. */
pl_status token_texts_take(struct token_texts *texts, bool marks,
                           struct grammar_vocab **out, pl_err *err);

#endif
