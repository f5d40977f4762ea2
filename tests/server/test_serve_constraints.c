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
    if (!v)
        v = json_object_get(
            json_array_get(
                json_object_get(json_array_get(json_object_get(j, "output"), 0),
                                "content"),
                0),
            "text");
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

/* ---- lists of tokens ----------------------------------------------------- */

/* Returns the id of the only token of a text. */
static int token_of(struct serve_try *s, const char *text)
{
    char request[100], *body;
    json_t *j, *list;
    int id;

    snprintf(request, sizeof request,
             "{\"content\":\"%s\",\"parse_special\":true}", text);
    body = serve_try_post(s, "/tokenize", request, 200);
    j = serve_try_json(body);
    list = json_object_get(j, "tokens");
    assert_int_equal(json_array_size(list), 1);
    id = (int)json_integer_value(json_array_get(list, 0));
    json_decref(j);
    free(body);
    return id;
}

/* Each protocol ends the output at a token of stop_token_ids, but not before
 * min_tokens; the other lists limit what is sampled. In the bodies $x, $q
 * and $e stand for the ids of x, of q, and of a token that ends texts. */
TEST(serve_honours_lists_of_tokens_in_every_protocol)
{
    static const struct {
        const char *path, *start, *end;
    } ways[] = {
        {"/completion", "\"n_predict\":9,\"prompt\":\"Once\"",
         "\"stop_type\":\"eos\""},
        {"/v1/completions", "\"max_tokens\":9,\"prompt\":\"Once\"",
         "\"finish_reason\":\"stop\""},
        {"/v1/chat/completions",
         "\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":"
         "\"Hi\"}]",
         "\"finish_reason\":\"stop\""},
        {"/v1/messages",
         "\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":"
         "\"Hi\"}]",
         "\"stop_reason\":\"end_turn\""},
        {"/v1/responses", "\"max_output_tokens\":9,\"input\":\"Hi\"",
         "\"status\":\"completed\""},
    };
    static const struct {
        const char *more, *text;
        bool ends; /* by itself */
    } rows[] = {
        {"\"allowed_token_ids\":[$x]", "xxxxxxxxx", false},
        {"\"allowed_token_ids\":[$x,$q],\"logit_bias\":[[$q,99]],"
         "\"stop_token_ids\":[$q],\"min_tokens\":4",
         "xxxx", true},
        {"\"allowed_token_ids\":[$x,$q],\"logit_bias\":[[$q,99]],"
         "\"stop_token_ids\":[$q],\"min_tokens\":4,"
         "\"include_stop_str_in_output\":true",
         "xxxxq", true},
        {"\"allowed_token_ids\":[$x,$q],\"logit_bias\":[[$q,99]],"
         "\"stop_token_ids\":[$q],\"min_tokens\":4,\"ignore_eos\":true",
         "xxxx", true},
        {"\"allowed_token_ids\":[$x,$q],\"logit_bias\":[[$q,99]],"
         "\"bad_words\":[\"qq\"]",
         "qxqxqxqxq", false},
        {"\"bad_words\":[\"x\"],\"logit_bias\":[[$x,99],[$q,98]]", "qqqqqqqqq",
         false},
        {"\"grammar\":\"root ::= \\\"x\\\"{1,9}\",\"logit_bias\":[[$x,-99]],"
         "\"allowed_token_ids\":[$x,$e],\"min_tokens\":5",
         "xxxxx", true},
        {"\"grammar\":\"root ::= \\\"x\\\"\",\"min_tokens\":5", "x", true},
    };
    struct serve_try s;
    char body[1000], head[4096];
    int x, q, eog;

    serve_try_start(&s, "", "");
    x = token_of(&s, "x");
    q = token_of(&s, "q");
    eog = token_of(&s, "<|im_end|>");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            size_t n = (size_t)snprintf(
                body, sizeof body, "{\"temperature\":0,%s,", ways[k].start);
            char *text;

            for (const char *c = rows[i].more; *c; c++) {
                n += (size_t)snprintf(body + n, sizeof body - n, "%.*s",
                                      *c != '$', c);
                if (*c == '$')
                    n += (size_t)snprintf(body + n, sizeof body - n, "%d",
                                          *++c == 'x' ? x
                                          : *c == 'q' ? q
                                                      : eog);
            }
            snprintf(body + n, sizeof body - n, "}");
            text = text_of(&s, ways[k].path, body, head);
            if (strcmp(text, rows[i].text) != 0)
                fail_msg("%s %s: %s", ways[k].path, body, text);
            free(text);
            text = serve_try_post(&s, ways[k].path, body, 200);
            if ((strstr(text, ways[k].end) != NULL) != rows[i].ends)
                fail_msg("%s %s: %s", ways[k].path, body, text);
            free(text);
        }
    }
    /* No stop string is found before min_tokens. */
    snprintf(body, sizeof body,
             WRITE "\"allowed_token_ids\":[%d],\"stop\":[\"xx\"],"
                   "\"min_tokens\":4}",
             x);
    {
        char *text = text_of(&s, "/v1/completions", body, head);

        assert_string_equal(text, "xxx");
        free(text);
    }
    serve_try_stop(&s);
}
