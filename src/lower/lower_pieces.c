/* Strided copies from one layout of a value to another, in closed form for any
 * number of tokens.
 *
 * The elements that are in one interval of the source's split dimension and in
 * one of the result's are a box. A box is contiguous bytes inside loops over
 * the outer dimensions. A copy_desc has two such loops. Further ones, whose
 * counts are constant, are unrolled. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <string.h>

pl_status lower_add_piece(struct lower *w, struct lower_pieces *l,
                          const struct copy_desc *p)
{
    l->p = arena_extended(w->a, l->p, (size_t)l->n, sizeof *l->p);
    PL_TRY(lower_memory(w));
    l->p[l->n++] = *p;
    return PL_OK;
}

struct loop {
    pl_dim n, src, dst; /* count, strides in bytes */
};

static bool same(pl_dim a, pl_dim b)
{
    return a.n == b.n && (a.symbol == b.symbol || a.n == 0);
}

/* Advances an offset by n strides. Its constant part and the part that grows
 * with the step are separate, because both occur if a symbolic dimension lies
 * between two split ones. */
static void advance(pl_dim *off, int64_t *at, pl_dim stride, int64_t n)
{
    if (stride.symbol == PL_CONST)
        *at += stride.n * n;
    else if (n)
        *off = (pl_dim){off->n + stride.n * n, stride.symbol};
}

static pl_dim by(pl_dim a, pl_dim b)
{
    return (pl_dim){a.n * b.n, a.symbol != PL_CONST ? a.symbol : b.symbol};
}

/* Emits the loops, unrolling constant ones until two are left. */
static pl_status emit(struct lower *w, struct lower_pieces *out,
                      struct copy_desc *p, struct loop *l, int n)
{
    int k = -1;
    struct copy_desc q = *p;

    if (n <= 2) {
        const pl_dim one = {1, PL_CONST}, zero = {0, PL_CONST};

        q.n0 = n > 0 ? l[0].n : one;
        q.src_s0 = n > 0 ? l[0].src : zero;
        q.dst_s0 = n > 0 ? l[0].dst : zero;
        q.n1 = n > 1 ? l[1].n : one;
        q.src_s1 = n > 1 ? l[1].src : zero;
        q.dst_s1 = n > 1 ? l[1].dst : zero;
        return lower_add_piece(w, out, &q);
    }
    for (int i = 0; i < n; i++)
        if (l[i].n.symbol == PL_CONST && (k < 0 || l[i].n.n < l[k].n.n))
            k = i;
    if (k < 0)
        return err_set(w->err, PL_UNSUPPORTED,
                       "a copy with more than two symbolic loops");
    {
        struct loop rest[GRAPH_MAX_DIM];
        int m = 0;

        for (int i = 0; i < n; i++)
            if (i != k)
                rest[m++] = l[i];
        for (int64_t i = 0; i < l[k].n.n; i++) {
            PL_TRY(emit(w, out, &q, rest, m));
            advance(&q.src_off, &q.src_const, l[k].src, 1);
            advance(&q.dst_off, &q.dst_const, l[k].dst, 1);
        }
    }
    return PL_OK;
}

/* A box: for each dimension, its start on both sides and its length. */
struct box {
    int64_t src[GRAPH_MAX_DIM], dst[GRAPH_MAX_DIM];
    pl_dim len[GRAPH_MAX_DIM];
};

static pl_status put_box(struct lower *w, struct lower_pieces *out,
                         const struct box *b, const struct graph_node *x,
                         const pl_dim *src, const pl_dim *dst, int src_dev,
                         int src_tensor)
{
    int64_t size = (int64_t)format_row_bytes(x->format, 1);
    struct copy_desc p = {.src_dev = src_dev, .src = src_tensor};
    struct loop l[GRAPH_MAX_DIM];
    pl_dim ss = {size, PL_CONST}, ds = {size, PL_CONST}; /* strides */
    int n = 0;
    bool solid = true; /* still contiguous */

    p.bytes = (pl_dim){size, PL_CONST};
    p.src_off = p.dst_off = (pl_dim){0, PL_CONST};
    for (int k = x->n_dim - 1; k >= 0; k--) {
        advance(&p.src_off, &p.src_const, ss, b->src[k]);
        advance(&p.dst_off, &p.dst_const, ds, b->dst[k]);
        if (solid) {
            p.bytes = by(p.bytes, b->len[k]);
            solid = same(b->len[k], src[k]) && same(b->len[k], dst[k]);
        } else if (n && same(ss, by(l[n - 1].src, l[n - 1].n)) &&
                   same(ds, by(l[n - 1].dst, l[n - 1].n))) {
            l[n - 1].n = by(l[n - 1].n, b->len[k]);
        } else if (!same(b->len[k], (pl_dim){1, PL_CONST})) {
            l[n++] = (struct loop){b->len[k], ss, ds};
        }
        ss = by(ss, src[k]);
        ds = by(ds, dst[k]);
    }
    return emit(w, out, &p, l, n);
}

/* An interval of the source's split dimension, and the shard from which it is
 * copied. */
struct source {
    int64_t at, n;
    int shard; /* -1 if none has it */
};

/* Finds the source of each interval: the shard itself if it has the interval,
 * else the first shard of the group that has it. */
static pl_status find_sources(struct lower *w, int u,
                              const struct lower_group *a, int from,
                              struct source **out, int *n)
{
    const struct num_node *f = &w->num->node[from];
    int64_t size = w->g->node[f->node].dim[f->layout->dim].n;
    int64_t cap = (size / f->layout->period) * f->layout->n_run;
    struct source *p = arena_alloc(w->a, (size_t)cap + 1, sizeof *p);
    struct run_walk r;

    *n = 0;
    *out = p;
    PL_TRY(lower_memory(w));
    run_walk_first(&r, f->layout, size);
    do {
        rankset o = run_walk_owners(&r);
        int shard = -1;

        if (u >= a->first && u < a->first + a->n && (o & w->shard[u].u.ranks))
            shard = u;
        for (int s = a->first; shard < 0 && s < a->first + a->n; s++)
            if (o & w->shard[s].u.ranks)
                shard = s;
        if (*n && p[*n - 1].shard == shard)
            p[*n - 1].n += r.left;
        else
            p[(*n)++] = (struct source){r.pos, r.left, shard};
    } while (run_walk_next(&r));
    return PL_OK;
}

/* Returns the source of a value that every shard of group `a` has whole: the
 * shard itself, else one for each receiver in turn. */
static int whole_source(const struct lower *w, int u,
                        const struct lower_group *a)
{
    if (u >= a->first && u < a->first + a->n)
        return u;
    return a->first + w->shard[u].local % a->n;
}

/* The two sides of a copy of the graph's value x. Dimension `a` is split in the
 * source and `b` in the result; -1 if none is. */
struct sides {
    const struct graph_node *x;
    int a, b;
    struct layout_local have, want;                /* of a; of b */
    pl_dim src[GRAPH_MAX_DIM], dst[GRAPH_MAX_DIM]; /* dimensions as stored */
};

static int split_dim(const struct num_node *n)
{
    return n->layout->kind == PL_SPLIT ? n->layout->dim : -1;
}

/* Sets the result's side to value i as shard u stores it. */
static pl_status open_result(struct lower *w, int u, int i, struct sides *s)
{
    static const struct layout_part whole = {0, 0, 0, 0};

    lower_dims(w, u, i, s->dst);
    if (s->b >= 0)
        return lower_local(w, u, i, s->b, &s->want);
    s->want = (struct layout_local){1, 1, 1, 1, 1, &whole};
    return PL_OK;
}

/* Sets the source's side to value i as shard u stores it. */
static pl_status open_source(struct lower *w, int u, int i, struct sides *s)
{
    if (w->num->node[i].layout->kind == PL_PARTIAL)
        memcpy(s->src, s->x->dim, sizeof s->src);
    else
        lower_dims(w, u, i, s->src);
    return s->a >= 0 ? lower_local(w, u, i, s->a, &s->have) : PL_OK;
}

/* Sets *box to the elements of interval `to` of the result that interval `from`
 * of the source has. Returns false if there are none. */
static bool cut_box(const struct sides *s, const struct source *from,
                    const struct layout_part *to, struct box *box)
{
    int a = s->a, b = s->b;
    int64_t at = from->at, end = from->at + from->n;

    *box = (struct box){{0}, {0}, {{0, PL_CONST}}};
    memcpy(box->len, s->x->dim, sizeof box->len);
    if (b >= 0) {
        box->src[b] = to->logical;
        box->dst[b] = to->local;
        box->len[b].n = to->n;
    }
    if (a < 0)
        return true;
    if (a == b) {
        at = at > to->logical ? at : to->logical;
        end = end < to->logical + to->n ? end : to->logical + to->n;
    }
    box->src[a] = layout_local_index(&s->have, at);
    box->dst[a] = a == b ? to->local + (at - to->logical) : at;
    box->len[a].n = end - at;
    return at < end;
}

/* Sets *local and *remote, or unless `sources` is NULL, only that. */
static pl_status find_pieces(struct lower *w, int u, int group, int from,
                             int to, struct lower_pieces *local,
                             struct lower_pieces *remote, uint64_t *sources)
{
    const struct num_node *f = &w->num->node[from], *t = &w->num->node[to];
    const struct lower_group *g = lower_group(w, group);
    const struct placed *h = sources ? NULL : lower_find(w, from, group);
    struct sides s = {
        .x = &w->g->node[t->node], .a = split_dim(f), .b = split_dim(t)};
    struct source whole = {0, 0, whole_source(w, u, g)}, *source = &whole;
    int n = 1;

    if (s.a >= 0)
        PL_TRY(find_sources(w, u, g, from, &source, &n));
    PL_TRY(open_result(w, u, to, &s));
    for (int i = 0; i < n; i++) {
        int su = source[i].shard;
        const struct lowered_value *v;

        if (su < 0)
            continue;
        v = h ? lower_value(h, &w->shard[su]) : NULL;
        PL_TRY(open_source(w, su, from, &s));
        for (int64_t k = 0; k < layout_local_parts(&s.want); k++) {
            struct layout_part part = layout_local_part(&s.want, k);
            struct box box;

            if (!cut_box(&s, &source[i], &part, &box))
                continue;
            if (sources)
                *sources |= (uint64_t)1 << (su - g->first);
            else
                PL_TRY(put_box(w, su == u ? local : remote, &box, s.x, s.src,
                               s.dst, lower_dev(w, su),
                               v->plain >= 0 ? v->plain : v->tensor));
        }
    }
    return PL_OK;
}

pl_status lower_pieces(struct lower *w, int u, int group, int from, int to,
                       struct lower_pieces *local, struct lower_pieces *remote)
{
    return find_pieces(w, u, group, from, to, local, remote, NULL);
}

pl_status lower_sources(struct lower *w, int u, int group, int from, int to,
                        uint64_t *out)
{
    *out = 0;
    return find_pieces(w, u, group, from, to, NULL, NULL, out);
}
