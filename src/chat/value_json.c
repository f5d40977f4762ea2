/* Converts JSON to values of the template language. This is the only file about
 * values that uses jansson. */
#include "chat/value.h"

#include "base/numeral.h"
#include "base/wide_json.h"

#include <jansson.h>
#include <string.h>

enum { MAX_DEPTH = 150 };

/* Converts a JSON string to a value. The string may stand for an integer of
 * more than 64 bits, which jansson cannot read. */
static struct value convert_string(struct work *w, const json_t *j)
{
    const char *digits = wide_digits(j);
    struct value v;

    if (!digits)
        return value_copy(w, json_string_value(j), json_string_length(j));
    v = value_copy(w, digits, strlen(digits));
    v.kind = V_FLOAT;
    v.sub = FLOAT_DIGITS;
    return v;
}

static struct value convert(struct work *w, json_t *j, int depth,
                            const char *name)
{
    struct list l;
    struct dict d;
    struct value v;

    if (depth == 0)
        return work_fail(w, PL_BAD_ARGUMENT,
                         "%s: lists and objects nest deeper than %d levels",
                         name, MAX_DEPTH);
    switch (json_typeof(j)) {
    case JSON_OBJECT: /* the dict is before its values in memory, because most
                         templates only look at some keys */
        d = dict_with(w, json_object_size(j));
        v = value_new(w, V_DICT, &d, sizeof d);
        for (void *at = json_object_iter(j); at && w->status == PL_OK;
             at = json_object_iter_next(j, at))
            dict_put(w, v.dict,
                     value_copy(w, json_object_iter_key(at),
                                json_object_iter_key_len(at)),
                     convert(w, json_object_iter_value(at), depth - 1, name));
        return v;
    case JSON_ARRAY:
        l = list_with(w, json_array_size(j));
        for (size_t i = 0; i < l.cap; i++)
            list_add(w, &l, convert(w, json_array_get(j, i), depth - 1, name));
        return value_list(w, V_LIST, l);
    case JSON_STRING:
        return convert_string(w, j);
    case JSON_INTEGER:
        return value_int(json_integer_value(j));
    case JSON_REAL:
        return value_float(json_real_value(j));
    case JSON_NULL:
        return value_none();
    default:
        return value_bool(json_is_true(j));
    }
}

struct value value_from_json(struct work *w, const char *s, size_t len,
                             const char *name)
{
    locale_t before = numeral_begin();
    json_error_t e = {.line = -1};
    json_t *j = wide_json_marked(s, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    struct value v = value_undefined();

    numeral_end(before);
    if (j)
        v = convert(w, j, MAX_DEPTH, name);
    /* Jansson reports some failed allocations as an unknown error. */
    else if (json_error_code(&e) == json_error_out_of_memory ||
             json_error_code(&e) == json_error_unknown)
        work_no_memory(w);
    else
        work_fail(w, PL_BAD_ARGUMENT,
                  "%s: invalid JSON: line %d, column %d: %s", name, e.line,
                  e.column, e.text);
    json_decref(j);
    return v;
}
