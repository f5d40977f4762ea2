/* Runs one HTTP GET request, following redirects. hub_transfer.c is the only
 * file that uses libcurl. */
#ifndef HUB_TRANSFER_H
#define HUB_TRANSFER_H

#include "hub_inner.h"

struct hub_head {
    int status;
    char etag[HUB_ETAG]; /* strong ETag of the response; "" if it has none */
    /* URL of the Link header with rel="next", the next part of a list; "" if
     * there is none. */
    char next[2048];
    /* Offset in the file of the first byte that a partial response (206)
     * has. */
    uint64_t from;
    bool has_total;
    /* Size of the whole file in bytes, even if the response has only a part. */
    uint64_t total;
    /* Seconds from the Retry-After header; 0 if there is none. */
    int retry_after_s;
};

struct hub_transfer {
    const char *url;
    /* Access token, which is sent only to the host of `url`; NULL if none. */
    const char *token;
    /* Offset in the file of the first byte to request; 0 for the whole file. */
    uint64_t from;
    /* ETag of the version whose remaining bytes are requested. If the server
     * has another version, it sends the whole file. NULL to accept any
     * version. */
    const char *if_range;
    /* ETag of the version that the caller has. If the server has the same
     * version, it responds with status 304 and no body. NULL if the caller has
     * none. */
    const char *if_none_match;
    int timeout_s;
    /* The transfer is cancelled when *stop is nonzero; may be NULL. */
    const volatile int *stop;
    /* Called once with the head of the last response (after redirects), before
     * its body. Not called if the transfer fails before that. Returns false to
     * end the transfer. */
    bool (*begin)(void *user, const struct hub_head *h);
    /* Called with the next n bytes of the response's body, if the status is
     * below 300. Returns false to end the transfer. */
    bool (*data)(void *user, const void *data, size_t n);
    void *user;
};

enum hub_end {
    HUB_WHOLE, /* the response was received completely, with any HTTP status */
    HUB_RETRYABLE, /* the transfer failed; another try may succeed */
    /* Like HUB_RETRYABLE, and no connection to any server was made. */
    HUB_NO_ROUTE,
    HUB_STOPPED, /* the transfer was cancelled by hub_transfer.stop */
    HUB_ENDED,   /* the callback `begin` or `data` returned false */
    HUB_FAILED,  /* the transfer failed; another try would fail, too */
};

enum { HUB_WHY = 320 };

/* A request for which no server could be reached is tried at most this often.
 * Its error message then ends with HUB_NO_ROUTE_REMEDY. */
enum { HUB_NO_ROUTE_TRIES = 2 };
#define HUB_NO_ROUTE_REMEDY                                                    \
    "; check the network and https_proxy, or give a file with -m"

/* Runs the request *t. Sets *h to the head of the last response, or to {0} if
 * there was none. On failure, sets `why` to a description of the failure. */
enum hub_end hub_get(const struct hub_transfer *t, struct hub_head *h,
                     char why[HUB_WHY]);
/* Returns the length in bytes of the beginning of a URL that names the server,
 * such as "https://host:port"; 0 if it is not an HTTP or HTTPS URL. */
size_t hub_origin(const char *url);
/* Returns true for an HTTP status of a temporary failure, after which the same
 * request may succeed. */
bool hub_status_is_transient(int status);

#endif
