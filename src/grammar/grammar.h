/* Which tokens may come next, so that a text keeps to a grammar.
 *
 * A grammar says which texts there are; a vocabulary, which text each token
 * stands for; masks join the two and remember what they found; a state is how
 * far one sequence has come. A mask has a bit for each token: the text so far
 * and the token are the beginning of some text of the grammar, or the token
 * ends a text that is whole.
 *
 * Texts are bytes, so a token may hold a part of a character. What a grammar
 * calls itself deeper than 2,000 levels is no match. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "pl.h"

/* ---- grammars: never change, threads may share them ---------------------- */

struct grammar; /* opaque */

/* From GBNF; gbnf.h says what that is. `name` is what messages call the text.
 * PL_BAD_ARGUMENT says what is wrong with it, and what to do. */
pl_status grammar_from_gbnf(struct grammar **out, const char *text, size_t len,
                            const char *name, pl_err *err);
/* The documents of a JSON Schema, as far as schema.h says; of the schema true,
 * any. PL_UNSUPPORTED names a keyword that is not supported, and its path. */
pl_status grammar_from_schema(struct grammar **out, const char *json,
                              size_t len, const char *name, pl_err *err);
void grammar_free(struct grammar *g);

/* ---- vocabularies: never change, threads may share them ------------------ */

enum grammar_token_kind {
    GRAMMAR_TOKEN_TEXT,  /* is its bytes; if it has none, it never matches */
    GRAMMAR_TOKEN_END,   /* ends the text, where that is whole */
    GRAMMAR_TOKEN_NEVER, /* other special tokens */
};

enum { GRAMMAR_TOKEN_BYTES = 4096 };

struct grammar_token {
    const char *s; /* [len], borrowed during create */
    uint32_t len;  /* at most GRAMMAR_TOKEN_BYTES */
    enum grammar_token_kind kind;
};

struct grammar_vocab; /* opaque */

/* Of tokens 0 .. n-1. PL_UNSUPPORTED: one is too long. */
pl_status grammar_vocab_create(struct grammar_vocab **out,
                               const struct grammar_token *token, int32_t n,
                               pl_err *err);
/* One more owner of the same, who frees it, too. */
struct grammar_vocab *grammar_vocab_share(struct grammar_vocab *v);
void grammar_vocab_free(struct grammar_vocab *v);

/* ---- masks and states: for one thread at a time -------------------------- */

struct grammar_masks; /* opaque */
struct grammar_state; /* opaque */

/* Both are borrowed. Up to about cache_bytes of masks are kept, the last ones
 * used; 0: 64 MiB. */
pl_status grammar_masks_create(struct grammar_masks **out,
                               const struct grammar *g,
                               const struct grammar_vocab *v,
                               size_t cache_bytes, pl_err *err);
/* After all its states. */
void grammar_masks_free(struct grammar_masks *m);

/* At the start of a text. */
pl_status grammar_state_create(struct grammar_state **out,
                               struct grammar_masks *m, pl_err *err);
/* As far as `from`, and on its own from there. */
pl_status grammar_state_copy(struct grammar_state **out,
                             const struct grammar_state *from, pl_err *err);
void grammar_state_free(struct grammar_state *s);

/* Goes on by a token, or by bytes. PL_BAD_ARGUMENT: the grammar does not allow
 * that here; PL_UNSUPPORTED: it leaves so much open that this takes too long.
 * The state is as it was. */
pl_status grammar_accept(struct grammar_state *s, int32_t id, pl_err *err);
pl_status grammar_accept_text(struct grammar_state *s, const char *text,
                              size_t len, pl_err *err);
/* Is the text so far one of the grammar? */
bool grammar_is_whole(const struct grammar_state *s);

/* Token i may come next if bit i % 32 of bits[i / 32] is set; others up to the
 * end of the last word are 0. None is set where the vocabulary cannot spell
 * what must follow. Behind an end only ends may come. PL_NO_MEMORY,
 * PL_UNSUPPORTED as above: bits mean nothing. */
pl_status grammar_mask(struct grammar_state *s, uint32_t *bits, pl_err *err);

#endif
