/* What the files of hub/ share: messages, pauses, one file's download. */
#ifndef HUB_INNER_H
#define HUB_INNER_H

#include "hub.h"

#include <stddef.h>

/* Sets *err, which may be NULL, and gives `s` back. */
pl_status hub_fail(pl_err *err, pl_status s, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* malloc'ed; NULL: no memory. */
char *hub_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Where an address's host begins, behind a name and a password. */
size_t hub_host(const char *url);
pl_status hub_no_memory(pl_err *err);
pl_status hub_cancelled(pl_err *err);

void hub_log(const struct hub_options *o, pl_log_level level, const char *fmt,
             ...) __attribute__((format(printf, 3, 4)));
bool hub_is_cancelled(const struct hub_options *o);
/* "1.23 GB" */
enum { HUB_BYTES = 24 };
const char *hub_bytes(char buf[HUB_BYTES], uint64_t n);
/* False: it was stopped. */
bool hub_sleep(const struct hub_options *o, int ms);

/* Tries of one request. */
struct hub_retry_state {
    int left, pause_ms;
};
struct hub_retry_state hub_retry_state(const struct hub_options *o);
/* Says why, and pauses for `least_s` seconds at least (60 at most). False: it
 * was the last, or it was stopped. */
bool hub_retry(const struct hub_options *o, struct hub_retry_state *t,
               int least_s, const char *why);

/* ---- one file ------------------------------------------------------------ */

enum { HUB_ETAG = 256 };

struct hub_download {
    const char *url;
    const char *token;  /* NULL: none */
    const char *name;   /* for people */
    const char *page;   /* USER/REPO whose licence may be asked for; NULL:
                           none */
    const char *path;   /* where it goes; its folder is there */
    const char *sha256; /* 64 digits, or "" */
    bool has_size;
    uint64_t size;
    bool keep_etag; /* in PATH.etag; and if PATH is there, a server that has
                       the same is asked for nothing */
};

/* Who calls it holds the lock of the folder. */
pl_status hub_download(const struct hub_options *o,
                       const struct hub_download *d, pl_err *err);

#endif
