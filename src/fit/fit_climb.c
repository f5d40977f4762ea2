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

/* ---- evening out -------------------------------------------------------- */

/* Device *a lacks most memory, *b has most room. False: nobody has any. */
static bool ends(const struct fit *f, const struct compiled *q, int *a, int *b)
{
    int64_t most = fit_missing(q, 0, f->margin), least = most;

    *a = *b = 0;
    for (int d = 1; d < f->list.n; d++) {
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

static pl_status even_out(struct fit *f, struct fit_choice *x, bool *fits,
                          pl_err *err)
{
    int count[MOST_GROUPS], a, b;

    for (int k = 0; k <= f->n_layer && f->n_plan < f->budget; k++) {
        struct fit_try t;
        bool room;

        PL_TRY(fit_consider(f, x, &t, err));
        *fits = t.missing == 0;
        room = t.compiled && !*fits && ends(f, t.compiled, &a, &b);
        if (room)
            count_layers(t.compiled, f->list.n, count);
        compiled_free(t.compiled);
        if (!room || count[a] == 0)
            break;
        PL_TRY(shift_layer(f, x, count, 1, a, b, err));
    }
    return PL_OK;
}

pl_status fit_even_out(struct fit *f, const struct fit_choice *c, pl_err *err)
{
    bool fits = false;

    if (!f->may_split || f->list.n < 2 || f->list.n > MOST_GROUPS)
        return PL_OK;
    for (int i = 0; i < FIT_N_UBATCH && !fits && (i == 0 || f->may_ubatch);
         i++) {
        struct fit_choice x = *c;

        x.mode = PL_SPLIT_LAYER;
        x.n_ubatch = fit_ubatch(c, i);
        PL_TRY(even_out(f, &x, &fits, err));
    }
    return PL_OK;
}

/* ---- small changes ----------------------------------------------------- */

/* Is the best guess better than it was when it took `before`? */
static bool better(const struct fit *f, double before)
{
    return f->best_s < before * 0.999;
}

/* One layer of a run to another group. */
static pl_status shift_layers(struct fit *f, const struct compiled *q,
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
static pl_status shift_experts(struct fit *f, const struct compiled *q,
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

static pl_status shift_host(struct fit *f, const struct compiled *q,
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
    int64_t n_ub = base->n_ubatch ? base->n_ubatch : COMPILED_N_UBATCH;
    double before = f->best_s;

    for (int k = 0; k < 2 && f->may_ubatch && !better(f, before); k++) {
        struct fit_choice x = *base;

        x.n_ubatch = k ? n_ub / 2 : n_ub * 2;
        if (x.n_ubatch >= 32 && x.n_ubatch <= COMPILED_N_UBATCH)
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
        if (!t.compiled)
            break;
        s = shift_layers(f, t.compiled, &base, err);
        /* what is on the host shall be as little as fits */
        if (s == PL_OK && t.compiled->place.host >= 0 && !better(f, before))
            s = shift_host(f, t.compiled, &base, err);
        if (s == PL_OK && !better(f, before) &&
            (t.compiled->place.host >= 0 || base.n_ubatch > 0))
            s = shift_ubatch(f, &base, err);
        compiled_free(t.compiled);
        PL_TRY(s);
    }
    return PL_OK;
}

pl_status fit_stretch(struct fit *f, pl_err *err)
{
    int64_t lo = f->best.n_ctx, hi = f->ctx_most;
    struct fit_choice x = f->best;

    for (x.n_ctx = hi; f->may_ctx && lo < hi; x.n_ctx = lo + (hi - lo) / 2) {
        struct fit_try t;

        PL_TRY(fit_consider(f, &x, &t, err));
        compiled_free(t.compiled);
        *(t.missing == 0 ? &lo : &hi) = x.n_ctx;
        if (hi - lo <= CTX_STEP)
            break;
    }
    return PL_OK;
}
