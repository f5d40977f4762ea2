/* Parses the text of a tool call in a model's reply; see reply_call.h. */
#include "chat/reply_call.h"

#include "chat/json_span.h"
#include "chat/reply_python.h"

#include <stdlib.h>
#include <string.h>

/* ---- growing texts ------------------------------------------------------- */

void reply_add(struct reply_text *t, struct span s)
{
    if (t->failed || s.n == 0)
        return;
    if (s.n >= t->cap - t->n) {
        size_t cap = 2 * (t->n + s.n) + 64;
        char *more = realloc(t->s, cap);

        t->failed = !more;
        if (!more)
            return;
        t->s = more;
        t->cap = cap;
    }
    memcpy(t->s + t->n, s.s, s.n);
    t->n += s.n;
    t->s[t->n] = '\0';
}

static void add(struct reply_text *t, const char *s)
{
    reply_add(t, span_of(s));
}

void reply_add_string(struct reply_text *t, struct span s)
{
    static const char digits[] = "0123456789abcdef";

    add(t, "\"");
    for (size_t i = 0, from = 0; i <= s.n; i++) {
        unsigned char c = i < s.n ? (unsigned char)s.s[i] : 0;

        if (i < s.n && c >= ' ' && c != '"' && c != '\\')
            continue;
        if (i > from)
            reply_add(t, (struct span){s.s + from, i - from});
        from = i + 1;
        if (i == s.n)
            break;
        if (c == '"' || c == '\\')
            reply_add(t, (struct span){(char[]){'\\', (char)c}, 2});
        else if (c == '\n')
            add(t, "\\n");
        else
            reply_add(t, (struct span){(char[]){'\\', 'u', '0', '0',
                                                digits[c >> 4], digits[c & 15]},
                                       6});
    }
    add(t, "\"");
}

/* ---- reading the declarations of tools ----------------------------------- */

static bool named(const json_t *j, struct span name)
{
    return json_is_string(j) && span_equal((struct span){json_string_value(j),
                                                         json_string_length(j)},
                                           name);
}

/* Returns the JSON Schema of the arguments of `tool` in the list of tools; NULL
 * if there is none. */
static const json_t *schema_of(const json_t *tools, struct span tool)
{
    const json_t *t;
    size_t i;

    json_array_foreach (tools, i, t) {
        const json_t *f = json_object_get(t, "function");

        f = f ? f : t;
        if (named(json_object_get(f, "name"), tool)) {
            const json_t *p = json_object_get(f, "parameters");

            return p ? p : json_object_get(f, "input_schema");
        }
    }
    return NULL;
}

/* Returns the JSON Schema of property `key` in the schema of an object; NULL if
 * it has no such property. */
static const json_t *property(const json_t *schema, struct span key)
{
    return json_object_getn(json_object_get(schema, "properties"), key.s,
                            key.n);
}

/* Returns true if the "type" of a JSON Schema is `name`, or is a list that
 * contains it. */
static bool has_type(const json_t *schema, const char *name)
{
    const json_t *type = json_object_get(schema, "type"), *one;
    size_t i;

    json_array_foreach (type, i, one) {
        if (named(one, span_of(name)))
            return true;
    }
    return named(type, span_of(name));
}

/* ---- parsing calls in each notation -------------------------------------- */

/* Decodes `t`, a JSON string that contains the arguments of a call as JSON
 * text, such as "{\"a\": 1}". Appends the text to `made` and sets *out to it.
 * Returns false if the string does not contain an object. */
static bool unwrap(struct span t, struct reply_text *made, struct span *out)
{
    json_error_t e = {.line = -1};
    json_t *j = json_loadb(t.s, t.n, JSON_DECODE_ANY, &e);
    size_t from = made->n;

    if (!j && json_error_code(&e) == json_error_out_of_memory)
        made->failed = true;
    if (json_is_string(j))
        reply_add(made,
                  (struct span){json_string_value(j), json_string_length(j)});
    json_decref(j);
    if (made->failed || made->n == from)
        return false;
    *out = span_trim(reply_added(made, from));
    return reply_is_object(out, made);
}

/* The keys by which a JSON object may be recognized as a tool call, in addition
 * to the keys in the template's notation. */
static const char *const name_keys[] = {"name", "function", "tool_name", NULL};
static const char *const argument_keys[] = {"arguments", "parameters", "args",
                                            "input", NULL};
static const char *const other_keys[] = {"id", "type", "function",
                                         "tool_call_id", NULL};

/* Returns true if `key` equals `own` or one of `list`. If `part`, it is enough
 * that one of these begins with `key`. */
static bool is_key(struct span key, struct span own, const char *const *list,
                   bool part)
{
    bool found =
        part ? span_begins(own, key) : own.n > 0 && span_equal(key, own);

    for (; *list && !found; list++)
        found = part ? span_begins(span_of(*list), key)
                     : span_equal(key, span_of(*list));
    return found;
}

/* Appends to `made` a JSON object of the members of `object`, a call without
 * arguments, that the schema of its arguments declares. Some models write them
 * beside the name. Sets *out to it; leaves *out as it is if there are none. */
static void gather_arguments(struct span object, const json_t *schema,
                             struct reply_text *made, struct span *out)
{
    struct json_walk w = json_walk(object);
    const size_t from = made->n;
    struct span key, value;

    while (json_walk_next(&w, &key, &value)) {
        if (!property(schema, key) ||
            is_key(key, (struct span){0}, name_keys, false))
            continue;
        /* no blanks: the space that reply_is_object reserves suffices */
        add(made, made->n == from ? "{\"" : ",\"");
        reply_add(made, key);
        add(made, "\":");
        reply_add(made, value);
    }
    if (made->n == from)
        return;
    add(made, "}");
    if (!made->failed)
        *out = reply_added(made, from);
}

static bool read_object(const struct reply_format *f, struct span t,
                        const json_t *tools, struct reply_text *made,
                        struct reply_call *out)
{
    struct span key, value, inner = {0};
    struct json_walk w;
    bool exact = false, more = false;

    if (!reply_is_object(&t, made))
        return false;
    w = json_walk(t);
    /* Notation {"f": {...}}, where the only key is the name of the tool. */
    if (f->name_key.n == 0) {
        if (!json_walk_next(&w, &out->name, &out->arguments) ||
            json_walk_next(&w, &key, &value))
            return false;
    }
    while (json_walk_next(&w, &key, &value)) {
        bool text = value.s[0] == '"';

        if (text && (span_equal(key, f->name_key) ||
                     (out->name.n == 0 &&
                      is_key(key, f->name_key, name_keys, false)))) {
            out->name = (struct span){value.s + 1, value.n - 2};
        } else if (!exact &&
                   is_key(key, f->arguments_key, argument_keys, false)) {
            out->arguments = value;
            exact = span_equal(key, f->arguments_key);
        } else if (text && span_equal(key, span_of("id"))) {
            out->id = (struct span){value.s + 1, value.n - 2};
        } else if (span_equal(key, span_of("function"))) {
            inner = value;
        } else {
            more |= !is_key(key, (struct span){0}, other_keys, false);
        }
    }
    if (out->name.n == 0 && inner.n > 0 && inner.s[0] == '{') {
        struct span id = out->id;
        bool ok = read_object(f, inner, tools, made, out);

        out->id = out->id.n > 0 ? out->id : id;
        return ok;
    }
    /* Without a marker and arguments, an object that has other members is a
     * call only if a tool is declared with its name. */
    if (out->arguments.n == 0 &&
        (f->guess || (more && f->calls_open.n == 0 && f->call_open.n == 0 &&
                      !reply_is_tool(tools, out->name))))
        return false;
    if (out->arguments.n == 0)
        gather_arguments(t, schema_of(tools, out->name), made, &out->arguments);
    if (out->arguments.n == 0 || span_equal(out->arguments, span_of("null")) ||
        span_equal(out->arguments, span_of("\"\"")))
        out->arguments = span_of("{}");
    if (out->arguments.s[0] == '"' &&
        !unwrap(out->arguments, made, &out->arguments))
        return false;
    return out->name.n > 0 && span_name(out->name) == out->name.n &&
           out->arguments.s[0] == '{';
}

struct span reply_name_at(struct span t)
{
    if (t.n > 0 && (t.s[0] == '"' || t.s[0] == '\''))
        t = span_from(t, 1);
    return (struct span){t.s, span_name(t)};
}

bool reply_may_be_object(const struct reply_format *f, struct span t)
{
    struct span key;
    bool part;

    if (t.s[0] == '[')
        t = span_from(t, 1 + span_blanks(span_from(t, 1)));
    if (t.n == 0 || t.s[0] != '{')
        return t.n == 0;
    t = span_from(t, 1 + span_blanks(span_from(t, 1)));
    if (!f->guess || t.n == 0)
        return true;
    if (t.s[0] == '"' || t.s[0] == '\'') {
        key = span_from(t, 1);
        key.n = span_find(key, (struct span){t.s, 1});
        part = key.n + 1 == t.n;
    } else {
        key = (struct span){t.s, json_bare_key(t, &part)};
        key = part ? span_trim(t) : key;
        if (key.n == 0)
            return false;
    }
    return is_key(key, f->name_key, name_keys, part) ||
           is_key(key, f->arguments_key, argument_keys, part) ||
           is_key(key, (struct span){0}, other_keys, part);
}

/* Removes the name of a tool from the beginning of *t, with the quotes around
 * it, which some models write although their notation has none. Returns an
 * empty name if there is none, or if the closing quote is missing. */
static struct span take_tool_name(struct span *t)
{
    const struct span name = reply_name_at(*t);
    const size_t n_quote = (size_t)(name.s - t->s);
    struct span rest = span_from(*t, n_quote + name.n);

    if (n_quote > 0 && (rest.n == 0 || rest.s[0] != t->s[0]))
        return (struct span){t->s, 0};
    *t = span_from(rest, n_quote);
    return name;
}

/* Returns the name of a function without the number that counts calls: f for
 * f:0. If the notation's names are identifiers, also returns f for
 * functions.f:0. */
static struct span bare_name(const struct reply_format *f, struct span name)
{
    const struct span functions = span_of("functions.");
    size_t colon = span_find(name, span_of(":"));

    if (colon > 0)
        name.n = colon;
    if (f->id_named && span_begins(name, functions))
        name = span_from(name, functions.n);
    return name;
}

/* Returns true if `gap`, the text between the name and the arguments of a call,
 * fits the marker `args`. If f->exact, it must equal the marker. Otherwise
 * other text, such as an identifier, may precede the marker. The marker may
 * lack its first or last character, a bracket. */
static bool is_gap(const struct reply_format *f, struct span gap,
                   struct span args)
{
    if (args.n > 2 && (span_equal(gap, span_from(args, 1)) ||
                       span_equal(gap, (struct span){args.s, args.n - 1})))
        return true;
    return f->exact ? span_equal(gap, args)
                    : span_ends(gap, args) || span_ends(args, gap);
}

/* Parses the name and the identifier of a tool call in the notation
 * CALLS_NAMED. Advances *t to the arguments. Returns false if there is no
 * name. */
static bool read_head(const struct reply_format *f, struct span *t,
                      struct reply_call *out)
{
    struct span rest = *t, gap, id;

    out->name = take_tool_name(&rest);
    /* With this marker, the identifier or the name of a server precedes the
     * name. */
    if (f->name_open.n > 0) {
        if (!span_begins(rest, f->name_open))
            return false;
        if (!f->no_id)
            out->id = out->name;
        rest = span_from(rest, f->name_open.n);
        out->name = take_tool_name(&rest);
    }
    gap = rest;
    gap.n = span_find(rest, span_of("{"));
    *t = span_from(rest, gap.n);
    if (!is_gap(f, span_trim(gap), span_trim(f->args_open)))
        return false;
    id = span_from(gap, span_find(gap, f->id_open));
    if (f->id_open.n > 0 && id.n > 0) {
        id = span_from(id, f->id_open.n);
        out->id = (struct span){id.s, span_name(id)};
    }
    if (f->id_named)
        out->id = out->name;
    out->name = bare_name(f, out->name);
    return out->name.n > 0;
}

static bool read_named(const struct reply_format *f, struct span t,
                       const json_t *tools, struct reply_text *made,
                       struct reply_call *out)
{
    struct span name;

    if (!read_head(f, &t, out))
        return false;
    name = out->name;
    out->arguments = span_trim(t);
    if (f->name_key.n > 0) {
        struct span object = out->arguments;

        out->arguments = (struct span){0};
        return read_object(f, object, tools, made, out) &&
               span_equal(name, out->name);
    }
    return reply_is_object(&out->arguments, made);
}

/* Removes the marker `mark`, and blanks before it, from the beginning of *t.
 * Returns false if the marker is not there. */
static bool take_mark(struct span *t, struct span mark)
{
    struct span rest = span_from(*t, span_blanks(*t));

    if (mark.n == 0 || !span_begins(rest, mark))
        return false;
    *t = span_from(rest, mark.n);
    return true;
}

/* Returns `t` without the quotes around it, if it has some. */
static struct span unquoted(struct span t)
{
    return t.n > 2 && strchr("\"'", t.s[0]) && t.s[t.n - 1] == t.s[0]
               ? (struct span){t.s + 1, t.n - 2}
               : t;
}

/* Maximum number of bytes in which the marker after a key is searched for. */
enum { MOST_KEY = 1024 };

/* The arguments of a call in the notation CALLS_TAGGED, while they are read. */
struct tagged {
    const struct reply_format *f;
    const json_t *schema; /* of all arguments; NULL if unknown */
    bool loose;           /* the last value may lack its closing marker */
    bool next;            /* the call may lack its closing marker */
    /* The end of the value that was read last, if its closing marker is taken
     * to be its own; NULL if no value was read. n_unclosed: number of values up
     * to there, from the present one on, that lack their closing markers. */
    const char *closed;
    int64_t n_unclosed;
};

/* Returns true if `t`, the text after an argument, shows that the call has
 * ended although its closing marker is missing: another call follows, or the
 * marker after all calls. */
static bool is_past_call(const struct reply_format *f, struct span t)
{
    const bool closed = take_mark(&t, f->calls_close);

    take_mark(&t, f->calls_open);
    return take_mark(&t, f->call_open) || closed;
}

/* Returns the length of the argument value at the beginning of `t`. A value may
 * contain the marker f->value_close. So the value ends at the first such marker
 * after which another key follows, or the end of `t`, or if a->next what
 * follows a call. Returns t.n if there is no such marker. */
static size_t value_end(const struct tagged *a, struct span t)
{
    const struct reply_format *f = a->f;

    for (size_t at = 0; at < t.n; at++) {
        struct span next;

        at += span_find(span_from(t, at), f->value_close);
        if (at >= t.n)
            break;
        next = span_from(t, at + f->value_close.n);
        next = span_from(next, span_blanks(next));
        if (next.n == 0 || span_begins(next, f->key_open) ||
            (a->next && is_past_call(f, next)))
            return at;
    }
    return t.n;
}

/* Searches `t` for the first marker that opens a value, where the blanks
 * between the marker's tags may differ. Returns its offset, and sets *n to its
 * length. Sets *json if it is f->json_open. Returns t.n if there is none. */
static size_t find_value(const struct reply_format *f, struct span t, size_t *n,
                         bool *json)
{
    for (size_t at = 0; at < t.n; at++) {
        const struct span rest = span_from(t, at);

        *json = false;
        if ((*n = span_begins_loosely(rest, f->value_open)) > 0)
            return at;
        *json = f->json_open.n > 0;
        if (*json && (*n = span_begins_loosely(rest, f->json_open)) > 0)
            return at;
    }
    *n = 0;
    *json = false;
    return t.n;
}

/* Returns true if `t` begins with the marker and name of an argument that the
 * schema declares. */
static bool is_declared(const struct reply_format *f, struct span t,
                        const json_t *schema)
{
    struct span key;
    size_t n;
    bool json;

    if (!span_begins(t, f->key_open))
        return false;
    key = span_from(t, f->key_open.n);
    key.n = key.n < MOST_KEY ? key.n : MOST_KEY;
    key.n = find_value(f, key, &n, &json);
    return property(schema, unquoted(span_trim(key))) != NULL;
}

/* Counts, in text `t`, the lines that begin with the marker of a declared
 * argument, less the markers that close values. Stops at the first such line
 * before which there are as many closing markers, and sets *at to its offset;
 * unless `at` is NULL, or there is no such line. */
static int64_t count_unclosed(const struct tagged *a, struct span t, size_t *at)
{
    const struct span open = a->f->key_open, close = a->f->value_close;
    int64_t more = 0;

    for (size_t i = 0; i < t.n; i++) {
        struct span rest = span_from(t, i);

        if (t.s[i] == close.s[0] && span_begins(rest, close))
            more--;
        if (t.s[i] != open.s[0] || i == 0 || t.s[i - 1] != '\n' ||
            !is_declared(a->f, rest, a->schema))
            continue;
        if (at && more == 0) {
            *at = i;
            break;
        }
        more++;
    }
    return more;
}

/* Appends `value` as JSON if it is a list, dict, bool or None in Python's
 * notation. Otherwise appends nothing and returns false. */
static bool add_python(struct reply_text *made, struct span value)
{
    const size_t from = made->n;

    if (value.n == 0 || !strchr("{[TFN", value.s[0]))
        return false;
    if (python_value(&value, made) && value.n == 0)
        return true;
    made->n = from;
    return false;
}

/* Appends `value` as JSON if it becomes a list or an object, which `schema`
 * allows, by the brackets that it lacks and the conversions of
 * reply_add_escaped. Otherwise appends nothing and returns false. */
static bool add_mended(struct reply_text *made, struct span value,
                       const json_t *schema)
{
    struct reply_text closed = {0}, copy = {0};
    struct json_scan at = {0};
    bool ok = value.n > 0 && (value.s[0] == '{' || value.s[0] == '[') &&
              has_type(schema, value.s[0] == '{' ? "object" : "array") &&
              reply_add_closed(&closed, value) >= 0;

    if (ok)
        reply_add_escaped(&copy, reply_added(&closed, 0), &at);
    ok = ok && !copy.failed &&
         json_is_valid(reply_added(&copy, 0), &made->failed);
    if (ok)
        reply_add(made, reply_added(&copy, 0));
    made->failed = made->failed || closed.failed || copy.failed;
    free(closed.s);
    free(copy.s);
    return ok;
}

/* Returns true if an argument value without quotes is a string according to its
 * JSON Schema. It is if the schema's only type is "string", besides "null", and
 * the value is not null. */
static bool is_string(const json_t *schema, struct span value)
{
    static const char *const others[] = {"number", "integer", "boolean",
                                         "object", "array"};

    if (!has_type(schema, "string") ||
        (has_type(schema, "null") &&
         (span_equal(span_trim(value), span_of("null")) ||
          span_equal(span_trim(value), span_of("None")))))
        return false;
    for (int i = 0; i < 5; i++)
        if (has_type(schema, others[i]))
            return false;
    return true;
}

/* Appends an argument value without quotes to `made` as JSON. `schema` is its
 * JSON Schema, or NULL. If the schema says that the value is a string, a string
 * is appended. Otherwise valid JSON is appended unchanged, and a Python value,
 * or JSON with slips, is converted if the schema has a type. Any other value
 * becomes a string. */
static void add_value(struct reply_text *made, struct span value,
                      const json_t *schema)
{
    struct span bare = span_trim(value);

    if (is_string(schema, value)) {
        reply_add_string(made, value);
        return;
    }
    if (bare.n > 0 && bare.s[0] != '"' && json_is_valid(bare, &made->failed))
        reply_add(made, bare);
    else if (!json_object_get(schema, "type") ||
             (!add_python(made, bare) && !add_mended(made, bare, schema)))
        reply_add_string(made, value);
}

/* The type of a value, as the marker before it shows it. */
enum value_type { TYPE_UNKNOWN, TYPE_STRING, TYPE_OTHER };

/* Removes a key and the type after it from the beginning of *t, if a type is
 * between markers there. Neither of them has the character with which the
 * marker after it begins. */
static bool take_typed_key(const struct reply_format *f, struct span *t,
                           struct span *key, enum value_type *type)
{
    const size_t at = span_find(*t, (struct span){f->type_open.s, 1});
    const size_t n = span_begins_loosely(span_from(*t, at), f->type_open);
    struct span rest = span_from(*t, at + n);
    const size_t end = span_find(rest, (struct span){f->type_close.s, 1});
    const size_t n_close =
        span_begins_loosely(span_from(rest, end), f->type_close);

    *key = span_trim((struct span){t->s, at});
    if (n == 0 || n_close == 0 || key->n == 0)
        return false;
    *type = span_equal(span_trim((struct span){rest.s, end}), span_of("string"))
                ? TYPE_STRING
                : TYPE_OTHER;
    *t = span_from(rest, end + n_close);
    return true;
}

/* Removes a key and the marker that opens its value from the beginning of *t.
 * Sets *type to what the marker shows: it is f->json_open, or names a type. */
static bool take_key(const struct reply_format *f, struct span *t,
                     struct span *key, enum value_type *type)
{
    size_t n, at;
    bool json;

    if (f->type_open.n > 0 && f->type_close.n > 0 &&
        take_typed_key(f, t, key, type)) {
        *key = unquoted(*key);
        return true;
    }
    at = find_value(f, *t, &n, &json);
    *type = TYPE_UNKNOWN;
    *key = (struct span){t->s, at};
    if (f->attributes) {
        key->n = span_find(*key, span_of("\""));
        json = !span_contains((struct span){t->s + key->n, at - key->n},
                              span_of("\"string\""));
    }
    if (f->json_open.n > 0 || f->attributes)
        *type = json ? TYPE_OTHER : TYPE_STRING;
    *key = unquoted(span_trim(*key));
    if (at == t->n || key->n == 0)
        return false;
    *t = span_from(*t, at + n);
    return true;
}

/* Returns the text inside <![CDATA[...]]>; `value` itself if it does not have
 * this form. */
static struct span plain_text(struct span value)
{
    const struct span open = span_of("<![CDATA["), close = span_of("]]>");

    if (value.n < open.n + close.n || !span_begins(value, open) ||
        !span_ends(value, close))
        return value;
    return (struct span){value.s + open.n, value.n - open.n - close.n};
}

/* Returns the length of the value at the beginning of `t`. *closed is that of
 * the text up to the marker that closes it or, if its own marker is missing, a
 * later value: a line in this text begins with the marker of a declared
 * argument, and it has fewer markers that close values than those. Values up to
 * the same marker share its search and the count, so that reading all of them
 * takes linear time. */
static size_t value_length(struct tagged *a, struct span t, size_t *closed)
{
    size_t n;

    if (!a->closed || t.s > a->closed) {
        *closed = value_end(a, t);
        a->closed = t.s + *closed;
        a->n_unclosed = count_unclosed(a, (struct span){t.s, *closed}, NULL);
    }
    n = *closed = (size_t)(a->closed - t.s);
    if (a->n_unclosed > 0)
        count_unclosed(a, (struct span){t.s, *closed}, &n);
    a->n_unclosed -= n < *closed; /* the argument that follows */
    return n;
}

/* Removes a value and the marker that closes it from the beginning of *t. Sets
 * *value, without the blanks that the template puts around values. The marker
 * may be missing before another argument, unless a call ends in between, and if
 * a->loose at the end of *t. */
static bool take_value(struct tagged *a, struct span *t, struct span *value)
{
    const struct reply_format *f = a->f;
    const size_t all = t->n;
    size_t closed;
    const size_t n = value_length(a, *t, &closed);

    if (n == all && !a->loose)
        return false;
    *value = (struct span){t->s, n};
    if (n < closed && span_contains(*value, f->call_close))
        return false;
    *t = span_from(*t, n + (n < closed ? 0 : f->value_close.n));
    /* the line break before the argument, or before the marker that closes the
     * call */
    if (n < closed ||
        (n == all && f->value_tail.n == 0 && span_ends(*value, span_of("\n"))))
        value->n -= value->n > 0;
    if (f->value_lead.n > 0 && span_begins(*value, f->value_lead))
        *value = span_from(*value, f->value_lead.n);
    if (value->n >= f->value_tail.n &&
        span_equal(span_from(*value, value->n - f->value_tail.n),
                   f->value_tail))
        value->n -= f->value_tail.n;
    return true;
}

/* Removes an argument's key and value from the beginning of *t, and appends
 * them to `made` as a member of a JSON object. */
static bool take_argument(struct tagged *a, struct span *t,
                          struct reply_text *made)
{
    struct span key, value;
    enum value_type type;

    if (!span_begins(*t, a->f->key_open))
        return false;
    *t = span_from(*t, a->f->key_open.n);
    if (!take_key(a->f, t, &key, &type) || !take_value(a, t, &value))
        return false;
    reply_add_string(made, key);
    add(made, ": ");
    if (type == TYPE_STRING)
        reply_add_string(made, value);
    else
        add_value(made, plain_text(value), property(a->schema, key));
    return true;
}

/* Removes a tool's name and the marker after it from the beginning of *t. */
static bool take_name(const struct reply_format *f, struct span *t,
                      struct span *name)
{
    struct span rest = *t;

    *name = take_tool_name(&rest);
    rest = span_trim(rest);
    if (name->n == 0)
        return false;
    if (f->attributes)
        rest = span_from(rest, span_find(rest, f->name_close));
    if (f->name_close.n > 0 && !span_begins(rest, f->name_close))
        return false;
    *t = span_from(rest, f->name_close.n);
    return true;
}

static bool read_tagged(const struct reply_format *f, struct span t,
                        const json_t *tools, bool loose,
                        struct reply_text *made, struct reply_call *out)
{
    struct tagged a = {.f = f, .loose = loose};
    const size_t from = made->n;

    if (!take_name(f, &t, &out->name))
        return false;
    a.schema = schema_of(tools, out->name);
    add(made, "{");
    for (int i = 0; t = span_from(t, span_blanks(t)), t.n > 0; i++) {
        add(made, i > 0 ? ", " : "");
        if (!take_argument(&a, &t, made))
            return false;
    }
    add(made, "}");
    if (made->failed)
        return false;
    out->arguments = reply_added(made, from);
    return true;
}

size_t reply_call_length(const struct reply_format *f, struct span t,
                         const json_t *tools, struct reply_text *made)
{
    struct tagged a = {.f = f, .next = true};
    struct span rest = t, name;

    if (f->calls != CALLS_TAGGED) {
        const size_t n = span_find(t, f->call_open);
        const size_t outer = span_find(t, f->calls_open);

        return n < outer ? n : outer;
    }
    if (!take_name(f, &rest, &name))
        return t.n;
    a.schema = schema_of(tools, name);
    while (rest = span_from(rest, span_blanks(rest)),
           span_begins(rest, f->key_open)) {
        made->n = 0;
        if (!take_argument(&a, &rest, made))
            return t.n;
    }
    return is_past_call(f, rest) ? (size_t)(rest.s - t.s) : t.n;
}

/* Appends the beginning of an argument that `t` ends within. Appends nothing if
 * there is no value yet. */
static void add_begun(const struct reply_format *f, struct span t,
                      const json_t *schema, bool first, struct reply_text *made)
{
    struct span key, mark = f->value_close;
    enum value_type type;

    t = span_from(t, span_begins(t, f->key_open) ? f->key_open.n : t.n);
    if (!take_key(f, &t, &key, &type))
        return;
    if (span_begins(t, f->value_lead))
        t = span_from(t, f->value_lead.n);
    while (mark.n > 0 && !span_ends(t, mark))
        mark.n--;
    t.n -= mark.n;
    if (mark.n > 0 && span_ends(t, f->value_tail))
        t.n -= f->value_tail.n;
    if (t.n == 0)
        return;
    add(made, first ? "" : ", ");
    reply_add_string(made, key);
    add(made, ": ");
    if (type == TYPE_STRING || is_string(property(schema, key), t)) {
        reply_add_string(made, t);
        made->n--; /* the quote */
    } else {
        reply_add(made, span_trim(t));
    }
}

bool reply_call_read_begun(const struct reply_format *f, struct span t,
                           const json_t *tools, struct reply_text *made,
                           struct reply_call *out)
{
    struct tagged a = {.f = f};
    const size_t from = made->n;

    t = span_from(t, span_blanks(t));
    *out = (struct reply_call){0};
    if (f->calls != CALLS_TAGGED || !take_name(f, &t, &out->name))
        return false;
    a.schema = schema_of(tools, out->name);
    add(made, "{");
    for (bool first = true;; first = false) {
        const size_t end = made->n;
        struct span rest = span_from(t, span_blanks(t));

        t = rest;
        add(made, first ? "" : ", ");
        if (!take_argument(&a, &rest, made)) {
            made->n = end;
            add_begun(f, t, a.schema, first, made);
            break;
        }
        t = rest;
    }
    /* other text shows that it is a call in another notation */
    if (made->failed ||
        (!span_begins(t, f->key_open) && !span_begins(f->key_open, t) &&
         !span_begins(f->call_close, t)))
        return false;
    out->arguments = reply_added(made, from);
    return true;
}

/* ---- CALLS_NESTED -------------------------------------------------------- */

enum { MOST_DEEP = 32 };

/* Returns true if `t` begins with the opening tag of an argument <k>v</k>,
 * which blanks may precede. */
static bool begins_element(const struct reply_format *f, struct span t)
{
    struct span rest = t;

    return take_mark(&rest, f->key_open) && !take_mark(&t, f->value_close);
}

/* Returns the offset in `t` of the tag that closes the element with the name
 * `key`; t.n if there is none. */
static size_t find_closing(const struct reply_format *f, struct span t,
                           struct span key)
{
    for (size_t at = 0; at < t.n; at++) {
        struct span rest;

        at += span_find(span_from(t, at), f->value_close);
        rest = span_from(t, at + f->value_close.n);
        if (at < t.n && span_begins(rest, key) &&
            span_begins(span_from(rest, key.n), f->value_open))
            return at;
    }
    return t.n;
}

/* Removes all elements <k>v</k> from the beginning of *t, and appends them to
 * `made` as a JSON object. Appends a JSON list instead if `schema` says so, or
 * if there is no schema and the first element is an <item>. */
static bool take_elements(const struct reply_format *f, struct span *t,
                          const json_t *schema, int depth,
                          struct reply_text *made);

/* Removes the value of the element `key`, and the tag that closes the element,
 * from the beginning of *t. Appends the value to `made`. It consists of
 * elements or is a text. */
static bool take_body(const struct reply_format *f, struct span *t,
                      struct span key, const json_t *schema, int depth,
                      struct reply_text *made)
{
    size_t n = find_closing(f, *t, key);
    struct span text = {t->s, n};

    if (begins_element(f, *t) && !has_type(schema, "string")) {
        if (depth == 0 || !take_elements(f, t, schema, depth - 1, made))
            return false;
        *t = span_from(*t, span_blanks(*t));
        n = find_closing(f, *t, key);
        if (n != 0)
            return false;
    } else if (n == t->n) {
        return false;
    } else if (span_trim(text).n == 0 && has_type(schema, "array")) {
        add(made, "[]");
    } else if (span_trim(text).n == 0 && has_type(schema, "object")) {
        add(made, "{}");
    } else {
        add_value(made, text, schema);
    }
    *t = span_from(*t, n + f->value_close.n + key.n + f->value_open.n);
    return true;
}

static bool take_elements(const struct reply_format *f, struct span *t,
                          const json_t *schema, int depth,
                          struct reply_text *made)
{
    bool list = has_type(schema, "array");

    for (int i = 0;; i++) {
        const json_t *of;
        struct span key;

        if (!begins_element(f, *t)) {
            add(made, i > 0 ? "" : list ? "[" : "{");
            add(made, list ? "]" : "}");
            return true;
        }
        take_mark(t, f->key_open);
        key = (struct span){t->s, span_find(*t, f->value_open)};
        if (key.n == 0 || key.n == t->n)
            return false;
        list |= i == 0 && !schema && span_equal(key, span_of("item"));
        add(made, i > 0 ? ", " : list ? "[" : "{");
        if (!list) {
            reply_add_string(made, key);
            add(made, ": ");
        }
        *t = span_from(*t, key.n + f->value_open.n);
        of = list ? json_object_get(schema, "items") : property(schema, key);
        if (!take_body(f, t, key, of, depth, made))
            return false;
    }
}

static bool read_nested(const struct reply_format *f, struct span t,
                        const json_t *tools, struct reply_text *made,
                        struct reply_call *out)
{
    const size_t from = made->n;

    out->name = take_tool_name(&t);
    if ((f->name_close.n > 0 && !take_mark(&t, f->name_close)) ||
        !take_elements(f, &t, schema_of(tools, out->name), MOST_DEEP, made) ||
        span_trim(t).n > 0 || made->failed)
        return false;
    out->arguments = reply_added(made, from);
    return true;
}

/* Removes a JSON string from the beginning of *t, and sets *out to it without
 * its quotes. Returns false if there is no complete string. */
static bool take_string(struct span *t, struct span *out)
{
    size_t n = 1;

    if (t->n == 0 || t->s[0] != '"')
        return false;
    while (n < t->n && t->s[n] != '"')
        n += t->s[n] == '\\' ? 2 : 1;
    if (n >= t->n)
        return false;
    *out = (struct span){t->s + 1, n - 1};
    *t = span_from(*t, n + 1);
    return true;
}

/* ---- calls in the notation CALLS_QUOTED ---------------------------------- */

/* If `t` begins with one of Python's constants True, False and None, appends it
 * to `made` as JSON and returns its length. Otherwise returns 0. */
static size_t add_constant(struct reply_text *made, struct span t)
{
    static const char *const words[][2] = {
        {"None", "null"}, {"True", "true"}, {"False", "false"}};

    for (int i = 0; i < 3; i++)
        if (span_begins(t, span_of(words[i][0]))) {
            add(made, words[i][1]);
            return strlen(words[i][0]);
        }
    return 0;
}

/* Parses a tool call in the notation CALLS_QUOTED: JSON with other quotes
 * around strings and none around keys. Converts its arguments to JSON. If
 * `loose`, closing brackets may be missing. */
static bool read_quoted(const struct reply_format *f, struct span t, bool loose,
                        struct reply_text *made, struct reply_call *out)
{
    const size_t from = made->n;
    struct reply_text closed = {0};

    out->name = take_tool_name(&t);
    t = span_trim(t);
    while (t.n > 0) {
        size_t n = 1;

        if (span_begins(t, f->quote)) {
            struct span text = span_from(t, f->quote.n);

            n = span_find(text, f->quote);
            if (n == text.n)
                return false;
            reply_add_string(made, (struct span){text.s, n});
            n += 2 * f->quote.n;
        } else if (t.s[0] == '"') { /* a string with the quotes of JSON */
            struct span text, rest = t;

            if (!take_string(&rest, &text))
                return false;
            n = t.n - rest.n;
            reply_add(made, (struct span){t.s, n});
        } else if ((t.s[0] == '{' || t.s[0] == ',') && t.n > 1) {
            /* a word without quotes before a colon is a key */
            struct span key;

            reply_add(made, (struct span){t.s, 1});
            while (n < t.n && !strchr(":,{}[]\"<", t.s[n]))
                n++;
            key = span_trim((struct span){t.s + 1, n - 1});
            if (n < t.n && t.s[n] == ':' && key.n > 0)
                reply_add_string(made, key);
            else
                n = 1;
        } else if ((n = add_constant(made, t)) == 0) {
            reply_add(made, (struct span){t.s, n = 1});
        }
        t = span_from(t, n);
    }
    if (made->failed)
        return false;
    out->arguments = reply_added(made, from);
    if (loose && reply_add_closed(&closed, out->arguments) >= 0) {
        made->n = from;
        reply_add(made, (struct span){closed.s, closed.n});
        out->arguments = reply_added(made, from);
    }
    made->failed = made->failed || closed.failed;
    free(closed.s);
    return !made->failed && reply_is_object(&out->arguments, made);
}

bool reply_call_read(const struct reply_format *f, struct span t,
                     const json_t *tools, bool loose, struct reply_text *made,
                     struct reply_call *out)
{
    *out = (struct reply_call){0};
    t = span_trim(t);
    if (f->calls == CALLS_OBJECT)
        return read_object(f, t, tools, made, out);
    if (f->calls == CALLS_NAMED)
        return read_named(f, t, tools, made, out);
    if (reply_name_at(t).n == 0)
        return false;
    if (f->calls == CALLS_TAGGED)
        return read_tagged(f, t, tools, loose, made, out);
    if (f->calls == CALLS_NESTED)
        return read_nested(f, t, tools, made, out);
    return read_quoted(f, t, loose, made, out);
}

/* Returns the number of times that `mark` occurs in t. */
static int64_t count(struct span t, struct span mark)
{
    int64_t n = 0;
    size_t at;

    while ((at = span_find(t, mark)) < t.n) {
        t = span_from(t, at + mark.n);
        n++;
    }
    return n;
}

int64_t reply_count_values(const struct reply_format *f, struct span t)
{
    if (f->calls == CALLS_QUOTED)
        return count(t, f->quote);
    return f->calls == CALLS_TAGGED
               ? count(t, f->key_open) - count(t, f->value_close)
               : 0;
}

bool reply_call_may_end(const struct reply_format *f, struct span t)
{
    struct span name;

    t = span_trim(t);
    return f->calls != CALLS_TAGGED || span_ends(t, f->value_close) ||
           (t.n <= MOST_KEY && take_name(f, &t, &name) && span_trim(t).n == 0);
}

bool reply_call_has_value(const struct reply_format *f, struct span t,
                          const json_t *tools)
{
    struct span name;

    t = span_from(t, span_blanks(t));
    t.n = t.n < MOST_KEY ? t.n : MOST_KEY;
    return f->calls == CALLS_TAGGED && take_name(f, &t, &name) &&
           span_begins(span_from(t, span_blanks(t)), f->key_open) &&
           reply_is_tool(tools, name);
}

/* ---- calls that are still incomplete ------------------------------------- */

/* Removes a JSON value from the beginning of *t, and sets *out to it; a string
 * without its quotes. Returns false if the value may be incomplete, or is not
 * one. */
static bool take_json(struct span *t, struct span *out)
{
    struct json_scan scan = {.to_marker = true};
    size_t n = 0;

    if (t->n > 0 && t->s[0] == '"')
        return take_string(t, out);
    if (t->n > 0 && (t->s[0] == '{' || t->s[0] == '['))
        n = json_scan(&scan, *t) ? scan.at : t->n;
    else
        while (n < t->n && !strchr(",}{][\"'<`", t->s[n]))
            n++;
    *out = (struct span){t->s, n};
    *t = span_from(*t, n);
    return t->n > 0 && strchr(" \t\r\n,}", t->s[0]);
}

static void skip_blanks(struct span *t)
{
    *t = span_from(*t, span_blanks(*t));
}

static bool object_begins(const struct reply_format *f, struct span t,
                          struct reply_call *out)
{
    struct span key, value;

    for (char open = '{'; t.n > 0 && t.s[0] == open; open = ',') {
        bool text;

        t = span_from(t, 1);
        skip_blanks(&t);
        if (!take_string(&t, &key))
            return false;
        skip_blanks(&t);
        if (t.n == 0 || t.s[0] != ':')
            return false;
        t = span_from(t, 1);
        skip_blanks(&t);
        if (f->name_key.n == 0)
            out->name = key;
        if (f->name_key.n == 0 ||
            is_key(key, f->arguments_key, argument_keys, false)) {
            out->arguments = t;
            return t.n > 0 && t.s[0] == '{';
        }
        text = t.n > 0 && t.s[0] == '"';
        if (!take_json(&t, &value))
            return false;
        if (text &&
            (span_equal(key, f->name_key) ||
             (out->name.n == 0 && is_key(key, f->name_key, name_keys, false))))
            out->name = value;
        else if (span_equal(key, span_of("id")) && text)
            out->id = value;
        skip_blanks(&t);
    }
    return false;
}

bool reply_call_begins(const struct reply_format *f, struct span t,
                       struct reply_call *out, size_t *at)
{
    struct span rest = span_from(t, span_blanks(t));

    *out = (struct reply_call){0};
    if (f->calls == CALLS_OBJECT) {
        if (!object_begins(f, rest, out))
            return false;
        rest = out->arguments;
    } else if (f->calls != CALLS_NAMED || span_name(rest) == rest.n ||
               !read_head(f, &rest, out)) {
        return false;
    } else if (f->name_key.n > 0) {
        struct span name = out->name;

        if (!object_begins(f, rest, out) || !span_equal(name, out->name))
            return false;
        rest = out->arguments;
    }
    *at = t.n - rest.n;
    return rest.n > 0 && out->name.n > 0 && span_name(out->name) == out->name.n;
}

/* Returns true if a tool has the name `name` or, if `part`, a name that begins
 * with it. */
static bool has_tool(const json_t *tools, struct span name, bool part)
{
    const json_t *t;
    size_t i;

    json_array_foreach (tools, i, t) {
        const json_t *f = json_object_get(t, "function");
        const json_t *own = json_object_get(f ? f : t, "name");

        if (named(own, name) ||
            (part && json_is_string(own) &&
             span_begins(span_of(json_string_value(own)), name)))
            return true;
    }
    return false;
}

bool reply_is_tool(const json_t *tools, struct span name)
{
    return has_tool(tools, name, false);
}

bool reply_begins_tool(const json_t *tools, struct span name)
{
    return has_tool(tools, name, true);
}

bool reply_may_be_tool(const json_t *tools, struct span t)
{
    const struct span name = {t.s, span_name(t)};

    return name.n == t.n ? reply_begins_tool(tools, name)
                         : reply_is_tool(tools, name);
}
