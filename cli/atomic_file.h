/* Files that a command writes, by pl_file_open's rules: each appears complete
 * or not at all. "-" is standard output; a device or a pipe is written
 * directly.
 *
 * A command never writes a file that it also reads, nor one file twice, by any
 * name or link. Option rows say which files are read and which are written
 * (option_table.h). */
#ifndef CLI_ATOMIC_FILE_H
#define CLI_ATOMIC_FILE_H

#include "options.h"

/* Zero-initialised is closed. */
struct whole_file {
    pl_file *f;                /* owned; NULL: closed */
    const char *option, *path; /* borrowed; as given, for messages */
};

/* Fails, with a message, if an option of `o` names a file that could not or
 * must not be written. Called before any work starts, and once more when the
 * path of a downloaded model is known. */
enum exit_code whole_check(const struct options *o);

/* Fails, with a message, if `path`, which `option` names, is a file that
 * another option names. */
enum exit_code whole_compare(const struct options *o, const char *option,
                             const char *path);

/* Fails, with a message, if `path` could not or must not be written; `option`
 * is the one that names it, or a command of a chat. */
enum exit_code atomic_file_open(struct whole_file *w, const struct options *o,
                                const char *option, const char *path);
/* A pl_write_fn; `w` is a struct whole_file. atomic_file_close reports a failed
 * write. */
void whole_write(void *w, const char *data, size_t n);
/* Closes the file; a closed one is allowed. With `keep` it is put in place,
 * unless a write failed: then an error is printed. Returns `c`, or the code of
 * what failed. */
enum exit_code atomic_file_close(struct whole_file *w, const struct options *o,
                                 bool keep, enum exit_code c);

#endif
