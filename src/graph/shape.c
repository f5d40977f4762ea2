/* Shape inference: for each op, the requirements on operands, and the shape of
 * the result.
 *
 * The function of an op (shape_*) reads the operands and attributes of node n
 * and sets n->dim. It returns false and sets the error if a requirement is not
 * met. Values are F32; ids and positions are I32. Only leaves have other
 * formats. */
#include "graph/shape.h"

#include "base/err.h"
#include "quant/format.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Maximum number of elements of a tensor. */
static const int64_t MAX_COUNT = (int64_t)1 << 46;

struct shape {
    const pl_graph *g;
    struct graph_node *n;
    /* The operand's nodes; NULL for an absent operand. */
    const struct graph_node *in[GRAPH_MAX_IN];
    pl_err *err;
};

bool dim_equal(pl_dim a, pl_dim b)
{
    return a.n == b.n && (a.symbol == b.symbol || a.n == 0);
}

static pl_dim constant(int64_t n)
{
    return (pl_dim){n, PL_CONST};
}

static bool is_one(pl_dim d)
{
    return dim_equal(d, constant(1));
}

static bool is_dim(pl_dim d)
{
    return d.n >= 1 && (unsigned)d.symbol < GRAPH_N_SEQ;
}

const char *const dim_symbols[GRAPH_N_SEQ + 1] = {
    [PL_N_TOK] = "n_tok",        [PL_N_OUT] = "n_out",
    [PL_N_SLOT] = "n_slot",      [PL_N_SLOT + 1] = "n_slot1",
    [PL_N_SLOT + 2] = "n_slot2", [PL_N_SLOT + 3] = "n_slot3",
    [GRAPH_N_SEQ] = "n_seq"};
static_assert(PL_MAX_POOL == 4, "each pool's slots need a name");

const char *dim_print(pl_dim d, char buf[32])
{
    if (d.symbol == PL_CONST)
        snprintf(buf, 32, "%" PRId64, d.n);
    else if (d.n == 1)
        snprintf(buf, 32, "%s", dim_symbols[d.symbol]);
    else
        snprintf(buf, 32, "%" PRId64 "*%s", d.n, dim_symbols[d.symbol]);
    return buf;
}

/* Writes the name and shape of a node to `buf`, such as "name [n_tok, 64]".
 * Returns `buf`. */
static const char *show(const struct graph_node *n, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "%s [", n->name);
    char d[32];

    for (int i = 0; i < n->n_dim && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s", i ? ", " : "",
                                 dim_print(n->dim[i], d));
    if (used < size)
        snprintf(buf + used, size - used, "]");
    return buf;
}

static bool fail(struct shape *s, const char *what)
{
    char a[160] = "", b[160] = "";

    if (s->in[0])
        show(s->in[0], a, sizeof a);
    if (s->in[1])
        show(s->in[1], b, sizeof b);
    err_set(s->err, PL_BAD_ARGUMENT, "%s(%s%s%s): %s", graph_op_name(s->n), a,
            *b ? ", " : "", b, what);
    return false;
}

static bool result(struct shape *s, int n_dim, const pl_dim *dim)
{
    s->n->n_dim = n_dim;
    if (n_dim != 0 && dim != s->n->dim)
        memcpy(s->n->dim, dim, (size_t)n_dim * sizeof *dim);
    return true;
}

static bool like(struct shape *s, const struct graph_node *x)
{
    return result(s, x->n_dim, x->dim);
}

static pl_dim last(const struct graph_node *x)
{
    return x->dim[x->n_dim - 1];
}

static bool is_packed_weight(const struct graph_node *x)
{
    return x->op == OP_weight;
}

static bool shape_gather_rows(struct shape *s)
{
    const struct graph_node *t = s->in[0], *ids = s->in[1];
    pl_dim d[GRAPH_MAX_DIM];

    if (t->n_dim != 2)
        return fail(s, "the table needs two dimensions");
    if (ids->format != PL_I32)
        return fail(s, "ids must be I32");
    if (ids->n_dim >= GRAPH_MAX_DIM)
        return fail(s, "too many dimensions of ids");
    memcpy(d, ids->dim, sizeof d);
    d[ids->n_dim] = t->dim[1];
    if (t->format == PL_I32)
        s->n->format = PL_I32;
    return result(s, ids->n_dim + 1, d);
}

static bool shape_matmul(struct shape *s)
{
    const struct graph_node *x = s->in[0], *w = s->in[1];
    pl_dim d[GRAPH_MAX_DIM];

    if (!is_packed_weight(w) || w->n_dim != 2)
        return fail(s, "the second operand must be a weight [n, k]");
    if (!dim_equal(last(x), w->dim[1]))
        return fail(s, "the last dimensions differ");
    memcpy(d, x->dim, sizeof d);
    d[x->n_dim - 1] = w->dim[0];
    return result(s, x->n_dim, d);
}

static bool shape_head_matmul(struct shape *s)
{
    const struct graph_node *x = s->in[0], *w = s->in[1];
    pl_dim d[3];

    if (x->n_dim != 3)
        return fail(s, "x needs dimensions [t, h, k]");
    if (!is_packed_weight(w) || w->n_dim != 3)
        return fail(s, "the second operand must be a weight [h, n, k]");
    if (!dim_equal(x->dim[1], w->dim[0]))
        return fail(s, "the numbers of heads differ");
    if (!dim_equal(x->dim[2], w->dim[2]))
        return fail(s, "the last dimensions differ");
    d[0] = x->dim[0];
    d[1] = x->dim[1];
    d[2] = w->dim[1];
    return result(s, 3, d);
}

static bool expert_operands(struct shape *s)
{
    const struct graph_node *x = s->in[0], *w = s->in[1], *ids = s->in[2];

    if (x->n_dim != 3)
        return fail(s, "x needs dimensions [t, u, k]");
    if (!is_packed_weight(w) || w->n_dim != 3)
        return fail(s, "the second operand must be a weight [e, n, k]");
    if (!ids || ids->format != PL_I32 || ids->n_dim != 2)
        return fail(s, "ids must be I32 [t, u]");
    if (!dim_equal(x->dim[2], w->dim[2]))
        return fail(s, "the last dimensions differ");
    if (!dim_equal(x->dim[0], ids->dim[0]) || ids->dim[1].symbol != PL_CONST ||
        x->dim[1].symbol != PL_CONST)
        return fail(s, "ids must be [t, u] with x's t and a constant u");
    return true;
}

static bool shape_expert_matmul(struct shape *s)
{
    const struct graph_node *x = s->in[0];
    pl_dim d[3];

    if (!expert_operands(s))
        return false;
    if (!dim_equal(x->dim[1], s->in[2]->dim[1]) && !is_one(x->dim[1]))
        return fail(s, "x must have the u choices of ids, or one for all");
    d[0] = x->dim[0];
    d[1] = s->in[2]->dim[1];
    d[2] = s->in[1]->dim[1];
    return result(s, 3, d);
}

static bool shape_expert_down(struct shape *s)
{
    pl_dim d[2];

    if (!expert_operands(s))
        return false;
    if (!dim_equal(s->in[0]->dim[1], s->in[2]->dim[1]))
        return fail(s, "x must have the u choices of ids");
    d[0] = s->in[0]->dim[0];
    d[1] = s->in[1]->dim[1];
    return result(s, 2, d);
}

static bool shape_rms_norm(struct shape *s)
{
    const struct graph_node *x = s->in[0], *w = s->in[1];

    if (w && (w->n_dim != 1 || !dim_equal(w->dim[0], last(x))))
        return fail(s, "the weight must have x's last dimension");
    if (last(x).symbol != PL_CONST)
        return fail(s, "the last dimension must be constant");
    return like(s, x);
}

#define shape_layer_norm shape_rms_norm

static bool shape_rope(struct shape *s)
{
    const struct graph_node *x = s->in[0], *pos = s->in[1], *f = s->in[2];
    int n = s->n->attr.n_rot;

    if (x->n_dim != 3)
        return fail(s, "x needs dimensions [t, h, d]");
    if (!pos || pos->format != PL_I32 || pos->n_dim != 1 ||
        !dim_equal(pos->dim[0], x->dim[0]))
        return fail(s, "positions must be I32 [t]");
    if (n < 2 || n % 2 || n > last(x).n || last(x).symbol != PL_CONST)
        return fail(s, "n_rot must be even, at least 2 and at most d");
    if (f && (f->n_dim != 1 || !dim_equal(f->dim[0], constant(n / 2))))
        return fail(s, "frequency factors must be [n_rot / 2]");
    if (!(s->n->attr.base > 0))
        return fail(s, "the frequency base must be positive");
    if (s->n->attr.window < 0 || s->n->attr.window > INT32_MAX ||
        s->n->attr.start < 0 || s->n->attr.start > INT32_MAX)
        return fail(s, "window and start must be in 0 .. 2147483647");
    return like(s, x);
}

static bool shape_cache_write(struct shape *s)
{
    const struct graph_node *c = s->in[0], *x = s->in[1];

    if (c->attr.state)
        return fail(s, "a state is written only by its op");
    if (!x || x->n_dim != 3 || !dim_equal(x->dim[1], c->dim[1]) ||
        !dim_equal(x->dim[2], c->dim[2]))
        return fail(s, "x must be [t, n_head, d_head] of the cache");
    if (x->dim[0].symbol != PL_N_TOK || x->dim[0].n != 1)
        return fail(s, "x must have one row per token of the step");
    s->n->attr.values = c->attr.values;
    return like(s, c);
}

/* Checks that the shape of the queries fits the cache of keys. */
static bool queries_fit(struct shape *s)
{
    const struct graph_node *q = s->in[0], *k = s->in[1];

    if (q->n_dim != 3 || !dim_equal(q->dim[2], k->dim[2]))
        return fail(s, "q must be [t, n_head, d] with the keys' d");
    if (q->dim[0].symbol != PL_N_TOK || q->dim[0].n != 1)
        return fail(s, "q must have one row per token of the step");
    return q->dim[1].n % k->dim[1].n == 0 ||
           fail(s, "the heads of q must be a multiple of the cache's");
}

/* Checks that the caches of keys and values fit each other and the queries.
 * Sets d[3] to the shape of the result. */
static bool caches_fit(struct shape *s, pl_dim d[3])
{
    const struct graph_node *q = s->in[0], *k = s->in[1], *v = s->in[2];

    if (k->attr.values || !v->attr.values || v->attr.state)
        return fail(s,
                    "keys must be a cache of keys, and values one of values");
    if (k->dim[0].symbol != v->dim[0].symbol)
        return fail(
            s, "keys and values must be kept for the same number of tokens");
    if (!queries_fit(s))
        return false;
    if (!dim_equal(k->dim[1], v->dim[1]))
        return fail(s, "keys and values must have the same number of heads");
    if (s->n->attr.window < 0)
        return fail(s, "the window must not be negative");
    memcpy(d, q->dim, 3 * sizeof *d);
    d[2] = v->dim[2];
    return true;
}

static bool shape_attention(struct shape *s)
{
    const struct graph_node *q = s->in[0], *k = s->in[1], *sinks = s->in[3];
    int64_t kept = s->g->pool[dim_pool(k->dim[0])].window;
    pl_dim d[3];

    if (!caches_fit(s, d))
        return false;
    if (sinks && (sinks->n_dim != 1 || !dim_equal(sinks->dim[0], q->dim[1])))
        return fail(s, "sinks must be [n_head]");
    if (kept > 0 && (s->n->attr.window == 0 || s->n->attr.window > kept))
        return fail(s, "the caches keep fewer tokens than the window");
    return result(s, 3, d);
}

static bool shape_bidirectional_attention(struct shape *s)
{
    const struct graph_node *k = s->in[1], *ends = s->in[3];
    pl_dim d[3];

    if (!caches_fit(s, d))
        return false;
    if (ends->format != PL_I32 || ends->n_dim != 1 ||
        !dim_equal(ends->dim[0], d[0]))
        return fail(s, "ends must be I32 [t]");
    if (s->g->pool[dim_pool(k->dim[0])].window > 0)
        return fail(s, "the caches must keep all tokens");
    return result(s, 3, d);
}

static bool shape_latent_attention(struct shape *s)
{
    const struct graph_node *q = s->in[0], *k = s->in[1], *chosen = s->in[2];
    pl_dim d[3];

    if (!k->attr.values)
        return fail(s, "latents must be in a cache of values");
    if (s->g->pool[dim_pool(k->dim[0])].window > 0)
        return fail(s, "the cache keeps fewer tokens than the window");
    if (!queries_fit(s))
        return false;
    if (s->n->attr.d_value < 1 || s->n->attr.d_value > k->dim[2].n)
        return fail(s, "d_value must be at least 1 and at most the cache's d");
    if (chosen && (chosen->format != PL_I32 || chosen->n_dim != 2 ||
                   !dim_equal(chosen->dim[0], q->dim[0]) ||
                   last(chosen).symbol != PL_CONST))
        return fail(s, "chosen positions must be I32 [t, k]");
    memcpy(d, q->dim, sizeof d);
    d[2].n = s->n->attr.d_value;
    return result(s, 3, d);
}

static bool shape_attention_blocks(struct shape *s)
{
    const struct graph_node *k = s->in[1], *chosen = s->in[3];
    pl_dim d[3];

    if (!caches_fit(s, d))
        return false;
    if (chosen->format != PL_I32 || chosen->n_dim != 3 ||
        !dim_equal(chosen->dim[0], d[0]) ||
        !dim_equal(chosen->dim[1], k->dim[1]) ||
        last(chosen).symbol != PL_CONST)
        return fail(s, "chosen blocks must be I32 [t, n_kv, k]");
    if (s->g->pool[dim_pool(k->dim[0])].window > 0)
        return fail(s, "the caches must keep all tokens");
    if (s->n->attr.block < 1 || s->n->attr.window != 0)
        return fail(s, "block must be at least 1, and the window 0");
    return result(s, 3, d);
}

/* Checks that q are queries of an indexer whose keys are in the cache k. */
static bool indexer_fits(struct shape *s, const struct graph_node *q,
                         const struct graph_node *k)
{
    if (k->attr.values || k->attr.state || k->dim[1].n != 1)
        return fail(s, "the keys must be a cache of keys with one head");
    if (s->g->pool[dim_pool(k->dim[0])].window > 0)
        return fail(s, "the cache must keep the keys of all tokens");
    if (q->n_dim != 3 || !dim_equal(q->dim[2], k->dim[2]) ||
        q->dim[1].symbol != PL_CONST)
        return fail(s, "q must be [t, j, d] with the keys' d");
    if (q->dim[0].symbol != PL_N_TOK || q->dim[0].n != 1)
        return fail(s, "q must have one row per token of the step");
    return true;
}

static bool shape_index_blocks(struct shape *s)
{
    const struct graph_node *q = s->in[0];
    const struct graph_attr *a = &s->n->attr;
    const pl_dim d[3] = {q->dim[0], q->dim[1], constant(a->n_used)};

    if (!indexer_fits(s, q, s->in[1]))
        return false;
    if (a->block < 1 || a->n_used < 1)
        return fail(s, "block and n_used must be at least 1");
    if (a->local < 0 || a->local > a->n_used)
        return fail(s, "local must be 0 to n_used");
    s->n->format = PL_I32;
    return result(s, 3, d);
}

static bool shape_index_topk(struct shape *s)
{
    const struct graph_node *q = s->in[0], *w = s->in[1];
    const pl_dim d[2] = {q->dim[0], constant(s->n->attr.n_used)};

    if (!indexer_fits(s, q, s->in[2]))
        return false;
    if (w->n_dim != 2 || !dim_equal(w->dim[0], q->dim[0]) ||
        !dim_equal(w->dim[1], q->dim[1]))
        return fail(s, "w must be [t, j]");
    if (s->n->attr.n_used < 1 || s->n->attr.ratio < 0)
        return fail(s, "n_used must be at least 1, and ratio not negative");
    s->n->format = PL_I32;
    return result(s, 2, d);
}

static bool shape_compressed_attention(struct shape *s)
{
    const struct graph_node *q = s->in[0], *k = s->in[1], *b = s->in[2];
    const struct graph_node *sinks = s->in[3], *chosen = s->in[4];

    for (int i = 1; i < 3; i++)
        if (!s->in[i]->attr.values || s->in[i]->attr.state ||
            s->g->pool[dim_pool(s->in[i]->dim[0])].window > 0)
            return fail(s, "keys and blocks must be caches of values of all "
                           "tokens");
    if (k->dim[1].n != b->dim[1].n || k->dim[2].n != b->dim[2].n ||
        k->format != b->format)
        return fail(s, "keys and blocks must have the same shape and format");
    if (!queries_fit(s))
        return false;
    if (sinks->n_dim != 1 || !dim_equal(sinks->dim[0], q->dim[1]))
        return fail(s, "sinks must be [n_head]");
    if (s->n->attr.window < 1 || s->n->attr.window > INT32_MAX)
        return fail(s, "the window must be in 1 .. 2147483647");
    if (s->n->attr.ratio < 1)
        return fail(s, "the ratio must be at least 1");
    if (chosen && (chosen->format != PL_I32 || chosen->n_dim != 2 ||
                   !dim_equal(chosen->dim[0], q->dim[0]) ||
                   last(chosen).symbol != PL_CONST))
        return fail(s, "chosen blocks must be I32 [t, k]");
    return result(s, 3, q->dim);
}

static bool shape_block_mean(struct shape *s)
{
    const struct graph_node *c = s->in[0], *pos = s->in[1], *bias = s->in[2];
    const pl_dim d[2] = {pos->dim[0], constant(s->n->attr.d_value)};
    int64_t n = c->dim[2].n / 2, kept = s->g->pool[dim_pool(c->dim[0])].window;
    bool both = n == 2 * s->n->attr.d_value;

    if (!c->attr.values || c->attr.state || c->dim[1].n != 1 ||
        c->format != PL_F32)
        return fail(s, "the cache must be an F32 cache of values with one "
                       "head");
    if (pos->format != PL_I32 || pos->n_dim != 1 ||
        pos->dim[0].symbol != PL_N_TOK || pos->dim[0].n != 1)
        return fail(s, "positions must be I32 [t], one per token of the step");
    if (c->dim[2].n % 2 || s->n->attr.d_value < 1 ||
        (n != s->n->attr.d_value && !both))
        return fail(s, "the cache must be two or four times d_value wide");
    if (bias->n_dim != 2 || !dim_equal(bias->dim[1], constant(n)) ||
        bias->dim[0].symbol != PL_CONST || bias->dim[0].n > INT32_MAX / 2)
        return fail(s, "the bias must be [ratio, half the cache's d]");
    if (kept > 0 && kept < (both ? 2 : 1) * bias->dim[0].n)
        return fail(s, "the cache keeps fewer tokens than a mean needs");
    return result(s, 2, d);
}

enum { MAX_STREAM = 8 };

/* Returns the number of streams n if d = n (n + 2), else 0. */
static int64_t streams_of(pl_dim d)
{
    for (int64_t n = 1; n <= MAX_STREAM && d.symbol == PL_CONST; n++)
        if (d.n == n * (n + 2))
            return n;
    return 0;
}

static bool shape_sinkhorn(struct shape *s)
{
    const struct graph_node *x = s->in[0], *scale = s->in[1];
    const struct graph_node *base = s->in[2];

    if (streams_of(last(x)) == 0)
        return fail(s, "x must be [*, n (n + 2)] with n in 1 .. 8");
    if (scale->n_dim != 1 || !dim_equal(scale->dim[0], constant(3)) ||
        base->n_dim != 1 || !dim_equal(base->dim[0], last(x)))
        return fail(s, "the scale must be [3] and the base [n (n + 2)]");
    if (s->n->attr.n_iter < 1)
        return fail(s, "n_iter must be at least 1");
    return like(s, x);
}

static bool shape_mix_streams(struct shape *s)
{
    const struct graph_node *x = s->in[0], *y = s->in[1], *w = s->in[2];

    if (x->n_dim != 3 || y->n_dim != 2 || !dim_equal(x->dim[0], y->dim[0]) ||
        !dim_equal(x->dim[2], y->dim[1]))
        return fail(s, "x must be [t, n, e] and y [t, e]");
    if (w->n_dim != 2 || !dim_equal(w->dim[0], x->dim[0]) ||
        x->dim[1].symbol != PL_CONST || x->dim[1].n > MAX_STREAM ||
        !dim_equal(w->dim[1], constant(x->dim[1].n * (x->dim[1].n + 1))))
        return fail(s, "the weights must be [t, n (n + 1)] with n in 1 .. 8");
    return like(s, x);
}

/* Checks that x has one row per token of the step, and that the memory is a
 * recurrent state. */
static bool is_state_of(struct shape *s, const struct graph_node *x,
                        const struct graph_node *state)
{
    if (x->dim[0].symbol != PL_N_TOK || x->dim[0].n != 1)
        return fail(s, "x must have one row per token of the step");
    if (!state->attr.state)
        return fail(s, "the memory must be a state, not a cache");
    return true;
}

static bool shape_short_conv(struct shape *s)
{
    const struct graph_node *x = s->in[0], *w = s->in[1], *state = s->in[2];

    if (x->n_dim != 2 || w->n_dim != 2 || !dim_equal(w->dim[0], x->dim[1]) ||
        w->dim[1].symbol != PL_CONST)
        return fail(s, "x must be [t, c] and the taps [c, n]");
    if (w->format != PL_F32)
        return fail(s, "taps must be F32; cast them first");
    if (w->dim[1].n < 2 || !dim_equal(state->dim[1], x->dim[1]) ||
        state->dim[2].n != w->dim[1].n - 1)
        return fail(s, "the state must be [slots, c, taps - 1]");
    return is_state_of(s, x, state) && like(s, x);
}

static bool shape_delta_net(struct shape *s)
{
    const struct graph_node *q = s->in[0], *k = s->in[1], *v = s->in[2];
    const struct graph_node *state = s->in[5];
    const bool channels = s->n->op == OP_delta_net_channels;

    if (q->n_dim != 3 || k->n_dim != 3 || v->n_dim != 3)
        return fail(s, "q, k and v must be [t, n_head, d]");
    for (int i = 0; i < 3; i++)
        if (!dim_equal(q->dim[i], k->dim[i]))
            return fail(s, "q and k must have the same shape");
    if (!dim_equal(q->dim[0], v->dim[0]) || v->dim[1].n % q->dim[1].n)
        return fail(s, "the heads of v must be a multiple of k's");
    for (int i = 3; i < 5; i++)
        if (s->in[i]->n_dim != (i == 3 && channels ? 3 : 2) ||
            !dim_equal(s->in[i]->dim[0], v->dim[0]) ||
            !dim_equal(s->in[i]->dim[1], v->dim[1]))
            return fail(s, channels ? "decay must be [t, n_head, d] and beta "
                                      "[t, n_head] of v's heads"
                                    : "decay and beta must be [t, n_head] of "
                                      "v's heads");
    if (channels && !dim_equal(s->in[3]->dim[2], k->dim[2]))
        return fail(s, "decay must have a value for each of k's channels");
    if (!dim_equal(state->dim[1], v->dim[1]) ||
        state->dim[2].n != k->dim[2].n * v->dim[2].n)
        return fail(s, "the state must be [slots, n_head, d_k * d_v]");
    return is_state_of(s, v, state) && like(s, v);
}

static bool shape_delta_net_tiled(struct shape *s)
{
    return shape_delta_net(s);
}

static bool shape_delta_net_channels(struct shape *s)
{
    return shape_delta_net(s);
}

static bool shape_ssm_scan(struct shape *s)
{
    const struct graph_node *c = s->in[0], *b = s->in[1], *x = s->in[2];
    const struct graph_node *decay = s->in[3], *state = s->in[4];

    if (c->n_dim != 3 || b->n_dim != 3 || x->n_dim != 3)
        return fail(s, "c, b and x must be [t, n_head, d]");
    for (int i = 0; i < 3; i++)
        if (!dim_equal(c->dim[i], b->dim[i]))
            return fail(s, "c and b must have the same shape");
    if (!dim_equal(c->dim[0], x->dim[0]) || x->dim[1].n % c->dim[1].n)
        return fail(s, "the heads of x must be a multiple of b's groups");
    if (decay->n_dim != 2 || !dim_equal(decay->dim[0], x->dim[0]) ||
        !dim_equal(decay->dim[1], x->dim[1]))
        return fail(s, "the decay must be [t, n_head] of x's heads");
    if (!dim_equal(state->dim[1], x->dim[1]) ||
        state->dim[2].n != b->dim[2].n * x->dim[2].n)
        return fail(s, "the state must be [slots, n_head, d_state * d_head]");
    return is_state_of(s, x, state) && like(s, x);
}

static bool shape_softmax(struct shape *s)
{
    if (last(s->in[0]).symbol != PL_CONST)
        return fail(s, "the last dimension must be constant");
    return like(s, s->in[0]);
}

static bool is_gating(int g)
{
    return g >= 0 && g <= PL_GATING_SQRT_SOFTPLUS;
}

static bool shape_router_topk(struct shape *s)
{
    const struct graph_node *x = s->in[0], *b = s->in[1];
    struct graph_attr *a = &s->n->attr;
    int64_t e = last(x).n;
    pl_dim d[GRAPH_MAX_DIM];

    if (last(x).symbol != PL_CONST || a->n_used < 1 || a->n_used > e)
        return fail(s, "n_used must be in 1 .. n_expert");
    if (b && (b->n_dim != 1 || !dim_equal(b->dim[0], last(x))))
        return fail(s, "the bias must be [n_expert]");
    if (!is_gating(a->gating))
        return fail(s, "unknown gating");
    if (a->n_group > 1 &&
        (e % a->n_group || e < 2 * a->n_group || a->n_group_used < 1 ||
         a->n_group_used > a->n_group ||
         e / a->n_group * a->n_group_used < a->n_used))
        return fail(s, "expert groups do not divide the experts");
    memcpy(d, x->dim, sizeof d);
    d[x->n_dim - 1].n = a->n_used;
    s->n->format = PL_I32;
    return result(s, x->n_dim, d);
}

static bool shape_router_weights(struct shape *s)
{
    const struct graph_node *x = s->in[0], *ids = s->in[1];

    if (!ids || ids->format != PL_I32 || ids->n_dim != x->n_dim)
        return fail(s, "ids must be I32 [*, n_used]");
    if (last(ids).symbol != PL_CONST)
        return fail(s, "n_used must be constant");
    if (!is_gating(s->n->attr.gating))
        return fail(s, "unknown gating");
    for (int i = 0; i + 1 < ids->n_dim; i++)
        if (!dim_equal(ids->dim[i], x->dim[i]))
            return fail(s, "ids must have as many rows as the logits");
    return like(s, ids);
}

static bool elementwise(struct shape *s)
{
    const struct graph_node *a = s->in[0], *b = s->in[1];
    pl_dim d[GRAPH_MAX_DIM];
    int n;

    if (!b)
        return fail(s, "expected two operands");
    n = a->n_dim > b->n_dim ? a->n_dim : b->n_dim;
    /* Dimensions are compared from the right, because an operand may lack
     * leading ones. */
    for (int i = 1; i <= n; i++) {
        pl_dim x = i <= a->n_dim ? a->dim[a->n_dim - i] : constant(1);
        pl_dim y = i <= b->n_dim ? b->dim[b->n_dim - i] : constant(1);

        if (!dim_equal(x, y) && !is_one(x) && !is_one(y))
            return fail(s, "the shapes do not broadcast");
        d[n - i] = is_one(x) ? y : x;
    }
    return result(s, n, d);
}

static bool same(struct shape *s)
{
    return like(s, s->in[0]);
}

static bool shape_sum(struct shape *s)
{
    const struct graph_node *x = s->in[0];
    pl_dim d[GRAPH_MAX_DIM];

    if (x->n_dim < 2)
        return fail(s, "expected at least two dimensions");
    if (x->dim[x->n_dim - 2].symbol != PL_CONST)
        return fail(s, "the summed dimension must be constant");
    memcpy(d, x->dim, sizeof d);
    d[x->n_dim - 2] = last(x);
    return result(s, x->n_dim - 1, d);
}

static bool shape_cast(struct shape *s)
{
    int f = s->n->attr.format;

    if (f != PL_F32 && f != PL_F16 && f != PL_BF16)
        return fail(s, "expected F32, F16 or BF16");
    return like(s, s->in[0]);
}

static bool shape_reshape(struct shape *s)
{
    const struct graph_node *x = s->in[0];
    int64_t a = 1, b = 1;
    pl_symbol sa = PL_CONST, sb = PL_CONST;

    if (s->n->n_dim < 1)
        return fail(s, "the shape is missing");
    for (int i = 0; i < x->n_dim; i++) {
        a *= x->dim[i].n;
        sa = x->dim[i].symbol != PL_CONST ? x->dim[i].symbol : sa;
    }
    for (int i = 0; i < s->n->n_dim; i++) {
        if (!is_dim(s->n->dim[i]) ||
            __builtin_mul_overflow(b, s->n->dim[i].n, &b))
            return fail(s, "the given shape is out of range");
        sb = s->n->dim[i].symbol != PL_CONST ? s->n->dim[i].symbol : sb;
    }
    if (a != b || sa != sb)
        return fail(s, "the given shape has another number of values");
    return true;
}

static bool shape_permute(struct shape *s)
{
    const struct graph_node *x = s->in[0];
    const struct graph_attr *a = &s->n->attr;
    int p[GRAPH_MAX_DIM] = {a->perm0, a->perm1, a->perm2, a->perm3};
    unsigned seen = 0;
    pl_dim d[GRAPH_MAX_DIM];

    for (int i = 0; i < x->n_dim; i++) {
        if (p[i] < 0 || p[i] >= x->n_dim || seen >> p[i] & 1)
            return fail(s, "not a permutation of the dimensions");
        seen |= 1u << p[i];
        d[i] = x->dim[p[i]];
    }
    return result(s, x->n_dim, d);
}

static bool shape_slice(struct shape *s)
{
    const struct graph_node *x = s->in[0];
    int axis = s->n->attr.axis;
    int64_t start = s->n->attr.start;

    if (axis < 0 || axis >= x->n_dim || x->dim[axis].symbol != PL_CONST)
        return fail(s, "the axis must be a constant dimension");
    if (s->n->n_dim != x->n_dim)
        return fail(s, "the given shape has another number of dimensions");
    for (int i = 0; i < x->n_dim; i++)
        if (i != axis && !dim_equal(s->n->dim[i], x->dim[i]))
            return fail(s, "only the axis may change");
    if (s->n->dim[axis].symbol != PL_CONST)
        return fail(s, "the range must be constant");
    if (start < 0 || s->n->dim[axis].n < 1 || start > x->dim[axis].n ||
        s->n->dim[axis].n > x->dim[axis].n - start)
        return fail(s, "the range is outside the axis");
    return true;
}

static bool shape_concat(struct shape *s)
{
    const struct graph_node *x = s->in[0];
    int axis = s->n->attr.axis;
    pl_dim d[GRAPH_MAX_DIM];

    if (axis < 0 || axis >= x->n_dim || x->dim[axis].symbol != PL_CONST)
        return fail(s, "the axis must be a constant dimension");
    memcpy(d, x->dim, sizeof d);
    for (int j = 1; j < s->n->n_in; j++) {
        const struct graph_node *y = s->in[j];

        if (!y || y->n_dim != x->n_dim)
            return fail(s, "the numbers of dimensions differ");
        for (int i = 0; i < x->n_dim; i++)
            if (i == axis ? y->dim[i].symbol != PL_CONST
                          : !dim_equal(x->dim[i], y->dim[i]))
                return fail(s, "only the axis may differ");
        d[axis].n += y->dim[axis].n;
    }
    return result(s, x->n_dim, d);
}

static bool shape_custom(struct shape *s)
{
    if (!s->n->custom)
        return fail(s, "a custom op is created by pl_custom");
    return custom_shape(s->g, s->n, s->err);
}

#define shape_add        elementwise
#define shape_sub        elementwise
#define shape_mul        elementwise
#define shape_div        elementwise
#define shape_swiglu     elementwise
#define shape_geglu      elementwise
#define shape_swiglu_oai elementwise
#define shape_scale      same
#define shape_clamp      same
#define shape_sqr        same
#define shape_sqrt       same
#define shape_exp        same
#define shape_tanh       same
#define shape_sigmoid    same
#define shape_softplus   same
#define shape_silu       same
#define shape_gelu       same
#define shape_gelu_erf   same
#define shape_relu       same
#define shape_contiguous same

static bool (*const shapes[OP_COUNT])(struct shape *) = {
#define OP(name, dims, partial, result, refused) [OP_##name] = shape_##name,
#include "graph/ops.def"
#undef OP
};

/* Sets *need and *most to the minimum and maximum number of operands of node n.
 * Optional operands come last. */
static void operands(const struct graph_node *n, int *need, int *most)
{
    const char *d = graph_dims(n);

    *need = *most = 1;
    if (n->op == OP_concat)
        *most = GRAPH_MAX_IN;
    if (!strcmp(d, "MOVE"))
        return;
    for (; *d != '-'; d++)
        *most += *d == ',';
    *need = *most;
    for (d = graph_dims(n); *d != '-'; d++)
        *need -= *d == '?';
}

/* Checks that the op can read weight `i` of its operands in the weight's
 * format. The matrix of a product and the table of gather_rows may have any
 * format. Most other operands may be F16 or BF16, which the op converts to
 * F32. */
static bool weight_fits(struct shape *s, int i)
{
    enum op op = s->n->op;
    pl_format f = s->in[i]->format;
    const char *dims = op_info(op)->dims;
    bool matrix =
        op == OP_gather_rows ? i == 0 : i == 1 && graph_is_contraction(op);
    bool widens = i > 0 ? strcmp(dims, "MOVE") != 0
                        : op != OP_contiguous && (!strcmp(dims, "*->*") ||
                                                  !strcmp(dims, "*,*->*"));

    if (f == PL_F32 || (matrix && f != PL_I32) ||
        ((op == OP_custom || op == OP_gather_rows) && f == PL_I32))
        return true;
    if (f != PL_F16 && f != PL_BF16)
        return fail(
            s, "a quantized weight can be read only by matmul and gather_rows");
    return (widens && op != OP_custom) ||
           fail(s, "a half-precision weight must be cast to F32 "
                   "first");
}

/* Returns true if an op of the graph writes to this memory. */
static bool is_written(const pl_graph *g, int memory)
{
    for (int i = memory + 1; i < g->n_node; i++) {
        int up = op_info(g->node[i].op)->updates;

        if (up >= 0 && g->node[i].in[up] == memory)
            return true;
    }
    return false;
}

/* Checks that operand i is a memory (cache or state) if and only if the op's
 * row in ops.def has slots ('s') there. Also checks that the op does not write
 * to a memory to which an earlier op has written. */
static bool memory_fits(struct shape *s, int i)
{
    const struct op_info *op = op_info(s->n->op);
    const char *d = op->dims;

    for (int k = 0; k < i && *d; d++)
        k += *d == ',';
    if (*d == 's' && graph_memory(s->g, s->n->in[i]) < 0)
        return fail(s, "expected a memory, got a value");
    if (*d != 's' && graph_memory(s->g, s->n->in[i]) >= 0)
        return fail(s, "expected a value, got a memory");
    if (op->updates == i &&
        (s->in[i]->op != OP_memory ||
         (s->in[i]->attr.state && is_written(s->g, s->n->in[i]))))
        return fail(s, "this memory was already written");
    return true;
}

/* Sets the attribute bf16, which selects products of BF16 numbers, if the
 * graph's numerics request it, and checks it. Such products are possible for
 * attention and for matrices with 16-bit weights. Routers and indexers never
 * get it from the numerics, because with less precise scores they would choose
 * other experts and keys. */
static bool bf16_fits(struct shape *s)
{
    struct graph_node *n = s->n;
    bool may = graph_is_attention(n->op);

    if (graph_is_contraction(n->op))
        may = s->in[1]->format == PL_F16 || s->in[1]->format == PL_BF16;
    if (may && s->g->numerics == PL_NUMERICS_FAST &&
        s->in[1]->role != PL_ROLE_ROUTER && s->in[1]->role != PL_ROLE_INDEXER &&
        s->in[1]->role != PL_ROLE_INDEXER_Q)
        n->attr.bf16 = 1;
    return n->attr.bf16 == 0 || (may && n->attr.bf16 == 1) ||
           fail(s, "bf16 must be 0, except for attention and 16-bit weights");
}

bool shape_infer(const pl_graph *g, struct graph_node *n, pl_err *err)
{
    struct shape s = {.g = g, .n = n, .err = err};
    int n_symbol = 0, need, most;
    int64_t count = 1;

    if ((unsigned)n->op >= OP_COUNT || !shapes[n->op]) {
        err_set(err, PL_BAD_ARGUMENT, "op %d: a leaf takes no operands",
                (int)n->op);
        return false;
    }
    operands(n, &need, &most);
    while (n->n_in > need && n->in[n->n_in - 1] < 0 && n->op != OP_concat)
        n->n_in--;
    if (n->n_in < need || n->n_in > most) {
        err_set(err, PL_BAD_ARGUMENT, "%s: %d operands, expected %d to %d",
                graph_op_name(n), n->n_in, need, most);
        return false;
    }
    if (!graph_blocks_fit(n->op, &n->attr))
        return fail(&s, "the op has no blocks; block and ratio must be 0");
    for (int i = 0; i < n->n_in; i++) {
        if (n->in[i] < 0) {
            err_set(err, PL_BAD_ARGUMENT, "%s: operand %d is missing",
                    graph_op_name(n), i);
            return false;
        }
        s.in[i] = &g->node[n->in[i]];
        if (!memory_fits(&s, i))
            return false;
        if (s.in[i]->format == PL_I32 && n->op != OP_reshape &&
            n->op != OP_custom &&
            !(n->op == OP_gather_rows && s.in[i]->op == OP_weight) &&
            !(i > 0 &&
              (n->op == OP_gather_rows || n->op == OP_rope ||
               n->op == OP_router_weights || n->op == OP_latent_attention ||
               n->op == OP_compressed_attention || n->op == OP_block_mean ||
               n->op == OP_bidirectional_attention ||
               n->op == OP_attention_blocks || n->op == OP_expert_matmul ||
               n->op == OP_expert_down)))
            return fail(&s, "an I32 operand, expected values");
        if (s.in[i]->op == OP_weight && !weight_fits(&s, i))
            return false;
    }
    n->format = PL_F32;
    if (n->op == OP_reshape)
        n->format = s.in[0]->format == PL_I32 ? PL_I32 : PL_F32;
    if (!shapes[n->op](&s) || !bf16_fits(&s))
        return false;
    if (!op_info(n->op)->is_new)
        n->format = s.in[op_info(n->op)->updates]->format;
    for (int i = 0; i < n->n_dim; i++) {
        if (n->dim[i].n < 1)
            return fail(&s, "a dimension of size 0");
        if (__builtin_mul_overflow(count, n->dim[i].n, &count) ||
            count > MAX_COUNT)
            return fail(&s, "the result has more than 2^46 values");
        n_symbol += n->dim[i].symbol != PL_CONST;
    }
    if (n_symbol > 1)
        return fail(&s, "more than one symbolic dimension");
    return true;
}

bool shape_leaf(const struct graph_node *n, pl_err *err)
{
    int block = format_info(n->format)->block;
    int n_symbol = 0;
    int64_t count = 1;

    for (int i = 0; i < n->n_dim; i++) {
        if (!is_dim(n->dim[i]) ||
            __builtin_mul_overflow(count, n->dim[i].n, &count) ||
            count > MAX_COUNT) {
            err_set(err, PL_BAD_ARGUMENT,
                    "%s: dimension %d is %" PRId64
                    "; sizes must be positive and their product at most 2^46",
                    n->name, i, n->dim[i].n);
            return false;
        }
        n_symbol += n->dim[i].symbol != PL_CONST;
        if (dim_pool(n->dim[i]) >= 0 && n->op != OP_memory) {
            err_set(err, PL_BAD_ARGUMENT, "%s: only a memory has slots",
                    n->name);
            return false;
        }
    }
    if (n_symbol > 1) {
        err_set(err, PL_BAD_ARGUMENT, "%s: more than one symbolic dimension",
                n->name);
        return false;
    }
    if (last(n).n % block) {
        err_set(err, PL_BAD_ARGUMENT,
                "%s: rows of %" PRId64 " values; %s needs a multiple of %d%s",
                n->name, last(n).n, format_info(n->format)->name, block,
                n->op == OP_memory
                    ? "; give the cache F16, BF16 or F32 (-ctk, -ctv)"
                    : "");
        return false;
    }
    if (block > 1 && (n->n_dim < 2 || n->n_dim > 3)) {
        err_set(err, PL_BAD_ARGUMENT,
                "%s: %d dimensions; %s needs a matrix of 2, or a stack of 3",
                n->name, n->n_dim, format_info(n->format)->name);
        return false;
    }
    if (n->op == OP_input && n->format != PL_F32 && n->format != PL_I32) {
        err_set(err, PL_BAD_ARGUMENT, "%s: an input must be F32 or I32",
                n->name);
        return false;
    }
    if (n->op == OP_memory && !format_is_cache(n->format)) {
        char names[FORMAT_NAMES];

        err_set(err, PL_UNSUPPORTED,
                "%s: a cache of %s is not supported; use %s", n->name,
                format_info(n->format)->name, format_cache_names(names));
        return false;
    }
    return true;
}
