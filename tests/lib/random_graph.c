/* Draws random graphs; random_graph.h describes the functions. A list of values
 * grows by one op or block at a time. Each is applied to a value that fits it,
 * or to a new input. */
#include "lib/random_draw.h"

#include "lib/random_layout.h"
#include "quant/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int draw_below(struct draw *d, int n)
{
    return (int)test_below(d->seed, n);
}

static int64_t some_size(struct draw *d)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32};

    return sizes[draw_below(d, 13)];
}

/* The values returned make at most as many page pools as a graph may have: of
 * all tokens, of two windows, and of states. */
int64_t draw_kept(struct draw *d)
{
    return draw_below(d, 2) ? 0 : 3 * (1 + draw_below(d, 2));
}

int64_t draw_window(struct draw *d, int64_t kept)
{
    if (kept > 0)
        return 1 + draw_below(d, (int)kept);
    return draw_below(d, 3) ? 0 : 1 + draw_below(d, 6);
}

static const struct graph_node *at(const struct draw *d, pl_tensor x)
{
    return &d->g->node[x];
}

static pl_dim last(const struct graph_node *n)
{
    return n->dim[n->n_dim - 1];
}

static int64_t count(const struct graph_node *n)
{
    const struct graph_sizes one = {1, 1, 1, {1, 1, 1, 1}};

    return graph_count(n, &one);
}

static void into_pool(struct draw *d, pl_tensor x)
{
    if (pl_graph_check(d->g, NULL) != PL_OK)
        fail_msg("the generator made no graph: %s", d->g->err.message);
    if (x < 0 || count(at(d, x)) > DRAW_MAX_COUNT || d->n_pool == DRAW_MAX_POOL)
        return;
    d->pool[d->n_pool++] = x;
}

/* ---- leaves -------------------------------------------------------------- */

static const char *leaf_name(struct draw *d, char buf[32], const char *kind)
{
    snprintf(buf, 32, "%s%d", kind, d->n_leaf++);
    return buf;
}

pl_tensor draw_input(struct draw *d, pl_format f, int n_dim, const pl_dim *dim)
{
    char name[32];

    return pl_input(d->g, leaf_name(d, name, "in"), f, n_dim, dim);
}

pl_tensor draw_ids(struct draw *d, int n_dim, const pl_dim *dim, int n)
{
    pl_tensor t = draw_input(d, PL_I32, n_dim, dim);

    assert_true(d->n_note < DRAW_MAX_NODE);
    d->note[d->n_note].t = t;
    d->note[d->n_note++].below = n;
    return t;
}

static pl_format weight_format(struct draw *d, int64_t k)
{
    static const pl_format plain[] = {PL_F32, PL_F32, PL_F16, PL_BF16};
    static const pl_format blocks[] = {PL_Q8_0, PL_Q4_0, PL_Q4_K, PL_Q6_K};
    pl_format f = plain[draw_below(d, 4)];

    if (!d->r->exact && k % 32 == 0 && draw_below(d, 2)) {
        f = blocks[draw_below(d, 4)];
        if (k % format_info(f)->block)
            f = PL_Q8_0;
        d->r->quantized = true;
    }
    return f;
}

/* Adds a weight. `role` is its role if the graph uses roles; `matrix` allows
 * block formats. */
static pl_tensor new_weight(struct draw *d, int n_dim, const int64_t *dim,
                            pl_role role, const char *part, bool matrix)
{
    char name[64];
    pl_format f = matrix ? weight_format(d, dim[n_dim - 1]) : PL_F32;
    bool named = d->roles && role != PL_ROLE_NONE;

    pl_layer(d->g, named ? d->n_layer : -1);
    if (named)
        snprintf(name, sizeof name, "blk.%d.%s", d->n_layer, part);
    else
        snprintf(name, sizeof name, "w%d", d->n_leaf++);
    return pl_weight(d->g, name, f, n_dim, dim, d->roles ? role : PL_ROLE_NONE);
}

static pl_tensor matrix(struct draw *d, int64_t n, int64_t k, pl_role role,
                        const char *part)
{
    return new_weight(d, 2, (const int64_t[]){n, k}, role, part, true);
}

static pl_tensor new_value(struct draw *d)
{
    pl_dim dim[GRAPH_MAX_DIM];
    int n_dim = 1 + draw_below(d, 3), k = 0;
    bool wide = draw_below(d, 3) == 0;

    if (draw_below(d, 4))
        dim[k++] = (pl_dim){1 + (draw_below(d, 6) == 0), PL_N_TOK};
    if (k == 1 && n_dim == 1)
        n_dim = 2;
    for (; k < n_dim; k++)
        dim[k] = (pl_dim){some_size(d) % (n_dim > 2 ? 9 : 99), PL_CONST};
    for (k = 0; k < n_dim; k++)
        dim[k].n += dim[k].n == 0;
    if (wide)
        dim[n_dim - 1] = (pl_dim){32 << draw_below(d, 4), PL_CONST};
    if (n_dim == 3 && wide)
        dim[1].n = 1 + dim[1].n % 4;
    return draw_input(d, PL_F32, n_dim, dim);
}

/* ---- choosing operands --------------------------------------------------- */

typedef bool fits_fn(const struct graph_node *n);

static bool any_value(const struct graph_node *n)
{
    (void)n;
    return true;
}

static bool last_const(const struct graph_node *n)
{
    return last(n).symbol == PL_CONST;
}

static bool tokens_by_width(const struct graph_node *n)
{
    return n->n_dim == 2 && n->dim[0].symbol == PL_N_TOK && n->dim[0].n == 1;
}

static bool summable(const struct graph_node *n)
{
    return n->n_dim >= 2 && n->dim[n->n_dim - 2].symbol == PL_CONST;
}

static bool constant_table(const struct graph_node *n)
{
    return n->n_dim == 2 && n->dim[0].symbol == PL_CONST && last_const(n);
}

static bool heads(const struct graph_node *n)
{
    return n->n_dim == 3 && n->dim[0].n == 1 && n->dim[0].symbol == PL_N_TOK &&
           n->dim[2].n >= 2;
}

/* Returns a value for which fits() is true, most likely a recent one; -1 if
 * there is none. */
static pl_tensor pick(struct draw *d, fits_fn *fits)
{
    pl_tensor found = -1;
    int n = 0;

    for (int i = 0; i < d->n_pool; i++)
        if (fits(at(d, d->pool[i])) && draw_below(d, ++n + 1) < 2)
            found = d->pool[i];
    return found;
}

/* Returns a value [n_tok, d] of the graph; sometimes, or if there is none, adds
 * an input. */
static pl_tensor stream(struct draw *d)
{
    pl_tensor x = pick(d, tokens_by_width);
    pl_dim dim[2] = {{1, PL_N_TOK}, {0, PL_CONST}};

    if (x >= 0 && draw_below(d, 8))
        return x;
    dim[1].n = draw_below(d, 2) ? some_size(d) : 32 << draw_below(d, 3);
    x = draw_input(d, PL_F32, 2, dim);
    into_pool(d, x);
    return x;
}

/* ---- single ops ---------------------------------------------------------- */

static pl_tensor contract(struct draw *d)
{
    pl_tensor x = pick(d, last_const);
    int64_t n = draw_below(d, 4) ? some_size(d) : 32 << draw_below(d, 2);

    if (x < 0 || count(at(d, x)) / last(at(d, x)).n * n > DRAW_MAX_COUNT)
        return -1;
    return pl_matmul(d->g, x,
                     matrix(d, n, last(at(d, x)).n, PL_ROLE_NONE, NULL));
}

static pl_tensor norm(struct draw *d)
{
    pl_tensor x = pick(d, last_const);
    int64_t k;

    if (x < 0 || d->r->exact)
        return -1;
    k = last(at(d, x)).n;
    if (draw_below(d, 4) == 0)
        return pl_softmax(d->g, x);
    return pl_rms_norm(
        d->g, x,
        draw_below(d, 3) ? new_weight(d, 1, &k, PL_ROLE_NONE, NULL, false) : -1,
        1e-5f);
}

static pl_tensor unary(struct draw *d)
{
    pl_tensor x = pick(d, any_value);

    if (d->r->exact)
        return draw_below(d, 2)
                   ? pl_contiguous(d->g, x)
                   : pl_scale(d->g, x, (float)((1 << draw_below(d, 3)) - 3));
    switch (draw_below(d, 13)) {
    case 0:
        return pl_scale(d->g, x, test_unit(d->seed));
    case 1:
        return pl_clamp(d->g, x, -0.5f, 1.0f);
    case 2:
        return pl_sqr(d->g, x);
    case 3:
        return pl_sqrt(d->g, pl_exp(d->g, pl_tanh(d->g, x)));
    case 4:
        return pl_tanh(d->g, x);
    case 5:
        return pl_sigmoid(d->g, x);
    case 6:
        return pl_softplus(d->g, x);
    case 7:
        return pl_silu(d->g, x);
    case 8:
        return pl_gelu(d->g, x);
    case 9:
        return pl_relu(d->g, x);
    case 10:
        return pl_contiguous(d->g, x);
    case 11:
        return pl_cast(d->g, x, draw_below(d, 2) ? PL_F16 : PL_BF16);
    default:
        return pl_cast(d->g, x, PL_F32);
    }
}

pl_tensor draw_alike(struct draw *d, int n_dim, const pl_dim *dim)
{
    for (int i = d->n_pool - 1; i >= 0; i--) {
        const struct graph_node *y = at(d, d->pool[i]);
        bool same = y->n_dim == n_dim;

        for (int k = 0; k < n_dim && same; k++)
            same = y->dim[k].n == dim[k].n && y->dim[k].symbol == dim[k].symbol;
        if (same && draw_below(d, 2))
            return d->pool[i];
    }
    return -1;
}

/* Returns a value that can be added to x: another value of the same shape, or a
 * new leaf in which some dimensions are 1 or missing. */
static pl_tensor partner(struct draw *d, pl_tensor x)
{
    const struct graph_node *n = at(d, x);
    pl_dim dim[GRAPH_MAX_DIM];
    int n_dim = n->n_dim, skip;
    pl_tensor y = draw_alike(d, n_dim, n->dim);

    if (y >= 0)
        return y;
    skip = n_dim > 1 ? draw_below(d, n_dim) : 0;
    for (int k = skip; k < n_dim; k++) {
        dim[k - skip] = n->dim[k];
        if (draw_below(d, 3) == 0)
            dim[k - skip] = (pl_dim){1, PL_CONST};
        if (k > 0 && dim[k - skip].symbol != PL_CONST)
            /* in inputs only the outermost dimension may be symbolic */
            dim[k - skip] = (pl_dim){1, PL_CONST};
    }
    n_dim -= skip;
    if (dim[0].symbol == PL_CONST && n_dim < 3 && draw_below(d, 2)) {
        int64_t size[GRAPH_MAX_DIM];

        for (int k = 0; k < n_dim; k++)
            size[k] = dim[k].n;
        return new_weight(d, n_dim, size, PL_ROLE_NONE, NULL, false);
    }
    return draw_input(d, PL_F32, n_dim, dim);
}

static pl_tensor binary(struct draw *d)
{
    pl_tensor a = pick(d, any_value), b = partner(d, a);

    if (draw_below(d, 3) == 0) {
        pl_tensor was = a;

        a = b;
        b = was;
    }
    switch (draw_below(d, d->r->exact ? 4 : 9)) {
    case 0:
    case 1:
        return pl_add(d->g, a, b);
    case 2:
        return pl_sub(d->g, a, b);
    case 3:
    case 4:
        return pl_mul(d->g, a, b);
    case 5:
        return pl_div(d->g, a, pl_exp(d->g, pl_tanh(d->g, b)));
    case 6:
        return pl_swiglu(d->g, a, b);
    case 7:
        return pl_geglu(d->g, a, b);
    default:
        return pl_swiglu_oai(d->g, a, b, 1.0f);
    }
}

static pl_tensor look_up(struct draw *d)
{
    pl_dim tok = {1, PL_N_TOK}, out = {1, PL_N_OUT};
    pl_tensor x;
    int64_t v, k;

    switch (draw_below(d, 3)) {
    case 0: /* rows of an embedding table */
        v = 2 + some_size(d);
        k = draw_below(d, 2) ? some_size(d) : 32 << draw_below(d, 3);
        return pl_gather_rows(d->g,
                              matrix(d, v, k, PL_ROLE_TOKEN_EMBD, "token_embd"),
                              draw_ids(d, 1, &tok, (int)v));
    case 1: /* the rows of a value whose results are wanted (n_out) */
        x = pick(d, tokens_by_width);
        return x < 0 ? -1 : pl_gather_rows(d->g, x, draw_ids(d, 1, &out, 1));
    default:
        x = pick(d, constant_table);
        return x < 0 ? -1
                     : pl_gather_rows(
                           d->g, x,
                           draw_ids(d, 1, &tok, (int)at(d, x)->dim[0].n));
    }
}

static pl_tensor rotate(struct draw *d, pl_tensor x)
{
    pl_dim tok = {1, PL_N_TOK};
    int64_t half;
    pl_tensor y;
    pl_rope rope = {.size = sizeof rope, .base = 50, .neox = draw_below(d, 2)};

    rope.n_rot = (int)(at(d, x)->dim[2].n / 2 * 2);
    if (rope.n_rot > 2 && draw_below(d, 2))
        rope.n_rot -= 2;
    half = rope.n_rot / 2;
    if (draw_below(d, 3) == 0)
        rope = (pl_rope){sizeof rope, rope.n_rot, rope.neox, 50,  0.5f,
                         true,        0,          1,         1.1f};
    y = pl_rope_apply(d->g, x, draw_ids(d, 1, &tok, 0),
                      draw_below(d, 2)
                          ? new_weight(d, 1, &half, PL_ROLE_NONE, NULL, false)
                          : -1,
                      &rope);
    if (y >= 0 && draw_below(d, 4) == 0) { /* a temperature */
        d->g->node[y].attr.scale = 0.5f;
        d->g->node[y].attr.window = 1 + draw_below(d, 3);
    }
    return y;
}

static pl_tensor rope_alone(struct draw *d)
{
    pl_tensor x = pick(d, heads);

    return x < 0 || d->r->exact ? -1 : rotate(d, x);
}

static pl_tensor add_up(struct draw *d)
{
    pl_tensor x = pick(d, summable);

    return x < 0 ? -1 : pl_sum(d->g, x);
}

static pl_tensor reshaped(struct draw *d)
{
    pl_tensor x = pick(d, any_value);
    const struct graph_node *n = at(d, x);
    pl_dim dim[GRAPH_MAX_DIM] = {{0, PL_CONST}};
    int64_t rest = 1;
    pl_symbol symbol = PL_CONST;
    int n_dim = 1 + draw_below(d, 4), first = 0;

    for (int k = 0; k < n->n_dim; k++) {
        rest *= n->dim[k].n;
        symbol = n->dim[k].symbol ? n->dim[k].symbol : symbol;
    }
    /* makes tokens the outermost dimension, as models do */
    if (symbol && draw_below(d, 4)) {
        n_dim += n_dim == 1;
        dim[first++] = (pl_dim){1, symbol};
        symbol = PL_CONST;
    }
    for (int k = first; k < n_dim; k++) {
        int64_t f = k + 1 == n_dim ? rest : 1 + test_below(d->seed, rest);

        while (rest % f)
            f--;
        dim[k] = (pl_dim){f, PL_CONST};
        rest /= f;
    }
    if (symbol)
        dim[draw_below(d, n_dim)].symbol = symbol;
    return pl_reshape(d->g, x, n_dim, dim);
}

static pl_tensor permuted(struct draw *d)
{
    pl_tensor x = pick(d, any_value);
    int p[4] = {0, 1, 2, 3};

    for (int k = at(d, x)->n_dim - 1; k > 0; k--) {
        int o = draw_below(d, k + 1), was = p[k];

        p[k] = p[o];
        p[o] = was;
    }
    return pl_permute(d->g, x, p);
}

static int const_axis(struct draw *d, const struct graph_node *n)
{
    int axis = draw_below(d, n->n_dim);

    for (int k = 0; k < n->n_dim; k++, axis = (axis + 1) % n->n_dim)
        if (n->dim[axis].symbol == PL_CONST)
            return axis;
    return -1;
}

static pl_tensor sliced(struct draw *d)
{
    pl_tensor x = pick(d, any_value);
    int axis = const_axis(d, at(d, x));
    int64_t size, start;

    if (axis < 0)
        return -1;
    size = at(d, x)->dim[axis].n;
    start = test_below(d->seed, size);
    return pl_slice(d->g, x, axis, start,
                    1 + test_below(d->seed, size - start));
}

static pl_tensor joined(struct draw *d)
{
    pl_tensor x[3] = {pick(d, any_value), -1, -1};
    const struct graph_node *n = at(d, x[0]);
    int axis = const_axis(d, n), k = 1;

    if (axis < 0)
        return -1;
    for (int i = 0; i < d->n_pool && k < 3; i++) {
        const struct graph_node *y = at(d, d->pool[i]);
        bool ok = y->n_dim == n->n_dim;

        for (int e = 0; e < n->n_dim && ok; e++)
            ok = e == axis ? y->dim[e].symbol == PL_CONST
                           : y->dim[e].n == n->dim[e].n &&
                                 y->dim[e].symbol == n->dim[e].symbol;
        if (ok && draw_below(d, 3))
            x[k++] = d->pool[i];
    }
    return pl_concat(d->g, k, x, axis);
}

/* ---- blocks of models ---------------------------------------------------- */

static pl_tensor feed_forward(struct draw *d)
{
    pl_tensor x = stream(d), g, u;
    int64_t k = last(at(d, x)).n;
    int64_t ff = draw_below(d, 2) ? some_size(d) : 32 << draw_below(d, 2);

    if (d->r->exact) {
        u = pl_matmul(d->g, x, matrix(d, ff, k, PL_ROLE_FFN_UP, "up"));
    } else if (draw_below(d, 2)) {
        g = pl_matmul(d->g, x, matrix(d, ff, k, PL_ROLE_FFN_GATE, "gate"));
        u = pl_matmul(d->g, x, matrix(d, ff, k, PL_ROLE_FFN_UP, "up"));
        u = pl_swiglu(d->g, g, u);
    } else {
        g = pl_matmul(d->g, x,
                      matrix(d, 2 * ff, k, PL_ROLE_FFN_GATE_UP, "gate_up"));
        u = pl_geglu(d->g, pl_slice(d->g, g, 1, 0, ff),
                     pl_slice(d->g, g, 1, ff, ff));
    }
    u = pl_matmul(d->g, u, matrix(d, k, ff, PL_ROLE_FFN_DOWN, "down"));
    if (draw_below(d, 2))
        u = pl_add(d->g, u, new_weight(d, 1, &k, PL_ROLE_NONE, NULL, false));
    return draw_below(d, 4) ? pl_add(d->g, x, u) : u;
}

static pl_tensor by_head(struct draw *d, pl_tensor x, int64_t n, int64_t k)
{
    const pl_dim dim[3] = {{1, PL_N_TOK}, {n, PL_CONST}, {k, PL_CONST}};

    return pl_reshape(d->g, x, 3, dim);
}

/* Adds attention of h heads of q over the caches k and v, mostly followed by an
 * output matrix, whose result is mostly added to x. Returns the result. */
static pl_tensor seen(struct draw *d, pl_tensor x, pl_tensor q, int64_t h,
                      pl_tensor k, pl_tensor v, pl_tensor sinks)
{
    const int64_t width = last(at(d, x)).n, dv = last(at(d, v)).n;
    const pl_dim flat[2] = {{1, PL_N_TOK}, {h * dv, PL_CONST}};
    const float scale = 1 / sqrtf((float)last(at(d, k)).n);
    const int64_t kept = at(d, graph_memory(d->g, k))->attr.window;
    pl_tensor y =
        pl_attention(d->g, q, k, v, sinks, scale, draw_window(d, kept),
                     draw_below(d, 3) ? 0 : 2.0f);

    y = pl_reshape(d->g, y, 2, flat);
    if (draw_below(d, 8) == 0)
        return y;
    y = pl_matmul(d->g, y, matrix(d, width, h * dv, PL_ROLE_ATTN_OUT, "out"));
    return draw_below(d, 4) ? pl_add(d->g, x, y) : y;
}

static pl_tensor self_attention(struct draw *d)
{
    pl_tensor x, q, k, v, y, sinks = -1;
    int64_t width, g = 1 + draw_below(d, 4), h = g * (1 + draw_below(d, 4));
    int64_t dk = 2 * (1 + draw_below(d, 4)), dv = dk, kept = draw_kept(d);
    char name[32];

    if (d->r->exact)
        return -1;
    x = stream(d);
    width = last(at(d, x)).n;
    if (draw_below(d, 3)) {
        if (draw_below(d, 3) == 0)
            dv = 1 + draw_below(d, 8);
        q = pl_matmul(d->g, x, matrix(d, h * dk, width, PL_ROLE_ATTN_Q, "q"));
        k = pl_matmul(d->g, x, matrix(d, g * dk, width, PL_ROLE_ATTN_K, "k"));
        v = pl_matmul(d->g, x, matrix(d, g * dv, width, PL_ROLE_ATTN_V, "v"));
        if (draw_below(d, 2)) {
            int64_t n = h * dk;

            q = pl_add(d->g, q,
                       new_weight(d, 1, &n, PL_ROLE_ATTN_Q_BIAS, "qb", false));
        }
    } else {
        int64_t all = (h + 2 * g) * dk;

        y = pl_matmul(d->g, x, matrix(d, all, width, PL_ROLE_ATTN_QKV, "qkv"));
        q = pl_slice(d->g, y, 1, 0, h * dk);
        k = pl_slice(d->g, y, 1, h * dk, g * dk);
        v = pl_slice(d->g, y, 1, (h + g) * dk, g * dk);
    }
    q = by_head(d, q, h, dk);
    k = by_head(d, k, g, dk);
    v = by_head(d, v, g, dv);
    if (draw_below(d, 2))
        k = pl_rms_norm(
            d->g, k, new_weight(d, 1, &dk, PL_ROLE_NONE, NULL, false), 1e-5f);
    if (draw_below(d, 2)) {
        q = rotate(d, q);
        k = rotate(d, k);
    }
    if (draw_below(d, 3) == 0)
        sinks = new_weight(d, 1, &h, PL_ROLE_ATTN_SINKS, "sinks", false);
    pl_layer(d->g, d->n_layer);
    snprintf(name, sizeof name, "cache_k.%d", d->n_layer);
    k = pl_cache_write(d->g, pl_cache(d->g, name, PL_F32, g, dk, false, kept),
                       k);
    snprintf(name, sizeof name, "cache_v.%d", d->n_layer);
    v = pl_cache_write(d->g, pl_cache(d->g, name, PL_F32, g, dv, true, kept),
                       v);
    y = seen(d, x, q, h, k, v, sinks);
    if (last(at(d, y)).n != width || draw_below(d, 3))
        return y;
    /* a second attention reads the same caches with its own query heads */
    d->n_layer++;
    h = g * (1 + draw_below(d, 4));
    q = pl_matmul(d->g, y, matrix(d, h * dk, width, PL_ROLE_ATTN_Q, "q"));
    return seen(d, y, by_head(d, q, h, dk), h, k, v, -1);
}

/* Makes the two gates of a delta net, gate[0] and gate[1], each [n_tok, h] with
 * a value per head. They come from a weight each, or from one weight whose rows
 * are, for each key head, those of its r value heads of the first gate, then
 * those of the second. */
static void gates(struct draw *d, pl_tensor x, int64_t n_key, int64_t r,
                  pl_tensor gate[2])
{
    int64_t width = last(at(d, x)).n, h = n_key * r;
    pl_dim four[4] = {
        {1, PL_N_TOK}, {n_key, PL_CONST}, {2, PL_CONST}, {r, PL_CONST}};
    pl_dim flat[2] = {{1, PL_N_TOK}, {h, PL_CONST}};
    pl_tensor both = -1;

    if (draw_below(d, 2)) {
        both = pl_matmul(d->g, x,
                         matrix(d, 2 * h, width, PL_ROLE_DELTA_GATES, "gates"));
        both = pl_reshape(d->g, both, 4, four);
    }
    for (int i = 0; i < 2; i++)
        gate[i] =
            both < 0 ? pl_matmul(d->g, x,
                                 matrix(d, h, width, PL_ROLE_DELTA_GATE,
                                        i ? "alpha" : "beta"))
                     : pl_reshape(d->g, pl_slice(d->g, both, 2, i, 1), 2, flat);
}

/* Returns x [n_tok, n] after a short convolution. */
static pl_tensor convolved(struct draw *d, pl_tensor x, int64_t n)
{
    int64_t n_tap = 2 + draw_below(d, 3);
    const int64_t dim[2] = {n, n_tap};
    /* the taps sometimes have a format other than F32, as in model files */
    bool narrow = draw_below(d, 3) == 0;
    pl_tensor w = new_weight(d, 2, dim, PL_ROLE_CONV, "taps", narrow);
    char name[32];

    if (at(d, w)->format != PL_F32)
        w = pl_cast(d->g, w, PL_F32);
    pl_layer(d->g, d->n_layer);
    snprintf(name, sizeof name, "conv_state.%d", d->n_layer);
    return pl_short_conv(d->g, x, w,
                         pl_state(d->g, name, n, n_tap - 1, PL_ROLE_CONV_STATE),
                         draw_below(d, 4));
}

static pl_tensor delta_net(struct draw *d)
{
    int64_t n_key = 1 + draw_below(d, 3), r = 1 + draw_below(d, 3);
    int64_t h = n_key * r, dk = 2 * (1 + draw_below(d, 3));
    int64_t dv = draw_below(d, 3) ? dk : 1 + draw_below(d, 6);
    int64_t n_k = n_key * dk, n_v = h * dv, width, all = 2 * n_k + n_v;
    pl_dim flat[2] = {{1, PL_N_TOK}, {n_v, PL_CONST}};
    pl_tensor x, y, q, k, v, z, decay, gate[2];
    char name[32];

    if (d->r->exact)
        return -1;
    x = stream(d);
    width = last(at(d, x)).n;
    y = pl_matmul(d->g, x, matrix(d, all, width, PL_ROLE_ATTN_QKV, "qkv"));
    y = convolved(d, y, all);
    q = by_head(d, pl_slice(d->g, y, 1, 0, n_k), n_key, dk);
    k = by_head(d, pl_slice(d->g, y, 1, n_k, n_k), n_key, dk);
    v = by_head(d, pl_slice(d->g, y, 1, 2 * n_k, n_v), h, dv);
    gates(d, x, n_key, r, gate);
    decay = pl_add(d->g, gate[1],
                   new_weight(d, 1, &h, PL_ROLE_DELTA_GATE, "dt", false));
    decay = pl_mul(d->g, pl_softplus(d->g, decay),
                   new_weight(d, 1, &h, PL_ROLE_DELTA_GATE, "a", false));
    pl_layer(d->g, d->n_layer);
    snprintf(name, sizeof name, "state.%d", d->n_layer);
    y = pl_delta_net(d->g, q, k, v, pl_scale(d->g, decay, -0.5f),
                     pl_sigmoid(d->g, gate[0]),
                     pl_state(d->g, name, h, dk * dv, PL_ROLE_STATE), 1e-2f,
                     draw_below(d, 2));
    if (draw_below(d, 2))
        y = pl_rms_norm(
            d->g, y, new_weight(d, 1, &dv, PL_ROLE_NONE, NULL, false), 1e-2f);
    if (draw_below(d, 3)) {
        z = pl_matmul(d->g, x,
                      matrix(d, n_v, width, PL_ROLE_ATTN_GATE, "gate"));
        y = pl_swiglu(d->g, by_head(d, z, h, dv), y);
    }
    y = pl_reshape(d->g, y, 2, flat);
    if (draw_below(d, 8) == 0)
        return y;
    y = pl_matmul(d->g, y, matrix(d, width, n_v, PL_ROLE_ATTN_OUT, "out"));
    return draw_below(d, 4) ? pl_add(d->g, x, y) : y;
}

/* Adds a layer of experts, as models have it or with two ops in other forms:
 * scales chosen by gather_rows, and the sum over a token's experts by
 * pl_sum. */
static pl_tensor experts(struct draw *d)
{
    pl_tensor x = stream(d), ids, w = -1, y, z;
    int64_t k = last(at(d, x)).n, n_exp = 2 + draw_below(d, 6);
    int64_t ff = draw_below(d, 2) ? some_size(d) : 32 << draw_below(d, 2);
    int u = 1 + draw_below(d, (int)(n_exp < 3 ? n_exp : 3));
    pl_dim slots[2] = {{1, PL_N_TOK}, {u, PL_CONST}};
    const int64_t up[3] = {n_exp, ff, k}, down[3] = {n_exp, k, ff};
    const int64_t both[3] = {n_exp, 2 * ff, k};
    pl_gating gating = (pl_gating)draw_below(d, 3);

    if (d->r->exact) {
        ids = draw_ids(d, 2, slots, (int)n_exp);
    } else {
        y = pl_matmul(d->g, x, matrix(d, n_exp, k, PL_ROLE_ROUTER, "router"));
        ids = pl_router_topk(
            d->g, y,
            draw_below(d, 2)
                ? new_weight(d, 1, &n_exp, PL_ROLE_ROUTER_BIAS, "rb", false)
                : -1,
            gating, u, n_exp % 2 == 0 && n_exp >= 4 && u <= n_exp / 2 ? 2 : 0,
            1);
        w = pl_router_weights(d->g, y, ids, gating, draw_below(d, 2), 1.5f);
        w = by_head(d, w, u, 1);
    }
    y = by_head(d, x, 1, k);
    if (draw_below(d, 2) || d->r->exact) {
        z = pl_expert_matmul(
            d->g, y, new_weight(d, 3, up, PL_ROLE_FFN_UP_EXPS, "up_exps", true),
            ids);
        if (!d->r->exact)
            z = pl_swiglu(
                d->g,
                pl_expert_matmul(d->g, y,
                                 new_weight(d, 3, up, PL_ROLE_FFN_GATE_EXPS,
                                            "gate_exps", true),
                                 ids),
                z);
    } else {
        z = pl_expert_matmul(
            d->g, y,
            new_weight(d, 3, both, PL_ROLE_FFN_GATE_UP_EXPS, "gu_exps", true),
            ids);
        z = pl_swiglu(d->g, pl_slice(d->g, z, 2, 0, ff),
                      pl_slice(d->g, z, 2, ff, ff));
    }
    y = new_weight(d, 3, down, PL_ROLE_FFN_DOWN_EXPS, "down_exps", true);
    if (draw_below(d, 2)) {
        if (w >= 0)
            z = pl_mul(d->g, z, w);
        z = pl_expert_down(d->g, z, y, ids);
    } else {
        z = pl_expert_matmul(d->g, z, y, ids);
        if (w >= 0)
            z = pl_mul(d->g, z, w);
        if (draw_below(d, 2)) {
            y = new_weight(d, 2, (const int64_t[]){n_exp, 1}, PL_ROLE_NONE,
                           NULL, false);
            z = pl_mul(d->g, z, pl_gather_rows(d->g, y, ids));
        }
        z = pl_sum(d->g, z);
    }
    /* adds the result of a matrix that serves all tokens, as a shared expert
     * does */
    if (draw_below(d, 3) == 0)
        z = pl_add(d->g, z,
                   pl_matmul(d->g, x, matrix(d, k, k, PL_ROLE_NONE, NULL)));
    return draw_below(d, 4) ? pl_add(d->g, x, z) : z;
}

/* ---- layouts, marks, data ------------------------------------------------ */

/* Requests a random split of dimension `dim` into intervals whose lengths are
 * multiples of `grain`. */
static void want_split(struct draw *d, pl_tensor x, int dim, int64_t grain)
{
    struct random_layout l;
    int64_t size = at(d, x)->dim[dim].n;

    random_split(&l, dim, size / grain, d->n_rank, d->seed);
    for (int i = 0; i < l.l.n_run; i++)
        l.run[i].len *= grain;
    l.l.period *= grain;
    pl_want_layout(d->g, x, &l.l);
}

static void want(struct draw *d, pl_tensor x)
{
    const struct graph_node *n = at(d, x);
    int dim = const_axis(d, n);
    int64_t grain = 1;

    if (n->op == OP_cache_write || dim < 0)
        return;
    if (draw_below(d, 8) == 0) {
        pl_want_layout(d->g, x, &layout_mirrored);
        return;
    }
    /* caches of keys and of values may get different splits */
    if (n->op == OP_memory) {
        want_split(d, x, 1, 1);
        return;
    }
    if (n->op == OP_weight && dim == n->n_dim - 1)
        grain = format_info(n->format)->block > 1 ? 32 : 1;
    want_split(d, x, dim, grain);
}

static void fill_floats(struct draw *d, const struct graph_node *n, float *v,
                        int64_t count_, int64_t k)
{
    float scale = n->n_dim > 1 ? 1.5f / sqrtf((float)k) : 0.5f;

    for (int64_t i = 0; i < count_; i++) {
        if (d->r->exact)
            v[i] = (float)(draw_below(d, 5) - 2);
        else if (n->n_dim == 1) /* vectors are norms, factors or biases */
            v[i] = 1 + scale * test_unit(d->seed);
        else
            v[i] = scale * 2 * test_unit(d->seed);
    }
}

/* Fills blocks with random bits and small scales, including codes that no
 * encoder would choose. */
static void fill_blocks(struct draw *d, const struct graph_node *n,
                        unsigned char *b, size_t size)
{
    const struct format_info *f = format_info(n->format);
    /* scales of blocks as F16: 2^-10 and 2^-11 */
    static const uint16_t d_half = 0x1400, min_half = 0x1000;

    for (size_t i = 0; i < size; i++)
        b[i] = (unsigned char)test_random(d->seed);
    for (size_t i = 0; i < size; i += (size_t)f->block_bytes) {
        if (n->format == PL_Q6_K) {
            memcpy(b + i + 208, &min_half, 2);
            for (int k = 192; k < 208; k++)
                b[i + (size_t)k] =
                    (unsigned char)((signed char)b[i + (size_t)k] / 16);
        } else {
            memcpy(b + i, &d_half, 2);
            memcpy(b + i + 2, &min_half, 2);
        }
    }
}

static void *make_bytes(struct draw *d, const struct graph_node *n)
{
    const struct format_info *f = format_info(n->format);
    int64_t k = last(n).n, c = count(n);
    size_t size = format_row_bytes(n->format, k) * (size_t)(c / k);
    unsigned char *b = test_need(1, size);
    float *v;

    if (n->format == PL_Q4_K || n->format == PL_Q6_K) {
        fill_blocks(d, n, b, size);
        return b;
    }
    v = test_need(1, (size_t)c * sizeof *v);
    fill_floats(d, n, v, c, k);
    if (n->format == PL_F32)
        memcpy(b, v, size);
    else
        f->encode(b, v, c);
    free(v);
    return b;
}

static void make_data(struct draw *d)
{
    struct random_graph *r = d->r;

    r->n_node = d->g->n_node;
    r->below = test_need((size_t)r->n_node, sizeof *r->below);
    r->bytes = test_need((size_t)r->n_node, sizeof *r->bytes);
    for (int i = 0; i < d->n_note; i++)
        r->below[d->note[i].t] = d->note[i].below;
    for (int i = 0; i < r->n_node; i++)
        if (d->g->node[i].op == OP_weight)
            r->bytes[i] = make_bytes(d, &d->g->node[i]);
}

typedef pl_tensor op_fn(struct draw *d);

void random_graph_make(struct random_graph *r, int n_rank,
                       const struct random_aim *aim, uint64_t *seed)
{
    static op_fn *const ops[] = {
        contract, contract, norm,         unary,   unary,          binary,
        binary,   look_up,  rope_alone,   add_up,  reshaped,       permuted,
        sliced,   joined,   feed_forward, experts, self_attention, delta_net,
    };
    struct draw d = {.r = r, .seed = seed, .n_rank = n_rank};
    int n_op = 10 + (int)test_below(seed, 31), asked;

    memset(r, 0, sizeof *r);
    r->exact = test_below(seed, 4) == 0 && (!aim || aim_linear(aim->op));
    d.roles = test_below(seed, 2);
    assert_int_equal(pl_graph_create(&r->g, NULL), PL_OK);
    d.g = r->g;
    into_pool(&d, new_value(&d));
    into_pool(&d, stream(&d));
    for (int made = 0, tries = 0; made < n_op && tries < 200; tries++) {
        int before = d.g->n_node;
        pl_tensor x;

        /* weights with a role, and caches, set the layer when they are added */
        pl_layer(d.g, -1);
        if (draw_below(&d, 12) == 0)
            into_pool(&d, new_value(&d));
        if (aim && tries % 3 == 1)
            x = draw_aimed(&d, aim);
        else
            x = ops[draw_below(&d, sizeof ops / sizeof *ops)](&d);
        d.n_layer++;
        into_pool(&d, x);
        for (int i = before; i < d.g->n_node; i++)
            made += op_info(d.g->node[i].op)->dims != NULL;
    }
    if (pl_graph_check(r->g, NULL) != PL_OK)
        fail_msg("the generator made no graph: %s", r->g->err.message);
    r->n_node = d.g->n_node;
    /* so that no, few, some or many tensors get layout requests */
    asked = draw_below(&d, 4);
    for (int i = 0; i < r->n_node; i++) {
        if (i < DRAW_MAX_NODE && d.settled[i])
            continue;
        if (asked && draw_below(&d, 12) < asked * asked)
            want(&d, i);
        if (op_info(d.g->node[i].op)->dims && d.g->node[i].op != OP_cache_write)
            switch (draw_below(&d, 5)) {
            case 0:
                pl_keep(d.g, i);
                break;
            case 1:
                pl_output(d.g, i);
                break;
            }
    }
    pl_output(d.g, d.pool[d.n_pool - 1]);
    make_data(&d);
}

pl_status random_graph_parse(struct random_graph *r, const char *text,
                             uint64_t *seed, pl_err *err)
{
    struct draw d = {.r = r, .seed = seed};
    pl_status s;

    memset(r, 0, sizeof *r);
    s = pl_graph_parse(&r->g, text, err);
    if (s != PL_OK)
        return s;
    d.g = r->g;
    make_data(&d);
    return PL_OK;
}

void random_graph_free(struct random_graph *r)
{
    for (int i = 0; i < r->n_node; i++)
        free(r->bytes[i]);
    free(r->bytes);
    free(r->below);
    pl_graph_free(r->g);
}
