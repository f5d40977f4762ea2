/* Why a request is not answered: an HTTP status and an error in the shape that
 * clients of each protocol read. */
#ifndef SERVER_REFUSAL_H
#define SERVER_REFUSAL_H

#include "pl.h"

#include <jansson.h>

/* The shapes of errors. */
enum refusal_shape {
    REFUSAL_OPENAI, /* {"error":{"message","type","param","code"}} */
    REFUSAL_BLOCKS, /* {"type":"error","error":{"type","message"}}, of
                       /v1/messages */
};

struct refusal {
    int status;        /* HTTP's: 400 ... 599 */
    const char *code;  /* "invalid_value", static; NULL: none */
    char param[96];    /* the field, "messages[2].content"; "": none */
    char message[512]; /* terminated */
};

/* Fills *r, cut to what it holds; false, so that callers can return it. */
bool refuse(struct refusal *r, int status, const char *code, const char *param,
            const char *fmt, ...) __attribute__((format(printf, 5, 6)));
bool refuse_memory(struct refusal *r);
/* The status that tells what a call of the library came to. */
bool refuse_status(struct refusal *r, pl_status s, const pl_err *err);
/* What clients find under error.type. */
const char *refusal_type(const struct refusal *r, enum refusal_shape shape);
/* NULL: no memory. */
json_t *refusal_json(const struct refusal *r, enum refusal_shape shape);
/* The body of an answer, malloc'ed; NULL: no memory. */
char *refusal_body(const struct refusal *r, enum refusal_shape shape);
/* The same for what is refused before it is known what was asked, in the shape
 * of that path's protocol; an http_error_fn. */
char *refusal_body_of_path(int status, const char *message, const char *path);

#endif
