/* Formats errors and log lines; see fail.h. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

pl_status server_fail(pl_err *err, pl_status s, const char *form, ...)
{
    va_list a;

    if (!err)
        return s;
    err->status = s;
    va_start(a, form);
    vsnprintf(err->message, sizeof err->message, form, a);
    va_end(a);
    return s;
}

void server_log(pl_log_fn *log, void *user, pl_log_level level,
                const char *form, ...)
{
    char text[1400];
    va_list a;

    if (!log)
        return;
    va_start(a, form);
    vsnprintf(text, sizeof text, form, a);
    va_end(a);
    log(user, level, text);
}
