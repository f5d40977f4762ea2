/* JSON with integers of any size. jansson rejects those beyond 64 bits. */
#ifndef BASE_WIDE_JSON_H
#define BASE_WIDE_JSON_H

#include <jansson.h>

/* Parses JSON as json_loadb does. An integer beyond 64 bits becomes a real
 * number, rounded. */
json_t *wide_json(const char *s, size_t n, size_t flags, json_error_t *e);

/* The same, but such an integer becomes a string of WIDE_MARK, a character that
 * stands for nothing in texts, and its digits. */
json_t *wide_json_marked(const char *s, size_t n, size_t flags,
                         json_error_t *e);
#define WIDE_MARK "\xef\xb7\x90"
/* Returns the digits of an integer that wide_json_marked made a string, with
 * its sign; NULL if `j` is something else. */
const char *wide_digits(const json_t *j);
/* Makes integers of such strings in a JSON text, which jansson wrote. `s` may
 * be NULL. Returns `s`. */
char *wide_unmark(char *s);

#endif
