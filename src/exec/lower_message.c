/* Messages: what a group's devices exchange, as meetings or as copies.
 *
 * Where memory is shared, one MERGE step per device does it: all threads meet,
 * then each device reads its peers. Otherwise each device posts that its part
 * is ready; its copy queue waits for all, pulls what it needs into staging
 * buffers (or straight into the result), posts again, and a MERGE without
 * meeting puts the value together. Either way a buffer that peers read stays
 * alive until the group's next message: whoever has reached that one has
 * finished reading for this one. */
#include "exec/lower_inner.h"

#include "base/err.h"
#include "graph/shape.h"

#include <string.h>

/* The pieces with their offsets in the source on both sides: a staging copy. */
static struct copy_piece staged(const struct copy_piece *p, int dev, int src)
{
    struct copy_piece q = *p;

    q.src_dev = dev;
    q.src = src;
    q.dst_off = p->src_off;
    q.dst_at = p->src_at;
    q.dst_s0 = p->src_s0;
    q.dst_s1 = p->src_s1;
    return q;
}

/* A tensor peers read in this message lives until the next. */
static pl_status peers_read(struct lower *w, int u, int tensor)
{
    struct unit *v = &w->unit[u];

    if (w->dev[v->u.dev].buffer[tensor] < 0)
        return PL_OK;
    if (!lower_grow((void **)&v->peers, v->n_peers, &v->peers_cap,
                    sizeof *v->peers))
        return err_no_memory(w->err, "a program");
    v->peers[v->n_peers++] = (struct lent){tensor, w->instance};
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
        if (v->peers[k].instance >= w->instance)
            lower_use(d, v->peers[k].tensor, d->n_step);
        else
            v->peers[n++] = v->peers[k];
    v->n_peers = n;
}

static pl_status pull(struct lower *w, int d, int out,
                      const struct copy_piece *p, int n)
{
    struct step s = {.kind = STEP_PULL,
                     .queue = QUEUE_COPY,
                     .node = -1,
                     .pull = {.out = out, .piece = p, .n_piece = n}};

    return n ? lower_step(w, d, &s) : PL_OK;
}

struct plan_item {
    struct merge_item m;
    struct lower_pieces remote;
};

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

        ad[k] = (struct merge_addend){
            w->unit[g->first + join[k].dev].u.dev, a->tensor,
            (size_t)join[k].index * a->stride, join[k].n_add};
    }
    m->reduce = true;
    return PL_OK;
}

/* What unit u does for conversion i. `peer`, or NULL: the item of another unit
 * that reads its addends in place, so that they are the same. */
static pl_status plan_item(struct lower *w, int u, int i,
                           const struct plan_item *peer, struct plan_item *it)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    int from = n->in[0], group = w->unit[u].u.group;
    struct lower_pieces local = {0};
    pl_dim dim[GRAPH_MAX_DIM];

    memset(it, 0, sizeof *it);
    lower_dims(w, u, i, dim);
    PL_TRY(lower_tensor(w, w->unit[u].u.dev, x->format, x->n_dim, dim, 1,
                        &it->m.out, NULL));
    lower_value(lower_find(w, i, group), &w->unit[u])->tensor = it->m.out;
    PL_TRY(lower_pieces(w, u, group, from, i, &local, &it->remote));
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

/* Copies what lies elsewhere, and points the item at the copies. */
static pl_status pull_item(struct lower *w, int d, int i, struct plan_item *it)
{
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    struct merge_addend *ad = (struct merge_addend *)it->m.addend;

    if (!it->m.reduce)
        return pull(w, d, it->m.out, it->remote.p, it->remote.n);
    for (int k = 0; k < it->m.n_addend; k++) {
        struct copy_piece *p;
        int t, e = ad[k].tensor;

        if (ad[k].dev == d || it->m.n_piece == 0)
            continue;
        p = arena_alloc(w->a, (size_t)it->m.n_piece, sizeof *p);
        if (!p)
            return err_no_memory(w->err, "a program");
        /* the addend's entry lies `off` bytes into the source tensor */
        if (ad[k].off)
            PL_TRY(lower_alias(w, ad[k].dev, ad[k].tensor, x->n_dim, x->dim,
                               ad[k].off, &e));
        for (int j = 0; j < it->m.n_piece; j++)
            p[j] = staged(&it->m.piece[j], ad[k].dev, e);
        PL_TRY(lower_tensor(w, d, x->format, x->n_dim, x->dim, 1, &t, NULL));
        PL_TRY(pull(w, d, t, p, it->m.n_piece));
        ad[k].dev = d;
        ad[k].tensor = t;
        ad[k].off = 0;
    }
    return PL_OK;
}

int lower_layer(const struct lower *w, int node)
{
    for (int i = node; i >= 0; i--) {
        /* the layer of the nearest weight that the value came through */
        const struct graph_node *y = &w->g->node[i];

        if (y->op == OP_weight)
            return y->layer;
    }
    return -1;
}

static void count_message(struct lower *w, int group, int n, const int *item,
                          pl_dim bytes[2])
{
    struct lowered_way *o = &w->out->way[w->way];

    bytes[0] = bytes[1] = (pl_dim){0, PL_CONST};
    for (int k = 0; k < n; k++) {
        const struct graph_node *x = &w->g->node[w->num->node[item[k]].node];

        lower_add_bytes(bytes, lower_product(x->dim, 0, x->n_dim, 4));
    }
    if (w->instance == 0)
        o->message[o->n_message++] =
            (struct lowered_message){lower_layer(w, w->num->node[item[0]].node),
                                     group,
                                     w->num->node[item[0]].kind,
                                     n,
                                     {bytes[0], bytes[1]}};
}

/* Device by device: post, wait for all, pull, post, wait. */
static pl_status exchange(struct lower *w, int group, int n, const int *item,
                          struct plan_item *it)
{
    const struct lower_group *g = &w->opt->group[group];
    int ready[PL_MAX_RANKS], done;

    for (int k = 0; k < g->n; k++) {
        take_back(w, g->first + k);
        PL_TRY(lower_post(w, w->unit[g->first + k].u.dev, QUEUE_COMPUTE,
                          &ready[k]));
    }
    for (int k = 0; k < g->n; k++) {
        int d = w->unit[g->first + k].u.dev;

        for (int p = 0; p < g->n; p++)
            PL_TRY(lower_wait(w, d, QUEUE_COPY, w->unit[g->first + p].u.dev,
                              ready[p]));
        for (int j = 0; j < n; j++)
            PL_TRY(pull_item(w, d, item[j], &it[k * n + j]));
        PL_TRY(lower_post(w, d, QUEUE_COPY, &done));
        PL_TRY(lower_wait(w, d, QUEUE_COMPUTE, d, done));
    }
    return PL_OK;
}

/* Remote pieces are read in place. */
static pl_status in_place(struct lower *w, struct plan_item *x)
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

pl_status lower_message(struct lower *w, int group, int n, const int *item)
{
    const struct lower_group *g = &w->opt->group[group];
    struct plan_item *it;
    const int *peer = NULL;
    struct held *h;
    pl_dim bytes[2];
    int order;

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
            PL_TRY(plan_item(w, g->first + m, item[k],
                             m > 0 && g->share_memory ? &it[k] : NULL,
                             &it[m * n + k]));
    count_message(w, group, n, item, bytes);
    for (int m = 0; m < g->n; m++) /* the device's next step is the message's */
        PL_TRY(lower_settle(w, w->unit[g->first + m].u.dev));
    if (!g->share_memory) {
        PL_TRY(exchange(w, group, n, item, it));
    } else {
        PL_TRY(peer_list(w, group, &peer));
        for (int m = 0; m < g->n; m++) {
            take_back(w, g->first + m);
            for (int k = 0; k < n; k++)
                PL_TRY(in_place(w, &it[m * n + k]));
        }
    }
    order = w->order++;
    for (int m = 0; m < g->n; m++) {
        int u = g->first + m, d = w->unit[u].u.dev;
        struct step s = {.kind = STEP_MERGE,
                         .node = w->num->node[item[0]].node,
                         .order = order,
                         .merge = {.meet = g->share_memory,
                                   .group = group,
                                   .n_peer = g->share_memory ? g->n : 0,
                                   .peer = peer,
                                   .message = true,
                                   .counted = m == 0,
                                   .n_item = n}};
        struct merge_item *mi = arena_alloc(w->a, (size_t)n + 1, sizeof *mi);

        if (!mi)
            return err_no_memory(w->err, "a program");
        memcpy(s.merge.message_bytes, bytes, sizeof s.merge.message_bytes);
        for (int k = 0; k < n; k++)
            mi[k] = it[m * n + k].m;
        s.merge.item = mi;
        PL_TRY(lower_step(w, d, &s));
        for (int k = 0; k < n; k++) {
            struct held *x = lower_find(w, w->num->node[item[k]].in[0], group);
            int t = x->sums ? x->sums[m].tensor : x->h.v[m].tensor;

            if (t >= 0) {
                PL_TRY(peers_read(w, u, t));
                lower_use(&w->dev[d], t, w->dev[d].n_step - 1);
            }
        }
    }
    return PL_OK;
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
