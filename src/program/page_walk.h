/* Iterates over the pages of one pool that the sequences of a micro-batch use.
 * The pages of a sequence are the entries of its row in the page table, up to
 * the page of its last position in the micro-batch. A page that several
 * sequences share may be returned more than once. */
#ifndef PROGRAM_PAGE_WALK_H
#define PROGRAM_PAGE_WALK_H

#include "program/kernel.h"

struct page_walk {
    struct token_table b;
    /* tok is the index of the next token whose sequence is to be visited. k and
     * last are the next and the last entry of the present sequence's row in the
     * page table. */
    int64_t tok, k, last;
    int64_t row;
};

static inline struct page_walk page_walk_start(struct token_table b)
{
    return (struct page_walk){.b = b, .last = -1};
}

/* Returns the number of the next page, or -1 at the end. Skips entries of the
 * page table without a page: those of pages that were freed because all their
 * positions have left the attention window. */
int32_t page_walk_next(struct page_walk *w);

#endif
