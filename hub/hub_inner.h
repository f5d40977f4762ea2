/* Shared by the files of hub/: messages, pauses, the download of one file. */
#ifndef HUB_INNER_H
#define HUB_INNER_H

#include "hub.h"

#include <stddef.h>

/* Sets *err, which may be NULL, and returns `s`. */
pl_status hub_fail(pl_err *err, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns a malloc'ed text; NULL if out of memory. */
char *hub_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Returns the offset of a URL's host, after a user name and password. */
size_t hub_host(const char *url);
pl_status hub_no_memory(pl_err *err);
pl_status hub_cancelled(pl_err *err);

void hub_log(const struct hub_options *o, pl_log_level level, const char *fmt,
             ...) __attribute__((format(printf, 3, 4)));
bool hub_is_cancelled(const struct hub_options *o);
/* Formats a size: "1.23 GB". */
enum { HUB_BYTES = 24 };
const char *hub_bytes(char buf[HUB_BYTES], uint64_t n);
/* Returns false if the pause was cancelled. */
bool hub_sleep(const struct hub_options *o, int ms);

/* The remaining tries of one request. */
struct hub_retry_state {
    int left, pause_ms;
};
struct hub_retry_state hub_retry_state(const struct hub_options *o);
/* Logs the reason and pauses for at least `least_s` seconds (at most 60).
 * Returns false if that was the last try or it was cancelled. */
bool hub_retry(const struct hub_options *o, struct hub_retry_state *t,
               int least_s, const char *why);

/* ---- one file ------------------------------------------------------------ */

enum { HUB_ETAG = 256 };

struct hub_download {
    const char *url;
    const char *token; /* NULL: none */
    const char *name;  /* for display */
    /* USER/REPO whose licence may need to be accepted; may be NULL */
    const char *page;
    const char *path;   /* destination; its folder exists */
    const char *sha256; /* 64 digits, or "" */
    bool has_size;
    uint64_t size;
    /* store the ETag in PATH.etag; if PATH exists, send it, so that an
     * unchanged file is not downloaded */
    bool keep_etag;
};

/* Downloads one file. Caller holds the lock of the folder. */
pl_status hub_download(const struct hub_options *o,
                       const struct hub_download *d, pl_err *err);

#endif
