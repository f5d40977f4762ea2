/* Rates of the devices of a plan, by running small graphs on them. */
#ifndef ENGINE_RATES_H
#define ENGINE_RATES_H

#include "engine/engine.h"
#include "plan/cost.h"

/* rates[n_dev]: measured in about 0.3 s on the plan's devices, with its kernels
 * and formats; the memory for it is given back. */
pl_status rates_measure(const struct pl_plan *p, struct cost_rates *rates,
                        pl_err *err);

#endif
