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
    const char *token;         /* sent only to the host of `url`; NULL if
                                  none */
    uint64_t from;             /* offset from which to request; 0 for the whole
                                  file */
    const char *if_range;      /* ETag that the rest must belong to, else the
                                  whole file is sent; NULL for any */
    const char *if_none_match; /* ETag that the file must not have, else status
                                  304; NULL if none */
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
    HUB_NO_ROUTE,  /* the same, because there was no connection at all */
    HUB_STOPPED,   /* cancelled by `stop` */
    HUB_ENDED,     /* `begin` or `data` returned false */
    HUB_FAILED,    /* failed; another try would fail, too */
};

enum { HUB_WHY = 320 };

/* Most tries, and the remedy, while no server has been reached. */
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
