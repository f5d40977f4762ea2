/* Constrains generated text to a grammar: computes which tokens may come next.
 *
 * A grammar defines a set of texts. A vocabulary defines the text of each
 * token. A struct grammar_masks combines the two and caches token masks. A
 * struct grammar_state is the progress of one sequence. A mask has a bit for
 * each token. It is set if the text so far plus the token is the beginning of a
 * text of the grammar, or if the token ends a complete text.
 *
 * Texts are bytes, so a token may contain a part of a character. A text that
 * needs more than 2,000 nested calls of rules does not match. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "pl.h"

/* ---- grammars: never change, threads may share them ---------------------- */

struct grammar; /* opaque */

/* Finds the tokens of a vocabulary that a grammar names. */
struct grammar_tokens {
    int32_t n; /* number of tokens; ids are below it */
    /* Returns the token whose text this is, -1 if there is none. */
    int32_t (*find)(void *user, const char *text, size_t len);
    void *user;
};

/* Creates a grammar from GBNF; see gbnf.h. `tokens` may be NULL. `name` is the
 * text's name in messages. PL_BAD_ARGUMENT gives the error and a remedy. */
pl_status grammar_from_gbnf(struct grammar **out, const char *text, size_t len,
                            const struct grammar_tokens *tokens,
                            const char *name, pl_err *err);
/* Creates a grammar of the documents that a JSON Schema accepts, as far as
 * schema.h describes. The schema `true` accepts any document. PL_UNSUPPORTED:
 * the schema is too large. */
pl_status grammar_from_schema(struct grammar **out, const char *json,
                              size_t len, const char *name, pl_err *err);
/* Creates a grammar of the texts that a regular expression matches entirely;
 * see regex.h. */
pl_status grammar_from_regex(struct grammar **out, const char *text, size_t len,
                             const char *name, pl_err *err);
/* Returns a line for each requirement of the schemas that the grammar does not
 * enforce; "" if there is none. */
const char *grammar_notes(const struct grammar *g);
void grammar_free(struct grammar *g);

/* ---- vocabularies: never change, threads may share them ------------------ */

enum grammar_token_kind {
    /* matches its bytes; a token without bytes never matches */
    GRAMMAR_TOKEN_TEXT,
    GRAMMAR_TOKEN_END,   /* ends a complete text */
    GRAMMAR_TOKEN_NEVER, /* never matches; for other special tokens */
};

enum { GRAMMAR_TOKEN_BYTES = 4096 };

struct grammar_token {
    const char *s; /* [len], borrowed during create */
    uint32_t len;  /* at most GRAMMAR_TOKEN_BYTES */
    enum grammar_token_kind kind;
};

struct grammar_vocab; /* opaque */

/* Creates a vocabulary of tokens 0 .. n-1. PL_UNSUPPORTED if a token is longer
 * than GRAMMAR_TOKEN_BYTES. */
pl_status grammar_vocab_create(struct grammar_vocab **out,
                               const struct grammar_token *token, int32_t n,
                               pl_err *err);
/* Returns `v` with one more owner. Each owner must free it. */
struct grammar_vocab *grammar_vocab_share(struct grammar_vocab *v);
void grammar_vocab_free(struct grammar_vocab *v);

/* ---- masks and states: for one thread at a time -------------------------- */

struct grammar_masks; /* opaque */
struct grammar_state; /* opaque */

/* Creates masks. `g` and `v` are borrowed. Caches about cache_bytes of masks,
 * 64 MiB if 0, and evicts the least recently used first. */
pl_status grammar_masks_create(struct grammar_masks **out,
                               const struct grammar *g,
                               const struct grammar_vocab *v,
                               size_t cache_bytes, pl_err *err);
/* All states of `m` must be freed before. */
void grammar_masks_free(struct grammar_masks *m);

/* Creates a state at the start of a text. */
pl_status grammar_state_create(struct grammar_state **out,
                               struct grammar_masks *m, pl_err *err);
/* Copies a state. The copy and the original then advance independently. */
pl_status grammar_state_copy(struct grammar_state **out,
                             const struct grammar_state *from, pl_err *err);
void grammar_state_free(struct grammar_state *s);

/* Advance by a token or by bytes. PL_BAD_ARGUMENT if the grammar does not allow
 * it here. PL_UNSUPPORTED if the grammar is so ambiguous that this takes too
 * long. On failure the state is unchanged. */
pl_status grammar_accept(struct grammar_state *s, int32_t id, pl_err *err);
pl_status grammar_accept_text(struct grammar_state *s, const char *text,
                              size_t len, pl_err *err);
/* Returns true if the text so far is a complete text of the grammar. */
bool grammar_is_whole(const struct grammar_state *s);

/* Computes the mask: token i may come next if bit i % 32 of bits[i / 32] is
 * set; unused bits of the last word are 0. No bit is set if no token continues
 * the text as the grammar requires. After an end token only end tokens may
 * come. Fails with PL_NO_MEMORY or PL_UNSUPPORTED as grammar_accept does;
 * `bits` are then undefined. */
pl_status grammar_mask(struct grammar_state *s, uint32_t *bits, pl_err *err);

#endif
