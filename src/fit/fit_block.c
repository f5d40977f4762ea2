/* Compiles the model's block for multi-token prediction with a candidate.
 *
 * The block is the layer after the last one, with the embeddings and the output
 * matrix. The candidate's mode, shares, ranks, sizes and parts on the host hold
 * for it, and overrides reach its weights by their names. So the options that
 * reproduce the candidate reproduce the block, too. */
#include "fit/fit_internal.h"

#include "base/err.h"
#include "plan/override.h"

#include <string.h>

/* ---- several machines ---------------------------------------------------- */

static bool is_local(const struct fit *f, int d)
{
    return f->asked.list.dev[d].machine == 0;
}

/* Sets b->list to the devices of machine 0, if others have some. */
static pl_status find_list(struct fit_block *b, const struct fit *f,
                           pl_err *err)
{
    struct device_list *l = &b->list;

    for (int d = 0; d < f->asked.list.n; d++)
        b->local |= !is_local(f, d);
    if (!b->local)
        return PL_OK;
    PL_TRY(device_list_copy(l, &f->asked.list, err));
    l->network = NULL;
    l->n = 0;
    for (int d = 0; d < f->asked.list.n; d++)
        if (is_local(f, d))
            l->dev[l->n++] = f->asked.list.dev[d];
    return PL_OK;
}

/* Returns true if an override means a layout, the host or a device of the
 * list. */
static bool is_known(const struct override *o, const struct device_list *l)
{
    int dim;
    bool known =
        override_is_layout(o->where, &dim) || override_is_host(o->where);

    for (int d = 0; d < l->n; d++)
        known |= strcmp(l->dev[d].name, o->where) == 0;
    return known;
}

/* Drops the overrides that mean a device or group of other machines. */
static pl_status drop_overrides(struct fit_block *b, struct arena *a,
                                pl_err *err)
{
    const size_t n = (size_t)b->asked.n_override;
    const size_t n_node = (size_t)b->asked.g->n_node;
    struct override *o;
    int *of;

    if (!b->local || n == 0)
        return PL_OK;
    o = arena_memdup(a, b->asked.override, n, sizeof *o);
    of = arena_memdup(a, b->asked.override_of, n_node, sizeof *of);
    if (!o || !of)
        return err_no_memory(err, "the overrides");
    for (size_t i = 0; i < n_node; i++)
        if (of[i] >= 0 && !is_known(&o[of[i]], &b->list))
            of[i] = -1;
    for (size_t i = 0; i < n; i++)
        if (!is_known(&o[i], &b->list))
            o[i].where = "mirrored"; /* of no weight */
    b->asked.override = o;
    b->asked.override_of = of;
    return PL_OK;
}

/* Sets the shares of machine 0's devices. */
static pl_status take_shares(struct plan_config *x, const struct fit *f,
                             struct arena *a, pl_err *err)
{
    double *share = arena_alloc(a, (size_t)x->list.n + 1, sizeof *share);
    double sum = 0;
    int n = 0;

    if (!share)
        return err_no_memory(err, "shares");
    for (int d = 0; d < f->asked.list.n; d++)
        if (is_local(f, d))
            sum += share[n++] = x->share[d];
    x->share = sum > 0 ? share : NULL;
    return PL_OK;
}

static pl_status keep_local(struct plan_config *x, struct fit *f, pl_err *err)
{
    int main_device = 0;

    x->list = f->block->list;
    for (int d = 0; d < x->main_device; d++)
        main_device += is_local(f, d);
    x->main_device = main_device < x->list.n ? main_device : 0;
    if (x->list.n == 0)
        x->n_on = 0;
    return x->share ? take_shares(x, f, &f->arena, err) : PL_OK;
}

/* ---- compiling ----------------------------------------------------------- */

pl_status fit_block_open(struct fit_block *b, struct fit *f,
                         const struct fit_graphs *g, const pl_options *opt,
                         pl_err *err)
{
    struct notes ignored = {.a = &f->arena};
    pl_options own = *opt;

    own.n_seq = g->block_opt->n_seq;
    own.n_out = g->block_opt->n_out;
    own.devices = "none";
    own.device_spec = NULL;
    own.machines = NULL;
    own.tensor_split = NULL;
    own.n_tensor_split = 0;
    PL_TRY(plan_config_parse(&b->asked, &f->arena, g->block, g->model, &own,
                             &ignored, err));
    b->all = arena_alloc(&f->arena, (size_t)b->asked.n_layer + 1, 1);
    if (!b->all)
        return err_no_memory(err, "the placement of experts");
    memset(b->all, 1, (size_t)b->asked.n_layer + 1);
    PL_TRY(find_list(b, f, err));
    return drop_overrides(b, &f->arena, err);
}

void fit_block_close(struct fit_block *b)
{
    plan_config_free(&b->asked);
    device_list_free(&b->list);
}

/* Returns true if all experts are on the host. */
static bool has_no_experts(const struct plan_config *in)
{
    for (int l = 0; l <= in->n_layer; l++)
        if (!in->experts || !in->experts[l])
            return false;
    return true;
}

pl_status fit_block_compile(struct compiled **out, struct fit *f,
                            const struct plan_config *in, pl_err *err)
{
    const struct plan_config *asked = &f->block->asked;
    struct plan_config x = *in;

    x.g = asked->g;
    x.n_layer = asked->n_layer;
    if (in->n_on > in->n_layer)
        x.n_on = x.n_layer + 1;
    x.experts = !asked->open.experts ? asked->experts
                : has_no_experts(in) ? f->block->all
                                     : NULL;
    x.n_override = asked->n_override;
    x.override = asked->override;
    x.override_of = asked->override_of;
    x.n_out = asked->n_out;
    x.n_seq = asked->n_seq;
    if (f->block->local)
        PL_TRY(keep_local(&x, f, err));
    return compile_config(out, &x, err);
}
