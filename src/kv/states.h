/* The pool of recurrent states (pages.h). pages.c calls these functions for
 * every operation on a sequence. Without a pool of states, all of them except
 * states_attach do nothing. */
#ifndef KV_STATES_H
#define KV_STATES_H

#include "kv/pages.h"

/* Defined in pages.c, for pages and state slots. kv_alloc_page returns a page
 * with one reference and evicts one if none is free; one must be free or
 * evictable. kv_ref_page adds a reference. kv_unref_page removes one and sets
 * *page to -1. */
int32_t kv_alloc_page(struct kv *kv, int pool);
void kv_ref_page(struct kv_pool *p, int32_t page);
void kv_unref_page(struct kv_pool *p, int32_t *page);

static inline int32_t *kv_row(const struct kv *kv, const struct kv_pool *p,
                              int seq)
{
    return p->table + (int64_t)seq * kv->stride;
}

pl_status states_init(struct kv *kv, pl_err *err);
/* Reserves the slot to which the next step writes the state of `seq`, unless
 * the sequence has such a slot already. Frees a slot by dropping a checkpoint
 * or a cached state if none is free. */
pl_status states_reserve(struct kv *kv, int seq, pl_err *err);
void states_unreserve(struct kv *kv, int seq);
/* Replaces the sequence's current state slot by the one to which the last step
 * wrote. */
void states_commit(struct kv *kv, int seq);
int64_t states_nearest(const struct kv *kv, int seq, int64_t n);
void states_trim(struct kv *kv, int seq, int64_t n);
/* Makes dst, an empty sequence, share the state slot and the checkpoints of
 * src. */
void states_copy(struct kv *kv, int dst, int src);
void states_swap(struct kv *kv, int a, int b);
/* Gives an empty sequence the state in `slot`, which is the state after n
 * tokens. */
void states_attach(struct kv *kv, int seq, int64_t n, int32_t slot);

#endif
