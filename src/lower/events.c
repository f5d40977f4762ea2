/* Pass "events"; see events.h.
 *
 * A batched POST covers several values that become available in a row: the
 * device's threads synchronize once for all of them, before its next work. A
 * deferred POST of a copy queue covers all copies before it. It is emitted when
 * a device is about to wait for one of them, or before the copies of another
 * copy batch. Until then both are in lists of their device. */
#include "lower/events.h"

#include "base/err.h"

#include <limits.h>
#include <string.h>

enum { MAX_GUARD = 5 }; /* predicates of a variant, including "always" */

/* An event of the program before the pass. */
struct event {
    int post;  /* its event in the new program; -1 until it is posted */
    int next;  /* next event in the list of its device; -1 if none */
    int micro; /* of its POST; -1 until the pass has come to that */
};

/* A POST of the new program. */
struct post {
    enum queue queue;
    int micro, guard;
    int number; /* index among the POSTs of these, from 1 */
};

/* The POSTs so far of one queue, micro-batch and predicate. */
struct posts {
    int n, last; /* number of POSTs; number of the last one's event */
    int linked;  /* how many of them the other queue is known to wait for */
};

struct device {
    bool one_queue;
    const struct insn *in; /* of the variant, before the pass */
    int n_in, at;          /* at: index in `in` of the next one */
    struct insn *out;      /* with space for all that can follow */
    int n_out;
    struct event *event; /* [n_event] by number before the pass */
    int n_event;
    struct post *post; /* [n_post] by number after it */
    int n_post;
    int batched, deferred; /* newest event of each list; -1 if empty */
    struct posts posts[QUEUE_COUNT][PROG_MAX_MICRO][MAX_GUARD];
    int n_unlinked[QUEUE_COUNT]; /* elements of posts[] with linked < n */
};

/* A predicate of the variant; the first one always holds. */
struct guard {
    bool pred_out;
    int64_t min_rows, max_rows;
};

struct pass {
    struct program *p;
    int n_dev, variant, order;
    struct device *dev; /* [n_dev] */
    struct guard guard[MAX_GUARD];
    int n_guard;
    int n_order, most_order;
    /* [n_order] by position before the pass: the first device with an
     * instruction there, and the new position */
    int *dev_at, *order_at;
    /* The list of events of the last WAIT for several, before and after the
     * pass. */
    const struct insn_event *was, *now;
    struct arena *a;      /* of the programs */
    struct arena scratch; /* of the pass */
    pl_err *err;
};

static pl_status no_memory(const struct pass *x)
{
    return err_no_memory(x->err, "a program");
}

/* ---- emitting ------------------------------------------------------------ */

/* Returns the index of the instruction's predicate; -1 if there are too many
 * predicates. */
static int guard_of(struct pass *x, const struct insn *s)
{
    if (s->max_rows == 0)
        return 0;
    for (int i = 1; i < x->n_guard; i++)
        if (x->guard[i].pred_out == s->pred_out &&
            x->guard[i].min_rows == s->min_rows &&
            x->guard[i].max_rows == s->max_rows)
            return i;
    if (x->n_guard == MAX_GUARD)
        return -1;
    x->guard[x->n_guard] =
        (struct guard){s->pred_out, s->min_rows, s->max_rows};
    return x->n_guard++;
}

static struct insn *emit_at(struct pass *x, int d, const struct insn *s,
                            int order)
{
    struct device *v = &x->dev[d];
    struct insn *to = &v->out[v->n_out++];

    *to = *s;
    to->order = order;
    return to;
}

static struct insn *emit(struct pass *x, int d, const struct insn *s)
{
    return emit_at(x, d, s, x->order++);
}

static struct insn event_insn(const struct pass *x, enum insn_kind kind,
                              enum queue q, int micro, int guard)
{
    const struct guard *g = &x->guard[guard];

    return (struct insn){.kind = kind,
                         .queue = q,
                         .node = -1,
                         .micro = micro,
                         .pred_out = g->pred_out,
                         .min_rows = g->min_rows,
                         .max_rows = g->max_rows};
}

/* ---- POSTs --------------------------------------------------------------- */

/* Emits a POST. Sets *number to the number of its event. */
static pl_status emit_post(struct pass *x, int d, enum queue q, int micro,
                           int guard, int *number)
{
    struct device *v = &x->dev[d];
    struct posts *p = &v->posts[q][micro][guard];
    struct insn s = event_insn(x, INSN_POST, q, micro, guard);

    v->post = arena_extended(&x->scratch, v->post, (size_t)v->n_post,
                             sizeof *v->post);
    if (!v->post)
        return no_memory(x);
    v->n_unlinked[q] += p->n == p->linked;
    p->n++;
    p->last = *number = v->n_post;
    v->post[v->n_post++] = (struct post){q, micro, guard, p->n};
    s.post = (struct insn_post){d, *number, POST_NOW};
    emit(x, d, &s);
    return PL_OK;
}

/* Emits one POST for all batched events, if there are any. */
static pl_status flush_batched(struct pass *x, int d)
{
    struct device *v = &x->dev[d];
    int number;

    if (v->batched < 0)
        return PL_OK;
    PL_TRY(
        emit_post(x, d, QUEUE_COMPUTE, v->event[v->batched].micro, 0, &number));
    for (; v->batched >= 0; v->batched = v->event[v->batched].next)
        v->event[v->batched].post = number;
    return PL_OK;
}

/* Posts a deferred event. A queue runs its copies in order, so the POST also
 * covers the earlier deferred events of the same micro-batch. */
static pl_status post_deferred(struct pass *x, int d, int event)
{
    struct device *v = &x->dev[d];
    int micro = v->event[event].micro, number, *at = &v->deferred;

    PL_TRY(emit_post(x, d, QUEUE_COPY, micro, 0, &number));
    while (*at != event)
        at = &v->event[*at].next;
    while (*at >= 0) {
        struct event *e = &v->event[*at];

        if (e->micro == micro) {
            e->post = number;
            *at = e->next;
        } else {
            at = &e->next;
        }
    }
    return PL_OK;
}

/* Emits a POST that is due here. If the device's last instruction is a POST of
 * the same queue, micro-batch and predicate, uses that one instead. */
static pl_status post_now(struct pass *x, int d, const struct insn *s)
{
    struct device *v = &x->dev[d];
    const struct insn *last;
    int guard = guard_of(x, s);

    PL_TRY(flush_batched(x, d));
    last = v->n_out ? &v->out[v->n_out - 1] : NULL;
    if (last && last->kind == INSN_POST && last->queue == s->queue &&
        last->micro == s->micro && guard_of(x, last) == guard) {
        v->event[s->post.event].post = last->post.event;
        return PL_OK;
    }
    return emit_post(x, d, s->queue, s->micro, guard,
                     &v->event[s->post.event].post);
}

static pl_status flush(struct pass *x, int d, enum queue q)
{
    struct device *v = &x->dev[d];

    if (q == QUEUE_COMPUTE)
        return flush_batched(x, d);
    while (v->deferred >= 0)
        PL_TRY(post_deferred(x, d, v->deferred));
    return PL_OK;
}

static pl_status post(struct pass *x, int d, const struct insn *s)
{
    struct device *v = &x->dev[d];
    struct event *e;

    if (s->post.time == POST_FLUSH)
        return flush(x, d, s->queue);
    e = &v->event[s->post.event];
    if (e->micro >= 0) /* its list would become a ring */
        return err_set(x->err, PL_BAD_ARGUMENT, "event %d.%d is posted twice",
                       d, s->post.event);
    e->micro = s->micro;
    if (s->post.time == POST_NOW)
        return post_now(x, d, s);
    if (s->post.time == POST_DEFERRED) {
        e->next = v->deferred;
        v->deferred = s->post.event;
        return PL_OK;
    }
    if (v->batched >= 0 && v->event[v->batched].micro != s->micro)
        PL_TRY(flush_batched(x, d));
    e->next = v->batched;
    v->batched = s->post.event;
    return PL_OK;
}

/* ---- WAITs --------------------------------------------------------------- */

/* Makes queue q depend on all that the device has posted in its other queue.
 * Called before a WAIT for another device, or a barrier, in queue q. */
static void after_other_queue(struct pass *x, int d, enum queue q)
{
    struct device *v = &x->dev[d];
    enum queue other = q == QUEUE_COMPUTE ? QUEUE_COPY : QUEUE_COMPUTE;

    if (v->one_queue)
        return;
    for (int m = 0; v->n_unlinked[other] > 0; m++)
        for (int g = 0; g < x->n_guard; g++) {
            struct posts *p = &v->posts[other][m][g];
            struct insn s;

            if (p->n == p->linked)
                continue;
            s = event_insn(x, INSN_WAIT, q, m, g);
            p->linked = p->n;
            v->n_unlinked[other]--;
            s.wait.first = (struct insn_event){d, p->last};
            emit(x, d, &s);
        }
}

static bool is_in_list(const struct device *v, int list, int event)
{
    while (list >= 0 && list != event)
        list = v->event[list].next;
    return list == event;
}

/* Converts *e to the event's number in the new program. Emits its POST first if
 * that is batched or deferred. */
static pl_status resolve(struct pass *x, struct insn_event *e)
{
    struct device *v = e->dev < x->n_dev ? &x->dev[e->dev] : NULL;

    if (v && e->event < v->n_event && v->event[e->event].post < 0) {
        if (is_in_list(v, v->batched, e->event))
            PL_TRY(flush_batched(x, e->dev));
        else if (is_in_list(v, v->deferred, e->event))
            PL_TRY(post_deferred(x, e->dev, e->event));
    }
    if (!v || e->event >= v->n_event || v->event[e->event].post < 0)
        return err_set(x->err, PL_BAD_ARGUMENT,
                       "a wait for event %d.%d, which is not posted before it",
                       e->dev, e->event);
    e->event = v->event[e->event].post;
    return PL_OK;
}

/* Returns true if the WAIT's queue already waits for an event of the device's
 * other queue, or for a later one, in just the steps that execute the WAIT.
 * Otherwise records that it does from now on. */
static bool is_linked(struct device *v, const struct insn *s, int guard,
                      int event)
{
    const struct post *e = &v->post[event];
    struct posts *p = &v->posts[e->queue][e->micro][e->guard];

    if (e->queue == s->queue || e->micro != s->micro || e->guard != guard)
        return false;
    if (e->number <= p->linked)
        return true;
    p->linked = e->number;
    v->n_unlinked[e->queue] -= p->linked == p->n;
    return false;
}

/* Returns true if the device's program so far ends with WAITs, one of which is
 * the same WAIT for `e`. */
static bool is_repeated(const struct device *v, const struct insn *s,
                        struct insn_event e)
{
    for (int i = v->n_out - 1; i >= 0 && v->out[i].kind == INSN_WAIT; i--) {
        const struct insn *t = &v->out[i];

        if (t->wait.n_more == 0 && t->queue == s->queue &&
            t->micro == s->micro && t->pred_out == s->pred_out &&
            t->min_rows == s->min_rows && t->max_rows == s->max_rows &&
            t->wait.first.dev == e.dev && t->wait.first.event == e.event)
            return true;
    }
    return false;
}

static pl_status wait_one(struct pass *x, int d, const struct insn *s,
                          int guard)
{
    struct insn_event e = s->wait.first;

    PL_TRY(resolve(x, &e));
    if (e.dev == d ? is_linked(&x->dev[d], s, guard, e.event)
                   : is_repeated(&x->dev[d], s, e))
        return PL_OK;
    if (e.dev != d)
        after_other_queue(x, d, s->queue);
    emit(x, d, s)->wait.first = e;
    return PL_OK;
}

/* Emits a WAIT for several events. Several devices wait for the same events, so
 * they share the list. */
static pl_status wait_many(struct pass *x, int d, const struct insn *s)
{
    const struct insn_wait *w = &s->wait;
    struct insn_event first = w->first, *more;

    PL_TRY(resolve(x, &first));
    if (w->more != x->was) {
        more = arena_memdup(x->a, w->more, (size_t)w->n_more, sizeof *more);
        if (!more)
            return no_memory(x);
        for (int i = 0; i < w->n_more; i++)
            PL_TRY(resolve(x, &more[i]));
        x->was = w->more;
        x->now = more;
    }
    after_other_queue(x, d, s->queue);
    emit(x, d, s)->wait = (struct insn_wait){first, w->n_more, x->now};
    return PL_OK;
}

/* ---- the pass ------------------------------------------------------------ */

/* Emits a barrier on all its devices, the first of which is d. They have the
 * same position. */
static pl_status barrier(struct pass *x, int d)
{
    const struct insn *first = &x->dev[d].in[x->dev[d].at];
    int n = first->merge.n_peer, order;

    for (int i = 0; i < n; i++) {
        PL_TRY(flush_batched(x, first->merge.peer[i]));
        after_other_queue(x, first->merge.peer[i], first->queue);
    }
    order = x->order++;
    for (int i = 0; i < n; i++) {
        struct device *v = &x->dev[first->merge.peer[i]];

        if (v->at < v->n_in && v->in[v->at].order == first->order)
            emit_at(x, first->merge.peer[i], &v->in[v->at++], order);
    }
    return PL_OK;
}

static pl_status one(struct pass *x, int d)
{
    struct device *v = &x->dev[d];
    const struct insn *s = &v->in[v->at];
    int guard = guard_of(x, s);

    if (guard < 0)
        return err_set(x->err, PL_BAD_ARGUMENT,
                       "a variant with more than %d predicates", MAX_GUARD - 1);
    if (insn_is_barrier(s))
        return barrier(x, d);
    v->at++;
    if (s->kind == INSN_POST)
        return post(x, d, s);
    if (s->kind == INSN_WAIT)
        return s->wait.n_more ? wait_many(x, d, s) : wait_one(x, d, s, guard);
    if (!insn_is_transfer(s))
        PL_TRY(flush_batched(x, d));
    emit(x, d, s);
    return PL_OK;
}

static pl_status bad(const struct pass *x, int d, int i, const char *why)
{
    return err_set(x->err, PL_BAD_ARGUMENT, "instruction %d of device %d: %s",
                   i, d, why);
}

/* Checks what the pass relies on, because a parsed text may break it. */
static pl_status check(const struct pass *x, int d, int i)
{
    const struct device *v = &x->dev[d];
    const struct insn *s = &v->in[i];
    bool mine = !insn_is_barrier(s);

    if (s->micro >= PROG_MAX_MICRO)
        return bad(x, d, i, "too many micro-batches");
    if (s->order < 0 || (i > 0 && s[-1].order >= s->order))
        return bad(x, d, i, "positions must ascend");
    if (s->order >= x->most_order)
        return bad(x, d, i, "positions must have no gaps");
    if (s->kind == INSN_POST && s->post.time != POST_FLUSH &&
        (s->post.event < 0 || s->post.event >= v->n_event))
        return bad(x, d, i, "its device has no such event");
    for (int k = 0; insn_is_barrier(s) && k < s->merge.n_peer; k++) {
        if (s->merge.peer[k] < 0 || s->merge.peer[k] >= x->n_dev)
            return bad(x, d, i, "a peer of the barrier is no device");
        mine |= s->merge.peer[k] == d;
    }
    return mine ? PL_OK : bad(x, d, i, "the device is no peer of its barrier");
}

/* Allocates the arrays by position. Each position has an instruction, so the
 * number of instructions is enough. */
static pl_status open_order(struct pass *x)
{
    size_t n = 1;

    for (int d = 0; d < x->n_dev; d++)
        n += (size_t)x->p[d].variant[x->variant].n_insn;
    x->n_order = 0;
    x->most_order = n < INT_MAX ? (int)n : INT_MAX;
    x->dev_at = arena_alloc(&x->scratch, n, sizeof *x->dev_at);
    x->order_at = arena_alloc(&x->scratch, n, sizeof *x->order_at);
    if (!x->dev_at || !x->order_at)
        return no_memory(x);
    memset(x->dev_at, -1, n * sizeof *x->dev_at);
    return PL_OK;
}

/* Begins the variant on device d. Called from the last device to the first, so
 * that dev_at keeps the first device of each position. `out` has space for one
 * more instruction per POST: the WAIT that links its queue to the other one. */
static pl_status begin_variant(struct pass *x, int d)
{
    struct device *v = &x->dev[d];
    const struct variant *k = &x->p[d].variant[x->variant];
    size_t n = (size_t)k->n_insn;

    v->in = k->insn;
    v->n_in = k->n_insn;
    v->at = v->n_out = 0;
    v->batched = v->deferred = -1;
    memset(v->posts, 0, sizeof v->posts);
    memset(v->n_unlinked, 0, sizeof v->n_unlinked);
    for (int i = 0; i < v->n_event; i++)
        v->event[i] = (struct event){-1, -1, -1};
    for (int i = 0; i < k->n_insn; i++) {
        PL_TRY(check(x, d, i));
        x->dev_at[v->in[i].order] = d;
        n += v->in[i].kind == INSN_POST;
    }
    if (k->n_insn > 0 && v->in[k->n_insn - 1].order >= x->n_order)
        x->n_order = v->in[k->n_insn - 1].order + 1;
    v->out = arena_alloc(x->a, n, sizeof *v->out);
    return v->out ? PL_OK : no_memory(x);
}

/* Converts the positions in buffers and holds to new ones. */
static void move_lives(const struct pass *x, struct program *p)
{
    const struct variant *k = &p->variant[x->variant];

    for (int i = 0; i < p->n_buffer; i++) {
        struct prog_buffer *b = &p->buffer[i];

        if (b->variant == x->variant && b->born >= 0)
            b->born = b->born < x->n_order ? x->order_at[b->born] : x->order;
    }
    for (int i = 0; i < k->n_hold; i++) {
        struct buffer_hold *h = &k->hold[i];

        h->until = h->until < x->n_order ? x->order_at[h->until] : x->order;
    }
}

static void end_variant(const struct pass *x, int d)
{
    struct variant *k = (struct variant *)&x->p[d].variant[x->variant];

    k->insn = x->dev[d].out;
    k->n_insn = x->dev[d].n_out;
    move_lives(x, &x->p[d]);
}

static pl_status variant(struct pass *x)
{
    x->order = 0;
    x->n_guard = 1;
    PL_TRY(open_order(x));
    for (int d = x->n_dev - 1; d >= 0; d--)
        PL_TRY(begin_variant(x, d));
    for (int o = 0; o < x->n_order; o++) {
        x->order_at[o] = x->order;
        if (x->dev_at[o] >= 0)
            PL_TRY(one(x, x->dev_at[o]));
    }
    for (int d = 0; d < x->n_dev; d++)
        end_variant(x, d);
    return PL_OK;
}

static pl_status begin(struct pass *x, const bool *one_queue)
{
    x->dev = arena_alloc(&x->scratch, (size_t)x->n_dev, sizeof *x->dev);
    if (!x->dev)
        return no_memory(x);
    for (int d = 0; d < x->n_dev; d++) {
        struct device *v = &x->dev[d];

        v->one_queue = one_queue[d];
        v->n_event = x->p[d].n_event;
        v->event =
            arena_alloc(&x->scratch, (size_t)v->n_event + 1, sizeof *v->event);
        if (!v->event)
            return no_memory(x);
    }
    return PL_OK;
}

pl_status events_pass(struct program *p, int n_dev, const bool *one_queue,
                      struct arena *a, pl_err *err)
{
    struct pass x = {.p = p, .n_dev = n_dev, .a = a, .err = err};
    pl_status s = begin(&x, one_queue);

    for (; s == PL_OK && x.variant < p->n_variant; x.variant++)
        s = variant(&x);
    for (int d = 0; s == PL_OK && d < n_dev; d++)
        p[d].n_event = x.dev[d].n_post;
    arena_fini(&x.scratch);
    return s;
}
