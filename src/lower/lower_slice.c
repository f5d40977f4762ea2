/* Slices: in a conversion from MIRRORED to SPLIT, each device only leaves out
 * the part that it need not have. A device that has nothing to leave out uses
 * the value as it is. */
#include "lower/lower_inner.h"

#include "base/err.h"
#include "graph/shape.h"

static pl_status shard_slice(struct lower *w, int u, int i)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    int group = w->shard[u].u.group, d = lower_dev(w, u);
    const struct placed *h = lower_find(w, n->in[0], group);
    struct lowered_value *v =
        lower_value(lower_find(w, i, group), &w->shard[u]);
    struct lower_pieces local = {0}, remote = {0};
    struct insn s = {.kind = INSN_MERGE, .node = n->node};
    struct merge_item *m;
    pl_dim a[GRAPH_MAX_DIM], b[GRAPH_MAX_DIM];
    int same = 0;

    PL_TRY(lower_await_value(w, h, u));
    lower_dims(w, u, n->in[0], a);
    lower_dims(w, u, i, b);
    while (same < x->n_dim && dim_equal(a[same], b[same]))
        same++;
    if (same == x->n_dim) {
        *v = *lower_value(h, &w->shard[u]); /* it has nothing to leave out */
        return PL_OK;
    }
    m = arena_alloc(w->a, 1, sizeof *m);
    PL_TRY(lower_memory(w));
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, b, 1, &m->out, NULL));
    v->tensor = m->out;
    PL_TRY(lower_pieces(w, u, group, n->in[0], i, &local, &remote));
    m->piece = local.p;
    m->n_piece = local.n;
    s.merge.item = m;
    s.merge.n_item = 1;
    return lower_insn(w, d, &s);
}

pl_status lower_slice(struct lower *w, int i)
{
    int group = w->variant.at[i];
    const struct lower_group *g = lower_group(w, group);
    struct placed *h;

    PL_TRY(lower_add_value(w, i, group, &h));
    for (int m = 0; m < g->n; m++)
        PL_TRY(shard_slice(w, g->first + m, i));
    return PL_OK;
}
