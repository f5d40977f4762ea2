/* Compiles a plan config: devices, groups, layouts, the numeric plan, placement
 * and programs. */
#include "lower/compile.h"

#include "base/err.h"
#include "device/device_ops.h"
#include "device/device_spec.h"
#include "kv/pages.h"
#include "plan/roles.h"
#include "program/cache_tile.h"
#include "program/program_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_sizes(struct compiled *p, const struct plan_config *in)
{
    p->max.n_seq = in->n_seq;
    p->page_stride = kv_pages_of(in->n_ctx);
    for (int k = 0; k < p->g->n_pool; k++)
        if (p->g->pool[k].state && p->page_stride < STATE_WORDS)
            p->page_stride = STATE_WORDS;
    p->n_checkpoint = in->n_checkpoint;
    p->max.n_tok = in->n_ubatch;
    p->max.n_out = in->n_out < in->n_ubatch ? in->n_out : in->n_ubatch;
}

/* Warns about cpu devices with more threads than cores, because these threads
 * wait for each other in every instruction. Names the device with the fewest
 * cores, whose limit suits all. */
static void warn_threads(struct compiled *p)
{
    const struct device_desc *least = NULL;

    for (int i = 0; i < p->list.n; i++) {
        const struct device_desc *d = &p->list.dev[i];

        if (d->on_cores && !d->host && d->n_thread > d->n_core &&
            (!least || d->n_core < least->n_core))
            least = d;
    }
    if (least)
        diag_add(&p->notes, PL_LOG_WARN,
                 "-t %d: %s has %d core%s, and threads that share a core wait "
                 "for each other; use -t %d or less",
                 least->n_thread, least->name, least->n_core,
                 least->n_core == 1 ? "" : "s", least->n_core);
}

void compiled_ranks(const struct compiled *p, int d, int *rank0, int *n_rank)
{
    int widest = -1;

    *rank0 = *n_rank = 0;
    for (int k = 0; k < p->place.n_member; k++) {
        const struct place_member *m = &p->place.member[k];

        if (m->dev == d && m->n_rank > 0 &&
            p->place.group[m->group].n > widest) {
            widest = p->place.group[m->group].n;
            *rank0 = m->rank0;
            *n_rank = m->n_rank;
        }
    }
}

/* ---- lowering ---------------------------------------------------------- */

struct lower_device compiled_device(const struct compiled *p, int d)
{
    const struct device_options opt = {.kernel_set = p->kernel_set};
    const struct device_desc *x = &p->list.dev[d];
    struct lower_device y = {.machine = x->machine,
                             .memory = x->memory,
                             .one_queue = x->one_queue,
                             .reads = x->reads,
                             .link_bytes_per_s = x->link_bytes_per_s,
                             .link_latency_s = x->link_latency_s,
                             .p2p_bytes_per_s = x->p2p_bytes_per_s,
                             .network_bytes_per_s = x->network_bytes_per_s,
                             .network_latency_s = x->network_latency_s};

    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        for (int use = 0; use < USE_COUNT; use++)
            y.packing[f][use] = (unsigned char)x->ops->packing(
                x, (pl_format)f, (enum weight_use)use);
        y.activations[f] =
            (unsigned char)x->ops->activations(x, &opt, (pl_format)f);
    }
    return y;
}

/* Checks that all devices quantize activations alike, because that decides
 * bits. */
static pl_status check_activations(const struct compiled *p,
                                   const struct lower_device *dev, pl_err *err)
{
    for (int d = 1; d < p->list.n; d++)
        if (memcmp(dev[d].activations, dev[0].activations,
                   sizeof dev[d].activations) != 0)
            return err_set(err, PL_UNSUPPORTED,
                           "%s and %s round activations differently; a model "
                           "cannot be split over both",
                           p->list.dev[0].name, p->list.dev[d].name);
    return PL_OK;
}

/* Fills in the groups and shards of the options of lowering. */
static pl_status fill_shards(struct compiled *p, struct lower_options *lo,
                             pl_err *err)
{
    const struct placement *y = &p->place;
    struct lower_group *g =
        arena_alloc(&p->arena, (size_t)y->n_group, sizeof *g);
    struct lower_shard *u =
        arena_alloc(&p->arena, (size_t)y->n_member, sizeof *u);
    struct lower_device *dev =
        arena_alloc(&p->arena, (size_t)p->list.n, sizeof *dev);

    if (!g || !u || !dev)
        return err_no_memory(err, "a plan");
    for (int i = 0; i < y->n_group; i++) {
        g[i].first = lo->n_shard;
        for (int k = 0; k < y->group[i].n; k++) {
            const struct place_member *m = &y->member[y->group[i].first + k];

            if (m->n_rank == 0)
                continue;
            u[lo->n_shard++] =
                (struct lower_shard){i, m->dev, m->rank0, m->n_rank,
                                     ranks_all(m->n_rank) << m->rank0};
            g[i].n++;
        }
    }
    for (int d = 0; d < p->list.n; d++)
        dev[d] = compiled_device(p, d);
    PL_TRY(check_activations(p, dev, err));
    lo->n_dev = p->list.n;
    lo->n_group = y->n_group;
    lo->group = g;
    lo->shard = u;
    lo->dev = dev;
    return PL_OK;
}

/* Pass "specialize": describes the plan, and chooses its variants. */
static pl_status specialize(struct compiled *p, pl_offload offload, pl_err *err)
{
    struct variants *v = &p->variants;

    *v = (struct variants){.host = p->place.host,
                           .may_stream = offload != PL_OFFLOAD_OFF,
                           .n_layer = p->place.n_layer + 1,
                           .layer = p->place.layer_group};
    for (int i = 0; i < p->g->n_node; i++) {
        const struct graph_node *x = &p->g->node[i];
        const struct variant_leaf leaf = {i, x->layer, p->home[i], false};

        if (leaf.home >= 0 && leaf.layer >= 0 &&
            (x->op == OP_memory ||
             (x->op == OP_weight && graph_is_experts(x))) &&
            !variants_add_leaf(v, &p->arena, &leaf))
            return err_no_memory(err, "a plan");
    }
    variants_choose(v);
    return PL_OK;
}

/* Moves nodes that depend on inputs alone to the group of their first reader,
 * because inputs are wherever they are read. */
static void place_input_only_nodes(const struct compiled *p, int *at)
{
    for (int i = p->num->n - 1; i >= 0; i--)
        for (int k = 0; at[i] >= 0 && k < p->num->node[i].n_in; k++) {
            int y = p->num->node[i].in[k];

            if (y >= 0 && at[y] < 0)
                at[y] = at[i];
        }
    for (int i = 0; i < p->num->n; i++)
        if (at[i] < 0)
            at[i] = p->place.input_group;
}

/* Sets the number of slots of each pool, for the largest step. */
static void set_slots(struct compiled *p)
{
    int n_micro = p->variants.n_micro[VARIANT_PIPELINED];
    int64_t n = (n_micro > 0 ? n_micro : 1) * p->max.n_tok;

    for (int k = 0; k < p->g->n_pool; k++)
        p->max.n_slot[k] =
            pool_page_slots(&p->g->pool[k]) *
            (p->g->pool[k].state
                 ? kv_states_planned(p->max.n_seq, p->n_checkpoint)
                 : kv_pages_planned(p->g->pool[k].window, p->page_stride,
                                    p->max.n_seq, n));
}

/* Places the ops of a variant, if the programs have it. */
static pl_status add_variant(struct compiled *p, struct lower_variant *variant,
                             enum variant_kind kind, pl_err *err)
{
    const struct variants *v = &p->variants;
    struct lower_options *lo = &p->lowering;
    int *at = arena_alloc(&p->arena, (size_t)p->num->n + 1, sizeof *at);
    bool *away = arena_alloc(&p->arena, (size_t)p->g->n_node + 1, 1);

    p->variant[kind] = -1;
    if (v->n_micro[kind] == 0)
        return PL_OK;
    if (!at || !away)
        return err_no_memory(err, "a plan");
    for (int i = 0; kind == VARIANT_STREAMED && i < v->n_leaf; i++)
        away[v->leaf[i].node] = v->leaf[i].streamed;
    PL_TRY(place_ops(&p->place, p->num, p->home, away, at, err));
    place_input_only_nodes(p, at);
    variant[lo->n_variant] = (struct lower_variant){v->n_micro[kind], at};
    p->variant[kind] = lo->n_variant++;
    return PL_OK;
}

/* Marks the instructions that belong to the launch of an earlier one. A paper
 * device that is an accelerator fuses as the first backend that does. */
static pl_status mark_launches(struct compiled *p, pl_err *err)
{
    const struct backend_ops *const *any = device_backends;

    while (*any && !(*any)->mark_launches)
        any++;
    for (int d = 0; d < p->low->n_dev; d++) {
        const struct backend_ops *ops = p->list.dev[d].ops;

        if (!ops->mark_launches && !ops->open)
            ops = *any;
        if (p->list.dev[d].accelerator && ops && ops->mark_launches &&
            !ops->mark_launches(&p->low->prog[d]))
            return err_no_memory(err, "a plan");
    }
    return PL_OK;
}

/* Lowers the variants. If that of streaming cannot be lowered, the programs do
 * not have it. */
static pl_status lower_all(struct compiled *p, pl_err *err)
{
    struct lower_options *lo = &p->lowering;
    struct lower_variant *variant =
        arena_alloc(&p->arena, VARIANT_COUNT, sizeof *variant);
    int *home = arena_alloc(&p->arena, (size_t)p->num->n + 1, sizeof *home);
    pl_status s;
    pl_err e;

    if (!variant || !home)
        return err_no_memory(err, "a plan");
    for (int i = 0; i < p->num->n; i++)
        home[i] = p->home[p->num->node[i].node];
    lo->max = p->max;
    lo->page_stride = p->page_stride;
    PL_TRY(fill_shards(p, lo, err));
    lo->home = home;
    lo->variant = variant;
    PL_TRY(add_variant(p, variant, VARIANT_RESIDENT, err));
    PL_TRY(add_variant(p, variant, VARIANT_PIPELINED, err));
    PL_TRY(add_variant(p, variant, VARIANT_STREAMED, err));
    s = lower(&p->low, p->num, lo, &e);
    if (s == PL_UNSUPPORTED && p->variant[VARIANT_STREAMED] >= 0) {
        diag_add(&p->notes, PL_LOG_WARN, "%s; the host runs it", e.message);
        p->variants.may_stream = false;
        variants_choose(&p->variants);
        p->variant[VARIANT_STREAMED] = -1;
        lo->n_variant--;
        s = lower(&p->low, p->num, lo, &e);
    }
    if (s != PL_OK && err)
        *err = e;
    return s == PL_OK ? mark_launches(p, err) : s;
}

pl_status compiled_dump(const struct compiled *p, const struct lower_dump *dump,
                        pl_err *err)
{
    struct lower_options lo = p->lowering;
    struct lowered *low;
    pl_status s = lower_dump_check(dump, err);

    if (!strcmp(dump->pass, "specialize"))
        return variants_print(&p->variants, dump->write, dump->user);
    lo.dump = dump;
    if (s == PL_OK)
        s = lower(&low, p->num, &lo, err);
    if (s == PL_OK)
        lowered_free(low);
    return s;
}

/* Prints a layout as an override names it, such as "mirrored" or "split:1". */
static void format_layout(char s[16], const pl_layout *l)
{
    if (l->kind == PL_SPLIT)
        snprintf(s, 16, "split:%d", l->dim);
    else
        snprintf(s, 16, "mirrored");
}

/* Warns about weights that are not stored as the options ask (leaf[] that is
 * not usual[]), because their readers need another layout. */
static void warn_layouts(struct compiled *p, const pl_layout *const *usual,
                         const pl_layout *const *leaf)
{
    char is[16] = "", asked[16] = "", others[32] = "";
    int first = -1, n = 0;

    for (int i = 0; i < p->g->n_node; i++) {
        const pl_layout *stored = NULL;

        if (leaf[i] == usual[i])
            continue;
        for (int k = 0; k < p->num->n; k++)
            if (p->num->node[k].node == i && p->num->node[k].kind == NUM_OP &&
                (!stored || layout_equal(p->num->node[k].layout, leaf[i])))
                stored = p->num->node[k].layout;
        if (!stored || layout_equal(stored, leaf[i]))
            continue;
        if (n++ > 0)
            continue;
        first = i;
        format_layout(is, stored);
        format_layout(asked, leaf[i]);
    }
    if (n > 1)
        snprintf(others, sizeof others, "; likewise %d more", n - 1);
    if (n > 0)
        diag_add(&p->notes, PL_LOG_WARN,
                 "override (-ot): %s is %s instead of %s, because an op that "
                 "reads it needs that layout%s",
                 p->g->node[first].name, is, asked, others);
}

/* ---- the stages ---------------------------------------------------------- */

/* The layouts of the leaves, which the stages of compilation pass on besides
 * *p. */
struct leaf_layouts {
    const pl_layout **leaf;  /* [n_node] */
    const pl_layout **usual; /* [n_node] layouts by their roles alone */
};

/* Makes the groups of devices, and determines which ranks each device
 * carries. */
static pl_status group(struct compiled *p, const struct plan_config *in,
                       pl_err *err)
{
    PL_TRY(device_list_copy(&p->list, &in->list, err));
    return place_groups(&p->place, &p->arena, &p->list, in, err);
}

/* Sets the layouts of the leaves by their roles, before overrides. */
static pl_status split_leaves(struct compiled *p, struct leaf_layouts *y,
                              pl_err *err)
{
    size_t n = (size_t)p->g->n_node + 1;

    y->leaf = arena_alloc(&p->arena, n, sizeof *y->leaf);
    y->usual = arena_alloc(&p->arena, n, sizeof *y->usual);
    if (!y->leaf || !y->usual)
        return err_no_memory(err, "a plan");
    PL_TRY(roles_layouts(p->g, p->place.n_rank, p->place.share, &p->arena,
                         y->leaf, err));
    memcpy(y->usual, y->leaf, n * sizeof *y->leaf);
    return PL_OK;
}

/* Sets the home group of each weight and cache, and applies overrides of their
 * layouts. */
static pl_status place_leaves_and_layouts(struct compiled *p,
                                          const struct plan_config *in,
                                          struct leaf_layouts *y, pl_err *err)
{
    p->home = arena_alloc(&p->arena, (size_t)p->g->n_node + 1, sizeof *p->home);
    if (!p->home)
        return err_no_memory(err, "a plan");
    return place_leaves(&p->place, &p->arena, &p->list, in, p->home, y->leaf,
                        &p->notes, err);
}

/* Makes the numeric plan. */
static pl_status propagate(struct compiled *p, const struct leaf_layouts *y,
                           pl_err *err)
{
    PL_TRY(numeric_create(&p->num, p->g, p->place.n_rank, y->leaf, err));
    warn_layouts(p, y->usual, y->leaf);
    p->numeric_hash =
        (p->num->hash ^ kernel_set_is_float(p->kernel_set)) * 1099511628211u;
    return PL_OK;
}

static pl_status run_passes(struct compiled *p, const struct plan_config *in,
                            pl_err *err)
{
    struct leaf_layouts y;

    PL_TRY(pl_graph_check(p->g, err));
    PL_TRY(group(p, in, err));
    PL_TRY(split_leaves(p, &y, err));
    PL_TRY(place_leaves_and_layouts(p, in, &y, err));
    warn_threads(p);
    PL_TRY(device_list_add_io(&p->list, p->paper, err));
    PL_TRY(propagate(p, &y, err));
    PL_TRY(specialize(p, in->offload, err));
    set_slots(p);
    return lower_all(p, err); /* places the ops of each variant first */
}

/* Checks each kernel once, at its first instruction. */
static pl_status check_device(const struct compiled *p, int dev, pl_err *err)
{
    const struct device_options opt = {.kernel_set = p->kernel_set};
    const struct device_desc *d = &p->list.dev[dev];
    const struct program *g = &p->low->prog[dev];
    bool seen[KERNEL_COUNT][2] = {{false}};

    for (int i = 0; i < g->n_variant; i++)
        for (int n = 0; n < g->variant[i].n_insn; n++) {
            const struct insn *st = &g->variant[i].insn[n];
            bool *is_seen;

            if (st->kind != INSN_KERNEL)
                continue;
            is_seen =
                &seen[st->kernel.kernel][insn_kernel_is_bf16(&st->kernel)];
            if (*is_seen)
                continue;
            *is_seen = true;
            if (!d->ops->has_kernel(d, &opt, &st->kernel, g->tensor))
                return program_unsupported_kernel(
                    d->name, kernel_set_name(p->kernel_set), &st->kernel, err);
        }
    return PL_OK;
}

pl_status compiled_check_kernels(const struct compiled *p, pl_err *err)
{
    for (int i = 0; i < p->list.n; i++)
        PL_TRY(check_device(p, i, err));
    return PL_OK;
}

pl_status compile_config(struct compiled **out, const struct plan_config *in,
                         pl_err *err)
{
    struct compiled *p = calloc(1, sizeof *p);
    pl_status s;

    *out = NULL;
    if (!p)
        return err_no_memory(err, "a plan");
    p->g = in->g;
    p->notes.a = &p->arena;
    p->paper = in->paper;
    p->kernel_set = in->kernel_set;
    set_sizes(p, in);
    s = run_passes(p, in, err);
    if (s == PL_OK)
        *out = p;
    else
        compiled_free(p);
    return s;
}

/* Compiles a graph for the devices of the options or, unless l is NULL, for
 * those of *l. */
static pl_status compile_on(struct compiled **out, const pl_graph *g,
                            const pl_options *opt, const struct device_list *l,
                            pl_err *err)
{
    struct arena a = {0};
    struct notes notes = {.a = &a};
    struct plan_config in = {0};
    pl_status s = pl_graph_check(g, err);

    *out = NULL;
    if (s == PL_OK)
        s = plan_config_parse(&in, &a, g, NULL, opt, &notes, err);
    if (s == PL_OK && l) {
        plan_config_free(&in);
        in.n_on = in.n_layer + 1;
        s = device_list_copy(&in.list, l, err);
    }
    if (s == PL_OK)
        s = compile_config(out, &in, err);
    if (!l)
        diag_emit(&notes, opt->log, opt->log_user);
    if (s == PL_OK && !l)
        diag_emit(&(*out)->notes, opt->log, opt->log_user);
    plan_config_free(&in);
    arena_fini(&a);
    return s;
}

pl_status compile_graph(struct compiled **out, const pl_graph *g,
                        const pl_options *opt, pl_err *err)
{
    return compile_on(out, g, opt, NULL, err);
}

pl_status compile_graph_for(struct compiled **out, const pl_graph *g,
                            const struct device_list *l, const pl_options *opt,
                            pl_err *err)
{
    pl_options own = *opt;

    own.devices = "none";
    own.device_spec = NULL;
    own.machines = NULL;
    return compile_on(out, g, &own, l, err);
}

void compiled_free(struct compiled *p)
{
    if (!p)
        return;
    lowered_free(p->low);
    numeric_free(p->num);
    device_list_free(&p->list);
    arena_fini(&p->arena);
    free(p);
}
