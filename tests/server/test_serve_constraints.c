/* Constraints of the output hold, by whatever name a client asks for them. A
 * header names those of a schema that cannot be enforced. */
#include "lib/serve_try.h"
#include "lib/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sends a request and returns the text of the response; `head` gets its header
 * lines. */
static char *text_of(struct serve_try *s, const char *path, const char *body,
                     char head[4096])
{
    struct try_client c;
    struct try_answer a;
    const json_t *choice, *v;
    char *text;
    json_t *j;

    try_connect(&s->t, &c);
    serve_try_send(&c, path, body);
    try_read(&c, &a, false);
    try_close(&c);
    if (a.status != 200)
        fail_msg("%s: %d %s", body, a.status, a.body);
    memcpy(head, a.head, sizeof a.head);
    j = serve_try_json(a.body);
    choice = json_array_get(json_object_get(j, "choices"), 0);
    v = json_object_get(choice, "text");
    if (!v)
        v = json_object_get(json_object_get(choice, "message"), "content");
    if (!v)
        v = json_object_get(json_array_get(json_object_get(j, "content"), 0),
                            "text");
    if (!v)
        v = json_object_get(j, "content");
    assert_non_null(json_string_value(v));
    text = strdup(json_string_value(v));
    /* Blanks may follow a document. */
    for (size_t n = strlen(text); n > 0 && strchr(" \t\n", text[n - 1]);)
        text[--n] = '\0';
    json_decref(j);
    free(a.body);
    return text;
}

#define TALK                                                                   \
    "{\"max_tokens\":40,\"seed\":1,\"messages\":[{\"role\":\"user\","          \
    "\"content\":\"Hi\"}],"
#define WRITE "{\"max_tokens\":40,\"seed\":1,\"prompt\":\"Once\","

static void check_texts(struct serve_try *s)
{
    static const struct {
        const char *path, *body, *text;
    } rows[] = {
        {"/v1/chat/completions", TALK "\"guided_choice\":[\"a \\\"fox\\\"\"]}",
         "a \"fox\""},
        {"/v1/completions",
         WRITE "\"structured_outputs\":{\"regex\":\"fo(?!o)[ox]{1}\"}}", "fox"},
        {"/completion", WRITE "\"guided_regex\":\"^(?=c)[a-c]at$\"}", "cat"},
        {"/v1/completions",
         WRITE "\"guided_json\":{\"const\":[1,{\"a\":null}]}}",
         "[1,{\"a\":null}]"},
        {"/v1/messages",
         TALK "\"output_format\":{\"type\":\"json_schema\","
              "\"schema\":{\"const\":7}}}",
         "7"},
        {"/v1/chat/completions",
         TALK "\"format\":{\"type\":\"integer\",\"minimum\":99,\"maximum\":"
              "99}}",
         "99"},
    };
    char head[4096];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text = text_of(s, rows[i].path, rows[i].body, head);

        assert_string_equal(text, rows[i].text);
        assert_null(strstr(head, "Plait-Warning"));
        free(text);
    }
}

static void check_notes(struct serve_try *s)
{
    static const char *const bodies[] = {
        TALK "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
             "\"schema\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
             "\"array\",\"items\":{\"type\":\"integer\",\"enum\":[1]},"
             "\"uniqueItems\":true,\"maxContains\":3,\"maxItems\":1}},"
             "\"required\":[\"a\"]}}}}",
    };
    char head[4096];

    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        char *text = text_of(s, "/v1/chat/completions", bodies[i], head);

        free(text);
        assert_non_null(strstr(head, "Plait-Warning: response_format: "
                                     "#/properties/a: maxContains is not "
                                     "enforced"));
    }
}

static void check_refusals(struct serve_try *s)
{
    static const struct {
        const char *body, *says;
    } rows[] = {
        {WRITE "\"guided_regex\":\"(\"}", "\"param\":\"guided_regex\""},
        {WRITE "\"guided_regex\":\"a\\\\b\"}", "this escape is not supported"},
        {WRITE "\"grammar\":\"root ::= <[9999999]>\"}", "no token of this id"},
        {WRITE "\"json_schema\":{\"type\":\"x\"}}",
         "\"param\":\"json_schema\""},
        {WRITE "\"structural_tag\":{\"a\":1}}", "\"param\":\"structural_tag\""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *body = serve_try_post(s, "/v1/completions", rows[i].body, 400);

        if (!strstr(body, rows[i].says))
            fail_msg("%s: %s", rows[i].body, body);
        free(body);
    }
}

static json_t *vector(struct serve_try *s, const char *more)
{
    char request[200], *body;
    json_t *j, *v;

    snprintf(request, sizeof request, "{\"input\":\"a fox\"%s}", more);
    body = serve_try_post(s, "/v1/embeddings", request, 200);
    j = serve_try_json(body);
    v = json_incref(json_object_get(
        json_array_get(json_object_get(j, "data"), 0), "embedding"));
    json_decref(j);
    free(body);
    return v;
}

/* The first values of a vector, with the length 1 again. */
static void check_dimensions(struct serve_try *s)
{
    json_t *all = vector(s, ""), *some = vector(s, ",\"dimensions\":8"),
           *packed = vector(s, ",\"dimensions\":3,\"encoding_format\":"
                               "\"base64\"");
    double sum = 0, first = 0;
    char *body;

    assert_true(json_array_size(all) > 8);
    assert_int_equal(json_array_size(some), 8);
    assert_int_equal(json_string_length(packed), 16); /* 12 bytes */
    for (size_t i = 0; i < 8; i++) {
        double x = json_number_value(json_array_get(all, i));

        sum += pow(json_number_value(json_array_get(some, i)), 2);
        first += x * x;
    }
    assert_true(fabs(sum - 1) < 1e-5);
    for (size_t i = 0; i < 8; i++)
        assert_true(fabs(json_number_value(json_array_get(some, i)) -
                         json_number_value(json_array_get(all, i)) /
                             sqrt(first)) < 1e-5);
    json_decref(all);
    json_decref(some);
    json_decref(packed);
    body = serve_try_post(s, "/v1/embeddings",
                          "{\"input\":\"a\",\"dimensions\":100000}", 400);
    assert_non_null(strstr(body, "dimensions is 100000"));
    free(body);
}

TEST(serve_keeps_what_clients_of_other_servers_ask_for)
{
    struct serve_try s;

    serve_try_start(&s, "", "--embeddings");
    check_texts(&s);
    check_notes(&s);
    check_refusals(&s);
    check_dimensions(&s);
    serve_try_stop(&s);
}
