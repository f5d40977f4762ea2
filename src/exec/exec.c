/* pl_exec: creation, values in and out, steps. */
#include "exec/exec.h"

#include "base/err.h"
#include "device/cpu/cpu_ops.h"
#include "exec/cache_io.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a step or a range needs, so that neither allocates: the tables of
 * inputs, outputs and kept values, and a page on its way. */
static pl_status tables(pl_exec *x, pl_err *err)
{
    const struct planned *p = x->plan;
    const pl_graph *g = p->g;
    size_t page = 1;

    x->active = arena_alloc(&x->arena, (size_t)p->list.n, sizeof *x->active);
    x->ranks = arena_alloc(&x->arena, (size_t)p->list.n, sizeof *x->ranks);
    x->local = arena_alloc(&x->arena, (size_t)g->n_node + 1, sizeof *x->local);
    x->zeros = calloc((size_t)p->max.n_tok + 1, sizeof *x->zeros);
    if (!x->active || !x->ranks || !x->local || !x->zeros)
        return err_no_memory(err, "an executor");
    for (int d = 0; d < p->list.n; d++)
        if (p->low->dev_ranks[d]) { /* idle devices hold nothing */
            x->active[x->n_active] = d;
            x->ranks[x->n_active++] = p->low->dev_ranks[d];
        }
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];
        int v = p->num->value[i];
        const pl_layout *l = v >= 0 ? p->num->node[v].layout : NULL;
        struct layout_local *t;

        x->has_cache |= n->op == OP_cache;
        if (n->op == OP_cache && n->dim[1].n * (int64_t)cpu_cache_tile_bytes(
                                                   n->format, n->dim[2].n) >
                                     (int64_t)page)
            page = (size_t)n->dim[1].n *
                   cpu_cache_tile_bytes(n->format, n->dim[2].n);
        if (!l || l->kind != PL_SPLIT ||
            !(n->op == OP_input || n->output || n->keep))
            continue;
        t = arena_alloc(&x->arena, (size_t)x->n_active, sizeof *t);
        if (!t)
            return err_no_memory(err, "an executor");
        for (int d = 0; d < x->n_active; d++)
            if (!layout_local_init(&t[d], &x->arena, l, n->dim[l->dim].n,
                                   x->ranks[d]))
                return err_no_memory(err, "an executor");
        x->local[i] = t;
    }
    x->page = malloc(page);
    return x->page ? PL_OK : err_no_memory(err, "an executor");
}

pl_status exec_create(pl_exec **out, struct planned *p, const pl_options *opt,
                      pl_err *err)
{
    struct device_options dopt = {.no_pin = opt->no_pin,
                                  .family = p->kernels.family,
                                  .sim_seed = opt->sim_seed};
    pl_exec *x = calloc(1, sizeof *x);
    pl_status s;

    *out = NULL;
    if (!x)
        return err_no_memory(err, "an executor");
    x->plan = p;
    if (p->paper) {
        s = err_set(err, PL_BAD_ARGUMENT,
                    "a machine that is only described can be planned for, "
                    "not run on; leave out the device description");
        goto done;
    }
    s = tables(x, err);
    if (s == PL_OK)
        s = device_set_create(&x->set, &p->list, &dopt, err);
    if (s == PL_OK)
        s = device_set_load(x->set, p->low->prog, err);
done:
    if (s == PL_OK)
        *out = x;
    else
        pl_exec_free(x);
    return s;
}

pl_status pl_exec_create(pl_exec **out, const pl_graph *g,
                         const pl_options *opt, pl_err *err)
{
    const pl_options defaults = {0};
    struct planned *p;
    pl_status s;

    *out = NULL;
    opt = opt ? opt : &defaults;
    PL_TRY(planned_create(&p, g, opt, err));
    s = exec_create(out, p, opt, err);
    if (s == PL_OK)
        (*out)->own_plan = true;
    else
        planned_free(p);
    return s;
}

void pl_exec_free(pl_exec *x)
{
    if (!x)
        return;
    device_set_free(x->set);
    if (x->own_plan)
        planned_free(x->plan);
    free(x->zeros);
    free(x->page);
    arena_fini(&x->arena);
    free(x);
}

/* Ranges ----------------------------------------------------------------- */

static const struct graph_node *node_of(const pl_exec *x, pl_tensor t)
{
    return t >= 0 && t < x->plan->g->n_node ? &x->plan->g->node[t] : NULL;
}

static size_t tensor_bytes(const pl_exec *x, const struct graph_node *n)
{
    struct graph_sizes s = x->last;
    int64_t row = dim_value(n->dim[n->n_dim - 1], &s);

    s.n_slot = x->plan->max.n_slot;
    if (format_info(n->format)->block == 1)
        return format_row_bytes(n->format, 1) * (size_t)graph_count(n, &s);
    return row ? format_row_bytes(n->format, row) *
                     (size_t)(graph_count(n, &s) / row)
               : 0;
}

static pl_status check_range(const pl_exec *x, pl_tensor t, size_t offset,
                             size_t bytes, bool set, pl_err *err)
{
    const struct graph_node *n = node_of(x, t);
    size_t size;

    if (!n)
        return err_set(err, PL_NOT_FOUND, "tensor %d is none of this graph's",
                       (int)t);
    if (n->op != OP_weight && n->op != OP_cache && n->op != OP_input &&
        (set || !(n->output || n->keep)))
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: %s; mark it with pl_keep before it is planned",
                       n->name,
                       set ? "a computed value cannot be set"
                           : "its memory is used again during a step");
    size = n->op == OP_input && set ? 4 * (size_t)graph_count(n, &x->plan->max)
                                    : tensor_bytes(x, n);
    if (offset > size || bytes > size - offset)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: bytes %zu to %zu are asked for, it has %zu",
                       n->name, offset, offset + bytes, size);
    return PL_OK;
}

/* Values of 4 bytes ------------------------------------------------------ */

struct copy {
    pl_exec *x;
    int num;
    const int *dev; /* the devices that carry ranks */
    unsigned char *data;
    int64_t done;
    bool put;
    pl_err *err;
};

static pl_status piece(void *user, const struct layout_piece *p)
{
    struct copy *c = user;
    const struct lowered *l = c->x->plan->low;
    int dev = c->dev[p->dev], t = l->value[dev][c->num].tensor;
    const struct prog_tensor *pt = &l->prog[dev].tensor[t];
    unsigned char *d = c->data + 4 * p->view;
    size_t at;

    if (t < 0)
        return PL_OK;
    at = pt->offset + 4 * (size_t)p->local;
    if (c->put)
        return device_write(c->x->set, dev, pt->region, at, d, 4 * (size_t)p->n,
                            c->err);
    if (p->view < c->done)
        return PL_OK;
    c->done = p->view + p->n;
    return device_read(c->x->set, dev, pt->region, at, d, 4 * (size_t)p->n,
                       c->err);
}

/* Values [v0, v0 + n) of an input, output or kept value. */
static pl_status values(pl_exec *x, const struct graph_node *g, int num,
                        int64_t v0, int64_t n, void *data, bool put,
                        pl_err *err)
{
    struct copy c = {x, num, x->active, data, 0, put, err};
    struct layout_tensor t = {.n_dim = g->n_dim,
                              .layout = x->plan->num->node[num].layout,
                              .n_dev = x->n_active,
                              .dev = x->ranks,
                              .local = x->local[g - x->plan->g->node]};
    struct layout_view view = {1, {n}, {1}, v0};

    for (int d = 0; d < g->n_dim; d++)
        t.dim[d] = dim_value(g->dim[d], put ? &x->plan->max : &x->last);
    return layout_pieces(&t, &view, piece, &c, err);
}

/* Widens a byte range to values, or to rows, by way of a copy. */
static pl_status widened(pl_exec *x, pl_tensor t, unsigned char *data,
                         size_t offset, size_t bytes, size_t unit, bool put,
                         pl_err *err,
                         pl_status (*part)(pl_exec *, pl_tensor, int64_t,
                                           int64_t, void *, bool, pl_err *))
{
    int64_t first = (int64_t)(offset / unit);
    int64_t end = (int64_t)((offset + bytes + unit - 1) / unit);
    size_t before = offset - (size_t)first * unit;
    unsigned char *tmp;
    pl_status s;

    if (bytes == 0)
        return PL_OK;
    if (before == 0 && bytes % unit == 0)
        return part(x, t, first, end - first, data, put, err);
    tmp = calloc((size_t)(end - first), unit);
    if (!tmp)
        return err_no_memory(err, "a range of a tensor");
    s = part(x, t, first, end - first, tmp, false, err);
    if (s == PL_OK && put) {
        memcpy(tmp + before, data, bytes);
        s = part(x, t, first, end - first, tmp, true, err);
    } else if (s == PL_OK) {
        memcpy(data, tmp + before, bytes);
    }
    free(tmp);
    return s;
}

static pl_status value_part(pl_exec *x, pl_tensor t, int64_t first, int64_t n,
                            void *data, bool put, pl_err *err)
{
    return values(x, &x->plan->g->node[t], x->plan->num->value[t], first, n,
                  data, put, err);
}

static pl_status weight_part(pl_exec *x, pl_tensor t, int64_t first, int64_t n,
                             void *data, bool put, pl_err *err)
{
    return put ? exec_put_rows(x, t, first, n, data, err)
               : exec_get_rows(x, t, first, n, data, err);
}

static pl_status cache_part(pl_exec *x, pl_tensor t, int64_t first, int64_t n,
                            void *data, bool put, pl_err *err)
{
    return exec_cache_slots(x, t, first, n, data, put, err);
}

static pl_status range(pl_exec *x, pl_tensor t, unsigned char *data,
                       size_t offset, size_t bytes, bool put, pl_err *err)
{
    const struct graph_node *n = node_of(x, t);

    PL_TRY(check_range(x, t, offset, bytes, put, err));
    if (n->op == OP_weight)
        return widened(x, t, data, offset, bytes,
                       format_row_bytes(n->format, n->dim[n->n_dim - 1].n), put,
                       err, weight_part);
    if (n->op == OP_cache)
        return widened(x, t, data, offset, bytes,
                       (size_t)n->dim[1].n *
                           format_row_bytes(n->format, n->dim[2].n),
                       put, err, cache_part);
    return widened(x, t, data, offset, bytes, 4, put, err, value_part);
}

pl_status pl_tensor_set(pl_exec *x, pl_tensor t, const void *data,
                        size_t offset, size_t bytes, pl_err *err)
{
    return range(x, t, (unsigned char *)data, offset, bytes, true, err);
}

pl_status pl_tensor_get(pl_exec *x, pl_tensor t, void *data, size_t offset,
                        size_t bytes, pl_err *err)
{
    return range(x, t, data, offset, bytes, false, err);
}

/* Steps ------------------------------------------------------------------ */

/* Every page that token i may read or write is one of the cache's. Without a
 * table all tokens share one page, which only a graph with a cache minds. */
static pl_status check_token(const pl_exec *x, const struct cpu_batch *b,
                             const int32_t *pages, int64_t i, pl_err *err)
{
    int32_t pos = b->pos[i], seq = b->seq[i];
    int64_t n_page = x->plan->max.n_slot / CPU_PAGE;
    int64_t from = 0;

    if (seq < 0 || seq >= x->plan->n_seq || pos < 0 ||
        ((pages || x->has_cache) && pos / CPU_PAGE >= b->page_stride) ||
        (!pages && x->has_cache && seq > 0))
        return err_set(err, PL_BAD_ARGUMENT,
                       "token %" PRId64 " of the step: position %d of "
                       "sequence %d has no page in the table",
                       i, pos, seq);
    if (i > 0 && b->seq[i - 1] == seq && b->pos[i - 1] <= pos)
        from = b->pos[i - 1] / CPU_PAGE; /* those before were looked at */
    for (int64_t k = from; pages && k <= pos / CPU_PAGE; k++) {
        int32_t page = pages[seq * b->page_stride + k];

        if (page < 0 || page >= n_page)
            return err_set(err, PL_BAD_ARGUMENT,
                           "token %" PRId64 " of the step: page %d of %" PRId64,
                           i, page, n_page);
    }
    return PL_OK;
}

pl_status pl_exec_step(pl_exec *x, const pl_rows *r, pl_err *err)
{
    const struct planned *p = x->plan;
    struct device_run run = {.n_instance = 1, .n_seq = 1};

    if (r->n_tok < 1 || r->n_tok > p->max.n_tok || r->n_out < 0 ||
        r->n_out > p->max.n_out)
        return err_set(err, PL_BAD_ARGUMENT,
                       "a step of %" PRId64 " tokens and %" PRId64
                       " results; it was planned for 1 to %" PRId64
                       " and 0 to %" PRId64,
                       r->n_tok, r->n_out, p->max.n_tok, p->max.n_out);
    run.sizes[0] = (struct graph_sizes){r->n_tok, r->n_out, p->max.n_slot};
    run.batch[0] = (struct cpu_batch){r->n_tok,
                                      r->n_out,
                                      r->pos ? r->pos : x->zeros,
                                      r->seq ? r->seq : x->zeros,
                                      r->pages ? r->pages : x->zeros,
                                      r->pages ? r->page_stride : 1};
    for (int64_t i = 0; i < r->n_tok; i++) {
        PL_TRY(check_token(x, &run.batch[0], r->pages, i, err));
        if (run.batch[0].seq[i] >= run.n_seq)
            run.n_seq = run.batch[0].seq[i] + 1;
    }
    if (!r->pages)
        run.n_seq = 1;
    x->last = run.sizes[0];
    return device_set_run(x->set, &run, err);
}

void pl_exec_counters(const pl_exec *x, pl_counters *out)
{
    const struct planned *p = x->plan;

    memset(out, 0, sizeof *out);
    device_set_counters(x->set, out);
    for (int i = 0; i < p->num->n; i++) {
        const struct num_node *n = &p->num->node[i];
        const struct graph_node *g = &p->g->node[n->node];
        double bytes;

        if (g->op != OP_weight || n->kind != NUM_OP)
            continue;
        bytes = (double)format_info(g->format)->block_bytes /
                format_info(g->format)->block * (double)graph_count(g, &p->max);
        if (n->layout->kind != PL_SPLIT) {
            out->weight_bytes[0] += (uint64_t)bytes;
            for (int r = 1; r < p->num->n_rank; r++)
                out->replica_bytes[r] += (uint64_t)bytes;
            continue;
        }
        for (int k = 0; k < n->layout->n_run; k++) {
            rankset o = n->layout->run[k].owners;
            double part = bytes * (double)n->layout->run[k].len /
                          (double)n->layout->period;

            out->weight_bytes[rank_first(o)] += (uint64_t)part;
            for (o &= o - 1; o; o &= o - 1)
                out->replica_bytes[rank_first(o)] += (uint64_t)part;
        }
    }
}
