/* Page tables of caches: which sequences hold which PAGE_TOKENS positions.
 *
 * Caches that keep the same tokens form a pool, whose pages have their own
 * numbers. In each pool a sequence has a table from position / PAGE_TOKENS to a
 * page. Pages are reference-counted, so that a copy of a sequence shares all
 * its full pages. A pool with a window frees the pages that no later token
 * sees. Only numbers are kept here. The pages' contents are on the devices, and
 * a callback copies them when needed.
 *
 * In a pool of states a sequence has one state slot, which holds its state
 * after its last token. A step reads that slot and writes another, which
 * replaces it when the step is over. So a failed step changes nothing. Slots
 * are reference-counted too: copies share one, and a checkpoint keeps a past
 * one, to which the sequence can be trimmed. */
#ifndef KV_PAGES_H
#define KV_PAGES_H

#include "graph/graph.h"

/* A sequence holds the pages first .. kv_pages_of(length) - 1 of its row; those
 * before are -1. In a pool of states its row has STATE_WORDS words (graph.h);
 * slots that it does not hold are -1. */
struct kv_pool {
    bool state;
    int64_t window; /* tokens that a token sees, including itself; 0: all */
    int n_page;
    int32_t *table; /* owned, [2 * n_seq, stride] */
    int32_t *first; /* owned, [2 * n_seq] */
    int32_t *refs;  /* owned, [n_page] */
    int32_t *free;  /* owned, [n_page] stack of free pages */
    int n_free;
    /* If prefixes are cached (prefix.h), else NULL. */
    int32_t *holder; /* owned, [n_page] node that holds the page, or -1 */
    struct lru_link
        *evictable; /* owned, [n_page + 1] LRU ring of evictable pages */
    int n_evictable;
    uint64_t clock; /* counts uses of evictable pages and checkpoints */
};

/* A page that only a node of the prefix tree holds. */
struct lru_link {
    int32_t next, before;
    uint64_t since;
};

/* The state of a sequence after n tokens. */
struct kv_checkpoint {
    int seq;
    int64_t n;
    int32_t slot;
    uint64_t used;
};

/* Each sequence has a shadow, sequence kv_shadow_seq(kv, seq), where a new past
 * can be assembled before it replaces the old one. */
struct kv {
    int n_seq, stride; /* stride: words of a row */
    int64_t *length;   /* owned, [2 * n_seq] tokens held */
    int n_pool;
    struct kv_pool pool[PL_MAX_POOL];

    int states; /* the pool of states, or -1 */
    int n_checkpoint, max_checkpoint;
    struct kv_checkpoint *checkpoint; /* owned, [max_checkpoint] */

    struct prefix *prefix; /* owned; NULL: prefixes are not cached */
};

/* n_page: for each of the graph's pools. */
pl_status kv_init(struct kv *kv, int n_seq, int stride, const pl_graph *g,
                  const int *n_page, pl_err *err);
void kv_fini(struct kv *kv);

/* Copies the contents of page `from` of a pool to page `to` on all devices. */
typedef pl_status kv_copy_fn(void *user, int pool, int from, int to,
                             pl_err *err);

/* Returns the pages that n tokens need. */
static inline int kv_pages_of(int64_t n)
{
    return (int)((n + PAGE_TOKENS - 1) / PAGE_TOKENS);
}
/* Returns the first page that a token at position n sees. */
static inline int kv_first_visible(int64_t window, int64_t n)
{
    return window > 0 && n >= window ? (int)((n - window + 1) / PAGE_TOKENS)
                                     : 0;
}
/* Every sequence can be trimmed by this many tokens at least once. */
enum { KV_MIN_TRIM = PAGE_TOKENS };
/* Returns the first page that is kept of n tokens. */
static inline int kv_first_kept(int64_t window, int64_t n)
{
    return kv_first_visible(window, n > KV_MIN_TRIM ? n - KV_MIN_TRIM : 0);
}
/* Returns the pages that a pool needs; `stride` pages hold a context. With a
 * window it needs what n_seq sequences keep and n_run further tokens of some of
 * them. */
int kv_pages_planned(int64_t window, int stride, int64_t n_seq, int64_t n_run);

/* Returns the slots of a pool of states: two for each sequence, one read and
 * one written, and those for checkpoints. */
static inline int kv_states_planned(int64_t n_seq, int n_checkpoint)
{
    return (int)(2 * n_seq) + n_checkpoint;
}

/* Returns the pages of a pool that are free or evictable. */
static inline int kv_free_pages(const struct kv *kv, int pool)
{
    return kv->pool[pool].n_free + kv->pool[pool].n_evictable;
}
/* Returns how many sequences hold a page, including copies and checkpoints. */
static inline int kv_seq_refs(const struct kv_pool *p, int32_t page)
{
    return p->refs[page] - (p->holder && p->holder[page] >= 0);
}

/* Returns how many pages n more tokens of `seq` need. If `past`, the tokens
 * precede the next query, so a window skips pages that the query cannot see. */
int kv_pages_needed(const struct kv *kv, int pool, int seq, int64_t n,
                    bool past);
/* Reserves pages for n more tokens. A shared page that would be written is
 * copied first. Returns FULL, with nothing changed, if too few pages are
 * free. */
pl_status kv_reserve(struct kv *kv, int seq, int64_t n, bool past,
                     kv_copy_fn *copy, void *user, pl_err *err);
/* Frees the reserved pages: the n tokens were not computed. */
void kv_cancel_reserve(struct kv *kv, int seq, int64_t n);
/* Commits the reserved tokens. If they are past, a window keeps nothing before
 * those that the next token sees. */
void kv_commit(struct kv *kv, int seq, int64_t n, bool past);
/* Frees what windows do not keep, after the step that computed the tokens. */
void kv_trim_windows(struct kv *kv, int seq);
/* Keeps the sequence's current state for later trims, until its slot is needed;
 * the least recently used ones are evicted first. Does nothing without
 * states. */
void kv_checkpoint(struct kv *kv, int seq);
/* Returns the smallest length except 0 at which windows hold what later tokens
 * see. */
int64_t kv_min_length(const struct kv *kv, int seq);
/* Returns the greatest length of at most n that a sequence can be trimmed to.
 * What later tokens see is still held there, and so is the state. */
int64_t kv_trimmable_length(const struct kv *kv, int seq, int64_t n);
/* Keeps the first n tokens, and no page beyond. kv_trimmable_length() must be
 * n, or n must be the length before a failed step. */
void kv_trim(struct kv *kv, int seq, int64_t n);
/* Empties dst and makes it a copy of src; a partly filled last page is
 * copied. */
pl_status kv_copy(struct kv *kv, int dst, int src, kv_copy_fn *copy, void *user,
                  pl_err *err);

static inline int kv_shadow_seq(const struct kv *kv, int seq)
{
    return kv->n_seq + seq;
}
/* Gives dst, which is empty, the first n tokens of src, in the same pages. */
void kv_share(struct kv *kv, int dst, int src, int64_t n);
/* Swaps two sequences. */
void kv_swap(struct kv *kv, int a, int b);
/* Returns how many tokens at the beginning of `a` are in pages of `b` too:
 * whole pages, or all of `a`. With windows, what later tokens of `a` see of
 * them must be among what later tokens of `b` see. */
int64_t kv_shared_length(const struct kv *kv, int a, int b);
/* Returns the pages of a pool that would become available if the sequence were
 * emptied. */
int kv_private_pages(const struct kv *kv, int pool, int seq);

static inline int32_t kv_page(const struct kv *kv, int pool, int seq,
                              int64_t pos)
{
    return kv->pool[pool].table[(int64_t)seq * kv->stride + pos / PAGE_TOKENS];
}

/* With states only: returns the slot of the state after n tokens, which must be
 * kept (kv_trimmable_length). */
int32_t kv_state(const struct kv *kv, int seq, int64_t n);
/* Returns the slot that a sequence's next state is written to; it must be
 * reserved. */
int32_t kv_state_written(const struct kv *kv, int seq);

#endif
