/* Reads the input of /v1/responses, a string or a list of items. Consecutive
 * items that the model has generated (reasoning, message, calls) become one
 * message of the assistant. */
#include "request_parse.h"

#include <stdlib.h>

static const char *const texts[] = {"input_text", "output_text", "text",
                                    "refusal", NULL};
static const char *const outputs[] = {"input_text", "output_text", "text",
                                      REQUEST_ANY, NULL};

static json_t *last_by_model(const struct request_reader *r)
{
    size_t n = json_array_size(r->messages);
    json_t *m = n > 0 ? json_array_get(r->messages, n - 1) : NULL;
    const char *role = json_string_value(json_object_get(m, "role"));

    return role != NULL && strcmp(role, "assistant") == 0 ? m : NULL;
}

/* Appends a message with empty content to r->messages and returns the message,
 * borrowed. If out of memory, rejects the request and returns NULL. */
static json_t *new_message(struct request_reader *r, const char *role)
{
    json_t *m = json_pack("{ssss}", "role", role, "content", "");

    if (m != NULL && json_array_append_new(r->messages, m) == 0)
        return m;
    api_error_set_memory(r->f.why);
    return NULL;
}

static bool add_text(struct request_reader *r, const struct fields *item,
                     const char *name, json_t *message, const char *key,
                     const char *const *types)
{
    struct text t = {0};
    const json_t *had = json_object_get(message, key);
    bool ok = true;

    if (json_string_length(had) > 0) /* the texts of consecutive items are
                                        joined with a line break */
        ok = (text_add(&t, json_string_value(had), json_string_length(had)) &&
              text_add(&t, "\n", 1)) ||
             api_error_set_memory(r->f.why);
    ok = ok && request_join_text(item, name, types, "\n", &t) &&
         request_set_text(item, message, key, &t);
    text_free(&t);
    return ok;
}

static bool read_message(struct request_reader *r, const struct fields *item)
{
    static const char *const roles[] = {"user", "assistant", "system",
                                        "developer"};
    json_t *message = NULL;
    int role = 0;

    if (!field_need(item, "role") ||
        !field_choice(item, "role", roles, 4, &role) ||
        !field_need(item, "content"))
        return false;
    /* a text of the assistant is added to the message that has its reasoning,
     * unless that message has tool calls. */
    if (role == 1) {
        message = last_by_model(r);
        if (json_object_get(message, "tool_calls") != NULL)
            message = NULL;
    }
    if (message == NULL)
        message = new_message(r, role == 3 ? "system" : roles[role]);
    return message != NULL &&
           add_text(r, item, "content", message, "content", texts);
}

/* The types of items that are tool calls. An item of type "NAME_call" without a
 * field "name" is a call of the built-in tool NAME. */
static const struct call_item {
    /* type: type of the items with calls. output: type of the items with the
     * results of these calls. */
    const char *type, *output;
    /* Name of the tool; NULL if the item's field "name" has it. */
    const char *name;
    const char *arguments;
} call_items[] = {
    {"function_call", "function_call_output", NULL, "arguments"},
    {"custom_tool_call", "custom_tool_call_output", NULL, "input"},
    {"local_shell_call", "local_shell_call_output", "local_shell", "action"},
    {"shell_call", "shell_call_output", "shell", "action"},
    {"apply_patch_call", "apply_patch_call_output", "apply_patch", "operation"},
};

static bool read_call(struct request_reader *r, const struct fields *item,
                      const struct call_item *how)
{
    const char *id = NULL, *name = how->name, *space = NULL;
    json_t *message = last_by_model(r);
    char *joined;
    bool ok;

    if (!field_need(item, "call_id") || !field_text(item, "call_id", &id) ||
        (name == NULL &&
         (!field_need(item, "name") || !field_text(item, "name", &name))) ||
        !field_text(item, "namespace", &space))
        return false;
    joined = request_join_name(space, name);
    if (joined == NULL)
        return api_error_set_memory(r->f.why);
    if (message == NULL)
        message = new_message(r, "assistant");
    ok = message != NULL &&
         request_add_call(r, message, id, joined, field(item, how->arguments));
    free(joined);
    return ok;
}

static bool read_result(struct request_reader *r, const struct fields *item)
{
    const char *id = NULL;
    json_t *message, *name;

    if (!field_need(item, "call_id") || !field_text(item, "call_id", &id))
        return false;
    message = new_message(r, "tool");
    name = json_string(id);
    if (message == NULL)
        json_decref(name);
    else if (json_object_set_new(message, "tool_call_id", name) != 0)
        return api_error_set_memory(r->f.why);
    return message != NULL &&
           add_text(r, item, "output", message, "content", outputs);
}

static bool read_reasoning(struct request_reader *r, const struct fields *item)
{
    static const char *const thoughts[] = {"reasoning_text", "summary_text",
                                           "text", NULL};
    bool whole = json_array_size(field(item, "content")) > 0;
    json_t *message;

    if (json_is_string(field(item, "content")))
        whole = true;
    if (!whole && json_array_size(field(item, "summary")) == 0)
        return true; /* the item refers to reasoning that the request does not
                        contain */
    message = new_message(r, "assistant");
    return message != NULL && add_text(r, item, whole ? "content" : "summary",
                                       message, "reasoning_content", thoughts);
}

/* Returns true if the item refers to another: its type is item_reference, or
 * it has only an id. */
static bool is_reference(const struct fields *item)
{
    const char *type = json_string_value(field(item, "type"));

    if (field(item, "type") == NULL)
        return field(item, "id") != NULL && field(item, "role") == NULL;
    return type != NULL && strcmp(type, "item_reference") == 0;
}

/* Replaces item i of `list`, which refers to another, with that one, and sets
 * *item to it. */
static bool resolve(struct request_reader *r, const json_t *list, size_t i,
                    struct fields *item)
{
    const struct request_rules *rules = r->rules;
    const char *id = NULL;
    json_t *found = NULL;

    if (!field_need(item, "id") || !field_text(item, "id", &id))
        return false;
    /* Else a short request could have the text of a long item many times. */
    if (json_object_get(r->referred, id) != NULL)
        return api_error_set(r->f.why, 400, "invalid_value", "input",
                             "Duplicate item found with id '%.80s'. Remove "
                             "duplicate items from your input and try again.",
                             id);
    if (rules->recall_item != NULL)
        found = rules->recall_item(rules->recall_user, id);
    if (found == NULL)
        return api_error_set(r->f.why, 404, NULL, "input",
                             "Item with id '%.80s' not found. The server keeps "
                             "the items of the latest responses in memory, "
                             "unless `store` is false; send the item itself.",
                             id);
    if (r->referred == NULL)
        r->referred = json_object();
    if (json_object_set_new(r->referred, id, json_true()) != 0 ||
        json_array_set((json_t *)list, i, found) != 0) {
        json_decref(found);
        return api_error_set_memory(r->f.why);
    }
    json_decref(found);
    return fields_item(&r->f, "input", list, i, item);
}

static bool read_item(struct request_reader *r, const json_t *list, size_t i)
{
    struct fields item;
    const char *type = "message";

    if (!fields_item(&r->f, "input", list, i, &item) ||
        (is_reference(&item) && !resolve(r, list, i, &item)) ||
        !field_text(&item, "type", &type))
        return false;
    if (strcmp(type, "message") == 0)
        return read_message(r, &item);
    if (strcmp(type, "reasoning") == 0)
        return read_reasoning(r, &item);
    for (size_t k = 0; k < sizeof(call_items) / sizeof(call_items[0]); k++) {
        if (strcmp(type, call_items[k].type) == 0)
            return read_call(r, &item, &call_items[k]);
        if (strcmp(type, call_items[k].output) == 0)
            return read_result(r, &item);
    }
    return request_pass_over(r, type);
}

static bool read_instructions(struct request_reader *r)
{
    const char *text = NULL;
    json_t *m;

    if (!field_text(&r->f, "instructions", &text) || text == NULL)
        return text == NULL && field(&r->f, "instructions") == NULL;
    m = new_message(r, "system");
    return m != NULL && add_text(r, &r->f, "instructions", m, "content", texts);
}

/* Reads previous_response_id, and sets a->earlier to the items of the
 * conversation that the request continues. */
static bool read_earlier(struct request_reader *r)
{
    static const char name[] = "previous_response_id";
    const struct request_rules *rules = r->rules;
    const char *id = NULL;

    if (!field_text(&r->f, name, &id) || id == NULL || id[0] == '\0')
        return id != NULL || field(&r->f, name) == NULL;
    if (rules->recall != NULL)
        r->a->earlier = rules->recall(rules->recall_user, id);
    if (r->a->earlier == NULL)
        return api_error_set(r->f.why, 400, "previous_response_not_found", name,
                             "previous response with id \"%.80s\" not found: "
                             "the server keeps the latest in memory, unless "
                             "\"store\" is false; send the whole conversation",
                             id);
    for (size_t i = 0; i < json_array_size(r->a->earlier); i++)
        if (!read_item(r, r->a->earlier, i))
            return false;
    return true;
}

bool request_read_responses(struct request_reader *r)
{
    static const char *const truncations[] = {"disabled", "auto"};
    const json_t *v = field(&r->f, "input");
    int truncation = 0;
    json_t *m;

    if (!field_choice(&r->f, "truncation", truncations, 2, &truncation))
        return false;
    r->a->drop_turns = truncation == 1;

    r->messages = json_array();
    if (r->messages == NULL)
        return api_error_set_memory(r->f.why);
    if (!field_need(&r->f, "input") || !read_instructions(r) ||
        !read_earlier(r))
        return false;
    if (json_is_string(v)) {
        m = new_message(r, "user");
        return m != NULL && add_text(r, &r->f, "input", m, "content", texts);
    }
    if (json_array_size(v) == 0)
        return field_wrong(&r->f, "input", v, "a string, or a list of items");
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!read_item(r, v, i))
            return false;
    return true;
}
