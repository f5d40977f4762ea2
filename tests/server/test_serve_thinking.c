/* plait serve keeps the limits of reasoning: after as many tokens as a request
 * allows, the answer follows, in every protocol, streamed or whole. */
#include "lib/serve_try.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *write_form(const char *form)
{
    const char *path = test_temp("thinks.jinja");
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(form, 1, strlen(form), f), strlen(form));
    fclose(f);
    return path;
}

/* Writes a template whose prompts open reasoning. */
static const char *write_template(void)
{
    return write_form(
        "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}"
        "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
        "{{ m.content }}<|end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}");
}

enum { CHAT, MESSAGES, RESPONSES };
static const char *const paths[] = {"/v1/chat/completions", "/v1/messages",
                                    "/v1/responses"};

/* Appends a text of `j` to its `name`, if there is one. */
static void take(json_t *got, const char *name, const json_t *j,
                 const char *key)
{
    const char *before = json_string_value(json_object_get(got, name));
    const char *s = json_string_value(json_object_get(j, key));

    json_object_set_new(got, name,
                        json_sprintf("%s%s", before ? before : "", s ? s : ""));
}

/* Returns {"why": REASONING, "text": CONTENT} of an answer. */
static json_t *parts_of(const char *body)
{
    json_t *j = serve_try_json(body), *got = json_object(), *item, *in;
    const json_t *m = json_object_get(
        json_array_get(json_object_get(j, "choices"), 0), "message");
    size_t i, k;

    take(got, "why", m, "reasoning_content");
    take(got, "text", m, "content");
    json_array_foreach (json_object_get(j, "content"), i, item) {
        take(got, "why", item, "thinking");
        take(got, "text", item, "text");
    }
    json_array_foreach (json_object_get(j, "output"), i, item) {
        const char *type = json_string_value(json_object_get(item, "type"));

        json_array_foreach (json_object_get(item, "content"), k, in)
            take(got, strcmp(type, "reasoning") == 0 ? "why" : "text", in,
                 "text");
    }
    json_decref(j);
    return got;
}

/* Asks for at most `most` tokens, with more fields. */
static json_t *ask(struct serve_try *s, int way, int most, const char *more)
{
    static const char *const said[] = {
        "\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"}],"
        "\"max_tokens\"",
        "\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"}],"
        "\"max_tokens\"",
        "\"input\":\"Hello?\",\"max_output_tokens\""};
    char request[400], *body;
    json_t *got;

    snprintf(request, sizeof request, "{%s:%d,\"temperature\":0%s}", said[way],
             most, more);
    body = serve_try_post(s, paths[way], request, 200);
    got = parts_of(body);
    free(body);
    return got;
}

static const char *text_at(const json_t *j, const char *key)
{
    const char *s = json_string_value(json_object_get(j, key));

    return s ? s : "";
}

TEST(serve_ends_reasoning_after_as_many_tokens_as_are_allowed)
{
    static const char *const limits[] = {
        ",\"thinking_budget_tokens\":%d",
        ",\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":%d}",
        ",\"reasoning\":{\"max_tokens\":%d}"};
    struct serve_try s;
    char more[300];

    snprintf(more, sizeof more, "--chat-template-file '%s'", write_template());
    serve_try_start(&s, "", more);
    for (int n = 0; n <= 8; n += 4) {
        for (int way = CHAT; way <= RESPONSES; way++) {
            json_t *cut = n > 0 ? ask(&s, way, n, "") : json_object(), *got;

            snprintf(more, sizeof more, limits[way], n);
            got = ask(&s, way, n + 24, more);
            assert_string_equal(text_at(got, "why"), text_at(cut, "why"));
            assert_true(n == 0 || text_at(got, "why")[0] != '\0');
            assert_true(text_at(got, "text")[0] != '\0');
            assert_null(strstr(text_at(got, "text"), "think>"));
            assert_string_equal(text_at(cut, "text"), "");
            json_decref(cut);
            json_decref(got);
        }
    }
    serve_try_stop(&s);
}

/* A grammar of calls covers the reasoning of gpt-oss, too. */
TEST(serve_ends_reasoning_before_a_forced_call)
{
    static const char form[] =
        "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == "
        "'assistant' %}{% if m.thinking %}<|channel|>analysis<|message|>"
        "{{ m.thinking }}<|end|><|start|>assistant{% endif %}<|channel|>final"
        "{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}";
    struct serve_try s;
    char more[700], *body;
    int n_thought = 0;

    snprintf(more, sizeof more, "--chat-template-file '%s'", write_form(form));
    serve_try_start(&s, "", more);
    for (int seed = 0; seed < 4; seed++) {
        json_t *j;
        const json_t *m;

        snprintf(
            more, sizeof more,
            "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"}],"
            "\"seed\":%d,\"max_tokens\":200,\"tool_choice\":\"required\","
            "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
            "\"now\",\"parameters\":{\"type\":\"object\",\"properties\":{},"
            "\"additionalProperties\":false}}}],"
            "\"logit_bias\":[[\" \",-50],[\" t\",-50],[\" to\",-50],"
            "[\"c\",-50],[\"co\",-50],[\"com\",-50]],"
            "\"thinking_budget_tokens\":3}",
            seed);
        body = serve_try_post(&s, paths[CHAT], more, 200);
        j = serve_try_json(body);
        m = json_object_get(json_array_get(json_object_get(j, "choices"), 0),
                            "message");
        assert_int_equal(json_array_size(json_object_get(m, "tool_calls")), 1);
        n_thought += strlen(text_at(m, "reasoning_content")) > 0;
        assert_true(strlen(text_at(m, "reasoning_content")) < 60);
        json_decref(j);
        free(body);
    }
    assert_true(n_thought > 0);
    serve_try_stop(&s);
}

/* ---- forced calls that are cut ------------------------------------------- */

/* Appends the texts under `key` in `j`, at any depth, to `name` in `got`. */
static void gather(json_t *got, const char *name, const json_t *j,
                   const char *key)
{
    const char *k;
    json_t *v;
    size_t i;

    json_object_foreach ((json_t *)j, k, v) {
        if (strcmp(k, key) == 0 && json_is_string(v))
            take(got, name, j, key);
        else
            gather(got, name, v, key);
    }
    json_array_foreach ((json_t *)j, i, v)
        gather(got, name, v, key);
}

/* Returns {"why": REASONING, "text": CONTENT, "end": REASON} of a response
 * without content of its own, streamed or whole. */
static json_t *all_parts_of(int way, const char *body)
{
    static const char *const keys[3][3] = {
        {"reasoning_content", "content", "finish_reason"},
        {"thinking", "text", "stop_reason"},
        {"text", "refusal", "reason"}};
    static const char *const names[] = {"why", "text", "end"};
    const bool whole = body[0] == '{';
    json_t *got = json_object();

    for (const char *s = whole ? body : strstr(body, "data: {"); s;
         s = whole ? NULL : strstr(s + 1, "data: {")) {
        char *line = strdup(whole ? s : s + 6);
        json_t *j;

        if (!whole)
            line[strcspn(line, "\n")] = '\0';
        j = serve_try_json(line);
        for (int i = 0; i < 3; i++)
            gather(got, names[i], j, keys[way][i]);
        json_decref(j);
        free(line);
    }
    return got;
}

/* A call that is forced and cut by the limit of tokens is never content, not
 * even where it has no arguments yet. Reasoning before it is returned. */
TEST(serve_returns_no_part_of_a_forced_call_as_content)
{
    static const char *const tools[] = {
        ",\"tool_choice\":\"required\",\"tools\":[{\"type\":\"function\","
        "\"function\":{\"name\":\"get_weather\",\"parameters\":%s}}]",
        ",\"tool_choice\":{\"type\":\"any\"},\"tools\":[{\"name\":"
        "\"get_weather\",\"input_schema\":%s}]",
        ",\"tool_choice\":{\"type\":\"function\",\"name\":\"get_weather\"},"
        "\"tools\":[{\"type\":\"function\",\"name\":\"get_weather\","
        "\"parameters\":%s}]"};
    static const char *const length[] = {"length", "max_tokens",
                                         "max_output_tokens"};
    static const char *const calls[] = {"\"tool_calls\"", "\"tool_use\"",
                                        "\"function_call\""};
    static const char *const said[] = {
        "\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"}],"
        "\"max_tokens\"",
        "\"messages\":[{\"role\":\"user\",\"content\":\"Hello?\"}],"
        "\"max_tokens\"",
        "\"input\":\"Hello?\",\"max_output_tokens\""};
    int n_none = 0, n_call = 0;
    struct serve_try s;
    char more[800], fields[600], *body;

    snprintf(more, sizeof more, "--chat-template-file '%s'", write_template());
    serve_try_start(&s, "", more);
    for (int i = 0; i < 36; i++) {
        const int way = i % 3, n = 8 + i / 6 * 16;
        json_t *j;

        snprintf(fields, sizeof fields, tools[way],
                 "{\"type\":\"object\",\"properties\":{\"place\":{\"enum\":"
                 "[\"Rome\"]}},\"required\":[\"place\"],"
                 "\"additionalProperties\":false}");
        snprintf(more, sizeof more,
                 "{%s:%d,\"temperature\":0,\"thinking_budget_tokens\":4,"
                 "\"stream\":%s%s}",
                 said[way], n, i / 3 % 2 ? "true" : "false", fields);
        body = serve_try_post(&s, paths[way], more, 200);
        j = all_parts_of(way, body);
        if (text_at(j, "text")[0] != '\0' ||
            (way == RESPONSES && strstr(body, "output_text")))
            fail_msg("%s: %s", more, body);
        assert_true(text_at(j, "why")[0] != '\0');
        if (strstr(body, calls[way])) {
            n_call++;
        } else {
            assert_non_null(strstr(text_at(j, "end"), length[way]));
            n_none++;
        }
        json_decref(j);
        free(body);
    }
    assert_true(n_none > 5 && n_call > 5);
    /* Reasoning that is a part of the content stays. */
    snprintf(fields, sizeof fields, tools[CHAT], "{}");
    snprintf(more, sizeof more,
             "{%s:12,\"temperature\":0,\"thinking_budget_tokens\":4,"
             "\"reasoning_format\":\"none\"%s}",
             said[CHAT], fields);
    body = serve_try_post(&s, paths[CHAT], more, 200);
    assert_non_null(strstr(body, "<think>\\n"));
    assert_non_null(strstr(body, "</think>"));
    assert_null(strstr(body, "tool_call>"));
    free(body);
    serve_try_stop(&s);
}

/* With reasoning_format none, the content is what the model wrote, from the
 * marker of the prompt on. */
TEST(serve_returns_reasoning_where_it_was_asked_for)
{
    static const char within[] =
        ",\"reasoning_format\":\"none\",\"thinking_budget_tokens\":6";
    static const char apart[] = ",\"thinking_budget_tokens\":6";
    static const char hidden[] =
        ",\"include_reasoning\":false,\"thinking_budget_tokens\":6";
    struct serve_try s;
    char more[300], *want;
    json_t *a, *b, *c;

    snprintf(more, sizeof more, "--chat-template-file '%s'", write_template());
    serve_try_start(&s, "", more);
    a = ask(&s, CHAT, 30, apart);
    b = ask(&s, CHAT, 30, within);
    c = ask(&s, CHAT, 30, hidden);
    assert_true(asprintf(&want, "<think>\n%s", text_at(a, "why")) > 0);
    assert_int_equal(strncmp(text_at(b, "text"), want, strlen(want)), 0);
    assert_non_null(strstr(text_at(b, "text"), "\n</think>\n\n"));
    assert_string_equal(strstr(text_at(b, "text"), "</think>\n\n") + 10,
                        text_at(a, "text"));
    assert_string_equal(text_at(b, "why"), "");
    assert_string_equal(text_at(c, "why"), "");
    assert_string_equal(text_at(c, "text"), text_at(a, "text"));
    free(want);
    json_decref(a);
    json_decref(b);
    json_decref(c);
    serve_try_stop(&s);
}
