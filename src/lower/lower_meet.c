/* Messages between devices that share memory: all threads meet, then each
 * device reads its peers.
 *
 * A buffer that peers read stays alive until the group's next message: whoever
 * has reached that one has finished reading for this one. */
#include "lower/lower_message.h"

#include "base/err.h"

#include <string.h>

/* A tensor peers read in this message lives until the next. */
static pl_status peers_read(struct lower *w, int u, int tensor)
{
    struct unit_messages *v = &w->unit[u].messages;

    if (w->dev[lower_dev(w, u)].buffer[tensor] < 0)
        return PL_OK;
    if (!lower_more(w, (void **)&v->lent, v->n_lent, &v->lent_cap,
                    sizeof *v->lent))
        return err_no_memory(w->err, "a program");
    v->lent[v->n_lent++] = (struct lent){tensor, w->now.micro};
    return PL_OK;
}

/* What was read for the message before may be overwritten from here. Only
 * micro-batches up to this one are sure to be in the run when this one is, so
 * what earlier ones lent must not count on it. */
static void take_back(struct lower *w, int u)
{
    struct unit_messages *v = &w->unit[u].messages;
    struct draft *d = &w->dev[lower_dev(w, u)];
    int n = 0;

    for (int k = 0; k < v->n_lent; k++)
        if (v->lent[k].micro >= w->now.micro)
            lower_use(d, v->lent[k].tensor, d->n_step);
        else
            v->lent[n++] = v->lent[k];
    v->n_lent = n;
}

/* Remote pieces are read in place. */
static pl_status in_place(struct lower *w, struct lower_item *x)
{
    struct copy_piece *p;

    if (x->m.reduce || x->remote.n == 0)
        return PL_OK;
    p = arena_alloc(w->a, (size_t)(x->m.n_piece + x->remote.n), sizeof *p);
    if (!p)
        return err_no_memory(w->err, "a program");
    if (x->m.n_piece)
        memcpy(p, x->m.piece, (size_t)x->m.n_piece * sizeof *p);
    memcpy(p + x->m.n_piece, x->remote.p, (size_t)x->remote.n * sizeof *p);
    x->m.piece = p;
    x->m.n_piece += x->remote.n;
    return PL_OK;
}

pl_status lower_meet(struct lower *w, int group, int n, const int *item,
                     struct lower_item *it, const pl_dim bytes[2])
{
    const struct lower_group *g = lower_group(w, group);
    struct merge_item *m = arena_alloc(w->a, (size_t)n + 1, sizeof *m);
    int order;

    if (!m)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < g->n; k++) {
        take_back(w, g->first + k);
        for (int j = 0; j < n; j++)
            PL_TRY(in_place(w, &it[k * n + j]));
    }
    order = w->script.order++;
    for (int k = 0; k < g->n; k++) {
        int u = g->first + k, d = lower_dev(w, u);
        struct step s = {.order = order,
                         .merge = {.meet = true,
                                   .group = group,
                                   .n_peer = g->n,
                                   .peer = w->group_dev[group]}};

        for (int j = 0; j < n; j++)
            m[j] = it[k * n + j].m;
        PL_TRY(lower_merge(w, u, n, item, m, bytes, &s));
        for (int j = 0; j < n; j++) {
            struct placed *x =
                lower_find(w, w->num->node[item[j]].in[0], group);
            int t = x->sums ? x->sums[k].tensor : x->h.v[k].tensor;

            if (t >= 0) {
                PL_TRY(peers_read(w, u, t));
                lower_use(&w->dev[d], t, w->dev[d].n_step - 1);
            }
        }
    }
    return PL_OK;
}
