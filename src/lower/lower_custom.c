/* Instructions of caller-defined ops (pl_custom).
 *
 * Their kernels get the part of each split dimension that is on the device, and
 * see contiguous operands only. If a letter is summed over, the instruction of
 * a rank is preceded by copies: one tensor per operand with the letter, with
 * the indices that this rank counts. Our own kernels handle all ranks of a
 * device in one call, and sum along the tree. For caller-defined ops, lowering
 * does this outside the kernel, as for any op in a PARTIAL subgraph. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <string.h>

static const struct kernel_custom_split whole = {-1, 0, NULL};

/* Finds the part of dimension `dim` of value i that shard u has. If rank >= 0,
 * only the part that the rank counts. */
static pl_status parts(struct lower *w, int u, int i, int dim, int rank,
                       pl_op_part **out, int *n)
{
    struct layout_local m;
    pl_op_part *p;

    PL_TRY(lower_local(w, u, i, dim, &m));
    p = arena_alloc(w->a, (size_t)layout_local_parts(&m) + 1, sizeof *p);
    *n = 0;
    *out = p;
    PL_TRY(lower_memory(w));
    for (int64_t k = 0; k < layout_local_parts(&m); k++) {
        struct layout_part q = layout_local_part(&m, k);

        if (rank >= 0 && rank_first(q.owners) != rank)
            continue;
        if (*n && p[*n - 1].index + p[*n - 1].n == q.logical &&
            p[*n - 1].at + p[*n - 1].n == q.local)
            p[*n - 1].n += q.n;
        else
            p[(*n)++] = (pl_op_part){q.logical, q.local, q.n};
    }
    return PL_OK;
}

static pl_status split_of(struct lower *w, int u, int i,
                          struct kernel_custom_split *s)
{
    const pl_layout *l = w->num->node[i].layout;
    pl_op_part *p;

    *s = whole;
    if (l->kind != PL_SPLIT)
        return PL_OK;
    s->dim = l->dim;
    PL_TRY(parts(w, u, i, l->dim, -1, &p, &s->n));
    s->part = p;
    return PL_OK;
}

static pl_dim bytes_of(const pl_dim *dim, int from, int to, int64_t n)
{
    return lower_product(dim, from, to, 4 * n);
}

/* Copies the part of value i that `rank` counts, from tensor *in at shard u, to
 * a tensor of its own, and sets *in to that. */
static pl_status rank_part(struct lower *w, int u, int i, int rank, int *in,
                           struct kernel_custom_split *s)
{
    const struct graph_node *x = lower_node(w, i);
    int axis = w->num->node[i].layout->dim, n, d = lower_dev(w, u);
    struct merge_item *m = arena_alloc(w->a, 1, sizeof *m);
    struct insn st = {.kind = INSN_MERGE, .node = (int)(x - w->g->node)};
    pl_dim have[GRAPH_MAX_DIM], want[GRAPH_MAX_DIM];
    const pl_dim one = {1, PL_CONST}, zero = {0, PL_CONST};
    struct copy_desc *piece;
    pl_op_part *p;
    int64_t at = 0;

    PL_TRY(parts(w, u, i, axis, rank, &p, &n));
    piece = arena_alloc(w->a, (size_t)n + 1, sizeof *piece);
    PL_TRY(lower_memory(w));
    lower_dims(w, u, i, have);
    memcpy(want, have, sizeof want);
    for (int k = 0; k < n; k++) {
        piece[k] = (struct copy_desc){
            .src_dev = d,
            .src = *in,
            .src_off = bytes_of(have, axis + 1, x->n_dim, p[k].at),
            .dst_off = bytes_of(have, axis + 1, x->n_dim, at),
            .bytes = bytes_of(have, axis + 1, x->n_dim, p[k].n),
            .n0 = lower_product(have, 0, axis, 1),
            .n1 = one,
            .src_s1 = zero,
            .dst_s1 = zero,
        };
        p[k].at = at;
        at += p[k].n;
    }
    want[axis].n = at;
    for (int k = 0; k < n; k++) {
        piece[k].src_s0 = bytes_of(have, axis, x->n_dim, 1);
        piece[k].dst_s0 = bytes_of(want, axis, x->n_dim, 1);
    }
    *s = (struct kernel_custom_split){axis, n, p};
    if (at == have[axis].n) /* the device has no part of another rank */
        return PL_OK;
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, want, 1, in, NULL));
    m->out = *in;
    m->piece = piece;
    m->n_piece = n;
    st.merge.item = m;
    st.merge.n_item = 1;
    return n ? lower_insn(w, d, &st) : PL_OK;
}

pl_status lower_custom(struct lower *w, int u, int i, struct insn_kernel *s)
{
    const struct num_node *n = &w->num->node[i];
    struct kernel_custom *c = arena_alloc(w->a, 1, sizeof *c);

    PL_TRY(lower_memory(w));
    c->def = w->g->node[n->node].custom;
    for (int k = 0; k < n->n_in; k++) {
        c->in[k] = whole;
        if (n->in[k] < 0)
            continue;
        if (n->sum && w->num->node[n->in[k]].layout->kind == PL_SPLIT)
            PL_TRY(rank_part(w, u, n->in[k], s->tree.item[0].rank,
                             &s->arg[k + 1].tensor, &c->in[k]));
        else
            PL_TRY(split_of(w, u, n->in[k], &c->in[k]));
    }
    PL_TRY(split_of(w, u, i, &c->out));
    s->custom = c;
    return PL_OK;
}
