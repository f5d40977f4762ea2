/* The tier in host memory: which entries are there, which go. Numbers and
 * pointers only: no engine, no thread, no file.
 *
 * Entries are found by their keys. The one that was not used for the longest
 * time goes when they are more than they may be; but first those go that are
 * not owed to the tier behind this one. */
#ifndef SERVER_TIER_TABLE_H
#define SERVER_TIER_TABLE_H

#include "tier_entry.h"

struct tier_item;

/* A list of items that may leave it anywhere. */
struct tier_list {
    struct tier_item *first, *last;
};

struct tier_table {
    uint64_t limit;            /* bytes */
    uint64_t bytes, owed;      /* of all; of those that are owed */
    int64_t n, n_lost;         /* lost: gone while they were owed */
    struct tier_item **bucket; /* owned, [mask + 1] */
    size_t mask;
    /* By use, those that are owed and the others; the longest unused first. */
    struct tier_list owed_list, list;
};

bool tier_table_init(struct tier_table *t, uint64_t limit);
void tier_table_fini(struct tier_table *t);
/* Counts `e` once more and has it, in place of one with its key; others may go
 * for it, and it goes itself where it is too large. False: it is not kept. */
bool tier_table_put(struct tier_table *t, struct tier_entry *e, bool owed);
/* It is used now. NULL: there is none. */
struct tier_entry *tier_table_find(struct tier_table *t,
                                   const struct tier_key *key);
void tier_table_drop(struct tier_table *t, const struct tier_key *key);
/* Of those that are owed the longest unused one; NULL: none is. */
struct tier_entry *tier_table_oldest_dirty(const struct tier_table *t);
/* It is owed no longer, if it is still there and still this one. */
void tier_table_mark_clean(struct tier_table *t, const struct tier_entry *e);

#endif
