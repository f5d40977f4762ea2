/* Letters as WordPiece vocabularies know them: without marks, in lower case.
 * Knows characters by number only; which of them are marks, spaces or
 * punctuation is PCRE2's business. */
#ifndef TOKENIZER_LETTERS_H
#define TOKENIZER_LETTERS_H

#include <stddef.h>
#include <stdint.h>

enum { LETTER_MAX_BASE = 3 };

/* What canonical decomposition leaves of c once marks without width are gone:
 * one to three characters, their number is returned. */
int letter_base(uint32_t c, uint32_t out[LETTER_MAX_BASE]);

uint32_t letter_lower(uint32_t c);

/* One character and UTF-8. s holds a valid one; out has room for 4 bytes and
 * their number is returned. */
uint32_t letter_read(const char *s);
size_t letter_write(uint32_t c, char *out);

#endif
