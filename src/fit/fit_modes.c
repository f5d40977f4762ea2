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
    v = arena_alloc(&f->arena, (size_t)f->asked.list.n, sizeof *v);
    if (!v)
        return err_no_memory(err, "shares of devices");
    for (int d = 0; d < k; d++) {
        const struct device_desc *x = &f->asked.list.dev[d];

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
        return k == f->asked.list.n;
    if (!f->may.share)
        return false;
    if (kind == EVEN)
        return k < f->asked.list.n || (mode != PL_SPLIT_TENSOR && f->unlike);
    return f->unlike && (kind == BY_SPEED || f->known);
}

/* ---- guesses ----------------------------------------------------------- */

static bool too_small(const struct fit *f, int first, int k)
{
    uint64_t sum = 0;

    for (int d = first; d < first + k; d++)
        sum += f->asked.list.dev[d].memory_bytes;
    return f->known && sum < f->weights;
}

/* A guess; if it lacks memory, perhaps relieved. */
static pl_status guess(struct fit *f, const struct intent *c, bool last,
                       double *seconds, pl_err *err)
{
    struct fit_plan *p;
    pl_status s = PL_OK;

    PL_TRY(fit_consider(f, c, &p, err));
    *seconds = p ? p->seconds : INFINITY;
    if (p && p->missing > 0 &&
        (last ||
         (f->asked.list.n <= FEW && !(f->best && f->n_plan > f->budget))))
        s = fit_relieve(f, p, err);
    fit_drop(p);
    return s;
}

/* Mode c->mode on the first k devices, with all shares. */
static pl_status with_shares(struct fit *f, const struct intent *c, int k,
                             bool last, double *seconds, pl_err *err)
{
    *seconds = INFINITY;
    for (int kind = 0; kind < SHARES_COUNT; kind++) {
        struct intent x = *c;
        double s = INFINITY;

        if (!worth_trying(f, kind, k, c->mode))
            continue;
        if (kind != AS_IT_COMES)
            PL_TRY(make_shares(f, kind, k, &x.share, err));
        /* equal ranks of fewer devices; uneven shares are ranks of their own */
        if (c->mode == PL_SPLIT_TENSOR && x.n_rank == 0 && kind == EVEN)
            x.n_rank = k;
        PL_TRY(guess(f, &x, last, &s, err));
        *seconds = fmin(*seconds, s);
    }
    return PL_OK;
}

static pl_status fewer(struct fit *f, const struct intent *c, pl_err *err)
{
    double before = INFINITY, s;

    for (int k = f->asked.list.n; k > 1;
         k = f->unlike && k <= FEW ? k - 1 : k / 2) {
        if (k < f->asked.list.n && (!f->may.share || too_small(f, 0, k)))
            break;
        if (c->mode == PL_SPLIT_TENSOR && c->n_rank == 0 && k > PL_MAX_RANKS)
            continue;
        PL_TRY(with_shares(f, c, k, false, &s, err));
        if (s >= before && !f->unlike)
            break;
        before = s;
    }
    return PL_OK;
}

static pl_status alone(struct fit *f, const struct intent *c, pl_err *err)
{
    for (int d = 0; d < f->asked.list.n && d < FEW; d++) {
        struct intent x = *c;
        double s;

        if (f->asked.main_device > 0 && f->asked.main_device != d)
            continue; /* somebody wants that one */
        x.mode = PL_SPLIT_NONE;
        x.main_device = d;
        if (!too_small(f, d, 1) || f->asked.list.n <= FEW)
            PL_TRY(guess(f, &x, false, &s, err));
        if (!f->unlike)
            break;
    }
    return PL_OK;
}

static pl_status hybrids(struct fit *f, const struct intent *c, pl_err *err)
{
    double before = INFINITY, s;

    /* wide groups of many devices take as long to plan as all the rest */
    int widest = f->asked.list.n > 16 ? 8 : PL_MAX_RANKS;

    for (int w = 2; w < f->asked.list.n && w <= widest; w++) {
        struct intent x = *c;

        if (f->asked.list.n % w != 0 ||
            (f->asked.list.n > 16 && (w & (w - 1)) != 0))
            continue;
        x.mode = PL_SPLIT_HYBRID;
        x.width = w;
        PL_TRY(with_shares(f, &x, f->asked.list.n, false, &s, err));
        if (s >= before && f->asked.list.n > 16)
            break;
        before = s;
    }
    return PL_OK;
}

static pl_status all_modes(struct fit *f, const struct intent *start,
                           pl_err *err)
{
    struct intent x = *start;

    PL_TRY(fewer(f, &x, err));
    PL_TRY(alone(f, &x, err));
    if (x.mode != PL_SPLIT_LAYER) {
        x.mode = PL_SPLIT_LAYER;
        PL_TRY(fewer(f, &x, err));
    }
    return hybrids(f, start, err);
}

/* Nothing fits on devices alone. Of many devices one mode is relieved. */
static pl_status last_resort(struct fit *f, const struct intent *start,
                             pl_err *err)
{
    struct intent x = *start;
    double s;

    if (f->asked.list.n <= FEW) /* was tried all along */
        return PL_OK;
    PL_TRY(with_shares(f, &x, f->asked.list.n, true, &s, err));
    if (!f->asked.open.mode || x.mode == PL_SPLIT_LAYER)
        return PL_OK;
    x.mode = PL_SPLIT_LAYER;
    return with_shares(f, &x, f->asked.list.n, true, &s, err);
}

/* Small changes of the best guess; and where plans are cheap those of the best
 * of every other mode, which may yet overtake it. */
static pl_status climb(struct fit *f, pl_err *err)
{
    PL_TRY(fit_climb(f, err));
    for (int mode = 0; mode <= PL_SPLIT_HYBRID && f->asked.list.n <= FEW;
         mode++) {
        struct fit_plan *before = fit_hold(f->best), *from;
        const struct intent start = f->of_mode[mode];
        pl_status s = PL_OK;

        if (f->of_mode_s[mode] > 0 && mode != (int)before->in.mode) {
            s = fit_consider(f, &start, &from, err);
            if (s == PL_OK && from) {
                fit_drop(f->best);
                f->best = from;
                s = fit_climb(f, err);
            }
            if (f->best->seconds >= before->seconds) {
                fit_drop(f->best);
                f->best = fit_hold(before);
            }
        }
        fit_drop(before);
        PL_TRY(s);
    }
    return PL_OK;
}

pl_status fit_search(struct fit *f, pl_err *err)
{
    const struct intent *start = &f->usual;
    bool any = f->asked.open.mode;
    double s;

    if (f->asked.list.n == 0)
        PL_TRY(guess(f, start, false, &s, err));
    else if (any && f->asked.list.n > 1)
        PL_TRY(all_modes(f, start, err));
    else if (start->mode == PL_SPLIT_NONE || f->asked.list.n == 1)
        PL_TRY(guess(f, start, false, &s, err));
    else
        PL_TRY(with_shares(f, start, f->asked.list.n, false, &s, err));
    if (any || start->mode == PL_SPLIT_LAYER)
        PL_TRY(fit_even_out(f, err));
    if (!f->best)
        PL_TRY(last_resort(f, start, err));
    if (!f->best)
        return PL_OK;
    PL_TRY(climb(f, err));
    return fit_stretch(f, err);
}
