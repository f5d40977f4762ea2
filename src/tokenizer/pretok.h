/* Pre-tokenizers: cutting a text into pieces that are merged separately.
 *
 * A rule is a list of regular expressions, found by the name that GGUF files
 * write in tokenizer.ggml.pre. The first expression cuts the text into its
 * matches and what stands between them; each further one cuts every piece so
 * obtained in the same way. */
#ifndef TOKENIZER_PRETOK_H
#define TOKENIZER_PRETOK_H

#include "pl.h"

struct pretok; /* opaque; may be used by several threads at once */

enum { PRETOK_MAX_EXPR = 6 };

/* White_Space of Unicode's PropList, for use inside brackets. */
#define PRETOK_SPACE "\\p{Z}\\t-\\r\\x{85}"

/* `name` is not terminated; `where` names the file in errors. A name without
 * a rule is PL_UNSUPPORTED and the message lists those that have one. */
pl_status pretok_create(struct pretok **out, const char *name, size_t len,
                        const char *where, pl_err *err);
/* A rule that no file names: n_expr expressions, which are borrowed until the
 * call returns; at most PRETOK_MAX_EXPR. */
pl_status pretok_create_own(struct pretok **out, const char *const *expr,
                            int n_expr, pl_err *err);
void pretok_free(struct pretok *p);

/* A piece that is a token is taken whole, before any merging. */
bool pretok_takes_whole(const struct pretok *p);
/* What tokenizer.ggml.add_bos_token is if the file does not say. */
bool pretok_adds_bos(const struct pretok *p);
/* There is no BOS token unless the file names one. */
bool pretok_lacks_bos(const struct pretok *p);

/* Called for each piece in order; together the pieces are the text. `by` is
 * the number of the first expression that the piece is, or is in, a match of;
 * -1 if there is none. A status other than PL_OK ends the split. */
typedef pl_status pretok_piece_fn(void *user, const char *s, size_t len, int by,
                                  pl_err *err);

/* Bytes that are not UTF-8 form pieces of their own. Time is proportional to
 * the length of the text. */
pl_status pretok_split(const struct pretok *p, const char *s, size_t len,
                       pretok_piece_fn *piece, void *user, pl_err *err);

#endif
