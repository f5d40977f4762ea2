/* From a step to a kernel's call. Programs hold tensors by index and sizes by
 * symbol; a device keeps one resolved table, made anew only when the sizes of a
 * run differ from the last one's. */
#include <string.h>

#include "device/device_inner.h"

static void resolve(struct cpu_tensor *t, const struct prog_tensor *p,
                    const struct graph_sizes *z)
{
    t->format = p->format;
    t->n_dim = p->n_dim;
    t->pack = p->pack;
    for (int i = 0; i < p->n_dim; i++)
        t->dim[i] = dim_value(p->dim[i], z);
}

void device_resize(const struct device_set *s, struct device *d)
{
    const struct prog_tensor *t = d->prog->tensor;

    for (int i = 0; i < d->prog->n_tensor; i++)
        if (s->resize >> t[i].instance & 1)
            resolve(&d->tensor[i], &t[i], &s->sizes[t[i].instance]);
}

static int64_t count(const struct cpu_tensor *t, int n_dim)
{
    int64_t n = 1;

    for (int i = 0; i < n_dim; i++)
        n *= t->dim[i];
    return n;
}

/* All but tensors and threads. */
static void fill(struct cpu_call *c, const struct step *st)
{
    c->n_in = st->n_in;
    c->attr = &st->attr;
    c->head_map = st->head_map;
    c->tree = st->tree;
    c->span = st->span;
    c->n_span = st->n_span;
    c->out_stride = st->out_stride;
    c->custom = st->custom;
}

void device_op(const struct device_set *s, struct device *d,
               const struct step *st, void *scratch, int ith, int nth)
{
    struct cpu_call c;

    if (st->kind == STEP_Q8) {
        const struct cpu_tensor *in = &d->tensor[st->in[0]];
        int64_t n = count(in, in->n_dim) / 32;
        int64_t lo = n * ith / nth, hi = n * (ith + 1) / nth;
        struct q8_block *out = d->tensor[st->out].data;
        const float *src = in->data;

        if (lo < hi)
            s->kernels.q8(out + lo, src + lo * 32, (hi - lo) * 32);
        return;
    }
    fill(&c, st);
    c.out = d->tensor[st->out];
    for (int i = 0; i < GRAPH_MAX_IN; i++) {
        if (i < st->n_in && st->in[i] >= 0)
            c.in[i] = d->tensor[st->in[i]];
        else
            c.in[i] = (struct cpu_tensor){0};
    }
    c.q8 = st->q8 >= 0 ? d->tensor[st->q8].data : NULL;
    c.batch = &d->batch[st->instance];
    c.scratch = scratch;
    c.ith = ith;
    c.nth = nth;
    s->kernels.op[st->op].run(&c);
}

void device_count(const struct device_set *s, struct device *d,
                  const struct step *st)
{
    if (st->n_cost > 0) {
        const struct cpu_tensor *out = &d->tensor[st->out];
        int64_t rows = count(out, out->n_dim - 1);

        for (int i = 0; i < st->n_cost; i++)
            d->macs[st->cost[i].rank] += (uint64_t)(st->cost[i].macs * rows);
    }
    if (st->message && st->counted) {
        const struct graph_sizes *z = &s->sizes[st->instance];

        d->messages++;
        d->message_bytes += (uint64_t)dim_value(st->message_bytes[0], z) +
                            (uint64_t)dim_value(st->message_bytes[1], z);
    }
    if (st->copy) {
        d->copies++;
        d->copy_bytes += (uint64_t)device_copy_bytes(s, d, st);
    }
}

/* ---- scratch ----------------------------------------------------------- */

static size_t op_scratch(const struct cpu_kernels *k, const struct program *p,
                         const struct step *st, int nth)
{
    struct cpu_batch batch = {.n_tok = p->max.n_tok,
                              .n_out = p->max.n_out,
                              .page_stride = p->page_stride};
    struct cpu_call c = {.batch = &batch, .nth = nth};

    if (st->kind != STEP_OP || !k->op[st->op].scratch)
        return 0;
    fill(&c, st);
    resolve(&c.out, &p->tensor[st->out], &p->max);
    for (int i = 0; i < st->n_in; i++)
        if (st->in[i] >= 0)
            resolve(&c.in[i], &p->tensor[st->in[i]], &p->max);
    return k->op[st->op].scratch(&c);
}

static size_t most_scratch(const struct cpu_kernels *k, const struct program *p,
                           int nth)
{
    size_t most = 0;

    for (int i = 0; i < p->n_script; i++)
        for (int j = 0; j < p->script[i].n_step; j++) {
            const struct step *st = &p->script[i].step[j];
            size_t n = st->kind == STEP_MERGE ? device_merge_scratch(st)
                                              : op_scratch(k, p, st, nth);

            if (n > most)
                most = n;
        }
    return (most + 127) / 128 * 128;
}

/* A sim device calls kernels in up to SIM_PARTS parts, but one after another:
 * all take the same scratch. */
size_t device_scratch_bytes(const struct device_desc *d,
                            const struct cpu_kernels *k,
                            const struct program *p)
{
    size_t most = 0;

    if (d->kind == DEVICE_CPU)
        return most_scratch(k, p, d->n_thread) * (size_t)d->n_thread;
    for (int nth = 1; nth <= SIM_PARTS; nth++) {
        size_t n = most_scratch(k, p, nth);

        if (n > most)
            most = n;
    }
    return most;
}
