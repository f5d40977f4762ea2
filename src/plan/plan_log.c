/* Formats a message and hands it on. */
#include "plan/plan_log.h"

#include "base/numeral.h"

#include <stdarg.h>
#include <stdio.h>

void plan_log(const pl_options *opt, pl_log_level level, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    if (!opt->log)
        return;
    va_start(ap, fmt);
    numeral_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    opt->log(opt->log_user, level, text);
}
