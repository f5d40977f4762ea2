/* The text that a command works on: from the command line, a file or standard
 * input; and token ids likewise. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "options.h"

struct input {
    char *s; /* owned, terminated; may hold other zero bytes */
    size_t len;
};

/* What -p or -f say; standard input where neither is given and `or_stdin`. With
 * `drop_newline` one final newline of a file or of standard input goes. */
enum exit_code input_text(struct input *in, const struct options *o,
                          bool or_stdin, bool drop_newline);
void input_free(struct input *in);

/* What --tokens says; *ids is malloc'ed. */
enum exit_code input_ids(const struct options *o, int32_t **ids, int64_t *n);

#endif
