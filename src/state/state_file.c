/* The public functions pl_state_*, which save states to callbacks, to memory or
 * to files, and restore them.
 *
 * Files are written with pl_file_open, so that an incomplete file never
 * replaces a complete one. A file of the engine's own model is never
 * overwritten. */
#include "state/state_io.h"

#include "base/err.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20 };

/* Saving to callbacks and restoring from them ------------------------------ */

pl_status pl_state_save(pl_engine *e, int seq, int64_t first, int64_t n,
                        pl_state_write_fn *write, void *user, pl_err *err)
{
    PL_NEED(e, err);
    PL_NEED(write, err);
    return state_save(e,
                      &(struct state_range){.seq = seq, .first = first, .n = n},
                      write, user, NULL, err);
}

pl_status pl_state_size(pl_engine *e, int seq, int64_t first, int64_t n,
                        uint64_t *bytes, pl_err *err)
{
    PL_CLEAR(bytes);
    PL_NEED(e, err);
    PL_NEED(bytes, err);
    return state_save(e,
                      &(struct state_range){.seq = seq, .first = first, .n = n},
                      NULL, NULL, bytes, err);
}

pl_status pl_state_restore(pl_engine *e, int seq, pl_state_read_fn *read,
                           void *user, unsigned flags, pl_err *err)
{
    const struct state_source from = {.read = read, .user = user};

    PL_NEED(e, err);
    PL_NEED(read, err);
    return state_restore(e, seq, &from, flags, err);
}

/* Saving to memory and restoring from it ----------------------------------- */

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
    return save_memory(
        e, &(struct state_range){.seq = seq, .first = first, .n = n}, data,
        bytes, err);
}

pl_status pl_state_swap_out(pl_engine *e, int seq, void **data, size_t *bytes,
                            pl_err *err)
{
    PL_CLEAR(data);
    PL_CLEAR(bytes);
    PL_NEED(e, err);
    PL_NEED(data, err);
    PL_NEED(bytes, err);
    return save_memory(
        e, &(struct state_range){.seq = seq, .n = -1, .aside = true}, data,
        bytes, err);
}

pl_status pl_state_restore_memory(pl_engine *e, int seq, const void *data,
                                  size_t bytes, unsigned flags, pl_err *err)
{
    struct memory m = {.in = data, .size = bytes};
    const struct state_source from = {memory_read, memory_rewind, &m, NULL,
                                      NULL};

    PL_NEED(e, err);
    PL_NEED_ARRAY(data, bytes, err);
    return state_restore(e, seq, &from, flags, err);
}

/* Saving to files and restoring from them ---------------------------------- */

/* A file that a state is read from, with a read buffer. */
struct file {
    int fd;
    int error; /* errno of the first read that failed, else 0 */
    unsigned char *buffer;
    size_t at, end; /* buffer[at .. end) was read but not used yet */
};

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
                             const void *note, size_t note_bytes,
                             const char *path, pl_err *err)
{
    const struct state_range what = {.seq = seq,
                                     .first = first,
                                     .n = n,
                                     .note = note,
                                     .note_bytes = note_bytes};
    pl_file *f;
    pl_status s;

    PL_NEED(e, err);
    PL_NEED_ARRAY(note, note_bytes, err);
    PL_NEED(path, err);
    if (engine_reads_file(e, path))
        return err_set(
            err, PL_BAD_ARGUMENT,
            "%s: this file belongs to the model in use; name another", path);
    PL_TRY(pl_file_open(&f, path, 0, err));
    s = state_save(e, &what, pl_file_write, f, NULL, err);
    if (s == PL_OK)
        s = pl_file_commit(f, err);
    pl_file_close(f);
    return s;
}

/* Opens a file for reading. If it is a named pipe to which no process writes,
 * does not wait for one; reading then finds no data. */
static int open_to_read(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd >= 0)
        /* Clears O_NONBLOCK, so that reads wait for data. */
        (void)fcntl(fd, F_SETFL, 0);
    return fd;
}

pl_status pl_state_restore_file(pl_engine *e, int seq, const char *path,
                                unsigned flags, void **note, size_t *note_bytes,
                                pl_err *err)
{
    struct file f = {.fd = -1};
    struct state_source from = {file_read, NULL, &f, note, note_bytes};
    pl_err why = {0};
    pl_status s;

    PL_CLEAR(note);
    PL_CLEAR(note_bytes);
    PL_NEED(e, err);
    PL_NEED(path, err);
    if (note)
        PL_NEED(note_bytes, err);
    f.fd = open_to_read(path);
    if (f.fd < 0)
        return failed("opening", path, errno, err);
    f.buffer = malloc(BUFFER_BYTES);
    /* Unlike a pipe, a file can be read twice. */
    if (lseek(f.fd, 0, SEEK_SET) == 0)
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
