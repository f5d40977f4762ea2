/* Converts JSON to values of the template language. value_json.c is the only
 * file about values that uses jansson. */
#ifndef CHAT_VALUE_JSON_H
#define CHAT_VALUE_JSON_H

#include "chat/value.h"

/* Parses the JSON text s[0 .. len) into a value, which is allocated in `a`.
 * `name` is the name of the text for error messages. PL_BAD_ARGUMENT: the JSON
 * is invalid, which includes a number beyond the range of a double, or it nests
 * too deeply. The message has the position. */
pl_status value_from_json(struct arena *a, const char *s, size_t len,
                          const char *name, struct value *out, pl_err *err);

#endif
