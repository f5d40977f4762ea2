/* JSON to values. All that knows jansson. */
#ifndef CHAT_VALUE_JSON_H
#define CHAT_VALUE_JSON_H

#include "chat/value.h"

/* `name` is what messages call the text. PL_BAD_ARGUMENT: it is no JSON, and
 * where; or a number that 64 bits do not hold; or it nests too deeply. */
pl_status value_from_json(struct arena *a, const char *s, size_t len,
                          const char *name, struct value *out, pl_err *err);

#endif
