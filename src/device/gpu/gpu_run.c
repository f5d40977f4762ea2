/* The issuing thread of a GPU: queues the work of a variant's instructions, in
 * order. The GPU's two queues execute it later and in parallel. Fences between
 * the queues and event flags between devices enforce the order that program.h
 * requires.
 *
 * If the driver's queues can wait for an event flag themselves, the thread does
 * not stop at a WAIT (gpu_ahead.c). It waits for a queue to become empty with
 * an eye on the step's failure, not in the driver, where it might sleep for
 * ever after another device failed.
 *
 * A copy from memory that is not mapped occupies the thread for long. So if
 * there are such copies, PULLs, PAGES and WAITs of the copy queue are deferred
 * until the copy queue must do something else, usually a POST. That is late
 * (see "Order" in doc/architecture.md): by then the compute queue has all the
 * work that hides the copies. POSTs are not deferred, so a WAIT is still issued
 * after the POST that it waits for. */

#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_device.h"

enum { LOOKS = 64 }; /* polls of an event flag between two flushes */

/* Fails the run with the driver's error, unless `s` is PL_OK. */
static void report_error(struct gpu_device *x, int step, pl_status s,
                         const pl_err *err)
{
    if (s != PL_OK)
        device_fail(x->set, x->dev, step, err->message);
}

static struct device_flag *flag_of(const struct gpu_device *x,
                                   struct insn_event e)
{
    return &device_of(x->set, e.dev)->event[e.event];
}

static pl_status flush_both(struct gpu_device *x, pl_err *err)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        PL_TRY(x->driver->flush(x->gpu, (enum queue)q, err));
    return PL_OK;
}

static bool has_failed(const struct gpu_device *x)
{
    return atomic_load_explicit(x->failed, memory_order_acquire);
}

static bool is_posted(const struct gpu_device *x, const struct device_flag *f)
{
    return atomic_load_explicit(&f->v, memory_order_acquire) >= x->number;
}

/* Waits until event flag `f` of another device has reached this step's number,
 * while this GPU's queues continue. Returns false if the step has failed, or if
 * the driver fails, whose error is then in *s and *err. */
static bool poll_event(struct gpu_device *x, const struct device_flag *f,
                       double begin, pl_status *s, pl_err *err)
{
    bool marked = false;

    for (int i = 0;; i++) {
        if (is_posted(x, f))
            return !has_failed(x);
        if (i % LOOKS == 0)
            *s = flush_both(x, err);
        if (i % LOOKS == 0 && *s == PL_OK)
            *s = gpu_watch_long(x, begin, &marked, err);
        if (*s != PL_OK || has_failed(x))
            return false;
        if (i < x->n_spin)
            device_relax();
        else
            team_pause(&x->yielding);
    }
}

/* Waits for event `e` on the issuing thread; returns as poll_event() does. Adds
 * the time to x->waited_s. If queues wait for events, their waiting time is
 * unknown. */
static bool wait_event_host(struct gpu_device *x, struct insn_event e,
                            pl_status *s, pl_err *err)
{
    const struct device_flag *f = flag_of(x, e);
    double begin;
    bool came;

    *s = PL_OK;
    if (is_posted(x, f))
        return !has_failed(x);
    begin = device_now();
    came = poll_event(x, f, begin, s, err);
    x->waited_s += device_now() - begin;
    return came;
}

bool gpu_run_finish(struct gpu_device *x, enum queue q, pl_status *s,
                    pl_err *err)
{
    *s = flush_both(x, err);
    if (*s == PL_OK)
        *s = gpu_drain(x, q, err);
    if (*s == PL_OK)
        gpu_return_take_all(x, q);
    return *s == PL_OK;
}

bool gpu_run_return(struct gpu_device *x, pl_status *s, pl_err *err)
{
    *s = PL_OK;
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (gpu_return_is_due(x, (enum queue)q) &&
            !gpu_run_finish(x, (enum queue)q, s, err))
            return false;
    return true;
}

/* ---- events -------------------------------------------------------------- */

static pl_status set_mark(struct gpu_device *x, enum queue q, uint64_t *number,
                          pl_err *err)
{
    *number = ++x->n_mark;
    return x->driver->fence_record(x->gpu, q, (int)(x->n_mark % GPU_RING), err);
}

/* Makes `q` wait for an event of the other queue. If the event's fence was
 * reused, records a new fence, which is later in the other queue but still
 * earlier in program order. */
static pl_status wait_other_queue(struct gpu_device *x, enum queue q, int event,
                                  pl_err *err)
{
    struct gpu_event *e = &x->event[event];

    if (e->mark == 0 || e->queue == q)
        return PL_OK;
    if (x->n_mark - e->mark >= GPU_RING)
        PL_TRY(set_mark(x, e->queue, &e->mark, err));
    return x->driver->fence_wait(x->gpu, q, (int)(e->mark % GPU_RING), err);
}

/* Issues a WAIT, instruction `insn`. Returns false if the step has failed; *s
 * is set if the driver failed. */
static bool issue_wait(struct gpu_device *x, const struct insn *st, int insn,
                       pl_status *s, pl_err *err)
{
    for (int i = 0; i < wait_count(&st->wait); i++) {
        struct insn_event e = wait_event(&st->wait, i);

        *s = PL_OK;
        if (e.dev == x->dev->prog->dev) {
            *s = wait_other_queue(x, st->queue, e.event, err);
        } else if (x->queues_wait) {
            *s = x->driver->wait_word(x->gpu, st->queue, &flag_of(x, e)->v,
                                      x->number, err);
            gpu_ahead_add(x, &flag_of(x, e)->v, false, insn);
        } else if (!wait_event_host(x, e, s, err)) {
            return false;
        }
        if (*s != PL_OK)
            return false;
    }
    return true;
}

static bool issue_post(struct gpu_device *x, const struct insn *st, int insn,
                       pl_status *s, pl_err *err)
{
    struct gpu_event *e = &x->event[st->event.event];
    _Atomic uint64_t *word = &x->dev->event[st->event.event].v;

    *s = PL_OK;
    e->queue = st->queue;
    e->mark = 0;
    if (e->crossed)
        *s = set_mark(x, st->queue, &e->mark, err);
    /* no other device waits for the event, and for this GPU's other queue the
     * fence suffices */
    if (*s == PL_OK && !e->external)
        *s = x->driver->flush(x->gpu, st->queue, err);
    if (*s == PL_OK && !e->external)
        return true;
    if (*s != PL_OK || (!x->posts && !gpu_run_finish(x, st->queue, s, err)) ||
        !gpu_run_return(x, s, err))
        return false;
    if (x->posts) {
        *s = x->driver->signal_word(x->gpu, st->queue, word, x->number, err);
        if (x->queues_wait)
            gpu_ahead_add(x, word, true, insn);
        if (*s == PL_OK)
            *s = x->driver->flush(x->gpu, st->queue, err);
        return *s == PL_OK;
    }
    atomic_store_explicit(word, x->number, memory_order_release);
    return true;
}

/* Counts an event like other instructions if the queues wait, because it is a
 * command of a queue then. */
static bool issue_event(struct gpu_device *x, const struct insn *st, int i,
                        pl_status *s, pl_err *err)
{
    if (!(st->kind == INSN_WAIT ? issue_wait : issue_post)(x, st, i, s, err))
        return false;
    if (x->queues_wait)
        *s = gpu_heartbeat_issue(x, st->queue, i, err);
    return *s == PL_OK;
}

/* ---- instructions -------------------------------------------------------- */

/* Executes an instruction while nothing else is in flight, so that its time can
 * be measured and its memory accesses guarded. */
static bool issue_sync(struct gpu_device *x, const struct insn *st, int i,
                       pl_status *s, pl_err *err)
{
    double begin = device_traces(x->set) ? device_clock(x->set) : 0;
    bool ok;

    device_guard_enter(x->set, x->dev, st);
    *s = gpu_transfer(x, st, i, err);
    ok = *s == PL_OK && gpu_run_finish(x, st->queue, s, err);
    device_guard_leave(x->set);
    if (ok && device_traces(x->set))
        device_trace_add(x->set, x->dev, i, begin, device_clock(x->set));
    return ok;
}

/* Issues an instruction that is not an event, or the graph that begins with
 * instruction i. */
static bool issue_work(struct gpu_device *x, const struct insn *st, int i,
                       bool in_graph, pl_status *s, pl_err *err)
{
    const int *first = x->image.first;

    if (x->slow)
        return issue_sync(x, st, i, s, err);
    /* an instruction that was fused into another is nothing to a queue */
    if (!in_graph && first[i] == first[i + 1] &&
        gpu_carry_launches_all(x, st, i))
        return true;
    if (!in_graph)
        *s = gpu_transfer(x, st, i, err);
    if (*s == PL_OK)
        *s = gpu_heartbeat_issue(x, st->queue, i, err);
    return *s == PL_OK;
}

static bool issue(struct gpu_device *x, const struct insn *st, int i,
                  pl_status *s, pl_err *err)
{
    bool is_in = false, is_first = false;

    if (!x->slow)
        *s = gpu_graph_insn(x, i, &is_in, &is_first, err);
    if (*s != PL_OK)
        return false;
    if (insn_is_event(st) && !is_in)
        return issue_event(x, st, i, s, err);
    if ((!is_in || is_first) && !issue_work(x, st, i, is_in, s, err))
        return false;
    if (insn_is_event(st))
        return true;
    /* count_pages() counts PAGES after the step, when the token table is on the
     * host */
    if (st->kind != INSN_PAGES)
        gpu_image_count(&x->image, x->dev, st, NULL);
    return true;
}

/* Issues instruction i now. Returns false if the step has failed. */
static bool take_now(struct gpu_device *x, const struct insn *st, int i)
{
    pl_err err = {0};
    pl_status s = PL_OK;

    if (i == x->dev->fail_insn) {
        device_fail(x->set, x->dev, i, "the device was lost");
        return false;
    }
    if (has_failed(x))
        return false;
    x->at_insn = i + 1;
    x->used[st->queue] = true;
    if (issue(x, st, i, &s, &err))
        return true;
    report_error(x, i, s, &err);
    return false;
}

/* Issues the deferred instructions. Returns false if the step has failed. */
static bool issue_deferred(struct gpu_device *x, const struct variant *c)
{
    bool on = true;

    for (int k = 0; k < x->n_later && on; k++)
        on = take_now(x, &c->insn[x->deferred[k]], x->deferred[k]);
    x->n_later = 0;
    return on;
}

static bool is_deferred(const struct gpu_device *x, const struct insn *st)
{
    return x->stages && !x->slow && st->queue == QUEUE_COPY &&
           (st->kind == INSN_PULL || st->kind == INSN_PAGES ||
            st->kind == INSN_WAIT);
}

static bool issue_or_defer(struct gpu_device *x, const struct variant *c, int i)
{
    const struct insn *st = &c->insn[i];

    if (is_deferred(x, st)) {
        x->deferred[x->n_later++] = i;
        return true;
    }
    if (st->queue == QUEUE_COPY && !issue_deferred(x, c))
        return false;
    return take_now(x, st, i);
}

static void count_pages(struct gpu_device *x, const struct variant *c)
{
    for (int i = 0; i < c->n_insn; i++) {
        const struct insn *st = &c->insn[i];

        if (st->kind == INSN_PAGES &&
            insn_enabled(st, x->run->n_micro, x->run->sizes))
            gpu_image_count(&x->image, x->dev, st, gpu_table_of(x, st->micro));
    }
}

/* Waits until the queues that were used are empty. Returns false if the step
 * has failed. */
static bool end(struct gpu_device *x)
{
    for (int q = 0; q < QUEUE_COUNT; q++) {
        pl_err err = {0};
        pl_status s;

        if (x->used[q] && !gpu_run_finish(x, (enum queue)q, &s, &err)) {
            report_error(x, -1, s, &err);
            return false;
        }
    }
    return true;
}

/* Ends a failed step so that, unless the GPU is lost, no queued work accesses
 * memory later. Queues that wait for events which will never be posted are
 * released. */
static void abort_run(struct gpu_device *x)
{
    gpu_ahead_release(x);
    x->n_later = 0;
    for (int q = 0; q < QUEUE_COUNT; q++)
        gpu_drain(x, (enum queue)q, NULL);
    gpu_return_forget(x);
    gpu_image_forget(&x->image);
}

static bool has_mem_ops(const struct gpu_device *x)
{
    return x->driver->signal_word &&
           (!x->driver->has_mem_ops || x->driver->has_mem_ops(x->gpu));
}

static void mark_external_events(struct gpu_device *x,
                                 const struct insn_wait *w)
{
    for (int j = 0; j < wait_count(w); j++)
        if (wait_event(w, j).dev == x->dev->prog->dev)
            x->event[wait_event(w, j).event].external = true;
}

/* Sets `external` for those of the device's events that other devices wait
 * for. */
static void find_external_waiters(struct gpu_device *x)
{
    for (int d = 0; d < device_set_size(x->set); d++) {
        const struct program *p = device_of(x->set, d)->prog;

        for (int i = 0; i < p->n_variant && d != x->dev->prog->dev; i++)
            for (int k = 0; k < p->variant[i].n_insn; k++)
                if (p->variant[i].insn[k].kind == INSN_WAIT)
                    mark_external_events(x, &p->variant[i].insn[k].wait);
    }
}

static bool begin(struct gpu_device *x)
{
    pl_err err = {0};

    if (gpu_check_alive(x, &err) != PL_OK) {
        device_fail(x->set, x->dev, -1, err.message);
        return false;
    }
    gpu_watch_begin(x);
    if (!x->looked) {
        gpu_reach_others(x);
        find_external_waiters(x);
    }
    gpu_ahead_begin(x);
    memset(x->used, 0, sizeof x->used);
    x->slow = device_traces(x->set) || device_guarded(x->set);
    x->posts = !x->slow && x->maps_events && has_mem_ops(x);
    x->queues_wait = x->posts && gpu_ahead_may(x);
    for (int i = 0; i < x->dev->prog->n_event; i++)
        x->event[i].mark = 0;
    x->image.by_insn = x->slow;
    if (gpu_image_prepare(&x->image, x->dev, x->run)) {
        gpu_graph_begin(x);
        return true;
    }
    device_fail(x->set, x->dev, -1, "no memory for its launches");
    return false;
}

static void run_variant(struct gpu_device *x)
{
    const struct variant *c = device_variant(x->dev, x->run);
    double began = device_now();
    bool on = begin(x);

    for (int i = 0; i < c->n_insn && on; i++)
        if (insn_enabled(&c->insn[i], x->run->n_micro, x->run->sizes))
            on = issue_or_defer(x, c, i);
    on = on && issue_deferred(x, c);
    if (on && end(x))
        count_pages(x, c);
    else
        abort_run(x);
    x->dev->counts.spent.busy_s += device_now() - began - x->waited_s;
    x->waited_s = 0;
    x->run = NULL;
}

void gpu_run(struct gpu_device *x)
{
    pl_err err = {0};

    if (x->driver->enter && x->driver->enter(x->gpu, &err) != PL_OK) {
        device_fail(x->set, x->dev, -1, err.message);
        return;
    }
    run_variant(x);
    if (x->driver->leave)
        x->driver->leave(x->gpu);
}
