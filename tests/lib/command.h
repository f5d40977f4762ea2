/* The command, run as its users run it. */
#ifndef TEST_COMMAND_H
#define TEST_COMMAND_H

#include <stddef.h>

#define MODEL "-m models/fable-moe-Q8_0.gguf "

/* What a command line left behind, until sixteen more have run. */
struct ran {
    const char *line;
    char *out, *err; /* terminated */
    size_t n_out;
};

/* Where the command is: $PLAIT_COMMAND, else the one built here. */
const char *command_path(void);
/* A Python that has the packages of the server's clients, if scripts/clients.sh
 * could fetch them; else the system's. */
const char *command_python(void);
/* Exit status of a process that was waited for; 128 + n after signal n. */
int command_status(int status);

/* A shell runs `line` in a directory that has `models` as the checkout does,
 * with the command in its path and nothing to read; it must exit with `code`.
 */
struct ran sh(int code, const char *line);
/* It must have said this. */
void must_say(struct ran r, const char *text);

#endif
