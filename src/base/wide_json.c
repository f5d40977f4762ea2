/* Implements wide_json. Integers that do not fit in 64 bits are rare, so a JSON
 * text is first given to jansson unchanged. Only if jansson rejects such an
 * integer is the text changed and parsed again. */
#include "base/wide_json.h"

#include "base/numeral.h"
#include "base/whole_json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Texts that are inserted before and after an integer that does not fit in 64
 * bits, so that jansson accepts it: ".0" after it makes it a real number,
 * quotes around it make it a string. */
struct respelling {
    const char *before, *after;
};

static size_t put(char *out, size_t k, const char *s, size_t n)
{
    memcpy(out + k, s, n);
    return k + n;
}

/* Copies the JSON text s[n] to `out`. Puts the texts how->before and how->after
 * around each integer that does not fit in 64 bits. Returns the new length.
 * `out` has space for 2 n bytes. */
static size_t widen(const char *s, size_t n, const struct respelling *how,
                    char *out)
{
    /* Every integer of at most 18 characters fits in 64 bits. */
    enum { MOST_SURE = 18 };
    bool quoted = false;
    size_t k = 0;

    for (size_t i = 0; i < n;) {
        size_t len = quoted ? 0 : strspn(s + i, "+-.0123456789Ee");
        bool wide;

        if (len == 0) {
            if (s[i] == '"')
                quoted = !quoted;
            else if (quoted && s[i] == '\\' && i + 1 < n)
                out[k++] = s[i++];
            out[k++] = s[i++];
            continue;
        }
        errno = 0;
        wide = len > MOST_SURE && strspn(s + i, "-0123456789") == len &&
               strtoll(s + i, NULL, 10) != 0 && errno == ERANGE;
        if (wide)
            k = put(out, k, how->before, strlen(how->before));
        k = put(out, k, s + i, len);
        if (wide)
            k = put(out, k, how->after, strlen(how->after));
        i += len;
    }
    return k;
}

static json_t *load(const char *s, size_t n, size_t flags,
                    const struct respelling *how, json_error_t *e)
{
    json_t *j = json_loadb(s, n, flags, e);
    char *copy, *wide;

    if (j || json_error_code(e) != json_error_numeric_overflow)
        return j;
    copy = malloc(n + 1);
    wide = malloc(2 * n + 4);
    if (copy && wide) {
        memcpy(copy, s, n);
        copy[n] = '\0';
        j = json_loadb(wide, widen(copy, n, how, wide), flags, e);
    }
    free(copy);
    free(wide);
    return j;
}

json_t *wide_json(const char *s, size_t n, size_t flags, json_error_t *e)
{
    return load(s, n, flags, &(struct respelling){"", ".0"}, e);
}

json_t *wide_json_marked(const char *s, size_t n, size_t flags, json_error_t *e)
{
    return load(s, n, flags, &(struct respelling){"\"" WIDE_MARK, "\""}, e);
}

const char *wide_digits(const json_t *j)
{
    const char *s = json_string_value(j);
    const size_t n = sizeof WIDE_MARK - 1;

    return s && strncmp(s, WIDE_MARK, n) == 0 && s[n] &&
                   s[n + strspn(s + n, "-0123456789")] == '\0'
               ? s + n
               : NULL;
}

bool wide_is_number(const json_t *j)
{
    return json_is_number(j) || wide_digits(j);
}

double wide_number(const json_t *j)
{
    const char *digits = wide_digits(j);

    return digits ? numeral_double(digits, NULL) : json_number_value(j);
}

char *wide_unmark(char *s)
{
    static const char mark[] = "\"" WIDE_MARK;
    char *to, *from, *at;

    if (!s || !(at = strstr(s, mark)))
        return s;
    for (to = from = s; at; at = strstr(from, mark)) {
        const char *digits = at + sizeof mark - 1;
        size_t n = strspn(digits, "-0123456789");
        bool wide = n > 0 && digits[n] == '"';
        size_t len = (size_t)(at - from) + (wide ? 0 : sizeof mark - 1);

        memmove(to, from, len);
        to += len;
        if (wide)
            memmove(to, digits, n);
        to += wide ? n : 0;
        from = at + sizeof mark - 1 + (wide ? n + 1 : 0);
    }
    memmove(to, from, strlen(from) + 1);
    return s;
}

/* Shortens the real numbers in a JSON text, in place. jansson writes 17
 * digits. */
static void shorten_reals(char *s)
{
    char short_text[NUMERAL_SHORTEST];
    bool quoted = false;
    char *to = s;

    while (*s) {
        size_t n = quoted ? 0 : strspn(s, "+-.0123456789Ee"), n_short;

        if (n == 0) {
            if (*s == '"')
                quoted = !quoted;
            else if (*s == '\\' && s[1])
                *to++ = *s++;
            *to++ = *s++;
            continue;
        }
        numeral_shortest(short_text, numeral_double(s, NULL));
        n_short = strlen(short_text);
        if (memchr(s, '.', n) && n_short < n && strpbrk(short_text, ".e")) {
            memcpy(to, short_text, n_short);
            to += n_short;
        } else {
            memmove(to, s, n);
            to += n;
        }
        s += n;
    }
    *to = '\0';
}

char *wide_json_dumps(const json_t *j, size_t flags)
{
    locale_t before = numeral_begin();
    char *s = whole_json_dumps(j, flags);

    numeral_end(before);
    if (s)
        shorten_reals(s);
    return wide_unmark(s);
}
