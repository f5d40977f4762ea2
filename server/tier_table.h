/* The host memory tier of the prefix cache: a hash table of entries, which also
 * decides which entry is evicted. Pure bookkeeping: it uses no engine, threads
 * or files.
 *
 * If the limit is exceeded, the least recently used entry is evicted. Clean
 * entries are evicted before dirty ones, because a dirty entry still has to be
 * written to the next tier. */
#ifndef SERVER_TIER_TABLE_H
#define SERVER_TIER_TABLE_H

#include "tier_entry.h"

struct tier_item;

/* A doubly linked list of entries. */
struct tier_list {
    struct tier_item *first, *last;
};

struct tier_table {
    uint64_t limit;            /* limit of `bytes` */
    uint64_t bytes, dirty;     /* bytes: size of all entries; dirty: size of the
                                  dirty ones */
    int64_t n, n_lost;         /* n: number of entries; n_lost: number of
                                  entries that were evicted while dirty */
    struct tier_item **bucket; /* owned, [mask + 1] */
    size_t mask;
    /* Dirty and clean entries in order of use, the least recently used
     * first. */
    struct tier_list dirty_list, list;
};

bool tier_table_init(struct tier_table *t, uint64_t limit);
void tier_table_fini(struct tier_table *t);
/* Adds an entry and takes a reference of it. Replaces an entry with the same
 * key, and evicts others if needed. Returns false if the entry is larger than
 * the limit or memory is short; then it is not added. */
bool tier_table_put(struct tier_table *t, struct tier_entry *e, bool dirty);
/* Returns the entry with this key and marks it as used now; NULL if there is
 * none. The caller gets no reference. */
struct tier_entry *tier_table_find(struct tier_table *t,
                                   const struct tier_key *key);
void tier_table_drop(struct tier_table *t, const struct tier_key *key);
/* Returns the least recently used dirty entry; NULL if there is none. */
struct tier_entry *tier_table_oldest_dirty(const struct tier_table *t);
/* Marks an entry as clean, unless the table no longer contains it. */
void tier_table_mark_clean(struct tier_table *t, const struct tier_entry *e);

#endif
