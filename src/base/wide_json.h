/* JSON with integers of any size. jansson rejects those beyond 64 bits. */
#ifndef BASE_WIDE_JSON_H
#define BASE_WIDE_JSON_H

#include <jansson.h>

/* Parses JSON as json_loadb does. An integer beyond 64 bits becomes a real
 * number, rounded. */
json_t *wide_json(const char *s, size_t n, size_t flags, json_error_t *e);

/* Parses JSON as wide_json does, but an integer beyond 64 bits becomes a
 * string: WIDE_MARK, which is a character that texts do not contain, and the
 * digits of the integer. */
json_t *wide_json_marked(const char *s, size_t n, size_t flags,
                         json_error_t *e);
#define WIDE_MARK "\xef\xb7\x90"
/* Returns the digits, with the sign, of an integer that wide_json_marked turned
 * into a string. Returns NULL if `j` is any other value. */
const char *wide_digits(const json_t *j);
/* Turns the strings that stand for integers beyond 64 bits (wide_json_marked)
 * back into integers, in a JSON text written by jansson. `s` may be NULL.
 * Returns `s`, which is changed in place. */
char *wide_unmark(char *s);

#endif
