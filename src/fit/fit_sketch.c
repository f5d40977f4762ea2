/* Sums over layers in place of plans. */
#include "fit/fit_sketch.h"

#include "base/err.h"
#include "cost/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seconds of a step with each micro-batch, and with one token. */
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
    struct fit_relief r;
    struct tried *next;
};

struct fit_sketch {
    struct fit *f;
    const struct fit_plan *p, *h;
    int n_layer, n_dev;
    struct row *row;  /* [n_layer + 2]; the output; what is before */
    double *buffers;  /* [n_dev] of the largest micro-batch */
    double *extra[2]; /* [n_dev + 1] bytes beyond what was summed; without and
                          with experts away from their layers. Mostly buffers:
                          less in smaller micro-batches */
    int64_t extra_ub[2];
    double host_bytes;               /* of the host's buffers */
    double host_room;                /* INFINITY: not known */
    double link_s, link_bytes_per_s; /* of a copy between device and host */
    double width;                    /* bytes of a token's copy */
    double pipelined; /* part of the sum of steps that a prompt takes */
    double scale[2];  /* seconds that came, to those that were summed; alike */
    struct tried *tried;
};

/* ---- learning ------------------------------------------------------------ */

/* The row and part of a step's node. `row` is that of the step before. */
static int row_of(const struct fit_sketch *k, int node, int row,
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
static pl_status add_seconds(struct fit_sketch *k, const struct compiled *q,
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
        const struct script *x = &q->low->prog[d].script[0];
        int row = k->n_layer + 1;

        memset(sum, 0, n * sizeof *sum);
        for (int i = 0; i < x->n_step; i++) {
            enum part part;

            row = row_of(k, x->step[i].node, row, &part);
            for (int u = 0; u < N_STEP; u++) {
                int64_t ub = u == ONE_TOKEN ? 1 : fit_ubatch(&k->p->in, u);
                struct cost_micro z = {{ub, 1, q->max.n_slot, 1}, 0};

                if (x->step[i].most > 0 && !step_guard(&x->step[i], &z.sizes))
                    continue;
                sum[row][part][u] += cost_of_step(&m, d, &x->step[i], &z);
            }
        }
        for (size_t l = 0; l < n; l++)
            for (int part = 0; part < N_PART; part++)
                for (int u = 0; u < N_STEP; u++) {
                    double *to = host ? &k->row[l].host_s[part][u]
                                      : &k->row[l].dev_s[part][u];

                    *to = fmax(*to, sum[l][part][u]);
                }
    }
    if (s == PL_OK && !host) {
        k->link_s = r[0].message_s;
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

static void add_bytes(struct fit_sketch *k, const struct compiled *q)
{
    for (int i = 0; i < q->num->n; i++) {
        const struct graph_node *x = &q->g->node[q->num->node[i].node];
        int row = x->layer;
        enum part part = graph_is_experts(x) ? EXPERTS : REST;

        if (row < 0)
            row = q->home[q->num->node[i].node] == q->place.of_layer[k->n_layer]
                      ? k->n_layer
                      : k->n_layer + 1;
        if (x->role == PL_ROLE_TOKEN_EMBD) {
            k->width = 4 * (double)x->dim[1].n;
            row = k->n_layer + 1;
        }
        for (const struct lowered_held *h = lowered_leaf(q->low, i); h;
             h = h->next)
            for (int u = 0; u < q->low->group[h->group].n; u++) {
                int d = q->low->unit[q->low->group[h->group].first + u].dev;
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
                    device_scratch_bytes(&q->list.dev[d], q->family, p));
}

static double room(const struct fit *f, const struct device_desc *x)
{
    double margin = f->margin == FIT_NO_MARGIN ? 0
                    : f->margin == 0           ? (double)(x->memory_bytes / 64)
                                               : (double)f->margin;

    if (x->memory_bytes == 0)
        return INFINITY;
    /* sums are near what is held: a little is left for what they miss */
    return (double)x->memory_bytes * (1 - 1. / 128) - margin;
}

/* What the host holds beside weights and caches. */
static void look_at_host(struct fit_sketch *k, const struct compiled *q)
{
    k->host_room = 0;
    for (int d = k->n_dev; d < compiled_devices(q); d++) {
        k->host_bytes += buffers(q, d);
        k->host_room += room(k->f, &q->list.dev[d]);
    }
}

pl_status fit_sketch_make(struct fit_sketch **out, struct fit *f,
                          const struct fit_plan *p, const struct fit_plan *h,
                          pl_err *err)
{
    struct fit_sketch *k = arena_alloc(&f->arena, 1, sizeof *k);
    double sum = 0;

    *out = k;
    if (!k)
        return err_no_memory(err, "an estimate");
    *k = (struct fit_sketch){.f = f,
                             .p = p,
                             .h = h,
                             .n_layer = f->asked.n_layer,
                             .n_dev = f->asked.list.n,
                             .width = 4 * 4096,
                             .extra_ub = {1, 1},
                             .scale = {1, 1}};
    k->row = arena_alloc(&f->arena, (size_t)k->n_layer + 2, sizeof *k->row);
    k->buffers = arena_alloc(&f->arena, (size_t)k->n_dev, sizeof(double));
    for (int i = 0; i < 2; i++)
        k->extra[i] =
            arena_alloc(&f->arena, (size_t)k->n_dev + 1, sizeof(double));
    if (!k->row || !k->buffers || !k->extra[0] || !k->extra[1])
        return err_no_memory(err, "an estimate");
    PL_TRY(add_seconds(k, p->q, false, err));
    PL_TRY(add_seconds(k, h->q, true, err));
    add_bytes(k, p->q);
    for (int d = 0; d < k->n_dev; d++)
        k->buffers[d] = buffers(p->q, d);
    look_at_host(k, h->q);
    for (int l = 0; l < k->n_layer + 2; l++)
        for (int part = 0; part < N_PART; part++)
            sum += k->row[l].dev_s[part][0];
    k->pipelined =
        p->prompt_s > 0 && sum > 0
            ? fmin(1, p->prompt_s /
                          (sum * ceil(FIT_PROMPT / (double)p->in.n_ubatch)))
            : 1;
    return PL_OK;
}

/* ---- a proposal
 * ----------------------------------------------------------- */

/* Where layers would be: frac[row * n_dev + device] of each row's bytes. */
static pl_status spread(const struct fit_sketch *k, int n_on, double *frac,
                        pl_err *err)
{
    struct arena a = {0};
    struct intent x = k->p->in;
    struct placement p;
    struct device_list list;
    pl_status s = device_list_copy(&list, &x.list, err);

    x.n_on = n_on;
    if (s == PL_OK)
        s = place_groups(&p, &a, &list, &x, err);
    memset(frac, 0, ((size_t)k->n_layer + 2) * (size_t)k->n_dev * sizeof *frac);
    for (int l = 0; l < k->n_layer + 2 && s == PL_OK; l++) {
        const struct place_group *g =
            &p.group[l > k->n_layer ? p.of_input : p.of_layer[l]];
        double all = 0;

        for (int r = 0; r < p.n_rank; r++)
            all += p.share[r];
        for (int i = 0; i < g->n; i++) {
            const struct place_member *m = &p.member[g->first + i];

            for (int r = m->rank0; r < m->rank0 + m->n_rank; r++)
                if (m->dev < k->n_dev)
                    frac[l * k->n_dev + m->dev] += p.share[r] / all;
        }
    }
    device_list_free(&list);
    arena_fini(&a);
    return s;
}

/* Is row l on devices? */
static bool is_on(const struct fit_sketch *k, int l, int n_on)
{
    if (l > k->n_layer) /* goes with the first layer */
        l = 0;
    return l > k->n_layer - n_on;
}

/* Bytes that device d of the named ones holds; n_dev: the host. */
static double bytes_of(const struct fit_sketch *k, const struct fit_relief *r,
                       const double *frac, int d)
{
    double part =
        (double)fit_ubatch(&k->p->in, r->ubatch) / (double)k->p->in.n_ubatch;
    double all = (d < k->n_dev ? k->buffers[d] : k->host_bytes) * part;

    for (int l = 0; l < k->n_layer + 2; l++) {
        const double *b = k->row[l].bytes;
        bool on = is_on(k, l, r->n_on), away = !on || l < r->n_experts;

        if (d < k->n_dev)
            all += frac[l * k->n_dev + d] *
                   ((on ? b[REST] : 0) + (away ? 0 : b[EXPERTS]));
        else
            all += (on ? 0 : b[REST]) + (away ? b[EXPERTS] : 0);
    }
    return all;
}

static bool fits(const struct fit_sketch *k, const struct fit_relief *r,
                 const double *frac)
{
    const double *extra = k->extra[r->n_experts > 0];
    double ub = (double)fit_ubatch(&k->p->in, r->ubatch);
    double part = fmin(1, ub / (double)k->extra_ub[r->n_experts > 0]);
    bool host = r->n_on <= k->n_layer || r->n_experts > 0;

    if (host &&
        bytes_of(k, r, frac, k->n_dev) + part * extra[k->n_dev] > k->host_room)
        return false;
    for (int d = 0; d < k->n_dev; d++)
        if (bytes_of(k, r, frac, d) + part * extra[d] >
            room(k->f, &k->f->asked.list.dev[d]))
            return false;
    return true;
}

/* Seconds of a step of n tokens, u its number. */
static double step_s(const struct fit_sketch *k, const struct fit_relief *r,
                     int u, double n)
{
    double copy = k->link_s + n * k->width / k->link_bytes_per_s;
    double part = u == ONE_TOKEN ? 1 : k->pipelined, dev = 0, host = 0;
    bool was_on = is_on(k, 0, r->n_on);

    for (int l = 0; l < k->n_layer + 2; l++) {
        const struct row *x = &k->row[l];
        bool on = is_on(k, l, r->n_on);

        if (l <= k->n_layer && on != was_on)
            host += copy;
        was_on = l <= k->n_layer ? on : was_on;
        if (!on) {
            host += x->host_s[REST][u] + x->host_s[EXPERTS][u];
        } else if (l >= r->n_experts || !(x->bytes[EXPERTS] > 0)) {
            dev += x->dev_s[REST][u] + x->dev_s[EXPERTS][u];
        } else {
            double away = x->host_s[EXPERTS][u] + 2 * copy;
            double streamed =
                x->bytes[EXPERTS] / k->link_bytes_per_s + x->dev_s[EXPERTS][u];

            dev += x->dev_s[REST][u];
            host += u == ONE_TOKEN ? away : fmin(away, streamed);
        }
    }
    return dev * part + host;
}

static double seconds(const struct fit_sketch *k, const struct fit_relief *r)
{
    double n_prompt = fmin((double)k->f->usual.n_ctx, FIT_PROMPT);
    double ub = (double)fit_ubatch(&k->p->in, r->ubatch);

    return k->scale[r->n_experts > 0] *
           (ceil(n_prompt / ub) * step_s(k, r, r->ubatch, fmin(ub, n_prompt)) +
            FIT_ANSWER * step_s(k, r, ONE_TOKEN, 1));
}

static bool was_tried(const struct fit_sketch *k, const struct fit_relief *r)
{
    for (const struct tried *t = k->tried; t; t = t->next)
        if (t->r.n_on == r->n_on && t->r.n_experts == r->n_experts &&
            t->r.ubatch == r->ubatch)
            return true;
    return false;
}

/* All proposals with so many layers on devices. */
static void look_at(const struct fit_sketch *k, int n_on, const double *frac,
                    struct fit_relief *best)
{
    const struct fit *f = k->f;
    int first = k->n_layer + 1 - n_on; /* layers before are on the host */
    int last = f->may.experts && n_on > 0 ? k->n_layer : first;

    for (int u = 0; u < (f->may.ubatch ? FIT_N_UBATCH : 1); u++)
        for (int e = first; e <= last; e++) {
            struct fit_relief r = {n_on, e > first ? e : 0, u, INFINITY};

            if (was_tried(k, &r) || !fits(k, &r, frac))
                continue;
            r.seconds = seconds(k, &r);
            if (r.seconds < best->seconds)
                *best = r;
        }
}

pl_status fit_sketch_best(struct fit_sketch *k, struct fit_relief *best,
                          pl_err *err)
{
    size_t n = ((size_t)k->n_layer + 2) * (size_t)k->n_dev + 1;
    double *frac = malloc(n * sizeof *frac);
    pl_status s = PL_OK;

    *best = (struct fit_relief){.seconds = INFINITY};
    if (!frac)
        return err_no_memory(err, "an estimate");
    for (int on = k->p->in.n_on; on >= 0 && s == PL_OK; on--) {
        if (on < k->p->in.n_on && !k->f->may.layers)
            break;
        s = spread(k, on, frac, err);
        if (s == PL_OK)
            look_at(k, on, frac, best);
    }
    free(frac);
    return s;
}

pl_status fit_sketch_intent(struct fit_sketch *k, const struct fit_relief *r,
                            struct intent *out, pl_err *err)
{
    bool *on;

    *out = k->p->in;
    out->n_on = r->n_on;
    out->n_ubatch = fit_ubatch(&k->p->in, r->ubatch);
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
static void learn_bytes(struct fit_sketch *k, const struct fit_relief *r,
                        const struct compiled *q, const double *frac)
{
    double *extra = k->extra[r->n_experts > 0];
    double host = 0;

    k->extra_ub[r->n_experts > 0] = fit_ubatch(&k->p->in, r->ubatch);
    for (int d = 0; d < compiled_devices(q); d++) {
        const struct device_desc *x = &q->list.dev[d];
        int64_t lack = fit_missing(q, d, k->f->margin);
        double held = lack == INT64_MIN ? 0 : room(k->f, x) + (double)lack;

        if (d >= k->n_dev)
            host += held;
        else if (held > 0)
            extra[d] = held - bytes_of(k, r, frac, d);
    }
    if (host > 0)
        extra[k->n_dev] = host - bytes_of(k, r, frac, k->n_dev);
}

pl_status fit_sketch_learn(struct fit_sketch *k, const struct fit_relief *r,
                           const struct fit_plan *p, pl_err *err)
{
    size_t n = ((size_t)k->n_layer + 2) * (size_t)k->n_dev + 1;
    struct tried *t = arena_alloc(&k->f->arena, 1, sizeof *t);
    double *frac = malloc(n * sizeof *frac);
    pl_status s = PL_OK;

    if (!t || !frac)
        s = err_no_memory(err, "an estimate");
    if (s == PL_OK) {
        *t = (struct tried){*r, k->tried};
        k->tried = t;
    }
    if (s == PL_OK && p)
        s = spread(k, r->n_on, frac, err);
    if (s == PL_OK && p) {
        learn_bytes(k, r, p->q, frac);
        k->scale[r->n_experts > 0] *= p->seconds / r->seconds;
    }
    free(frac);
    return s;
}
