/* Pages of caches: who holds which PAGE_TOKENS positions.
 *
 * Caches that keep the same tokens make a pool, whose pages have numbers of
 * their own. In each pool a sequence has a table from position / PAGE_TOKENS to
 * a page; pages are counted by references, so that a copy of a sequence shares
 * all its full pages. A pool with a window gives up the pages that no later
 * token sees. Only numbers live here: the pages' contents are on the devices,
 * and the caller copies them when told to.
 *
 * In a pool of states a sequence has one slot, which holds its state after its
 * last token. A run reads that slot and writes another, which takes its place
 * when the run is over: so a run that fails has changed nothing. Slots are
 * counted too: copies share one, and a checkpoint keeps a past one, to which
 * the sequence can be trimmed. */
#ifndef KV_PAGES_H
#define KV_PAGES_H

#include "graph/graph.h"

/* A sequence holds the pages first .. kv_pages_of(length) - 1 of its row; those
 * before are -1. Of states its row has STATE_WORDS words (graph.h), slots that
 * it does not hold being -1. */
struct kv_pool {
    bool state;
    int64_t window; /* tokens that a token sees, itself among them; 0: all */
    int n_page;
    int32_t *table; /* owned, [2 * n_seq, stride] */
    int32_t *first; /* owned, [2 * n_seq] */
    int32_t *refs;  /* owned, [n_page] */
    int32_t *free;  /* owned, [n_page] stack of free pages */
    int n_free;
    /* Where prefixes are kept (prefix.h), else NULL. */
    int32_t *holder;       /* owned, [n_page] node that holds it; -1: none */
    struct lru_link *idle; /* owned, [n_page + 1] ring of idle pages */
    int n_idle;
    uint64_t clock; /* counts uses, of idle pages and of checkpoints */
};

/* A page that only a node of the tree of prefixes holds. */
struct lru_link {
    int32_t next, before;
    uint64_t since;
};

/* The state that a sequence was in after n tokens. */
struct kv_checkpoint {
    int seq;
    int64_t n;
    int32_t slot;
    uint64_t used;
};

/* Each sequence has a stand-in, sequence kv_shadow_seq(kv, seq), where a new
 * past can be put together before it takes the old one's place. */
struct kv {
    int n_seq, stride; /* stride: words of a row */
    int64_t *length;   /* owned, [2 * n_seq] tokens held */
    int n_pool;
    struct kv_pool pool[PL_MAX_POOL];

    int states; /* the pool of states, -1: there is none */
    int n_checkpoint, max_checkpoint;
    struct kv_checkpoint *checkpoint; /* owned, [max_checkpoint] */

    struct prefix *prefix; /* owned; NULL: none are kept */
};

/* n_page: of each of the graph's pools. */
pl_status kv_init(struct kv *kv, int n_seq, int stride, const pl_graph *g,
                  const int *n_page, pl_err *err);
void kv_fini(struct kv *kv);

/* Copies the contents of page `from` of a pool to page `to` on all devices. */
typedef pl_status kv_copy_fn(void *user, int pool, int from, int to,
                             pl_err *err);

/* Pages that n tokens take. */
static inline int kv_pages_of(int64_t n)
{
    return (int)((n + PAGE_TOKENS - 1) / PAGE_TOKENS);
}
/* The first page that a token at position n sees. */
static inline int kv_first_visible(int64_t window, int64_t n)
{
    return window > 0 && n >= window ? (int)((n - window + 1) / PAGE_TOKENS)
                                     : 0;
}
/* Tokens by which a sequence can be trimmed that was not trimmed before. */
enum { KV_MIN_TRIM = PAGE_TOKENS };
/* The first page that is kept of n tokens. */
static inline int kv_first_kept(int64_t window, int64_t n)
{
    return kv_first_visible(window, n > KV_MIN_TRIM ? n - KV_MIN_TRIM : 0);
}
/* Pages that a pool needs, where `stride` are a context: with a window, what
 * n_seq sequences keep and what n_run tokens more of some of them take. */
int kv_pages_planned(int64_t window, int stride, int64_t n_seq, int64_t n_run);

/* Slots of a pool of states: of each sequence the one that is read and the one
 * that is written, and what is left is for checkpoints. */
static inline int kv_states_planned(int64_t n_seq, int n_checkpoint)
{
    return (int)(2 * n_seq) + n_checkpoint;
}

/* Pages of a pool that are free or can be made free. */
static inline int kv_free_pages(const struct kv *kv, int pool)
{
    return kv->pool[pool].n_free + kv->pool[pool].n_idle;
}
/* So many sequences hold a page, copies and checkpoints counted too. */
static inline int kv_seq_refs(const struct kv_pool *p, int32_t page)
{
    return p->refs[page] - (p->holder && p->holder[page] >= 0);
}

/* Of these, what n more tokens of a sequence would take. `past`:
 * they are all in the past when the next one comes, so that windows skip what
 * that one does not see. */
int kv_pages_needed(const struct kv *kv, int pool, int seq, int64_t n,
                    bool past);
/* Makes room for n more tokens; a shared page that would be written is copied
 * first. FULL, with nothing changed, if pages are short. */
pl_status kv_reserve(struct kv *kv, int seq, int64_t n, bool past,
                     kv_copy_fn *copy, void *user, pl_err *err);
/* Gives reserved pages back: the n tokens did not come. */
void kv_cancel_reserve(struct kv *kv, int seq, int64_t n);
/* The reserved tokens are there now; if they are in the past, a window has
 * nothing before those that the next one sees. */
void kv_commit(struct kv *kv, int seq, int64_t n, bool past);
/* The run in which they came is over: windows give up what they do not keep. */
void kv_trim_windows(struct kv *kv, int seq);
/* Keeps the state that a sequence is in, to go back to, until its slot is
 * needed; the longest unused go first. Nothing where there are no states. */
void kv_checkpoint(struct kv *kv, int seq);
/* The least length, 0 apart, at which windows hold what the tokens behind it
 * see. */
int64_t kv_min_length(const struct kv *kv, int seq);
/* The greatest length of at most n that a sequence can be trimmed to: what the
 * tokens behind it see is still held, and so is the state there. */
int64_t kv_trimmable_length(const struct kv *kv, int seq, int64_t n);
/* Keeps the first n tokens, and no page beyond; kv_trimmable_length() must be
 * n, or be the length before a run that failed. */
void kv_trim(struct kv *kv, int seq, int64_t n);
/* dst, emptied, becomes src; a partly filled last page is copied. */
pl_status kv_copy(struct kv *kv, int dst, int src, kv_copy_fn *copy, void *user,
                  pl_err *err);

static inline int kv_shadow_seq(const struct kv *kv, int seq)
{
    return kv->n_seq + seq;
}
/* dst, which is empty, gets the first n tokens of src, in the same pages. */
void kv_share(struct kv *kv, int dst, int src, int64_t n);
/* Two sequences change places. */
void kv_swap(struct kv *kv, int a, int b);
/* Tokens at the beginning of `a` that are in pages of `b` too: whole pages, or
 * all of `a`. With windows: what the tokens behind `a` see of them is among
 * what those behind `b` see. */
int64_t kv_shared_length(const struct kv *kv, int a, int b);
/* Pages of a pool that would be available if the sequence were emptied. */
int kv_private_pages(const struct kv *kv, int pool, int seq);

static inline int32_t kv_page(const struct kv *kv, int pool, int seq,
                              int64_t pos)
{
    return kv->pool[pool].table[(int64_t)seq * kv->stride + pos / PAGE_TOKENS];
}

/* Where there are states: the slot with the one after n tokens, which is kept
 * (kv_trimmable_length). */
int32_t kv_state(const struct kv *kv, int seq, int64_t n);
/* The slot that a sequence's next state is written to; it was reserved. */
int32_t kv_state_written(const struct kv *kv, int seq);

#endif
