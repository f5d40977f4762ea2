/* The limits of pl_graph.h, as test_api_walk.c has those of pl.h: builders with
 * any operands, executors with any ranges, views and steps. */
#include "lib/walk.h"
#include "pl_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_CTX = 128, N_UBATCH = 4, WIDTH = 8, N_VALUE = 4096 };

struct world {
    pl_graph *g; /* the graph to which builders add tensors */

    pl_graph *planned; /* the graph of the executor `x` */
    pl_exec *x;
    pl_tensor in, w, k, v, y;
    pl_model *model;
    pl_engine *engine;
    float *data; /* [N_VALUE] values for pl_tensor_set and pl_tensor_get */
};

static struct world *of(const struct walk *w)
{
    return w->user;
}

/* ---- arguments ----------------------------------------------------------- */

static void text(void *user, const char *s, size_t n)
{
    (void)user;
    (void)s;
    (void)n;
}

static int n_tensor(const pl_graph *g)
{
    pl_dim dim[4];
    int n = 0;

    while (pl_tensor_shape(g, n, dim) >= 0)
        n++;
    return n;
}

static pl_tensor a_tensor(struct walk *w)
{
    if (walk_is_right(w))
        return 0;
    if (walk_chance(w, 12))
        return (pl_tensor)walk_i(w, -1);
    return (pl_tensor)test_below(&w->rng, n_tensor(of(w)->g));
}

/* Returns a graph under construction. An invalid one is replaced, because
 * builders do nothing more with it. */
static pl_graph *a_graph(struct walk *w)
{
    static const pl_dim a[2] = {{1, PL_N_TOK}, {WIDTH, PL_CONST}};
    static const pl_dim b[3] = {{1, PL_N_TOK}, {2, PL_CONST}, {4, PL_CONST}};
    static const int64_t matrix[2] = {WIDTH, WIDTH}, row[1] = {WIDTH};
    static const int64_t experts[3] = {4, WIDTH, WIDTH};
    static const pl_dim id[1] = {{1, PL_N_TOK}};
    struct world *o = of(w);

    if (!o->g || pl_graph_check(o->g, NULL) != PL_OK || n_tensor(o->g) > 40) {
        pl_graph_free(o->g);
        assert_int_equal(pl_graph_create(&o->g, NULL), PL_OK);
        pl_input(o->g, "a", PL_F32, 2, a);
        pl_input(o->g, "b", PL_F32, 3, b);
        pl_input(o->g, "id", PL_I32, 1, id);
        pl_weight(o->g, "m", PL_F32, 2, matrix, PL_ROLE_NONE);
        pl_weight(o->g, "r", PL_F32, 1, row, PL_ROLE_NORM);
        pl_weight(o->g, "e", PL_F32, 3, experts, PL_ROLE_NONE);
        pl_cache(o->g, "k", PL_F16, 2, 4, false, 0);
        pl_cache(o->g, "v", PL_F16, 2, 4, true, 0);
        pl_state(o->g, "s", WIDTH, 3, PL_ROLE_CONV_STATE);
        assert_int_equal(pl_graph_check(o->g, NULL), PL_OK);
    }
    /* NULL for a graph that an executor uses, because builders must not change
     * it */
    if (walk_chance(w, 12))
        return NULL;
    return NEED(w, g, o->g);
}

static float a_float(struct walk *w, float right)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, -1, 0, 1e30f, 1e-30f};

    return walk_chance(w, 6) ? odd[test_below(&w->rng, 7)] : right;
}

static const pl_dim *dims(struct walk *w)
{
    static pl_dim d[4];

    for (int i = 0; i < 4; i++) {
        d[i].n = walk_chance(w, 4) ? walk_int(w, 2) : 2 + 2 * (i == 1);
        d[i].symbol = walk_chance(w, 4) ? (pl_symbol)walk_i(w, 1) : PL_CONST;
        if (d[i].n > 1 << 16 && d[i].n < (int64_t)1 << 60)
            d[i].n = 3; /* a larger size might take all memory of the machine */
    }
    return d;
}

static const char *a_name(struct walk *w)
{
    static char name[16];

    for (int i = 0; i < 8; i++)
        name[i] = (char)('a' + test_below(&w->rng, 26));
    return walk_string(w, walk_chance(w, 8) ? "a" : name);
}

static void made(struct walk *w, pl_tensor t)
{
    if (t < -1)
        fail_msg("%s: gave tensor %d", w->call, (int)t);
    walk_gave(w, t == -1);
}

/* ---- builders ------------------------------------------------------------ */

/* The elementwise builders, with one operand or with two. */
static const struct {
    const char *name;
    pl_tensor (*one)(pl_graph *g, pl_tensor x);
    pl_tensor (*two)(pl_graph *g, pl_tensor a, pl_tensor b);
} plain[] = {
    {"pl_softmax", pl_softmax, NULL},
    {"pl_sqr", pl_sqr, NULL},
    {"pl_sqrt", pl_sqrt, NULL},
    {"pl_exp", pl_exp, NULL},
    {"pl_tanh", pl_tanh, NULL},
    {"pl_sigmoid", pl_sigmoid, NULL},
    {"pl_softplus", pl_softplus, NULL},
    {"pl_silu", pl_silu, NULL},
    {"pl_gelu", pl_gelu, NULL},
    {"pl_gelu_erf", pl_gelu_erf, NULL},
    {"pl_relu", pl_relu, NULL},
    {"pl_sum", pl_sum, NULL},
    {"pl_contiguous", pl_contiguous, NULL},
    {"pl_gather_rows", NULL, pl_gather_rows},
    {"pl_matmul", NULL, pl_matmul},
    {"pl_head_matmul", NULL, pl_head_matmul},
    {"pl_cache_write", NULL, pl_cache_write},
    {"pl_add", NULL, pl_add},
    {"pl_sub", NULL, pl_sub},
    {"pl_mul", NULL, pl_mul},
    {"pl_div", NULL, pl_div},
    {"pl_swiglu", NULL, pl_swiglu},
    {"pl_geglu", NULL, pl_geglu},
};

static void plain_op(struct walk *w)
{
    pl_graph *g = a_graph(w);
    pl_tensor a = a_tensor(w), b = a_tensor(w);
    size_t i = 0;

    while (strcmp(plain[i].name, w->call) != 0)
        i++;
    made(w, plain[i].one ? plain[i].one(g, a) : plain[i].two(g, a, b));
}

static void leaves(struct walk *w)
{
    pl_graph *g = a_graph(w);
    const char *name = NEED(w, name, a_name(w));
    int n = walk_i(w, 2);
    int64_t size[4];
    const pl_dim *dim = NEED(w, dim, dims(w));
    pl_format f = walk_chance(w, 4) ? (pl_format)walk_i(w, 2) : PL_F32;
    pl_role role = walk_chance(w, 4) ? (pl_role)walk_i(w, 3) : PL_ROLE_NONE;

    for (int i = 0; i < 4; i++)
        size[i] = dim ? dim[i].n : 0;
    if (!strcmp(w->call, "pl_input"))
        made(w, pl_input(g, name, f, n, dim));
    else
        made(w, pl_weight(g, name, f, n, dim ? size : NULL, role));
}

static void memories(struct walk *w)
{
    pl_graph *g = a_graph(w);
    const char *name = NEED(w, name, a_name(w));
    int64_t n_head = walk_chance(w, 4) ? walk_i(w, 2) : 2;
    int64_t d_head = walk_chance(w, 4) ? walk_i(w, 4) : 4;

    if (!strcmp(w->call, "pl_state"))
        made(w, pl_state(g, name, n_head, d_head,
                         walk_chance(w, 2) ? PL_ROLE_STATE
                                           : (pl_role)walk_i(w, 3)));
    else if (!strcmp(w->call, "pl_index_cache"))
        made(w, pl_index_cache(g, name, (pl_format)walk_i(w, PL_F16), d_head));
    else
        made(w, pl_cache(g, name, (pl_format)walk_i(w, PL_F16), n_head, d_head,
                         walk_chance(w, 2), walk_int(w, 0)));
}

static void ops(struct walk *w)
{
    pl_graph *g = a_graph(w);
    pl_tensor t[6];
    const char *c = w->call;
    float f = a_float(w, 0.5f);
    int i = walk_i(w, 1), k = walk_i(w, 1);
    bool on = walk_chance(w, 2);

    for (int j = 0; j < 6; j++)
        t[j] = a_tensor(w);
    if (!strcmp(c, "pl_expert_matmul"))
        made(w, pl_expert_matmul(g, t[0], t[1], t[2]));
    else if (!strcmp(c, "pl_expert_down"))
        made(w, pl_expert_down(g, t[0], t[1], t[2]));
    else if (!strcmp(c, "pl_rms_norm"))
        made(w, pl_rms_norm(g, t[0], on ? t[1] : -1, f));
    else if (!strcmp(c, "pl_layer_norm"))
        made(w, pl_layer_norm(g, t[0], on ? t[1] : -1, f));
    else if (!strcmp(c, "pl_attention"))
        made(w, pl_attention(g, t[0], t[1], t[2], on ? t[3] : -1, f,
                             walk_int(w, 0), a_float(w, 0)));
    else if (!strcmp(c, "pl_bidirectional_attention"))
        made(w, pl_bidirectional_attention(g, t[0], t[1], t[2], t[3], f,
                                           walk_int(w, 0), a_float(w, 0)));
    else if (!strcmp(c, "pl_latent_attention"))
        made(w, pl_latent_attention(g, t[0], t[1], walk_int(w, 2), f));
    else if (!strcmp(c, "pl_chosen_attention"))
        made(w, pl_chosen_attention(g, t[0], t[1], t[2], walk_int(w, 2), f));
    else if (!strcmp(c, "pl_index_topk"))
        made(w, pl_index_topk(g, t[0], t[1], t[2], k));
    else if (!strcmp(c, "pl_attention_blocks"))
        made(w, pl_attention_blocks(g, t[0], t[1], t[2], t[3], k, f));
    else if (!strcmp(c, "pl_index_blocks"))
        made(w, pl_index_blocks(g, t[0], t[1], k, i, walk_i(w, 1)));
    else if (!strcmp(c, "pl_compressed_topk"))
        made(w, pl_compressed_topk(g, t[0], t[1], t[2], k, i));
    else if (!strcmp(c, "pl_compressed_attention"))
        made(w, pl_compressed_attention(g, t[0], t[1], t[2], t[3],
                                        on ? t[4] : -1, i, f, walk_int(w, 2)));
    else if (!strcmp(c, "pl_block_mean"))
        made(w, pl_block_mean(g, t[0], t[1], t[2], walk_int(w, 2)));
    else if (!strcmp(c, "pl_sinkhorn"))
        made(w, pl_sinkhorn(g, t[0], t[1], t[2], k, f));
    else if (!strcmp(c, "pl_mix_streams"))
        made(w, pl_mix_streams(g, t[0], t[1], t[2]));
    else if (!strcmp(c, "pl_short_conv"))
        made(w, pl_short_conv(g, t[0], t[1], t[2], on));
    else if (!strcmp(c, "pl_delta_net"))
        made(w, pl_delta_net(g, t[0], t[1], t[2], t[3], t[4], t[5], f, on));
    else if (!strcmp(c, "pl_delta_net_channels"))
        made(w,
             pl_delta_net_channels(g, t[0], t[1], t[2], t[3], t[4], t[5], f));
    else if (!strcmp(c, "pl_ssm_scan"))
        made(w, pl_ssm_scan(g, t[0], t[1], t[2], t[3], t[4]));
    else if (!strcmp(c, "pl_router_topk"))
        made(w, pl_router_topk(g, t[0], on ? t[1] : -1, (pl_gating)i, k,
                               walk_i(w, 1), walk_i(w, 1)));
    else if (!strcmp(c, "pl_router_weights"))
        made(w, pl_router_weights(g, t[0], t[1], (pl_gating)i, on, f));
    else if (!strcmp(c, "pl_swiglu_oai"))
        made(w, pl_swiglu_oai(g, t[0], t[1], f));
    else if (!strcmp(c, "pl_scale"))
        made(w, pl_scale(g, t[0], f));
    else if (!strcmp(c, "pl_clamp"))
        made(w, pl_clamp(g, t[0], f, a_float(w, 1)));
    else if (!strcmp(c, "pl_cast"))
        made(w, pl_cast(g, t[0], (pl_format)i));
    else if (!strcmp(c, "pl_slice"))
        made(w, pl_slice(g, t[0], i, walk_int(w, 0), walk_int(w, 1)));
    else
        fail_msg("no call of %s", c);
}

static void arrays(struct walk *w)
{
    static const int perm[4] = {1, 0, 2, 3}, odd[4] = {-1, 7, 2, 2};
    pl_graph *g = a_graph(w);
    pl_tensor x = a_tensor(w), in[4];
    int64_t n;

    for (int i = 0; i < 4; i++)
        in[i] = a_tensor(w);
    if (!strcmp(w->call, "pl_reshape")) {
        const pl_dim *dim = ARRAY(w, dim, dims(w), 4, &n);

        made(w, pl_reshape(g, x, (int)n, dim));
    } else if (!strcmp(w->call, "pl_permute")) {
        made(w,
             pl_permute(g, x, NEED(w, perm, walk_chance(w, 3) ? odd : perm)));
    } else {
        const pl_tensor *of_n = ARRAY(w, x, in, 4, &n);

        made(w, pl_concat(g, (int)n, of_n, walk_i(w, 0)));
    }
}

static void rope(struct walk *w)
{
    pl_graph *g = a_graph(w);
    pl_rope r = {.size = walk_size(w, sizeof r),
                 .n_rot = walk_i(w, 4),
                 .base = a_float(w, 10000),
                 .freq_scale = a_float(w, 1),
                 .neox = walk_chance(w, 2),
                 .yarn = walk_chance(w, 2)};

    made(w, pl_rope_apply(g, a_tensor(w), a_tensor(w),
                          walk_chance(w, 2) ? -1 : a_tensor(w),
                          NEED(w, rope, &r)));
}

static void kernel(const pl_op_call *c)
{
    (void)c;
}

static void custom(struct walk *w)
{
    pl_graph *g = a_graph(w);
    pl_op_def d = {.size = walk_size(w, sizeof d),
                   .name = walk_may(w, walk_string(w, "mine")),
                   .dims = walk_may(w, walk_string(w, "td->td")),
                   .run = walk_chance(w, 9) ? NULL : kernel,
                   .partial = (unsigned)walk_i(w, 0)};
    pl_tensor in[4];
    int64_t n;
    const pl_tensor *of_n;

    for (int i = 0; i < 4; i++)
        in[i] = a_tensor(w);
    of_n = ARRAY(w, in, in, 4, &n);
    made(w, pl_custom(g, NEED(w, def, &d), (int)n, of_n));
}

static void marks(struct walk *w)
{
    static const pl_interval run[2] = {{4, 1}, {4, 2}};
    pl_graph *g = a_graph(w);
    pl_tensor x = a_tensor(w);
    pl_layout l = {.kind = (pl_layout_kind)walk_i(w, PL_SPLIT),
                   .dim = walk_i(w, 1),
                   .period = walk_int(w, 8),
                   .n_run = walk_i(w, 0)};

    l.run = walk_may(w, run);
    if (l.run && l.n_run > 2)
        l.n_run = 2;
    pl_layer(g, walk_i(w, 0));
    pl_set_numerics(g, (pl_numerics)walk_i(w, 0));
    pl_output(g, x);
    pl_keep(g, x);
    pl_want_layout(g, x, walk_may(w, &l));
    pl_name(g, x, walk_may(w, a_name(w)));
}

/* ---- graphs -------------------------------------------------------------- */

static void looks(struct walk *w)
{
    const pl_graph *g = a_graph(w);
    pl_dim dim[4];

    walk_gave(w, pl_tensor_name(g, a_tensor(w))[0] == '\0');
    walk_gave(w, pl_tensor_find(g, NEED(w, name, a_name(w))) == -1);
    /* in the call before this one only `name` may be NULL */
    w->n_wrong -= w->n_wrong > 0 && g;
    walk_gave(w, pl_tensor_shape(g, a_tensor(w), walk_may(w, dim)) == -1);
}

static void check(struct walk *w)
{
    walk_ended(w, pl_graph_check(a_graph(w), walk_err(w)), true);
}

static void print(struct walk *w)
{
    const pl_graph *g = a_graph(w);
    pl_write_fn *write = NEED(w, write, (void *)(uintptr_t)text) ? text : NULL;

    walk_ended(w, pl_graph_print(g, write, NULL, walk_err(w)), true);
}

static void create(struct walk *w)
{
    pl_graph *g = (pl_graph *)w, **out = NEED(w, out, &g);
    pl_status s = pl_graph_create(out, walk_err(w));

    walk_ended(w, s, !out || !g);
    if (s == PL_OK)
        pl_graph_free(g);
    pl_graph_free(NULL);
}

static void parse(struct walk *w)
{
    static const pl_op_def def = {
        .size = sizeof def, .name = "mine", .dims = "td->td", .run = kernel};
    static const pl_op_def *const defs[2] = {&def, NULL};
    pl_graph *g = (pl_graph *)w, **out = NEED(w, out, &g);
    const char *s =
        NEED(w, text,
             walk_string(
                 w, "x: f32[n_tok, 8] = input\ny: f32[n_tok, 8] = relu(x)\n"));
    pl_status st;

    if (!strcmp(w->call, "pl_graph_parse")) {
        st = pl_graph_parse(out, s, walk_err(w));
    } else {
        int64_t n;
        const pl_op_def *const *d =
            ARRAY(w, def, defs, walk_is_right(w) ? 1 : 2, &n);

        st = pl_graph_parse_ops(out, s, (int)n, d, walk_err(w));
    }
    walk_ended(w, st, !out || !g);
    if (st == PL_OK)
        pl_graph_free(g);
}

/* ---- executors ----------------------------------------------------------- */

static pl_options options(void)
{
    return (pl_options){.size = sizeof(pl_options),
                        .devices = "cpu*2",
                        .n_threads = 1,
                        .no_pin = true,
                        .n_ctx = N_CTX,
                        .n_ubatch = N_UBATCH,
                        .n_seq = 2};
}

static pl_graph *small_graph(void)
{
    const pl_dim dim[2] = {{1, PL_N_TOK}, {WIDTH, PL_CONST}};
    pl_graph *g;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    pl_output(g, pl_relu(g, pl_input(g, "x", PL_F32, 2, dim)));
    return g;
}

/* Checks that a graph rejects changes while it has an executor. */
static void change(pl_graph *g)
{
    pl_err err;

    pl_keep(g, 0);
    pl_relu(g, 0);
    assert_int_equal(pl_graph_check(g, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "an executor uses the graph"));
}

static void exec_create(struct walk *w)
{
    pl_exec *x = (pl_exec *)w, **out = NEED(w, out, &x);
    pl_graph *small = small_graph();
    const pl_graph *g =
        walk_chance(w, 2) ? NEED(w, g, small) : (const pl_graph *)a_graph(w);
    pl_options o = options();
    pl_status s;

    o.size = walk_size(w, o.size);
    o.n_ranks = walk_chance(w, 3) ? walk_i(w, 2) : 2;
    s = pl_exec_create(out, g, &o, walk_err(w));
    walk_ended(w, s, !out || !x);
    if (s == PL_OK) {
        change((pl_graph *)g);
        pl_exec_free(x);
    }
    pl_graph_free(small);
}

static pl_exec *an_exec(struct walk *w)
{
    struct world *o = of(w);

    return NEED(w, x, walk_chance(w, 4) ? pl_engine_exec(o->engine) : o->x);
}

/* Returns a tensor of the executor; in the engine's executor it is a random
 * one. */
static pl_tensor a_planned(struct walk *w)
{
    const pl_tensor known[] = {of(w)->w, of(w)->in, of(w)->k, of(w)->v,
                               of(w)->y};

    if (walk_chance(w, 5))
        return (pl_tensor)walk_i(w, 4);
    return known[walk_is_right(w) ? 0 : test_below(&w->rng, 5)];
}

/* Returns the number of bytes for which `data` has space. */
static size_t bytes_of(struct walk *w, const void *data, size_t right)
{
    static const size_t odd[] = {0, 1, 3, 4, 64, SIZE_MAX, SIZE_MAX - 3};
    size_t n = walk_chance(w, 2) ? odd[test_below(&w->rng, 7)] : right;

    return data && n < SIZE_MAX - 8 && n > N_VALUE ? N_VALUE : n;
}

static void ranges(struct walk *w)
{
    struct world *o = of(w);
    pl_exec *x = an_exec(w);
    pl_tensor t = a_planned(w);
    size_t offset = bytes_of(w, NULL, 4), bytes;
    void *data = walk_may(w, o->data);
    pl_err *err = walk_err(w);
    pl_status s;

    bytes = bytes_of(w, data, 8);
    if (!data && bytes > 0) {
        w->wrong = "data";
        w->n_wrong++;
    }
    if (!strcmp(w->call, "pl_tensor_get"))
        s = pl_tensor_get(x, t, data, offset, bytes, err);
    else if (!strcmp(w->call, "pl_tensor_set"))
        s = pl_tensor_set(x, t, data, offset, bytes, err);
    else if (!strcmp(w->call, "pl_tensor_get_async"))
        s = pl_tensor_get_async(x, t, data, offset, bytes, err);
    else
        s = pl_tensor_set_async(x, t, data, offset, bytes, err);
    walk_ended(w, s, true);
}

static void views(struct walk *w)
{
    struct world *o = of(w);
    pl_exec *x = an_exec(w);
    pl_tensor t = a_planned(w);
    pl_view v = {walk_i(w, 2), {0}, {0}, walk_int(w, 0)};
    void *data;
    int64_t n = 1;
    pl_status s;

    for (int i = 0; i < 4; i++) {
        v.dim[i] = walk_chance(w, 4) ? walk_int(w, 2) : 2;
        v.stride[i] = walk_chance(w, 4) ? walk_int(w, 1) : 1;
        if (v.dim[i] > 8 && v.dim[i] < (int64_t)1 << 60)
            v.dim[i] = 8;
        n *= v.dim[i] > 0 && v.dim[i] <= 8 ? v.dim[i] : 1;
    }
    assert_true(n <= N_VALUE);
    data = NEED(w, data, o->data);
    for (int i = 0; i < 4 && i < v.n_dim && !data; i++)
        /* an empty view reads nothing, so `data` may be NULL */
        w->n_wrong -= v.dim[i] == 0 && w->n_wrong > 0;
    if (!strcmp(w->call, "pl_tensor_get_view"))
        s = pl_tensor_get_view(x, t, NEED(w, v, &v), data, walk_err(w));
    else
        s = pl_tensor_set_view(x, t, NEED(w, v, &v), data, walk_err(w));
    if (w->n_wrong > 0 || s != PL_OK)
        walk_ended(w, s, true);
}

static void exec_wait(struct walk *w)
{
    walk_ended(w, pl_exec_wait(an_exec(w), walk_err(w)), true);
}

static void step(struct walk *w)
{
    enum { N = N_UBATCH + 2 };
    pl_exec *x = an_exec(w);
    int32_t pos[N], seq[N], page[4] = {0, 1, 0, 1};
    pl_step_tokens r = {.size = walk_size(w, sizeof r),
                        .n_tok = walk_chance(w, 3) ? walk_int(w, 2) : 2,
                        .n_out = walk_chance(w, 4) ? walk_int(w, 0) : 0,
                        .page_stride = walk_chance(w, 6) ? walk_int(w, 2) : 2};

    for (int i = 0; i < N; i++) {
        pos[i] = walk_chance(w, 6) ? walk_i(w, 3) : i;
        seq[i] = walk_chance(w, 6) ? walk_i(w, 0) : 0;
    }
    if (walk_chance(w, 5))
        page[test_below(&w->rng, 4)] = walk_i(w, 1);
    if (r.n_tok > N && r.n_tok < 1 << 10)
        r.n_tok = N;
    if (r.page_stride < 0 || r.page_stride > 2)
        r.page_stride = walk_chance(w, 2) ? 2 : -1;
    r.pos = walk_may(w, pos);
    r.seq = walk_may(w, seq);
    r.pages[0] = walk_may(w, page);
    walk_ended(w, pl_exec_step(x, NEED(w, rows, &r), walk_err(w)), true);
}

static void exec_says(struct walk *w)
{
    const pl_exec *x = an_exec(w);
    pl_counters c;
    pl_traced t;

    pl_exec_counters(x, walk_may(w, &c), sizeof c);
    pl_exec_traced(x, walk_may(w, &t), sizeof t);
}

/* Calls pl_exec_free with an engine's executor, which must not be freed. */
static void exec_free(struct walk *w)
{
    pl_exec_free(walk_may(w, pl_engine_exec(of(w)->engine)));
}

static void behind_a_model(struct walk *w)
{
    struct world *o = of(w);
    pl_engine *e = NEED(w, e, o->engine);
    const char *name = NEED(w, name, walk_string(w, "output_norm.weight"));

    walk_gave(w, pl_engine_tensor(e, name) == -1);
    w->n_wrong = !e;
    walk_gave(w, !pl_engine_exec(e));
    w->n_wrong = 0;
    walk_gave(w, !pl_plan_graph(walk_may(w, pl_engine_plan(o->engine))));
}

/* ---- the table ----------------------------------------------------------- */

static const struct walk_row rows[] = {
    {"pl_graph_create", create},
    {"pl_graph_free", create},
    {"pl_graph_check", check},
    {"pl_layer", marks},
    {"pl_set_numerics", marks},
    {"pl_input", leaves},
    {"pl_weight", leaves},
    {"pl_cache", memories},
    {"pl_index_cache", memories},
    {"pl_state", memories},
    {"pl_gather_rows", plain_op},
    {"pl_matmul", plain_op},
    {"pl_head_matmul", plain_op},
    {"pl_expert_matmul", ops},
    {"pl_expert_down", ops},
    {"pl_rms_norm", ops},
    {"pl_layer_norm", ops},
    {"pl_rope_apply", rope},
    {"pl_cache_write", plain_op},
    {"pl_attention", ops},
    {"pl_bidirectional_attention", ops},
    {"pl_latent_attention", ops},
    {"pl_chosen_attention", ops},
    {"pl_index_topk", ops},
    {"pl_attention_blocks", ops},
    {"pl_index_blocks", ops},
    {"pl_compressed_topk", ops},
    {"pl_compressed_attention", ops},
    {"pl_block_mean", ops},
    {"pl_sinkhorn", ops},
    {"pl_mix_streams", ops},
    {"pl_short_conv", ops},
    {"pl_delta_net", ops},
    {"pl_delta_net_channels", ops},
    {"pl_ssm_scan", ops},
    {"pl_softmax", plain_op},
    {"pl_router_topk", ops},
    {"pl_router_weights", ops},
    {"pl_add", plain_op},
    {"pl_sub", plain_op},
    {"pl_mul", plain_op},
    {"pl_div", plain_op},
    {"pl_swiglu", plain_op},
    {"pl_geglu", plain_op},
    {"pl_swiglu_oai", ops},
    {"pl_scale", ops},
    {"pl_clamp", ops},
    {"pl_sqr", plain_op},
    {"pl_sqrt", plain_op},
    {"pl_exp", plain_op},
    {"pl_tanh", plain_op},
    {"pl_sigmoid", plain_op},
    {"pl_softplus", plain_op},
    {"pl_silu", plain_op},
    {"pl_gelu", plain_op},
    {"pl_gelu_erf", plain_op},
    {"pl_relu", plain_op},
    {"pl_sum", plain_op},
    {"pl_cast", ops},
    {"pl_contiguous", plain_op},
    {"pl_reshape", arrays},
    {"pl_permute", arrays},
    {"pl_slice", ops},
    {"pl_concat", arrays},
    {"pl_custom", custom},
    {"pl_output", marks},
    {"pl_keep", marks},
    {"pl_want_layout", marks},
    {"pl_tensor_name", looks},
    {"pl_name", marks},
    {"pl_tensor_find", looks},
    {"pl_tensor_shape", looks},
    {"pl_graph_print", print},
    {"pl_graph_parse", parse},
    {"pl_graph_parse_ops", parse},
    {"pl_exec_create", exec_create},
    {"pl_exec_free", exec_free},
    {"pl_tensor_set", ranges},
    {"pl_tensor_get", ranges},
    {"pl_tensor_get_async", ranges},
    {"pl_tensor_set_async", ranges},
    {"pl_exec_wait", exec_wait},
    {"pl_tensor_get_view", views},
    {"pl_tensor_set_view", views},
    {"pl_exec_step", step},
    {"pl_exec_traced", exec_says},
    {"pl_exec_counters", exec_says},
    {"pl_plan_graph", behind_a_model},
    {"pl_engine_exec", behind_a_model},
    {"pl_engine_tensor", behind_a_model},
};
enum { N_ROW = sizeof rows / sizeof rows[0] };

/* ---- cases --------------------------------------------------------------- */

static void world_open(struct world *o)
{
    const pl_dim dim[3] = {{1, PL_N_TOK}, {2, PL_CONST}, {4, PL_CONST}};
    const char *path = test_ref_need("qwen2-bias-f32.gguf");
    const int64_t size[3] = {2, 4, 4};
    pl_options opt = options();
    pl_tensor k, v;
    pl_err err;

    *o = (struct world){0};
    o->data = test_need(N_VALUE, sizeof *o->data);
    assert_int_equal(pl_graph_create(&o->planned, NULL), PL_OK);
    o->in = pl_input(o->planned, "x", PL_F32, 3, dim);
    o->w = pl_weight(o->planned, "w", PL_F32, 3, size, PL_ROLE_NONE);
    o->k = pl_cache(o->planned, "k", PL_F16, 2, 4, false, 0);
    o->v = pl_cache(o->planned, "v", PL_F16, 2, 4, true, 0);
    k = pl_cache_write(o->planned, o->k,
                       pl_head_matmul(o->planned, o->in, o->w));
    v = pl_cache_write(o->planned, o->v, o->in);
    o->y = pl_attention(o->planned, o->in, k, v, -1, 0.5f, 0, 0);
    pl_output(o->planned, o->y);
    TEST_OK(pl_exec_create(&o->x, o->planned, &opt, &err), err);
    TEST_OK(pl_model_open(&o->model, path, &err), err);
    TEST_OK(pl_engine_create(&o->engine, o->model, &opt, &err), err);
}

static void world_close(struct world *o)
{
    pl_exec_free(o->x);
    pl_graph_free(o->planned);
    pl_graph_free(o->g);
    pl_engine_free(o->engine);
    pl_model_free(o->model);
    free(o->data);
}

/* Executes the executor's graph once with fixed values, and reads its
 * results. */
static void compute(struct world *o, float out[16])
{
    static const int32_t pos[2] = {0, 1}, page[2] = {0, 1};
    const pl_step_tokens r = {.size = sizeof r,
                              .n_tok = 2,
                              .pos = pos,
                              .pages = {page},
                              .page_stride = 2};
    float x[16], w[32];
    pl_err err;

    for (int i = 0; i < 32; i++)
        w[i] = x[i / 2] = (float)(i % 5) - 1.5f;
    /* an asynchronous transfer with bad arguments may still be queued */
    (void)pl_exec_wait(o->x, NULL);
    TEST_OK(pl_tensor_set(o->x, o->in, x, 0, sizeof x, &err), err);
    TEST_OK(pl_tensor_set(o->x, o->w, w, 0, sizeof w, &err), err);
    TEST_OK(pl_exec_step(o->x, &r, &err), err);
    TEST_OK(pl_tensor_get(o->x, o->y, out, 0, 16 * sizeof *out, &err), err);
}

TEST(api_graph_walk_calls_every_function)
{
    walk_names_all("include/pl_graph.h", rows, N_ROW);
}

TEST(api_graph_null_is_refused)
{
    struct world o;
    struct walk w = {.rng = test_seed(), .user = &o};

    world_open(&o);
    for (int i = 0; i < N_ROW; i++)
        walk_nulls(&w, &rows[i]);
    world_close(&o);
}

TEST(api_graph_walk_gives_a_status_and_keeps_the_bits)
{
    struct world o;
    struct walk w = {.rng = test_seed(), .user = &o};
    float before[16], after[16];

    world_open(&o);
    compute(&o, before);
    for (int i = test_draws(10000, 400000); i > 0; i--)
        walk_once(&w, &rows[test_below(&w.rng, N_ROW)]);
    compute(&o, after);
    assert_memory_equal(before, after, sizeof before);
    print_message("%lld calls did something, %lld were refused\n",
                  (long long)w.n_ok, (long long)w.n_refused);
    world_close(&o);
}
