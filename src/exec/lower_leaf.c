/* Weights and caches: local shapes, packed forms, places in regions. */
#include "exec/lower_inner.h"

#include "base/err.h"
#include "program/cache_tile.h"

#include <string.h>

bool lower_reads_packed(enum op op, int k, pl_format f)
{
    if (op == OP_matmul || op == OP_expert_matmul || op == OP_expert_down)
        return k == 1;
    return op == OP_gather_rows && k == 0 && format_info(f)->block > 1;
}

pl_status lower_spans(struct lower *w, const struct layout_local *m,
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

pl_status lower_pack(struct lower *w, int u, int i, struct pack **out)
{
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    struct layout_local k, rows;
    struct rank_span *rs;
    struct pack_span *ps;
    struct pack_chunk *chunks;
    struct pack *p = arena_alloc(w->a, 1, sizeof *p);
    int n_span, last = x->n_dim - 1;

    PL_TRY(lower_local(w, u, i, last, &k));
    PL_TRY(lower_local(w, u, i, last - 1, &rows));
    PL_TRY(lower_spans(w, &k, &rs, &n_span));
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
    *out = p;
    return PL_OK;
}

int64_t lower_matrices(const struct lower *w, int u, int i)
{
    pl_dim dim[GRAPH_MAX_DIM];

    lower_dims(w, u, i, dim);
    return w->g->node[w->num->node[i].node].n_dim == 3 ? dim[0].n : 1;
}

void lower_place(struct draft *v, int t, enum region r, size_t bytes)
{
    struct prog_tensor *pt = &v->tensor[t];

    pt->region = r;
    pt->bytes = bytes;
    pt->offset = v->bytes[r];
    v->bytes[r] += (bytes + 63) / 64 * 64;
}

static pl_status packed_leaf(struct lower *w, int u, int i, int *tensor)
{
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    int d = w->unit[u].u.dev;
    struct pack *p;
    pl_dim dim[GRAPH_MAX_DIM];

    PL_TRY(lower_pack(w, u, i, &p));
    lower_dims(w, u, i, dim);
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 0, tensor, NULL));
    w->dev[d].tensor[*tensor].pack = p;
    lower_place(&w->dev[d], *tensor, REGION_WEIGHTS,
                p->matrix_bytes * (size_t)lower_matrices(w, u, i));
    return PL_OK;
}

static size_t plain_bytes(const struct lower *w, const struct graph_node *x,
                          const pl_dim *dim)
{
    struct graph_node shape = *x;
    int64_t row = dim[x->n_dim - 1].n;

    memcpy(shape.dim, dim, sizeof shape.dim);
    if (x->op == OP_cache)
        return (size_t)(w->opt->max.n_slot / PAGE_TOKENS) * (size_t)dim[1].n *
               cache_tile_bytes(x->format, dim[2].n);
    return row ? format_row_bytes(x->format, row) *
                     (size_t)(graph_count(&shape, &w->opt->max) / row)
               : 0;
}

static pl_status plain_leaf(struct lower *w, int u, int i, int *tensor)
{
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    int d = w->unit[u].u.dev;
    pl_dim dim[GRAPH_MAX_DIM];

    lower_dims(w, u, i, dim);
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 0, tensor, NULL));
    lower_place(&w->dev[d], *tensor,
                x->op == OP_cache ? REGION_CACHE : REGION_WEIGHTS,
                plain_bytes(w, x, dim));
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
        const struct lower_group *g;
        struct held *h;

        if (num->node[i].kind != NUM_OP ||
            (x->op != OP_weight && x->op != OP_cache))
            continue;
        if (x->op == OP_weight && how[i] == 0) /* read by nobody */
            how[i] = format_info(x->format)->block > 1 && x->n_dim > 1 ? 1 : 2;
        g = &w->opt->group[w->opt->home[i]];
        PL_TRY(lower_hold(w, i, w->opt->home[i], &h));
        for (int k = 0; k < g->n; k++) {
            struct lowered_value *v = &h->h.v[k];

            if (x->op == OP_cache || !(how[i] & 1)) {
                PL_TRY(plain_leaf(w, g->first + k, i, &v->tensor));
                continue;
            }
            PL_TRY(packed_leaf(w, g->first + k, i, &v->tensor));
            if (how[i] & 2)
                PL_TRY(plain_leaf(w, g->first + k, i, &v->plain));
        }
    }
    return PL_OK;
}
