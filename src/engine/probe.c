/* How fast this machine's threads are: a few small graphs run on them, through
 * the same executor as the model, so that threads, barriers, messages and
 * memory cost what they will cost.
 *
 * Each experiment finds one rate: the graph's cost is linear in it once the
 * others are known, so what was measured beyond the known part, divided by how
 * often the rate counts, is the rate. The order is: a run, its steps; values;
 * weights of each format under one token and under many; messages; attention.
 * Threads are taken to be alike: a device has as many times a rate as it has
 * threads. Nothing here decides a bit. */
#include "engine/probe.h"

#include "exec/exec.h"

#include "base/err.h"
#include "device/team.h"
#include "program/cache_tile.h"
#include "quant/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MANY = 128, /* tokens of the experiments with many */
    MAX_RUN = 200,
    MAX_CORE = 4096,
    LEAST_RUNS = 5,
    ENOUGH_RUNS = 8,
    D_WIDE = 1024,
    D_FF = 2048, /* of layers that are read from memory */
    D_SMALL = 256,
    D_HEAD = 64,
    N_SLOT = 256,
    SMALL_LAYERS = 12, /* of small matrices */
};
/* An experiment takes the first, on a busy machine up to the second, until it
 * has been run often enough; a long one is run a few times all the same. */
static const double slot_s = 8e-3, most_s = 24e-3;

/* What copies move: more than the caches of a core. */
static const size_t copied_bytes = (size_t)32 << 20;

struct probe {
    enum cpu_family family;
    bool no_pin;
    pl_options opt;
    clockid_t clock;
    int n_dev, n_thread; /* in all */
    double share[DEVICE_MAX];
    struct cost_rates one; /* of one thread */
    struct cost_rates dev[DEVICE_MAX];
    pl_err *err;
};

/* Experiments ------------------------------------------------------------ */

struct trial {
    struct probe *p;
    pl_graph *g;
    struct compiled *compiled;
    pl_exec *x;
};

static void trial_end(struct trial *t)
{
    pl_exec_free(t->x);
    compiled_free(t->compiled);
    pl_graph_free(t->g);
}

/* Bytes that make a format's scales and values numbers like a model's. Products
 * near the least that a float can be take many times as long. */
static int harmless(const pl_graph *g)
{
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_weight &&
            format_info(g->node[i].format)->block == 1)
            return 0x3c;
    return 0x11;
}

/* Plans the graph and fills weights and inputs with small numbers: memory that
 * was never written would be read from one page. */
static pl_status trial_start(struct trial *t)
{
    struct probe *p = t->p;
    const struct compiled *q;
    union {
        float f;
        int32_t i;
    } * fill;
    int64_t most = 1;
    pl_status s = compile_graph(&t->compiled, t->g, &p->opt, p->err);

    if (s == PL_OK)
        s = exec_create(&t->x, t->compiled, &p->opt, p->err);
    if (s != PL_OK)
        return s;
    q = t->compiled;
    for (int d = 0; d < q->list.n; d++) {
        size_t n = q->low->prog[d].bytes[REGION_WEIGHTS];
        void *w = n ? device_map(t->x->set, d, REGION_WEIGHTS) : NULL;

        if (w)
            memset(w, harmless(t->g), n);
    }
    for (int i = 0; i < t->g->n_node; i++)
        if (t->g->node[i].op == OP_input &&
            graph_count(&t->g->node[i], &q->max) > most)
            most = graph_count(&t->g->node[i], &q->max);
    fill = malloc((size_t)most * sizeof *fill);
    if (!fill)
        return err_no_memory(p->err, "measuring devices");
    for (int i = 0; i < t->g->n_node && s == PL_OK; i++) {
        const struct graph_node *n = &t->g->node[i];
        int64_t count = graph_count(n, &q->max);

        if (n->op != OP_input)
            continue;
        for (int64_t k = 0; k < count; k++)
            if (n->format == PL_I32)
                fill[k].i = k % 2; /* both experts; any positions */
            else
                fill[k].f = 1;
        s = pl_tensor_set(t->x, i, fill, 0, 4 * (size_t)count, p->err);
    }
    free(fill);
    return s;
}

static double now(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Where each thread has a core of its own, the time that the caller's thread,
 * which is one of them, works or waits awake: what else a machine does is then
 * left out. Else the time that passes. */
static clockid_t clock_for(const struct device_list *l)
{
    unsigned char seen[MAX_CORE] = {0};
    int n_core = 0, n_thread = 0;

    for (int d = 0; d < l->n; d++) {
        if (!l->dev[d].on_cores)
            return CLOCK_MONOTONIC;
        n_thread += l->dev[d].n_thread;
        for (int i = 0; i < l->dev[d].n_core; i++) {
            int c = l->dev[d].core[i];

            if (c >= 0 && c < MAX_CORE && !seen[c]) {
                seen[c] = 1;
                n_core++;
            }
        }
    }
    return n_thread <= n_core ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
}

/* Least seconds of a run with n_tok tokens after n_past others: what else the
 * machine does only adds to it. */
static pl_status time_run(struct trial *t, int64_t n_tok, int64_t n_past,
                          double *seconds)
{
    int32_t pos[MANY], pages[N_SLOT / PAGE_TOKENS];
    pl_rows rows = {
        .size = sizeof rows,
        .n_tok = n_tok,
        .n_out = 1,
        .pos = pos,
        .pages = pages,
        .page_stride = N_SLOT / PAGE_TOKENS,
    };
    double start = now(CLOCK_MONOTONIC), end = start;
    enum { PATIENCE = 4 }; /* for what is kept */

    for (int i = 0; i < N_SLOT / PAGE_TOKENS; i++)
        pages[i] = i;
    for (int64_t i = 0; i < n_tok; i++)
        pos[i] = (int32_t)(n_past + i);
    *seconds = INFINITY;
    for (int n = 0; n < LEAST_RUNS ||
                    (n < MAX_RUN && end - start < most_s * PATIENCE &&
                     (n < ENOUGH_RUNS || end - start < slot_s * PATIENCE));
         n++) {
        double before = now(t->p->clock);

        PL_TRY(pl_exec_step(t->x, &rows, t->p->err));
        *seconds = fmin(*seconds, now(t->p->clock) - before);
        end = now(CLOCK_MONOTONIC);
    }
    return PL_OK;
}

static pl_status cost(struct trial *t, int64_t n_tok, int64_t n_past,
                      double *seconds)
{
    struct probe *p = t->p;
    const struct compiled *q = t->compiled;
    struct cost_machine m = {
        .n_dev = q->list.n, .prog = q->low->prog, .rates = p->dev};
    struct cost_micro z = {{n_tok, 1, N_SLOT, 1}, n_past};

    for (int d = 0; d < q->list.n; d++)
        rates_scale(&p->dev[d], &p->one, q->list.dev[d].n_thread);
    return cost_run(&m, 0, 1, &z, NULL, seconds, p->err);
}

/* A run, and what it costs beside the rate, which counts for nothing at `none`,
 * and once a count at 1. */
static pl_status weigh(struct trial *t, int64_t n_tok, int64_t n_past,
                       double *rate, double none, double *measured,
                       double *known, double *count)
{
    PL_TRY(time_run(t, n_tok, n_past, measured));
    *rate = none;
    PL_TRY(cost(t, n_tok, n_past, known));
    *rate = 1;
    PL_TRY(cost(t, n_tok, n_past, count));
    *count -= *known;
    return PL_OK;
}

/* The seconds that `rate` counts for once, from a measured run; never below
 * `least`. */
static pl_status solve_seconds(struct trial *t, int64_t n_tok, double *rate,
                               double least)
{
    double measured, known, count;

    PL_TRY(weigh(t, n_tok, 0, rate, 0, &measured, &known, &count));
    *rate = count > 0 ? fmax((measured - known) / count, least) : least;
    return PL_OK;
}

/* The same for what is given a second; a tenth of the run is its at least. */
static pl_status solve_rate(struct trial *t, int64_t n_tok, int64_t n_past,
                            double *rate)
{
    double measured, known, count;

    PL_TRY(weigh(t, n_tok, n_past, rate, INFINITY, &measured, &known, &count));
    *rate = count > 0 ? count / fmax(measured - known, measured / 10) : 1e18;
    return PL_OK;
}

/* Graphs ----------------------------------------------------------------- */

static pl_dim constant(int64_t n)
{
    return (pl_dim){n, PL_CONST};
}

static pl_tensor input(pl_graph *g, int64_t width)
{
    const pl_dim dim[2] = {{1, PL_N_TOK}, constant(width)};

    return pl_input(g, "x", PL_F32, 2, dim);
}

static pl_tensor weight(pl_graph *g, const char *kind, int i, pl_format f,
                        int64_t rows, int64_t k, pl_role role)
{
    const int64_t dim[2] = {rows, k};
    char name[32];

    snprintf(name, sizeof name, "blk.%d.%s", i, kind);
    return pl_weight(g, name, f, 2, dim, role);
}

/* n times what stands between matrices: norms of rows and heads, rope, gated
 * activations, a router, sums. */
static void values_graph(pl_graph *g, int64_t d, int n)
{
    const pl_dim n_tok = {1, PL_N_TOK};
    const pl_rope rope = {
        .size = sizeof rope, .n_rot = D_HEAD, .neox = true, .base = 10000};
    pl_tensor x = input(g, d), pos = pl_input(g, "pos", PL_I32, 1, &n_tok);

    for (int i = 0; i < n; i++) {
        pl_tensor h = pl_rms_norm(g, x, -1, 1e-6f), l, ids;

        l = pl_slice(g, h, 1, 0, 8);
        ids = pl_router_topk(g, l, -1, PL_GATING_SOFTMAX, 2, 0, 0);
        l = pl_router_weights(g, l, ids, PL_GATING_SOFTMAX, true, 1);
        h = pl_reshape(
            g, h, 3, (pl_dim[]){n_tok, constant(d / D_HEAD), constant(D_HEAD)});
        h = pl_rope_apply(g, pl_rms_norm(g, h, -1, 1e-6f), pos, -1, &rope);
        h = pl_reshape(g, h, 2, (pl_dim[]){n_tok, constant(d)});
        h = pl_mul(g, pl_swiglu(g, h, h), pl_slice(g, l, 1, 0, 1));
        x = pl_add(g, x, h);
    }
    pl_output(g, x);
}

/* Matrices up and down. */
static void layers_graph(pl_graph *g, pl_format f, int64_t d, int64_t ff, int n)
{
    pl_tensor x = input(g, d), h;

    for (int i = 0; i < n; i++) {
        h = pl_rms_norm(g, x, -1, 1e-6f);
        h = pl_matmul(g, h, weight(g, "up", i, f, ff, d, PL_ROLE_FFN_UP));
        h = pl_matmul(g, pl_silu(g, h),
                      weight(g, "down", i, f, d, ff, PL_ROLE_FFN_DOWN));
        x = pl_add(g, x, h);
    }
    pl_output(g, x);
}

/* Heads of attention: n_query read each of n_kv. */
struct heads {
    int64_t n_kv, n_query, d_k, d_v;
};

/* Of a model of middling size. */
static const struct heads usual_heads = {8, 4, 128, 128};

static void attention_graph(pl_graph *g, const struct heads *a)
{
    const pl_dim n_tok = {1, PL_N_TOK};
    const pl_dim n_head = constant(a->n_kv * a->n_query);
    pl_tensor x = pl_input(g, "q", PL_F32, 3,
                           (pl_dim[]){n_tok, n_head, constant(a->d_k)});
    pl_tensor k =
        pl_input(g, "k", PL_F32, 3,
                 (pl_dim[]){n_tok, constant(a->n_kv), constant(a->d_k)});
    pl_tensor v =
        pl_input(g, "v", PL_F32, 3,
                 (pl_dim[]){n_tok, constant(a->n_kv), constant(a->d_v)});

    k = pl_cache_write(
        g, pl_cache(g, "cache_k.0", PL_F16, a->n_kv, a->d_k, false), k);
    v = pl_cache_write(
        g, pl_cache(g, "cache_v.0", PL_F16, a->n_kv, a->d_v, true), v);
    pl_output(g, pl_attention(g, x, k, v, -1, 0.125f, 0, 0));
}

/* Rates ------------------------------------------------------------------ */

static pl_status start(struct trial *t, struct probe *p)
{
    *t = (struct trial){.p = p};
    return pl_graph_create(&t->g, p->err);
}

/* The seconds of values_graph at one number of tokens. */
static pl_status measure_values(struct probe *p, int64_t d, int n,
                                int64_t n_tok, double *rate, double least)
{
    struct trial t;
    pl_status s = start(&t, p);

    if (s == PL_OK) {
        values_graph(t.g, d, n);
        s = trial_start(&t);
    }
    if (s == PL_OK)
        s = solve_seconds(&t, n_tok, rate, least);
    trial_end(&t);
    return s;
}

static pl_status measure_steps(struct probe *p)
{
    PL_TRY(measure_values(p, D_HEAD, 1, 1, &p->one.run_s, 1e-7));
    PL_TRY(measure_values(p, D_SMALL, 16, 1, &p->one.step_s, 1e-8));
    return measure_values(p, D_WIDE, 4, MANY, &p->one.value_s, 1e-12);
}

/* A contraction takes the longer of reading and multiplying, so each rate is
 * found while the other counts nothing. */
static pl_status measure_few(struct probe *p, pl_format f)
{
    double guess;
    struct trial t;
    pl_status s = start(&t, p);

    if (s == PL_OK) { /* few weights, and under many tokens */
        layers_graph(t.g, f, D_WIDE / 2, D_WIDE, 1);
        s = trial_start(&t);
    }
    if (s == PL_OK)
        s = solve_rate(&t, 1, 0, &p->one.bytes_per_s[f]);
    guess = p->one.bytes_per_s[f];
    p->one.bytes_per_s[f] = INFINITY;
    if (s == PL_OK)
        s = solve_rate(&t, MANY, 0, &p->one.macs_per_s[f]);
    p->one.bytes_per_s[f] = guess;
    trial_end(&t);
    return s;
}

/* So many bytes that they come from memory. */
static pl_status measure_memory(struct probe *p, pl_format f, double bytes)
{
    const struct format_info *info = format_info(f);
    double layer = 2. * D_WIDE * D_FF / info->block * info->block_bytes;
    double macs = p->one.macs_per_s[f];
    struct trial t;
    pl_status s = start(&t, p);

    bytes = fmin(bytes, most_s * p->one.bytes_per_s[f] * p->n_thread);
    p->one.macs_per_s[f] = INFINITY;
    if (s == PL_OK) {
        layers_graph(t.g, f, D_WIDE, D_FF, 1 + (int)(bytes / layer));
        s = trial_start(&t);
    }
    if (s == PL_OK)
        s = solve_rate(&t, 1, 0, &p->one.bytes_per_s[f]);
    p->one.macs_per_s[f] = macs;
    trial_end(&t);
    return s;
}

/* What the format that is read fastest from caches gets where weights are more
 * than they hold: no other can be faster there. */
static pl_status measure_reads(struct probe *p, int fastest)
{
    double *rate = &p->one.bytes_per_s[fastest], in_cache = *rate;
    double *read = p->one.read_bytes_per_s, least = INFINITY;

    for (int i = 0; i < COST_READS; i++) {
        *rate = in_cache;
        PL_TRY(measure_memory(p, (pl_format)fastest, rates_read_bytes(i)));
        read[i] = least = fmin(least, *rate);
    }
    *rate = in_cache;
    return PL_OK;
}

/* All formats, in caches, and from memory. */
static pl_status measure_formats(struct probe *p)
{
    double *rate = p->one.bytes_per_s;
    int fastest = PL_F32;

    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        if (!format_info((pl_format)f)->pack)
            continue;
        PL_TRY(measure_few(p, (pl_format)f));
        fastest = rate[f] > rate[fastest] ? f : fastest;
    }
    PL_TRY(measure_reads(p, fastest));
    for (int f = 0; f < PL_FORMAT_COUNT; f++)
        if (!format_info((pl_format)f)->pack) {
            rate[f] = rate[PL_F32];
            p->one.macs_per_s[f] = p->one.macs_per_s[PL_F32];
        }
    return PL_OK;
}

/* Small matrices: what messages take, or on one device what steps with matrices
 * take beside the values. */
static pl_status measure_messages(struct probe *p, int64_t ff)
{
    struct trial t;
    pl_status s = start(&t, p);

    if (s == PL_OK) {
        layers_graph(t.g, PL_Q8_0, D_SMALL, ff, SMALL_LAYERS);
        s = trial_start(&t);
    }
    if (s == PL_OK && p->n_dev == 1)
        s = solve_seconds(&t, 1, &p->one.step_s, p->one.step_s);
    else if (s == PL_OK) {
        p->one.link_bytes_per_s = INFINITY;
        s = solve_seconds(&t, 1, &p->one.message_s, 1e-7);
        if (s == PL_OK)
            s = solve_rate(&t, MANY, 0, &p->one.link_bytes_per_s);
    }
    trial_end(&t);
    return s;
}

static pl_status measure_heads(struct probe *p, const struct heads *a)
{
    struct trial t;
    pl_status s = start(&t, p);

    if (s == PL_OK) {
        attention_graph(t.g, a);
        s = trial_start(&t);
    }
    if (s == PL_OK) /* the pages hold what a prompt left there */
        s = solve_rate(&t, MANY, N_SLOT / 2, &p->one.attention_many);
    if (s == PL_OK)
        s = solve_rate(&t, 1, N_SLOT - 1, &p->one.attention_one);
    trial_end(&t);
    return s;
}

/* A score takes score_s and the multiply-adds of a head's width: from the rates
 * of heads of w_wide and of w_narrow, as if it took only these. */
static void part_scores(double *rate, double *score_s, double w_wide,
                        double narrow, double w_narrow)
{
    double wide_s = w_wide / *rate, narrow_s = w_narrow / narrow;
    double mac_s = (wide_s - narrow_s) / (w_wide - w_narrow);

    *score_s = narrow_s - mac_s * w_narrow;
    if (mac_s > 0 && *score_s > 0)
        *rate = 1 / mac_s;
    else
        *score_s = 1e-15; /* next to nothing */
}

/* Wide heads, and narrow ones. */
static pl_status measure_attention(struct probe *p)
{
    struct heads a = usual_heads;
    struct cost_rates *r = &p->one;
    double one, many, wide = (double)(a.d_k + a.d_v);

    PL_TRY(measure_heads(p, &a));
    one = r->attention_one;
    many = r->attention_many;
    a.d_k = a.d_v = D_HEAD / 2;
    PL_TRY(measure_heads(p, &a));
    part_scores(&one, &r->score_one_s, wide, r->attention_one, D_HEAD);
    part_scores(&many, &r->score_many_s, wide, r->attention_many, D_HEAD);
    r->attention_one = one;
    r->attention_many = many;
    return PL_OK;
}

struct copying {
    char *from, *to; /* [n][copied_bytes / n] */
    int n;
};

static void copy_part(void *user, int member)
{
    const struct copying *c = user;
    size_t part = copied_bytes / (size_t)c->n, at = part * (size_t)member;

    memcpy(c->to + at, c->from + at, part);
}

/* Bytes a second that each of the threads copies. */
static pl_status measure_copies(struct probe *p)
{
    int n = p->n_thread;
    int *core = malloc((size_t)n * sizeof *core);
    struct copying c = {malloc(copied_bytes), malloc(copied_bytes), n};
    struct team *team = NULL;
    double least = INFINITY;
    pl_status s = PL_NO_MEMORY;

    for (int i = 0; core && i < n; i++)
        core[i] = -1;
    if (core && c.from && c.to)
        s = team_create(&team, n, core, n, p->err);
    else
        err_no_memory(p->err, "measuring devices");
    for (int i = 0; i < 8 && s == PL_OK; i++) { /* the first finds no pages */
        double before = now(p->clock);

        memset(c.from, i, i == 0 ? copied_bytes : 1);
        team_run(team, copy_part, &c);
        if (i > 0)
            least = fmin(least, now(p->clock) - before);
    }
    if (s == PL_OK)
        p->one.copy_bytes_per_s = (double)copied_bytes / least / n;
    team_free(team);
    free(c.from);
    free(c.to);
    free(core);
    return s;
}

/* Graphs run on these devices from now on. */
static pl_status aim(struct probe *p, const char *devices, int n_threads)
{
    struct device_list l = {0};
    pl_status s = device_parse(&l, devices, n_threads, p->err);

    if (s == PL_OK) {
        p->clock = clock_for(&l);
        p->n_dev = l.n;
        p->n_thread = 0;
        for (int d = 0; d < l.n; d++) {
            p->share[d] = l.dev[d].n_thread;
            p->n_thread += l.dev[d].n_thread;
        }
        p->opt = (pl_options){
            .size = sizeof p->opt,
            .devices = devices,
            .split_mode = PL_SPLIT_TENSOR,
            .n_threads = n_threads,
            .no_pin = p->no_pin,
            .cpu = cpu_family_name(p->family),
            .tensor_split = p->share,
            .n_tensor_split = l.n,
            .n_ubatch = MANY,
            .n_ctx = N_SLOT,
            .n_seq = 1,
            .n_ranks = l.n > PL_MAX_RANKS ? PL_MAX_RANKS : 0,
        };
    }
    device_list_free(&l);
    return s;
}

/* Messages are of two devices with half of the threads each. Both have matrices
 * as small as one alone had before, and read them from caches: what is new are
 * the messages. */
static pl_status measure(struct probe *p, int n_thread)
{
    PL_TRY(aim(p, "cpu*1", n_thread));
    PL_TRY(measure_steps(p));
    PL_TRY(measure_formats(p));
    PL_TRY(measure_messages(p, 2 * D_SMALL));
    PL_TRY(measure_attention(p));
    PL_TRY(measure_copies(p));
    PL_TRY(aim(p, "cpu*2", n_thread > 1 ? n_thread / 2 : 1));
    return measure_messages(p, 4 * D_SMALL);
}

pl_status probe_threads(struct cost_rates *one, enum cpu_family f, bool no_pin,
                        int n_thread, pl_err *err)
{
    struct probe *p = calloc(1, sizeof *p);
    pl_status s;

    if (!p)
        return err_no_memory(err, "measuring devices");
    p->family = f;
    p->no_pin = no_pin;
    p->err = err;
    for (int k = 0; k < PL_FORMAT_COUNT; k++)
        p->one.bytes_per_s[k] = p->one.macs_per_s[k] = INFINITY;
    p->one.attention_one = p->one.attention_many = INFINITY;
    p->one.link_bytes_per_s = p->one.copy_bytes_per_s = INFINITY;
    p->one.one_queue = true;
    s = measure(p, n_thread);
    if (s == PL_OK)
        *one = p->one;
    free(p);
    return s;
}
