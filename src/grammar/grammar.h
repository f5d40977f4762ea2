/* Constrains generated text to a grammar: computes which tokens may come next.
 *
 * A grammar defines a set of texts. A vocabulary defines the text of each
 * token. A struct grammar_masks combines the two and caches token masks. A
 * struct grammar_state is the position of one sequence in the grammar. A mask
 * has a bit for each token. The bit is set if the text so far plus the token's
 * text can still become a text of the grammar. The bits of end tokens are set
 * if the text so far is a complete text.
 *
 * Texts are bytes, so a token may contain a part of a character. A text that
 * needs more than 2,000 nested calls of rules does not match. */
#ifndef GRAMMAR_GRAMMAR_H
#define GRAMMAR_GRAMMAR_H

#include "pl.h"

/* ---- grammars: never change, threads may share them ---------------------- */

struct grammar; /* opaque */

/* The tokens of a vocabulary, for grammars that name tokens by id or text. */
struct grammar_tokens {
    int32_t n; /* number of tokens; their ids are 0 .. n - 1 */
    /* Returns the id of the token with the text text[0 .. len), or -1. */
    int32_t (*find)(void *user, const char *text, size_t len);
    void *user;
};

/* Creates a grammar from GBNF text; see gbnf.h. `tokens` are those that the
 * grammar may name; NULL for none. `name` stands for the grammar in messages.
 * Returns PL_BAD_ARGUMENT for an invalid grammar; the message gives the error
 * and a remedy. */
pl_status grammar_from_gbnf(struct grammar **out, const char *text, size_t len,
                            const struct grammar_tokens *tokens,
                            const char *name, pl_err *err);
/* Creates a grammar of the documents that a JSON Schema accepts, with the
 * exceptions that schema.h lists. The schema `true` accepts any document.
 * Returns PL_UNSUPPORTED if the schema is too large. */
pl_status grammar_from_schema(struct grammar **out, const char *json,
                              size_t len, const char *name, pl_err *err);
/* Creates a grammar of the texts that a regular expression matches entirely;
 * see regex.h. */
pl_status grammar_from_regex(struct grammar **out, const char *text, size_t len,
                             const char *name, pl_err *err);
/* Returns the requirements of a JSON Schema that the grammar does not enforce,
 * one a line; "" if there are none. */
const char *grammar_notes(const struct grammar *g);
void grammar_free(struct grammar *g);

/* ---- vocabularies: never change, threads may share them ------------------ */

enum grammar_token_kind {
    /* A token that is matched by its text. A token without text never
     * matches. */
    GRAMMAR_TOKEN_TEXT,
    /* A token that ends the generation. It is allowed where the text is
     * complete. */
    GRAMMAR_TOKEN_END,
    GRAMMAR_TOKEN_NEVER, /* any other special token; it is never allowed */
};

enum { GRAMMAR_TOKEN_BYTES = 4096 };

struct grammar_token {
    /* The token's text, [len]. Borrowed until grammar_vocab_create returns. */
    const char *s;
    uint32_t len; /* length of `s` in bytes, at most GRAMMAR_TOKEN_BYTES */
    enum grammar_token_kind kind;
};

struct grammar_vocab; /* opaque */

/* Creates a vocabulary of the tokens token[0 .. n), whose ids are their
 * indices. Returns PL_UNSUPPORTED if a token is longer than
 * GRAMMAR_TOKEN_BYTES. */
pl_status grammar_vocab_create(struct grammar_vocab **out,
                               const struct grammar_token *token, int32_t n,
                               pl_err *err);
/* Adds an owner to the vocabulary and returns `v`. Each owner calls
 * grammar_vocab_free once. */
struct grammar_vocab *grammar_vocab_share(struct grammar_vocab *v);
void grammar_vocab_free(struct grammar_vocab *v);

/* ---- masks and states: for one thread at a time -------------------------- */

struct grammar_masks; /* opaque */
struct grammar_state; /* opaque */

/* Creates the token masks of a grammar for a vocabulary. `g` and `v` are
 * borrowed. Caches up to about cache_bytes of masks, 64 MiB if it is 0, and
 * evicts the mask that was not used for the longest time. */
pl_status grammar_masks_create(struct grammar_masks **out,
                               const struct grammar *g,
                               const struct grammar_vocab *v,
                               size_t cache_bytes, pl_err *err);
/* Frees the masks. All states created from them must be freed before. */
void grammar_masks_free(struct grammar_masks *m);

/* Creates the state of a sequence that has generated no text yet. */
pl_status grammar_state_create(struct grammar_state **out,
                               struct grammar_masks *m, pl_err *err);
/* Copies a state. The copy and the original then advance independently. */
pl_status grammar_state_copy(struct grammar_state **out,
                             const struct grammar_state *from, pl_err *err);
void grammar_state_free(struct grammar_state *s);

/* Advance the state of a sequence by a token or by a text. Return
 * PL_BAD_ARGUMENT if the grammar does not allow the token or text here. Return
 * PL_UNSUPPORTED if the grammar is so ambiguous that advancing takes too long.
 * On failure the state is unchanged. */
pl_status grammar_accept(struct grammar_state *s, int32_t id, pl_err *err);
pl_status grammar_accept_text(struct grammar_state *s, const char *text,
                              size_t len, pl_err *err);
/* Returns true if the text so far is a complete text of the grammar, so that
 * generation may end. */
bool grammar_is_whole(const struct grammar_state *s);

/* Computes the mask of the tokens that may come next: token i may if bit i % 32
 * of bits[i / 32] is set. Unused bits of the last word are 0. No bit is set if
 * no token continues the text as the grammar requires. After an end token only
 * end tokens are allowed. Fails with PL_NO_MEMORY or PL_UNSUPPORTED as
 * grammar_accept does; `bits` are then undefined. */
pl_status grammar_mask(struct grammar_state *s, uint32_t *bits, pl_err *err);

#endif
