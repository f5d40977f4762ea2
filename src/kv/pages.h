/* Page tables of the KV cache. A page holds PAGE_TOKENS token positions; the
 * table of a sequence lists the pages that hold its positions.
 *
 * Caches that keep the same tokens form a pool. Pages are numbered separately
 * in each pool. In each pool a sequence has a table, indexed by position /
 * PAGE_TOKENS, of page numbers. Pages are reference-counted, so that a copy of
 * a sequence shares all full pages of the original. A pool with a sliding
 * window frees the pages that no later token attends to. This module keeps page
 * numbers only. The contents of pages are on the devices; a callback copies
 * them when needed.
 *
 * A pool of states is for recurrent layers. There a sequence has one state
 * slot, which holds the sequence's state after its last token. A step reads
 * that slot and writes the new state to another slot, which replaces the first
 * one once the step has succeeded. So a failed step changes nothing. State
 * slots are reference-counted like pages. Copies of a sequence share a slot. A
 * checkpoint keeps the slot of an earlier length, so that the sequence can be
 * trimmed to that length. */
#ifndef KV_PAGES_H
#define KV_PAGES_H

#include "graph/graph.h"

/* A pool of pages or of state slots. Row `seq` of `table` belongs to sequence
 * `seq`. Entries first[seq] .. kv_pages_of(length) - 1 of the row are pages;
 * entries before first[seq] are -1. In a pool of states the row has STATE_WORDS
 * words (graph.h), where -1 stands for no slot. */
struct kv_pool {
    bool state;
    int64_t window; /* number of tokens that a token attends to, including
                       itself, 0 for all */
    int n_page;
    int32_t *table; /* owned, [2 * n_seq, stride] */
    int32_t *first; /* owned, [2 * n_seq] first held entry of the row */
    int32_t *refs;  /* owned, [n_page] reference counts */
    int32_t *free;  /* owned, [n_page] stack of free pages */
    int n_free;
    /* The prefix cache (prefix.h). Pointers are NULL if prefixes are not
     * cached. */
    int32_t *holder; /* owned, [n_page] prefix tree node that references
                              the page, or -1 */
    struct lru_link
        *evictable; /* owned, [n_page + 1] LRU ring of evictable pages */
    int n_evictable;
    uint64_t clock; /* timestamp for LRU order, increased at each use of an
                       evictable page or a checkpoint */
};

/* An entry of the LRU ring: a page that only a node of the prefix tree
 * references. */
struct lru_link {
    int32_t next, before;
    uint64_t since;
};

/* A kept state slot: the state of sequence `seq` after n tokens. */
struct kv_checkpoint {
    int seq;
    int64_t n;
    int32_t slot;
    uint64_t used;
};

/* Arrays over sequences have 2 * n_seq entries, because each sequence has a
 * shadow, kv_shadow_seq(kv, seq). New contents of a sequence are assembled in
 * the shadow and then swapped with the old ones. */
struct kv {
    int n_seq, stride; /* stride: entries per row of a table */
    int64_t *length;   /* owned, [2 * n_seq] number of tokens */
    int n_pool;
    struct kv_pool pool[PL_MAX_POOL];

    int states; /* index of the pool of states, or -1 */
    int n_checkpoint, max_checkpoint;
    struct kv_checkpoint *checkpoint; /* owned, [max_checkpoint] */

    struct prefix *prefix; /* owned; NULL if prefixes are not cached */
};

/* Initializes *kv with n_seq empty sequences. `stride` is the number of entries
 * per table row. n_page[k] is the number of pages, or state slots, of the
 * graph's pool k. */
pl_status kv_init(struct kv *kv, int n_seq, int stride, const pl_graph *g,
                  const int *n_page, pl_err *err);
void kv_fini(struct kv *kv);

/* A callback that copies the contents of page `from` to page `to`, for all
 * caches of a pool and on all devices. */
typedef pl_status kv_copy_fn(void *user, int pool, int from, int to,
                             pl_err *err);

/* Returns the number of pages that n tokens occupy. */
static inline int kv_pages_of(int64_t n)
{
    return (int)((n + PAGE_TOKENS - 1) / PAGE_TOKENS);
}
/* Returns the index, within a table row, of the first page that a token at
 * position n attends to. */
static inline int kv_first_visible(int64_t window, int64_t n)
{
    return window > 0 && n >= window ? (int)((n - window + 1) / PAGE_TOKENS)
                                     : 0;
}
/* Pools with windows keep this many additional tokens, so that a sequence can
 * be trimmed by up to this number of tokens at least once. */
enum { KV_MIN_TRIM = PAGE_TOKENS };
/* Returns the index, within a table row, of the first page that is kept for a
 * sequence of n tokens. */
static inline int kv_first_kept(int64_t window, int64_t n)
{
    return kv_first_visible(window, n > KV_MIN_TRIM ? n - KV_MIN_TRIM : 0);
}
/* Returns the number of pages that a pool needs. Without a window that is
 * `stride`, the number of pages of a whole context. With a window the pool
 * needs the pages that n_seq sequences keep and those of n_run new tokens,
 * which belong to any of the sequences. */
int kv_pages_planned(int64_t window, int stride, int64_t n_seq, int64_t n_run);

/* Returns the number of slots of a pool of states. Each sequence needs two, one
 * to read and one to write; each checkpoint needs one. */
static inline int kv_states_planned(int64_t n_seq, int n_checkpoint)
{
    return (int)(2 * n_seq) + n_checkpoint;
}

/* Returns the number of pages of a pool that are free or evictable. */
static inline int kv_free_pages(const struct kv *kv, int pool)
{
    return kv->pool[pool].n_free + kv->pool[pool].n_evictable;
}
/* Returns the number of references to a page or slot by sequences and
 * checkpoints, not counting the prefix tree. */
static inline int kv_seq_refs(const struct kv_pool *p, int32_t page)
{
    return p->refs[page] - (p->holder && p->holder[page] >= 0);
}

/* Returns the number of pages to allocate for n more tokens of `seq`, including
 * one for a copy of a shared last page. If `past`, the n tokens are restored,
 * not computed. A pool with a window then needs no pages for tokens that the
 * token after them does not attend to. */
int kv_pages_needed(const struct kv *kv, int pool, int seq, int64_t n,
                    bool past);
/* Reserves pages for n more tokens of `seq`; `past` as for kv_pages_needed. If
 * the last page is partly filled and shared, the sequence gets a copy of it,
 * made by `copy`, because the new tokens are written to it. Returns FULL and
 * changes nothing if too few pages are available. */
pl_status kv_reserve(struct kv *kv, int seq, int64_t n, bool past,
                     kv_copy_fn *copy, void *user, pl_err *err);
/* Frees the pages reserved for n tokens that were not computed, such as those
 * of a failed step. */
void kv_cancel_reserve(struct kv *kv, int seq, int64_t n);
/* Appends the n reserved tokens to the length of `seq`. If `past`, pools with
 * windows drop the pages that the next token does not attend to. */
void kv_commit(struct kv *kv, int seq, int64_t n, bool past);
/* Frees the pages that pools with windows need not keep any longer. Called
 * after the step that computed the tokens. */
void kv_trim_windows(struct kv *kv, int seq);
/* Keeps the current state of the sequence as a checkpoint, so that the sequence
 * can later be trimmed to this length. If state slots run short, the least
 * recently used checkpoints are evicted. Does nothing without a pool of
 * states. */
void kv_checkpoint(struct kv *kv, int seq);
/* Returns the smallest length above 0 to which pools with windows allow `seq`
 * to be trimmed: all pages that later tokens attend to are still held. Returns
 * 0 if `seq` can be trimmed to any length. */
int64_t kv_min_length(const struct kv *kv, int seq);
/* Returns the greatest length, at most n, to which a sequence can be trimmed.
 * At that length all pages that later tokens attend to, and the state, are
 * still held. */
int64_t kv_trimmable_length(const struct kv *kv, int seq, int64_t n);
/* Trims a sequence to its first n tokens and releases the pages of the other
 * tokens. kv_trimmable_length(kv, seq, n) must be n, or n must be the length
 * before a failed step. */
void kv_trim(struct kv *kv, int seq, int64_t n);
/* Empties dst and makes it a copy of src. Full pages are shared; a partly
 * filled last page is copied by `copy`. */
pl_status kv_copy(struct kv *kv, int dst, int src, kv_copy_fn *copy, void *user,
                  pl_err *err);

static inline int kv_shadow_seq(const struct kv *kv, int seq)
{
    return kv->n_seq + seq;
}
/* Makes the empty sequence dst share the pages of the first n tokens of src. */
void kv_share(struct kv *kv, int dst, int src, int64_t n);
/* Swaps the contents of two sequences. */
void kv_swap(struct kv *kv, int a, int b);
/* Returns how many tokens at the start of `a` are in pages that `b` shares: a
 * multiple of PAGE_TOKENS, or the whole length of `a`. In a pool with a window,
 * b must also need all of these pages that later tokens of `a` attend to. */
int64_t kv_shared_length(const struct kv *kv, int a, int b);
/* Returns the number of pages of a pool that would become free or evictable if
 * the sequence were emptied. */
int kv_private_pages(const struct kv *kv, int pool, int seq);

static inline int32_t kv_page(const struct kv *kv, int pool, int seq,
                              int64_t pos)
{
    return kv->pool[pool].table[(int64_t)seq * kv->stride + pos / PAGE_TOKENS];
}

/* Returns the slot of the state after n tokens. The state must be held
 * (kv_trimmable_length returns n). Requires a pool of states. */
int32_t kv_state(const struct kv *kv, int seq, int64_t n);
/* Returns the slot that the next step writes the sequence's state to. The slot
 * must have been reserved by kv_reserve. */
int32_t kv_state_written(const struct kv *kv, int seq);

#endif
