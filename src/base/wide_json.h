/* JSON with integers of any size. jansson rejects those beyond 64 bits. */
#ifndef BASE_WIDE_JSON_H
#define BASE_WIDE_JSON_H

#include <jansson.h>

/* Parses JSON as json_loadb does. An integer beyond 64 bits becomes a real
 * number, rounded. */
json_t *wide_json(const char *s, size_t n, size_t flags, json_error_t *e);

#endif
