/* JSON with integers of any size. jansson rejects those beyond 64 bits. */
#ifndef BASE_WIDE_JSON_H
#define BASE_WIDE_JSON_H

#include <jansson.h>
#include <stdbool.h>

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
/* Return true if `j` is a number, also one that wide_json_marked turned into a
 * string, and its value, rounded to a double; 0 if it is not a number. */
bool wide_is_number(const json_t *j);
double wide_number(const json_t *j);
/* Turns the strings that stand for integers beyond 64 bits (wide_json_marked)
 * back into integers, in a JSON text written by jansson. `s` may be NULL.
 * Returns `s`, which is changed in place. */
char *wide_unmark(char *s);
/* Returns the JSON text of `j` as whole_json_dumps does. Integers beyond 64
 * bits (wide_json_marked) are integers in it, and real numbers have the fewest
 * digits from which the same value is parsed, such as 0.1. */
char *wide_json_dumps(const json_t *j, size_t flags);

#endif
