/* Shared by the files of hub/: errors, log messages, retries, and the download
 * of one file. */
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
/* Returns the offset of the host in a URL, after a user name and password if
 * present. */
size_t hub_host(const char *url);
pl_status hub_no_memory(pl_err *err);
pl_status hub_cancelled(pl_err *err);

void hub_log(const struct hub_options *o, pl_log_level level, const char *fmt,
             ...) __attribute__((format(printf, 3, 4)));
bool hub_is_cancelled(const struct hub_options *o);
/* Formats a size in bytes for display, such as "1.2 GB". Returns buf. */
enum { HUB_BYTES = 24 };
const char *hub_bytes(char buf[HUB_BYTES], uint64_t n);
/* Pauses for `ms` milliseconds. Returns false if cancelled (o->stop). */
bool hub_sleep(const struct hub_options *o, int ms);

/* The remaining tries of a request, and the pause before the next one. */
struct hub_retry_state {
    int left, pause_ms;
};
struct hub_retry_state hub_retry_state(const struct hub_options *o);
/* Called after a failed try. Logs `why` and pauses for t->pause_ms
 * milliseconds, but at least `least_s` seconds, which is limited to 60. Returns
 * false if that was the last try, or if cancelled. */
bool hub_retry(const struct hub_options *o, struct hub_retry_state *t,
               int least_s, const char *why);

/* ---- download of one file ------------------------------------------------ */

enum { HUB_ETAG = 256 };

struct hub_download {
    const char *url;
    const char *token; /* access token; NULL if none */
    const char *name;  /* name for display */
    /* USER/REPO of the repository whose licence may have to be accepted; NULL
     * if none */
    const char *page;
    const char *path;   /* destination, in an existing folder */
    const char *sha256; /* expected checksum, 64 digits; "" if unknown */
    bool has_size;
    uint64_t size;
    /* Store the ETag of the response in the file PATH.etag. If PATH exists,
     * send the stored ETag, so that an unchanged file is not downloaded
     * again. */
    bool keep_etag;
};

/* Downloads one file and verifies its checksum. Resumes an earlier partial
 * download. Caller holds the lock of the folder. BAD_FILE: the received data
 * does not match the expected size or checksum. NOT_FOUND: the server returned
 * an error status. Other errors: IO, FULL, CANCELLED, NO_MEMORY. */
pl_status hub_download(const struct hub_options *o,
                       const struct hub_download *d, pl_err *err);

#endif
