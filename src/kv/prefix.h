/* Prefixes: pages that stay when their sequences go, found by their tokens.
 *
 * A tree whose nodes are whole pages: a node stands for PAGE_TOKENS tokens
 * behind those of its parent, and holds references of its own on the pages
 * where these are cached, one in each pool. It is looked for by a hash of its
 * parent and its tokens, and both are compared, so that no collision serves
 * other pages. Where sequences have the same tokens they have the pages of one
 * node: who computed them a second time gives his back.
 *
 * A page that only its node holds is idle. Idle pages count as free
 * (kv_free_pages): where a pool is short of pages the one goes that is idle for
 * the longest time. In the pool of all tokens its node goes with it, which is a
 * leaf by then: who holds a page of a node has those of its parents, and gives
 * the last ones back first. A pool with a window loses the page alone. Then the
 * path can be shared only up to lengths at which each pool holds what later
 * tokens see.
 *
 * Where there are states, a path can be shared only up to a length whose state
 * some node has; slots are idle as pages are. States are kept where checkpoints
 * are taken and where a sequence is given up, whatever the length is. Where
 * that lies within a page a leaf has the state, and the page as far as it was
 * filled; the sequence goes on in a copy of that page.
 *
 * A node is fresh from when it gets a page or a state until somebody has taken
 * a copy of it (state/state_page.c): so tiers behind the devices' memory can
 * have all that is kept before it goes.
 *
 * All memory is taken at the beginning. A tree that can take no more leaves the
 * tokens of a sequence unknown from there on. */
#ifndef KV_PREFIX_H
#define KV_PREFIX_H

#include "kv/pages.h"

struct prefix_node {
    int parent; /* -1: it begins at position 0 */
    int next;   /* in its bucket, or among the unused; -1: the last */
    int n_user; /* children, and sequences whose last full page it is */
    int n_tok;  /* PAGE_TOKENS; fewer: a leaf for its state; 0: unused */
    int32_t token[PAGE_TOKENS];
    int32_t page[PL_MAX_POOL]; /* or slot; -1: none is held */
    bool dirty;
    int fresh_next, fresh_before; /* in the ring of fresh ones */
};

/* A sequence's tokens, as far as they are known. */
struct prefix_seq {
    int64_t n;
    int node;                   /* of its last full page; -1: it has none */
    int32_t token[PAGE_TOKENS]; /* [n % PAGE_TOKENS], what stands behind */
};

struct prefix {
    int n_node, unused;       /* unused: the first one, -1: all are used */
    uint64_t mask;            /* of a hash: its bucket */
    struct prefix_node *node; /* owned, [n_node + 1]; the last is no node: the
                                 ring of fresh ones begins and ends there */
    int *bucket;              /* owned, [mask + 1] first node; -1: none */
    struct prefix_seq *seq;   /* owned, [2 * kv->n_seq] */
};

/* From here on prefixes are kept; every sequence must be empty. Without it the
 * others do nothing. */
pl_status prefix_init(struct kv *kv, pl_err *err);
void prefix_fini(struct kv *kv);

/* n tokens at position `pos` of a sequence have come: full pages enter the
 * tree. Before kv_trim_windows, so that windows still have them. */
void prefix_insert(struct kv *kv, int seq, int64_t pos, const int32_t *token,
                   int64_t n);
/* The state that a sequence is in enters the tree. */
void prefix_insert_state(struct kv *kv, int seq);
/* An empty sequence gets the longest kept prefix of token[0 .. most - 1]; its
 * length. Takes no page. */
int64_t prefix_match(struct kv *kv, int seq, const int32_t *token,
                     int64_t most);
/* The length that prefix_match would find. */
int64_t prefix_match_length(const struct kv *kv, const int32_t *token,
                            int64_t most);

/* The node that is fresh for the longest time; -1: none is. */
int prefix_next_dirty(const struct kv *kv);
/* It is fresh no longer; -1: nothing. */
void prefix_mark_clean(struct kv *kv, int node);
/* The node of a sequence's last full page or, if it ends within a page, of the
 * leaf that has its state; -1: none. */
int prefix_node_of(const struct kv *kv, int seq);
/* The tokens of a node's path, [n_ctx]; their number. */
int64_t prefix_path(const struct kv *kv, int node, int32_t *token);

/* All nodes go, and no sequence's tokens are known: what computes them has
 * changed. Only who is emptied is known again. */
void prefix_clear(struct kv *kv);

/* What pages.c and states.c tell and ask ---------------------------------- */

/* Makes free the page that is idle for the longest time; false: none is. */
bool prefix_evict_lru(struct kv *kv, int pool);
/* A node lets go of a page that one sequence holds, where no page is free or
 * idle to copy it to. */
void prefix_detach_page(struct kv *kv, int pool, int32_t page);
/* The page is idle from now on; or no longer. */
void prefix_lru_add(struct kv_pool *p, int32_t page);
void prefix_lru_remove(struct kv_pool *p, int32_t page);
void prefix_trim(struct kv *kv, int seq, int64_t n);
/* dst is empty. */
void prefix_copy(struct kv *kv, int dst, int src);
void prefix_swap(struct kv *kv, int a, int b);

#endif
