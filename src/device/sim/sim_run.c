/* Sim devices: what a machine with private memory and asynchronous queues may
 * do, done on purpose.
 *
 * One thread plays all queues of all sim devices. Again and again it draws one
 * of the queues whose head can run and runs that step, or one piece of it, so
 * every order that events allow comes up sooner or later; now and then a queue
 * is held back for a while, as a busy device would. A seed repeats the draws,
 * and so the order, where no cpu device and no link's real time takes part.
 *
 * Kernels are the CPU's, whole or in parts in any order. Dead buffers are
 * poisoned, as all memory is when it is handed out: a step that reads too early
 * or too late finds NaNs. A program that passes program_check cannot stall. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "device/device_inner.h"

enum { POISON = 0xFF };

struct lane {
    int *step; /* owned: the queue's steps */
    int n, head;
    int hold;     /* draws for which it is left out */
    bool pulling; /* the head is a PULL on its way */
    int piece;    /* its next piece */
    double due;   /* when its bytes arrive */
};

struct sim_device {
    struct device *dev;
    struct lane lane[QUEUE_COUNT];
    unsigned char *done; /* owned, [n_step] */
    int first_open;      /* all steps before are done */
    int last_begun;
    int death;                  /* next to come */
    int32_t *pos, *seq, *pages; /* owned: this device's copy of the batch */
};

struct sim {
    uint64_t random;
    int n;
    struct sim_device *dev; /* owned */
};

/* splitmix64 */
static int draw(struct sim *sim, int n)
{
    uint64_t z = sim->random += 0x9E3779B97F4A7C15;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return (int)((z ^ (z >> 31)) >> 33) % n;
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The system's sleep is late by some 50 us: the last ones are spun. */
void sim_sleep(double seconds)
{
    double end = now_s() + seconds, left;

    while ((left = end - now_s()) > 0) {
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

        for (int q = 0; q < QUEUE_COUNT; q++) {
            free(d->lane[q].step);
            d->lane[q] = (struct lane){0};
        }
        free(d->done);
        free(d->pos);
        free(d->seq);
        free(d->pages);
        d->done = NULL;
        d->pos = d->seq = d->pages = NULL;
    }
}

void sim_free(struct sim *sim)
{
    if (!sim)
        return;
    unload(sim);
    free(sim->dev);
    free(sim);
}

pl_status sim_create(struct sim **out, const struct device_set *s,
                     uint64_t seed, pl_err *err)
{
    struct sim *sim = calloc(1, sizeof *sim);
    int n = s->n - s->n_cpu;

    *out = NULL;
    if (!sim)
        return err_no_memory(err, "sim devices");
    sim->dev = calloc((size_t)n, sizeof *sim->dev);
    if (!sim->dev) {
        free(sim);
        return err_no_memory(err, "sim devices");
    }
    sim->random = seed;
    for (int i = 0; i < s->n; i++)
        if (s->dev[i].desc.kind == DEVICE_SIM)
            sim->dev[sim->n++].dev = &s->dev[i];
    *out = sim;
    return PL_OK;
}

pl_status sim_load(struct device_set *s, pl_err *err)
{
    struct sim *sim = s->sim;

    unload(sim);
    for (int i = 0; i < sim->n; i++) {
        struct sim_device *d = &sim->dev[i];
        const struct program *p = d->dev->prog;
        size_t n_tok = (size_t)p->max.n_tok + 1;
        size_t n_page = (size_t)p->n_seq * (size_t)p->page_stride + 1;
        bool ok;

        d->done = calloc((size_t)p->n_step + 1, 1);
        d->pos = malloc(n_tok * sizeof *d->pos);
        d->seq = malloc(n_tok * sizeof *d->seq);
        d->pages = malloc(n_page * sizeof *d->pages);
        ok = d->done && d->pos && d->seq && d->pages;
        for (int q = 0; q < QUEUE_COUNT && ok; q++) {
            struct lane *l = &d->lane[q];

            l->step = malloc(((size_t)p->n_step + 1) * sizeof *l->step);
            ok = l->step != NULL;
            for (int k = 0; k < p->n_step && ok; k++)
                if ((int)p->step[k].queue == q)
                    l->step[l->n++] = k;
        }
        if (!ok) {
            unload(sim);
            return err_no_memory(err, "a sim device's queues");
        }
    }
    return PL_OK;
}

/* ---- a run ------------------------------------------------------------- */

static int32_t *take_table(int32_t *to, const int32_t *from, int64_t n)
{
    if (!from)
        return NULL;
    memcpy(to, from, (size_t)n * sizeof *to);
    return to;
}

static void begin(struct device_set *s, struct sim_device *d)
{
    const struct device_run *r = s->run;
    struct cpu_batch *b = &d->dev->batch;

    b->pos = take_table(d->pos, r->batch.pos, r->sizes.n_tok);
    b->seq = take_table(d->seq, r->batch.seq, r->sizes.n_tok);
    b->pages =
        take_table(d->pages, r->batch.pages, r->n_seq * r->batch.page_stride);
    if (s->resize)
        device_resize(d->dev, &s->sizes);
    memset(d->done, 0, (size_t)d->dev->prog->n_step);
    d->first_open = d->death = 0;
    d->last_begun = -1;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        d->lane[q].head = d->lane[q].hold = 0;
        d->lane[q].pulling = false;
    }
}

static const struct step *head(const struct sim_device *d, const struct lane *l)
{
    return &d->dev->prog->step[l->step[l->head]];
}

static bool can_run(const struct device_set *s, const struct sim_device *d,
                    const struct lane *l)
{
    const struct step *st = head(d, l);

    if (st->kind == STEP_WAIT)
        return atomic_load_explicit(&s->dev[st->dev].event[st->event].v,
                                    memory_order_acquire) >= s->turn;
    return !l->pulling || l->due == 0 || now_s() >= l->due;
}

/* Buffers that are dead before step `next` does anything. Waits that follow a
 * death may be what proves that peers have read it, so it takes effect as late
 * as it can: when the first step after it begins that touches memory. Where
 * that step has overtaken the last readers, in the other queue, it is passed
 * over: the step may be the buffer's next tenant. */
static void bury(struct sim_device *d, int next)
{
    const struct program *p = d->dev->prog;

    for (; d->death < p->n_death && p->death[d->death].step < next;
         d->death++) {
        const struct prog_death *x = &p->death[d->death];

        if (x->step < d->first_open)
            memset(d->dev->base[REGION_WORK] + x->offset, POISON, x->bytes);
    }
}

static void step_begins(struct sim_device *d, int step)
{
    if (step <= d->last_begun)
        return;
    bury(d, step);
    d->last_begun = step;
}

static void step_ends(struct sim_device *d, int step)
{
    d->done[step] = 1;
    while (d->first_open < d->dev->prog->n_step && d->done[d->first_open])
        d->first_open++;
}

/* Whole, or in parts in any order. */
static void run_op(struct device_set *s, struct sim_device *d,
                   const struct step *st)
{
    int part[SIM_PARTS];
    int n = 1 + draw(s->sim, SIM_PARTS);

    for (int i = 0; i < n; i++) {
        int k = draw(s->sim, i + 1);

        part[i] = part[k];
        part[k] = i;
    }
    for (int i = 0; i < n; i++)
        device_op(s, d->dev, st, d->dev->scratch, part[i], n);
}

/* True when the PULL has ended. */
static bool run_pull(struct device_set *s, struct sim_device *d, struct lane *l,
                     const struct step *st)
{
    if (!l->pulling) {
        double t = device_pull_seconds(s, d->dev, st);

        l->pulling = true;
        l->piece = 0;
        l->due = t > 0 ? now_s() + t : 0;
        return false;
    }
    if (l->piece < st->n_piece)
        device_pull(s, d->dev, &st->piece[l->piece++], st->out, 0, 1);
    l->pulling = l->piece < st->n_piece;
    return !l->pulling;
}

static void run_head(struct device_set *s, struct sim_device *d, struct lane *l)
{
    int i = l->step[l->head];
    const struct step *st = &d->dev->prog->step[i];

    if (i == d->dev->fail_step) {
        device_fail(s, d->dev, i, "the device was lost");
        return;
    }
    if (st->kind != STEP_POST && st->kind != STEP_WAIT)
        step_begins(d, i);
    switch (st->kind) {
    case STEP_OP:
    case STEP_Q8:
        run_op(s, d, st);
        break;
    case STEP_MERGE:
        device_merge(s, d->dev, st, d->dev->scratch, 0, 1);
        break;
    case STEP_PULL:
        if (!run_pull(s, d, l, st))
            return;
        break;
    case STEP_POST:
        atomic_store_explicit(&d->dev->event[st->event].v, s->turn,
                              memory_order_release);
        break;
    case STEP_WAIT:
        break;
    }
    device_count(s, d->dev, st);
    step_ends(d, i);
    l->head++;
}

/* Draws among the queues that can run, those that are held back last. False:
 * none can. */
static bool play_one(struct device_set *s, bool *left)
{
    struct sim *sim = s->sim;
    int n = 0, n_held = 0;
    struct sim_device *d = NULL, *held_d = NULL;
    struct lane *l = NULL, *held_l = NULL;

    *left = false;
    for (int i = 0; i < sim->n; i++)
        for (int q = 0; q < QUEUE_COUNT; q++) {
            struct lane *x = &sim->dev[i].lane[q];

            if (x->head == x->n)
                continue;
            *left = true;
            if (!can_run(s, &sim->dev[i], x))
                continue;
            if (x->hold > 0) {
                x->hold--;
                if (draw(sim, ++n_held) == 0) {
                    held_d = &sim->dev[i];
                    held_l = x;
                }
            } else if (draw(sim, ++n) == 0) {
                d = &sim->dev[i];
                l = x;
            }
        }
    if (n == 0) {
        d = held_d;
        l = held_l;
    }
    if (!l)
        return false;
    run_head(s, d, l);
    if (draw(sim, 16) == 0)
        l->hold = 1 + draw(sim, 64);
    return true;
}

void sim_run(struct device_set *s)
{
    bool left = true;
    int idle = 0;

    for (int i = 0; i < s->sim->n; i++)
        begin(s, &s->sim->dev[i]);
    while (left && !atomic_load_explicit(&s->failed, memory_order_acquire)) {
        if (play_one(s, &left)) {
            idle = 0;
        } else if (left) { /* a cpu device or a link is what all wait for */
            if (++idle < 1000)
                sched_yield();
            else
                sim_sleep(2.5e-4);
        }
    }
}

void sim_end(struct device_set *s)
{
    for (int i = 0; i < s->sim->n; i++)
        bury(&s->sim->dev[i], s->sim->dev[i].dev->prog->n_step);
}
