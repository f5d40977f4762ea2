/* Takes a pl_options from a caller. */
#ifndef PLAN_OPTIONS_READ_H
#define PLAN_OPTIONS_READ_H

#include "pl.h"

/* *own becomes a copy of what is given, or the defaults for NULL; its size is
 * this library's. Counts are not negative, what they count is there, and
 * enumerators exist; the error names the field. What values mean together, and
 * with the devices, is checked where they are used. */
pl_status options_read(pl_options *own, const pl_options *given, pl_err *err);

#endif
