/* Converts JSON with slips of models to JSON: strings and constants of Python,
 * keys without quotes, control characters in strings, commas before a closing
 * bracket, closing brackets that are missing. Used by the files that parse
 * calls; see reply_call.h. */
#include "chat/reply_call.h"

#include <stdlib.h>
#include <string.h>

static void add(struct reply_text *t, const char *s)
{
    reply_add(t, span_of(s));
}

/* Appends a character of a string. A backslash is added with the character that
 * follows it. */
static void add_in_string(struct reply_text *t, struct span c,
                          const struct json_scan *at)
{
    const bool control = (unsigned char)c.s[0] < ' ';
    struct reply_text quoted = {0};

    if (at->escaped && c.s[0] != '\'' && c.s[0] != 'x')
        add(t, control ? "\\\\" : "\\");
    if (at->escaped && c.s[0] == 'x') { /* an escape of Python */
        add(t, "\\u00");
    } else if (control || (!at->escaped && c.s[0] == '"' && at->quote != '"')) {
        reply_add_string(&quoted, c);
        if (quoted.n > 2)
            reply_add(t, (struct span){quoted.s + 1, quoted.n - 2});
        t->failed = t->failed || quoted.failed;
        free(quoted.s);
    } else if (!at->escaped && c.s[0] == at->quote) {
        add(t, "\"");
    } else if (at->escaped || c.s[0] != '\\') {
        reply_add(t, c);
    }
}

/* Appends a character outside strings. `before` is the one before it that is
 * not a blank. What begins like None but is another word stays invalid. */
static void add_outside(struct reply_text *t, struct span c, char before,
                        struct json_scan *at)
{
    static const char none[] = "None";
    const bool begins = before && strchr("[,:", before);

    if (at->n_none > 0 && c.s[0] == none[at->n_none]) {
        at->n_none = at->n_none < 3 ? at->n_none + 1 : 0;
        return;
    }
    if (at->n_none > 0)
        reply_add(t, (struct span){none, (size_t)at->n_none});
    at->n_none = begins && c.s[0] == 'N';
    if (at->n_none > 0)
        add(t, "null");
    else if (begins && (c.s[0] == 'T' || c.s[0] == 'F'))
        add(t, c.s[0] == 'T' ? "t" : "f");
    else
        reply_add(t, c);
}

/* Returns true if `t` begins with a comma that a closing bracket follows. */
static bool is_needless_comma(struct span t)
{
    if (t.s[0] != ',')
        return false;
    t = span_from(t, 1);
    t = span_from(t, span_blanks(t));
    return t.n > 0 && (t.s[0] == '}' || t.s[0] == ']');
}

/* Appends the key without quotes at the beginning of `s`, with quotes, and
 * advances the scan past it. Returns its length; 0 if there is none. */
static size_t add_key(struct reply_text *t, struct span s, struct json_scan *at)
{
    bool part;
    size_t n = 0;

    if (!at->in_string && (at->before == '{' || at->before == ','))
        n = json_bare_key(s, &part);
    if (n > 0)
        reply_add_string(t, (struct span){s.s, n});
    for (size_t i = 0; i < n; i++)
        json_step(at, s.s[i]);
    return n;
}

void reply_add_escaped(struct reply_text *t, struct span s,
                       struct json_scan *at)
{
    for (size_t i = 0; i < s.n; i++) {
        struct span c = {s.s + i, 1};
        const char before = at->before;
        const size_t n = add_key(t, span_from(s, i), at);

        if (n > 0) {
            i += n - 1;
            continue;
        }
        if (at->in_string) {
            add_in_string(t, c, at);
            json_step(at, c.s[0]);
            continue;
        }
        json_step(at, c.s[0]);
        if (at->in_string)
            add(t, "\"");
        else if (!is_needless_comma(span_from(s, i)))
            add_outside(t, c, before, at);
    }
}

int reply_add_closed(struct reply_text *out, struct span t)
{
    enum { MOST_DEEP = 64 };
    char close[MOST_DEEP];
    int depth = 0, n_added = 0;
    struct json_scan at = {0};

    for (size_t i = 0; i < t.n; i++) {
        const char c = t.s[i];
        const bool outside = !at.in_string;

        json_step(&at, c);
        if (outside && (c == '{' || c == '[')) {
            if (depth == MOST_DEEP)
                return -1;
            close[depth++] = c == '{' ? '}' : ']';
        } else if (outside && (c == '}' || c == ']')) {
            while (depth > 0 && close[depth - 1] != c) {
                reply_add(out, (struct span){&close[--depth], 1});
                n_added++;
            }
            if (depth-- == 0)
                return -1;
        }
        reply_add(out, (struct span){&c, 1});
    }
    while (depth > 0) {
        reply_add(out, (struct span){&close[--depth], 1});
        n_added++;
    }
    return at.in_string || out->failed ? -1 : n_added;
}

static bool is_object(struct span t, struct reply_text *made)
{
    return t.n > 0 && t.s[0] == '{' && json_is_valid(t, &made->failed);
}

/* Converts the object `t`, and sets *out to the copy in `made`. */
static bool convert(struct span t, struct reply_text *made, struct span *out)
{
    struct json_scan at = {0};
    struct reply_text copy = {0};
    const size_t from = made->n;
    struct span fixed;

    reply_add_escaped(&copy, t, &at);
    fixed = (struct span){copy.s, copy.n};
    if (!copy.failed && is_object(fixed, made)) {
        /* Reserves space by adding the copy twice. *out is the first copy,
         * which would move if `made` grew later. */
        reply_add(made, fixed);
        reply_add(made, fixed);
        made->n = made->failed ? from : from + fixed.n;
        *out = (struct span){made->s + from, fixed.n};
    } else {
        fixed.n = 0;
    }
    made->failed = made->failed || copy.failed;
    free(copy.s);
    return fixed.n > 0 && !made->failed;
}

bool reply_is_object(struct span *t, struct reply_text *made)
{
    struct span object = *t;

    if (object.n == 0 || object.s[0] != '{')
        return false;
    /* braces twice, as in templates that escape them */
    if (span_begins(object, span_of("{{")) && span_ends(object, span_of("}}")))
        object = (struct span){object.s + 1, object.n - 2};
    if (!is_object(object, made))
        return !made->failed && convert(object, made, t);
    *t = object;
    return true;
}
