/* The error with which a request is rejected: an HTTP status, and a JSON body
 * in the form that the clients of each protocol expect. */
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

/* Fills *r. Strings that do not fit are truncated. `param` may be NULL. Always
 * returns false, so that a caller can write "return api_error_set(...)". */
bool api_error_set(struct api_error *r, int status, const char *code,
                   const char *param, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
bool api_error_set_memory(struct api_error *r);
/* Fills *r for a prompt of n_prompt tokens that does not fit in a context of
 * n_ctx. The words, codes and fields are those by which clients recognize that
 * they must shorten a conversation. Always returns false. */
bool api_error_set_overflow(struct api_error *r, int64_t n_prompt,
                            int64_t n_ctx);
/* Fills *r from a library error: err->message, and the HTTP status that
 * corresponds to `s`. PL_FULL means that the request exceeds a limit, so it
 * gives 400, not 429, after which clients would send the same request again.
 * Always returns false. */
bool api_error_set_status(struct api_error *r, pl_status s, const pl_err *err);
/* Returns the string for the "type" field of the error object. It depends on
 * the error and the protocol. */
const char *api_error_type(const struct api_error *r,
                           enum api_error_shape shape);
/* Returns the body of an error response as a new JSON object; NULL if out of
 * memory. */
json_t *api_error_json(const struct api_error *r, enum api_error_shape shape);
/* Returns the body of an error response as a malloc'ed string; NULL if out of
 * memory. */
char *api_error_body(const struct api_error *r, enum api_error_shape shape);
/* Returns the form of errors for the path of a URL, which decides the
 * protocol. */
enum api_error_shape api_error_shape_of_path(const char *path);
/* Returns the body of an error response to a request that was rejected before
 * it was parsed. `path` is the path of its URL and decides the protocol. The
 * string is malloc'ed; NULL if out of memory. An http_error_fn. */
char *api_error_body_of_path(int status, const char *message, const char *path);

#endif
