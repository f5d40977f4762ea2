/* plait serve as its users run it, a process with clients of bare sockets: its
 * responses are right. */
#include "lib/command.h"
#include "lib/serve_try.h"

#include "gguf/gguf.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Returns the text of the first choice, malloc'ed. */
static char *text_of(const char *body)
{
    json_t *j = serve_try_json(body);
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

/* Returns the texts of a stream's events, joined; malloc'ed. */
static char *streamed_text(const char *body)
{
    struct test_text all = {0};
    const char *at = body, *end = NULL;

    while ((at = strstr(at, "data: {"))) {
        char *line = strndup(at + 6, strcspn(at + 6, "\n"));
        json_t *j = serve_try_json(line);
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
    struct serve_try s;
    char head[4096];

    serve_try_start(&s, "", "-a tales --api-key secret");
    try_ask(&s.t, try_get("/health", ""), 200, "{\"status\":\"ok\"}", NULL);
    try_ask(&s.t, try_get("/v1/models", ""), 401, NULL, NULL);
    try_ask(&s.t, try_get("/v1/models", "Authorization: Bearer secret\r\n"),
            200, NULL, head);
    try_ask(&s.t, try_get("/v1/models/tales", "x-api-key: secret\r\n"), 200,
            NULL, head);
    try_ask(&s.t, try_get("/v1/models/gpt-4", "x-api-key: secret\r\n"), 404,
            NULL, head);
    try_ask(&s.t, try_get("/props", "x-api-key: secret\r\n"), 200, NULL, head);
    try_ask(&s.t, try_get("/slots", "x-api-key: secret\r\n"), 200, NULL, head);
    try_ask(&s.t, try_get("/nothing", "x-api-key: secret\r\n"), 404, NULL,
            head);
    serve_try_stop(&s);
}

TEST(serve_has_the_metrics_that_are_documented)
{
    static char doc[1 << 16];
    FILE *f = fopen(test_file("doc/metrics.md"), "r");
    char *all, *at, name[64], plain[72], labelled[72], first;
    struct serve_try s;
    int n = 0;

    assert_non_null(f);
    doc[fread(doc, 1, sizeof doc - 1, f)] = '\0';
    fclose(f);
    serve_try_start(&s, "", "");
    at = all = serve_try_get(&s, "/metrics");
    while (at && (at = strstr(at, "# HELP "))) {
        bool ours = strncmp(at, "# HELP plait_", 13) == 0;

        assert_int_equal(sscanf(at + (ours ? 13 : 7), "%63s %c", name, &first),
                         2);
        assert_true(ours || strncmp(name, "llamacpp:", 9) == 0);
        snprintf(plain, sizeof plain, "`%s`", name);
        snprintf(labelled, sizeof labelled, "`%s{", name);
        at = strchr(at, '\n');
        if (!strstr(doc, plain) && !strstr(doc, labelled))
            fail_msg("%s: not in doc/metrics.md", name);
        if (first < 'A' || first > 'Z' || !at || at[-1] != '.')
            fail_msg("%s: the help is not a sentence", name);
        n++;
    }
    assert_true(n > 45);
    free(all);
    serve_try_stop(&s);
}

TEST(serve_streams_what_it_answers_whole)
{
    static const char whole[] = "{\"prompt\":\"Once upon a time\",\"seed\":3,"
                                "\"max_tokens\":40,\"stream\":false}";
    static const char parts[] = "{\"prompt\":\"Once upon a time\",\"seed\":3,"
                                "\"max_tokens\":40,\"stream\":true}";
    struct serve_try s;

    serve_try_start(&s, "", "");
    for (int i = 0; i < 3; i++) {
        char *a = serve_try_post(&s, "/v1/completions", whole, 200);
        char *b = serve_try_post(&s, "/v1/completions", parts, 200);
        char *x = text_of(a), *y = streamed_text(b);

        assert_true(strlen(x) > 20);
        assert_string_equal(x, y);
        free(a);
        free(b);
        free(x);
        free(y);
    }
    serve_try_stop(&s);
}

TEST(serve_refuses_with_the_field_that_is_wrong)
{
    struct serve_try s;
    char *body;

    serve_try_start(&s, "", "");
    body = serve_try_post(&s, "/v1/completions", "{\"prompt\":5.5}", 400);
    assert_non_null(strstr(body, "\"param\":\"prompt\""));
    free(body);
    body = serve_try_post(&s, "/v1/completions",
                          "{\"prompt\":\"a\",\"temperature\":\"hot\"}", 400);
    assert_non_null(strstr(body, "temperature"));
    free(body);
    body = serve_try_post(&s, "/v1/chat/completions", "not JSON", 400);
    free(body);
    body = serve_try_post(&s, "/v1/messages", "{}", 400);
    assert_non_null(strstr(body, "\"type\":\"error\""));
    free(body);
    serve_try_stop(&s);
}

/* Writes a copy of the bundled model with a NaN in its last norm. */
static const char *write_damaged(void)
{
    const char *path = test_temp("damaged.gguf");
    const struct gguf_tensor *t;
    const float nan = NAN;
    struct gguf *g;
    size_t size;
    char *all = test_read(test_model(), &size);
    FILE *f = fopen(path, "wb");
    pl_err err;

    TEST_OK(gguf_open(&g, test_model(), &err), err);
    t = gguf_find_tensor(g, "output_norm.weight");
    assert_non_null(t);
    assert_int_equal(t->format, PL_F32);
    memcpy(all + t->offset, &nan, sizeof nan);
    gguf_close(g);
    assert_non_null(f);
    assert_int_equal(fwrite(all, 1, size, f), size);
    fclose(f);
    free(all);
    return path;
}

TEST(serve_says_where_embeddings_are_no_numbers)
{
    static const char *const paths[] = {"/v1/embeddings", "/embedding"};
    char line[500];
    struct serve_try s;

    snprintf(line, sizeof line, "-m '%s' -a broken --embeddings -c 256 -t 1",
             write_damaged());
    serve_try_run(&s, "", line);
    for (int i = 0; i < 2; i++) {
        char *body = serve_try_post(&s, paths[i], "{\"input\":\"Once\"}", 500);

        assert_non_null(strstr(body, "model broken"));
        assert_non_null(strstr(body, "not finite"));
        free(body);
    }
    serve_try_stop(&s);
}

TEST(serve_takes_names_of_its_own_alone)
{
    static const char ask[] = "GET /props HTTP/1.1\r\nHost: %s\r\n\r\n";
    char request[100];
    struct serve_try s;

    serve_try_start(&s, "", "--allowed-hosts tale.example,other.example");
    snprintf(request, sizeof request, ask, "other.example:80");
    try_ask(&s.t, request, 200, NULL, NULL);
    snprintf(request, sizeof request, ask, "page.example");
    try_ask(&s.t, request, 403, NULL, NULL);
    serve_try_stop(&s);
}

/* ---- silence ------------------------------------------------------------- */

/* Waits until this has arrived, in a response that has begun. */
static void comes(struct try_client *c, const char *text)
{
    struct try_answer a = {0};

    try_read_head(c, &a);
    assert_int_equal(a.status, 200);
    assert_true(try_fill(c, strlen(text)));
    assert_memory_equal(c->buf, text, strlen(text));
    free(a.body);
    try_close(c);
}

/* A stream whose task waits for a slot gets pings. */
TEST(serve_streams_that_wait_say_that_they_are_alive)
{
    static const char chat[] =
        "{\"stream\":true,\"max_tokens\":5,\"messages\":[{\"role\":\"user\","
        "\"content\":\"Hello?\"}]}";
    struct try_client first, second, third;
    struct serve_try s;

    serve_try_start(&s, "", "-np 1 -c 16384 --sse-ping-interval 1");
    try_connect(&s.t, &first);
    serve_try_send(&first, "/completion",
                   "{\"prompt\":\"Once\",\"n_predict\":16000,\"ignore_eos\":"
                   "true,\"stream\":true}");
    /* the first task runs and has the only slot */
    assert_true(try_fill(&first, 300));
    try_connect(&s.t, &second);
    serve_try_send(&second, "/v1/chat/completions", chat);
    try_connect(&s.t, &third);
    serve_try_send(&third, "/v1/messages", chat);
    comes(&second, "3\r\n:\n\n\r\n");
    comes(&third, "23\r\nevent: ping\ndata: {\"type\":\"ping\"}\n\n\r\n");
    try_close(&first);
    serve_try_stop(&s);
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

/* Each alone, then all at once, with some clients disconnecting: the others get
 * the same responses. */
TEST(serve_answers_in_company_as_alone)
{
    enum { N = 40 };
    struct try_client c[N];
    struct serve_try s;
    char body[256], *alone[N];

    serve_try_start(&s, "", "-np 6 --max-waiting 100");
    for (int i = 0; i < N; i++) {
        char *a;

        make_body(body, sizeof body, i, false);
        a = serve_try_post(&s, "/v1/completions", body, 200);
        alone[i] = text_of(a);
        free(a);
    }
    for (int i = 0; i < N; i++) {
        make_body(body, sizeof body, i, i % 3 == 0);
        try_connect(&s.t, &c[i]);
        serve_try_send(&c[i], "/v1/completions", body);
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
    serve_try_stop(&s);
}

/* The prefix that a request shares with an earlier one is not computed again,
 * and the response is the same. */
TEST(serve_shares_prefixes_and_answers_the_same)
{
    char body[4096] = "{\"seed\":1,\"max_tokens\":12,\"prompt\":\"";
    struct serve_try s;
    char *first, *again, *x, *y;
    json_t *j;

    while (strlen(body) < 1200)
        strcat(body, "Once upon a time there was a king. ");
    strcat(body, "\"}");
    serve_try_start(&s, "", "");
    first = serve_try_post(&s, "/v1/completions", body, 200);
    again = serve_try_post(&s, "/v1/completions", body, 200);
    x = text_of(first);
    y = text_of(again);
    assert_string_equal(x, y);
    j = serve_try_json(again);
    assert_true(json_integer_value(
                    json_object_get(json_object_get(json_object_get(j, "usage"),
                                                    "prompt_tokens_details"),
                                    "cached_tokens")) >= 64);
    json_decref(j);
    free(first);
    free(again);
    free(x);
    free(y);
    serve_try_stop(&s);
}

TEST(serve_tells_who_is_too_many_to_come_again)
{
    enum { N = 12 };
    struct try_client c[N];
    struct serve_try s;
    int refused = 0;

    serve_try_start(&s, "", "-np 1 --max-waiting 2");
    for (int i = 0; i < N; i++) {
        try_connect(&s.t, &c[i]);
        serve_try_send(&c[i], "/v1/completions",
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
    serve_try_stop(&s);
}

/* ---- clients of known protocols ------------------------------------------ */

/* Writes a template that shows tool calls, as many do. */
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

/* Appends the contents of a choice: its text, its calls, and its finish reason.
 * `m`: its message, or a part of it. */
static void add_said(struct test_text *text, struct test_text *calls,
                     struct test_text *why, const json_t *choice,
                     const json_t *m)
{
    const char *s = json_string_value(json_object_get(m, "content"));
    size_t i;
    json_t *call;

    if (s)
        test_text_add(text, s, strlen(s));
    json_array_foreach (json_object_get(m, "tool_calls"), i, call) {
        const json_t *f = json_object_get(call, "function");
        const char *name = json_string_value(json_object_get(f, "name"));

        if (name) {
            test_text_add(calls, "\n", 1);
            test_text_add(calls, name, strlen(name));
            test_text_add(calls, " ", 1);
        }
        s = json_string_value(json_object_get(f, "arguments"));
        if (s)
            test_text_add(calls, s, strlen(s));
    }
    s = json_string_value(json_object_get(choice, "finish_reason"));
    if (s)
        test_text_add(why, s, strlen(s));
}

/* Returns "TEXT|\nNAME ARGUMENTS...|WHY" of a response's body, streamed or
 * whole. */
static char *said(const char *body)
{
    struct test_text part[3] = {0};
    const char *at = body, *s;
    char *all = NULL;

    while ((s = body[0] == '{' ? at : strstr(at, "data: {"))) {
        char *line = strdup(s + (body[0] == '{' ? 0 : 6));
        const json_t *c, *m;
        json_t *j;

        line[strcspn(line, "\n")] = '\0';
        j = serve_try_json(line);
        c = json_array_get(json_object_get(j, "choices"), 0);
        m = json_object_get(c, "delta");
        add_said(&part[0], &part[1], &part[2], c,
                 m ? m : json_object_get(c, "message"));
        json_decref(j);
        free(line);
        at = s + 1;
        if (body[0] == '{')
            break;
    }
    if (asprintf(&all, "%s|%s|%s", part[0].s ? part[0].s : "",
                 part[1].s ? part[1].s : "", part[2].s ? part[2].s : "") < 0)
        fail_msg("no memory");
    for (int i = 0; i < 3; i++)
        free(part[i].s);
    return all;
}

/* A tool call that max_tokens cuts anywhere is reported alike in streams and in
 * whole responses. */
TEST(serve_tells_of_a_call_that_is_cut_the_same_streamed_or_whole)
{
    static const char form[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"}],"
        "\"seed\":4,\"max_tokens\":%d,\"stream\":%s,\"tool_choice\":"
        "\"required\",\"parallel_tool_calls\":false,\"tools\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"weather\",\"parameters\":"
        "{\"type\":\"object\",\"properties\":{\"days\":{\"type\":"
        "\"integer\",\"minimum\":1,\"maximum\":9},\"unit\":{\"enum\":"
        "[\"C\",\"F\"]}},\"required\":[\"days\",\"unit\"],"
        "\"additionalProperties\":false}}}]}";
    char request[1000], more[300];
    int n_call = 0, n_part = 0;
    struct serve_try s;

    snprintf(more, sizeof more, "--chat-template-file '%s'", write_template());
    serve_try_start(&s, "", more);
    for (int n = 1; n <= 200; n += n < 85 ? 7 : 54) {
        char *body, *whole, *parts;

        snprintf(request, sizeof request, form, n, "false");
        body = serve_try_post(&s, "/v1/chat/completions", request, 200);
        whole = said(body);
        free(body);
        snprintf(request, sizeof request, form, n, "true");
        body = serve_try_post(&s, "/v1/chat/completions", request, 200);
        parts = said(body);
        free(body);
        assert_string_equal(whole, parts);
        n_call += strstr(whole, "|tool_calls") != NULL;
        n_part += strstr(whole, "weather ") && strstr(whole, "|length");
        free(whole);
        free(parts);
    }
    assert_true(n_call > 0 && n_part > 0);
    serve_try_stop(&s);
}

/* A call that the model itself ends without its last brackets is whole. */
TEST(serve_closes_a_call_that_the_model_leaves_open)
{
    static const char form[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"}],"
        "\"max_tokens\":%d,\"stream\":%s,\"tools\":[{\"type\":\"function\","
        "\"function\":{\"name\":\"now\"}}],\"grammar\":\"root ::= "
        "\\\"<tool_call>{\\\\\\\"name\\\\\\\": \\\\\\\"now\\\\\\\", "
        "\\\\\\\"arguments\\\\\\\": {\\\\\\\"a\\\\\\\": [1\\\"\"}";
    char request[1000], more[300];
    struct serve_try s;

    snprintf(more, sizeof more, "--chat-template-file '%s'", write_template());
    serve_try_start(&s, "", more);
    for (int i = 0; i < 3; i++) {
        char *body, *got;

        snprintf(request, sizeof request, form, i < 2 ? 200 : 20,
                 i == 1 ? "true" : "false");
        body = serve_try_post(&s, "/v1/chat/completions", request, 200);
        got = said(body);
        if (i < 2)
            assert_string_equal(got, "|\nnow {\"a\": [1]}|tool_calls");
        else
            assert_non_null(strstr(got, "||length"));
        free(body);
        free(got);
    }
    serve_try_stop(&s);
}

/* The assistant's text at the end of a conversation is continued, as if the
 * prompt were given as a text, and is not sent again. This holds whatever it
 * ends with, streamed or whole. */
TEST(serve_goes_on_from_what_the_assistant_has_begun)
{
    static const char *const begun[] = {"Once upon a time", "A king had <tool",
                                        "He said: ", "{\"a\": [", "</think>"};
    static const char form[] = "{\"messages\":[{\"role\":\"user\",\"content\":"
                               "\"Hello?\"},{\"role\":\"assistant\","
                               "\"content\":%s}],\"temperature\":0,"
                               "\"max_tokens\":12,\"stream\":%s}";
    struct serve_try s;

    serve_try_start(&s, "", "");
    for (size_t i = 0; i < sizeof begun / sizeof begun[0]; i++) {
        char request[1000], *body, *plain = NULL, *parts, *prompt, *text;
        json_t *v = json_string(begun[i]), *j, *m;
        const char *const ways[] = {"/v1/chat/completions", "/v1/messages"};

        text = json_dumps(v, JSON_ENCODE_ANY);
        snprintf(request, sizeof request, form, text, "false");
        body = serve_try_post(&s, "/apply-template", request, 200);
        j = serve_try_json(body);
        prompt = json_dumps(json_object_get(j, "prompt"), JSON_ENCODE_ANY);
        m = json_object_get(j, "prompt");
        assert_string_equal(json_string_value(m) + json_string_length(m) -
                                strlen(begun[i]),
                            begun[i]);
        free(body);
        json_decref(j);
        for (int k = 0; k < 2; k++) {
            body = serve_try_post(&s, ways[k], request, 200);
            j = serve_try_json(body);
            m = k == 0
                    ? json_object_get(
                          json_object_get(
                              json_array_get(json_object_get(j, "choices"), 0),
                              "message"),
                          "content")
                    : json_object_get(
                          json_array_get(json_object_get(j, "content"), 0),
                          "text");
            if (k == 0)
                plain = strdup(json_string_value(m));
            else
                assert_string_equal(json_string_value(m), plain);
            json_decref(j);
            free(body);
        }
        snprintf(request, sizeof request, form, text, "true");
        body = serve_try_post(&s, ways[0], request, 200);
        parts = said(body);
        assert_int_equal(strncmp(parts, plain, strlen(plain)), 0);
        assert_int_equal(parts[strlen(plain)], '|');
        free(body);
        free(parts);
        snprintf(request, sizeof request,
                 "{\"prompt\":%s,\"temperature\":0,\"max_tokens\":12}", prompt);
        body = serve_try_post(&s, "/v1/completions", request, 200);
        parts = text_of(body);
        assert_string_equal(parts, plain);
        free(parts);
        free(body);
        free(prompt);
        free(plain);
        free(text);
        json_decref(v);
    }
    serve_try_stop(&s);
}

/* A model whose file has no chat template is chatted with in ChatML, and says
 * so in the log. The file is the bundled one with another name of the key. */
TEST(serve_gives_models_without_a_template_chatml)
{
    static const char key[] = "tokenizer.chat_template";
    static const char request[] = "{\"messages\": [{\"role\": \"system\", "
                                  "\"content\": \"a\"}, {\"role\": "
                                  "\"user\", \"content\": \"b\"}]}";
    const char *path = test_temp("no-template.gguf");
    char words[512], *body, *log, *file, *at;
    struct serve_try s;
    FILE *f;
    size_t n;

    file = test_read(test_model(), &n);
    at = memmem(file, n, key, sizeof key - 1);
    assert_non_null(at);
    at[sizeof key - 2] = 'x';
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(file, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(file);
    snprintf(words, sizeof words, "-m %s -c 512", path);
    serve_try_run(&s, "", words);
    body = serve_try_post(&s, "/apply-template", request, 200);
    assert_non_null(strstr(body, "<|im_start|>system\\na<|im_end|>\\n"
                                 "<|im_start|>user\\nb<|im_end|>\\n"
                                 "<|im_start|>assistant\\n\""));
    free(body);
    log = test_read(s.log, &n);
    assert_non_null(strstr(log, "chats use ChatML"));
    free(log);
    serve_try_stop(&s);
}

/* Reasoning that was cut is continued as reasoning, as if the prompt were given
 * as a text, and what the client has is not sent again. */
TEST(serve_goes_on_from_reasoning)
{
    static const char form[] =
        "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}"
        "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
        "{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}";
    static const char ask[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"},"
        "{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":"
        "\"A fox is a </\"}],\"continue_final_message\":true,"
        "\"temperature\":0,\"max_tokens\":12}";
    const char *path = test_temp("thinks.jinja");
    FILE *f = fopen(path, "w");
    char more[300], request[1000], *body, *plain, *prompt;
    json_t *j, *m;
    struct serve_try s;

    assert_non_null(f);
    assert_int_equal(fwrite(form, 1, sizeof form - 1, f), sizeof form - 1);
    fclose(f);
    snprintf(more, sizeof more, "--chat-template-file '%s'", path);
    serve_try_start(&s, "", more);
    body = serve_try_post(&s, "/apply-template", ask, 200);
    j = serve_try_json(body);
    prompt = json_dumps(json_object_get(j, "prompt"), JSON_ENCODE_ANY);
    json_decref(j);
    free(body);
    assert_non_null(strstr(prompt, "<think>\\nA fox is a </\""));
    snprintf(request, sizeof request,
             "{\"prompt\":%s,\"temperature\":0,\"max_tokens\":12}", prompt);
    body = serve_try_post(&s, "/v1/completions", request, 200);
    plain = text_of(body);
    free(body);
    body = serve_try_post(&s, "/v1/chat/completions", ask, 200);
    j = serve_try_json(body);
    m = json_object_get(json_array_get(json_object_get(j, "choices"), 0),
                        "message");
    assert_string_equal(
        json_string_value(json_object_get(m, "reasoning_content")), plain);
    json_decref(j);
    free(body);
    free(plain);
    free(prompt);
    serve_try_stop(&s);
}

/* With a response_format and tools that the model may call, it may do either;
 * here a bias decides. */
TEST(serve_lets_a_document_or_a_call_come_where_both_are_asked_for)
{
    static const char form[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"}],"
        "\"seed\":%d,\"max_tokens\":300,\"logit_bias\":{\"%s\":20},"
        "\"parallel_tool_calls\":false,\"response_format\":{\"type\":"
        "\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"object\","
        "\"properties\":{\"answer\":{\"enum\":[\"yes\",\"no\"]}},"
        "\"required\":[\"answer\"],\"additionalProperties\":false}}},"
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"now\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{},"
        "\"additionalProperties\":false}}}]}";
    char request[1000], more[300];
    struct serve_try s;

    snprintf(more, sizeof more, "--chat-template-file '%s'", write_template());
    serve_try_start(&s, "", more);
    for (int i = 0; i < 6; i++) {
        const bool calls = i % 2;
        char *body, *whole;

        snprintf(request, sizeof request, form, i, calls ? "<" : "{");
        body = serve_try_post(&s, "/v1/chat/completions", request, 200);
        whole = said(body);
        if (calls ? !strstr(whole, "|\nnow {") || !strstr(whole, "|tool_calls")
                  : !strstr(whole, "\"answer\"") || !strstr(whole, "||stop"))
            fail_msg("%s", whole);
        free(body);
        free(whole);
    }
    serve_try_stop(&s);
}

TEST(serve_is_understood_by_the_packages_of_its_protocols)
{
    const char *script = test_file("tests/tools/serve_clients.py");
    char line[9000], more[400];
    struct serve_try s;
    int status;

    assert_non_null(script);
    snprintf(more, sizeof more,
             "--api-key k1 --embeddings --pooling mean --chat-template-file "
             "'%s'",
             write_template());
    serve_try_start(&s, "", more);
    snprintf(line, sizeof line, "'%s' '%s' http://127.0.0.1:%d k1 2>&1",
             command_python(), script, s.t.port);
    status = command_status(system(line));
    serve_try_stop(&s);
    if (status == 77)
        TEST_SKIP("Python lacks openai, or the package of /v1/messages");
    assert_int_equal(status, 0);
}

/* ---- persistent caches --------------------------------------------------- */

enum { N_WORDS = 150 };

/* Returns a request for some tokens after a prompt of `n` words. */
static char *long_request(int n, int n_predict)
{
    struct test_text t = {0};
    char end[80];

    test_text_add(&t, "{\"prompt\":\"", 11);
    for (int i = 0; i < n; i++)
        test_text_add(&t, i % 3 ? "dragon " : "cat ", i % 3 ? 7 : 4);
    snprintf(end, sizeof end, "\",\"n_predict\":%d,\"seed\":1}", n_predict);
    test_text_add(&t, end, strlen(end));
    return t.s;
}

/* Returns the content of a response, malloc'ed, and a number of its timings. */
static char *ask_long(struct serve_try *s, int n, const char *timing,
                      int64_t *value)
{
    char *request = long_request(n, 8), *body, *text;
    json_t *j;

    body = serve_try_post(s, "/completion", request, 200);
    j = serve_try_json(body);
    text = strdup(json_string_value(json_object_get(j, "content")));
    *value = json_integer_value(
        json_object_get(json_object_get(j, "timings"), timing));
    json_decref(j);
    free(body);
    free(request);
    return text;
}

/* Returns the words of the log's line of request n, from its time on, in static
 * memory. The request's connection may outlive its response for a moment. */
static const char *line_of(const struct serve_try *s, int n)
{
    static char line[500];
    const char *at = NULL;

    while (!at) {
        size_t size;
        char *log = test_read(s->log, &size);

        at = log;
        for (int i = 0; at && i <= n; i++)
            at = strstr(at + (i > 0), " 127.0.0.1 POST ");
        if (at && strchr(at, '\n')) {
            while (at > log && at[-1] != '\n')
                at--;
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        } else {
            at = NULL;
            usleep(10000);
        }
        free(log);
    }
    return line;
}

/* A line has time, client, method, path, status, tokens and milliseconds, but
 * neither key nor text. */
TEST(serve_logs_the_tokens_of_each_request)
{
    static const struct {
        /* path and body of the request; body NULL for a prompt of N_WORDS
         * words */
        const char *path, *body;
        int status;
        const char *tokens;
    } list[] = {
        {"/v1/completions?key=k1", NULL, 200, "prompt=P cached=0 generated=8 "},
        {"/completion", NULL, 200, "prompt=P cached=C generated=8 "},
        {"/v1/completions",
         "{\"prompt\":[[1,2,3],[4,5]],\"n\":2,\"max_tokens\":3,\"stream\":true,"
         "\"ignore_eos\":true}",
         200, "prompt=5 cached=0 generated=12 "},
        {"/v1/embeddings", "{\"input\":[[1,2,3],[4,5]]}", 200,
         "prompt=5 cached=0 "},
        {"/v1/completions", "{\"prompt\":7}", 400, ""},
        {"/tokenize", "{\"content\":\"dragon\"}", 200, ""},
        {"/api/generate",
         "{\"model\":\"fable-moe-Q8_0\",\"raw\":true,\"prompt\":\"dragon\","
         "\"stream\":false,"
         "\"options\":"
         "{\"num_ctx\":9999,\"num_predict\":1}}",
         200, "prompt=3 cached=0 generated=1 "},
    };
    char *log;
    struct serve_try s;
    size_t size;

    serve_try_start(&s, "TZ=UTC-2", "--embeddings --api-key k1");
    for (int i = 0; i < (int)(sizeof list / sizeof *list); i++) {
        char head[300], text[200], path[100], tokens[100];
        int year, n = 0, status, n_prompt, n_cached;
        double ms;
        struct try_client c;
        struct try_answer a;
        const char *line;
        char *request =
            list[i].body ? strdup(list[i].body) : long_request(N_WORDS, 8);

        try_connect(&s.t, &c);
        snprintf(head, sizeof head,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\nx-api-key: k1\r\n"
                 "Content-Length: %zu\r\n\r\n",
                 list[i].path, strlen(request));
        try_send(&c, head);
        try_send(&c, request);
        try_read(&c, &a, false);
        try_close(&c);
        assert_int_equal(a.status, list[i].status);
        line = line_of(&s, i);
        if (sscanf(line,
                   "plait serve: %d-%*d-%*dT%*d:%*d:%*d+0200 127.0.0.1 POST "
                   "%99s %d %n",
                   &year, path, &status, &n) != 3 ||
            year < 2025 || strncmp(path, list[i].path, strlen(path)) != 0 ||
            strchr(path, '?') || status != list[i].status)
            fail_msg("%s", line);
        snprintf(text, sizeof text, "%s", line + n);
        if (sscanf(text, "prompt=%d cached=%d", &n_prompt, &n_cached) == 2 &&
            !list[i].body) {
            assert_true(n_prompt >= N_WORDS && n_cached < n_prompt);
            assert_int_equal(n_cached > 0, i > 0);
            snprintf(tokens, sizeof tokens, "prompt=%d cached=%d generated=8 ",
                     n_prompt, n_cached);
        } else {
            snprintf(tokens, sizeof tokens, "%s", list[i].tokens);
        }
        if (strncmp(text, tokens, strlen(tokens)) != 0 ||
            sscanf(text + strlen(tokens), "ms=%lf%n", &ms, &n) != 1 ||
            text[strlen(tokens) + (size_t)n] != '\0')
            fail_msg("%s", line);
        free(a.body);
        free(request);
    }
    serve_try_stop(&s);
    log = test_read(s.log, &size);
    assert_null(strstr(log, "dragon"));
    assert_null(strstr(log, "k1"));
    assert_non_null(strstr(log, "num_ctx 9999: the context has 512 tokens, and "
                                "the model was trained on 512\n"));
    free(log);
}

static int64_t number_of(const char *body, const char *name)
{
    json_t *j = serve_try_json(body);
    int64_t n = json_integer_value(json_object_get(j, name));

    json_decref(j);
    return n;
}

/* Saved by one server, restored by another with another split: the prompt is
 * not computed again, and the response is the same. */
TEST(serve_saves_and_restores_slots)
{
    static const char file[] = "{\"filename\":\"one.slot\"}";
    const char *dir = test_temp("slots");
    char more[400], *a, *b, *body;
    int64_t cached, n_saved;
    struct serve_try s;

    assert_int_equal(mkdir(dir, 0700), 0);
    snprintf(more, sizeof more, "--ranks 2 --slot-save-path '%s'", dir);
    serve_try_start(&s, "", more);
    free(serve_try_post(&s, "/slots/0?action=save", file,
                        400)); /* the slot has no tokens to save yet */
    a = ask_long(&s, N_WORDS, "cache_n", &cached);
    assert_int_equal(cached, 0);
    body = serve_try_post(&s, "/slots/0?action=save", file, 200);
    n_saved = number_of(body, "n_saved");
    assert_true(n_saved >= N_WORDS && number_of(body, "n_written") > 0);
    free(body);
    free(serve_try_post(&s, "/slots/0?action=save", "{\"filename\":\"../x\"}",
                        400));
    free(serve_try_post(&s, "/slots/0?action=save", "{}", 400));
    free(serve_try_post(&s, "/slots/0?action=dance", file, 400));
    free(serve_try_post(&s, "/slots/77?action=save", file, 400));
    body = serve_try_post(&s, "/slots/0?action=erase", "", 200);
    assert_int_equal(number_of(body, "n_erased"), n_saved);
    free(body);
    serve_try_stop(&s);

    snprintf(more, sizeof more,
             "--ranks 2 -dev 'cpu*2' -sm tensor "
             "--slot-save-path '%s'",
             dir);
    serve_try_start(&s, "", more);
    free(serve_try_post(&s, "/slots/1?action=restore",
                        "{\"filename\":\"none\"}", 400));
    body = serve_try_post(&s, "/slots/1?action=restore", file, 200);
    assert_int_equal(number_of(body, "n_restored"), n_saved);
    free(body);
    b = ask_long(&s, N_WORDS, "cache_n", &cached);
    assert_true(cached >= 128);
    assert_string_equal(a, b);
    serve_try_stop(&s);

    snprintf(more, sizeof more, "--ranks 4 --slot-save-path '%s'", dir);
    /* with other ranks the saved slot's bits would differ */
    serve_try_start(&s, "", more);
    free(serve_try_post(&s, "/slots/1?action=restore", file, 400));
    serve_try_stop(&s);
    serve_try_start(&s, "", "");
    free(serve_try_post(&s, "/slots/1?action=restore", file, 501));
    serve_try_stop(&s);
    free(a);
    free(b);
}

/* Returns the bytes that its process has read so far. */
static int64_t n_read(const struct serve_try *s)
{
    char path[64], *text;
    int64_t n = -1;
    size_t size;

    snprintf(path, sizeof path, "/proc/%d/io", (int)s->pid);
    text = test_read(path, &size);
    if (sscanf(text, "rchar: %" SCNd64, &n) != 1)
        fail_msg("%s: %.100s", path, text);
    free(text);
    return n;
}

/* A state is identified by all bytes of the weights. They are read a second
 * time for that only with permanent storage, not for preemption or pages in
 * host memory. */
TEST(serve_reads_its_model_once_unless_something_lasts)
{
    const char *const lasts[] = {"--cache-dir", "--slot-save-path"};
    const char *dir = test_temp("lasts");
    char more[400], *text[2];
    struct serve_try s;
    struct stat model;
    int64_t cached, loaded;

    assert_int_equal(stat(test_model(), &model), 0);
    assert_int_equal(mkdir(dir, 0700), 0);
    serve_try_start(&s, "", "--cache-ram 64");
    loaded = n_read(&s);
    for (int i = 0; i < 2; i++) {
        text[i] = ask_long(&s, N_WORDS, "cache_n", &cached);
        free(ask_long(&s, N_WORDS / 2, "cache_n", &cached));
    }
    assert_string_equal(text[0], text[1]);
    assert_true(n_read(&s) - loaded < model.st_size / 2);
    serve_try_stop(&s);
    for (int i = 0; i < 2; i++) {
        snprintf(more, sizeof more, "%s '%s'", lasts[i], dir);
        serve_try_start(&s, "", more);
        assert_true(n_read(&s) - loaded > model.st_size * 9 / 10);
        serve_try_stop(&s);
        free(text[i]);
    }
}

/* Killed at any time after its response; the next server's results are
 * right. */
TEST(serve_finds_its_cache_after_kill_9)
{
    const char *dir = test_temp("serve-cache");
    int n = test_long() ? 40 : 4;
    char more[400], *first = NULL;
    struct serve_try s;

    for (int i = 0; i < n; i++) {
        const struct timespec t = {.tv_nsec = 2000000 * (i % 20)};
        int64_t cached;
        int status;
        char *text;

        snprintf(more, sizeof more,
                 "--ranks 2 %s --cache-ram %d --cache-dir '%s'",
                 i % 2 ? "-dev 'cpu*2' -sm layer" : "", i % 3 ? 64 : 0, dir);
        serve_try_start(&s, "", more);
        text = ask_long(&s, N_WORDS, "cache_n", &cached);
        first = first ? first : strdup(text);
        assert_string_equal(text, first);
        free(text);
        if (i < n - 1) {
            nanosleep(&t, NULL);
            kill(s.pid, SIGKILL);
            assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
        } else {
            serve_try_stop(&s);
        }
    }
    { /* the server ended normally, so all cached pages are on disk */
        int64_t cached;

        serve_try_start(&s, "", more);
        free(ask_long(&s, N_WORDS, "cache_n", &cached));
        assert_true(cached >= 128);
        serve_try_stop(&s);
    }
    free(first);
}
