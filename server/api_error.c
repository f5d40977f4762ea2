/* Fills struct api_error and formats it as JSON. See api_error.h. */
#include "api_error.h"

#include "json_text.h"

#include <stdarg.h>
#include <stdio.h>

/* The error type for each HTTP status: in the JSON of OpenAI's API, then in
 * that of /v1/messages (enum api_error_shape). The last row is for all other
 * statuses. */
static const struct {
    int status;
    const char *type[2];
} types[] = {
    {400, {"invalid_request_error", "invalid_request_error"}},
    {401, {"authentication_error", "authentication_error"}},
    {403, {"permission_error", "permission_error"}},
    {404, {"not_found_error", "not_found_error"}},
    {405, {"invalid_request_error", "invalid_request_error"}},
    {413, {"invalid_request_error", "request_too_large"}},
    {429, {"rate_limit_error", "rate_limit_error"}},
    {501, {"not_supported_error", "invalid_request_error"}},
    {503, {"unavailable_error", "overloaded_error"}},
    {0, {"server_error", "api_error"}},
};

bool api_error_set(struct api_error *r, int status, const char *code,
                   const char *param, const char *fmt, ...)
{
    va_list args;

    r->status = status;
    r->code = code;
    r->n_prompt = r->n_ctx = 0;
    snprintf(r->param, sizeof(r->param), "%s", param != NULL ? param : "");
    va_start(args, fmt);
    vsnprintf(r->message, sizeof(r->message), fmt, args);
    va_end(args);
    return false;
}

bool api_error_set_memory(struct api_error *r)
{
    return api_error_set(r, 503, "no_memory", NULL,
                         "out of memory for this request; try again later");
}

bool api_error_set_overflow(struct api_error *r, int64_t n_prompt,
                            int64_t n_ctx)
{
    api_error_set(r, 400, "context_length_exceeded", NULL,
                  "request (%lld tokens) exceeds the available context size "
                  "(%lld tokens): this model's maximum context length is %lld "
                  "tokens, of which the output needs at least 1; shorten the "
                  "prompt, or start the server with a larger context (-c)",
                  (long long)n_prompt, (long long)n_ctx, (long long)n_ctx);
    r->n_prompt = n_prompt;
    r->n_ctx = n_ctx;
    return false;
}

bool api_error_set_status(struct api_error *r, pl_status s, const pl_err *err)
{
    int status = 500;

    if (s == PL_BAD_ARGUMENT || s == PL_UNSUPPORTED || s == PL_NOT_FOUND ||
        s == PL_FULL)
        status = 400;
    else if (s == PL_NO_MEMORY || s == PL_NO_DEVICE_MEMORY || s == PL_DEVICE ||
             s == PL_CANCELLED)
        status = 503;
    return api_error_set(r, status, NULL, NULL, "%s", err->message);
}

const char *api_error_type(const struct api_error *r,
                           enum api_error_shape shape)
{
    int i = 0;

    if (r->n_ctx > 0 && shape == API_ERROR_OPENAI)
        return "exceed_context_size_error";
    while (types[i].status != 0 && types[i].status != r->status)
        i++;
    if (types[i].status == 0 && r->status < 500)
        i = 0;
    return types[i].type[shape == API_ERROR_BLOCKS];
}

json_t *api_error_json(const struct api_error *r, enum api_error_shape shape)
{
    const char *type = api_error_type(r, shape);
    json_t *message, *j;

    if (r->n_ctx > 0 && shape == API_ERROR_BLOCKS)
        message = json_sprintf(
            "prompt is too long: %lld tokens > %lld maximum; shorten it, or "
            "start the server with a larger context (-c)",
            (long long)r->n_prompt, (long long)r->n_ctx - 1);
    else
        message = json_text(r->message, strlen(r->message));
    if (shape == API_ERROR_OLLAMA)
        return json_pack("{s:o}", "error", message);
    if (shape == API_ERROR_BLOCKS)
        return json_pack("{s:s, s:{s:s, s:o}}", "type", "error", "error",
                         "type", type, "message", message);
    j = json_pack("{s:o, s:s, s:o, s:s?}", "message", message, "type", type,
                  "param",
                  r->param[0] != '\0' ? json_text(r->param, strlen(r->param))
                                      : json_null(),
                  "code", r->code);
    if (r->n_ctx > 0) {
        json_text_put(&j, "n_prompt_tokens", json_integer(r->n_prompt));
        json_text_put(&j, "n_ctx", json_integer(r->n_ctx));
    }
    return json_pack("{s:o}", "error", j);
}

char *api_error_body(const struct api_error *r, enum api_error_shape shape)
{
    json_t *j = api_error_json(r, shape);
    char *body = json_text_plain(j, JSON_COMPACT);

    json_decref(j);
    return body;
}

enum api_error_shape api_error_shape_of_path(const char *path)
{
    static const char blocks[] = "/v1/messages";
    size_t n = sizeof(blocks) - 1;
    /* The path of a URL; it may begin with the server's prefix
     * (--api-prefix). */
    const char *end = strstr(path, blocks);

    if (end != NULL && (end[n] == '\0' || end[n] == '/'))
        return API_ERROR_BLOCKS;
    return strncmp(path, "/api/", 5) == 0 ? API_ERROR_OLLAMA : API_ERROR_OPENAI;
}

char *api_error_body_of_path(int status, const char *message, const char *path)
{
    struct api_error r;

    api_error_set(&r, status, NULL, NULL, "%s", message);
    return api_error_body(&r, api_error_shape_of_path(path));
}
