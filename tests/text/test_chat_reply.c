/* Parsing of replies is the inverse of templates: a model writes what its
 * template makes of a message, so parsing that gives the message. */
#include "lib/alloc_fail.h"
#include "lib/support.h"

#include <jansson.h>
#include <pl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ------------------------------------------------------------ */

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", "
    "\"description\": \"Weather.\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {"
    "\"place\": {\"type\": \"string\", \"description\": \"Where\"}, "
    "\"days\": {\"type\": \"integer\", \"description\": \"How many\"}, "
    "\"factor\": {\"type\": \"number\", \"description\": \"By what\"}, "
    "\"wind\": {\"type\": \"boolean\", \"description\": \"Too?\"}, "
    "\"hours\": {\"type\": \"array\", \"description\": \"When\", "
    "\"items\": {\"type\": \"number\"}}, "
    "\"more\": {\"type\": \"object\", \"description\": \"What\", "
    "\"properties\": {\"deep\": {\"type\": \"string\", \"description\": "
    "\"x\"}}}}, \"required\": [\"place\"]}}}, "
    "{\"type\": \"function\", \"function\": {\"name\": \"now\", "
    "\"description\": \"The time.\", \"parameters\": {\"type\": \"object\", "
    "\"properties\": {}}}}]";

/* Makes words as in texts, some like special tokens, with blanks between. */
static json_t *words(uint64_t *seed, const char *first, bool lines)
{
    static const char *const all[] = {
        "the",  "Überlingen", "東京",  "🎉",       "it's",  "\"so\"",
        "a<b",  "x > y",      "<b>",   "</b>",    "{",     "}",
        "[1]",  "\\n",        "\\",    "{\"a\":", "<",     "</",
        "<th",  "<|",         "<tool", "42",      "-1.5",  "null",
        "100%", "{{ x }}",    "<func", "$",       "name:", "call:f{",
    };
    char text[400];
    int n = (int)test_below(seed, 12);

    strcpy(text, first);

    for (int i = 0; i < n; i++) {
        const char *gap = lines && test_below(seed, 5) == 0 ? "\n" : " ";

        strcat(text, gap);
        strcat(text, all[test_below(seed, sizeof all / sizeof all[0])]);
    }
    strcat(text, " end");
    return json_string(text);
}

static json_t *arguments(uint64_t *seed, const char *first)
{
    json_t *j = json_object();

    json_object_set_new(j, "place", words(seed, first, true));
    if (test_below(seed, 2))
        json_object_set_new(j, "days", json_integer(test_below(seed, 99) - 9));
    if (test_below(seed, 2))
        json_object_set_new(j, "factor", json_real(2.5));
    if (test_below(seed, 2))
        json_object_set_new(j, "wind", json_boolean(test_below(seed, 2)));
    if (test_below(seed, 2))
        json_object_set_new(j, "hours", json_pack("[iif]", 6, 12, 1.5));
    if (test_below(seed, 2))
        json_object_set_new(
            j, "more", json_pack("{so}", "deep", words(seed, "deep", false)));
    return j;
}

static json_t *call(uint64_t *seed, int i)
{
    bool now = i == 1 && test_below(seed, 3) == 0;
    const char *name = now ? "now" : "get_weather";

    return json_pack("{sssss{ssso}}", "id", i ? "callabc02" : "callabc01",
                     "type", "function", "function", "name", name, "arguments",
                     now ? json_object() : arguments(seed, i ? "in1" : "in0"));
}

enum shape { REASONS = 1, SAYS = 2, CALLS = 4, CALLS_TWICE = 8 };

static json_t *message(uint64_t *seed, int shape)
{
    json_t *m = json_pack("{ssss}", "role", "assistant", "content", "");

    if (shape & SAYS)
        json_object_set_new(m, "content", words(seed, "said", true));
    if (shape & REASONS) {
        json_t *why = words(seed, "why", true);

        json_object_set(m, "reasoning_content", why);
        json_object_set_new(m, "thinking", why);
    }
    if (shape & (CALLS | CALLS_TWICE)) {
        json_t *calls = json_array();

        for (int i = 0; i < (shape & CALLS_TWICE ? 2 : 1); i++)
            json_array_append_new(calls, call(seed, i));
        json_object_set_new(m, "tool_calls", calls);
    }
    return m;
}

/* ---- parsing ------------------------------------------------------------- */

/* Texts that the callback received; `calls` has each call in brackets. */
struct told {
    struct test_text content, reasoning, calls;
    bool in_call;
};

static void end_call(struct told *t)
{
    if (t->in_call)
        test_text_add(&t->calls, ")", 1);
    t->in_call = false;
}

static void tell(void *user, const pl_reply_part *p)
{
    struct told *t = user;

    if (p->kind == PL_REPLY_CALL_MORE) {
        assert_true(t->in_call);
        test_text_add(&t->calls, p->text, p->len);
        return;
    }
    end_call(t);
    if (p->kind == PL_REPLY_CONTENT) {
        test_text_add(&t->content, p->text, p->len);
    } else if (p->kind == PL_REPLY_REASONING) {
        test_text_add(&t->reasoning, p->text, p->len);
    } else {
        test_text_add(&t->calls, p->name, strlen(p->name));
        test_text_add(&t->calls, "(", 1);
        test_text_add(&t->calls, p->text, p->len);
        t->in_call = true;
    }
}

static void told_free(struct told *t)
{
    free(t->content.s);
    free(t->reasoning.s);
    free(t->calls.s);
    *t = (struct told){0};
}

/* Returns the message parsed from a text, in pieces of up to `most` bytes (0:
 * at once), with or without its end marker. */
static json_t *parse(const pl_template *t, const char *prompt, const char *text,
                     const char *given, uint64_t *seed, int64_t most,
                     bool calls_in_pieces, struct told *told)
{
    size_t len = strlen(text), n_raw;
    pl_reply *r;
    char *json;
    json_t *m;
    pl_err err;

    TEST_OK(
        pl_reply_create(&r, t, prompt, strlen(prompt), given, tell, told, &err),
        err);
    if (calls_in_pieces)
        pl_reply_in_pieces(r);
    for (size_t at = 0; at < len;) {
        size_t n = most > 0 ? (size_t)test_below(seed, most) + 1 : len;

        n = n < len - at ? n : len - at;
        TEST_OK(pl_reply_add(r, text + at, n, &err), err);
        at += n;
    }
    TEST_OK(pl_reply_finish(r, &err), err);
    end_call(told);
    assert_string_equal(pl_reply_text(r, &n_raw), text);
    assert_int_equal(n_raw, len);
    TEST_OK(pl_reply_message(r, &json, &err), err);
    m = json_loads(json, 0, NULL);
    if (!m)
        fail_msg("no JSON: %s", json);
    free(json);
    pl_reply_free(r);
    return m;
}

static const char *same_text(const struct test_text *t)
{
    return t->s ? t->s : "";
}

/* Parses at once and in pieces: one result. If all calls are `whole`, their
 * arguments may be in pieces too. */
static json_t *parse_all(const pl_template *t, const char *prompt,
                         const char *text, const char *given, uint64_t *seed,
                         bool whole, struct told *told)
{
    json_t *m = parse(t, prompt, text, given, seed, 0, false, told);

    for (int i = 0; i < (whole ? 6 : 3); i++) {
        static const int64_t most[] = {1, 4, 30};
        struct told again = {0};
        json_t *other =
            parse(t, prompt, text, given, seed, most[i % 3], i >= 3, &again);

        if (!json_equal(m, other))
            fail_msg("in pieces %s\nat once %s\ntext %s", json_dumps(other, 0),
                     json_dumps(m, 0), text);
        assert_string_equal(same_text(&told->content),
                            same_text(&again.content));
        assert_string_equal(same_text(&told->reasoning),
                            same_text(&again.reasoning));
        assert_string_equal(same_text(&told->calls), same_text(&again.calls));
        json_decref(other);
        told_free(&again);
    }
    return m;
}

/* ---- messages there and back --------------------------------------------- */

static char *render(const pl_template *t, const json_t *messages, bool prompt,
                    bool with_tools)
{
    char *text = NULL, *json = json_dumps(messages, 0);
    const pl_conversation c = {
        .size = sizeof c,
        .messages = json,
        .tools = with_tools ? tools : NULL,
        .extra = "{\"enable_thinking\": true, \"thinking\": true}",
        .no_generation_prompt = !prompt,
        .now = 1741529106};

    pl_template_render(t, &c, &text, NULL, NULL);
    free(json);
    return text;
}

static void check_same(const char *path, const json_t *got, const json_t *want,
                       const char *text)
{
    static const char *const keys[] = {"content", "reasoning_content"};
    const json_t *a = json_object_get(got, "tool_calls");
    const json_t *b = json_object_get(want, "tool_calls");
    bool same = json_array_size(a) == json_array_size(b);

    for (int i = 0; i < 2; i++) {
        const json_t *x = json_object_get(got, keys[i]);
        const json_t *y = json_object_get(want, keys[i]);

        same = same && (x == y || json_equal(x, y));
    }
    for (size_t i = 0; same && i < json_array_size(a); i++) {
        json_t *x = json_array_get(a, i), *y = json_array_get(b, i);

        same = json_equal(json_object_get(x, "function"),
                          json_object_get(y, "function"));
        /* few templates render the call's identifier */
        if (json_object_get(x, "id"))
            same = same && json_equal(json_object_get(x, "id"),
                                      json_object_get(y, "id"));
    }
    if (!same)
        fail_msg("%s\ngave %s\nnot  %s\nfrom %s", path, json_dumps(got, 0),
                 json_dumps(want, 0), text);
}

/* Returns true if a template shows all of the message. Some drop a part. */
static bool shows(const char *text, const json_t *m)
{
    const char *content = json_string_value(json_object_get(m, "content"));
    const char *why =
        json_string_value(json_object_get(m, "reasoning_content"));

    const json_t *calls = json_object_get(m, "tool_calls");
    size_t n = json_array_size(calls);

    return strstr(text, content) && (!why || strstr(text, why)) &&
           (n < 1 || strstr(text, "in0")) &&
           (n < 2 || strstr(text, "in1") || strstr(text, "now"));
}

/* Renders a message and parses it. Returns false if its template cannot show
 * it, or if it does not follow the template's prompt. */
static bool there_and_back(const char *path, const pl_template *t,
                           uint64_t *seed, int shape)
{
    json_t *m = message(seed, shape), *back;
    json_t *asked = json_pack("[{ssss}]", "role", "user", "content", "Well?");
    bool with_tools = shape >= CALLS;
    char *prompt = render(t, asked, true, with_tools), *whole;
    struct told told = {0};
    bool fits;

    json_array_append(asked, m);
    whole = render(t, asked, false, with_tools);
    fits = prompt && whole && strncmp(whole, prompt, strlen(prompt)) == 0 &&
           shows(whole + strlen(prompt), m);
    if (fits) {
        const char *text = whole + strlen(prompt);

        back = parse_all(t, prompt, text, with_tools ? tools : NULL, seed, true,
                         &told);
        check_same(path, back, m, text);
        told_free(&told);
        json_decref(back);
    }
    free(prompt);
    free(whole);
    json_decref(asked);
    json_decref(m);
    return fits;
}

/* Returns the parts (bits) of the message that a letter in `shapes` stands
 * for. */
static int shape_of(char letter)
{
    static const int shapes[128] = {['s'] = SAYS,
                                    ['r'] = REASONS | SAYS,
                                    ['c'] = CALLS,
                                    ['d'] = CALLS_TWICE,
                                    ['t'] = SAYS | CALLS,
                                    ['u'] = REASONS | CALLS,
                                    ['v'] = REASONS | SAYS | CALLS_TWICE};

    return shapes[(int)letter];
}

TEST(reply_to_published_templates_comes_back)
{
    static const struct {
        /* the template, and the shapes of messages that it renders
         * completely */
        const char *name, *shapes;
    } list[] = {
        {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "scdu"},
        {"GLM-4.6", "srcdtuv"},
        {"HuggingFaceTB-SmolLM3-3B", "s"},
        {"Kimi-K2-Instruct", "scdt"},
        {"Kimi-K3", "srcdtuv"},
        {"LFM2-8B-A1B", "s"},
        {"MiniMax-M2", "ruv"},
        {"MiniMax-M3", "srcdtuv"},
        {"Mistral-Small-3.2-24B-Instruct-2506", "scd"},
        {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "ruv"},
        {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "cd"},
        {"Qwen-Qwen3-0.6B", "srcdtuv"},
        {"Qwen3-Coder", "scdt"},
        {"Qwen3.5-4B", "srcdtuv"},
        {"deepseek-ai-DeepSeek-V3.1", "scdt"},
        {"deepseek-ai-DeepSeek-V4", "srcdtuv"},
        {"google-gemma-2-2b-it", "s"},
        {"google-gemma-4-31B-it", "scdtuv"},
        {"ibm-granite-granite-4.0", "scdt"},
        {"inclusionai-ling-3.0-flash", "srcdtuv"},
        {"meta-llama-Llama-3.1-8B-Instruct", "sc"},
        {"microsoft-Phi-3.5-mini-instruct", "s"},
        {"openai-gpt-oss-120b", "srcu"},
        {"poolside-Laguna-XS-2.1", "ruv"},
        {"tencent-Hy3", "scdt"},
    };
    const int n_round = test_draws(20, 300);
    uint64_t seed = test_seed();

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char file[200];
        const char *path;
        size_t n;
        char *form;
        pl_template *t;
        pl_err err;

        snprintf(file, sizeof file, "../templates/%s.jinja", list[i].name);
        path = test_ref_or_skip(file);
        form = test_read(path, &n);
        TEST_OK(pl_template_create(&t, form, n, test_model(), &err), err);
        for (const char *shape = list[i].shapes; *shape; shape++)
            for (int round = 0; round < n_round; round++)
                if (!there_and_back(path, t, &seed, shape_of(*shape)))
                    fail_msg("%s does not show '%c'", path, *shape);
        pl_template_free(t);
        free(form);
    }
}

/* ---- by hand ------------------------------------------------------------- */

#define TURNS(calls)                                                           \
    "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}"        \
    "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"              \
    "{{ m.content }}{% for c in m.tool_calls or [] %}" calls                   \
    "{% endfor %}<end>\n{% endfor %}"                                          \
    "{% if add_generation_prompt %}<assistant>{% endif %}"

/* Small templates with the forms of calls that are in use. */
static const char object[] =
    TURNS("\n<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
          "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>");
static const char bare[] =
    TURNS("{\"name\": \"{{ c.function.name }}\", "
          "\"parameters\": {{ c.function.arguments | tojson }}}");
static const char named[] =
    TURNS("[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]"
          "{{ c.function.arguments | tojson }}");
static const char tagged[] =
    TURNS("\n<tool_call>\n<function={{ c.function.name }}>\n"
          "{% for k, v in c.function.arguments | items %}"
          "<parameter={{ k }}>\n{{ v if v is string else v | tojson }}\n"
          "</parameter>\n{% endfor %}</function>\n</tool_call>");
static const char quoted[] =
    TURNS("<|tool_call>call:{{ c.function.name }}{{ '{' }}"
          "{% for k, v in c.function.arguments | items %}"
          "{{ ',' if not loop.first }}{{ k }}:"
          "{% if v is string %}<|\"|>{{ v }}<|\"|>{% else %}{{ v | tojson }}"
          "{% endif %}{% endfor %}}<tool_call|>");
static const char channels[] =
    "{% for m in messages %}<|start|>{{ m.role }}"
    "{% if m.role == 'assistant' %}<|channel|>final{% endif %}<|message|>"
    "{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}";
/* a template that renders all calls as one JSON list */
static const char listed[] =
    TURNS("{{ '[TOOL_CALLS] [' if loop.first else ', ' }}{\"name\": "
          "\"{{ c.function.name }}\", \"arguments\": "
          "{{ c.function.arguments | tojson }}, \"id\": \"{{ c.id }}\"}"
          "{{ ']' if loop.last }}");
static const char single[] = /* a template that rejects more than one call */
    TURNS("{{ raise_exception('one') if not loop.last }}<call>\n"
          "{\"name\": \"{{ c.function.name }}\", "
          "\"arguments\": {{ c.function.arguments | tojson }}}\n</call>");
static const char fenced[] =
    TURNS("{{ '<calls>' if loop.first }}<call>function<sep>"
          "{{ c.function.name }}\n```json\n"
          "{{ c.function.arguments | tojson }}\n```</call>"
          "{{ '</calls>' if loop.last }}");
static const char python[] =
    TURNS("{{ '<|calls_start|>[' if loop.first else ', ' }}"
          "{{ c.function.name }}("
          "{% for k, v in c.function.arguments | items %}"
          "{{ ', ' if not loop.first }}{{ k }}={{ [v] | string | trim('[]') }}"
          "{% endfor %}){{ ']<|calls_end|>' if loop.last }}");
/* a template that renders a call as {NAME: ARGUMENTS} */
static const char keyed[] =
    TURNS("{{ '<|calls|>[' if loop.first else ', ' }}{\"{{ c.function.name }}"
          "\": {{ c.function.arguments | tojson }}}"
          "{{ ']<|calls_end|>' if loop.last }}");
/* a template in which one marker opens the objects of all calls */
static const char lines[] = TURNS(
    "{{ '<calls>' if loop.first }}\n{\"name\": "
    "\"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}{{ '\n</calls>' if loop.last }}");
/* a template in which two markers open values, depending on their type */
static const char typed[] =
    TURNS("{{ '\n<|d|calls>\n' if loop.first }}<|d|invoke name=\""
          "{{ c.function.name }}\">\n"
          "{% for k, v in c.function.arguments | items %}"
          "<|d|parameter name=\"{{ k }}\" string=\""
          "{{ 'true' if v is string else 'false' }}\">"
          "{{ v if v is string else v | tojson }}</|d|parameter>\n"
          "{% endfor %}</|d|invoke>\n{{ '</|d|calls>' if loop.last }}");
/* a template that renders the number of a call after its name */
static const char counted[] =
    TURNS("{{ '<|calls|>' if loop.first }}<|call|>functions."
          "{{ c.function.name }}:{{ loop.index0 }}<|arguments|>"
          "{{ c.function.arguments | tojson }}<|call_end|>"
          "{{ '<|calls_end|>' if loop.last }}");
/* a template that renders the identifier before the name */
static const char identified[] =
    TURNS("{{ '<|calls|>' if loop.first }}<|call|>{{ c.id }}<|name|>"
          "{{ c.function.name }}<|arguments|>"
          "{{ c.function.arguments | tojson }}<|call_end|>"
          "{{ '<|calls_end|>' if loop.last }}");
/* a template that renders only an identifier, which contains the name */
static const char nameless[] =
    TURNS("{{ '<|calls|>' if loop.first }}<|call|>{{ c.id }}<|arguments|>"
          "{{ c.function.arguments | tojson }}<|call_end|>"
          "{{ '<|calls_end|>' if loop.last }}");
/* a template that renders a blank before the content */
static const char led[] =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";
static const char texts[] = /* a template that accepts arguments only as text */
    TURNS("\n<tool_call>{\"name\": \"{{ c.function.name }}\", "
          "\"arguments\": {{ '' + c.function.arguments }}}</tool_call>");
/* a template whose tags of calls begin like the end of its prompt */
static const char thinks[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<function name=\"{{ c.function.name }}"
    "\">{% for k, v in c.function.arguments | items %}<param name=\"{{ k }}"
    "\">{{ v }}</param>{% endfor %}</function>{% endfor %}<end>\n"
    "{% endfor %}{% if add_generation_prompt %}<assistant><think>{% endif %}";
/* a template that does not render calls, so that common markers are
 * recognized */
static const char callless[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";
/* a template that leaves out earlier reasoning, but whose prompt opens
 * reasoning */
static const char silent[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant><think>{% endif %}";

/* Template, prompt and generated text, and the content, reasoning and calls of
 * the message that parsing must give. */
static const struct {
    const char *form, *prompt, *text, *content, *reasoning, *calls;
} by_hand[] = {
    {object, "", "Hello", "Hello", "", ""},
    {object, "", " Hello \n", " Hello \n", "", ""},
    {object, "", "", "", "", ""},
    {object, "", "\n<think>\n why\n </think>\n\nHello", "Hello", "why", ""},
    {object, "", "<think>why", "", "why", ""},
    {object, "<think>\n", "why</think>Hello", "Hello", "why", ""},
    {object, "<think>\n", "why </thin", "", "why </thin", ""},
    {object, "", "a </think> b", "a </think> b", "", ""},
    {object, "", "Hello<end>\nand more", "Hello", "", ""},
    {object, "", "Hello<en", "Hello<en", "", ""},
    {object, "", "Yes.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}",
     "Yes.", "", "f({})"},
    {object, "",
     "<tool_call>{\"arguments\": {\"a\": \"}</tool_call>\"}, "
     "\"name\": \"f\"}</tool_call> and\n",
     "and\n", "", "f({\"a\": \"}</tool_call>\"})"},
    {object, "",
     "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
     "1}\"}</tool_call>",
     "", "", "f({\"a\": 1})"},
    {object, "",
     "<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\"}]"
     "</tool_call>",
     "", "", "f({})g({})"},
    {object, "", "<tool_call>[{\"name\": \"f\"}, {}]</tool_call>",
     "<tool_call>[{\"name\": \"f\"}, {}]</tool_call>", "", ""},
    {object, "", "So: <tool_call>soon</tool_call>",
     "So: <tool_call>soon</tool_call>", "", ""},
    {object, "", "<tool_call>{\"name\": 1}<tool_call>{\"name\": \"g\"}",
     "<tool_call>{\"name\": 1}", "", "g({})"},
    {object, "", "<tool_call>{\"name\": \"f\", ",
     "<tool_call>{\"name\": "
     "\"f\", ",
     "", ""},
    {bare, "", " {\"name\": \"f\", \"parameters\": {\"a\": [1, 2.50]}}", "", "",
     "f({\"a\": [1, 2.50]})"},
    {bare, "", "Say {\"name\": \"f\"}", "Say {\"name\": \"f\"}", "", ""},
    {bare, "", "{\"a\": 1}", "{\"a\": 1}", "", ""},
    {bare, "", "<think>x</think>{\"name\": \"f\"}", "", "x", "f({})"},
    {named, "",
     "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]"
     "{}</s>",
     "</s>", "", "f({\"a\": 1})g({})"},
    {named, "", "[TOOL_CALLS] none", "[TOOL_CALLS] none", "", ""},
    {tagged, "", "<function=f><parameter=a>1</parameter></function>", "", "",
     "f({\"a\": 1})"},
    {tagged, "",
     "Ok\n\n<tool_call>\n<function=f>\n<parameter=a>\n x\n\n"
     "</parameter>\n<parameter=b>\n{\"c\": \"d\"}\n</parameter>\n</function>\n"
     "</tool_call><end>",
     "Ok", "", "f({\"a\": \" x\\n\", \"b\": {\"c\": \"d\"}})"},
    {tagged, "", "<tool_call> of no function", "<tool_call> of no function", "",
     ""},
    {tagged, "", "<tool_call><function=f><parameter=a>1</function>",
     "<tool_call><function=f><parameter=a>1</function>", "", ""},
    {quoted, "",
     "<|tool_call>call:f{a:<|\"|>x:{y},\"<|\"|>,b:{c:[true]}}"
     "<tool_call|>",
     "", "", "f({\"a\":\"x:{y},\\\"\",\"b\":{\"c\":[true]}})"},
    {quoted, "", "<|tool_call>call:f{a:x}<tool_call|>",
     "<|tool_call>call:f{a:x}<tool_call|>", "", ""},
    {channels, "",
     "<|channel|>analysis<|message|>why<|end|><|start|>assistant"
     "<|channel|>final<|message|>Hello<|return|>",
     "Hello", "why", ""},
    {channels, "",
     "<|channel|>commentary to=functions.f <|constrain|>json"
     "<|message|>{\"a\": 1}<|call|>",
     "", "", "f({\"a\": 1})"},
    {channels, "", "<|channel|>commentary to=functions.f<|message|>no",
     "<|channel|>commentary to=functions.f<|message|>no", "", ""},
    {channels, "", "Hello", "Hello", "", ""},
    {listed, "", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]<end>", "",
     "", "f({})"},
    {single, "", "Ok <call>{\"name\": \"f\", \"arguments\": {}}</call>!<end>",
     "Ok!", "", "f({})"},
    {fenced, "",
     "<calls><call>function<sep>f\n```json\n{}\n```</call>\n"
     "<call>function<sep>g\n```json\n{\"a\": 1}\n```</call></calls><end>",
     "", "", "f({})g({\"a\": 1})"},
    {python, "",
     "Ok <|calls_start|>[f(a='it\\'s, \\n x', b=[1, True, (2.5,)], c={'d': "
     "None})"
     ", g()]<|calls_end|><end>",
     "Ok", "",
     "f({\"a\": \"it's, \\n x\", \"b\": [1, true, [2.5]], \"c\": "
     "{\"d\": null}})g({})"},
    {python, "", "<|calls_start|>[f(a='b'c', d=\"e\"),]<|calls_end|>",
     "<|calls_start|>[f(a='b'c', d=\"e\"),]<|calls_end|>", "", ""},
    {python, "", "<|calls_start|>[f(a='b'c', d=\"e\")]<|calls_end|>", "", "",
     "f({\"a\": \"b'c\", \"d\": \"e\"})"},
    {python, "", "<|calls_start|>[f(1)]<|calls_end|>",
     "<|calls_start|>[f(1)]<|calls_end|>", "", ""},
    {keyed, "", "<|calls|>[{\"f\": {\"a\": 1}}, {\"g\": {}}]<|calls_end|><end>",
     "", "", "f({\"a\": 1})g({})"},
    {keyed, "", "<|calls|>[{\"f\": {}, \"g\": {}}]<|calls_end|>",
     "<|calls|>[{\"f\": {}, \"g\": {}}]<|calls_end|>", "", ""},
    {lines, "",
     "<calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\"}\n"
     "</calls><end>",
     "", "", "f({})g({})"},
    {typed, "",
     "<|d|calls>\n<|d|invoke name=\"f\">\n<|d|parameter name=\"a\" "
     "string=\"true\">7</|d|parameter>\n<|d|parameter name=\"b\" "
     "string=\"false\">[7]</|d|parameter>\n</|d|invoke>\n</|d|calls><end>",
     "", "", "f({\"a\": \"7\", \"b\": [7]})"},
    {counted, "",
     "<|calls|><|call|>functions.f:0<|arguments|>{\"a\": 1}<|call_end|><|call|>"
     "functions.g:1<|arguments|>{}<|call_end|><|calls_end|><end>",
     "", "", "f({\"a\": 1})g({})"},
    {identified, "",
     "<|calls|><|call|>id.1<|name|>f<|arguments|>{\"a\": 1}<|call_end|><|call|>"
     "x2<|name|>g<|arguments|>{}<|call_end|><|calls_end|><end>",
     "", "", "f({\"a\": 1})g({})"},
    {identified, "", "<|calls|><|call|>id.1<|arguments|>{}<|call_end|>",
     "<|calls|><|call|>id.1<|arguments|>{}<|call_end|>", "", ""},
    {nameless, "",
     "<|calls|><|call|>functions.f:0<|arguments|>{\"a\": 1}<|call_end|><|call|>"
     "functions.g.h:1<|arguments|>{}<|call_end|><|calls_end|><end>",
     "", "", "f({\"a\": 1})g.h({})"},
    {led, "assistant:", " \n Hello</s>", "Hello", "", ""},
    {led, "assistant:", "Hello", "Hello", "", ""},
    {texts, "", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
     "", "", "f({})"},
    {thinks, "<assistant><think>",
     "why</think><function name=\"get_weather\"><param name=\"place\">"
     "<![CDATA[<b>]]></param><param name=\"more\">{'a': [True, \"it's\"]}"
     "</param></function><end>",
     "", "why",
     "get_weather({\"place\": \"<b>\", \"more\": {\"a\": [true, "
     "\"it's\"]}})"},
    {object, "", "\n</think>\nHello </think>", "Hello </think>", "", ""},
    {callless, "",
     "So\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n"
     "</tool_call>\n<|tool_call_start|>[g(a='b')]<|tool_call_end|><end>",
     "So", "", "f({\"a\": 1})g({\"a\": \"b\"})"},
    {callless, "", "<tool_call>f</tool_call> {\"name\": \"f\"}",
     "<tool_call>f</tool_call> {\"name\": \"f\"}", "", ""},
    {silent, "<assistant><think>", "why</think>\n\nHello</s>", "Hello", "why",
     ""},
};

TEST(reply_that_is_marked_wrongly_is_content)
{
    uint64_t seed = test_seed();

    for (size_t i = 0; i < sizeof by_hand / sizeof by_hand[0]; i++) {
        const char *form = by_hand[i].form, *text = by_hand[i].text;
        struct told told = {0};
        pl_template *t;
        pl_err err;

        TEST_OK(pl_template_create(&t, form, strlen(form), NULL, &err), err);
        json_decref(
            parse_all(t, by_hand[i].prompt, text, tools, &seed, false, &told));
        if (strcmp(same_text(&told.content), by_hand[i].content) != 0 ||
            strcmp(same_text(&told.reasoning), by_hand[i].reasoning) != 0 ||
            strcmp(same_text(&told.calls), by_hand[i].calls) != 0)
            fail_msg("%s\ngave \"%s\", \"%s\", \"%s\"", text,
                     same_text(&told.content), same_text(&told.reasoning),
                     same_text(&told.calls));
        told_free(&told);
        pl_template_free(t);
    }
}

/* Such a template would reject an object when the message is rendered again. */
TEST(reply_has_arguments_as_the_template_takes_them)
{
    static const char call[] =
        "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";
    uint64_t seed = test_seed();
    struct told told = {0};
    const json_t *f;
    pl_template *t;
    json_t *m;
    pl_err err;

    TEST_OK(pl_template_create(&t, texts, strlen(texts), NULL, &err), err);
    m = parse_all(t, "", call, tools, &seed, true, &told);
    f = json_object_get(json_array_get(json_object_get(m, "tool_calls"), 0),
                        "function");
    assert_string_equal(json_string_value(json_object_get(f, "arguments")),
                        "{\"a\": 1}");
    told_free(&told);
    json_decref(m);
    pl_template_free(t);
}

/* Content begins with the letter b here, and before it no content can
 * follow. */
TEST(reply_says_whether_content_comes_next)
{
    static const struct {
        const char *form, *prompt, *text;
        bool ends_in;
    } list[] = {
        {thinks, "<assistant><think>", "why</think>\nbut", true},
        {thinks, "<assistant><think>", "why", false},
        {thinks, "<assistant>", "but", true},
        {channels, "",
         "<|channel|>analysis<|message|>why<|end|><|start|>assistant"
         "<|channel|>final<|message|>but",
         true},
        {channels, "", "<|channel|>commentary to=functions.f<|message|>{",
         false},
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const char *text = list[i].text;
        bool in = false;
        pl_template *t;
        pl_reply *r;
        pl_err err;

        TEST_OK(pl_template_create(&t, list[i].form, strlen(list[i].form), NULL,
                                   &err),
                err);
        TEST_OK(pl_reply_create(&r, t, list[i].prompt, strlen(list[i].prompt),
                                NULL, NULL, NULL, &err),
                err);
        for (size_t k = 0; text[k]; k++) {
            TEST_OK(pl_reply_add(r, text + k, 1, &err), err);
            in = pl_reply_in_content(r);
            if (in && text[k + 1] && !list[i].ends_in)
                fail_msg("%s: content at %zu", text, k);
        }
        assert_int_equal(in, list[i].ends_in);
        pl_reply_free(r);
        pl_template_free(t);
    }
}

TEST(reply_allocation_failures_leave_nothing)
{
    static const char text[] = "<think>why</think>Hello\n<tool_call>{"
                               "\"name\": \"f\"}</tool_call>";

    for (int64_t n = 0; alloc_each(&n);) {
        pl_template *t = NULL;
        pl_reply *r = NULL;
        char *json = NULL;
        pl_status s =
            pl_template_create(&t, object, strlen(object), NULL, NULL);

        if (s == PL_OK)
            s = pl_reply_create(&r, t, "", 0, tools, NULL, NULL, NULL);
        if (s == PL_OK)
            s = pl_reply_add(r, text, strlen(text), NULL);
        if (s == PL_OK)
            s = pl_reply_finish(r, NULL);
        if (s == PL_OK)
            s = pl_reply_message(r, &json, NULL);
        alloc_ran(s);
        free(json);
        pl_reply_free(r);
        pl_template_free(t);
    }
}
