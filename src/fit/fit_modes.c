/* Tries split modes and numbers of devices: those of -sm auto, or the one mode
 * that was asked for, with the usual shares.
 *
 * Fewer devices are tried as long as that is faster. Candidates that lack
 * memory are kept for fit_spill.c. */
#include "fit/fit_internal.h"

#include "base/err.h"
#include "cost/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of devices: plans are cheap to make up to FEW, expensive from
 * MANY. */
enum { FEW = 4, MANY = 16 };

/* ---- shares ------------------------------------------------------------ */

enum shares { AS_IT_COMES, EVEN, BY_SPEED, BY_MEMORY, SHARES_COUNT };

/* Returns the speed of a device: one divided by the seconds that a byte of
 * weights takes in a prompt, multiplied once per token, and in its answer. */
static double speed_of(const struct cost_rates *r)
{
    return 1 /
           (fmax(1 / r->read_bytes_per_s, FIT_PROMPT / r->block_macs_per_s) +
            FIT_ANSWER / r->read_bytes_per_s);
}

pl_status fit_find_speeds(struct fit *f, pl_err *err)
{
    const struct device_list *l = &f->asked.list;
    struct cost_rates *r = calloc((size_t)l->n + 1, sizeof *r);

    f->speed = arena_alloc(&f->arena, (size_t)l->n + 1, sizeof *f->speed);
    if (!r || !f->speed) {
        free(r);
        return err_no_memory(err, "an estimate");
    }
    rates_of_list(l, f->asked.kernel_set, f->calibrated ? &f->cal : NULL,
                  f->weights, r);
    for (int d = 0; d < l->n; d++)
        f->speed[d] = speed_of(&r[d]);
    free(r);
    return PL_OK;
}

/* Returns true if device d is one of the k fastest. Among devices that are
 * alike, the first count as faster. */
static bool among_fastest(const struct fit *f, int d, int k)
{
    int before = 0;

    for (int i = 0; i < f->asked.list.n; i++)
        before += f->speed[i] > f->speed[d] ||
                  (i < d && !(f->speed[i] < f->speed[d]));
    return before < k;
}

/* Makes shares of a kind: whole numbers for the k fastest devices, 0 for the
 * others. */
static pl_status make_shares(struct fit *f, enum shares kind, int k,
                             const double **out, pl_err *err)
{
    const struct device_list *l = &f->asked.list;
    double *v, most = 0;

    *out = NULL;
    if (kind == AS_IT_COMES)
        return PL_OK;
    v = arena_alloc(&f->arena, (size_t)l->n, sizeof *v);
    if (!v)
        return err_no_memory(err, "shares of devices");
    for (int d = 0; d < l->n; d++) {
        const struct device_desc *x = &l->dev[d];

        if (k < l->n && !among_fastest(f, d, k))
            continue;
        v[d] = kind == EVEN        ? 1
               : kind == BY_MEMORY ? (double)fit_memory(f, x)
                                   : f->speed[d];
        most = fmax(most, v[d]);
    }
    for (int d = 0; d < l->n && kind != EVEN; d++)
        if (v[d] > 0)
            v[d] = fmax(1, round(64 * v[d] / most));
    *out = v;
    return PL_OK;
}

/* Returns true if the mode puts accelerators and others into one group, but the
 * k fastest devices are all accelerators, or none is. */
static bool is_homogeneous(const struct fit *f, const struct plan_config *c,
                           int k)
{
    const struct device_list *l = &f->asked.list;
    int n_accelerator = 0;

    for (int d = 0; d < l->n; d++)
        n_accelerator += among_fastest(f, d, k) && l->dev[d].accelerator;
    return plan_config_is_mixed(c, NULL) &&
           (n_accelerator == 0 || n_accelerator == k);
}

/* Returns true if a kind of shares is worth trying. Devices that are alike get
 * even shares. Otherwise layers are apportioned by memory and ranks evenly, or
 * both by speed; ranks are apportioned by memory only if nothing else fits. In
 * mixed groups ranks are already apportioned by speed. */
static bool worth_trying(const struct fit *f, enum shares kind, int k,
                         const struct plan_config *c, double seconds)
{
    bool all = k == f->asked.list.n;

    switch (kind) {
    case AS_IT_COMES: /* no shares given: all devices get some */
        return all;
    case EVEN:
        return f->may.share && !all && (!f->unlike || is_homogeneous(f, c, k));
    case BY_SPEED:
        return f->may.share && f->unlike &&
               !(all && plan_config_is_mixed(c, NULL));
    default:
        return f->may.share && f->unlike && f->known &&
               c->mode == PL_SPLIT_TENSOR && seconds == INFINITY;
    }
}

pl_status fit_assign_ranks(struct fit *f, struct plan_config *x, pl_err *err)
{
    if (x->n_rank > 0 || x->share || !plan_config_is_mixed(x, NULL))
        return PL_OK;
    x->n_rank = PLAN_CONFIG_MIXED_RANKS;
    return make_shares(f, BY_SPEED, f->asked.list.n, &x->share, err);
}

/* Sets *x to mode c->mode on the k fastest devices with a kind of shares. If
 * shares are even, fewer devices have equal ranks. Uneven shares are ranks of
 * their own, except for mixed groups, whose ranks are apportioned whole. */
static pl_status share_out(struct fit *f, const struct plan_config *c, int k,
                           enum shares kind, struct plan_config *out,
                           pl_err *err)
{
    *out = *c;
    if (kind == AS_IT_COMES)
        return fit_assign_ranks(f, out, err);
    PL_TRY(make_shares(f, kind, k, &out->share, err));
    if (out->n_rank > 0)
        return PL_OK;
    if (plan_config_is_mixed(out, out->share))
        out->n_rank = PLAN_CONFIG_MIXED_RANKS;
    else if (c->mode == PL_SPLIT_TENSOR && kind == EVEN)
        out->n_rank = k;
    return PL_OK;
}

/* ---- candidates ---------------------------------------------------------- */

/* Returns true if the k fastest devices lack memory for the weights alone. */
static bool cannot_hold_weights(const struct fit *f, int k)
{
    const struct device_list *l = &f->asked.list;
    uint64_t sum = 0;

    for (int d = 0; d < l->n; d++)
        if (among_fastest(f, d, k))
            sum += fit_memory(f, &l->dev[d]);
    return f->known && sum < f->weights;
}

static pl_status guess(struct fit *f, const struct plan_config *c,
                       double *seconds, pl_err *err)
{
    double bound = candidate_bound(f, c);
    struct fit_candidate *p;

    PL_TRY(candidate_try(f, c, &p, err));
    *seconds = p && p->missing == 0 ? p->seconds : bound > 0 ? bound : INFINITY;
    if (p && p->missing > 0)
        fit_keep_oversized(f, p);
    fit_unref(p);
    return PL_OK;
}

/* Tries mode c->mode on the k fastest devices, with all kinds of shares. */
static pl_status with_shares(struct fit *f, const struct plan_config *c, int k,
                             double *seconds, pl_err *err)
{
    *seconds = INFINITY;
    for (int kind = 0; kind < SHARES_COUNT; kind++) {
        struct plan_config x;
        double s;

        if (!worth_trying(f, kind, k, c, *seconds))
            continue;
        PL_TRY(share_out(f, c, k, kind, &x, err));
        PL_TRY(guess(f, &x, &s, err));
        *seconds = fmin(*seconds, s);
    }
    return PL_OK;
}

/* Tries all devices, then fewer as long as that is faster. */
static pl_status try_fewer_devices(struct fit *f, const struct plan_config *c,
                                   pl_err *err)
{
    double before = INFINITY, s;

    for (int k = f->asked.list.n; k > 1;
         k = f->unlike && k <= FEW ? k - 1 : k / 2) {
        if (k < f->asked.list.n && (!f->may.share || cannot_hold_weights(f, k)))
            break;
        PL_TRY(with_shares(f, c, k, &s, err));
        if (s >= before)
            break;
        before = s;
    }
    return PL_OK;
}

/* Tries few of many devices, then more as long as that is faster, because plans
 * of a tensor split over all of them take longest to make. */
static pl_status try_more_devices(struct fit *f, const struct plan_config *c,
                                  pl_err *err)
{
    int n = f->asked.list.n, halvings = 0;
    double before = INFINITY, s;

    while (f->may.share && n >> (halvings + 1) > FEW &&
           !cannot_hold_weights(f, n >> (halvings + 1)))
        halvings++;
    for (; halvings >= 0; halvings--) {
        int k = n >> halvings;

        if (c->n_rank == 0 && k > PL_MAX_RANKS)
            break;
        PL_TRY(with_shares(f, c, k, &s, err));
        if (s > before)
            break;
        before = s;
    }
    return PL_OK;
}

/* Tries the fastest device. If it lacks memory, also tries the fastest with
 * more memory, with enough for all weights if any has that. */
static pl_status try_one_device(struct fit *f, const struct plan_config *c,
                                pl_err *err)
{
    const struct device_list *l = &f->asked.list;
    uint64_t room = 0, most = 0;
    struct plan_config x = *c;
    double s = INFINITY;

    x.mode = PL_SPLIT_NONE;
    if (x.main_device > 0) /* the options name this device */
        return guess(f, &x, &s, err);
    for (int d = 0; d < l->n; d++)
        if (fit_memory(f, &l->dev[d]) > most)
            most = fit_memory(f, &l->dev[d]);
    for (int i = 0; i < 3 && s == INFINITY; i++) {
        int best = -1;

        for (int d = 0; d < l->n; d++)
            if ((i == 0 || fit_memory(f, &l->dev[d]) > room) &&
                (best < 0 || f->speed[d] > f->speed[best]))
                best = d;
        if (best < 0)
            break;
        x.main_device = best;
        room = fit_memory(f, &l->dev[best]);
        if (room < f->weights && f->weights < most)
            room = f->weights;
        PL_TRY(guess(f, &x, &s, err));
    }
    return PL_OK;
}

/* ---- machines ------------------------------------------------------------ */

static int count_on(const struct fit *f, int machine)
{
    int n = 0;

    for (int d = 0; d < f->asked.list.n; d++)
        n += f->asked.list.dev[d].machine == machine;
    return n;
}

/* Returns the index of the machine's device after d; list.n if there is
 * none. */
static int next_on(const struct fit *f, int machine, int d)
{
    do
        d++;
    while (d < f->asked.list.n && f->asked.list.dev[d].machine != machine);
    return d;
}

/* Returns true if machine a reaches machine 0, which feeds it, at least like
 * machine b. Machine 0 reaches itself in another way. */
static bool have_same_network(const struct fit *f, int a, int b)
{
    const struct device_list *l = &f->asked.list;
    const struct device_desc *x = &l->dev[next_on(f, a, -1)];
    const struct device_desc *y = &l->dev[next_on(f, b, -1)];

    if (a == 0)
        return false;
    if (l->link)
        return l->link[a].bytes_per_s >= l->link[b].bytes_per_s &&
               l->link[a].latency_s <= l->link[b].latency_s;
    return x->network_bytes_per_s >= y->network_bytes_per_s &&
           x->network_latency_s <= y->network_latency_s;
}

static bool are_alike(const struct fit *f, int a, int b)
{
    int d = next_on(f, a, -1), e = next_on(f, b, -1), n = f->asked.list.n;

    for (; d < n && e < n; d = next_on(f, a, d), e = next_on(f, b, e)) {
        const struct device_desc *x = &f->asked.list.dev[d];
        const struct device_desc *y = &f->asked.list.dev[e];

        if (x->ops != y->ops || fit_memory(f, x) != fit_memory(f, y) ||
            f->speed[d] < f->speed[e] || f->speed[d] > f->speed[e])
            return false;
    }
    return d == n && e == n && have_same_network(f, a, b);
}

/* Returns true if a machine before this one has the same devices. */
static bool is_repeated(const struct fit *f, int machine)
{
    for (int k = 0; k < machine; k++)
        if (are_alike(f, k, machine))
            return true;
    return false;
}

/* Makes shares of the first k devices of a machine, in proportion to their
 * speeds. Sets *even to true if they are equal. */
static pl_status share_machine(struct fit *f, int machine, int k,
                               const double **out, bool *even, pl_err *err)
{
    int n = f->asked.list.n, first = next_on(f, machine, -1);
    double *v = arena_alloc(&f->arena, (size_t)n, sizeof *v), most = 0;

    if (!v)
        return err_no_memory(err, "shares of devices");
    *even = true;
    for (int d = first, i = 0; d < n && i < k;
         d = next_on(f, machine, d), i++) {
        v[d] = f->speed[d];
        most = fmax(most, v[d]);
        *even = *even && f->speed[d] >= f->speed[first] &&
                f->speed[d] <= f->speed[first];
    }
    for (int d = 0; d < n; d++)
        if (v[d] > 0)
            v[d] = *even ? 1 : fmax(1, round(64 * v[d] / most));
    *out = v;
    return PL_OK;
}

/* Tries the first k devices of a machine as one group. */
static pl_status try_on_machine(struct fit *f, const struct plan_config *c,
                                int machine, int k, double *seconds,
                                pl_err *err)
{
    struct plan_config x = *c;
    bool even;

    x.mode = PL_SPLIT_TENSOR;
    PL_TRY(share_machine(f, machine, k, &x.share, &even, err));
    if (x.n_rank == 0 && plan_config_is_mixed(&x, x.share))
        x.n_rank = PLAN_CONFIG_MIXED_RANKS;
    else if (x.n_rank == 0 && even)
        x.n_rank = k;
    return guess(f, &x, seconds, err);
}

/* Tries the fastest device of a machine. */
static pl_status try_device_on(struct fit *f, const struct plan_config *c,
                               int machine, pl_err *err)
{
    int n = f->asked.list.n, best = next_on(f, machine, -1);
    struct plan_config x = *c;
    double s;

    if (c->main_device > 0) /* the options name the device */
        return PL_OK;
    for (int d = best; d < n; d = next_on(f, machine, d))
        if (f->speed[d] > f->speed[best])
            best = d;
    x.mode = PL_SPLIT_NONE;
    x.main_device = best;
    return guess(f, &x, &s, err);
}

/* Tries one machine alone: its fastest device, all its devices as a group,
 * fewer of them as long as that is faster, in groups of two, four and so on,
 * and some layers each. */
static pl_status try_machine(struct fit *f, const struct plan_config *c,
                             int machine, pl_err *err)
{
    int n = count_on(f, machine), first = next_on(f, machine, -1);
    double before = INFINITY, s;
    struct plan_config x = *c;
    bool even;

    PL_TRY(try_device_on(f, c, machine, err));
    for (int k = n; k > 1; k /= 2) {
        if (c->n_rank == 0 && k > PL_MAX_RANKS)
            continue;
        PL_TRY(try_on_machine(f, c, machine, k, &s, err));
        if (s >= before)
            break;
        before = s;
    }
    PL_TRY(share_machine(f, machine, n, &x.share, &even, err));
    x.mode = PL_SPLIT_HYBRID;
    for (x.width = 2; x.width < n && n <= MANY; x.width *= 2)
        if (n % x.width == 0 && first % x.width == 0)
            PL_TRY(guess(f, &x, &s, err));
    x.mode = PL_SPLIT_LAYER;
    return n > 1 ? guess(f, &x, &s, err) : PL_OK;
}

/* Tries each machine alone, and all with layers across and tensors within. */
static pl_status try_machines(struct fit *f, const struct plan_config *c,
                              pl_err *err)
{
    struct plan_config x = *c;
    bool several = false;
    double s;

    for (int k = 0; k < f->n_machine; k++) {
        int n = count_on(f, k);

        several |= n > 1;
        if (n > 0 && f->may.share && !is_repeated(f, k))
            PL_TRY(try_machine(f, c, k, err));
    }
    x.mode = PL_SPLIT_HYBRID;
    x.width = PLAN_CONFIG_BY_MACHINE;
    if (!several || f->n_machine < 2 ||
        (c->n_rank == 0 && plan_config_widest(&x) > PL_MAX_RANKS))
        return PL_OK;
    return guess(f, &x, &s, err);
}

static pl_status hybrids(struct fit *f, const struct plan_config *c,
                         pl_err *err)
{
    double before = INFINITY, s;

    /* wide groups of many devices take as long to plan as all the rest */
    int widest = f->asked.list.n > MANY ? 8 : PL_MAX_RANKS;

    for (int w = 2; w < f->asked.list.n && w <= widest; w++) {
        struct plan_config x = *c;

        if (f->asked.list.n % w != 0 ||
            (f->asked.list.n > MANY && (w & (w - 1)) != 0))
            continue;
        x.mode = PL_SPLIT_HYBRID;
        x.width = w;
        PL_TRY(with_shares(f, &x, f->asked.list.n, &s, err));
        if (s >= before)
            break;
        before = s;
    }
    return PL_OK;
}

static pl_status all_modes(struct fit *f, const struct plan_config *start,
                           pl_err *err)
{
    struct plan_config x = *start;

    if (x.mode == PL_SPLIT_TENSOR)
        PL_TRY(f->asked.list.n > MANY ? try_more_devices(f, &x, err)
                                      : try_fewer_devices(f, &x, err));
    PL_TRY(try_one_device(f, &x, err));
    if (f->n_machine > 1)
        PL_TRY(try_machines(f, start, err));
    x.mode = PL_SPLIT_LAYER;
    PL_TRY(try_fewer_devices(f, &x, err));
    return hybrids(f, start, err);
}

pl_status fit_search(struct fit *f, pl_err *err)
{
    const struct plan_config *start = &f->default_config;
    double s;

    if (f->may.mode)
        PL_TRY(all_modes(f, start, err));
    else if (start->mode == PL_SPLIT_NONE || f->asked.list.n <= 1)
        PL_TRY(guess(f, start, &s, err));
    else
        PL_TRY(with_shares(f, start, f->asked.list.n, &s, err));
    if (f->may.mode || start->mode == PL_SPLIT_LAYER)
        PL_TRY(fit_balance_layers(f, err));
    PL_TRY(fit_spill(f, err));
    if (!f->best)
        return PL_OK;
    PL_TRY(fit_local_search(f, err));
    return fit_grow_context(f, err);
}
