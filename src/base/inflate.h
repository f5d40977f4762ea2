/* Unpacks what was packed by deflate (RFC 1951), without a frame around it. */
#ifndef BASE_INFLATE_H
#define BASE_INFLATE_H

#include <stdbool.h>
#include <stddef.h>

/* Fills all n bytes of `out`; false: the packed bytes are damaged, or hold more
 * or less than that. What `out` holds then means nothing. */
bool inflate_all(const void *packed, size_t n_packed, void *out, size_t n);

#endif
