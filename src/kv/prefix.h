/* The prefix tree: cached pages that outlive their sequences, found by their
 * tokens.
 *
 * Each node of the tree is a whole page: PAGE_TOKENS tokens after those of its
 * parent. It references the pages where these are cached, one in each pool. It
 * is looked up by a hash of its parent and its tokens. Both are compared, so
 * that a collision never returns other pages. Sequences with the same tokens
 * use the pages of one node; pages that were computed a second time are freed.
 *
 * A page that only its node holds is evictable. Evictable pages count as free
 * (kv_free_pages): a pool short of pages evicts the least recently used one. In
 * the pool of all tokens its node is freed too. It is a leaf by then, because a
 * holder of a node's page also holds those of its parents and releases the last
 * ones first. A pool with a window frees the page only. Then the path can be
 * shared only up to lengths at which each pool holds what later tokens see.
 *
 * With states, a path can be shared only up to a length whose state a node has.
 * State slots are evictable like pages. States are kept at checkpoints and when
 * a sequence is released, at any length. If the length is within a page, a leaf
 * has the state and the partly filled page. The sequence continues in a copy of
 * that page.
 *
 * A node is dirty from when it gets a page or a state until it has been copied
 * to the tiers (state/state_page.c). So the tiers can receive every cached page
 * before it is evicted.
 *
 * All memory is allocated at the start. If the tree is full, the following
 * tokens of a sequence are not recorded. */
#ifndef KV_PREFIX_H
#define KV_PREFIX_H

#include "kv/pages.h"

struct prefix_node {
    int parent; /* -1: it begins at position 0 */
    int next;   /* in its bucket or in the unused list; -1: last */
    int n_user; /* children, and sequences with it as last full page */
    int n_tok;  /* PAGE_TOKENS; fewer: a leaf for its state; 0: unused */
    int32_t token[PAGE_TOKENS];
    int32_t page[PL_MAX_POOL]; /* or slot; -1: not held */
    bool dirty;
    int dirty_next, dirty_before; /* in the ring of dirty nodes */
};

/* The tokens of a sequence, as far as they are known. */
struct prefix_seq {
    int64_t n;
    int node;                   /* of its last full page; -1: none */
    int32_t token[PAGE_TOKENS]; /* [n % PAGE_TOKENS] those after the full
                                   pages */
};

struct prefix {
    int n_node, unused;       /* unused: head of the list, or -1 */
    uint64_t mask;            /* selects a hash's bucket */
    struct prefix_node *node; /* owned, [n_node + 1]; the last is the sentinel
                                 of the ring of dirty nodes */
    int *bucket;              /* owned, [mask + 1] first node, or -1 */
    struct prefix_seq *seq;   /* owned, [2 * kv->n_seq] */
};

/* Enables the prefix cache; every sequence must be empty. Without it the other
 * functions do nothing. */
pl_status prefix_init(struct kv *kv, pl_err *err);
void prefix_fini(struct kv *kv);

/* Inserts the full pages among the n tokens computed at position `pos` of a
 * sequence. Must precede kv_trim_windows, so that windows still have them. */
void prefix_insert(struct kv *kv, int seq, int64_t pos, const int32_t *token,
                   int64_t n);
/* Inserts the current state of a sequence. */
void prefix_insert_state(struct kv *kv, int seq);
/* Gives an empty sequence the longest cached prefix of token[0 .. most - 1].
 * Returns its length. Allocates no page. */
int64_t prefix_match(struct kv *kv, int seq, const int32_t *token,
                     int64_t most);
/* Returns the length that prefix_match would find. */
int64_t prefix_match_length(const struct kv *kv, const int32_t *token,
                            int64_t most);

/* Returns the node that has been dirty longest, or -1. */
int prefix_next_dirty(const struct kv *kv);
/* Marks the node clean; -1: does nothing. */
void prefix_mark_clean(struct kv *kv, int node);
/* Returns the node of a sequence's last full page or, if it ends within a page,
 * of the leaf that has its state; -1: none. */
int prefix_node_of(const struct kv *kv, int seq);
/* Copies the tokens of a node's path to `token`, [n_ctx]. Returns their
 * number. */
int64_t prefix_path(const struct kv *kv, int node, int32_t *token);

/* Frees all nodes and forgets all tokens of sequences, because the weights that
 * computed them have changed. The tokens of a sequence are recorded again once
 * it has been emptied. */
void prefix_clear(struct kv *kv);

/* Used by pages.c and states.c ------------------------------------------ */

/* Evicts the least recently used page; false if no page is evictable. */
bool prefix_evict_lru(struct kv *kv, int pool);
/* Releases the node's reference to a page that one sequence holds, if no page
 * is free or evictable to copy it to. */
void prefix_detach_page(struct kv *kv, int pool, int32_t page);
/* Add the page to the LRU ring of evictable pages, or remove it. */
void prefix_lru_add(struct kv_pool *p, int32_t page);
void prefix_lru_remove(struct kv_pool *p, int32_t page);
void prefix_trim(struct kv *kv, int seq, int64_t n);
/* dst must be empty. */
void prefix_copy(struct kv *kv, int dst, int src);
void prefix_swap(struct kv *kv, int a, int b);

#endif
