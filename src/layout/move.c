/* Layouts of the results of reshape, permute, slice and concat. These ops only
 * move data, so the layout of the result follows from those of the operands. If
 * no layout expresses the result, the caller first gathers the operand. */
#include "layout/rules.h"

/* Maximum number of intervals of a result's layout. If there are more, the
 * operand is gathered first. */
enum { MAX_RUNS = 4096 };

static const pl_layout *with_dim(struct arena *a, const pl_layout *x, int dim)
{
    pl_layout *l = arena_alloc(a, 1, sizeof *l);

    if (!l)
        return &layout_mirrored;
    *l = *x;
    l->dim = dim;
    return l;
}

/* Returns the layout of a slice of a tensor with layout x: indices [start,
 * start + len) of the split dimension, which has `size` indices. Returns NULL
 * if there are too many intervals. */
static const pl_layout *cut_range(struct arena *a, const pl_layout *x,
                                  int64_t size, int64_t start, int64_t len,
                                  int n_rank)
{
    struct run_walk w;
    pl_interval *run;
    int n = 0, cap = 0;

    if (start % x->period == 0 && len % x->period == 0)
        return x;
    run_walk_first(&w, x, size);
    do {
        cap += w.pos < start + len && w.pos + w.left > start;
    } while (cap <= MAX_RUNS && run_walk_next(&w));
    if (cap > MAX_RUNS)
        return NULL;
    run = arena_alloc(a, (size_t)cap, sizeof *run);
    if (!run)
        return &layout_mirrored;
    run_walk_first(&w, x, size);
    do {
        int64_t lo = w.pos > start ? w.pos : start;
        int64_t hi =
            w.pos + w.left < start + len ? w.pos + w.left : start + len;

        if (lo < hi)
            run[n++] = (pl_interval){hi - lo, run_walk_owners(&w)};
    } while (run_walk_next(&w));
    return layout_split(a, x->dim, len, n, run, n_rank);
}

/* Returns true if node n has a dimension of symbolic size after dimension
 * `dim`, so that the stride of `dim` differs from step to step. */
static bool symbol_below(const struct graph_node *n, int dim)
{
    for (int d = dim + 1; d < n->n_dim; d++)
        if (n->dim[d].symbol != PL_CONST)
            return true;
    return false;
}

/* Returns the layout of n, which is a reshape of x with layout l. Both
 * lists of dimensions are divided into the smallest groups of adjacent
 * dimensions whose sizes have equal products. In the group of x's split
 * dimension, the intervals are multiplied by the sizes of the group's later
 * dimensions. If they can then be divided by the sizes of the dimensions after
 * some dimension of n, that dimension is split. A symbolic size counts as 1,
 * because it is a factor on both sides or on neither. Returns NULL if no
 * dimension of n fits. */
static const pl_layout *reshape(struct arena *a, const struct graph_node *x,
                                const struct graph_node *n, const pl_layout *l,
                                int n_rank)
{
    int i = 0, j = 0;

    /* With a single interval the same ranks hold all indices, so the result can
     * be split along any dimension. */
    if (l->n_run == 1) {
        int d = n->dim[0].symbol != PL_CONST;

        if (d == n->n_dim)
            return NULL;
        return layout_split(a, d, n->dim[d].n, 1,
                            &(pl_interval){n->dim[d].n, l->run[0].owners},
                            n_rank);
    }
    while (i < x->n_dim && j < n->n_dim) {
        int i0 = i, j0 = j;
        int64_t p = x->dim[i++].n, q = n->dim[j++].n, below = 1, period;

        while (p != q)
            if (p < q)
                p *= x->dim[i++].n;
            else
                q *= n->dim[j++].n;
        if (i == x->n_dim) /* The dimensions that are left have size 1 and
                              belong to the last group. */
            j = n->n_dim;
        if (j == n->n_dim)
            i = x->n_dim;
        if (l->dim < i0 || l->dim >= i)
            continue;
        for (int d = l->dim + 1; d < i; d++)
            below *= x->dim[d].n;
        period = l->period * below;
        below = 1; /* From here on, `below` is the product of the sizes of n's
                      later dimensions. */
        for (int d = j - 1; d >= j0; below *= n->dim[d].n, d--) {
            bool fits = n->dim[d].symbol == PL_CONST &&
                        symbol_below(n, d) == symbol_below(x, l->dim) &&
                        period % below == 0 &&
                        n->dim[d].n % (period / below) == 0;
            int64_t scale = period / l->period;
            pl_interval *run;

            for (int k = 0; fits && k < l->n_run; k++)
                fits = l->run[k].len * scale % below == 0;
            if (!fits)
                continue;
            run = arena_alloc(a, (size_t)l->n_run, sizeof *run);
            if (!run)
                return &layout_mirrored;
            for (int k = 0; k < l->n_run; k++)
                run[k] = (pl_interval){l->run[k].len * scale / below,
                                       l->run[k].owners};
            return layout_split(a, d, n->dim[d].n, l->n_run, run, n_rank);
        }
        return NULL;
    }
    return NULL;
}

/* Returns the layout of a concat whose operands are split along the axis of
 * concatenation: the intervals of all operands, one after another. A MIRRORED
 * operand becomes one interval that all ranks own. Returns NULL if an operand
 * is split along another dimension or if there are too many intervals. */
static const pl_layout *concat(struct arena *a, const pl_graph *g,
                               const struct graph_node *n,
                               const pl_layout *const *x, int n_rank)
{
    int axis = n->attr.axis, k = 0;
    int64_t cap = 0;
    pl_interval *run;

    for (int i = 0; i < n->n_in; i++) {
        if (x[i]->kind == PL_SPLIT && x[i]->dim != axis)
            return NULL;
        cap +=
            x[i]->kind == PL_SPLIT
                ? x[i]->n_run * (g->node[n->in[i]].dim[axis].n / x[i]->period)
                : 1;
        if (cap > MAX_RUNS)
            return NULL;
    }
    run = arena_alloc(a, (size_t)cap, sizeof *run);
    if (!run)
        return &layout_mirrored;
    for (int i = 0; i < n->n_in; i++) {
        int64_t size = g->node[n->in[i]].dim[axis].n;
        struct run_walk w;

        if (x[i]->kind != PL_SPLIT) {
            run[k++] = (pl_interval){size, ranks_all(n_rank)};
            continue;
        }
        run_walk_first(&w, x[i], size);
        do
            run[k++] = (pl_interval){w.left, run_walk_owners(&w)};
        while (run_walk_next(&w));
    }
    return layout_split(a, axis, n->dim[axis].n, k, run, n_rank);
}

const pl_layout *move_layout(struct arena *a, const pl_graph *g,
                             const struct graph_node *n,
                             const pl_layout *const *x, int n_rank)
{
    const struct graph_node *op = &g->node[n->in[0]];
    const struct graph_attr *at = &n->attr;
    int p[GRAPH_MAX_DIM] = {at->perm0, at->perm1, at->perm2, at->perm3};

    if (n->op == OP_concat)
        return concat(a, g, n, x, n_rank);
    if (x[0]->kind != PL_SPLIT)
        return x[0];
    switch (n->op) {
    case OP_permute:
        for (int d = 0; d < n->n_dim; d++)
            if (p[d] == x[0]->dim)
                return with_dim(a, x[0], d);
        return NULL;
    case OP_slice:
        return at->axis != x[0]->dim
                   ? x[0]
                   : cut_range(a, x[0], op->dim[at->axis].n, at->start,
                               n->dim[at->axis].n, n_rank);
    case OP_reshape:
        return reshape(a, op, n, x[0], n_rank);
    default:
        return NULL;
    }
}
