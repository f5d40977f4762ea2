/* Storage of the graph, the table of ops, and the public builder functions.
 *
 * A builder creates a node, infers its shape (shape.c) and appends it to the
 * graph. The first failure is kept in g->err. After it, every builder returns
 * -1. */
#include "graph/graph.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/sized.h"
#include "graph/shape.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct op_info infos[OP_COUNT] = {
    [OP_input] = {"input", NULL, PL_OP_NONE, -1, true, ""},
    [OP_weight] = {"weight", NULL, PL_OP_NONE, -1, true, ""},
    [OP_memory] = {"memory", NULL, PL_OP_NONE, -1, true, ""},
#define NONE    PL_OP_NONE
#define SUM     PL_OP_SUM
#define ONE(m)  (PL_OP_ONE | (m))
#define NEW     -1, true
#define IN(i)   i, false
#define WITH(i) i, true
#define OP(name, dims, partial, result, refused)                               \
    [OP_##name] = {#name, dims, partial, result, refused},
#include "graph/ops.def"
#undef OP
#undef NONE
#undef SUM
#undef ONE
#undef NEW
#undef IN
#undef WITH
};

const struct op_info *op_info(enum op op)
{
    return &infos[op];
}

const char *graph_dims(const struct graph_node *n)
{
    return n->custom ? n->custom->dims : infos[n->op].dims;
}

unsigned graph_partial(const struct graph_node *n)
{
    return n->custom ? n->custom->partial : infos[n->op].partial;
}

int graph_memory(const pl_graph *g, int i)
{
    while (!infos[g->node[i].op].is_new)
        i = g->node[i].in[infos[g->node[i].op].updates];
    return g->node[i].op == OP_memory ? i : -1;
}

const char *graph_op_name(const struct graph_node *n)
{
    return n->custom ? n->custom->name : infos[n->op].name;
}

enum op op_from_name(const char *name)
{
    int i;

    for (i = 0; i < OP_COUNT; i++)
        if (!strcmp(infos[i].name, name))
            break;
    return (enum op)i;
}

int64_t dim_value(pl_dim d, const struct graph_sizes *s)
{
    if (d.symbol == GRAPH_N_SEQ) /* Compared separately, because GRAPH_N_SEQ is
                                    not an enumerator of pl_symbol. */
        return d.n * s->n_seq;
    if (dim_pool(d) >= 0)
        return d.n * s->n_slot[dim_pool(d)];
    switch (d.symbol) {
    case PL_N_TOK:
        return d.n * s->n_tok;
    case PL_N_OUT:
        return d.n * s->n_out;
    default:
        return d.n;
    }
}

int64_t graph_count(const struct graph_node *n, const struct graph_sizes *s)
{
    int64_t count = 1;

    for (int i = 0; i < n->n_dim; i++)
        count *= dim_value(n->dim[i], s);
    return count;
}

pl_status pl_graph_create(pl_graph **out, pl_err *err)
{
    PL_NEED(out, err);
    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_no_memory(err, "a graph");
    (*out)->layer = -1;
    return PL_OK;
}

void graph_hold(const pl_graph *g)
{
    atomic_fetch_add(&((pl_graph *)g)->n_held, 1);
}

void graph_let_go(const pl_graph *g)
{
    atomic_fetch_sub(&((pl_graph *)g)->n_held, 1);
}

bool graph_is_open(pl_graph *g)
{
    if (!g || g->err.status != PL_OK)
        return false;
    if (atomic_load(&g->n_held) == 0)
        return true;
    graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                          "an executor uses the graph, which must not change; "
                          "free the executor first, or build another graph"));
    return false;
}

void pl_graph_free(pl_graph *g)
{
    if (!g)
        return;
    free(g->node);
    free(g->named);
    arena_fini(&g->arena);
    free(g);
}

pl_status pl_graph_check(const pl_graph *g, pl_err *err)
{
    PL_NEED(g, err);
    if (g->err.status != PL_OK && err)
        *err = g->err;
    return g->err.status;
}

pl_tensor graph_fail(pl_graph *g, pl_status s)
{
    if (g->err.status == PL_OK)
        g->err.status = s;
    return -1;
}

/* Returns the FNV-1a hash of a name, for the table of names. */
static uint32_t name_hash(const char *s)
{
    uint32_t h = 2166136261u;

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static void name_insert(int *table, int cap, const char *name, int id)
{
    uint32_t i = name_hash(name) & (uint32_t)(cap - 1);

    while (table[i] >= 0)
        i = (i + 1) & (uint32_t)(cap - 1);
    table[i] = id;
}

/* Ensures that the hash table of names has space for one more. The table's size
 * is a power of two, and at most half of it is used. If a node is renamed, the
 * entry for its old name stays until the table grows. The entry does no harm,
 * because a look-up compares with the node's present name. */
static bool names_reserve(pl_graph *g)
{
    int cap = 64;
    int *table;

    if (2 * (g->n_named + 1) <= g->named_cap)
        return true;
    while (cap < 4 * (g->n_node + 1))
        cap *= 2;
    table = malloc((size_t)cap * sizeof *table);
    if (!table)
        return false;
    memset(table, -1, (size_t)cap * sizeof *table);
    for (int i = 0; i < g->n_node; i++)
        name_insert(table, cap, g->node[i].name, i);
    free(g->named);
    g->named = table;
    g->named_cap = cap;
    g->n_named = g->n_node;
    return true;
}

pl_tensor pl_tensor_find(const pl_graph *g, const char *name)
{
    uint32_t mask;

    if (!g || !name || g->named_cap == 0)
        return -1;
    mask = (uint32_t)g->named_cap - 1;
    for (uint32_t i = name_hash(name) & mask; g->named[i] >= 0;
         i = (i + 1) & mask)
        if (!strcmp(g->node[g->named[i]].name, name))
            return g->named[i];
    return -1;
}

/* Returns a unique name for the next node, such as "t12" for node 12. Appends
 * '_' if another node has that name. */
static const char *name_make(pl_graph *g)
{
    char buf[64] = "t", *end = ascii_put_number(buf + 1, (uint64_t)g->n_node);

    while (pl_tensor_find(g, buf) >= 0 && end < buf + sizeof buf - 1) {
        *end++ = '_';
        *end = '\0';
    }
    return arena_strdup(&g->arena, buf);
}

pl_tensor graph_append(pl_graph *g, struct graph_node *n)
{
    if (g->err.status != PL_OK)
        return -1;
    n->name = n->name ? arena_strdup(&g->arena, n->name) : name_make(g);
    if (!n->name || !names_reserve(g))
        return graph_fail(g, err_no_memory(&g->err, "a tensor's name"));
    if (g->n_node == g->cap) {
        int cap = g->cap ? 2 * g->cap : 64;
        struct graph_node *p = realloc(g->node, (size_t)cap * sizeof *p);

        if (!p)
            return graph_fail(g, err_no_memory(&g->err, "graph nodes"));
        g->node = p;
        g->cap = cap;
    }
    n->layer = g->layer;
    g->node[g->n_node] = *n;
    name_insert(g->named, g->named_cap, n->name, g->n_node);
    g->n_named++;
    return g->n_node++;
}

void pl_layer(pl_graph *g, int layer)
{
    if (!graph_is_open(g))
        return;
    if (layer < -1 || layer >= GRAPH_MAX_LAYER)
        graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                              "layer %d is not in 0 .. %d, nor -1 for none",
                              layer, GRAPH_MAX_LAYER - 1));
    else
        g->layer = layer;
}

void pl_set_numerics(pl_graph *g, pl_numerics numerics)
{
    if (!graph_is_open(g))
        return;
    if (numerics != PL_NUMERICS_EXACT && numerics != PL_NUMERICS_FAST)
        graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                              "numerics %d; use 0 (exact) or 1 (fast)",
                              (int)numerics));
    else
        g->numerics = numerics;
}

/* Inputs, weights, caches and states ----------------------------------- */

static pl_status name_taken(pl_graph *g, const char *name)
{
    return err_set(&g->err, PL_BAD_ARGUMENT,
                   "%s: another tensor has this name; names must be unique",
                   name);
}

static pl_tensor leaf(pl_graph *g, enum op op, const char *name, pl_format f,
                      int n_dim, const pl_dim *dim, pl_role role)
{
    struct graph_node n = {.op = op, .n_dim = n_dim, .format = f, .role = role};

    if (!graph_is_open(g))
        return -1;
    if (!name || !*name)
        return graph_fail(g,
                          err_set(&g->err, PL_BAD_ARGUMENT, "%s %d has no name",
                                  infos[op].name, g->n_node));
    n.name = name;
    if (pl_tensor_find(g, name) >= 0)
        return graph_fail(g, name_taken(g, name));
    if (n_dim < 1 || n_dim > GRAPH_MAX_DIM)
        return graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                                     "%s: %d dimensions; 1 to %d are allowed",
                                     name, n_dim, GRAPH_MAX_DIM));
    if (!dim)
        return graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                                     "%s: dim is NULL; give %d dimensions",
                                     name, n_dim));
    if ((unsigned)f >= PL_FORMAT_COUNT || (unsigned)role >= PL_ROLE_COUNT)
        return graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                                     "%s: unknown format or role", name));
    memcpy(n.dim, dim, (size_t)n_dim * sizeof *dim);
    if (!shape_leaf(&n, &g->err))
        return graph_fail(g, PL_BAD_ARGUMENT);
    return graph_append(g, &n);
}

pl_tensor pl_input(pl_graph *g, const char *name, pl_format f, int n_dim,
                   const pl_dim *dim)
{
    return leaf(g, OP_input, name, f, n_dim, dim, PL_ROLE_NONE);
}

pl_tensor pl_weight(pl_graph *g, const char *name, pl_format f, int n_dim,
                    const int64_t *dim, pl_role role)
{
    pl_dim d[GRAPH_MAX_DIM] = {{0, PL_CONST}};

    for (int i = 0; i < n_dim && i < GRAPH_MAX_DIM && dim; i++)
        d[i].n = dim[i];
    return leaf(g, OP_weight, name, f, n_dim, dim ? d : NULL, role);
}

/* Returns the index of the pool of memories (caches or states) with this
 * retention rule. Adds a pool if the graph has none with this rule. */
static int pool_of(pl_graph *g, bool state, int64_t window)
{
    int k = 0;

    while (k < g->n_pool &&
           (g->pool[k].state != state || g->pool[k].window != window))
        k++;
    if (k == PL_MAX_POOL)
        return -1;
    if (k == g->n_pool)
        g->pool[g->n_pool++] = (struct graph_pool){state, window};
    return k;
}

pl_tensor pl_state(pl_graph *g, const char *name, int64_t n_head,
                   int64_t d_head, pl_role role)
{
    pl_dim d[3] = {{1, PL_N_SLOT}, {n_head, PL_CONST}, {d_head, PL_CONST}};
    int pool;
    pl_tensor t;

    if (!graph_is_open(g))
        return -1;
    if (!name)
        return graph_fail(g, err_null(&g->err, __func__, "name"));
    pool = pool_of(g, true, 0);
    if (pool < 0)
        return graph_fail(g, err_set(&g->err, PL_UNSUPPORTED,
                                     "%s: a state; memories of one graph may "
                                     "have at most %d retention rules",
                                     name, PL_MAX_POOL));
    d[0].symbol = (pl_symbol)(PL_N_SLOT + pool);
    t = leaf(g, OP_memory, name, PL_F32, 3, d, role);
    if (t >= 0) {
        g->node[t].attr.state = 1;
        /* Rows of a state are stored in order, as those of a cache of values
         * are. Only a cache of keys is stored transposed. */
        g->node[t].attr.values = 1;
    }
    return t;
}

pl_tensor graph_cache(pl_graph *g, const char *name, pl_format f,
                      int64_t n_head, int64_t d_head, bool values,
                      int64_t window, pl_role role)
{
    pl_dim d[3] = {{1, PL_N_SLOT}, {n_head, PL_CONST}, {d_head, PL_CONST}};
    int pool;
    pl_tensor t;

    if (!graph_is_open(g))
        return -1;
    if (!name)
        return graph_fail(g, err_null(&g->err, __func__, "name"));
    if (window < 0 || window > INT32_MAX)
        return graph_fail(g,
                          err_set(&g->err, PL_BAD_ARGUMENT,
                                  "%s: a window of %lld tokens is out of range",
                                  name, (long long)window));
    pool = pool_of(g, false, window);
    if (pool < 0)
        return graph_fail(g,
                          err_set(&g->err, PL_UNSUPPORTED,
                                  "%s: a window of %lld; caches of one graph "
                                  "may have at most %d different windows",
                                  name, (long long)window, PL_MAX_POOL));
    d[0].symbol = (pl_symbol)(PL_N_SLOT + pool);
    if (role == PL_ROLE_NONE)
        role = values ? PL_ROLE_CACHE_V : PL_ROLE_CACHE_K;
    t = leaf(g, OP_memory, name, f, 3, d, role);
    if (t >= 0) {
        g->node[t].attr.values = values;
        g->node[t].attr.window = window;
    }
    return t;
}

pl_tensor pl_cache(pl_graph *g, const char *name, pl_format f, int64_t n_head,
                   int64_t d_head, bool values, int64_t window)
{
    return graph_cache(g, name, f, n_head, d_head, values, window,
                       PL_ROLE_NONE);
}

pl_tensor pl_index_cache(pl_graph *g, const char *name, pl_format f, int64_t d)
{
    return graph_cache(g, name, f, 1, d, false, 0, PL_ROLE_CACHE_INDEX);
}

/* Builders of ops ------------------------------------------------------ */

static const struct graph_attr no_attr;

/* Appends a node with the given op, operands and attributes. If the result's
 * shape cannot be inferred, the caller passes it as given[n_given]. Returns the
 * node, or -1 on failure. */
static pl_tensor make(pl_graph *g, enum op op, int n_in, const pl_tensor *in,
                      const struct graph_attr *attr, int n_given,
                      const pl_dim *given)
{
    struct graph_node n = {.op = op, .n_in = n_in, .attr = *attr};

    if (!graph_is_open(g))
        return -1;
    for (int i = 0; i < n_in; i++) {
        if (!in || in[i] < -1 || in[i] >= g->n_node)
            return graph_fail(
                g, err_set(&g->err, PL_BAD_ARGUMENT,
                           "%s: operand %d is not a tensor of this graph",
                           infos[op].name, i));
        n.in[i] = in[i];
    }
    n.n_dim = n_given;
    if (n_given < 0 || n_given > GRAPH_MAX_DIM)
        return graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                                     "%s: %d dimensions; 1 to %d are allowed",
                                     infos[op].name, n_given, GRAPH_MAX_DIM));
    if (n_given && !given)
        return graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                                     "%s: dim is NULL; give %d dimensions",
                                     infos[op].name, n_given));
    if (n_given)
        memcpy(n.dim, given, (size_t)n_given * sizeof *given);
    if (!shape_infer(g, &n, &g->err))
        return graph_fail(g, PL_BAD_ARGUMENT);
    return graph_append(g, &n);
}

pl_tensor graph_make(pl_graph *g, enum op op, int n_in, const pl_tensor *in,
                     const struct graph_attr *attr, int n_given,
                     const pl_dim *given)
{
    return make(g, op, n_in, in, attr, n_given, given);
}

#define IN(...)   ((pl_tensor[]){__VA_ARGS__})
#define ATTR(...) (&(struct graph_attr){__VA_ARGS__})

#define UNARY(name)                                                            \
    pl_tensor pl_##name(pl_graph *g, pl_tensor x)                              \
    {                                                                          \
        return make(g, OP_##name, 1, IN(x), &no_attr, 0, NULL);                \
    }
#define BINARY(name)                                                           \
    pl_tensor pl_##name(pl_graph *g, pl_tensor a, pl_tensor b)                 \
    {                                                                          \
        return make(g, OP_##name, 2, IN(a, b), &no_attr, 0, NULL);             \
    }

BINARY(gather_rows)
BINARY(matmul)
BINARY(head_matmul)
BINARY(cache_write)
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(swiglu)
BINARY(geglu)
UNARY(softmax)
UNARY(sqr)
UNARY(sqrt)
UNARY(exp)
UNARY(tanh)
UNARY(sigmoid)
UNARY(softplus)
UNARY(silu)
UNARY(gelu)
UNARY(gelu_erf)
UNARY(relu)
UNARY(sum)
UNARY(contiguous)

pl_tensor pl_expert_matmul(pl_graph *g, pl_tensor x, pl_tensor w, pl_tensor ids)
{
    return make(g, OP_expert_matmul, 3, IN(x, w, ids), &no_attr, 0, NULL);
}

pl_tensor pl_expert_down(pl_graph *g, pl_tensor x, pl_tensor w, pl_tensor ids)
{
    return make(g, OP_expert_down, 3, IN(x, w, ids), &no_attr, 0, NULL);
}

pl_tensor pl_rms_norm(pl_graph *g, pl_tensor x, pl_tensor w, float eps)
{
    return make(g, OP_rms_norm, 2, IN(x, w), ATTR(.eps = eps), 0, NULL);
}

pl_tensor pl_layer_norm(pl_graph *g, pl_tensor x, pl_tensor w, float eps)
{
    return make(g, OP_layer_norm, 2, IN(x, w), ATTR(.eps = eps), 0, NULL);
}

pl_tensor pl_rope_apply(pl_graph *g, pl_tensor x, pl_tensor pos,
                        pl_tensor freqs, const pl_rope *rope)
{
    pl_rope r = {0};
    struct graph_attr a;

    if (!graph_is_open(g))
        return -1;
    if (!rope)
        return graph_fail(g, err_null(&g->err, __func__, "rope"));
    if (sized_read(&r, sizeof r, rope, "pl_rope", "call pl_rope_init",
                   &g->err) != PL_OK)
        return graph_fail(g, g->err.status);
    a = (struct graph_attr){
        .base = r.base,
        .freq_scale = r.freq_scale != 0 ? r.freq_scale : 1,
        .yarn = r.yarn,
        .yarn_low = r.yarn_low,
        .yarn_high = r.yarn_high,
        .mscale = r.mscale != 0 ? r.mscale : 1,
        .n_rot = r.n_rot,
        .neox = r.neox,
    };
    return make(g, OP_rope, 3, IN(x, pos, freqs), &a, 0, NULL);
}

pl_tensor pl_attention(pl_graph *g, pl_tensor q, pl_tensor k, pl_tensor v,
                       pl_tensor sinks, float scale, int64_t window,
                       float softcap)
{
    return make(g, OP_attention, 4, IN(q, k, v, sinks),
                ATTR(.scale = scale, .window = window, .softcap = softcap), 0,
                NULL);
}

pl_tensor pl_bidirectional_attention(pl_graph *g, pl_tensor q, pl_tensor k,
                                     pl_tensor v, pl_tensor ends, float scale,
                                     int64_t window, float softcap)
{
    return make(g, OP_bidirectional_attention, 4, IN(q, k, v, ends),
                ATTR(.scale = scale, .window = window, .softcap = softcap), 0,
                NULL);
}

pl_tensor pl_latent_attention(pl_graph *g, pl_tensor q, pl_tensor cache,
                              int64_t d_value, float scale)
{
    return make(g, OP_latent_attention, 2, IN(q, cache),
                ATTR(.scale = scale, .d_value = d_value), 0, NULL);
}

pl_tensor pl_chosen_attention(pl_graph *g, pl_tensor q, pl_tensor cache,
                              pl_tensor chosen, int64_t d_value, float scale)
{
    return make(g, OP_latent_attention, 3, IN(q, cache, chosen),
                ATTR(.scale = scale, .d_value = d_value), 0, NULL);
}

pl_tensor pl_compressed_attention(pl_graph *g, pl_tensor q, pl_tensor keys,
                                  pl_tensor blocks, pl_tensor sinks,
                                  pl_tensor chosen, int ratio, float scale,
                                  int64_t window)
{
    return make(
        g, OP_compressed_attention, 5, IN(q, keys, blocks, sinks, chosen),
        ATTR(.scale = scale, .window = window, .ratio = ratio), 0, NULL);
}

pl_tensor pl_block_mean(pl_graph *g, pl_tensor cache, pl_tensor pos,
                        pl_tensor bias, int64_t d)
{
    return make(g, OP_block_mean, 3, IN(cache, pos, bias), ATTR(.d_value = d),
                0, NULL);
}

pl_tensor pl_compressed_topk(pl_graph *g, pl_tensor q, pl_tensor w,
                             pl_tensor cache, int k, int ratio)
{
    return make(g, OP_index_topk, 3, IN(q, w, cache),
                ATTR(.n_used = k, .ratio = ratio), 0, NULL);
}

pl_tensor pl_sinkhorn(pl_graph *g, pl_tensor x, pl_tensor scale, pl_tensor base,
                      int n_iter, float eps)
{
    return make(g, OP_sinkhorn, 3, IN(x, scale, base),
                ATTR(.eps = eps, .n_iter = n_iter), 0, NULL);
}

pl_tensor pl_mix_streams(pl_graph *g, pl_tensor x, pl_tensor y, pl_tensor w)
{
    return make(g, OP_mix_streams, 3, IN(x, y, w), &no_attr, 0, NULL);
}

pl_tensor pl_index_topk(pl_graph *g, pl_tensor q, pl_tensor w, pl_tensor cache,
                        int k)
{
    return make(g, OP_index_topk, 3, IN(q, w, cache), ATTR(.n_used = k), 0,
                NULL);
}

pl_tensor pl_attention_blocks(pl_graph *g, pl_tensor q, pl_tensor k,
                              pl_tensor v, pl_tensor chosen, int block,
                              float scale)
{
    return make(g, OP_attention_blocks, 4, IN(q, k, v, chosen),
                ATTR(.scale = scale, .block = block), 0, NULL);
}

pl_tensor pl_index_blocks(pl_graph *g, pl_tensor q, pl_tensor cache, int k,
                          int block, int local)
{
    return make(g, OP_index_blocks, 2, IN(q, cache),
                ATTR(.n_used = k, .block = block, .local = local), 0, NULL);
}

pl_tensor pl_short_conv(pl_graph *g, pl_tensor x, pl_tensor w, pl_tensor state,
                        bool silu)
{
    return make(g, OP_short_conv, 3, IN(x, w, state), ATTR(.silu = silu), 0,
                NULL);
}

pl_tensor pl_delta_net(pl_graph *g, pl_tensor q, pl_tensor k, pl_tensor v,
                       pl_tensor decay, pl_tensor beta, pl_tensor state,
                       float eps, bool tiled)
{
    int64_t d = g && q >= 0 && q < g->n_node && g->node[q].n_dim == 3
                    ? g->node[q].dim[2].n
                    : 1;

    return make(g, tiled ? OP_delta_net_tiled : OP_delta_net, 6,
                IN(q, k, v, decay, beta, state),
                ATTR(.eps = eps, .scale = 1 / sqrtf((float)d)), 0, NULL);
}

pl_tensor pl_delta_net_channels(pl_graph *g, pl_tensor q, pl_tensor k,
                                pl_tensor v, pl_tensor decay, pl_tensor beta,
                                pl_tensor state, float eps)
{
    return make(g, OP_delta_net_channels, 6, IN(q, k, v, decay, beta, state),
                ATTR(.eps = eps), 0, NULL);
}

pl_tensor pl_ssm_scan(pl_graph *g, pl_tensor c, pl_tensor b, pl_tensor x,
                      pl_tensor decay, pl_tensor state)
{
    return make(g, OP_ssm_scan, 5, IN(c, b, x, decay, state), &no_attr, 0,
                NULL);
}

pl_tensor pl_router_topk(pl_graph *g, pl_tensor logits, pl_tensor bias,
                         pl_gating gating, int n_used, int n_group,
                         int n_group_used)
{
    return make(g, OP_router_topk, 2, IN(logits, bias),
                ATTR(.gating = (int)gating, .n_used = n_used,
                     .n_group = n_group, .n_group_used = n_group_used),
                0, NULL);
}

pl_tensor pl_router_weights(pl_graph *g, pl_tensor logits, pl_tensor ids,
                            pl_gating gating, bool normalise, float scale)
{
    return make(
        g, OP_router_weights, 2, IN(logits, ids),
        ATTR(.gating = (int)gating, .normalise = normalise, .scale = scale), 0,
        NULL);
}

pl_tensor pl_swiglu_oai(pl_graph *g, pl_tensor gate, pl_tensor up, float limit)
{
    return make(g, OP_swiglu_oai, 2, IN(gate, up),
                ATTR(.lo = -limit, .hi = limit, .alpha = 1.702f), 0, NULL);
}

pl_tensor pl_scale(pl_graph *g, pl_tensor x, float factor)
{
    return make(g, OP_scale, 1, IN(x), ATTR(.scale = factor), 0, NULL);
}

pl_tensor pl_clamp(pl_graph *g, pl_tensor x, float lo, float hi)
{
    return make(g, OP_clamp, 1, IN(x), ATTR(.lo = lo, .hi = hi), 0, NULL);
}

pl_tensor pl_cast(pl_graph *g, pl_tensor x, pl_format f)
{
    return make(g, OP_cast, 1, IN(x), ATTR(.format = (int)f), 0, NULL);
}

pl_tensor pl_reshape(pl_graph *g, pl_tensor x, int n_dim, const pl_dim *dim)
{
    return make(g, OP_reshape, 1, IN(x), &no_attr, n_dim, dim);
}

pl_tensor pl_permute(pl_graph *g, pl_tensor x, const int *perm)
{
    int p[GRAPH_MAX_DIM] = {0};
    int n;

    if (!graph_is_open(g))
        return -1;
    if (!perm)
        return graph_fail(g, err_null(&g->err, __func__, "perm"));
    n = x >= 0 && x < g->n_node ? g->node[x].n_dim : 0;
    for (int i = 0; i < n; i++)
        p[i] = perm[i];
    return make(
        g, OP_permute, 1, IN(x),
        ATTR(.perm0 = p[0], .perm1 = p[1], .perm2 = p[2], .perm3 = p[3]), 0,
        NULL);
}

pl_tensor pl_slice(pl_graph *g, pl_tensor x, int axis, int64_t start,
                   int64_t len)
{
    pl_dim d[GRAPH_MAX_DIM];
    int n = 0;

    if (g && x >= 0 && x < g->n_node) {
        n = g->node[x].n_dim;
        memcpy(d, g->node[x].dim, sizeof d);
        if (axis >= 0 && axis < n)
            d[axis].n = len;
    }
    return make(g, OP_slice, 1, IN(x), ATTR(.axis = axis, .start = start), n,
                d);
}

pl_tensor pl_concat(pl_graph *g, int n, const pl_tensor *x, int axis)
{
    if (!graph_is_open(g))
        return -1;
    if (n < 1 || n > GRAPH_MAX_IN)
        return graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                                     "concat: %d operands; 1 to %d are allowed",
                                     n, GRAPH_MAX_IN));
    return make(g, OP_concat, n, x, ATTR(.axis = axis), 0, NULL);
}

/* Marking outputs and kept values -------------------------------------- */

static struct graph_node *at(pl_graph *g, pl_tensor x)
{
    return g && x >= 0 && x < g->n_node ? &g->node[x] : NULL;
}

void pl_output(pl_graph *g, pl_tensor x)
{
    struct graph_node *n = at(g, x);

    if (graph_is_open(g) && n)
        n->output = true;
}

void pl_keep(pl_graph *g, pl_tensor x)
{
    struct graph_node *n = at(g, x);

    if (graph_is_open(g) && n)
        n->keep = true;
}

void graph_aside(pl_graph *g, pl_tensor x)
{
    struct graph_node *n = at(g, x);

    if (graph_is_open(g) && n)
        n->aside = true;
}

bool graph_network(pl_graph *out, const pl_graph *g)
{
    *out = *g;
    while (out->n_node > 0 && out->node[out->n_node - 1].aside)
        out->n_node--;
    return out->n_node < g->n_node;
}

/* Returns true if node n can have the layout `l` that a user requests. Checks
 * only what does not depend on the number of ranks. Planning also checks the
 * ranks, and that intervals of a quantized row begin at multiples of the
 * format's grain (quant/format.h). */
static bool layout_fits(const struct graph_node *n, const pl_layout *l)
{
    int64_t sum = 0;

    if (l->kind == PL_MIRRORED || l->kind == PL_PARTIAL)
        return true;
    if (l->kind != PL_SPLIT || l->dim < 0 || l->dim >= n->n_dim ||
        l->n_run < 1 || !l->run || l->period < 1 ||
        n->dim[l->dim].symbol != PL_CONST)
        return false;
    for (int i = 0; i < l->n_run; i++) {
        if (l->run[i].len < 1 || l->run[i].len > l->period - sum ||
            l->run[i].owners == 0)
            return false;
        sum += l->run[i].len;
    }
    return sum == l->period && n->dim[l->dim].n % l->period == 0;
}

void pl_want_layout(pl_graph *g, pl_tensor x, const pl_layout *l)
{
    struct graph_node *n = at(g, x);
    pl_layout *copy;

    if (!n || !graph_is_open(g))
        return;
    if (!l) {
        graph_fail(g, err_null(&g->err, __func__, "l"));
        return;
    }
    if (!layout_fits(n, l)) {
        graph_fail(
            g, err_set(&g->err, PL_BAD_ARGUMENT,
                       "%s: the requested layout does not fit: a split needs a "
                       "constant dimension, runs with owners, and a period "
                       "that is their sum and divides the dimension's size",
                       n->name));
        return;
    }
    if (!infos[n->op].is_new) {
        graph_fail(
            g,
            err_set(
                &g->err, PL_BAD_ARGUMENT,
                "%s: its value is stored in the cache; request a layout for %s",
                n->name, g->node[graph_memory(g, x)].name));
        return;
    }
    if (n->op == OP_memory && l->kind == PL_SPLIT && l->dim != 1) {
        graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                              "%s: a cache is split by heads; request a split "
                              "of dimension 1, not %d",
                              n->name, l->dim));
        return;
    }
    for (int d = 0; n->op == OP_input && l->kind == PL_SPLIT && d < n->n_dim;
         d++)
        if (d > l->dim && n->dim[d].symbol != PL_CONST) {
            graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                                  "%s: an input is set before its dimension %d "
                                  "has a size, so it cannot be split outside "
                                  "of it; request a split of its reader",
                                  n->name, d));
            return;
        }
    copy = arena_memdup(&g->arena, l, 1, sizeof *l);
    if (copy && l->kind == PL_SPLIT)
        copy->run =
            arena_memdup(&g->arena, l->run, (size_t)l->n_run, sizeof *l->run);
    else if (copy)
        *copy = (pl_layout){.kind = l->kind};
    if (!copy || (l->kind == PL_SPLIT && !copy->run)) {
        graph_fail(g, err_no_memory(&g->err, "a layout"));
        return;
    }
    n->want = copy;
}

const char *pl_tensor_name(const pl_graph *g, pl_tensor x)
{
    return g && x >= 0 && x < g->n_node ? g->node[x].name : "";
}

void pl_name(pl_graph *g, pl_tensor x, const char *name)
{
    struct graph_node *n = at(g, x);
    char *copy;

    if (!n || !graph_is_open(g))
        return;
    if (!name) {
        graph_fail(g, err_null(&g->err, __func__, "name"));
        return;
    }
    if (!strcmp(n->name, name))
        return;
    if (!*name || n->op == OP_input || n->op == OP_weight ||
        n->op == OP_memory) {
        graph_fail(g, err_set(&g->err, PL_BAD_ARGUMENT,
                              *name ? "%s: a leaf cannot be renamed"
                                    : "%s: an empty name",
                              n->name));
        return;
    }
    if (pl_tensor_find(g, name) >= 0) {
        graph_fail(g, name_taken(g, name));
        return;
    }
    copy = arena_strdup(&g->arena, name);
    if (!copy || !names_reserve(g)) {
        graph_fail(g, err_no_memory(&g->err, "a tensor's name"));
        return;
    }
    n->name = copy;
    name_insert(g->named, g->named_cap, copy, x);
    g->n_named++;
}

int pl_tensor_shape(const pl_graph *g, pl_tensor x, pl_dim dim[4])
{
    if (!g || x < 0 || x >= g->n_node)
        return -1;
    if (dim)
        memcpy(dim, g->node[x].dim, sizeof g->node[x].dim);
    return g->node[x].n_dim;
}
