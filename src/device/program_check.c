/* Reads a set's programs once, before anything runs. A program that passes
 * cannot leave its memory, call what is not there or wait for ever; what plans
 * get wrong is a status here and not a crash later. Sizes grow with n_tok and
 * n_out, so bounds at the largest sizes hold for all. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/device_inner.h"

struct check {
    const struct device_set *set;
    const struct program *all, *p; /* all devices', this one's */
    const struct device *dev;
    int step;
    bool shared; /* all devices are cpu's */
    pl_err *err;
};

static pl_status bad(const struct check *c, const char *what)
{
    return err_set(c->err, PL_BAD_ARGUMENT, "program of %s, step %d: %s",
                   c->dev->desc.name, c->step, what);
}

static bool has_tensor(const struct program *p, int t)
{
    return t >= 0 && t < p->n_tensor;
}

static pl_status check_tensors(struct check *c)
{
    c->step = -1;
    for (int i = 0; i < c->p->n_tensor; i++) {
        const struct prog_tensor *t = &c->p->tensor[i];

        if ((unsigned)t->region >= REGION_COUNT || t->n_dim < 0 ||
            t->n_dim > GRAPH_MAX_DIM || t->offset % 64 != 0 ||
            t->offset > c->p->bytes[t->region] ||
            t->bytes > c->p->bytes[t->region] - t->offset)
            return err_set(c->err, PL_BAD_ARGUMENT,
                           "program of %s: tensor %d of %zu bytes at %zu is "
                           "not inside its region",
                           c->dev->desc.name, i, t->bytes, t->offset);
    }
    return PL_OK;
}

/* One side of a piece, `off` more bytes in, ends inside the region. */
static bool inside(const struct check *c, const struct program *p, int tensor,
                   size_t off, pl_dim start, pl_dim s0, pl_dim s1,
                   const struct copy_piece *l)
{
    const struct graph_sizes *z = &c->p->max;
    int64_t n0 = dim_value(l->n0, z), n1 = dim_value(l->n1, z);
    int64_t at[3] = {dim_value(start, z), dim_value(s0, z), dim_value(s1, z)};
    int64_t bytes = dim_value(l->bytes, z), end, more;

    if (!has_tensor(p, tensor) || n0 < 0 || n1 < 0 || bytes < 0 || at[0] < 0 ||
        at[1] < 0 || at[2] < 0)
        return false;
    if (n0 == 0 || n1 == 0 || bytes == 0)
        return true;
    if (off > INT64_MAX ||
        __builtin_add_overflow(p->tensor[tensor].offset + off, at[0], &end) ||
        __builtin_mul_overflow(n0 - 1, at[1], &more) ||
        __builtin_add_overflow(end, more, &end) ||
        __builtin_mul_overflow(n1 - 1, at[2], &more) ||
        __builtin_add_overflow(end, more, &end) ||
        __builtin_add_overflow(end, bytes, &end))
        return false;
    return (uint64_t)end <= p->bytes[p->tensor[tensor].region];
}

/* `peer`: the step may read other devices. */
static pl_status check_source(const struct check *c, int dev, int tensor,
                              size_t off, const struct copy_piece *l, bool peer)
{
    if (dev < 0 || dev >= c->set->n)
        return bad(c, "reads a device that the group does not have");
    if (!peer && dev != c->p->dev)
        return bad(c, "reads a peer's memory without a meeting or a pull");
    if (l->src_at < 0 ||
        !inside(c, &c->all[dev], tensor, off + (size_t)l->src_at, l->src_off,
                l->src_s0, l->src_s1, l))
        return bad(c, "reads beyond its source");
    return PL_OK;
}

static pl_status check_merge(const struct check *c, const struct merge_item *m,
                             bool peer)
{
    int top = 0, depth = 0;

    for (int k = 0; k < m->n_piece; k++) {
        const struct copy_piece *l = &m->piece[k];

        if (l->dst_at < 0 || !inside(c, c->p, m->out, (size_t)l->dst_at,
                                     l->dst_off, l->dst_s0, l->dst_s1, l))
            return bad(c, "writes beyond its result");
        if (!m->reduce) {
            PL_TRY(check_source(c, l->src_dev, l->src, 0, l, peer));
            continue;
        }
        if (l->bytes.n % (int64_t)sizeof(float) != 0)
            return bad(c, "adds something other than whole floats");
        for (int i = 0; i < m->n_addend; i++)
            PL_TRY(check_source(c, m->addend[i].dev, m->addend[i].tensor,
                                m->addend[i].off, l, peer));
    }
    if (!m->reduce)
        return PL_OK;
    for (int i = 0; i < m->n_addend; i++) {
        depth = ++top > depth ? top : depth;
        if (m->addend[i].n_add < 0 || m->addend[i].n_add >= top)
            return bad(c, "adds more than its stack holds");
        top -= m->addend[i].n_add;
    }
    if (top != 1 || depth > m->depth || depth > MERGE_MAX_DEPTH)
        return bad(c, "its additions do not end in one value");
    return PL_OK;
}

static pl_status check_op(const struct check *c, const struct step *st)
{
    if (st->kind == STEP_OP &&
        ((unsigned)st->op >= OP_COUNT || !c->set->kernels.op[st->op].run))
        return err_set(
            c->err, PL_UNSUPPORTED, "%s has no %s kernel for %s (step %d)",
            c->dev->desc.name, cpu_family_name(c->set->kernels.family),
            (unsigned)st->op < OP_COUNT ? op_info(st->op)->name : "this op",
            c->step);
    if (!has_tensor(c->p, st->out) || st->n_in < 0 || st->n_in > GRAPH_MAX_IN ||
        (st->kind == STEP_Q8 && (st->n_in < 1 || st->in[0] < 0)) ||
        (st->kind == STEP_OP && st->q8 >= c->p->n_tensor))
        return bad(c, "names a tensor that is not there");
    for (int i = 0; i < st->n_in; i++)
        if (st->in[i] >= c->p->n_tensor)
            return bad(c, "names a tensor that is not there");
    if (st->kind == STEP_OP && st->tree.n_out > 1) { /* entries of a stack */
        const struct prog_tensor *t = &c->p->tensor[st->out];
        size_t room = c->p->bytes[t->region] - t->offset - t->bytes;

        if (room / (size_t)(st->tree.n_out - 1) < st->out_stride)
            return bad(c, "writes beyond its result");
    }
    for (int i = 0; i < st->n_cost; i++)
        if (st->cost[i].rank < 0 || st->cost[i].rank >= PL_MAX_RANKS)
            return bad(c, "counts for a rank that is not there");
    return PL_OK;
}

static pl_status check_step(const struct check *c, const struct step *st)
{
    if ((unsigned)st->queue >= QUEUE_COUNT)
        return bad(c, "is in no queue");
    switch (st->kind) {
    case STEP_OP:
    case STEP_Q8:
        return check_op(c, st);
    case STEP_MERGE:
        if (st->meet && !c->shared)
            return bad(c, "meets devices that share no memory");
        for (int i = 0; i < st->n_merge; i++)
            PL_TRY(check_merge(c, &st->merge[i], st->meet));
        return PL_OK;
    case STEP_PULL:
        for (int i = 0; i < st->n_piece; i++) {
            const struct copy_piece *l = &st->piece[i];

            PL_TRY(check_source(c, l->src_dev, l->src, 0, l, true));
            if (l->dst_at < 0 || !inside(c, c->p, st->out, (size_t)l->dst_at,
                                         l->dst_off, l->dst_s0, l->dst_s1, l))
                return bad(c, "writes beyond its result");
        }
        return PL_OK;
    case STEP_POST:
        if (st->event < 0 || st->event >= c->p->n_event)
            return bad(c, "posts an event that is not there");
        return PL_OK;
    case STEP_WAIT:
        if (st->dev < 0 || st->dev >= c->set->n || st->event < 0 ||
            st->event >= c->all[st->dev].n_event)
            return bad(c, "waits for an event that is not there");
        return PL_OK;
    }
    return bad(c, "is of no kind");
}

static pl_status check_deaths(const struct check *c)
{
    int last = 0;

    for (int i = 0; i < c->p->n_death; i++) {
        const struct prog_death *d = &c->p->death[i];

        if (d->step < last || d->step >= c->p->n_step ||
            d->offset > c->p->bytes[REGION_WORK] ||
            d->bytes > c->p->bytes[REGION_WORK] - d->offset)
            return bad(c, "a buffer that dies is not there");
        last = d->step;
    }
    return PL_OK;
}

/* ---- waits that never end ---------------------------------------------- */

/* Plays the queues as they may run. What is posted stays posted, so one order
 * ends if any does. A cpu device has one queue. */
struct play {
    int *at[QUEUE_COUNT];  /* [n] next step of each device and queue */
    unsigned char *posted; /* [first[n]] */
    int *first;            /* [n] event 0 of each device */
};

/* Moves one queue on as far as it gets; true if it moved. */
static bool advance(const struct device_set *s, const struct program *p,
                    struct play *y, int dev, int queue)
{
    bool moved = false, cpu = s->dev[dev].desc.kind == DEVICE_CPU;
    int *at = &y->at[queue][dev];

    for (; *at < p[dev].n_step; ++*at, moved = true) {
        const struct step *st = &p[dev].step[*at];

        if (cpu ? queue != QUEUE_COMPUTE : (int)st->queue != queue)
            continue;
        if (st->kind == STEP_WAIT && !y->posted[y->first[st->dev] + st->event])
            break;
        if (st->kind == STEP_MERGE && st->meet)
            break;
        if (st->kind == STEP_POST)
            y->posted[y->first[dev] + st->event] = 1;
    }
    return moved;
}

/* True if every device stands before a meeting; they pass it. */
static bool pass_meeting(const struct device_set *s, const struct program *p,
                         struct play *y)
{
    for (int i = 0; i < s->n; i++) {
        int at = y->at[QUEUE_COMPUTE][i];

        if (at == p[i].n_step || p[i].step[at].kind != STEP_MERGE)
            return false;
    }
    for (int i = 0; i < s->n; i++)
        y->at[QUEUE_COMPUTE][i]++;
    return true;
}

static pl_status check_waits(struct check *c)
{
    int n = c->set->n, n_event = 0;
    struct play y = {0};
    pl_status s = PL_OK;
    bool moved;
    int *ints = calloc((size_t)n * (QUEUE_COUNT + 1), sizeof *ints);

    y.first = ints;
    for (int i = 0; i < n && ints; i++) {
        y.first[i] = n_event;
        n_event += c->all[i].n_event;
    }
    for (int q = 0; q < QUEUE_COUNT && ints; q++)
        y.at[q] = ints + (q + 1) * n;
    y.posted = calloc((size_t)n_event + 1, 1);
    if (!ints || !y.posted) {
        s = err_no_memory(c->err, "the check of programs");
        goto done;
    }
    do {
        moved = false;
        for (int i = 0; i < n; i++)
            for (int q = 0; q < QUEUE_COUNT; q++)
                moved |= advance(c->set, c->all, &y, i, q);
        if (!moved)
            moved = pass_meeting(c->set, c->all, &y);
    } while (moved);
    for (int i = 0; i < n && s == PL_OK; i++)
        for (int q = 0; q < QUEUE_COUNT && s == PL_OK; q++) {
            c->dev = &c->set->dev[i];
            c->step = y.at[q][i];
            if (c->step < c->all[i].n_step)
                s = bad(c, "waits for ever");
        }
done:
    free(ints);
    free(y.posted);
    return s;
}

pl_status program_check(const struct device_set *s, const struct program *p,
                        pl_err *err)
{
    struct check c = {
        .set = s, .all = p, .err = err, .shared = s->n_cpu == s->n};

    for (int i = 0; i < s->n; i++) {
        c.p = &p[i];
        c.dev = &s->dev[i];
        c.step = -1;
        if (p[i].dev != i)
            return bad(&c, "belongs to another device");
        PL_TRY(check_tensors(&c));
    }
    for (int i = 0; i < s->n; i++) {
        c.p = &p[i];
        c.dev = &s->dev[i];
        for (c.step = 0; c.step < p[i].n_step; c.step++)
            PL_TRY(check_step(&c, &p[i].step[c.step]));
        PL_TRY(check_deaths(&c));
    }
    return check_waits(&c);
}
