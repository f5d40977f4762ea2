/* The inputs and results of a step.
 *
 * The last device, "io", carries no ranks. The caller writes inputs into its
 * memory before a step and reads results from it afterwards, so a step needs
 * nothing else of the host. For graphs with a cache, the token table
 * (program_token_table) is one more input. When a group needs its first input,
 * each of its devices gets all inputs that the group's ops read, in one *input
 * transfer*. The device pulls it if it can read io's memory; else io pushes it
 * into the device's inbox. A result is transferred to io's inbox as soon as it
 * is computed. Only the end of the step waits for it. */
#include "lower/lower_transfer.h"

#include "base/err.h"

#include <string.h>

static int io_dev(const struct lower *w)
{
    return w->opt->n_dev - 1;
}

static int io_group(const struct lower *w)
{
    return w->opt->n_group - 1;
}

static size_t at_most(const struct lower *w, int n_dim, const pl_dim *dim)
{
    return (size_t)dim_value(lower_product(dim, 0, n_dim, 4), &w->opt->max);
}

/* ---- io's own memory ----------------------------------------------------- */

/* Returns the number of words of the token table. */
static pl_dim token_table_words(const struct lower *w)
{
    const struct program p = {.max = w->opt->max,
                              .page_stride = w->opt->page_stride};

    return (pl_dim){program_token_table_words(&p), PL_CONST};
}

/* Adds the token table of each micro-batch. */
static pl_status io_token_table(struct lower *w)
{
    const pl_dim n = token_table_words(w);
    int *t = arena_alloc(w->a, (size_t)w->out->n_micro, sizeof *t);

    PL_TRY(lower_memory(w));
    w->out->token_table = t;
    for (int k = 0; k < w->out->n_micro; k++) {
        t[k] = -1;
        if (w->g->n_pool == 0)
            continue;
        w->now.micro = k;
        PL_TRY(lower_tensor(w, io_dev(w), PL_I32, 1, &n, 0, &t[k], NULL));
        lower_append(&w->dev[io_dev(w)], t[k], REGION_WORK, 4 * (size_t)n.n);
    }
    w->now.micro = 0;
    return PL_OK;
}

pl_status lower_io(struct lower *w)
{
    int n_micro = 0, n_node = w->g->n_node;
    struct program_builder *v = &w->dev[io_dev(w)];

    for (int k = 0; k < w->opt->n_variant; k++)
        if (w->opt->variant[k].n_micro > n_micro)
            n_micro = w->opt->variant[k].n_micro;
    w->out->n_micro = n_micro;
    w->out->input = arena_alloc(w->a, (size_t)n_micro * (size_t)n_node + 1,
                                sizeof *w->out->input);
    PL_TRY(lower_memory(w));
    for (int k = 0; k < n_micro; k++)
        for (int i = 0; i < n_node; i++) {
            const struct graph_node *x = &w->g->node[i];
            int *t = &w->out->input[(size_t)k * (size_t)n_node + (size_t)i];

            *t = -1;
            if (x->op != OP_input)
                continue;
            w->now.micro = k;
            PL_TRY(lower_tensor(w, io_dev(w), x->format, x->n_dim, x->dim, 0, t,
                                NULL));
            lower_append(v, *t, REGION_WORK, at_most(w, x->n_dim, x->dim));
        }
    w->now.micro = 0;
    return io_token_table(w);
}

pl_status lower_io_begin(struct lower *w, struct lowered_variant *o)
{
    size_t n_node = (size_t)w->g->n_node;

    o->result = arena_alloc(w->a, (size_t)o->n_micro * n_node + 1, sizeof(int));
    PL_TRY(lower_memory(w));
    for (size_t i = 0; i < (size_t)o->n_micro * n_node; i++)
        o->result[i] = -1;
    for (int k = 0; k < o->n_micro; k++)
        for (int i = 0; i < w->num->n; i++) {
            struct placed *h;

            if (!lower_is(w, i, OP_input))
                continue;
            w->now.micro = k;
            PL_TRY(lower_add_value(w, i, io_group(w), &h));
            h->h.v[0].tensor =
                w->out
                    ->input[(size_t)k * n_node + (size_t)w->num->node[i].node];
        }
    w->now.micro = 0;
    return PL_OK;
}

/* ---- inputs -------------------------------------------------------------- */

/* The inputs of one micro-batch that a group reads. */
struct inputs {
    int n, *num;
    struct placed **group_value; /* in the group */
    struct placed *token_table;  /* in the group; NULL if it reads none */
};

static pl_status find_inputs(struct lower *w, int group, struct inputs *in)
{
    size_t n = (size_t)w->num->n;

    in->num = arena_alloc(w->a, n, sizeof *in->num);
    in->group_value = arena_alloc(w->a, n, sizeof(struct placed *));
    PL_TRY(lower_memory(w));
    for (int i = 0; i < w->num->n; i++)
        if (lower_is(w, i, OP_input) &&
            transfers_find(w->transfers, w->variant.index, i, i, group)) {
            PL_TRY(lower_add_value(w, i, group, &in->group_value[in->n]));
            in->num[in->n++] = i;
        }
    return transfers_find(w->transfers, w->variant.index, -1, -1, group)
               ? lower_add_value(w, -1, group, &in->token_table)
               : PL_OK;
}

/* Sets *t to the token table, at byte `at` of an input transfer to shard u. The
 * parts whose size depends on the step are copied to the same offsets. */
static pl_status add_token_table(struct lower *w, int u, int input_transfer,
                                 size_t at, int *t, struct lower_pieces *p)
{
    const struct program q = {.max = w->opt->max,
                              .page_stride = w->opt->page_stride};
    const pl_dim n = token_table_words(w), one = {1, PL_CONST};
    int d = lower_dev(w, u);

    PL_TRY(lower_alias(w, d, input_transfer, 1, &n, at, t));
    w->dev[d].tensor[*t].format = PL_I32;
    w->dev[d].tensor[*t].bytes = 4 * (size_t)n.n;
    for (int k = 0; k < 2 + w->g->n_pool; k++) { /* pos, seq, pages */
        int64_t word = k < 2 ? k * q.max.n_tok : program_pages_word(&q, k - 2);
        pl_dim bytes = k < 2 ? (pl_dim){4, PL_N_TOK}
                             : (pl_dim){4 * q.page_stride, GRAPH_N_SEQ};
        const struct copy_desc c = {.src_dev = io_dev(w),
                                    .src = w->out->token_table[w->now.micro],
                                    .src_const = 4 * word,
                                    .dst_const = (int64_t)at + 4 * word,
                                    .bytes = bytes,
                                    .n0 = one,
                                    .n1 = one};

        PL_TRY(lower_add_piece(w, p, &c));
    }
    return PL_OK;
}

/* Builds the input transfer to shard y->u, y->out: the inputs one after
 * another, then the token table. */
static pl_status build_input_transfer(struct lower *w, struct receiver *y,
                                      const struct inputs *in,
                                      struct lower_pieces *p)
{
    int u = y->u, d = lower_dev(w, u);
    struct lower_pieces none = {0};
    size_t at = 0;
    pl_dim size = {0, PL_CONST}, dim[GRAPH_MAX_DIM];

    for (int k = 0; k < in->n; k++) {
        const struct num_node *n = &w->num->node[in->num[k]];

        lower_dims(w, u, in->num[k], dim);
        size.n += (int64_t)(at_most(w, w->g->node[n->node].n_dim, dim) + 63) /
                  64 * 16;
    }
    if (in->token_table)
        size.n += token_table_words(w).n;
    if (y->by->pushes)
        PL_TRY(lower_inbox_tensor(w, d, PL_I32, 1, &size, -1, 0, &y->out));
    else
        PL_TRY(lower_tensor(w, d, PL_I32, 1, &size, 1, &y->out, NULL));
    for (int k = 0; k < in->n; k++) {
        const struct graph_node *x = lower_node(w, in->num[k]);
        int *t = &in->group_value[k]->h.v[w->shard[u].local].tensor,
            first = p->n;

        lower_dims(w, u, in->num[k], dim);
        PL_TRY(lower_alias(w, d, y->out, x->n_dim, dim, at, t));
        w->dev[d].tensor[*t].format = x->format;
        w->dev[d].tensor[*t].bytes = at_most(w, x->n_dim, dim);
        PL_TRY(
            lower_pieces(w, u, io_group(w), in->num[k], in->num[k], &none, p));
        for (int j = first; j < p->n; j++)
            p->p[j].dst_const += (int64_t)at;
        at += (at_most(w, x->n_dim, dim) + 63) / 64 * 64;
    }
    return in->token_table
               ? add_token_table(
                     w, u, y->out, at,
                     &lower_value(in->token_table, &w->shard[u])->tensor, p)
               : PL_OK;
}

/* Checks that the list moves all inputs of the group as transfer t does. */
static pl_status check_inputs(const struct lower *w, const struct transfer *t,
                              const struct inputs *in)
{
    size_t n = (size_t)lower_group(w, t->to)->n;

    for (int k = 0; k <= in->n; k++) {
        int i = k < in->n ? in->num[k] : -1;
        const struct transfer *x =
            transfers_find(w->transfers, w->variant.index, i, i, t->to);

        if (x && memcmp(x->by, t->by, n * sizeof *t->by) != 0)
            return err_set(w->err, PL_BAD_ARGUMENT,
                           "the inputs of group %d have several transports; "
                           "give all of them those of value %d",
                           t->to, t->value);
    }
    return PL_OK;
}

pl_status lower_inputs(struct lower *w, const struct transfer *t)
{
    struct inputs in = {0};

    PL_TRY(find_inputs(w, t->to, &in));
    PL_TRY(check_inputs(w, t, &in));
    for (int m = 0; m < lower_group(w, t->to)->n; m++) {
        struct receiver y = lower_receiver(w, t, NULL, m, NULL);
        struct lower_pieces p = {0};

        y.node = in.n ? w->num->node[in.num[0]].node : -1;
        PL_TRY(build_input_transfer(w, &y, &in, &p));
        if (p.n > 0) /* else none of the inputs has a part for the device */
            PL_TRY(lower_transfer(w, &y, p.p, p.n, 0));
    }
    return PL_OK;
}

/* Sets *out to the group's token table. */
static pl_status find_token_table(struct lower *w, int group,
                                  struct placed **out)
{
    *out = lower_find(w, -1, group);
    if (*out)
        return PL_OK;
    PL_TRY(lower_materialize(w, -1, -1, group));
    *out = lower_find(w, -1, group);
    return *out ? PL_OK
                : err_set(w->err, PL_BAD_ARGUMENT,
                          "the list of transfers lacks the token table of "
                          "group %d; use a list of the same plan",
                          group);
}

pl_status lower_token_table(struct lower *w, int u, int *tensor)
{
    struct placed *h;

    PL_TRY(find_token_table(w, w->shard[u].u.group, &h));
    *tensor = lower_value(h, &w->shard[u])->tensor;
    return PL_OK;
}

pl_status lower_token_table_copied(struct lower *w, int u, int *tensor,
                                   int *event)
{
    struct placed *h;

    PL_TRY(find_token_table(w, w->shard[u].u.group, &h));
    *tensor = lower_value(h, &w->shard[u])->tensor;
    PL_TRY(lower_keep(w, u, *tensor, -1));
    return event ? lower_ready_event(w, h, u, event) : PL_OK;
}

/* ---- results ------------------------------------------------------------- */

pl_status lower_result(struct lower *w, const struct transfer *t)
{
    int i = t->value, node = w->num->node[i].node;
    const struct graph_node *x = &w->g->node[node];
    struct receiver y = lower_receiver(w, t, NULL, 0, NULL);
    struct lower_pieces none = {0}, p = {0};

    y.src = lower_find(w, i, t->from);
    /* born before the step begins, so that no other buffer shares its memory */
    PL_TRY(lower_inbox_tensor(w, io_dev(w), x->format, x->n_dim, x->dim, -1, 0,
                              &y.out));
    w->out->variant[w->variant.index]
        .result[(size_t)w->now.micro * (size_t)w->g->n_node + (size_t)node] =
        y.out;
    PL_TRY(lower_pieces(w, y.u, t->from, i, i, &none, &p));
    return lower_transfer(w, &y, p.p, p.n, 0);
}
