/* Decompresses data that is built into the library: .xz files, by liblzma. */
#ifndef BASE_XZ_H
#define BASE_XZ_H

#include "pl.h"

#include <stddef.h>

struct xz {
    /* Size in bytes of the decompressed data, and of the compressed data. */
    size_t n, n_packed;
    const char *packed;
};

/* Decompresses the first n of the x->n bytes to `out`. PL_NO_MEMORY;
 * PL_BAD_FILE: the data is damaged, or has another size than it says. The
 * contents of `out` are then undefined. */
pl_status xz_unpack(const struct xz *x, void *out, size_t n);

#endif
