/* Converts JSON to values of the template language. This is the only file about
 * values that uses jansson. */
#include "chat/value.h"

#include "base/err.h"
#include "base/numeral.h"
#include "base/wide_json.h"

#include <jansson.h>
#include <string.h>

enum { MAX_DEPTH = 150 };

static struct value convert(struct work *w, const json_t *j, int depth,
                            const char *name);

static struct value convert_array(struct work *w, const json_t *j, int depth,
                                  const char *name)
{
    struct list l = list_with(w, json_array_size(j));

    for (size_t i = 0; i < l.cap; i++)
        list_add(w, &l, convert(w, json_array_get(j, i), depth - 1, name));
    return value_list(w, V_LIST, l);
}

static struct value convert_object(struct work *w, json_t *j, int depth,
                                   const char *name)
{
    struct dict d = {0};

    for (void *at = json_object_iter(j); at && w->status == PL_OK;
         at = json_object_iter_next(j, at))
        dict_put(w, &d,
                 value_copy(w, json_object_iter_key(at),
                            json_object_iter_key_len(at)),
                 convert(w, json_object_iter_value(at), depth - 1, name));
    return value_new(w, V_DICT, &d, sizeof d);
}

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

static struct value convert(struct work *w, const json_t *j, int depth,
                            const char *name)
{
    if (depth == 0) {
        if (w->status == PL_OK)
            w->status =
                err_set(w->err, PL_BAD_ARGUMENT,
                        "%s: lists and objects nest deeper than %d levels",
                        name, MAX_DEPTH);
        return value_undefined();
    }
    switch (json_typeof(j)) {
    case JSON_OBJECT:
        return convert_object(w, (json_t *)j, depth, name);
    case JSON_ARRAY:
        return convert_array(w, j, depth, name);
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
    else if (w->status == PL_OK)
        w->status = err_set(w->err, PL_BAD_ARGUMENT,
                            "%s: invalid JSON: line %d, column %d: %s", name,
                            e.line, e.column, e.text);
    json_decref(j);
    return v;
}
