/* Writes formatted text and JSON to a pl_write_fn, without buffering. */
#include "report/writer.h"

#include "base/err.h"
#include "base/numeral.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void writer_printf(const struct sink *to, const char *fmt, ...)
{
    char buf[512];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = numeral_vprint(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (n > 0)
        to->write(to->user, buf,
                  (size_t)n < sizeof buf ? (size_t)n : sizeof buf - 1);
}

/* Argument of write_json. Jansson runs in the C locale. The caller's write
 * function is called in the locale `before`, which was the caller's. */
struct json_way {
    const struct sink *to;
    locale_t before;
};

static int write_json(const char *text, size_t len, void *user)
{
    const struct json_way *way = user;

    numeral_end(way->before);
    way->to->write(way->to->user, text, len);
    numeral_begin();
    return 0;
}

/* Accepts only UTF-8 as RFC 3629 defines it. */
size_t sink_utf8_len(const char *s, size_t left)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;

    if (n == 1)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    /* Rejects characters in more bytes than needed, surrogates, and characters
     * above U+10FFFF. */
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n;
}

/* Returns a copy of a text in which each invalid byte is replaced by U+FFFD,
 * and sets *clean_len to its length. The caller frees it. Returns NULL if out
 * of memory. */
static char *clean(const char *s, size_t len, size_t *clean_len)
{
    char *copy = len < SIZE_MAX / 3 ? malloc(3 * len + 1) : NULL;
    size_t n, at = 0;

    if (!copy)
        return NULL;
    for (size_t i = 0; i < len; i += n ? n : 1) {
        n = sink_utf8_len(s + i, len - i);
        memcpy(copy + at, n ? s + i : "\xef\xbf\xbd", n ? n : 3);
        at += n ? n : 3;
    }
    copy[at] = '\0';
    *clean_len = at;
    return copy;
}

json_t *sink_json_text(const char *s, size_t len)
{
    char *copy = clean(s, len, &len);
    json_t *text = copy ? json_stringn(copy, len) : NULL;

    free(copy);
    return text;
}

pl_status sink_json(const struct sink *to, json_t *all, const char *what,
                    pl_err *err)
{
    struct json_way way = {to, numeral_begin()};
    int rc =
        all ? json_dump_callback(all, write_json, &way, JSON_INDENT(2)) : -1;

    numeral_end(way.before);
    json_decref(all);
    if (rc != 0)
        return err_no_memory(err, what);
    to->write(to->user, "\n", 1);
    return PL_OK;
}

const char *sink_size(char buf[16], uint64_t bytes)
{
    static const char units[] = "KMGTPE";
    double v = (double)bytes;
    int unit = -1;

    if (bytes < 1000) {
        snprintf(buf, 16, "%" PRIu64, bytes);
        return buf;
    }
    do {
        v /= 1024;
        unit++;
    } while (v >= 999.5);
    numeral_print(buf, 16, "%.*f%c",
                  v < 9.995   ? 2
                  : v < 99.95 ? 1
                              : 0,
                  v, units[unit]);
    return buf;
}
