/* Decompresses data that is built into the library: chunks of LZMA2, as in .xz
 * files. */
#ifndef BASE_LZMA_H
#define BASE_LZMA_H

#include <stdbool.h>
#include <stddef.h>

struct lzma {
    size_t n, n_packed; /* size in bytes of the decompressed data, and of the
                           compressed data */
    const char *packed;
};

/* Decompresses the first n of the x->n bytes to `out`. Returns false if the
 * data is damaged or has fewer bytes; the contents of `out` are then undefined.
 * Uses 32 KB of stack and allocates nothing. */
bool lzma_unpack(const struct lzma *x, void *out, size_t n);

#endif
