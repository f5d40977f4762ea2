/* Executes a step on cpu devices: all threads of a device execute the
 * instructions of its variant together.
 *
 * Barriers. The threads of a device synchronize where an instruction requires
 * it. At most MAX_ALL_TO_ALL threads signal each other directly. With more,
 * each signals its arrival to the first thread, which then releases all. If
 * several devices synchronize, their first threads signal one another before
 * they release the others. Each thread has a flag of its own, so that two
 * threads, or two devices of one thread each, synchronize in the time that a
 * cache line takes between their cores. Flags count up from step to step and
 * are never reset, so a failed step leaves nothing to clean up.
 *
 * Work stealing. Between two barriers threads help each other with matrix
 * products (cpu_steal.h), and divide the spans of attention
 * (cpu_attention_template.h). Counters record, per instruction, how much of
 * each thread's part has been taken. There are two sets of counters, used
 * alternately between barriers. After a barrier no thread reads the set used
 * before it, so each thread then clears its own counters in that set; the next
 * barrier guarantees that all have done so. Before the first barrier of a step
 * threads do not help each other.
 *
 * Small instructions. In a step of a single token, the instructions between
 * matrix products are too small to divide. The first thread executes them
 * alone; it does not wait for the other threads between them, nor do they wait
 * for it.
 *
 * Deadlocks. Instructions of the compute and the copy queue are executed in the
 * order of the variant. A WAIT cannot deadlock, because the POST that it waits
 * for is earlier in the total order of all instructions. A thread that serves
 * several devices, a cpu device and the host on the same core, executes their
 * instructions in this total order, for the same reason. */
#include "device/cpu/cpu_barriers.h"
#include "device/cpu/cpu_device.h"

enum { MAX_ALL_TO_ALL = 4 }; /* maximum threads that read each other's flags */

/* The state of one thread of one device in a step. */
struct worker {
    struct device_set *set;
    struct device *dev;
    struct cpu_device *cpu;
    const atomic_bool *failed;
    uint64_t run; /* number of the step */
    int ith, nth, n_spin;
    uint64_t n_barriers; /* number of barriers of the device's threads so far */
    int n_helped; /* kernels since the last barrier that use steal counters */
    void *scratch;
    const struct insn *insn;
    const unsigned char *how;        /* [n_insn] flags; see cpu_barriers.h */
    int n_insn, at;                  /* at: index of the next instruction */
    int n_micro;                     /* number of micro-batches of this step */
    const struct graph_sizes *sizes; /* [n_micro] */
    int fail; /* for tests: index of an instruction at which the device fails;
                 -1 for none */
    /* Times of the first thread in this step, in seconds. busy_s is the whole
     * time of the step, including waits. */
    struct device_times spent;
    double not_compute_s; /* part of busy_s that is not computing */
    bool first;           /* the device's thread 0, which reports the times */
    bool single;          /* the step has one token and at most one output */
    bool traces, guarded;
};

static bool await(const struct worker *w, struct device_flag *f,
                  uint64_t target)
{
    return flag_wait(f, target, w->n_spin, w->failed);
}

/* Waits until flag f of another device has reached `target`. If `rings`, this
 * thread may sleep, because the other device wakes waiters; otherwise it spins.
 * Reads the clock only if it has to wait. Returns false if the step has
 * failed. */
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

/* Barrier between the first threads of the devices in `st`. The barrier has the
 * same position in the total order on all devices, and each device executes its
 * instructions in that order. So a peer has arrived when its position is at
 * least ours. Returns false if the step has failed. */
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

/* Returns the counters [nth] of the k-th instruction, counted from the last
 * barrier, in which threads steal work. If `next`, counted from the next
 * barrier. */
static struct cpu_steal_counter *steal_counters_at(const struct worker *w,
                                                   bool next, int k)
{
    int set = (int)(w->n_barriers & 1) ^ next;

    return w->cpu->taken + (set * CPU_STEAL_INSNS + k) * w->nth;
}

/* Clears the thread's own steal counters in the set that is used since the last
 * barrier, or, if `next`, will be used after the next one. */
static void taken_clear(const struct worker *w, bool next)
{
    for (int k = 0; k < CPU_STEAL_INSNS; k++)
        atomic_store_explicit(&steal_counters_at(w, next, k)[w->ith].n, 0,
                              memory_order_relaxed);
}

/* Returns the counters [nth] for the kernel of this instruction, or NULL if
 * threads do not steal work in it. */
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

/* Signals the thread's arrival at a barrier and waits for all others; see
 * barrier(). */
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

/* Synchronizes the threads of the device. If `st` is not NULL, also
 * synchronizes with the other devices that `st` names. Returns false if the
 * step has failed. */
static bool barrier(struct worker *w, const struct insn *st)
{
    w->n_barriers++;
    w->n_helped = 0;
    if (!barrier_arrive(w, st))
        return false;
    taken_clear(w, true);
    return true;
}

/* Sleeps for the time that the instruction's transfer takes on a simulated
 * link. */
static void link_time(const struct worker *w, const struct insn *st)
{
    double t = cpu_image_copy_seconds(&w->cpu->image, st);

    if (t > 0)
        device_sleep(device_now() + t, w->failed);
}

/* Executes part ith of nth of a kernel, a collective or a transfer. */
static void exec_insn(struct worker *w, const struct insn *st, int ith, int nth)
{
    cpu_image_insn(&w->cpu->image, st, w->scratch, ith, nth,
                   nth > 1 ? steal_counters_for(w, st) : NULL);
}

/* Like exec_insn(), but also sleeps for simulated links, enters the memory
 * guard and records a trace entry, as far as these are enabled. */
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

/* Executes this thread's part of an instruction that is timed, with tracing if
 * needed. On the first thread, adds its time to not_compute_s. */
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

/* Returns true if the threads must synchronize before an instruction that they
 * execute together. `how` are its flags. */
static bool needs_barrier(const struct worker *w, const struct insn *st,
                          int how)
{
    /* All threads of the devices synchronize in the instruction. */
    if (insn_is_barrier(st))
        return true;
    if (w->single)
        return how & CPU_BARRIER_DECODE;
    return (how & CPU_BARRIER) || st->kind == INSN_POST;
}

/* Waits for the threads and devices that must arrive before the instruction.
 * `alone` means that only the first thread executes it. Returns false if the
 * step has failed. */
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

/* Returns the worker's next instruction of this step, or NULL at the end. */
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
        /* The thread changes to another device, or ends. */
        if (!first || at != last) {
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

/* Adds the worker's times, those of the device's first thread, to the device's
 * counters. */
static void report_times(const struct worker *w)
{
    struct device_times *x = &w->dev->spent;
    double busy = w->spent.busy_s - w->not_compute_s;

    x->busy_s += busy > 0 ? busy : 0;
    x->reduce_s += w->spent.reduce_s;
    x->copy_s += w->spent.copy_s;
}

/* Initializes a worker for the role `role` in the current step, and computes
 * the device's sizes if they have changed. Returns false if the step has
 * failed. */
static bool init_worker(struct worker *w, const struct backend *b,
                        const struct cpu_thread_role *role)
{
    const struct cpu_backend *backend = b->own;
    struct device *d = device_of(b->set, role->dev);
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
        .ith = role->ith,
        .nth = d->desc.n_thread,
        .n_spin = team_spins(backend->team),
        .n_barriers = number << 32,
        .scratch = cpu->scratch + (size_t)role->ith * cpu->scratch_stride,
        .insn = c->insn,
        .how = cpu->how[run->variant],
        .n_insn = c->n_insn,
        .n_micro = run->n_micro,
        .sizes = run->sizes,
        .fail = d->fail_insn,
        .first = role->ith == 0,
        .single = c->n_micro == 1 && run->n_micro == 1 &&
                  run->sizes[0].n_tok == 1 && run->sizes[0].n_out <= 1,
        .traces = role->ith == 0 && device_traces(b->set),
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
    const struct cpu_thread_roles *m = &backend->roles[thread];
    struct worker w[CPU_MAX_ROLES];
    int n = 0;

    for (int i = 0; i < m->n; i++) {
        if (!init_worker(&w[n], b, &m->role[i]))
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
