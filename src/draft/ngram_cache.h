/* Statistics of n-grams: which tokens followed 1 to 4 tokens, and how often.
 *
 * As llama.cpp does, a draft is a token of which enough is known: statistics of
 * the text itself, weighted by those of a fixed file, then those of earlier
 * texts, then the fixed file alone. Longer n-grams are tried first.
 *
 * A file has, for each n-gram, 4 tokens (-1 after the last), the number of
 * tokens that followed it, and for each of these the token and how often it
 * followed: all int32_t, little endian. */
#ifndef DRAFT_NGRAM_CACHE_H
#define DRAFT_NGRAM_CACHE_H

#include "pl_draft.h"

enum { NGRAM_MOST = 4 };

struct ngram {
    int32_t token[NGRAM_MOST]; /* -1 after the last */
    int32_t first; /* index of the edge to a token that followed it; -1 */
};

/* A token that followed an n-gram. */
struct ngram_edge {
    int32_t ngram; /* index of the n-gram */
    int32_t token, count;
    int32_t next; /* index of the n-gram's next edge; -1 after the last */
};

/* All zero is an empty cache. */
struct ngram_cache {
    struct ngram *ngram;     /* owned, [n_ngram] */
    struct ngram_edge *edge; /* owned, [n_edge] */
    int32_t n_ngram, max_ngram, n_edge, max_edge;
    /* Hash tables of indexes, -1 where empty; owned; their sizes are powers of
     * two, or 0. */
    int32_t *ngram_at, *edge_at;
    int64_t n_ngram_at, n_edge_at;
    int64_t n; /* the tokens of the text below this were added */
};

void ngram_cache_fini(struct ngram_cache *c);
/* Adds the tokens of text [n] that were not added before. Returns false if out
 * of memory. */
bool ngram_cache_add(struct ngram_cache *c, const int32_t *text, int64_t n);
/* Adds the statistics of `from`. Returns false if out of memory; a part of them
 * was added then. */
bool ngram_cache_merge(struct ngram_cache *c, const struct ngram_cache *from);
/* Returns the token that probably follows text [n] and draft [n_draft], or -1
 * if too little is known. `own` has the statistics of the text, `earlier` those
 * of earlier texts, `fixed` those of a fixed file. Sets *chance to the token's
 * share, in 65536ths, of all that followed the n-gram; leaves it unchanged if
 * the result is -1. */
int32_t ngram_cache_next(const struct ngram_cache *own,
                         const struct ngram_cache *earlier,
                         const struct ngram_cache *fixed, const int32_t *text,
                         int64_t n, const int32_t *draft, int n_draft,
                         int32_t *chance);
/* Reads the `bytes` bytes of a file into an empty cache. PL_BAD_FILE: the
 * message has `name` and the offset. PL_NO_MEMORY. After an error the cache has
 * a part of the file. */
pl_status ngram_cache_parse(struct ngram_cache *c, const void *data,
                            size_t bytes, const char *name, pl_err *err);
void ngram_cache_write(const struct ngram_cache *c, pl_write_fn *write,
                       void *user);

#endif
