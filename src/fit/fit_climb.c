/* From one guess to others beside it: layers from one group to another, experts
 * and layers between devices and the host, the micro-batch. */
#include "fit/fit_inner.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

enum { MOST_GROUPS = 4, CTX_STEP = 256 };

/* Layers that each of the groups has. */
static void count_layers(const struct compiled *q, int n_group, int *count)
{
    memset(count, 0, (size_t)n_group * sizeof *count);
    for (int l = 0; l <= q->place.n_layer; l++)
        if (q->place.of_layer[l] < n_group)
            count[q->place.of_layer[l]]++;
}

/* Guess x, but one layer of group a is group b's; groups of `width` devices. */
static pl_status shift_layer(struct fit *f, struct intent *x, const int *count,
                             int width, int a, int b, pl_err *err)
{
    double *split =
        arena_alloc(&f->arena, (size_t)f->asked.list.n, sizeof *split);

    if (!split)
        return err_no_memory(err, "shares of devices");
    for (int d = 0; d < f->asked.list.n; d++)
        split[d] = count[d / width] - (d / width == a) + (d / width == b);
    x->share = split;
    return PL_OK;
}

/* ---- evening out -------------------------------------------------------- */

/* Device *a lacks most memory, *b has most room. False: nobody has any. */
static bool ends(const struct fit *f, const struct compiled *q, int *a, int *b)
{
    int64_t most = fit_missing(q, 0, f->margin), least = most;

    *a = *b = 0;
    for (int d = 1; d < f->asked.list.n; d++) {
        int64_t lack = fit_missing(q, d, f->margin);

        if (lack > most) {
            most = lack;
            *a = d;
        }
        if (lack < least) {
            least = lack;
            *b = d;
        }
    }
    return least < 0;
}

static pl_status even_out(struct fit *f, struct intent *x, bool *fits,
                          pl_err *err)
{
    int count[MOST_GROUPS], a, b;

    for (int k = 0; k <= f->asked.n_layer && f->n_plan < f->budget; k++) {
        struct fit_plan *p;
        bool room;

        PL_TRY(fit_consider(f, x, &p, err));
        *fits = p && p->missing == 0;
        room = p && !*fits && ends(f, p->q, &a, &b);
        if (room)
            count_layers(p->q, f->asked.list.n, count);
        fit_drop(p);
        if (!room || count[a] == 0)
            break;
        PL_TRY(shift_layer(f, x, count, 1, a, b, err));
    }
    return PL_OK;
}

pl_status fit_even_out(struct fit *f, pl_err *err)
{
    int n = f->asked.list.n;
    bool fits = f->of_mode_s[PL_SPLIT_LAYER] > 0; /* as it comes */

    if (!f->may.share || n < 2 || n > MOST_GROUPS)
        return PL_OK;
    for (int i = 0; i < FIT_N_UBATCH && !fits && (i == 0 || f->may.ubatch);
         i++) {
        struct intent x = f->usual;

        x.mode = PL_SPLIT_LAYER;
        x.n_ubatch = fit_ubatch(&f->usual, i);
        PL_TRY(even_out(f, &x, &fits, err));
    }
    return PL_OK;
}

/* ---- small changes ----------------------------------------------------- */

/* Is the best guess better than it was when it took `before`? */
static bool better(const struct fit *f, double before)
{
    return f->best->seconds < before * 0.999;
}

/* One layer of a run to another group. */
static pl_status shift_layers(struct fit *f, const struct compiled *q,
                              const struct intent *base, pl_err *err)
{
    int count[MOST_GROUPS], width, n_group;
    double before = f->best->seconds;

    width = base->mode == PL_SPLIT_LAYER ? 1 : base->width;
    if ((base->mode != PL_SPLIT_LAYER && base->mode != PL_SPLIT_HYBRID) ||
        !f->may.share || f->asked.list.n % width != 0 ||
        f->asked.list.n / width > MOST_GROUPS)
        return PL_OK;
    n_group = f->asked.list.n / width;
    count_layers(q, n_group, count);
    for (int i = 0; i < n_group * n_group && !better(f, before); i++) {
        struct intent x = *base;
        int a = i / n_group, b = i % n_group;

        if (a == b || count[a] == 0)
            continue;
        PL_TRY(shift_layer(f, &x, count, width, a, b, err));
        PL_TRY(fit_consider(f, &x, NULL, err));
    }
    return PL_OK;
}

/* `more` experts of layers that are on devices to the host, or back. */
static pl_status shift_experts(struct fit *f, const struct compiled *q,
                               struct intent *x, int more, pl_err *err)
{
    bool *on;

    if (!f->may.experts || more == 0)
        return PL_OK;
    on = arena_alloc(&f->arena, (size_t)f->asked.n_layer + 1, sizeof *on);
    if (!on)
        return err_no_memory(err, "the placement of experts");
    if (x->experts)
        memcpy(on, x->experts, (size_t)f->asked.n_layer + 1);
    for (int i = 0; i < f->asked.n_layer; i++) {
        int l = more > 0 ? i : f->asked.n_layer - 1 - i;

        if (q->place.of_layer[l] == q->place.host || on[l] == (more > 0))
            continue;
        on[l] = more > 0;
        x->experts = on;
        break;
    }
    return PL_OK;
}

static pl_status shift_host(struct fit *f, const struct compiled *q,
                            const struct intent *base, pl_err *err)
{
    static const struct {
        int layers, experts;
    } rows[] = {{1, 0}, {0, -1}, {1, 1}, {-1, -1}, {1, -1}, {-1, 0}, {0, 1}};
    double before = f->best->seconds;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct intent x = *base;

        if ((rows[i].layers != 0 &&
             (!f->may.layers || base->n_on > f->asked.n_layer)) ||
            (rows[i].experts != 0 && !f->may.experts) || better(f, before))
            continue;
        x.n_on = base->n_on + rows[i].layers;
        if (x.n_on > f->asked.n_layer + 1 || x.n_on < 0)
            continue;
        PL_TRY(shift_experts(f, q, &x, rows[i].experts, err));
        if (x.n_on != base->n_on || x.experts != base->experts)
            PL_TRY(fit_consider(f, &x, NULL, err));
    }
    return PL_OK;
}

/* Twice the micro-batch, or half of it. */
static pl_status shift_ubatch(struct fit *f, const struct intent *base,
                              pl_err *err)
{
    double before = f->best->seconds;

    for (int k = 0; k < 2 && f->may.ubatch && !better(f, before); k++) {
        struct intent x = *base;

        x.n_ubatch = k ? base->n_ubatch / 2 : base->n_ubatch * 2;
        if (x.n_ubatch >= 32 && x.n_ubatch <= INTENT_N_UBATCH)
            PL_TRY(fit_consider(f, &x, NULL, err));
    }
    return PL_OK;
}

pl_status fit_climb(struct fit *f, pl_err *err)
{
    double before = INFINITY;

    while (better(f, before) && f->n_plan < f->budget) {
        struct fit_plan *p = fit_hold(f->best);
        const struct intent *base = &p->in;
        bool host = p->q->place.host >= 0;
        pl_status s;

        before = p->seconds;
        s = shift_layers(f, p->q, base, err);
        /* what is on the host shall be as little as fits */
        if (s == PL_OK && host && !better(f, before))
            s = shift_host(f, p->q, base, err);
        if (s == PL_OK && !better(f, before) &&
            (host || base->n_ubatch != f->usual.n_ubatch))
            s = shift_ubatch(f, base, err);
        fit_drop(p);
        PL_TRY(s);
    }
    return PL_OK;
}

pl_status fit_stretch(struct fit *f, pl_err *err)
{
    struct intent x = f->best->in;
    int64_t lo = x.n_ctx, hi = f->ctx_most;

    for (x.n_ctx = hi; f->may.ctx && lo < hi; x.n_ctx = lo + (hi - lo) / 2) {
        struct fit_plan *p;

        PL_TRY(fit_consider(f, &x, &p, err));
        *(p && p->missing == 0 ? &lo : &hi) = x.n_ctx;
        fit_drop(p);
        if (hi - lo <= CTX_STEP)
            break;
    }
    return PL_OK;
}
