/* Combines schemas that apply to the same JSON value into one: those of allOf,
 * of $ref with other keywords beside it, and of conditions. Keywords that leave
 * a choice (anyOf, oneOf, if, dependencies) become lists of alternative
 * schemas, struct flat.choices. */
#include "grammar/schema_inner.h"

#include "base/err.h"
#include "base/whole_json.h"
#include "base/wide_json.h"
#include "grammar/decimal.h"

#include <string.h>

/* A keyword of a schema, as its merge function gets it. */
struct member {
    json_t *schema; /* the schema that has the keyword */
    const char *key;
    json_t *value;
    int depth; /* levels to which references and allOf may nest from here */
};

json_t *schema_get(const json_t *schema, const char *key)
{
    json_t *v = json_object_get(schema, key);

    return json_is_null(v) ? NULL : v;
}

json_t *schema_keep(struct writer *w, json_t *made)
{
    if (!w->made)
        w->made = json_array();
    if (json_array_append_new(w->made, made) == 0)
        return made;
    schema_no_memory(w);
    return NULL;
}

void schema_add(struct writer *w, json_t *list, json_t *item)
{
    if (json_array_append_new(list, item) != 0)
        schema_no_memory(w);
}

void schema_set(struct writer *w, json_t *object, const char *key,
                json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        schema_no_memory(w);
}

struct flat schema_flat_copy(struct writer *w, const struct flat *from)
{
    struct flat to = *from;

    to.all = schema_keep(w, whole_json_copy(from->all));
    to.choices = schema_keep(w, whole_json_copy(from->choices));
    to.nots = schema_keep(w, whole_json_copy(from->nots));
    return to;
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

const char *schema_type_name(unsigned bit)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].bit == bit)
            return types[i].name;
    return NULL;
}

unsigned schema_type_of(const json_t *v)
{
    static const unsigned bits[] = {
        [JSON_OBJECT] = TYPE_OBJECT, [JSON_ARRAY] = TYPE_ARRAY,
        [JSON_STRING] = TYPE_STRING, [JSON_INTEGER] = TYPE_INTEGER,
        [JSON_REAL] = TYPE_NUMBER,   [JSON_TRUE] = TYPE_BOOLEAN,
        [JSON_FALSE] = TYPE_BOOLEAN, [JSON_NULL] = TYPE_NULL,
    };

    return wide_digits(v) ? TYPE_INTEGER : bits[json_typeof(v)];
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

static void merge_type(struct writer *w, struct flat *f, const struct member *m)
{
    json_t *v = m->value;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    unsigned bits = 0;

    for (size_t i = 0; i < n; i++) {
        unsigned bit =
            schema_type_named(json_is_array(v) ? json_array_get(v, i) : v);

        if (!bit)
            schema_wrong(w, "type",
                         "must be one or more of object, array, string, "
                         "integer, number, boolean, null");
        bits |= bit;
    }
    if (!bits)
        schema_wrong(w, "type", "must name at least one type");
    f->types = common_types(f->types, bits);
    f->typed = true;
    f->never |= f->types == 0;
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
static void merge_values(struct writer *w, struct flat *f, json_t *list,
                         bool others)
{
    json_t *before = json_object_get(f->all, "enum"), *item;
    json_t *both = schema_keep(w, json_array());
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0)
        schema_wrong(w, "enum", "must be a list of one value or more");
    if (!schema_spend(w,
                      (before ? schema_weight(before) : 1) *
                          (int64_t)json_array_size(list),
                      "enum"))
        return;
    json_array_foreach (before ? before : list, i, item)
        if (!before || has_value(list, item) != others)
            schema_add(w, both, json_incref(item));
    f->never |= json_array_size(both) == 0;
    schema_set(w, f->all, "enum", json_incref(both));
}

static void merge_enum(struct writer *w, struct flat *f, const struct member *m)
{
    merge_values(w, f, m->value, false);
}

static void merge_const(struct writer *w, struct flat *f,
                        const struct member *m)
{
    merge_values(w, f, schema_keep(w, json_pack("[O]", m->value)), false);
}

/* ---- merging keywords for one type of values ----------------------------- */

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
static void merge_each(struct writer *w, struct flat *f, const struct member *m)
{
    const char *key = m->key;
    json_t *given = m->value;
    json_t *before = json_object_get(f->all, key), *all, *schema;
    const char *name;

    /* PHP encodes an empty object as an empty list. */
    if (json_is_array(given) && json_array_size(given) == 0)
        return;
    if (!json_is_object(given))
        schema_wrong(w, key, "must be an object of schemas");
    all = before ? whole_json_copy(before) : json_incref(given);
    schema_set(w, f->all, key, all);
    if (!before)
        return;
    json_object_foreach (given, name, schema) {
        json_t *there = json_object_get(all, name);

        if (!schema_spend(w, there ? schema_weight(schema) : 1, key))
            return;
        schema_set(w, all, name,
                   there ? both_of(there, schema) : json_incref(schema));
    }
}

static void merge_schema(struct writer *w, struct flat *f,
                         const struct member *m)
{
    const char *key = m->key;
    json_t *given = m->value;
    json_t *before = json_object_get(f->all, key);

    if (!before)
        schema_set(w, f->all, key, json_incref(given));
    else if (!schema_spend(w, schema_weight(given), key) ||
             json_equal(before, given))
        return;
    else if (json_is_array(before) || json_is_array(given))
        schema_note(w, key, "is not enforced where two schemas have it");
    else
        schema_set(w, f->all, key, both_of(before, given));
}

/* Appends a value, or the values of a list, to the list under `key` of the
 * combined schema. */
static void gather(struct writer *w, struct flat *f, const char *key,
                   json_t *value)
{
    json_t *before = json_object_get(f->all, key);
    json_t *list = before ? whole_json_copy(before) : json_array();

    if (json_is_array(value) ? json_array_extend(list, value)
                             : json_array_append(list, value))
        schema_no_memory(w);
    schema_set(w, f->all, key, list);
}

static void merge_gathered(struct writer *w, struct flat *f,
                           const struct member *m)
{
    gather(w, f, m->key, m->value);
}

static void merge_required(struct writer *w, struct flat *f,
                           const struct member *m)
{
    json_t *list = m->value, *name;
    size_t i;

    if (!schema_spend(w, 1 + (int64_t)json_array_size(list), "required"))
        return;
    if (!json_is_array(list)) {
        schema_note(w, "required", "is not a list, and ignored");
        return;
    }
    json_array_foreach (list, i, name)
        if (!json_is_string(name) || wide_digits(name))
            schema_wrong(w, "required", "must be a list of names");
    gather(w, f, "required", list);
}

/* Merges a bound: keeps the greater of two if `greater`, else the lesser. In
 * draft 4 exclusiveMinimum is true or false: true means that `minimum` itself
 * is excluded. exclusiveMaximum likewise. */
static void merge_bound(struct writer *w, struct flat *f,
                        const struct member *m, bool greater)
{
    const char *other = strcmp(m->key, "minimum") == 0   ? "exclusiveMinimum"
                        : strcmp(m->key, "maximum") == 0 ? "exclusiveMaximum"
                                                         : NULL;
    json_t *before = json_object_get(f->all, m->key), *v = m->value;
    const int sign = greater ? 1 : -1;
    struct decimal a, b;

    if (json_is_true(v))
        v = schema_get(m->schema, greater ? "minimum" : "maximum");
    if (!v || json_is_false(v) ||
        (other && json_is_true(json_object_get(m->schema, other))))
        return;
    if (!before || !decimal_of(&a, before, sign) || !decimal_of(&b, v, sign) ||
        decimal_compare(&b, &a) * sign > 0)
        schema_set(w, f->all, m->key, json_incref(v));
}

static void merge_greater(struct writer *w, struct flat *f,
                          const struct member *m)
{
    merge_bound(w, f, m, true);
}

static void merge_less(struct writer *w, struct flat *f, const struct member *m)
{
    merge_bound(w, f, m, false);
}

static void merge_true(struct writer *w, struct flat *f, const struct member *m)
{
    if (json_is_true(m->value))
        schema_set(w, f->all, m->key, json_true());
}

/* Merges a keyword that is not enforced where two schemas have it with
 * different values. */
static void merge_same(struct writer *w, struct flat *f, const struct member *m)
{
    json_t *before = json_object_get(f->all, m->key);

    if (!before)
        schema_set(w, f->all, m->key, json_incref(m->value));
    else if (!json_equal(before, m->value))
        schema_note(w, m->key, "is not enforced where two schemas have it");
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

/* Adds a list of alternatives, taking over the reference to it. It is kept,
 * because schema_rule finds existing rules by the addresses of schemas, so that
 * no later schema may get the same address. */
static void add_choice(struct writer *w, struct flat *f, json_t *list)
{
    schema_add(w, f->choices, json_incref(schema_keep(w, list)));
}

static void merge_any(struct writer *w, struct flat *f, const struct member *m)
{
    if (!json_is_array(m->value) || json_array_size(m->value) == 0)
        schema_wrong(w, m->key, "must be a list of one schema or more");
    add_choice(w, f, json_incref(m->value));
}

static void merge_one(struct writer *w, struct flat *f, const struct member *m)
{
    schema_check_one_of(w, m->value);
    merge_any(w, f, m);
}

/* Adds the two alternatives of if, then and else: a value fits `if` and `then`,
 * or it does not fit `if` and fits `else`. */
static void merge_if(struct writer *w, struct flat *f, const struct member *m)
{
    json_t *yes = schema_get(m->schema, "then");
    json_t *no = schema_get(m->schema, "else"), *all = json_true();

    if (yes || no)
        add_choice(w, f,
                   json_pack("[{s:[O,O]},{s:[{s:O},O]}]", "allOf", m->value,
                             yes ? yes : all, "allOf", "not", m->value,
                             no ? no : all));
}

static void merge_dependent(struct writer *w, struct flat *f,
                            const struct member *m)
{
    const char *key;
    json_t *v;

    if (!json_is_object(m->value))
        schema_wrong(w, m->key, "must be an object");
    json_object_foreach (m->value, key, v)
        add_choice(w, f,
                   json_pack("[{s:{s:b}},{s:[{s:[s]},o]}]", "properties", key,
                             0, "allOf", "required", key,
                             json_is_array(v)
                                 ? json_pack("{s:O}", "required", v)
                                 : json_incref(v)));
}

static void merge_not(struct writer *w, struct flat *f, const struct member *m)
{
    schema_add(w, f->nots, json_incref(m->value));
}

/* ---- merging whole schemas ----------------------------------------------- */

static void merge_all(struct writer *w, struct flat *f, const struct member *m)
{
    json_t *item;
    size_t i;

    if (!json_is_array(m->value))
        schema_wrong(w, "allOf", "must be a list of schemas");
    json_array_foreach (m->value, i, item)
        schema_merge(w, f, item, m->depth - 1);
}

static void merge_ref(struct writer *w, struct flat *f, const struct member *m)
{
    json_t *to = schema_find_ref(w, m->value);

    if (to)
        schema_merge(w, f, to, m->depth - 1);
}

/* All keywords of JSON Schema. */
static const struct keyword {
    const char *name;
    /* The type of values that the keyword constrains; KEYWORD_NOTE constrains
     * nothing. */
    enum keyword_of of;
    /* Combines the keyword's values in two schemas that apply to the same
     * value: that of m and that of the combined schema f. NULL if the keyword
     * is read with another one, or not at all. */
    void (*merge)(struct writer *w, struct flat *f, const struct member *m);
} keywords[] = {
    {"type", KEYWORD_ANY, merge_type},
    {"enum", KEYWORD_ANY, merge_enum},
    {"const", KEYWORD_ANY, merge_const},
    {"anyOf", KEYWORD_ANY, merge_any},
    {"oneOf", KEYWORD_ANY, merge_one},
    {"allOf", KEYWORD_ANY, merge_all},
    {"not", KEYWORD_ANY, merge_not},
    {"if", KEYWORD_ANY, merge_if},
    {"then", KEYWORD_NOTE, NULL},
    {"else", KEYWORD_NOTE, NULL},
    {"$ref", KEYWORD_ANY, merge_ref},
    {"$dynamicRef", KEYWORD_ANY, merge_ref},
    {"$recursiveRef", KEYWORD_ANY, merge_ref},
    {"properties", KEYWORD_OBJECT, merge_each},
    {"required", KEYWORD_OBJECT, merge_required},
    {"additionalProperties", KEYWORD_OBJECT, merge_schema},
    {"unevaluatedProperties", KEYWORD_OBJECT, merge_schema},
    {"patternProperties", KEYWORD_OBJECT, merge_each},
    {"propertyNames", KEYWORD_OBJECT, merge_schema},
    {"minProperties", KEYWORD_OBJECT, merge_greater},
    {"maxProperties", KEYWORD_OBJECT, merge_less},
    {"dependentRequired", KEYWORD_OBJECT, merge_dependent},
    {"dependentSchemas", KEYWORD_OBJECT, merge_dependent},
    {"dependencies", KEYWORD_OBJECT, merge_dependent},
    {"items", KEYWORD_ARRAY, merge_schema},
    {"prefixItems", KEYWORD_ARRAY, merge_same},
    {"additionalItems", KEYWORD_ARRAY, merge_schema},
    {"unevaluatedItems", KEYWORD_ARRAY, merge_schema},
    {"minItems", KEYWORD_ARRAY, merge_greater},
    {"maxItems", KEYWORD_ARRAY, merge_less},
    {"uniqueItems", KEYWORD_ARRAY, merge_true},
    {"contains", KEYWORD_ARRAY, merge_same},
    {"minContains", KEYWORD_ARRAY, merge_same},
    {"maxContains", KEYWORD_ARRAY, merge_same},
    {"pattern", KEYWORD_STRING, merge_gathered},
    {"format", KEYWORD_STRING_OR_NUMBER, merge_gathered},
    {"minLength", KEYWORD_STRING, merge_greater},
    {"maxLength", KEYWORD_STRING, merge_less},
    {"minimum", KEYWORD_NUMBER, merge_greater},
    {"maximum", KEYWORD_NUMBER, merge_less},
    {"exclusiveMinimum", KEYWORD_NUMBER, merge_greater},
    {"exclusiveMaximum", KEYWORD_NUMBER, merge_less},
    {"multipleOf", KEYWORD_NUMBER, merge_same},
    {"nullable", KEYWORD_ANY, NULL},
    {"$defs", KEYWORD_NOTE, NULL},
    {"definitions", KEYWORD_NOTE, NULL},
    {"$schema", KEYWORD_NOTE, NULL},
    {"$id", KEYWORD_NOTE, NULL},
    {"id", KEYWORD_NOTE, NULL},
    {"$anchor", KEYWORD_NOTE, NULL},
    {"$dynamicAnchor", KEYWORD_NOTE, NULL},
    {"$recursiveAnchor", KEYWORD_NOTE, NULL},
    {"$vocabulary", KEYWORD_NOTE, NULL},
    {"$comment", KEYWORD_NOTE, NULL},
    {"title", KEYWORD_NOTE, NULL},
    {"description", KEYWORD_NOTE, NULL},
    {"default", KEYWORD_NOTE, NULL},
    {"example", KEYWORD_NOTE, NULL},
    {"examples", KEYWORD_NOTE, NULL},
    {"deprecated", KEYWORD_NOTE, NULL},
    {"readOnly", KEYWORD_NOTE, NULL},
    {"writeOnly", KEYWORD_NOTE, NULL},
    {"contentEncoding", KEYWORD_NOTE, NULL},
    {"contentMediaType", KEYWORD_NOTE, NULL},
    {"contentSchema", KEYWORD_NOTE, NULL},
    {"discriminator", KEYWORD_NOTE, NULL},
    {"externalDocs", KEYWORD_NOTE, NULL},
    {"xml", KEYWORD_NOTE, NULL},
    {"strict", KEYWORD_NOTE, NULL},
    {"name", KEYWORD_NOTE, NULL},
    {"propertyOrdering", KEYWORD_NOTE, NULL},
    {"markdownDescription", KEYWORD_NOTE, NULL},
    {"enumDescriptions", KEYWORD_NOTE, NULL},
    {"enumNames", KEYWORD_NOTE, NULL},
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

/* Adds the two alternatives of a schema with OpenAPI's `nullable`: the value
 * fits the rest of the schema, or it is null. */
static void merge_nullable(struct writer *w, struct flat *f, json_t *schema)
{
    json_t *rest = schema_keep(w, whole_json_copy(schema));

    json_object_del(rest, "nullable");
    add_choice(w, f, json_pack("[O,{s:s}]", rest, "type", "null"));
}

void schema_merge(struct writer *w, struct flat *f, json_t *schema, int depth)
{
    const char *key;
    json_t *v;

    if (!f->all)
        *f = (struct flat){.all = schema_keep(w, json_object()),
                           .choices = schema_keep(w, json_array()),
                           .nots = schema_keep(w, json_array()),
                           .types = TYPE_ALL};
    if (!schema_spend(w, 1 + (int64_t)json_object_size(schema), "allOf"))
        return;
    f->never |= json_is_false(schema);
    if (json_is_boolean(schema))
        return;
    if (!json_is_object(schema))
        schema_wrong(w, "the schema", "must be an object, or true");
    if (depth == 0)
        schema_refuse(w, "allOf", "nests too deeply");
    if (json_is_true(json_object_get(schema, "nullable"))) {
        merge_nullable(w, f, schema);
        return;
    }
    check_closed(w, f, schema);
    json_object_foreach (schema, key, v) {
        const struct keyword *k = keyword(key);

        if (!k && strncmp(key, "x-", 2) != 0)
            schema_note(w, key, "is not known, and ignored");
        if (k && k->merge && (!json_is_null(v) || k->merge == merge_const) &&
            w->status == PL_OK)
            k->merge(w, f, &(struct member){schema, key, v, depth});
    }
}

/* ---- excluded values: not ------------------------------------------------ */

/* Excludes the constants in `list` from the combined schema. Returns false if
 * some of them, such as numbers, cannot be excluded. */
static bool without_constants(struct writer *w, struct flat *f, json_t *list)
{
    unsigned simple = TYPE_NULL | TYPE_BOOLEAN | TYPE_STRING;
    bool done = true;
    json_t *item;
    size_t i;

    if (json_object_get(f->all, "enum")) {
        merge_values(w, f, list, true);
        return true;
    }
    json_array_foreach (list, i, item) {
        unsigned bit = schema_type_of(item);

        if (!common_types(f->types, bit))
            continue;
        done &= (bit & simple) != 0;
        if (bit == TYPE_STRING)
            gather(w, f, WITHOUT_TEXTS, item);
        if (bit == TYPE_NULL) {
            f->types &= ~(unsigned)TYPE_NULL;
            f->typed = true;
        }
        if (bit == TYPE_BOOLEAN && f->typed && f->types == TYPE_BOOLEAN)
            merge_const(w, f,
                        &(struct member){.value = json_is_true(item)
                                                      ? json_false()
                                                      : json_true()});
        else
            done &= bit != TYPE_BOOLEAN;
    }
    f->never |= f->types == 0;
    return done;
}

/* Excludes objects that fit the properties and the required members of `all`.
 * Adds alternatives: a property is present and does not fit its schema there,
 * or a required member is absent. */
static void without_properties(struct writer *w, struct flat *f,
                               const json_t *all)
{
    json_t *list = json_array(), *schema, *item;
    const char *key;
    size_t i;

    json_object_foreach (json_object_get(all, "properties"), key, schema)
        schema_add(w, list,
                   json_pack("{s:{s:{s:O}},s:[s]}", "properties", key, "not",
                             schema, "required", key));
    json_array_foreach (json_object_get(all, "required"), i, item)
        schema_add(
            w, list,
            json_pack("{s:{s:b}}", "properties", json_string_value(item), 0));
    add_choice(w, f, list);
}

/* Excludes the types of a schema that has only types. Returns false if numbers,
 * of which integers are a part, stay. */
static bool without_types(struct flat *f, unsigned out)
{
    bool done;

    if (out & TYPE_NUMBER)
        out |= TYPE_INTEGER;
    done =
        !(f->types & TYPE_NUMBER) || !(out & TYPE_INTEGER) || out & TYPE_NUMBER;
    f->types &= ~out;
    f->typed = true;
    f->never |= f->types == 0;
    return done;
}

/* Excludes the values that fit the combined schema `no` from f. Returns false
 * if that is not possible. */
static bool apply_not(struct writer *w, struct flat *f, const struct flat *no)
{
    const size_t n_all = json_object_size(no->all);
    const size_t n_choice = json_array_size(no->choices);
    const size_t n_not = json_array_size(no->nots);
    const bool simple = n_choice == 0 && n_not == 0;
    json_t *texts = json_object_get(no->all, "pattern"), *item;
    json_t *list = json_object_get(no->all, "enum");
    const size_t n_member = !!json_object_get(no->all, "properties") +
                            (size_t) !!json_object_get(no->all, "required");
    size_t i;

    if (no->never)
        return true;
    if (simple && n_all == 1 && list)
        return without_constants(w, f, list);
    if (simple && n_all == 0)
        return without_types(f, no->types);
    if (n_choice == 1 && n_not == 0 && n_all == 0 && !no->typed)
        json_array_foreach (json_array_get(no->choices, 0), i, item)
            schema_add(w, f->nots, json_incref(item));
    else if (n_not == 1 && n_choice == 0 && n_all == 0 && !no->typed)
        schema_merge(w, f, json_array_get(no->nots, 0), SCHEMA_MERGES);
    else if (simple && n_all == 1 && texts)
        gather(w, f, WITHOUT_PATTERNS, texts);
    else if (simple && n_all > 0 && n_all == n_member)
        without_properties(w, f, no->all);
    else
        return false;
    return true;
}

void schema_apply_nots(struct writer *w, struct flat *f)
{
    while (json_array_size(f->nots) > 0 && !f->never && w->status == PL_OK) {
        json_t *one = json_array_get(f->nots, 0);
        struct flat no = {0};

        schema_merge(w, &no, one, SCHEMA_MERGES);
        json_array_remove(f->nots, 0);
        if (w->status == PL_OK && !apply_not(w, f, &no))
            schema_note(w, "not", "is not enforced");
    }
}
