/* A cache of token masks by the set of stacks (stacks.h) for which they hold.
 * The least recently used mask is evicted first. */
#ifndef GRAMMAR_MASK_CACHE_H
#define GRAMMAR_MASK_CACHE_H

#include "grammar/reach.h"
#include "pl.h"

enum mask_kind {
    /* MASK_TOP + r: the tokens of reach r that the states on top of a set
     * accept, whatever the stacks below. */
    MASK_TOP,
    MASK_WHOLE = MASK_TOP + REACHES, /* all tokens that a set accepts */
    MASK_KINDS,
};

/* A position in the trie where the states on top may have returned, so that the
 * text continues with the stacks below them. `at` is a node of the trie. If it
 * is not less than the number of nodes, the position is in leaf `at` minus that
 * number, at index `rest` of grammar_vocab.rest. */
struct pop {
    uint32_t at, rest;
};

struct mask_entry {
    uint32_t set;
    uint8_t kind; /* enum mask_kind */
    /* true: data[] has the words of a mask; false: the ids of its tokens */
    bool dense;
    uint16_t depth; /* MASK_TOP: greatest depth of a set during the walk */
    /* number of words or ids in data[]; number of pops, for MASK_TOP */
    uint32_t n, n_pop;
    size_t bytes;
    struct mask_entry *chain, *newer, *older;
    uint32_t data[]; /* [n] words or ids, then n_pop elements of struct pop */
};

struct mask_cache {
    /* owned, [n_bucket] chains of entries, which are owned, too */
    struct mask_entry **bucket;
    struct mask_entry *newest, *oldest;
    size_t n_bucket, n_entry, bytes, most_bytes;
    uint32_t n_word; /* number of words of a mask */
};

bool mask_cache_init(struct mask_cache *c, uint32_t n_word, size_t most_bytes);
void mask_cache_fini(struct mask_cache *c);

/* Returns the mask of this kind for `set`, or NULL if it is not cached. The
 * result is valid until the next mask_cache_put. */
const struct mask_entry *mask_cache_find(struct mask_cache *c, int kind,
                                         uint32_t set);
/* Adds a mask that is not cached yet, and evicts others if the cache is too
 * large. pop[n_pop] and `depth` belong to a MASK_TOP; other kinds have none.
 * Returns NULL if out of memory. */
const struct mask_entry *mask_cache_put(struct mask_cache *c, int kind,
                                        uint32_t set, const uint32_t *bits,
                                        const struct pop *pop, uint32_t n_pop,
                                        uint16_t depth);
static inline const struct pop *mask_entry_pops(const struct mask_entry *e)
{
    return (const struct pop *)(e->data + e->n);
}

/* Adds the tokens of an entry to the mask `bits`. */
void mask_entry_add(const struct mask_entry *e, uint32_t *bits);

/* Renumbers the sets of all MASK_TOP entries: renamed[s] is the new number of
 * set s, or STACKS_FAILED to drop its entries. Drops all MASK_WHOLE entries. */
void mask_cache_rename(struct mask_cache *c, const uint32_t *renamed);

#endif
