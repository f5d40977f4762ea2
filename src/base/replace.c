/* See replace.h. Linux: O_TMPFILE makes a file without a name, linkat gives it
 * one, rename the place. Errors of writing that the system has kept to itself
 * come with fsync, so that what close says need not be asked. */
#include "base/replace.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static pl_status failed(const char *doing, const char *path, pl_err *err)
{
    pl_status s = errno == ENOENT   ? PL_NOT_FOUND
                  : errno == ENOMEM ? PL_NO_MEMORY
                                    : PL_IO;

    return err_set(err, s, "%s %s: %s", doing, path, strerror(errno));
}

/* A name beside the place that nobody has: r->fd's, or if there is none that of
 * a new file. False: see errno. */
static bool take_name(struct replace *r, mode_t mode)
{
    size_t size = strlen(r->path) + 32;
    char *name = malloc(size), self[40];
    bool ok = false;

    if (!name) {
        errno = ENOMEM;
        return false;
    }
    snprintf(self, sizeof self, "/proc/self/fd/%d", r->fd);
    for (int i = 0; !ok && i < 100; i++) {
        uint64_t x = (uint64_t)getpid() << 32 | (uint64_t)i;

        (void)!getrandom(&x, sizeof x, GRND_NONBLOCK);
        snprintf(name, size, "%s.%016" PRIx64 ".part", r->path, x);
        if (r->fd < 0) {
            r->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
            ok = r->fd >= 0;
        } else {
            ok = linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
        }
        if (!ok && errno != EEXIST)
            break;
    }
    if (ok)
        r->name = name;
    else
        free(name);
    return ok;
}

/* mode: of the file that was there, or -1. */
static pl_status open_at(struct replace *r, const char *place, int mode,
                         pl_err *err)
{
    mode_t new_mode = mode < 0 ? 0666 : (mode_t)mode;
    const char *slash = strrchr(place, '/');

    r->path = strdup(place);
    r->dir = slash ? strndup(place, (size_t)(slash - place) + 1) : strdup(".");
    if (!r->path || !r->dir)
        return err_no_memory(err, "writing a file");
    if (access("/proc/self/fd", X_OK) == 0) /* names are given there */
        r->fd = open(r->dir, O_WRONLY | O_TMPFILE | O_CLOEXEC, new_mode);
    if (r->fd < 0 && !take_name(r, new_mode))
        return failed("creating a file beside", place, err);
    if (mode >= 0) /* whatever is kept from new files; if it fails, fewer may */
        (void)!fchmod(r->fd, (mode_t)mode);
    return PL_OK;
}

pl_status replace_open(struct replace *r, const char *path, pl_err *err)
{
    char real[PATH_MAX];
    struct stat st;
    pl_status s;

    *r = (struct replace){.fd = -1};
    if (stat(path, &st) != 0) {
        s = open_at(r, path, -1, err);
    } else if (!S_ISREG(st.st_mode)) {
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s is no regular file, which alone can be replaced at "
                       "once; give the name of one",
                       path);
    } else {
        s = open_at(r, realpath(path, real) ? real : path,
                    (int)(st.st_mode & 0777), err);
    }
    if (s != PL_OK)
        replace_close(r);
    return s;
}

/* A rename is on the disk once its directory is. */
static pl_status sync_directory(const char *dir, pl_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pl_status s = PL_OK;

    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP))
        s = failed("bringing to the disk", dir, err);
    if (fd >= 0)
        close(fd);
    return s;
}

pl_status replace_done(struct replace *r, pl_err *err)
{
    if (fsync(r->fd) != 0 || (!r->name && !take_name(r, 0)) ||
        rename(r->name, r->path) != 0)
        return failed("writing", r->path, err);
    free(r->name);
    r->name = NULL; /* it is the place's now */
    return sync_directory(r->dir, err);
}

void replace_close(struct replace *r)
{
    if (r->name)
        unlink(r->name);
    if (r->fd >= 0)
        close(r->fd);
    free(r->path);
    free(r->dir);
    free(r->name);
    *r = (struct replace){.fd = -1};
}
