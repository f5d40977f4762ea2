/* Converts bytes to valid UTF-8, and repairs truncated JSON. See
 * json_text.h. */
#include "json_text.h"

#include <errno.h>
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

/* Returns the length in bytes of a character with this first byte; 0 if no
 * character begins with it. */
static size_t length_of(unsigned char lead)
{
    return lead < 0x80                   ? 1
           : lead >= 0xc2 && lead < 0xe0 ? 2
           : lead >= 0xe0 && lead < 0xf0 ? 3
           : lead >= 0xf0 && lead < 0xf5 ? 4
                                         : 0;
}

/* Returns true if byte `b` may follow the bytes of the incomplete character *t,
 * which has at least one. The range of the second byte excludes overlong forms,
 * surrogates and values above U+10FFFF. */
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
    json_t *j = json_stringn(s, n); /* NULL if not UTF-8, or if out of memory */
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

/* ---- integers of any size ------------------------------------------------ */

/* Copies a JSON text. Appends ".0" to each integer that does not fit in 64
 * bits. */
static bool widen(const char *s, size_t n, struct text *out)
{
    enum { MOST_SURE = 18 }; /* digits of an integer that fits in any case */
    bool quoted = false, ok = true;
    size_t from = 0;

    for (size_t i = 0; i < n && ok;) {
        size_t len = quoted ? 0 : strspn(s + i, "+-.0123456789Ee");

        if (len == 0) {
            quoted ^= s[i] == '"';
            i += 1 + (quoted && s[i] == '\\' && i + 1 < n);
            continue;
        }
        errno = 0;
        i += len;
        if (len > MOST_SURE && strspn(s + i - len, "-0123456789") == len &&
            strtoll(s + i - len, NULL, 10) != 0 && errno == ERANGE) {
            ok = text_add(out, s + from, i - from) && text_add(out, ".0", 2);
            from = i;
        }
    }
    return ok && text_add(out, s + from, n - from);
}

/* Such integers are rare, so the text is changed only after jansson has
 * rejected it. */
json_t *json_text_wide(const char *s, size_t n, size_t flags, json_error_t *e)
{
    struct text copy = {0}, wide = {0};
    json_error_t own;
    json_t *j;

    e = e != NULL ? e : &own;
    j = json_loadb(s, n, flags, e);
    if (j == NULL && json_error_code(e) == json_error_numeric_overflow &&
        text_add(&copy, s, n) && widen(copy.s, n, &wide))
        j = json_loadb(wide.s, wide.n, flags, e);
    text_free(&copy);
    text_free(&wide);
    return j;
}

/* ---- truncated JSON ------------------------------------------------------ */

/* The state of a scan at a position in a JSON text. */
struct within {
    struct text open; /* closing brackets of the open lists and objects */
    bool in_string, escaped;
    bool is_key;  /* the present or next string is a key */
    bool in_word; /* within a number, true, false or null */
    size_t end;   /* offset after the last complete value */
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
