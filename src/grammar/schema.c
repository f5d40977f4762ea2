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
    struct flat *f;
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

/* Fails with the message "NAME: PATH: KEYWORD WHAT". Keeps the message in
 * w->why, because a failure may be turned into a note in the grammar. */
static pl_status fail(struct writer *w, pl_status s, const char *keyword,
                      const char *what)
{
    char path[ERR_SHOWN], key[ERR_SHOWN], name[ERR_SHOWN];

    numeral_print(w->why, sizeof w->why, "%s: %s: %s %s",
                  err_shown(name, w->name, strlen(w->name)),
                  err_shown(path, w->path, strlen(w->path)),
                  err_shown(key, keyword, strlen(keyword)), what);
    return err_set(w->err, s, "%s", w->why);
}

pl_status schema_refuse(struct writer *w, const char *keyword, const char *what)
{
    return fail(w, PL_UNSUPPORTED, keyword, what);
}

pl_status schema_wrong(struct writer *w, const char *keyword, const char *what)
{
    return fail(w, PL_BAD_ARGUMENT, keyword, what);
}

/* Fails because a limit of the whole grammar is reached. Such a failure is not
 * turned into a note. */
static pl_status limit(struct writer *w, const char *keyword, const char *what)
{
    w->limit = true;
    return schema_refuse(w, keyword, what);
}

/* Writes the message w->why into the grammar, as a comment that grammar_notes
 * returns. */
static void put_note(struct writer *w)
{
    if (++w->n_note > MOST_NOTES)
        return;
    gbnf_put(w->out, GBNF_NOTE);
    gbnf_put(w->out, w->n_note == MOST_NOTES ? "and more" : w->why);
    gbnf_put(w->out, "\n");
}

void schema_note(struct writer *w, const char *keyword, const char *what)
{
    pl_err *err = w->err;

    w->err = NULL;
    fail(w, PL_UNSUPPORTED, keyword, what);
    w->err = err;
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

pl_status schema_no_memory(struct writer *w)
{
    return err_no_memory(w->err, "a grammar");
}

static pl_status too_large(struct writer *w)
{
    return limit(w, "the schema",
                 "or its grammar has more than 1 MiB; make it smaller");
}

bool schema_may_go_on(const struct writer *w)
{
    return w->n_step <= MOST_STEPS;
}

pl_status schema_too_long(struct writer *w, const char *keyword)
{
    return limit(w, keyword,
                 "takes too long to process; use fewer values, required "
                 "properties and schemas");
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

pl_status schema_rule_new(struct writer *w, const json_t *schema, uint32_t *out)
{
    if (w->n_rule == GBNF_RULES)
        return limit(w, "the schema",
                     "has more than about 4,000 parts; make it smaller");
    if (w->n_rule == w->cap_rule) {
        uint32_t cap = w->cap_rule ? 2 * w->cap_rule : 64;
        const json_t **rule = realloc(w->rule, cap * sizeof(json_t *));

        if (!rule)
            return schema_no_memory(w);
        w->rule = rule;
        w->cap_rule = cap;
    }
    w->rule[w->n_rule] = schema;
    *out = w->n_rule++;
    return PL_OK;
}

/* Sets *out to the number of the rule of `schema`, which is the value of `key`
 * at the current path in the document. The path is for messages. */
static pl_status rule_under(struct writer *w, const char *key, json_t *schema,
                            uint32_t *out)
{
    size_t n = enter(w, key);
    pl_status s = schema_rule(w, schema, out);

    if (s == PL_OK)
        leave(w, n);
    return s;
}

static pl_status rule_at(struct writer *w, const char *key, size_t i,
                         json_t *schema, uint32_t *out)
{
    char s[64];

    numeral_print(s, sizeof s, "%s/%zu", key, i);
    return rule_under(w, s, schema, out);
}

/* ---- constants: const and enum ------------------------------------------- */

static int take_json(const char *s, size_t len, void *user)
{
    struct gbnf_text *t = user;

    gbnf_put_bytes(t, s, len);
    return t->failed ? -1 : 0;
}

/* Appends the JSON text of `value` to the rule body t, as a literal. */
static pl_status put_json(struct writer *w, struct gbnf_text *t,
                          const json_t *value)
{
    locale_t before = numeral_begin();
    struct gbnf_text json = {0};
    int failed = json_dump_callback(value, take_json, &json,
                                    JSON_ENCODE_ANY | JSON_COMPACT);

    numeral_end(before);
    failed |= json.failed; /* jansson does not report every failure */
    if (!failed)
        gbnf_put_literal(t, json.s, json.n);
    t->too_large |= json.too_large;
    gbnf_text_fini(&json);
    return failed ? schema_no_memory(w) : PL_OK;
}

/* Appends the constants of `enum` that fit the schema's types and its keywords
 * for strings. If none fits, appends all of them, with a note, because authors
 * of schemas write numbers as strings. */
static pl_status put_enum(struct part *p)
{
    json_t *list = json_object_get(p->f->all, "enum"), *value;
    const char *before = "";
    size_t i;

    for (int all = 0; all < 2 && !*before; all++) {
        json_array_foreach (list, i, value) {
            unsigned bit = schema_type_of(value);
            bool fits = (p->f->types & bit) ||
                        (bit == TYPE_INTEGER && p->f->types & TYPE_NUMBER);

            if (fits && json_is_string(value))
                PL_TRY(schema_text_fits(p->w, p->f->all,
                                        json_string_value(value),
                                        json_string_length(value), &fits));
            if (!fits && !all)
                continue;
            gbnf_put(&p->text, before);
            PL_TRY(put_json(p->w, &p->text, value));
            before = " | ";
        }
        if (!*before && json_array_size(list) > 0)
            schema_note(p->w, "enum",
                        "has no value that fits the other keywords, which are "
                        "ignored");
    }
    p->never = !*before;
    return PL_OK;
}

/* ---- references ($ref) --------------------------------------------------- */

/* Returns the first name in the JSON pointer at *at, unescaped and malloc'ed;
 * NULL if out of memory. Sets *at to the name after it, or to NULL after the
 * last one. */
static char *pointer_step(const char **at)
{
    const char *end = strchr(*at, '/');
    size_t n = end ? (size_t)(end - *at) : strlen(*at), k = 0;
    char *key = malloc(n + 1);

    for (size_t i = 0; i < n && key; i++) {
        char c = (*at)[i];

        if (c == '~' && i + 1 < n)
            c = (*at)[++i] == '1' ? '/' : '~';
        key[k++] = c;
    }
    if (key)
        key[k] = '\0';
    *at = end ? end + 1 : NULL;
    return key;
}

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

    w->n_step++;
    for (i = 0; keys[i] && json_is_object(v); i++) {
        const char *s = json_string_value(json_object_get(v, keys[i]));

        s = s && *s == '#' ? s + 1 : s;
        if (s && strcmp(s, name) == 0)
            return v;
    }
    if (depth == 0 || !schema_may_go_on(w))
        return NULL;
    json_array_foreach (v, i, item)
        if (!found)
            found = find_named(w, item, keys, name, depth - 1);
    json_object_foreach (v, key, item)
        if (!found)
            found = find_named(w, item, keys, name, depth - 1);
    return found;
}

static int hex_of(char c)
{
    c = ascii_lower(c);
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

/* Decodes %HH escapes in the text s, in place. */
static void decode_percent(char *s)
{
    char *to = s;

    for (; *s; s++) {
        bool code = *s == '%' && hex_of(s[1]) >= 0 && hex_of(s[2]) >= 0 &&
                    (s[1] != '0' || s[2] != '0');

        *to++ = code ? (char)(16 * hex_of(s[1]) + hex_of(s[2])) : *s;
        s += code ? 2 : 0;
    }
    *to = '\0';
}

/* Sets *out to the value in `in` at the JSON pointer `at`, which lacks its
 * first slash. Sets it to NULL if there is no such value. */
static pl_status find_pointer(struct writer *w, json_t *in, const char *at,
                              json_t **out)
{
    *out = in;
    while (at && *out) {
        char *key = pointer_step(&at);

        if (!key)
            return schema_no_memory(w);
        *out = value_under(*out, key);
        free(key);
    }
    return PL_OK;
}

pl_status schema_find_ref(struct writer *w, const json_t *ref, json_t **out)
{
    static const char *const ids[] = {"$id", "id", NULL};
    static const char *const anchors[] = {"$anchor", "$dynamicAnchor", "$id",
                                          "id", NULL};
    char *text = json_is_string(ref) ? strdup(json_string_value(ref)) : NULL;
    char *name = text ? strchr(text, '#') : NULL;
    pl_status s = PL_OK;

    *out = w->root;
    if (!json_is_string(ref))
        return schema_wrong(w, "$ref", "must be a string");
    if (!text)
        return schema_no_memory(w);
    decode_percent(text);
    name = strchr(text, '#');
    if (name)
        *name++ = '\0';
    if (*text)
        *out = find_named(w, w->root, ids, text, SCHEMA_DEPTH);
    if (!*out) {
        schema_note(w, "$ref",
                    "points outside the schema, which is not read; any value "
                    "is allowed");
        free(text);
        return PL_OK;
    }
    if (name && *name == '/')
        s = find_pointer(w, *out, name + 1, out);
    else if (name && *name)
        *out = find_named(w, *out, anchors, name, SCHEMA_DEPTH);
    if (s == PL_OK && !*out)
        s = schema_wrong(w, "$ref",
                         "points to nothing; define what it refers to");
    free(text);
    return s;
}

/* ---- alternatives of oneOf that exclude each other ----------------------- */

static const char *type_of(const json_t *v)
{
    static const char *const name[] = {
        [JSON_OBJECT] = "object", [JSON_ARRAY] = "array",
        [JSON_STRING] = "string", [JSON_INTEGER] = "number",
        [JSON_REAL] = "number",   [JSON_TRUE] = "boolean",
        [JSON_FALSE] = "boolean", [JSON_NULL] = "null",
    };

    return name[json_typeof(v)];
}

/* Returns the JSON type that all documents of a schema have, such as "object",
 * or NULL if it is not known. "number" includes integers. Follows up to `depth`
 * references. */
static const char *only_type(struct writer *w, json_t *schema, int depth)
{
    json_t *ref = json_object_get(schema, "$ref"), *to;
    json_t *constant = json_object_get(schema, "const");
    const char *type = json_string_value(json_object_get(schema, "type"));

    if (ref && depth > 0 && schema_find_ref(w, ref, &to) == PL_OK && to)
        return only_type(w, to, depth - 1);
    if (constant)
        return type_of(constant);
    return type && strcmp(type, "integer") == 0 ? "number" : type;
}

/* Returns true if schemas a and b list constants (const or enum) and have none
 * in common, so that no value fits both. */
static bool other_constants(struct writer *w, json_t *a, json_t *b)
{
    json_t *x = json_object_get(a, "enum"), *y = json_object_get(b, "enum");
    json_t *cx = json_object_get(a, "const"), *cy = json_object_get(b, "const");
    size_t n = cx ? 1 : json_array_size(x), m = cy ? 1 : json_array_size(y);

    if (n == 0 || m == 0)
        return false;
    w->n_step += schema_weight(cx ? cx : x) * schema_weight(cy ? cy : y);
    for (size_t i = 0; i < n && schema_may_go_on(w); i++)
        for (size_t k = 0; k < m; k++)
            if (json_equal(cx ? cx : json_array_get(x, i),
                           cy ? cy : json_array_get(y, k)))
                return false;
    return schema_may_go_on(w);
}

static bool requires(struct writer *w, json_t *schema, const char *key)
{
    json_t *list = json_object_get(schema, "required"), *name;
    size_t i;

    w->n_step += (int64_t)json_array_size(list);
    if (!schema_may_go_on(w))
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
    const char *x = only_type(w, a, 8), *y = only_type(w, b, 8);
    json_t *all, *member;
    const char *key;

    if (x && y && strcmp(x, y) != 0)
        return true;
    for (int i = 0; i < 8 && json_object_get(a, "$ref"); i++)
        if (schema_find_ref(w, json_object_get(a, "$ref"), &a) != PL_OK)
            return false;
    for (int i = 0; i < 8 && json_object_get(b, "$ref"); i++)
        if (schema_find_ref(w, json_object_get(b, "$ref"), &b) != PL_OK)
            return false;
    if (other_constants(w, a, b))
        return true;
    all = json_object_get(b, "properties");
    json_object_foreach (json_object_get(a, "properties"), key, member) {
        w->n_step++;
        if (x && y && strcmp(x, "object") == 0 && requires(w, a, key) &&
            requires(w, b, key) &&
            other_constants(w, member, json_object_get(all, key)))
            return true;
    }
    return false;
}

pl_status schema_check_one_of(struct writer *w, json_t *list)
{
    size_t n = json_array_size(list);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            if (are_apart(w, json_array_get(list, k), json_array_get(list, i)))
                continue;
            if (!schema_may_go_on(w))
                return schema_too_long(w, "oneOf");
            schema_note(w, "oneOf",
                        "has alternatives that may both match, which is "
                        "allowed");
            return PL_OK;
        }
    return PL_OK;
}

/* ---- counts, as minItems ------------------------------------------------- */

pl_status schema_count(struct writer *w, const json_t *all, const char *key,
                       int64_t usual, int64_t most, int64_t *out)
{
    json_t *v = json_object_get(all, key);
    double n = json_number_value(v);

    *out = usual;
    if (!v)
        return PL_OK;
    if (!json_is_number(v) || n < 0 || n != floor(n))
        return schema_wrong(w, key, "must be an integer from 0");
    if (n > (double)most) {
        char what[64];

        numeral_print(what, sizeof what, "above %lld is not enforced",
                      (long long)most);
        schema_note(w, key, what);
        return PL_OK;
    }
    *out = (int64_t)n;
    return PL_OK;
}

static void put_times(struct gbnf_text *t, int64_t min, int64_t max)
{
    gbnf_print(t, "{%lld,", (long long)min);
    if (max >= 0)
        gbnf_print(t, "%lld", (long long)max);
    gbnf_put(t, "}");
}

/* ---- rules for arrays ---------------------------------------------------- */

/* Writes the complete rule s<rule> with the body `text` to the grammar. */
pl_status schema_rule_put(struct writer *w, uint32_t rule,
                          const struct gbnf_text *text)
{
    if (text->failed)
        return schema_no_memory(w);
    gbnf_print(w->out, "s%u ::= ", (unsigned)rule);
    gbnf_put(w->out, text->n ? text->s : "\"\"");
    gbnf_put(w->out, "\n");
    if (text->too_large || w->out->too_large)
        return too_large(w);
    return w->out->failed ? schema_no_memory(w) : PL_OK;
}

/* The items of an array as a schema describes them: the first n by one schema
 * each (prefixItems), all others by one common schema. */
struct items {
    /* list of schemas for the first items; schema of all others; NULL if
     * absent */
    json_t *prefix, *other;
    /* n: number of first items with a schema each. min, max: least and greatest
     * number of items of the array; max is -1 if there is no limit. */
    int64_t n, min, max;
    bool more;                 /* further items may follow the first n */
    char rest[16];             /* name of the rule for the further items */
    uint32_t rule[MOST_ITEMS]; /* [n]: rules for the first n items */
};

static void name_rule(char out[16], uint32_t rule)
{
    numeral_print(out, 16, "s%u", (unsigned)rule);
}

/* Reads the schemas of the first items of an array. They are in prefixItems.
 * Before draft 2020-12 they were a list in `items`, and additionalItems was the
 * schema of all others. */
static pl_status read_prefix(struct part *p, struct items *it)
{
    const json_t *all = p->f->all;
    json_t *items = json_object_get(all, "items");
    uint32_t rule;

    it->prefix = json_object_get(all, "prefixItems");
    it->other =
        json_is_array(items) ? json_object_get(all, "additionalItems") : items;
    if (json_is_array(items))
        it->prefix = items;
    if (!it->other)
        it->other = json_object_get(all, "unevaluatedItems");
    it->more = !json_is_false(it->other);
    if (it->prefix && !json_is_array(it->prefix))
        return schema_wrong(p->w, "prefixItems", "must be a list of schemas");
    if (json_array_size(it->prefix) > MOST_ITEMS)
        return schema_refuse(p->w, "prefixItems", "has more than 500 schemas");
    for (size_t i = 0; i < json_array_size(it->prefix); i++) {
        PL_TRY(rule_at(p->w, "prefixItems", i, json_array_get(it->prefix, i),
                       &rule));
        /* No value fits the schema of this item, so the array has to end before
         * it. */
        if (rule == RULE_NEVER) {
            it->more = false;
            return PL_OK;
        }
        it->rule[it->n++] = rule;
    }
    return PL_OK;
}

static pl_status read_items(struct part *p, struct items *it)
{
    uint32_t rule;

    PL_TRY(read_prefix(p, it));
    PL_TRY(schema_count(p->w, p->f->all, "minItems", 0, MOST_TIMES, &it->min));
    PL_TRY(schema_count(p->w, p->f->all, "maxItems", -1, MOST_TIMES, &it->max));
    numeral_print(it->rest, sizeof it->rest, "value");
    if (it->more && it->other) {
        PL_TRY(rule_under(p->w, "items", it->other, &rule));
        it->more = rule != RULE_NEVER;
        name_rule(it->rest, rule);
    }
    p->never =
        (it->max >= 0 && it->max < it->min) || (!it->more && it->min > it->n);
    return PL_OK;
}

/* Appends an expression for the items of an array from index i on. A comma
 * precedes each item except item 0. */
static pl_status put_items(struct part *p, const struct items *it, int64_t i,
                           struct gbnf_text *text)
{
    int64_t min = it->min > i ? it->min - i : 0;
    int64_t max = it->max < 0 ? -1 : it->max - i;
    bool optional = i >= it->min;
    struct gbnf_text next = {0};
    uint32_t rule;
    pl_status s;

    if (max == 0 || (i >= it->n && !it->more))
        return PL_OK;
    if (i >= it->n && i > 0) {
        gbnf_print(text, " (\",\" ws %s ws)", it->rest);
        put_times(text, min, max);
        return PL_OK;
    }
    gbnf_put(text, optional ? " (" : " ");
    gbnf_put(text, i ? "\",\" ws " : "");
    if (i < it->n)
        gbnf_print(text, "s%u ws", (unsigned)it->rule[i]);
    else
        gbnf_print(text, "%s ws", it->rest);
    PL_TRY(schema_rule_new(p->w, NULL, &rule));
    s = put_items(p, it, i + 1, &next);
    if (s == PL_OK)
        s = schema_rule_put(p->w, rule, &next);
    gbnf_text_fini(&next);
    gbnf_print(text, " s%u%s", (unsigned)rule, optional ? ")?" : "");
    return s;
}

/* Sets *list to the constants that the schema of the items allows, or to NULL
 * if it allows other values, too, or more than MOST_UNIQUE constants. *f
 * receives the combined schema and must stay alive as long as *list. */
static pl_status item_constants(struct part *p, const struct items *it,
                                struct flat *f, json_t **list)
{
    *list = NULL;
    if (!it->other || it->prefix)
        return PL_OK;
    PL_TRY(schema_merge(p->w, f, it->other, SCHEMA_MERGES));
    *list = json_object_get(f->all, "enum");
    if (!*list && f->types == TYPE_BOOLEAN && json_array_size(f->nots) == 0)
        *list = schema_keep(p->w, json_pack("[b,b]", 0, 1));
    if (json_array_size(f->choices) > 0 || json_array_size(*list) == 0 ||
        json_array_size(*list) > MOST_UNIQUE)
        *list = NULL;
    return PL_OK;
}

/* Writes the rules for an array of different items, each one of the n constants
 * in `list`. There is a rule for each set of constants that the array has so
 * far; bit i of the set is constant i. */
static pl_status put_unique(struct part *p, const struct items *it,
                            const json_t *list)
{
    unsigned n = (unsigned)json_array_size(list), full = (1u << n) - 1;
    uint32_t first = 0, rule;
    pl_status s = PL_OK;

    for (unsigned set = 0; set <= full; set++) {
        PL_TRY(schema_rule_new(p->w, NULL, &rule));
        first = set == 0 ? rule : first;
    }
    for (unsigned set = 0; set <= full && s == PL_OK; set++) {
        int64_t count = __builtin_popcount(set);
        struct gbnf_text t = {0};
        const char *before = "";

        for (unsigned i = 0; i < n && s == PL_OK; i++) {
            if (set >> i & 1 || (it->max >= 0 && count >= it->max))
                continue;
            gbnf_print(&t, "%s%s", before, set ? "\",\" ws " : "");
            s = put_json(p->w, &t, json_array_get(list, i));
            gbnf_print(&t, " ws s%u", (unsigned)(first + (set | 1u << i)));
            before = " | ";
        }
        /* The array may end if it has enough items. If it has too few and no
         * constant is left, an empty body is written, but no text reaches that
         * rule. */
        if (count >= it->min || t.n == 0)
            gbnf_print(&t, "%s\"\"", before);
        if (s == PL_OK)
            s = schema_rule_put(p->w, first + set, &t);
        gbnf_text_fini(&t);
    }
    gbnf_print(&p->text, "\"[\" ws s%u \"]\"", (unsigned)first);
    return s;
}

/* Appends an expression for arrays of which at least `least` items also fit the
 * schema `contained`. */
static pl_status put_containing(struct part *p, const struct items *it,
                                json_t *contained, int64_t least)
{
    json_t *both =
        schema_keep(p->w, json_pack("{s:[O,O]}", "allOf", contained,
                                    it->other ? it->other : json_true()));
    uint32_t rule;

    if (!both)
        return schema_no_memory(p->w);
    PL_TRY(rule_under(p->w, "contains", both, &rule));
    if (rule == RULE_NEVER) {
        p->never = true;
        return PL_OK;
    }
    gbnf_put(&p->text, "\"[\" ws");
    for (int64_t i = 0; i < least; i++)
        gbnf_print(&p->text, "%s (%s ws \",\" ws)* s%u ws",
                   i ? " \",\" ws" : "", it->rest, (unsigned)rule);
    gbnf_print(&p->text, " (\",\" ws %s ws)* \"]\"", it->rest);
    if (it->min > least || it->max >= 0)
        schema_note(p->w, it->max >= 0 ? "maxItems" : "minItems",
                    "is not enforced beside contains");
    return PL_OK;
}

/* Appends an expression for an array with uniqueItems or contains and sets
 * *done, if these keywords can be enforced. Otherwise writes a note. */
static pl_status put_special(struct part *p, const struct items *it, bool *done)
{
    json_t *contained = json_object_get(p->f->all, "contains"), *list = NULL;
    struct flat f = {0};
    int64_t least;
    pl_status s = PL_OK;

    *done = false;
    if (json_object_get(p->f->all, "uniqueItems") && it->max != 1 &&
        it->max != 0) {
        s = item_constants(p, it, &f, &list);
        if (s == PL_OK && list && !contained) {
            p->never = it->min > (int64_t)json_array_size(list);
            s = put_unique(p, it, list);
            *done = true;
        } else if (s == PL_OK) {
            schema_note(p->w, "uniqueItems",
                        "is enforced only for up to 6 constants");
        }
        schema_flat_fini(&f);
        if (s != PL_OK || *done)
            return s;
    }
    PL_TRY(schema_count(p->w, p->f->all, "minContains", 1, MOST_CONTAINED,
                        &least));
    if (json_object_get(p->f->all, "maxContains"))
        schema_note(p->w, "maxContains", "is not enforced");
    if (!contained || least == 0)
        return PL_OK;
    if (it->prefix || !it->more) {
        schema_note(p->w, "contains", "is not enforced in a tuple");
        return PL_OK;
    }
    *done = true;
    return put_containing(p, it, contained, least);
}

static pl_status put_array(struct part *p)
{
    struct items *it = calloc(1, sizeof *it);
    bool done = false;
    pl_status s = it ? read_items(p, it) : schema_no_memory(p->w);

    if (s == PL_OK && !p->never)
        s = put_special(p, it, &done);
    if (s == PL_OK && !p->never && !done) {
        gbnf_put(&p->text, "\"[\" ws");
        s = put_items(p, it, 0, &p->text);
        gbnf_put(&p->text, " \"]\"");
    }
    free(it);
    return s;
}

/* ---- rules for objects --------------------------------------------------- */

/* The members of an object in the order of `properties`, with a rule for each.
 * A *tail* is a rule for everything that may follow when the members before
 * member i have been written or left out. If the schema limits the number of
 * members, there is a tail for each number c of members written before, c <
 * n_count. The last of these stands for greater numbers, too. */
struct members {
    size_t n, n_count;
    const char **key; /* owned, [n]: names of the members, borrowed */
    uint32_t *rule;   /* owned, [n]: rule for each member's name and value */
    bool *needed;     /* owned, [n]: the member is required */
    /* owned, [n + 1, n_count]: rule of the tail from member i on after c
     * members */
    uint32_t *tail;
    /* Owned: alternatives for members whose names are not in `properties`;
     * empty if there may be none. */
    struct gbnf_text other;
    /* Least and greatest number of members of the object; max is -1 if there is
     * no limit. */
    int64_t min, max;
};

static void members_fini(struct members *m)
{
    free(m->key);
    free(m->rule);
    free(m->needed);
    free(m->tail);
    gbnf_text_fini(&m->other);
}

/* Adds a rule for a member with the name `key` and a value of rule s<value>.
 * Sets *out to the number of the new rule. */
static pl_status put_member(struct part *p, const char *key, uint32_t value,
                            uint32_t *out)
{
    struct gbnf_text text = {0};
    json_t *name = json_string(key);
    pl_status s = name ? PL_OK : schema_no_memory(p->w);

    if (s == PL_OK)
        s = schema_rule_new(p->w, NULL, out);
    if (s == PL_OK)
        s = put_json(p->w, &text, name);
    if (s == PL_OK) {
        gbnf_print(&text, " ws \":\" ws s%u ws", (unsigned)value);
        s = schema_rule_put(p->w, *out, &text);
    }
    gbnf_text_fini(&text);
    json_decref(name);
    return s;
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
static pl_status put_other_names(struct part *p, json_t *properties,
                                 struct gbnf_text *t)
{
    size_t n = json_object_size(properties), i = 0;
    const char **keys = calloc(n + 1, sizeof(char *)), *key;
    json_t *v;

    if (!keys)
        return schema_no_memory(p->w);
    json_object_foreach (properties, key, v)
        keys[i++] = key;
    qsort(keys, n, sizeof(char *), by_bytes);
    gbnf_put(t, "\"\\\"\" ");
    put_other_name(t, keys, n, 0);
    gbnf_put(t, " \"\\\"\"");
    free(keys);
    return PL_OK;
}

/* Returns a schema for strings that fit the schema `names` and are not names in
 * `properties`. Returns NULL if out of memory. */
static json_t *names_besides(struct part *p, json_t *properties, json_t *names)
{
    json_t *all = schema_keep(
        p->w, json_pack("{s:s,s:[O]}", "type", "string", "allOf", names));
    json_t *list = json_array(), *v;
    const char *key;
    bool ok = all && list;

    json_object_foreach (properties, key, v)
        ok = ok && json_array_append_new(list, json_string(key)) == 0;
    if (ok && json_array_size(list) > 0)
        ok = json_object_set_new(all, "not",
                                 json_pack("{s:O}", "enum", list)) == 0;
    json_decref(list);
    return ok ? all : NULL;
}

/* Adds an alternative to m->other: members whose names are not in `properties`
 * and fit the schema `names`, unless that is NULL, and whose values fit the
 * schema `value`. `keyword` is the one under which `value` stands. */
static pl_status put_others(struct part *p, struct members *m,
                            json_t *properties, json_t *names, json_t *value,
                            const char *keyword)
{
    json_t *all = names ? names_besides(p, properties, names) : NULL;
    struct gbnf_text text = {0};
    uint32_t rule = 0, other, name = 0;
    pl_status s = PL_OK;

    if (names && !all)
        return schema_no_memory(p->w);
    if (value)
        s = rule_under(p->w, keyword, value, &rule);
    if (s == PL_OK && names)
        s = rule_under(p->w, "propertyNames", all, &name);
    if (s != PL_OK || rule == RULE_NEVER || name == RULE_NEVER)
        return s;
    /* Members with other names are then not allowed at all, because a grammar
     * may allow fewer documents than the schema. */
    if (!names && !are_plain(properties))
        return PL_OK;
    s = schema_rule_new(p->w, NULL, &other);
    if (s == PL_OK && names)
        gbnf_print(&text, "s%u", (unsigned)name);
    else if (s == PL_OK)
        s = put_other_names(p, properties, &text);
    gbnf_put(&text, " ws \":\" ws ");
    if (value)
        gbnf_print(&text, "s%u ws", (unsigned)rule);
    else
        gbnf_put(&text, "value ws");
    if (s == PL_OK)
        s = schema_rule_put(p->w, other, &text);
    gbnf_text_fini(&text);
    gbnf_print(&m->other, "%ss%u", m->other.n ? " | " : "", (unsigned)other);
    return m->other.failed ? schema_no_memory(p->w) : s;
}

/* Adds the members whose names match certain patterns and no others; their
 * values fit the schemas of all of these. The patterns are those of `set` (bit
 * i is pattern i), or, if that is 0, pattern `only`. */
static pl_status put_chosen(struct part *p, struct members *m,
                            json_t *properties, json_t *patterns, json_t *names,
                            unsigned set, size_t only)
{
    json_t *match = json_array(), *no_match = json_array();
    json_t *schemas = json_array(), *schema, *name, *value;
    const char *pattern;
    bool ok =
        no_match && json_array_append(match, names ? names : json_true()) == 0;
    size_t i = 0;

    json_object_foreach (patterns, pattern, schema) {
        bool is_chosen = set ? set >> i & 1 : i == only;

        ok = ok &&
             json_array_append_new(is_chosen ? match : no_match,
                                   json_pack("{s:s}", "pattern", pattern)) ==
                 0 &&
             (!is_chosen || json_array_append(schemas, schema) == 0);
        i++;
    }
    value = json_array_size(schemas) == 1
                ? json_incref(json_array_get(schemas, 0))
                : json_pack("{s:O}", "allOf", schemas);
    value = schema_keep(p->w, value);
    name = schema_keep(p->w, json_pack("{s:O}", "allOf", match));
    if (json_array_size(no_match) > 0)
        ok = ok && json_object_set_new(
                       name, "not", json_pack("{s:O}", "anyOf", no_match)) == 0;
    json_decref(match);
    json_decref(no_match);
    json_decref(schemas);
    return ok && name && value
               ? put_others(p, m, properties, name, value, "patternProperties")
               : schema_no_memory(p->w);
}

/* Adds the members that patternProperties describes: for each set of patterns,
 * those whose names match these and no others. If there are many patterns,
 * names that match several are left out: a grammar may allow fewer
 * documents. */
static pl_status put_patterns(struct part *p, struct members *m,
                              json_t *properties, json_t *patterns,
                              json_t *names)
{
    enum { MOST_PATTERNS = 4 };
    size_t n = json_object_size(patterns);

    for (size_t i = 0; i < n && n > MOST_PATTERNS; i++)
        PL_TRY(put_chosen(p, m, properties, patterns, names, 0, i));
    for (unsigned set = 1; n <= MOST_PATTERNS && set < 1u << n; set++)
        PL_TRY(put_chosen(p, m, properties, patterns, names, set, n));
    return PL_OK;
}

/* Sets m->other, the members whose names are not in `properties`. If the schema
 * lacks additionalProperties, such members are allowed only if it names no
 * property at all. */
static pl_status read_others(struct part *p, json_t *properties,
                             struct members *m)
{
    const json_t *all = p->f->all;
    json_t *more = json_object_get(all, "additionalProperties");
    json_t *patterns = json_object_get(all, "patternProperties");
    json_t *names = json_object_get(all, "propertyNames");
    json_t *except = NULL;
    const char *pattern;
    json_t *v;

    more = more ? more : json_object_get(all, "unevaluatedProperties");
    if (patterns)
        PL_TRY(put_patterns(p, m, properties, patterns, names));
    if (json_is_false(more) || (!more && (json_object_size(properties) > 0 ||
                                          json_object_size(patterns) > 0)))
        return PL_OK;
    if (json_object_size(patterns) > 0) {
        except = json_array();
        json_object_foreach (patterns, pattern, v)
            if (json_array_append_new(
                    except, json_pack("{s:s}", "pattern", pattern)) != 0) {
                json_decref(except);
                return schema_no_memory(p->w);
            }
        names = schema_keep(p->w, json_pack("{s:[O],s:{s:o}}", "allOf",
                                            names ? names : json_true(), "not",
                                            "anyOf", except));
        if (!names)
            return schema_no_memory(p->w);
    }
    return put_others(p, m, properties, names,
                      json_is_boolean(more) ? NULL : more,
                      "additionalProperties");
}

/* Adds the property `key` with its schema to the members. If its name matches
 * patterns of patternProperties, its value must fit their schemas, too. */
static pl_status read_member(struct part *p, struct members *m, const char *key,
                             json_t *schema)
{
    json_t *patterns = json_object_get(p->f->all, "patternProperties"), *v;
    size_t i = m->n, before;
    const char *pattern;
    uint32_t rule;

    m->needed[i] = requires(p->w, p->f->all, key);
    if (!schema_may_go_on(p->w))
        return schema_too_long(p->w, "required");
    before = enter(p->w, "properties");
    json_object_foreach (patterns, pattern, v) {
        json_t *of = json_pack("{s:[s]}", "pattern", pattern);
        bool fits = false;
        pl_status s = of ? schema_text_fits(p->w, of, key, strlen(key), &fits)
                         : schema_no_memory(p->w);

        json_decref(of);
        PL_TRY(s);
        if (fits)
            schema =
                schema_keep(p->w, json_pack("{s:[O,O]}", "allOf", schema, v));
        if (!schema)
            return schema_no_memory(p->w);
    }
    PL_TRY(rule_under(p->w, key, schema, &rule));
    leave(p->w, before);
    if (rule == RULE_NEVER) {
        p->never |= m->needed[i];
        return PL_OK;
    }
    m->key[i] = key;
    m->n++;
    return put_member(p, key, rule, &m->rule[i]);
}

/* Returns the schemas of all properties by name. Names that occur only in
 * `required`, or in the enum of propertyNames, get the schema of
 * additionalProperties. Returns NULL if out of memory. */
static json_t *all_properties(struct part *p)
{
    const json_t *all = p->f->all;
    json_t *given = json_object_get(all, "properties"), *name;
    json_t *more = json_object_get(all, "additionalProperties");
    json_t *names = json_object_get(all, "propertyNames");
    json_t *out = given ? whole_json_copy(given) : json_object();
    json_t *lists[2] = {json_object_get(all, "required"),
                        given ? NULL : json_object_get(names, "enum")};
    size_t i;

    for (int k = 0; k < 2 && out; k++)
        json_array_foreach (lists[k], i, name) {
            const char *key = json_string_value(name);

            if (!key || json_object_get(out, key))
                continue;
            if (json_is_false(more))
                schema_note(p->w, "required",
                            "names something that additionalProperties "
                            "excludes, and is ignored there");
            else if (json_object_set(out, key, more ? more : json_true()) !=
                     0) {
                json_decref(out);
                return NULL;
            }
        }
    return schema_keep(p->w, out);
}

static pl_status read_members(struct part *p, struct members *m)
{
    const json_t *all = p->f->all;
    json_t *properties = all_properties(p), *schema;
    size_t n = json_object_size(properties);
    const char *key;
    bool listed =
        !json_object_get(all, "properties") &&
        json_object_get(json_object_get(all, "propertyNames"), "enum");

    m->key = calloc(n + 1, sizeof(char *));
    m->rule = calloc(n + 1, sizeof *m->rule);
    m->needed = calloc(n + 1, sizeof *m->needed);
    if (!properties || !m->key || !m->rule || !m->needed)
        return schema_no_memory(p->w);
    PL_TRY(schema_count(p->w, all, "minProperties", 0, MOST_TIMES, &m->min));
    PL_TRY(schema_count(p->w, all, "maxProperties", -1, MOST_TIMES, &m->max));
    json_object_foreach (properties, key, schema)
        PL_TRY(read_member(p, m, key, schema));
    if (!listed && !p->never)
        PL_TRY(read_others(p, properties, m));
    m->n_count = 1;
    if (m->min > 0 || m->max >= 0)
        m->n_count = (size_t)(m->max > m->min ? m->max : m->min) + 1;
    if ((m->n + 1) * m->n_count > MOST_COUNTED) {
        schema_note(p->w, m->max >= 0 ? "maxProperties" : "minProperties",
                    "is not enforced for so many properties");
        m->n_count = 1;
        m->min = 0;
        m->max = -1;
    }
    return PL_OK;
}

/* Adds the rules of all tails if the number of members is not limited. A tail
 * is the rest of an object from a certain member on (struct members); a comma
 * precedes each member in it. */
static pl_status put_tails(struct part *p, struct members *m)
{
    for (size_t i = m->n + 1; i-- > 0;) {
        struct gbnf_text text = {0};
        pl_status s = schema_rule_new(p->w, NULL, &m->tail[i]);

        if (i == m->n && m->other.n)
            gbnf_put(&text, "(\",\" ws (");
        if (i == m->n && m->other.n)
            gbnf_put(&text, m->other.s);
        if (i == m->n && m->other.n)
            gbnf_put(&text, "))*");
        if (i < m->n)
            gbnf_print(&text, "(\",\" ws s%u)%s s%u", (unsigned)m->rule[i],
                       m->needed[i] ? "" : "?", (unsigned)m->tail[i + 1]);
        if (s == PL_OK)
            s = schema_rule_put(p->w, m->tail[i], &text);
        gbnf_text_fini(&text);
        PL_TRY(s);
    }
    return PL_OK;
}

/* Appends the alternatives for the first member that is written: any member up
 * to and including the first required one. If none is required, the first
 * member may also be one with another name, or the object may be empty. */
static void put_first(struct part *p, const struct members *m)
{
    const char *before = "";

    for (size_t i = 0; i < m->n; i++) {
        gbnf_print(&p->text, "%ss%u s%u", before, (unsigned)m->rule[i],
                   (unsigned)m->tail[i + 1]);
        before = " | ";
        if (m->needed[i])
            return;
    }
    if (m->other.n) {
        gbnf_print(&p->text, "%s(", before);
        gbnf_put(&p->text, m->other.s);
        gbnf_print(&p->text, ") s%u |", (unsigned)m->tail[m->n]);
    } else {
        gbnf_put(&p->text, m->n ? " |" : "");
    }
}

/* Appends the body of the tail from member i on after `count` members were
 * written. m->tail has the rules of the later tails, or RULE_NEVER for a tail
 * that cannot lead to an allowed number of members. */
static void put_counted(const struct members *m, size_t i, size_t count,
                        struct gbnf_text *t)
{
    bool full = m->max >= 0 && (int64_t)count >= m->max;
    bool enough = (int64_t)count >= m->min;
    size_t next = count + 1 < m->n_count ? count + 1 : m->n_count - 1;
    const uint32_t *after = m->tail + (i + (i < m->n)) * m->n_count;
    const char *comma = count > 0 ? "\",\" ws " : "";

    if (i == m->n) {
        if (!full && m->other.n) {
            gbnf_print(t, "%s(", comma);
            gbnf_put(t, m->other.s);
            gbnf_print(t, ") s%u%s", (unsigned)after[next],
                       enough ? " | " : "");
        }
        gbnf_put(t, enough ? "\"\"" : "");
        return;
    }
    if (!full && after[next] != RULE_NEVER)
        gbnf_print(t, "%ss%u s%u", comma, (unsigned)m->rule[i],
                   (unsigned)after[next]);
    if (!m->needed[i] && after[count] != RULE_NEVER)
        gbnf_print(t, "%ss%u", t->n ? " | " : "", (unsigned)after[count]);
}

/* Adds the rules of all tails if the schema limits the number of members. A
 * tail is the rest of an object from a certain member on (struct members). Goes
 * from the last tail to the first, because a tail refers to later ones. */
static pl_status put_counted_tails(struct part *p, struct members *m)
{
    pl_status s = PL_OK;

    for (size_t c = 0; c < m->n_count; c++) {
        m->tail[m->n * m->n_count + c] = RULE_NEVER;
        if ((int64_t)c >= m->min || m->other.n)
            PL_TRY(
                schema_rule_new(p->w, NULL, &m->tail[m->n * m->n_count + c]));
    }
    for (size_t k = (m->n + 1) * m->n_count; k-- > 0 && s == PL_OK;) {
        struct gbnf_text text = {0};
        size_t i = k / m->n_count;

        if (i < m->n)
            m->tail[k] = RULE_NEVER;
        put_counted(m, i, k % m->n_count, &text);
        if (text.failed)
            s = schema_no_memory(p->w);
        if (s == PL_OK && text.n > 0 && i < m->n)
            s = schema_rule_new(p->w, NULL, &m->tail[k]);
        if (text.n > 0 && s == PL_OK)
            s = schema_rule_put(p->w, m->tail[k], &text);
        gbnf_text_fini(&text);
    }
    return s;
}

static pl_status put_object(struct part *p)
{
    struct members m = {0};
    pl_status s = read_members(p, &m);
    bool counted = m.n_count > 1 || m.max == 0;

    p->never |= m.max >= 0 && m.max < m.min;
    if (s == PL_OK && !p->never) {
        m.tail = calloc((m.n + 1) * m.n_count, sizeof *m.tail);
        s = !m.tail   ? schema_no_memory(p->w)
            : counted ? put_counted_tails(p, &m)
                      : put_tails(p, &m);
    }
    if (s == PL_OK && !p->never && counted) {
        p->never = m.tail[0] == RULE_NEVER;
        gbnf_print(&p->text, "\"{\" ws s%u \"}\"", (unsigned)m.tail[0]);
    } else if (s == PL_OK && !p->never) {
        gbnf_put(&p->text, "\"{\" ws (");
        put_first(p, &m);
        gbnf_put(&p->text, ") \"}\"");
    }
    members_fini(&m);
    return s;
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
        of |= strcmp(key, "format") == 0 || key[0] == '\001'
                  ? 0u
                  : (unsigned)schema_keyword_of(key);
    if (!(of &
          (KEYWORD_OBJECT | KEYWORD_ARRAY | KEYWORD_STRING | KEYWORD_NUMBER)))
        return json_object_get(all, "format") ? TYPE_STRING : TYPE_ALL;
    return (of & KEYWORD_OBJECT ? TYPE_OBJECT : 0u) |
           (of & KEYWORD_ARRAY ? TYPE_ARRAY : 0u) |
           (of & KEYWORD_STRING ? TYPE_STRING : 0u) |
           (of & KEYWORD_NUMBER ? TYPE_NUMBER : 0u);
}

static pl_status put_type(struct part *p, unsigned type)
{
    const json_t *all = p->f->all;

    switch (type) {
    case TYPE_OBJECT:
        return put_object(p);
    case TYPE_ARRAY:
        return put_array(p);
    case TYPE_STRING:
        return schema_put_string(p->w, all, &p->text, &p->never);
    case TYPE_INTEGER:
    case TYPE_NUMBER:
        return schema_put_number(p->w, all, type == TYPE_INTEGER, &p->text,
                                 &p->never);
    case TYPE_BOOLEAN:
        gbnf_put(&p->text, "boolean");
        return PL_OK;
    default:
        gbnf_put(&p->text, "null");
        return PL_OK;
    }
}

/* Appends the body of the rule of a schema that has no alternatives (anyOf)
 * left. */
static pl_status put_single(struct part *p)
{
    unsigned types = p->f->types;
    size_t start;
    bool any = false;

    if (json_object_get(p->f->all, "enum"))
        return put_enum(p);
    if (!p->f->typed)
        types = implied_types(p->f->all);
    if (types == TYPE_ALL && json_object_size(p->f->all) == 0) {
        gbnf_put(&p->text, "value");
        return PL_OK;
    }
    for (unsigned type = 1; type <= TYPE_NULL; type *= 2) {
        if (!(types & type))
            continue;
        start = p->text.n;
        gbnf_put(&p->text, any ? " | " : "");
        PL_TRY(put_type(p, type));
        if (p->never && p->text.s)
            p->text.s[p->text.n = start] = '\0';
        any |= !p->never;
        p->never = false;
    }
    p->never = !any;
    return PL_OK;
}

/* ---- alternatives: anyOf and keywords that are converted to it ----------- */

static pl_status put_flat(struct part *p);

/* A position in the output, to which undo() returns if a schema cannot be
 * converted: lengths of the output and of the path, number of rules,
 * nesting. */
struct mark {
    size_t n, path;
    uint32_t rule;
    int depth;
};

static struct mark mark_here(struct writer *w)
{
    return (struct mark){w->out->n, strlen(w->path), w->n_rule, w->depth};
}

/* Removes the text and the rules that were written after mark m. */
static void undo(struct writer *w, struct mark m)
{
    w->out->n = m.n;
    if (w->out->s)
        w->out->s[m.n] = '\0';
    w->n_rule = m.rule;
    w->depth = m.depth;
    leave(w, m.path);
}

/* Writes the rule that was added at mark m and sets *out to it. `s` is the
 * status of its conversion. If the conversion failed because something is not
 * supported, writes a note and a rule for any value of `types` instead. If no
 * value fits, removes the rule and sets *out to RULE_NEVER. Frees p->text. */
static pl_status end_rule(struct part *p, struct mark m, pl_status s,
                          unsigned types, const json_t *schema, uint32_t *out)
{
    const struct {
        unsigned type;
        const char *rule;
    } usual[] = {{TYPE_OBJECT, "object"}, {TYPE_ARRAY, "array"},
                 {TYPE_STRING, "string"}, {TYPE_INTEGER, "integer"},
                 {TYPE_NUMBER, "number"}, {TYPE_BOOLEAN, "boolean"},
                 {TYPE_NULL, "null"},     {types, "value"}};
    struct writer *w = p->w;
    size_t i = 0;

    *out = m.rule;
    if (s == PL_UNSUPPORTED && !w->limit) {
        undo(w, m);
        put_note(w);
        s = schema_rule_new(w, schema, out);
        gbnf_text_fini(&p->text);
        while (usual[i].type != types)
            i++;
        gbnf_put(&p->text, usual[i].rule);
        p->never = false;
    } else if (s == PL_OK && p->never) {
        undo(w, m);
        *out = RULE_NEVER;
    }
    if (s == PL_OK && !p->never)
        s = schema_rule_put(w, *out, &p->text);
    gbnf_text_fini(&p->text);
    return s;
}

static pl_status begin_rule(struct writer *w, const json_t *schema)
{
    uint32_t rule;

    PL_TRY(schema_rule_new(w, schema, &rule));
    if (w->depth == SCHEMA_DEPTH)
        return schema_refuse(w, "the schema",
                             "nests deeper than 100 levels; move inner schemas "
                             "to $defs");
    w->depth++;
    return PL_OK;
}

/* Adds a rule for values that fit both `rest`, a combined schema, and `choice`,
 * one of the alternatives taken from it. Sets *out to the rule. */
static pl_status put_choice(struct part *p, const struct flat *rest,
                            json_t *choice, uint32_t *out)
{
    struct writer *w = p->w;
    struct flat f = {0};
    struct part inner = {.w = w, .f = &f};
    struct mark m = mark_here(w);
    unsigned types = 0;
    pl_status s = begin_rule(w, NULL);

    if (s == PL_OK && !schema_flat_copy(&f, rest))
        s = schema_no_memory(w);
    if (s == PL_OK)
        s = schema_merge(w, &f, choice, SCHEMA_MERGES);
    types = f.types;
    if (s == PL_OK)
        s = put_flat(&inner);
    w->depth = m.depth;
    s = end_rule(&inner, m, s, types, NULL, out);
    schema_flat_fini(&f);
    return s;
}

/* Returns true if `rest`, a schema from which its alternatives were removed,
 * demands nothing else. Each alternative is then a rule by itself. */
static bool is_free(const struct flat *rest)
{
    return !rest->typed && json_object_size(rest->all) == 0 &&
           json_array_size(rest->choices) == 0 &&
           json_array_size(rest->nots) == 0;
}

static pl_status put_choices(struct part *p)
{
    json_t *list = json_incref(json_array_get(p->f->choices, 0)), *schema;
    const char *before = "";
    size_t i, n = json_array_size(list);
    pl_status s = PL_OK;

    json_array_remove(p->f->choices, 0);
    for (i = 0; i < json_array_size(p->f->choices); i++)
        n *= json_array_size(json_array_get(p->f->choices, i)) + 1;
    if (n > MOST_CHOICES && json_array_size(p->f->choices) > 0) {
        schema_note(p->w, "anyOf",
                    "and other alternatives have too many combinations; some "
                    "are not enforced");
        json_array_clear(p->f->choices);
    }
    json_array_foreach (list, i, schema) {
        uint32_t rule = RULE_NEVER;

        if (s == PL_OK && is_free(p->f))
            s = rule_at(p->w, "anyOf", i, schema, &rule);
        else if (s == PL_OK)
            s = put_choice(p, p->f, schema, &rule);
        if (s != PL_OK || rule == RULE_NEVER)
            continue;
        gbnf_print(&p->text, "%ss%u", before, (unsigned)rule);
        before = " | ";
    }
    p->never = !*before;
    json_decref(list);
    return s;
}

/* Appends the body of the rule of the combined schema p->f. Keeps the schema's
 * JSON values until the end of the conversion: schema_rule finds existing rules
 * by the addresses of schemas, so no later schema may get the same address. */
static pl_status put_flat(struct part *p)
{
    struct flat *f = p->f;

    PL_TRY(schema_apply_nots(p->w, f));
    if (!schema_keep(p->w, json_incref(f->all)) ||
        !schema_keep(p->w, whole_json_copy(f->choices)))
        return schema_no_memory(p->w);
    p->never = f->never;
    if (p->never)
        return PL_OK;
    return json_array_size(f->choices) > 0 ? put_choices(p) : put_single(p);
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

static pl_status put_schema(struct part *p, json_t *schema)
{
    json_t *ref = only_ref(schema), *target;
    uint32_t rule;

    if (!ref) {
        PL_TRY(schema_merge(p->w, p->f, schema, SCHEMA_MERGES));
        return put_flat(p);
    }
    PL_TRY(schema_find_ref(p->w, ref, &target));
    if (!target) {
        gbnf_put(&p->text, "value");
        return PL_OK;
    }
    PL_TRY(rule_under(p->w, "$ref", target, &rule));
    p->never = rule == RULE_NEVER;
    gbnf_print(&p->text, "s%u", (unsigned)rule);
    return PL_OK;
}

pl_status schema_rule(struct writer *w, json_t *schema, uint32_t *out)
{
    struct flat f = {0};
    struct part p = {.w = w, .f = &f};
    struct mark m = mark_here(w);
    unsigned types;
    pl_status s;

    for (uint32_t i = 0; i < w->n_rule; i++)
        if (w->rule[i] == schema && json_is_object(schema)) {
            *out = i;
            return PL_OK;
        }
    s = begin_rule(w, schema);
    if (s == PL_OK)
        s = put_schema(&p, schema);
    w->depth = m.depth;
    types = schema_type_named(json_object_get(schema, "type"));
    s = end_rule(&p, m, s, types, schema, out);
    schema_flat_fini(&f);
    return s;
}

/* Converts `schema` and all schemas in it, and sets *rule to the rule of
 * `schema`. Fails if no value fits it. */
static pl_status whole_rule(struct writer *w, json_t *schema, uint32_t *rule)
{
    PL_TRY(schema_rule(w, schema, rule));
    return *rule != RULE_NEVER
               ? PL_OK
               : schema_wrong(w, "the schema", "allows no document; remove it");
}

static void writer_fini(struct writer *w)
{
    json_decref(w->made);
    free(w->rule);
}

static pl_status write_all(struct writer *w)
{
    uint32_t rule;

    gbnf_put(w->out, "root ::= s0 ws\n");
    schema_put_common(w->out, &schema_strings);
    return whole_rule(w, w->root, &rule);
}

pl_status schema_put_rule(struct gbnf_text *out, struct schema_sums *sums,
                          json_t *root, json_t *schema, const char *name,
                          uint32_t *rule, pl_err *err)
{
    struct writer w = {.out = out,
                       .path = "#",
                       .root = root,
                       .name = name,
                       .err = err,
                       .n_step = sums->n_step,
                       .n_copy = sums->n_copy,
                       .n_note = sums->n_note};
    uint32_t none;
    pl_status s = PL_OK;

    /* Numbers the rules that were added for other schemas before, so that new
     * rules get higher numbers. No schema is recorded for them. */
    while (w.n_rule < sums->n_rule && s == PL_OK)
        s = schema_rule_new(&w, NULL, &none);
    if (s == PL_OK)
        s = whole_rule(&w, schema, rule);
    *sums = (struct schema_sums){w.n_rule, w.n_note, w.n_step, w.n_copy};
    writer_fini(&w);
    return s;
}

pl_status schema_to_gbnf(struct gbnf_text *out, const char *json, size_t len,
                         const char *name, pl_err *err)
{
    struct writer w = {.out = out, .path = "#", .name = name, .err = err};
    locale_t before = numeral_begin();
    json_error_t e = {.line = -1};
    pl_status s;

    *out = (struct gbnf_text){0};
    w.root = len > GBNF_BYTES
                 ? NULL
                 : wide_json(json, len,
                             JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    numeral_end(before);
    if (len > GBNF_BYTES)
        return too_large(&w);
    if (!w.root && json_error_code(&e) == json_error_out_of_memory)
        return schema_no_memory(&w);
    if (!w.root)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: invalid JSON: line %d, column %d: %s", name, e.line,
                       e.column, e.text);
    s = write_all(&w);
    json_decref(w.root);
    writer_fini(&w);
    if (s != PL_OK)
        gbnf_text_fini(out);
    return s;
}
