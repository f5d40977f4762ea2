/* Executes the orders of machine 0 on another machine; see remote.c. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/remote/remote_inner.h"
#include "device/team.h"

/* Waits for something to change. Carries messages meanwhile if an order may
 * come soon, which is faster than to be woken by the progress thread. */
static void await_change(struct remote *r, struct yielding *y)
{
    if (!remote_is_alert(r)) {
        pthread_cond_wait(&r->changed, &r->lock);
        return;
    }
    r->looked_s = device_now();
    if (remote_look(r))
        return;
    pthread_mutex_unlock(&r->lock);
    team_pause(y);
    pthread_mutex_lock(&r->lock);
}

/* Waits for the next order. Returns NULL if machine 0 is lost. */
static struct remote_queued *next_order(struct remote *r)
{
    struct yielding y = {0};
    struct remote_queued *q;

    pthread_mutex_lock(&r->lock);
    while (!r->first && !r->peer[0].lost)
        await_change(r, &y);
    q = r->first;
    if (q) {
        r->first = q->next;
        if (!r->first)
            r->last = &r->first;
    }
    pthread_mutex_unlock(&r->lock);
    return q;
}

static void send_to_0(struct remote *r, enum remote_tag tag, const void *data,
                      size_t bytes)
{
    pthread_mutex_lock(&r->lock);
    r->net->ops->send(r->net, 0, (int)tag, data, bytes);
    r->message_s = device_now();
    pthread_mutex_unlock(&r->lock);
}

/* Writes or reads memory of a device of this machine, and replies. */
static pl_status access_memory(struct remote *r, const struct remote_queued *q,
                               pl_err *err)
{
    const struct remote_order *o = &q->order;
    bool reads = o->verb == REMOTE_READ;
    struct remote_reply reply = {0};
    size_t n = sizeof reply + (reads ? o->bytes : 0);
    unsigned char *p = calloc(1, n);

    if (!p)
        return err_no_memory(err, "a reply to machine 0");
    if (reads)
        reply.status = device_read(r->set, o->dev, o->region, o->offset,
                                   p + sizeof reply, o->bytes, &reply.err);
    else
        reply.status = device_write(r->set, o->dev, o->region, o->offset,
                                    q->data, o->bytes, &reply.err);
    memcpy(p, &reply, sizeof reply);
    send_to_0(r, REMOTE_REPLY, p, n);
    free(p);
    return PL_OK;
}

/* Tells machine 0 that the step of order q has ended, with the counters of this
 * machine's devices and what was traced. */
static pl_status send_done(struct remote *r, const struct remote_queued *q,
                           pl_err *err)
{
    struct remote_done done;
    const struct device_timing *t;
    struct remote_counts c;
    unsigned char *p, *at;
    size_t n;

    memset(&done, 0, sizeof done);
    done.number = r->begun;
    t = device_set_trace(r->set, &done.n_timing);
    n = sizeof done + (size_t)r->n_dev * sizeof c +
        (size_t)done.n_timing * sizeof *t;
    p = calloc(1, n);
    if (!p)
        return err_no_memory(err, "a reply to machine 0");
    at = p + sizeof done;
    for (int d = 0; d < r->n_dev; d++) {
        if (r->machine[d] != r->net->machine)
            continue;
        memset(&c, 0, sizeof c);
        c.dev = d;
        c.counts = device_of(r->set, d)->counts;
        memcpy(at, &c, sizeof c);
        at += sizeof c;
        done.n++;
    }
    if (done.n_timing > 0)
        memcpy(at, t, (size_t)done.n_timing * sizeof *t);
    at += (size_t)done.n_timing * sizeof *t;
    done.took_s = q->took_s;
    done.sent_s = device_now();
    done.start_s = done.sent_s - device_since(r->set, done.sent_s);
    memcpy(p, &done, sizeof done);
    send_to_0(r, REMOTE_DONE, p, (size_t)(at - p));
    free(p);
    return PL_OK;
}

/* Executes a step that machine 0 has begun. If the step fails, the progress
 * threads tell all machines. */
static pl_status run(struct remote *r, const struct remote_queued *q,
                     pl_err *err)
{
    struct device_run run;
    uint64_t number;

    device_set_current_run(r->set, &number);
    if (number + 1 != q->order.number || q->order.bytes != sizeof run)
        return err_set(err, PL_DEVICE,
                       "machine 0 begins step %llu, this machine step %llu; "
                       "restart all machines",
                       (unsigned long long)q->order.number,
                       (unsigned long long)number + 1);
    memcpy(&run, q->data, sizeof run);
    PL_TRY(device_set_submit(r->set, &run, err));
    device_set_wait(r->set, NULL);
    return send_done(r, q, err);
}

pl_status remote_serve(struct backend *b, pl_err *err)
{
    struct remote *r = b->own;
    pl_status s = PL_OK;

    for (bool ends = false; s == PL_OK && !ends;) {
        struct remote_queued *q = next_order(r);

        if (!q)
            return remote_lost(r, 0, err);
        ends = q->order.verb == REMOTE_END;
        if (q->order.verb == REMOTE_RUN)
            s = run(r, q, err);
        else if (!ends)
            s = access_memory(r, q, err);
        free(q);
    }
    return s;
}
