/* Joins adjacent symbols of a text, the best pair first, until no pair joins:
 * the core of byte-pair encoding and of SentencePiece. The two differ only in
 * the order of pairs, which a function of the caller defines. */
#ifndef TOKENIZER_MERGE_H
#define TOKENIZER_MERGE_H

#include "pl.h"

struct merge_sym {
    uint32_t start, len; /* the symbol is bytes [start, start + len) of the
                            text */
    int32_t id;          /* the caller's id of the symbol, -1 for none */
    int32_t prev, next;  /* indices of the neighbouring symbols, -1 at the
                            ends */
    /* The following fields belong to the pair of this symbol and the next
     * one. */
    int32_t pos;    /* position of the pair in the heap; -1 if its symbols do
                       not join */
    int32_t joined; /* id of the symbol that the pair becomes when it joins */
    double key;     /* the pair with the smallest key joins first; among equal
                       keys, the leftmost */
};

/* Scratch memory of merger_run, kept between calls. A zeroed struct is
 * empty. */
struct merger {
    struct merge_sym *sym; /* owned, [n_sym], capacity `cap`: the symbols */
    /* Owned, [n_heap], capacity `cap`: pairs that can join, as the indices of
     * their left symbols. */
    int32_t *heap;
    int32_t n_sym, n_heap, cap;
};

/* Decides if the adjacent symbols a and b join, and sets *key and *joined, the
 * fields of merge_sym. Returns false if they do not join. */
typedef bool merge_pair_fn(const void *user, const struct merge_sym *a,
                           const struct merge_sym *b, double *key,
                           int32_t *joined);

/* Reserves space for n symbols and removes all symbols. */
pl_status merger_reserve(struct merger *m, size_t n, pl_err *err);
void merger_fini(struct merger *m);

static inline void merger_add(struct merger *m, uint32_t start, uint32_t len,
                              int32_t id)
{
    struct merge_sym *s = &m->sym[m->n_sym++];

    s->start = start;
    s->len = len;
    s->id = id;
}

/* Joins adjacent pairs of sym[0 .. n_sym) until no pair joins; O(n log n). The
 * remaining symbols form a list that starts at sym[0] and continues with
 * `next`. `pair` must not set a key that is NaN. */
void merger_run(struct merger *m, merge_pair_fn *pair, const void *user);

#endif
