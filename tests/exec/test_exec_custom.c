/* Custom ops, split over ranks: kernels that know nothing of ranks compute the
 * same from their parts as from the whole, whatever the layouts, devices and
 * threads. Sums are of small integers, for which any order gives the same, or
 * are compared with the same ranks on one device. */
#include "exec/exec.h"
#include "lib/alloc_fail.h"
#include "lib/random_layout.h"
#include "lib/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOK = 5, N_DRAW = 12 };

/* Kernels ---------------------------------------------------------------- */

static int64_t count(const pl_op_value *v, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++)
        n *= v->dim[i];
    return n;
}

/* Returns the first of n values that this thread computes. */
static int64_t first(const pl_op_call *c, int64_t n)
{
    return n * c->ith / c->nth;
}

static int64_t end(const pl_op_call *c, int64_t n)
{
    return n * (c->ith + 1) / c->nth;
}

/* Returns the logical index of index i along dimension d. */
static int64_t logical(const pl_op_value *v, int d, int64_t i)
{
    const pl_op_part *p = v->part;

    if (v->split != d)
        return i;
    while (i >= p->at + p->n)
        p++;
    return p->index + (i - p->at);
}

static int64_t local(const pl_op_value *v, int d, int64_t i)
{
    const pl_op_part *p = v->part;

    if (v->split != d)
        return i;
    while (i >= p->index + p->n)
        p++;
    return p->at + (i - p->index);
}

/* Kernel of "td,td->td": sqrt(a^2 + b^2). */
static void hypot_run(const pl_op_call *c)
{
    const float *a = c->in[0].data, *b = c->in[1].data;
    float *out = c->out.data;
    int64_t n = count(&c->out, 0, 2);

    for (int64_t i = first(c, n); i < end(c, n); i++)
        out[i] = sqrtf(a[i] * a[i] + b[i] * b[i]);
}

/* Kernel of "*d!,d!?->*d!": (x - mean) / deviation, times w if that is
 * given. */
static void norm_run(const pl_op_call *c)
{
    int last = c->out.n_dim - 1;
    int64_t rows = count(&c->out, 0, last), n = c->out.dim[last];
    const float *w = c->n_in > 1 ? c->in[1].data : NULL;

    for (int64_t r = first(c, rows); r < end(c, rows); r++) {
        const float *x = (const float *)c->in[0].data + r * n;
        float *out = (float *)c->out.data + r * n;
        double mean = 0, square = 0;

        for (int64_t i = 0; i < n; i++)
            mean += (double)x[i] / (double)n;
        for (int64_t i = 0; i < n; i++)
            square += ((double)x[i] - mean) * ((double)x[i] - mean);
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(((double)x[i] - mean) /
                             sqrt(square / (double)n + 1e-5)) *
                     (w ? w[i] : 1);
    }
}

/* Kernel of "*->*", which PARTIAL operands pass through: multiplies by the
 * factor at `user`. */
static void times_run(const pl_op_call *c)
{
    const float *x = c->in[0].data;
    float *out = c->out.data, f = *(const float *)c->user;
    int64_t n = count(&c->out, 0, c->out.n_dim);

    for (int64_t i = first(c, n); i < end(c, n); i++)
        out[i] = f * x[i];
}

/* td,d->td, any may be PARTIAL: 2 a + 5 b. */
static void mix_run(const pl_op_call *c)
{
    const float *a = c->in[0].data, *b = c->in[1].data;
    float *out = c->out.data;
    int64_t n = count(&c->out, 0, 2), d = c->out.dim[1];

    for (int64_t i = first(c, n); i < end(c, n); i++)
        out[i] = 2 * (a ? a[i] : 0) + 5 * (b ? b[i % d] : 0);
}

/* Kernel of "tke,nk->ten": products summed over k. */
static void dot_run(const pl_op_call *c)
{
    const float *x = c->in[0].data, *w = c->in[1].data;
    int64_t n_k = c->in[0].dim[1], e = c->out.dim[1], n = c->out.dim[2];
    int64_t all = count(&c->out, 0, 3);

    for (int64_t i = first(c, all); i < end(c, all); i++) {
        int64_t t = i / (e * n);
        float sum = 0;

        for (int64_t k = 0; k < n_k; k++)
            sum += x[(t * n_k + k) * e + i / n % e] * w[i % n * n_k + k];
        ((float *)c->out.data)[i] = sum;
    }
}

/* Kernel of "t(gr)d,gd->t(gr)d": multiplies each of the r heads of a group by
 * the group's row. */
static void heads_run(const pl_op_call *c)
{
    enum { R = 2 };
    const float *x = c->in[0].data, *w = c->in[1].data;
    float *out = c->out.data;
    int64_t h = c->out.dim[1], d = c->out.dim[2], n = count(&c->out, 0, 3);

    for (int64_t i = first(c, n); i < end(c, n); i++) {
        int64_t g = local(&c->in[1], 0, logical(&c->out, 1, i / d % h) / R);
        int64_t at = c->in[1].split == 1
                         ? local(&c->in[1], 1, logical(&c->out, 2, i % d))
                         : i % d;

        out[i] = x[i] * w[g * c->in[1].dim[1] + at];
    }
}

/* Kernel of "tg,tr->t(gr)": a[g] + 10 b[r]. */
static void outer_run(const pl_op_call *c)
{
    enum { N_R = 4 };
    const float *a = c->in[0].data, *b = c->in[1].data;
    float *out = c->out.data;
    int64_t n = count(&c->out, 0, 2), w = c->out.dim[1];

    for (int64_t i = first(c, n); i < end(c, n); i++) {
        int64_t at = logical(&c->out, 1, i % w), t = i / w;

        out[i] = a[t * c->in[0].dim[1] + local(&c->in[0], 1, at / N_R)] +
                 10 * b[t * c->in[1].dim[1] + local(&c->in[1], 1, at % N_R)];
    }
}

/* Kernel of "tnd,t->tnd": x plus a number that depends on the token's id and on
 * the indices of the value in the whole tensor. */
static void place_run(const pl_op_call *c)
{
    const float *x = c->in[0].data;
    const int32_t *id = c->in[1].data;
    float *out = c->out.data;
    int64_t n = c->out.dim[1], d = c->out.dim[2], all = count(&c->out, 0, 3);

    for (int64_t i = first(c, all); i < end(c, all); i++)
        out[i] = x[i] + (float)(1000 * id[i / (n * d)] +
                                100 * logical(&c->out, 1, i / d % n) +
                                logical(&c->out, 2, i % d));
}

static float three = 3;

enum { SIZE = sizeof(pl_op_def) };
static const pl_op_def defs[] = {
    {SIZE, "hypot", "td,td->td", PL_OP_NONE, hypot_run, NULL, 0},
    {SIZE, "norm", "*d!,d!?->*d!", PL_OP_NONE, norm_run, NULL, 0},
    {SIZE, "times", "*->*", PL_OP_ONE | 1, times_run, &three, 0},
    {SIZE, "mix", "td,d->td", PL_OP_SUM, mix_run, NULL, 0},
    {SIZE, "dot", "tke,nk->ten", PL_OP_ONE | 1, dot_run, NULL, 0},
    {SIZE, "heads", "t(gr)d,gd->t(gr)d", PL_OP_NONE, heads_run, NULL, 0},
    {SIZE, "outer", "tg,tr->t(gr)", PL_OP_NONE, outer_run, NULL, 0},
    {SIZE, "place", "tnd,t->tnd", PL_OP_NONE, place_run, NULL, 0},
};
static const pl_op_def *const def_list[] = {&defs[0], &defs[1], &defs[2],
                                            &defs[3], &defs[4], &defs[5],
                                            &defs[6], &defs[7]};
enum { N_DEF = sizeof defs / sizeof *defs };

/* Scenes ----------------------------------------------------------------- */

static const struct {
    const char *text;
    bool sums;
    int64_t cut; /* dimensions of this size are split */
} scenes[] = {
    {"x: f32[n_tok, 12] = input\ny: f32[n_tok, 12] = input\n"
     "z: f32[n_tok, 12] = hypot(x, y) !output\n"
     "u: f32[n_tok, 12] = hypot(z, x) !output\n",
     false, 12},
    {"x: f32[n_tok, 5, 12] = input\nw: f32[12] = weight layer=0\n"
     "y: f32[n_tok, 5, 12] = norm(x, w) !keep\n"
     "z: f32[n_tok, 5, 12] = norm(y) !output\n",
     false, 5},
    {"x: f32[n_tok, 16, 1] = input\nw: f32[9, 16] = weight layer=0\n"
     "p: f32[n_tok, 1, 9] = dot(x, w)\ny: f32[n_tok, 1, 9] = times(p)\n"
     "z: f32[n_tok, 1, 9] = times(y) !output\n",
     true, 16},
    {"x: f32[n_tok, 8, 3] = input\nw: f32[5, 8] = weight layer=0\n"
     "v: f32[2, 3] = weight layer=1\np: f32[n_tok, 3, 5] = dot(x, w) !keep\n"
     "q: f32[n_tok, 5, 2] = dot(p, v)\n"
     "y: f32[n_tok, 5, 2] = times(q) !output\n",
     true, 8},
    {"x: f32[n_tok, 16] = input\nw: f32[9, 16] = weight layer=0\n"
     "b: f32[9] = weight\np: f32[n_tok, 9] = matmul(x, w)\n"
     "y: f32[n_tok, 9] = times(p)\nm: f32[n_tok, 9] = mix(y, b) !output\n"
     "z: f32[n_tok, 9] = relu(m) !output\n",
     true, 16},
    {"x: f32[7, 16] = input\ny: f32[16] = input\nw: f32[9, 16] = weight "
     "layer=0\n"
     "v: f32[9, 16] = weight layer=1\nb: f32[9] = input\np: f32[7, 9] = "
     "matmul(x, w)\n"
     "q: f32[9] = matmul(y, v)\nc: f32[9] = times(q)\n"
     "d: f32[7, 9] = mix(p, b)\nz: f32[7, 9] = mix(d, c)\n"
     "u: f32[7, 9] = hypot(z, z) !output\nm: f32[7, 9] = mix(z, q) !output\n",
     true, 16},
    {"x: f32[n_tok, 16] = input\nw: f32[9, 16] = weight layer=0\n"
     "v: f32[9, 16] = weight layer=1\nb: f32[9] = input\n"
     "p: f32[n_tok, 9] = matmul(x, w)\nq: f32[n_tok, 9] = matmul(x, v)\n"
     "c: f32[n_tok, 9] = times(p)\nd: f32[n_tok, 9] = mix(q, b)\n"
     "z: f32[n_tok, 9] = sub(c, d) !output\n",
     true, 16},
    {"x: f32[n_tok, 8, 5] = input\nw: f32[4, 5] = weight layer=0\n"
     "y: f32[n_tok, 8, 5] = heads(x, w) !output\n",
     false, 8},
    {"x: f32[n_tok, 3] = input\ny: f32[n_tok, 4] = input\n"
     "z: f32[n_tok, 12] = outer(x, y) !output\n",
     false, 3},
    {"x: f32[n_tok, 8, 5] = input\ni: i32[n_tok] = input\n"
     "y: f32[n_tok, 8, 5] = place(x, i) !output\n",
     false, 8},
};
enum { N_SCENE = sizeof scenes / sizeof *scenes };

/* For each definition, how often plans have split its op, summed over a split
 * dimension, and passed a PARTIAL through. */
static struct {
    int split, sum, through;
} seen[N_DEF];
/* number of steps that ran on several groups of devices */
static int seen_groups;

static pl_graph *read_scene(const char *text)
{
    pl_graph *g;
    pl_err err;

    TEST_OK(pl_graph_parse_ops(&g, text, N_DEF, def_list, &err), err);
    return g;
}

/* Splits random leaves, or, if `cut`, all with a dimension of that size along
 * it, alike; by halves if `even`. */
static void split_leaves(pl_graph *g, int n_rank, int64_t cut, bool even,
                         uint64_t *seed)
{
    struct random_layout l;

    if (cut)
        random_split(&l, 0, cut, n_rank, seed);
    if (even)
        l = (struct random_layout){{PL_SPLIT, 0, cut, 2, l.run},
                                   {{cut / 2, 1}, {cut - cut / 2, 2}}};
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *x = &g->node[i];
        int d = (int)test_below(seed, x->n_dim);

        for (int k = 0; cut && k < x->n_dim; k++)
            if (x->dim[k].n == cut)
                d = k;
        if (x->n_in > 0 || x->dim[d].symbol != PL_CONST ||
            (cut ? x->dim[d].n != cut : test_below(seed, 4) == 0))
            continue;
        if (!cut)
            random_split(&l, d, x->dim[d].n, n_rank, seed);
        l.l.dim = d;
        pl_want_layout(g, i, &l.l);
    }
}

static void note(const struct numeric *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct num_node *n = &p->node[i];
        const struct graph_node *x = &p->g->node[n->node];
        int k = 0;

        if (n->kind != NUM_OP || x->op != OP_custom)
            continue;
        while (strcmp(defs[k].name, x->custom->name) != 0)
            k++;
        seen[k].split += n->layout->kind == PL_SPLIT;
        seen[k].sum += n->sum != NULL;
        seen[k].through += n->layout->kind == PL_PARTIAL && !n->sum;
        if (!strcmp(x->custom->name, "norm") && n->layout->kind == PL_SPLIT)
            /* the row forbids a split of the last dimension with '!' */
            assert_int_equal(n->layout->dim, 1);
    }
}

/* Runs `g` and returns all results in one piece (malloc'ed). */
static float *run(const pl_graph *g, const pl_options *o, uint64_t values,
                  bool exact, int64_t n_tok, size_t *size)
{
    const pl_step_tokens rows = {.size = sizeof rows, .n_tok = n_tok};
    const struct graph_sizes z = {.n_tok = n_tok, .n_out = 1, .n_seq = 1};
    float *out = NULL;
    pl_exec *x;
    pl_err err;

    *size = 0;
    TEST_OK(pl_exec_create(&x, g, o, &err), err);
    note(x->plan->num);
    seen_groups += x->plan->low->n_group > 1;
    for (int i = 0; i < g->n_node; i++) {
        int64_t n = graph_count(&g->node[i], &z);
        float *v = test_need(1, (size_t)n * sizeof *v);

        for (int64_t k = 0; g->node[i].n_in == 0 && k < n; k++) {
            int32_t id = (int32_t)test_below(&values, 7) - 3;

            v[k] = exact ? (float)id : test_unit(&values);
            if (g->node[i].format == PL_I32)
                memcpy(&v[k], &id, sizeof id);
        }
        if (g->node[i].n_in == 0 &&
            pl_tensor_set(x, i, v, 0, 4 * (size_t)n, &err) != PL_OK)
            fail_msg("%s", err.message);
        free(v);
    }
    TEST_OK(pl_exec_step(x, &rows, &err), err);
    for (int i = 0; i < g->n_node; i++) {
        size_t n = 4 * (size_t)graph_count(&g->node[i], &z);

        if (!g->node[i].output && !g->node[i].keep)
            continue;
        out = realloc(out, *size + n);
        assert_non_null(out);
        TEST_OK(pl_tensor_get(x, i, (char *)out + *size, 0, n, &err), err);
        *size += n;
    }
    pl_exec_free(x);
    return out;
}

static pl_options options(const char *devices, int n_rank, int n_thread)
{
    return (pl_options){.size = sizeof(pl_options),
                        .devices = devices,
                        .n_ranks = n_rank,
                        .n_threads = n_thread,
                        .no_pin = true,
                        .cpu = "reference",
                        .n_ubatch = MAX_TOK,
                        .n_out = 1};
}

static void scene(int s, int draw, uint64_t *seed)
{
    static const char *const devices[] = {"cpu",   "cpu*2", "cpu*3",
                                          "sim*2", "sim*3", "sim*5"};
    int n_rank = draw ? 1 + (int)test_below(seed, 8) : 2;
    bool exact = draw / 2 % 2 == 0;
    int64_t n_tok = 1 + test_below(seed, MAX_TOK);
    pl_graph *whole = read_scene(scenes[s].text);
    pl_graph *split = read_scene(scenes[s].text);
    uint64_t values = test_random(seed);
    pl_options o = options("cpu", 1, 1);
    size_t n, m;
    float *want, *got;

    split_leaves(split, n_rank, draw % 2 ? 0 : scenes[s].cut, draw == 0, seed);
    /* the sums are rounded, so only equal ranks give equal bits */
    if (scenes[s].sums && !exact) {
        o.n_ranks = n_rank;
        want = run(split, &o, values, exact, n_tok, &n);
    } else {
        want = run(whole, &o, values, exact, n_tok, &n);
    }
    for (int k = 0; k < 2; k++) {
        const char *d = devices[test_below(seed, 6)];

        o = options(d, n_rank, 1 + (int)test_below(seed, 2));
        o.split_mode = test_below(seed, 3) ? PL_SPLIT_TENSOR : PL_SPLIT_LAYER;
        o.sim_seed = test_random(seed);
        got = run(split, &o, values, exact, n_tok, &m);
        assert_int_equal(m, n);
        for (size_t i = 0; i < n / 4; i++)
            if (memcmp(got + i, want + i, 4))
                fail_msg("scene %d on %s, %d ranks: value %zu is %.9g, not "
                         "%.9g",
                         s, d, n_rank, i, (double)got[i], (double)want[i]);
        free(got);
    }
    free(want);
    pl_graph_free(whole);
    pl_graph_free(split);
}

TEST(exec_custom_split_equals_the_unsplit)
{
    uint64_t seed = test_seed();

    memset(seen, 0, sizeof seen);
    seen_groups = 0;
    for (int k = 0; k < test_draws(N_DRAW, 50 * N_DRAW); k++)
        for (int s = 0; s < N_SCENE; s++)
            scene(s, k, &seed);
    assert_true(seen_groups > 0);
    for (int k = 0; k < N_DEF; k++) {
        bool mix = !strcmp(defs[k].name, "mix");

        if (seen[k].split == 0 && !mix)
            fail_msg("%s was never split", defs[k].name);
        if (seen[k].through == 0 && (mix || !strcmp(defs[k].name, "times")))
            fail_msg("%s never let PARTIAL through", defs[k].name);
        if (seen[k].sum == 0 && !strcmp(defs[k].name, "dot"))
            fail_msg("%s was never summed over ranks", defs[k].name);
        if (seen[k].through && defs[k].partial == PL_OP_NONE)
            fail_msg("%s took a PARTIAL operand", defs[k].name);
    }
}

/* Whichever allocation fails, the call returns an error, and nothing is
 * leaked. */
TEST(exec_custom_survives_want_of_memory)
{
    const pl_options o = options("cpu*2", 3, 1);
    bool reached = true;

    for (int n = 1; reached; n++) {
        uint64_t seed = 7;
        pl_exec *x = NULL;
        pl_graph *g = NULL;
        pl_err err = {0};
        pl_status s;

        alloc_fail_at(n);
        s = pl_graph_parse_ops(&g, scenes[3].text, N_DEF, def_list, &err);
        if (s == PL_OK) {
            split_leaves(g, 3, scenes[3].cut, false, &seed);
            s = pl_graph_check(g, &err);
        }
        if (s == PL_OK)
            s = pl_exec_create(&x, g, &o, &err);
        reached = alloc_fail_off();
        if ((s == PL_OK) == reached ||
            (s != PL_OK && s != PL_NO_MEMORY && s != PL_NO_DEVICE_MEMORY))
            fail_msg("allocation %d: %s: %s", n, pl_status_name(s),
                     err.message);
        pl_exec_free(x);
        pl_graph_free(g);
    }
}

static uint64_t hash_of(const pl_op_def *def)
{
    const pl_dim dim[2] = {{1, PL_N_TOK}, {12, PL_CONST}};
    struct numeric *p;
    pl_graph *g;
    pl_tensor x;
    uint64_t h;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 2, dim);
    pl_output(g, pl_custom(g, def, 1, &x));
    assert_int_equal(numeric_create(&p, g, 2, NULL, NULL), PL_OK);
    h = p->hash;
    numeric_free(p);
    pl_graph_free(g);
    return h;
}

TEST(exec_custom_hash_tells_definitions_apart)
{
    float two = 2;
    pl_op_def def = {sizeof def, "times", "*->*", PL_OP_ONE | 1,
                     times_run,  &three,  0};
    uint64_t h = hash_of(&def);

    /* `user` does not change the hash, because pointers differ between
     * processes */
    def.user = &two;
    assert_true(hash_of(&def) == h);
    def.edition = 1;
    assert_true(hash_of(&def) != h);
    def.edition = 0;
    def.name = "time";
    assert_true(hash_of(&def) != h);
    def.name = "times";
    def.dims = "td->td";
    assert_true(hash_of(&def) != h);
    def.dims = "*->*";
    def.partial = PL_OP_NONE;
    assert_true(hash_of(&def) != h);
}

/* The ranks' results are summed once after the op, not before it for each
 * operand. */
TEST(exec_custom_is_passed_before_the_sum)
{
    static const char text[] =
        "x: f32[n_tok, 16] = input !want=split(1: 8{0} 8{1})\n"
        "w: f32[9, 16] = weight !want=split(1: 8{0} 8{1})\n"
        "v: f32[9, 16] = weight !want=split(1: 8{0} 8{1})\n"
        "p: f32[n_tok, 9] = matmul(x, w)\n"
        "q: f32[n_tok, 9] = matmul(x, v)\n"
        "y: f32[n_tok, 9] = both(p, q)\n"
        "z: f32[n_tok, 9] = relu(y) !output\n";
    pl_op_def def = {sizeof def, "both", "td,td->td", PL_OP_SUM, mix_run,
                     NULL,       0};
    const pl_op_def *const list = &def;

    for (int k = 0; k < 2; k++) {
        struct numeric *p;
        int n = 0, last = -1;
        pl_graph *g;

        def.partial = k ? PL_OP_SUM : PL_OP_NONE;
        assert_int_equal(pl_graph_parse_ops(&g, text, 1, &list, NULL), PL_OK);
        assert_int_equal(numeric_create(&p, g, 2, NULL, NULL), PL_OK);
        for (int i = 0; i < p->n; i++)
            if (p->node[i].kind == NUM_ALL_REDUCE) {
                last = p->node[i].node;
                n++;
            }
        assert_int_equal(n, k ? 1 : 2);
        assert_string_equal(pl_tensor_name(g, last), k ? "y" : "q");
        numeric_free(p);
        pl_graph_free(g);
    }
}
