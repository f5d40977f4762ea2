/* The backend sim: simulated devices with private memory and asynchronous
 * queues, for tests and for experiments with slow links. They deliberately
 * execute instructions in unusual orders that such hardware may also use.
 *
 * One thread executes all queues of all sim devices. It repeatedly chooses a
 * random queue whose first instruction can run and executes that, or one copy
 * descriptor of it. So every order that events allow occurs sooner or later.
 * Now and then a queue is held back for a while, as on a busy device. The same
 * seed gives the same order, if the set has no cpu device and no link is
 * simulated.
 *
 * Simulated links take real time, so with them nothing is repeatable. Then
 * there are as many threads as devices, at most one per core, which execute the
 * compute queues in parallel. As many further threads execute the copy queues,
 * because on hardware a kernel does not delay a copy. The option sim_merge
 * merges both queues of a device (sim_merge.h).
 *
 * Kernels are the CPU's, executed whole or in parts in any order. Memory is
 * poisoned when it is allocated, and buffers when they are dead. So an
 * instruction that reads too early or too late finds NaNs. A program that
 * passes program_check cannot deadlock. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "device/cpu/cpu_image.h"
#include "device/device_spec.h"
#include "device/sim/sim_merge.h"
#include "device/team.h"
#include "machine/topology.h"

enum { POISON = 0xFF }; /* NaN in every float format, -1 as an integer */

struct cursor {
    /* the queue's instructions in this step, as indices in the variant */
    const int *step;
    int n, head;
    /* for how many more choices other queues are preferred to this one */
    int hold;
    bool pulling; /* the instruction at `head` is a transfer in progress */
    /* of the transfer at `head`, the index of the next copy descriptor, or of
     * the next part if it is a PAGES instruction */
    int piece;
    int n_piece;  /* number of the transfer's copy descriptors, or of the parts
                     of a PAGES instruction */
    double begun; /* start of the instruction at `head`, by device_clock() */
    double due;   /* time at which the transfer's bytes have arrived; 0 if links
                     take no time */
    /* time at which all bytes that the queue pushed have arrived; a POST waits
     * until then */
    double pushed;
};

struct sim_device {
    struct cpu_image image; /* first, so that tests can read device.own as an
                               image */
    struct device *dev;
    /* memory of each region, owned; the inbox belongs to the device set */
    unsigned char *base[REGION_INBOX];
    unsigned char *scratch;      /* scratch memory of the kernels; owned */
    _Atomic uint64_t run_number; /* number of the last run that begin()
                                          prepared the device for */
    /* protects the counters, which both queues' threads update */
    pthread_mutex_t counting;
    /* protects the trace and the following fields, which both queues' threads
     * use */
    pthread_mutex_t lock;
    struct sim_queue queue[PROG_MAX_VARIANT][QUEUE_COUNT];
    /* the instructions of both queues in the merged order of this step, for
     * sim_merge; [most instructions of a variant]; owned */
    int *merged;
    unsigned char *told; /* scratch of sim_merge(), [n_event]; owned */
    /* cursor[QUEUE_COPY] is empty if the queues are merged */
    struct cursor cursor[QUEUE_COUNT];
    /* the variant that the device executes in this step */
    const struct variant *variant;
    /* by instruction, nonzero if it has ended; [most instructions of a
     * variant]; owned */
    unsigned char *done;
    int first_open; /* index of the first instruction that has
                                      not ended */
    int last_begun;
    int death; /* index in variant->dead of the next dead range to be
                  poisoned */
};

/* A thread, and the devices and queues that it executes. */
struct sim_thread {
    uint64_t random;
    int n;
    /* the n devices that the thread executes, a part of sim.dev */
    struct sim_device *dev;
    /* bit q is set if the thread executes queue q of its devices */
    unsigned queues;
    /* this thread calls begin() for its devices; the thread that executes their
     * other queue waits for that */
    bool first;
    struct yielding yielding;
};

struct sim {
    struct device_set *set;
    struct cpu_kernels kernels;
    /* owned: n_thread threads after thread 0, the caller's, which does
     * nothing */
    struct team *team;
    int n, n_thread;
    struct sim_device *dev;    /* all simulated devices, [n]; owned */
    struct sim_thread *thread; /* the threads, [n_thread]; owned */
    /* the step that the devices execute */
    const struct device_run *run;
    uint64_t run_number;
};

static int draw(struct sim_thread *p, int n)
{
    return sim_draw(&p->random, n);
}

static void link_time(const struct device_desc *d, size_t bytes)
{
    double t = d->link_latency_s;

    if (d->link_bytes_per_s > 0)
        t += (double)bytes / d->link_bytes_per_s;
    if (t > 0)
        device_sleep(device_now() + t, NULL);
}

/* ---- open, load and close ------------------------------------------------ */

static void unload_device(struct device_set *set, struct sim_device *d)
{
    bool copy = device_set_is_copy(set);

    for (int k = 0; k < PROG_MAX_VARIANT * QUEUE_COUNT; k++)
        free(d->queue[k / QUEUE_COUNT][k % QUEUE_COUNT].step);
    memset(d->queue, 0, sizeof d->queue);
    for (int r = 0; r < REGION_INBOX; r++) {
        if (device_guarded(set))
            device_guard_dealloc(d->base[r], d->dev->bytes[r]);
        else if (copy)
            topology_free_copy(d->base[r], d->dev->bytes[r]);
        else
            topology_free(d->base[r], d->dev->bytes[r]);
        d->base[r] = NULL;
    }
    if (copy)
        topology_free_copy(d->scratch, d->dev->scratch_bytes);
    else
        topology_free(d->scratch, d->dev->scratch_bytes);
    cpu_image_fini(&d->image);
    free(d->done);
    free(d->merged);
    free(d->told);
    d->scratch = NULL;
    d->merged = NULL;
    d->told = NULL;
    d->done = NULL;
}

static void unload(struct backend *b)
{
    struct sim *sim = b->own;

    for (int i = 0; i < sim->n; i++)
        unload_device(b->set, &sim->dev[i]);
}

static void close_backend(struct backend *b)
{
    struct sim *sim = b->own;

    if (!sim)
        return;
    team_free(sim->team);
    for (int i = 0; i < sim->n; i++) {
        pthread_mutex_destroy(&sim->dev[i].lock);
        pthread_mutex_destroy(&sim->dev[i].counting);
    }
    free(sim->dev);
    free(sim->thread);
    free(sim);
    b->own = NULL;
}

/* Returns the number of threads: one for all devices if no link is simulated.
 * Otherwise two per device, but at most two per core. */
static int count_threads(const struct backend *b)
{
    cpu_set_t may;
    int n_core = b->n;
    bool links = false;

    for (int i = 0; i < b->n; i++) {
        const struct device_desc *d = &device_of(b->set, b->dev[i])->desc;

        links |= d->link_bytes_per_s > 0 || d->link_latency_s > 0;
    }
    if (!links)
        return 1;
    if (sched_getaffinity(0, sizeof may, &may) == 0)
        n_core = CPU_COUNT(&may);
    return QUEUE_COUNT * (b->n < n_core ? b->n : n_core);
}

static void deal_devices(struct sim *sim, uint64_t seed)
{
    for (int k = 0; k < sim->n_thread; k++) {
        int n_part = sim->n_thread == 1 ? 1 : sim->n_thread / QUEUE_COUNT;
        int part = k % n_part, queue = k / n_part;
        int from = sim->n * part / n_part, to = sim->n * (part + 1) / n_part;

        sim->thread[k] = (struct sim_thread){
            .random = seed + (uint64_t)k,
            .n = to - from,
            .dev = sim->dev + from,
            .queues = sim->n_thread == 1 ? ~0u : 1u << queue,
            .first = queue == 0};
    }
}

static pl_status start_threads(struct backend *b, pl_err *err)
{
    struct sim *sim = b->own;
    int n = sim->n_thread + 1, *core = malloc((size_t)n * sizeof *core);
    pl_status s;

    if (!core)
        return err_no_memory(err, "sim devices");
    for (int i = 0; i < n; i++)
        core[i] = -1;
    s = team_create(&sim->team, n, core,
                    sim->n_thread + device_set_threads(b->set, b), err);
    free(core);
    return s;
}

static pl_status open_backend(struct backend *b, pl_err *err)
{
    const struct device_options *opt = device_set_options(b->set);
    struct sim *sim = calloc(1, sizeof *sim);

    b->own = sim;
    if (!sim)
        return err_no_memory(err, "sim devices");
    sim->set = b->set;
    sim->n_thread = count_threads(b);
    cpu_kernels_choose(&sim->kernels, opt);
    sim->dev = calloc((size_t)b->n, sizeof *sim->dev);
    sim->thread = calloc((size_t)sim->n_thread, sizeof *sim->thread);
    if (!sim->dev || !sim->thread)
        return err_no_memory(err, "sim devices");
    for (int i = 0; i < b->n; i++) {
        struct device *d = device_of(b->set, b->dev[i]);

        pthread_mutex_init(&sim->dev[i].lock, NULL);
        pthread_mutex_init(&sim->dev[i].counting, NULL);
        sim->dev[i].dev = d;
        d->own = &sim->dev[i];
        sim->n++;
    }
    deal_devices(sim, opt->sim_seed);
    return start_threads(b, err);
}

static bool sort_queues(struct sim_queue *q, const struct variant *c)
{
    for (int k = 0; k < QUEUE_COUNT; k++) {
        q[k].step = malloc(((size_t)c->n_insn + 1) * sizeof *q[k].step);
        if (!q[k].step)
            return false;
        for (int i = 0; i < c->n_insn; i++)
            if ((int)c->insn[i].queue == k)
                q[k].step[q[k].n++] = i;
    }
    return true;
}

static bool make_tables(struct sim_device *d)
{
    const struct program *p = d->dev->prog;
    int n_step = 0;

    for (int i = 0; i < p->n_variant; i++) {
        const struct variant *c = &p->variant[i];

        if (!sort_queues(d->queue[i], c))
            return false;
        n_step = c->n_insn > n_step ? c->n_insn : n_step;
    }
    d->done = calloc((size_t)n_step + 1, 1);
    d->merged = malloc(((size_t)n_step + 1) * sizeof *d->merged);
    d->told = calloc((size_t)p->n_event + 1, 1);
    return d->done && d->merged && d->told;
}

static pl_status load_device(struct sim *sim, struct sim_device *d, pl_err *err)
{
    for (int r = 0; r < REGION_INBOX; r++) {
        size_t bytes = d->dev->bytes[r];

        d->base[r] = device_guarded(sim->set) ? device_guard_alloc(bytes)
                                              : topology_alloc(NULL, -1, bytes);
        if (!d->base[r])
            return err_set(err, PL_NO_DEVICE_MEMORY,
                           "%s: cannot allocate %zu bytes", d->dev->desc.name,
                           bytes);
        memset(d->base[r], POISON, bytes);
        device_guard_region(sim->set, d->dev, (enum region)r, d->base[r]);
        d->image.base[r] = d->base[r];
    }
    memset(d->dev->at[REGION_INBOX], POISON, d->dev->bytes[REGION_INBOX]);
    d->image.base[REGION_INBOX] = d->dev->at[REGION_INBOX];
    d->scratch = topology_alloc(NULL, -1, d->dev->scratch_bytes);
    if (!d->scratch || !make_tables(d))
        return err_no_memory(err, "a sim device's queues");
    memset(d->scratch, POISON, d->dev->scratch_bytes);
    return cpu_image_init(&d->image, sim->set, d->dev, &sim->kernels, err);
}

static pl_status load(struct backend *b, pl_err *err)
{
    struct sim *sim = b->own;

    for (int i = 0; i < sim->n; i++)
        PL_TRY(load_device(sim, &sim->dev[i], err));
    return PL_OK;
}

static pl_status put(struct device *d, enum region r, size_t offset,
                     const void *src, size_t bytes, pl_err *err)
{
    struct sim_device *x = d->own;

    (void)err;
    link_time(&d->desc, bytes);
    memcpy(x->image.base[r] + offset, src, bytes);
    return PL_OK;
}

static pl_status get(struct device *d, enum region r, size_t offset, void *dst,
                     size_t bytes, pl_err *err)
{
    const struct sim_device *x = d->own;

    (void)err;
    link_time(&d->desc, bytes);
    memcpy(dst, x->image.base[r] + offset, bytes);
    return PL_OK;
}

/* ---- execution of a step ------------------------------------------------- */

static void insn_ends(struct sim_device *d, int step)
{
    pthread_mutex_lock(&d->lock);
    d->done[step] = 1;
    while (d->first_open < d->variant->n_insn && d->done[d->first_open])
        d->first_open++;
    pthread_mutex_unlock(&d->lock);
}

/* Advances the queue to its next enabled instruction, and marks the skipped
 * ones as done. */
static void skip_disabled(const struct sim *s, struct sim_device *d,
                          struct cursor *l)
{
    for (; l->head < l->n; l->head++) {
        int i = l->step[l->head];

        if (insn_enabled(&d->variant->insn[i], s->run->n_micro, s->run->sizes))
            return;
        insn_ends(d, i);
    }
}

/* Sets the queues to the start of this step's variant. */
static void set_cursors(struct sim *s, struct sim_thread *p,
                        struct sim_device *d)
{
    const struct sim_queue *x = d->queue[s->run->variant];
    bool merge = device_set_options(s->set)->sim_merge;

    for (int q = 0; q < QUEUE_COUNT; q++)
        d->cursor[q] = (struct cursor){.step = x[q].step, .n = x[q].n};
    if (merge) {
        sim_merge(d->merged, d->variant, d->dev->prog->dev, s->run, x, d->told,
                  &p->random);
        d->cursor[QUEUE_COMPUTE] =
            (struct cursor){.step = d->merged, .n = d->variant->n_insn};
        d->cursor[QUEUE_COPY] = (struct cursor){.step = NULL};
    }
    for (int q = 0; q < QUEUE_COUNT; q++)
        skip_disabled(s, d, &d->cursor[q]);
}

static void begin(struct sim *s, struct sim_thread *p, struct sim_device *d)
{
    const struct device_run *r = s->run;

    if (cpu_image_sizes(&d->image, r))
        cpu_image_resolve(&d->image);
    d->variant = device_variant(d->dev, r);
    memset(d->done, 0, (size_t)d->variant->n_insn);
    d->first_open = d->death = 0;
    d->last_begun = -1;
    set_cursors(s, p, d);
}

static const struct insn *head(const struct sim_device *d,
                               const struct cursor *l)
{
    return &d->variant->insn[l->step[l->head]];
}

static bool failed(const struct sim *s)
{
    return atomic_load_explicit(device_failed(s->set), memory_order_acquire);
}

static bool has_come(const struct sim *s, const struct insn_wait *w)
{
    for (int i = 0; i < wait_count(w); i++) {
        struct insn_event e = wait_event(w, i);

        if (atomic_load_explicit(&device_of(s->set, e.dev)->event[e.event].v,
                                 memory_order_acquire) < s->run_number)
            return false;
    }
    return !failed(s);
}

static bool can_run(const struct sim *s, const struct sim_device *d,
                    const struct cursor *l)
{
    const struct insn *st = head(d, l);

    if (st->kind == INSN_WAIT)
        return has_come(s, &st->wait);
    if (st->kind == INSN_POST)
        return l->pushed == 0 || device_now() >= l->pushed;
    return !l->pulling || l->due == 0 || device_now() >= l->due;
}

/* Poisons the buffers that are dead when instruction `next` accesses memory.
 * Possibly only a WAIT after the end of a buffer's lifetime guarantees that
 * peers have read the buffer. So poisoning is done as late as possible: when
 * the first later instruction that accesses memory begins. It is omitted if
 * that instruction has overtaken the buffer's last readers in the other
 * queue. */
static void poison_dead(struct sim_device *d, int next)
{
    const struct variant *c = d->variant;

    for (; d->death < c->n_dead && c->dead[d->death].insn < next; d->death++) {
        const struct dead_range *x = &c->dead[d->death];

        if (x->insn < d->first_open)
            memset(d->base[REGION_WORK] + x->offset, POISON, x->bytes);
    }
}

static void insn_begins(struct sim_device *d, int step)
{
    pthread_mutex_lock(&d->lock);
    if (step > d->last_begun) {
        poison_dead(d, step);
        d->last_begun = step;
    }
    pthread_mutex_unlock(&d->lock);
}

/* Executes a kernel whole, or in parts in a random order. */
static void run_kernel(struct sim_thread *p, struct sim_device *d,
                       const struct insn *st)
{
    int part[CPU_PARTS];
    int n = 1 + draw(p, CPU_PARTS);

    for (int i = 0; i < n; i++) {
        int k = draw(p, i + 1);

        part[i] = part[k];
        part[k] = i;
    }
    for (int i = 0; i < n; i++)
        cpu_image_kernel(&d->image, st, d->scratch, part[i], n, NULL);
}

/* Starts a transfer and computes when its bytes arrive over the simulated
 * link. */
static void start_transfer(struct sim_thread *p, struct sim_device *d,
                           struct cursor *l, const struct insn *st)
{
    double t = cpu_image_copy_seconds(&d->image, st);

    l->pulling = true;
    l->piece = 0;
    l->n_piece = st->kind == INSN_PULL   ? st->pull.n_piece
                 : st->kind == INSN_PUSH ? st->push.n_to
                                         : 1 + draw(p, CPU_PARTS);
    l->due = t > 0 ? device_now() + t : 0;
    /* The queue of a push continues once the bytes are sent, a latency before
     * they arrive. */
    if (st->kind == INSN_PUSH && t > 0) {
        double late = cpu_image_latency(&d->image, st);

        l->pushed = l->due;
        l->due -= late;
    }
}

/* Executes the next copy descriptor of a transfer, or the next part of a PAGES
 * instruction. Returns true if the transfer is now complete. */
static bool transfer_progress(struct sim_device *d, struct cursor *l,
                              const struct insn *st)
{
    if (l->piece < l->n_piece && st->kind != INSN_PAGES)
        cpu_image_transfer(&d->image, st, l->piece, 0, 1);
    else if (l->piece < l->n_piece)
        cpu_image_pages(&d->image, st, l->piece, l->n_piece);
    l->pulling = ++l->piece < l->n_piece;
    return !l->pulling;
}

/* Executes an instruction that is not a POST or WAIT, or a part of it if it is
 * a transfer. Returns true if the instruction is complete. */
static bool work(struct sim_thread *p, struct sim_device *d, struct cursor *l,
                 const struct insn *st)
{
    insn_begins(d, l->step[l->head]);
    switch (st->kind) {
    case INSN_KERNEL:
        run_kernel(p, d, st);
        break;
    case INSN_MERGE:
        cpu_image_merge(&d->image, st, d->scratch, 0, 1);
        break;
    case INSN_PULL:
    case INSN_PUSH:
    case INSN_PAGES:
        return transfer_progress(d, l, st);
    case INSN_POST:
    case INSN_WAIT:
        break;
    }
    return true;
}

/* Executes `st`, the first instruction of the queue, or a part of it if it is a
 * transfer. Returns true if the instruction is complete. */
static bool run_head(struct sim *s, struct sim_thread *p, struct sim_device *d,
                     struct cursor *l, const struct insn *st)
{
    bool ended;
    double end;

    if (st->kind == INSN_WAIT)
        return true;
    if (st->kind == INSN_POST) {
        atomic_store_explicit(&d->dev->event[st->event.event].v, s->run_number,
                              memory_order_release);
        return true;
    }
    if (!l->pulling)
        l->begun = device_clock(s->set);
    if (insn_is_transfer(st) && !l->pulling) {
        start_transfer(p, d, l, st);
        return false;
    }
    device_guard_enter(s->set, d->dev, st);
    ended = work(p, d, l, st);
    device_guard_leave(s->set);
    /* A transfer over a simulated link ends when its bytes have arrived. The
     * time in which this thread copies them is not counted, because a link
     * would do so by itself. */
    if (!ended)
        return false;
    end = device_clock(s->set);
    if (insn_is_transfer(st) && l->due > 0)
        end = fmax(device_since(s->set, l->due), l->begun);
    pthread_mutex_lock(&d->lock);
    device_add_time(&d->dev->counts.spent, st, end - l->begun);
    if (device_traces(s->set))
        device_trace_add(s->set, d->dev, l->step[l->head], l->begun, end);
    pthread_mutex_unlock(&d->lock);
    return true;
}

static void play_head(struct sim *s, struct sim_thread *p, struct sim_device *d,
                      struct cursor *l)
{
    int i = l->step[l->head];
    const struct insn *st = &d->variant->insn[i];

    if (i == d->dev->fail_insn) {
        device_fail(s->set, d->dev, i, "the device was lost");
        return;
    }
    if (!run_head(s, p, d, l, st))
        return;
    /* counting may wait for the guard, so it must not hold `lock` */
    pthread_mutex_lock(&d->counting);
    cpu_image_count(&d->image, d->dev, st);
    pthread_mutex_unlock(&d->counting);
    insn_ends(d, i);
    l->head++;
    skip_disabled(s, d, l);
}

/* Executes the first instruction of a random queue that can run. Prefers queues
 * that are not held back. Returns false if no queue can run. Sets *left to
 * false if all of the thread's queues are empty. */
static bool run_random_queue(struct sim *s, struct sim_thread *p, bool *left)
{
    int n = 0, n_held = 0;
    struct sim_device *d = NULL, *held_d = NULL;
    struct cursor *l = NULL, *held_l = NULL;

    *left = false;
    for (int i = 0; i < p->n; i++)
        for (int q = 0; q < QUEUE_COUNT; q++) {
            struct cursor *x = &p->dev[i].cursor[q];

            if (!(p->queues >> q & 1) || x->head == x->n)
                continue;
            *left = true;
            if (!can_run(s, &p->dev[i], x))
                continue;
            if (x->hold > 0) {
                x->hold--;
                if (draw(p, ++n_held) == 0) {
                    held_d = &p->dev[i];
                    held_l = x;
                }
            } else if (draw(p, ++n) == 0) {
                d = &p->dev[i];
                l = x;
            }
        }
    if (n == 0) {
        d = held_d;
        l = held_l;
    }
    if (!l)
        return false;
    play_head(s, p, d, l);
    if (draw(p, 16) == 0)
        l->hold = 1 + draw(p, 64);
    return true;
}

/* Yields or sleeps while the thread waits for another thread or a link. `idle`
 * counts the calls since it last did something. */
static void wait_a_little(struct sim_thread *p, int idle)
{
    static const struct timespec nap = {0, 100 * 1000};

    if (idle < 1000)
        team_pause(&p->yielding);
    else
        nanosleep(&nap, NULL);
}

/* Prepares the thread's devices for the step, or waits until their first thread
 * has done so. */
static void make_ready(struct sim *s, struct sim_thread *p)
{
    for (int i = 0; i < p->n; i++) {
        struct sim_device *d = &p->dev[i];

        if (p->first) {
            begin(s, p, d);
            atomic_store_explicit(&d->run_number, s->run_number,
                                  memory_order_release);
        }
        for (int idle = 0;
             atomic_load_explicit(&d->run_number, memory_order_acquire) <
                 s->run_number &&
             !failed(s);
             idle++)
            wait_a_little(p, idle);
    }
}

static void run_devices(void *user, int thread)
{
    struct sim *s = user;
    struct sim_thread *p;
    bool left = true;
    int idle = 0;

    if (thread == 0)
        /* thread 0 is the caller's, which does nothing here because another
         * backend may need it */
        return;
    p = &s->thread[thread - 1];
    make_ready(s, p);
    while (left && !failed(s)) {
        if (run_random_queue(s, p, &left))
            idle = 0;
        else if (left)
            wait_a_little(p, ++idle);
    }
}

static void submit(struct backend *b)
{
    struct sim *s = b->own;

    s->run = device_set_current_run(b->set, &s->run_number);
    team_begin(s->team, run_devices, s);
}

static void wait(struct backend *b)
{
    struct sim *s = b->own;

    team_end(s->team, run_devices, s);
}

static void ended(struct backend *b)
{
    struct sim *s = b->own;

    for (int i = 0; i < s->n; i++) {
        if (failed(s))
            s->dev[i].image.resize = (uint32_t)-1;
        else
            poison_dead(&s->dev[i], s->dev[i].variant->n_insn);
    }
}

/* ---- the backend --------------------------------------------------------- */

static pl_status describe(struct device_list *l, const struct device_item *it,
                          pl_err *err)
{
    const struct device_desc d = {.ops = &sim_ops,
                                  .n_thread = 1,
                                  .numa_node = -1,
                                  .memory = -1,
                                  .reads = true};
    const unsigned offered = 1u << DEVICE_MEMORY | 1u << DEVICE_AVAILABLE |
                             1u << DEVICE_LINK | 1u << DEVICE_LATENCY;
    double v[DEVICE_FIGURES];

    PL_TRY(device_item_read(it, offered, v, NULL, err));
    return device_item_append(l, it, &d, v, err);
}

static size_t scratch(const struct device_desc *d,
                      const struct device_options *opt, const struct program *p)
{
    (void)d;
    return cpu_image_parts_scratch(opt, p);
}

const struct backend_ops sim_ops = {
    .name = "sim",
    .accepts = "sim[:MEMORY[:available=MEMORY]][:BANDWIDTH/s][:LATENCY][*N] "
               "as in "
               "sim:2GiB:16GB/s:10us*2",
    .describe = describe,
    .has_kernel = cpu_image_has_kernel,
    .packing = cpu_image_packing,
    .activations = cpu_image_activations,
    .scratch = scratch,
    .open = open_backend,
    .close = close_backend,
    .load = load,
    .unload = unload,
    .write = put,
    .read = get,
    .submit = submit,
    .wait = wait,
    .ended = ended,
};
