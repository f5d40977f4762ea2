/* Sim devices: what a machine with private memory and asynchronous queues may
 * do, done on purpose.
 *
 * One thread plays all queues of all sim devices. Again and again it draws one
 * of the queues whose head can run and runs that step, or one piece of it, so
 * every order that events allow comes up sooner or later; now and then a queue
 * is held back for a while, as a busy device would. A seed repeats the draws,
 * and so the order, where no cpu device and no link's real time takes part.
 * Where links take real time there is nothing to repeat: as many threads as
 * there are cores share the devices, which then compute side by side, and as
 * many others their copy queues, which nothing that computes then keeps from
 * setting out, as no kernel keeps a link.
 *
 * Kernels are the CPU's, whole or in parts in any order. Dead buffers are
 * poisoned, as all memory is when it is handed out: a step that reads too early
 * or too late finds NaNs. A program that passes program_check cannot stall. */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "device/device_inner.h"

enum { POISON = 0xFF };

struct queue_steps {
    int *step; /* owned: a queue's steps, ascending */
    int n;
};

struct lane {
    const int *step; /* of this run's script */
    int n, head;
    int hold;     /* draws for which it is left out */
    bool pulling; /* the head is a PULL or PAGES on its way */
    int piece;    /* its next piece */
    int n_piece;  /* PAGES come in parts too */
    double begun; /* for the trace */
    double due;   /* when its bytes arrive */
};

struct sim_device {
    struct device *dev;
    _Atomic uint64_t turn; /* the run that it is ready for */
    pthread_mutex_t lock;  /* of what its queues share, up to `death`, and of
                              the trace */
    struct queue_steps queue[PROG_MAX_SCRIPT][QUEUE_COUNT];
    struct lane lane[QUEUE_COUNT];
    const struct script *script; /* of this run */
    unsigned char *done;         /* owned, [most steps of a script] */
    int first_open;              /* all steps before are done */
    int last_begun;
    int death;      /* next to come */
    int32_t *batch; /* owned: this device's copy of the batch, an instance's
                       pos, seq and pages after the other's */
    size_t n_batch; /* of an instance */
};

/* A thread and its devices. */
struct player {
    uint64_t random;
    int n;
    struct sim_device *dev; /* [n] of sim.dev */
    unsigned queues;        /* a bit for each queue of theirs that it plays */
    bool first;             /* makes them ready for a run */
};

struct sim {
    int n, n_player;
    struct sim_device *dev; /* owned */
    struct player *player;  /* owned, [n_player] */
};

/* splitmix64 */
static int draw(struct player *p, int n)
{
    uint64_t z = p->random += 0x9E3779B97F4A7C15;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (int)((z ^ (z >> 31)) >> 33) % n;
}

/* The system's sleep is late by some 50 us: the last ones are spun. */
void sim_sleep(double seconds)
{
    double end = device_now() + seconds, left;

    while ((left = end - device_now()) > 0) {
        if (left > 2e-4) {
            double nap = left - 1e-4;
            struct timespec t = {(time_t)nap,
                                 (long)((nap - (double)(time_t)nap) * 1e9)};

            nanosleep(&t, NULL);
        }
    }
}

void sim_link(const struct device_desc *d, size_t bytes)
{
    double t = d->link_latency_s;

    if (d->link_bytes_per_s > 0)
        t += (double)bytes / d->link_bytes_per_s;
    if (t > 0)
        sim_sleep(t);
}

/* ---- life -------------------------------------------------------------- */

static void unload(struct sim *sim)
{
    for (int i = 0; i < sim->n; i++) {
        struct sim_device *d = &sim->dev[i];

        for (int k = 0; k < PROG_MAX_SCRIPT * QUEUE_COUNT; k++)
            free(d->queue[k / QUEUE_COUNT][k % QUEUE_COUNT].step);
        memset(d->queue, 0, sizeof d->queue);
        free(d->done);
        free(d->batch);
        d->done = NULL;
        d->batch = NULL;
    }
}

void sim_free(struct sim *sim)
{
    if (!sim)
        return;
    unload(sim);
    for (int i = 0; i < sim->n; i++)
        pthread_mutex_destroy(&sim->dev[i].lock);
    free(sim->dev);
    free(sim->player);
    free(sim);
}

int sim_players(const struct device_set *s)
{
    int n = s->n - s->n_cpu;
    cpu_set_t may;
    int n_core = n;
    bool links = false;

    for (int i = 0; i < s->n; i++)
        links |= s->dev[i].desc.kind == DEVICE_SIM &&
                 (s->dev[i].desc.link_bytes_per_s > 0 ||
                  s->dev[i].desc.link_latency_s > 0);
    if (!links)
        return n > 0;
    if (sched_getaffinity(0, sizeof may, &may) == 0)
        n_core = CPU_COUNT(&may);
    return QUEUE_COUNT * (n < n_core ? n : n_core);
}

pl_status sim_create(struct sim **out, const struct device_set *s,
                     uint64_t seed, pl_err *err)
{
    struct sim *sim = calloc(1, sizeof *sim);
    int n = s->n - s->n_cpu;

    *out = NULL;
    if (!sim)
        return err_no_memory(err, "sim devices");
    sim->n_player = s->n_player;
    sim->dev = calloc((size_t)n, sizeof *sim->dev);
    sim->player = calloc((size_t)sim->n_player, sizeof *sim->player);
    if (!sim->dev || !sim->player) {
        sim_free(sim);
        return err_no_memory(err, "sim devices");
    }
    for (int i = 0; i < s->n; i++)
        if (s->dev[i].desc.kind == DEVICE_SIM) {
            pthread_mutex_init(&sim->dev[sim->n].lock, NULL);
            sim->dev[sim->n++].dev = &s->dev[i];
        }
    for (int k = 0; k < sim->n_player; k++) {
        int n_part = sim->n_player == 1 ? 1 : sim->n_player / QUEUE_COUNT;
        int part = k % n_part, queue = k / n_part;
        int from = n * part / n_part, to = n * (part + 1) / n_part;

        sim->player[k] =
            (struct player){.random = seed + (uint64_t)k,
                            .n = to - from,
                            .dev = sim->dev + from,
                            .queues = sim->n_player == 1 ? ~0u : 1u << queue,
                            .first = queue == 0};
    }
    *out = sim;
    return PL_OK;
}

static bool sort_queues(struct queue_steps *q, const struct script *c)
{
    for (int k = 0; k < QUEUE_COUNT; k++) {
        q[k].step = malloc(((size_t)c->n_step + 1) * sizeof *q[k].step);
        if (!q[k].step)
            return false;
        for (int i = 0; i < c->n_step; i++)
            if ((int)c->step[i].queue == k)
                q[k].step[q[k].n++] = i;
    }
    return true;
}

static bool load(struct sim_device *d)
{
    const struct program *p = d->dev->prog;
    int n_step = 0, n_instance = 0;

    for (int i = 0; i < p->n_script; i++) {
        const struct script *c = &p->script[i];

        if (!sort_queues(d->queue[i], c))
            return false;
        n_step = c->n_step > n_step ? c->n_step : n_step;
        n_instance = c->n_instance > n_instance ? c->n_instance : n_instance;
    }
    d->n_batch = (size_t)p->max.n_tok * 2 +
                 (size_t)p->n_seq * (size_t)p->page_stride + 1;
    d->batch = malloc((size_t)n_instance * d->n_batch * sizeof *d->batch);
    d->done = calloc((size_t)n_step + 1, 1);
    return d->batch && d->done;
}

pl_status sim_load(struct device_set *s, pl_err *err)
{
    struct sim *sim = s->sim;

    unload(sim);
    for (int i = 0; i < sim->n; i++)
        if (!load(&sim->dev[i])) {
            unload(sim);
            return err_no_memory(err, "a sim device's queues");
        }
    return PL_OK;
}

/* ---- a run ------------------------------------------------------------- */

static const int32_t *take_table(int32_t **to, const int32_t *from, int64_t n)
{
    int32_t *mine = *to;

    if (!from)
        return NULL;
    memcpy(mine, from, (size_t)n * sizeof *mine);
    *to += n;
    return mine;
}

static void step_ends(struct sim_device *d, int step)
{
    pthread_mutex_lock(&d->lock);
    d->done[step] = 1;
    while (d->first_open < d->script->n_step && d->done[d->first_open])
        d->first_open++;
    pthread_mutex_unlock(&d->lock);
}

/* Steps of instances that this run does not have count as done. */
static void pass_over(const struct device_set *s, struct sim_device *d,
                      struct lane *l)
{
    for (; l->head < l->n; l->head++) {
        int i = l->step[l->head];

        if (d->script->step[i].instance < s->run->n_instance)
            return;
        step_ends(d, i);
    }
}

static void begin(struct device_set *s, struct sim_device *d)
{
    const struct device_run *r = s->run;

    for (int i = 0; i < r->n_instance; i++) {
        struct kernel_batch *b = &d->dev->batch[i];
        const struct kernel_batch *from = &r->batch[i];
        int32_t *to = d->batch + (size_t)i * d->n_batch;

        b->pos = take_table(&to, from->pos, r->sizes[i].n_tok);
        b->seq = take_table(&to, from->seq, r->sizes[i].n_tok);
        b->pages = take_table(&to, from->pages, r->n_seq * from->page_stride);
    }
    if (s->resize)
        device_resize(s, d->dev);
    d->script = device_script(s, d->dev);
    memset(d->done, 0, (size_t)d->script->n_step);
    d->first_open = d->death = 0;
    d->last_begun = -1;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        const struct queue_steps *x = &d->queue[r->script][q];

        d->lane[q] = (struct lane){.step = x->step, .n = x->n};
        pass_over(s, d, &d->lane[q]);
    }
}

static const struct step *head(const struct sim_device *d, const struct lane *l)
{
    return &d->script->step[l->step[l->head]];
}

static bool can_run(const struct device_set *s, const struct sim_device *d,
                    const struct lane *l)
{
    const struct step *st = head(d, l);

    if (st->kind == STEP_WAIT)
        return atomic_load_explicit(&s->dev[st->event.dev].event[st->event.event].v,
                                    memory_order_acquire) >= s->turn;
    return !l->pulling || l->due == 0 || device_now() >= l->due;
}

/* Buffers that are dead before step `next` does anything. Waits that follow a
 * death may be what proves that peers have read it, so it takes effect as late
 * as it can: when the first step after it begins that touches memory. Where
 * that step has overtaken the last readers, in the other queue, it is passed
 * over: the step may be the buffer's next tenant. */
static void bury(struct sim_device *d, int next)
{
    const struct script *c = d->script;

    for (; d->death < c->n_death && c->death[d->death].step < next;
         d->death++) {
        const struct prog_death *x = &c->death[d->death];

        if (x->step < d->first_open)
            memset(d->dev->base[REGION_WORK] + x->offset, POISON, x->bytes);
    }
}

static void step_begins(struct sim_device *d, int step)
{
    pthread_mutex_lock(&d->lock);
    if (step > d->last_begun) {
        bury(d, step);
        d->last_begun = step;
    }
    pthread_mutex_unlock(&d->lock);
}

/* Whole, or in parts in any order. */
static void run_kernel(struct device_set *s, struct player *p, struct sim_device *d,
                   const struct step *st)
{
    int part[SIM_PARTS];
    int n = 1 + draw(p, SIM_PARTS);

    for (int i = 0; i < n; i++) {
        int k = draw(p, i + 1);

        part[i] = part[k];
        part[k] = i;
    }
    for (int i = 0; i < n; i++)
        device_kernel(s, d->dev, st, d->dev->scratch, part[i], n);
}

/* Sets out: the bytes of a copy arrive when the link has brought them. */
static void depart(struct device_set *s, struct player *p, struct sim_device *d,
                   struct lane *l, const struct step *st)
{
    double t = device_copy_seconds(s, d->dev, st);

    l->pulling = true;
    l->piece = 0;
    l->n_piece = st->kind == STEP_PULL ? st->pull.n_piece : 1 + draw(p, SIM_PARTS);
    l->due = t > 0 ? device_now() + t : 0;
}

/* One piece; true when all have arrived. */
static bool arrive(struct device_set *s, struct sim_device *d, struct lane *l,
                   const struct step *st)
{
    if (l->piece < l->n_piece && st->kind == STEP_PULL)
        device_pull(s, d->dev, st, &st->pull.piece[l->piece], 0, 1);
    else if (l->piece < l->n_piece)
        device_pages(s, d->dev, st, l->piece, l->n_piece);
    l->pulling = ++l->piece < l->n_piece;
    return !l->pulling;
}

/* A step that touches memory, or a part of a copy; true when it has ended. */
static bool work(struct device_set *s, struct player *p, struct sim_device *d,
                 struct lane *l, const struct step *st)
{
    step_begins(d, l->step[l->head]);
    switch (st->kind) {
    case STEP_KERNEL:
        run_kernel(s, p, d, st);
        break;
    case STEP_MERGE:
        device_merge(s, d->dev, st, d->dev->scratch, 0, 1);
        break;
    case STEP_PULL:
    case STEP_PAGES:
        return arrive(s, d, l, st);
    case STEP_POST:
    case STEP_WAIT:
        break;
    }
    return true;
}

/* True when the head has ended. */
static bool run_head(struct device_set *s, struct player *p,
                     struct sim_device *d, struct lane *l,
                     const struct step *st)
{
    bool ended;

    if (st->kind == STEP_WAIT)
        return true;
    if (st->kind == STEP_POST) {
        atomic_store_explicit(&d->dev->event[st->event.event].v, s->turn,
                              memory_order_release);
        return true;
    }
    if (s->trace.on && !l->pulling)
        l->begun = device_clock(s);
    if (step_is_transfer(st) && !l->pulling) {
        depart(s, p, d, l, st);
        return false;
    }
    if (s->guard)
        device_guard_enter(s, d->dev, st);
    ended = work(s, p, d, l, st);
    if (s->guard)
        device_guard_leave(s);
    /* Where the link takes time, a copy is there when it is due: moving its
       bytes is work of this thread, which a device's link does beside it. */
    if (ended && s->trace.on) {
        pthread_mutex_lock(&d->lock);
        device_note(s, d->dev, l->step[l->head], l->begun,
                    step_is_transfer(st) && l->due > 0 ? l->due - s->trace.start_s
                                             : device_clock(s));
        pthread_mutex_unlock(&d->lock);
    }
    return ended;
}

static void play_head(struct device_set *s, struct player *p,
                      struct sim_device *d, struct lane *l)
{
    int i = l->step[l->head];
    const struct step *st = &d->script->step[i];

    if (i == d->dev->fail_step) {
        device_fail(s, d->dev, i, "the device was lost");
        return;
    }
    if (!run_head(s, p, d, l, st))
        return;
    device_count(s, d->dev, st);
    step_ends(d, i);
    l->head++;
    pass_over(s, d, l);
}

/* Draws among the queues that can run, those that are held back last. False:
 * none can. */
static bool play_one(struct device_set *s, struct player *p, bool *left)
{
    int n = 0, n_held = 0;
    struct sim_device *d = NULL, *held_d = NULL;
    struct lane *l = NULL, *held_l = NULL;

    *left = false;
    for (int i = 0; i < p->n; i++)
        for (int q = 0; q < QUEUE_COUNT; q++) {
            struct lane *x = &p->dev[i].lane[q];

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

static bool failed(const struct device_set *s)
{
    return atomic_load_explicit(&s->failed, memory_order_acquire);
}

/* Another thread or a link is waited for. */
static void wait_a_little(int idle)
{
    static const struct timespec nap = {0, 100 * 1000};

    if (idle < 1000)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* The player's devices, once they are. */
static void make_ready(struct device_set *s, struct player *p)
{
    for (int i = 0; i < p->n; i++) {
        struct sim_device *d = &p->dev[i];

        if (p->first) {
            begin(s, d);
            atomic_store_explicit(&d->turn, s->turn, memory_order_release);
        }
        for (int idle = 0;
             atomic_load_explicit(&d->turn, memory_order_acquire) < s->turn &&
             !failed(s);
             idle++)
            wait_a_little(idle);
    }
}

void sim_run(struct device_set *s, int player)
{
    struct player *p = &s->sim->player[player];
    bool left = true;
    int idle = 0;

    make_ready(s, p);
    while (left && !failed(s)) {
        if (play_one(s, p, &left))
            idle = 0;
        else if (left)
            wait_a_little(++idle);
    }
}

void sim_end(struct device_set *s)
{
    for (int i = 0; i < s->sim->n; i++)
        bury(&s->sim->dev[i], s->sim->dev[i].script->n_step);
}
