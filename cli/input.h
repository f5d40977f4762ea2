/* Reads the text that a command works on, or token ids, from the command line,
 * a file or standard input. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "options.h"

struct input {
    char *s; /* owned, NUL-terminated; may contain more NULs */
    size_t len;
};

/* Reads the text of -p or -f; if neither is given, all of standard input. */
enum exit_code input_text(struct input *in, const struct options *o);
void input_free(struct input *in);
/* Copies the option value `value` to *in, with escapes such as \n resolved
 * unless --no-escape is given. */
enum exit_code input_escaped(struct input *in, const struct options *o,
                             const char *value);

/* Reads a whole file; "-" is standard input. */
enum exit_code input_file(struct input *in, const struct options *o,
                          const char *path);

/* Reads the text of -p or -f, without one final newline. If neither is given,
 * reads standard input if it is piped and not empty. */
enum exit_code input_prompt(struct input *in, const struct options *o);

/* Reads a line of standard input, including its newline. Returns false at the
 * end of the input and after a Ctrl-C. If the line is too long or memory runs
 * out, returns false, prints a message and sets *c. */
bool input_line(struct input *in, const struct options *o, enum exit_code *c);

/* Reads the ids of --tokens; *ids is malloc'ed. */
enum exit_code input_ids(const struct options *o, int32_t **ids, int64_t *n);

#endif
