/* Implements atomic_file.h. pl_file of the library writes the files. This file
 * adds messages with the name of the option, and the check that two options do
 * not name the same file. */
#include "atomic_file.h"
#include "cmd.h"
#include "option_table.h"
#include "printable.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- file identity ------------------------------------------------------- */

/* Identifies a file by its device and inode. A file that does not exist is
 * identified by the inode of its directory and by its name. */
struct identity {
    bool known;
    dev_t dev;
    ino_t ino;
    const char *name; /* borrowed; name of the file in its directory; "" if the
                         file exists */
};

static struct identity identity_of(struct stat *st, const char *name)
{
    return (struct identity){true, st->st_dev, st->st_ino, name};
}

/* Returns the identity of the file at `path`. "-" means the standard stream
 * with descriptor `std`. The result for devices and pipes has known == false,
 * because any number of options may use them. */
static struct identity identify(const char *path, int std)
{
    const char *slash = strrchr(path, '/');
    struct identity none = {0};
    struct stat st;
    char *dir;
    bool there;

    if ((strcmp(path, "-") == 0 ? fstat(std, &st) : stat(path, &st)) == 0)
        return S_ISREG(st.st_mode) ? identity_of(&st, "") : none;
    dir =
        slash != NULL ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    there = dir != NULL && stat(dir, &st) == 0;
    free(dir);
    return there ? identity_of(&st, slash != NULL ? slash + 1 : path) : none;
}

static bool same(const struct identity *a, const struct identity *b)
{
    return a->known && b->known && a->dev == b->dev && a->ino == b->ino &&
           strcmp(a->name, b->name) == 0;
}

bool whole_same(const char *a, const char *b)
{
    const struct identity one = identify(a, STDOUT_FILENO);
    const struct identity other = identify(b, STDOUT_FILENO);

    return strcmp(a, b) == 0 || same(&one, &other);
}

/* Returns true if `is` identifies the model's file at `path`. If `path` is one
 * part of a split model, NAME-00001-of-00002.gguf, all its parts are
 * compared. */
static bool is_read(const struct identity *is, const char *path)
{
    enum { ENDING = 20 };
    size_t n = strlen(path);
    struct identity part = identify(path, STDIN_FILENO);
    int no, count, end = 0;
    bool found = same(is, &part);

    if (found || n < ENDING ||
        sscanf(path + n - ENDING, "-%5d-of-%5d.gguf%n", &no, &count, &end) !=
            2 ||
        end != ENDING)
        return found;
    for (no = 1; no <= count && !found; no++) {
        char *name;

        if (asprintf(&name, "%.*s-%05d-of-%05d.gguf", (int)n - ENDING, path, no,
                     count) < 0)
            break;
        part = identify(name, STDIN_FILENO);
        found = same(is, &part);
        free(name);
    }
    return found;
}

/* ---- files of the options ------------------------------------------------ */

/* Returns the path of the file that an option's value names; NULL if the value
 * names none. An option that takes token ids names a file if its value begins
 * with an @. */
static const char *file_of(const struct options *o,
                           const struct option_row *row)
{
    const char *value = *(char *const *)((const char *)o + row->offset);

    if (value == NULL || strcmp(row->arg, "FILE") == 0)
        return value;
    return value[0] == '@' ? value + 1 : NULL;
}

static enum exit_code refuse(const struct options *o, const char *option,
                             const char *path, const char *other,
                             const char *other_path)
{
    char name[SHOWN], other_name[SHOWN];

    return cli_error(o->command, EXIT_USAGE,
                     "%s %s would overwrite the file of %s (%s); name another",
                     option, clip_printable(name, path), other,
                     clip_printable(other_name, other_path));
}

/* Checks that an output file is not a file that standard input, output or error
 * is redirected to, as with <, > and 2> of a shell. Prints an error and returns
 * EXIT_USAGE if it is. */
static enum exit_code check_standard(const struct options *o,
                                     const char *option, const char *path,
                                     const struct identity *is)
{
    static const char *const names[] = {"standard input", "standard output",
                                        "standard error"};

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        struct identity std = identify("-", fd);

        if (same(is, &std))
            return refuse(o, option, path, names[fd], "-");
    }
    return EXIT_DONE;
}

/* Checks that an output file is not a file that another option reads, or that
 * an option before `row` writes. `row` is the row of `option`; NULL if a
 * command of a chat names the file. A saved state may replace the file of the
 * state that was loaded. Prints an error and returns EXIT_USAGE on a
 * conflict. */
static enum exit_code check_others(const struct options *o, const char *option,
                                   const char *path,
                                   const struct option_row *row)
{
    const struct identity is = identify(path, STDOUT_FILENO);

    for (int i = 0; i < n_option_row; i++) {
        const struct option_row *r = &option_table[i];
        uint64_t both = row != NULL ? r->commands & row->commands : 0;
        struct identity other;
        const char *file;

        if (!(r->commands & (1u << o->command)) || r == row ||
            !(r->commands & (OPTION_READS | OPTION_WRITES)) ||
            (file = file_of(o, r)) == NULL || (both & OPTION_STATE))
            continue;
        if (r->commands & OPTION_READS) {
            if (is_read(&is, file))
                return refuse(o, option, path, r->name[0], file);
            continue;
        }
        if (row != NULL && r > row)
            continue;
        other = identify(file, STDOUT_FILENO);
        if (same(&is, &other) ||
            (strcmp(path, "-") == 0 && strcmp(file, "-") == 0))
            return refuse(o, option, path, r->name[0], file);
    }
    for (int i = 0; i < o->n_axis; i++)
        if ((o->axis[i].row->commands & OPTION_READS) &&
            is_read(&is, o->axis[i].value))
            return refuse(o, option, path, o->axis[i].row->name[0],
                          o->axis[i].value);
    return strcmp(path, "-") == 0 ? EXIT_DONE
                                  : check_standard(o, option, path, &is);
}

static enum exit_code cannot(const struct options *o, const char *option,
                             pl_status s, const pl_err *err)
{
    return cli_error(o->command,
                     s == PL_BAD_ARGUMENT ? EXIT_USAGE : EXIT_FAILED, "%s %s",
                     option, err->message);
}

static enum exit_code check_output(const struct options *o,
                                   const struct option_row *row,
                                   const char *path)
{
    const char *option = row->name[0];
    bool std = strcmp(path, "-") == 0;
    /* A trace on standard output would mix with the text that every command
     * except logits prints there. */
    bool prints = row->offset == offsetof(struct options, trace) &&
                  o->command != CMD_LOGITS;
    bool streams = row->commands & OPTION_STREAMS;
    enum exit_code c;
    struct stat st;
    pl_file *f;
    pl_err err;
    pl_status s;

    if (std && (!streams || prints))
        return cli_error(o->command, EXIT_USAGE,
                         "%s -: standard output is taken by this command's own "
                         "output; name a file",
                         option);
    c = check_others(o, option, path, row);
    if (c != EXIT_DONE || std ||
        (streams && stat(path, &st) == 0 &&
         /* devices and pipes are not opened here, because the command opens
          * them later */
         (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode))))
        return c;
    s = pl_file_open(&f, path, 0, &err); /* tests only that a file can be
                                            written there; a file at `path`
                                            stays as it is */
    pl_file_close(f);
    return s == PL_OK ? EXIT_DONE : cannot(o, option, s, &err);
}

static bool names_model(const struct option_row *row)
{
    return row->offset == offsetof(struct options, model);
}

/* Checks that a file can be read, without opening it: it may be a pipe. */
static enum exit_code check_input(const struct options *o,
                                  const struct option_row *row,
                                  const char *path)
{
    bool model = names_model(row);
    const char *remedy = "";
    char name[SHOWN];
    struct stat st;
    int e = 0;

    if (strcmp(path, "-") == 0 || path[0] == '\0')
        return EXIT_DONE;
    if (stat(path, &st) != 0 ||
        faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) != 0)
        e = errno;
    else if (S_ISDIR(st.st_mode))
        e = EISDIR;
    if (e == 0)
        return EXIT_DONE;
    if (e == ENOENT || e == ENOTDIR)
        remedy =
            model && o->command != CMD_INSPECT
                ? "; check the path, or download a model with -hf USER/REPO"
                : "; check the path";
    else if (e == EISDIR)
        remedy = model && o->command == CMD_SERVE
                     ? "; name a file in it, or serve all with --models-dir"
                     : "; name a file in it";
    else if (e == EACCES)
        remedy = "; allow to read it";
    return cli_error(o->command, EXIT_FAILED, "%s%s%s: %s%s",
                     model ? "" : row->name[0], model ? "" : " ",
                     clip_printable(name, path), strerror(e), remedy);
}

enum exit_code whole_check_inputs(const struct options *o, bool model)
{
    enum exit_code c = EXIT_DONE;

    for (int i = 0; i < n_option_row && c == EXIT_DONE; i++) {
        const struct option_row *row = &option_table[i];
        const char *path;

        if ((row->commands & (1u << o->command)) &&
            (row->commands & OPTION_READS) && (model || !names_model(row)) &&
            (path = file_of(o, row)) != NULL)
            c = check_input(o, row, path);
    }
    for (int i = 0; i < o->n_axis && c == EXIT_DONE; i++)
        if (names_model(o->axis[i].row) && model)
            c = check_input(o, o->axis[i].row, o->axis[i].value);
    return c;
}

enum exit_code whole_check(const struct options *o)
{
    /* The file of -m is not checked for a server of several models, which reads
     * it later, nor for bench --serve, where -m is the name of a model. If a
     * model is also named in another way, fetch_model reports that. */
    bool model = o->serve == NULL && o->hf_repo == NULL &&
                 o->model_url == NULL &&
                 (o->command != CMD_SERVE || !serve_has_many(o));
    enum exit_code c = EXIT_DONE;

    for (int i = 0; i < n_option_row && c == EXIT_DONE; i++) {
        const struct option_row *row = &option_table[i];
        const char *path;

        if ((row->commands & (1u << o->command)) &&
            (row->commands & OPTION_WRITES) && (path = file_of(o, row)) != NULL)
            c = check_output(o, row, path);
    }
    return c == EXIT_DONE ? whole_check_inputs(o, model) : c;
}

/* ---- writing ------------------------------------------------------------- */

enum exit_code whole_compare(const struct options *o, const char *option,
                             const char *path)
{
    return check_others(o, option, path, option_find(option, 1u << o->command));
}

enum exit_code atomic_file_open(struct whole_file *w, const struct options *o,
                                const char *option, const char *path)
{
    enum exit_code c = whole_compare(o, option, path);
    pl_err err;
    pl_status s;

    *w = (struct whole_file){.option = option, .path = path};
    if (c != EXIT_DONE)
        return c;
    if (strcmp(path, "-") == 0)
        /* text printed so far must precede the file's contents on standard
         * output */
        fflush(stdout);
    s = pl_file_open(&w->f, path, PL_FILE_STREAM, &err);
    return s == PL_OK ? EXIT_DONE : cannot(o, option, s, &err);
}

void whole_write(void *user, const char *data, size_t n)
{
    struct whole_file *w = user;

    pl_file_write(w->f, data, n);
}

/* Returns true if standard output is a pipe whose reader is gone. */
static bool nobody_reads(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR) != 0;
}

enum exit_code atomic_file_close(struct whole_file *w, const struct options *o,
                                 bool keep, enum exit_code c)
{
    pl_err err;
    pl_status s = PL_OK;

    if (w->f != NULL && keep)
        s = pl_file_commit(w->f, &err);
    if (s != PL_OK && c == EXIT_DONE && strcmp(w->path, "-") == 0 &&
        nobody_reads())
        /* the reader of standard output is gone: exits without a message, as
         * finish_out does */
        c = EXIT_PIPE;
    else if (s != PL_OK && (c == EXIT_DONE || c == EXIT_INTERRUPTED))
        c = cannot(o, w->option, s, &err);
    pl_file_close(w->f);
    *w = (struct whole_file){0};
    return c;
}
