/* Moves parts of a model that do not fit to the host: whole layers, or the
 * experts of some layers. It also makes the micro-batch smaller.
 *
 * A surrogate predicts the bytes and seconds of each such choice without
 * compiling it. It is made from two compiled plans of one mode: one with
 * everything on devices, one with everything on the host. From these it takes
 * the seconds and bytes of each layer, and sums them. There is a surrogate for
 * each mode and each set of shares that lacks memory. The choice with the least
 * predicted seconds is compiled, and corrects its surrogate. This ends when no
 * choice is predicted to be faster than the best plan that fits. */
#include "base/err.h"
#include "fit/fit_internal.h"

#include <math.h>
#include <string.h>

enum {
    MOST_FITTING = 3, /* compiled choices that fit */
    MOST_PLANS = 10,
    MOST_SHORTENED = 3,
};
/* A choice is compiled only if it is predicted to take at most this part of the
 * best plan's time. */
static const double worth = 0.98;

/* Steps with predicted seconds: one with each micro-batch (fit_ubatch), and one
 * of a single token. */
enum { ONE_TOKEN = FIT_N_UBATCH, N_STEP };

enum part { REST, EXPERTS, N_PART };
enum side { DEVICES, HOST, N_SIDE };

/* A layer, the output, or what comes before any layer. */
struct row {
    double s[N_SIDE][N_PART][N_STEP]; /* seconds on devices, on the host */
    double bytes[N_PART];             /* on all devices together */
};

/* The last n_on layers stay on devices, except for the experts of the first
 * n_experts layers of the model. */
struct choice {
    int n_on, n_experts;
    int ubatch;     /* number of the micro-batch (fit_ubatch) */
    double seconds; /* predicted; INFINITY if there is no choice */
};

/* Corrections by compiled choices. */
struct learned {
    double *extra; /* [n_dev + 1] bytes that a device held beyond its predicted
                      bytes. Most of them are buffers, which are smaller if the
                      micro-batch is smaller than n_ubatch. */
    int64_t n_ubatch;
    double slower; /* compiled seconds divided by predicted seconds */
};

/* Arrays [n_dev + 1] have an element for each device that options name, and one
 * for the host. In all functions below, k is a surrogate, r a choice. */
struct surrogate {
    struct fit *f;
    const struct fit_candidate *base; /* the plan with everything on devices */
    int n_layer, n_row, n_dev;
    struct row *row; /* [n_row] layers, the output, what comes before */
    double *share;   /* [n_row, n_dev] part of each row's bytes that a device
                        holds, for the number of layers set by find_shares */
    double *buffers; /* [n_dev + 1] bytes for the largest micro-batch */
    double *room;    /* [n_dev + 1] bytes available; INFINITY if unknown */
    double link_s, link_bytes_per_s; /* of a copy between device and host */
    double copy_bytes;               /* bytes of one token in such a copy */
    double pipelined; /* seconds of a prompt divided by those of its steps */
    struct learned learned[2]; /* without, and with, experts on the host */
    /* [n_row, n_row, FIT_N_UBATCH] compiled choices: by n_on, n_experts,
     * micro-batch */
    bool *tried;
};

/* ---- making a surrogate -------------------------------------------------- */

/* Returns the row of an instruction's node; -1 if there is none. Sets *part.
 * `row` is the row of the instruction before, which is also the result for an
 * instruction without a node. */
static int row_of(const struct surrogate *k, int node, int row, enum part *part)
{
    const struct graph_node *x;

    *part = REST;
    if (node < 0)
        return row;
    x = &k->f->asked.g->node[node];
    if (x->op == OP_expert_matmul || x->op == OP_expert_down)
        *part = EXPERTS;
    if (x->layer >= 0)
        return x->layer;
    return row <= k->n_layer && row >= 0 ? k->n_layer : row;
}

/* Sets the seconds of all rows on one side to those of the device that takes
 * longest in plan q. */
static pl_status add_seconds(struct surrogate *k, const struct compiled *q,
                             enum side side, pl_err *err)
{
    size_t n = (size_t)k->n_row;
    double(*sum)[N_PART][N_STEP] = arena_alloc(&k->f->arena, n, sizeof *sum);
    struct cost_rates *r;
    struct cost_machine m = {.n_dev = q->list.n, .prog = q->low->prog};

    if (!sum)
        return err_no_memory(err, "an estimate");
    PL_TRY(fit_rates(k->f, q, &r, err));
    m.rates = r;
    for (int d = 0; d < q->list.n; d++) {
        const struct variant *x = &q->low->prog[d].variant[0];
        int row = k->n_layer + 1;

        memset(sum, 0, n * sizeof *sum);
        for (int i = 0; i < x->n_insn; i++) {
            enum part part;

            row = row_of(k, x->insn[i].node, row, &part);
            for (int step = 0; step < N_STEP; step++) {
                int64_t n_ubatch =
                    step == ONE_TOKEN ? 1 : fit_ubatch(&k->base->in, step);
                struct cost_micro z = {graph_sizes_of(&q->max, n_ubatch, 1, 1),
                                       0};

                if (x->insn[i].max_rows == 0 ||
                    insn_predicate_holds(&x->insn[i], &z.sizes))
                    sum[row][part][step] += cost_insn_s(&m, d, &x->insn[i], &z);
            }
        }
        for (size_t l = 0; l < n; l++)
            for (int part = 0; part < N_PART; part++)
                for (int step = 0; step < N_STEP; step++) {
                    double *to = &k->row[l].s[side][part][step];

                    *to = fmax(*to, sum[l][part][step]);
                }
    }
    if (side == DEVICES) {
        k->link_s = r[0].collective_s;
        k->link_bytes_per_s = r[0].link_bytes_per_s;
    }
    return PL_OK;
}

static double stored(const struct program *p, int tensor)
{
    return tensor < 0 ? 0 : (double)((p->tensor[tensor].bytes + 63) / 64 * 64);
}

/* Sets the bytes of all rows to those of their weights and caches. */
static void add_bytes(struct surrogate *k, const struct compiled *q)
{
    for (int i = 0; i < q->num->n; i++) {
        const struct graph_node *x = &q->g->node[q->num->node[i].node];
        int row = x->layer;
        enum part part = graph_is_experts(x) ? EXPERTS : REST;

        if (row < 0)
            row = q->home[q->num->node[i].node] ==
                          q->place.layer_group[k->n_layer]
                      ? k->n_layer
                      : k->n_layer + 1;
        if (x->role == PL_ROLE_TOKEN_EMBD) {
            k->copy_bytes = 4 * (double)x->dim[1].n;
            row = k->n_layer + 1;
        }
        for (const struct lowered_placed *h = lowered_stored(q->low, i); h;
             h = h->next)
            for (int u = 0; u < q->low->group[h->group].n; u++) {
                int d = q->low->shard[q->low->group[h->group].first + u].dev;
                const struct program *prog = &q->low->prog[d];

                k->row[row].bytes[part] +=
                    stored(prog, h->v[u].tensor) + stored(prog, h->v[u].plain);
            }
    }
}

/* Returns the bytes of device x that a plan may use. Predictions are a little
 * below what plans need, so a small part is left for the difference. */
static double room(const struct fit *f, const struct device_desc *x)
{
    uint64_t has = fit_memory(f, x);

    if (has == 0)
        return INFINITY;
    return (double)has * (1 - 1. / 128) - (double)fit_margin(f, x);
}

/* Adds the buffers and the memory of device d of a plan to element `to`. The
 * memory is less that of a block, which no choice changes. */
static void add_device(struct surrogate *k, const struct fit_candidate *p,
                       int d, int to)
{
    const struct program *prog = &p->q->low->prog[d];

    uint64_t own = p->need[0][d];

    k->buffers[to] +=
        (double)(own - prog->bytes[REGION_WEIGHTS] - prog->bytes[REGION_CACHE]);
    k->room[to] +=
        room(k->f, &p->q->list.dev[d]) - (double)(fit_needs(k->f, p)[d] - own);
}

static pl_status make(struct surrogate *k, struct fit *f,
                      const struct fit_candidate *devices,
                      const struct fit_candidate *host, pl_err *err)
{
    struct arena *a = &f->arena;
    int n_row = f->asked.n_layer + 2;
    size_t n = (size_t)f->asked.list.n + 1;
    double sum = 0;

    *k = (struct surrogate){
        .f = f,
        .base = devices,
        .n_layer = f->asked.n_layer,
        .n_row = n_row,
        .n_dev = f->asked.list.n,
        .row = arena_alloc(a, (size_t)n_row, sizeof *k->row),
        .share = arena_alloc(a, (size_t)n_row * n, sizeof(double)),
        .buffers = arena_alloc(a, n, sizeof(double)),
        .room = arena_alloc(a, n, sizeof(double)),
        .copy_bytes = 4 * 4096,
        .pipelined = 1,
        .learned = {{arena_alloc(a, n, sizeof(double)), 1, 1},
                    {arena_alloc(a, n, sizeof(double)), 1, 1}},
        .tried = arena_alloc(a, (size_t)n_row * (size_t)n_row, FIT_N_UBATCH),
    };
    PL_TRY(arena_check(a, "an estimate", err));
    PL_TRY(add_seconds(k, devices->q, DEVICES, err));
    PL_TRY(add_seconds(k, host->q, HOST, err));
    add_bytes(k, devices->q);
    for (int d = 0; d < k->n_dev; d++)
        add_device(k, devices, d, d);
    for (int d = k->n_dev; d < compiled_devices(host->q); d++)
        add_device(k, host, d, k->n_dev);
    for (int l = 0; l < k->n_row; l++)
        for (int part = 0; part < N_PART; part++)
            sum += k->row[l].s[DEVICES][part][0];
    if (devices->prompt_s > 0 && sum > 0)
        k->pipelined = fmin(
            1, devices->prompt_s /
                   (sum * ceil(FIT_PROMPT / (double)devices->in.n_ubatch)));
    return PL_OK;
}

/* ---- predictions --------------------------------------------------------- */

/* Sets k->share for n_on layers on devices. */
static pl_status find_shares(struct surrogate *k, int n_on, pl_err *err)
{
    struct arena a = {0};
    struct plan_config x = k->base->in;
    struct placement p;
    struct device_list list;
    pl_status s = device_list_copy(&list, &x.list, err);

    x.n_on = n_on;
    if (s == PL_OK)
        s = place_groups(&p, &a, &list, &x, err);
    memset(k->share, 0, (size_t)k->n_row * (size_t)k->n_dev * sizeof *k->share);
    for (int l = 0; l < k->n_row && s == PL_OK; l++) {
        const struct place_group *g =
            &p.group[l > k->n_layer ? p.input_group : p.layer_group[l]];
        double all = 0;

        for (int r = 0; r < p.n_rank; r++)
            all += p.share[r];
        for (int i = 0; i < g->n; i++) {
            const struct place_member *m = &p.member[g->first + i];

            for (int r = m->rank0; r < m->rank0 + m->n_rank; r++)
                if (m->dev < k->n_dev)
                    k->share[l * k->n_dev + m->dev] += p.share[r] / all;
        }
    }
    device_list_free(&list);
    arena_fini(&a);
    return s;
}

/* Returns true if row l is on devices. What comes before any layer is where the
 * first layer is. */
static bool on_devices(const struct surrogate *k, int l, int n_on)
{
    return (l > k->n_layer ? 0 : l) > k->n_layer - n_on;
}

/* Returns the bytes that device d, or the host if d is n_dev, holds. */
static double bytes_of(const struct surrogate *k, const struct choice *r, int d)
{
    double part = (double)fit_ubatch(&k->base->in, r->ubatch) /
                  (double)k->base->in.n_ubatch;
    double all = k->buffers[d] * part;

    for (int l = 0; l < k->n_row; l++) {
        const double *b = k->row[l].bytes;
        bool on = on_devices(k, l, r->n_on), away = !on || l < r->n_experts;

        if (d < k->n_dev)
            all += k->share[l * k->n_dev + d] *
                   ((on ? b[REST] : 0) + (away ? 0 : b[EXPERTS]));
        else
            all += (on ? 0 : b[REST]) + (away ? b[EXPERTS] : 0);
    }
    return all;
}

static bool fits(const struct surrogate *k, const struct choice *r)
{
    const struct learned *y = &k->learned[r->n_experts > 0];
    double n_ubatch = (double)fit_ubatch(&k->base->in, r->ubatch);
    double part = fmin(1, n_ubatch / (double)y->n_ubatch);
    bool host = r->n_on <= k->n_layer || r->n_experts > 0;

    for (int d = host ? k->n_dev : k->n_dev - 1; d >= 0; d--)
        if (bytes_of(k, r, d) + part * y->extra[d] > k->room[d])
            return false;
    return true;
}

/* Returns the seconds of a step of n tokens. `step` is its index in row.s. */
static double step_seconds(const struct surrogate *k, const struct choice *r,
                           int step, double n)
{
    double copy = k->link_s + n * k->copy_bytes / k->link_bytes_per_s;
    double part = step == ONE_TOKEN ? 1 : k->pipelined, dev = 0, host = 0;
    bool was_on_devices = on_devices(k, 0, r->n_on);

    for (int l = 0; l < k->n_row; l++) {
        const struct row *x = &k->row[l];
        double host_rest = x->s[HOST][REST][step];
        double host_experts = x->s[HOST][EXPERTS][step];
        double dev_rest = x->s[DEVICES][REST][step];
        double dev_experts = x->s[DEVICES][EXPERTS][step];
        bool on = on_devices(k, l, r->n_on);

        if (l <= k->n_layer && on != was_on_devices)
            host += copy;
        was_on_devices = l <= k->n_layer ? on : was_on_devices;
        if (!on) {
            host += host_rest + host_experts;
        } else if (l >= r->n_experts || !(x->bytes[EXPERTS] > 0)) {
            dev += dev_rest + dev_experts;
        } else {
            double away = host_experts + 2 * copy;
            double streamed =
                x->bytes[EXPERTS] / k->link_bytes_per_s + dev_experts;

            dev += dev_rest;
            host += step == ONE_TOKEN ? away : fmin(away, streamed);
        }
    }
    return dev * part + host;
}

static double seconds(const struct surrogate *k, const struct choice *r)
{
    double n_prompt = fmin((double)k->f->default_config.n_ctx, FIT_PROMPT);
    double n_ubatch = (double)fit_ubatch(&k->base->in, r->ubatch);

    return k->learned[r->n_experts > 0].slower *
           (ceil(n_prompt / n_ubatch) *
                step_seconds(k, r, r->ubatch, fmin(n_ubatch, n_prompt)) +
            FIT_ANSWER * step_seconds(k, r, ONE_TOKEN, 1));
}

/* ---- choosing ------------------------------------------------------------ */

static bool *tried(const struct surrogate *k, const struct choice *r)
{
    return &k->tried[(r->n_on * k->n_row + r->n_experts) * FIT_N_UBATCH +
                     r->ubatch];
}

/* Replaces *best by the fastest choice of k that fits and was not compiled yet,
 * if that is faster. Returns its surrogate in *of then. */
static pl_status improve(struct surrogate *k, struct choice *best,
                         struct surrogate **of, pl_err *err)
{
    const struct fit *f = k->f;
    int n_on = k->base->in.n_on, n_ubatch = f->may.ubatch ? FIT_N_UBATCH : 1;

    for (int on = n_on; on >= (f->may.layers ? 0 : n_on); on--) {
        int first = k->n_layer + 1 - on; /* layers before are on the host */
        int last = f->may.experts && on > 0 ? k->n_layer : first;

        PL_TRY(find_shares(k, on, err));
        for (int u = 0; u < n_ubatch; u++)
            for (int e = first; e <= last; e++) {
                struct choice r = {on, e > first ? e : 0, u, INFINITY};

                if (*tried(k, &r) || !fits(k, &r))
                    continue;
                r.seconds = seconds(k, &r);
                if (r.seconds < best->seconds) {
                    *best = r;
                    *of = k;
                }
            }
    }
    return PL_OK;
}

/* Sets *out to the plan config of a choice. */
static pl_status config_of(const struct surrogate *k, const struct choice *r,
                           struct plan_config *out, pl_err *err)
{
    bool *on;

    *out = k->base->in;
    out->n_on = r->n_on;
    out->n_ubatch = fit_ubatch(&k->base->in, r->ubatch);
    if (r->n_experts == 0)
        return PL_OK;
    out->experts = on =
        arena_alloc(&k->f->arena, (size_t)k->n_layer + 1, sizeof *on);
    if (!on)
        return err_no_memory(err, "the placement of experts");
    memset(on, true, (size_t)r->n_experts);
    return PL_OK;
}

/* Corrects the predictions by the compiled choice p. A device and those that it
 * shares memory with count together. */
static pl_status learn(struct surrogate *k, const struct choice *r,
                       const struct fit_candidate *p, pl_err *err)
{
    struct learned *y = &k->learned[r->n_experts > 0];
    double host = 0;

    PL_TRY(find_shares(k, r->n_on, err));
    y->n_ubatch = fit_ubatch(&k->base->in, r->ubatch);
    y->slower *= p->seconds / r->seconds;
    for (int d = 0; d < compiled_devices(p->q); d++) {
        int64_t lack = fit_lacks(k->f, p, d);
        double held = lack == INT64_MIN
                          ? 0
                          : room(k->f, &p->q->list.dev[d]) + (double)lack;

        if (d >= k->n_dev)
            host += held;
        else if (held > 0)
            y->extra[d] = held - bytes_of(k, r, d);
    }
    if (host > 0)
        y->extra[k->n_dev] = host - bytes_of(k, r, k->n_dev);
    return PL_OK;
}

static pl_status try_choices(struct fit *f, struct surrogate *k, int n,
                             pl_err *err)
{
    for (int i = 0, fitting = 0; i < MOST_PLANS && fitting < MOST_FITTING;
         i++) {
        struct surrogate *of = NULL;
        struct choice r = {.seconds = INFINITY};
        struct fit_candidate *p;
        struct plan_config in;
        pl_status s;

        for (int c = 0; c < n; c++)
            PL_TRY(improve(&k[c], &r, &of, err));
        if (!of || (f->best && r.seconds > worth * f->best->seconds))
            break;
        *tried(of, &r) = true;
        PL_TRY(config_of(of, &r, &in, err));
        PL_TRY(candidate_try(f, &in, &p, err));
        fitting += p && p->missing == 0;
        s = p ? learn(of, &r, p, err) : PL_OK;
        fit_unref(p);
        PL_TRY(s);
    }
    return PL_OK;
}

/* Compiles the fastest plans that lack memory again, with the shortest context
 * that will do. */
static pl_status shrink_context(struct fit *f, pl_err *err)
{
    struct fit_candidate *before[FIT_MAX_OVERSIZED];
    int n = f->n_lack;
    pl_status s = PL_OK;

    memcpy(before, f->oversized, sizeof before);
    f->n_lack = 0;
    for (int i = 0; i < n; i++) {
        struct plan_config x = before[i]->in;
        struct fit_candidate *p = NULL;

        x.n_ctx = f->ctx_least;
        if (s == PL_OK && i < MOST_SHORTENED)
            s = candidate_try(f, &x, &p, err);
        if (p && p->missing > 0)
            fit_keep_oversized(f, p);
        fit_unref(p);
        fit_unref(before[i]);
    }
    return s;
}

pl_status fit_spill(struct fit *f, pl_err *err)
{
    struct surrogate k[FIT_MAX_OVERSIZED];
    struct fit_candidate *h;
    struct plan_config host;
    pl_status s = PL_OK;

    if (f->n_lack == 0 ||
        (f->best && f->best->seconds <= f->oversized[0]->seconds))
        return PL_OK;
    if (f->may.ctx && !f->best)
        PL_TRY(shrink_context(f, err));
    if (f->n_lack == 0)
        return PL_OK;
    host = f->oversized[0]->in;
    host.n_on = 0;
    host.experts = NULL;
    PL_TRY(f->may.layers ? candidate_try(f, &host, &h, err)
                         : candidate_compile(f, &host, &h, err));
    if (!h)
        return PL_OK;
    for (int i = 0; i < f->n_lack && s == PL_OK; i++)
        s = make(&k[i], f, f->oversized[i], h, err);
    if (s == PL_OK)
        s = try_choices(f, k, f->n_lack, err);
    fit_unref(h);
    return s;
}
