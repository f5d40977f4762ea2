/* Conversations are changed so that a template takes them. A conversation that
 * it takes as it is stays the same, and nothing of it is lost silently. */
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <jansson.h>
#include <pl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t now = 1741529106; /* 2025-03-09 14:05:06 UTC */

/* Returns the text with " for each '. */
static char *quoted(const char *text)
{
    char *s = text ? strdup(text) : NULL;

    for (char *p = s; p && *p; p++)
        if (*p == '\'')
            *p = '"';
    return s;
}

/* Renders a conversation; NULL on failure. The texts have ' for ". */
static char *render(const char *form, const char *messages, const char *tools,
                    const char *extra, bool adapt, pl_err *err)
{
    char *own[] = {quoted(messages), quoted(tools), quoted(extra)};
    const pl_conversation c = {.size = sizeof c,
                               .messages = own[0],
                               .tools = own[1],
                               .extra = own[2],
                               .now = now,
                               .no_generation_prompt = true,
                               .adapt = adapt};
    pl_template *t;
    char *text = NULL;

    TEST_OK(pl_template_create(&t, form, strlen(form), NULL, err), *err);
    pl_template_render(t, &c, &text, NULL, err);
    pl_template_free(t);
    for (int i = 0; i < 3; i++)
        free(own[i]);
    return text;
}

static void becomes(const char *form, const char *messages, const char *tools,
                    const char *extra, const char *want)
{
    pl_err err;
    char *text = render(form, messages, tools, extra, true, &err);

    if (!text || strcmp(text, want) != 0)
        fail_msg("%s\n%s\ngave %s\nnot  %s", form, messages,
                 text ? text : err.message, want);
    free(text);
}

#define S(text) "{'role': 'system', 'content': '" text "'}"
#define U(text) "{'role': 'user', 'content': '" text "'}"
#define A(text) "{'role': 'assistant', 'content': '" text "'}"
#define CALL(id, name, arguments)                                              \
    "{'id': '" id "', 'type': 'function', 'function': {'name': '" name         \
    "', 'arguments': " arguments "}}"
#define CALLING(text, calls)                                                   \
    "{'role': 'assistant', 'content': '" text "', 'tool_calls': [" calls "]}"
#define RESULT(id, text)                                                       \
    "{'role': 'tool', 'tool_call_id': '" id "', 'content': '" text "'}"

/* ---- templates with the traits of published ones ------------------------- */

#define EACH "{% for m in messages %}"
#define SHOW "[{{ m.role }} {{ m.content }}]{% endfor %}"
#define SHOW_CALLS                                                             \
    "[{{ m.role }} {{ m.content }}"                                            \
    "{% for c in m.tool_calls %} {{ c.id }}={{ c.function.name }}"             \
    "{{ c.function.arguments|tojson }}{% endfor %}"                            \
    "{% if m.role == 'tool' %}<{{ m.tool_call_id }}{% endif %}]{% endfor %}"

static const char takes_all[] = EACH SHOW_CALLS;
static const char one_system[] =
    EACH "{% if m.role == 'system' and not loop.first %}"
         "{{ raise_exception('the system message must be the first') }}"
         "{% endif %}" SHOW;
static const char drops_systems[] =
    EACH "{% if m.role == 'system' and not loop.first %}{% continue %}"
         "{% endif %}" SHOW;
/* shows the system message before the text of the first user message */
static const char system_in_user[] =
    "{% set ns = namespace(s='') %}" EACH
    "{% if m.role == 'system' %}{% set ns.s = m.content + '+' %}"
    "{% else %}[{{ m.role }} {{ ns.s }}{{ m.content }}]"
    "{% set ns.s = '' %}{% endif %}{% endfor %}";
static const char no_system[] =
    EACH "{% if m.role == 'system' %}{{ raise_exception('no system') }}"
         "{% endif %}" SHOW;
static const char turns[] =
    EACH "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
         "{{ raise_exception('roles must alternate') }}{% endif %}" SHOW;
/* This template does not count calls and results as turns. */
static const char turns_of_text[] =
    "{% set n = namespace(i=0) %}" EACH
    "{% if m.role != 'tool' and not m.tool_calls %}"
    "{% if (m.role == 'user') != (n.i % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set n.i = n.i + 1 %}{% endif %}" SHOW_CALLS;
static const char nine[] =
    EACH "{% for c in m.tool_calls %}{% if c.id|length != 9 %}"
         "{{ raise_exception('ids have nine letters') }}{% endif %}"
         "{% endfor %}{% if m.role == 'tool' and m.tool_call_id|length != 9 %}"
         "{{ raise_exception('ids of results too') }}{% endif %}" SHOW_CALLS;
static const char nine_and_turns[] =
    EACH "{% if loop.previtem and loop.previtem.role == m.role %}"
         "{{ raise_exception('take turns') }}{% endif %}"
         "{% for c in m.tool_calls %}{% if c.id|length != 9 %}"
         "{{ raise_exception('ids have nine letters') }}{% endif %}"
         "{% endfor %}" SHOW_CALLS;
static const char one_call[] =
    EACH "{% if m.tool_calls and m.tool_calls|length != 1 %}"
         "{{ raise_exception('one call at a time') }}{% endif %}" SHOW_CALLS;
static const char first_call[] =
    EACH "[{{ m.role }} {{ m.content }}{% if m.tool_calls %}"
         " {{ m.tool_calls[0].function.name }}"
         "{{ m.tool_calls[0].function.arguments|tojson }}{% endif %}]"
         "{% endfor %}";
static const char text_arguments[] =
    EACH "[{{ m.role }} {{ m.content }}{% for c in m.tool_calls %}"
         "{{ c.function.name + ' ' + c.function.arguments }}{% endfor %}]"
         "{% endfor %}";
static const char python_arguments[] =
    EACH "[{{ m.role }} {{ m.content }}{% for c in m.tool_calls %}"
         "{{ c.function.name }} {{ c.function.arguments }}{% endfor %}]"
         "{% endfor %}";
static const char no_calls[] =
    EACH "{% if m.role in ['user', 'assistant'] %}[{{ m.role }} "
         "{{ m.content }}]{% endif %}{% endfor %}";
static const char orphans[] =
    "{% set n = namespace(call=none) %}" EACH
    "{% if m.tool_calls %}{% set n.call = 1 %}{% endif %}"
    "{% if m.role == 'tool' and n.call is none %}"
    "{{ raise_exception('no call') }}{% endif %}" SHOW;
static const char named_results[] =
    EACH "{% if m.role == 'tool' and not m.name %}"
         "{{ raise_exception('which tool?') }}{% endif %}" SHOW_CALLS;
static const char parts[] =
    EACH "[{{ m.role }}{% for p in m.content %}"
         "{% if p.type == 'text' %} {{ p.text }}{% endif %}{% endfor %}]"
         "{% endfor %}";
static const char needs_user[] =
    "{% if not messages|selectattr('role', 'equalto', 'user')|list %}"
    "{{ raise_exception('no user') }}{% endif %}" EACH SHOW;
/* a template whose macro calls itself without end for the type "null", as that
 * of Hermes 3 */
static const char deep_tools[] =
    "{%- macro of(type) -%}{%- if type == 'integer' -%}int{%- else -%}"
    "{%- for t in type -%}{{- of(t) -}}{%- endfor -%}{%- endif -%}"
    "{%- endmacro -%}{%- for t in tools -%}"
    "{%- for k, p in t.function.parameters.properties.items() -%}"
    "{{- of(p.type) -}}{%- endfor -%}{%- endfor -%}";
static const char whole_tools[] =
    "{% for t in tools %}{{ '<' + t.function.name + ': ' + "
    "t.function.description + ' ' }}"
    "{% for k, p in t.function.parameters.properties.items() %}"
    "{{ k + ':' + p.type + ' ' + p.description }}{% endfor %}>{% endfor %}";
static const char none_tools[] =
    "{% if tools is not none %}{{ tools.x.y }}{% endif %}ok";
static const char either[] =
    EACH "{% if m.tool_calls and m.content and m.thinking %}"
         "{{ raise_exception('content or thinking') }}{% endif %}"
         "[{{ m.thinking }}|{{ m.content }}{% for c in m.tool_calls %}"
         "{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}]"
         "{% endfor %}";
static const char no_blanks[] =
    "{% set n = namespace(i=0) %}" EACH "{% if m.role != 'tool' and not "
    "m.tool_calls %}{% if (m.role == 'user') != (n.i % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% set n.i = n.i + 1 %}{% if not m.content %}"
    "{{ raise_exception('a message needs content') }}{% endif %}"
    "{% endif %}" SHOW_CALLS;
static const char no_channels[] =
    EACH "{% if '<|channel|>' in m.content %}"
         "{{ raise_exception('channels in the content') }}{% endif %}" SHOW;
static const char drops_orphans[] =
    EACH "{% if m.role != 'tool' or loop.index0 > 1 %}[{{ m.role }} "
         "{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}"
         "{{ c.function.arguments|tojson }}{% endfor %}]{% endif %}"
         "{% endfor %}";

TEST(adapt_conversations_become_what_templates_take)
{
    static const struct {
        const char *form, *messages, *want;
    } row[] = {
        {one_system, "[" S("a") "," S("b") "," U("c") "]",
         "[system a\n\nb][user c]"},
        {one_system, "[" S("a") "," U("b") "," A("c") "," S("d") "," U("e") "]",
         "[system a][user b][assistant c][user d\n\ne]"},
        {one_system, "[" U("b") "," S("d") "]", "[system d][user b]"},
        {one_system, "[" S("a") "," U("b") "," S("d") "," A("c") "]",
         "[system a\n\nd][user b][assistant c]"},
        {drops_systems, "[" S("a") "," S("b") "," U("c") "]",
         "[system a\n\nb][user c]"},
        {no_system, "[" S("a") "," U("b") "," A("c") "," U("d") "]",
         "[user a\n\nb][assistant c][user d]"},
        {no_system, "[" S("a") "]", "[user a]"},
        {system_in_user, "[" S("a") "]", "[user a]"},
        {system_in_user, "[" S("a") "," S("b") "]", "[user a+b]"},
        {system_in_user, "[" S("a") "," U("b") "]", "[user a+b]"},
        {turns, "[" U("a") "," U("b") "," A("c") "," A("d") "," U("e") "]",
         "[user a\n\nb][assistant c\n\nd][user e]"},
        {turns, "[" A("a") "," U("b") "]", "[user ][assistant a][user b]"},
        {turns_of_text,
         "[" U("a") "," CALLING("", CALL("i", "f", "{}")) "," RESULT(
             "i", "r") "," U("b") "]",
         "[user a][assistant  i=f{}][tool r<i][assistant ][user b]"},
        {nine,
         "[" U("a") "," CALLING(
             "", CALL("abcdefgh1", "f", "{}") "," CALL(
                     "call_1", "g",
                     "{}")) "," RESULT("call_1", "r") "," RESULT("abcdefgh1",
                                                                 "s") "]",
         "[user a][assistant  abcdefgh1=f{} 9gD2Dimct=g{}][tool r<9gD2Dimct]"
         "[tool s<abcdefgh1]"},
        {nine_and_turns,
         "[" U("a") "," U("b") "," CALLING(
             "", CALL("call_1", "f", "{}")) "," RESULT("call_1", "r") "]",
         "[user a\n\nb][assistant  9gD2Dimct=f{}][tool r<9gD2Dimct]"},
        {one_call,
         "[" U("a") "," CALLING(
             "b", CALL("1", "f", "{}") "," CALL(
                      "2", "g",
                      "{}")) "," RESULT("2",
                                        "r") "," RESULT("1",
                                                        "s") "," U("c") "]",
         "[user a][assistant b 1=f{}][tool s<1][assistant  2=g{}][tool r<2]"
         "[user c]"},
        {first_call,
         "[" U("a") "," CALLING(
             "b", CALL("1", "f", "{}") "," CALL("2", "g", "{}")) "]",
         "[user a][assistant b f{}][assistant  g{}]"},
        {text_arguments,
         "[" U("a") "," CALLING("", CALL("1", "f", "{'x': [1]}")) "]",
         "[user a][assistant f {\"x\": [1]}]"},
        {python_arguments,
         "[" U("a") "," CALLING("", CALL("1", "f", "{'x': true}")) "]",
         "[user a][assistant f {\"x\": true}]"},
        {no_calls,
         "[" U("a") "," CALLING("b", CALL("1", "f", "{'x': 1}")) "," RESULT(
             "1", "r") "]",
         "[user a][assistant b\n\n{\"name\": \"f\", \"arguments\": "
         "{\"x\": 1}}][user Result of f:\nr]"},
        {orphans, "[" RESULT("1", "r") "," U("a") "]",
         "[user Result of a tool:\nr][user a]"},
        {named_results,
         "[" U("a") "," CALLING("", CALL("1", "f", "{}")) "," RESULT("1",
                                                                     "r") "]",
         "[user a][assistant  1=f{}][tool r<1]"},
        {parts, "[" S("a") "," U("b") "]", "[system a][user b]"},
        {needs_user, "[" S("a") "]", "[user a]"},
        {needs_user, "[" S("a") "," A("b") "]", "[user a][assistant b]"},
        {needs_user, "[" A("b") "]", "[user ][assistant b]"},
        {either,
         "[" U("a") ",{'role': 'assistant', 'content': 'b', "
                    "'reasoning_content': 'c', 'tool_calls': [" CALL(
                        "1", "f", "{}") "]}]",
         "[|a][c\n\nb|f{}]"},
        {no_blanks, "[" U("") "," A("a") "," U("b") "]",
         "[user  ][assistant a][user b]"},
        {no_blanks,
         "[" U("a") "," CALLING("", CALL("i", "f", "{}")) "," RESULT(
             "i", "r") "," U("b") "]",
         "[user a][assistant  i=f{}][tool r<i][assistant  ][user b]"},
        {no_channels,
         "[" U("a") "," A(
             "<|channel|>analysis<|message|>b<|end|><|start|>"
             "assistant<|channel|>final<|message|>c<|return|>") "]",
         "[user a][assistant c]"},
        {drops_orphans, "[" RESULT("1", "r") "," U("a") "]",
         "[user Result of a tool:\nr][user a]"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        becomes(row[i].form, row[i].messages, NULL, NULL, row[i].want);
}

TEST(adapt_leaves_alone_what_a_template_takes)
{
    static const char *const messages[] = {
        "[" S("a") "," S("b") "," U("c") "," U("d") "," S("e") "," A("f") "]",
        "[" CALLING(
            "a", CALL("call_1", "f", "{'x': 1}") "," CALL(
                     "2", "g", "{}")) "," RESULT("2", "r") "," RESULT("1",
                                                                      "s") "]",
    };

    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++) {
        pl_err err;
        char *want = render(takes_all, messages[i], NULL, NULL, false, &err);

        assert_non_null(want);
        becomes(takes_all, messages[i], NULL, NULL, want);
        free(want);
    }
}

/* A template gets reasoning by the name that it reads, and only once. */
TEST(adapt_reasoning_has_the_name_that_the_template_reads)
{
    static const char *const names[] = {"reasoning_content", "reasoning",
                                        "thinking", "thought"};
    static const char parted[] =
        EACH "{% if m.content is string %}{{ m.content }}{% else %}"
             "{% for p in m.content %}{% if p.type == 'thinking' %}"
             "<{{ p.thinking }}>{% else %}{{ p.text }}{% endif %}{% endfor %}"
             "{% endif %}{% endfor %}";

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char form[256];

        snprintf(form, sizeof form,
                 "%s{%% if m.%s %%}<{{ m.%s }}>{%% endif %%}{{ m.content }}"
                 "{%% for c in m.tool_calls %%}{{ c.function.name }}"
                 "{%% endfor %%}{%% endfor %%}",
                 EACH, names[i], names[i]);
        becomes(form,
                "[" U("a") ",{'role': 'assistant', 'content': 'b', "
                           "'reasoning_content': 'c'}]",
                NULL, NULL, "a<c>b");
    }
    becomes(parted,
            "[" U("a") ",{'role': 'assistant', 'content': 'b', "
                       "'reasoning_content': 'c'}]",
            NULL, NULL, "a<c>b");
    /* A template that reads no reasoning gets the content as it is. */
    becomes(EACH SHOW,
            "[" U("a") ",{'role': 'assistant', 'content': 'b', "
                       "'reasoning_content': 'c'}]",
            NULL, NULL, "[user a][assistant b]");
    becomes(EACH "{{ m.content|tojson }}{% endfor %}",
            "[{'role': 'assistant', 'content': 'b', 'reasoning_content': "
            "'c'}]",
            NULL, NULL, "\"b\"");
    becomes(EACH "{{ m.reasoning_content or m.reasoning }}"
                 "{{ m.thinking }}{% endfor %}",
            "[{'role': 'assistant', 'content': '', 'reasoning_content': 'c'}]",
            NULL, NULL, "c");
}

TEST(adapt_tools_become_what_templates_take)
{
    static const struct {
        const char *form, *tools, *extra, *want;
    } row[] = {
        {whole_tools, "[{'type': 'function', 'function': {'name': 'f'}}]", NULL,
         "<f:  >"},
        {whole_tools,
         "[{'type': 'function', 'function': {'name': 'f', 'parameters': "
         "{'type': 'object', 'properties': {'x': {'enum': ['y']}, "
         "'z': true}}}}]",
         NULL, "<f:  x:string z:string >"},
        {whole_tools,
         "[{'type': 'function', 'function': {'name': 'f', 'parameters': "
         "{'type': 'object', 'properties': {'x': {'type': ['null', "
         "'integer']}}}}}]",
         NULL, "<f:  x:integer >"},
        {deep_tools,
         "[{'type': 'function', 'function': {'name': 'f', 'parameters': "
         "{'type': 'object', 'properties': {'x': {'type': ['integer', "
         "'null']}}}}}]",
         NULL, "int"},
        {none_tools, NULL, NULL, "ok"},
        /* a variable of older templates, such as those of FireFunction */
        {"{{ messages[0].content + '|' + functions }}", NULL, NULL, "a|"},
        {"{{ messages[0].content + '|' + functions }}",
         "[{'type': 'function', 'function': {'name': 'f'}}]", NULL,
         "a|[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"},
        {"{{ messages[0].content + '|' + functions }}", NULL,
         "{'functions': 'own'}", "a|own"},
        {"{{ functions is defined }}", NULL, NULL, "False"},
        {"{% for t in tools %}{{ t }}{% endfor %}ok", NULL, NULL, "ok"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        becomes(row[i].form, "[" U("a") "]", row[i].tools, row[i].extra,
                row[i].want);
}

/* The variables of llama.cpp's server; those of the conversation replace
 * them. */
TEST(adapt_sets_the_variables_that_templates_expect)
{
    static const char form[] =
        "{{ bos_token + eos_token }}{{ enable_thinking }} {{ date_string }} "
        "{{ datetime }} {{ tools is defined }}{{ documents is defined }} "
        "{{ add_generation_prompt }}";

    setenv("TZ", "UTC", 1);
    becomes(form, "[]", NULL, NULL,
            "True 09 Mar 2025 Mar 09 2025 FalseFalse False");
    becomes(form, "[]", "[]",
            "{'enable_thinking': false, 'date_string': 'x', 'bos_token': 'y'}",
            "yFalse x Mar 09 2025 TrueFalse False");
}

/* A template without the variable enable_thinking, in which an effort turns
 * reasoning off. */
TEST(adapt_switches_reasoning_by_effort)
{
    static const char form[] = EACH SHOW
        "{% if reasoning_effort|default('no_think') not in ['no_think', 'low', "
        "'high'] %}{{ raise_exception('no such effort') }}{% endif %}"
        "{{ '<think>' if reasoning_effort|default('no_think') != 'no_think' }}"
        "{{ reasoning_effort }}";
    static const char other[] = "{{ reasoning_effort }}{{ enable_thinking }}";
    static const char *const row[][2] = {
        {NULL, "[user a]"},
        {"{'enable_thinking': true}", "[user a]<think>high"},
        {"{'enable_thinking': false}", "[user a]no_think"},
        {"{'reasoning_effort': 'low'}", "[user a]<think>low"},
        {"{'reasoning_effort': 'minimal'}", "[user a]<think>low"},
        {"{'reasoning_effort': 'medium', 'enable_thinking': true}",
         "[user a]<think>high"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        becomes(form, "[" U("a") "]", NULL, row[i][0], row[i][1]);
    becomes(other, "[]", NULL, "{'enable_thinking': false}", "False");
}

/* The error is about the conversation as it was given, not about an adapted
 * form that was tried. */
TEST(adapt_tells_the_templates_own_error)
{
    pl_err err;

    assert_null(render("{{ raise_exception('never: ' + messages|length|string)"
                       " }}",
                       "[" S("a") "," S("b") "," U("c") "," U("d") "]", NULL,
                       NULL, true, &err));
    assert_int_equal(err.status, PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "never: 4"));
    assert_null(render(takes_all, "[" U("a"), NULL, NULL, true, &err));
    assert_non_null(strstr(err.message, "messages: invalid JSON"));
}

/* A template that takes one call gets a grammar of one call. */
TEST(adapt_grammars_allow_as_many_calls_as_the_template_takes)
{
    static const char *const forms[] = {
        EACH "{% if m.tool_calls and m.tool_calls|length != 1 %}"
             "{{ raise_exception('one call at a time') }}{% endif %}"
             "<|a|>{{ m.content }}{% for c in m.tool_calls %}"
             "<call>{{ c.function|tojson }}</call>{% endfor %}<|e|>"
             "{% endfor %}",
        EACH "<|a|>{{ m.content }}{% for c in m.tool_calls %}"
             "<call>{{ c.function|tojson }}</call>{% endfor %}<|e|>"
             "{% endfor %}",
    };
    static const char tools[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]";

    for (size_t i = 0; i < 2; i++) {
        char *any = NULL, *single = NULL;
        pl_template *t;
        bool reasons;
        pl_err err;

        TEST_OK(pl_template_create(&t, forms[i], strlen(forms[i]), NULL, &err),
                err);
        TEST_OK(pl_template_calls(t, tools, NULL, false, NULL, &any, &reasons,
                                  &err),
                err);
        TEST_OK(pl_template_calls(t, tools, NULL, true, NULL, &single, &reasons,
                                  &err),
                err);
        assert_int_equal(strcmp(any, single) == 0, i == 0);
        free(any);
        free(single);
        pl_template_free(t);
    }
}

/* Templates that go through all messages for each message need more steps in
 * long conversations. */
TEST(adapt_long_conversations_stay_within_the_limits)
{
    enum { N = 1600 };
    static const char form[] =
        EACH "{% set n = namespace(i=0) %}{% for k in messages %}"
             "{% if k.role == 'user' %}{% set n.i = n.i + 1 %}{% endif %}"
             "{% endfor %}{% if loop.last %}{{ n.i }}{% endif %}{% endfor %}";
    char *messages = malloc((size_t)N * 40 + 3), *at = messages;

    for (int i = 0; i < N; i++)
        at += sprintf(at, "%s" U("a"), i > 0 ? "," : "[");
    strcpy(at, "]");
    becomes(form, messages, NULL, NULL, "1600");
    free(messages);
}

TEST(adapt_runs_out_of_memory_without_a_trace)
{
    static const pl_conversation c = {
        .size = sizeof c,
        .messages = "[{\"role\": \"system\", \"content\": \"a\"}, "
                    "{\"role\": \"system\", \"content\": \"b\"}, "
                    "{\"role\": \"user\", \"content\": \"c\"}]",
        .adapt = true};
    bool failed = true;
    pl_template *t;
    pl_err err;

    /* malloc here is the wrapper that fails on request (lib/alloc_fail.h) */
    json_set_alloc_funcs(malloc, free);
    TEST_OK(pl_template_create(&t, no_system, strlen(no_system), NULL, &err),
            err);
    for (int64_t n = 1; failed; n++) {
        char *text = NULL;
        pl_status s;

        alloc_stat_reset();
        alloc_fail_at(n);
        s = pl_template_render(t, &c, &text, NULL, &err);
        failed = alloc_fail_off();
        if (s == PL_OK)
            assert_string_equal(text, "[user a\n\nb\n\nc]");
        else /* the JSON reader tells some failures as errors of the text */
            assert_true(failed);
        free(text);
        assert_int_equal(alloc_stat_get().live_bytes, 0);
    }
    pl_template_free(t);
}

static void note_part(void *user, const pl_reply_part *part)
{
    char *seen = user;
    size_t n = strlen(seen);

    snprintf(seen + n, 256 - n, "%s%.*s",
             part->kind == PL_REPLY_CALL ? "CALL " : "", (int)part->len,
             part->text);
}

/* Without tools, and with tool_choice none, the text of a call is content. */
TEST(adapt_replies_without_tools_have_no_calls)
{
    static const struct {
        const char *form, *text;
    } row[] = {
        {EACH "<|a|>{{ m.content }}{% for c in m.tool_calls %}"
              "<call>{{ c.function|tojson }}</call>{% endfor %}<|e|>"
              "{% endfor %}",
         "<call>{\"name\": \"f\", \"arguments\": {}}</call>"},
        {EACH "<|a|>{{ m.content }}{% for c in m.tool_calls %}"
              "{{ c.function|tojson }}{% endfor %}<|e|>{% endfor %}",
         "{\"name\": \"f\", \"arguments\": {}}"},
        {EACH "[{{ m.content }}]{% endfor %}",
         "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"},
    };
    static const char *const tools[] = {
        "[]", "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"};

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        for (int k = 0; k < 2; k++) {
            char seen[256] = "";
            pl_template *t;
            pl_reply *r;
            pl_err err;

            TEST_OK(pl_template_create(&t, row[i].form, strlen(row[i].form),
                                       NULL, &err),
                    err);
            TEST_OK(
                pl_reply_create(&r, t, "", 0, tools[k], note_part, seen, &err),
                err);
            TEST_OK(pl_reply_add(r, row[i].text, strlen(row[i].text), &err),
                    err);
            TEST_OK(pl_reply_finish(r, &err), err);
            assert_string_equal(seen, k == 0 ? row[i].text : "CALL {}");
            pl_reply_free(r);
            pl_template_free(t);
        }
}
