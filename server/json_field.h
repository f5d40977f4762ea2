/* Reads fields of a request's JSON, each with its type and range. null counts
 * as absent. An invalid field is rejected with its path, its value and what is
 * allowed. */
#ifndef SERVER_JSON_FIELD_H
#define SERVER_JSON_FIELD_H

#include "api_error.h"

#include <jansson.h>

/* An object within a request, and its path for messages. */
struct fields {
    const json_t *in;
    char path[72]; /* "messages[2]."; "": the request itself */
    struct api_error *why;
};

/* Returns an upper bound of the number of values in a JSON text, counted before
 * it is parsed. Values take more memory than their text: "{}," has 3 bytes and
 * takes 200. FIELD_MOST_VALUES limits a request. */
size_t field_values(const char *text, size_t len);
enum { FIELD_MOST_VALUES = 1 << 20 };
/* Parses the request: one JSON object. The caller owns *root, which may be
 * NULL. */
bool fields_read(struct fields *f, json_t **root, const char *body, size_t len,
                 struct api_error *why);
/* Reads item i of a list that is the field `name` of f; it must be an
 * object. */
bool fields_item(const struct fields *f, const char *name, const json_t *list,
                 size_t i, struct fields *item);
/* Reads the field's object; within->in is NULL if it is absent. */
bool fields_within(const struct fields *f, const char *name,
                   struct fields *within);

/* Returns NULL if absent. Borrowed from the request, as all values are. */
const json_t *field(const struct fields *f, const char *name);

/* These leave *out unchanged if the field is absent. They return false if it
 * was rejected. */
bool field_bool(const struct fields *f, const char *name, bool *out);
bool field_int(const struct fields *f, const char *name, int64_t least,
               int64_t most, int64_t *out);
bool field_number(const struct fields *f, const char *name, double least,
                  double most, double *out);
bool field_text(const struct fields *f, const char *name, const char **out);
bool field_list(const struct fields *f, const char *name, const json_t **out);
bool field_object(const struct fields *f, const char *name, const json_t **out);
/* Sets *out to the index of the field's value in `allowed` [n]. */
bool field_choice(const struct fields *f, const char *name,
                  const char *const *allowed, int n, int *out);
/* Rejects the request if the field is absent. */
bool field_need(const struct fields *f, const char *name);

/* Reject a field's value as invalid ("must be ALLOWED"), or as unsupported
 * because of `what`. Both return false. */
bool field_wrong(const struct fields *f, const char *name, const json_t *value,
                 const char *allowed);
bool field_unsupported(const struct fields *f, const char *name,
                       const char *what);

#endif
