/* Messages: what a group's devices exchange, as meetings or as copies.
 *
 * Where memory is shared, one MERGE step per device does it: all threads meet,
 * then each device reads its peers. Otherwise each device posts that its part
 * is ready; its copy queue waits for all, pulls what it needs into staging
 * buffers (or straight into the result), posts again, and a MERGE without
 * meeting puts the value together. Either way a buffer that peers read stays
 * alive until the next message: whoever has reached that one has finished
 * reading for this one. */
#include "exec/lower_inner.h"

#include "base/err.h"

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
static pl_status peers_read(struct lower *w, int d, int tensor)
{
    struct draft *v = &w->dev[d];

    if (v->buffer[tensor] < 0)
        return PL_OK;
    if (v->n_peers == v->peers_cap) {
        int cap = v->peers_cap ? 2 * v->peers_cap : 16;
        int *p = arena_alloc(w->a, (size_t)cap, sizeof *p);

        if (!p)
            return err_no_memory(w->err, "a program");
        if (v->n_peers)
            memcpy(p, v->peers, (size_t)v->n_peers * sizeof *p);
        v->peers = p;
        v->peers_cap = cap;
    }
    v->peers[v->n_peers++] = tensor;
    return PL_OK;
}

static pl_status pull(struct lower *w, int d, int out,
                      const struct copy_piece *p, int n)
{
    struct step s = {.kind = STEP_PULL,
                     .queue = QUEUE_COPY,
                     .node = -1,
                     .out = out,
                     .q8 = -1,
                     .piece = p,
                     .n_piece = n};

    return n ? lower_step(w, d, &s) : PL_OK;
}

struct plan_item {
    struct merge_item m;
    struct lower_pieces remote;
};

/* What device d does for conversion i. `peer`, or NULL: the item of another
 * device that reads its addends in place, so that they are the same. */
static pl_status plan_item(struct lower *w, int d, int i,
                           const struct plan_item *peer, struct plan_item *it)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    int from = n->in[0], n_join, depth;
    struct lower_pieces local = {0};
    struct rank_join join[PL_MAX_RANKS];
    struct merge_addend *ad;
    pl_dim dim[GRAPH_MAX_DIM];

    memset(it, 0, sizeof *it);
    lower_dims(w, d, i, dim);
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 1, &it->m.out, NULL));
    w->dev[d].value[i].tensor = it->m.out;
    PL_TRY(lower_pieces(w, d, from, i, &local, &it->remote));
    it->m.piece = local.p;
    it->m.n_piece = local.n;
    if (n->kind != NUM_ALL_REDUCE && n->kind != NUM_REDUCE_SCATTER)
        return PL_OK;
    if (peer) {
        it->m.reduce = true;
        it->m.addend = peer->m.addend;
        it->m.n_addend = peer->m.n_addend;
        it->m.depth = peer->m.depth;
        return PL_OK;
    }
    n_join =
        rank_tree_join(join, w->num->n_rank, w->present[from], w->opt->n_dev,
                       w->opt->rank0, w->opt->n_rank, &depth);
    ad = arena_alloc(w->a, (size_t)n_join + 1, sizeof *ad);
    if (!ad)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < n_join; k++)
        ad[k] = (struct merge_addend){
            join[k].dev, w->dev[join[k].dev].addends[from].tensor,
            (size_t)join[k].index * w->dev[join[k].dev].addends[from].stride,
            join[k].n_add};
    it->m.reduce = true;
    it->m.addend = ad;
    it->m.n_addend = n_join;
    it->m.depth = depth;
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
        int t;

        if (ad[k].dev == d || it->m.n_piece == 0)
            continue;
        p = arena_alloc(w->a, (size_t)it->m.n_piece, sizeof *p);
        if (!p)
            return err_no_memory(w->err, "a program");
        for (int j = 0; j < it->m.n_piece; j++) {
            p[j] = staged(&it->m.piece[j], ad[k].dev, ad[k].tensor);
            /* the addend's entry lies `off` bytes into the source tensor */
            p[j].src = ad[k].tensor;
        }
        PL_TRY(lower_tensor(w, d, x->format, x->n_dim, x->dim, 1, &t, NULL));
        if (ad[k].off) {
            int e;

            PL_TRY(lower_alias(w, ad[k].dev, ad[k].tensor, x->n_dim, x->dim,
                               ad[k].off, &e));
            for (int j = 0; j < it->m.n_piece; j++)
                p[j].src = e;
        }
        PL_TRY(pull(w, d, t, p, it->m.n_piece));
        ad[k].dev = d;
        ad[k].tensor = t;
        ad[k].off = 0;
    }
    return PL_OK;
}

static pl_status count_message(struct lower *w, int n, const int *item,
                               pl_dim bytes[2])
{
    struct lowered *o = w->out;
    struct lowered_message *m = &o->message[o->n_message++];

    bytes[0] = bytes[1] = (pl_dim){0, PL_CONST};
    for (int k = 0; k < n; k++) {
        const struct num_node *c = &w->num->node[item[k]];
        const struct graph_node *x = &w->g->node[c->node];
        pl_dim b = lower_product(x->dim, 0, x->n_dim, 4);
        int layer = -1, kind = k > 0 && b.symbol != bytes[0].symbol;

        bytes[kind] = (pl_dim){bytes[kind].n + b.n, b.symbol};
        for (int i = c->node; i >= 0 && layer < 0; i--) {
            /* the layer of the nearest weight that the value came through */
            const struct graph_node *y = &w->g->node[i];

            if (y->op == OP_weight && y->layer >= 0)
                layer = y->layer;
            else if (y->op == OP_weight)
                break;
        }
        if (k == 0) {
            m->kind = c->kind;
            m->layer = layer;
        }
    }
    m->n_item = n;
    m->bytes = bytes[0];
    m->more = bytes[1];
    return PL_OK;
}

/* Copies all that device d lacks, and waits for it. */
static pl_status fetch(struct lower *w, int d, int n, const int *item,
                       struct plan_item *it, int id)
{
    struct step e = {.kind = STEP_WAIT,
                     .queue = QUEUE_COPY,
                     .node = -1,
                     .q8 = -1,
                     .event = 2 * id};

    for (int p = 0; p < w->n_peer; p++) {
        e.dev = w->peer[p];
        PL_TRY(lower_step(w, d, &e));
    }
    for (int k = 0; k < n; k++)
        PL_TRY(pull_item(w, d, item[k], &it[k]));
    e.dev = d;
    e.event = 2 * id + 1;
    e.kind = STEP_POST;
    PL_TRY(lower_step(w, d, &e));
    e.kind = STEP_WAIT;
    e.queue = QUEUE_COMPUTE;
    return lower_step(w, d, &e);
}

/* Where memory is shared, remote pieces are read in place. */
static pl_status in_place(struct lower *w, int n, struct plan_item *it)
{
    for (int k = 0; k < n; k++) {
        struct plan_item *x = &it[k];
        struct copy_piece *p;

        if (x->m.reduce || x->remote.n == 0)
            continue;
        p = arena_alloc(w->a, (size_t)(x->m.n_piece + x->remote.n), sizeof *p);
        if (!p)
            return err_no_memory(w->err, "a program");
        if (x->m.n_piece)
            memcpy(p, x->m.piece, (size_t)x->m.n_piece * sizeof *p);
        memcpy(p + x->m.n_piece, x->remote.p, (size_t)x->remote.n * sizeof *p);
        x->m.piece = p;
        x->m.n_piece += x->remote.n;
    }
    return PL_OK;
}

/* Device d's steps of message `id` after all have posted their parts. */
static pl_status take_part(struct lower *w, int d, int n, const int *item,
                           struct plan_item *it, int order,
                           const pl_dim bytes[2], int id)
{
    struct draft *v = &w->dev[d];
    struct step s = {.kind = STEP_MERGE,
                     .order = order,
                     .node = w->num->node[item[0]].node,
                     .q8 = -1,
                     .meet = w->opt->share_memory,
                     .n_peer = w->n_peer,
                     .peer = w->peer,
                     .message = true,
                     .counted = d == w->peer[0],
                     .message_bytes = {bytes[0], bytes[1]},
                     .n_merge = n};
    struct merge_item *m = arena_alloc(w->a, (size_t)n + 1, sizeof *m);

    if (!m)
        return err_no_memory(w->err, "a program");
    PL_TRY(w->opt->share_memory ? in_place(w, n, it)
                                : fetch(w, d, n, item, it, id));
    for (int k = 0; k < n; k++)
        m[k] = it[k].m;
    s.merge = m;
    PL_TRY(lower_step(w, d, &s));
    for (int k = 0; k < n; k++) {
        int from = w->num->node[item[k]].in[0];
        int t =
            w->present[from] || w->num->node[from].layout->kind == PL_PARTIAL
                ? v->addends[from].tensor
                : v->value[from].tensor;

        if (t >= 0) {
            PL_TRY(peers_read(w, d, t));
            lower_use(v, t, v->n_step - 1);
        }
    }
    return PL_OK;
}

pl_status lower_message(struct lower *w, int n, const int *item)
{
    int n_dev = w->opt->n_dev, id = w->out->n_message, first = -1, order;
    struct plan_item *it =
        arena_alloc(w->a, (size_t)(n * n_dev) + 1, sizeof *it);
    pl_dim bytes[2];

    if (!it)
        return err_no_memory(w->err, "a program");
    for (int d = 0; d < n_dev; d++) {
        if (w->dev[d].n_rank == 0)
            continue;
        for (int k = 0; k < n; k++)
            PL_TRY(plan_item(w, d, item[k],
                             first >= 0 ? &it[first * n + k] : NULL,
                             &it[d * n + k]));
        if (w->opt->share_memory && first < 0)
            first = d;
    }
    PL_TRY(count_message(w, n, item, bytes));
    for (int d = 0; d < n_dev; d++) {
        struct draft *v = &w->dev[d];
        struct step e = {
            .kind = STEP_POST, .node = -1, .q8 = -1, .dev = d, .event = 2 * id};

        if (v->n_rank == 0)
            continue;
        /* what was read for the message before may be overwritten from here */
        for (int k = 0; k < v->n_peers; k++)
            lower_use(v, v->peers[k], v->n_step);
        v->n_peers = 0;
        if (!w->opt->share_memory)
            PL_TRY(lower_step(w, d, &e));
    }
    order = w->opt->share_memory ? w->order++ : 0;
    for (int d = 0; d < n_dev; d++)
        if (w->dev[d].n_rank)
            PL_TRY(take_part(w, d, n, item, &it[d * n], order, bytes, id));
    return PL_OK;
}

pl_status lower_slice(struct lower *w, int d, int i)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    struct draft *v = &w->dev[d];
    struct lower_pieces local = {0}, remote = {0};
    struct step s = {.kind = STEP_MERGE, .node = n->node, .q8 = -1};
    struct merge_item *m;
    pl_dim a[GRAPH_MAX_DIM], b[GRAPH_MAX_DIM];

    lower_dims(w, d, n->in[0], a);
    lower_dims(w, d, i, b);
    if (!memcmp(a, b, sizeof(pl_dim) * (size_t)x->n_dim)) {
        v->value[i] = v->value[n->in[0]]; /* it has nothing to leave out */
        return PL_OK;
    }
    m = arena_alloc(w->a, 1, sizeof *m);
    if (!m)
        return err_no_memory(w->err, "a program");
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, b, 1, &m->out, NULL));
    v->value[i].tensor = m->out;
    PL_TRY(lower_pieces(w, d, n->in[0], i, &local, &remote));
    m->piece = local.p;
    m->n_piece = local.n;
    s.merge = m;
    s.n_merge = 1;
    return lower_step(w, d, &s);
}
