/* Shared by the files of hub/: errors, log messages, retries of requests, and
 * the download of one file. */
#ifndef HUB_INNER_H
#define HUB_INNER_H

#include "hub.h"

#include <stddef.h>

/* Sets *err, which may be NULL, to a status and a formatted message. Returns
 * `s`. */
pl_status hub_fail(pl_err *err, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns a formatted string, malloc'ed; NULL if out of memory. */
char *hub_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Returns the offset of the host name in a URL, in bytes. A user name and
 * password before the host are skipped. */
size_t hub_host(const char *url);
/* Returns true if `s` may be the part QUANT of a name USER/REPO:QUANT. */
bool hub_is_quant(const char *s);
pl_status hub_no_memory(pl_err *err);
pl_status hub_cancelled(pl_err *err);

void hub_log(const struct hub_options *o, pl_log_level level, const char *fmt,
             ...) __attribute__((format(printf, 3, 4)));
bool hub_is_cancelled(const struct hub_options *o);
/* Formats a size in bytes for display, such as "1.2 GB". Returns buf. */
enum { HUB_BYTES = 24 };
const char *hub_bytes(char buf[HUB_BYTES], uint64_t n);
/* Pauses for `ms` milliseconds. Returns false if the download is cancelled
 * (o->stop). */
bool hub_sleep(const struct hub_options *o, int ms);

/* The number of tries that a request has left, and the pause before its next
 * try. */
struct hub_retry_state {
    int left, pause_ms;
};
struct hub_retry_state hub_retry_state(const struct hub_options *o);
/* Called after a failed try of a request. Logs the reason `why`. Pauses for
 * t->pause_ms milliseconds, but at least `least_s` seconds, of which at most 60
 * count. Returns false if no try is left or if the download is cancelled. */
bool hub_retry(const struct hub_options *o, struct hub_retry_state *t,
               int least_s, const char *why);

/* ---- downloading one file ------------------------------------------------ */

enum { HUB_ETAG = 256 };

struct hub_download {
    const char *url;
    const char *token; /* access token for the server; NULL if none */
    const char *name;  /* name of the file for messages */
    /* USER/REPO of the file's repository, whose licence the user may have to
     * accept; NULL if the file is not from a hub */
    const char *page;
    /* Path of the downloaded file, PATH, in an existing folder. */
    const char *path;
    /* Expected SHA-256, 64 hexadecimal digits; "" if unknown. */
    const char *sha256;
    bool has_size;
    uint64_t size;
    /* If true, the ETag of the response is stored in the file PATH.etag. If
     * PATH exists already, the stored ETag is sent with the request, so that an
     * unchanged file is not downloaded again. */
    bool keep_etag;
};

/* Downloads one file and verifies its checksum. Resumes an earlier partial
 * download. Caller holds the lock of the file's folder. BAD_FILE: the received
 * bytes do not have the expected size or checksum. NOT_FOUND: the server
 * returned an error status. Other errors: IO, FULL, CANCELLED, NO_MEMORY. */
pl_status hub_download(const struct hub_options *o,
                       const struct hub_download *d, pl_err *err);

#endif
