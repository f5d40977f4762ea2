/* The instructions of ops: operands, spans of contractions, head maps,
 * costs. */
#include "lower/lower_inner.h"

#include "base/err.h"
#include "quant/q8.h"

#include <string.h>

/* Arguments are the op's operands after the result. */
static pl_status head_map(struct lower *w, int u, int i, int many, int few,
                          struct insn_kernel *s)
{
    const struct num_node *n = &w->num->node[i];
    bool tiled = w->g->node[n->node].op == OP_delta_net_tiled;
    struct layout_local q, kv;
    int64_t r, at = 0;
    int32_t *map;

    PL_TRY(lower_local(w, u, n->in[many - 1], 1, &q));
    PL_TRY(lower_local(w, u, n->in[few - 1], 1, &kv));
    map = arena_alloc(w->a, (size_t)q.local + 1, sizeof *map);
    PL_TRY(lower_memory(w));
    r = q.size / (kv.size ? kv.size : 1);
    for (int64_t p = 0; p < layout_local_parts(&q); p++) {
        struct layout_part part = layout_local_part(&q, p);

        for (int64_t h = part.logical; h < part.logical + part.n; h++)
            map[at++] =
                (int32_t)layout_local_index(&kv, tiled ? h % kv.size : h / r);
    }
    s->head_map = map;
    return PL_OK;
}

/* Sets count[] to the number of indices of a dimension that each rank
 * counts. */
static void counted(const pl_layout *l, int64_t size, int64_t *count)
{
    memset(count, 0, PL_MAX_RANKS * sizeof *count);
    if (l->kind != PL_SPLIT) {
        count[0] = size;
        return;
    }
    for (int k = 0; k < l->n_run; k++)
        count[rank_first(l->run[k].owners)] +=
            l->run[k].len * (size / l->period);
}

static pl_status costs(struct lower *w, int u, int i, struct insn_kernel *s)
{
    const struct num_node *n = &w->num->node[i];
    const struct num_node *wt = &w->num->node[n->in[1]];
    const struct graph_node *x = &w->g->node[wt->node];
    const struct lower_shard *v = &w->shard[u].u;
    const bool heads = s->kernel == KERNEL_head_matmul;
    const bool by_k = n->sum != NULL;
    int64_t count[PL_MAX_RANKS], other = 1;
    struct kernel_cost *c;
    int m = 0, split = x->n_dim - (by_k ? 1 : 2);

    if (heads && !by_k && wt->layout->kind == PL_SPLIT && wt->layout->dim == 0)
        split = 0;
    if (wt->layout->kind == PL_SPLIT && wt->layout->dim != split)
        counted(&layout_mirrored, x->dim[split].n, count);
    else
        counted(wt->layout, x->dim[split].n, count);
    for (int d = heads ? 0 : x->n_dim - 2; d < x->n_dim; d++)
        other *= d == split ? 1 : x->dim[d].n;
    if (s->kernel == KERNEL_expert_down)
        other *= lower_node(w, n->in[0])->dim[1].n;
    c = arena_alloc(w->a, (size_t)v->n_rank + 1, sizeof *c);
    PL_TRY(lower_memory(w));
    for (int r = v->rank0; r < v->rank0 + v->n_rank; r++) {
        bool mine = !by_k;

        for (int t = 0; t < s->tree.n && by_k; t++)
            mine |= s->tree.item[t].rank == r;
        if (mine && count[r])
            c[m++] = (struct kernel_cost){r, count[r] * other};
    }
    s->cost = c;
    s->n_cost = m;
    return PL_OK;
}

/* Sets the spans of the summed dimension of a contraction without blocks
 * (gather_rows, sum). */
static pl_status plain_spans(struct lower *w, int u, int i,
                             struct insn_kernel *s)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = lower_node(w, n->in[0]);
    struct layout_local m;
    struct rank_span *rs;

    if (s->kernel == KERNEL_gather_rows &&
        (w->num->node[n->in[0]].layout->kind != PL_SPLIT ||
         w->num->node[n->in[0]].layout->dim != 0))
        return PL_OK; /* the device has all rows, whatever their number */
    PL_TRY(lower_local(w, u, n->in[0],
                       s->kernel == KERNEL_gather_rows ? 0 : x->n_dim - 2, &m));
    PL_TRY(lower_spans(w, &m, &rs, &s->n_span));
    s->span = rs;
    return PL_OK;
}

/* Sets the spans by which a contraction's activations are quantized: if the
 * weight has super-blocks, with one scale per chunk of these. */
static pl_status chunk_spans(struct lower *w, int u, int weight,
                             struct insn_kernel *s)
{
    const struct graph_node *x = lower_node(w, weight);
    struct layout_local k;
    struct rank_span *rs;

    if (format_info(x->format)->pack->sup == PACK_SUP_NONE)
        return PL_OK;
    PL_TRY(lower_local(w, u, weight, x->n_dim - 1, &k));
    PL_TRY(lower_spans(w, &k, &rs, &s->n_span));
    s->span = rs;
    return PL_OK;
}

static bool is_so_quantized(const struct draft_q8 *a,
                            const struct insn_kernel *how)
{
    return a->tensor >= 0 && a->n_span == how->n_span &&
           (a->n_span == 0 ||
            !memcmp(a->span, how->span, (size_t)a->n_span * sizeof *a->span));
}

/* Sets *out to the quantized form of a tensor for this weight. The newest form
 * is remembered. */
static pl_status quantized(struct lower *w, int u, int weight, int tensor,
                           bool memo, int *out)
{
    int d = lower_dev(w, u);
    struct program_builder *v = &w->dev[d];
    struct insn s = {
        .kind = INSN_KERNEL,
        .node = -1,
        .kernel = {.kernel = KERNEL_quantize,
                   .n_arg = 2,
                   .arg = {{-1, ACCESS_WRITE}, {tensor, ACCESS_READ}}}};
    const struct prog_tensor *x = &v->tensor[tensor];
    pl_dim dim[GRAPH_MAX_DIM];
    int n_dim = x->n_dim;

    PL_TRY(chunk_spans(w, u, weight, &s.kernel));
    if (memo && is_so_quantized(&v->q8[tensor], &s.kernel)) {
        *out = v->q8[tensor].tensor;
        return PL_OK;
    }
    memcpy(dim, x->dim, sizeof dim);
    dim[n_dim - 1].n = dim[n_dim - 1].n / 32 * (int64_t)sizeof(struct q8_block);
    PL_TRY(lower_tensor(w, d, PL_F32, n_dim, dim, -1, out, NULL));
    memcpy(v->tensor[*out].dim, v->tensor[tensor].dim, sizeof dim);
    v->tensor[*out].q8 = true;
    s.kernel.arg[0].tensor = *out;
    PL_TRY(lower_insn(w, d, &s));
    if (memo)
        v->q8[tensor] = (struct draft_q8){*out, s.kernel.n_span, s.kernel.span};
    return PL_OK;
}

/* Sets the kernel's arguments: the result, then the op's operands. An operand
 * that is updated is the result. */
static void set_args(struct insn_kernel *k, const int *in, int n_in, int out)
{
    enum access first = kernel_access(k->kernel, 0);

    k->arg[k->n_arg++] = (struct kernel_arg){out, first};
    for (int i = first == ACCESS_UPDATE; i < n_in; i++, k->n_arg++)
        k->arg[k->n_arg] =
            (struct kernel_arg){in[i], kernel_access(k->kernel, k->n_arg)};
}

/* Adds the token table as the last argument of a kernel that reads it. */
static pl_status token_table_arg(struct lower *w, int u, struct insn_kernel *k)
{
    int last = k->n_arg, tensor;

    while (kernel_access(k->kernel, last) &&
           !kernel_arg_is_token_table(k->kernel, last))
        last++;
    if (!kernel_access(k->kernel, last))
        return PL_OK;
    PL_TRY(lower_token_table(w, u, &tensor));
    while (k->n_arg < last)
        k->arg[k->n_arg++] = (struct kernel_arg){-1, ACCESS_READ};
    k->arg[k->n_arg++] = (struct kernel_arg){tensor, ACCESS_READ};
    return PL_OK;
}

/* Completes a contraction. It reads quantized activations if the weight's
 * format has blocks; they are its last argument. */
static pl_status contraction(struct lower *w, int u, int i, bool memo_q8,
                             struct insn_kernel *k)
{
    const struct num_node *n = &w->num->node[i];
    pl_format f = lower_node(w, n->in[1])->format;
    int q8;

    PL_TRY(costs(w, u, i, k));
    if (w->opt->dev[lower_dev(w, u)].activations[f] == ACTIVATIONS_F32)
        return PL_OK;
    PL_TRY(quantized(w, u, n->in[1], k->arg[1].tensor, memo_q8, &q8));
    k->arg[k->n_arg++] = (struct kernel_arg){q8, ACCESS_READ};
    return PL_OK;
}

/* Converts the start of a slice of a split dimension to the index in the local
 * part. */
static pl_status slice_start(struct lower *w, int u, int i,
                             struct insn_kernel *k)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    const pl_layout *l = w->num->node[n->in[0]].layout;
    struct graph_attr *attr;
    struct layout_local m;

    if (l->kind != PL_SPLIT || l->dim != x->attr.axis)
        return PL_OK;
    PL_TRY(lower_local(w, u, n->in[0], x->attr.axis, &m));
    attr = arena_memdup(w->a, &x->attr, 1, sizeof *attr);
    PL_TRY(lower_memory(w));
    attr->start = layout_local_below(&m, x->attr.start);
    k->attr = attr;
    return PL_OK;
}

pl_status lower_op(struct lower *w, int u, int i, const int *in, int out,
                   const struct rank_tree *tree, size_t stride, bool memo_q8)
{
    static const struct tree_addend whole_item = {0, 0};
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    struct insn s = {.kind = INSN_KERNEL, .node = n->node};
    struct insn_kernel *k = &s.kernel;
    int many, few;

    k->kernel = kernel_of_op(x->op);
    k->attr = &x->attr;
    k->tree = tree ? *tree : (struct rank_tree){1, 1, &whole_item, 1};
    k->out_stride = tree ? stride : 0;
    set_args(k, in, n->n_in, out);
    PL_TRY(token_table_arg(w, u, k));
    if (kernel_is_contraction(k->kernel))
        PL_TRY(contraction(w, u, i, memo_q8, k));
    if (x->op == OP_gather_rows || x->op == OP_sum)
        PL_TRY(plain_spans(w, u, i, k));
    if (kernel_maps_heads(k->kernel, &many, &few))
        PL_TRY(head_map(w, u, i, many, few, k));
    if (x->op == OP_slice)
        PL_TRY(slice_start(w, u, i, k));
    if (x->op == OP_custom)
        PL_TRY(lower_custom(w, u, i, k));
    return lower_insn(w, lower_dev(w, u), &s);
}

pl_status lower_operand(struct lower *w, int u, int i, int k, int *out)
{
    const struct num_node *n = &w->num->node[i];
    enum op op = w->g->node[n->node].op;
    const struct shard *x = &w->shard[u];
    const struct lowered_value *y;
    struct placed *h;

    *out = -1;
    if (n->in[k] < 0)
        return PL_OK;
    PL_TRY(lower_materialize(w, n->in[k], n->in[k], x->u.group));
    h = lower_find(w, n->in[k], x->u.group);
    PL_TRY(lower_await_value(w, h, u));
    y = lower_value(h, x);
    *out = y->plain >= 0 && lower_weight_use(op, k) == USE_VALUES ? y->plain
                                                                  : y->tensor;
    return PL_OK;
}

pl_status lower_op_all_shards(struct lower *w, int i)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    int group = w->variant.at[i];
    const struct lower_group *g = lower_group(w, group);
    struct placed *h;

    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] >= 0)
            PL_TRY(lower_materialize(w, n->in[k], n->in[k], group));
    PL_TRY(lower_add_value(w, i, group, &h));
    for (int m = 0; m < g->n; m++) {
        int u = g->first + m, d = lower_dev(w, u);
        int in[GRAPH_MAX_IN], *out = &h->h.v[m].tensor;
        pl_dim dim[GRAPH_MAX_DIM];

        memset(in, -1, sizeof in); /* absent */
        for (int k = 0; k < n->n_in; k++)
            PL_TRY(lower_operand(w, u, i, k, &in[k]));
        lower_dims(w, u, i, dim);
        if (x->op == OP_reshape) {
            PL_TRY(lower_alias(w, d, in[0], x->n_dim, dim, 0, out));
            continue;
        }
        if (!op_info(x->op)->is_new)
            *out = in[op_info(x->op)->updates];
        else
            PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 1, out, NULL));
        PL_TRY(lower_op(w, u, i, in, *out, NULL, 0, true));
    }
    return PL_OK;
}
