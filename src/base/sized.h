/* Copies public structs that begin with their size. The size tells which
 * version of the header the caller was compiled with; see pl.h. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include "pl.h"

/* Copies the caller's struct `given`, of the type `name`, to *own. *own has
 * `known` bytes and holds the defaults. Fields that the caller's struct lacks
 * keep their defaults. `init` is "call " and the name of the function that
 * sets the defaults, NULL if there is none. Returns BAD_ARGUMENT if the size is
 * impossible, or UNSUPPORTED if a field is set that this library does not
 * know. */
pl_status sized_read(void *own, size_t known, const void *given,
                     const char *name, const char *init, pl_err *err);

/* Copies *own, of `known` bytes, to the caller's struct `out` of `size` bytes.
 * If `out` is smaller, the last fields are left out; if it is larger, the rest
 * is set to zero. Does nothing if `out` is NULL. */
void sized_write(void *out, size_t size, const void *own, size_t known);

#endif
