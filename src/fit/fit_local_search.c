/* Makes small changes to a candidate: moves layers from one group to another,
 * if that frees memory or balances work, and changes the context. */
#include "fit/fit_internal.h"

#include "base/err.h"
#include "cost/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_GROUPS = 16, MOST_SHIFTS = 4, MOST_LEVELS = 3, CTX_STEP = 256 };

/* Returns the number of groups of neighbours between which layers may be moved;
 * 1 if that is not worth trying. */
static int count_groups(const struct fit *f, const struct plan_config *in)
{
    int n = 0, width = in->width;

    if (in->mode != PL_SPLIT_LAYER && in->mode != PL_SPLIT_HYBRID)
        return 1;
    if (in->mode == PL_SPLIT_HYBRID && width > 0 && f->asked.list.n % width)
        return 1;
    for (int d = 0; d < f->asked.list.n; n++)
        d = plan_config_group_end(in, d);
    return n;
}

/* Counts the layers of each group. */
static void count_layers(const struct compiled *q, int n_group, int *count)
{
    memset(count, 0, (size_t)n_group * sizeof *count);
    for (int l = 0; l <= q->place.n_layer; l++)
        if (q->place.layer_group[l] < n_group)
            count[q->place.layer_group[l]]++;
}

/* Returns a number that the widths of all groups divide. */
static double common_multiple(const struct plan_config *in)
{
    int64_t m = 1;

    for (int d = 0, end; d < in->list.n; d = end) {
        int64_t n, k = 1;

        end = plan_config_group_end(in, d);
        n = end - d;
        while (k < n && m * k % n != 0)
            k++;
        m *= k;
        if (m > 1 << 20) /* nearly equal shares will do */
            return (double)m;
    }
    return (double)m;
}

/* Sets the shares with which group k has count[k] layers. */
static pl_status share_layers(struct fit *f, struct plan_config *x,
                              const int *count, pl_err *err)
{
    int n = f->asked.list.n;
    double *share = arena_alloc(&f->arena, (size_t)n, sizeof *share);
    double multiple = common_multiple(x);

    if (!share)
        return err_no_memory(err, "shares of devices");
    for (int d = 0, k = 0, end; d < n; k++) {
        double each;

        end = plan_config_group_end(x, d);
        each = count[k] * multiple / (end - d);
        while (d < end)
            share[d++] = each;
    }
    x->share = share;
    return PL_OK;
}

/* ---- evening out -------------------------------------------------------- */

/* Returns the average number of bytes of a layer's weights and caches. */
static double layer_bytes(const struct compiled *q)
{
    double all = 0;

    for (int d = 0; d < compiled_devices(q); d++)
        all += (double)(q->low->prog[d].bytes[REGION_WEIGHTS] +
                        q->low->prog[d].bytes[REGION_CACHE]);
    return all / (q->place.n_layer + 1);
}

/* Returns the largest number of bytes of a device besides weights and
 * caches. */
static double buffer_bytes(const struct compiled *q)
{
    double most = 0;

    for (int d = 0; d < compiled_devices(q); d++) {
        const size_t *bytes = q->low->prog[d].bytes;
        double sum = 0;

        for (int r = 0; r < REGION_COUNT; r++)
            if (r != REGION_WEIGHTS && r != REGION_CACHE)
                sum += (double)bytes[r];
        most = fmax(most, sum);
    }
    return most;
}

/* Returns true if device a, which lacks lack[a] bytes, is a better target for a
 * layer than b. Devices with space for it come first, the fastest before the
 * others; then those that have the most memory. */
static bool better_target(const struct fit *f, const double *lack, double layer,
                          int a, int b)
{
    bool room[2] = {lack[a] + layer <= 0, lack[b] + layer <= 0};

    if (room[0] != room[1])
        return room[0];
    if (room[0] && f->speed[a] != f->speed[b])
        return f->speed[a] > f->speed[b];
    return lack[a] < lack[b];
}

/* Moves layers from devices that lack memory to devices that have space, by the
 * needs of p. Returns false if there is no space. */
static bool level_by_memory(const struct fit *f, const struct fit_candidate *p,
                            int *count)
{
    int n = f->asked.list.n;
    double lack[MOST_GROUPS], layer = layer_bytes(p->q);

    count_layers(p->q, n, count);
    for (int d = 0; d < n; d++) {
        lack[d] = (double)fit_lacks(f, p, d);
        if (count[d] == 0)
            lack[d] = fmin(0, lack[d] + buffer_bytes(p->q));
    }
    for (int i = 0; i <= f->asked.n_layer; i++) {
        int a = 0, b = 0;

        for (int d = 1; d < n; d++) {
            a = lack[d] > lack[a] ? d : a;
            b = better_target(f, lack, layer, d, b) ? d : b;
        }
        if (lack[a] <= 0)
            break;
        if (lack[b] >= 0 || count[a] == 0)
            return false;
        count[a]--;
        count[b]++;
        /* the device is left idle */
        lack[a] = count[a] > 0 ? lack[a] - layer : 0;
        lack[b] += layer;
    }
    return true;
}

/* Tries layer mode with the shares of x, and then with others as long as memory
 * is missing. */
static pl_status even_out(struct fit *f, struct plan_config *x, bool keep,
                          pl_err *err)
{
    int count[MOST_GROUPS];
    bool more = true;

    for (int i = 0; i < MOST_LEVELS && more; i++) {
        struct fit_candidate *p;

        PL_TRY(candidate_try(f, x, &p, err));
        if (p && p->missing > 0 && (i > 0 || keep))
            fit_keep_oversized(f, p);
        more = p && p->missing > 0 && level_by_memory(f, p, count);
        fit_unref(p);
        if (more)
            PL_TRY(share_layers(f, x, count, err));
    }
    return PL_OK;
}

/* Sets count[] to as many layers on each device as fit, the fastest devices
 * first, by what a plan of any mode needs. Returns false if one device holds
 * all, or if all together do not. */
static bool fill(const struct fit *f, const struct compiled *q, int *count)
{
    const struct device_list *l = &f->asked.list;
    double layer = layer_bytes(q), buffers = buffer_bytes(q);
    bool full[MOST_GROUPS] = {false};
    int left = f->asked.n_layer + 1, n_used = 0;

    memset(count, 0, (size_t)l->n * sizeof *count);
    while (left > 0) {
        int best = -1;
        double room;

        for (int d = 0; d < l->n; d++)
            if (!full[d] && (best < 0 || f->speed[d] > f->speed[best]))
                best = d;
        if (best < 0)
            return false;
        full[best] = true;
        room = (double)fit_memory(f, &l->dev[best]) -
               (double)fit_memory(f, &l->dev[best]) / 64 - buffers;
        count[best] = (int)fmin(left, fmax(0, room / layer));
        left -= count[best];
        n_used += count[best] > 0;
    }
    return n_used > 1;
}

pl_status fit_balance_layers(struct fit *f, pl_err *err)
{
    const struct fit_candidate *any = f->best ? f->best : f->nearest;
    int n = f->asked.list.n, count[MOST_GROUPS];
    struct plan_config x = f->default_config;
    bool may_fill;

    if (!any || !f->may.share || n < 2 || n > MOST_GROUPS)
        return PL_OK;
    x.mode = PL_SPLIT_LAYER;
    may_fill = f->unlike && f->known && fill(f, any->q, count);
    /* none fits as it is; a smaller micro-batch leaves more space */
    for (int i = 0; i <= (f->unlike && f->may.ubatch ? 2 : 0) && !f->layers_fit;
         i += 2) {
        x.share = f->default_config.share;
        x.n_ubatch = fit_ubatch(&f->default_config, i);
        PL_TRY(even_out(f, &x, false, err));
    }
    x.n_ubatch = f->default_config.n_ubatch;
    if (!may_fill)
        return PL_OK;
    PL_TRY(share_layers(f, &x, count, err));
    return even_out(f, &x, true, err);
}

/* ---- small changes ----------------------------------------------------- */

/* Computes the seconds that each of the groups works in a prompt and its
 * answer. */
static pl_status find_work(struct fit *f, const struct compiled *q, int n_group,
                           double *work, pl_err *err)
{
    struct cost_use *use =
        arena_alloc(&f->arena, (size_t)q->list.n, sizeof *use);
    struct cost_machine m = {.n_dev = q->list.n, .prog = q->low->prog};
    struct cost_rates *r;
    double s;

    if (!use)
        return err_no_memory(err, "an estimate");
    PL_TRY(fit_rates(f, q, &r, err));
    m.rates = r;
    memset(work, 0, (size_t)n_group * sizeof *work);
    for (int i = 0; i < 2; i++) {
        int64_t n_tok = i ? 1 : FIT_PROMPT, past = i ? FIT_PROMPT : 0;

        if (n_tok > f->default_config.n_ctx)
            n_tok = f->default_config.n_ctx;
        PL_TRY(cost_tokens(&m, n_tok, past, use, &s, err));
        for (int k = 0; k < n_group; k++) {
            const struct place_group *g = &q->place.group[k];

            work[k] += (i ? FIT_ANSWER : 1) *
                       use[q->place.member[g->first].dev].busy_s;
        }
    }
    return PL_OK;
}

/* Moves one layer of the group that works longest to another group, first to
 * the one that works least, until that is faster. Sets *better to true if it
 * is. */
static pl_status move_one_layer(struct fit *f, bool *better, pl_err *err)
{
    struct fit_candidate *p = fit_ref(f->best);
    double before = p->seconds, work[MOST_GROUPS];
    int n = count_groups(f, &p->in), count[MOST_GROUPS];
    int busy = 0;
    pl_status s = PL_OK;

    *better = false;
    if (n > 1)
        s = find_work(f, p->q, n, work, err);
    if (s == PL_OK && n > 1)
        count_layers(p->q, n, count);
    for (int k = 1; k < n && s == PL_OK; k++)
        busy = count[busy] == 0 || (count[k] > 0 && work[k] > work[busy])
                   ? k
                   : busy;
    for (int i = 0; i < n - 1 && i < MOST_SHIFTS && s == PL_OK && !*better;
         i++) {
        struct plan_config x = p->in;
        int to = -1;

        for (int k = 0; k < n; k++)
            if (k != busy && work[k] >= 0 && (to < 0 || work[k] < work[to]))
                to = k;
        work[to] = -1; /* tried */
        count[busy]--;
        count[to]++;
        s = share_layers(f, &x, count, err);
        if (s == PL_OK)
            s = candidate_try(f, &x, NULL, err);
        count[busy]++;
        count[to]--;
        *better = f->best->seconds < before * 0.999;
    }
    fit_unref(p);
    return s;
}

pl_status fit_local_search(struct fit *f, pl_err *err)
{
    bool better = true;

    while (better && f->may.share && f->n_plan < f->budget &&
           count_groups(f, &f->best->in) <= MOST_GROUPS)
        PL_TRY(move_one_layer(f, &better, err));
    return PL_OK;
}

pl_status fit_grow_context(struct fit *f, pl_err *err)
{
    struct plan_config x = f->best->in;
    int64_t lo = x.n_ctx, hi = f->ctx_most;

    for (x.n_ctx = hi; f->may.ctx && lo < hi; x.n_ctx = lo + (hi - lo) / 2) {
        struct fit_candidate *p;

        PL_TRY(candidate_try(f, &x, &p, err));
        *(p && p->missing == 0 ? &lo : &hi) = x.n_ctx;
        fit_unref(p);
        if (hi - lo <= CTX_STEP)
            break;
    }
    return PL_OK;
}
