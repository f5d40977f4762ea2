/* State slots and checkpoints of recurrent layers; see pages.h. A slot that
 * others share is never written, because each step writes to a slot that only
 * its own sequence references. */
#include "kv/states.h"

#include "base/err.h"
#include "kv/prefix.h"

#include <stdlib.h>
#include <string.h>

static struct kv_pool *pool(const struct kv *kv)
{
    return (struct kv_pool *)&kv->pool[kv->states];
}

static int32_t *words(const struct kv *kv, int seq)
{
    return kv_row(kv, pool(kv), seq);
}

static void clear(int32_t *w)
{
    w[STATE_READ] = w[STATE_WRITTEN] = -1;
    w[STATE_AT] = 0;
}

pl_status states_init(struct kv *kv, pl_err *err)
{
    if (kv->states < 0)
        return PL_OK;
    kv->max_checkpoint = 2 * pool(kv)->n_page;
    kv->checkpoint =
        calloc((size_t)kv->max_checkpoint + 1, sizeof *kv->checkpoint);
    if (!kv->checkpoint)
        return err_no_memory(err, "checkpoints");
    for (int s = 0; s < 2 * kv->n_seq; s++)
        clear(words(kv, s));
    return PL_OK;
}

static void drop_checkpoint(struct kv *kv, int i)
{
    kv_unref_page(pool(kv), &kv->checkpoint[i].slot);
    kv->checkpoint[i] = kv->checkpoint[--kv->n_checkpoint];
}

/* Returns the index of the checkpoint that was not used for the longest time,
 * or -1 if there are no checkpoints. */
static int oldest(const struct kv *kv)
{
    int k = kv->n_checkpoint > 0 ? 0 : -1;

    for (int i = 1; i < kv->n_checkpoint; i++)
        if (kv->checkpoint[i].used < kv->checkpoint[k].used)
            k = i;
    return k;
}

/* Frees a state slot: drops the checkpoint, or evicts the slot that only the
 * prefix tree references, whichever was used longest ago. Returns false if
 * there is neither. */
static bool evict_checkpoint(struct kv *kv)
{
    const struct kv_pool *p = pool(kv);
    int k = oldest(kv);

    if (p->n_evictable > 0 &&
        (k < 0 || p->evictable[p->evictable[p->n_page].next].since <
                      kv->checkpoint[k].used))
        return prefix_evict_lru(kv, kv->states);
    if (k >= 0)
        drop_checkpoint(kv, k);
    return k >= 0;
}

/* Returns the index of the checkpoint of `seq` with the state after n tokens,
 * or -1. */
static int find(const struct kv *kv, int seq, int64_t n)
{
    for (int i = 0; i < kv->n_checkpoint; i++)
        if (kv->checkpoint[i].seq == seq && kv->checkpoint[i].n == n)
            return i;
    return -1;
}

static void add(struct kv *kv, int seq, int64_t n, int32_t slot, uint64_t used)
{
    kv_ref_page(pool(kv), slot);
    kv->checkpoint[kv->n_checkpoint++] =
        (struct kv_checkpoint){seq, n, slot, used};
}

void kv_checkpoint(struct kv *kv, int seq)
{
    int i;

    if (kv->states < 0 || words(kv, seq)[STATE_READ] < 0)
        return;
    prefix_insert_state(kv, seq);
    i = find(kv, seq, words(kv, seq)[STATE_AT]);
    if (i >= 0) {
        kv->checkpoint[i].used = ++pool(kv)->clock;
        return;
    }
    if (kv->n_checkpoint == kv->max_checkpoint)
        drop_checkpoint(kv, oldest(kv));
    add(kv, seq, words(kv, seq)[STATE_AT], words(kv, seq)[STATE_READ],
        ++pool(kv)->clock);
}

pl_status states_reserve(struct kv *kv, int seq, pl_err *err)
{
    if (kv->states < 0 || words(kv, seq)[STATE_WRITTEN] >= 0)
        return PL_OK;
    while (pool(kv)->n_free == 0 && evict_checkpoint(kv))
        continue;
    if (pool(kv)->n_free == 0)
        return err_set(err, PL_FULL,
                       "none of %d state slots is free for sequence %d; plan "
                       "for more sequences",
                       pool(kv)->n_page, seq);
    words(kv, seq)[STATE_WRITTEN] = kv_alloc_page(kv, kv->states);
    return PL_OK;
}

void states_unreserve(struct kv *kv, int seq)
{
    if (kv->states >= 0)
        kv_unref_page(pool(kv), &words(kv, seq)[STATE_WRITTEN]);
}

void states_commit(struct kv *kv, int seq)
{
    int32_t *w;

    if (kv->states < 0)
        return;
    w = words(kv, seq);
    if (w[STATE_WRITTEN] < 0)
        return;
    kv_unref_page(pool(kv), &w[STATE_READ]);
    w[STATE_READ] = w[STATE_WRITTEN];
    w[STATE_WRITTEN] = -1;
    w[STATE_AT] = (int32_t)kv->length[seq];
}

int64_t states_nearest(const struct kv *kv, int seq, int64_t n)
{
    int64_t best = 0;

    if (kv->states < 0)
        return n;
    if (words(kv, seq)[STATE_AT] <= n)
        best = words(kv, seq)[STATE_AT];
    for (int i = 0; i < kv->n_checkpoint; i++)
        if (kv->checkpoint[i].seq == seq && kv->checkpoint[i].n <= n &&
            kv->checkpoint[i].n > best)
            best = kv->checkpoint[i].n;
    return best;
}

void states_trim(struct kv *kv, int seq, int64_t n)
{
    int32_t *w;

    if (kv->states < 0)
        return;
    w = words(kv, seq);
    kv_unref_page(pool(kv), &w[STATE_WRITTEN]);
    if (n != w[STATE_AT]) {
        int i = find(kv, seq, n);

        kv_unref_page(pool(kv), &w[STATE_READ]);
        if (i >= 0) {
            w[STATE_READ] = kv->checkpoint[i].slot;
            kv_ref_page(pool(kv), w[STATE_READ]);
            kv->checkpoint[i].used = ++pool(kv)->clock;
        }
        w[STATE_AT] = (int32_t)n;
    }
    for (int i = kv->n_checkpoint - 1; i >= 0; i--)
        if (kv->checkpoint[i].seq == seq && (n == 0 || kv->checkpoint[i].n > n))
            drop_checkpoint(kv, i);
}

void states_copy(struct kv *kv, int dst, int src)
{
    int32_t *to;
    int n = kv->n_checkpoint;

    if (kv->states < 0)
        return;
    to = words(kv, dst);
    to[STATE_READ] = words(kv, src)[STATE_READ];
    to[STATE_AT] = words(kv, src)[STATE_AT];
    if (to[STATE_READ] >= 0)
        kv_ref_page(pool(kv), to[STATE_READ]);
    for (int i = 0; i < n && kv->n_checkpoint < kv->max_checkpoint; i++) {
        const struct kv_checkpoint c = kv->checkpoint[i];

        if (c.seq == src)
            add(kv, dst, c.n, c.slot, c.used);
    }
}

void states_swap(struct kv *kv, int a, int b)
{
    int32_t other[STATE_WORDS];

    if (kv->states < 0)
        return;
    memcpy(other, words(kv, a), sizeof other);
    memcpy(words(kv, a), words(kv, b), sizeof other);
    memcpy(words(kv, b), other, sizeof other);
    for (int i = 0; i < kv->n_checkpoint; i++) {
        int *seq = &kv->checkpoint[i].seq;

        *seq = *seq == a ? b : *seq == b ? a : *seq;
    }
}

void states_attach(struct kv *kv, int seq, int64_t n, int32_t slot)
{
    int32_t *w = words(kv, seq);

    w[STATE_READ] = slot;
    w[STATE_AT] = (int32_t)n;
    kv_ref_page(pool(kv), slot);
}

int32_t kv_state(const struct kv *kv, int seq, int64_t n)
{
    int i;

    if (words(kv, seq)[STATE_AT] == n)
        return words(kv, seq)[STATE_READ];
    i = find(kv, seq, n);
    return i >= 0 ? kv->checkpoint[i].slot : -1;
}

int32_t kv_state_written(const struct kv *kv, int seq)
{
    return words(kv, seq)[STATE_WRITTEN];
}
