/* See whole_file.h. Where the file system knows files without a name, nothing
 * is left of one that was never finished; elsewhere it has a name that ends in
 * ".part" meanwhile. Saved states are the library's, which does it likewise. */
#include "whole_file.h"
#include "shown.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum exit_code cannot(const struct options *o, const char *option,
                             const char *path, const char *why)
{
    char name[SHOWN];

    return complain(o->command, EXIT_FAILED, "%s %s: %s", option,
                    shown(name, path), why);
}

/* The name of a new file beside the place: that of `fd`, or, if it is negative,
 * of one that is made. */
static int name_part(struct whole_file *w, int fd)
{
    char self[40];

    if (asprintf(&w->part, "%s.XXXXXX.part", w->place) < 0) {
        w->part = NULL;
        return -1;
    }
    if (fd < 0) {
        fd = mkostemps(w->part, 5, O_CLOEXEC);
    } else {
        int made = mkostemps(w->part, 5, O_CLOEXEC); /* a name nobody has */

        snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        if (made < 0 || close(made) != 0 || unlink(w->part) != 0 ||
            linkat(AT_FDCWD, self, AT_FDCWD, w->part, AT_SYMLINK_FOLLOW) != 0)
            fd = -1;
    }
    if (fd < 0) {
        int error = errno;

        free(w->part);
        w->part = NULL;
        errno = error;
    }
    return fd;
}

/* A file for a place where there is a regular one, of these permissions, or
 * none. */
static int open_part(struct whole_file *w, mode_t mode)
{
    const char *slash = strrchr(w->place, '/');
    char *dir = slash != NULL
                    ? strndup(w->place, (size_t)(slash - w->place) + 1)
                    : strdup(".");
    int fd = -1;

    if (dir == NULL)
        return -1;
    if (access("/proc/self/fd", X_OK) == 0)
        fd = open(dir, O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600);
    free(dir);
    if (fd < 0)
        fd = name_part(w, -1);
    if (fd >= 0)
        (void)fchmod(fd, mode);
    return fd;
}

static mode_t mode_of_new_files(void)
{
    mode_t mask = umask(0);

    umask(mask);
    return 0666 & ~mask;
}

enum exit_code whole_open(struct whole_file *w, const struct options *o,
                          const char *option, const char *path)
{
    char real[PATH_MAX], name[SHOWN];
    struct stat st;
    bool there;
    int fd;

    *w = (struct whole_file){.path = path};
    if (strcmp(path, "-") == 0) {
        w->f = stdout;
        return EXIT_DONE;
    }
    there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode)) {
        w->f = fopen(path, "wbe");
        return w->f != NULL ? EXIT_DONE
                            : cannot(o, option, path, strerror(errno));
    }
    if (there && access(path, W_OK) != 0)
        return cannot(o, option, path, strerror(errno));
    w->place = strdup(there && realpath(path, real) != NULL ? real : path);
    if (w->place == NULL)
        return cannot(o, option, path, "no memory for a file's name");
    fd = open_part(w, there ? st.st_mode & 0777 : mode_of_new_files());
    w->f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (w->f == NULL) {
        enum exit_code c = complain(
            o->command, EXIT_FAILED,
            "%s %s: no file can be made there: %s; name one in a directory "
            "that may be written to",
            option, shown(name, path), strerror(errno));

        if (fd >= 0)
            close(fd);
        return whole_close(w, o, false, c);
    }
    return EXIT_DONE;
}

void whole_write(void *user, const char *data, size_t n)
{
    struct whole_file *w = user;

    errno = 0;
    if (w->error == 0 && fwrite(data, 1, n, w->f) != n)
        w->error = errno != 0 ? errno : EIO;
}

/* Brings all of it to the disk and gives it its name. */
static bool take_place(struct whole_file *w)
{
    if (fsync(fileno(w->f)) != 0)
        return false;
    if (w->part == NULL && name_part(w, fileno(w->f)) < 0)
        return false;
    if (rename(w->part, w->place) != 0)
        return false;
    free(w->part);
    w->part = NULL;
    return true;
}

enum exit_code whole_close(struct whole_file *w, const struct options *o,
                           bool keep, enum exit_code c)
{
    char name[SHOWN];

    errno = 0;
    if (w->f != NULL && fflush(w->f) != 0 && w->error == 0)
        w->error = errno != 0 ? errno : EIO;
    if (w->f != NULL && w->error == 0 && keep && w->place != NULL &&
        !take_place(w))
        w->error = errno != 0 ? errno : EIO;
    if (w->error == EPIPE && w->f == stdout && c == EXIT_DONE)
        c = EXIT_PIPE; /* as finish_out */
    else if (w->error != 0 && (c == EXIT_DONE || c == EXIT_INTERRUPTED))
        c = complain(o->command, EXIT_FAILED, "writing %s: %s%s",
                     w->f == stdout ? "standard output" : shown(name, w->path),
                     strerror(w->error),
                     w->place != NULL ? "; what was there is as it was" : "");
    if (w->part != NULL)
        unlink(w->part);
    if (w->f != NULL && w->f != stdout)
        fclose(w->f);
    free(w->part);
    free(w->place);
    *w = (struct whole_file){0};
    return c;
}
