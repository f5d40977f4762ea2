/* The prefix tree keeps cached pages after their sequence has ended. Pages are
 * looked up by the tokens that they hold.
 *
 * A node stands for PAGE_TOKENS tokens that follow the tokens of its parent.
 * The node references the pages that hold these tokens, one in each pool. A
 * hash table finds nodes by parent and tokens; both are compared, so that a
 * hash collision never returns wrong pages. Sequences with the same tokens use
 * the pages of one node. If a sequence computed the same tokens again, the
 * duplicate pages are freed.
 *
 * A page that is referenced by its node only is evictable. Evictable pages
 * count as free (kv_free_pages): a pool that is short of pages evicts the least
 * recently used one. In the pool without a window, the node is freed together
 * with its page. That node is always a leaf: a sequence that references the
 * page of a node also references the pages of the node's parents, and releases
 * the last pages first. In a pool with a window only the page is freed. Then
 * the path through that node can be shared only up to lengths at which each
 * pool holds all pages that later tokens attend to.
 *
 * If there is a pool of states, a path can be shared only up to a length for
 * which a node references a state slot. State slots are evictable like pages.
 * States are recorded at checkpoints and when a sequence is released. If the
 * length is not a multiple of PAGE_TOKENS, a leaf references the state slot and
 * the partly filled page. A sequence that matches such a leaf continues in a
 * copy of that page.
 *
 * A node is marked dirty when it gets a page or a state slot. It is marked
 * clean when its contents have been copied to the tiers, which are host memory
 * and disk (state/state_page.c). So the tiers can receive every cached page
 * before it is evicted.
 *
 * All memory is allocated by prefix_init. If the tree is full, further tokens
 * of a sequence are not recorded. */
#ifndef KV_PREFIX_H
#define KV_PREFIX_H

#include "kv/pages.h"

struct prefix_node {
    int parent; /* node of the tokens before; -1 if the node begins at position
                   0 */
    int next;   /* next node in the hash bucket or in the list of unused nodes,
                   -1 for the last */
    int n_user; /* number of children plus sequences whose last full page is
                   this node */
    int n_tok;  /* PAGE_TOKENS, fewer for a leaf that keeps a state within a
                   page, 0 if unused */
    int32_t token[PAGE_TOKENS];
    int32_t page[PL_MAX_POOL]; /* page, or state slot, in each pool, -1 if not
                                  held */
    bool dirty;
    int dirty_next, dirty_before; /* neighbours in the ring of dirty nodes */
};

/* The first n tokens of a sequence. Tokens after these are not recorded. */
struct prefix_seq {
    int64_t n;
    int node;                   /* node of the last full page, -1 if none */
    int32_t token[PAGE_TOKENS]; /* [n % PAGE_TOKENS] tokens after the last full
                                   page */
};

struct prefix {
    int n_node, unused; /* unused: first node of the list of unused nodes,
                                 or -1 */
    /* number of buckets - 1: a hash & mask is the index of a bucket */
    uint64_t mask;
    struct prefix_node *node; /* owned, [n_node + 1]; the last is the sentinel
                                 of the ring of dirty nodes */
    int *bucket;              /* owned, [mask + 1] first node, or -1 */
    struct prefix_seq *seq;   /* owned, [2 * kv->n_seq] */
};

/* Enables the prefix cache. All sequences must be empty. If the prefix cache is
 * not enabled, the functions below do nothing. */
pl_status prefix_init(struct kv *kv, pl_err *err);
void prefix_fini(struct kv *kv);

/* Records the n tokens computed at position `pos` of a sequence, and inserts
 * the pages that they fill into the tree. Must be called before
 * kv_trim_windows, which frees some of these pages. */
void prefix_insert(struct kv *kv, int seq, int64_t pos, const int32_t *token,
                   int64_t n);
/* Inserts the current state slot of a sequence into the tree. */
void prefix_insert_state(struct kv *kv, int seq);
/* Makes an empty sequence share the longest cached prefix of token[0 .. most -
 * 1]. Returns the length of the prefix in tokens. Allocates no page. */
int64_t prefix_match(struct kv *kv, int seq, const int32_t *token,
                     int64_t most);
/* Returns the length in tokens that prefix_match would return. */
int64_t prefix_match_length(const struct kv *kv, const int32_t *token,
                            int64_t most);

/* Returns the node that has been dirty for the longest time, or -1 if no node
 * is dirty. */
int prefix_next_dirty(const struct kv *kv);
/* Marks the node clean. Does nothing if `node` is -1. */
void prefix_mark_clean(struct kv *kv, int node);
/* Returns the node of the last full page of a sequence. If the sequence ends
 * within a page and a leaf keeps that state, returns the leaf. Returns -1 if
 * there is neither. */
int prefix_node_of(const struct kv *kv, int seq);
/* Copies all tokens from position 0 to the end of a node to `token`, which must
 * have space for a whole context. Returns the number of tokens. */
int64_t prefix_path(const struct kv *kv, int node, int32_t *token);

/* Frees all nodes and all recorded tokens. Called when weights or caches were
 * changed, because the cached pages are then stale. A sequence's tokens are
 * recorded again only after the sequence has been emptied. */
void prefix_clear(struct kv *kv);

/* Functions for pages.c and states.c ------------------------------------ */

/* Evicts the least recently used page of a pool. Returns false if no page is
 * evictable. */
bool prefix_evict_lru(struct kv *kv, int pool);
/* Removes the tree's reference to a page that one sequence also references, so
 * that the sequence may write to the page. Called if no page is free or
 * evictable for a copy. */
void prefix_detach_page(struct kv *kv, int pool, int32_t page);
/* Add a page to, or remove it from, the LRU ring of evictable pages. */
void prefix_lru_add(struct kv_pool *p, int32_t page);
void prefix_lru_remove(struct kv_pool *p, int32_t page);
void prefix_trim(struct kv *kv, int seq, int64_t n);
/* Gives dst, which must be empty, the recorded tokens of src. */
void prefix_copy(struct kv *kv, int dst, int src);
void prefix_swap(struct kv *kv, int a, int b);

#endif
