/* Names of commands, and their error messages. */
#include "options.h"
#include "printable.h"

#include <stdarg.h>
#include <stdio.h>

const char *command_name(enum command command)
{
    static const char *const names[] = {
#define COMMAND_ROW(upper, lower, text, args, example) [CMD_##upper] = #lower,
        COMMAND_MAP(COMMAND_ROW)
#undef COMMAND_ROW
    };

    return names[command];
}

enum exit_code cli_error(enum command command, enum exit_code code,
                         const char *fmt, ...)
{
    char text[8192]; /* fits two paths and an explanation */
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (command < N_COMMAND)
        fprintf(stderr, "plait %s: ", command_name(command));
    else
        fputs("plait: ", stderr);
    show(stderr, text);
    fputc('\n', stderr);
    return code;
}
