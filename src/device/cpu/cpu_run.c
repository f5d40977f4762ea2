/* A cpu device's threads go through its program together.
 *
 * Threads of a device meet where a step asks for it: the others tell the first
 * one that they have arrived, it tells all to go on. When a group meets, first
 * threads tell one another in between, each through a flag of its own, so two
 * devices of one thread meet in the time one cache line takes to cross. Flags
 * count up, run after run: nothing is ever reset, and a run that failed leaves
 * nothing behind.
 *
 * The compute and the copy queue are issued in program order, which no wait can
 * block, since every WAIT names a POST that stands earlier. */
#include "device/device_inner.h"

/* One thread in one run. */
struct worker {
    struct device_set *set;
    struct device *dev;
    int ith, nth, n_spin;
    uint64_t turn, met; /* meetings so far, of the device and of the group */
    void *scratch;
};

static bool await(const struct worker *w, const struct cpu_flag *f,
                  uint64_t target)
{
    return cpu_wait(f, target, w->n_spin, &w->set->failed);
}

static void raise(struct cpu_flag *f, uint64_t value)
{
    atomic_store_explicit(&f->v, value, memory_order_release);
}

/* All first threads of a set of cpu devices. */
static bool meet_peers(struct worker *w)
{
    struct device_set *s = w->set;

    raise(&w->dev->met, ++w->met);
    for (int i = 0; i < s->n; i++)
        if (&s->dev[i] != w->dev && !await(w, &s->dev[i].met, w->met))
            return false;
    return true;
}

/* The threads of the device, or of all. False: the run has failed. */
static bool meet(struct worker *w, bool all)
{
    struct device *d = w->dev;

    w->turn++;
    if (w->ith > 0) {
        raise(&d->arrived[w->ith], w->turn);
        return await(w, &d->released, w->turn);
    }
    for (int i = 1; i < w->nth; i++)
        if (!await(w, &d->arrived[i], w->turn))
            return false;
    if (all && !meet_peers(w))
        return false;
    if (w->nth > 1)
        raise(&d->released, w->turn);
    return true;
}

static void pull(struct worker *w, const struct step *st)
{
    double t = device_pull_seconds(w->set, w->dev, st);

    if (t > 0)
        sim_sleep(t);
    for (int i = 0; i < st->n_piece; i++)
        device_pull(w->set, w->dev, &st->piece[i], st->out, w->ith, w->nth);
}

static bool run_step(struct worker *w, const struct step *st)
{
    struct device_set *s = w->set;
    bool all = st->kind == STEP_MERGE && st->meet;

    /* What is posted must be done by all threads. */
    if ((st->barrier || all || st->kind == STEP_POST) && !meet(w, all))
        return false;
    if (w->ith == 0 && (st->n_cost > 0 || st->message))
        device_count(s, w->dev, st);
    switch (st->kind) {
    case STEP_OP:
    case STEP_Q8:
        device_op(s, w->dev, st, w->scratch, w->ith, w->nth);
        break;
    case STEP_MERGE:
        device_merge(s, w->dev, st, w->scratch, w->ith, w->nth);
        break;
    case STEP_PULL:
        pull(w, st);
        break;
    case STEP_POST:
        if (w->ith == 0)
            raise(&w->dev->event[st->event], s->turn);
        break;
    case STEP_WAIT:
        return await(w, &s->dev[st->dev].event[st->event], s->turn);
    }
    return true;
}

void cpu_run(struct device_set *s, struct device *d, int ith)
{
    struct worker w = {
        .set = s,
        .dev = d,
        .ith = ith,
        .nth = d->desc.n_thread,
        .n_spin = cpu_team_spins(s->team),
        .turn = s->turn << 32,
        .met = s->turn << 32,
        .scratch = d->scratch + (size_t)ith * d->scratch_stride,
    };

    if (s->resize) {
        if (ith == 0)
            device_resize(d, &s->sizes);
        if (!meet(&w, false))
            return;
    }
    for (int i = 0; i < d->prog->n_step; i++) {
        if (i == d->fail_step && ith == 0) {
            device_fail(s, d, i, "the device was lost");
            return;
        }
        if (!run_step(&w, &d->prog->step[i]))
            return;
    }
}
