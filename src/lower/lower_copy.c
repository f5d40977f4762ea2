/* Copies: what one group computes or holds and another one reads.
 *
 * The source posts that the value is there. A receiver that can read the
 * source's memory waits for that, pulls its part, and posts that it has it; to
 * any other the source pushes it, into its inbox, when both have posted.
 * Devices with a copy queue start as soon as the value is there, and it is
 * waited for at its first use, so that work in between hides the copy; the
 * others copy when it is needed. A buffer that is read from elsewhere may be
 * overwritten once it has been carried away: the source waits for that a few
 * copies later, when it has long been true.
 *
 * Weights and caches that are read away from home are streamed the same way,
 * weights one layer ahead, each device only its slice: packed groups of rows
 * and chunks of k are the same bytes on both sides. */
#include "lower/lower_inner.h"

#include "base/err.h"
#include "program/cache_tile.h"

#include <string.h>

enum {
    IN_TRANSIT = 4
}; /* copies between two groups before the first is
                            waited for */

static const struct lower_group *group_of(const struct lower *w, int g)
{
    return &w->opt->group[g];
}

static int dev_of(const struct lower *w, int u)
{
    return w->unit[u].u.dev;
}

bool lower_reads(const struct lower *w, int d, int from)
{
    const struct lower_device *x = &w->opt->dev[d], *y = &w->opt->dev[from];

    return d == from ||
           (y->memory >= 0 && (x->memory == y->memory || x->reads));
}

/* Until the waits the memory is the copy's, whether or not anybody reads it. */
pl_status lower_arrive(struct lower *w, const struct held *h, int u)
{
    int m = w->unit[u].local;
    struct arrival a = h->arrives[m];
    struct draft *d = &w->dev[dev_of(w, u)];

    h->arrives[m].n = 0;
    for (int i = 0; i < a.n; i++) {
        PL_TRY(lower_wait(w, dev_of(w, u), QUEUE_COMPUTE, a.event[i].dev,
                          a.event[i].event));
        lower_use(d, h->h.v[m].tensor, d->n_step - 1);
        lower_use(d, h->h.v[m].plain, d->n_step - 1);
        if (h->by_rank)
            lower_use(d, h->by_rank[m].tensor, d->n_step - 1);
    }
    return PL_OK;
}

/* The event that says that unit s has its part of h. */
static pl_status ready(struct lower *w, struct held *h, int s, int *event)
{
    int *e = &h->ready[w->unit[s].local];

    PL_TRY(lower_arrive(w, h, s));
    if (*e < 0)
        PL_TRY(lower_post(w, dev_of(w, s), QUEUE_COMPUTE, e));
    *event = *e;
    return PL_OK;
}

/* ---- lent buffers ------------------------------------------------------ */

/* Device d has waited for all that carries the tensors away. */
static pl_status carried(struct lower *w, int d, const struct transit *t)
{
    for (int i = 0; i < t->n_done; i++)
        if (t->done[i].dev != d || !w->opt->dev[d].one_queue)
            PL_TRY(lower_wait(w, d, QUEUE_COMPUTE, t->done[i].dev,
                              t->done[i].event));
    return PL_OK;
}

static pl_status transit_retire(struct lower *w, int k)
{
    struct transit t = w->transit[k];
    int micro = w->micro;

    memmove(w->transit + k, w->transit + k + 1,
            (size_t)(w->n_transit - k - 1) * sizeof t);
    w->n_transit--;
    w->micro = t.micro; /* in the run whenever the copy is */
    for (int s = 0; s < t.n_src; s++) {
        int d = dev_of(w, t.src_unit[s]);

        if (s == 0 || dev_of(w, t.src_unit[s - 1]) != d)
            PL_TRY(carried(w, d, &t));
        lower_use(&w->dev[d], t.src_tensor[s], w->dev[d].n_step - 1);
    }
    w->micro = micro;
    return PL_OK;
}

/* Value h of group `from` is read by the units of group `to`, who have it when
 * the events of `done` have come. by_rank: its addends, else its value. */
static pl_status lend(struct lower *w, const struct held *h, int to,
                      const struct arrival *done, bool by_rank)
{
    const struct lower_group *a = group_of(w, h->h.group);
    struct transit t = {.from = h->h.group, .to = to, .micro = w->micro};
    int same = 0;

    for (int k = w->n_transit - 1; k >= 0; k--)
        if (w->transit[k].from == t.from && w->transit[k].to == to &&
            ++same >= IN_TRANSIT) {
            PL_TRY(transit_retire(w, k));
            break;
        }
    t.src_unit = arena_alloc(w->a, (size_t)a->n, sizeof(int));
    t.src_tensor = arena_alloc(w->a, (size_t)a->n, sizeof(int));
    t.done = done->event;
    t.n_done = done->n;
    if (!t.src_unit || !t.src_tensor ||
        !lower_grow((void **)&w->transit, w->n_transit, &w->transit_cap,
                    sizeof t))
        return err_no_memory(w->err, "a program");
    for (int s = 0; s < a->n; s++) {
        int tensor = by_rank ? h->by_rank[s].tensor : h->h.v[s].tensor;

        if (tensor < 0)
            continue;
        t.src_unit[t.n_src] = a->first + s;
        t.src_tensor[t.n_src++] = tensor;
    }
    w->transit[w->n_transit++] = t;
    return PL_OK;
}

void lower_end_copies(struct lower *w)
{
    for (int k = 0; k < w->n_transit; k++) {
        const struct transit *t = &w->transit[k];

        for (int s = 0; s < t->n_src; s++) {
            struct draft *v = &w->dev[dev_of(w, t->src_unit[s])];

            lower_use(v, t->src_tensor[s], v->n_step);
        }
    }
    w->n_transit = 0;
}

/* ---- events ------------------------------------------------------------ */

static pl_status expect(struct lower *w, struct arrival *a, int dev, int event)
{
    struct step_event *e;

    for (int k = 0; k < a->n; k++)
        if (a->event[k].dev == dev && a->event[k].event == event)
            return PL_OK;
    if (a->n % 8 == 0) {
        e = arena_alloc(w->a, (size_t)a->n + 8, sizeof *e);
        if (!e)
            return err_no_memory(w->err, "a program");
        if (a->n)
            memcpy(e, a->event, (size_t)a->n * sizeof *e);
        a->event = e;
    }
    a->event[a->n++] = (struct step_event){dev, event};
    return PL_OK;
}

static pl_status wait_all(struct lower *w, int d, enum queue q,
                          const struct arrival *a)
{
    for (int k = 0; k < a->n; k++)
        PL_TRY(lower_wait(w, d, q, a->event[k].dev, a->event[k].event));
    return PL_OK;
}

static enum queue copy_queue(const struct lower *w, int d)
{
    return w->opt->dev[d].one_queue ? QUEUE_COMPUTE : QUEUE_COPY;
}

/* The copy queue takes no step before all that the device has been told to do
 * so far is done: whoever had the buffers before is done with them. */
static pl_status catch_up(struct lower *w, int d)
{
    int mine;

    PL_TRY(lower_post_batch(w, d));
    PL_TRY(lower_post(w, d, QUEUE_COMPUTE, &mine));
    return lower_wait(w, d, QUEUE_COPY, d, mine);
}

/* ---- one receiver that pulls ------------------------------------------- */

/* Transfers step[n] into tensors of unit u, when `from` has come: *arrives says
 * what it must wait for before it reads them, *done gets the event that says
 * that the sources may be overwritten. node: what comes. */
static pl_status receive(struct lower *w, int u, int node,
                         const struct arrival *from, struct step *step, int n,
                         struct arrival *arrives, struct arrival *done)
{
    int d = dev_of(w, u), event;
    enum queue q = copy_queue(w, d);

    if (q == QUEUE_COPY)
        PL_TRY(catch_up(w, d));
    PL_TRY(wait_all(w, d, q, from));
    for (int k = 0; k < n; k++) {
        step[k].queue = q;
        step[k].node = node;
        if (step[k].kind == STEP_PULL)
            step[k].pull.between_groups = true;
        PL_TRY(lower_step(w, d, &step[k]));
    }
    if (q == QUEUE_COMPUTE) {
        PL_TRY(lower_post_later(w, d, &event));
    } else {
        PL_TRY(lower_post_late(w, d, &event));
        PL_TRY(expect(w, arrives, d, event));
    }
    return expect(w, done, d, event);
}

/* ---- a receiver that is given ------------------------------------------ */

/* What goes to one unit. */
struct delivery {
    int u, node;      /* of the graph: what comes */
    struct held *src; /* whose ready[] events are made; NULL: always ready */
    int group;        /* that has it */
    int free, out;    /* receiver: its inbox is free from then; its tensor */
    struct arrival *arrives, *done;
};

/* Device s takes step x, which writes into the receiver's inbox, when it has
 * the value, its own events of `ready` have come (-1: none), and the receiver's
 * place is free. */
static pl_status give(struct lower *w, const struct delivery *y, int s,
                      const int ready[2], struct step *x)
{
    enum queue q = copy_queue(w, s);
    int event;

    x->queue = q;
    x->node = y->node;
    if (q == QUEUE_COPY)
        PL_TRY(lower_post_batch(w, s));
    PL_TRY(lower_wait(w, s, q, dev_of(w, y->u), y->free));
    for (int k = 0; k < 2; k++)
        if (q == QUEUE_COPY && ready[k] >= 0)
            PL_TRY(lower_wait(w, s, q, s, ready[k]));
    PL_TRY(lower_step(w, s, x));
    if (q == QUEUE_COMPUTE)
        PL_TRY(lower_post(w, s, q, &event));
    else
        PL_TRY(lower_post_late(w, s, &event));
    PL_TRY(expect(w, y->arrives, s, event));
    return expect(w, y->done, s, event);
}

/* Device s pushes p[n], all its own. */
static pl_status give_pieces(struct lower *w, const struct delivery *y, int s,
                             int ready, const struct copy_piece *p, int n)
{
    const struct push_to to = {dev_of(w, y->u), y->out, 0};
    struct step x = {.kind = STEP_PUSH,
                     .push = {.n_to = 1,
                              .to = arena_memdup(w->a, &to, 1, sizeof to),
                              .piece = p,
                              .n_piece = n,
                              .between_groups = true}};

    return x.push.to ? give(w, y, s, (const int[2]){ready, -1}, &x)
                     : err_no_memory(w->err, "a program");
}

/* Does somebody have to push to device d what pieces p[n] carry? */
static bool is_given(const struct lower *w, int d, const struct copy_piece *p,
                     int n)
{
    for (int k = 0; k < n; k++)
        if (!lower_reads(w, d, p[k].src_dev))
            return true;
    return false;
}

int lower_run_of(const struct copy_piece *p, int n)
{
    int k = 1;

    while (k < n && p[k].src_dev == p[0].src_dev)
        k++;
    return k;
}

int lower_unit_of(const struct lower *w, int group, int dev)
{
    int u = group_of(w, group)->first;

    while (dev_of(w, u) != dev)
        u++;
    return u;
}

/* Brings pieces p[n] of y->src to unit y->u: pulled where it can read them,
 * else pushed. out_bytes: see step_pull. */
static pl_status deliver(struct lower *w, const struct delivery *y,
                         const struct copy_piece *p, int n, size_t out_bytes)
{
    struct copy_piece *mine = arena_alloc(w->a, (size_t)n + 1, sizeof *mine);
    int d = dev_of(w, y->u), n_mine = 0, len;
    struct arrival from = {0};
    struct step s = {.kind = STEP_PULL};

    if (!mine)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < n; k += len) {
        int su = lower_unit_of(w, y->group, p[k].src_dev), e = -1;

        len = lower_run_of(p + k, n - k);
        if (y->src)
            PL_TRY(ready(w, y->src, su, &e));
        if (!lower_reads(w, d, p[k].src_dev)) {
            PL_TRY(give_pieces(w, y, p[k].src_dev, e, p + k, len));
            continue;
        }
        if (e >= 0)
            PL_TRY(expect(w, &from, p[k].src_dev, e));
        memcpy(mine + n_mine, p + k, (size_t)len * sizeof *mine);
        n_mine += len;
    }
    if (n_mine == 0)
        return PL_OK;
    s.pull.out = y->out;
    s.pull.out_bytes = out_bytes;
    s.pull.piece = mine;
    s.pull.n_piece = n_mine;
    return receive(w, y->u, y->node, &from, &s, 1, y->arrives, y->done);
}

/* From when on peers may write into the inbox of unit u: its next place is free
 * when it has done all that it was told to do so far. */
static pl_status make_room(struct lower *w, int u, int *event, int *birth)
{
    int d = dev_of(w, u);

    PL_TRY(lower_post(w, d, QUEUE_COMPUTE, event));
    *birth = w->dev[d].n_step - 1;
    return PL_OK;
}

static pl_status note_copy(struct lower *w, int i, int from, int to, bool pages,
                           const pl_dim bytes[2])
{
    struct lowered_script *o = &w->out->script[w->script];

    if (w->micro > 0)
        return PL_OK;
    if (!lower_grow((void **)&w->copy, o->n_copy, &w->copy_cap,
                    sizeof *w->copy))
        return err_no_memory(w->err, "a program");
    w->copy[o->n_copy++] =
        (struct lowered_copy){i,
                              from,
                              to,
                              w->g->node[w->num->node[i].node].layer,
                              {bytes[0], bytes[1]},
                              pages};
    return PL_OK;
}

static pl_dim moved(const struct copy_piece *p)
{
    const pl_dim all[3] = {p->bytes, p->n0, p->n1};

    return lower_product(all, 0, 3, 1);
}

/* ---- values ------------------------------------------------------------ */

/* Value i of group a to value j (itself, or a conversion of it) in group b. */
static pl_status copy_value(struct lower *w, int i, int j, int b)
{
    int a = w->at[i];
    const struct graph_node *x = &w->g->node[w->num->node[j].node];
    struct held *src = lower_find(w, i, a), *dst;
    struct arrival done = {0};
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};

    for (int m = 0; m < group_of(w, a)->n; m++) {
        int e;

        PL_TRY(ready(w, src, group_of(w, a)->first + m, &e));
    }
    PL_TRY(lower_hold(w, j, b, &dst));
    w->batch++;
    for (int m = 0; m < group_of(w, b)->n; m++) {
        int u = group_of(w, b)->first + m, d = dev_of(w, u), birth;
        struct lower_pieces none = {0}, p = {0};
        struct delivery y = {.u = u,
                             .node = w->num->node[i].node,
                             .src = src,
                             .group = a,
                             .arrives = &dst->arrives[m],
                             .done = &done};
        pl_dim dim[GRAPH_MAX_DIM];

        lower_dims(w, u, j, dim);
        PL_TRY(lower_pieces(w, u, a, i, j, &none, &p));
        if (is_given(w, d, p.p, p.n)) {
            PL_TRY(make_room(w, u, &y.free, &birth));
            PL_TRY(
                lower_mail(w, d, x->format, x->n_dim, dim, birth, 0, &y.out));
        } else {
            PL_TRY(
                lower_tensor(w, d, x->format, x->n_dim, dim, 1, &y.out, NULL));
        }
        dst->h.v[m].tensor = y.out;
        for (int k = 0; k < p.n; k++)
            lower_add_bytes(sum, moved(&p.p[k]));
        PL_TRY(deliver(w, &y, p.p, p.n, 0));
    }
    PL_TRY(lend(w, src, b, &done, false));
    return note_copy(w, j, a, b, false, sum);
}

pl_status lower_convert_copy(struct lower *w, int j)
{
    return lower_find(w, j, w->at[j])
               ? PL_OK
               : copy_value(w, w->num->node[j].in[0], j, w->at[j]);
}

/* The addends of unit u's ranks of PARTIAL value i, from group a, as pieces
 * into entries that lie `stride` apart. */
static int rank_pieces(const struct lower *w, int i, int a, int u,
                       const struct held *src, size_t stride,
                       struct copy_piece *p)
{
    const struct lower_unit *v = &w->unit[u].u;
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    int n = 0;

    for (int k = 0; k < v->n_rank; k++) {
        int rank = v->rank0 + k, su = group_of(w, a)->first, at;
        uint64_t below = ((uint64_t)1 << rank) - 1;

        if (!(w->present[i] >> rank & 1))
            continue;
        while (!(w->unit[su].u.ranks >> rank & 1))
            su++;
        at = __builtin_popcountll(w->present[i] & w->unit[su].u.ranks & below);
        p[n] = (struct copy_piece){
            .src_dev = dev_of(w, su),
            .src = src->by_rank[w->unit[su].local].tensor,
            .src_at = at * (int64_t)src->by_rank[w->unit[su].local].stride,
            .dst_at = n * (int64_t)stride,
            .bytes = lower_product(x->dim, 0, x->n_dim, 4),
            .n0 = {1, PL_CONST},
            .n1 = {1, PL_CONST},
        };
        n++;
    }
    return n;
}

/* Room for n entries of value i at unit u: in its inbox, free from event *free
 * on, or among its buffers. */
static pl_status rank_room(struct lower *w, int i, int u, int n, bool given,
                           struct addends *to, int *free)
{
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    int d = dev_of(w, u), birth;
    struct buffer *b;

    if (given)
        PL_TRY(make_room(w, u, free, &birth));
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, x->dim, n, &to->tensor,
                        &to->stride));
    if (!given)
        return PL_OK;
    b = &w->dev[d].buf[w->dev[d].buffer[to->tensor]];
    b->region = w->dev[d].tensor[to->tensor].region = REGION_MAIL;
    b->birth = birth;
    return PL_OK;
}

pl_status lower_copy_ranks(struct lower *w, int i, int b)
{
    int a = w->at[i];
    struct held *src = lower_find(w, i, a), *dst;
    struct arrival done = {0};
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};

    if (lower_find(w, i, b))
        return PL_OK;
    PL_TRY(lower_hold(w, i, b, &dst));
    w->batch++;
    for (int m = 0; m < group_of(w, b)->n; m++) {
        int u = group_of(w, b)->first + m, n;
        const struct lower_unit *v = &w->unit[u].u;
        struct addends *to = &dst->by_rank[m];
        struct copy_piece *p = arena_alloc(w->a, (size_t)v->n_rank, sizeof *p);
        struct delivery y = {.u = u,
                             .node = w->num->node[i].node,
                             .src = src,
                             .group = a,
                             .arrives = &dst->arrives[m],
                             .done = &done};

        if (!p)
            return err_no_memory(w->err, "a program");
        n = rank_pieces(w, i, a, u, src, 0, p);
        if (n == 0)
            continue;
        PL_TRY(rank_room(w, i, u, n, is_given(w, dev_of(w, u), p, n), to,
                         &y.free));
        y.out = to->tensor;
        rank_pieces(w, i, a, u, src, to->stride, p);
        for (int k = 0; k < n; k++)
            lower_add_bytes(sum, moved(&p[k]));
        PL_TRY(deliver(w, &y, p, n, (size_t)n * to->stride));
    }
    PL_TRY(lend(w, src, b, &done, true));
    return note_copy(w, i, a, b, false, sum);
}

/* ---- weights ----------------------------------------------------------- */

static pl_status unaligned(struct lower *w, int i)
{
    return err_set(w->err, PL_UNSUPPORTED,
                   "%s cannot be streamed: its slices do not begin at "
                   "multiples of %d rows",
                   w->g->node[w->num->node[i].node].name, PACK_ROWS);
}

/* Chunks of k that lie one after another on both sides. */
struct run {
    int64_t src, dst, bytes;
};

static int64_t chunk_bytes(const struct pack *p, const struct pack_chunk *c)
{
    return p->rule->sup_bytes +
           c->n / p->rule->tile_values * (int64_t)p->rule->tile_bytes;
}

/* Finds dst's chunks of these ranks in src, from *k on, as one run; false: none
 * is there. */
static bool chunk_run(const struct pack *src, const struct pack *dst,
                      rankset ranks, int *k, struct run *r)
{
    int s = 0;

    *r = (struct run){0, 0, 0};
    for (; *k < dst->n_chunk; ++*k) {
        const struct pack_chunk *c = &dst->chunk[*k];

        while (s < src->n_chunk && src->chunk[s].k < c->k)
            s++;
        if (!(ranks >> c->rank & 1) || s == src->n_chunk ||
            src->chunk[s].k != c->k || src->chunk[s].n != c->n) {
            if (r->bytes)
                return true;
            continue; /* another unit's */
        }
        if (r->bytes == 0)
            *r = (struct run){(int64_t)src->chunk[s].off, (int64_t)c->off, 0};
        else if ((int64_t)src->chunk[s].off != r->src + r->bytes ||
                 (int64_t)c->off != r->dst + r->bytes)
            return true;
        r->bytes += chunk_bytes(dst, c);
    }
    return r->bytes > 0;
}

/* Of several units that have a part its first owner gives it. */
static bool gives(const struct lower_unit *s, const struct layout_part *p)
{
    return p->owners == ~(rankset)0 || (s->ranks >> rank_first(p->owners) & 1);
}

/* Pieces of packed weight i from unit s's form to unit u's. */
static pl_status packed_pieces(struct lower *w, int i, int s, int u,
                               const struct pack *dst, struct lower_pieces *out)
{
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    const struct held *h = lower_find(w, i, w->opt->home[i]);
    int tensor = lower_value(h, &w->unit[s])->tensor, last = x->n_dim - 1;
    const struct pack *src = w->dev[dev_of(w, s)].tensor[tensor].pack;
    struct layout_local dr, sr, dm = {0}, sm = {0};
    struct layout_part one = {0, 0, 1, ~(rankset)0};
    const pl_layout *l = w->num->node[i].layout;
    rankset ranks = l->kind == PL_SPLIT && l->dim == last ? w->unit[s].u.ranks
                                                          : ~(rankset)0;
    int64_t reps_m = 1, reps_r;
    struct run r;

    PL_TRY(lower_local(w, u, i, last - 1, &dr));
    PL_TRY(lower_local(w, s, i, last - 1, &sr));
    dm = sm = (struct layout_local){1, 1, 1, 1, 1, &one};
    r = (struct run){0, 0, 0};
    if (x->n_dim == 3) {
        PL_TRY(lower_local(w, u, i, 0, &dm));
        PL_TRY(lower_local(w, s, i, 0, &sm));
    }
    reps_m = dm.period ? dm.size / dm.period : 0;
    reps_r = dr.period ? dr.size / dr.period : 0;
    for (int64_t m = 0; m < reps_m * dm.n_part; m++) {
        const struct layout_part *pm = &dm.part[m % dm.n_part];
        int64_t mat = m / dm.n_part * dm.period + pm->log;
        int64_t mat_src = layout_local_index(&sm, mat);
        int64_t mat_dst = m / dm.n_part * dm.local_period + pm->loc;

        if (mat_src < 0 || !gives(&w->unit[s].u, pm))
            continue;
        for (int64_t q = 0; q < reps_r * dr.n_part; q++) {
            const struct layout_part *pr = &dr.part[q % dr.n_part];
            int64_t row = q / dr.n_part * dr.period + pr->log;
            int64_t row_src = layout_local_index(&sr, row);
            int64_t row_dst = q / dr.n_part * dr.local_period + pr->loc;

            if (row_src < 0 || !gives(&w->unit[s].u, pr))
                continue;
            if (row_src % PACK_ROWS || row_dst % PACK_ROWS ||
                (pr->n % PACK_ROWS && row_dst + pr->n != dr.local))
                return unaligned(w, i);
            for (int k = 0; chunk_run(src, dst, ranks, &k, &r);) {
                const struct copy_piece p = {
                    .src_dev = dev_of(w, s),
                    .src = tensor,
                    .src_at = mat_src * (int64_t)src->matrix_bytes +
                              row_src / PACK_ROWS * (int64_t)src->group_bytes +
                              r.src,
                    .dst_at = mat_dst * (int64_t)dst->matrix_bytes +
                              row_dst / PACK_ROWS * (int64_t)dst->group_bytes +
                              r.dst,
                    .bytes = {r.bytes, PL_CONST},
                    .n0 = {pm->n, PL_CONST},
                    .src_s0 = {(int64_t)src->matrix_bytes, PL_CONST},
                    .dst_s0 = {(int64_t)dst->matrix_bytes, PL_CONST},
                    .n1 = {(pr->n + PACK_ROWS - 1) / PACK_ROWS, PL_CONST},
                    .src_s1 = {(int64_t)src->group_bytes, PL_CONST},
                    .dst_s1 = {(int64_t)dst->group_bytes, PL_CONST},
                };

                PL_TRY(lower_push_piece(w, out, &p));
            }
        }
    }
    return PL_OK;
}

/* A tensor of `bytes` that holds a leaf's local part: among the buffers of unit
 * u, or, if it is given, in its inbox, free from event *free on. */
static pl_status staging(struct lower *w, int u, int i, size_t bytes,
                         bool given, int *free, int *out)
{
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    const pl_dim size = {(int64_t)bytes, PL_CONST};
    int d = dev_of(w, u), birth;
    struct prog_tensor *t;
    struct buffer *b;
    pl_dim dim[GRAPH_MAX_DIM];

    if (given)
        PL_TRY(make_room(w, u, free, &birth));
    PL_TRY(lower_tensor(w, d, PL_F32, 1, &size, -1, out, NULL));
    lower_dims(w, u, i, dim);
    t = &w->dev[d].tensor[*out];
    t->format = x->format;
    t->n_dim = x->n_dim;
    memcpy(t->dim, dim, sizeof t->dim);
    if (given) {
        b = &w->dev[d].buf[w->dev[d].buffer[*out]];
        b->region = t->region = REGION_MAIL;
        b->birth = birth;
    }
    return PL_OK;
}

/* Do all units of group b read the memory of all of a? */
static bool all_read(const struct lower *w, int a, int b)
{
    for (int m = 0; m < group_of(w, b)->n; m++)
        for (int k = 0; k < group_of(w, a)->n; k++)
            if (!lower_reads(w, dev_of(w, group_of(w, b)->first + m),
                             dev_of(w, group_of(w, a)->first + k)))
                return false;
    return true;
}

/* The packed form of weight i to unit u. Every unit of the home group gives
 * what it has of the slice; of a weight that all have whole, one does. */
static pl_status stream_packed(struct lower *w, int i, struct delivery *y,
                               pl_dim sum[2])
{
    const struct lower_group *a = group_of(w, y->group);
    struct lower_pieces p = {0};
    struct pack *pack;

    PL_TRY(lower_pack(w, y->u, i, &pack));
    for (int k = 0; k < a->n; k++)
        if (w->num->node[i].layout->kind == PL_SPLIT ||
            k == w->unit[y->u].local % a->n)
            PL_TRY(packed_pieces(w, i, a->first + k, y->u, pack, &p));
    PL_TRY(staging(w, y->u, i,
                   pack->matrix_bytes * (size_t)lower_matrices(w, y->u, i),
                   is_given(w, dev_of(w, y->u), p.p, p.n), &y->free, &y->out));
    w->dev[dev_of(w, y->u)].tensor[y->out].pack = pack;
    for (int k = 0; k < p.n; k++)
        lower_add_bytes(sum, moved(&p.p[k]));
    return deliver(w, y, p.p, p.n, 0);
}

static pl_status stream_plain(struct lower *w, int i, struct delivery *y,
                              pl_dim sum[2])
{
    const struct graph_node *x = &w->g->node[w->num->node[i].node];
    struct lower_pieces none = {0}, p = {0};
    pl_dim dim[GRAPH_MAX_DIM];

    lower_dims(w, y->u, i, dim);
    PL_TRY(lower_pieces(w, y->u, y->group, i, i, &none, &p));
    PL_TRY(staging(
        w, y->u, i,
        format_row_bytes(x->format, 1) *
            (size_t)dim_value(lower_product(dim, 0, x->n_dim, 1), &w->opt->max),
        is_given(w, dev_of(w, y->u), p.p, p.n), &y->free, &y->out));
    for (int k = 0; k < p.n; k++)
        lower_add_bytes(sum, moved(&p.p[k]));
    return deliver(w, y, p.p, p.n, 0);
}

static pl_status stream_weight(struct lower *w, int i, int b)
{
    int a = w->opt->home[i];
    const struct held *src = lower_find(w, i, a);
    bool packed = w->dev[dev_of(w, group_of(w, a)->first)]
                      .tensor[src->h.v[0].tensor]
                      .pack != NULL;
    bool plain = !packed || src->h.v[0].plain >= 0;
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};
    struct arrival done = {0}; /* weights stay as they are */
    struct held *dst;

    if (plain &&
        format_info(w->g->node[w->num->node[i].node].format)->block > 1)
        return err_set(w->err, PL_UNSUPPORTED,
                       "%s cannot be copied between groups: it is read value "
                       "by value",
                       w->g->node[w->num->node[i].node].name);
    PL_TRY(lower_hold(w, i, b, &dst));
    for (int m = 0; m < group_of(w, b)->n; m++) {
        struct delivery y = {.u = group_of(w, b)->first + m,
                             .node = w->num->node[i].node,
                             .group = a,
                             .arrives = &dst->arrives[m],
                             .done = &done};

        if (packed) {
            PL_TRY(stream_packed(w, i, &y, sum));
            dst->h.v[m].tensor = y.out;
        }
        if (plain) {
            PL_TRY(stream_plain(w, i, &y, sum));
            *(packed ? &dst->h.v[m].plain : &dst->h.v[m].tensor) = y.out;
        }
    }
    return note_copy(w, i, a, b, false, sum);
}

static bool slow_queue(const struct lower *w, int b)
{
    const struct lower_group *g = group_of(w, b);

    for (int m = 0; m < g->n; m++)
        if (w->opt->dev[dev_of(w, g->first + m)].one_queue)
            return true;
    return false;
}

pl_status lower_find_streams(struct lower *w)
{
    const struct numeric *p = w->num;

    w->n_stream = w->next_stream = 0;
    for (int i = 0; i < p->n; i++)
        for (int k = 0; p->node[i].kind == NUM_OP && k < p->node[i].n_in; k++) {
            int y = p->node[i].in[k];

            if (y < 0 || w->g->node[p->node[y].node].op != OP_weight ||
                w->opt->home[y] == w->at[i])
                continue;
            if (!lower_grow((void **)&w->stream, w->n_stream, &w->stream_cap,
                            sizeof *w->stream))
                return err_no_memory(w->err, "a program");
            w->stream[w->n_stream++] =
                (struct stream){y, w->at[i], w->g->node[p->node[y].node].layer};
        }
    return lower_ahead(w, -1, -1);
}

/* Starts the streams up to those of the layer after the one in use. */
pl_status lower_ahead(struct lower *w, int i, int b)
{
    int last = -1, end;

    for (int k = 0; k < w->n_stream; k++)
        if (w->stream[k].num == i && w->stream[k].group == b)
            last = k;
    if (last >= 0 && slow_queue(w, b)) /* nothing would be hidden */
        return lower_find(w, i, b) ? PL_OK : stream_weight(w, i, b);
    end = last + 1;
    while (last >= 0 && end < w->n_stream &&
           w->stream[end].layer == w->stream[last].layer)
        end++;
    for (int k = end;
         end < w->n_stream && w->stream[end].layer == w->stream[k].layer;)
        end++;
    w->batch++;
    for (int k = w->next_stream; k < end; k++) {
        struct stream *s = &w->stream[k];

        if (!slow_queue(w, s->group) && !lower_find(w, s->num, s->group))
            PL_TRY(stream_weight(w, s->num, s->group));
        w->next_stream = k + 1;
    }
    return PL_OK;
}

/* ---- caches ------------------------------------------------------------ */

/* Which head of unit su's part of a cache each head of unit u's is, -1: another
 * unit brings it, or none. got: those that somebody brings; NULL: nothing. */
static pl_status head_source(struct lower *w, int root, int u, int su,
                             bool *got, const int32_t **out)
{
    struct layout_local want, have;
    int32_t *map;
    int hits = 0;

    *out = NULL;
    PL_TRY(lower_local(w, u, root, 1, &want));
    PL_TRY(lower_local(w, su, root, 1, &have));
    map = arena_alloc(w->a, (size_t)want.local + 1, sizeof *map);
    if (!map)
        return err_no_memory(w->err, "a program");
    for (int64_t h = 0; h < want.size; h++) {
        int64_t mine = layout_local_index(&want, h);
        int64_t its = layout_local_index(&have, h);

        if (mine < 0)
            continue;
        map[mine] = its >= 0 && !got[mine] ? (int32_t)its : -1;
        hits += map[mine] >= 0;
        got[mine] |= map[mine] >= 0;
    }
    if (hits > 0)
        *out = map;
    return PL_OK;
}

/* The table of tokens for a copy that unit u does. event: see
 * lower_batch_copied; stays as it is where there is no copy queue. */
static pl_status table(struct lower *w, int u, int *tensor, int *event)
{
    return copy_queue(w, dev_of(w, u)) == QUEUE_COPY
               ? lower_batch_copied(w, u, tensor, event)
               : lower_batch(w, u, tensor);
}

/* The pages of cache `root`, as `y->src` has them, to unit y->u, which has
 * n_head heads. */
static pl_status unit_pages(struct lower *w, int root, int64_t n_head,
                            struct delivery *y)
{
    const struct lower_group *a = group_of(w, y->group);
    const struct graph_node *x = &w->g->node[w->num->node[root].node];
    size_t tile = cache_tile_bytes(x->format, x->dim[2].n);
    struct step *s = arena_alloc(w->a, (size_t)a->n, sizeof *s);
    bool *got = arena_alloc(w->a, (size_t)n_head + 1, 1);
    struct arrival from = {0};
    bool given = false;
    int n = 0;

    if (!s || !got)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < a->n; k++)
        given |= !lower_reads(w, dev_of(w, y->u), dev_of(w, a->first + k));
    PL_TRY(staging(w, y->u, root,
                   (size_t)(w->opt->max.n_slot / PAGE_TOKENS) * (size_t)n_head *
                       tile,
                   given, &y->free, &y->out));
    for (int k = 0; k < a->n; k++) {
        int su = a->first + k, sd = dev_of(w, su), e[2] = {-1, -1};
        struct step p = {.kind = STEP_PAGES};
        const int32_t *map;

        PL_TRY(head_source(w, root, y->u, su, got, &map));
        if (!map)
            continue;
        p.pages = (struct step_pages){
            .out_dev = dev_of(w, y->u),
            .out = y->out,
            .src_dev = sd,
            .src = lower_value(y->src, &w->unit[su])->tensor,
            .map = map,
            .tile_bytes = tile};
        PL_TRY(ready(w, y->src, su, &e[0]));
        if (!lower_reads(w, dev_of(w, y->u), sd)) {
            PL_TRY(table(w, su, &p.pages.batch, &e[1]));
            PL_TRY(give(w, y, sd, e, &p));
            continue;
        }
        PL_TRY(table(w, y->u, &p.pages.batch, NULL));
        PL_TRY(expect(w, &from, sd, e[0]));
        s[n++] = p;
    }
    return n == 0 ? PL_OK
                  : receive(w, y->u, y->node, &from, s, n, y->arrives, y->done);
}

/* The pages of cache value i (a cache, or what was written into it). */
static pl_status stream_pages(struct lower *w, int i, int b)
{
    int root = i, a;
    const struct graph_node *x;
    struct held *src, *dst;
    struct arrival done = {0};
    pl_dim sum[2] = {{0, PL_CONST}, {0, PL_CONST}};

    while (w->g->node[w->num->node[root].node].op == OP_cache_write)
        root = w->num->node[root].in[0];
    a = w->opt->home[root];
    x = &w->g->node[w->num->node[root].node];
    src = lower_find(w, i, a);
    PL_TRY(lower_hold(w, i, b, &dst));
    w->batch++;
    for (int m = 0; m < group_of(w, b)->n; m++) {
        struct delivery y = {.u = group_of(w, b)->first + m,
                             .node = w->num->node[i].node,
                             .src = src,
                             .group = a,
                             .arrives = &dst->arrives[m],
                             .done = &done};
        struct layout_local want;

        PL_TRY(lower_local(w, y.u, root, 1, &want));
        PL_TRY(unit_pages(w, root, want.local, &y));
        dst->h.v[m].tensor = y.out;
        lower_add_bytes(sum, (pl_dim){want.local * (int64_t)format_row_bytes(
                                                       x->format, x->dim[2].n),
                                      PL_CONST});
    }
    return note_copy(w, i, a, b, true, sum);
}

/* ---- anything ---------------------------------------------------------- */

pl_status lower_fetch(struct lower *w, int i, int b)
{
    enum op op = w->g->node[w->num->node[i].node].op;
    bool op_node = w->num->node[i].kind == NUM_OP;

    if (op_node && op == OP_weight) {
        if (w->opt->home[i] == b)
            return PL_OK;
        return lower_ahead(w, i, b);
    }
    if (lower_find(w, i, b))
        return PL_OK;
    if (op_node && op == OP_input)
        return lower_input(w, i, b);
    if (op_node && (op == OP_cache || op == OP_cache_write))
        return stream_pages(w, i, b);
    return copy_value(w, i, i, b);
}

/* In a pipeline the value's group goes on with another micro-batch, which who
 * waits for the value must not wait for. */
static pl_status announce(struct lower *w, int i)
{
    const struct lower_group *g = group_of(w, w->at[i]);
    struct held *h = lower_find(w, i, w->at[i]);
    int e;

    if (w->opt->script[w->script].n_micro == 1 || !h)
        return PL_OK;
    for (int m = 0; m < g->n; m++)
        PL_TRY(ready(w, h, g->first + m, &e));
    return PL_OK;
}

pl_status lower_send(struct lower *w, int i)
{
    PL_TRY(lower_result(w, i));
    for (int k = w->user0[i]; k < w->user0[i + 1]; k++) {
        int j = w->user[k], b = w->at[j];

        if (b == w->at[i])
            continue;
        if (slow_queue(w, b) && all_read(w, w->at[i], b)) {
            /* they pull later: tell them from when on */
            PL_TRY(announce(w, i));
            continue;
        }
        if (w->num->node[j].kind != NUM_OP)
            PL_TRY(lower_convert_copy(w, j));
        else
            PL_TRY(lower_fetch(w, i, b));
    }
    return PL_OK;
}
