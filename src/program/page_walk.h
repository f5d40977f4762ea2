/* The pages that the sequences of a micro-batch have in a pool: those of each
 * sequence's row in the table of pages, from its first position to the last one
 * in the micro-batch. A page that several sequences share may come more than
 * once. */
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

/* The next page's number, -1 at the end. A row may have holes: pages of a
 * window that were given back. */
int32_t page_walk_next(struct page_walk *w);

#endif
