/* Collectives: exchanges of one or several values between a group's devices at
 * one point.
 *
 * For each device a collective is one MERGE: addends are summed along the tree
 * over ranks, and parts are copied to their offsets. This file determines what
 * each device merges. The transfer between devices is in lower_shared_memory.c
 * if they share memory, and in lower_inbox.c if they do not. */
#include "lower/lower_collective.h"

#include "base/err.h"

#include <string.h>

/* ---- what a shard merges ------------------------------------------------ */

static pl_status addends(struct lower *w, int from, const struct placed *src,
                         const struct lower_group *g, struct merge_item *m)
{
    struct rank_join join[PL_MAX_RANKS];
    int rank0[PL_MAX_RANKS], n_rank[PL_MAX_RANKS];
    struct merge_addend *ad;

    for (int k = 0; k < g->n; k++) {
        rank0[k] = w->shard[g->first + k].u.rank0;
        n_rank[k] = w->shard[g->first + k].u.n_rank;
    }
    m->n_addend = rank_tree_join(join, w->num->n_rank, w->present[from], g->n,
                                 rank0, n_rank, &m->depth);
    m->addend = ad = arena_alloc(w->a, (size_t)m->n_addend + 1, sizeof *ad);
    PL_TRY(lower_memory(w));
    for (int k = 0; k < m->n_addend; k++) {
        const struct addends *a = &src->sums[join[k].shard];

        ad[k] = (struct merge_addend){
            .dev = w->shard[g->first + join[k].shard].u.dev,
            .tensor = a->tensor,
            .off = (size_t)join[k].index * a->stride,
            .n_add = join[k].n_add};
    }
    m->reduce = true;
    return PL_OK;
}

/* Only micro-batches up to this one are sure to be in the step when this one
 * is. */
int lower_free_from(const struct lower *w, int u)
{
    int last = -1;

    for (int i = 0; i <= w->now.micro; i++)
        if (w->shard[u].collectives.reusable_from[i] > last)
            last = w->shard[u].collectives.reusable_from[i];
    return last;
}

/* Sets shard u's part in conversion i. `peer`, unless NULL, is the item of
 * another shard, which reads its addends in place, so that they are the
 * same. */
static pl_status plan_item(struct lower *w, int u, int i,
                           const struct lower_item *peer, struct lower_item *it)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    int from = n->in[0], group = w->shard[u].u.group, d = lower_dev(w, u);
    struct lower_pieces local = {0};
    pl_dim dim[GRAPH_MAX_DIM];

    memset(it, 0, sizeof *it);
    lower_dims(w, u, i, dim);
    PL_TRY(lower_pieces(w, u, group, from, i, &local, &it->remote));
    it->room = -1;
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 1, &it->m.out, NULL));
    lower_value(lower_find(w, i, group), &w->shard[u])->tensor = it->m.out;
    it->m.piece = local.p;
    it->m.n_piece = local.n;
    if (n->kind != NUM_ALL_REDUCE && n->kind != NUM_REDUCE_SCATTER)
        return PL_OK;
    if (!peer)
        return addends(w, from, lower_find(w, from, group),
                       lower_group(w, group), &it->m);
    it->m.reduce = true;
    it->m.addend = peer->m.addend;
    it->m.n_addend = peer->m.n_addend;
    it->m.depth = peer->m.depth;
    return PL_OK;
}

pl_status lower_merge(struct lower *w, int u, int n, const int *item,
                      const struct merge_item *m, const pl_dim bytes[2],
                      struct insn *s)
{
    struct merge_item *mi = arena_memdup(w->a, m, (size_t)n, sizeof *mi);

    PL_TRY(lower_memory(w));
    s->kind = INSN_MERGE;
    s->node = w->num->node[item[0]].node;
    s->merge.collective = true;
    s->merge.counted = w->shard[u].local == 0;
    s->merge.n_item = n;
    s->merge.item = mi;
    memcpy(s->merge.collective_bytes, bytes, sizeof s->merge.collective_bytes);
    return lower_insn(w, lower_dev(w, u), s);
}

/* ---- a collective -------------------------------------------------------- */

static void count_collective(struct lower *w, int group, int n, const int *item,
                             pl_dim bytes[2])
{
    struct lowered_variant *o = &w->out->variant[w->variant.index];

    bytes[0] = bytes[1] = (pl_dim){0, PL_CONST};
    for (int k = 0; k < n; k++) {
        const struct graph_node *x = lower_node(w, item[k]);

        lower_add_bytes(bytes, lower_product(x->dim, 0, x->n_dim, 4));
    }
    if (w->now.micro == 0) {
        const struct num_node *first = &w->num->node[item[0]];

        o->collective[o->n_collective++] = (struct lowered_collective){
            first->node, w->g->node[first->node].layer, group, first->kind,
            n,           {bytes[0], bytes[1]}};
    }
}

/* Emits a collective of one shard. Nothing is sent, and a conversion is only
 * another name. */
static pl_status alone(struct lower *w, int group, int n, const int *item)
{
    for (int k = 0; k < n; k++) {
        const struct placed *from =
            lower_find(w, w->num->node[item[k]].in[0], group);
        struct placed *to;

        PL_TRY(lower_add_value(w, item[k], group, &to));
        if (from->sums)
            to->h.v[0].tensor = from->sums[0].tensor;
        else
            to->h.v[0] = from->h.v[0];
    }
    return PL_OK;
}

pl_status lower_collective(struct lower *w, int group, int n, const int *item)
{
    const struct lower_group *g = lower_group(w, group);
    struct lower_item *it;
    struct placed *h;
    pl_dim bytes[2];

    for (int k = 0; k < n; k++) { /* operands copied from another group */
        struct placed *x = lower_find(w, w->num->node[item[k]].in[0], group);

        for (int m = 0; x && m < g->n; m++)
            PL_TRY(lower_await_value(w, x, g->first + m));
    }
    if (g->n == 1)
        return alone(w, group, n, item);
    it = arena_alloc(w->a, (size_t)(n * g->n) + 1, sizeof *it);
    PL_TRY(lower_memory(w));
    for (int k = 0; k < n; k++)
        PL_TRY(lower_add_value(w, item[k], group, &h));
    for (int m = 0; m < g->n; m++)
        for (int k = 0; k < n; k++)
            PL_TRY(plan_item(w, g->first + m, item[k], m > 0 ? &it[k] : NULL,
                             &it[m * n + k]));
    count_collective(w, group, n, item, bytes);
    /* the device's next instruction is the collective's */
    for (int m = 0; m < g->n; m++)
        PL_TRY(lower_flush_posts(w, lower_dev(w, g->first + m), QUEUE_COMPUTE));
    return w->transfers->group[group].exchange == EXCHANGE_SHARED
               ? lower_collective_shared(w, group, n, item, it, bytes)
               : lower_collective_inbox(w, group, n, item, it, bytes);
}

pl_status lower_keep(struct lower *w, int u, int tensor, int micro)
{
    struct shard_collectives *v = &w->shard[u].collectives;

    if (w->dev[lower_dev(w, u)].in_buffer[tensor] < 0)
        return PL_OK;
    for (int k = 0; k < v->n_lent; k++)
        if (v->peer_read[k].tensor == tensor && v->peer_read[k].micro == micro)
            return PL_OK;
    v->peer_read = arena_extended(w->a, v->peer_read, (size_t)v->n_lent,
                                  sizeof *v->peer_read);
    PL_TRY(lower_memory(w));
    v->peer_read[v->n_lent++] = (struct peer_read){tensor, micro};
    return PL_OK;
}

pl_status lower_end_collectives(struct lower *w)
{
    for (int u = 0; u < w->opt->n_shard; u++) {
        struct shard_collectives *x = &w->shard[u].collectives;

        /* no later collective releases these */
        for (int i = 0; i < x->n_lent; i++)
            PL_TRY(lower_hold(w, lower_dev(w, u), x->peer_read[i].tensor));
        x->n_lent = 0;
        for (int i = 0; i < PROG_MAX_MICRO; i++)
            x->reusable_from[i] = -1;
    }
    return PL_OK;
}
