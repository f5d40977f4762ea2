/* Formatted text and JSON into a pl_write_fn; nothing is kept in between. */
#include "report/sink.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void sink_say(const struct sink *to, const char *fmt, ...)
{
    char buf[512];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    if (n > 0)
        to->write(to->user, buf,
                  (size_t)n < sizeof buf ? (size_t)n : sizeof buf - 1);
}

static int write_json(const char *text, size_t len, void *user)
{
    const struct sink *to = user;

    to->write(to->user, text, len);
    return 0;
}

pl_status sink_json(const struct sink *to, json_t *all, const char *what,
                    pl_err *err)
{
    int rc =
        all ? json_dump_callback(all, write_json, (void *)to, JSON_INDENT(2))
            : -1;

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
    snprintf(buf, 16, "%.*f%c",
             v < 9.995   ? 2
             : v < 99.95 ? 1
                         : 0,
             v, units[unit]);
    return buf;
}
