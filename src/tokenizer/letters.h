/* Spells letters as WordPiece vocabularies do: without accents and other marks,
 * and in lower case. This file only maps code points. The caller finds out with
 * PCRE2 which characters are marks, spaces or punctuation. */
#ifndef TOKENIZER_LETTERS_H
#define TOKENIZER_LETTERS_H

#include <stddef.h>
#include <stdint.h>

enum { LETTER_MAX_BASE = 3 };

/* Decomposes the character c (Unicode canonical decomposition) and drops
 * nonspacing marks. Writes the remaining 1 to 3 characters to `out` and returns
 * their number. */
int letter_base(uint32_t c, uint32_t out[LETTER_MAX_BASE]);

uint32_t letter_lower(uint32_t c);

/* Convert between a code point and UTF-8. `s` holds a valid character; `out`
 * has space for 4 bytes. letter_write returns the length. */
uint32_t letter_read(const char *s);
size_t letter_write(uint32_t c, char *out);

#endif
