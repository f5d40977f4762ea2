/* The pool of states: what pages.c does to it with every sequence. See
 * pages.h. */
#ifndef KV_STATES_H
#define KV_STATES_H

#include "kv/pages.h"

/* pages.c: a page or slot of a pool, one of which is available; one more holds
 * it; one fewer does. */
int32_t kv_alloc_page(struct kv *kv, int pool);
void kv_ref_page(struct kv_pool *p, int32_t page);
void kv_unref_page(struct kv_pool *p, int32_t *page);

static inline int32_t *kv_row(const struct kv *kv, const struct kv_pool *p,
                              int seq)
{
    return p->table + (int64_t)seq * kv->stride;
}

pl_status states_init(struct kv *kv, pl_err *err);
/* A slot to write to, if the sequence has none yet; for that checkpoints and
 * idle slots are given up. */
pl_status states_reserve(struct kv *kv, int seq, pl_err *err);
void states_unreserve(struct kv *kv, int seq);
/* What was written is what the sequence is in. */
void states_commit(struct kv *kv, int seq);
int64_t states_nearest(const struct kv *kv, int seq, int64_t n);
void states_trim(struct kv *kv, int seq, int64_t n);
/* dst, which is empty, shares src's state and its checkpoints. */
void states_copy(struct kv *kv, int dst, int src);
void states_swap(struct kv *kv, int a, int b);
/* An empty sequence is in the state of a slot, after n tokens. */
void states_attach(struct kv *kv, int seq, int64_t n, int32_t slot);

#endif
