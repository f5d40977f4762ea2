/* Draws blocks of nodes that are likely to show one thing that a plan may
 * contain.
 *
 * A block makes the operands of an op as an aim (random_aim.c) requires: a
 * value with one layout, and a request for another at what the op reads. The
 * planner decides by itself. A block that misses its aim is still a valid
 * graph. */
#include "lib/random_draw.h"

#include "layout/rules.h"
#include "lib/random_layout.h"

#include <stdio.h>
#include <string.h>

/* ---- ops ----------------------------------------------------------------- */

typedef pl_tensor make_fn(struct draw *d, const pl_tensor *in);

static const struct graph_node *at(const struct draw *d, pl_tensor x)
{
    return &d->g->node[x];
}

static pl_dim last(const struct graph_node *n)
{
    return n->dim[n->n_dim - 1];
}

#define ONE(name)                                                              \
    static pl_tensor make_##name(struct draw *d, const pl_tensor *in)          \
    {                                                                          \
        return pl_##name(d->g, in[0]);                                         \
    }
#define TWO(name)                                                              \
    static pl_tensor make_##name(struct draw *d, const pl_tensor *in)          \
    {                                                                          \
        return pl_##name(d->g, in[0], in[1]);                                  \
    }
/* clang-format off */
ONE(sqr) ONE(sqrt) ONE(exp) ONE(tanh) ONE(sigmoid) ONE(softplus)
ONE(silu) ONE(gelu) ONE(gelu_erf) ONE(relu) ONE(sum) ONE(contiguous)
ONE(softmax)
TWO(gather_rows) TWO(matmul) TWO(head_matmul)
TWO(add) TWO(sub) TWO(mul) TWO(div) TWO(swiglu) TWO(geglu) TWO(cache_write)
/* clang-format on */
#undef ONE
#undef TWO

                static pl_tensor
    make_expert_matmul(struct draw *d, const pl_tensor *in)
{
    return pl_expert_matmul(d->g, in[0], in[1], in[2]);
}

static pl_tensor make_expert_down(struct draw *d, const pl_tensor *in)
{
    return pl_expert_down(d->g, in[0], in[1], in[2]);
}

static pl_tensor make_rms_norm(struct draw *d, const pl_tensor *in)
{
    return pl_rms_norm(d->g, in[0], in[1], 1e-3f);
}

static pl_tensor make_layer_norm(struct draw *d, const pl_tensor *in)
{
    return pl_layer_norm(d->g, in[0], in[1], 1e-2f);
}

static pl_tensor make_rope(struct draw *d, const pl_tensor *in)
{
    int64_t n = in[2] >= 0 ? 2 * last(at(d, in[2])).n : 2;
    pl_rope rope = {.size = sizeof rope,
                    .n_rot = (int)n,
                    .neox = draw_below(d, 2),
                    .base = 50};

    return pl_rope_apply(d->g, in[0], in[1], in[2], &rope);
}

static pl_tensor make_attention(struct draw *d, const pl_tensor *in)
{
    int64_t kept = at(d, graph_memory(d->g, in[1]))->attr.window;

    return pl_attention(d->g, in[0], in[1], in[2], in[3], 0.5f,
                        draw_window(d, kept), draw_below(d, 3) ? 0 : 2.0f);
}

static pl_tensor make_bidirectional_attention(struct draw *d,
                                              const pl_tensor *in)
{
    return pl_bidirectional_attention(d->g, in[0], in[1], in[2], in[3], 0.5f,
                                      draw_window(d, 0),
                                      draw_below(d, 3) ? 0 : 2.0f);
}

static pl_tensor make_short_conv(struct draw *d, const pl_tensor *in)
{
    return pl_short_conv(d->g, in[0], in[1], in[2], draw_below(d, 2));
}

static pl_tensor make_delta_net(struct draw *d, const pl_tensor *in)
{
    return pl_delta_net(d->g, in[0], in[1], in[2], in[3], in[4], in[5], 0.1f,
                        false);
}

static pl_tensor make_delta_net_tiled(struct draw *d, const pl_tensor *in)
{
    return pl_delta_net(d->g, in[0], in[1], in[2], in[3], in[4], in[5], 0.1f,
                        true);
}

static pl_tensor make_delta_net_channels(struct draw *d, const pl_tensor *in)
{
    return pl_delta_net_channels(d->g, in[0], in[1], in[2], in[3], in[4], in[5],
                                 0.1f);
}

static pl_tensor make_ssm_scan(struct draw *d, const pl_tensor *in)
{
    return pl_ssm_scan(d->g, in[0], in[1], in[2], in[3], in[4]);
}

static pl_tensor make_latent_attention(struct draw *d, const pl_tensor *in)
{
    int64_t n = last(at(d, in[1])).n;

    n = 1 + draw_below(d, (int)n);
    return in[2] < 0 ? pl_latent_attention(d->g, in[0], in[1], n, 0.5f)
                     : pl_chosen_attention(d->g, in[0], in[1], in[2], n, 0.5f);
}

static pl_tensor make_compressed_attention(struct draw *d, const pl_tensor *in)
{
    return pl_compressed_attention(d->g, in[0], in[1], in[2], in[3], in[4],
                                   1 + draw_below(d, 4), 0.5f,
                                   1 + draw_below(d, 6));
}

static pl_tensor make_index_topk(struct draw *d, const pl_tensor *in)
{
    int k = 1 + draw_below(d, 4);

    return draw_below(d, 2)
               ? pl_index_topk(d->g, in[0], in[1], in[2], k)
               : pl_compressed_topk(d->g, in[0], in[1], in[2], k, 2);
}

static pl_tensor make_block_mean(struct draw *d, const pl_tensor *in)
{
    int64_t c = last(at(d, in[2])).n;

    return pl_block_mean(d->g, in[0], in[1], in[2],
                         c % 2 || draw_below(d, 2) ? c : c / 2);
}

static pl_tensor make_sinkhorn(struct draw *d, const pl_tensor *in)
{
    return pl_sinkhorn(d->g, in[0], in[1], in[2], 1 + draw_below(d, 4), 0.01f);
}

static pl_tensor make_mix_streams(struct draw *d, const pl_tensor *in)
{
    return pl_mix_streams(d->g, in[0], in[1], in[2]);
}

static pl_tensor make_attention_blocks(struct draw *d, const pl_tensor *in)
{
    return pl_attention_blocks(d->g, in[0], in[1], in[2], in[3],
                               1 + draw_below(d, 5), 0.5f);
}

static pl_tensor make_index_blocks(struct draw *d, const pl_tensor *in)
{
    int k = 1 + draw_below(d, 3);

    return pl_index_blocks(d->g, in[0], in[1], k, 1 + draw_below(d, 3),
                           draw_below(d, k + 1));
}

static pl_tensor make_router_topk(struct draw *d, const pl_tensor *in)
{
    return pl_router_topk(d->g, in[0], in[1], (pl_gating)draw_below(d, 4),
                          1 + draw_below(d, 3), 0, 0);
}

static pl_tensor make_router_weights(struct draw *d, const pl_tensor *in)
{
    return pl_router_weights(d->g, in[0], in[1], (pl_gating)draw_below(d, 4),
                             draw_below(d, 2), 1.5f);
}

static pl_tensor make_swiglu_oai(struct draw *d, const pl_tensor *in)
{
    return pl_swiglu_oai(d->g, in[0], in[1], 1.0f);
}

static pl_tensor make_scale(struct draw *d, const pl_tensor *in)
{
    return pl_scale(d->g, in[0],
                    d->r->exact ? (float)(draw_below(d, 4) - 2)
                                : 0.5f + test_unit(d->seed));
}

static pl_tensor make_clamp(struct draw *d, const pl_tensor *in)
{
    return pl_clamp(d->g, in[0], -0.5f, 1.0f);
}

static pl_tensor make_cast(struct draw *d, const pl_tensor *in)
{
    static const pl_format formats[] = {PL_F16, PL_BF16, PL_F32};

    return pl_cast(d->g, in[0], formats[draw_below(d, 3)]);
}

/* Makes a reshape that splits a dimension in two, joins two dimensions, or
 * keeps the shape. */
static pl_tensor make_reshape(struct draw *d, const pl_tensor *in)
{
    const struct graph_node *x = at(d, in[0]);
    int n = x->n_dim, k = draw_below(d, n);
    pl_dim dim[GRAPH_MAX_DIM + 1];
    int64_t f;

    memcpy(dim, x->dim, sizeof x->dim);
    if (dim[k].symbol == PL_CONST && draw_below(d, 2)) {
        if (k + 1 < n) {
            dim[k].n *= dim[k + 1].n;
            memmove(dim + k + 1, dim + k + 2,
                    (size_t)(n - k - 2) * sizeof *dim);
            n--;
        } else if (n < GRAPH_MAX_DIM) {
            f = 1 + draw_below(d, (int)dim[k].n);
            while (dim[k].n % f)
                f--;
            dim[n++] = (pl_dim){dim[k].n / f, PL_CONST};
            dim[k].n = f;
        }
    }
    return pl_reshape(d->g, in[0], n, dim);
}

static pl_tensor make_permute(struct draw *d, const pl_tensor *in)
{
    int p[GRAPH_MAX_DIM] = {0, 1, 2, 3};

    for (int k = at(d, in[0])->n_dim - 1; k > 0; k--) {
        int o = draw_below(d, k + 1), was = p[k];

        p[k] = p[o];
        p[o] = was;
    }
    return pl_permute(d->g, in[0], p);
}

static pl_tensor slice_of(struct draw *d, pl_tensor x, int axis, int64_t most)
{
    int64_t start = test_below(d->seed, at(d, x)->dim[axis].n);
    int64_t len = at(d, x)->dim[axis].n - start;

    return pl_slice(d->g, x, axis, start,
                    1 + test_below(d->seed, len < most ? len : most));
}

static pl_tensor make_slice(struct draw *d, const pl_tensor *in)
{
    int axis = draw_below(d, at(d, in[0])->n_dim);

    if (at(d, in[0])->dim[axis].symbol != PL_CONST)
        axis = at(d, in[0])->n_dim - 1;
    return slice_of(d, in[0], axis, 99);
}

/* Concatenates along the last axis, the only one in which the operands' sizes
 * differ (shape_moved). */
static pl_tensor make_concat(struct draw *d, const pl_tensor *in)
{
    return pl_concat(d->g, in[2] >= 0 ? 3 : 2, in, at(d, in[0])->n_dim - 1);
}

static make_fn *const makers[OP_COUNT] = {
/* no aim contains a custom op */
#define make_custom                              NULL
#define OP(name, dims, partial, result, refused) [OP_##name] = make_##name,
#include "graph/ops.def"
#undef OP
#undef make_custom
};

/* ---- a block ------------------------------------------------------------- */

struct block {
    struct draw *d;
    const struct random_aim *a;
    struct aim_operand row[GRAPH_MAX_IN];
    int n_in;
    /* index of the operand before which the conversion occurs; -1 if none */
    int target;
    /* for RANDOM_PASSES: index of the operand that is PARTIAL; else -1 */
    int partial;
    int64_t size[128];
    pl_dim lead[GRAPH_MAX_DIM], t;
    int n_lead;
    int n_dim[GRAPH_MAX_IN];
    pl_dim dim[GRAPH_MAX_IN][GRAPH_MAX_DIM];
    pl_tensor in[GRAPH_MAX_IN]; /* operands of the op; -1 if absent */
    /* operands before carrier() was applied to them; equal to in[] where it was
     * not */
    pl_tensor src[GRAPH_MAX_IN];
    pl_tensor cache[2]; /* caches of the keys and of the values; -1 if none */
    int64_t window; /* attention window of the caches in tokens; 0 for none */
};

static pl_dim constant(int64_t n)
{
    return (pl_dim){n, PL_CONST};
}

static bool takes(const struct block *b, int i, char what)
{
    return aim_takes(b->a->op, i, what);
}

/* Returns true if the op reads a cache or a state, so that its rows are the
 * step's tokens. */
static bool has_memory(const struct block *b)
{
    return op_info(b->a->op)->updates >= 0 || graph_is_attention(b->a->op) ||
           b->a->op == OP_index_topk || b->a->op == OP_index_blocks ||
           b->a->op == OP_block_mean;
}

static bool is_delta_net(enum op op)
{
    return op == OP_delta_net || op == OP_delta_net_tiled ||
           op == OP_delta_net_channels;
}

/* Returns true if the op's state is a matrix for each head. */
static bool has_matrix(enum op op)
{
    return is_delta_net(op) || op == OP_ssm_scan;
}

/* Returns true if the aim is a delta net or a scan in which all ranks need a
 * key head because each has some of its value heads. */
static bool shares_head(const struct block *b)
{
    return has_matrix(b->a->op) && b->a->letter == 'r' &&
           (1 << b->a->kind & TO_ALL);
}

static bool is_target(const struct block *b, int i, enum num_kind k)
{
    return i == b->target && b->a->kind == k;
}

/* Returns the index of an operand before which the aim's conversion may occur;
 * -1 if there is none. */
static int pick_target(struct block *b)
{
    int found = -1, n = 0;

    if (b->a->kind == NUM_OP)
        return -1;
    /* the conversion is before q or k: the other operands have value heads,
     * which are split */
    if (shares_head(b))
        return draw_below(b->d, 2);
    for (int i = 0; i < b->n_in; i++)
        if ((aim_kinds(b->a->op, b->a->letter, i) >> b->a->kind & 1) &&
            draw_below(b->d, ++n) == 0)
            found = i;
    return found;
}

static int pick_partial(struct block *b)
{
    unsigned rule = op_info(b->a->op)->partial;
    int found = -1, n = 0;

    if (b->a->letter != RANDOM_PASSES)
        return -1;
    for (int i = 0; i < b->n_in; i++)
        if (i != b->target && takes(b, i, 'f') &&
            ((rule & PL_OP_SUM) || (rule >> i & 1)) &&
            draw_below(b->d, ++n) == 0)
            found = i;
    return found;
}

static void pick_sizes(struct block *b)
{
    struct draw *d = b->d;
    bool ids = b->target >= 0 && takes(b, b->target, 'i');
    bool few = b->a->op == OP_gather_rows &&
               (b->a->letter == 'v' || b->a->letter == RANDOM_PASSES);

    for (int c = 0; c < 128; c++)
        b->size[c] = 2 + draw_below(d, 5);
    b->size['v'] = 5 + draw_below(d, 8);
    b->size['e'] += has_memory(b) ? 0 : 4;
    b->size['f'] = 1 + draw_below(d, 3);
    b->size['g'] = 1 + draw_below(d, 4);
    b->size['r'] = 1 + draw_below(d, 4);
    if (shares_head(b) || b->a->op == OP_index_topk ||
        b->a->op == OP_block_mean)
        b->size['g'] = 1;
    b->size['u'] = 1 + draw_below(d, 4);
    if (b->a->letter < 128 && b->a->letter > '*')
        b->size[b->a->letter] += b->size[b->a->letter] == 1;
    if (b->a->op == OP_rope)
        b->size['d'] = 2 * b->size['f'] + draw_below(d, 3);
    /* sizes of states: a short convolution keeps one value per tap but the
     * last; a delta net keeps a matrix [d, e] */
    b->size['i'] = b->size['j'] - 1;
    b->size['x'] =
        b->a->op == OP_index_blocks ? 1 : b->size['d'] * b->size['e'];
    if (b->a->op == OP_block_mean)
        b->size['c'] = 2 * b->size['i'];
    if (b->a->op == OP_sinkhorn || b->a->op == OP_mix_streams) {
        int64_t n = b->size['n'] = 1 + draw_below(d, 4);

        b->size['k'] = b->a->op == OP_sinkhorn ? 3 : n * (n + 1);
        b->size['d'] = n * (n + 2);
    }
    b->t = (pl_dim){1, PL_N_TOK};
    if ((b->a->letter == 't' || ids || draw_below(d, 3) == 0) && !has_memory(b))
        b->t = constant(b->size['t']);
    b->n_lead = draw_below(d, 3);
    b->n_lead += b->n_lead == 0 && (b->a->letter == '*' || ids);
    for (int k = 0; k < GRAPH_MAX_DIM; k++)
        b->lead[k] = constant(few ? 2 : 2 + draw_below(d, 3));
    if (few)
        b->n_lead = 1;
    if (few && !ids && draw_below(d, 2))
        b->lead[0] = (pl_dim){1, PL_N_OUT};
    else if (!few && !ids && draw_below(d, 2)) {
        b->n_lead += b->a->letter == '*' && b->n_lead == 1;
        b->n_lead += b->n_lead == 0;
        b->lead[0] = (pl_dim){1, PL_N_TOK};
    }
    if ((b->a->op == OP_rms_norm || b->a->op == OP_layer_norm) &&
        b->a->letter == RANDOM_PASSES)
        /* the norm's result must not be larger than the PARTIAL operand, or the
         * sum would be taken earlier */
        b->n_lead = 0;
}

static void shape_lettered(struct block *b, int i)
{
    const struct aim_operand *o = &b->row[i];

    b->n_dim[i] = 0;
    for (int k = 0; k < o->n; k++) {
        const struct aim_item *m = &o->item[k];
        pl_dim *to = &b->dim[i][b->n_dim[i]];

        if (m->a == '*') {
            memcpy(to, b->lead, (size_t)b->n_lead * sizeof *to);
            b->n_dim[i] += b->n_lead;
            continue;
        }
        *to = m->a == 't' ? b->t : constant(b->size[(int)m->a]);
        if (m->b)
            to->n *= b->size[(int)m->b];
        b->n_dim[i]++;
    }
}

/* Removes outer dimensions of operand i of an elementwise op, or sets
 * dimensions to 1, so that the operand is broadcast. */
static void broadcast(struct block *b, int i)
{
    int skip = draw_below(b->d, b->n_dim[i]);

    for (int k = skip; k < b->n_dim[i]; k++) {
        b->dim[i][k - skip] = b->dim[i][k];
        if (k - skip > 0 && b->dim[i][k - skip].symbol)
            b->dim[i][k - skip] = constant(1);
        if (draw_below(b->d, 2))
            b->dim[i][k - skip] = constant(1);
    }
    b->n_dim[i] -= skip;
}

static void shape_moved(struct block *b, int i)
{
    b->n_dim[i] = b->n_lead;
    memcpy(b->dim[i], b->lead, sizeof b->lead);
    b->dim[i][b->n_dim[i]++] = constant(2 + draw_below(b->d, 7));
}

static void shape_operands(struct block *b)
{
    bool elementwise = !strcmp(op_info(b->a->op)->dims, "*,*->*");
    bool star = elementwise || !strcmp(op_info(b->a->op)->dims, "*->*");
    bool to_all =
        b->a->letter == '*' && b->target >= 0 && (1 << b->a->kind & TO_ALL);

    /* adds a dimension, so that the tokens are not the last dimension */
    if (star && b->n_lead < 3)
        b->lead[b->n_lead++] = constant(2 + draw_below(b->d, 7));
    for (int i = 0; i < b->n_in; i++) {
        if (aim_moves(b->a->op))
            shape_moved(b, i);
        else
            shape_lettered(b, i);
        if (b->n_dim[i] == 0)
            b->dim[i][b->n_dim[i]++] = constant(4);
    }
    if (elementwise && to_all)
        broadcast(b, b->target);
    else if (elementwise && b->a->kind == NUM_OP && draw_below(b->d, 3) == 0)
        broadcast(b, b->partial == 1 ? 0 : 1);
    if (b->a->op == OP_expert_matmul &&
        (b->a->letter == 'u'
             ? to_all || (b->target == 0 && (1 << b->a->kind & TO_ALL))
             : draw_below(b->d, 3) == 0))
        b->dim[0][1] = constant(1);
}

/* ---- its operands -------------------------------------------------------- */

static void split_at_random(struct draw *d, pl_tensor x)
{
    const struct graph_node *n = at(d, x);
    struct random_layout l;
    int dim = draw_below(d, n->n_dim);

    for (int k = 0; k < n->n_dim; k++, dim = (dim + 1) % n->n_dim)
        if (n->dim[dim].symbol == PL_CONST && n->dim[dim].n > 1) {
            random_split(&l, dim, n->dim[dim].n, d->n_rank, d->seed);
            pl_want_layout(d->g, x, &l.l);
            return;
        }
}

static pl_tensor weight(struct draw *d, int n_dim, const pl_dim *dim)
{
    static const pl_format formats[] = {PL_F32, PL_F32, PL_F16, PL_BF16};
    int64_t size[GRAPH_MAX_DIM];
    char name[32];

    for (int k = 0; k < n_dim; k++)
        size[k] = dim[k].n;
    snprintf(name, sizeof name, "aimed%d", d->n_leaf++);
    return pl_weight(d->g, name, formats[draw_below(d, n_dim > 1 ? 4 : 1)],
                     n_dim, size, PL_ROLE_NONE);
}

/* Returns the factor for values of operand i, which are then factor *
 * exp(tanh(x)), that is, 0.3 to 3 times the factor; 0 if the operand may have
 * any values. The decay of a delta net or a scan must be below 0 and a delta
 * net's beta small, so that states stay small. */
static float sign_of(enum op op, int i)
{
    if (is_delta_net(op) && (i == 3 || i == 4))
        return i == 3 ? -0.25f : 0.25f;
    if (op == OP_ssm_scan && i == 3)
        return -0.25f;
    return op == OP_sqrt || (op == OP_div && i == 1) ? 1.0f : 0;
}

static pl_tensor signed_value(struct draw *d, pl_tensor x, float sign)
{
    x = pl_exp(d->g, pl_tanh(d->g, x));
    return sign < 1 ? pl_scale(d->g, x, sign) : x;
}

/* Returns a PARTIAL value of this shape, made by a contraction over a split
 * dimension. */
static pl_tensor contraction(struct draw *d, int n_dim, const pl_dim *dim,
                             float sign)
{
    pl_dim more[GRAPH_MAX_DIM + 1], two[2];
    pl_tensor x, w;
    struct random_layout l;
    int k = 2 + draw_below(d, 5);

    memcpy(more, dim, (size_t)n_dim * sizeof *dim);
    if (n_dim < GRAPH_MAX_DIM && (sign != 0 || draw_below(d, 3) == 0)) {
        more[n_dim] = more[n_dim - 1];
        more[n_dim - 1] = constant(k);
        x = draw_input(d, PL_F32, n_dim + 1, more);
        random_split(&l, n_dim - 1, k, d->n_rank, d->seed);
        pl_want_layout(d->g, x, &l.l);
        return pl_sum(d->g, sign != 0 ? signed_value(d, x, sign) : x);
    }
    two[0] = more[n_dim - 1];
    two[1] = more[n_dim - 1] = constant(k);
    x = draw_input(d, PL_F32, n_dim, more);
    w = weight(d, 2, two);
    random_split(&l, 1, k, d->n_rank, d->seed);
    pl_want_layout(d->g, w, &l.l);
    return pl_matmul(d->g, x, w);
}

/* Returns the result of a further op on x, to which a layout request can be
 * attached. The op keeps the shape. */
static pl_tensor carrier(struct draw *d, pl_tensor x, float sign)
{
    if (at(d, x)->format == PL_I32)
        return pl_reshape(d->g, x, at(d, x)->n_dim, at(d, x)->dim);
    if (sign != 0)
        return signed_value(d, x, sign);
    if (d->r->exact || draw_below(d, 2))
        return pl_contiguous(d->g, x);
    return draw_below(d, 2) ? pl_tanh(d->g, x) : pl_scale(d->g, x, 1.5f);
}

static int ids_below(const struct block *b)
{
    return b->a->op == OP_gather_rows ? (int)b->size['v']
           : b->a->op == OP_rope || b->a->op == OP_latent_attention ||
                   b->a->op == OP_attention_blocks ||
                   b->a->op == OP_compressed_attention ||
                   b->a->op == OP_block_mean
               ? RANDOM_MAX_POS
           /* positions beyond a token's own may have no key */
           : b->a->op == OP_bidirectional_attention ? 1
                                                    : (int)b->size['e'];
}

static pl_tensor cached(struct block *b, int i, bool values)
{
    struct draw *d = b->d;
    char name[32];
    pl_tensor c;

    snprintf(name, sizeof name, "aimed_cache%d", d->n_leaf++);
    c = pl_cache(
        d->g, name, PL_F32, b->dim[i][1].n, b->dim[i][2].n, values,
        b->a->op == OP_attention || b->a->op == OP_cache_write ? b->window : 0);
    b->cache[values] = c;
    return c;
}

static pl_tensor state(struct block *b, int i)
{
    char name[32];

    snprintf(name, sizeof name, "aimed_state%d", b->d->n_leaf++);
    return pl_state(b->d->g, name, b->dim[i][1].n, b->dim[i][2].n,
                    has_matrix(b->a->op) ? PL_ROLE_STATE : PL_ROLE_CONV_STATE);
}

static pl_tensor written(struct block *b, pl_tensor cache)
{
    const struct graph_node *c = at(b->d, cache);
    pl_dim dim[3] = {{1, PL_N_TOK}, c->dim[1], c->dim[2]};

    return pl_cache_write(b->d->g, cache, draw_input(b->d, PL_F32, 3, dim));
}

static void make_operand(struct block *b, int i)
{
    struct draw *d = b->d;
    float sign = sign_of(b->a->op, i);
    int n = b->n_dim[i];
    pl_dim *dim = b->dim[i];
    pl_tensor x = -1;

    b->in[i] = b->src[i] = -1;
    if ((b->row[i].optional || (b->a->op == OP_concat && i == 2)) &&
        i != b->target && i != b->partial && draw_below(d, 3) == 0)
        return;
    if (takes(b, i, 'w')) {
        b->in[i] = b->src[i] = weight(d, n, dim);
        return;
    }
    if (takes(b, i, 's')) {
        b->in[i] = b->src[i] = state(b, i);
        return;
    }
    if (takes(b, i, 'c')) {
        x = cached(b, i,
                   (i == 2 && b->a->op != OP_index_topk) ||
                       b->a->op == OP_latent_attention ||
                       b->a->op == OP_compressed_attention ||
                       b->a->op == OP_block_mean);
        b->in[i] = b->src[i] = b->a->op == OP_cache_write ? x : written(b, x);
        return;
    }
    if (i == b->partial || (i == b->target && (1 << b->a->kind & SUMS))) {
        b->in[i] = b->src[i] = contraction(d, n, dim, sign);
        return;
    }
    if (takes(b, i, 'f') && draw_below(d, 2) && b->a->kind != NUM_ALL_TO_ALL &&
        b->a->kind != NUM_ALL_GATHER)
        x = draw_alike(d, n, dim);
    if (x < 0 && takes(b, i, 'f'))
        x = draw_input(d, PL_F32, n, dim);
    if (x < 0)
        x = draw_ids(d, n, dim, ids_below(b));
    b->src[i] = b->in[i] = x;
    if (i == b->target || sign != 0 || d->settled[x] ||
        at(d, x)->op != OP_input)
        b->in[i] = carrier(d, x, sign);
    if (is_target(b, i, NUM_ALL_TO_ALL) || is_target(b, i, NUM_ALL_GATHER))
        split_at_random(d, x);
}

/* ---- its layouts --------------------------------------------------------- */

/* Chooses a random split of the aim's letter and stores in need[] the layouts
 * that the operands then need. Returns false if no dimension can be split so,
 * or if the target would not be converted as the aim says. */
static bool lay_letter(struct block *b, struct arena *a, pl_tensor y,
                       const pl_layout **need)
{
    struct draw *d = b->d;
    struct node_letters l;
    struct rule_split sp;
    struct random_layout r;
    int letter = b->a->letter, n = 0, from = -1, dim = 0;

    rules_letters(d->g, at(d, y), &l);
    for (int i = 0; i < b->n_in; i++)
        for (int k = 0; b->in[i] >= 0 && k < b->n_dim[i]; k++) {
            const struct dim_letters *x = &l.in[i][k];
            bool fits = letter == '*'   ? x->a >= 128
                        : letter == 'r' ? x->b == 'r'
                                        : x->a == letter && x->b == 0;

            if (fits && !x->whole && at(d, b->in[i])->dim[k].n > 1 &&
                draw_below(d, ++n) == 0) {
                from = i;
                dim = k;
            }
        }
    if (from < 0)
        return false;
    sp = (struct rule_split){l.in[from][dim].a, l.in[from][dim].b,
                             at(d, b->in[from])->dim[dim].n, NULL};
    random_split(&r, dim, sp.size, d->n_rank, d->seed);
    sp.l = layout_split(a, dim, sp.size, r.l.n_run, r.run, d->n_rank);
    assert_non_null(sp.l);
    if (sp.l->kind != PL_SPLIT)
        return false;
    for (int i = 0; i < b->n_in; i++) {
        enum rule_fit f;

        need[i] = &layout_mirrored;
        if (b->in[i] < 0)
            continue;
        f = rules_project(a, &sp, l.in[i], at(d, b->in[i])->n_dim,
                          at(d, b->in[i])->dim, d->n_rank, &need[i]);
        if (f == RULE_ILLEGAL)
            return false;
        if (f == RULE_FREE)
            need[i] = &layout_mirrored;
    }
    return b->target < 0 ||
           (need[b->target]->kind == PL_SPLIT) == !(1 << b->a->kind & TO_ALL);
}

/* Chooses the layouts need[] of the operands of concat. Split along its axis,
 * each operand may have its own layout or be whole; split along another
 * dimension, all operands have the same layout. */
static bool lay_moved(struct block *b, struct arena *a, const pl_layout **need)
{
    struct draw *d = b->d;
    bool to_all = b->target >= 0 && (1 << b->a->kind & TO_ALL);
    int last_dim = b->n_dim[0] - 1;
    int dim = to_all ? last_dim : draw_below(d, b->n_dim[0]);
    const pl_layout *first = NULL;

    if (b->dim[0][dim].symbol != PL_CONST)
        dim = last_dim;
    for (int i = 0; i < b->n_in; i++) {
        int64_t size = b->dim[i][dim].n;
        struct random_layout r;

        need[i] = &layout_mirrored;
        if (b->in[i] < 0 || (to_all && i == b->target))
            continue;
        random_split(&r, dim, size, d->n_rank, d->seed);
        need[i] = layout_split(a, dim, size, r.l.n_run, r.run, d->n_rank);
        assert_non_null(need[i]);
        if (first && dim != last_dim)
            need[i] = first;
        first = need[i];
    }
    return true;
}

static void ask(struct block *b, const pl_layout *const *need)
{
    struct draw *d = b->d;

    for (int i = 0; i < b->n_in; i++) {
        const pl_layout *l = need[i];
        bool carried = b->in[i] != b->src[i];

        if (b->in[i] < 0 || i == b->partial)
            continue;
        if (takes(b, i, 'c')) {
            for (int c = 0; c < 2; c++)
                if (b->cache[c] >= 0)
                    pl_want_layout(d->g, b->cache[c], l);
            continue;
        }
        if (takes(b, i, 's')) {
            pl_want_layout(d->g, b->in[i], l);
            continue;
        }
        if (takes(b, i, 'w') || (i != b->target && !carried)) {
            if (l->kind == PL_SPLIT && (takes(b, i, 'w') || draw_below(d, 4)))
                pl_want_layout(d->g, b->in[i], l);
            continue;
        }
        /* some requests are left out, because the planner may choose this
         * layout by itself if other operands are split */
        if (i == b->target ? draw_below(d, 4) : draw_below(d, 2))
            pl_want_layout(d->g, b->in[i], l);
    }
}

/* Returns a value smaller than y, computed from y, so that the minimum cut
 * takes the sum at y and not at its operands. */
static pl_tensor shrunk(struct draw *d, pl_tensor y)
{
    const struct graph_node *n = at(d, y);
    pl_dim w[2] = {{1, PL_CONST}, last(n)};

    if (w[1].symbol == PL_CONST && w[1].n > 1 && draw_below(d, 2))
        return pl_matmul(d->g, y, weight(d, 2, w));
    for (int k = n->n_dim - 1; k >= 0; k--)
        if (n->dim[k].symbol == PL_CONST && n->dim[k].n > 1)
            return slice_of(d, y, k, 1);
    return y;
}

/* Returns attention over the keys that the op wrote, with new values and
 * queries. */
static pl_tensor attended(struct block *b, pl_tensor keys)
{
    struct draw *d = b->d;
    pl_dim q[3] = {{1, PL_N_TOK}, b->dim[0][1], b->dim[0][2]};
    pl_tensor in[4] = {-1, keys, -1, -1};

    in[2] = written(b, cached(b, 0, true));
    q[1].n *= b->size['r'];
    in[0] = draw_input(d, PL_F32, 3, q);
    return make_attention(d, in);
}

pl_tensor draw_aimed(struct draw *d, const struct random_aim *a)
{
    struct block b = {.d = d, .a = a, .cache = {-1, -1}};
    const pl_layout *need[GRAPH_MAX_IN];
    int first = d->g->n_node;
    struct arena arena = {0};
    bool fits = true;
    pl_tensor y;

    for (int i = 0; i < GRAPH_MAX_IN; i++) {
        b.in[i] = b.src[i] = -1;
        need[i] = &layout_mirrored;
    }
    b.n_in = aim_operands(a->op);
    if (!aim_moves(a->op))
        aim_row(a->op, b.row);
    b.target = pick_target(&b);
    b.partial = pick_partial(&b);
    b.window = draw_kept(d);
    pick_sizes(&b);
    shape_operands(&b);
    for (int i = 0; i < b.n_in; i++)
        make_operand(&b, i);
    y = makers[a->op](d, b.in);
    if (pl_graph_check(d->g, NULL) != PL_OK)
        fail_msg("no block for %s: %s", op_info(a->op)->name,
                 d->g->err.message);
    if (a->letter == RANDOM_MOVED)
        fits = lay_moved(&b, &arena, need);
    else if (a->letter != RANDOM_WHOLE && a->letter != RANDOM_PASSES)
        for (int tries = 0; tries < 8; tries++)
            if ((fits = lay_letter(&b, &arena, y, need)))
                break;
    if (a->op == OP_cache_write)
        y = attended(&b, y);
    if (fits)
        ask(&b, need);
    arena_fini(&arena);
    if (a->letter == RANDOM_PASSES)
        y = shrunk(d, y);
    assert_true(d->g->n_node <= DRAW_MAX_NODE);
    for (int i = first; i + (a->letter != RANDOM_PASSES) < d->g->n_node; i++)
        d->settled[i] = true;
    return at(d, y)->format == PL_I32 ? -1 : y;
}
