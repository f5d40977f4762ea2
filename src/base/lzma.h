/* Unpacks what the library holds packed: chunks of LZMA2, as in a .xz. */
#ifndef BASE_LZMA_H
#define BASE_LZMA_H

#include <stdbool.h>
#include <stddef.h>

struct lzma {
    size_t n, n_packed; /* bytes, and packed */
    const char *packed;
};

/* Fills `out` with the first n of the x->n bytes; those behind them are not
 * decoded. False: they are damaged, or not so many; what `out` holds then means
 * nothing. Takes 32 KB of stack, and no memory. */
bool lzma_unpack(const struct lzma *x, void *out, size_t n);

#endif
