/* Strict parsing of numbers and lists of numbers that users type: the whole
 * text counts, nothing is skipped, nothing overflows silently. */
#ifndef CLI_NUMBER_H
#define CLI_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits, a minus sign allowed. */
bool number_int64(const char *s, int64_t *out);
bool number_uint64(const char *s, uint64_t *out);
/* Decimal, with point and exponent; "inf" too, never NaN. */
bool number_double(const char *s, double *out);

/* "512" MiB, "2GiB", "1.5GB", "0": no sign, no blanks; units are
 * case-sensitive. */
bool number_bytes(const char *s, uint64_t *out);

/* Reads at most `max` numbers >= 0, separated by commas or slashes. Returns
 * their count, or -1. */
int number_shares(const char *s, double *out, int max);

/* Reads decimal token ids, separated by commas or white space. *ids is
 * malloc'ed. On failure *bad is the offset of the first invalid word, or -1 if
 * memory ran out, and *ids is NULL. */
bool number_ids(const char *s, size_t len, int32_t **ids, int64_t *n,
                int64_t *bad);

#endif
