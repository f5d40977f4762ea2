/* Structs of the caller's that begin with their size, by the rule in pl.h. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include "pl.h"

/* Copies the struct `given`, of the type `name`, over *own, which is of `known`
 * bytes and holds the defaults: a field that the caller's header did not have
 * keeps its default. Refuses a size that no header has given, and a field
 * beyond *own that is set. */
pl_status sized_read(void *own, size_t known, const void *given,
                     const char *name, pl_err *err);

/* Fills `out`, of the caller's size, with own's `known` bytes: the rest of the
 * larger one is left out or zero. */
void sized_write(void *out, size_t size, const void *own, size_t known);

#endif
