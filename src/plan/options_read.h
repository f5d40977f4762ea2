/* Copies and checks a caller's pl_options. */
#ifndef PLAN_OPTIONS_READ_H
#define PLAN_OPTIONS_READ_H

#include "pl.h"

/* Makes *own a copy of `given`, or the defaults for NULL, with this library's
 * size. Checks that counts are not negative, that counted arrays exist, and
 * that enumerators are valid. The error names the field. How values fit each
 * other and the devices is checked at their use. */
pl_status options_read(pl_options *own, const pl_options *given, pl_err *err);

#endif
