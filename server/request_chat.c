/* Reads the messages of /v1/chat/completions. Also has the functions for
 * messages that the readers of all protocols use. */
#include "request_parse.h"

#include <stdlib.h>

/* ---- functions for the messages of all protocols ------------------------- */

static bool is_one_of(const char *s, const char *const *list)
{
    while (*list != NULL && strcmp(*list, s) != 0)
        list++;
    return *list != NULL;
}

/* The types of content parts that contain reasoning. read_reasoning reads such
 * parts; request_join_text leaves them out. */
static const char *const reasons[] = {"thinking", "redacted_thinking",
                                      "reasoning", NULL};

/* Appends the text of content part i of `list` to *out. `list` is the value of
 * field `name`. The other arguments are those of request_join_text. */
static bool join_part(const struct fields *f, const char *name,
                      const json_t *list, size_t i, const char *const *types,
                      struct text *out)
{
    struct fields part;
    const char *type = NULL, *key, *s = NULL;
    const json_t *text = json_array_get(list, i);
    char what[64];
    bool any;

    if (json_is_string(text))
        return text_add(out, json_string_value(text),
                        json_string_length(text)) ||
               api_error_set_memory(f->why);
    if (!fields_item(f, name, list, i, &part) || !field_need(&part, "type") ||
        !field_text(&part, "type", &type))
        return false;
    any = is_one_of(REQUEST_ANY, types);
    if (request_is_file(type)) {
        if (request_add_file(&part, type, out))
            return true;
        if (!any || f->why->status != 400)
            return false;
    }
    if (!is_one_of(type, types) && any) {
        snprintf(what, sizeof(what), "[%.24s left out]", type);
        return text_add(out, what, strlen(what)) ||
               api_error_set_memory(f->why);
    }
    if (!is_one_of(type, types)) {
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

static bool is_reasoning(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));

    return type != NULL && is_one_of(type, reasons);
}

/* Appends the result of a tool to *out as JSON text, because the result is
 * neither a string nor a list of content parts. */
static bool add_json(const struct fields *f, const json_t *v, struct text *out)
{
    char *s = json_text_dump(v, JSON_ENCODE_ANY);
    bool ok = (s != NULL && text_add(out, s, strlen(s))) ||
              api_error_set_memory(f->why);

    free(s);
    return ok;
}

bool request_join_text(const struct fields *f, const char *name,
                       const char *const *types, const char *joint,
                       struct text *out)
{
    const json_t *v = field(f, name);
    bool any = false;

    if (v == NULL)
        return true;
    if (json_is_string(v))
        return text_add(out, json_string_value(v), json_string_length(v)) ||
               api_error_set_memory(f->why);
    if (!json_is_array(v) && is_one_of(REQUEST_ANY, types))
        return add_json(f, v, out);
    if (!json_is_array(v))
        return field_wrong(f, name, v, "a string or a list of parts");
    for (size_t i = 0; i < json_array_size(v); i++) {
        if (is_reasoning(json_array_get(v, i)))
            continue;
        if (any && !text_add(out, joint, strlen(joint)))
            return api_error_set_memory(f->why);
        if (!join_part(f, name, v, i, types, out))
            return false;
        any = true;
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

/* Counts the JSON values in the text of a call's arguments. Returns false if
 * the arguments of all calls of the request together have more than
 * FIELD_MOST_VALUES values. The values of the request itself are counted
 * separately. */
static bool has_room(struct request_reader *r, const char *text, size_t len)
{
    size_t n = field_values(text, len);

    if (n > FIELD_MOST_VALUES - r->n_value)
        return false;
    r->n_value += n;
    return true;
}

/* Returns the JSON object at the beginning of the text s [n], even if more text
 * follows it. If the text was cut off, closes the strings, lists and objects
 * that are open. NULL if that does not give valid JSON. */
static json_t *repaired(const char *s, size_t n)
{
    struct text whole = {0}, closed = {0};
    bool quoted = false;
    /* Offset of the last backslash within a string; n if there is none. */
    size_t escape = n;
    json_t *j = json_text_load(s, n, JSON_DISABLE_EOF_CHECK, NULL);

    if (j != NULL)
        return j;
    for (size_t i = 0; i < n; i++) {
        if (quoted && s[i] == '\\')
            escape = i++;
        else if (s[i] == '"')
            quoted = !quoted;
    }
    if (quoted && escape < n && n - escape < (s[escape + 1] == 'u' ? 6 : 2))
        n = escape; /* the text was cut off within this escape, so leave the
                       escape out */
    if (text_add(&whole, s, n) && text_add(&whole, "\"", quoted) &&
        json_text_close(whole.s, whole.n, &closed))
        j = json_text_load(closed.s, closed.n, 0, NULL);
    text_free(&whole);
    text_free(&closed);
    return j;
}

/* Returns the arguments of a tool call as a JSON object. `given` is the value
 * in the request, mostly a JSON text. A model has written this text in an
 * earlier reply, so it may be cut off or not be JSON. Such a text is repaired
 * or wrapped in an object instead of rejected, because the conversation must be
 * able to continue. A text with too many JSON values is returned unchanged.
 * NULL if out of memory. */
static json_t *arguments_of(struct request_reader *r, const json_t *given)
{
    json_t *j = given != NULL ? json_incref((json_t *)given) : json_object();

    /* The JSON text may be a string that contains a JSON text. */
    for (int i = 0; i < 2 && json_is_string(j); i++) {
        const char *s = json_string_value(j);
        size_t n = json_string_length(j), blank = strspn(s, " \t\r\n");
        json_t *inner;

        if (!has_room(r, s, n))
            return j;
        inner = blank == n ? json_object()
                           : json_text_load(s, n, JSON_DECODE_ANY, NULL);
        if (inner == NULL && s[blank] == '{')
            inner = repaired(s, n);
        if (inner == NULL)
            break;
        json_decref(j);
        j = inner;
    }
    if (json_is_null(j)) {
        json_decref(j);
        return json_object();
    }
    return json_is_object(j) ? j : json_pack("{so}", "input", j);
}

bool request_add_call(struct request_reader *r, json_t *message, const char *id,
                      const char *name, const json_t *arguments)
{
    json_t *calls = json_object_get(message, "tool_calls");
    json_t *call = json_object();

    if (id != NULL)
        json_text_put(&call, "id", json_string(id));
    json_text_put(&call, "type", json_string("function"));
    json_text_put(&call, "function",
                  json_pack("{ssso}", "name", name, "arguments",
                            arguments_of(r, arguments)));
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

/* ---- reading messages of chat completions -------------------------------- */

/* Appends a tool call to a message. The object `f` has the name of the tool,
 * and the arguments of the call in the field "arguments" or, for a custom tool,
 * "input". */
static bool read_function(struct request_reader *r, const struct fields *f,
                          json_t *message, const char *id)
{
    const char *name = NULL;
    const json_t *given = field(f, "arguments");

    return field_need(f, "name") && field_text(f, "name", &name) &&
           request_add_call(r, message, id, name,
                            given != NULL ? given : field(f, "input"));
}

static bool read_calls(struct request_reader *r, const struct fields *m,
                       json_t *message)
{
    static const char *const kinds[] = {"function", "custom"};
    const json_t *calls = NULL;
    struct fields old;

    if (!field_list(m, "tool_calls", &calls) ||
        !fields_within(m, "function_call", &old))
        return false;
    json_object_del(message, "tool_calls");
    json_object_del(message, "function_call");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        struct fields call, inner = {0};
        const char *id = NULL;

        if (!fields_item(m, "tool_calls", calls, i, &call) ||
            !field_text(&call, "id", &id))
            return false;
        for (int k = 0; k < 2 && inner.in == NULL; k++)
            if (!fields_within(&call, kinds[k], &inner))
                return false;
        if (inner.in == NULL && field(&call, "name") == NULL)
            return field_need(&call, "function");
        if (!read_function(r, inner.in != NULL ? &inner : &call, message, id))
            return false;
    }
    return old.in == NULL || read_function(r, &old, message, NULL);
}

/* Appends the texts in `v` to *out. `v` is a string, a content part, or a list
 * of strings and content parts. */
static bool gather(const json_t *v, struct text *out)
{
    static const char *const keys[] = {"thinking", "text", "summary",
                                       "content"};
    json_t *part;
    size_t i;

    if (json_is_string(v))
        return text_add(out, json_string_value(v), json_string_length(v));
    json_array_foreach ((json_t *)v, i, part)
        if (!gather(part, out))
            return false;
    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (json_object_get(v, keys[i]) != NULL)
            return gather(json_object_get(v, keys[i]), out);
    return true;
}

/* Sets the field reasoning_content of an assistant message to its reasoning.
 * Clients send reasoning in fields of several names; the other fields are
 * removed. */
static bool read_reasoning(struct request_reader *r, const struct fields *m,
                           json_t *message)
{
    static const char *const names[] = {"reasoning_content", "reasoning",
                                        "thinking", "reasoning_details",
                                        "thinking_blocks"};
    const json_t *content = field(m, "content");
    struct text t = {0};
    json_t *part;
    size_t i;
    bool ok = true;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (t.n == 0)
            ok = ok && gather(field(m, names[i]), &t);
        json_object_del(message, names[i]);
    }
    json_array_foreach ((json_t *)content, i, part)
        if (is_reasoning(part))
            ok = ok && gather(part, &t);
    ok = ok || api_error_set_memory(r->f.why);
    ok = ok &&
         (t.n == 0 || request_set_text(m, message, "reasoning_content", &t));
    text_free(&t);
    return ok;
}

/* Removes the fields of a message whose value is null. Client libraries send
 * such fields, but a template may test whether a field exists. */
static void drop_nulls(json_t *message)
{
    const char *key;
    json_t *v;
    void *next;

    json_object_foreach_safe(message, next, key, v) if (json_is_null(v))
        json_object_del(message, key);
}

/* Adds message i of `list` to the conversation that the template renders. The
 * message keeps all its fields, because templates may use any of them. The
 * content becomes one string, and the arguments of calls become objects. The
 * role "developer" becomes "system", and the older "function" becomes "tool",
 * because templates know only these. */
static bool read_message(struct request_reader *r, const json_t *list, size_t i)
{
    static const char *const texts[] = {"text", "refusal", "input_text",
                                        "output_text", NULL};
    static const char *const results[] = {"text", "input_text", "output_text",
                                          REQUEST_ANY, NULL};
    struct fields m;
    struct text content = {0};
    const char *role = NULL;
    json_t *message;
    bool ok, assistant, tool;

    if (!fields_item(&r->f, "messages", list, i, &m) ||
        !field_need(&m, "role") || !field_text(&m, "role", &role))
        return false;
    assistant = strcmp(role, "assistant") == 0;
    tool = strcmp(role, "tool") == 0 || strcmp(role, "function") == 0;
    message = json_text_copy((json_t *)m.in);
    if (message == NULL || json_array_append_new(r->messages, message) != 0)
        return api_error_set_memory(r->f.why);
    drop_nulls(message);
    if ((strcmp(role, "developer") == 0 || strcmp(role, "function") == 0) &&
        json_object_set_new(message, "role",
                            json_string(tool ? "tool" : "system")) != 0)
        return api_error_set_memory(r->f.why);
    if (!read_calls(r, &m, message) ||
        (assistant && !read_reasoning(r, &m, message)))
        return false;
    if (!assistant && !tool && !field_need(&m, "content"))
        return false;
    ok = request_join_text(&m, "content", tool ? results : texts, "\n",
                           &content) &&
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
