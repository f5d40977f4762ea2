/* Strided copies that carry a value from one layout to another, in closed form
 * for any number of tokens.
 *
 * Each part that lies in one interval of the source's split and one of the
 * result's is a box; a box is a contiguous run of bytes inside loops over
 * what lies outside, and a copy_piece has two such loops, further constant
 * ones being unrolled. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <string.h>

pl_status lower_push_piece(struct lower *w, struct lower_pieces *l,
                           const struct copy_piece *p)
{
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 4;
        struct copy_piece *q = arena_alloc(w->a, (size_t)cap, sizeof *q);

        if (!q)
            return err_no_memory(w->err, "a program");
        if (l->n)
            memcpy(q, l->p, (size_t)l->n * sizeof *q);
        l->p = q;
        l->cap = cap;
    }
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

/* Moves an offset on: what is constant and what grows with the step are kept
 * apart, since both occur where a symbolic dimension lies between two split
 * ones. */
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
                      struct copy_piece *p, struct loop *l, int n)
{
    int k = -1;
    struct copy_piece q = *p;

    if (n <= 2) {
        const pl_dim one = {1, PL_CONST}, zero = {0, PL_CONST};

        q.n0 = n > 0 ? l[0].n : one;
        q.src_s0 = n > 0 ? l[0].src : zero;
        q.dst_s0 = n > 0 ? l[0].dst : zero;
        q.n1 = n > 1 ? l[1].n : one;
        q.src_s1 = n > 1 ? l[1].src : zero;
        q.dst_s1 = n > 1 ? l[1].dst : zero;
        return lower_push_piece(w, out, &q);
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
            advance(&q.src_off, &q.src_at, l[k].src, 1);
            advance(&q.dst_off, &q.dst_at, l[k].dst, 1);
        }
    }
    return PL_OK;
}

/* Per dimension: where the box starts on either side, and how long it is. */
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
    struct copy_piece p = {.src_dev = src_dev, .src = src_tensor};
    struct loop l[GRAPH_MAX_DIM];
    pl_dim ss = {size, PL_CONST}, ds = {size, PL_CONST}; /* strides */
    int n = 0;
    bool solid = true; /* still one contiguous run */

    p.bytes = (pl_dim){size, PL_CONST};
    p.src_off = p.dst_off = (pl_dim){0, PL_CONST};
    for (int k = x->n_dim - 1; k >= 0; k--) {
        advance(&p.src_off, &p.src_at, ss, b->src[k]);
        advance(&p.dst_off, &p.dst_at, ds, b->dst[k]);
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

/* An interval of the source's split, and which unit gives it. */
struct part {
    int64_t log, n;
    int unit; /* -1: nobody */
};

/* The unit itself if it can, else those of the group in order. */
static pl_status source_parts(struct lower *w, int u,
                              const struct lower_group *a, int from,
                              struct part **out, int *n)
{
    const struct num_node *f = &w->num->node[from];
    int64_t size = w->g->node[f->node].dim[f->layout->dim].n;
    int64_t cap = (size / f->layout->period) * f->layout->n_run;
    struct part *p = arena_alloc(w->a, (size_t)cap + 1, sizeof *p);
    struct run_walk r;

    *n = 0;
    *out = p;
    if (!p)
        return err_no_memory(w->err, "a program");
    run_walk_first(&r, f->layout, size);
    do {
        rankset o = run_walk_owners(&r);
        int unit = -1;

        if (u >= a->first && u < a->first + a->n && (o & w->unit[u].u.ranks))
            unit = u;
        for (int s = a->first; unit < 0 && s < a->first + a->n; s++)
            if (o & w->unit[s].u.ranks)
                unit = s;
        if (*n && p[*n - 1].unit == unit)
            p[*n - 1].n += r.left;
        else
            p[(*n)++] = (struct part){r.pos, r.left, unit};
    } while (run_walk_next(&r));
    return PL_OK;
}

/* Who gives all of a value that every unit of group `a` has: the unit itself,
 * else one for each receiver in turn. */
static int whole_source(const struct lower *w, int u,
                        const struct lower_group *a)
{
    if (u >= a->first && u < a->first + a->n)
        return u;
    return a->first + w->unit[u].local % a->n;
}

pl_status lower_pieces(struct lower *w, int u, int group, int from, int to,
                       struct lower_pieces *local, struct lower_pieces *remote)
{
    const struct num_node *f = &w->num->node[from], *t = &w->num->node[to];
    const struct graph_node *x = &w->g->node[t->node];
    const struct lower_group *g = lower_group(w, group);
    const struct held *h = lower_find(w, from, group);
    int a = f->layout->kind == PL_SPLIT ? f->layout->dim : -1;
    int b = t->layout->kind == PL_SPLIT ? t->layout->dim : -1;
    struct part whole = {0, 0, whole_source(w, u, g)}, *part = &whole;
    struct layout_local want = {0}, have;
    struct layout_part every = {0, 0, 0, 0};
    int n_part = 1;
    pl_dim src[GRAPH_MAX_DIM], dst[GRAPH_MAX_DIM];
    int64_t reps = 1;

    if (a >= 0)
        PL_TRY(source_parts(w, u, g, from, &part, &n_part));
    if (b >= 0) {
        PL_TRY(lower_local(w, u, to, b, &want));
        reps = want.period ? want.size / want.period : 0;
    } else {
        want.n_part = 1;
        want.part = &every;
    }
    lower_dims(w, u, to, dst);
    for (int s = 0; s < n_part; s++) {
        const struct lowered_value *v;
        int su = part[s].unit, tensor;

        if (su < 0)
            continue;
        v = lower_value(h, &w->unit[su]);
        tensor = v->plain >= 0 ? v->plain : v->tensor;
        if (f->layout->kind == PL_PARTIAL)
            memcpy(src, x->dim, sizeof src);
        else
            lower_dims(w, su, from, src);
        if (a >= 0)
            PL_TRY(lower_local(w, su, from, a, &have));
        for (int64_t rep = 0; rep < reps; rep++)
            for (int k = 0; k < want.n_part; k++) {
                int64_t log = rep * want.period + want.part[k].log;
                int64_t loc = rep * want.local_period + want.part[k].loc;
                int64_t n = want.part[k].n;
                struct box box = {{0}, {0}, {{0, PL_CONST}}};

                memcpy(box.len, x->dim, sizeof box.len);
                if (b >= 0) {
                    box.src[b] = log;
                    box.dst[b] = loc;
                    box.len[b].n = n;
                }
                if (a >= 0 && a != b) {
                    box.src[a] = layout_local_index(&have, part[s].log);
                    box.dst[a] = part[s].log;
                    box.len[a].n = part[s].n;
                } else if (a >= 0) {
                    int64_t lo = log > part[s].log ? log : part[s].log;
                    int64_t hi = log + n < part[s].log + part[s].n
                                     ? log + n
                                     : part[s].log + part[s].n;

                    if (lo >= hi)
                        continue;
                    box.src[a] = layout_local_index(&have, lo);
                    box.dst[a] = loc + (lo - log);
                    box.len[a].n = hi - lo;
                }
                PL_TRY(put_box(w, su == u ? local : remote, &box, x, src, dst,
                               lower_dev(w, su), tensor));
            }
    }
    return PL_OK;
}
