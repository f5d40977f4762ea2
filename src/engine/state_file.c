/* pl_state_*: streams of state to callbacks, memory and files.
 *
 * A file is written under a name of its own beside its place, brought to the
 * disk and then renamed over it, and the directory is brought to the disk too:
 * whoever looks finds the old file or the new one, whole. */
#include "engine/state_io.h"

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

enum {
    BUFFER_BYTES = 1 << 20,
    FLUSH_BYTES = 8 << 20, /* written before the disk is told to begin */
};

/* Callbacks -------------------------------------------------------------- */

pl_status pl_state_save(pl_engine *e, int seq, int64_t first, int64_t n,
                        pl_state_write_fn *write, void *user, pl_err *err)
{
    return state_save(e, seq, first, n, write, user, NULL, err);
}

pl_status pl_state_size(pl_engine *e, int seq, int64_t first, int64_t n,
                        uint64_t *bytes, pl_err *err)
{
    return state_save(e, seq, first, n, NULL, NULL, bytes, err);
}

pl_status pl_state_restore(pl_engine *e, int seq, pl_state_read_fn *read,
                           void *user, unsigned flags, pl_err *err)
{
    const struct state_source from = {read, NULL, user};

    return state_restore(e, seq, &from, flags, err);
}

/* Memory ----------------------------------------------------------------- */

struct memory {
    unsigned char *out;
    const unsigned char *in;
    size_t size, at;
};

static bool memory_write(void *user, const void *data, size_t n)
{
    struct memory *m = user;

    if (n > m->size - m->at)
        return false;
    memcpy(m->out + m->at, data, n);
    m->at += n;
    return true;
}

static int64_t memory_read(void *user, void *data, size_t n)
{
    struct memory *m = user;

    if (n > m->size - m->at)
        n = m->size - m->at;
    if (n > 0)
        memcpy(data, m->in + m->at, n);
    m->at += n;
    return (int64_t)n;
}

static bool memory_rewind(void *user)
{
    struct memory *m = user;

    m->at = 0;
    return true;
}

pl_status pl_state_save_memory(pl_engine *e, int seq, int64_t first, int64_t n,
                               void **data, size_t *bytes, pl_err *err)
{
    struct memory m = {0};
    uint64_t size;
    pl_status s;

    *data = NULL;
    *bytes = 0;
    PL_TRY(pl_state_size(e, seq, first, n, &size, err));
    m.size = (size_t)size;
    m.out = malloc(m.size);
    if (!m.out)
        return err_set(err, PL_NO_MEMORY,
                       "no memory for a state of %" PRIu64 " bytes", size);
    s = pl_state_save(e, seq, first, n, memory_write, &m, err);
    if (s != PL_OK) {
        free(m.out);
        return s;
    }
    *data = m.out;
    *bytes = m.at;
    return PL_OK;
}

pl_status pl_state_restore_memory(pl_engine *e, int seq, const void *data,
                                  size_t bytes, unsigned flags, pl_err *err)
{
    struct memory m = {.in = data, .size = bytes};
    const struct state_source from = {memory_read, memory_rewind, &m};

    return state_restore(e, seq, &from, flags, err);
}

/* Files ------------------------------------------------------------------ */

struct file {
    int fd;
    int error; /* errno of the first failure, 0: none */
    unsigned char *buffer;
    size_t at, end;   /* in the buffer; end: reading only */
    uint64_t flushed; /* bytes that the disk was told to begin with */
    uint64_t written;
};

static bool write_out(struct file *f, const unsigned char *p, size_t n)
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
    if (f->written - f->flushed >= FLUSH_BYTES) {
        /* only advice: what fails here fails again in fsync */
        (void)!sync_file_range(f->fd, (off_t)f->flushed,
                               (off_t)(f->written - f->flushed),
                               SYNC_FILE_RANGE_WRITE);
        f->flushed = f->written;
    }
    return true;
}

static bool file_write(void *user, const void *data, size_t n)
{
    struct file *f = user;

    if (n > BUFFER_BYTES - f->at) {
        if (!write_out(f, f->buffer, f->at))
            return false;
        f->at = 0;
        if (n >= BUFFER_BYTES)
            return write_out(f, data, n);
    }
    memcpy(f->buffer + f->at, data, n);
    f->at += n;
    return true;
}

static int64_t file_read(void *user, void *data, size_t n)
{
    struct file *f = user;
    size_t done = 0;

    while (done < n) {
        size_t k = f->end - f->at < n - done ? f->end - f->at : n - done;
        ssize_t got;

        memcpy((char *)data + done, f->buffer + f->at, k);
        f->at += k;
        done += k;
        if (done == n)
            break;
        got = read(f->fd, f->buffer, BUFFER_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            f->error = errno;
            return -1;
        }
        if (got == 0)
            break;
        f->at = 0;
        f->end = (size_t)got;
    }
    return (int64_t)done;
}

static bool file_rewind(void *user)
{
    struct file *f = user;

    f->at = f->end = 0;
    return lseek(f->fd, 0, SEEK_SET) == 0;
}

static pl_status failed(const char *doing, const char *path, int error,
                        pl_err *err)
{
    return err_set(err, error == ENOENT ? PL_NOT_FOUND : PL_IO, "%s %s: %s",
                   doing, path, strerror(error));
}

/* A new file beside `path`; its name goes to *name, malloc'ed. */
static int open_beside(const char *path, mode_t mode, char **name)
{
    size_t size = strlen(path) + 32;
    int fd = -1;

    *name = malloc(size);
    if (!*name)
        return -1;
    for (int i = 0; fd < 0 && i < 100; i++) {
        uint64_t r = (uint64_t)getpid() << 32 | (uint64_t)i;

        (void)!getrandom(&r, sizeof r, GRND_NONBLOCK);
        snprintf(*name, size, "%s.%016" PRIx64 ".part", path, r);
        fd = open(*name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

/* A rename is on the disk once its directory is. */
static int sync_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    int fd = dir ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int error = 0;

    if (!dir)
        error = ENOMEM;
    else if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP))
        error = errno;
    if (fd >= 0)
        close(fd);
    free(dir);
    return error;
}

/* mode: of the file that it replaces, or -1. */
static pl_status save_file(pl_engine *e, int seq, int64_t first, int64_t n,
                           const char *path, int mode, pl_err *err)
{
    struct file f = {.buffer = malloc(BUFFER_BYTES)};
    char *name = NULL;
    pl_status s;

    if (!f.buffer)
        return err_no_memory(err, "writing a file");
    f.fd = open_beside(path, mode < 0 ? 0666 : (mode_t)mode, &name);
    if (f.fd < 0) {
        s = name ? failed("creating a file beside", path, errno, err)
                 : err_no_memory(err, "writing a file");
        goto done;
    }
    if (mode >= 0) /* whatever is kept from new files; if it fails, fewer may */
        (void)!fchmod(f.fd, (mode_t)mode);
    s = pl_state_save(e, seq, first, n, file_write, &f, err);
    if (s == PL_OK && write_out(&f, f.buffer, f.at) && fsync(f.fd) != 0)
        f.error = errno;
    if (close(f.fd) != 0 && !f.error)
        f.error = errno;
    if (s == PL_OK && !f.error && rename(name, path) != 0)
        f.error = errno;
    if (f.error)
        s = failed("writing", path, f.error, err);
    if (s != PL_OK) {
        unlink(name);
        goto done;
    }
    f.error = sync_directory(path);
    if (f.error)
        s = failed("bringing to the disk the directory of", path, f.error, err);
done:
    free(name);
    free(f.buffer);
    return s;
}

pl_status pl_state_save_file(pl_engine *e, int seq, int64_t first, int64_t n,
                             const char *path, pl_err *err)
{
    char real[PATH_MAX];
    struct stat st;

    if (stat(path, &st) != 0)
        return save_file(e, seq, first, n, path, -1, err);
    if (!S_ISREG(st.st_mode))
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s is no regular file, which alone can be replaced at "
                       "once; give the name of one",
                       path);
    /* what a link names is replaced, not the link; who may read it stays */
    return save_file(e, seq, first, n, realpath(path, real) ? real : path,
                     (int)(st.st_mode & 0777), err);
}

pl_status pl_state_restore_file(pl_engine *e, int seq, const char *path,
                                unsigned flags, pl_err *err)
{
    struct file f = {.fd = open(path, O_RDONLY | O_CLOEXEC)};
    struct state_source from = {file_read, NULL, &f};
    pl_err why = {0};
    pl_status s;

    if (f.fd < 0)
        return failed("opening", path, errno, err);
    f.buffer = malloc(BUFFER_BYTES);
    if (lseek(f.fd, 0, SEEK_SET) == 0) /* no pipe */
        from.rewind = file_rewind;
    s = f.buffer ? state_restore(e, seq, &from, flags, &why)
                 : err_no_memory(&why, "reading a file");
    if (f.error)
        s = failed("reading", path, f.error, err);
    else if (s != PL_OK)
        err_set(err, s, "%s: %.900s", path, why.message);
    close(f.fd);
    free(f.buffer);
    return s;
}
