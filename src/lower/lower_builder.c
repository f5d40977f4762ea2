/* Builds a device's program: tensors, their buffers, and instructions. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <string.h>

/* Shapes ----------------------------------------------------------------- */

void lower_dims(const struct lower *w, int u, int i, pl_dim *dim)
{
    const struct num_node *n = &w->num->node[i];
    const struct graph_node *x = &w->g->node[n->node];

    memcpy(dim, x->dim, sizeof x->dim);
    if (n->layout->kind == PL_SPLIT)
        dim[n->layout->dim].n = layout_local_size(
            n->layout, x->dim[n->layout->dim].n, w->shard[u].u.ranks);
}

pl_status lower_local(struct lower *w, int u, int i, int dim,
                      struct layout_local *out)
{
    const struct num_node *n = &w->num->node[i];
    const pl_layout *l = n->layout;

    if (l->kind == PL_SPLIT && l->dim != dim)
        l = &layout_mirrored;
    (void)layout_local_init(out, w->a, l, w->g->node[n->node].dim[dim].n,
                            w->shard[u].u.ranks);
    return lower_memory(w);
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

void lower_add_bytes(pl_dim sum[2], pl_dim b)
{
    int k = b.symbol == PL_N_OUT;

    if (b.symbol == PL_CONST && sum[0].n > 0 && sum[0].symbol != PL_CONST)
        k = 1; /* rare: a constant besides n_tok uses the other entry */
    if (sum[k].n == 0 || sum[k].symbol == b.symbol)
        sum[k] = (pl_dim){sum[k].n + b.n, b.symbol};
    else
        sum[!k] = (pl_dim){sum[!k].n + b.n, b.symbol};
}

/* Tensors and buffers ---------------------------------------------------- */

static pl_status add_tensor(struct lower *w, int d, const struct prog_tensor *t,
                            int buffer, int *out)
{
    struct program_builder *v = &w->dev[d];
    size_t n = (size_t)v->n_tensor;

    /* The programs keep the tensors. */
    v->tensor = arena_extended(w->a, v->tensor, n, sizeof *v->tensor);
    v->in_buffer =
        arena_extended(&w->scratch, v->in_buffer, n, sizeof *v->in_buffer);
    v->q8 = arena_extended(&w->scratch, v->q8, n, sizeof *v->q8);
    PL_TRY(lower_memory(w));
    v->tensor[n] = *t;
    v->tensor[n].micro = w->now.micro;
    v->in_buffer[n] = buffer;
    v->q8[n] = (struct draft_q8){.tensor = -1};
    *out = v->n_tensor++;
    return PL_OK;
}

pl_status lower_tensor(struct lower *w, int d, pl_format f, int n_dim,
                       const pl_dim *dim, int entries, int *out, size_t *stride)
{
    struct program_builder *v = &w->dev[d];
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
        v->buffer = arena_extended(&w->scratch, v->buffer, (size_t)v->n_buffer,
                                   sizeof *v->buffer);
        PL_TRY(lower_memory(w));
        b = v->n_buffer++;
        v->buffer[b] = (struct prog_buffer){
            one * (size_t)(entries < 0 ? 1 : entries), REGION_WORK,
            w->variant.index, w->variant.order};
    }
    return add_tensor(w, d, &t, b, out);
}

void lower_to_inbox(struct program_builder *v, int t, int born)
{
    struct prog_buffer *b = &v->buffer[v->in_buffer[t]];

    b->region = v->tensor[t].region = REGION_INBOX;
    b->born = born;
}

pl_status lower_inbox_tensor(struct lower *w, int d, pl_format f, int n_dim,
                             const pl_dim *dim, int born, int64_t most,
                             int *out)
{
    struct program_builder *v = &w->dev[d];

    PL_TRY(lower_tensor(w, d, f, n_dim, dim, 1, out, NULL));
    lower_to_inbox(v, *out, born);
    if (most > 0) {
        struct prog_tensor *t = &v->tensor[*out];
        const struct graph_sizes z =
            graph_sizes_of(&w->opt->max, most, most, w->opt->max.n_seq);
        size_t bytes = (size_t)dim_value(lower_product(dim, 0, n_dim, 4), &z);

        if (bytes < t->bytes)
            t->bytes = bytes;
        v->buffer[v->in_buffer[*out]].bytes = (t->bytes + 63) / 64 * 64;
    }
    return PL_OK;
}

pl_status lower_alias(struct lower *w, int d, int tensor, int n_dim,
                      const pl_dim *dim, size_t offset, int *out)
{
    const struct program_builder *v = &w->dev[d];
    struct prog_tensor t = v->tensor[tensor];

    t.n_dim = n_dim;
    memset(t.dim, 0, sizeof t.dim);
    memcpy(t.dim, dim, (size_t)n_dim * sizeof *dim);
    t.offset += offset;
    return add_tensor(w, d, &t, v->in_buffer[tensor], out);
}

pl_status lower_hold_until(struct lower *w, int d, int tensor, int until)
{
    struct variant_draft *v = &w->dev[d].draft[w->variant.index];

    if (tensor < 0 || w->dev[d].in_buffer[tensor] < 0)
        return PL_OK;
    v->hold = arena_extended(&w->scratch, v->hold, (size_t)v->n_hold,
                             sizeof *v->hold);
    PL_TRY(lower_memory(w));
    v->hold[v->n_hold++] = (struct buffer_hold){tensor, until};
    return PL_OK;
}

pl_status lower_hold(struct lower *w, int d, int tensor)
{
    return lower_hold_until(w, d, tensor, w->variant.order);
}

/* Instructions ------------------------------------------------------------ */

pl_status lower_insn(struct lower *w, int d, const struct insn *s)
{
    struct variant_draft *v = &w->dev[d].draft[w->variant.index];
    struct insn *t;

    v->insn = arena_extended(&w->scratch, v->insn, (size_t)v->n_insn,
                             sizeof *v->insn);
    PL_TRY(lower_memory(w)); /* what `s` points to was allocated, too */
    t = &v->insn[v->n_insn++];
    *t = *s;
    t->micro = w->now.micro;
    t->order = insn_is_barrier(s) ? s->order : w->variant.order++;
    t->pred_out = w->now.pred_out;
    t->min_rows = w->now.min_rows;
    t->max_rows = w->now.max_rows;
    return PL_OK;
}

pl_status lower_post_at(struct lower *w, int d, enum queue q,
                        enum post_time time, int *event)
{
    struct program_builder *v = &w->dev[d];
    const struct insn s = {.kind = INSN_POST,
                           .queue = q,
                           .node = -1,
                           .post = {d, v->n_event, time}};

    *event = v->n_event++;
    return lower_insn(w, d, &s);
}

pl_status lower_post(struct lower *w, int d, enum queue q, int *event)
{
    return lower_post_at(w, d, q, POST_NOW, event);
}

pl_status lower_flush_posts(struct lower *w, int d, enum queue q)
{
    const struct insn s = {
        .kind = INSN_POST, .queue = q, .node = -1, .post = {d, -1, POST_FLUSH}};

    return lower_insn(w, d, &s);
}

pl_status lower_begin_copies(struct lower *w, int d)
{
    struct variant_draft *v = &w->dev[d].draft[w->variant.index];

    if (v->copy_batch == w->variant.copy_batch)
        return PL_OK;
    v->copy_batch = w->variant.copy_batch;
    return lower_flush_posts(w, d, QUEUE_COPY);
}

pl_status lower_wait_all(struct lower *w, int d, const struct insn_event *e,
                         int n)
{
    const struct insn s = {.kind = INSN_WAIT,
                           .node = -1,
                           .wait = {e[0], n - 1, n > 1 ? e + 1 : NULL}};

    return lower_insn(w, d, &s);
}

pl_status lower_wait(struct lower *w, int d, enum queue q, int dev, int event)
{
    const struct insn s = {.kind = INSN_WAIT,
                           .queue = q,
                           .node = -1,
                           .wait = {.first = {dev, event}}};

    return lower_insn(w, d, &s);
}
