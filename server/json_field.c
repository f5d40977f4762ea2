/* Reads the fields of JSON objects and checks their types and ranges. See
 * json_field.h. */
#include "json_field.h"

#include "json_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Error messages show at most this many bytes of a JSON value. */
enum { SHOWN = 80 };

static void name_of(const struct fields *f, const char *name, char out[96])
{
    snprintf(out, 96, "%s%s", f->path, name);
}

/* Formats a JSON value for a message, in ASCII and truncated. Objects and lists
 * are shown only by their sizes. */
static void show_value(const json_t *value, char out[SHOWN])
{
    char *json = NULL;

    if (json_is_object(value) || json_is_array(value)) {
        snprintf(out, SHOWN, "%s of %zu",
                 json_is_object(value) ? "an object" : "a list",
                 json_is_object(value) ? json_object_size(value)
                                       : json_array_size(value));
        return;
    }
    if (json_text_wide(value) != NULL) {
        snprintf(out, SHOWN, "%.40s", json_text_wide(value));
        return;
    }
    json = json_text_plain(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    snprintf(out, SHOWN, "%.*s%s", SHOWN - 8, json != NULL ? json : "",
             json != NULL && strlen(json) > SHOWN - 8 ? "..." : "");
    free(json);
}

bool field_wrong(const struct fields *f, const char *name, const json_t *value,
                 const char *allowed)
{
    char full[96], shown[SHOWN];

    name_of(f, name, full);
    show_value(value, shown);
    return api_error_set(f->why, 400, "invalid_value", full,
                         "%s is %s; it must be %s", full, shown, allowed);
}

bool field_unsupported(const struct fields *f, const char *name,
                       const char *what)
{
    char full[96];

    name_of(f, name, full);
    return api_error_set(f->why, 400, "unsupported_value", full,
                         "%s: %s not supported; leave it out", full, what);
}

size_t field_values(const char *text, size_t len)
{
    bool quoted = false;
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        if (text[i] == '"')
            quoted = !quoted;
        else if (quoted && text[i] == '\\')
            i++;
        else if (!quoted)
            n += text[i] == ',' || text[i] == '[' || text[i] == '{';
    }
    return n;
}

bool fields_read(struct fields *f, json_t **root, const char *body, size_t len,
                 struct api_error *why)
{
    /* Fields with texts that models see, and with JSON Schemas. In these,
     * integers of more than 64 bits keep all their digits. */
    static const char *const shown[] = {"messages",      "input",
                                        "system",        "tools",
                                        "functions",     "chat_template_kwargs",
                                        "documents",     "response_format",
                                        "output_format", "output_config",
                                        "text",          "json_schema",
                                        "grammar",       "guided_json",
                                        "format",        "structured_outputs",
                                        "nvext",         NULL};
    json_error_t e = {.line = -1};

    *f = (struct fields){.why = why};
    *root = NULL;
    if (field_values(body, len) > FIELD_MOST_VALUES)
        return api_error_set(why, 400, "invalid_json", NULL,
                             "the request body has more than the limit of %d "
                             "JSON values; send less at once",
                             FIELD_MOST_VALUES);
    *root = json_text_load(body, len, 0, &e);
    /* jansson also reports an unknown error if it is out of memory. */
    if (*root == NULL && (json_error_code(&e) == json_error_unknown ||
                          json_error_code(&e) == json_error_out_of_memory))
        return api_error_set_memory(why);
    if (*root == NULL && json_error_code(&e) == json_error_null_character)
        return api_error_set(
            why, 400, "invalid_json", NULL,
            "the request body has a string with a NUL character (\\u0000; line "
            "%d, column %d), which is not supported; leave it out",
            e.line, e.column);
    if (*root == NULL) {
        /* jansson's error message as JSON; NULL if the message is not UTF-8. */
        json_t *text = json_string(e.text);

        api_error_set(
            why, 400, "invalid_json", NULL,
            "the request body is not valid JSON: %s (line %d, column %d)",
            text != NULL ? e.text : "invalid UTF-8", e.line, e.column);
        json_decref(text);
        return false;
    }
    if (!json_is_object(*root))
        return api_error_set(why, 400, "invalid_json", NULL,
                             "the request body is not a JSON object; send one");
    f->in = *root;
    return json_text_round(*root, shown) || api_error_set_memory(why);
}

bool fields_item(const struct fields *f, const char *name, const json_t *list,
                 size_t i, struct fields *item)
{
    char here[64];

    snprintf(here, sizeof(here), "%s[%zu]", name, i);
    *item = (struct fields){.in = json_array_get(list, i), .why = f->why};
    if (!json_is_object(item->in))
        return field_wrong(f, here, item->in, "an object");
    snprintf(item->path, sizeof(item->path), "%.30s%.38s.", f->path, here);
    return true;
}

bool fields_within(const struct fields *f, const char *name,
                   struct fields *within)
{
    *within = (struct fields){.why = f->why};
    snprintf(within->path, sizeof(within->path), "%.40s%.28s.", f->path, name);
    return field_object(f, name, &within->in);
}

const json_t *field(const struct fields *f, const char *name)
{
    const json_t *v = json_object_get(f->in, name);

    return json_is_null(v) ? NULL : v;
}

bool field_bool(const struct fields *f, const char *name, bool *out)
{
    const json_t *v = field(f, name);

    if (v == NULL)
        return true;
    if (!json_is_boolean(v))
        return field_wrong(f, name, v, "true or false");
    *out = json_is_true(v);
    return true;
}

bool field_int(const struct fields *f, const char *name, int64_t least,
               int64_t most, int64_t *out)
{
    const json_t *v = field(f, name);
    bool whole = json_is_integer(v);
    int64_t n = whole ? json_integer_value(v) : 0;
    char allowed[96];

    if (v == NULL)
        return true;
    /* An integer field may have the value 5.0, which counts as 5. */
    if (json_is_real(v)) {
        double real = json_real_value(v);

        whole = fabs(real) <= 0x1p53 && real == floor(real);
        n = whole ? (int64_t)real : 0;
    }
    if (!whole || n < least || n > most) {
        if (most == INT64_MAX || most == INT32_MAX)
            snprintf(allowed, sizeof(allowed), "an integer of %lld or more",
                     (long long)least);
        else
            snprintf(allowed, sizeof(allowed), "an integer from %lld to %lld",
                     (long long)least, (long long)most);
        return field_wrong(f, name, v, allowed);
    }
    *out = n;
    return true;
}

bool field_number(const struct fields *f, const char *name, double least,
                  double most, double *out)
{
    const json_t *v = field(f, name);
    double n = json_number_value(v);
    char allowed[96];

    if (v == NULL)
        return true;
    if (!json_is_number(v) || !(n >= least && n <= most)) {
        snprintf(allowed, sizeof(allowed), "a number from %lld to %lld",
                 (long long)least, (long long)most);
        return field_wrong(f, name, v, allowed);
    }
    *out = n;
    return true;
}

bool field_text(const struct fields *f, const char *name, const char **out)
{
    const json_t *v = field(f, name);

    if (v == NULL)
        return true;
    if (!json_is_string(v) || json_text_wide(v) != NULL)
        return field_wrong(f, name, v, "a string");
    *out = json_string_value(v);
    return true;
}

bool field_list(const struct fields *f, const char *name, const json_t **out)
{
    const json_t *v = field(f, name);

    if (v == NULL)
        return true;
    if (!json_is_array(v))
        return field_wrong(f, name, v, "a list");
    *out = v;
    return true;
}

bool field_object(const struct fields *f, const char *name, const json_t **out)
{
    const json_t *v = field(f, name);

    if (v == NULL)
        return true;
    if (!json_is_object(v))
        return field_wrong(f, name, v, "an object");
    *out = v;
    return true;
}

bool field_choice(const struct fields *f, const char *name,
                  const char *const *allowed, int n, int *out)
{
    const char *text = NULL;
    char list[160] = "";

    if (!field_text(f, name, &text) || text == NULL)
        return text == NULL && !field(f, name);
    for (int i = 0; i < n; i++) {
        size_t at = strlen(list);

        if (strcmp(allowed[i], text) == 0) {
            *out = i;
            return true;
        }
        snprintf(list + at, sizeof(list) - at, "%s\"%s\"",
                 i == 0       ? ""
                 : i == n - 1 ? " or "
                              : ", ",
                 allowed[i]);
    }
    return field_wrong(f, name, field(f, name), list);
}

bool field_need(const struct fields *f, const char *name)
{
    char full[96];

    if (field(f, name) != NULL)
        return true;
    name_of(f, name, full);
    return api_error_set(f->why, 400, "missing_field", full,
                         "%s is missing; it is required", full);
}
