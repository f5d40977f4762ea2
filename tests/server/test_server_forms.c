/* Conversations of all protocols, in the forms in which clients send them. What
 * the server cannot use is passed over or repaired, and never ends a
 * conversation. */
#include "lib/support.h"
#include "server/request.h"
#include "server/response_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char logged[1024];

static void keep_log(void *user, pl_log_level level, const char *text)
{
    (void)user;
    (void)level;
    snprintf(logged + strlen(logged), sizeof logged - strlen(logged), "%s\n",
             text);
}

static const struct request_rules rules = {
    .n_vocab = 1000, .max_tokens = -1, .can = REQUEST_CALL, .log = keep_log};

/* Returns the text with " for each '. */
static char *quoted(const char *text)
{
    char *s = strdup(text);

    for (char *p = s; *p != '\0'; p++)
        if (*p == '\'')
            *p = '"';
    return s;
}

static void read_form(struct request *a, enum request_kind kind,
                      const char *text)
{
    struct api_error why = {0};
    char *body = quoted(text);

    logged[0] = '\0';
    if (!request_parse(a, kind, body, strlen(body), &rules, &why))
        fail_msg("%s: %s", body, why.message);
    free(body);
}

static void same_json(const char *of, const char *got, const char *want_text)
{
    char *want = quoted(want_text);
    json_t *a = json_loads(got != NULL ? got : "null", JSON_DECODE_ANY, NULL);
    json_t *b = json_loads(want, JSON_DECODE_ANY, NULL);

    assert_non_null(b);
    if (!json_equal(a, b))
        fail_msg("%s\ngave %s\nnot  %s", of, got, want);
    json_decref(a);
    json_decref(b);
    free(want);
}

static void refused(enum request_kind kind, const char *text, const char *param,
                    const char *says)
{
    struct api_error why = {0};
    struct request a;
    char *body = quoted(text);

    if (request_parse(&a, kind, body, strlen(body), &rules, &why))
        fail_msg("%s was taken", body);
    assert_int_equal(why.status, 400);
    assert_string_equal(why.param, param);
    if (strstr(why.message, says) == NULL)
        fail_msg("%s: %s", body, why.message);
    free(body);
}

#define CHAT(messages)     "{'messages': [" messages "]}"
#define INPUT(items)       "{'input': [" items "]}"
#define MESSAGES(messages) "{'max_tokens': 1, 'messages': [" messages "]}"
#define U                  "{'role': 'user', 'content': 'u'}"
#define CALL(arguments)                                                        \
    "{'type': 'function', 'function': {'name': 'f', 'arguments': " arguments   \
    "}}"
#define CALLED(arguments)                                                      \
    "{'role': 'assistant', 'content': '', 'tool_calls': [" CALL(arguments) "]" \
                                                                           "}"

/* Reasoning under any name becomes reasoning_content; a request that has it
 * under several names has it once. */
TEST(forms_of_reasoning_become_one)
{
    static const char want[] =
        "[" U ", {'role': 'assistant', 'content': 'a', 'reasoning_content': "
        "'hm'}]";
    static const struct {
        enum request_kind kind;
        const char *body;
    } row[] = {
        {REQUEST_CHAT, CHAT(U ", {'role': 'assistant', 'content': 'a', "
                              "'reasoning_content': 'hm'}")},
        {REQUEST_CHAT, CHAT(U ", {'role': 'assistant', 'content': 'a', "
                              "'reasoning': 'hm', 'reasoning_content': null}")},
        {REQUEST_CHAT, CHAT(U ", {'role': 'assistant', 'content': 'a', "
                              "'thinking': 'hm'}")},
        {REQUEST_CHAT, CHAT(U ", {'role': 'assistant', 'content': 'a', "
                              "'reasoning': 'hm', 'reasoning_content': 'hm', "
                              "'reasoning_details': [{'type': "
                              "'reasoning.text', 'text': 'hm'}]}")},
        {REQUEST_CHAT, CHAT(U ", {'role': 'assistant', 'content': 'a', "
                              "'thinking_blocks': [{'type': 'thinking', "
                              "'thinking': 'hm', 'signature': 's'}]}")},
        {REQUEST_CHAT,
         CHAT(U ", {'role': 'assistant', 'content': [{'type': 'thinking', "
                "'thinking': [{'type': 'text', 'text': 'hm'}]}, "
                "{'type': 'text', 'text': 'a'}]}")},
        {REQUEST_MESSAGES,
         MESSAGES(U ", {'role': 'assistant', 'content': [{'type': 'thinking', "
                    "'thinking': 'hm', 'signature': ''}, {'type': "
                    "'redacted_thinking', 'data': 'x'}, {'type': 'text', "
                    "'text': 'a'}]}")},
        {REQUEST_RESPONSES,
         INPUT(U ", {'type': 'reasoning', 'summary': [], 'content': [{'type': "
                 "'reasoning_text', 'text': 'hm'}]}, {'type': 'message', "
                 "'role': 'assistant', 'content': 'a'}")},
        {REQUEST_RESPONSES,
         INPUT(U ", {'type': 'reasoning', 'summary': [{'type': "
                 "'summary_text', 'text': 'hm'}], 'content': null, "
                 "'encrypted_content': 'x'}, {'role': 'assistant', 'content': "
                 "[{'type': 'output_text', 'text': 'a'}]}")},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct request a;

        read_form(&a, row[i].kind, row[i].body);
        same_json(row[i].body, a.messages, want);
        request_fini(&a);
    }
}

/* Arguments become an object, whatever an earlier reply wrote or a limit
 * cut. */
TEST(forms_of_arguments_become_objects)
{
    static const struct {
        /* text of the arguments in the request, and the arguments that the
         * conversation gets */
        const char *given, *want;
    } row[] = {
        {"", "{}"},
        {"  ", "{}"},
        {"null", "{}"},
        {"{}", "{}"},
        {"{\\'a\\': 1}", "{'a': 1}"},
        {"\\'{\\\\\\'a\\\\\\': 1}\\'", "{'a': 1}"},
        {"{\\'a\\': \\'brok", "{'a': 'brok'}"},
        {"{\\'a\\': \\'b\\\\", "{'a': 'b'}"},
        {"{\\'a\\': \\'b\\\\u00", "{'a': 'b'}"},
        {"{\\'a\\': [1, {\\'b\\': 2", "{'a': [1, {}]}"},
        {"{\\'a\\': true, \\'b", "{'a': true}"},
        {"{\\'a\\': 1} and so on", "{'a': 1}"},
        {"ls -l", "{'input': 'ls -l'}"},
        {"[1, 2]", "{'input': [1, 2]}"},
        {"7", "{'input': 7}"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char body[512], want[512];
        struct request a;

        snprintf(body, sizeof body, CHAT(U ", " CALLED("'%s'")), row[i].given);
        snprintf(want, sizeof want, "[" U ", " CALLED("%s") "]", row[i].want);
        read_form(&a, REQUEST_CHAT, body);
        same_json(body, a.messages, want);
        request_fini(&a);
        snprintf(body, sizeof body,
                 INPUT(U ", {'type': 'function_call', 'call_id': 'c', 'name': "
                         "'f', 'arguments': '%s'}"),
                 row[i].given);
        snprintf(want, sizeof want,
                 "[" U ", {'role': 'assistant', 'content': '', 'tool_calls': ["
                 "{'id': 'c', 'type': 'function', 'function': {'name': 'f', "
                 "'arguments': %s}}]}]",
                 row[i].want);
        read_form(&a, REQUEST_RESPONSES, body);
        same_json(body, a.messages, want);
        request_fini(&a);
    }
}

/* Libraries add fields that are null. There are older forms of calls, and
 * results that are not texts. */
TEST(forms_of_messages_are_taken)
{
    static const struct {
        enum request_kind kind;
        const char *body, *want;
    } row[] = {
        {REQUEST_CHAT,
         CHAT("{'role': 'assistant', 'content': 'a', 'refusal': null, "
              "'annotations': null, 'audio': null, 'function_call': null, "
              "'tool_calls': null, 'reasoning_content': null}"),
         "[{'role': 'assistant', 'content': 'a'}]"},
        {REQUEST_CHAT,
         CHAT(U ", {'role': 'assistant', 'content': null, 'function_call': "
                "{'name': 'f', 'arguments': '{}'}}, {'role': 'function', "
                "'name': 'f', 'content': 'r'}"),
         "[" U ", " CALLED("{}") ", {'role': 'tool', 'name': 'f', "
                                 "'content': 'r'}]"},
        {REQUEST_CHAT,
         CHAT("{'role': 'assistant', 'tool_calls': [{'id': 'c', 'type': "
              "'custom', 'custom': {'name': 'f', 'input': 'x'}}]}, {'role': "
              "'tool', 'tool_call_id': 'c', 'content': null}"),
         "[{'role': 'assistant', 'content': '', 'tool_calls': [{'id': 'c', "
         "'type': 'function', 'function': {'name': 'f', 'arguments': "
         "{'input': 'x'}}}]}, {'role': 'tool', 'tool_call_id': 'c', "
         "'content': ''}]"},
        {REQUEST_CHAT,
         CHAT(U ", {'role': 'tool', 'content': [{'type': 'text', 'text': 'r'}, "
                "{'type': 'image_url', 'image_url': {}}]}, {'role': 'tool', "
                "'content': {'x': 1}}, {'role': 'user', 'content': ['a', "
                "'b']}"),
         "[" U ", {'role': 'tool', 'content': 'r\\n[image_url left out]'}, "
         "{'role': 'tool', 'content': '{\\'x\\': 1}'}, {'role': 'user', "
         "'content': 'a\\nb'}]"},
        {REQUEST_MESSAGES,
         MESSAGES(U ", {'role': 'assistant', 'content': [{'type': "
                    "'server_tool_use', 'id': 's', 'name': 'web_search', "
                    "'input': {}}, {'type': 'web_search_tool_result', "
                    "'tool_use_id': 's', 'content': []}, {'type': 'tool_use', "
                    "'id': 'c', 'name': 'f', 'input': {}}]}, {'role': 'user', "
                    "'content': [{'type': 'tool_result', 'tool_use_id': 'c', "
                    "'content': [{'type': 'image', 'source': {}}]}]}"),
         "[" U ", {'role': 'assistant', 'content': '', 'tool_calls': [{'id': "
         "'c', 'type': 'function', 'function': {'name': 'f', "
         "'arguments': {}}}]}, {'role': 'tool', 'tool_call_id': 'c', "
         "'content': '[image left out]'}]"},
        {REQUEST_RESPONSES,
         INPUT("{'type': 'custom_tool_call', 'call_id': 'c', 'name': 'edit', "
               "'input': 'x'}, {'type': 'custom_tool_call_output', 'call_id': "
               "'c', 'output': 'ok'}, {'type': 'web_search_call', 'id': 'w'}, "
               "{'type': 'local_shell_call', 'call_id': 'd', 'action': "
               "{'command': ['ls']}}, {'type': 'local_shell_call_output', "
               "'call_id': 'd', 'output': null}"),
         "[{'role': 'assistant', 'content': '', 'tool_calls': [{'id': 'c', "
         "'type': 'function', 'function': {'name': 'edit', 'arguments': "
         "{'input': 'x'}}}]}, {'role': 'tool', 'tool_call_id': 'c', "
         "'content': 'ok'}, {'role': 'assistant', 'content': '', "
         "'tool_calls': [{'id': 'd', 'type': 'function', 'function': {'name': "
         "'local_shell', 'arguments': {'command': ['ls']}}}]}, {'role': "
         "'tool', 'tool_call_id': 'd', 'content': ''}]"},
        {REQUEST_RESPONSES,
         "{'instructions': 'i', 'input': [{'role': 'developer', 'content': "
         "'d'}, " U "]}",
         "[{'role': 'system', 'content': 'i'}, {'role': 'system', 'content': "
         "'d'}, " U "]"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct request a;

        read_form(&a, row[i].kind, row[i].body);
        same_json(row[i].body, a.messages, row[i].want);
        request_fini(&a);
    }
    refused(REQUEST_CHAT,
            CHAT("{'role': 'user', 'content': [{'type': 'image_url'}]}"),
            "messages[0].content[0].type", "not supported");
}

/* A call that is sent back with its namespace has the joined name, as the tool
 * has it. */
TEST(forms_of_namespaces_are_joined_with_the_names)
{
    static const char body[] =
        "{'input': [" U ", {'type': 'function_call', 'call_id': 'c', "
        "'namespace': 'mcp__x', 'name': 'f', 'arguments': '{}'}, {'type': "
        "'function_call_output', 'call_id': 'c', 'output': [{'type': "
        "'input_text', 'text': 'r'}]}, {'type': 'function_call', 'call_id': "
        "'d', 'namespace': null, 'name': 'g', 'arguments': '{}'}], 'tools': ["
        "{'type': 'namespace', 'name': 'mcp__x', 'description': 'd', 'tools': "
        "[{'type': 'function', 'name': 'f', 'description': 'e', 'parameters': "
        "{'type': 'object'}}, {'type': 'custom', 'name': 'c'}, {'type': "
        "'function', 'name': 'f2'}]}, {'type': 'function', 'name': 'g'}, "
        "{'type': 'namespace', 'name': 'y__', 'tools': [{'type': 'function', "
        "'name': 'f'}]}]%s}";
    static const struct {
        const char *choice, *call, *tools;
    } row[] = {
        {"", NULL,
         "[{'type': 'function', 'function': {'name': 'mcp__x__f', "
         "'description': 'e', 'parameters': {'type': 'object'}}}, "
         "{'type': 'function', 'function': {'name': 'mcp__x__f2'}}, "
         "{'type': 'function', 'function': {'name': 'g'}}, "
         "{'type': 'function', 'function': {'name': 'y__f'}}]"},
        {", 'tool_choice': {'type': 'allowed_tools', 'mode': 'auto', 'tools': "
         "[{'type': 'function', 'namespace': 'y__', 'name': 'f'}, {'type': "
         "'function', 'name': 'mcp__x__f2'}]}",
         NULL,
         "[{'type': 'function', 'function': {'name': 'mcp__x__f2'}}, "
         "{'type': 'function', 'function': {'name': 'y__f'}}]"},
        {", 'tool_choice': {'type': 'function', 'namespace': 'mcp__x', "
         "'name': 'f'}",
         "mcp__x__f", NULL},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const char *space = NULL, *name = NULL;
        struct request a;
        char text[2048];

        snprintf(text, sizeof text, body, row[i].choice);
        read_form(&a, REQUEST_RESPONSES, text);
        same_json(text, a.messages,
                  "[" U ", {'role': 'assistant', 'content': '', 'tool_calls': "
                  "[{'id': 'c', 'type': 'function', 'function': {'name': "
                  "'mcp__x__f', 'arguments': {}}}]}, {'role': 'tool', "
                  "'tool_call_id': 'c', 'content': 'r'}, {'role': 'assistant', "
                  "'content': '', 'tool_calls': [{'id': 'd', 'type': "
                  "'function', 'function': {'name': 'g', 'arguments': {}}}]}]");
        if (row[i].tools != NULL)
            same_json(text, a.tools, row[i].tools);
        if (row[i].call != NULL)
            assert_string_equal(a.call, row[i].call);
        else
            assert_null(a.call);
        assert_non_null(strstr(logged, "custom\n"));
        assert_true(request_split_name(&a, "y__f", &space, &name));
        assert_string_equal(space, "y__");
        assert_string_equal(name, "f");
        assert_true(request_split_name(&a, "mcp__x__f2", &space, &name));
        assert_string_equal(space, "mcp__x");
        assert_string_equal(name, "f2");
        assert_false(request_split_name(&a, "mcp__xf", &space, &name));
        assert_false(request_split_name(&a, "f", &space, &name));
        assert_false(request_split_name(&a, "g", &space, &name));
        request_fini(&a);
    }
}

/* Keeps a conversation of one item, whose text is that of the response. */
static void keep_item(struct response_store *store, const char *response,
                      const char *id)
{
    json_t *items =
        json_pack("[{s:s, s:s}, {s:s, s:s, s:s*}]", "role", "user", "content",
                  "no id", "role", "assistant", "content", response, "id", id);

    response_store_put(store, response, items);
    json_decref(items);
}

/* An item that refers to another becomes that item, in the body too, which is
 * kept for later requests. */
TEST(forms_of_references_to_items_are_resolved)
{
    static const struct {
        const char *input, *want;
        int status;
    } row[] = {
        {U ", {'type': 'item_reference', 'id': 'm1'}, {'id': 'm2'}",
         "[" U ", {'role': 'assistant', 'content': 'r2\\nr3'}]", 200},
        {U ", {'type': 'item_reference', 'id': 'm3'}",
         "input|Item with id 'm3' not found.", 404},
        {"{'type': 'item_reference', 'id': 'm1'}, {'id': 'm1'}",
         "input|Duplicate item found with id 'm1'.", 400},
        {"{'type': 'item_reference'}", "input[0].id|required", 400},
        {"{'type': 'item_reference', 'id': 3}", "input[0].id|string", 400},
    };
    static struct response_store store;
    struct request_rules has = rules;

    response_store_init(&store);
    has.recall_item = response_store_find;
    has.recall_user = &store;
    keep_item(&store, "r0", NULL);
    keep_item(&store, "r1", "m1");
    keep_item(&store, "r2", "m1");
    keep_item(&store, "r3", "m2");
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        const char *says = strchr(row[i].want, '|');
        struct api_error why = {0};
        struct request a;
        char text[512], *body;
        bool ok;

        snprintf(text, sizeof text, INPUT("%s"), row[i].input);
        body = quoted(text);
        ok = request_parse(&a, REQUEST_RESPONSES, body, strlen(body), &has,
                           &why);
        free(body);
        assert_int_equal(ok ? 200 : why.status, row[i].status);
        if (ok) {
            same_json(text, a.messages, row[i].want);
            body = json_dumps(json_object_get(a.body, "input"), 0);
            same_json(text, body,
                      "[" U ", {'role': 'assistant', 'content': 'r2', 'id': "
                      "'m1'}, {'role': 'assistant', 'content': 'r3', 'id': "
                      "'m2'}]");
            free(body);
        } else if (!strstr(why.message, says + 1) ||
                   strlen(why.param) != (size_t)(says - row[i].want) ||
                   strncmp(why.param, row[i].want, strlen(why.param)) != 0) {
            fail_msg("%s: %s: %s", text, why.param, why.message);
        }
        request_fini(&a);
    }
    /* what is dropped is found no more */
    for (int i = 0; i < STORE_RESPONSES - 1; i++)
        keep_item(&store, "later", NULL);
    assert_null(response_store_find(&store, "m1"));
    json_decref(response_store_get(&store, "r3"));
    response_store_fini(&store);
    assert_int_equal(store.bytes, 0);
}

/* Sources of drafts that the server does not have are ignored. */
TEST(forms_of_drafts_that_are_not_here_are_ignored)
{
    static const struct {
        const char *types, *ignored;
        bool drafts;
        uint32_t lacks, want;
    } row[] = {
        {"ngram-simple", "speculative.types", false, 0, 0},
        {"draft-simple,ngram-map-k", "speculative.types", true,
         1u << PL_DRAFT_SIMPLE, 1u << PL_DRAFT_NGRAM_MAP_K},
        {"draft-simple", "", true, 1u << PL_DRAFT_MTP, 1u << PL_DRAFT_SIMPLE},
        {"draft-mtp", "", true, 1u << PL_DRAFT_SIMPLE, 1u << PL_DRAFT_MTP},
        {"draft-mtp", "speculative.types", true, 1u << PL_DRAFT_MTP, 0},
        {"none", "", false, 0, 0},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct request_rules has = rules;
        const pl_draft_limits limits = {.n_max = 4};
        struct api_error why = {0};
        struct request a;
        char text[200];

        has.drafts = row[i].drafts ? &limits : NULL;
        has.no_source = row[i].lacks;
        snprintf(text, sizeof text,
                 "{\"prompt\":\"p\",\"speculative.types\":\"%s\"}",
                 row[i].types);
        if (!request_parse(&a, REQUEST_COMPLETION, text, strlen(text), &has,
                           &why))
            fail_msg("%s: %s", text, why.message);
        assert_string_equal(a.passed_over, row[i].ignored);
        assert_int_equal(a.drafts.sources, row[i].want);
        request_fini(&a);
    }
}

#define TOOL(name) "{'type': 'function', 'function': {'name': '" name "'}}"

/* Tools that the server cannot run are passed over with one line in the log. */
TEST(forms_of_tools_beside_functions_are_passed_over)
{
    static const struct {
        enum request_kind kind;
        const char *body, *want, *says;
    } row[] = {
        {REQUEST_CHAT,
         "{'messages': [" U
         "], 'tools': [" TOOL("f") ", {'type': "
                                   "'web_search_preview'}, {'type': 'custom', "
                                   "'custom': {'name': "
                                   "'c'}}]}",
         "[" TOOL("f") "]", "web_search_preview, custom\n"},
        {REQUEST_CHAT,
         "{'messages': [" U "], 'tools': [{'type': 'function', 'name': 'f'}, "
         "{'name': 'g', 'input_schema': {}}]}",
         "[" TOOL("f") ", {'type': 'function', 'function': {'name': 'g', "
                       "'parameters': {}}}]",
         ""},
        {REQUEST_CHAT,
         "{'messages': [" U "], 'tools': [{'type': 'function', 'function': "
         "{'name': 'f', 'description': null, 'parameters': null, 'strict': "
         "true}}]}",
         "[" TOOL("f") "]", ""},
        {REQUEST_CHAT,
         "{'messages': [" U "], 'functions': [{'name': 'f'}], "
         "'function_call': 'auto', 'web_search_options': {}}",
         "[" TOOL("f") "]", "web_search\n"},
        {REQUEST_CHAT,
         "{'messages': [" U "], 'functions': [{'name': 'f'}], "
         "'function_call': 'none'}",
         "null", ""},
        {REQUEST_MESSAGES,
         "{'max_tokens': 1, 'messages': [" U "], 'tools': [{'name': 'f'}, "
         "{'type': 'web_search_20250305', 'name': 'web_search'}, {'type': "
         "'bash_20250124', 'name': 'bash'}]}",
         "[" TOOL("f") "]", "web_search_20250305, bash_20250124\n"},
        {REQUEST_RESPONSES,
         "{'input': 'x', 'tools': [{'type': 'function', 'name': 'f'}, "
         "{'type': 'code_interpreter', 'container': {}}, {'type': 'mcp'}, "
         "{'type': 'namespace', 'name': 'n', 'tools': []}, {'type': 'mcp'}]}",
         "[" TOOL("f") "]", "code_interpreter, mcp\n"},
        {REQUEST_RESPONSES, "{'input': 'x', 'tools': [{'type': 'web_search'}]}",
         "null", "web_search\n"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct request a;

        read_form(&a, row[i].kind, row[i].body);
        same_json(row[i].body, a.tools, row[i].want);
        if (row[i].says[0] == '\0')
            assert_string_equal(logged, "");
        else if (!strstr(logged, row[i].says))
            fail_msg("%s\nlogged %s", row[i].body, logged);
        request_fini(&a);
    }
}

/* Integers of more than 64 bits are read as reals, but for those that the model
 * sees; other numbers and the digits in strings stay as they are. */
TEST(forms_of_integers_beyond_64_bits_are_taken)
{
    static const char *const wide[] = {
        "9223372036854775808", "-9223372036854775809", "18446744073709551615",
        "10000000000000000000000000000000000000000"};
    static const char *const narrow[] = {"9223372036854775807",
                                         "-9223372036854775808", "0", "1.5e3"};

    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        char body[512];
        struct request a;
        const json_t *all;

        snprintf(body, sizeof body,
                 "{'messages': [" U ", " CALLED(
                     "{'x': [%s]}") "], 'ignored': "
                                    "[%s, %s, 'a\\' %s', {'x': %s}], 'n': 1, "
                                    "'chat_template_kwargs': {'y': %s}}",
                 wide[i], wide[i], narrow[i], wide[i], wide[i], wide[i]);
        read_form(&a, REQUEST_CHAT, body);
        snprintf(body, sizeof body, "{\"x\":[%s]}", wide[i]);
        assert_non_null(strstr(a.messages, body));
        snprintf(body, sizeof body, "\"y\":%s", wide[i]);
        assert_non_null(strstr(a.extra, body));
        all = json_object_get(a.body, "ignored");
        assert_true(json_is_real(json_array_get(all, 0)));
        assert_true(json_real_value(json_array_get(all, 0)) ==
                    strtod(wide[i], NULL));
        if (json_is_integer(json_array_get(all, 1)))
            assert_int_equal(json_integer_value(json_array_get(all, 1)),
                             strtoll(narrow[i], NULL, 10));
        else
            assert_true(json_real_value(json_array_get(all, 1)) == 1500);
        assert_non_null(
            strstr(json_string_value(json_array_get(all, 2)), wide[i]));
        request_fini(&a);
    }
    refused(REQUEST_CHAT,
            "{'messages': [" U "], 'max_tokens': 9223372036854775808}",
            "max_tokens", "an integer");
}

/* Only the allowed tools remain. */
TEST(forms_of_tool_choice_are_taken)
{
    static const struct {
        enum request_kind kind;
        const char *choice;
        const char *want;
        bool must;
    } row[] = {
        {REQUEST_CHAT, "'auto'", "[" TOOL("f") ", " TOOL("g") "]", false},
        {REQUEST_CHAT, "'none'", "null", false},
        {REQUEST_CHAT, "'any'", "[" TOOL("f") ", " TOOL("g") "]", true},
        {REQUEST_CHAT,
         "{'type': 'allowed_tools', 'allowed_tools': {'mode': 'required', "
         "'tools': [" TOOL("g") "]}}",
         "[" TOOL("g") "]", true},
        {REQUEST_RESPONSES,
         "{'type': 'allowed_tools', 'mode': 'auto', 'tools': [{'type': "
         "'function', 'name': 'f'}, {'type': 'web_search'}]}",
         "[" TOOL("f") "]", false},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct request a;
        char body[512];

        snprintf(body, sizeof body,
                 "{'messages': [" U "], 'input': 'x', 'tools': [%s], "
                 "'tool_choice': %s}",
                 row[i].kind == REQUEST_CHAT ? TOOL("f") ", " TOOL("g")
                                             : "{'name': 'f'}, {'name': 'g'}",
                 row[i].choice);
        read_form(&a, row[i].kind, body);
        same_json(body, a.tools, row[i].want);
        assert_int_equal(a.must_call, row[i].must);
        request_fini(&a);
    }
}

/* Programs in JavaScript cut texts between the halves of a character. */
TEST(forms_of_half_characters_are_taken)
{
    static const struct {
        const char *given, *want;
    } row[] = {
        {"a\\ud83d", "a\\ufffd"},
        {"\\ude00b", "\\ufffdb"},
        {"\\ud83d\\ud83d\\ude00", "\\ufffd\\ud83d\\ude00"},
        {"\\\\ud83d\\ud83d", "\\\\ud83d\\ufffd"},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char body[256], want[256];
        struct request a;

        snprintf(body, sizeof body, CHAT("{'role': 'user', 'content': '%s'}"),
                 row[i].given);
        snprintf(want, sizeof want, "[{'role': 'user', 'content': '%s'}]",
                 row[i].want);
        read_form(&a, REQUEST_CHAT, body);
        same_json(body, a.messages, want);
        request_fini(&a);
    }
    refused(REQUEST_CHAT, "{'messages': '\\u12'}", "", "not valid JSON");
}
