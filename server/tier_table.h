/* The host memory tier: which entries it has, and which are evicted. Pure
 * bookkeeping: no engine, thread or file.
 *
 * Entries are found by their keys. Above the limit, the least recently used is
 * evicted, clean ones first: a dirty entry still has to be written to the next
 * tier. */
#ifndef SERVER_TIER_TABLE_H
#define SERVER_TIER_TABLE_H

#include "tier_entry.h"

struct tier_item;

/* A doubly linked list. */
struct tier_list {
    struct tier_item *first, *last;
};

struct tier_table {
    uint64_t limit;            /* bytes */
    uint64_t bytes, dirty;     /* of all; of dirty ones */
    int64_t n, n_lost;         /* n_lost: evicted while dirty */
    struct tier_item **bucket; /* owned, [mask + 1] */
    size_t mask;
    /* In order of use, dirty ones and clean ones; the least recently used
     * first. */
    struct tier_list dirty_list, list;
};

bool tier_table_init(struct tier_table *t, uint64_t limit);
void tier_table_fini(struct tier_table *t);
/* Adds `e` with a reference of its own and replaces one with its key; others
 * may be evicted for it. Returns false if it is not stored because it is too
 * large or memory is short. */
bool tier_table_put(struct tier_table *t, struct tier_entry *e, bool dirty);
/* Marks it as used now and returns it; NULL if it is not there. */
struct tier_entry *tier_table_find(struct tier_table *t,
                                   const struct tier_key *key);
void tier_table_drop(struct tier_table *t, const struct tier_key *key);
/* Returns the least recently used dirty entry; NULL if there is none. */
struct tier_entry *tier_table_oldest_dirty(const struct tier_table *t);
/* Marks it clean, if this very entry is still there. */
void tier_table_mark_clean(struct tier_table *t, const struct tier_entry *e);

#endif
