/* Required tool calls. Any text of the grammar is parsed into calls of the
 * tools, with arguments that fit them. Random texts of the grammar show that,
 * for the forms of calls that published templates have. */
#include "grammar/gbnf.h"
#include "grammar/rule_tree.h"
#include "lib/support.h"

#include <jansson.h>
#include <pl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tools --------------------------------------------------------------- */

/* Properties as tools have them. The last ones are strings that the parser must
 * distinguish from other values. */
static const char *const properties[] = {
    "{\"type\": \"string\"}",
    "{\"type\": \"integer\"}",
    "{\"type\": \"number\"}",
    "{\"type\": \"boolean\"}",
    "{\"type\": \"array\", \"items\": {\"type\": \"number\"}}",
    ("{\"type\": \"object\", \"properties\": {\"deep\": {\"type\": "
     "\"string\"}, \"n\": {\"type\": \"integer\"}}, \"required\": [\"n\"]}"),
    "{\"type\": \"string\", \"enum\": [\"red\", \"dark blue\", \"7\"]}",
    "{\"enum\": [\"one\", \"Zwei\", 3]}",
    "{\"type\": [\"string\", \"null\"]}",
    "{\"anyOf\": [{\"type\": \"string\"}, {\"type\": \"integer\"}]}",
    "{\"$ref\": \"#/$defs/kind\"}",
    "{\"const\": \"same\"}",
};
enum { N_PROPERTY = sizeof properties / sizeof properties[0] };

/* Makes a tool of random properties, some of them required. */
static json_t *random_tool(uint64_t *seed, int i)
{
    json_t *all = json_object(), *required = json_array(), *tool;
    int n = (int)test_below(seed, 5);
    char name[40];

    for (int k = 0; k < n; k++) {
        const char *schema = properties[test_below(seed, N_PROPERTY)];

        snprintf(name, sizeof name, "%s_%d", k % 2 ? "city" : "max-days", k);
        json_object_set_new(all, name, json_loads(schema, 0, NULL));
        if (test_below(seed, 2))
            json_array_append_new(required, json_string(name));
    }
    snprintf(name, sizeof name, "tool_%d", i);
    tool =
        json_pack("{s:s, s:{s:s, s:s, s:{s:s, s:o, s:o, s:b, s:{s:{s:s, "
                  "s:[s, s]}}}}}",
                  "type", "function", "function", "name", name, "description",
                  "Does it.", "parameters", "type", "object", "properties", all,
                  "required", required, "additionalProperties", 0, "$defs",
                  "kind", "type", "string", "enum", "new", "old");
    assert_non_null(tool);
    return tool;
}

/* ---- random texts of a grammar ------------------------------------------- */

struct writer {
    const struct rules *rules;
    uint64_t *seed;
    struct test_text out;
};

static void put(struct writer *w, const char *s, size_t n)
{
    test_text_add(&w->out, s, n);
}

static void put_random_char(struct writer *w, const struct tree *t)
{
    const struct char_range *r = &t->range[test_below(w->seed, t->n)];
    uint32_t last = r->last, c;
    char s[4];

    if (test_below(w->seed, 4) && r->first < 0x7f && last > 0x7e)
        last = 0x7e;
    c = r->first + (uint32_t)test_below(w->seed, last - r->first + 1);
    put(w, s, utf8_put(s, c));
}

static void put_random(struct writer *w, const struct tree *t)
{
    uint32_t n;

    switch (t->kind) {
    case TREE_BYTES:
        put(w, t->bytes, t->n);
        break;
    case TREE_CLASS:
        put_random_char(w, t);
        break;
    case TREE_RULE:
        put_random(w, w->rules->rule[t->rule].body);
        break;
    case TREE_SEQ:
        for (uint32_t i = 0; i < t->n; i++)
            put_random(w, t->child[i]);
        break;
    case TREE_ALT:
        put_random(w, t->child[test_below(w->seed, t->n)]);
        break;
    case TREE_REPEAT:
        n = t->max == RULES_UNLIMITED || t->max > t->min + 3 ? t->min + 3
                                                             : t->max;
        n = t->min + (uint32_t)test_below(w->seed, n - t->min + 1);
        while (n-- > 0)
            put_random(w, t->child[0]);
    }
}

/* ---- parsed calls -------------------------------------------------------- */

static bool is_one_of(const json_t *list, const json_t *v)
{
    const json_t *one;
    size_t i;

    json_array_foreach (list, i, one) {
        if (json_equal(one, v))
            return true;
    }
    return false;
}

static bool has_type(const char *type, const json_t *v)
{
    return strcmp(type, "string") == 0    ? json_is_string(v)
           : strcmp(type, "integer") == 0 ? json_is_integer(v)
           : strcmp(type, "number") == 0  ? json_is_number(v)
           : strcmp(type, "boolean") == 0 ? json_is_boolean(v)
           : strcmp(type, "array") == 0   ? json_is_array(v)
           : strcmp(type, "null") == 0    ? json_is_null(v)
                                          : json_is_object(v);
}

/* Returns true if the JSON value `v` validates against the schema, as far as
 * the keywords that tools use here. */
static bool is_valid(const json_t *root, const json_t *schema, const json_t *v)
{
    const json_t *type = json_object_get(schema, "type"), *of, *one;
    const char *key;
    size_t i;
    bool ok = !json_is_array(type);

    if (json_object_get(schema, "$ref"))
        schema = json_object_get(json_object_get(root, "$defs"), "kind");
    if ((of = json_object_get(schema, "const")) && !json_equal(of, v))
        return false;
    if ((of = json_object_get(schema, "enum")) && !is_one_of(of, v))
        return false;
    json_array_foreach (type, i, one)
        ok |= has_type(json_string_value(one), v);
    json_array_foreach (json_object_get(schema, "anyOf"), i, one) {
        ok = i > 0 && ok;
        ok |= is_valid(root, one, v);
    }
    if (!ok || (json_is_string(type) && !has_type(json_string_value(type), v)))
        return false;
    json_array_foreach (v, i, one) {
        if (!is_valid(root, json_object_get(schema, "items"), one))
            return false;
    }
    json_object_foreach ((json_t *)v, key, of) {
        one = json_object_get(json_object_get(schema, "properties"), key);
        if (!one || !is_valid(root, one, of))
            return false;
    }
    json_array_foreach (json_object_get(schema, "required"), i, one) {
        if (!json_object_get(v, json_string_value(one)))
            return false;
    }
    return true;
}

static const json_t *parameters_of(const json_t *tools, const char *name)
{
    const json_t *tool;
    size_t i;

    json_array_foreach (tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");

        if (strcmp(json_string_value(json_object_get(f, "name")), name) == 0)
            return json_object_get(f, "parameters");
    }
    return NULL;
}

/* The schema of a document that is allowed instead of calls. */
static const char document[] =
    "{\"type\": \"object\", \"properties\": {\"answer\": {\"type\": "
    "\"integer\"}, \"all\": {\"type\": \"array\", \"items\": {\"type\": "
    "\"boolean\"}}, \"spelled\": {\"enum\": ["
    "\"<tool_call>{\\\"name\\\": \\\"tool_1\\\", \\\"arguments\\\": "
    "{}}</tool_call>\", \"see <tool_call>tool_0</tool_call>\", "
    "\"<tool_call>\\n<function=tool_1>\\n</function>\\n</tool_call>\", "
    "\"[TOOL_CALLS]tool_1[ARGS]{}\", \"<|tool_call_start|>[tool_1()]\", "
    "\"<|python_tag|>{}\", \"<minimax:tool_call>\", \"<|START_ACTION|>[]\", "
    "\"<|tool_calls_section_begin|><|tool_call_begin|>\", "
    "\"<tool\xef\xbd\x9c"
    "calls\xe2\x96\x81"
    "begin>\", "
    "\"<think>why</think>\", \"</think>\", \"<|end|>\", \"<|call|>\", "
    "\"<|return|>\", \"<|im_end|>\", \"<|eot_id|>\", \"<|END_RESPONSE|>\", "
    "\"<|im_end|>\\n<|im_start|>\"]}}, \"required\": [\"answer\"], "
    "\"additionalProperties\": false}";

struct told {
    const json_t *tools;
    const char *only, *path, *text;
    bool may_say;          /* true if the reply may be a document */
    struct test_text said; /* content of the reply */
    char name[64];         /* name of the tool in the last call */
    struct test_text arguments;
    int n, n_piece;
};

/* Checks that the last call is complete: its tool exists and its arguments
 * validate. */
static void check_call(struct told *told)
{
    const json_t *schema = parameters_of(told->tools, told->name);
    json_t *v = json_loadb(told->arguments.s, told->arguments.n, 0, NULL);

    if (!schema || (told->only && strcmp(told->only, told->name) != 0) || !v ||
        !is_valid(schema, schema, v))
        fail_msg("%s: %s(%s) of %s", told->path, told->name, told->arguments.s,
                 told->text);
    json_decref(v);
    told->arguments.n = 0;
}

static void tell(void *user, const pl_reply_part *p)
{
    struct told *told = user;

    if (p->kind == PL_REPLY_REASONING)
        return;
    if (p->kind == PL_REPLY_CONTENT && !told->may_say)
        fail_msg("%s: content '%.*s' of %s", told->path, (int)p->len, p->text,
                 told->text);
    if (p->kind == PL_REPLY_CONTENT) {
        test_text_add(&told->said, p->text, p->len);
        return;
    }
    if (p->kind == PL_REPLY_CALL && told->n++ > 0)
        check_call(told);
    told->n_piece += p->kind == PL_REPLY_CALL_MORE;
    snprintf(told->name, sizeof told->name, "%s", p->name);
    test_text_add(&told->arguments, p->text, p->len);
}

/* Checks that there is a document or calls, not both. */
static void check_said(struct told *told)
{
    const char *said = told->said.s ? told->said.s : "";
    json_t *schema = json_loads(document, 0, NULL);
    json_t *v = json_loads(said, 0, NULL);

    if (told->n > 0 ? said[strspn(said, " \t\n")] != '\0'
                    : !v || !is_valid(schema, schema, v))
        fail_msg("%s: content '%s' of %s", told->path, said, told->text);
    json_decref(schema);
    json_decref(v);
    free(told->said.s);
}

/* Parses the text of a reply in pieces of random length. */
static void parse(const pl_template *t, const char *tools, uint64_t *seed,
                  struct told *told)
{
    size_t len = strlen(told->text), n;
    pl_reply *r;
    pl_err err;

    TEST_OK(pl_reply_create(&r, t, "", 0, tools, tell, told, &err), err);
    if (test_below(seed, 2))
        pl_reply_in_pieces(r);
    if (told->may_say)
        pl_reply_of_document(r);
    for (size_t at = 0; at < len; at += n) {
        n = (size_t)test_below(seed, 12) + 1;
        n = n < len - at ? n : len - at;
        TEST_OK(pl_reply_add(r, told->text + at, n, &err), err);
    }
    TEST_OK(pl_reply_finish(r, &err), err);
    if (told->n > 0)
        check_call(told);
    if (told->may_say)
        check_said(told);
    free(told->arguments.s);
    pl_reply_free(r);
}

/* Draws tools, and random texts of the grammar of their calls, and parses each
 * text. */
static void try_tools(const char *path, const pl_template *t, uint64_t *seed,
                      int *n_piece, int *n_document)
{
    json_t *list = json_array();
    const bool single = test_below(seed, 2);
    const char *only = test_below(seed, 3) == 0 ? "tool_1" : NULL;
    const bool may_say = test_below(seed, 2);
    struct rules rules;
    bool reasons;
    char *tools, *gbnf;
    pl_err err;

    for (int i = 0; i < 3; i++)
        json_array_append_new(list, random_tool(seed, i));
    tools = json_dumps(list, 0);
    TEST_OK(pl_template_calls(t, tools, only, single, may_say ? document : NULL,
                              &gbnf, &reasons, &err),
            err);
    TEST_OK(gbnf_read(&rules, gbnf, strlen(gbnf), NULL, path, &err), err);
    for (int i = 0; i < 8; i++) {
        struct writer w = {&rules, seed, {0}};
        struct told told = {
            .tools = list, .only = only, .path = path, .may_say = may_say};

        put_random(&w, rules.rule[rules.root].body);
        told.text = w.out.s;
        assert_int_equal(strlen(w.out.s), w.out.n);
        parse(t, tools, seed, &told);
        *n_piece += told.n_piece;
        *n_document += may_say && told.n == 0;
        if ((told.n < 1 && !may_say) || (single && told.n > 1))
            fail_msg("%s: %d calls in %s", path, told.n, w.out.s);
        free(w.out.s);
    }
    arena_fini(&rules.memory);
    free(gbnf);
    free(tools);
    json_decref(list);
}

/* Forms of calls of which no published template is at hand. In the first a line
 * with the tool's name precedes the arguments. */
static const char lines[] =
    "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' %}"
    "{% if m.content %}>>>all\n{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}>>>{{ c.function.name }}\n"
    "{{ c.function.arguments | tojson }}{% endfor %}{% else %}"
    "{{ m.content }}{% endif %}<end>{% endfor %}";

static const char messages[] = /* have recipients */
    "{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% for c in m.tool_calls or [] %}<|start|>assistant to="
    "{{ c.function.name }}<|message|><atem:function_calls>\n"
    "<atem:invoke name=\"{{ c.function.name }}\">\n"
    "</atem:invoke>\n</atem:function_calls><|eot|>{% else %}"
    "<|start|>assistant to=user<|message|>{{ m.content }}<|eot|>{% endfor %}"
    "{% else %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|eot|>"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}";
static const char echoes[] = /* have the name twice */
    "{% for m in messages %}{% if m.role == 'assistant' %}{% if m.content %}"
    "<|model|><|text|>{{ m.content }}<|end|>{% endif %}"
    "{% for c in m.tool_calls or [] %}<|model|>{{ c.function.name }}<|json|>"
    "{\"name\":\"{{ c.function.name }}\",\"args\":"
    "{{ c.function.arguments | tojson }}}<|end|>{% endfor %}<|done|>"
    "{% else %}<|{{ m.role }}|><|text|>{{ m.content }}<|end|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|model|>{% endif %}";
static const char types[] = /* have types between keys and values */
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}\n"
    "{% for k, v in c.function.arguments | items %}<key>{{ k }}</key>\n<type>"
    "{{ 'string' if v is string else 'integer' }}</type>\n"
    "<value>{{ v if v is string else v | tojson }}</value>\n{% endfor %}"
    "</call>{% endfor %}<end>{% endfor %}";

static pl_template *open_template(const char *name, const char **path)
{
    static const struct {
        const char *name, *text;
    } forms[] = {{"lines", lines},
                 {"messages", messages},
                 {"echoes", echoes},
                 {"types", types}};
    static char file[200];
    pl_template *t;
    size_t n;
    char *form;
    pl_err err;

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (strcmp(name, forms[i].name) == 0) {
            *path = name;
            TEST_OK(pl_template_create(&t, forms[i].text, strlen(forms[i].text),
                                       test_model(), &err),
                    err);
            return t;
        }
    snprintf(file, sizeof file, "../templates/%s.jinja", name);
    *path = test_ref_or_skip(file);
    form = test_read(*path, &n);
    TEST_OK(pl_template_create(&t, form, n, test_model(), &err), err);
    free(form);
    return t;
}

TEST(forced_calls_of_published_templates_are_valid_calls)
{
    static const char *const names[] = {
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        "GLM-4.6",
        "HuggingFaceTB-SmolLM3-3B",
        "Kimi-K2-Instruct",
        "Kimi-K3",
        "LFM2-8B-A1B",
        "MiniMax-M2",
        "MiniMax-M3",
        "Mistral-Small-3.2-24B-Instruct-2506",
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "Qwen-Qwen3-0.6B",
        "Qwen3-Coder",
        "Qwen3.5-4B",
        "deepseek-ai-DeepSeek-V3.1",
        "deepseek-ai-DeepSeek-V4",
        "echoes",
        "google-gemma-2-2b-it",
        "google-gemma-4-31B-it",
        "ibm-granite-granite-4.0",
        "inclusionai-ling-3.0-flash",
        "lines",
        "meta-llama-Llama-3.1-8B-Instruct",
        "meta-llama-Llama-3.3-70B-Instruct",
        "messages",
        "microsoft-Phi-3.5-mini-instruct",
        "openai-gpt-oss-120b",
        "poolside-Laguna-XS-2.1",
        "tencent-Hy3",
        "types",
    };
    const int n_round = test_draws(40, 1000);
    uint64_t seed = test_seed();
    int n_piece = 0, n_document;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path;
        pl_template *t = open_template(names[i], &path);

        n_document = 0;
        for (int round = 0; round < n_round; round++)
            try_tools(path, t, &seed, &n_piece, &n_document);
        assert_true(n_document > n_round / 4);
        pl_template_free(t);
    }
    /* some templates' calls were reported in several parts */
    assert_true(n_piece > n_round);
}

/* Checks a document that is written in place of calls, or without any tools. */
static void say_document(const pl_template *t, const char *path,
                         const char *text, const char *tools, uint64_t *seed)
{
    json_t *none = json_array(), *said;
    struct told told = {
        .tools = none, .path = path, .text = text, .may_say = true};
    size_t len = strlen(text);
    pl_reply *r;
    char *json;
    pl_err err;

    TEST_OK(pl_reply_create(&r, t, "", 0, tools, tell, &told, &err), err);
    pl_reply_of_document(r);
    for (size_t at = 0, n; at < len; at += n) {
        n = (size_t)test_below(seed, test_below(seed, 2) ? 2 : 40) + 1;
        n = n < len - at ? n : len - at;
        TEST_OK(pl_reply_add(r, text + at, n, &err), err);
    }
    TEST_OK(pl_reply_finish(r, &err), err);
    assert_int_equal(told.n, 0);
    assert_int_equal(told.said.n, len);
    assert_memory_equal(told.said.s, text, len);
    TEST_OK(pl_reply_message(r, &json, &err), err);
    said = json_loads(json, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(said, "content")),
                        text);
    json_decref(said);
    json_decref(none);
    free(json);
    free(told.said.s);
    pl_reply_free(r);
}

TEST(documents_come_whole_whatever_marks_their_strings_spell)
{
    static const char *const names[] = {
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        "HuggingFaceTB-SmolLM3-3B",
        "Kimi-K2-Instruct",
        "LFM2-8B-A1B",
        "MiniMax-M2",
        "Mistral-Small-3.2-24B-Instruct-2506",
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        "Qwen3-Coder",
        "deepseek-ai-DeepSeek-V3.1",
        "google-gemma-4-31B-it",
        "meta-llama-Llama-3.1-8B-Instruct",
        "microsoft-Phi-3.5-mini-instruct",
    };
    static const char tools[] =
        "[{\"type\": \"function\", \"function\": {\"name\": \"tool_1\", "
        "\"parameters\": {\"type\": \"object\", \"properties\": {}}}}]";
    static const char *const forms[] = {"{\"a\": %s}", "[%s, {}]", "%s"};
    json_t *schema = json_loads(document, 0, NULL), *v;
    const json_t *marks = json_object_get(
        json_object_get(json_object_get(schema, "properties"), "spelled"),
        "enum");
    uint64_t seed = test_seed();
    size_t k, n;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *path;
        pl_template *t = open_template(names[i], &path);

        json_array_foreach (marks, k, v) {
            for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
                char text[300], *s = json_dumps(v, JSON_ENCODE_ANY);

                snprintf(text, sizeof text, forms[f], s);
                say_document(t, path, text, f == k % 3 ? NULL : tools, &seed);
                for (n = strlen(text) * 2 / 3;
                     ((unsigned)text[n] & 0xc0) == 0x80;)
                    n--;
                text[n] = '\0'; /* cuts the text off, as max_tokens does */
                if (n > 0)
                    say_document(t, path, text, tools, &seed);
                free(s);
            }
        }
        pl_template_free(t);
    }
    json_decref(schema);
}

TEST(forced_calls_are_refused_where_they_cannot_be_had)
{
    static const struct {
        const char *form, *tools, *only, *why;
    } cases[] = {
        {"google-gemma-4-31B-it",
         "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
         "{\"k\": {\"const\": \"<tool_call|>\"}}}}}]",
         NULL, "a call marker of the model"},
        {"Qwen-Qwen3-0.6B", "[{\"function\": {\"name\": \"f\"}}]", "g",
         "named \"g\""},
        {"Qwen-Qwen3-0.6B", "[{\"function\": {\"name\": \"f g\"}}]", NULL,
         "a call of f g"},
        {"Qwen-Qwen3-0.6B",
         "[{\"function\": {\"name\": \"f\", \"parameters\": {\"not\": {}}}}]",
         NULL, "allows no document"},
        {"Qwen3-Coder",
         "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
         "{\"k\": {\"enum\": [\"</parameter>\"]}}}}}]",
         NULL, "a call marker of the model"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path;
        pl_template *t = open_template(cases[i].form, &path);
        char *gbnf = NULL;
        bool reasons;
        pl_err err;
        pl_status s = pl_template_calls(t, cases[i].tools, cases[i].only, false,
                                        NULL, &gbnf, &reasons, &err);

        if (s == PL_OK || !strstr(err.message, cases[i].why))
            fail_msg("case %zu: %s", i, s == PL_OK ? gbnf : err.message);
        pl_template_free(t);
    }
}

/* The grammar's notes name the keywords of a schema that are not enforced. */
TEST(forced_calls_say_what_they_do_not_enforce)
{
    static const struct {
        const char *form, *tools, *only, *why;
    } cases[] = {
        {"Qwen3-Coder",
         "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
         "{\"k\": {\"type\": \"string\", \"pattern\": \"a\"}}}}}]",
         NULL, "tool f: k has pattern"},
        {"Qwen3-Coder",
         "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
         "{\"k\": {\"enum\": [\"1\"]}}}}}]",
         NULL, "may be read as another type"},
        {"Qwen3-Coder",
         "[{\"function\": {\"name\": \"f\", \"parameters\": {\"required\": "
         "[\"x\"]}}}]",
         NULL, "x is required"},
        {"Qwen3-Coder",
         "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
         "{\"k\": {\"description\": \"any\"}}, \"minProperties\": 1}}}]",
         NULL, "tool f: minProperties is not enforced"},
        {"Qwen-Qwen3-0.6B",
         "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
         "{\"k\": {\"type\": \"string\", \"format\": \"x\"}}}}}]",
         NULL, "tool f: #/properties/k: format is not known"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path;
        pl_template *t = open_template(cases[i].form, &path);
        char *gbnf = NULL;
        bool reasons;
        pl_err err;

        TEST_OK(pl_template_calls(t, cases[i].tools, cases[i].only, false, NULL,
                                  &gbnf, &reasons, &err),
                err);
        if (!strstr(gbnf, cases[i].why))
            fail_msg("case %zu: %s", i, gbnf);
        free(gbnf);
        pl_template_free(t);
    }
}

/* Integers beyond 64 bits are not rounded, whatever the notation of calls. */
TEST(forced_calls_keep_all_digits_of_constants)
{
    static const char *const forms[] = {"Qwen3-Coder", "Qwen-Qwen3-0.6B"};
    static const char tools[] =
        "[{\"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "
        "{\"k\": {\"enum\": [18446744073709551615, 0.1, [1]]}}}}}]";

    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const char *path;
        pl_template *t = open_template(forms[i], &path);
        char *gbnf = NULL;
        bool reasons;
        pl_err err;

        TEST_OK(pl_template_calls(t, tools, NULL, false, NULL, &gbnf, &reasons,
                                  &err),
                err);
        assert_non_null(strstr(gbnf, "\"18446744073709551615\""));
        assert_non_null(strstr(gbnf, "\"0.1\""));
        assert_non_null(strstr(gbnf, "\"[1]\""));
        free(gbnf);
        pl_template_free(t);
    }
}

/* Returns {"k": L1}, where each of the levels is 40 times the next. */
static char *broad_tools(void)
{
    char *s = NULL;
    size_t n;
    FILE *f = open_memstream(&s, &n);

    assert_non_null(f);
    fputs("[{\"function\": {\"name\": \"f\", \"parameters\": {\"$defs\": {", f);
    for (int level = 1; level < 7; level++) {
        fprintf(f, "\"l%d\": {\"anyOf\": [", level);
        for (int i = 0; i < 40; i++)
            fprintf(f, "%s{\"$ref\": \"#/$defs/l%d\"}", i > 0 ? ", " : "",
                    level + 1);
        fputs("]}, ", f);
    }
    fputs("\"l7\": {\"anyOf\": []}}, \"properties\": {\"k\": {\"$ref\": "
          "\"#/$defs/l1\"}}}}}]",
          f);
    assert_int_equal(fclose(f), 0);
    return s;
}

TEST(forced_calls_with_too_many_alternatives_are_refused_soon)
{
    const char *path;
    pl_template *t = open_template("Qwen3-Coder", &path);
    char *tools = broad_tools(), *gbnf = NULL;
    bool reasons;
    pl_err err;

    assert_int_equal(
        pl_template_calls(t, tools, NULL, false, NULL, &gbnf, &reasons, &err),
        PL_UNSUPPORTED);
    assert_non_null(strstr(err.message, "alternatives"));
    free(tools);
    pl_template_free(t);
}
