/* Constrains generated text to a grammar: computes which tokens may come next.
 *
 * A grammar defines a set of texts, a vocabulary the text of each token. Masks
 * combine the two and cache their results. A state is the progress of one
 * sequence. A mask has a bit for each token: set if the text so far plus the
 * token begins some text of the grammar, or if the token ends a complete text.
 *
 * Texts are bytes, so a token may hold a part of a character. A text that needs
 * more than 2,000 nested calls of rules does not match. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "pl.h"

/* ---- grammars: never change, threads may share them ---------------------- */

struct grammar; /* opaque */

/* Reads GBNF; see gbnf.h. `name` is the text's name in messages.
 * PL_BAD_ARGUMENT gives the error and a remedy. */
pl_status grammar_from_gbnf(struct grammar **out, const char *text, size_t len,
                            const char *name, pl_err *err);
/* Accepts the documents of a JSON Schema, as far as schema.h describes; for the
 * schema true, any document. PL_UNSUPPORTED names an unsupported keyword and
 * its path. */
pl_status grammar_from_schema(struct grammar **out, const char *json,
                              size_t len, const char *name, pl_err *err);
void grammar_free(struct grammar *g);

/* ---- vocabularies: never change, threads may share them ------------------ */

enum grammar_token_kind {
    GRAMMAR_TOKEN_TEXT,  /* its bytes; never matches if it has none */
    GRAMMAR_TOKEN_END,   /* ends a complete text */
    GRAMMAR_TOKEN_NEVER, /* other special tokens */
};

enum { GRAMMAR_TOKEN_BYTES = 4096 };

struct grammar_token {
    const char *s; /* [len], borrowed during create */
    uint32_t len;  /* at most GRAMMAR_TOKEN_BYTES */
    enum grammar_token_kind kind;
};

struct grammar_vocab; /* opaque */

/* Holds tokens 0 .. n-1. PL_UNSUPPORTED: one is too long. */
pl_status grammar_vocab_create(struct grammar_vocab **out,
                               const struct grammar_token *token, int32_t n,
                               pl_err *err);
/* Returns v with one more owner, who must free it too. */
struct grammar_vocab *grammar_vocab_share(struct grammar_vocab *v);
void grammar_vocab_free(struct grammar_vocab *v);

/* ---- masks and states: for one thread at a time -------------------------- */

struct grammar_masks; /* opaque */
struct grammar_state; /* opaque */

/* Borrows both. Caches up to about cache_bytes of masks, least recently used
 * evicted first; 0: 64 MiB. */
pl_status grammar_masks_create(struct grammar_masks **out,
                               const struct grammar *g,
                               const struct grammar_vocab *v,
                               size_t cache_bytes, pl_err *err);
/* All its states must be freed before. */
void grammar_masks_free(struct grammar_masks *m);

/* Creates a state at the start of a text. */
pl_status grammar_state_create(struct grammar_state **out,
                               struct grammar_masks *m, pl_err *err);
/* Copies a state; the copy advances on its own. */
pl_status grammar_state_copy(struct grammar_state **out,
                             const struct grammar_state *from, pl_err *err);
void grammar_state_free(struct grammar_state *s);

/* Advances by a token or by bytes. PL_BAD_ARGUMENT: the grammar does not allow
 * that here. PL_UNSUPPORTED: the grammar is so ambiguous that this takes too
 * long. On failure the state is unchanged. */
pl_status grammar_accept(struct grammar_state *s, int32_t id, pl_err *err);
pl_status grammar_accept_text(struct grammar_state *s, const char *text,
                              size_t len, pl_err *err);
/* Returns true if the text so far is a complete text of the grammar. */
bool grammar_is_whole(const struct grammar_state *s);

/* Token i may come next if bit i % 32 of bits[i / 32] is set; unused bits of
 * the last word are 0. No bit is set if the vocabulary cannot spell the
 * required continuation. After an end token only end tokens may come. On
 * PL_NO_MEMORY and PL_UNSUPPORTED, as above, bits are undefined. */
pl_status grammar_mask(struct grammar_state *s, uint32_t *bits, pl_err *err);

#endif
