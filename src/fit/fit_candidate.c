/* Compiles one candidate, computes its memory and time, and keeps it if it is
 * the best. */
#include "fit/fit_internal.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>

struct fit_candidate *fit_ref(struct fit_candidate *p)
{
    if (p)
        p->n_ref++;
    return p;
}

void fit_unref(struct fit_candidate *p)
{
    if (!p || --p->n_ref > 0)
        return;
    compiled_free(p->q);
    compiled_free(p->block);
    free(p->need[0]);
    free(p);
}

/* Makes *to refer to p instead. */
static void take(struct fit_candidate **to, struct fit_candidate *p)
{
    fit_ref(p);
    fit_unref(*to);
    *to = p;
}

/* Returns true if the plan config is the one that options and defaults ask
 * for. */
static bool is_usual(const struct fit *f, const struct plan_config *in)
{
    const struct plan_config *u = &f->default_config;

    return in->mode == u->mode && in->width == u->width &&
           in->share == u->share && in->n_on == u->n_on &&
           in->experts == u->experts && in->n_ubatch == u->n_ubatch &&
           in->n_ctx == u->n_ctx;
}

static void keep(struct fit *f, struct fit_candidate *p)
{
    /* a longer context is worth a little */
    double worth = f->best && p->in.n_ctx > f->best->in.n_ctx ? 1.02 : 1;

    f->layers_fit |= p->in.mode == PL_SPLIT_LAYER;
    if (is_usual(f, &p->in))
        take(&f->usual_plan, p);
    if (!f->best || p->seconds < f->best->seconds * worth)
        take(&f->best, p);
}

void fit_keep_oversized(struct fit *f, struct fit_candidate *p)
{
    int at = f->n_lack;

    if (at == FIT_MAX_OVERSIZED && f->oversized[at - 1]->seconds <= p->seconds)
        return;
    if (at == FIT_MAX_OVERSIZED)
        fit_unref(f->oversized[--at]);
    for (; at > 0 && f->oversized[at - 1]->seconds > p->seconds; at--)
        f->oversized[at] = f->oversized[at - 1];
    f->oversized[at] = fit_ref(p);
    f->n_lack += f->n_lack < FIT_MAX_OVERSIZED;
}

/* Sets p->need. */
static pl_status find_needs(struct fit_candidate *p, pl_err *err)
{
    const int n = p->q->list.n;
    uint64_t *need = malloc(2 * (size_t)n * sizeof *need);

    if (!need)
        return err_no_memory(err, "a plan");
    p->need[0] = need;
    p->need[1] = need + n;
    for (int d = 0; d < n; d++)
        need[d] = need[n + d] = fit_need(p->q, d);
    for (int k = 0; p->block && k < p->block->list.n; k++) {
        int d = fit_same_device(p->q, &p->block->list.dev[k]);

        if (d >= 0)
            need[n + d] += fit_need(p->block, k);
    }
    return PL_OK;
}

pl_status candidate_compile(struct fit *f, const struct plan_config *in,
                            struct fit_candidate **out, pl_err *err)
{
    struct fit_candidate *p;
    pl_status s;
    pl_err e;

    *out = NULL;
    PL_TRY(err_cancelled(f->cancel, err));
    if (f->ready && is_usual(f, in)) {
        *out = f->ready;
        f->ready = NULL;
        return PL_OK;
    }
    p = calloc(1, sizeof *p);
    if (!p)
        return err_no_memory(err, "a plan");
    *p = (struct fit_candidate){.in = *in, .n_ref = 1, .seconds = INFINITY};
    f->n_plan++;
    s = compile_config(&p->q, in, &e);
    if (s == PL_OK && f->block)
        s = fit_block_compile(&p->block, f, in, &e);
    if (s != PL_OK) {
        fit_unref(p);
        if (s == PL_NO_MEMORY && err)
            *err = e;
        if (f->failed == PL_OK) {
            f->failed = s;
            f->why = e;
        }
        return s == PL_NO_MEMORY ? s : PL_OK;
    }
    s = find_needs(p, err);
    if (s != PL_OK) {
        fit_unref(p);
        return s;
    }
    p->missing = fit_all_lacks(f, p);
    *out = p;
    return PL_OK;
}

/* Returns true if a plan has all weights and caches on devices. */
static bool is_on_devices(const struct fit *f, const struct plan_config *in)
{
    return in->n_on > f->asked.n_layer && !in->cache && !in->experts &&
           in->n_override == 0;
}

/* Sets f->alone_s and f->fixed_s by a plan on one device with the rates r,
 * unless another device was faster: devices of machines that are alike may
 * differ in their networks. */
static void time_alone(struct fit *f, const struct fit_candidate *p,
                       const struct cost_rates *r)
{
    const struct graph_sizes one = graph_sizes_of(&p->q->max, 1, 1, 1);
    int d = p->in.main_device, n = 0;
    const struct variant *x = &p->q->low->prog[d].variant[0];

    for (int i = 0; i < x->n_insn; i++)
        n += x->insn[i].kind == INSN_KERNEL && !x->insn[i].in_launch &&
             (x->insn[i].max_rows == 0 ||
              insn_predicate_holds(&x->insn[i], &one));
    if (f->alone_s > 0 && f->alone_s <= p->seconds - p->prompt_s)
        return;
    f->alone_s = p->seconds - p->prompt_s;
    f->fixed_s = FIT_ANSWER * n * r[d].insn_s;
}

/* If k devices that are alike split each layer, each runs every kernel, and one
 * of them computes at least the k-th part of an answer. The usual plan is
 * compared with the best, so it is always needed. */
double candidate_bound(const struct fit *f, const struct plan_config *in)
{
    int k = in->mode == PL_SPLIT_NONE ? 1 : plan_config_widest(in);
    double least = f->fixed_s + (f->alone_s - f->fixed_s) / k;
    bool slower = f->best && least > f->best->seconds;

    return slower && is_on_devices(f, in) && !is_usual(f, in) ? least : 0;
}

/* Estimates the time of a plan, and keeps it as the best if it fits and is. */
static pl_status score(struct fit *f, struct fit_candidate *p, pl_err *err)
{
    struct cost_rates *r;

    PL_TRY(fit_rates(f, p->q, &r, err));
    PL_TRY(fit_seconds(p->q, r, f->default_config.n_ctx, &p->seconds,
                       &p->prompt_s, err));
    if (p->in.mode == PL_SPLIT_NONE && !f->unlike && is_on_devices(f, &p->in))
        time_alone(f, p, r);
    if (p->missing == 0)
        keep(f, p);
    else if (!f->nearest || p->missing < f->nearest->missing)
        take(&f->nearest, p);
    return PL_OK;
}

pl_status candidate_try(struct fit *f, const struct plan_config *in,
                        struct fit_candidate **out, pl_err *err)
{
    struct fit_candidate *p = NULL;
    pl_status s = PL_OK;

    if (!(candidate_bound(f, in) > 0))
        PL_TRY(candidate_compile(f, in, &p, err));
    if (p)
        s = score(f, p, err);
    if (s == PL_OK && out)
        *out = p;
    else
        fit_unref(p);
    return s;
}
