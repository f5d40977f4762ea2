/* Reads the messages of /v1/messages. The content of a message is a list of
 * blocks: texts, tool calls, tool results, reasoning. The template expects each
 * tool result in a message of its own, so a message with tool results becomes
 * several messages. */
#include "request_parse.h"

static const char *const texts[] = {"text", NULL};
static const char *const results[] = {"text", REQUEST_ANY, NULL};

/* A message for the template under construction. */
struct making {
    struct request_reader *r;
    const char *role;
    /* The message, borrowed from the list r->messages; NULL if none was
     * begun. */
    json_t *message;
    struct text content, reasoning;
};

static bool begin(struct making *m)
{
    if (m->message != NULL)
        return true;
    m->message = json_pack("{ssss}", "role", m->role, "content", "");
    return (m->message != NULL &&
            json_array_append_new(m->r->messages, m->message) == 0) ||
           api_error_set_memory(m->r->f.why);
}

/* Completes the message under construction, if there is one. The next block
 * then begins another message. */
static bool end(struct making *m)
{
    const struct fields *f = &m->r->f;
    bool ok = m->message == NULL ||
              request_set_text(f, m->message, "content", &m->content);

    if (ok && m->reasoning.n > 0)
        ok =
            request_set_text(f, m->message, "reasoning_content", &m->reasoning);
    text_free(&m->content);
    text_free(&m->reasoning);
    m->message = NULL;
    return ok;
}

static bool add(struct making *m, struct text *to, const struct fields *block,
                const char *name)
{
    const char *s = NULL;

    if (!field_need(block, name) || !field_text(block, name, &s) || !begin(m))
        return false;
    if (to->n > 0 && !text_add(to, "\n", 1))
        return api_error_set_memory(m->r->f.why);
    return text_add(to, s, strlen(s)) || api_error_set_memory(m->r->f.why);
}

static bool add_document(struct making *m, const struct fields *block,
                         const char *type)
{
    if (!begin(m))
        return false;
    if (m->content.n > 0 && !text_add(&m->content, "\n", 1))
        return api_error_set_memory(m->r->f.why);
    return request_add_file(block, type, &m->content);
}

static bool add_call(struct making *m, const struct fields *block)
{
    const char *id = NULL, *name = NULL;

    return field_need(block, "id") && field_text(block, "id", &id) &&
           field_need(block, "name") && field_text(block, "name", &name) &&
           begin(m) &&
           request_add_call(m->r, m->message, id, name, field(block, "input"));
}

static bool add_result(struct making *m, const struct fields *block)
{
    struct text content = {0};
    const char *id = NULL;
    json_t *message;
    bool ok;

    if (!end(m) || !field_need(block, "tool_use_id") ||
        !field_text(block, "tool_use_id", &id))
        return false;
    message = json_pack("{ssss}", "role", "tool", "tool_call_id", id);
    if (message == NULL || json_array_append_new(m->r->messages, message) != 0)
        return api_error_set_memory(m->r->f.why);
    ok = request_join_text(block, "content", results, "\n", &content) &&
         request_set_text(block, message, "content", &content);
    text_free(&content);
    return ok;
}

/* Returns true for the types of blocks that the model cannot use: blocks of
 * tools that another server has run, and encrypted blocks. */
static bool is_foreign(const char *type)
{
    static const char *const types[] = {"redacted_thinking", "server_tool_use",
                                        "mcp_tool_use",      "mcp_tool_result",
                                        "container_upload",  "tool_reference"};
    static const char end[] = "_tool_result";
    size_t n = strlen(type);

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        if (strcmp(types[i], type) == 0)
            return true;
    return n > sizeof(end) - 1 &&
           strcmp(type + n - (sizeof(end) - 1), end) == 0;
}

static bool add_block(struct making *m, const struct fields *block)
{
    const char *type = NULL;
    char what[64];

    if (!field_need(block, "type") || !field_text(block, "type", &type))
        return false;
    if (strcmp(type, "text") == 0)
        return add(m, &m->content, block, "text");
    if (strcmp(type, "thinking") == 0)
        return add(m, &m->reasoning, block, "thinking");
    if (strcmp(type, "tool_use") == 0)
        return add_call(m, block);
    if (strcmp(type, "tool_result") == 0)
        return add_result(m, block);
    if (request_is_file(type))
        return add_document(m, block, type);
    if (is_foreign(type))
        return request_pass_over(m->r, type);
    snprintf(what, sizeof(what), "content of type \"%.24s\" is", type);
    return field_unsupported(block, "type", what);
}

static bool read_message(struct request_reader *r, const json_t *list, size_t i)
{
    static const char *const roles[] = {"user", "assistant", "system"};
    struct making m = {.r = r};
    struct fields f, block;
    const json_t *content;
    int role = 0;
    bool ok;

    if (!fields_item(&r->f, "messages", list, i, &f) ||
        !field_need(&f, "role") || !field_choice(&f, "role", roles, 3, &role) ||
        !field_need(&f, "content"))
        return false;
    m.role = roles[role];
    content = field(&f, "content");
    if (!json_is_array(content)) {
        ok = begin(&m) &&
             request_join_text(&f, "content", texts, "\n", &m.content);
        return end(&m) && ok;
    }
    ok = json_array_size(content) > 0 || begin(&m);
    for (size_t k = 0; ok && k < json_array_size(content); k++)
        ok = fields_item(&f, "content", content, k, &block) &&
             add_block(&m, &block);
    return end(&m) && ok;
}

/* Reads the system prompt, a string or a list of text blocks, as the first
 * message. */
static bool read_system(struct request_reader *r)
{
    struct making m = {.r = r, .role = "system"};
    bool ok;

    if (field(&r->f, "system") == NULL)
        return true;
    ok = request_join_text(&r->f, "system", texts, "\n", &m.content) &&
         (m.content.n == 0 || begin(&m));
    return end(&m) && ok;
}

bool request_read_messages(struct request_reader *r)
{
    const json_t *list = NULL;

    if (!field_need(&r->f, "messages") || !field_list(&r->f, "messages", &list))
        return false;
    if (json_array_size(list) == 0)
        return field_wrong(&r->f, "messages", list, "a non-empty list");
    r->messages = json_array();
    if (r->messages == NULL)
        return api_error_set_memory(r->f.why);
    if (!read_system(r))
        return false;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!read_message(r, list, i))
            return false;
    return true;
}
