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
static void fill(struct cpu_call *c, const struct step_kernel *k)
{
    static const struct graph_attr none;

    c->n_in = 0;
    c->q8 = NULL;
    c->attr = k->attr ? k->attr : &none;
    c->head_map = k->head_map;
    c->tree = k->tree;
    c->span = k->span;
    c->n_span = k->n_span;
    c->out_stride = k->out_stride;
    c->custom = k->custom;
}

/* Where argument i of a step goes in a kernel's call; NULL: it is the quantized
 * form of the first operand. A result that is updated is the first operand
 * too. */
static struct cpu_tensor *place(struct cpu_call *c, const struct step_kernel *k,
                                const struct prog_tensor *t, int i)
{
    if (i == 0)
        return &c->out;
    if (k->arg[i].tensor >= 0 && t[k->arg[i].tensor].q8)
        return NULL;
    return &c->in[c->n_in++];
}

void device_kernel(const struct device_set *s, struct device *d,
                   const struct step *st, void *scratch, int ith, int nth)
{
    const struct step_kernel *k = &st->kernel;
    struct cpu_call c;

    fill(&c, k);
    for (int i = 0; i < k->n_arg; i++) {
        struct cpu_tensor *to = place(&c, k, d->prog->tensor, i);

        if (!to)
            c.q8 = d->tensor[k->arg[i].tensor].data;
        else if (k->arg[i].tensor >= 0)
            *to = d->tensor[k->arg[i].tensor];
        else
            *to = (struct cpu_tensor){0};
        if (i == 0 && k->arg[0].access == ACCESS_UPDATE)
            c.in[c.n_in++] = c.out;
    }
    for (int i = c.n_in; i < GRAPH_MAX_IN; i++)
        c.in[i] = (struct cpu_tensor){0};
    c.batch = &d->batch[st->instance];
    c.scratch = scratch;
    c.ith = ith;
    c.nth = nth;
    s->kernels.kernel[k->kernel].run(&c);
}

void device_count(const struct device_set *s, struct device *d,
                  const struct step *st)
{
    if (st->kind == STEP_KERNEL && st->kernel.n_cost > 0) {
        const struct step_kernel *k = &st->kernel;
        const struct cpu_tensor *out = &d->tensor[k->arg[0].tensor];
        int64_t rows = count(out, out->n_dim - 1);

        for (int i = 0; i < k->n_cost; i++)
            d->macs[k->cost[i].rank] += (uint64_t)(k->cost[i].macs * rows);
    }
    if (step_is_message(st) && st->merge.counted) {
        const struct graph_sizes *z = &s->sizes[st->instance];

        d->messages++;
        d->message_bytes +=
            (uint64_t)dim_value(st->merge.message_bytes[0], z) +
            (uint64_t)dim_value(st->merge.message_bytes[1], z);
    }
    if (step_is_copy(st)) {
        d->copies++;
        d->copy_bytes += (uint64_t)device_copy_bytes(s, d, st);
    }
}

/* ---- scratch ----------------------------------------------------------- */

static size_t kernel_scratch(const struct cpu_kernels *table,
                             const struct program *p, const struct step *st,
                             int nth)
{
    const struct step_kernel *k = &st->kernel;
    struct kernel_batch batch = {.n_tok = p->max.n_tok,
                                 .n_out = p->max.n_out,
                                 .page_stride = p->page_stride};
    struct cpu_call c = {.batch = &batch, .nth = nth};

    if (st->kind != STEP_KERNEL || !table->kernel[k->kernel].scratch)
        return 0;
    fill(&c, k);
    for (int i = 0; i < k->n_arg; i++) {
        struct cpu_tensor *to = place(&c, k, p->tensor, i);

        if (to && k->arg[i].tensor >= 0)
            resolve(to, &p->tensor[k->arg[i].tensor], &p->max);
        if (i == 0 && k->arg[0].access == ACCESS_UPDATE)
            c.in[c.n_in++] = c.out;
    }
    return table->kernel[k->kernel].scratch(&c);
}

static size_t most_scratch(const struct cpu_kernels *k, const struct program *p,
                           int nth)
{
    size_t most = 0;

    for (int i = 0; i < p->n_script; i++)
        for (int j = 0; j < p->script[i].n_step; j++) {
            const struct step *st = &p->script[i].step[j];
            size_t n = st->kind == STEP_MERGE ? device_merge_scratch(st)
                                              : kernel_scratch(k, p, st, nth);

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
