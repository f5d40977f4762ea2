/* Downloads one file to PATH. The bytes are written to PATH.part, the partial
 * file. It is kept after a failure, and the next download resumes it with a
 * Range request (PL_FILE_RESUME). PATH.part.etag contains the ETag of the file
 * version from which the partial file was received. A server without support
 * for ranges sends the whole file again. The checksum is computed while bytes
 * are received, after the bytes already in PATH.part were read. */
#include "hub_api.h"
#include "hub_files.h"
#include "hub_sha256.h"
#include "hub_transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct coming {
    const struct hub_options *o;
    const struct hub_download *d;
    /* Paths of the partial file, of the file with its ETag, and of the file
     * with the ETag of PATH; owned. */
    char *part, *part_etag, *etag_path;
    pl_file *file; /* the partial file, open for writing; owned */
    int fd;        /* file descriptor of `file` */
    struct hub_sha256 sum;
    /* Number of bytes in the partial file; the checksum `sum` includes all of
     * them. */
    uint64_t have;
    bool has_size;
    uint64_t size;
    /* ETag of the file version from which the partial file was received; "" if
     * unknown */
    char etag[HUB_ETAG];
    /* Some bytes of the partial file were received by an earlier download. */
    bool resumed;
    bool same; /* the server confirmed that the file PATH is up to date */
    /* The error that made on_begin or on_data end the transfer, described in
     * *err. */
    pl_status s;
    pl_err *err;
};

/* ---- the partial file ---------------------------------------------------- */

static pl_status cannot_write(struct coming *g, int e)
{
    if (e == ENOSPC || e == EDQUOT)
        return hub_fail(g->err, PL_FULL,
                        "%s: the disk is full; free space and run the command "
                        "again, the download will resume",
                        g->part);
    return hub_fail(g->err, PL_IO, "%s: %s; the partial download is kept",
                    g->part, strerror(e));
}

static pl_status restart_download(struct coming *g)
{
    char unused[HUB_SHA256];

    if (ftruncate(g->fd, 0) != 0)
        return cannot_write(g, errno);
    unlink(g->part_etag);
    hub_sha256_end(&g->sum, unused);
    g->have = 0;
    g->etag[0] = '\0';
    g->resumed = false;
    return PL_OK;
}

/* Adds the first n bytes of the partial file, which an earlier download
 * received, to the checksum. */
static pl_status read_part(struct coming *g, uint64_t n)
{
    enum { BLOCK = 1 << 20 };
    char *buf = malloc(BLOCK);
    pl_status s = buf != NULL ? PL_OK : hub_no_memory(g->err);

    while (s == PL_OK && g->have < n) {
        ssize_t got = pread(g->fd, buf, BLOCK, (off_t)g->have);

        if (got <= 0)
            s = hub_fail(g->err, PL_IO, "%s: %s", g->part,
                         got < 0 ? strerror(errno) : "the file shrank");
        else if (hub_is_cancelled(g->o))
            s = hub_cancelled(g->err);
        if (s == PL_OK) {
            hub_sha256_add(&g->sum, buf, (size_t)got);
            g->have += (uint64_t)got;
        }
    }
    free(buf);
    return s;
}

static bool names(struct coming *g)
{
    const char *path = g->d->path;

    g->part = hub_asprintf("%s.part", path);
    g->part_etag = hub_asprintf("%s.part.etag", path);
    g->etag_path = hub_asprintf("%s.etag", path);
    return g->part != NULL && g->part_etag != NULL && g->etag_path != NULL;
}

static void read_etag(char etag[HUB_ETAG], const char *path)
{
    size_t n;
    char *s;

    etag[0] = '\0';
    if (hub_read_file(path, HUB_ETAG - 1, &s, &n) == PL_OK && strlen(s) == n &&
        n > 2 && s[0] == '"' && strpbrk(s, "\r\n") == NULL)
        strcpy(etag, s);
    free(s);
}

static pl_status open_part(struct coming *g)
{
    struct stat st;
    pl_status s;

    if (!names(g) || !hub_sha256_init(&g->sum))
        return hub_no_memory(g->err);
    s = pl_file_open(&g->file, g->d->path, PL_FILE_RESUME, g->err);
    if (s != PL_OK)
        return s;
    g->fd = pl_file_fd(g->file);
    if (fstat(g->fd, &st) != 0)
        return cannot_write(g, errno);
    if (st.st_size == 0)
        return PL_OK;
    read_etag(g->etag, g->part_etag);
    /* Without an ETag or an expected checksum, it is unknown from which version
     * of the file the partial file was received, so it cannot be resumed. */
    if ((g->etag[0] == '\0' && g->d->sha256[0] == '\0') ||
        (g->has_size && (uint64_t)st.st_size > g->size))
        return restart_download(g);
    g->resumed = true;
    return read_part(g, (uint64_t)st.st_size);
}

static void close_part(struct coming *g)
{
    pl_file_close(g->file);
    hub_sha256_fini(&g->sum);
    free(g->part);
    free(g->part_etag);
    free(g->etag_path);
}

/* ---- receiving data from the server -------------------------------------- */

static pl_status take_size(struct coming *g, const struct hub_head *h)
{
    if (!h->has_total)
        return PL_OK;
    if (g->has_size && g->size != h->total)
        return hub_fail(
            g->err, PL_BAD_FILE,
            "%s: the server has %llu bytes, expected %llu; try again later",
            g->d->name, (unsigned long long)h->total,
            (unsigned long long)g->size);
    g->has_size = true;
    g->size = h->total;
    return PL_OK;
}

static pl_status take_head(struct coming *g, const struct hub_head *h)
{
    pl_status s = PL_OK;

    if (h->status == 200 && g->have > 0) {
        hub_log(g->o, PL_LOG_INFO,
                "%s: the server cannot resume, starting over", g->d->name);
        if (!g->d->has_size)
            g->has_size = false; /* the size came from an earlier response; the
                                    server may have another version of the file
                                    now */
        s = restart_download(g);
    }
    if (s == PL_OK && h->status == 206 && h->from != g->have)
        s = hub_fail(g->err, PL_BAD_FILE,
                     "%s: requested the bytes from %llu, but the server sends "
                     "those from %llu",
                     g->d->name, (unsigned long long)g->have,
                     (unsigned long long)h->from);
    if (s == PL_OK)
        s = take_size(g, h);
    if (s != PL_OK || strcmp(g->etag, h->etag) == 0)
        return s;
    strcpy(g->etag, h->etag);
    return g->etag[0] != '\0' ? hub_write_file(g->part_etag, g->etag, g->err)
                              : PL_OK;
}

static bool on_begin(void *user, const struct hub_head *h)
{
    struct coming *g = user;

    if (h->status == 200 || h->status == 206)
        g->s = take_head(g, h);
    else if (h->status < 300) /* other success statuses, such as 204, come
                                 without the file's bytes */
        g->s = hub_api_error(g->o, h->status, g->d->name, g->d->page, g->err);
    return g->s == PL_OK;
}

static bool on_data(void *user, const void *data, size_t n)
{
    struct coming *g = user;
    const char *from = data;

    if (g->has_size && n > g->size - g->have) {
        g->s =
            hub_fail(g->err, PL_BAD_FILE,
                     "%s: the server sends more than the %llu bytes expected",
                     g->d->name, (unsigned long long)g->size);
        return false;
    }
    for (size_t at = 0; at < n;) {
        ssize_t done = pwrite(g->fd, from + at, n - at, (off_t)(g->have + at));

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            g->s = cannot_write(g, done < 0 ? errno : ENOSPC);
            return false;
        }
        at += (size_t)done;
    }
    hub_sha256_add(&g->sum, data, n);
    g->have += n;
    if (g->o->progress != NULL)
        g->o->progress(g->o->progress_user, g->d->name, g->have,
                       g->has_size ? g->size : 0);
    return true;
}

/* ---- sending requests and retrying --------------------------------------- */

static enum hub_end get(struct coming *g, const char *known, struct hub_head *h,
                        char why[HUB_WHY])
{
    const struct hub_transfer t = {
        .url = g->d->url,
        .token = g->d->token,
        .from = g->have,
        .if_range = g->etag[0] != '\0' ? g->etag : NULL,
        .if_none_match = g->have == 0 && known[0] != '\0' ? known : NULL,
        .timeout_s = g->o->timeout_s > 0 ? g->o->timeout_s : 60,
        .stop = g->o->stop,
        .begin = on_begin,
        .data = on_data,
        .user = g};

    return hub_get(&t, h, why);
}

/* Evaluates the head `h` of a response that was received completely. If another
 * request is needed, sets *more, and `why` to the reason. */
static pl_status judge(struct coming *g, const struct hub_head *h, bool *more,
                       char why[HUB_WHY])
{
    *more = false;
    if (h->status == 304 && g->have == 0) {
        g->same = true;
        return PL_OK;
    }
    if (h->status == 200 || h->status == 206) {
        *more = g->has_size && g->have < g->size;
        snprintf(why, HUB_WHY, "received %llu of %llu bytes",
                 (unsigned long long)g->have, (unsigned long long)g->size);
        return PL_OK;
    }
    *more = hub_status_is_transient(h->status) || h->status == 416;
    snprintf(why, HUB_WHY, "the server returned status %d", h->status);
    if (h->status == 416)
        return restart_download(g);
    return *more
               ? PL_OK
               : hub_api_error(g->o, h->status, g->d->name, g->d->page, g->err);
}

static pl_status get_all(struct coming *g, const char *known)
{
    struct hub_retry_state tries = hub_retry_state(g->o);
    char why[HUB_WHY], said[HUB_WHY + 300];
    struct hub_head h;
    bool more = !g->has_size || g->have < g->size, reached = false;

    while (more) {
        uint64_t had = g->have;
        enum hub_end end = get(g, known, &h, why);
        pl_status s = end == HUB_WHOLE ? judge(g, &h, &more, why) : PL_OK;

        if (end == HUB_STOPPED)
            return hub_cancelled(g->err);
        if (end == HUB_ENDED || s != PL_OK)
            return s != PL_OK ? s : g->s;
        if (end == HUB_FAILED)
            return hub_fail(g->err, PL_IO, "%s: %s", g->d->name, why);
        reached = reached || end != HUB_NO_ROUTE;
        if (!more || (g->has_size && g->have == g->size))
            break;
        if (g->have > had)
            tries = hub_retry_state(g->o);
        if (!reached && tries.left > HUB_NO_ROUTE_TRIES)
            tries.left = HUB_NO_ROUTE_TRIES;
        snprintf(said, sizeof said, "%.250s: %s", g->d->name, why);
        if (!hub_retry(g->o, &tries, h.retry_after_s, said))
            return hub_is_cancelled(g->o)
                       ? hub_cancelled(g->err)
                       : hub_fail(g->err, PL_IO, "%s%s", said,
                                  reached ? "; run the command again to resume"
                                          : HUB_NO_ROUTE_REMEDY);
    }
    return PL_OK;
}

/* ---- verifying the file and moving it to PATH ---------------------------- */

static pl_status commit_file(struct coming *g)
{
    pl_status s;

    /* The ETag that is stored for PATH is that of an older version. */
    unlink(g->etag_path);
    s = pl_file_commit(g->file, g->err);
    if (s != PL_OK)
        return s;
    unlink(g->part_etag);
    return g->d->keep_etag && g->etag[0] != '\0'
               ? hub_write_file(g->etag_path, g->etag, g->err)
               : PL_OK;
}

/* Verifies the checksum of the whole file. If it is wrong, empties the partial
 * file. If some of its bytes were received by an earlier download, then sets
 * *again and returns PL_OK, so that the file is downloaded once more. Otherwise
 * returns BAD_FILE. */
static pl_status check_sum(struct coming *g, bool *again)
{
    char sum[HUB_SHA256];

    hub_sha256_end(&g->sum, sum);
    *again = false;
    if (g->d->sha256[0] == '\0' || strcmp(sum, g->d->sha256) == 0)
        return PL_OK;
    *again = g->resumed;
    if (restart_download(g) != PL_OK)
        return g->err != NULL ? g->err->status : PL_IO;
    if (*again) {
        hub_log(g->o, PL_LOG_WARN,
                "%s: the earlier partial download is damaged; downloading the "
                "whole file again",
                g->d->name);
        return PL_OK;
    }
    unlink(g->part);
    return hub_fail(g->err, PL_BAD_FILE,
                    "%s: the download is damaged: its SHA-256 is %s, the hub "
                    "lists %s; it was deleted, try again later",
                    g->d->name, sum, g->d->sha256);
}

static void tell(const struct coming *g)
{
    char all[HUB_BYTES], have[HUB_BYTES];

    if (!g->has_size)
        hub_log(g->o, PL_LOG_INFO, "downloading %s", g->d->name);
    else if (g->have > 0)
        hub_log(g->o, PL_LOG_INFO, "downloading %s, %s; %s already there",
                g->d->name, hub_bytes(all, g->size), hub_bytes(have, g->have));
    else
        hub_log(g->o, PL_LOG_INFO, "downloading %s, %s", g->d->name,
                hub_bytes(all, g->size));
}

pl_status hub_download(const struct hub_options *o,
                       const struct hub_download *d, pl_err *err)
{
    struct coming g = {
        .o = o, .d = d, .has_size = d->has_size, .size = d->size, .err = err};
    char known[HUB_ETAG] = "";
    pl_status s = open_part(&g);
    bool again = true;

    if (s == PL_OK && d->keep_etag && access(d->path, F_OK) == 0)
        read_etag(known, g.etag_path);
    if (s == PL_OK && known[0] == '\0')
        tell(&g);
    while (s == PL_OK && again) {
        s = get_all(&g, known);
        again = false;
        if (s == PL_OK && !g.same)
            s = check_sum(&g, &again);
    }
    if (s == PL_OK && !g.same)
        s = commit_file(&g);
    if (s == PL_OK && g.same)
        unlink(g.part);
    close_part(&g);
    return s;
}
