/* The progress thread of a machine. It sends the messages of this machine's
 * programs when their events are posted, stores those of other machines and
 * raises their events, and takes orders and replies. A thread that waits for
 * other machines does the same meanwhile, which is faster than to be woken; the
 * progress thread then sleeps.
 *
 * Between runs it sleeps, the longer the longer no message came. A message of a
 * run that this machine has not begun is held, and so are later messages of its
 * sender. */
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "device/remote/remote_inner.h"

/* ---- messages of programs ------------------------------------------------ */

/* A message that is packed or unpacked: the number of the run, then the bytes
 * of its parts. */
struct parcel {
    struct device *dev; /* whose inbox is read or written */
    unsigned char *at;
    size_t n; /* bytes that are left */
    bool unpacks;
    bool too_short; /* n was too small */
};

/* Returns the next n bytes of a parcel; NULL if it has fewer. */
static unsigned char *take(struct parcel *p, size_t n)
{
    unsigned char *at = p->at;

    if (p->too_short || n > p->n) {
        p->too_short = true;
        return NULL;
    }
    p->at += n;
    p->n -= n;
    return at;
}

static void copy_span(void *user, size_t offset, size_t bytes)
{
    struct parcel *p = user;
    unsigned char *inbox = p->dev->at[REGION_INBOX] + offset;
    unsigned char *at = take(p, bytes);

    if (at && p->unpacks)
        memcpy(inbox, at, bytes);
    else if (at)
        memcpy(at, inbox, bytes);
}

static void count_span(void *user, size_t offset, size_t bytes)
{
    (void)offset;
    *(size_t *)user += bytes;
}

static const struct messages *messages_of(const struct remote *r)
{
    return &r->m[r->run.variant];
}

static bool is_enabled(const struct remote *r, const struct message_channel *c,
                       int insn)
{
    const struct device *d = device_of(r->set, c->dev);

    return insn_enabled(&device_variant(d, &r->run)->insn[insn], r->run.n_micro,
                        r->run.sizes);
}

/* Copies the set of pages of a PAGES part between a parcel and pages[]. Returns
 * false if the parcel is too short, or if this process cannot read the token
 * table. */
static bool copy_page_set(struct remote *r, const struct message_channel *c,
                          const struct message_part *x, struct parcel *p,
                          uint64_t *pages, size_t bytes)
{
    const struct device *d = device_of(r->set, c->dev);
    const struct insn *s = &device_variant(d, &r->run)->insn[x->insn];
    const struct prog_tensor *t = &d->prog->tensor[s->pages.token_table];
    unsigned char *at = take(p, bytes);

    if (!at)
        return false;
    if (p->unpacks) {
        memcpy(pages, at, bytes);
        return true;
    }
    if (!d->at[t->region])
        return false;
    message_page_set(messages_of(r), c, x, r->run.sizes,
                     d->at[t->region] + t->offset, pages);
    memcpy(at, pages, bytes);
    return true;
}

/* Copies the parts of a message between the inboxes and a parcel. Returns false
 * if that is not possible. */
static bool copy_parts(struct remote *r, const struct message_channel *c,
                       const struct sent_message *s, struct parcel *p)
{
    const struct messages *m = messages_of(r);
    bool ok = true;

    for (int i = s->first; ok && i < s->end; i++) {
        const struct message_part *x = &c->part[i];
        size_t bytes = message_page_words(m, c, x) * sizeof(uint64_t);
        uint64_t *pages = NULL;

        if (!is_enabled(r, c, x->insn))
            continue;
        p->dev = device_of(r->set, x->dev);
        if (bytes > 0) {
            pages = malloc(bytes);
            ok = pages && copy_page_set(r, c, x, p, pages, bytes);
        }
        if (ok)
            message_spans(m, c, x, r->run.sizes, pages, copy_span, p);
        free(pages);
    }
    return ok && !p->too_short;
}

/* Returns the greatest size of a message in bytes. */
static size_t most_bytes(const struct remote *r,
                         const struct message_channel *c,
                         const struct sent_message *s)
{
    const struct messages *m = messages_of(r);
    size_t n = sizeof r->begun;

    for (int i = s->first; i < s->end; i++) {
        const struct message_part *x = &c->part[i];
        size_t words = message_page_words(m, c, x);

        if (!is_enabled(r, c, x->insn))
            continue;
        if (words > 0)
            n += words * sizeof(uint64_t) +
                 device_of(r->set, x->dev)->bytes[REGION_INBOX];
        else
            message_spans(m, c, x, r->run.sizes, NULL, count_span, &n);
    }
    return n;
}

/* ---- failures ------------------------------------------------------------ */

static bool has_failed(const struct remote *r)
{
    return atomic_load(device_failed(r->set));
}

/* Fails the run because of the messages of a channel. */
static void fail_channel(struct remote *r, const struct message_channel *c,
                         const char *text)
{
    device_fail(r->set, device_of(r->set, c->dev), -1, text);
}

pl_status remote_lost(const struct remote *r, int m, pl_err *err)
{
    const char *fault = r->peer[m].fault;

    if (!fault && r->peer[m].why[0])
        return err_set(err, PL_DEVICE, "machine %d: %s", m, r->peer[m].why);
    if (!fault)
        return err_set(err, PL_DEVICE,
                       "machine %d was lost; restart all machines", m);
    return err_set(err, PL_DEVICE,
                   "machine %d has sent %s; restart all machines with the "
                   "same version",
                   m, fault);
}

void remote_fault(struct remote *r, int m, const char *what)
{
    r->peer[m].lost = true;
    r->peer[m].fault = what;
    if (r->begun > r->finished)
        remote_fail_lost(r, m);
}

void remote_fail_lost(struct remote *r, int m)
{
    pl_err err;

    if (r->peer[m].fault || r->peer[m].why[0]) {
        remote_lost(r, m, &err);
        device_set_fail(r->set, &err);
        return;
    }
    for (int d = 0; d < r->n_dev; d++)
        if (r->machine[d] == m) {
            device_fail(r->set, device_of(r->set, d), -1,
                        "its machine was lost");
            return;
        }
}

/* Sends the failure of the run to all other machines, once, when its error is
 * written or the devices have ended. */
static void send_failure(struct remote *r)
{
    struct remote_fail f;

    if (r->failure_sent)
        return;
    memset(&f, 0, sizeof f);
    if (!device_set_failure(r->set, &f.err) && r->ended < r->begun)
        return;
    r->failure_sent = true;
    f.number = r->begun;
    for (int m = 0; m < r->net->n_machine; m++)
        if (m != r->net->machine)
            r->net->ops->send(r->net, m, REMOTE_FAIL, &f, sizeof f);
}

/* ---- sending ------------------------------------------------------------- */

static void advance(struct remote *r, int i)
{
    const struct messages *m = messages_of(r);
    struct remote_channel *x = &r->channel[i];

    x->more = message_next(m, &m->channel[i], &x->at, r->run.n_micro,
                           r->run.sizes, &x->next);
}

void remote_begin(struct remote *r, uint64_t number)
{
    r->begun = number;
    r->failure_sent = false;
    for (int i = 0; i < messages_of(r)->n; i++) {
        r->channel[i].at = (struct message_cursor){0};
        advance(r, i);
    }
}

/* Returns the flag of a message's event. */
static struct device_flag *event_of(const struct remote *r,
                                    const struct message_channel *c, int post)
{
    const struct device *d = device_of(r->set, c->dev);

    return &d->event[device_variant(d, &r->run)->insn[post].post.event];
}

/* Returns true if the device has executed all that the message needs, and the
 * run has not failed. */
static bool is_ready(const struct remote *r, const struct message_channel *c,
                     const struct sent_message *s)
{
    if (s->post < 0)
        return r->ended >= r->begun;
    return atomic_load(&event_of(r, c, s->post)->v) >= r->begun &&
           !has_failed(r);
}

/* Returns memory in which a message of n bytes to machine `m` is packed: the
 * carrier's if it has some. NULL if out of memory. */
static unsigned char *packing(struct remote *r, int m, size_t n)
{
    unsigned char *at =
        r->net->ops->reserve ? r->net->ops->reserve(r->net, m, n) : NULL;

    if (at)
        return at;
    if (n > r->cap) {
        at = realloc(r->buf, n);
        if (!at)
            return NULL;
        r->buf = at;
        r->cap = n;
    }
    return r->buf;
}

static void send_message(struct remote *r, const struct message_channel *c,
                         const struct sent_message *s)
{
    struct parcel p = {.n = most_bytes(r, c, s)};
    size_t n = p.n;
    unsigned char *at = packing(r, c->machine, n);

    if (!at) {
        fail_channel(r, c, "out of memory for a message");
        return;
    }
    p.at = at;
    memcpy(take(&p, sizeof r->begun), &r->begun, sizeof r->begun);
    if (!copy_parts(r, c, s, &p))
        fail_channel(r, c,
                     "cache pages cannot be sent to another machine; "
                     "turn the offload off");
    else if (!r->net->ops->send(r->net, c->machine, message_tag(c), at,
                                n - p.n))
        fail_channel(r, c, "out of memory for a message");
    device_of(r->set, c->dev)->counts.sent_messages++;
    device_of(r->set, c->dev)->counts.sent_bytes += n - p.n;
}

/* Sends all messages that are ready. Returns true if there was one. Sets *all
 * to true if the run has no message left. */
static bool send_ready(struct remote *r, bool *all)
{
    const struct messages *m = messages_of(r);
    bool any = false;

    *all = r->ended >= r->begun;
    for (int i = 0; i < m->n; i++) {
        const struct message_channel *c = &m->channel[i];
        struct remote_channel *x = &r->channel[i];
        bool sends = r->machine[c->dev] == r->net->machine;

        while (x->more && sends && is_ready(r, c, &x->next)) {
            send_message(r, c, &x->next);
            advance(r, i);
            any = true;
        }
        if (x->more && (sends || c->machine == r->net->machine))
            *all = false;
    }
    return any;
}

/* ---- receiving ----------------------------------------------------------- */

/* Returns true if a message of run `number`, which this machine has not begun,
 * may have come from machine `from`. Machine 0 begins first, and orders the run
 * before it sends a message of it. */
static bool is_early(const struct remote *r, int from, uint64_t number)
{
    return r->net->machine != 0 && r->peer[from].loaded &&
           r->finished == r->begun && number == r->begun + 1 &&
           (from != 0 || number == r->ordered);
}

/* Stores the next message of channel i, from machine `from`, and raises its
 * event. */
static void store(struct remote *r, int i, int from, struct parcel *p)
{
    const struct message_channel *c = &messages_of(r)->channel[i];
    const struct sent_message s = r->channel[i].next;

    if (!r->channel[i].more || !copy_parts(r, c, &s, p) || p->n > 0) {
        remote_fault(r, from,
                     "a message of another length than its program "
                     "says");
        return;
    }
    if (s.post >= 0)
        device_flag_raise(event_of(r, c, s.post), r->begun);
    advance(r, i);
}

/* Processes the number of a run that this machine has not begun. Returns false
 * if the message has to be held. */
static bool take_number(struct remote *r, int from, uint64_t number)
{
    if (is_early(r, from, number))
        return false;
    remote_fault(r, from, "a message of a step that is not next");
    return true;
}

/* Processes a message of a program. Returns false if it has to be held, because
 * this machine has not begun its run. */
static bool take_message(struct remote *r, int from,
                         const struct network_message *m)
{
    struct parcel p = {.at = (unsigned char *)(uintptr_t)m->data,
                       .n = m->bytes,
                       .unpacks = true};
    const unsigned char *at = take(&p, sizeof r->begun);
    uint64_t number = 0;
    int i = -1;

    if (at)
        memcpy(&number, at, sizeof number);
    else
        remote_fault(r, from, "a message without the number of its step");
    if (number > r->begun)
        return take_number(r, from, number);
    if (number < r->begun || r->finished == r->begun || has_failed(r))
        return true;
    if (m->tag >= 0 && m->tag < r->n_dev * QUEUE_COUNT)
        i = r->channel_of[r->run.variant][m->tag];
    if (i >= 0 && r->machine[messages_of(r)->channel[i].dev] == from)
        store(r, i, from, &p);
    else
        remote_fault(r, from, "a message that its programs do not send");
    return true;
}

static bool take_failure(struct remote *r, int from,
                         const struct network_message *m)
{
    struct remote_fail f;

    if (m->bytes != sizeof f) {
        remote_fault(r, from, "an error of another length");
        return true;
    }
    memcpy(&f, m->data, sizeof f);
    if (f.number > r->begun)
        return take_number(r, from, f.number);
    if (f.number == r->begun && r->finished < r->begun) {
        f.err.message[sizeof f.err.message - 1] = '\0';
        r->failure_sent = true; /* by the machine that failed */
        device_set_fail(r->set, &f.err);
    }
    return true;
}

/* Returns true if an order is one that this machine can execute, with n bytes
 * after it. The range of memory and the run's sizes are checked later. */
static bool is_order(const struct remote *r, const struct remote_order *o,
                     size_t n)
{
    switch (o->verb) {
    case REMOTE_WRITE:
    case REMOTE_READ:
        return n == (o->verb == REMOTE_READ ? 0 : o->bytes) &&
               o->bytes <= REMOTE_CHUNK && o->dev >= 0 && o->dev < r->n_dev &&
               r->machine[o->dev] == r->net->machine;
    case REMOTE_RUN:
        return n == sizeof r->run && o->bytes == n;
    case REMOTE_END:
        return n == 0;
    }
    return false;
}

static void take_order(struct remote *r, int from,
                       const struct network_message *m)
{
    struct remote_order o;
    struct remote_queued *q;
    size_t n;

    if (m->bytes >= sizeof o)
        memcpy(&o, m->data, sizeof o);
    if (from != 0 || m->bytes < sizeof o ||
        !is_order(r, &o, m->bytes - sizeof o)) {
        remote_fault(r, from, "an order that cannot be executed");
        return;
    }
    n = m->bytes - sizeof o;
    q = malloc(sizeof *q + n);
    if (!q) {
        r->peer[0].lost = true;
        return;
    }
    q->next = NULL;
    q->took_s = device_now();
    q->order = o;
    if (n > 0)
        memcpy(q->data, (const char *)m->data + sizeof o, n);
    if (o.verb == REMOTE_RUN)
        r->ordered = o.number;
    *r->last = q;
    r->last = &q->next;
}

static void take_reply(struct remote *r, int from,
                       const struct network_message *m)
{
    unsigned char *p;

    if (from == 0 || from != r->called || r->replied) {
        remote_fault(r, from, "a reply to no order");
        return;
    }
    p = realloc(r->reply, m->bytes + 1);
    if (!p) {
        r->peer[from].lost = true;
        return;
    }
    r->reply = p;
    if (m->bytes > 0)
        memcpy(p, m->data, m->bytes);
    r->reply_bytes = m->bytes;
    r->replied = true;
}

/* Adds a traced instruction of machine `from`. Its times are of the clock of
 * the run here, and `shift` seconds more of that of the run there. Returns
 * false if the machine cannot have executed it. */
static bool add_timing(struct remote *r, int from, struct device_timing t,
                       double shift)
{
    struct device *d;
    int n;

    if (t.dev < 0 || t.dev >= r->n_dev || r->machine[t.dev] != from)
        return false;
    d = device_of(r->set, t.dev);
    n = device_variant(d, &r->run)->n_insn;
    if (t.step < 0 || t.step >= n || d->n_timing >= n || !isfinite(t.begin_s) ||
        !isfinite(t.end_s))
        return false;
    device_trace_add(r->set, d, t.step, t.begin_s + shift, t.end_s + shift);
    return true;
}

/* Adds what a machine has traced in the run, at[done->n_timing]. Returns false
 * if it cannot be right. */
static bool take_trace(struct remote *r, int from,
                       const struct remote_done *done, const unsigned char *at)
{
    struct remote_clock *c = &r->peer[from].clock;
    const struct remote_round round = {r->begun_s, done->took_s, done->sent_s,
                                       device_now()};
    struct device_timing t;
    double shift;

    if (!isfinite(done->took_s) || !isfinite(done->start_s) ||
        !isfinite(done->sent_s) ||
        (done->n_timing > 0 && !device_traces(r->set)))
        return false;
    remote_clock_update(c, &round);
    shift = device_since(r->set, done->start_s + remote_clock_difference(c));
    for (int i = 0; i < done->n_timing; i++) {
        memcpy(&t, at + (size_t)i * sizeof t, sizeof t);
        if (!add_timing(r, from, t, shift))
            return false;
    }
    return true;
}

/* Returns true if a message is the end of the run by machine `from`, and sets
 * *done to its head. */
static bool read_done(struct remote *r, int from,
                      const struct network_message *m, struct remote_done *done)
{
    if (m->bytes < sizeof *done)
        return false;
    memcpy(done, m->data, sizeof *done);
    return r->net->machine == 0 && done->number == r->begun &&
           r->peer[from].done < r->begun && done->n >= 0 &&
           done->n <= r->n_dev && done->n_timing >= 0 &&
           m->bytes ==
               sizeof *done + (size_t)done->n * sizeof(struct remote_counts) +
                   (size_t)done->n_timing * sizeof(struct device_timing);
}

static void take_done(struct remote *r, int from,
                      const struct network_message *m)
{
    const unsigned char *at = m->data;
    struct remote_done done = {0};
    struct remote_counts c;
    bool ok = read_done(r, from, m, &done);

    at += sizeof done;
    for (int i = 0; ok && i < done.n; i++, at += sizeof c) {
        memcpy(&c, at, sizeof c);
        if (c.dev >= 0 && c.dev < r->n_dev && r->machine[c.dev] == from)
            device_of(r->set, c.dev)->counts = c.counts;
    }
    if (!ok || !take_trace(r, from, &done, at)) {
        remote_fault(r, from, "the end of a step that it does not execute");
        return;
    }
    r->peer[from].done = done.number;
}

/* Processes a message. Returns false if it has to be held. */
static bool take_from(struct remote *r, int from,
                      const struct network_message *m)
{
    struct remote_peer *p = &r->peer[from];

    switch (m->tag) {
    case NETWORK_LOST:
        p->lost = true;
        if (m->data)
            snprintf(p->why, sizeof p->why, "%.*s",
                     (int)(m->bytes < sizeof p->why ? m->bytes : sizeof p->why),
                     (const char *)m->data);
        if (r->begun > r->finished)
            remote_fail_lost(r, from);
        return true;
    case REMOTE_LOADED:
        p->loaded = m->bytes == sizeof p->hash;
        if (p->loaded)
            memcpy(&p->hash, m->data, sizeof p->hash);
        else
            remote_fault(r, from, "a hash of another length");
        return true;
    case REMOTE_ORDER:
        take_order(r, from, m);
        return true;
    case REMOTE_REPLY:
        take_reply(r, from, m);
        return true;
    case REMOTE_DONE:
        take_done(r, from, m);
        return true;
    case REMOTE_FAIL:
        return take_failure(r, from, m);
    default:
        return take_message(r, from, m);
    }
}

/* Receives a message of each other machine, if one has come. Returns true if
 * any was taken. */
static bool receive(struct remote *r)
{
    bool any = false;

    for (int m = 0; m < r->net->n_machine; m++) {
        struct remote_peer *p = &r->peer[m];

        if (m == r->net->machine || p->lost)
            continue;
        if (!p->held)
            p->held = r->net->ops->receive(r->net, m, &p->message);
        if (!p->held || !take_from(r, m, &p->message))
            continue;
        p->held = false;
        any = true;
        if (p->message.tag >= REMOTE_LOADED || p->lost)
            pthread_cond_broadcast(&r->changed);
    }
    return any;
}

/* ---- the thread ---------------------------------------------------------- */

/* Sends the messages of the run in progress that are ready, or its failure.
 * Ends the run if no message is left. Returns true if it sent any message. */
static bool progress_run(struct remote *r)
{
    bool all = r->ended >= r->begun, any = false;

    if (has_failed(r))
        send_failure(r);
    else
        any = send_ready(r, &all);
    if (all) {
        r->finished = r->begun;
        pthread_cond_broadcast(&r->changed);
    }
    return any;
}

bool remote_look(struct remote *r)
{
    bool any = r->begun > r->finished && progress_run(r);

    any |= receive(r);
    if (any)
        r->message_s = device_now();
    return any;
}

void remote_carry(struct backend *b)
{
    struct remote *r = b->own;

    if (pthread_mutex_trylock(&r->lock) != 0)
        return;
    r->looked_s = device_now();
    remote_look(r);
    pthread_mutex_unlock(&r->lock);
}

/* Seconds for which the progress thread leaves messages to a thread that has
 * carried some. */
static const double trust_s = 100e-6;
/* Seconds after a message in which the progress thread does not sleep, because
 * the next step may follow. */
static const double alert_s = 300e-6;

/* Returns true if another thread has just carried messages. */
static bool is_carried(const struct remote *r)
{
    return device_now() - r->looked_s < trust_s;
}

bool remote_is_alert(const struct remote *r)
{
    return device_now() - r->message_s < alert_s;
}

/* Returns the seconds that the progress thread may sleep; 0 if none. Between
 * runs it is an eighth of the time since the last message, up to 2 ms. */
static double may_sleep_s(const struct remote *r)
{
    double quiet_s = device_now() - r->message_s;

    if (is_carried(r))
        return trust_s;
    if (r->begun > r->finished)
        return r->carried ? trust_s : 0;
    if (r->n_waiting > 0 || remote_is_alert(r))
        return 0;
    return quiet_s / 8 < 50e-6  ? 50e-6
           : quiet_s / 8 > 2e-3 ? 2e-3
                                : quiet_s / 8;
}

/* Waits for something to do: sleeps, or until a caller of this process wakes
 * it, or yields. */
static void idle(struct remote *r)
{
    double s = may_sleep_s(r);
    struct timespec end;

    if (s <= 0) {
        pthread_mutex_unlock(&r->lock);
        sched_yield();
        pthread_mutex_lock(&r->lock);
        return;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += (long)(s * 1e9);
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    pthread_cond_timedwait(&r->work, &r->lock, &end);
}

void *remote_progress(void *user)
{
    struct remote *r = user;

    pthread_mutex_lock(&r->lock);
    r->message_s = device_now();
    while (!r->stop)
        if (is_carried(r) || !remote_look(r))
            idle(r);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}
