/* Ollama's API: its requests mean what llama-server's mean, its streams are
 * lines that add up to the whole response, and its clients find, load and
 * unload models. */
#include "lib/serve_try.h"
#include "lib/support.h"
#include "server/ollama.h"
#include "server/request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct request_rules rules = {
    .n_vocab = 1000, .max_tokens = 77, .seed = 5, .can = REQUEST_ALL};

/* Returns the text with " for each '. */
static char *quoted(const char *text)
{
    char *s = strdup(text);

    for (char *p = s; *p != '\0'; p++)
        if (*p == '\'')
            *p = '"';
    return s;
}

static void read_request(struct request *a, enum request_kind kind,
                         const char *text)
{
    struct api_error why = {0};
    char *body = quoted(text);

    if (!request_parse(a, kind, body, strlen(body), &rules, &why))
        fail_msg("%s: %s", body, why.message);
    free(body);
}

/* ---- requests ------------------------------------------------------------ */

#define HI     "'messages': [{'role': 'user', 'content': 'Hi'}]"
#define SCHEMA "{'type': 'object', 'properties': {'a': {'type': 'integer'}}}"
#define TOOLS                                                                  \
    "'tools': [{'type': 'function', 'function': {'name': 'f', 'description':"  \
    "'d', 'parameters': {'type': 'object', 'properties': {'x': {'type':"       \
    "'string'}}}}}]"
#define SAMPLERS                                                               \
    "'temperature': 0.5, 'top_k': 7, 'top_p': 0.25, 'min_p': 0.125,"           \
    "'typical_p': 0.75, 'seed': 42, 'stop': ['a', 'bc'], 'repeat_penalty':"    \
    "1.5, 'repeat_last_n': 33, 'presence_penalty': 2, 'frequency_penalty':"    \
    "-0.5, 'mirostat': 2, 'mirostat_tau': 3, 'mirostat_eta': 0.25"

/* Requests of Ollama's and those of llama-server with the same meaning. */
static const struct {
    enum request_kind kind;
    const char *ollama;
    enum request_kind as;
    const char *llama;
} pairs[] = {
    {REQUEST_OLLAMA_CHAT, "{" HI "}", REQUEST_CHAT, "{" HI ", 'stream': true}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'stream': null}", REQUEST_CHAT,
     "{" HI ", 'stream': true}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'stream': false, 'keep_alive': '5m'}",
     REQUEST_CHAT, "{" HI "}"},
    {REQUEST_OLLAMA_CHAT,
     "{" HI ", 'options': {" SAMPLERS ", 'num_predict': 9, 'num_ctx': 4096,"
     "'num_gpu': 99, 'num_thread': 4, 'num_keep': 3, 'tfs_z': null}}",
     REQUEST_CHAT, "{" HI ", " SAMPLERS ", 'max_tokens': 9, 'stream': true}"},
    /* -1 means no limit of generated tokens */
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'options': {'num_predict': -1}}",
     REQUEST_CHAT, "{" HI ", 'stream': true}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'options': {'num_predict': 0}}",
     REQUEST_CHAT, "{" HI ", 'stream': true}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'options': {'num_predict': 12.0}}",
     REQUEST_CHAT, "{" HI ", 'n_predict': 12, 'stream': true}"},
    /* options outside of "options" are ignored */
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'temperature': 9, 'max_tokens': 3}",
     REQUEST_CHAT, "{" HI ", 'stream': true}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'format': 'json'}", REQUEST_CHAT,
     "{" HI ", 'stream': true, 'response_format': {'type': 'json_object'}}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'format': ''}", REQUEST_CHAT,
     "{" HI ", 'stream': true}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'format': " SCHEMA "}", REQUEST_CHAT,
     "{" HI ", 'stream': true, 'response_format': {'type': 'json_schema',"
     "'json_schema': {'schema': " SCHEMA "}}}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'think': false}", REQUEST_CHAT,
     "{" HI ", 'stream': true, 'chat_template_kwargs': {'enable_thinking':"
     "false, 'thinking': false}}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'think': true}", REQUEST_CHAT,
     "{" HI ", 'stream': true, 'chat_template_kwargs': {'enable_thinking':"
     "true, 'thinking': true}}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'think': 'high'}", REQUEST_CHAT,
     "{" HI ", 'stream': true, 'reasoning_effort': 'high',"
     "'chat_template_kwargs': {'enable_thinking': true, 'thinking': true}}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'logprobs': true, 'top_logprobs': 3}",
     REQUEST_CHAT,
     "{" HI ", 'stream': true, 'logprobs': true, 'top_logprobs': 3}"},
    {REQUEST_OLLAMA_CHAT, "{" HI ", 'top_logprobs': 3}", REQUEST_CHAT,
     "{" HI ", 'stream': true}"},
    /* tool calls have no ids, and results name the tool */
    {REQUEST_OLLAMA_CHAT,
     "{" TOOLS ", 'messages': [{'role': 'user', 'content': 'q', 'images': []},"
     "{'role': 'assistant', 'thinking': 't', 'content': '', 'tool_calls': ["
     "{'function': {'name': 'f', 'arguments': {'x': 1}}},"
     "{'function': {'name': 'g', 'arguments': {}}}]},"
     "{'role': 'tool', 'content': 'of g', 'tool_name': 'g'},"
     "{'role': 'tool', 'content': 'of f'},"
     "{'role': 'assistant', 'content': '', 'tool_calls': ["
     "{'id': 'own', 'function': {'index': 0, 'name': 'f', 'arguments': {}}}]},"
     "{'role': 'tool', 'content': 'again', 'tool_call_id': 'own'}]}",
     REQUEST_CHAT,
     "{" TOOLS ", 'stream': true, 'messages': ["
     "{'role': 'user', 'content': 'q'},"
     "{'role': 'assistant', 'reasoning_content': 't', 'content': '',"
     "'tool_calls': [{'id': 'call_0', 'type': 'function', 'function':"
     "{'name': 'f', 'arguments': {'x': 1}}}, {'id': 'call_1', 'type':"
     "'function', 'function': {'name': 'g', 'arguments': {}}}]},"
     "{'role': 'tool', 'content': 'of g', 'tool_call_id': 'call_1', 'name':"
     "'g'}, {'role': 'tool', 'content': 'of f', 'tool_call_id': 'call_0',"
     "'name': 'f'},"
     "{'role': 'assistant', 'content': '', 'tool_calls': [{'id': 'own',"
     "'type': 'function', 'function': {'name': 'f', 'arguments': {}}}]},"
     "{'role': 'tool', 'content': 'again', 'tool_call_id': 'own', 'name':"
     "'f'}]}"},
    {REQUEST_OLLAMA_CHAT,
     "{'messages': [{'role': 'user', 'content': 'q'}, {'role': 'assistant',"
     "'content': 'The'}]}",
     REQUEST_CHAT,
     "{'stream': true, 'messages': [{'role': 'user', 'content': 'q'},"
     "{'role': 'assistant', 'content': 'The'}]}"},
    {REQUEST_OLLAMA_GENERATE, "{'prompt': 'Hi'}", REQUEST_CHAT,
     "{" HI ", 'stream': true}"},
    {REQUEST_OLLAMA_GENERATE,
     "{'prompt': 'Hi', 'system': 'be', 'stream': false, 'template': ''}",
     REQUEST_CHAT,
     "{'messages': [{'role': 'system', 'content': 'be'}, {'role': 'user',"
     "'content': 'Hi'}]}"},
    {REQUEST_OLLAMA_GENERATE,
     "{'prompt': 'Hi', 'raw': true, 'format': 'json', 'options': {" SAMPLERS
     "}}",
     REQUEST_COMPLETION,
     "{'prompt': 'Hi', 'stream': true, " SAMPLERS
     ", 'response_format': {'type': 'json_object'}}"},
    {REQUEST_OLLAMA_GENERATE, "{'prompt': 'Hi', 'template': ' {{ .Prompt }} '}",
     REQUEST_COMPLETION, "{'prompt': 'Hi', 'stream': true}"},
};

static void same_text(const char *a, const char *b, const char *of)
{
    if (strcmp(a ? a : "(none)", b ? b : "(none)") != 0)
        fail_msg("%s: %s, not %s", of, a ? a : "(none)", b ? b : "(none)");
}

/* Fails unless two JSON texts are equal; NULL is an absent one. */
static void same_json(const char *got, const char *want, const char *of)
{
    json_t *a = json_loads(got ? got : "null", JSON_DECODE_ANY, NULL);
    json_t *b = json_loads(want ? want : "null", JSON_DECODE_ANY, NULL);

    if (!json_equal(a, b))
        fail_msg("%s: %s, not %s", of, got, want);
    json_decref(a);
    json_decref(b);
}

static void same_sampling(const pl_sampling *a, const pl_sampling *b)
{
    assert_true(a->temperature == b->temperature && a->top_k == b->top_k &&
                a->top_p == b->top_p && a->min_p == b->min_p &&
                a->typical_p == b->typical_p && a->seed == b->seed);
    assert_true(a->repeat_penalty == b->repeat_penalty &&
                a->penalty_last_n == b->penalty_last_n &&
                a->presence_penalty == b->presence_penalty &&
                a->frequency_penalty == b->frequency_penalty);
    assert_true(a->mirostat == b->mirostat &&
                a->mirostat_tau == b->mirostat_tau &&
                a->mirostat_eta == b->mirostat_eta);
}

TEST(ollama_requests_mean_what_llama_servers_mean)
{
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const char *of = pairs[i].ollama;
        struct request a, b;

        read_request(&a, pairs[i].kind, of);
        read_request(&b, pairs[i].as, pairs[i].llama);
        assert_int_equal(a.kind, pairs[i].kind);
        assert_false(a.load_only);
        assert_string_equal(a.passed_over, "");
        same_json(a.messages, b.messages, of);
        same_json(a.tools, b.tools, of);
        same_json(a.extra, b.extra, of);
        same_json(a.schema, b.schema, of);
        same_text(a.begun, b.begun, of);
        same_sampling(&a.sampling, &b.sampling);
        if (a.max_tokens != b.max_tokens || a.stream != b.stream ||
            a.probs != b.probs || a.n_top != b.n_top || a.n_stop != b.n_stop ||
            a.no_generation_prompt != b.no_generation_prompt)
            fail_msg("%s: another limit, stream or list", of);
        for (int k = 0; k < a.n_stop; k++)
            assert_string_equal(a.stop[k], b.stop[k]);
        if (!a.messages)
            assert_string_equal(a.prompt[0].piece[0].text,
                                b.prompt[0].piece[0].text);
        request_fini(&a);
        request_fini(&b);
    }
}

TEST(ollama_requests_without_a_prompt_only_load)
{
    static const struct {
        enum request_kind kind;
        const char *body;
    } rows[] = {
        {REQUEST_OLLAMA_CHAT, "{}"},
        {REQUEST_OLLAMA_CHAT, "{'messages': []}"},
        {REQUEST_OLLAMA_CHAT, "{'messages': null, 'keep_alive': -1}"},
        {REQUEST_OLLAMA_GENERATE, "{}"},
        {REQUEST_OLLAMA_GENERATE, "{'prompt': '', 'suffix': ''}"},
        {REQUEST_OLLAMA_GENERATE, "{'prompt': null, 'keep_alive': '1h'}"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct request a;

        read_request(&a, rows[i].kind, rows[i].body);
        assert_true(a.load_only);
        request_fini(&a);
    }
}

TEST(ollama_requests_name_what_is_wrong)
{
    static const struct {
        enum request_kind kind;
        const char *body, *says;
    } rows[] = {
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'images': ['AAAA']}", "images"},
        {REQUEST_OLLAMA_CHAT,
         "{'messages': [{'role': 'user', 'content': 'x', 'images': ['AAAA']}]}",
         "messages[0].images"},
        {REQUEST_OLLAMA_GENERATE, "{'prompt': 'x', 'images': ['AAAA']}",
         "images"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'format': 'xml'}", "format"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'format': ['json']}", "format"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'think': 'hard'}", "think"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'think': 1}", "think"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'keep_alive': 'soon'}", "keep_alive"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'keep_alive': '5x'}", "keep_alive"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'options': []}", "options"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'options': {'temperature': 'hot'}}",
         "temperature"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'options': {'num_predict': 'all'}}",
         "options.num_predict"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'options': {'num_ctx': 'big'}}",
         "options.num_ctx"},
        {REQUEST_OLLAMA_CHAT, "{" HI ", 'logprobs': true, 'top_logprobs': 21}",
         "top_logprobs"},
        {REQUEST_OLLAMA_CHAT, "{'messages': 'Hi'}", "messages"},
        {REQUEST_OLLAMA_CHAT, "{'messages': [{'content': 'Hi'}]}", "role"},
        {REQUEST_OLLAMA_GENERATE, "{'prompt': ['Hi']}", "prompt"},
        {REQUEST_OLLAMA_GENERATE, "{'prompt': 'x', 'template': '[INST]'}",
         "template"},
        {REQUEST_OLLAMA_GENERATE, "{'prompt': 'x', 'raw': true, 'system': 's'}",
         "raw"},
        {REQUEST_OLLAMA_GENERATE,
         "{'prompt': 'x', 'raw': true, 'context': [1]}", "raw"},
        {REQUEST_OLLAMA_GENERATE, "{'prompt': 'x', 'context': [1000]}",
         "context"},
        {REQUEST_OLLAMA_GENERATE, "{'prompt': 'x', 'context': 'before'}",
         "context"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct api_error why = {0};
        struct request a;
        char *body = quoted(rows[i].body);

        if (request_parse(&a, rows[i].kind, body, strlen(body), &rules, &why))
            fail_msg("%s was taken", body);
        assert_true(why.status == 400);
        if (!strstr(why.message, rows[i].says))
            fail_msg("%s: %s", body, why.message);
        free(body);
    }
}

TEST(ollama_options_without_effect_are_noted)
{
    struct request a;

    read_request(&a, REQUEST_OLLAMA_CHAT,
                 "{" HI ", 'options': {'tfs_z': 0.5, 'num_batch': 1,"
                 "'penalize_newline': true, 'num_ctx': 9}}");
    assert_string_equal(a.passed_over, "tfs_z, penalize_newline");
    assert_int_equal(a.num_ctx, 9);
    request_fini(&a);
}

TEST(ollama_durations_are_read)
{
    static const struct {
        const char *text;
        double seconds;
    } rows[] = {
        {"0", 0},           {"-1", -1},         {"300", 300},
        {"2.5", 2.5},       {"\"5m\"", 300},    {"\"1h30m\"", 5400},
        {"\"-1m\"", -60},   {"\"0s\"", 0},      {"\"1500ms\"", 1.5},
        {"\"-1\"", -1},     {"\"24h\"", 86400}, {"\"0\"", 0},
        {"\"1.5h\"", 5400}, {"null", 7},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct api_error why;
        struct fields f = {.why = &why};
        double got = 7;
        json_t *j = json_pack("{s:o}", "keep_alive",
                              json_loads(rows[i].text, JSON_DECODE_ANY, NULL));

        f.in = j;
        assert_true(ollama_keep_alive(&f, &got));
        if (fabs(got - rows[i].seconds) > 1e-9)
            fail_msg("%s: %g", rows[i].text, got);
        json_decref(j);
    }
}

/* ---- against a server ---------------------------------------------------- */

#define NAME   "\"model\":\"tale\","
#define GREEDY "\"options\":{\"temperature\":0,\"num_predict\":24}"
#define TALK                                                                   \
    "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a tale.\"}]"

static const json_t *get(const json_t *j, const char *a, const char *b)
{
    j = json_object_get(j, a);
    return b ? json_object_get(j, b) : j;
}

static const char *text_at(const json_t *j, const char *a, const char *b)
{
    const char *s = json_string_value(get(j, a, b));

    return s ? s : "(none)";
}

/* Sends a request and returns its JSON. */
static json_t *post(struct serve_try *s, const char *path, const char *body,
                    int status)
{
    char *text = serve_try_post(s, path, body, status);
    json_t *j = serve_try_json(text);

    free(text);
    return j;
}

static json_t *get_json(struct serve_try *s, const char *path)
{
    char *text = serve_try_get(s, path);
    json_t *j = serve_try_json(text);

    free(text);
    return j;
}

/* Sends a request for a stream. Returns its last line, and appends all texts to
 * *all. */
static json_t *post_lines(struct serve_try *s, const char *path,
                          const char *body, struct test_text *all)
{
    char *text = serve_try_post(s, path, body, 200), *line = text, *end;
    json_t *last = NULL;

    while ((end = strchr(line, '\n'))) {
        const char *more;

        *end = '\0';
        assert_false(json_is_true(json_object_get(last, "done")));
        json_decref(last);
        last = serve_try_json(line);
        more = json_string_value(json_object_get(last, "message")
                                     ? get(last, "message", "content")
                                     : get(last, "response", NULL));
        assert_non_null(more);
        test_text_add(all, more, strlen(more));
        assert_non_null(json_object_get(last, "created_at"));
        line = end + 1;
    }
    assert_string_equal(line, "");
    free(text);
    return last;
}

static void check_last(const json_t *j)
{
    static const char *const numbers[] = {
        "total_duration",       "load_duration", "prompt_eval_count",
        "prompt_eval_duration", "eval_count",    "eval_duration"};

    assert_true(json_is_true(json_object_get(j, "done")));
    assert_string_equal(text_at(j, "model", NULL), "tale");
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (!json_is_integer(json_object_get(j, numbers[i])) ||
            json_integer_value(json_object_get(j, numbers[i])) < 0)
            fail_msg("%s", numbers[i]);
    assert_true(json_integer_value(get(j, "prompt_eval_count", NULL)) > 3);
    assert_true(json_integer_value(get(j, "eval_count", NULL)) > 3);
}

/* A chat of each protocol has the same text; so do a prompt and a chat, a
 * stream and the whole. */
static void check_texts(struct serve_try *s)
{
    static const char *const chats[] = {
        "{" NAME TALK "," GREEDY "}",
        "{" NAME TALK ",\"stream\":false," GREEDY "}",
        "{" NAME "\"prompt\":\"Tell me a tale.\"," GREEDY "}",
        "{" NAME "\"prompt\":\"Tell me a tale.\",\"stream\":false," GREEDY "}",
    };
    json_t *plain = post(s, "/v1/chat/completions",
                         "{" TALK ",\"temperature\":0,\"max_tokens\":24}", 200);
    const char *want = json_string_value(json_object_get(
        json_object_get(json_array_get(json_object_get(plain, "choices"), 0),
                        "message"),
        "content"));

    assert_non_null(want);
    for (size_t i = 0; i < sizeof chats / sizeof chats[0]; i++) {
        const char *path = i < 2 ? "/api/chat" : "/api/generate";
        struct test_text all = {0};
        json_t *last;

        if (i % 2) {
            last = post(s, path, chats[i], 200);
            assert_string_equal(i < 2 ? text_at(last, "message", "content")
                                      : text_at(last, "response", NULL),
                                want);
        } else {
            last = post_lines(s, path, chats[i], &all);
            assert_string_equal(all.s, want);
            free(all.s);
        }
        check_last(last);
        if (i >= 2)
            assert_int_equal(
                json_array_size(json_object_get(last, "context")),
                json_integer_value(get(last, "prompt_eval_count", NULL)) +
                    json_integer_value(get(last, "eval_count", NULL)));
        json_decref(last);
    }
    json_decref(plain);
}

/* The tokens of "context" precede the next prompt: as many more are
 * evaluated. */
static void check_context(struct serve_try *s)
{
    static const char form[] =
        "{" NAME "\"prompt\":\"Go on.\",\"stream\":false," GREEDY
        ",\"context\":%s}";
    json_t *alone = post(
        s, "/api/generate",
        "{" NAME "\"prompt\":\"Go on.\",\"stream\":false," GREEDY "}", 200);
    char *context = json_dumps(json_object_get(alone, "context"), 0);
    char body[2000];
    json_t *next;

    snprintf(body, sizeof body, form, context);
    next = post(s, "/api/generate", body, 200);
    assert_int_equal(
        json_integer_value(get(next, "prompt_eval_count", NULL)),
        json_integer_value(get(alone, "prompt_eval_count", NULL)) +
            (json_int_t)json_array_size(json_object_get(alone, "context")));
    json_decref(next);
    json_decref(alone);
    free(context);
}

static void check_raw(struct serve_try *s)
{
    json_t *a = post(s, "/completion",
                     "{\"prompt\":\"Once upon a time\",\"temperature\":0,"
                     "\"n_predict\":24}",
                     200);
    json_t *b = post(s, "/api/generate",
                     "{" NAME "\"prompt\":\"Once upon a time\",\"raw\":true,"
                     "\"stream\":false," GREEDY "}",
                     200);

    assert_string_equal(text_at(b, "response", NULL),
                        text_at(a, "content", NULL));
    assert_string_equal(text_at(b, "done_reason", NULL), "length");
    assert_null(json_object_get(b, "context"));
    json_decref(a);
    json_decref(b);
}

static void check_format(struct serve_try *s)
{
    json_t *j =
        post(s, "/api/chat",
             "{" NAME TALK ",\"stream\":false,\"format\":{\"type\":\"object\","
             "\"properties\":{\"age\":{\"type\":\"integer\",\"minimum\":0,"
             "\"maximum\":99}},\"required\":[\"age\"],\"additionalProperties\":"
             "false},\"logprobs\":true,\"top_logprobs\":2}",
             200);
    json_t *said = serve_try_json(text_at(j, "message", "content"));
    const json_t *probs = json_object_get(j, "logprobs");

    assert_true(json_is_integer(json_object_get(said, "age")));
    assert_int_equal(json_array_size(probs),
                     json_integer_value(get(j, "eval_count", NULL)));
    assert_int_equal(json_array_size(json_object_get(json_array_get(probs, 0),
                                                     "top_logprobs")),
                     2);
    json_decref(said);
    json_decref(j);
}

/* Appends messages of the turns from `from` on. */
static void add_turns(struct test_text *t, int from, int n)
{
    char turn[200];

    for (int i = from; i < n; i++) {
        snprintf(turn, sizeof turn,
                 "%s{\"role\":\"user\",\"content\":\"the king and the fox of "
                 "day %d\"}%s",
                 ",", i,
                 i + 1 < n ? ",{\"role\":\"assistant\",\"content\":\"They were "
                             "in the wood.\"}"
                           : "");
        test_text_add(t, turn, strlen(turn));
    }
}

/* Returns the response to a chat of the turns `from` to n - 1, after a message
 * of the system. */
static json_t *ask_turns(struct serve_try *s, int from, int n, const char *more)
{
    static const char head[] =
        "{" NAME "\"stream\":false," GREEDY ",\"messages\":[{\"role\":"
        "\"system\",\"content\":\"Be brief.\"}";
    struct test_text t = {0};
    struct try_client c;
    struct try_answer a;
    json_t *j;

    test_text_add(&t, head, sizeof head - 1);
    add_turns(&t, from, n);
    test_text_add(&t, "]", 1);
    test_text_add(&t, more, strlen(more));
    test_text_add(&t, "}", 1);
    try_connect(&s->t, &c);
    serve_try_send(&c, "/api/chat", t.s);
    try_read(&c, &a, false);
    try_close(&c);
    j = serve_try_json(a.body);
    free(a.body);
    free(t.s);
    return j;
}

/* A conversation that outgrew the context goes on without its oldest turns, as
 * if they had not been sent, and leaves space for the answer. */
static void check_long(struct serve_try *s)
{
    enum { N = 40 };
    json_t *all = ask_turns(s, 0, N, ""), *j = NULL;
    json_int_t n = json_integer_value(get(all, "prompt_eval_count", NULL));
    int n_error = 0, from = 0;

    assert_true(n > 300 && n + 24 < 512);
    for (; json_integer_value(get(j, "prompt_eval_count", NULL)) != n; from++) {
        json_decref(j);
        assert_true(from < N);
        j = ask_turns(s, from, N, ",\"truncate\":false");
        n_error += json_is_string(json_object_get(j, "error"));
    }
    assert_true(n_error > 0);
    assert_string_equal(text_at(j, "message", "content"),
                        text_at(all, "message", "content"));
    json_decref(j);
    json_decref(all);
}

TEST(ollama_texts_are_those_of_the_other_protocols)
{
    struct serve_try s;

    serve_try_start(&s, "", "-a tale");
    check_texts(&s);
    check_context(&s);
    check_raw(&s);
    check_format(&s);
    check_long(&s);
    serve_try_stop(&s);
}

/* Sends a request of any method. Returns the status, and the body in *body. */
static int send_any(struct serve_try *s, const char *method, const char *path,
                    const char *more, const char *content, char **body)
{
    bool head = !strcmp(method, "HEAD");
    struct try_client c;
    struct try_answer a;
    char text[600];

    snprintf(text, sizeof text,
             "%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: "
             "%zu\r\n\r\n%s",
             method, path, more, strlen(content), content);
    try_connect(&s->t, &c);
    try_send(&c, text);
    try_read(&c, &a, head);
    try_close(&c);
    if (body)
        *body = a.body;
    else
        free(a.body);
    return a.status;
}

static void check_lists(struct serve_try *s)
{
    json_t *tags = get_json(s, "/api/tags"), *ps = get_json(s, "/api/ps");
    json_t *version = get_json(s, "/api/version");
    const json_t *m = json_array_get(json_object_get(tags, "models"), 0);
    const json_t *p = json_array_get(json_object_get(ps, "models"), 0);
    json_t *show = post(s, "/api/show", "{\"model\":\"tale\"}", 200);

    assert_string_equal(text_at(m, "name", NULL), "tale:latest");
    assert_string_equal(text_at(m, "model", NULL), "tale:latest");
    assert_int_equal(strlen(text_at(m, "digest", NULL)), 64);
    assert_true(json_integer_value(get(m, "size", NULL)) > 1000000);
    assert_string_equal(text_at(m, "details", "family"), "qwen3moe");
    assert_string_equal(text_at(m, "details", "quantization_level"), "Q8_0");
    assert_string_equal(text_at(m, "details", "parameter_size"), "9.91M");
    assert_string_equal(text_at(p, "name", NULL), "tale:latest");
    assert_int_equal(json_integer_value(get(p, "context_length", NULL)), 512);
    assert_true(json_integer_value(get(p, "size", NULL)) > 1000000);
    assert_int_equal(json_integer_value(get(p, "size_vram", NULL)), 0);
    assert_string_equal(text_at(p, "digest", NULL), text_at(m, "digest", NULL));
    assert_true(json_is_string(json_object_get(version, "version")));
    assert_string_equal(text_at(show, "details", "format"), "gguf");
    assert_int_equal(
        json_integer_value(get(show, "model_info", "qwen3moe.block_count")), 5);
    assert_true(json_integer_value(get(show, "model_info",
                                       "general.parameter_count")) > 1000000);
    assert_non_null(strstr(text_at(show, "template", NULL), "message"));
    assert_string_equal(json_string_value(json_array_get(
                            json_object_get(show, "capabilities"), 0)),
                        "completion");
    json_decref(show);
    json_decref(version);
    json_decref(ps);
    json_decref(tags);
}

/* Each request gets a status and an error that is a text with a word. */
static void check_refusals(struct serve_try *s)
{
    static const struct {
        const char *method, *path, *body;
        int status;
        const char *says;
    } rows[] = {
        {"POST", "/api/pull", "{\"model\":\"tale\"}", 501, "/api/pull"},
        {"POST", "/api/push", "{\"model\":\"tale\"}", 501, "/api/push"},
        {"POST", "/api/create", "{\"model\":\"x\"}", 501, "/api/create"},
        {"POST", "/api/copy", "{\"source\":\"tale\"}", 501, "/api/copy"},
        {"DELETE", "/api/delete", "{\"model\":\"tale\"}", 501, "/api/delete"},
        {"POST", "/api/blobs/sha256:0", "x", 501, "/api/blobs"},
        {"POST", "/api/chat", "{\"model\":\"other\"," TALK "}", 404, "other"},
        {"POST", "/api/generate", "{\"model\":\"other\"}", 404, "other"},
        {"POST", "/api/embed", "{\"model\":\"other\"}", 404, "other"},
        {"POST", "/api/show", "{\"model\":\"other\"}", 404, "other"},
        {"POST", "/api/show", "{\"name\":\"other\"}", 404, "other"},
        {"POST", "/api/chat", "{\"model\":\"other\",\"keep_alive\":0}", 404,
         "other"},
        {"POST", "/api/chat", "{" TALK "}", 400, "model"},
        {"POST", "/api/show", "{}", 400, "model"},
        {"POST", "/api/chat", "", 400, "body"},
        {"POST", "/api/chat", "{", 400, "JSON"},
        {"POST", "/api/chat", "{" NAME TALK ",\"keep_alive\":\"x\"}", 400,
         "keep_alive"},
        {"POST", "/api/generate",
         "{" NAME "\"prompt\":\"x\",\"images\":[\"AA\"]}", 400, "images"},
        {"POST", "/api/embed", "{" NAME "\"input\":\"x\"}", 501,
         "--embeddings"},
        {"GET", "/api/nothing", "", 404, "path"},
        {"GET", "/api/chat", "", 405, "method"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *body;
        int status =
            send_any(s, rows[i].method, rows[i].path, "", rows[i].body, &body);
        json_t *j = serve_try_json(body);
        const char *said = text_at(j, "error", NULL);

        if (status != rows[i].status || !strstr(said, rows[i].says))
            fail_msg("%s %s: %d %s", rows[i].path, rows[i].body, status, body);
        json_decref(j);
        free(body);
    }
}

static void check_probes(struct serve_try *s)
{
    char *body;

    assert_int_equal(send_any(s, "HEAD", "/", "", "", NULL), 200);
    assert_int_equal(send_any(s, "HEAD", "/api/tags", "", "", NULL), 200);
    assert_int_equal(
        send_any(s, "GET", "/", "Accept: application/json\r\n", "", &body),
        200);
    assert_string_equal(body, "Ollama is running");
    free(body);
    assert_int_equal(send_any(s, "GET", "/", "Accept: */*\r\n", "", &body),
                     200);
    assert_non_null(strstr(body, "<html"));
    free(body);
}

TEST(ollama_models_are_described_and_changes_refused)
{
    struct serve_try s;

    serve_try_start(&s, "", "-a tale");
    check_lists(&s);
    check_refusals(&s);
    check_probes(&s);
    serve_try_stop(&s);
}

/* A model has the capabilities that its template knows, which may be that of
 * --chat-template. */
TEST(ollama_rejects_what_the_template_does_not_know)
{
    static const char call[] = "\"tools\":[{\"type\":\"function\","
                               "\"function\":{\"name\":\"f\"}}]";
    char request[400];
    struct serve_try s;
    json_t *tags, *show, *j;

    serve_try_start(&s, "",
                    "-a tale,story:1 --chat-template "
                    "'{{ messages[0].content }}'");
    tags = get_json(&s, "/api/tags");
    assert_int_equal(json_array_size(json_object_get(tags, "models")), 2);
    assert_string_equal(
        text_at(json_array_get(json_object_get(tags, "models"), 1), "name",
                NULL),
        "story:1");
    show = post(&s, "/api/show", "{\"model\":\"story:1\"}", 200);
    assert_string_equal(text_at(show, "template", NULL),
                        "{{ messages[0].content }}");
    assert_int_equal(json_array_size(json_object_get(show, "capabilities")), 1);
    snprintf(request, sizeof request, "{" NAME TALK ",%s}", call);
    j = post(&s, "/api/chat", request, 400);
    assert_string_equal(text_at(j, "error", NULL),
                        "tale does not support tools");
    json_decref(j);
    j = post(&s, "/api/chat", "{" NAME TALK ",\"think\":\"low\"}", 400);
    assert_string_equal(text_at(j, "error", NULL),
                        "\"tale\" does not support thinking");
    json_decref(j);
    j = post(&s, "/api/generate", "{" NAME "\"prompt\":\"x\",\"think\":true}",
             400);
    assert_non_null(strstr(text_at(j, "error", NULL), "thinking"));
    json_decref(j);
    j = post(&s, "/api/chat",
             "{" NAME TALK ",\"think\":false,\"tools\":[],\"stream\":false,"
             "\"options\":{\"num_predict\":1}}",
             200);
    json_decref(j);
    json_decref(show);
    json_decref(tags);
    serve_try_stop(&s);
}

/* Returns the number of loaded models that /api/ps lists. */
static size_t count_loaded(struct serve_try *s)
{
    json_t *ps = get_json(s, "/api/ps");
    size_t n = json_array_size(json_object_get(ps, "models"));

    json_decref(ps);
    return n;
}

static void check_reason(struct serve_try *s, const char *path,
                         const char *body, const char *reason)
{
    json_t *j = post(s, path, body, 200);

    assert_true(json_is_true(json_object_get(j, "done")));
    if (strcmp(text_at(j, "done_reason", NULL), reason) != 0)
        fail_msg("%s: %s", body, text_at(j, "done_reason", NULL));
    json_decref(j);
}

/* Each name means the model, and it is loaded and unloaded as its requests say,
 * without losing one. */
TEST(ollama_requests_load_and_unload_models)
{
    struct serve_try s;

    serve_try_start(&s, "", "-a tale");
    assert_int_equal(count_loaded(&s), 1);
    check_reason(&s, "/api/generate", "{\"model\":\"tale:latest\"}", "load");
    check_reason(&s, "/api/generate",
                 "{\"model\":\"tale\",\"prompt\":\"\",\"keep_alive\":0}",
                 "unload");
    TEST_UNTIL(count_loaded(&s) == 0);
    check_reason(&s, "/api/chat", "{\"model\":\"tale\",\"messages\":[]}",
                 "load");
    assert_int_equal(count_loaded(&s), 1);
    check_reason(&s, "/api/chat",
                 "{" NAME TALK ",\"stream\":false,\"keep_alive\":\"0s\"," GREEDY
                 "}",
                 "length");
    TEST_UNTIL(count_loaded(&s) == 0);
    check_reason(&s, "/api/chat",
                 "{\"model\":\"tale:latest\"," TALK ",\"stream\":false,"
                 "\"keep_alive\":\"1ms\"," GREEDY "}",
                 "length");
    TEST_UNTIL(count_loaded(&s) == 0);
    check_reason(&s, "/api/chat",
                 "{" NAME TALK ",\"stream\":false,\"keep_alive\":-1," GREEDY
                 "}",
                 "length");
    assert_int_equal(count_loaded(&s), 1);
    serve_try_stop(&s);
}

static double length_of(const json_t *list)
{
    double sum = 0;
    const json_t *v;
    size_t i;

    json_array_foreach (list, i, v)
        sum += json_number_value(v) * json_number_value(v);
    return sqrt(sum);
}

TEST(ollama_embeddings_are_those_of_the_other_protocols)
{
    struct serve_try s;
    json_t *one, *two, *old, *none;
    const json_t *a, *b;
    char *text;

    serve_try_start(&s, "", "-a tale --embeddings --pooling mean");
    one = post(&s, "/v1/embeddings", "{\"input\":\"A king\"}", 200);
    two = post(&s, "/api/embed", "{" NAME "\"input\":[\"A king\",\"A fox\"]}",
               200);
    a = json_object_get(json_array_get(json_object_get(one, "data"), 0),
                        "embedding");
    b = json_array_get(json_object_get(two, "embeddings"), 0);
    assert_true(json_equal(a, b));
    assert_int_equal(json_array_size(json_object_get(two, "embeddings")), 2);
    assert_true(json_integer_value(get(two, "prompt_eval_count", NULL)) >= 4);
    assert_true(json_is_integer(json_object_get(two, "total_duration")));
    assert_string_equal(text_at(two, "model", NULL), "tale");
    old = post(&s, "/api/embeddings", "{" NAME "\"prompt\":\"A king\"}", 200);
    a = json_object_get(old, "embedding");
    assert_int_equal(json_array_size(a), json_array_size(b));
    for (size_t i = 0; i < json_array_size(a); i++)
        assert_true(
            fabs(json_number_value(json_array_get(a, i)) / length_of(a) -
                 json_number_value(json_array_get(b, i))) < 1e-5);
    none = post(&s, "/api/embed", "{" NAME "\"input\":\"\"}", 200);
    assert_int_equal(json_array_size(json_object_get(none, "embeddings")), 0);
    json_decref(none);
    none = post(&s, "/api/embeddings", "{" NAME "\"prompt\":\"\"}", 200);
    assert_int_equal(json_array_size(json_object_get(none, "embedding")), 0);
    assert_non_null(json_object_get(none, "embedding"));
    json_decref(none);
    /* a text beyond the context is truncated, unless the request forbids it */
    text = malloc(9000);
    strcpy(text, "{" NAME "\"input\":\"");
    for (int i = 0; i < 700; i++)
        strcat(text, "king fox ");
    strcat(text, "\"}");
    none = post(&s, "/api/embed", text, 200);
    assert_int_equal(json_integer_value(get(none, "prompt_eval_count", NULL)),
                     511);
    json_decref(none);
    strcpy(strrchr(text, '}'), ",\"truncate\":false}");
    none = post(&s, "/api/embed", text, 400);
    json_decref(none);
    free(text);
    json_decref(old);
    json_decref(two);
    json_decref(one);
    serve_try_stop(&s);
}

/* ---- long histories ------------------------------------------------------ */

/* A conversation: one message with n calls, then their results in the opposite
 * order. */
static char *long_history(enum request_kind kind, int n)
{
    const bool chat = kind == REQUEST_CHAT || kind == REQUEST_OLLAMA_CHAT;
    char *s = NULL;
    size_t len;
    FILE *f = open_memstream(&s, &len);

    assert_non_null(f);
    fprintf(f, "{'model': 'x', 'max_tokens': 1, '%s': [",
            kind == REQUEST_RESPONSES ? "input" : "messages");
    fputs(chat ? "{'role': 'assistant', 'content': '', 'tool_calls': ["
          : kind == REQUEST_MESSAGES ? "{'role': 'assistant', 'content': ["
                                     : "",
          f);
    for (int i = 0; i < n; i++)
        fprintf(f,
                chat ? "%s{'id': 'c%d', 'type': 'function', 'function': "
                       "{'name': 'f', 'arguments': {}}}"
                : kind == REQUEST_MESSAGES
                    ? "%s{'type': 'tool_use', 'id': 'c%d', 'name': 'f', "
                      "'input': {}}"
                    : "%s{'type': 'function_call', 'call_id': 'c%d', "
                      "'name': 'f', 'arguments': '{}'}",
                i > 0 ? "," : "", i);
    fputs(chat                       ? "]}"
          : kind == REQUEST_MESSAGES ? "]}, {'role': 'user', 'content': ["
                                     : "",
          f);
    for (int i = n; i-- > 0;)
        fprintf(f,
                chat ? "%s{'role': 'tool', 'tool_call_id': 'c%d', "
                       "'content': 'r'}"
                : kind == REQUEST_MESSAGES
                    ? "%s{'type': 'tool_result', 'tool_use_id': 'c%d', "
                      "'content': 'r'}"
                    : "%s{'type': 'function_call_output', 'call_id': 'c%d', "
                      "'output': 'r'}",
                kind == REQUEST_MESSAGES && i == n - 1 ? "" : ",", i);
    fputs(kind == REQUEST_MESSAGES ? "]}]}" : "]}", f);
    fclose(f);
    return s;
}

/* Four times as many calls take four times as long, not 16 times. */
TEST(ollama_and_others_read_long_histories_in_linear_time)
{
    static const enum request_kind kinds[] = {
        REQUEST_CHAT, REQUEST_MESSAGES, REQUEST_RESPONSES, REQUEST_OLLAMA_CHAT};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        double took[2];

        for (int k = 0; k < 2; k++) {
            char *text = long_history(kinds[i], k ? 8000 : 2000);
            struct request a;
            double began = test_cpu_seconds();

            read_request(&a, kinds[i], text);
            took[k] = test_cpu_seconds() - began;
            request_fini(&a);
            free(text);
        }
        if (took[1] > 8 * took[0] + 0.5)
            fail_msg("kind %d: %g s and %g s", (int)kinds[i], took[0], took[1]);
    }
}
