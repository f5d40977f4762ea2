/* Measuring what cost/calibration.h keeps, by running small graphs. */
#ifndef MEASURE_MEASURE_H
#define MEASURE_MEASURE_H

#include "cost/calibration.h"

/* Fills in the rates, in a few seconds. */
pl_status measure_machine(struct calibration *c, enum kernel_set set,
                          bool no_pin, const struct topology *t, pl_err *err);

#endif
