/* Iterates over the pages of one pool that the sequences of a micro-batch use.
 * For each sequence these are the pages of its row in the page table, from its
 * first position to its last one in the micro-batch. A page that several
 * sequences share may be returned more than once. */
#ifndef PROGRAM_PAGE_WALK_H
#define PROGRAM_PAGE_WALK_H

#include "program/kernel.h"

struct page_walk {
    struct token_table b;
    int64_t tok, k, last; /* next token; page of the sequence, and its last */
    int64_t row;
};

static inline struct page_walk page_walk_start(struct token_table b)
{
    return (struct page_walk){.b = b, .last = -1};
}

/* Returns the next page's number, or -1 at the end. Skips holes in a row:
 * evicted pages of a window. */
int32_t page_walk_next(struct page_walk *w);

#endif
