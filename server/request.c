/* Parses the requests of all protocols, by calling the functions of
 * request_parse.h, the readers. */
#include "request_parse.h"

#include <stdlib.h>
#include <string.h>

typedef bool request_read_fn(struct request_reader *r);

/* For each protocol (enum request_kind): the form of its error responses, and
 * its readers in the order in which they are called. */
static const struct {
    enum api_error_shape shape;
    request_read_fn *part[6];
} kinds[] = {
    [REQUEST_CHAT] = {API_ERROR_OPENAI,
                      {request_read_sampling, request_read_output,
                       request_read_tools, request_read_thinking,
                       request_read_chat}},
    [REQUEST_COMPLETIONS] = {API_ERROR_OPENAI,
                             {request_read_sampling, request_read_output,
                              request_read_prompt}},
    [REQUEST_COMPLETION] = {API_ERROR_OPENAI,
                            {request_read_sampling, request_read_output,
                             request_read_prompt}},
    [REQUEST_MESSAGES] = {API_ERROR_BLOCKS,
                          {request_read_sampling, request_read_output,
                           request_read_tools, request_read_thinking,
                           request_read_messages}},
    [REQUEST_RESPONSES] = {API_ERROR_OPENAI,
                           {request_read_sampling, request_read_output,
                            request_read_tools, request_read_thinking,
                            request_read_responses}},
    [REQUEST_INFILL] = {API_ERROR_OPENAI,
                        {request_read_sampling, request_read_output,
                         request_read_infill}},
    [REQUEST_OLLAMA_CHAT] = {API_ERROR_OLLAMA, {request_read_ollama}},
    [REQUEST_OLLAMA_GENERATE] = {API_ERROR_OLLAMA, {request_read_ollama}},
};

enum api_error_shape request_shape(enum request_kind kind)
{
    return kinds[kind].shape;
}

/* ---- rejecting fields that are not supported ----------------------------- */

enum {
    TALKS = 1 << REQUEST_CHAT,
    WRITES = 1 << REQUEST_COMPLETIONS | 1 << REQUEST_COMPLETION |
             1 << REQUEST_INFILL,
    BLOCKS = 1 << REQUEST_MESSAGES,
    ITEMS = 1 << REQUEST_RESPONSES,
    OLLAMA = 1 << REQUEST_OLLAMA_CHAT | 1 << REQUEST_OLLAMA_GENERATE,
    ALL = TALKS | WRITES | BLOCKS | ITEMS,
};

/* Fields that are known but not supported. A request with such a field is
 * rejected unless the value of the field asks for nothing: null, false, empty,
 * 0, or the number `nothing`. */
static const struct {
    /* Protocols in which the field is known, a set of 1 << enum
     * request_kind. */
    unsigned kinds;
    const char *name;
    double nothing;
    const char *what;
} beyond[] = {
    {TALKS | WRITES, "post_sampling_probs", 0,
     "probabilities after sampling are"},
    {TALKS | WRITES, "lora", 0, "LoRA adapters are"},
    {TALKS | WRITES, "grammar_lazy", 0, "lazy grammars are"},
    {TALKS, "audio", 0, "audio is"},
    {WRITES, "suffix", 0, "text after the completion is"},
    {TALKS | WRITES, "best_of", 1, "best-of sampling is"},
    {ALL, "use_beam_search", 0, "beam search is"},
    {ALL, "stop_regex", 0, "ending at a regular expression is"},
    {ALL, "logits_processors", 0, "logits processors are"},
    {ALL, "custom_logit_processor", 0, "logits processors are"},
    {ALL, "vllm_xargs", 0, "arguments of extensions are"},
    {ALL, "repetition_detection", 0, "ending at a repetition is"},
    {ALL, "truncate_prompt_tokens", -1, "cutting the prompt is"},
    {ALL, "prompt_embeds", 0, "embeddings in place of a prompt are"},
    {ALL, "input_ids", 0, "token ids in place of a text are"},
    {ALL, "prompt_logprobs", 0,
     "probabilities of the prompt (see echo of /v1/completions) are"},
    {ALL, "logprob_token_ids", 0, "probabilities of given tokens are"},
    {ALL, "return_tokens_as_token_ids", 0, "token ids as texts are"},
    {ALL, "return_token_ids", 0,
     "token ids in the answer (see return_tokens of /completion) are"},
    {ALL, "return_hidden_states", 0, "hidden states are"},
    {ALL, "return_routed_experts", 0, "the experts of tokens are"},
    {ALL, "lora_path", 0, "LoRA adapters are"},
    {ALL, "session_params", 0, "sessions are"},
    {TALKS | BLOCKS | ITEMS, "chat_template", 0,
     "a template in the request (see --chat-template-file) is"},
    {TALKS | BLOCKS | ITEMS, "add_special_tokens", 0,
     "adding special tokens to a rendered conversation is"},
    {ITEMS, "previous_input_messages", 0, "earlier messages apart are"},
    {WRITES, "image_data", 0, "images are"},
    {BLOCKS, "mcp_servers", 0, "MCP servers are"},
    {BLOCKS, "container", 0, "containers are"},
    {ITEMS, "conversation", 0, "conversations stored by the server are"},
    {ITEMS, "background", 0, "background mode is"},
    {OLLAMA, "images", 0, "images are"},
    {ITEMS, "prompt", 0, "prompts stored by the server are"},
};

static bool needs_nothing(const json_t *v, double nothing)
{
    return v == NULL || json_is_false(v) ||
           (json_is_number(v) &&
            (json_number_value(v) == nothing || json_number_value(v) == 0)) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

/* Rejects a request for output of another kind: OpenAI's modalities other than
 * text, tool calls within the text, and probabilities in /v1/responses. */
static bool check_kinds_of_output(const struct request_reader *r)
{
    const bool items = r->a->kind == REQUEST_RESPONSES;
    const char *name = items ? "include" : "modalities";
    const json_t *one;
    size_t i;

    if (!items && r->a->kind != REQUEST_CHAT)
        return true;
    if (!items && json_is_false(field(&r->f, "parse_tool_calls")))
        return field_unsupported(&r->f, "parse_tool_calls",
                                 "calls as a part of the text are");
    json_array_foreach (field(&r->f, name), i, one) {
        const char *s = json_is_string(one) ? json_string_value(one) : "";

        if (items && strcmp(s, "message.output_text.logprobs") == 0)
            return field_unsupported(&r->f, name, "token probabilities are");
        if (!items && strcmp(s, "text") != 0)
            return field_unsupported(&r->f, name, "output other than text is");
    }
    return true;
}

static bool check_beyond(const struct request_reader *r)
{
    for (size_t i = 0; i < sizeof(beyond) / sizeof(beyond[0]); i++) {
        const json_t *v = field(&r->f, beyond[i].name);

        if ((beyond[i].kinds >> r->a->kind & 1) != 0 &&
            !needs_nothing(v, beyond[i].nothing))
            return field_unsupported(&r->f, beyond[i].name, beyond[i].what);
    }
    return check_kinds_of_output(r);
}

/* Rejects a request of Ollama's API that needs tools or reasoning if the chat
 * template supports neither. The error message has Ollama's words, by which
 * clients recognize it. */
static bool check_traits(const struct request_reader *r)
{
    const struct request *a = r->a;
    const char *model = a->model != NULL ? a->model : "the model";

    if ((OLLAMA >> a->kind & 1) == 0)
        return true;
    if (a->tools != NULL && (r->rules->can & REQUEST_TOOLS) == 0)
        return api_error_set(r->f.why, 400, "unsupported_value", "tools",
                             "%.200s does not support tools", model);
    if (a->think && (r->rules->can & REQUEST_THINKING) == 0)
        return api_error_set(r->f.why, 400, "unsupported_value", "think",
                             "\"%.200s\" does not support thinking", model);
    return true;
}

/* Rejects the request if it needs a feature that the server does not support.
 * Only this function and check_traits read rules->can. */
static bool check_needs(const struct request_reader *r)
{
    const struct request *a = r->a;
    const struct {
        enum request_need need;
        bool needed;
        const char *param, *what;
    } row[] = {
        {REQUEST_GRAMMAR, a->grammar != NULL, a->format,
         "grammar-constrained output is"},
        {REQUEST_SCHEMA, a->schema != NULL, a->format, "JSON Schema output is"},
        {REQUEST_CALL, a->must_call, "tool_choice", "a required tool call is"},
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        if (row[i].needed && (r->rules->can & row[i].need) == 0)
            return api_error_set(r->f.why, 400, "unsupported_value",
                                 row[i].param,
                                 "%s: %s not supported; leave it out",
                                 row[i].param, row[i].what);
    return true;
}

/* ---- parsing a whole request --------------------------------------------- */

bool request_dump(struct request_reader *r, const json_t *j, char **out)
{
    free(*out);
    *out = json_text_dump(j, JSON_COMPACT | JSON_ENCODE_ANY);
    return *out != NULL || api_error_set_memory(r->f.why);
}

bool request_pass_over(struct request_reader *r, const char *name)
{
    const struct text *t = &r->passed;

    if (t->n > 0 && strstr(t->s, name) != NULL)
        return true; /* the name is in the list already; log it only once */
    return ((t->n == 0 || text_add(&r->passed, ", ", 2)) &&
            text_add(&r->passed, name, strlen(name))) ||
           api_error_set_memory(r->f.why);
}

void request_ignore(struct request *a, const char *name)
{
    size_t n = strlen(a->passed_over);

    snprintf(a->passed_over + n, sizeof(a->passed_over) - n, "%s%.32s",
             n > 0 ? ", " : "", name);
}

static void log_passed(const struct request_reader *r)
{
    char line[512];

    if (r->passed.n == 0 || r->rules->log == NULL)
        return;
    snprintf(line, sizeof(line),
             "request: passed over, because only functions can be called here: "
             "%.400s",
             r->passed.s);
    r->rules->log(r->rules->log_user, PL_LOG_INFO, line);
}

bool request_set_extra(struct request_reader *r, const char *name,
                       json_t *value)
{
    if (r->extra == NULL)
        r->extra = json_object();
    if (json_object_get(r->extra, name) != NULL) {
        json_decref(value);
        return true;
    }
    return json_object_set_new(r->extra, name, value) == 0 ||
           api_error_set_memory(r->f.why);
}

bool request_set_thinking(struct request_reader *r, bool on)
{
    return request_set_extra(r, "enable_thinking", json_boolean(on)) &&
           request_set_extra(r, "thinking", json_boolean(on)) &&
           request_set_extra(r, "thinking_mode",
                             json_string(on ? "enabled" : "disabled"));
}

/* Returns the text in field `name` of a JSON object, without white space at its
 * beginning; NULL if the field has no other text. */
static const char *trimmed(const json_t *o, const char *name)
{
    const char *text = json_string_value(json_object_get(o, name));

    if (text != NULL)
        text += strspn(text, " \t\r\n");
    return text != NULL && *text != '\0' ? text : NULL;
}

/* Sets a->begun if the conversation of a request for chat completions or
 * /v1/messages ends with a text of the assistant. The model then continues this
 * text. If the request has the field add_generation_prompt, the model generates
 * a new message instead. With vLLM's field continue_final_message, a request
 * without a text to continue is rejected. With this field, reasoning is
 * continued, too, if no content follows it. */
static bool read_begun(struct request_reader *r)
{
    size_t n = json_array_size(r->messages);
    const json_t *last = json_array_get(r->messages, n > 0 ? n - 1 : 0);
    const char *role = json_string_value(json_object_get(last, "role"));
    const char *text = trimmed(last, "content");
    bool demanded = false;

    if (r->a->kind != REQUEST_CHAT && r->a->kind != REQUEST_MESSAGES)
        return true;
    if (!field_bool(&r->f, "continue_final_message", &demanded))
        return false;
    if (demanded && field(&r->f, "add_generation_prompt") &&
        !r->a->no_generation_prompt)
        return api_error_set(r->f.why, 400, "invalid_value",
                             "continue_final_message",
                             "continue_final_message: excludes "
                             "add_generation_prompt; set only one of them");
    if (demanded && text == NULL) {
        text = trimmed(last, "reasoning_content");
        r->a->begun_reasoning = text != NULL;
    }
    if (role == NULL || strcmp(role, "assistant") != 0 ||
        json_array_size(json_object_get(last, "tool_calls")) > 0)
        text = NULL;
    if (demanded && text == NULL)
        return api_error_set(r->f.why, 400, "invalid_value",
                             "continue_final_message",
                             "continue_final_message: the last message is not "
                             "a text of the assistant; leave it out");
    if (text == NULL ||
        (!demanded && field(&r->f, "add_generation_prompt") != NULL))
        return true;
    r->a->begun = strdup(text);
    r->a->no_generation_prompt = true;
    return r->a->begun != NULL || api_error_set_memory(r->f.why);
}

bool request_read_parts(struct request_reader *r)
{
    for (request_read_fn *const *part = kinds[r->a->kind].part; *part != NULL;
         part++)
        if (!(*part)(r))
            return false;
    return true;
}

static const char VARIABLES[] = "chat_template_kwargs";

bool request_add_defaults(json_t *body, const json_t *defaults)
{
    bool constrained =
        request_is_constrained(body) || json_object_get(body, "tools") != NULL;
    bool ok = true;
    json_t *own = json_deep_copy(defaults), *v;
    const char *name;

    if (defaults == NULL)
        return true;

    json_object_foreach (own, name, v) {
        bool own_grammar = constrained && (strcmp(name, "grammar") == 0 ||
                                           strcmp(name, "json_schema") == 0);

        if (json_object_get(body, name) == NULL && !own_grammar &&
            strcmp(name, VARIABLES) != 0)
            ok = json_object_set(body, name, v) == 0 && ok;
    }
    ok = ok && own != NULL;
    json_decref(own);
    return ok;
}

/* Sets template variables to the server's defaults, except those that the
 * request sets in any way. */
static bool add_variables(struct request_reader *r)
{
    json_t *own =
        json_deep_copy(json_object_get(r->rules->defaults, VARIABLES));
    const char *name;
    json_t *v;
    bool ok = true;

    json_object_foreach (own, name, v)
        ok = (strcmp(name, "enable_thinking") == 0
                  ? request_set_thinking(r, json_is_true(v))
                  : request_set_extra(r, name, json_incref(v))) &&
             ok;
    json_decref(own);
    return ok;
}

static bool read_all(struct request_reader *r, const char *body, size_t len)
{
    struct request *a = r->a;
    const json_t *given = NULL;

    if (!fields_read(&r->f, &a->body, body, len, r->f.why))
        return false;
    if (!request_add_defaults(a->body, r->rules->defaults))
        return api_error_set_memory(r->f.why);
    if (!field_text(&r->f, "model", &a->model) || !check_beyond(r))
        return false;
    if (!field_object(&r->f, "chat_template_kwargs", &given))
        return false;
    r->extra = given != NULL ? json_text_copy((json_t *)given) : NULL;
    if (given != NULL && r->extra == NULL)
        return api_error_set_memory(r->f.why);
    if (field(&r->f, "documents") != NULL &&
        !request_set_extra(r, "documents",
                           json_incref((json_t *)field(&r->f, "documents"))))
        return false;
    if (!request_read_parts(r) || !read_begun(r) || !add_variables(r))
        return false;
    if (r->messages != NULL && !request_dump(r, r->messages, &a->messages))
        return false;
    if (r->extra != NULL && !request_dump(r, r->extra, &a->extra))
        return false;
    return check_needs(r);
}

bool request_parse(struct request *a, enum request_kind kind, const char *body,
                   size_t len, const struct request_rules *rules,
                   struct api_error *why)
{
    struct request_reader r = {
        .f = {.why = why}, .a = a, .rules = rules, .prompt = "prompt"};
    bool ok;

    *a = (struct request){
        .kind = kind, .n = 1, .n_prompt = 1, .slot = -1, .words = rules->words};
    ok = read_all(&r, body, len);
    log_passed(&r);
    text_free(&r.passed);
    /* Restores the protocol, which request_read_ollama has changed. */
    a->kind = kind;
    ok = ok && check_traits(&r);
    json_decref(r.messages);
    json_decref(r.extra);
    json_decref(r.referred);
    if (!ok)
        request_fini(a);
    return ok;
}

void request_fini(struct request *a)
{
    for (int i = 0; a->prompt != NULL && i < a->n_prompt; i++) {
        for (int k = 0; k < a->prompt[i].n; k++)
            free(a->prompt[i].piece[k].ids);
        free(a->prompt[i].piece);
    }
    free(a->prompt);
    free(a->messages);
    free(a->begun);
    free(a->context);
    free(a->tools);
    free(a->call_joined);
    free(a->extra);
    free(a->bias_id);
    free(a->bias);
    free(a->only_id);
    free(a->banned_id);
    free(a->stop_id);
    free(a->dry_breaker);
    free(a->stop);
    free(a->schema);
    free(a->choices);
    json_decref(a->earlier);
    json_decref(a->body);
    *a = (struct request){0};
}
