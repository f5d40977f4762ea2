/* Makes the default fields of requests from options. See serve_defaults.h. */
#include "serve_defaults.h"

#include "input.h"

#include <stdio.h>
#include <string.h>

static bool set(json_t *to, const char *name, json_t *value)
{
    return json_object_set_new(to, name, value) == 0;
}

/* Sets chat_template_kwargs, the variables of the chat template. *valid is
 * false if --kwargs is not a JSON object. */
static bool set_variables(json_t *to, const struct options *o, bool *valid)
{
    json_t *j =
        o->kwargs != NULL ? json_loads(o->kwargs, 0, NULL) : json_object();
    bool off = o->reasoning == REASONING_OFF || o->reasoning_budget == 0;
    bool ok = true;

    *valid = json_is_object(j);
    if (*valid && (off || o->reasoning == REASONING_ON))
        ok = set(j, "enable_thinking", json_boolean(!off));
    if (*valid && o->reasoning_effort != NULL)
        ok = ok && set(j, "reasoning_effort", json_string(o->reasoning_effort));
    if (!*valid || json_object_size(j) == 0) {
        json_decref(j);
        return true;
    }
    return set(to, "chat_template_kwargs", j) && ok;
}

/* Sets the field `name` to a text or, if `text` is NULL, to the contents of a
 * file, if one is given. *valid is false if the file cannot be read. */
static bool set_text(json_t *to, const char *name, const struct options *o,
                     const char *text, const char *file, bool *valid)
{
    struct input in = {0};
    bool ok = true;

    *valid = true;
    if (text != NULL)
        return set(to, name, json_string(text));
    if (file != NULL && input_file(&in, o, file) != EXIT_DONE)
        *valid = false;
    else if (file != NULL)
        ok = set(to, name, json_stringn(in.s, in.len));
    input_free(&in);
    return ok;
}

static bool set_schema(json_t *to, const struct options *o, bool *valid)
{
    json_t *schema;

    if (!set_text(to, "json_schema", o, o->schema, o->schema_file, valid))
        return false;
    schema = json_object_get(to, "json_schema");
    if (!*valid || schema == NULL)
        return true;
    schema = json_loads(json_string_value(schema), JSON_DECODE_ANY, NULL);
    *valid = schema != NULL;
    return !*valid || set(to, "json_schema", schema);
}

static bool set_stops(json_t *to, const struct options *o)
{
    json_t *list = json_array();
    bool ok = true;

    for (int i = 0; i < o->stops.n; i++)
        ok = json_array_append_new(list, json_string(o->stops.v[i])) == 0 && ok;
    if (o->stops.n == 0) {
        json_decref(list);
        return true;
    }
    /* the name of the field is "stop" or "stop_sequences", depending on the
     * protocol */
    return ok && json_object_set(to, "stop", list) == 0 &&
           set(to, "stop_sequences", list);
}

static pl_status fail(pl_err *err, pl_status s, const char *text)
{
    err->status = s;
    snprintf(err->message, sizeof err->message, "%s", text);
    return s;
}

pl_status serve_defaults(json_t **out, const struct options *o, pl_err *err)
{
    json_t *j = json_object();
    bool ok = j != NULL, valid = true;

    *out = j;
    ok = ok && set_variables(j, o, &valid);
    if (!valid)
        return fail(err, PL_BAD_ARGUMENT,
                    "--chat-template-kwargs: not a JSON object; give one, like "
                    "'{\"enable_thinking\": false}'");
    if ((o->grammar != NULL) + (o->grammar_file != NULL) + (o->schema != NULL) +
            (o->schema_file != NULL) >
        1)
        return fail(err, PL_BAD_ARGUMENT,
                    "--grammar, --grammar-file, --json-schema and "
                    "--json-schema-file exclude one another; leave all but one "
                    "out");
    ok = ok && set_text(j, "grammar", o, o->grammar, o->grammar_file, &valid);
    if (!valid)
        return fail(err, PL_IO, "--grammar-file cannot be read");
    ok = ok && set_schema(j, o, &valid);
    if (!valid)
        return fail(err, PL_BAD_ARGUMENT,
                    "--json-schema: not a JSON Schema; give an object, like "
                    "'{\"type\": \"object\"}'");
    if (!o->random_seed)
        ok = ok && set(j, "seed", json_integer((json_int_t)o->sampling.seed));
    if (o->ignore_eos)
        ok = ok && set(j, "ignore_eos", json_true());
    if (o->no_prefill)
        ok = ok && set(j, "add_generation_prompt", json_true());
    if (o->no_cache_prompt)
        ok = ok && set(j, "cache_prompt", json_false());
    if (o->embd_normalize != 2)
        ok = ok && set(j, "embd_normalize", json_integer(o->embd_normalize));
    ok = ok && set_stops(j, o);
    return ok ? PL_OK : fail(err, PL_NO_MEMORY, "no memory for a model");
}
