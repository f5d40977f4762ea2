/* Messages: what a group's devices exchange.
 *
 * Where they share memory, one MERGE step a device does it: all threads meet,
 * then each device reads its peers. A buffer that peers read stays alive until
 * the group's next message: whoever has reached that one has finished reading
 * for this one.
 *
 * Elsewhere it goes by inboxes. In *one shot* each device pushes what a peer
 * needs into that peer's inbox, posts, waits for the posts of all, and
 * merges from its own memory. A sum of many rows over three devices or more
 * takes *two shots*: each device sums its part of the value, a range of its
 * elements, and pushes the result to all. The additions are the same along
 * the same tree, so the number of rows decides at run time; what is staged
 * does not grow with the number of devices. Peers may push the next message
 * as soon as they have passed this one, which they do when this device has
 * posted: a place in the inbox is its message's from the device's POST of
 * the message before. */
#include "lower/lower_inner.h"

#include "base/err.h"
#include "graph/shape.h"

#include <string.h>

/* A tensor peers read in this message lives until the next. */
static pl_status peers_read(struct lower *w, int u, int tensor)
{
    struct unit *v = &w->unit[u];

    if (w->dev[v->u.dev].buffer[tensor] < 0)
        return PL_OK;
    if (!lower_grow((void **)&v->peers, v->n_peers, &v->peers_cap,
                    sizeof *v->peers))
        return err_no_memory(w->err, "a program");
    v->peers[v->n_peers++] = (struct lent){tensor, w->micro};
    return PL_OK;
}

/* What was read for the message before may be overwritten from here. Only
 * micro-batches up to this one are sure to be in the run when this one is, so
 * what earlier ones lent must not count on it. */
static void take_back(struct lower *w, int u)
{
    struct unit *v = &w->unit[u];
    struct draft *d = &w->dev[v->u.dev];
    int n = 0;

    for (int k = 0; k < v->n_peers; k++)
        if (v->peers[k].micro >= w->micro)
            lower_use(d, v->peers[k].tensor, d->n_step);
        else
            v->peers[n++] = v->peers[k];
    v->n_peers = n;
}

static pl_status addends(struct lower *w, int from, const struct held *src,
                         const struct lower_group *g, struct merge_item *m)
{
    struct rank_join join[PL_MAX_RANKS];
    int rank0[PL_MAX_RANKS], n_rank[PL_MAX_RANKS];
    struct merge_addend *ad;

    for (int k = 0; k < g->n; k++) {
        rank0[k] = w->unit[g->first + k].u.rank0;
        n_rank[k] = w->unit[g->first + k].u.n_rank;
    }
    m->n_addend = rank_tree_join(join, w->num->n_rank, w->present[from], g->n,
                                 rank0, n_rank, &m->depth);
    m->addend = ad = arena_alloc(w->a, (size_t)m->n_addend + 1, sizeof *ad);
    if (!ad)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < m->n_addend; k++) {
        const struct addends *a = &src->sums[join[k].dev];

        ad[k] =
            (struct merge_addend){.dev = w->unit[g->first + join[k].dev].u.dev,
                                  .tensor = a->tensor,
                                  .off = (size_t)join[k].index * a->stride,
                                  .n_add = join[k].n_add};
    }
    m->reduce = true;
    return PL_OK;
}

/* The last step of unit u before which its peers cannot have begun to push.
 * Only micro-batches up to this one are sure to be in the run when this one
 * is. */
int lower_told(const struct lower *w, int u)
{
    int last = -1;

    for (int i = 0; i <= w->micro; i++)
        if (w->unit[u].told[i] > last)
            last = w->unit[u].told[i];
    return last;
}

/* What unit u does for conversion i. `peer`, or NULL: the item of another
 * unit that reads its addends in place, so that they are the same. inbox:
 * peers write the result, or parts of it. */
static pl_status plan_item(struct lower *w, int u, int i,
                           const struct lower_item *peer, bool inbox,
                           struct lower_item *it)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    int from = n->in[0], group = w->unit[u].u.group, d = w->unit[u].u.dev;
    struct lower_pieces local = {0};
    pl_dim dim[GRAPH_MAX_DIM];

    memset(it, 0, sizeof *it);
    lower_dims(w, u, i, dim);
    PL_TRY(lower_pieces(w, u, group, from, i, &local, &it->remote));
    if (inbox)
        PL_TRY(lower_mail(w, d, x->format, x->n_dim, dim, lower_told(w, u), 0,
                          &it->m.out));
    else
        PL_TRY(
            lower_tensor(w, d, x->format, x->n_dim, dim, 1, &it->m.out, NULL));
    lower_value(lower_find(w, i, group), &w->unit[u])->tensor = it->m.out;
    it->m.piece = local.p;
    it->m.n_piece = local.n;
    if (n->kind != NUM_ALL_REDUCE && n->kind != NUM_REDUCE_SCATTER)
        return PL_OK;
    if (!peer)
        return addends(w, from, lower_find(w, from, group),
                       &w->opt->group[group], &it->m);
    it->m.reduce = true;
    it->m.addend = peer->m.addend;
    it->m.n_addend = peer->m.n_addend;
    it->m.depth = peer->m.depth;
    return PL_OK;
}

static void count_message(struct lower *w, int group, int n, const int *item,
                          pl_dim bytes[2])
{
    struct lowered_script *o = &w->out->script[w->script];

    bytes[0] = bytes[1] = (pl_dim){0, PL_CONST};
    for (int k = 0; k < n; k++) {
        const struct graph_node *x = &w->g->node[w->num->node[item[k]].node];

        lower_add_bytes(bytes, lower_product(x->dim, 0, x->n_dim, 4));
    }
    if (w->micro == 0) {
        const struct num_node *first = &w->num->node[item[0]];

        o->message[o->n_message++] =
            (struct lowered_message){w->g->node[first->node].layer,
                                     group,
                                     first->kind,
                                     n,
                                     {bytes[0], bytes[1]}};
    }
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

static pl_status peer_list(struct lower *w, int group, const int **out)
{
    const struct lower_group *g = &w->opt->group[group];
    int *p;

    if (w->peer[group]) {
        *out = w->peer[group];
        return PL_OK;
    }
    p = arena_alloc(w->a, (size_t)g->n, sizeof *p);
    if (!p)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < g->n; k++)
        p[k] = w->unit[g->first + k].u.dev;
    *out = w->peer[group] = p;
    return PL_OK;
}

bool lower_shares(const struct lower *w, int group)
{
    const struct lower_group *g = &w->opt->group[group];
    int memory = w->opt->dev[w->unit[g->first].u.dev].memory;

    for (int k = 0; k < g->n; k++)
        if (w->opt->dev[w->unit[g->first + k].u.dev].memory != memory)
            return false;
    return memory >= 0;
}

/* One unit: nothing to send; a conversion is another name. */
static pl_status alone(struct lower *w, int group, int n, const int *item)
{
    for (int k = 0; k < n; k++) {
        const struct held *from =
            lower_find(w, w->num->node[item[k]].in[0], group);
        struct held *to;

        PL_TRY(lower_hold(w, item[k], group, &to));
        if (from->sums)
            to->h.v[0].tensor = from->sums[0].tensor;
        else
            to->h.v[0] = from->h.v[0];
    }
    return PL_OK;
}

/* The MERGE of unit u: items it[n]. */
pl_status lower_merge(struct lower *w, int u, int n, const int *item,
                      const struct merge_item *m, const pl_dim bytes[2],
                      struct step *s)
{
    struct merge_item *mi = arena_memdup(w->a, m, (size_t)n, sizeof *mi);

    if (!mi)
        return err_no_memory(w->err, "a program");
    s->kind = STEP_MERGE;
    s->node = w->num->node[item[0]].node;
    s->merge.message = true;
    s->merge.counted = w->unit[u].local == 0;
    s->merge.n_item = n;
    s->merge.item = mi;
    memcpy(s->merge.message_bytes, bytes, sizeof s->merge.message_bytes);
    return lower_step(w, w->unit[u].u.dev, s);
}

/* All threads meet, and each device reads its peers. */
static pl_status meet(struct lower *w, int group, int n, const int *item,
                      struct lower_item *it, const pl_dim bytes[2])
{
    const struct lower_group *g = &w->opt->group[group];
    struct merge_item *m = arena_alloc(w->a, (size_t)n + 1, sizeof *m);
    const int *peer = NULL;
    int order;

    if (!m)
        return err_no_memory(w->err, "a program");
    PL_TRY(peer_list(w, group, &peer));
    for (int k = 0; k < g->n; k++) {
        take_back(w, g->first + k);
        for (int j = 0; j < n; j++)
            PL_TRY(in_place(w, &it[k * n + j]));
    }
    order = w->order++;
    for (int k = 0; k < g->n; k++) {
        int u = g->first + k, d = w->unit[u].u.dev;
        struct step s = {
            .order = order,
            .merge = {
                .meet = true, .group = group, .n_peer = g->n, .peer = peer}};

        for (int j = 0; j < n; j++)
            m[j] = it[k * n + j].m;
        PL_TRY(lower_merge(w, u, n, item, m, bytes, &s));
        for (int j = 0; j < n; j++) {
            struct held *x = lower_find(w, w->num->node[item[j]].in[0], group);
            int t = x->sums ? x->sums[k].tensor : x->h.v[k].tensor;

            if (t >= 0) {
                PL_TRY(peers_read(w, u, t));
                lower_use(&w->dev[d], t, w->dev[d].n_step - 1);
            }
        }
    }
    return PL_OK;
}

pl_status lower_message(struct lower *w, int group, int n, const int *item)
{
    const struct lower_group *g = &w->opt->group[group];
    bool share = lower_shares(w, group);
    struct lower_item *it;
    struct held *h;
    pl_dim bytes[2];

    for (int k = 0; k < n; k++) { /* operands that came from another group */
        struct held *x = lower_find(w, w->num->node[item[k]].in[0], group);

        for (int m = 0; x && m < g->n; m++)
            PL_TRY(lower_arrive(w, x, g->first + m));
    }
    if (g->n == 1)
        return alone(w, group, n, item);
    it = arena_alloc(w->a, (size_t)(n * g->n) + 1, sizeof *it);
    if (!it)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < n; k++)
        PL_TRY(lower_hold(w, item[k], group, &h));
    for (int m = 0; m < g->n; m++)
        for (int k = 0; k < n; k++)
            PL_TRY(plan_item(w, g->first + m, item[k], m > 0 ? &it[k] : NULL,
                             !share, &it[m * n + k]));
    count_message(w, group, n, item, bytes);
    for (int m = 0; m < g->n; m++) /* the device's next step is the message's */
        PL_TRY(lower_settle(w, w->unit[g->first + m].u.dev));
    return share ? meet(w, group, n, item, it, bytes)
                 : lower_exchange(w, group, n, item, it, bytes);
}

pl_status lower_slice(struct lower *w, int u, int i)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    int group = w->unit[u].u.group, d = w->unit[u].u.dev;
    const struct held *h = lower_find(w, n->in[0], group);
    struct lowered_value *v = lower_value(lower_find(w, i, group), &w->unit[u]);
    struct lower_pieces local = {0}, remote = {0};
    struct step s = {.kind = STEP_MERGE, .node = n->node};
    struct merge_item *m;
    pl_dim a[GRAPH_MAX_DIM], b[GRAPH_MAX_DIM];
    int same = 0;

    PL_TRY(lower_arrive(w, h, u));
    lower_dims(w, u, n->in[0], a);
    lower_dims(w, u, i, b);
    while (same < x->n_dim && dim_equal(a[same], b[same]))
        same++;
    if (same == x->n_dim) {
        *v = *lower_value(h, &w->unit[u]); /* it has nothing to leave out */
        return PL_OK;
    }
    m = arena_alloc(w->a, 1, sizeof *m);
    if (!m)
        return err_no_memory(w->err, "a program");
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, b, 1, &m->out, NULL));
    v->tensor = m->out;
    PL_TRY(lower_pieces(w, u, group, n->in[0], i, &local, &remote));
    m->piece = local.p;
    m->n_piece = local.n;
    s.merge.item = m;
    s.merge.n_item = 1;
    return lower_step(w, d, &s);
}
