/* Why a request is not answered: an HTTP status and an error in the shape that
 * clients of each protocol read. */
#ifndef SERVER_API_ERROR_H
#define SERVER_API_ERROR_H

#include "pl.h"

#include <jansson.h>

/* The shapes of errors. */
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

/* Fills *r, cut to what it holds; false, so that callers can return it. */
bool api_error_set(struct api_error *r, int status, const char *code,
                   const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
bool api_error_set_memory(struct api_error *r);
/* The status that tells what a call of the library came to. */
bool api_error_set_status(struct api_error *r, pl_status s, const pl_err *err);
/* What clients find under error.type. */
const char *api_error_type(const struct api_error *r,
                           enum api_error_shape shape);
/* NULL: no memory. */
json_t *api_error_json(const struct api_error *r, enum api_error_shape shape);
/* The body of an answer, malloc'ed; NULL: no memory. */
char *api_error_body(const struct api_error *r, enum api_error_shape shape);
/* The same for what is refused before it is known what was asked, in the shape
 * of that path's protocol; an http_error_fn. */
char *api_error_body_of_path(int status, const char *message, const char *path);

#endif
