/* Implements call_grammar.h. The grammar has these rules: root; one and call0,
 * call1, ..., one per tool, without the markers around a call; args0-0-0 and so
 * on for arguments of a tool in Python syntax; s0, s1, ... for JSON Schemas. */
#include "engine/call_grammar.h"

#include "base/err.h"
#include "base/numeral.h"
#include "base/whole_json.h"
#include "base/wide_json.h"
#include "chat/reply_known.h"
#include "chat/unicode.h"
#include "grammar/gbnf.h"
#include "grammar/schema.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_TOOLS = 256,
    MOST_MARK = 128,
    MOST_REFS = 8,
    MOST_TYPES = 7,       /* number of types in JSON Schema, the most that a
                             property can list */
    MOST_VALUES = 1 << 14 /* maximum number of alternatives of a tool's unquoted
                             values */
};

struct caller {
    const struct reply_format *f; /* the notation of calls */
    bool addressed;               /* calls are messages with recipients */
    struct gbnf_text *out;
    /* JSON Schema of a document that the model may write instead of calls; NULL
     * if only calls are allowed */
    const char *content;
    /* number of the grammar rule for `content`; the rule is named "s" and this
     * number */
    uint32_t document;
    struct schema_sums sums;
    pl_err *err;
};

/* The tool whose rules are being written. */
struct tool {
    struct caller *c;
    int i;
    const char *name;
    json_t *schema;   /* schema of the arguments; owned */
    json_t *required; /* owned; JSON object whose keys are the names of the
                         required arguments; NULL if there is none */
    /* number of alternatives written so far for the values of this tool's
     * arguments */
    int n_value;
};

/* ---- rules for markers and JSON Schemas ---------------------------------- */

static pl_status refuse(const struct tool *t, const char *where,
                        const char *what)
{
    char tool[ERR_SHOWN], at[ERR_SHOWN];

    return err_set(t->c->err, PL_UNSUPPORTED,
                   "a call of %s cannot be forced: %s: %s",
                   err_shown(tool, t->name, strlen(t->name)),
                   err_shown(at, where, strlen(where)), what);
}

static void put(struct gbnf_text *g, const char *s)
{
    gbnf_put(g, s);
}

/* Appends a marker as a literal, followed by a blank. Appends nothing if the
 * marker is empty. */
static void put_mark(struct gbnf_text *g, struct span mark)
{
    if (mark.n == 0)
        return;
    gbnf_put_literal(g, mark.s, mark.n);
    put(g, " ");
}

/* Returns `mark`, a marker before or after all calls of a message. Returns an
 * empty marker if `mark` contains the marker that ends a message: templates
 * that put each call into a message of its own yield such a marker, but the
 * model does not write it. */
static struct span outer(const struct reply_format *f, struct span mark)
{
    for (int i = 0; i < 2; i++)
        if (f->end[i].n > 0 && span_find(mark, f->end[i]) < mark.n)
            return (struct span){0};
    return mark;
}

/* Appends a marker as put_mark does, with optional blanks before and after
 * it. */
static void put_apart(struct gbnf_text *g, struct span mark)
{
    if (mark.n == 0)
        return;
    put(g, "gap ");
    put_mark(g, mark);
    put(g, "gap ");
}

/* Appends a rule for `schema`, a part of the tool's schema, in which references
 * are resolved. `where` names the argument for errors, NULL for the whole
 * schema. Sets *rule to the number of the rule. */
static pl_status put_schema(struct tool *t, json_t *schema, const char *where,
                            uint32_t *rule)
{
    char name[3 * ERR_SHOWN], tool[ERR_SHOWN], at[ERR_SHOWN];

    numeral_print(name, sizeof name, "tool %s%s%s",
                  err_shown(tool, t->name, strlen(t->name)), where ? ": " : "",
                  where ? err_shown(at, where, strlen(where)) : "");
    return schema_put_rule(t->c->out, &t->c->sums, t->schema, schema, name,
                           rule, t->c->err);
}

/* ---- rules for texts that contain no end marker -------------------------- */

/* One or two texts that an unquoted text must not contain, because they begin
 * its end marker. Each is a marker or the beginning of one (see distinct). All
 * begin with the same ASCII character, and each contains it only once. */
struct ends {
    struct span mark[2];
    int n;
};

/* Returns the beginning of `mark`, up to a control character or to a second
 * occurrence of its first character. A text that does not contain this
 * beginning does not contain `mark` either. */
static struct span distinct(struct span mark)
{
    size_t n = 1;

    while (n < mark.n && mark.s[n] != mark.s[0] &&
           (unsigned char)mark.s[n] >= ' ')
        n++;
    mark.n = n < mark.n ? n : mark.n;
    return mark;
}

static bool ends_add(struct ends *e, struct span mark)
{
    mark = distinct(mark);
    if (mark.n == 0)
        return true;
    if (mark.n == 1 || mark.n > MOST_MARK || mark.s[0] < ' ' ||
        (e->n > 0 && mark.s[0] != e->mark[0].s[0]))
        return false;
    if (e->n == 0 || !span_equal(mark, e->mark[0]))
        e->mark[e->n++] = mark;
    return true;
}

/* Appends the first character of text `t`, escaped as in a character class of
 * GBNF, such as \x3C. */
static void put_char(struct gbnf_text *g, struct span t)
{
    uint32_t c;

    unicode_get(t.s, t.n, &c);
    gbnf_print(g, c < 0x80 ? "\\x%02X" : "\\U%08X", (unsigned)c);
}

/* Returns true if a character begins at byte n of the marker. */
static bool is_start(struct span mark, size_t n)
{
    return ((unsigned char)mark.s[n] & 0xc0) != 0x80;
}

/* Appends a character class [^...] of the characters that do not continue an
 * end marker, when its first n bytes, those of marker k, have just been
 * written. The class excludes the next character of each marker with the same
 * first n bytes, the first character of the markers, and the characters
 * `but`. */
static void put_others(struct gbnf_text *g, const struct ends *e, int k,
                       size_t n, const char *but)
{
    put(g, "[^");
    put(g, but);
    put_char(g, e->mark[0]);
    for (int i = 0; i < e->n && n > 0; i++)
        if (e->mark[i].n > n && memcmp(e->mark[i].s, e->mark[k].s, n) == 0)
            put_char(g, span_from(e->mark[i], n));
    put(g, "]");
}

/* Returns true if put_begun must not write an alternative for the first n bytes
 * of marker k. Either an earlier marker begins with the same bytes and has the
 * alternative already, or these bytes contain another whole marker. */
static bool is_known(const struct ends *e, int k, size_t n)
{
    for (int i = 0; i < e->n; i++) {
        const struct span m = e->mark[i];
        size_t least = m.n < n ? m.n : n;

        if (i != k && memcmp(m.s, e->mark[k].s, least) == 0 &&
            (m.n <= n || i < k))
            return true;
    }
    return false;
}

/* Appends one alternative for each proper prefix of an end marker. Omits the
 * prefix's first character, which the caller has written already. `tail`
 * selects the text after the prefix: 0 for the first character of a marker, 1
 * for a character that does not continue the marker, 2 for nothing. */
static void put_begun(struct gbnf_text *g, const struct ends *e, int tail,
                      const char *but, const char *escape)
{
    const char *before = "";

    for (int k = 0; k < e->n; k++)
        for (size_t n = 1; n < e->mark[k].n; n++) {
            if (!is_start(e->mark[k], n) || is_known(e, k, n))
                continue;
            put(g, before);
            before = " | ";
            if (n > 1) {
                gbnf_put_literal(g, e->mark[k].s + 1, n - 1);
                put(g, " ");
            }
            if (tail == 0)
                gbnf_put_literal(g, e->mark[0].s, 1);
            else if (tail == 1 && escape)
                put(g, "(");
            if (tail == 1)
                put_others(g, e, k, n, but);
            if (tail == 1 && escape) {
                put(g, " | ");
                put(g, escape);
                put(g, ")");
            }
            if (tail == 2 && n == 1)
                put(g, "\"\"");
        }
}

/* Appends a GBNF expression for all texts that contain no end marker. Let c be
 * the first character of the markers. Such a text is a sequence of two kinds of
 * items. One is a character other than c. The other is c, then any number of
 * incomplete markers that the next c interrupts, then a character that does not
 * continue the marker. The text may also end with an incomplete marker. `but`
 * has further characters to exclude, in the syntax of a character class. The
 * rule named `escape` is allowed in their place, if it is not NULL. */
static void put_without(struct gbnf_text *g, const struct ends *e,
                        const char *but, const char *escape)
{
    put(g, "(");
    put_others(g, e, 0, 0, but);
    if (escape) {
        put(g, " | ");
        put(g, escape);
    }
    for (int again = 1; again >= 0; again--) {
        put(g, again ? " | " : ")* (");
        gbnf_put_literal(g, e->mark[0].s, 1);
        put(g, " (");
        put_begun(g, e, 0, but, escape);
        put(g, ")* (");
        put_begun(g, e, again ? 1 : 2, but, escape);
        put(g, ")");
    }
    put(g, ")?");
}

/* Appends grammar rules for JSON strings that contain no end marker. If `few`,
 * the strings may have only those escapes that the parser of Python syntax
 * accepts. */
static void put_strings(struct gbnf_text *g, const struct ends *e, bool few)
{
    static const char quoted[] = "\"\\\\\\x00-\\x1F";
    struct gbnf_text string = {0}, plain = {0};
    struct schema_strings how = schema_strings;
    struct ends own = {0};

    for (int i = 0; i < e->n; i++) /* Markers with a quote are left out, because
                                      a quote within a string is escaped. */
        if (!span_contains(e->mark[i], span_of("\"")))
            own.mark[own.n++] = e->mark[i];
    e = &own;
    put(&string, "\"\\\"\" ");
    put_without(&string, e, quoted, "escape");
    put(&string, " \"\\\"\"");
    put_others(&plain, e, 0, 0, quoted);
    how.string = string.s ? string.s : "";
    how.plain = plain.s ? plain.s : "";
    if (few)
        how.escape = "\"\\\\\" [\"\\\\nrt]";
    schema_put_common(g, &how);
    put(g, "escape ::= ");
    put(g, how.escape);
    put(g, "\n");
    g->failed |= string.failed | plain.failed;
    gbnf_text_fini(&string);
    gbnf_text_fini(&plain);
}

/* ---- arguments that are not a JSON object -------------------------------- */

/* Writes a comment into the grammar: the tool, `where` in its schema, and
 * `what` the grammar does not enforce there. */
static void note(const struct tool *t, const char *where, const char *what)
{
    char tool[ERR_SHOWN], at[ERR_SHOWN];

    gbnf_print(t->c->out, "%stool %s: ", GBNF_NOTE,
               err_shown(tool, t->name, strlen(t->name)));
    gbnf_print(t->c->out, "%s ", err_shown(at, where, strlen(where)));
    put(t->c->out, what);
    put(t->c->out, "\n");
}

/* Sets *out to the properties in a tool's schema, and t->required to the
 * required ones. For calls that do not write their arguments as a JSON object.
 * All other keywords of the schema are noted as not enforced. */
static pl_status get_properties(struct tool *t, json_t **out)
{
    static const char *const known[] = {"type", "properties", "required",
                                        "additionalProperties"};
    json_t *required = json_object_get(t->schema, "required"), *name, *value;
    const char *key, *type;
    size_t i;

    json_object_foreach (t->schema, key, value) {
        for (i = 0; i < sizeof known / sizeof known[0]; i++)
            if (strcmp(key, known[i]) == 0)
                break;
        if (i == sizeof known / sizeof known[0] && !schema_is_note(key))
            note(t, key,
                 "is not enforced, because this model's calls are not JSON");
    }
    type = json_string_value(json_object_get(t->schema, "type"));
    *out = json_object_get(t->schema, "properties");
    if ((type && strcmp(type, "object") != 0) ||
        (*out && !json_is_object(*out)))
        return refuse(t, "parameters", "must be an object schema");
    t->required = json_object();
    json_array_foreach (required, i, name) {
        const char *s = json_string_value(name);

        if (!s || !json_object_get(*out, s))
            note(t, s ? s : "required",
                 "is required but not in properties, and left out");
        else if (json_object_set(t->required, s, name) != 0)
            return err_no_memory(t->c->err, "a grammar");
    }
    return PL_OK;
}

static bool is_required(const struct tool *t, const char *key)
{
    return json_object_get(t->required, key) != NULL;
}

/* ---- rules for values written without quotes ----------------------------- */

/* Follows the references ($ref) of a schema. Returns the schema at their end,
 * or NULL if a reference does not resolve. */
static json_t *follow(const struct tool *t, json_t *schema)
{
    for (int i = 0; i < MOST_REFS; i++) {
        const char *ref = json_string_value(json_object_get(schema, "$ref"));
        json_t *at = t->schema;

        if (!ref)
            return schema;
        if (strncmp(ref, "#/", 2) != 0)
            return NULL;
        for (ref += 2; at && *ref;) {
            size_t n = strcspn(ref, "/");

            at = json_object_getn(at, ref, n);
            ref += n + (ref[n] == '/');
        }
        schema = at;
    }
    return NULL;
}

static bool has_any(const json_t *schema, const char *const *key)
{
    while (*key && !json_object_get(schema, *key))
        key++;
    return *key != NULL;
}

/* Appends the alternatives for the value of argument `key`, as a call writes it
 * between the argument's markers: a string without quotes, any other value as
 * JSON. `typed` means that the parser of calls knows from the schema that the
 * value is a string. *n counts the alternatives. `depth` limits the nesting of
 * references. */
static pl_status put_value(struct tool *t, const char *key, json_t *schema,
                           bool typed, int depth, struct gbnf_text *g, int *n);

/* Counts one more alternative for the values of a tool, and fails if there are
 * too many. A short schema can have very many if it refers to its parts
 * repeatedly. */
static pl_status count_value(struct tool *t, const char *key)
{
    return ++t->n_value <= MOST_VALUES
               ? PL_OK
               : refuse(t, key,
                        "the tool's values have more than 16384 alternatives; "
                        "use fewer");
}

/* Returns true if this model's calls put strings between markers, as others do
 * between quotes. */
static bool is_quoted(const struct tool *t)
{
    return t->c->f->calls == CALLS_QUOTED;
}

/* Appends the name of the rule for a string, with the markers that stand for
 * quotes, if the model has them. Without these markers, a string that is not
 * `typed` must not look like a number, a list or another value. */
static void put_text(const struct tool *t, struct gbnf_text *g, bool typed)
{
    put_mark(g, t->c->f->quote);
    put(g, typed || is_quoted(t) ? "text " : "other-text ");
    put_mark(g, t->c->f->quote);
}

static void put_bar(struct gbnf_text *g, int *n)
{
    put(g, (*n)++ > 0 ? " | " : "");
}

/* Returns true if the parser could read an unquoted text as JSON other than a
 * string, or as a Python constant such as True. */
static bool is_other_value(const char *s, size_t len)
{
    struct span t = span_trim((struct span){s, len});
    json_error_t e;
    json_t *v = wide_json(t.s, t.n, JSON_DECODE_ANY, &e);
    bool other = v && !json_is_string(v);

    json_decref(v);
    return other || span_begins(t, span_of("{")) ||
           span_begins(t, span_of("[")) || span_equal(t, span_of("True")) ||
           span_equal(t, span_of("False")) || span_equal(t, span_of("None"));
}

/* Appends a constant of the schema: a string without quotes, any other value as
 * JSON. If the parser could read the string as another type, because it is not
 * `typed`, notes that in the grammar. */
static pl_status put_constant(struct tool *t, const char *key, json_t *value,
                              bool typed, struct gbnf_text *g, int *n)
{
    const char *s = wide_digits(value) ? NULL : json_string_value(value);
    size_t len = json_string_length(value);
    char *json;

    PL_TRY(count_value(t, key));
    put_bar(g, n);
    if (s && !typed && !is_quoted(t) && is_other_value(s, len))
        note(t, key,
             "has a constant that may be read as another type than string");
    if (s) {
        put_mark(g, t->c->f->quote);
        gbnf_put_literal(g, s, len);
        put(g, " ");
        put_mark(g, t->c->f->quote);
        return PL_OK;
    }
    json = wide_json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!json)
        return err_no_memory(t->c->err, "a grammar");
    gbnf_put_literal(g, json, strlen(json));
    free(json);
    return PL_OK;
}

static pl_status put_each(struct tool *t, const char *key, json_t *list,
                          bool typed, int depth, struct gbnf_text *g, int *n)
{
    json_t *one;
    size_t i;

    json_array_foreach (list, i, one)
        PL_TRY(put_value(t, key, one, typed, depth - 1, g, n));
    return PL_OK;
}

static pl_status put_one_type(struct tool *t, const char *key, json_t *schema,
                              const char *type, bool typed, struct gbnf_text *g,
                              int *n)
{
    static const char *const of_strings[] = {"pattern", "format", "minLength",
                                             "maxLength", NULL};
    uint32_t rule;

    put_bar(g, n);
    if (strcmp(type, "string") != 0) {
        PL_TRY(put_schema(t, schema, key, &rule));
        gbnf_print(g, "s%u", (unsigned)rule);
        return PL_OK;
    }
    if (has_any(schema, of_strings))
        note(t, key,
             "has pattern, format, minLength or maxLength, which are not "
             "enforced, because this model's strings are not quoted");
    put_text(t, g, typed);
    return PL_OK;
}

static pl_status put_value(struct tool *t, const char *key, json_t *schema,
                           bool typed, int depth, struct gbnf_text *g, int *n)
{
    json_t *to = depth > 0 ? follow(t, schema) : NULL, *type, *v, *one;
    size_t i;

    PL_TRY(count_value(t, key));
    if ((v = json_object_get(to, "const")))
        return put_constant(t, key, v, typed, g, n);
    if (json_array_size(v = json_object_get(to, "enum")) > 0) {
        json_array_foreach (v, i, one)
            PL_TRY(put_constant(t, key, one, typed, g, n));
        return PL_OK;
    }
    if ((v = json_object_get(to, "anyOf")) ||
        (v = json_object_get(to, "oneOf")))
        return put_each(t, key, v, typed, depth, g, n);
    type = json_object_get(to, "type");
    if (json_is_string(type))
        return put_one_type(t, key, to, json_string_value(type), typed, g, n);
    if (!json_is_array(type) || json_array_size(type) == 0 ||
        json_array_size(type) > MOST_TYPES) {
        if (json_object_size(to) > 0)
            note(t, key, "has no type, and may be any value");
        put_bar(g, n);
        put(g, "object | array | number | boolean | null | ");
        put_text(t, g, typed);
        return PL_OK;
    }
    json_array_foreach (type, i, one) {
        json_t *of = whole_json_copy(to);
        pl_status s = PL_OK;

        if (!of || json_object_set(of, "type", one) != 0)
            s = err_no_memory(t->c->err, "a grammar");
        if (s == PL_OK && !json_is_string(one))
            s = refuse(t, key, "must have types that are strings");
        if (s == PL_OK)
            s = put_one_type(t, key, of, json_string_value(one), typed, g, n);
        json_decref(of);
        PL_TRY(s);
    }
    return PL_OK;
}

/* Returns true if the schema of an argument has the type "string", so that the
 * parser of calls reads any text there as a string. */
static bool is_typed(const json_t *schema)
{
    const char *type = json_string_value(json_object_get(schema, "type"));

    return type && strcmp(type, "string") == 0;
}

/* Returns the type that a call writes as attribute of an argument, such as
 * type="number", from the schema of the argument. */
static const char *attribute_of(const json_t *schema)
{
    static const char *const types[] = {"string", "number", "boolean", "array"};
    const char *type = json_string_value(json_object_get(schema, "type"));

    if (type && strcmp(type, "integer") == 0)
        return "number";
    for (size_t i = 0; type && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i]) == 0)
            return types[i];
    return "object";
}

/* Appends the marker between the key and the value of an argument. */
static void put_value_open(const struct tool *t, const json_t *schema,
                           bool typed, struct gbnf_text *g)
{
    const struct reply_format *f = t->c->f;
    const char *type = json_string_value(json_object_get(schema, "type"));

    if (f->type_open.n == 0) {
        put_mark(g,
                 !typed && f->json_open.n > 0 ? f->json_open : f->value_open);
        return;
    }
    put_mark(g, f->type_open);
    put_mark(g, span_of(type ? type : "object"));
    put_mark(g, f->type_close);
}

/* Appends an argument with its markers, such as
 * <parameter=k>\nv\n</parameter>\n. */
static pl_status put_tagged(struct tool *t, const char *key, json_t *schema,
                            struct gbnf_text *g)
{
    const struct reply_format *f = t->c->f;
    bool typed = is_typed(schema);
    int n = 0;

    put_mark(g, f->key_open);
    put_mark(g, span_of(key));
    if (f->attributes)
        gbnf_print(g, "\"\\\" type=\\\"%s\\\"\" ", attribute_of(schema));
    put_value_open(t, schema, typed, g);
    put_mark(g, f->value_lead);
    put(g, "(");
    PL_TRY(put_value(t, key, schema, typed, MOST_REFS, g, &n));
    if (n == 0)
        return refuse(t, key, "has no alternative");
    put(g, ") ");
    put_mark(g, f->value_tail);
    put_mark(g, f->value_close);
    if (f->calls == CALLS_NESTED) {
        put_mark(g, span_of(key));
        put_mark(g, f->value_open);
    }
    put(g, "gap ");
    return PL_OK;
}

/* Appends the rule for a string argument whose type the schema does not
 * declare. The parser of calls reads an unquoted text as a string only if the
 * text does not begin with a blank and is neither JSON nor a Python
 * constant. */
static void put_other_text(struct gbnf_text *g, const struct ends *e)
{
    static const char *const words[] = {"true", "false", "null",
                                        "True", "False", "None"};

    put(g, "other-text ::= ");
    put_others(g, e, 0, 0, "\\x00 \\t\\r\\n\\x7B\\x5B\\x22\\x2D0-9tfnTFN");
    put(g, " text | \"-\"? [0-9] [0-9.]* ");
    put_others(g, e, 0, 0, "\\x000-9.eE+\\x2D \\t\\r\\n");
    put(g, " text");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const char *w = words[i];
        size_t len = strlen(w);

        for (size_t n = 1; n < len; n++) {
            put(g, " | ");
            gbnf_put_literal(g, w, n);
            put(g, " ([^\\x00 \\t\\r\\n");
            put_char(g, e->mark[0]);
            put_char(g, span_from(span_of(w), n));
            put(g, "] text)?");
        }
        put(g, " | ");
        gbnf_put_literal(g, w, len);
        put(g, " [a-zA-Z0-9_] text");
    }
    put(g, "\n");
}

/* ---- rules for calls, one function per notation -------------------------- */

static pl_status check_key(const struct tool *t, const char *key)
{
    struct span s = span_of(key);

    if (s.n > 0 && span_name(s) == s.n)
        return PL_OK;
    return refuse(t, key,
                  "must have a name of letters, digits, _, -, ., : and /, "
                  "because this model's calls are not JSON");
}

/* Rejects a tool whose schema contains an end marker, because a call cannot
 * contain that text as a value. */
static pl_status check_marks(const struct tool *t, const struct ends *e)
{
    char *json = whole_json_dumps(t->schema, JSON_COMPACT);
    bool found = false;

    if (!json)
        return err_no_memory(t->c->err, "a grammar");
    for (int i = 0; i < e->n; i++)
        found |= strlen(json) > span_find(span_of(json), e->mark[i]);
    free(json);
    return found ? refuse(t, "parameters", "contain a call marker of the model")
                 : PL_OK;
}

static pl_status put_tagged_args(struct tool *t, struct gbnf_text *g)
{
    json_t *properties, *schema;
    const char *key;

    PL_TRY(get_properties(t, &properties));
    put_mark(g, t->c->f->name_close);
    put(g, "gap ");
    json_object_foreach (properties, key, schema) {
        bool need = is_required(t, key);

        PL_TRY(check_key(t, key));
        put(g, need ? "" : "(");
        PL_TRY(put_tagged(t, key, schema, g));
        put(g, need ? "" : ")? ");
    }
    return PL_OK;
}

/* Appends the arguments of a call in Python syntax, such as (k=v, n=1), or with
 * markers around strings, such as {k:v,n:1}. Rule args<tool>-<i>-<some> covers
 * the arguments from the i-th to the last. <some> is 1 if an argument precedes
 * them, so that a comma is needed, else 0. */
static pl_status put_list_args(struct tool *t, struct gbnf_text *g)
{
    const bool quoted = is_quoted(t);
    json_t *properties, *schema;
    const char *key;
    int i = 0;

    PL_TRY(get_properties(t, &properties));
    json_object_foreach (properties, key, schema) {
        struct gbnf_text value = {0};
        uint32_t rule = 0;
        int n = 0;
        pl_status s = check_key(t, key);

        if (s == PL_OK && quoted)
            s = put_value(t, key, schema, true, MOST_REFS, &value, &n);
        else if (s == PL_OK)
            s = put_schema(t, schema, key, &rule);
        if (s == PL_OK && !quoted)
            gbnf_print(&value, "s%u", (unsigned)rule);
        for (int some = 0; some < 2 && s == PL_OK; some++) {
            gbnf_print(t->c->out, "args%d-%d-%d ::= %s", t->i, i, some,
                       !some    ? ""
                       : quoted ? "\",\" gap "
                                : "\", \" ");
            put_mark(t->c->out, span_of(key));
            put(t->c->out, quoted ? "\":\" (" : "\"=\" (");
            gbnf_put_bytes(t->c->out, value.s, value.n);
            gbnf_print(t->c->out, ") args%d-%d-1", t->i, i + 1);
            if (!is_required(t, key))
                gbnf_print(t->c->out, " | args%d-%d-%d", t->i, i + 1, some);
            put(t->c->out, "\n");
        }
        t->c->out->failed |= value.failed;
        t->c->out->too_large |= value.too_large;
        gbnf_text_fini(&value);
        PL_TRY(s);
        i++;
    }
    for (int some = 0; some < 2; some++)
        gbnf_print(t->c->out, "args%d-%d-%d ::= \"\"\n", t->i, i, some);
    gbnf_print(g, quoted ? "\"{\" args%d-0-0 \"}\" " : "\"(\" args%d-0-0 \")\"",
               t->i);
    return PL_OK;
}

/* Appends a call as a JSON object: {"name": "f", "arguments": {...}} or {"f":
 * {...}}. */
static pl_status put_object(struct tool *t, struct gbnf_text *g)
{
    const struct reply_format *f = t->c->f;
    uint32_t rule;

    PL_TRY(put_schema(t, t->schema, NULL, &rule));
    put(g, "\"{\" ws \"\\\"\" ");
    if (f->name_key.n > 0) {
        put_mark(g, f->name_key);
        put(g, "\"\\\"\" ws \":\" ws \"\\\"\" ");
        put_mark(g, span_of(t->name));
        put(g, "\"\\\"\" ws \",\" ws \"\\\"\" ");
        put_mark(g, f->arguments_key);
    } else {
        put_mark(g, span_of(t->name));
    }
    gbnf_print(g, "\"\\\"\" ws \":\" ws s%u ws \"}\"", (unsigned)rule);
    return PL_OK;
}

/* Appends a call that begins with the name of the tool, such as
 * f[ARGS]{...}. */
static pl_status put_named(struct tool *t, struct gbnf_text *g)
{
    const struct reply_format *f = t->c->f;
    uint32_t rule;

    if (f->name_open.n > 0) {
        put(g, "id ");
        put_mark(g, f->name_open);
    }
    if (f->id_named)
        put(g, "\"functions.\" ");
    put_mark(g, span_of(t->name));
    if (f->id_named)
        put(g, "\":\" [0-9]{1,2} ");
    if (f->id_open.n > 0) {
        put_mark(g, f->id_open);
        put(g, "id ");
    }
    put_mark(g, f->args_open);
    if (f->name_key.n > 0)
        return put_object(t, g);
    PL_TRY(put_schema(t, t->schema, NULL, &rule));
    gbnf_print(g, "s%u", (unsigned)rule);
    return PL_OK;
}

/* Appends a call in the format of gpt-oss, which names the tool in the header
 * of a message. */
static pl_status put_channel(struct tool *t, struct gbnf_text *g)
{
    uint32_t rule;

    PL_TRY(put_schema(t, t->schema, NULL, &rule));
    put(g, "(\"<|channel|>commentary to=functions.\" ");
    put_mark(g, span_of(t->name));
    put(g, "\" <|constrain|>json\" | \" to=functions.\" ");
    put_mark(g, span_of(t->name));
    gbnf_print(g, "\"<|channel|>commentary json\") \"<|message|>\" s%u",
               (unsigned)rule);
    return PL_OK;
}

/* Appends a call that is a message to the tool, with tags. */
static pl_status put_addressed(struct tool *t, struct gbnf_text *g)
{
    const struct reply_format *f = t->c->f;

    put(g, "\" to=\" ");
    put_mark(g, span_of(t->name));
    put(g, "\"<|message|>\" gap ");
    put_apart(g, f->calls_open);
    put_mark(g, f->call_open);
    put_mark(g, span_of(t->name));
    PL_TRY(put_tagged_args(t, g));
    put_apart(g, f->call_close);
    put_mark(g, f->calls_close);
    return PL_OK;
}

/* Appends a call that is the line of a recipient and the arguments. */
static pl_status put_line(struct tool *t, struct gbnf_text *g)
{
    uint32_t rule;

    PL_TRY(put_schema(t, t->schema, NULL, &rule));
    put_mark(g, span_of(t->name));
    gbnf_print(g, "\"\\n\" s%u ", (unsigned)rule);
    return PL_OK;
}

static pl_status put_call(struct tool *t, struct gbnf_text *g)
{
    const struct reply_format *f = t->c->f;

    if (t->c->addressed)
        return put_addressed(t, g);
    if (f->recipients)
        return put_line(t, g);
    if (f->channels)
        return put_channel(t, g);
    switch (f->calls) {
    case CALLS_OBJECT:
        return put_object(t, g);
    case CALLS_NAMED:
        return put_named(t, g);
    case CALLS_TAGGED:
    case CALLS_NESTED:
        put_mark(g, span_of(t->name));
        put(g, f->attributes ? "\"\\\" index=\\\"\" [0-9]{1,2} \"\\\"\" "
                             : "gap ");
        return put_tagged_args(t, g);
    default:
        put_mark(g, span_of(t->name));
        return put_list_args(t, g);
    }
}

/* ---- rules for the tools of a request ------------------------------------ */

static pl_status check_name(const struct tool *t)
{
    struct span s = span_of(t->name);
    bool colon = t->c->f->calls == CALLS_NAMED && strchr(t->name, ':');

    if (s.n > 0 && span_name(s) == s.n && !colon)
        return PL_OK;
    return refuse(t, "name",
                  colon ? "must not contain a colon, which separates names in "
                          "this model's calls"
                        : "must be of letters, digits, _, -, ., : and /");
}

static pl_status put_tool(struct caller *c, const struct ends *ends, int i,
                          const json_t *function)
{
    struct tool t = {.c = c,
                     .i = i,
                     .name =
                         json_string_value(json_object_get(function, "name"))};
    json_t *schema = json_object_get(function, "parameters");
    struct gbnf_text g = {0};
    pl_status s;

    t.name = t.name ? t.name : "";
    t.schema = json_object_size(schema) > 0
                   ? json_incref(schema)
                   : json_pack("{s:s, s:{}, s:b}", "type", "object",
                               "properties", "additionalProperties", 0);
    s = t.schema ? check_name(&t) : err_no_memory(c->err, "a grammar");
    if (s == PL_OK && ends->n > 0)
        s = check_marks(&t, ends);
    if (s == PL_OK)
        s = put_call(&t, &g);
    if (s == PL_OK) {
        gbnf_print(c->out, "call%d ::= ", i);
        gbnf_put_bytes(c->out, g.s, g.n);
        put(c->out, "\n");
    }
    c->out->failed |= g.failed;
    c->out->too_large |= g.too_large;
    gbnf_text_fini(&g);
    json_decref(t.required);
    json_decref(t.schema);
    return s;
}

static pl_status put_tools(struct caller *c, const struct ends *ends,
                           const json_t *tools, const char *only, int *n)
{
    json_t *tool;
    size_t i;

    *n = 0;
    json_array_foreach (tools, i, tool) {
        json_t *function = json_object_get(tool, "function");
        const char *name;

        function = function ? function : tool;
        name = json_string_value(json_object_get(function, "name"));
        if (only && (!name || strcmp(name, only) != 0))
            continue;
        if (*n == MOST_TOOLS)
            return err_set(
                c->err, PL_UNSUPPORTED,
                "more than %d tools for a forced call; give fewer, or name one",
                MOST_TOOLS);
        PL_TRY(put_tool(c, ends, (*n)++, function));
        if (only)
            break;
    }
    if (*n > 0)
        return PL_OK;
    return err_set(c->err, PL_BAD_ARGUMENT,
                   "a tool call is required, but there is no tool%s%.100s%s",
                   only ? " named \"" : "", only ? only : "", only ? "\"" : "");
}

/* ---- rules for a reply that is a document, not a call -------------------- */

static pl_status put_document(struct caller *c)
{
    json_error_t e = {.line = -1};
    json_t *schema =
        wide_json_marked(c->content, strlen(c->content),
                         JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &e);
    pl_status s;

    if (!schema && json_error_code(&e) == json_error_out_of_memory)
        return err_no_memory(c->err, "a schema");
    if (!schema)
        return err_set(c->err, PL_BAD_ARGUMENT,
                       "the schema: invalid JSON: line %d, column %d: %s",
                       e.line, e.column, e.text);
    s = schema_put_rule(c->out, &c->sums, schema, schema, "the schema",
                        &c->document, c->err);
    json_decref(schema);
    return s;
}

/* ---- the whole grammar --------------------------------------------------- */

/* Appends the rule "one": any one of the n calls, with the markers before and
 * after each call. */
static void put_one(const struct caller *c, int n)
{
    const struct reply_format *f = c->f;

    put(c->out, "one ::= ");
    if (f->each)
        put_apart(c->out, outer(f, f->calls_open));
    if (f->calls != CALLS_PYTHON && !f->listed)
        put_mark(c->out, f->call_open);
    if (f->calls == CALLS_OBJECT && !f->listed)
        put(c->out, "gap ");
    put(c->out, "(");
    for (int i = 0; i < n; i++)
        gbnf_print(c->out, "%scall%d", i > 0 ? " | " : "", i);
    put(c->out, ") ");
    if (f->calls != CALLS_PYTHON && !f->listed)
        put_apart(c->out, f->call_close);
    if (f->each)
        put_apart(c->out, outer(f, f->calls_close));
    put(c->out, "\n");
}

/* Appends the rule "root": one or more calls, with the markers before the first
 * and after the last, or instead the document. If `single`, exactly one
 * call. */
static void put_root(const struct caller *c, bool single)
{
    const struct reply_format *f = c->f;
    bool list = f->calls == CALLS_PYTHON || f->listed;

    put(c->out, "root ::= ");
    if (c->content)
        gbnf_print(c->out, "gap s%u ws | ", (unsigned)c->document);
    put(c->out, "gap ");
    if (f->attributes) { /* Before its calls a message may have a content part,
                            which is empty here. */
        put(c->out, "(");
        put_mark(c->out, f->content_open);
        put_mark(c->out, f->content_close);
        put(c->out, ")? ");
    }
    if (f->again.n > 0) { /* after reasoning */
        put(c->out, "(");
        put_mark(c->out, f->again);
        put(c->out, "gap)? ");
    }
    if (!f->each)
        put_apart(c->out, outer(f, f->calls_open));
    if (list) {
        put_mark(c->out, f->call_open);
        put(c->out, "gap \"[\" gap one");
        put(c->out, single ? "" : " (\",\" gap one)*");
        put(c->out, " gap \"]\" ");
        put_apart(c->out, f->call_close);
    } else {
        put(c->out, "one ");
        if (!single) {
            put(c->out, "(gap ");
            if (f->name_key.n > 0 && f->calls == CALLS_NAMED)
                put_mark(c->out, f->again);
            put(c->out, "one)* ");
        }
    }
    if (!f->each)
        put_apart(c->out, outer(f, f->calls_close));
    put(c->out, "\n");
}

/* Appends the rule "root" for gpt-oss: a message with a call or with the
 * document, optionally after a message of reasoning. */
static void put_channels(const struct caller *c, int n)
{
    struct ends e = {0};

    ends_add(&e, span_of("<|end|>"));
    put(c->out, "thought ::= ");
    put_without(c->out, &e, "\\x00", NULL);
    put(c->out, "\nroot ::= (\"<|channel|>analysis<|message|>\" thought "
                "\"<|end|><|start|>assistant\")? (");
    if (c->content)
        gbnf_print(c->out, "\"<|channel|>final<|message|>\" s%u ws | ",
                   (unsigned)c->document);
    for (int i = 0; i < n; i++)
        gbnf_print(c->out, "%scall%d", i > 0 ? " | " : "", i);
    put(c->out, ")\n");
}

/* Appends the rule "root" for messages with recipients: calls or the document,
 * optionally after a message of reasoning. */
static void put_messages(const struct caller *c, int n, bool single)
{
    struct ends e = {0};

    ends_add(&e, span_of("<|eom|>"));
    put(c->out, "thought ::= ");
    put_without(c->out, &e, "\\x00", NULL);
    put(c->out, "\none ::= ");
    for (int i = 0; i < n; i++)
        gbnf_print(c->out, "%scall%d", i > 0 ? " | " : "", i);
    put(c->out, "\nroot ::= (\" to=self<|message|>\" thought "
                "\"<|eom|><|start|>assistant\")? (");
    if (c->content)
        gbnf_print(c->out, "\" to=user<|message|>\" s%u ws | ",
                   (unsigned)c->document);
    put(c->out,
        single ? "one)\n" : "one (\"<|eom|><|start|>assistant\" one)*)\n");
}

/* Appends the rule "root" for messages after a line with their recipient. */
static void put_lines(const struct caller *c, int n, bool single)
{
    put(c->out, "one ::= ");
    for (int i = 0; i < n; i++)
        gbnf_print(c->out, "%scall%d", i > 0 ? " | " : "", i);
    put(c->out, "\nroot ::= \">>>\"? (");
    if (c->content)
        gbnf_print(c->out, "\"all\\n\" s%u ws | ", (unsigned)c->document);
    put(c->out, single ? "one)\n" : "one (\"\\n\"? \">>>\" one)*)\n");
}

/* Appends the rules that all calls share, such as those of blanks and strings.
 * Sets *e to the markers that end an unquoted text. Returns false if a text
 * that does not contain these markers cannot be described. */
static bool put_common(const struct caller *c, struct ends *e)
{
    const struct reply_format *f = c->f;
    bool python = !f->channels && f->calls == CALLS_PYTHON;
    bool texts =
        !f->channels && (f->calls == CALLS_TAGGED || f->calls == CALLS_NESTED ||
                         f->calls == CALLS_QUOTED);

    put(c->out, "gap ::= [ \\t\\n]{0,4}\nid ::= [a-zA-Z0-9]{9}\n");
    if (!texts && !python) {
        schema_put_common(c->out, &schema_strings);
        return true;
    }
    if (!ends_add(e, f->call_close) || !ends_add(e, f->quote) ||
        !ends_add(e, f->value_close) || e->n == 0 ||
        span_contains(e->mark[0], span_of("\"")))
        return false;
    put_strings(c->out, e, python);
    if (texts) {
        put(c->out, "text ::= ");
        put_without(c->out, e, "\\x00", NULL);
        put(c->out, "\n");
        put_other_text(c->out, e);
    }
    return true;
}

static pl_status write_all(struct caller *c, const json_t *tools,
                           const char *only, bool single)
{
    struct ends ends = {0};
    int n;

    c->addressed = c->f->addressed;
    if (c->addressed)
        c->f = &reply_addressed;
    else if (!c->f->channels && c->f->calls == CALLS_NONE)
        c->f = &reply_unmarked;
    if (!put_common(c, &ends))
        return err_set(
            c->err, PL_UNSUPPORTED,
            "a tool call cannot be forced: the markers of the model's chat "
            "template cannot be distinguished from text");
    PL_TRY(put_tools(c, &ends, tools, only, &n));
    if (c->content)
        PL_TRY(put_document(c));
    if (c->addressed) {
        put_messages(c, n, single);
    } else if (c->f->recipients) {
        put_lines(c, n, single);
    } else if (c->f->channels) {
        put_channels(c, n);
    } else {
        put_one(c, n);
        put_root(c, single);
    }
    if (c->out->too_large)
        return err_set(c->err, PL_UNSUPPORTED,
                       "the grammar of the tools' schemas exceeds 1 MiB; make "
                       "them smaller");
    return c->out->failed ? err_no_memory(c->err, "a grammar") : PL_OK;
}

pl_status call_grammar_write(struct gbnf_text *out,
                             const struct reply_format *f, const char *tools,
                             const char *only, bool single, const char *content,
                             pl_err *err)
{
    struct caller c = {.f = f, .out = out, .content = content, .err = err};
    locale_t before = numeral_begin();
    json_error_t e = {.line = -1};
    json_t *list =
        wide_json_marked(tools, strlen(tools), JSON_REJECT_DUPLICATES, &e);
    pl_status s;

    *out = (struct gbnf_text){0};
    if (json_is_array(list))
        s = write_all(&c, list, only, single);
    else if (!list && json_error_code(&e) == json_error_out_of_memory)
        s = err_no_memory(err, "tools");
    else
        s = err_set(err, PL_BAD_ARGUMENT,
                    "tools: '%.20s' is not a JSON list; give [...] with an "
                    "object for each",
                    tools);
    numeral_end(before);
    json_decref(list);
    if (s != PL_OK)
        gbnf_text_fini(out);
    return s;
}
