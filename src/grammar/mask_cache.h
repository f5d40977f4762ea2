/* A cache of masks by their set of stacks, least recently used evicted
 * first. */
#ifndef GRAMMAR_MASK_CACHE_H
#define GRAMMAR_MASK_CACHE_H

#include "grammar/reach.h"
#include "pl.h"

enum mask_kind {
    /* MASK_TOP + a reach: tokens of that reach, for the top of a set, whatever
     * is below it. */
    MASK_TOP,
    MASK_WHOLE = MASK_TOP + REACHES, /* all tokens, for a set */
    MASK_KINDS,
};

/* A position where a text continues below the top: at node `at` of the trie, or
 * in leaf `at` minus the number of nodes, with its bytes from `rest` on. */
struct pop {
    uint32_t at, rest;
};

struct mask_entry {
    uint32_t set;
    uint8_t kind;      /* enum mask_kind */
    bool dense;        /* words of bits; else ids */
    uint16_t depth;    /* tops: of the deepest set seen */
    uint32_t n, n_pop; /* words or ids; tops: pops */
    size_t bytes;
    struct mask_entry *chain, *newer, *older;
    uint32_t data[]; /* [n], then the pops */
};

struct mask_cache {
    struct mask_entry **bucket; /* owned, [n_bucket], with the entries */
    struct mask_entry *newest, *oldest;
    size_t n_bucket, n_entry, bytes, most_bytes;
    uint32_t n_word; /* of a mask */
};

bool mask_cache_init(struct mask_cache *c, uint32_t n_word, size_t most_bytes);
void mask_cache_fini(struct mask_cache *c);

/* Returns NULL if there is none. Valid until the next put. */
const struct mask_entry *mask_cache_find(struct mask_cache *c, int kind,
                                         uint32_t set);
/* Adds a mask that is not in the cache yet. Returns NULL if out of memory. */
const struct mask_entry *mask_cache_put(struct mask_cache *c, int kind,
                                        uint32_t set, const uint32_t *bits,
                                        const struct pop *pop, uint32_t n_pop,
                                        uint16_t depth);
static inline const struct pop *mask_entry_pops(const struct mask_entry *e)
{
    return (const struct pop *)(e->data + e->n);
}

/* Sets the bits of an entry in `bits`. */
void mask_entry_add(const struct mask_entry *e, uint32_t *bits);

/* Renumbers sets: `renamed` maps the old number of a top to its new one, or
 * STACKS_FAILED. Drops all masks of other kinds. */
void mask_cache_rename(struct mask_cache *c, const uint32_t *renamed);

#endif
