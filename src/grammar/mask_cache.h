/* Masks that were found, by the set of stacks that they are of; those used last
 * are kept, as far as memory allows. */
#ifndef GRAMMAR_MASK_CACHE_H
#define GRAMMAR_MASK_CACHE_H

#include "grammar/reach.h"
#include "pl.h"

enum mask_kind {
    MASK_TOP, /* + a reach: its tokens, of what is on top of a set, whatever
                 lies below */
    MASK_WHOLE = MASK_TOP + REACHES, /* all tokens, of a set */
    MASK_KINDS,
};

/* Where a text goes on below: at node `at` of the tree, or in leaf `at` less
 * all nodes, with its bytes from `rest` on. */
struct pop {
    uint32_t at, rest;
};

struct mask_entry {
    uint32_t set;
    uint8_t kind;      /* enum mask_kind */
    bool dense;        /* words of bits; else ids */
    uint16_t depth;    /* tops: of the deepest set that was met */
    uint32_t n, n_pop; /* words or ids; tops: pops */
    size_t bytes;
    struct mask_entry *chain, *newer, *older;
    uint32_t data[]; /* [n], and the pops */
};

struct mask_cache {
    struct mask_entry **bucket; /* owned, [n_bucket], with the entries */
    struct mask_entry *newest, *oldest;
    size_t n_bucket, n_entry, bytes, most_bytes;
    uint32_t n_word; /* of a mask */
};

bool mask_cache_init(struct mask_cache *c, uint32_t n_word, size_t most_bytes);
void mask_cache_fini(struct mask_cache *c);

/* NULL: not there. It may be used until something is put. */
const struct mask_entry *mask_cache_find(struct mask_cache *c, int kind,
                                         uint32_t set);
/* Keeps a mask, which is not there yet. NULL: memory is out. */
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

/* Sets have other numbers now: `renamed` gives the new one of each old one for
 * tops, STACKS_FAILED: none. All masks of other kinds are dropped. */
void mask_cache_rename(struct mask_cache *c, const uint32_t *renamed);

#endif
