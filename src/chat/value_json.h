/* Converts JSON to values of the template language. value_json.c is the only
 * file about values that uses jansson. */
#ifndef CHAT_VALUE_JSON_H
#define CHAT_VALUE_JSON_H

#include "chat/value.h"

/* Parses the JSON text s[0 .. len) into a value in `a`. `name` is the text's
 * name in messages. PL_BAD_ARGUMENT for invalid JSON, with the position, for a
 * number that does not fit in 64 bits, and for nesting that is too deep. */
pl_status value_from_json(struct arena *a, const char *s, size_t len,
                          const char *name, struct value *out, pl_err *err);

#endif
