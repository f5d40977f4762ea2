/* Characters in UTF-8 as Python's strings treat them. A byte that is part of no
 * character counts as one character. */
#ifndef CHAT_UNICODE_H
#define CHAT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character s[0 .. n), n > 0, begins with: its bytes, and in *c its code
 * point, or for a stray byte 0xdc00 + that byte. */
size_t unicode_get(const char *s, size_t n, uint32_t *c);
/* Writes up to 4 bytes; 0: c is no character. */
size_t unicode_put(char *out, uint32_t c);

size_t unicode_count(const char *s, size_t n);
/* The byte at which character i begins; n where there are fewer. */
size_t unicode_offset(const char *s, size_t n, size_t i);

/* Bytes of whitespace that the text begins with, ends with. */
size_t unicode_space_first(const char *s, size_t n);
size_t unicode_space_last(const char *s, size_t n);
bool unicode_is_space(uint32_t c);
/* Does repr() show it as it is? What is not assigned counts as shown. */
bool unicode_is_shown(uint32_t c);

/* By the C library's tables of C.UTF-8, one character for one; where it has
 * none, ASCII alone has cases and letters. */
uint32_t unicode_upper(uint32_t c);
uint32_t unicode_lower(uint32_t c);
bool unicode_is_letter(uint32_t c);

#endif
