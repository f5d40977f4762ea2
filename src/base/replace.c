/* Implements pl_file (pl.h), by which plait writes all of its files. A file
 * replaces an existing one atomically.
 *
 * On Linux, O_TMPFILE creates a file without a name, linkat gives it a
 * temporary name, and rename moves it to the final path. On a file system
 * without O_TMPFILE, the file has a temporary name that ends in ".part" from
 * the beginning. fsync reports write errors that the system has deferred, so
 * the result of close is ignored. */
#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 1 << 20,
    FLUSH_BYTES = 8 << 20, /* number of written bytes after which the system is
                              told to start writing them to disk */
};

struct pl_file {
    int fd;
    bool whole; /* the file replaces `path` atomically; else it is written
                   directly */
    /* If the file is closed without a commit, the temporary file `name` stays,
     * so that a later call can resume the writing. */
    bool resumes;
    bool borrowed; /* fd is standard output, so closing the file leaves fd
                      open */
    bool done;     /* the new file has been committed: it is at `path` */
    char *path;    /* owned: final path, with symbolic links resolved */
    char *dir;     /* owned: directory of `path` */
    char *name; /* owned: temporary name of the new file; NULL if it has none */
    int error;  /* errno of the first write that failed, 0 if none */
    unsigned char *buffer; /* owned, [BUFFER_BYTES] bytes that the caller has
                              written */
    size_t at; /* number of bytes in `buffer`, not yet written to fd */
    /* number of bytes written, and the number that the system was told to write
     * to disk */
    uint64_t written, flushed;
};

/* Sets the message for errno: `path`, then `what`, the text of errno, and
 * `remedy`. Returns a status that fits errno. */
static pl_status failed(const char *path, const char *what, const char *remedy,
                        pl_err *err)
{
    pl_status s = errno == ENOENT   ? PL_NOT_FOUND
                  : errno == ENOMEM ? PL_NO_MEMORY
                                    : PL_IO;

    return err_set(err, s, "%s: %s%s%s", path, what, strerror(errno), remedy);
}

/* ---- permission to replace a file ---------------------------------------- */

/* Returns PL_OK if a new file may be created at `path`, or may replace the file
 * there. Sets *old to the status of an existing regular file, or to zeros if
 * there is none. A write-protected file is not replaced, even if root asks. */
static pl_status guard(const char *path, struct stat *old, pl_err *err)
{
    struct stat st;

    *old = (struct stat){0};
    if (stat(path, &st) != 0) {
        int error = errno;

        /* A link without a target is rejected, because rename would replace the
         * link itself. */
        if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode))
            return err_set(err, PL_BAD_ARGUMENT,
                           "%s: a symbolic link without a target file (%s); "
                           "remove it, or name the file itself",
                           path, strerror(error));
        errno = error;
        return error == ENAMETOOLONG
                   ? failed(path, "", "; give a shorter name", err)
                   /* Other errors of stat are not reported here, because
                    * creating the file there then fails, too. */
                   : PL_OK;
    }
    if (S_ISDIR(st.st_mode))
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: a directory; give the name of a file", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: not a regular file, and only those can be replaced "
                       "atomically; name one",
                       path);
    if ((st.st_mode & 0222) == 0 || access(path, W_OK) != 0)
        return err_set(err, PL_IO,
                       "%s: write-protected (mode %04o); name another file, or "
                       "make this one writable",
                       path, (unsigned)st.st_mode & 07777);
    *old = st;
    return PL_OK;
}

/* ---- opening a file for writing ------------------------------------------ */

/* Gives the open file f->fd an unused temporary name in the directory of
 * f->path. If f->fd is -1, creates a file with that name. The name begins with
 * the file name of f->path, truncated to the file system's limit. Returns false
 * and sets errno on failure. */
static bool take_name(struct pl_file *f, mode_t mode)
{
    /* Number of characters appended to the file name: ".", 16 digits and
     * ".part". */
    enum { ENDING = 1 + 16 + 5 };
    const char *slash = strrchr(f->path, '/');
    const char *base = slash ? slash + 1 : f->path;
    int kept = (int)(base - f->path) + (int)strnlen(base, NAME_MAX - ENDING);
    size_t size = (size_t)kept + ENDING + 1;
    char *name = malloc(size), self[40];
    bool ok = false;

    if (!name) {
        errno = ENOMEM;
        return false;
    }
    snprintf(self, sizeof self, "/proc/self/fd/%d", f->fd);
    for (int i = 0; !ok && i < 100; i++) {
        uint64_t x = (uint64_t)getpid() << 32 | (uint64_t)i;

        (void)!getrandom(&x, sizeof x, GRND_NONBLOCK);
        snprintf(name, size, "%.*s.%016" PRIx64 ".part", kept, f->path, x);
        if (f->fd < 0) {
            f->fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
            ok = f->fd >= 0;
        } else {
            ok = linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
        }
        if (!ok && errno != EEXIST)
            break;
    }
    if (ok)
        f->name = name;
    else
        free(name);
    return ok;
}

/* Gives the new file the owner, group and permissions of the file it replaces,
 * `old`; zeros if there is none. The owner first, because that resets mode
 * bits. Only root may give a file to another user; others may give it to a
 * group that they are in. The umask does not restrict the mode. */
static void keep_owner(struct pl_file *f, const struct stat *old)
{
    if (old->st_mode == 0)
        return;
    if ((old->st_uid != geteuid() || old->st_gid != getegid()) &&
        fchown(f->fd, old->st_uid, old->st_gid) != 0)
        (void)!fchown(f->fd, (uid_t)-1, old->st_gid);
    (void)!fchmod(f->fd, old->st_mode & 0777);
}

/* Opens a temporary file in the directory of f->path. `old` is the status of
 * the file to replace, or zeros if there is none. */
static pl_status open_beside(struct pl_file *f, const struct stat *old,
                             pl_err *err)
{
    mode_t mode = old->st_mode != 0 ? old->st_mode & 0777 : 0666;

    /* An O_TMPFILE file gets its name later by linkat from /proc/self/fd.
     * Without this directory a named file is created instead. */
    if (access("/proc/self/fd", X_OK) == 0)
        f->fd = open(f->dir, O_WRONLY | O_TMPFILE | O_CLOEXEC, mode);
    if (f->fd < 0 && !take_name(f, mode))
        return failed(f->path, "cannot create a file there: ",
                      "; name a file in a writable directory", err);
    keep_owner(f, old);
    return PL_OK;
}

/* Opens the file f->name, which another process may be writing or finishing. It
 * is written in place, so that it must have no other name. Opens it again if it
 * was finished meanwhile, and has its final name. The number of tries is
 * limited, because some network file systems give a file another inode number
 * each time. */
static pl_status lock_part(struct pl_file *f, pl_err *err)
{
    enum { TRIES = 100 };
    struct stat own, there;

    for (int i = 1;; i++) {
        f->fd = open(f->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (f->fd < 0)
            return failed(f->name, "", "", err);
        /* file systems without locks give other errors */
        if ((flock(f->fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) ||
            i == TRIES)
            return err_set(err, PL_IO,
                           "%s: is being written already; wait for that to "
                           "end",
                           f->name);
        if (fstat(f->fd, &own) == 0 && stat(f->name, &there) == 0 &&
            own.st_ino == there.st_ino && own.st_dev == there.st_dev)
            break;
        close(f->fd);
        f->fd = -1;
    }
    if (own.st_nlink > 1)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: has another name (hard link), under which its "
                       "contents would change; remove one",
                       f->name);
    return PL_OK;
}

static pl_status open_part(struct pl_file *f, pl_err *err)
{
    size_t size = strlen(f->path) + sizeof ".part";
    struct stat old;

    f->name = malloc(size);
    if (!f->name)
        return err_no_memory(err, "a file's name");
    snprintf(f->name, size, "%s.part", f->path);
    PL_TRY(guard(f->name, &old, err));
    return lock_part(f, err);
}

static pl_status open_whole(struct pl_file *f, const char *path, pl_err *err)
{
    char real[PATH_MAX];
    const char *slash;
    struct stat old;

    f->whole = true;
    PL_TRY(guard(path, &old, err));
    f->path = strdup(old.st_mode != 0 && realpath(path, real) ? real : path);
    if (!f->path)
        return err_no_memory(err, "a file's name");
    slash = strrchr(f->path, '/');
    f->dir =
        slash ? strndup(f->path, (size_t)(slash - f->path) + 1) : strdup(".");
    if (!f->dir)
        return err_no_memory(err, "a file's name");
    return f->resumes ? open_part(f, err) : open_beside(f, &old, err);
}

/* Opens standard output ("-"), a character device or a pipe. */
static pl_status open_stream(struct pl_file *f, const char *path, pl_err *err)
{
    f->borrowed = strcmp(path, "-") == 0;
    f->path = strdup(path);
    if (!f->path)
        return err_no_memory(err, "a file's name");
    f->fd = f->borrowed ? STDOUT_FILENO : open(path, O_WRONLY | O_CLOEXEC);
    return f->fd >= 0 ? PL_OK : failed(path, "", "", err);
}

/* Returns true if PL_FILE_STREAM writes to `path` directly: standard output, a
 * character device or a pipe. Block devices are excluded, because the contents
 * of a disk would be lost. */
static bool is_stream(const char *path)
{
    struct stat st;

    return strcmp(path, "-") == 0 ||
           (stat(path, &st) == 0 &&
            (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode)));
}

pl_status pl_file_open(pl_file **out, const char *path, unsigned flags,
                       pl_err *err)
{
    struct pl_file *f;
    pl_status s;

    PL_CLEAR(out);
    PL_NEED(out, err);
    PL_NEED(path, err);
    if (path[0] == '\0')
        return err_set(err, PL_BAD_ARGUMENT,
                       "pl_file_open: the file name is empty; give one");
    if (flags & ~(unsigned)(PL_FILE_STREAM | PL_FILE_RESUME))
        return err_set(err, PL_UNSUPPORTED,
                       "pl_file_open: unknown flags 0x%x; use PL_FILE_*",
                       flags);
    f = calloc(1, sizeof *f);
    if (!f)
        return err_no_memory(err, "writing a file");
    f->fd = -1;
    f->resumes = flags & PL_FILE_RESUME;
    f->buffer = malloc(BUFFER_BYTES);
    if (!f->buffer)
        s = err_no_memory(err, "writing a file");
    else if ((flags & PL_FILE_STREAM) && is_stream(path))
        s = open_stream(f, path, err);
    else
        s = open_whole(f, path, err);
    if (s == PL_OK)
        *out = f;
    else
        pl_file_close(f);
    return s;
}

int pl_file_fd(const pl_file *f)
{
    return f ? f->fd : -1;
}

/* ---- writing to an open file --------------------------------------------- */

static bool write_out(struct pl_file *f, const unsigned char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = write(f->fd, p, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            f->error = k < 0 ? errno : EIO;
            return false;
        }
        p += k;
        n -= (size_t)k;
        f->written += (uint64_t)k;
    }
    if (f->whole && f->written - f->flushed >= FLUSH_BYTES) {
        /* Errors of sync_file_range are ignored, because fsync reports them
         * before the commit. */
        (void)!sync_file_range(f->fd, (off_t)f->flushed,
                               (off_t)(f->written - f->flushed),
                               SYNC_FILE_RANGE_WRITE);
        f->flushed = f->written;
    }
    return true;
}

static bool flush(struct pl_file *f)
{
    size_t n = f->at;

    f->at = 0;
    return f->error == 0 && write_out(f, f->buffer, n);
}

bool pl_file_write(void *file, const void *data, size_t n)
{
    struct pl_file *f = file;

    if (!f || f->done || (!data && n > 0))
        return false;
    if (n == 0)
        return f->error == 0;
    if (n > BUFFER_BYTES - f->at && !flush(f))
        return false;
    if (f->error != 0 || n >= BUFFER_BYTES)
        return f->error == 0 && write_out(f, data, n);
    memcpy(f->buffer + f->at, data, n);
    f->at += n;
    return true;
}

bool pl_file_flush(pl_file *f)
{
    return f && !f->done && flush(f);
}

/* ---- commit and close ---------------------------------------------------- */

/* Syncs a directory to disk, because a rename within the directory is otherwise
 * not durable. */
static pl_status sync_directory(const char *dir, pl_err *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pl_status s = PL_OK;

    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP))
        s = failed(dir, "syncing it to disk: ", "", err);
    if (fd >= 0)
        close(fd);
    return s;
}

pl_status pl_file_commit(pl_file *f, pl_err *err)
{
    static const char as_it_was[] = "; the previous file is unchanged";
    struct stat old;

    PL_NEED(f, err);
    if (f->done)
        return err_set(err, PL_BAD_ARGUMENT,
                       "pl_file_commit: %s is already committed; open it again "
                       "to replace it",
                       f->path);
    if (!flush(f)) {
        errno = f->error;
        return failed(f->path, "writing it: ", f->whole ? as_it_was : "", err);
    }
    if (!f->whole)
        return PL_OK;
    /* Checks again that `path` may be replaced, because the file was perhaps
     * opened hours ago. */
    if (guard(f->path, &old, err) != PL_OK) {
        if (err)
            err->status = PL_IO;
        return PL_IO;
    }
    if (f->resumes)
        keep_owner(f, &old);
    if (fsync(f->fd) != 0 || (!f->name && !take_name(f, 0)) ||
        rename(f->name, f->path) != 0)
        return failed(f->path, "writing it: ", as_it_was, err);
    free(f->name);
    f->name = NULL; /* The file no longer has its temporary name, because rename
                       has moved it to `path`. */
    f->done = true;
    return sync_directory(f->dir, err);
}

void pl_file_close(pl_file *f)
{
    if (!f)
        return;
    if (f->name && !f->resumes)
        unlink(f->name);
    if (f->fd >= 0 && !f->borrowed)
        close(f->fd);
    free(f->path);
    free(f->dir);
    free(f->name);
    free(f->buffer);
    free(f);
}
