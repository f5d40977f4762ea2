/* The error of a rejected request: an HTTP status, and a body in the shape that
 * clients of each protocol read. */
#ifndef SERVER_API_ERROR_H
#define SERVER_API_ERROR_H

#include "pl.h"

#include <jansson.h>

enum api_error_shape {
    API_ERROR_OPENAI, /* {"error":{"message","type","param","code"}} */
    API_ERROR_BLOCKS, /* {"type":"error","error":{"type","message"}}, of
                       /v1/messages */
};

struct api_error {
    int status;        /* HTTP's: 400 ... 599 */
    const char *code;  /* "invalid_value", static; NULL: none */
    char param[96];    /* the field, "messages[2].content"; "": none */
    char message[512]; /* terminated */
};

/* Fills *r, truncating texts that do not fit. Returns false, so that callers
 * can return its result. */
bool api_error_set(struct api_error *r, int status, const char *code,
                   const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
bool api_error_set_memory(struct api_error *r);
/* Sets the HTTP status that corresponds to a library status. */
bool api_error_set_status(struct api_error *r, pl_status s, const pl_err *err);
/* Returns the error.type that clients see. */
const char *api_error_type(const struct api_error *r,
                           enum api_error_shape shape);
/* Returns NULL if out of memory. */
json_t *api_error_json(const struct api_error *r, enum api_error_shape shape);
/* Returns the body of an error response, malloc'ed; NULL if out of memory. */
char *api_error_body(const struct api_error *r, enum api_error_shape shape);
/* Does the same for a request rejected before it was parsed, in the shape of
 * the path's protocol. An http_error_fn. */
char *api_error_body_of_path(int status, const char *message, const char *path);

#endif
