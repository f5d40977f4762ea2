/* Iterates over the pages that a micro-batch uses. */
#include "program/page_walk.h"

int32_t page_walk_next(struct page_walk *w)
{
    const struct token_table *b = &w->b;

    for (;;) {
        for (; w->k <= w->last; w->k++) {
            int32_t page = b->pages[w->row + w->k];

            if (page >= 0) {
                w->k++;
                return page;
            }
        }
        if (w->tok >= b->n_tok)
            return -1;
        w->row = b->seq[w->tok] * b->page_stride;
        w->k = w->last = 0;
        for (int32_t seq = b->seq[w->tok];
             w->tok < b->n_tok && b->seq[w->tok] == seq; w->tok++)
            if (b->pos[w->tok] / PAGE_TOKENS > w->last)
                w->last = b->pos[w->tok] / PAGE_TOKENS;
        if (w->last >= b->page_stride)
            w->last = b->page_stride - 1;
    }
}
