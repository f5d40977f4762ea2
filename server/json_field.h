/* Reads fields of a JSON request and checks their types and ranges. A field
 * that is null counts as absent. An invalid field rejects the request: the
 * error message names the field's path, its value, and the allowed values. */
#ifndef SERVER_JSON_FIELD_H
#define SERVER_JSON_FIELD_H

#include "api_error.h"

#include <jansson.h>

/* A JSON object within a request, whose fields are read. */
struct fields {
    const json_t *in;
    char path[72]; /* path of the object for messages, such as "messages[2].";
                      "" for the whole request */
    struct api_error *why;
};

/* Returns an upper bound of the number of values in an unparsed JSON text. It
 * limits the memory that a request takes when it is parsed: the 3 bytes "{},"
 * become a value of 200 bytes. A request may have FIELD_MOST_VALUES. */
size_t field_values(const char *text, size_t len);
enum { FIELD_MOST_VALUES = 1 << 20 };
/* Parses a request body, which must be one JSON object, and initializes *f for
 * it. Returns false with *why filled if it is invalid. Sets *root to the
 * object, or to NULL on failure; the caller owns it. */
bool fields_read(struct fields *f, json_t **root, const char *body, size_t len,
                 struct api_error *why);
/* Initializes *item for item i of `list`, which is the value of f's field
 * `name`. Rejects the request if the item is not an object. */
bool fields_item(const struct fields *f, const char *name, const json_t *list,
                 size_t i, struct fields *item);
/* Initializes *within for the object that is the value of field `name`. Sets
 * within->in to NULL if the field is absent. */
bool fields_within(const struct fields *f, const char *name,
                   struct fields *within);

/* Returns the value of a field; NULL if absent. Every value that a function of
 * this file returns is borrowed from the parsed request. */
const json_t *field(const struct fields *f, const char *name);

/* Set *out to the value of the field `name`, which must have the function's
 * type. `least` and `most` are the allowed range. If the field is absent, *out
 * is unchanged and they return true. If it is invalid, they reject the request
 * and return false. */
bool field_bool(const struct fields *f, const char *name, bool *out);
bool field_int(const struct fields *f, const char *name, int64_t least,
               int64_t most, int64_t *out);
bool field_number(const struct fields *f, const char *name, double least,
                  double most, double *out);
bool field_text(const struct fields *f, const char *name, const char **out);
bool field_list(const struct fields *f, const char *name, const json_t **out);
bool field_object(const struct fields *f, const char *name, const json_t **out);
/* Sets *out to the index of the field's value, a string, in `allowed` [n].
 * Treats absent and invalid fields as field_int does. */
bool field_choice(const struct fields *f, const char *name,
                  const char *const *allowed, int n, int *out);
/* Returns true if the field is present, else rejects the request and returns
 * false. */
bool field_need(const struct fields *f, const char *name);

/* Reject a request because of field `name`: field_wrong because its value is
 * invalid, with a message that says "must be ALLOWED", field_unsupported
 * because `what` is not supported, for example "images are". Both return
 * false. */
bool field_wrong(const struct fields *f, const char *name, const json_t *value,
                 const char *allowed);
bool field_unsupported(const struct fields *f, const char *name,
                       const char *what);

#endif
