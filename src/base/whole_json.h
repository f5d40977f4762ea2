/* Copies and texts of JSON that are whole. If memory runs out, jansson's
 * json_copy leaves out members and json_dumps leaves out characters, and
 * neither reports that. */
#ifndef BASE_WHOLE_JSON_H
#define BASE_WHOLE_JSON_H

#include <jansson.h>

/* Copies a list or an object as json_copy does: its members are shared. NULL if
 * `j` is NULL or out of memory. */
json_t *whole_json_copy(json_t *j);
/* Returns the JSON text as json_dumps does, malloc'ed; NULL if `j` is NULL or
 * out of memory. */
char *whole_json_dumps(const json_t *j, size_t flags);

#endif
