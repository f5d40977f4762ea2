/* Converts a schema, and each schema in it, to a rule; see schema.h. */
#include "grammar/schema.h"

#include "base/err.h"
#include "base/numeral.h"
#include "grammar/gbnf.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_DEPTH = 100,
    PATH_BYTES = 512,
    MOST_ITEMS = 500, /* maximum number of prefixItems */
    /* Maximum number of steps of searches and comparisons. */
    MOST_STEPS = 1 << 22,
};

enum keyword_of {
    KEYWORD_NONE,
    KEYWORD_NOTE = 1,
    KEYWORD_ANY = 2,
    KEYWORD_OBJECT = 4,
    KEYWORD_ARRAY = 8,
    KEYWORD_STRING = 16,
    KEYWORD_NUMBER = 32,
};

struct writer {
    struct gbnf_text *out;
    json_t *root;
    /* Owned, [n_rule]: the schemas of rules s0, s1, ...; NULL for a rule of a
     * part of a schema. */
    const json_t **rule;
    uint32_t n_rule, cap_rule;
    int depth;
    int64_t n_step;
    char path[PATH_BYTES];
    const char *name;
    pl_err *err;
};

/* A schema, and the text of its rule while it is being written. */
struct part {
    struct writer *w;
    json_t *schema;
    struct gbnf_text text; /* owned */
};

/* Rules that all grammars have. The other rules of strings are in
 * schema_put_common; "plain" is a character that needs no escape. */
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

/* ---- keywords ------------------------------------------------------------ */

static enum keyword_of kind_of(const char *key)
{
    static const struct {
        const char *name;
        enum keyword_of of;
    } known[] = {
#define KEYWORD(name, of) {name, of},
#include "grammar/schema_keywords.def"
#undef KEYWORD
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, key) == 0)
            return known[i].of;
    return KEYWORD_NONE;
}

/* ---- messages and paths -------------------------------------------------- */

static pl_status fail(struct writer *w, pl_status s, const char *keyword,
                      const char *what)
{
    char path[ERR_SHOWN], key[ERR_SHOWN];

    return err_set(w->err, s, "%s: %s: %s %s", w->name,
                   err_shown(path, w->path, strlen(w->path)),
                   err_shown(key, keyword, strlen(keyword)), what);
}

/* Fails because something is not supported or too large. */
static pl_status refuse(struct writer *w, const char *keyword, const char *what)
{
    return fail(w, PL_UNSUPPORTED, keyword, what);
}

/* Fails because the schema is wrong. */
static pl_status wrong(struct writer *w, const char *keyword, const char *what)
{
    return fail(w, PL_BAD_ARGUMENT, keyword, what);
}

static size_t enter(struct writer *w, const char *key)
{
    size_t n = strlen(w->path), len = strlen(key);

    if (n + len + 2 <= PATH_BYTES) {
        w->path[n] = '/';
        memcpy(w->path + n + 1, key, len + 1);
    }
    return n;
}

static void leave(struct writer *w, size_t n)
{
    w->path[n] = '\0';
}

static pl_status no_memory(struct writer *w)
{
    return err_no_memory(w->err, "a grammar");
}

static pl_status too_large(struct writer *w)
{
    return refuse(w, "the schema",
                  "or its grammar has more than 1 MiB; make it smaller");
}

/* Returns true while the limit of steps is not exceeded. Converting a schema
 * may cost far more than its size suggests, so searches and comparisons count
 * steps and continue only while this is true. */
static bool may_go_on(const struct writer *w)
{
    return w->n_step <= MOST_STEPS;
}

static pl_status too_long(struct writer *w, const char *keyword)
{
    return refuse(w, keyword,
                  "takes too long to process; use fewer values, required "
                  "properties and schemas");
}

/* Returns the cost, in steps, of comparing a value with another. */
static int64_t weight_of(json_t *v)
{
    int64_t n = 1 + (int64_t)json_string_length(v) / 16;
    const char *key;
    json_t *item;
    size_t i;

    json_array_foreach (v, i, item)
        n += weight_of(item);
    json_object_foreach (v, key, item)
        n += weight_of(item);
    return n;
}

/* ---- rules --------------------------------------------------------------- */

static pl_status rule_new(struct writer *w, const json_t *schema, uint32_t *out)
{
    if (w->n_rule == GBNF_RULES)
        return refuse(w, "the schema",
                      "has more than about 4,000 parts; make it smaller");
    if (w->n_rule == w->cap_rule) {
        uint32_t cap = w->cap_rule ? 2 * w->cap_rule : 64;
        const json_t **rule = realloc(w->rule, cap * sizeof(json_t *));

        if (!rule)
            return no_memory(w);
        w->rule = rule;
        w->cap_rule = cap;
    }
    w->rule[w->n_rule] = schema;
    *out = w->n_rule++;
    return PL_OK;
}

static pl_status schema_rule(struct writer *w, json_t *schema, uint32_t *out);

/* Sets *out to the rule of `schema`, which is under `key` of the current
 * path. */
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

/* ---- constants ----------------------------------------------------------- */

static int take_json(const char *s, size_t len, void *user)
{
    struct gbnf_text *t = user;

    gbnf_put_bytes(t, s, len);
    return t->failed ? -1 : 0;
}

/* Appends the value's JSON text to the rule as a literal. */
static pl_status put_json(struct writer *w, struct gbnf_text *t,
                          const json_t *value)
{
    locale_t before = numeral_begin();
    struct gbnf_text json = {0};
    int failed = json_dump_callback(value, take_json, &json,
                                    JSON_ENCODE_ANY | JSON_COMPACT);

    numeral_end(before);
    if (!failed)
        gbnf_put_literal(t, json.s, json.n);
    t->too_large |= json.too_large;
    gbnf_text_fini(&json);
    return failed ? no_memory(w) : PL_OK;
}

static pl_status put_enum(struct part *p, json_t *list)
{
    json_t *value;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0)
        return wrong(p->w, "enum", "must be a list of one value or more");
    json_array_foreach (list, i, value) {
        gbnf_put(&p->text, i ? " | " : "");
        PL_TRY(put_json(p->w, &p->text, value));
    }
    return PL_OK;
}

/* ---- references ---------------------------------------------------------- */

/* Returns the next name of a JSON pointer, unescaped, malloc'ed, or NULL if out
 * of memory. Advances *at; NULL after the last name. */
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

static pl_status find_ref(struct writer *w, const json_t *ref, json_t **out)
{
    const char *at = json_string_value(ref);

    *out = w->root;
    if (!at || at[0] != '#' || (at[1] && at[1] != '/') || strchr(at, '%'))
        return refuse(w, "$ref",
                      "is supported only as \"#\" or a pointer \"#/...\" into "
                      "the schema");
    at = at[1] ? at + 2 : NULL;
    while (at && *out) {
        char *key = pointer_step(&at);

        if (!key)
            return no_memory(w);
        *out = value_under(*out, key);
        free(key);
    }
    if (!*out)
        return wrong(w, "$ref", "points to nothing; define what it refers to");
    return PL_OK;
}

static pl_status put_ref(struct part *p, json_t *ref)
{
    json_t *target;
    uint32_t rule;

    PL_TRY(find_ref(p->w, ref, &target));
    PL_TRY(rule_under(p->w, "$ref", target, &rule));
    gbnf_print(&p->text, "s%u", (unsigned)rule);
    return PL_OK;
}

/* ---- alternatives -------------------------------------------------------- */

static pl_status put_any_of(struct part *p, const char *key, json_t *list)
{
    json_t *schema;
    uint32_t rule;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0)
        return wrong(p->w, key, "must be a list of one schema or more");
    json_array_foreach (list, i, schema) {
        PL_TRY(rule_at(p->w, key, i, schema, &rule));
        gbnf_print(&p->text, "%ss%u", i ? " | " : "", (unsigned)rule);
    }
    return PL_OK;
}

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

/* Returns the type that all documents of a schema have, or NULL if that is not
 * known. Integers are "number". Follows at most `depth` references. */
static const char *only_type(struct writer *w, json_t *schema, int depth)
{
    json_t *ref = json_object_get(schema, "$ref"), *to;
    json_t *constant = json_object_get(schema, "const");
    const char *type = json_string_value(json_object_get(schema, "type"));

    if (ref && depth > 0 && find_ref(w, ref, &to) == PL_OK)
        return only_type(w, to, depth - 1);
    if (constant)
        return type_of(constant);
    return type && strcmp(type, "integer") == 0 ? "number" : type;
}

/* Returns true if the keywords const and enum show that no value fits both
 * schemas a and b. */
static bool other_constants(struct writer *w, json_t *a, json_t *b)
{
    json_t *x = json_object_get(a, "enum"), *y = json_object_get(b, "enum");
    json_t *cx = json_object_get(a, "const"), *cy = json_object_get(b, "const");
    size_t n = cx ? 1 : json_array_size(x), m = cy ? 1 : json_array_size(y);

    if (n == 0 || m == 0)
        return false;
    w->n_step += weight_of(cx ? cx : x) * weight_of(cy ? cy : y);
    for (size_t i = 0; i < n && may_go_on(w); i++)
        for (size_t k = 0; k < m; k++)
            if (json_equal(cx ? cx : json_array_get(x, i),
                           cy ? cy : json_array_get(y, k)))
                return false;
    return may_go_on(w);
}

static bool requires(struct writer *w, json_t *schema, const char *key)
{
    json_t *list = json_object_get(schema, "required"), *name;
    size_t i;

    w->n_step += (int64_t)json_array_size(list);
    if (!may_go_on(w))
        return false;
    json_array_foreach (list, i, name) {
        if (json_is_string(name) && strcmp(json_string_value(name), key) == 0)
            return true;
    }
    return false;
}

/* Returns true if no document fits both schemas. Detects only simple cases:
 * different types, different constants, or a required member with different
 * constants. */
static bool are_apart(struct writer *w, json_t *a, json_t *b)
{
    const char *x = only_type(w, a, 8), *y = only_type(w, b, 8);
    json_t *all, *member;
    const char *key;

    if (x && y && strcmp(x, y) != 0)
        return true;
    for (int i = 0; i < 8 && json_object_get(a, "$ref"); i++)
        if (find_ref(w, json_object_get(a, "$ref"), &a) != PL_OK)
            return false;
    for (int i = 0; i < 8 && json_object_get(b, "$ref"); i++)
        if (find_ref(w, json_object_get(b, "$ref"), &b) != PL_OK)
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

static pl_status put_one_of(struct part *p, json_t *list)
{
    size_t n = json_array_size(list);

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!are_apart(p->w, json_array_get(list, k),
                           json_array_get(list, i)))
                return !may_go_on(p->w)
                           ? too_long(p->w, "oneOf")
                           : refuse(p->w, "oneOf",
                                    "has alternatives that may both match; "
                                    "distinguish them by types or by constants "
                                    "of a required property, or use anyOf");
    return put_any_of(p, "oneOf", list);
}

/* ---- strings and numbers ------------------------------------------------- */

/* Sets *out to the count under `key`, or to `usual` if there is none. */
static pl_status get_count(struct writer *w, json_t *schema, const char *key,
                           int64_t usual, int64_t *out)
{
    json_t *v = json_object_get(schema, key);

    *out = usual;
    if (!v)
        return PL_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) > GBNF_TIMES)
        return refuse(w, key, "must be an integer from 0 to 10,000");
    *out = json_integer_value(v);
    return PL_OK;
}

static void put_times(struct gbnf_text *t, int64_t min, int64_t max)
{
    gbnf_print(t, "{%lld,", (long long)min);
    if (max >= 0)
        gbnf_print(t, "%lld", (long long)max);
    gbnf_put(t, "}");
}

static pl_status put_pattern(struct part *p, const json_t *pattern)
{
    const char *bad, *s = json_string_value(pattern);
    char what[2 * ERR_SHOWN];
    size_t at;

    if (!s)
        return wrong(p->w, "pattern", "must be a string");
    bad = gbnf_put_pattern(&p->text, s, json_string_length(pattern), &at);
    if (!bad)
        return PL_OK;
    numeral_print(what, sizeof what, "(at byte %zu): %s", at, bad);
    return wrong(p->w, "pattern", what);
}

static pl_status put_format(struct part *p, const json_t *format)
{
    /* February has only 28 days here, because a grammar cannot detect leap
     * years. */
    static const char date[] =
        "[0-9]{4} \"-\" ((\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | "
        "\"1\" [0-9] | \"2\" [0-8]) | (\"0\" [13-9] | \"1\" [0-2]) \"-\" "
        "(\"29\" | \"30\") | (\"0\" [13578] | \"1\" [02]) \"-31\")";
    static const char time[] = "([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] "
                               "\":\" [0-5] [0-9] (\".\" [0-9]{1,9})? (\"Z\" | "
                               "[-+] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] "
                               "[0-9])";
    static const char uuid[] = "[0-9a-fA-F]{8} (\"-\" [0-9a-fA-F]{4}){3} "
                               "\"-\" [0-9a-fA-F]{12}";
    const char *s = json_string_value(format);
    bool is_date = s && strncmp(s, "date", 4) == 0 &&
                   (!s[4] || strcmp(s, "date-time") == 0);
    bool is_time = s && (strcmp(s, "time") == 0 || (is_date && s[4]));

    if (!is_date && !is_time && !(s && strcmp(s, "uuid") == 0))
        return refuse(p->w, "format",
                      "is supported only as date, time, date-time and uuid");
    gbnf_put(&p->text, "\"\\\"\" ");
    gbnf_put(&p->text, is_date ? date : "");
    gbnf_put(&p->text, is_date && is_time ? " \"T\" " : "");
    gbnf_put(&p->text, is_time ? time : "");
    gbnf_put(&p->text, is_date || is_time ? "" : uuid);
    gbnf_put(&p->text, " \"\\\"\"");
    return PL_OK;
}

static pl_status put_string(struct part *p)
{
    json_t *pattern = json_object_get(p->schema, "pattern");
    json_t *format = json_object_get(p->schema, "format");
    bool has_length = json_object_get(p->schema, "minLength") ||
                      json_object_get(p->schema, "maxLength");
    int64_t min, max;

    if ((pattern != NULL) + (format != NULL) + has_length > 1)
        return refuse(p->w, pattern ? "pattern" : "format",
                      "is not supported with format, minLength or maxLength; "
                      "put all in the pattern");
    if (pattern)
        return put_pattern(p, pattern);
    if (format)
        return put_format(p, format);
    PL_TRY(get_count(p->w, p->schema, "minLength", 0, &min));
    PL_TRY(get_count(p->w, p->schema, "maxLength", -1, &max));
    if (max >= 0 && max < min)
        return wrong(p->w, "maxLength", "is below minLength");
    if (!has_length) {
        gbnf_put(&p->text, "string");
        return PL_OK;
    }
    gbnf_put(&p->text, "\"\\\"\" char");
    put_times(&p->text, min, max);
    gbnf_put(&p->text, " \"\\\"\"");
    return PL_OK;
}

/* Sets *out to the bound under `key`, or to that under `without` plus `step`,
 * because this bound is exclusive. Leaves *out unchanged if there is
 * neither. */
static pl_status get_bound(struct writer *w, json_t *schema, const char *key,
                           const char *without, int step, int64_t *out)
{
    const int64_t most = 999999999999999999;
    json_t *a = json_object_get(schema, key);
    json_t *b = json_object_get(schema, without);

    if (a && b)
        return refuse(w, without,
                      "is not supported with the other bound on the same side");
    if (!a && !b)
        return PL_OK;
    if (!json_is_integer(a ? a : b) || json_integer_value(a ? a : b) > most ||
        json_integer_value(a ? a : b) < -most)
        return refuse(w, a ? key : without,
                      "must be an integer of at most 18 digits");
    *out = json_integer_value(a ? a : b) + (a ? 0 : step);
    return PL_OK;
}

static pl_status put_integer(struct part *p)
{
    int64_t lo = INT64_MIN, hi = INT64_MAX;

    PL_TRY(get_bound(p->w, p->schema, "minimum", "exclusiveMinimum", 1, &lo));
    PL_TRY(get_bound(p->w, p->schema, "maximum", "exclusiveMaximum", -1, &hi));
    if (lo > hi)
        return wrong(p->w, "maximum", "is below minimum");
    if (lo == INT64_MIN && hi == INT64_MAX)
        gbnf_put(&p->text, "integer");
    else
        gbnf_put_integers(&p->text, lo, hi);
    return PL_OK;
}

static pl_status put_number(struct part *p)
{
    static const char *const bound[] = {"minimum", "maximum",
                                        "exclusiveMinimum", "exclusiveMaximum"};

    for (int i = 0; i < 4; i++)
        if (json_object_get(p->schema, bound[i]))
            return refuse(
                p->w, bound[i],
                "is supported only for integers; use the type integer");
    gbnf_put(&p->text, "number");
    return PL_OK;
}

/* ---- arrays -------------------------------------------------------------- */

/* Writes a finished rule to the output. */
static pl_status add_rule(struct writer *w, uint32_t rule,
                          const struct gbnf_text *text)
{
    if (text->failed)
        return no_memory(w);
    gbnf_print(w->out, "s%u ::= ", (unsigned)rule);
    gbnf_put(w->out, text->n ? text->s : "\"\"");
    gbnf_put(w->out, "\n");
    if (text->too_large || w->out->too_large)
        return too_large(w);
    return w->out->failed ? no_memory(w) : PL_OK;
}

/* The items of an array: first those of the prefix (prefixItems), then
 * others. */
struct items {
    json_t *prefix;      /* NULL if none */
    int64_t n, min, max; /* n is the size of the prefix; max is -1 if
                            unlimited */
    bool more;           /* items may follow the prefix */
    char rest[16];       /* rule of the items after the prefix */
};

static pl_status read_items(struct part *p, struct items *it)
{
    json_t *items = json_object_get(p->schema, "items");
    uint32_t rule;

    *it = (struct items){.prefix = json_object_get(p->schema, "prefixItems"),
                         .more = !json_is_false(items)};
    if (it->prefix && !json_is_array(it->prefix))
        return wrong(p->w, "prefixItems", "must be a list of schemas");
    it->n = (int64_t)json_array_size(it->prefix);
    PL_TRY(get_count(p->w, p->schema, "minItems", 0, &it->min));
    PL_TRY(get_count(p->w, p->schema, "maxItems", -1, &it->max));
    if (it->max >= 0 && it->max < it->min)
        return wrong(p->w, "maxItems", "is below minItems");
    if (!it->more && it->min > it->n)
        return refuse(p->w, "minItems",
                      "is more than the number of items allowed");
    numeral_print(it->rest, sizeof it->rest, "value");
    if (items && it->more) {
        PL_TRY(rule_under(p->w, "items", items, &rule));
        numeral_print(it->rest, sizeof it->rest, "s%u", (unsigned)rule);
    }
    return PL_OK;
}

/* Appends the items from index i on, with a comma before each but the first. */
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
    if (i < it->n) {
        PL_TRY(rule_at(p->w, "prefixItems", (size_t)i,
                       json_array_get(it->prefix, (size_t)i), &rule));
        gbnf_print(text, "s%u ws", (unsigned)rule);
    } else {
        gbnf_print(text, "%s ws", it->rest);
    }
    PL_TRY(rule_new(p->w, NULL, &rule));
    s = put_items(p, it, i + 1, &next);
    if (s == PL_OK)
        s = add_rule(p->w, rule, &next);
    gbnf_text_fini(&next);
    gbnf_print(text, " s%u%s", (unsigned)rule, optional ? ")?" : "");
    return s;
}

static pl_status put_array(struct part *p)
{
    struct items it;

    PL_TRY(read_items(p, &it));
    if (it.n > MOST_ITEMS)
        return refuse(p->w, "prefixItems", "has more than 500 schemas");
    gbnf_put(&p->text, "\"[\" ws");
    PL_TRY(put_items(p, &it, 0, &p->text));
    gbnf_put(&p->text, " \"]\"");
    return PL_OK;
}

/* ---- objects ------------------------------------------------------------- */

/* The members of an object, in order, with a rule for each. Another rule, the
 * tail, describes what may follow once a member was written. */
struct members {
    size_t n;
    uint32_t *rule; /* owned, [n] */
    bool *needed;   /* owned, [n] */
    uint32_t *tail; /* owned, [n + 1]: tail i, the members from i on */
    bool more;      /* members with other names are allowed */
    uint32_t other; /* rule of a member with another name */
};

static void members_fini(struct members *m)
{
    free(m->rule);
    free(m->needed);
    free(m->tail);
}

static pl_status put_member(struct part *p, const char *key, json_t *schema,
                            uint32_t *out)
{
    struct gbnf_text text = {0};
    json_t *name = json_string(key);
    size_t before = enter(p->w, "properties");
    uint32_t rule;
    pl_status s = name ? PL_OK : no_memory(p->w);

    if (s == PL_OK)
        s = rule_under(p->w, key, schema, &rule);
    if (s == PL_OK)
        s = rule_new(p->w, NULL, out);
    if (s == PL_OK)
        s = put_json(p->w, &text, name);
    if (s == PL_OK) {
        leave(p->w, before);
        gbnf_print(&text, " ws \":\" ws s%u ws", (unsigned)rule);
        s = add_rule(p->w, *out, &text);
    }
    gbnf_text_fini(&text);
    json_decref(name);
    return s;
}

/* Appends the alternatives for the rest of a name, from character `at` on, that
 * differs from all of keys[0 .. n). The keys are equal up to that character.
 * The names contain no escapes. */
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

/* Adds the rule of a member whose name is not one of `properties`. Only names
 * of up to 32 ASCII characters can be excluded. */
static pl_status put_other(struct part *p, json_t *properties, uint32_t value,
                           bool any, uint32_t *out)
{
    size_t n = json_object_size(properties), i = 0;
    const char **keys = calloc(n + 1, sizeof(char *)), *key;
    struct gbnf_text text = {0};
    pl_status s = keys ? PL_OK : no_memory(p->w);
    json_t *v;

    json_object_foreach (properties, key, v) {
        bool plain = strlen(key) <= 32;

        for (const char *c = key; *c; c++)
            plain &= *c >= ' ' && *c < 0x7f && *c != '"' && *c != '\\';
        if (!plain && s == PL_OK)
            s = refuse(p->w, "additionalProperties",
                       "is not supported with property names longer than 32 "
                       "characters or outside ASCII; set it to false");
        if (keys)
            keys[i++] = key;
    }
    if (s == PL_OK)
        s = rule_new(p->w, NULL, out);
    if (s == PL_OK) {
        qsort(keys, n, sizeof(char *), by_bytes);
        gbnf_put(&text, "\"\\\"\" ");
        put_other_name(&text, keys, n, 0);
        gbnf_put(&text, " \"\\\"\" ws \":\" ws ");
        if (any)
            gbnf_put(&text, "value ws");
        else
            gbnf_print(&text, "s%u ws", (unsigned)value);
        s = add_rule(p->w, *out, &text);
    }
    gbnf_text_fini(&text);
    free(keys);
    return s;
}

static pl_status read_more(struct part *p, json_t *properties,
                           struct members *m)
{
    json_t *more = json_object_get(p->schema, "additionalProperties");
    uint32_t value = 0;

    m->more = more ? !json_is_false(more) : json_object_size(properties) == 0;
    if (!m->more)
        return PL_OK;
    if (more && !json_is_boolean(more))
        PL_TRY(rule_under(p->w, "additionalProperties", more, &value));
    return put_other(p, properties, value, !more || json_is_boolean(more),
                     &m->other);
}

static pl_status check_required(struct part *p, json_t *properties)
{
    json_t *list = json_object_get(p->schema, "required"), *name;
    size_t i;

    if (list && !json_is_array(list))
        return wrong(p->w, "required", "must be a list of names");
    json_array_foreach (list, i, name) {
        if (!json_object_get(properties, json_is_string(name)
                                             ? json_string_value(name)
                                             : ""))
            return refuse(p->w, "required",
                          "names something not in properties; add it there");
    }
    return PL_OK;
}

static pl_status read_members(struct part *p, struct members *m)
{
    json_t *properties = json_object_get(p->schema, "properties"), *schema;
    const char *key;
    size_t i = 0;

    if (properties && !json_is_object(properties))
        return wrong(p->w, "properties", "must be an object of schemas");
    PL_TRY(check_required(p, properties));
    m->n = json_object_size(properties);
    m->rule = calloc(m->n + 1, sizeof *m->rule);
    m->needed = calloc(m->n + 1, sizeof *m->needed);
    m->tail = calloc(m->n + 1, sizeof *m->tail);
    if (!m->rule || !m->needed || !m->tail)
        return no_memory(p->w);
    json_object_foreach (properties, key, schema) {
        m->needed[i] = requires(p->w, p->schema, key);
        if (!may_go_on(p->w))
            return too_long(p->w, "required");
        PL_TRY(put_member(p, key, schema, &m->rule[i++]));
    }
    return read_more(p, properties, m);
}

/* Adds the tails: the members that may follow a present one, each with its
 * comma. */
static pl_status put_tails(struct part *p, struct members *m)
{
    for (size_t i = m->n + 1; i-- > 0;) {
        struct gbnf_text text = {0};
        pl_status s = rule_new(p->w, NULL, &m->tail[i]);

        if (i == m->n && m->more)
            gbnf_print(&text, "(\",\" ws s%u)*", (unsigned)m->other);
        if (i < m->n)
            gbnf_print(&text, "(\",\" ws s%u)%s s%u", (unsigned)m->rule[i],
                       m->needed[i] ? "" : "?", (unsigned)m->tail[i + 1]);
        if (s == PL_OK)
            s = add_rule(p->w, m->tail[i], &text);
        gbnf_text_fini(&text);
        PL_TRY(s);
    }
    return PL_OK;
}

/* Appends the alternatives for the first member that is present: each member up
 * to the first required one. If none is required, further alternatives are a
 * member with another name, if allowed, and no member. */
static void put_first(struct part *p, const struct members *m)
{
    size_t i = 0;
    const char *before = "";

    for (; i < m->n; i++) {
        gbnf_print(&p->text, "%ss%u s%u", before, (unsigned)m->rule[i],
                   (unsigned)m->tail[i + 1]);
        before = " | ";
        if (m->needed[i])
            return;
    }
    if (m->more)
        gbnf_print(&p->text, "%ss%u s%u |", before, (unsigned)m->other,
                   (unsigned)m->tail[m->n]);
    else
        gbnf_put(&p->text, m->n ? " |" : "");
}

static pl_status put_object(struct part *p)
{
    struct members m = {0};
    pl_status s = read_members(p, &m);

    if (s == PL_OK)
        s = put_tails(p, &m);
    if (s == PL_OK) {
        gbnf_put(&p->text, "\"{\" ws (");
        put_first(p, &m);
        gbnf_put(&p->text, ") \"}\"");
    }
    members_fini(&m);
    return s;
}

/* ---- allOf --------------------------------------------------------------- */

static pl_status merge_key(struct writer *w, json_t *into, const char *key,
                           json_t *value)
{
    json_t *there = json_object_get(into, key);

    w->n_step += there ? weight_of(value) : 1;
    if (!may_go_on(w))
        return too_long(w, "allOf");
    if (there && !json_equal(there, value))
        return refuse(
            w, "allOf",
            "has the same keyword or property twice; merge its schemas");
    return there || json_object_set(into, key, value) == 0 ? PL_OK
                                                           : no_memory(w);
}

static pl_status merge(struct writer *w, json_t *into, json_t *schema,
                       int depth);

static pl_status merge_all(struct writer *w, json_t *into, json_t *list,
                           int depth)
{
    json_t *item;
    size_t i;

    json_array_foreach (list, i, item) {
        PL_TRY(merge(w, into, item, depth));
    }
    return PL_OK;
}

static pl_status merge_properties(struct writer *w, json_t *into, json_t *all)
{
    const char *name;
    json_t *item;

    json_object_foreach (all, name, item) {
        PL_TRY(merge_key(w, into, name, item));
    }
    return PL_OK;
}

static pl_status merge_ref(struct writer *w, json_t *into, json_t *ref,
                           int depth)
{
    json_t *to;

    PL_TRY(find_ref(w, ref, &to));
    return merge(w, into, to, depth);
}

/* Merges the schema's keywords into those of `into`. */
static pl_status merge(struct writer *w, json_t *into, json_t *schema,
                       int depth)
{
    const char *key;
    json_t *v;

    w->n_step +=
        1 + (int64_t)json_array_size(json_object_get(schema, "required"));
    if (!may_go_on(w))
        return too_long(w, "allOf");
    if (!json_is_object(schema) || depth == 0)
        return refuse(
            w, "allOf",
            "is supported only for object schemas that do not nest deeply");
    json_object_foreach (schema, key, v) {
        pl_status s = PL_OK;

        if (strcmp(key, "properties") == 0)
            s = merge_properties(w, json_object_get(into, key), v);
        else if (strcmp(key, "required") == 0)
            s = json_array_extend(json_object_get(into, key), v) == 0
                    ? PL_OK
                    : wrong(w, key, "must be a list of names");
        else if (strcmp(key, "$ref") == 0)
            s = merge_ref(w, into, v, depth - 1);
        else if (strcmp(key, "allOf") == 0)
            s = merge_all(w, into, v, depth - 1);
        else if (strcmp(key, "type") == 0 && json_is_string(v) &&
                 strcmp(json_string_value(v), "object") == 0)
            continue;
        else if (kind_of(key) != KEYWORD_NOTE)
            s = refuse(w, key, "is not supported in or next to allOf");
        PL_TRY(s);
    }
    return PL_OK;
}

static pl_status put_all_of(struct part *p)
{
    json_t *all = json_pack("{s:{}, s:[]}", "properties", "required");
    json_t *schema = p->schema;
    pl_status s = all ? merge(p->w, all, schema, 16) : no_memory(p->w);

    if (s == PL_OK) {
        p->schema = all;
        s = put_object(p);
        p->schema = schema;
    }
    json_decref(all);
    return s;
}

/* ---- types --------------------------------------------------------------- */

static const struct type {
    const char *name;
    unsigned of; /* kind of the type's keywords */
    pl_status (*put)(struct part *p);
    const char *rule; /* name of the type's rule, if put is NULL */
} types[] = {
    {"object", KEYWORD_OBJECT, put_object, NULL},
    {"array", KEYWORD_ARRAY, put_array, NULL},
    {"string", KEYWORD_STRING, put_string, NULL},
    {"integer", KEYWORD_NUMBER, put_integer, NULL},
    {"number", KEYWORD_NUMBER, put_number, NULL},
    {"boolean", KEYWORD_NONE, NULL, "boolean"},
    {"null", KEYWORD_NONE, NULL, "null"},
};
enum { N_TYPE = sizeof types / sizeof types[0] };

/* Fails for keywords other than annotations, those of `kinds`, and the keywords
 * a and b. */
static pl_status only(struct writer *w, json_t *schema, unsigned kinds,
                      const char *a, const char *b)
{
    const char *key;
    json_t *v;

    json_object_foreach (schema, key, v) {
        enum keyword_of kind = kind_of(key);

        if (kind == KEYWORD_NOTE || (kind & kinds) || strcmp(key, a) == 0 ||
            strcmp(key, b) == 0)
            continue;
        if (kind == KEYWORD_NONE)
            return refuse(
                w, key,
                "is not supported; remove it, or express it differently");
        return refuse(w, key,
                      "is not supported with the other keywords here, or does "
                      "not apply to this type; remove it");
    }
    return PL_OK;
}

static const struct type *type_named(const json_t *name)
{
    const char *s = json_string_value(name);

    for (int i = 0; i < N_TYPE && s; i++)
        if (strcmp(types[i].name, s) == 0)
            return &types[i];
    return NULL;
}

/* Sets *bits to the types that the schema names, as bits of types[]. */
static pl_status read_types(struct writer *w, json_t *schema, unsigned *bits)
{
    json_t *v = json_object_get(schema, "type");
    size_t n = json_is_array(v) ? json_array_size(v) : 1;

    *bits = 0;
    for (size_t i = 0; i < n && v; i++) {
        const struct type *t =
            type_named(json_is_array(v) ? json_array_get(v, i) : v);

        if (!t)
            return wrong(w, "type",
                         "must be one or more of object, array, string, "
                         "integer, number, boolean, null");
        *bits |= 1u << (t - types);
    }
    if (v && !*bits)
        return wrong(w, "type", "must name at least one type");
    return PL_OK;
}

static pl_status put_types(struct part *p, unsigned bits)
{
    const char *before = "";
    unsigned of = 0;

    for (int i = 0; i < N_TYPE; i++)
        of |= bits >> i & 1 ? types[i].of : 0;
    PL_TRY(only(p->w, p->schema, of, "type", ""));
    for (int i = 0; i < N_TYPE; i++) {
        if (!(bits >> i & 1))
            continue;
        gbnf_put(&p->text, before);
        before = " | ";
        if (types[i].put)
            PL_TRY(types[i].put(p));
        else
            gbnf_put(&p->text, types[i].rule);
    }
    return PL_OK;
}

/* Appends the rule of a schema without `type`: values of the type that its
 * first keyword applies to, or any value if it has no such keyword. */
static pl_status put_untyped(struct part *p)
{
    const char *key;
    json_t *v;

    json_object_foreach (p->schema, key, v) {
        enum keyword_of kind = kind_of(key);

        for (unsigned i = 0; i < N_TYPE; i++)
            if (kind != KEYWORD_NOTE && kind == types[i].of)
                return put_types(p, 1u << i);
        PL_TRY(kind == KEYWORD_NOTE ? PL_OK : only(p->w, p->schema, 0, "", ""));
    }
    gbnf_put(&p->text, "value");
    return PL_OK;
}

/* Checks that the constants have one of the types in the schema's `type`. */
static pl_status check_constants(struct part *p, const char *key, json_t *list)
{
    unsigned bits;
    json_t *v;
    size_t i;

    PL_TRY(only(p->w, p->schema, 0, key, "type"));
    PL_TRY(read_types(p->w, p->schema, &bits));
    json_array_foreach (list, i, v) {
        bool fits = bits == 0;

        for (int k = 0; k < N_TYPE; k++)
            fits |= (bits >> k & 1) &&
                    (strcmp(types[k].name, type_of(v)) == 0 ||
                     (types[k].put == put_integer && json_is_integer(v)));
        if (!fits)
            return refuse(p->w, key,
                          "has a value that does not match the type");
    }
    return PL_OK;
}

static pl_status put_constants(struct part *p, const char *key, json_t *value)
{
    json_t *list =
        strcmp(key, "enum") == 0 ? json_incref(value) : json_pack("[O]", value);
    pl_status s = list ? check_constants(p, key, list) : no_memory(p->w);

    if (s == PL_OK)
        s = put_enum(p, list);
    json_decref(list);
    return s;
}

/* ---- schemas ------------------------------------------------------------- */

static pl_status put_schema(struct part *p)
{
    static const char *const first[] = {"$ref",  "const", "enum",
                                        "anyOf", "oneOf", "allOf"};
    struct writer *w = p->w;
    json_t *v = NULL;
    unsigned bits;
    int i = -1;

    if (json_is_true(p->schema)) {
        gbnf_put(&p->text, "value");
        return PL_OK;
    }
    if (json_is_false(p->schema))
        return refuse(w, "the schema", "false allows no document; remove it");
    if (!json_is_object(p->schema))
        return wrong(w, "the schema", "must be an object, or true");
    while (!v && ++i < 6)
        v = json_object_get(p->schema, first[i]);
    if (v && i == 5)
        return put_all_of(p);
    if (v && (i == 1 || i == 2))
        return put_constants(p, first[i], v);
    if (v)
        PL_TRY(only(w, p->schema, 0, first[i], ""));
    if (v)
        return i == 0   ? put_ref(p, v)
               : i == 3 ? put_any_of(p, first[i], v)
                        : put_one_of(p, v);
    PL_TRY(read_types(w, p->schema, &bits));
    return bits ? put_types(p, bits) : put_untyped(p);
}

/* Sets *out to the rule of a schema. Writes the rule if it does not exist
 * yet. */
static pl_status schema_rule(struct writer *w, json_t *schema, uint32_t *out)
{
    struct part p = {.w = w, .schema = schema};
    pl_status s;

    for (uint32_t i = 0; i < w->n_rule; i++)
        if (w->rule[i] == schema && json_is_object(schema)) {
            *out = i;
            return PL_OK;
        }
    if (w->depth == MOST_DEPTH)
        return refuse(
            w, "the schema",
            "nests deeper than 100 levels; move inner schemas to $defs");
    w->depth++;
    PL_TRY(rule_new(w, schema, out));
    s = put_schema(&p);
    if (s == PL_OK)
        s = add_rule(w, *out, &p.text);
    gbnf_text_fini(&p.text);
    w->depth--;
    return s;
}

static pl_status write_all(struct writer *w)
{
    uint32_t rule;

    gbnf_put(w->out, "root ::= s0 ws\n");
    schema_put_common(w->out, &schema_strings);
    return schema_rule(w, w->root, &rule);
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
                       .n_step = sums->n_step};
    uint32_t none;
    pl_status s = PL_OK;

    /* Rules that exist already have no schema. */
    while (w.n_rule < sums->n_rule && s == PL_OK)
        s = rule_new(&w, NULL, &none);
    if (s == PL_OK)
        s = schema_rule(&w, schema, rule);
    sums->n_rule = w.n_rule;
    sums->n_step = w.n_step;
    free(w.rule);
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
    if (len > GBNF_BYTES)
        return too_large(&w);
    w.root =
        json_loadb(json, len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    numeral_end(before);
    if (!w.root && json_error_code(&e) == json_error_out_of_memory)
        return no_memory(&w);
    if (!w.root)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: invalid JSON: line %d, column %d: %s", name, e.line,
                       e.column, e.text);
    s = write_all(&w);
    json_decref(w.root);
    free(w.rule);
    if (s != PL_OK)
        gbnf_text_fini(out);
    return s;
}
