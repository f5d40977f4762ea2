/* The text that a command works on: from the command line, a file or standard
 * input; and token ids likewise. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "options.h"

struct input {
    char *s; /* owned, terminated; may hold other zero bytes */
    size_t len;
};

/* What -p or -f say; standard input where neither is given. */
enum exit_code input_text(struct input *in, const struct options *o);
void input_free(struct input *in);
/* A value of an option: \n and the like become what they mean, unless
 * --no-escape is given. */
enum exit_code input_escaped(struct input *in, const struct options *o,
                             const char *value);

/* All of a file; "-" is standard input. */
enum exit_code input_file(struct input *in, const struct options *o,
                          const char *path);

/* What -p or -f say, without one final newline; or what is piped in, if it is
 * not empty. */
enum exit_code input_prompt(struct input *in, const struct options *o);

/* A line of standard input, its newline too; false at its end, after a Ctrl-C,
 * or, with a message and *c set, if it is no line that could be meant. */
bool input_line(struct input *in, const struct options *o, enum exit_code *c);

/* What --tokens says; *ids is malloc'ed. */
enum exit_code input_ids(const struct options *o, int32_t **ids, int64_t *n);

#endif
