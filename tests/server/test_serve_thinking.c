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
