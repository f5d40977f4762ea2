/* What goes into a run and what comes out of it.
 *
 * The last device, "io", carries no ranks. In its memory the caller puts inputs
 * before a run and finds results after it, so a run needs nothing else of the
 * host. A group takes all inputs that its ops read when the first of them is
 * wanted, in one transfer a device, as one *block*: pulled by a device that
 * reads io's memory, else pushed by io into its inbox. A result goes into io's
 * inbox as soon as it is there; nobody waits for it but the run's end. */
#include "exec/lower_inner.h"

#include "base/err.h"

static int io_dev(const struct lower *w)
{
    return w->opt->n_dev - 1;
}

static int io_group(const struct lower *w)
{
    return w->opt->n_group - 1;
}

static int io_unit(const struct lower *w)
{
    return w->opt->n_unit - 1;
}

static bool is_input(const struct lower *w, int i)
{
    return w->num->node[i].kind == NUM_OP &&
           w->g->node[w->num->node[i].node].op == OP_input;
}

static size_t at_most(const struct lower *w, int n_dim, const pl_dim *dim)
{
    return (size_t)dim_value(lower_product(dim, 0, n_dim, 4), &w->opt->max);
}

/* Device d pushes p[n], for a node of the graph. */
static pl_status push(struct lower *w, int d, int node, struct push_to to,
                      const struct copy_piece *p, int n)
{
    const struct step s = {.kind = STEP_PUSH,
                           .queue = QUEUE_COMPUTE,
                           .node = node,
                           .push = {.n_to = 1,
                                    .to = arena_memdup(w->a, &to, 1, sizeof to),
                                    .piece = p,
                                    .n_piece = n}};

    return s.push.to ? lower_step(w, d, &s)
                     : err_no_memory(w->err, "a program");
}

/* ---- io's own memory ----------------------------------------------------- */

pl_status lower_io(struct lower *w)
{
    int n_instance = 0, n_node = w->g->n_node;
    struct draft *v = &w->dev[io_dev(w)];

    for (int k = 0; k < w->opt->n_way; k++)
        if (w->opt->way[k].n_instance > n_instance)
            n_instance = w->opt->way[k].n_instance;
    w->out->n_instance = n_instance;
    w->out->input = arena_alloc(w->a, (size_t)n_instance * (size_t)n_node + 1,
                                sizeof *w->out->input);
    if (!w->out->input)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < n_instance; k++)
        for (int i = 0; i < n_node; i++) {
            const struct graph_node *x = &w->g->node[i];
            int *t = &w->out->input[(size_t)k * (size_t)n_node + (size_t)i];

            *t = -1;
            if (x->op != OP_input)
                continue;
            w->instance = k;
            PL_TRY(lower_tensor(w, io_dev(w), x->format, x->n_dim, x->dim, 0, t,
                                NULL));
            lower_place(v, *t, REGION_WORK, at_most(w, x->n_dim, x->dim));
        }
    w->instance = 0;
    return PL_OK;
}

pl_status lower_io_begin(struct lower *w, struct lowered_way *o)
{
    size_t n_node = (size_t)w->g->n_node;

    o->result =
        arena_alloc(w->a, (size_t)o->n_instance * n_node + 1, sizeof(int));
    if (!o->result)
        return err_no_memory(w->err, "a program");
    for (size_t i = 0; i < (size_t)o->n_instance * n_node; i++)
        o->result[i] = -1;
    for (int k = 0; k < o->n_instance; k++)
        for (int i = 0; i < w->num->n; i++) {
            struct held *h;

            if (!is_input(w, i))
                continue;
            w->instance = k;
            PL_TRY(lower_hold(w, i, io_group(w), &h));
            h->h.v[0].tensor =
                w->out
                    ->input[(size_t)k * n_node + (size_t)w->num->node[i].node];
        }
    w->instance = 0;
    return PL_OK;
}

/* ---- inputs -------------------------------------------------------------- */

/* The inputs of one micro-batch that a group reads. */
struct inputs {
    int n, *num;
    struct held **held; /* there */
};

static bool is_read(const struct lower *w, int i, int group)
{
    for (int k = w->user0[i]; k < w->user0[i + 1]; k++)
        if (w->at[w->user[k]] == group)
            return true;
    return false;
}

static pl_status find_inputs(struct lower *w, int first, int group,
                             struct inputs *in)
{
    in->num = arena_alloc(w->a, (size_t)w->num->n, sizeof *in->num);
    in->held = arena_alloc(w->a, (size_t)w->num->n, sizeof(struct held *));
    if (!in->num || !in->held)
        return err_no_memory(w->err, "a program");
    for (int i = 0; i < w->num->n; i++)
        if (is_input(w, i) && (i == first || is_read(w, i, group))) {
            PL_TRY(lower_hold(w, i, group, &in->held[in->n]));
            in->num[in->n++] = i;
        }
    return PL_OK;
}

/* A block of unit u: inputs one after another. */
static pl_status make_block(struct lower *w, int u, const struct inputs *in,
                            bool given, int *block, struct lower_pieces *p)
{
    int d = w->unit[u].u.dev;
    struct lower_pieces none = {0};
    size_t at = 0;
    pl_dim size = {0, PL_CONST}, dim[GRAPH_MAX_DIM];

    for (int k = 0; k < in->n; k++) {
        const struct num_node *n = &w->num->node[in->num[k]];

        lower_dims(w, u, in->num[k], dim);
        size.n += (int64_t)(at_most(w, w->g->node[n->node].n_dim, dim) + 63) /
                  64 * 16;
    }
    if (given)
        PL_TRY(lower_mail(w, d, PL_I32, 1, &size, -1, 0, block));
    else
        PL_TRY(lower_tensor(w, d, PL_I32, 1, &size, 1, block, NULL));
    for (int k = 0; k < in->n; k++) {
        const struct graph_node *x = &w->g->node[w->num->node[in->num[k]].node];
        int *t = &in->held[k]->h.v[w->unit[u].local].tensor, first = p->n;

        lower_dims(w, u, in->num[k], dim);
        PL_TRY(lower_alias(w, d, *block, x->n_dim, dim, at, t));
        w->dev[d].tensor[*t].format = x->format;
        w->dev[d].tensor[*t].bytes = at_most(w, x->n_dim, dim);
        PL_TRY(
            lower_pieces(w, u, io_group(w), in->num[k], in->num[k], &none, p));
        for (int j = first; j < p->n; j++)
            p->p[j].dst_at += (int64_t)at;
        at += (at_most(w, x->n_dim, dim) + 63) / 64 * 64;
    }
    return PL_OK;
}

/* The device does not go on before its block is there: it has nothing to do
 * without it. */
static pl_status bring(struct lower *w, int u, const struct inputs *in)
{
    int d = w->unit[u].u.dev, block, event;
    bool given = !lower_reads(w, d, io_dev(w));
    struct lower_pieces p = {0};
    struct step s = {.queue = QUEUE_COMPUTE,
                     .node = w->num->node[in->num[0]].node};

    PL_TRY(make_block(w, u, in, given, &block, &p));
    if (!given) {
        s.kind = STEP_PULL;
        s.pull = (struct step_pull){.out = block, .piece = p.p, .n_piece = p.n};
        return lower_step(w, d, &s);
    }
    PL_TRY(push(w, io_dev(w), s.node, (struct push_to){d, block, 0}, p.p, p.n));
    PL_TRY(lower_post(w, io_dev(w), QUEUE_COMPUTE, &event));
    return lower_wait(w, d, QUEUE_COMPUTE, io_dev(w), event);
}

pl_status lower_input(struct lower *w, int i, int group)
{
    const struct lower_group *g = &w->opt->group[group];
    struct inputs in = {0};

    PL_TRY(find_inputs(w, i, group, &in));
    for (int u = g->first; u < g->first + g->n; u++)
        PL_TRY(bring(w, u, &in));
    return PL_OK;
}

/* ---- results ------------------------------------------------------------- */

pl_status lower_result(struct lower *w, int i)
{
    int node = w->num->node[i].node, *out;
    const struct graph_node *x = &w->g->node[node];
    const struct held *h = lower_find(w, i, w->at[i]);
    struct lower_pieces none = {0}, p = {0};

    if (!(x->output || x->keep) || x->op == OP_cache_write ||
        w->num->value[node] != i)
        return PL_OK;
    out =
        &w->out->way[w->way]
             .result[(size_t)w->instance * (size_t)w->g->n_node + (size_t)node];
    /* born before the run begins, it shares its place with no other one */
    PL_TRY(lower_mail(w, io_dev(w), x->format, x->n_dim, x->dim, -1, 0, out));
    PL_TRY(lower_pieces(w, io_unit(w), w->at[i], i, i, &none, &p));
    for (int k = 0, n; k < p.n; k += n) {
        int d = p.p[k].src_dev;

        n = lower_run_of(p.p + k, p.n - k);
        PL_TRY(lower_arrive(w, h, lower_unit_of(w, w->at[i], d)));
        PL_TRY(
            push(w, d, node, (struct push_to){io_dev(w), *out, 0}, p.p + k, n));
    }
    return PL_OK;
}
