/* A file that a command writes: it appears whole, in place of what was there,
 * or not at all. "-" is standard output; a device or a pipe is written as it
 * comes. */
#ifndef CLI_WHOLE_FILE_H
#define CLI_WHOLE_FILE_H

#include "options.h"

#include <stdio.h>

/* Zero-initialised is closed. */
struct whole_file {
    FILE *f;
    const char *path; /* borrowed; as it was given, for messages */
    char *place;      /* owned: what a link names; NULL: written as it comes */
    char *part;       /* owned: the name until it is whole, NULL: it has none */
    int error;        /* errno of the first write that failed */
};

/* Fails, with a message, if `path` could not be replaced. */
enum exit_code whole_open(struct whole_file *w, const struct options *o,
                          const char *option, const char *path);
/* A pl_write_fn; `w` is a struct whole_file. */
void whole_write(void *w, const char *data, size_t n);
/* With `keep` the file takes its place, unless a write failed: then that is
 * said. Gives `c` back, or what went wrong. Takes a closed one. */
enum exit_code whole_close(struct whole_file *w, const struct options *o,
                           bool keep, enum exit_code c);

#endif
