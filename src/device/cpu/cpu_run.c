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
    uint64_t turn; /* meetings of the device's threads so far */
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

/* The first threads of the devices that meet. Who meets does so at the same
 * place of the total order, and each device's steps ascend: whoever has come
 * that far or farther has arrived. */
static bool meet_peers(const struct worker *w, const struct step *st)
{
    struct device_set *s = w->set;
    uint64_t here = (s->turn << 32) + (uint64_t)st->order + 1;

    raise(&w->dev->met, here);
    for (int i = 0; i < st->n_peer; i++) {
        const struct device *d = &s->dev[st->peer[i]];

        if (d != w->dev && !await(w, &d->met, here))
            return false;
    }
    return true;
}

/* The threads of the device, and of all that meet in step `st` if there is one.
 * False: the run has failed. */
static bool meet(struct worker *w, const struct step *st)
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
    if (st && !meet_peers(w, st))
        return false;
    if (w->nth > 1)
        raise(&d->released, w->turn);
    return true;
}

static void pull(struct worker *w, const struct step *st)
{
    double t = device_copy_seconds(w->set, w->dev, st);

    if (t > 0)
        sim_sleep(t);
    for (int i = 0; i < st->n_piece; i++)
        device_pull(w->set, w->dev, st, &st->piece[i], w->ith, w->nth);
}

static bool run_step(struct worker *w, const struct step *st)
{
    struct device_set *s = w->set;
    bool all = st->kind == STEP_MERGE && st->meet;

    /* What is posted must be done by all threads. */
    if ((st->barrier || all || st->kind == STEP_POST) &&
        !meet(w, all ? st : NULL))
        return false;
    if (w->ith == 0 && (st->n_cost > 0 || st->message || st->copy))
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
    case STEP_PAGES:
        device_pages(s, w->dev, st, w->ith, w->nth);
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
    const struct script *c = device_script(s, d);
    struct worker w = {
        .set = s,
        .dev = d,
        .ith = ith,
        .nth = d->desc.n_thread,
        .n_spin = cpu_team_spins(s->team),
        .turn = s->turn << 32,
        .scratch = d->scratch + (size_t)ith * d->scratch_stride,
    };

    if (s->resize) {
        if (ith == 0)
            device_resize(s, d);
        if (!meet(&w, NULL))
            return;
    }
    for (int i = 0; i < c->n_step; i++) {
        if (c->step[i].instance >= s->run->n_instance)
            continue;
        if (i == d->fail_step && ith == 0) {
            device_fail(s, d, i, "the device was lost");
            return;
        }
        if (!run_step(&w, &c->step[i]))
            return;
    }
}
