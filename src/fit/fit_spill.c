/* What does not fit goes to the host: whole layers, experts of some, and the
 * micro-batch may shrink. Which of all ways is best, over the modes and shares
 * that lacked memory, sketches say; what they propose is compiled, the most
 * promising first, until none promises more than what fits. */
#include "base/err.h"
#include "fit/fit_surrogate.h"

#include <math.h>
#include <string.h>

enum {
    MOST_FITTING = 3, /* proposals that fit */
    MOST_PLANS = 10,
    MOST_SHORTENED = 3,
};
/* What a proposal must promise to be worth a plan, beside the best guess. */
static const double worth = 0.98;

/* The sketch that proposes the fastest, and what it proposes. */
static pl_status find_best(struct fit_surrogate *const *k, int n,
                           struct fit_surrogate **best, struct spill_choice *r,
                           pl_err *err)
{
    *best = NULL;
    *r = (struct spill_choice){.seconds = INFINITY};
    for (int i = 0; i < n; i++) {
        struct spill_choice x;

        PL_TRY(fit_sketch_best(k[i], &x, err));
        if (x.seconds < r->seconds) {
            *r = x;
            *best = k[i];
        }
    }
    return PL_OK;
}

static pl_status try_spills(struct fit *f, struct fit_surrogate *const *k,
                            int n, pl_err *err)
{
    for (int i = 0, fitting = 0; i < MOST_PLANS && fitting < MOST_FITTING;
         i++) {
        struct fit_surrogate *best;
        struct spill_choice r;
        struct fit_candidate *p;
        struct plan_config in;
        pl_status s;

        PL_TRY(find_best(k, n, &best, &r, err));
        if (!best || (f->best && r.seconds > worth * f->best->seconds))
            break;
        PL_TRY(fit_surrogate_config(best, &r, &in, err));
        PL_TRY(candidate_try(f, &in, &p, err));
        fitting += p && p->missing == 0;
        s = fit_surrogate_correct(best, &r, p, err);
        fit_unref(p);
        PL_TRY(s);
    }
    return PL_OK;
}

/* The fastest that lacked memory, with the shortest context that will do. */
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
    struct fit_surrogate *k[FIT_MAX_OVERSIZED];
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
        s = fit_sketch_make(&k[i], f, f->oversized[i], h, err);
    if (s == PL_OK)
        s = try_spills(f, k, f->n_lack, err);
    fit_unref(h);
    return s;
}
