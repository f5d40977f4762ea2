/* One guess: planned for real, weighed, priced. */
#include "fit/fit_inner.h"

#include "base/err.h"
#include "cost/rates.h"

#include <math.h>
#include <stdlib.h>

static int64_t all_missing(const struct fit *f, const struct compiled *q)
{
    int64_t sum = 0;

    for (int d = 0; d < q->list.n; d++) {
        int64_t m = fit_missing(q, d, f->margin);

        sum += m > 0 ? m : 0;
    }
    return sum;
}

static pl_status price(const struct fit *f, const struct compiled *q,
                       double *seconds, pl_err *err)
{
    struct cost_rates *r = calloc((size_t)q->list.n + 1, sizeof *r);
    struct rates_basis basis;
    pl_status s;

    if (!r)
        return err_no_memory(err, "an estimate");
    s = rates_known(q, f->calibrated ? &f->cal : NULL, r, &basis, err);
    if (s == PL_OK)
        s = fit_seconds(q, r, f->usual.n_ctx, seconds, err);
    free(r);
    return s;
}

/* Is it what tensor mode over all devices gives without any search? */
static bool is_usual(const struct fit *f, const struct fit_choice *c)
{
    return c->mode == f->usual.mode && c->width == f->usual.width &&
           c->split == f->usual.split && c->n_on == f->usual.n_on &&
           c->experts == f->usual.experts && c->n_ubatch == f->usual.n_ubatch &&
           c->n_ctx == f->usual.n_ctx;
}

/* A longer context is worth a little. */
static bool longer(const struct fit *f, const struct fit_choice *c)
{
    return c->n_ctx > f->best.n_ctx;
}

static void keep(struct fit *f, const struct fit_choice *c, double seconds)
{
    struct fit_best *m = &f->of_mode[c->mode];

    f->n_fit++;
    if (!m->found || seconds < m->seconds)
        *m = (struct fit_best){true, *c, seconds};
    if (is_usual(f, c)) {
        f->usual_fits = true;
        f->usual_s = seconds;
    }
    if (f->found && seconds >= f->best_s * (longer(f, c) ? 1.02 : 1))
        return;
    f->found = true;
    f->best = *c;
    f->best_s = seconds;
}

pl_status fit_consider(struct fit *f, const struct fit_choice *c,
                       struct fit_try *t, pl_err *err)
{
    struct fit_try own, *x = t ? t : &own;
    struct fit_text experts;
    char layers[16];
    pl_options o;
    pl_err e;
    pl_status s;

    *x = (struct fit_try){NULL, INT64_MAX, INFINITY};
    fit_options(f, c, &experts, layers, &o);
    o.log = NULL;
    f->n_plan++;
    s = compile_graph(&x->compiled, f->g, &o, &e);
    if (s == PL_NO_MEMORY) {
        if (err)
            *err = e;
        return s;
    }
    if (s != PL_OK) {
        if (f->failed == PL_OK) {
            f->failed = s;
            f->why = e;
        }
        return PL_OK;
    }
    x->missing = all_missing(f, x->compiled);
    if (x->missing > 0 && x->missing < f->nearest_missing) {
        f->nearest_missing = x->missing;
        f->nearest = *c;
    }
    if (x->missing == 0) {
        s = price(f, x->compiled, &x->seconds, err);
        if (s == PL_OK)
            keep(f, c, x->seconds);
    }
    if (!t || s != PL_OK) {
        compiled_free(x->compiled);
        x->compiled = NULL;
    }
    return s;
}
