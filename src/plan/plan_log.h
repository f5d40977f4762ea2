/* Messages to whoever set pl_options.log. */
#ifndef PLAN_PLAN_LOG_H
#define PLAN_PLAN_LOG_H

#include "pl.h"

/* printf-style, cut off at 1,023 characters; nothing without opt->log. */
void plan_log(const pl_options *opt, pl_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
