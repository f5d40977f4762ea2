/* Formats amounts of memory for people. */
#ifndef BASE_BYTES_H
#define BASE_BYTES_H

#include <stdint.h>

/* Writes "0.83 KiB", "12.50 MiB", "3.00 GiB", with the largest unit that leaves
 * one or more before the point. Returns buf. */
const char *bytes_text(char buf[24], uint64_t bytes);

#endif
