/* Responses have each protocol's bytes, streamed and whole. The test's clients
 * join a stream's events, which must equal the whole response. */
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "server/json_text.h"
#include "server/response_inner.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sample responses ---------------------------------------------------- */

static const struct request_rules rules = {.n_vocab = 1000, .max_tokens = -1};

/* Output of a model; adjacent parts are of different kinds. */
struct said {
    pl_reply_kind kind;
    const char *text, *name, *id;
};
static const struct said all_kinds[] = {
    {PL_REPLY_REASONING, "why \xc3\xbc", NULL, NULL},
    {PL_REPLY_CONTENT, "say \xe6\x9d\xb1 \"\\\" \xf0\x9f\x8e\x89\n", NULL,
     NULL},
    {PL_REPLY_CALL, "{\"x\": \"\xc3\xbc\"}", "f", "c1"},
    {PL_REPLY_CALL, "{}", "g", NULL},
};
enum { N_KIND = sizeof(all_kinds) / sizeof(all_kinds[0]) };

static const struct response_end usual_end = {.why = RESPONSE_ENDED,
                                              .n_prompt = 10,
                                              .n_cached = 4,
                                              .n_written = 8,
                                              .times = {0.5, 2}};

static bool collect(void *user, const void *data, size_t n)
{
    test_text_add(user, data, n);
    return true;
}

struct asked {
    struct request a;
    struct test_text out;
    struct response *w;
};

static void begin(struct asked *t, enum request_kind kind, const char *request)
{
    struct response_about about = {.model = "tale",
                                   .id = "a1",
                                   .created = 99,
                                   .write = collect,
                                   .user = &t->out};
    struct api_error why;
    pl_err err;

    memset(t, 0, sizeof(*t));
    if (!request_parse(&t->a, kind, request, strlen(request), &rules, &why))
        fail_msg("%s", why.message);
    TEST_OK(response_create(&t->w, &t->a, &about, &err), err);
}

static void end(struct asked *t)
{
    response_free(t->w);
    request_fini(&t->a);
    free(t->out.s);
}

/* Sends one text in two parts, cut at byte `cut` of the whole text. */
static void say(struct asked *t, int choice, const struct said *s, size_t *cut)
{
    size_t len = strlen(s->text), n = *cut < len ? *cut : len;
    pl_reply_part p = {.kind = s->kind,
                       .text = s->text,
                       .len = len,
                       .name = s->name,
                       .id = s->id};

    *cut -= n;
    p.len = n;
    assert_true(response_part(t->w, choice, &p));
    if (s->kind == PL_REPLY_CALL)
        p.kind = PL_REPLY_CALL_MORE;
    p.text += n;
    p.len = len - n;
    assert_true(response_part(t->w, choice, &p));
}

static void tell_all(struct asked *t, const struct said *said, int n,
                     size_t cut)
{
    assert_true(response_prompt(t->w, 0, 10, 4, "Once"));
    for (int i = 0; i < n; i++)
        say(t, 0, &said[i], &cut);
    assert_true(response_end(t->w, 0, &usual_end));
}

/* Returns the lines of a stream, as a list like that of events(). */
static json_t *lines(const char *s)
{
    json_t *list = json_array();

    while (*s != '\0') {
        size_t n = strcspn(s, "\n");
        json_t *j = json_loadb(s, n, JSON_ALLOW_NUL, NULL);

        assert_non_null(j);
        assert_true(s[n] == '\n');
        json_array_append_new(list,
                              json_pack("{s:s, s:o}", "event", "", "data", j));
        s += n + 1;
    }
    return list;
}

/* Returns the events of a stream, a list of {"event", "data"}; sets *done if it
 * ends with "[DONE]". */
static json_t *events(const char *s, bool *done)
{
    json_t *list = NULL;

    *done = false;
    if (*s == '{')
        return lines(s);
    list = json_array();
    while (*s != '\0') {
        const char *stop = strstr(s, "\n\n"), *name = "";
        size_t n_name = 0;
        json_t *j;

        assert_non_null(stop);
        assert_false(*done);
        if (strncmp(s, "event: ", 7) == 0) {
            name = s + 7;
            n_name = strcspn(name, "\n");
            s = name + n_name + 1;
        }
        assert_memory_equal(s, "data: ", 6);
        s += 6;
        *done = strncmp(s, "[DONE]", 6) == 0;
        if (!*done) {
            j = json_loadb(s, (size_t)(stop - s), JSON_ALLOW_NUL, NULL);
            assert_non_null(j);
            json_array_append_new(list, json_pack("{s:s%, s:o}", "event", name,
                                                  n_name, "data", j));
        }
        s = stop + 2;
    }
    return list;
}

static json_t *get(const json_t *j, const char *path)
{
    char key[64];

    while (*path != '\0' && j != NULL) {
        size_t n = strcspn(path, ".");

        snprintf(key, sizeof(key), "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(key))
                             : json_object_get(j, key);
        path += n + (path[n] == '.');
    }
    return (json_t *)j;
}

static const char *text_at(const json_t *j, const char *path)
{
    const char *s = json_string_value(get(j, path));

    return s != NULL ? s : "(none)";
}

static void same(const json_t *j, const char *path, const char *want)
{
    json_t *w = json_loads(want, JSON_DECODE_ANY, NULL);
    json_t *got = get(j, path);

    if (w == NULL)
        fail_msg("the test's \"%s\" is no JSON", want);
    if (!json_equal(got, w)) {
        char *s = json_dumps(got, JSON_ENCODE_ANY);

        fail_msg("%s is %s, not %s", path, s, want);
    }
    json_decref(w);
}

/* Appends to the string under `key`. */
static void append(json_t *o, const char *key, const char *more)
{
    const char *had = json_string_value(json_object_get(o, key));
    struct test_text t = {0};

    test_text_add(&t, had != NULL ? had : "", had != NULL ? strlen(had) : 0);
    test_text_add(&t, more, strlen(more));
    json_object_set_new(o, key, json_string(t.s));
    free(t.s);
}

/* ---- clients -------------------------------------------------------------
 * Each returns {"content", "reasoning", "calls": [[name, arguments, id]],
 * "why", "in", "out"}. */

static void add_call(json_t *got, json_t *name, json_t *arguments, json_t *id)
{
    json_t *list = json_object_get(got, "calls");

    if (list == NULL) {
        list = json_array();
        json_object_set_new(got, "calls", list);
    }
    json_array_append_new(list, json_pack("[OOO]", name, arguments, id));
}

/* Adds a call, or in a stream more of the arguments of the last one. */
static void take_call(json_t *got, const json_t *call)
{
    const json_t *all = json_object_get(got, "calls");
    json_t *last = json_array_get(all, json_array_size(all) - 1);

    if (get(call, "id") == NULL) {
        char both[200];

        snprintf(both, sizeof both, "%s%s",
                 json_string_value(json_array_get(last, 1)),
                 text_at(call, "function.arguments"));
        json_array_set_new(last, 1, json_string(both));
        return;
    }
    add_call(got, get(call, "function.name"), get(call, "function.arguments"),
             get(call, "id"));
}

static json_t *chat_of_stream(const json_t *list)
{
    json_t *got = json_pack("{s:s, s:s}", "content", "", "reasoning", "");
    size_t i, k;
    json_t *e, *call;

    json_array_foreach (list, i, e) {
        const json_t *delta = get(e, "data.choices.0.delta");
        const char *text = json_string_value(get(delta, "content"));
        const char *why = json_string_value(get(delta, "reasoning_content"));

        same(e, "data.object", "\"chat.completion.chunk\"");
        append(got, "content", text != NULL ? text : "");
        append(got, "reasoning", why != NULL ? why : "");
        json_array_foreach (get(delta, "tool_calls"), k, call) {
            take_call(got, call);
        }
        if (json_is_string(get(e, "data.choices.0.finish_reason")))
            json_object_set(got, "why", get(e, "data.choices.0.finish_reason"));
        if (get(e, "data.usage") != NULL) {
            same(e, "data.choices", "[]");
            json_object_set(got, "in", get(e, "data.usage.prompt_tokens"));
            json_object_set(got, "out", get(e, "data.usage.completion_tokens"));
        }
    }
    return got;
}

static json_t *chat_of_whole(const json_t *j)
{
    const json_t *m = get(j, "choices.0.message");
    json_t *got = json_pack(
        "{s:O, s:s, s:O, s:O, s:O}", "content", get(m, "content"), "reasoning",
        text_at(m, "reasoning_content"), "why",
        get(j, "choices.0.finish_reason"), "in", get(j, "usage.prompt_tokens"),
        "out", get(j, "usage.completion_tokens"));
    size_t i;
    json_t *call;

    json_array_foreach (get(m, "tool_calls"), i, call) {
        take_call(got, call);
    }
    return got;
}

static void take_block(json_t *got, const json_t *b)
{
    const char *type = text_at(b, "type");
    char *input = NULL;

    if (strcmp(type, "text") == 0) {
        append(got, "content", text_at(b, "text"));
    } else if (strcmp(type, "thinking") == 0) {
        append(got, "reasoning", text_at(b, "thinking"));
    } else {
        json_t *arguments;

        input = json_dumps(get(b, "input"), 0);
        arguments = json_string(input);
        add_call(got, get(b, "name"), arguments, get(b, "id"));
        json_decref(arguments);
        free(input);
    }
}

static json_t *blocks_of_message(const json_t *m)
{
    json_t *got = json_pack("{s:s, s:s, s:O, s:O, s:O}", "content", "",
                            "reasoning", "", "why", get(m, "stop_reason"), "in",
                            get(m, "usage.input_tokens"), "out",
                            get(m, "usage.output_tokens"));
    size_t i;
    json_t *b;

    json_array_foreach (get(m, "content"), i, b) {
        take_block(got, b);
    }
    return got;
}

/* Blocks open, get deltas and close, one at a time and in order. */
static json_t *blocks_of_stream(const json_t *list)
{
    json_t *message = NULL, *block = NULL, *got, *e;
    struct test_text input = {0};
    size_t i;

    json_array_foreach (list, i, e) {
        const json_t *data = get(e, "data");
        const char *type = text_at(data, "type");

        assert_string_equal(type, text_at(e, "event"));
        if (strcmp(type, "message_start") == 0) {
            assert_null(message);
            message = json_deep_copy(get(data, "message"));
        } else if (strcmp(type, "content_block_start") == 0) {
            assert_null(block);
            assert_int_equal(json_integer_value(get(data, "index")),
                             json_array_size(get(message, "content")));
            block = json_deep_copy(get(data, "content_block"));
            json_array_append_new(get(message, "content"), block);
        } else if (strcmp(type, "content_block_delta") == 0) {
            assert_non_null(block);
            if (get(data, "delta.text"))
                append(block, "text", text_at(data, "delta.text"));
            if (get(data, "delta.thinking"))
                append(block, "thinking", text_at(data, "delta.thinking"));
            if (get(data, "delta.partial_json"))
                test_text_add(&input, text_at(data, "delta.partial_json"),
                              strlen(text_at(data, "delta.partial_json")));
        } else if (strcmp(type, "content_block_stop") == 0) {
            assert_non_null(block);
            if (input.n > 0)
                json_object_set_new(block, "input",
                                    json_loads(input.s, 0, NULL));
            input.n = 0;
            block = NULL;
        } else if (strcmp(type, "message_delta") == 0) {
            json_object_update(message, get(data, "delta"));
            json_object_update(get(message, "usage"), get(data, "usage"));
        } else if (strcmp(type, "ping") != 0) {
            assert_string_equal(type, "message_stop");
            assert_int_equal(i, json_array_size(list) - 1);
        }
    }
    free(input.s);
    got = blocks_of_message(message);
    json_decref(message);
    return got;
}

static json_t *response_read(const json_t *r)
{
    json_t *got =
        json_pack("{s:s, s:s, s:O, s:O, s:O}", "content", "", "reasoning", "",
                  "why", get(r, "status"), "in", get(r, "usage.input_tokens"),
                  "out", get(r, "usage.output_tokens"));
    size_t i;
    json_t *item;

    json_array_foreach (get(r, "output"), i, item) {
        const char *type = text_at(item, "type");

        assert_string_equal(text_at(item, "status"), "completed");
        if (strcmp(type, "message") == 0)
            append(got, "content", text_at(item, "content.0.text"));
        else if (strcmp(type, "reasoning") == 0)
            append(got, "reasoning", text_at(item, "content.0.text"));
        else
            add_call(got, get(item, "name"), get(item, "arguments"),
                     get(item, "call_id"));
    }
    return got;
}

/* The deltas of items must equal the items when they are done, and these the
 * response when it is done. */
static json_t *response_of_stream(const json_t *list)
{
    const json_t *last = NULL;
    json_t *items = json_array(), *e;
    struct test_text now = {0};
    size_t i;

    json_array_foreach (list, i, e) {
        const json_t *data = get(e, "data");
        const char *type = text_at(data, "type");

        assert_string_equal(type, text_at(e, "event"));
        assert_int_equal(json_integer_value(get(data, "sequence_number")), i);
        if (strstr(type, ".delta") != NULL)
            test_text_add(&now, text_at(data, "delta"),
                          strlen(text_at(data, "delta")));
        if (strcmp(type, "response.output_text.done") == 0 ||
            strcmp(type, "response.reasoning_text.done") == 0)
            assert_string_equal(now.s, text_at(data, "text"));
        if (strcmp(type, "response.function_call_arguments.done") == 0)
            assert_string_equal(now.s, text_at(data, "arguments"));
        if (strcmp(type, "response.output_item.done") == 0) {
            assert_int_equal(json_integer_value(get(data, "output_index")),
                             json_array_size(items));
            json_array_append(items, get(data, "item"));
            now.n = 0;
        }
        last = data;
    }
    same(list, "0.data.type", "\"response.created\"");
    assert_string_equal(text_at(last, "type"), "response.completed");
    assert_true(json_equal(items, get(last, "response.output")));
    json_decref(items);
    free(now.s);
    return response_read(get(last, "response"));
}

static json_t *completion_of_stream(const json_t *list)
{
    json_t *got = json_pack("{s:s}", "content", ""), *e;
    size_t i;

    json_array_foreach (list, i, e) {
        bool last = i == json_array_size(list) - 1;

        append(got, "content", text_at(e, "data.content"));
        assert_true(json_is_true(get(e, "data.stop")) == last);
        if (last) {
            json_object_set(got, "why", get(e, "data.stop_type"));
            json_object_set(got, "in", get(e, "data.tokens_evaluated"));
            json_object_set(got, "out", get(e, "data.tokens_predicted"));
        }
    }
    return got;
}

static json_t *completion_of_whole(const json_t *j)
{
    return json_pack("{s:O, s:O, s:O, s:O}", "content", get(j, "content"),
                     "why", get(j, "stop_type"), "in",
                     get(j, "tokens_evaluated"), "out",
                     get(j, "tokens_predicted"));
}

static json_t *text_of_stream(const json_t *list)
{
    json_t *got = json_pack("{s:s}", "content", ""), *e;
    size_t i;

    json_array_foreach (list, i, e) {
        same(e, "data.object", "\"text_completion\"");
        if (get(e, "data.usage") == NULL)
            append(got, "content", text_at(e, "data.choices.0.text"));
        if (json_is_string(get(e, "data.choices.0.finish_reason")))
            json_object_set(got, "why", get(e, "data.choices.0.finish_reason"));
        if (get(e, "data.usage") != NULL) {
            json_object_set(got, "in", get(e, "data.usage.prompt_tokens"));
            json_object_set(got, "out", get(e, "data.usage.completion_tokens"));
        }
    }
    return got;
}

static json_t *text_of_whole(const json_t *j)
{
    return json_pack(
        "{s:O, s:O, s:O, s:O}", "content", get(j, "choices.0.text"), "why",
        get(j, "choices.0.finish_reason"), "in", get(j, "usage.prompt_tokens"),
        "out", get(j, "usage.completion_tokens"));
}

/* Adds a line of Ollama's, or the whole response. */
static void take_line(json_t *got, const json_t *j)
{
    const json_t *m = get(j, "message") != NULL ? get(j, "message") : j;
    const json_t *text = get(m, m == j ? "response" : "content");
    const char *thinking = json_string_value(get(m, "thinking"));
    json_t *call;
    size_t i;

    append(got, "content", json_string_value(text));
    append(got, "reasoning", thinking != NULL ? thinking : "");
    json_array_foreach (get(m, "tool_calls"), i, call) {
        char *text_of = json_dumps(get(call, "function.arguments"), 0);
        json_t *arguments = json_string(text_of);

        add_call(got, get(call, "function.name"), arguments, get(call, "id"));
        json_decref(arguments);
        free(text_of);
    }
    if (json_is_true(get(j, "done"))) {
        json_object_set(got, "why", get(j, "done_reason"));
        json_object_set(got, "in", get(j, "prompt_eval_count"));
        json_object_set(got, "out", get(j, "eval_count"));
        same(j, "prompt_eval_duration", "500000000");
        same(j, "eval_duration", "2000000000");
    }
}

static json_t *ollama_of_whole(const json_t *j)
{
    json_t *got = json_object();

    assert_true(json_is_true(get(j, "done")));
    take_line(got, j);
    return got;
}

static json_t *ollama_of_stream(const json_t *list)
{
    json_t *got = json_object(), *e;
    size_t i;

    json_array_foreach (list, i, e) {
        assert_int_equal(json_is_true(get(e, "data.done")),
                         i + 1 == json_array_size(list));
        take_line(got, get(e, "data"));
    }
    return got;
}

#define HELLO "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]"

static const struct {
    enum request_kind kind;
    const char *whole, *streamed;
    json_t *(*of_whole)(const json_t *j);
    json_t *(*of_stream)(const json_t *list);
    bool talks; /* true if responses may have reasoning and tool calls */
    bool done;  /* true if streams of the protocol end with [DONE] */
    const char *why;
    int in; /* number of prompt tokens that the protocol reports */
} protocols[] = {
    {REQUEST_CHAT, "{" HELLO "}",
     "{" HELLO ", \"stream\": true, \"stream_options\":"
     "{\"include_usage\": true}}",
     chat_of_whole, chat_of_stream, true, true, "tool_calls", 10},
    {REQUEST_MESSAGES, "{" HELLO "}", "{" HELLO ", \"stream\": true}",
     blocks_of_message, blocks_of_stream, true, false, "tool_use", 6},
    {REQUEST_RESPONSES, "{\"input\": \"Hi\"}",
     "{\"input\": \"Hi\", \"stream\": true}", response_read, response_of_stream,
     true, false, "completed", 10},
    {REQUEST_COMPLETION, "{\"prompt\": \"Hi\"}",
     "{\"prompt\": \"Hi\", \"stream\": true}", completion_of_whole,
     completion_of_stream, false, false, "eos", 10},
    {REQUEST_COMPLETIONS, "{\"prompt\": \"Hi\"}",
     "{\"prompt\": \"Hi\", \"stream\": true, \"stream_options\":"
     "{\"include_usage\": true}}",
     text_of_whole, text_of_stream, false, true, "stop", 10},
    {REQUEST_OLLAMA_CHAT, "{" HELLO ", \"stream\": false}", "{" HELLO "}",
     ollama_of_whole, ollama_of_stream, true, false, "stop", 10},
    {REQUEST_OLLAMA_GENERATE, "{\"prompt\": \"Hi\", \"stream\": false}",
     "{\"prompt\": \"Hi\"}", ollama_of_whole, ollama_of_stream, true, false,
     "stop", 10},
};
enum { N_PROTOCOL = sizeof(protocols) / sizeof(protocols[0]) };

/* Returns the expected result of protocol p. */
static json_t *wanted(int p)
{
    json_t *got =
        json_pack("{s:s, s:s, s:i, s:i}", "content", all_kinds[1].text, "why",
                  protocols[p].why, "in", protocols[p].in, "out", 8);

    if (protocols[p].talks) {
        json_object_set_new(got, "reasoning", json_string(all_kinds[0].text));
        json_object_set_new(got, "calls",
                            json_pack("[[sss], [sss]]", "f", all_kinds[2].text,
                                      "c1", "g", "{}", "KMV6PbJ9i"));
    }
    return got;
}

static void same_answer(int p, json_t *got)
{
    json_t *want = wanted(p);

    if (!json_equal(got, want)) {
        char *a = json_dumps(got, 0), *b = json_dumps(want, 0);

        fail_msg("protocol %d: %s, not %s", p, a, b);
    }
    json_decref(got);
    json_decref(want);
}

static void tell_kinds(struct asked *t, int p, size_t cut)
{
    if (protocols[p].talks)
        tell_all(t, all_kinds, N_KIND, cut);
    else
        tell_all(t, all_kinds + 1, 1, cut);
}

/* ---- promises ------------------------------------------------------------ */

TEST(answers_say_the_same_whole_and_streamed_wherever_texts_are_cut)
{
    size_t len = 0;

    for (int i = 0; i < N_KIND; i++)
        len += strlen(all_kinds[i].text);
    for (int p = 0; p < N_PROTOCOL; p++) {
        for (size_t cut = 0; cut <= len; cut++) {
            struct asked t;
            json_t *j;
            bool done;

            begin(&t, protocols[p].kind, protocols[p].streamed);
            tell_kinds(&t, p, cut);
            assert_string_equal(response_type(t.w),
                                protocols[p].kind >= REQUEST_OLLAMA_CHAT
                                    ? "application/x-ndjson"
                                    : "text/event-stream");
            j = events(t.out.s, &done);
            assert_int_equal(done, protocols[p].done);
            same_answer(p, protocols[p].of_stream(j));
            json_decref(j);
            end(&t);

            begin(&t, protocols[p].kind, protocols[p].whole);
            tell_kinds(&t, p, cut);
            assert_string_equal(response_type(t.w), "application/json");
            j = json_loads(t.out.s, 0, NULL);
            assert_non_null(j);
            same_answer(p, protocols[p].of_whole(j));
            json_decref(j);
            end(&t);
        }
    }
}

TEST(answers_are_valid_json_whatever_bytes_come)
{
    uint64_t seed = test_seed();

    for (int run = 0; run < 2000; run++) {
        int p = run % N_PROTOCOL;
        bool streamed = run / N_PROTOCOL % 2, done;
        struct asked t;
        json_t *j;

        begin(&t, protocols[p].kind,
              streamed ? protocols[p].streamed : protocols[p].whole);
        assert_true(response_prompt(t.w, 0, 3, 0, NULL));
        for (int i = (int)test_below(&seed, 6); i > 0; i--) {
            char bytes[8];
            pl_reply_part part = {
                .kind = protocols[p].talks ? (pl_reply_kind)test_below(&seed, 2)
                                           : PL_REPLY_CONTENT,
                .text = bytes,
                .len = (size_t)test_below(&seed, 8)};

            for (size_t k = 0; k < part.len; k++)
                bytes[k] = (char)(0x100 - test_below(&seed, 0x100));
            assert_true(response_part(t.w, 0, &part));
        }
        assert_true(response_end(t.w, 0, &usual_end));
        j = streamed ? events(t.out.s, &done)
                     : json_loads(t.out.s, JSON_ALLOW_NUL, NULL);
        assert_non_null(j);
        json_decref(j);
        end(&t);
    }
}

TEST(answers_are_valid_json_whatever_names_there_are)
{
    static const pl_reply_part call = {PL_REPLY_CALL, "{\xff}", 3, "f\xe2\x82",
                                       "\x80"};

    for (int p = 0; p < 3; p++) {
        for (int streamed = 0; streamed < 2; streamed++) {
            struct asked t;
            struct response_about about = {
                .model = "m\xff", .id = "i", .write = collect, .user = &t.out};
            json_t *j;
            pl_err err;
            bool done;

            begin(&t, protocols[p].kind,
                  streamed ? protocols[p].streamed : protocols[p].whole);
            response_free(t.w);
            TEST_OK(response_create(&t.w, &t.a, &about, &err), err);
            assert_true(response_prompt(t.w, 0, 1, 0, NULL));
            assert_true(response_part(t.w, 0, &call));
            assert_true(response_end(t.w, 0, &usual_end));
            j = streamed ? events(t.out.s, &done)
                         : json_loads(t.out.s, 0, NULL);
            assert_non_null(j);
            assert_non_null(strstr(t.out.s, "\"f\xef\xbf\xbd\""));
            json_decref(j);
            end(&t);
        }
    }
}

TEST(answers_of_messages_keep_zero_bytes_of_arguments)
{
    static const struct said call = {PL_REPLY_CALL, "{\"x\": \"a\\u0000b\"}",
                                     "f", "c1"};
    struct asked t;

    begin(&t, REQUEST_MESSAGES,
          "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}");
    tell_all(&t, &call, 1, 0);
    assert_non_null(strstr(t.out.s, "\"input\":{\"x\":\"a\\u0000b\"}"));
    end(&t);
}

TEST(answers_of_chats_have_their_fields)
{
    struct asked t;
    json_t *j;
    bool done;

    begin(&t, REQUEST_CHAT, protocols[0].streamed);
    tell_all(&t, all_kinds, N_KIND, 3);
    j = events(t.out.s, &done);
    same(j, "0.data.choices.0",
         "{\"index\": 0, \"finish_reason\": null, \"delta\":"
         "{\"role\": \"assistant\", \"content\": null}}");
    same(j, "0.data.id", "\"chatcmpl-a1\"");
    same(j, "0.data.created", "99");
    same(j, "0.data.model", "\"tale\"");
    same(j, "1.data.choices.0.delta", "{\"reasoning_content\": \"why\"}");
    same(j, "4.data.choices.0.delta.tool_calls",
         "[{\"index\": 0, \"id\": \"c1\", \"type\": \"function\", \"function\":"
         "{\"name\": \"f\", \"arguments\": \"\"}}]");
    same(j, "5.data.choices.0.delta.tool_calls",
         "[{\"index\": 0, \"function\": {\"arguments\": \"{\\\"x\\\": "
         "\\\"\xc3\xbc\\\"}\"}}]");
    same(j, "6.data.choices.0.delta.tool_calls.0.index", "1");
    same(j, "7.data.choices.0.delta.tool_calls.0.index", "1");
    same(j, "8.data.choices.0.delta", "{}");
    same(j, "8.data.timings",
         "{\"cache_n\": 4, \"prompt_n\": 6, \"prompt_ms\": 500.0,"
         "\"prompt_per_token_ms\": 83.33333333, \"prompt_per_second\": 12.0,"
         "\"predicted_n\": 8, \"predicted_ms\": 2000.0,"
         "\"predicted_per_token_ms\": 285.7142857,"
         "\"predicted_per_second\": 3.5}");
    same(j, "9.data.usage",
         "{\"prompt_tokens\": 10, \"completion_tokens\": 8, \"total_tokens\":"
         "18, \"prompt_tokens_details\": {\"cached_tokens\": 4}}");
    assert_int_equal(json_array_size(j), 10);
    json_decref(j);
    end(&t);
}

static void tell_tokens(struct asked *t)
{
    static const struct response_token other[] = {
        {.id = 7, .text = "a\xc3\xbc", .len = 3, .logprob = -0.25},
        {.id = 8, .text = "b", .len = 1, .logprob = -INFINITY}};
    const struct response_times times = {0.5, 1};
    struct response_token token = other[0];
    pl_reply_part p = {.kind = PL_REPLY_CONTENT, .text = "a\xc3\xbc", .len = 3};

    token.top = other;
    token.n_top = 2;
    assert_true(response_prompt(t->w, 0, 10, 4, NULL));
    /* the token's text is held back, as it may begin a stop string or marker */
    assert_true(response_token(t->w, 0, &token, &times));
    assert_true(response_token(t->w, 0, &token, &times));
    assert_true(response_part(t->w, 0, &p));
    assert_true(response_end(t->w, 0, &usual_end));
}

static const char token_want[] =
    "{\"id\": 7, \"token\": \"a\xc3\xbc\", \"bytes\": [97, 195, 188],"
    "\"logprob\": -0.25, \"top_logprobs\": [{\"id\": 7, \"token\":"
    "\"a\xc3\xbc\", \"bytes\": [97, 195, 188], \"logprob\": -0.25},"
    "{\"id\": 8, \"token\": \"b\", \"bytes\": [98], \"logprob\": -9999.0}]}";

TEST(answers_tell_probabilities_of_tokens)
{
    struct asked t;
    json_t *j;
    bool done;

    begin(&t, REQUEST_CHAT,
          "{" HELLO ", \"logprobs\": true, \"top_logprobs\": 2}");
    tell_tokens(&t);
    j = json_loads(t.out.s, 0, NULL);
    same(j, "choices.0.logprobs.content.1", token_want);
    assert_int_equal(json_array_size(get(j, "choices.0.logprobs.content")), 2);
    json_decref(j);
    end(&t);

    begin(&t, REQUEST_CHAT,
          "{" HELLO ", \"logprobs\": true, \"top_logprobs\": 2,"
          "\"stream\": true}");
    tell_tokens(&t);
    j = events(t.out.s, &done);
    same(j, "1.data.choices.0.logprobs.content.0", token_want);
    assert_int_equal(
        json_array_size(get(j, "1.data.choices.0.logprobs.content")), 2);
    assert_null(get(j, "2.data.choices.0.logprobs"));
    json_decref(j);
    end(&t);

    begin(&t, REQUEST_COMPLETIONS, "{\"prompt\": \"x\", \"logprobs\": 2}");
    tell_tokens(&t);
    j = json_loads(t.out.s, 0, NULL);
    same(j, "choices.0.logprobs.tokens", "[\"a\xc3\xbc\", \"a\xc3\xbc\"]");
    same(j, "choices.0.logprobs.token_logprobs", "[-0.25, -0.25]");
    same(j, "choices.0.logprobs.top_logprobs.0",
         "{\"a\xc3\xbc\": -0.25, \"b\": -9999.0}");
    same(j, "choices.0.logprobs.text_offset", "[0, 2]");
    same(j, "choices.0.logprobs.content.0", token_want);
    json_decref(j);
    end(&t);

    begin(&t, REQUEST_COMPLETION,
          "{\"prompt\": \"x\", \"n_probs\": 2, \"return_tokens\": true}");
    tell_tokens(&t);
    j = json_loads(t.out.s, 0, NULL);
    same(j, "tokens", "[7, 7]");
    same(j, "completion_probabilities.0", token_want);
    json_decref(j);
    end(&t);
}

/* The chosen token is among the alternatives even if it is not likely; of two
 * with the same name, the likelier one counts. */
TEST(answers_of_completions_have_the_chosen_token_among_the_others)
{
    static const struct response_token other[] = {
        {.id = 7, .text = "\xc3", .len = 1, .logprob = -1},
        {.id = 8, .text = "\xa4", .len = 1, .logprob = -2}};
    const struct response_token own = {.id = 9,
                                       .text = "x",
                                       .len = 1,
                                       .logprob = -3,
                                       .top = other,
                                       .n_top = 2};
    const struct response_times times = {0};
    struct asked t;
    json_t *j;

    begin(&t, REQUEST_COMPLETIONS, "{\"prompt\": \"x\", \"logprobs\": 2}");
    assert_true(response_prompt(t.w, 0, 1, 0, NULL));
    assert_true(response_token(t.w, 0, &own, &times));
    assert_true(response_end(t.w, 0, &usual_end));
    j = json_loads(t.out.s, 0, NULL);
    same(j, "choices.0.logprobs.top_logprobs",
         "[{\"\xef\xbf\xbd\": -1.0, \"x\": -3.0}]");
    same(j, "choices.0.logprobs.content.0.top_logprobs.1.bytes", "[164]");
    json_decref(j);
    end(&t);
}

/* The first token of a prompt has no probability. Offsets count characters of
 * the text, which does not have a token that the tokenizer added. */
TEST(answers_that_echo_have_the_tokens_of_the_prompt)
{
    static const struct response_token token[] = {
        {.id = 1, .text = "<s>", .len = 3, .logprob = NAN, .hidden = true},
        {.id = 5, .text = "O\xc3", .len = 2, .logprob = -0.5},
        {.id = 6, .text = "\xbcn", .len = 2, .logprob = -0.25},
        {.id = 7, .text = "ce", .len = 2, .logprob = -0.125}};
    const struct response_times times = {0};

    for (int streamed = 0; streamed < 2; streamed++) {
        const char *where =
            streamed ? "0.data.choices.0.logprobs" : "choices.0.logprobs";
        struct asked t;
        char path[64];
        bool done;
        json_t *j;

        begin(&t, REQUEST_COMPLETIONS,
              streamed
                  ? "{\"prompt\": \"x\", \"logprobs\": 1, \"echo\": true,"
                    "\"stream\": true}"
                  : "{\"prompt\": \"x\", \"logprobs\": 1, \"echo\": true}");
        assert_true(t.a.no_cache);
        for (int i = 0; i < 3; i++)
            assert_true(response_prompt_token(t.w, 0, &token[i]));
        assert_true(response_prompt(t.w, 0, 3, 0, "O\xc3\xbcn"));
        assert_true(response_token(t.w, 0, &token[3], &times));
        assert_true(response_part(t.w, 0,
                                  &(pl_reply_part){.kind = PL_REPLY_CONTENT,
                                                   .text = "ce",
                                                   .len = 2}));
        assert_true(response_end(t.w, 0, &usual_end));
        j = streamed ? events(t.out.s, &done) : json_loads(t.out.s, 0, NULL);
        snprintf(path, sizeof path, "%s.token_logprobs", where);
        same(j, path,
             streamed ? "[null, -0.5, -0.25]" : "[null, -0.5, -0.25, -0.125]");
        snprintf(path, sizeof path, "%s.text_offset", where);
        same(j, path, streamed ? "[0, 0, 2]" : "[0, 0, 2, 3]");
        snprintf(path, sizeof path, "%s.top_logprobs.0", where);
        same(j, path, "null");
        snprintf(path, sizeof path, "%s.content.1.bytes", where);
        same(j, path, "[79, 195]");
        if (streamed)
            same(j, "1.data.choices.0.logprobs.text_offset", "[3]");
        json_decref(j);
        end(&t);
    }
}

/* Events of streams have the timings so far, and llama-server's count of
 * tokens, but the first event of a chat has no timings. */
TEST(answers_have_timings_in_each_event_where_it_was_asked_for)
{
    const struct response_times times = {0.5, 1};
    const struct response_token token = {.id = 7};
    const pl_reply_part part = {
        .kind = PL_REPLY_CONTENT, .text = "say", .len = 3};

    for (int p = 0; p < N_PROTOCOL; p++) {
        struct asked t;
        json_t *j, *e;
        char *request;
        size_t i;
        bool done;
        int n = 0;

        assert_true(asprintf(&request, "%.*s, \"timings_per_token\": true}",
                             (int)strlen(protocols[p].streamed) - 1,
                             protocols[p].streamed) > 0);
        begin(&t, protocols[p].kind, request);
        assert_true(response_prompt(t.w, 0, 10, 4, NULL));
        for (i = 0; i < 3; i++) {
            assert_true(response_token(t.w, 0, &token, &times));
            assert_true(response_part(t.w, 0, &part));
        }
        assert_true(response_end(t.w, 0, &usual_end));
        j = events(t.out.s, &done);
        json_array_foreach (j, i, e) {
            const json_t *so_far = get(e, "data.timings.predicted_n");

            if (so_far && json_integer_value(so_far) < 4) {
                n++;
                same(e, "data.timings.predicted_ms", "1000.0");
                same(e, "data.timings.prompt_n", "6");
            }
            if (protocols[p].kind == REQUEST_COMPLETION && i < 3)
                assert_int_equal(
                    json_integer_value(get(e, "data.tokens_predicted")), i + 1);
        }
        assert_null(protocols[p].talks ? get(j, "0.data.timings") : NULL);
        assert_true(protocols[p].kind == REQUEST_MESSAGES ||
                            protocols[p].kind >= REQUEST_OLLAMA_CHAT
                        ? n == 0
                        : n >= 3);
        json_decref(j);
        free(request);
        end(&t);
    }
}

TEST(answers_of_completion_have_their_fields)
{
    struct response_end stopped = usual_end;
    struct asked t;
    json_t *j;

    begin(&t, REQUEST_COMPLETION,
          "{\"prompt\": \"Once\", \"stop\": [\"END\"], \"top_k\": 3,"
          "\"logit_bias\": [[7, false], [8, 2]]}");
    stopped.why = RESPONSE_STOP;
    stopped.stop = "END";
    response_placed(t.w, 0, 3);
    assert_true(response_prompt(t.w, 0, 10, 4, "Once"));
    assert_true(response_end(t.w, 0, &stopped));
    j = json_loads(t.out.s, 0, NULL);
    same(j, "content", "\"\"");
    same(j, "prompt", "\"Once\"");
    same(j, "id_slot", "3");
    same(j, "stop_type", "\"word\"");
    same(j, "stopping_word", "\"END\"");
    same(j, "generation_settings.top_k", "3");
    same(j, "generation_settings.stop", "[\"END\"]");
    same(j, "generation_settings.logit_bias",
         "[{\"bias\": null, \"token\": 7}, {\"bias\": 2.0, \"token\": 8}]");
    same(j, "generation_settings.reasoning_format", "\"deepseek\"");
    same(j, "truncated", "false");
    same(j, "timings.predicted_n", "8");
    json_decref(j);
    end(&t);
}

TEST(answers_of_several_choices_are_apart)
{
    static const struct said one = {PL_REPLY_CONTENT, "one", NULL, NULL};
    static const struct said two = {PL_REPLY_CONTENT, "two", NULL, NULL};
    struct response_end cut = usual_end;
    struct asked t;
    size_t whole = 100;
    json_t *j;

    begin(&t, REQUEST_COMPLETIONS,
          "{\"prompt\": [\"x\", \"y\"], \"n\": 2, \"echo\": true}");
    assert_int_equal(t.w->n, 4);
    cut.why = RESPONSE_LENGTH;
    for (int i = 3; i >= 0; i--) {
        assert_true(response_prompt(t.w, i, 10, 4, i < 2 ? "x" : "y"));
        say(&t, i, i % 2 ? &two : &one, &whole);
    }
    for (int i = 0; i < 4; i++) {
        assert_false(t.w->begun);
        assert_true(response_end(t.w, i, i == 2 ? &cut : &usual_end));
    }
    j = json_loads(t.out.s, 0, NULL);
    same(j, "choices.0.text", "\"xone\"");
    same(j, "choices.3.text", "\"ytwo\"");
    same(j, "choices.3.index", "3");
    same(j, "choices.1.finish_reason", "\"stop\"");
    same(j, "choices.2.finish_reason", "\"length\"");
    same(j, "usage.prompt_tokens", "20");
    same(j, "usage.completion_tokens", "32");
    json_decref(j);
    end(&t);
}

TEST(answers_keep_reasoning_where_it_was_asked_for)
{
    static const struct {
        const char *format, *content, *reasoning;
    } row[] = {
        {"hidden", "say", NULL},
        {"deepseek-legacy", "<think>why \xc3\xbc</think>say", "why \xc3\xbc"},
        {"auto", "say", "why \xc3\xbc"},
    };
    static const struct said said[] = {
        {PL_REPLY_REASONING, "why \xc3\xbc", NULL, NULL},
        {PL_REPLY_CONTENT, "say", NULL, NULL}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        for (size_t cut = 0; cut < 8; cut++) {
            struct asked t;
            char request[256];
            json_t *j;

            snprintf(request, sizeof(request),
                     "{" HELLO ", \"reasoning_format\": \"%s\"}",
                     row[i].format);
            begin(&t, REQUEST_CHAT, request);
            tell_all(&t, said, 2, cut);
            j = json_loads(t.out.s, 0, NULL);
            assert_string_equal(text_at(j, "choices.0.message.content"),
                                row[i].content);
            assert_string_equal(
                text_at(j, "choices.0.message.reasoning_content"),
                row[i].reasoning != NULL ? row[i].reasoning : "(none)");
            json_decref(j);
            end(&t);
        }
    }
}

TEST(answers_tell_progress_where_it_was_asked_for)
{
    struct asked t;
    json_t *j;
    bool done;

    begin(&t, REQUEST_CHAT,
          "{" HELLO ", \"stream\": true, \"return_progress\": true}");
    assert_true(response_progress(t.w, 0, 5, 10, 4, 0.25));
    tell_all(&t, all_kinds, 1, 0);
    j = events(t.out.s, &done);
    same(j, "0.data.prompt_progress",
         "{\"total\": 10, \"cache\": 4, \"processed\": 5, \"time_ms\": 250}");
    same(j, "0.data.choices.0.delta", "{}");
    json_decref(j);
    end(&t);

    begin(&t, REQUEST_RESPONSES,
          "{\"input\": \"x\", \"stream\": true, \"return_progress\": true,"
          "\"timings_per_token\": true}");
    assert_true(response_progress(t.w, 0, 4, 10, 4, 0));
    tell_all(&t, all_kinds, 1, 0);
    j = events(t.out.s, &done);
    same(j, "0.data.type", "\"response.created\"");
    same(j, "2.data.type", "\"response.in_progress\"");
    same(j, "2.data.prompt_progress.processed", "4");
    same(j, "2.data.timings.prompt_n", "0");
    same(j, "2.data.timings.prompt_ms", "0.0");
    same(j, "3.data.type", "\"response.output_item.added\"");
    json_decref(response_of_stream(j));
    json_decref(j);
    end(&t);

    begin(&t, REQUEST_CHAT, "{" HELLO ", \"stream\": true}");
    assert_true(response_progress(t.w, 0, 5, 10, 4, 0.25));
    assert_int_equal(t.out.n, 0);
    end(&t);
}

/* A ping sends nothing of the response, and nothing at all if that is sent
 * whole. */
TEST(answers_that_are_streamed_ping_in_their_protocols_way)
{
    static const char comment[] = ":\n\n";
    static const char event[] = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
    static const struct {
        enum request_kind kind;
        const char *request, *ping;
    } rows[] = {
        {REQUEST_CHAT, "{" HELLO ", \"stream\": true}", comment},
        {REQUEST_COMPLETIONS, "{\"prompt\": \"x\", \"stream\": true}", comment},
        {REQUEST_COMPLETION, "{\"prompt\": \"x\", \"stream\": true}", comment},
        {REQUEST_RESPONSES, "{\"input\": \"x\", \"stream\": true}", comment},
        {REQUEST_MESSAGES, "{" HELLO ", \"stream\": true}", event},
        {REQUEST_CHAT, "{" HELLO "}", ""},
        {REQUEST_MESSAGES, "{" HELLO "}", ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct asked t, quiet;
        size_t n = strlen(rows[i].ping);

        begin(&t, rows[i].kind, rows[i].request);
        begin(&quiet, rows[i].kind, rows[i].request);
        assert_true(response_ping(t.w));
        assert_int_equal(t.out.n, n);
        tell_all(&t, all_kinds, 1, 0);
        tell_all(&quiet, all_kinds, 1, 0);
        assert_int_equal(t.out.n, n + quiet.out.n);
        assert_memory_equal(t.out.s, rows[i].ping, n);
        assert_string_equal(t.out.s + n, quiet.out.s);
        /* after the end of the response a ping sends nothing */
        assert_true(response_ping(t.w));
        assert_int_equal(t.out.n, n + quiet.out.n);
        /* the stream begins with such an event, too */
        if (rows[i].ping == event)
            assert_non_null(strstr(quiet.out.s, event));
        end(&t);
        end(&quiet);
    }
}

/* Returns true if the whole has everything that the part has. */
static bool is_part(const json_t *part, const json_t *whole)
{
    const json_t *v;
    const char *key;
    size_t i;

    if (json_is_array(part)) {
        json_array_foreach (part, i, v)
            if (!is_part(v, json_array_get(whole, i)))
                return false;
        return json_is_array(whole);
    }
    if (json_is_object(part)) {
        json_object_foreach ((json_t *)part, key, v)
            if (!is_part(v, json_object_get(whole, key)))
                return false;
        return json_is_object(whole);
    }
    return whole && json_equal(part, whole);
}

/* Wherever JSON is cut, the closed rest is a part of the whole. */
TEST(json_that_breaks_off_is_closed_behind_what_is_whole)
{
    static const char whole[] =
        " {\"a\": 12, \"b\\\"]\": [1, -2.5e7 , \"x,\\u00e9\\\\\", true, null,"
        "\n{ } ,[]], \"c\":{\"d\":{\"}\": [[\"\", false]]} }, \"e\": 345} ";
    static const struct {
        const char *text, *closed;
    } some[] = {
        {"{\"a\": 1", "{}"},
        {"{\"a\": 1,", "{\"a\": 1}"},
        {"{\"a\": 1, \"b", "{\"a\": 1}"},
        {"{\"a\": 1, \"b\": ", "{\"a\": 1}"},
        {"{\"a\": \"x", "{}"},
        {"{\"a\": \"x\"", "{\"a\": \"x\"}"},
        {"{\"a\": [1, 2", "{\"a\": [1]}"},
        {"{\"a\": {", "{\"a\": {}}"},
    };
    json_t *all = json_loads(whole, 0, NULL);

    for (size_t n = 0; n < sizeof whole; n++) {
        struct text t = {0};
        json_t *j;

        if (json_text_close(whole, n, &t)) {
            j = json_loadb(t.s, t.n, 0, NULL);
            if (!json_is_object(j) || !is_part(j, all))
                fail_msg("%.*s becomes %s", (int)n, whole, t.s);
            if (n >= sizeof whole - 2)
                assert_true(json_equal(j, all));
            json_decref(j);
        } else {
            assert_true(n < 2);
        }
        text_free(&t);
    }
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        struct text t = {0};
        json_t *a, *b = json_loads(some[i].closed, 0, NULL);

        assert_true(json_text_close(some[i].text, strlen(some[i].text), &t));
        a = json_loadb(t.s, t.n, 0, NULL);
        if (!json_equal(a, b))
            fail_msg("%s becomes %s", some[i].text, t.s);
        json_decref(a);
        json_decref(b);
        text_free(&t);
    }
    json_decref(all);
}

TEST(answers_of_messages_have_what_is_whole_of_a_call_that_is_cut)
{
    static const struct said call = {
        PL_REPLY_CALL, "{\"x\": \"a\\u0000b\", \"n\": 3, \"m\": 4", "f", "c1"};
    struct response_end cut = usual_end;
    size_t at = 0;
    struct asked t;
    json_t *j;

    cut.why = RESPONSE_LENGTH;
    begin(&t, REQUEST_MESSAGES,
          "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}");
    assert_true(response_prompt(t.w, 0, 10, 4, NULL));
    say(&t, 0, &call, &at);
    assert_true(response_end(t.w, 0, &cut));
    j = json_loads(t.out.s, JSON_ALLOW_NUL, NULL);
    same(j, "stop_reason", "\"max_tokens\"");
    same(j, "content.0.type", "\"tool_use\"");
    same(j, "content.0.input.n", "3");
    assert_int_equal(json_object_size(get(j, "content.0.input")), 2);
    json_decref(j);
    end(&t);
}

/* A call of a function in a namespace has both names, as clients look it up by
 * both; the call of another function has one. */
TEST(answers_of_responses_have_the_namespaces_of_calls)
{
    static const char asked[] =
        "{\"input\": \"x\", \"stream\": %s, \"tools\": [{\"type\":"
        "\"namespace\", \"name\": \"mcp__x\", \"tools\": [{\"type\":"
        "\"function\", \"name\": \"f\"}]}, {\"type\": \"function\","
        "\"name\": \"g\"}]}";
    static const struct said calls[] = {
        {PL_REPLY_CALL, "{}", "mcp__x__f", "c1"},
        {PL_REPLY_CALL, "{}", "g", "c2"},
    };
    static const char item[] =
        "{\"type\": \"function_call\", \"id\": \"fc_a1_0\","
        "\"call_id\": \"c1\", \"namespace\": \"mcp__x\","
        "\"name\": \"f\", \"arguments\": \"{}\","
        "\"status\": \"completed\"}";
    struct asked t;
    char text[400];
    json_t *j;
    bool done;

    snprintf(text, sizeof(text), asked, "false");
    begin(&t, REQUEST_RESPONSES, text);
    tell_all(&t, calls, 2, 0);
    j = json_loads(t.out.s, 0, NULL);
    same(j, "output.0", item);
    same(j, "output.1.name", "\"g\"");
    assert_null(json_object_get(json_array_get(json_object_get(j, "output"), 1),
                                "namespace"));
    json_decref(j);
    end(&t);

    snprintf(text, sizeof(text), asked, "true");
    begin(&t, REQUEST_RESPONSES, text);
    tell_all(&t, calls, 2, 0);
    j = events(t.out.s, &done);
    same(j, "2.data.type", "\"response.output_item.added\"");
    same(j, "2.data.item.namespace", "\"mcp__x\"");
    same(j, "5.data.type", "\"response.output_item.done\"");
    same(j, "5.data.item", item);
    json_decref(j);
    end(&t);
}

TEST(answers_of_responses_say_that_they_are_cut_off)
{
    struct response_end cut = usual_end;
    size_t at = 0;
    struct asked t;
    json_t *j;

    cut.why = RESPONSE_LENGTH;
    begin(&t, REQUEST_RESPONSES,
          "{\"input\": \"x\", \"max_output_tokens\": 3, \"metadata\":"
          "{\"k\": \"v\"}, \"temperature\": 0.5}");
    assert_true(response_prompt(t.w, 0, 10, 4, NULL));
    say(&t, 0, &all_kinds[1], &at);
    assert_true(response_end(t.w, 0, &cut));
    j = json_loads(t.out.s, 0, NULL);
    same(j, "status", "\"incomplete\"");
    same(j, "incomplete_details", "{\"reason\": \"max_output_tokens\"}");
    same(j, "output.0.status", "\"incomplete\"");
    same(j, "metadata", "{\"k\": \"v\"}");
    same(j, "temperature", "0.5");
    same(j, "max_output_tokens", "3");
    same(j, "object", "\"response\"");
    json_decref(j);
    end(&t);
}

TEST(answers_that_fail_say_so_once)
{
    static const char *const where[N_PROTOCOL] = {
        "0.data.error.message",
        "0.data.error.message",
        "0.data.response.error.message",
        "0.data.error.message",
        "0.data.error.message",
        "0.data.error",
        "0.data.error"};
    struct api_error why = {0};

    assert_false(api_error_set(&why, 503, NULL, NULL, "a device failed"));
    for (int p = 0; p < N_PROTOCOL; p++) {
        for (int streamed = 0; streamed < 2; streamed++) {
            struct asked t;
            json_t *j;
            size_t n;
            bool done;

            begin(&t, protocols[p].kind,
                  streamed ? protocols[p].streamed : protocols[p].whole);
            assert_true(response_fail(t.w, &why));
            n = t.out.n;
            j = streamed ? events(t.out.s, &done)
                         : json_loads(t.out.s, 0, NULL);
            same(j,
                 streamed               ? where[p]
                 : where[p][12] == '\0' ? "error"
                                        : "error.message",
                 "\"a device failed\"");
            assert_true(response_fail(t.w, &why));
            assert_true(response_end(t.w, 0, &usual_end));
            assert_int_equal(t.out.n, n);
            json_decref(j);
            end(&t);
        }
    }
}

static bool gone(void *user, const void *data, size_t n)
{
    (void)data;
    (void)n;
    return --*(int *)user >= 0;
}

TEST(answers_stop_when_the_client_is_gone)
{
    struct asked t;
    int n = 2;
    struct response_about about = {
        .model = "m", .id = "i", .write = gone, .user = &n};
    pl_reply_part p = {.kind = PL_REPLY_CONTENT, .text = "x", .len = 1};
    pl_err err;

    begin(&t, REQUEST_CHAT, protocols[0].streamed);
    response_free(t.w);
    TEST_OK(response_create(&t.w, &t.a, &about, &err), err);
    assert_true(response_prompt(t.w, 0, 1, 0, NULL));
    assert_true(response_part(t.w, 0, &p));
    assert_false(response_part(t.w, 0, &p));
    assert_false(response_part(t.w, 0, &p));
    assert_false(response_end(t.w, 0, &usual_end));
    assert_int_equal(n, -1);
    end(&t);
}

/* Counts the bytes and allocates nothing. */
static bool swallow(void *user, const void *data, size_t n)
{
    size_t *sum = user;

    (void)data;
    *sum += n;
    return true;
}

static bool tell_briefly(const struct request *a, size_t *n_bytes)
{
    static const struct response_token other[] = {
        {.id = 7, .text = "b", .len = 1, .logprob = -0.5}};
    const struct response_token token = {.id = 9,
                                         .text = "a",
                                         .len = 1,
                                         .logprob = -0.25,
                                         .top = other,
                                         .n_top = 1};
    struct response_about about = {
        .model = "m", .id = "i", .write = swallow, .user = n_bytes};
    struct response_times times = {0.5, 2};
    static const int32_t prompt[] = {1, 2};
    struct response *w;
    pl_err err;
    bool ok = response_create(&w, a, &about, &err) == PL_OK &&
              response_prompt_ids(w, 0, prompt, 2) &&
              response_prompt(w, 0, 1, 0, "x");

    for (int i = 0; i < N_KIND && ok; i++) {
        pl_reply_part part = {.kind = all_kinds[i].kind,
                              .text = all_kinds[i].text,
                              .len = strlen(all_kinds[i].text),
                              .name = all_kinds[i].name};

        ok = response_token(w, 0, &token, &times) && response_part(w, 0, &part);
    }
    ok = ok && response_end(w, 0, &usual_end);
    response_free(w);
    return ok;
}

/* If memory runs out, the answer fails, or nothing is missing in it. */
TEST(answers_survive_every_allocation_that_fails)
{
    static const char *const more[] = {
        [REQUEST_CHAT] = "\"logprobs\": true, \"top_logprobs\": 1, ",
        [REQUEST_COMPLETION] = "\"n_probs\": 1, \"return_tokens\": true, ",
        [REQUEST_COMPLETIONS] = "\"logprobs\": 1, ",
        [REQUEST_OLLAMA_CHAT] = "\"logprobs\": true, \"top_logprobs\": 1, ",
        [REQUEST_OLLAMA_GENERATE] = "\"logprobs\": true, ",
        [REQUEST_RESPONSES] = "",
        [REQUEST_MESSAGES] = "",
    };

    /* malloc here is the wrapper that fails on request (lib/alloc_fail.h) */
    json_set_alloc_funcs(malloc, free);

    for (int p = 0; p < N_PROTOCOL; p++) {
        for (int streamed = 0; streamed < 2; streamed++) {
            struct asked t;
            size_t n_whole = 0;
            bool failed, ok;
            char body[500];

            snprintf(body, sizeof(body), "{%s%s", more[protocols[p].kind],
                     (streamed ? protocols[p].streamed : protocols[p].whole) +
                         1);
            begin(&t, protocols[p].kind, body);
            response_free(t.w);
            assert_true(tell_briefly(&t.a, &n_whole));
            failed = true;
            for (int64_t n = 1; failed; n++) {
                size_t n_bytes = 0;

                alloc_stat_reset();
                alloc_fail_at(n);
                ok = tell_briefly(&t.a, &n_bytes);
                failed = alloc_fail_off();
                assert_true(ok || failed);
                if (ok && n_bytes != n_whole)
                    fail_msg("protocol %d, stream %d, allocation %" PRId64
                             ": %zu bytes, not %zu",
                             p, streamed, n, n_bytes, n_whole);
                if (alloc_stat_get().live_bytes != 0)
                    fail_msg("protocol %d, stream %d, allocation %" PRId64
                             " leaks",
                             p, streamed, n);
            }
            t.w = NULL;
            end(&t);
        }
    }
}
