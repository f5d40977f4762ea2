/* Decompresses the library's packed data: chunks of LZMA2, as in a .xz. */
#ifndef BASE_LZMA_H
#define BASE_LZMA_H

#include <stdbool.h>
#include <stddef.h>

struct lzma {
    size_t n, n_packed; /* unpacked bytes, packed bytes */
    const char *packed;
};

/* Fills `out` with the first n of the x->n bytes; those after them are not
 * decoded. Returns false if the data is damaged or shorter; `out` is then
 * undefined. Uses 32 KB of stack and allocates nothing. */
bool lzma_unpack(const struct lzma *x, void *out, size_t n);

#endif
