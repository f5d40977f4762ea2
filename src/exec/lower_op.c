/* Leaves and ops: local shapes, packed weights, spans of contractions, head
 * maps, costs. */
#include "exec/lower_inner.h"

#include "base/err.h"

#include <string.h>

/* Leaves ----------------------------------------------------------------- */

bool lower_reads_packed(enum op op, int k, pl_format f)
{
    if (op == OP_matmul || op == OP_expert_matmul || op == OP_expert_down)
        return k == 1;
    return op == OP_gather_rows && k == 0 && format_info(f)->block > 1;
}

/* Spans of a dimension that this device stores, in ascending order; the rank
 * is the one that counts them. */
static pl_status spans(struct lower *w, const struct layout_local *m,
                       struct rank_span **out, int *n)
{
    int64_t reps = m->period ? m->size / m->period : 0;
    struct rank_span *s =
        arena_alloc(w->a, (size_t)(m->n_part * reps) + 1, sizeof *s);

    *n = 0;
    *out = s;
    if (!s)
        return err_no_memory(w->err, "a program");
    for (int64_t rep = 0; rep < reps; rep++)
        for (int i = 0; i < m->n_part; i++)
            s[(*n)++] = (struct rank_span){
                rep * m->period + m->part[i].log,
                rep * m->local_period + m->part[i].loc, m->part[i].n,
                m->n_part == 1 && m->part[i].owners == ~(rankset)0
                    ? 0
                    : rank_first(m->part[i].owners)};
    return PL_OK;
}

static pl_status packed_leaf(struct lower *w, int d, int i)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    struct draft *v = &w->dev[d];
    struct layout_local k, rows;
    struct rank_span *rs;
    struct pack_span *ps;
    struct pack_chunk *chunks;
    struct pack *p = arena_alloc(w->a, 1, sizeof *p);
    pl_dim dim[GRAPH_MAX_DIM];
    int t, n_span, last = x->n_dim - 1;
    struct prog_tensor *pt;

    PL_TRY(lower_local(w, d, i, last, &k));
    PL_TRY(lower_local(w, d, i, last - 1, &rows));
    PL_TRY(spans(w, &k, &rs, &n_span));
    ps = arena_alloc(w->a, (size_t)n_span + 1, sizeof *ps);
    if (!p || !ps)
        return err_no_memory(w->err, "a program");
    for (int s = 0; s < n_span; s++)
        ps[s] = (struct pack_span){rs[s].log, rs[s].n, rs[s].rank};
    chunks =
        arena_alloc(w->a, (size_t)pack_max_chunks(x->format, ps, n_span) + 1,
                    sizeof *chunks);
    if (!chunks)
        return err_no_memory(w->err, "a program");
    pack_init(p, x->format, rows.local, k.size, ps, n_span, chunks);
    lower_dims(w, d, i, dim);
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 0, &t, NULL));
    pt = &v->tensor[t];
    pt->region = REGION_WEIGHTS;
    pt->pack = p;
    pt->bytes = p->matrix_bytes * (size_t)(x->n_dim == 3 ? dim[0].n : 1);
    pt->offset = v->weights;
    v->weights += (pt->bytes + 63) / 64 * 64;
    v->value[i].tensor = t;
    return PL_OK;
}

static pl_status plain_leaf(struct lower *w, int d, int i, int *tensor)
{
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    struct draft *v = &w->dev[d];
    pl_dim dim[GRAPH_MAX_DIM];
    struct graph_node shape = *x;
    struct prog_tensor *pt;
    size_t bytes;
    int t;

    lower_dims(w, d, i, dim);
    memcpy(shape.dim, dim, sizeof dim);
    if (x->op == OP_input)
        return lower_tensor(w, d, x->format, x->n_dim, dim, 1, tensor, NULL);
    if (x->op == OP_cache)
        bytes = (size_t)(w->opt->max.n_slot / CPU_PAGE) * (size_t)dim[1].n *
                cpu_cache_tile_bytes(x->format, dim[2].n);
    else
        bytes =
            format_row_bytes(x->format, dim[x->n_dim - 1].n) *
            (size_t)(dim[x->n_dim - 1].n ? graph_count(&shape, &w->opt->max) /
                                               dim[x->n_dim - 1].n
                                         : 0);
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 0, &t, NULL));
    pt = &v->tensor[t];
    pt->bytes = bytes;
    pt->region = x->op == OP_cache ? REGION_CACHE : REGION_WEIGHTS;
    pt->offset = x->op == OP_cache ? v->cache : v->weights;
    *(x->op == OP_cache ? &v->cache : &v->weights) += (bytes + 63) / 64 * 64;
    *tensor = t;
    return PL_OK;
}

pl_status lower_leaves(struct lower *w)
{
    const struct numeric *num = w->num;
    unsigned char *how = arena_alloc(w->a, (size_t)num->n + 1, 1);

    if (!how)
        return err_no_memory(w->err, "a program");
    for (int i = 0; i < num->n; i++)
        for (int k = 0; num->node[i].kind == NUM_OP && k < num->node[i].n_in;
             k++) {
            int j = num->node[i].in[k];
            const struct graph_node *x =
                j >= 0 ? &w->g->node[num->node[j].node] : NULL;

            if (x && x->op == OP_weight)
                how[j] |= lower_reads_packed(w->g->node[num->node[i].node].op,
                                             k, x->format)
                              ? 1
                              : 2;
        }
    for (int i = 0; i < num->n; i++) {
        const struct graph_node *x = &w->g->node[num->node[i].node];

        if (num->node[i].kind != NUM_OP || op_info(x->op)->dims)
            continue;
        if (x->op == OP_weight && how[i] == 0) /* read by nobody */
            how[i] = format_info(x->format)->block > 1 && x->n_dim > 1 ? 1 : 2;
        for (int d = 0; d < w->opt->n_dev; d++) {
            struct lowered_value *v = &w->dev[d].value[i];

            if (w->dev[d].n_rank == 0)
                continue;
            if (how[i] & 1)
                PL_TRY(packed_leaf(w, d, i));
            if (x->op != OP_weight)
                PL_TRY(plain_leaf(w, d, i, &v->tensor));
            else if (how[i] & 2)
                PL_TRY(
                    plain_leaf(w, d, i, how[i] & 1 ? &v->plain : &v->tensor));
        }
    }
    return PL_OK;
}

/* Ops -------------------------------------------------------------------- */

static pl_status head_map(struct lower *w, int d, int i, struct step *s)
{
    const struct num_node *n = &w->num->node[i];
    struct layout_local q, kv;
    int64_t r, at = 0;
    int32_t *map;

    PL_TRY(lower_local(w, d, n->in[0], 1, &q));
    PL_TRY(lower_local(w, d, n->in[1], 1, &kv));
    map = arena_alloc(w->a, (size_t)q.local + 1, sizeof *map);
    if (!map)
        return err_no_memory(w->err, "a program");
    r = q.size / (kv.size ? kv.size : 1);
    for (int64_t rep = 0; q.period && rep < q.size / q.period; rep++)
        for (int p = 0; p < q.n_part; p++)
            for (int64_t h = 0; h < q.part[p].n; h++) {
                int64_t log = rep * q.period + q.part[p].log + h;

                map[at++] = (int32_t)layout_local_index(&kv, log / r);
            }
    s->head_map = map;
    return PL_OK;
}

/* Indices of a dimension that each rank counts. */
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

static pl_status costs(struct lower *w, int d, int i, struct step *s)
{
    const struct num_node *n = &w->num->node[i];
    const struct num_node *wt = &w->num->node[n->in[1]];
    const struct graph_node *x = &w->g->node[wt->node];
    const struct draft *v = &w->dev[d];
    int64_t k = x->dim[x->n_dim - 1].n, rows = x->dim[x->n_dim - 2].n;
    int64_t count[PL_MAX_RANKS], other;
    struct step_cost *c;
    bool by_k = n->sum != NULL;
    int m = 0;

    counted(wt->layout, by_k ? k : rows, count);
    if (wt->layout->kind == PL_SPLIT &&
        wt->layout->dim != x->n_dim - (by_k ? 1 : 2))
        counted(&layout_mirrored, by_k ? k : rows, count);
    other = by_k ? rows : k;
    if (s->op == OP_expert_down)
        other *= w->g->node[w->num->node[n->in[0]].node].dim[1].n;
    c = arena_alloc(w->a, (size_t)v->n_rank + 1, sizeof *c);
    if (!c)
        return err_no_memory(w->err, "a program");
    for (int r = v->rank0; r < v->rank0 + v->n_rank; r++) {
        bool mine = !by_k;

        for (int t = 0; t < s->tree.n && by_k; t++)
            mine |= s->tree.item[t].rank == r;
        if (mine && count[r])
            c[m++] = (struct step_cost){r, count[r] * other};
    }
    s->cost = c;
    s->n_cost = m;
    return PL_OK;
}

/* The summed dimension of a plain contraction (gather_rows, sum). */
static pl_status plain_spans(struct lower *w, int d, int i, struct step *s)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[w->num->node[n->in[0]].node];
    struct layout_local m;
    struct rank_span *rs;

    if (s->op == OP_gather_rows &&
        (w->num->node[n->in[0]].layout->kind != PL_SPLIT ||
         w->num->node[n->in[0]].layout->dim != 0))
        return PL_OK; /* all rows are here, however many the step has */
    PL_TRY(lower_local(w, d, n->in[0],
                       s->op == OP_gather_rows ? 0 : x->n_dim - 2, &m));
    PL_TRY(spans(w, &m, &rs, &s->n_span));
    s->span = rs;
    return PL_OK;
}

static pl_status quantized(struct lower *w, int d, int tensor, bool memo,
                           int *out)
{
    struct draft *v = &w->dev[d];
    struct step s = {.kind = STEP_Q8,
                     .node = -1,
                     .q8 = -1,
                     .n_in = 1,
                     .in = {tensor, -1, -1, -1}};
    const struct prog_tensor *x = &v->tensor[tensor];
    pl_dim dim[GRAPH_MAX_DIM];
    int n_dim = x->n_dim;

    if (memo && v->q8[tensor] >= 0) {
        *out = v->q8[tensor];
        return PL_OK;
    }
    memcpy(dim, x->dim, sizeof dim);
    dim[n_dim - 1].n = dim[n_dim - 1].n / 32 * (int64_t)sizeof(struct q8_block);
    PL_TRY(lower_tensor(w, d, PL_F32, n_dim, dim, -1, &s.out, NULL));
    memcpy(v->tensor[s.out].dim, v->tensor[tensor].dim, sizeof dim);
    v->tensor[s.out].q8 = true;
    PL_TRY(lower_step(w, d, &s));
    if (memo)
        v->q8[tensor] = s.out;
    *out = s.out;
    return PL_OK;
}

pl_status lower_op(struct lower *w, int d, int i, const int *in, int out,
                   const struct rank_tree *tree, size_t stride, bool memo_q8)
{
    static const struct rank_item whole_item = {0, 0};
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    struct step s = {.kind = STEP_OP,
                     .op = x->op,
                     .node = n->node,
                     .attr = x->attr,
                     .out = out,
                     .n_in = n->n_in,
                     .q8 = -1};

    memset(s.in, -1, sizeof s.in);
    memcpy(s.in, in, (size_t)n->n_in * sizeof *in);
    if (tree) {
        s.tree = *tree;
        s.out_stride = stride;
    } else {
        s.tree = (struct rank_tree){1, 1, &whole_item, 1};
    }
    switch (x->op) {
    case OP_matmul:
    case OP_expert_matmul:
    case OP_expert_down:
        PL_TRY(costs(w, d, i, &s));
        if (cpu_wants_q8(w->opt->kernels, x->op,
                         w->g->node[w->num->node[n->in[1]].node].format))
            PL_TRY(quantized(w, d, in[0], memo_q8, &s.q8));
        break;
    case OP_gather_rows:
    case OP_sum:
        PL_TRY(plain_spans(w, d, i, &s));
        break;
    case OP_attention:
        PL_TRY(head_map(w, d, i, &s));
        break;
    case OP_slice:
        if (w->num->node[n->in[0]].layout->kind == PL_SPLIT &&
            w->num->node[n->in[0]].layout->dim == x->attr.axis) {
            struct layout_local m;

            PL_TRY(lower_local(w, d, n->in[0], x->attr.axis, &m));
            s.attr.start = layout_local_below(&m, x->attr.start);
        }
        break;
    case OP_custom:
        PL_TRY(lower_custom(w, d, i, &s));
        break;
    default:
        break;
    }
    return lower_step(w, d, &s);
}
