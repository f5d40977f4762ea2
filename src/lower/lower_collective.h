/* A collective of one group: declarations shared by collectives through shared
 * memory and by inboxes. */
#ifndef LOWER_LOWER_COLLECTIVE_H
#define LOWER_LOWER_COLLECTIVE_H

#include "lower/lower_inner.h"

/* A shard's part in one conversion of a collective. */
struct lower_item {
    struct merge_item m;
    struct lower_pieces remote;
    /* tensor in the inbox, into which peers push their parts of the result,
     * each at its offset there; -1 if none does */
    int room;
};

/* Emits shard u's MERGE of a collective's conversions item[n]. *s has the
 * fields that are not common to all. */
pl_status lower_merge(struct lower *w, int u, int n, const int *item,
                      const struct merge_item *m, const pl_dim bytes[2],
                      struct insn *s);
/* Returns the last position in the order before which shard u's peers cannot
 * have begun to push the next collective. */
int lower_free_from(const struct lower *w, int u);

/* Emits a collective between devices that share memory: it[shards][n]. */
pl_status lower_collective_shared(struct lower *w, int group, int n,
                                  const int *item, struct lower_item *it,
                                  const pl_dim bytes[2]);
/* Emits a collective between devices that do not. */
pl_status lower_collective_inbox(struct lower *w, int group, int n,
                                 const int *item, struct lower_item *it,
                                 const pl_dim bytes[2]);

#endif
