/* Orders the steps and writes the programs.
 *
 * PARTIAL values and conversions are put off until somebody reads a summed
 * value. Then all conversions that wait travel as one message, after the
 * PARTIAL values they need have been computed: a contraction that is reduced
 * at once adds its ranks in the kernel; anything longer runs once a rank, each
 * rank's result going onto a stack of subtree sums. Everything else is one
 * step for all of a device's ranks, in the order of the numeric plan. */
#include "exec/lower.h"

#include "base/err.h"
#include "exec/lower_inner.h"

#include <stdlib.h>
#include <string.h>

/* Drafts ----------------------------------------------------------------- */

static bool grow(void **p, int n, int *cap, size_t size)
{
    int c = *cap ? 2 * *cap : 256;
    void *q;

    if (n < *cap)
        return true;
    q = realloc(*p, (size_t)c * size);
    if (!q)
        return false;
    *p = q;
    *cap = c;
    return true;
}

void lower_dims(const struct lower *w, int d, int i, pl_dim *dim)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];

    memcpy(dim, x->dim, sizeof x->dim);
    if (n->layout->kind == PL_SPLIT)
        dim[n->layout->dim].n = layout_local_size(
            n->layout, x->dim[n->layout->dim].n, w->dev[d].ranks);
}

pl_status lower_local(struct lower *w, int d, int i, int dim,
                      struct layout_local *out)
{
    const struct num_node *n = &w->num->node[i];
    const pl_layout *l = n->layout;

    if (l->kind == PL_SPLIT && l->dim != dim)
        l = &layout_mirrored;
    return layout_local_init(out, w->a, l, w->g->node[n->node].dim[dim].n,
                             w->dev[d].ranks)
               ? PL_OK
               : err_no_memory(w->err, "a program");
}

pl_dim lower_product(const pl_dim *dim, int from, int to, int64_t factor)
{
    pl_dim p = {factor, PL_CONST};

    for (int i = from; i < to; i++) {
        p.n *= dim[i].n;
        if (dim[i].symbol != PL_CONST)
            p.symbol = dim[i].symbol;
    }
    return p;
}

static pl_status add_tensor(struct lower *w, int d, const struct prog_tensor *t,
                            int buffer, size_t inside, int *out)
{
    struct draft *v = &w->dev[d];
    int cap = v->tensor_cap, c = cap;

    if (!grow((void **)&v->tensor, v->n_tensor, &c, sizeof *v->tensor))
        return err_no_memory(w->err, "a program");
    c = cap;
    if (!grow((void **)&v->buffer, v->n_tensor, &c, sizeof *v->buffer))
        return err_no_memory(w->err, "a program");
    c = cap;
    if (!grow((void **)&v->inside, v->n_tensor, &c, sizeof *v->inside))
        return err_no_memory(w->err, "a program");
    c = cap;
    if (!grow((void **)&v->q8, v->n_tensor, &c, sizeof *v->q8))
        return err_no_memory(w->err, "a program");
    v->tensor_cap = c;
    v->tensor[v->n_tensor] = *t;
    v->buffer[v->n_tensor] = buffer;
    v->inside[v->n_tensor] = inside;
    v->q8[v->n_tensor] = -1;
    *out = v->n_tensor++;
    return PL_OK;
}

/* entries: 0 = outside the work region; -1 = bytes, not elements, in dim. */
pl_status lower_tensor(struct lower *w, int d, pl_format f, int n_dim,
                       const pl_dim *dim, int entries, int *out, size_t *stride)
{
    struct draft *v = &w->dev[d];
    struct prog_tensor t = {.format = f, .n_dim = n_dim, .region = REGION_WORK};
    size_t one;
    int b = -1;

    memcpy(t.dim, dim, (size_t)n_dim * sizeof *dim);
    t.bytes = entries ? (size_t)dim_value(lower_product(dim, 0, n_dim, 1),
                                          &w->opt->max) *
                            (entries < 0 ? 1 : 4)
                      : 0;
    one = (t.bytes + 63) / 64 * 64;
    if (stride)
        *stride = one;
    if (entries) {
        if (!grow((void **)&v->buf, v->n_buf, &v->buf_cap, sizeof *v->buf))
            return err_no_memory(w->err, "a program");
        b = v->n_buf++;
        v->buf[b] = (struct buffer){one * (size_t)(entries < 0 ? 1 : entries),
                                    v->n_step, v->n_step, 0};
    }
    return add_tensor(w, d, &t, b, 0, out);
}

pl_status lower_alias(struct lower *w, int d, int tensor, int n_dim,
                      const pl_dim *dim, size_t offset, int *out)
{
    const struct draft *v = &w->dev[d];
    struct prog_tensor t = v->tensor[tensor];

    t.n_dim = n_dim;
    memset(t.dim, 0, sizeof t.dim);
    memcpy(t.dim, dim, (size_t)n_dim * sizeof *dim);
    if (v->buffer[tensor] < 0)
        t.offset += offset;
    return add_tensor(w, d, &t, v->buffer[tensor], v->inside[tensor] + offset,
                      out);
}

void lower_use(struct draft *v, int tensor, int at)
{
    int b = tensor >= 0 ? v->buffer[tensor] : -1;

    if (b >= 0 && v->buf[b].death < at)
        v->buf[b].death = at;
}

pl_status lower_step(struct lower *w, int d, const struct step *s)
{
    struct draft *v = &w->dev[d];

    if (!grow((void **)&v->step, v->n_step, &v->step_cap, sizeof *v->step))
        return err_no_memory(w->err, "a program");
    for (int i = 0; i < s->n_in; i++)
        lower_use(v, s->in[i], v->n_step);
    if (s->kind == STEP_OP || s->kind == STEP_Q8 || s->kind == STEP_PULL) {
        lower_use(v, s->q8, v->n_step);
        lower_use(v, s->out, v->n_step);
    }
    for (int i = 0; i < s->n_merge; i++) {
        lower_use(v, s->merge[i].out, v->n_step);
        for (int k = 0; s->merge[i].reduce && k < s->merge[i].n_addend; k++)
            if (s->merge[i].addend[k].dev == d)
                lower_use(v, s->merge[i].addend[k].tensor, v->n_step);
        for (int k = 0; !s->merge[i].reduce && k < s->merge[i].n_piece; k++)
            if (s->merge[i].piece[k].src_dev == d)
                lower_use(v, s->merge[i].piece[k].src, v->n_step);
    }
    v->step[v->n_step] = *s;
    if (!s->meet)
        v->step[v->n_step].order = w->order++;
    v->n_step++;
    return PL_OK;
}

/* Presence --------------------------------------------------------------- */

/* Which ranks have an addend of each PARTIAL value. A contraction has one
 * where the rank's slice is not empty; one that flows on through other ops
 * also has rank 0's, perhaps of zeros, so that what must be added once has a
 * place. */
static pl_status find_presence(struct lower *w)
{
    const struct numeric *p = w->num;

    w->present = arena_alloc(w->a, (size_t)p->n + 1, sizeof *w->present);
    w->lone = arena_alloc(w->a, (size_t)p->n + 1, sizeof *w->lone);
    if (!w->present || !w->lone)
        return err_no_memory(w->err, "a program");
    for (int i = 0; i < p->n; i++)
        w->lone[i] = p->node[i].sum != NULL &&
                     w->g->node[p->node[i].node].op != OP_custom;
    for (int i = 0; i < p->n; i++)
        for (int k = 0;
             p->node[i].kind == NUM_OP &&
             p->node[i].layout->kind == PL_PARTIAL && k < p->node[i].n_in;
             k++)
            if (p->node[i].in[k] >= 0)
                w->lone[p->node[i].in[k]] = false;
    for (int i = 0; i < p->n; i++) {
        const struct num_node *n = &p->node[i];
        bool all_partial = true;

        if (n->kind != NUM_OP || n->layout->kind != PL_PARTIAL)
            continue;
        if (n->sum) {
            for (int k = 0; k < n->sum->n_run; k++)
                w->present[i] |= (uint64_t)1
                                 << rank_first(n->sum->run[k].owners);
            if (!w->lone[i])
                w->present[i] |= 1;
            continue;
        }
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] < 0)
                continue;
            if (p->node[n->in[k]].layout->kind == PL_PARTIAL)
                w->present[i] |= w->present[n->in[k]];
            else
                all_partial = false;
        }
        if (graph_partial(&w->g->node[n->node]) == OP_SUM && !all_partial)
            w->present[i] |= 1;
    }
    return PL_OK;
}

/* Ops -------------------------------------------------------------------- */

/* The tensor of operand k of op i, of a weight in the form that the op reads;
 * -1: absent. */
static int operand(const struct lower *w, int d, int i, int k)
{
    const struct num_node *n = &w->num->node[i];
    enum op op = w->g->node[n->node].op;
    const struct lowered_value *y;

    if (n->in[k] < 0)
        return -1;
    y = &w->dev[d].value[n->in[k]];
    if (y->plain >= 0 && !lower_reads_packed(op, k, PL_F32) &&
        !(op == OP_gather_rows && k == 0))
        return y->plain;
    return y->tensor;
}

static pl_status op_everywhere(struct lower *w, int i)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];

    for (int d = 0; d < w->opt->n_dev; d++) {
        struct draft *v = &w->dev[d];
        int in[GRAPH_MAX_IN] = {-1, -1, -1, -1}, out;
        pl_dim dim[GRAPH_MAX_DIM];

        if (v->n_rank == 0)
            continue;
        for (int k = 0; k < n->n_in; k++)
            in[k] = operand(w, d, i, k);
        lower_dims(w, d, i, dim);
        if (x->op == OP_reshape) {
            PL_TRY(lower_alias(w, d, in[0], x->n_dim, dim, 0, &out));
            v->value[i].tensor = out;
            continue;
        }
        if (x->op == OP_cache_write)
            out = in[0];
        else
            PL_TRY(lower_tensor(w, d, x->format, x->n_dim, dim, 1, &out, NULL));
        v->value[i].tensor = out;
        PL_TRY(lower_op(w, d, i, in, out, NULL, 0, true));
    }
    return PL_OK;
}

/* PARTIAL regions -------------------------------------------------------- */

struct region_run {
    const int *node; /* PARTIAL num nodes needed, ascending */
    int n;
    const bool *exit; /* [num->n] its value is reduced now */
};

/* A contraction that is reduced at once: its ranks are added in the kernel. */
static pl_status lone_contraction(struct lower *w, int d, int i)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];
    struct draft *v = &w->dev[d];
    int in[GRAPH_MAX_IN] = {-1, -1, -1, -1}, out;
    struct rank_tree t;
    size_t stride;

    if (!rank_tree_make(&t, w->a, w->num->n_rank, w->present[i], v->rank0,
                        v->n_rank))
        return err_no_memory(w->err, "a program");
    v->addends[i].tensor = -1;
    if (t.n == 0)
        return PL_OK;
    PL_TRY(lower_tensor(w, d, x->format, x->n_dim, x->dim, t.n_out, &out,
                        &stride));
    v->addends[i].tensor = out;
    v->addends[i].stride = stride;
    for (int k = 0; k < n->n_in; k++)
        in[k] = operand(w, d, i, k);
    return lower_op(w, d, i, in, out, &t, stride, true);
}

static pl_status plain_step(struct lower *w, int d, enum op op, int a, int b,
                            int out, float scale)
{
    static const struct rank_item item = {0, 0};
    struct step s = {.kind = STEP_OP,
                     .op = op,
                     .node = -1,
                     .out = out,
                     .n_in = b >= 0 ? 2 : 1,
                     .in = {a, b, -1, -1},
                     .q8 = -1,
                     .attr = {.scale = scale},
                     .tree = {1, 1, &item, 1}};

    return lower_step(w, d, &s);
}

/* A PARTIAL op for one rank, into `out`. in[k] < 0: that addend is absent. */
static pl_status rank_op(struct lower *w, int d, int i, int r, const int *in,
                         int out)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];

    if (n->sum) {
        struct rank_item *item = arena_alloc(w->a, 1, sizeof *item);
        struct rank_tree t = {1, 1, item, 1};

        if (!item)
            return err_no_memory(w->err, "a program");
        item->rank = r;
        return lower_op(w, d, i, in, out, &t, 0, false);
    }
    if (x->op != OP_custom && graph_partial(x) == OP_SUM &&
        (in[0] < 0 || in[1] < 0)) {
        int a = in[0] >= 0 ? in[0] : in[1];

        PL_TRY(plain_step(w, d, OP_contiguous, a, -1, out, 0));
        if (in[0] < 0 && x->op == OP_sub)
            PL_TRY(plain_step(w, d, OP_scale, out, -1, out, -1));
        return PL_OK;
    }
    if (x->op == OP_reshape) { /* the same values under other dimensions */
        int a;

        PL_TRY(lower_alias(w, d, in[0], x->n_dim, x->dim, 0, &a));
        return plain_step(w, d, OP_contiguous, a, -1, out, 0);
    }
    return lower_op(w, d, i, in, out, NULL, 0, false);
}

struct stack {
    struct rank_tree tree;
    int base;      /* tensor of entry 0 */
    int entry[72]; /* tensors of the entries */
    int top, next; /* height; index of the next tree item */
};

/* Runs the nodes that do not add their ranks in the kernel, rank by rank. */
static pl_status rank_loop(struct lower *w, int d, const struct region_run *g)
{
    struct draft *v = &w->dev[d];
    struct stack *st = arena_alloc(w->a, (size_t)g->n + 1, sizeof *st);
    int *tensor = arena_alloc(w->a, (size_t)g->n + 1, sizeof *tensor);
    int *place = arena_alloc(w->a, (size_t)w->num->n + 1, sizeof *place);

    if (!st || !tensor || !place)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < g->n; k++) {
        int i = g->node[k];
        const struct graph_node *x = &w->g->node[w->num->node[i].node];

        place[i] = k;
        tensor[k] = -1;
        if (w->lone[i] && g->exit[i])
            continue;
        if (!g->exit[i]) {
            PL_TRY(lower_tensor(w, d, x->format, x->n_dim, x->dim, 1,
                                &tensor[k], NULL));
            continue;
        }
        if (!rank_tree_make(&st[k].tree, w->a, w->num->n_rank, w->present[i],
                            v->rank0, v->n_rank))
            return err_no_memory(w->err, "a program");
        v->addends[i].tensor = -1;
        if (st[k].tree.n == 0)
            continue;
        PL_TRY(lower_tensor(w, d, x->format, x->n_dim, x->dim, st[k].tree.depth,
                            &st[k].base, &v->addends[i].stride));
        v->addends[i].tensor = st[k].base;
        for (int e = 0; e < st[k].tree.depth; e++)
            PL_TRY(lower_alias(w, d, st[k].base, x->n_dim, x->dim,
                               (size_t)e * v->addends[i].stride,
                               &st[k].entry[e]));
    }
    for (int r = v->rank0; r < v->rank0 + v->n_rank; r++) {
        for (int k = 0; k < g->n; k++) {
            int i = g->node[k];
            const struct num_node *n = &w->num->node[i];
            int in[GRAPH_MAX_IN] = {-1, -1, -1, -1};

            if ((w->lone[i] && g->exit[i]) || !(w->present[i] >> r & 1))
                continue;
            if (g->exit[i])
                tensor[k] = st[k].entry[st[k].top];
            for (int j = 0; j < n->n_in; j++) {
                int u = n->in[j];

                if (u < 0)
                    continue;
                if (w->num->node[u].layout->kind == PL_PARTIAL)
                    in[j] = w->present[u] >> r & 1 ? tensor[place[u]] : -1;
                else if (graph_partial(&w->g->node[n->node]) != OP_SUM ||
                         r == 0)
                    in[j] = operand(w, d, i, j);
            }
            PL_TRY(rank_op(w, d, i, r, in, tensor[k]));
        }
        for (int k = 0; k < g->n; k++) {
            int i = g->node[k];

            if (!g->exit[i] || w->lone[i] || !(w->present[i] >> r & 1))
                continue;
            st[k].top++;
            for (int m = st[k].tree.item[st[k].next++].n_add; m > 0; m--) {
                int a = st[k].entry[st[k].top - 2];

                PL_TRY(plain_step(w, d, OP_add, a, st[k].entry[st[k].top - 1],
                                  a, 0));
                st[k].top--;
            }
        }
    }
    return PL_OK;
}

/* Order ------------------------------------------------------------------ */

struct order {
    bool *waits; /* [num->n] a conversion not yet sent */
    int *item;   /* those, in order */
    int n_item;
    bool *need, *exit;
    int *node;
};

/* One device: nothing to send; a conversion is another name, or a copy. */
static pl_status alone(struct lower *w, const struct order *o)
{
    for (int k = 0; k < o->n_item; k++) {
        int i = o->item[k], from = w->num->node[i].in[0];
        struct draft *v = &w->dev[0];

        if (w->num->node[from].layout->kind == PL_PARTIAL)
            v->value[i].tensor = v->addends[from].tensor;
        else
            v->value[i] = v->value[from];
    }
    return PL_OK;
}

/* All that waits: its PARTIAL sources first, then one message. */
static pl_status flush(struct lower *w, struct order *o)
{
    const struct numeric *p = w->num;
    struct region_run g = {.node = o->node, .exit = o->exit};
    int last = -1;

    if (o->n_item == 0)
        return PL_OK;
    memset(o->need, 0, (size_t)p->n);
    memset(o->exit, 0, (size_t)p->n);
    for (int k = 0; k < o->n_item; k++) {
        int from = p->node[o->item[k]].in[0];

        if (p->node[from].layout->kind == PL_PARTIAL) {
            o->need[from] = o->exit[from] = true;
            last = from > last ? from : last;
        }
    }
    for (int i = last; i >= 0; i--)
        for (int k = 0; o->need[i] && k < p->node[i].n_in; k++)
            if (p->node[i].in[k] >= 0 &&
                p->node[p->node[i].in[k]].layout->kind == PL_PARTIAL)
                o->need[p->node[i].in[k]] = true;
    for (int i = 0; i <= last; i++)
        if (o->need[i])
            o->node[g.n++] = i;
    for (int d = 0; d < w->opt->n_dev; d++) {
        bool loop = false;

        if (w->dev[d].n_rank == 0)
            continue;
        for (int k = 0; k < g.n; k++)
            if (w->lone[g.node[k]] && o->exit[g.node[k]])
                PL_TRY(lone_contraction(w, d, g.node[k]));
            else
                loop = true;
        if (loop)
            PL_TRY(rank_loop(w, d, &g));
    }
    PL_TRY(w->opt->n_dev > 1 ? lower_message(w, o->n_item, o->item)
                             : alone(w, o));
    for (int k = 0; k < o->n_item; k++)
        o->waits[o->item[k]] = false;
    o->n_item = 0;
    return PL_OK;
}

static pl_status order_steps(struct lower *w)
{
    const struct numeric *p = w->num;
    size_t n = (size_t)p->n + 1;
    struct order o = {
        .waits = arena_alloc(w->a, n, sizeof *o.waits),
        .item = arena_alloc(w->a, n, sizeof *o.item),
        .need = arena_alloc(w->a, n, sizeof *o.need),
        .exit = arena_alloc(w->a, n, sizeof *o.exit),
        .node = arena_alloc(w->a, n, sizeof *o.node),
    };

    if (!o.waits || !o.item || !o.need || !o.exit || !o.node)
        return err_no_memory(w->err, "a program");
    for (int i = 0; i < p->n; i++) {
        const struct num_node *x = &p->node[i];
        bool send = false;

        if (x->kind == NUM_OP && !op_info(w->g->node[x->node].op)->dims)
            continue; /* leaves lie where they are */
        for (int k = 0; k < x->n_in; k++)
            send |= x->in[k] >= 0 && o.waits[x->in[k]];
        if (send)
            PL_TRY(flush(w, &o));
        if (x->kind == NUM_SLICE) {
            for (int d = 0; d < w->opt->n_dev; d++)
                if (w->dev[d].n_rank)
                    PL_TRY(lower_slice(w, d, i));
        } else if (x->kind != NUM_OP) {
            o.waits[i] = true;
            o.item[o.n_item++] = i;
        } else if (x->layout->kind != PL_PARTIAL) {
            PL_TRY(op_everywhere(w, i));
        }
    }
    return flush(w, &o);
}

/* Programs --------------------------------------------------------------- */

static pl_status finish(struct lower *w, int d)
{
    struct draft *v = &w->dev[d];
    struct program *p = &w->out->prog[d];
    struct script *c = arena_alloc(w->a, 1, sizeof *c);
    struct prog_death *death;
    size_t work;

    for (int i = 0; i < w->g->n_node; i++) { /* read by the host afterwards */
        int n = w->num->value[i];
        const struct graph_node *x = &w->g->node[i];

        if (n < 0)
            continue;
        if (x->op == OP_input) { /* written before the first step */
            int t = v->value[n].tensor;

            if (t >= 0 && v->buffer[t] >= 0)
                v->buf[v->buffer[t]].birth = -1;
        }
        if (x->output || x->keep)
            lower_use(v, v->value[n].tensor, v->n_step);
    }
    for (int k = 0; k < v->n_peers; k++) /* no later message guards these */
        lower_use(v, v->peers[k], v->n_step);
    if (!buffers_place(v->buf, v->n_buf, &work))
        return err_no_memory(w->err, "a program");
    for (int t = 0; t < v->n_tensor; t++)
        if (v->buffer[t] >= 0)
            v->tensor[t].offset = v->buf[v->buffer[t]].offset + v->inside[t];
    if (!buffers_barriers(v->step, v->n_step, v->tensor, d))
        return err_no_memory(w->err, "a program");
    death = arena_alloc(w->a, (size_t)v->n_buf + 1, sizeof *death);
    p->tensor =
        arena_memdup(w->a, v->tensor, (size_t)v->n_tensor, sizeof *p->tensor);
    if (!death || !p->tensor || !c)
        return err_no_memory(w->err, "a program");
    c->step = arena_memdup(w->a, v->step, (size_t)v->n_step, sizeof *c->step);
    if (!c->step)
        return err_no_memory(w->err, "a program");
    p->dev = d;
    p->active = v->n_rank > 0;
    p->n_tensor = v->n_tensor;
    p->n_script = 1;
    p->script = c;
    p->n_event = 2 * w->out->n_message;
    p->n_group = 1;
    c->n_instance = 1;
    c->n_step = v->n_step;
    c->death = death;
    for (int b = 0; b < v->n_buf; b++)
        if (v->buf[b].bytes && v->buf[b].death < v->n_step)
            death[c->n_death++] = (struct prog_death){
                v->buf[b].death, v->buf[b].offset, v->buf[b].bytes};
    p->bytes[REGION_WEIGHTS] = v->weights;
    p->bytes[REGION_CACHE] = v->cache;
    p->bytes[REGION_WORK] = work;
    p->max = w->opt->max;
    p->n_seq = w->opt->n_seq;
    p->page_stride = w->opt->page_stride;
    return PL_OK;
}

static int by_step(const void *a, const void *b)
{
    const struct prog_death *x = a, *y = b;

    if (x->step != y->step)
        return (x->step > y->step) - (x->step < y->step);
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static pl_status draft_init(struct lower *w, int d)
{
    struct draft *v = &w->dev[d];
    size_t n = (size_t)w->num->n + 1;

    v->rank0 = w->opt->rank0[d];
    v->n_rank = w->opt->n_rank[d];
    v->ranks = v->n_rank ? ranks_all(v->n_rank) << v->rank0 : 0;
    w->out->dev_ranks[d] = v->ranks;
    v->value = arena_alloc(w->a, n, sizeof *v->value);
    v->addends = arena_alloc(w->a, n, sizeof *v->addends);
    if (!v->value || !v->addends)
        return err_no_memory(w->err, "a program");
    w->out->value[d] = v->value;
    for (size_t i = 0; i < n; i++) {
        v->value[i] = (struct lowered_value){-1, -1};
        v->addends[i].tensor = -1;
    }
    return PL_OK;
}

pl_status lower(struct lowered **out, const struct numeric *num,
                const struct lower_options *opt, pl_err *err)
{
    struct lowered *o = calloc(1, sizeof *o);
    struct lower w = {
        .num = num, .g = num->g, .opt = opt, .out = o, .err = err};
    size_t n_dev = (size_t)opt->n_dev;
    pl_status s = PL_OK;

    *out = NULL;
    if (!o)
        return err_no_memory(err, "programs");
    w.a = &o->arena;
    o->num = num;
    o->n_dev = opt->n_dev;
    o->dev_ranks = arena_alloc(w.a, n_dev, sizeof *o->dev_ranks);
    o->prog = arena_alloc(w.a, n_dev, sizeof *o->prog);
    o->value = arena_alloc(w.a, n_dev, sizeof *o->value);
    o->message = arena_alloc(w.a, (size_t)num->n + 1, sizeof *o->message);
    w.dev = arena_alloc(w.a, n_dev, sizeof *w.dev);
    w.peer = arena_alloc(w.a, n_dev, sizeof *w.peer);
    if (!o->dev_ranks || !o->prog || !o->value || !o->message || !w.dev ||
        !w.peer) {
        s = err_no_memory(err, "programs");
        goto done;
    }
    for (int d = 0; d < opt->n_dev && s == PL_OK; d++) {
        s = draft_init(&w, d);
        if (opt->n_rank[d])
            w.peer[w.n_peer++] = d;
    }
    if (s == PL_OK)
        s = find_presence(&w);
    if (s == PL_OK)
        s = lower_leaves(&w);
    if (s == PL_OK)
        s = order_steps(&w);
    for (int d = 0; d < opt->n_dev && s == PL_OK; d++) {
        s = finish(&w, d);
        if (s == PL_OK)
            qsort((struct prog_death *)o->prog[d].script->death,
                  (size_t)o->prog[d].script->n_death,
                  sizeof *o->prog[d].script->death, by_step);
    }
done:
    for (int d = 0; w.dev && d < opt->n_dev; d++) {
        free(w.dev[d].step);
        free(w.dev[d].tensor);
        free(w.dev[d].buffer);
        free(w.dev[d].inside);
        free(w.dev[d].q8);
        free(w.dev[d].buf);
    }
    if (s == PL_OK)
        *out = o;
    else
        lowered_free(o);
    return s;
}

void lowered_free(struct lowered *l)
{
    if (!l)
        return;
    arena_fini(&l->arena);
    free(l);
}
