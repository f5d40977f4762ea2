/* Converts a JSON Schema to GBNF, one rule for each schema in it; see
 * schema.h. */
#include "grammar/schema_inner.h"

#include "base/ascii.h"
#include "base/err.h"
#include "base/numeral.h"
#include "base/whole_json.h"
#include "base/wide_json.h"
#include "grammar/gbnf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_ITEMS = 500, /* maximum number of schemas in prefixItems */
    /* Greatest minItems, maxItems, minProperties or maxProperties that is
     * enforced. */
    MOST_TIMES = 2000,
    /* maximum number of constants for which uniqueItems is enforced */
    MOST_UNIQUE = 6,
    /* maximum number of rules for an object with minProperties or
     * maxProperties */
    MOST_COUNTED = 1000,
    /* Maximum number of combinations of the alternatives of several anyOf. */
    MOST_CHOICES = 128,
    MOST_CONTAINED = 8,
    MOST_NOTES = 32,
    /* Maximum number of steps of searches and comparisons for all schemas of a
     * grammar. Schemas that need more are rejected, because the time may grow
     * far faster than their size. */
    MOST_STEPS = 1 << 22,
};

/* A schema that is being converted, and the body of its GBNF rule so far. */
struct part {
    struct writer *w;
    struct flat f;
    struct gbnf_text text; /* owned: body of the rule */
    bool never;            /* no JSON value fits the schema */
};

/* Rules that every converted schema can use. schema_put_common adds the rules
 * `string`, `plain` and `char`, which depend on the notation of strings. */
static const char common_rules[] =
    "ws ::= (\" \" | \"\\n\" [ \\t]{0,20})?\n"
    "integer ::= \"-\"? (\"0\" | [1-9] [0-9]{0,17})\n"
    "number ::= integer (\".\" [0-9]{1,18})? ([eE] [-+]? [0-9]{1,2})?\n"
    "boolean ::= \"true\" | \"false\"\n"
    "null ::= \"null\"\n"
    "value ::= object | array | string | number | boolean | null\n"
    "member ::= string ws \":\" ws value\n"
    "object ::= \"{\" ws (member ws (\",\" ws member ws)*)? \"}\"\n"
    "array ::= \"[\" ws (value ws (\",\" ws value ws)*)? \"]\"\n";

const struct schema_strings schema_strings = {
    .string = "\"\\\"\" char* \"\\\"\"",
    .plain = "[^\"\\\\\\x00-\\x1F]",
    .escape = "\"\\\\\" ([\"\\\\/bfnrt] | \"u\" "
              "([0-9a-cefA-CEF] [0-9a-fA-F]{3} | [dD] [0-7] [0-9a-fA-F]{2}))",
};

void schema_put_common(struct gbnf_text *out, const struct schema_strings *how)
{
    const char *const rest[] = {
        common_rules,  "string ::= ", how->string, "\nplain ::= ", how->plain,
        "\nchar ::= ", how->plain,    " | ",       how->escape,    "\n"};

    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++)
        gbnf_put(out, rest[i]);
}

/* ---- messages, notes and paths in the document --------------------------- */

/* Sets w->why to the message "NAME: PATH: KEYWORD WHAT". */
static void say(struct writer *w, const char *keyword, const char *what)
{
    char path[ERR_SHOWN], key[ERR_SHOWN], name[ERR_SHOWN];

    numeral_print(w->why, sizeof w->why, "%s: %s: %s %s",
                  err_shown(name, w->name, strlen(w->name)),
                  err_shown(path, w->path, strlen(w->path)),
                  err_shown(key, keyword, strlen(keyword)), what);
}

static void fail(struct writer *w, pl_status s, const char *keyword,
                 const char *what)
{
    if (w->status != PL_OK)
        return;
    say(w, keyword, what);
    w->status = s;
}

void schema_refuse(struct writer *w, const char *keyword, const char *what)
{
    fail(w, PL_UNSUPPORTED, keyword, what);
}

void schema_wrong(struct writer *w, const char *keyword, const char *what)
{
    fail(w, PL_BAD_ARGUMENT, keyword, what);
}

void schema_no_memory(struct writer *w)
{
    fail(w, PL_NO_MEMORY, "", "");
}

/* Fails because a limit of the whole grammar is reached. Such a failure is not
 * turned into a note. */
static void limit(struct writer *w, const char *keyword, const char *what)
{
    w->limit |= w->status == PL_OK;
    schema_refuse(w, keyword, what);
}

/* Writes the message w->why into the grammar, as a comment that grammar_notes
 * returns. */
static void put_note(struct writer *w)
{
    if (++w->sums.n_note > MOST_NOTES)
        return;
    gbnf_put(w->out, GBNF_NOTE);
    gbnf_put(w->out, w->sums.n_note == MOST_NOTES ? "and more" : w->why);
    gbnf_put(w->out, "\n");
}

void schema_note(struct writer *w, const char *keyword, const char *what)
{
    if (w->status != PL_OK)
        return;
    say(w, keyword, what);
    put_note(w);
}

static size_t enter(struct writer *w, const char *key)
{
    size_t n = strlen(w->path), len = strlen(key);

    if (n + len + 2 <= SCHEMA_PATH) {
        w->path[n] = '/';
        memcpy(w->path + n + 1, key, len + 1);
    }
    return n;
}

static void leave(struct writer *w, size_t n)
{
    w->path[n] = '\0';
}

void *schema_alloc(struct writer *w, size_t n, size_t size)
{
    void *p = arena_alloc(&w->memory, n, size);

    if (!p)
        schema_no_memory(w);
    return p;
}

static void too_large(struct writer *w)
{
    limit(w, "the schema",
          "or its grammar has more than 1 MiB; make it smaller");
}

bool schema_spend(struct writer *w, int64_t n, const char *keyword)
{
    w->sums.n_step += n;
    if (w->sums.n_step > MOST_STEPS)
        limit(w, keyword,
              "takes too long to process; use fewer values, required "
              "properties and schemas");
    return w->status == PL_OK;
}

int64_t schema_weight(json_t *v)
{
    int64_t n = 1 + (int64_t)json_string_length(v) / 16;
    const char *key;
    json_t *item;
    size_t i;

    json_array_foreach (v, i, item)
        n += schema_weight(item);
    json_object_foreach (v, key, item)
        n += schema_weight(item);
    return n;
}

/* ---- rules of the grammar ------------------------------------------------ */

void schema_rule_put(struct writer *w, uint32_t rule, struct gbnf_text *text)
{
    gbnf_put_rule(w->out, rule, text);
    if (w->out->failed)
        schema_no_memory(w);
    if (w->out->too_large)
        too_large(w);
    if (w->sums.n_rule > GBNF_RULES)
        limit(w, "the schema",
              "has more than about 4,000 parts; make it smaller");
}

/* Returns the number of the rule of `schema`, which is the value of `key` at
 * the current path in the document. The path is for messages. */
static uint32_t rule_under(struct writer *w, const char *key, json_t *schema)
{
    size_t n = enter(w, key);
    uint32_t rule = schema_rule(w, schema);

    leave(w, n);
    return rule;
}

static uint32_t rule_at(struct writer *w, const char *key, size_t i,
                        json_t *schema)
{
    char s[64];

    numeral_print(s, sizeof s, "%s/%zu", key, i);
    return rule_under(w, s, schema);
}

/* ---- constants: const and enum ------------------------------------------- */

/* Appends the JSON text of `value` to the rule body t, as a literal. */
static void put_json(struct writer *w, struct gbnf_text *t, const json_t *value)
{
    char *json = wide_json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

    if (json)
        gbnf_put_literal(t, json, strlen(json));
    else
        schema_no_memory(w);
    free(json);
}

/* Appends the constants of `enum` that fit the schema's types and its keywords
 * for strings. If none fits, appends all of them, with a note, because authors
 * of schemas write numbers as strings. */
static void put_enum(struct part *p)
{
    json_t *list = json_object_get(p->f.all, "enum"), *value;
    const char *before = "";
    size_t i;

    for (int all = 0; all < 2 && !*before; all++) {
        json_array_foreach (list, i, value) {
            unsigned bit = schema_type_of(value);
            bool fits = (p->f.types & bit) ||
                        (bit == TYPE_INTEGER && p->f.types & TYPE_NUMBER);

            if (fits && bit == TYPE_STRING)
                fits =
                    schema_text_fits(p->w, p->f.all, json_string_value(value),
                                     json_string_length(value));
            if (!fits && !all)
                continue;
            gbnf_put(&p->text, before);
            put_json(p->w, &p->text, value);
            before = " | ";
        }
        if (!*before && json_array_size(list) > 0)
            schema_note(p->w, "enum",
                        "has no value that fits the other keywords, which are "
                        "ignored");
    }
    p->never = !*before;
}

/* ---- references ($ref) --------------------------------------------------- */

/* Returns the value under a key of an object, or under an index of a list, or
 * NULL if there is none. */
static json_t *value_under(const json_t *v, const char *key)
{
    if (!json_is_array(v))
        return json_object_get(v, key);
    if (key[strspn(key, "0123456789")] || strlen(key) - 1 > 8)
        return NULL;
    return json_array_get(v, (size_t)strtoul(key, NULL, 10));
}

/* Searches v and the schemas in it for one that has the value `name` under one
 * of the keys, such as $id or $anchor. Returns it, or NULL if there is none. */
static json_t *find_named(struct writer *w, json_t *v, const char *const *keys,
                          const char *name, int depth)
{
    const char *key;
    json_t *item, *found = NULL;
    size_t i;

    if (!schema_spend(w, 1, "$ref"))
        return NULL;
    for (i = 0; keys[i] && json_is_object(v); i++) {
        const char *s = json_string_value(json_object_get(v, keys[i]));

        s = s && *s == '#' ? s + 1 : s;
        if (s && strcmp(s, name) == 0)
            return v;
    }
    if (depth == 0)
        return NULL;
    json_array_foreach (v, i, item)
        if (!found)
            found = find_named(w, item, keys, name, depth - 1);
    json_object_foreach (v, key, item)
        if (!found)
            found = find_named(w, item, keys, name, depth - 1);
    return found;
}

/* Decodes %HH escapes in the text s, in place. */
static void decode_percent(char *s)
{
    char *to = s;

    for (; *s; s++) {
        bool code = *s == '%' && ascii_digit(s[1]) < 16 &&
                    ascii_digit(s[2]) < 16 && (s[1] != '0' || s[2] != '0');

        *to++ = code ? (char)(16 * ascii_digit(s[1]) + ascii_digit(s[2])) : *s;
        s += code ? 2 : 0;
    }
    *to = '\0';
}

/* Returns the value in `in` at the JSON pointer `at`, which lacks its first
 * slash; NULL if there is no such value. Unescapes the names in `at`. */
static json_t *find_pointer(json_t *in, char *at)
{
    while (at && in) {
        const char *key = at;
        char *to = at, *from = at;

        at = strchr(at, '/');
        if (at)
            *at++ = '\0';
        for (; (*to = *from); to++, from++)
            if (*from == '~' && from[1])
                *to = *++from == '1' ? '/' : '~';
        in = value_under(in, key);
    }
    return in;
}

/* Returns the schema to which the reference `text` points, as schema_find_ref
 * does. Changes `text`. */
static json_t *find_text(struct writer *w, char *text)
{
    static const char *const ids[] = {"$id", "id", NULL};
    static const char *const anchors[] = {"$anchor", "$dynamicAnchor", "$id",
                                          "id", NULL};
    json_t *out = w->root;
    char *name;

    decode_percent(text);
    name = strchr(text, '#');
    if (name)
        *name++ = '\0';
    if (*text)
        out = find_named(w, w->root, ids, text, SCHEMA_DEPTH);
    if (!out) {
        schema_note(w, "$ref",
                    "points outside the schema, which is not read; any value "
                    "is allowed");
        return NULL;
    }
    if (name && *name == '/')
        out = find_pointer(out, name + 1);
    else if (name && *name)
        out = find_named(w, out, anchors, name, SCHEMA_DEPTH);
    if (!out)
        schema_wrong(w, "$ref", "points to nothing; define what it refers to");
    return out;
}

json_t *schema_find_ref(struct writer *w, const json_t *ref)
{
    const bool is_text = json_is_string(ref) && !wide_digits(ref);
    char *text = is_text ? strdup(json_string_value(ref)) : NULL;
    json_t *out = text ? find_text(w, text) : NULL;

    if (!is_text)
        schema_wrong(w, "$ref", "must be a string");
    else if (!text)
        schema_no_memory(w);
    free(text);
    return out;
}

/* ---- alternatives of oneOf that exclude each other ----------------------- */

/* Follows the reference of a schema, and so on, up to 8 times. */
static json_t *target_of(struct writer *w, json_t *schema)
{
    json_t *ref, *to;

    for (int i = 0; i < 8 && (ref = json_object_get(schema, "$ref")); i++) {
        to = schema_find_ref(w, ref);
        if (!to)
            break;
        schema = to;
    }
    return schema;
}

/* Returns the JSON type that all documents of a schema have, as an enum
 * type_bit; 0 if it is not known. TYPE_NUMBER includes integers. */
static unsigned only_type(const json_t *schema)
{
    json_t *constant = json_object_get(schema, "const");
    unsigned type = constant
                        ? schema_type_of(constant)
                        : schema_type_named(json_object_get(schema, "type"));

    return type == TYPE_INTEGER ? TYPE_NUMBER : type;
}

/* Returns true if schemas a and b list constants (const or enum) and have none
 * in common, so that no value fits both. */
static bool other_constants(struct writer *w, json_t *a, json_t *b)
{
    json_t *x = json_object_get(a, "enum"), *y = json_object_get(b, "enum");
    json_t *cx = json_object_get(a, "const"), *cy = json_object_get(b, "const");
    size_t n = cx ? 1 : json_array_size(x), m = cy ? 1 : json_array_size(y);

    if (n == 0 || m == 0 ||
        !schema_spend(w,
                      schema_weight(cx ? cx : x) * schema_weight(cy ? cy : y),
                      "oneOf"))
        return false;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < m; k++)
            if (json_equal(cx ? cx : json_array_get(x, i),
                           cy ? cy : json_array_get(y, k)))
                return false;
    return true;
}

static bool requires(struct writer *w, json_t *schema, const char *key)
{
    json_t *list = json_object_get(schema, "required"), *name;
    size_t i;

    if (!schema_spend(w, (int64_t)json_array_size(list), "required"))
        return false;
    json_array_foreach (list, i, name) {
        if (json_is_string(name) && strcmp(json_string_value(name), key) == 0)
            return true;
    }
    return false;
}

/* Returns true if no document fits both schemas a and b. Detects only simple
 * cases: different types, different constants, or a member that both require
 * with different constants. */
static bool are_apart(struct writer *w, json_t *a, json_t *b)
{
    json_t *all, *member;
    const char *key;
    unsigned x, y;

    a = target_of(w, a);
    b = target_of(w, b);
    /* A reference that leads to nothing is an error where it is converted. */
    if (w->status == PL_BAD_ARGUMENT) {
        w->status = PL_OK;
        return false;
    }
    x = only_type(a);
    y = only_type(b);
    if ((x && y && x != y) || other_constants(w, a, b))
        return true;
    all = json_object_get(b, "properties");
    json_object_foreach (json_object_get(a, "properties"), key, member)
        if (schema_spend(w, 1, "oneOf") && x == TYPE_OBJECT && y == x &&
            requires(w, a, key) && requires(w, b, key) &&
            other_constants(w, member, json_object_get(all, key)))
            return true;
    return false;
}

void schema_check_one_of(struct writer *w, json_t *list)
{
    size_t n = json_array_size(list);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!are_apart(w, json_array_get(list, k),
                           json_array_get(list, i))) {
                schema_note(w, "oneOf",
                            "has alternatives that may both match, which is "
                            "allowed");
                return;
            }
}

/* ---- counts, as minItems ------------------------------------------------- */

int64_t schema_count(struct writer *w, const json_t *all, const char *key,
                     int64_t usual, int64_t most)
{
    json_t *v = json_object_get(all, key);
    double n = wide_number(v);
    char what[64];

    if (!v)
        return usual;
    if (!wide_is_number(v) || n < 0 || n != floor(n)) {
        schema_wrong(w, key, "must be an integer from 0");
    } else if (n > (double)most) {
        numeral_print(what, sizeof what, "above %lld is not enforced",
                      (long long)most);
        schema_note(w, key, what);
    } else {
        return (int64_t)n;
    }
    return usual;
}

static void put_times(struct gbnf_text *t, int64_t min, int64_t max)
{
    gbnf_print(t, "{%lld,", (long long)min);
    if (max >= 0)
        gbnf_print(t, "%lld", (long long)max);
    gbnf_put(t, "}");
}

/* ---- rules for arrays ---------------------------------------------------- */

/* The items of an array as a schema describes them: the first n by one schema
 * each (prefixItems), all others by one common schema. */
struct items {
    /* list of schemas for the first items; schema of all others; NULL if
     * absent */
    json_t *prefix, *other;
    /* n: number of first items with a schema each. min, max: least and greatest
     * number of items of the array; max is -1 if there is no limit. */
    int64_t n, min, max;
    bool more;      /* further items may follow the first n */
    char rest[16];  /* name of the rule for the further items */
    uint32_t *rule; /* [n]: rules for the first n items */
};

/* Reads the schemas of the first items of an array. They are in prefixItems.
 * Before draft 2020-12 they were a list in `items`, and additionalItems was the
 * schema of all others. */
static void read_prefix(struct part *p, struct items *it)
{
    const json_t *all = p->f.all;
    json_t *items = json_object_get(all, "items");
    size_t n;

    it->prefix = json_object_get(all, "prefixItems");
    it->other =
        json_is_array(items) ? json_object_get(all, "additionalItems") : items;
    if (json_is_array(items))
        it->prefix = items;
    if (!it->other)
        it->other = json_object_get(all, "unevaluatedItems");
    it->more = !json_is_false(it->other);
    n = json_array_size(it->prefix);
    if (it->prefix && !json_is_array(it->prefix))
        schema_wrong(p->w, "prefixItems", "must be a list of schemas");
    if (n > MOST_ITEMS)
        schema_refuse(p->w, "prefixItems", "has more than 500 schemas");
    it->rule = schema_alloc(p->w, n, sizeof *it->rule);
    for (size_t i = 0; i < n && p->w->status == PL_OK; i++) {
        it->rule[i] =
            rule_at(p->w, "prefixItems", i, json_array_get(it->prefix, i));
        /* No value fits the schema of this item, so the array has to end before
         * it. */
        if (it->rule[i] == RULE_NEVER) {
            it->more = false;
            return;
        }
        it->n++;
    }
}

static void read_items(struct part *p, struct items *it)
{
    uint32_t rule;

    read_prefix(p, it);
    it->min = schema_count(p->w, p->f.all, "minItems", 0, MOST_TIMES);
    it->max = schema_count(p->w, p->f.all, "maxItems", -1, MOST_TIMES);
    numeral_print(it->rest, sizeof it->rest, "value");
    if (it->more && it->other) {
        rule = rule_under(p->w, "items", it->other);
        it->more = rule != RULE_NEVER;
        numeral_print(it->rest, sizeof it->rest, "s%u", (unsigned)rule);
    }
    p->never =
        (it->max >= 0 && it->max < it->min) || (!it->more && it->min > it->n);
}

/* Appends an expression for the items of an array from index i on. A comma
 * precedes each item except item 0. */
static void put_items(struct part *p, const struct items *it, int64_t i,
                      struct gbnf_text *text)
{
    int64_t min = it->min > i ? it->min - i : 0;
    int64_t max = it->max < 0 ? -1 : it->max - i;
    bool optional = i >= it->min;
    struct gbnf_text next = {0};
    uint32_t rule;

    if (max == 0 || (i >= it->n && !it->more))
        return;
    if (i >= it->n && i > 0) {
        gbnf_print(text, " (\",\" ws %s ws)", it->rest);
        put_times(text, min, max);
        return;
    }
    gbnf_put(text, optional ? " (" : " ");
    gbnf_put(text, i ? "\",\" ws " : "");
    if (i < it->n)
        gbnf_print(text, "s%u ws", (unsigned)it->rule[i]);
    else
        gbnf_print(text, "%s ws", it->rest);
    rule = p->w->sums.n_rule++;
    put_items(p, it, i + 1, &next);
    schema_rule_put(p->w, rule, &next);
    gbnf_print(text, " s%u%s", (unsigned)rule, optional ? ")?" : "");
}

/* Returns the constants that the schema of the items allows, or NULL if it
 * allows other values, too, or more than MOST_UNIQUE constants. */
static json_t *item_constants(struct part *p, const struct items *it)
{
    struct flat f = {0};
    json_t *list;

    if (!it->other || it->prefix)
        return NULL;
    schema_merge(p->w, &f, it->other, SCHEMA_MERGES);
    list = json_object_get(f.all, "enum");
    if (!list && f.types == TYPE_BOOLEAN && json_array_size(f.nots) == 0)
        list = schema_keep(p->w, json_pack("[b,b]", 0, 1));
    return json_array_size(f.choices) > 0 || json_array_size(list) == 0 ||
                   json_array_size(list) > MOST_UNIQUE
               ? NULL
               : list;
}

/* Writes the rules for an array of different items, each one of the n constants
 * in `list`. There is a rule for each set of constants that the array has so
 * far; bit i of the set is constant i. */
static void put_unique(struct part *p, const struct items *it,
                       const json_t *list)
{
    unsigned n = (unsigned)json_array_size(list), n_set = 1u << n;
    uint32_t first = p->w->sums.n_rule;

    p->w->sums.n_rule += n_set;
    for (unsigned set = 0; set < n_set; set++) {
        int64_t count = __builtin_popcount(set);
        struct gbnf_text t = {0};
        const char *before = "";

        for (unsigned i = 0; i < n; i++) {
            if (set >> i & 1 || (it->max >= 0 && count >= it->max))
                continue;
            gbnf_print(&t, "%s%s", before, set ? "\",\" ws " : "");
            put_json(p->w, &t, json_array_get(list, i));
            gbnf_print(&t, " ws s%u", (unsigned)(first + (set | 1u << i)));
            before = " | ";
        }
        /* The array may end if it has enough items. If it has too few and no
         * constant is left, an empty body is written, but no text reaches that
         * rule. */
        if (count >= it->min || t.n == 0)
            gbnf_print(&t, "%s\"\"", before);
        schema_rule_put(p->w, first + set, &t);
    }
    gbnf_print(&p->text, "\"[\" ws s%u \"]\"", (unsigned)first);
}

/* Appends an expression for arrays of which at least `least` items also fit the
 * schema `contained`. */
static void put_containing(struct part *p, const struct items *it,
                           json_t *contained, int64_t least)
{
    json_t *both =
        schema_keep(p->w, json_pack("{s:[O,O]}", "allOf", contained,
                                    it->other ? it->other : json_true()));
    uint32_t rule = rule_under(p->w, "contains", both);

    p->never = rule == RULE_NEVER;
    if (p->never)
        return;
    gbnf_put(&p->text, "\"[\" ws");
    for (int64_t i = 0; i < least; i++)
        gbnf_print(&p->text, "%s (%s ws \",\" ws)* s%u ws",
                   i ? " \",\" ws" : "", it->rest, (unsigned)rule);
    gbnf_print(&p->text, " (\",\" ws %s ws)* \"]\"", it->rest);
    if (it->min > least || it->max >= 0)
        schema_note(p->w, it->max >= 0 ? "maxItems" : "minItems",
                    "is not enforced beside contains");
}

/* Appends an expression for an array with uniqueItems or contains and returns
 * true, if these keywords can be enforced. Otherwise writes a note. */
static bool put_special(struct part *p, const struct items *it)
{
    json_t *contained = json_object_get(p->f.all, "contains"), *list;
    int64_t least;

    if (json_object_get(p->f.all, "uniqueItems") && it->max != 1 &&
        it->max != 0) {
        list = item_constants(p, it);
        if (list && !contained) {
            p->never = it->min > (int64_t)json_array_size(list);
            put_unique(p, it, list);
            return true;
        }
        schema_note(p->w, "uniqueItems",
                    "is enforced only for up to 6 constants");
    }
    least = schema_count(p->w, p->f.all, "minContains", 1, MOST_CONTAINED);
    if (json_object_get(p->f.all, "maxContains"))
        schema_note(p->w, "maxContains", "is not enforced");
    if (!contained || least == 0)
        return false;
    if (it->prefix || !it->more) {
        schema_note(p->w, "contains", "is not enforced in a tuple");
        return false;
    }
    put_containing(p, it, contained, least);
    return true;
}

static void put_array(struct part *p)
{
    struct items it = {0};

    read_items(p, &it);
    if (p->never || put_special(p, &it))
        return;
    gbnf_put(&p->text, "\"[\" ws");
    put_items(p, &it, 0, &p->text);
    gbnf_put(&p->text, " \"]\"");
}

/* ---- rules for objects --------------------------------------------------- */

/* The members of an object in the order of `properties`, with a rule for each.
 * A *tail* is a rule for everything that may follow when the members before
 * member i have been written or left out, at least one of them written. If the
 * schema limits the number of members, there is a tail for each number c of
 * members written before, 0 < c <= n_count. The last of these stands for
 * greater numbers, too. */
struct members {
    size_t n, n_count;
    uint32_t *rule; /* [n]: rule for each member's name and value */
    bool *needed;   /* [n]: the member is required */
    /* [n + 1, n_count]: rule of the tail from member i on after c members */
    uint32_t *tail;
    /* Owned: alternatives for members whose names are not in `properties`;
     * empty if there may be none. */
    struct gbnf_text other;
    /* Least and greatest number of members of the object; max is -1 if there is
     * no limit. */
    int64_t min, max;
};

/* Adds a rule for a member with the name `key` and a value of rule s<value>,
 * and returns its number. */
static uint32_t put_member(struct part *p, const char *key, uint32_t value)
{
    uint32_t rule = p->w->sums.n_rule++;
    struct gbnf_text text = {0};

    put_json(p->w, &text, schema_keep(p->w, json_string(key)));
    gbnf_print(&text, " ws \":\" ws s%u ws", (unsigned)value);
    schema_rule_put(p->w, rule, &text);
    return rule;
}

/* Appends alternatives for the end of a name, from character `at` on, such that
 * the whole name differs from keys[0 .. n). The keys are sorted, and all have
 * the same first `at` characters as the name. They contain no escapes. */
static void put_other_name(struct gbnf_text *t, const char **keys, size_t n,
                           size_t at)
{
    const char *before = "";
    bool whole = false;

    gbnf_put(t, "(");
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)keys[i][at];
        size_t k = i + 1;

        while (k < n && (unsigned char)keys[k][at] == c)
            k++;
        if (c == '\0') {
            whole = true;
        } else {
            gbnf_put(t, before);
            gbnf_put_literal(t, keys[i] + at, 1);
            gbnf_put(t, " ");
            put_other_name(t, keys + i, k - i, at + 1);
            before = " | ";
        }
        i = k;
    }
    gbnf_print(t, "%s[^\"\\\\\\x00-\\x1F", before);
    for (size_t i = 0; i < n; i++)
        if (keys[i][at] && (i == 0 || keys[i][at] != keys[i - 1][at]))
            gbnf_print(t, "\\x%02X", (unsigned char)keys[i][at]);
    gbnf_print(t, "] plain*%s)", whole ? "" : " |");
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Returns true if put_other_name can exclude the names of all properties: if
 * each has at most 32 characters, all ASCII and without escapes. */
static bool are_plain(json_t *properties)
{
    const char *key;
    bool plain = true;
    json_t *v;

    json_object_foreach (properties, key, v) {
        plain &= strlen(key) <= 32;
        for (const char *c = key; *c; c++)
            plain &= *c >= ' ' && *c < 0x7f && *c != '"' && *c != '\\';
    }
    return plain;
}

/* Appends an expression for all strings that are not names in `properties`. */
static void put_other_names(struct part *p, json_t *properties,
                            struct gbnf_text *t)
{
    size_t n = json_object_size(properties), i = 0;
    const char **keys = schema_alloc(p->w, n, sizeof(char *)), *key;
    json_t *v;

    if (!keys)
        return;
    json_object_foreach (properties, key, v)
        keys[i++] = key;
    qsort(keys, n, sizeof(char *), by_bytes);
    gbnf_put(t, "\"\\\"\" ");
    put_other_name(t, keys, n, 0);
    gbnf_put(t, " \"\\\"\"");
}

/* Returns a schema for strings that fit the schema `names` and are not names in
 * `properties`. */
static json_t *names_besides(struct part *p, json_t *properties, json_t *names)
{
    json_t *list = schema_keep(p->w, json_array()), *v;
    json_t *all = schema_keep(
        p->w, json_pack("{s:s,s:[O]}", "type", "string", "allOf", names));
    const char *key;

    json_object_foreach (properties, key, v)
        schema_add(p->w, list, json_string(key));
    if (json_array_size(list) > 0)
        schema_set(p->w, all, "not", json_pack("{s:O}", "enum", list));
    return all;
}

/* Adds an alternative to m->other: members whose names are not in `properties`
 * and fit the schema `names`, unless that is NULL, and whose values fit the
 * schema `value`. `keyword` is the one under which `value` stands. */
static void put_others(struct part *p, struct members *m, json_t *properties,
                       json_t *names, json_t *value, const char *keyword)
{
    json_t *all = names ? names_besides(p, properties, names) : NULL;
    uint32_t rule = value ? rule_under(p->w, keyword, value) : 0;
    uint32_t name = names ? rule_under(p->w, "propertyNames", all) : 0, other;
    struct gbnf_text text = {0};

    /* If the names of the properties cannot be excluded, members with other
     * names are not allowed at all, because a grammar may allow fewer documents
     * than the schema. */
    if (rule == RULE_NEVER || name == RULE_NEVER ||
        (!names && !are_plain(properties)))
        return;
    other = p->w->sums.n_rule++;
    if (names)
        gbnf_print(&text, "s%u", (unsigned)name);
    else
        put_other_names(p, properties, &text);
    gbnf_put(&text, " ws \":\" ws ");
    if (value)
        gbnf_print(&text, "s%u ws", (unsigned)rule);
    else
        gbnf_put(&text, "value ws");
    schema_rule_put(p->w, other, &text);
    gbnf_print(&m->other, "%ss%u", m->other.n ? " | " : "", (unsigned)other);
}

/* Returns a schema for the names that fit the schema `names`, unless that is
 * NULL, and match certain patterns and no others: those of `set` (bit i is
 * pattern i), or, if that is 0, pattern `only`. Appends the schemas of these
 * patterns to `schemas`. */
static json_t *names_matching(struct part *p, json_t *patterns, json_t *names,
                              unsigned set, size_t only, json_t *schemas)
{
    json_t *match = schema_keep(p->w, json_array());
    json_t *no_match = schema_keep(p->w, json_array()), *name, *schema;
    const char *pattern;
    size_t i = 0;

    schema_add(p->w, match, names ? json_incref(names) : json_true());
    json_object_foreach (patterns, pattern, schema) {
        bool is_chosen = set ? set >> i & 1 : i == only;

        schema_add(p->w, is_chosen ? match : no_match,
                   json_pack("{s:s}", "pattern", pattern));
        if (is_chosen)
            schema_add(p->w, schemas, json_incref(schema));
        i++;
    }
    name = schema_keep(p->w, json_pack("{s:O}", "allOf", match));
    if (json_array_size(no_match) > 0)
        schema_set(p->w, name, "not", json_pack("{s:O}", "anyOf", no_match));
    return name;
}

/* Adds the members whose names match certain patterns (names_matching); their
 * values fit the schemas of all of these. */
static void put_chosen(struct part *p, struct members *m, json_t *properties,
                       json_t *patterns, json_t *names, unsigned set,
                       size_t only)
{
    json_t *schemas = schema_keep(p->w, json_array());
    json_t *name = names_matching(p, patterns, names, set, only, schemas);

    put_others(p, m, properties, name,
               json_array_size(schemas) == 1
                   ? json_array_get(schemas, 0)
                   : schema_keep(p->w, json_pack("{s:O}", "allOf", schemas)),
               "patternProperties");
}

/* Adds the members that patternProperties describes: for each set of patterns,
 * those whose names match these and no others. If there are many patterns,
 * names that match several are left out: a grammar may allow fewer
 * documents. */
static void put_patterns(struct part *p, struct members *m, json_t *properties,
                         json_t *patterns, json_t *names)
{
    enum { MOST_PATTERNS = 4 };
    size_t n = json_object_size(patterns);

    for (size_t i = 0; i < n && n > MOST_PATTERNS; i++)
        put_chosen(p, m, properties, patterns, names, 0, i);
    for (unsigned set = 1; n <= MOST_PATTERNS && set < 1u << n; set++)
        put_chosen(p, m, properties, patterns, names, set, n);
}

/* Sets m->other, the members whose names are not in `properties`. If the schema
 * lacks additionalProperties, such members are allowed only if it names no
 * property at all. */
static void read_others(struct part *p, json_t *properties, struct members *m)
{
    const json_t *all = p->f.all;
    json_t *more = json_object_get(all, "additionalProperties");
    json_t *patterns = json_object_get(all, "patternProperties");
    json_t *names = json_object_get(all, "propertyNames");
    size_t n = json_object_size(patterns);

    more = more ? more : json_object_get(all, "unevaluatedProperties");
    put_patterns(p, m, properties, patterns, names);
    if (json_is_false(more) ||
        (!more && (json_object_size(properties) > 0 || n > 0)))
        return;
    if (n > 0)
        names = names_matching(p, patterns, names, 0, n, NULL);
    put_others(p, m, properties, names, json_is_boolean(more) ? NULL : more,
               "additionalProperties");
}

/* Adds the property `key` with its schema to the members. If its name matches
 * patterns of patternProperties, its value must fit their schemas, too. */
static void read_member(struct part *p, struct members *m, const char *key,
                        json_t *schema)
{
    json_t *patterns = json_object_get(p->f.all, "patternProperties"), *v;
    bool needed = requires(p->w, p->f.all, key);
    size_t before = enter(p->w, "properties");
    const char *pattern;
    uint32_t rule;

    json_object_foreach (patterns, pattern, v)
        if (schema_text_fits(
                p->w,
                schema_keep(p->w, json_pack("{s:[s]}", "pattern", pattern)),
                key, strlen(key)))
            schema =
                schema_keep(p->w, json_pack("{s:[O,O]}", "allOf", schema, v));
    rule = rule_under(p->w, key, schema);
    leave(p->w, before);
    p->never |= needed && rule == RULE_NEVER;
    if (rule == RULE_NEVER)
        return;
    m->needed[m->n] = needed;
    m->rule[m->n++] = put_member(p, key, rule);
}

/* Returns the schemas of all properties by name. Names that occur only in
 * `required`, or in the enum of propertyNames, get the schema of
 * additionalProperties. */
static json_t *all_properties(struct part *p)
{
    const json_t *all = p->f.all;
    json_t *given = json_object_get(all, "properties"), *name;
    json_t *more = json_object_get(all, "additionalProperties");
    json_t *names = json_object_get(all, "propertyNames");
    json_t *out =
        schema_keep(p->w, given ? whole_json_copy(given) : json_object());
    json_t *lists[2] = {json_object_get(all, "required"),
                        given ? NULL : json_object_get(names, "enum")};
    size_t i;

    for (int k = 0; k < 2; k++)
        json_array_foreach (lists[k], i, name) {
            const char *key = json_string_value(name);

            if (!key || json_object_get(out, key))
                continue;
            if (json_is_false(more))
                schema_note(p->w, "required",
                            "names something that additionalProperties "
                            "excludes, and is ignored there");
            else
                schema_set(p->w, out, key,
                           more ? json_incref(more) : json_true());
        }
    return out;
}

static void read_members(struct part *p, struct members *m)
{
    const json_t *all = p->f.all;
    json_t *properties = all_properties(p), *schema;
    size_t n = json_object_size(properties);
    const char *key;
    bool listed =
        !json_object_get(all, "properties") &&
        json_object_get(json_object_get(all, "propertyNames"), "enum");

    m->rule = schema_alloc(p->w, n, sizeof *m->rule);
    m->needed = schema_alloc(p->w, n, sizeof *m->needed);
    m->min = schema_count(p->w, all, "minProperties", 0, MOST_TIMES);
    m->max = schema_count(p->w, all, "maxProperties", -1, MOST_TIMES);
    if (p->w->status != PL_OK)
        return;
    json_object_foreach (properties, key, schema)
        read_member(p, m, key, schema);
    if (!listed && !p->never)
        read_others(p, properties, m);
    m->n_count = 1;
    if (m->min > 1 || m->max > 1)
        m->n_count = (size_t)(m->max > m->min ? m->max : m->min);
    if ((m->min > 0 || m->max >= 0) &&
        (m->n + 1) * (m->n_count + 1) > MOST_COUNTED) {
        schema_note(p->w, m->max >= 0 ? "maxProperties" : "minProperties",
                    "is not enforced for so many properties");
        m->n_count = 1;
        m->min = 0;
        m->max = -1;
    }
    m->tail = schema_alloc(p->w, (m->n + 1) * m->n_count, sizeof *m->tail);
}

/* Appends the body of the tail from member i on after `count` members, one or
 * more, were written; a comma precedes each member in it. m->tail has the rules
 * of the later tails, or RULE_NEVER for a tail that cannot lead to an allowed
 * number of members. */
static void put_tail(const struct members *m, size_t i, size_t count,
                     struct gbnf_text *t)
{
    bool full = m->max >= 0 && (int64_t)count >= m->max;
    bool enough = (int64_t)count >= m->min;
    size_t next = count < m->n_count ? count : m->n_count - 1;
    const uint32_t *after = m->tail + (i + (i < m->n)) * m->n_count;

    if (i < m->n) {
        if (!full && after[next] != RULE_NEVER)
            gbnf_print(t, "\",\" ws s%u s%u", (unsigned)m->rule[i],
                       (unsigned)after[next]);
        if (!m->needed[i] && after[count - 1] != RULE_NEVER)
            gbnf_print(t, "%ss%u", t->n ? " | " : "",
                       (unsigned)after[count - 1]);
        return;
    }
    if (!full && m->other.n) {
        gbnf_put(t, "\",\" ws (");
        gbnf_put(t, m->other.s);
        gbnf_print(t, ") s%u%s", (unsigned)after[next], enough ? " | " : "");
    }
    gbnf_put(t, enough ? "\"\"" : "");
}

/* Adds the rules of all tails (struct members), from the last one to the first,
 * because a tail refers to later ones. The tails after all members also refer
 * to each other. */
static void put_tails(struct part *p, struct members *m)
{
    const size_t n = m->n * m->n_count;

    for (size_t c = 0; c < m->n_count; c++)
        m->tail[n + c] = (int64_t)c + 1 >= m->min || m->other.n
                             ? p->w->sums.n_rule++
                             : RULE_NEVER;
    for (size_t k = n + m->n_count; k-- > 0;) {
        struct gbnf_text text = {0};

        put_tail(m, k / m->n_count, k % m->n_count + 1, &text);
        if (k < n)
            m->tail[k] = text.n > 0 ? p->w->sums.n_rule++ : RULE_NEVER;
        if (text.n > 0 || text.failed)
            schema_rule_put(p->w, m->tail[k], &text);
        gbnf_text_fini(&text);
    }
}

/* Appends the alternatives for the members: the first one that is written, any
 * member up to and including the first required one, and its tail. If none is
 * required, the first member may also be one with another name, or the object
 * may be empty. */
static void put_members(struct part *p, const struct members *m)
{
    bool needed = false, empty;
    const char *before = "";

    for (size_t i = 0; i < m->n && !needed; i++) {
        uint32_t tail = m->tail[(i + 1) * m->n_count];

        needed = m->needed[i];
        if (m->max == 0 || tail == RULE_NEVER)
            continue;
        gbnf_print(&p->text, "%ss%u s%u", before, (unsigned)m->rule[i],
                   (unsigned)tail);
        before = " | ";
    }
    if (!needed && m->max != 0 && m->other.n) {
        gbnf_print(&p->text, "%s(", before);
        gbnf_put(&p->text, m->other.s);
        gbnf_print(&p->text, ") s%u", (unsigned)m->tail[m->n * m->n_count]);
        before = " | ";
    }
    empty = !needed && m->min == 0;
    gbnf_put(&p->text, empty && *before ? " |" : "");
    p->never = !empty && !*before;
}

static void put_object(struct part *p)
{
    struct members m = {0};

    read_members(p, &m);
    p->never |= m.max >= 0 && m.max < m.min;
    if (m.other.failed)
        schema_no_memory(p->w);
    if (p->w->status == PL_OK && !p->never) {
        put_tails(p, &m);
        gbnf_put(&p->text, "\"{\" ws (");
        put_members(p, &m);
        gbnf_put(&p->text, ") \"}\"");
    }
    gbnf_text_fini(&m.other);
}

/* ---- types of JSON values ------------------------------------------------ */

/* Returns the types that the keywords of a schema without `type` suggest: those
 * to which its keywords apply, or all types if no keyword is for one type
 * only. */
static unsigned implied_types(const json_t *all)
{
    const char *key;
    unsigned of = 0;
    json_t *v;

    json_object_foreach ((json_t *)all, key, v)
        if (strcmp(key, "format") != 0)
            of |= (unsigned)schema_keyword_of(key) & TYPE_ALL;
    if (of)
        return of;
    return json_object_get(all, "format") ? TYPE_STRING : TYPE_ALL;
}

static void put_type(struct part *p, unsigned type)
{
    const json_t *all = p->f.all;

    if (type == TYPE_OBJECT)
        put_object(p);
    else if (type == TYPE_ARRAY)
        put_array(p);
    else if (type == TYPE_STRING)
        p->never = !schema_put_string(p->w, all, &p->text);
    else if (type == TYPE_INTEGER || type == TYPE_NUMBER)
        p->never =
            !schema_put_number(p->w, all, type == TYPE_INTEGER, &p->text);
    else
        gbnf_put(&p->text, schema_type_name(type));
}

/* Appends the body of the rule of a schema that has no alternatives (anyOf)
 * left. */
static void put_single(struct part *p)
{
    unsigned types = p->f.types;
    size_t start;
    bool any = false;

    if (json_object_get(p->f.all, "enum")) {
        put_enum(p);
        return;
    }
    if (!p->f.typed)
        types = implied_types(p->f.all);
    if (types == TYPE_ALL && json_object_size(p->f.all) == 0) {
        gbnf_put(&p->text, "value");
        return;
    }
    for (unsigned type = 1; type <= TYPE_NULL; type *= 2) {
        if (!(types & type))
            continue;
        start = p->text.n;
        gbnf_put(&p->text, any ? " | " : "");
        put_type(p, type);
        if (p->never && p->text.s)
            p->text.s[p->text.n = start] = '\0';
        any |= !p->never;
        p->never = false;
    }
    p->never = !any;
}

/* ---- alternatives: anyOf and keywords that are converted to it ----------- */

/* A position in the output: length of the output and of the path, and the
 * number of the rule that is written from there on. */
struct mark {
    size_t n, path;
    uint32_t rule;
};

/* Records that the rule was written for `schema`; NULL if for none. */
static void record(struct writer *w, uint32_t rule, const json_t *schema)
{
    if (rule < GBNF_RULES)
        w->rule[rule] = schema;
}

/* Removes the text and the rules that were written after mark m. */
static void undo(struct writer *w, struct mark m)
{
    w->out->n = m.n;
    if (w->out->s)
        w->out->s[m.n] = '\0';
    while (w->sums.n_rule > m.rule)
        record(w, --w->sums.n_rule, NULL);
    leave(w, m.path);
}

/* Returns true if `rest`, a schema from which its alternatives were removed,
 * demands nothing else. Each alternative is then a rule by itself. */
static bool is_free(const struct flat *rest)
{
    return !rest->typed && json_object_size(rest->all) == 0 &&
           json_array_size(rest->choices) == 0 &&
           json_array_size(rest->nots) == 0;
}

static uint32_t rule_of(struct writer *w, json_t *schema,
                        const struct flat *rest);

static void put_choices(struct part *p)
{
    json_t *list = json_array_get(p->f.choices, 0), *schema;
    const char *before = "";
    size_t i, n = json_array_size(list);

    json_array_remove(p->f.choices, 0);
    for (i = 0; i < json_array_size(p->f.choices); i++)
        n *= json_array_size(json_array_get(p->f.choices, i)) + 1;
    if (n > MOST_CHOICES && json_array_size(p->f.choices) > 0) {
        schema_note(p->w, "anyOf",
                    "and other alternatives have too many combinations; some "
                    "are not enforced");
        json_array_clear(p->f.choices);
    }
    json_array_foreach (list, i, schema) {
        uint32_t rule = is_free(&p->f) ? rule_at(p->w, "anyOf", i, schema)
                                       : rule_of(p->w, schema, &p->f);

        if (rule == RULE_NEVER)
            continue;
        gbnf_print(&p->text, "%ss%u", before, (unsigned)rule);
        before = " | ";
    }
    p->never = !*before;
}

/* Appends the body of the rule of the combined schema p->f. */
static void put_flat(struct part *p)
{
    schema_apply_nots(p->w, &p->f);
    p->never = p->f.never;
    if (p->never)
        return;
    if (json_array_size(p->f.choices) > 0)
        put_choices(p);
    else
        put_single(p);
}

/* ---- converting schemas -------------------------------------------------- */

/* Returns the value of $ref if the schema has no other keyword that constrains
 * values, or NULL. */
static json_t *only_ref(const json_t *schema)
{
    const char *key;
    json_t *v, *ref = json_object_get(schema, "$ref");

    json_object_foreach ((json_t *)schema, key, v)
        if (schema_keyword_of(key) != KEYWORD_NOTE && v != ref)
            return NULL;
    return ref;
}

static void put_ref(struct part *p, json_t *ref)
{
    json_t *target = schema_find_ref(p->w, ref);
    uint32_t rule = target ? rule_under(p->w, "$ref", target) : 0;

    p->never = rule == RULE_NEVER;
    if (target)
        gbnf_print(&p->text, "s%u", (unsigned)rule);
    else
        gbnf_put(&p->text, "value");
}

/* Writes a rule for values that fit `schema` and, unless it is NULL, `rest`, a
 * combined schema from which the alternative `schema` was taken. Returns its
 * number, or RULE_NEVER if no value fits. If something is not supported, writes
 * a note and a rule for any value of the same type instead. */
static uint32_t rule_of(struct writer *w, json_t *schema,
                        const struct flat *rest)
{
    const struct mark m = {w->out->n, strlen(w->path), w->sums.n_rule};
    const json_t *whole = rest ? NULL : schema;
    struct part p = {.w = w};
    json_t *ref = only_ref(whole);
    const char *type;

    if (w->status != PL_OK)
        return RULE_NEVER;
    record(w, w->sums.n_rule++, whole);
    if (++w->depth > SCHEMA_DEPTH)
        schema_refuse(w, "the schema",
                      "nests deeper than 100 levels; move inner schemas to "
                      "$defs");
    if (rest)
        p.f = schema_flat_copy(w, rest);
    if (ref) {
        put_ref(&p, ref);
    } else {
        schema_merge(w, &p.f, schema, SCHEMA_MERGES);
        put_flat(&p);
    }
    w->depth--;
    if (w->status == PL_UNSUPPORTED && !w->limit) {
        w->status = PL_OK;
        undo(w, m);
        put_note(w);
        record(w, w->sums.n_rule++, whole);
        gbnf_text_fini(&p.text);
        type = schema_type_name(
            rest ? p.f.types
                 : schema_type_named(json_object_get(schema, "type")));
        gbnf_put(&p.text, type ? type : "value");
    } else if (p.never) {
        undo(w, m);
        gbnf_text_fini(&p.text);
        return RULE_NEVER;
    }
    schema_rule_put(w, m.rule, &p.text);
    return m.rule;
}

uint32_t schema_rule(struct writer *w, json_t *schema)
{
    for (uint32_t i = 0; i < w->sums.n_rule && i < GBNF_RULES; i++)
        if (w->rule[i] == schema && json_is_object(schema))
            return i;
    return rule_of(w, schema, NULL);
}

/* Converts `schema` and all schemas in it, and returns its rule. Fails if no
 * value fits it. Frees the writer's memory. */
static uint32_t whole_rule(struct writer *w, json_t *schema)
{
    uint32_t rule;

    w->rule = schema_alloc(w, GBNF_RULES, sizeof(json_t *));
    rule = w->rule ? schema_rule(w, schema) : RULE_NEVER;
    if (rule == RULE_NEVER)
        schema_wrong(w, "the schema", "allows no document; remove it");
    json_decref(w->made);
    arena_fini(&w->memory);
    return rule;
}

/* Returns the status of the conversion, and sets the message. */
static pl_status result_of(const struct writer *w, pl_err *err)
{
    if (w->status == PL_OK || w->status == PL_NO_MEMORY)
        return w->status == PL_OK ? PL_OK : err_no_memory(err, "a grammar");
    return err_set(err, w->status, "%s", w->why);
}

pl_status schema_put_rule(struct gbnf_text *out, struct schema_sums *sums,
                          json_t *root, json_t *schema, const char *name,
                          uint32_t *rule, pl_err *err)
{
    struct writer w = {
        .out = out, .path = "#", .root = root, .name = name, .sums = *sums};

    *rule = whole_rule(&w, schema);
    *sums = w.sums;
    return result_of(&w, err);
}

pl_status schema_to_gbnf(struct gbnf_text *out, const char *json, size_t len,
                         const char *name, pl_err *err)
{
    struct writer w = {.out = out, .path = "#", .name = name};
    locale_t before = numeral_begin();
    json_error_t e = {.line = -1};

    *out = (struct gbnf_text){0};
    if (len <= GBNF_BYTES)
        w.root = wide_json_marked(json, len,
                                  JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    numeral_end(before);
    if (len > GBNF_BYTES)
        too_large(&w);
    else if (!w.root && json_error_code(&e) == json_error_out_of_memory)
        schema_no_memory(&w);
    else if (!w.root)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: invalid JSON: line %d, column %d: %s", name, e.line,
                       e.column, e.text);
    gbnf_put(out, "root ::= s0 ws\n");
    schema_put_common(out, &schema_strings);
    whole_rule(&w, w.root);
    json_decref(w.root);
    if (w.status != PL_OK)
        gbnf_text_fini(out);
    return result_of(&w, err);
}
