/* A cache of token masks. The key is the set of stacks (stacks.h) whose allowed
 * tokens the mask has. The mask that was not used for the longest time is
 * evicted first. */
#ifndef GRAMMAR_MASK_CACHE_H
#define GRAMMAR_MASK_CACHE_H

#include "grammar/reach.h"
#include "pl.h"

enum mask_kind {
    /* MASK_TOP + r: the tokens of reach r (reach.h) that the states on top of
     * the stacks accept, whatever states are below them. */
    MASK_TOP,
    MASK_WHOLE = MASK_TOP + REACHES, /* all tokens that the set of stacks
                                        accepts */
    MASK_KINDS,
};

/* A position in the trie of tokens where the rule on top of the stacks may have
 * ended, so that the rest of the token must be checked against the stacks
 * below. If `at` is less than the number of trie nodes, the position is that
 * node. Otherwise it is within the leaf `at` minus the number of nodes, before
 * the byte with index `rest` in grammar_vocab.rest. */
struct pop {
    uint32_t at, rest;
};

struct mask_entry {
    uint32_t set;
    uint8_t kind; /* kind of the mask: enum mask_kind */
    /* True if data[] has the words of the mask, a bit per token; false if it
     * has the ids of the tokens, which takes less memory for small masks. */
    bool dense;
    /* MASK_TOP: greatest number of states on a stack while the mask was
     * computed. */
    uint16_t depth;
    /* n: number of words or ids in data[]. n_pop: number of positions (struct
     * pop) after them; 0 except for MASK_TOP. */
    uint32_t n, n_pop;
    size_t bytes;
    struct mask_entry *chain, *newer, *older;
    /* [n] words or ids of the mask, then n_pop elements of struct pop. */
    uint32_t data[];
};

struct mask_cache {
    /* owned: n_bucket lists of cached masks; the masks are owned, too */
    struct mask_entry **bucket;
    struct mask_entry *newest, *oldest;
    size_t n_bucket, n_entry, bytes, most_bytes;
    uint32_t n_word; /* number of 32-bit words of a mask */
};

bool mask_cache_init(struct mask_cache *c, uint32_t n_word, size_t most_bytes);
void mask_cache_fini(struct mask_cache *c);

/* Returns the cached mask of this kind for the set of stacks `set`, or NULL.
 * The result is valid until the next mask_cache_put. */
const struct mask_entry *mask_cache_find(struct mask_cache *c, int kind,
                                         uint32_t set);
/* Caches the mask `bits` for the set of stacks `set`, for which no mask of this
 * kind may be cached yet. Evicts other masks if the cache exceeds its size in
 * bytes. pop[n_pop] and `depth` are those of struct mask_entry, for MASK_TOP
 * only. Returns NULL if out of memory. */
const struct mask_entry *mask_cache_put(struct mask_cache *c, int kind,
                                        uint32_t set, const uint32_t *bits,
                                        const struct pop *pop, uint32_t n_pop,
                                        uint16_t depth);
static inline const struct pop *mask_entry_pops(const struct mask_entry *e)
{
    return (const struct pop *)(e->data + e->n);
}

/* Sets the bits of the cached mask's tokens in the mask `bits`. */
void mask_entry_add(const struct mask_entry *e, uint32_t *bits);

/* Renumbers the keys after sets of stacks were copied to a new pool: renamed[s]
 * is the new number of set s, or STACKS_UNKNOWN if it was not copied. Drops
 * the masks of sets that were not copied, and all MASK_WHOLE masks. */
void mask_cache_rename(struct mask_cache *c, const uint32_t *renamed);

#endif
