/* What commands are called, and what they say when something is wrong. */
#include "options.h"

#include <stdarg.h>
#include <stdio.h>

const char *command_name(enum command command)
{
    static const char *const names[] = {
#define COMMAND_ROW(upper, lower, text, args) [CMD_##upper] = #lower,
        COMMAND_MAP(COMMAND_ROW)
#undef COMMAND_ROW
    };

    return names[command];
}

enum exit_code complain(enum command command, enum exit_code code,
                        const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "plait %s: ", command_name(command));
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return code;
}
