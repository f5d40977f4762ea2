/* Reads the messages of /v1/chat/completions. Also has the helpers for messages
 * of all protocols. */
#include "request_parse.h"

#include <stdlib.h>

/* ---- helpers for all protocols ------------------------------------------- */

static bool is_one_of(const char *s, const char *const *list)
{
    while (*list != NULL && strcmp(*list, s) != 0)
        list++;
    return *list != NULL;
}

/* Appends the text of part i of `list`, the value of field `name`; see
 * request_join_text. */
static bool join_part(const struct fields *f, const char *name,
                      const json_t *list, size_t i, const char *const *types,
                      struct text *out)
{
    struct fields part;
    const char *type = NULL, *key, *s = NULL;
    const json_t *text;

    if (!fields_item(f, name, list, i, &part) || !field_need(&part, "type") ||
        !field_text(&part, "type", &type))
        return false;
    if (!is_one_of(type, types)) {
        char what[64];

        snprintf(what, sizeof(what), "content of type \"%.24s\" is", type);
        return field_unsupported(&part, "type", what);
    }
    key = strcmp(type, "refusal") == 0 ? "refusal" : "text";
    if (!field_need(&part, key) || !field_text(&part, key, &s))
        return false;
    text = field(&part, key);
    return text_add(out, json_string_value(text), json_string_length(text)) ||
           api_error_set_memory(f->why);
}

bool request_join_text(const struct fields *f, const char *name,
                       const char *const *types, const char *joint,
                       struct text *out)
{
    const json_t *v = field(f, name);

    if (v == NULL)
        return true;
    if (json_is_string(v))
        return text_add(out, json_string_value(v), json_string_length(v)) ||
               api_error_set_memory(f->why);
    if (!json_is_array(v))
        return field_wrong(f, name, v, "a string or a list of parts");
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (i > 0 && !text_add(out, joint, strlen(joint)))
            return api_error_set_memory(f->why);
        if (!join_part(f, name, v, i, types, out))
            return false;
    }
    return true;
}

bool request_set_text(const struct fields *f, json_t *object, const char *key,
                      const struct text *t)
{
    json_t *s = json_text(t->s != NULL ? t->s : "", t->n);

    return (s != NULL && json_object_set_new(object, key, s) == 0) ||
           api_error_set_memory(f->why);
}

/* Returns true if the JSON values in a text with call arguments are within the
 * limit for all calls of the request, and counts them. The values of the
 * request itself are counted separately. */
static bool has_room(struct request_reader *r, const char *text, size_t len)
{
    size_t n = field_values(text, len);

    if (n > FIELD_MOST_VALUES - r->n_value)
        return false;
    r->n_value += n;
    return true;
}

/* Returns the arguments of a call in the form that the template requires, an
 * object or its JSON text. `given` is NULL, an object or a JSON text. A text
 * that is invalid or too large is returned unchanged. NULL if out of memory. */
static json_t *arguments_of(struct request_reader *r, const json_t *given)
{
    const char *text = json_string_value(given);
    size_t len = json_string_length(given);
    json_t *object = NULL, *out = NULL;
    json_error_t e = {0};

    if (text != NULL && !has_room(r, text, len))
        return json_incref((json_t *)given);
    if (given == NULL)
        object = json_object();
    else if (text != NULL)
        object = json_loadb(text, len, 0, &e);
    else
        object = json_incref((json_t *)given);
    if (object == NULL &&
        (given == NULL ||
         (text != NULL && json_error_code(&e) == json_error_unknown)))
        return NULL;
    if (!json_is_object(object)) { /* a model generated invalid JSON earlier */
        json_decref(object);
        return json_incref((json_t *)given);
    }
    if (r->rules->calls_as_text) {
        char *s = json_dumps(object, 0);

        out = s != NULL ? json_string(s) : NULL;
        free(s);
        json_decref(object);
        return out;
    }
    return object;
}

bool request_add_call(struct request_reader *r, json_t *message, const char *id,
                      const char *name, const json_t *arguments)
{
    json_t *calls = json_object_get(message, "tool_calls");
    json_t *call =
        json_pack("{ss*sss{ssso}}", "id", id, "type", "function", "function",
                  "name", name, "arguments", arguments_of(r, arguments));

    if (calls == NULL) {
        calls = json_array();
        if (json_object_set_new(message, "tool_calls", calls) != 0)
            calls = NULL;
    }
    if (call == NULL || calls == NULL) {
        json_decref(call);
        return api_error_set_memory(r->f.why);
    }
    return json_array_append_new(calls, call) == 0 ||
           api_error_set_memory(r->f.why);
}

/* ---- messages ------------------------------------------------------------ */

static bool read_calls(struct request_reader *r, const struct fields *m,
                       json_t *message)
{
    const json_t *calls = NULL;

    if (!field_list(m, "tool_calls", &calls))
        return false;
    json_object_del(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        struct fields call, function;
        const char *id = NULL, *name = NULL;
        const json_t *arguments;

        if (!fields_item(m, "tool_calls", calls, i, &call) ||
            !field_text(&call, "id", &id) || !field_need(&call, "function") ||
            !fields_within(&call, "function", &function) ||
            !field_need(&function, "name") ||
            !field_text(&function, "name", &name))
            return false;
        arguments = field(&function, "arguments");
        if (arguments != NULL && !json_is_string(arguments) &&
            !json_is_object(arguments))
            return field_wrong(&function, "arguments", arguments,
                               "a string of JSON or an object");
        if (!request_add_call(r, message, id, name, arguments))
            return false;
    }
    return true;
}

/* Adds a message for the template. It keeps all its fields, because templates
 * may use any of them. The content becomes one string, and the arguments of
 * calls get the form that the template requires. The role "developer" becomes
 * "system", because templates know only that. */
static bool read_message(struct request_reader *r, const json_t *list, size_t i)
{
    static const char *const texts[] = {"text", "refusal", NULL};
    struct fields m;
    struct text content = {0};
    const char *role = NULL;
    json_t *message;
    bool ok;

    if (!fields_item(&r->f, "messages", list, i, &m) ||
        !field_need(&m, "role") || !field_text(&m, "role", &role))
        return false;
    message = json_copy((json_t *)m.in);
    if (message == NULL || json_array_append_new(r->messages, message) != 0)
        return api_error_set_memory(r->f.why);
    if (strcmp(role, "developer") == 0 &&
        json_object_set_new(message, "role", json_string("system")) != 0)
        return api_error_set_memory(r->f.why);
    if (!read_calls(r, &m, message))
        return false;
    if (json_object_get(message, "tool_calls") == NULL &&
        strcmp(role, "assistant") != 0 && !field_need(&m, "content"))
        return false;
    ok = request_join_text(&m, "content", texts, "\n", &content) &&
         request_set_text(&m, message, "content", &content);
    text_free(&content);
    return ok;
}

bool request_read_chat(struct request_reader *r)
{
    const json_t *list = NULL;
    bool answers = true;

    if (!field_bool(&r->f, "add_generation_prompt", &answers) ||
        !field_need(&r->f, "messages") || !field_list(&r->f, "messages", &list))
        return false;
    if (json_array_size(list) == 0)
        return field_wrong(&r->f, "messages", list, "a non-empty list");
    r->a->no_generation_prompt = !answers;
    r->messages = json_array();
    if (r->messages == NULL)
        return api_error_set_memory(r->f.why);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!read_message(r, list, i))
            return false;
    return true;
}
