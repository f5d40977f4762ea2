/* See wide_json.h. Such integers are rare, so the text is changed only after
 * jansson has rejected it. */
#include "base/wide_json.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Copies the text. Appends ".0" to each integer that does not fit in 64
 * bits. Returns the new length. `out` has space for twice the text. */
static size_t widen(const char *s, size_t n, char *out)
{
    enum { MOST_SURE = 18 }; /* an integer of so many digits fits in 64 bits */
    bool quoted = false;
    size_t k = 0;

    for (size_t i = 0; i < n;) {
        size_t len = quoted ? 0 : strspn(s + i, "+-.0123456789Ee");

        if (len == 0) {
            if (s[i] == '"')
                quoted = !quoted;
            else if (quoted && s[i] == '\\' && i + 1 < n)
                out[k++] = s[i++];
            out[k++] = s[i++];
            continue;
        }
        memcpy(out + k, s + i, len);
        k += len;
        errno = 0;
        if (len > MOST_SURE && strspn(s + i, "-0123456789") == len &&
            strtoll(s + i, NULL, 10) != 0 && errno == ERANGE) {
            memcpy(out + k, ".0", 2);
            k += 2;
        }
        i += len;
    }
    return k;
}

json_t *wide_json(const char *s, size_t n, size_t flags, json_error_t *e)
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
        j = json_loadb(wide, widen(copy, n, wide), flags, e);
    }
    free(copy);
    free(wide);
    return j;
}
