/* Converts bytes to valid UTF-8, and repairs truncated JSON. See
 * json_text.h. */
#include "json_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

bool text_add(struct text *t, const char *s, size_t n)
{
    if (n >= t->cap - t->n || t->cap == 0) {
        size_t cap = t->cap < 64 ? 64 : t->cap;
        char *grown;

        if (n > SIZE_MAX / 4 - t->n)
            return false;
        while (cap <= t->n + n)
            cap *= 2;
        grown = realloc(t->s, cap);
        if (grown == NULL)
            return false;
        t->s = grown;
        t->cap = cap;
    }
    if (n > 0)
        memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
    return true;
}

void text_free(struct text *t)
{
    free(t->s);
    *t = (struct text){0};
}

/* Returns the length in bytes of the UTF-8 character whose first byte is
 * `lead`; 0 if no character begins with this byte. */
static size_t length_of(unsigned char lead)
{
    return lead < 0x80                   ? 1
           : lead >= 0xc2 && lead < 0xe0 ? 2
           : lead >= 0xe0 && lead < 0xf0 ? 3
           : lead >= 0xf0 && lead < 0xf5 ? 4
                                         : 0;
}

/* Returns true if byte `b` may follow the bytes of the incomplete UTF-8
 * character *t, which has at least one byte. The second byte has a smaller
 * range, which excludes overlong forms, surrogates and values above
 * U+10FFFF. */
static bool goes_on(const struct utf8_tail *t, unsigned char b)
{
    unsigned char low = 0x80, high = 0xbf;

    if (t->n == 1) {
        low = t->byte[0] == 0xe0 ? 0xa0 : t->byte[0] == 0xf0 ? 0x90 : 0x80;
        high = t->byte[0] == 0xed ? 0x9f : t->byte[0] == 0xf4 ? 0x8f : 0xbf;
    }
    return b >= low && b <= high;
}

bool utf8_end(struct utf8_tail *tail, struct text *out)
{
    bool ok = tail->n == 0 || text_add(out, "\xef\xbf\xbd", 3);

    tail->n = 0;
    return ok;
}

bool utf8_add(struct utf8_tail *tail, struct text *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)s[i];
        size_t plain = i;

        if (tail->n > 0 && !goes_on(tail, b) && !utf8_end(tail, out))
            return false;
        if (tail->n == 0 && b < 0x80) {
            while (plain < n && (unsigned char)s[plain] < 0x80)
                plain++;
            if (!text_add(out, s + i, plain - i))
                return false;
            i = plain - 1;
            continue;
        }
        tail->byte[tail->n++] = b;
        if (length_of(tail->byte[0]) == 0) {
            if (!utf8_end(tail, out))
                return false;
        } else if (tail->n == length_of(tail->byte[0])) {
            if (!text_add(out, (const char *)tail->byte, tail->n))
                return false;
            tail->n = 0;
        }
    }
    return true;
}

char *utf8_copy(const char *s, size_t n)
{
    struct utf8_tail tail = {0};
    struct text t = {0};

    if (text_add(&t, "", 0) && utf8_add(&tail, &t, s, n) && utf8_end(&tail, &t))
        return t.s;
    text_free(&t);
    return NULL;
}

json_t *json_text(const char *s, size_t n)
{
    /* Jansson returns NULL if the bytes are not UTF-8, or if out of memory. */
    json_t *j = json_stringn(s, n);
    struct utf8_tail tail = {0};
    struct text valid = {0};

    if (j != NULL)
        return j;
    if (utf8_add(&tail, &valid, s, n) && utf8_end(&tail, &valid) && n > 0 &&
        (valid.n != n || memcmp(valid.s, s, n) != 0)) /* s was valid, so out of
                                                         memory */
        j = json_stringn(valid.s, valid.n);
    text_free(&valid);
    return j;
}

/* ---- repairing truncated JSON text --------------------------------------- */

/* The state of json_text_close's scan at a position in a JSON text. */
struct within {
    /* The closing brackets of the lists and objects that are open at this
     * position, the innermost last. */
    struct text open;
    bool in_string, escaped;
    /* The next string, or the one that the position is in, is a key of an
     * object. */
    bool is_key;
    /* The position is within a number, or the word true, false or null. */
    bool in_word;
    size_t end; /* offset of the end of the last complete value */
};

static char innermost(const struct within *w)
{
    return w->open.n > 0 ? w->open.s[w->open.n - 1] : '\0';
}

static bool follow_mark(struct within *w, char c, size_t at)
{
    switch (c) {
    case '{':
    case '[':
        w->is_key = c == '{';
        w->end = at + 1;
        return text_add(&w->open, c == '{' ? "}" : "]", 1);
    case '}':
    case ']':
        if (innermost(w) != c)
            return false;
        w->open.n--;
        w->end = at + 1;
        return true;
    case ',':
        w->is_key = innermost(w) == '}';
        return true;
    case ':':
        w->is_key = false;
        return true;
    default:
        w->in_string = c == '"';
        w->in_word = c != '"' && !strchr(" \t\r\n", c);
        return true;
    }
}

static void follow_string(struct within *w, char c, size_t at)
{
    if (w->escaped) {
        w->escaped = false;
    } else if (c == '\\') {
        w->escaped = true;
    } else if (c == '"') {
        w->in_string = false;
        w->end = w->is_key ? w->end : at + 1;
    }
}

bool json_text_close(const char *s, size_t n, struct text *out)
{
    struct within w = {0};
    bool ok = true;

    for (size_t at = 0; at < n && ok; at++) {
        if (w.in_string) {
            follow_string(&w, s[at], at);
            continue;
        }
        if (w.in_word && strchr(",]} \t\r\n", s[at])) {
            w.in_word = false;
            w.end = at;
        }
        if (!w.in_word)
            ok = follow_mark(&w, s[at], at);
    }
    ok = ok && w.end > 0 && text_add(out, s, w.end);
    while (ok && w.open.n > 0)
        ok = text_add(out, &w.open.s[--w.open.n], 1);
    text_free(&w.open);
    return ok;
}

/* ---- reading and writing JSON that jansson rejects ----------------------- */

/* A character that does not occur in real texts. A string of this character and
 * digits stands for an integer of more than 64 bits, which jansson cannot
 * read. */
#define WIDE_MARK "\xef\xb7\x90"

/* A copy of a JSON text in which some parts are replaced, under
 * construction. */
struct respelled {
    const char *s; /* the JSON text to copy, [n] */
    size_t n;
    /* Offset in `s`; the bytes before it are in the copy `out`, as they are or
     * replaced. */
    size_t from;
    struct text out;
    /* changed: a part of the text was replaced. failed: out of memory. */
    bool changed, failed;
};

/* Appends the text from r->from to `at` to the copy. Then appends `as`, which
 * replaces the text from `at` to `end`. */
static void respell(struct respelled *r, size_t at, size_t end, const char *as)
{
    r->failed |= !text_add(&r->out, r->s + r->from, at - r->from) ||
                 !text_add(&r->out, as, strlen(as));
    r->from = end;
    r->changed = true;
}

/* Returns the value of the escape \uXXXX at r->s[at], or -1 if there is
 * none. */
static int escape_at(const struct respelled *r, size_t at)
{
    char digits[5] = "", *end;
    long v;

    if (r->n - at < 6 || r->s[at] != '\\' || r->s[at + 1] != 'u')
        return -1;
    memcpy(digits, r->s + at + 2, 4);
    v = strtol(digits, &end, 16);
    return end == digits + 4 && digits[0] != '-' && digits[0] != '+' ? (int)v
                                                                     : -1;
}

/* Handles the backslash escape at r->s[at], within a string. Half a surrogate
 * pair is replaced by U+FFFD. Returns the offset of the last byte of the
 * escape. */
static size_t pass_escape(struct respelled *r, size_t at)
{
    int first = escape_at(r, at), next;

    if (first < 0xd800 || first > 0xdfff)
        return at + 1;
    next = r->n - at > 6 ? escape_at(r, at + 6) : -1;
    if (first < 0xdc00 && next >= 0xdc00 && next <= 0xdfff)
        return at + 11;
    respell(r, at, at + 6, "\\ufffd");
    return at + 5;
}

/* Handles the number at r->s[at]. An integer that needs more than 64 bits is
 * replaced by a string that begins with WIDE_MARK. Returns the offset of the
 * last byte of the number. */
static size_t pass_number(struct respelled *r, size_t at)
{
    const char *most =
        r->s[at] == '-' ? "9223372036854775808" : "9223372036854775807";
    size_t first = at + (r->s[at] == '-'), end = first, n;

    while (end < r->n && r->s[end] >= '0' && r->s[end] <= '9')
        end++;
    n = end - first;
    if (end < r->n && r->s[end] != '\0' && strchr(".eE", r->s[end])) {
        while (end < r->n && r->s[end] != '\0' &&
               strchr("+-.eE0123456789", r->s[end]))
            end++;
    } else if (n > 19 || (n == 19 && memcmp(r->s + first, most, 19) > 0)) {
        respell(r, at, at, "\"" WIDE_MARK);
        respell(r, end, end, "\"");
    }
    return end > at ? end - 1 : at;
}

static void respell_all(struct respelled *r)
{
    bool quoted = false;

    for (size_t i = 0; i < r->n && !r->failed; i++) {
        char c = r->s[i];

        if (c == '"')
            quoted = !quoted;
        else if (quoted && c == '\\')
            i = pass_escape(r, i);
        else if (!quoted && (c == '-' || (c >= '0' && c <= '9')))
            i = pass_number(r, i);
    }
    if (r->changed)
        respell(r, r->n, r->n, "");
}

json_t *json_text_load(const char *s, size_t n, size_t flags, json_error_t *e)
{
    struct respelled r = {.s = s, .n = n};
    json_error_t own = {.line = -1};
    json_t *j;

    e = e != NULL ? e : &own;
    j = json_loadb(s, n, flags, e);
    if (j != NULL || (json_error_code(e) != json_error_numeric_overflow &&
                      json_error_code(e) != json_error_invalid_syntax))
        return j;
    respell_all(&r);
    if (r.changed && !r.failed)
        j = json_loadb(r.out.s, r.out.n, flags, e);
    text_free(&r.out);
    return j;
}

const char *json_text_wide(const json_t *j)
{
    const size_t mark = sizeof(WIDE_MARK) - 1;
    const char *s = json_string_value(j);

    return s != NULL && strncmp(s, WIDE_MARK, mark) == 0 && s[mark] != '\0' &&
                   s[mark + strspn(s + mark, "-0123456789")] == '\0'
               ? s + mark
               : NULL;
}

bool json_text_round(json_t *j, const char *const *but)
{
    static const char *const none[] = {NULL};
    const char *key, *digits;
    json_t *v;
    void *next;
    size_t i;
    bool ok = true;

    json_array_foreach (j, i, v)
        ok = ((digits = json_text_wide(v)) != NULL
                  ? json_array_set_new(j, i, json_real(strtod(digits, NULL))) ==
                        0
                  : json_text_round(v, none)) &&
             ok;
    json_object_foreach_safe(j, next, key, v)
    {
        for (i = 0; but[i] != NULL && strcmp(but[i], key) != 0;)
            i++;
        if (but[i] != NULL)
            continue;
        digits = json_text_wide(v);
        ok = (digits != NULL ? json_object_set_new(
                                   j, key, json_real(strtod(digits, NULL))) == 0
                             : json_text_round(v, none)) &&
             ok;
    }
    return ok;
}

/* Replaces each string of WIDE_MARK and digits in a JSON text by the integer
 * that it stands for. */
static void unmark(char *s)
{
    static const char mark[] = "\"" WIDE_MARK;
    char *to, *from, *at = strstr(s, mark);

    for (to = from = at; at != NULL; at = strstr(from, mark)) {
        const char *digits = at + sizeof(mark) - 1;
        size_t n = strspn(digits, "-0123456789");
        bool wide = n > 0 && digits[n] == '"';
        size_t len = (size_t)(at - from) + (wide ? 0 : sizeof(mark) - 1);

        memmove(to, from, len);
        to += len;
        if (wide)
            memmove(to, digits, n);
        to += wide ? n : 0;
        from = at + sizeof(mark) - 1 + (wide ? n + 1 : 0);
    }
    if (from != NULL)
        memmove(to, from, strlen(from) + 1);
}

void json_text_put(json_t **object, const char *key, json_t *value)
{
    if (json_object_set_new(*object, key, value) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

void json_text_add(json_t **list, json_t *value)
{
    if (json_array_append_new(*list, value) == 0)
        return;
    json_decref(*list);
    *list = NULL;
}

json_t *json_text_copy(json_t *j)
{
    json_t *copy = json_copy(j);

    if (json_array_size(copy) == json_array_size(j) &&
        json_object_size(copy) == json_object_size(j))
        return copy;
    json_decref(copy);
    return NULL;
}

struct taken {
    struct text text;
    bool failed;
};

static int take(const char *s, size_t n, void *user)
{
    struct taken *t = user;

    t->failed = t->failed || !text_add(&t->text, s, n);
    return t->failed ? -1 : 0;
}

char *json_text_plain(const json_t *j, size_t flags)
{
    struct taken t = {0};

    if (json_dump_callback(j, take, &t, flags) == 0 && !t.failed)
        return t.text.s;
    text_free(&t.text);
    return NULL;
}

char *json_text_dump(const json_t *j, size_t flags)
{
    char *s = json_text_plain(j, flags);

    if (s != NULL)
        unmark(s);
    return s;
}
