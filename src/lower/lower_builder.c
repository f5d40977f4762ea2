/* A device's program while it is written: tensors, the buffers that they lie
 * in, steps. Each step tells how long the buffers live that it touches. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

bool lower_grow(void **p, int n, int *cap, size_t size)
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

bool lower_grow_arena(struct lower *w, void **p, int n, int *cap, size_t size)
{
    int c = *cap ? 2 * *cap : 8;
    void *q;

    if (n < *cap)
        return true;
    q = arena_alloc(w->a, (size_t)c, size);
    if (!q)
        return false;
    if (n)
        memcpy(q, *p, (size_t)n * size);
    *p = q;
    *cap = c;
    return true;
}

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
    return layout_local_init(out, w->a, l, w->g->node[n->node].dim[dim].n,
                             w->shard[u].u.ranks)
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

void lower_add_bytes(pl_dim sum[2], pl_dim b)
{
    int k = b.symbol == PL_N_OUT;

    if (b.symbol == PL_CONST && sum[0].n > 0 && sum[0].symbol != PL_CONST)
        k = 1; /* rare: a constant beside n_tok takes the other place */
    if (sum[k].n == 0 || sum[k].symbol == b.symbol)
        sum[k] = (pl_dim){sum[k].n + b.n, b.symbol};
    else
        sum[!k] = (pl_dim){sum[!k].n + b.n, b.symbol};
}

/* Tensors and buffers ---------------------------------------------------- */

static pl_status add_tensor(struct lower *w, int d, const struct prog_tensor *t,
                            int buffer, size_t inside, int *out)
{
    struct program_builder *v = &w->dev[d];
    int cap = v->tensor_cap, c = cap;

    if (!lower_grow((void **)&v->tensor, v->n_tensor, &c, sizeof *v->tensor))
        return err_no_memory(w->err, "a program");
    c = cap;
    if (!lower_grow((void **)&v->buffer, v->n_tensor, &c, sizeof *v->buffer))
        return err_no_memory(w->err, "a program");
    c = cap;
    if (!lower_grow((void **)&v->inside, v->n_tensor, &c, sizeof *v->inside))
        return err_no_memory(w->err, "a program");
    c = cap;
    if (!lower_grow((void **)&v->q8, v->n_tensor, &c, sizeof *v->q8))
        return err_no_memory(w->err, "a program");
    v->tensor_cap = c;
    v->tensor[v->n_tensor] = *t;
    v->tensor[v->n_tensor].micro = w->now.micro;
    v->buffer[v->n_tensor] = buffer;
    v->inside[v->n_tensor] = inside;
    v->q8[v->n_tensor] = (struct draft_q8){.tensor = -1};
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
        if (!lower_grow((void **)&v->buf, v->n_buf, &v->buf_cap,
                        sizeof *v->buf))
            return err_no_memory(w->err, "a program");
        b = v->n_buf++;
        v->buf[b] = (struct buffer){one * (size_t)(entries < 0 ? 1 : entries),
                                    v->n_insn, v->n_insn, 0, REGION_WORK};
    }
    return add_tensor(w, d, &t, b, 0, out);
}

void lower_to_inbox(struct program_builder *v, int t, int birth)
{
    struct buffer *b = &v->buf[v->buffer[t]];

    b->region = v->tensor[t].region = REGION_INBOX;
    b->birth = birth;
}

pl_status lower_inbox_tensor(struct lower *w, int d, pl_format f, int n_dim,
                             const pl_dim *dim, int birth, int64_t most,
                             int *out)
{
    struct program_builder *v = &w->dev[d];

    PL_TRY(lower_tensor(w, d, f, n_dim, dim, 1, out, NULL));
    lower_to_inbox(v, *out, birth);
    if (most > 0) {
        struct prog_tensor *t = &v->tensor[*out];
        const struct graph_sizes z =
            graph_sizes_of(&w->opt->max, most, most, w->opt->max.n_seq);
        size_t bytes = (size_t)dim_value(lower_product(dim, 0, n_dim, 4), &z);

        if (bytes < t->bytes)
            t->bytes = bytes;
        v->buf[v->buffer[*out]].bytes = (t->bytes + 63) / 64 * 64;
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
    if (v->buffer[tensor] < 0)
        t.offset += offset;
    return add_tensor(w, d, &t, v->buffer[tensor], v->inside[tensor] + offset,
                      out);
}

void lower_use(struct program_builder *v, int tensor, int at)
{
    int b = tensor >= 0 ? v->buffer[tensor] : -1;

    if (b >= 0 && v->buf[b].death < at)
        v->buf[b].death = at;
}

/* Steps ------------------------------------------------------------------ */

struct use_at {
    struct program_builder *v;
    int dev;
};

static void use(void *user, const struct insn_access *u)
{
    const struct use_at *x = user;

    if (u->dev == x->dev)
        lower_use(x->v, u->tensor, x->v->n_insn);
}

pl_status lower_insn(struct lower *w, int d, const struct insn *s)
{
    struct program_builder *v = &w->dev[d];
    struct use_at at = {v, d};
    struct insn *t;

    if (!insn_is_transfer(s) && s->kind != INSN_WAIT)
        PL_TRY(lower_flush_batched_post(w, d));
    if (insn_is_barrier(s))
        PL_TRY(lower_order_after_queue(w, d, s->queue));
    if (!lower_grow((void **)&v->insn, v->n_insn, &v->insn_cap,
                    sizeof *v->insn))
        return err_no_memory(w->err, "a program");
    insn_accesses(s, d, v->tensor, use, &at);
    t = &v->insn[v->n_insn++];
    *t = *s;
    t->micro = w->now.micro;
    t->order = insn_is_barrier(s) ? s->order : w->variant.order++;
    if (w->now.predicate != PRED_NONE) {
        bool few = w->now.predicate == PRED_ONE_SHOT_TOK ||
                   w->now.predicate == PRED_ONE_SHOT_OUT;

        t->pred_out = w->now.predicate >= PRED_ONE_SHOT_OUT;
        t->min_rows = few ? 0 : w->one_shot_rows + 1;
        t->max_rows = few ? w->one_shot_rows : INT64_MAX;
    }
    return PL_OK;
}
