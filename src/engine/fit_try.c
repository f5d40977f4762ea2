/* One guess: planned for real, weighed, priced.
 *
 * Memory is what the devices would allocate, counted as device_set counts it:
 * cpu devices on one node share its memory, and with a host over all nodes all
 * of the machine's. */
#include "engine/fit_inner.h"

#include "base/err.h"
#include "engine/rates.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ------------------------------------------------------------ */

static uint64_t needed(const struct planned *q, int d)
{
    const struct program *p = &q->low->prog[d];
    uint64_t n =
        q->paper ? 0 : device_scratch_bytes(&q->list.dev[d], &q->kernels, p);

    for (int r = 0; r < REGION_COUNT; r++)
        n += p->bytes[r];
    return n;
}

int64_t fit_missing(const struct planned *q, int d, uint64_t margin)
{
    const struct device_desc *x = &q->list.dev[d];
    uint64_t all = 0;

    if (x->memory_bytes == 0)
        return INT64_MIN;
    for (int k = 0; k < q->list.n; k++)
        if (k == d || device_shares_memory(x, &q->list.dev[k]))
            all += needed(q, k);
    if (margin == FIT_NO_MARGIN)
        margin = 0;
    else if (margin == 0)
        margin = x->memory_bytes / 64;
    return (int64_t)(all + margin) - (int64_t)x->memory_bytes;
}

static int64_t all_missing(const struct fit *f, const struct planned *q)
{
    int64_t sum = 0;

    for (int d = 0; d < q->list.n; d++) {
        int64_t m = fit_missing(q, d, f->margin);

        sum += m > 0 ? m : 0;
    }
    return sum;
}

/* ---- speed ------------------------------------------------------------- */

/* One run of n tokens, by whichever script of one micro-batch is faster. */
static pl_status one(const struct planned *q, const struct cost_machine *m,
                     int64_t n, int64_t n_past, double *s, pl_err *err)
{
    const struct cost_step z = {{n, 1, q->max.n_slot}, n_past, 1};
    double stream;

    PL_TRY(cost_run(m, q->way[WAY_PLAIN], 1, &z, NULL, s, err));
    if (q->way[WAY_STREAM] < 0 || n < 2)
        return PL_OK;
    PL_TRY(cost_run(m, q->way[WAY_STREAM], 1, &z, NULL, &stream, err));
    *s = fmin(*s, stream);
    return PL_OK;
}

/* A prompt as the engine cuts it: alike for all micro-batches of a run. */
static pl_status prompt(const struct planned *q, const struct cost_machine *m,
                        int64_t n_tok, double *seconds, pl_err *err)
{
    enum { LEAST = 64 };
    int64_t past = 0;

    for (*seconds = 0; past < n_tok;) {
        int64_t left = n_tok - past, most = q->max.n_tok, n = left / LEAST;
        struct cost_step z[PLANNED_PIPELINE];
        double s;

        n = q->way[WAY_PIPELINE] < 0 ? 1
            : n < PLANNED_PIPELINE   ? n
                                     : PLANNED_PIPELINE;
        if (n < 2) {
            int64_t k = left < most ? left : most;

            PL_TRY(one(q, m, k, past, &s, err));
            *seconds += s;
            past += k;
            continue;
        }
        if ((left + n - 1) / n < most)
            most = (left + n - 1) / n;
        for (n = 0; n < PLANNED_PIPELINE && past < n_tok; n++) {
            int64_t k = n_tok - past < most ? n_tok - past : most;

            z[n] = (struct cost_step){{k, 0, q->max.n_slot}, past, 1};
            past += k;
        }
        z[n - 1].sizes.n_out = past == n_tok;
        PL_TRY(cost_run(m, q->way[WAY_PIPELINE], (int)n, z, NULL, &s, err));
        *seconds += s;
    }
    return PL_OK;
}

pl_status fit_seconds(const struct planned *q, const struct cost_rates *rates,
                      double *seconds, pl_err *err)
{
    size_t n = (size_t)q->list.n;
    int *lane = calloc(2 * n + 1, sizeof *lane);
    struct cost_machine m = {.n_dev = q->list.n,
                             .prog = q->low->prog,
                             .rates = rates,
                             .lane0 = lane};
    int64_t n_prompt = q->max.n_slot < FIT_PROMPT ? q->max.n_slot : FIT_PROMPT;
    double all, token;
    pl_status s;

    if (!lane)
        return err_no_memory(err, "an estimate");
    m.n_lane = lane + n;
    cost_lanes(&q->list, lane, lane + n);
    s = prompt(q, &m, n_prompt, &all, err);
    if (s == PL_OK)
        s = one(q, &m, 1, n_prompt - 1, &token, err);
    if (s == PL_OK)
        *seconds = all + FIT_ANSWER * token;
    free(lane);
    return s;
}

static pl_status price(const struct fit *f, const struct planned *q,
                       double *seconds, pl_err *err)
{
    struct cost_rates *r = calloc((size_t)q->list.n + 1, sizeof *r);
    struct rates_basis basis;
    pl_status s;

    if (!r)
        return err_no_memory(err, "an estimate");
    s = rates_known(q, f->calibrated ? &f->cal : NULL, r, &basis, err);
    if (s == PL_OK)
        s = fit_seconds(q, r, seconds, err);
    free(r);
    return s;
}

/* ---- a guess ----------------------------------------------------------- */

void fit_options(const struct fit *f, const struct fit_choice *c,
                 struct fit_text *experts, char layers[16], pl_options *out)
{
    *out = *f->opt;
    out->split_mode = c->mode;
    out->hybrid_size = c->width;
    out->main_device = c->main_device;
    out->n_ranks = c->n_ranks;
    out->n_ubatch = c->n_ubatch;
    out->n_ctx = c->n_ctx;
    if (c->split) {
        out->tensor_split = c->split;
        out->n_tensor_split = f->list.n;
    }
    if (c->n_on >= 0) {
        snprintf(layers, 16, "%d", c->n_on);
        out->device_layers = layers;
    }
    experts->n = 0;
    if (c->experts) {
        fit_ranges(experts, c->experts, f->n_layer);
        out->host_experts = experts->n > 0 ? experts->s : NULL;
    }
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
    s = planned_create(&x->planned, f->g, &o, &e);
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
    x->missing = all_missing(f, x->planned);
    if (x->missing > 0 && x->missing < f->nearest_missing) {
        f->nearest_missing = x->missing;
        f->nearest = *c;
    }
    if (x->missing == 0) {
        s = price(f, x->planned, &x->seconds, err);
        if (s == PL_OK)
            keep(f, c, x->seconds);
    }
    if (!t || s != PL_OK) {
        planned_free(x->planned);
        x->planned = NULL;
    }
    return s;
}
