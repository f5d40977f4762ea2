/* The rates of a plan's devices, and what they rest on. */
#ifndef COST_RATES_H
#define COST_RATES_H

#include "cost/calibration.h"
#include "lower/compile.h"

/* What rates rest on. */
struct rates_basis {
    bool calibrated;  /* on this machine's calibration */
    unsigned guessed; /* COST_GUESSED_ bits of described devices */
};

/* This machine's calibration, if one is kept and the plan is not of paper. */
pl_status rates_find(const struct compiled *q, struct calibration *c,
                     bool *kept, pl_err *err);
/* rates[q->list.n]. c: this machine's calibration, NULL: there is none; without
 * one that covers the devices in use a device that was not described has
 * typical rates. Fails for want of memory. */
pl_status rates_known(const struct compiled *q, const struct calibration *c,
                      struct cost_rates *rates, struct rates_basis *basis,
                      pl_err *err);

/* The same of devices that no plan is made for yet; all of them work. weights:
 * bytes of all of them. */
void rates_of_list(const struct device_list *l, enum kernel_set set,
                   const struct calibration *c, uint64_t weights,
                   struct cost_rates *rates);

#endif
