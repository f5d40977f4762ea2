/* Pre-tokenizers: split a text into pieces, because merging never joins symbols
 * of different pieces.
 *
 * A rule is a list of regular expressions. GGUF files name it in
 * tokenizer.ggml.pre. The first expression splits the text into its matches and
 * the text between them; these are pieces. Each further expression splits every
 * piece in the same way. */
#ifndef TOKENIZER_PRETOK_H
#define TOKENIZER_PRETOK_H

#include "pl.h"

/* Opaque; several threads may use it at once. */
struct pretok;

enum { PRETOK_MAX_EXPR = 6 };

/* The characters with Unicode's property White_Space, for use inside
 * brackets. */
#define PRETOK_SPACE "\\p{Z}\\t-\\r\\x{85}"

/* Creates the pre-tokenizer for name[0 .. len), a value of tokenizer.ggml.pre.
 * `where` names the file in errors. Returns PL_UNSUPPORTED if no rule has this
 * name; the message lists the known names. */
pl_status pretok_create(struct pretok **out, const char *name, size_t len,
                        const char *where, pl_err *err);
/* Creates a pre-tokenizer from n_expr expressions, at most PRETOK_MAX_EXPR,
 * which are borrowed until the call returns. */
pl_status pretok_create_own(struct pretok **out, const char *const *expr,
                            int n_expr, pl_err *err);
void pretok_free(struct pretok *p);

/* Returns true if a piece whose whole text is a token must become this token
 * without merging. */
bool pretok_takes_whole(const struct pretok *p);
/* Returns true if texts get a BOS token by default, where the file has no key
 * tokenizer.ggml.add_bos_token. */
bool pretok_adds_bos(const struct pretok *p);
/* Returns true if the vocabulary has no BOS token unless the file names one;
 * otherwise there is a default id. */
bool pretok_lacks_bos(const struct pretok *p);

/* A callback for one piece s[0 .. len) of a text. Pieces come in order and
 * together are the whole text. `by` is the index of the first expression that
 * matched the piece or a longer one that contains it, -1 if none did. Splitting
 * ends if the callback returns a status other than PL_OK. */
typedef pl_status pretok_piece_fn(void *user, const char *s, size_t len, int by,
                                  pl_err *err);

/* Splits s[0 .. len) and calls `piece` with `user` for each piece. Sequences of
 * bytes that are not UTF-8 are pieces of their own. The time is proportional to
 * the length of the text. */
pl_status pretok_split(const struct pretok *p, const char *s, size_t len,
                       pretok_piece_fn *piece, void *user, pl_err *err);

#endif
