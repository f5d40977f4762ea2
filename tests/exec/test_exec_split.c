/* Work is really split: no rank is idle, and none stores or computes what
 * others should.
 *
 * For models of every family, 2 to 8 ranks and equal and uneven shares, each
 * weight matrix but the router and those that make latents is split, and K and
 * V also where there are fewer KV heads than ranks. Every rank has the latents.
 * What a rank stores and multiplies, without replicas, is then within a grain
 * of its share, in each layer. The figures by layer come from the numeric plan
 * and the programs, and their sums must be those of the engine's counters after
 * real steps.
 *
 * Grains. The smallest parts that can move to another rank are
 *   feed-forward, experts, vocabulary   32 indices, the size of a block of
 *       quantized activations, which formats can cut; in float models fewer if
 *       there would not be 32 for each rank
 *   query heads, attention output       one KV head with its query heads, or
 *       as many as make their output whole blocks of 32 if that is quantized
 *   K and V                             the same KV heads; if ranks share them,
 *       one more, because a shared head counts only for its first owner. All
 *       ranks have a single KV head
 *   per-layer token inputs              as feed-forward, but alike in all
 *       layers, since one table has them for all
 * A delta net's value heads and key heads are like query heads and KV heads;
 * its stacked q, k and v, of which key heads have a part, like K and V. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "lib/engine_run.h"
#include "lib/ref_models.h"
#include "plan/roles.h"

enum part {
    PART_Q,
    PART_KV,
    PART_FF,
    PART_EXP,
    PART_VOCAB,
    PART_PER_LAYER,
    PART_COUNT
};
#define NONE PART_COUNT

static const char *const part_names[PART_COUNT] = {
    "query heads", "KV heads",   "feed-forward or shared expert",
    "experts",     "vocabulary", "what tokens bring to layers"};

/* Returns the part of a layer that a weight belongs to, and which of its
 * dimensions, from the last, counts the part's indices. */
static enum part part_of(pl_role r, int *from_last)
{
    *from_last = 1;
    switch (r) {
    case PL_ROLE_ATTN_OUT:
    case PL_ROLE_SSM_OUT:
        *from_last = 0;
        return PART_Q;
    case PL_ROLE_ATTN_Q:
    case PL_ROLE_ATTN_KV_B:
    case PL_ROLE_ATTN_GATE:
    case PL_ROLE_DELTA_GATE:
    case PL_ROLE_DELTA_GATES:
    case PL_ROLE_SSM_GATE:
        return PART_Q;
    case PL_ROLE_ATTN_K_B:
    case PL_ROLE_ATTN_V_B:
    case PL_ROLE_ATTN_OUT_A:
        *from_last = 2;
        return PART_Q;
    case PL_ROLE_ATTN_K:
    case PL_ROLE_ATTN_V:
    case PL_ROLE_ATTN_QKV:
    case PL_ROLE_INDEXER_Q:
    case PL_ROLE_CONV:
    case PL_ROLE_SSM_IN:
    case PL_ROLE_SSM_CONV:
        return PART_KV;
    case PL_ROLE_FFN_DOWN:
        *from_last = 0;
        return PART_FF;
    case PL_ROLE_FFN_GATE:
    case PL_ROLE_FFN_UP:
    case PL_ROLE_FFN_GATE_UP:
        return PART_FF;
    case PL_ROLE_FFN_DOWN_EXPS:
        *from_last = 0;
        return PART_EXP;
    case PL_ROLE_FFN_GATE_EXPS:
    case PL_ROLE_FFN_UP_EXPS:
    case PL_ROLE_FFN_GATE_UP_EXPS:
        return PART_EXP;
    case PL_ROLE_TOKEN_EMBD:
    case PL_ROLE_OUTPUT:
        return PART_VOCAB;
    case PL_ROLE_PER_LAYER_EMBD:
    case PL_ROLE_PER_LAYER_OUT:
        *from_last = 0;
        return PART_PER_LAYER;
    case PL_ROLE_PER_LAYER_PROJ:
    case PL_ROLE_PER_LAYER_GATE:
        return PART_PER_LAYER;
    default:
        return NONE;
    }
}

/* Size of a part of a layer in one measure (bytes or multiply-adds): on each
 * rank, and in total. */
struct amount {
    double rank[PL_MAX_RANKS], total;
};

enum measure { BYTES, MACS, MEASURES };
static const char *const measure_names[] = {"bytes", "multiply-adds"};

enum { MAX_LAYER = 8 };

struct split {
    const char *what;
    const struct compiled *p;
    double share[PL_MAX_RANKS]; /* share of each rank; their sum is 1 */
    struct amount a[MEASURES][MAX_LAYER + 1][PART_COUNT];
    int64_t size[MAX_LAYER + 1][PART_COUNT];
    /* true if a split of this part cuts quantized rows */
    bool blocks[MAX_LAYER + 1][PART_COUNT];
    int64_t n_head[MAX_LAYER + 1], n_kv[MAX_LAYER + 1], d_head[MAX_LAYER + 1];
    /* sums over all layers and parts, to compare with the engine's counters */
    double sum[MEASURES][PL_MAX_RANKS];
};

/* Adds each rank's part of a weight, each index for its first owner. */
static void add_weight(struct split *s, const struct num_node *n,
                       const struct graph_node *g)
{
    int64_t row = g->dim[g->n_dim - 1].n;
    double bytes = (double)format_row_bytes(g->format, row) *
                   (double)(graph_count(g, &s->p->max) / row);
    /* Norms of single heads are as small as vectors. */
    const bool matrix = g->n_dim > 1 && g->role != PL_ROLE_NORM;
    int from_last;
    enum part part = matrix ? part_of(g->role, &from_last) : NONE;
    struct amount *a;

    if (n->layout->kind != PL_SPLIT) {
        s->sum[BYTES][0] += bytes;
        if (matrix && g->role != PL_ROLE_ROUTER && g->role != PL_ROLE_INDEXER &&
            g->role != PL_ROLE_CACHE_INDEX && g->role != PL_ROLE_EXPERT_IDS &&
            /* not split if ranks share key heads */
            g->role != PL_ROLE_DELTA_GATES && g->role != PL_ROLE_ATTN_Q_A &&
            g->role != PL_ROLE_ATTN_KV_A && g->role != PL_ROLE_DELTA_GATE_A &&
            !(part == PART_KV && s->n_kv[g->layer + 1] == 1))
            fail_msg("%s: %s is not split", s->what, g->name);
        return;
    }
    if (part == NONE && matrix)
        fail_msg("%s: %s has a role this test does not know", s->what, g->name);
    a = part == NONE ? NULL : &s->a[BYTES][g->layer + 1][part];
    for (int k = 0; k < n->layout->n_run; k++) {
        double part_bytes =
            bytes * (double)n->layout->run[k].len / (double)n->layout->period;
        int r = rank_first(n->layout->run[k].owners);

        s->sum[BYTES][r] += part_bytes;
        if (a)
            a->rank[r] += part_bytes;
    }
    if (!a)
        return;
    a->total += bytes;
    if (g->role == PL_ROLE_CONV) /* channels come first */
        from_last = g->n_dim - 1;
    if (n->layout->dim != g->n_dim - 1 - from_last)
        fail_msg("%s: %s is split in dimension %d", s->what, g->name,
                 n->layout->dim);
    /* size of one matrix if several are stacked */
    s->size[g->layer + 1][part] = n->layout->period;
    s->blocks[g->layer + 1][part] |=
        from_last == 0 && format_info(g->format)->block > 1;
}

/* Adds the multiply-adds of all contractions in the programs. */
static void add_macs(struct split *s, const struct graph_sizes *z)
{
    const struct compiled *p = s->p;
    double *all = test_need((size_t)p->g->n_node, sizeof *all);

    for (int d = 0; d < p->list.n; d++)
        for (int i = 0; i < p->low->prog[d].variant[0].n_insn; i++) {
            const struct insn *st = &p->low->prog[d].variant[0].insn[i];
            const struct insn_kernel *kernel = &st->kernel;
            const struct graph_node *x, *w;
            double rows = 1;
            int from_last;
            enum part part;

            if (st->kind != INSN_KERNEL || kernel->n_cost == 0)
                continue;
            x = &p->g->node[st->node];
            w = &p->g->node[x->in[1]];
            part = part_of(w->role, &from_last);
            for (int k = 0; k < kernel_cost_dims(kernel->kernel, x->n_dim); k++)
                rows *= (double)dim_value(x->dim[k], z);
            for (int k = 0; k < kernel->n_cost; k++) {
                double macs = (double)kernel->cost[k].macs * rows;
                int r = kernel->cost[k].rank;

                s->sum[MACS][r] += macs;
                all[st->node] += macs;
                if (part == NONE)
                    continue;
                s->a[MACS][w->layer + 1][part].rank[r] += macs;
                s->a[MACS][w->layer + 1][part].total += macs;
            }
        }
    for (int i = 0; i < p->g->n_node; i++) {
        const struct graph_node *x = &p->g->node[i];
        const struct graph_node *w = x->n_in > 1 ? &p->g->node[x->in[1]] : NULL;
        double want;

        if (!graph_is_contraction(x->op))
            continue;
        want = (double)graph_count(x, z) * (double)w->dim[w->n_dim - 1].n;
        if (x->op == OP_expert_down)
            want *= (double)p->g->node[x->in[0]].dim[1].n;
        if (all[i] != want)
            fail_msg("%s: %s takes %.0f multiply-adds, the ranks do %.0f",
                     s->what, x->name, want, all[i]);
    }
    free(all);
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Returns the grain of a part, as the file's opening comment defines it, as a
 * fraction of the part's size. */
static double grain(const struct split *s, int layer, enum part part)
{
    int64_t size = s->size[layer][part], unit = 32;

    if (part == PART_Q || part == PART_KV) {
        int64_t r = s->n_head[layer] / s->n_kv[layer];
        int64_t heads = r; /* number of query heads per KV head */

        if (s->blocks[layer][PART_Q]) {
            int64_t g = 32 / gcd(32, s->d_head[layer] * r);

            heads = g * r;
        }
        return (double)(heads +
                        (part == PART_KV && s->n_kv[layer] < s->p->num->n_rank
                             ? r
                             : 0)) /
               (double)s->n_head[layer];
    }
    while (!s->blocks[layer][part] && unit > 1 &&
           size / unit < s->p->num->n_rank)
        unit /= 2;
    return (double)unit / (double)size;
}

static void judge(const struct split *s)
{
    for (int layer = 0; layer <= MAX_LAYER; layer++)
        for (int part = 0; part < PART_COUNT; part++)
            for (int m = 0; m < MEASURES; m++) {
                const struct amount *a = &s->a[m][layer][part];
                double g = a->total > 0 ? grain(s, layer, (enum part)part) : 0;

                for (int r = 0; r < s->p->num->n_rank && a->total > 0; r++) {
                    double off = a->rank[r] - s->share[r] * a->total;

                    if (fabs(off) > g * a->total * (1 + 1e-9))
                        fail_msg("%s, layer %d, %s: rank %d has %.0f of %.0f "
                                 "%s, %.0f off its share; a grain is %.0f",
                                 s->what, layer - 1, part_names[part], r,
                                 a->rank[r], a->total, measure_names[m], off,
                                 g * a->total);
                }
            }
}

/* Treats the part that all layers split alike as one: computes each rank's
 * deviation. Returns its grain. */
static double per_layer_off(const struct split *s, double *off)
{
    double most = 0;

    for (int layer = 0; layer <= MAX_LAYER; layer++) {
        const struct amount *a = &s->a[BYTES][layer][PART_PER_LAYER];

        if (a->total > 0)
            most += grain(s, layer, PART_PER_LAYER) * a->total;
        for (int r = 0; r < s->p->num->n_rank; r++)
            off[r] += a->rank[r] - s->share[r] * a->total;
    }
    return most;
}

/* Deviations of a layer's parts do not add up, and neither do those of layers:
 * bytes that only one rank owns stay within the largest grain. A KV head is
 * with its query heads, so these two are one grain. */
static void judge_sums(const struct split *s)
{
    double off[PL_MAX_RANKS] = {0}, most = per_layer_off(s, off);

    for (int layer = 0; layer <= MAX_LAYER; layer++) {
        double here[PL_MAX_RANKS] = {0}, largest = 0, heads = 0;
        bool shared = s->n_kv[layer] < s->p->num->n_rank;

        for (int part = 0; part < PART_COUNT; part++) {
            const struct amount *a = &s->a[BYTES][layer][part];
            double g =
                a->total > 0 ? grain(s, layer, (enum part)part) * a->total : 0;

            if ((part == PART_KV && shared) || part == PART_PER_LAYER)
                continue;
            if (part == PART_Q || part == PART_KV)
                g = heads += g;
            largest = g > largest ? g : largest;
            for (int r = 0; r < s->p->num->n_rank; r++)
                here[r] += a->rank[r] - s->share[r] * a->total;
        }
        most = largest > most ? largest : most;
        for (int r = 0; r < s->p->num->n_rank; r++) {
            if (fabs(here[r]) > largest * 1.0001)
                fail_msg("%s, layer %d: rank %d is %.0f bytes off its share, "
                         "a grain is %.0f",
                         s->what, layer - 1, r, here[r], largest);
            off[r] += here[r];
        }
    }
    for (int r = 0; r < s->p->num->n_rank; r++)
        if (fabs(off[r]) > most * 1.0001)
            fail_msg(
                "%s: rank %d is %.0f bytes off its share of all, a grain is "
                "%.0f",
                s->what, r, off[r], most);
}

static void survey_heads(struct split *s, const struct graph_node *x)
{
    bool delta = x->op == OP_delta_net || x->op == OP_delta_net_tiled ||
                 x->op == OP_delta_net_channels || x->op == OP_ssm_scan;
    const struct graph_node *k;
    int layer = x->layer + 1;

    /* groups of heads stay whole */
    if (x->op == OP_head_matmul &&
        s->p->g->node[x->in[1]].role == PL_ROLE_ATTN_OUT_A)
        s->n_kv[layer] = s->p->g->node[x->in[1]].dim[0].n;
    if (x->op == OP_latent_attention || x->op == OP_compressed_attention) {
        s->n_head[layer] = s->n_kv[layer] = x->dim[1].n;
        return;
    }
    if (!delta && x->op != OP_attention)
        return;
    k = &s->p->g->node[x->in[delta ? 0 : 1]];
    s->n_head[layer] = x->dim[1].n;
    s->n_kv[layer] = k->dim[1].n;
    s->d_head[layer] = x->dim[2].n;
}

static void survey(struct split *s)
{
    const struct compiled *p = s->p;
    bool *seen = test_need((size_t)p->g->n_node, sizeof *seen);

    for (int i = 0; i < p->g->n_node; i++)
        survey_heads(s, &p->g->node[i]);
    for (int i = 0; i < p->num->n; i++) {
        const struct num_node *n = &p->num->node[i];
        const struct graph_node *g = &p->g->node[n->node];

        if (n->kind != NUM_OP || (g->op != OP_weight && g->op != OP_memory))
            continue;
        if (seen[n->node])
            fail_msg("%s: %s is held twice", s->what, g->name);
        seen[n->node] = true;
        assert_true(g->layer < MAX_LAYER);
        if (g->op == OP_weight)
            add_weight(s, n, g);
        else if (n->layout->kind != PL_SPLIT && g->dim[1].n > 1)
            fail_msg("%s: %s is not split", s->what, g->name);
    }
    free(seen);
}

/* If `ragged`, a width of the model is not a multiple of a grain, so that the
 * last one is smaller; then shares are not compared. */
static void run(const char *path, const char *name, const char *devices,
                int n_rank, const double *share, bool ragged)
{
    enum { N = 7 };
    pl_options o = engine_run_options();
    struct engine_run e;
    struct split *s = test_need(1, sizeof *s);
    char what[160];
    uint64_t random = test_seed();
    int32_t token[N];
    float *logits;
    pl_counters c;
    double sum = 0;

    o.devices = devices;
    o.n_ranks = share ? 0 : n_rank;
    o.tensor_split = share;
    o.n_tensor_split = share ? n_rank : 0;
    snprintf(what, sizeof what, "%s, %d %s ranks on %s", name, n_rank,
             share ? "uneven" : "equal", devices);
    engine_run_open(&e, path, name, &o);
    s->what = what;
    s->p = pl_engine_plan(e.engine)->compiled;
    assert_int_equal(s->p->num->n_rank, n_rank);
    for (int r = 0; r < n_rank; r++)
        sum += share ? share[r] : 1;
    for (int r = 0; r < n_rank; r++)
        s->share[r] = (share ? share[r] : 1) / sum;
    survey(s);
    engine_run_tokens(&e, &random, N, token);
    logits = test_need(1, (size_t)(N * e.n_vocab) * sizeof *logits);
    engine_run_decode(&e, 0, N, token, logits);
    engine_run_decode(&e, 0, 1, token, logits);
    free(logits);
    add_macs(s, &(struct graph_sizes){N, N, 1, {0}});
    add_macs(s, &(struct graph_sizes){1, 1, 1, {0}});
    if (!ragged) {
        judge(s);
        judge_sums(s);
    }
    pl_engine_counters(e.engine, &c, sizeof c);
    for (int r = 0; r < n_rank; r++) {
        if (fabs((double)c.weight_bytes[r] - s->sum[BYTES][r]) > 64)
            fail_msg("%s: rank %d holds %.0f bytes, the counters say %" PRIu64,
                     what, r, s->sum[BYTES][r], c.weight_bytes[r]);
        if ((double)c.macs[r] != s->sum[MACS][r])
            fail_msg("%s: rank %d has %.0f multiply-adds to do, the counters "
                     "say %" PRIu64,
                     what, r, s->sum[MACS][r], c.macs[r]);
    }
    engine_run_close(&e);
    free(s);
}

static const char *const names[] = {
    "llama-gqa-f32.gguf",
    "llama-yarn-f32.gguf",
    "llama-moe-f32.gguf",
    "llama-wide-q4_k_m.gguf",
    "llama-q-q6_k.gguf",
    "qwen2-bias-f32.gguf",
    "qwen3-tied-f32.gguf",
    "qwen3-q-q4_k_m.gguf",
    "qwen3moe-f32.gguf",
    "qwen3moe-q-q4_k_m.gguf",
    "qwen3moe-q-q8_0.gguf",
    "qwen3moe-wide-q4_k_m.gguf",
    "glm4moe-f32.gguf",
    "glm4moe-q-q4_k_m.gguf",
    "glm4moe-wide-q4_k_m.gguf",
    "qwen35-dense-f32.gguf",
    "qwen35moe-f32.gguf",
    "qwen35moe-q-q4_k_m.gguf",
    "qwen35moe-wide-q4_k_m.gguf",
    "qwen3next-f32.gguf",
    "gemma4-dense-f32.gguf",
    "gemma4-moe-f32.gguf",
    "gemma4-ple-sharedkv-f32.gguf",
    "deepseek2-mla-f32.gguf",
};

static void each_model(void (*test)(const char *path, const char *name))
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        test(test_ref_need(names[i]), names[i]);
    test(test_model(), "fable-moe-Q8_0.gguf");
}

/* Runs `test` on the made model of each family that is not core. */
static void each_further(void (*test)(const char *path, const char *name))
{
    for (const char *const *l = ref_models(false); *l; l++)
        if (!ref_model_is_core(*l))
            test(ref_model_path(*l), *l);
}

static void equal_ranks(const char *path, const char *name)
{
    for (int n = 2; n <= 8; n++)
        run(path, name, "cpu", n, NULL, false);
}

static void uneven_ranks(const char *path, const char *name)
{
    static const double share[] = {3, 1, 2, 0, 5, 1, 2, 4};
    char devices[16];

    for (int n = 2; n <= 8; n++) {
        if (!test_long() && n > 5 && n < 8)
            continue;
        snprintf(devices, sizeof devices, "cpu*%d", n);
        run(path, name, devices, n, share, false);
    }
}

TEST(split_of_equal_ranks_is_within_a_grain)
{
    each_model(equal_ranks);
}

TEST(split_of_uneven_ranks_is_within_a_grain)
{
    each_model(uneven_ranks);
}

static void few_ranks(const char *path, const char *name)
{
    static const int n[] = {2, 3, 5, 8};
    static int first;

    for (int i = 0; i < (test_long() ? 4 : 1); i++)
        run(path, name, "cpu", n[(first + i) % 4], NULL, true);
    first++;
}

TEST(split_of_further_families_leaves_no_matrix_whole)
{
    each_further(few_ranks);
}
