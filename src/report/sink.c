/* Formatted text and JSON into a pl_write_fn; nothing is kept in between. */
#include "report/sink.h"

#include "base/err.h"
#include "base/numeral.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void sink_say(const struct sink *to, const char *fmt, ...)
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

/* jansson on its way to a sink; the caller's function has its own locale. */
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
