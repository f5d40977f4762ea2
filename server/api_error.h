/* The error with which the server rejects a request: an HTTP status, and a JSON
 * body in the form that the clients of the request's protocol expect. */
#ifndef SERVER_API_ERROR_H
#define SERVER_API_ERROR_H

#include "pl.h"

#include <jansson.h>

enum api_error_shape {
    API_ERROR_OPENAI, /* {"error":{"message","type","param","code"}}, for all
                         other routes */
    /* {"type":"error","error":{"type","message"}}, for routes below
     * /v1/messages. */
    API_ERROR_BLOCKS,
    /* {"error": message}, for routes below /api/, those of Ollama's API. */
    API_ERROR_OLLAMA,
};

struct api_error {
    int status; /* HTTP status of the error response, 400 to 599 */
    /* The "code" field of the JSON, such as "invalid_value"; a static string;
     * NULL for none. */
    const char *code;
    char param[96];    /* path of the invalid field, such as
                          "messages[2].content"; "" if none */
    char message[512]; /* human-readable text of the error, NUL-terminated */
    /* Only for a prompt that is too long: the numbers of tokens of the prompt
     * and of the context. Both are 0 for all other errors. */
    int64_t n_prompt, n_ctx;
};

/* Fills *r with an error. Strings that do not fit are truncated. `param` may be
 * NULL. Always returns false, so that a caller can write "return
 * api_error_set(...)". */
bool api_error_set(struct api_error *r, int status, const char *code,
                   const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
bool api_error_set_memory(struct api_error *r);
/* Fills *r with the error for a prompt of n_prompt tokens that does not fit in
 * a context of n_ctx tokens. By its words, code and fields, clients recognize
 * that they must shorten the conversation. Always returns false. */
bool api_error_set_overflow(struct api_error *r, int64_t n_prompt,
                            int64_t n_ctx);
/* Fills *r with the message of the library error *err, and the HTTP status that
 * corresponds to its status `s`. PL_FULL means that the request exceeds a
 * limit. It gives 400, because after 429 clients would send the same request
 * again. Always returns false. */
bool api_error_set_status(struct api_error *r, pl_status s, const pl_err *err);
/* Returns the value of the field "type" in the body of an error response. It
 * depends on the HTTP status and the protocol. */
const char *api_error_type(const struct api_error *r,
                           enum api_error_shape shape);
/* Returns the body of the response for the error *r, as a new JSON object; NULL
 * if out of memory. */
json_t *api_error_json(const struct api_error *r, enum api_error_shape shape);
/* Returns the body of the response for the error *r, as a malloc'ed string;
 * NULL if out of memory. */
char *api_error_body(const struct api_error *r, enum api_error_shape shape);
/* Returns the form of error bodies for the path of a URL. The path determines
 * the protocol of the request. */
enum api_error_shape api_error_shape_of_path(const char *path);
/* Returns the error body for a request that was rejected before it was parsed,
 * as a malloc'ed string; NULL if out of memory. `path` is the path of the
 * request's URL, which determines the protocol. An http_error_fn. */
char *api_error_body_of_path(int status, const char *message, const char *path);

#endif
