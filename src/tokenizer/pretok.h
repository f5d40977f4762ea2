/* Pre-tokenizers: split a text into pieces that are merged separately.
 *
 * A rule is a list of regular expressions. Its name is the value of
 * tokenizer.ggml.pre in GGUF files. The first expression splits the text into
 * pieces: its matches and the text between them. Each further expression splits
 * every piece in the same way. */
#ifndef TOKENIZER_PRETOK_H
#define TOKENIZER_PRETOK_H

#include "pl.h"

struct pretok; /* opaque; may be used by several threads at once */

enum { PRETOK_MAX_EXPR = 6 };

/* The characters with Unicode's property White_Space, for use inside
 * brackets. */
#define PRETOK_SPACE "\\p{Z}\\t-\\r\\x{85}"

/* Creates the pre-tokenizer of the rule `name`, which is not terminated.
 * `where` names the file in errors. PL_UNSUPPORTED if no rule has this name;
 * the message lists the known names. */
pl_status pretok_create(struct pretok **out, const char *name, size_t len,
                        const char *where, pl_err *err);
/* Creates a pre-tokenizer from n_expr expressions, at most PRETOK_MAX_EXPR,
 * which are borrowed until the call returns. */
pl_status pretok_create_own(struct pretok **out, const char *const *expr,
                            int n_expr, pl_err *err);
void pretok_free(struct pretok *p);

/* Returns true if a piece that is a token becomes this token without
 * merging. */
bool pretok_takes_whole(const struct pretok *p);
/* Returns the value that tokenizer.ggml.add_bos_token has by default, in files
 * that lack the key. */
bool pretok_adds_bos(const struct pretok *p);
/* Returns true if the tokenizer has a BOS token only if the file names one. */
bool pretok_lacks_bos(const struct pretok *p);

/* Called for each piece in order; the pieces concatenated are the text. `by` is
 * the index of the first expression of which the piece is, or is inside, a
 * match, or -1. If it returns a status other than PL_OK, the split ends with
 * that status. */
typedef pl_status pretok_piece_fn(void *user, const char *s, size_t len, int by,
                                  pl_err *err);

/* Splits s[0 .. len) and calls `piece` with `user` for each piece. Bytes that
 * are not UTF-8 form pieces of their own. Time is proportional to the length of
 * the text. */
pl_status pretok_split(const struct pretok *p, const char *s, size_t len,
                       pretok_piece_fn *piece, void *user, pl_err *err);

#endif
