/* Orders the instructions and writes the programs.
 *
 * Nodes are visited in the order of the numeric plan. PARTIAL values and
 * conversions are put off until an op reads a summed value. Then all of them
 * are exchanged in one collective per group, after the PARTIAL values that they
 * need have been computed. Any other node is one instruction for all ranks of a
 * device.
 *
 * A variant with several micro-batches is a pipeline. Its nodes are divided
 * into *stages*: neighbours that one group computes. In tick t, stage s works
 * on micro-batch t - s, later stages first. So the operands of a stage were
 * computed in the tick before, and all stages of a tick can run at once. The
 * order of emission is the total order of instructions: what an instruction
 * waits for was emitted earlier. */
#include "lower/lower.h"

#include "base/err.h"
#include "lower/lower_inner.h"

#include <stdlib.h>
#include <string.h>

/* The conversions of one micro-batch that were put off. */
struct order {
    bool *waits; /* [num->n] true for a conversion that was put off */
    int *item;   /* those conversions, in order */
    int n_item;
    int *mine; /* [num->n] scratch memory: those of one group */
};

/* Emits all that was put off: the PARTIAL sources, then a collective per
 * group. */
static pl_status emit_pending_collectives(struct lower *w, struct order *o)
{
    int *mine = o->mine, n = o->n_item;

    if (n == 0)
        return PL_OK;
    o->n_item = 0;
    PL_TRY(lower_partial_operands(w, n, o->item));
    for (int k = 0; k < n; k++) {
        int group = w->variant.at[o->item[k]], m = 0;

        if (!o->waits[o->item[k]])
            continue; /* exchanged together with an earlier one */
        for (int j = k; j < n; j++)
            if (w->variant.at[o->item[j]] == group) {
                mine[m++] = o->item[j];
                o->waits[o->item[j]] = false;
            }
        PL_TRY(lower_collective(w, group, m, mine));
    }
    for (int k = 0; k < n; k++)
        PL_TRY(lower_start_transfers(w, o->item[k]));
    return PL_OK;
}

static pl_status emit_node(struct lower *w, struct order *o, int i)
{
    const struct num_node *x = &w->num->node[i];
    int group = w->variant.at[i];
    bool flush_first = false;

    if (lower_is_leaf(w, i))
        return PL_OK; /* leaves are in their home groups */
    for (int k = 0; k < x->n_in; k++)
        flush_first |= x->in[k] >= 0 && o->waits[x->in[k]];
    if (flush_first)
        PL_TRY(emit_pending_collectives(w, o));
    if (lower_is_partial(w, i))
        return PL_OK;
    if (x->kind == NUM_OP) {
        PL_TRY(lower_op_all_shards(w, i));
        return lower_start_transfers(w, i);
    }
    PL_TRY(lower_materialize(w, x->in[0], i,
                             group)); /* if that is the conversion */
    if (lower_find(w, i, group))
        return lower_start_transfers(w, i);
    PL_TRY(lower_materialize(w, x->in[0], x->in[0], group));
    if (x->kind == NUM_SLICE) {
        PL_TRY(lower_slice(w, i));
        return lower_start_transfers(w, i);
    }
    o->waits[i] = true;
    o->item[o->n_item++] = i;
    return PL_OK;
}

/* Sets first[] to the first node of each stage, and returns their number. */
static int find_stages(const struct lower *w, int *first)
{
    int n = 0, group = -1;

    for (int i = 0; i < w->num->n; i++) {
        if (lower_is_leaf(w, i) || w->variant.at[i] == group)
            continue;
        group = w->variant.at[i];
        first[n] = n ? i : 0;
        n++;
    }
    first[n] = w->num->n;
    return n;
}

/* Emits the instructions of a variant. */
static pl_status emit_variant(struct lower *w, struct lowered_variant *variant)
{
    int n_micro = variant->n_micro;
    struct order *o = arena_alloc(w->a, (size_t)n_micro, sizeof *o);
    int *first = arena_alloc(w->a, (size_t)w->num->n + 1, sizeof *first);
    size_t n = (size_t)w->num->n + 1;
    int n_stage;

    PL_TRY(lower_memory(w));
    for (int k = 0; k < n_micro; k++) {
        o[k].waits = arena_alloc(w->a, n, sizeof *o->waits);
        o[k].item = arena_alloc(w->a, n, sizeof *o->item);
        o[k].mine = arena_alloc(w->a, n, sizeof *o->mine);
        PL_TRY(lower_memory(w));
    }
    PL_TRY(lower_io_begin(w, variant));
    PL_TRY(lower_first_weights(w));
    n_stage = find_stages(w, first);
    if (n_micro == 1) { /* collectives may be combined across stages */
        for (int i = 0; i < w->num->n; i++)
            PL_TRY(emit_node(w, o, i));
        return emit_pending_collectives(w, o);
    }
    for (int t = 0; t < n_stage + n_micro - 1; t++)
        for (int s = n_stage - 1; s >= 0; s--) {
            int k = t - s;

            if (k < 0 || k >= n_micro)
                continue;
            w->now.micro = k;
            for (int i = first[s]; i < first[s + 1]; i++)
                PL_TRY(emit_node(w, &o[k], i));
            PL_TRY(emit_pending_collectives(w, &o[k]));
        }
    w->now.micro = 0;
    return PL_OK;
}

/* Variants --------------------------------------------------------------- */

/* Keeps buffers until the variant ends: of values that are still being
 * received, and of those that peers, other groups or the copy queue may still
 * read then. */
static pl_status hold_to_end(struct lower *w, const struct lowered_variant *o)
{
    PL_TRY(lower_end_arrivals(w, o->n_micro));
    PL_TRY(lower_extend_inflight(w));
    return lower_end_collectives(w);
}

pl_status lower_variant(struct lower *w, int k)
{
    const struct lower_variant *variant = &w->opt->variant[k];
    struct lowered_variant *o = &w->out->variant[k];
    size_t n = (size_t)w->num->n + 1;
    struct placed ***value =
        arena_alloc(w->a, (size_t)variant->n_micro, sizeof *value);

    o->n_micro = variant->n_micro;
    o->collective = arena_alloc(w->a, n, sizeof *o->collective);
    o->at = arena_memdup(w->a, variant->at, n - 1, sizeof *variant->at);
    PL_TRY(lower_memory(w));
    for (int i = 0; i < variant->n_micro; i++) {
        value[i] = arena_alloc(w->a, n, sizeof **value);
        PL_TRY(lower_memory(w));
    }
    w->variant =
        (struct variant_builder){.index = k,
                                 .at = o->at,
                                 .value = value,
                                 .transfers = &w->transfers->variant[k]};
    PL_TRY(emit_variant(w, o));
    return hold_to_end(w, o);
}

/* Adds "io" as a group of one shard, the last one, which has all ranks. */
static pl_status add_io(struct lower *w, const struct lower_options *opt,
                        struct lower_options *all)
{
    struct lower_group *g =
        arena_alloc(w->a, (size_t)opt->n_group + 1, sizeof *g);
    struct lower_shard *u =
        arena_alloc(w->a, (size_t)opt->n_shard + 1, sizeof *u);

    PL_TRY(lower_memory(w));
    memcpy(g, opt->group, (size_t)opt->n_group * sizeof *g);
    memcpy(u, opt->shard, (size_t)opt->n_shard * sizeof *u);
    g[opt->n_group] = (struct lower_group){opt->n_shard, 1};
    u[opt->n_shard] =
        (struct lower_shard){opt->n_group, opt->n_dev - 1, 0, w->num->n_rank,
                             ranks_all(w->num->n_rank)};
    *all = *opt;
    all->group = g;
    all->shard = u;
    all->n_group++;
    all->n_shard++;
    w->out->group = g;
    w->out->shard = u;
    w->opt = all;
    return PL_OK;
}

static pl_status init_lowering(struct lower *w)
{
    const struct lower_options *opt = w->opt;
    struct lowered *o = w->out;
    size_t n_dev = (size_t)opt->n_dev, n = (size_t)w->num->n + 1;

    o->prog = arena_alloc(w->a, n_dev, sizeof *o->prog);
    o->variant = arena_alloc(w->a, (size_t)opt->n_variant, sizeof *o->variant);
    o->stored = arena_alloc(w->a, n, sizeof *o->stored);
    w->dev = arena_alloc(w->a, n_dev, sizeof *w->dev);
    w->shard = arena_alloc(w->a, (size_t)opt->n_shard, sizeof *w->shard);
    w->stored = arena_alloc(w->a, n, sizeof *w->stored);
    PL_TRY(lower_memory(w));
    for (int u = 0; u < opt->n_shard; u++) {
        w->shard[u].u = opt->shard[u];
        w->shard[u].local = u - opt->group[opt->shard[u].group].first;
        for (int i = 0; i < PROG_MAX_MICRO; i++)
            w->shard[u].collectives.reusable_from[i] = -1;
        o->prog[opt->shard[u].dev].active = u < opt->n_shard - 1;
    }
    for (int d = 0; d < opt->n_dev; d++) {
        o->prog[d].variant = arena_alloc(w->a, (size_t)opt->n_variant,
                                         sizeof *o->prog[d].variant);
        PL_TRY(lower_memory(w));
    }
    PL_TRY(lower_find_addend_ranks(w));
    PL_TRY(lower_stored(w));
    PL_TRY(lower_io(w));
    for (int i = 0; i < w->num->n; i++)
        o->stored[i] = w->stored[i] ? &w->stored[i]->h : NULL;
    return PL_OK;
}

void lower_build_programs(struct lower *w)
{
    for (int d = 0; d < w->opt->n_dev; d++) {
        const struct program_builder *v = &w->dev[d];
        struct program *p = &w->out->prog[d];

        p->dev = d;
        p->tensor = v->tensor;
        p->n_tensor = v->n_tensor;
        p->buffer = v->buffer;
        p->n_buffer = v->n_buffer;
        p->in_buffer = v->in_buffer;
        p->n_variant = w->opt->n_variant;
        p->n_event = v->n_event;
        p->n_group = w->opt->n_group;
        memcpy(p->bytes, v->bytes, sizeof p->bytes);
        p->max = w->opt->max;
        p->page_stride = w->opt->page_stride;
        for (int k = 0; k < p->n_variant; k++)
            ((struct variant *)p->variant)[k] =
                (struct variant){.n_micro = w->out->variant[k].n_micro,
                                 .n_insn = v->draft[k].n_insn,
                                 .insn = v->draft[k].insn,
                                 .n_hold = v->draft[k].n_hold,
                                 .hold = v->draft[k].hold};
    }
}

pl_status lower(struct lowered **out, const struct numeric *num,
                const struct lower_options *opt, pl_err *err)
{
    struct lowered *o = calloc(1, sizeof *o);
    struct lower w = {.num = num, .g = num->g, .out = o, .err = err};
    struct lower_options all;
    pl_status s;

    *out = NULL;
    if (!o)
        return err_no_memory(err, "programs");
    w.a = &o->arena;
    o->num = num;
    o->n_dev = opt->n_dev;
    o->n_group = opt->n_group;
    o->n_shard = opt->n_shard;
    o->n_variant = opt->n_variant;
    s = add_io(&w, opt, &all);
    if (s == PL_OK)
        s = init_lowering(&w);
    if (s == PL_OK)
        s = lower_passes(&w);
    arena_fini(&w.scratch);
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

const struct lowered_placed *lowered_stored(const struct lowered *l, int i)
{
    return l->stored[i];
}
