/* Fields of a request's JSON, each with the type and the range that it must
 * have. null counts as absent. What is wrong is refused with the field's path,
 * its value and what is allowed. */
#ifndef SERVER_JSON_FIELD_H
#define SERVER_JSON_FIELD_H

#include "api_error.h"

#include <jansson.h>

/* An object within a request, and how it is called in messages. */
struct fields {
    const json_t *in;
    char path[72]; /* "messages[2]."; "": the request itself */
    struct api_error *why;
};

/* Values cost more memory than the bytes that write them: "{}," takes 3 bytes,
 * and 200 in memory. How many a text of JSON could have, counted before it is
 * parsed; and how many a request may have. */
size_t field_values(const char *text, size_t len);
enum { FIELD_MOST_VALUES = 1 << 20 };
/* The request: one JSON object. *root is owned by the caller, also NULL. */
bool fields_read(struct fields *f, json_t **root, const char *body, size_t len,
                 struct api_error *why);
/* Item i of a list that is the field `name` of f; it must be an object. */
bool fields_item(const struct fields *f, const char *name, const json_t *list,
                 size_t i, struct fields *item);
/* The field's object; in.in is NULL if there is none. */
bool fields_within(const struct fields *f, const char *name,
                   struct fields *within);

/* NULL: absent. Borrowed from the request, as all that is read. */
const json_t *field(const struct fields *f, const char *name);

/* These leave *out alone where the field is absent. False: it was refused. */
bool field_bool(const struct fields *f, const char *name, bool *out);
bool field_int(const struct fields *f, const char *name, int64_t least,
               int64_t most, int64_t *out);
bool field_number(const struct fields *f, const char *name, double least,
                  double most, double *out);
bool field_text(const struct fields *f, const char *name, const char **out);
bool field_list(const struct fields *f, const char *name, const json_t **out);
bool field_object(const struct fields *f, const char *name, const json_t **out);
/* Which of the `n` texts it is. */
bool field_choice(const struct fields *f, const char *name,
                  const char *const *allowed, int n, int *out);
/* It must be there. */
bool field_need(const struct fields *f, const char *name);

/* Refuse a field's value: "must be ALLOWED"; as unsupported: `what` is not. */
bool field_wrong(const struct fields *f, const char *name, const json_t *value,
                 const char *allowed);
bool field_unsupported(const struct fields *f, const char *name,
                       const char *what);

#endif
