/* Strict parsing of numbers and lists of numbers that users type. The whole
 * text must be a number: nothing is skipped, and an overflow is an error. */
#ifndef CLI_NUMBER_H
#define CLI_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parse decimal digits; number_int64 allows a minus sign. Return false if `s`
 * is anything else or out of range. */
bool number_int64(const char *s, int64_t *out);
bool number_uint64(const char *s, uint64_t *out);
/* Parses a decimal number with an optional fraction and exponent, or "inf".
 * Returns false for anything else, including NaN. */
bool number_double(const char *s, double *out);

/* Parses a size: "2GiB", "1.5GB", or "512", which means 512 MiB. Units are
 * case-sensitive; signs and blanks are not allowed. */
bool number_bytes(const char *s, uint64_t *out);

/* Parses at most `max` numbers >= 0, separated by commas or slashes. Returns
 * their count, or -1 if the text is invalid. */
int number_shares(const char *s, double *out, int max);

/* Reads decimal token ids, separated by commas or white space. *ids is
 * malloc'ed. On failure *bad is the offset of the first invalid word, or -1 if
 * memory ran out, and *ids is NULL. */
bool number_ids(const char *s, size_t len, int32_t **ids, int64_t *n,
                int64_t *bad);

#endif
