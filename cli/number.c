/* Parses numbers that users type. strtod and strtoll do the conversion, but
 * they also accept white space, hex floats, "nan", and text after the number.
 * So the text is checked for these before. */
#include "number.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789";

bool number_int64(const char *s, int64_t *out)
{
    const char *d = s + (s[0] == '-');
    long long v;

    if (d[0] == '\0' || d[strspn(d, digits)] != '\0')
        return false;
    errno = 0;
    v = strtoll(s, NULL, 10);
    *out = v;
    return errno == 0;
}

bool number_uint64(const char *s, uint64_t *out)
{
    if (s[0] == '\0' || s[strspn(s, digits)] != '\0')
        return false;
    errno = 0;
    *out = strtoull(s, NULL, 10);
    return errno == 0;
}

bool number_double(const char *s, double *out)
{
    const char *d = s + (s[0] == '-' || s[0] == '+');
    char *end;

    if (strcmp(d, "inf") == 0) {
        *out = s[0] == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (d[0] == '\0' || d[strspn(d, "0123456789.eE+-")] != '\0')
        return false;
    errno = 0;
    *out = strtod(s, &end);
    return end != s && *end == '\0' && isfinite(*out);
}

bool number_bytes(const char *s, uint64_t *out)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {
        {"", 0x1p20},    {"B", 1},        {"kB", 1e3},     {"KB", 1e3},
        {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},    {"KiB", 0x1p10},
        {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
    };
    size_t len = strspn(s, "0123456789.");
    char word[32];
    double v;

    if (s[0] == '.' || len >= sizeof(word))
        return false;
    memcpy(word, s, len);
    word[len] = '\0';
    if (!number_double(word, &v))
        return false;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(s + len, units[i].name) != 0)
            continue;
        if (!(v * units[i].bytes < 0x1p63))
            return false;
        *out = (uint64_t)(v * units[i].bytes);
        return true;
    }
    return false;
}

int number_shares(const char *s, double *out, int max)
{
    int n = 0;

    for (;;) {
        char word[64];
        size_t len = strcspn(s, ",/");

        if (n == max || len >= sizeof(word))
            return -1;
        memcpy(word, s, len);
        word[len] = '\0';
        if (!number_double(word, &out[n]) || !(out[n] >= 0.0) || isinf(out[n]))
            return -1;
        n++;
        if (s[len] == '\0')
            return n;
        s += len + 1;
    }
}

bool number_ids(const char *s, size_t len, int32_t **ids, int64_t *n,
                int64_t *bad)
{
    static const char gap[] = ", \t\r\n";
    int32_t *list = malloc((len / 2 + 1) * sizeof(*list));
    size_t i = 0;

    *n = 0;
    *ids = NULL;
    *bad = -1;
    if (list == NULL)
        return false;
    while (i < len) {
        char word[16] = "";
        size_t start = i;
        int64_t v;

        if (s[i] != '\0' && strchr(gap, s[i]) != NULL) {
            i++;
            continue;
        }
        while (i < len && (s[i] == '\0' || strchr(gap, s[i]) == NULL))
            i++;
        if (i - start < sizeof(word))
            memcpy(word, s + start, i - start);
        if (strlen(word) != i - start || !number_int64(word, &v) || v < 0 ||
            v > INT32_MAX) {
            *bad = (int64_t)start;
            free(list);
            return false;
        }
        list[(*n)++] = (int32_t)v;
    }
    *ids = list;
    return true;
}
