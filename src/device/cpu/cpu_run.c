/* A cpu device's threads go through its script together.
 *
 * Threads of a device meet where a step asks for it: a few tell each other, of
 * many the others tell the first one that they have arrived and it tells all to
 * go on. When devices meet, first threads tell one another in between, each
 * through a flag of its own, so two threads, or two devices of one thread, meet
 * in the time one cache line takes to cross. Flags count up, run after run:
 * nothing is ever reset, and a run that failed leaves nothing behind.
 *
 * Between two meetings threads help each other with contractions (cpu_steal.h),
 * and with attention share a token (cpu_attention_template.h).
 * What is taken of whose part is counted step by step, stretch by stretch in
 * one of two sets of counters in turn. Behind a meeting nobody looks any more
 * at the set of the stretch before it: each thread sets its own counters there
 * to 0, and all have done so when they meet again. In the first stretch of a
 * run, before any meeting, they do not help.
 *
 * A single token leaves little to share between contractions: its small steps
 * are the first thread's alone, which neither waits for the others between them
 * nor has them wait.
 *
 * The compute and the copy queue are issued in script order, which no wait can
 * block, since every WAIT names a POST that stands earlier. For the same reason
 * a thread that serves several devices, a cpu and the host on the same core,
 * takes their steps in the one order of all. */
#include "device/cpu/cpu_barriers.h"
#include "device/cpu/cpu_device.h"

enum { MAX_ALL_TO_ALL = 4 }; /* threads that look at each other's flags */

/* One thread of one device in one run. */
struct worker {
    struct device_set *set;
    struct device *dev;
    struct cpu_device *cpu;
    const atomic_bool *failed;
    uint64_t run; /* its number */
    int ith, nth, n_spin;
    uint64_t n_barriers; /* meetings of the device's threads so far */
    int n_helped;        /* steps since the last one that have counters */
    void *scratch;
    const struct insn *insn;
    const unsigned char *how;        /* [n_step] see cpu_barriers.h */
    int n_insn, at;                  /* next step */
    int n_micro;                     /* of this run */
    const struct graph_sizes *sizes; /* [n_micro] */
    int fail;                  /* tests: the device is lost at this step */
    struct device_times spent; /* of the first thread: in this run; busy_s: all
                                  of it, whatever it did */
    double not_compute_s;      /* of that: not computing */
    bool first;                /* of the device's threads: counts */
    bool single;               /* a run of one token */
    bool traces, guarded;
};

static bool await(const struct worker *w, struct device_flag *f,
                  uint64_t target)
{
    return flag_wait(f, target, w->n_spin, w->failed);
}

/* For another device. The clock is looked at by those who wait anyhow. */
static bool await_device(struct worker *w, struct device_flag *f,
                         uint64_t target, bool rings)
{
    double began;
    bool came;

    if (atomic_load_explicit(&f->v, memory_order_acquire) >= target)
        return true;
    began = w->first ? device_now() : 0;
    came = rings ? await(w, f, target)
                 : flag_spin(f, target, w->n_spin, w->failed);
    if (w->first)
        w->not_compute_s += device_now() - began;
    return came;
}

static bool await_all(struct worker *w, const struct insn_wait *all)
{
    for (int i = 0; i < wait_count(all); i++) {
        struct insn_event e = wait_event(all, i);
        struct device *d = device_of(w->set, e.dev);

        if (!await_device(w, &d->event[e.event], w->run,
                          d->desc.ops->wakes_waiters))
            return false;
    }
    return true;
}

/* The first threads of the devices that meet. Who meets does so at the same
 * place of the total order, and each device's steps ascend: whoever has come
 * that far or farther has arrived. */
static bool barrier_peers(struct worker *w, const struct insn *st)
{
    uint64_t here = (w->run << 32) + (uint64_t)st->order + 1;

    device_flag_raise(&w->cpu->met, here);
    for (int i = 0; i < st->merge.n_peer; i++) {
        struct cpu_device *d = cpu_device_of(w->set, st->merge.peer[i]);

        if (d != w->cpu && !await_device(w, &d->met, here, true))
            return false;
    }
    return true;
}

/* The counters, [nth], of the k-th step that threads help with in this stretch
 * or in the next. */
static struct cpu_steal_counter *steal_counters_at(const struct worker *w,
                                                   bool next, int k)
{
    int set = (int)(w->n_barriers & 1) ^ next;

    return w->cpu->taken + (set * CPU_STEAL_INSNS + k) * w->nth;
}

/* The thread's own, for the next stretch. */
static void taken_clear(const struct worker *w, bool next)
{
    for (int k = 0; k < CPU_STEAL_INSNS; k++)
        atomic_store_explicit(&steal_counters_at(w, next, k)[w->ith].n, 0,
                              memory_order_relaxed);
}

/* For the kernel of this step, which all threads share. */
static struct cpu_steal_counter *steal_counters_for(struct worker *w,
                                                    const struct insn *st)
{
    if ((uint32_t)w->n_barriers == 0 || w->n_helped == CPU_STEAL_INSNS ||
        st->kind != INSN_KERNEL ||
        (!kernel_is_contraction(st->kernel.kernel) &&
         !kernel_is_attention(st->kernel.kernel)))
        return NULL;
    return steal_counters_at(w, false, w->n_helped++);
}

/* See meet(). */
static bool barrier_arrive(struct worker *w, const struct insn *st)
{
    struct cpu_device *d = w->cpu;

    if (!st && w->nth <= MAX_ALL_TO_ALL) {
        device_flag_raise(&d->arrived[w->ith], w->n_barriers);
        for (int i = 0; i < w->nth; i++)
            if (i != w->ith && !await(w, &d->arrived[i], w->n_barriers))
                return false;
        return true;
    }
    if (w->ith > 0) {
        device_flag_raise(&d->arrived[w->ith], w->n_barriers);
        return await(w, &d->released, w->n_barriers);
    }
    for (int i = 1; i < w->nth; i++)
        if (!await(w, &d->arrived[i], w->n_barriers))
            return false;
    if (st && !barrier_peers(w, st))
        return false;
    if (w->nth > 1)
        device_flag_raise(&d->released, w->n_barriers);
    return true;
}

/* The threads of the device, and of all that meet in step `st` if there is one.
 * False: the run has failed. */
static bool barrier(struct worker *w, const struct insn *st)
{
    w->n_barriers++;
    w->n_helped = 0;
    if (!barrier_arrive(w, st))
        return false;
    taken_clear(w, true);
    return true;
}

/* A peer's link takes its time. */
static void link_time(const struct worker *w, const struct insn *st)
{
    double t = cpu_image_copy_seconds(&w->cpu->image, st);

    if (t > 0)
        device_sleep(device_now() + t, w->failed);
}

/* A step that touches memory, part ith of nth. */
static void exec_insn(struct worker *w, const struct insn *st, int ith, int nth)
{
    cpu_image_insn(&w->cpu->image, st, w->scratch, ith, nth,
                   nth > 1 ? steal_counters_for(w, st) : NULL);
}

/* As work(), watched. */
static void exec_insn_traced(struct worker *w, const struct insn *st, int ith,
                             int nth)
{
    struct device_set *s = w->set;
    double begin = w->traces ? device_clock(s) : 0;

    if (st->kind == INSN_PULL || st->kind == INSN_PAGES)
        link_time(w, st);
    device_guard_enter(s, w->dev, st);
    exec_insn(w, st, ith, nth);
    device_guard_leave(s);
    if (w->traces)
        device_trace_add(s, w->dev, w->at, begin, device_clock(s));
}

/* As either, by the clock: it is not computing. */
static void work_timed(struct worker *w, const struct insn *st, int nth)
{
    double began = w->first ? device_now() : 0, took;

    if (w->traces || w->guarded || insn_is_transfer(st))
        exec_insn_traced(w, st, w->ith, nth);
    else
        exec_insn(w, st, w->ith, nth);
    if (!w->first)
        return;
    took = device_now() - began;
    device_add_time(&w->spent, st, took);
    w->not_compute_s += took;
}

/* Must the threads meet before a step that they share? */
static bool needs_barrier(const struct worker *w, const struct insn *st,
                          int how)
{
    if (insn_is_barrier(st)) /* devices do, and so their threads */
        return true;
    if (w->single)
        return how & CPU_BARRIER_DECODE;
    return (how & CPU_BARRIER) || st->kind == INSN_POST;
}

/* Whoever must have come before the step has. False: the run has failed. */
static bool sync_before_insn(struct worker *w, const struct insn *st, int how,
                             bool alone)
{
    if (!alone)
        return !needs_barrier(w, st, how) ||
               barrier(w, insn_is_barrier(st) ? st : NULL);
    if ((how & CPU_BARRIER_DECODE) && !barrier(w, NULL))
        return false;
    return !insn_is_barrier(st) || !w->first || barrier_peers(w, st);
}

static bool run_insn(struct worker *w, const struct insn *st)
{
    int how = w->how[w->at];
    bool alone = w->single && (how & CPU_FIRST_THREAD);

    if (!sync_before_insn(w, st, how, alone))
        return false;
    if (alone && !w->first)
        return true;
    if (w->first && (how & CPU_COUNTED))
        cpu_image_count(&w->cpu->image, w->dev, st);
    if (st->kind == INSN_POST) {
        if (w->first)
            device_flag_raise(&w->dev->event[st->event.event], w->run);
        return true;
    }
    if (st->kind == INSN_WAIT)
        return await_all(w, &st->wait);
    if (how & CPU_TIMED)
        work_timed(w, st, alone ? 1 : w->nth);
    else if (w->traces || w->guarded)
        exec_insn_traced(w, st, w->ith, alone ? 1 : w->nth);
    else
        exec_insn(w, st, w->ith, alone ? 1 : w->nth);
    return true;
}

/* The worker's next step of this run, NULL at the end. */
static const struct insn *next(struct worker *w)
{
    while (w->at < w->n_insn && !(w->how[w->at] & CPU_ALWAYS) &&
           !insn_enabled(&w->insn[w->at], w->n_micro, w->sizes))
        w->at++;
    return w->at < w->n_insn ? &w->insn[w->at] : NULL;
}

static bool run_next(struct worker *w, const struct insn *st)
{
    if (w->at == w->fail && w->first) {
        device_fail(w->set, w->dev, w->at, "the device was lost");
        return false;
    }
    if (!run_insn(w, st))
        return false;
    w->at++;
    return true;
}

static void run_interleaved(struct worker *w, int n)
{
    double since = device_now(), now;

    for (int last = 0;;) {
        const struct insn *first = NULL;
        int at = last;

        for (int i = 0; i < n; i++) {
            const struct insn *st = next(&w[i]);

            if (st && (!first || st->order < first->order)) {
                first = st;
                at = i;
            }
        }
        if (!first || at != last) { /* it is another device's time now */
            now = device_now();
            w[last].spent.busy_s += now - since;
            since = now;
            last = at;
        }
        if (!first || !run_next(&w[at], first))
            return;
    }
}

static void run_to_end(struct worker *w)
{
    double began = w->first ? device_now() : 0;
    const struct insn *st;

    while ((st = next(w)) != NULL)
        if (!run_next(w, st))
            break;
    if (w->first)
        w->spent.busy_s = device_now() - began;
}

/* Tells the device what its first thread's time went to. */
static void report_times(const struct worker *w)
{
    struct device_times *x = &w->dev->spent;
    double busy = w->spent.busy_s - w->not_compute_s;

    x->busy_s += busy > 0 ? busy : 0;
    x->reduce_s += w->spent.reduce_s;
    x->copy_s += w->spent.copy_s;
}

/* False: the run has failed. */
static bool init_worker(struct worker *w, const struct backend *b,
                        const struct cpu_thread_role *seat)
{
    const struct cpu_backend *backend = b->own;
    struct device *d = device_of(b->set, seat->dev);
    struct cpu_device *cpu = d->own;
    uint64_t number;
    const struct device_run *run = device_set_current_run(b->set, &number);
    const struct variant *c = device_variant(d, run);

    *w = (struct worker){
        .set = b->set,
        .dev = d,
        .cpu = cpu,
        .failed = device_failed(b->set),
        .run = number,
        .ith = seat->ith,
        .nth = d->desc.n_thread,
        .n_spin = team_spins(backend->team),
        .n_barriers = number << 32,
        .scratch = cpu->scratch + (size_t)seat->ith * cpu->scratch_stride,
        .insn = c->insn,
        .how = cpu->how[run->variant],
        .n_insn = c->n_insn,
        .n_micro = run->n_micro,
        .sizes = run->sizes,
        .fail = d->fail_insn,
        .first = seat->ith == 0,
        .single = c->n_micro == 1 && run->n_micro == 1 &&
                  run->sizes[0].n_tok == 1 && run->sizes[0].n_out <= 1,
        .traces = seat->ith == 0 && device_traces(b->set),
        .guarded = device_guarded(b->set),
    };
    if (d->prog->n_tensor == 0)
        return true;
    taken_clear(w, false);
    taken_clear(w, true);
    if (cpu->ready)
        return true;
    if (w->first)
        cpu_image_resolve(&cpu->image);
    return barrier(w, NULL);
}

void cpu_run(struct backend *b, int thread)
{
    const struct cpu_backend *backend = b->own;
    const struct cpu_seats *m = &backend->seats[thread];
    struct worker w[CPU_SEATS];
    int n = 0;

    for (int i = 0; i < m->n; i++) {
        if (!init_worker(&w[n], b, &m->seat[i]))
            return;
        n += w[n].n_insn > 0;
    }
    if (n > 1)
        run_interleaved(w, n);
    else if (n == 1)
        run_to_end(w);
    for (int i = 0; i < n; i++)
        if (w[i].first)
            report_times(&w[i]);
}
