/* Where the n-grams of a text occur: a hash table that grows with the text, so
 * that a lookup does not search the text. */
#ifndef DRAFT_NGRAM_INDEX_H
#define DRAFT_NGRAM_INDEX_H

#include <stdbool.h>
#include <stdint.h>

struct ngram_index {
    int size; /* tokens of an n-gram, at least 1 */
    /* [n_head], a power of two, or 0: by the hash of an n-gram, the latest end
     * of one with that hash, or -1. Ends are positions in the text, after the
     * last token of the n-gram. Owned. */
    int32_t *head;
    /* [n_head]: for each end, the previous one with the same hash, or -1.
     * Owned. */
    int32_t *before;
    int64_t n_head;
    int64_t n; /* the n-grams with ends below this are in the table */
};

void ngram_index_fini(struct ngram_index *x);
/* Adds the n-grams of text [n] with ends below n. If the text is shorter than
 * before, it is another one. Returns false if out of memory. */
bool ngram_index_add(struct ngram_index *x, const int32_t *text, int64_t n);
/* Stores the latest ends, below n, of n-grams that equal the last one of text
 * [n] in end[0 .. most - 1]. Returns their number. */
int ngram_index_find(const struct ngram_index *x, const int32_t *text,
                     int64_t n, int32_t *end, int most);

#endif
