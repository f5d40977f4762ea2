/* Emission of transfers. The pass "transfer" (transfers.h) has chosen for each
 * receiver which device moves the bytes, in which queue, and which POST
 * follows.
 *
 * A receiver that pulls waits for the source's POST, copies its parts, and
 * posts that it has them. A source that pushes does so when it has the value
 * and the receiver has posted that its memory is free. In a copy queue, both
 * start as soon as they can, and the value is waited for at its first use
 * (lower_value.c). */
#include "lower/lower_transfer.h"

#include "base/err.h"

#include <inttypes.h>
#include <string.h>

enum queue lower_copy_queue(const struct lower *w, int d)
{
    return w->opt->dev[d].one_queue ? QUEUE_COMPUTE : QUEUE_COPY;
}

static enum queue queue_of(const struct lower *w, const struct receiver *y,
                           int d)
{
    return y->by->in_order ? QUEUE_COMPUTE : lower_copy_queue(w, d);
}

/* ---- pieces -------------------------------------------------------------- */

int lower_same_source(const struct copy_desc *p, int n)
{
    int k = 1;

    while (k < n && p[k].src_dev == p[0].src_dev)
        k++;
    return k;
}

int lower_shard_on(const struct lower *w, int group, int dev)
{
    int u = lower_group(w, group)->first;

    while (lower_dev(w, u) != dev)
        u++;
    return u;
}

static pl_dim moved(const struct copy_desc *p)
{
    const pl_dim all[3] = {p->bytes, p->n0, p->n1};

    return lower_product(all, 0, 3, 1);
}

void lower_count_pieces(pl_dim sum[2], const struct copy_desc *p, int n)
{
    for (int k = 0; k < n; k++)
        lower_add_bytes(sum, moved(&p[k]));
}

struct receiver lower_receiver(const struct lower *w, const struct transfer *t,
                               const struct placed *dst, int m,
                               struct arrival *done)
{
    return (struct receiver){.u = lower_group(w, t->to)->first + m,
                             .node = t->value < 0 ? -1
                                                  : w->num->node[t->value].node,
                             .by = &transport_info[t->by[m]],
                             .sources = t->source[m],
                             .group = t->from,
                             .inbox_free = -1,
                             .arrives = dst ? &dst->arrives[m] : NULL,
                             .done = done};
}

/* ---- memory at the receiver ---------------------------------------------- */

/* Memory that is allocated now is free when the shard has executed all
 * instructions so far, which its next event signals. */
pl_status lower_alloc_dst(struct lower *w, struct receiver *y, pl_format f,
                          int n_dim, const pl_dim *dim, int entries,
                          size_t *stride)
{
    int d = lower_dev(w, y->u);

    PL_TRY(lower_tensor(w, d, f, n_dim, dim, entries, &y->out, stride));
    if (!y->by->pushes)
        return PL_OK;
    lower_to_inbox(&w->dev[d], y->out, w->variant.order);
    return lower_post(w, d, QUEUE_COMPUTE, &y->inbox_free);
}

pl_status lower_alloc_resident_dst(struct lower *w, struct receiver *y, int i,
                                   size_t bytes)
{
    const struct graph_node *x = lower_node(w, i);
    const pl_dim size = {(int64_t)bytes, PL_CONST};
    struct prog_tensor *t;
    pl_dim dim[GRAPH_MAX_DIM];

    PL_TRY(lower_alloc_dst(w, y, PL_F32, 1, &size, -1, NULL));
    lower_dims(w, y->u, i, dim);
    t = &w->dev[lower_dev(w, y->u)].tensor[y->out];
    t->format = x->format;
    t->n_dim = x->n_dim;
    memcpy(t->dim, dim, sizeof t->dim);
    return PL_OK;
}

/* ---- events -------------------------------------------------------------- */

pl_status lower_add_arrival(struct lower *w, struct arrival *a, int dev,
                            int event)
{
    for (int k = 0; k < a->n; k++)
        if (a->event[k].dev == dev && a->event[k].event == event)
            return PL_OK;
    a->event = arena_extended(w->a, a->event, (size_t)a->n, sizeof *a->event);
    PL_TRY(lower_memory(w));
    a->event[a->n++] = (struct insn_event){dev, event};
    return PL_OK;
}

/* Emits the POST of device d, which has moved bytes to the receiver, and what
 * waits for it. What the receiver itself copied in its order needs no WAIT. */
static pl_status post_copied(struct lower *w, const struct receiver *y, int d,
                             enum queue q)
{
    int event;

    if (!y->by->posts)
        return PL_OK;
    PL_TRY(lower_post_at(w, d, q, y->by->post[q], &event));
    if (y->by->waits_at_once)
        return lower_wait(w, lower_dev(w, y->u), QUEUE_COMPUTE, d, event);
    if (y->by->pushes || q == QUEUE_COPY)
        PL_TRY(lower_add_arrival(w, y->arrives, d, event));
    return lower_add_arrival(w, y->done, d, event);
}

/* ---- a receiver that pulls ----------------------------------------------- */

/* Makes the copy queue wait for all instructions of the device so far, because
 * these may use memory that the copy overwrites. */
static pl_status copy_queue_after_compute(struct lower *w, int d)
{
    int mine;

    PL_TRY(lower_begin_copies(w, d));
    PL_TRY(lower_post(w, d, QUEUE_COMPUTE, &mine));
    return lower_wait(w, d, QUEUE_COPY, d, mine);
}

pl_status lower_pull(struct lower *w, const struct receiver *y,
                     const struct arrival *from, struct insn *insn, int n)
{
    int d = lower_dev(w, y->u);
    enum queue q = queue_of(w, y, d);

    if (q == QUEUE_COPY)
        PL_TRY(copy_queue_after_compute(w, d));
    for (int k = 0; k < from->n; k++)
        PL_TRY(lower_wait(w, d, q, from->event[k].dev, from->event[k].event));
    for (int k = 0; k < n; k++) {
        insn[k].queue = q;
        insn[k].node = y->node;
        if (insn[k].kind == INSN_PULL)
            insn[k].pull.between_groups = !y->by->in_order;
        PL_TRY(lower_insn(w, d, &insn[k]));
    }
    return post_copied(w, y, d, q);
}

/* ---- a receiver that is pushed to ---------------------------------------- */

pl_status lower_push(struct lower *w, const struct receiver *y, int s,
                     const int ready[2], struct insn *x)
{
    enum queue q = queue_of(w, y, s);

    x->queue = q;
    x->node = y->node;
    if (q == QUEUE_COPY)
        PL_TRY(lower_begin_copies(w, s));
    if (y->inbox_free >= 0)
        PL_TRY(lower_wait(w, s, q, lower_dev(w, y->u), y->inbox_free));
    for (int k = 0; k < 2; k++)
        if (q == QUEUE_COPY && ready[k] >= 0)
            PL_TRY(lower_wait(w, s, q, s, ready[k]));
    PL_TRY(lower_insn(w, s, x));
    return post_copied(w, y, s, q);
}

/* Emits the PUSH of the copies p[n], whose source is device s. */
static pl_status push_pieces_of(struct lower *w, const struct receiver *y,
                                int s, int ready, const struct copy_desc *p,
                                int n)
{
    const struct push_to to = {lower_dev(w, y->u), y->out, 0};
    struct insn x = {.kind = INSN_PUSH,
                     .push = {.n_to = 1,
                              .to = arena_memdup(w->a, &to, 1, sizeof to),
                              .piece = p,
                              .n_piece = n,
                              .between_groups = !y->by->in_order}};

    return lower_push(w, y, s, (const int[2]){ready, -1}, &x);
}

/* ---- both ---------------------------------------------------------------- */

/* Sets *event to the event by which the mover, on another device or in a copy
 * queue, waits for the source on shard su; to -1 if it needs none. */
static pl_status source_ready(struct lower *w, const struct receiver *y, int su,
                              int *event)
{
    *event = -1;
    if (!y->src)
        return PL_OK;
    return y->by->pushes && y->by->in_order
               ? lower_await_value(w, y->src, su)
               : lower_ready_event(w, y->src, su, event);
}

pl_status lower_check_sources(const struct lower *w, const struct receiver *y,
                              uint64_t found)
{
    if (found == y->sources)
        return PL_OK;
    return err_set(w->err, PL_BAD_ARGUMENT,
                   "node %d is copied to device %d from shards 0x%" PRIx64
                   " of group %d, but the list of transfers has 0x%" PRIx64
                   "; use a list of the same plan",
                   y->node, lower_dev(w, y->u), found, y->group, y->sources);
}

pl_status lower_transfer(struct lower *w, const struct receiver *y,
                         const struct copy_desc *p, int n, size_t out_bytes)
{
    struct arrival from = {0};
    uint64_t found = 0;
    struct insn s = {
        .kind = INSN_PULL,
        .pull = {
            .out = y->out, .out_bytes = out_bytes, .piece = p, .n_piece = n}};

    for (int k = 0, len; k < n; k += len) {
        int su = lower_shard_on(w, y->group, p[k].src_dev), e;

        len = lower_same_source(p + k, n - k);
        found |= (uint64_t)1 << w->shard[su].local;
        PL_TRY(source_ready(w, y, su, &e));
        if (y->by->pushes)
            PL_TRY(push_pieces_of(w, y, p[k].src_dev, e, p + k, len));
        else if (e >= 0)
            PL_TRY(lower_add_arrival(w, &from, p[k].src_dev, e));
    }
    PL_TRY(lower_check_sources(w, y, found));
    return n == 0 || y->by->pushes ? PL_OK : lower_pull(w, y, &from, &s, 1);
}

pl_status lower_record_copy(struct lower *w, const struct transfer *t,
                            const pl_dim bytes[2])
{
    struct lowered_variant *o = &w->out->variant[w->variant.index];

    if (w->now.micro > 0)
        return PL_OK;
    o->copy = arena_extended(w->a, o->copy, (size_t)o->n_copy, sizeof *o->copy);
    PL_TRY(lower_memory(w));
    o->copy[o->n_copy++] = (struct lowered_copy){t->as,
                                                 t->from,
                                                 t->to,
                                                 lower_node(w, t->as)->layer,
                                                 {bytes[0], bytes[1]},
                                                 t->kind == TRANSFER_PAGES};
    return PL_OK;
}
