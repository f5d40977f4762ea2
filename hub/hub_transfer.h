/* One GET over HTTP, redirects followed. libcurl is behind this file alone. */
#ifndef HUB_TRANSFER_H
#define HUB_TRANSFER_H

#include "hub_inner.h"

struct hub_head {
    int status;
    char etag[HUB_ETAG]; /* a strong one; "": none */
    char next[2048];     /* the Link with rel="next"; "": none */
    uint64_t from;       /* of a part: where it begins */
    bool has_total;
    uint64_t total;    /* bytes of the whole file */
    int retry_after_s; /* 0: not said */
};

struct hub_transfer {
    const char *url;
    const char *token;         /* to the url's host alone; NULL: none */
    uint64_t from;             /* 0: all of it */
    const char *if_range;      /* NULL: any */
    const char *if_none_match; /* NULL: none */
    int timeout_s;
    const volatile int *stop; /* may be NULL */
    /* Of the last answer, before its body; called once unless the transfer
     * fails before. False ends the transfer. */
    bool (*begin)(void *user, const struct hub_head *h);
    /* The body of an answer with a status below 300. */
    bool (*data)(void *user, const void *data, size_t n);
    void *user;
};

enum hub_end {
    HUB_WHOLE,     /* the answer is there, whatever its status */
    HUB_RETRYABLE, /* it may be worth another try */
    HUB_STOPPED,   /* by `stop` */
    HUB_ENDED,     /* by `begin` or `data` */
    HUB_FAILED,    /* no try will help */
};

enum { HUB_WHY = 320 };

/* *h is of the last answer, zeros if there was none; `why` says what went wrong
 * if something did. */
enum hub_end hub_get(const struct hub_transfer *t, struct hub_head *h,
                     char why[HUB_WHY]);
/* "https://host:port" of an address, n bytes long; 0: it is none of HTTP. */
size_t hub_origin(const char *url);
/* Is a status worth another try? */
bool hub_status_is_transient(int status);

#endif
