/* Split modes and numbers of devices: what -sm auto goes through, or the one
 * mode that was asked for with the shares that suggest themselves.
 *
 * Of devices that are alike fewer are tried by halves, as long as that is
 * faster. What does not fit is relieved by moving some of it to the host: where
 * nothing fits as it is, and, since it is cheap there, wherever devices are
 * few. */
#include "fit/fit_inner.h"

#include "base/err.h"

#include <math.h>
#include <string.h>

enum { FEW = FIT_FEW };

/* ---- shares ------------------------------------------------------------ */

enum shares { AS_IT_COMES, EVEN, BY_MEMORY, BY_SPEED, SHARES_COUNT };

static double speed(const struct device_desc *d)
{
    return d->mem_bytes_per_s > 0 ? d->mem_bytes_per_s : d->n_thread;
}

/* Whole numbers for the first k devices, nothing for the others. */
static pl_status make_shares(struct fit *f, enum shares kind, int k,
                             const double **out, pl_err *err)
{
    double *v, most = 0;

    *out = NULL;
    if (kind == AS_IT_COMES)
        return PL_OK;
    v = arena_alloc(&f->arena, (size_t)f->list.n, sizeof *v);
    if (!v)
        return err_no_memory(err, "shares of devices");
    for (int d = 0; d < k; d++) {
        const struct device_desc *x = &f->list.dev[d];

        v[d] = kind == EVEN        ? 1
               : kind == BY_MEMORY ? (double)x->memory_bytes
                                   : speed(x);
        most = fmax(most, v[d]);
    }
    for (int d = 0; d < k && kind != EVEN; d++)
        v[d] = fmax(1, round(64 * v[d] / most));
    *out = v;
    return PL_OK;
}

static bool worth_trying(const struct fit *f, enum shares kind, int k,
                         pl_split_mode mode)
{
    if (kind == AS_IT_COMES) /* none given, it deals to all */
        return k == f->list.n;
    if (!f->may_split)
        return false;
    if (kind == EVEN)
        return k < f->list.n || (mode != PL_SPLIT_TENSOR && f->unlike);
    return f->unlike && (kind == BY_SPEED || f->known);
}

/* ---- guesses ----------------------------------------------------------- */

static bool too_small(const struct fit *f, int first, int k)
{
    uint64_t sum = 0;

    for (int d = first; d < first + k; d++)
        sum += f->list.dev[d].memory_bytes;
    return f->known && sum < f->weights;
}

/* A guess; if it lacks memory, perhaps relieved. */
static pl_status guess(struct fit *f, const struct fit_choice *c, bool last,
                       double *seconds, pl_err *err)
{
    struct fit_try t;

    if (!last) {
        PL_TRY(fit_consider(f, c, &t, err));
        compiled_free(t.compiled);
        *seconds = t.seconds;
        if (t.missing == 0 || t.missing == INT64_MAX || f->list.n > FEW ||
            (f->found && f->n_plan > f->budget))
            return PL_OK;
    }
    return fit_relieve(f, c, err);
}

/* Mode c->mode on the first k devices, with all shares. */
static pl_status with_shares(struct fit *f, const struct fit_choice *c, int k,
                             bool last, double *seconds, pl_err *err)
{
    *seconds = INFINITY;
    for (int kind = 0; kind < SHARES_COUNT; kind++) {
        struct fit_choice x = *c;
        double s = INFINITY;

        if (!worth_trying(f, kind, k, c->mode))
            continue;
        if (kind != AS_IT_COMES)
            PL_TRY(make_shares(f, kind, k, &x.split, err));
        /* equal ranks of fewer devices; uneven shares are ranks of their own */
        if (c->mode == PL_SPLIT_TENSOR && x.n_ranks == 0 && kind == EVEN)
            x.n_ranks = k;
        PL_TRY(guess(f, &x, last, &s, err));
        *seconds = fmin(*seconds, s);
    }
    return PL_OK;
}

static pl_status fewer(struct fit *f, const struct fit_choice *c, pl_err *err)
{
    double before = INFINITY, s;

    for (int k = f->list.n; k > 1; k = f->unlike && k <= FEW ? k - 1 : k / 2) {
        if (k < f->list.n && (!f->may_split || too_small(f, 0, k)))
            break;
        if (c->mode == PL_SPLIT_TENSOR && c->n_ranks == 0 && k > PL_MAX_RANKS)
            continue;
        PL_TRY(with_shares(f, c, k, false, &s, err));
        if (s >= before && !f->unlike)
            break;
        before = s;
    }
    return PL_OK;
}

static pl_status alone(struct fit *f, const struct fit_choice *c, pl_err *err)
{
    for (int d = 0; d < f->list.n && d < FEW; d++) {
        struct fit_choice x = *c;
        double s;

        if (f->opt->main_device > 0 && f->opt->main_device != d)
            continue; /* somebody wants that one */
        x.mode = PL_SPLIT_NONE;
        x.main_device = d;
        if (!too_small(f, d, 1) || f->list.n <= FEW)
            PL_TRY(guess(f, &x, false, &s, err));
        if (!f->unlike)
            break;
    }
    return PL_OK;
}

static pl_status hybrids(struct fit *f, const struct fit_choice *c, pl_err *err)
{
    double before = INFINITY, s;

    /* wide groups of many devices take as long to plan as all the rest */
    int widest = f->list.n > 16 ? 8 : PL_MAX_RANKS;

    for (int w = 2; w < f->list.n && w <= widest; w++) {
        struct fit_choice x = *c;

        if (f->list.n % w != 0 || (f->list.n > 16 && (w & (w - 1)) != 0))
            continue;
        x.mode = PL_SPLIT_HYBRID;
        x.width = w;
        PL_TRY(with_shares(f, &x, f->list.n, false, &s, err));
        if (s >= before && f->list.n > 16)
            break;
        before = s;
    }
    return PL_OK;
}

static pl_status all_modes(struct fit *f, const struct fit_choice *start,
                           pl_err *err)
{
    struct fit_choice x = *start;

    PL_TRY(fewer(f, &x, err));
    PL_TRY(alone(f, &x, err));
    if (x.mode != PL_SPLIT_LAYER) {
        x.mode = PL_SPLIT_LAYER;
        PL_TRY(fewer(f, &x, err));
    }
    return hybrids(f, start, err);
}

/* Nothing fits on devices alone. Of many devices one mode is relieved. */
static pl_status last_resort(struct fit *f, const struct fit_choice *start,
                             pl_err *err)
{
    struct fit_choice x = *start;
    double s;

    if (f->list.n <= FEW) /* was tried all along */
        return PL_OK;
    PL_TRY(with_shares(f, &x, f->list.n, true, &s, err));
    if (f->opt->split_mode != PL_SPLIT_AUTO || x.mode == PL_SPLIT_LAYER)
        return PL_OK;
    x.mode = PL_SPLIT_LAYER;
    return with_shares(f, &x, f->list.n, true, &s, err);
}

/* Small changes of the best guess; and where plans are cheap those of the best
 * of every other mode, which may yet overtake it. */
static pl_status climb(struct fit *f, pl_err *err)
{
    PL_TRY(fit_climb(f, err));
    for (int mode = 0; mode <= PL_SPLIT_HYBRID && f->list.n <= FEW; mode++) {
        const struct fit_best before = {true, f->best, f->best_s};
        const struct fit_best from = f->of_mode[mode];

        if (!from.found || mode == (int)before.choice.mode)
            continue;
        f->best = from.choice;
        f->best_s = from.seconds;
        PL_TRY(fit_climb(f, err));
        if (f->best_s < before.seconds)
            continue;
        f->best = before.choice;
        f->best_s = before.seconds;
    }
    return PL_OK;
}

pl_status fit_search(struct fit *f, const struct fit_choice *start, pl_err *err)
{
    double s;

    if (f->list.n == 0)
        PL_TRY(guess(f, start, false, &s, err));
    else if (f->opt->split_mode == PL_SPLIT_AUTO && f->list.n > 1)
        PL_TRY(all_modes(f, start, err));
    else if (start->mode == PL_SPLIT_NONE || f->list.n == 1)
        PL_TRY(guess(f, start, false, &s, err));
    else
        PL_TRY(with_shares(f, start, f->list.n, false, &s, err));
    if (f->opt->split_mode == PL_SPLIT_AUTO ||
        f->opt->split_mode == PL_SPLIT_LAYER)
        PL_TRY(fit_even_out(f, start, err));
    if (!f->found)
        PL_TRY(last_resort(f, start, err));
    if (!f->found)
        return PL_OK;
    PL_TRY(climb(f, err));
    return fit_stretch(f, err);
}
