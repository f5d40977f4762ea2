/* Collects sizes, layouts and predicted speeds of a plan from its programs. */
#include "report/plan_facts.h"

#include "base/err.h"
#include "cost/calibration.h"
#include "cost/cost.h"
#include "cost/rates.h"
#include "fit/fit.h"

#include "report/plan_network.h"

#include <math.h>
#include <string.h>

enum {
    N_PROMPT = 512, /* number of tokens of the prompt for which the speed is
                       estimated */
    N_PAST = 256,   /* number of tokens in the cache when the speed of decoding
                       is estimated */
};

uint64_t plan_bytes(const pl_dim sum[2])
{
    const struct graph_sizes one = {.n_tok = 1, .n_out = 1, .n_seq = 1};

    return (uint64_t)(dim_value(sum[0], &one) + dim_value(sum[1], &one));
}

void plan_add_bytes(struct plan_device *sum, const struct compiled *q, int d)
{
    const struct program *g = &q->low->prog[d];

    sum->weights += g->bytes[REGION_WEIGHTS];
    sum->cache += g->bytes[REGION_CACHE];
    sum->buffers += program_buffers(g) +
                    device_scratch_bytes(&q->list.dev[d], q->kernel_set, g);
}

uint64_t plan_token_bytes(const struct compiled *q)
{
    uint64_t sum = 0;

    for (int m = 0; m < q->low->variant->n_collective; m++)
        sum += plan_bytes(q->low->variant->collective[m].bytes);
    return sum;
}

const char *plan_bytes_symbol(const pl_dim bytes[2])
{
    return bytes[0].n && bytes[1].n                    ? "both"
           : bytes[0].n && bytes[0].symbol == PL_N_TOK ? "n_tok"
           : bytes[1].n && bytes[1].symbol == PL_N_OUT ? "n_out"
                                                       : "step";
}

int plan_next_tensor(const struct plan_facts *f, int i, int layer)
{
    while (i < f->n_tensor && f->tensor[i].node->layer != layer)
        i++;
    return i < f->n_tensor ? i : -1;
}

int plan_next_collective(const struct lowered_variant *w, int i, int layer)
{
    while (i < w->n_collective && w->collective[i].layer != layer)
        i++;
    return i < w->n_collective ? i : -1;
}

enum plan_kind plan_kind(const struct graph_node *n)
{
    switch (n->role) {
    case PL_ROLE_TOKEN_EMBD:
    case PL_ROLE_PER_LAYER_EMBD:
    case PL_ROLE_OUTPUT:
        return PLAN_EMBEDDING;
    case PL_ROLE_ATTN_Q:
    case PL_ROLE_ATTN_K:
    case PL_ROLE_ATTN_V:
    case PL_ROLE_ATTN_QKV:
    case PL_ROLE_ATTN_OUT:
        return PLAN_ATTENTION;
    case PL_ROLE_FFN_GATE:
    case PL_ROLE_FFN_UP:
    case PL_ROLE_FFN_GATE_UP:
    case PL_ROLE_FFN_DOWN:
        return PLAN_FEED_FORWARD;
    case PL_ROLE_FFN_GATE_EXPS:
    case PL_ROLE_FFN_UP_EXPS:
    case PL_ROLE_FFN_GATE_UP_EXPS:
    case PL_ROLE_FFN_DOWN_EXPS:
        return PLAN_EXPERTS;
    case PL_ROLE_CACHE_K:
    case PL_ROLE_CACHE_V:
    case PL_ROLE_CACHE_INDEX:
        return PLAN_CACHE;
    default:
        return PLAN_OTHER;
    }
}

static uint64_t stored(const struct program *p, int tensor)
{
    return tensor < 0 ? 0 : (p->tensor[tensor].bytes + 63) / 64 * 64;
}

/* Adds to the facts of tensor t one of the layouts in which it is stored, that
 * of node i of the numeric plan, and its bytes on each device. */
static pl_status add_version(struct plan_facts *f, struct plan_tensor *t,
                             const struct lowered *low, int i, pl_err *err)
{
    const pl_layout *l = low->num->node[i].layout;
    char text[400];

    layout_print(l, text, sizeof text);
    t->first = t->first ? t->first : l;
    t->layout = t->layout
                    ? arena_printf(&f->arena, "%s and %s", t->layout, text)
                    : arena_strdup(&f->arena, text);
    if (!t->layout)
        return err_no_memory(err, "the description of a plan");
    for (const struct lowered_placed *h = lowered_stored(low, i); h;
         h = h->next)
        for (int k = 0; k < low->group[h->group].n; k++) {
            int d = low->shard[low->group[h->group].first + k].dev;

            t->bytes[d] += stored(&low->prog[d], h->v[k].tensor) +
                           stored(&low->prog[d], h->v[k].plain);
        }
    return PL_OK;
}

static bool is_stored(const struct graph_node *n)
{
    return n->op == OP_weight || n->op == OP_memory;
}

static pl_status gather_tensors(struct plan_facts *f, const pl_plan *p,
                                pl_err *err)
{
    const struct lowered *low = p->compiled->low;
    const pl_graph *g = p->graph;
    int *index = arena_alloc(&f->arena, (size_t)g->n_node + 1, sizeof *index);
    uint64_t *bytes;

    for (int i = 0; i < g->n_node; i++)
        f->n_tensor += is_stored(&g->node[i]);
    f->tensor =
        arena_alloc(&f->arena, (size_t)f->n_tensor + 1, sizeof *f->tensor);
    bytes = arena_alloc(&f->arena, (size_t)f->n_tensor * (size_t)f->n_dev + 1,
                        sizeof *bytes);
    if (!index || !f->tensor || !bytes)
        return err_no_memory(err, "the description of a plan");
    for (int i = 0, n = 0; i < g->n_node; i++)
        if (is_stored(&g->node[i])) {
            index[i] = n;
            f->tensor[n].node = &g->node[i];
            f->tensor[n].group = p->compiled->home[i];
            f->tensor[n].bytes = bytes + (size_t)n * (size_t)f->n_dev;
            n++;
        }
    for (int i = 0; i < low->num->n; i++) {
        const struct num_node *n = &low->num->node[i];

        if (n->kind == NUM_OP && is_stored(&g->node[n->node]))
            PL_TRY(add_version(f, &f->tensor[index[n->node]], low, i, err));
    }
    return PL_OK;
}

static pl_status find_rates(struct plan_estimate *e, const struct compiled *q,
                            struct cost_rates *r, pl_err *err)
{
    struct rates_basis basis;
    struct calibration c;
    bool kept;

    PL_TRY(rates_find(q, &c, &kept, err));
    PL_TRY(rates_known(q, kept ? &c : NULL, r, &basis, err));
    e->guessed = basis.guessed;
    e->basis = q->paper           ? PLAN_DESCRIBED
               : basis.calibrated ? PLAN_CALIBRATED
                                  : PLAN_ASSUMED;
    return PL_OK;
}

/* Returns the part of struct plan_facts that the instruction belongs to, or
 * PLAN_PARTS. A product belongs to that of its weight; the weights of streams
 * are made by the op sinkhorn, those of experts by others. */
static int part_of(const pl_graph *g, const struct insn *s)
{
    static const int of_role[PL_ROLE_COUNT] = {
        [PL_ROLE_INDEXER] = PART_INDEXERS + 1,
        [PL_ROLE_ATTN_Q_A] = PART_LATENTS + 1,
        [PL_ROLE_ATTN_KV_A] = PART_LATENTS + 1,
        [PL_ROLE_ROUTER] = PART_ROUTERS + 1};
    const struct graph_node *n = s->node >= 0 ? &g->node[s->node] : NULL;
    const struct graph_node *w;
    int part;

    if (!n)
        return PLAN_PARTS;
    if (n->op == OP_index_topk)
        return PART_INDEXERS;
    if (n->op == OP_router_topk || n->op == OP_router_weights)
        return PART_ROUTERS;
    if (n->op == OP_sinkhorn || n->op == OP_mix_streams)
        return PART_STREAMS;
    if (!graph_is_contraction(n->op))
        return PLAN_PARTS;
    w = &g->node[n->in[1]];
    part = of_role[w->role];
    if (part == PART_ROUTERS + 1 && strstr(w->name, "hc_"))
        return PART_STREAMS;
    return part > 0 ? part - 1 : PLAN_PARTS;
}

/* Sets share[part] to the greatest fraction of a device's seconds in kernels
 * that the part takes of a micro-batch. */
static void find_mirrored(double share[PLAN_PARTS][2], int of,
                          const struct compiled *q,
                          const struct cost_machine *m, int64_t n_tok,
                          int64_t n_past)
{
    const pl_graph *g = q->low->num->g;
    const struct cost_micro z = {graph_sizes_of(&q->max, n_tok, 1, 1), n_past};

    for (int d = 0; d < m->n_dev; d++) {
        const struct variant *v = m->prog[d].variant;
        double own[PLAN_PARTS + 1] = {0}, all = 0;

        for (int i = 0; m->prog[d].n_variant > 0 && i < v->n_insn; i++) {
            const struct insn *s = &v->insn[i];
            double t;

            if (s->kind != INSN_KERNEL || !insn_enabled(s, 1, &z.sizes))
                continue;
            t = cost_insn_s(m, d, s, &z);
            all += t;
            own[part_of(g, s)] += t;
        }
        for (int k = 0; k < PLAN_PARTS && all > 0; k++)
            share[k][of] = fmax(share[k][of], own[k] / all);
    }
}

/* Estimates the duration of a step with all micro-batches of the pipelined
 * variant, and the duration of the same micro-batches one after another. */
static pl_status estimate_pipeline(struct plan_facts *f, const pl_plan *p,
                                   const struct cost_machine *m, pl_err *err)
{
    const struct compiled *q = p->compiled;
    struct plan_pipeline *y = &f->pipeline;
    struct cost_micro z[PROG_MAX_MICRO];
    int variant = q->variant[VARIANT_PIPELINED];

    if (variant < 0)
        return PL_OK;
    y->n = q->low->variant[variant].n_micro;
    y->n_tok = p->n_ctx / y->n;
    if (y->n_tok > q->max.n_tok)
        y->n_tok = q->max.n_tok;
    if (y->n_tok < 1) {
        y->n = 0;
        return PL_OK;
    }
    for (int k = 0; k < y->n; k++) {
        double t;

        z[k] = (struct cost_micro){
            graph_sizes_of(&q->max, y->n_tok, k == y->n - 1, 1), k * y->n_tok};
        PL_TRY(
            cost_run(m, q->variant[VARIANT_RESIDENT], 1, &z[k], NULL, &t, err));
        y->one_by_one_s += t;
    }
    return cost_run(m, variant, y->n, z, NULL, &y->seconds, err);
}

static pl_status estimate(struct plan_facts *f, const pl_plan *p, pl_err *err)
{
    struct plan_estimate *e = &f->estimate;
    const struct compiled *q = p->compiled;
    size_t n = (size_t)q->list.n + 1;
    struct cost_rates *r = arena_alloc(&f->arena, n, sizeof *r);
    struct cost_use *use = arena_alloc(&f->arena, 2 * n, sizeof *use);
    int *thread = arena_alloc(&f->arena, 2 * n, sizeof *thread);
    struct cost_machine m = {.n_dev = q->list.n,
                             .prog = q->low->prog,
                             .rates = r,
                             .thread0 = thread};
    int64_t step = 0; /* greatest number of tokens that a step can have */

    if (!r || !use || !thread)
        return err_no_memory(err, "an estimate");
    f->prefill.use = use;
    f->decode.use = use + n;
    m.n_thread = thread + n;
    cost_threads(&q->list, thread, thread + n);
    f->rates = r;
    PL_TRY(find_rates(e, q, r, err));
    e->n_prompt = p->n_ctx < N_PROMPT ? p->n_ctx : N_PROMPT;
    for (int i = 0; i < m.prog->n_variant; i++)
        if (m.prog->variant[i].n_micro * m.prog->max.n_tok > step)
            step = m.prog->variant[i].n_micro * m.prog->max.n_tok;
    if (e->n_prompt > step)
        e->n_prompt = step;
    e->n_past = p->n_ctx <= N_PAST ? p->n_ctx - 1 : N_PAST;
    PL_TRY(cost_tokens(&m, e->n_prompt, 0, f->prefill.use, &f->prefill.seconds,
                       err));
    PL_TRY(
        cost_tokens(&m, 1, e->n_past, f->decode.use, &f->decode.seconds, err));
    find_mirrored(f->mirrored, 0, q, &m,
                  e->n_prompt < q->max.n_tok ? e->n_prompt : q->max.n_tok, 0);
    find_mirrored(f->mirrored, 1, q, &m, 1, e->n_past);
    e->prefill_tps = (double)e->n_prompt / f->prefill.seconds;
    e->decode_tps = 1 / f->decode.seconds;
    return estimate_pipeline(f, p, &m, err);
}

/* Adds the bytes of a block to the devices that have them. */
static void add_block(struct plan_facts *f, const struct compiled *q,
                      const struct compiled *block)
{
    for (int k = 0; k < block->list.n; k++) {
        int d = fit_same_device(q, &block->list.dev[k]);

        if (d >= 0)
            (d < f->n_dev ? &f->dev[d] : &f->io)->block += fit_need(block, k);
    }
}

pl_status plan_facts_init(struct plan_facts *f, const pl_plan *p, pl_err *err)
{
    const struct compiled *q = p->compiled;
    const struct plan_copies *c = &f->copies[VARIANT_RESIDENT];

    memset(f, 0, sizeof *f);
    f->n_dev = compiled_devices(q);
    f->io.buffers = program_buffers(&q->low->prog[f->n_dev]);
    f->dev = arena_alloc(&f->arena, (size_t)f->n_dev, sizeof *f->dev);
    if (!f->dev)
        return err_no_memory(err, "the description of a plan");
    for (int d = 0; d < f->n_dev; d++)
        plan_add_bytes(&f->dev[d], q, d);
    if (p->block)
        add_block(f, q, p->block->compiled);
    f->token_bytes = plan_token_bytes(q);
    for (int i = 0; i < VARIANT_COUNT; i++)
        if (q->variant[i] >= 0) {
            const struct lowered_variant *w = &q->low->variant[q->variant[i]];

            f->copies[i] = (struct plan_copies){w->copy, w->n_copy};
        }
    for (int k = 0; k < c->n; k++)
        if (!c->v[k].pages)
            f->copy_bytes += plan_bytes(c->v[k].bytes);
    PL_TRY(gather_tensors(f, p, err));
    PL_TRY(plan_find_crossings(f, p, err));
    return estimate(f, p, err);
}

void plan_facts_fini(struct plan_facts *f)
{
    arena_fini(&f->arena);
}
