/* Copies the pl_options of a caller and checks them. */
#ifndef PLAN_OPTIONS_READ_H
#define PLAN_OPTIONS_READ_H

#include "pl.h"

/* Sets *own to a copy of `given`, or to the defaults if `given` is NULL. Fields
 * that an older caller's struct lacks get their defaults. Returns BAD_ARGUMENT
 * if a count is negative, an array with a positive count is NULL, or an
 * enumerator is invalid; the message names the field. Does not check whether
 * options are compatible with each other or with the devices; the code that
 * uses the options does. */
pl_status options_read(pl_options *own, const pl_options *given, pl_err *err);

#endif
