/* Executes a custom op: passes this device's parts of the operands and the
 * result to the kernel in the op's definition (pl_graph.h). The kernel is
 * called on every thread, like built-in kernels, but not if the result is
 * empty. */
#include "device/cpu/cpu_ops.h"

#include <string.h>

static void fill(pl_op_value *v, const struct cpu_tensor *t,
                 const struct kernel_custom_split *s)
{
    v->data = t->data;
    v->format = t->format;
    v->n_dim = t->n_dim;
    memcpy(v->dim, t->dim, sizeof v->dim);
    v->split = s->dim;
    v->n_part = s->n;
    v->part = s->part;
}

void cpu_custom_run(const struct cpu_call *c)
{
    pl_op_call call = {.user = c->custom->def->user,
                       .n_in = c->n_in,
                       .ith = c->ith,
                       .nth = c->nth};

    if (cpu_count(&c->out) == 0)
        return;
    fill(&call.out, &c->out, &c->custom->out);
    for (int i = 0; i < c->n_in; i++)
        fill(&call.in[i], &c->in[i], &c->custom->in[i]);
    c->custom->def->run(&call);
}
