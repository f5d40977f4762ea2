/* Measuring what calibration.h keeps, by running small graphs. */
#ifndef ENGINE_PROBE_H
#define ENGINE_PROBE_H

#include "cost/calibration.h"

/* *one: rates of one of n_thread threads while all of them work; messages are
 * of two devices that share these threads, and of no thread. */
pl_status probe_threads(struct cost_rates *one, enum cpu_family f, bool no_pin,
                        int n_thread, pl_err *err);

/* Fills in the rates, in a few seconds. */
pl_status calibration_measure(struct calibration *c, enum cpu_family f,
                              bool no_pin, const struct topology *t,
                              pl_err *err);

#endif
