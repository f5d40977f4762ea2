/* Runs the command-line program as its users do. */
#ifndef TEST_COMMAND_H
#define TEST_COMMAND_H

#include <stddef.h>

#define MODEL "-m models/fable-moe-Q8_0.gguf "

/* The result of a command line, valid until sixteen more have run. */
struct ran {
    const char *line;
    char *out, *err; /* terminated */
    size_t n_out;
};

/* Returns the path of the command: $PLAIT_COMMAND, else the one built here. */
const char *command_path(void);
/* Returns a Python that has the packages of the server's clients, if
 * scripts/clients.sh could fetch them; else the system's. */
const char *command_python(void);
/* Returns one that has those of the long tier, too. */
const char *command_python_long(void);
/* Returns the exit status of a process that was waited for; 128 + n after
 * signal n. */
int command_status(int status);

/* Runs `line` in a shell, in a directory that has `models` as the checkout
 * does. The command is in its path and its input is empty. It must exit with
 * `code`. */
struct ran sh(int code, const char *line);
/* Fails the case unless standard error contains the text. */
void must_say(struct ran r, const char *text);

#endif
