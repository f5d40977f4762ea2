/* Makes the default fields of requests from options; serve_defaults.h describes
 * them. */
#include "serve_defaults.h"

#include "input.h"
#include "server/json_text.h"

#include <stdio.h>
#include <string.h>

static enum exit_code no_memory(void)
{
    return cli_error(CMD_SERVE, EXIT_FAILED, "no memory for the options");
}

static bool set(json_t *to, const char *name, json_t *value)
{
    return json_object_set_new(to, name, value) == 0;
}

/* Sets the request field chat_template_kwargs: variables of the chat
 * template. */
static enum exit_code set_variables(json_t *to, const struct options *o)
{
    json_t *j = o->kwargs != NULL
                    ? json_text_load(o->kwargs, strlen(o->kwargs), 0, NULL)
                    : json_object();
    bool off = o->reasoning == REASONING_OFF || o->reasoning_budget == 0;
    bool ok = true;

    if (!json_is_object(j)) {
        json_decref(j);
        return cli_error(CMD_SERVE, EXIT_USAGE,
                         "--chat-template-kwargs: not a JSON object; give one, "
                         "like '{\"enable_thinking\": false}'");
    }
    if (off || o->reasoning == REASONING_ON)
        ok = set(j, "enable_thinking", json_boolean(!off));
    if (o->reasoning_effort != NULL)
        ok = ok && set(j, "reasoning_effort", json_string(o->reasoning_effort));
    if (json_object_size(j) == 0)
        json_decref(j);
    else
        ok = set(to, "chat_template_kwargs", j) && ok;
    return ok ? EXIT_DONE : no_memory();
}

/* Sets the request field `name` to the grammar or schema that `text` or the
 * file `file` gives. */
static enum exit_code set_format(json_t *to, const struct options *o,
                                 const char *name, const char *text,
                                 const char *file)
{
    bool schema = strcmp(name, "json_schema") == 0;
    struct input in = {.s = (char *)text, .len = text ? strlen(text) : 0};
    enum exit_code c = EXIT_DONE;
    json_error_t why = {.text = "not valid UTF-8"};
    json_t *j;

    if (text == NULL && file == NULL)
        return EXIT_DONE;
    if (text == NULL)
        c = input_file(&in, o, file);
    if (c == EXIT_DONE) {
        j = schema ? json_text_load(in.s, in.len, JSON_DECODE_ANY, &why)
                   : json_stringn(in.s, in.len);
        if (j == NULL)
            c = cli_error(CMD_SERVE, EXIT_USAGE, "%s%s%s: %s%s",
                          schema ? "--json-schema" : "--grammar",
                          file != NULL ? "-file " : "",
                          file != NULL ? file : "", why.text,
                          schema ? "; give a JSON Schema, like '{\"type\": "
                                   "\"object\"}'"
                                 : "");
        else if (!set(to, name, j))
            c = no_memory();
    }
    if (text == NULL)
        input_free(&in);
    return c;
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
    /* sets the field's name in both protocols: "stop" and "stop_sequences" */
    return ok && json_object_set(to, "stop", list) == 0 &&
           set(to, "stop_sequences", list);
}

enum exit_code serve_defaults(json_t **out, const struct options *o)
{
    static const char *const forms[] = {
#define FORM_NAME(form, text, flags) text,
        PL_RECEIPT_FORM_MAP(FORM_NAME)
#undef FORM_NAME
    };
    json_t *j = json_object();
    enum exit_code c = j != NULL ? set_variables(j, o) : no_memory();
    bool ok = true;

    *out = j;
    if ((o->grammar != NULL) + (o->grammar_file != NULL) + (o->schema != NULL) +
            (o->schema_file != NULL) >
        1)
        return cli_error(CMD_SERVE, EXIT_USAGE,
                         "--grammar, --grammar-file, --json-schema and "
                         "--json-schema-file exclude one another; leave all "
                         "but one out");
    if (c == EXIT_DONE)
        c = set_format(j, o, "grammar", o->grammar, o->grammar_file);
    if (c == EXIT_DONE)
        c = set_format(j, o, "json_schema", o->schema, o->schema_file);
    if (c != EXIT_DONE)
        return c;
    if (!o->random_seed)
        ok = set(j, "seed", json_integer((json_int_t)o->sampling.seed));
    if (o->ignore_eos)
        ok = ok && set(j, "ignore_eos", json_true());
    if (o->no_prefill)
        ok = ok && set(j, "add_generation_prompt", json_true());
    if (o->no_cache_prompt)
        ok = ok && set(j, "cache_prompt", json_false());
    if (o->show_special)
        ok = ok && set(j, "skip_special_tokens", json_false());
    if (o->spm_infill)
        ok = ok && set(j, "spm_infill", json_true());
    if (o->embd_normalize != 2)
        ok = ok && set(j, "embd_normalize", json_integer(o->embd_normalize));
    if (o->receipts)
        ok = ok && set(j, "receipt", json_string(forms[o->receipt_form]));
    ok = ok && set_stops(j, o);
    return ok ? EXIT_DONE : no_memory();
}
