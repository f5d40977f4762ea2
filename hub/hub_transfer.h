/* One GET over HTTP that follows redirects. Only hub_transfer.c uses
 * libcurl. */
#ifndef HUB_TRANSFER_H
#define HUB_TRANSFER_H

#include "hub_inner.h"

struct hub_head {
    int status;
    char etag[HUB_ETAG]; /* a strong ETag; "": none */
    char next[2048];     /* the Link with rel="next"; "": none */
    uint64_t from;       /* offset of a partial response */
    bool has_total;
    uint64_t total;    /* bytes of the whole file */
    int retry_after_s; /* 0: not given */
};

struct hub_transfer {
    const char *url;
    const char *token;         /* sent only to the url's host; NULL: none */
    uint64_t from;             /* 0: the whole file */
    const char *if_range;      /* NULL: any */
    const char *if_none_match; /* NULL: none */
    int timeout_s;
    const volatile int *stop; /* may be NULL */
    /* Called once with the head of the last response, before its body, unless
     * the transfer fails earlier. Returning false ends the transfer. */
    bool (*begin)(void *user, const struct hub_head *h);
    /* Receives the body of a response with a status below 300. Returning false
     * ends the transfer. */
    bool (*data)(void *user, const void *data, size_t n);
    void *user;
};

enum hub_end {
    HUB_WHOLE,     /* the response is complete, whatever its status */
    HUB_RETRYABLE, /* another try may help */
    HUB_STOPPED,   /* by `stop` */
    HUB_ENDED,     /* by `begin` or `data` */
    HUB_FAILED,    /* no try will help */
};

enum { HUB_WHY = 320 };

/* Runs a GET. *h is the head of the last response, zeros if there was none;
 * `why` describes a failure. */
enum hub_end hub_get(const struct hub_transfer *t, struct hub_head *h,
                     char why[HUB_WHY]);
/* Returns the length of the "https://host:port" part of a URL; 0 if it is not
 * HTTP. */
size_t hub_origin(const char *url);
/* Returns true if another try may help after this status. */
bool hub_status_is_transient(int status);

#endif
