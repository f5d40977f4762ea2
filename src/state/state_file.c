/* pl_state_*: streams of state to callbacks, memory and files.
 *
 * A file is replaced as a whole, by base/replace.h. */
#include "state/state_io.h"

#include "base/err.h"
#include "base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 1 << 20,
    FLUSH_BYTES = 8 << 20, /* written before the disk is told to begin */
};

/* Callbacks -------------------------------------------------------------- */

pl_status pl_state_save(pl_engine *e, int seq, int64_t first, int64_t n,
                        pl_state_write_fn *write, void *user, pl_err *err)
{
    PL_NEED(e, err);
    PL_NEED(write, err);
    return state_save(e, &(struct state_range){seq, first, n, false}, write,
                      user, NULL, err);
}

pl_status pl_state_size(pl_engine *e, int seq, int64_t first, int64_t n,
                        uint64_t *bytes, pl_err *err)
{
    PL_CLEAR(bytes);
    PL_NEED(e, err);
    PL_NEED(bytes, err);
    return state_save(e, &(struct state_range){seq, first, n, false}, NULL,
                      NULL, bytes, err);
}

pl_status pl_state_restore(pl_engine *e, int seq, pl_state_read_fn *read,
                           void *user, unsigned flags, pl_err *err)
{
    const struct state_source from = {read, NULL, user};

    PL_NEED(e, err);
    PL_NEED(read, err);
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

static pl_status save_memory(pl_engine *e, const struct state_range *what,
                             void **data, size_t *bytes, pl_err *err)
{
    struct memory m = {0};
    uint64_t size;
    pl_status s;

    PL_TRY(state_save(e, what, NULL, NULL, &size, err));
    m.size = (size_t)size;
    m.out = malloc(m.size);
    if (!m.out)
        return err_set(err, PL_NO_MEMORY,
                       "no memory for a state of %" PRIu64 " bytes", size);
    s = state_save(e, what, memory_write, &m, NULL, err);
    if (s != PL_OK) {
        free(m.out);
        return s;
    }
    *data = m.out;
    *bytes = m.at;
    return PL_OK;
}

pl_status pl_state_save_memory(pl_engine *e, int seq, int64_t first, int64_t n,
                               void **data, size_t *bytes, pl_err *err)
{
    PL_CLEAR(data);
    PL_CLEAR(bytes);
    PL_NEED(e, err);
    PL_NEED(data, err);
    PL_NEED(bytes, err);
    return save_memory(e, &(struct state_range){seq, first, n, false}, data,
                       bytes, err);
}

pl_status pl_state_put_aside(pl_engine *e, int seq, void **data, size_t *bytes,
                             pl_err *err)
{
    PL_CLEAR(data);
    PL_CLEAR(bytes);
    PL_NEED(e, err);
    PL_NEED(data, err);
    PL_NEED(bytes, err);
    return save_memory(e, &(struct state_range){seq, 0, -1, true}, data, bytes,
                       err);
}

pl_status pl_state_restore_memory(pl_engine *e, int seq, const void *data,
                                  size_t bytes, unsigned flags, pl_err *err)
{
    struct memory m = {.in = data, .size = bytes};
    const struct state_source from = {memory_read, memory_rewind, &m};

    PL_NEED(e, err);
    PL_NEED_ARRAY(data, bytes, err);
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

pl_status pl_state_save_file(pl_engine *e, int seq, int64_t first, int64_t n,
                             const char *path, pl_err *err)
{
    struct file f = {0};
    struct replace r;
    pl_status s;

    PL_NEED(e, err);
    PL_NEED(path, err);
    PL_TRY(replace_open(&r, path, err));
    f.fd = r.fd;
    f.buffer = malloc(BUFFER_BYTES);
    s = f.buffer ? pl_state_save(e, seq, first, n, file_write, &f, err)
                 : err_no_memory(err, "writing a file");
    if (s == PL_OK)
        (void)write_out(&f, f.buffer, f.at);
    if (f.error)
        s = failed("writing", r.path, f.error, err);
    if (s == PL_OK)
        s = replace_done(&r, err);
    replace_close(&r);
    free(f.buffer);
    return s;
}

/* A pipe that nobody writes to is not waited for: it is empty. */
static int open_to_read(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd >= 0)
        (void)fcntl(fd, F_SETFL, 0); /* one that has a writer is read */
    return fd;
}

pl_status pl_state_restore_file(pl_engine *e, int seq, const char *path,
                                unsigned flags, pl_err *err)
{
    struct file f = {.fd = -1};
    struct state_source from = {file_read, NULL, &f};
    pl_err why = {0};
    pl_status s;

    PL_NEED(e, err);
    PL_NEED(path, err);
    f.fd = open_to_read(path);
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
