/* Formats sizes in bytes for human readers. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdint.h>

/* Writes a size such as "0.83 KiB", "12.50 MiB" or "3.00 GiB" to `buf`. The
 * unit is the largest in which the number is at least 1, but at least KiB.
 * Returns `buf`. */
const char *bytes_text(char buf[24], uint64_t bytes);

#endif
