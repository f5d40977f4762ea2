/* Implements serve_receipts.h. The thread takes all lines that wait at once, so
 * that a queue is two buffers: one that grows and one that is written.
 *
 * The struct belongs to the thread if that is still within write(2) when the
 * server ends, because nobody can end such a call. */
#include "serve_receipts.h"
#include "atomic_file.h"
#include "cmd.h"
#include "printable.h"
#include "serve_model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    WAITING_BYTES = 64 << 20, /* limit of the receipts that wait in memory */
    FLUSH_S = 2, /* limit in seconds for them to be written at the end */
};

struct serve_receipts {
    const struct options *o; /* borrowed */
    int fd;
    bool is_std; /* `fd` is standard output */
    pthread_t thread;
    pthread_mutex_t lock; /* of the fields below */
    pthread_cond_t changed;
    char *text; /* [n], of [size]: lines that wait; owned */
    size_t n, size;
    size_t n_taken; /* bytes that the thread is writing */
    bool ends;      /* the thread ends once no line waits */
    bool ended;
    bool is_left;   /* nobody waits for the thread, and `o` may be freed */
    int error;      /* errno of the first failed write; 0 if none failed */
    bool is_short;  /* the last receipt found no space in memory */
    int64_t n_lost; /* receipts that were not written */
};

static void receipts_free(struct serve_receipts *r)
{
    if (!r->is_std && r->fd >= 0)
        close(r->fd);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r->text);
    free(r);
}

/* ---- the thread ---------------------------------------------------------- */

static int64_t count_lines(const char *s, size_t n)
{
    int64_t lines = 0;

    for (size_t i = 0; i < n; i++)
        lines += s[i] == '\n';
    return lines;
}

/* Removes from the end of a file `n` bytes of a line that could not be written
 * in full, unless another program has appended to it since. */
static void cut(int fd, off_t n)
{
    off_t end = lseek(fd, 0, SEEK_CUR);
    struct stat st;

    if (end >= n && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
        st.st_size == end)
        (void)!ftruncate(fd, end - n);
}

/* Writes the lines s[0 .. n). Returns 0 or errno, with *lost set to the number
 * of lines that were not written. */
static int write_lines(int fd, const char *s, size_t n, int64_t *lost)
{
    size_t at = 0;

    while (at < n) {
        ssize_t k = write(fd, s + at, n - at);
        int e = k < 0 ? errno : EIO;
        size_t half = 0;

        if (k > 0)
            at += (size_t)k;
        else if (k == 0 || e != EINTR) {
            while (half < at && s[at - half - 1] != '\n')
                half++;
            if (half > 0)
                cut(fd, (off_t)half);
            *lost = count_lines(s + at, n - at);
            return e;
        }
    }
    *lost = 0;
    return 0;
}

static void *write_thread(void *user)
{
    struct serve_receipts *r = user;
    bool is_left;

    pthread_mutex_lock(&r->lock);
    while (!r->ends || r->n > 0) {
        char *text = r->text;
        size_t n = r->n;
        bool is_first;
        int64_t lost;
        int e = r->error;

        if (n == 0) {
            pthread_cond_wait(&r->changed, &r->lock);
            continue;
        }
        r->text = NULL;
        r->n = r->size = 0;
        r->n_taken = n;
        pthread_mutex_unlock(&r->lock);
        if (e == 0)
            e = write_lines(r->fd, text, n, &lost);
        else
            lost = count_lines(text, n);
        free(text);
        pthread_mutex_lock(&r->lock);
        if (r->is_left)
            break;
        r->n_taken = 0;
        is_first = r->error == 0 && e != 0;
        r->error = e;
        r->n_lost += lost;
        if (is_first) /* under the lock, because r->o may go when r is left */
            serve_log((void *)r->o, PL_LOG_WARN,
                      "--receipt cannot be written: this receipt and all later "
                      "ones are lost; stop the server to see why");
    }
    r->ended = true;
    is_left = r->is_left;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (is_left)
        receipts_free(r);
    return NULL;
}

/* ---- the server's threads ------------------------------------------------ */

/* Appends a line to those that wait. Returns false if there is no space. */
static bool add(struct serve_receipts *r, const char *json)
{
    size_t len = strlen(json), need = r->n + len + 1, size = r->size;

    if (need + r->n_taken > WAITING_BYTES)
        return false;
    if (need > size) {
        char *more;

        size = 2 * size > need ? 2 * size : need;
        more = realloc(r->text, size);
        if (more == NULL)
            return false;
        r->text = more;
        r->size = size;
    }
    memcpy(r->text + r->n, json, len);
    r->text[need - 1] = '\n';
    r->n = need;
    return true;
}

void serve_receipts_keep(void *user, const char *json)
{
    struct serve_receipts *r = user;
    bool is_short, is_first;

    pthread_mutex_lock(&r->lock);
    is_short = !add(r, json);
    is_first = is_short && !r->is_short;
    r->is_short = is_short;
    r->n_lost += is_short;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (is_first)
        serve_log((void *)r->o, PL_LOG_WARN,
                  "--receipt is not read or written fast enough: receipts are "
                  "lost until it is");
}

/* ---- start and end ------------------------------------------------------- */

/* Returns true if the file at `path` ends within a line. */
static bool is_cut(const char *path, const struct stat *st)
{
    int fd = -1;
    char last = '\n';

    if (S_ISREG(st->st_mode) && st->st_size > 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!pread(fd, &last, 1, st->st_size - 1);
        close(fd);
    }
    return last != '\n';
}

static enum exit_code cannot(const struct options *o, const char *what, int e)
{
    char name[SHOWN];

    return cli_error(CMD_SERVE, EXIT_FAILED, "--receipt %s: %s%s",
                     clip_printable(name, o->receipt), what, strerror(e));
}

static enum exit_code open_file(struct serve_receipts *r)
{
    const char *path = r->o->receipt;
    struct stat st;

    r->is_std = strcmp(path, "-") == 0;
    if (r->is_std) {
        fflush(stdout);
        r->fd = STDOUT_FILENO;
        return EXIT_DONE;
    }
    r->fd =
        open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666);
    if (r->fd < 0 || fstat(r->fd, &st) != 0)
        return cannot(r->o, "", errno);
    if (S_ISBLK(st.st_mode))
        return cannot(r->o, "", ENOTSUP);
    if (is_cut(path, &st) && write(r->fd, "\n", 1) != 1)
        return cannot(r->o, "writing it: ", errno);
    return EXIT_DONE;
}

enum exit_code serve_receipts_open(struct serve_receipts **out,
                                   const struct options *o)
{
    struct serve_receipts *r;
    pthread_condattr_t clock;
    enum exit_code c;
    int e;

    *out = NULL;
    if (o->receipt == NULL)
        return EXIT_DONE;
    r = calloc(1, sizeof(*r));
    if (r == NULL)
        return cli_error(CMD_SERVE, EXIT_FAILED, "no memory for receipts");
    r->o = o;
    r->fd = -1;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &clock);
    pthread_condattr_destroy(&clock);
    c = open_file(r);
    if (c == EXIT_DONE) {
        e = pthread_create(&r->thread, NULL, write_thread, r);
        if (e != 0)
            c = cannot(o, "starting a thread: ", e);
    }
    if (c == EXIT_DONE)
        *out = r;
    else
        receipts_free(r);
    return c;
}

/* Waits until the thread has ended, for at most FLUSH_S seconds. Returns true
 * if it has; otherwise `r` belongs to the thread. */
static bool await_thread(struct serve_receipts *r)
{
    struct timespec until;
    bool ended;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FLUSH_S;
    pthread_mutex_lock(&r->lock);
    r->ends = true;
    pthread_cond_broadcast(&r->changed);
    while (!r->ended &&
           pthread_cond_timedwait(&r->changed, &r->lock, &until) == 0)
        ;
    ended = r->ended;
    r->is_left = !ended;
    if (!ended)
        pthread_detach(r->thread);
    pthread_mutex_unlock(&r->lock);
    return ended;
}

enum exit_code serve_receipts_close(struct serve_receipts *r, enum exit_code c)
{
    enum exit_code failed = EXIT_DONE;

    if (r == NULL)
        return c;
    if (!await_thread(r)) {
        failed = cli_error(CMD_SERVE, EXIT_FAILED,
                           "--receipt: its reader or disk has stalled for %d "
                           "s; the last receipts are lost",
                           FLUSH_S);
        return c == EXIT_DONE ? failed : c;
    }
    pthread_join(r->thread, NULL);
    if (r->is_std && r->error == EPIPE)
        failed = EXIT_PIPE; /* the reader is gone, as in finish_out */
    else if (r->error != 0)
        failed = cannot(r->o, "writing it: ", r->error);
    if (r->n_lost > 0 && failed != EXIT_PIPE)
        failed = cli_error(CMD_SERVE, EXIT_FAILED,
                           "%" PRId64 " receipts are lost", r->n_lost);
    receipts_free(r);
    return c == EXIT_DONE ? failed : c;
}
