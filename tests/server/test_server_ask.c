/* Parsing of requests: each protocol's fields get their meaning, and wrong ones
 * are rejected with the right error. */
#include "gguf/gguf_write.h"
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "server/json_text.h"
#include "server/logprob.h"
#include "server/request.h"
#include "server/request_tasks.h"
#include "server/sampler_names.h"
#include "server/token_routes.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct request_rules rules = {
    .n_vocab = 1000, .max_tokens = 77, .seed = 5, .max_texts = 16};
static const struct request_rules can_all = {
    .n_vocab = 1000, .max_tokens = -1, .can = REQUEST_ALL};

/* Returns the text with " for each '. */
static char *quoted(const char *text)
{
    char *s = strdup(text);

    for (char *p = s; *p != '\0'; p++)
        if (*p == '\'')
            *p = '"';
    return s;
}

static void read_by(struct request *a, enum request_kind kind, const char *text,
                    const struct request_rules *by)
{
    struct api_error why = {0};
    char *body = quoted(text);

    if (!request_parse(a, kind, body, strlen(body), by, &why))
        fail_msg("%s: %s", body, why.message);
    free(body);
}

static void same_json(const char *got, const char *want_text)
{
    char *want = quoted(want_text);
    json_t *a = json_loads(got != NULL ? got : "null", JSON_DECODE_ANY, NULL);
    json_t *b = json_loads(want, JSON_DECODE_ANY, NULL);

    assert_non_null(b);
    if (!json_equal(a, b))
        fail_msg("%s, not %s", got, want);
    json_decref(a);
    json_decref(b);
    free(want);
}

/* Expects a rejection for this field, with this in the message. */
static void refused_by(enum request_kind kind, const char *text,
                       const char *param, const char *says,
                       const struct request_rules *by)
{
    struct api_error why = {0};
    struct request a;
    char *body = quoted(text);

    if (request_parse(&a, kind, body, strlen(body), by, &why))
        fail_msg("%s was taken", body);
    assert_int_equal(why.status, 400);
    assert_string_equal(why.param, param);
    if (strstr(why.message, says) == NULL)
        fail_msg("%s: %s", body, why.message);
    assert_null(a.body);
    free(body);
}

static void refused(enum request_kind kind, const char *text, const char *param,
                    const char *says)
{
    refused_by(kind, text, param, says, &rules);
}

#define THINKS                                                                 \
    "'enable_thinking': true, 'thinking': true, 'thinking_mode': 'enabled'"
#define THINKS_NOT                                                             \
    "'enable_thinking': false, 'thinking': false, 'thinking_mode': 'disabled'"
#define HELLO "'messages': [{'role': 'user', 'content': 'Hi'}]"

/* ---- defaults of the server ---------------------------------------------- */

/* The options of the server stand for fields that a request leaves out, and for
 * no other: one that switches reasoning or constrains its output itself is left
 * alone. */
TEST(ask_defaults_are_for_what_requests_leave_out)
{
    json_t *defaults =
        json_pack("{sis[s]sbss s{sbsi}}", "seed", 9, "stop", "END",
                  "ignore_eos", 1, "grammar", "root ::= \"a\"",
                  "chat_template_kwargs", "enable_thinking", 0, "x", 1);
    const struct request_rules by = {.n_vocab = 1000,
                                     .max_tokens = -1,
                                     .can = can_all.can,
                                     .defaults = defaults};
    struct request a;

    assert_non_null(defaults);
    read_by(&a, REQUEST_CHAT, "{" HELLO "}", &by);
    assert_int_equal(a.sampling.seed, 9);
    assert_int_equal(a.n_stop, 1);
    assert_string_equal(a.stop[0], "END");
    assert_true(a.ignore_end);
    assert_string_equal(a.grammar, "root ::= \"a\"");
    same_json(a.extra, "{" THINKS_NOT ", 'x': 1}");
    request_fini(&a);
    read_by(&a, REQUEST_CHAT,
            "{" HELLO ", 'seed': 3, 'stop': ['a', 'b'], 'ignore_eos': false, "
            "'enable_thinking': true, 'chat_template_kwargs': {'x': 2}, "
            "'response_format': {'type': 'json_object'}}",
            &by);
    assert_int_equal(a.sampling.seed, 3);
    assert_int_equal(a.n_stop, 2);
    assert_false(a.ignore_end);
    assert_null(a.grammar);
    same_json(a.extra, "{'x': 2, " THINKS "}");
    request_fini(&a);
    read_by(&a, REQUEST_CHAT,
            "{" HELLO ", 'structured_outputs': {'choice': ['b']}}", &by);
    assert_true(a.grammar == NULL || strstr(a.grammar, "\"a\"") == NULL);
    request_fini(&a);
    read_by(&a, REQUEST_CHAT, "{" HELLO ", 'tools': []}", &by);
    assert_null(a.grammar);
    request_fini(&a);
    json_decref(defaults);
}

/* ---- sampling options ---------------------------------------------------- */

TEST(ask_without_options_has_the_rules_defaults)
{
    pl_sampling s;
    struct request a;

    pl_sampling_init(&s);
    read_by(&a, REQUEST_CHAT, "{" HELLO "}", &rules);
    assert_int_equal(a.sampling.top_k, s.top_k);
    assert_true(a.sampling.temperature == s.temperature);
    assert_int_equal(a.sampling.seed, 5);
    assert_int_equal(a.max_tokens, 77);
    assert_int_equal(a.n, 1);
    assert_int_equal(a.n_stop, 0);
    assert_false(a.stream || a.probs || a.usage || a.no_cache || a.ignore_end);
    same_json(a.messages, "[{'role': 'user', 'content': 'Hi'}]");
    assert_null(a.tools);
    assert_null(a.extra);
    request_fini(&a);
}

TEST(ask_takes_all_options)
{
    struct request a;

    read_by(&a, REQUEST_CHAT,
            "{" HELLO ", 'temperature': 0.5, 'top_p': 0.25, 'top_k': 7,"
            "'min_p': 0.125, 'typical_p': 0.75, 'repeat_penalty': 1.5,"
            "'repeat_last_n': -1, 'frequency_penalty': -0.5,"
            "'presence_penalty': 2, 'seed': 42, 'n': 3, 'max_tokens': 5,"
            "'max_completion_tokens': 9, 'stop': ['a', '', 'bc'],"
            "'logit_bias': {'12': -100, '3': 1.5}, 'logprobs': true,"
            "'top_logprobs': 4, 'stream': true,"
            "'stream_options': {'include_usage': true},"
            "'cache_prompt': false, 'ignore_eos': true,"
            "'return_progress': true, 'reasoning_format': 'none',"
            "'model': 'm', 'nobody_knows': [1], 'user': null,"
            "'chat_template_kwargs': {'x': 1}, 'reasoning_effort': 'low'}",
            &rules);
    assert_true(a.sampling.temperature == 0.5f && a.sampling.top_p == 0.25f);
    assert_true(a.sampling.min_p == 0.125f && a.sampling.typical_p == 0.75f);
    assert_true(a.sampling.repeat_penalty == 1.5f &&
                a.sampling.frequency_penalty == -0.5f &&
                a.sampling.presence_penalty == 2.0f);
    assert_int_equal(a.sampling.top_k, 7);
    assert_int_equal(a.sampling.penalty_last_n, -1);
    assert_int_equal(a.sampling.seed, 42);
    assert_int_equal(a.n, 3);
    assert_int_equal(a.max_tokens, 9);
    assert_int_equal(a.n_stop, 2);
    assert_string_equal(a.stop[1], "bc");
    assert_int_equal(a.sampling.n_bias, 2);
    assert_int_equal(a.sampling.bias_id[0] + a.sampling.bias_id[1], 15);
    assert_true(a.probs && a.n_top == 4 && a.stream && a.usage && a.no_cache &&
                a.ignore_end && a.progress);
    assert_int_equal(a.reasoning, REASONING_WITHIN);
    assert_string_equal(a.model, "m");
    same_json(a.extra, "{'x': 1, 'reasoning_effort': 'low', 'thinking_effort':"
                       "'low', " THINKS "}");
    request_fini(&a);
}

/* As in llama-server, numbers below 0 turn filters off, and the seed that it
 * reports as drawn is drawn again. */
TEST(ask_filters_below_zero_are_off)
{
    struct request a;

    read_by(&a, REQUEST_COMPLETION,
            "{'prompt': 'x', 'top_k': -5, 'top_n_sigma': -1, 'min_p': -1,"
            "'xtc_probability': -0.5, 'dynatemp_range': -1, 'min_keep': 0,"
            "'repeat_last_n': -1, 'dry_penalty_last_n': -1, 'n_predict': -2,"
            "'seed': 4294967295}",
            &rules);
    assert_int_equal(a.sampling.top_k, 0);
    assert_true(a.sampling.top_n_sigma == 0 && a.sampling.min_p == 0 &&
                a.sampling.xtc_probability == 0 &&
                a.sampling.dynatemp_range == 0);
    assert_int_equal(a.sampling.penalty_last_n, -1);
    assert_int_equal(a.max_tokens, 77);
    assert_int_equal(a.sampling.seed, 5);
    request_fini(&a);
    read_by(&a, REQUEST_COMPLETION, "{'prompt': 'x', 'seed': 4294967294}",
            &rules);
    assert_int_equal(a.sampling.seed, 4294967294);
    request_fini(&a);
}

/* Every client's integers hold a seed that was drawn. */
TEST(ask_drawn_seeds_are_below_two_to_31)
{
    uint64_t all = 0;

    for (int i = 0; i < 1000; i++) {
        uint64_t seed = sampler_draw_seed();

        assert_true(seed < (uint64_t)1 << 31);
        all |= seed;
    }
    assert_int_equal(all, INT32_MAX);
}

TEST(ask_takes_biases_of_both_forms)
{
    struct request a;

    read_by(&a, REQUEST_COMPLETION,
            "{'prompt': 'x', 'logit_bias': [[7, false], [8, 0.5]],"
            "'n_predict': -1, 'top_k': -1}",
            &rules);
    assert_int_equal(a.sampling.n_bias, 2);
    assert_true(isinf(a.sampling.bias[0]) && a.sampling.bias[0] < 0);
    assert_int_equal(a.sampling.bias_id[1], 8);
    assert_int_equal(a.sampling.top_k, 0);
    assert_int_equal(a.max_tokens, 77);
    request_fini(&a);
}

TEST(ask_takes_biases_of_texts_by_the_vocabulary)
{
    pl_tokenizer *words = NULL;
    struct request_rules by = rules;
    struct request a;
    int32_t *ids = NULL;
    int64_t n = 0;
    pl_err err;

    TEST_OK(pl_tokenizer_open(&words, test_model(), &err), err);
    TEST_OK(pl_tokenize(words, "Once upon", 9, 0, &ids, &n, &err), err);
    by.words = words;
    by.n_vocab = pl_tokenizer_n_vocab(words);
    read_by(&a, REQUEST_COMPLETION,
            "{'prompt': 'x', 'logit_bias': {'Once upon': 2}}", &by);
    assert_int_equal(a.sampling.n_bias, n);
    assert_memory_equal(a.sampling.bias_id, ids, (size_t)n * sizeof(*ids));
    request_fini(&a);
    free(ids);
    pl_tokenizer_free(words);
}

TEST(ask_refuses_wrong_values_by_field_value_and_range)
{
    static const struct {
        const char *given, *param, *says;
    } row[] = {
        {"'temperature': 'hot'", "temperature", "\"hot\"; it must be a number"},
        {"'temperature': -1", "temperature", "-1; it must be a number from 0"},
        {"'top_p': 1.5", "top_p", "from 0 to 1"},
        {"'top_k': 1.5", "top_k", "an integer"},
        {"'repeat_penalty': 0", "repeat_penalty", "greater than 0"},
        {"'n': 0", "n", "from 1 to 16"},
        {"'n': 17", "n", "17"},
        {"'max_tokens': '5'", "max_tokens", "an integer"},
        {"'stop': 5", "stop", "a string"},
        {"'stop': [[]]", "stop", "a list of 0"},
        {"'stream': 'yes'", "stream", "true or false"},
        {"'stream_options': true", "stream_options", "an object"},
        {"'stream_options': {'include_usage': 1}",
         "stream_options.include_usage", "true or false"},
        {"'logit_bias': {'1000': 1}", "logit_bias", "from 0 to 999"},
        {"'logit_bias': [[1]]", "logit_bias", "pairs"},
        {"'logit_bias': {'the': 1}", "logit_bias", "give token ids"},
        {"'seed': 'x'", "seed", "an integer"},
        {"'id_slot': -2", "id_slot", "-1 to"},
        {"'top_logprobs': 3", "top_logprobs", "requires logprobs"},
        {"'logprobs': true, 'top_logprobs': 65", "top_logprobs", "0 to 64"},
        {"'n_probs': 65", "n_probs", "0 to 64"},
        {"'logprobs': 3", "logprobs", "true or false"},
        {"'response_format': {'name': 'x'}", "response_format.type", "missing"},
        {"'response_format': {'type': 'xml'}", "response_format.type",
         "\"text\", \"json_object\" or \"json_schema\""},
        {"'response_format': {'type': 'json_schema'}",
         "response_format.json_schema.schema", "missing"},
        {"'response_format': {'type': 'ebnf'}", "response_format.ebnf",
         "missing"},
        {"'response_format': {'type': 'regex'}", "response_format.regex",
         "missing"},
        {"'json_schema': 'x'", "json_schema", "a JSON Schema"},
        {"'reasoning_format': 'odd'", "reasoning_format", "\"auto\""},
        {"'chat_template_kwargs': []", "chat_template_kwargs", "an object"},
        {"'tools': {}", "tools", "a list"},
        {"'tools': [{}]", "tools[0].function", "missing"},
        {"'tool_choice': 'required'", "tool_choice", "no tools"},
        {"'tool_choice': 'maybe'", "tool_choice", "\"auto\""},
        {"'messages': []", "messages", "a non-empty list"},
        {"'messages': [5]", "messages[0]", "an object"},
        {"'messages': [{'content': 'x'}]", "messages[0].role", "missing"},
        {"'messages': [{'role': 'user'}]", "messages[0].content", "missing"},
        {"'messages': [{'role': 'user', 'content': [{'type': 'image_url'}]}]",
         "messages[0].content[0].type", "\"image_url\" is not supported"},
        {"'messages': [{'role': 'assistant', 'tool_calls': [{}]}]",
         "messages[0].tool_calls[0].function", "missing"},
        {"'mirostat': 3", "mirostat", "2"},
        {"'min_keep': 2", "min_keep", "0 or 1"},
        {"'repeat_last_n': -2", "repeat_last_n", "-1 or more"},
        {"'dry_sequence_breakers': ['']", "dry_sequence_breakers", "64 bytes"},
        {"'audio': {'voice': 'x'}", "audio", "not supported; leave it out"},
        {"'functions': [{}]", "functions[0].name", "missing"},
        {"'functions': [{'name': 'f'}], 'function_call': {'name': 'g'}",
         "function_call", "is not in functions"},
        {"'grammar': 'root ::= x'", "grammar", "not supported; leave it out"},
        {"'json_schema': {'type': 'array'}", "json_schema",
         "not supported; leave it out"},
        {"'response_format': {'type': 'json_object'}", "response_format",
         "not supported; leave it out"},
    };
    char body[512];

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        /* if the body has two fields of the same name, the later one counts */
        snprintf(body, sizeof(body), "{" HELLO ", %s}", row[i].given);
        refused(REQUEST_CHAT, body, row[i].param, row[i].says);
    }
    refused(REQUEST_CHAT, "{", "", "not valid JSON");
    refused(REQUEST_CHAT, "[]", "", "not a JSON object");
    refused(REQUEST_CHAT, "{}", "messages", "missing");
    refused(REQUEST_COMPLETIONS, "{}", "prompt", "missing");
    refused(REQUEST_MESSAGES, "{}", "messages", "missing");
    refused(REQUEST_RESPONSES, "{}", "input", "missing");
}

/* Values take far more memory than the bytes of a body. */
TEST(ask_refuses_bodies_of_too_many_values)
{
    static const char *const value[] = {"[],", "{},", "1,"};
    enum { N = (1 << 20) + 1 };

    for (int i = 0; i < 3; i++) {
        size_t n = strlen(value[i]);
        char *text = test_need(n * N + 64, 1), *at = text;
        struct request a;
        struct api_error why;

        at += sprintf(at, "{\"prompt\":\"\\\",,\",\"x\":[");
        for (int k = 0; k < N; k++, at += n)
            memcpy(at, value[i], n);
        at += sprintf(at, "1]}");
        assert_false(request_parse(&a, REQUEST_COMPLETIONS, text,
                                   (size_t)(at - text), &rules, &why));
        assert_int_equal(why.status, 400);
        assert_non_null(strstr(why.message, "1048576"));
        /* commas inside a string do not count as fields */
        memset(text, ',', (size_t)N);
        memcpy(text, "{\"prompt\":\"", 11);
        memcpy(text + N, "\"}", 3);
        assert_true(
            request_parse(&a, REQUEST_COMPLETIONS, text, N + 2, &rules, &why));
        request_fini(&a);
        free(text);
    }
}

TEST(ask_takes_switches_that_ask_for_nothing)
{
    struct request a;

    read_by(&a, REQUEST_CHAT,
            "{" HELLO ", 'mirostat': 0, 'dry_multiplier': 0.0, 'lora': [],"
            "'audio': null, 'post_sampling_probs': false, 'top_n_sigma': -1,"
            "'grammar': '', 'json_schema': null, 'tools': [],"
            "'response_format': {'type': 'text'}}",
            &rules);
    request_fini(&a);
}

/* ---- prompts ------------------------------------------------------------- */

TEST(ask_prompts_are_texts_tokens_and_both)
{
    struct request a;

    read_by(&a, REQUEST_COMPLETION, "{'prompt': 'x y'}", &rules);
    assert_int_equal(a.n_prompt, 1);
    assert_string_equal(a.prompt[0].piece[0].text, "x y");
    request_fini(&a);

    read_by(&a, REQUEST_COMPLETION, "{'prompt': [1, 2, 'mid', 3, 'end']}",
            &rules);
    assert_int_equal(a.n_prompt, 1);
    assert_int_equal(a.prompt[0].n, 4);
    assert_int_equal(a.prompt[0].piece[0].n_ids, 2);
    assert_int_equal(a.prompt[0].piece[0].ids[1], 2);
    assert_string_equal(a.prompt[0].piece[1].text, "mid");
    assert_int_equal(a.prompt[0].piece[2].ids[0], 3);
    assert_int_equal(a.prompt[0].piece[3].len, 3);
    request_fini(&a);

    read_by(&a, REQUEST_COMPLETIONS,
            "{'prompt': ['one', [4, 5], ['a', 6]], 'n': 2}", &rules);
    assert_int_equal(a.n_prompt, 3);
    assert_int_equal(a.prompt[1].piece[0].n_ids, 2);
    assert_int_equal(a.prompt[2].n, 2);
    request_fini(&a);

    refused(REQUEST_COMPLETION, "{'prompt': [1000]}", "prompt",
            "from 0 to 999");
    refused(REQUEST_COMPLETION, "{'prompt': []}", "prompt",
            "a non-empty list of prompts");
    refused(REQUEST_COMPLETION, "{'prompt': [1.5]}", "prompt", "token ids");
    refused(REQUEST_COMPLETION, "{'prompt': {}}", "prompt", "images and audio");
    refused(REQUEST_COMPLETIONS, "{'prompt': ['a', 'b', 'c'], 'n': 6}",
            "prompt", "the limit of 16");
}

TEST(ask_completions_have_numbers_of_logprobs)
{
    struct request a;

    read_by(&a, REQUEST_COMPLETIONS, "{'prompt': 'x', 'logprobs': 3}", &rules);
    assert_true(a.probs);
    assert_int_equal(a.n_top, 3);
    request_fini(&a);
    read_by(&a, REQUEST_COMPLETION, "{'prompt': 'x', 'n_probs': 2}", &rules);
    assert_true(a.probs);
    request_fini(&a);
    read_by(&a, REQUEST_COMPLETION, "{'prompt': 'x', 'n_probs': 0}", &rules);
    assert_false(a.probs);
    request_fini(&a);
}

/* ---- conversations ------------------------------------------------------- */

#define TOOL                                                                   \
    "{'type': 'function', 'function': {'name': 'f', 'description': 'd',"       \
    "'parameters': {'type': 'object'}}}"

TEST(ask_chat_gives_the_template_texts_and_objects)
{
    static const char said[] =
        "[{'role': 'developer', 'content': [{'type': 'text', 'text': 'a'},"
        "{'type': 'text', 'text': 'b'}]},"
        "{'role': 'assistant', 'content': null, 'reasoning_content': 'hm',"
        "'tool_calls': [{'id': 'c1', 'type': 'function', 'function':"
        "{'name': 'f', 'arguments': '{\\'x\\': [1]}'}}]},"
        "{'role': 'tool', 'tool_call_id': 'c1', 'content': 'r'}]";
    struct request a;
    char body[1024];

    snprintf(body, sizeof(body), "{'messages': %s, 'tools': [" TOOL "]}", said);
    read_by(&a, REQUEST_CHAT, body, &rules);
    same_json(a.messages,
              "[{'role': 'system', 'content': 'a\\nb'},"
              "{'role': 'assistant', 'content': '', 'reasoning_content': 'hm',"
              "'tool_calls': [{'id': 'c1', 'type': 'function', 'function':"
              "{'name': 'f', 'arguments': {'x': [1]}}}]},"
              "{'role': 'tool', 'tool_call_id': 'c1', 'content': 'r'}]");
    same_json(a.tools, "[" TOOL "]");
    request_fini(&a);
}

/* Values in the strings of arguments are limited too, for all calls
 * together. */
TEST(ask_chat_parses_no_more_values_in_arguments_than_a_request_may_have)
{
    enum { N = 600000 };
    static const char call[] =
        "{'function': {'name': 'f', 'arguments': '{\\'x\\': [0";
    struct text body = {0};
    const json_t *calls;
    json_t *messages;
    struct request a;
    const char *at = "{'messages': [{'role': 'assistant', 'tool_calls': [";

    assert_true(text_add(&body, at, strlen(at)));
    for (int i = 0; i < 2; i++) {
        assert_true(text_add(&body, ",", i > 0) &&
                    text_add(&body, call, sizeof call - 1));
        for (int k = 0; k < N; k++)
            assert_true(text_add(&body, ",0", 2));
        assert_true(text_add(&body, "]}'}}", 5));
    }
    assert_true(text_add(&body, "]}]}", 4));
    read_by(&a, REQUEST_CHAT, body.s, &rules);
    messages = json_loads(a.messages, 0, NULL);
    calls = json_object_get(json_array_get(messages, 0), "tool_calls");
    for (size_t i = 0; i < 2; i++) {
        const json_t *said = json_object_get(
            json_object_get(json_array_get(calls, i), "function"), "arguments");

        assert_int_equal(json_typeof(said), i == 0 ? JSON_OBJECT : JSON_STRING);
    }
    json_decref(messages);
    request_fini(&a);
    text_free(&body);
}

TEST(ask_choice_of_tools_is_kept)
{
    struct request a;

    /* an empty object as PHP encodes it */
    read_by(&a, REQUEST_CHAT,
            "{" HELLO ", 'tools': [{'type': 'function', 'function': {'name':"
            "'f', 'parameters': []}}]}",
            &can_all);
    same_json(a.tools, "[{'type': 'function', 'function': {'name': 'f'}}]");
    request_fini(&a);
    refused(REQUEST_CHAT,
            "{" HELLO ", 'tools': [{'type': 'function', 'function': {'name':"
            "'f', 'parameters': [1]}}]}",
            "tools[0].function.parameters", "an object");
    read_by(&a, REQUEST_CHAT,
            "{" HELLO ", 'tools': [" TOOL "], 'tool_choice': 'none'}", &rules);
    assert_null(a.tools);
    request_fini(&a);
    read_by(&a, REQUEST_CHAT,
            "{" HELLO ", 'tools': [" TOOL "], 'tool_choice': {'type':"
            "'function', 'function': {'name': 'f'}},"
            "'parallel_tool_calls': false}",
            &can_all);
    assert_true(a.must_call && a.single_call);
    assert_string_equal(a.call, "f");
    request_fini(&a);
    refused(REQUEST_CHAT,
            "{" HELLO ", 'tools': [" TOOL "], 'tool_choice': 'required'}",
            "tool_choice", "not supported; leave it out");
    refused(REQUEST_CHAT,
            "{" HELLO ", 'tools': [" TOOL "], 'tool_choice': {'type':"
            "'function', 'function': {'name': 'g'}}}",
            "tool_choice", "is not in tools");
    refused(REQUEST_CHAT,
            "{" HELLO ", 'tools': [" TOOL "], 'tool_choice': 'required',"
            "'grammar': 'root ::= [a]'}",
            "tool_choice", "leave grammar out");
}

/* Reasoning is switched, limited and placed by the fields of several services,
 * in every protocol. */
TEST(ask_takes_all_fields_about_reasoning)
{
    static const struct {
        /* fields of the request, and extra variables of the template; NULL for
         * none */
        const char *fields, *extra;
        int64_t budget; /* expected limit of reasoning in tokens; -1 for none */
        enum request_reasoning where;
    } row[] = {
        {"'enable_thinking': false", "{" THINKS_NOT "}", -1, REASONING_APART},
        {"'thinking': true", "{" THINKS "}", -1, REASONING_APART},
        {"'thinking': {'type': 'enabled', 'budget_tokens': 2048}",
         "{" THINKS "}", 2048, REASONING_APART},
        {"'thinking': {'type': 'disabled'}", "{" THINKS_NOT "}", -1,
         REASONING_APART},
        {"'thinking': {'type': 'adaptive'}", "{'thinking_mode': 'adaptive'}",
         -1, REASONING_APART},
        {"'think': 'high'",
         "{" THINKS ", 'reasoning_effort': 'high', 'thinking_effort': 'high'}",
         -1, REASONING_APART},
        {"'reasoning': {'enabled': false}", "{" THINKS_NOT "}", -1,
         REASONING_APART},
        {"'reasoning': {'effort': 'minimal', 'exclude': true}",
         "{'reasoning_effort': 'minimal', 'thinking_effort': 'minimal'}", -1,
         REASONING_HIDDEN},
        {"'reasoning': {'max_tokens': 7}", NULL, 7, REASONING_APART},
        {"'reasoning_effort': 'none'", "{" THINKS_NOT "}", -1, REASONING_APART},
        {"'reasoning_effort': null", NULL, -1, REASONING_APART},
        {"'thinking_budget_tokens': 0", "{" THINKS_NOT "}", 0, REASONING_APART},
        {"'thinking_budget_tokens': -1", NULL, -1, REASONING_APART},
        {"'reasoning_budget': 5, 'enable_thinking': true", "{" THINKS "}", 5,
         REASONING_APART},
        {"'chat_template_kwargs': {'enable_thinking': false},"
         "'reasoning_effort': 'high'",
         "{" THINKS_NOT
         ", 'reasoning_effort': 'high', 'thinking_effort': 'high'}",
         -1, REASONING_APART},
        {"'chat_template_kwargs': {'thinking': true}", "{" THINKS "}", -1,
         REASONING_APART},
        {"'include_reasoning': false", NULL, -1, REASONING_HIDDEN},
        {"'reasoning_format': 'none'", NULL, -1, REASONING_WITHIN},
        {"'reasoning_format': 'hidden'", NULL, -1, REASONING_HIDDEN},
    };
    static const enum request_kind kinds[] = {REQUEST_CHAT, REQUEST_MESSAGES,
                                              REQUEST_RESPONSES};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        for (int k = 0; k < 3; k++) {
            struct request a;
            char text[512];

            snprintf(text, sizeof(text), "{%s, 'max_tokens': 9, %s}",
                     kinds[k] == REQUEST_RESPONSES ? "'input': 'ask'" : HELLO,
                     row[i].fields);
            read_by(&a, kinds[k], text, &rules);
            if (row[i].extra != NULL)
                same_json(a.extra, row[i].extra);
            else
                assert_null(a.extra);
            assert_int_equal(a.limits_thinking ? a.think_tokens : -1,
                             row[i].budget);
            assert_int_equal(a.reasoning, row[i].where);
            request_fini(&a);
        }
    refused(REQUEST_CHAT, "{" HELLO ", 'enable_thinking': 'no'}",
            "enable_thinking", "true");
    refused(REQUEST_CHAT, "{" HELLO ", 'thinking': 3}", "thinking", "true");
    refused(REQUEST_MESSAGES,
            "{" HELLO ", 'max_tokens': 9, 'thinking': {'budget_tokens': -2}}",
            "thinking.budget_tokens", "-1");
}

TEST(ask_messages_become_the_templates)
{
    struct request a;

    read_by(
        &a, REQUEST_MESSAGES,
        "{'max_tokens': 9, 'stop_sequences': ['x'], 'system': [{'type':"
        "'text', 'text': 'be'}], 'thinking': {'type': 'disabled'},"
        "'tools': [{'name': 'f', 'description': 'd', 'input_schema':"
        "{'type': 'object'}}], 'tool_choice': {'type': 'auto'},"
        "'messages': [{'role': 'user', 'content': 'ask'},"
        "{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking':"
        "'hm', 'signature': ''}, {'type': 'text', 'text': 'say'},"
        "{'type': 'tool_use', 'id': 't1', 'name': 'f', 'input': {'a': 1}}]},"
        "{'role': 'user', 'content': [{'type': 'tool_result', 'tool_use_id':"
        "'t1', 'content': [{'type': 'text', 'text': 'r'}]}, {'type': 'text',"
        "'text': 'and'}]}]}",
        &rules);
    same_json(a.messages,
              "[{'role': 'system', 'content': 'be'},"
              "{'role': 'user', 'content': 'ask'},"
              "{'role': 'assistant', 'content': 'say', 'reasoning_content':"
              "'hm', 'tool_calls': [{'id': 't1', 'type': 'function',"
              "'function': {'name': 'f', 'arguments': {'a': 1}}}]},"
              "{'role': 'tool', 'tool_call_id': 't1', 'content': 'r'},"
              "{'role': 'user', 'content': 'and'}]");
    same_json(a.tools, "[" TOOL "]");
    same_json(a.extra, "{" THINKS_NOT "}");
    assert_int_equal(a.max_tokens, 9);
    assert_string_equal(a.stop[0], "x");
    request_fini(&a);
    refused(REQUEST_MESSAGES,
            "{'messages': [{'role': 'user', 'content': [{'type': 'image'}]}]}",
            "messages[0].content[0].type", "\"image\" is not supported");
    refused(REQUEST_MESSAGES,
            "{'messages': [{'role': 'tool', 'content': 'x'}]}",
            "messages[0].role", "\"user\"");
}

/* Content parts that are files with a text become text, in all protocols; other
 * files are rejected by the field that names their kind, except in the results
 * of tools, where a note takes their place. */
TEST(ask_files_become_text)
{
#define PARTS(list)                                                            \
    "{'max_tokens': 9, 'messages': [{'role': 'user', 'content':" list "}]}"
#define ITEMS(list) "{'input': [{'role': 'user', 'content':" list "}]}"
#define RESULT(list)                                                           \
    PARTS("[{'type': 'tool_result', 'tool_use_id': 't', 'content':" list "}]")
#define TEXT "'source': {'type': 'text', 'media_type': 'text/plain', 'data':"
    static const struct {
        enum request_kind kind;
        const char *body, *content;
    } kept[] = {
        {REQUEST_MESSAGES,
         PARTS("[{'type': 'text', 'text': 'see'}, {'type': 'document'," TEXT
               "'body'}, 'title': 'T', 'context': 'C', 'citations':"
               "{'enabled': true}}]"),
         "see\nT\nC\nbody"},
        {REQUEST_MESSAGES, PARTS("[{'type': 'document'," TEXT "'body'}}]"),
         "body"},
        {REQUEST_MESSAGES,
         PARTS("[{'type': 'document', 'title': null, 'source': {'type':"
               "'content', 'content': [{'type': 'text', 'text': 'a'},"
               "{'type': 'text', 'text': 'b'}]}}, {'type': 'text', 'text':"
               "'c'}]"),
         "a\nb\nc"},
        {REQUEST_MESSAGES,
         PARTS("[{'type': 'document', 'source': {'type': 'content',"
               "'content': 'a'}}]"),
         "a"},
        {REQUEST_MESSAGES,
         PARTS("[{'type': 'search_result', 'source': 'u', 'title': 'T',"
               "'content': [{'type': 'text', 'text': 'r'}]}]"),
         "T\nu\nr"},
        {REQUEST_MESSAGES, RESULT("[{'type': 'document'," TEXT "'body'}}]"),
         "body"},
        {REQUEST_MESSAGES,
         RESULT("[{'type': 'search_result', 'source': 'u', 'title': 'T',"
                "'content': [{'type': 'text', 'text': 'r'}]}]"),
         "T\nu\nr"},
        {REQUEST_MESSAGES,
         RESULT("[{'type': 'document', 'source': {'type': 'base64',"
                "'media_type': 'application/pdf', 'data': ''}}]"),
         "[document left out]"},
        {REQUEST_RESPONSES,
         ITEMS("[{'type': 'input_text', 'text': 'see'}, {'type':"
               "'input_file', 'filename': 'a.txt', 'file_data':"
               "'data:text/plain;base64,SGkh'}]"),
         "see\na.txt\nHi!"},
        {REQUEST_RESPONSES,
         ITEMS("[{'type': 'input_file', 'file_data':"
               "'data:text/markdown;charset=utf-8;base64,SGk='}]"),
         "Hi"},
        {REQUEST_CHAT,
         PARTS("[{'type': 'file', 'file': {'filename': 'a.json', 'file_data':"
               "'data:application/json;base64,e30='}}]"),
         "a.json\n{}"},
    };
    static const struct {
        enum request_kind kind;
        const char *body, *param, *says;
    } not_kept[] = {
        {REQUEST_MESSAGES,
         PARTS("[{'type': 'document', 'source': {'type': 'base64',"
               "'media_type': 'application/pdf', 'data': ''}}]"),
         "messages[0].content[0].source.type", "\"base64\" is not supported"},
        {REQUEST_MESSAGES,
         PARTS("[{'type': 'document', 'source': {'type': 'url', 'url': 'u'}}]"),
         "messages[0].content[0].source.type", "\"url\" is not supported"},
        {REQUEST_MESSAGES,
         PARTS("[{'type': 'document', 'source': {'type': 'text',"
               "'media_type': 'image/png', 'data': ''}}]"),
         "messages[0].content[0].source.media_type", "\"image/png\""},
        {REQUEST_MESSAGES, PARTS("[{'type': 'document'}]"),
         "messages[0].content[0].source", "missing"},
        {REQUEST_MESSAGES,
         PARTS("[{'type': 'document', 'source': {'type': 'text'}}]"),
         "messages[0].content[0].source.data", "missing"},
        {REQUEST_MESSAGES,
         PARTS("[{'type': 'document', 'source': {'type': 'content',"
               "'content': [{'type': 'image'}]}}]"),
         "messages[0].content[0].source.content[0].type", "\"image\""},
        {REQUEST_RESPONSES,
         ITEMS("[{'type': 'input_file', 'file_data':"
               "'data:application/pdf;base64,SGk='}]"),
         "input[0].content[0].file_data", "\"application/pdf\""},
        {REQUEST_RESPONSES,
         ITEMS("[{'type': 'input_file', 'file_data':"
               "'data:text/plain;base64,S*k='}]"),
         "input[0].content[0].file_data", "base64 after the comma"},
        {REQUEST_RESPONSES,
         ITEMS("[{'type': 'input_file', 'file_data': 'SGk='}]"),
         "input[0].content[0].file_data", "data:text/plain"},
        {REQUEST_RESPONSES, ITEMS("[{'type': 'input_file', 'file_id': 'f'}]"),
         "input[0].content[0].file_id", "a file by id is not supported"},
        {REQUEST_CHAT, PARTS("[{'type': 'file'}]"),
         "messages[0].content[0].file", "missing"},
        {REQUEST_CHAT, PARTS("[{'type': 'file', 'file': {'file_url': 'u'}}]"),
         "messages[0].content[0].file.file_url", "not supported"},
    };
#undef PARTS
#undef ITEMS
#undef RESULT
#undef TEXT

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        struct request a;
        json_t *all, *last;

        read_by(&a, kept[i].kind, kept[i].body, &rules);
        all = json_loads(a.messages, 0, NULL);
        last = json_array_get(all, json_array_size(all) - 1);
        assert_string_equal(json_string_value(json_object_get(last, "content")),
                            kept[i].content);
        json_decref(all);
        request_fini(&a);
    }
    for (size_t i = 0; i < sizeof not_kept / sizeof not_kept[0]; i++)
        refused(not_kept[i].kind, not_kept[i].body, not_kept[i].param,
                not_kept[i].says);
}

TEST(ask_responses_become_the_templates)
{
    struct request a;

    read_by(&a, REQUEST_RESPONSES,
            "{'instructions': 'be', 'max_output_tokens': 3, 'reasoning':"
            "{'effort': 'high'}, 'tools': [{'type': 'function', 'name': 'f',"
            "'description': 'd', 'parameters': {'type': 'object'}}],"
            "'input': [{'role': 'user', 'content': [{'type': 'input_text',"
            "'text': 'ask'}]}, {'type': 'reasoning', 'summary': [], 'content':"
            "[{'type': 'reasoning_text', 'text': 'hm'}]}, {'type': 'message',"
            "'role': 'assistant', 'content': [{'type': 'output_text', 'text':"
            "'say'}]}, {'type': 'function_call', 'call_id': 't1', 'name': 'f',"
            "'arguments': '{\\'a\\': 1}'}, {'type': 'function_call_output',"
            "'call_id': 't1', 'output': 'r'}]}",
            &rules);
    same_json(a.messages,
              "[{'role': 'system', 'content': 'be'},"
              "{'role': 'user', 'content': 'ask'},"
              "{'role': 'assistant', 'content': 'say', 'reasoning_content':"
              "'hm', 'tool_calls': [{'id': 't1', 'type': 'function',"
              "'function': {'name': 'f', 'arguments': {'a': 1}}}]},"
              "{'role': 'tool', 'tool_call_id': 't1', 'content': 'r'}]");
    same_json(a.tools, "[" TOOL "]");
    same_json(a.extra,
              "{'reasoning_effort': 'high', 'thinking_effort': 'high'," THINKS
              "}");
    assert_int_equal(a.max_tokens, 3);
    request_fini(&a);
    read_by(&a, REQUEST_RESPONSES, "{'input': 'ask'}", &rules);
    same_json(a.messages, "[{'role': 'user', 'content': 'ask'}]");
    request_fini(&a);
    refused(REQUEST_RESPONSES, "{'input': 'x', 'previous_response_id': 'r'}",
            "previous_response_id", "not found");
}

TEST(ask_schemas_of_all_protocols_are_kept)
{
    static const char schema[] = "{'type': 'array'}";
    static const struct {
        enum request_kind kind;
        const char *body, *param;
    } row[] = {
        {REQUEST_CHAT,
         "{" HELLO ", 'response_format': {'type': 'json_schema',"
         "'json_schema': {'name': 'x', 'schema': {'type': 'array'}}}}",
         "response_format"},
        {REQUEST_CHAT,
         "{" HELLO ", 'response_format': {'type': 'json_object',"
         "'schema': {'type': 'array'}}}",
         "response_format"},
        {REQUEST_COMPLETION,
         "{'prompt': 'x', 'json_schema': {'type': 'array'}}", "json_schema"},
        {REQUEST_MESSAGES,
         "{" HELLO ", 'output_config': {'format': {'type': 'json_schema',"
         "'schema': {'type': 'array'}}}}",
         "output_config.format"},
        {REQUEST_RESPONSES,
         "{'input': 'x', 'text': {'format': {'type': 'json_schema', 'name':"
         "'n', 'schema': {'type': 'array'}}}}",
         "text.format"},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        struct request a;

        read_by(&a, row[i].kind, row[i].body, &can_all);
        same_json(a.schema, schema);
        request_fini(&a);
        refused(row[i].kind, row[i].body, row[i].param,
                "not supported; leave it out");
    }
    refused_by(REQUEST_COMPLETION,
               "{'prompt': 'x', 'json_schema': {'type': 'array'},"
               "'grammar': 'root ::= x'}",
               "grammar", "cannot be combined", &can_all);
}

/* The fields by which clients of other servers constrain the output. None is
 * ignored, in no protocol: it is kept, or it is rejected by its name. */
TEST(ask_fields_that_constrain_are_kept_in_all_protocols)
{
    static const struct {
        const char *given, *schema, *grammar;
        bool regex;
    } kept[] = {
        {"'response_format': {'type': 'json_schema', 'json_schema': {'name':"
         "'n', 'strict': true, 'schema': {'type': 'array'}}}",
         "{'type': 'array'}", NULL, false},
        {"'response_format': {'type': 'json_schema', 'schema': {'type':"
         "'array'}}",
         "{'type': 'array'}", NULL, false},
        {"'response_format': {'type': 'json_object'}", "{'type': 'object'}",
         NULL, false},
        {"'response_format': {'schema': {'type': 'array'}}",
         "{'type': 'array'}", NULL, false},
        {"'response_format': {'type': 'json', 'value': {'type': 'array'}}",
         "{'type': 'array'}", NULL, false},
        {"'response_format': {'type': 'grammar', 'grammar': 'root ::= [a]'}",
         NULL, "root ::= [a]", false},
        {"'response_format': {'type': 'regex', 'value': 'a+'}", NULL, "a+",
         true},
        {"'response_format': {'type': 'text'}", NULL, NULL, false},
        {"'response_format': {}", NULL, NULL, false},
        {"'output_format': {'type': 'json_schema', 'schema': {'type':"
         "'array'}}",
         "{'type': 'array'}", NULL, false},
        {"'output_config': {'format': {'type': 'json_schema', 'schema':"
         "{'type': 'array'}}}",
         "{'type': 'array'}", NULL, false},
        {"'json_schema': {'type': 'array'}", "{'type': 'array'}", NULL, false},
        {"'json_schema': {}", NULL, NULL, false},
        {"'guided_json': {'type': 'array'}", "{'type': 'array'}", NULL, false},
        {"'guided_json': '{\\u0022type\\u0022: \\u0022array\\u0022}'",
         "{'type': 'array'}", NULL, false},
        {"'guided_regex': '[ab]+'", NULL, "[ab]+", true},
        {"'guided_grammar': 'root ::= [a]'", NULL, "root ::= [a]", false},
        {"'guided_choice': ['yes', 'n\\u0022o']", NULL,
         "root ::= \"yes\" | \"n\\\"o\"", false},
        {"'structured_outputs': {'json': {'type': 'array'}}",
         "{'type': 'array'}", NULL, false},
        {"'structured_outputs': {'regex': 'a|b', 'json': null}", NULL, "a|b",
         true},
        {"'structured_outputs': {'choice': ['a\\n']}", NULL,
         "root ::= \"a\\x0A\"", false},
        {"'structured_outputs': {'grammar': 'root ::= [a]'}", NULL,
         "root ::= [a]", false},
        {"'structured_outputs': {'json_object': true}", "{'type': 'object'}",
         NULL, false},
        {"'nvext': {'guided_json': {'type': 'array'}}", "{'type': 'array'}",
         NULL, false},
        {"'regex': 'a'", NULL, "a", true},
        {"'ebnf': 'root ::= [a]'", NULL, "root ::= [a]", false},
        {"'response_format': {'type': 'ebnf', 'ebnf': 'root ::= [a]'}", NULL,
         "root ::= [a]", false},
        {"'response_format': {'type': 'ebnf', 'grammar': 'root ::= [a]'}", NULL,
         "root ::= [a]", false},
        {"'response_format': {'type': 'gbnf', 'value': 'root ::= [a]'}", NULL,
         "root ::= [a]", false},
        {"'grammar': 'root ::= [a]'", NULL, "root ::= [a]", false},
        {"'grammar': {'type': 'regex', 'value': 'a'}", NULL, "a", true},
        {"'grammar': ''", NULL, NULL, false},
        {"'format': 'json'", "{'type': 'object'}", NULL, false},
        {"'format': {'type': 'array'}", "{'type': 'array'}", NULL, false},
        {"'format': ''", NULL, NULL, false},
    };
    static const struct {
        const char *given, *param, *says;
    } not_kept[] = {
        {"'structural_tag': '{}'", "structural_tag", "not supported"},
        {"'response_format': {'type': 'structural_tag', 'structures': []}",
         "response_format.type", "structural tags are not supported"},
        {"'structured_outputs': {'structural_tag': '{}'}",
         "structured_outputs.structural_tag", "not supported"},
        {"'guided_whitespace_pattern': ' ?'", "guided_whitespace_pattern",
         "not supported"},
        {"'guided_choice': []", "guided_choice", "a list of one text or more"},
        {"'guided_choice': [1]", "guided_choice", "a list of texts"},
        {"'structured_outputs': {'choice': [99999999999999999999]}",
         "structured_outputs.choice", "is 99999999999999999999; it must be"},
        {"'grammar': 99999999999999999999", "grammar", "a string"},
        {"'guided_regex': 5", "guided_regex", "a string"},
        {"'guided_json': 'x'", "guided_json", "a JSON Schema"},
        {"'format': 'xml'", "format", "\"json\" or a JSON Schema"},
        {"'guided_regex': 'a', 'guided_choice': ['a']", "guided_choice",
         "cannot be combined with guided_regex"},
        {"'response_format': {'type': 'json_object'}, 'grammar': 'root ::= a'",
         "grammar", "cannot be combined with response_format"},
    };
    static const struct {
        enum request_kind kind;
        const char *body;
    } kinds[] = {{REQUEST_CHAT, "{" HELLO ", %s}"},
                 {REQUEST_COMPLETIONS, "{'prompt': 'x', %s}"},
                 {REQUEST_COMPLETION, "{'prompt': 'x', %s}"},
                 {REQUEST_MESSAGES, "{" HELLO ", 'max_tokens': 9, %s}"},
                 {REQUEST_RESPONSES, "{'input': 'x', %s}"}};
    char body[512];

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
            struct request a;

            snprintf(body, sizeof body, kinds[k].body, kept[i].given);
            read_by(&a, kinds[k].kind, body, &can_all);
            if ((a.schema != NULL) != (kept[i].schema != NULL) ||
                (a.grammar != NULL) != (kept[i].grammar != NULL))
                fail_msg("%s: schema %s, grammar %s", body,
                         a.schema ? a.schema : "-",
                         a.grammar ? a.grammar : "-");
            if (a.schema)
                same_json(a.schema, kept[i].schema);
            if (a.grammar) {
                assert_string_equal(a.grammar, kept[i].grammar);
                assert_int_equal(a.regex, kept[i].regex);
            }
            request_fini(&a);
        }
        for (size_t i = 0; i < sizeof not_kept / sizeof not_kept[0]; i++) {
            snprintf(body, sizeof body, kinds[k].body, not_kept[i].given);
            refused_by(kinds[k].kind, body, not_kept[i].param, not_kept[i].says,
                       &can_all);
        }
    }
}

/* Integers of any size are JSON. */
TEST(ask_takes_integers_beyond_64_bits)
{
    static const char *const number[] = {
        "18446744073709551615", "18446744073709552000",
        "9223372036854775808",  "-9223372036854775809",
        "9223372036854775807",  "10000000000000000000000000000000000000000"};
    static const char *const schema[] = {
        "{'prompt': 'x', 'json_schema': {'const': %s}}",
        "{'prompt': 'x', 'guided_json': {'const': %s}}",
        "{'prompt': 'x', 'guided_json': '{\\u0022const\\u0022: %s}'}",
        "{'prompt': 'x', 'format': {'const': %s}}",
        "{'prompt': 'x', 'grammar': {'type': 'json', 'value': {'const': %s}}}",
        "{'prompt': 'x', 'structured_outputs': {'json': {'const': %s}}}",
        "{'prompt': 'x', 'nvext': {'guided_json': {'const': %s}}}",
        "{'prompt': 'x', 'output_format': {'type': 'json_schema', 'schema': "
        "{'const': %s}}}",
        "{'prompt': 'x', 'output_config': {'format': {'schema': {'const': "
        "%s}}}}",
        "{'prompt': 'x', 'response_format': {'type': 'json_schema', "
        "'json_schema': {'schema': {'const': %s}}}}"};
    char body[512];

    for (size_t i = 0; i < sizeof number / sizeof number[0]; i++) {
        struct request a;

        snprintf(body, sizeof body,
                 "{'prompt': 'x 99999999999999999999 \\u0022', 'metadata':"
                 "[%s, {'a': %s}], 'n_predict': 3}",
                 number[i], number[i]);
        read_by(&a, REQUEST_COMPLETION, body, &can_all);
        assert_int_equal(a.max_tokens, 3);
        assert_string_equal(a.prompt[0].piece[0].text,
                            "x 99999999999999999999 \"");
        request_fini(&a);
        for (size_t k = 0; k < sizeof schema / sizeof schema[0]; k++) {
            char want[128];

            snprintf(body, sizeof body, schema[k], number[i]);
            snprintf(want, sizeof want, "{\"const\":%s}", number[i]);
            read_by(&a, REQUEST_COMPLETION, body, &can_all);
            assert_string_equal(a.schema, want);
            request_fini(&a);
        }
        snprintf(body, sizeof body, "{'prompt': 'x', 'top_k': %s}", number[i]);
        refused_by(REQUEST_COMPLETION, body, "top_k", "it must be", &can_all);
    }
}

/* ---- tasks --------------------------------------------------------------- */

TEST(ask_prompts_become_tokens)
{
    static const struct request_rules by = {.n_vocab = 1 << 20,
                                            .max_tokens = -1};
    pl_tokenizer *words = NULL;
    int32_t *ids = NULL, *begin = NULL, *rest = NULL;
    int64_t n = 0, n_begin = 0, n_rest = 0;
    struct request a;
    pl_err err;

    TEST_OK(pl_tokenizer_open(&words, test_model(), &err), err);
    TEST_OK(
        pl_tokenize(words, "Once", 4, PL_ADD_SPECIAL, &begin, &n_begin, &err),
        err);
    TEST_OK(pl_tokenize(words, " end", 4, 0, &rest, &n_rest, &err), err);
    read_by(&a, REQUEST_COMPLETION, "{'prompt': ['Once', 5, 6, ' end']}", &by);
    for (int64_t k = 0; alloc_each(&k);) {
        alloc_ran(request_prompt_tokens(&a.prompt[0], words, &ids, &n, &err));
        if (ids != NULL) {
            assert_int_equal(n, n_begin + 2 + n_rest);
            assert_memory_equal(ids, begin, (size_t)n_begin * sizeof(*ids));
            assert_int_equal(ids[n_begin + 1], 6);
            assert_memory_equal(ids + n_begin + 2, rest,
                                (size_t)n_rest * sizeof(*ids));
        }
        free(ids);
    }
    request_fini(&a);
    free(begin);
    free(rest);
    pl_tokenizer_free(words);
}

TEST(ask_conversations_become_tokens_with_one_bos)
{
    static const char form[] =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}";
    pl_tokenizer *words = NULL;
    pl_template *t = NULL;
    int32_t *ids = NULL;
    int64_t n = 0;
    struct request a;
    size_t len;
    char *text;
    pl_err err;

    TEST_OK(pl_tokenizer_open(&words, test_model(), &err), err);
    TEST_OK(pl_template_create(&t, form, strlen(form), NULL, &err), err);
    read_by(&a, REQUEST_CHAT, "{" HELLO ", 'add_generation_prompt': false}",
            &rules);
    assert_true(a.no_generation_prompt);
    TEST_OK(request_render(&a, t, 1, &text, &len, &err), err);
    assert_string_equal(text, "<user>Hi");
    TEST_OK(request_chat_tokens(words, text, len, &ids, &n, &err), err);
    assert_true(n > 0);
    assert_int_equal(ids[0] == pl_tokenizer_bos(words),
                     pl_tokenizer_adds_bos(words));
    assert_true(n < 2 || ids[1] != pl_tokenizer_bos(words));
    free(ids);
    free(text);
    request_fini(&a);
    pl_template_free(t);
    pl_tokenizer_free(words);
}

/* The assistant's text at the end is the end of the prompt, whatever the
 * template adds or removes there. A template that changes the text leads to a
 * rejection. */
TEST(ask_conversations_end_with_what_the_assistant_has_begun)
{
    static const struct {
        const char *content, *last, *want;
    } cases[] = {
        {"m.content", "On", "<user>On<assistant>On"},
        {"m.content | trim", " On on \\n", "<user>On<assistant>On on \n"},
        {"m.content + '<end>'", "e", "<user>On<end><assistant>e"},
        {"m.content + '<end>'", "7081542936",
         "<user>On<end><assistant>"
         "7081542936"},
        {"m.content | upper", "On", NULL},
    };
    char form[300], body[300];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pl_template *t = NULL;
        struct request a;
        char *text = NULL;
        size_t len = 0;
        pl_status s;
        pl_err err;

        snprintf(form, sizeof form,
                 "{%% for m in messages %%}<{{ m.role }}>{{ %s }}{%% endfor %%}"
                 "{%% if add_generation_prompt %%}<assistant>{%% endif %%}",
                 cases[i].content);
        TEST_OK(pl_template_create(&t, form, strlen(form), NULL, &err), err);
        snprintf(body, sizeof body,
                 "{'messages': [{'role': 'user', 'content': 'On'}, "
                 "{'role': 'assistant', 'content': '%s'}]}",
                 cases[i].last);
        read_by(&a, REQUEST_CHAT, body, &rules);
        s = request_render(&a, t, 1, &text, &len, &err);
        if (cases[i].want) {
            TEST_OK(s, err);
            assert_string_equal(text, cases[i].want);
            assert_int_equal(len, strlen(text));
        } else {
            assert_int_equal(s, PL_UNSUPPORTED);
            assert_non_null(strstr(err.message, "add_generation_prompt"));
        }
        free(text);
        request_fini(&a);
        read_by(&a, REQUEST_RESPONSES,
                "{'input': [{'role': 'assistant', 'content': 'On'}]}", &rules);
        assert_null(a.begun);
        request_fini(&a);
        pl_template_free(t);
    }
}

/* continue_final_message continues also reasoning, and demands a text. */
TEST(ask_a_final_message_is_continued_on_demand)
{
    static const char form[] =
        "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}"
        "<think>{{ m.reasoning_content | trim }}</think>{% endif %}"
        "{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}";
    static const struct {
        const char *body, *want;
    } cases[] = {
        {"'content': 'On'}], 'continue_final_message': true", "On"},
        {"'content': 'On'}], 'continue_final_message': true,"
         "'add_generation_prompt': false",
         "On"},
        {"'reasoning_content': ' So '}], 'continue_final_message': true",
         "<think>So "},
        {"'reasoning_content': 'So', 'content': 'On'}],"
         "'continue_final_message': true",
         "<think>So</think>On"},
        {"'reasoning_content': 'So'}]", "<think>So</think><assistant>"},
    };
    pl_template *t = NULL;
    pl_err err;

    TEST_OK(pl_template_create(&t, form, strlen(form), NULL, &err), err);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct request a;
        char body[300], want[300], *text = NULL;

        snprintf(body, sizeof body, "{'messages': [{'role': 'assistant', %s}",
                 cases[i].body);
        snprintf(want, sizeof want, "<assistant>%s", cases[i].want);
        read_by(&a, REQUEST_CHAT, body, &rules);
        TEST_OK(request_render(&a, t, 1, &text, NULL, &err), err);
        assert_string_equal(text, want);
        free(text);
        request_fini(&a);
    }
    pl_template_free(t);
    refused(REQUEST_CHAT,
            "{" HELLO ", 'continue_final_message': true, "
            "'add_generation_prompt': true}",
            "continue_final_message", "add_generation_prompt");
    refused(REQUEST_CHAT, "{" HELLO ", 'continue_final_message': true}",
            "continue_final_message", "not a text of the assistant");
}

TEST(ask_jobs_of_choices_differ_by_their_seed)
{
    pl_sampling own;
    struct task_params params = {0};
    struct request a;

    read_by(&a, REQUEST_COMPLETIONS,
            "{'prompt': ['x', 'y'], 'n': 3, 'seed': 10, 'max_tokens': 4,"
            "'ignore_eos': true, 'cache_prompt': false, 'id_slot': 2}",
            &rules);
    request_fill_params(&a, 5, &params, &own);
    assert_int_equal(params.slot, 2);
    assert_int_equal(params.sampling->seed, 12);
    assert_int_equal(params.max_tokens, 4);
    assert_true(params.ignore_end && params.no_cache);
    request_fini(&a);
    read_by(&a, REQUEST_COMPLETIONS,
            "{'prompt': ['x', 'y'], 'n': 3, 'seed': 10}", &rules);
    request_fill_params(&a, 3, &params, &own);
    assert_int_equal(params.sampling->seed, 10);
    assert_int_equal(params.slot, -1);
    request_fini(&a);
}

TEST(logprobs_are_those_of_all_tokens_in_order)
{
    uint64_t seed = test_seed();

    for (int run = 0; run < 300; run++) {
        enum { MOST = 50 };
        float logits[MOST];
        struct logprob top[MOST], of = {0};
        int n = 1 + (int)test_below(&seed, MOST);
        int n_top = (int)test_below(&seed, MOST), got;
        double sum = 0;

        /* draws integers, so that some logits are equal */
        for (int i = 0; i < n; i++) {
            logits[i] = (float)(test_below(&seed, 20) - 10) + 500.0f;
            sum += exp((double)logits[i] - 500);
        }
        of.id = (int32_t)test_below(&seed, n);
        got = logprob_read(logits, n, &of, top, n_top);
        assert_int_equal(got, n_top < n ? n_top : n);
        assert_true(fabs(of.p - (logits[of.id] - 500 - log(sum))) < 1e-9);
        for (int i = 0; i < got; i++) {
            /* number of tokens with a larger logit, or an equal one and a lower
             * id */
            int before = 0;

            for (int k = 0; k < n; k++)
                before += logits[k] > logits[top[i].id] ||
                          (logits[k] == logits[top[i].id] && k < top[i].id);
            assert_int_equal(before, i);
        }
    }
}

/* ---- rejections ---------------------------------------------------------- */

/* Clients send a request again that got 429, so only a full queue gives it
 * (submit_tasks). */
TEST(refusals_of_limits_are_no_rate_limits)
{
    const pl_err err = {.message = "too many steps"};
    struct api_error why;
    static const pl_status all[] = {
        PL_BAD_ARGUMENT, PL_NOT_FOUND, PL_UNSUPPORTED, PL_BAD_FILE,
        PL_NO_MEMORY,    PL_DEVICE,    PL_CANCELLED,   PL_IO};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_false(api_error_set_status(&why, all[i], &err));
        assert_true(why.status >= 400 && why.status != 429);
    }
    api_error_set_status(&why, PL_FULL, &err);
    assert_int_equal(why.status, 400);
}

TEST(refusals_have_the_shape_of_their_protocol)
{
    struct api_error why = {0};
    char *body;

    assert_false(
        api_error_set(&why, 400, "invalid_value", "x", "no \"%s\"", "y"));
    body = api_error_body(&why, API_ERROR_OPENAI);
    same_json(body, "{'error': {'message': 'no \\'y\\'', 'type':"
                    "'invalid_request_error', 'param': 'x',"
                    "'code': 'invalid_value'}}");
    free(body);
    assert_false(api_error_set(&why, 503, NULL, NULL, "\xff"));
    body = api_error_body(&why, API_ERROR_OPENAI);
    same_json(body, "{'error': {'message': '\\ufffd', 'type':"
                    "'unavailable_error', 'param': null, 'code': null}}");
    free(body);
    body = api_error_body(&why, request_shape(REQUEST_MESSAGES));
    same_json(body, "{'type': 'error', 'error': {'type': 'overloaded_error',"
                    "'message': '\\ufffd'}}");
    free(body);
}

TEST(refusals_know_their_path)
{
    static const struct {
        const char *path;
        enum api_error_shape shape;
    } row[] = {{"/v1/chat/completions", API_ERROR_OPENAI},
               {"/v1/messages", API_ERROR_BLOCKS},
               {"/api/v1/messages/count_tokens", API_ERROR_BLOCKS},
               {"/v1/messages2", API_ERROR_OPENAI},
               {"/api/chat", API_ERROR_OLLAMA},
               {"/api/blobs/sha256:0", API_ERROR_OLLAMA},
               {"/apiary", API_ERROR_OPENAI},
               {"", API_ERROR_OPENAI}};
#define KEY_ERROR "'type': 'authentication_error', 'message': 'no key'"
    static const char *const want[] = {
        [API_ERROR_OPENAI] =
            "{'error': {" KEY_ERROR ", 'param': null, 'code': null}}",
        [API_ERROR_BLOCKS] = "{'type': 'error', 'error': {" KEY_ERROR "}}",
        [API_ERROR_OLLAMA] = "{'error': 'no key'}"};
#undef KEY_ERROR

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        char *body = api_error_body_of_path(401, "no key", row[i].path);

        same_json(body, want[row[i].shape]);
        free(body);
    }
}

static bool same_text(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

/* If memory runs out, a request is rejected, or nothing is missing in it but
 * what jansson's reader itself has lost: it may shorten a string. */
TEST(ask_survives_every_allocation_that_fails)
{
    static const struct {
        enum request_kind kind;
        const char *body;
    } row[] = {
        {REQUEST_COMPLETION,
         "{'prompt': ['a', [1, 2]], 'stop': ['x'],"
         "'logit_bias': {'3': 1}, 'json_schema': {'a': 1}}"},
        {REQUEST_CHAT,
         "{'messages': [{'role': 'developer', 'content': [{'type': 'text',"
         "'text': 'a'}]}, {'role': 'assistant', 'tool_calls': [{'id': 'c',"
         "'function': {'name': 'f', 'arguments': {'x': 1}}}]}],"
         "'reasoning_effort': 'low', 'tools': [" TOOL "],"
         "'response_format': {'type': 'json_object'}}"},
        {REQUEST_MESSAGES,
         "{'system': 's', 'thinking': {'type': 'enabled'}, 'messages': ["
         "{'role': 'assistant', 'content': [{'type': 'thinking', 'thinking':"
         "'t'}, {'type': 'tool_use', 'id': 'i', 'name': 'f'}]}, {'role':"
         "'user', 'content': [{'type': 'tool_result', 'tool_use_id': 'i',"
         "'content': 'x'}]}]}"},
        {REQUEST_RESPONSES,
         "{'instructions': 'i', 'input': [{'type': 'reasoning', 'summary': ["
         "{'type': 'summary_text', 'text': 't'}]}, {'role': 'assistant',"
         "'content': 'a'}, {'type': 'function_call', 'call_id': 'i', 'name':"
         "'f'}, {'type': 'function_call_output', 'call_id': 'i', 'output':"
         "'o'}], 'tools': [{'type': 'namespace', 'name': 'n', 'tools': [{"
         "'type': 'function', 'name': 'f'}]}], 'tool_choice': {'type':"
         "'function', 'namespace': 'n', 'name': 'f'}}"},
        {REQUEST_OLLAMA_CHAT,
         "{'think': 'low', 'format': {'a': 1}, 'options': {'seed': 1, 'stop':"
         "['x'], 'num_predict': 3}, 'tools': [" TOOL "], 'messages': [{'role':"
         "'assistant', 'thinking': 't', 'tool_calls': [{'function': {'name':"
         "'f', 'arguments': {}}}]}, {'role': 'tool', 'content': 'x',"
         "'tool_name': 'f'}]}"},
        {REQUEST_OLLAMA_GENERATE,
         "{'prompt': 'p', 'system': 's', 'context': [1, 2]}"},
    };

    json_set_alloc_funcs(malloc, free); /* the wrapped ones, which fail on
                                         * request; the JSON reader survives
                                         * some */
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        char *body = quoted(row[i].body);
        struct api_error why = {0};
        struct request whole;
        bool failed = true;

        assert_true(request_parse(&whole, row[i].kind, body, strlen(body),
                                  &can_all, &why));
        for (int64_t n = 1; failed; n++) {
            struct request a;
            bool ok;

            alloc_stat_reset();
            alloc_fail_at(n);
            ok = request_parse(&a, row[i].kind, body, strlen(body), &can_all,
                               &why);
            failed = alloc_fail_off();
            assert_true(ok || failed);
            if (ok && json_equal(a.body, whole.body) &&
                (!same_text(a.messages, whole.messages) ||
                 !same_text(a.tools, whole.tools) ||
                 !same_text(a.extra, whole.extra) ||
                 !same_text(a.schema, whole.schema)))
                fail_msg("%s, allocation %" PRId64, body, n);
            request_fini(&a);
            assert_int_equal(alloc_stat_get().live_bytes, 0);
        }
        request_fini(&whole);
        free(body);
    }
}

/* ---- texts and tokens ---------------------------------------------------- */

TEST(tokens_requests_are_read)
{
    static const char text[] = "{\"content\": \"ab\", \"with_pieces\": true}";
    static const char ids[] = "{\"tokens\": [1, 2]}";
    static const char bad[] = "{\"tokens\": [1, 10]}";
    struct tokens_request a;
    struct api_error why;

    assert_true(tokens_read_text(&a, text, strlen(text), &why));
    assert_string_equal(a.text, "ab");
    assert_true(a.pieces && a.parse_special && !a.add_special && a.len == 2);
    tokens_fini(&a);
    assert_true(tokens_read_ids(&a, ids, strlen(ids), 10, &why));
    assert_int_equal(a.n, 2);
    assert_int_equal(a.ids[1], 2);
    tokens_fini(&a);
    assert_false(tokens_read_ids(&a, bad, strlen(bad), 10, &why));
    assert_string_equal(why.param, "tokens");
    assert_false(tokens_read_text(&a, "{}", 2, &why));
    assert_string_equal(why.param, "content");
}

TEST(tokens_answers_are_made)
{
    static const int32_t ids[] = {5, 6};
    static const struct tokens_piece piece[] = {{"a", 1}, {"\xc3", 1}};
    char *s = tokens_ids_body(ids, 2, NULL);

    same_json(s, "{'tokens': [5, 6]}");
    free(s);
    s = tokens_ids_body(ids, 2, piece);
    same_json(s, "{'tokens': [{'id': 5, 'piece': 'a'}, {'id': 6, 'piece':"
                 "[195]}]}");
    free(s);
    s = tokens_text_body("prompt", "x", 1);
    same_json(s, "{'prompt': 'x'}");
    free(s);
    s = tokens_count_body(7);
    same_json(s, "{'input_tokens': 7}");
    free(s);
}

TEST(ask_reads_samplers_in_any_order)
{
    struct request a;

    read_by(&a, REQUEST_COMPLETION,
            "{'prompt': 'x', 'top_k': 7, 'dry_multiplier': 0.8,"
            "'dry_sequence_breakers': ['\\n', '###'], 'xtc_probability': 0.5,"
            "'dry_penalty_last_n': -1, 'top_n_sigma': 1.5, 'mirostat': 2,"
            "'samplers': ['temperature', 'infill', 'dry', 'typical']}",
            &rules);
    assert_int_equal(a.sampling.n_step, 3);
    assert_int_equal(a.sampling.step[0], PL_STEP_TEMPERATURE);
    assert_int_equal(a.sampling.step[1], PL_STEP_DRY);
    assert_int_equal(a.sampling.step[2], PL_STEP_TYPICAL);
    assert_int_equal(a.sampling.n_dry_breaker, 2);
    assert_string_equal(a.sampling.dry_breaker[1], "###");
    assert_true(a.sampling.dry_last_n > 1000000);
    assert_true(a.sampling.xtc_probability == 0.5f &&
                a.sampling.top_n_sigma == 1.5f && a.sampling.mirostat == 2);
    request_fini(&a);
    read_by(&a, REQUEST_CHAT, "{" HELLO ", 'samplers': 'edskypmxta'}", &rules);
    for (int i = 0; i < PL_N_STEP; i++)
        assert_int_equal(a.sampling.step[i], i);
    request_fini(&a);
    read_by(&a, REQUEST_COMPLETION,
            "{'prompt': 'x', 'adaptive_target': 0.5, 'adaptive_decay': 1,"
            "'samplers': ['adaptive-p', 'min_p']}",
            &rules);
    assert_int_equal(a.sampling.step[0], PL_STEP_ADAPTIVE_P);
    assert_true(a.sampling.adaptive_target == 0.5f &&
                a.sampling.adaptive_decay == 0.99f);
    request_fini(&a);
    refused(REQUEST_CHAT, "{" HELLO ", 'samplers': ['top_k', 'top-k']}",
            "samplers", "each once");
    refused(REQUEST_CHAT, "{" HELLO ", 'samplers': 'q'}", "samplers", "min_p");
    refused(REQUEST_CHAT, "{" HELLO ", 'samplers': 'i'}", "samplers",
            "one sampler");
    refused(REQUEST_CHAT, "{" HELLO ", 'samplers': 5}", "samplers", "a list");
}

/* Opens a vocabulary of bytes and of tokens with their usual names. */
static pl_tokenizer *open_fim(const char *path)
{
    static const char *const marks[] = {"<|fim_prefix|>", "<|fim_suffix|>",
                                        "<|fim_middle|>", "<|file_sep|>"};
    struct gguf_str text[260];
    char byte[256][8];
    int32_t type[260];
    float score[260] = {0};
    struct gguf_writer *w;
    pl_tokenizer *t;
    pl_err err;

    for (int i = 0; i < 260; i++) {
        if (i < 256)
            snprintf(byte[i], sizeof byte[i], "<0x%02X>", (unsigned)i);
        text[i].s = i < 256 ? byte[i] : marks[i - 256];
        text[i].len = strlen(text[i].s);
        type[i] = i < 256 ? 6 : 3;
    }
    assert_int_equal(gguf_writer_create(&w, NULL), PL_OK);
    gguf_put_str(w, "tokenizer.ggml.model", "llama");
    gguf_put_strs(w, "tokenizer.ggml.tokens", text, 260);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, type, 260);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, score, 260);
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", true);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
    TEST_OK(pl_tokenizer_open(&t, path, &err), err);
    return t;
}

TEST(ask_gaps_are_told_of_by_the_models_own_tokens)
{
    pl_tokenizer *words = open_fim(test_temp("fim.gguf"));
    const struct request_rules by = {
        .words = words, .n_vocab = 260, .max_tokens = -1};
    static const int32_t want[] = {259, 'f', '\n', 't', 259, 'f', 'i', 'l', 'e',
                                   'n', 'a', 'm',
                                   /* followed by the bytes of "_1" */
                                   'e', '\n', 256, 'a', 'x', 256, 257, '<'};
    struct request a;
    int32_t *ids;
    int64_t n;
    pl_err err;

    refused_by(REQUEST_INFILL, "{'input_suffix': 'b'}", "input_prefix",
               "missing", &by);
    read_by(&a, REQUEST_INFILL,
            "{'input_prefix': 'a', 'input_suffix': '<|fim_middle|>', 'prompt':"
            "'x<|fim_prefix|>', 'input_extra': [{'filename': 'f', 'text':"
            "'t'}]}",
            &by);
    assert_int_equal(a.n_prompt, 1);
    TEST_OK(request_prompt_tokens(&a.prompt[0], words, &ids, &n, &err), err);
    assert_int_equal(ids[0], pl_tokenizer_bos(words));
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        assert_int_equal(ids[1 + i], want[i]);
    /* A special token in the client's text is plain text, but not in the
     * prompt, which follows the prefix. */
    assert_int_equal(ids[n - 2], '>');
    assert_int_equal(ids[n - 1], 258);
    free(ids);
    request_fini(&a);
    pl_tokenizer_free(words);
}

/* llama-server has an option for this order, --spm-infill. */
TEST(ask_gaps_may_have_the_suffix_first)
{
    pl_tokenizer *words = open_fim(test_temp("spm.gguf"));
    const struct request_rules by = {
        .words = words, .n_vocab = 260, .max_tokens = -1};
    static const int32_t want[] = {257, 'b', 256, 'a', 'x', 258};
    struct request a;
    int32_t *ids;
    int64_t n;
    pl_err err;

    read_by(&a, REQUEST_INFILL,
            "{'input_prefix': 'a', 'input_suffix': 'b', 'prompt': 'x', "
            "'spm_infill': true}",
            &by);
    TEST_OK(request_prompt_tokens(&a.prompt[0], words, &ids, &n, &err), err);
    assert_int_equal(n, 7);
    assert_memory_equal(ids + 1, want, sizeof want);
    free(ids);
    request_fini(&a);
    pl_tokenizer_free(words);
}
