/* Collectives between devices that share memory: all threads synchronize, then
 * each device reads its peers.
 *
 * A buffer that peers read is kept until the group's next collective, because a
 * device that has reached that one has finished reading for this one. */
#include "lower/lower_collective.h"

#include "base/err.h"

#include <string.h>

/* Releases the buffers that peers read for earlier collectives after this one's
 * barrier, whose position in the order is `barrier`. Those of earlier
 * micro-batches are not released, because a step may have them and not this
 * one. */
static pl_status release_peer_reads(struct lower *w, int u, int barrier)
{
    struct shard_collectives *v = &w->shard[u].collectives;
    int n = 0;

    for (int k = 0; k < v->n_lent; k++)
        if (v->peer_read[k].micro >= w->now.micro)
            PL_TRY(lower_hold_until(w, lower_dev(w, u), v->peer_read[k].tensor,
                                    barrier + 1));
        else
            v->peer_read[n++] = v->peer_read[k];
    v->n_lent = n;
    return PL_OK;
}

/* Makes the MERGE read remote copies in place. */
static pl_status in_place(struct lower *w, struct lower_item *x)
{
    struct copy_desc *p;

    if (x->m.reduce || x->remote.n == 0)
        return PL_OK;
    p = arena_alloc(w->a, (size_t)(x->m.n_piece + x->remote.n), sizeof *p);
    PL_TRY(lower_memory(w));
    if (x->m.n_piece)
        memcpy(p, x->m.piece, (size_t)x->m.n_piece * sizeof *p);
    memcpy(p + x->m.n_piece, x->remote.p, (size_t)x->remote.n * sizeof *p);
    x->m.piece = p;
    x->m.n_piece += x->remote.n;
    return PL_OK;
}

pl_status lower_collective_shared(struct lower *w, int group, int n,
                                  const int *item, struct lower_item *it,
                                  const pl_dim bytes[2])
{
    const struct lower_group *g = lower_group(w, group);
    struct merge_item *m = arena_alloc(w->a, (size_t)n + 1, sizeof *m);
    int order = w->variant.order++;

    PL_TRY(lower_memory(w));
    for (int k = 0; k < g->n; k++) {
        PL_TRY(release_peer_reads(w, g->first + k, order));
        for (int j = 0; j < n; j++)
            PL_TRY(in_place(w, &it[k * n + j]));
    }
    for (int k = 0; k < g->n; k++) {
        int u = g->first + k, d = lower_dev(w, u);
        struct insn s = {.order = order,
                         .merge = {.barrier = true,
                                   .group = group,
                                   .n_peer = g->n,
                                   .peer = w->transfers->group[group].dev}};

        for (int j = 0; j < n; j++)
            m[j] = it[k * n + j].m;
        PL_TRY(lower_merge(w, u, n, item, m, bytes, &s));
        for (int j = 0; j < n; j++) {
            struct placed *x =
                lower_find(w, w->num->node[item[j]].in[0], group);
            int t = x->sums ? x->sums[k].tensor : x->h.v[k].tensor;

            if (t >= 0) {
                PL_TRY(lower_keep(w, u, t, w->now.micro));
                PL_TRY(lower_hold(w, d, t));
            }
        }
    }
    return PL_OK;
}
