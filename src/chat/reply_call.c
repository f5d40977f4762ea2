/* Parses the text of a call; see reply_call.h. */
#include "chat/reply_call.h"

#include "chat/json_span.h"
#include "chat/reply_python.h"

#include <stdlib.h>
#include <string.h>

/* ---- text buffer --------------------------------------------------------- */

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

/* ---- declarations of tools ----------------------------------------------- */

static bool named(const json_t *j, struct span name)
{
    return json_is_string(j) && span_equal((struct span){json_string_value(j),
                                                         json_string_length(j)},
                                           name);
}

/* Returns the JSON Schema type that `tool` declares for its argument `key`, or
 * NULL if it declares none. */
static const json_t *type_of(const json_t *tools, struct span tool,
                             struct span key)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i);
        const json_t *f = json_object_get(t, "function");
        const json_t *of;

        f = f ? f : t;
        of = json_object_get(json_object_get(f, "parameters"), "properties");
        of = json_object_getn(of, key.s, key.n);
        if (named(json_object_get(f, "name"), tool))
            return json_object_get(of, "type");
    }
    return NULL;
}

/* ---- notations ----------------------------------------------------------- */

static bool is_object(struct span t, struct reply_text *made)
{
    return t.n > 0 && t.s[0] == '{' && json_is_valid(t, &made->failed);
}

/* Decodes `t`, a JSON string that contains the arguments as JSON, such as
 * "{\"a\": 1}". Sets *out to the arguments, in `made`. Returns false if the
 * string does not contain an object. */
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
    *out = span_trim((struct span){made->s + from, made->n - from});
    return is_object(*out, made);
}

static bool read_object(const struct reply_format *f, struct span t,
                        struct reply_text *made, struct reply_call *out)
{
    struct json_walk w = json_walk(t);
    struct span key, value;

    out->arguments = span_of("{}");
    if (!is_object(t, made))
        return false;
    if (f->name_key.n == 0) { /* {"f": {...}}: the only key is the name */
        if (!json_walk_next(&w, &out->name, &out->arguments) ||
            json_walk_next(&w, &key, &value))
            return false;
    }
    while (json_walk_next(&w, &key, &value)) {
        if (span_equal(key, f->name_key) && value.s[0] == '"')
            out->name = (struct span){value.s + 1, value.n - 2};
        else if (span_equal(key, f->arguments_key))
            out->arguments = value;
        else if (span_equal(key, span_of("id")) && value.s[0] == '"')
            out->id = (struct span){value.s + 1, value.n - 2};
    }
    if (out->arguments.s[0] == '"' &&
        !unwrap(out->arguments, made, &out->arguments))
        return false;
    return out->name.n > 0 && span_name(out->name) == out->name.n &&
           out->arguments.s[0] == '{';
}

/* Returns the function's name without the number in f:0, which counts calls. If
 * names are identifiers, returns f for functions.f:0, too. */
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

/* Parses the name and the identifier of a CALLS_NAMED call. Advances *t to the
 * arguments. Returns false if there is no name. */
static bool read_head(const struct reply_format *f, struct span *t,
                      struct reply_call *out)
{
    struct span rest = *t, gap, id;

    out->name = (struct span){rest.s, span_name(rest)};
    rest = span_from(rest, out->name.n);
    if (f->name_open.n > 0) { /* the identifier comes before the name */
        if (!span_begins(rest, f->name_open))
            return false;
        out->id = out->name;
        rest = span_from(rest, f->name_open.n);
        out->name = (struct span){rest.s, span_name(rest)};
        rest = span_from(rest, out->name.n);
    }
    gap = rest;
    gap.n = span_find(rest, span_of("{"));
    *t = span_from(rest, gap.n);
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
                       struct reply_text *made, struct reply_call *out)
{
    if (!read_head(f, &t, out))
        return false;
    out->arguments = span_trim(t);
    return is_object(out->arguments, made);
}

/* Returns the length of the value at the beginning of `t`. The value ends
 * before the first f->value_close that is followed by another key or by the end
 * of `t`. Returns t.n if there is none. */
static size_t value_end(const struct reply_format *f, struct span t)
{
    for (size_t at = 0; at < t.n; at++) {
        struct span next;

        at += span_find(span_from(t, at), f->value_close);
        if (at >= t.n)
            break;
        next = span_from(t, at + f->value_close.n);
        next = span_from(next, span_blanks(next));
        if (next.n == 0 || span_begins(next, f->key_open))
            return at;
    }
    return t.n;
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

/* Appends a value that is written without quotes as JSON. `type` is the type
 * that the tool declares, or NULL. The value becomes a string if the type is
 * "string". Otherwise it is appended unchanged if it is valid JSON, or
 * converted if it is Python and has a type, or else becomes a string. */
static void add_value(struct reply_text *made, struct span value,
                      const json_t *type)
{
    struct span bare = span_trim(value);

    if (named(type, span_of("string"))) {
        reply_add_string(made, value);
        return;
    }
    if (bare.n > 0 && bare.s[0] != '"' && json_is_valid(bare, &made->failed))
        reply_add(made, bare);
    else if (!type || !add_python(made, bare))
        reply_add_string(made, value);
}

/* Removes a key and the marker that opens its value from the beginning of *t.
 * Sets *json if this marker is f->json_open, that is, if the value is not a
 * string. */
static bool take_key(const struct reply_format *f, struct span *t,
                     struct span *key, bool *json)
{
    size_t at = span_find(*t, f->value_open);
    size_t other = span_find(*t, f->json_open);

    *json = f->json_open.n > 0 && other < at;
    at = *json ? other : at;
    *key = span_trim((struct span){t->s, at});
    if (at == t->n || key->n == 0)
        return false;
    *t = span_from(*t, at + (*json ? f->json_open.n : f->value_open.n));
    return true;
}

/* Returns the text inside <![CDATA[...]]>, or the value itself. */
static struct span plain_text(struct span value)
{
    const struct span open = span_of("<![CDATA["), close = span_of("]]>");

    if (value.n < open.n + close.n || !span_begins(value, open) ||
        !span_equal(span_from(value, value.n - close.n), close))
        return value;
    return (struct span){value.s + open.n, value.n - open.n - close.n};
}

/* Removes a value and the marker that closes it from the beginning of *t. Sets
 * *value, without the blanks that the template puts around values. */
static bool take_value(const struct reply_format *f, struct span *t,
                       struct span *value)
{
    *value = (struct span){t->s, value_end(f, *t)};
    if (value->n == t->n)
        return false;
    *t = span_from(*t, value->n + f->value_close.n);
    if (f->value_lead.n > 0 && span_begins(*value, f->value_lead))
        *value = span_from(*value, f->value_lead.n);
    if (value->n >= f->value_tail.n &&
        span_equal(span_from(*value, value->n - f->value_tail.n),
                   f->value_tail))
        value->n -= f->value_tail.n;
    return true;
}

/* Removes a key and its value from the beginning of *t, and appends them to
 * `made` as a member of a JSON object. */
static bool take_argument(const struct reply_format *f, struct span *t,
                          const json_t *tools, struct span name,
                          struct reply_text *made)
{
    struct span key, value;
    bool json;

    if (!span_begins(*t, f->key_open))
        return false;
    *t = span_from(*t, f->key_open.n);
    if (!take_key(f, t, &key, &json) || !take_value(f, t, &value))
        return false;
    reply_add_string(made, key);
    add(made, ": ");
    if (f->json_open.n > 0 && !json)
        reply_add_string(made, value);
    else
        add_value(made, plain_text(value), type_of(tools, name, key));
    return true;
}

static bool read_tagged(const struct reply_format *f, struct span t,
                        const json_t *tools, struct reply_text *made,
                        struct reply_call *out)
{
    const size_t from = made->n;

    t = span_trim(span_from(t, out->name.n));
    if (f->name_close.n > 0 && !span_begins(t, f->name_close))
        return false;
    t = span_from(t, f->name_close.n);
    add(made, "{");
    for (int i = 0; t = span_from(t, span_blanks(t)), t.n > 0; i++) {
        add(made, i > 0 ? ", " : "");
        if (!take_argument(f, &t, tools, out->name, made))
            return false;
    }
    add(made, "}");
    if (made->failed)
        return false;
    out->arguments = (struct span){made->s + from, made->n - from};
    return true;
}

/* Parses a CALLS_QUOTED call: JSON with other quotes around strings and no
 * quotes around keys. Converts its arguments to JSON. */
static bool read_quoted(const struct reply_format *f, struct span t,
                        struct reply_text *made, struct reply_call *out)
{
    const size_t from = made->n;

    t = span_trim(span_from(t, out->name.n));
    while (t.n > 0) {
        size_t n = 1;

        if (span_begins(t, f->quote)) {
            struct span text = span_from(t, f->quote.n);

            n = span_find(text, f->quote);
            if (n == text.n)
                return false;
            reply_add_string(made, (struct span){text.s, n});
            n += 2 * f->quote.n;
        } else if ((t.s[0] == '{' || t.s[0] == ',') && t.n > 1) {
            /* A bare word before a colon is a key. */
            struct span key;

            reply_add(made, (struct span){t.s, 1});
            while (n < t.n && !strchr(":,{}[]\"<", t.s[n]))
                n++;
            key = span_trim((struct span){t.s + 1, n - 1});
            if (n < t.n && t.s[n] == ':' && key.n > 0)
                reply_add_string(made, key);
            else
                n = 1;
        } else {
            reply_add(made, (struct span){t.s, 1});
        }
        t = span_from(t, n);
    }
    if (made->failed)
        return false;
    out->arguments = (struct span){made->s + from, made->n - from};
    return is_object(out->arguments, made);
}

bool reply_call_read(const struct reply_format *f, struct span t,
                     const json_t *tools, struct reply_text *made,
                     struct reply_call *out)
{
    *out = (struct reply_call){0};
    t = span_trim(t);
    if (f->calls == CALLS_OBJECT)
        return read_object(f, t, made, out);
    if (f->calls == CALLS_NAMED)
        return read_named(f, t, made, out);
    out->name = (struct span){t.s, span_name(t)};
    if (out->name.n == 0)
        return false;
    if (f->calls == CALLS_TAGGED)
        return read_tagged(f, t, tools, made, out);
    return read_quoted(f, t, made, out);
}

/* ---- incomplete calls ---------------------------------------------------- */

/* Removes a JSON string from the beginning of *t and sets *out to it, without
 * its quotes. Returns false if it is incomplete or not a string. */
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

/* Removes a JSON value from the beginning of *t and sets *out to it, without
 * the quotes of a string. Returns false if it is incomplete. */
static bool take_json(struct span *t, struct span *out)
{
    struct json_scan scan = {0};
    size_t n = 0;

    if (t->n > 0 && t->s[0] == '"')
        return take_string(t, out);
    if (t->n > 0 && (t->s[0] == '{' || t->s[0] == '['))
        n = json_scan(&scan, *t) ? scan.at : t->n;
    else
        while (n < t->n && !strchr(",}", t->s[n]))
            n++;
    *out = (struct span){t->s, n};
    *t = span_from(*t, n);
    return t->n > 0;
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
        if (f->name_key.n == 0 || span_equal(key, f->arguments_key)) {
            out->arguments = t;
            return t.n > 0 && t.s[0] == '{';
        }
        text = t.n > 0 && t.s[0] == '"';
        if (!take_json(&t, &value))
            return false;
        if (span_equal(key, f->name_key) && text)
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
    }
    *at = t.n - rest.n;
    return rest.n > 0 && out->name.n > 0 && span_name(out->name) == out->name.n;
}

bool reply_is_tool(const json_t *tools, struct span name)
{
    const json_t *t;
    size_t i;

    json_array_foreach (tools, i, t) {
        const json_t *f = json_object_get(t, "function");

        if (named(json_object_get(f ? f : t, "name"), name))
            return true;
    }
    return false;
}
