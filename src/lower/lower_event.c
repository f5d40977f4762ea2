/* Events of a device: when its queues post, and who waits for that.
 *
 * Three kinds of POST stand at different places. One is made at once. One is
 * owed: values have come in a row, and threads meet once for all of them,
 * before the device's next work. One is late: a copy queue posts when somebody
 * is about to wait, or before copies of another wave; for by the law of
 * programs (doc/architecture.md, Order) whatever it has posted the compute
 * queue depends on at its next wait for another device.
 * lower_order_after_queue() keeps that law. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <string.h>

void lower_reset_events(struct draft_events *e)
{
    e->batched_post = -1; /* nobody waits */
    e->first_late = e->n;
    for (int i = 0; i < e->cap; i++)
        e->event[i].late = false;
    memset(e->posts, 0, sizeof e->posts);
}

/* Room to know of the device's events up to `event`. */
static bool grow_events(struct draft_events *x, int event)
{
    while (x->cap <= event) {
        int cap = x->cap;

        if (!lower_grow((void **)&x->event, cap, &x->cap, sizeof *x->event))
            return false;
        for (int i = cap; i < x->cap; i++)
            x->event[i] = (struct builder_event){.as = -1};
    }
    return true;
}

/* The POST itself, of the current micro-batch. */
static pl_status post(struct lower *w, int d, enum queue q, int event)
{
    struct draft_events *x = &w->dev[d].events;
    const struct insn s = {
        .kind = INSN_POST, .queue = q, .node = -1, .event = {d, event}};
    struct posts *p;

    if (!grow_events(x, event))
        return err_no_memory(w->err, "a program");
    p = &x->posts[q][w->now.micro][w->now.predicate];
    p->n++;
    p->event = event;
    x->event[event].late = false;
    x->event[event].queue = q;
    x->event[event].micro = w->now.micro;
    x->event[event].predicate = w->now.predicate;
    x->event[event].number = p->n;
    return lower_insn(w, d, &s);
}

pl_status lower_post(struct lower *w, int d, enum queue q, int *event)
{
    const struct program_builder *v = &w->dev[d];
    struct draft_events *x = &w->dev[d].events;
    const struct insn *last;

    PL_TRY(lower_flush_batched_post(w, d));
    last = v->n_insn ? &v->insn[v->n_insn - 1] : NULL;
    if (last && last->kind == INSN_POST && last->queue == q &&
        last->micro == w->now.micro &&
        x->event[last->event.event].predicate == w->now.predicate) {
        *event = last->event.event; /* nothing has happened since */
        return PL_OK;
    }
    *event = x->n++;
    return post(w, d, q, *event);
}

pl_status lower_post_deferred(struct lower *w, int d, int *event)
{
    struct draft_events *x = &w->dev[d].events;

    *event = x->n++;
    if (!grow_events(x, *event))
        return err_no_memory(w->err, "a program");
    x->event[*event] =
        (struct builder_event){.late = true,
                               .micro = w->now.micro,
                               .copy_batch = w->variant.copy_batch,
                               .as = -1,
                               .queue = QUEUE_COPY};
    return PL_OK;
}

/* Posts a late event; those before it of its micro-batch are then known too,
 * since a queue is first in, first out. */
static pl_status emit_deferred_post(struct lower *w, int d, int event)
{
    struct draft_events *x = &w->dev[d].events;
    const struct cursor was = w->now;
    pl_status s;

    w->now = (struct cursor){x->event[event].micro, PRED_NONE};
    for (int e = x->first_late; e < event; e++)
        if (x->event[e].late && x->event[e].micro == w->now.micro) {
            x->event[e].late = false;
            x->event[e].as = event;
        }
    s = post(w, d, QUEUE_COPY, event);
    w->now = was;
    return s;
}

pl_status lower_flush_deferred_posts(struct lower *w, int d)
{
    struct draft_events *x = &w->dev[d].events;

    for (int e = x->n - 1; e >= x->first_late; e--)
        if (e < x->cap && x->event[e].late &&
            x->event[e].copy_batch != w->variant.copy_batch)
            PL_TRY(emit_deferred_post(w, d, e));
    for (; x->first_late < x->n && x->first_late < x->cap; x->first_late++)
        if (x->event[x->first_late].late)
            break;
    return PL_OK;
}

pl_status lower_flush_batched_post(struct lower *w, int d)
{
    struct draft_events *x = &w->dev[d].events;
    const struct cursor was = w->now;
    int event = x->batched_post;
    pl_status s;

    if (event < 0)
        return PL_OK;
    x->batched_post = -1;
    w->now = (struct cursor){x->owed_micro, PRED_NONE};
    s = post(w, d, QUEUE_COMPUTE, event);
    w->now = was;
    return s;
}

pl_status lower_post_batched(struct lower *w, int d, int *event)
{
    struct draft_events *x = &w->dev[d].events;

    if (x->owed_micro != w->now.micro)
        PL_TRY(lower_flush_batched_post(w, d));
    if (x->batched_post < 0)
        x->batched_post = x->n++;
    x->owed_micro = w->now.micro;
    *event = x->batched_post;
    return PL_OK;
}

static pl_status wait_insn(struct lower *w, int d, enum queue q,
                           const struct insn_event *e, int n)
{
    const struct insn s = {.kind = INSN_WAIT,
                           .queue = q,
                           .node = -1,
                           .wait = {e[0], n - 1, n > 1 ? e + 1 : NULL}};

    return lower_insn(w, d, &s);
}

/* A WAIT of queue q for the device's own event, in just the runs that have its
 * POST: the queue then depends on it. */
static pl_status wait_own_queue(struct lower *w, int d, enum queue q, int event)
{
    const struct insn_event own = {d, event};
    const struct builder_event *l = &w->dev[d].events.event[event];
    const struct cursor was = w->now;
    pl_status st;

    w->now = (struct cursor){l->micro, l->predicate};
    st = wait_insn(w, d, q, &own, 1);
    w->now = was;
    return st;
}

pl_status lower_order_after_queue(struct lower *w, int d, enum queue q)
{
    struct draft_events *x = &w->dev[d].events;
    enum queue other = q == QUEUE_COMPUTE ? QUEUE_COPY : QUEUE_COMPUTE;

    if (w->opt->dev[d].one_queue)
        return PL_OK;
    for (int i = 0; i < PROG_MAX_MICRO * PRED_COUNT; i++) {
        struct posts *p = &x->posts[other][i / PRED_COUNT][i % PRED_COUNT];

        if (p->n == p->linked)
            continue;
        p->linked = p->n;
        PL_TRY(wait_own_queue(w, d, q, p->event));
    }
    return PL_OK;
}

/* The device's queue is to wait for its own event l. False: it has waited for
 * it, or for a later one of the same queue, in just the runs that have it. */
static bool note_link(struct lower *w, struct draft_events *x, enum queue q,
                      const struct builder_event *l)
{
    struct posts *p;

    if (l->queue == q || l->micro != w->now.micro ||
        l->predicate != w->now.predicate)
        return true;
    p = &x->posts[l->queue][l->micro][l->predicate];
    if (l->number <= p->linked)
        return false;
    p->linked = l->number;
    return true;
}

pl_status lower_wait(struct lower *w, int d, enum queue q, int dev, int event)
{
    struct draft_events *x = &w->dev[dev].events;
    struct insn_event e;

    if (x->batched_post == event)
        PL_TRY(lower_flush_batched_post(w, dev));
    if (event < x->cap && x->event[event].late)
        PL_TRY(emit_deferred_post(w, dev, event));
    if (event < x->cap && x->event[event].as >= 0)
        event = x->event[event].as;
    e = (struct insn_event){dev, event};
    if (dev != d)
        PL_TRY(lower_order_after_queue(w, d, q));
    else if (!note_link(w, x, q, &x->event[event]))
        return PL_OK;
    return wait_insn(w, d, q, &e, 1);
}

pl_status lower_wait_all(struct lower *w, int d, const struct insn_event *e,
                         int n)
{
    PL_TRY(lower_order_after_queue(w, d, QUEUE_COMPUTE));
    return wait_insn(w, d, QUEUE_COMPUTE, e, n);
}
