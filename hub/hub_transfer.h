/* Runs one HTTP GET request, following redirects. Only hub_transfer.c uses
 * libcurl. */
#ifndef HUB_TRANSFER_H
#define HUB_TRANSFER_H

#include "hub_inner.h"

struct hub_head {
    int status;
    char etag[HUB_ETAG]; /* strong ETag; "" if none */
    char next[2048];     /* URL of the Link header with rel="next"; "" if
                            none */
    uint64_t from;       /* offset of the first byte of a partial response */
    bool has_total;
    uint64_t total;    /* size of the whole file in bytes */
    int retry_after_s; /* seconds of the Retry-After header; 0 if none */
};

struct hub_transfer {
    const char *url;
    /* access token, sent only to the host of `url`; NULL if none */
    const char *token;
    /* offset of the first byte to request; 0 for the whole file */
    uint64_t from;
    /* ETag of the version whose rest is requested; if the server has another
     * version, it sends the whole file. NULL for any version. */
    const char *if_range;
    /* ETag of the caller's version; if the server has the same, it answers with
     * status 304. NULL if none. */
    const char *if_none_match;
    int timeout_s;
    const volatile int *stop; /* cancels when nonzero; may be NULL */
    /* Called once with the head of the last response (after redirects), before
     * its body. Not called if the transfer fails earlier. Returns false to end
     * the transfer. */
    bool (*begin)(void *user, const struct hub_head *h);
    /* Called with the next bytes of the body, if the status is below 300.
     * Returns false to end the transfer. */
    bool (*data)(void *user, const void *data, size_t n);
    void *user;
};

enum hub_end {
    HUB_WHOLE,     /* the response is complete, with any status */
    HUB_RETRYABLE, /* failed; another try may succeed */
    HUB_NO_ROUTE,  /* failed like HUB_RETRYABLE, without any connection */
    HUB_STOPPED,   /* cancelled by `stop` */
    HUB_ENDED,     /* `begin` or `data` returned false */
    HUB_FAILED,    /* failed; another try would fail, too */
};

enum { HUB_WHY = 320 };

/* While no server has been reached, a request is tried at most this often, and
 * the error message ends with this remedy. */
enum { HUB_NO_ROUTE_TRIES = 2 };
#define HUB_NO_ROUTE_REMEDY                                                    \
    "; check the network and https_proxy, or give a file with -m"

/* Runs the request. Sets *h to the head of the last response, {0} if there was
 * none. On failure, `why` describes it. */
enum hub_end hub_get(const struct hub_transfer *t, struct hub_head *h,
                     char why[HUB_WHY]);
/* Returns the length of the beginning of a URL that names the server, such as
 * "https://host:port". 0 if it is not an HTTP or HTTPS URL. */
size_t hub_origin(const char *url);
/* Returns true if a request that got this HTTP status may succeed when tried
 * again. */
bool hub_status_is_transient(int status);

#endif
