/* Determines rates without measuring: from descriptions, this machine's
 * calibration, or defaults of a kernel set. */
#include "cost/rates.h"

#include "base/err.h"
#include "cost/calibration.h"
#include "lower/compile.h"

#include <stdlib.h>
#include <string.h>

pl_status rates_find(const struct compiled *q, struct calibration *c,
                     bool *kept, pl_err *err)
{
    pl_status s = PL_NOT_FOUND;

    if (!q->paper)
        s = calibration_load(c, q->kernel_set, q->list.topology, err);
    *kept = s == PL_OK;
    if (*kept)
        calibration_add_machines(c, &q->list);
    return s == PL_NO_MEMORY ? s : PL_OK;
}

/* Sets the rates of all devices from descriptions, from calibration `c` (may be
 * NULL) and from defaults, without measuring anything. Returns the
 * COST_GUESSED_ bits of the devices that are not in the calibration. */
static unsigned unmeasured(const struct device_list *l, enum kernel_set set,
                           const struct calibration *c, struct cost_rates *r)
{
    unsigned guessed = 0;

    for (int d = 0; d < l->n; d++) {
        const struct device_desc *x = &l->dev[d];

        if (!cost_has_spec_rates(x))
            cost_default_rates(&r[d], x, set);
        else if (x->io || (c && calibration_device(c, x)))
            cost_rates_from_spec(&r[d], x);
        else
            guessed |= cost_rates_from_spec(&r[d], x);
    }
    return guessed;
}

/* Sets what rates say of networks between machines, whatever else they come
 * from. */
static void place_in_network(const struct device_list *l, struct cost_rates *r)
{
    for (int d = 0; d < l->n; d++) {
        const struct device_desc *x = &l->dev[d];

        r[d].machine = x->machine;
        r[d].network_bytes_per_s = x->network_bytes_per_s;
        r[d].network_s = x->network_latency_s;
        if (!l->link)
            continue;
        r[d].link = l->link + (size_t)x->machine * (size_t)l->n_machine;
        r[d].n_link = l->n_machine;
    }
}

void rates_of_list(const struct device_list *l, enum kernel_set set,
                   const struct calibration *c, uint64_t weights,
                   struct cost_rates *r)
{
    unmeasured(l, set, c, r);
    if (c && calibration_covers(c, l))
        calibration_rates(c, l, weights, r);
    if (c)
        calibration_device_rates(c, l, r);
    place_in_network(l, r);
}

pl_status rates_known(const struct compiled *q, const struct calibration *c,
                      struct cost_rates *r, struct rates_basis *basis,
                      pl_err *err)
{
    size_t n = (size_t)q->list.n;
    struct device_list l = q->list;
    uint64_t weights = 0;

    if (q->paper)
        c = NULL;
    *basis =
        (struct rates_basis){.guessed = unmeasured(&l, q->kernel_set, c, r)};
    l.dev = malloc((n + 1) * sizeof *l.dev);
    if (!l.dev)
        return err_no_memory(err, "an estimate");
    memcpy(l.dev, q->list.dev, n * sizeof *l.dev);
    for (int d = 0; d < l.n; d++) {
        weights += q->low->prog[d].bytes[REGION_WEIGHTS];
        /* The plan does not use this device, so its threads are not counted
         * among those that compute at the same time and slow each other
         * down. */
        if (!q->low->prog[d].active && !l.dev[d].host)
            l.dev[d].n_thread = 0;
    }
    basis->calibrated = c && calibration_covers(c, &l);
    if (basis->calibrated)
        calibration_rates(c, &l, weights, r);
    if (c)
        calibration_device_rates(c, &l, r);
    place_in_network(&l, r);
    free(l.dev);
    return PL_OK;
}
