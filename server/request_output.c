/* Reads the fields that select the format of the output and the details
 * returned with it. */
#include "request_parse.h"

#include <stdlib.h>

/* Sets r->a->schema to the JSON Schema in field `name`, which must be
 * present. */
static bool take_schema(struct request_reader *r, const struct fields *f,
                        const char *name)
{
    const json_t *schema = field(f, name);

    if (!json_is_object(schema) && !json_is_boolean(schema))
        return field_wrong(f, name, schema, "a JSON Schema, an object");
    return request_dump(r, schema, &r->a->schema);
}

/* Reads an output format such as {"type": "json_schema", "json_schema":
 * {"schema": {...}}}. In /v1/responses and /v1/messages, "schema" is a field
 * next to "type". */
static bool read_format(struct request_reader *r, const struct fields *f)
{
    static const char *const types[] = {"text", "json_object", "json_schema"};
    struct fields inner;
    const struct fields *in;
    int type = -1;

    if (!field_need(f, "type") || !field_choice(f, "type", types, 3, &type))
        return false;
    if (type == 0)
        return true;
    if (!fields_within(f, "json_schema", &inner))
        return false;
    in = inner.in != NULL ? &inner : f;
    if (field(in, "schema") != NULL)
        return take_schema(r, in, "schema");
    if (type == 2)
        return field_need(r->a->kind == REQUEST_MESSAGES ||
                                  r->a->kind == REQUEST_RESPONSES
                              ? f
                              : &inner,
                          "schema");
    r->a->schema = strdup("{\"type\":\"object\"}");
    return r->a->schema != NULL || api_error_set_memory(r->f.why);
}

/* Reads the output format: a JSON Schema or a GBNF grammar, from the fields
 * that this protocol has for it. */
static bool read_formats(struct request_reader *r)
{
    struct request *a = r->a;
    struct fields outer, format = {0};
    bool talks = a->kind == REQUEST_MESSAGES || a->kind == REQUEST_RESPONSES;
    const char *in = a->kind == REQUEST_MESSAGES ? "output_config" : "text";
    const json_t *schema = NULL;

    if (talks) {
        if (!fields_within(&r->f, in, &outer) ||
            (outer.in != NULL && !fields_within(&outer, "format", &format)))
            return false;
    } else if (!fields_within(&r->f, "response_format", &format) ||
               !field_text(&r->f, "grammar", &a->grammar)) {
        return false;
    }
    if (a->grammar != NULL && a->grammar[0] == '\0')
        a->grammar = NULL;
    if (format.in != NULL && !read_format(r, &format))
        return false;
    schema = talks ? NULL : field(&r->f, "json_schema");
    if (schema != NULL &&
        (!json_is_object(schema) || json_object_size(schema) > 0) &&
        !take_schema(r, &r->f, "json_schema"))
        return false;
    if (a->schema != NULL && a->grammar != NULL)
        return api_error_set(r->f.why, 400, "invalid_value", "grammar",
                             "grammar: cannot be combined with a JSON Schema; "
                             "leave one of them out");
    return true;
}

/* Reads which token probabilities to return. "logprobs" is a number in
 * completions, of both kinds, and true or false in chats. */
static bool read_probs(struct request_reader *r)
{
    struct request *a = r->a;
    const json_t *v = field(&r->f, "logprobs");
    int64_t top = 0;

    if (a->kind != REQUEST_CHAT && json_is_integer(v)) {
        a->probs = a->kind == REQUEST_COMPLETIONS || json_integer_value(v) > 0;
        if (!field_int(&r->f, "logprobs", 0, REQUEST_MAX_TOP, &top))
            return false;
    } else if (!field_bool(&r->f, "logprobs", &a->probs)) {
        return false;
    }
    if (field(&r->f, "top_logprobs") != NULL) {
        if (!a->probs && a->kind == REQUEST_CHAT)
            return api_error_set(
                r->f.why, 400, "invalid_value", "top_logprobs",
                "top_logprobs: requires logprobs; set logprobs to true");
        if (!field_int(&r->f, "top_logprobs", 0, REQUEST_MAX_TOP, &top))
            return false;
    }
    if (!field_int(&r->f, "n_probs", 0, REQUEST_MAX_TOP, &top))
        return false;
    a->probs = a->probs || (field(&r->f, "n_probs") != NULL && top > 0);
    a->n_top = (int)top;
    return true;
}

bool request_read_output(struct request_reader *r)
{
    struct request *a = r->a;
    struct fields stream;
    bool cache = true;

    if (!field_bool(&r->f, "stream", &a->stream) ||
        !field_bool(&r->f, "timings_per_token", &a->timings) ||
        !field_bool(&r->f, "return_progress", &a->progress) ||
        !field_bool(&r->f, "cache_prompt", &cache) || !read_formats(r))
        return false;
    a->no_cache = !cache;
    if (a->kind == REQUEST_MESSAGES)
        return true;
    if (a->kind == REQUEST_RESPONSES) {
        const json_t *top = field(&r->f, "top_logprobs");

        return top == NULL || json_integer_value(top) == 0 ||
               field_unsupported(&r->f, "top_logprobs",
                                 "token probabilities are");
    }
    if (!fields_within(&r->f, "stream_options", &stream) ||
        !field_bool(&stream, "include_usage", &a->usage) ||
        !field_bool(&r->f, "verbose", &a->verbose) ||
        !field_bool(&r->f, "return_tokens", &a->ids) ||
        !field_bool(&r->f, "echo", &a->echo) || !read_probs(r))
        return false;
    if (a->echo && a->probs && a->kind != REQUEST_COMPLETIONS)
        return field_unsupported(&r->f, "echo",
                                 "prompt token probabilities are");
    a->prompt_probs = a->echo && a->probs;
    a->no_cache |= a->prompt_probs;
    /* llama-server's streams have the ids of all tokens. */
    a->ids |= a->stream &&
              (a->kind == REQUEST_COMPLETION || a->kind == REQUEST_INFILL);
    return true;
}
