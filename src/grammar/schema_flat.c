/* Combines schemas that apply to the same JSON value into one: those of allOf,
 * of $ref with other keywords beside it, and of conditions. Keywords that leave
 * a choice (anyOf, oneOf, if, dependencies) become lists of alternative
 * schemas, struct flat.choices. */
#include "grammar/schema_inner.h"

#include "base/err.h"
#include "base/whole_json.h"
#include "grammar/decimal.h"

#include <string.h>

enum merge {
    MERGE_NONE,
    MERGE_TYPE,
    MERGE_ENUM,
    MERGE_CONST,
    MERGE_ANY,
    MERGE_ONE,
    MERGE_ALL,
    MERGE_NOT,
    MERGE_IF,
    MERGE_REF,
    MERGE_PROPERTIES,
    MERGE_REQUIRED,
    MERGE_OTHERS,
    MERGE_EACH,
    MERGE_SCHEMA,
    MERGE_GREATER,
    MERGE_LESS,
    MERGE_DEPENDENT,
    MERGE_LIST,
    MERGE_TRUE,
    MERGE_SAME,
    MERGE_GATHER,
};

static const struct keyword {
    const char *name;
    enum keyword_of of;
    enum merge merge;
} keywords[] = {
#define KEYWORD(name, of, merge) {name, of, merge},
#include "grammar/schema_keywords.def"
#undef KEYWORD
};

static const struct keyword *keyword(const char *key)
{
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++)
        if (strcmp(keywords[i].name, key) == 0)
            return &keywords[i];
    return NULL;
}

enum keyword_of schema_keyword_of(const char *key)
{
    const struct keyword *k = keyword(key);

    return k ? k->of : KEYWORD_NONE;
}

bool schema_is_note(const char *key)
{
    return schema_keyword_of(key) == KEYWORD_NOTE;
}

json_t *schema_get(const json_t *schema, const char *key)
{
    json_t *v = json_object_get(schema, key);

    return json_is_null(v) ? NULL : v;
}

json_t *schema_keep(struct writer *w, json_t *made)
{
    if (!w->made)
        w->made = json_array();
    return made && json_array_append_new(w->made, made) == 0 ? made : NULL;
}

void schema_flat_fini(struct flat *f)
{
    json_decref(f->all);
    json_decref(f->choices);
    json_decref(f->nots);
    *f = (struct flat){0};
}

static bool begin(struct flat *f)
{
    if (f->all)
        return true;
    f->all = json_object();
    f->choices = json_array();
    f->nots = json_array();
    f->types = TYPE_ALL;
    return f->all && f->choices && f->nots;
}

bool schema_flat_copy(struct flat *to, const struct flat *from)
{
    *to = *from;
    to->all = whole_json_copy(from->all);
    to->choices = whole_json_copy(from->choices);
    to->nots = whole_json_copy(from->nots);
    return to->all && to->choices && to->nots;
}

/* ---- merging types and constants ----------------------------------------- */

static const struct {
    const char *name;
    unsigned bit;
} types[] = {{"object", TYPE_OBJECT}, {"array", TYPE_ARRAY},
             {"string", TYPE_STRING}, {"integer", TYPE_INTEGER},
             {"number", TYPE_NUMBER}, {"boolean", TYPE_BOOLEAN},
             {"null", TYPE_NULL}};

unsigned schema_type_named(const json_t *name)
{
    const char *s = json_string_value(name);

    for (size_t i = 0; i < sizeof types / sizeof types[0] && s; i++)
        if (strcmp(types[i].name, s) == 0)
            return types[i].bit;
    return 0;
}

unsigned schema_type_of(const json_t *v)
{
    static const unsigned bits[] = {
        [JSON_OBJECT] = TYPE_OBJECT, [JSON_ARRAY] = TYPE_ARRAY,
        [JSON_STRING] = TYPE_STRING, [JSON_INTEGER] = TYPE_INTEGER,
        [JSON_REAL] = TYPE_NUMBER,   [JSON_TRUE] = TYPE_BOOLEAN,
        [JSON_FALSE] = TYPE_BOOLEAN, [JSON_NULL] = TYPE_NULL,
    };

    return bits[json_typeof(v)];
}

/* Returns the types of values that are in both sets a and b. A set with
 * "number" contains integers, too. */
static unsigned common_types(unsigned a, unsigned b)
{
    unsigned both = a & b;

    if ((a & TYPE_NUMBER && b & TYPE_INTEGER) ||
        (b & TYPE_NUMBER && a & TYPE_INTEGER))
        both |= TYPE_INTEGER;
    return both & TYPE_NUMBER ? both & ~(unsigned)TYPE_INTEGER : both;
}

static pl_status merge_type(struct writer *w, struct flat *f, json_t *v)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    unsigned bits = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned bit =
            schema_type_named(json_is_array(v) ? json_array_get(v, i) : v);

        if (!bit)
            return schema_wrong(w, "type",
                                "must be one or more of object, array, string, "
                                "integer, number, boolean, null");
        bits |= bit;
    }
    if (!bits)
        return schema_wrong(w, "type", "must name at least one type");
    f->types = common_types(f->types, bits);
    f->typed = true;
    f->never |= f->types == 0;
    return PL_OK;
}

static bool has_value(const json_t *list, const json_t *value)
{
    json_t *item;
    size_t i;

    json_array_foreach (list, i, item)
        if (json_equal(item, value))
            return true;
    return false;
}

/* Removes the constants from the combined schema's enum that are not in `list`;
 * if `others`, those that are in `list`. Without an enum, `list` becomes it. */
static pl_status merge_enum(struct writer *w, struct flat *f, json_t *list,
                            bool others)
{
    json_t *before = json_object_get(f->all, "enum"), *both, *item;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_wrong(w, "enum", "must be a list of one value or more");
    if (before)
        w->n_step += schema_weight(before) * (int64_t)json_array_size(list);
    if (!schema_may_go_on(w))
        return schema_too_long(w, "enum");
    both = json_array();
    json_array_foreach (before ? before : list, i, item)
        if ((!before || has_value(list, item) != others) &&
            json_array_append(both, item) != 0) {
            json_decref(both);
            return schema_no_memory(w);
        }
    f->never |= json_array_size(both) == 0;
    return both && json_object_set_new(f->all, "enum", both) == 0
               ? PL_OK
               : schema_no_memory(w);
}

static pl_status merge_const(struct writer *w, struct flat *f, json_t *value)
{
    json_t *list = json_pack("[O]", value);
    pl_status s = list ? merge_enum(w, f, list, false) : schema_no_memory(w);

    json_decref(list);
    return s;
}

/* ---- merging keywords for one type of values ----------------------------- */

/* Sets a keyword of the combined schema, f->all. Takes over the reference to
 * `value`; if `value` is NULL, fails for lack of memory. */
static pl_status set(struct writer *w, struct flat *f, const char *key,
                     json_t *value)
{
    return value && json_object_set_new(f->all, key, value) == 0
               ? PL_OK
               : schema_no_memory(w);
}

/* Returns a schema for values that fit both schemas a and b; NULL if out of
 * memory. */
static json_t *both_of(json_t *a, json_t *b)
{
    if (json_is_false(a) || json_is_false(b))
        return json_false();
    if (json_is_true(a) || json_equal(a, b))
        return json_incref(b);
    return json_is_true(b) ? json_incref(a)
                           : json_pack("{s:[O,O]}", "allOf", a, b);
}

/* Merges the schemas of the object `given`, such as `properties`, into those
 * under `key`. Where both have a name, values must fit both schemas. */
static pl_status merge_each(struct writer *w, struct flat *f, const char *key,
                            json_t *given)
{
    json_t *before = json_object_get(f->all, key), *all, *schema;
    const char *name;

    if (!json_is_object(given))
        return schema_wrong(w, key, "must be an object of schemas");
    if (!before)
        return set(w, f, key, json_incref(given));
    all = whole_json_copy(before);
    json_object_foreach (given, name, schema) {
        json_t *there = json_object_get(all, name);

        w->n_step += there ? schema_weight(schema) : 1;
        if (!all || json_object_set_new(all, name,
                                        there ? both_of(there, schema)
                                              : json_incref(schema)) != 0) {
            json_decref(all);
            return schema_no_memory(w);
        }
    }
    return set(w, f, key, all);
}

static pl_status merge_schema(struct writer *w, struct flat *f, const char *key,
                              json_t *given)
{
    json_t *before = json_object_get(f->all, key);

    if (!before)
        return set(w, f, key, json_incref(given));
    w->n_step += schema_weight(given);
    if (json_equal(before, given))
        return PL_OK;
    if (json_is_array(before) || json_is_array(given)) {
        schema_note(w, key, "is not enforced where two schemas have it");
        return PL_OK;
    }
    return set(w, f, key, both_of(before, given));
}

/* Appends a value, or the values of a list, to the list under `key` of the
 * combined schema. */
static pl_status gather(struct writer *w, struct flat *f, const char *key,
                        json_t *value)
{
    json_t *before = json_object_get(f->all, key);
    json_t *list = before ? whole_json_copy(before) : json_array();
    int failed = json_is_array(value) ? json_array_extend(list, value)
                                      : json_array_append(list, value);

    if (failed) {
        json_decref(list);
        return schema_no_memory(w);
    }
    return set(w, f, key, list);
}

static pl_status merge_required(struct writer *w, struct flat *f, json_t *list)
{
    json_t *name;
    size_t i;

    w->n_step += 1 + (int64_t)json_array_size(list);
    if (!json_is_array(list)) {
        schema_note(w, "required", "is not a list, and ignored");
        return PL_OK;
    }
    json_array_foreach (list, i, name) {
        if (!json_is_string(name))
            return schema_wrong(w, "required", "must be a list of names");
    }
    return gather(w, f, "required", list);
}

/* Merges a bound of numbers, such as minimum: keeps the greater of `v` and the
 * present bound if `greater`, else the lesser. */
static pl_status merge_bound(struct writer *w, struct flat *f, const char *key,
                             json_t *v, bool greater)
{
    json_t *before = json_object_get(f->all, key);
    struct decimal a, b;

    if (!before || !decimal_of(&a, before, greater ? 1 : -1) ||
        !decimal_of(&b, v, greater ? 1 : -1))
        return set(w, f, key, json_incref(v));
    return decimal_compare(&b, &a) * (greater ? 1 : -1) > 0
               ? set(w, f, key, json_incref(v))
               : PL_OK;
}

/* Merges the bound `key` of `schema` into the combined schema. In draft 4
 * exclusiveMinimum is true or false: true means that `minimum` itself is
 * excluded. exclusiveMaximum likewise. */
static pl_status merge_bound_of(struct writer *w, struct flat *f,
                                json_t *schema, const char *key, json_t *v,
                                bool greater)
{
    const char *other = strcmp(key, "minimum") == 0   ? "exclusiveMinimum"
                        : strcmp(key, "maximum") == 0 ? "exclusiveMaximum"
                                                      : NULL;

    if (json_is_false(v) ||
        (other && json_is_true(json_object_get(schema, other))))
        return PL_OK;
    if (json_is_true(v))
        v = schema_get(schema, greater ? "minimum" : "maximum");
    return v ? merge_bound(w, f, key, v, greater) : PL_OK;
}

static bool has_other_names(const json_t *all, json_t *some)
{
    const char *name;
    json_t *v;

    json_object_foreach (some, name, v)
        if (!json_object_get(all, name))
            return true;
    return false;
}

/* Writes a note if one of the combined schemas has additionalProperties false
 * and another one has properties that the first lacks. Strictly no such
 * property would be allowed; the combined schema allows the properties of all
 * schemas. */
static void check_closed(struct writer *w, struct flat *f, json_t *schema)
{
    json_t *own = schema_get(schema, "properties");
    json_t *all = json_object_get(f->all, "properties");
    bool closed =
        json_is_false(json_object_get(schema, "additionalProperties"));

    if ((f->closed && has_other_names(all, own)) ||
        (closed && has_other_names(own, all)))
        schema_note(w, "additionalProperties",
                    "is taken to know the properties of all schemas that are "
                    "combined here");
    f->closed |= closed;
}

/* ---- alternatives: anyOf, if, dependencies ------------------------------- */

static pl_status add_choice(struct writer *w, struct flat *f, json_t *list)
{
    return list && json_array_append_new(f->choices, list) == 0
               ? PL_OK
               : schema_no_memory(w);
}

static pl_status merge_any(struct writer *w, struct flat *f, const char *key,
                           json_t *list)
{
    if (!json_is_array(list) || json_array_size(list) == 0)
        return schema_wrong(w, key, "must be a list of one schema or more");
    return add_choice(w, f, json_incref(list));
}

/* Adds the two alternatives of if, then and else: a value fits `if` and `then`,
 * or it does not fit `if` and fits `else`. */
static pl_status merge_if(struct writer *w, struct flat *f, json_t *schema,
                          json_t *cond)
{
    json_t *yes = schema_get(schema, "then"), *no = schema_get(schema, "else");
    json_t *all = json_true();

    if (!yes && !no)
        return PL_OK;
    return add_choice(w, f,
                      json_pack("[{s:[O,O]},{s:[{s:O},O]}]", "allOf", cond,
                                yes ? yes : all, "allOf", "not", cond,
                                no ? no : all));
}

static pl_status merge_dependent(struct writer *w, struct flat *f,
                                 const char *keyword, json_t *given)
{
    const char *key;
    json_t *v;

    if (!json_is_object(given))
        return schema_wrong(w, keyword, "must be an object");
    json_object_foreach (given, key, v) {
        json_t *then = json_is_array(v) ? json_pack("{s:O}", "required", v)
                                        : json_incref(v);

        PL_TRY(add_choice(w, f,
                          json_pack("[{s:{s:b}},{s:[{s:[s]},o]}]", "properties",
                                    key, 0, "allOf", "required", key, then)));
    }
    return PL_OK;
}

/* ---- merging whole schemas ----------------------------------------------- */

static pl_status merge_ref(struct writer *w, struct flat *f, json_t *ref,
                           int depth)
{
    json_t *to;

    PL_TRY(schema_find_ref(w, ref, &to));
    return to ? schema_merge(w, f, to, depth - 1) : PL_OK;
}

static pl_status merge_key(struct writer *w, struct flat *f, json_t *schema,
                           const struct keyword *k, json_t *v, int depth)
{
    json_t *item;
    size_t i;

    switch (k->merge) {
    case MERGE_NONE:
        return PL_OK;
    case MERGE_TYPE:
        return merge_type(w, f, v);
    case MERGE_ENUM:
        return merge_enum(w, f, v, false);
    case MERGE_CONST:
        return merge_const(w, f, v);
    case MERGE_ONE:
        PL_TRY(schema_check_one_of(w, v));
        return merge_any(w, f, k->name, v);
    case MERGE_ANY:
        return merge_any(w, f, k->name, v);
    case MERGE_ALL:
        if (!json_is_array(v))
            return schema_wrong(w, "allOf", "must be a list of schemas");
        json_array_foreach (v, i, item)
            PL_TRY(schema_merge(w, f, item, depth - 1));
        return PL_OK;
    case MERGE_NOT:
        return json_array_append(f->nots, v) == 0 ? PL_OK : schema_no_memory(w);
    case MERGE_IF:
        return merge_if(w, f, schema, v);
    case MERGE_REF:
        return merge_ref(w, f, v, depth);
    case MERGE_PROPERTIES:
    case MERGE_EACH:
        return merge_each(w, f, k->name, v);
    case MERGE_REQUIRED:
        return merge_required(w, f, v);
    case MERGE_OTHERS:
    case MERGE_SCHEMA:
        return merge_schema(w, f, k->name, v);
    case MERGE_GREATER:
    case MERGE_LESS:
        return merge_bound_of(w, f, schema, k->name, v,
                              k->merge == MERGE_GREATER);
    case MERGE_DEPENDENT:
        return merge_dependent(w, f, k->name, v);
    case MERGE_TRUE:
        return json_is_true(v) ? set(w, f, k->name, json_true()) : PL_OK;
    case MERGE_GATHER:
        return gather(w, f, k->name, v);
    case MERGE_LIST:
    case MERGE_SAME:
        break;
    }
    item = json_object_get(f->all, k->name);
    if (item && !json_equal(item, v))
        schema_note(w, k->name, "is not enforced where two schemas have it");
    return item ? PL_OK : set(w, f, k->name, json_incref(v));
}

/* Adds the two alternatives of a schema with OpenAPI's `nullable`: the value
 * fits the rest of the schema, or it is null. */
static pl_status merge_nullable(struct writer *w, struct flat *f,
                                json_t *schema)
{
    json_t *rest = whole_json_copy(schema);

    if (!rest || json_object_del(rest, "nullable") != 0) {
        json_decref(rest);
        return schema_no_memory(w);
    }
    return add_choice(w, f, json_pack("[o,{s:s}]", rest, "type", "null"));
}

pl_status schema_merge(struct writer *w, struct flat *f, json_t *schema,
                       int depth)
{
    const char *key;
    json_t *v;

    if (!begin(f))
        return schema_no_memory(w);
    w->n_step += 1 + (int64_t)json_object_size(schema);
    if (!schema_may_go_on(w))
        return schema_too_long(w, "allOf");
    f->never |= json_is_false(schema);
    if (json_is_boolean(schema))
        return PL_OK;
    if (!json_is_object(schema))
        return schema_wrong(w, "the schema", "must be an object, or true");
    if (depth == 0)
        return schema_refuse(w, "allOf", "nests too deeply");
    if (json_is_true(json_object_get(schema, "nullable")))
        return merge_nullable(w, f, schema);
    check_closed(w, f, schema);
    json_object_foreach (schema, key, v) {
        const struct keyword *k = keyword(key);

        if (!k && strncmp(key, "x-", 2) != 0)
            schema_note(w, key, "is not known, and ignored");
        if (k && (!json_is_null(v) || k->merge == MERGE_CONST))
            PL_TRY(merge_key(w, f, schema, k, v, depth));
    }
    return PL_OK;
}

/* ---- excluded values: not ------------------------------------------------ */

/* Returns true if the combined schema has `key` and no other keyword, apart
 * from `type`. */
static bool has_only(const struct flat *f, const char *key)
{
    return json_object_size(f->all) == 1 && json_object_get(f->all, key) &&
           json_array_size(f->choices) == 0 && json_array_size(f->nots) == 0;
}

/* Excludes the constants in `list` from the combined schema. Sets *done to
 * false if some of them, such as numbers, cannot be excluded. */
static pl_status without_constants(struct writer *w, struct flat *f,
                                   json_t *list, bool *done)
{
    unsigned simple = TYPE_NULL | TYPE_BOOLEAN | TYPE_STRING;
    json_t *item;
    size_t i;

    if (json_object_get(f->all, "enum"))
        return merge_enum(w, f, list, true);
    json_array_foreach (list, i, item) {
        unsigned bit = schema_type_of(item);

        if (!common_types(f->types, bit))
            continue;
        *done &= (bit & simple) != 0;
        if (bit == TYPE_STRING)
            PL_TRY(gather(w, f, WITHOUT_TEXTS, item));
        if (bit == TYPE_NULL) {
            f->types &= ~(unsigned)TYPE_NULL;
            f->typed = true;
        }
        if (bit == TYPE_BOOLEAN && f->typed && f->types == TYPE_BOOLEAN)
            PL_TRY(merge_const(
                w, f, json_is_true(item) ? json_false() : json_true()));
        else
            *done &= bit != TYPE_BOOLEAN;
    }
    f->never |= f->types == 0;
    return PL_OK;
}

/* Excludes objects that fit the properties and the required members of `all`.
 * Adds alternatives: a property is present and does not fit its schema there,
 * or a required member is absent. */
static pl_status without_properties(struct writer *w, struct flat *f,
                                    const json_t *all)
{
    json_t *list = json_array(), *schema, *item;
    json_t *required = json_object_get(all, "required");
    const char *key;
    bool ok = list != NULL;
    size_t i;

    json_object_foreach (json_object_get(all, "properties"), key, schema)
        ok = ok && json_array_append_new(
                       list, json_pack("{s:{s:{s:O}},s:[s]}", "properties", key,
                                       "not", schema, "required", key)) == 0;
    json_array_foreach (required, i, item)
        ok = ok && json_array_append_new(
                       list, json_pack("{s:{s:b}}", "properties",
                                       json_string_value(item), 0)) == 0;
    if (ok)
        return add_choice(w, f, list);
    json_decref(list);
    return schema_no_memory(w);
}

static pl_status apply_not(struct writer *w, struct flat *f,
                           const struct flat *no, bool *done)
{
    json_t *list, *item;
    size_t i;

    *done = true;
    if (no->never)
        return PL_OK;
    if ((list = json_object_get(no->all, "enum")) && has_only(no, "enum"))
        return without_constants(w, f, list, done);
    if (json_object_size(no->all) == 0 && json_array_size(no->choices) == 0 &&
        json_array_size(no->nots) == 0) {
        unsigned out =
            no->types & TYPE_NUMBER ? no->types | TYPE_INTEGER : no->types;

        *done = !(f->types & TYPE_NUMBER) || !(out & TYPE_INTEGER) ||
                out & TYPE_NUMBER;
        f->types &= ~out;
        f->typed = true;
        f->never |= f->types == 0;
        return PL_OK;
    }
    if (json_array_size(no->choices) == 1 && json_object_size(no->all) == 0 &&
        json_array_size(no->nots) == 0 && !no->typed) {
        json_array_foreach (json_array_get(no->choices, 0), i, item)
            if (json_array_append(f->nots, item) != 0)
                return schema_no_memory(w);
        return PL_OK;
    }
    if (json_array_size(no->nots) == 1 && json_object_size(no->all) == 0 &&
        json_array_size(no->choices) == 0 && !no->typed)
        return schema_merge(w, f, json_array_get(no->nots, 0), SCHEMA_MERGES);
    if ((list = json_object_get(no->all, "pattern")) && has_only(no, "pattern"))
        return gather(w, f, WITHOUT_PATTERNS, list);
    if ((has_only(no, "required") || has_only(no, "properties") ||
         (json_object_size(no->all) == 2 &&
          json_object_get(no->all, "properties") &&
          json_object_get(no->all, "required") &&
          json_array_size(no->choices) == 0 && json_array_size(no->nots) == 0)))
        return without_properties(w, f, no->all);
    *done = false;
    return PL_OK;
}

pl_status schema_apply_nots(struct writer *w, struct flat *f)
{
    while (json_array_size(f->nots) > 0 && !f->never) {
        json_t *one = json_incref(json_array_get(f->nots, 0));
        struct flat no = {0};
        pl_status s;
        bool done;

        json_array_remove(f->nots, 0);
        s = schema_merge(w, &no, one, SCHEMA_MERGES);
        if (s == PL_OK)
            s = apply_not(w, f, &no, &done);
        if (s == PL_OK && !done)
            schema_note(w, "not", "is not enforced");
        schema_flat_fini(&no);
        json_decref(one);
        PL_TRY(s);
    }
    return PL_OK;
}
