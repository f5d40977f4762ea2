/* Runs the command plait as its users do, through a shell. */
#ifndef TEST_COMMAND_H
#define TEST_COMMAND_H

#include <stddef.h>

#define MODEL "-m models/fable-moe-Q8_0.gguf "

/* The result of sh(), valid until sh() has been called sixteen times more. */
struct ran {
    const char *line;
    /* texts of standard output and standard error, NUL-terminated */
    char *out, *err;
    size_t n_out;
};

/* Returns the path of the command plait: $PLAIT_COMMAND, else the one built
 * here. */
const char *command_path(void);
/* Returns a Python that has the packages of the server's clients, if
 * scripts/clients.sh could fetch them; else the system's. */
const char *command_python(void);
/* Returns a Python that has the packages of the long tier's clients, too; else
 * the system's. */
const char *command_python_long(void);
/* Returns the exit code in a status from waitpid; 128 + n if signal n ended the
 * process. */
int command_status(int status);

/* Runs `line` in a shell, in a directory that has the checkout's `models`. The
 * command plait is in its path, and standard input is empty. The line must exit
 * with `code`, or the case fails. */
struct ran sh(int code, const char *line);
/* Fails the case unless the text is in the command's standard error. */
void must_say(struct ran r, const char *text);

#endif
