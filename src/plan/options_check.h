/* Is a pl_options one that the rest may read? */
#ifndef PLAN_OPTIONS_CHECK_H
#define PLAN_OPTIONS_CHECK_H

#include "pl.h"

/* Counts are not negative, what they count is there, and enumerators exist: who
 * takes options from a caller asks this first. What values mean together, and
 * with the devices, is checked where they are read. The error names the
 * field. */
pl_status options_check(const pl_options *opt, pl_err *err);

#endif
