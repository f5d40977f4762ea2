/* The host memory tier of the prefix cache: a hash table of entries. It also
 * chooses the entries to evict. This code only does bookkeeping; it uses no
 * engine, threads or files.
 *
 * If the entries exceed the limit of the table, the least recently used entry
 * is evicted. Clean entries are evicted before dirty ones, because a dirty
 * entry has not been written to disk yet. */
#ifndef SERVER_TIER_TABLE_H
#define SERVER_TIER_TABLE_H

#include "tier_entry.h"

struct tier_item;

/* A doubly linked list of entries of the table. */
struct tier_list {
    struct tier_item *first, *last;
};

struct tier_table {
    uint64_t limit; /* limit of `bytes`, the size of all entries */
    /* bytes: size of all entries. dirty: size of the entries that are not
     * written to disk yet. */
    uint64_t bytes, dirty;
    /* n: number of entries. n_lost: number of entries that were evicted before
     * they were written to disk. */
    int64_t n, n_lost;
    struct tier_item **bucket; /* hash buckets, [mask + 1]; owned */
    size_t mask;
    /* The dirty entries, and the clean ones. Each list is in order of use, the
     * least recently used entry first. */
    struct tier_list dirty_list, list;
};

bool tier_table_init(struct tier_table *t, uint64_t limit);
void tier_table_fini(struct tier_table *t);
/* Adds an entry to the table and takes a reference to it. Replaces an entry
 * with the same key, and evicts other entries if needed. Returns false without
 * adding the entry if it is larger than the limit or if memory is short. */
bool tier_table_put(struct tier_table *t, struct tier_entry *e, bool dirty);
/* Returns the entry of the table with this key, and marks it as the most
 * recently used one; NULL if there is none. The caller gets no reference. */
struct tier_entry *tier_table_find(struct tier_table *t,
                                   const struct tier_key *key);
void tier_table_drop(struct tier_table *t, const struct tier_key *key);
/* Returns the least recently used of the dirty entries, which are not written
 * to disk yet; NULL if there is none. */
struct tier_entry *tier_table_oldest_dirty(const struct tier_table *t);
/* Marks an entry as clean (written to disk), unless the table no longer
 * contains it. */
void tier_table_mark_clean(struct tier_table *t, const struct tier_entry *e);

#endif
