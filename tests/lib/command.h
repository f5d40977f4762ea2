/* The command, run as its users run it. */
#ifndef TEST_COMMAND_H
#define TEST_COMMAND_H

#include <stddef.h>

#define MODEL "-m models/fable-moe-Q8_0.gguf "

/* What a command line left behind. */
struct ran {
    int code;        /* exit status; 128 + n after signal n */
    char *out, *err; /* owned, terminated */
    size_t n_out;
};

/* Where the command is: $PLAIT_COMMAND, else the one built here. */
const char *command_path(void);
/* Exit status of a process that was waited for; 128 + n after signal n. */
int command_status(int status);

/* A shell runs `line` in a directory that has `models` as the checkout does,
 * with the command in its path and nothing to read. */
struct ran sh(const char *line);
void ran_free(struct ran *r);

/* Fail the test, with what was said. */
void must_exit(const struct ran *r, int code, const char *line);
void must_say(const struct ran *r, const char *text, const char *line);
void need_model(void);

#endif
