/* Converts calls and literals in Python's notation to JSON; see reply_python.h.
 * Some templates do not escape quotes inside strings. So a quote ends a string
 * only if the text after it may follow a string. */
#include "chat/reply_python.h"

#include "chat/json_span.h"
#include "chat/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DEEP = 64 };

static void skip(struct span *t, size_t n)
{
    *t = span_from(*t, n);
    *t = span_from(*t, span_blanks(*t));
}

static bool take(struct span *t, char c)
{
    if (t->n == 0 || t->s[0] != c)
        return false;
    skip(t, 1);
    return true;
}

/* Returns true if the text `t` may follow a string: it is empty or begins with
 * a delimiter such as a comma. */
static bool is_past_string(struct span t)
{
    t = span_from(t, span_blanks(t));
    return t.n == 0 || strchr(",)]}:", t.s[0]);
}

/* Decodes the escape \xNN, \uNNNN or \UNNNNNNNN at the beginning of `t` and
 * appends the character to `out`. Returns the length of the escape; 0 if there
 * is none. */
static size_t escaped_code(struct span t, struct reply_text *out)
{
    const size_t n = t.s[1] == 'x' ? 4 : t.s[1] == 'u' ? 6 : 10;
    char digits[9] = {0}, *end;
    uint32_t c;
    char utf8[4];

    if (!strchr("xuU", t.s[1]) || t.n < n)
        return 0;
    memcpy(digits, t.s + 2, n - 2);
    c = (uint32_t)strtoul(digits, &end, 16);
    if (end != digits + n - 2 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    reply_add(out, (struct span){utf8, unicode_put(utf8, c)});
    return n;
}

/* Decodes the backslash escape at the beginning of `t`, appends the result to
 * `out`, and returns the length of the escape. An unknown escape is appended
 * unchanged. */
static size_t escape(struct span t, struct reply_text *out)
{
    static const char from[] = "nrt'\"\\\n", to[] = "\n\r\t'\"\\";
    const char *p = t.n > 1 && t.s[1] ? strchr(from, t.s[1]) : NULL;
    size_t n;

    if (!p && t.n > 1 && t.s[1] && (n = escaped_code(t, out)) > 0)
        return n;
    if (!p) {
        reply_add(out, (struct span){t.s, 1});
        return 1;
    }
    reply_add(out, (struct span){to + (p - from), p[0] != '\n'});
    return 2;
}

static bool string(struct span *t, struct reply_text *made)
{
    const char quote = t->s[0];
    struct reply_text text = {0};
    size_t i = 1, n;

    for (; i < t->n; i += n) {
        n = 1;
        if (t->s[i] == quote && is_past_string(span_from(*t, i + 1)))
            break;
        if (t->s[i] == '\\')
            n = escape(span_from(*t, i), &text);
        else
            reply_add(&text, (struct span){t->s + i, 1});
    }
    reply_add_string(made, (struct span){text.s, text.n});
    made->failed = made->failed || text.failed;
    free(text.s);
    if (i >= t->n)
        return false;
    skip(t, i + 1);
    return true;
}

/* Removes a number, True, False or None from the beginning of *t, and appends
 * it to `made` as JSON. */
static bool word(struct span *t, struct reply_text *made)
{
    static const char *const words[][2] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    struct span w = *t, json;

    for (w.n = 0; w.n < t->n && !strchr(",)]}: \t\r\n", t->s[w.n]);)
        w.n++;
    json = w;
    for (int i = 0; i < 3; i++)
        if (span_equal(w, span_of(words[i][0])))
            json = span_of(words[i][1]);
    if (json.n == 0 || !json_is_valid(json, &made->failed))
        return false;
    reply_add(made, json);
    skip(t, w.n);
    return true;
}

/* Removes the key of a dict and the colon after it from the beginning of *t,
 * and appends the key to `made`. It is a string, or a word. */
static bool key(struct span *t, struct reply_text *made)
{
    bool part;
    const size_t n = json_bare_key(*t, &part);

    if (n > 0) {
        reply_add_string(made, (struct span){t->s, n});
        skip(t, n);
    } else if (t->n == 0 || !strchr("'\"", t->s[0]) || !string(t, made)) {
        return false;
    }
    return take(t, ':');
}

static bool value(struct span *t, struct reply_text *made, int depth);

/* Removes the items of a list, tuple or dict, and the bracket `close` after
 * them, from the beginning of *t. Appends them to `made` as JSON. */
static bool items(struct span *t, struct reply_text *made, char close,
                  int depth)
{
    bool dict = close == '}';

    skip(t, 1);
    reply_add(made, span_of(dict ? "{" : "["));
    for (int n = 0; !take(t, close); n++) {
        if (n > 0 && !take(t, ','))
            return false;
        if (n > 0 && take(t, close)) /* there was a comma after the last item */
            break;
        if (n > 0)
            reply_add(made, span_of(", "));
        if (dict && !key(t, made))
            return false;
        if (dict)
            reply_add(made, span_of(": "));
        if (!value(t, made, depth - 1))
            return false;
    }
    reply_add(made, span_of(dict ? "}" : "]"));
    return true;
}

static bool value(struct span *t, struct reply_text *made, int depth)
{
    if (t->n == 0 || depth == 0 || made->failed)
        return false;
    switch (t->s[0]) {
    case '\'':
    case '"':
        return string(t, made);
    case '{':
        return items(t, made, '}', depth);
    case '[':
        return items(t, made, ']', depth);
    case '(':
        return items(t, made, ')', depth);
    default:
        return word(t, made);
    }
}

bool python_value(struct span *t, struct reply_text *made)
{
    return value(t, made, MOST_DEEP) && !made->failed;
}

/* Removes the parenthesis that closes a call from the beginning of *t. Returns
 * true if it is there, or if the text ends and `open` says that the model left
 * the parenthesis out. */
static bool take_end(struct span *t, bool open)
{
    return take(t, ')') || (open && t->n == 0);
}

/* Removes a call in Python's notation from the beginning of *t, and appends its
 * arguments to `made` as a JSON object. out->name points into *t,
 * out->arguments into `made`. If `open`, the closing parenthesis may be missing
 * at the end. Returns false if *t does not begin with a call. */
static bool take_call(struct span *t, bool open, struct reply_text *made,
                      struct reply_call *out)
{
    const size_t from = made->n;

    *out = (struct reply_call){.name = {t->s, span_name(*t)}};
    skip(t, out->name.n);
    if (out->name.n == 0 || !take(t, '('))
        return false;
    reply_add(made, span_of("{"));
    for (int n = 0; !take_end(t, open); n++) {
        struct span key;

        if (n > 0 && !take(t, ','))
            return false;
        if (n > 0 && take_end(t, open))
            break;
        key = (struct span){t->s, span_name(*t)};
        skip(t, key.n);
        if (key.n == 0 || !take(t, '='))
            return false;
        if (n > 0)
            reply_add(made, span_of(", "));
        reply_add_string(made, key);
        reply_add(made, span_of(": "));
        if (!python_value(t, made))
            return false;
    }
    reply_add(made, span_of("}"));
    if (made->failed)
        return false;
    out->arguments = reply_added(made, from);
    return true;
}

bool python_calls(struct span t, bool cut, struct reply_text *made,
                  python_take_fn *each, void *user)
{
    int n_call = 0;

    t = span_trim(t);
    if (t.n > 1 && t.s[0] == '[')
        t = span_trim(
            (struct span){t.s + 1, t.n - (t.s[t.n - 1] == ']' ? 2 : 1)});
    for (int pass = 0; pass < 2; pass++) {
        struct span rest = t;
        int n = 0;

        while (pass == 0 ? rest.n > 0 : n < n_call) {
            struct reply_call c;

            made->n = 0;
            if (!take_call(&rest, !cut, made, &c) ||
                !each(user, &c, pass == 0)) {
                if (cut && n > 0)
                    break;
                return false;
            }
            n++;
            if (take(&rest, ',') && rest.n == 0 && !cut)
                return false;
        }
        n_call = n;
    }
    return n_call > 0 && !made->failed;
}
