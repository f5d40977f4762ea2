/* The rates of a plan's devices, and the sources of these rates. */
#ifndef COST_RATES_H
#define COST_RATES_H

#include "cost/calibration.h"
#include "lower/compile.h"

/* The sources of the rates of a plan's devices. */
struct rates_basis {
    bool calibrated;  /* the calibration of this machine applies to the CPU
                         devices */
    unsigned guessed; /* COST_GUESSED_ bits: figures guessed because a
                         description lacks them */
};

/* Loads the calibration of this machine into *c, unless all devices of the plan
 * exist only as descriptions. Sets *kept to true if *c was loaded. A missing
 * calibration is not an error. */
pl_status rates_find(const struct compiled *q, struct calibration *c,
                     bool *kept, pl_err *err);
/* Sets rates[q->list.n] for the devices of a plan. `c` is the calibration of
 * this machine, or NULL if there is none. Devices that have no description and
 * to which `c` does not apply get default rates. Sets *basis. Fails if out of
 * memory. */
pl_status rates_known(const struct compiled *q, const struct calibration *c,
                      struct cost_rates *rates, struct rates_basis *basis,
                      pl_err *err);

/* Sets rates[l->n] for the devices of a list, without a plan. The sources of
 * the rates are those of rates_known. All devices are assumed to run at once.
 * `weights` is the total size of all weights in bytes. */
void rates_of_list(const struct device_list *l, enum kernel_set set,
                   const struct calibration *c, uint64_t weights,
                   struct cost_rates *rates);

#endif
