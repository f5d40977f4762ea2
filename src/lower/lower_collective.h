/* A message of one group: what is alike whether its devices meet or push. */
#ifndef LOWER_LOWER_COLLECTIVE_H
#define LOWER_LOWER_COLLECTIVE_H

#include "lower/lower_inner.h"

/* What a unit does for one conversion of a message. */
struct lower_item {
    struct merge_item m;
    struct lower_pieces remote;
    int room; /* in the inbox: where peers put their parts of the result, each
                 at its place there; -1: none of them does */
};

/* Unit u's MERGE of a message's conversions item[n]; *s: what is special. */
pl_status lower_merge(struct lower *w, int u, int n, const int *item,
                      const struct merge_item *m, const pl_dim bytes[2],
                      struct insn *s);
/* The last position in the order before which unit u's peers cannot have begun
 * to push the next message. */
int lower_free_from(const struct lower *w, int u);

/* The message between devices that share memory: it[units][n]. */
pl_status lower_collective_shared(struct lower *w, int group, int n,
                                  const int *item, struct lower_item *it,
                                  const pl_dim bytes[2]);
/* The message between devices that do not. */
pl_status lower_collective_inbox(struct lower *w, int group, int n,
                                 const int *item, struct lower_item *it,
                                 const pl_dim bytes[2]);

#endif
