/* Programs that speak the server's protocols: it parses their requests, and
 * they parse its responses, as tests/tools/server_clients.py expects. They
 * chat, stream, call tools twice and send the results back. The server here is
 * the real one except for its model: its output is fixed, so that it calls
 * tools.
 *
 * tests/refs/clients/ has the requests that each program sent and the responses
 * that it understood, so that most of this is tested without the programs. Run
 * the long tier with PLAIT_WRITE_CLIENTS=tests/refs/clients to write them
 * anew. */
#include "lib/command.h"
#include "lib/http_try.h"
#include "server/ollama.h"
#include "server/response.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the server ---------------------------------------------------------- */

static const struct {
    const char *path;
    enum request_kind kind;
} protocols[] = {
    {"/v1/chat/completions", REQUEST_CHAT},
    {"/v1/completions", REQUEST_COMPLETIONS},
    {"/v1/responses", REQUEST_RESPONSES},
    {"/v1/messages", REQUEST_MESSAGES},
    {"/api/chat", REQUEST_OLLAMA_CHAT},
    {"/api/generate", REQUEST_OLLAMA_GENERATE},
};
enum { N_PROTOCOL = sizeof protocols / sizeof protocols[0] };

/* The output of the model, as the script expects it: first all of it; with the
 * results of both calls the last call; with three results only the content. */
static const pl_reply_part said[] = {
    {PL_REPLY_REASONING, "why \xc3\xbc", 6, NULL, NULL},
    {PL_REPLY_CONTENT, "say \xe6\x9d\xb1 \"\\\" \xf0\x9f\x8e\x89\n", 17, NULL,
     NULL},
    {PL_REPLY_CALL, "{\"x\": \"\xc3\xbc\"}", 11, "f", NULL},
    {PL_REPLY_CALL, "{}", 2, "g", NULL},
    {PL_REPLY_CALL, "{\"x\": \"again\"}", 14, "f", NULL},
};

/* Sets *from and *to to the parts of `said` that respond to a request. */
static void choose_parts(const struct request *a, int *from, int *to)
{
    json_t *all = a->messages ? json_loads(a->messages, 0, NULL) : NULL;
    const json_t *m;
    int n_result = 0;
    size_t i;

    json_array_foreach (all, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));

        n_result += role && strcmp(role, "tool") == 0;
    }
    json_decref(all);
    *from = a->messages && a->tools && n_result < 2 ? 0 : 1;
    *to = *from == 0 ? 4 : 2;
    if (a->tools && n_result == 2) {
        *from = 4;
        *to = 5;
    }
}

static bool collect(void *user, const void *data, size_t n)
{
    test_text_add(user, data, n);
    return true;
}

/* Adds the tokens of a prompt of ids with their probabilities, as the script
 * expects them. */
static void write_prompt(struct response *w, const struct request *a)
{
    const struct request_piece *p = &a->prompt[0].piece[0];

    for (int64_t i = 0; i < p->n_ids; i++) {
        char text[8];
        struct response_token top = {.id = p->ids[i],
                                     .text = text,
                                     .logprob = -(p->ids[i] % 8) / 8.0},
                              t;

        top.len = (size_t)snprintf(text, sizeof text, "%c", (int)p->ids[i]);
        t = top;
        t.logprob = i == 0 ? NAN : top.logprob;
        t.top = &top;
        t.n_top = i > 0;
        assert_true(response_prompt_token(w, 0, &t));
    }
}

/* Writes the response. Texts are passed in fragments, calls
 * whole. */
static void write_response(const struct request *a, struct test_text *out,
                           const char **type)
{
    struct response_about about = {.model = "tale",
                                   .id = "a1",
                                   .created = 99,
                                   .write = collect,
                                   .user = out};
    struct response_end end = {.why = RESPONSE_ENDED,
                               .n_prompt = 10,
                               .n_cached = 4,
                               .n_written = 8,
                               .times = {0.5, 2}};
    struct response_token token = {
        .id = 7, .text = "say", .len = 3, .logprob = -0.5};
    int from, to;
    struct response *w;
    pl_err err;

    choose_parts(a, &from, &to);
    TEST_OK(response_create(&w, a, &about, &err), err);
    *type = response_type(w);
    assert_true(response_progress(w, 0, 5, 10, 4, 0.1));
    if (a->prompt_probs)
        write_prompt(w, a);
    assert_true(response_prompt(w, 0, 10, 4, NULL));
    assert_true(response_token(w, 0, &token, &end.times));
    for (int i = from; i < to; i++) {
        pl_reply_part part = said[i];

        for (size_t left = part.len; left > 0; left -= part.len) {
            if (part.kind != PL_REPLY_CALL)
                part.len = left < 5 ? left : 5;
            assert_true(response_part(w, 0, &part));
            part.text += part.len;
        }
    }
    assert_true(response_end(w, 0, &end));
    response_free(w);
}

/* Responds to a request of protocol p. Returns the status. */
static int respond(int p, const char *body, size_t n, struct test_text *out,
                   const char **type)
{
    static const struct request_rules rules = {
        .n_vocab = 1000, .max_tokens = -1, .can = REQUEST_ALL};
    struct api_error why = {0};
    struct request a;
    char *text;

    *type = "application/json";
    if (!request_parse(&a, protocols[p].kind, body, n, &rules, &why)) {
        text = api_error_body(&why, request_shape(protocols[p].kind));
        test_text_add(out, text, strlen(text));
        free(text);
        return why.status;
    }
    write_response(&a, out, type);
    request_fini(&a);
    return 200;
}

static struct {
    /* requests and responses of the client program that is running */
    json_t *exchanges;
    pthread_mutex_t lock;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void on_request(void *user, struct http_request *r)
{
    struct test_text out = {0};
    const char *type, *body;
    size_t n;
    int p = 0, status;

    (void)user;
    while (strcmp(protocols[p].path, http_path(r)) != 0)
        p++;
    body = http_body(r, &n);
    pthread_mutex_lock(&server.lock);
    status = respond(p, body, n, &out, &type);
    json_array_append_new(server.exchanges,
                          json_pack("{s:s, s:o, s:i, s:s}", "path",
                                    protocols[p].path, "body",
                                    json_loadb(body, n, 0, NULL), "status",
                                    status, "answer", out.s));
    pthread_mutex_unlock(&server.lock);
    http_respond(r, status, type, out.s, out.n);
    free(out.s);
}

/* Responds to requests about the model, such as its list of models. */
static void on_about(void *user, struct http_request *r)
{
    static const char body[] =
        "{\"object\":\"list\",\"data\":[{\"id\":\"tale\",\"object\":\"model\"}]"
        ","
        "\"models\":[{\"name\":\"tale:latest\",\"model\":\"tale:latest\"}],"
        "\"version\":\"" OLLAMA_VERSION "\",\"template\":\"{{ tools }}\","
        "\"model_info\":{},\"capabilities\":[\"completion\",\"tools\"]}";

    (void)user;
    http_respond(r, 200, "application/json", body, sizeof body - 1);
}

static const struct http_route routes[] = {
    {"POST", "/v1/chat/completions", on_request, 0},
    {"POST", "/v1/completions", on_request, 0},
    {"POST", "/v1/responses", on_request, 0},
    {"POST", "/v1/messages", on_request, 0},
    {"POST", "/api/chat", on_request, 0},
    {"POST", "/api/generate", on_request, 0},
    {"GET", "/v1/models", on_about, 0},
    {"GET", "/api/tags", on_about, 0},
    {"GET", "/api/version", on_about, 0},
    {"POST", "/api/show", on_about, 0},
};

/* ---- clients ------------------------------------------------------------- */

/* Runs a client of the script against the server. Returns false if its packages
 * are not installed. */
static bool run_client(const char *name, const char *python)
{
    const char *script = test_file("tests/tools/server_clients.py");
    const char *folder = getenv("PLAIT_WRITE_CLIENTS");
    struct http_options o = {0};
    struct http *h;
    char line[9000];
    pl_err err;
    int status;

    assert_non_null(script);
    server.exchanges = json_array();
    TEST_OK(http_start(&h, &o, routes, sizeof routes / sizeof routes[0],
                       api_error_body_of_path, NULL, &err),
            err);
    snprintf(line, sizeof line, "'%s' '%s' http://127.0.0.1:%d %s 2>&1", python,
             script, http_port(h), name);
    status = command_status(system(line));
    http_free(h);
    if (status == 0 && folder) {
        snprintf(line, sizeof line, "%s/%s.json", folder, name);
        assert_int_equal(json_dump_file(server.exchanges, line,
                                        JSON_INDENT(1) | JSON_SORT_KEYS),
                         0);
    }
    json_decref(server.exchanges);
    if (status != 77)
        assert_int_equal(status, 0);
    return status == 0;
}

TEST(clients_of_the_protocols_chat_stream_and_call)
{
    if (!run_client("openai", command_python()) ||
        !run_client("messages", command_python()))
        TEST_SKIP("Python lacks openai, or the package of /v1/messages");
}

TEST_LONG(clients_of_other_makers_chat_stream_and_call)
{
    static const char *const names[] = {"ollama", "litellm", "langchain", "llm",
                                        "lm-eval"};
    enum { N = sizeof names / sizeof names[0] };
    int n = 0;

    for (int i = 0; i < N; i++)
        n += run_client(names[i], command_python_long());
    if (n < N)
        TEST_SKIP("Python lacks ollama, litellm, langchain, llm or lm-eval");
}

/* ---- recorded exchanges -------------------------------------------------- */

/* Fails unless `got` has all that `want` has: keys with values of the same
 * types, and lists of the same lengths. */
static void has_shape(const json_t *want, const json_t *got, const char *of)
{
    const char *key;
    json_t *v;
    size_t i;

    if (json_is_integer(want) ? !json_is_number(got)
                              : json_typeof(want) != json_typeof(got))
        fail_msg("%s: a value of type %d, not %d", of,
                 got ? (int)json_typeof(got) : -1, (int)json_typeof(want));
    if (json_is_array(want) && json_array_size(want) != json_array_size(got))
        fail_msg("%s: %zu values, not %zu", of, json_array_size(got),
                 json_array_size(want));
    json_array_foreach (want, i, v)
        has_shape(v, json_array_get(got, i), of);
    json_object_foreach ((json_t *)want, key, v) {
        if (!json_object_get(got, key))
            fail_msg("%s: no %s", of, key);
        has_shape(v, json_object_get(got, key), key);
    }
}

/* Returns the objects of a response, in a list: one, those of the lines, or the
 * data of the events. */
static json_t *objects_of(const char *s)
{
    json_t *list = json_array();

    while (*s) {
        size_t n = strcspn(s, "\n");
        const char *at = strncmp(s, "data: ", 6) == 0 ? s + 6 : s;
        json_t *j = json_loadb(at, n - (size_t)(at - s), 0, NULL);

        if (j)
            json_array_append_new(list, j);
        s += n + (s[n] == '\n');
    }
    return list;
}

static void replay(const json_t *exchange, const char *of)
{
    const char *path = json_string_value(json_object_get(exchange, "path"));
    const char *answer = json_string_value(json_object_get(exchange, "answer"));
    char *body = json_dumps(json_object_get(exchange, "body"), 0);
    struct test_text out = {0};
    json_t *want, *got;
    const char *type;
    int p = 0;

    while (strcmp(protocols[p].path, path) != 0)
        assert_true(++p < N_PROTOCOL);
    assert_int_equal(respond(p, body, strlen(body), &out, &type),
                     json_integer_value(json_object_get(exchange, "status")));
    want = objects_of(answer);
    got = objects_of(out.s);
    assert_true(json_array_size(want) > 0);
    has_shape(want, got, of);
    json_decref(want);
    json_decref(got);
    free(out.s);
    free(body);
}

/* Returns the path of the folder of recorded exchanges. */
static const char *folder_of(char path[4096])
{
    const char *one = test_file("tests/refs/clients/openai.json");

    assert_non_null(one);
    snprintf(path, 4096, "%.*s", (int)(strrchr(one, '/') - one), one);
    return path;
}

/* A client that understood the recorded response understands the present
 * one. */
TEST(clients_get_what_they_understood_when_they_were_recorded)
{
    char folder[4096], path[5000];
    DIR *d = opendir(folder_of(folder));
    const struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        json_t *all, *exchange;
        size_t i;

        if (!strstr(e->d_name, ".json"))
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        all = json_load_file(path, 0, NULL);
        assert_true(json_array_size(all) > 2);
        json_array_foreach (all, i, exchange)
            replay(exchange, e->d_name);
        json_decref(all);
        n++;
    }
    closedir(d);
    assert_true(n >= 7);
}
