/* The host memory tier of the prefix cache, a hash table with LRU lists; see
 * tier_table.h. */
#include "tier_table.h"

#include <stdlib.h>
#include <string.h>

struct tier_item {
    struct tier_entry *entry;
    bool dirty;
    struct tier_item *same; /* next item in the same hash bucket */
    struct tier_item *next, *before;
};

/* ---- the LRU lists of clean and dirty entries ---------------------------- */

static struct tier_list *list_of(struct tier_table *t,
                                 const struct tier_item *i)
{
    return i->dirty ? &t->dirty_list : &t->list;
}

static void join(struct tier_list *l, struct tier_item *i)
{
    i->next = NULL;
    i->before = l->last;
    *(l->last ? &l->last->next : &l->first) = i;
    l->last = i;
}

static void leave(struct tier_list *l, struct tier_item *i)
{
    *(i->before ? &i->before->next : &l->first) = i->next;
    *(i->next ? &i->next->before : &l->last) = i->before;
}

/* ---- the hash buckets ---------------------------------------------------- */

static struct tier_item **bucket_of(const struct tier_table *t,
                                    const struct tier_key *key)
{
    size_t h;

    /* Keys are SHA-256 sums, so any bytes of a key serve as its hash. */
    memcpy(&h, key, sizeof h);
    return &t->bucket[h & t->mask];
}

static struct tier_item *find(const struct tier_table *t,
                              const struct tier_key *key)
{
    struct tier_item *i = *bucket_of(t, key);

    while (i && !tier_key_same(&i->entry->key, key))
        i = i->same;
    return i;
}

/* Doubles the number of hash buckets. If out of memory, the table keeps the old
 * buckets. */
static void grow_buckets(struct tier_table *t)
{
    size_t n = 2 * (t->mask + 1);
    struct tier_item **old = t->bucket, **more = calloc(n, sizeof(*more));

    if (!more)
        return;
    t->bucket = more;
    t->mask = n - 1;
    for (size_t b = 0; b < n / 2; b++)
        for (struct tier_item *i = old[b], *same; i; i = same) {
            struct tier_item **to = bucket_of(t, &i->entry->key);

            same = i->same;
            i->same = *to;
            *to = i;
        }
    free(old);
}

/* ---- functions that tier_table.h declares -------------------------------- */

bool tier_table_init(struct tier_table *t, uint64_t limit)
{
    *t = (struct tier_table){.limit = limit, .mask = 63};
    t->bucket = calloc(t->mask + 1, sizeof(*t->bucket));
    return t->bucket != NULL;
}

static void discard(struct tier_table *t, struct tier_item *i)
{
    struct tier_item **at = bucket_of(t, &i->entry->key);
    size_t bytes = tier_entry_size(i->entry);

    while (*at != i)
        at = &(*at)->same;
    *at = i->same;
    leave(list_of(t, i), i);
    t->bytes -= bytes;
    t->dirty -= i->dirty ? bytes : 0;
    t->n--;
    tier_entry_unref(i->entry);
    free(i);
}

void tier_table_fini(struct tier_table *t)
{
    while (t->list.first)
        discard(t, t->list.first);
    while (t->dirty_list.first)
        discard(t, t->dirty_list.first);
    free(t->bucket);
    t->bucket = NULL;
}

/* Evicts entries until an entry of `bytes` bytes fits in the limit of the
 * table. */
static void evict_for(struct tier_table *t, uint64_t bytes)
{
    while (t->n > 0 && t->bytes + bytes > t->limit) {
        struct tier_item *i = t->list.first;

        t->n_lost += !i;
        discard(t, i ? i : t->dirty_list.first);
    }
}

bool tier_table_put(struct tier_table *t, struct tier_entry *e, bool dirty)
{
    struct tier_item *i = find(t, &e->key);
    uint64_t bytes = tier_entry_size(e);

    if (i)
        discard(t, i);
    if (bytes > t->limit)
        return false;
    evict_for(t, bytes);
    i = calloc(1, sizeof(*i));
    if (!i)
        return false;
    if ((size_t)t->n > t->mask)
        grow_buckets(t);
    i->entry = tier_entry_ref(e);
    i->dirty = dirty;
    i->same = *bucket_of(t, &e->key);
    *bucket_of(t, &e->key) = i;
    join(list_of(t, i), i);
    t->bytes += bytes;
    t->dirty += dirty ? bytes : 0;
    t->n++;
    return true;
}

struct tier_entry *tier_table_find(struct tier_table *t,
                                   const struct tier_key *key)
{
    struct tier_item *i = find(t, key);

    if (!i)
        return NULL;
    leave(list_of(t, i), i);
    join(list_of(t, i), i);
    return i->entry;
}

void tier_table_drop(struct tier_table *t, const struct tier_key *key)
{
    struct tier_item *i = find(t, key);

    if (i)
        discard(t, i);
}

struct tier_entry *tier_table_oldest_dirty(const struct tier_table *t)
{
    return t->dirty_list.first ? t->dirty_list.first->entry : NULL;
}

void tier_table_mark_clean(struct tier_table *t, const struct tier_entry *e)
{
    struct tier_item *i = find(t, &e->key);

    if (!i || i->entry != e || !i->dirty)
        return;
    leave(&t->dirty_list, i);
    i->dirty = false;
    join(&t->list, i);
    t->dirty -= tier_entry_size(e);
}
