/* PARTIAL subgraphs: the nodes from split contractions to the points where sums
 * are taken. Their values are one addend per rank.
 *
 * A contraction that is reduced at once adds its ranks in the kernel. A longer
 * subgraph is computed once per rank, with the same scratch memory, and each
 * rank's result is pushed onto a stack of subtree sums. If its nodes are in
 * several groups, the subgraph is cut into *segments* where the group changes.
 * A value that crosses a cut is kept, and copied to the other group rank by
 * rank. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <string.h>

/* Tables of PARTIAL values; all are [num->n]. */
struct partials {
    bool *lone; /* a contraction that no PARTIAL op reads */
    /* those of the conversions that are being computed */
    bool *need, *exit, *kept;
    int *node, *segment_of;
};

/* Allocates the tables, and finds the contractions that no PARTIAL op reads. */
static pl_status open_partials(struct lower *w)
{
    const struct numeric *p = w->num;
    size_t size = (size_t)p->n + 1;
    struct partials *x = arena_alloc(w->a, 1, sizeof *x);

    PL_TRY(lower_memory(w));
    w->partials = x;
    w->present = arena_alloc(w->a, size, sizeof *w->present);
    x->lone = arena_alloc(w->a, size, sizeof *x->lone);
    x->need = arena_alloc(w->a, size, sizeof *x->need);
    x->exit = arena_alloc(w->a, size, sizeof *x->exit);
    x->kept = arena_alloc(w->a, size, sizeof *x->kept);
    x->node = arena_alloc(w->a, size, sizeof *x->node);
    x->segment_of = arena_alloc(w->a, size, sizeof *x->segment_of);
    PL_TRY(lower_memory(w));
    for (int i = 0; i < p->n; i++)
        x->lone[i] =
            p->node[i].sum != NULL && lower_node(w, i)->op != OP_custom;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; lower_is_partial(w, i) && k < p->node[i].n_in; k++)
            if (p->node[i].in[k] >= 0)
                x->lone[p->node[i].in[k]] = false;
    return PL_OK;
}

/* Finds the ranks that have an addend of each PARTIAL value. For a contraction,
 * these are the ranks whose slice is not empty. If its value is passed on
 * through other ops, rank 0 has an addend, too, perhaps of zeros, to which
 * values are added that must be added once. */
pl_status lower_find_addend_ranks(struct lower *w)
{
    const struct numeric *p = w->num;

    PL_TRY(open_partials(w));
    for (int i = 0; i < p->n; i++) {
        const struct num_node *n = &p->node[i];
        bool all_partial = true;

        if (!lower_is_partial(w, i))
            continue;
        if (n->sum) {
            for (int k = 0; k < n->sum->n_run; k++)
                w->present[i] |= (uint64_t)1
                                 << rank_first(n->sum->run[k].owners);
            if (!w->partials->lone[i])
                w->present[i] |= 1;
            continue;
        }
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] < 0)
                continue;
            if (p->node[n->in[k]].layout->kind == PL_PARTIAL)
                w->present[i] |= w->present[n->in[k]];
            else
                all_partial = false;
        }
        if (graph_partial(&w->g->node[n->node]) == PL_OP_SUM && !all_partial)
            w->present[i] |= 1;
    }
    return PL_OK;
}

/* Neighbouring nodes of a subgraph that one group computes. */
struct segment {
    const int *node; /* ascending */
    int n, group;
    const bool *exit; /* [num->n] its value is reduced now */
    const bool *kept; /* [num->n] read beyond the segment, rank by rank */
};

/* Returns true if node i of the segment adds its ranks in the kernel. */
static bool adds_in_kernel(const struct lower *w, const struct segment *g,
                           int i)
{
    return w->partials->lone[i] && g->exit[i];
}

static pl_status lone_contraction(struct lower *w, int u, int i)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    const struct lower_shard *v = &w->shard[u].u;
    struct addends *sums = &lower_find(w, i, v->group)->sums[w->shard[u].local];
    int in[GRAPH_MAX_IN];
    struct rank_tree t;

    memset(in, -1, sizeof in); /* absent */
    (void)rank_tree_make(&t, w->a, w->num->n_rank, w->present[i], v->rank0,
                         v->n_rank);
    PL_TRY(lower_memory(w));
    if (t.n == 0)
        return PL_OK;
    for (int k = 0; k < n->n_in; k++)
        PL_TRY(lower_operand(w, u, i, k, &in[k]));
    PL_TRY(lower_tensor(w, v->dev, x->format, x->n_dim, x->dim, t.n_out,
                        &sums->tensor, &sums->stride));
    return lower_op(w, u, i, in, sums->tensor, &t, sums->stride, true);
}

static pl_status plain_insn(struct lower *w, int d, enum kernel kernel, int a,
                            int b, int out, const struct graph_attr *attr)
{
    static const struct tree_addend item = {0, 0};
    struct insn s = {
        .kind = INSN_KERNEL,
        .node = -1,
        .kernel = {
            .kernel = kernel,
            .n_arg = b >= 0 ? 3 : 2,
            .arg = {{out, ACCESS_WRITE}, {a, ACCESS_READ}, {b, ACCESS_READ}},
            .attr = attr,
            .tree = {1, 1, &item, 1}}};

    return lower_insn(w, d, &s);
}

/* Emits a PARTIAL op for one rank, into `out`. in[k] < 0: that addend is
 * absent. */
static pl_status rank_op(struct lower *w, int u, int i, int r, const int *in,
                         int out)
{
    static const struct graph_attr minus_one = {.scale = -1};
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    int d = lower_dev(w, u);

    if (n->sum) {
        struct tree_addend *item = arena_alloc(w->a, 1, sizeof *item);
        struct rank_tree t = {1, 1, item, 1};

        PL_TRY(lower_memory(w));
        item->rank = r;
        return lower_op(w, u, i, in, out, &t, 0, false);
    }
    if (x->op != OP_custom && graph_partial(x) == PL_OP_SUM &&
        (in[0] < 0 || in[1] < 0)) {
        int a = in[0] >= 0 ? in[0] : in[1];

        PL_TRY(plain_insn(w, d, KERNEL_contiguous, a, -1, out, NULL));
        if (in[0] < 0 && x->op == OP_sub)
            PL_TRY(plain_insn(w, d, KERNEL_scale, out, -1, out, &minus_one));
        return PL_OK;
    }
    if (x->op == OP_reshape) { /* the same values under other dimensions */
        int a;

        PL_TRY(lower_alias(w, d, in[0], x->n_dim, x->dim, 0, &a));
        return plain_insn(w, d, KERNEL_contiguous, a, -1, out, NULL);
    }
    return lower_op(w, u, i, in, out, NULL, 0, false);
}

struct stack {
    struct rank_tree tree;
    int entry[72]; /* tensors of the entries */
    int top, next; /* height; index of the next tree item */
};

/* Returns the index of rank r among the ranks that are present at shard u. */
static int rank_entry(const struct lower *w, int u, int i, int r)
{
    uint64_t below = ((uint64_t)1 << r) - 1;

    return __builtin_popcountll(w->present[i] & w->shard[u].u.ranks & below);
}

/* Sets the tensor of rank r's addend of a value that was kept rank by rank. */
static pl_status kept_entry(struct lower *w, int u, int i, int r, int *tensor)
{
    const struct graph_node *x = lower_node(w, i);
    const struct lower_shard *v = &w->shard[u].u;
    struct placed *h = lower_find(w, i, v->group);
    const struct addends *a = &h->by_rank[w->shard[u].local];

    PL_TRY(lower_await_value(w, h, u));
    return lower_alias(w, v->dev, a->tensor, x->n_dim, x->dim,
                       (size_t)rank_entry(w, u, i, r) * a->stride, tensor);
}

/* Allocates memory for the results of node i of the segment at shard u. */
static pl_status open_node(struct lower *w, int u, const struct segment *g,
                           int i, struct stack *st, int *tensor)
{
    const struct graph_node *x = lower_node(w, i);
    const struct lower_shard *v = &w->shard[u].u;
    struct placed *h = lower_find(w, i, g->group);
    struct addends *sums = &h->sums[w->shard[u].local];
    struct addends *kept = &h->by_rank[w->shard[u].local];
    int n = __builtin_popcountll(w->present[i] & v->ranks);

    *tensor = -1;
    if (adds_in_kernel(w, g, i))
        return PL_OK;
    if (g->kept[i] && n > 0)
        PL_TRY(lower_tensor(w, v->dev, x->format, x->n_dim, x->dim, n,
                            &kept->tensor, &kept->stride));
    if (!g->exit[i])
        return g->kept[i] ? PL_OK
                          : lower_tensor(w, v->dev, x->format, x->n_dim, x->dim,
                                         1, tensor, NULL);
    (void)rank_tree_make(&st->tree, w->a, w->num->n_rank, w->present[i],
                         v->rank0, v->n_rank);
    PL_TRY(lower_memory(w));
    if (st->tree.n == 0)
        return PL_OK;
    PL_TRY(lower_tensor(w, v->dev, x->format, x->n_dim, x->dim, st->tree.depth,
                        &sums->tensor, &sums->stride));
    for (int e = 0; e < st->tree.depth; e++)
        PL_TRY(lower_alias(w, v->dev, sums->tensor, x->n_dim, x->dim,
                           (size_t)e * sums->stride, &st->entry[e]));
    return PL_OK;
}

/* Pushes the addend of rank r onto its stack, and adds complete subtrees. */
static pl_status push(struct lower *w, int d, struct stack *st)
{
    st->top++;
    for (int m = st->tree.item[st->next++].n_add; m > 0; m--) {
        int a = st->entry[st->top - 2];

        PL_TRY(
            plain_insn(w, d, KERNEL_add, a, st->entry[st->top - 1], a, NULL));
        st->top--;
    }
    return PL_OK;
}

/* Sets in[] to the tensors that node k of the segment reads for rank r; -1: the
 * rank has no such addend. Operands that are not PARTIAL are added by rank 0
 * alone. */
static pl_status rank_operands(struct lower *w, int u, const struct segment *g,
                               int k, int r, const int *tensor, int *in)
{
    const struct num_node *n = &w->num->node[g->node[k]];
    bool once = graph_partial(&w->g->node[n->node]) == PL_OP_SUM;

    memset(in, -1, GRAPH_MAX_IN * sizeof *in);
    for (int j = 0; j < n->n_in; j++) {
        int y = n->in[j], at = k - 1;

        if (y < 0)
            continue;
        if (!lower_is_partial(w, y)) {
            if (!once || r == 0)
                PL_TRY(lower_operand(w, u, g->node[k], j, &in[j]));
            continue;
        }
        if (!(w->present[y] >> r & 1))
            continue;
        while (at >= 0 && g->node[at] != y)
            at--;
        if (at >= 0)
            in[j] = tensor[at];
        else
            PL_TRY(kept_entry(w, u, y, r, &in[j]));
    }
    return PL_OK;
}

/* Computes node k of the segment for rank r, into tensor[k]. */
static pl_status rank_node(struct lower *w, int u, const struct segment *g,
                           int k, int r, const struct stack *st, int *tensor)
{
    int i = g->node[k], in[GRAPH_MAX_IN], copy;

    if (adds_in_kernel(w, g, i) || !(w->present[i] >> r & 1))
        return PL_OK;
    if (g->exit[i])
        tensor[k] = st->entry[st->top];
    else if (g->kept[i])
        PL_TRY(kept_entry(w, u, i, r, &tensor[k]));
    PL_TRY(rank_operands(w, u, g, k, r, tensor, in));
    PL_TRY(rank_op(w, u, i, r, in, tensor[k]));
    if (!g->exit[i] || !g->kept[i])
        return PL_OK;
    PL_TRY(kept_entry(w, u, i, r, &copy));
    return plain_insn(w, lower_dev(w, u), KERNEL_contiguous, tensor[k], -1,
                      copy, NULL);
}

/* Runs the nodes that do not add their ranks in the kernel, rank by rank. */
static pl_status rank_loop(struct lower *w, int u, const struct segment *g)
{
    const struct lower_shard *v = &w->shard[u].u;
    struct stack *st = arena_alloc(w->a, (size_t)g->n + 1, sizeof *st);
    int *tensor = arena_alloc(w->a, (size_t)g->n + 1, sizeof *tensor);

    PL_TRY(lower_memory(w));
    for (int k = 0; k < g->n; k++)
        PL_TRY(open_node(w, u, g, g->node[k], &st[k], &tensor[k]));
    for (int r = v->rank0; r < v->rank0 + v->n_rank; r++) {
        for (int k = 0; k < g->n; k++)
            PL_TRY(rank_node(w, u, g, k, r, &st[k], tensor));
        for (int k = 0; k < g->n; k++) {
            int i = g->node[k];

            if (g->exit[i] && !w->partials->lone[i] && (w->present[i] >> r & 1))
                PL_TRY(push(w, v->dev, &st[k]));
        }
    }
    return PL_OK;
}

static pl_status run_segment(struct lower *w, const struct segment *g)
{
    const struct lower_group *gr = lower_group(w, g->group);
    bool loop = false;

    for (int k = 0; k < g->n; k++) {
        const struct num_node *n = &w->num->node[g->node[k]];
        struct placed *h = lower_find(w, g->node[k], g->group);

        if (!h)
            PL_TRY(lower_add_value(w, g->node[k], g->group, &h));
        for (int m = 0; m < gr->n; m++)
            h->ready[m] = -1; /* computed again for another reader */
        loop |= !adds_in_kernel(w, g, g->node[k]);
        for (int j = 0; j < n->n_in; j++)
            if (n->in[j] >= 0)
                PL_TRY(lower_materialize(w, n->in[j], n->in[j], g->group));
    }
    for (int m = 0; m < gr->n; m++) {
        int u = gr->first + m;

        for (int k = 0; k < g->n; k++)
            if (adds_in_kernel(w, g, g->node[k]))
                PL_TRY(lone_contraction(w, u, g->node[k]));
        if (loop)
            PL_TRY(rank_loop(w, u, g));
    }
    return PL_OK;
}

pl_status lower_partial_operands(struct lower *w, int n, const int *item)
{
    const struct numeric *p = w->num;
    bool *need = w->partials->need, *exit = w->partials->exit;
    bool *kept = w->partials->kept;
    int *node = w->partials->node, *segment_of = w->partials->segment_of;
    int last = -1, count = 0, n_segment = 0;

    memset(need, 0, (size_t)p->n);
    memset(exit, 0, (size_t)p->n);
    memset(kept, 0, (size_t)p->n);
    for (int k = 0; k < n; k++) {
        int from = p->node[item[k]].in[0];

        if (lower_is_partial(w, from)) {
            need[from] = exit[from] = true;
            last = from > last ? from : last;
        }
    }
    for (int i = last; i >= 0; i--)
        for (int k = 0; need[i] && k < p->node[i].n_in; k++)
            if (lower_is_partial(w, p->node[i].in[k]))
                need[p->node[i].in[k]] = true;
    for (int i = 0; i <= last; i++)
        if (need[i]) {
            n_segment += count == 0 ||
                         w->variant.at[i] != w->variant.at[node[count - 1]];
            segment_of[i] = n_segment;
            node[count++] = i;
        }
    for (int k = 0; k < count; k++)
        for (int j = 0; j < p->node[node[k]].n_in; j++) {
            int y = p->node[node[k]].in[j];

            if (lower_is_partial(w, y) && segment_of[y] != segment_of[node[k]])
                kept[y] = true;
        }
    for (int k = 0, end; k < count; k = end) {
        struct segment g = {node + k, 0, w->variant.at[node[k]], exit, kept};

        for (end = k;
             end < count && segment_of[node[end]] == segment_of[node[k]];)
            end++;
        g.n = end - k;
        PL_TRY(run_segment(w, &g));
    }
    return PL_OK;
}
