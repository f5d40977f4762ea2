/* Prints the contents of a saved state, for pl_inspect. */
#ifndef REPORT_STATE_INSPECT_H
#define REPORT_STATE_INSPECT_H

#include "pl.h"

/* Returns true if the file begins with the signature of a saved state. */
bool state_is(const char *path);
pl_status state_inspect(const char *path, bool json, pl_write_fn *write,
                        void *user, pl_err *err);

#endif
