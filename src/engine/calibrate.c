/* Calibrating: one thread is measured alone, and as many as there are cores
 * together. */
#include "base/err.h"
#include "engine/probe.h"

#include <math.h>

/* On a busy machine threads wait for processors, not for each other. Together n
 * are no slower than one alone, and none is faster for company. */
static void keep_between(double *all, double one, double most)
{
    *all = fmin(fmax(*all, fmin(one, most)), fmax(one, most));
}

static void correct(struct cost_rates *all, const struct cost_rates *one, int n)
{
    for (int f = 0; f < PL_FORMAT_COUNT; f++) {
        keep_between(&all->bytes_per_s[f], one->bytes_per_s[f],
                     one->bytes_per_s[f] / n);
        keep_between(&all->macs_per_s[f], one->macs_per_s[f],
                     one->macs_per_s[f] / n);
    }
    keep_between(&all->attention_one, one->attention_one,
                 one->attention_one / n);
    keep_between(&all->attention_many, one->attention_many,
                 one->attention_many / n);
    keep_between(&all->copy_bytes_per_s, one->copy_bytes_per_s,
                 one->copy_bytes_per_s / n);
    for (int i = 0; i < COST_READS; i++)
        keep_between(&all->read_bytes_per_s[i], one->read_bytes_per_s[i],
                     one->read_bytes_per_s[i] / n);
    keep_between(&all->score_one_s, one->score_one_s, one->score_one_s * n);
    keep_between(&all->score_many_s, one->score_many_s, one->score_many_s * n);
    keep_between(&all->value_s, one->value_s, one->value_s * n);
    all->step_s = fmax(all->step_s, one->step_s);
}

pl_status calibration_measure(struct calibration *c, enum cpu_family f,
                              bool no_pin, const struct topology *t,
                              pl_err *err)
{
    calibration_init(c, f, t);
    PL_TRY(probe_threads(&c->one, f, no_pin, 1, err));
    c->all = c->one;
    if (c->n_core == 1)
        return PL_OK;
    PL_TRY(probe_threads(&c->all, f, no_pin, c->n_core, err));
    correct(&c->all, &c->one, c->n_core);
    if (c->n_core < 4) /* two devices of one thread, both times */
        c->one.message_s = c->all.message_s =
            sqrt(c->one.message_s * c->all.message_s);
    return PL_OK;
}
