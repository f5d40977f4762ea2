/* Programs while they are written: tensors, buffers, steps, events; and the
 * tables that say which group holds which value. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

bool lower_grow(void **p, int n, int *cap, size_t size)
{
    int c = *cap ? 2 * *cap : 256;
    void *q;

    if (n < *cap)
        return true;
    q = realloc(*p, (size_t)c * size);
    if (!q)
        return false;
    *p = q;
    *cap = c;
    return true;
}

/* Shapes ----------------------------------------------------------------- */

void lower_dims(const struct lower *w, int u, int i, pl_dim *dim)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];

    memcpy(dim, x->dim, sizeof x->dim);
    if (n->layout->kind == PL_SPLIT)
        dim[n->layout->dim].n = layout_local_size(
            n->layout, x->dim[n->layout->dim].n, w->unit[u].u.ranks);
}

pl_status lower_local(struct lower *w, int u, int i, int dim,
                      struct layout_local *out)
{
    const struct num_node *n = &w->num->node[i];
    const pl_layout *l = n->layout;

    if (l->kind == PL_SPLIT && l->dim != dim)
        l = &layout_mirrored;
    return layout_local_init(out, w->a, l, w->g->node[n->node].dim[dim].n,
                             w->unit[u].u.ranks)
               ? PL_OK
               : err_no_memory(w->err, "a program");
}

pl_dim lower_product(const pl_dim *dim, int from, int to, int64_t factor)
{
    pl_dim p = {factor, PL_CONST};

    for (int i = from; i < to; i++) {
        p.n *= dim[i].n;
        if (dim[i].symbol != PL_CONST)
            p.symbol = dim[i].symbol;
    }
    return p;
}

void lower_add_bytes(pl_dim sum[2], pl_dim b)
{
    int k = b.symbol == PL_N_OUT;

    if (b.symbol == PL_CONST && sum[0].n > 0 && sum[0].symbol != PL_CONST)
        k = 1; /* rare: a constant beside n_tok takes the other place */
    if (sum[k].n == 0 || sum[k].symbol == b.symbol)
        sum[k] = (pl_dim){sum[k].n + b.n, b.symbol};
    else
        sum[!k] = (pl_dim){sum[!k].n + b.n, b.symbol};
}

/* Tensors and buffers ---------------------------------------------------- */

static pl_status add_tensor(struct lower *w, int d, const struct prog_tensor *t,
                            int buffer, size_t inside, int *out)
{
    struct draft *v = &w->dev[d];
    int cap = v->tensor_cap, c = cap;

    if (!lower_grow((void **)&v->tensor, v->n_tensor, &c, sizeof *v->tensor))
        return err_no_memory(w->err, "a program");
    c = cap;
    if (!lower_grow((void **)&v->buffer, v->n_tensor, &c, sizeof *v->buffer))
        return err_no_memory(w->err, "a program");
    c = cap;
    if (!lower_grow((void **)&v->inside, v->n_tensor, &c, sizeof *v->inside))
        return err_no_memory(w->err, "a program");
    c = cap;
    if (!lower_grow((void **)&v->q8, v->n_tensor, &c, sizeof *v->q8))
        return err_no_memory(w->err, "a program");
    v->tensor_cap = c;
    v->tensor[v->n_tensor] = *t;
    v->tensor[v->n_tensor].micro = w->micro;
    v->buffer[v->n_tensor] = buffer;
    v->inside[v->n_tensor] = inside;
    v->q8[v->n_tensor] = -1;
    *out = v->n_tensor++;
    return PL_OK;
}

pl_status lower_tensor(struct lower *w, int d, pl_format f, int n_dim,
                       const pl_dim *dim, int entries, int *out, size_t *stride)
{
    struct draft *v = &w->dev[d];
    struct prog_tensor t = {.format = f, .n_dim = n_dim, .region = REGION_WORK};
    size_t one;
    int b = -1;

    memcpy(t.dim, dim, (size_t)n_dim * sizeof *dim);
    t.bytes = entries ? (size_t)dim_value(lower_product(dim, 0, n_dim, 1),
                                          &w->opt->max) *
                            (entries < 0 ? 1 : 4)
                      : 0;
    one = (t.bytes + 63) / 64 * 64;
    if (stride)
        *stride = one;
    if (entries) {
        if (!lower_grow((void **)&v->buf, v->n_buf, &v->buf_cap,
                        sizeof *v->buf))
            return err_no_memory(w->err, "a program");
        b = v->n_buf++;
        v->buf[b] = (struct buffer){one * (size_t)(entries < 0 ? 1 : entries),
                                    v->n_step, v->n_step, 0, REGION_WORK};
    }
    return add_tensor(w, d, &t, b, 0, out);
}

pl_status lower_mail(struct lower *w, int d, pl_format f, int n_dim,
                     const pl_dim *dim, int birth, int64_t most, int *out)
{
    struct draft *v = &w->dev[d];
    struct prog_tensor *t;
    struct buffer *b;

    PL_TRY(lower_tensor(w, d, f, n_dim, dim, 1, out, NULL));
    t = &v->tensor[*out];
    b = &v->buf[v->buffer[*out]];
    t->region = b->region = REGION_MAIL;
    b->birth = birth;
    if (most > 0) {
        const struct graph_sizes z = {most, most, w->opt->max.n_slot,
                                      w->opt->max.n_seq};

        size_t bytes = (size_t)dim_value(lower_product(dim, 0, n_dim, 4), &z);

        if (bytes < t->bytes)
            t->bytes = bytes;
        b->bytes = (t->bytes + 63) / 64 * 64;
    }
    return PL_OK;
}

pl_status lower_alias(struct lower *w, int d, int tensor, int n_dim,
                      const pl_dim *dim, size_t offset, int *out)
{
    const struct draft *v = &w->dev[d];
    struct prog_tensor t = v->tensor[tensor];

    t.n_dim = n_dim;
    memset(t.dim, 0, sizeof t.dim);
    memcpy(t.dim, dim, (size_t)n_dim * sizeof *dim);
    if (v->buffer[tensor] < 0)
        t.offset += offset;
    return add_tensor(w, d, &t, v->buffer[tensor], v->inside[tensor] + offset,
                      out);
}

void lower_use(struct draft *v, int tensor, int at)
{
    int b = tensor >= 0 ? v->buffer[tensor] : -1;

    if (b >= 0 && v->buf[b].death < at)
        v->buf[b].death = at;
}

/* Steps and events ------------------------------------------------------- */

struct use_at {
    struct draft *v;
    int dev;
};

static void use(void *user, const struct step_use *u)
{
    const struct use_at *x = user;

    if (u->dev == x->dev)
        lower_use(x->v, u->tensor, x->v->n_step);
}

pl_status lower_step(struct lower *w, int d, const struct step *s)
{
    struct draft *v = &w->dev[d];
    struct use_at at = {v, d};
    struct step *t;

    if (!step_is_transfer(s) && s->kind != STEP_WAIT)
        PL_TRY(lower_settle(w, d));
    if (step_meets(s))
        PL_TRY(lower_link(w, d, s->queue));
    if (!lower_grow((void **)&v->step, v->n_step, &v->step_cap,
                    sizeof *v->step))
        return err_no_memory(w->err, "a program");
    step_uses(s, d, v->tensor, use, &at);
    t = &v->step[v->n_step++];
    *t = *s;
    t->micro = w->micro;
    t->order = step_meets(s) ? s->order : w->order++;
    if (w->guard != GUARD_NONE) {
        bool few = w->guard == GUARD_FEW_TOK || w->guard == GUARD_FEW_OUT;

        t->guard_out = w->guard >= GUARD_FEW_OUT;
        t->least = few ? 0 : w->few + 1;
        t->most = few ? w->few : INT64_MAX;
    }
    return PL_OK;
}

/* Room to know of the device's events up to `event`. */
static bool know(struct draft *v, int event)
{
    while (v->late_cap <= event) {
        int cap = v->late_cap;

        if (!lower_grow((void **)&v->late, cap, &v->late_cap, sizeof *v->late))
            return false;
        for (int i = cap; i < v->late_cap; i++)
            v->late[i] = (struct late){.as = -1};
    }
    return true;
}

/* The POST itself, of the current micro-batch. */
static pl_status post(struct lower *w, int d, enum queue q, int event)
{
    struct draft *v = &w->dev[d];
    const struct step s = {
        .kind = STEP_POST, .queue = q, .node = -1, .event = {d, event}};

    if (!know(v, event))
        return err_no_memory(w->err, "a program");
    v->late[event].waits = false;
    v->late[event].queue = q;
    v->late[event].micro = w->micro;
    v->late[event].guard = w->guard;
    v->late[event].number = ++v->posts[q][w->micro][w->guard].n;
    v->posts[q][w->micro][w->guard].event = event;
    return lower_step(w, d, &s);
}

pl_status lower_post(struct lower *w, int d, enum queue q, int *event)
{
    struct draft *v = &w->dev[d];
    const struct step *last;

    PL_TRY(lower_settle(w, d));
    last = v->n_step ? &v->step[v->n_step - 1] : NULL;
    if (last && last->kind == STEP_POST && last->queue == q &&
        last->micro == w->micro &&
        v->late[last->event.event].guard == w->guard) {
        *event = last->event.event; /* nothing has happened since */
        return PL_OK;
    }
    *event = v->n_event++;
    return post(w, d, q, *event);
}

pl_status lower_post_late(struct lower *w, int d, int *event)
{
    struct draft *v = &w->dev[d];

    *event = v->n_event++;
    if (!know(v, *event))
        return err_no_memory(w->err, "a program");
    v->late[*event] = (struct late){.waits = true,
                                    .micro = w->micro,
                                    .batch = w->batch,
                                    .as = -1,
                                    .queue = QUEUE_COPY};
    return PL_OK;
}

/* Posts a late event; those before it of its micro-batch are then known too,
 * since a queue is first in, first out. */
static pl_status post_now(struct lower *w, int d, int event)
{
    struct draft *v = &w->dev[d];
    int micro = w->micro;
    enum guard guard = w->guard;
    pl_status s;

    w->micro = v->late[event].micro;
    w->guard = GUARD_NONE;
    for (int e = v->first_late; e < event; e++)
        if (v->late[e].waits && v->late[e].micro == w->micro) {
            v->late[e].waits = false;
            v->late[e].as = event;
        }
    s = post(w, d, QUEUE_COPY, event);
    w->micro = micro;
    w->guard = guard;
    return s;
}

pl_status lower_post_batch(struct lower *w, int d)
{
    struct draft *v = &w->dev[d];

    for (int e = v->n_event - 1; e >= v->first_late; e--)
        if (e < v->late_cap && v->late[e].waits && v->late[e].batch != w->batch)
            PL_TRY(post_now(w, d, e));
    for (; v->first_late < v->n_event && v->first_late < v->late_cap;
         v->first_late++)
        if (v->late[v->first_late].waits)
            break;
    return PL_OK;
}

pl_status lower_settle(struct lower *w, int d)
{
    struct draft *v = &w->dev[d];
    int micro = w->micro, event = v->owed;
    enum guard guard = w->guard;
    pl_status s;

    if (event < 0)
        return PL_OK;
    v->owed = -1;
    w->micro = v->owed_micro;
    w->guard = GUARD_NONE;
    s = post(w, d, QUEUE_COMPUTE, event);
    w->micro = micro;
    w->guard = guard;
    return s;
}

pl_status lower_post_later(struct lower *w, int d, int *event)
{
    struct draft *v = &w->dev[d];

    if (v->owed_micro != w->micro)
        PL_TRY(lower_settle(w, d));
    if (v->owed < 0)
        v->owed = v->n_event++;
    v->owed_micro = w->micro;
    *event = v->owed;
    return PL_OK;
}

static pl_status wait_step(struct lower *w, int d, enum queue q,
                           const struct step_event *e, int n)
{
    const struct step s = {.kind = STEP_WAIT,
                           .queue = q,
                           .node = -1,
                           .wait = {e[0], n - 1, n > 1 ? e + 1 : NULL}};

    return lower_step(w, d, &s);
}

/* A WAIT of queue q for the device's own event, in just the runs that have its
 * POST: the queue then depends on it. */
static pl_status wait_own(struct lower *w, int d, enum queue q, int event)
{
    const struct step_event own = {d, event};
    const struct late *l = &w->dev[d].late[event];
    int micro = w->micro;
    enum guard guard = w->guard;
    pl_status st;

    w->micro = l->micro;
    w->guard = l->guard;
    st = wait_step(w, d, q, &own, 1);
    w->micro = micro;
    w->guard = guard;
    return st;
}

pl_status lower_link(struct lower *w, int d, enum queue q)
{
    struct draft *v = &w->dev[d];
    enum queue other = q == QUEUE_COMPUTE ? QUEUE_COPY : QUEUE_COMPUTE;

    if (w->opt->dev[d].one_queue)
        return PL_OK;
    for (int i = 0; i < PROG_MAX_MICRO * GUARD_COUNT; i++) {
        int k = i / GUARD_COUNT, g = i % GUARD_COUNT;

        if (v->posts[other][k][g].n == v->posts[other][k][g].linked)
            continue;
        v->posts[other][k][g].linked = v->posts[other][k][g].n;
        PL_TRY(wait_own(w, d, q, v->posts[other][k][g].event));
    }
    return PL_OK;
}

/* The device's queue waits for event l of the other one, in just the runs that
 * have it. */
static void note_link(struct lower *w, struct draft *v, enum queue q,
                      const struct late *l)
{
    if (l->queue == q || l->micro != w->micro || l->guard != w->guard)
        return;
    if (l->number > v->posts[l->queue][l->micro][l->guard].linked)
        v->posts[l->queue][l->micro][l->guard].linked = l->number;
}

pl_status lower_wait(struct lower *w, int d, enum queue q, int dev, int event)
{
    struct draft *v = &w->dev[dev];
    struct step_event e;

    if (v->owed == event)
        PL_TRY(lower_settle(w, dev));
    if (event < v->late_cap && v->late[event].waits)
        PL_TRY(post_now(w, dev, event));
    if (event < v->late_cap && v->late[event].as >= 0)
        event = v->late[event].as;
    e = (struct step_event){dev, event};
    if (dev != d)
        PL_TRY(lower_link(w, d, q));
    else
        note_link(w, v, q, &v->late[event]);
    return wait_step(w, d, q, &e, 1);
}

pl_status lower_wait_all(struct lower *w, int d, const struct step_event *e,
                         int n)
{
    PL_TRY(lower_link(w, d, QUEUE_COMPUTE));
    return wait_step(w, d, QUEUE_COMPUTE, e, n);
}

/* Who holds what --------------------------------------------------------- */

static struct held *in_group(struct held *h, int group)
{
    while (h && h->h.group != group)
        h = (struct held *)h->h.next;
    return h;
}

/* The micro-batch whose value i is: a streamed weight is that of the first,
 * which is part of every run, for all. */
static int owner(const struct lower *w, int i)
{
    return w->num->node[i].kind == NUM_OP &&
                   w->g->node[w->num->node[i].node].op == OP_weight
               ? 0
               : w->micro;
}

/* Of this script and micro-batch first (streamed leaves), then for good. */
struct held *lower_find(const struct lower *w, int i, int group)
{
    struct held *h = NULL;

    if (w->value)
        h = in_group(w->value[owner(w, i)][i], group);
    return h ? h : in_group(w->held[i], group);
}

pl_status lower_hold(struct lower *w, int i, int group, struct held **out)
{
    size_t n = (size_t)w->opt->group[group].n;
    struct held *h = arena_alloc(w->a, 1, sizeof *h);
    struct held **first = w->value ? &w->value[owner(w, i)][i] : &w->held[i];

    if (!h)
        return err_no_memory(w->err, "a program");
    h->h.group = group;
    h->h.v = arena_alloc(w->a, n, sizeof *h->h.v);
    h->ready = arena_alloc(w->a, n, sizeof *h->ready);
    h->arrives = arena_alloc(w->a, n, sizeof *h->arrives);
    if (!h->h.v || !h->ready || !h->arrives)
        return err_no_memory(w->err, "a program");
    for (size_t k = 0; k < n; k++) {
        h->h.v[k] = (struct lowered_value){-1, -1};
        h->ready[k] = -1;
    }
    if (w->num->node[i].layout->kind == PL_PARTIAL) {
        h->sums = arena_alloc(w->a, n, sizeof *h->sums);
        h->by_rank = arena_alloc(w->a, n, sizeof *h->by_rank);
        if (!h->sums || !h->by_rank)
            return err_no_memory(w->err, "a program");
        for (size_t k = 0; k < n; k++)
            h->sums[k].tensor = h->by_rank[k].tensor = -1;
    }
    h->h.next = *first ? &(*first)->h : NULL;
    *first = h;
    *out = h;
    return PL_OK;
}
