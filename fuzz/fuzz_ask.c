/* Fuzzes requests to the server. The first byte selects the protocol, the rest
 * is the body. The body is parsed, or rejected with a message that fits into
 * JSON; a response to a parsed request can be written. */
#include "server/response.h"
#include "server/token_routes.h"

#include <stdlib.h>
#include <string.h>

int fuzz_ask(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

static bool count(void *user, const void *data, size_t n)
{
    (void)data;
    *(size_t *)user += n;
    return true;
}

static void is_json(const char *s)
{
    json_t *j = s != NULL ? json_loads(s, 0, NULL) : NULL;

    require(json_is_object(j) || json_is_array(j));
    json_decref(j);
}

static void check_refusal(const struct api_error *why,
                          enum api_error_shape shape)
{
    char *body = api_error_body(why, shape);

    require(why->status >= 400 && strlen(why->message) > 0);
    is_json(body);
    free(body);
}

static void check_asked(const struct request *a)
{
    size_t n = 0;
    struct response_about about = {
        .model = "m", .id = "i", .write = count, .user = &n};
    const pl_reply_part part = {
        .kind = PL_REPLY_CONTENT, .text = "x", .len = 1};
    struct response_end end = {.why = RESPONSE_ENDED};
    struct response *w = NULL;
    pl_err err;

    require((a->messages != NULL) != (a->prompt != NULL));
    require(a->n >= 1 && a->n_prompt >= 1 && a->n * a->n_prompt <= 128);
    if (a->messages != NULL)
        is_json(a->messages);
    if (a->tools != NULL)
        is_json(a->tools);
    if (a->extra != NULL)
        is_json(a->extra);
    require(response_create(&w, a, &about, &err) == PL_OK);
    for (int i = 0; i < a->n * a->n_prompt; i++)
        require(response_prompt(w, i, 1, 0, "p") &&
                response_part(w, i, &part) && response_end(w, i, &end));
    require(n > 0);
    response_free(w);
}

static void check_tokens(const char *body, size_t n)
{
    struct tokens_request a;
    struct api_error why;

    if (!tokens_read_text(&a, body, n, &why))
        check_refusal(&why, API_ERROR_OPENAI);
    tokens_fini(&a);
    if (!tokens_read_ids(&a, body, n, 1000, &why))
        check_refusal(&why, API_ERROR_OPENAI);
    tokens_fini(&a);
}

int fuzz_ask(const uint8_t *data, size_t n)
{
    const struct request_rules rules = {
        .n_vocab = 1000,
        .max_tokens = -1,
        .can = n > 0 && data[0] % 2 != 0 ? REQUEST_ALL : 0};
    const bool ollama = n > 0 && data[0] >= 'a';
    const int which = n > 0 ? data[0] / 2 % 7 : 0;
    enum request_kind kind = ollama ? REQUEST_OLLAMA_CHAT + which % 2 : which;
    const char *body = (const char *)data + 1;
    struct api_error why = {0};
    struct request a;

    if (n == 0)
        return 0;
    if (!ollama && which > REQUEST_INFILL) {
        check_tokens(body, n - 1);
        return 0;
    }
    if (!request_parse(&a, kind, body, n - 1, &rules, &why))
        check_refusal(&why, request_shape(kind));
    else if (!a.load_only)
        check_asked(&a);
    request_fini(&a);
    return 0;
}
