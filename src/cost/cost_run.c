/* Simulates the programs. Instructions are processed in the total order of all
 * devices. An instruction begins when its queue and its threads are free and,
 * at a barrier, all peers have reached it. It ends after its cost in seconds
 * (cost_insn_s). Queues are first in, first out, and each wait refers to an
 * earlier post. So a single pass suffices, because the end of everything that
 * an instruction waits for is already known.
 *
 * A machine's devices share its network: what they push to other machines is
 * sent in the total order. Other contention is not modelled. Copies of several
 * devices over one link do not slow each other down, and neither do reads of
 * the same memory by several devices. */
#include "cost/cost.h"

#include "base/err.h"
#include "plan/microbatch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Time in which an instruction is executed, in seconds from the step's start.
 * begin_s < 0 if it is not executed or takes no time. */
struct span {
    double begin_s, end_s;
};

struct timeline {
    const struct cost_machine *m;
    int variant;
    double (*queue)[QUEUE_COUNT];  /* [n_dev] time in seconds at which each
                                      queue of a device is free */
    double (*pushed)[QUEUE_COUNT]; /* [n_dev] time in seconds at which all data
                                      that a queue pushed has arrived */
    double *network; /* [machines] time in seconds at which a machine's network
                        is free */
    double *thread;
    double **event; /* [n_dev][n_event] time in seconds at which the event is
                       posted */
    int *next;      /* [n_dev] index of the device's next instruction */
    /* [n_dev][n_insn] time span of each instruction; NULL if the caller does
     * not need the devices' times */
    struct span **span;
    /* [n_dev] position in the total order of the barrier that a device takes
     * part in next, and the time at which all its peers have reached it. The
     * first peer that is processed sets it for all peers. */
    struct gate {
        int order;
        double begin_s;
    } * gate;
    /* a heap of the devices with instructions left, by the order of their next
     * instruction */
    struct turn {
        int order, dev;
    } * heap;
    int n_heap;
};

static const struct variant *variant_of(const struct timeline *w, int dev)
{
    return &w->m->prog[dev].variant[w->variant];
}

/* ---- visiting instructions in the total order -------------------------- */

static bool before(struct turn a, struct turn b)
{
    return a.order != b.order ? a.order < b.order : a.dev < b.dev;
}

static void sift_down(struct timeline *w, int i)
{
    struct turn t = w->heap[i];

    for (int child; (child = 2 * i + 1) < w->n_heap; i = child) {
        if (child + 1 < w->n_heap && before(w->heap[child + 1], w->heap[child]))
            child++;
        if (!before(w->heap[child], t))
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = t;
}

static void heap_build(struct timeline *w)
{
    for (int d = 0; d < w->m->n_dev; d++)
        if (variant_of(w, d)->n_insn > 0)
            w->heap[w->n_heap++] =
                (struct turn){variant_of(w, d)->insn[0].order, d};
    for (int i = w->n_heap / 2; i-- > 0;)
        sift_down(w, i);
}

/* Advances the device on top of the heap to its next instruction and restores
 * the heap. */
static void advance(struct timeline *w)
{
    int dev = w->heap[0].dev;
    const struct variant *x = variant_of(w, dev);

    if (++w->next[dev] == x->n_insn)
        w->heap[0] = w->heap[--w->n_heap];
    else
        w->heap[0].order = x->insn[w->next[dev]].order;
    sift_down(w, 0);
}

/* ---- times at which queues and threads are free ------------------------ */

static int queue_of(const struct timeline *w, int dev, const struct insn *s)
{
    return w->m->rates[dev].one_queue ? QUEUE_COMPUTE : (int)s->queue;
}

/* Sets *thread to the array of times, in seconds, at which the worker threads
 * of the queue are free. Returns the number of threads. It is 0 for a copy
 * queue, and for a device that shares its threads with no other. */
static int threads(const struct timeline *w, int dev, int queue,
                   double **thread)
{
    if (!w->m->thread0 || queue != QUEUE_COMPUTE)
        return 0;
    *thread = w->thread + w->m->thread0[dev];
    return w->m->n_thread[dev];
}

static double ready(const struct timeline *w, int dev, int queue)
{
    double t = w->queue[dev][queue], *thread;

    for (int n = threads(w, dev, queue, &thread); n-- > 0;)
        t = fmax(t, thread[n]);
    return t;
}

static void busy_until(struct timeline *w, int dev, int queue, double t)
{
    double *thread;

    w->queue[dev][queue] = t;
    for (int n = threads(w, dev, queue, &thread); n-- > 0;)
        thread[n] = t;
}

/* Returns the time in seconds at which all peers have reached the barrier of
 * instruction s. It is computed for the first peer in the total order, when all
 * earlier instructions of all peers have been processed. */
static double barrier_time_s(struct timeline *w, int dev, const struct insn *s)
{
    double t = ready(w, dev, QUEUE_COMPUTE);

    if (w->gate[dev].order == s->order)
        return fmax(t, w->gate[dev].begin_s);
    for (int i = 0; i < s->merge.n_peer; i++)
        t = fmax(t, ready(w, s->merge.peer[i], QUEUE_COMPUTE));
    for (int i = 0; i < s->merge.n_peer; i++)
        w->gate[s->merge.peer[i]] = (struct gate){s->order, t};
    return t;
}

/* Returns the time at which the data of instruction s has arrived, which the
 * device executes from `begin` to `end`. */
static double arrival_s(struct timeline *w, int dev, const struct insn *s,
                        const struct cost_micro *z, double begin, double end)
{
    double network = cost_network_s(w->m, dev, s, z);
    double *free_at = &w->network[w->m->rates[dev].machine];

    if (network > 0) {
        *free_at = fmax(*free_at, begin) + network;
        end = fmax(end, *free_at);
    }
    return end + cost_delivery_s(w->m, dev, s);
}

static void simulate_insn(struct timeline *w, int dev, const struct insn *s,
                          const struct cost_micro *z)
{
    const struct cost_machine *m = w->m;
    int queue = queue_of(w, dev, s), at = w->next[dev];
    double begin, end;

    if (s->kind == INSN_POST) {
        w->event[dev][s->event.event] =
            fmax(w->queue[dev][queue], w->pushed[dev][queue]);
        return;
    }
    if (s->kind == INSN_WAIT) {
        begin = ready(w, dev, queue);
        for (int i = 0; i < wait_count(&s->wait); i++) {
            struct insn_event e = wait_event(&s->wait, i);

            begin = fmax(begin, w->event[e.dev][e.event]);
        }
        busy_until(w, dev, queue, begin);
        return;
    }
    begin =
        insn_is_barrier(s) ? barrier_time_s(w, dev, s) : ready(w, dev, queue);
    end = begin + cost_insn_s(m, dev, s, z);
    busy_until(w, dev, queue, end);
    w->pushed[dev][queue] =
        fmax(w->pushed[dev][queue], arrival_s(w, dev, s, z, begin, end));
    if (w->span)
        w->span[dev][at] = (struct span){begin, end};
    if (m->seen)
        m->seen(m->user, &(struct device_timing){dev, at, begin, end});
}

/* ---- seconds that each device spends on an activity -------------------- */

/* Returns the index, at least `i`, of the next instruction of a queue that took
 * time. Returns n_insn if there is none. */
static int next_span(const struct timeline *w, int dev, int queue, int i)
{
    const struct variant *x = variant_of(w, dev);

    while (i < x->n_insn && (w->span[dev][i].begin_s < 0 ||
                             queue_of(w, dev, &x->insn[i]) != queue))
        i++;
    return i;
}

static void account(const struct timeline *w, int dev, double seconds,
                    struct cost_use *u)
{
    const struct variant *x = variant_of(w, dev);
    const struct span *a = w->span[dev];
    double both = 0;

    *u = (struct cost_use){0};
    for (int i = 0; i < x->n_insn; i++) {
        const struct insn *s = &x->insn[i];
        if (a[i].begin_s >= 0)
            *(insn_is_group_copy(s)                          ? &u->copy_s
              : insn_is_transfer(s) || insn_is_collective(s) ? &u->collective_s
                                                             : &u->busy_s) +=
                a[i].end_s - a[i].begin_s;
    }
    for (int i = next_span(w, dev, QUEUE_COMPUTE, 0),
             k = next_span(w, dev, QUEUE_COPY, 0);
         i < x->n_insn && k < x->n_insn;) {
        double t =
            fmin(a[i].end_s, a[k].end_s) - fmax(a[i].begin_s, a[k].begin_s);

        both += fmax(t, 0);
        u->hidden_s += insn_is_group_copy(&x->insn[k]) ? fmax(t, 0) : 0;
        if (a[i].end_s < a[k].end_s)
            i = next_span(w, dev, QUEUE_COMPUTE, i + 1);
        else
            k = next_span(w, dev, QUEUE_COPY, k + 1);
    }
    u->idle_s =
        fmax(0, seconds - (u->busy_s + u->collective_s + u->copy_s - both));
}

/* ---- assignment of threads to devices ----------------------------------- */

static bool on_cores_of(const struct device_desc *a,
                        const struct device_desc *b)
{
    for (int i = 0; i < a->n_core; i++)
        for (int k = 0; k < b->n_core; k++)
            if (a->core[i] == b->core[k])
                return true;
    return false;
}

void cost_threads(const struct device_list *l, int *thread0, int *n_thread)
{
    int n = 0;

    for (int d = 0; d < l->n; d++) {
        const struct device_desc *x = &l->dev[d];

        thread0[d] = n;
        n_thread[d] = x->on_cores && !x->host ? x->n_thread : 0;
        n += n_thread[d];
    }
    /* A host device gets the worker threads of all CPU devices on its cores. */
    for (int d = 0; d < l->n; d++) {
        int first = n, end = 0;

        for (int c = 0; l->dev[d].host && c < l->n; c++) {
            if (n_thread[c] == 0 || l->dev[c].host ||
                l->dev[c].machine != l->dev[d].machine ||
                !on_cores_of(&l->dev[d], &l->dev[c]))
                continue;
            first = thread0[c] < first ? thread0[c] : first;
            end = thread0[c] + n_thread[c];
        }
        if (first < end) {
            thread0[d] = first;
            n_thread[d] = end - first;
        }
    }
}

/* ---- simulation of a step ----------------------------------------------- */

static void end(struct timeline *w)
{
    free(w->queue);
    free(w->pushed);
    free(w->network);
    free(w->thread);
    if (w->event)
        free(w->event[0]);
    free(w->event);
    free(w->next);
    if (w->span)
        free(w->span[0]);
    free(w->span);
    free(w->gate);
    free(w->heap);
}

static pl_status begin(struct timeline *w, bool use, pl_err *err)
{
    const struct cost_machine *m = w->m;
    size_t n_dev = (size_t)m->n_dev + 1, n_thread = 0, n_event = 0, n_step = 0;
    size_t n_machine = 1;

    for (int d = 0; d < m->n_dev; d++) {
        if ((size_t)m->rates[d].machine >= n_machine)
            n_machine = (size_t)m->rates[d].machine + 1;
        if (m->thread0 && (size_t)(m->thread0[d] + m->n_thread[d]) > n_thread)
            n_thread = (size_t)(m->thread0[d] + m->n_thread[d]);
        n_event += (size_t)m->prog[d].n_event;
        n_step += (size_t)variant_of(w, d)->n_insn;
    }
    w->queue = calloc(n_dev, sizeof *w->queue);
    w->pushed = calloc(n_dev, sizeof *w->pushed);
    w->network = calloc(n_machine, sizeof *w->network);
    w->thread = calloc(n_thread + 1, sizeof *w->thread);
    w->event = calloc(n_dev, sizeof *w->event);
    w->next = calloc(n_dev, sizeof *w->next);
    w->gate = malloc(n_dev * sizeof *w->gate);
    w->heap = malloc(n_dev * sizeof *w->heap);
    if (w->event)
        w->event[0] = calloc(n_event + 1, sizeof **w->event);
    if (use)
        w->span = calloc(n_dev, sizeof *w->span);
    if (w->span)
        w->span[0] = malloc((n_step + 1) * sizeof **w->span);
    if (!w->queue || !w->pushed || !w->network || !w->thread || !w->event ||
        !w->event[0] || !w->next || !w->gate || !w->heap ||
        (use && (!w->span || !w->span[0])))
        return err_no_memory(err, "an estimate");
    for (size_t i = 0; use && i < n_step; i++)
        w->span[0][i].begin_s = -1;
    for (int d = 0; d < m->n_dev; d++) {
        if (d > 0)
            w->event[d] = w->event[d - 1] + m->prog[d - 1].n_event;
        if (d > 0 && use)
            w->span[d] = w->span[d - 1] + variant_of(w, d - 1)->n_insn;
        w->gate[d].order = -1;
    }
    return PL_OK;
}

pl_status cost_run(const struct cost_machine *m, int variant, int n_micro,
                   const struct cost_micro *z, struct cost_use *use,
                   double *seconds, pl_err *err)
{
    struct timeline w = {.m = m, .variant = variant};
    pl_status s;

    *seconds = 0;
    for (int d = 0; d < m->n_dev; d++)
        if (variant < 0 || variant >= m->prog[d].n_variant)
            return err_set(err, PL_BAD_ARGUMENT,
                           "variant %d of the programs, which have %d", variant,
                           m->prog[d].n_variant);
    s = begin(&w, use != NULL, err);
    if (s != PL_OK)
        goto done;
    heap_build(&w);
    while (w.n_heap > 0) {
        int dev = w.heap[0].dev;
        const struct insn *x = &variant_of(&w, dev)->insn[w.next[dev]];

        if (x->micro < n_micro &&
            (x->max_rows == 0 || insn_predicate_holds(x, &z[x->micro].sizes)))
            simulate_insn(&w, dev, x, &z[x->micro]);
        advance(&w);
    }
    for (int d = 0; d < m->n_dev; d++)
        if (m->prog[d].active)
            /* the step ends when all pushed data has arrived */
            for (int q = 0; q < QUEUE_COUNT; q++)
                *seconds = fmax(*seconds, fmax(w.queue[d][q], w.pushed[d][q]));
    for (int d = 0; use && d < m->n_dev; d++)
        account(&w, d, *seconds, &use[d]);
done:
    end(&w);
    return s;
}

static void add_use(struct cost_use *a, const struct cost_use *b)
{
    a->busy_s += b->busy_s;
    a->collective_s += b->collective_s;
    a->copy_s += b->copy_s;
    a->hidden_s += b->hidden_s;
    a->idle_s += b->idle_s;
}

/* Sets *seconds to the duration of a step of one micro-batch, with the fastest
 * variant for a single micro-batch. Variants after the first are faster only
 * for several tokens. If u is not NULL, it has 2 * n_dev entries; the first
 * half is set to the times of the devices, the second half is scratch
 * memory. */
static pl_status best_single_run(const struct cost_machine *m,
                                 const struct cost_micro *z, struct cost_use *u,
                                 double *seconds, pl_err *err)
{
    const struct program *p = m->prog;
    int n_variant = z->sizes.n_tok > 1 ? p->n_variant : 1;
    struct cost_use *now = u ? u + m->n_dev : NULL;

    *seconds = INFINITY;
    for (int i = 0; i < n_variant; i++) {
        double t;

        if (p->variant[i].n_micro > 1)
            continue;
        PL_TRY(cost_run(m, i, 1, z, now, &t, err));
        if (t >= *seconds)
            continue;
        *seconds = t;
        if (u)
            memcpy(u, now, (size_t)m->n_dev * sizeof *u);
    }
    return PL_OK;
}

/* Returns the index of the pipelined variant, or -1 if there is none. Sets
 * *n_micro to the number of its micro-batches, or to 1. */
static int find_pipeline(const struct program *p, int *n_micro)
{
    for (int i = 0; i < p->n_variant; i++)
        if (p->variant[i].n_micro > 1) {
            *n_micro = p->variant[i].n_micro;
            return i;
        }
    *n_micro = 1;
    return -1;
}

pl_status cost_tokens(const struct cost_machine *m, int64_t n_tok,
                      int64_t n_past, struct cost_use *use, double *seconds,
                      pl_err *err)
{
    const struct program *p = m->prog;
    int n_micro, pipeline = find_pipeline(p, &n_micro);
    struct cost_use *u = NULL;
    struct cost_micro z[PROG_MAX_MICRO];
    pl_status s = PL_OK;

    *seconds = 0;
    if (use && !(u = malloc((2 * (size_t)m->n_dev + 1) * sizeof *u)))
        return err_no_memory(err, "an estimate");
    for (int d = 0; use && d < m->n_dev; d++)
        use[d] = (struct cost_use){0};
    while (n_tok > 0 && s == PL_OK) {
        int64_t most = microbatch_tokens(n_tok, p->max.n_tok, n_micro);
        double t = 0;
        int n = 0;

        for (; n < n_micro && n_tok > 0; n++) {
            int64_t k = n_tok < most ? n_tok : most;

            z[n] =
                (struct cost_micro){graph_sizes_of(&p->max, k, 0, 1), n_past};
            n_tok -= k;
            n_past += k;
        }
        z[n - 1].sizes.n_out = n_tok == 0;
        s = n > 1 ? cost_run(m, pipeline, n, z, u, &t, err)
                  : best_single_run(m, z, u, &t, err);
        *seconds += t;
        for (int d = 0; use && d < m->n_dev && s == PL_OK; d++)
            add_use(&use[d], &u[d]);
    }
    free(u);
    return s;
}
