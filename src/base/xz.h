/* Unpacks what the library holds packed as .xz, by liblzma: all, or a part. */
#ifndef BASE_XZ_H
#define BASE_XZ_H

#include <stddef.h>

#include "pl.h"

struct xz {
    size_t n, n_packed; /* bytes, and packed: one stream, and nothing behind */
    const char *packed;
};

/* Fills `out` with n of the x->n bytes, beginning with number `from`. Those
 * behind them are not decoded; where there are none the stream must end too,
 * and its check sum hold. `what` names them for messages. PL_NO_MEMORY, or
 * PL_DEVICE: they are damaged, or not x->n; what `out` holds then means
 * nothing. */
pl_status xz_unpack(const struct xz *x, size_t from, void *out, size_t n,
                    const char *what, pl_err *err);

#endif
