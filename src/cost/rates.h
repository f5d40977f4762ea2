/* The rates of a plan's devices, and their basis. */
#ifndef COST_RATES_H
#define COST_RATES_H

#include "cost/calibration.h"
#include "lower/compile.h"

/* The basis of rates. */
struct rates_basis {
    bool calibrated;  /* on this machine's calibration */
    unsigned guessed; /* COST_GUESSED_ bits of described devices */
};

/* Loads this machine's calibration, if it exists and the plan's devices are
 * real. */
pl_status rates_find(const struct compiled *q, struct calibration *c,
                     bool *kept, pl_err *err);
/* Sets rates[q->list.n]. c: this machine's calibration, or NULL. Devices that
 * are neither described nor covered by it get default rates. Fails if memory is
 * out. */
pl_status rates_known(const struct compiled *q, const struct calibration *c,
                      struct cost_rates *rates, struct rates_basis *basis,
                      pl_err *err);

/* The same for devices without a plan; all of them work. weights: the bytes of
 * all of them. */
void rates_of_list(const struct device_list *l, enum kernel_set set,
                   const struct calibration *c, uint64_t weights,
                   struct cost_rates *rates);

#endif
