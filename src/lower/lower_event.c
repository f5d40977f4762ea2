/* Events of a device: when its queues post, and who waits for that.
 *
 * Three kinds of POST stand at different places. One is made at once. One is
 * owed: values have come in a row, and threads meet once for all of them,
 * before the device's next work. One is late: a copy queue posts when somebody
 * is about to wait, or before copies of another wave; for by the law of
 * programs (doc/architecture.md, Order) whatever it has posted the compute
 * queue depends on at its next wait for another device. lower_link() keeps that
 * law. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <string.h>

void lower_open_events(struct draft_events *e)
{
    e->owed = -1; /* nobody waits */
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
            x->event[i] = (struct draft_event){.as = -1};
    }
    return true;
}

/* The POST itself, of the current micro-batch. */
static pl_status post(struct lower *w, int d, enum queue q, int event)
{
    struct draft_events *x = &w->dev[d].events;
    const struct step s = {
        .kind = STEP_POST, .queue = q, .node = -1, .event = {d, event}};
    struct posts *p;

    if (!grow_events(x, event))
        return err_no_memory(w->err, "a program");
    p = &x->posts[q][w->now.micro][w->now.guard];
    p->n++;
    p->event = event;
    x->event[event].late = false;
    x->event[event].queue = q;
    x->event[event].micro = w->now.micro;
    x->event[event].guard = w->now.guard;
    x->event[event].number = p->n;
    return lower_step(w, d, &s);
}

pl_status lower_post(struct lower *w, int d, enum queue q, int *event)
{
    const struct draft *v = &w->dev[d];
    struct draft_events *x = &w->dev[d].events;
    const struct step *last;

    PL_TRY(lower_post_owed(w, d));
    last = v->n_step ? &v->step[v->n_step - 1] : NULL;
    if (last && last->kind == STEP_POST && last->queue == q &&
        last->micro == w->now.micro &&
        x->event[last->event.event].guard == w->now.guard) {
        *event = last->event.event; /* nothing has happened since */
        return PL_OK;
    }
    *event = x->n++;
    return post(w, d, q, *event);
}

pl_status lower_post_late(struct lower *w, int d, int *event)
{
    struct draft_events *x = &w->dev[d].events;

    *event = x->n++;
    if (!grow_events(x, *event))
        return err_no_memory(w->err, "a program");
    x->event[*event] = (struct draft_event){.late = true,
                                            .micro = w->now.micro,
                                            .wave = w->script.wave,
                                            .as = -1,
                                            .queue = QUEUE_COPY};
    return PL_OK;
}

/* Posts a late event; those before it of its micro-batch are then known too,
 * since a queue is first in, first out. */
static pl_status post_now(struct lower *w, int d, int event)
{
    struct draft_events *x = &w->dev[d].events;
    const struct cursor was = w->now;
    pl_status s;

    w->now = (struct cursor){x->event[event].micro, GUARD_NONE};
    for (int e = x->first_late; e < event; e++)
        if (x->event[e].late && x->event[e].micro == w->now.micro) {
            x->event[e].late = false;
            x->event[e].as = event;
        }
    s = post(w, d, QUEUE_COPY, event);
    w->now = was;
    return s;
}

pl_status lower_post_wave(struct lower *w, int d)
{
    struct draft_events *x = &w->dev[d].events;

    for (int e = x->n - 1; e >= x->first_late; e--)
        if (e < x->cap && x->event[e].late &&
            x->event[e].wave != w->script.wave)
            PL_TRY(post_now(w, d, e));
    for (; x->first_late < x->n && x->first_late < x->cap; x->first_late++)
        if (x->event[x->first_late].late)
            break;
    return PL_OK;
}

pl_status lower_post_owed(struct lower *w, int d)
{
    struct draft_events *x = &w->dev[d].events;
    const struct cursor was = w->now;
    int event = x->owed;
    pl_status s;

    if (event < 0)
        return PL_OK;
    x->owed = -1;
    w->now = (struct cursor){x->owed_micro, GUARD_NONE};
    s = post(w, d, QUEUE_COMPUTE, event);
    w->now = was;
    return s;
}

pl_status lower_post_later(struct lower *w, int d, int *event)
{
    struct draft_events *x = &w->dev[d].events;

    if (x->owed_micro != w->now.micro)
        PL_TRY(lower_post_owed(w, d));
    if (x->owed < 0)
        x->owed = x->n++;
    x->owed_micro = w->now.micro;
    *event = x->owed;
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
    const struct draft_event *l = &w->dev[d].events.event[event];
    const struct cursor was = w->now;
    pl_status st;

    w->now = (struct cursor){l->micro, l->guard};
    st = wait_step(w, d, q, &own, 1);
    w->now = was;
    return st;
}

pl_status lower_link(struct lower *w, int d, enum queue q)
{
    struct draft_events *x = &w->dev[d].events;
    enum queue other = q == QUEUE_COMPUTE ? QUEUE_COPY : QUEUE_COMPUTE;

    if (w->opt->dev[d].one_queue)
        return PL_OK;
    for (int i = 0; i < PROG_MAX_MICRO * GUARD_COUNT; i++) {
        struct posts *p = &x->posts[other][i / GUARD_COUNT][i % GUARD_COUNT];

        if (p->n == p->linked)
            continue;
        p->linked = p->n;
        PL_TRY(wait_own(w, d, q, p->event));
    }
    return PL_OK;
}

/* The device's queue is to wait for its own event l. False: it has waited for
 * it, or for a later one of the same queue, in just the runs that have it. */
static bool note_link(struct lower *w, struct draft_events *x, enum queue q,
                      const struct draft_event *l)
{
    struct posts *p;

    if (l->queue == q || l->micro != w->now.micro || l->guard != w->now.guard)
        return true;
    p = &x->posts[l->queue][l->micro][l->guard];
    if (l->number <= p->linked)
        return false;
    p->linked = l->number;
    return true;
}

pl_status lower_wait(struct lower *w, int d, enum queue q, int dev, int event)
{
    struct draft_events *x = &w->dev[dev].events;
    struct step_event e;

    if (x->owed == event)
        PL_TRY(lower_post_owed(w, dev));
    if (event < x->cap && x->event[event].late)
        PL_TRY(post_now(w, dev, event));
    if (event < x->cap && x->event[event].as >= 0)
        event = x->event[event].as;
    e = (struct step_event){dev, event};
    if (dev != d)
        PL_TRY(lower_link(w, d, q));
    else if (!note_link(w, x, q, &x->event[event]))
        return PL_OK;
    return wait_step(w, d, q, &e, 1);
}

pl_status lower_wait_all(struct lower *w, int d, const struct step_event *e,
                         int n)
{
    PL_TRY(lower_link(w, d, QUEUE_COMPUTE));
    return wait_step(w, d, QUEUE_COMPUTE, e, n);
}
