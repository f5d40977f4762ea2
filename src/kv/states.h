/* The pool of states, called by pages.c for every operation on a sequence. See
 * pages.h. */
#ifndef KV_STATES_H
#define KV_STATES_H

#include "kv/pages.h"

/* In pages.c: allocate a page or slot of a pool with one available; add a
 * reference; remove one. */
int32_t kv_alloc_page(struct kv *kv, int pool);
void kv_ref_page(struct kv_pool *p, int32_t page);
void kv_unref_page(struct kv_pool *p, int32_t *page);

static inline int32_t *kv_row(const struct kv *kv, const struct kv_pool *p,
                              int seq)
{
    return p->table + (int64_t)seq * kv->stride;
}

pl_status states_init(struct kv *kv, pl_err *err);
/* Reserves a slot to write to, if the sequence has none yet. Evicts checkpoints
 * and slots if needed. */
pl_status states_reserve(struct kv *kv, int seq, pl_err *err);
void states_unreserve(struct kv *kv, int seq);
/* Makes the written state the current one. */
void states_commit(struct kv *kv, int seq);
int64_t states_nearest(const struct kv *kv, int seq, int64_t n);
void states_trim(struct kv *kv, int seq, int64_t n);
/* Makes dst, which is empty, share src's state and its checkpoints. */
void states_copy(struct kv *kv, int dst, int src);
void states_swap(struct kv *kv, int a, int b);
/* Sets an empty sequence to the state in a slot, after n tokens. */
void states_attach(struct kv *kv, int seq, int64_t n, int32_t slot);

#endif
