/* Writes formatted text and JSON to a pl_write_fn, without buffering. */
#include "report/writer.h"

#include "base/numeral.h"
#include "tokenizer/utf8.h"

#include <inttypes.h>
#include <math.h>
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

struct size_text size_text(uint64_t bytes)
{
    static const char units[] = "KMGTPE";
    struct size_text t;
    double v = (double)bytes;
    int unit = -1;

    if (bytes < 1000) {
        snprintf(t.s, sizeof t.s, "%" PRIu64, bytes);
        return t;
    }
    do {
        v /= 1024;
        unit++;
    } while (v >= 999.5);
    numeral_print(t.s, sizeof t.s, "%.*f%c",
                  v < 9.995   ? 2
                  : v < 99.95 ? 1
                              : 0,
                  v, units[unit]);
    return t;
}

/* ---- JSON ---------------------------------------------------------------- */

/* Separates the next value, key or bracket from what was written before. */
static void begin(struct json_out *j)
{
    if (!j->keyed && j->depth > 0)
        writer_printf(j->to, "%s\n%*s", j->some ? "," : "", 2 * j->depth, "");
    j->keyed = false;
    j->some = true;
}

static void put(const struct sink *to, const char *s, size_t n)
{
    if (n > 0)
        to->write(to->user, s, n);
}

static void put_text(const struct sink *to, const char *s, size_t n)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    size_t plain = 0; /* where the bytes begin that are yet to be written */
    int valid;

    put(to, "\"", 1);
    for (size_t i = 0, len; i < n; i += len) {
        const char *e = s[i] ? strchr(escaped, s[i]) : NULL;

        len = utf8_step(s + i, n - i, &valid);
        if (valid && !e && (unsigned char)s[i] >= ' ')
            continue;
        put(to, s + plain, i - plain);
        if (!valid)
            writer_printf(to, "\xef\xbf\xbd");
        else if (e)
            writer_printf(to, "\\%c", letter[e - escaped]);
        else
            writer_printf(to, "\\u%04X", (unsigned)s[i]);
        plain = i + len;
    }
    put(to, s + plain, n - plain);
    put(to, "\"", 1);
}

/* Writes a number that reads as a real one, "1.0" or "1e-5". */
static void put_real(const struct sink *to, double v)
{
    char buf[40];
    size_t e;

    if (!isfinite(v)) {
        writer_printf(to, "null");
        return;
    }
    numeral_print(buf, sizeof buf, "%.17g", v);
    e = strcspn(buf, "e");
    writer_printf(to, "%.*s", (int)e, buf);
    if (buf[e])
        writer_printf(to, "e%d", atoi(buf + e + 1));
    else if (!strchr(buf, '.'))
        writer_printf(to, ".0");
}

static void put_key(struct json_out *j, const char *s, size_t n)
{
    begin(j);
    put_text(j->to, s, n);
    writer_printf(j->to, ": ");
    j->keyed = true;
}

static void put_bracket(struct json_out *j, char c)
{
    bool opens = c == '{' || c == '[', some = j->some;

    if (opens)
        begin(j);
    j->depth += opens ? 1 : -1;
    if (!opens && some)
        writer_printf(j->to, "\n%*s", 2 * j->depth, "");
    writer_printf(j->to, j->depth == 0 ? "%c\n" : "%c", c);
    j->some = !opens;
}

static void put_value(struct json_out *j, char letter, va_list *ap)
{
    const char *s = strchr("sSt", letter) ? va_arg(*ap, const char *) : "";

    begin(j);
    if (letter == 't')
        put_text(j->to, s, va_arg(*ap, size_t));
    else if (letter == 's' || *s)
        put_text(j->to, s, strlen(s));
    else if (letter == 'i')
        writer_printf(j->to, "%d", va_arg(*ap, int));
    else if (letter == 'I')
        writer_printf(j->to, "%" PRId64, va_arg(*ap, int64_t));
    else if (letter == 'f')
        put_real(j->to, va_arg(*ap, double));
    else if (letter == 'b')
        writer_printf(j->to, va_arg(*ap, int) ? "true" : "false");
    else
        writer_printf(j->to, "null");
}

void json_put(struct json_out *j, const char *form, ...)
{
    va_list ap;

    va_start(ap, form);
    for (size_t n; *form; form += n) {
        n = strcspn(form, " :{}[]");
        if (form[n] == ':' && *form == '*') {
            const char *key = va_arg(ap, const char *);

            put_key(j, key, strlen(key));
        } else if (form[n] == ':') {
            put_key(j, form, n);
        } else if (n > 0) {
            put_value(j, *form, &ap);
        } else if (*form != ' ') {
            put_bracket(j, *form);
        }
        n += n == 0 || form[n] == ':';
    }
    va_end(ap);
}
