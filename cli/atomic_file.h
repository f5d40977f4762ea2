/* Writes the files of a command under the rules of pl_file_open: each file
 * appears complete or not at all. The path "-" means standard output. Devices
 * and pipes are written directly.
 *
 * A command never writes a file that it also reads, and never writes one file
 * twice, even under different names or links. Option rows say which files are
 * read and which are written (option_table.h). */
#ifndef CLI_ATOMIC_FILE_H
#define CLI_ATOMIC_FILE_H

#include "options.h"

/* An output file. A zero-initialised one is closed. */
struct whole_file {
    pl_file *f; /* open file of the library, owned; NULL if closed */
    /* borrowed: name of the option that names the file, and the path as the
     * user gave it */
    const char *option, *path;
};

/* Checks all files that the options `o` name. If a file cannot be read, if one
 * cannot be written, or if another option names it, too, prints a message and
 * returns an exit code; otherwise returns EXIT_DONE. Called before any work
 * starts, and again when the path of a downloaded model is known. */
enum exit_code whole_check(const struct options *o);
/* Checks only the files that are read, without that of the model unless
 * `model`. */
enum exit_code whole_check_inputs(const struct options *o, bool model);

/* Checks that the output file `path`, which `option` names, is not a file of
 * another option or of a redirected standard stream. Prints a message and
 * returns EXIT_USAGE if it is. */
enum exit_code whole_compare(const struct options *o, const char *option,
                             const char *path);

/* Returns true if both paths name the same file, which need not exist. */
bool whole_same(const char *a, const char *b);

/* Opens `path` for writing. `option` is the option that names it, or a command
 * of a chat. Prints a message and returns its exit code if the file cannot be
 * written or whole_compare rejects it. */
enum exit_code atomic_file_open(struct whole_file *w, const struct options *o,
                                const char *option, const char *path);
/* A pl_write_fn whose user pointer `w` is a struct whole_file.
 * atomic_file_close reports failed writes. */
void whole_write(void *w, const char *data, size_t n);
/* Closes the file; does nothing if it is closed already. With `keep`, what was
 * written becomes the file at `path`; if a write failed, prints an error
 * instead. Without `keep`, discards what was written. Returns `c`, or on
 * failure the exit code of the error. */
enum exit_code atomic_file_close(struct whole_file *w, const struct options *o,
                                 bool keep, enum exit_code c);

#endif
