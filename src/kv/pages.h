/* Pages of the cache: who holds which PAGE_TOKENS positions.
 *
 * Sequences have a table from position / PAGE_TOKENS to a page; pages are
 * counted by references, so that a copy of a sequence shares all its full
 * pages. Only numbers live here: the pages' contents are on the devices, and
 * the caller copies them when told to. */
#ifndef KV_PAGES_H
#define KV_PAGES_H

#include "graph/graph.h"

/* Each sequence has a stand-in, sequence kv_stand_in(kv, seq), where a new past
 * can be put together before it takes the old one's place. */
struct kv_pages {
    int n_seq, n_page, stride; /* stride: pages a sequence may have */
    int32_t *table;            /* owned, [2 * n_seq, stride] */
    int64_t *length;           /* owned, [2 * n_seq] tokens held */
    int32_t *refs;             /* owned, [n_page] */
    int32_t *free;             /* owned, [n_page] stack of free pages */
    int n_free;
};

pl_status kv_init(struct kv_pages *kv, int n_seq, int n_page, pl_err *err);
void kv_fini(struct kv_pages *kv);

/* Copies the contents of page `from` to page `to` on all devices. */
typedef pl_status kv_copy_fn(void *user, int from, int to, pl_err *err);

/* Pages that n tokens take. */
static inline int kv_pages_of(int64_t n)
{
    return (int)((n + PAGE_TOKENS - 1) / PAGE_TOKENS);
}
/* Free pages that n more tokens of a sequence would take. */
int kv_need(const struct kv_pages *kv, int seq, int64_t n);
/* Makes room for n more tokens; a shared page that would be written is copied
 * first. FULL, with nothing changed, if pages are short. */
pl_status kv_reserve(struct kv_pages *kv, int seq, int64_t n, kv_copy_fn *copy,
                     void *user, pl_err *err);
/* Gives reserved pages back: the n tokens did not come. */
void kv_unreserve(struct kv_pages *kv, int seq, int64_t n);
/* The reserved tokens are there now. */
void kv_advance(struct kv_pages *kv, int seq, int64_t n);
/* Keeps the first n tokens (n at most the length), and no page beyond. */
void kv_trim(struct kv_pages *kv, int seq, int64_t n);
/* dst, emptied, becomes src; a partly filled last page is copied. */
pl_status kv_copy(struct kv_pages *kv, int dst, int src, kv_copy_fn *copy,
                  void *user, pl_err *err);

static inline int kv_stand_in(const struct kv_pages *kv, int seq)
{
    return kv->n_seq + seq;
}
/* dst, which is empty, gets the first n tokens of src, in the same pages. */
void kv_share(struct kv_pages *kv, int dst, int src, int64_t n);
/* Two sequences change places. */
void kv_swap(struct kv_pages *kv, int a, int b);
/* Tokens at the beginning of `a` that are in pages of `b` too: whole pages, or
 * all of `a`. */
int64_t kv_common(const struct kv_pages *kv, int a, int b);
/* Pages that would be free if the sequence were emptied. */
int kv_own(const struct kv_pages *kv, int seq);

#endif
