/* Rewrites requests of Ollama's /api/chat and /api/generate as requests of
 * llama-server, which the readers of the other protocols then read. Options
 * become fields of the request, a prompt becomes a conversation, and messages
 * get the names that templates know. Only fields that Ollama's API has are
 * rewritten. */
#include "ollama.h"
#include "request_parse.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

/* ---- reading keep_alive -------------------------------------------------- */

static const struct {
    const char *name;
    double seconds;
} units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"\xc2\xb5s", 1e-6},
             {"ms", 1e-3}, {"h", 3600},  {"m", 60},
             {"s", 1}};

/* Parses a duration such as "1h30m", numbers with units, or one number without
 * a unit, in seconds. Sets *out to the duration in seconds. Returns false if
 * the text is malformed. */
static bool parse_duration(const char *s, double *out)
{
    double sign = *s == '-' ? -1 : 1, sum = 0;

    s += *s == '-' || *s == '+';
    if (*s == '\0')
        return false;
    while (*s != '\0') {
        char *end;
        double n = strtod(s, &end);
        size_t i = 0;

        if (!isdigit((unsigned char)*s) && *s != '.')
            return false;
        if (end == s || !isfinite(n))
            return false;
        /* a number without a unit is in seconds. */
        if (*end == '\0' && sum == 0) {
            *out = sign * n;
            return true;
        }
        while (i < sizeof(units) / sizeof(units[0]) &&
               strncmp(end, units[i].name, strlen(units[i].name)) != 0)
            i++;
        if (i == sizeof(units) / sizeof(units[0]))
            return false;
        sum += n * units[i].seconds;
        s = end + strlen(units[i].name);
    }
    *out = sign * sum;
    return true;
}

bool ollama_keep_alive(const struct fields *f, double *seconds)
{
    const json_t *v = field(f, "keep_alive");

    if (v == NULL)
        return true;
    if (json_is_number(v)) {
        *seconds = json_number_value(v);
        return true;
    }
    if (json_is_string(v) && parse_duration(json_string_value(v), seconds))
        return true;
    return field_wrong(f, "keep_alive", v,
                       "a number of seconds, or a duration such as \"5m\"; -1 "
                       "keeps the model, 0 unloads it");
}

bool ollama_is_empty(const struct fields *f, bool chats)
{
    return chats ? json_array_size(field(f, "messages")) == 0 &&
                       (field(f, "messages") == NULL ||
                        json_is_array(field(f, "messages")))
                 : (field(f, "prompt") == NULL ||
                    (json_is_string(field(f, "prompt")) &&
                     json_string_length(field(f, "prompt")) == 0)) &&
                       json_string_length(field(f, "suffix")) == 0;
}

/* ---- finding out what a chat template supports --------------------------- */

static bool has_word(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text != NULL && strstr(text, words[i]) != NULL)
            return true;
    return false;
}

unsigned ollama_traits(const char *form, const char *with_tools)
{
    static const char *const thinking[] = {
        "enable_thinking", "reasoning_content", "<think>",
        "[THINK]",         "reasoning_effort",  "thinking",
    };
    static const char *const tools[] = {"tools"};
    unsigned out = 0;

    if (with_tools != NULL || has_word(form, tools, 1))
        out |= REQUEST_TOOLS;
    if (has_word(form, thinking, sizeof(thinking) / sizeof(*thinking)))
        out |= REQUEST_THINKING;
    return out;
}

/* ---- rewriting fields ---------------------------------------------------- */

/* Sets field `name` of the rewritten request `to`, and takes ownership of
 * `value`. */
static bool put(struct request_reader *r, json_t *to, const char *name,
                json_t *value)
{
    return json_object_set_new(to, name, value) == 0 ||
           api_error_set_memory(r->f.why);
}

/* Copies the field `name` of f to the field `as` of the rewritten request, if
 * the field is present. */
static bool copy(struct request_reader *r, json_t *to, const struct fields *f,
                 const char *name, const char *as)
{
    const json_t *v = field(f, name);

    return v == NULL || put(r, to, as, json_incref((json_t *)v));
}

/* Options of Ollama's API that llama-server's requests have as fields with the
 * same name and meaning. */
static const char *const same[] = {
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "seed",
    "stop",
    "repeat_last_n",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "mirostat",
    "mirostat_tau",
    "mirostat_eta",
};
/* Options of Ollama's API that are not copied, and not logged as ignored
 * either. num_predict and num_ctx are read separately. num_keep is for a
 * context that drops old tokens when full, which no context does here. The
 * others do not change results here. */
static const char *const quiet[] = {
    "num_predict", "num_ctx",    "num_keep",   "num_batch", "num_gpu",
    "main_gpu",    "num_thread", "numa",       "low_vram",  "use_mmap",
    "use_mlock",   "vocab_only", "logits_all", "f16_kv",    "embedding_only",
};

static bool is_in(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

static bool rewrite_options(struct request_reader *r, json_t *to)
{
    struct fields options;
    int64_t n_predict = -1;
    const char *name;
    json_t *value;

    if (!fields_within(&r->f, "options", &options))
        return false;
    json_object_foreach ((json_t *)options.in, name, value) {
        if (json_is_null(value) ||
            is_in(name, quiet, sizeof(quiet) / sizeof(quiet[0])))
            continue;
        if (!is_in(name, same, sizeof(same) / sizeof(same[0])))
            request_ignore(r->a, name);
        else if (!put(r, to, name, json_incref(value)))
            return false;
    }
    if (!field_int(&options, "num_ctx", 0, INT32_MAX, &r->a->num_ctx) ||
        !field_int(&options, "num_predict", INT32_MIN, INT32_MAX, &n_predict))
        return false;
    return n_predict <= 0 || put(r, to, "n_predict", json_integer(n_predict));
}

/* Rewrites the field "format", whose value is "json" or a JSON Schema. */
static bool rewrite_format(struct request_reader *r, json_t *to)
{
    const json_t *v = field(&r->f, "format");

    if (v == NULL || (json_is_string(v) && json_string_length(v) == 0))
        return true;
    if (json_is_object(v))
        return put(r, to, "response_format",
                   json_pack("{s:s, s:{s:O}}", "type", "json_schema",
                             "json_schema", "schema", (json_t *)v));
    if (json_is_string(v) && strcmp(json_string_value(v), "json") == 0)
        return put(r, to, "response_format",
                   json_pack("{s:s}", "type", "json_object"));
    return field_wrong(&r->f, "format", v,
                       "\"json\" or a JSON Schema, an object");
}

static bool rewrite_think(struct request_reader *r, json_t *to)
{
    static const char *const levels[] = {"low", "medium", "high"};
    const json_t *v = field(&r->f, "think");
    const char *s = json_string_value(v);

    if (v == NULL)
        return true;
    r->a->think = !json_is_false(v);
    if (json_is_boolean(v))
        return request_set_thinking(r, json_is_true(v));
    if (s != NULL && is_in(s, levels, 3))
        return request_set_thinking(r, true) &&
               put(r, to, "reasoning_effort", json_string(s));
    return field_wrong(&r->f, "think", v,
                       "true, false, \"low\", \"medium\" or \"high\"");
}

/* Rewrites the fields "logprobs" and "top_logprobs". The second has no effect
 * without the first. */
static bool rewrite_probs(struct request_reader *r, json_t *to)
{
    bool probs = false;
    int64_t top = 0;

    if (!field_bool(&r->f, "logprobs", &probs) ||
        !field_int(&r->f, "top_logprobs", 0, 20, &top))
        return false;
    return !probs || (put(r, to, "logprobs", json_true()) &&
                      put(r, to, "top_logprobs", json_integer(top)));
}

/* Rewrites the fields that both /api/chat and /api/generate have. */
static bool rewrite_common(struct request_reader *r, json_t *to)
{
    double keep;
    bool stream = true;

    return ollama_keep_alive(&r->f, &keep) &&
           field_bool(&r->f, "stream", &stream) &&
           put(r, to, "stream", json_boolean(stream)) &&
           copy(r, to, &r->f, "model", "model") &&
           copy(r, to, &r->f, "receipt", "receipt") && rewrite_options(r, to) &&
           rewrite_format(r, to) && rewrite_think(r, to) &&
           rewrite_probs(r, to);
}

/* ---- rewriting messages -------------------------------------------------- */

/* The conversation that is being rewritten. Ollama's API allows tool calls and
 * results without ids. Such results are matched with calls by their order and
 * by the tools' names. */
struct talk {
    struct request_reader *r;
    json_t *list; /* the new messages; owned */
    /* Objects of lists, owned: the calls [id, name, open] with each id, those
     * with each name, and in `all`, under "", all calls. A call is open until
     * its result is seen. The first element of a list is the index of the first
     * call in it that may be open. */
    json_t *by_id, *by_name, *all;
    int n_call;
};

/* Appends a call to list `key` of `lists`. Returns false if out of memory. */
static bool add_open(json_t *lists, const char *key, json_t *call)
{
    json_t *list = json_object_get(lists, key);

    if (list == NULL) {
        list = json_pack("[i]", 1);
        if (json_object_set_new(lists, key, list) != 0)
            return false;
    }
    return json_array_append(list, call) == 0;
}

/* Returns the first open call of list `key` of `lists`, or NULL. */
static json_t *first_open(const json_t *lists, const char *key)
{
    json_t *list = json_object_get(lists, key),
           *first = json_array_get(list, 0);
    size_t n = json_array_size(list), i = (size_t)json_integer_value(first);

    while (i < n && json_is_false(json_array_get(json_array_get(list, i), 2)))
        i++;
    json_integer_set(first, (json_int_t)i);
    return i < n ? json_array_get(list, i) : NULL;
}

/* Adds an open call to the lists of `t`. */
static bool open_call(struct talk *t, const char *id, const char *name)
{
    json_t *call = json_pack("[s, s, b]", id, name, 1);
    bool ok = call != NULL && add_open(t->by_id, id, call) &&
              add_open(t->by_name, name, call) && add_open(t->all, "", call);

    json_decref(call);
    return ok || api_error_set_memory(t->r->f.why);
}

/* Copies the calls of a message, gives an id to each call without one, and adds
 * them to the open calls. */
static bool rewrite_calls(struct talk *t, const struct fields *m,
                          json_t *message)
{
    const json_t *calls = NULL;
    json_t *list;

    if (!field_list(m, "tool_calls", &calls))
        return false;
    if (json_array_size(calls) == 0) {
        json_object_del(message, "tool_calls");
        return true;
    }
    list = json_array();
    if (!put(t->r, message, "tool_calls", list))
        return false;
    for (size_t i = 0; i < json_array_size(calls); i++) {
        struct fields call, function;
        const char *id = NULL, *name = NULL;
        char own[32];

        if (!fields_item(m, "tool_calls", calls, i, &call) ||
            !field_need(&call, "function") ||
            !fields_within(&call, "function", &function) ||
            !field_text(&function, "name", &name) ||
            !field_text(&call, "id", &id))
            return false;
        snprintf(own, sizeof(own), "call_%d", t->n_call++);
        if (id == NULL || *id == '\0')
            id = own;
        if (json_array_append_new(
                list, json_pack("{s:s, s:s, s:O}", "id", id, "type", "function",
                                "function", (json_t *)function.in)) != 0 ||
            !open_call(t, id, name != NULL ? name : ""))
            return api_error_set_memory(t->r->f.why);
    }
    return true;
}

/* Gives the result of a tool the id and the name of its call, which is one of
 * t->open. This is the call that has the id of the result. If the result has no
 * id, it is the first call of the result's tool, or else the first call. */
static bool rewrite_result(struct talk *t, const struct fields *m,
                           json_t *message)
{
    const char *id = NULL, *name = NULL;
    json_t *call = NULL;

    if (!field_text(m, "tool_call_id", &id) ||
        !field_text(m, "tool_name", &name) ||
        (name == NULL && !field_text(m, "name", &name)))
        return false;
    if (id != NULL)
        call = first_open(t->by_id, id);
    else if (name != NULL)
        call = first_open(t->by_name, name);
    if (id == NULL && call == NULL)
        call = first_open(t->all, "");
    if (call != NULL) {
        const char *tool = json_string_value(json_array_get(call, 1));

        if ((id == NULL && !put(t->r, message, "tool_call_id",
                                json_incref(json_array_get(call, 0)))) ||
            (name == NULL && *tool != '\0' &&
             !put(t->r, message, "name", json_string(tool))))
            return false;
        json_array_set_new(call, 2, json_false());
    }
    json_object_del(message, "tool_name");
    return name == NULL || put(t->r, message, "name", json_string(name));
}

static bool rewrite_message(struct talk *t, const json_t *given, size_t i)
{
    struct fields m;
    const char *role = NULL;
    json_t *message;

    if (!fields_item(&t->r->f, "messages", given, i, &m) ||
        !field_need(&m, "role") || !field_text(&m, "role", &role))
        return false;
    if (json_array_size(field(&m, "images")) > 0)
        return field_unsupported(&m, "images", "images are");
    message = json_text_copy((json_t *)m.in);
    if (message == NULL || json_array_append_new(t->list, message) != 0)
        return api_error_set_memory(t->r->f.why);
    json_object_del(message, "images");
    json_object_del(message, "thinking");
    if (!copy(t->r, message, &m, "thinking", "reasoning_content"))
        return false;
    if (field(&m, "content") == NULL &&
        !put(t->r, message, "content", json_string("")))
        return false;
    return strcmp(role, "tool") == 0 ? rewrite_result(t, &m, message)
                                     : rewrite_calls(t, &m, message);
}

static bool rewrite_messages(struct request_reader *r, json_t *to)
{
    struct talk t = {.r = r,
                     .list = json_array(),
                     .by_id = json_object(),
                     .by_name = json_object(),
                     .all = json_object()};
    const json_t *given = NULL;
    bool ok = (t.list && t.by_id && t.by_name && t.all) ||
              api_error_set_memory(r->f.why);

    ok = ok && field_list(&r->f, "messages", &given);
    for (size_t i = 0; ok && i < json_array_size(given); i++)
        ok = rewrite_message(&t, given, i);
    json_decref(t.by_id);
    json_decref(t.by_name);
    json_decref(t.all);
    if (ok)
        return put(r, to, "messages", t.list) &&
               copy(r, to, &r->f, "tools", "tools");
    json_decref(t.list);
    return false;
}

/* ---- rewriting requests of /api/generate --------------------------------- */

/* Returns true if the template is "{{ .Prompt }}", which leaves the prompt
 * unchanged. Ollama's templates are in Go's template language. */
static bool is_plain_template(const char *s)
{
    static const char plain[] = "{{.Prompt}}";
    size_t n = 0;

    for (; *s != '\0'; s++)
        if (!isspace((unsigned char)*s) &&
            (n >= sizeof(plain) - 1 || plain[n++] != *s))
            return false;
    return n == sizeof(plain) - 1;
}

/* Reads the field "context", the tokens that an earlier response returned. */
static bool read_context(struct request_reader *r)
{
    struct request *a = r->a;
    const json_t *list = NULL;
    size_t n;

    if (!field_list(&r->f, "context", &list))
        return false;
    n = json_array_size(list);
    a->context = n > 0 ? malloc(n * sizeof(*a->context)) : NULL;
    if (n > 0 && a->context == NULL)
        return api_error_set_memory(r->f.why);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= r->rules->n_vocab)
            return field_wrong(&r->f, "context", v,
                               "the list of token ids of an earlier response");
        a->context[a->n_context++] = (int32_t)json_integer_value(v);
    }
    return true;
}

/* Sets the messages of the rewritten request: a system message, if there is a
 * system text, and the prompt as a user message. */
static bool put_conversation(struct request_reader *r, json_t *to,
                             const char *system)
{
    json_t *list = json_array();

    if (!put(r, to, "messages", list))
        return false;
    if (system != NULL && *system != '\0' &&
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system",
                                              "content", system)) != 0)
        return api_error_set_memory(r->f.why);
    return json_array_append_new(
               list, json_pack("{s:s, s:O}", "role", "user", "content",
                               (json_t *)field(&r->f, "prompt"))) == 0 ||
           api_error_set_memory(r->f.why);
}

static bool rewrite_prompt(struct request_reader *r, json_t *to)
{
    struct request *a = r->a;
    const char *prompt = NULL, *suffix = NULL, *system = NULL, *form = NULL;
    bool raw = false;

    if (!field_text(&r->f, "prompt", &prompt) ||
        !field_text(&r->f, "suffix", &suffix) ||
        !field_text(&r->f, "system", &system) ||
        !field_text(&r->f, "template", &form) ||
        !field_bool(&r->f, "raw", &raw) || !read_context(r))
        return false;
    form = form != NULL && *form != '\0' ? form : NULL;
    if (raw && (form != NULL || a->n_context > 0 ||
                (system != NULL && *system != '\0')))
        return api_error_set(r->f.why, 400, "invalid_value", "raw",
                             "raw: cannot be combined with template, system or "
                             "context; leave them out");
    if (form != NULL && !is_plain_template(form))
        return field_unsupported(&r->f, "template",
                                 "another template than \"{{ .Prompt }}\" is");
    if (suffix != NULL && *suffix != '\0') {
        a->kind = REQUEST_INFILL;
        return put(r, to, "prompt", json_string("")) &&
               put(r, to, "input_prefix",
                   prompt != NULL
                       ? json_incref((json_t *)field(&r->f, "prompt"))
                       : json_string("")) &&
               copy(r, to, &r->f, "suffix", "input_suffix");
    }
    if (!raw && !put(r, to, "return_tokens", json_true()))
        return false;
    if (!raw && form == NULL) {
        a->kind = REQUEST_CHAT;
        return put_conversation(r, to, system);
    }
    a->kind = REQUEST_COMPLETION;
    return copy(r, to, &r->f, "prompt", "prompt");
}

bool request_read_ollama(struct request_reader *r)
{
    struct request *a = r->a;
    bool chats = a->kind == REQUEST_OLLAMA_CHAT;
    json_t *to = json_object();
    bool ok =
        to != NULL ? rewrite_common(r, to) : api_error_set_memory(r->f.why);

    a->load_only = ok && ollama_is_empty(&r->f, chats);
    if (ok && !a->load_only && chats) {
        a->kind = REQUEST_CHAT;
        a->drop_turns = true;
        ok = field_bool(&r->f, "truncate", &a->drop_turns) &&
             rewrite_messages(r, to);
    } else if (ok && !a->load_only) {
        ok = rewrite_prompt(r, to);
    }
    if (!ok) {
        json_decref(to);
        return false;
    }
    json_decref(a->body);
    a->body = to;
    r->f.in = to;
    if (!request_add_defaults(to, r->rules->defaults))
        return api_error_set_memory(r->f.why);
    return a->load_only || request_read_parts(r);
}
