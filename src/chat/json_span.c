/* Finds values and members in JSON text without parsing it; see json_span.h. */
#include "chat/json_span.h"

#include "base/numeral.h"

#include <jansson.h>
#include <string.h>

void json_step(struct json_scan *s, char c)
{
    if (s->in_string) {
        if (s->escaped)
            s->escaped = false;
        else if (c == '\\')
            s->escaped = true;
        else
            s->in_string = c != s->quote;
        return;
    }
    if (c == '"' || (c == '\'' && s->before && strchr("{[,:", s->before))) {
        s->in_string = true;
        s->quote = c;
    }
    if (!strchr(" \t\r\n", c))
        s->before = c;
}

/* Returns true if a marker may begin with `c`, outside strings: JSON has no <
 * or ` there, and a [ only where a value may begin. */
static bool may_be_marker(const struct json_scan *s, char c)
{
    return c == '<' || c == '`' ||
           (c == '[' && s->before && !strchr("[,:", s->before));
}

bool json_scan(struct json_scan *s, struct span t)
{
    while (s->at < t.n) {
        char c = t.s[s->at];
        bool outside = !s->in_string;

        if (outside && s->to_marker && may_be_marker(s, c))
            return false;
        s->at++;
        json_step(s, c);
        if (outside && (c == '{' || c == '['))
            s->depth++;
        else if (outside && (c == '}' || c == ']'))
            s->depth--;
        if (s->depth <= 0 && !s->in_string)
            return s->depth == 0 && (c == '}' || c == ']');
    }
    return false;
}

bool json_is_valid(struct span t, bool *no_memory)
{
    locale_t before = numeral_begin();
    json_error_t e = {.line = -1};
    /* Integers may have more than 64 bits, so jansson reads them as real
     * numbers. */
    json_t *j = json_loadb(
        t.s, t.n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL,
        &e);

    numeral_end(before);
    if (!j && json_error_code(&e) == json_error_out_of_memory)
        *no_memory = true;
    json_decref(j);
    return j != NULL;
}

/* Returns true if `c` may be a part of a key without quotes, or its first
 * character. */
static bool is_word(char c, bool first)
{
    const unsigned char u = (unsigned char)c;
    const unsigned char letter = u | 0x20;

    return (letter >= 'a' && letter <= 'z') || u == '_' || u == '$' ||
           u >= 0x80 ||
           (!first && ((u >= '0' && u <= '9') || u == '-' || u == '.'));
}

size_t json_bare_key(struct span t, bool *part)
{
    const size_t most = t.n < JSON_BARE ? t.n : JSON_BARE;
    size_t n = 0, end;

    while (n < most && is_word(t.s[n], n == 0))
        n++;
    end = n + span_blanks((struct span){t.s + n, most - n});
    *part = n > 0 && end == t.n;
    return n > 0 && end < most && t.s[end] == ':' ? n : 0;
}

struct json_walk json_walk(struct span t)
{
    return (struct json_walk){t.n > 0 && t.s[0] == '{' ? span_from(t, 1)
                                                       : (struct span){0}};
}

/* Returns the length in bytes, with its quotes, of the JSON string at the
 * beginning of `t`; 0 if there is no complete string. */
static size_t string_length(struct span t)
{
    if (t.n == 0 || t.s[0] != '"')
        return 0;
    for (size_t i = 1; i < t.n; i++) {
        if (t.s[i] == '"')
            return i + 1;
        i += t.s[i] == '\\';
    }
    return 0;
}

static size_t value_length(struct span t)
{
    struct json_scan scan = {0};
    size_t n = 0;

    if (t.n > 0 && t.s[0] == '"')
        return string_length(t);
    if (t.n > 0 && (t.s[0] == '{' || t.s[0] == '['))
        return json_scan(&scan, t) ? scan.at : 0;
    while (n < t.n && !strchr(",}] \t\r\n", t.s[n]))
        n++;
    return n;
}

bool json_walk_next(struct json_walk *w, struct span *key, struct span *value)
{
    struct span t = span_from(w->rest, span_blanks(w->rest));
    size_t n;

    if (t.n > 0 && t.s[0] == ',')
        t = span_from(t, 1 + span_blanks(span_from(t, 1)));
    n = string_length(t);
    if (n == 0)
        return false;
    *key = (struct span){t.s + 1, n - 2};
    t = span_from(t, n);
    t = span_from(t, span_blanks(t));
    if (t.n == 0 || t.s[0] != ':')
        return false;
    t = span_from(t, 1 + span_blanks(span_from(t, 1)));
    n = value_length(t);
    *value = (struct span){t.s, n};
    w->rest = span_from(t, n);
    return n > 0;
}
