/* Iterates over the pages of one pool that the sequences of a micro-batch use.
 * For each sequence, these are the entries of its row in the page table up to
 * the page of its last position in the micro-batch. A page that several
 * sequences share may be returned more than once. */
#ifndef PROGRAM_PAGE_WALK_H
#define PROGRAM_PAGE_WALK_H

#include "program/kernel.h"

struct page_walk {
    struct token_table b;
    /* tok is the next token to look at. k and last are the next and the last
     * entry of the current sequence's row in the page table. */
    int64_t tok, k, last;
    int64_t row;
};

static inline struct page_walk page_walk_start(struct token_table b)
{
    return (struct page_walk){.b = b, .last = -1};
}

/* Returns the next page's number, or -1 at the end. Skips entries without a
 * page, which was evicted because it left the attention window. */
int32_t page_walk_next(struct page_walk *w);

#endif
