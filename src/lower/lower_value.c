/* Values in groups: which group has which value, in what tensors, and by which
 * events others wait for it.
 *
 * A shard that has computed its part posts an event once, when it is first
 * needed. For a value that is copied from elsewhere, the shard waits before its
 * first use, and no sooner, so that work in between hides the copy. */
#include "lower/lower_inner.h"

#include "base/err.h"

/* ---- values of groups ---------------------------------------------------- */

static struct placed *in_group(struct placed *h, int group)
{
    while (h && h->h.group != group)
        h = (struct placed *)h->h.next;
    return h;
}

/* Returns the first of value i in this variant and micro-batch, or of those
 * that all variants have. A streamed weight belongs to the first micro-batch,
 * which is part of every step, and serves all. */
static struct placed **list_of(const struct lower *w, int i)
{
    int micro = i >= 0 && lower_is(w, i, OP_weight) ? 0 : w->now.micro;

    if (!w->variant.value)
        return &w->stored[i];
    return &w->variant.value[micro][i >= 0 ? i : w->num->n];
}

/* Looks first among the values of this variant and micro-batch (of weights and
 * caches, those that it streams), then among those that all variants have. */
struct placed *lower_find(const struct lower *w, int i, int group)
{
    struct placed *h = in_group(*list_of(w, i), group);

    return h || i < 0 ? h : in_group(w->stored[i], group);
}

pl_status lower_add_value(struct lower *w, int i, int group,
                          struct placed **out)
{
    size_t n = (size_t)lower_group(w, group)->n;
    struct placed *h = arena_alloc(w->a, 1, sizeof *h);
    struct placed **first = list_of(w, i);

    PL_TRY(lower_memory(w));
    h->h.group = group;
    h->h.v = arena_alloc(w->a, n, sizeof *h->h.v);
    h->ready = arena_alloc(w->a, n, sizeof *h->ready);
    h->arrives = arena_alloc(w->a, n, sizeof *h->arrives);
    PL_TRY(lower_memory(w));
    for (size_t k = 0; k < n; k++) {
        h->h.v[k] = (struct lowered_value){-1, -1};
        h->ready[k] = -1;
    }
    if (i >= 0 && w->num->node[i].layout->kind == PL_PARTIAL) {
        h->sums = arena_alloc(w->a, n, sizeof *h->sums);
        h->by_rank = arena_alloc(w->a, n, sizeof *h->by_rank);
        PL_TRY(lower_memory(w));
        for (size_t k = 0; k < n; k++)
            h->sums[k].tensor = h->by_rank[k].tensor = -1;
    }
    h->h.next = *first ? &(*first)->h : NULL;
    *first = h;
    *out = h;
    return PL_OK;
}

/* ---- events of values ---------------------------------------------------- */

/* Keeps shard u's part of the value up to the current position. */
static pl_status hold(struct lower *w, const struct placed *h, int u)
{
    int m = w->shard[u].local, d = lower_dev(w, u);

    PL_TRY(lower_hold(w, d, h->h.v[m].tensor));
    PL_TRY(lower_hold(w, d, h->h.v[m].plain));
    return h->by_rank ? lower_hold(w, d, h->by_rank[m].tensor) : PL_OK;
}

/* The copy may write the memory until the waits, even if nothing reads it, so
 * it is kept up to here. */
pl_status lower_await_value(struct lower *w, const struct placed *h, int u)
{
    struct arrival *a = &h->arrives[w->shard[u].local];

    if (a->n == 0)
        return PL_OK;
    for (int i = 0; i < a->n; i++)
        PL_TRY(lower_wait(w, lower_dev(w, u), QUEUE_COMPUTE, a->event[i].dev,
                          a->event[i].event));
    a->n = 0;
    return hold(w, h, u);
}

pl_status lower_ready_event(struct lower *w, struct placed *h, int u,
                            int *event)
{
    int *e = &h->ready[w->shard[u].local];

    PL_TRY(lower_await_value(w, h, u));
    if (*e < 0)
        PL_TRY(lower_post(w, lower_dev(w, u), QUEUE_COMPUTE, e));
    *event = *e;
    return PL_OK;
}

pl_status lower_end_arrivals(struct lower *w, int n_micro)
{
    for (int k = 0; k < n_micro; k++)
        for (int i = 0; i < w->num->n; i++)
            for (const struct placed *h = w->variant.value[k][i]; h;
                 h = (const struct placed *)h->h.next)
                for (int m = 0; m < lower_group(w, h->h.group)->n; m++)
                    if (h->arrives[m].n > 0)
                        PL_TRY(
                            hold(w, h, lower_group(w, h->h.group)->first + m));
    return PL_OK;
}
