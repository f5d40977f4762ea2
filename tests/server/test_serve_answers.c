/* Responses have what clients of llama-server and of other protocols read:
 * fields, statuses and orders, as tables of requests and responses. */
#include "lib/serve_try.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns the value at a path such as "choices.0.text"; NULL if there is
 * none. */
static const json_t *at(const json_t *j, const char *path)
{
    char key[64];

    while (*path && j) {
        size_t n = strcspn(path, ".");

        snprintf(key, sizeof key, "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, (size_t)atoi(key))
                             : json_object_get(j, key);
        path += n + (path[n] == '.');
    }
    return j;
}

static int64_t number_at(const json_t *j, const char *path)
{
    const json_t *v = at(j, path);

    if (!json_is_number(v))
        fail_msg("%s: not a number", path);
    return (int64_t)json_number_value(v);
}

/* Checks a row's condition: "PATH" exists, "PATH=JSON" has this value, or
 * "PATH~TEXT" is a string that contains the text. */
static void check(const char *what, const json_t *j, const char *row)
{
    size_t n = strcspn(row, "=~");
    char path[100];
    const json_t *v;
    json_t *want;

    snprintf(path, sizeof path, "%.*s", (int)n, row);
    v = at(j, path);
    if (!v)
        fail_msg("%s: no %s in %s", what, path, json_dumps(j, 0));
    if (row[n] == '~' &&
        (!json_is_string(v) || !strstr(json_string_value(v), row + n + 1)))
        fail_msg("%s: %s is %s", what, row, json_dumps(v, JSON_ENCODE_ANY));
    if (row[n] != '=')
        return;
    want = json_loads(row + n + 1, JSON_DECODE_ANY, NULL);
    assert_non_null(want);
    if (!json_equal(v, want))
        fail_msg("%s: %s is %s", what, row, json_dumps(v, JSON_ENCODE_ANY));
    json_decref(want);
}

static char *ask(struct serve_try *s, const char *path, const char *body,
                 int status)
{
    struct try_client c;
    struct try_answer a;

    try_connect(&s->t, &c);
    if (body)
        serve_try_send(&c, path, body);
    else
        try_send(&c, try_get(path, ""));
    try_read(&c, &a, false);
    if (a.status != status)
        fail_msg("%s %.300s: %s%s", path, body ? body : "", a.head, a.body);
    if (status == 429 || status == 503)
        assert_non_null(strstr(a.head, "Retry-After: "));
    try_close(&c);
    return a.body;
}

/* Returns the events of a stream, as a list. */
static json_t *events_of(const char *body)
{
    json_t *list = json_array();

    for (const char *s = body; (s = strstr(s, "data: {")); s++) {
        char *line = strndup(s + 6, strcspn(s + 6, "\n"));

        json_array_append_new(list, serve_try_json(line));
        free(line);
    }
    return list;
}

/* Returns a word `n` times, in a message of a conversation or as a prompt. */
static char *long_text(const char *before, int n, const char *after)
{
    struct test_text t = {0};

    test_text_add(&t, before, strlen(before));
    for (int i = 0; i < n; i++)
        test_text_add(&t, "word ", 5);
    test_text_add(&t, after, strlen(after));
    return t.s;
}

static const char hi[] = "\"messages\":[{\"role\":\"user\",\"content\":"
                         "\"Hi\"}]";

TEST(serve_answers_have_what_clients_read)
{
    static const struct {
        /* path and body of the request; body NULL for a GET request */
        const char *path, *body;
        int status;
        const char *has[13];
    } row[] = {
        {"/props",
         NULL,
         200,
         {"model_path~.gguf", "chat_template~messages", "bos_token~",
          "eos_token~", "is_sleeping=false", "total_slots=4",
          "default_generation_settings.n_ctx=512",
          "default_generation_settings.params.n_predict=-1",
          "default_generation_settings.params.samplers.0",
          "default_generation_settings.params.seed=4294967295",
          "default_generation_settings.params.logit_bias=[]",
          "modalities.vision=false"}},
        {"/props", "{}", 200, {"success=true"}},
        {"/slots",
         NULL,
         200,
         {"3.n_ctx=512", "0.is_processing=false", "0.next_token.0.n_remain=-1",
          "0.next_token.0.n_decoded=0", "0.speculative=false"}},
        {"/slots?fail_on_no_slot=1", NULL, 200, {"0.id=0"}},
        {"/lora-adapters", NULL, 200, {"=[]"}},
        {"/lora-adapters", "[]", 200, {"success=true"}},
        {"/lora-adapters", "[{\"id\":0,\"scale\":1}]", 400, {"error.message"}},
        {"/v1/models",
         NULL,
         200,
         {"data.0.id", "data.0.aliases.0", "data.0.tags=[\"chat\",\"small\"]",
          "data.0.architecture.input_modalities=[\"text\"]",
          "data.0.meta.vocab_type=2", "data.0.meta.n_vocab=4096",
          "data.0.meta.n_ctx_train=512", "data.0.meta.n_embd=256",
          "data.0.meta.n_params=9909312", "data.0.meta.size=10567936"}},
        {"/v1/models",
         NULL,
         200,
         {"models.0.name~fable", "models.0.model~fable",
          "models.0.modified_at=\"\"", "models.0.size=\"\"",
          "models.0.digest=\"\"", "models.0.type=\"model\"",
          "models.0.description=\"\"", "models.0.tags.1=\"small\"",
          "models.0.capabilities=[\"completion\"]", "models.0.parameters=\"\"",
          "models.0.details={\"parent_model\":\"\",\"format\":\"gguf\","
          "\"family\":\"\",\"families\":[\"\"],\"parameter_size\":\"\","
          "\"quantization_level\":\"\"}"}},
        {"/rerank",
         "{\"query\":\"a\",\"documents\":[\"b\"]}",
         501,
         {"error.type=\"not_supported_error\"", "error.message~rerank"}},
        {"/v1/rerank", "{}", 501, {"error.message~rerank"}},
        {"/reranking", "{}", 501, {"error.message~rerank"}},
        {"/v1/chat/completions/input_tokens", "{%s}", 200, {"input_tokens"}},
        {"/chat/completions/input_tokens", "{%s}", 200, {"input_tokens"}},
        {"/v1/responses/input_tokens",
         "{\"input\":\"Hi\"}",
         200,
         {"input_tokens"}},
        {"/v1/messages/count_tokens", "{%s}", 200, {"input_tokens"}},
        {"/responses",
         "{\"input\":\"Hi\",\"max_output_tokens\":2}",
         200,
         {"object=\"response\"", "status=\"incomplete\""}},
        {"/tokenize",
         "{\"content\":\"\xf0\x9f\xa6\x96\",\"with_pieces\":true}",
         200,
         {"tokens.0.piece"}},
        {"/completion",
         "{\"prompt\":{\"prompt_string\":\"Once\"},\"n_predict\":2,"
         "\"ignore_eos\":true,\"response_fields\":[\"prompt\","
         "\"generation_settings/n_predict\",\"timings/predicted_n\"]}",
         200,
         {"prompt~Once", "generation_settings/n_predict=2",
          "timings/predicted_n=2"}},
        {"/completion",
         "{\"prompt\":[{\"content\":[{\"type\":\"text\",\"text\":\"On\"},"
         "{\"type\":\"text\",\"text\":\"ce\"}]}],\"n_predict\":1}",
         200,
         {"prompt=\"Once\""}},
        {"/completion",
         "{\"prompt\":{\"content\":[{\"type\":\"image_url\"}]}}",
         400,
         {"error.message~images"}},
        {"/completion",
         "{\"prompt\":\"Once\",\"n_predict\":1,\"ignore_eos\":true}",
         200,
         {"prompt~Once", "generation_settings.ignore_eos=true",
          "generation_settings.logit_bias.0.bias=null", "stop_type=\"limit\"",
          "truncated=false", "has_new_line", "tokens=[]",
          "timings.predicted_per_second=0.0", "index=0"}},
        {"/v1/chat/completions",
         "{%s,\"max_tokens\":2,\"verbose\":true}",
         200,
         {"__verbose.prompt~Hi", "__verbose.generation_settings.seed",
          "usage.prompt_tokens_details.cached_tokens", "timings.cache_n"}},
        {"/v1/completions",
         "{\"prompt\":\"Once\",\"max_tokens\":2,\"echo\":true}",
         200,
         {"choices.0.text~Once", "choices.0.logprobs=null"}},
    };
    struct serve_try s;

    serve_try_start(&s, "", "--tags chat,small");
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char request[400], *body;
        json_t *j;

        snprintf(request, sizeof request, row[i].body ? row[i].body : "", hi);
        body =
            ask(&s, row[i].path, row[i].body ? request : NULL, row[i].status);
        j = json_loads(body, 0, NULL);
        assert_non_null(j);
        for (int k = 0; row[i].has[k]; k++)
            check(row[i].path, j, row[i].has[k]);
        json_decref(j);
        free(body);
    }
    serve_try_stop(&s);
}

/* Returns the number that the stream of /completion has in field `name` of each
 * of its objects. */
static json_int_t same_number(const char *stream, const char *name)
{
    json_t *list = events_of(stream), *item;
    json_int_t n = json_integer_value(at(json_array_get(list, 0), name));
    size_t i;

    json_array_foreach (list, i, item)
        assert_int_equal(json_integer_value(at(item, name)), n);
    assert_true(json_array_size(list) > 1);
    json_decref(list);
    return n;
}

/* Answers name the slot that was used. The slot shows the numbers of its last
 * text as long as it is free. */
TEST(serve_slots_show_the_numbers_of_their_last_text)
{
    static const char *const ask[] = {
        "{\"prompt\":\"Once upon\",\"n_predict\":5,\"ignore_eos\":true%s}",
        "{\"prompt\":\"Once upon\",\"n_predict\":5,\"ignore_eos\":true,"
        "\"id_slot\":2%s}"};
    struct serve_try s;

    serve_try_start(&s, "", "");
    for (int i = 0; i < 4; i++) {
        char request[200], field[40], *body;
        json_int_t id, n_prompt;
        json_t *j;

        snprintf(request, sizeof request, ask[i / 2],
                 i % 2 ? ",\"stream\":true" : "");
        body = serve_try_post(&s, "/completion", request, 200);
        if (i % 2) {
            id = same_number(body, "id_slot");
            n_prompt = same_number(body, "tokens_evaluated");
        } else {
            j = serve_try_json(body);
            id = json_integer_value(at(j, "id_slot"));
            n_prompt = json_integer_value(at(j, "tokens_evaluated"));
            json_decref(j);
        }
        free(body);
        assert_true(i < 2 ? id >= 0 && id < 4 : id == 2);
        body = serve_try_get(&s, "/slots");
        j = serve_try_json(body);
        snprintf(field, sizeof field, "%d.is_processing=false", (int)id);
        check("/slots", j, field);
        snprintf(field, sizeof field, "%d.n_prompt_tokens=%d", (int)id,
                 (int)n_prompt);
        check("/slots", j, field);
        snprintf(field, sizeof field, "%d.next_token.0.n_decoded=5", (int)id);
        check("/slots", j, field);
        json_decref(j);
        free(body);
    }
    serve_try_stop(&s);
}

/* In the words and fields of each protocol, streamed or not. */
/* A seed that was drawn, given again, gives the same text. So does a client's
 * double or 32-bit integer, which holds it. */
TEST(serve_answers_drawn_seeds_that_can_be_given_again)
{
    static const char request[] =
        "{\"prompt\":\"Once\",\"n_predict\":16,\"temperature\":2,"
        "\"top_k\":-1,\"seed\":%s}";
    static const char *const drawn[] = {"null", "-1", "4294967295"};
    struct serve_try s;

    serve_try_start(&s, "", "");
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) {
        json_t *j[2];
        json_int_t seed = 0;

        for (int again = 0; again < 2; again++) {
            char body[200], number[32], *text;

            snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, seed);
            snprintf(body, sizeof body, request, again ? number : drawn[i]);
            text = serve_try_post(&s, "/completion", body, 200);
            j[again] = serve_try_json(text);
            free(text);
            seed = json_integer_value(at(j[again], "generation_settings.seed"));
            assert_true(seed >= 0 && seed <= INT32_MAX);
        }
        assert_true(json_equal(at(j[0], "content"), at(j[1], "content")));
        json_decref(j[0]);
        json_decref(j[1]);
    }
    serve_try_stop(&s);
}

/* "functions" and "function_call" are the older form of tools. */
TEST(serve_answers_functions_as_they_were_asked)
{
    static const char form[] =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% for c in m.tool_calls or [] %}<tool_call>{\"name\": \"{{ "
        "c.function.name }}\", \"arguments\": {{ c.function.arguments|tojson "
        "}}}"
        "</tool_call>{% endfor %}<end>{% endfor %}";
    static const char request[] =
        "{%s,\"max_tokens\":200,\"functions\":[{\"name\":\"now\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{},"
        "\"additionalProperties\":false}}],\"function_call\":{\"name\":"
        "\"now\"}%s}";
    const char *path = test_temp("calls.jinja");
    FILE *f = fopen(path, "w");
    struct serve_try s;
    char words[300], *body;
    json_t *j;

    assert_non_null(f);
    fputs(form, f);
    fclose(f);
    snprintf(words, sizeof words, "--chat-template-file '%s'", path);
    serve_try_start(&s, "", words);
    assert_true(asprintf(&body, request, hi, "") > 0);
    path = serve_try_post(&s, "/v1/chat/completions", body, 200);
    j = serve_try_json(path);
    free((char *)path);
    check("functions", j, "choices.0.finish_reason=\"function_call\"");
    check("functions", j, "choices.0.message.function_call.name=\"now\"");
    check("functions", j, "choices.0.message.function_call.arguments~{");
    assert_null(at(j, "choices.0.message.tool_calls"));
    json_decref(j);
    free(body);
    assert_true(asprintf(&body, request, hi, ",\"stream\":true") > 0);
    path = serve_try_post(&s, "/v1/chat/completions", body, 200);
    assert_non_null(strstr(path, "{\"function_call\":{\"name\":\"now\","));
    assert_non_null(strstr(path, "{\"function_call\":{\"arguments\":\""));
    assert_non_null(strstr(path, "\"finish_reason\":\"function_call\""));
    free((char *)path);
    free(body);
    serve_try_stop(&s);
}

TEST(serve_tells_agents_that_a_prompt_is_too_long)
{
    static const char message[] = "{\"max_tokens\":1,\"messages\":[{\"role\":"
                                  "\"user\",\"content\":\"";
    static const struct {
        const char *path, *before, *after;
        bool blocks;
    } row[] = {
        {"/v1/chat/completions", message, "\"}]}", false},
        {"/v1/chat/completions", message, "\"}],\"stream\":true}", false},
        {"/v1/completions", "{\"prompt\":\"", "\"}", false},
        {"/completion", "{\"prompt\":\"", "\",\"stream\":true}", false},
        {"/v1/responses", "{\"input\":\"", "\"}", false},
        {"/v1/embeddings", "{\"input\":\"", "\"}", false},
        {"/v1/messages", message, "\"}]}", true},
        {"/v1/messages", message, "\"}],\"stream\":true}", true},
    };
    struct serve_try s;

    serve_try_start(&s, "", "--embeddings -np 2");
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char *request = long_text(row[i].before, 600, row[i].after);
        char *body = ask(&s, row[i].path, request, 400);
        json_t *j = serve_try_json(body);
        const char *said = json_string_value(at(j, "error.message"));
        long long n, most;

        assert_non_null(said);
        if (row[i].blocks) {
            assert_int_equal(sscanf(said,
                                    "prompt is too long: %lld tokens > %lld "
                                    "maximum",
                                    &n, &most),
                             2);
            assert_true(n > 512 && most == 511);
            check(row[i].path, j, "error.type=\"invalid_request_error\"");
        } else {
            check(row[i].path, j, "error.type=\"exceed_context_size_error\"");
            check(row[i].path, j, "error.code=\"context_length_exceeded\"");
            check(row[i].path, j, "error.n_ctx=512");
            assert_true(number_at(j, "error.n_prompt_tokens") > 512);
            assert_non_null(strstr(said, "exceeds the available context size"));
            assert_non_null(strstr(said, "maximum context length is 512"));
        }
        json_decref(j);
        free(body);
        free(request);
    }
    serve_try_stop(&s);
}

/* ---- probabilities of the prompt ----------------------------------------- */

/* Returns the logprobs object of the only choice. */
static json_t *logprobs_of(struct serve_try *s, const char *request, json_t **j)
{
    char *body = serve_try_post(s, "/v1/completions", request, 200);

    *j = serve_try_json(body);
    free(body);
    return (json_t *)at(*j, "choices.0.logprobs");
}

/* The probabilities of a text as a prompt are those with which it was
 * generated, bit by bit. */
TEST(serve_echo_has_the_probabilities_of_generation)
{
    static const char made[] =
        "{\"prompt\":\"Once upon a time\",\"max_tokens\":70,\"temperature\":0,"
        "\"logprobs\":2,\"ignore_eos\":true,\"return_tokens\":true}";
    struct serve_try s;
    json_t *j, *again, *p, *q, *ids = json_array(), *v;
    size_t i, n, n_prompt;
    char *body, *request, *list;

    serve_try_start(&s, "", "-np 2 -ub 32");
    p = logprobs_of(&s, made, &j);
    n_prompt = (size_t)number_at(j, "usage.prompt_tokens");
    body = serve_try_post(&s, "/tokenize",
                          "{\"content\":\"Once upon a time\","
                          "\"add_special\":true}",
                          200);
    v = serve_try_json(body);
    json_array_extend(ids, json_object_get(v, "tokens"));
    json_decref(v);
    free(body);
    assert_int_equal(json_array_size(ids), n_prompt);
    json_array_foreach (json_object_get(p, "content"), i, v) {
        json_array_append(ids, json_object_get(v, "id"));
    }
    list = json_dumps(ids, 0);
    for (int most = 0; most < 2; most++) {
        assert_true(asprintf(&request,
                             "{\"prompt\":%s,\"max_tokens\":%d,\"echo\":true,"
                             "\"logprobs\":2,\"temperature\":0}",
                             list, most) > 0);
        q = logprobs_of(&s, request, &again);
        n = json_array_size(json_object_get(q, "token_logprobs"));
        assert_int_equal(n, number_at(again, "usage.prompt_tokens") +
                                number_at(again, "usage.completion_tokens"));
        assert_int_equal(number_at(again, "usage.prompt_tokens"),
                         json_array_size(ids));
        assert_true(json_is_null(at(q, "token_logprobs.0")));
        assert_true(json_is_null(at(q, "top_logprobs.0")));
        for (i = 0; i < json_array_size(ids) - n_prompt; i++) {
            const json_t *a = json_array_get(json_object_get(p, "content"), i);
            const json_t *b =
                json_array_get(json_object_get(q, "content"), n_prompt + i);

            assert_true(json_equal(a, b));
        }
        json_decref(again);
        free(request);
    }
    /* more than one page of tokens, so that a page of the prompt is cached */
    assert_true(i > 64);
    json_decref(j);
    json_decref(ids);
    free(list);
    serve_try_stop(&s);
}

/* ---- tokens that end a text ---------------------------------------------- */

TEST(serve_ignore_eos_forbids_the_token)
{
    struct serve_try s;
    char request[300], *body;
    json_t *j, *v;
    int64_t eos;
    size_t i;

    serve_try_start(&s, "", "");
    body = serve_try_post(&s, "/completion",
                          "{\"prompt\":\"a\",\"n_predict\":1,"
                          "\"ignore_eos\":true}",
                          200);
    j = serve_try_json(body);
    eos = number_at(j, "generation_settings.logit_bias.0.token");
    json_decref(j);
    free(body);
    for (int ignore = 0; ignore < 2; ignore++) {
        snprintf(request, sizeof request,
                 "{\"prompt\":\"Once\",\"n_predict\":12,\"return_tokens\":true,"
                 "\"ignore_eos\":%s,\"logit_bias\":[[%lld,100]]}",
                 ignore ? "true" : "false", (long long)eos);
        body = serve_try_post(&s, "/completion", request, 200);
        j = serve_try_json(body);
        check("/completion", j,
              ignore ? "stop_type=\"limit\"" : "stop_type=\"eos\"");
        assert_int_equal(json_array_size(at(j, "tokens")), ignore ? 12 : 0);
        json_array_foreach (at(j, "tokens"), i, v) {
            assert_true(json_integer_value(v) != eos);
        }
        json_decref(j);
        free(body);
    }
    /* a grammar that is complete still ends the text */
    body = serve_try_post(&s, "/completion",
                          "{\"prompt\":\"a\",\"n_predict\":20,\"ignore_eos\":"
                          "true,\"grammar\":\"root ::= \\\"abc\\\"\"}",
                          200);
    j = serve_try_json(body);
    check("/completion", j, "content=\"abc\"");
    check("/completion", j, "stop_type=\"eos\"");
    json_decref(j);
    free(body);
    serve_try_stop(&s);
}

/* As llama-server's --special, and skip_special_tokens of other servers. Token
 * 4094 opens a turn of a chat. */
TEST(serve_texts_have_special_tokens_if_asked)
{
    static const struct {
        const char *option, *field;
        bool shown;
    } rows[] = {
        {"", "", false},
        {"", ",\"skip_special_tokens\":false", true},
        {"-sp", "", true},
        {"--special", ",\"skip_special_tokens\":true", false},
    };
    static const char *const paths[] = {"/completion", "/v1/completions"};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct serve_try s;
        char request[200], want[100];

        serve_try_start(&s, "", rows[i].option);
        for (int k = 0; k < 2; k++) {
            char *body;
            json_t *j;

            snprintf(request, sizeof request,
                     "{\"prompt\":\"Once\",\"max_tokens\":2,"
                     "\"logit_bias\":{\"4094\":100}%s}",
                     rows[i].field);
            snprintf(want, sizeof want, "%s=\"%s\"",
                     k ? "choices.0.text" : "content",
                     rows[i].shown ? "<|im_start|><|im_start|>" : "");
            body = serve_try_post(&s, paths[k], request, 200);
            j = serve_try_json(body);
            check(paths[k], j, want);
            json_decref(j);
            free(body);
        }
        serve_try_stop(&s);
    }
}

/* ---- limits of lines ----------------------------------------------------- */

/* As editors limit what they show (llama.vim): before a line that is indented
 * less, and at the end of a line when time is up. */
TEST(serve_lines_end_where_an_editor_wants)
{
    static const struct {
        const char *lines, *more, *want;
        bool cut;
    } row[] = {
        {"a\\\\n  b\\\\n   c\\\\n d\\\\n  e", "\"n_indent\":2",
         "a\n  b\n   c\n ", true},
        {"  a\\\\n\\\\n  b", "\"n_indent\":1", "  a\n", true},
        {"a\\\\nb\\\\nc", "\"n_indent\":0", "a\nb\nc", false},
        {"a\\\\nb", "\"t_max_predict_ms\":0.000001", "a\n", true},
        {"a\\\\nb", "\"t_max_predict_ms\":-1", "a\nb", false},
    };
    struct serve_try s;

    serve_try_start(&s, "", "");
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        for (int streamed = 0; streamed < 2; streamed++) {
            struct test_text text = {0};
            char request[400], *body;
            json_t *list, *e;
            size_t k;

            snprintf(request, sizeof request,
                     "{\"prompt\":\"a\",\"grammar\":\"root ::= "
                     "\\\"%s\\\"\",\"stream\":%s,%s}",
                     row[i].lines, streamed ? "true" : "false", row[i].more);
            body = serve_try_post(&s, "/completion", request, 200);
            list = streamed ? events_of(body)
                            : json_pack("[o]", serve_try_json(body));
            json_array_foreach (list, k, e) {
                const char *part = json_string_value(at(e, "content"));

                test_text_add(&text, part, strlen(part));
            }
            assert_string_equal(text.s, row[i].want);
            check("/completion", json_array_get(list, k - 1),
                  row[i].cut ? "stop_type=\"limit\"" : "stop_type=\"eos\"");
            json_decref(list);
            free(text.s);
            free(body);
        }
    }
    serve_try_stop(&s);
}

/* ---- streams ------------------------------------------------------------- */

/* The first report comes before anything is computed, the last when all is. */
TEST(serve_progress_begins_with_what_is_cached)
{
    static const struct {
        const char *path, *before, *after;
    } row[] = {
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]"},
        {"/v1/completions", "{\"prompt\":\"", "\""},
        {"/completion", "{\"prompt\":\"", "\""},
        {"/v1/responses", "{\"input\":\"", "\""},
    };
    static const char more[] =
        ",\"max_tokens\":3,\"stream\":true,\"return_progress\":true,"
        "\"timings_per_token\":true,\"cache_prompt\":";
    struct serve_try s;

    serve_try_start(&s, "", "-ub 32");
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        for (int again = 0; again < 2; again++) {
            char *request = long_text(row[i].before, 100, row[i].after), *body;
            struct test_text t = {0};
            int64_t last = -1, total = 0;
            json_t *list, *e;
            size_t k, n = 0;

            test_text_add(&t, request, strlen(request));
            test_text_add(&t, more, strlen(more));
            test_text_add(&t, again ? "true}" : "false}", again ? 5 : 6);
            body = serve_try_post(&s, row[i].path, t.s, 200);
            list = events_of(body);
            json_array_foreach (list, k, e) {
                int64_t done;

                if (!json_object_get(e, "prompt_progress"))
                    continue;
                done = number_at(e, "prompt_progress.processed");
                total = number_at(e, "prompt_progress.total");
                if (n++ == 0) {
                    assert_int_equal(done,
                                     number_at(e, "prompt_progress.cache"));
                    assert_true(again ? done > 0 : done == 0);
                    assert_int_equal(number_at(e, "timings.prompt_n"), 0);
                    assert_int_equal(number_at(e, "timings.prompt_ms"), 0);
                }
                assert_true(done > last);
                assert_int_equal(number_at(e, "timings.predicted_n"), 0);
                last = done;
            }
            assert_true(n >= 2 && last == total && total > 100);
            json_decref(list);
            free(request);
            free(body);
            free(t.s);
        }
    }
    serve_try_stop(&s);
}

/* A server that is stopped twice tells the clients of its streams. */
TEST(serve_streams_that_a_stop_cuts_say_so)
{
    static const char ask[] = "\"max_tokens\":4000,\"stream\":true,"
                              "\"ignore_eos\":true}";
    static const char *const row[][2] = {
        {"/v1/completions", "{\"prompt\":\"Once\","},
        {"/completion", "{\"prompt\":\"Once\","},
        {"/v1/chat/completions",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"},
        {"/v1/messages",
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],"},
    };
    enum { N = sizeof row / sizeof row[0] };
    struct try_client c[N];
    struct serve_try s;
    int status;

    serve_try_start(&s, "", "-c 32768 -np 4");
    for (int i = 0; i < N; i++) {
        char request[300];

        snprintf(request, sizeof request, "%s%s", row[i][1], ask);
        try_connect(&s.t, &c[i]);
        serve_try_send(&c[i], row[i][0], request);
        assert_true(try_fill(&c[i], 400)); /* the response has begun */
    }
    kill(s.pid, SIGTERM);
    /* the server has received the first signal and drains */
    TEST_UNTIL(!try_connects(&s.t));
    kill(s.pid, SIGTERM);
    for (int i = 0; i < N; i++) {
        struct try_answer a;

        try_read(&c[i], &a, false);
        assert_int_equal(a.status, 200);
        if (!strstr(a.body, "\"error\":") ||
            !strstr(a.body, "the server is stopping"))
            fail_msg("%s: %s", row[i][0],
                     a.body +
                         (strlen(a.body) > 500 ? strlen(a.body) - 500 : 0));
        free(a.body);
        try_close(&c[i]);
    }
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_true(WIFEXITED(status));
}

/* ---- conversations that the server keeps --------------------------------- */

/* Returns the tokens of a conversation of /v1/responses. */
static int64_t count_of(struct serve_try *s, const char *request)
{
    char *body = serve_try_post(s, "/v1/responses/input_tokens", request, 200);
    json_t *j = serve_try_json(body);
    int64_t n = number_at(j, "input_tokens");

    json_decref(j);
    free(body);
    return n;
}

/* Returns the id of a response that is not stored, to be freed. */
static char *ask_no_store(struct serve_try *s)
{
    char *body = serve_try_post(s, "/v1/responses",
                                "{\"input\":\"a\",\"max_output_tokens\":1,"
                                "\"store\":false}",
                                200);
    json_t *j = serve_try_json(body);
    char *id = strdup(json_string_value(at(j, "id")));

    json_decref(j);
    free(body);
    return id;
}

/* Items that only have the ids of those in `all` are read as these, and unknown
 * ids are not found. */
static void refer(struct serve_try *s, json_t *all)
{
    json_t *list = json_array(), *item;
    char *body, *text;
    json_int_t n;
    size_t i;

    json_array_foreach (all, i, item) {
        const json_t *id = at(item, "id");

        json_array_append_new(list, id != NULL ? json_pack("{s:s, s:O}", "type",
                                                           "item_reference",
                                                           "id", (json_t *)id)
                                               : json_incref(item));
    }
    assert_true(json_array_size(list) > 3);
    item = json_pack("{s:O}", "input", all);
    text = json_dumps(item, 0);
    n = count_of(s, text);
    free(text);
    json_decref(item);
    item = json_pack("{s:o}", "input", list);
    text = json_dumps(item, 0);
    assert_int_equal(count_of(s, text), n);
    free(text);
    json_decref(item);
    body = serve_try_post(s, "/v1/responses",
                          "{\"input\":[{\"type\":\"item_reference\","
                          "\"id\":\"msg_0\"}]}",
                          404);
    assert_non_null(strstr(body, "Item with id 'msg_0' not found."));
    free(body);
}

/* The second request continues the first one and the third the second, as if
 * they had sent all messages. */
TEST(serve_responses_continue_by_their_ids)
{
    static const char *const ask[] = {"Hello?", "A tale, please.", "More."};
    struct serve_try s;
    json_t *all = json_array();
    char id[100] = "", request[400], *body, *whole;

    serve_try_start(&s, "", "");
    for (int i = 0; i < 3; i++) {
        json_t *j, *list;

        snprintf(request, sizeof request,
                 "{\"input\":\"%s\",\"max_output_tokens\":5,\"stream\":%s,"
                 "\"previous_response_id\":\"%s\"}",
                 ask[i], i == 1 ? "true" : "false", id);
        json_array_append_new(
            all, json_pack("{s:s, s:s}", "role", "user", "content", ask[i]));
        j = json_pack("{s:O}", "input", all);
        whole = json_dumps(j, 0);
        json_decref(j);
        assert_int_equal(count_of(&s, request), count_of(&s, whole));
        free(whole);
        body = serve_try_post(&s, "/v1/responses", request, 200);
        if (i == 1) {
            list = events_of(body);
            j = json_incref((json_t *)at(
                json_array_get(list, json_array_size(list) - 1), "response"));
            json_decref(list);
        } else {
            j = serve_try_json(body);
        }
        json_array_extend(all, (json_t *)at(j, "output"));
        snprintf(id, sizeof id, "%s", json_string_value(at(j, "id")));
        json_decref(j);
        free(body);
    }
    refer(&s, all);
    json_decref(all);
    body = ask_no_store(&s);
    snprintf(request, sizeof request,
             "{\"input\":\"a\",\"previous_response_id\":\"%s\"}", body);
    free(body);
    body = serve_try_post(&s, "/v1/responses", request, 400);
    assert_non_null(strstr(body, "previous_response_not_found"));
    free(body);
    serve_try_stop(&s);
}

/* ---- sleep --------------------------------------------------------------- */

static bool sleeps(struct serve_try *s)
{
    char *body = serve_try_get(s, "/props");
    json_t *j = serve_try_json(body);
    bool is = json_is_true(at(j, "is_sleeping"));

    check("/props", j, "model_path~.gguf");
    check("/props", j, "chat_template~messages");
    check("/props", j, "default_generation_settings.n_ctx=512");
    json_decref(j);
    free(body);
    return is;
}

TEST(serve_describes_a_model_that_sleeps)
{
    struct serve_try s;

    serve_try_start(&s, "", "--sleep-idle-seconds 1");
    free(serve_try_post(&s, "/completion", "{\"prompt\":\"a\",\"n_predict\":4}",
                        200));
    TEST_UNTIL(sleeps(&s));
    assert_true(serve_try_metric(&s, "llamacpp:tokens_predicted_total") > 0);
    free(serve_try_post(&s, "/v1/chat/completions/input_tokens",
                        "{\"messages\":[{\"role\":\"user\",\"content\":"
                        "\"a\"}]}",
                        200));
    assert_false(sleeps(&s));
    serve_try_stop(&s);
}

/* ---- memory -------------------------------------------------------------- */

/* Large requests leave nothing behind, though several threads handle them. */
TEST(serve_large_requests_leave_no_memory_behind)
{
    enum { N = 4, WORDS = 160000, MIB = 1 << 20 };
    char *request =
        long_text("{\"with_pieces\":true,\"content\":\"", WORDS, "\"}");
    struct try_client c[N];
    struct serve_try s;
    int64_t before;

    serve_try_start(&s, "", "");
    free(serve_try_post(&s, "/tokenize", "{\"content\":\"a\"}", 200));
    before = serve_try_use(&s).bytes;
    for (int i = 0; i < N; i++) {
        try_connect(&s.t, &c[i]);
        serve_try_send(&c[i], "/tokenize", request);
    }
    for (int i = 0; i < N; i++) {
        struct try_answer a;

        try_read(&c[i], &a, false);
        assert_int_equal(a.status, 200);
        free(a.body);
        try_close(&c[i]);
    }
    TEST_UNTIL(TEST_SANITIZED || serve_try_use(&s).bytes < before + 12 * MIB);
    free(request);
    serve_try_stop(&s);
}

/* ---- metrics ------------------------------------------------------------- */

/* Dashboards for llama-server read its names, which have no label there. */
TEST(serve_metrics_have_llama_servers_names)
{
    struct serve_try s;
    char *all;

    serve_try_start(&s, "", "-a tale");
    free(serve_try_post(&s, "/completion",
                        "{\"prompt\":\"Once upon\",\"n_predict\":9,"
                        "\"ignore_eos\":true}",
                        200));
    all = serve_try_get(&s, "/metrics");
    assert_non_null(strstr(all, "\n# TYPE llamacpp:prompt_tokens_total counter"
                                "\nllamacpp:prompt_tokens_total "));
    assert_non_null(strstr(all, "\nplait_steps_total{model=\"tale\"} "));
    free(all);
    assert_int_equal(serve_try_metric(&s, "llamacpp:tokens_predicted_total"),
                     9);
    assert_true(
        serve_try_metric(&s, "llamacpp:tokens_predicted_seconds_total") > 0);
    assert_true(serve_try_metric(&s, "llamacpp:n_tokens_max") > 9);
    assert_true(serve_try_metric(&s, "llamacpp:n_busy_slots_per_decode") == 1);
    assert_int_equal(serve_try_metric(&s, "llamacpp:requests_processing"), 0);
    /* the request above was the last one that had anything to report */
    assert_true(serve_try_metric(&s, "llamacpp:predicted_tokens_seconds") == 0);
    serve_try_stop(&s);
}
