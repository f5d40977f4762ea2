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

/* If a device has at most this number of threads, each waits at a barrier for
 * the flags of all others. With more, the first thread waits for all and then
 * releases the others. */
enum { MAX_ALL_TO_ALL = 4 };

/* The state of one thread of one device while it executes a step. */
struct worker {
    struct device_set *set;
    struct device *dev;
    struct cpu_device *cpu;
    struct backend *remote; /* of the devices on other machines; may be NULL */
    const atomic_bool *failed;
    /* number of the current step; a posted event is raised to it */
    uint64_t run;
    int ith, nth, n_spin;
    /* number of barriers of this device's threads in this step, in the low 32
     * bits; the step's number is above them */
    uint64_t n_barriers;
    /* number of kernels since the last barrier in which threads may steal
     * work */
    int n_helped;
    void *scratch;
    const struct insn *insn;
    /* [n_insn]: the CPU_... flags of each instruction of the variant
     * (cpu_barriers.h) */
    const unsigned char *how;
    /* number of instructions in the variant, and index of the next one */
    int n_insn, at;
    int n_micro; /* number of micro-batches of this step */
    /* [n_micro]: number of tokens, outputs and sequences of each micro-batch */
    const struct graph_sizes *sizes;
    /* for tests: index of the instruction at which the device pretends to fail;
     * -1 for none */
    int fail;
    /* Times in this step, in seconds, that the device's first thread measures.
     * busy_s is the whole time of the step, including waits. */
    struct device_times spent;
    /* part of busy_s, in seconds, in which the thread waited for other devices
     * or executed collectives and transfers */
    double not_compute_s;
    /* this is the device's thread 0, which measures and reports the times */
    bool first;
    /* the step has one micro-batch with one token and at most one row of
     * logits */
    bool single;
    bool traces, guarded;
};

static bool await(const struct worker *w, struct device_flag *f,
                  uint64_t target)
{
    return flag_wait(f, target, w->n_spin, w->failed);
}

/* Waits until a device on another machine has raised its flag f to `target`.
 * Carries messages meanwhile, which is faster than to be woken by the thread
 * that does. Yields after each look if threads share cores. */
static bool await_message(struct worker *w, const struct device_flag *f,
                          uint64_t target)
{
    struct yielding y = {0};
    bool came = false;

    for (int i = 0; !came; i++) {
        if (atomic_load_explicit(w->failed, memory_order_acquire))
            return false;
        w->remote->ops->carry(w->remote);
        came = atomic_load_explicit(&f->v, memory_order_acquire) >= target;
        if (!came && i < w->n_spin)
            device_relax();
        else if (!came)
            team_pause(&y);
    }
    return true;
}

/* Waits until another device has raised its flag f to `target`. `b` is its
 * backend. This thread may sleep if the backend wakes waiters; otherwise it
 * spins. The first thread measures the time that it waits. Returns false if the
 * step has failed. */
static bool await_device(struct worker *w, struct device_flag *f,
                         uint64_t target, const struct backend *b)
{
    double began;
    bool came;

    if (atomic_load_explicit(&f->v, memory_order_acquire) >= target)
        return !atomic_load_explicit(w->failed, memory_order_acquire);
    began = w->first ? device_now() : 0;
    came = w->first && b == w->remote ? await_message(w, f, target)
           : b->ops->wakes_waiters    ? await(w, f, target)
                                   : flag_spin(f, target, w->n_spin, w->failed);
    if (w->first)
        w->not_compute_s += device_now() - began;
    return came && !atomic_load_explicit(w->failed, memory_order_acquire);
}

static bool await_all(struct worker *w, const struct insn_wait *all)
{
    for (int i = 0; i < wait_count(all); i++) {
        struct insn_event e = wait_event(all, i);
        struct device *d = device_of(w->set, e.dev);

        if (!await_device(w, &d->event[e.event], w->run, d->backend))
            return false;
    }
    return true;
}

/* Waits until the first threads of the other devices have arrived at barrier
 * st; called by this device's first thread. Every device executes its
 * instructions in the order of st->order, which is the same on all devices. So
 * another device has arrived when the position it has raised is at least this
 * one's. Returns false if the step has failed. */
static bool barrier_peers(struct worker *w, const struct insn *st)
{
    uint64_t here = (w->run << 32) + (uint64_t)st->order + 1;

    device_flag_raise(&w->cpu->met, here);
    for (int i = 0; i < st->merge.n_peer; i++) {
        struct cpu_device *d = cpu_device_of(w->set, st->merge.peer[i]);

        if (d != w->cpu && !await_device(w, &d->met, here, w->dev->backend))
            return false;
    }
    return true;
}

/* Returns the counters [nth], one per thread, for work stealing in the k-th
 * instruction with stealing since the last barrier. If `next`, returns those
 * for the k-th such instruction after the next barrier. */
static struct cpu_steal_counter *steal_counters_at(const struct worker *w,
                                                   bool next, int k)
{
    int set = (int)(w->n_barriers & 1) ^ next;

    return w->cpu->taken + (set * CPU_STEAL_INSNS + k) * w->nth;
}

/* Sets this thread's own counters for work stealing to 0: those in use since
 * the last barrier or, if `next`, those that will be used after the next
 * barrier. */
static void taken_clear(const struct worker *w, bool next)
{
    for (int k = 0; k < CPU_STEAL_INSNS; k++)
        atomic_store_explicit(&steal_counters_at(w, next, k)[w->ith].n, 0,
                              memory_order_relaxed);
}

/* Returns the counters [nth] with which threads steal work in the kernel of
 * this instruction, or NULL if they do not steal in it. */
static struct cpu_steal_counter *steal_counters_for(struct worker *w,
                                                    const struct insn *st)
{
    if ((uint32_t)w->n_barriers == 0 || w->n_helped == CPU_STEAL_INSNS ||
        st->kind != INSN_KERNEL ||
        (!kernel_is_contraction(st->kernel.kernel) &&
         !kernel_is_attention(st->kernel.kernel) &&
         !kernel_is_index(st->kernel.kernel)))
        return NULL;
    return steal_counters_at(w, false, w->n_helped++);
}

/* Signals that this thread has arrived at a barrier and waits for all other
 * threads of the device. If `st` is not NULL, the first thread also waits for
 * the other devices that `st` names. Returns false if the step has failed. */
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

/* Barrier of all threads of the device. If `st` is not NULL, the barrier
 * includes the other devices that instruction `st` names. Returns false if the
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

/* Sleeps for the time that transfer st would take, if the device's link has a
 * set speed to simulate. */
static void link_time(const struct worker *w, const struct insn *st)
{
    double t = cpu_image_copy_seconds(&w->cpu->image, st);

    if (t > 0)
        device_sleep(device_now() + t, w->failed);
}

/* Executes part ith (of nth) of an instruction that is a kernel, a collective
 * or a transfer. */
static void exec_insn(struct worker *w, const struct insn *st, int ith, int nth)
{
    cpu_image_insn(&w->cpu->image, st, w->scratch, ith, nth,
                   nth > 1 ? steal_counters_for(w, st) : NULL);
}

/* Like exec_insn(), executes part ith (of nth) of an instruction. It also
 * sleeps for the time of a simulated link, enters the memory guard and records
 * a trace entry, if these are enabled. */
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

/* Executes this thread's part of an instruction whose time is reported
 * separately from computing (CPU_TIMED). nth threads divide the instruction.
 * The first thread adds its time to not_compute_s. */
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

/* Returns true if all threads of the device must synchronize before instruction
 * st, which they execute together. `how` are the instruction's CPU_...
 * flags. */
static bool needs_barrier(const struct worker *w, const struct insn *st,
                          int how)
{
    /* This instruction synchronizes devices, so that all threads of this device
     * synchronize, too. */
    if (insn_is_barrier(st))
        return true;
    if (w->single)
        return how & CPU_BARRIER_DECODE;
    return (how & CPU_BARRIER) || st->kind == INSN_POST;
}

/* Waits for the threads and devices that must arrive before instruction st is
 * executed. `how` are its CPU_... flags. `alone` means that only the first
 * thread executes it. Returns false if the step has failed. */
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
        if (w->first && w->remote)
            w->remote->ops->carry(w->remote);
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

/* Returns the next instruction that this worker executes in the step, skipping
 * disabled ones, or NULL at the end of the variant. */
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
        /* The thread continues with another device or has reached the end, so
         * the time since the last change counts for the device it served. */
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

/* Adds the times that a device's first thread measured in this step to the
 * device's totals. */
static void report_times(const struct worker *w)
{
    struct device_times *x = &w->dev->counts.spent;
    double busy = w->spent.busy_s - w->not_compute_s;

    x->busy_s += busy > 0 ? busy : 0;
    x->reduce_s += w->spent.reduce_s;
    x->copy_s += w->spent.copy_s;
}

/* Initializes *w for a step in which the thread acts as `role`, a thread of one
 * device. If the step's sizes have changed, the device's first thread also
 * computes the sizes of the tensors. Returns false if the step has failed. */
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
        .remote = device_set_remote(b->set),
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
