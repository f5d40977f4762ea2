/* Weights and caches: local shapes, packed forms, offsets in regions. */
#include "lower/lower_inner.h"

#include "base/err.h"
#include "program/cache_tile.h"

#include <string.h>

enum weight_use lower_weight_use(enum op op, int k)
{
    if (graph_is_contraction(op))
        return k == 1 ? USE_CONTRACTION : USE_VALUES;
    return op == OP_gather_rows && k == 0 ? USE_LOOKUP : USE_VALUES;
}

pl_status lower_spans(struct lower *w, const struct layout_local *m,
                      struct rank_span **out, int *n)
{
    int64_t n_part = layout_local_parts(m);
    struct rank_span *s = arena_alloc(w->a, (size_t)n_part + 1, sizeof *s);

    *n = (int)n_part;
    *out = s;
    PL_TRY(lower_memory(w));
    for (int64_t i = 0; i < n_part; i++) {
        struct layout_part p = layout_local_part(m, i);
        bool whole = m->n_part == 1 && p.owners == ~(rankset)0;

        s[i] = (struct rank_span){p.logical, p.local, p.n,
                                  whole ? 0 : rank_first(p.owners)};
    }
    return PL_OK;
}

pl_status lower_pack(struct lower *w, int u, int i, struct pack **out)
{
    const struct graph_node *x = lower_node(w, i);
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
    PL_TRY(lower_memory(w));
    for (int s = 0; s < n_span; s++)
        ps[s] = (struct pack_span){rs[s].logical, rs[s].n, rs[s].rank};
    chunks =
        arena_alloc(w->a, (size_t)pack_max_chunks(x->format, ps, n_span) + 1,
                    sizeof *chunks);
    PL_TRY(lower_memory(w));
    pack_init(p, x->format, rows.local, k.size, ps, n_span, chunks);
    *out = p;
    return PL_OK;
}

int64_t lower_matrices(const struct lower *w, int u, int i)
{
    pl_dim dim[GRAPH_MAX_DIM];

    lower_dims(w, u, i, dim);
    return lower_node(w, i)->n_dim == 3 ? dim[0].n : 1;
}

void lower_append(struct program_builder *v, int t, enum region r, size_t bytes)
{
    struct prog_tensor *pt = &v->tensor[t];

    pt->region = r;
    pt->bytes = bytes;
    pt->offset = v->bytes[r];
    v->bytes[r] += (bytes + 63) / 64 * 64;
}

static pl_status packed_form(struct lower *w, int u, int i, int *tensor)
{
    const struct graph_node *x = lower_node(w, i);
    int d = lower_dev(w, u);
    struct pack *p;
    pl_dim dim[GRAPH_MAX_DIM];

    PL_TRY(lower_pack(w, u, i, &p));
    lower_dims(w, u, i, dim);
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 0, tensor, NULL));
    w->dev[d].tensor[*tensor].pack = p;
    lower_append(&w->dev[d], *tensor, REGION_WEIGHTS,
                 p->matrix_bytes * (size_t)lower_matrices(w, u, i));
    return PL_OK;
}

static size_t plain_bytes(const struct lower *w, const struct graph_node *x,
                          const pl_dim *dim)
{
    struct graph_node shape = *x;
    int64_t row = dim[x->n_dim - 1].n;

    memcpy(shape.dim, dim, sizeof shape.dim);
    if (x->op == OP_memory)
        return (size_t)(dim_value(dim[0], &w->opt->max) /
                        pool_page_slots(&w->g->pool[dim_pool(dim[0])])) *
               (size_t)dim[1].n * memory_tile_bytes(x);
    return row ? format_row_bytes(x->format, row) *
                     (size_t)(graph_count(&shape, &w->opt->max) / row)
               : 0;
}

static pl_status plain_form(struct lower *w, int u, int i, int *tensor)
{
    const struct graph_node *x = lower_node(w, i);
    int d = lower_dev(w, u);
    pl_dim dim[GRAPH_MAX_DIM];

    lower_dims(w, u, i, dim);
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 0, tensor, NULL));
    lower_append(&w->dev[d], *tensor,
                 x->op == OP_memory ? REGION_CACHE : REGION_WEIGHTS,
                 plain_bytes(w, x, dim));
    return PL_OK;
}

/* Returns the uses of each weight: a bit per use. */
static unsigned char *weight_uses(struct lower *w)
{
    const struct numeric *num = w->num;
    unsigned char *use = arena_alloc(w->a, (size_t)num->n + 1, 1);

    for (int i = 0; use && i < num->n; i++)
        for (int k = 0; num->node[i].kind == NUM_OP && k < num->node[i].n_in;
             k++)
            if (num->node[i].in[k] >= 0)
                use[num->node[i].in[k]] |=
                    (unsigned char)(1 << lower_weight_use(
                                        w->g->node[num->node[i].node].op, k));
    for (int i = 0; use && i < num->n; i++) {
        const struct graph_node *x = &w->g->node[num->node[i].node];
        bool matrix = format_info(x->format)->block > 1 && x->n_dim > 1;

        if (use[i] == 0) /* if nothing reads it, the usual form */
            use[i] =
                (unsigned char)(1 << (matrix ? USE_CONTRACTION : USE_VALUES));
    }
    return use;
}

/* Adds a weight at shard u, in each form that its device needs for these
 * uses. */
static pl_status weight(struct lower *w, int u, int i, unsigned use,
                        struct lowered_value *v)
{
    const struct lower_device *d = &w->opt->dev[lower_dev(w, u)];
    pl_format f = lower_node(w, i)->format;
    bool packed = false, rows = false;

    for (int k = 0; k < USE_COUNT; k++)
        packed |= (use >> k & 1) && d->packing[f][k] == PACKING_PACKED;
    for (int k = 0; k < USE_COUNT; k++)
        rows |= (use >> k & 1) && d->packing[f][k] == PACKING_ROWS &&
                !(packed && k == USE_LOOKUP);
    if (packed)
        PL_TRY(packed_form(w, u, i, &v->tensor));
    return rows ? plain_form(w, u, i, packed ? &v->plain : &v->tensor) : PL_OK;
}

pl_status lower_stored(struct lower *w)
{
    const struct numeric *num = w->num;
    unsigned char *use = weight_uses(w);

    PL_TRY(lower_memory(w));
    for (int i = 0; i < num->n; i++) {
        enum op op = w->g->node[num->node[i].node].op;
        const struct lower_group *g;
        struct placed *h;

        if (num->node[i].kind != NUM_OP || (op != OP_weight && op != OP_memory))
            continue;
        g = lower_group(w, w->opt->home[i]);
        PL_TRY(lower_add_value(w, i, w->opt->home[i], &h));
        for (int k = 0; k < g->n; k++)
            PL_TRY(op == OP_memory
                       ? plain_form(w, g->first + k, i, &h->h.v[k].tensor)
                       : weight(w, g->first + k, i, use[i], &h->h.v[k]));
    }
    return PL_OK;
}
