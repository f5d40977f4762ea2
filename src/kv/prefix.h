/* The prefix tree keeps cached pages after their sequence has ended. They are
 * found by the tokens that they hold.
 *
 * A node stands for PAGE_TOKENS tokens that follow the tokens of its parent. It
 * references the pages that hold these tokens, one in each pool. A hash table
 * finds nodes by parent and tokens; both are compared, so a hash collision
 * never returns wrong pages. Sequences with the same tokens use the pages of
 * one node. If a sequence computed the same tokens again, its duplicate pages
 * are freed.
 *
 * A page that only its node references is evictable. Evictable pages count as
 * free (kv_free_pages): a pool that is short of pages evicts the one that was
 * not used for the longest time. If a page of a pool without a window is
 * evicted, its node is freed, too. That node is always a leaf: a sequence that
 * references the page of a node also references the pages of all its ancestors,
 * and releases the last pages first. In a pool with a window only the page is
 * freed. A new sequence can then share the path through that node only up to
 * lengths for which each pool holds all pages to which later tokens attend.
 *
 * If there is a pool of states, a path can be shared only up to a length for
 * which a node references a state slot. State slots are evictable like pages. A
 * sequence's state is added to the tree at each checkpoint and when the
 * sequence is released. If the length is not a multiple of PAGE_TOKENS, a leaf
 * is added that references the state slot and the partly filled page. A
 * sequence that matches such a leaf continues in a copy of that page.
 *
 * A node becomes dirty when it gets a page or a state slot. It becomes clean
 * when its contents were copied to the tiers, host memory and disk
 * (state/state_page.c). So the tiers can get every cached page before it is
 * evicted.
 *
 * All memory is allocated by prefix_init. If the tree is full, further tokens
 * of a sequence are not recorded. */
#ifndef KV_PREFIX_H
#define KV_PREFIX_H

#include "kv/pages.h"

struct prefix_node {
    /* Node of the tokens before this node's, -1 if its first token is at
     * position 0. */
    int parent;
    /* Next node in the same hash bucket, or in the list of unused nodes; -1 for
     * the last. */
    int next;
    /* Number of children, plus number of sequences whose last full page is this
     * node's. The node is not freed unless it is 0. */
    int n_user;
    /* Number of elements of token[]: PAGE_TOKENS, fewer for a leaf whose page
     * is partly filled, 0 if the node is unused. */
    int n_tok;
    int32_t token[PAGE_TOKENS];
    /* Page, or state slot, that the node references in each pool; -1 for
     * none. */
    int32_t page[PL_MAX_POOL];
    bool dirty;
    /* Neighbours in the ring of dirty nodes, which is in the order in which
     * they became dirty. */
    int dirty_next, dirty_before;
};

/* The tokens of a sequence that are recorded in the prefix tree: its first n.
 * Later ones are not recorded, because the tree was full. */
struct prefix_seq {
    int64_t n;
    int node; /* node of the last full page, -1 for none */
    /* [n % PAGE_TOKENS]: the tokens after the last full page. */
    int32_t token[PAGE_TOKENS];
};

struct prefix {
    int n_node, unused; /* unused: first node of the list of unused nodes, or
                           -1 */
    /* number of hash buckets - 1, all ones: hash & mask is a bucket */
    uint64_t mask;
    /* Owned, [n_node + 1]. The last one is the sentinel of the ring of dirty
     * nodes. */
    struct prefix_node *node;
    int *bucket; /* owned, [mask + 1]: first node in each bucket, or -1 */
    struct prefix_seq *seq; /* owned, [2 * kv->n_seq]: one per sequence or
                               shadow */
};

/* Turns the prefix cache on. All sequences must be empty. If it was not called,
 * the functions below do nothing. */
pl_status prefix_init(struct kv *kv, pl_err *err);
void prefix_fini(struct kv *kv);

/* Records the n tokens that were computed at position `pos` of a sequence, and
 * adds a node for each page that they fill. Must be called before
 * kv_trim_windows, which frees some of these pages. */
void prefix_insert(struct kv *kv, int seq, int64_t pos, const int32_t *token,
                   int64_t n);
/* Adds the state slot of a sequence, with its state after the last token, to
 * the tree. */
void prefix_insert_state(struct kv *kv, int seq);
/* Finds the longest cached prefix of token[0 .. most) and makes `seq`, an empty
 * sequence, share its pages and its state. Returns the length of the prefix in
 * tokens. Allocates no page. */
int64_t prefix_match(struct kv *kv, int seq, const int32_t *token,
                     int64_t most);
/* Returns the length in tokens of the prefix that prefix_match would find. */
int64_t prefix_match_length(const struct kv *kv, const int32_t *token,
                            int64_t most);

/* Returns the node that has been dirty for the longest time, or -1 if no node
 * is dirty. */
int prefix_next_dirty(const struct kv *kv);
/* Marks a node clean: its pages were copied to the tiers. Does nothing if
 * `node` is -1. */
void prefix_mark_clean(struct kv *kv, int node);
/* Returns the node of the last full page of a sequence. If the sequence ends
 * within a page, returns the leaf with the tokens of that page instead. Returns
 * -1 if there is no such node. */
int prefix_node_of(const struct kv *kv, int seq);
/* Writes all tokens from position 0 to the end of a node to `token`, which must
 * have space for a whole context. Returns their number. */
int64_t prefix_path(const struct kv *kv, int node, int32_t *token);

/* Frees all nodes and forgets all recorded tokens. Called when weights or
 * caches were changed, because cached pages are then wrong. The tokens of a
 * sequence are recorded again only after the sequence was emptied. */
void prefix_clear(struct kv *kv);

/* Functions that only pages.c and states.c call ---------------------------- */

/* Evicts the evictable page of a pool that was not used for the longest time.
 * Returns false if no page is evictable. */
bool prefix_evict_lru(struct kv *kv, int pool);
/* Removes the tree's reference to a page that one sequence references, too, so
 * that the sequence may write to the page. Called if no page is left to which
 * it could be copied. */
void prefix_detach_page(struct kv *kv, int pool, int32_t page);
/* Add a page that became evictable to the LRU ring of its pool; remove a page
 * that is evictable no longer. */
void prefix_lru_add(struct kv_pool *p, int32_t page);
void prefix_lru_remove(struct kv_pool *p, int32_t page);
void prefix_trim(struct kv *kv, int seq, int64_t n);
/* Copies the recorded tokens of src to dst, which must be empty. */
void prefix_copy(struct kv *kv, int dst, int src);
void prefix_swap(struct kv *kv, int a, int b);

#endif
