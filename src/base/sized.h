/* Structs of the caller that begin with their size, by the rule in pl.h. */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include "pl.h"

/* Copies the struct `given`, of the type `name`, over *own, which has `known`
 * bytes and holds the defaults. A field that the caller's header lacks keeps
 * its default. Rejects a size that no header has had, and a field beyond *own
 * that is set. */
pl_status sized_read(void *own, size_t known, const void *given,
                     const char *name, pl_err *err);

/* Fills `out`, of the caller's size, with the `known` bytes of `own`. Bytes
 * that only `own` has are left out; bytes that only `out` has become zero. */
void sized_write(void *out, size_t size, const void *own, size_t known);

#endif
