/* Names of commands, and their error messages. */
#include "options.h"
#include "printable.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *command_name(enum command command)
{
    static const char *const names[] = {
#define COMMAND_ROW(upper, lower, text, args, example) [CMD_##upper] = #lower,
        COMMAND_MAP(COMMAND_ROW)
#undef COMMAND_ROW
    };

    return names[command];
}

/* Where this thread's next error is copied; see cli_error_copy. */
static _Thread_local char *copy;
static _Thread_local size_t n_copy;

void cli_error_copy(char *text, size_t n)
{
    copy = text;
    n_copy = n;
    if (text != NULL)
        text[0] = '\0';
}

/* The machine that messages name, "[b] ", and the file that gets them, too. */
static char machine[300];
static FILE *log_file;

void cli_error_machine(const char *name, const char *dir, const char *file)
{
    char path[4096];
    int fd;

    if (name != NULL)
        snprintf(machine, sizeof(machine), "[%.250s] ", name);
    if (dir == NULL)
        return;
    snprintf(path, sizeof(path), "%s/%s.log", dir, file);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    log_file = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (log_file == NULL)
        cli_error(N_COMMAND, EXIT_DONE,
                  "--log-dir: opening %s: %s; messages are only printed", path,
                  strerror(errno));
}

enum exit_code cli_error(enum command command, enum exit_code code,
                         const char *fmt, ...)
{
    /* large enough for a message with two paths and an explanation */
    char text[8192];
    int n = snprintf(text, sizeof(text), "%splait%s%s: ", machine,
                     command < N_COMMAND ? " " : "",
                     command < N_COMMAND ? command_name(command) : "");
    const int from = n;
    va_list ap;

    va_start(ap, fmt);
    n += vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof(text) - 2)
        n = (int)sizeof(text) - 2;
    text[n] = '\0';
    if (copy != NULL && copy[0] == '\0')
        snprintf(copy, n_copy, "%s", text + from);
    strcpy(text + n, "\n");
    /* one call prints all, so that lines of several threads do not mix */
    show(stderr, text);
    if (log_file != NULL) {
        show(log_file, text);
        fflush(log_file);
    }
    return code;
}
