/* Page tables of the KV cache. A page holds PAGE_TOKENS token positions; the
 * table of a sequence lists the pages that hold its positions.
 *
 * Caches that keep the same tokens form a pool, and the pages of each pool are
 * numbered from 0. In each pool a sequence has a table row of page numbers,
 * indexed by position / PAGE_TOKENS. Pages are reference-counted, so a copy of
 * a sequence shares all full pages of the original. A pool with a sliding
 * window frees the pages that no later token attends to. This module only keeps
 * page numbers. The contents of pages are on the devices; a callback of the
 * caller copies them when needed.
 *
 * A pool of states is for recurrent layers. In it a sequence has a state slot
 * with its state after its last token. A step reads that slot and writes the
 * new state to a second one, which replaces the first when the step has
 * succeeded. So a failed step changes nothing. State slots are
 * reference-counted like pages, and copies of a sequence share a slot. A
 * checkpoint is a reference to the slot of an earlier length, so that the
 * sequence can be trimmed to that length. */
#ifndef KV_PAGES_H
#define KV_PAGES_H

#include "graph/graph.h"

/* A pool of pages or of state slots. Row `seq` of `table` belongs to sequence
 * `seq`. Elements first[seq] .. kv_pages_of(length) - 1 of the row are page
 * numbers; elements before first[seq] are -1. In a pool of states the row has
 * STATE_WORDS words (graph.h), in which -1 stands for no slot. */
struct kv_pool {
    bool state;
    /* Number of tokens that a token attends to, including itself; 0 if it
     * attends to all. */
    int64_t window;
    int n_page;
    /* Owned, [2 * n_seq, stride]: page numbers of each sequence. */
    int32_t *table;
    /* Owned, [2 * n_seq]: index in the row of the first page that each sequence
     * holds. */
    int32_t *first;
    int32_t *refs; /* owned, [n_page]: reference count of each page */
    int32_t *free; /* owned, [n_page]: stack of free page numbers */
    int n_free;
    /* Data of the prefix cache (prefix.h). The two pointers are NULL if it is
     * off. */
    int32_t *holder; /* owned, [n_page] prefix tree node that references
                        the page, or -1 */
    struct lru_link
        *evictable; /* owned, [n_page + 1] LRU ring of evictable pages */
    int n_evictable;
    /* Timestamp for LRU order. Increased whenever a page becomes evictable and
     * whenever a checkpoint is used. */
    uint64_t clock;
};

/* The element of the LRU ring for an evictable page: a page that only a node of
 * the prefix tree references. `since` is the time of its last use. */
struct lru_link {
    int32_t next, before;
    uint64_t since;
};

/* A checkpoint: the state of sequence `seq` after n tokens is in `slot`. `used`
 * is the time of its last use. */
struct kv_checkpoint {
    int seq;
    int64_t n;
    int32_t slot;
    uint64_t used;
};

/* The page tables of an engine. Arrays over sequences have 2 * n_seq elements,
 * because each sequence has a shadow with the number kv_shadow_seq(kv, seq). A
 * restore assembles new contents in the shadow and then swaps it with the
 * sequence, so that a failure changes nothing. */
struct kv {
    int n_seq, stride; /* stride: number of elements of a table row */
    int64_t *length; /* owned, [2 * n_seq]: length of each sequence in tokens */
    int n_pool;
    struct kv_pool pool[PL_MAX_POOL];

    int states; /* index in pool[] of the pool of states, or -1 */
    int n_checkpoint, max_checkpoint;
    struct kv_checkpoint *checkpoint; /* owned, [max_checkpoint], n_checkpoint
                                         of them used */

    struct prefix *prefix; /* owned: the prefix tree; NULL if it is off */
};

/* Initializes *kv with n_seq empty sequences. `stride` is the number of
 * elements of a table row: the pages of a whole context. n_page[k] is the
 * number of pages, or state slots, of the graph's pool k. */
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
/* Returns the index in a table row of the first page to which a token at
 * position n attends, in a pool with this window (0: none). */
static inline int kv_first_visible(int64_t window, int64_t n)
{
    return window > 0 && n >= window ? (int)((n - window + 1) / PAGE_TOKENS)
                                     : 0;
}
/* Pools with windows keep this number of tokens in addition to the window. So a
 * sequence can be trimmed by up to this number of tokens at least once. */
enum { KV_MIN_TRIM = PAGE_TOKENS };
/* Returns the index in a table row of the first page that a sequence of n
 * tokens keeps, in a pool with this window. */
static inline int kv_first_kept(int64_t window, int64_t n)
{
    return kv_first_visible(window, n > KV_MIN_TRIM ? n - KV_MIN_TRIM : 0);
}
/* Returns the number of pages that a pool must have. Without a window it is
 * `stride`, the pages of a whole context, which all sequences share. With a
 * window it is the pages that n_seq sequences keep, and those of n_run new
 * tokens in a step, whichever sequences they belong to. */
int kv_pages_planned(int64_t window, int stride, int64_t n_seq, int64_t n_run);

/* Returns the number of slots that a pool of states must have. Each sequence
 * needs two, one that a step reads and one that it writes; each checkpoint
 * needs one. */
static inline int kv_states_planned(int64_t n_seq, int n_checkpoint)
{
    return (int)(2 * n_seq) + n_checkpoint;
}

/* Returns the number of pages of a pool that can be allocated: free ones and
 * evictable ones. */
static inline int kv_free_pages(const struct kv *kv, int pool)
{
    return kv->pool[pool].n_free + kv->pool[pool].n_evictable;
}
/* Returns the number of sequences and checkpoints that reference a page or
 * slot. The prefix tree's reference is not counted. */
static inline int kv_seq_refs(const struct kv_pool *p, int32_t page)
{
    return p->refs[page] - (p->holder && p->holder[page] >= 0);
}

/* Returns the number of pages to allocate in a pool for n more tokens of `seq`.
 * It includes a page to copy the last page to, if other sequences share that.
 * If `past`, the tokens are restored, not computed: the next step computes the
 * token after them. So a pool with a window needs no pages to which that token
 * does not attend. */
int kv_pages_needed(const struct kv *kv, int pool, int seq, int64_t n,
                    bool past);
/* Reserves pages for n more tokens of `seq`, as many as kv_pages_needed
 * returns. If the last page is partly filled and shared, `copy` copies it and
 * the sequence gets the copy, because the new tokens are written to it. Returns
 * PL_FULL and changes nothing if too few pages can be allocated. */
pl_status kv_reserve(struct kv *kv, int seq, int64_t n, bool past,
                     kv_copy_fn *copy, void *user, pl_err *err);
/* Frees the pages that kv_reserve reserved for n tokens, which were then not
 * computed, for example because the step failed. */
void kv_cancel_reserve(struct kv *kv, int seq, int64_t n);
/* Adds the n tokens for which kv_reserve reserved pages to the length of `seq`.
 * If `past` (kv_pages_needed), pools with windows release the pages to which
 * the next token does not attend. */
void kv_commit(struct kv *kv, int seq, int64_t n, bool past);
/* Releases pages of `seq` that pools with windows no longer keep. In a pool of
 * states, replaces the current state of `seq` by the one that the last step
 * wrote. Called after the step that computed the tokens. */
void kv_trim_windows(struct kv *kv, int seq);
/* Keeps the current state of a sequence as a checkpoint, so that the sequence
 * can later be trimmed to its present length. If there are max_checkpoint
 * already, evicts the one that was not used for the longest time. Does nothing
 * without a pool of states. */
void kv_checkpoint(struct kv *kv, int seq);
/* Returns the smallest length above 0 to which `seq` can be trimmed, as far as
 * pools with windows are concerned: from that length on they still hold all
 * pages to which the next token attends. Returns 0 if any length is
 * possible. */
int64_t kv_min_length(const struct kv *kv, int seq);
/* Returns the greatest length, at most n, to which `seq` can be trimmed: all
 * pages to which the token after that length attends are still held, and so is
 * the state at that length. */
int64_t kv_trimmable_length(const struct kv *kv, int seq, int64_t n);
/* Trims a sequence to its first n tokens and releases the pages of all others.
 * Requires that kv_trimmable_length(kv, seq, n) is n, or that n was the length
 * before a step that failed. */
void kv_trim(struct kv *kv, int seq, int64_t n);
/* Empties dst and makes it a copy of src. The two share all full pages; `copy`
 * copies a partly filled last page. */
pl_status kv_copy(struct kv *kv, int dst, int src, kv_copy_fn *copy, void *user,
                  pl_err *err);

static inline int kv_shadow_seq(const struct kv *kv, int seq)
{
    return kv->n_seq + seq;
}
/* Makes dst, an empty sequence, share the pages of the first n tokens of
 * src. */
void kv_share(struct kv *kv, int dst, int src, int64_t n);
/* Swaps the contents of two sequences. */
void kv_swap(struct kv *kv, int a, int b);
/* Returns how many tokens from the start of `a` are in pages that `b` holds,
 * too: a multiple of PAGE_TOKENS, or the whole length of `a`. In a pool with a
 * window only pages to which later tokens of `a` attend are compared, and later
 * tokens of `b` must attend to them, too. */
int64_t kv_shared_length(const struct kv *kv, int a, int b);
/* Returns the number of pages of a pool that emptying `seq` would make free or
 * evictable: those that no other sequence references. */
int kv_private_pages(const struct kv *kv, int pool, int seq);

static inline int32_t kv_page(const struct kv *kv, int pool, int seq,
                              int64_t pos)
{
    return kv->pool[pool].table[(int64_t)seq * kv->stride + pos / PAGE_TOKENS];
}

/* Returns the state slot with the state of `seq` after n tokens. Requires a
 * pool of states, and that the state is still held: kv_trimmable_length(kv,
 * seq, n) must be n. */
int32_t kv_state(const struct kv *kv, int seq, int64_t n);
/* Returns the state slot to which the next step of `seq` writes. kv_reserve
 * must have reserved it. */
int32_t kv_state_written(const struct kv *kv, int seq);

#endif
