/* plait serve as its users run it: a process, and clients of bare sockets. */
#include "lib/command.h"
#include "lib/http_try.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a server ------------------------------------------------------------ */

struct running {
    pid_t pid;
    int err;         /* its standard error */
    char said[8192]; /* what it has said there, terminated */
    size_t n;
    struct http_try t; /* for try_connect: its port alone */
};

static void start(struct running *s, const char *more)
{
    const char *at = NULL, mark[] = "listens at http://127.0.0.1:";
    char line[512];
    int fd[2];

    memset(s, 0, sizeof *s);
    snprintf(line, sizeof line, "exec %s serve -m %s --port 0 -t 1 -c 512 %s",
             command_path(), test_model(), more);
    assert_int_equal(pipe(fd), 0);
    s->pid = fork();
    assert_true(s->pid >= 0);
    if (s->pid == 0) {
        dup2(fd[1], 2);
        close(fd[0]);
        close(fd[1]);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    close(fd[1]);
    s->err = fd[0];
    while (!at || !strchr(at, '\n')) {
        ssize_t n = read(s->err, s->said + s->n, sizeof s->said - 1 - s->n);

        if (n <= 0)
            fail_msg("it did not begin: %s", s->said);
        s->n += (size_t)n;
        at = strstr(s->said, mark);
    }
    s->t.port = atoi(at + strlen(mark));
}

/* It ends by SIGTERM, with all that it was asked answered. */
static void stop(struct running *s)
{
    int status;

    kill(s->pid, SIGTERM);
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    assert_int_equal(command_status(status), 0);
    close(s->err);
}

static void send_post(struct try_client *c, const char *path, const char *body)
{
    char head[256];

    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n", path,
             strlen(body));
    try_send(c, head);
    try_send(c, body);
}

static char *post(struct running *s, const char *path, const char *body,
                  int status)
{
    struct try_client c;
    struct try_answer a;

    try_connect(&s->t, &c);
    send_post(&c, path, body);
    try_read(&c, &a, false);
    if (a.status != status)
        fail_msg("%s: %s%s", path, a.head, a.body);
    try_close(&c);
    return a.body;
}

static json_t *read_json(const char *text)
{
    json_error_t err;
    json_t *j = json_loads(text, 0, &err);

    if (!j)
        fail_msg("%s: %s", err.text, text);
    return j;
}

/* The text of the first choice, malloc'ed. */
static char *text_of(const char *body)
{
    json_t *j = read_json(body);
    const json_t *c = json_array_get(json_object_get(j, "choices"), 0);
    const char *s = json_string_value(json_object_get(c, "text"));
    char *text;

    if (!s)
        s = json_string_value(
            json_object_get(json_object_get(c, "message"), "content"));
    assert_non_null(s);
    text = strdup(s);
    json_decref(j);
    return text;
}

/* The texts of a stream's events, joined; malloc'ed. */
static char *streamed_text(const char *body)
{
    struct test_text all = {0};
    const char *at = body, *end = NULL;

    while ((at = strstr(at, "data: {"))) {
        char *line = strndup(at + 6, strcspn(at + 6, "\n"));
        json_t *j = read_json(line);
        const json_t *c = json_array_get(json_object_get(j, "choices"), 0);
        const char *s = json_string_value(json_object_get(c, "text"));

        if (s)
            test_text_add(&all, s, strlen(s));
        json_decref(j);
        free(line);
        at++;
    }
    end = strstr(body, "data: [DONE]");
    assert_non_null(end);
    return all.s ? all.s : strdup("");
}

/* ---- one request --------------------------------------------------------- */

TEST(serve_tells_what_it_serves)
{
    struct running s;
    char head[4096];

    start(&s, "-a tales --api-key secret");
    try_ask(&s.t, try_get("/health", ""), 200, "{\"status\":\"ok\"}", NULL);
    try_ask(&s.t, try_get("/v1/models", ""), 401, NULL, NULL);
    try_ask(&s.t, try_get("/v1/models", "Authorization: Bearer secret\r\n"),
            200, NULL, head);
    try_ask(&s.t, try_get("/props", "x-api-key: secret\r\n"), 200, NULL, head);
    try_ask(&s.t, try_get("/slots", "x-api-key: secret\r\n"), 200, NULL, head);
    try_ask(&s.t, try_get("/nothing", "x-api-key: secret\r\n"), 404, NULL,
            head);
    stop(&s);
}

TEST(serve_streams_what_it_answers_whole)
{
    static const char whole[] = "{\"prompt\":\"Once upon a time\",\"seed\":3,"
                                "\"max_tokens\":40,\"stream\":false}";
    static const char parts[] = "{\"prompt\":\"Once upon a time\",\"seed\":3,"
                                "\"max_tokens\":40,\"stream\":true}";
    struct running s;

    start(&s, "");
    for (int i = 0; i < 3; i++) {
        char *a = post(&s, "/v1/completions", whole, 200);
        char *b = post(&s, "/v1/completions", parts, 200);
        char *x = text_of(a), *y = streamed_text(b);

        assert_true(strlen(x) > 20);
        assert_string_equal(x, y);
        free(a);
        free(b);
        free(x);
        free(y);
    }
    stop(&s);
}

TEST(serve_refuses_with_the_field_that_is_wrong)
{
    struct running s;
    char *body;

    start(&s, "");
    body = post(&s, "/v1/completions", "{\"prompt\":5.5}", 400);
    assert_non_null(strstr(body, "\"param\":\"prompt\""));
    free(body);
    body = post(&s, "/v1/completions",
                "{\"prompt\":\"a\",\"temperature\":\"hot\"}", 400);
    assert_non_null(strstr(body, "temperature"));
    free(body);
    body = post(&s, "/v1/chat/completions", "not JSON", 400);
    free(body);
    body = post(&s, "/v1/messages", "{}", 400);
    assert_non_null(strstr(body, "\"type\":\"error\""));
    free(body);
    stop(&s);
}

/* ---- many ---------------------------------------------------------------- */

static void make_body(char *out, size_t size, int i, bool stream)
{
    static const char *const begin[] = {"Once upon a time", "The king",
                                        "There was a poor woman who",
                                        "In the forest", "A fox"};

    snprintf(out, size,
             "{\"prompt\":\"%s\",\"seed\":%d,\"max_tokens\":%d,"
             "\"stream\":%s}",
             begin[i % 5], i, 10 + i % 30, stream ? "true" : "false");
}

/* Each alone, then all at once, some of them leaving on the way: whoever stays
 * gets the same. */
TEST(serve_answers_in_company_as_alone)
{
    enum { N = 40 };
    struct try_client c[N];
    struct running s;
    char body[256], *alone[N];

    start(&s, "-np 6 --max-waiting 100");
    for (int i = 0; i < N; i++) {
        char *a;

        make_body(body, sizeof body, i, false);
        a = post(&s, "/v1/completions", body, 200);
        alone[i] = text_of(a);
        free(a);
    }
    for (int i = 0; i < N; i++) {
        make_body(body, sizeof body, i, i % 3 == 0);
        try_connect(&s.t, &c[i]);
        send_post(&c[i], "/v1/completions", body);
        if (i % 5 == 4)
            try_close(&c[i]);
    }
    for (int i = 0; i < N; i++) {
        struct try_answer a;
        char *text;

        if (i % 5 == 4) {
            free(alone[i]);
            continue;
        }
        try_read(&c[i], &a, false);
        assert_int_equal(a.status, 200);
        text = i % 3 == 0 ? streamed_text(a.body) : text_of(a.body);
        assert_string_equal(text, alone[i]);
        free(text);
        free(a.body);
        free(alone[i]);
        try_close(&c[i]);
    }
    stop(&s);
}

/* The beginning that a request shares with one before is not computed again,
 * and the answer is the same. */
TEST(serve_shares_prefixes_and_answers_the_same)
{
    char body[4096] = "{\"seed\":1,\"max_tokens\":12,\"prompt\":\"";
    struct running s;
    char *first, *again, *x, *y;
    json_t *j;

    while (strlen(body) < 1200)
        strcat(body, "Once upon a time there was a king. ");
    strcat(body, "\"}");
    start(&s, "");
    first = post(&s, "/v1/completions", body, 200);
    again = post(&s, "/v1/completions", body, 200);
    x = text_of(first);
    y = text_of(again);
    assert_string_equal(x, y);
    j = read_json(again);
    assert_true(json_integer_value(
                    json_object_get(json_object_get(json_object_get(j, "usage"),
                                                    "prompt_tokens_details"),
                                    "cached_tokens")) >= 64);
    json_decref(j);
    free(first);
    free(again);
    free(x);
    free(y);
    stop(&s);
}

TEST(serve_tells_who_is_too_many_to_come_again)
{
    enum { N = 12 };
    struct try_client c[N];
    struct running s;
    int refused = 0;

    start(&s, "-np 1 --max-waiting 2");
    for (int i = 0; i < N; i++) {
        try_connect(&s.t, &c[i]);
        send_post(&c[i], "/v1/completions",
                  "{\"prompt\":\"Once\",\"max_tokens\":300,"
                  "\"ignore_eos\":true}");
    }
    for (int i = 0; i < N; i++) {
        struct try_answer a;

        try_read(&c[i], &a, false);
        assert_true(a.status == 200 || a.status == 429);
        if (a.status == 429) {
            assert_non_null(strstr(a.head, "Retry-After: "));
            refused++;
        }
        free(a.body);
        try_close(&c[i]);
    }
    assert_true(refused > 0 && refused < N);
    stop(&s);
}

/* ---- the field's clients ------------------------------------------------- */

/* A template that shows calls of tools, as many do. */
static const char *write_template(void)
{
    static const char form[] =
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}\n<tool_call>\n{\"name\": "
        "\"{{ c.function.name }}\", \"arguments\": "
        "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
        "<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}";
    const char *path = test_temp("calls.jinja");
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(form, 1, sizeof form - 1, f), sizeof form - 1);
    fclose(f);
    return path;
}

TEST(serve_is_understood_by_the_packages_of_its_protocols)
{
    const char *script = test_file("tests/tools/serve_clients.py");
    char line[9000], more[400];
    struct running s;
    int status;

    assert_non_null(script);
    snprintf(more, sizeof more,
             "--api-key k1 --embeddings --pooling mean --chat-template-file "
             "'%s'",
             write_template());
    start(&s, more);
    snprintf(line, sizeof line, "'%s' '%s' http://127.0.0.1:%d k1 2>&1",
             command_python(), script, s.t.port);
    status = command_status(system(line));
    stop(&s);
    if (status == 77)
        TEST_SKIP("Python lacks openai, or the package of /v1/messages");
    assert_int_equal(status, 0);
}
