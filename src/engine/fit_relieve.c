/* What does not fit goes to the host: experts layer by layer, as many as the
 * exact bytes say; or whole layers, found by bisection, since what is left on
 * devices shrinks with each. Before that the micro-batch and the context, if
 * they were left open. Then small changes, as long as they help. */
#include "engine/fit_inner.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- experts ----------------------------------------------------------- */

static uint64_t stored(const struct program *p, int tensor)
{
    return tensor < 0 ? 0 : (p->tensor[tensor].bytes + 63) / 64 * 64;
}

/* bytes[layer * n_dev + device] of experts, as planned. */
static uint64_t *expert_bytes(const struct planned *q)
{
    size_t n = (size_t)q->list.n;
    uint64_t *bytes = calloc(((size_t)q->place.n_layer + 1) * n, sizeof *bytes);

    for (int i = 0; bytes && i < q->num->n; i++) {
        const struct graph_node *x = &q->g->node[q->num->node[i].node];

        if (q->num->node[i].kind != NUM_OP || x->op != OP_weight ||
            x->layer < 0 || !graph_is_experts(x))
            continue;
        for (const struct lowered_held *h = lowered_leaf(q->low, i); h;
             h = h->next)
            for (int k = 0; k < q->low->group[h->group].n; k++) {
                int d = q->low->unit[q->low->group[h->group].first + k].dev;

                bytes[(size_t)x->layer * n + (size_t)d] +=
                    stored(&q->low->prog[d], h->v[k].tensor) +
                    stored(&q->low->prog[d], h->v[k].plain);
            }
    }
    return bytes;
}

/* More layers' experts to the host, first ones first, until all that devices
 * lack is made up for. n: devices of the table, without a host's. */
static bool move_more(const struct fit *f, const struct planned *q, int n,
                      const uint64_t *bytes, bool *on)
{
    bool *now = calloc((size_t)f->n_layer + 1, sizeof *now), moved = false;

    for (int d = 0; now && d < n; d++) {
        int64_t lack = fit_missing(q, d, f->margin);

        for (int pass = 0; pass < 2; pass++)
            for (int l = 0; l < f->n_layer && lack > 0; l++) {
                uint64_t b = bytes[(size_t)l * (size_t)n + (size_t)d];

                if (b == 0 || (pass == 0 ? !now[l] : on[l]))
                    continue;
                on[l] = now[l] = moved = true;
                lack -= (int64_t)b;
            }
    }
    free(now);
    return moved;
}

/* Those that fit after all come back, last ones first. */
static bool give_back(const struct fit *f, const struct planned *q, int n,
                      const uint64_t *bytes, bool *on)
{
    int64_t *room = calloc((size_t)n + 1, sizeof *room);
    bool back = false;

    for (int d = 0; room && d < n; d++)
        room[d] = fit_missing(q, d, f->margin);
    for (int l = f->n_layer - 1; room && l >= 0; l--) {
        const uint64_t *b = bytes + (size_t)l * (size_t)n;
        bool fits = on[l];

        for (int d = 0; d < n; d++)
            fits &= b[d] == 0 || room[d] == INT64_MIN ||
                    room[d] + (int64_t)b[d] <= 0;
        if (!fits)
            continue;
        on[l] = false;
        back = true;
        for (int d = 0; d < n; d++)
            if (room[d] != INT64_MIN)
                room[d] += (int64_t)b[d];
    }
    free(room);
    return back;
}

static pl_status consider_experts(struct fit *f, const struct fit_choice *c,
                                  const bool *on, struct fit_try *t,
                                  pl_err *err)
{
    struct fit_choice x = *c;

    x.experts = arena_memdup(&f->arena, on, (size_t)f->n_layer + 1, sizeof *on);
    if (!x.experts)
        return err_no_memory(err, "the placement of experts");
    return fit_consider(f, &x, t, err);
}

/* *fits: it was enough to move experts. */
static pl_status experts(struct fit *f, const struct fit_choice *c, bool *fits,
                         pl_err *err)
{
    bool *on = calloc((size_t)f->n_layer + 1, sizeof *on);
    uint64_t *bytes = NULL;
    struct fit_try t = {NULL, 0, 0};
    int n = 0;
    pl_status s;

    if (!on)
        return err_no_memory(err, "the placement of experts");
    s = fit_consider(f, c, &t, err);
    if (s == PL_OK && t.planned) {
        n = t.planned->list.n;
        bytes = expert_bytes(t.planned);
        s = bytes ? PL_OK : err_no_memory(err, "the placement of experts");
    }
    for (int i = 0; i < 8 && s == PL_OK && t.planned && t.missing > 0; i++) {
        bool moved = move_more(f, t.planned, n, bytes, on);

        planned_free(t.planned);
        t.planned = NULL;
        if (!moved)
            break;
        s = consider_experts(f, c, on, &t, err);
    }
    *fits = s == PL_OK && t.planned && t.missing == 0;
    if (*fits && give_back(f, t.planned, n, bytes, on))
        s = consider_experts(f, c, on, NULL, err);
    planned_free(t.planned);
    free(bytes);
    free(on);
    return s;
}

/* ---- layers ------------------------------------------------------------ */

static pl_status layers(struct fit *f, const struct fit_choice *c, bool all,
                        pl_err *err)
{
    struct fit_choice x = *c;
    int lo = -1, hi = f->n_layer + 1; /* of lo the devices hold their part, of
                                         hi they do not */
    bool *on;

    if (all) {
        on = arena_alloc(&f->arena, (size_t)f->n_layer + 1, sizeof *on);
        if (!on)
            return err_no_memory(err, "the placement of experts");
        memset(on, 1, (size_t)f->n_layer);
        x.experts = on;
    }
    while (hi - lo > 1) {
        struct fit_try t;
        bool held;

        x.n_on = lo < 0 ? 0 : lo + (hi - lo) / 2;
        PL_TRY(fit_consider(f, &x, &t, err));
        held = t.planned != NULL;
        for (int d = 0; held && d < f->list.n; d++)
            held = fit_missing(t.planned, d, f->margin) <= 0;
        planned_free(t.planned);
        if (held) /* if anybody lacks memory it is the host */
            lo = x.n_on;
        else
            hi = x.n_on;
        if (lo < 0)
            break;
    }
    return PL_OK;
}

/* ---- all of it --------------------------------------------------------- */

/* The longest context with which it fits, by steps of 256. */
static pl_status stretch(struct fit *f, struct fit_choice *x, pl_err *err)
{
    int64_t lo = f->ctx_least, hi = f->ctx_most;

    while (hi - lo > 256) {
        struct fit_try t;

        x->n_ctx = lo + (hi - lo) / 2;
        PL_TRY(fit_consider(f, x, &t, err));
        planned_free(t.planned);
        *(t.missing == 0 ? &lo : &hi) = x->n_ctx;
    }
    return PL_OK;
}

/* Something fits, and what may be better is not worth more plans. */
static bool enough(const struct fit *f)
{
    return f->found && f->n_plan >= f->budget;
}

pl_status fit_relieve(struct fit *f, const struct fit_choice *c, pl_err *err)
{
    static const int64_t smaller[] = {0, 128, 32};
    struct fit_choice x = *c;
    int n_fit = f->n_fit;

    /* the least micro-batch where nothing else will do, the host alone does, or
     * plans are cheap */
    for (int i = 0; i < 3 && (i < 2 || f->n_fit == n_fit || f->best.n_on == 0 ||
                              f->list.n <= FIT_FEW);
         i++) {
        struct fit_try t = {NULL, 1, INFINITY};
        bool light = false;

        if (i > 0 && (!f->may_ubatch || enough(f)))
            break;
        x.n_ubatch = i > 0 ? smaller[i] : c->n_ubatch;
        if (f->may_ctx)
            x.n_ctx = f->ctx_least;
        if (f->may_ctx || i > 0) {
            PL_TRY(fit_consider(f, &x, &t, err));
            planned_free(t.planned);
        }
        if (t.missing == 0) {
            if (f->may_ctx)
                PL_TRY(stretch(f, &x, err));
            break;
        }
        if (f->may_experts)
            PL_TRY(experts(f, &x, &light, err));
        if (f->may_layers && !enough(f))
            PL_TRY(layers(f, &x, false, err));
        if (f->may_layers && f->may_experts && !light)
            PL_TRY(layers(f, &x, true, err));
    }
    return PL_OK;
}

/* ---- small changes ----------------------------------------------------- */

/* Is the best guess better than it was when it took `before`? */
static bool better(const struct fit *f, double before)
{
    return f->best_s < before * 0.999;
}

enum { MOST_GROUPS = 4 };

/* Layers that each of the groups has. */
static void count_layers(const struct planned *q, int n_group, int *count)
{
    memset(count, 0, (size_t)n_group * sizeof *count);
    for (int l = 0; l <= q->place.n_layer; l++)
        if (q->place.of_layer[l] < n_group)
            count[q->place.of_layer[l]]++;
}

/* Guess x, but one layer of group a is group b's; groups of `width` devices. */
static pl_status shift_layer(struct fit *f, struct fit_choice *x,
                             const int *count, int width, int a, int b,
                             pl_err *err)
{
    double *split = arena_alloc(&f->arena, (size_t)f->list.n, sizeof *split);

    if (!split)
        return err_no_memory(err, "shares of devices");
    for (int d = 0; d < f->list.n; d++)
        split[d] = count[d / width] - (d / width == a) + (d / width == b);
    x->split = split;
    return PL_OK;
}

pl_status fit_even_out(struct fit *f, const struct fit_choice *c, pl_err *err)
{
    static const int64_t smaller[] = {0, 128, 32};
    int n = f->list.n, count[MOST_GROUPS];

    if (!f->may_split || n < 2 || n > MOST_GROUPS)
        return PL_OK;
    for (int i = 0; i < 3 && (i == 0 || f->may_ubatch); i++) {
        struct fit_choice x = *c;
        struct fit_try t = {NULL, 1, INFINITY};

        x.mode = PL_SPLIT_LAYER;
        x.n_ubatch = i > 0 ? smaller[i] : c->n_ubatch;
        for (int k = 0;
             k <= f->n_layer && t.missing > 0 && f->n_plan < f->budget; k++) {
            int a = 0, b = 0;

            PL_TRY(fit_consider(f, &x, &t, err));
            for (int d = 1; t.planned && d < n; d++) {
                int64_t lack = fit_missing(t.planned, d, f->margin);

                if (lack > fit_missing(t.planned, a, f->margin))
                    a = d;
                if (lack < fit_missing(t.planned, b, f->margin))
                    b = d;
            }
            if (t.planned)
                count_layers(t.planned, n, count);
            if (!t.planned || count[a] == 0 ||
                fit_missing(t.planned, b, f->margin) >= 0) {
                planned_free(t.planned);
                break;
            }
            planned_free(t.planned);
            if (t.missing > 0)
                PL_TRY(shift_layer(f, &x, count, 1, a, b, err));
        }
        if (t.missing == 0)
            break;
    }
    return PL_OK;
}

/* One layer of a run to another group. */
static pl_status shift_layers(struct fit *f, const struct planned *q,
                              const struct fit_choice *base, pl_err *err)
{
    int count[MOST_GROUPS], width, n_group;
    double before = f->best_s;

    width = base->mode == PL_SPLIT_LAYER ? 1 : base->width;
    if ((base->mode != PL_SPLIT_LAYER && base->mode != PL_SPLIT_HYBRID) ||
        !f->may_split || f->list.n % width != 0 ||
        f->list.n / width > MOST_GROUPS)
        return PL_OK;
    n_group = f->list.n / width;
    count_layers(q, n_group, count);
    for (int i = 0; i < n_group * n_group && !better(f, before); i++) {
        struct fit_choice x = *base;
        int a = i / n_group, b = i % n_group;

        if (a == b || count[a] == 0)
            continue;
        PL_TRY(shift_layer(f, &x, count, width, a, b, err));
        PL_TRY(fit_consider(f, &x, NULL, err));
    }
    return PL_OK;
}

/* `more` experts of layers that are on devices to the host, or back. */
static pl_status shift_experts(struct fit *f, const struct planned *q,
                               struct fit_choice *x, int more, pl_err *err)
{
    bool *on;

    if (!f->may_experts || more == 0)
        return PL_OK;
    on = arena_alloc(&f->arena, (size_t)f->n_layer + 1, sizeof *on);
    if (!on)
        return err_no_memory(err, "the placement of experts");
    if (x->experts)
        memcpy(on, x->experts, (size_t)f->n_layer);
    for (int i = 0; i < f->n_layer; i++) {
        int l = more > 0 ? i : f->n_layer - 1 - i;

        if (q->place.of_layer[l] == q->place.host || on[l] == (more > 0))
            continue;
        on[l] = more > 0;
        x->experts = on;
        break;
    }
    return PL_OK;
}

static pl_status shift_host(struct fit *f, const struct planned *q,
                            const struct fit_choice *base, pl_err *err)
{
    static const struct {
        int layers, experts;
    } rows[] = {{1, 0}, {0, -1}, {1, 1}, {-1, -1}, {1, -1}, {-1, 0}, {0, 1}};
    double before = f->best_s;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fit_choice x = *base;

        if ((rows[i].layers != 0 && (!f->may_layers || base->n_on < 0)) ||
            (rows[i].experts != 0 && !f->may_experts) || better(f, before))
            continue;
        if (base->n_on >= 0)
            x.n_on = base->n_on + rows[i].layers;
        if (x.n_on > f->n_layer + 1 || (base->n_on >= 0 && x.n_on < 0))
            continue;
        PL_TRY(shift_experts(f, q, &x, rows[i].experts, err));
        if (x.n_on != base->n_on || x.experts != base->experts)
            PL_TRY(fit_consider(f, &x, NULL, err));
    }
    return PL_OK;
}

/* Twice the micro-batch, or half of it. */
static pl_status shift_ubatch(struct fit *f, const struct fit_choice *base,
                              pl_err *err)
{
    int64_t n_ub = base->n_ubatch ? base->n_ubatch : PLANNED_N_UBATCH;
    double before = f->best_s;

    for (int k = 0; k < 2 && f->may_ubatch && !better(f, before); k++) {
        struct fit_choice x = *base;

        x.n_ubatch = k ? n_ub / 2 : n_ub * 2;
        if (x.n_ubatch >= 32 && x.n_ubatch <= PLANNED_N_UBATCH)
            PL_TRY(fit_consider(f, &x, NULL, err));
    }
    return PL_OK;
}

pl_status fit_climb(struct fit *f, pl_err *err)
{
    double before = INFINITY;

    while (better(f, before) && f->n_plan < f->budget) {
        struct fit_choice base = f->best;
        struct fit_try t;
        pl_status s;

        before = f->best_s;
        PL_TRY(fit_consider(f, &base, &t, err));
        if (!t.planned)
            break;
        s = shift_layers(f, t.planned, &base, err);
        /* what is on the host shall be as little as fits */
        if (s == PL_OK && t.planned->place.host >= 0 && !better(f, before))
            s = shift_host(f, t.planned, &base, err);
        if (s == PL_OK && !better(f, before) &&
            (t.planned->place.host >= 0 || base.n_ubatch > 0))
            s = shift_ubatch(f, &base, err);
        planned_free(t.planned);
        PL_TRY(s);
    }
    return PL_OK;
}
