/* Implementation of sim_merge.h: repeatedly takes the first instruction of a
 * random queue, or of the other queue if the first one's is not allowed yet. At
 * least one is always allowed: the one that comes first in the variant. */
#include "device/sim/sim_merge.h"

/* A queue of the device, while sim_merge() draws an order. */
struct source {
    const int *step;
    int n, head;
    /* index in step[] of the queue's next enabled POST or barrier; n if none */
    int tell;
};

struct merging {
    const struct variant *variant;
    const struct device_run *run;
    int dev;
    struct source queue[QUEUE_COUNT];
    /* by event of the device: nonzero if its POST is already in the merged
     * list */
    const unsigned char *told;
};

static bool runs(const struct merging *m, const struct insn *st)
{
    return insn_enabled(st, m->run->n_micro, m->run->sizes);
}

static void find_tell(const struct merging *m, struct source *q)
{
    if (q->tell < q->head)
        q->tell = q->head;
    for (; q->tell < q->n; q->tell++) {
        const struct insn *st = &m->variant->insn[q->step[q->tell]];

        if (runs(m, st) && (st->kind == INSN_POST || insn_is_barrier(st)))
            return;
    }
}

/* Returns true if the first instruction of queue k may be the next of the
 * list. */
static bool is_free(const struct merging *m, int k)
{
    const struct source *q = &m->queue[k], *other = &m->queue[!k];
    const struct insn *st;
    bool others = false; /* the instruction is a WAIT for another device */

    if (q->head == q->n)
        return false;
    st = &m->variant->insn[q->step[q->head]];
    if (!runs(m, st))
        return true;
    for (int i = 0; st->kind == INSN_WAIT && i < wait_count(&st->wait); i++) {
        struct insn_event e = wait_event(&st->wait, i);

        if (e.dev == m->dev && !m->told[e.event])
            return false;
        others |= e.dev != m->dev;
    }
    return !(others || insn_is_barrier(st)) || other->tell == other->n ||
           other->step[other->tell] > q->step[q->head];
}

void sim_merge(int *out, const struct variant *c, int dev,
               const struct device_run *run,
               const struct sim_queue queue[QUEUE_COUNT], unsigned char *told,
               uint64_t *random)
{
    struct merging m = {.variant = c, .run = run, .dev = dev, .told = told};
    /* stay: number of further instructions to take from queue k */
    int k = 0, stay = 0;

    for (int q = 0; q < QUEUE_COUNT; q++) {
        m.queue[q] = (struct source){.step = queue[q].step, .n = queue[q].n};
        find_tell(&m, &m.queue[q]);
        for (int i = 0; i < queue[q].n; i++)
            if (c->insn[queue[q].step[i]].kind == INSN_POST)
                told[c->insn[queue[q].step[i]].event.event] = 0;
    }
    for (int i = 0; i < c->n_insn; i++) {
        const struct insn *st;

        if (stay-- == 0) {
            k = sim_draw(random, QUEUE_COUNT);
            stay = sim_draw(random, 4) ? 0 : sim_draw(random, 64);
        }
        if (!is_free(&m, k)) {
            k = !k;
            stay = 0;
        }
        out[i] = m.queue[k].step[m.queue[k].head++];
        st = &c->insn[out[i]];
        if (st->kind == INSN_POST)
            told[st->event.event] = 1;
        find_tell(&m, &m.queue[k]);
    }
}
