/* Transfers of parts of a value to a device of another group.
 *
 * A receiver that can read the source's memory pulls: it waits for the source's
 * POST, copies its parts, and posts that it has them. To other receivers the
 * source pushes into the inbox, when it has the value and the receiver has
 * posted that the memory is free. Only pushes write into an inbox, so if one
 * source pushes its part, all do, including the receiver itself. Devices with a
 * copy queue start as soon as they can, and the value is waited for at its
 * first use (lower_value.c). The others copy in the order of their other
 * instructions. */
#include "lower/lower_transfer.h"

#include "base/err.h"

#include <string.h>

/* ---- access to memory ---------------------------------------------------- */

bool lower_can_read(const struct lower *w, int d, int from)
{
    const struct lower_device *x = &w->opt->dev[d], *y = &w->opt->dev[from];

    return d == from ||
           (y->memory >= 0 && (x->memory == y->memory || x->reads));
}

bool lower_all_can_read(const struct lower *w, int a, int b)
{
    for (int m = 0; m < lower_group(w, b)->n; m++)
        for (int k = 0; k < lower_group(w, a)->n; k++)
            if (!lower_can_read(w, lower_dev(w, lower_group(w, b)->first + m),
                                lower_dev(w, lower_group(w, a)->first + k)))
                return false;
    return true;
}

bool lower_one_queue(const struct lower *w, int b)
{
    const struct lower_group *g = lower_group(w, b);

    for (int m = 0; m < g->n; m++)
        if (w->opt->dev[lower_dev(w, g->first + m)].one_queue)
            return true;
    return false;
}

enum queue lower_copy_queue(const struct lower *w, int d)
{
    return w->opt->dev[d].one_queue ? QUEUE_COMPUTE : QUEUE_COPY;
}

/* ---- pieces -------------------------------------------------------------- */

bool lower_needs_push(const struct lower *w, int d, const struct copy_desc *p,
                      int n)
{
    for (int k = 0; k < n; k++)
        if (!lower_can_read(w, d, p[k].src_dev))
            return true;
    return false;
}

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

struct transfer lower_transfer_init(const struct lower *w, int i, int from,
                                    const struct placed *dst, int m,
                                    struct arrival *done)
{
    return (struct transfer){.u = lower_group(w, dst->h.group)->first + m,
                             .node = w->num->node[i].node,
                             .group = from,
                             .arrives = &dst->arrives[m],
                             .done = done};
}

/* ---- memory at the receiver ---------------------------------------------- */

/* Memory that is allocated now is free when the shard has executed all
 * instructions so far, which its next event signals. */
pl_status lower_alloc_dst(struct lower *w, struct transfer *y, bool pushed,
                          pl_format f, int n_dim, const pl_dim *dim,
                          int entries, size_t *stride)
{
    int d = lower_dev(w, y->u);

    PL_TRY(lower_tensor(w, d, f, n_dim, dim, entries, &y->out, stride));
    if (!pushed)
        return PL_OK;
    lower_to_inbox(&w->dev[d], y->out, w->variant.order);
    return lower_post(w, d, QUEUE_COMPUTE, &y->room);
}

pl_status lower_alloc_resident_dst(struct lower *w, struct transfer *y,
                                   bool pushed, int i, size_t bytes)
{
    const struct graph_node *x = lower_node(w, i);
    const pl_dim size = {(int64_t)bytes, PL_CONST};
    struct prog_tensor *t;
    pl_dim dim[GRAPH_MAX_DIM];

    PL_TRY(lower_alloc_dst(w, y, pushed, PL_F32, 1, &size, -1, NULL));
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
    PL_TRY(lower_grow_arena(w, (void **)&a->event, a->n, &a->cap,
                            sizeof *a->event));
    a->event[a->n++] = (struct insn_event){dev, event};
    return PL_OK;
}

static pl_status wait_all(struct lower *w, int d, enum queue q,
                          const struct arrival *a)
{
    for (int k = 0; k < a->n; k++)
        PL_TRY(lower_wait(w, d, q, a->event[k].dev, a->event[k].event));
    return PL_OK;
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

pl_status lower_pull(struct lower *w, const struct transfer *y,
                     const struct arrival *from, struct insn *insn, int n)
{
    int d = lower_dev(w, y->u), event;
    enum queue q = lower_copy_queue(w, d);

    if (q == QUEUE_COPY)
        PL_TRY(copy_queue_after_compute(w, d));
    PL_TRY(wait_all(w, d, q, from));
    for (int k = 0; k < n; k++) {
        insn[k].queue = q;
        insn[k].node = y->node;
        if (insn[k].kind == INSN_PULL)
            insn[k].pull.between_groups = true;
        PL_TRY(lower_insn(w, d, &insn[k]));
    }
    if (q == QUEUE_COMPUTE) {
        PL_TRY(lower_post_at(w, d, q, POST_BATCHED, &event));
    } else {
        PL_TRY(lower_post_at(w, d, q, POST_DEFERRED, &event));
        PL_TRY(lower_add_arrival(w, y->arrives, d, event));
    }
    return lower_add_arrival(w, y->done, d, event);
}

/* ---- a receiver that is pushed to ---------------------------------------- */

pl_status lower_push(struct lower *w, const struct transfer *y, int s,
                     const int ready[2], struct insn *x)
{
    enum queue q = lower_copy_queue(w, s);
    int event;

    x->queue = q;
    x->node = y->node;
    if (q == QUEUE_COPY)
        PL_TRY(lower_begin_copies(w, s));
    PL_TRY(lower_wait(w, s, q, lower_dev(w, y->u), y->room));
    for (int k = 0; k < 2; k++)
        if (q == QUEUE_COPY && ready[k] >= 0)
            PL_TRY(lower_wait(w, s, q, s, ready[k]));
    PL_TRY(lower_insn(w, s, x));
    PL_TRY(lower_post_at(w, s, q, q == QUEUE_COMPUTE ? POST_NOW : POST_DEFERRED,
                         &event));
    PL_TRY(lower_add_arrival(w, y->arrives, s, event));
    return lower_add_arrival(w, y->done, s, event);
}

/* Emits the PUSH of the copies p[n], whose source is device s. */
static pl_status push_pieces_of(struct lower *w, const struct transfer *y,
                                int s, int ready, const struct copy_desc *p,
                                int n)
{
    const struct push_to to = {lower_dev(w, y->u), y->out, 0};
    struct insn x = {.kind = INSN_PUSH,
                     .push = {.n_to = 1,
                              .to = arena_memdup(w->a, &to, 1, sizeof to),
                              .piece = p,
                              .n_piece = n,
                              .between_groups = true}};

    return lower_push(w, y, s, (const int[2]){ready, -1}, &x);
}

/* ---- both ---------------------------------------------------------------- */

pl_status lower_transfer(struct lower *w, const struct transfer *y,
                         const struct copy_desc *p, int n, size_t out_bytes)
{
    struct copy_desc *mine = arena_alloc(w->a, (size_t)n + 1, sizeof *mine);
    int d = lower_dev(w, y->u), n_mine = 0, len;
    struct arrival from = {0};
    struct insn s = {.kind = INSN_PULL};
    bool pushed = lower_needs_push(w, d, p, n);

    PL_TRY(lower_memory(w));
    for (int k = 0; k < n; k += len) {
        int su = lower_shard_on(w, y->group, p[k].src_dev), e = -1;

        len = lower_same_source(p + k, n - k);
        if (y->src)
            PL_TRY(lower_ready_event(w, y->src, su, &e));
        if (pushed) {
            PL_TRY(push_pieces_of(w, y, p[k].src_dev, e, p + k, len));
            continue;
        }
        if (e >= 0)
            PL_TRY(lower_add_arrival(w, &from, p[k].src_dev, e));
        memcpy(mine + n_mine, p + k, (size_t)len * sizeof *mine);
        n_mine += len;
    }
    if (n_mine == 0)
        return PL_OK;
    s.pull.out = y->out;
    s.pull.out_bytes = out_bytes;
    s.pull.piece = mine;
    s.pull.n_piece = n_mine;
    return lower_pull(w, y, &from, &s, 1);
}

pl_status lower_record_copy(struct lower *w, int i, int from, int to,
                            bool pages, const pl_dim bytes[2])
{
    struct lowered_variant *o = &w->out->variant[w->variant.index];

    if (w->now.micro > 0)
        return PL_OK;
    PL_TRY(lower_grow_arena(w, (void **)&o->copy, o->n_copy,
                            &w->variant.copy_cap, sizeof *o->copy));
    o->copy[o->n_copy++] = (struct lowered_copy){
        i, from, to, lower_node(w, i)->layer, {bytes[0], bytes[1]}, pages};
    return PL_OK;
}
