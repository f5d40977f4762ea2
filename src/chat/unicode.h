/* Decodes, encodes and classifies characters of UTF-8 strings as Python's
 * strings treat them. A byte that does not belong to a character counts as one
 * character. */
#ifndef CHAT_UNICODE_H
#define CHAT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes the character at the beginning of s[0 .. n), n > 0. Returns its
 * length in bytes. Sets *c to its code point, or to 0xdc00 + the byte for a
 * byte that does not belong to a character. */
size_t unicode_get(const char *s, size_t n, uint32_t *c);
/* Writes character `c` as UTF-8 to `out`, at most 4 bytes. Returns its length
 * in bytes; 0 if `c` is not a character. */
size_t unicode_put(char *out, uint32_t c);

size_t unicode_count(const char *s, size_t n);
/* Returns the byte offset of character i (counted from 0) in s[0 .. n); n if
 * there are fewer characters. */
size_t unicode_offset(const char *s, size_t n, size_t i);

/* Return the length in bytes of the whitespace at the beginning and at the end
 * of s[0 .. n). */
size_t unicode_space_first(const char *s, size_t n);
size_t unicode_space_last(const char *s, size_t n);
bool unicode_is_space(uint32_t c);
/* Returns true if Python's repr() shows the character `c` without escaping it.
 * Unassigned code points count as shown. */
bool unicode_is_shown(uint32_t c);

/* Convert a character to upper or lower case, always to a single character, by
 * the C library's tables of the locale C.UTF-8. Without that locale, only ASCII
 * letters are converted. */
uint32_t unicode_upper(uint32_t c);
uint32_t unicode_lower(uint32_t c);
bool unicode_is_letter(uint32_t c);

#endif
