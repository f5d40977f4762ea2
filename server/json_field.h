/* Reads the fields of a request's JSON and checks their types and ranges. A
 * field whose value is null counts as absent. If a field is invalid, the
 * request is rejected; the error message names the field's path, its value, and
 * the allowed values. */
#ifndef SERVER_JSON_FIELD_H
#define SERVER_JSON_FIELD_H

#include "api_error.h"

#include <jansson.h>

/* A JSON object within a request, and where it is in the request. The functions
 * below read its fields. */
struct fields {
    const json_t *in;
    /* Path of this object in the request, for error messages, such as
     * "messages[2]."; "" for the request itself. */
    char path[72];
    struct api_error *why;
};

/* Returns an upper bound of the number of JSON values in an unparsed JSON text.
 * The server limits this number to FIELD_MOST_VALUES, and so the memory for a
 * parsed request: 3 bytes "{}," of text become a parsed value of 200 bytes. */
size_t field_values(const char *text, size_t len);
enum { FIELD_MOST_VALUES = 1 << 20 };
/* Parses the body of a request, which must be one JSON object, and initializes
 * *f for this object. Returns false with *why filled if the body is invalid.
 * Sets *root to the object, which the caller owns; to NULL on failure. */
bool fields_read(struct fields *f, json_t **root, const char *body, size_t len,
                 struct api_error *why);
/* Initializes *item for the JSON object that is item i of `list`. `list` is the
 * value of field `name` of f. Rejects the request if the item is not an
 * object. */
bool fields_item(const struct fields *f, const char *name, const json_t *list,
                 size_t i, struct fields *item);
/* Initializes *within for the JSON object that is the value of field `name` of
 * f. Sets within->in to NULL if the field is absent. */
bool fields_within(const struct fields *f, const char *name,
                   struct fields *within);

/* Returns the value of field `name`; NULL if it is absent or null. The value is
 * borrowed from the parsed request, as are all values that the functions of
 * this file return. */
const json_t *field(const struct fields *f, const char *name);

/* field_TYPE sets *out to the value of field `name`, which must be of this
 * TYPE; `least` and `most` are the allowed range. If the field is absent, *out
 * is unchanged. Returns false after rejecting the request if the value is
 * invalid, else true. */
bool field_bool(const struct fields *f, const char *name, bool *out);
bool field_int(const struct fields *f, const char *name, int64_t least,
               int64_t most, int64_t *out);
bool field_number(const struct fields *f, const char *name, double least,
                  double most, double *out);
bool field_text(const struct fields *f, const char *name, const char **out);
bool field_list(const struct fields *f, const char *name, const json_t **out);
bool field_object(const struct fields *f, const char *name, const json_t **out);
/* Sets *out to the index in `allowed` [n] of the string that is the value of
 * field `name`. Treats absent and invalid fields as field_int does. */
bool field_choice(const struct fields *f, const char *name,
                  const char *const *allowed, int n, int *out);
/* Returns true if the field `name` is present; else rejects the request and
 * returns false. */
bool field_need(const struct fields *f, const char *name);

/* These functions reject the request because of field `name`, and return false.
 * field_wrong: the value is invalid; the error message says "must be ALLOWED".
 * field_unsupported: the server does not support `what`, for example "images
 * are". */
bool field_wrong(const struct fields *f, const char *name, const json_t *value,
                 const char *allowed);
bool field_unsupported(const struct fields *f, const char *name,
                       const char *what);

#endif
