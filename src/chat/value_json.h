/* Converts JSON to values. The only file of values that uses jansson. */
#ifndef CHAT_VALUE_JSON_H
#define CHAT_VALUE_JSON_H

#include "chat/value.h"

/* `name` is the text's name in messages. PL_BAD_ARGUMENT: invalid JSON, with
 * the position; a number that does not fit in 64 bits; or nesting too deep. */
pl_status value_from_json(struct arena *a, const char *s, size_t len,
                          const char *name, struct value *out, pl_err *err);

#endif
