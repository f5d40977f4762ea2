/* Reads the fields that constrain the output by a JSON Schema, a grammar, a
 * regular expression or a list of choices. Clients of several servers use
 * several names for these fields. All names work in every protocol, so that no
 * constraint is ignored. */
#include "request_parse.h"

#include <stdio.h>
#include <stdlib.h>

enum kind {
    KIND_SCHEMA, /* the value is a JSON Schema, or its JSON text */
    KIND_GBNF,
    KIND_REGEX,
    /* The value is a list of texts, of which the output must be one. */
    KIND_CHOICE,
    KIND_OBJECT, /* the value is true, and the output must be a JSON object */
    /* The value is an object with a field "type", such as response_format. */
    KIND_FORMAT,
    /* The value is a JSON Schema, or the word "json" for any JSON object. */
    KIND_WORD,
    KIND_NONE, /* the field is known but not supported */
};

/* The fields that constrain the output. `in` is the field of the request whose
 * value, an object, contains the field `name`; NULL if `name` is a field of the
 * request itself. */
static const struct {
    const char *in, *name;
    enum kind kind;
} fields[] = {
    {NULL, "response_format", KIND_FORMAT},
    {NULL, "output_format", KIND_FORMAT},
    {"output_config", "format", KIND_FORMAT},
    {"text", "format", KIND_FORMAT},
    {NULL, "json_schema", KIND_SCHEMA},
    {NULL, "grammar", KIND_GBNF},
    {NULL, "guided_json", KIND_SCHEMA},
    {NULL, "guided_regex", KIND_REGEX},
    {NULL, "guided_choice", KIND_CHOICE},
    {NULL, "guided_grammar", KIND_GBNF},
    {NULL, "guided_whitespace_pattern", KIND_NONE},
    {NULL, "structural_tag", KIND_NONE},
    {NULL, "regex", KIND_REGEX},
    {NULL, "ebnf", KIND_GBNF},
    {NULL, "format", KIND_WORD},
    {"structured_outputs", "json", KIND_SCHEMA},
    {"structured_outputs", "regex", KIND_REGEX},
    {"structured_outputs", "choice", KIND_CHOICE},
    {"structured_outputs", "grammar", KIND_GBNF},
    {"structured_outputs", "json_object", KIND_OBJECT},
    {"structured_outputs", "structural_tag", KIND_NONE},
    {"structured_outputs", "whitespace_pattern", KIND_NONE},
    {"nvext", "guided_json", KIND_SCHEMA},
    {"nvext", "guided_regex", KIND_REGEX},
    {"nvext", "guided_choice", KIND_CHOICE},
    {"nvext", "guided_grammar", KIND_GBNF},
};

/* The values of "type" in an output format such as response_format. For each
 * type: the fields that may contain the constraint. The first three types are
 * OpenAI's; the others are those of other servers. */
static const struct {
    const char *type;
    enum kind kind;
    const char *value[3];
} types[] = {
    {"text", KIND_NONE, {NULL}},
    {"json_object", KIND_OBJECT, {"schema"}},
    {"json_schema", KIND_SCHEMA, {"schema"}},
    {"json", KIND_SCHEMA, {"value", "schema", "json_schema"}},
    {"grammar", KIND_GBNF, {"grammar", "value"}},
    {"gbnf", KIND_GBNF, {"gbnf", "grammar", "value"}},
    {"ebnf", KIND_GBNF, {"ebnf", "grammar", "value"}},
    {"regex", KIND_REGEX, {"regex", "pattern", "value"}},
    {"choice", KIND_CHOICE, {"choices", "choice", "value"}},
};
enum { N_TYPE = sizeof types / sizeof types[0] };

bool request_is_constrained(const json_t *body)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        const json_t *in =
            fields[i].in != NULL ? json_object_get(body, fields[i].in) : body;
        const json_t *v = json_object_get(in, fields[i].name);

        if (v != NULL && !json_is_null(v))
            return true;
    }
    return false;
}

/* Records that the field r->format constrains the output. Rejects the request
 * if another field does already. */
static bool claim(struct request_reader *r)
{
    if (r->a->schema != NULL || r->a->grammar != NULL)
        return api_error_set(r->f.why, 400, "invalid_value", r->format,
                             "%s: cannot be combined with %s; leave one of "
                             "them out",
                             r->format, r->a->format);
    memcpy(r->a->format, r->format, sizeof r->format);
    return true;
}

/* ---- reading the value of a constraint ----------------------------------- */

static bool take_schema(struct request_reader *r, const struct fields *f,
                        const char *name, const json_t *v)
{
    json_t *parsed = NULL;
    const char *s = json_string_value(v);
    bool ok;

    if (s != NULL) {
        parsed = json_text_load(s, strlen(s), JSON_DECODE_ANY, NULL);
        v = parsed != NULL ? parsed : v;
    }
    ok = json_is_object(v) || json_is_boolean(v)
             ? request_dump(r, v, &r->a->schema)
             : field_wrong(f, name, v, "a JSON Schema, an object");
    json_decref(parsed);
    return ok;
}

/* Appends the text `s` to a GBNF grammar as a quoted literal. */
static bool add_literal(struct text *t, const char *s)
{
    bool ok = text_add(t, "\"", 1);
    char code[8];

    for (; *s != '\0' && ok; s++) {
        int n = (unsigned char)*s < ' '
                    ? snprintf(code, sizeof code, "\\x%02X",
                               (unsigned)(unsigned char)*s)
                    : snprintf(code, sizeof code, "%s%c",
                               *s == '"' || *s == '\\' ? "\\" : "", *s);

        ok = text_add(t, code, (size_t)n);
    }
    return ok && text_add(t, "\"", 1);
}

static bool take_choices(struct request_reader *r, const struct fields *f,
                         const char *name, const json_t *list)
{
    struct text t = {0};
    json_t *one;
    size_t i;
    bool ok = text_add(&t, "root ::= ", 9);

    if (json_array_size(list) == 0) {
        text_free(&t);
        return field_wrong(f, name, list, "a list of one text or more");
    }
    json_array_foreach (list, i, one) {
        if (!json_is_string(one) || json_text_wide(one) != NULL) {
            text_free(&t);
            return field_wrong(f, name, one, "a list of texts");
        }
        ok = ok && (i == 0 || text_add(&t, " | ", 3)) &&
             add_literal(&t, json_string_value(one));
    }
    r->a->choices = t.s;
    r->a->grammar = t.s;
    return ok || api_error_set_memory(r->f.why);
}

static bool take_text(struct request_reader *r, const struct fields *f,
                      const char *name, bool regex)
{
    r->a->regex = regex;
    return field_text(f, name, &r->a->grammar);
}

static bool take_object(struct request_reader *r)
{
    r->a->schema = strdup("{\"type\":\"object\"}");
    return r->a->schema != NULL || api_error_set_memory(r->f.why);
}

/* ---- finding the field that constrains the output ------------------------ */

/* Returns true if the value `v` of a field does not constrain the output. */
static bool is_nothing(enum kind kind, const json_t *v)
{
    return v == NULL || json_is_false(v) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0 &&
            kind != KIND_SCHEMA) ||
           (kind == KIND_NONE && json_is_array(v) && json_array_size(v) == 0);
}

static bool read_format(struct request_reader *r, const struct fields *f,
                        const char *name);

static bool read_one(struct request_reader *r, const struct fields *f,
                     const char *name, enum kind kind)
{
    const json_t *v = field(f, name);

    if (is_nothing(kind, v))
        return true;
    /* In requests for TGI (Text Generation Inference) the field `grammar` is an
     * object with a type. */
    if (kind == KIND_FORMAT || (kind == KIND_GBNF && json_is_object(v)))
        return read_format(r, f, name);
    if (kind == KIND_NONE)
        return field_unsupported(f, name, "this constraint is");
    if (!claim(r))
        return false;
    switch (kind) {
    case KIND_SCHEMA:
        return take_schema(r, f, name, v);
    case KIND_GBNF:
    case KIND_REGEX:
        return take_text(r, f, name, kind == KIND_REGEX);
    case KIND_CHOICE:
        return take_choices(r, f, name, v);
    case KIND_WORD:
        if (!json_is_string(v))
            return take_schema(r, f, name, v);
        if (strcmp(json_string_value(v), "json") != 0)
            return field_wrong(f, name, v, "\"json\" or a JSON Schema");
        return take_object(r);
    default:
        return json_is_true(v) ? take_object(r)
                               : field_wrong(f, name, v, "true or false");
    }
}

/* Reads the constraint of an output format whose type is types[i], from the
 * first of the type's fields that is present. OpenAI's chat completions wrap a
 * JSON Schema in an object "json_schema". */
static bool read_value(struct request_reader *r, const struct fields *f, int i)
{
    bool wrapped =
        types[i].value[0] != NULL && strcmp(types[i].value[0], "schema") == 0;
    bool talks =
        r->a->kind == REQUEST_MESSAGES || r->a->kind == REQUEST_RESPONSES;
    struct fields wrap = *f;

    if (wrapped && !fields_within(f, "json_schema", &wrap))
        return false;
    f = wrapped && wrap.in != NULL ? &wrap : f;
    for (int k = 0; k < 3 && types[i].value[k] != NULL; k++) {
        const char *name = types[i].value[k];

        if (field(f, name) != NULL)
            return read_one(r, f, name,
                            types[i].kind == KIND_OBJECT ? KIND_SCHEMA
                                                         : types[i].kind);
    }
    if (types[i].kind == KIND_OBJECT)
        return claim(r) && take_object(r);
    if (types[i].kind == KIND_NONE)
        return true;
    return field_need(wrapped && !talks ? &wrap : f, types[i].value[0]);
}

/* Reads an output format, the value of field `name`, for example {"type":
 * "json_schema", "json_schema": {"schema": {...}}}. The JSON Schema may also be
 * next to "type". */
static bool read_format(struct request_reader *r, const struct fields *f,
                        const char *name)
{
    static const char *const words[] = {"text", "json_object", "json_schema"};
    struct fields format;
    const char *type = NULL;
    int i = 0;

    if (!fields_within(f, name, &format) || !field_text(&format, "type", &type))
        return false;
    if (type == NULL && field(&format, "schema") != NULL)
        type = "json_schema";
    if (type == NULL)
        return field_need(&format, "type");
    if (strcmp(type, "structural_tag") == 0)
        return field_unsupported(&format, "type", "structural tags are");
    while (i < N_TYPE && strcmp(types[i].type, type) != 0)
        i++;
    return i < N_TYPE ? read_value(r, &format, i)
                      : field_choice(&format, "type", words, 3, &i);
}

bool request_read_format(struct request_reader *r)
{
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        struct fields in = r->f;
        const char *outer = fields[i].in;

        snprintf(r->format, sizeof r->format, "%s%s%s", outer ? outer : "",
                 outer ? "." : "", fields[i].name);
        /* In protocols other than /v1/responses, the field "text" is a string,
         * not an object. */
        if (outer != NULL && r->a->kind != REQUEST_RESPONSES &&
            strcmp(outer, "text") == 0)
            continue;
        if (outer != NULL && !fields_within(&r->f, outer, &in))
            return false;
        /* In llama-server's requests, an empty json_schema constrains
         * nothing. */
        if (outer == NULL && strcmp(fields[i].name, "json_schema") == 0 &&
            json_is_object(field(&in, "json_schema")) &&
            json_object_size(field(&in, "json_schema")) == 0)
            continue;
        if (in.in != NULL && !read_one(r, &in, fields[i].name, fields[i].kind))
            return false;
    }
    return true;
}
