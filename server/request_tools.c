/* Reads the tools and "tool_choice" of each protocol. Converts tools to the
 * form that templates expect: {"type": "function", "function": {"name",
 * "description", "parameters"}}. In chat completions, also reads "functions"
 * and "function_call", the older form of tools. In /v1/responses, the functions
 * of a tool of type "namespace" are offered under joined names, because chat
 * templates know no namespaces. */
#include "request_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the text between a namespace and a name in their joined name. */
static const char *joint(const char *space)
{
    size_t n = strlen(space);

    return n == 0 || (n >= 2 && strcmp(space + n - 2, "__") == 0) ? "" : "__";
}

char *request_join_name(const char *space, const char *name)
{
    size_t n;
    char *s;

    if (space == NULL)
        space = "";
    n = strlen(space) + strlen(name) + 3;
    s = malloc(n);
    if (s != NULL)
        snprintf(s, n, "%s%s%s", space, joint(space), name);
    return s;
}

/* Returns true if `joined` is the joined name of function `name` of namespace
 * `space`. */
static bool is_joined(const char *joined, const char *space, const char *name)
{
    size_t n = strlen(space), n_joint = strlen(joint(space));

    return strncmp(joined, space, n) == 0 &&
           strncmp(joined + n, joint(space), n_joint) == 0 &&
           strcmp(joined + n + n_joint, name) == 0;
}

/* Reads the name, description and parameters of a tool from `f`, and appends
 * the tool to `list`. `schema_name` is the field that has the JSON Schema of
 * the parameters, `space` the namespace of the tool or NULL. */
static bool read_function(struct request_reader *r, const struct fields *f,
                          const char *schema_name, const char *space,
                          json_t *list)
{
    const char *name = NULL, *about = NULL;
    const json_t *schema = NULL;
    const json_t *given = field(f, schema_name);
    json_t *function, *tool;
    char *joined;

    if (!field_need(f, "name") || !field_text(f, "name", &name) ||
        !field_text(f, "description", &about))
        return false;
    /* PHP encodes an empty object as an empty list. */
    if (!(json_is_array(given) && json_array_size(given) == 0) &&
        !field_object(f, schema_name, &schema))
        return false;
    if (name[0] == '\0')
        return field_wrong(f, "name", field(f, "name"), "a non-empty string");
    joined = request_join_name(space, name);
    if (joined == NULL)
        return api_error_set_memory(r->f.why);
    function = json_pack("{ss}", "name", joined);
    free(joined);
    if (about != NULL)
        json_text_put(&function, "description", json_string(about));
    if (schema != NULL)
        json_text_put(&function, "parameters", json_incref((json_t *)schema));
    tool = json_pack("{ssso}", "type", "function", "function", function);
    if (json_array_append_new(list, tool) != 0)
        return api_error_set_memory(r->f.why);
    return true;
}

/* Reads the functions of a tool of type "namespace". */
static bool read_namespace(struct request_reader *r, const struct fields *tool,
                           json_t *list)
{
    const char *space = NULL;
    const json_t *given = NULL;
    bool ok = field_need(tool, "name") && field_text(tool, "name", &space) &&
              field_list(tool, "tools", &given);

    for (size_t i = 0; ok && i < json_array_size(given); i++) {
        const char *type = "function";
        struct fields f;

        ok = fields_item(tool, "tools", given, i, &f) &&
             field_text(&f, "type", &type) &&
             (strcmp(type, "function") == 0
                  ? read_function(r, &f, "parameters", space, list)
                  : request_pass_over(r, type));
    }
    return ok;
}

static bool read_tool(struct request_reader *r, const json_t *given, size_t i,
                      json_t *list)
{
    struct fields tool, inner;
    const char *type = "function";

    if (!fields_item(&r->f, "tools", given, i, &tool) ||
        !field_text(&tool, "type", &type))
        return false;
    if (r->a->kind == REQUEST_MESSAGES && strcmp(type, "custom") == 0)
        type = "function";
    if (r->a->kind == REQUEST_RESPONSES && strcmp(type, "namespace") == 0)
        return read_namespace(r, &tool, list);
    if (strcmp(type, "function") != 0)
        return request_pass_over(r, type);
    if (r->a->kind == REQUEST_CHAT && field(&tool, "name") == NULL)
        return field_need(&tool, "function") &&
               fields_within(&tool, "function", &inner) &&
               read_function(r, &inner, "parameters", NULL, list);
    /* Some clients send tools in the form of another protocol, so the JSON
     * Schema may be in either field. */
    return read_function(
        r, &tool, field(&tool, "input_schema") ? "input_schema" : "parameters",
        NULL, list);
}

/* Returns the name of the field that selects the tool to call: "tool_choice",
 * or "function_call" for the older form. */
static const char *choice_field(const struct request_reader *r)
{
    return r->a->functions ? "function_call" : "tool_choice";
}

/* Returns the name of a tool: the field "name" of the tool itself or of its
 * object "function". */
static const char *name_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");

    return json_string_value(
        json_object_get(function != NULL ? function : tool, "name"));
}

static bool has_tool(const json_t *list, const char *name)
{
    size_t i;
    json_t *tool;

    json_array_foreach ((json_t *)list, i, tool) {
        const char *is = name_of(tool);
        const char *space =
            json_string_value(json_object_get(tool, "namespace"));

        if (is != NULL && is_joined(name, space != NULL ? space : "", is))
            return true;
    }
    return false;
}

bool request_split_name(const struct request *a, const char *joined,
                        const char **space, const char **name)
{
    const json_t *tools = json_object_get(a->body, "tools");

    if (a->kind != REQUEST_RESPONSES)
        return false;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *list = json_object_get(tool, "tools");
        const char *type = json_string_value(json_object_get(tool, "type"));

        *space = name_of(tool);
        if (type == NULL || *space == NULL || strcmp(type, "namespace") != 0)
            continue;
        for (size_t k = 0; k < json_array_size(list); k++) {
            *name = name_of(json_array_get(list, k));
            if (*name != NULL && is_joined(joined, *space, *name))
                return true;
        }
    }
    return false;
}

/* Reads a tool_choice {"type": "allowed_tools", "mode", "tools"}, and removes
 * all tools that it does not name from `list`. "mode" and "tools" may also be
 * in an object "allowed_tools". */
static bool read_allowed(struct request_reader *r, const struct fields *choice,
                         json_t *list)
{
    static const char *const modes[] = {"auto", "required"};
    const json_t *allowed = NULL;
    struct fields own;
    int mode = 0;

    if (!fields_within(choice, "allowed_tools", &own))
        return false;
    if (own.in == NULL)
        own = *choice;
    if (!field_choice(&own, "mode", modes, 2, &mode) ||
        !field_need(&own, "tools") || !field_list(&own, "tools", &allowed))
        return false;
    for (size_t i = json_array_size(list); i-- > 0;)
        if (!has_tool(allowed, name_of(json_array_get(list, i))))
            json_array_remove(list, i);
    r->a->must_call = mode == 1;
    return true;
}

/* Reads a "tool_choice" that is an object, such as {"type": "function",
 * "function": {"name"}}. In /v1/messages and /v1/responses, "name" is next to
 * "type". Sets *none if the model may not call any tool. */
static bool read_choice_object(struct request_reader *r, json_t *tools,
                               bool *none)
{
    static const char *const types[] = {"auto", "none",     "any",
                                        "tool", "function", "allowed_tools"};
    struct request *a = r->a;
    struct fields choice, inner;
    const char *space = NULL;
    int type = 0;

    if (!fields_within(&r->f, choice_field(r), &choice))
        return false;
    a->must_call = a->functions;
    if (a->functions)
        return field_need(&choice, "name") &&
               field_text(&choice, "name", &a->call);
    if (!field_need(&choice, "type") ||
        !field_choice(&choice, "type", types, 6, &type) ||
        !field_bool(&choice, "disable_parallel_tool_use", &a->single_call))
        return false;
    if (type == 5)
        return read_allowed(r, &choice, tools);
    *none = type == 1;
    a->must_call = type >= 2;
    if (type < 3)
        return true;
    inner = choice;
    if (a->kind == REQUEST_CHAT && field(&choice, "name") == NULL &&
        (!field_need(&choice, "function") ||
         !fields_within(&choice, "function", &inner)))
        return false;
    if (!field_need(&inner, "name") || !field_text(&inner, "name", &a->call) ||
        !field_text(&inner, "namespace", &space))
        return false;
    if (space != NULL) {
        a->call_joined = request_join_name(space, a->call);
        a->call = a->call_joined;
    }
    return a->call != NULL || api_error_set_memory(r->f.why);
}

static bool read_choice(struct request_reader *r, json_t *tools, bool *none)
{
    static const char *const words[] = {"auto", "none", "required", "any"};
    struct request *a = r->a;
    const char *name = choice_field(r);
    bool parallel = true;
    int word = 0;

    if (!field_bool(&r->f, "parallel_tool_calls", &parallel))
        return false;
    a->single_call = !parallel || a->functions;
    if (json_is_object(field(&r->f, name))) {
        if (!read_choice_object(r, tools, none))
            return false;
    } else {
        if (!field_choice(&r->f, name, words, 4, &word))
            return false;
        *none = word == 1;
        a->must_call = word >= 2;
    }
    if (a->must_call && json_array_size(tools) == 0)
        return api_error_set(
            r->f.why, 400, "invalid_value", name,
            "%s: a call is required, but the request has no tools; add tools, "
            "or set %s to \"auto\"",
            name, name);
    if (a->must_call && a->grammar != NULL)
        return api_error_set(
            r->f.why, 400, "invalid_value", name,
            "%s: a required call cannot be combined with %s; leave %s out, or "
            "set %s to \"auto\" or \"none\"",
            name, r->a->format, r->a->format, name);
    if (a->call != NULL && !has_tool(tools, a->call))
        return api_error_set(r->f.why, 400, "invalid_value", name,
                             "%s: function \"%.100s\" is not in %s; add it, or "
                             "name one of them",
                             name, a->call,
                             a->functions ? "functions" : "tools");
    return true;
}

/* Reads item i of the list "functions", the older form of tools. */
static bool read_old(struct request_reader *r, const json_t *given, size_t i,
                     json_t *list)
{
    struct fields f;

    return fields_item(&r->f, "functions", given, i, &f) &&
           read_function(r, &f, "parameters", NULL, list);
}

bool request_read_tools(struct request_reader *r)
{
    const bool chat = r->a->kind == REQUEST_CHAT;
    const json_t *given = NULL;
    json_t *list = json_array();
    bool ok = list != NULL || api_error_set_memory(r->f.why), none = false;

    r->a->functions = chat && field(&r->f, "tools") == NULL &&
                      field(&r->f, "functions") != NULL;
    ok = ok &&
         field_list(&r->f, r->a->functions ? "functions" : "tools", &given);
    if (ok && chat && field(&r->f, "web_search_options") != NULL)
        ok = request_pass_over(r, "web_search");
    for (size_t i = 0; ok && i < json_array_size(given); i++)
        ok = r->a->functions ? read_old(r, given, i, list)
                             : read_tool(r, given, i, list);
    ok = ok && read_choice(r, list, &none);
    if (ok && !none && json_array_size(list) > 0)
        ok = request_dump(r, list, &r->a->tools);
    json_decref(list);
    return ok;
}
