/* Sums over layers in place of plans. */
#include "fit/fit_surrogate.h"

#include "base/err.h"
#include "cost/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Steps whose seconds are summed: one with each micro-batch that may be tried
 * (fit_ubatch), and one of a single token. */
enum { ONE_TOKEN = FIT_N_UBATCH, N_STEP };

/* A layer is a row; so are the output and what comes before any layer. Of each
 * there is what experts do, and the rest. */
enum part { REST, EXPERTS, N_PART };

struct row {
    double dev_s[N_PART][N_STEP], host_s[N_PART][N_STEP];
    double bytes[N_PART]; /* over all devices */
};

/* Compiled, and not to be proposed again. */
struct tried {
    struct spill_choice r;
    struct tried *next;
};

/* What was learned from compiled plans, of those without and of those with
 * experts away from their layers. */
struct learned {
    double *extra; /* [n_dev + 1] bytes that the devices, then the host, held
                      beyond what was summed. Mostly buffers: less in smaller
                      micro-batches than n_ubatch */
    int64_t n_ubatch;
    double slower; /* seconds of a plan to those that were summed */
};

/* k in all functions below. */
struct fit_surrogate {
    struct fit *f;
    const struct fit_candidate *base; /* the plan with everything on devices */
    int n_layer, n_dev;
    struct row *row;   /* [n_layer + 2]: layers, the output, what is before */
    double *buffers;   /* [n_dev] bytes with the largest micro-batch */
    double host_bytes; /* of the host's buffers */
    double host_room;  /* bytes that the host may hold; INFINITY: not known */
    double link_s, link_bytes_per_s; /* of a copy between device and host */
    double copy_bytes;               /* of one token in such a copy */
    double pipelined; /* part of the sum of steps that a prompt takes */
    struct learned learned[2]; /* see there */
    struct tried *tried;
};

static const struct learned *learned_of(const struct fit_surrogate *k,
                                        const struct spill_choice *r)
{
    return &k->learned[r->n_experts > 0];
}

/* ---- learning ------------------------------------------------------------ */

/* The row and part of a step's node, which is -1 if it has none. `row` is that
 * of the step before. */
static int row_of(const struct fit_surrogate *k, int node, int row,
                  enum part *part)
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

/* A row's seconds are those of the device that takes longest. */
static pl_status add_seconds(struct fit_surrogate *k, const struct compiled *q,
                             bool host, pl_err *err)
{
    size_t n = (size_t)k->n_layer + 2;
    struct cost_rates *r = calloc((size_t)q->list.n, sizeof *r);
    double(*sum)[N_PART][N_STEP] = malloc(n * sizeof *sum);
    struct cost_machine m = {
        .n_dev = q->list.n, .prog = q->low->prog, .rates = r};
    struct rates_basis basis;
    pl_status s = PL_OK;

    if (!r || !sum)
        s = err_no_memory(err, "an estimate");
    if (s == PL_OK)
        s = rates_known(q, k->f->calibrated ? &k->f->cal : NULL, r, &basis,
                        err);
    for (int d = 0; d < q->list.n && s == PL_OK; d++) {
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

                if (x->insn[i].max_rows > 0 &&
                    !insn_predicate_holds(&x->insn[i], &z.sizes))
                    continue;
                sum[row][part][step] += cost_insn_s(&m, d, &x->insn[i], &z);
            }
        }
        for (size_t l = 0; l < n; l++)
            for (int part = 0; part < N_PART; part++)
                for (int step = 0; step < N_STEP; step++) {
                    double *to = host ? &k->row[l].host_s[part][step]
                                      : &k->row[l].dev_s[part][step];

                    *to = fmax(*to, sum[l][part][step]);
                }
    }
    if (s == PL_OK && !host) {
        k->link_s = r[0].collective_s;
        k->link_bytes_per_s = r[0].link_bytes_per_s;
    }
    free(sum);
    free(r);
    return s;
}

static double stored(const struct program *p, int tensor)
{
    return tensor < 0 ? 0 : (double)((p->tensor[tensor].bytes + 63) / 64 * 64);
}

static void add_bytes(struct fit_surrogate *k, const struct compiled *q)
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

static double buffers(const struct compiled *q, int d)
{
    const struct program *p = &q->low->prog[d];

    return (double)(program_buffers(p) +
                    device_scratch_bytes(&q->list.dev[d], q->kernel_set, p));
}

static double room(const struct fit *f, const struct device_desc *x)
{
    uint64_t has = fit_memory(f, x);

    if (has == 0)
        return INFINITY;
    /* sums are near what is held: a little is left for what they miss */
    return (double)has * (1 - 1. / 128) - (double)fit_margin(f, x);
}

/* What the host holds beside weights and caches. */
static void count_host(struct fit_surrogate *k, const struct compiled *q)
{
    k->host_room = 0;
    for (int d = k->n_dev; d < compiled_devices(q); d++) {
        k->host_bytes += buffers(q, d);
        k->host_room += room(k->f, &q->list.dev[d]);
    }
}

pl_status fit_sketch_make(struct fit_surrogate **out, struct fit *f,
                          const struct fit_candidate *devices,
                          const struct fit_candidate *host, pl_err *err)
{
    struct fit_surrogate *k = arena_alloc(&f->arena, 1, sizeof *k);
    double sum = 0;

    *out = k;
    if (!k)
        return err_no_memory(err, "an estimate");
    *k = (struct fit_surrogate){.f = f,
                                .base = devices,
                                .n_layer = f->asked.n_layer,
                                .n_dev = f->asked.list.n,
                                .copy_bytes = 4 * 4096,
                                .learned = {{NULL, 1, 1}, {NULL, 1, 1}}};
    k->row = arena_alloc(&f->arena, (size_t)k->n_layer + 2, sizeof *k->row);
    k->buffers = arena_alloc(&f->arena, (size_t)k->n_dev, sizeof(double));
    for (int i = 0; i < 2; i++)
        k->learned[i].extra =
            arena_alloc(&f->arena, (size_t)k->n_dev + 1, sizeof(double));
    if (!k->row || !k->buffers || !k->learned[0].extra || !k->learned[1].extra)
        return err_no_memory(err, "an estimate");
    PL_TRY(add_seconds(k, devices->q, false, err));
    PL_TRY(add_seconds(k, host->q, true, err));
    add_bytes(k, devices->q);
    for (int d = 0; d < k->n_dev; d++)
        k->buffers[d] = buffers(devices->q, d);
    count_host(k, host->q);
    for (int l = 0; l < k->n_layer + 2; l++)
        for (int part = 0; part < N_PART; part++)
            sum += k->row[l].dev_s[part][0];
    k->pipelined =
        devices->prompt_s > 0 && sum > 0
            ? fmin(1,
                   devices->prompt_s /
                       (sum * ceil(FIT_PROMPT / (double)devices->in.n_ubatch)))
            : 1;
    return PL_OK;
}

/* ---- a proposal ---------------------------------------------------------- */

/* Where layers would be: share[row * n_dev + device] of each row's bytes. */
static pl_status find_shares(const struct fit_surrogate *k, int n_on,
                             double *share, pl_err *err)
{
    struct arena a = {0};
    struct plan_config x = k->base->in;
    struct placement p;
    struct device_list list;
    pl_status s = device_list_copy(&list, &x.list, err);

    x.n_on = n_on;
    if (s == PL_OK)
        s = place_groups(&p, &a, &list, &x, err);
    memset(share, 0,
           ((size_t)k->n_layer + 2) * (size_t)k->n_dev * sizeof *share);
    for (int l = 0; l < k->n_layer + 2 && s == PL_OK; l++) {
        const struct place_group *g =
            &p.group[l > k->n_layer ? p.input_group : p.layer_group[l]];
        double all = 0;

        for (int r = 0; r < p.n_rank; r++)
            all += p.share[r];
        for (int i = 0; i < g->n; i++) {
            const struct place_member *m = &p.member[g->first + i];

            for (int r = m->rank0; r < m->rank0 + m->n_rank; r++)
                if (m->dev < k->n_dev)
                    share[l * k->n_dev + m->dev] += p.share[r] / all;
        }
    }
    device_list_free(&list);
    arena_fini(&a);
    return s;
}

/* Is row l on devices? */
static bool on_devices(const struct fit_surrogate *k, int l, int n_on)
{
    if (l > k->n_layer) /* goes with the first layer */
        l = 0;
    return l > k->n_layer - n_on;
}

/* Bytes that device d of the named ones holds; n_dev: the host. */
static double bytes_of(const struct fit_surrogate *k,
                       const struct spill_choice *r, const double *share, int d)
{
    double part = (double)fit_ubatch(&k->base->in, r->ubatch) /
                  (double)k->base->in.n_ubatch;
    double all = (d < k->n_dev ? k->buffers[d] : k->host_bytes) * part;

    for (int l = 0; l < k->n_layer + 2; l++) {
        const double *b = k->row[l].bytes;
        bool on = on_devices(k, l, r->n_on), away = !on || l < r->n_experts;

        if (d < k->n_dev)
            all += share[l * k->n_dev + d] *
                   ((on ? b[REST] : 0) + (away ? 0 : b[EXPERTS]));
        else
            all += (on ? 0 : b[REST]) + (away ? b[EXPERTS] : 0);
    }
    return all;
}

static bool fits(const struct fit_surrogate *k, const struct spill_choice *r,
                 const double *share)
{
    const struct learned *y = learned_of(k, r);
    double n_ubatch = (double)fit_ubatch(&k->base->in, r->ubatch);
    double part = fmin(1, n_ubatch / (double)y->n_ubatch);
    bool host = r->n_on <= k->n_layer || r->n_experts > 0;

    if (host && bytes_of(k, r, share, k->n_dev) + part * y->extra[k->n_dev] >
                    k->host_room)
        return false;
    for (int d = 0; d < k->n_dev; d++)
        if (bytes_of(k, r, share, d) + part * y->extra[d] >
            room(k->f, &k->f->asked.list.dev[d]))
            return false;
    return true;
}

/* Seconds of a step of n tokens; `step` is its index in dev_s. */
static double step_seconds(const struct fit_surrogate *k,
                           const struct spill_choice *r, int step, double n)
{
    double copy = k->link_s + n * k->copy_bytes / k->link_bytes_per_s;
    double part = step == ONE_TOKEN ? 1 : k->pipelined, dev = 0, host = 0;
    bool was_on_devices = on_devices(k, 0, r->n_on);

    for (int l = 0; l < k->n_layer + 2; l++) {
        const struct row *x = &k->row[l];
        bool on = on_devices(k, l, r->n_on);

        if (l <= k->n_layer && on != was_on_devices)
            host += copy;
        was_on_devices = l <= k->n_layer ? on : was_on_devices;
        if (!on) {
            host += x->host_s[REST][step] + x->host_s[EXPERTS][step];
        } else if (l >= r->n_experts || !(x->bytes[EXPERTS] > 0)) {
            dev += x->dev_s[REST][step] + x->dev_s[EXPERTS][step];
        } else {
            double away = x->host_s[EXPERTS][step] + 2 * copy;
            double streamed = x->bytes[EXPERTS] / k->link_bytes_per_s +
                              x->dev_s[EXPERTS][step];

            dev += x->dev_s[REST][step];
            host += step == ONE_TOKEN ? away : fmin(away, streamed);
        }
    }
    return dev * part + host;
}

static double seconds(const struct fit_surrogate *k,
                      const struct spill_choice *r)
{
    double n_prompt = fmin((double)k->f->default_config.n_ctx, FIT_PROMPT);
    double n_ubatch = (double)fit_ubatch(&k->base->in, r->ubatch);

    return learned_of(k, r)->slower *
           (ceil(n_prompt / n_ubatch) *
                step_seconds(k, r, r->ubatch, fmin(n_ubatch, n_prompt)) +
            FIT_ANSWER * step_seconds(k, r, ONE_TOKEN, 1));
}

static bool was_tried(const struct fit_surrogate *k,
                      const struct spill_choice *r)
{
    for (const struct tried *t = k->tried; t; t = t->next)
        if (t->r.n_on == r->n_on && t->r.n_experts == r->n_experts &&
            t->r.ubatch == r->ubatch)
            return true;
    return false;
}

/* All proposals with so many layers on devices. */
static void try_all(const struct fit_surrogate *k, int n_on,
                    const double *share, struct spill_choice *best)
{
    const struct fit *f = k->f;
    int first = k->n_layer + 1 - n_on; /* layers before are on the host */
    int last = f->may.experts && n_on > 0 ? k->n_layer : first;

    for (int step = 0; step < (f->may.ubatch ? FIT_N_UBATCH : 1); step++)
        for (int e = first; e <= last; e++) {
            struct spill_choice r = {n_on, e > first ? e : 0, step, INFINITY};

            if (was_tried(k, &r) || !fits(k, &r, share))
                continue;
            r.seconds = seconds(k, &r);
            if (r.seconds < best->seconds)
                *best = r;
        }
}

pl_status fit_sketch_best(struct fit_surrogate *k, struct spill_choice *best,
                          pl_err *err)
{
    size_t n = ((size_t)k->n_layer + 2) * (size_t)k->n_dev + 1;
    double *share = malloc(n * sizeof *share);
    pl_status s = PL_OK;

    *best = (struct spill_choice){.seconds = INFINITY};
    if (!share)
        return err_no_memory(err, "an estimate");
    for (int on = k->base->in.n_on; on >= 0 && s == PL_OK; on--) {
        if (on < k->base->in.n_on && !k->f->may.layers)
            break;
        s = find_shares(k, on, share, err);
        if (s == PL_OK)
            try_all(k, on, share, best);
    }
    free(share);
    return s;
}

pl_status fit_surrogate_config(struct fit_surrogate *k,
                               const struct spill_choice *r,
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
    for (int l = 0; l < r->n_experts && l < k->n_layer; l++)
        on[l] = true;
    return PL_OK;
}

/* What the named devices and the host turned out to hold, each with those it
 * shares memory with. */
static void learn_bytes(struct fit_surrogate *k, const struct spill_choice *r,
                        const struct compiled *q, const double *share)
{
    struct learned *y = &k->learned[r->n_experts > 0];
    double host = 0;

    y->n_ubatch = fit_ubatch(&k->base->in, r->ubatch);
    for (int d = 0; d < compiled_devices(q); d++) {
        const struct device_desc *x = &q->list.dev[d];
        int64_t lack = fit_lacks(k->f, q, d);
        double held = lack == INT64_MIN ? 0 : room(k->f, x) + (double)lack;

        if (d >= k->n_dev)
            host += held;
        else if (held > 0)
            y->extra[d] = held - bytes_of(k, r, share, d);
    }
    if (host > 0)
        y->extra[k->n_dev] = host - bytes_of(k, r, share, k->n_dev);
}

pl_status fit_surrogate_correct(struct fit_surrogate *k,
                                const struct spill_choice *r,
                                const struct fit_candidate *p, pl_err *err)
{
    size_t n = ((size_t)k->n_layer + 2) * (size_t)k->n_dev + 1;
    struct tried *t = arena_alloc(&k->f->arena, 1, sizeof *t);
    double *share = malloc(n * sizeof *share);
    pl_status s = PL_OK;

    if (!t || !share)
        s = err_no_memory(err, "an estimate");
    if (s == PL_OK) {
        *t = (struct tried){*r, k->tried};
        k->tried = t;
    }
    if (s == PL_OK && p)
        s = find_shares(k, r->n_on, share, err);
    if (s == PL_OK && p) {
        learn_bytes(k, r, p->q, share);
        k->learned[r->n_experts > 0].slower *= p->seconds / r->seconds;
    }
    free(share);
    return s;
}
