/* Converts JSON to values of the template language; see value_json.h. */
#include "chat/value_json.h"

#include "base/err.h"
#include "base/numeral.h"
#include "base/wide_json.h"

#include <jansson.h>
#include <string.h>

enum { MAX_DEPTH = 150 };

static pl_status convert(struct arena *a, const json_t *j, int depth,
                         const char *name, struct value *out, pl_err *err);

static pl_status no_memory(pl_err *err)
{
    return err_no_memory(err, "JSON");
}

static pl_status convert_array(struct arena *a, const json_t *j, int depth,
                               const char *name, struct value *out, pl_err *err)
{
    size_t n = json_array_size(j);

    out->kind = V_LIST;
    out->list = list_create(a, n);
    if (!out->list)
        return no_memory(err);
    for (size_t i = 0; i < n; i++)
        PL_TRY(convert(a, json_array_get(j, i), depth - 1, name,
                       &out->list->item[i], err));
    return PL_OK;
}

static pl_status convert_object(struct arena *a, json_t *j, int depth,
                                const char *name, struct value *out,
                                pl_err *err)
{
    out->kind = V_DICT;
    out->dict = dict_create(a, json_object_size(j));
    if (!out->dict)
        return no_memory(err);
    for (void *at = json_object_iter(j); at;
         at = json_object_iter_next(j, at)) {
        const char *key = json_object_iter_key(at);
        struct string *s = string_copy(a, key, json_object_iter_key_len(at));
        struct value v;

        if (!s)
            return no_memory(err);
        PL_TRY(
            convert(a, json_object_iter_value(at), depth - 1, name, &v, err));
        if (!dict_put(a, out->dict, value_str(s), v))
            return no_memory(err);
    }
    return PL_OK;
}

/* Converts a JSON string to a value. The string may stand for an integer of
 * more than 64 bits, which jansson cannot read. */
static pl_status convert_string(struct arena *a, const json_t *j,
                                struct value *out, pl_err *err)
{
    const char *digits = wide_digits(j);

    *out = value_str(
        digits ? string_copy(a, digits, strlen(digits))
               : string_copy(a, json_string_value(j), json_string_length(j)));
    if (digits) {
        out->kind = V_FLOAT;
        out->sub = FLOAT_DIGITS;
    }
    return out->str ? PL_OK : no_memory(err);
}

static pl_status convert(struct arena *a, const json_t *j, int depth,
                         const char *name, struct value *out, pl_err *err)
{
    if (depth == 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: lists and objects nest deeper than %d levels", name,
                       MAX_DEPTH);
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return convert_object(a, (json_t *)j, depth, name, out, err);
    case JSON_ARRAY:
        return convert_array(a, j, depth, name, out, err);
    case JSON_STRING:
        return convert_string(a, j, out, err);
    case JSON_INTEGER:
        *out = value_int(json_integer_value(j));
        return PL_OK;
    case JSON_REAL:
        *out = value_float(json_real_value(j));
        return PL_OK;
    case JSON_NULL:
        *out = value_none();
        return PL_OK;
    default:
        *out = value_bool(json_is_true(j));
        return PL_OK;
    }
}

pl_status value_from_json(struct arena *a, const char *s, size_t len,
                          const char *name, struct value *out, pl_err *err)
{
    locale_t before = numeral_begin();
    json_error_t e = {.line = -1};
    json_t *j = wide_json_marked(s, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    pl_status st;

    numeral_end(before);
    /* Jansson reports some failed allocations as an unknown error. */
    if (!j && (json_error_code(&e) == json_error_out_of_memory ||
               json_error_code(&e) == json_error_unknown))
        return no_memory(err);
    if (!j)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: invalid JSON: line %d, column %d: %s", name, e.line,
                       e.column, e.text);
    st = convert(a, j, MAX_DEPTH, name, out, err);
    json_decref(j);
    return st;
}
